/* Locks with a seeded mistake, to see that real-programs.sh notices: `selftest` preloads this.
 * LATCHWORK_MUTEX names the mistake; anything but these is glibc's lock.
 *
 *   no-exclusion   lock and unlock do nothing
 *   lost-wakeup    after 20,000 locks in a process with two threads a lock waits for a wake-up that
 *                  nobody sends
 *   lost-handover  the same, but the waiter spins
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/single_threaded.h>
#include <unistd.h>

static enum { GLIBC, NO_EXCLUSION, LOST_WAKEUP, LOST_HANDOVER } mistake;
static int (*real_lock)(pthread_mutex_t *), (*real_unlock)(pthread_mutex_t *);
static unsigned calls;

__attribute__((constructor)) static void start(void) {
    const char *name = getenv("LATCHWORK_MUTEX");
    if (!name) return;
    if (!strcmp(name, "no-exclusion")) mistake = NO_EXCLUSION;
    if (!strcmp(name, "lost-wakeup")) mistake = LOST_WAKEUP;
    if (!strcmp(name, "lost-handover")) mistake = LOST_HANDOVER;
}

int pthread_mutex_lock(pthread_mutex_t *mutex) {
    if (!real_lock) *(void **)&real_lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    if (mistake == NO_EXCLUSION) return 0;
    if (mistake != GLIBC && !__libc_single_threaded && __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED) > 20000)
        for (;;) mistake == LOST_WAKEUP ? pause() : sched_yield();
    return real_lock(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t *mutex) {
    if (!real_unlock) *(void **)&real_unlock = dlsym(RTLD_NEXT, "pthread_mutex_unlock");
    return mistake == NO_EXCLUSION ? 0 : real_unlock(mutex);
}

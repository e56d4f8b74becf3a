/* With LIBRARY: a library that comes behind latchwork's, and counts calls under a mutex. It has functions that latchwork's calls, or
   has called, while it sets the process up. Else a program that uses what was set up. */
#include "check.h"
#include <dlfcn.h>
#include <link.h>

#ifdef LIBRARY
static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER;
static long calls;

static void *count(const char *name, const char *version)
{
    void *next = dlvsym(RTLD_NEXT, name, version);
    pthread_mutex_lock(&counting);
    calls++;
    pthread_mutex_unlock(&counting);
    return next;
}

/* latchwork's library asks for functions with a version, so these have one. */
__asm__(".symver counted_cond_init, pthread_cond_init@@GLIBC_2.3.2");
__asm__(".symver counted_rdlock, pthread_rwlock_rdlock@@GLIBC_2.2.5");

int counted_cond_init(pthread_cond_t *cond, const pthread_condattr_t *attributes)
{
    int (*next)(pthread_cond_t *, const pthread_condattr_t *) = count("pthread_cond_init", "GLIBC_2.3.2");
    return next(cond, attributes);
}

int counted_rdlock(pthread_rwlock_t *lock)
{
    int (*next)(pthread_rwlock_t *) = count("pthread_rwlock_rdlock", "GLIBC_2.2.5");
    return next(lock);
}

int dl_iterate_phdr(int (*look)(struct dl_phdr_info *, size_t, void *), void *argument)
{
    int (*next)(int (*)(struct dl_phdr_info *, size_t, void *), void *) =
        count("dl_iterate_phdr", "GLIBC_2.2.5");
    return next(look, argument);
}
#else
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond;
static int ready;

static void *signal_it(void *argument)
{
    OK(pthread_rwlock_rdlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
    OK(pthread_mutex_lock(&mutex));
    ready = 1;
    OK(pthread_cond_signal(&cond));
    OK(pthread_mutex_unlock(&mutex));
    return argument;
}

int main(void)
{
    /* glibc serves the second kind, and the library knows it by a bit of glibc's. */
    for (int shared = 0; shared < 2; shared++) {
        pthread_condattr_t attributes;
        OK(pthread_condattr_init(&attributes));
        OK(pthread_condattr_setpshared(&attributes, shared ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE));
        OK(pthread_cond_init(&cond, &attributes));
        ready = 0;
        pthread_t thread = start(signal_it, NULL);
        OK(pthread_mutex_lock(&mutex));
        while (!ready)
            OK(pthread_cond_wait(&cond, &mutex));
        OK(pthread_mutex_unlock(&mutex));
        join(thread);
        OK(pthread_cond_destroy(&cond));
    }
    OK(pthread_rwlock_wrlock(&rwlock));
    OK(pthread_rwlock_unlock(&rwlock));
    puts("ok");
    return 0;
}
#endif

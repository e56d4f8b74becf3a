/* A waiter that stops running keeps a lock that has been released from nobody. Each thread in turn is stopped in a
   signal handler while it waits for the lock, and the others must get it: those that waited already, those that come,
   by lock, trylock and the timed form. Only then does it go on. Or it never goes on, because the handler leaves the call by a
   jump; the thread then uses the lock itself. */
#include "check.h"
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>

enum { WAITERS = 4, TURNS = 50 };

struct lock {
    const char *name;
    int (*lock)(void *);
    int (*try)(void *);
    int (*timed)(void *, const struct timespec *);
    int (*unlock)(void *);
    void *object;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;

#define CALL(name, type, call)                                                              \
    static int name(void *object) { return call((type *)object); }
#define CALL_TIMED(name, type, call)                                                        \
    static int name(void *object, const struct timespec *deadline)                          \
    {                                                                                       \
        return call((type *)object, deadline);                                              \
    }
CALL(mutex_lock, pthread_mutex_t, pthread_mutex_lock)
CALL(mutex_try, pthread_mutex_t, pthread_mutex_trylock)
CALL_TIMED(mutex_timed, pthread_mutex_t, pthread_mutex_timedlock)
CALL(mutex_unlock, pthread_mutex_t, pthread_mutex_unlock)
CALL(read_lock, pthread_rwlock_t, pthread_rwlock_rdlock)
CALL(read_try, pthread_rwlock_t, pthread_rwlock_tryrdlock)
CALL_TIMED(read_timed, pthread_rwlock_t, pthread_rwlock_timedrdlock)
CALL(write_lock, pthread_rwlock_t, pthread_rwlock_wrlock)
CALL(write_try, pthread_rwlock_t, pthread_rwlock_trywrlock)
CALL_TIMED(write_timed, pthread_rwlock_t, pthread_rwlock_timedwrlock)
CALL(rwlock_unlock, pthread_rwlock_t, pthread_rwlock_unlock)

static const struct lock exclusive = { "mutex", mutex_lock, mutex_try, mutex_timed, mutex_unlock, &mutex };
static const struct lock reader = { "read lock", read_lock, read_try, read_timed, rwlock_unlock, &rwlock };
static const struct lock writer = { "write lock", write_lock, write_try, write_timed, rwlock_unlock, &rwlock };

/* The stopped thread says so, and waits in the handler, or jumps. */
static sem_t stopped, go_on;
static int jumps;
static __thread sigjmp_buf outside;
static void handler(int signal)
{
    (void)signal;
    sem_post(&stopped);
    if (jumps)
        siglongjmp(outside, 1);
    while (sem_wait(&go_on) != 0)
        ;
}

static sem_t prepared, had;
static void *wait_for(void *argument)
{
    const struct lock *lock = argument;
    if (sigsetjmp(outside, 1) == 0)
        sem_post(&prepared);
    else
        while (sem_wait(&go_on) != 0)
            ;
    OK(lock->lock(lock->object));
    OK(lock->unlock(lock->object));
    sem_post(&had);
    return NULL;
}

static void *use(void *argument)
{
    const struct lock *lock = argument;
    for (int turn = 0; turn < TURNS; turn++) {
        OK(lock->lock(lock->object));
        OK(lock->unlock(lock->object));
        /* Nobody has it for long. An attempt may fail for a while. */
        while (lock->try(lock->object) != 0)
            sleep_ms(1);
        OK(lock->unlock(lock->object));
        struct timespec deadline = in_ms(CLOCK_REALTIME, 120000);
        OK(lock->timed(lock->object, &deadline));
        OK(lock->unlock(lock->object));
    }
    return NULL;
}

/* `waits` is what the threads in the queue want, of which number `victim` is stopped; `holds` what keeps them out, and
   `comes` what is asked for then. */
static void stop_one_after(int ms, const struct lock *waits, const struct lock *holds, const struct lock *comes, int victim)
{
    pthread_t waiters[WAITERS], users[2];
    OK(holds->lock(holds->object));
    for (int i = 0; i < WAITERS; i++) {
        waiters[i] = start(wait_for, (void *)waits);
        /* A thread that has not run yet has no place to jump to. */
        while (sem_wait(&prepared) != 0)
            ;
        sleep_ms(2);
    }
    sleep_ms(ms);
    OK(pthread_kill(waiters[victim], SIGUSR1));
    sem_wait(&stopped);
    OK(holds->unlock(holds->object));
    for (int i = 0; i < WAITERS - 1; i++)
        while (sem_wait(&had) != 0)
            ;
    for (int i = 0; i < 2; i++)
        users[i] = start(use, (void *)comes);
    for (int i = 0; i < 2; i++)
        join(users[i]);
    sem_post(&go_on);
    for (int i = 0; i < WAITERS; i++)
        join(waiters[i]);
    sem_wait(&had);
}

static void stop_one(const struct lock *waits, const struct lock *holds, const struct lock *comes, int victim)
{
    stop_one_after(0, waits, holds, comes, victim);
}

static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static int ready;
static void *wait_for_ready(void *argument)
{
    (void)argument;
    OK(pthread_mutex_lock(&mutex));
    while (!ready)
        OK(pthread_cond_wait(&cond, &mutex));
    OK(pthread_mutex_unlock(&mutex));
    sem_post(&had);
    return NULL;
}

/* One of those that a broadcast wakes is stopped. */
static void stop_one_of_the_woken(int victim)
{
    pthread_t waiters[WAITERS];
    ready = 0;
    for (int i = 0; i < WAITERS; i++) {
        waiters[i] = start(wait_for_ready, NULL);
        sleep_ms(2);
    }
    OK(pthread_kill(waiters[victim], SIGUSR1));
    sem_wait(&stopped);
    OK(pthread_mutex_lock(&mutex));
    ready = 1;
    OK(pthread_cond_broadcast(&cond));
    OK(pthread_mutex_unlock(&mutex));
    for (int i = 0; i < WAITERS - 1; i++)
        while (sem_wait(&had) != 0)
            ;
    use((void *)&exclusive);
    sem_post(&go_on);
    for (int i = 0; i < WAITERS; i++)
        join(waiters[i]);
    sem_wait(&had);
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    OK(sem_init(&stopped, 0, 0));
    OK(sem_init(&go_on, 0, 0));
    OK(sem_init(&prepared, 0, 0));
    OK(sem_init(&had, 0, 0));
    OK(sigaction(SIGUSR1, &action, NULL));
    /* Readers enough for a bias. */
    for (int i = 0; i < 1000; i++) {
        OK(read_lock(&rwlock));
        OK(rwlock_unlock(&rwlock));
    }
    for (int turn = 0; turn < 2 * WAITERS; turn++) {
        int victim = turn % WAITERS;
        jumps = 0;
        stop_one_of_the_woken(victim);
        jumps = turn >= WAITERS;
        stop_one(&exclusive, &exclusive, &exclusive, victim);
        /* glibc's reader-writer lock counts a waiting reader in, and is handed to the first waiting writer. */
        if (!OUR_RWLOCK)
            continue;
        stop_one(&writer, &writer, &writer, victim);
        stop_one(&reader, &writer, &writer, victim);
        stop_one(&writer, &reader, &writer, victim);
        stop_one(&writer, &writer, &reader, victim);
        /* By then one of the writers takes turns with the readers, and the others wait for it. */
        stop_one_after(30, &writer, &reader, &writer, victim);
    }
    puts("ok");
    return 0;
}

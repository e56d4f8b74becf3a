/* Mutexes, their owners, and their destruction: cases that are compared with glibc. */
#include "cases.h"

static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;

static int timedlock(pthread_mutex_t *m, long ms)
{
    struct timespec t = in_ms(CLOCK_REALTIME, ms);
    return pthread_mutex_timedlock(m, &t);
}

/* A mutex whose owner has ended stays locked: the next thread, which has the same control block, is another one. */
static void abandoned_recursive(void)
{
    IN_A_THREAD(SAY(pthread_mutex_lock(&recursive)));
    for (int i = 0; i < 3; i++)
        IN_A_THREAD(SAY(pthread_mutex_trylock(&recursive)); SAY(timedlock(&recursive, 5));
                    SAY(pthread_mutex_unlock(&recursive)));
    SAY(pthread_mutex_trylock(&recursive));
    SAY(pthread_mutex_unlock(&recursive));
}

static void abandoned_errorcheck(void)
{
    IN_A_THREAD(SAY(pthread_mutex_lock(&errorcheck)));
    for (int i = 0; i < 3; i++)
        IN_A_THREAD(SAY(pthread_mutex_trylock(&errorcheck)); SAY(timedlock(&errorcheck, 5));
                    SAY(pthread_mutex_unlock(&errorcheck)));
}

/* The same in a child: who forked owns what it owned, the other threads are gone. */
static void owners_after_fork(void)
{
    SAY(pthread_mutex_lock(&recursive));
    IN_A_THREAD(SAY(pthread_mutex_lock(&errorcheck)));
    pid_t child = fork();
    if (child == 0) {
        SAY(pthread_mutex_trylock(&recursive));
        SAY(pthread_mutex_unlock(&recursive));
        IN_A_THREAD(SAY(pthread_mutex_unlock(&recursive)); SAY(pthread_mutex_trylock(&recursive)));
        SAY(pthread_mutex_unlock(&recursive));
        IN_A_THREAD(SAY(pthread_mutex_trylock(&recursive)));
        IN_A_THREAD(SAY(pthread_mutex_trylock(&errorcheck)); SAY(pthread_mutex_unlock(&errorcheck)));
        _exit(0);
    }
    reap(child);
    SAY(pthread_mutex_unlock(&recursive));
}

/* Times before the epoch, and what is no time, on mutexes that another thread holds. */
static int lock_until(pthread_mutex_t *m, long seconds, long nanoseconds)
{
    struct timespec t = { seconds, nanoseconds };
    return pthread_mutex_timedlock(m, &t);
}
static void times_on(pthread_mutex_t *m)
{
    SAY(lock_until(m, -5, 0));
    SAY(lock_until(m, -5, 1000000000));
    SAY(lock_until(m, -5, -1));
    SAY(lock_until(m, 0, -1));
    SAY(lock_until(m, 5, 1000000000));
    struct timespec odd = { -5, 1000000000 };
    SAY(pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &odd));
    SAY(pthread_mutex_clocklock(m, -1, &odd));
}
static void times(void)
{
    static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER;
    OK(pthread_mutex_lock(&normal));
    OK(pthread_mutex_lock(&recursive));
    OK(pthread_mutex_lock(&errorcheck));
    IN_A_THREAD(times_on(&normal));
    IN_A_THREAD(times_on(&recursive));
    IN_A_THREAD(times_on(&errorcheck));
}

/* glibc takes a destroyed mutex for one with a priority ceiling. */
static void ceiling_after_destroy(void)
{
    for (int often = 0; often < 3; often++) {
        pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
        int ceiling;
        for (int i = 0; i < often; i++) {
            OK(pthread_mutex_lock(&m));
            OK(pthread_mutex_unlock(&m));
        }
        SAY(pthread_mutex_setprioceiling(&m, 1, &ceiling));
        SAY(pthread_mutex_getprioceiling(&m, &ceiling));
        SAY(pthread_mutex_destroy(&m));
        SAY(pthread_mutex_setprioceiling(&m, 1, &ceiling));
        SAY(pthread_mutex_getprioceiling(&m, &ceiling));
        SAY(pthread_mutex_lock(&m));
        SAY(pthread_mutex_destroy(&m));
    }
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int waiting, ready;

static void wait_until_ready(pthread_mutex_t *m)
{
    SAY(pthread_mutex_lock(m));
    waiting++;
    while (!ready) {
        int error = pthread_cond_wait(&condition, m);
        if (error) {
            say("the wait ends with %s", strerrorname_np(error));
            return;
        }
    }
    SAY(pthread_mutex_unlock(m));
}
static void *waiter(void *m)
{
    wait_until_ready(m);
    return NULL;
}
static void await_waiters(pthread_mutex_t *m, int count)
{
    for (int there = 0; there < count; sleep_ms(1)) {
        OK(pthread_mutex_lock(m));
        there = waiting;
        OK(pthread_mutex_unlock(m));
    }
}

/* A mutex that a condition variable's waiters will lock again is in use. */
static void destroy_while_waited_with(pthread_mutex_t *m)
{
    pthread_t thread = start(waiter, m);
    await_waiters(m, 1);
    SAY(pthread_mutex_destroy(m));
    SAY(pthread_mutex_lock(m));
    ready = 1;
    SAY(pthread_cond_signal(&condition));
    SAY(pthread_mutex_destroy(m));
    SAY(pthread_mutex_unlock(m));
    join(thread);
    SAY(pthread_mutex_destroy(m));
}
static void destroy_while_waited(void)
{
    destroy_while_waited_with(&mutex);
}
static void destroy_recursive_while_waited(void)
{
    destroy_while_waited_with(&recursive);
}
static void destroy_errorcheck_while_waited(void)
{
    destroy_while_waited_with(&errorcheck);
}

/* The same where the condition variable is process-shared. */
static void destroy_while_waited_shared(void)
{
    pthread_condattr_t attr;
    OK(pthread_condattr_init(&attr));
    OK(pthread_condattr_setpshared(&attr, PTHREAD_PROCESS_SHARED));
    OK(pthread_cond_init(&condition, &attr));
    pthread_t thread = start(waiter, &mutex);
    await_waiters(&mutex, 1);
    int busy = 1;
    for (int i = 0; busy && i < 100; i++, sleep_ms(1)) /* the waiter looks again from time to time */
        busy = pthread_mutex_destroy(&mutex) == EBUSY;
    say("%s", busy ? "busy" : "destroyed");
    SAY(pthread_mutex_lock(&mutex));
    ready = 1;
    SAY(pthread_cond_signal(&condition));
    SAY(pthread_mutex_unlock(&mutex));
    join(thread);
    SAY(pthread_mutex_destroy(&mutex));
}

/* The same while a thread that locks the mutex once waits again and again. */
static void *wait_often(void *done)
{
    struct timespec past = { 0, 0 };
    OK(pthread_mutex_lock(&mutex));
    waiting = 1;
    for (int i = 0; i < 2000; i++)
        if (pthread_cond_timedwait(&condition, &mutex, &past) != ETIMEDOUT)
            break;
    __atomic_store_n((int *)done, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&mutex);
    return NULL;
}
static void destroy_between_waits(void)
{
    int done = 0, destroyed = 0;
    pthread_t thread = start(wait_often, &done);
    await_waiters(&mutex, 1);
    while (!__atomic_load_n(&done, __ATOMIC_RELAXED) && !destroyed)
        destroyed = pthread_mutex_destroy(&mutex) == 0 && !__atomic_load_n(&done, __ATOMIC_RELAXED);
    say("%s", destroyed ? "destroyed" : "busy");
    join(thread);
}

/* Waits that time out, are cancelled or fail count their mutex's users right. */
static void destroy_after_waits(void)
{
    struct timespec past = { 0, 0 }, bad = { 0, -1 };
    SAY(pthread_mutex_lock(&mutex));
    SAY(pthread_cond_timedwait(&condition, &mutex, &past));
    SAY(pthread_cond_timedwait(&condition, &mutex, &bad));
    SAY(pthread_mutex_unlock(&mutex));
    SAY(pthread_cond_wait(&condition, &errorcheck)); /* does not hold it */
    SAY(pthread_mutex_destroy(&errorcheck));
    pthread_t thread = start(waiter, &mutex);
    await_waiters(&mutex, 1);
    SAY(pthread_cancel(thread));
    say("%s", join(thread) == PTHREAD_CANCELED ? "cancelled" : "not cancelled");
    SAY(pthread_mutex_unlock(&mutex)); /* by the cancelled waiter's leave, which has locked it */
    SAY(pthread_mutex_destroy(&mutex));
}

/* In a child nobody waits. */
static void destroy_after_fork(void)
{
    pthread_t thread = start(waiter, &mutex);
    await_waiters(&mutex, 1);
    pid_t child = fork();
    if (child == 0) {
        pthread_mutex_t *m = &mutex;
        SAY(pthread_mutex_trylock(m));
        SAY(pthread_mutex_unlock(m));
        _exit(0);
    }
    reap(child);
    OK(pthread_mutex_lock(&mutex));
    ready = 1;
    OK(pthread_cond_signal(&condition));
    OK(pthread_mutex_unlock(&mutex));
    join(thread);
}

static const struct test tests[] = {
    { "abandoned recursive mutex", abandoned_recursive },
    { "abandoned error-checking mutex", abandoned_errorcheck },
    { "owners after fork", owners_after_fork },
    { "times before the epoch, and no times", times },
    { "priority ceiling after destroy", ceiling_after_destroy },
    { "destroy while waited", destroy_while_waited },
    { "destroy recursive while waited", destroy_recursive_while_waited },
    { "destroy error-checking while waited", destroy_errorcheck_while_waited },
    { "destroy while waited, process-shared", destroy_while_waited_shared },
    { "destroy between waits", destroy_between_waits },
    { "destroy after waits", destroy_after_waits },
    { "destroy after fork", destroy_after_fork },
};

int main(int arguments, char **argument)
{
    return RUN_CASES(tests, arguments, argument);
}

/* Mutex kinds, their results, timed forms, initialisers, memory reuse, exclusion. */
#include "check.h"
#include <sys/mman.h>

static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t errorcheck = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;

static void *try_from_another(void *m) { return (void *)(long)pthread_mutex_trylock(m); }
static void *unlock_from_another(void *m) { return (void *)(long)pthread_mutex_unlock(m); }
static int other_try(pthread_mutex_t *m) { return (int)(long)join(start(try_from_another, m)); }

static void *timed_from_another(void *m)
{
    struct timespec bad = { 0, 1000000000 }, past = { -5, 0 };
    struct timespec real = in_ms(CLOCK_REALTIME, 30), mono = in_ms(CLOCK_MONOTONIC, 60);
    EQ(pthread_mutex_timedlock(m, &real), ETIMEDOUT);
    CHECK(has_passed(CLOCK_REALTIME, real));
    EQ(pthread_mutex_clocklock(m, CLOCK_MONOTONIC, &mono), ETIMEDOUT);
    CHECK(has_passed(CLOCK_MONOTONIC, mono));
    EQ(pthread_mutex_timedlock(m, &bad), EINVAL);
    EQ(pthread_mutex_timedlock(m, &past), ETIMEDOUT);
    EQ(pthread_mutex_clocklock(m, CLOCK_PROCESS_CPUTIME_ID, &mono), EINVAL);
    return NULL;
}

/* A time so late that its nanoseconds do not fit into 64 bits. */
static void *lock_before_the_end(void *m)
{
    struct timespec late = { 18446744074, 0 };
    OK(pthread_mutex_timedlock(m, &late));
    OK(pthread_mutex_unlock(m));
    return NULL;
}

static void basic(pthread_mutex_t *m)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 1000), bad = { 0, -1 };
    OK(pthread_mutex_lock(m));
    EQ(other_try(m), EBUSY);
    join(start(timed_from_another, m));
    pthread_t waits = start(lock_before_the_end, m);
    sleep_ms(20);
    OK(pthread_mutex_unlock(m));
    join(waits);
    EQ(pthread_mutex_clocklock(m, CLOCK_PROCESS_CPUTIME_ID, &soon), EINVAL);
    OK(pthread_mutex_trylock(m));
    EQ(other_try(m), EBUSY);
    OK(pthread_mutex_unlock(m));
    OK(pthread_mutex_timedlock(m, &soon));
    OK(pthread_mutex_unlock(m));
    /* A free lock is taken whatever the time says. */
    OK(pthread_mutex_timedlock(m, &bad));
    OK(pthread_mutex_unlock(m));
}

static void is_recursive(pthread_mutex_t *m)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 1000);
    for (int i = 0; i < 3; i++)
        OK(pthread_mutex_lock(m));
    OK(pthread_mutex_trylock(m));
    OK(pthread_mutex_timedlock(m, &soon));
    EQ((long)join(start(unlock_from_another, m)), EPERM);
    for (int i = 0; i < 5; i++) {
        EQ(other_try(m), EBUSY);
        OK(pthread_mutex_unlock(m));
    }
    EQ(pthread_mutex_unlock(m), EPERM);
    basic(m);
}

static void is_errorcheck(pthread_mutex_t *m)
{
    struct timespec soon = in_ms(CLOCK_REALTIME, 1000);
    EQ(pthread_mutex_unlock(m), EPERM);
    OK(pthread_mutex_lock(m));
    EQ(pthread_mutex_lock(m), EDEADLK);
    EQ(pthread_mutex_trylock(m), EBUSY);
    EQ(pthread_mutex_timedlock(m, &soon), EDEADLK);
    EQ((long)join(start(unlock_from_another, m)), EPERM);
    OK(pthread_mutex_unlock(m));
    EQ(pthread_mutex_unlock(m), EPERM);
    basic(m);
}

static void with_kind(int kind, void (*test)(pthread_mutex_t *))
{
    pthread_mutex_t m;
    pthread_mutexattr_t attr;
    memset(&m, 0xa5, sizeof m);
    OK(pthread_mutexattr_init(&attr));
    OK(pthread_mutexattr_settype(&attr, kind));
    OK(pthread_mutex_init(&m, &attr));
    OK(pthread_mutexattr_destroy(&attr));
    test(&m);
    OK(pthread_mutex_lock(&m));
    EQ(pthread_mutex_destroy(&m), EBUSY);
    OK(pthread_mutex_unlock(&m));
    OK(pthread_mutex_destroy(&m));
    EQ(pthread_mutex_lock(&m), EINVAL);
}

static void reuse(void)
{
    /* Freed without destroy, even while held, and made again in the same bytes. */
    pthread_mutex_t *m = malloc(sizeof *m);
    for (int i = 0; i < 1000; i++) {
        pthread_mutex_init(m, NULL);
        OK(pthread_mutex_lock(m));
        if (i % 2)
            OK(pthread_mutex_unlock(m));
        *m = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        OK(pthread_mutex_lock(m));
        OK(pthread_mutex_unlock(m));
    }
    free(m);
}

static void many_objects(void)
{
    long before = 0;
    for (int i = 0; i < 100000; i++) {
        pthread_mutex_t m;
        OK(pthread_mutex_init(&m, NULL));
        OK(pthread_mutex_lock(&m));
        OK(pthread_mutex_unlock(&m));
        OK(pthread_mutex_destroy(&m));
        if (i == 1000)
            before = resident_pages();
    }
    CHECK(resident_pages() - before < 512); /* 2 MB */
}

static pthread_mutex_t *counter_mutex;
static long counter, inside;

static void *count(void *n)
{
    for (long i = 0; i < (long)n; i++) {
        if (i % 7 == 0) {
            struct timespec soon = in_ms(CLOCK_MONOTONIC, 200000);
            OK(pthread_mutex_clocklock(counter_mutex, CLOCK_MONOTONIC, &soon));
        } else if (i % 7 != 1 || pthread_mutex_trylock(counter_mutex) != 0) {
            OK(pthread_mutex_lock(counter_mutex));
        }
        EQ(inside++, 0);
        counter++;
        inside--;
        OK(pthread_mutex_unlock(counter_mutex));
        if (i % 16 == 0)
            sched_yield();
    }
    return NULL;
}

static void exclusion(pthread_mutex_t *m)
{
    pthread_t threads[16];
    counter = 0;
    counter_mutex = m;
    for (int i = 0; i < 16; i++)
        threads[i] = start(count, (void *)300);
    for (int i = 0; i < 16; i++)
        join(threads[i]);
    EQ(counter, 16 * 300);
}

static void short_lived(void)
{
    pthread_t threads[8];
    counter = 0;
    counter_mutex = &normal;
    for (int round = 0; round < 250; round++) {
        for (int i = 0; i < 8; i++)
            threads[i] = start(count, (void *)3);
        for (int i = 0; i < 8; i++)
            join(threads[i]);
    }
    EQ(counter, 250 * 8 * 3);
}

/* A copy of a mutex that no thread holds is a mutex of its own, as programs have it that copy structures. */
static void copies(pthread_mutex_t *m)
{
    OK(pthread_mutex_lock(m));
    OK(pthread_mutex_unlock(m));
    pthread_mutex_t copy = *m, moved;
    OK(pthread_mutex_lock(m));
    OK(pthread_mutex_trylock(&copy));
    OK(pthread_mutex_unlock(m));
    EQ(other_try(&copy), EBUSY);
    OK(pthread_mutex_unlock(&copy));
    moved = copy;
    OK(pthread_mutex_destroy(&copy));
    OK(pthread_mutex_trylock(&moved));
    OK(pthread_mutex_trylock(m));
    EQ(other_try(&moved), EBUSY);
    OK(pthread_mutex_unlock(m));
    OK(pthread_mutex_unlock(&moved));
    OK(pthread_mutex_destroy(&moved));
}

int main(void)
{
    /* Once as a process that has never had a second thread. */
    OK(pthread_mutex_lock(&normal));
    EQ(pthread_mutex_trylock(&normal), EBUSY);
    OK(pthread_mutex_unlock(&normal));

    errno = 12345;
    basic(&normal);
    basic(&adaptive);
    OK(pthread_mutex_lock(&adaptive));
    EQ(pthread_mutex_trylock(&adaptive), EBUSY); /* it is not recursive */
    OK(pthread_mutex_unlock(&adaptive));
    is_recursive(&recursive);
    is_errorcheck(&errorcheck);
    with_kind(PTHREAD_MUTEX_NORMAL, basic);
    with_kind(PTHREAD_MUTEX_DEFAULT, basic);
    with_kind(PTHREAD_MUTEX_ADAPTIVE_NP, basic);
    with_kind(PTHREAD_MUTEX_RECURSIVE, is_recursive);
    with_kind(PTHREAD_MUTEX_ERRORCHECK, is_errorcheck);
    copies(&normal);
    copies(&recursive);
    reuse();
    many_objects();
    exclusion(&normal);
    exclusion(&recursive);
    exclusion(&adaptive);
    short_lived();
    printf("ok\n");
    return 0;
}

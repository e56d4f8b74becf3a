/* Reader-writer locks: results, recursion, timed forms, exclusion. */
#include "check.h"
#include <sys/resource.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t prefers_writer = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static volatile int state;

static void *tryrd(void *l)
{
    int error = pthread_rwlock_tryrdlock(l);
    if (error == 0)
        OK(pthread_rwlock_unlock(l));
    return (void *)(long)error;
}
static void *trywr(void *l)
{
    int error = pthread_rwlock_trywrlock(l);
    if (error == 0)
        OK(pthread_rwlock_unlock(l));
    return (void *)(long)error;
}
static void expect(pthread_rwlock_t *l, int read, int write)
{
    EQ((long)join(start(tryrd, l)), read);
    EQ((long)join(start(trywr, l)), write);
}

static void *timed(void *l)
{
    struct timespec t = in_ms(CLOCK_REALTIME, 15), bad = { 0, -1 };
    EQ(pthread_rwlock_timedwrlock(l, &t), ETIMEDOUT);
    EQ(pthread_rwlock_timedrdlock(l, &t), ETIMEDOUT);
    t = in_ms(CLOCK_MONOTONIC, 15);
    EQ(pthread_rwlock_clockwrlock(l, CLOCK_MONOTONIC, &t), ETIMEDOUT);
    EQ(pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &t), ETIMEDOUT);
    EQ(pthread_rwlock_clockrdlock(l, CLOCK_PROCESS_CPUTIME_ID, &t), EINVAL);
    EQ(pthread_rwlock_timedwrlock(l, &bad), EINVAL);
    return NULL;
}

/* A time that is none is refused before the lock is looked at, also where the call would not wait. */
static void bad_times(pthread_rwlock_t *l)
{
    struct timespec bad[] = { { 0, -1 }, { 1000000000, 1000000000 } };
    for (int i = 0; i < 2; i++) {
        EQ(pthread_rwlock_timedrdlock(l, &bad[i]), EINVAL);
        EQ(pthread_rwlock_timedwrlock(l, &bad[i]), EINVAL);
        EQ(pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &bad[i]), EINVAL);
        EQ(pthread_rwlock_clockwrlock(l, CLOCK_MONOTONIC, &bad[i]), EINVAL);
        EQ(pthread_rwlock_clockrdlock(l, CLOCK_REALTIME, &bad[i]), EINVAL);
        EQ(pthread_rwlock_clockwrlock(l, CLOCK_REALTIME, &bad[i]), EINVAL);
    }
}

static void results(pthread_rwlock_t *l)
{
    struct timespec t = in_ms(CLOCK_REALTIME, 10000);
    bad_times(l);
    expect(l, 0, 0);
    OK(pthread_rwlock_rdlock(l));
    bad_times(l);
    expect(l, 0, EBUSY);
    OK(pthread_rwlock_tryrdlock(l));
    OK(pthread_rwlock_timedrdlock(l, &t));
    EQ(pthread_rwlock_trywrlock(l), EBUSY);
    OK(pthread_rwlock_unlock(l));
    OK(pthread_rwlock_unlock(l));
    expect(l, 0, EBUSY);
    OK(pthread_rwlock_unlock(l));
    expect(l, 0, 0);

    OK(pthread_rwlock_wrlock(l));
    bad_times(l);
    expect(l, EBUSY, EBUSY);
    EQ(pthread_rwlock_rdlock(l), EDEADLK);
    EQ(pthread_rwlock_wrlock(l), EDEADLK);
    EQ(pthread_rwlock_tryrdlock(l), EBUSY);
    EQ(pthread_rwlock_trywrlock(l), EBUSY);
    EQ(pthread_rwlock_timedrdlock(l, &t), EDEADLK);
    EQ(pthread_rwlock_timedwrlock(l, &t), EDEADLK);
    join(start(timed, l));
    OK(pthread_rwlock_unlock(l));
    expect(l, 0, 0);
    t = in_ms(CLOCK_REALTIME, 10000);
    OK(pthread_rwlock_timedwrlock(l, &t));
    OK(pthread_rwlock_unlock(l));
}

/* A thread that reads may read again while a writer waits. */
static void *write_after(void *l)
{
    state = 1;
    OK(pthread_rwlock_wrlock(l));
    state = 2;
    OK(pthread_rwlock_unlock(l));
    return NULL;
}
static void recursion(pthread_rwlock_t *l)
{
    state = 0;
    OK(pthread_rwlock_rdlock(l));
    pthread_t writer = start(write_after, l);
    while (state == 0)
        sleep_ms(1);
    /* While the writer keeps others out, and while it does not. */
    for (int i = 0; i < 40; i++) {
        OK(pthread_rwlock_tryrdlock(l));
        OK(pthread_rwlock_unlock(l));
        sleep_ms(1);
    }
    for (int i = 0; i < 10; i++)
        OK(i % 2 ? pthread_rwlock_tryrdlock(l) : pthread_rwlock_rdlock(l));
    for (int i = 0; i < 11; i++) {
        EQ(state, 1);
        OK(pthread_rwlock_unlock(l));
    }
    join(writer);
    EQ(state, 2);
}

/* Many writers behind a reader that stays: nearly all of them sleep. */
static void waiting_writers(void)
{
    enum { WRITERS = 64, MOST_WAKEUPS = 4000 };
    pthread_t threads[WRITERS];
    struct rusage before, after;
    pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
    OK(pthread_rwlock_rdlock(&l));
    for (int i = 0; i < WRITERS; i++)
        threads[i] = start(write_after, &l);
    sleep_ms(50);
    getrusage(RUSAGE_SELF, &before);
    sleep_ms(500);
    getrusage(RUSAGE_SELF, &after);
    OK(pthread_rwlock_unlock(&l));
    for (int i = 0; i < WRITERS; i++)
        join(threads[i]);
    CHECK(after.ru_nvcsw - before.ru_nvcsw < MOST_WAKEUPS);
}

/* So many reads that a lock which favours readers does so from now on. */
static void read_often(pthread_rwlock_t *l)
{
    for (int i = 0; i < 100; i++) {
        OK(pthread_rwlock_rdlock(l));
        OK(pthread_rwlock_unlock(l));
    }
}

/* Times of a lock that has only been read, and often. */
static void times_of_often_read(void)
{
    pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
    read_often(&l);
    bad_times(&l);
    expect(&l, 0, 0);
    struct timespec *volatile none = NULL; /* a call without a deadline, for glibc */
    OK(pthread_rwlock_timedrdlock(&l, none));
    OK(pthread_rwlock_unlock(&l));
    OK(pthread_rwlock_timedwrlock(&l, none));
    OK(pthread_rwlock_unlock(&l));
}

/* More locks held for reading than a thread's list has room for. */
static void many(void)
{
    enum { N = 100 };
    static pthread_rwlock_t locks[N];
    for (int i = 0; i < N; i++)
        OK(pthread_rwlock_init(&locks[i], NULL));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < N; i++)
            OK(pthread_rwlock_rdlock(&locks[i]));
        for (int i = 0; i < N; i += 7)
            OK(pthread_rwlock_rdlock(&locks[i]));
        for (int i = N - 1; i >= 0; i -= 7)
            EQ(pthread_rwlock_trywrlock(&locks[i]), EBUSY);
        for (int i = 0; i < N; i += 7)
            OK(pthread_rwlock_unlock(&locks[i]));
        for (int i = 0; i < N; i++)
            OK(pthread_rwlock_unlock(&locks[round == 1 ? N - 1 - i : (i * 37) % N]));
        for (int i = 0; i < N; i++) {
            OK(pthread_rwlock_trywrlock(&locks[i]));
            OK(pthread_rwlock_unlock(&locks[i]));
        }
    }
    for (int i = 0; i < N; i++)
        OK(pthread_rwlock_destroy(&locks[i]));
}

/* Reads a lock that is often read. Returns a thread that waits to write. */
static pthread_t keep_waiting(pthread_rwlock_t *l)
{
    read_often(l);
    state = 0;
    OK(pthread_rwlock_rdlock(l));
    pthread_t writer = start(write_after, l);
    while (state == 0)
        sleep_ms(1);
    sleep_ms(5);
    return writer;
}

/* A read lock that another thread releases: glibc allows it in practice. */
static void *release(void *l)
{
    OK(pthread_rwlock_unlock(l));
    return NULL;
}
static void *acquire(void *l)
{
    OK(pthread_rwlock_rdlock(l));
    return NULL;
}
static void handed_over(void)
{
    pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
    OK(pthread_rwlock_rdlock(&l));
    join(start(release, &l));
    expect(&l, 0, 0);
    join(start(acquire, &l)); /* its thread is gone */
    expect(&l, 0, EBUSY);
    OK(pthread_rwlock_unlock(&l));
    expect(&l, 0, 0);
    OK(pthread_rwlock_wrlock(&l));
    if (OUR_RWLOCK)
        join(start(release, &l)); /* glibc would take that for the end of a read */
    else
        OK(pthread_rwlock_unlock(&l));
    expect(&l, 0, 0);
    /* The same while a writer waits, of a lock that is often read. */
    pthread_t writer = keep_waiting(&l);
    EQ(state, 1);
    join(start(release, &l));
    join(writer);
    EQ(state, 2);
    expect(&l, 0, 0);
}

/* A thread reads twice: again while a writer waits, of a lock that is often read. Another thread releases both. */
static void both_handed_over(void)
{
    pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
    pthread_t writer = keep_waiting(&l);
    OK(pthread_rwlock_rdlock(&l));
    join(start(release, &l));
    EQ(state, 1);
    join(start(release, &l));
    join(writer);
    EQ(state, 2);
    expect(&l, 0, 0);
}

/* What a thread has read and never released is another lock now, which it reads. */
static void read_anew(void)
{
    pthread_rwlock_t l;
    for (int i = 0; i < 3; i++) {
        l = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
        OK(pthread_rwlock_rdlock(&l));
    }
    struct timespec t = in_ms(CLOCK_REALTIME, 20);
    EQ(pthread_rwlock_timedwrlock(&l, &t), OUR_RWLOCK ? EDEADLK : ETIMEDOUT);
    OK(pthread_rwlock_unlock(&l));
    expect(&l, 0, 0);
}

/* glibc does not look whether a lock that is destroyed is held, and the holder can still release it. */
static void destroyed_while_held(void)
{
    pthread_rwlock_t l = PTHREAD_RWLOCK_INITIALIZER;
    OK(pthread_rwlock_wrlock(&l));
    OK(pthread_rwlock_destroy(&l));
    expect(&l, EBUSY, EBUSY);
    OK(pthread_rwlock_unlock(&l));
    expect(&l, 0, 0);
    OK(pthread_rwlock_destroy(&l));
}

static long data[2];
static void *mix(void *seed)
{
    unsigned r = (unsigned)(long)seed;
    for (int i = 0; i < 600; i++) {
        r = r * 1103515245 + 12345;
        if ((r >> 16) % 8 == 0) {
            OK(pthread_rwlock_wrlock(&lock));
            data[0]++;
            if ((r >> 20) % 4 == 0)
                sched_yield();
            data[1]++;
        } else {
            OK(pthread_rwlock_rdlock(&lock));
            EQ(data[0], data[1]);
        }
        OK(pthread_rwlock_unlock(&lock));
        if (i % 16 == 0)
            sched_yield();
    }
    return NULL;
}

static void many_objects(void)
{
    long before = 0;
    for (int i = 0; i < 100000; i++) {
        pthread_rwlock_t l;
        OK(pthread_rwlock_init(&l, NULL));
        OK(pthread_rwlock_rdlock(&l));
        OK(pthread_rwlock_unlock(&l));
        OK(pthread_rwlock_wrlock(&l));
        OK(pthread_rwlock_unlock(&l));
        OK(pthread_rwlock_destroy(&l));
        if (i == 1000)
            before = resident_pages();
    }
    CHECK(resident_pages() - before < 512); /* 2 MB */
}

/* A copy of a lock that no thread holds is a lock of its own. */
static void copies(void)
{
    pthread_rwlock_t copy = lock, moved;
    OK(pthread_rwlock_wrlock(&lock));
    OK(pthread_rwlock_trywrlock(&copy));
    OK(pthread_rwlock_unlock(&lock));
    expect(&lock, 0, 0);
    expect(&copy, EBUSY, EBUSY);
    OK(pthread_rwlock_unlock(&copy));
    moved = copy;
    OK(pthread_rwlock_destroy(&copy));
    OK(pthread_rwlock_tryrdlock(&moved));
    expect(&lock, 0, 0);
    expect(&moved, 0, EBUSY);
    OK(pthread_rwlock_unlock(&moved));
    OK(pthread_rwlock_destroy(&moved));
}

int main(void)
{
    pthread_t threads[16];
    pthread_rwlockattr_t attr;
    pthread_rwlock_t l;
    OK(pthread_rwlock_rdlock(&lock)); /* before there is a second thread */
    OK(pthread_rwlock_unlock(&lock));
    results(&lock);
    results(&prefers_writer);
    recursion(&lock);
    read_often(&lock);
    recursion(&lock);
    OK(pthread_rwlockattr_init(&attr));
    OK(pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NP));
    memset(&l, 0x5a, sizeof l);
    OK(pthread_rwlock_init(&l, &attr));
    results(&l);
    recursion(&l);
    OK(pthread_rwlock_destroy(&l));
    times_of_often_read();
    waiting_writers();
    many();
    handed_over();
    both_handed_over();
    read_anew();
    destroyed_while_held();
    copies();
    many_objects();
    for (int i = 0; i < 16; i++)
        threads[i] = start(mix, (void *)(long)(i + 1));
    for (int i = 0; i < 16; i++)
        join(threads[i]);
    CHECK(data[0] > 0);
    EQ(data[0], data[1]);
    for (int round = 0; round < 100; round++) { /* threads come and go */
        for (int i = 0; i < 8; i++)
            threads[i] = start(i % 4 ? tryrd : trywr, &lock);
        for (int i = 0; i < 8; i++)
            pthread_join(threads[i], NULL);
    }
    expect(&lock, 0, 0);
    printf("ok\n");
    return 0;
}

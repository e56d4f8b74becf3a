/* Reader-writer locks: who passes whom. Cases that are compared with glibc. */
#include "cases.h"
#include <sched.h>

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static volatile int asks; /* the thread that is about to wait */
static int glibc_s;       /* whether glibc serves the lock, whoever serves others */
static int writes;

static int timedrdlock(pthread_rwlock_t *l, long ms)
{
    struct timespec t = in_ms(CLOCK_MONOTONIC, ms);
    return pthread_rwlock_clockrdlock(l, CLOCK_MONOTONIC, &t);
}
static int timedwrlock(pthread_rwlock_t *l, long ms)
{
    struct timespec t = in_ms(CLOCK_MONOTONIC, ms);
    return pthread_rwlock_clockwrlock(l, CLOCK_MONOTONIC, &t);
}

static void *writer(void *l)
{
    asks = gettid();
    SAY(pthread_rwlock_wrlock(l));
    writes++;
    SAY(pthread_rwlock_unlock(l));
    return NULL;
}
/* Its deadline is far away. */
static void *timed_writer(void *l)
{
    asks = gettid();
    int error = timedwrlock(l, 3600 * 1000L);
    say("timedwrlock = %d", error);
    writes++;
    SAY(pthread_rwlock_unlock(l));
    return NULL;
}
static void *reader(void *l)
{
    SAY(pthread_rwlock_rdlock(l));
    say("%d writes before", writes);
    SAY(pthread_rwlock_unlock(l));
    return NULL;
}

/* A thread that waits for the lock: it sleeps, or it has run for some milliseconds, if the lock's waiters spin. Those of glibc's own
   locks sleep. A waiter with a deadline may have given up, and ended, before this thread sees it asleep. */
static pthread_t start_waiting(void *(*f)(void *), pthread_rwlock_t *l)
{
    asks = 0;
    pthread_t thread = start(f, l);
    while (asks == 0)
        sleep_ms(1);
    for (long begin = ran(thread); !sleeps(asks) && (ran(thread) - begin < SPINS_NS || glibc_s);)
        sleep_ms(1);
    return thread;
}

/* A reader waits for another reader, which comes after a writer that waits. */
static void reader_for_reader(pthread_rwlock_t *l, void *(*write)(void *))
{
    SAY(pthread_rwlock_rdlock(l));
    pthread_t waiting = start_waiting(write, l);
    for (int i = 0; i < 20; i++)
        join(start(reader, l));
    SAY(pthread_rwlock_unlock(l));
    join(waiting);
    join(start(reader, l));
}

static void joins_a_reader(void)
{
    reader_for_reader(&lock, writer);
}
static void joins_a_reader_often_read(void)
{
    for (int i = 0; i < 100; i++) {
        OK(pthread_rwlock_rdlock(&lock));
        OK(pthread_rwlock_unlock(&lock));
    }
    reader_for_reader(&lock, writer);
}
static void joins_a_reader_timed(void)
{
    reader_for_reader(&lock, timed_writer);
}
static void of_a_kind(int kind)
{
    static pthread_rwlock_t l;
    pthread_rwlockattr_t attr;
    OK(pthread_rwlockattr_init(&attr));
    SAY(pthread_rwlockattr_setkind_np(&attr, kind));
    SAY(pthread_rwlock_init(&l, &attr));
    reader_for_reader(&l, writer);
    SAY(pthread_rwlock_destroy(&l));
}
static void prefers_readers(void)
{
    of_a_kind(PTHREAD_RWLOCK_PREFER_READER_NP);
}
static void prefers_writers_in_name(void)
{
    of_a_kind(PTHREAD_RWLOCK_PREFER_WRITER_NP); /* which glibc ignores */
}

/* The other reader is waited for by means of a condition variable, with several writers about. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static int items;
static void *produce(void *l)
{
    OK(pthread_rwlock_rdlock(l));
    OK(pthread_mutex_lock(&mutex));
    items++;
    OK(pthread_cond_signal(&condition));
    OK(pthread_mutex_unlock(&mutex));
    OK(pthread_rwlock_unlock(l));
    return NULL;
}
static void waits_for_a_condition(void)
{
    pthread_t waiting[3], producers[8];
    SAY(pthread_rwlock_rdlock(&lock));
    for (int i = 0; i < 3; i++)
        waiting[i] = start_waiting(i % 2 ? timed_writer : writer, &lock);
    for (int i = 0; i < 8; i++)
        producers[i] = start(produce, &lock);
    OK(pthread_mutex_lock(&mutex));
    while (items < 8)
        OK(pthread_cond_wait(&condition, &mutex));
    OK(pthread_mutex_unlock(&mutex));
    say("%d items, %d writes before", items, writes);
    for (int i = 0; i < 8; i++)
        join(producers[i]);
    OK(pthread_rwlock_unlock(&lock));
    for (int i = 0; i < 3; i++)
        join(waiting[i]);
    say("%d writes", writes);
}

/* Attempts, and reads with a deadline, get in as well, if not at once. */
static void *polls(void *l)
{
    while (pthread_rwlock_tryrdlock(l) != 0)
        sched_yield();
    say("an attempt got in, %d writes before", writes);
    SAY(pthread_rwlock_unlock(l));
    SAY(timedrdlock(l, 3600 * 1000L));
    say("%d writes before", writes);
    SAY(pthread_rwlock_unlock(l));
    return NULL;
}
static void attempts_to_read(void)
{
    SAY(pthread_rwlock_rdlock(&lock));
    pthread_t waiting = start_waiting(writer, &lock);
    join(start(polls, &lock));
    SAY(pthread_rwlock_rdlock(&lock)); /* again */
    SAY(pthread_rwlock_unlock(&lock));
    SAY(pthread_rwlock_unlock(&lock));
    join(waiting);
}

/* A reader that is kept out by a writer with a deadline gets in when that has passed. */
static void *gives_up(void *l)
{
    asks = gettid();
    int error = timedwrlock(l, 60);
    say("timedwrlock = %s", strerrorname_np(error));
    return NULL;
}
static void writer_gives_up(void)
{
    SAY(pthread_rwlock_rdlock(&lock));
    pthread_t waiting = start_waiting(gives_up, &lock), other = start(reader, &lock);
    join(waiting);
    join(other);
    SAY(pthread_rwlock_unlock(&lock));
    IN_A_THREAD(SAY(pthread_rwlock_trywrlock(&lock)));
}

/* Writers get in although readers come all the time, each of which leaves soon. */
static volatile int stop;
static void *reads_on(void *l)
{
    while (!stop) {
        OK(pthread_rwlock_rdlock(l));
        OK(pthread_rwlock_unlock(l));
        sleep_ms(1);
    }
    return NULL;
}
static void readers_all_the_time(void)
{
    pthread_t readers[4];
    for (int i = 0; i < 4; i++)
        readers[i] = start(reads_on, &lock);
    for (int i = 0; i < 5; i++)
        join(start(writer, &lock));
    stop = 1;
    for (int i = 0; i < 4; i++)
        join(readers[i]);
}

/* A reader of a higher real-time priority than the writer that waits. */
static int set_priority(int priority)
{
    struct sched_param param = { .sched_priority = priority };
    return pthread_setschedparam(pthread_self(), priority ? SCHED_FIFO : SCHED_OTHER, &param);
}
static void *low_writer(void *l)
{
    set_priority(1);
    return writer(l);
}
static void *high_reader(void *l)
{
    set_priority(2);
    return reader(l);
}
static void higher_priority(void)
{
    int error = set_priority(1);
    if (error) {
        fprintf(stderr, "SKIPPED: real-time priorities: %s\n", strerrorname_np(error));
        return;
    }
    set_priority(0);
    SAY(pthread_rwlock_rdlock(&lock));
    pthread_t waiting = start_waiting(low_writer, &lock);
    join(start(high_reader, &lock));
    SAY(pthread_rwlock_unlock(&lock));
    join(waiting);
}

/* A lock that asks for it keeps readers out while a writer waits. */
static void *attempts(void *l)
{
    SAY(pthread_rwlock_tryrdlock(l));
    SAY(timedrdlock(l, 5));
    return NULL;
}
static void prefers_writers(pthread_rwlock_t *l)
{
    glibc_s = 1;
    SAY(pthread_rwlock_rdlock(l));
    pthread_t waiting = start_waiting(writer, l);
    join(start(attempts, l));
    SAY(pthread_rwlock_tryrdlock(l));
    SAY(timedrdlock(l, 5)); /* not even again */
    SAY(pthread_rwlock_unlock(l));
    join(waiting);
    /* A writer that gives up lets in whom it kept out. */
    SAY(pthread_rwlock_rdlock(l));
    waiting = start_waiting(gives_up, l);
    pthread_t other = start(reader, l);
    join(waiting);
    join(other);
    SAY(pthread_rwlock_unlock(l));
    SAY(pthread_rwlock_trywrlock(l));
    SAY(pthread_rwlock_tryrdlock(l));
    SAY(pthread_rwlock_unlock(l));
    SAY(pthread_rwlock_destroy(l));
}
static void prefers_writers_attribute(void)
{
    static pthread_rwlock_t l;
    pthread_rwlockattr_t attr;
    OK(pthread_rwlockattr_init(&attr));
    SAY(pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP));
    memset(&l, 0x5a, sizeof l);
    SAY(pthread_rwlock_init(&l, &attr));
    prefers_writers(&l);
    SAY(pthread_rwlock_init(&l, NULL)); /* the same memory, another kind */
    glibc_s = 0;
    reader_for_reader(&l, writer);
    SAY(pthread_rwlock_init(&l, &attr));
    prefers_writers(&l);
}
static void prefers_writers_static(void)
{
    static pthread_rwlock_t l = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    prefers_writers(&l);
}

static const struct test tests[] = {
    { "joins a reader", joins_a_reader },
    { "joins a reader of a lock that is often read", joins_a_reader_often_read },
    { "joins a reader behind a timed writer", joins_a_reader_timed },
    { "prefers readers", prefers_readers },
    { "prefers writers in name", prefers_writers_in_name },
    { "waits for a condition", waits_for_a_condition },
    { "attempts to read", attempts_to_read },
    { "writer gives up", writer_gives_up },
    { "readers all the time", readers_all_the_time },
    { "reader of a higher priority", higher_priority },
    { "prefers writers, by attribute", prefers_writers_attribute },
    { "prefers writers, static", prefers_writers_static },
};

int main(int arguments, char **argument)
{
    return RUN_CASES(tests, arguments, argument);
}

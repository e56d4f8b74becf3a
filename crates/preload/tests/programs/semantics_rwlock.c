/* Reader-writer locks, their owners and what is left of them: cases that are compared with glibc. Who passes whom is in
   semantics_preference.c. */
#include "cases.h"

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;

static int timedrdlock(pthread_rwlock_t *l, long ms)
{
    struct timespec t = in_ms(CLOCK_REALTIME, ms);
    return pthread_rwlock_timedrdlock(l, &t);
}
static int timedwrlock(pthread_rwlock_t *l, long ms)
{
    struct timespec t = in_ms(CLOCK_REALTIME, ms);
    return pthread_rwlock_timedwrlock(l, &t);
}

/* So many reads that a lock which favours readers does so from now on. */
static void read_often(void)
{
    for (int i = 0; i < 100; i++) {
        OK(pthread_rwlock_rdlock(&lock));
        OK(pthread_rwlock_unlock(&lock));
    }
}

/* A lock whose writer has ended stays locked: the next thread, which has the same control block, is another one. */
static void abandoned(void)
{
    IN_A_THREAD(SAY(pthread_rwlock_wrlock(&lock)));
    for (int i = 0; i < 3; i++)
        IN_A_THREAD(SAY(pthread_rwlock_tryrdlock(&lock)); SAY(timedrdlock(&lock, 5)); SAY(timedwrlock(&lock, 5)));
}

static void own_write_lock(void)
{
    SAY(pthread_rwlock_wrlock(&lock));
    SAY(pthread_rwlock_wrlock(&lock));
    SAY(pthread_rwlock_rdlock(&lock));
    SAY(pthread_rwlock_tryrdlock(&lock));
    SAY(timedrdlock(&lock, 5));
    SAY(timedwrlock(&lock, 5));
    SAY(pthread_rwlock_unlock(&lock));
}

static void write_while_reading(void)
{
    SAY(pthread_rwlock_rdlock(&lock));
    SAY(pthread_rwlock_trywrlock(&lock));
    SAY(timedwrlock(&lock, 5));
    SAY(pthread_rwlock_unlock(&lock));
}

/* Ends the process as the watchdog does, when its first thread has slept for a second. On a machine that is busy or stalls, a thread
   that could run does not sleep. */
static void *end_one_that_waits(void *unused)
{
    for (int ms = 0; ms < 1000; sleep_ms(1))
        ms = sleeps(getpid()) ? ms + 1 : 0;
    kill(getpid(), SIGALRM);
    return unused;
}

/* With a lock of ours the thread does not wait for itself. */
static void write_while_reading_without_a_time(void)
{
    start(end_one_that_waits, NULL);
    SAY(pthread_rwlock_rdlock(&lock));
    SAY(pthread_rwlock_wrlock(&lock));
    SAY(pthread_rwlock_unlock(&lock));
    SAY(pthread_rwlock_wrlock(&lock));
}

/* Memory that was a lock which this thread read becomes a new lock, which it does not read. */
static void renew_statically(void)
{
    lock = (pthread_rwlock_t)PTHREAD_RWLOCK_INITIALIZER;
}
static void renew_by_another_thread(void)
{
    IN_A_THREAD(OK(pthread_rwlock_init(&lock, NULL)));
}
static void renew_by_this_thread(void)
{
    OK(pthread_rwlock_init(&lock, NULL));
}
static void renew_after_destroy(void)
{
    OK(pthread_rwlock_destroy(&lock));
    IN_A_THREAD(OK(pthread_rwlock_init(&lock, NULL)));
}

static void left_behind(void (*renew)(void), int often)
{
    for (int i = 0; i < 3; i++) {
        if (often)
            read_often();
        OK(pthread_rwlock_rdlock(&lock));
        renew();
        IN_A_THREAD(SAY(pthread_rwlock_wrlock(&lock)));
        SAY(pthread_rwlock_tryrdlock(&lock));
        SAY(timedrdlock(&lock, 5));
        SAY(timedwrlock(&lock, 5));
        renew();
        /* And it works, for readers and for writers. */
        IN_A_THREAD(read_often());
        read_often();
        SAY(pthread_rwlock_rdlock(&lock));
        IN_A_THREAD(SAY(pthread_rwlock_trywrlock(&lock)));
        SAY(pthread_rwlock_unlock(&lock));
        IN_A_THREAD(SAY(timedwrlock(&lock, 20000)); SAY(pthread_rwlock_unlock(&lock)));
        SAY(timedwrlock(&lock, 20000));
        SAY(pthread_rwlock_unlock(&lock));
    }
}
static void left_static(void)
{
    left_behind(renew_statically, 0);
}
static void left_initialised(void)
{
    left_behind(renew_by_another_thread, 0);
}
static void left_biased_initialised_here(void)
{
    left_behind(renew_by_this_thread, 1);
}
static void left_destroyed(void)
{
    left_behind(renew_after_destroy, 0);
}
static void left_biased_static(void)
{
    left_behind(renew_statically, 1);
}
static void left_biased_initialised(void)
{
    left_behind(renew_by_another_thread, 1);
}

/* A thread ends while it reads a lock, the memory of which then is another lock. */
static void left_by_a_thread(void)
{
    for (int i = 0; i < 3; i++) {
        IN_A_THREAD(read_often(); OK(pthread_rwlock_rdlock(&lock)));
        renew_statically();
        read_often();
        IN_A_THREAD(SAY(pthread_rwlock_tryrdlock(&lock)); OK(pthread_rwlock_unlock(&lock)));
        SAY(timedwrlock(&lock, 20000));
        IN_A_THREAD(SAY(pthread_rwlock_tryrdlock(&lock)));
        SAY(pthread_rwlock_unlock(&lock));
    }
}

/* A child does not touch what is no lock any more. */
static void child_of_a_forgetful(int often)
{
    enum { SIZE = 4096 };
    pthread_rwlock_t *l[3];
    for (int i = 0; i < 3; i++) {
        l[i] = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(l[i] != MAP_FAILED);
        for (int j = 0; often && j < 100; j++) {
            OK(pthread_rwlock_rdlock(l[i]));
            OK(pthread_rwlock_unlock(l[i]));
        }
        OK(pthread_rwlock_rdlock(l[i]));
    }
    munmap(l[0], SIZE);
    memset(l[1], 0x5a, 32); /* where the lock itself was, as if it was in use for something else */
    pid_t child = fork();
    if (child == 0) {
        int changed = 0;
        for (int i = 0; i < 32; i++)
            changed += ((char *)l[1])[i] != 0x5a;
        say("%d bytes changed", changed);
        SAY(pthread_rwlock_trywrlock(l[2]));
        SAY(pthread_rwlock_tryrdlock(l[2]));
        SAY(pthread_rwlock_unlock(l[2]));
        SAY(pthread_rwlock_trywrlock(l[2]));
        SAY(pthread_rwlock_unlock(l[2]));
        SAY(pthread_rwlock_trywrlock(l[2]));
        _exit(0);
    }
    int status;
    EQ(waitpid(child, &status, 0), child);
    say("the child's status is %d", status);
}
static void forgetful_parent(void)
{
    child_of_a_forgetful(0);
}
static void forgetful_parent_biased(void)
{
    child_of_a_forgetful(1);
}

/* Very many locks, each several times, released in another order. */
static void many_held(void)
{
    enum { N = 5000 };
    static pthread_rwlock_t locks[N];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < N; i++)
            OK(pthread_rwlock_rdlock(&locks[i]));
        for (int i = 0; i < N; i += 3)
            OK(pthread_rwlock_rdlock(&locks[i]));
        int busy = 0, released = 0;
        for (int i = 0; i < N; i++)
            busy += pthread_rwlock_trywrlock(&locks[i]) == EBUSY;
        for (int i = 0; i < N; i++)
            released += pthread_rwlock_unlock(&locks[(i * 37L + round) % N]) == 0;
        for (int i = 0; i < N; i += 3)
            released += pthread_rwlock_unlock(&locks[i]) == 0;
        int free = 0;
        for (int i = 0; i < N; i++)
            free += pthread_rwlock_trywrlock(&locks[i]) == 0 && pthread_rwlock_unlock(&locks[i]) == 0;
        say("%d busy, %d released, %d free", busy, released, free);
    }
}

/* Many locks, of which other threads release some; then both release and acquire others. */
enum { SOME = 60 };
static pthread_rwlock_t some[SOME];
static void *release_every_third(void *first)
{
    int released = 0;
    for (long i = (long)first; i < SOME; i += 3)
        released += pthread_rwlock_unlock(&some[i]) == 0;
    return (void *)(long)released;
}
static void released_by_others(void)
{
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < SOME; i++)
            OK(pthread_rwlock_rdlock(&some[(i * 7 + round) % SOME]));
        pthread_t others[2] = { start(release_every_third, (void *)0), start(release_every_third, (void *)1) };
        int released = 0, free = 0;
        for (int i = 2; i < SOME; i += 3) { /* the others, while those are being released */
            released += pthread_rwlock_unlock(&some[i]) == 0;
            OK(pthread_rwlock_rdlock(&some[i]));
        }
        for (int i = 0; i < 2; i++)
            released += (int)(long)join(others[i]);
        for (int i = 0; i < SOME; i += 3) /* and again those that were */
            OK(pthread_rwlock_rdlock(&some[i]));
        for (int i = 0; i < SOME; i++)
            free += pthread_rwlock_trywrlock(&some[i]) == 0 && pthread_rwlock_unlock(&some[i]) == 0;
        for (int i = 0; i < SOME; i += 3)
            released += pthread_rwlock_unlock(&some[i]) == 0;
        for (int i = 2; i < SOME; i += 3)
            released += pthread_rwlock_unlock(&some[i]) == 0;
        say("%d released, %d were free", released, free);
    }
    int free = 0;
    for (int i = 0; i < SOME; i++)
        free += pthread_rwlock_trywrlock(&some[i]) == 0;
    say("%d are free", free);
}

/* What the thread that forks reads, it reads in the child, and in the child's child. */
static int try_writes;
static void *try_to_write(void *argument)
{
    (void)argument;
    try_writes = 0;
    for (int i = 0; i < SOME; i++)
        try_writes += pthread_rwlock_trywrlock(&some[i]) == EBUSY;
    return NULL;
}
static void held_over_forks(void)
{
    for (int i = 0; i < SOME; i++) {
        for (int j = 0; j < (i % 4) * 30; j++) {
            OK(pthread_rwlock_rdlock(&some[i]));
            OK(pthread_rwlock_unlock(&some[i]));
        }
        OK(pthread_rwlock_rdlock(&some[i]));
        if (i % 3 == 0)
            OK(pthread_rwlock_rdlock(&some[i]));
    }
    for (int depth = 0; depth < 3; depth++) {
        pid_t child = fork();
        if (child) {
            reap(child);
            break;
        }
        if (depth == 1)
            continue; /* without using any of them */
        join(start(try_to_write, NULL));
        int released = 0;
        for (int i = depth; i < SOME; i += 3)
            released += pthread_rwlock_unlock(&some[i]) == 0 && pthread_rwlock_rdlock(&some[i]) == 0;
        say("depth %d: %d cannot be written, %d were released", depth, try_writes, released);
    }
    int released = 0, free = 0;
    for (int i = 0; i < SOME; i++)
        for (int j = 0; j <= (i % 3 == 0); j++)
            released += pthread_rwlock_unlock(&some[i]) == 0;
    for (int i = 0; i < SOME; i++)
        free += pthread_rwlock_trywrlock(&some[i]) == 0;
    say("%d released, %d are free", released, free);
}

static const struct test tests[] = {
    { "abandoned write lock", abandoned },
    { "own write lock", own_write_lock },
    { "write while reading", write_while_reading },
    { "write while reading, without a time", write_while_reading_without_a_time },
    { "left behind, initialised statically", left_static },
    { "left behind, initialised by another thread", left_initialised },
    { "left behind, destroyed and initialised", left_destroyed },
    { "left behind after many reads, initialised statically", left_biased_static },
    { "left behind after many reads, initialised by another thread", left_biased_initialised },
    { "left behind after many reads, initialised by this thread", left_biased_initialised_here },
    { "left behind by a thread that ended", left_by_a_thread },
    { "child of a forgetful parent", forgetful_parent },
    { "child of a forgetful parent after many reads", forgetful_parent_biased },
    { "many locks held", many_held },
    { "released by others", released_by_others },
    { "held over forks", held_over_forks },
};

int main(int arguments, char **argument)
{
    return RUN_CASES(tests, arguments, argument);
}

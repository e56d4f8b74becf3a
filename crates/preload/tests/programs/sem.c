/* sem_*: values and errors, waiting, deadlines, signals, cancellation, and semaphores that glibc serves. */
#include "check.h"
#include <fcntl.h>
#include <limits.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>

#define FAILS(call, number)                                                                 \
    do {                                                                                    \
        errno = 0;                                                                          \
        EQ(call, -1);                                                                       \
        EQ(errno, number);                                                                  \
    } while (0)

static int value(sem_t *s)
{
    int v = -1;
    OK(sem_getvalue(s, &v));
    return v;
}

static void basics(void)
{
    sem_t s;
    struct timespec past = { 1, 0 }, bad = { 0, 1000000000 }, ancient = { -1, 0 };
    FAILS(sem_init(&s, 0, (unsigned)SEM_VALUE_MAX + 1), EINVAL);
    OK(sem_init(&s, 0, 2));
    errno = 77;
    OK(sem_wait(&s));
    OK(sem_trywait(&s));
    EQ(errno, 77);
    FAILS(sem_trywait(&s), EAGAIN);
    EQ(value(&s), 0);
    FAILS(sem_timedwait(&s, &past), ETIMEDOUT);
    FAILS(sem_timedwait(&s, &bad), EINVAL);
    /* The kernel refuses a time before the epoch: passed on to it, the wait would never end. */
    FAILS(sem_timedwait(&s, &ancient), ETIMEDOUT);
    FAILS(sem_clockwait(&s, CLOCK_MONOTONIC, &ancient), ETIMEDOUT);
    FAILS(sem_clockwait(&s, 99, &past), EINVAL);
    /* -1 is what is left of a clock that could not be had. */
    FAILS(sem_clockwait(&s, -1, &past), EINVAL);
    FAILS(sem_clockwait(&s, -1, &ancient), EINVAL);
    struct timespec soon = in_ms(CLOCK_MONOTONIC, 20);
    FAILS(sem_clockwait(&s, CLOCK_MONOTONIC, &soon), ETIMEDOUT);
    OK(sem_post(&s));
    FAILS(sem_clockwait(&s, -1, &past), EINVAL);
    EQ(value(&s), 1);
    OK(sem_timedwait(&s, &past)); /* there is a unit */
    OK(sem_post(&s));
    OK(sem_timedwait(&s, &ancient));
    OK(sem_destroy(&s));
    OK(sem_init(&s, 0, SEM_VALUE_MAX));
    FAILS(sem_post(&s), EOVERFLOW);
    EQ(value(&s), SEM_VALUE_MAX);
    OK(sem_destroy(&s));
}

static sem_t there, back, units;
static int inside, most;

static void *echo(void *rounds)
{
    for (long i = 0; i < (long)rounds; i++) {
        while (sem_wait(&there) != 0)
            EQ(errno, EINTR);
        OK(sem_post(&back));
    }
    return NULL;
}

static void ping(void)
{
    enum { ROUNDS = 2000 };
    OK(sem_init(&there, 0, 0));
    OK(sem_init(&back, 0, 0));
    pthread_t thread = start(echo, (void *)ROUNDS);
    for (int i = 0; i < ROUNDS; i++) {
        OK(sem_post(&there));
        OK(sem_wait(&back));
    }
    join(thread);
    EQ(value(&there) + value(&back), 0);
}

static void *crowd(void *argument)
{
    (void)argument;
    for (int i = 0; i < 500; i++) {
        struct timespec soon = in_ms(CLOCK_REALTIME, 1);
        if (i % 3 == 0 ? sem_timedwait(&units, &soon) : sem_wait(&units)) {
            EQ(errno, ETIMEDOUT);
            continue;
        }
        int now = __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST);
        CHECK(now <= 3);
        if (now > __atomic_load_n(&most, __ATOMIC_RELAXED))
            __atomic_store_n(&most, now, __ATOMIC_RELAXED);
        if (i % 64 == 0)
            sleep_ms(1);
        __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST);
        OK(sem_post(&units));
    }
    return NULL;
}

static void never_more_than_units(void)
{
    pthread_t threads[8];
    OK(sem_init(&units, 0, 3));
    for (int i = 0; i < 8; i++)
        threads[i] = start(crowd, NULL);
    for (int i = 0; i < 8; i++)
        join(threads[i]);
    EQ(value(&units), 3);
    CHECK(most > 1);
}

static volatile int interrupted;
static void handler(int number)
{
    (void)number;
}

static void *interrupt(void *thread)
{
    /* A signal that comes before the call does not interrupt it. */
    while (!interrupted) {
        OK(pthread_kill(*(pthread_t *)thread, SIGUSR1));
        sleep_ms(2);
    }
    return NULL;
}

static void post_from_handler(int number)
{
    (void)number;
    sem_post(&there);
}

static void signals(void)
{
    struct sigaction action = { .sa_handler = handler };
    pthread_t me = pthread_self();
    OK(sigaction(SIGUSR1, &action, NULL));
    OK(sem_init(&there, 0, 0));
    pthread_t thread = start(interrupt, &me);
    int result;
    while ((result = sem_wait(&there)) == 0)
        ;
    EQ(errno, EINTR);
    interrupted = 1;
    join(thread);
    action.sa_handler = post_from_handler;
    OK(sigaction(SIGUSR1, &action, NULL));
    OK(pthread_kill(me, SIGUSR1));
    OK(sem_wait(&there));
}

static int cleaned;
static void clean(void *argument)
{
    (void)argument;
    __atomic_add_fetch(&cleaned, 1, __ATOMIC_SEQ_CST);
}

static void *wait_until_cancelled(void *argument)
{
    (void)argument;
    pthread_cleanup_push(clean, NULL);
    sem_wait(&there);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *cancel_before(void *argument)
{
    (void)argument;
    pthread_cancel(pthread_self());
    sem_wait(&units); /* a cancellation point though there are units */
    return NULL;
}

/* Of two sleepers one is cancelled; a post, before or after, reaches the other. (With glibc 2.36 one that
   came before is lost if it has woken the cancelled one: there it always comes after.) */
static void cancellation(void)
{
    OK(sem_init(&units, 0, 1));
    CHECK(join(start(cancel_before, NULL)) == PTHREAD_CANCELED);
    EQ(value(&units), 1);
    for (int i = 0; i < 20; i++) {
        OK(sem_init(&there, 0, 0));
        cleaned = 0;
        pthread_t first = start(wait_until_cancelled, NULL), second = start(wait_until_cancelled, NULL);
        sleep_ms(i % 4);
        int before = i % 2 && OUR_MUTEX;
        if (before)
            OK(sem_post(&there));
        OK(pthread_cancel(first));
        int died = join(first) == PTHREAD_CANCELED;
        /* A thread that was posted to returns. If glibc's signal for the cancellation arrives when it has left the wait, glibc 2.36 may
           nevertheless say that it was cancelled (sigcancel_handler stores the result). What counts is whether it was cleaned. */
        CHECK(died || !cleaned);
        if (!before || !cleaned)
            OK(sem_post(&there));
        join(second);
        EQ(value(&there), 0);
    }
}

static void between_processes(void)
{
    sem_t *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char name[64];
    snprintf(name, sizeof name, "/latchwork-test-%d", (int)getpid());
    CHECK(s != MAP_FAILED);
    OK(sem_init(s, 1, 0));
    sem_t *named = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
    CHECK(named != SEM_FAILED);
    OK(sem_unlink(name));
    pid_t child = fork();
    if (child == 0) {
        OK(sem_wait(s));
        OK(sem_post(named));
        _exit(0);
    }
    OK(sem_post(s));
    struct timespec late = in_ms(CLOCK_REALTIME, 60000);
    OK(sem_timedwait(named, &late));
    reap(child);
    FAILS(sem_trywait(named), EAGAIN);
    EQ(value(s), 0);
    OK(sem_close(named));
    OK(sem_destroy(s));
}

/* Ours works in a child that was forked while others slept on it. */
static void forked(void)
{
    OK(sem_init(&there, 0, 0));
    OK(sem_init(&back, 0, 0));
    pthread_t thread = start(echo, (void *)1);
    sleep_ms(5);
    pid_t child = fork();
    if (child == 0) {
        OK(sem_post(&there));
        OK(sem_wait(&there));
        _exit(0);
    }
    reap(child);
    OK(sem_post(&there));
    join(thread);
}

/* Whoever gets the unit may free the semaphore. */
static void *post_once(void *s)
{
    OK(sem_post(s));
    return NULL;
}

static void freed_by_who_waits(void)
{
    for (int i = 0; i < 200; i++) {
        sem_t *s = malloc(sizeof *s);
        OK(sem_init(s, 0, 0));
        pthread_t thread = start(post_once, s);
        OK(sem_wait(s));
        OK(sem_destroy(s));
        memset(s, 0xff, sizeof *s);
        free(s);
        join(thread);
    }
}

/* glibc's sem_destroy changes nothing, and programs post to a waiter after it. */
static void *wait_once(void *s)
{
    OK(sem_wait(s));
    return NULL;
}

static void used_after_destroy(void)
{
    static sem_t s;
    int value;
    OK(sem_init(&s, 0, 1));
    OK(sem_destroy(&s));
    OK(sem_getvalue(&s, &value));
    EQ(value, 1);
    OK(sem_trywait(&s));
    OK(sem_init(&s, 0, 0));
    pthread_t thread = start(wait_once, &s);
    sleep_ms(20);
    OK(sem_destroy(&s));
    OK(sem_post(&s));
    join(thread);
    /* Another one in the same memory. */
    OK(sem_init(&s, 1, 2));
    OK(sem_getvalue(&s, &value));
    EQ(value, 2);
}

int main(void)
{
    basics();
    ping();
    never_more_than_units();
    signals();
    cancellation();
    between_processes();
    forked();
    freed_by_who_waits();
    used_after_destroy();
    puts("ok");
    return 0;
}

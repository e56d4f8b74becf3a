/* Makes the mistake that its argument names, or none. `latchwork check` reports it. */
#include "check.h"
#include <limits.h>
#include <signal.h>
#include <sys/time.h>
#include <threads.h>

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER,
                       c = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t r = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t full = PTHREAD_COND_INITIALIZER;
static int items;

__attribute__((noinline)) static void a_then_b(void)
{
    OK(pthread_mutex_lock(&a));
    OK(pthread_mutex_lock(&b));
    OK(pthread_mutex_unlock(&b));
    OK(pthread_mutex_unlock(&a));
}

__attribute__((noinline)) static void b_then_a(void)
{
    errno = ENOTTY;
    OK(pthread_mutex_lock(&b));
    OK(pthread_mutex_lock(&a));
    OK(pthread_mutex_unlock(&a));
    OK(pthread_mutex_unlock(&b));
    EQ(errno, ENOTTY);
}

__attribute__((noinline)) static void b_then_c(void)
{
    OK(pthread_mutex_lock(&b));
    OK(pthread_mutex_lock(&c));
    OK(pthread_mutex_unlock(&c));
    OK(pthread_mutex_unlock(&b));
}

__attribute__((noinline)) static void c_then_a(void)
{
    OK(pthread_mutex_lock(&c));
    OK(pthread_mutex_lock(&a));
    OK(pthread_mutex_unlock(&a));
    OK(pthread_mutex_unlock(&c));
}

/* The same inner calls below different outer ones. */
__attribute__((noinline)) static void take(pthread_mutex_t *mutex)
{
    OK(pthread_mutex_lock(mutex));
    __asm__ volatile(""); /* not a tail call */
}

__attribute__((noinline)) static void takes_a_and_b(void)
{
    take(&a);
    take(&b);
    OK(pthread_mutex_unlock(&b));
    OK(pthread_mutex_unlock(&a));
}

__attribute__((noinline)) static void takes_b_and_a(void)
{
    take(&b);
    take(&a);
    OK(pthread_mutex_unlock(&a));
    OK(pthread_mutex_unlock(&b));
}

static pthread_rwlock_t other = PTHREAD_RWLOCK_INITIALIZER;

__attribute__((noinline)) static void write_both(void)
{
    OK(pthread_rwlock_wrlock(&r));
    OK(pthread_rwlock_wrlock(&other));
    OK(pthread_rwlock_unlock(&other));
    OK(pthread_rwlock_unlock(&r));
}

__attribute__((noinline)) static void read_both(pthread_rwlock_t *first, pthread_rwlock_t *second)
{
    OK(pthread_rwlock_rdlock(first));
    OK(pthread_rwlock_rdlock(second));
    OK(pthread_rwlock_unlock(second));
    OK(pthread_rwlock_unlock(first));
}

/* Under a lock that keeps other threads away meanwhile. */
static void gated(void (*f)(void))
{
    OK(pthread_mutex_lock(&c));
    f();
    OK(pthread_mutex_unlock(&c));
}

static void *inverted(void *argument)
{
    (void)argument;
    b_then_a();
    return NULL;
}

/* A mutex that checks for errors. */
static pthread_mutex_t checking;

static void make_checking(void)
{
    pthread_mutexattr_t attr;
    OK(pthread_mutexattr_init(&attr));
    OK(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK));
    OK(pthread_mutex_init(&checking, &attr));
}

static void *refused(void *argument)
{
    EQ(pthread_mutex_unlock(&checking), EPERM);
    return argument;
}

/* The thread goes on until the pipe is closed. */
static void *take_a_and_stay(void *pipe)
{
    char byte;
    OK(pthread_mutex_lock(&a));
    EQ(write(((int *)pipe)[3], "", 1), 1);
    EQ(read(((int *)pipe)[0], &byte, 1), 0);
    return NULL;
}

static void stranger(void)
{
    int pipes[4]; /* to the thread, and back */
    char byte;
    OK(pipe(pipes));
    OK(pipe(pipes + 2));
    pthread_t thread = start(take_a_and_stay, pipes);
    EQ(read(pipes[2], &byte, 1), 1);
    pthread_mutex_unlock(&a);
    OK(close(pipes[1]));
    join(thread);
}

/* Two mistakes in one: the thread that comes next often has the identity of the one that has ended. */
static void *take_a(void *argument)
{
    (void)argument;
    OK(pthread_mutex_lock(&a));
    return NULL;
}

static void *try_a(void *argument)
{
    (void)argument;
    struct timespec soon = in_ms(CLOCK_REALTIME, 1);
    EQ(pthread_mutex_timedlock(&a, &soon), ETIMEDOUT);
    return NULL;
}

static void *read_r(void *argument)
{
    (void)argument;
    OK(pthread_rwlock_rdlock(&r));
    return NULL;
}

/* The destructor of a key releases what the thread still holds, when destructors have run twice. */
static pthread_key_t late;
static int rounds;

static void release_late(void *mutex)
{
    if (++rounds < 3)
        OK(pthread_setspecific(late, mutex));
    else
        OK(pthread_mutex_unlock(mutex));
}

static void *end_late(void *argument)
{
    OK(pthread_mutex_lock(&c));
    OK(pthread_setspecific(late, &c));
    return argument;
}

/* A mutex that tells of the death of its holder. */
static pthread_mutex_t robust;

static void *leave_robust(void *argument)
{
    int result = pthread_mutex_lock(&robust);
    if (argument == NULL) {
        EQ(result, EOWNERDEAD);
        OK(pthread_mutex_consistent(&robust));
    }
    return NULL;
}

static void ends_that_are_right(void)
{
    pthread_mutexattr_t attr;
    OK(pthread_key_create(&late, release_late));
    join(start(end_late, NULL));
    EQ(rounds, 3);
    OK(pthread_mutexattr_init(&attr));
    OK(pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST));
    OK(pthread_mutex_init(&robust, &attr));
    for (int i = 0; i < 3; i++)
        join(start(leave_robust, i ? NULL : &robust));
}

static void *producer(void *argument)
{
    (void)argument;
    for (int i = 0; i < 100; i++) {
        OK(pthread_mutex_lock(&a));
        items++;
        OK(pthread_cond_signal(&full));
        OK(pthread_mutex_unlock(&a));
    }
    return NULL;
}

static volatile int forks;

static void fork_and_reap(int signal)
{
    (void)signal;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    reap(child);
    forks++;
}

/* A signal handler forks whatever the thread is about to do. */
static void fork_in_handler(void)
{
    struct sigaction action = {.sa_handler = fork_and_reap, .sa_flags = SA_RESTART};
    OK(sigaction(SIGALRM, &action, NULL));
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    OK(setitimer(ITIMER_REAL, &often, NULL));
    while (forks < 50)
        a_then_b();
    OK(setitimer(ITIMER_REAL, &never, NULL));
}

/* No mistake, but more locks than are remembered, released in the order in which they were taken. */
static void many(void)
{
    static pthread_mutex_t locks[40];
    for (int i = 0; i < 40; i++) {
        OK(pthread_mutex_init(&locks[i], NULL));
        OK(pthread_mutex_lock(&locks[i]));
    }
    for (int i = 0; i < 40; i++)
        OK(pthread_mutex_unlock(&locks[i]));
    for (int i = 0; i < 40; i++)
        OK(pthread_mutex_destroy(&locks[i]));
}

/* All that is allowed, and looks like a mistake. */
static void clean(void)
{
    pthread_t thread = start(producer, NULL);
    for (int i = 0; i < 100; i++) {
        OK(pthread_mutex_lock(&a));
        while (!items)
            OK(pthread_cond_wait(&full, &a));
        items--;
        OK(pthread_mutex_unlock(&a));
    }
    join(thread);
    a_then_b();
    /* An attempt against the order. */
    OK(pthread_mutex_lock(&b));
    OK(pthread_mutex_trylock(&a));
    OK(pthread_mutex_unlock(&a));
    OK(pthread_mutex_unlock(&b));
    /* Again, where that is allowed. */
    pthread_mutexattr_t attr;
    pthread_mutex_t m;
    OK(pthread_mutexattr_init(&attr));
    OK(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE));
    OK(pthread_mutex_init(&m, &attr));
    OK(pthread_mutex_lock(&m));
    OK(pthread_mutex_lock(&m));
    OK(pthread_mutex_unlock(&m));
    OK(pthread_mutex_unlock(&m));
    OK(pthread_mutex_destroy(&m));
    OK(pthread_rwlock_rdlock(&r));
    OK(pthread_rwlock_rdlock(&r));
    OK(pthread_rwlock_unlock(&r));
    OK(pthread_rwlock_unlock(&r));
    /* The same memory, another lock, another order. */
    for (int i = 0; i < 2; i++) {
        OK(pthread_mutex_init(&m, NULL));
        OK(pthread_mutex_lock(i ? &a : &m));
        OK(pthread_mutex_lock(i ? &m : &a));
        OK(pthread_mutex_unlock(&m));
        OK(pthread_mutex_unlock(&a));
        OK(pthread_mutex_destroy(&m));
    }
    /* Both orders, of readers. */
    read_both(&r, &other);
    read_both(&other, &r);
    /* Both orders, under a lock that keeps them apart. */
    static pthread_mutex_t pair[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
    for (int i = 0; i < 2; i++) {
        OK(pthread_mutex_lock(&c));
        OK(pthread_mutex_lock(&pair[i]));
        OK(pthread_mutex_lock(&pair[!i]));
        OK(pthread_mutex_unlock(&pair[!i]));
        OK(pthread_mutex_unlock(&pair[i]));
        OK(pthread_mutex_unlock(&c));
    }
    /* A child goes on with what its parent holds. */
    OK(pthread_mutex_lock(&c));
    pid_t child = fork();
    if (child == 0) {
        OK(pthread_mutex_unlock(&c));
        a_then_b();
        _exit(0);
    }
    reap(child);
    OK(pthread_mutex_unlock(&c));
    fork_in_handler();
    ends_that_are_right();
}

/* What liblatchwork finds in the preload library, for its own locks and for names. */
extern int latchwork_observe_acquire(void *, int, int (*)(void *), int (*)(void *), void *) __attribute__((weak));
extern int latchwork_observe_release(void *, int, int (*)(void *), void *) __attribute__((weak));
extern void latchwork_observe_name(void *, const char *) __attribute__((weak));

static int step(void *calls)
{
    ++*(int *)calls;
    return 0;
}

/* Two locks of another kind: a reader-writer lock that is read again by its reader, and a mutex. */
__attribute__((noinline)) static void foreign(int turned)
{
    static char locks[2];
    int calls = 0;
    latchwork_observe_name(&locks[0], "accounts");
    latchwork_observe_name(&locks[1], "journal");
    for (int i = 0; i < 2; i++)
        OK(latchwork_observe_acquire(&locks[turned ^ i], turned ^ i ? 0 : 1, step, step, &calls));
    if (!turned)
        OK(latchwork_observe_acquire(&locks[0], 3, step, step, &calls));
    for (int i = turned ? 1 : 2; i >= 0; i--)
        OK(latchwork_observe_release(&locks[i % 2 ? turned ^ 1 : turned], 0, step, &calls));
    EQ(calls, turned ? 4 : 6);
}

/* A thread with the smallest stack that there may be. */
static pthread_t start_small(void *(*f)(void *))
{
    pthread_attr_t attributes;
    pthread_t thread;
    OK(pthread_attr_init(&attributes));
    OK(pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN));
    OK(pthread_create(&thread, &attributes, f, NULL));
    OK(pthread_attr_destroy(&attributes));
    return thread;
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "clean";
    if (!strcmp(what, "clean")) {
        clean();
    } else if (!strcmp(what, "many")) {
        many();
    } else if (!strcmp(what, "inversion")) {
        a_then_b();
        join(start(inverted, NULL));
        join(start(inverted, NULL)); /* not again */
    } else if (!strcmp(what, "readers")) {
        write_both();
        read_both(&r, &other);
        read_both(&other, &r);
    } else if (!strcmp(what, "callers")) {
        takes_a_and_b();
        takes_b_and_a();
    } else if (!strcmp(what, "gated")) {
        gated(a_then_b);
        gated(b_then_a);
        a_then_b(); /* the gate is open */
        b_then_a();
    } else if (!strcmp(what, "small")) {
        a_then_b();
        join(start_small(inverted));
    } else if (!strcmp(what, "named")) {
        latchwork_observe_name(&a, "nothing");
        latchwork_observe_name(&a, "accounts");
        latchwork_observe_name(&b, "journal");
        a_then_b();
        join(start(inverted, NULL));
    } else if (!strcmp(what, "foreign")) {
        foreign(0);
        foreign(1);
    } else if (!strcmp(what, "chain")) {
        a_then_b();
        b_then_c();
        c_then_a();
    } else if (!strcmp(what, "self")) {
        OK(pthread_mutex_lock(&a));
        struct timespec soon = in_ms(CLOCK_REALTIME, 20);
        EQ(pthread_mutex_timedlock(&a, &soon), ETIMEDOUT);
        OK(pthread_mutex_unlock(&a));
    } else if (!strcmp(what, "stranger")) {
        stranger();
    } else if (!strcmp(what, "ended")) {
        join(start(take_a, NULL));
        join(start(try_a, NULL));
    } else if (!strcmp(what, "ended_reader")) {
        join(start(read_r, NULL));
        OK(pthread_rwlock_rdlock(&r));
    } else if (!strcmp(what, "waits")) {
        struct timespec soon = in_ms(CLOCK_REALTIME, 1);
        pthread_cond_timedwait(&full, &b, &soon);
    } else if (!strcmp(what, "nobody")) {
        pthread_rwlock_t *l = malloc(sizeof *l);
        OK(pthread_rwlock_init(l, NULL));
        OK(pthread_rwlock_wrlock(l));
        OK(pthread_rwlock_unlock(l));
        pthread_mutex_unlock(&b);
        free(l);
    } else if (!strcmp(what, "destroyed")) {
        OK(pthread_mutex_lock(&a));
        pthread_mutex_destroy(&a);
    } else if (!strcmp(what, "refused")) {
        make_checking();
        OK(pthread_mutex_lock(&checking));
        join(start(refused, NULL));
        OK(pthread_mutex_unlock(&checking));
    } else if (!strcmp(what, "busy")) {
        OK(pthread_mutex_lock(&a));
        EQ(pthread_mutex_destroy(&a), EBUSY);
        OK(pthread_mutex_unlock(&a));
        a_then_b();
    } else if (!strcmp(what, "busy_c11")) {
        mtx_t m;
        OK(mtx_init(&m, mtx_plain));
        OK(mtx_lock(&m));
        mtx_destroy(&m);
        OK(mtx_unlock(&m));
        mtx_destroy(&m);
    } else {
        return 2;
    }
    puts("ok");
    return 0;
}

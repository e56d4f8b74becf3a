/* Calls that a cancellation or a signal interrupts: cases that are compared with glibc. */
#include "cases.h"
#include <semaphore.h>
#include <setjmp.h>
#include <threads.h>

static pthread_mutex_t mutex = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t empty, full;

/* The calls that may wait. `t` is a time, `clock` a clock. */
#define CALLS(X)                                                                                          \
    X(pthread_mutex_lock(&held)) X(pthread_mutex_timedlock(&held, t)) X(pthread_mutex_clocklock(&held, clock, t)) \
    X(pthread_rwlock_rdlock(&rwlock)) X(pthread_rwlock_timedrdlock(&rwlock, t))                           \
    X(pthread_rwlock_clockrdlock(&rwlock, clock, t)) X(pthread_rwlock_wrlock(&rwlock))                    \
    X(pthread_rwlock_timedwrlock(&rwlock, t)) X(pthread_rwlock_clockwrlock(&rwlock, clock, t))            \
    X(pthread_cond_wait(&cond, &mutex)) X(pthread_cond_timedwait(&cond, &mutex, t))                       \
    X(pthread_cond_clockwait(&cond, &mutex, clock, t)) X(cnd_wait((cnd_t *)&cond, (mtx_t *)&mutex))       \
    X(cnd_timedwait((cnd_t *)&cond, (mtx_t *)&mutex, t))                                                  \
    X(sem_wait(&empty)) X(sem_timedwait(&empty, t)) X(sem_clockwait(&empty, clock, t))                    \
    X(sem_wait(&full)) X(sem_timedwait(&full, t)) X(sem_clockwait(&full, clock, t))
#define NAME(call) #call,
static const char *const names[] = { CALLS(NAME) };
enum { COUNT = sizeof names / sizeof *names };

static int perform(int what, clockid_t clock, const struct timespec *t)
{
    enum { BEFORE_THE_FIRST = __COUNTER__ };
    switch (what) {
#define CASE(call) case __COUNTER__ - BEFORE_THE_FIRST - 1: return call;
        CALLS(CASE)
    }
    return 0;
}

static int is(int what, const char *function)
{
    return strncmp(names[what], function, strlen(function)) == 0;
}
static int has_time(int what) { return strstr(names[what], ", t)") != NULL; }
static int waits_with_mutex(int what) { return strstr(names[what], "cond, ") != NULL; }

static int may_wait(int what) { return strstr(names[what], "full") == NULL; }

/* What a call returned: of a semaphore and of C11 the number, with errno for -1; else the error. */
static const char *result_name(int what, int result)
{
    static const char *const of_c11[] = { "thrd_success", "thrd_busy", "thrd_error", "thrd_nomem", "thrd_timedout" };
    if (is(what, "cnd_"))
        return of_c11[result];
    return result == -1 ? strerrorname_np(errno) : result ? strerrorname_np(result) : "0";
}

/* Another thread has the locks, and no thread will notify. */
static void *hold(void *argument)
{
    OK(pthread_mutex_lock(&held));
    OK(pthread_rwlock_wrlock(&rwlock));
    return argument;
}
static void begin(void)
{
    OK(sem_init(&empty, 0, 0));
    OK(sem_init(&full, 0, 1));
    join(start(hold, NULL));
}

/* A thread that has a request pending. */
struct call {
    int what, clock, result, error;
    const struct timespec *time;
};
static void unlock(void *argument)
{
    const struct call *call = argument;
    if (waits_with_mutex(call->what))
        OK(pthread_mutex_unlock(&mutex));
}
static void *call_cancelled(void *argument)
{
    struct call *call = argument;
    if (waits_with_mutex(call->what))
        OK(pthread_mutex_lock(&mutex));
    OK(pthread_cancel(pthread_self()));
    pthread_cleanup_push(unlock, call);
    call->result = perform(call->what, call->clock, call->time);
    call->error = errno;
    OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL));
    pthread_cleanup_pop(1);
    return NULL;
}
static void cancelled(const struct timespec *time, clockid_t clock)
{
    begin();
    for (int what = 0; what < COUNT; what++) {
        struct call call = { .what = what, .clock = clock, .time = time };
        /* latchwork acts on the request where glibc does not: docs/cli.md. */
        if (!has_time(what) || (is(what, "sem_clockwait(&full") && time->tv_nsec < 1000000000 && clock >= 0))
            continue;
        OK(sem_destroy(&full));
        OK(sem_init(&full, 0, 1));
        int ended = join(start(call_cancelled, &call)) == PTHREAD_CANCELED;
        errno = call.error;
        say("%s: %s", names[what], ended ? "ends" : result_name(what, call.result));
    }
}
static const struct timespec none = { 1, 1000000000 }, passed = { 1, 0 };
static void cancelled_and_no_time(void) { cancelled(&none, CLOCK_MONOTONIC); }
static void cancelled_and_no_clock(void) { cancelled(&passed, -1); }
static void cancelled_and_passed(void) { cancelled(&passed, CLOCK_REALTIME); }

/* A signal in each call that waits. The call goes on, fails with EINTR, or is left by a jump. */
struct interrupted {
    struct call call;
    struct timespec until;
    pthread_t thread;
    pid_t id;
    int begun, handled, ended;
};
static int jumps;
static __thread sigjmp_buf outside;
static __thread struct interrupted *mine;
static void handler(int number)
{
    (void)number;
    mine->handled++;
    errno = EXDEV; /* this is not the call's own value */
    if (jumps)
        siglongjmp(outside, 1);
}
static void *call_interrupted(void *argument)
{
    struct call *call = &(mine = argument)->call;
    const char *name = names[call->what];
    if (waits_with_mutex(call->what))
        OK(pthread_mutex_lock(&mutex));
    mine->id = gettid();
    if (sigsetjmp(outside, 1) == 0) {
        __atomic_store_n(&mine->begun, 1, __ATOMIC_SEQ_CST);
        call->result = perform(call->what, call->clock, &mine->until);
        say("%s: %s%s", name, result_name(call->what, call->result), has_passed(call->clock, mine->until) ? ", late" : "");
    } else {
        int type;
        say("%s: left", name);
        /* A request ends the thread at cancellation points only. (glibc 2.36 leaves it open to requests at any time.) */
        OK(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &type));
        if (OUR_MUTEX)
            EQ(type, PTHREAD_CANCEL_DEFERRED);
    }
    if (waits_with_mutex(call->what))
        SAY(pthread_mutex_unlock(&mutex)); /* the thread holds it again, however the wait has ended */
    __atomic_store_n(&mine->ended, 1, __ATOMIC_SEQ_CST);
    return NULL;
}
static void begin_call(struct interrupted *it, int what, long ms)
{
    *it = (struct interrupted){ .call = { .what = what, .clock = CLOCK_REALTIME } };
    it->until = in_ms(CLOCK_REALTIME, ms);
    it->thread = start(call_interrupted, it);
    while (!__atomic_load_n(&it->begun, __ATOMIC_SEQ_CST))
        sleep_ms(1);
}
/* Returns when the thread waits in its call, or has ended. Waiters of conditions and semaphores sleep; those of other locks may spin. */
static void until_it_waits(struct interrupted *it)
{
    int spins = !waits_with_mutex(it->call.what) && !is(it->call.what, "sem_");
    long begin = ran(it->thread);
    while (!__atomic_load_n(&it->ended, __ATOMIC_SEQ_CST) && !sleeps(it->id) &&
           !(spins && ran(it->thread) - begin >= SPINS_NS))
        sleep_ms(1);
}
static void interrupt(struct interrupted *it)
{
    OK(pthread_kill(it->thread, SIGUSR1));
    while (!__atomic_load_n(&it->handled, __ATOMIC_SEQ_CST) && !__atomic_load_n(&it->ended, __ATOMIC_SEQ_CST))
        sleep_ms(1);
}
static void handle(int flags)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = flags };
    OK(sigaction(SIGUSR1, &action, NULL));
    begin();
}
static void signals_with(int flags)
{
    static struct interrupted all[COUNT];
    handle(flags);
    for (int what = 0; what < COUNT; what++)
        if (may_wait(what))
            begin_call(&all[what], what, waits_with_mutex(what) || is(what, "sem_") ? 600000 : 2000);
    for (int what = 0; what < COUNT; what++)
        if (may_wait(what))
            until_it_waits(&all[what]);
    for (int what = 0; what < COUNT; what++)
        if (may_wait(what))
            interrupt(&all[what]);
    for (int what = 0; what < COUNT; what++) /* it waits again, or its call has ended */
        if (may_wait(what))
            until_it_waits(&all[what]);
    OK(sem_post(&empty)); /* for the thread in sem_wait, if it waits again */
    OK(pthread_cond_broadcast(&cond));
    for (int what = 0; what < COUNT; what++)
        if (may_wait(what) && (has_time(what) || is(what, "sem_") || waits_with_mutex(what)))
            join(all[what].thread);
}
static void signals(void) { signals_with(0); }
static void signals_that_restart(void) { signals_with(SA_RESTART); }

/* The handler leaves the wait. Then the condition variable has no waiter, and the next unit of the semaphore is not for the thread. */
static void *notify(void *argument)
{
    OK(pthread_mutex_lock(&mutex));
    OK(pthread_cond_signal(&cond));
    OK(pthread_mutex_unlock(&mutex));
    OK(sem_post(&empty));
    return argument;
}
static void leave_waits(void)
{
    struct interrupted it;
    handle(jumps = 1);
    for (int what = 0; what < COUNT; what++) {
        if (!may_wait(what) || !(waits_with_mutex(what) || is(what, "sem_")))
            continue;
        begin_call(&it, what, 600000);
        until_it_waits(&it);
        interrupt(&it);
        join(it.thread);
        join(start(notify, NULL));
        SAY(sem_trywait(&empty));
        SAY(pthread_cond_destroy(&cond));
    }
    SAY(pthread_mutex_destroy(&mutex));
}
static void leave_waits_with_a_mutex_of_glibc(void)
{
    pthread_mutexattr_t attr;
    OK(pthread_mutexattr_init(&attr));
    OK(pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK));
    OK(pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT));
    OK(pthread_mutex_init(&mutex, &attr));
    leave_waits();
}

static const struct test tests[] = {
    { "cancelled, and no time", cancelled_and_no_time },
    { "cancelled, and no clock", cancelled_and_no_clock },
    { "cancelled, and the time has passed", cancelled_and_passed },
    { "signals", signals },
    { "signals that restart", signals_that_restart },
    { "waits left by jumps", leave_waits },
    { "waits left by jumps, with a mutex of glibc's", leave_waits_with_a_mutex_of_glibc },
};

int main(int arguments, char **argument)
{
    return RUN_CASES(tests, arguments, argument);
}

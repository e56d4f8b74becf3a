/* Calls by chance: cases that are compared with glibc. Each is a sequence of calls by three threads that take turns. A thread may
   end with what it holds, or fork a child that makes some calls of its own.
   LATCHWORK_TEST_SEEDS says how many cases there are.

   The program knows which thread holds what. So it leaves out calls that would wait for ever, calls that glibc does not
   survive, and calls that do something else under latchwork (docs/cli.md says which). */
#include "cases.h"
#include <limits.h>
#include <semaphore.h>
#include <threads.h>

enum { OBJECTS = 4, THREADS = 3, STEPS = 300, CHILD_STEPS = 30 };
enum { NOBODY = -1, GONE = -2, CANCELLED = -3 };

static pthread_mutex_t mutexes[OBJECTS];
static pthread_rwlock_t rwlocks[OBJECTS];
static pthread_cond_t conds[OBJECTS];
static sem_t sems[OBJECTS];
static pthread_spinlock_t spins[OBJECTS];

static const pthread_mutex_t mutex_initialisers[] = {
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
    PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP };
static const pthread_rwlock_t rwlock_initialisers[] = {
    PTHREAD_RWLOCK_INITIALIZER, PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP };

/* Bits 0 and 1 of a number by chance are the kind or the clock of an object; bits 2 and 3 make some objects process-shared; bits 4
   to 6 make some mutexes robust, or inherit priorities. */
static int is_robust(int n) { return n / 16 % 8 == 1 || n / 16 % 8 == 2; }
static int inherits(int n) { return n / 16 % 8 == 2 || n / 16 % 8 == 3; }
static int make_mutex(pthread_mutex_t *m, int n)
{
    pthread_mutexattr_t attr;
    OK(pthread_mutexattr_init(&attr));
    OK(pthread_mutexattr_settype(&attr, n % 4));
    OK(pthread_mutexattr_setpshared(&attr, n / 4 % 4 == 1));
    OK(pthread_mutexattr_setrobust(&attr, is_robust(n) ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED));
    OK(pthread_mutexattr_setprotocol(&attr, inherits(n) ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE));
    return pthread_mutex_init(m, &attr);
}
static int make_rwlock(pthread_rwlock_t *l, int n)
{
    pthread_rwlockattr_t attr;
    OK(pthread_rwlockattr_init(&attr));
    OK(pthread_rwlockattr_setkind_np(&attr, n % 4 % 3));
    OK(pthread_rwlockattr_setpshared(&attr, n / 4 % 4 == 1));
    return pthread_rwlock_init(l, &attr);
}
static int make_cond(pthread_cond_t *c, int n)
{
    pthread_condattr_t attr;
    OK(pthread_condattr_init(&attr));
    OK(pthread_condattr_setclock(&attr, n % 2));
    OK(pthread_condattr_setpshared(&attr, n / 4 % 4 == 1));
    return pthread_cond_init(c, &attr);
}
static int make_mtx(mtx_t *m, int kind)
{
#ifdef MISTAKE /* which the test must find */
    if (kind > 3)
        return thrd_error;
#endif
    return mtx_init(m, kind);
}
static int value_of(sem_t *s)
{
    int value;
    return sem_getvalue(s, &value) ? -1 : value;
}

struct call;
static int fork_at(const struct call *call);

/* What is called with which objects: m, l, c, s, p; `n` is a number by chance, `o` the index of another object. */
#define CALLS(X)                                                                                         \
    X(INIT, make_mutex(m, n)) X(MTX_INIT, make_mtx((mtx_t *)m, n % 6))                                   \
    X(STATIC, (*m = mutex_initialisers[n % 4], 0)) X(COPY, (*m = mutexes[o], 0))                         \
    X(DESTROY, pthread_mutex_destroy(m)) X(CONSISTENT, pthread_mutex_consistent(m))                      \
    X(LOCK, pthread_mutex_lock(m)) X(MTX_LOCK, mtx_lock((mtx_t *)m)) X(TRYLOCK, pthread_mutex_trylock(m)) \
    X(MTX_TRYLOCK, mtx_trylock((mtx_t *)m)) X(TIMEDLOCK, pthread_mutex_timedlock(m, t))                  \
    X(CLOCKLOCK, pthread_mutex_clocklock(m, clock, t)) X(MTX_TIMEDLOCK, mtx_timedlock((mtx_t *)m, t))    \
    X(UNLOCK, pthread_mutex_unlock(m)) X(MTX_UNLOCK, mtx_unlock((mtx_t *)m))                             \
    X(WAIT, pthread_cond_wait(c, mutexes + o)) X(CND_WAIT, cnd_wait((cnd_t *)c, (mtx_t *)mutexes + o))   \
    X(TIMEDWAIT, pthread_cond_timedwait(c, mutexes + o, t))                                              \
    X(CND_TIMEDWAIT, cnd_timedwait((cnd_t *)c, (mtx_t *)mutexes + o, t))                                 \
    X(CLOCKWAIT, pthread_cond_clockwait(c, mutexes + o, clock, t))                                       \
    X(SIGNAL, pthread_cond_signal(c)) X(CND_BROADCAST, cnd_broadcast((cnd_t *)c))                        \
    X(COND_INIT, make_cond(c, n)) X(CND_INIT, cnd_init((cnd_t *)c)) X(COND_DESTROY, pthread_cond_destroy(c)) \
    X(COND_STATIC, (*c = (pthread_cond_t)PTHREAD_COND_INITIALIZER, 0)) X(COND_COPY, (*c = conds[o], 0))  \
    X(RW_INIT, make_rwlock(l, n)) X(RW_STATIC, (*l = rwlock_initialisers[n % 2], 0))                     \
    X(RW_COPY, (*l = rwlocks[o], 0)) X(RW_DESTROY, pthread_rwlock_destroy(l))                            \
    X(RDLOCK, pthread_rwlock_rdlock(l)) X(TRYRDLOCK, pthread_rwlock_tryrdlock(l))                        \
    X(TIMEDRDLOCK, pthread_rwlock_timedrdlock(l, t)) X(CLOCKRDLOCK, pthread_rwlock_clockrdlock(l, clock, t)) \
    X(TRYWRLOCK, pthread_rwlock_trywrlock(l)) X(WRLOCK, pthread_rwlock_wrlock(l))                        \
    X(TIMEDWRLOCK, pthread_rwlock_timedwrlock(l, t)) X(CLOCKWRLOCK, pthread_rwlock_clockwrlock(l, clock, t)) \
    X(RW_UNLOCK, pthread_rwlock_unlock(l))                                                               \
    X(SEM_INIT, sem_init(s, n / 4 % 4 == 1, (n % 4 ? 0u : SEM_VALUE_MAX - 1u) + n % 3))          \
    X(SEM_ZERO, (memset(s, 0, sizeof *s), 0)) X(SEM_COPY, (*s = sems[o], 0))                             \
    X(SEM_DESTROY, sem_destroy(s)) X(POST, sem_post(s)) X(GETVALUE, value_of(s)) X(SEM_WAIT, sem_wait(s)) \
    X(TRYWAIT, sem_trywait(s)) X(SEM_TIMEDWAIT, sem_timedwait(s, t)) X(SEM_CLOCKWAIT, sem_clockwait(s, clock, t)) \
    X(SPIN_INIT, pthread_spin_init(p, n / 4 % 4 == 1)) X(SPIN_DESTROY, pthread_spin_destroy(p))          \
    X(SPIN_ZERO, (*p = 0, 0)) X(SPIN_COPY, (*p = spins[o], 0)) X(SPIN_LOCK, pthread_spin_lock(p))        \
    X(SPIN_TRYLOCK, pthread_spin_trylock(p)) X(SPIN_UNLOCK, pthread_spin_unlock(p)) X(FORK, fork_at(call))

#define NUMBER(name, call) name,
enum what { CALLS(NUMBER) COUNT };
#define NAME(name, call) #name,
static const char *const names[] = { CALLS(NAME) };

/* A call of a thread. */
struct call {
    int step, thread, what, object, n, clock, cancelled, result, error;
    struct timespec time;
};

static int perform(const struct call *call)
{
    int n = call->n, o = n / 1024 % OBJECTS, clock = call->clock;
    const struct timespec *t = &call->time;
    pthread_mutex_t *m = mutexes + call->object;
    pthread_rwlock_t *l = rwlocks + call->object;
    pthread_cond_t *c = conds + call->object;
    sem_t *s = sems + call->object;
    pthread_spinlock_t *p = spins + call->object;
    switch (call->what) {
#define CASE(name, call) case name: return call;
        CALLS(CASE)
    }
    return 0;
}

static pthread_t threads[THREADS];
static int to[THREADS][2], from[2];

static void cancelled(void *argument)
{
    struct call *call = argument;
    int waited = call->what >= WAIT && call->what <= CLOCKWAIT;
    call->error = waited ? pthread_mutex_unlock(mutexes + call->n / 1024 % OBJECTS) : 0;
    call->result = CANCELLED;
    EQ(write(from[1], &call, sizeof call), sizeof call);
}

/* Makes the calls that it gets, until one of them is to be its last. */
static void *work(void *pipe)
{
    struct call *call;
    for (int last = 0; !last;) {
        EQ(read(*(int *)pipe, &call, sizeof call), sizeof call);
        last = call->cancelled;
        if (last)
            OK(pthread_cancel(pthread_self()));
        errno = ENOTTY;
        pthread_cleanup_push(cancelled, call);
        call->result = perform(call);
        pthread_cleanup_pop(0);
        call->error = errno == ENOTTY ? 0 : errno;
        OK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL));
        EQ(write(from[1], &call, sizeof call), sizeof call);
        OK(pthread_setcancelstate(last, NULL)); /* 0 enables it */
    }
    return NULL;
}

/* What this program knows of its objects. `checks`: the holder may lock it again, and no other thread may unlock it. `inconsistent`:
   the holder before the last has ended. `lost`: no thread gets it any more. */
static struct mutex { int holder, count, checks, robust, inherits, inconsistent, lost; } of_mutex[OBJECTS];
static int of_spin[OBJECTS]; /* whether it is locked */
static int in_child;
static struct rwlock { int writer, readers[THREADS], others; } of_rwlock[OBJECTS];

static int is_read(const struct rwlock *l)
{
    int count = l->others;
    for (int i = 0; i < THREADS; i++)
        count += l->readers[i];
    return count;
}

/* Locks the mutex, or tries to. */
static int takes(int what) { return what >= LOCK && what <= MTX_TIMEDLOCK; }
static int is_held(const struct rwlock *l) { return l->writer != NOBODY || is_read(l); }

/* The child of a fork: what glibc says of the parent's owners there is not compared (docs/cli.md), nor who reads and writes. */
static int is_of_the_parents(const struct call *call)
{
    const struct mutex *m = of_mutex + call->object, *other = of_mutex + call->n / 1024 % OBJECTS;
    if (call->what <= MTX_UNLOCK)
        return m->holder != NOBODY && (m->checks || m->robust || m->inherits);
    if (call->what <= CLOCKWAIT)
        return other->holder != NOBODY;
    return call->what >= RW_INIT && call->what <= RW_UNLOCK && is_held(of_rwlock + call->object);
}

static int is_permitted(const struct call *call)
{
    struct mutex *m = of_mutex + call->object, *other = of_mutex + call->n / 1024 % OBJECTS;
    struct rwlock *l = of_rwlock + call->object, *from = of_rwlock + call->n / 1024 % OBJECTS;
    int is_mine = m->holder == call->thread, value;
    if (in_child && (call->cancelled || call->what == FORK || is_of_the_parents(call)))
        return 0;
    if (takes(call->what) && m->robust && is_mine && m->inconsistent)
        return 0;
    switch (call->what) {
    case INIT: case MTX_INIT: case STATIC: case DESTROY: /* the kernel has a list of the robust ones that a thread holds */
        return !m->robust || m->holder < 0;
    case COPY:
        return m->holder == NOBODY && other->holder == NOBODY;
    case CONSISTENT: /* glibc does not look at the caller */
        return !m->inconsistent || is_mine;
    case LOCK: case MTX_LOCK:
        return m->holder == NOBODY || (m->holder == GONE && m->robust) || (is_mine && m->checks);
    case TRYLOCK: case MTX_TRYLOCK: /* glibc 2.36 then keeps the mutex */
        return !m->lost;
    case MTX_TIMEDLOCK: /* its result does not tell whether it has the mutex */
        return !(m->robust && m->holder == GONE);
    case UNLOCK: case MTX_UNLOCK:
        return m->holder != NOBODY || m->checks || m->robust || m->inherits;
    case WAIT: case CND_WAIT: case TIMEDWAIT: case CND_TIMEDWAIT: case CLOCKWAIT:
        if ((call->cancelled && call->time.tv_sec < 0) || other->inconsistent)
            return 0;
        return other->holder == call->thread ? call->cancelled || call->what >= TIMEDWAIT : other->checks;
    case RW_COPY:
        return !is_held(l) && !is_held(from);
    case RDLOCK:
        return l->writer == NOBODY || l->writer == call->thread;
    case WRLOCK: case TIMEDWRLOCK: case CLOCKWRLOCK:
        return l->writer == call->thread || !is_held(l);
    case RW_UNLOCK:
        return l->writer == call->thread || (l->writer == NOBODY && l->readers[call->thread]);
    case SEM_CLOCKWAIT: /* with glibc no cancellation point if it need not wait */
        return !call->cancelled || call->time.tv_nsec < 0 || call->time.tv_nsec >= 1000000000;
    case SEM_TIMEDWAIT:
        return !call->cancelled || call->time.tv_sec >= 0;
    case SPIN_LOCK:
        return !of_spin[call->object];
    case FORK:
        return !call->cancelled;
    case SEM_WAIT:
        return sem_getvalue(sems + call->object, &value) == 0 && value > 0;
    }
    return 1;
}

static void release(struct mutex *m)
{
    if (--m->count)
        return;
    m->holder = NOBODY;
    m->lost = m->inconsistent;
    m->inconsistent = 0;
}

static void note(const struct call *call)
{
    int o = call->n / 1024 % OBJECTS, what = call->what, t = call->thread, good = !call->result;
    struct mutex *m = of_mutex + (call->result == CANCELLED ? o : call->object);
    struct rwlock *l = of_rwlock + call->object;
    /* The holder of a robust mutex has ended, and this thread has it now. C11 has no number for that. */
    int dies = takes(what) && m->robust && m->holder == GONE
        && (call->result == EOWNERDEAD || ((what == MTX_LOCK || what == MTX_TRYLOCK) && call->result == thrd_error));
    if ((what == UNLOCK || what == MTX_UNLOCK) ? good
        : call->result == CANCELLED && what >= WAIT && what <= CLOCKWAIT && call->error == 0)
        release(m);
    else if (takes(what) && (good || dies))
        *m = (struct mutex){ t, m->holder == t ? m->count + 1 : 1, m->checks, m->robust, m->inherits, dies, 0 };
    else if (what == INIT || what == STATIC)
        *m = (struct mutex){ .holder = NOBODY,
                             .checks = call->n % 4 == PTHREAD_MUTEX_RECURSIVE || call->n % 4 == PTHREAD_MUTEX_ERRORCHECK,
                             .robust = what == INIT && is_robust(call->n), .inherits = what == INIT && inherits(call->n) };
    else if (what == MTX_INIT && good)
        *m = (struct mutex){ .holder = NOBODY, .checks = call->n % 6 == 1 || call->n % 6 == 3 };
    else if (what == COPY)
        *m = of_mutex[o];
    else if (what == DESTROY && good)
        *m = (struct mutex){ .holder = NOBODY, .checks = 1 }; /* glibc refuses to lock it */
    else if (what == CONSISTENT && good)
        m->inconsistent = 0;
    else if (what >= SPIN_INIT && what <= SPIN_UNLOCK)
        of_spin[call->object] = what == SPIN_DESTROY ? of_spin[call->object] : what == SPIN_COPY ? of_spin[o]
            : what == SPIN_ZERO || what == SPIN_LOCK || what == SPIN_TRYLOCK;
    else if (what == RW_INIT || what == RW_STATIC || what == RW_COPY)
        *l = (struct rwlock){ .writer = NOBODY };
    else if (what >= RDLOCK && what <= CLOCKRDLOCK)
        l->readers[t] += good;
    else if (what >= TRYWRLOCK && what <= CLOCKWRLOCK)
        l->writer = good ? t : l->writer;
    else if (what == RW_UNLOCK && l->writer == t)
        l->writer = NOBODY;
    else if (what == RW_UNLOCK)
        l->readers[t]--;
    if (!call->cancelled)
        return;
    for (int i = 0; i < OBJECTS; i++) { /* the thread ends with all that it holds */
        of_mutex[i].holder = of_mutex[i].holder == t ? GONE : of_mutex[i].holder;
        of_rwlock[i].writer = of_rwlock[i].writer == t ? GONE : of_rwlock[i].writer;
        of_rwlock[i].others += of_rwlock[i].readers[t];
        of_rwlock[i].readers[t] = 0;
    }
}

static unsigned long state;
static int chance(int below)
{
    state = state * 6364136223846793005 + 1442695040888963407;
    return (int)((state >> 33) % (unsigned long)below);
}

/* A call by chance. */
static struct call any_call(int thread, int *time)
{
    static const int clocks[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, -1, -2 };
    static const struct timespec odd[] = { { 0, 0 }, { -1, 0 }, { 1, -1 }, { LONG_MIN, 999999999 }, { 1, 1000000000 },
                                           { -5, 1000000000 }, { LONG_MAX, -1 } };
    *time = chance(14);
    struct call call = { .thread = thread, .what = chance(COUNT), .object = chance(OBJECTS), .n = chance(4096),
                         .clock = clocks[chance(7)], .cancelled = chance(8) == 0 };
    /* A condition variable may have either clock: the time is one of the clock that is behind. */
    int either = call.what == TIMEDWAIT || call.what == CND_TIMEDWAIT;
    call.time = *time < 7 ? odd[*time] : in_ms(either || call.clock == CLOCK_MONOTONIC ? CLOCK_MONOTONIC : CLOCK_REALTIME, 1);
    return call;
}

static void say_call(const char *who, int step, const struct call *call, int time)
{
    say("%03d %s %d%s, %s(%d), n %d, clock %d, time %d: %d, error %d", step, who, call->thread, call->cancelled ? " cancelled" : "",
        names[call->what], call->object, call->n, call->clock, time, call->result, call->error);
}

/* Forks, in a thread that makes calls. The child makes calls, too. */
static int fork_at(const struct call *call)
{
    pid_t child = fork();
    if (child == 0) {
        in_child = 1;
        for (int step = 0; step < CHILD_STEPS; step++) {
            int time;
            struct call its = any_call(call->thread, &time);
            if (!is_permitted(&its))
                continue;
            errno = ENOTTY;
            its.result = perform(&its);
            its.error = errno == ENOTTY ? 0 : errno;
            note(&its);
            say_call("child of", call->step * 1000 + step, &its, time);
        }
        _exit(0);
    }
    reap(child);
    errno = ENOTTY;
    return 0;
}

static void sequence(void)
{
    state = strtoul(this_case + strlen("seed "), NULL, 10);
    OK(pipe(from));
    for (int i = 0; i < OBJECTS; i++) {
        of_mutex[i].holder = of_rwlock[i].writer = NOBODY;
        of_spin[i] = 1;
    }
    for (int step = 0; step < STEPS; step++) {
        int time;
        struct call call = any_call(chance(THREADS), &time), *done = &call;
        call.step = step;
        if (!is_permitted(&call))
            continue;
        if (!threads[call.thread]) {
            OK(pipe(to[call.thread]));
            threads[call.thread] = start(work, to[call.thread]);
        }
        EQ(write(to[call.thread][1], &done, sizeof done), sizeof done);
        EQ(read(from[0], &done, sizeof done), sizeof done);
        note(&call);
        say_call("thread", step, &call, time);
        if (call.cancelled) {
            join(threads[call.thread]);
            threads[call.thread] = 0;
        }
    }
}

int main(int arguments, char **argument)
{
    const char *seeds = getenv("LATCHWORK_TEST_SEEDS");
    int count = seeds ? atoi(seeds) : 10;
    struct test *tests = calloc(count, sizeof *tests);
    for (int i = 0; i < count; i++) {
        CHECK(asprintf((char **)&tests[i].name, "seed %d", i + 1) > 0);
        tests[i].run = sequence;
    }
    return run_cases(tests, count, arguments, argument);
}

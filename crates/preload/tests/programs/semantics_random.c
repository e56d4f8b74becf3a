/* Calls by chance: cases that are compared with glibc. Each is a sequence of calls by three threads that take turns.
   LATCHWORK_TEST_SEEDS says how many cases there are.

   The program knows which thread holds what. So it leaves out calls that would wait for ever, calls that glibc does not
   survive, and calls that do something else under latchwork (docs/cli.md says which). */
#include "cases.h"
#include <limits.h>
#include <semaphore.h>
#include <threads.h>

enum { OBJECTS = 4, THREADS = 3, STEPS = 300 };
enum { NOBODY = -1, GONE = -2, CANCELLED = -3 };

static pthread_mutex_t mutexes[OBJECTS];
static pthread_rwlock_t rwlocks[OBJECTS];
static pthread_cond_t conds[OBJECTS];
static sem_t sems[OBJECTS];

static const pthread_mutex_t mutex_initialisers[] = {
    PTHREAD_MUTEX_INITIALIZER, PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
    PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP };
static const pthread_rwlock_t rwlock_initialisers[] = {
    PTHREAD_RWLOCK_INITIALIZER, PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP };

/* Bits 0 and 1 of a number by chance are the kind or the clock of an object; bits 2 and 3 make some objects process-shared. */
static int make_mutex(pthread_mutex_t *m, int n)
{
    pthread_mutexattr_t attr;
    OK(pthread_mutexattr_init(&attr));
    OK(pthread_mutexattr_settype(&attr, n % 4));
    OK(pthread_mutexattr_setpshared(&attr, n / 4 % 4 == 1));
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

/* What is called with which objects: m, l, c, s; `n` is a number by chance, `o` the index of another object. */
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
    X(TRYWAIT, sem_trywait(s)) X(SEM_TIMEDWAIT, sem_timedwait(s, t)) X(SEM_CLOCKWAIT, sem_clockwait(s, clock, t))

#define NUMBER(name, call) name,
enum what { CALLS(NUMBER) COUNT };
#define NAME(name, call) #name,
static const char *const names[] = { CALLS(NAME) };

/* A call of a thread. */
struct call {
    int thread, what, object, n, clock, cancelled, result, error;
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

/* What this program knows of its objects. */
static struct mutex { int holder, count, checks; } of_mutex[OBJECTS];
static struct rwlock { int writer, readers[THREADS], others; } of_rwlock[OBJECTS];

static int is_read(const struct rwlock *l)
{
    int count = l->others;
    for (int i = 0; i < THREADS; i++)
        count += l->readers[i];
    return count;
}

static int is_permitted(const struct call *call)
{
    struct mutex *m = of_mutex + call->object, *other = of_mutex + call->n / 1024 % OBJECTS;
    struct rwlock *l = of_rwlock + call->object, *from = of_rwlock + call->n / 1024 % OBJECTS;
    int is_mine = m->holder == call->thread, value;
    switch (call->what) {
    case COPY:
        return m->holder == NOBODY && other->holder == NOBODY;
    case LOCK: case MTX_LOCK:
        return m->holder == NOBODY || (is_mine && m->checks);
    case UNLOCK: case MTX_UNLOCK:
        return m->holder != NOBODY || m->checks;
    case WAIT: case CND_WAIT: case TIMEDWAIT: case CND_TIMEDWAIT: case CLOCKWAIT:
        if (call->cancelled && call->time.tv_sec < 0)
            return 0;
        return other->holder == call->thread ? call->cancelled || call->what >= TIMEDWAIT : other->checks;
    case RW_COPY:
        return l->writer == NOBODY && !is_read(l) && from->writer == NOBODY && !is_read(from);
    case RDLOCK:
        return l->writer == NOBODY || l->writer == call->thread;
    case WRLOCK: case TIMEDWRLOCK: case CLOCKWRLOCK:
        return l->writer == call->thread || (l->writer == NOBODY && !is_read(l));
    case RW_UNLOCK:
        return l->writer == call->thread || (l->writer == NOBODY && l->readers[call->thread]);
    case SEM_TIMEDWAIT: case SEM_CLOCKWAIT:
        return !call->cancelled;
    case SEM_WAIT:
        return sem_getvalue(sems + call->object, &value) == 0 && value > 0;
    }
    return 1;
}

static void note(const struct call *call)
{
    int o = call->n / 1024 % OBJECTS, what = call->what, t = call->thread, good = !call->result;
    struct mutex *m = of_mutex + (call->result == CANCELLED ? o : call->object);
    struct rwlock *l = of_rwlock + call->object;
    int takes = what >= LOCK && what <= MTX_TIMEDLOCK;
    if ((what == UNLOCK || what == MTX_UNLOCK) ? good
        : call->result == CANCELLED && what >= WAIT && what <= CLOCKWAIT && call->error == 0)
        m->holder = --m->count ? m->holder : NOBODY;
    else if (takes && good)
        *m = (struct mutex){ t, m->holder == t ? m->count + 1 : 1, m->checks };
    else if (what == INIT || what == STATIC)
        *m = (struct mutex){ NOBODY, 0, call->n % 4 == PTHREAD_MUTEX_RECURSIVE || call->n % 4 == PTHREAD_MUTEX_ERRORCHECK };
    else if (what == MTX_INIT && good)
        *m = (struct mutex){ NOBODY, 0, call->n % 6 == 1 || call->n % 6 == 3 };
    else if (what == COPY)
        *m = of_mutex[o];
    else if (what == DESTROY && good)
        *m = (struct mutex){ NOBODY, 0, 1 }; /* glibc refuses to lock it */
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

static void sequence(void)
{
    static const int clocks[] = { CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME, -1, -2 };
    static const struct timespec odd[] = { { 0, 0 }, { -1, 0 }, { 1, -1 }, { LONG_MIN, 999999999 }, { 1, 1000000000 },
                                           { -5, 1000000000 }, { LONG_MAX, -1 } };
    state = strtoul(this_case + strlen("seed "), NULL, 10);
    OK(pipe(from));
    for (int i = 0; i < OBJECTS; i++)
        of_mutex[i].holder = of_rwlock[i].writer = NOBODY;
    for (int step = 0; step < STEPS; step++) {
        int time = chance(14);
        struct call call = { .thread = chance(THREADS), .what = chance(COUNT), .object = chance(OBJECTS), .n = chance(4096),
                             .clock = clocks[chance(7)], .cancelled = chance(8) == 0 }, *done;
        /* A condition variable may have either clock: the time is one of the clock that is behind. */
        int either = call.what == TIMEDWAIT || call.what == CND_TIMEDWAIT;
        call.time = time < 7 ? odd[time] : in_ms(either || call.clock == CLOCK_MONOTONIC ? CLOCK_MONOTONIC : CLOCK_REALTIME, 1);
        if (!is_permitted(&call))
            continue;
        if (!threads[call.thread]) {
            OK(pipe(to[call.thread]));
            threads[call.thread] = start(work, to[call.thread]);
        }
        done = &call;
        EQ(write(to[call.thread][1], &done, sizeof done), sizeof done);
        EQ(read(from[0], &done, sizeof done), sizeof done);
        note(&call);
        say("%03d thread %d%s, %s(%d), n %d, clock %d, time %d: %d, error %d", step, call.thread,
            call.cancelled ? " cancelled" : "", names[call.what], call.object, call.n, call.clock, time, call.result, call.error);
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

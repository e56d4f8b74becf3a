/* The half of pthread_cond_wait that sleeps. It has three steps: Rust prepares and returns, this file sleeps, Rust
   finishes and returns.

   The wait is a cancellation point. A thread that is cancelled while it sleeps takes the mutex again and then runs its
   cleanup handlers, which unwinds its stack. The unwinding must not pass through frames of Rust, so the frame that sleeps
   is one of C, and no frame of Rust is above or below it.

   Cancellation is asynchronous around the system call only, as in glibc's own cancellation points. The thread dies if the
   request comes before or during the sleep, and the cleanup handler passes on a wakeup that the thread consumed. A signal
   handler may also leave the sleep by siglongjmp. As in glibc, the thread then takes the mutex again and no longer waits: see
   cleanup.h. */

#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "cleanup.h"

/* `struct Waiter` in cond.rs. */
struct wait {
    pthread_cond_t *cond;
    pthread_mutex_t *mutex;
    const uint32_t *word;  /* where to sleep */
    uint32_t expected;     /* and while it holds what */
    int operation;         /* the futex operation, clock included */
    const struct timespec *time; /* absolute, or null */
    int timed_out;
    int clock;             /* in: CLOCK_OF_COND, NO_TIME, or a clockid_t */
    int counted;           /* where the mutex counts this waiter as a user */
    int cancel_type;       /* of the thread outside of the system call */
};

enum { NO_TIME = -1, CLOCK_OF_COND = -2 };

/* What `begin` answers, besides an error number. */
enum { SLEEP = -1, FOREIGN = -2, FOREIGN_BUT_MUTEX = -3 };

/* In cond.rs. */
int latchwork_cond_begin(struct wait *);
int latchwork_cond_end(struct wait *);
void latchwork_cond_cancelled(void *);
int latchwork_thread_result(int error);

/* `Functions` in cond.rs: glibc's functions, and two of our own. */
struct functions {
    int (*cond_wait)(pthread_cond_t *, pthread_mutex_t *);
    int (*cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    int (*cond_clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    int (*mutex_lock)(pthread_mutex_t *);
    int (*mutex_unlock)(pthread_mutex_t *);
    int (*leave_ours)(pthread_mutex_t *, int *counted);
    int (*enter_ours)(pthread_mutex_t *, int counted);
    int foreign_clock;
};
void latchwork_cond_functions(struct functions *, const pthread_cond_t *);

static void leave_sleep(void *argument)
{
    struct wait *w = argument;
    pthread_setcanceltype(w->cancel_type, NULL);
    latchwork_cond_cancelled(w);
}

static int sleep_here(struct wait *w)
{
    int state_errno = errno;
    long result;
    struct _pthread_cleanup_buffer cleanup;
    _pthread_cleanup_push(&cleanup, leave_sleep, w);
    do {
        /* A request that is already pending ends the thread here. */
        pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &w->cancel_type);
        result = syscall(SYS_futex, w->word, w->operation, w->expected, w->time, NULL,
                         FUTEX_BITSET_MATCH_ANY);
        pthread_setcanceltype(w->cancel_type, NULL);
        /* A signal handler ran, and no notification came: POSIX allows no EINTR. */
    } while (result != 0 && errno == EINTR
             && __atomic_load_n(w->word, __ATOMIC_RELAXED) == w->expected);
    w->timed_out = result != 0 && errno == ETIMEDOUT;
    errno = state_errno;
    _pthread_cleanup_pop(&cleanup, 0);
    return latchwork_cond_end(w);
}

struct gated {
    const struct functions *functions;
    pthread_mutex_t *mutex;
    int counted;
};

static void relock(void *argument)
{
    struct gated *gated = argument;
    gated->functions->enter_ours(gated->mutex, gated->counted);
}

static int later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

static int sleep_gated(pthread_cond_t *cond, const struct gated *gated, clockid_t clock,
                       const struct timespec *until)
{
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    int error;
    struct _pthread_cleanup_buffer cleanup;
    _pthread_cleanup_push(&cleanup, relock, (void *)gated);
    gated->functions->mutex_lock(&gate);
    error = gated->functions->cond_clockwait(cond, &gate, clock, until);
    gated->functions->mutex_unlock(&gate);
    _pthread_cleanup_pop(&cleanup, 1);
    return error;
}

/* The longest sleep of `wait_gated`, in nanoseconds: a lost notification delays its waiter by this much. */
enum { GATED_SLEEP = 10000000 };

/* Waits for a condition variable of glibc's (it is process-shared) with a mutex of ours. glibc cannot release our mutex,
   so the thread sleeps under a mutex made for the purpose. A notification that comes before the thread sleeps may be lost,
   so the thread never sleeps for long: the caller sees a spurious wakeup. */
static int wait_gated(pthread_cond_t *cond, pthread_mutex_t *mutex, int clock,
                      const struct timespec *time, const struct functions *functions)
{
    struct gated gated = { functions, mutex, 0 };
    struct timespec until;
    int error, last = 0;
    if (clock == CLOCK_OF_COND)
        clock = functions->foreign_clock;
    if (clock == NO_TIME)
        clock = CLOCK_MONOTONIC;
    if (time && (time->tv_nsec < 0 || time->tv_nsec >= 1000000000))
        return EINVAL;
    if (clock_gettime(clock, &until) != 0)
        return EINVAL;
    until.tv_nsec += GATED_SLEEP;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (time && !later(time, &until)) {
        until = *time;
        last = 1;
    }
    error = functions->leave_ours(mutex, &gated.counted);
    if (error != 0)
        return error;
    error = sleep_gated(cond, &gated, clock, &until);
    return error == ETIMEDOUT && !last ? 0 : error;
}

static int wait_on(pthread_cond_t *cond, pthread_mutex_t *mutex, int clock, const struct timespec *time)
{
    struct wait w = { .cond = cond, .mutex = mutex, .time = time, .clock = clock };
    int answer = latchwork_cond_begin(&w);
    if (answer == SLEEP)
        return sleep_here(&w);
    if (answer == FOREIGN || answer == FOREIGN_BUT_MUTEX) {
        struct functions functions;
        latchwork_cond_functions(&functions, cond);
        if (answer == FOREIGN_BUT_MUTEX)
            return wait_gated(cond, mutex, clock, time, &functions);
        if (clock == NO_TIME)
            return functions.cond_wait(cond, mutex);
        if (clock == CLOCK_OF_COND)
            return functions.cond_timedwait(cond, mutex, time);
        return functions.cond_clockwait(cond, mutex, clock, time);
    }
    return answer;
}

int latchwork_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    return wait_on(cond, mutex, NO_TIME, NULL);
}

int latchwork_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *time)
{
    return wait_on(cond, mutex, CLOCK_OF_COND, time);
}

int latchwork_cond_clockwait(pthread_cond_t *cond, pthread_mutex_t *mutex, clockid_t clock,
                             const struct timespec *time)
{
    if (clock != CLOCK_REALTIME && clock != CLOCK_MONOTONIC)
        return EINVAL;
    return wait_on(cond, mutex, clock, time);
}

int latchwork_cnd_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    return latchwork_thread_result(wait_on(cond, mutex, NO_TIME, NULL));
}

int latchwork_cnd_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *time)
{
    return latchwork_thread_result(wait_on(cond, mutex, CLOCK_OF_COND, time));
}

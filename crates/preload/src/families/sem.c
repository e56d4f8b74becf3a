/* The half of sem_wait that sleeps, in C for the reasons that cond.c gives. Unlike the wait for a condition variable it
   ends with EINTR when a signal handler has run. */

#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "cleanup.h"

/* `Waiter` in sem.rs. */
struct sem_wait {
    sem_t *sem;
    const uint32_t *word;  /* where to sleep */
    uint32_t expected;     /* and while it holds what */
    int operation;         /* the futex operation, clock included */
    const struct timespec *time; /* absolute, or null */
    int clock;             /* NO_TIME, or a clockid_t */
    int slept;             /* whether the thread has slept */
    int late;              /* whether it must not sleep again: timeout, or a signal */
    int cancel_type;       /* of the thread outside of the system call */
};

enum { NO_TIME = -1 };

/* What `begin` and `step` answer, besides an error number. */
enum { TAKEN = 0, SLEEP = -1, FOREIGN = -2, GIVEN_UP = -3 };

struct sem_functions {
    int (*wait)(sem_t *);
    int (*clockwait)(sem_t *, clockid_t, const struct timespec *);
};

/* In sem.rs. */
int latchwork_sem_begin(struct sem_wait *);
int latchwork_sem_step(struct sem_wait *);
void latchwork_sem_cancelled(void *);
void latchwork_sem_functions(struct sem_functions *);
/* In timeout.rs. */
_Bool latchwork_is_time(clockid_t, const struct timespec *);

static void leave_sleep(void *argument)
{
    struct sem_wait *w = argument;
    pthread_setcanceltype(w->cancel_type, NULL);
    latchwork_sem_cancelled(w);
}

/* An error number, or 0. */
static int sem_sleep(struct sem_wait *w)
{
    int error;
    long result;
    struct _pthread_cleanup_buffer cleanup;
    _pthread_cleanup_push(&cleanup, leave_sleep, w);
    pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &w->cancel_type);
    result = syscall(SYS_futex, w->word, w->operation, w->expected, w->time, NULL,
                     FUTEX_BITSET_MATCH_ANY);
    error = result != 0 ? errno : 0;
    pthread_setcanceltype(w->cancel_type, NULL);
    _pthread_cleanup_pop(&cleanup, 0);
    return error;
}

static int sem_wait_on(sem_t *sem, int clock, const struct timespec *time)
{
    struct sem_wait w = { .sem = sem, .clock = clock, .time = time };
    int before = errno, error = 0, answer;
    /* As under glibc, an invalid time or clock comes before a request for cancellation. */
    if (clock != NO_TIME && !latchwork_is_time(clock, time)) {
        errno = EINVAL;
        return -1;
    }
    pthread_testcancel(); /* a cancellation point, whether it blocks or not */
    answer = latchwork_sem_begin(&w);
    if (answer == FOREIGN) {
        struct sem_functions f;
        latchwork_sem_functions(&f);
        return clock == NO_TIME ? f.wait(sem) : f.clockwait(sem, clock, time);
    }
    while (answer == SLEEP && (answer = latchwork_sem_step(&w)) == SLEEP) {
        error = sem_sleep(&w);
        w.slept = 1;
        w.late = error == ETIMEDOUT || error == EINTR;
    }
    errno = answer == TAKEN ? before : answer == GIVEN_UP ? error : answer;
    return answer == TAKEN ? 0 : -1;
}

int latchwork_sem_wait(sem_t *sem)
{
    return sem_wait_on(sem, NO_TIME, NULL);
}

int latchwork_sem_timedwait(sem_t *sem, const struct timespec *time)
{
    return sem_wait_on(sem, CLOCK_REALTIME, time);
}

int latchwork_sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *time)
{
    if (clock == NO_TIME) {
        /* The program means a clock, and no clock has this number. */
        errno = EINVAL;
        return -1;
    }
    return sem_wait_on(sem, clock, time);
}

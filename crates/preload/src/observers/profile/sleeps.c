/* The functions of the profile's layer in which a thread may be cancelled. Cancellation unwinds the stack, and must not
   pass through frames of Rust: so Rust prepares and returns, this file calls the function below, Rust finishes. A thread
   that is cancelled does not come to the last step. */

#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <threads.h>
#include <time.h>

/* `Sleep` in sleeps.rs. */
struct sleep {
    void *object;
    void *mutex;
    uint64_t start;
    uint64_t session;
    uint32_t waiter;
    clockid_t clock;
    const struct timespec *time;
};

/* `Functions` in sleeps.rs: the functions below the layer. */
struct profile_functions {
    int (*cond_wait)(pthread_cond_t *, pthread_mutex_t *);
    int (*cond_timedwait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    int (*cond_clockwait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
    int (*cnd_wait)(cnd_t *, mtx_t *);
    int (*cnd_timedwait)(cnd_t *, mtx_t *, const struct timespec *);
    int (*sem_wait)(sem_t *);
    int (*sem_timedwait)(sem_t *, const struct timespec *);
    int (*sem_clockwait)(sem_t *, clockid_t, const struct timespec *);
};

static struct profile_functions below;

void latchwork_profile_set_below(const struct profile_functions *functions)
{
    below = *functions;
}

/* In sleeps.rs. `sem_begin` says whether it has taken a unit; the call is done then. */
void latchwork_profile_cond_begin(struct sleep *);
int latchwork_profile_cond_end(struct sleep *, int result);
int latchwork_profile_sem_begin(struct sleep *);
int latchwork_profile_sem_end(struct sleep *, int result);
/* In timeout.rs. */
_Bool latchwork_is_time(clockid_t, const struct timespec *);

#define COND(call) \
    struct sleep sleep = { .object = c, .mutex = m }; \
    int result; \
    latchwork_profile_cond_begin(&sleep); \
    result = call; \
    return latchwork_profile_cond_end(&sleep, result)

int latchwork_profile_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    COND(below.cond_wait(c, m));
}

int latchwork_profile_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *time)
{
    COND(below.cond_timedwait(c, m, time));
}

int latchwork_profile_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock,
                                     const struct timespec *time)
{
    COND(below.cond_clockwait(c, m, clock, time));
}

int latchwork_profile_cnd_wait(cnd_t *c, mtx_t *m)
{
    COND(below.cnd_wait(c, m));
}

int latchwork_profile_cnd_timedwait(cnd_t *c, mtx_t *m, const struct timespec *time)
{
    COND(below.cnd_timedwait(c, m, time));
}

/* sem_wait is a cancellation point, whether it blocks or not, but not if the time or the clock is invalid. */
#define SEM(call, on, until) \
    struct sleep sleep = { .object = s, .clock = on, .time = until }; \
    int result; \
    if (!latchwork_is_time(on, until)) \
        return call; \
    pthread_testcancel(); \
    if (latchwork_profile_sem_begin(&sleep)) \
        return 0; \
    result = call; \
    return latchwork_profile_sem_end(&sleep, result)

int latchwork_profile_sem_wait(sem_t *s)
{
    SEM(below.sem_wait(s), CLOCK_REALTIME, NULL);
}

int latchwork_profile_sem_timedwait(sem_t *s, const struct timespec *time)
{
    SEM(below.sem_timedwait(s, time), CLOCK_REALTIME, time);
}

int latchwork_profile_sem_clockwait(sem_t *s, clockid_t clock, const struct timespec *time)
{
    SEM(below.sem_clockwait(s, clock, time), clock, time);
}

/* lw_cond_t: a condition variable, 8 bytes. A notification without a waiter is one load. Wakeups may be spurious: look at
 * the condition in a loop.
 *
 * lw_cond_wait is for lw_mutex_t. With any other lock, wait in four steps:
 *
 *     uint32_t ticket = lw_cond_prepare(&cond);            // with the lock held
 *     unlock(&lock);
 *     int result = lw_cond_block(&cond, ticket, clock, time);
 *     result = lw_cond_finish(&cond, ticket, result);
 *     lock(&lock);
 *
 * Fairness: lw_cond_signal wakes the thread that has slept longest, of those with the highest real-time priority. Which thread
 * goes on first, the mutex decides. */
#ifndef LATCHWORK_COND_H
#define LATCHWORK_COND_H

#include "mutex.h"

LW_BEGIN_C

typedef struct lw_cond {
    uint32_t sequence;
    uint32_t waiters;
} lw_cond_t;

#define LW_COND_INIT { 0, 0 }

LW_STATIC_ASSERT(sizeof(lw_cond_t) == 8 && LW_ALIGNOF(lw_cond_t) == 4, "lw_cond_t has another layout");
LW_STATIC_ASSERT(offsetof(lw_cond_t, waiters) == 4, "lw_cond_t has another layout");

void lw_cond_signal_slow(lw_cond_t *cond) LW_NOEXCEPT LW_COLD;
void lw_cond_broadcast_slow(lw_cond_t *cond) LW_NOEXCEPT LW_COLD;
void lw_cond_destroy_slow(lw_cond_t *cond) LW_NOEXCEPT LW_COLD;
int lw_cond_wait_slow(lw_cond_t *cond, lw_mutex_t *mutex, int clock, const struct timespec *time) LW_NOEXCEPT;

/* Counts the caller in as a waiter. The caller holds the lock with which the condition is changed, and calls
 * lw_cond_finish later. Returns the ticket for that. */
uint32_t lw_cond_prepare(lw_cond_t *cond) LW_NOEXCEPT;
/* Sleeps until a notification, or until `time` on `clock` (`time` null: without end). Returns 0, ETIMEDOUT or EINVAL. The
 * caller does not hold the lock. */
int lw_cond_block(lw_cond_t *cond, uint32_t ticket, int clock, const struct timespec *time) LW_NOEXCEPT;
/* Counts the caller out, before it locks again. Returns `result`, or 0 if it was ETIMEDOUT and a notification came. */
int lw_cond_finish(lw_cond_t *cond, uint32_t ticket, int result) LW_NOEXCEPT;

/* Makes the memory at `cond` a condition variable without waiters. Returns 0. */
LW_INLINE int lw_cond_init(lw_cond_t *cond) {
    cond->sequence = cond->waiters = 0;
    return 0;
}

/* Ends the condition variable. Waits until threads that were notified have left it; for ever if a thread waits that no
 * thread notifies. Returns 0. */
LW_INLINE int lw_cond_destroy(lw_cond_t *cond) {
    if (__atomic_load_n(&cond->waiters, __ATOMIC_ACQUIRE) != 0) {
        lw_cond_destroy_slow(cond);
    }
    return 0;
}

/* Releases the mutex, waits for a notification, and acquires the mutex again. Returns 0. */
LW_INLINE int lw_cond_wait(lw_cond_t *cond, lw_mutex_t *mutex) LW_REQUIRES(mutex) LW_NO_ANALYSIS {
    LW_TSAN_RELEASE(mutex);
    lw_cond_wait_slow(cond, mutex, LW_CLOCK_MONOTONIC, LW_NULL_);
    LW_TSAN_ACQUIRE(mutex);
    return 0;
}

/* The same until `time` on `clock` at most. Returns 0, ETIMEDOUT, or EINVAL: then the mutex was not released. */
LW_INLINE int lw_cond_clockwait(lw_cond_t *cond, lw_mutex_t *mutex, int clock, const struct timespec *time)
    LW_REQUIRES(mutex) LW_NO_ANALYSIS {
    int result;
    LW_TSAN_RELEASE(mutex);
    result = lw_cond_wait_slow(cond, mutex, clock, time);
    LW_TSAN_ACQUIRE(mutex);
    return result;
}

/* lw_cond_clockwait on CLOCK_REALTIME, as pthread_cond_timedwait. */
LW_INLINE int lw_cond_timedwait(lw_cond_t *cond, lw_mutex_t *mutex, const struct timespec *time)
    LW_REQUIRES(mutex) LW_NO_ANALYSIS {
    return lw_cond_clockwait(cond, mutex, LW_CLOCK_REALTIME, time);
}

/* Whether there were waiters a moment ago. The highest bit is a thread that destroys the condition variable. */
LW_INLINE int lw_cond_has_waiters(const lw_cond_t *cond) {
    return (__atomic_load_n(&cond->waiters, __ATOMIC_RELAXED) & 0x7fffffffu) != 0;
}

/* Wakes one waiter, if there are any. Returns 0. */
LW_INLINE int lw_cond_signal(lw_cond_t *cond) {
    if (lw_cond_has_waiters(cond)) {
        lw_cond_signal_slow(cond);
    }
    return 0;
}

/* Wakes all waiters. Returns 0. */
LW_INLINE int lw_cond_broadcast(lw_cond_t *cond) {
    if (lw_cond_has_waiters(cond)) {
        lw_cond_broadcast_slow(cond);
    }
    return 0;
}

LW_END_C

#endif

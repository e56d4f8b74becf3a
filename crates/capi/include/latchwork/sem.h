/* lw_sem_t: a counting semaphore, 8 bytes. Taking a unit and giving one is one atomic read-modify-write each, if no thread
 * waits. Waiters spin for microseconds if that has helped lately, then sleep. Fairness: none. */
#ifndef LATCHWORK_SEM_H
#define LATCHWORK_SEM_H

#include "base.h"

LW_BEGIN_C

typedef struct lw_sem {
    uint32_t word; /* twice the units, and 1 while threads sleep */
    uint32_t trust; /* in spins */
} lw_sem_t;

/* Initialiser of a semaphore with so many units. */
#define LW_SEM_INIT(units) { 2u * (units), 0 }
#define LW_SEM_VALUE_MAX 0x7fffffffu

LW_STATIC_ASSERT(sizeof(lw_sem_t) == 8 && LW_ALIGNOF(lw_sem_t) == 4, "lw_sem_t has another layout");

void lw_sem_wait_slow(lw_sem_t *sem) LW_NOEXCEPT LW_COLD;
int lw_sem_clockwait_slow(lw_sem_t *sem, int clock, const struct timespec *time) LW_NOEXCEPT LW_COLD;
int lw_sem_post_slow(lw_sem_t *sem, uint32_t units) LW_NOEXCEPT LW_COLD;

/* Makes the memory at `sem` a semaphore with `units` units. Returns 0, or EINVAL if there are more than LW_SEM_VALUE_MAX. */
LW_INLINE int lw_sem_init(lw_sem_t *sem, uint32_t units) {
    if (units > LW_SEM_VALUE_MAX) {
        return EINVAL;
    }
    sem->word = 2 * units;
    sem->trust = 0;
    return 0;
}

/* Ends the semaphore. Returns 0. There is nothing to free. */
LW_INLINE int lw_sem_destroy(lw_sem_t *sem) {
    (void)sem;
    return 0;
}

/* Takes a unit if there is one. Returns 0 or EBUSY. */
LW_INLINE int lw_sem_trywait(lw_sem_t *sem) {
    uint32_t word = __atomic_load_n(&sem->word, __ATOMIC_RELAXED);
    while (word >= 2) {
        if (__atomic_compare_exchange_n(&sem->word, &word, word - 2, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            LW_TSAN_ACQUIRE(sem);
            return 0;
        }
    }
    return EBUSY;
}

/* Takes a unit, and waits until there is one. Returns 0. */
LW_INLINE int lw_sem_wait(lw_sem_t *sem) {
    if (LW_UNLIKELY(lw_sem_trywait(sem) != 0)) {
        lw_sem_wait_slow(sem);
        LW_TSAN_ACQUIRE(sem);
    }
    return 0;
}

/* Takes a unit unless `time` on `clock` passes first. Returns 0, ETIMEDOUT or EINVAL. */
LW_INLINE int lw_sem_clockwait(lw_sem_t *sem, int clock, const struct timespec *time) {
    int result = lw_sem_trywait(sem);
    if (LW_UNLIKELY(result != 0)) {
        result = lw_sem_clockwait_slow(sem, clock, time);
        if (result == 0) {
            LW_TSAN_ACQUIRE(sem);
        }
    }
    return result;
}

/* lw_sem_clockwait on CLOCK_REALTIME, as sem_timedwait. */
LW_INLINE int lw_sem_timedwait(lw_sem_t *sem, const struct timespec *time) {
    return lw_sem_clockwait(sem, LW_CLOCK_REALTIME, time);
}

/* Gives `units` units, and wakes waiters if there are any. Returns 0, or EOVERFLOW if there would be more than
 * LW_SEM_VALUE_MAX; nothing has changed then. */
LW_INLINE int lw_sem_post_many(lw_sem_t *sem, uint32_t units) {
    LW_TSAN_RELEASE(sem);
    return lw_sem_post_slow(sem, units);
}

/* Gives one unit. Returns 0 or EOVERFLOW. */
LW_INLINE int lw_sem_post(lw_sem_t *sem) {
    uint32_t word = __atomic_load_n(&sem->word, __ATOMIC_RELAXED);
    LW_TSAN_RELEASE(sem);
    if (LW_LIKELY(!(word & 1) && word < 2 * LW_SEM_VALUE_MAX) &&
        LW_LIKELY(__atomic_compare_exchange_n(&sem->word, &word, word + 2, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))) {
        return 0;
    }
    return lw_sem_post_slow(sem, 1);
}

/* How many units there were a moment ago. */
LW_INLINE uint32_t lw_sem_value(const lw_sem_t *sem) { return __atomic_load_n(&sem->word, __ATOMIC_RELAXED) / 2; }

LW_END_C

#endif

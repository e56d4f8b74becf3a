/* lw_mutex_t: a mutex. ShflLock, blocking: waiters spin for microseconds and then sleep, and no waiter is passed over
 * without bound. 16 bytes; an uncontended pair executes one atomic read-modify-write, and none while the process has one
 * thread.
 *
 *     static lw_mutex_t lock;           // or LW_MUTEX_INIT
 *     lw_mutex_lock(&lock);
 *     lw_mutex_unlock(&lock);
 *
 * A thread that locks a mutex which it holds waits for ever. Only a thread that holds the mutex, or one that the holder has
 * left it to, unlocks it. */
#ifndef LATCHWORK_MUTEX_H
#define LATCHWORK_MUTEX_H

#include "base.h"

LW_BEGIN_C

typedef struct LW_CAPABILITY("mutex") lw_mutex {
    uint32_t word;
    uint32_t turn;
    void *tail;
} lw_mutex_t;

#define LW_MUTEX_INIT { 0, 0, LW_NULL_ }
/* The word of a mutex that is held, and for which no thread waits. */
#define LW_MUTEX_HELD_ 1u

LW_STATIC_ASSERT(sizeof(lw_mutex_t) == 16 && LW_ALIGNOF(lw_mutex_t) == 8, "lw_mutex_t has another layout");
LW_STATIC_ASSERT(offsetof(lw_mutex_t, word) == 0 && offsetof(lw_mutex_t, tail) == 8, "lw_mutex_t has another layout");

void lw_mutex_lock_slow(lw_mutex_t *mutex) LW_NOEXCEPT LW_COLD;
int lw_mutex_trylock_slow(lw_mutex_t *mutex) LW_NOEXCEPT LW_COLD;
int lw_mutex_clocklock_slow(lw_mutex_t *mutex, int clock, const struct timespec *time) LW_NOEXCEPT LW_COLD;
void lw_mutex_unlock_slow(lw_mutex_t *mutex) LW_NOEXCEPT LW_COLD;
void lw_mutex_unlock_fair_slow(lw_mutex_t *mutex) LW_NOEXCEPT LW_COLD;

/* Makes the memory at `mutex` an unlocked mutex. Returns 0. */
LW_INLINE int lw_mutex_init(lw_mutex_t *mutex) {
    mutex->word = 0;
    mutex->turn = 0;
    mutex->tail = LW_NULL_;
    return 0;
}

/* A name for reports and debuggers: see lw_name. */
LW_INLINE void lw_mutex_name(lw_mutex_t *mutex, const char *name) { lw_name(mutex, name); }

/* Ends the mutex. Returns 0, or EBUSY if a thread holds it. There is nothing to free. */
LW_INLINE int lw_mutex_destroy(lw_mutex_t *mutex) {
#if LW_DEBUG
    lw_debug_gone(mutex);
#endif
    return (__atomic_load_n(&mutex->word, __ATOMIC_RELAXED) & 3) == 0 ? 0 : EBUSY;
}

/* The uncontended acquisition. */
LW_INLINE int lw_mutex_take_(lw_mutex_t *mutex) LW_NO_ANALYSIS {
    uint32_t free_word = 0;
    if (LW_UNLIKELY(__libc_single_threaded)) {
        if (!lw_is_(&mutex->word, 0, __ATOMIC_RELAXED)) {
            return 0;
        }
        __atomic_store_n(&mutex->word, LW_MUTEX_HELD_, __ATOMIC_RELAXED);
        return 1;
    }
    return __atomic_compare_exchange_n(&mutex->word, &free_word, LW_MUTEX_HELD_, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

/* Acquires the mutex, and waits as long as that takes. Returns 0. */
LW_INLINE int lw_mutex_lock(lw_mutex_t *mutex) LW_ACQUIRE(mutex) LW_NO_ANALYSIS {
#if LW_DEBUG
    lw_debug_acquire(mutex, 0, 0, LW_NULL_);
#else
    if (LW_UNLIKELY(!lw_mutex_take_(mutex))) {
        lw_mutex_lock_slow(mutex);
    }
#endif
    LW_TSAN_ACQUIRE(mutex);
    return 0;
}

/* Acquires the mutex if that is possible without waiting. Returns 0 or EBUSY. */
LW_INLINE int lw_mutex_trylock(lw_mutex_t *mutex) LW_TRY_ACQUIRE(0, mutex) LW_NO_ANALYSIS {
#if LW_DEBUG
    int result = lw_debug_acquire(mutex, 4, 0, LW_NULL_);
#else
    int result = LW_LIKELY(lw_mutex_take_(mutex)) ? 0 : lw_mutex_trylock_slow(mutex);
#endif
    if (result == 0) {
        LW_TSAN_ACQUIRE(mutex);
    }
    return result;
}

/* Acquires the mutex unless `time` on `clock` passes first. Returns 0, ETIMEDOUT or EINVAL. */
LW_INLINE int lw_mutex_clocklock(lw_mutex_t *mutex, int clock, const struct timespec *time)
    LW_TRY_ACQUIRE(0, mutex) LW_NO_ANALYSIS {
#if LW_DEBUG
    int result = lw_debug_acquire(mutex, 0, clock, time);
#else
    int result = LW_LIKELY(lw_mutex_take_(mutex)) ? 0 : lw_mutex_clocklock_slow(mutex, clock, time);
#endif
    if (result == 0) {
        LW_TSAN_ACQUIRE(mutex);
    }
    return result;
}

/* lw_mutex_clocklock on CLOCK_REALTIME, as pthread_mutex_timedlock. */
LW_INLINE int lw_mutex_timedlock(lw_mutex_t *mutex, const struct timespec *time) LW_TRY_ACQUIRE(0, mutex) LW_NO_ANALYSIS {
    return lw_mutex_clocklock(mutex, LW_CLOCK_REALTIME, time);
}

/* Releases the mutex. Returns 0. The next holder may free the memory at once. */
LW_INLINE int lw_mutex_unlock(lw_mutex_t *mutex) LW_RELEASE(mutex) LW_NO_ANALYSIS {
    LW_TSAN_RELEASE(mutex);
#if LW_DEBUG
    lw_debug_release(mutex, 0);
    return 0;
#endif
    /* A processor may answer a load of the word late if a locked instruction has just written it. So this looks at the queue. */
    if (LW_LIKELY(lw_is_pointer_(&mutex->tail, LW_NULL_, __ATOMIC_RELAXED))) {
        /* Release: pairs with the acquire of the next holder's exchange. */
        __atomic_store_n(&mutex->word, 0, __ATOMIC_RELEASE);
    } else {
        lw_mutex_unlock_slow(mutex);
    }
    return 0;
}

/* Releases the mutex, and keeps every other thread from it until the first waiter in the queue has had it. Returns 0. */
LW_INLINE int lw_mutex_unlock_fair(lw_mutex_t *mutex) LW_RELEASE(mutex) LW_NO_ANALYSIS {
    LW_TSAN_RELEASE(mutex);
#if LW_DEBUG
    lw_debug_release(mutex, 8);
#else
    lw_mutex_unlock_fair_slow(mutex);
#endif
    return 0;
}

/* Whether a thread held the mutex a moment ago. */
LW_INLINE int lw_mutex_is_locked(const lw_mutex_t *mutex) {
    return (__atomic_load_n(&mutex->word, __ATOMIC_RELAXED) & 3) != 0;
}

LW_END_C

#endif

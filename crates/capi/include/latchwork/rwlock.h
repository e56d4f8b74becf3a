/* lw_rwlock_t: a reader-writer lock. BRAVO with a row of slots per thread over a reader-writer ShflLock. While writers are
 * rare, a reader writes to its own thread's row only: a read pair is two plain stores and no atomic read-modify-write.
 * 32 bytes; 128 per thread that reads, however many locks there are.
 *
 * Readers and writers have release functions of their own. The thread that acquired a read releases it. A thread that reads
 * and calls lw_rwlock_rdlock again may wait for ever for a writer that waits in between; lw_rwlock_rdlock_recursive does not.
 *
 * An upgradable reader reads beside plain readers, keeps writers and other upgradable readers out, and can become a writer
 * with no writer in between.
 *
 * Fairness: waiters queue. Threads that come later may pass them for a bounded time, to read or to write. So readers do not keep a
 * writer out for ever, nor writers a reader. */
#ifndef LATCHWORK_RWLOCK_H
#define LATCHWORK_RWLOCK_H

#include "base.h"

LW_BEGIN_C

typedef struct LW_CAPABILITY("mutex") lw_rwlock {
    uint32_t word;
    uint32_t readers;
    void *tail;
    uint32_t turn;
    uint32_t padding;
    uint32_t bias;
    uint32_t in_a_row;
} lw_rwlock_t;

#define LW_RWLOCK_INIT { 0, 0, LW_NULL_, 0, 0, 0, 0 }
/* The bias with which readers use slots. */
#define LW_RWLOCK_BIASED_ 16u
/* From here on, threads wait for readers in slots (`revoking`). */
#define LW_RWLOCK_REVOKING_ 0xff800000u
/* The word of a lock that is held for writing, and for which no thread waits. */
#define LW_RWLOCK_WRITER_ 1u

LW_STATIC_ASSERT(sizeof(lw_rwlock_t) == 32 && LW_ALIGNOF(lw_rwlock_t) == 8, "lw_rwlock_t has another layout");
LW_STATIC_ASSERT(offsetof(lw_rwlock_t, word) == 0 && offsetof(lw_rwlock_t, readers) == 4 &&
                     offsetof(lw_rwlock_t, tail) == 8 && offsetof(lw_rwlock_t, bias) == 24 && offsetof(lw_rwlock_t, in_a_row) == 28,
                 "lw_rwlock_t has another layout");

void lw_rwlock_rdlock_slow(lw_rwlock_t *lock) LW_NOEXCEPT LW_COLD;
int lw_rwlock_rdtrylock_slow(lw_rwlock_t *lock) LW_NOEXCEPT LW_COLD;
int lw_rwlock_rdclocklock_slow(lw_rwlock_t *lock, int clock, const struct timespec *time) LW_NOEXCEPT LW_COLD;
void lw_rwlock_rdlock_recursive_slow(lw_rwlock_t *lock) LW_NOEXCEPT LW_COLD;
void lw_rwlock_rdunlock_slow(lw_rwlock_t *lock) LW_NOEXCEPT LW_COLD;
void lw_rwlock_wrlock_slow(lw_rwlock_t *lock) LW_NOEXCEPT LW_COLD;
int lw_rwlock_wrtrylock_slow(lw_rwlock_t *lock) LW_NOEXCEPT LW_COLD;
int lw_rwlock_wrclocklock_slow(lw_rwlock_t *lock, int clock, const struct timespec *time) LW_NOEXCEPT LW_COLD;
void lw_rwlock_wrunlock_slow(lw_rwlock_t *lock) LW_NOEXCEPT LW_COLD;
void lw_rwlock_wrunlock_fair_slow(lw_rwlock_t *lock) LW_NOEXCEPT;
void lw_rwlock_downgrade_slow(lw_rwlock_t *lock) LW_NOEXCEPT;
void lw_rwlock_uplock_slow(lw_rwlock_t *lock) LW_NOEXCEPT;
int lw_rwlock_uptrylock_slow(lw_rwlock_t *lock) LW_NOEXCEPT;
int lw_rwlock_upclocklock_slow(lw_rwlock_t *lock, int clock, const struct timespec *time) LW_NOEXCEPT;
void lw_rwlock_upunlock_slow(lw_rwlock_t *lock) LW_NOEXCEPT;
void lw_rwlock_upgrade_slow(lw_rwlock_t *lock) LW_NOEXCEPT;
int lw_rwlock_tryupgrade_slow(lw_rwlock_t *lock) LW_NOEXCEPT;
int lw_rwlock_clockupgrade_slow(lw_rwlock_t *lock, int clock, const struct timespec *time) LW_NOEXCEPT;
void lw_rwlock_downgrade_upgradable_slow(lw_rwlock_t *lock) LW_NOEXCEPT;
void lw_rwlock_downgrade_to_upgradable_slow(lw_rwlock_t *lock) LW_NOEXCEPT;
int lw_rwlock_destroy_slow(lw_rwlock_t *lock) LW_NOEXCEPT;
int lw_rwlock_is_locked_slow(const lw_rwlock_t *lock) LW_NOEXCEPT;

/* ThreadSanitizer: three addresses, so that readers are ordered after writers and not after each other, and upgradable readers
 * after each other, too. */
#define LW_RWLOCK_WRITERS_(lock) (&(lock)->word)
#define LW_RWLOCK_READERS_(lock) (&(lock)->readers)
#define LW_RWLOCK_UPGRADERS_(lock) (&(lock)->turn)

/* Makes the memory at `lock` an unlocked lock. Returns 0. */
LW_INLINE int lw_rwlock_init(lw_rwlock_t *lock) {
    lock->word = lock->readers = lock->turn = lock->padding = lock->bias = lock->in_a_row = 0;
    lock->tail = LW_NULL_;
    return 0;
}

/* Ends the lock. Returns 0, or EBUSY if a thread holds it. A lock that is freed without this may leave its address in the
 * rows of threads that have read it and never unlocked it; the next lock at that address is slower then. */
LW_INLINE int lw_rwlock_destroy(lw_rwlock_t *lock) {
#if LW_DEBUG
    lw_debug_gone(lock);
#endif
    return lw_rwlock_destroy_slow(lock);
}

/* A name for reports and debuggers: see lw_name. */
LW_INLINE void lw_rwlock_name(lw_rwlock_t *lock, const char *name) { lw_name(lock, name); }

/* The reader's attempt through the first slot of its row. */
LW_INLINE int lw_rwlock_rdtake_(lw_rwlock_t *lock) LW_NO_ANALYSIS {
    struct lw_row *row = lw_thread.row;
    /* Acquire: another thread may have emptied the slot. The last row is that of a thread which has none yet: its slot is full. */
    if (LW_UNLIKELY(lw_is_long_(&row->unbiased, LW_CAST_(uintptr_t, lock), __ATOMIC_RELAXED)) ||
        LW_UNLIKELY(!lw_is_long_(&row->slots[0], 0, __ATOMIC_ACQUIRE))) {
        return 0;
    }
    __atomic_store_n(&row->slots[0], LW_CAST_(uintptr_t, lock), __ATOMIC_RELEASE);
    /* A writer that revokes the bias issues membarrier after it has changed the bias: it sees the slot, or this sees the
     * change. A lock is biased only where membarrier is to be had. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (LW_LIKELY(lw_is_(&lock->bias, LW_RWLOCK_BIASED_, __ATOMIC_ACQUIRE))) {
        return 1;
    }
    __atomic_store_n(&row->slots[0], 0, __ATOMIC_RELEASE);
    return 0;
}

/* Acquires for reading, and waits as long as that takes. Returns 0. */
LW_INLINE int lw_rwlock_rdlock(lw_rwlock_t *lock) LW_ACQUIRE_SHARED(lock) LW_NO_ANALYSIS {
#if LW_DEBUG
    lw_debug_acquire(lock, 1, 0, LW_NULL_);
#else
    if (LW_UNLIKELY(!lw_rwlock_rdtake_(lock))) {
        lw_rwlock_rdlock_slow(lock);
    }
#endif
    LW_TSAN_ACQUIRE(LW_RWLOCK_WRITERS_(lock));
    return 0;
}

/* Acquires for reading if that is possible without waiting. Returns 0 or EBUSY. */
LW_INLINE int lw_rwlock_tryrdlock(lw_rwlock_t *lock) LW_TRY_ACQUIRE_SHARED(0, lock) LW_NO_ANALYSIS {
#if LW_DEBUG
    int result = lw_debug_acquire(lock, 5, 0, LW_NULL_);
#else
    int result = LW_LIKELY(lw_rwlock_rdtake_(lock)) ? 0 : lw_rwlock_rdtrylock_slow(lock);
#endif
    if (result == 0) {
        LW_TSAN_ACQUIRE(LW_RWLOCK_WRITERS_(lock));
    }
    return result;
}

/* Acquires for reading unless `time` on `clock` passes first. Returns 0, ETIMEDOUT or EINVAL. */
LW_INLINE int lw_rwlock_clockrdlock(lw_rwlock_t *lock, int clock, const struct timespec *time)
    LW_TRY_ACQUIRE_SHARED(0, lock) LW_NO_ANALYSIS {
#if LW_DEBUG
    int result = lw_debug_acquire(lock, 1, clock, time);
#else
    int result = LW_LIKELY(lw_rwlock_rdtake_(lock)) ? 0 : lw_rwlock_rdclocklock_slow(lock, clock, time);
#endif
    if (result == 0) {
        LW_TSAN_ACQUIRE(LW_RWLOCK_WRITERS_(lock));
    }
    return result;
}

/* Acquires for reading, past writers that wait, also if the thread reads already. Returns 0. */
LW_INLINE int lw_rwlock_rdlock_recursive(lw_rwlock_t *lock) LW_ACQUIRE_SHARED(lock) LW_NO_ANALYSIS {
#if LW_DEBUG
    lw_debug_acquire(lock, 3, 0, LW_NULL_);
#else
    if (LW_UNLIKELY(!lw_rwlock_rdtake_(lock))) {
        lw_rwlock_rdlock_recursive_slow(lock);
    }
#endif
    LW_TSAN_ACQUIRE(LW_RWLOCK_WRITERS_(lock));
    return 0;
}

/* Ends a read acquisition of the calling thread. Returns 0. */
LW_INLINE int lw_rwlock_rdunlock(lw_rwlock_t *lock) LW_RELEASE_SHARED(lock) LW_NO_ANALYSIS {
    struct lw_row *row = lw_thread.row;
    LW_TSAN_RELEASE(LW_RWLOCK_READERS_(lock));
#if LW_DEBUG
    lw_debug_release(lock, 1);
    return (void)row, 0;
#endif
    if (LW_LIKELY(lw_is_long_(&row->slots[0], LW_CAST_(uintptr_t, lock), __ATOMIC_RELAXED))) {
        /* Release: pairs with the acquire of the writer that finds the slot empty. */
        __atomic_store_n(&row->slots[0], 0, __ATOMIC_RELEASE);
    } else {
        lw_rwlock_rdunlock_slow(lock);
    }
    return 0;
}

/* After a write acquisition: every earlier section happens before this one. */
LW_INLINE int lw_rwlock_written_(lw_rwlock_t *lock, int result) {
    if (result == 0) {
        LW_TSAN_ACQUIRE(LW_RWLOCK_WRITERS_(lock));
        LW_TSAN_ACQUIRE(LW_RWLOCK_READERS_(lock));
    }
    return result;
}

/* The uncontended acquisition for writing, of a lock that is not biased. */
LW_INLINE int lw_rwlock_wrtake_(lw_rwlock_t *lock) LW_NO_ANALYSIS {
    uint32_t free_word = 0;
    /* The first two looks spare a lock that is held the exchange. */
    if (LW_UNLIKELY(!lw_is_(&lock->readers, 0, __ATOMIC_RELAXED)) || LW_UNLIKELY(!lw_is_(&lock->word, 0, __ATOMIC_RELAXED)) ||
        LW_UNLIKELY(!__atomic_compare_exchange_n(&lock->word, &free_word, LW_RWLOCK_WRITER_, 0, __ATOMIC_SEQ_CST,
                                                 __ATOMIC_RELAXED))) {
        return 0;
    }
    /* The library's readers add themselves to `readers` and then look at `word`; this has set `word`, and looks at `readers`
     * now. All four are sequentially consistent, so one of the two sees the other. */
    if (LW_LIKELY(lw_is_(&lock->readers, 0, __ATOMIC_SEQ_CST))) {
        /* After the look at `readers`: a reader turns the bias on before it leaves. While this holds the word, none does. */
        uint32_t bias = __atomic_load_n(&lock->bias, __ATOMIC_RELAXED);
        if (LW_LIKELY(bias != LW_RWLOCK_BIASED_) && LW_LIKELY(bias < LW_RWLOCK_REVOKING_)) {
            /* For the bias: the slow reads before this write are not in a row with those that come. */
            __atomic_store_n(&lock->in_a_row, 0, __ATOMIC_RELAXED);
            return 1;
        }
    }
    lw_rwlock_wrunlock_slow(lock); /* The slow path waits for readers, and revokes the bias. */
    return 0;
}

/* Acquires for writing, and waits as long as that takes. Returns 0. */
LW_INLINE int lw_rwlock_wrlock(lw_rwlock_t *lock) LW_ACQUIRE(lock) LW_NO_ANALYSIS {
#if LW_DEBUG
    lw_debug_acquire(lock, 2, 0, LW_NULL_);
#else
    if (LW_UNLIKELY(!lw_rwlock_wrtake_(lock))) {
        lw_rwlock_wrlock_slow(lock);
    }
#endif
    return lw_rwlock_written_(lock, 0);
}

/* Acquires for writing if that is possible without waiting. Returns 0 or EBUSY. */
LW_INLINE int lw_rwlock_trywrlock(lw_rwlock_t *lock) LW_TRY_ACQUIRE(0, lock) LW_NO_ANALYSIS {
#if LW_DEBUG
    return lw_rwlock_written_(lock, lw_debug_acquire(lock, 6, 0, LW_NULL_));
#else
    return lw_rwlock_written_(lock, LW_LIKELY(lw_rwlock_wrtake_(lock)) ? 0 : lw_rwlock_wrtrylock_slow(lock));
#endif
}

/* Acquires for writing unless `time` on `clock` passes first. Returns 0, ETIMEDOUT or EINVAL. */
LW_INLINE int lw_rwlock_clockwrlock(lw_rwlock_t *lock, int clock, const struct timespec *time)
    LW_TRY_ACQUIRE(0, lock) LW_NO_ANALYSIS {
#if LW_DEBUG
    return lw_rwlock_written_(lock, lw_debug_acquire(lock, 2, clock, time));
#else
    return lw_rwlock_written_(lock,
                              LW_LIKELY(lw_rwlock_wrtake_(lock)) ? 0 : lw_rwlock_wrclocklock_slow(lock, clock, time));
#endif
}

/* Ends a write acquisition. Returns 0. */
LW_INLINE int lw_rwlock_wrunlock(lw_rwlock_t *lock) LW_RELEASE(lock) LW_NO_ANALYSIS {
    LW_TSAN_RELEASE(LW_RWLOCK_WRITERS_(lock));
#if LW_DEBUG
    lw_debug_release(lock, 2);
#else
    /* As in lw_mutex_unlock: the word has been written by a locked instruction. */
    if (LW_LIKELY(lw_is_pointer_(&lock->tail, LW_NULL_, __ATOMIC_RELAXED))) {
        /* Release: pairs with the acquire of the reader or writer that finds the word free. */
        __atomic_store_n(&lock->word, 0, __ATOMIC_RELEASE);
    } else {
        lw_rwlock_wrunlock_slow(lock);
    }
#endif
    return 0;
}

/* Ends a write acquisition, and leaves the lock to a waiter if there is one. Returns 0. */
LW_INLINE int lw_rwlock_wrunlock_fair(lw_rwlock_t *lock) LW_RELEASE(lock) LW_NO_ANALYSIS {
    LW_TSAN_RELEASE(LW_RWLOCK_WRITERS_(lock));
#if LW_DEBUG
    lw_debug_release(lock, 10);
#else
    lw_rwlock_wrunlock_fair_slow(lock);
#endif
    return 0;
}

/* With LW_DEBUG: the calling thread writes from now on (`how` 2), or reads (1). The lock has been acquired without these calls, so
 * that is noted as an attempt that has succeeded. */
LW_INLINE int lw_rwlock_noted_(lw_rwlock_t *lock, int how, int result) {
#if LW_DEBUG
    if (result == 0) {
        lw_debug_acquire(lock, how + 4 + 64, 0, LW_NULL_);
    }
#endif
    (void)lock, (void)how;
    return result;
}

/* With LW_DEBUG: the calling thread does not write any more. */
LW_INLINE void lw_rwlock_not_written_(lw_rwlock_t *lock) {
#if LW_DEBUG
    lw_debug_release(lock, 2 + 64);
#endif
    (void)lock;
}

/* Turns a write acquisition into a read acquisition, with no writer in between. Returns 0. */
LW_INLINE int lw_rwlock_downgrade(lw_rwlock_t *lock) LW_NO_ANALYSIS {
    LW_TSAN_RELEASE(LW_RWLOCK_WRITERS_(lock));
    lw_rwlock_not_written_(lock);
    lw_rwlock_downgrade_slow(lock);
    return lw_rwlock_noted_(lock, 1, 0);
}

/* After an upgradable read: every earlier write, and every earlier upgradable read, happens before this one. */
LW_INLINE int lw_rwlock_upgradable_(lw_rwlock_t *lock, int result) {
    if (result == 0) {
        LW_TSAN_ACQUIRE(LW_RWLOCK_WRITERS_(lock));
        LW_TSAN_ACQUIRE(LW_RWLOCK_UPGRADERS_(lock));
    }
    return result;
}

/* Acquires an upgradable read, and waits as long as that takes. Returns 0. */
LW_INLINE int lw_rwlock_uplock(lw_rwlock_t *lock) LW_ACQUIRE_SHARED(lock) LW_NO_ANALYSIS {
    lw_rwlock_uplock_slow(lock);
    return lw_rwlock_upgradable_(lock, 0);
}

/* Acquires an upgradable read if that is possible without waiting. Returns 0 or EBUSY. */
LW_INLINE int lw_rwlock_tryuplock(lw_rwlock_t *lock) LW_TRY_ACQUIRE_SHARED(0, lock) LW_NO_ANALYSIS {
    return lw_rwlock_upgradable_(lock, lw_rwlock_uptrylock_slow(lock));
}

/* Acquires an upgradable read unless `time` on `clock` passes first. Returns 0, ETIMEDOUT or EINVAL. */
LW_INLINE int lw_rwlock_clockuplock(lw_rwlock_t *lock, int clock, const struct timespec *time)
    LW_TRY_ACQUIRE_SHARED(0, lock) LW_NO_ANALYSIS {
    return lw_rwlock_upgradable_(lock, lw_rwlock_upclocklock_slow(lock, clock, time));
}

/* Ends an upgradable read. Returns 0. */
LW_INLINE int lw_rwlock_upunlock(lw_rwlock_t *lock) LW_RELEASE_SHARED(lock) LW_NO_ANALYSIS {
    LW_TSAN_RELEASE(LW_RWLOCK_READERS_(lock));
    LW_TSAN_RELEASE(LW_RWLOCK_UPGRADERS_(lock));
    lw_rwlock_upunlock_slow(lock);
    return 0;
}

/* Turns an upgradable read into a write acquisition, and waits until the readers inside have left. Returns 0. */
LW_INLINE int lw_rwlock_upgrade(lw_rwlock_t *lock) LW_NO_ANALYSIS {
    lw_rwlock_upgrade_slow(lock);
    return lw_rwlock_written_(lock, lw_rwlock_noted_(lock, 2, 0));
}

/* The same if that is possible without waiting. Returns 0, or EBUSY: then the upgradable read goes on. */
LW_INLINE int lw_rwlock_tryupgrade(lw_rwlock_t *lock) LW_NO_ANALYSIS {
    return lw_rwlock_written_(lock, lw_rwlock_noted_(lock, 2, lw_rwlock_tryupgrade_slow(lock)));
}

/* The same unless `time` on `clock` passes first. Returns 0, or ETIMEDOUT or EINVAL: then the upgradable read goes on. */
LW_INLINE int lw_rwlock_clockupgrade(lw_rwlock_t *lock, int clock, const struct timespec *time) LW_NO_ANALYSIS {
    return lw_rwlock_written_(lock, lw_rwlock_noted_(lock, 2, lw_rwlock_clockupgrade_slow(lock, clock, time)));
}

/* Turns an upgradable read into a plain one. Returns 0. */
LW_INLINE int lw_rwlock_downgrade_upgradable(lw_rwlock_t *lock) LW_NO_ANALYSIS {
    LW_TSAN_RELEASE(LW_RWLOCK_UPGRADERS_(lock));
    lw_rwlock_downgrade_upgradable_slow(lock);
    return lw_rwlock_noted_(lock, 1, 0);
}

/* Turns a write acquisition into an upgradable read. Returns 0. */
LW_INLINE int lw_rwlock_downgrade_to_upgradable(lw_rwlock_t *lock) LW_NO_ANALYSIS {
    LW_TSAN_RELEASE(LW_RWLOCK_WRITERS_(lock));
    lw_rwlock_not_written_(lock);
    lw_rwlock_downgrade_to_upgradable_slow(lock);
    return 0;
}

/* Whether a thread held the lock, for reading or writing, a moment ago. */
LW_INLINE int lw_rwlock_is_locked(const lw_rwlock_t *lock) { return lw_rwlock_is_locked_slow(lock); }

LW_END_C

#endif

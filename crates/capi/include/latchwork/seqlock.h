/* lw_seqlock_t: a sequence lock, 24 bytes. Readers copy some words and write no memory; they copy again if a writer has
 * stored meanwhile. Writers exclude each other by a mutex. The user keeps the words, and passes the same ones to every call.
 *
 *     static lw_seqlock_t lock;
 *     static uint64_t position[2];
 *
 *     uint64_t copy[2];
 *     lw_seqlock_read(&lock, copy, position, 2);
 *
 *     lw_seqlock_write_lock(&lock);
 *     lw_seqlock_store(&lock, position, (uint64_t[]){3, 4}, 2);
 *     lw_seqlock_write_unlock(&lock); */
#ifndef LATCHWORK_SEQLOCK_H
#define LATCHWORK_SEQLOCK_H

#include "mutex.h"

LW_BEGIN_C

typedef struct LW_CAPABILITY("mutex") lw_seqlock {
    uint32_t sequence; /* odd while a writer stores */
    uint32_t padding;
    lw_mutex_t mutex;
} lw_seqlock_t;

#define LW_SEQLOCK_INIT { 0, 0, LW_MUTEX_INIT }

LW_STATIC_ASSERT(sizeof(lw_seqlock_t) == 24 && LW_ALIGNOF(lw_seqlock_t) == 8, "lw_seqlock_t has another layout");
LW_STATIC_ASSERT(offsetof(lw_seqlock_t, mutex) == 8, "lw_seqlock_t has another layout");

void lw_seqlock_read_slow(lw_seqlock_t *lock, uint64_t *copy, const uint64_t *words, size_t count) LW_NOEXCEPT LW_COLD;

/* Makes the memory at `lock` a sequence lock that no thread writes. Returns 0. */
LW_INLINE int lw_seqlock_init(lw_seqlock_t *lock) {
    lock->sequence = lock->padding = 0;
    return lw_mutex_init(&lock->mutex);
}

/* Copies `count` words unless a writer stores meanwhile. Returns 0 or EBUSY. It never waits. */
LW_INLINE int lw_seqlock_try_read(lw_seqlock_t *lock, uint64_t *copy, const uint64_t *words, size_t count) {
    /* Pairs with the end of lw_seqlock_store: this reader sees its words, or later ones. */
    uint32_t before = __atomic_load_n(&lock->sequence, __ATOMIC_ACQUIRE);
    size_t i;
    if (before & 1) {
        return EBUSY;
    }
    for (i = 0; i < count; i++) {
        /* Pairs with the stores of a writer: a reader that copies one of them sees the odd number below. */
        copy[i] = __atomic_load_n(&words[i], __ATOMIC_ACQUIRE);
    }
    return __atomic_load_n(&lock->sequence, __ATOMIC_RELAXED) == before ? 0 : EBUSY;
}

/* Copies `count` words, all of one moment. After 16 copies that writers have spoilt, it waits as a writer does. Returns 0. */
LW_INLINE int lw_seqlock_read(lw_seqlock_t *lock, uint64_t *copy, const uint64_t *words, size_t count) {
    if (LW_UNLIKELY(lw_seqlock_try_read(lock, copy, words, count) != 0)) {
        lw_seqlock_read_slow(lock, copy, words, count);
        LW_TSAN_ACQUIRE(&lock->mutex);
    }
    return 0;
}

/* Keeps other writers out. Readers go on. Returns 0. */
LW_INLINE int lw_seqlock_write_lock(lw_seqlock_t *lock) LW_ACQUIRE(lock) LW_NO_ANALYSIS {
    return lw_mutex_lock(&lock->mutex);
}

/* Lets other writers in. Returns 0. */
LW_INLINE int lw_seqlock_write_unlock(lw_seqlock_t *lock) LW_RELEASE(lock) LW_NO_ANALYSIS {
    return lw_mutex_unlock(&lock->mutex);
}

/* Stores `count` words in one moment. The caller is the writer. */
LW_INLINE void lw_seqlock_store(lw_seqlock_t *lock, uint64_t *words, const uint64_t *values, size_t count)
    LW_REQUIRES(lock) LW_NO_ANALYSIS {
    uint32_t even = __atomic_load_n(&lock->sequence, __ATOMIC_RELAXED);
    size_t i;
    __atomic_store_n(&lock->sequence, even + 1, __ATOMIC_RELAXED);
    for (i = 0; i < count; i++) {
        __atomic_store_n(&words[i], values[i], __ATOMIC_RELEASE);
    }
    __atomic_store_n(&lock->sequence, even + 2, __ATOMIC_RELEASE);
}

LW_END_C

#endif

/* Every lock of `latchwork list`: by type (lw_mcs_t with lw_mcs_lock, lw_mcs_unlock, ...), and by a name that is chosen at
 * run time (lw_any_mutex_t, lw_any_rwlock_t). registered.h lists them.
 *
 *     static lw_mcs_t lock;
 *     lw_mcs_lock(&lock);
 *     lw_mcs_unlock(&lock);
 *
 *     static lw_pf_q_t table;
 *     lw_token token;
 *     lw_pf_q_rdlock(&table, &token);
 *     lw_pf_q_rdunlock(&table, token);
 *
 *     lw_any_mutex_t any;
 *     if (lw_any_mutex_init(&any, getenv("LOCK")) != 0) { ... }
 *
 * A mutex has lw_..._lock, trylock, clocklock, unlock and unlock_fair. A reader-writer lock has lw_..._rdlock, tryrdlock,
 * clockrdlock, rdunlock, wrlock, trywrlock, clockwrlock, wrunlock, downgrade and destroy. They return what those of lw_mutex_t
 * (lw_mutex(3)) and lw_rwlock_t (lw_rwlock(3)) return. Where a lock has no fair unlock or no downgrade, these return ENOTSUP,
 * and the caller keeps what it has.
 *
 * Some locks (lw_hclh_t, lw_percpu_t, ...) are aligned to 64 bytes, and so is what has one in it. malloc does not align memory
 * so far: take aligned_alloc, or lw_any_mutex_t and lw_any_rwlock_t, whose locks are aligned as they must be.
 *
 * A lock with upgradable reads has lw_..._uplock, tryuplock, clockuplock, upunlock, upgrade, tryupgrade, clockupgrade,
 * downgrade_upgradable and downgrade_to_upgradable, as lw_rwlock_t has them (lw_rwlock(3)). The others return ENOTSUP from
 * all of these, and the acquisition stays as it was.
 *
 *     lw_pf_q_uplock(&table, &token);                      // beside readers, but no writer and no second one like this
 *     if (must_change(&data)) {
 *         lw_pf_q_upgrade(&table, token);                  // a writer, with no other writer in between
 *         lw_pf_q_wrunlock(&table);
 *     } else {
 *         lw_pf_q_upunlock(&table, token);
 *     }
 *
 * Each call is one indirect call. lw_mutex_t and lw_rwlock_t (shfl and bravo-2d-shfl-rw) have inline paths. A lock whose
 * waiters only spin is made for a thread per processor: `latchwork list` says which. */
#ifndef LATCHWORK_LOCKS_H
#define LATCHWORK_LOCKS_H

#include "base.h"

LW_BEGIN_C

/* What a read acquisition, plain or upgradable, hands to its release. */
typedef uintptr_t lw_token;

/* The functions of a mutex. */
typedef struct lw_mutex_ops {
    const char *name;
    size_t size;
    size_t align;
    lw_token (*lock)(void *lock);
    int (*trylock)(void *lock, lw_token *token);
    int (*clocklock)(void *lock, int clock, const struct timespec *time, lw_token *token);
    void (*unlock)(void *lock, lw_token token);
    void (*unlock_fair)(void *lock, lw_token token); /* null if there is none */
} lw_mutex_ops;

/* The functions of a lock with upgradable reads. */
typedef struct lw_upgrade_ops {
    lw_token (*uplock)(void *lock);
    int (*tryuplock)(void *lock, lw_token *token);
    int (*clockuplock)(void *lock, int clock, const struct timespec *time, lw_token *token);
    void (*upunlock)(void *lock, lw_token token);
    lw_token (*upgrade)(void *lock, lw_token token);
    int (*tryupgrade)(void *lock, lw_token *token);
    int (*clockupgrade)(void *lock, int clock, const struct timespec *time, lw_token *token);
    lw_token (*downgrade_upgradable)(void *lock, lw_token token);
    lw_token (*downgrade_to_upgradable)(void *lock, lw_token token);
} lw_upgrade_ops;

/* The functions of a reader-writer lock. */
typedef struct lw_rwlock_ops {
    const char *name;
    size_t size;
    size_t align;
    lw_token (*rdlock)(void *lock);
    int (*tryrdlock)(void *lock, lw_token *token);
    int (*clockrdlock)(void *lock, int clock, const struct timespec *time, lw_token *token);
    void (*rdunlock)(void *lock, lw_token token);
    lw_token (*wrlock)(void *lock);
    int (*trywrlock)(void *lock, lw_token *token);
    int (*clockwrlock)(void *lock, int clock, const struct timespec *time, lw_token *token);
    void (*wrunlock)(void *lock, lw_token token);
    lw_token (*downgrade)(void *lock, lw_token token); /* null if there is none */
    void (*destroy)(void *lock);
    const lw_upgrade_ops *upgrade; /* null if there are no upgradable reads */
} lw_rwlock_ops;

/* The name of each mutex and of each reader-writer lock: numbers begin at 0; null at the end. */
const char *lw_mutex_name_of(size_t number) LW_NOEXCEPT;
const char *lw_rwlock_name_of(size_t number) LW_NOEXCEPT;

/* A mutex, or a reader-writer lock, of a type that is chosen at run time. Its memory comes from the allocator. */
typedef struct LW_CAPABILITY("mutex") lw_any_mutex {
    const lw_mutex_ops *ops;
    void *raw;
    lw_token token; /* of the holder */
} lw_any_mutex_t;

typedef struct LW_CAPABILITY("mutex") lw_any_rwlock {
    const lw_rwlock_ops *ops;
    void *raw;
    lw_token token; /* of the writer */
} lw_any_rwlock_t;

/* Makes a lock with the name of `latchwork list` (null: the default lock). Returns 0, ENOENT (there is no such lock) or
 * ENOMEM. */
int lw_any_mutex_init(lw_any_mutex_t *lock, const char *name) LW_NOEXCEPT;
void lw_any_mutex_destroy(lw_any_mutex_t *lock) LW_NOEXCEPT;
int lw_any_rwlock_init(lw_any_rwlock_t *lock, const char *name) LW_NOEXCEPT;
void lw_any_rwlock_destroy(lw_any_rwlock_t *lock) LW_NOEXCEPT;

/* The functions of a mutex, over a table and the lock's bytes. `storage`: static for members of a class, else nothing. */
#define LW_MUTEX_FUNCTIONS_(storage, name, type, ops_, raw_)                                                               \
    storage LW_INLINE int name##_lock(type *lock) LW_ACQUIRE(lock) LW_NO_ANALYSIS {                                        \
        lw_token token = (ops_)->lock(raw_);                                                                               \
        LW_TSAN_ACQUIRE(raw_);                                                                                             \
        lock->token = token;                                                                                               \
        return 0;                                                                                                          \
    }                                                                                                                      \
    storage LW_INLINE int name##_taken_(type *lock, int result, lw_token token) {                                          \
        if (result == 0) {                                                                                                 \
            LW_TSAN_ACQUIRE(raw_);                                                                                         \
            lock->token = token;                                                                                           \
        }                                                                                                                  \
        return result;                                                                                                     \
    }                                                                                                                      \
    storage LW_INLINE int name##_trylock(type *lock) LW_TRY_ACQUIRE(0, lock) LW_NO_ANALYSIS {                              \
        lw_token token = 0;                                                                                                \
        int result = (ops_)->trylock(raw_, &token);                                                                        \
        return name##_taken_(lock, result, token);                                                                         \
    }                                                                                                                      \
    storage LW_INLINE int name##_clocklock(type *lock, int clock, const struct timespec *time)                             \
        LW_TRY_ACQUIRE(0, lock) LW_NO_ANALYSIS {                                                                           \
        lw_token token = 0;                                                                                                \
        int result = (ops_)->clocklock(raw_, clock, time, &token);                                                         \
        return name##_taken_(lock, result, token);                                                                         \
    }                                                                                                                      \
    storage LW_INLINE int name##_unlock(type *lock) LW_RELEASE(lock) LW_NO_ANALYSIS {                                      \
        lw_token token = lock->token;                                                                                      \
        LW_TSAN_RELEASE(raw_);                                                                                             \
        (ops_)->unlock(raw_, token);                                                                                       \
        return 0;                                                                                                          \
    }                                                                                                                      \
    /* ENOTSUP if the lock has no fair unlock: then the caller still holds it. */                                          \
    storage LW_INLINE int name##_unlock_fair(type *lock) LW_NO_ANALYSIS {                                                  \
        lw_token token = lock->token;                                                                                      \
        if (!(ops_)->unlock_fair) {                                                                                        \
            return ENOTSUP;                                                                                                \
        }                                                                                                                  \
        LW_TSAN_RELEASE(raw_);                                                                                             \
        (ops_)->unlock_fair(raw_, token);                                                                                  \
        return 0;                                                                                                          \
    }

/* The functions of a reader-writer lock. ThreadSanitizer: the token's address stands for writers, that of its second half for
 * upgradable readers, and the lock's for readers. */
#define LW_UPGRADERS_(lock) (LW_CAST_(char *, &(lock)->token) + 4)
#define LW_RWLOCK_FUNCTIONS_(storage, name, type, ops_, raw_)                                                              \
    storage LW_INLINE int name##_read_(type *lock, int result) {                                                           \
        if (result == 0) {                                                                                                 \
            LW_TSAN_ACQUIRE(&lock->token);                                                                                 \
        }                                                                                                                  \
        return result;                                                                                                     \
    }                                                                                                                      \
    storage LW_INLINE int name##_upgradable_(type *lock, int result) {                                                     \
        if (result == 0) {                                                                                                 \
            LW_TSAN_ACQUIRE(&lock->token);                                                                                 \
            LW_TSAN_ACQUIRE(LW_UPGRADERS_(lock));                                                                          \
        }                                                                                                                  \
        return result;                                                                                                     \
    }                                                                                                                      \
    storage LW_INLINE int name##_written_(type *lock, int result, lw_token token) {                                        \
        if (result == 0) {                                                                                                 \
            LW_TSAN_ACQUIRE(&lock->token);                                                                                 \
            LW_TSAN_ACQUIRE(raw_);                                                                                         \
            lock->token = token;                                                                                           \
        }                                                                                                                  \
        return result;                                                                                                     \
    }                                                                                                                      \
    storage LW_INLINE int name##_rdlock(type *lock, lw_token *token) LW_ACQUIRE_SHARED(lock) LW_NO_ANALYSIS {              \
        *token = (ops_)->rdlock(raw_);                                                                                     \
        return name##_read_(lock, 0);                                                                                      \
    }                                                                                                                      \
    storage LW_INLINE int name##_tryrdlock(type *lock, lw_token *token) LW_TRY_ACQUIRE_SHARED(0, lock) LW_NO_ANALYSIS {    \
        return name##_read_(lock, (ops_)->tryrdlock(raw_, token));                                                         \
    }                                                                                                                      \
    storage LW_INLINE int name##_clockrdlock(type *lock, int clock, const struct timespec *time, lw_token *token)          \
        LW_TRY_ACQUIRE_SHARED(0, lock) LW_NO_ANALYSIS {                                                                    \
        return name##_read_(lock, (ops_)->clockrdlock(raw_, clock, time, token));                                          \
    }                                                                                                                      \
    storage LW_INLINE int name##_rdunlock(type *lock, lw_token token) LW_RELEASE_SHARED(lock) LW_NO_ANALYSIS {             \
        LW_TSAN_RELEASE(raw_);                                                                                             \
        (ops_)->rdunlock(raw_, token);                                                                                     \
        return 0;                                                                                                          \
    }                                                                                                                      \
    storage LW_INLINE int name##_wrlock(type *lock) LW_ACQUIRE(lock) LW_NO_ANALYSIS {                                      \
        return name##_written_(lock, 0, (ops_)->wrlock(raw_));                                                             \
    }                                                                                                                      \
    storage LW_INLINE int name##_trywrlock(type *lock) LW_TRY_ACQUIRE(0, lock) LW_NO_ANALYSIS {                            \
        lw_token token = 0;                                                                                                \
        int result = (ops_)->trywrlock(raw_, &token);                                                                      \
        return name##_written_(lock, result, token);                                                                       \
    }                                                                                                                      \
    storage LW_INLINE int name##_clockwrlock(type *lock, int clock, const struct timespec *time)                           \
        LW_TRY_ACQUIRE(0, lock) LW_NO_ANALYSIS {                                                                           \
        lw_token token = 0;                                                                                                \
        int result = (ops_)->clockwrlock(raw_, clock, time, &token);                                                       \
        return name##_written_(lock, result, token);                                                                       \
    }                                                                                                                      \
    storage LW_INLINE int name##_wrunlock(type *lock) LW_RELEASE(lock) LW_NO_ANALYSIS {                                    \
        lw_token token = lock->token;                                                                                      \
        LW_TSAN_RELEASE(&lock->token);                                                                                     \
        (ops_)->wrunlock(raw_, token);                                                                                     \
        return 0;                                                                                                          \
    }                                                                                                                      \
    /* ENOTSUP if the lock cannot: then the caller still writes. */                                                        \
    storage LW_INLINE int name##_downgrade(type *lock, lw_token *token) LW_NO_ANALYSIS {                                   \
        lw_token written = lock->token;                                                                                    \
        if (!(ops_)->downgrade) {                                                                                          \
            *token = 0; /* else compilers warn of its use */                                                               \
            return ENOTSUP;                                                                                                \
        }                                                                                                                  \
        LW_TSAN_RELEASE(&lock->token);                                                                                     \
        *token = (ops_)->downgrade(raw_, written);                                                                         \
        return 0;                                                                                                          \
    }                                                                                                                      \
    /* Upgradable reads. ENOTSUP if the lock has none: then the acquisition stays as it was. */                            \
    storage LW_INLINE int name##_uplock(type *lock, lw_token *token) LW_TRY_ACQUIRE_SHARED(0, lock) LW_NO_ANALYSIS {       \
        if (!(ops_)->upgrade) {                                                                                            \
            *token = 0;                                                                                                    \
            return ENOTSUP;                                                                                                \
        }                                                                                                                  \
        *token = (ops_)->upgrade->uplock(raw_);                                                                            \
        return name##_upgradable_(lock, 0);                                                                                \
    }                                                                                                                      \
    storage LW_INLINE int name##_tryuplock(type *lock, lw_token *token) LW_TRY_ACQUIRE_SHARED(0, lock) LW_NO_ANALYSIS {    \
        return (ops_)->upgrade ? name##_upgradable_(lock, (ops_)->upgrade->tryuplock(raw_, token)) : ENOTSUP;              \
    }                                                                                                                      \
    storage LW_INLINE int name##_clockuplock(type *lock, int clock, const struct timespec *time, lw_token *token)          \
        LW_TRY_ACQUIRE_SHARED(0, lock) LW_NO_ANALYSIS {                                                                    \
        if (!(ops_)->upgrade) {                                                                                            \
            return ENOTSUP;                                                                                                \
        }                                                                                                                  \
        return name##_upgradable_(lock, (ops_)->upgrade->clockuplock(raw_, clock, time, token));                           \
    }                                                                                                                      \
    storage LW_INLINE int name##_upunlock(type *lock, lw_token token) LW_RELEASE_SHARED(lock) LW_NO_ANALYSIS {             \
        if (!(ops_)->upgrade) {                                                                                            \
            return ENOTSUP;                                                                                                \
        }                                                                                                                  \
        LW_TSAN_RELEASE(raw_);                                                                                             \
        LW_TSAN_RELEASE(LW_UPGRADERS_(lock));                                                                              \
        (ops_)->upgrade->upunlock(raw_, token);                                                                            \
        return 0;                                                                                                          \
    }                                                                                                                      \
    /* Ends the upgradable read: the caller writes. */                                                                     \
    storage LW_INLINE int name##_upgrade(type *lock, lw_token token) LW_NO_ANALYSIS {                                      \
        if (!(ops_)->upgrade) {                                                                                            \
            return ENOTSUP;                                                                                                \
        }                                                                                                                  \
        return name##_written_(lock, 0, (ops_)->upgrade->upgrade(raw_, token));                                            \
    }                                                                                                                      \
    /* If these two fail, the upgradable read goes on, with the token that they leave in `token`. */                       \
    storage LW_INLINE int name##_tryupgrade(type *lock, lw_token *token) LW_NO_ANALYSIS {                                  \
        int result = (ops_)->upgrade ? (ops_)->upgrade->tryupgrade(raw_, token) : ENOTSUP;                                 \
        return name##_written_(lock, result, *token);                                                                      \
    }                                                                                                                      \
    storage LW_INLINE int name##_clockupgrade(type *lock, int clock, const struct timespec *time, lw_token *token)         \
        LW_NO_ANALYSIS {                                                                                                   \
        int result = (ops_)->upgrade ? (ops_)->upgrade->clockupgrade(raw_, clock, time, token) : ENOTSUP;                  \
        return name##_written_(lock, result, *token);                                                                      \
    }                                                                                                                      \
    /* Turns the token of an upgradable read into that of a plain one. */                                                  \
    storage LW_INLINE int name##_downgrade_upgradable(type *lock, lw_token *token) LW_NO_ANALYSIS {                        \
        if (!(ops_)->upgrade) {                                                                                            \
            return ENOTSUP;                                                                                                \
        }                                                                                                                  \
        LW_TSAN_RELEASE(LW_UPGRADERS_(lock));                                                                              \
        *token = (ops_)->upgrade->downgrade_upgradable(raw_, *token);                                                      \
        return 0;                                                                                                          \
    }                                                                                                                      \
    storage LW_INLINE int name##_downgrade_to_upgradable(type *lock, lw_token *token) LW_NO_ANALYSIS {                     \
        lw_token written = lock->token;                                                                                    \
        if (!(ops_)->upgrade) {                                                                                            \
            *token = 0;                                                                                                    \
            return ENOTSUP;                                                                                                \
        }                                                                                                                  \
        LW_TSAN_RELEASE(&lock->token);                                                                                     \
        *token = (ops_)->upgrade->downgrade_to_upgradable(raw_, written);                                                  \
        return 0;                                                                                                          \
    }

LW_MUTEX_FUNCTIONS_(, lw_any_mutex, lw_any_mutex_t, lock->ops, lock->raw)
LW_RWLOCK_FUNCTIONS_(, lw_any_rwlock, lw_any_rwlock_t, lock->ops, lock->raw)

#define LW_MUTEX_TYPE_(name, bytes, align, kind)                                                                             \
    extern const lw_mutex_ops lw_##name##_ops;                                                                             \
    typedef struct LW_CAPABILITY("mutex") lw_##name {                                                                      \
        uint64_t raw[(bytes) / 8] __attribute__((__aligned__(align)));                                                         \
        lw_token token;                                                                                                    \
    } lw_##name##_t;                                                                                                       \
    LW_MUTEX_FUNCTIONS_(, lw_##name, lw_##name##_t, &lw_##name##_ops, lock->raw)

#define LW_RWLOCK_TYPE_(name, bytes, align, kind)                                                                            \
    extern const lw_rwlock_ops lw_##name##_ops;                                                                            \
    typedef struct LW_CAPABILITY("mutex") lw_##name {                                                                      \
        uint64_t raw[(bytes) / 8] __attribute__((__aligned__(align)));                                                         \
        lw_token token;                                                                                                    \
    } lw_##name##_t;                                                                                                       \
    LW_RWLOCK_FUNCTIONS_(, lw_##name, lw_##name##_t, &lw_##name##_ops, lock->raw)                                            \
    LW_INLINE void lw_##name##_destroy(lw_##name##_t *lock) { lw_##name##_ops.destroy(lock->raw); }

#include "registered.h"

#undef LW_MUTEX_TYPE_
#undef LW_RWLOCK_TYPE_

LW_END_C

#endif

/* RCU: readers mark sections with plain instructions, and what was removed is reclaimed when no section is left that may
 * have found it. Sections are the process's: one protects what is retired in any domain of its flavour.
 *
 *     lw_rcu_read_lock();                                   // a reader: it waits for no thread
 *     struct route *route = lw_rcu_dereference(&table);
 *     use(route);
 *     lw_rcu_read_unlock();
 *
 *     struct route *old = lw_rcu_exchange(&table, new);     // an updater
 *     lw_rcu_call(NULL, &old->head, free_route);            // or lw_rcu_synchronize(); free_route(&old->head);
 *
 * | flavour | sections | functions |
 * | general | a few plain instructions | lw_rcu_* |
 * | epochs | the same | lw_epoch_* |
 * | quiescent-state-based | nothing; the thread announces quiescent states | lw_qsbr_* |
 *
 * lw_*_call, lw_*_retire and lw_*_collect never wait (unless lw_rcu_set_limit asks for it), and run callbacks of this and other
 * objects, in the calling thread: do not call them while you hold a lock that a callback takes.
 *
 * A callback may call and retire. It must not call a barrier. It may wait for readers, unless the thread that runs it is one.
 * In a section of that thread, lw_rcu_synchronize ends the process, with a message. If that thread is online, so do
 * lw_qsbr_synchronize, lw_qsbr_offline, lw_qsbr_domain_destroy, and a lw_qsbr_quiescent that has something to announce: they would
 * have reclaimed what the thread reads. So either callbacks do not wait, or threads retire and collect outside of sections, and
 * offline. */
#ifndef LATCHWORK_RCU_H
#define LATCHWORK_RCU_H

#include "base.h"

LW_BEGIN_C

/* Room inside of an object for what the library notes about it once it is retired. Zero it, or leave it as it is. */
typedef struct lw_rcu_head {
    void *words[4];
} lw_rcu_head;

LW_STATIC_ASSERT(sizeof(lw_rcu_head) == 32, "lw_rcu_head has another layout");

/* Ends the life of an object, of which `head` is a part. Any thread may run it, and several may run at the same time. */
typedef void lw_rcu_callback(struct lw_rcu_head *head);

/* Objects that are retired together. Null stands for the default domain of the process. */
typedef struct lw_rcu_domain lw_rcu_domain;
typedef struct lw_epoch_domain lw_epoch_domain;
typedef struct lw_qsbr_domain lw_qsbr_domain;

/* The bits of a record's word that count nested sections, and the bit that says that the next section begins with a full
 * fence: the thread has no light fence, or it rests. */
#define LW_RCU_NESTING_ 0xffffu

void lw_rcu_read_lock_slow(void) LW_NOEXCEPT LW_COLD;
void lw_epoch_enter_slow(void) LW_NOEXCEPT LW_COLD;
void lw_qsbr_quiescent_slow(void) LW_NOEXCEPT LW_COLD;

/* Begins the outermost section of a thread that is known. 0: the section is nested, or the thread rests or has no
 * light fences. */
LW_INLINE int lw_section_enter_(uint64_t *word, const uint64_t *clock) {
    if (LW_UNLIKELY((__atomic_load_n(word, __ATOMIC_RELAXED) & LW_RCU_NESTING_) != 0)) {
        return 0;
    }
    /* Acquire: a section with this stamp finds nothing that was removed before the clock advanced. */
    __atomic_store_n(word, __atomic_load_n(clock, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
    /* Pairs with the membarrier of the thread that waits: it sees the stamp, or the section begins after that. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    return 1;
}

/* Begins a section. Sections nest, up to 32,767 deep; one more ends the process. */
LW_INLINE void lw_rcu_read_lock(void) {
    struct lw_record *record = lw_thread.record;
    if (LW_UNLIKELY(!record) || LW_UNLIKELY(!lw_section_enter_(&record->section, &lw_thread.clocks->grace))) {
        lw_rcu_read_lock_slow();
    }
    LW_TSAN_ACQUIRE(lw_thread.clocks);
}

/* How deep a thread is in sections that this word of its record counts. */
LW_INLINE uint64_t lw_section_depth_(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_RELAXED) & 0x7fff; }

/* Whether the calling thread is in a section. */
LW_INLINE int lw_rcu_is_reading(void) {
    const struct lw_record *record = lw_thread.record;
    return record && lw_section_depth_(&record->section) != 0;
}

/* Ends the innermost section of the calling thread. There must be one: with LW_DEBUG, the process ends with a message if not. */
LW_INLINE void lw_rcu_read_unlock(void) {
    uint64_t *word;
#if LW_DEBUG
    if (!lw_rcu_is_reading()) {
        lw_debug_no_section("lw_rcu_read_unlock");
    }
#endif
    word = &lw_thread.record->section;
    LW_TSAN_RELEASE(lw_thread.clocks);
    /* Release: what was done in the section happens before the end of the grace period that waits for it. */
    __atomic_store_n(word, __atomic_load_n(word, __ATOMIC_RELAXED) - 1, __ATOMIC_RELEASE);
}

/* Sections of epoch-based reclamation. */
LW_INLINE void lw_epoch_enter(void) {
    struct lw_record *record = lw_thread.record;
    if (LW_UNLIKELY(!record) || LW_UNLIKELY(!lw_section_enter_(&record->pinned, &lw_thread.clocks->epoch))) {
        lw_epoch_enter_slow();
    }
    LW_TSAN_ACQUIRE(lw_thread.clocks);
}

LW_INLINE void lw_epoch_leave(void) {
    uint64_t *word;
#if LW_DEBUG
    if (!lw_thread.record || lw_section_depth_(&lw_thread.record->pinned) == 0) {
        lw_debug_no_section("lw_epoch_leave");
    }
#endif
    word = &lw_thread.record->pinned;
    LW_TSAN_RELEASE(lw_thread.clocks);
    __atomic_store_n(word, __atomic_load_n(word, __ATOMIC_RELAXED) - 1, __ATOMIC_RELEASE);
}

/* With LW_DEBUG: ends the process if the calling thread is in no section, of whichever flavour, and is not online. */
LW_INLINE void lw_rcu_check_section_(const char *function) {
#if LW_DEBUG
    const struct lw_record *record = lw_thread.record;
    if (!record || (lw_section_depth_(&record->section) | lw_section_depth_(&record->pinned) |
                    lw_section_depth_(&record->online)) == 0) {
        lw_debug_no_section(function);
    }
#else
    (void)function;
#endif
}

/* With LW_DEBUG: ends the process if the condition does not hold. Without, the condition is not even computed. */
#if LW_DEBUG
#define LW_DEBUG_PROTECTED_(condition) ((condition) ? (void)0 : lw_debug_unprotected(#condition))
#else
#define LW_DEBUG_PROTECTED_(condition) ((void)sizeof(!(condition)))
#endif

/* Reads a pointer, in a section: a plain one, not an _Atomic one. With LW_DEBUG, the process ends with a message if the thread
 * is in none: neither in one of lw_rcu_read_lock or lw_epoch_enter, nor online. */
#define lw_rcu_dereference(from) (lw_rcu_check_section_("lw_rcu_dereference"), __atomic_load_n((from), __ATOMIC_ACQUIRE))
/* Reads a pointer where it cannot change: `condition` says why, for example that the caller has the lock of the updaters. With
 * LW_DEBUG, the process ends with a message if the condition does not hold; without, it is not computed. */
#define lw_rcu_dereference_protected(from, condition) (LW_DEBUG_PROTECTED_(condition), __atomic_load_n((from), __ATOMIC_RELAXED))
/* Reads a pointer that is only compared, and not followed: no section is needed. */
#define lw_rcu_access_pointer(from) __atomic_load_n((from), __ATOMIC_RELAXED)
/* Stores a pointer so that readers who find it see the object behind it. */
#define lw_rcu_assign(to, pointer) __atomic_store_n((to), (pointer), __ATOMIC_RELEASE)
/* The same, and returns the pointer that stood there. */
#define lw_rcu_exchange(to, pointer) __atomic_exchange_n((to), (pointer), __ATOMIC_ACQ_REL)
/* The same if `*expected` stands there. Returns whether it did; if not, `*expected` is what stands there, which a section may
 * follow. */
#define lw_rcu_compare_exchange(to, expected, pointer) \
    __atomic_compare_exchange_n((to), (expected), (pointer), 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)

/* What is retired and not reclaimed yet. */
typedef struct lw_garbage {
    uint64_t objects;
    uint64_t bytes;        /* each object rounded up to 16; without what it owns */
    uint64_t oldest_nanos; /* for how long the oldest object has been waiting, at least */
} lw_garbage;

/* Waits until every section that runs now is over. For each section, one of two holds: all that it did happens before the
 * return, or it sees all that the caller did before the call. In a section of the caller's own it ends the process, with a
 * message: it would wait for ever. */
void lw_rcu_synchronize(void) LW_NOEXCEPT;
/* The same in a hurry: the waiting thread burns a processor for it. */
void lw_rcu_synchronize_expedited(void) LW_NOEXCEPT;
/* Begins a grace period, for lw_rcu_poll. If one is open already, it takes a call of lw_rcu_poll to begin the next.
 * A grace period costs a membarrier, unless all threads only update or have just begun a section. */
uint64_t lw_rcu_start_poll(void) LW_NOEXCEPT;
/* Whether every section is over that ran when the number was made; if so, as after lw_rcu_synchronize. It does not wait. */
int lw_rcu_poll(uint64_t number) LW_NOEXCEPT;

/* Has `callback(head)` called when every section is over that runs now, and after all that these have done. It never waits,
 * allocates nothing for the object, and may be called in a section. The object has been removed: a section that begins now does
 * not find it. */
void lw_rcu_call(lw_rcu_domain *domain, lw_rcu_head *head, lw_rcu_callback *callback) LW_NOEXCEPT;
/* As lw_rcu_call, and notes the time: an lw_rcu_barrier in a section that begins later does not wait for that section on
 * account of this object. It costs an atomic read-modify-write of the word that every reader loads. */
void lw_rcu_call_ordered(lw_rcu_domain *domain, lw_rcu_head *head, lw_rcu_callback *callback) LW_NOEXCEPT;
/* Has `reclaim(object)` called then, for an object that has no head. Returns 0, or ENOMEM: then nothing was done. */
int lw_rcu_retire(lw_rcu_domain *domain, void *object, void (*reclaim)(void *object)) LW_NOEXCEPT;
/* Waits until everything is reclaimed that was retired before. In a callback it ends the process, with a message. In a
 * section it returns if everything was retired by lw_rcu_call_ordered before the section began; else it waits for the end
 * of that very section, and so for ever. */
void lw_rcu_barrier(lw_rcu_domain *domain) LW_NOEXCEPT;
/* For debug checks, before an object is retired: 0 if it is retired already and not reclaimed. It takes a lock. */
int lw_rcu_is_first_retirement(const lw_rcu_head *head) LW_NOEXCEPT;
/* Reclaims what can be reclaimed without waiting. */
void lw_rcu_collect(lw_rcu_domain *domain) LW_NOEXCEPT;
/* Has threads that retire in a domain outside of sections wait while the domain has more garbage than this: for a grace period,
 * and for `wait_nanos` nanoseconds at most. 0: they never wait, and the garbage grows. If a wait ends without a grace period, no
 * thread waits until that grace period is over. The bytes are those of lw_garbage. A domain whose limit was never set has none, and
 * retiring never waits there. With a limit, do not retire while you hold a lock that a reader takes in its section. */
void lw_rcu_set_limit(lw_rcu_domain *domain, uint64_t objects, uint64_t bytes, uint64_t wait_nanos) LW_NOEXCEPT;
/* Is told that `thread`, the number that gettid() returns there, has held up a grace period for `nanos` nanoseconds. */
typedef void lw_rcu_stall_hook(int thread, uint64_t nanos, void *context);
/* Sets a function that is called when a thread stays in its section for so long that a grace period does not end: when the grace
 * period has been open for `after_nanos` (0: 10 seconds), each time that it has been open for as long again, and when a wait of
 * lw_rcu_set_limit has ended without it. The function runs in a thread that retires, collects, waits or polls, because such a
 * thread notices. It must not wait for readers, nor call a barrier. It replaces the domain's previous one, which another thread may
 * still be in. A null function: no thread is told.
 *
 * A null domain stands for all that the process has by itself: the default domain, that of C++, the maps, and the grace periods of
 * lw_rcu_synchronize and lw_rcu_poll. Then several threads may call the function at the same time. The function is not called for
 * lw_epoch_* and lw_qsbr_*. */
void lw_rcu_on_stall(lw_rcu_domain *domain, uint64_t after_nanos, lw_rcu_stall_hook *hook, void *context) LW_NOEXCEPT;
/* Whether a thread holds up a grace period right now, and if so, which one and for how long. If there are several, the one that
 * does so for the longest. The domain is as in lw_rcu_on_stall. */
int lw_rcu_stall(lw_rcu_domain *domain, int *thread, uint64_t *nanos) LW_NOEXCEPT;
/* How much garbage there is. */
void lw_rcu_garbage(lw_rcu_domain *domain, lw_garbage *garbage) LW_NOEXCEPT;
/* A new domain, or null if there is no memory. */
lw_rcu_domain *lw_rcu_domain_create(void) LW_NOEXCEPT;
/* Reclaims everything in the domain, waiting for readers, and ends it. No thread uses it any more. In a section of the caller's
 * own it ends the process, with a message, if an object is left: it would wait for ever. Null is ignored: the default domain
 * cannot be ended. */
void lw_rcu_domain_destroy(lw_rcu_domain *domain) LW_NOEXCEPT;
/* The default domain: the same object for the whole process. */
lw_rcu_domain *lw_rcu_default_domain(void) LW_NOEXCEPT __attribute__((__const__));
/* A second domain of the whole process, for objects that are retired by lw_rcu_call_ordered only: that of rcu_default_domain() in
 * latchwork/rcu. */
lw_rcu_domain *lw_rcu_ordered_domain(void) LW_NOEXCEPT __attribute__((__const__));

/* The same for epochs. In a section of the caller's own, lw_epoch_barrier ends the process, with a message. */
void lw_epoch_call(lw_epoch_domain *domain, lw_rcu_head *head, lw_rcu_callback *callback) LW_NOEXCEPT;
int lw_epoch_retire(lw_epoch_domain *domain, void *object, void (*reclaim)(void *object)) LW_NOEXCEPT;
void lw_epoch_barrier(lw_epoch_domain *domain) LW_NOEXCEPT;
void lw_epoch_collect(lw_epoch_domain *domain) LW_NOEXCEPT;
void lw_epoch_garbage(lw_epoch_domain *domain, lw_garbage *garbage) LW_NOEXCEPT;
lw_epoch_domain *lw_epoch_domain_create(void) LW_NOEXCEPT;
void lw_epoch_domain_destroy(lw_epoch_domain *domain) LW_NOEXCEPT;

/* Quiescent-state-based RCU. A thread is online from lw_qsbr_online to lw_qsbr_offline, or to its exit, and may read at any
 * time meanwhile. Grace periods wait until it announces a quiescent state, in which it keeps no reference to what it has
 * read, or goes offline. So a thread goes offline around whatever may take long: epoll_wait, a lock, a sleep, a barrier of another
 * flavour. Calls do not nest. */
void lw_qsbr_online(void) LW_NOEXCEPT;
void lw_qsbr_offline(void) LW_NOEXCEPT;
void lw_qsbr_call(lw_qsbr_domain *domain, lw_rcu_head *head, lw_rcu_callback *callback) LW_NOEXCEPT;
int lw_qsbr_retire(lw_qsbr_domain *domain, void *object, void (*reclaim)(void *object)) LW_NOEXCEPT;
/* Like lw_rcu_synchronize, lw_rcu_barrier and lw_rcu_domain_destroy. In lw_qsbr_synchronize, lw_qsbr_barrier and
 * lw_qsbr_domain_destroy, a thread that is online goes offline for the time of the call: what it has read before may be gone
 * afterwards. Callbacks that run meanwhile may go online, and are offline again when they return. The other flavours' functions
 * leave the thread online. */
void lw_qsbr_synchronize(void) LW_NOEXCEPT;
void lw_qsbr_barrier(lw_qsbr_domain *domain) LW_NOEXCEPT;
void lw_qsbr_collect(lw_qsbr_domain *domain) LW_NOEXCEPT;
void lw_qsbr_garbage(lw_qsbr_domain *domain, lw_garbage *garbage) LW_NOEXCEPT;
lw_qsbr_domain *lw_qsbr_domain_create(void) LW_NOEXCEPT;
void lw_qsbr_domain_destroy(lw_qsbr_domain *domain) LW_NOEXCEPT;
/* Like lw_rcu_start_poll and lw_rcu_poll, and without a membarrier. A caller that is online stays so: the answer is 0 until it has
 * announced a quiescent state itself. */
uint64_t lw_qsbr_start_poll(void) LW_NOEXCEPT;
int lw_qsbr_poll(uint64_t number) LW_NOEXCEPT;

/* Announces a quiescent state of a thread that is online. Two loads if no grace period has begun since the last one. */
LW_INLINE void lw_qsbr_quiescent(void) {
    LW_TSAN_RELEASE(lw_thread.clocks);
    /* 0x8000: the thread has said so for those below it as well. */
    if (LW_UNLIKELY((__atomic_load_n(&lw_thread.record->online, __ATOMIC_RELAXED) ^
                     __atomic_load_n(&lw_thread.clocks->grace, __ATOMIC_RELAXED)) != 0x8000)) {
        lw_qsbr_quiescent_slow();
    }
}

LW_END_C

#endif

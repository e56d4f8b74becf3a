/* Hazard pointers: a reader publishes which object it uses, and no thread reclaims that one object. The garbage is bounded
 * whatever readers do. There may be any number of hazard pointers, and one may move from thread to thread, but only one
 * thread at a time uses it.
 *
 *     lw_hazard *hazard = lw_hazard_make();
 *     struct node *node = lw_hazard_protect(hazard, &stack, offsetof(struct node, head));
 *     use(node);
 *     lw_hazard_clear(hazard);
 *     lw_hazard_destroy(hazard);
 *
 *     lw_hazard_retire(&removed->head, free_node);
 *
 * Every 256th object that is retired has a thread look which ones are protected, or each one after twice as many as there are
 * hazard pointers, if that is more. After a pause of 10 ms, the next object does so too. Until an object is retired, or a
 * program calls lw_hazard_collect, nothing is reclaimed.
 *
 * An object has a lw_rcu_head, at any offset. An object without one is protected with the offset 0, and retired by
 * lw_hazard_retire_ptr, which allocates. */
#ifndef LATCHWORK_HAZARD_H
#define LATCHWORK_HAZARD_H

#include "rcu.h"

LW_BEGIN_C

typedef struct lw_hazard {
    uintptr_t protected_head; /* 0, or the address of the head of the object that is protected */
    uint32_t fenced;          /* not 0 if the process has no light fences */
    void *next;
} __attribute__((__aligned__(64))) lw_hazard;

LW_STATIC_ASSERT(sizeof(lw_hazard) == 64 && offsetof(lw_hazard, fenced) == 8, "lw_hazard has another layout");

/* A hazard pointer that protects nothing, or null if there is no memory. */
lw_hazard *lw_hazard_make(void) LW_NOEXCEPT;
/* Ends the protection, and the hazard pointer. Null is ignored. */
void lw_hazard_destroy(lw_hazard *hazard) LW_NOEXCEPT;
/* Has `callback(head)` called when no hazard pointer protects the object. The object has been removed from where readers find
 * it. It never waits and allocates nothing; it may run callbacks of this and other objects, in the calling thread. A callback
 * may make, use and destroy hazard pointers, and retire. rcu.h says when it may wait for readers of RCU. */
void lw_hazard_retire(lw_rcu_head *head, lw_rcu_callback *callback) LW_NOEXCEPT;
/* Has `reclaim(object)` called then, for an object that has no head. `object` is the pointer that readers protect: that of
 * lw_hazard_protect with the offset 0. Returns 0, or ENOMEM: then nothing was done. */
int lw_hazard_retire_ptr(void *object, void (*reclaim)(void *object)) LW_NOEXCEPT;
/* Reclaims every object that was retired before and is not protected, but for those that another thread is reclaiming right now.
 * What the callbacks of these objects retire is left for the next call. So the call ends, even if a callback always retires
 * anew. */
void lw_hazard_collect(void) LW_NOEXCEPT;
/* How much garbage there is; `oldest_nanos` is 0. */
void lw_hazard_garbage(lw_garbage *garbage) LW_NOEXCEPT;

/* Objects that are retired together. */
typedef struct lw_hazard_domain lw_hazard_domain;

/* A new domain: objects that are retired together. Null if there is no memory. */
lw_hazard_domain *lw_hazard_domain_create(void) LW_NOEXCEPT;
/* Reclaims everything in the domain, with what its callbacks retire there, and ends it. No other thread uses it any more.
 * Returns 0, or EBUSY if an object is still protected, or if a callback of the domain calls this: then the domain goes on. Null
 * is ignored: the default domain cannot be ended. */
int lw_hazard_domain_destroy(lw_hazard_domain *domain) LW_NOEXCEPT;
/* As lw_hazard_retire, lw_hazard_retire_ptr, lw_hazard_collect and lw_hazard_garbage, for the objects of a domain. Null stands
 * for the default domain, which those functions use. Hazard pointers protect objects of all domains. */
void lw_hazard_domain_retire(lw_hazard_domain *domain, lw_rcu_head *head, lw_rcu_callback *callback) LW_NOEXCEPT;
int lw_hazard_domain_retire_ptr(lw_hazard_domain *domain, void *object, void (*reclaim)(void *object)) LW_NOEXCEPT;
void lw_hazard_domain_collect(lw_hazard_domain *domain) LW_NOEXCEPT;
void lw_hazard_domain_garbage(lw_hazard_domain *domain, lw_garbage *garbage) LW_NOEXCEPT;

/* Protects the object with this head, or nothing if `head` is null. For an object without a head, `head` is the object's
 * address. That counts only if the object is still linked afterwards: lw_hazard_protect looks. */
LW_INLINE void lw_hazard_set(lw_hazard *hazard, const lw_rcu_head *head) {
    LW_TSAN_RELEASE(hazard);
    /* Release: what was done with the previous object happens before its reclamation. */
    __atomic_store_n(&hazard->protected_head, LW_CAST_(uintptr_t, head), __ATOMIC_RELEASE);
    if (LW_UNLIKELY(__atomic_load_n(&hazard->fenced, __ATOMIC_RELAXED))) {
        /* As a full fence, which ThreadSanitizer understands. */
        __atomic_fetch_add(&hazard->fenced, 0, __ATOMIC_SEQ_CST);
    }
    /* Pairs with the membarrier of a scan: it sees the address, or what follows sees that the object was removed. */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Ends the protection. */
LW_INLINE void lw_hazard_clear(lw_hazard *hazard) {
    LW_TSAN_RELEASE(hazard);
    __atomic_store_n(&hazard->protected_head, 0, __ATOMIC_RELEASE);
}

/* Reads a pointer to an object and protects the object. `head` is the offset of the head in the object, or 0 if the object
 * has no head. */
LW_INLINE void *lw_hazard_protect(lw_hazard *hazard, const void *from, size_t head) {
    void *const *place = LW_CAST_(void *const *, from);
    void *object = __atomic_load_n(place, __ATOMIC_RELAXED);
    for (;;) {
        void *now;
        lw_hazard_set(hazard, object ? LW_CAST_(const lw_rcu_head *, LW_CAST_(uintptr_t, object) + head) : LW_NULL_);
        now = __atomic_load_n(place, __ATOMIC_ACQUIRE);
        if (LW_LIKELY(now == object)) {
            return object;
        }
        object = now;
    }
}

LW_END_C

#endif

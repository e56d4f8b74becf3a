//! K42's MCS: a queue lock whose holder has no node.
//!
//! Source: Auslander, Edelsohn, Krieger, Rosenburg and Wisniewski, "Enhancement to the MCS Lock for Increased Functionality
//! and Improved Programmability", US patent application 2003/0200457; as in Scott, "Shared-Memory Synchronization",
//! section 4.3.1.
//!
//! An MCS lock in which the lock stands in for the holder's node. A thread that acquires the lock moves the link to its
//! successor from its own node into the lock, and takes its node out of the queue. So nodes live on the waiters' stacks, and
//! a holder has none.
//!
//! | state | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | `tail` null: the lock is free | HELD: no thread waits | a newcomer; it holds the lock | (A) acquire; `unlock` |
//! | `tail` HELD or a node | a waiter's node | that waiter, on arrival | (C): its successor finds its node initialised |
//! | `tail` the last waiter's node | HELD | that waiter, when it acquires the lock | (C) release, for the next arrival |
//! | `tail` HELD | null | the holder | (A) release |
//! | `next`, the lock's or a node's | the first waiter's node, or the next one's | that waiter; a waiter that acquires copies its own | (D) release; the loads of `next` |
//! | `status` 0 | GRANTED | the holder | (B) release; the waiter's acquire |
//!
//! Size: 16 bytes; 64 per waiter, on its stack; none per holder.
//! Atomics per uncontended pair: 2 (compare-and-exchange).
//! Fairness: FIFO among the threads in the queue. An arriving thread's exchange may fail again and again.
//! Suspension: blocks. A suspended waiter keeps the lock from the waiters behind it, and from newcomers.

use super::local::Local;
use super::{ConstNew, Info, RawMutex, Suspension};
use crate::machine::{Machine, Native, QNode, Word, node_view};
use core::ptr::{null_mut, without_provenance_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

const GRANTED: u32 = 1;

/// K42's lock. See the [module documentation](self).
pub struct RawK42<M: Machine> {
    tail: M::Ptr<QNode<M>>,
    next: M::Ptr<QNode<M>>,
}

impl RawK42<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawK42 { tail: AtomicPtr::new(null_mut()), next: AtomicPtr::new(null_mut()) }
    }
}

const_new!(RawK42<Native>);

node_view! {
    /// A waiter's node.
    struct Node {
        /// The successor, once it has linked itself.
        next: links[0],
        /// 0, then GRANTED; the owner spins here.
        status: words[0],
    }
}

/// HELD: what `tail` is when the lock is held and no thread waits. The lock itself is the last in the queue.
fn held<M: Machine>() -> *mut QNode<M> {
    without_provenance_mut(1)
}

impl<M: Machine> RawK42<M> {
    #[cold]
    #[inline(never)]
    fn lock_slow(&self) {
        let storage = QNode::<M>::new();
        let node = Node(&storage);
        loop {
            let before = self.tail.load(Relaxed);
            if before.is_null() {
                if self.try_lock().is_some() {
                    return;
                }
                M::pause(1);
            // (C) this node is initialised for the next arrival, and the predecessor's for us.
            } else if self.tail.compare_exchange(before, node.as_ptr(), AcqRel, Relaxed).is_ok() {
                let link = if before == held() {
                    &self.next
                } else {
                    // SAFETY: the predecessor keeps its node until it has acquired the lock and moved `next` there.
                    unsafe { Node::at(before) }.next()
                };
                link.store(node.as_ptr(), Release); // (D) pairs with the loads of `next`
                break;
            } else {
                M::pause(1);
            }
        }
        // (B) pairs with the grant in `unlock`.
        M::spin_until(node.status(), Acquire, |status| status == GRANTED);
        self.leave_queue(node);
    }

    /// The holder's node leaves the queue; its link becomes the lock's.
    fn leave_queue(&self, node: Node<'_, M>) {
        let mut next = node.next().load(Acquire); // (D)
        if next.is_null() {
            // Before the exchange: a thread that queues after it links itself here. (C)
            self.next.store(null_mut(), Relaxed);
            if self.tail.compare_exchange(node.as_ptr(), held(), Release, Relaxed).is_ok() {
                return;
            }
            next = M::spin_until(node.next(), Acquire, |next: *mut QNode<M>| !next.is_null());
        }
        self.next.store(next, Relaxed);
    }
}

// SAFETY: a thread enters when its exchange finds the lock free (A), or when the holder, which then leaves, grants it the
// lock (B).
unsafe impl<M: Machine> RawMutex for RawK42<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "k42",
        summary: "K42's MCS: the holder has no node",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "FIFO",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Auslander et al. 2003",
    };

    fn new_in() -> Self {
        RawK42 { tail: M::Ptr::new(null_mut()), next: M::Ptr::new(null_mut()) }
    }

    #[inline]
    fn lock(&self) {
        if self.try_lock().is_none() {
            self.lock_slow();
        }
    }

    #[inline]
    fn try_lock(&self) -> Option<()> {
        // (A) pairs with the exchange in `unlock`. Release: (C) a thread that queues behind the lock itself finds `next`
        // null, as the last holder has left it.
        (self.tail.load(Relaxed).is_null()
            && self.tail.compare_exchange(null_mut(), held(), AcqRel, Relaxed).is_ok())
        .then_some(())
    }

    #[inline]
    unsafe fn unlock(&self, (): ()) {
        let mut next = self.next.load(Acquire); // (D)
        if next.is_null() {
            // (A) the section happens before that of the thread that finds the lock free.
            if self.tail.compare_exchange(held(), null_mut(), Release, Relaxed).is_ok() {
                return;
            }
            next = M::spin_until(&self.next, Acquire, |next: *mut QNode<M>| !next.is_null());
        }
        // SAFETY: the first waiter keeps its node at least until it has been granted the lock.
        // (B) the section happens before the successor's.
        unsafe { Node::at(next).status().store(GRANTED, Release) };
    }

    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}

impl<M: Machine> Local for RawK42<M> {
    unsafe fn has_waiters(&self, (): ()) -> bool {
        self.tail.load(Relaxed) != held()
    }
}

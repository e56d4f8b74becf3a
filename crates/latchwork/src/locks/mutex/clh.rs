//! CLH queue lock.
//!
//! Source: Craig 1993; Magnusson, Landin and Hagersten 1994. The variant with an empty lock word
//! when free follows Scott, "Shared-Memory Synchronization", section 4.3.2.
//!
//! Arrivals swap themselves in as the tail and spin on their *predecessor's* node; a release is
//! one store to one's own node. A waiter takes its predecessor's node over when it gets the lock,
//! so nodes wander between threads and live in type-stable memory.
//!
//! Node state (`status`): PENDING -> RELEASED, written once by its owner. Tail: null when nobody
//! has used the lock yet or the last holder found itself alone, else the last node.
//! Size: 8 bytes; 64 per waiter and per holder, from the machine's node pool. Atomics per
//! uncontended pair: 2 (swap, compare-and-exchange).
//! Suspension: a waiter that is suspended blocks others.
//! Fairness: FIFO.

use super::local::Local;
use super::{ConstNew, Info, RawMutex, Suspension, queue};
use crate::machine::{Machine, Native, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

const PENDING: u32 = 0;
const RELEASED: u32 = 1;

/// CLH lock. See the [module documentation](self).
pub struct RawClh<M: Machine> {
    tail: M::Ptr<QNode<M>>,
}

impl RawClh<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawClh { tail: AtomicPtr::new(null_mut()) }
    }
}

impl Default for RawClh<Native> {
    fn default() -> Self {
        Self::new()
    }
}

impl ConstNew for RawClh<Native> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

node_view! {
    /// A queue node.
    struct Node {
        /// PENDING or RELEASED; the successor spins here.
        status: words[0],
    }
}

fn fresh_node<M: Machine>() -> Node<'static, M> {
    let node = Node(M::acquire_node());
    node.status().store(PENDING, Relaxed);
    node
}

// SAFETY: the queue orders all acquisitions; each waits for its predecessor's RELEASED (B), or
// found the queue empty (A).
unsafe impl<M: Machine> RawMutex for RawClh<M> {
    type Machine = M;
    type Token = NonNull<QNode<M>>;
    const INFO: Info = Info {
        name: "clh",
        summary: "CLH queue spinlock",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 64,
        fairness: "FIFO",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Craig 1993; Magnusson, Landin and Hagersten 1994",
    };

    fn new_in() -> Self {
        RawClh { tail: M::Ptr::new(null_mut()) }
    }

    #[inline]
    fn lock(&self) -> Self::Token {
        let node = fresh_node::<M>();
        // Acquire: (A) pairs with the exchange in `unlock`, and with (C) of the predecessor;
        // release: (C) our successor finds our node pending.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            // SAFETY: a node that was the tail is freed by its successor only, and that is us.
            let before = unsafe { Node::at(before) };
            // (B) pairs with the store in `unlock`.
            M::spin_until(before.status(), Acquire, |status| status == RELEASED);
            // SAFETY: its owner's last access was the store that we saw.
            unsafe { M::release_node(before.0) };
        }
        NonNull::from(node.0)
    }

    #[inline]
    fn try_lock(&self) -> Option<Self::Token> {
        // (A), (C) as in `lock`.
        queue::attempt(&self.tail, || fresh_node().0)
    }

    #[inline]
    unsafe fn unlock(&self, token: Self::Token) {
        // SAFETY: the token is the holder's node, which lives until it is released.
        let node = unsafe { Node::at(token.as_ptr()) };
        // (A) the section happens before whoever finds the queue empty.
        if self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok() {
            // SAFETY: nobody else knows the node any more.
            unsafe { M::release_node(node.0) };
        } else {
            // (B) the section happens before the successor's. The node is the successor's now.
            node.status().store(RELEASED, Release);
        }
    }

    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}

impl<M: Machine> Local for RawClh<M> {
    fn has_waiters(&self, token: Self::Token) -> bool {
        self.tail.load(Relaxed) != token.as_ptr()
    }
}

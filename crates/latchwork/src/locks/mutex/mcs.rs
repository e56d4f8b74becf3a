//! MCS queue lock.
//!
//! Source: Mellor-Crummey and Scott 1991, section 2.4, algorithm 5.
//!
//! Arrivals swap themselves in as the tail of a queue and link themselves behind their
//! predecessor; each spins on a word of its own node, which its predecessor writes at release. One
//! cache line moves per handover however many wait. The holder keeps its node until the release.
//!
//! Node state (`status`): WAITING -> GRANTED, written once by the predecessor.
//! Size: 8 bytes; 64 per waiter and 64 per holder, from the machine's node pool. Atomics per
//! uncontended pair: 2 (swap, compare-and-exchange).
//! Suspension: a waiter that is suspended blocks others.
//! Fairness: FIFO.

use super::local::Local;
use super::{ConstNew, Fair, Info, RawMutex, Suspension, queue};
use crate::machine::{Machine, Native, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

const WAITING: u32 = 0;
const GRANTED: u32 = 1;

/// MCS lock. See the [module documentation](self).
pub struct RawMcs<M: Machine> {
    tail: M::Ptr<QNode<M>>,
}

impl RawMcs<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawMcs { tail: AtomicPtr::new(null_mut()) }
    }
}

impl Default for RawMcs<Native> {
    fn default() -> Self {
        Self::new()
    }
}

impl ConstNew for RawMcs<Native> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

node_view! {
    /// A queue node.
    struct Node {
        /// The successor, once it has linked itself.
        next: links[0],
        /// WAITING or GRANTED; the owner spins here.
        status: words[0],
    }
}

fn fresh_node<M: Machine>() -> Node<'static, M> {
    let node = Node(M::acquire_node());
    node.next().store(null_mut(), Relaxed);
    node.status().store(WAITING, Relaxed);
    node
}

// SAFETY: the queue orders all acquisitions and each is granted once, by its predecessor (B) or by
// finding the queue empty (A).
unsafe impl<M: Machine> RawMutex for RawMcs<M> {
    type Machine = M;
    type Token = NonNull<QNode<M>>;
    const INFO: Info = Info {
        name: "mcs",
        summary: "MCS queue spinlock",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 64,
        fairness: "FIFO",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Mellor-Crummey and Scott 1991, algorithm 5",
    };

    fn new_in() -> Self {
        RawMcs { tail: M::Ptr::new(null_mut()) }
    }

    #[inline]
    fn lock(&self) -> Self::Token {
        let node = fresh_node::<M>();
        // Acquire: (A) pairs with the exchange in `unlock`; release: (C) our successor finds our
        // node initialised.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            // SAFETY: the predecessor stays until it has granted us the lock, which needs `next`.
            // (D) pairs with the spin in `unlock`.
            unsafe { Node::at(before).next().store(node.as_ptr(), Release) };
            // (B) pairs with the grant in `unlock`.
            M::spin_until(node.status(), Acquire, |status| status == GRANTED);
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
        // SAFETY: the token is the holder's node.
        let node = unsafe { Node::at(token.as_ptr()) };
        // (D) pairs with the store of `next` in `lock`.
        let mut next = node.next().load(Acquire);
        if next.is_null() {
            // (A) the section happens before whoever finds the queue empty.
            if self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok() {
                // SAFETY: nobody else knows the node any more.
                unsafe { M::release_node(node.0) };
                return;
            }
            // A successor has swapped the tail but not linked itself yet.
            next = M::spin_until(node.next(), Acquire, |next: *mut QNode<M>| !next.is_null());
        }
        // SAFETY: the successor's node stays at least until it has been granted the lock.
        // (B) the section happens before the successor's.
        unsafe { Node::at(next).status().store(GRANTED, Release) };
        // SAFETY: the successor has linked itself, so nobody will touch our node again.
        unsafe { M::release_node(node.0) };
    }

    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}

impl<M: Machine> Fair for RawMcs<M> {}

impl<M: Machine> Local for RawMcs<M> {
    fn has_waiters(&self, token: Self::Token) -> bool {
        // SAFETY: the token is the holder's node.
        let node = unsafe { Node::at(token.as_ptr()) };
        !node.next().load(Relaxed).is_null() || self.tail.load(Relaxed) != node.as_ptr()
    }
}

//! MCS queue lock.
//!
//! Source: Mellor-Crummey and Scott, "Algorithms for scalable synchronization on shared-memory multiprocessors", 1991,
//! section 2.4, algorithm 5.
//!
//! Each thread that wants the lock brings a node. It swaps its node into `tail`, which makes it the last in the queue, and
//! links the node behind its predecessor's. Then it spins on its own node until the predecessor, on releasing the lock,
//! writes GRANTED there. So a handover moves one cache line, however many threads wait. The holder keeps its node until it
//! releases the lock.
//!
//! | state | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | `tail` null: the lock is free | a node | an arriving thread's swap; it holds the lock | (A) acquire: the exchange in `unlock` |
//! | `tail` a node | another node | an arriving thread's swap; it waits | (C) release: its successor finds its node initialised |
//! | `tail` the holder's node | null | the holder, if no thread is behind it | (A) release |
//! | `next` null | the successor's node | the successor, after its swap | (D) release; the holder's acquire |
//! | `status` WAITING | GRANTED | the holder, on its successor's node | (B) release; the waiter's acquire |
//!
//! Size: 8 bytes; 64 per waiter and 64 per holder, from the machine's node pool.
//! Atomics per uncontended pair: 2 (swap, compare-and-exchange).
//! Fairness: FIFO.
//! Suspension: blocks. A suspended waiter keeps the lock from the waiters behind it, and from newcomers.

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

const_new!(RawMcs<Native>);

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

// SAFETY: `tail` orders all acquisitions. A thread enters when its swap finds the queue empty (A), or when its predecessor,
// which then leaves, grants it the lock (B). So one thread holds the lock at a time, and after the section before.
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
        // Acquire: (A) pairs with the exchange in `unlock`. Release: (C) the successor finds this node initialised.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            // SAFETY: the predecessor keeps its node until it has granted us the lock, and for that it waits for `next`.
            // (D) pairs with the loads of `next` in `unlock`.
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
        // (D) pairs with the store of `next` in `lock`: the successor's node is initialised.
        let mut next = node.next().load(Acquire);
        if next.is_null() {
            // (A) the section happens before that of the thread that finds the queue empty.
            if self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok() {
                // SAFETY: the node is in no queue any more, so no other thread can reach it.
                unsafe { M::release_node(node.0) };
                return;
            }
            // The successor has swapped `tail` but has not linked itself yet.
            next = M::spin_until(node.next(), Acquire, |next: *mut QNode<M>| !next.is_null());
        }
        // SAFETY: the successor keeps its node at least until it has been granted the lock.
        // (B) the section happens before the successor's.
        unsafe { Node::at(next).status().store(GRANTED, Release) };
        // SAFETY: the successor has linked itself, so no thread will touch this node again.
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

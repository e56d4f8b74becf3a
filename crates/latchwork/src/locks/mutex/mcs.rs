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
//! # States
//!
//! | word | from | to | the thread that changes it | ordering |
//! |---|---|---|---|---|
//! | `tail` | null: the lock is free | a node | an arriving thread, with the swap in `lock` or the exchange of `try_lock` (`queue::attempt`); it holds the lock | acquire (A), release (C) |
//! | `tail` | a node | the arriving thread's node | the arriving thread, with the swap in `lock`; it waits | acquire (C), release (C) |
//! | `tail` | the holder's node | null | the holder, with the exchange in `unlock`, if no thread is behind it | release (A) |
//! | `next` of a node | null | the successor's node | the successor in `lock`, after its swap | release (D) |
//! | `status` of a node | WAITING | GRANTED | the holder in `unlock`, on its successor's node | release (B) |
//!
//! A thread that finds the queue empty never gets GRANTED: it holds the lock with WAITING in its node. An attempt that fails
//! changes none of these words.
//!
//! # Orderings
//!
//! | pair | release | acquire | what it orders |
//! |---|---|---|---|
//! | (A) | the exchange in `unlock` that makes `tail` null | the swap in `lock`, or the exchange of `try_lock`, that finds null | the critical section before the next one |
//! | (B) | the store of GRANTED in `unlock` | the waiter's spin in `lock` | the same, for a handover |
//! | (C) | the swap or exchange that puts a node into `tail` | the swap in `lock` that replaces this node | the node's initial `next`, null, before the successor's link: otherwise null could erase the link |
//! | (D) | the store of `next` in `lock` | the loads of `next` in `unlock` | the successor's initial `status`, WAITING, before GRANTED: otherwise WAITING could erase the grant |
//!
//! An exchange that fails is relaxed: in `unlock` the holder then learns of its successor through `next`, with (D).
//!
//! # Properties
//!
//! - Size: 8 bytes for the lock, and a node of 64 for each waiter and for the holder. The node comes from the calling
//!   thread's pool, whose memory is never unmapped, so a node lives for `'static`. It is the token: the thread that unlocks,
//!   which may be another one, gives it back. [`Machine::release_node`] orders a node's next use after this one.
//! - Atomic read-modify-writes per uncontended acquire and release: 2 (swap, compare-and-exchange).
//! - Fairness: FIFO, in the order of the swaps. A failed attempt (`try_lock`) never queues.
//! - Suspension: blocks, as `INFO.suspension` says. A waiter that does not run (preempted, stopped) keeps the lock from the
//!   threads behind it once it is granted. A waiter that stops between its swap and its link keeps the holder in `unlock` as
//!   well. (`INFO.blocking` is another property: whether waiters sleep in the kernel until they are woken.)

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

/// A node from the pool, initialised. Relaxed: (C) shows `next` to the successor, (D) shows `status` to the predecessor.
fn fresh_node<M: Machine>() -> Node<'static, M> {
    let node = Node(M::acquire_node());
    node.next().store(null_mut(), Relaxed);
    node.status().store(WAITING, Relaxed);
    node
}

// SAFETY: `tail` orders all acquisitions. A thread acquires when its swap finds the queue empty (A), or when its predecessor
// grants it the lock and leaves (B). So one thread holds the lock at a time, and (A) and (B) make each critical section
// happen before the next one.
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
        // Acquire: (A) with the exchange in `unlock`; (C) with the predecessor's swap or exchange. Release: (C) with the
        // successor's swap.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            // SAFETY: the predecessor keeps its node until it has granted us the lock. It cannot leave without that: our swap
            // has changed `tail`, so the exchange in its `unlock` fails, and it waits for `next`.
            // (D) pairs with the loads of `next` in `unlock`.
            unsafe { Node::at(before).next().store(node.as_ptr(), Release) };
            // (B) pairs with the grant in `unlock`.
            M::spin_until(node.status(), Acquire, |status| status == GRANTED);
        }
        NonNull::from(node.0)
    }

    #[inline]
    fn try_lock(&self) -> Option<Self::Token> {
        // If `tail` is null, the attempt takes a node and exchanges null for it: acquire (A), release (C). If another thread
        // was faster, the attempt returns the node to the pool.
        queue::attempt(&self.tail, || fresh_node().0)
    }

    #[inline]
    unsafe fn unlock(&self, token: Self::Token) {
        // SAFETY: the token is the holder's node.
        let node = unsafe { Node::at(token.as_ptr()) };
        // (D) with the store of `next` in `lock`: the successor's `status` is WAITING by now.
        let mut next = node.next().load(Acquire);
        if next.is_null() {
            // (A) with the swap that finds null: this critical section happens before that thread's.
            if self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok() {
                // SAFETY: the node is in no queue any more, so no other thread can reach it.
                unsafe { M::release_node(node.0) };
                return;
            }
            // The successor has swapped `tail` but has not linked itself yet.
            next = M::spin_until(node.next(), Acquire, |next: *mut QNode<M>| !next.is_null());
        }
        // SAFETY: the successor keeps its node at least until it has been granted the lock.
        // (B) with the successor's spin: this critical section happens before the successor's.
        unsafe { Node::at(next).status().store(GRANTED, Release) };
        // SAFETY: the successor has linked itself, so no thread will touch this node again.
        unsafe { M::release_node(node.0) };
    }

    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}

// An ordinary release already hands the lock to the first waiter.
impl<M: Machine> Fair for RawMcs<M> {}

// As the lock within a NUMA node, for the cohort locks.
impl<M: Machine> Local for RawMcs<M> {
    unsafe fn has_waiters(&self, token: Self::Token) -> bool {
        // SAFETY: the token is from an acquisition that has not ended, says the caller: it is the holder's node.
        let node = unsafe { Node::at(token.as_ptr()) };
        // `next` first: it lies in the holder's own line. Relaxed: the answer is a hint, about a moment ago.
        !node.next().load(Relaxed).is_null() || self.tail.load(Relaxed) != node.as_ptr()
    }
}

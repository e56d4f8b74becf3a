//! MCS-TP: time-published queue lock.
//!
//! Source: He, Scherer and Scott, "Preemption Adaptivity in Time-Published Queue-Based Spin Locks", HiPC 2005, section 3.
//!
//! With more threads than processors, the next waiter of a queue lock often does not run. Here each waiter keeps publishing
//! the time in its node. A holder that releases the lock passes over the waiters whose time is old. They are out of the
//! queue then, and queue again when they run again.
//!
//! | state | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | `tail` and `next` | as in [`mcs`](super::mcs) | | (A), (C), (D) |
//! | `status` WAITING | GRANTED | the holder | (B) release; the waiter's acquire |
//! | `status` WAITING | SKIPPED: the node is out of the queue | the holder | (E) release; the waiter's acquire |
//! | `status` SKIPPED | WAITING, in a new place | its owner | (C) |
//! | `seen` | the present time | its owner, every [`LOOKS`] looks | none: a guess |
//!
//! Size: 8 bytes; 64 per waiter and 64 per holder, from the machine's node pool.
//! Atomics per uncontended pair: 2 (swap, compare-and-exchange).
//! Fairness: FIFO among waiters that run. A preempted waiter goes to the end of the queue, and so may one that has waited for 20 ms or
//! so: it naps by then (`Offers`), and looks preempted.
//! Suspension: blocks. The lock may be handed to a suspended waiter, and a holder waits for one that has not linked itself.
//!
//! Where it differs from the paper:
//! - The holder does not publish when its section began, at which the paper's waiters yield if the section takes too long.
//!   They yield after so many looks, as all spinners here do. Reading the clock costs as much as an uncontended acquisition,
//!   and the lock's cache line stays with the arriving threads.
//! - A timed acquisition polls outside the queue, so no node is left in it.

use super::{ConstNew, Info, RawMutex, Suspension, queue};
use crate::machine::{Machine, Native, Offers, QNode, Word, micros, node_view};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

const WAITING: u32 = 0;
const GRANTED: u32 = 1;
const SKIPPED: u32 = 2;

/// Looks of a waiter at its node before it publishes the time again, and offers its processor to other threads.
const LOOKS: u32 = 64;
/// Microseconds (of 1024 ns) after which a waiter that has not published the time counts as preempted.
const STALE: u32 = 32;
/// Waiters that are passed over in a row, at most. Then the next waiter gets the lock, whether it runs or not.
const SCAN: u32 = 32;

/// MCS-TP lock. See the [module documentation](self).
pub struct RawMcsTp<M: Machine> {
    tail: M::Ptr<QNode<M>>,
}

impl RawMcsTp<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawMcsTp { tail: AtomicPtr::new(null_mut()) }
    }
}

const_new!(RawMcsTp<Native>);

node_view! {
    /// A queue node.
    struct Node {
        /// The successor, once it has linked itself.
        next: links[0],
        /// WAITING, GRANTED or SKIPPED; the owner spins here.
        status: words[0],
        /// When the owner was last seen running, in microseconds; see [`micros`].
        seen: words[1],
    }
}

fn fresh_node<M: Machine>() -> Node<'static, M> {
    let node = Node(M::acquire_node());
    node.next().store(null_mut(), Relaxed);
    node
}

/// The waiter behind `node`, which is not the last.
fn behind<M: Machine>(node: Node<'_, M>) -> *mut QNode<M> {
    // (D) pairs with the store in `queue`.
    M::spin_until(node.next(), Acquire, |next: *mut QNode<M>| !next.is_null())
}

impl<M: Machine> RawMcsTp<M> {
    /// Takes a place in the queue and waits there. `false`: the caller was passed over.
    fn queue(&self, node: Node<'_, M>) -> bool {
        node.next().store(null_mut(), Relaxed);
        node.status().store(WAITING, Relaxed);
        // Acquire: (A) pairs with the exchange in `release`. Release: (C) the successor finds this node initialised.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if before.is_null() {
            return true;
        }
        node.seen().store(micros::<M>(), Relaxed);
        // SAFETY: the predecessor keeps its node until a holder has gone past it, and for that the holder waits for `next`.
        // (D) pairs with the holders' loads of `next`.
        unsafe { Node::at(before).next().store(node.as_ptr(), Release) };
        let mut offers = Offers::new();
        loop {
            // (B) pairs with the grant in `hand_over`. (E) pairs with SKIPPED: the holder is done with this node.
            match M::spin_for(node.status(), Acquire, LOOKS, |status| status != WAITING) {
                Some(status) => return status == GRANTED,
                None => {
                    offers.take::<M>(u64::MAX);
                    node.seen().store(micros::<M>(), Relaxed);
                }
            }
        }
    }

    /// Frees the lock if `last` is the last in the queue.
    fn release(&self, last: Node<'_, M>) -> bool {
        // (A) the section happens before that of the thread that finds the queue empty.
        self.tail.compare_exchange(last.as_ptr(), null_mut(), Release, Relaxed).is_ok()
    }

    /// Grants the lock to the first waiter from `next` on that is running, or frees it.
    fn hand_over(&self, mut next: *mut QNode<M>) {
        let now = micros::<M>();
        for _ in 0..SCAN {
            // SAFETY: a waiter keeps its node at least until it is GRANTED or SKIPPED.
            let waiter = unsafe { Node::at(next) };
            if now.wrapping_sub(waiter.seen().load(Relaxed)) as i32 <= STALE as i32 {
                break;
            }
            let mut after = waiter.next().load(Acquire); // (D)
            if after.is_null() {
                if self.release(waiter) {
                    // The waiter comes back by itself. The lock cannot be destroyed meanwhile: a thread waits for it.
                    waiter.status().store(SKIPPED, Release); // (E)
                    return;
                }
                after = behind(waiter);
            }
            waiter.status().store(SKIPPED, Release); // (E)
            next = after;
        }
        // SAFETY: `next` waits, and keeps its node at least until it is GRANTED. (B) the section happens before the successor's.
        unsafe { Node::at(next).status().store(GRANTED, Release) };
    }
}

// SAFETY: a thread enters when its swap finds the queue empty (A), or when the holder, which then leaves, grants it the
// lock (B). Each waiter is granted the lock once.
unsafe impl<M: Machine> RawMutex for RawMcsTp<M> {
    type Machine = M;
    type Token = NonNull<QNode<M>>;
    const INFO: Info = Info {
        name: "mcs-tp",
        summary: "time-published MCS: preempted waiters are passed over",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 64,
        fairness: "FIFO among running waiters; a preempted one queues again",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "He, Scherer and Scott 2005, section 3",
    };

    fn new_in() -> Self {
        RawMcsTp { tail: M::Ptr::new(null_mut()) }
    }

    #[inline]
    fn lock(&self) -> Self::Token {
        let node = fresh_node::<M>();
        while !self.queue(node) {}
        NonNull::from(node.0)
    }

    #[inline]
    fn try_lock(&self) -> Option<Self::Token> {
        // (A), (C) as in `queue`.
        queue::attempt(&self.tail, || fresh_node().0)
    }

    #[inline]
    unsafe fn unlock(&self, token: Self::Token) {
        // SAFETY: the token is the holder's node.
        let node = unsafe { Node::at(token.as_ptr()) };
        let mut next = node.next().load(Acquire); // (D)
        if !next.is_null() || !self.release(node) {
            if next.is_null() {
                next = behind(node);
            }
            self.hand_over(next);
        }
        // SAFETY: no other thread can reach the node any more: it is not the tail, and its successor has linked itself.
        unsafe { M::release_node(node.0) };
    }

    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}

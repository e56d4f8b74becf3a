//! Malthusian lock: MCS that parks surplus waiters.
//!
//! Source: Dice, "Malthusian Locks", EuroSys 2017, section 4 (MCSCR, with spin-then-park waiting).
//!
//! If more threads want a lock than are needed to keep it busy, the surplus only takes processors and cache from the others.
//! The holder therefore *culls* when it releases the lock: if its successor is not the last in the queue, the holder moves it
//! to a passive list, where it soon parks, and the waiter behind it gets the lock. When the queue is empty, the holder puts
//! the most recent passive waiter back into it. No waiter starves: after [`TURNS`] handovers the waiter that has been passive
//! for longest gets the lock.
//!
//! | state | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | `tail` | as in [`mcs`](super::mcs); also the most recent passive waiter, when the queue is empty | | (A), (C) |
//! | `next` in the queue | the successor's node | the successor, after its swap | (D) release; holders' acquire |
//! | `next` and `newer` in the passive list | a ring | the holder alone | (B) |
//! | `status` | as in [`mcs_park`]; with GRANTED comes `turns` | | (B) |
//!
//! The lock knows the most recent passive waiter; its `newer` is the eldest. Only the holder touches the list.
//!
//! Size: 16 bytes; 64 per waiter and 64 per holder, from the machine's node pool.
//! Atomics per uncontended pair: 2 (swap, compare-and-exchange).
//! Fairness: unfair in the short term, on purpose. One handover in 1000 goes to the eldest passive waiter.
//! Suspension: blocks. The lock may be handed to a suspended waiter.
//!
//! Where it differs from the paper: one handover in 1000 is counted, not drawn by chance, so it is a bound.

use super::mcs_park::{self, WAITING, await_grant};
use super::{ConstNew, Info, RawMutex, Suspension, queue};
use crate::machine::{Machine, Native, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

/// Handovers until the eldest of the passive waiters gets the lock: the mean of the paper's chance, 1 in 1000.
const TURNS: u32 = 1000;

/// Malthusian lock. See the [module documentation](self).
pub struct RawMalthusian<M: Machine> {
    tail: M::Ptr<QNode<M>>,
    /// The most recent of the passive waiters. The holder's.
    passive: M::Ptr<QNode<M>>,
}

impl RawMalthusian<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawMalthusian { tail: AtomicPtr::new(null_mut()), passive: AtomicPtr::new(null_mut()) }
    }
}

const_new!(RawMalthusian<Native>);

node_view! {
    /// A queue node.
    struct Node {
        /// In the queue, the successor, once it has linked itself. In the passive list, the waiter that has been passive for longer; of the eldest, the most recent.
        next: links[0],
        /// As in [`mcs_park`]; the owner spins and parks here.
        status: words[0],
        /// Of the holder: handovers since the last one to the eldest of the passive.
        turns: words[1],
        /// In the passive list, the inverse of `next`.
        newer: links[1],
    }
}

fn fresh_node<M: Machine>() -> Node<'static, M> {
    let node = Node(M::acquire_node());
    node.next().store(null_mut(), Relaxed);
    node.status().store(WAITING, Relaxed);
    node.turns().store(0, Relaxed);
    node
}

/// Hands the lock over.
///
/// # Safety
///
/// `next` waits for the lock, which the caller holds and gives up with this call.
unsafe fn grant<M: Machine>(next: *mut QNode<M>, turns: u32) {
    // SAFETY: a waiter keeps its node at least until it has been granted the lock.
    unsafe {
        let next = Node::at(next);
        next.turns().store(turns, Relaxed);
        mcs_park::grant::<M>(next.status());
    }
}

impl<M: Machine> RawMalthusian<M> {
    /// Adds a waiter to the passive list, as the most recent.
    ///
    /// # Safety
    ///
    /// The caller is the holder. `waiter` waits, and is neither in the queue nor in the list.
    unsafe fn push(&self, waiter: *mut QNode<M>) {
        let recent = self.passive.load(Relaxed);
        // SAFETY: passive waiters keep their nodes until they are granted the lock, which the caller holds.
        unsafe {
            if recent.is_null() {
                Node::at(waiter).next().store(waiter, Relaxed);
                Node::at(waiter).newer().store(waiter, Relaxed);
            } else {
                let eldest = Node::at(recent).newer().load(Relaxed);
                Node::at(waiter).next().store(recent, Relaxed);
                Node::at(waiter).newer().store(eldest, Relaxed);
                Node::at(recent).newer().store(waiter, Relaxed);
                Node::at(eldest).next().store(waiter, Relaxed);
            }
        }
        self.passive.store(waiter, Relaxed);
    }

    /// Takes a waiter out of the passive list.
    ///
    /// # Safety
    ///
    /// The caller is the holder. `waiter` is in the list.
    unsafe fn remove(&self, waiter: *mut QNode<M>) {
        // SAFETY: passive waiters keep their nodes until they are granted the lock, which the caller holds.
        unsafe {
            let (after, before) =
                (Node::at(waiter).next().load(Relaxed), Node::at(waiter).newer().load(Relaxed));
            if after == waiter {
                self.passive.store(null_mut(), Relaxed);
                return;
            }
            Node::at(before).next().store(after, Relaxed);
            Node::at(after).newer().store(before, Relaxed);
            if self.passive.load(Relaxed) == waiter {
                self.passive.store(after, Relaxed);
            }
        }
    }

    /// Releases the lock when no waiter is linked behind `node`: frees it, or makes a passive waiter the queue. `false`: a
    /// waiter has arrived.
    fn release_last(&self, node: Node<'_, M>, turns: u32) -> bool {
        let recent = self.passive.load(Relaxed);
        if recent.is_null() {
            // (A) the section happens before that of the thread that finds the queue empty.
            return self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok();
        }
        // SAFETY: the caller is the holder, and `recent` is in the list: it waits until it is granted the lock.
        unsafe {
            self.remove(recent);
            // (C) a thread that arrives behind it finds it without a successor.
            Node::at(recent).next().store(null_mut(), Relaxed);
            if self.tail.compare_exchange(node.as_ptr(), recent, Release, Relaxed).is_err() {
                self.push(recent);
                return false;
            }
            grant(recent, turns);
        }
        true
    }

    /// Hands over, with `next` at the head of the queue.
    fn hand_over(&self, mut next: *mut QNode<M>, turns: u32) {
        // SAFETY: the caller is the holder. Waiters, linked or passive, keep their nodes until they are granted the lock.
        unsafe {
            let after = Node::at(next).next().load(Acquire); // (D)
            if !after.is_null() {
                self.push(next);
                next = after;
            }
            let recent = self.passive.load(Relaxed);
            if turns < TURNS || recent.is_null() {
                return grant(next, turns);
            }
            let eldest = Node::at(recent).newer().load(Relaxed);
            self.remove(eldest);
            Node::at(eldest).next().store(next, Relaxed);
            grant(eldest, 0);
        }
    }
}

// SAFETY: a thread enters when its swap finds the queue empty (A), or when the holder, which then leaves, grants it the
// lock (B). Each waiter is granted the lock once.
unsafe impl<M: Machine> RawMutex for RawMalthusian<M> {
    type Machine = M;
    type Token = NonNull<QNode<M>>;
    const INFO: Info = Info {
        name: "malthusian",
        summary: "MCS that culls surplus waiters to a passive list; waiters sleep",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 64,
        fairness: "the most recent waiter first; one in 1000 handovers to the eldest",
        blocking: true,
        suspension: Suspension::Blocks,
        source: "Dice 2017, section 4",
    };

    fn new_in() -> Self {
        RawMalthusian { tail: M::Ptr::new(null_mut()), passive: M::Ptr::new(null_mut()) }
    }

    #[inline]
    fn lock(&self) -> Self::Token {
        let node = fresh_node::<M>();
        // Acquire: (A) pairs with the exchange in `release_last`. Release: (C) the successor finds this node initialised.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            // SAFETY: the predecessor keeps its node until a holder has gone past it, and for that the holder waits for `next`.
            // (D) pairs with the holders' loads of `next`.
            unsafe { Node::at(before).next().store(node.as_ptr(), Release) };
            await_grant::<M>(node.status(), 1); // (B)
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
        let turns = node.turns().load(Relaxed).wrapping_add(1);
        let mut next = node.next().load(Acquire); // (D)
        if !next.is_null() || !self.release_last(node, turns) {
            if next.is_null() {
                // The successor has swapped `tail` but has not linked itself yet.
                next = M::spin_until(node.next(), Acquire, |next: *mut QNode<M>| !next.is_null());
            }
            self.hand_over(next, turns);
        }
        // SAFETY: no other thread can reach the node any more: it is not the tail, and its successor has linked itself.
        unsafe { M::release_node(node.0) };
    }

    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}

#[cfg(test)]
mod tests;

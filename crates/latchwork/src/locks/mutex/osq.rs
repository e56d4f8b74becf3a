//! The optimistic spin queue: an MCS queue that a waiter can leave.
//!
//! Source: Linux, `kernel/locking/osq_lock.c` (P. Zijlstra, from an idea of W. Long), 2014 on. A part of
//! [`hybrid`](super::hybrid) and of the laboratory's older rwsem, not a lock of its own: it decides which of the spinners
//! looks at the lock.
//!
//! Nodes are linked in both directions. A spinner leaves in three steps. (Step A) It takes itself out of its predecessor's
//! `next`. From then on the predecessor has no successor that it could grant, and cannot leave itself. (Step B) It finds its
//! own successor, or the end of the queue. (Step C) It links the two. Nodes come from the machine's type-stable pool: a
//! spinner may look at a predecessor that is gone already, whose `next` is not the spinner's node any more.
//!
//! | state | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | `tail` | a node | an arriving spinner's swap | (C): nodes are initialised |
//! | `tail` the leaving spinner's node | its predecessor, or null | that spinner | (C) |
//! | `next` | the successor's node | the successor, or a spinner between that leaves | (D) |
//! | `next` | null | the successor that leaves, or the owner that leaves | (D) |
//! | `before` | the new predecessor | a spinner between that leaves | (E) release; the owner's acquire |
//! | `status` WAITING | GRANTED: at the head | the old head, `leave` | (B) release; the owner's acquire |

use crate::machine::{Machine, Offers, QNode, Word, node_view};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;

const WAITING: u32 = 0;
const GRANTED: u32 = 1;

node_view! {
    /// A spinner's node.
    pub struct Spinner {
        /// The spinner behind this one; null: not linked yet, or taken out by one of the two.
        next: links[0],
        /// WAITING or GRANTED; the owner spins here.
        status: words[0],
        /// The spinner in front.
        before: links[1],
    }
}

/// The queue: the last spinner in it, or null.
pub struct Osq<M: Machine> {
    pub(super) tail: M::Ptr<QNode<M>>,
}

impl<M: Machine> Osq<M> {
    /// An empty queue, on any machine.
    pub fn new_in() -> Self {
        Osq { tail: M::Ptr::new(null_mut()) }
    }

    /// Queues until `node`'s owner is at the head, for at most `looks` looks. `false`: the owner has left the queue.
    ///
    /// # Safety
    ///
    /// The node came from [`acquire_node`](Machine::acquire_node), is the caller's alone, and is in no queue.
    pub unsafe fn enter(&self, node: Spinner<'_, M>, looks: u32) -> bool {
        node.next().store(null_mut(), Relaxed);
        node.status().store(WAITING, Relaxed);
        // (C) a node is initialised for the spinner that finds it in `tail`.
        let mut before = self.tail.swap(node.as_ptr(), AcqRel);
        if before.is_null() {
            return true;
        }
        node.before().store(before, Relaxed);
        // SAFETY: nodes are type-stable, and the predecessor's stays until it has been unlinked from this one.
        // (D) pairs with the exchanges that take `next` out.
        unsafe { Spinner::at(before).next().store(node.as_ptr(), Release) };
        // (B) pairs with the grant in `leave`.
        if M::spin_for(node.status(), Acquire, looks, |status| status == GRANTED).is_some() {
            return true;
        }
        // Step A.
        let mut offers = Offers::new();
        loop {
            // SAFETY: nodes are type-stable. If it is the predecessor's no more, its `next` is not our node.
            let link = unsafe { Spinner::at(before) }.next();
            // Acquire: (E) pairs with the store in step C, by a predecessor that has left.
            if link.load(Relaxed) == node.as_ptr()
                && link.compare_exchange(node.as_ptr(), null_mut(), AcqRel, Relaxed).is_ok()
            {
                break;
            }
            if node.status().load(Acquire) == GRANTED {
                return true;
            }
            offers.pause::<M>();
            before = node.before().load(Acquire); // (E)
        }
        // Step B.
        let next = self.successor(node, before);
        // Step C.
        if !next.is_null() {
            // SAFETY: both wait for a link: neither can leave before this.
            unsafe {
                Spinner::at(next).before().store(before, Release); // (E)
                Spinner::at(before).next().store(next, Release); // (D)
            }
        }
        false
    }

    /// Takes the spinner behind `node` out of its link, and waits for the link if need be. If there is no such spinner,
    /// makes `before` the tail.
    fn successor(&self, node: Spinner<'_, M>, before: *mut QNode<M>) -> *mut QNode<M> {
        let mut offers = Offers::new();
        loop {
            if self.tail.load(Relaxed) == node.as_ptr()
                && self.tail.compare_exchange(node.as_ptr(), before, AcqRel, Relaxed).is_ok()
            {
                return null_mut();
            }
            if !node.next().load(Relaxed).is_null() {
                let next = node.next().swap(null_mut(), AcqRel); // (D)
                if !next.is_null() {
                    return next;
                }
            }
            offers.pause::<M>();
        }
    }

    /// Leaves the queue from its head, and does not touch the queue after another spinner may be at the head.
    ///
    /// # Safety
    ///
    /// [`enter`](Self::enter) has returned `true` for the node, and the caller has not left since.
    pub unsafe fn leave(&self, node: Spinner<'_, M>) {
        let next = self.successor(node, null_mut());
        if !next.is_null() {
            // SAFETY: the successor waits, and cannot leave without this node's `next`.
            unsafe { Spinner::at(next).status().store(GRANTED, Release) }; // (B)
        }
    }
}

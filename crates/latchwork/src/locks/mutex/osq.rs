//! The optimistic spin queue: an MCS queue that a waiter can leave.
//!
//! Source: Linux, `kernel/locking/osq_lock.c` (P. Zijlstra, from an idea of W. Long), 2014 on. A part of
//! [`hybrid`](super::hybrid), not a lock of its own: it decides who of the spinners looks at the mutex.
//!
//! Nodes are linked in both directions. Who leaves (A) takes itself out of its predecessor's `next`, which
//! from then on has no successor that it could grant or leave to; (B) finds its own successor, or the
//! end of the queue; (C) links the two. Nodes come from the machine's type-stable pool: a predecessor
//! that is gone already may be looked at, but its `next` is not ours any more.
//!
//! Node: `status` WAITING -> GRANTED, by the predecessor; `next`; `resume`: the predecessor.

use crate::machine::{Machine, Offers, QNode, Word, node_view};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;

const WAITING: u32 = 0;
const GRANTED: u32 = 1;

node_view! {
    /// A spinner's node.
    pub(super) struct Spinner {
        /// The spinner behind this one; null: not linked yet, or taken out by one of the two.
        next: links[0],
        /// WAITING or GRANTED; the owner spins here.
        status: words[0],
        /// The spinner in front.
        before: links[1],
    }
}

/// The queue: null when nobody is in it, else the last.
pub(super) struct Osq<M: Machine> {
    pub(super) tail: M::Ptr<QNode<M>>,
}

impl<M: Machine> Osq<M> {
    /// Queues until `node`'s owner is at the head, for at most `looks` looks. `false`: has left.
    pub(super) fn enter(&self, node: Spinner<'_, M>, looks: u32) -> bool {
        node.next().store(null_mut(), Relaxed);
        node.status().store(WAITING, Relaxed);
        // (C) nodes are initialised for those who find them in the tail.
        let mut before = self.tail.swap(node.as_ptr(), AcqRel);
        if before.is_null() {
            return true;
        }
        node.before().store(before, Relaxed);
        // SAFETY: nodes are type-stable, and this one stays until it has been unlinked from us.
        // (D) pairs with who takes `next` out.
        unsafe { Spinner::at(before).next().store(node.as_ptr(), Release) };
        // (B) pairs with the grant in `leave`.
        if M::spin_for(node.status(), Acquire, looks, |status| status == GRANTED).is_some() {
            return true;
        }
        // Step A.
        let mut offers = Offers::new();
        loop {
            // SAFETY: type-stable; if it is ours no more, its `next` is not our node.
            let link = unsafe { Spinner::at(before) }.next();
            // Acquire: (E) pairs with the store below, by a predecessor's predecessor that has left.
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
            // SAFETY: both wait for somebody to be linked to: neither can leave before this.
            unsafe {
                Spinner::at(next).before().store(before, Release); // (E)
                Spinner::at(before).next().store(next, Release); // (D)
            }
        }
        false
    }

    /// Takes the waiter behind `node` out of its link, waiting for it to appear; or makes `before` the
    /// tail if there is none.
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

    /// Leaves, from the head. Does not touch the queue after somebody else may be at the head.
    pub(super) fn leave(&self, node: Spinner<'_, M>) {
        let next = self.successor(node, null_mut());
        if !next.is_null() {
            // SAFETY: it waits, and cannot leave without our `next`.
            unsafe { Spinner::at(next).status().store(GRANTED, Release) }; // (B)
        }
    }
}

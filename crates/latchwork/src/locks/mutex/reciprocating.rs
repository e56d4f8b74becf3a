//! Reciprocating lock.
//!
//! Source: Dice and Kogan, "Reciprocating Locks", PPoPP 2025, section 2, listing 1.
//!
//! Arriving threads push themselves on a stack with one exchange. A holder that releases the lock hands it over down the
//! *entry segment*, the part of the stack that was detached last. At the end of the segment the holder detaches, with one
//! exchange, the threads that have arrived meanwhile, and hands over to the top one. Within a segment the order is last in,
//! first out. Each segment is served before the threads that arrived later, so no thread is passed by another one twice.
//!
//! | state | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | `arrivals` null: the lock is free | a node | an arriving thread's swap; it holds the lock | (A) acquire; `unlock` |
//! | `arrivals` EMPTY or a node | another node | an arriving thread's swap; it waits | (C) release, for the holder that detaches |
//! | `arrivals` a node | EMPTY: held, and no thread has arrived | the holder, which detaches the segment | (C) acquire |
//! | `arrivals` the end of the segment | null | the holder, if no thread has arrived | (A) release |
//! | `status` WAITING | GRANTED; with it comes `end` | the holder, `grant` | (B) release; the waiter's acquire |
//!
//! A thread that finds the *end of the segment* below itself is the last of the segment. The end is an address that is
//! compared and never followed.
//!
//! Size: 8 bytes; 64 per waiter and 64 per holder, from the machine's node pool.
//! Atomics per uncontended pair: 2 (swap, compare-and-exchange).
//! Fairness: last in, first out within a segment. A waiter is passed at most once by each other thread.
//! Suspension: blocks. The lock may be handed to a suspended waiter.
//!
//! Where it differs from the paper: the successor and the end of the segment are kept in the holder's node, not on its stack,
//! so that one word is the token. The node is the acquisition's, not the thread's.

use super::{ConstNew, Info, RawMutex, Suspension, queue};
use crate::machine::{Machine, Native, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut, without_provenance_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

const WAITING: u32 = 0;
const GRANTED: u32 = 1;

/// Reciprocating lock. See the [module documentation](self).
pub struct RawReciprocating<M: Machine> {
    arrivals: M::Ptr<QNode<M>>,
}

impl RawReciprocating<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawReciprocating { arrivals: AtomicPtr::new(null_mut()) }
    }
}

const_new!(RawReciprocating<Native>);

/// EMPTY (`LOCKEDEMPTY`): the lock is held, and no thread has arrived since the last segment was detached.
fn empty<M: Machine>() -> *mut QNode<M> {
    without_provenance_mut(1)
}

node_view! {
    /// The node of an acquisition.
    struct Node {
        /// WAITING or GRANTED; the owner spins here.
        status: words[0],
        /// The waiter that arrived before this one and is served after it; null: none.
        next: links[0],
        /// The end of the segment: an address that is compared and never followed.
        end: links[1],
    }
}

fn fresh_node<M: Machine>() -> Node<'static, M> {
    let node = Node(M::acquire_node());
    node.status().store(WAITING, Relaxed);
    node.next().store(null_mut(), Relaxed);
    // For a holder that does not wait: the segment that arrives on top of this node ends here.
    node.end().store(node.as_ptr(), Relaxed);
    node
}

/// Hands the lock over. (B) the section happens before the successor's.
///
/// # Safety
///
/// `next` waits for the lock, which the caller holds and gives up with this call.
unsafe fn grant<M: Machine>(next: *mut QNode<M>, end: *mut QNode<M>) {
    // SAFETY: a waiter keeps its node at least until it has been granted the lock.
    let next = unsafe { Node::at(next) };
    next.end().store(end, Relaxed);
    next.status().store(GRANTED, Release);
}

// SAFETY: a thread enters when its swap finds the lock free (A), or when the holder, which then leaves, grants it the
// lock (B). Each waiter is granted the lock once.
unsafe impl<M: Machine> RawMutex for RawReciprocating<M> {
    type Machine = M;
    type Token = NonNull<QNode<M>>;
    const INFO: Info = Info {
        name: "reciprocating",
        summary: "arrivals on a stack, served in segments, last in first out",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 64,
        fairness: "LIFO in segments; passed at most once by each other thread",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Dice and Kogan 2025, listing 1",
    };

    fn new_in() -> Self {
        RawReciprocating { arrivals: M::Ptr::new(null_mut()) }
    }

    #[inline]
    fn lock(&self) -> Self::Token {
        let node = fresh_node::<M>();
        // Acquire: (A) pairs with the exchange in `unlock`. Release: (C) the holder that detaches this segment finds the node
        // initialised.
        let before = self.arrivals.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            // (B) pairs with `grant`.
            M::spin_until(node.status(), Acquire, |status| status == GRANTED);
            if before == empty() || before == node.end().load(Relaxed) {
                // The last of the segment. The threads of the next one arrive on top of EMPTY.
                node.end().store(empty(), Relaxed);
            } else {
                node.next().store(before, Relaxed);
            }
        }
        NonNull::from(node.0)
    }

    #[inline]
    fn try_lock(&self) -> Option<Self::Token> {
        // (A), (C) as in `lock`.
        queue::attempt(&self.arrivals, || fresh_node().0)
    }

    #[inline]
    unsafe fn unlock(&self, token: Self::Token) {
        // SAFETY: the token is the holder's node.
        let node = unsafe { Node::at(token.as_ptr()) };
        let (next, end) = (node.next().load(Relaxed), node.end().load(Relaxed));
        // SAFETY: `next` and, if the exchange fails, all of `arrivals` wait for the lock, which the caller holds.
        unsafe {
            if !next.is_null() {
                grant(next, end);
            // (A) the section happens before that of the thread that finds the lock free.
            } else if self.arrivals.compare_exchange(end, null_mut(), Release, Relaxed).is_err() {
                // Acquire: (C).
                grant(self.arrivals.swap(empty(), Acquire), end);
            }
            // No thread looks into the node any more. A thread that still compares with its address is done before this
            // node could be in the same segment again.
            M::release_node(node.0);
        }
    }

    fn is_locked(&self) -> bool {
        !self.arrivals.load(Relaxed).is_null()
    }
}

//! Reciprocating lock.
//!
//! Source: Dice and Kogan, "Reciprocating Locks", PPoPP 2025, section 2, listing 1.
//!
//! Arrivals push themselves on a stack with one exchange. A holder that releases hands over down the
//! *entry segment*, the part of the stack that was detached last; when that is used up, it detaches what
//! has arrived meanwhile, with one exchange, and starts at its top. Within a segment the order is last
//! in, first out; each segment is served before who arrived later, so nobody is passed by another
//! thread twice.
//!
//! Lock (`arrivals`): null free; EMPTY held, nobody has arrived; else the last to arrive.
//! Node: `status` WAITING -> GRANTED, by the holder before; `next`: who arrived before us and waits (the
//! successor in our segment), or null; `resume`: the *end of the segment*, an address that is only
//! compared: who finds it in `next` is the last of the segment.
//! Size: 8 bytes; 64 per waiter and 64 per holder, from the machine's node pool. Atomics per
//! uncontended pair: 2 (swap, compare-and-exchange).
//! Suspension: a waiter that is suspended blocks others.
//! Fairness: last in, first out within a segment; a waiter is passed at most once by each other thread.
//!
//! Where it differs from the paper: successor and end of segment are kept in the holder's node, not on
//! its stack, so that one word is the token; the node is the acquisition's, not the thread's.

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

impl Default for RawReciprocating<Native> {
    fn default() -> Self {
        Self::new()
    }
}

impl ConstNew for RawReciprocating<Native> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

/// `LOCKEDEMPTY`: held, and nobody has arrived since the last segment was detached.
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
    // Of a holder that has not waited: the end of the segment that arrives on top of it is itself.
    node.end().store(node.as_ptr(), Relaxed);
    node
}

/// (B) the section happens before the successor's.
///
/// # Safety
///
/// `next` waits for the lock, which the caller holds and gives up with this call.
unsafe fn grant<M: Machine>(next: *mut QNode<M>, end: *mut QNode<M>) {
    // SAFETY: a waiter's node stays at least until it has been granted the lock.
    let next = unsafe { Node::at(next) };
    next.end().store(end, Relaxed);
    next.status().store(GRANTED, Release);
}

// SAFETY: each acquisition is granted once, by the holder before (B), or by finding the lock free (A).
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
        // Acquire: (A) pairs with the exchange in `unlock`; release: (C) who detaches our segment finds
        // our node initialised.
        let before = self.arrivals.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            // (B) pairs with `grant`.
            M::spin_until(node.status(), Acquire, |status| status == GRANTED);
            if before == empty() || before == node.end().load(Relaxed) {
                // The last of the segment. The next one's arrivals are on top of EMPTY.
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
        // SAFETY: `next` and, if the exchange fails, all of `arrivals` wait for the lock, which we hold.
        unsafe {
            if !next.is_null() {
                grant(next, end);
            // (A) the section happens before whoever finds the lock free.
            } else if self.arrivals.compare_exchange(end, null_mut(), Release, Relaxed).is_err() {
                // Acquire: (C).
                grant(self.arrivals.swap(empty(), Acquire), end);
            }
            // Nobody looks at our node any more; who still compares with its address ends before we
            // could be in the same segment again.
            M::release_node(node.0);
        }
    }

    fn is_locked(&self) -> bool {
        !self.arrivals.load(Relaxed).is_null()
    }
}

//! Hemlock: a queue lock without queue nodes.
//!
//! Source: Dice and Kogan, "Hemlock: Compact and Scalable Mutual Exclusion", SPAA 2021, listing 1, with
//! its coherence traffic reduction (CTR).
//!
//! The lock is the tail of an implicit queue, in which nobody knows who stands behind. Who releases
//! writes the lock's address into a word of its own, the *grant word*; the successor, which got to know that
//! word when it took the tail, waits there for the address, and clears the word; then the releaser may use it
//! for something else, and not before: it waits for that, off the successor's way into its section.
//! Both wait with compare-and-exchange instead of loads (CTR): the line of the word is then with the one
//! who waits for it, and neither the clearing nor the next grant has to ask for it.
//!
//! Grant word (`next` of a node): null -> the lock's address, by the releaser -> null, by the successor. Tail:
//! null when free, else the last one's node.
//! Size: 8 bytes; 64 per waiter and 64 per holder, from the machine's node pool. Atomics per
//! uncontended pair: 2 (swap, compare-and-exchange).
//! Suspension: a waiter that is suspended blocks others.
//! Fairness: FIFO.
//!
//! # Where it differs from the paper
//!
//! There, a thread has one grant word for its lifetime, whatever number of locks it holds: that is why what
//! is granted is an address, and what "no queue nodes" means. Here a token may be given to another thread,
//! which releases while the first one may be releasing another lock: one word would have to serve two grants
//! at once. So the word belongs to an *acquisition*: it is in a node of the thread's pool, which is last in,
//! first out, so that a thread that holds one lock at a time uses the same word always, as in the paper. A
//! thread that holds `n` locks has `n` words, of 64 bytes each, where the paper's has one; and the pool takes
//! a few plain instructions per pair. On the other hand no waiter for another lock looks at the word
//! (what the paper calls multi-waiting).
//!
//! So what is left of the paper's gain over `mcs` is a release that need not wait for its successor to link
//! itself, and a waiter that writes no link; what is lost is that the releaser waits for the clearing, which
//! takes as long as the successor needs to look: with more threads than processors, until it runs.

use super::{ConstNew, Info, RawMutex, Suspension, queue};
use crate::machine::{Machine, Native, Offers, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut, without_provenance_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

/// Exchanges in vain before a waiter offers its processor to others.
const LOOKS: u32 = 64;

/// Hemlock. See the [module documentation](self).
pub struct RawHemlock<M: Machine> {
    tail: M::Ptr<QNode<M>>,
}

impl RawHemlock<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawHemlock { tail: AtomicPtr::new(null_mut()) }
    }
}

impl Default for RawHemlock<Native> {
    fn default() -> Self {
        Self::new()
    }
}

impl ConstNew for RawHemlock<Native> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

node_view! {
    /// The node of an acquisition.
    struct Node {
        /// The grant word: null, or the address of the lock that is handed over.
        grant: links[0],
    }
}

fn fresh_node<M: Machine>() -> Node<'static, M> {
    let node = Node(M::acquire_node());
    node.grant().store(null_mut(), Relaxed);
    node
}

/// Waits until the grant word of `node` holds `value`, which it takes out. Both sides of the handover:
/// AcqRel is (B) of the successor and (D) of the releaser.
fn take_out<M: Machine>(node: Node<'_, M>, value: *mut QNode<M>) {
    let mut offers = Offers::new();
    loop {
        for _ in 0..M::patience(LOOKS) {
            if node.grant().compare_exchange(value, null_mut(), AcqRel, Relaxed).is_ok() {
                return;
            }
            M::pause(1);
        }
        offers.take::<M>(u64::MAX);
    }
}

impl<M: Machine> RawHemlock<M> {
    /// What is written into a grant word: it is compared, and never followed.
    fn address(&self) -> *mut QNode<M> {
        without_provenance_mut(M::identity(core::ptr::from_ref(self).addr()))
    }
}

// SAFETY: the queue orders all acquisitions; each waits for its predecessor's grant (B), or found the
// queue empty (A).
unsafe impl<M: Machine> RawMutex for RawHemlock<M> {
    type Machine = M;
    type Token = NonNull<QNode<M>>;
    const INFO: Info = Info {
        name: "hemlock",
        summary: "queue spinlock whose releaser grants in a word of its own",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 64,
        fairness: "FIFO",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Dice and Kogan 2021 (Hemlock), listing 1, with CTR",
    };

    fn new_in() -> Self {
        RawHemlock { tail: M::Ptr::new(null_mut()) }
    }

    #[inline]
    fn lock(&self) -> Self::Token {
        let node = fresh_node::<M>();
        // Acquire: (A) pairs with the exchange in `unlock`, and with (C) of the predecessor;
        // release: (C) our successor finds our grant word empty.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            // SAFETY: the predecessor keeps its node until we have cleared its word.
            // (B) pairs with the grant in `unlock`; (D) we do not look at the word any more.
            take_out(unsafe { Node::at(before) }, self.address());
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
        // Before the lock may be gone.
        let address = self.address();
        // (A) the section happens before whoever finds the queue empty.
        if self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_err() {
            // (B) the section happens before the successor's.
            node.grant().store(address, Release);
            // (D) pairs with the successor's exchange: it has seen the grant, and is done with the word.
            take_out(node, null_mut());
        }
        // SAFETY: the successor, if there was one, is done with our node; nobody else knows it.
        unsafe { M::release_node(node.0) };
    }

    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}

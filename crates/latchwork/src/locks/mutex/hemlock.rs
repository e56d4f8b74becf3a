//! Hemlock: a queue lock without queue nodes.
//!
//! Source: Dice and Kogan, "Hemlock: Compact and Scalable Mutual Exclusion", SPAA 2021, listing 1, with its coherence
//! traffic reduction (CTR).
//!
//! The lock is the tail of an implicit queue, in which no thread knows its successor. The holder, on release, writes the
//! lock's address into a word of its own, the *grant word*. Its successor got to know that word when it swapped the tail. It
//! waits there for the address, and clears the word. Only then may the releasing thread use the word again: it waits for
//! that, while the successor is in its section already. Both wait with compare-and-exchange instead of loads (CTR): the
//! cache line of the word is then with the thread that waits for it, and neither the clearing nor the next grant has to
//! fetch it.
//!
//! | state | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | `tail` null: the lock is free | a node | an arriving thread's swap; it holds the lock | (A) acquire; `unlock` |
//! | `tail` a node | another node | an arriving thread's swap; it waits | (C): its successor finds its grant word empty |
//! | `tail` the holder's node | null | the holder, if no thread is behind it | (A) release |
//! | `grant` null | the lock's address | its owner, on release | (B) release; the successor's exchange |
//! | `grant` the lock's address | null | the successor | (D) release; the owner's exchange |
//!
//! Size: 8 bytes; 64 per waiter and 64 per holder, from the machine's node pool.
//! Atomics per uncontended pair: 2 (swap, compare-and-exchange).
//! Fairness: FIFO.
//! Suspension: blocks. A suspended waiter keeps the lock from the waiters behind it, and from newcomers.
//!
//! # Where it differs from the paper
//!
//! In the paper a thread has one grant word for its lifetime, whatever number of locks it holds. That is why the word gets an
//! address, and what "no queue nodes" means. Here a token may be given to another thread, which releases while the first
//! thread may be releasing another lock: one word would have to serve two grants at once. So the word belongs to an
//! *acquisition*. It lies in a node of the thread's pool, which is last in, first out: a thread that holds one lock at a
//! time always uses the same word, as in the paper. A thread that holds `n` locks has `n` words of 64 bytes each, where the
//! paper's has one, and the pool takes a few plain instructions per pair. On the other hand no waiter for another lock looks
//! at the word (what the paper calls multi-waiting).
//!
//! What is left of the paper's gain over `mcs` is a release that need not wait for its successor to link itself, and a waiter
//! that writes no link. What is lost is that the releasing thread waits for the clearing. That takes until the successor
//! looks: with more threads than processors, until it runs.

use super::{ConstNew, Info, RawMutex, Suspension, queue};
use crate::machine::{Machine, Native, Offers, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut, without_provenance_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

/// Failed exchanges before a waiter offers its processor to other threads.
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

const_new!(RawHemlock<Native>);

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

/// Waits until the grant word of `node` holds `value`, and takes that out. Both sides of a handover call it: AcqRel is (B)
/// of the successor and (D) of the releasing thread.
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
    /// What is written into a grant word. It is compared and never followed.
    fn address(&self) -> *mut QNode<M> {
        without_provenance_mut(M::identity(core::ptr::from_ref(self).addr()))
    }
}

// SAFETY: `tail` orders all acquisitions. A thread enters when its swap finds the queue empty (A), or when its predecessor
// grants it the lock (B).
unsafe impl<M: Machine> RawMutex for RawHemlock<M> {
    type Machine = M;
    type Token = NonNull<QNode<M>>;
    const INFO: Info = Info {
        name: "hemlock",
        summary: "queue spinlock: the holder hands over in a word of its own",
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
        // Acquire: (A) pairs with the exchange in `unlock`, (C) with the predecessor's swap. Release: (C) the successor
        // finds this grant word empty.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            // SAFETY: the predecessor keeps its node until we have cleared its word.
            // (B) pairs with the grant in `unlock`. (D) This is our last access to the word.
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
        // Read before the exchange: the lock may be gone after it.
        let address = self.address();
        // (A) the section happens before that of the thread that finds the queue empty.
        if self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_err() {
            // (B) the section happens before the successor's.
            node.grant().store(address, Release);
            // (D) pairs with the successor's exchange, its last access to the word.
            take_out(node, null_mut());
        }
        // SAFETY: the successor, if there was one, is done with the node, and no other thread can reach it.
        unsafe { M::release_node(node.0) };
    }

    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}

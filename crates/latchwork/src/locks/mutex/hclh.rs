//! HCLH: hierarchical CLH queue lock.
//!
//! Source: Luchangco, Nussbaum and Shavit, "A Hierarchical CLH Queue Lock", Euro-Par 2006.
//!
//! A CLH queue per NUMA node collects arrivals. The first of them, the *master*, moves the whole batch to
//! the global queue with one exchange, so neighbours there are mostly of one node.
//!
//! Node (`status`): PENDING -> RELEASED, written once by its owner; then it is its successor's. Local tail:
//! null -> the last of the batch, by arrivals -> null, by the master. Global tail as in [`clh`](super::clh).
//! Size: a cache line per NUMA node, for 8, and one for the global tail: 576 bytes; 64 per waiter and per
//! holder, from the machine's node pool. Atomics per uncontended pair: 4 (three swaps, one
//! compare-and-exchange).
//! Suspension: a waiter that is suspended blocks others.
//! Fairness: batches in the order of their masters, FIFO in a batch.
//!
//! Where it differs from the paper: the master takes the batch *out of* the local queue. In the paper the
//! local tail keeps pointing to it, and arrivals recognise by a mark in that node that they are the
//! masters of the next batch, and by a cluster number that the node has been reused meanwhile; neither
//! works for nodes from a pool that all locks share.

use super::{ConstNew, Info, RawMutex, Suspension, queue};
use crate::machine::{Machine, Native, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

const PENDING: u32 = 0;
const RELEASED: u32 = 1;

/// Local queues.
const NODES: usize = 8;
/// Spin hints for which a master waits for others of its NUMA node.
const COMBINING: u32 = 32;

/// A tail in a cache line of its own.
#[repr(align(64))]
struct Tail<M: Machine>(M::Ptr<QNode<M>>);

/// HCLH lock. See the [module documentation](self).
pub struct RawHclh<M: Machine> {
    global: Tail<M>,
    local: [Tail<M>; NODES],
}

impl RawHclh<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawHclh {
            global: Tail(AtomicPtr::new(null_mut())),
            local: [const { Tail(AtomicPtr::new(null_mut())) }; NODES],
        }
    }
}

impl Default for RawHclh<Native> {
    fn default() -> Self {
        Self::new()
    }
}

impl ConstNew for RawHclh<Native> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

node_view! {
    /// A queue node, in a local queue and then in the global one.
    struct Node {
        /// PENDING or RELEASED; the successor spins here.
        status: words[0],
    }
}

fn fresh_node<M: Machine>() -> Node<'static, M> {
    let node = Node(M::acquire_node());
    node.status().store(PENDING, Relaxed);
    node
}

/// Waits for the owner of `before`, whose node is then ours.
///
/// # Safety
///
/// `before` is the predecessor of the caller in a queue.
unsafe fn follow<M: Machine>(before: *mut QNode<M>) {
    // SAFETY: a node in a queue is freed by its successor only, and that is us.
    let before = unsafe { Node::at(before) };
    // (B) pairs with the store in `unlock`.
    M::spin_until(before.status(), Acquire, |status| status == RELEASED);
    // SAFETY: its owner's last access was the store that we saw.
    unsafe { M::release_node(before.0) };
}

// SAFETY: the global queue orders all acquisitions; each waits for its predecessor's RELEASED (B), or
// found the queue empty (A).
unsafe impl<M: Machine> RawMutex for RawHclh<M> {
    type Machine = M;
    type Token = NonNull<QNode<M>>;
    const INFO: Info = Info {
        name: "hclh",
        summary: "hierarchical CLH: batches of a NUMA node enter the global queue",
        atomics: 4,
        waiter_bytes: 64,
        holder_bytes: 64,
        fairness: "FIFO in batches of a NUMA node",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Luchangco, Nussbaum and Shavit 2006",
    };

    fn new_in() -> Self {
        let tail = || Tail(M::Ptr::new(null_mut()));
        RawHclh { global: tail(), local: core::array::from_fn(|_| tail()) }
    }

    fn lock(&self) -> Self::Token {
        let node = fresh_node::<M>();
        let local = &self.local[M::numa_node() as usize % NODES].0;
        // (C) our successor finds our node pending, and we find our predecessor's so.
        let mut before = local.swap(node.as_ptr(), AcqRel);
        if before.is_null() {
            M::pause(COMBINING);
            // From us to the last of our batch. (C) as above; also for those between.
            let last = local.swap(null_mut(), AcqRel);
            // Acquire: (A) pairs with the exchange in `unlock`.
            before = self.global.0.swap(last, AcqRel);
        }
        if !before.is_null() {
            // SAFETY: it stood in the tail that we have taken over.
            unsafe { follow(before) };
        }
        NonNull::from(node.0)
    }

    fn try_lock(&self) -> Option<Self::Token> {
        // (A), (C) as in `lock`.
        queue::attempt(&self.global.0, || fresh_node().0)
    }

    unsafe fn unlock(&self, token: Self::Token) {
        // SAFETY: the token is the holder's node, which lives until it is released.
        let node = unsafe { Node::at(token.as_ptr()) };
        let tail = &self.global.0;
        // Only the last of a batch can be the tail. (A) the section happens before whoever finds the
        // queue empty.
        if tail.load(Relaxed) == node.as_ptr()
            && tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok()
        {
            // SAFETY: nobody else knows the node any more.
            unsafe { M::release_node(node.0) };
        } else {
            // (B) the section happens before the successor's. The node is the successor's now.
            node.status().store(RELEASED, Release);
        }
    }

    fn is_locked(&self) -> bool {
        !self.global.0.load(Relaxed).is_null()
    }
}

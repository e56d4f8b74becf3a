//! HCLH: hierarchical CLH queue lock.
//!
//! Source: Luchangco, Nussbaum and Shavit, "A Hierarchical CLH Queue Lock", Euro-Par 2006.
//!
//! A CLH queue per NUMA node collects arriving threads. The first of them, the *master*, moves the whole batch to the global
//! queue with one exchange, so neighbours in the global queue mostly run on one NUMA node.
//!
//! | state | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | a local tail | the last of the batch | an arriving thread's swap | (C): its successor finds its node PENDING |
//! | a local tail | null | the master, which takes the batch | (C) |
//! | the global tail | the last of a batch | the master's swap | (A) acquire; the exchange in `unlock` |
//! | the global tail, the holder's node | null | the holder, if no thread is behind it | (A) release |
//! | `status` PENDING | RELEASED | the node's owner, on release; the node is its successor's then | (B) release; the successor's acquire |
//!
//! Size: a cache line for each of 8 NUMA nodes and one for the global tail, 576 bytes; 64 per waiter and 64 per holder, from
//! the machine's node pool.
//! Atomics per uncontended pair: 4 (three swaps, one compare-and-exchange). Each master, so each uncontended acquisition, also pauses
//! for 32 spin hints: 0.13 to 1.9 us, as long as the processor's PAUSE takes (4 to 60 ns).
//! Fairness: batches in the order of their masters, FIFO in a batch.
//! Suspension: blocks. A suspended waiter keeps the lock from the waiters behind it, and from newcomers.
//!
//! Where it differs from the paper: the master takes the batch *out of* the local queue. In the paper the local tail keeps
//! pointing to the batch. An arriving thread recognises by a mark in that node that it is the master of the next batch, and
//! by a cluster number that the node has been reused meanwhile. Neither works for nodes from a pool that all locks share.

use super::{ConstNew, Info, RawMutex, Suspension, queue};
use crate::machine::{Machine, Native, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

const PENDING: u32 = 0;
const RELEASED: u32 = 1;

/// Local queues. NUMA node n uses number n modulo this.
const NODES: usize = 8;
/// Spin hints for which a master waits for other threads of its NUMA node. Not tuned.
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

const_new!(RawHclh<Native>);

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

/// Waits for the owner of `before` to release the lock, and gives that node back.
///
/// # Safety
///
/// `before` is the node of the caller's predecessor in a queue.
unsafe fn follow<M: Machine>(before: *mut QNode<M>) {
    // SAFETY: a node in a queue is given back by its owner's successor only, and the caller is that.
    let before = unsafe { Node::at(before) };
    // (B) pairs with the store in `unlock`.
    M::spin_until(before.status(), Acquire, |status| status == RELEASED);
    // SAFETY: its owner's last access was the store of RELEASED.
    unsafe { M::release_node(before.0) };
}

// SAFETY: the global queue orders all acquisitions. A thread enters when the queue was empty (A), or when its predecessor has
// released the lock (B).
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
        // (C) the successor finds this node PENDING, and we find the predecessor's so.
        let mut before = local.swap(node.as_ptr(), AcqRel);
        if before.is_null() {
            M::pause(COMBINING);
            // The batch: from this node to `last`. (C) as above, also for the nodes between.
            let last = local.swap(null_mut(), AcqRel);
            // Acquire: (A) pairs with the exchange in `unlock`.
            before = self.global.0.swap(last, AcqRel);
        }
        if !before.is_null() {
            // SAFETY: it stood in the tail that the caller has swapped, so it is the predecessor's.
            unsafe { follow(before) };
        }
        NonNull::from(node.0)
    }

    fn try_lock(&self) -> Option<Self::Token> {
        // (A), (C) as in `lock`.
        queue::attempt(&self.global.0, || fresh_node().0)
    }

    unsafe fn unlock(&self, token: Self::Token) {
        // SAFETY: the token is the holder's node, which is given back below or by the successor.
        let node = unsafe { Node::at(token.as_ptr()) };
        let tail = &self.global.0;
        // Only the last of a batch can be the tail. (A) the section happens before that of the thread that finds the queue
        // empty.
        if tail.load(Relaxed) == node.as_ptr()
            && tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok()
        {
            // SAFETY: the node is in no queue any more, so no other thread can reach it.
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

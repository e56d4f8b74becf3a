//! CLH queue lock.
//!
//! Source: Craig 1993; Magnusson, Landin and Hagersten 1994. The variant whose lock word is null when the lock is free
//! follows Scott, "Shared-Memory Synchronization", section 4.3.2.
//!
//! Each thread that wants the lock swaps its node into `tail` and spins on its *predecessor's* node. A release is one store
//! to the holder's own node. A thread that gets the lock takes over its predecessor's node. Nodes therefore move between
//! threads, and come from type-stable memory.
//!
//! | state | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | `tail` null: the lock is free | a node | an arriving thread's swap; it holds the lock | (A) acquire: the exchange in `unlock` |
//! | `tail` a node | another node | an arriving thread's swap; it waits | (C): its successor finds its node PENDING |
//! | `tail` the holder's node | null | the holder, if no thread is behind it | (A) release |
//! | `status` PENDING | RELEASED | the node's owner, on release; the node is its successor's then | (B) release; the successor's acquire |
//!
//! Size: 8 bytes; 64 per waiter and 64 per holder, from the machine's node pool.
//! Atomics per uncontended pair: 2 (swap, compare-and-exchange).
//! Fairness: FIFO.
//! Suspension: blocks. A suspended waiter keeps the lock from the waiters behind it, and from newcomers.

use super::local::Local;
use super::{ConstNew, Info, RawMutex, Suspension, queue};
use crate::machine::{Machine, Native, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

const PENDING: u32 = 0;
const RELEASED: u32 = 1;

/// CLH lock. See the [module documentation](self).
pub struct RawClh<M: Machine> {
    tail: M::Ptr<QNode<M>>,
}

impl RawClh<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawClh { tail: AtomicPtr::new(null_mut()) }
    }
}

const_new!(RawClh<Native>);

node_view! {
    /// A queue node.
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

// SAFETY: `tail` orders all acquisitions. A thread enters when its swap finds the queue empty (A), or when its predecessor
// has released the lock (B).
unsafe impl<M: Machine> RawMutex for RawClh<M> {
    type Machine = M;
    type Token = NonNull<QNode<M>>;
    const INFO: Info = Info {
        name: "clh",
        summary: "CLH queue spinlock",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 64,
        fairness: "FIFO",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Craig 1993; Magnusson, Landin and Hagersten 1994",
    };

    fn new_in() -> Self {
        RawClh { tail: M::Ptr::new(null_mut()) }
    }

    #[inline]
    fn lock(&self) -> Self::Token {
        let node = fresh_node::<M>();
        // Acquire: (A) pairs with the exchange in `unlock`, (C) with the predecessor's swap. Release: (C) the successor
        // finds this node PENDING.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            // SAFETY: a node that was in `tail` is given back by its successor only, and we are that.
            let before = unsafe { Node::at(before) };
            // (B) pairs with the store in `unlock`.
            M::spin_until(before.status(), Acquire, |status| status == RELEASED);
            // SAFETY: its owner's last access was the store of RELEASED.
            unsafe { M::release_node(before.0) };
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
        // SAFETY: the token is the holder's node, which is given back below or by the successor.
        let node = unsafe { Node::at(token.as_ptr()) };
        // (A) the section happens before that of the thread that finds the queue empty.
        if self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok() {
            // SAFETY: the node is in no queue any more, so no other thread can reach it.
            unsafe { M::release_node(node.0) };
        } else {
            // (B) the section happens before the successor's. The node is the successor's now.
            node.status().store(RELEASED, Release);
        }
    }

    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}

impl<M: Machine> Local for RawClh<M> {
    unsafe fn has_waiters(&self, token: Self::Token) -> bool {
        self.tail.load(Relaxed) != token.as_ptr()
    }
}

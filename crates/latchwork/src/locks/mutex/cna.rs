//! CNA: compact NUMA-aware lock.
//!
//! Source: Dice and Kogan, "Compact NUMA-aware Locks", EuroSys 2019, sections 4 and 5, figures 2 to 4.
//!
//! An MCS lock whose holder, when it releases, looks for a waiter of its own NUMA node. The waiters of
//! other nodes that it passes over on the way are set aside, on a secondary queue that travels from
//! holder to holder. They come back when nobody of the node is left in the queue, or after so many
//! handovers within the node. The lock is one word; all else is in the waiters' nodes.
//!
//! Node: `status` WAITING -> GRANTED, written once by the holder before; with it come `resume`, the last
//! of the waiters set aside (its `next` is the first of them: the list is a ring), and `batch`, the
//! handovers within the NUMA node so far.
//! Size: 8 bytes; 64 per waiter and 64 per holder, from the machine's node pool. Atomics per
//! uncontended pair: 2 (swap, compare-and-exchange).
//! Suspension: a waiter that is suspended blocks others.
//! Fairness: FIFO within a NUMA node; a waiter of another node may be passed over 1024 times.
//!
//! Where it differs from the paper:
//! - How long the lock stays in a node is counted, not drawn by chance (section 5, `keep_lock_local`), so
//!   it is a bound; and it is 1024 handovers, as in ShflLock, not 65536 in the mean. What is gained beyond
//!   that cannot be measured, while 65536 sections are a long time to wait.
//! - The secondary queue is a ring, known by its last waiter, as in the Linux patches by Kogan; the
//!   paper keeps the pointer to the last one in the first one's node.
//! - Without its section 6 (under light contention, mostly no search), which only saves time.

use super::local::Local;
use super::{ConstNew, Info, RawMutex, Suspension, queue};
use crate::machine::{Machine, Native, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

const WAITING: u32 = 0;
const GRANTED: u32 = 1;

/// Handovers within a NUMA node before the waiters set aside get their turn (`THRESHOLD`).
const LOCAL_HANDOVERS: u32 = 1024;
/// `group` of a holder that did not wait, and has not asked where it runs.
const NOWHERE: u32 = u32::MAX;

/// CNA lock. See the [module documentation](self).
pub struct RawCna<M: Machine> {
    tail: M::Ptr<QNode<M>>,
}

impl RawCna<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawCna { tail: AtomicPtr::new(null_mut()) }
    }
}

impl Default for RawCna<Native> {
    fn default() -> Self {
        Self::new()
    }
}

impl ConstNew for RawCna<Native> {
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

node_view! {
    /// A queue node. `status`, `handovers` and `aside` are written by the holder before, with the grant.
    struct Node {
        /// The waiter behind this one, once that has linked itself.
        next: links[0],
        /// WAITING or GRANTED; the owner spins here.
        status: words[0],
        /// Of the holder: handovers within its NUMA node so far.
        handovers: words[1],
        /// Where the owner ran when it queued, or NOWHERE.
        numa_node: words[2],
        /// Of the holder: the last of the waiters set aside, whose `next` is the first; null: none.
        aside: links[1],
    }
}

fn fresh_node<M: Machine>() -> Node<'static, M> {
    let node = Node(M::acquire_node());
    node.next().store(null_mut(), Relaxed);
    node.status().store(WAITING, Relaxed);
    node.handovers().store(0, Relaxed);
    node.numa_node().store(NOWHERE, Relaxed);
    node.aside().store(null_mut(), Relaxed);
    node
}

/// (B) the section, and the queue as its holder left it, happen before the successor's.
///
/// # Safety
///
/// `next` waits for the lock, which the caller holds and gives up with this call.
unsafe fn grant<M: Machine>(next: *mut QNode<M>, aside: *mut QNode<M>, handovers: u32) {
    // SAFETY: a waiter's node stays at least until it has been granted the lock.
    let next = unsafe { Node::at(next) };
    next.aside().store(aside, Relaxed);
    next.handovers().store(handovers, Relaxed);
    next.status().store(GRANTED, Release);
}

impl<M: Machine> RawCna<M> {
    /// Releases when no waiter is linked behind `node`: frees the lock, or makes those set aside the
    /// queue. `false` if somebody has arrived.
    fn release_last(&self, node: Node<'_, M>) -> bool {
        let last = node.aside().load(Relaxed);
        if last.is_null() {
            // (A) the section happens before whoever finds the queue empty.
            return self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok();
        }
        // SAFETY: waiters set aside stay until they are granted the lock.
        let link = unsafe { Node::at(last) }.next();
        let first = link.load(Relaxed);
        // No ring any more: an arrival will link itself here. (C) it does not overtake this store.
        link.store(null_mut(), Relaxed);
        if self.tail.compare_exchange(node.as_ptr(), last, Release, Relaxed).is_err() {
            link.store(first, Relaxed);
            return false;
        }
        // SAFETY: it waits, and we hold the lock.
        unsafe { grant(first, null_mut(), 0) };
        true
    }

    /// Hands over to a waiter of our NUMA node if there is one, else to who waits longest.
    fn hand_over(&self, node: Node<'_, M>, next: *mut QNode<M>) {
        let handovers = node.handovers().load(Relaxed);
        let local = if handovers < LOCAL_HANDOVERS { self.find_local(node, next) } else { None };
        let last = node.aside().load(Relaxed);
        // SAFETY: waiters, linked or set aside, stay until they are granted the lock, which we hold.
        unsafe {
            if let Some(local) = local {
                grant(local, last, handovers + 1);
            } else if last.is_null() {
                grant(next, null_mut(), 0);
            } else {
                let first = Node::at(last).next().load(Relaxed);
                Node::at(last).next().store(next, Relaxed);
                grant(first, null_mut(), 0);
            }
        }
    }

    /// The first waiter of our NUMA node (`find_successor`); those in front of it are set aside.
    fn find_local(&self, node: Node<'_, M>, next: *mut QNode<M>) -> Option<*mut QNode<M>> {
        let here = match node.numa_node().load(Relaxed) {
            NOWHERE => M::numa_node(),
            numa_node => numa_node,
        };
        let mut before = null_mut::<QNode<M>>();
        let mut current = next;
        // SAFETY: those behind us are linked and wait; only a holder unlinks them.
        unsafe {
            while Node::at(current).numa_node().load(Relaxed) != here {
                before = current;
                current = Node::at(current).next().load(Acquire); // (D)
                if current.is_null() {
                    return None;
                }
            }
            if !before.is_null() {
                let last = node.aside().load(Relaxed);
                if last.is_null() {
                    Node::at(before).next().store(next, Relaxed);
                } else {
                    Node::at(before).next().store(Node::at(last).next().load(Relaxed), Relaxed);
                    Node::at(last).next().store(next, Relaxed);
                }
                node.aside().store(before, Relaxed);
            }
            Some(current)
        }
    }
}

// SAFETY: the queue orders all acquisitions and each is granted once, by a holder (B) or by finding
// the queue empty (A).
unsafe impl<M: Machine> RawMutex for RawCna<M> {
    type Machine = M;
    type Token = NonNull<QNode<M>>;
    const INFO: Info = Info {
        name: "cna",
        summary: "compact NUMA-aware MCS: the holder sets remote waiters aside",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 64,
        fairness: "FIFO per NUMA node, 1024 in a row",
        blocking: false,
        suspension: Suspension::Blocks,
        source: "Dice and Kogan 2019 (CNA), figures 2 to 4",
    };

    fn new_in() -> Self {
        RawCna { tail: M::Ptr::new(null_mut()) }
    }

    #[inline]
    fn lock(&self) -> Self::Token {
        let node = fresh_node::<M>();
        // Acquire: (A) pairs with the exchange in `release_last`; release: (C) our successor finds our
        // node initialised.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            node.numa_node().store(M::numa_node(), Relaxed);
            // SAFETY: the predecessor stays until it has been passed, which needs `next`.
            // (D) pairs with the loads of `next` by holders.
            unsafe { Node::at(before).next().store(node.as_ptr(), Release) };
            // (B) pairs with `grant`.
            M::spin_until(node.status(), Acquire, |status| status == GRANTED);
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
        let mut next = node.next().load(Acquire); // (D)
        if !next.is_null() || !self.release_last(node) {
            if next.is_null() {
                // A successor has swapped the tail but not linked itself yet.
                next = M::spin_until(node.next(), Acquire, |next: *mut QNode<M>| !next.is_null());
            }
            self.hand_over(node, next);
        }
        // SAFETY: nobody knows our node any more: it is not the tail, and who was behind it is linked.
        unsafe { M::release_node(node.0) };
    }

    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}

impl<M: Machine> Local for RawCna<M> {
    fn has_waiters(&self, token: Self::Token) -> bool {
        // SAFETY: the token is the holder's node.
        let node = unsafe { Node::at(token.as_ptr()) };
        !node.aside().load(Relaxed).is_null() || self.tail.load(Relaxed) != node.as_ptr()
    }
}

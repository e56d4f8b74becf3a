//! CNA: compact NUMA-aware lock.
//!
//! Source: Dice and Kogan, "Compact NUMA-aware Locks", EuroSys 2019, sections 4 and 5, figures 2 to 4.
//!
//! An MCS lock whose holder, on release, looks for a waiter of its own NUMA node. It sets the waiters of other nodes that
//! stand in front of that one aside, on a secondary queue that travels from holder to holder. They come back when no waiter
//! of the node is left in the queue, or after [`LOCAL_HANDOVERS`] handovers within the node. The lock is one word; all else
//! is in the waiters' queue nodes.
//!
//! | state | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | `tail` null: the lock is free | a node | an arriving thread's swap; it holds the lock | (A) acquire; `release_last` |
//! | `tail` a node | another node | an arriving thread's swap; it waits | (C): its successor finds its node initialised |
//! | `tail` the holder's node | null, or the last waiter set aside | the holder, if no thread is behind it | (A) release |
//! | `next` of the last node | the successor's node | the successor, after its swap | (D) release; holders' acquire |
//! | `next` of other waiters, `aside` | as the order needs it | the holder | (B) |
//! | `status` WAITING | GRANTED; with it come `aside` and `handovers` | the holder, `grant` | (B) release; the waiter's acquire |
//!
//! Size: 8 bytes; 64 per waiter and 64 per holder, from the machine's node pool.
//! Atomics per uncontended pair: 2 (swap, compare-and-exchange).
//! Fairness: FIFO within a NUMA node. A waiter of another node may be passed over 1024 times by each of the
//! others.
//! Suspension: blocks. A suspended waiter keeps the lock from the waiters behind it, and from newcomers.
//!
//! Where it differs from the paper:
//! - The handovers within a NUMA node are counted, not drawn by chance (section 5, `keep_lock_local`), so the count is a
//!   bound for each node; and it is 1024, as in ShflLock, not 65536 in the mean. More than 1024 gains nothing that can be measured, and
//!   65536 sections are a long time to wait.
//! - The secondary queue is a ring, known by its last waiter, as in the Linux patches by Kogan. The paper keeps the pointer
//!   to the last waiter in the first one's node.
//! - It does without the paper's section 6 (under light contention, mostly no search), which only saves time.

use super::local::Local;
use super::{ConstNew, Info, RawMutex, Suspension, queue};
use crate::machine::{Machine, Native, QNode, Word, node_view};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicPtr, Ordering::*};

const WAITING: u32 = 0;
const GRANTED: u32 = 1;

/// Handovers within a NUMA node before the waiters set aside get their turn (`THRESHOLD`).
const LOCAL_HANDOVERS: u32 = 1024;
/// `numa_node` of a holder that did not wait, and has not asked where it runs.
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

const_new!(RawCna<Native>);

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

/// Hands the lock over. (B) the section, and the queue as its holder left it, happen before the successor's section.
///
/// # Safety
///
/// `next` waits for the lock, which the caller holds and gives up with this call.
unsafe fn grant<M: Machine>(next: *mut QNode<M>, aside: *mut QNode<M>, handovers: u32) {
    // SAFETY: a waiter keeps its node at least until it has been granted the lock.
    let next = unsafe { Node::at(next) };
    next.aside().store(aside, Relaxed);
    next.handovers().store(handovers, Relaxed);
    next.status().store(GRANTED, Release);
}

impl<M: Machine> RawCna<M> {
    /// Releases the lock when no waiter is linked behind `node`: frees it, or makes the waiters set aside the queue.
    /// `false`: a waiter has arrived.
    fn release_last(&self, node: Node<'_, M>) -> bool {
        let last = node.aside().load(Relaxed);
        if last.is_null() {
            // (A) the section happens before that of the thread that finds the queue empty.
            return self.tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok();
        }
        // SAFETY: waiters that are set aside keep their nodes until they are granted the lock.
        let link = unsafe { Node::at(last) }.next();
        let first = link.load(Relaxed);
        // The ring is opened: an arriving thread will link itself here. (C) the link does not overtake this store.
        link.store(null_mut(), Relaxed);
        if self.tail.compare_exchange(node.as_ptr(), last, Release, Relaxed).is_err() {
            link.store(first, Relaxed);
            return false;
        }
        // SAFETY: `first` waits, and the caller holds the lock.
        unsafe { grant(first, null_mut(), 0) };
        true
    }

    /// Hands over to a waiter of the caller's NUMA node if there is one, else to the waiter that came first.
    fn hand_over(&self, node: Node<'_, M>, next: *mut QNode<M>) {
        let handovers = node.handovers().load(Relaxed);
        let local = if handovers < LOCAL_HANDOVERS { self.find_local(node, next) } else { None };
        let last = node.aside().load(Relaxed);
        // SAFETY: waiters, linked or set aside, keep their nodes until they are granted the lock, which the caller holds.
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

    /// The first waiter of the caller's NUMA node (`find_successor`). The waiters in front of it are set aside.
    fn find_local(&self, node: Node<'_, M>, next: *mut QNode<M>) -> Option<*mut QNode<M>> {
        let here = match node.numa_node().load(Relaxed) {
            NOWHERE => M::numa_node(),
            numa_node => numa_node,
        };
        let mut before = null_mut::<QNode<M>>();
        let mut current = next;
        // SAFETY: the nodes behind the caller's belong to waiters; only the holder, the caller, unlinks them.
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

// SAFETY: a thread enters when its swap finds the queue empty (A), or when the holder, which then leaves, grants it the
// lock (B). Each waiter is granted the lock once.
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
        // Acquire: (A) pairs with the exchange in `release_last`. Release: (C) the successor finds this node initialised.
        let before = self.tail.swap(node.as_ptr(), AcqRel);
        if !before.is_null() {
            node.numa_node().store(M::numa_node(), Relaxed);
            // SAFETY: the predecessor keeps its node until a holder has gone past it, and for that the holder waits for `next`.
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
                // The successor has swapped `tail` but has not linked itself yet.
                next = M::spin_until(node.next(), Acquire, |next: *mut QNode<M>| !next.is_null());
            }
            self.hand_over(node, next);
        }
        // SAFETY: no other thread can reach the node any more: it is not the tail, and its successor has linked itself.
        unsafe { M::release_node(node.0) };
    }

    fn is_locked(&self) -> bool {
        !self.tail.load(Relaxed).is_null()
    }
}

impl<M: Machine> Local for RawCna<M> {
    unsafe fn has_waiters(&self, token: Self::Token) -> bool {
        // SAFETY: the token is from an acquisition that has not ended, says the caller: it is the holder's node.
        let node = unsafe { Node::at(token.as_ptr()) };
        !node.aside().load(Relaxed).is_null() || self.tail.load(Relaxed) != node.as_ptr()
    }
}

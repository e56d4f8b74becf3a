//! The queue of the blocking ShflLocks, [`shfl`](super::shfl) and [`shfl_rw`](crate::locks::rwlock::shfl_rw).
//!
//! Waiters spin briefly and then park; one of them shuffles ([`shuffle`](super::shuffle)). The *head* of the queue
//! competes for the lock, in each lock's own way. It leaves the queue when it has the lock or gives up; the next waiter
//! becomes the head. Any other waiter may leave too, and abandons its node.
//!
//! | status | meaning | next status, and the thread that sets it |
//! |---|---|---|
//! | WAITING | spins | NODE_PARKED or ABANDONED, the owner; SPINNING, the shuffler; READY, the old head |
//! | SPINNING | spins: a shuffler has put it next in line | as WAITING |
//! | NODE_PARKED | parks | SPINNING, the shuffler; INVITED, the head; READY, the old head; each unparks. ABANDONED, the owner |
//! | INVITED | may enter beside the head (a reader) | WAITING or ABANDONED, the owner; READY, the old head |
//! | READY | is the head | none |
//! | ABANDONED | the owner has left, with the lock or after a timeout | READY, the old head, which releases the node |
//!
//! Orderings: (C) `tail`: an arrival's node is initialised for the next arrival. (Q) `next`: it is for the waiters in
//! front. (R) READY: the new head sees the queue as the old one left it. (D) ABANDONED: the owner is done with the node.
//! (L) `left`: the owner is done with the node, and the waiter behind it has it now. (S) INVITED: what was before the
//! head's acquisition is before the reader's section.
//!
//! # Suspended waiters
//!
//! A waiter may stop running at any instruction, for ever (in a debugger, a signal handler or a frozen control group).
//! The other waiters must get the lock nevertheless:
//!
//! - A suspended head keeps a free lock for [`PROMISE_BOUND`]. Then the lock lets other threads pass (LAPSED in its
//!   word) until the head runs again.
//! - A parked waiter wakes up by itself, at growing intervals. Behind a suspended head it takes the lock and abandons its
//!   node. Nodes therefore come from the machine's type-stable pool.
//! - A waiter may be suspended before it has linked itself. The leaving head looks for the link [`LINK_LOOKS`] times,
//!   then writes [`left`] in its place and leaves its node to that waiter, which is the head when it runs again.

pub(crate) use super::invite::invite;
use super::shuffle::{Cut, Policy, SLEEPERS_IN_A_ROW, Waiter, is_shuffler, shuffle};
pub(crate) use crate::locks::backoff::{Intervals, wait_outside};
use crate::machine::{Deadline, Machine, QNode, Wait, Word};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;

const WAITING: u32 = 0;
pub(crate) const READY: u32 = 1;
pub(crate) const NODE_PARKED: u32 = 2;
const SPINNING: u32 = 3;
const ABANDONED: u32 = 4;
pub(crate) const INVITED: u32 = 5;

/// Microseconds (of 1024 ns) for which a head that does not run may keep a free lock. An unparked thread runs within two
/// or three quanta of the scheduler (3 ms each) unless there are very many threads. If it runs later, the other threads
/// have merely passed it once more.
pub(crate) const PROMISE_BOUND: u32 = 10_000;

/// Looks of a leaving head for the link of the next waiter. That waiter needs nanoseconds for it unless it is preempted.
const LINK_LOOKS: u32 = 256;

/// In a node's `next`: the owner has left, and the node belongs to the waiter that is about to link itself.
fn left<M: Machine>() -> *mut QNode<M> {
    core::ptr::without_provenance_mut(1)
}

/// A node for the caller, from the pool.
pub(crate) fn new_node<M: Machine>() -> Waiter<'static, M> {
    let node = Waiter(M::acquire_node());
    node.next().store(null_mut(), Relaxed);
    node.status().store(WAITING, Relaxed);
    node.batch().store(0, Relaxed);
    node.role().store(0, Relaxed);
    node.resume().store(null_mut(), Relaxed);
    node
}

/// Queues up. Returns whether the caller is the head.
pub(crate) fn enqueue<M: Machine>(tail: &M::Ptr<QNode<M>>, node: Waiter<'static, M>) -> bool {
    let before = tail.swap(node.as_ptr(), AcqRel); // (C)
    if before.is_null() {
        return true;
    }
    // SAFETY: nodes of the pool are never unmapped. The predecessor's is released only after its `next` is written, by the
    // caller, or by its owner with `left`; then the caller releases it.
    let before = unsafe { Waiter::at(before) };
    // (Q) pairs with the loads of `next` by walks and heads; (L) with `take_first`.
    if before.next().swap(node.as_ptr(), AcqRel) != left::<M>() {
        return false;
    }
    // SAFETY: its owner has left (L), and no other thread knows the node.
    unsafe { M::release_node(before.0) };
    true
}

/// How waiting in the queue ended.
#[derive(PartialEq, Eq)]
pub(crate) enum Waited {
    /// The caller is the head.
    Head,
    /// The caller took the lock past the head, and became the head meanwhile. It must leave the queue, with its node.
    HeadWithLock,
    /// The caller took the lock past the head. Its node is ABANDONED: the head or a shuffler that reaches it releases it.
    Locked,
    /// The deadline has passed, without the lock. The node is ABANDONED likewise.
    TimedOut,
}

/// Waits in the queue. A waiter that is invited, or that woke up by itself, calls `enter(invited)`, which takes the lock
/// if the waiter may have it past the head.
pub(crate) fn wait_for_head<M: Machine, P: Policy>(
    tail: &M::Ptr<QNode<M>>,
    node: Waiter<'static, M>,
    deadline: Option<Deadline>,
    spins: u32,
    mut enter: impl FnMut(bool) -> bool,
) -> Waited {
    let mut intervals = Intervals::of_sleeps();
    let (mut walked, mut looks) = (false, spins);
    loop {
        // (R) pairs with `next_head`, (S) with `invite`.
        let status = M::spin_for(node.status(), Acquire, looks, |status| matches!(status, READY | INVITED));
        if status == Some(READY) {
            return Waited::Head;
        }
        let invited = status.is_some();
        let mut asks = invited; // or the caller woke up by itself
        if !invited {
            if !walked && is_shuffler::<M, P>(node) {
                walked = true;
                walk::<M, P>(tail, node, || node.status().load(Relaxed) == READY);
                continue;
            }
            walked = false;
            let status = node.status().load(Relaxed);
            let late = deadline.is_some_and(|d| d.passed::<M>());
            let next = if late { ABANDONED } else { NODE_PARKED };
            // Acquire: (R), (S), if it fails because the status has changed. Release: (D) pairs with `next_head`.
            if matches!(status, READY | INVITED)
                || node.status().compare_exchange(status, next, AcqRel, Acquire).is_err()
            {
                continue;
            }
            if late {
                return Waited::TimedOut;
            }
            let until = intervals.until::<M>(deadline);
            while node.status().load(Relaxed) == NODE_PARKED {
                if M::wait(node.status(), NODE_PARKED, until) == Wait::TimedOut {
                    asks = until != deadline;
                    break;
                }
            }
        }
        looks = if asks && !invited { 1 } else { spins };
        if asks && enter(invited) {
            // (D) as above. (R), if the caller has become the head meanwhile.
            return if node.status().swap(ABANDONED, AcqRel) == READY {
                Waited::HeadWithLock
            } else {
                Waited::Locked
            };
        }
        if invited {
            // It fails if the caller has become the head.
            _ = node.status().compare_exchange(INVITED, WAITING, Relaxed, Relaxed);
        }
    }
}

/// The waiter that has just become the head.
pub(crate) struct Next<M: Machine> {
    /// Its node's status, which is READY now. Only the address may be used: the node may be another waiter's by now.
    pub status: *const M::U32,
    /// The status before.
    pub before: u32,
    /// The waiter's key.
    pub group: u32,
}

/// Takes `node`, which its owner is done with, out of the front of the queue, and returns the waiter behind it, if there
/// is one and it has linked itself. The node is the pool's then, or that of a waiter that has not linked itself.
fn take_first<M: Machine>(tail: &M::Ptr<QNode<M>>, node: Waiter<'static, M>) -> Option<Waiter<'static, M>> {
    let mut next = node.next().load(Acquire); // (Q)
    // (C) for the waiter that queues next.
    if next.is_null() && tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_err() {
        next = M::spin_for(node.next(), Acquire, LINK_LOOKS, |next: *mut QNode<M>| !next.is_null())
            .unwrap_or(null_mut());
        if next.is_null() {
            // (L) pairs with the swap in `enqueue`. (Q) if the waiter has linked itself just now.
            match node.next().compare_exchange(null_mut(), left::<M>(), Release, Acquire) {
                Ok(_) => return None,
                Err(linked) => next = linked,
            }
        }
    }
    // SAFETY: the owner is done with it; it is no longer in the queue, and the next waiter has linked itself.
    unsafe { M::release_node(node.0) };
    // SAFETY: nodes of the pool are never unmapped, and only waiters link theirs.
    (!next.is_null()).then(|| unsafe { Waiter::at(next) })
}

/// Leaves the queue from its head, `node`. The next waiter that has not abandoned its node becomes the head, after
/// `claim` has seen it.
pub(crate) fn next_head<M: Machine>(
    tail: &M::Ptr<QNode<M>>,
    node: Waiter<'static, M>,
    mut claim: impl FnMut(Waiter<'_, M>),
) -> Option<Next<M>> {
    let mut current = node;
    loop {
        let next = take_first(tail, current)?;
        // The node stays the waiter's at least until it is READY.
        let (status, group) = (core::ptr::from_ref(next.status()), next.key().load(Relaxed));
        claim(next);
        // (R) pairs with `wait_for_head`, (D) with the owner that has left.
        match next.status().swap(READY, AcqRel) {
            ABANDONED => current = next,
            before => return Some(Next { status, before, group }),
        }
    }
}

/// One walk of the shuffler `node`. It unparks the waiter next in line, which then runs when its turn comes.
pub(crate) fn walk<M: Machine, P: Policy>(
    tail: &M::Ptr<QNode<M>>,
    node: Waiter<'_, M>,
    stop: impl FnMut() -> bool,
) {
    let mut found = false;
    let grouped = |waiter: Waiter<'_, M>| {
        let from = waiter.status().load(Relaxed);
        if !found && P::UNPARKS_EARLY && matches!(from, WAITING | NODE_PARKED) {
            found = waiter.status().compare_exchange(from, SPINNING, Relaxed, Relaxed).is_ok();
            if found && from == NODE_PARKED {
                M::wake(waiter.status(), 1);
            }
        }
    };
    let abandoned = |waiter: Waiter<'_, M>| waiter.status().load(Acquire) == ABANDONED; // (D)
    shuffle::<M, P>(node, tail, SLEEPERS_IN_A_ROW, Cut::Keeps, stop, grouped, abandoned);
}

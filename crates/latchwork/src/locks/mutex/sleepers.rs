//! The queue of the blocking ShflLocks, [`shfl`](super::shfl) and
//! [`shfl_rw`](crate::locks::rwlock::shfl_rw): waiters spin briefly and then sleep, one of them shuffles, and any of them may
//! leave its node behind. The head of the queue competes for the lock, each lock in its own way.
//!
//! | node | meaning | next |
//! |---|---|---|
//! | WAITING | spins | PARKED, ABANDONED (itself); SPINNING (the shuffler); READY (the old head) |
//! | SPINNING | spins; will be head soon | as WAITING |
//! | PARKED | sleeps | SPINNING, INVITED, READY, each with a wake; ABANDONED (itself) |
//! | INVITED | may take the lock without being the head (a reader) | WAITING, ABANDONED (itself); READY |
//! | READY | is the head | |
//! | ABANDONED | its owner has left, with the lock or after its deadline | READY, and released |
//!
//! Nodes come from the machine's type-stable pool. A waiter that leaves before it is the head abandons its node. The
//! thread that would make that node the head passes on to the next one, and releases it.
//!
//! # Suspended waiters
//!
//! A waiter may stop running at any instruction, for ever (in a debugger, a signal handler or a frozen control group).
//! The other waiters must get the lock nevertheless:
//!
//! - A head that does not run keeps a free lock for [`PROMISE_BOUND`]. Then its lock lets others pass (LAPSED in
//!   its word) until the head runs again.
//! - Sleeps end by themselves, at growing intervals, so a waiter behind a suspended head looks at the lock, takes it,
//!   and abandons its node.
//! - A waiter that has queued but has not linked itself to its predecessor would keep the predecessor from leaving.
//!   The predecessor looks for the link [`LINK_LOOKS`] times, then writes [`left`] in the link's place and leaves
//!   its node to that waiter, which is the head when it runs again.

use super::shuffle::{Policy, SLEEPERS_IN_A_ROW, Waiter, is_shuffler, shuffle};
use crate::machine::{Deadline, MICRO, Machine, QNode, Wait, Word};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;

pub(crate) const WAITING: u32 = 0;
pub(crate) const READY: u32 = 1;
pub(crate) const PARKED: u32 = 2;
pub(crate) const SPINNING: u32 = 3;
pub(crate) const ABANDONED: u32 = 4;
pub(crate) const INVITED: u32 = 5;

/// Microseconds (of 1024 ns) for which a head may leave unused a lock that is free and that others must leave to it.
/// A woken thread runs within two or three quanta of the scheduler (3 ms each), unless there are very many threads;
/// if it comes later, the others have merely passed it once more.
pub(crate) const PROMISE_BOUND: u32 = 10_000;

/// Looks of a waiter at its node before it sleeps.
const NODE_LOOKS: u32 = 256;
/// Walks of a shuffler that is not the head, each after so many looks, before it sleeps like others.
const WALKS: u32 = 8;
/// Looks of a leaving head at its node for the link of the next waiter: the two instructions between which that waiter
/// is take nanoseconds unless it is preempted.
const LINK_LOOKS: u32 = 256;
/// Nanoseconds after which a sleep ends by itself, the first time and at most, and the factor between.
const SLEEPS: (u64, u64, u64) = (1 << (10 + MICRO), 128 << (10 + MICRO), 4);
/// The same of a waiter that waits outside the queue, where nobody wakes it.
const NAPS: (u64, u64, u64) = (64 << MICRO, 4096 << MICRO, 2);

/// In a node's `next`: the owner has left, and the node belongs to the waiter that is about to link itself.
fn left<M: Machine>() -> *mut QNode<M> {
    core::ptr::without_provenance_mut(1)
}

/// Sleeps that get longer: a waiter that looks often at first and rarely later.
pub(crate) struct Intervals {
    next: u64,
    most: u64,
    factor: u64,
}

impl Intervals {
    /// Of a waiter in the queue. Another thread wakes it, unless that thread is suspended; then its sleep ends by itself.
    pub fn of_sleeps() -> Self {
        Intervals { next: SLEEPS.0, most: SLEEPS.1, factor: SLEEPS.2 }
    }

    fn next(&mut self) -> u64 {
        let nanos = self.next;
        self.next = (nanos * self.factor).min(self.most);
        nanos
    }

    /// When the next sleep ends if nobody wakes the caller: at the `deadline`, or before.
    pub fn until<M: Machine>(&mut self, deadline: Option<Deadline>) -> Option<Deadline> {
        let nanos = self.next();
        match (deadline, M::safety_timeout(nanos)) {
            (Some(deadline), Some(_)) if deadline.nanos.saturating_sub(M::now(deadline.clock)) <= nanos => {
                Some(deadline)
            }
            (_, Some(timeout)) => Some(timeout),
            (deadline, None) => deadline,
        }
    }
}

/// Waits at the lock, not in its queue, while the head of that is suspended: nodes behind the head would pile up.
/// `attempt` says that the lock has been taken (`Some(true)`), or that the head runs again (`None`).
pub(crate) fn wait_outside<M: Machine>(
    deadline: Option<Deadline>,
    mut attempt: impl FnMut() -> Option<bool>,
) -> Option<bool> {
    let mut naps = Intervals { next: NAPS.0, most: NAPS.1, factor: NAPS.2 };
    loop {
        let late = deadline.is_some_and(|d| d.passed::<M>());
        match attempt() {
            Some(false) if late => return Some(false),
            Some(false) => (),
            outcome => return outcome,
        }
        let left = deadline.map_or(u64::MAX, |d| d.nanos.saturating_sub(M::now(d.clock)));
        M::doze(naps.next().min(left));
    }
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

/// Queues up. Whether the caller is the head.
pub(crate) fn enqueue<M: Machine>(tail: &M::Ptr<QNode<M>>, node: Waiter<'static, M>) -> bool {
    // (C) our node is initialised for whoever queues behind us, and our predecessor's for us.
    let before = tail.swap(node.as_ptr(), AcqRel);
    if before.is_null() {
        return true;
    }
    // SAFETY: nodes of the pool are never unmapped. The predecessor's is not released before it has been linked to
    // us: that needs `next`, or `left` in its place, and then we release it.
    let before = unsafe { Waiter::at(before) };
    // (Q) pairs with the walks' and the head's loads of `next`. (L) pairs with `behind`: the queue as the
    // predecessor left it, and its node, which is ours then.
    if before.next().swap(node.as_ptr(), AcqRel) != left::<M>() {
        return false;
    }
    // SAFETY: its owner has left, nobody else knows it, and (L) its owner's accesses are over.
    unsafe { M::release_node(before.0) };
    true
}

/// How waiting in the queue ended.
#[derive(PartialEq, Eq)]
pub(crate) enum Waited {
    /// The caller is the head.
    Head,
    /// The caller is the head, and has taken the lock already.
    HeadWithLock,
    /// The caller has the lock; its node belongs to the queue now.
    Locked,
    /// The deadline has passed; the node belongs to the queue now.
    TimedOut,
}

/// Waits in the queue. A waiter that is invited, or whose sleep has ended by itself, calls `enter(invited)`. That takes
/// the lock if the waiter may have it past the head.
pub(crate) fn wait_for_head<M: Machine, P: Policy>(
    tail: &M::Ptr<QNode<M>>,
    node: Waiter<'static, M>,
    deadline: Option<Deadline>,
    mut enter: impl FnMut(bool) -> bool,
) -> Waited {
    let mut intervals = Intervals::of_sleeps();
    let (mut walks, mut looks) = (0, NODE_LOOKS);
    loop {
        // (R) pairs with the hand-over in `next_head`, (S) with `invite`.
        let status = M::spin_for(node.status(), Acquire, looks, |status| matches!(status, READY | INVITED));
        if status == Some(READY) {
            return Waited::Head;
        }
        let invited = status.is_some();
        let mut asks = invited;
        if !invited {
            if walks < M::patience(WALKS) && is_shuffler::<M, P>(node) {
                walks += 1;
                walk::<M, P>(tail, node, || node.status().load(Relaxed) == READY);
                continue;
            }
            walks = 0;
            let status = node.status().load(Relaxed);
            let late = deadline.is_some_and(|d| d.passed::<M>());
            let next = if late { ABANDONED } else { PARKED };
            // (R), (S) as above, if it fails because we have been told something. Release: (D) pairs with
            // the swap in `next_head` that finds ABANDONED and takes the node over.
            if matches!(status, READY | INVITED)
                || node.status().compare_exchange(status, next, AcqRel, Acquire).is_err()
            {
                continue;
            }
            if late {
                return Waited::TimedOut;
            }
            let until = intervals.until::<M>(deadline);
            while node.status().load(Relaxed) == PARKED {
                if M::wait(node.status(), PARKED, until) == Wait::TimedOut {
                    asks = until != deadline;
                    break;
                }
            }
        }
        looks = if asks && !invited { 1 } else { NODE_LOOKS };
        if asks && enter(invited) {
            // (D) as above. (R) if we have become the head meanwhile.
            return if node.status().swap(ABANDONED, AcqRel) == READY {
                Waited::HeadWithLock
            } else {
                Waited::Locked
            };
        }
        if invited {
            // It fails if we have become the head.
            _ = node.status().compare_exchange(INVITED, WAITING, Relaxed, Relaxed);
        }
    }
}

/// The waiter that has just become the head.
pub(crate) struct Next<M: Machine> {
    /// Its node's status, which is READY now. To be used as an address only: the node may be another waiter's by now.
    pub status: *const M::U32,
    /// What it was.
    pub before: u32,
    /// Its group.
    pub group: u32,
}

/// What stands behind a node that leaves the queue.
enum Behind<M: Machine> {
    /// Nothing: the queue is empty now.
    Nobody,
    /// A waiter.
    Waiter(Waiter<'static, M>),
    /// A waiter that has not linked itself. The node is that waiter's now.
    Unlinked,
}

/// Takes `node` out of the front of the queue.
fn behind<M: Machine>(tail: &M::Ptr<QNode<M>>, node: Waiter<'_, M>) -> Behind<M> {
    // SAFETY: nodes of the pool are never unmapped, and only waiters link theirs.
    let waiter = |next: *mut QNode<M>| Behind::Waiter(unsafe { Waiter::at(next) });
    let next = node.next().load(Acquire); // (Q)
    if !next.is_null() {
        return waiter(next);
    }
    // (C) for the waiter that queues next.
    if tail.compare_exchange(node.as_ptr(), null_mut(), Release, Relaxed).is_ok() {
        return Behind::Nobody;
    }
    if let Some(next) = M::spin_for(node.next(), Acquire, LINK_LOOKS, |next: *mut QNode<M>| !next.is_null()) {
        return waiter(next);
    }
    // (L) pairs with the swap in `enqueue`. (Q) if the waiter has linked itself just now.
    match node.next().compare_exchange(null_mut(), left::<M>(), Release, Acquire) {
        Ok(_) => Behind::Unlinked,
        Err(next) => waiter(next),
    }
}

/// Leaves the queue from its head, `node`: the next waiter that is still there becomes the head, after `claim` has
/// seen it. The node is the pool's then, or the next waiter's.
pub(crate) fn next_head<M: Machine>(
    tail: &M::Ptr<QNode<M>>,
    node: Waiter<'static, M>,
    mut claim: impl FnMut(Waiter<'_, M>),
) -> Option<Next<M>> {
    let mut current = node;
    loop {
        let behind = behind(tail, current);
        if !matches!(behind, Behind::Unlinked) {
            // SAFETY: it is the caller's own, or its owner gave up (D); it is no longer in the queue, and the next
            // waiter has linked itself.
            unsafe { M::release_node(current.0) };
        }
        let Behind::Waiter(next) = behind else { return None };
        // A waiter's node stays at least until it is READY.
        let (status, group) = (core::ptr::from_ref(next.status()), next.key().load(Relaxed));
        claim(next);
        // (R) the queue as our walks left it. (D) pairs with giving up.
        match next.status().swap(READY, AcqRel) {
            ABANDONED => current = next,
            before => return Some(Next { status, before, group }),
        }
    }
}

/// Wakes up to `most` of the waiters that sleep behind the head, `node`, and for which `may_enter` holds, up to the first
/// one for which it does not. They take the lock by themselves.
///
/// It does not look behind a shuffler, which takes nodes out there.
pub(crate) fn invite<M: Machine, P: Policy>(
    node: Waiter<'_, M>,
    mut most: u32,
    may_enter: impl Fn(Waiter<'_, M>) -> bool,
) {
    let mut current = node;
    while most > 0 {
        let next = current.next().load(Acquire); // (Q)
        if next.is_null() {
            return;
        }
        // SAFETY: nodes in front of the shuffler stay in the queue until the head, which is us, has left.
        let waiter = unsafe { Waiter::at(next) };
        if !may_enter(waiter) {
            return;
        }
        // (S) what was before our own acquisition is before the section of the waiter.
        if waiter.status().load(Relaxed) == PARKED
            && waiter.status().compare_exchange(PARKED, INVITED, Release, Relaxed).is_ok()
        {
            M::wake(waiter.status(), 1);
            most -= 1;
        }
        if is_shuffler::<M, P>(waiter) {
            return;
        }
        current = waiter;
    }
}

/// One walk; wakes the waiter next in line, so that it is running when its turn comes.
pub(crate) fn walk<M: Machine, P: Policy>(
    tail: &M::Ptr<QNode<M>>,
    node: Waiter<'_, M>,
    stop: impl FnMut() -> bool,
) {
    let mut wakes = 1;
    let grouped = |waiter: Waiter<'_, M>| {
        if wakes == 0 {
            return;
        }
        let from = waiter.status().load(Relaxed);
        if matches!(from, WAITING | PARKED)
            && waiter.status().compare_exchange(from, SPINNING, Relaxed, Relaxed).is_ok()
        {
            if from != WAITING {
                M::wake(waiter.status(), 1);
            }
            wakes -= 1;
        }
    };
    let abandoned = |waiter: Waiter<'_, M>| waiter.status().load(Acquire) == ABANDONED; // (D)
    shuffle::<M, P>(node, tail, SLEEPERS_IN_A_ROW, false, stop, grouped, abandoned);
}

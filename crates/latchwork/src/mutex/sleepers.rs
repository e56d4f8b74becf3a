//! The queue of the blocking ShflLocks, [`shfl`](super::shfl) and
//! [`shfl_rw`](crate::rwlock::shfl_rw): waiters spin briefly and then sleep, one of them shuffles, and timed ones
//! may give up. Who is the head of the queue competes for the lock, each lock in its own way.
//!
//! | node | meaning | next |
//! |---|---|---|
//! | WAITING | spins | PARKED, ABANDONED (itself); SPINNING (the shuffler); READY (the old head) |
//! | SPINNING | spins; will be head soon | as WAITING |
//! | PARKED | sleeps | SPINNING, with a wake; READY, with a wake at the unlock; ADMITTED, with a wake |
//! | PARKED_TIMED | sleeps until a deadline | SPINNING, READY, with a wake; ABANDONED (itself) |
//! | READY | is the head | |
//! | ADMITTED | has the lock, from the head, which has taken it out of the queue (readers) | |
//! | ABANDONED | gave up; its owner has left | READY, and released |
//!
//! Waiters without a deadline have their node on the stack, timed ones from the machine's type-stable pool:
//! one that gives up leaves it behind, and whoever would make it the head passes on to the next and
//! releases it.

use super::shuffle::{Policy, SLEEPERS_IN_A_ROW, is_shuffler, shuffle};
use crate::machine::{Deadline, Machine, QNode, Wait, Word};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;

pub(crate) const WAITING: u32 = 0;
pub(crate) const READY: u32 = 1;
pub(crate) const PARKED: u32 = 2;
pub(crate) const SPINNING: u32 = 3;
pub(crate) const ABANDONED: u32 = 4;
pub(crate) const PARKED_TIMED: u32 = 5;
pub(crate) const ADMITTED: u32 = 6;

/// Looks of a waiter at its node before it sleeps.
const NODE_LOOKS: u32 = 256;
/// Walks of a shuffler that is not the head, each after so many looks, before it sleeps like others.
const WALKS: u32 = 8;

/// How a queued acquisition ended, and whose the node is.
pub(crate) enum Outcome {
    /// Has the lock; has left the queue.
    Locked,
    /// The deadline passed at the head; has left the queue.
    TimedOut,
    /// The deadline passed in the queue; the node stays there.
    Abandoned,
}

/// A timed acquisition, with a node from the pool. Whether it got the lock.
pub(crate) fn timed<M: Machine>(acquire: impl FnOnce(&'static QNode<M>) -> Outcome) -> bool {
    let node = M::acquire_node();
    node.next.store(null_mut(), Relaxed);
    node.status.store(WAITING, Relaxed);
    node.batch.store(0, Relaxed);
    node.shuffler.store(0, Relaxed);
    node.resume.store(null_mut(), Relaxed);
    match acquire(node) {
        Outcome::Abandoned => false, // the node is the queue's now
        outcome => {
            // SAFETY: ours, and no longer in the queue.
            unsafe { M::release_node(node) };
            matches!(outcome, Outcome::Locked)
        }
    }
}

/// Queues up. Whether the caller is the head.
pub(crate) fn enqueue<M: Machine>(tail: &M::Ptr<QNode<M>>, node: &QNode<M>) -> bool {
    // (C) our node is initialised for whoever queues behind us, and our predecessor's for us.
    let before = tail.swap(node.as_ptr(), AcqRel);
    if before.is_null() {
        return true;
    }
    // SAFETY: the predecessor stays until it has made us the head, which needs `next`; the node of
    // one that gave up stays likewise.
    // (Q) pairs with the walks' and the head's loads of `next`.
    unsafe { (*before).next.store(node.as_ptr(), Release) };
    false
}

/// Short sleeps of a waiter in the queue, which end by themselves.
pub(crate) struct Alarms<F> {
    /// How many.
    pub count: u32,
    /// Nanoseconds of each.
    pub after: u64,
    /// What it does then. If it says `true`, that was the last one.
    pub wakes: F,
}

/// How waiting in the queue ended.
#[derive(PartialEq, Eq)]
pub(crate) enum Waited {
    /// We are the head.
    Head,
    /// The head has let us in; we are not in the queue any more.
    Admitted,
    /// We gave up, and the node now belongs to the queue.
    Abandoned,
}

/// Waits in the queue.
pub(crate) fn wait_for_head<M: Machine, P: Policy>(
    tail: &M::Ptr<QNode<M>>,
    node: &QNode<M>,
    deadline: Option<Deadline>,
    mut alarms: Alarms<impl FnMut() -> bool>,
) -> Waited {
    let mut walks = 0;
    loop {
        // (R) pairs with the hand-over in `next_head`, (S) with `admit`.
        match M::spin_for(&node.status, Acquire, NODE_LOOKS, |status| matches!(status, READY | ADMITTED)) {
            Some(READY) => return Waited::Head,
            Some(_) => return Waited::Admitted,
            None => (),
        }
        if walks < M::patience(WALKS) && is_shuffler::<M, P>(node) {
            walks += 1;
            walk::<M, P>(tail, node, || node.status.load(Relaxed) == READY);
            continue;
        }
        walks = 0;
        let status = node.status.load(Relaxed);
        let late = deadline.is_some_and(|d| d.passed::<M>());
        let next = match deadline {
            None => PARKED,
            Some(_) if late => ABANDONED,
            Some(_) => PARKED_TIMED,
        };
        // (R) as above, if it fails because we have become the head. Release: (D) pairs with
        // the swap in `next_head` that finds ABANDONED and takes the node over.
        if status == READY || node.status.compare_exchange(status, next, AcqRel, Acquire).is_err() {
            continue;
        }
        if late {
            return Waited::Abandoned;
        }
        let until = match alarms.count {
            0 => deadline,
            _ => Some(Deadline::after::<M>(alarms.after)),
        };
        while node.status.load(Relaxed) == next {
            if M::wait(&node.status, next, until) == Wait::TimedOut {
                break;
            }
        }
        if alarms.count > 0 {
            alarms.count = if (alarms.wakes)() { 0 } else { alarms.count - 1 };
        }
    }
}

/// The waiter that has just become the head.
pub(crate) struct Next<M: Machine> {
    /// Its node's status, which is READY now. To be used as an address only: the node may be gone.
    pub status: *const M::U32,
    /// What it was.
    pub before: u32,
    /// Its group.
    pub group: u32,
}

/// The waiter behind `node`; null if that was the last, whose place at the tail `instead` then has.
fn behind<M: Machine>(tail: &M::Ptr<QNode<M>>, node: &QNode<M>, instead: *mut QNode<M>) -> *mut QNode<M> {
    let next = node.next.load(Acquire); // (Q)
    // (C) for who queues behind `instead`.
    if !next.is_null() || tail.compare_exchange(node.as_ptr(), instead, Release, Relaxed).is_ok() {
        return next;
    }
    M::spin_until(&node.next, Acquire, |next: *mut QNode<M>| !next.is_null())
}

/// Leaves the queue from its head, `node`: the next waiter that is still there becomes it, after `claim` has
/// seen it.
pub(crate) fn next_head<M: Machine>(
    tail: &M::Ptr<QNode<M>>,
    node: &QNode<M>,
    mut claim: impl FnMut(&QNode<M>),
) -> Option<Next<M>> {
    let mut current = node;
    loop {
        let next = behind(tail, current, null_mut());
        if !core::ptr::eq(current, node) {
            // SAFETY: its owner gave up (D), and it is no longer in the queue.
            unsafe { M::release_node(&*current.as_ptr()) };
        }
        if next.is_null() {
            return None;
        }
        // SAFETY: a waiter's node stays at least until it is READY.
        let (status, group) = unsafe { (&(*next).status, (*next).group.load(Relaxed)) };
        // SAFETY: as above.
        claim(unsafe { &*next });
        // (R) the queue as our walks left it. (D) pairs with giving up.
        match status.swap(READY, AcqRel) {
            // SAFETY: an abandoned node is ours to release.
            ABANDONED => current = unsafe { &*next },
            before => return Some(Next { status: &raw const *status, before, group }),
        }
    }
}

/// Takes up to `most` waiters who sleep right behind the head, `node`, out of the queue and lets them in, if
/// `may_enter` says so of them, which has then given them the lock.
///
/// None of them shuffles, since they sleep, and who does so behind them does not look in front of itself.
pub(crate) fn admit<M: Machine>(
    tail: &M::Ptr<QNode<M>>,
    node: &QNode<M>,
    most: u32,
    mut may_enter: impl FnMut(&QNode<M>) -> bool,
) {
    for _ in 0..most {
        let first = node.next.load(Acquire); // (Q)
        // SAFETY: a waiter's node stays at least until we have changed its status.
        let Some(waiter) = (unsafe { first.as_ref() }) else { return };
        // Only we would wake it, so it stays PARKED: no shuffler is in front of it, and it has no deadline.
        if waiter.status.load(Acquire) != PARKED || !may_enter(waiter) {
            return;
        }
        // Before the tail says that we are the last: who queues behind us then writes it.
        node.next.store(null_mut(), Relaxed);
        let next = behind(tail, waiter, node.as_ptr());
        if !next.is_null() {
            node.next.store(next, Relaxed);
        }
        let status = &raw const waiter.status;
        // (S) what was before our own acquisition is before its section.
        waiter.status.store(ADMITTED, Release);
        M::wake(status, 1);
    }
}

/// One walk; wakes the waiter next in line, so that it is running when its turn comes.
pub(crate) fn walk<M: Machine, P: Policy>(
    tail: &M::Ptr<QNode<M>>,
    node: &QNode<M>,
    stop: impl FnMut() -> bool,
) {
    let mut wakes = 1;
    let grouped = |waiter: &QNode<M>| {
        if wakes == 0 {
            return;
        }
        let from = waiter.status.load(Relaxed);
        if matches!(from, WAITING | PARKED | PARKED_TIMED)
            && waiter.status.compare_exchange(from, SPINNING, Relaxed, Relaxed).is_ok()
        {
            if from != WAITING {
                M::wake(&raw const waiter.status, 1);
            }
            wakes -= 1;
        }
    };
    let abandoned = |waiter: &QNode<M>| waiter.status.load(Acquire) == ABANDONED; // (D)
    shuffle::<M, P>(node, tail, SLEEPERS_IN_A_ROW, false, stop, grouped, abandoned);
}

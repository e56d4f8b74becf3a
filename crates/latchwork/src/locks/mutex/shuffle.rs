//! Shuffling: waiters that group their own queue.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019, sections 4.1 and 4.2, figure 4
//! (lines 59 to 108). Which waiters belong together is a [`Policy`]'s to say; by default, those of one NUMA node.
//!
//! One waiter at a time, the *shuffler*, walks the queue behind itself and moves the waiters of its own group to the end
//! of the group's *run*, which begins with the shuffler. The paper's four invariants, and what keeps them:
//!
//! 1. *The successor of the lock holder keeps its position.* A walk starts behind the shuffler, which is the head or
//!    stands behind it.
//! 2. *There is one shuffler.* At most one waiter has SHUFFLER in its `role`. If the head's `batch` is 0, there is no other
//!    shuffler, because a shuffler numbers every waiter between itself and the next one (`head_may_shuffle`).
//! 3. *Only the head starts shuffling.* By the same rule.
//! 4. *A shuffler may pass the role on*, to the last waiter of its run.
//!
//! Waiters leave the queue at the head only; a waiter that gave up leaves an abandoned node, which the walk takes out. The
//! walk does not move the last waiter of the queue, because an arrival links itself behind it; a thorough walk first takes
//! that waiter out of the tail word.

pub use super::policy::{MAX_RANKS, NoPolicy, NumaPolicy, Partial, Policy, Stealing};
use super::ranks;
use crate::machine::{Machine, QNode, Word, node_view};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;

/// Waiters of one group in a row before another group gets its turn, in a blocking lock. Newcomers that steal from each
/// head keep the lock in one place too, so a longer run is worth little: in the simulator, 16 is as fast as 1024.
pub(crate) const SLEEPERS_IN_A_ROW: u32 = 16;

/// In a waiter's `role`: it is the next shuffler.
pub(crate) const SHUFFLER: u32 = 1;

node_view! {
    /// A waiter's node in a queue that shuffles.
    pub(crate) struct Waiter {
        /// The waiter behind this one, once that has linked itself.
        next: links[0],
        /// What the lock tells the waiter, in the lock's own states. The owner spins and parks here.
        status: words[0],
        /// The waiter's number in its run, from 1; 0: no shuffler has grouped it.
        batch: words[1],
        /// What the policy compares: the owner's [`Policy::key`].
        key: words[2],
        /// SHUFFLER, and above it how many waiters have passed this one (`ranks`).
        role: words[3],
        /// Of the next shuffler: where its walk starts (the paper's `qlast`); null: at the shuffler.
        resume: links[1],
        /// When the waiter queued, if its lock wants to know (`shfl_rw`).
        queued: words[4],
    }
}

/// Whether `node` is the shuffler.
pub(crate) fn is_shuffler<M: Machine, P: Policy>(node: Waiter<'_, M>) -> bool {
    // (S) pairs with the end of a walk: the shuffler sees the queue as that walk left it.
    P::applies::<M>() && node.role().load(Acquire) & SHUFFLER != 0
}

/// Whether `node`, the head, is the shuffler or may become it.
pub(crate) fn head_may_shuffle<M: Machine, P: Policy>(node: Waiter<'_, M>) -> bool {
    is_shuffler::<M, P>(node) || P::applies::<M>() && node.batch().load(Relaxed) == 0
}

/// Which waiter has the role after a walk that has ended before it grouped a waiter.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The shuffler.
    Keeps,
    /// The waiter that the walk has reached. (The rule of `head_may_shuffle` does not hold then.)
    Moves,
    /// The same, and the walk ends at the first waiter of another group, which gets the role in any case.
    MovesAtOnce,
}

/// One walk of the shuffler `node`, in the queue that ends at `tail`. Returns whether there still is a shuffler: there is
/// none after `in_a_row` waiters in a row.
///
/// - `stop` is asked after each waiter and ends the walk, unless the policy is thorough. It says that the lock is free or
///   that the shuffler has become the head.
/// - `grouped` is called with each waiter that joins the run (with several ranks: with the first waiter, at the end).
/// - `abandoned` says whether a waiter has given up. Its node is taken out and released here.
///
/// (Q) A link is written with release by the arriving waiter and read here with acquire. All links behind the shuffler
/// that are not null are written by the shuffler alone.
pub(crate) fn shuffle<M: Machine, P: Policy>(
    node: Waiter<'_, M>,
    tail: &M::Ptr<QNode<M>>,
    in_a_row: u32,
    cut: Cut,
    mut stop: impl FnMut() -> bool,
    mut grouped: impl FnMut(Waiter<'_, M>),
    abandoned: impl Fn(Waiter<'_, M>) -> bool,
) -> bool {
    const { assert!(P::RANKS >= 1 && P::RANKS <= MAX_RANKS) };
    let quota = P::PATIENCE.unwrap_or(in_a_row);
    if P::RANKS > 1 {
        return ranks::sort::<M, P>(node, tail, quota, cut, stop, grouped, abandoned);
    }
    let key = node.key().load(Relaxed);
    let Some(mut batch) = begin_walk(node, quota) else { return false };
    // `last` is the last of the run, `before` the waiter that the walk has reached.
    let (mut last, mut before) = (node, resumed(node).unwrap_or(node));
    let (mut stopped, mut left) = (false, false);
    while batch < quota {
        let Some(current) = behind(before) else { break };
        let ours = P::rank::<M>(key, current.key().load(Relaxed)) == 0;
        if abandoned(current) {
            if !drop_abandoned(before, current) {
                break;
            }
        } else if !ours {
            before = current;
            if cut == Cut::MovesAtOnce {
                left = true;
                break;
            }
        } else {
            if same(before, last) {
                before = current;
            } else {
                if !take_out::<M, P>(tail, before, current) {
                    break;
                }
                current.next().store(last.next().load(Relaxed), Release);
                last.next().store(current.as_ptr(), Release);
            }
            batch += 1;
            current.batch().store(batch, Relaxed);
            grouped(current);
            last = current;
        }
        if !P::THOROUGH && stop() {
            stopped = true;
            break;
        }
    }
    if !P::HANDS_ON || P::THOROUGH && cut != Cut::Keeps {
        last = node;
    } else if left || cut != Cut::Keeps && stopped && same(last, node) {
        last = before;
    }
    pass_role::<M, P>(last, before);
    true
}

/// Begins a walk of the shuffler `node`, which gives up the role. Returns how many waiters its run has, if fewer than
/// `quota`.
pub(super) fn begin_walk<M: Machine>(node: Waiter<'_, M>, quota: u32) -> Option<u32> {
    node.role().store(0, Relaxed);
    let batch = node.batch().load(Relaxed).max(1);
    node.batch().store(batch, Relaxed);
    (batch < quota).then_some(batch)
}

/// The waiter behind `before`, which is the shuffler or stands behind it.
pub(super) fn behind<M: Machine>(before: Waiter<'_, M>) -> Option<Waiter<'static, M>> {
    let next = before.next().load(Acquire); // (Q)
    // SAFETY: it stands behind the shuffler, so it cannot leave the queue before the shuffler does.
    (!next.is_null()).then(|| unsafe { Waiter::at(next) })
}

/// Where the last walk stopped, if it told the shuffler `node`; only one walk starts there.
pub(super) fn resumed<'a, M: Machine>(node: Waiter<'a, M>) -> Option<Waiter<'a, M>> {
    let resume = node.resume().load(Relaxed);
    node.resume().store(null_mut(), Relaxed);
    // SAFETY: it stands behind the shuffler, so it cannot leave the queue before the shuffler does.
    (!resume.is_null()).then(|| unsafe { Waiter::at(resume) })
}

/// Makes `next` the shuffler. The walk before has reached `before`.
pub(super) fn pass_role<M: Machine, P: Policy>(next: Waiter<'_, M>, before: Waiter<'_, M>) {
    let resume = if !P::RESUMES || same(before, next) { null_mut() } else { before.as_ptr() };
    next.resume().store(resume, Relaxed);
    next.role().store(SHUFFLER, Release); // (S)
}

pub(super) fn same<M: Machine>(one: Waiter<'_, M>, other: Waiter<'_, M>) -> bool {
    core::ptr::eq(one.0, other.0)
}

/// Takes the abandoned node `current` out from behind `before` and releases it, unless it is the last of the queue.
pub(super) fn drop_abandoned<M: Machine>(before: Waiter<'_, M>, current: Waiter<'static, M>) -> bool {
    let next = current.next().load(Acquire); // (Q)
    if next.is_null() {
        return false;
    }
    before.next().store(next, Release);
    // SAFETY: its owner has left, and no link leads to it any more.
    unsafe { M::release_node(current.0) };
    true
}

/// Unlinks `current`, which stands behind `before`. `false`: it is the last of the queue and has to stay there.
#[inline(always)]
pub(super) fn take_out<M: Machine, P: Policy>(
    tail: &M::Ptr<QNode<M>>,
    before: Waiter<'_, M>,
    current: Waiter<'_, M>,
) -> bool {
    let next = current.next().load(Acquire); // (Q)
    if !next.is_null() {
        before.next().store(next, Release);
        return true;
    }
    if !P::THOROUGH {
        return false;
    }
    // From here on an arrival links itself to `before`. Release: (C) the arrival finds the node of `before` initialised, and
    // its `next` null.
    before.next().store(null_mut(), Relaxed);
    let taken = tail.compare_exchange(current.as_ptr(), before.as_ptr(), Release, Relaxed).is_ok();
    if !taken {
        before.next().store(current.as_ptr(), Release);
    }
    taken
}

//! Shuffling: waiters that order their own queue.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019, sections 4.1 and 4.2, figure 4.
//!
//! One waiter at a time, the *shuffler*, walks the queue behind itself and moves the waiters of its own group right behind itself.
//! They are its *run*: they get the lock one after the other. A [`Policy`] says which waiters are a group; by default, those of one
//! NUMA node. A policy with several ranks has those of rank 1 moved behind those of rank 0, and so on. Waiters without a
//! rank stay behind all of these, in order of arrival.
//!
//! In the blocking locks only the head of the queue shuffles, while it waits. In the non-blocking one, waiters pass the role of
//! the shuffler on, as in the paper (`shfl_spin`); in the blocking ones that is worth nothing.
//!
//! Waiters leave the queue at the head only; a waiter that gave up leaves an abandoned node, which the walk takes out. An
//! arrival links itself behind the last waiter. So the walk leaves the last waiter where it is, unless it is thorough: then it
//! first takes that waiter out of the tail word.
//!
//! *No waiter starves.* A run has at most [`PATIENCE`](Policy::PATIENCE) waiters. Each has its number in it (`batch`). With
//! several ranks, each first waiter behind a new place counts the waiters that were moved there (`passed`). At the policy's
//! quota it becomes a *wall*: no waiter behind it passes it until it has had the lock. A waiter with `n` waiters in front of it is
//! therefore passed by at most `(n + 1) * PATIENCE` others.

pub use super::policy::{MAX_RANKS, NumaPolicy, Policy};
use crate::machine::{Machine, QNode, Word, node_view};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;

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
        /// How many waiters have passed this one, if there are several ranks.
        passed: words[3],
    }
}

/// Where a walk has ended.
pub(crate) struct Walk<'a, M: Machine> {
    /// The last waiter of the run.
    pub last: Waiter<'a, M>,
    /// The waiter that the walk has reached.
    pub reached: Waiter<'a, M>,
    /// Whether `stop` ended it.
    pub stopped: bool,
}

/// One walk of the shuffler `node`, in the queue that ends at `tail`, from the waiter `from`: `node`, or where the last walk
/// ended. `None`: the shuffler's run is complete, with `in_a_row` waiters or the policy's own number. `stop` is asked after each
/// waiter and ends the walk, unless the policy is thorough. `abandoned` says whether a waiter has given up. Its node is taken
/// out and released here.
///
/// (Q) A link is written with release by the arriving waiter and read here with acquire. All links behind the shuffler
/// that are not null are written by the shuffler alone.
pub(crate) fn shuffle<'a, M: Machine, P: Policy>(
    node: Waiter<'a, M>,
    from: Waiter<'a, M>,
    tail: &M::Ptr<QNode<M>>,
    in_a_row: u32,
    mut stop: impl FnMut(Waiter<'_, M>) -> bool,
    abandoned: impl Fn(Waiter<'_, M>) -> bool,
) -> Option<Walk<'a, M>> {
    const { assert!(P::RANKS >= 1 && P::RANKS <= MAX_RANKS) };
    let quota = P::PATIENCE.unwrap_or(in_a_row);
    let mut batch = node.batch().load(Relaxed).max(1);
    node.batch().store(batch, Relaxed);
    if batch >= quota {
        return None;
    }
    let key = node.key().load(Relaxed);
    // For each rank, the last waiter of it or of the ranks before it. A walk that does not begin at the shuffler only groups: it
    // does not know where the other ranks end.
    let mut ends = [node; MAX_RANKS];
    let ranks = if same(from, node) { P::RANKS } else { 1 };
    let (mut reached, mut stopped) = (from, false);
    while batch < quota && !stopped {
        let next = reached.next().load(Acquire); // (Q)
        if next.is_null() {
            break;
        }
        // SAFETY: it stands behind the shuffler, so it cannot leave the queue before the shuffler does.
        let current = unsafe { Waiter::at(next) };
        let rank = P::rank::<M>(key, current.key().load(Relaxed));
        let mut wall = P::RANKS > 1 && current.passed().load(Relaxed) >= quota;
        if abandoned(current) {
            if !take_out::<M, P>(tail, reached, current) {
                break;
            }
            // SAFETY: its owner has left, and no link leads to it any more. Abandoned nodes are the pool's.
            unsafe { M::release_node(&*current.as_ptr()) };
        } else if rank >= ranks {
            reached = current;
        } else {
            let end = ends[rank];
            if same(reached, end) {
                reached = current;
            } else {
                if !take_out::<M, P>(tail, reached, current) {
                    break;
                }
                let next = end.next().load(Relaxed);
                if P::RANKS > 1 {
                    // SAFETY: it stands between the shuffler and `current`.
                    let passed = unsafe { Waiter::at(next) }.passed();
                    let now = passed.load(Relaxed) + 1;
                    passed.store(now, Relaxed);
                    wall |= now >= quota;
                }
                current.next().store(next, Release);
                end.next().store(current.as_ptr(), Release);
            }
            if rank == 0 {
                batch += 1;
                current.batch().store(batch, Relaxed);
            }
            for later in &mut ends[rank..P::RANKS] {
                if same(*later, end) {
                    *later = current;
                }
            }
        }
        if wall {
            break;
        }
        stopped = !P::THOROUGH && stop(reached);
    }
    Some(Walk { last: ends[0], reached, stopped })
}

pub(crate) fn same<M: Machine>(one: Waiter<'_, M>, other: Waiter<'_, M>) -> bool {
    core::ptr::eq(one.0, other.0)
}

/// Unlinks `current`, which stands behind `before`. `false`: it is the last of the queue and has to stay there.
#[inline(always)]
fn take_out<M: Machine, P: Policy>(
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

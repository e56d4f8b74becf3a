//! Shuffling: waiters that order their own queue.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019, sections 4.1 and 4.2, figure 4.
//!
//! One waiter at a time, the *shuffler*, walks the queue behind itself and moves the waiters of its own group right behind itself.
//! They are its *run*: they get the lock one after the other. A [`Policy`] says which waiters are a group; by default, those of one
//! NUMA node. (A policy may also sort waiters by rank: [`walk`].)
//!
//! In the blocking locks only the head of the queue shuffles, while it waits. In the non-blocking one, waiters pass the role of
//! the shuffler on, as in the paper (`shfl_spin`); in the blocking ones that is worth nothing.
//!
//! Waiters leave the queue at the head only; a waiter that gave up leaves an abandoned node, which the walk takes out. The
//! walk does not move the last waiter of the queue, because an arrival links itself behind it.
//!
//! *No waiter starves*: a run has at most [`PATIENCE`](Policy::PATIENCE) waiters. Each has its number in it (`batch`).

pub use super::policy::{MAX_RANKS, NoPolicy, NumaPolicy, Partial, Policy};
use crate::machine::{Machine, QNode, Word, node_view};
use core::sync::atomic::Ordering::*;

mod walk;

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
        /// How many waiters have passed this one, if there are several ranks ([`walk`]).
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
/// ended. `None`: the shuffler's run is complete, with `in_a_row` waiters or the policy's own number.
///
/// - `stop` is asked after each waiter and ends the walk, unless the policy is thorough.
/// - `abandoned` says whether a waiter has given up. Its node is taken out and released here.
///
/// (Q) A link is written with release by the arriving waiter and read here with acquire. All links behind the shuffler
/// that are not null are written by the shuffler alone.
pub(crate) fn shuffle<'a, M: Machine, P: Policy>(
    node: Waiter<'a, M>,
    from: Waiter<'a, M>,
    tail: &M::Ptr<QNode<M>>,
    in_a_row: u32,
    stop: impl FnMut(Waiter<'_, M>) -> bool,
    abandoned: impl Fn(Waiter<'_, M>) -> bool,
) -> Option<Walk<'a, M>> {
    let quota = P::PATIENCE.unwrap_or(in_a_row);
    let batch = node.batch().load(Relaxed).max(1);
    node.batch().store(batch, Relaxed);
    (batch < quota).then(|| walk::walk::<M, P>(node, from, tail, batch, quota, stop, abandoned))
}

/// The waiter behind `before`, which is the shuffler or stands behind it.
fn behind<'a, M: Machine>(before: Waiter<'_, M>) -> Option<Waiter<'a, M>> {
    let next = before.next().load(Acquire); // (Q)
    // SAFETY: it stands behind the shuffler, so it cannot leave the queue before the shuffler does.
    (!next.is_null()).then(|| unsafe { Waiter::at(next) })
}

pub(crate) fn same<M: Machine>(one: Waiter<'_, M>, other: Waiter<'_, M>) -> bool {
    core::ptr::eq(one.0, other.0)
}

/// Unlinks `current`, which stands behind `before`. `false`: it is the last of the queue and has to stay there.
#[inline(always)]
fn take_out<M: Machine>(before: Waiter<'_, M>, current: Waiter<'_, M>) -> bool {
    let next = current.next().load(Acquire); // (Q)
    let taken = !next.is_null();
    if taken {
        before.next().store(next, Release);
    }
    taken
}

/// [`take_out`] of an abandoned node, which is also released.
fn drop_abandoned<M: Machine>(before: Waiter<'_, M>, current: Waiter<'_, M>) -> bool {
    let taken = take_out(before, current);
    if taken {
        // SAFETY: its owner has left, and no link leads to it any more. Abandoned nodes are the pool's.
        unsafe { M::release_node(&*current.as_ptr()) };
    }
    taken
}

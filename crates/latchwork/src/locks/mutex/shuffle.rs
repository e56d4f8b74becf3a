//! Shuffling: waiters that order their own queue, and the policies that say in which order.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019, sections 4.1, 4.2 and 7, figure 4.
//!
//! One waiter at a time, the *shuffler*, walks the queue behind itself and moves the waiters of its own group right behind
//! itself. They are its *run*: they get the lock one after the other. A [`Policy`] says which waiters are a group; by default,
//! those of one NUMA node ([`policies`](super::policies) has this policy and others). A policy with several ranks has those of rank 1 moved
//! behind those of rank 0, and so on. Waiters without a rank stay behind all of these, in order of arrival.
//!
//! In the blocking locks only the head shuffles, while it waits. In the other (`shfl_spin`), waiters pass the role on, as in the paper.
//!
//! Only the head takes its own node out. Any other waiter that leaves abandons its node, and a walk or a leaving head releases that. An
//! arrival links itself behind the last waiter. So the walk leaves the last waiter where it is, unless the policy is thorough.
//!
//! *No policy can lose a waiter or starve it.* A policy only compares two numbers that waiters have brought along. A run has at
//! most [`PATIENCE`](Policy::PATIENCE) waiters. Each has its number in it (`batch`). With several ranks, each first waiter behind
//! a new place counts the waiters that were moved there (`passed`). At the policy's quota it becomes a *wall*: no waiter behind
//! it passes it until it has had the lock. With one rank, at most `(n + 1) * PATIENCE` others pass a waiter with `n` in front of it. With
//! more ranks the bound is larger: who is put in front of a waiter that was moved itself counts there, and not further behind.

use crate::machine::{Machine, QNode, Word, node_view, or_abort};
use core::sync::atomic::Ordering::*;

/// The most ranks that a policy can have.
pub const MAX_RANKS: usize = 8;

/// The order in which waiters get a lock, as seen from the waiter that shuffles. A waiter's own thread takes its key when it
/// queues.
///
/// If [`rank`](Self::rank) or [`applies`](Self::applies) panics, the process ends: the thread stands in a queue that others are in.
pub trait Policy: Send + Sync + 'static {
    /// How many ranks there are, at most [`MAX_RANKS`].
    const RANKS: usize = 1;
    /// The count of passing waiters at which a waiter becomes a wall. With one rank: how many waiters of a group get the lock in a
    /// row. `None`: as many as the lock finds best for NUMA groups.
    const PATIENCE: Option<u32> = None;
    /// Whether the head's walk goes on when the lock becomes free, to the end of the run, a wall, or a waiter that has not linked
    /// itself. (In the non-blocking ShflLock the head is then the only waiter that shuffles.)
    const THOROUGH: bool = false;
    /// Whether newcomers may *steal* for a bounded time: take the lock past the whole queue. (In the non-blocking ShflLock only
    /// attempts, `try_lock`, steal.)
    const STEALING: bool = true;

    // How the blocking ShflLocks wait: constants, then parts that may be left out. `latchwork-lab ablate shfl` shows what each
    // is worth. A policy of one's own leaves them as they are.

    /// Nanoseconds between the first looks of a waiter, and between those at a free lock: about one transfer of a cache line.
    #[doc(hidden)]
    const LOOK: u32 = 50;
    /// A wait, divided by the time until the next look; and as many looks in a row at a held lock, in which a wait grows by a factor of
    /// e, say that its sections are long. Half and double are as fast on average (`docs/ablation.md`).
    #[doc(hidden)]
    const PROMPTNESS: u32 = 16;
    /// Further looks that find a lock free before a waiter takes it. `docs/mutexes.md`: two threads are two to three times as fast.
    #[doc(hidden)]
    const SECOND_LOOKS: u32 = 3;
    /// Nanoseconds for which a waiter spins before it sleeps: about what it costs to park and unpark it.
    #[doc(hidden)]
    const SPIN: u32 = 10_000;
    /// Microseconds (of 1024 ns) for which newcomers may steal from a head: many wakeups (2 to 50 us), a third of a quantum (3 ms).
    #[doc(hidden)]
    const TURN: u32 = 1000;
    /// A head that was robbed sleeps for a time, and is not unparked by each unlock.
    #[doc(hidden)]
    const NAPS: bool = true;
    /// Newcomers spin beside a head that sleeps.
    #[doc(hidden)]
    const BESIDE: bool = true;
    /// Threads that are not the head stop spinning for a lock for which they spin in vain, but for one turn in so many, which is a trial.
    /// (With 16, programs that yield inside of sections lost 12%.)
    #[doc(hidden)]
    const TRIAL: u32 = 64;
    /// A parked waiter that becomes the head sleeps on until the unlock.
    #[doc(hidden)]
    const REQUEUES: bool = true;

    /// Whether there is anything to move on this machine.
    fn applies<M: Machine>() -> bool {
        true
    }
    /// The key of the calling thread.
    fn key<M: Machine>() -> u32;
    /// Where a waiter with the key `waiter` belongs if a waiter with the key `shuffler` shuffles. Rank 0 stands right behind the
    /// shuffler, rank 1 behind all of rank 0, and so on. A waiter whose rank is [`RANKS`](Self::RANKS) or more stays where it is.
    ///
    /// In [`shfl_rw`](crate::locks::rwlock::shfl_rw) both keys may be numbers that [`key`](Self::key) never returned: a reader's is
    /// `u32::MAX`, and an upgradable reader's `u32::MAX - 1`. A writer's is at most `u32::MAX - 2`.
    fn rank<M: Machine>(shuffler: u32, waiter: u32) -> usize;
}

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

/// What a walk has found and done: the last waiter of the run, the waiter that it has reached, and whether `stop` ended it.
pub(crate) struct Walk<'a, M: Machine> {
    pub last: Waiter<'a, M>,
    pub reached: Waiter<'a, M>,
    pub stopped: bool,
}

/// One walk of the shuffler, in the queue that ends at `tail`, from the waiter `from`: the shuffler, or where the last walk ended.
/// A run has `in_a_row` waiters, or the policy's own number; `None`: the shuffler is the last of a complete run. `stop` is asked
/// after each waiter unless the policy is thorough. A node that is `abandoned` is taken out and released here.
///
/// (Q) An arriving waiter writes a link with release, and it is read here with acquire. The shuffler alone writes the links behind
/// itself that are not null; the next shuffler sees its changes by the handover.
pub(crate) fn shuffle<'a, M: Machine, P: Policy>(
    shuffler: Waiter<'a, M>,
    from: Waiter<'a, M>,
    tail: &M::Ptr<QNode<M>>,
    in_a_row: u32,
    mut stop: impl FnMut(Waiter<'_, M>) -> bool,
    abandoned: impl Fn(Waiter<'_, M>) -> bool,
) -> Option<Walk<'a, M>> {
    const { assert!(P::RANKS >= 1 && P::RANKS <= MAX_RANKS) };
    let quota = P::PATIENCE.unwrap_or(in_a_row);
    let mut batch = shuffler.batch().load(Relaxed).max(1);
    shuffler.batch().store(batch, Relaxed);
    if batch >= quota {
        return None;
    }
    let key = shuffler.key().load(Relaxed);
    // For each rank, the last waiter of it or of the ranks before it: the next one of that rank belongs right behind. A walk that does
    // not begin at the shuffler only groups rank 0: it does not know where the other ranks end.
    let mut ends = [shuffler; MAX_RANKS];
    let ranks = if from == shuffler { P::RANKS } else { 1 };
    // All waiters up to `reached` are where they belong.
    let (mut reached, mut stopped, mut wall) = (from, false, false);
    while batch < quota && !stopped && !wall {
        let next = reached.next().load(Acquire); // (Q)
        if next.is_null() {
            break;
        }
        // SAFETY: it stands behind the shuffler, so it cannot leave the queue before the shuffler does.
        let current = unsafe { Waiter::at(next) };
        wall = P::RANKS > 1 && current.passed().load(Relaxed) >= quota;
        let rank = or_abort(|| P::rank::<M>(key, current.key().load(Relaxed)));
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
            if reached == end {
                reached = current; // it stands there already
            } else if !take_out::<M, P>(tail, reached, current) {
                break;
            } else {
                wall |= put_behind::<M, P>(end, current) >= quota;
            }
            if rank == 0 {
                batch += 1;
                current.batch().store(batch, Relaxed);
            }
            // Later ranks that had no waiter ended there too.
            ends[rank..P::RANKS].iter_mut().filter(|later| **later == end).for_each(|end| *end = current);
        }
        stopped = !P::THOROUGH && !wall && stop(reached);
    }
    Some(Walk { last: ends[0], reached, stopped })
}

/// Links `current`, which was taken out, behind `end`. Returns how many have passed the waiter that stood there (with one rank: 0).
fn put_behind<M: Machine, P: Policy>(end: Waiter<M>, current: Waiter<M>) -> u32 {
    let next = end.next().load(Relaxed);
    let mut passed = 0;
    if P::RANKS > 1 {
        // SAFETY: `current` stood behind it, so it is no further back in the queue than the walk is.
        let next = unsafe { Waiter::<M>::at(next) };
        passed = next.passed().load(Relaxed) + 1;
        next.passed().store(passed, Relaxed);
    }
    current.next().store(next, Release); // (Q)
    end.next().store(current.as_ptr(), Release); // (Q)
    passed
}

/// Unlinks `current`, which stands behind `before`. `false`: it is the last of the queue and has to stay there.
#[inline(always)]
fn take_out<M: Machine, P: Policy>(tail: &M::Ptr<QNode<M>>, before: Waiter<M>, current: Waiter<M>) -> bool {
    let next = current.next().load(Acquire); // (Q)
    if next.is_null() && !P::THOROUGH {
        return false;
    }
    before.next().store(next, Release); // (Q)
    // (C) The next arrival links itself to `before`. It finds that node initialised, and its `next` null.
    let taken =
        !next.is_null() || tail.compare_exchange(current.as_ptr(), before.as_ptr(), Release, Relaxed).is_ok();
    if !taken {
        before.next().store(current.as_ptr(), Release); // (Q)
    }
    taken
}

#[cfg(test)]
mod tests;

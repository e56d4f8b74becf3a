//! Shuffling: waiters that reorder their own queue.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019, sections 4.1
//! and 4.2, figure 4 (lines 59 to 108).
//!
//! One waiter at a time, the *shuffler*, walks the queue behind itself and moves the waiters of its
//! own group to the end of the group's run. The four invariants, and what keeps them:
//!
//! 1. *The successor of the lock holder keeps its position.* A walk starts behind the shuffler, and
//!    the shuffler is the head of the queue or stands behind it.
//! 2. *There is one shuffler.* The `shuffler` flag is set on one waiter at most, and handed from one to
//!    another behind it. A head starts if it knows that there is no other; `may_start` is the paper's
//!    way to know: its `batch` is 0, while whoever a shuffler has grouped has a nonzero one, and the
//!    waiters between two shufflers are all grouped. (Non-blocking ShflLock keeps a flag in the lock.)
//! 3. *Only the head starts shuffling.* By the same rule.
//! 4. *A shuffler may pass the role to one of its successors.* To the last waiter of its run; a head
//!    that will have the lock before it gets anywhere, to the next waiter (`hand_on`).
//!
//! Waiters behind the shuffler cannot leave meanwhile, because the queue is left only at the head; those
//! that gave up (timed locks) stay as abandoned nodes, which the walk takes out. The last waiter of the
//! queue is not moved, because arrivals link themselves behind it; a thorough walk takes it out of the
//! tail word first.
//!
//! The `qlast` optimisation (section 4.2.1): the next shuffler is told in `resume` where the walk
//! stopped, and goes on there.
//!
//! # Long runs, and whose they are
//!
//! A run goes on as long as the group's threads, once they have queued again at the tail, are moved up before the
//! last of the run has left. A group that has only just got the role cannot do that where the queue is long: the
//! walk to the tail takes longer than its own turn (in the simulator 14 us for 72 waiters of other sockets, and
//! 7 us for 24 handovers). Its turn is short, and the role moves on through the queue, to a group that has the
//! time. When that one's long run is over all begins anew, and from one long run to the next it is always the same
//! number of groups, so that with 4 sockets one of them, with 8 two, had 1024 acquisitions in each turn and the others
//! 24, for tens of milliseconds. So a coin is flipped where a run begins: tails leaves it to the group behind.
//! (The paper names a random generator as a way to mitigate starvation, as in CNA.)
//!
//! # Policies
//!
//! What is moved where is a [`Policy`]'s to say; section 7 of the paper names some, which are in
//! [`policies`](super::policies). A policy only compares two numbers that waiters have brought along. It
//! touches no queue, so that none can break the invariants, or lose or starve a waiter: whatever it says,
//! at most [`PATIENCE`](Policy::PATIENCE) waiters pass the first one that stands behind where they are
//! moved to; it is then a wall that nobody passes until it has had the lock. (With a single rank, the
//! wall is the first waiter behind a full run.) So one with `n` waiters in front of it is passed by at
//! most `(n + 1) * PATIENCE` others.

use crate::machine::{Clock, Machine, QNode, Word, node_view};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;

/// Waiters of one group in a row before another group gets its turn (`MAX_SHUFFLES`), each of whom takes
/// the lock at once.
pub(crate) const SPINNERS_IN_A_ROW: u32 = 1024;
/// The same where each may first be passed by thieves for a while (`STEAL_BOUND`). They keep the lock in
/// one place meanwhile, so that a long run is worth little: in the simulator 16 is as fast as 1024.
pub(crate) const SLEEPERS_IN_A_ROW: u32 = 16;

/// Ranks that a policy can have.
pub const MAX_RANKS: usize = 8;

/// Who may take a lock that has a queue without joining it.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Stealing {
    /// Whoever finds it free, for a bounded time.
    Anyone,
    /// The same, but of those that did not find it free at once only threads of the group that the lock
    /// is in.
    Local,
    /// Nobody: a waiter is not passed by who comes after it, unless the policy moves that one up.
    Nobody,
}

/// Who is moved up in a queue: an order of waiters, as seen from the one that shuffles.
///
/// A waiter's key is taken when it queues, by its own thread, and does not change while it waits.
pub trait Policy: Send + Sync + 'static {
    /// How many ranks there are, at most [`MAX_RANKS`].
    const RANKS: usize = 1;
    /// How many others may pass a waiter; see the [module documentation](self). `None`: as many as the
    /// lock finds best for NUMA groups.
    const PATIENCE: Option<u32> = None;
    /// Whether the head of the queue looks at all waiters before it takes the lock. It may otherwise take
    /// a lock that has become free first, and leave a waiter where it is. (In the non-blocking ShflLock the head
    /// is then the only one that shuffles.)
    const THOROUGH: bool = false;
    /// Who may pass the whole queue (blocking ShflLock; of the other one, attempts may, or nobody).
    const STEALING: Stealing = Stealing::Anyone;
    /// Whether a shuffler makes another waiter the next one.
    const HANDS_ON: bool = true;
    /// Whether the next one goes on where the walk stopped (the `qlast` optimisation).
    const RESUMES: bool = !Self::THOROUGH;

    /// Whether there is anything to move on this machine.
    #[inline(always)]
    fn applies<M: Machine>() -> bool {
        true
    }
    /// The key of the calling thread.
    fn key<M: Machine>() -> u32;
    /// Where a waiter with the key `waiter` belongs if a waiter with the key `shuffler` shuffles: with 0
    /// right behind it, with 1 behind all of those, and so on. From [`RANKS`](Self::RANKS) on it stays
    /// where it is.
    fn rank<M: Machine>(shuffler: u32, waiter: u32) -> usize;
}

/// Groups waiters of one NUMA node, so that the lock and its data stay in that node's caches.
#[derive(Debug)]
pub struct NumaPolicy;

impl Policy for NumaPolicy {
    #[inline]
    fn applies<M: Machine>() -> bool {
        M::numa_nodes() > 1
    }
    #[inline]
    fn key<M: Machine>() -> u32 {
        M::numa_node()
    }
    #[inline]
    fn rank<M: Machine>(shuffler: u32, waiter: u32) -> usize {
        usize::from(shuffler != waiter)
    }
}

/// [`NumaPolicy`] without all of shuffling's parts, to see what each is worth (section 6.3, "factor
/// analysis"). Not for use.
#[derive(Debug)]
pub struct Partial<const HANDS_ON: bool>;

impl<const HANDS_ON: bool> Policy for Partial<HANDS_ON> {
    const HANDS_ON: bool = HANDS_ON;
    const RESUMES: bool = false;
    fn applies<M: Machine>() -> bool {
        NumaPolicy::applies::<M>()
    }
    fn key<M: Machine>() -> u32 {
        NumaPolicy::key::<M>()
    }
    fn rank<M: Machine>(shuffler: u32, waiter: u32) -> usize {
        NumaPolicy::rank::<M>(shuffler, waiter)
    }
}

/// Leaves the queue in order of arrival.
#[derive(Debug)]
pub struct NoPolicy;

impl Policy for NoPolicy {
    #[inline]
    fn applies<M: Machine>() -> bool {
        false
    }
    #[inline]
    fn key<M: Machine>() -> u32 {
        0
    }
    #[inline]
    fn rank<M: Machine>(_: u32, _: u32) -> usize {
        Self::RANKS
    }
}

node_view! {
    /// A waiter's node in a queue that shuffles.
    pub(crate) struct Waiter {
        /// The waiter behind this one, once that has linked itself.
        next: links[0],
        /// What the lock tells the waiter, in the lock's own states. The owner spins and parks here.
        status: words[0],
        /// How many waiters have been grouped up to and including this one; 0: no shuffler has grouped it.
        batch: words[1],
        /// What the policy compares, the owner's [`Policy::key`].
        key: words[2],
        /// Whether the waiter is the next shuffler (SHUFFLER), and how many waiters have passed it (in units of PASSED).
        role: words[3],
        /// Of the next shuffler: where the last walk stopped (`qlast`); null: at the start.
        resume: links[1],
        /// When the waiter queued, if its lock wants to know (`shfl_rw`).
        queued: words[4],
    }
}

/// Whether `node` was told to go on.
pub(crate) fn is_shuffler<M: Machine, P: Policy>(node: Waiter<'_, M>) -> bool {
    // (S) pairs with the hand-on at the end of `shuffle`.
    P::applies::<M>() && node.role().load(Acquire) & SHUFFLER != 0
}

/// Whether `node` was told to go on or may, as the head, start.
pub(crate) fn may_start<M: Machine, P: Policy>(node: Waiter<'_, M>) -> bool {
    is_shuffler::<M, P>(node) || P::applies::<M>() && node.batch().load(Relaxed) == 0
}

/// In a node's `shuffler`: it is the next one. Above it stands how many have passed it.
pub(crate) const SHUFFLER: u32 = 1;
const PASSED: u32 = 2;

/// Makes `next` the shuffler, in the place of one that stands in front of it and will not walk any more.
pub(crate) fn hand_on<M: Machine>(next: Waiter<'_, M>) {
    next.role().store(SHUFFLER, Release); // (S)
}

/// One walk of the shuffler `node`, in the queue that ends at `tail`.
///
/// `stop` is asked after each waiter and ends the walk, unless the policy is thorough: the lock is free, or
/// the shuffler has become the head. If it has grouped nobody by then, and `deep` says so, the role goes
/// to the waiter that the walk has reached: it has more time. So it does, by chance, where a run begins. (Then the
/// rule of `may_start` does not hold.)
/// Returns whether there still is a shuffler: there is none after `in_a_row` waiters in a row.
///
/// `grouped` is called with each waiter that joined the run, or, with several ranks, with the first one of
/// it at the end. `abandoned` says whether a waiter has given up, in which case its node is taken out and released here.
///
/// Links are plain words: (Q) an arrival's link is a release store that the walk's loads acquire;
/// everything behind the shuffler is written by the shuffler alone.
pub(crate) fn shuffle<M: Machine, P: Policy>(
    node: Waiter<'_, M>,
    tail: &M::Ptr<QNode<M>>,
    in_a_row: u32,
    deep: bool,
    mut stop: impl FnMut() -> bool,
    mut grouped: impl FnMut(Waiter<'_, M>),
    abandoned: impl Fn(Waiter<'_, M>) -> bool,
) -> bool {
    const { assert!(P::RANKS >= 1 && P::RANKS <= MAX_RANKS) };
    let quota = P::PATIENCE.unwrap_or(in_a_row);
    // Who begins a run leaves it to another group half of the time; see the module documentation.
    let leaves_it = deep && P::RANKS == 1 && P::HANDS_ON && node.batch().load(Relaxed) == 0 && coin::<M>();
    node.role().store(0, Relaxed);
    let key = node.key().load(Relaxed);
    let mut batch = node.batch().load(Relaxed).max(1);
    node.batch().store(batch, Relaxed);
    if batch >= quota {
        return false;
    }
    let (mut stopped, mut left) = (false, false);
    // For each rank, the last waiter of it or of those before it.
    let mut ends = [node; MAX_RANKS];
    // Who goes on only groups: it does not know where the other ranks end.
    let (mut before, ranks) = match node.resume().load(Relaxed) {
        resume if resume.is_null() => (node, P::RANKS),
        // SAFETY: it stands behind us, so it cannot leave before we do.
        resume => (unsafe { Waiter::at(resume) }, 1),
    };
    node.resume().store(null_mut(), Relaxed);
    while batch < quota {
        let current = before.next().load(Acquire); // (Q)
        if current.is_null() {
            break;
        }
        // SAFETY: it stands behind us, so it cannot leave before we do.
        let current = unsafe { Waiter::at(current) };
        let rank = P::rank::<M>(key, current.key().load(Relaxed));
        // Nobody behind a wall may pass it.
        let mut wall = P::RANKS > 1 && current.role().load(Relaxed) / PASSED >= quota;
        if abandoned(current) {
            let next = current.next().load(Acquire); // (Q)
            if next.is_null() {
                break;
            }
            before.next().store(next, Release);
            // SAFETY: its owner has left, and it is no longer linked.
            unsafe { M::release_node(current.0) };
        } else if rank >= if P::RANKS > 1 { ranks } else { 1 } {
            before = current;
            if leaves_it {
                left = true;
                break;
            }
        } else {
            let end = ends[rank];
            if same(before, end) {
                before = current;
            } else {
                if !take_out::<M, P>(tail, before, current) {
                    break;
                }
                let passed = end.next().load(Relaxed);
                if P::RANKS > 1 {
                    // SAFETY: it stands between us and `current`.
                    let passed = unsafe { Waiter::at(passed) }.role();
                    let now = passed.load(Relaxed) + PASSED;
                    passed.store(now, Relaxed);
                    wall |= now / PASSED >= quota;
                }
                current.next().store(passed, Release);
                end.next().store(current.as_ptr(), Release);
            }
            if rank == 0 {
                batch += 1;
                current.batch().store(batch, Relaxed);
                if P::RANKS == 1 {
                    grouped(current);
                }
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
        if !P::THOROUGH && stop() {
            stopped = true;
            break;
        }
    }
    // (Q) it may have come after the walk.
    let next = node.next().load(if P::RANKS > 1 { Acquire } else { Relaxed });
    if P::RANKS > 1 && !next.is_null() {
        // Who is next in line now.
        // SAFETY: it stands behind us, so it cannot leave before we do.
        grouped(unsafe { Waiter::at(next) });
    }
    let mut last = ends[0];
    if !P::HANDS_ON || P::THOROUGH && deep {
        last = node;
    } else if left || deep && stopped && same(last, node) {
        last = before;
    }
    let resume = if !P::RESUMES || same(before, last) { null_mut() } else { before.as_ptr() };
    last.resume().store(resume, Relaxed);
    // (S) the next shuffler sees the queue as this walk left it.
    last.role().store(SHUFFLER, Release);
    true
}

fn same<M: Machine>(one: Waiter<'_, M>, other: Waiter<'_, M>) -> bool {
    core::ptr::eq(one.0, other.0)
}

/// Tails half of the time.
fn coin<M: Machine>() -> bool {
    let seed = M::now(Clock::Monotonic) ^ M::thread_id() as u64;
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 != 0
}

/// Unlinks `current`, which stands behind `before`, unless it is the last and has to stay.
#[inline(always)]
fn take_out<M: Machine, P: Policy>(
    tail: &M::Ptr<QNode<M>>,
    before: Waiter<'_, M>,
    current: Waiter<'_, M>,
) -> bool {
    let next = current.next().load(Acquire); // (Q)
    if next.is_null() && P::THOROUGH {
        // Who arrives from here on links itself to `before`. Release: (C) that one's node is initialised
        // for it, as it is for us, and its `next` is null.
        before.next().store(null_mut(), Relaxed);
        let last = tail.compare_exchange(current.as_ptr(), before.as_ptr(), Release, Relaxed).is_ok();
        if !last {
            before.next().store(current.as_ptr(), Release);
        }
        return last;
    }
    if !next.is_null() {
        before.next().store(next, Release);
    }
    !next.is_null()
}

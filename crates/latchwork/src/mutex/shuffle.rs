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
//! The last waiter of the queue is never moved, because arrivals link themselves behind it. Waiters
//! behind the shuffler cannot leave meanwhile, because the queue is left only at the head; those
//! that gave up (timed locks) stay as abandoned nodes, which the walk takes out.
//!
//! The `qlast` optimisation (section 4.2.1): the next shuffler is told in `resume` where the walk
//! stopped, and goes on there.

use crate::machine::{Machine, QNode, Word};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;

/// Waiters of one group in a row before another group gets its turn (`MAX_SHUFFLES`), each of whom takes
/// the lock at once.
pub(crate) const SPINNERS_IN_A_ROW: u32 = 1024;
/// The same where each may first be passed by thieves for a while (`STEAL_BOUND`). They keep the lock in
/// one place meanwhile, so that a long run is worth little: in the simulator 16 is as fast as 1024.
pub(crate) const SLEEPERS_IN_A_ROW: u32 = 16;

/// Which waiters belong together.
pub trait Policy: Send + Sync + 'static {
    /// Whether there is anything to group on this machine.
    fn applies<M: Machine>() -> bool;
    /// The group of the calling thread.
    fn group<M: Machine>() -> u32;
    /// Whether a waiter of group `waiter` should move up behind a shuffler of group `shuffler`.
    fn belongs(shuffler: u32, waiter: u32) -> bool;
    /// Whether a shuffler makes another waiter the next one.
    const HANDS_ON: bool = true;
    /// Whether the next one goes on where the walk stopped (the `qlast` optimisation).
    const RESUMES: bool = true;
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
    fn group<M: Machine>() -> u32 {
        M::numa_node()
    }
    #[inline]
    fn belongs(shuffler: u32, waiter: u32) -> bool {
        shuffler == waiter
    }
}

/// [`NumaPolicy`] without all of shuffling's parts, to see what each is worth (section 6.3, "factor
/// analysis"). Not for use.
#[derive(Debug)]
pub struct Partial<const HANDS_ON: bool>;

impl<const HANDS_ON: bool> Policy for Partial<HANDS_ON> {
    fn applies<M: Machine>() -> bool {
        NumaPolicy::applies::<M>()
    }
    fn group<M: Machine>() -> u32 {
        NumaPolicy::group::<M>()
    }
    fn belongs(shuffler: u32, waiter: u32) -> bool {
        NumaPolicy::belongs(shuffler, waiter)
    }
    const HANDS_ON: bool = HANDS_ON;
    const RESUMES: bool = false;
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
    fn group<M: Machine>() -> u32 {
        0
    }
    #[inline]
    fn belongs(_: u32, _: u32) -> bool {
        false
    }
}

/// Whether `node` was told to go on.
pub(crate) fn is_shuffler<M: Machine, P: Policy>(node: &QNode<M>) -> bool {
    // (S) pairs with the hand-on at the end of `shuffle`.
    P::applies::<M>() && node.shuffler.load(Acquire) != 0
}

/// Whether `node` was told to go on or may, as the head, start.
pub(crate) fn may_start<M: Machine, P: Policy>(node: &QNode<M>) -> bool {
    is_shuffler::<M, P>(node) || P::applies::<M>() && node.batch.load(Relaxed) == 0
}

/// Makes `next` the shuffler, in the place of one that stands in front of it and will not walk any more.
pub(crate) fn hand_on<M: Machine>(next: &QNode<M>) {
    next.shuffler.store(1, Release); // (S)
}

/// One walk of the shuffler `node`.
///
/// `stop` is asked after each waiter and ends the walk: the lock is free, or the shuffler has
/// become the head. If it has grouped nobody by then, and `deep` says so, the role goes to the waiter
/// that the walk has reached: it has more time. (Then the rule of `may_start` does not hold.)
/// Returns whether there still is a shuffler: there is none after `quota` waiters in a row.
///
/// `grouped` is called with each waiter that joined the run. `abandoned` says
/// whether a waiter has given up, in which case its node is taken out and released here.
///
/// Links are plain words: (Q) an arrival's link is a release store that the walk's loads acquire;
/// everything behind the shuffler is written by the shuffler alone.
pub(crate) fn shuffle<M: Machine, P: Policy>(
    node: &QNode<M>,
    quota: u32,
    deep: bool,
    mut stop: impl FnMut() -> bool,
    mut grouped: impl FnMut(&QNode<M>),
    abandoned: impl Fn(&QNode<M>) -> bool,
) -> bool {
    node.shuffler.store(0, Relaxed);
    let group = node.group.load(Relaxed);
    let mut batch = node.batch.load(Relaxed).max(1);
    node.batch.store(batch, Relaxed);
    if batch >= quota {
        return false;
    }
    let mut stopped = false;
    let mut last = node; // end of the run
    let mut before = match node.resume.load(Relaxed) {
        resume if resume.is_null() => node,
        // SAFETY: it stands behind us, so it cannot leave before we do.
        resume => unsafe { &*resume },
    };
    node.resume.store(null_mut(), Relaxed);
    while batch < quota {
        let current = before.next.load(Acquire); // (Q)
        if current.is_null() {
            break;
        }
        // SAFETY: it stands behind us, so it cannot leave before we do.
        let current = unsafe { &*current };
        if abandoned(current) {
            let next = current.next.load(Acquire); // (Q)
            if next.is_null() {
                break;
            }
            before.next.store(next, Release);
            // SAFETY: its owner has left, and it is no longer linked.
            unsafe { M::release_node(current) };
        } else if !P::belongs(group, current.group.load(Relaxed)) {
            before = current;
        } else if core::ptr::eq(before, last) {
            batch += 1;
            current.batch.store(batch, Relaxed);
            grouped(current);
            last = current;
            before = current;
        } else {
            let next = current.next.load(Acquire); // (Q)
            if next.is_null() {
                break;
            }
            batch += 1;
            current.batch.store(batch, Relaxed);
            before.next.store(next, Release);
            current.next.store(last.next.load(Relaxed), Release);
            last.next.store(current.as_ptr(), Release);
            grouped(current);
            last = current;
        }
        if stop() {
            stopped = true;
            break;
        }
    }
    if !P::HANDS_ON {
        last = node;
    } else if P::RESUMES && deep && stopped && core::ptr::eq(last, node) {
        last = before;
    }
    let resume = if !P::RESUMES || core::ptr::eq(before, last) { null_mut() } else { before.as_ptr() };
    last.resume.store(resume, Relaxed);
    // (S) the next shuffler sees the queue as this walk left it.
    last.shuffler.store(1, Release);
    true
}

use super::*;
use crate::machine::Native;
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use std::vec::Vec;

/// A waiter's key is its rank, whichever waiter shuffles.
struct Ranks<const THOROUGH: bool>;

impl<const THOROUGH: bool> Policy for Ranks<THOROUGH> {
    const RANKS: usize = 3;
    const THOROUGH: bool = THOROUGH;
    fn key<M: Machine>() -> u32 {
        0
    }
    fn rank<M: Machine>(_: u32, waiter: u32) -> usize {
        waiter as usize
    }
}

/// Waiters with the shuffler's key belong behind it.
struct Groups;

impl Policy for Groups {
    fn key<M: Machine>() -> u32 {
        0
    }
    fn rank<M: Machine>(shuffler: u32, waiter: u32) -> usize {
        usize::from(shuffler != waiter)
    }
}

/// A rank that no policy has: the waiter stays where it is.
const STAYS: u32 = 9;

/// Waiters that have queued in the order of their numbers.
struct Queue {
    waiters: Vec<Waiter<'static, Native>>,
    tail: AtomicPtr<QNode<Native>>,
}

impl Queue {
    fn of(keys: &[u32]) -> Self {
        let waiters: Vec<_> = keys.iter().map(|_| Waiter(Native::acquire_node())).collect();
        let links = waiters.iter().skip(1).map(|waiter| waiter.as_ptr()).chain([null_mut()]);
        for ((waiter, key), next) in waiters.iter().zip(keys).zip(links) {
            waiter.next().store(next, Relaxed);
            waiter.key().store(*key, Relaxed);
            [waiter.batch(), waiter.passed()].into_iter().for_each(|word| word.store(0, Relaxed));
        }
        let tail = AtomicPtr::new(waiters.last().unwrap().as_ptr());
        Queue { waiters, tail }
    }

    /// The waiter with the number `shuffler` walks from the one with the number `from`. Returns whether it may.
    fn walk<P: Policy>(&self, shuffler: usize, from: usize, quota: u32) -> bool {
        let [shuffler, from] = [shuffler, from].map(|number| self.waiters[number]);
        shuffle::<Native, P>(shuffler, from, &self.tail, quota, |_| false, |_| false).is_some()
    }

    /// The numbers of the waiters, from the first one on.
    fn order(&self) -> Vec<usize> {
        let number = |node| self.waiters.iter().position(|waiter| waiter.as_ptr() == node);
        let next = |&at: &usize| number(self.waiters[at].next().load(Relaxed));
        core::iter::successors(Some(0), next).take(2 * self.waiters.len()).collect()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: no thread waits with these nodes, and no queue has them from here on.
        self.waiters.iter().for_each(|waiter| unsafe { Native::release_node(waiter.0) });
    }
}

/// A run is in order of arrival. It ends after as many waiters as it may have, whichever of them shuffles.
#[test]
fn a_run_is_in_order_and_has_an_end() {
    let queue = Queue::of(&[0, STAYS, 0, STAYS, 0, 0, STAYS]);
    let three = [0, 2, 4, 1, 3, 5, 6];
    assert!(queue.walk::<Groups>(0, 0, 3));
    assert_eq!(queue.order(), three);
    assert!(queue.walk::<Groups>(2, 2, 3), "the second of the run is not its last");
    assert!(!queue.walk::<Groups>(4, 4, 3), "the last of a run has begun another one");
    assert_eq!(queue.order(), three);
}

/// Each rank stands behind the ranks before it, in order of arrival.
#[test]
fn ranks_stand_one_behind_the_other() {
    let queue = Queue::of(&[0, 2, 1, 0, 1, 0, STAYS]);
    assert!(queue.walk::<Ranks<false>>(0, 0, 16));
    assert_eq!(queue.order(), [0, 3, 5, 2, 4, 1, 6]);
}

/// A walk that does not begin at the shuffler moves rank 0 only: it does not know where the others belong.
#[test]
fn a_walk_from_further_back_moves_one_rank() {
    let queue = Queue::of(&[0, 0, 2, 1, STAYS]);
    assert!(queue.walk::<Ranks<false>>(0, 2, 16));
    assert_eq!(queue.order(), [0, 1, 2, 3, 4]);
}

/// No waiter is passed by more than the quota: then it is a wall, for the next shuffler too.
#[test]
fn a_waiter_becomes_a_wall() {
    let queue = Queue::of(&[0, 2, 1, 1, 1, 1, STAYS]);
    for shuffler in [0, 2] {
        assert!(queue.walk::<Ranks<false>>(shuffler, shuffler, 3));
        assert_eq!(queue.order(), [0, 2, 3, 4, 1, 5, 6]);
    }
}

/// A thorough policy moves the last waiter too, unless an arrival is about to link itself there.
#[test]
fn the_last_waiter_is_moved_or_stays_linked() {
    let queue = Queue::of(&[0, STAYS, 0]);
    assert!(queue.walk::<Ranks<false>>(0, 0, 16));
    assert_eq!(queue.order(), [0, 1, 2]);
    let arrival = queue.tail.swap(null_mut(), Relaxed);
    assert!(queue.walk::<Ranks<true>>(0, 0, 16));
    assert_eq!(queue.order(), [0, 1, 2], "the waiter in front of the arrival is lost");
    queue.tail.store(arrival, Relaxed);
    assert!(queue.walk::<Ranks<true>>(0, 0, 16));
    assert_eq!((queue.order(), queue.tail.load(Relaxed)), (std::vec![0, 2, 1], queue.waiters[1].as_ptr()));
}

//! Which waiter gets the lock next. Nodes stand for threads.

use super::*;
use std::vec::Vec;

/// A lock that the test holds, and the nodes of waiters that stand in its queue, without threads.
struct Scene {
    lock: RawMalthusian<Native>,
    holder: NonNull<QNode<Native>>,
    waiters: Vec<*mut QNode<Native>>,
}

impl Scene {
    /// `turns`: what the holder has counted.
    fn new(waiters: usize, turns: u32) -> Scene {
        let lock = RawMalthusian::<Native>::new();
        let holder = lock.try_lock().expect("a new lock is free");
        let mut scene = Scene { lock, holder, waiters: Vec::new() };
        scene.count(turns);
        (0..waiters).for_each(|_| scene.queue());
        scene
    }

    fn node(node: *mut QNode<Native>) -> Node<'static, Native> {
        // SAFETY: nodes of the pool are never unmapped.
        unsafe { Node::at(node) }
    }

    /// The holder has counted so many handovers.
    fn count(&self, turns: u32) {
        Self::node(self.holder.as_ptr()).turns().store(turns, Relaxed);
    }

    fn turns(&self) -> u32 {
        Self::node(self.holder.as_ptr()).turns().load(Relaxed)
    }

    /// One more waiter.
    fn queue(&mut self) {
        let node = fresh_node::<Native>();
        let before = self.lock.tail.swap(node.as_ptr(), Relaxed);
        Self::node(before).next().store(node.as_ptr(), Relaxed);
        self.waiters.push(node.as_ptr());
    }

    /// Hands the lock over. Returns the number of the waiter that has it; `None`: the lock is free.
    fn next(&mut self) -> Option<usize> {
        // SAFETY: the holder's node, which this releases.
        unsafe { self.lock.unlock(self.holder) };
        let mut all = self
            .waiters
            .iter()
            .filter(|&&node| !node.is_null() && Self::node(node).status().load(Relaxed) != WAITING);
        let new = all.next().copied();
        assert!(all.next().is_none(), "two waiters have the lock");
        assert_eq!(new.is_some(), self.lock.is_locked());
        self.holder = NonNull::new(new?).expect("a waiter has a node");
        let number = self.waiters.iter().position(|&node| Some(node) == new)?;
        self.waiters[number] = null_mut();
        Some(number)
    }

    fn order(&mut self) -> Vec<usize> {
        core::iter::from_fn(|| self.next()).collect()
    }
}

/// Of two waiters that are linked the first becomes passive. When the queue is empty, the most recent passive one comes first.
#[test]
fn surplus_waiters_come_last() {
    assert_eq!(Scene::new(1, 0).order(), [0]);
    assert_eq!(Scene::new(2, 0).order(), [1, 0]);
    assert_eq!(Scene::new(7, 0).order(), [1, 3, 5, 6, 4, 2, 0]);
}

/// One handover in 1000 goes to the waiter that has been passive for longest. The queue follows that waiter.
#[test]
fn the_eldest_passive_waiter_gets_one_handover_in_a_thousand() {
    let mut scene = Scene::new(7, TURNS - 3);
    assert_eq!([scene.next(), scene.next()], [Some(1), Some(3)]);
    assert_eq!(scene.next(), Some(0), "it is the thousandth");
    assert_eq!(scene.turns(), 0);
    assert_eq!(scene.order(), [6, 5, 4, 2]);
}

/// A waiter that becomes passive with that handover may be the eldest itself.
#[test]
fn a_waiter_that_becomes_passive_may_be_the_eldest() {
    let mut scene = Scene::new(3, TURNS - 1);
    assert_eq!(scene.order(), [0, 2, 1]);
}

/// Each handover counts: also one that makes a passive waiter the queue.
#[test]
fn each_handover_counts() {
    let mut scene = Scene::new(7, 0);
    for turns in 1..=7 {
        assert!(scene.next().is_some());
        assert_eq!(scene.turns(), turns);
    }
}

/// Waiters become passive, come back and are followed by others.
#[test]
fn waiters_arrive_behind_one_that_was_passive() {
    let mut scene = Scene::new(5, 0);
    assert_eq!([scene.next(), scene.next(), scene.next()], [Some(1), Some(3), Some(4)]);
    assert_eq!(scene.next(), Some(2));
    (0..3).for_each(|_| scene.queue());
    assert_eq!(scene.order(), [6, 7, 5, 0]);
}

//! Clients of `qspinlock`: of its pending bit, and of the nodes that it takes from the waiting array.

use crate::machine::{Loom, Model, one_fewer_daily};
use crate::mutex::{Shared, free_after, once, once_for_long, twice};
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::mutex::qspinlock::RawQspinlock;
use latchwork::machine::{Machine, Word};
use std::sync::atomic::Ordering::Relaxed;

type L = RawQspinlock<Loom>;

/// The lock works, and every node of the array can be taken again.
fn nodes_are_back<const SECTIONS: usize>(shared: &Shared<L>) {
    free_after::<L, SECTIONS>(shared);
    // SAFETY: the nodes are only looked at.
    for node in unsafe { Loom::waiting_array() } {
        assert_eq!(node.words[2].load(Relaxed), 0, "a node of the waiting array was not given back");
    }
}

/// All nodes of the array are taken, as if by waiters of another lock.
fn take_nodes(_: &Shared<L>) {
    // SAFETY: a waiter of another lock writes the same.
    unsafe { Loom::waiting_array() }.iter().for_each(|node| node.words[2].store(1, Relaxed));
}

/// Before the threads run, the first one acquires the lock.
fn held(shared: &Shared<L>) {
    shared.lock.lock();
}

fn leaves_and_comes_again(shared: &Shared<L>) {
    shared.finish(());
    once(shared);
}

/// A thread sets the pending bit too late: it has seen the holder alone, and then another thread has become the pending waiter, has
/// got the lock, and the first holder has queued. The late thread clears the bit and queues. At most 1 preemption, none every day.
#[test]
fn pending_too_late() {
    crate::report("qspinlock", || {
        Model::new(one_fewer_daily(1)).check(
            (Shared::<L>::new, held),
            &[once, once, leaves_and_comes_again],
            nodes_are_back::<4>,
        )
    });
}

/// Nodes are used again, by waiters that stand behind others in both turns. Threads take turns where they spin, and are never
/// preempted.
#[test]
fn nodes_are_used_again() {
    crate::report("qspinlock", || {
        Model::new(0).check(Shared::<L>::new, &[once_for_long, twice, twice, twice], nodes_are_back::<7>)
    });
}

/// Waiters of another lock have all nodes of the waiting array: the second waiter spins on the word. Up to 2 preemptions.
#[test]
fn no_node_is_free() {
    crate::report("qspinlock", || {
        Model::new(2).check((Shared::<L>::new, take_nodes), &[once, once, once], free_after::<L, 3>)
    });
}

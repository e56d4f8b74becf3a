//! Clients of the queue of optimistic spinners: those that come to its head, and those that leave it before.

use crate::machine::{Loom, Model};
use crate::mutex::be_patient;
use latchwork::locks::mutex::osq::{Osq, Spinner};
use latchwork::machine::{Arith, Machine, Word};
use loom::cell::UnsafeCell;
use std::sync::atomic::Ordering::*;

/// A queue, and what its head alone uses: how many heads there were.
struct Shared {
    queue: Osq<Loom>,
    heads: UnsafeCell<usize>,
    /// How many spinners have left without having been at the head, where that matters.
    left: <Loom as Machine>::U32,
}

// SAFETY: the cell is only used by the head; if the queue fails at that, loom tells.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Shared {
        Shared { queue: Osq::new_in(), heads: UnsafeCell::new(0), left: Word::new(0) }
    }

    /// Makes an attempt to come to the head, and calls `at_head` there. Whether it came so far.
    fn spin(&self, at_head: impl FnOnce()) -> bool {
        let node = Spinner(Loom::acquire_node());
        // SAFETY: the node was taken above, and is in no queue. (Here, a spinner leaves after one look.)
        let is_head = unsafe { self.queue.enter(node, 1) };
        if is_head {
            // SAFETY: the caller is the head.
            self.heads.with_mut(|heads| unsafe { *heads += 1 });
            at_head();
            // SAFETY: `enter` has said that the caller is at the head.
            unsafe { self.queue.leave(node) };
        }
        // SAFETY: taken above, and in no queue any more.
        unsafe { Loom::release_node(node.0) };
        is_head
    }
}

fn spins(shared: &Shared) {
    shared.spin(|| ());
}

/// Stays at the head until others have queued up.
fn stays(shared: &Shared) {
    shared.spin(be_patient);
}

fn twice(shared: &Shared) {
    spins(shared);
    spins(shared);
}

/// The queue is empty: the next spinner is the head at once.
fn empty_after(shared: &Shared) {
    assert!(shared.spin(|| ()), "a spinner is left in the queue");
}

/// Spinners come to the head or leave while the head leaves; up to 3 preemptions.
#[test]
fn a_spinner_leaves_behind_the_head() {
    for model in [Model::new(3), Model::new(3).with_late_looks()] {
        crate::report("osq", || model.check(Shared::new, &[spins, twice], empty_after));
    }
}

/// A spinner leaves while the one in front of it, or the one behind it, does; up to 2 preemptions.
#[test]
fn a_spinner_leaves_between_others() {
    for model in [Model::new(2), Model::new(2).with_late_looks()] {
        crate::report("osq", || model.check(Shared::new, &[spins, spins, spins], empty_after));
    }
    crate::report("osq", || Model::new(2).check(Shared::new, &[stays, spins, spins], empty_after));
}

/// The head stays until all other spinners have left, among them a spinner whose predecessor leaves. Up to 2 preemptions.
#[test]
fn spinners_need_no_head_to_leave() {
    fn leaves(shared: &Shared) {
        let all_have_left = || _ = Loom::spin_until(&shared.left, Acquire, |left| left == 2);
        if !shared.spin(all_have_left) {
            shared.left.fetch_add(1, Release);
        }
    }
    crate::report("osq", || Model::new(2).check(Shared::new, &[leaves, leaves, leaves], empty_after));
}

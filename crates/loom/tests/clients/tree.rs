//! Clients of the ordered map. Its pages have four entries at most, so five elements are two leaves and a root.

use crate::machine::{Loom, Mistake, Model};
use crate::map::Value;
use latchwork::locks::mutex::tas::RawTas;
use latchwork::map::growing::Node;
use latchwork::map::tree::Tree;
use latchwork::reclaim::rcu::RcuDomain;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The system's allocator, which frees nothing while a seeded mistake makes a thread look at pages that were freed.
struct Keeping;

#[global_allocator]
static ALLOCATOR: Keeping = Keeping;

thread_local! {
    /// Whether this OS thread, which runs all threads of a client, frees nothing.
    static KEEPS: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: the system's allocator does it all.
unsafe impl GlobalAlloc for Keeping {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if !KEEPS.get() {
            // SAFETY: the caller's promise.
            unsafe { System.dealloc(memory, layout) }
        }
    }
}

struct Planted {
    domain: &'static RcuDomain<Loom>,
    tree: Tree<RawTas<Loom>, u64, Value, 4>,
}

impl Planted {
    fn set(&self, key: u64) {
        self.tree.lock(&key).set(Box::new(Node { key, value: Value::new() }));
    }

    fn remove(&self, key: u64) {
        let slot = self.tree.lock(&key);
        assert!(slot.node().is_some());
        slot.remove();
    }

    /// The keys of a walk; looks at the values.
    fn walk(&self) -> Vec<u64> {
        let section = self.tree.enter();
        let walk = self.tree.snapshot(&section).walk(0, usize::MAX);
        walk.inspect(|node| node.value.look()).map(|node| node.key).collect()
    }
}

/// The keys 1 to `LAST`. (Leaked: a tree lives as long as its domain, which is for ever.)
fn planted<const LAST: u64>() -> Planted {
    let domain: &'static _ = Box::leak(Box::new(RcuDomain::new_in()));
    let planted = Planted { domain, tree: Tree::new(domain) };
    (1..=LAST).for_each(|key| planted.set(key));
    planted
}

fn reads(planted: &Planted) {
    for _ in 0..2 {
        let section = planted.tree.enter();
        let found = planted.tree.snapshot(&section).find(&2);
        found.expect("it is there all the time").value.look();
    }
}

fn replaces(planted: &Planted) {
    planted.set(2);
    planted.domain.barrier();
}

/// Splits the only leaf.
fn inserts(planted: &Planted) {
    planted.set(5);
    let section = planted.tree.enter();
    assert!(planted.tree.snapshot(&section).find(&5).is_some(), "its own element is there");
}

/// Merges the two leaves of five elements, so that the root goes.
fn merges(planted: &Planted) {
    planted.remove(1);
    planted.domain.collect();
}

fn removes<const KEY: u64>(planted: &Planted) {
    planted.remove(KEY);
}

/// Removes one neighbour and inserts another: a walk may find both states in between, and no other.
fn walks(planted: &Planted) {
    let states: [&[u64]; 4] = [&[1, 2, 3, 4], &[1, 3, 4], &[1, 3, 4, 5], &[1, 2, 3, 4, 5]];
    let met = planted.walk();
    assert!(states.contains(&met.as_slice()), "{met:?}");
}

fn removes_and_inserts(planted: &Planted) {
    planted.remove(2);
    planted.set(5);
    planted.domain.collect();
}

fn bounded(preemptions: usize) -> Model {
    Model::new(preemptions).with_records()
}

#[test]
fn a_tree_that_is_read_while_it_changes() {
    crate::report("rcu-tree", || bounded(2).check(planted::<2>, &[replaces, reads], |_| ()));
    crate::report("rcu-tree", || bounded(2).check(planted::<5>, &[merges, reads], |_| ()));
    crate::report("rcu-tree", || bounded(2).check(planted::<4>, &[removes_and_inserts, walks], |_| ()));
}

/// Two updates of neighbours, of which one splits a page or merges two: both are there in the end.
#[test]
fn a_tree_with_two_updates() {
    crate::report("rcu-tree", || {
        bounded(2)
            .check(planted::<4>, &[inserts, removes::<4>], |planted| assert_eq!(planted.walk(), [1, 2, 3, 5]))
    });
    crate::report("rcu-tree", || {
        bounded(2).check(planted::<5>, &[removes::<1>, removes::<2>], |planted| {
            assert_eq!(planted.walk(), [3, 4, 5])
        })
    });
    crate::report("rcu-tree", || {
        bounded(1).check(planted::<4>, &[|planted: &Planted| planted.tree.clear(), inserts], |planted| {
            let left = planted.walk();
            assert!(left.is_empty() || left == [5], "{left:?}");
        })
    });
}

/// A walk that copies counts the updates first, and then the elements: all of these updates but the last are in the tree.
#[test]
fn a_tree_that_counts_its_updates() {
    fn counts(planted: &Planted) {
        let (updates, elements) = (planted.tree.updates(), planted.walk().len());
        assert!(elements + 1 >= updates, "{updates} updates, and {elements} elements");
    }
    fn inserts_two(planted: &Planted) {
        (1..=2).for_each(|key| planted.set(key));
    }
    crate::report("rcu-tree", || bounded(1).check(planted::<0>, &[inserts_two, counts], |_| ()));
}

/// The tree needs each promise that it relies on.
#[test]
fn a_tree_on_a_machine_with_mistakes() {
    use Mistake::*;
    for mistake in [RelaxedRelease, RelaxedAcquire, NoHeavyFence, NoLightFence] {
        crate::report("rcu-tree", || {
            let model = bounded(2).with_mistake(mistake);
            KEEPS.set(true);
            let why = model.check_fails(planted::<2>, &[replaces, reads], |_| ());
            KEEPS.set(false);
            format!("{mistake:?}: {why}")
        });
    }
}

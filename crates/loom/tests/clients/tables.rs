//! Clients of the tables over deferred reclamation.
//!
//! An element that is reclaimed becomes one of another bucket, so a thread that reads it too late returns an error.

use crate::machine::{Loom, Mistake, Model};
use latchwork::machine::{Machine, Word};
use latchwork::reclaim::counted::CountedDomain;
use latchwork::reclaim::hazard::HazardDomain;
use latchwork::reclaim::rcu::RcuDomain;
use latchwork_workloads::tables::bucket_lock::BucketLocked;
use latchwork_workloads::tables::lock_place::{BucketLock, InHead};
use latchwork_workloads::tables::michael::Michael;
use latchwork_workloads::tables::readers::{Reference, Section};
use latchwork_workloads::tables::type_stable::TypeStable;
use latchwork_workloads::tables::{Node, Shape, Table};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

/// A table with two buckets. All keys are of the first, so that a free element is of the other.
fn table<T: Table<Machine = Loom>>() -> T {
    let table = T::new(&Shape { buckets: 2, elements: 4, threads: 3, waiting: 1 });
    let mut handle = table.join(0);
    for key in [2, 4] {
        assert_eq!(table.insert(&mut handle, key, 10 * key), Ok(true));
    }
    drop(handle);
    table
}

/// Finds the key that stays.
fn looks<T: Table<Machine = Loom>>(table: &T) {
    let mut handle = table.join(1);
    // SAFETY: the handle is of this table.
    assert_eq!(unsafe { table.get(&mut handle, 4) }, Ok(Some(40)));
}

/// Removes a key and inserts it again; its element is reclaimed as soon as possible.
fn changes<T: Table<Machine = Loom>>(table: &T) {
    let mut handle = table.join(2);
    assert_eq!(table.remove(&mut handle, 2), Ok(true));
    assert_eq!(table.insert(&mut handle, 2, 21), Ok(true));
}

/// Removes a key.
fn removes<T: Table<Machine = Loom>>(table: &T) {
    let mut handle = table.join(2);
    let _ = table.remove(&mut handle, 4).unwrap();
}

/// Removes a key whose element is used again for another key, further on in the same chain.
fn moves<T: Table<Machine = Loom>>(table: &T) {
    let mut handle = table.join(2);
    assert_eq!(table.remove(&mut handle, 2), Ok(true));
    assert_eq!(table.insert(&mut handle, 6, 60), Ok(true));
}

fn inserts<T: Table<Machine = Loom>>(table: &T) {
    let mut handle = table.join(3);
    assert_eq!(table.insert(&mut handle, 6, 60), Ok(true));
    // SAFETY: the handle is of this table.
    assert_eq!(unsafe { table.get(&mut handle, 6) }, Ok(Some(60)));
}

/// Inserts a key before all others, and locks the bucket again.
fn first_then_second<T: Table<Machine = Loom>>(table: &T) {
    let mut handle = table.join(2);
    assert_eq!(table.insert(&mut handle, 0, 1), Ok(true));
    assert_eq!(table.insert(&mut handle, 0, 2), Ok(false));
}

/// Looks for the key that may be the first.
fn looks_for_first<T: Table<Machine = Loom>>(table: &T) {
    let mut handle = table.join(1);
    // SAFETY: the handle is of this table.
    let found = unsafe { table.get(&mut handle, 0) };
    assert!(matches!(found, Ok(None | Some(1))), "{found:?}");
}

/// A model with records, up to so many preemptions.
fn bounded(preemptions: usize) -> Model {
    Model::new(preemptions).with_records()
}

fn strategy<T: Table<Machine = Loom>>() {
    crate::report(T::INFO.name, || bounded(2).check(table::<T>, &[changes, looks], |_| ()));
    crate::report(T::INFO.name, || bounded(1).check(table::<T>, &[removes, inserts], |_| ()));
}

#[test]
fn tables() {
    strategy::<BucketLocked<RcuDomain<Loom>, Section>>();
    strategy::<BucketLocked<HazardDomain<Loom>, Reference>>();
    strategy::<Michael<RcuDomain<Loom>, Section>>();
    strategy::<Michael<HazardDomain<Loom>, Reference>>();
    strategy::<TypeStable<Loom>>();
}

/// The head of a chain without nodes, and a number that its lock guards.
type Head = (<Loom as Machine>::Ptr<Node<Loom>>, <Loom as Machine>::U64);

/// Counts under the lock, with a load and a store.
fn counts((head, count): &Head) {
    BucketLock::<Loom>::with(&InHead, head, |_| count.store(count.load(Relaxed) + 1, Relaxed));
}

/// The lock in the head of a chain: updaters exclude each other, and each sees what the one before has stored. A reader that loads the
/// head with the bit of the lock sees the node's fields.
#[test]
fn the_lock_in_the_head() {
    type Table = BucketLocked<RcuDomain<Loom>, Section>;
    let head = || -> Head { (Word::new(null_mut()), Word::new(0)) };
    let both = |(_, count): &Head| assert_eq!(count.load(Relaxed), 2);
    crate::report("a lock in the head", || Model::exhaustive().check(head, &[counts, counts], both));
    for mistake in [Mistake::RelaxedAcquire, Mistake::RelaxedRelease] {
        let model = || Model::exhaustive().with_mistake(mistake);
        crate::report("a lock in the head", || model().check_fails(head, &[counts, counts], both));
    }
    crate::report("rcu-l", || {
        bounded(2).check(table::<Table>, &[first_then_second, looks_for_first], |_| ())
    });
    crate::report("rcu-l", || {
        let wrong = bounded(2).with_mistake(Mistake::RelaxedRelease);
        wrong.check_fails(table::<Table>, &[first_then_second, looks_for_first], |_| ())
    });
}

/// The tables over reference counts; these clients are larger.
#[test]
fn counted_tables() {
    fn check<T: Table<Machine = Loom>>() {
        crate::report(T::INFO.name, || bounded(1).check(table::<T>, &[changes, looks], |_| ()));
    }
    check::<BucketLocked<CountedDomain<Loom>, Reference>>();
    check::<Michael<CountedDomain<Loom>, Reference>>();
}

/// Readers of type-stable memory notice that the element on which they stand was used again. With relaxed orderings they do
/// not.
#[test]
fn elements_that_are_used_again() {
    type Stable = TypeStable<Loom>;
    let start = table::<Stable>;
    crate::report("type-stable", || Model::exhaustive().with_records().check(start, &[moves, looks], |_| ()));
    for mistake in [Mistake::RelaxedAcquire, Mistake::RelaxedRelease] {
        crate::report("type-stable", || {
            bounded(2).with_mistake(mistake).check_fails(start, &[moves, looks], |_| ())
        });
    }
}

//! Clients of the table that grows.
//!
//! A value that is dropped is written to through loom's `UnsafeCell`: loom reports a thread that reads it too late.

use crate::machine::{Loom, Mistake, Model};
use latchwork::locks::mutex::tas::RawTas;
use latchwork::map::growing::{Count, Growing};
use latchwork::reclaim::rcu::RcuDomain;
use loom::cell::UnsafeCell;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Mutex;

/// Tells when it has been dropped.
pub(crate) struct Value(*const UnsafeCell<bool>);

// SAFETY: the cell is never freed.
unsafe impl Send for Value {}
// SAFETY: loom checks how the cell is used.
unsafe impl Sync for Value {}

impl Value {
    /// Written to after it is made: loom takes a cell's creation for a part of the thread's previous step.
    pub(crate) fn new() -> Self {
        let alive: &_ = Box::leak(Box::new(UnsafeCell::new(false)));
        // SAFETY: no other thread has it.
        alive.with_mut(|alive| unsafe { *alive = true });
        Value(alive)
    }

    pub(crate) fn look(&self) {
        // SAFETY: the cell is never freed.
        assert!(unsafe { (*self.0).with(|alive| *alive) }, "a value that was dropped");
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: the cell is never freed; if a thread reads it meanwhile, loom reports that.
        unsafe { (*self.0).with_mut(|alive| *alive = false) };
    }
}

/// Every key in the same bucket, with the same tag.
#[derive(Default)]
struct Same;

impl Hasher for Same {
    fn write(&mut self, _: &[u8]) {}
    fn finish(&self) -> u64 {
        0
    }
}

/// What is left of a key after a division by `N`.
#[derive(Default)]
struct Remainder<const N: u64>(u64);

impl<const N: u64> Hasher for Remainder<N> {
    fn write(&mut self, _: &[u8]) {}
    fn write_u64(&mut self, key: u64) {
        self.0 = key % N;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

/// Odd keys go to the other half of a shard that is split.
type Parity = Remainder<2>;
/// The keys 2 and 3 are in shards of their own, which are split by the bit above.
type Lowest = Remainder<4>;

type Map = Growing<RawTas<Loom>, u64, Value, BuildHasherDefault<Same>>;
type Halves = Growing<RawTas<Loom>, u64, Value, BuildHasherDefault<Parity>>;

struct Grown {
    domain: &'static RcuDomain<Loom>,
    table: Map,
}

fn set(table: &Map, key: u64) {
    table.lock(&key).set(key, Value::new());
}

fn remove(table: &Map, key: u64) {
    let mut slot = table.lock(&key);
    assert!(slot.node().is_some());
    slot.remove();
}

fn growing() -> Grown {
    // Leaked: tables live as long as their domain, which is for ever.
    let domain: &'static _ = Box::leak(Box::new(RcuDomain::new_in()));
    let table = Growing::new(domain, Count { first: 1, most: 2 }, 1, Default::default());
    [1, 2].iter().for_each(|key| set(&table, *key));
    Grown { domain, table }
}

/// A table in which the next element that is put takes the slot and the memory of one that has been removed.
fn recycling() -> Grown {
    let grown = growing();
    remove(&grown.table, 1);
    grown.domain.barrier();
    grown
}

/// A table in which the next element is put in a slot whose tag is in a line's second word.
fn half() -> Grown {
    let grown = growing();
    remove(&grown.table, 2);
    grown.domain.barrier();
    grown
}

/// A table in which the next element that is put needs a spare line.
fn full() -> Grown {
    let grown = growing();
    (3..=12).for_each(|key| set(&grown.table, key));
    grown
}

fn reads(grown: &Grown) {
    for _ in 0..2 {
        let section = grown.table.enter();
        let found = grown.table.find(&section, &2);
        found.expect("it is there all the time").value.look();
    }
}

/// Looks for keys that come and go.
fn looks_around(grown: &Grown) {
    for key in [13, 1] {
        let section = grown.table.enter();
        if let Some(found) = grown.table.find(&section, &key) {
            assert_eq!(found.key, key);
            found.value.look();
        }
    }
}

/// Grows the table, and then removes an element: from the new buckets only.
fn grows(grown: &Grown) {
    grown.table.fit(9, false);
    assert!(grown.table.capacity() > 8);
    remove(&grown.table, 1);
    grown.domain.collect();
    grown.table.fit(1, true);
}

/// Splits the only shard, and then removes an element of one half.
fn splits(grown: &Grown) {
    grown.table.split_all();
    assert_eq!(grown.table.parts_list().shards, 2);
    remove(&grown.table, 1);
    grown.domain.collect();
}

fn replaces(grown: &Grown) {
    set(&grown.table, 2);
    grown.domain.barrier();
}

fn inserts_again(grown: &Grown) {
    set(&grown.table, 13);
    remove(&grown.table, 13);
    set(&grown.table, 1);
}

fn overflows(grown: &Grown) {
    set(&grown.table, 13);
    remove(&grown.table, 1);
}

/// A model with records, up to so many preemptions.
fn bounded(preemptions: usize) -> Model {
    Model::new(preemptions).with_records()
}

#[test]
fn a_table_that_grows() {
    crate::report("rcu-map", || bounded(2).check(growing, &[grows, reads], |_| ()));
    crate::report("rcu-map", || bounded(2).check(growing, &[replaces, reads], |_| ()));
    crate::report("rcu-map", || bounded(1).after_a_pause().check(growing, &[replaces, reads], |_| ()));
    crate::report("rcu-map", || bounded(1).check(growing, &[grows, replaces], |_| ()));
    crate::report("rcu-map", || bounded(2).check(growing, &[splits, reads], |_| ()));
    crate::report("rcu-map", || bounded(1).check(growing, &[splits, replaces], |_| ()));
    crate::report("rcu-map", || bounded(2).check(recycling, &[inserts_again, looks_around], |_| ()));
    crate::report("rcu-map", || bounded(2).check(full, &[overflows, looks_around], |_| ()));
    crate::report("rcu-map", || bounded(2).check(half, &[overflows, looks_around], |_| ()));
}

/// A thread that has updated a key finds it, and so does its walk, also if the key's shard is being split. Elements of both
/// halves are met once.
#[test]
fn a_table_that_is_split_beside_a_walk() {
    let halves = || {
        let domain: &'static _ = Box::leak(Box::new(RcuDomain::new_in()));
        let table = Halves::new(domain, Count { first: 1, most: 2 }, 1, Default::default());
        [2, 3].iter().for_each(|key| table.lock(key).set(*key, Value::new()));
        table
    };
    let splits = |table: &Halves| table.split_all();
    fn inserts<const KEY: u64>(table: &Halves) {
        table.lock(&KEY).set(KEY, Value::new());
        let section = table.enter();
        assert!(table.find(&section, &KEY).is_some(), "its own element is there");
        let mut met: Vec<u64> = table.iter(&section).map(|node| node.key).collect();
        met.sort_unstable();
        let mut all = [2, 3, KEY];
        all.sort_unstable();
        assert_eq!(met, all, "each once");
    }
    crate::report("rcu-map", || bounded(2).check(halves, &[splits, inserts::<4>], |_| ()));
    crate::report("rcu-map", || bounded(2).check(halves, &[splits, inserts::<5>], |_| ()));
    // Splits do not disturb a count.
    let counts = |table: &Halves| assert_eq!(table.count(), 2);
    crate::report("rcu-map", || bounded(2).check(halves, &[counts, splits], |_| ()));
    // A shard of an odd key keeps the upper half, and the new shard gets the lower one.
    fn splits_upper(table: &Halves) {
        table.split_of(&3);
    }
    crate::report("rcu-map", || bounded(2).check(halves, &[splits_upper, inserts::<4>], |_| ()));
    crate::report("rcu-map", || bounded(2).check(halves, &[splits_upper, inserts::<5>], |_| ()));
}

/// A shard that is split while the directory stays: the thread that updates the new shard finds it made.
#[test]
fn a_table_whose_directory_stays() {
    type Quarters = Growing<RawTas<Loom>, u64, Value, BuildHasherDefault<Lowest>>;
    let quarters = || {
        let domain: &'static _ = Box::leak(Box::new(RcuDomain::new_in()));
        let table = Quarters::new(domain, Count { first: 2, most: 4 }, 1, Default::default());
        [2, 3].iter().for_each(|key| table.lock(key).set(*key, Value::new()));
        table.split_of(&2); // doubles the directory
        table
    };
    let splits = |table: &Quarters| table.split_of(&3);
    let inserts = |table: &Quarters| table.lock(&5).set(5, Value::new());
    crate::report("rcu-map", || {
        bounded(2).check(quarters, &[splits, inserts], |table| assert_eq!(table.parts_list().shards, 4))
    });
}

/// Two shards make their lanes at the same time. What comes back to the one may be taken by the other, and is put once.
#[test]
fn a_table_whose_shards_put_again_what_they_have_removed() {
    struct Lanes(&'static RcuDomain<Loom>, Halves);
    let halves = || {
        let domain: &'static _ = Box::leak(Box::new(RcuDomain::new_in()));
        let table = Halves::new(domain, Count { first: 2, most: 2 }, 1, Default::default());
        [2, 3].iter().for_each(|key| table.lock(key).set(*key, Value::new()));
        Lanes(domain, table)
    };
    fn updates<const KEY: u64>(Lanes(domain, table): &Lanes) {
        table.lock(&KEY).remove();
        domain.collect();
        table.lock(&(KEY + 2)).set(KEY + 2, Value::new());
    }
    fn after(Lanes(domain, table): &Lanes) {
        domain.barrier();
        [6, 7].iter().for_each(|key| table.lock(key).set(*key, Value::new()));
        let section = table.enter();
        let mut met: Vec<u64> = table.iter(&section).map(|node| node.key).collect();
        table.iter(&section).for_each(|node| node.value.look());
        met.sort_unstable();
        assert_eq!(met, [4, 5, 6, 7]);
    }
    crate::report("rcu-map", || bounded(1).check(halves, &[updates::<2>, updates::<3>], after));
}

/// The thread that reclaims the last removed element frees the memory of a table that has ended.
#[test]
fn a_table_that_ends() {
    struct Ends(&'static RcuDomain<Loom>, Mutex<Option<Map>>);
    let table = || {
        let Grown { domain, table } = growing();
        let section = domain.enter(); // or what is removed would be reclaimed at once
        remove(&table, 1);
        drop(section);
        Ends(domain, Mutex::new(Some(table)))
    };
    let ends = |ends: &Ends| drop(ends.1.lock().unwrap().take());
    let collects = |ends: &Ends| ends.0.barrier();
    crate::report("rcu-map", || bounded(2).check(table, &[ends, collects], |_| ()));
}

/// The table needs each promise that it relies on.
#[test]
fn a_table_on_a_machine_with_mistakes() {
    use Mistake::*;
    for mistake in [RelaxedRelease, RelaxedAcquire, NoHeavyFence, NoLightFence] {
        crate::report("rcu-map", || {
            let model = bounded(2).with_mistake(mistake);
            format!("{mistake:?}: {}", model.check_fails(growing, &[replaces, reads], |_| ()))
        });
    }
}

//! A destructor that panics in an update leaves no section open, and no shard locked. It may be that of any object which is
//! retired, or that of an argument.

use super::*;
use crate::locks::tests::in_a_process;
use crate::machine::Native;
use crate::reclaim::rcu::RcuDomain;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::{format, thread};

/// Panics when the last of so many is dropped, and not while its thread unwinds.
struct Fragile<'a>(&'a AtomicU32);

impl Drop for Fragile<'_> {
    fn drop(&mut self) {
        if self.0.fetch_sub(1, Relaxed) == 1 && !thread::panicking() {
            panic_any("a destructor");
        }
    }
}

/// Calls `update` until a destructor has panicked in it, in a thread of its own.
fn until_it_panics(what: &str, fuse: &'static AtomicU32, update: impl Fn(u64) + Sync) {
    fuse.store(1, Relaxed);
    thread::scope(|scope| {
        let body = || {
            let panicked = (0..20_000).any(|call| catch_unwind(AssertUnwindSafe(|| update(call))).is_err());
            assert!(panicked, "{what}: nothing panics");
            assert!(!RcuDomain::<Native>::is_inside(), "{what}: a section is still open");
            update(20_000); // would wait for ever for a shard that is still locked
        };
        scope.spawn(body).join().expect(what);
    });
}

static FUSE: AtomicU32 = AtomicU32::new(0);

fn fragile() -> Fragile<'static> {
    Fragile(&FUSE)
}

type Value = Fragile<'static>;

/// Objects that are retired: their destructors run in whatever update comes then.
fn of_retired_objects() {
    let map = &RcuMap::<u64, Value>::new();
    let test = |what: &str, update: &(dyn Fn(u64) + Sync)| until_it_panics(what, &FUSE, update);
    test("insert", &|_| _ = map.insert(1, fragile()));
    test("replace", &|_| _ = map.replace(1, fragile()));
    test("update", &|_| _ = map.update(1, |_| Some(fragile())));
    test("alter", &|_| {
        map.insert(1, fragile());
        _ = map.alter(&1, |_| fragile());
    });
    test("insert_or_update", &|_| _ = map.insert_or_update(1, fragile(), |_| fragile()));
    test("compute", &|_| _ = map.compute(1, |_| Operation::<_, ()>::Insert(fragile())));
    test("remove_entry", &|call| {
        map.insert(call, fragile());
        _ = map.remove_entry(&call);
    });
    test("try_insert", &|call| {
        _ = map.try_insert(call, fragile()).is_ok();
        map.remove(&call);
    });
    test("Entry::insert_entry", &|_| _ = map.entry(1).insert_entry(fragile()));
    test("Entry::remove_entry", &|_| {
        map.insert(1, fragile());
        let Entry::Occupied(entry) = map.entry(1) else { panic!("it was inserted") };
        _ = entry.remove_entry();
    });
    let tree = &RcuTreeMap::<u64, Value>::new();
    test("RcuTreeMap::replace", &|_| _ = tree.replace(1, fragile()));
    test("RcuTreeMap::update", &|_| _ = tree.update(1, |_| Some(fragile())));
    test("RcuTreeMap::pop_first", &|call| {
        tree.insert(call, fragile());
        _ = tree.pop_first();
    });
    // What the maps still hold must not panic when they are dropped.
    FUSE.store(u32::MAX / 2, Relaxed);
}

/// Arguments that are not used.
fn of_arguments() {
    static UNUSED: AtomicU32 = AtomicU32::new(0);
    let map = &RcuMap::<u64, u64>::from([(1, 1)]);
    let tree = &RcuTreeMap::<u64, u64>::from([(1, 1)]);
    let test = |what: &str, update: &(dyn Fn(u64) + Sync)| until_it_panics(what, &UNUSED, update);
    let unused = || Fragile(&UNUSED);
    test("get_or_insert_with", &|_| {
        let unused = unused();
        _ = map.get_or_insert_with(1, move || if unused.0.load(Relaxed) > 0 { 1 } else { 2 });
    });
    test("insert_or_update", &|call| {
        let unused = unused();
        _ = map.insert_or_update(call + 2, 1, move |_| if unused.0.load(Relaxed) > 0 { 1 } else { 2 });
    });
    test("Entry::or_insert_with", &|_| {
        let unused = unused();
        _ = map.entry(1).or_insert_with(move || if unused.0.load(Relaxed) > 0 { 1 } else { 2 });
    });
    test("Entry::and_modify", &|call| {
        let unused = unused();
        _ = map.entry(call + 50_000).and_modify(move |_| if unused.0.load(Relaxed) > 0 { 1 } else { 2 });
    });
    test("RcuTreeMap::get_or_insert_with", &|_| {
        let unused = unused();
        _ = tree.get_or_insert_with(1, move || if unused.0.load(Relaxed) > 0 { 1 } else { 2 });
    });
    test("RcuTreeMap::range", &|_| {
        struct Bounds<'a>(#[allow(dead_code)] Fragile<'a>);
        impl core::ops::RangeBounds<u64> for Bounds<'_> {
            fn start_bound(&self) -> core::ops::Bound<&u64> {
                core::ops::Bound::Unbounded
            }
            fn end_bound(&self) -> core::ops::Bound<&u64> {
                core::ops::Bound::Unbounded
            }
        }
        assert!(tree.range(Bounds(unused())).count() < 2, "{}", format!("{:?}", tree.len()));
    });
}

/// In a process of its own: a thread of another test could run the destructor that panics.
#[test]
fn a_destructor_that_panics_leaves_no_section_open() {
    const VARIABLE: &str = "LATCHWORK_TEST_PANICS";
    if std::env::var_os(VARIABLE).is_some() {
        of_retired_objects();
        return of_arguments();
    }
    let test = "map::panic_tests::a_destructor_that_panics_leaves_no_section_open";
    let (succeeded, text) = in_a_process(test, VARIABLE, "1");
    assert!(succeeded, "{text}");
}

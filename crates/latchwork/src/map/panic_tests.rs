//! A destructor that panics in an update leaves no section open, and no shard locked. It may be that of any object which is
//! retired, or that of an argument. An update inside of another one panics, too.

use super::*;
use crate::machine::Native;
use crate::machine::alone::alone;
use crate::reclaim::{Rcu, rcu::RcuDomain};
use core::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind, panic_any};
use std::sync::atomic::{AtomicU32, Ordering::*};
use std::{format, thread};

/// Panics when the last of so many is dropped, and not while its thread unwinds.
struct Fragile<'a>(&'a AtomicU32);

impl Fragile<'_> {
    /// A number that is at least 1. A closure that calls this has the whole object, and drops it; one that uses the field has a
    /// copy of that.
    fn number(&self) -> u64 {
        u64::from(self.0.load(Relaxed)).max(1)
    }
}

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

/// So that a caller may go on with a map after it has caught a panic.
#[test]
fn maps_may_be_used_after_a_panic() {
    fn is_safe<T: RefUnwindSafe + UnwindSafe>() {}
    is_safe::<RcuMap<u64, u64>>();
    is_safe::<RcuSet<u64>>();
    is_safe::<RcuTreeMap<u64, u64>>();
    is_safe::<RcuTreeSet<u64>>();
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

/// A key with a destructor.
struct Key(u64, #[allow(dead_code)] Option<Value>);

impl PartialEq for Key {
    fn eq(&self, other: &Key) -> bool {
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// Arguments that are not used, or that are dropped when there is a result already. The result may hold a section open.
fn of_arguments() {
    static UNUSED: AtomicU32 = AtomicU32::new(0);
    let map = &RcuMap::<u64, u64>::from([(1, 1)]);
    let tree = &RcuTreeMap::<u64, u64>::from([(1, 1)]);
    let test = |what: &str, update: &(dyn Fn(u64) + Sync)| until_it_panics(what, &UNUSED, update);
    let unused = || Fragile(&UNUSED);
    test("get_or_insert_with", &|_| {
        let unused = unused();
        _ = map.get_or_insert_with(1, move || unused.number());
    });
    test("insert_or_update", &|call| {
        let unused = unused();
        _ = map.insert_or_update(call + 2, 1, move |_| unused.number());
    });
    test("Entry::or_insert_with", &|_| {
        let unused = unused();
        _ = map.entry(1).or_insert_with(move || unused.number());
    });
    test("Entry::and_modify", &|call| {
        let unused = unused();
        _ = map.entry(call + 50_000).and_modify(move |_| unused.number());
    });
    test("RcuTreeMap::get_or_insert_with", &|_| {
        let unused = unused();
        _ = tree.get_or_insert_with(1, move || unused.number());
    });
    let keys = &RcuMap::<Key, u64>::from([(Key(1, None), 1)]);
    test("compute, aborted", &|_| {
        let key = Key(2, Some(unused()));
        _ = keys.compute(key, |_| Operation::Abort(keys.get(&Key(1, None))));
    });
    let (cell, other) = (&Rcu::new(1u64), &Rcu::new(2));
    test("Rcu::update_with", &|_| {
        let unused = unused();
        _ = cell.update_with(move |value| (value + unused.number(), other.get()));
    });
    test("Rcu::try_update", &|_| {
        let unused = unused();
        let make = move |value: &u64| Ok::<_, ()>((value + unused.number(), other.get()));
        _ = cell.try_update(make).is_ok();
    });
    test("Rcu::try_update, refused", &|_| {
        let unused = unused();
        let make = move |_: &u64| if unused.number() > 0 { Err(other.get()) } else { Ok((1, ())) };
        _ = cell.try_update(make).is_ok();
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
    alone("map::panic_tests::a_destructor_that_panics_leaves_no_section_open", || {
        of_retired_objects();
        of_arguments();
    });
}

/// A key. Once armed, its destructor updates the map that the key was for.
#[derive(Clone)]
struct Meddler(u64);

static MEDDLES: AtomicU32 = AtomicU32::new(0);
static MEDDLED: std::sync::LazyLock<RcuMap<Meddler, u64>> = std::sync::LazyLock::new(RcuMap::new);

impl PartialEq for Meddler {
    fn eq(&self, other: &Meddler) -> bool {
        self.0 == other.0
    }
}

impl Eq for Meddler {}

impl Hash for Meddler {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Drop for Meddler {
    fn drop(&mut self) {
        if MEDDLES.swap(0, Relaxed) != 0 {
            MEDDLED.insert(Meddler(1000), 1);
        }
    }
}

/// Destructors of arguments update the map: no shard is locked when they run.
#[test]
fn destructors_of_arguments_update_the_map() {
    alone("map::panic_tests::destructors_of_arguments_update_the_map", arguments_that_meddle);
}

fn arguments_that_meddle() {
    // SAFETY: ends the process if it hangs.
    unsafe { libc::alarm(300) };
    struct Undo<'a>(&'a (dyn Fn() + Sync));
    impl Undo<'_> {
        fn of(&self, value: &u64) -> u64 {
            value + 1
        }
    }
    impl Drop for Undo<'_> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let (map, tree) = (RcuMap::<u64, u64>::new(), RcuTreeMap::<u64, u64>::new());
    let (removes, removes_of_tree) = (|| _ = map.remove(&1), || _ = tree.remove(&1));
    let undo = Undo(&removes);
    assert!(map.alter(&7, move |value| undo.of(value)).is_none());
    let undo = Undo(&removes);
    assert!(map.remove_if(&7, move |_, value| undo.of(value) == 1).is_none());
    let undo = Undo(&removes_of_tree);
    assert!(tree.remove_if(&7, move |_, value| undo.of(value) == 1).is_none());
    let panics = |update: &dyn Fn()| {
        MEDDLED.remove(&Meddler(1000));
        MEDDLES.store(1, Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(update)).is_err());
        assert!(MEDDLED.contains_key(&Meddler(1000)), "no destructor has run");
    };
    let make = || -> u64 { panic_any("no value") };
    MEDDLED.insert(Meddler(1), 1);
    panics(&|| _ = MEDDLED.get_or_insert_with(Meddler(2), make));
    panics(&|| _ = MEDDLED.update(Meddler(2), |_| Some(make())));
    panics(&|| _ = MEDDLED.insert_or_update(Meddler(1), 1, |_| make()));
    panics(&|| _ = MEDDLED.compute(Meddler(2), |_| Operation::<_, ()>::Insert(make())));
    panics(&|| _ = MEDDLED.entry(Meddler(2)).or_insert_with(make));
    // The clone of the key is made when there is a value.
    MEDDLES.store(0, Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| MEDDLED.alter(&Meddler(1), |_| make()))).is_err());
    assert_eq!(MEDDLED.get(&Meddler(1)).as_deref(), Some(&1));
}

/// They would wait for their own thread, for ever.
#[test]
fn updates_inside_of_an_update_panic() {
    alone("map::panic_tests::updates_inside_of_an_update_panic", updates_inside_of_an_update);
}

fn updates_inside_of_an_update() {
    // SAFETY: ends the process if it hangs.
    unsafe { libc::alarm(300) };
    let map = RcuMap::from([(1, 1)]);
    let inside = |value: u64| {
        map.insert(2, value);
        value
    };
    let updates: [(&str, &dyn Fn()); 11] = [
        ("get_or_insert_with", &|| _ = map.get_or_insert_with(3, || inside(3))),
        ("update", &|| _ = map.update(1, |_| Some(inside(3)))),
        ("alter", &|| _ = map.alter(&1, |_| inside(3))),
        ("insert_or_update", &|| _ = map.insert_or_update(1, 3, |_| inside(3))),
        ("compute", &|| _ = map.compute(3, |_| Operation::<_, ()>::Insert(inside(3)))),
        ("remove_if", &|| _ = map.remove_if(&1, |_, _| inside(3) == 3)),
        ("or_insert_with", &|| _ = map.entry(3).or_insert_with(|| inside(3))),
        ("entry", &|| {
            let _entry = map.entry(1);
            inside(3);
        }),
        ("two entries", &|| _ = (map.entry(1), map.entry(3))),
        ("clear", &|| {
            let _entry = map.entry(1);
            map.clear();
        }),
        ("statistics", &|| {
            let _entry = map.entry(1);
            map.statistics();
        }),
    ];
    for (what, update) in updates {
        let panic = catch_unwind(AssertUnwindSafe(update)).expect_err(what);
        assert!(panic.downcast_ref::<&str>().is_some_and(|why| why.contains("closure")), "{what}");
        assert!(map.read().iter().eq([(&1, &1)]), "{what} has changed the map");
        assert!(!map.insert(1, 1), "{what}: the shard is unlocked");
    }
    // A closure may read the map, and update another one.
    let other = RcuMap::new();
    map.update(1, |_| map.get(&1).map(|value| *other.get_or_insert(*value, 2)));
    assert_eq!(map.get(&1).as_deref(), Some(&2));
}

/// A key whose comparisons update the map that it is for, once it is armed.
#[derive(PartialEq, Eq)]
struct Rival(u64);

static RIVALS: AtomicU32 = AtomicU32::new(0);
static RIVALLED: std::sync::LazyLock<RcuTreeMap<Rival, u64>> = std::sync::LazyLock::new(RcuTreeMap::new);

impl Ord for Rival {
    fn cmp(&self, other: &Rival) -> core::cmp::Ordering {
        if RIVALS.swap(0, Relaxed) != 0 {
            RIVALLED.insert(Rival(1000), 1);
        }
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Rival {
    fn partial_cmp(&self, other: &Rival) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[test]
fn updates_inside_of_an_update_of_a_tree_panic() {
    alone(
        "map::panic_tests::updates_inside_of_an_update_of_a_tree_panic",
        updates_inside_of_an_update_of_a_tree,
    );
}

fn updates_inside_of_an_update_of_a_tree() {
    // SAFETY: ends the process if it hangs.
    unsafe { libc::alarm(300) };
    let map = RcuTreeMap::from([(1, 1)]);
    let panics = |what: &str, update: &dyn Fn()| {
        let panic = catch_unwind(AssertUnwindSafe(update)).expect_err(what);
        assert!(panic.downcast_ref::<&str>().is_some_and(|why| why.contains("closure")), "{what}");
        assert!(!RcuDomain::<Native>::is_inside(), "{what}: a section is still open");
    };
    let inside = |value: u64| {
        map.insert(2, value);
        value
    };
    let updates: [(&str, &dyn Fn()); 5] = [
        ("get_or_insert_with", &|| _ = map.get_or_insert_with(3, || inside(3))),
        ("update", &|| _ = map.update(1, |_| Some(inside(3)))),
        ("remove_if", &|| _ = map.remove_if(&1, |_, _| inside(3) == 3)),
        ("clear", &|| {
            map.update(1, |_| {
                map.clear();
                Some(3)
            });
        }),
        ("pop_first", &|| _ = map.update(1, |_| map.pop_first().map(|_| 3))),
    ];
    for (what, update) in updates {
        panics(what, update);
        assert!(map.read().iter().eq([(&1, &1)]), "{what} has changed the map");
        assert!(!map.insert(1, 1), "{what}: the map is unlocked");
    }
    RIVALLED.insert(Rival(1), 1);
    RIVALS.store(1, Relaxed);
    panics("a comparison", &|| _ = RIVALLED.insert(Rival(2), 1));
    assert!(RIVALLED.insert(Rival(2), 1));
    // A closure may read the map, and update another one.
    let other = RcuTreeMap::new();
    map.update(1, |_| map.get(&1).map(|value| *other.get_or_insert_with(*value, || 2)));
    assert_eq!(map.get(&1).as_deref(), Some(&2));
}

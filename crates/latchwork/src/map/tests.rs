//! [`RcuMap`] against a plain map, alone and with others.

use super::*;
use crate::locks::mutex::tas::RawTas;
use crate::machine::Native;
use crate::machine::alone::alone;
use crate::reclaim::rcu::RcuDomain;
use std::boxed::Box;
use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::vec::Vec;

/// A generator of numbers (Vigna's splitmix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

#[test]
fn rcu_map_is_a_hash_map() {
    let (map, mut model, mut random) = (RcuMap::new(), HashMap::new(), Random(7));
    for step in 0..20_000u64 {
        let key = random.below(1500);
        match random.below(6) {
            0 => assert_eq!(map.insert(key, step), model.insert(key, step).is_none()),
            1 => assert_eq!(map.replace(key, step).as_deref(), model.insert(key, step).as_ref()),
            2 if step % 2 == 0 => assert_eq!(map.remove(&key), model.remove(&key).is_some()),
            2 => assert_eq!(map.remove_entry(&key).as_deref(), model.remove(&key).as_ref()),
            3 => {
                let after =
                    map.update(key, |value| value.filter(|value| *value % 3 != 0).map(|value| value + 1));
                let value = model.get(&key).filter(|value| *value % 3 != 0).map(|value| value + 1);
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
                assert_eq!(after.as_deref(), value.as_ref());
            }
            4 => {
                assert_eq!(*map.get_or_insert_with(key, || step), *model.entry(key).or_insert(step));
            }
            _ => assert_eq!(map.get(&key).as_deref(), model.get(&key)),
        }
        assert_eq!(map.len(), model.len());
        if step == 10_000 {
            map.shrink_to_fit();
        }
    }
    assert!(map.capacity() >= 512, "it has grown");
    let found: HashMap<u64, u64> = map.read().iter().map(|(key, value)| (*key, *value)).collect();
    assert_eq!(found, model);
    let growing = RcuMap::new();
    for key in 0..1000 {
        growing.insert(key, ());
        assert!(growing.len() <= growing.capacity());
    }
}

#[test]
fn an_rcu_map_that_grows_and_shrinks_loses_nothing_that_readers_look_for() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
    const STAY: u64 = 200;
    let map: RcuMap<u64, u64> = (0..STAY).map(|key| (key, key * 7)).collect();
    let (over, resizes) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (map, over) = (&map, &over);
            scope.spawn(move || {
                let mut random = Random(thread);
                while !over.load(Relaxed) {
                    let key = random.below(STAY);
                    assert_eq!(map.get(&key).as_deref(), Some(&(key * 7)));
                    let reading = map.read();
                    let stay = reading.iter().filter(|(key, _)| **key < STAY);
                    assert_eq!(stay.count(), STAY as usize, "each that stays is met once");
                }
            });
        }
        // Other keys come and go; each belongs to one thread, which checks it.
        for owner in 1..3 {
            let (map, over, resizes) = (&map, &over, &resizes);
            scope.spawn(move || {
                let mut random = Random(10 + owner);
                for round in 0..20 {
                    let keys: Vec<u64> = (0..300).map(|key| owner * 10_000 + key).collect();
                    for key in &keys {
                        assert!(map.insert(*key, round));
                    }
                    let before = map.capacity();
                    for key in &keys {
                        assert_eq!(
                            map.update(*key, |value| value.map(|value| value + 1)).as_deref(),
                            Some(&(round + 1))
                        );
                        if random.below(2) == 0 {
                            assert_eq!(map.get(key).as_deref(), Some(&(round + 1)));
                        }
                        assert_eq!(map.remove_entry(key).as_deref(), Some(&(round + 1)));
                        assert!(!map.contains_key(key));
                    }
                    map.shrink_to_fit();
                    resizes.fetch_add(usize::from(map.capacity() != before), Relaxed);
                }
                if owner == 1 {
                    over.store(true, Relaxed);
                }
            });
        }
    });
    assert_eq!(map.len(), STAY as usize);
    assert!(resizes.into_inner() > 0, "it was resized meanwhile");
}

#[test]
fn an_rcu_map_drops_every_key_and_value_once() {
    use std::sync::Arc;
    let counted = Arc::new(());
    let map = RcuMap::new();
    for key in 0..500 {
        map.insert(key, counted.clone());
        map.insert(key, counted.clone());
    }
    map.retain(|key, _| key % 2 == 0);
    assert_eq!(map.len(), 250);
    crate::reclaim::rcu::global().barrier();
    assert_eq!(Arc::strong_count(&counted), 251);
    drop(map);
    crate::reclaim::rcu::global().barrier();
    assert_eq!(Arc::strong_count(&counted), 1);
}

#[test]
fn a_small_map_is_small_and_gets_shards_as_it_grows_or_its_updaters_wait() {
    let map = RcuMap::<u64, u64>::new();
    let empty = map.statistics();
    assert!(empty.shards == 1 && empty.bytes <= 1024, "{empty:?}");
    (0..20_000).for_each(|key| _ = map.insert(key, key));
    assert_eq!(map.statistics().shards, 1, "nobody waited");
    (20_000..200_000).for_each(|key| _ = map.insert(key, key));
    let large = map.statistics();
    assert!(large.shards > 1 && large.elements == 200_000, "{large:?}");
    assert!(large.fullest_shard < 100_000, "{large:?}");
    // Two threads meet at the lock, because the one waits for the other while it has the lock.
    let map = RcuMap::<u64, u64>::new();
    for key in 0..64 {
        map.insert(key, 0);
    }
    while map.statistics().shards == 1 {
        std::thread::scope(|scope| {
            let entry = map.entry(0);
            let waits = scope.spawn(|| map.insert(1, 1));
            std::thread::sleep(std::time::Duration::from_millis(1));
            drop(entry);
            waits.join().unwrap();
        });
    }
    assert_eq!(map.len(), 64);
    assert!((0..64).all(|key| map.contains_key(&key)));
}

#[test]
fn a_walk_in_several_sections_meets_each_element_once_while_the_map_grows_and_shrinks() {
    let map: RcuMap<u64, u64> = (0..500).map(|key| (key, key)).collect();
    let mut keys = Vec::new();
    for (met, (key, _)) in map.iter_cloned().enumerate() {
        keys.push(key);
        match met {
            20 => map.reserve(5000),
            100 => map.shrink_to_fit(),
            150 => map.table.split_all(),
            200 => map.reserve(50_000),
            300 => map.shrink_to_fit(),
            400 => map.table.split_all(),
            _ => (),
        }
    }
    keys.sort_unstable();
    assert_eq!(keys, (0..500).collect::<Vec<_>>());
}

#[test]
fn keys_are_looked_up_by_what_is_equivalent() {
    #[derive(Hash)]
    struct Pair<'a>(&'a str, &'a str);
    impl Equivalent<(std::string::String, std::string::String)> for Pair<'_> {
        fn equivalent(&self, key: &(std::string::String, std::string::String)) -> bool {
            self.0 == key.0 && self.1 == key.1
        }
    }
    let map = RcuMap::new();
    map.insert(("a".into(), "b".into()), 1);
    assert_eq!(map.get(&Pair("a", "b")).as_deref(), Some(&1));
    assert!(map.remove(&Pair("a", "b")) && !map.contains_key(&Pair("a", "b")));
}

#[test]
fn retain_leaves_what_was_replaced_meanwhile() {
    let map: RcuMap<u64, u64> = (0..100).map(|key| (key, 1)).collect();
    map.retain(|key, _| {
        map.insert(*key, 2);
        false
    });
    assert_eq!(map.len(), 100);
}

#[test]
fn updates_hold_no_section_open_and_clearing_gives_memory_back_as_it_goes() {
    use crate::reclaim::rcu::RcuDomain;
    let map = RcuMap::<u64, std::string::String>::new();
    for key in 0..50_000 {
        map.insert(key, std::string::String::from("a value"));
        map.insert(key, std::string::String::from("another"));
        assert!(!RcuDomain::<crate::machine::Native>::is_inside());
    }
    map.retain(|key, _| key % 2 == 0);
    map.clear();
    assert!(map.is_empty() && !RcuDomain::<crate::machine::Native>::is_inside());
    // An iterator that was not finished drops the rest.
    let counted = std::sync::Arc::new(());
    let map: RcuMap<u64, _> = (0..100).map(|key| (key, counted.clone())).collect();
    let mut elements = map.into_iter();
    assert!(elements.len() == 100 && elements.next().is_some());
    drop(elements);
    assert_eq!(std::sync::Arc::strong_count(&counted), 1);
}

/// Counts that it was dropped, and panics if it is told to.
struct Bomb {
    armed: bool,
    dropped: &'static AtomicUsize,
}

impl Drop for Bomb {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Relaxed);
        assert!(!self.armed, "a destructor panics");
    }
}

/// With the same hashes each time: no batch has two elements whose destructors panic, which would end the process.
type Mined = growing::Growing<RawTas<Native>, u64, Bomb, BuildHasherDefault<DefaultHasher>>;

/// A table with so many elements, of which every `armed`th has a destructor that panics. It has a domain of its own, so that
/// no other test's thread runs these destructors.
fn mined(elements: u64, armed: u64) -> (Mined, &'static RcuDomain<Native>, &'static AtomicUsize) {
    let dropped: &'static AtomicUsize = Box::leak(Box::default());
    let domain: &'static RcuDomain<Native> = Box::leak(Box::new(RcuDomain::new()));
    let table = Mined::new(domain, growing::Count { first: 2, most: 4 }, 0, Default::default());
    for key in 0..elements {
        table.lock(&key).set(key, Bomb { armed: key % armed == 0, dropped });
    }
    (table, domain, dropped)
}

/// Calls `operation` until it does not panic. Returns how often it did.
fn panics(mut operation: impl FnMut()) -> usize {
    let mut run = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(&mut operation)).is_err();
    core::iter::from_fn(|| run().then_some(())).count()
}

#[test]
fn what_clear_has_removed_is_dropped_also_if_destructors_panic() {
    const ELEMENTS: u64 = 20_000;
    let (table, domain, dropped) = mined(ELEMENTS, 5000);
    let found = panics(|| table.clear()) + panics(|| domain.barrier());
    assert_eq!((found, table.count()), (4, 0));
    assert_eq!(dropped.load(Relaxed), ELEMENTS as usize);
}

#[test]
fn a_table_that_ends_drops_every_element_also_if_a_destructor_panics() {
    const ELEMENTS: u64 = 1000;
    let (table, _, dropped) = mined(ELEMENTS, ELEMENTS);
    let mut table = Some(table);
    assert_eq!(panics(|| drop(table.take())), 1);
    assert_eq!(dropped.load(Relaxed), ELEMENTS as usize);
}

/// The elements of a map that has ended are dropped with its iterator, also those after one whose destructor panics.
#[test]
fn an_owned_walk_that_is_left_drops_every_element_also_if_a_destructor_panics() {
    let dropped: &'static AtomicUsize = Box::leak(Box::default());
    let map: RcuMap<u32, Bomb> = (0..1000).map(|key| (key, Bomb { armed: key == 500, dropped })).collect();
    let mut left = Some(map.into_iter());
    assert_eq!(panics(|| drop(left.take())), 1);
    assert_eq!(dropped.load(Relaxed), 1000);
}

/// A `BuildHasher` may have another way to hash a whole key (that of `ahash` has), and the map then uses neither beside the other.
#[test]
fn one_way_of_hashing() {
    #[derive(Default)]
    struct TwoWays(BuildHasherDefault<DefaultHasher>);
    impl BuildHasher for TwoWays {
        type Hasher = DefaultHasher;
        fn build_hasher(&self) -> DefaultHasher {
            self.0.build_hasher()
        }
        fn hash_one<T: Hash>(&self, key: T) -> u64 {
            !self.0.hash_one(key)
        }
    }
    let map = RcuMap::<u32, u32, TwoWays>::with_hasher(TwoWays::default());
    (0..1000).for_each(|key| assert!(map.insert(key, key)));
    assert!((0..1000).all(|key| map.contains_key(&key)));
    (10..1000).for_each(|key| assert!(map.remove(&key)));
    map.shrink_to_fit();
    assert_eq!((map.len(), map.iter().count()), (10, 10));
}

/// A key that was given to an entry is dropped after the shard is unlocked: its destructor may use the map.
#[test]
fn an_entry_drops_its_key_unlocked() {
    use std::sync::LazyLock;
    static MAP: LazyLock<RcuMap<Key, u32>> = LazyLock::new(RcuMap::new);
    #[derive(PartialEq, Eq, Hash, Clone)]
    struct Key(u32);
    impl Drop for Key {
        fn drop(&mut self) {
            if self.0 == 1 {
                MAP.update(Key(2), |count| Some(count.unwrap_or(&0) + 1));
            }
        }
    }
    // SAFETY: ends a process that hangs.
    unsafe { libc::alarm(300) };
    MAP.insert(Key(1), 1);
    // One shard at first, so that both keys are in it.
    drop(MAP.entry(Key(1)));
    MAP.entry(Key(1)).or_insert(1);
    // SAFETY: takes the alarm back.
    unsafe { libc::alarm(0) };
    assert!(MAP.get(&Key(2)).is_some_and(|count| *count >= 2));
}

/// Less room that is asked for takes none away, and neither does `clear`.
#[test]
fn room_stays() {
    let map = RcuMap::with_capacity(10_000);
    map.insert(1, 1);
    let room = map.capacity();
    map.reserve(1);
    assert_eq!(map.capacity(), room);
    map.clear();
    assert_eq!(map.capacity(), room);
}

/// An element that is equal to another one, and can be told from it.
#[derive(Debug)]
struct Twin(u32, &'static str);
impl PartialEq for Twin {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
impl Eq for Twin {}
impl Hash for Twin {
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        self.0.hash(hasher);
    }
}

#[test]
fn rcu_set_is_a_set() {
    let [few, many, others] =
        [&[1, 2][..], &[1, 2, 3], &[2, 4]].map(|all| all.iter().copied().collect::<RcuSet<u32>>());
    assert!(few.is_subset(&few) && few.is_subset(&many) && !many.is_subset(&few) && !few.is_subset(&others));
    assert!(many.is_superset(&few) && !few.is_superset(&many) && !others.is_superset(&few));
    assert!(
        !few.is_disjoint(&others) && !few.is_disjoint(&many) && RcuSet::from([3_u32]).is_disjoint(&others)
    );
    let twins = RcuSet::from([Twin(1, "first")]);
    assert!(!twins.insert(Twin(1, "second")));
    assert_eq!(
        twins.get(&Twin(1, "")).map(|twin| twin.1),
        Some("first"),
        "as `std` has it, the first one stays"
    );
}

/// Buckets that have been replaced count with their size.
#[test]
fn replaced_buckets_count_as_garbage() {
    let (table, domain, _) = mined(0, 1);
    let guard = domain.enter();
    table.fit(1 << 16, false);
    table.fit(0, true);
    assert!(domain.garbage().bytes > 500_000, "{:?}", domain.garbage());
    drop(guard);
}

/// What a map outgrows counts with its bytes, and is reclaimed before there is too much. In a process of its own, as readers of other
/// tests may hold it up.
#[test]
fn what_a_map_outgrows_does_not_pile_up() {
    alone("map::tests::what_a_map_outgrows_does_not_pile_up", || {
        let map = RcuMap::<u64, u64>::new();
        for _ in 0..20 {
            map.reserve(1_000_000);
            map.shrink_to_fit();
            let garbage = crate::reclaim::rcu::global().garbage();
            assert!(garbage.bytes <= crate::reclaim::Limit::DEFAULT.bytes, "{garbage:?}");
        }
    });
}

/// What an update replaces is reclaimed by the next update after a pause, also where the update returns a reference and so retires
/// inside of a section. In a process of its own, as readers of other tests may hold it up.
#[test]
fn what_is_seldom_replaced_is_reclaimed_soon() {
    alone("map::tests::what_is_seldom_replaced_is_reclaimed_soon", || {
        static ALIVE: AtomicUsize = AtomicUsize::new(0);
        struct Counted;
        impl Counted {
            fn new() -> Self {
                ALIVE.fetch_add(1, Relaxed);
                Counted
            }
        }
        impl Drop for Counted {
            fn drop(&mut self) {
                ALIVE.fetch_sub(1, Relaxed);
            }
        }
        let (map, tree) = (RcuMap::new(), RcuTreeMap::new());
        let again = |_: &_| Counted::new();
        let updates: [(&str, &dyn Fn()); 12] = [
            ("insert", &|| _ = map.insert(1, Counted::new())),
            ("replace", &|| _ = map.replace(1, Counted::new())),
            ("update", &|| _ = map.update(1, |_| Some(Counted::new()))),
            ("alter", &|| _ = map.alter(&1, again)),
            ("compute", &|| _ = map.compute(1, |_| Operation::<_, ()>::Insert(Counted::new()))),
            ("insert_or_update", &|| _ = map.insert_or_update(1, Counted::new(), again)),
            ("insert_entry", &|| _ = map.entry(1).insert_entry(Counted::new())),
            ("remove_entry", &|| _ = (map.insert(1, Counted::new()), map.remove_entry(&1)).0),
            ("retain", &|| _ = (map.insert(1, Counted::new()), map.retain(|_, _| false)).0),
            ("tree insert", &|| _ = tree.insert(1, Counted::new())),
            ("tree replace", &|| _ = tree.replace(1, Counted::new())),
            ("tree update", &|| _ = tree.update(1, |_| Some(Counted::new()))),
        ];
        for (name, update) in updates {
            // The pauses are longer than 10 ms, and grow to seconds: where the thread was preempted while it reclaimed, the domain
            // waits for longer before it reclaims again.
            let mut alive = usize::MAX;
            for attempt in 0..60 {
                std::thread::sleep(core::time::Duration::from_millis(11 + attempt * attempt));
                update();
                // One in each map, and the last one or two that were replaced.
                alive = alive.min(ALIVE.load(Relaxed));
                if alive <= 4 {
                    break;
                }
            }
            (0..20).for_each(|_| update());
            assert!(alive <= 4, "{name}: {alive} alive");
        }
    });
}

/// An update of a key that is there retires one element, whichever method does it. Elements without a destructor are retired 21 at
/// a time. In a process of its own, which no other test retires in.
#[test]
fn an_update_in_place_retires_one_element() {
    alone("map::tests::an_update_in_place_retires_one_element", || {
        let domain = crate::reclaim::rcu::global();
        let new = || std::string::String::from("new");
        let (map, numbers) = (RcuMap::from([(1, new())]), RcuMap::from([(1, 0)]));
        let again = |_: &_| new();
        let updates: [(&str, &dyn Fn()); 9] = [
            ("insert", &|| _ = map.insert(1, new())),
            ("replace", &|| _ = map.replace(1, new())),
            ("update", &|| _ = map.update(1, |_| Some(new()))),
            ("alter", &|| _ = map.alter(&1, again)),
            ("compute", &|| _ = map.compute(1, |_| Operation::<_, ()>::Insert(new()))),
            ("insert_or_update", &|| _ = map.insert_or_update(1, new(), again)),
            ("and_modify", &|| _ = map.entry(1).and_modify(again)),
            ("insert_entry", &|| _ = map.entry(1).insert_entry(new())),
            ("remove", &|| _ = (map.remove(&1), map.insert(1, new()))),
        ];
        let _section = domain.enter(); // so nothing is reclaimed
        let retired = |update: &dyn Fn()| {
            let before = domain.garbage().objects;
            update();
            domain.garbage().objects - before
        };
        for (name, update) in updates {
            assert_eq!(retired(update), 1, "{name}");
        }
        assert_eq!(retired(&|| (0..210).for_each(|number| _ = numbers.insert(1, number))), 10);
    });
}

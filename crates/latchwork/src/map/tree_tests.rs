//! [`RcuTreeMap`] beside `std`'s `BTreeMap`, its pages after each update, and walks beside updates.

use super::pages::Page;
use super::tests::Random;
use super::tree::Tree;
use super::*;
use crate::locks::mutex::tas::RawTas;
use crate::machine::Native;
use crate::reclaim::rcu::{RcuDomain, global};
use core::cmp::Ordering;
use core::ops::Bound;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::vec::Vec;

/// What the twin does wrong.
#[derive(Copy, Clone, Debug, PartialEq)]
enum Twin {
    Sound,
    /// Loses one removal in 50.
    Forgets,
    /// Its ranges include the end that they are to exclude.
    Through,
    /// Its readings show the map of today.
    Late,
}

fn all<'a>(elements: impl Iterator<Item = (&'a u64, &'a u64)>) -> Vec<(u64, u64)> {
    elements.map(|(key, value)| (*key, *value)).collect()
}

/// Does `steps` operations, chosen by `seed`, on a map and on the model; panics if they differ.
fn fuzz(seed: u64, steps: u64, twin: Twin) {
    let (mut random, mut model) = (Random(seed), BTreeMap::<u64, u64>::new());
    let mut map = RcuTreeMap::<u64, u64>::new();
    let keys = [4, 100, 5000][seed as usize % 3];
    for step in 0..steps {
        let (key, other) = (random.below(keys), random.below(keys));
        match random.below(24) {
            0..=3 => assert_eq!(map.insert(key, step), model.insert(key, step).is_none()),
            4 => assert_eq!(map.replace(key, step).as_deref(), model.insert(key, step).as_ref()),
            5 if twin == Twin::Forgets && random.below(50) == 0 => _ = model.remove(&key),
            5 | 6 => assert_eq!(map.remove(&key), model.remove(&key).is_some()),
            7 => assert_eq!(map.remove_entry(&key).as_deref(), model.remove(&key).as_ref()),
            8 => {
                let wanted = model.get(&key).is_some_and(|value| value % 2 == 0);
                assert_eq!(map.remove_if(&key, |_, value| value % 2 == 0).is_some(), wanted);
                model.retain(|found, _| *found != key || !wanted);
            }
            9 => match map.try_insert(key, step) {
                Ok(new) => assert_eq!((*new, model.insert(key, step)), (step, None)),
                Err(error) => assert_eq!((Some(&*error.current), error.value), (model.get(&key), step)),
            },
            10 => assert_eq!(*map.get_or_insert(key, step), *model.entry(key).or_insert(step)),
            11 => {
                let make = |value: Option<&u64>| value.filter(|value| *value % 3 != 0).map(|value| value + 1);
                let value = make(model.get(&key));
                assert_eq!(map.update(key, make).as_deref().copied(), value);
                match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
            }
            12 if random.below(4) == 0 => {
                assert_eq!(map.pop_first().map(|first| (*first.key(), *first)), model.pop_first());
                assert_eq!(map.pop_last().map(|last| (*last.key(), *last)), model.pop_last());
            }
            13 if random.below(40) == 0 => {
                let third = random.below(3);
                map.retain(|key, _| key % 3 != third);
                model.retain(|key, _| key % 3 != third);
            }
            14 if random.below(300) == 0 => {
                map.clear();
                model.clear();
            }
            15 if random.below(40) == 0 => {
                assert!(map.clone() == map && map.iter_cloned().eq(model.clone()));
                assert!(map.iter().map(|element| (*element.key(), *element)).eq(model.clone()));
            }
            16 if random.below(40) == 0 => {
                assert_eq!(map.into_iter().len(), model.len());
                let doubled = model.iter().chain(&model).map(|(key, value)| (*key, *value));
                map = doubled.rev().collect();
            }
            17 if random.below(10) == 0 => {
                let (reading, before) = (map.read(), model.clone());
                for key in [key, other, key / 2] {
                    assert_eq!(map.insert(key, step), model.insert(key, step).is_none());
                    assert_eq!(map.remove(&other), model.remove(&other).is_some());
                }
                let late = if twin == Twin::Late { map.read() } else { reading };
                assert_eq!(all(late.iter()), all(before.iter()), "as it was");
            }
            18 => {
                let reading = map.read();
                assert_eq!(reading.first_key_value(), model.first_key_value());
                assert_eq!(reading.last_key_value(), model.last_key_value());
                assert_eq!(map.first().map(|first| *first), model.values().next().copied());
                assert_eq!(map.last().map(|last| *last), model.values().next_back().copied());
            }
            19 | 20 => {
                let (begin, end) = (key.min(other), key.max(other));
                let reading = map.read();
                let (mut walk, mut wanted) = (reading.range(begin..end), model.range(begin..end));
                if twin == Twin::Through {
                    walk = reading.range(begin..=end);
                }
                assert_eq!(walk.len(), wanted.clone().count());
                // From both ends, until they meet.
                for _ in 0..=wanted.clone().count() {
                    match random.below(3) {
                        0 => assert_eq!(walk.next(), wanted.next()),
                        1 => assert_eq!(walk.next_back(), wanted.next_back()),
                        _ => {
                            let skipped = random.below(3) as usize;
                            assert_eq!(walk.nth(skipped), wanted.nth(skipped));
                        }
                    }
                }
                let bounds = (Bound::Excluded(begin), Bound::Included(end));
                let wanted = model.iter().filter(|(key, _)| begin < **key && **key <= end);
                assert_eq!(all(reading.range(bounds)), all(wanted));
                assert_eq!(reading.range(end + 1..begin).len(), 0);
            }
            _ => assert_eq!(map.get(&key).as_deref(), model.get(&key)),
        }
        assert_eq!((map.len(), map.contains_key(&other)), (model.len(), model.contains_key(&other)));
        if step % 500 == 0 {
            assert_eq!(all(map.read().iter()), all(model.iter()));
        }
    }
}

#[test]
fn arbitrary_operations_do_what_those_of_std_do() {
    (0..6).for_each(|seed| fuzz(seed, 6000, Twin::Sound));
}

#[test]
fn broken_twins_are_found_by_arbitrary_operations() {
    for twin in [Twin::Forgets, Twin::Through, Twin::Late] {
        let found = catch_unwind(AssertUnwindSafe(|| fuzz(1, 20_000, twin)));
        assert!(found.is_err(), "{twin:?} is not found");
    }
}

/// A tree with small pages.
type Small = Tree<RawTas<Native>, u32, Arc<()>, 4>;

/// Panics unless the page and those below it are as they are to be. Returns how many elements there are.
fn check(page: Page<'_, u32, Arc<()>>, is_root: bool, keys: &mut Vec<u32>) {
    let (len, before) = (page.firsts().len(), keys.len());
    assert!(len <= 4 && len >= if is_root && page.height() == 0 { 1 } else { 2 }, "{len} entries");
    for at in 0..len {
        assert_eq!(page.before(at), keys.len() - before);
        let next = keys.len();
        match page.height() {
            0 => keys.push(page.first(at).key),
            height => {
                assert_eq!(page.child(at).height(), height - 1);
                check(page.child(at), false, keys);
            }
        }
        assert_eq!(page.first(at).key, keys[next]);
    }
    assert_eq!(page.count(), keys.len() - before);
}

/// What a small tree consists of after each of many updates; and all that was made is dropped in the end.
fn shapes(order: impl Fn(u32) -> u32, count: u32) {
    let domain: &'static RcuDomain<Native> = Box::leak(Box::new(RcuDomain::new()));
    let (mut tree, alive) = (Small::new(domain), Arc::new(()));
    let node = |key| Box::new(growing::Node { key, value: alive.clone() });
    let keys = |tree: &Small| {
        let (section, mut keys) = (tree.enter(), Vec::new());
        tree.snapshot(&section).root().into_iter().for_each(|root| check(root, true, &mut keys));
        assert!(keys.is_sorted_by(|one, next| one < next));
        keys
    };
    for step in 0..count {
        let key = order(step);
        tree.lock(&key).set(node(key));
        assert_eq!(keys(&tree).len(), step as usize + 1);
    }
    for step in (0..count).rev() {
        assert!(tree.lock(&order(step)).node().is_some());
        match step % 4 {
            0 => tree.lock_end(step % 8 == 0).remove(),
            _ => tree.lock(&order(step)).remove(),
        }
        // (One that has been removed by its place may have been another.)
        assert!(keys(&tree).len() >= step as usize / 4);
        if tree.lock(&order(step / 2)).node().is_none() {
            tree.lock(&order(step / 2)).set(node(order(step / 2)));
        }
        if step > 0 && tree.lock(&order(step - 1)).node().is_none() {
            tree.lock(&order(step - 1)).set(node(order(step - 1)));
        }
    }
    tree.clear();
    assert!(keys(&tree).is_empty());
    for count in 0..60 {
        drop(tree.drain());
        tree.fill((0..count).map(node).collect());
        assert!(keys(&tree).into_iter().eq(0..count));
    }
    drop(tree);
    domain.barrier();
    assert_eq!((Arc::strong_count(&alive), domain.garbage().objects), (1, 0));
}

#[test]
fn pages_are_balanced_after_each_update() {
    shapes(|step| step, 150);
    shapes(|step| 1000 - step, 150);
    shapes(|step| step * 77 % 151, 150);
}

/// A window of keys moves on: a thread adds the next key, and then removes the first. So every walk, range and reading is of
/// keys that follow each other without a gap, though other updates run meanwhile.
#[test]
fn a_walk_is_of_one_moment() {
    const STEPS: u64 = 3000;
    let map = RcuTreeMap::<u64, u64>::new();
    (0..100).for_each(|key| _ = map.insert(key, key));
    let follow = |keys: &[u64]| assert!(keys.windows(2).all(|pair| pair[1] == pair[0] + 1), "{keys:?}");
    std::thread::scope(|scope| {
        let moves = scope.spawn(|| {
            for step in 0..STEPS {
                map.insert(100 + step, 100 + step);
                assert_eq!(map.pop_first().as_deref(), Some(&step));
            }
        });
        while !moves.is_finished() {
            let keys: Vec<u64> = map.read().keys().copied().collect();
            assert!((100..=101).contains(&keys.len()) && (100..=101).contains(&map.len()));
            follow(&keys);
            let mut back: Vec<u64> = map.iter().rev().map(|element| *element).collect();
            back.reverse();
            follow(&back);
            let first = *map.first().unwrap();
            follow(&map.range(first..).map(|element| *element.key()).collect::<Vec<_>>());
        }
    });
}

/// A key that panics at the comparison with this number.
struct Touchy(u32);

std::thread_local! {
    static PANICS_AFTER: core::cell::Cell<u32> = const { core::cell::Cell::new(u32::MAX) };
}

impl Ord for Touchy {
    fn cmp(&self, other: &Self) -> Ordering {
        PANICS_AFTER.set(PANICS_AFTER.get().checked_sub(1).unwrap_or_else(|| panic_any("a comparison")));
        self.0.cmp(&other.0)
    }
}
impl PartialOrd for Touchy {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Touchy {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Touchy {}

#[test]
fn retain_leaves_what_was_replaced_meanwhile() {
    let map: RcuTreeMap<u64, u64> = (0..100).map(|key| (key, 1)).collect();
    map.retain(|key, _| {
        map.insert(*key, 2);
        false
    });
    assert_eq!(map.len(), 100);
}

/// Whichever comparison panics, nothing has changed, the lock has been released, and nothing is lost.
#[test]
fn comparisons_that_panic_change_nothing() {
    let alive = Arc::new(());
    let map: RcuTreeMap<Touchy, Arc<()>> = (0..200).map(|key| (Touchy(2 * key), alive.clone())).collect();
    type Operation = fn(&RcuTreeMap<Touchy, Arc<()>>, &Arc<()>);
    let operations: [Operation; 8] = [
        |map, value| _ = map.insert(Touchy(101), value.clone()),
        |map, value| _ = map.replace(Touchy(100), value.clone()),
        |map, _| _ = map.remove(&Touchy(100)),
        |map, _| _ = map.get(&Touchy(100)),
        |map, value| _ = map.get_or_insert(Touchy(101), value.clone()),
        |map, _| _ = map.update(Touchy(100), |_| None),
        |map, value| _ = map.try_insert(Touchy(101), value.clone()),
        |map, _| _ = map.range(Touchy(100)..Touchy(200)).count(),
    ];
    for operation in operations {
        for after in 0.. {
            PANICS_AFTER.set(after);
            let done = catch_unwind(AssertUnwindSafe(|| operation(&map, &alive))).is_ok();
            PANICS_AFTER.set(u32::MAX);
            if done {
                assert!(after > 5, "it compares");
                break;
            }
            assert!(map.read().keys().map(|key| key.0).eq((0..200).map(|key| 2 * key)));
        }
        map.insert(Touchy(100), alive.clone());
        map.remove(&Touchy(101));
        assert_eq!(map.len(), 200);
    }
    let retained =
        catch_unwind(AssertUnwindSafe(|| map.retain(|key, _| key.0 < 100 || panic_any("undecided"))));
    assert!(retained.is_err() && map.len() == 200);
    drop(map);
    global().barrier();
    assert_eq!(Arc::strong_count(&alive), 1);
}

/// A key that compares in a way which changes.
#[derive(Clone)]
struct Fickle(u32);

type Comparison = fn(&u32, &u32) -> Ordering;

std::thread_local! {
    static COMPARISON: core::cell::Cell<Comparison> = const { core::cell::Cell::new(u32::cmp) };
}

impl Ord for Fickle {
    fn cmp(&self, other: &Self) -> Ordering {
        COMPARISON.get()(&self.0, &other.0)
    }
}
impl PartialOrd for Fickle {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Fickle {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Fickle {}

/// Whatever comparisons answer, a walk that copies ends.
#[test]
fn walks_end_whatever_comparisons_answer() {
    let map: RcuTreeMap<Fickle, ()> = (0..200).map(|key| (Fickle(key), ())).collect();
    let comparisons: [Comparison; 6] = [
        |a, b| b.cmp(a),
        |_, _| Ordering::Less,
        |_, _| Ordering::Equal,
        |_, _| Ordering::Greater,
        |a, b| (a + 1).rem_euclid(3).cmp(&(b % 3)),
        |a, b| (a % 32).cmp(&(b % 32)),
    ];
    for (number, comparison) in comparisons.into_iter().enumerate() {
        COMPARISON.set(comparison);
        let (met, updates) = (map.iter_cloned().take(2000).count(), 300);
        assert!(met <= 201, "comparison {number}: a walk over 200 elements has met {met}");
        let mut walk = map.iter_cloned();
        let met = (0..10_000).take_while(|step| {
            if *step < updates {
                map.insert(Fickle(1000 + step), ());
            }
            walk.next().is_some()
        });
        assert!(met.count() < 10_000, "comparison {number}: a walk beside {updates} updates does not end");
        COMPARISON.set(u32::cmp);
        map.clear();
        (0..200).for_each(|key| _ = map.insert(Fickle(key), ()));
    }
}

/// A walk that copies meets all elements that come before it is there, one for each update.
#[test]
fn a_walk_that_copies_meets_what_comes() {
    let (map, end) = ((0..64).map(|key| (key, key)).collect::<RcuTreeMap<_, _>>(), 2000);
    let mut met = 0;
    for (key, _) in map.iter_cloned() {
        assert_eq!(key, met);
        met += 1;
        if key + 64 < end {
            map.insert(key + 64, key);
        }
        if key == 1000 {
            map.retain(|other, _| *other > key);
        }
    }
    assert_eq!(met, end);
}

/// A value whose destructor uses its map, and may panic. The map has a domain of its own, so no other test reclaims the value.
struct Guest {
    map: &'static Tree<RawTas<Native>, u32, Guest, 4>,
    number: u32,
    dropped: &'static AtomicUsize,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.dropped.fetch_add(1, Relaxed);
        let section = self.map.enter();
        assert!(self.map.snapshot(&section).find(&self.number).is_none(), "it is gone");
        drop(section);
        self.map.lock(&u32::MAX).remove();
        if self.number == 33 {
            panic_any("a destructor");
        }
    }
}

/// Destructors may use the map, from which they are gone; and all run, also if some of them panic.
#[test]
fn destructors_use_the_map_and_panic() {
    let domain: &'static RcuDomain<Native> = Box::leak(Box::new(RcuDomain::new()));
    domain.never_soon();
    let map: &'static Tree<RawTas<Native>, u32, Guest, 4> = Box::leak(Box::new(Tree::new(domain)));
    let dropped: &'static AtomicUsize = Box::leak(Box::default());
    for round in 0..3 {
        for number in 0..100 {
            let value = Guest { map, number, dropped };
            map.lock(&number).set(Box::new(growing::Node { key: number, value }));
        }
        // (What is removed is not reclaimed before `barrier`: a thread does that with each 512th object.)
        match round {
            0 => (0..100).for_each(|number| map.lock(&number).remove()),
            1 => map.clear(),
            _ => (0..100).for_each(|_| map.lock_end(true).remove()),
        }
        let panics = (0..11).filter(|_| catch_unwind(|| domain.barrier()).is_err()).count();
        assert_eq!((panics > 0, dropped.load(Relaxed)), (true, 100 * (round + 1)), "{panics}");
    }
}

/// Closures that run under the lock may read the map.
#[test]
fn closures_read_the_map() {
    let map = RcuTreeMap::from([(1, 1)]);
    assert_eq!(*map.get_or_insert_with(2, || map.len() as u32 + *map.first().unwrap()), 2);
    assert_eq!(
        map.update(1, |_| map.get(&2).map(|two| *two + map.read().values().sum::<u32>())).as_deref(),
        Some(&5)
    );
    assert!(map.remove_if(&1, |key, value| map.read().get_key_value(key) == Some((&1, value))).is_some());
}

/// An owned map that is taken apart half way, and one that ends, drop each element once, also if destructors panic.
#[test]
fn each_element_is_dropped_once() {
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    struct Counted(u32);
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPPED.fetch_add(1, Relaxed);
            if self.0 == 500 {
                panic_any("a destructor");
            }
        }
    }
    let make = || (0..1000).map(|key| (key, Counted(key))).collect::<RcuTreeMap<u32, Counted>>();
    assert!(catch_unwind(|| drop(make())).is_err());
    assert_eq!(DROPPED.load(Relaxed), 1000);
    let mut half = make().into_iter();
    assert_eq!((half.by_ref().take(300).count(), half.len()), (300, 700));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(half))).is_err());
    assert_eq!(DROPPED.load(Relaxed), 2000);
    // Of two elements with one key, the last stays.
    let last: RcuTreeMap<u32, u32> = [(2, 1), (1, 2), (2, 3), (2, 4)].into_iter().collect();
    assert_eq!(std::format!("{last:?}"), "{1: 2, 2: 4}");
}

/// What is removed is reclaimed, and what a forgotten reader has is not.
#[test]
fn memory_comes_back() {
    let domain: &'static RcuDomain<Native> = Box::leak(Box::new(RcuDomain::new()));
    let (tree, alive) = (Small::new(domain), Arc::new(()));
    let set = |key| tree.lock(&key).set(Box::new(growing::Node { key, value: alive.clone() }));
    (0..100).for_each(set);
    let section = tree.enter();
    let snapshot = tree.snapshot(&section);
    (0..100).for_each(set);
    (50..100).for_each(|key| tree.lock(&key).remove());
    assert_eq!(Arc::strong_count(&alive), 1 + 200);
    // With at least three pages for each of these updates.
    assert!(domain.garbage().bytes >= 150 * 3 * 64, "{:?}", domain.garbage());
    assert!(snapshot.walk(0, 1000).map(|node| node.key).eq(0..100));
    drop(section);
    domain.barrier();
    assert_eq!((Arc::strong_count(&alive), domain.garbage().bytes), (1 + 50, 0));
    let section = tree.enter();
    tree.clear();
    assert!(domain.garbage().bytes > 50 * 16, "counted as what it is");
    drop(section);
    domain.barrier();
    assert_eq!(Arc::strong_count(&alive), 1);
}

#[cfg(feature = "serde")]
#[test]
fn a_map_and_a_set_survive_a_round_trip() {
    let map: RcuTreeMap<u32, u32> = (0..100).map(|i| (i, 2 * i)).collect();
    let text = serde_json::to_string(&map).unwrap();
    assert!(text.starts_with("{\"0\":0,\"1\":2,"), "in order: {text}");
    assert!(serde_json::from_str::<RcuTreeMap<u32, u32>>(&text).unwrap() == map);
    assert!(serde_json::from_str::<RcuTreeMap<u32, u32>>("[1]").is_err());
    let set = RcuTreeSet::from([3, 1, 2]);
    let text = serde_json::to_string(&set).unwrap();
    assert_eq!(text, "[1,2,3]", "in order");
    assert!(serde_json::from_str::<RcuTreeSet<u32>>(&text).unwrap() == set);
    assert!(serde_json::from_str::<RcuTreeSet<u32>>("{\"1\": 1}").is_err());
}

/// A set beside std's, by operations that chance chooses. A reading stays as it was.
#[test]
fn sets_are_as_std_has_them() {
    let mut random = Random(7);
    let (set, mut model) = (RcuTreeSet::new(), std::collections::BTreeSet::new());
    for _ in 0..5000 {
        let value = random.below(200);
        let (reading, before) = (set.read(), model.clone());
        match random.below(8) {
            0..=3 => assert_eq!(set.insert(value), model.insert(value)),
            4 => assert_eq!(set.remove(&value), model.remove(&value)),
            5 => assert_eq!(set.take(&value).map(|found| *found), model.take(&value)),
            6 if value < 20 => assert_eq!(set.pop_first().as_deref().copied(), model.pop_first()),
            6 if value < 40 => assert_eq!(set.pop_last().as_deref().copied(), model.pop_last()),
            7 if value == 0 => {
                set.retain(|element| element % 2 == 0);
                model.retain(|element| element % 2 == 0);
            }
            _ => assert_eq!(set.contains(&value), model.contains(&value)),
        }
        assert!(reading.iter().eq(&before) && reading.len() == before.len());
        assert_eq!(set.get(&value).is_some(), model.contains(&value));
        assert!(set.range(value..).map(|element| *element).eq(model.range(value..).copied()));
        assert_eq!((set.first().as_deref(), set.last().as_deref()), (model.first(), model.last()));
    }
    assert_eq!(std::format!("{set:?}"), std::format!("{model:?}"));
    assert!(set == set.clone() && set == model.iter().copied().collect() && set != RcuTreeSet::from([1000]));
    assert!(set.into_iter().eq(model));
}

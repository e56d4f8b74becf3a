//! The ordered map.

use super::*;
use latchwork::map::Comparable;
use std::cmp::Ordering as Order;
use std::ops::Bound;

/// A key that lies: no two comparisons agree, and some panic.
#[derive(Clone)]
struct Liar(Vec<u8>);

/// How often a key has been compared.
static ASKED: AtomicU64 = AtomicU64::new(0);

impl Ord for Liar {
    fn cmp(&self, other: &Self) -> Order {
        assert_eq!((self.0.len(), other.0.len()), (20, 20));
        let asked = ASKED.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        assert!(!asked.is_multiple_of(61), "a comparison panics");
        [Order::Less, Order::Greater, Order::Less, Order::Greater, Order::Equal][asked as usize % 5]
    }
}
impl PartialOrd for Liar {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Liar {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}
impl Eq for Liar {}

/// What lies for other keys.
struct Anything;

impl latchwork::map::Equivalent<String> for Anything {
    fn equivalent(&self, key: &String) -> bool {
        key.len() < 100
    }
}
impl Comparable<String> for Anything {
    fn compare(&self, key: &String) -> Order {
        if ASKED.fetch_add(1, Relaxed).is_multiple_of(2) { Order::Less } else { key.as_str().cmp("5") }
    }
}

/// A set of keys that lie.
fn set() {
    let (set, key) = (RcuTreeSet::<Liar>::new(), Liar(vec![1; 20]));
    let is_whole = |found: &Liar| assert_eq!(found.0.len(), 20);
    for round in 0..200 {
        refused(|| _ = set.insert(key.clone()));
        refused(|| _ = set.get(&key).map(|found| is_whole(&found)));
        refused(|| _ = set.contains(&key) == set.read().contains(&key));
        refused(|| _ = set.read().get(&key).map(is_whole));
        refused(|| set.read().range::<Liar, _>(&key..).rev().for_each(is_whole));
        refused(|| set.range::<Liar, _>(..&key).for_each(|found| is_whole(&found)));
        if round % 3 == 0 {
            refused(|| _ = set.remove(&key));
            refused(|| _ = set.take(&key).map(|found| is_whole(&found)));
            refused(|| _ = set.pop_first().zip(set.pop_last()));
        }
        if round % 50 == 0 {
            refused(|| set.retain(|_| panic!("undecided")));
        }
    }
    let reading = set.read();
    assert_eq!(reading.is_empty(), reading.first().or(reading.last()).is_none());
    assert_eq!((reading.len(), set.len()), (set.as_map().len(), reading.iter().count()));
    assert!(
        set.iter().next_back().is_none() == set.is_empty() && set.first().is_some() == set.last().is_some()
    );
    set.clear();
    reading.iter().for_each(is_whole);
    drop(reading);
    drop(set.into_iter().next());
}

pub fn keys() {
    let map = RcuTreeMap::<Liar, Vec<u64>>::new();
    for round in 0..600 {
        let (key, value) = (Liar(vec![1; 20]), || vec![round; 9]);
        let is_whole = |value: &Vec<u64>| assert_eq!(value.len(), 9);
        refused(|| _ = map.insert(key.clone(), value()));
        refused(|| _ = map.replace(key.clone(), value()).map(|old| is_whole(&old)));
        refused(|| _ = map.get(&key).map(|value| assert_eq!((value.len(), value.key().0.len()), (9, 20))));
        refused(|| _ = map.contains_key(&key) == map.read().contains_key(&key));
        refused(|| _ = map.update(key.clone(), |value| value.cloned()));
        refused(|| _ = map.update(key.clone(), |_| panic!("no new value")));
        refused(|| _ = map.try_insert(key.clone(), value()).map_err(|error| is_whole(&error.value)));
        refused(|| is_whole(&map.get_or_insert(key.clone(), value())));
        refused(|| _ = map.get_or_insert_with(key.clone(), || panic!("no value")).pair());
        refused(|| _ = map.remove_if(&key, |_, value| value[0] == 8));
        refused(|| _ = map.remove_if(&key, |_, _| panic!("undecided")));
        refused(|| _ = map.read().get(&key).map(is_whole));
        refused(|| _ = map.read().get_key_value(&key));
        refused(|| {
            let reading = map.read();
            let walk = reading.range::<Liar, _>((Bound::Excluded(&key), Bound::Included(&key)));
            walk.rev().for_each(|(key, value)| assert_eq!((key.0.len(), value.len()), (20, 9)));
            reading.range::<Liar, _>(&key..&key).nth(usize::MAX);
        });
        refused(|| map.range::<Liar, _>(&key..).for_each(|value| is_whole(&value)));
        if round % 3 == 0 {
            refused(|| _ = map.remove(&key));
            refused(|| _ = map.remove_entry(&key).map(|value| is_whole(&value)));
            refused(|| _ = map.pop_first().zip(map.pop_last()));
        }
        if round % 100 == 0 {
            refused(|| map.retain(|_, value| value[0] % 2 == 0));
            refused(|| map.retain(|_, _| panic!("undecided")));
            refused(|| _ = map.iter_cloned().count());
        }
    }
    let reading = map.read();
    assert_eq!((reading.keys().count(), reading.values().rev().count()), (reading.len(), reading.len()));
    assert_eq!(reading.is_empty(), reading.first_key_value().or(reading.last_key_value()).is_none());
    assert!(
        map.iter().all(|value| value.len() == 9) && map.is_empty() == map.first().or(map.last()).is_none()
    );
    refused(|| drop(map.clone().into_iter().next()));
    refused(|| _ = map == map.clone());
    map.clear();
    assert!(reading.iter().all(|(key, value)| (key.0.len(), value.len()) == (20, 9)));
    drop(reading);
    refused(|| drop((0..100).map(|_| (Liar(vec![1; 20]), vec![1])).collect::<RcuTreeMap<_, _>>()));
    set();
    // A lookup type that lies.
    let map: RcuTreeMap<String, u32> = (0..200).map(|number| (number.to_string(), number)).collect();
    for _ in 0..100 {
        _ = (map.get(&Anything).is_some(), map.remove(&Anything), map.range(Anything..Anything).count());
    }
}

pub fn trees() {
    type Numbers = Tree<RawShfl<Native>, u64, Vec<u8>, 4>;
    let domain: &'static RcuDomain<Native> = Box::leak(Box::new(RcuDomain::new_in()));
    let node = |key| Box::new(Node { key, value: vec![7; 30] });
    let mut tree = Numbers::new(domain);
    // A guard of another domain is a section as well.
    let other = RcuDomain::<Native>::new_in();
    let guard = other.enter();
    for key in 0..100 {
        let slot = tree.lock(&key);
        assert!(slot.node().is_none() && slot.protected(&guard).is_none());
        slot.set(node(key));
    }
    // A slot may be given another key than that which it is of.
    tree.lock(&7).set(node(1007));
    let snapshot = tree.snapshot(&guard);
    assert!(snapshot.find(&7).is_none() && snapshot.count() == 100);
    assert!(
        snapshot.rank(&1000, true) <= 100 && snapshot.at(100).is_none() && snapshot.at(usize::MAX).is_none()
    );
    assert_eq!(snapshot.walk(5, 3).len() + snapshot.walk(usize::MAX, 0).len(), 0);
    assert_eq!(snapshot.range(&(Bound::Included(90), Bound::Excluded(10))).count(), 0);
    let seen = snapshot.find(&1).unwrap();
    assert!(tree.remove_found(&guard, seen) && !tree.remove_found(&guard, seen));
    tree.lock_end(true).set(node(3));
    tree.lock_end(false).remove();
    let unlinked = node(5);
    assert!(!tree.remove_found(&guard, &unlinked));
    tree.clear();
    tree.clear();
    tree.lock_end(true).remove();
    tree.lock_end(false).set(node(9));
    assert_eq!((seen.value.len(), snapshot.walk(0, 200).count()), (30, 100));
    drop(guard);
    assert!(tree.updates() > 0);
    tree.throttle();
    // Elements that are not sorted, and a tree that is not empty.
    tree.fill((0..50).map(|key| node(key * 77 % 50)).collect());
    assert_eq!(tree.snapshot(&tree.enter()).count(), 50);
    assert_eq!(tree.drain().take(20).count(), 20);
    forget(tree.lock(&3));
    // The lock is held for ever. The tree may still be dropped.
    drop(tree);
    domain.barrier();
}

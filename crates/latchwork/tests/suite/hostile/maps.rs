//! Maps.

use super::*;

/// A key that lies: no two comparisons agree, nor two hashes, and some panic.
#[derive(Clone)]
struct Liar(Vec<u8>);

/// How often a key has been compared or hashed.
static ASKED: AtomicU64 = AtomicU64::new(0);

fn asked() -> u64 {
    let asked = ASKED.fetch_add(1, Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    assert!(!asked.is_multiple_of(31), "a comparison panics");
    asked
}

impl PartialEq for Liar {
    fn eq(&self, other: &Self) -> bool {
        assert_eq!((self.0.len(), other.0.len()), (20, 20));
        asked().is_multiple_of(2)
    }
}
impl Eq for Liar {}
impl Hash for Liar {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (asked() % 3).hash(state);
    }
}

/// A hasher that puts everything into one place.
struct Same;
impl BuildHasher for Same {
    type Hasher = Same;
    fn build_hasher(&self) -> Same {
        Same
    }
}
impl Hasher for Same {
    fn finish(&self) -> u64 {
        u64::MAX
    }
    fn write(&mut self, _: &[u8]) {}
}

pub fn keys() {
    let map = RcuMap::<Liar, Vec<u64>>::new();
    for round in 0..300 {
        let key = Liar(vec![1; 20]);
        refused(|| _ = map.replace(key.clone(), vec![round; 9]).map(|value| assert_eq!(value.len(), 9)));
        refused(|| _ = map.insert(key.clone(), vec![round; 9]));
        refused(|| _ = map.get(&key).map(|value| assert_eq!((value.len(), value.key().0.len()), (9, 20))));
        refused(|| _ = map.update(key.clone(), |value| value.cloned()));
        refused(|| _ = map.update(key.clone(), |_| panic!("no new value")));
        refused(|| _ = map.get_or_insert_with(key.clone(), || vec![round; 9]));
        refused(|| _ = map.remove(&key));
        refused(|| _ = map.remove_entry(&key).map(|value| assert_eq!(value.len(), 9)));
        refused(|| _ = map.contains_key(&key) == map.read().contains_key(&key));
        let value = || vec![round; 9];
        refused(|| {
            _ = map.try_insert(key.clone(), value()).map_err(|error| assert_eq!(error.value.len(), 9))
        });
        refused(|| _ = map.get_or_insert(key.clone(), value()).pair());
        refused(|| _ = map.get_or_insert_with(key.clone(), || panic!("no value")).value());
        refused(|| _ = map.alter(&key, |value| value.clone()));
        refused(|| _ = map.alter(&key, |_| panic!("no new value")));
        refused(|| _ = map.insert_or_update(key.clone(), value(), |value| value.clone()));
        refused(|| _ = map.compute(key.clone(), |_| Operation::<_, ()>::Insert(value())));
        refused(|| _ = map.compute(key.clone(), |_| Operation::<_, ()>::Remove));
        refused(|| _ = map.compute::<()>(key.clone(), |_| panic!("undecided")));
        refused(|| _ = map.remove_if(&key, |_, value| value.len() == 8));
        refused(|| _ = map.remove_if(&key, |_, _| panic!("undecided")));
        refused(|| match map.entry(key.clone()) {
            Entry::Vacant(entry) if round % 2 == 0 => {
                assert!(entry.key().0.len() == entry.into_key().0.len())
            }
            Entry::Vacant(entry) => _ = entry.insert(value()),
            Entry::Occupied(mut entry) => {
                (0..3).for_each(|_| entry.insert(value()));
                assert_eq!((entry.get().len(), entry.key().0.len()), (9, 20));
                match round % 3 {
                    0 => entry.remove(),
                    1 => drop(entry.remove_entry()),
                    _ => drop(entry.get_ref()),
                }
            }
        });
        refused(|| drop(map.entry(key.clone()).and_modify(|value| value.clone()).or_insert(value())));
        refused(|| drop(map.entry(key.clone()).and_modify(|_| panic!("no value")).or_default()));
        refused(|| drop(map.entry(key.clone()).or_insert_with(|| panic!("no value"))));
        refused(|| drop(map.entry(key.clone()).or_insert_with_key(|key| vec![key.0.len() as u64; 9])));
        refused(|| drop(map.entry(key.clone()).insert_entry(value())));
        // The entries' own locks have been released, whatever panicked.
        if round % 50 == 0 {
            refused(|| map.retain(|_, value| value[0] % 2 == 0));
            refused(|| map.retain(|_, _| panic!("undecided")));
            refused(|| map.shrink_to_fit());
        }
    }
    let reading = map.read();
    _ = (reading.keys().count(), reading.values().count());
    refused(|| _ = reading.get_key_value(&Liar(vec![1; 20])));
    refused(|| _ = (map.iter().count(), map.iter_cloned().count()));
    refused(|| drop(map.iter().collect::<Vec<_>>()));
    refused(|| map.clear());
    assert!(reading.iter().all(|(key, value)| (key.0.len(), value.len()) == (20, 9)));
    drop(reading);
    _ = (map.len(), map.is_empty(), map.statistics(), map.hasher());
    refused(|| drop(map.clone()));
    let mut map = map;
    refused(|| _ = map.get_mut(&Liar(vec![1; 20])).map(|value| value.clear()));
    drop(map.into_iter().next());
    let map = RcuMap::<u64, String, Same>::with_capacity_and_hasher(0, Same);
    (0..300).for_each(|key| _ = map.insert(key, key.to_string()));
    assert!(map.len() == 300 && map.get(&299).as_deref().map(String::as_str) == Some("299"));
    // (Sizes that are too large are refused below. Here it depends on the number of processors which sizes are.)
    map.reserve(1000);
    assert!(RcuMap::<u64, u64>::with_capacity(1000).capacity() >= 1000);
    map.clear();
    map.shrink_to_fit();
    drop(map);
    borrowed();
    sets();
    global().barrier();
}

/// Sets of keys that lie.
fn sets() {
    let set = RcuSet::<Liar>::with_capacity(10);
    for _ in 0..100 {
        let key = Liar(vec![1; 20]);
        refused(|| _ = set.insert(key.clone()));
        refused(|| _ = set.get(&key).map(|found| assert_eq!(found.0.len(), 20)));
        refused(|| _ = set.contains(&key) == set.read().contains(&key));
        refused(|| _ = set.read().get(&key));
        refused(|| _ = set.remove(&key));
        refused(|| _ = set.take(&key).map(|found| assert_eq!(found.0.len(), 20)));
        refused(|| set.retain(|_| asked().is_multiple_of(2)));
    }
    let other = RcuSet::with_hasher(RandomState::new());
    refused(|| _ = (set.is_subset(&other), set.is_superset(&other), set.is_disjoint(&other)));
    refused(|| _ = (set.iter().count(), set.iter_cloned().count(), set.read().iter().count()));
    _ = (set.len(), set.is_empty(), set.capacity(), set.statistics(), set.hasher(), set.as_map().len());
    refused(|| set.clear());
    drop(set.into_iter().next());
    drop((other, RcuSet::<u64>::new(), RcuSet::<u64, Same>::with_capacity_and_hasher(3, Same)));
}

/// A key whose hash differs from that of what it is borrowed as.
fn borrowed() {
    #[derive(PartialEq, Eq, Hash)]
    struct Key(u64, String);
    impl Borrow<str> for Key {
        fn borrow(&self) -> &str {
            &self.1
        }
    }
    let map = RcuMap::new();
    (0..99).for_each(|key| _ = map.insert(Key(key, key.to_string()), vec![key]));
    assert!((0..99).all(|key: u64| map.get(key.to_string().as_str()).is_none_or(|value| value[0] == key)));
}

pub fn drops() {
    // Values that read the map while they are dropped.
    static MAP: std::sync::OnceLock<RcuMap<u64, Nosy>> = std::sync::OnceLock::new();
    struct Nosy(Vec<u8>);
    impl Drop for Nosy {
        fn drop(&mut self) {
            let map = MAP.get().unwrap();
            assert!(self.0.len() == 30 && map.get(&0).is_none_or(|other| other.0.len() == 30));
            _ = map.iter_len();
        }
    }
    trait IterLen {
        fn iter_len(&self) -> usize;
    }
    impl IterLen for RcuMap<u64, Nosy> {
        fn iter_len(&self) -> usize {
            self.read().iter().count()
        }
    }
    let map = MAP.get_or_init(RcuMap::new);
    for round in 0..200 {
        map.insert(round % 5, Nosy(vec![0; 30]));
        let kept = map.get(&(round % 5));
        map.remove(&(round % 5));
        assert_eq!(kept.map(|kept| kept.0.len()), Some(30));
    }
    global().barrier();
}

pub fn growing() {
    type Growing64<S> = Growing<RawShfl<Native>, u64, Vec<u8>, S>;
    let domain: &'static RcuDomain<Native> = Box::leak(Box::new(RcuDomain::new_in()));
    let count = |first, most| Count { first, most };
    assert!(refused(|| drop(Growing64::new(domain, count(3, 8), 0, RandomState::new()))));
    assert!(refused(|| drop(Growing64::new(domain, count(1, 0), 0, RandomState::new()))));
    assert!(refused(|| drop(Growing64::new(domain, count(2, 1), 0, RandomState::new()))));
    assert!(refused(|| drop(Growing64::new(domain, count(1, 1), usize::MAX, RandomState::new()))));
    let table = Growing64::new(domain, count(1, 4), 0, Same);
    // A guard of another domain is a section as well.
    let other = RcuDomain::<Native>::new_in();
    let guard = other.enter();
    for key in 0..100 {
        let mut slot = table.lock(&key);
        assert!(slot.node().is_none() && slot.as_ptr().is_none());
        slot.set(key, vec![7; 30]);
        assert!(slot.protected(&guard).is_some_and(|node| node.key == key) && slot.as_ptr().is_some());
    }
    // A slot may be given another key than that which it is of.
    table.lock_around(&7).set(1007, vec![7; 30]);
    let seen = table.find(&guard, &1).unwrap();
    table.split_all();
    table.split_of(&9);
    assert!(table.remove_found(&guard, seen) && !table.remove_found(&guard, seen));
    let other = Growing64::new(domain, count(1, 1), 0, Same);
    assert!(!other.remove_found(&guard, seen) && table.find(&guard, &1).is_none());
    let mut slot = table.lock(&2);
    slot.remove();
    slot.remove();
    slot.set(2, vec![7; 30]);
    drop(slot);
    table.fit(0, true);
    assert!(refused(|| table.fit(usize::MAX, false)));
    for begin in [0, 1, u64::MAX] {
        let (bucket, _) = table.bucket(&guard, begin);
        assert!(bucket.count() <= 99);
    }
    assert_eq!((seen.value.len(), table.count(), table.iter(&guard).count()), (30, 99, 99));
    assert!(table.parts_list().fullest <= 99 && table.hasher().hash_one(1) == u64::MAX);
    table.clear();
    assert_eq!((table.count(), table.iter(&guard).count()), (0, 0));
    drop(guard);
    table.throttle();
    _ = (table.capacity(), table.enter());
    drop(table);
    domain.barrier();
}

pub fn arrays() {
    assert!(Array::new(0, |_| 7).is_empty());
    assert!(refused(|| drop(Array::new(usize::MAX, |_| 7))));
    assert!(refused(|| drop(Array::new(9, |at| [7, 7, 7][at]))));
    let array = Array::new(3, |at| vec![at; 9]);
    assert!(refused(|| _ = array.pointer(3)));
    assert_eq!((array[2].len(), array.pointer(2).cast_const()), (9, &raw const array[2]));
    // SAFETY: `into_first` is the array's own.
    drop(unsafe { Array::from_first(array.into_first(), 3) });
}

pub fn forgotten() {
    let map = RcuMap::from([(1, vec![1; 40])]);
    forget(map.iter());
    forget(map.iter_cloned());
    // The elements of a map whose iterator is forgotten are leaked, and nothing else.
    forget(RcuMap::from([(1, vec![1; 40])]).into_iter());
    // A shard whose entry is forgotten stays locked for ever; readers go on.
    let stuck = RcuMap::from([(1, vec![1; 40])]);
    forget(stuck.entry(1));
    assert_eq!(stuck.get(&1).map(|value| value.len()), Some(40));
    drop(stuck);
    forget(map.get(&1));
    forget(map.read());
    map.insert(1, vec![2; 40]);
    map.clear();
    drop(map);
}

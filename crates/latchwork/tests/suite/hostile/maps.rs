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
        refused(|| _ = map.insert(key.clone(), vec![round; 9]).map(|value| assert_eq!(value.len(), 9)));
        refused(|| _ = map.get(&key).map(|value| assert_eq!((value.len(), value.key().0.len()), (9, 20))));
        refused(|| _ = map.update(key.clone(), |value| value.cloned()));
        refused(|| _ = map.update(key.clone(), |_| panic!("no new value")));
        refused(|| _ = map.get_or_insert_with(key.clone(), || vec![round; 9]));
        refused(|| _ = map.remove(&key).map(|value| assert_eq!(value.len(), 9)));
        refused(|| _ = map.contains_key(&key) == map.read().contains_key(&key));
        if round % 50 == 0 {
            refused(|| map.retain(|_, value| value[0] % 2 == 0));
            refused(|| map.retain(|_, _| panic!("undecided")));
            refused(|| map.shrink_to_fit());
        }
    }
    let reading = map.read();
    refused(|| map.clear());
    assert!(reading.iter().all(|(key, value)| (key.0.len(), value.len()) == (20, 9)));
    drop(reading);
    _ = (map.len(), map.is_empty());
    drop(map);
    let map = RcuMap::<u64, String, Same>::with_capacity_and_hasher(0, Same);
    (0..300).for_each(|key| drop(map.insert(key, key.to_string())));
    assert!(map.len() == 300 && map.get(&299).as_deref().map(String::as_str) == Some("299"));
    // (Sizes that are too large are refused below. Here it depends on the number of processors which sizes are.)
    map.reserve(1000);
    assert!(RcuMap::<u64, u64>::with_capacity(1000).capacity() >= 1000);
    map.clear();
    map.shrink_to_fit();
    drop(map);
    borrowed();
    global().barrier();
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
    (0..99).for_each(|key| drop(map.insert(Key(key, key.to_string()), vec![key])));
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
    assert!(refused(|| drop(Growing64::new(domain, 3, 0, RandomState::new()))));
    assert!(refused(|| drop(Growing64::new(domain, 0, 0, RandomState::new()))));
    assert!(refused(|| drop(Growing64::new(domain, 1, usize::MAX, RandomState::new()))));
    let table = Growing64::new(domain, 1, 0, Same);
    // A guard of another domain is a section as well.
    let other = RcuDomain::<Native>::new_in();
    let guard = other.enter();
    for key in 0..100 {
        let changed = table.set(&guard, key, |_| Change::Set(vec![7; 30]));
        assert!(changed.before.is_none() && changed.after.is_some_and(|node| node.key == key));
    }
    assert!(refused(|| _ = table.set(&guard, 1, |_| panic!("undecided"))));
    let seen = table.find(&guard, &1).unwrap();
    assert!(table.remove(&guard, &1, |node| node.key == 1).is_some() && table.find(&guard, &1).is_none());
    assert!(table.remove(&guard, &2, |_| false).is_none());
    assert!(table.set(&guard, 1, |_| Change::Remove).after.is_none());
    assert!(table.set(&guard, 2, |_| Change::Keep).before.is_some());
    table.fit(0, true);
    assert!(refused(|| table.fit(usize::MAX, false)) || cfg!(not(debug_assertions)));
    assert_eq!((seen.value.len(), table.count(), table.iter(&guard).count()), (30, 99, 99));
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
    forget(map.get(&1));
    forget(map.read());
    map.insert(1, vec![2; 40]);
    map.clear();
    drop(map);
}

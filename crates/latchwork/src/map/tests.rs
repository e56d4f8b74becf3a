//! [`RcuMap`] against a plain map, alone and with others.

use super::*;
use std::collections::HashMap;
use std::vec::Vec;

/// A generator of numbers (Vigna's splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
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
            0 | 1 => assert_eq!(map.insert(key, step).as_deref(), model.insert(key, step).as_ref()),
            2 => assert_eq!(map.remove(&key).as_deref(), model.remove(&key).as_ref()),
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
                        assert!(map.insert(*key, round).is_none());
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
                        assert_eq!(map.remove(key).as_deref(), Some(&(round + 1)));
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

//! Arbitrary operations on an [`RcuMap`] beside a `std` map; and threads that keep a ledger. A twin that is broken on
//! purpose must be found by each.

use super::*;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::vec::Vec;

use super::tests::Random;

/// A hasher with few hashes, so that buckets are full and tags are the same.
#[derive(Clone, Default)]
struct Crowded(u64);

impl BuildHasher for Crowded {
    type Hasher = Crowded;
    fn build_hasher(&self) -> Crowded {
        Crowded(0)
    }
}

impl Hasher for Crowded {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |sum, byte| sum * 31 + u64::from(*byte)) % 5;
    }
    fn finish(&self) -> u64 {
        self.0 << 62 | self.0
    }
}

/// What the twin does wrong.
#[derive(Copy, Clone, PartialEq)]
enum Twin {
    Sound,
    /// Loses one removal in 50.
    Forgets,
    /// Its conditional removal does not look at the value.
    Hasty,
}

/// Does `steps` operations, chosen by `seed`, on a map and on the model; panics if they differ.
fn fuzz<S: BuildHasher + Clone>(hasher: S, seed: u64, steps: u64, twin: Twin) {
    let (mut random, mut model) = (Random(seed), HashMap::<u64, u64>::new());
    let mut map = RcuMap::<u64, u64, S>::with_hasher(hasher.clone());
    let keys = [4, 60, 2000][seed as usize % 3];
    for step in 0..steps {
        let key = random.below(keys);
        match random.below(24) {
            0 | 1 => assert_eq!(map.insert(key, step), model.insert(key, step).is_none()),
            2 => assert_eq!(map.replace(key, step).as_deref(), model.insert(key, step).as_ref()),
            3 if twin == Twin::Forgets && random.below(50) == 0 => _ = model.remove(&key),
            3 => assert_eq!(map.remove(&key), model.remove(&key).is_some()),
            4 => assert_eq!(map.remove_entry(&key).as_deref(), model.remove(&key).as_ref()),
            5 => {
                let even = |value: &u64| value.is_multiple_of(2) || twin == Twin::Hasty;
                let wanted = model.get(&key).is_some_and(|value| value % 2 == 0);
                assert_eq!(map.remove_if(&key, |_, value| even(value)).is_some(), wanted);
                model.retain(|found, _| *found != key || !wanted);
            }
            6 => match map.try_insert(key, step) {
                Ok(new) => assert_eq!((*new, model.insert(key, step)), (step, None)),
                Err(error) => assert_eq!((Some(&*error.current), error.value), (model.get(&key), step)),
            },
            7 => assert_eq!(*map.get_or_insert(key, step), *model.entry(key).or_insert(step)),
            8 => {
                let value = *model.entry(key).and_modify(|value| *value += 7).or_insert(step);
                assert_eq!(*map.insert_or_update(key, step, |value| value + 7), value);
            }
            9 => {
                let value = model.get_mut(&key).map(|value| {
                    *value += 3;
                    *value
                });
                assert_eq!(map.alter(&key, |value| value + 3).as_deref().copied(), value);
            }
            10 => {
                let done = map.compute(key, |found| match found {
                    None => Operation::Insert(step),
                    Some((_, value)) if value % 3 == 0 => Operation::Remove,
                    Some((_, value)) if value % 3 == 1 => Operation::Insert(value + 1),
                    Some((_, value)) => Operation::Abort(*value),
                });
                match (model.get(&key).copied(), done) {
                    (None, Compute::Inserted(new)) => {
                        assert_eq!((*new, model.insert(key, step)), (step, None))
                    }
                    (Some(value), Compute::Removed(old)) if value % 3 == 0 => {
                        assert_eq!((old.as_deref(), model.remove(&key)), (Some(&value), Some(value)));
                    }
                    (Some(value), Compute::Updated { old, new }) if value % 3 == 1 => {
                        assert_eq!((*old, *new), (value, value + 1));
                        model.insert(key, value + 1);
                    }
                    (Some(value), Compute::Aborted(seen)) => assert_eq!((value, value % 3), (seen, 2)),
                    (before, done) => panic!("{before:?} became {done:?}"),
                }
            }
            11 => match map.entry(key) {
                Entry::Vacant(entry) if step % 2 == 0 => {
                    assert_eq!((*entry.key(), model.get(&key)), (key, None))
                }
                Entry::Vacant(entry) => {
                    assert_eq!((*entry.insert(step), model.insert(key, step)), (step, None))
                }
                Entry::Occupied(mut entry) if step % 3 > 0 => {
                    assert_eq!(Some(entry.get()), model.get(&key));
                    (step..step + 3).for_each(|value| entry.insert(value));
                    model.insert(key, step + 2);
                    assert_eq!(*entry.get_ref(), step + 2);
                }
                Entry::Occupied(entry) => assert_eq!(Some(*entry.remove_entry()), model.remove(&key)),
            },
            12 => {
                let value = *model.entry(key).and_modify(|value| *value += 1).or_default();
                assert_eq!(*map.entry(key).and_modify(|value| value + 1).or_default(), value);
            }
            13 => match (map.get_mut(&key), model.get_mut(&key)) {
                (Some(one), Some(other)) => (*one, *other) = (*one + 1, *other + 1),
                (one, other) => assert_eq!(one, other),
            },
            14 if random.below(100) == 0 => {
                let third = random.below(3);
                map.retain(|key, _| key % 3 != third);
                model.retain(|key, _| key % 3 != third);
            }
            15 if random.below(300) == 0 => {
                map.clear();
                model.clear();
            }
            16 if random.below(50) == 0 => map.shrink_to_fit(),
            17 if random.below(100) == 0 => map.reserve(random.below(500) as usize),
            18 if random.below(100) == 0 => map.table.split_all(),
            19 if random.below(100) == 0 => assert!(map.clone() == map),
            20 if random.below(100) == 0 => {
                let elements: HashMap<u64, u64> = map.into_iter().collect();
                assert_eq!(elements, model);
                map = RcuMap::with_capacity_and_hasher(random.below(100) as usize, hasher.clone());
                map.extend(elements);
            }
            _ => assert_eq!(map.get(&key).as_deref(), model.get(&key)),
        }
        assert_eq!(map.len(), model.len());
        if step % 500 == 0 {
            let mut walks = [Vec::new(), Vec::new(), Vec::new()];
            walks[0].extend(map.read().iter().map(|(key, value)| (*key, *value)));
            walks[1].extend(map.iter().map(|element| (*element.key(), *element)));
            walks[2].extend(map.iter_cloned());
            for walk in walks {
                assert_eq!(walk.len(), model.len(), "each once");
                assert_eq!(walk.into_iter().collect::<HashMap<_, _>>(), model);
            }
        }
    }
}

#[test]
fn arbitrary_operations_do_what_those_of_std_do() {
    for seed in 0..6 {
        fuzz(RandomState::new(), seed, 6000, Twin::Sound);
        fuzz(Crowded(0), seed, 2000, Twin::Sound);
    }
}

#[test]
fn broken_twins_are_found_by_arbitrary_operations() {
    for twin in [Twin::Forgets, Twin::Hasty] {
        let run = || fuzz(RandomState::new(), 1, 20_000, twin);
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err(), "not found");
    }
}

/// Accounts that threads move money between, one account at a time, each by an operation that is atomic for a key.
trait Ledger: Sync {
    /// Adds to an account; opens it, or closes it at 0.
    fn add(&self, account: u64, amount: i64);
    /// Empties an account; returns what it had.
    fn take(&self, account: u64) -> i64;
    /// What is in all accounts.
    fn sum(&self) -> i64;
}

impl Ledger for RcuMap<u64, i64> {
    fn add(&self, account: u64, amount: i64) {
        match account % 3 {
            0 => _ = self.update(account, |sum| Some(sum.unwrap_or(&0) + amount).filter(|sum| *sum != 0)),
            1 => _ = self.insert_or_update(account, amount, |sum| sum + amount),
            _ => _ = self.entry(account).and_modify(|sum| sum + amount).or_insert(amount),
        }
    }
    fn take(&self, account: u64) -> i64 {
        self.remove_entry(&account).map_or(0, |sum| *sum)
    }
    fn sum(&self) -> i64 {
        self.read().values().sum()
    }
}

/// Reads and sets in two steps.
struct Torn(RcuMap<u64, i64>);

impl Ledger for Torn {
    fn add(&self, account: u64, amount: i64) {
        let sum = self.0.get(&account).map_or(0, |sum| *sum);
        std::thread::yield_now();
        self.0.insert(account, sum + amount);
    }
    fn take(&self, account: u64) -> i64 {
        self.0.take(account)
    }
    fn sum(&self) -> i64 {
        self.0.sum()
    }
}

/// Threads move money for a while. Returns what there is too much or too little in the end.
fn books(ledger: &dyn Ledger, rounds: u64) -> i64 {
    let paid: i64 = std::thread::scope(|scope| {
        let thread = |thread| {
            scope.spawn(move || {
                let (mut random, mut paid) = (Random(thread), 0);
                for _ in 0..rounds {
                    let amount = random.below(100) as i64 - 30;
                    ledger.add(random.below(40), amount);
                    paid += amount;
                    if random.below(4) == 0 {
                        paid -= ledger.take(random.below(40));
                    }
                }
                paid
            })
        };
        let threads: Vec<_> = (0..4).map(thread).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    ledger.sum() - paid
}

#[test]
fn no_update_is_lost_while_shards_are_split_and_resized() {
    let map = RcuMap::<u64, i64>::new();
    let over = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while over.load(Relaxed) == 0 {
                map.table.split_all();
                map.reserve(200);
                map.shrink_to_fit();
                std::thread::yield_now();
            }
        });
        let left = books(&map, 4000);
        over.store(1, Relaxed);
        assert_eq!(left, 0);
    });
}

#[test]
fn a_ledger_that_is_not_atomic_does_not_add_up() {
    // Each try gives the threads thousands of chances to meet in the middle of an update.
    let torn = || books(&Torn(RcuMap::new()), 4000) != 0;
    assert!((0..200).any(|_| torn()), "not found");
}

/// A counter of each key that only grows: no thread sees it go back, and a thread sees what it has written.
#[test]
fn what_a_thread_has_seen_or_done_it_sees_later() {
    let map = RcuMap::<u64, u64>::new();
    let last = Mutex::new([0u64; 8]);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let (map, last) = (&map, &last);
            scope.spawn(move || {
                let (mut random, mut seen) = (Random(seed), [0; 8]);
                for _ in 0..4000 {
                    let key = random.below(8);
                    let now = match random.below(2) {
                        0 => *map.update(key, |count| Some(count.unwrap_or(&0) + 1)).unwrap(),
                        _ => map.get(&key).map_or(0, |count| *count),
                    };
                    assert!(now >= seen[key as usize], "{key} went back");
                    seen[key as usize] = now;
                }
                let mut last = last.lock().unwrap();
                (0..8).for_each(|key| last[key] = last[key].max(seen[key]));
            });
        }
    });
    let last = last.into_inner().unwrap();
    assert!((0..8u64).all(|key| map.get(&key).map_or(0, |count| *count) >= last[key as usize]));
}

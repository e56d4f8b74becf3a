//! Ordered maps: lookups, ranges and updates of each library's, one key or one range of 64 keys at a time.
//!
//! Half of the keys are in the map, as in `user`. A read is a lookup, or a sum over a range that has 32 elements on the
//! average. Every value is the key's, or the run fails.

use crate::{Point, Subject, timed};
use crossbeam_skiplist::SkipMap;
use latchwork::map::RcuTreeMap;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, Mutex, RwLock};

/// Keys of a range.
const LONG: u64 = 64;

/// What is asked of each.
trait Ordered: Sync {
    fn new() -> Self;
    fn get(&self, key: u64) -> Option<u64>;
    fn insert(&self, key: u64, value: u64);
    fn remove(&self, key: u64);
    /// Calls `each` for the elements from `begin` to `begin + LONG`.
    fn range(&self, begin: u64, each: impl FnMut(u64, u64));
}

impl Ordered for RcuTreeMap<u64, u64> {
    fn new() -> Self {
        RcuTreeMap::new()
    }
    fn get(&self, key: u64) -> Option<u64> {
        self.read().get(&key).copied()
    }
    fn insert(&self, key: u64, value: u64) {
        RcuTreeMap::insert(self, key, value);
    }
    fn remove(&self, key: u64) {
        RcuTreeMap::remove(self, &key);
    }
    fn range(&self, begin: u64, mut each: impl FnMut(u64, u64)) {
        self.read().range(begin..begin + LONG).for_each(|(key, value)| each(*key, *value));
    }
}

impl Ordered for SkipMap<u64, u64> {
    fn new() -> Self {
        SkipMap::new()
    }
    fn get(&self, key: u64) -> Option<u64> {
        SkipMap::get(self, &key).map(|entry| *entry.value())
    }
    fn insert(&self, key: u64, value: u64) {
        SkipMap::insert(self, key, value);
    }
    fn remove(&self, key: u64) {
        SkipMap::remove(self, &key);
    }
    fn range(&self, begin: u64, mut each: impl FnMut(u64, u64)) {
        SkipMap::range(self, begin..begin + LONG).for_each(|entry| each(*entry.key(), *entry.value()));
    }
}

/// A lock around std's map.
macro_rules! locked {
    ($($lock:ident, $read:ident, $write:ident;)*) => {$(
        impl Ordered for $lock<BTreeMap<u64, u64>> {
            fn new() -> Self {
                Self::default()
            }
            fn get(&self, key: u64) -> Option<u64> {
                self.$read().expect("nobody panics with it").get(&key).copied()
            }
            fn insert(&self, key: u64, value: u64) {
                self.$write().expect("nobody panics with it").insert(key, value);
            }
            fn remove(&self, key: u64) {
                self.$write().expect("nobody panics with it").remove(&key);
            }
            fn range(&self, begin: u64, mut each: impl FnMut(u64, u64)) {
                let map = self.$read().expect("nobody panics with it");
                map.range(begin..begin + LONG).for_each(|(key, value)| each(*key, *value));
            }
        }
    )*};
}

locked! {
    RwLock, read, write;
    Mutex, lock, lock;
}

/// What is measured; the first is what the others are compared with.
pub static SUBJECTS: &[Subject] = &[
    Subject::new("RcuTreeMap", rate::<RcuTreeMap<u64, u64>, false>),
    Subject::new("crossbeam-skiplist", rate::<SkipMap<u64, u64>, false>),
    Subject::new("RwLock<BTreeMap>", rate::<RwLock<BTreeMap<u64, u64>>, false>),
    Subject::new("Mutex<BTreeMap>", rate::<Mutex<BTreeMap<u64, u64>>, false>),
    Subject::new("RcuTreeMap, ranges", rate::<RcuTreeMap<u64, u64>, true>),
    Subject::new("crossbeam-skiplist, ranges", rate::<SkipMap<u64, u64>, true>),
    Subject::new("RwLock<BTreeMap>, ranges", rate::<RwLock<BTreeMap<u64, u64>>, true>),
    Subject::new("Mutex<BTreeMap>, ranges", rate::<Mutex<BTreeMap<u64, u64>>, true>),
];

/// A map's name, and how many bytes for each of so many elements it takes.
pub static MEMORY: &[crate::user::Memory] = &[
    ("RcuTreeMap", bytes::<RcuTreeMap<u64, u64>>),
    ("crossbeam-skiplist", bytes::<SkipMap<u64, u64>>),
    ("Mutex<BTreeMap>", bytes::<Mutex<BTreeMap<u64, u64>>>),
];

fn value(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Bytes of the heap for each element of a map with so many, in which removed elements have been reclaimed.
fn bytes<M: Ordered>(elements: u64) -> f64 {
    crate::user::heap(elements, || {
        let map = M::new();
        // In an order without a pattern.
        (0..elements).for_each(|key| map.insert(value(key), key));
        latchwork::reclaim::rcu::global().barrier();
        map
    })
}

fn check(key: u64, found: u64) {
    assert!(found == value(key), "key {key} has the value of another");
}

/// Operations a second; a range counts as one.
fn rate<M: Ordered, const RANGES: bool>(point: &Point, seconds: f64) -> Result<f64, String> {
    let map = M::new();
    let mut random = fastrand::Rng::with_seed(7);
    let mut keys: Vec<u64> = (0..point.keys).step_by(2).collect();
    random.shuffle(&mut keys);
    keys.into_iter().for_each(|key| map.insert(key, value(key)));
    let share = point.share();
    let work = |thread: u64, together: &Barrier, over: &AtomicBool| {
        let (mut random, mut done) = (fastrand::Rng::with_seed(thread), 0u64);
        together.wait();
        while !over.load(Relaxed) {
            for _ in 0..64 {
                let key = random.u64(0..point.keys);
                match random.f64() / share {
                    share if share < 0.5 => map.insert(key, value(key)),
                    share if share < 1.0 => map.remove(key),
                    _ if RANGES => map.range(key, check),
                    _ => map.get(key).into_iter().for_each(|found| check(key, found)),
                }
            }
            done += 64;
        }
        done
    };
    timed(point.threads, seconds, work)
}

//! Maps that a program would use, all with the standard library's hasher.
//!
//! Half of the keys are in the map. A lookup copies the value; an update inserts a key or removes it, whichever
//! changes the map more often than not: half of each. Every value is the key's, or the run fails.

use crate::{Point, Subject, timed};
use latchwork::map::RcuMap;
#[cfg(feature = "urcu")]
use latchwork_workloads::peers::lfht;
use latchwork_workloads::peers::maps::{Map, Sections};
#[cfg(feature = "map-peers")]
use latchwork_workloads::peers::more_maps;
use latchwork_workloads::zipf::Zipf;
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, RwLock};

/// What is measured; the first is what the others are compared with.
pub static SUBJECTS: &[Subject] = &[
    Subject::new("RcuMap", rate::<RcuMap<u64, u64>>),
    Subject { name: "RcuMap, sections of 64", rate: rate::<Sections>, lookups_only: true },
    Subject::new("dashmap", rate::<dashmap::DashMap<u64, u64, RandomState>>),
    Subject::new("papaya", rate::<papaya::HashMap<u64, u64, RandomState>>),
    Subject::new("scc", rate::<scc::HashMap<u64, u64, RandomState>>),
    Subject::new("RwLock<HashMap>", rate::<RwLock<HashMap<u64, u64>>>),
    #[cfg(feature = "map-peers")]
    Subject::new("flurry", rate::<flurry::HashMap<u64, u64, RandomState>>),
    #[cfg(feature = "map-peers")]
    Subject::new("evmap", rate::<more_maps::Evmap>),
    #[cfg(feature = "map-peers")]
    Subject::new("HashMap under left-right", rate::<more_maps::LeftRight>),
    #[cfg(feature = "urcu")]
    Subject::new("liburcu-memb, cds_lfht", rate::<lfht::Lfht<lfht::Memb>>),
    #[cfg(feature = "urcu")]
    Subject::new("liburcu-qsbr, cds_lfht", rate::<lfht::Lfht<lfht::Qsbr>>),
];

/// A map's name, and how many bytes for each of so many elements it takes.
pub type Memory = (&'static str, fn(u64) -> f64);

/// What the memory of is counted.
pub static MEMORY: &[Memory] = &[
    ("RcuMap", bytes::<RcuMap<u64, u64>>),
    ("dashmap", bytes::<dashmap::DashMap<u64, u64, RandomState>>),
    ("papaya", bytes::<papaya::HashMap<u64, u64, RandomState>>),
    ("scc", bytes::<scc::HashMap<u64, u64, RandomState>>),
    ("RwLock<HashMap>", bytes::<RwLock<HashMap<u64, u64>>>),
];

/// A map's name, and what works on it: with so many keys, updating or looking up, so many times.
pub type Counted = (&'static str, fn(u64, bool, u64));

/// What the instructions and cache misses of an operation are counted of.
pub static COUNTED: &[Counted] = &[
    ("RcuMap", counted::<RcuMap<u64, u64>>),
    ("sections", counted::<Sections>),
    ("dashmap", counted::<dashmap::DashMap<u64, u64, RandomState>>),
    ("papaya", counted::<papaya::HashMap<u64, u64, RandomState>>),
    ("scc", counted::<scc::HashMap<u64, u64, RandomState>>),
    ("RwLock<HashMap>", counted::<RwLock<HashMap<u64, u64>>>),
    #[cfg(feature = "map-peers")]
    ("flurry", counted::<flurry::HashMap<u64, u64, RandomState>>),
    #[cfg(feature = "map-peers")]
    ("evmap", counted::<more_maps::Evmap>),
    #[cfg(feature = "map-peers")]
    ("left-right", counted::<more_maps::LeftRight>),
];

/// Makes a map with half of the keys. Then inserts and removes random ones, or looks them up in turn, so many times.
fn counted<M: Map>(keys: u64, updates: bool, count: u64) {
    let map = M::new();
    let _joined = M::join();
    (0..keys).step_by(2).for_each(|key| _ = map.insert(key, value(key)));
    if updates {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..count {
            match (random.u64(0..keys), random.bool()) {
                (key, true) => _ = map.insert(key, value(key)),
                (key, false) => _ = map.remove(key),
            }
        }
        return;
    }
    let mut key = 0;
    let mut next = || {
        key = (key + 1) % keys;
        key
    };
    (0..count / 64).for_each(|_| map.get_many(64, &mut next, check));
}

fn value(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline(always)]
fn check(key: u64, found: Option<u64>) {
    assert!(found.is_none_or(|found| found == value(key)), "key {key} has the value of another");
}

/// Keys by Zipf's law.
struct Keys(Vec<u64>);

/// Keys that are drawn beforehand, and then asked for over and over.
const DRAWN: usize = 1 << 15;

impl Keys {
    fn new(keys: u64, random: &mut fastrand::Rng) -> Self {
        let zipf = Zipf::new(keys);
        // Frequent keys are not neighbours. (The factor is odd, and the number of keys a power of two.)
        let draw = |_| value(zipf.draw(|| random.f64())) & (keys - 1);
        Keys((0..DRAWN).map(draw).collect())
    }

    #[inline(always)]
    fn next(&self, at: &mut usize) -> u64 {
        *at = (*at + 1) % DRAWN;
        self.0[*at]
    }
}

/// Bytes of the heap for each element of a map with so many.
fn bytes<M: Map>(elements: u64) -> f64 {
    heap(elements, || {
        let map = M::new();
        (0..elements).for_each(|key| _ = map.insert(key, value(key)));
        map
    })
}

/// Bytes of the heap that something takes, for each of so many elements.
pub fn heap<M>(elements: u64, make: impl FnOnce() -> M) -> f64 {
    // SAFETY: it reads the allocator's counters.
    let in_use = || unsafe { libc::mallinfo2() };
    latchwork::reclaim::rcu::global().barrier(); // what earlier maps have retired is not freed while this one is made
    let before = in_use();
    let made = make();
    let after = in_use();
    drop(made);
    ((after.uordblks + after.hblkhd) as f64 - (before.uordblks + before.hblkhd) as f64) / elements as f64
}

/// Operations a second.
fn rate<M: Map>(point: &Point, seconds: f64) -> Result<f64, String> {
    let map = M::new();
    {
        let _joined = M::join();
        for key in (0..point.keys).step_by(2) {
            map.insert(key, value(key));
        }
    }
    let share = point.share();
    let work = |thread: u64, together: &Barrier, over: &AtomicBool| {
        let (mut random, mut done) = (fastrand::Rng::with_seed(thread), 0u64);
        let zipf = point.zipf.then(|| Keys::new(point.keys, &mut random));
        let mut at = 0;
        let mut next = |random: &mut fastrand::Rng| match &zipf {
            Some(zipf) => zipf.next(&mut at),
            None => random.u64(0..point.keys),
        };
        together.wait();
        let _joined = M::join();
        while !over.load(Relaxed) {
            M::rest();
            if share == 0.0 {
                map.get_many(64, || next(&mut random), check);
                done += 64;
                continue;
            }
            for _ in 0..64 {
                let key = next(&mut random);
                match random.f64() / share {
                    share if share < 0.5 => {
                        map.insert(key, value(key));
                    }
                    share if share < 1.0 => {
                        map.remove(key);
                    }
                    _ => check(key, map.get(key)),
                }
            }
            done += 64;
        }
        done
    };
    timed(point.threads, seconds, work)
}

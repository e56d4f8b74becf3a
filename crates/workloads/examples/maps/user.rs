//! Maps that a program would use, all with the standard library's hasher.
//!
//! Half of the keys are in the map. A lookup copies the value; an update inserts a key or removes it, whichever
//! changes the map more often than not: half of each. Every value is the key's, or the run fails.

use crate::{Point, Subject};
use latchwork::map::RcuMap;
#[cfg(feature = "urcu")]
use latchwork_workloads::peers::lfht;
use latchwork_workloads::peers::maps::{Map, Sections};
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Barrier, RwLock};
use std::time::{Duration, Instant};

/// What is measured; the first is what the others are compared with.
pub static SUBJECTS: &[Subject] = &[
    Subject { name: "RcuMap", rate: rate::<RcuMap<u64, u64>> },
    Subject { name: "RcuMap, sections of 64", rate: rate::<Sections> },
    Subject { name: "dashmap", rate: rate::<dashmap::DashMap<u64, u64, RandomState>> },
    Subject { name: "papaya", rate: rate::<papaya::HashMap<u64, u64, RandomState>> },
    Subject { name: "scc", rate: rate::<scc::HashMap<u64, u64, RandomState>> },
    Subject { name: "RwLock<HashMap>", rate: rate::<RwLock<HashMap<u64, u64>>> },
    #[cfg(feature = "urcu")]
    Subject { name: "liburcu-memb, cds_lfht", rate: rate::<lfht::Lfht<lfht::Memb>> },
    #[cfg(feature = "urcu")]
    Subject { name: "liburcu-qsbr, cds_lfht", rate: rate::<lfht::Lfht<lfht::Qsbr>> },
];

fn value(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[inline(always)]
fn check(key: u64, found: Option<u64>) {
    assert!(found.is_none_or(|found| found == value(key)), "key {key} has the value of another");
}

/// Operations a second.
fn rate<M: Map>(point: &Point, seconds: f64) -> Result<f64, String> {
    let (map, over, together) = (M::new(), AtomicBool::new(false), Barrier::new(point.threads + 1));
    {
        let _joined = M::join();
        for key in (0..point.keys).step_by(2) {
            map.insert(key, value(key));
        }
    }
    let work = |thread: u64| {
        let (mut random, mut done) = (fastrand::Rng::with_seed(thread), 0u64);
        together.wait();
        let _joined = M::join();
        while !over.load(Relaxed) {
            M::rest();
            if point.share() == 0.0 {
                map.get_many(64, || random.u64(0..point.keys), check);
                done += 64;
                continue;
            }
            for _ in 0..64 {
                let key = random.u64(0..point.keys);
                match random.f64() / point.share() {
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
    std::thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> =
            (0..point.threads as u64).map(|thread| scope.spawn(move || work(thread))).collect();
        together.wait();
        let start = Instant::now();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        over.store(true, Relaxed);
        let took = start.elapsed().as_secs_f64();
        let done: Result<Vec<u64>, _> = threads.into_iter().map(|thread| thread.join()).collect();
        done.map(|done| done.iter().sum::<u64>() as f64 / took).map_err(|_| "a map is wrong".into())
    })
}

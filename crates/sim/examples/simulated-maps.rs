//! How maps scale on a simulated machine: lookups and updates of the table behind `RcuMap`, beside a table with a mutex in
//! each bucket, and one of shards that each have a reader-writer lock.
//!
//!     cargo run --release -p latchwork-sim --example simulated-maps [MACHINE [THREADS,.. [KEYS]]]
//!
//! Half of the keys are there; an update inserts or removes. What is simulated is the synchronization: the words of locks,
//! buckets and sections. Elements are read without cost, and 20 ns stand for the hash in every map.

use latchwork::locks::mutex::{RawMutex, shfl::RawShfl};
use latchwork::locks::rwlock::{RawRwLock, pf_t::RawPfT};
use latchwork::machine::{Machine, Word};
use latchwork::map::growing::{Count, Growing};
use latchwork::reclaim::rcu::RcuDomain;
use latchwork_sim::{Error, Options, Profile, Sim, U32, U64, now, run, work};
use std::cell::Cell;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;
use std::sync::atomic::Ordering::*;

/// Nanoseconds of a measurement.
const TIME: u64 = 150_000;
/// Nanoseconds before it, in which an `RcuMap` splits the shards at which threads meet.
const WARM: u64 = 10_000_000;
/// Nanoseconds that stand for the hash of a key.
const HASH: u64 = 20;

trait Map {
    fn get(&self, key: u64) -> bool;
    fn set(&self, key: u64, there: bool);
}

type Table = Growing<RawShfl<Sim>, u64, u64, BuildHasherDefault<DefaultHasher>>;

impl Map for Table {
    fn get(&self, key: u64) -> bool {
        let section = self.enter();
        self.find(&section, &key).is_some()
    }
    fn set(&self, key: u64, there: bool) {
        self.throttle();
        let mut slot = self.lock(&key);
        if there { slot.set(key, key) } else { slot.remove() }
    }
}

#[repr(align(128))]
struct Padded<T>(T);

/// A mutex and a word for each bucket, which has one key.
struct Buckets(Vec<Padded<(RawShfl<Sim>, U64)>>);

impl Buckets {
    fn locked<R>(&self, key: u64, work: impl FnOnce(&U64) -> R) -> R {
        let Padded((lock, word)) = &self.0[key as usize];
        lock.lock();
        let result = work(word);
        // SAFETY: acquired above; the lock's token is `()`.
        unsafe { lock.unlock(()) };
        result
    }
}

impl Map for Buckets {
    fn get(&self, key: u64) -> bool {
        self.locked(key, |word| word.load(Relaxed) != 0)
    }
    fn set(&self, key: u64, there: bool) {
        self.locked(key, |word| word.store(u64::from(there), Relaxed));
    }
}

/// Four shards for each processor, as dashmap has; each with a reader-writer lock and its words, eight to a line.
struct Shards {
    locks: Vec<Padded<RawPfT<Sim>>>,
    lines: Vec<Padded<[U64; 8]>>,
}

impl Map for Shards {
    fn get(&self, key: u64) -> bool {
        let lock = &self.locks[key as usize % self.locks.len()].0;
        lock.read();
        let found = self.lines[key as usize / 8].0[key as usize % 8].load(Relaxed) != 0;
        // SAFETY: acquired above; the lock's token is `()`.
        unsafe { lock.unlock_read(()) };
        found
    }
    fn set(&self, key: u64, there: bool) {
        let lock = &self.locks[key as usize % self.locks.len()].0;
        lock.write();
        self.lines[key as usize / 8].0[key as usize % 8].store(u64::from(there), Relaxed);
        // SAFETY: acquired above; the lock's token is `()`.
        unsafe { lock.unlock_write(()) };
    }
}

/// Million operations a simulated second.
fn rate(profile: &Profile, map: &dyn Map, threads: usize, keys: u64, updates: u64) -> Result<f64, Error> {
    let (ready, end, done) = (Padded(U32::new(0)), Cell::new(0), Cell::new(0u64));
    let body = |thread: usize| {
        if thread == 0 {
            (0..keys).step_by(2).for_each(|key| map.set(key, true));
            end.set(now() + if updates > 0 { WARM } else { 0 } + TIME);
            ready.0.store(1, Release);
        } else {
            Sim::spin_until(&ready.0, Acquire, |ready| ready == 1);
        }
        let mut state = (thread as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut operations = 0;
        while now() < end.get() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let key = (state >> 20) % keys;
            work(HASH);
            if (state >> 8) % 100 < updates {
                map.set(key, state >> 7 & 1 == 0);
            } else {
                map.get(key);
            }
            operations += u64::from(now() + TIME >= end.get());
        }
        done.set(done.get() + operations);
    };
    let body = &body;
    let bodies = (0..threads).map(|thread| Box::new(move || body(thread)) as Box<dyn FnOnce()>).collect();
    run(profile, &Options { spread_ns: Some(1000), ..Options::default() }, bodies)?;
    Ok(done.get() as f64 / TIME as f64 * 1e3)
}

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let profile = Profile::find(&arguments.next().unwrap_or_else(|| "2x64".into()))?;
    let cpus = profile.cpus();
    let threads = arguments.next().unwrap_or_else(|| format!("1,{},{},{cpus}", cpus / 8, cpus / 2));
    let keys: u64 = arguments.next().map_or(1024, |n| n.parse().expect("a number of keys"));
    print!("| | threads |");
    let percents = [0, 1, 10, 50, 100];
    percents.iter().for_each(|updates| print!(" {updates}% updates |"));
    println!("\n|---|---:|{}", "---:|".repeat(percents.len()));
    for threads in threads.split(',').map(|n| n.parse().expect("a number of threads")) {
        type Make = Box<dyn Fn() -> Box<dyn Map>>;
        let makes: [(&str, Make); 3] = [
            (
                "RcuMap",
                Box::new(move || {
                    let domain: &'static _ = Box::leak(Box::new(RcuDomain::new_in()));
                    let most = (16 * cpus).next_power_of_two();
                    Box::new(Table::new(domain, Count { first: 1, most }, 0, Default::default()))
                }),
            ),
            (
                "mutex in each bucket",
                Box::new(move || {
                    let bucket = |_| Padded((RawShfl::new_in(), U64::new(0)));
                    Box::new(Buckets((0..keys).map(bucket).collect()))
                }),
            ),
            (
                "rwlock in each shard",
                Box::new(move || {
                    let locks = (0..(4 * cpus).next_power_of_two()).map(|_| Padded(RawPfT::new_in()));
                    let line = |_| Padded(std::array::from_fn(|_| U64::new(0)));
                    Box::new(Shards {
                        locks: locks.collect(),
                        lines: (0..keys.div_ceil(8)).map(line).collect(),
                    })
                }),
            ),
        ];
        for (name, make) in &makes {
            print!("| {name} | {threads} |");
            for updates in percents {
                print!(" {:.1} |", rate(&profile, &*make(), threads, keys, updates)?);
            }
            println!();
        }
    }
    Ok(())
}

//! The table behind `RcuMap` on a simulated machine, where threads meet as they do on many processors: it gets as many
//! shards as its updaters need, and no more.

use latchwork::locks::mutex::shfl::RawShfl;
use latchwork::map::growing::{Count, Growing};
use latchwork::reclaim::rcu::RcuDomain;
use latchwork_sim::{Options, Profile, Sim, now, run, work};
use std::cell::Cell;
use std::collections::hash_map::DefaultHasher;
use std::hash::BuildHasherDefault;

type Table = Growing<RawShfl<Sim>, u64, u64, BuildHasherDefault<DefaultHasher>>;

const KEYS: u64 = 1024;

/// What a run comes to.
#[derive(Debug)]
struct End {
    shards: usize,
    updates: u64,
}

/// So many threads insert and remove, each keys of its own, with so many nanoseconds of other work between, for so many
/// nanoseconds. Each thread checks that it finds what it has done last.
fn simulate(threads: u64, think: u64, nanos: u64) -> End {
    let domain: &'static _ = Box::leak(Box::new(RcuDomain::new_in()));
    let table = Table::new(domain, Count { first: 1, most: 4096 }, 0, Default::default());
    let (updates, shards) = (Cell::new(0), Cell::new(0));
    let body = |thread: u64| {
        let mut there = vec![false; (KEYS / threads) as usize];
        let mut state = (thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        while now() < nanos {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let at = (state >> 20) as usize % there.len();
            let key = at as u64 * threads + thread;
            work(20 + think);
            let mut slot = table.lock(&key);
            assert_eq!(slot.node().is_some(), there[at], "an update of key {key} was lost");
            there[at] = !there[at];
            if there[at] {
                slot.set(key, key)
            } else {
                slot.remove()
            }
            drop(slot);
            updates.set(updates.get() + 1);
        }
        let section = table.enter();
        for (at, there) in there.into_iter().enumerate() {
            let key = at as u64 * threads + thread;
            assert_eq!(table.find(&section, &key).is_some(), there, "key {key}");
        }
        drop(section);
        shards.set(table.parts_list().shards);
    };
    let body = &body;
    let bodies = (0..threads).map(|thread| Box::new(move || body(thread)) as Box<dyn FnOnce()>).collect();
    let profile = Profile::find("8x24").expect("there is such a machine");
    run(&profile, &Options::default(), bodies).expect("all threads get through");
    End { shards: shards.get(), updates: updates.get() }
}

/// A barging thread takes the lock thousands of times while others wait, so few acquisitions wait, for long.
#[test]
fn a_map_whose_updaters_wait_is_split_until_they_wait_little() {
    let hot = simulate(48, 0, 2_000_000);
    assert!(hot.shards > 32, "{hot:?}");
}

/// One thread never waits. Two with other work between their updates meet at times, and not often enough for a second shard.
#[test]
fn a_map_whose_updaters_seldom_wait_keeps_its_shard() {
    for (threads, think) in [(1, 0), (2, 5_000)] {
        let cold = simulate(threads, think, 10_000_000);
        assert_eq!(cold.shards, 1, "{threads} threads: {cold:?}");
        assert!(cold.updates > 1000, "{cold:?}");
    }
}

//! From which thread, CPU and NUMA node a lock comes to the next one, and how many readers are inside.
//!
//! To compare each acquisition with the one before, every thread would have to write to the lock's record. So that is done for
//! a part of the acquisitions, chosen by chance: the thread leaves its name in the record ([`mark`]), and the next one that
//! acquires the lock compares ([`compare`]). Each comparison counts for as many acquisitions as the chosen one stands for.
//!
//! Readers leave no trace outside of their own memory. Now and then, a thread looks into that of all threads ([`look`]).

use super::file::record;
use super::threads::Local;
use super::{clock, filter, homes, objects};
use core::sync::atomic::Ordering::*;
use latchwork::machine::{Machine, Native};
use latchwork_recording::layout::*;

/// Of the acquisitions that met contention, one in so many is compared with the next: the logarithm to base 2.
const PERIOD: u8 = 6;
/// So many of a thread's first contended acquisitions all are.
const FIRST: u32 = 8;

/// After a look at all threads that took some time, a thread takes no other for so many times as long. So looking costs at most
/// a thousandth of its time.
const REST: u64 = 1000;

/// The value of [`Object::last`]: the thread that acquired the lock, its CPU, and for how many acquisitions that stands.
struct Mark {
    thread: u32,
    cpu: u16,
    node: u8,
    /// The logarithm to base 2.
    weight: u8,
}

impl Mark {
    const PRESENT: u64 = 1 << 63;

    fn here(local: &Local, weight: u8) -> Self {
        let node = if Native::numa_nodes() > 1 { Native::numa_node() as u8 } else { 0 };
        Mark { thread: local.thread_index & 0xffff, cpu: Native::cpu() as u16, node, weight }
    }

    fn word(&self) -> u64 {
        let Mark { thread, cpu, node, weight } = *self;
        Self::PRESENT
            | u64::from(weight) << 40
            | u64::from(node) << 32
            | u64::from(thread) << 16
            | u64::from(cpu)
    }

    fn of(word: u64) -> Self {
        Mark {
            thread: (word >> 16 & 0xffff) as u32,
            cpu: word as u16,
            node: (word >> 32) as u8,
            weight: (word >> 40) as u8,
        }
    }
}

/// The calling thread has the lock, which lies at this address. The next one that acquires it shall compare; that counts for
/// 2 to the power of `weight` acquisitions.
pub(super) fn mark(local: &Local, object: &Object, address: usize, weight: u8) {
    if object.last.swap(Mark::here(local, weight).word(), Relaxed) == 0 {
        // `compare` takes that back.
        filter::watch(address);
    }
}

/// As `mark`, for a part of those acquisitions that meet contention.
#[inline(always)]
pub(super) fn mark_some(local: &mut Local, object: &Object, address: usize) {
    if local.until_mark == 0 {
        mark_one(local, object, address);
    } else {
        local.until_mark -= 1;
    }
}

#[cold]
#[inline(never)]
fn mark_one(local: &mut Local, object: &Object, address: usize) {
    if local.contended < FIRST {
        local.contended += 1;
        mark(local, object, address, 0);
    } else {
        // Random distances of this mean, so that no pattern of the program is missed or met.
        local.until_mark = local.chance.around(1 << PERIOD) - 1;
        mark(local, object, address, PERIOD);
    }
}

/// The calling thread has the lock, and compares itself with the thread before, if that is asked for.
#[inline]
pub(super) fn compare(local: &Local, object: &Object, address: usize) {
    if object.last.load(Relaxed) == 0 {
        return;
    }
    let word = object.last.swap(0, Relaxed);
    if word == 0 {
        return;
    }
    filter::unwatch(address);
    let before = Mark::of(word);
    let here = Mark::here(local, before.weight);
    let weight = 1 << (before.weight % 64);
    let counters = objects::sums(object);
    counters.successions.fetch_add(weight, Relaxed);
    let changes = [
        (before.thread != here.thread, &counters.owner_changes),
        (before.cpu != here.cpu, &counters.cpu_changes),
        (before.node != here.node, &counters.node_changes),
    ];
    for (changed, count) in changes {
        if changed {
            count.fetch_add(weight, Relaxed);
        }
    }
}

/// Counts the readers that are inside of the rwlock at this address, unless the thread did so lately.
pub(super) fn look(local: &mut Local, object: u32, address: usize, now: u64) {
    if object == NONE || now < local.next_look {
        return;
    }
    let inside = homes::readers(address) as u64;
    let most = &objects::sums(record(object)).most_readers;
    if most.load(Relaxed) < inside {
        most.fetch_max(inside, Relaxed);
    }
    local.next_look = now + REST * clock::now().saturating_sub(now);
}

/// Counts the threads that wait for the object at this address, with the calling one, unless the thread did so lately.
pub(super) fn look_at_waiters(local: &mut Local, object: u32, address: usize, now: u64) {
    if object == NONE || now < local.next_look {
        return;
    }
    let waiting = homes::waiting(address) as u64 + 1;
    let most = &objects::sums(record(object)).most_waiting;
    if most.load(Relaxed) < waiting {
        most.fetch_max(waiting, Relaxed);
    }
    local.next_look = now + REST * clock::now().saturating_sub(now);
}

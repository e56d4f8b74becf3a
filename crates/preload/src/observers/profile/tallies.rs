//! What a thread sums up for itself, before it adds it to the shared records.
//!
//! Each wait and each measured hold belongs to a pair: a waiter and its holder, or a holder and its hold time. Threads that
//! contend for a lock add to the same few pairs. So each thread has a few sums of its own, in the file, and adds one to the
//! shared record only when it needs the room. A reader of the file adds up both.

use super::file::{append, record};
use super::index::{Index, mix};
use super::objects;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use latchwork_recording::layout::*;

static PAIRS_BY_KEY: Index<{ 256 << 10 }> = Index::new();

/// What is summed up.
#[derive(Clone, Copy)]
pub(super) struct Key {
    pub(super) object: u32,
    pub(super) serial: u32,
    pub(super) class: u32,
    pub(super) waiter: u32,
    pub(super) holder: u32,
}

/// Adds a wait or a hold of this length, which stands for `weight` of them, to a sum of the thread that has this table.
pub(super) fn add(table: &Table, key: &Key, weight: u32, nanos: u64) {
    const { assert!(TALLIES.is_power_of_two()) };
    let hash = mix(u64::from(key.class) << 40 ^ u64::from(key.object) << 20 ^ u64::from(key.waiter))
        ^ mix(u64::from(key.holder));
    let first = (hash >> 8) as usize % TALLIES;
    let (first, second) = (&table.tallies[first], &table.tallies[first ^ 1]);
    let tally = if is(first, key) {
        first
    } else if is(second, key) {
        second
    } else {
        let free =
            if first.class.load(Relaxed) != 0 && second.class.load(Relaxed) == 0 { second } else { first };
        flush(free);
        free.object.store(key.object, Relaxed);
        free.serial.store(key.serial, Relaxed);
        free.waiter.store(key.waiter, Relaxed);
        free.holder.store(key.holder, Relaxed);
        free.class.store(key.class + 1, Release);
        free
    };
    let Some(sum) = tally.waits.load(Relaxed).checked_add(weight) else {
        flush(tally);
        return add(table, key, weight, nanos);
    };
    tally.waits.store(sum, Relaxed);
    let stands_for = nanos.wrapping_mul(u64::from(weight));
    tally.nanos.store(tally.nanos.load(Relaxed).wrapping_add(stands_for), Relaxed);
    if weight > 1 {
        let squares = tally.squares.load(Relaxed).saturating_add(squares(weight, nanos));
        tally.squares.store(squares, Relaxed);
    }
}

fn is(tally: &Tally, key: &Key) -> bool {
    tally.holder.load(Relaxed) == key.holder
        && tally.waiter.load(Relaxed) == key.waiter
        && tally.object.load(Relaxed) == key.object
        && tally.class.load(Relaxed) == key.class + 1
        && tally.serial.load(Relaxed) == key.serial
}

/// Adds a sum to the shared records, and frees it.
pub(super) fn flush(tally: &Tally) {
    let Some(class) = tally.class.load(Relaxed).checked_sub(1) else { return };
    let (waiter, holder) = (tally.waiter.load(Relaxed), tally.holder.load(Relaxed));
    // A signal handler that comes now finds nothing more to add.
    tally.class.store(0, Relaxed);
    let (waits, nanos) = (u64::from(tally.waits.swap(0, Relaxed)), tally.nanos.swap(0, Relaxed));
    let squares = tally.squares.swap(0, Relaxed);
    let counters = || objects::counters(tally.object.load(Relaxed), tally.serial.load(Relaxed), class);
    let more = |sum: &AtomicU64, nanos_sum: &AtomicU64| {
        sum.fetch_add(waits, Relaxed);
        nanos_sum.fetch_add(nanos, Relaxed);
    };
    match waiter {
        holds::WRITE | holds::READ => {
            let counters = counters();
            more(&counters.hold_samples, &counters.hold_nanos);
            if waiter == holds::READ {
                more(&counters.read_samples, &counters.read_nanos);
            }
        }
        ALL_WAITS => {
            let counters = counters();
            return more(&counters.contended, &counters.wait_nanos);
        }
        _ => {}
    }
    if let Some(pair) = pair(class, waiter, holder) {
        more(&pair.waits, &pair.nanos);
        let saturating = |sum: u64| Some(sum.saturating_add(squares));
        let _ = pair.squares.fetch_update(Relaxed, Relaxed, saturating);
    }
}

/// The shared record. `None`: there is no room.
fn pair(class: u32, waiter: u32, holder: u32) -> Option<&'static Pair> {
    let key = u64::from(class) << 48 ^ u64::from(waiter) << 24 ^ u64::from(holder);
    let has = |number: &AtomicU32, value| number.load(Relaxed) == value;
    let is = |index| {
        let pair = record::<Pair>(index);
        has(&pair.class, class) && has(&pair.waiter, waiter) && has(&pair.holder, holder)
    };
    let make = || {
        let index = append::<Pair>(1)?;
        let pair = record::<Pair>(index);
        pair.class.store(class, Relaxed);
        pair.waiter.store(waiter, Relaxed);
        pair.holder.store(holder, Relaxed);
        pair.state.store(READY, Release);
        Some(index)
    };
    let discard = |index| record::<Pair>(index).state.store(0, Relaxed);
    PAIRS_BY_KEY.find_or_insert(mix(key), is, make, discard).map(record)
}

/// Forgets all pairs. In a forked child, which has one thread.
pub(super) fn clear_all() {
    PAIRS_BY_KEY.clear();
}

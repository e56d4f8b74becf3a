//! A wait that has ended, and that is not yet in its thread's sums.
//!
//! A thread that has waited for a lock now holds it, and what it does delays the others. So it only notes its wait in its own
//! record ([`waits`](super::waits)), and adds it to its sums ([`tallies`]) after it has released the lock ([`settle`]).
//!
//! Each wait is in the exact sums ([`ALL_WAITS`]), in the histogram and in the thread's own sums. What is known of its stack
//! and of its holders is known for a part of the waits ([`sampling`](super::sampling)), and counts as often as the wait stands
//! for.

use super::file::record;
use super::objects;
use super::tallies::{self, Key};
use core::sync::atomic::{AtomicU64, Ordering::*};
use latchwork_recording::histogram::bucket;
use latchwork_recording::layout::*;

/// A wait for a lock that was looked at closely, and is in the sums now.
pub(super) struct Settled {
    pub(super) whole: Key,
    pub(super) start: u64,
    pub(super) nanos: u64,
    /// For how many waits it stands.
    pub(super) weight: u32,
    holders: [u32; HOLDERS + 1],
    parts: [u64; HOLDERS + 1],
    /// How many holders there are.
    count: usize,
}

impl Settled {
    /// The holders that caused the wait, and the part of each.
    pub(super) fn parts(&self) -> impl Iterator<Item = (u32, u64)> {
        self.holders.into_iter().zip(self.parts).take(self.count)
    }
}

/// Whether the thread has noted a wait that is not settled.
#[inline(always)]
pub(super) fn is_noted(thread: &Thread) -> bool {
    thread.pending.class.load(Relaxed) != 0
}

/// Adds the wait that the thread has noted, if any, to the sums in its table. The thread is the calling one, or is gone. Returns a
/// wait that was looked at closely.
#[inline(never)]
pub(super) fn settle(thread: &Thread, table: &Table) -> Option<Settled> {
    let pending = &thread.pending;
    let class = pending.class.load(Relaxed).checked_sub(1)?;
    let (start, nanos) = (pending.start.load(Relaxed), pending.nanos.load(Relaxed));
    let whole = Key {
        object: pending.object.load(Relaxed),
        serial: pending.serial.load(Relaxed),
        class,
        waiter: pending.waiter.load(Relaxed),
        holder: cause::WHOLE,
    };
    let weight = pending.weight.load(Relaxed);
    let mut settled = Settled { whole, start, nanos, weight, holders: [0; _], parts: [0; _], count: 0 };
    if weight != 0 {
        let parts = pending.holders.iter().zip(&pending.parts);
        for (holder, part) in parts.take_while(|(_, part)| part.load(Relaxed) != 0) {
            settled.holders[settled.count] = holder.load(Relaxed);
            settled.parts[settled.count] = part.load(Relaxed);
            settled.count += 1;
        }
    }
    // A signal handler that comes now may settle for the thread, but not the same wait again.
    pending.class.store(0, Relaxed);
    tallies::add(table, &Key { waiter: ALL_WAITS, ..whole }, 1, nanos);
    if weight != 0 {
        tallies::add(table, &whole, weight, nanos);
    }
    let most = &objects::counters(whole.object, whole.serial, class).wait_max;
    if most.load(Relaxed) < nanos {
        most.fetch_max(nanos, Relaxed);
    }
    if let Some(histogram) = objects::histogram(&record::<Class>(class).waits) {
        histogram.counts[bucket(nanos)].fetch_add(1, Relaxed);
    }
    if matches!(record::<Class>(class).kind.load(Relaxed), kind::CONDVAR | kind::SEMAPHORE) {
        add(&thread.sleeps, 1);
        add(&thread.sleep_nanos, nanos);
        return None;
    }
    add(&thread.waits, 1);
    add(&thread.wait_nanos, nanos);
    if weight == 0 {
        return None;
    }
    add_parts(table, &whole, weight, nanos, settled.parts());
    Some(settled)
}

/// Adds a wait that was looked at closely to the sums of its holders. `parts`: the holders that caused it, and the part of each.
pub(super) fn add_parts(
    table: &Table,
    whole: &Key,
    weight: u32,
    nanos: u64,
    parts: impl Iterator<Item = (u32, u64)>,
) {
    let mut rest = nanos;
    let part = |holder, nanos: u64| {
        tallies::add(table, &Key { holder, ..*whole }, weight, nanos);
    };
    for (holder, nanos) in parts {
        part(if holder == 0 { cause::UNKNOWN } else { holder }, nanos);
        rest = rest.saturating_sub(nanos);
    }
    if rest != 0 {
        part(if rest == nanos { cause::UNKNOWN } else { cause::HANDOVER }, rest);
    }
}

/// Adds to a number that only this thread writes.
fn add(number: &AtomicU64, more: u64) {
    number.store(number.load(Relaxed).wrapping_add(more), Relaxed);
}

//! What a wait adds to the records.
//!
//! A thread that has waited for a lock now holds it, and what it does delays the others. So it only notes its wait in its own
//! record ([`note`]), and adds it to its sums ([`tallies`]) after it has released the lock ([`settle`]).
//!
//! Each wait is in the exact sums ([`ALL_WAITS`]), in the histogram and in the thread's own sums. What is known of its stack
//! and of its holders is known for a part of the waits ([`sampling`](super::sampling)), and counts as often as the wait stands
//! for.

use super::account::Parts;
use super::file::{append, header, record};
use super::objects;
use super::tallies::{self, Key};
use super::threads::{Local, NOTED};
use core::sync::atomic::Ordering::*;
use latchwork_recording::histogram::bucket;
use latchwork_recording::layout::*;

/// The least waiting that one event stands for, in nanoseconds. It doubles with each eighth of the section that is
/// in use.
const FIRST_PERIOD: u64 = 10_000;

/// A wait of the calling thread.
pub(super) struct Wait {
    pub(super) object: u32,
    pub(super) serial: u32,
    pub(super) class: u32,
    pub(super) waiter: u32,
    pub(super) start: u64,
    pub(super) nanos: u64,
    /// For how many waits it stands that were not looked at closely; 0: it was not, either.
    pub(super) weight: u32,
}

/// The calling thread begins to wait for the lock at this address; 0: for something else.
pub(super) fn begin(local: &Local, address: usize, class: u32, waiter: u32, now: u64) {
    let thread = local.thread;
    local.waits_for.store(address, Relaxed);
    thread.waits_at.store(waiter, Relaxed);
    thread.waits_since.store(now, Relaxed);
    thread.waits_for.store(class + 1, Release);
}

/// The calling thread no longer waits.
pub(super) fn end(local: &Local, now: u64) {
    let thread = local.thread;
    local.waits_for.store(0, Relaxed);
    thread.waits_for.store(0, Relaxed);
    thread.seen.store(now, Relaxed);
}

/// Notes a wait that has ended. One that was noted before is settled first.
pub(super) fn note(local: &mut Local, wait: &Wait, parts: &Parts) {
    settle(local);
    let pending = &local.thread.pending;
    pending.object.store(wait.object, Relaxed);
    pending.serial.store(wait.serial, Relaxed);
    pending.waiter.store(wait.waiter, Relaxed);
    pending.start.store(wait.start, Relaxed);
    pending.nanos.store(wait.nanos, Relaxed);
    pending.weight.store(wait.weight, Relaxed);
    let mut noted = 0;
    for (holder, nanos) in parts.holders.iter().zip(parts.nanos).filter(|part| part.1 != 0) {
        pending.holders[noted].store(*holder, Relaxed);
        pending.parts[noted].store(nanos, Relaxed);
        noted += 1;
    }
    if noted <= HOLDERS {
        pending.parts[noted].store(0, Relaxed);
    }
    pending.class.store(wait.class + 1, Release);
    local.attention |= NOTED;
}

/// Whether the thread has noted a wait that is not settled.
#[inline(always)]
pub(super) fn is_noted(local: &Local) -> bool {
    local.thread.pending.class.load(Relaxed) != 0
}

/// Adds the wait that the calling thread has noted to the sums in its table, and makes it an event if it is chosen.
pub(super) fn settle(local: &mut Local) {
    local.attention &= !NOTED;
    if is_noted(local) {
        settle_for(local.thread, local.table, Some(local));
    }
}

/// As `settle`, for a thread that is gone.
pub(super) fn settle_late(thread: &Thread, table: &Table) {
    settle_for(thread, table, None);
}

#[inline(never)]
fn settle_for(thread: &Thread, table: &Table, local: Option<&mut Local>) {
    let pending = &thread.pending;
    let Some(class) = pending.class.load(Relaxed).checked_sub(1) else { return };
    let (start, nanos) = (pending.start.load(Relaxed), pending.nanos.load(Relaxed));
    let whole = Key {
        object: pending.object.load(Relaxed),
        serial: pending.serial.load(Relaxed),
        class,
        waiter: pending.waiter.load(Relaxed),
        holder: cause::WHOLE,
    };
    let mut parts = [(0, 0); HOLDERS + 1];
    let mut count = 0;
    while count <= HOLDERS && pending.parts[count].load(Relaxed) != 0 {
        parts[count] = (pending.holders[count].load(Relaxed), pending.parts[count].load(Relaxed));
        count += 1;
    }
    let weight = pending.weight.load(Relaxed);
    // A signal handler that comes now may settle for the thread, but not the same wait again.
    pending.class.store(0, Relaxed);
    tallies::add(table, &Key { waiter: ALL_WAITS, ..whole }, 1, nanos);
    let estimated = nanos.wrapping_mul(u64::from(weight));
    if weight != 0 {
        tallies::add(table, &whole, weight, estimated);
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
        return;
    }
    add(&thread.waits, 1);
    add(&thread.wait_nanos, nanos);
    if weight == 0 {
        return;
    }
    let mut rest = nanos;
    let part = |holder, nanos: u64| {
        tallies::add(table, &Key { holder, ..whole }, weight, nanos.wrapping_mul(u64::from(weight)));
    };
    for (holder, nanos) in &parts[..count] {
        part(if *holder == 0 { cause::UNKNOWN } else { *holder }, *nanos);
        rest = rest.saturating_sub(*nanos);
    }
    if rest != 0 {
        part(if rest == nanos { cause::UNKNOWN } else { cause::HANDOVER }, rest);
    }
    if let Some(local) = local {
        event(local, &whole, start, nanos, weight, &parts[..count]);
    }
}

/// Adds to a number that only this thread writes.
pub(super) fn add(number: &core::sync::atomic::AtomicU64, more: u64) {
    number.store(number.load(Relaxed).wrapping_add(more), Relaxed);
}

/// Records the wait as an event, if it is chosen: the thread's waiting, laid end to end, is cut into pieces of one period,
/// and the wait in which a piece ends is chosen. A wait is as long there as all for which it stands.
fn event(local: &mut Local, whole: &Key, start: u64, nanos: u64, weight: u32, parts: &[(u32, u64)]) {
    let section = &header().sections[EVENTS];
    let filled = u64::from(section.count.load(Relaxed)) * 8 / u64::from(section.capacity);
    let period = FIRST_PERIOD << filled;
    local.since_event += nanos.saturating_mul(u64::from(weight));
    if local.since_event < period {
        return;
    }
    let stands_for = local.since_event - local.since_event % period;
    local.since_event %= period;
    let Some(index) = append::<Event>(1) else { return };
    let handover = nanos.saturating_sub(parts.iter().map(|part| part.1).sum());
    let holder = match parts.iter().max_by_key(|part| part.1) {
        Some((0, most)) if *most >= handover => cause::UNKNOWN,
        Some((holder, most)) if *most >= handover => *holder,
        _ => cause::HANDOVER,
    };
    header().event_period.store(period, Relaxed);
    let event = record::<Event>(index);
    event.class.store(whole.class, Relaxed);
    event.object.store(whole.object, Relaxed);
    event.thread.store(local.thread_index, Relaxed);
    event.waiter.store(whole.waiter, Relaxed);
    event.holder.store(holder, Relaxed);
    event.start.store(start, Relaxed);
    event.nanos.store(nanos, Relaxed);
    event.stands_for.store(stands_for, Relaxed);
    event.state.store(READY, Release);
}

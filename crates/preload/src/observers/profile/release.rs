//! A call that releases a lock. [`calls`](super::calls) says what is recorded where.

use super::account::{Payment, pay};
use super::calls::*;
use super::entries::{FREE, FREE_READING, RECURSIVE, is_free, is_reading};
use super::file::record;
use super::threads::{self, Local, Place};
use super::{clock, entries, fast, filter, objects, pending, tallies, waits};
use core::sync::atomic::Ordering::*;
use latchwork_recording::histogram::bucket;
use latchwork_recording::layout::*;
use libc::c_int;

/// An unlock call. `NOTED`: the thread's table says that the thread has released the lock, also of a mutex or a spin lock.
///
/// # Safety
///
/// The object is live.
#[inline(always)]
pub(super) unsafe fn release<const NOTED: bool>(
    kind: u32,
    address: usize,
    mut below: impl FnMut() -> c_int,
) -> c_int {
    let nothing = if kind::is_rwlock(kind) {
        fast::is_nothing_to_release_of_rwlock(address)
    } else if NOTED {
        // SAFETY: the caller's object is live.
        fast::is_nothing_to_release_but_that(address, || unsafe {
            Call::new(kind, address, false).is_nested()
        })
    } else {
        fast::is_nothing_to_release(address)
    };
    if nothing {
        return below();
    }
    // SAFETY: the caller's object is live.
    unsafe { release_free(Call::new(kind, address, false), below) }
}

/// The release of a free section is in a function of its own, which saves no registers.
///
/// # Safety
///
/// The object is live.
#[inline(never)]
unsafe fn release_free(call: Call, mut below: impl FnMut() -> c_int) -> c_int {
    if fast::is_short_and_free(call.address) {
        return below();
    }
    // SAFETY: the caller's object is live.
    unsafe { release_long_way(call, below) }
}

/// # Safety
///
/// The object is live.
#[cold]
#[inline(never)]
unsafe fn release_long_way(call: Call, mut below: impl FnMut() -> c_int) -> c_int {
    let (kind, address) = (call.kind(), call.address);
    let Some(local) = &mut threads::current() else { return below() };
    if local.waited_for == address
        && !filter::is_watched(address)
        && let Some(entry) = local.shared.entries.of(address)
        && let depth @ (1 | READING | FREE | FREE_READING) = entry.depth.load(Relaxed)
    {
        entries::forget_old_hold(entry, depth);
        return release_waited(local, entry, address, is_reading(depth), below);
    }
    let Some(place) = local.known_place(kind, address) else { return below() };
    let entry = place.entry;
    let depth = entry.depth.load(Relaxed);
    // Without need, the thread does not look at a lock that others are trying to take.
    // SAFETY: the caller's object is live.
    if matches!(depth, 0 | RECURSIVE) && unsafe { call.is_nested() } {
        return below();
    }
    entries::forget_old_hold(entry, depth);
    let read = is_reading(depth);
    entry.depth.store(0, Relaxed);
    let open = entry.open.load(Relaxed) != 0;
    let debt = if open || filter::is_watched(address) { Debt::of(place, depth) } else { Debt::Nothing };
    if debt == Debt::Nothing
        && !pending::is_noted(local.thread)
        && (!open || entry.held_since.load(Relaxed) == 0)
    {
        entry.site.store(0, Relaxed);
        entry.held_since.store(0, Relaxed);
        local.close(entry);
        entries::note_release(entry);
        return below();
    }
    let held = releasing(local, place, read || kind::is_rwlock(kind) && depth == 0, debt);
    entries::note_release(entry);
    // The first holds of a thread each stand for themselves.
    let may_be_free =
        debt == Debt::Part && depth != RECURSIVE && held.weight != 0 && entry.first.load(Relaxed) == 0;
    let result = below();
    released(local, entry, address, &held);
    if may_be_free && entry.address.load(Relaxed) == address as u64 {
        local.has_paid(entry, address, held.nanos);
    }
    result
}

/// Releases a lock for which the thread has waited, while no thread looks closely. Until the lock is released, the thread
/// delays the others, and only reads the clock.
#[inline(always)]
fn release_waited(
    local: &mut Local,
    entry: &Entry,
    address: usize,
    read: bool,
    mut below: impl FnMut() -> c_int,
) -> c_int {
    let now = clock::now();
    let result = below();
    let site = u32::from(entry.site.load(Relaxed));
    let since = entry.held_since.load(Relaxed);
    entry.site.store(0, Relaxed);
    entry.held_since.store(0, Relaxed);
    entry.depth.store(0, Relaxed);
    local.thread.seen.store(now, Relaxed);
    local.close(entry);
    let weight = if since != 0 { entries::hold_weight(entry) } else { 0 };
    entries::note_release(entry);
    released(local, entry, address, &Held { nanos: now.saturating_sub(since), weight, read, site });
    result
}

/// What a thread that releases a lock owes to those that wait for it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Debt {
    /// Nothing.
    Nothing,
    /// Its part.
    Part,
    /// Its part, although its section is free: because that was long.
    Late,
}

impl Debt {
    /// The debt of the thread that has this entry. `depth`: the entry's depth while the thread held the lock.
    pub(super) fn of(place: Place, depth: u8) -> Self {
        let Place { entry, object: Some(object) } = place else { return Debt::Nothing };
        let waited_for = object.waiting.load(Relaxed) != 0;
        if !is_free(depth) {
            // Without waiters, it says that the account knows no holder any more.
            let pays = waited_for || object.holder.load(Relaxed) != 0;
            return if pays { Debt::Part } else { Debt::Nothing };
        }
        let since = entry.held_since.load(Relaxed);
        let late = waited_for && since != 0 && fast::is_long(clock::now().saturating_sub(since));
        if late { Debt::Late } else { Debt::Nothing }
    }
}

/// How a lock was held that is about to be released.
pub(super) struct Held {
    /// For how long, and for how many acquisitions that stands; 0: it was not measured.
    nanos: u64,
    weight: u32,
    read: bool,
    /// Where it was acquired; 0: that is not known.
    site: u32,
}

/// The part of [`release`] before the lock is released, if there is anything to record.
#[cold]
#[inline(never)]
pub(super) fn releasing(local: &mut Local, place: Place, read: bool, debt: Debt) -> Held {
    let entry = place.entry;
    let mut site = u32::from(entry.site.swap(0, Relaxed));
    let stands_for = entry.hot.load(Relaxed) >> HOT.count_ones();
    let now = clock::now();
    let since = entry.held_since.swap(0, Relaxed);
    let is_long = since != 0 && fast::is_long(now.saturating_sub(since));
    if debt != Debt::Nothing {
        let mut until = now;
        if site == 0 {
            let (caller, slot) = (entry.caller.load(Relaxed), entry.slot.load(Relaxed));
            site = local.stacks.capture_earlier(caller as usize, slot);
            until = clock::now();
        }
        if debt == Debt::Part {
            heat(entry);
        }
        // Of the sections for which this one stands, the long ones have paid for themselves.
        let weight = if is_long { 0 } else { stands_for };
        let payment = Payment { site: known(site), since, now: until, read, weight };
        pay(record(entry.object.load(Relaxed)), &payment);
    }
    local.thread.seen.store(now, Relaxed);
    let open = entry.open.load(Relaxed) != 0;
    let weight = match debt {
        Debt::Late => 1,
        Debt::Part if is_long && stands_for != 0 => 1,
        _ if open && since != 0 => entries::hold_weight(entry),
        _ => 0,
    };
    local.close(entry);
    Held { nanos: now.saturating_sub(since), weight, read, site }
}

/// The part after it.
#[cold]
#[inline(never)]
pub(super) fn released(local: &mut Local, entry: &Entry, address: usize, held: &Held) {
    if held.weight != 0 && entry.address.load(Relaxed) == address as u64 {
        let (object, class) = (entry.object.load(Relaxed), entry.class.load(Relaxed));
        let mut serial = 0;
        if object != NONE {
            let object = record::<Object>(object);
            serial = object.serial.load(Relaxed);
            let most = &object.counters.hold_max;
            if most.load(Relaxed) < held.nanos {
                objects::use_all(object);
                most.fetch_max(held.nanos, Relaxed);
            }
        }
        let waiter = if held.read { holds::READ } else { holds::WRITE };
        let key = tallies::Key { object, serial, class, waiter, holder: held.site };
        tallies::add(local.table, &key, held.weight, held.nanos);
        if let Some(histogram) = objects::histogram(&record::<Class>(class).holds) {
            histogram.counts[bucket(held.nanos)].fetch_add(u64::from(held.weight), Relaxed);
        }
    }
    waits::settle(local);
}

//! Lock and unlock calls: what is recorded in which.
//!
//! An uncontended call goes the short way ([`fast`]) if there is nothing to record but its number. The others go
//! through the functions here.
//!
//! | | what is recorded | where the thread pays for it |
//! |---|---|---|
//! | acquired at once | the number of calls; for some, how long the lock is held | before the attempt |
//! | waited | the length of the wait; how long the lock is held | before the wait; one reading of the clock behind it and one before the release; the rest after the release |
//! | waited, and is looked at closely ([`sampling`](super::sampling)) | also the stack, and the holders | as above, and the account ([`account`]) behind the wait |
//! | holds while a thread waits that looks closely | its stack, its part in the wait | its stack before the attempt if a thread waits by then, else before the release |

use super::account::{self, arrive, leave, pay, take};
use super::fast::{self, bump, bump_short};
use super::file::record;
use super::threads::{self, Inside, Local, NOTED, Place};
use super::{HOLD_PERIODS, HOT, LONG, MOST_MEASURED, TIMED, TIMED_PERIOD};
use super::{cpu_time, live, now, objects, stack, succession, tallies, waits};
use crate::state::abi::*;
use core::sync::atomic::Ordering::*;
use latchwork_recording::histogram::bucket;
use latchwork_recording::layout::*;
use libc::{EBUSY, ETIMEDOUT, c_int};

/// Whether a lock call acquired the lock. EOWNERDEAD: it acquired a robust mutex; the former holder has died.
pub(super) fn got(result: c_int) -> bool {
    result == 0 || result == libc::EOWNERDEAD
}

/// An object and what is asked of it. It has two fields, so that it is passed in registers.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) address: usize,
    /// The kind of object, and [`READ`].
    what: u32,
}

/// In [`Call`]: for reading.
const READ: u32 = 1 << 31;

/// Where the program made the call. The functions of `callers.c` know.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    /// The return address; 0: it is not known.
    pub(super) caller: usize,
    /// Where the return address lay.
    pub(super) slot: usize,
}

impl Call {
    #[inline(always)]
    pub(super) fn new(kind: u32, address: usize, read: bool) -> Self {
        Call { address, what: kind | if read { READ } else { 0 } }
    }

    #[inline(always)]
    pub(super) fn kind(self) -> u32 {
        self.what & !READ
    }

    #[inline(always)]
    fn is_read(self) -> bool {
        self.what & READ != 0
    }

    /// What [`Entry::depth`] is after the first acquisition.
    fn depth(self) -> u8 {
        if self.is_read() { READING } else { 1 }
    }

    /// Whether the object is a recursive mutex.
    ///
    /// # Safety
    ///
    /// The object is live.
    unsafe fn is_recursive(self) -> bool {
        // SAFETY: an object of this kind is a mutex, and the caller says that it is live.
        self.kind() == kind::MUTEX
            && unsafe {
                (*core::ptr::with_exposed_provenance::<Mutex>(self.address)).kind.load(Relaxed) & 3
                    == RECURSIVE
            }
    }
}

/// A lock call that may wait: `attempt` first, then `block`.
///
/// # Safety
///
/// The object is live.
#[inline(always)]
pub(super) unsafe fn acquire(
    call: Call,
    origin: Origin,
    attempt: impl Fn() -> c_int,
    block: impl FnMut() -> c_int,
) -> c_int {
    if fast::count(call.address, call.is_read(), origin.caller, origin.slot) {
        return match attempt() {
            0 => 0,
            // SAFETY: the caller's object is live.
            result => unsafe { counted_too_early(call, result, block) },
        };
    }
    // SAFETY: the caller's object is live.
    unsafe { acquire_long_way(call, origin, attempt, block) }
}

/// An attempt has failed that was counted as an acquisition.
///
/// # Safety
///
/// The object is live.
#[cold]
#[inline(never)]
unsafe fn counted_too_early(call: Call, result: c_int, mut block: impl FnMut() -> c_int) -> c_int {
    // SAFETY: the caller's object is live.
    unsafe { acquire_with(call, None, &|| result, &mut block) }
}

/// The closures come by value, so that the short way keeps nothing in memory for this.
///
/// # Safety
///
/// The object is live.
#[cold]
#[inline(never)]
unsafe fn acquire_long_way(
    call: Call,
    origin: Origin,
    attempt: impl Fn() -> c_int,
    mut block: impl FnMut() -> c_int,
) -> c_int {
    // SAFETY: the caller's object is live.
    unsafe { acquire_with(call, Some(origin), &attempt, &mut block) }
}

/// Without an `origin`, the call has been counted, its attempt has failed with another result than 0, and its origin is in the
/// thread's entry.
///
/// # Safety
///
/// The object is live.
#[inline(never)]
unsafe fn acquire_with(
    call: Call,
    origin: Option<Origin>,
    attempt: &dyn Fn() -> c_int,
    block: &mut dyn FnMut() -> c_int,
) -> c_int {
    let pass = |block: &mut dyn FnMut() -> c_int| match attempt() {
        EBUSY => block(),
        result => result,
    };
    let Some(local) = &mut threads::current() else { return pass(block) };
    let (origin, counted) = match origin {
        Some(origin) => (origin, false),
        None => (fast::take_back(local, call.address, call.is_read()), true),
    };
    let filter = fast::filter(call.address);
    let Some(place) = local.place(call.kind(), call.address) else { return pass(block) };
    let site = if counted { 0 } else { site(local, place, call) };
    match attempt() {
        result if got(result) => {
            // SAFETY: the caller's object is live.
            unsafe { acquired(local, place, call, origin, site, filter) };
            result
        }
        EBUSY => contended(local, place, call, site, block),
        error => error,
    }
}

/// A lock call that does not wait.
///
/// # Safety
///
/// The object is live.
#[inline(always)]
pub(super) unsafe fn attempt(call: Call, origin: Origin, attempt: impl Fn() -> c_int) -> c_int {
    if fast::count(call.address, call.is_read(), origin.caller, origin.slot) {
        return match attempt() {
            0 => 0,
            // SAFETY: the caller's object is live.
            result => unsafe { attempt_long_way(call, None, || result) },
        };
    }
    // SAFETY: the caller's object is live.
    unsafe { attempt_long_way(call, Some(origin), attempt) }
}

/// `origin`: as in [`acquire_with`].
///
/// # Safety
///
/// The object is live.
#[cold]
#[inline(never)]
unsafe fn attempt_long_way(call: Call, origin: Option<Origin>, attempt: impl Fn() -> c_int) -> c_int {
    let Some(local) = &mut threads::current() else { return attempt() };
    let (origin, counted) = match origin {
        Some(origin) => (origin, false),
        None => (fast::take_back(local, call.address, call.is_read()), true),
    };
    let filter = fast::filter(call.address);
    let Some(place) = local.place(call.kind(), call.address) else { return attempt() };
    let site = if counted { 0 } else { site(local, place, call) };
    let result = attempt();
    if got(result) {
        // SAFETY: the caller's object is live.
        unsafe { acquired(local, place, call, origin, site, filter) };
    } else if result == EBUSY {
        let failed = &place.entry.failed;
        failed.store(failed.load(Relaxed).saturating_add(1), Relaxed);
    }
    result
}

/// The calling thread's stack, if the lock was contended lately or threads wait for it now; else 0. It is captured before the
/// call, so that no thread waits for that.
#[inline(always)]
fn site(local: &mut Local, place: Place, call: Call) -> u32 {
    let hot = place.entry.hot.load(Relaxed) & HOT;
    if hot == 0 && !is_waited_for(place.object, call) {
        return 0;
    }
    place.entry.hot.store(hot.saturating_sub(1), Relaxed);
    stack::capture(local)
}

/// Whether threads wait for the object that look closely at their wait.
#[inline(always)]
fn is_waited_for(object: Option<&Object>, call: Call) -> bool {
    fast::is_watched(call.address) && object.is_some_and(|object| object.waiting.load(Relaxed) != 0)
}

/// The calling thread has the lock, without waiting. `filter`: the filter's value before the entry was checked.
///
/// # Safety
///
/// The object is live.
#[inline(always)]
pub(super) unsafe fn acquired(
    local: &mut Local,
    place: Place,
    call: Call,
    origin: Origin,
    site: u32,
    filter: u32,
) {
    let Place { entry, object } = place;
    bump(&entry.acquisitions);
    if call.is_read() {
        bump_short(&entry.reads);
    }
    // SAFETY: the caller's object is live.
    let recursive = unsafe { call.is_recursive() };
    if recursive {
        let depth = entry.depth.load(Relaxed);
        entry.depth.store(depth.saturating_add(1), Relaxed);
        if depth != 0 {
            return;
        }
    } else {
        entry.depth.store(call.depth(), Relaxed);
    }
    entry.site.store(site as u16, Relaxed);
    entry.caller.store(origin.caller as u64, Relaxed);
    entry.slot.store(origin.slot as u32, Relaxed);
    if recursive || site != 0 {
        local.open(entry);
    }
    if fast::is_watched(call.address)
        && let Some(object) = object
        && u64::from(object.waiting.load(Relaxed)) | object.last.load(Relaxed) != 0
    {
        return acquired_watched(local, place, object, call, site);
    }
    sample(local, place, call);
    if entry.first.load(Relaxed) == 0
        && entry.hot.load(Relaxed) & HOT == 0
        && !recursive
        && filter == fast::filter(call.address)
        && !fast::is_watched(call.address)
    {
        // The next calls take the short way.
        entry.filter.store(filter, Relaxed);
    }
}

/// Measures some of the acquisitions.
#[inline(always)]
fn sample(local: &mut Local, place: Place, call: Call) {
    let first = place.entry.first.load(Relaxed);
    if first != 0 {
        place.entry.first.store(first - 1, Relaxed);
        return measure(local, place, call, 0);
    }
    local.countdown = local.countdown.saturating_sub(1);
    if local.countdown == 0 {
        let weight = HOLD_PERIODS[usize::from(local.measured >= MOST_MEASURED)];
        local.measured = local.measured.saturating_add(1);
        local.countdown = local.around(1 << weight);
        measure(local, place, call, weight);
    }
}

/// Measures how long the calling thread holds the lock, and which thread has it next. `weight`: for how many acquisitions that
/// stands, the logarithm.
#[cold]
#[inline(never)]
fn measure(local: &mut Local, place: Place, call: Call, weight: u8) {
    let now = now();
    local.thread.seen.store(now, Relaxed);
    let index = place.entry.object.load(Relaxed);
    if index != NONE {
        succession::mark(local, record(index), call.address, weight);
    }
    if call.is_read() {
        succession::look(local, index, call.address, now);
    }
    place.entry.weight.store(weight, Relaxed);
    place.entry.held_since.store(now, Relaxed);
    local.open(place.entry);
    threads::flush_reads(place.entry);
    live::look(now);
}

/// The calling thread has the lock, while others wait for it, or shall compare itself with the thread before.
#[cold]
#[inline(never)]
fn acquired_watched(local: &mut Local, place: Place, object: &Object, call: Call, mut site: u32) {
    succession::compare(local, object, call.address);
    if object.waiting.load(Relaxed) == 0 {
        return sample(local, place, call);
    }
    if site == 0 {
        site = stack::capture(local);
    }
    succession::mark_some(local, object, call.address);
    // Behind free sections, this one stands for them, too.
    let weight = if local.free_calls == 0 { core::mem::take(&mut local.pay_weight) } else { 0 };
    let now = now();
    let entry = place.entry;
    entry.site.store(site as u16, Relaxed);
    heat(entry);
    entry.hot.store(HOT | weight << HOT.count_ones(), Relaxed);
    entry.weight.store(weight, Relaxed);
    entry.held_since.store(now, Relaxed);
    local.open(place.entry);
    take(object, known(site), now, call.is_read());
}

/// The next acquisitions capture their stack before the call.
fn heat(entry: &Entry) {
    entry.hot.store(HOT, Relaxed);
    fast::slow_down(entry);
}

/// A stack, or what stands for one that could not be captured.
fn known(site: u32) -> u32 {
    if site == 0 { cause::UNKNOWN } else { site }
}

/// The part of a lock call after a failed attempt.
#[cold]
#[inline(never)]
fn contended(
    local: &mut Inside,
    place: Place,
    call: Call,
    mut site: u32,
    block: &mut dyn FnMut() -> c_int,
) -> c_int {
    let entry = place.entry;
    let relocks = core::mem::take(&mut local.relocks) == call.address && call.kind() == kind::MUTEX;
    let weight = local.choose_wait(call.address);
    let (object_index, class) = (entry.object.load(Relaxed), entry.class.load(Relaxed));
    let object = (object_index != NONE).then(|| record::<Object>(object_index));
    let serial = object.map_or(0, |object| object.serial.load(Relaxed));
    // As in `Local::has_paid`.
    let free = weight == 0 && local.free_calls != 0 && !call.is_read();
    if free {
        local.free_calls -= 1;
    } else if site == 0 && (weight != 0 || is_waited_for(object, call)) {
        site = stack::capture(local);
    }
    let mut timed = None;
    if weight != 0 {
        local.waits = local.waits.saturating_add(1);
        timed = (local.waits <= TIMED || local.one_in(TIMED_PERIOD)).then(cpu_time);
    }
    let start = now();
    if weight > 1 {
        // The account knows only those that look closely.
        succession::look_at_waiters(local, object_index, call.address, start);
    }
    let before = object.filter(|_| weight != 0).map(|object| arrive(object, call.address, start));
    waits::begin(local, call.address, class, site, start);
    if call.kind() == kind::RWLOCK && !call.is_read() {
        succession::look(local, object_index, call.address, start);
    }
    let session = local.leave();
    let result = block();
    let end = now();
    let spun = timed.map(|before| cpu_time().saturating_sub(before));
    if !local.come_back(session) {
        return result;
    }
    waits::end(local, end);
    live::look(end);
    let nanos = end.saturating_sub(start);
    let got = got(result);
    let parts = match (object, &before) {
        (Some(object), Some(before)) => leave(object, call.address, before, nanos, end, got),
        _ => account::Parts::NONE,
    };
    if !got && result != ETIMEDOUT {
        // The call failed for another reason: it did not wait.
        return result;
    }
    local.learn(call.address, nanos);
    let hot = weight != 0;
    if got && let Some(object) = object {
        local.contended = local.contended.saturating_add(1);
        if before.is_some() || !free && fast::is_watched(call.address) {
            succession::compare(local, object, call.address);
            if site == 0 && object.waiting.load(Relaxed) != 0 {
                site = stack::capture(local);
            }
            take(object, known(site), end, call.is_read());
        }
        succession::mark_some(local, object, call.address);
    }
    if relocks {
        let counters = objects::counters(object_index, serial, class);
        counters.relocks.fetch_add(1, Relaxed);
        counters.relock_nanos.fetch_add(nanos, Relaxed);
    } else {
        if let Some(spun) = spun {
            let counters = objects::counters(object_index, serial, class);
            counters.timed_nanos.fetch_add(nanos * u64::from(weight), Relaxed);
            counters.spun_nanos.fetch_add(spun.min(nanos) * u64::from(weight), Relaxed);
        }
        let wait = waits::Wait { object: object_index, serial, class, waiter: site, start, nanos, weight };
        waits::note(local, &wait, &parts);
    }
    if !got {
        if !relocks {
            objects::counters(object_index, serial, class).timeouts.fetch_add(1, Relaxed);
            waits::settle(local);
        }
        return result;
    }
    // The entry may have gone to another object meanwhile, by a signal handler.
    if let Some(place) = local.known_place(call.kind(), call.address) {
        let entry = place.entry;
        bump(&entry.acquisitions);
        if call.is_read() {
            bump_short(&entry.reads);
        }
        entry.depth.store(if free { fast::FREE } else { call.depth() }, Relaxed);
        local.open(place.entry);
        entry.site.store(site as u16, Relaxed);
        entry.hot.store(entry.hot.load(Relaxed) & HOT, Relaxed);
        if hot {
            heat(entry);
        }
        entry.weight.store(0, Relaxed);
        // After a sleep the caches are cold, and this function has taken microseconds since `end`.
        entry.held_since.store(if hot && nanos > LONG { now() } else { end }, Relaxed);
    }
    result
}

/// An unlock call.
///
/// # Safety
///
/// The object is live.
#[inline(always)]
pub(super) unsafe fn release(kind: u32, address: usize, mut below: impl FnMut() -> c_int) -> c_int {
    let nothing = if kind == kind::RWLOCK {
        fast::is_nothing_to_release_of_rwlock(address)
    } else {
        fast::is_nothing_to_release(address)
    };
    if nothing {
        return below();
    }
    // SAFETY: the caller's object is live.
    unsafe { release_long_way(Call::new(kind, address, false), below) }
}

/// # Safety
///
/// The object is live.
#[cold]
#[inline(never)]
unsafe fn release_long_way(call: Call, mut below: impl FnMut() -> c_int) -> c_int {
    let (kind, address) = (call.kind(), call.address);
    let Some(local) = &mut threads::current() else { return below() };
    let Some(place) = local.known_place(kind, address) else { return below() };
    let Place { entry, object } = place;
    let depth = entry.depth.load(Relaxed);
    let read = depth == READING;
    // SAFETY: the caller's object is live.
    if depth > 1 && !read && unsafe { call.is_recursive() } {
        entry.depth.store(depth - 1, Relaxed);
        return below();
    }
    entry.depth.store(0, Relaxed);
    let open = entry.open.load(Relaxed) != 0;
    let paid = depth != fast::FREE
        && (open || fast::is_watched(address))
        && object.is_some_and(|object| object.waiting.load(Relaxed) | object.holder.load(Relaxed) != 0);
    if !paid && !waits::is_noted(local) && (!open || entry.held_since.load(Relaxed) == 0) {
        entry.site.store(0, Relaxed);
        local.close(entry);
        return below();
    }
    let held = releasing(local, place, read || kind == kind::RWLOCK && depth == 0, paid);
    let result = below();
    released(local, entry, address, &held);
    if paid && held.weight != 0 && entry.address.load(Relaxed) == address as u64 {
        local.has_paid(entry, address, held.nanos);
    }
    result
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
pub(super) fn releasing(local: &mut Local, place: Place, read: bool, paid: bool) -> Held {
    let entry = place.entry;
    let mut site = u32::from(entry.site.swap(0, Relaxed));
    let pay_weight = entry.hot.load(Relaxed) >> HOT.count_ones();
    let now = now();
    if paid {
        let mut until = now;
        if site == 0 {
            let (caller, slot) = (entry.caller.load(Relaxed), entry.slot.load(Relaxed));
            site = stack::capture_earlier(local, caller as usize, slot);
            until = self::now();
        }
        heat(entry);
        pay(record(entry.object.load(Relaxed)), known(site), until, read, pay_weight);
    }
    local.thread.seen.store(now, Relaxed);
    let open = entry.open.load(Relaxed) != 0;
    let since = entry.held_since.swap(0, Relaxed);
    let weight = if open && since != 0 { 1 << (entry.weight.load(Relaxed) % 32) } else { 0 };
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
            if object.counters.hold_max.load(Relaxed) < held.nanos {
                object.counters.hold_max.fetch_max(held.nanos, Relaxed);
            }
        }
        let waiter = if held.read { holds::READ } else { holds::WRITE };
        let key = tallies::Key { object, serial, class, waiter, holder: held.site };
        tallies::add(local.table, &key, held.weight, held.nanos * u64::from(held.weight));
        if let Some(histogram) = objects::histogram(&record::<Class>(class).holds) {
            histogram.counts[bucket(held.nanos)].fetch_add(u64::from(held.weight), Relaxed);
        }
    }
    if local.attention & NOTED != 0 {
        waits::settle(local);
    }
}

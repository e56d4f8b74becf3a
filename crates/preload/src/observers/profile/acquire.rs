//! The long way of a call that acquires a lock. [`calls`](super::calls) says what is recorded where.

use super::super::after_first_attempt;
use super::account::{Parts, Snapshot, arrive, leave, take};
use super::calls::*;
use super::entries::{self, FREE, RECURSIVE, bump, bump_short};
use super::fast::Way;
use super::file::record;
use super::tallies::{self, Key};
use super::threads::{self, HOLD_PERIODS, Inside, Local, MOST_MEASURED, Place};
use super::waits::{self, Wait};
use super::{at_once, clock, fast, filter, live, objects, pending, succession};
use core::sync::atomic::Ordering::*;
use latchwork_recording::layout::*;
use libc::{EBUSY, ETIMEDOUT, c_int};

/// Of a thread's waits that are looked at closely, the first so many have their CPU time measured, and then one in so many, which
/// stands for as many.
const TIMED: u32 = 8;
/// See [`TIMED`].
const TIMED_PERIOD: u32 = 16;

/// A wait of so many nanoseconds was probably spent asleep.
const LONG: u64 = 5_000;

/// A function below that takes less than so many nanoseconds has not waited.
const AT_ONCE: u64 = 1_000;

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
    // SAFETY: the caller's object is live.
    unsafe { acquire_at_once(call, origin, |_| None, |_| None, attempt, block) }
}

/// As [`acquire`]. On the short way `at_once` makes the attempt, if it can, with the thread's number. So does
/// `again` for a recursive mutex, and says whether the thread had it before.
///
/// # Safety
///
/// The object is live.
#[inline(always)]
pub(super) unsafe fn acquire_at_once(
    call: Call,
    origin: Origin,
    at_once: impl Fn(u32) -> Option<c_int>,
    again: impl Fn(u32) -> Option<(c_int, bool)>,
    attempt: impl Fn() -> c_int,
    block: impl FnMut() -> c_int,
) -> c_int {
    // SAFETY: the caller's object is live.
    unsafe {
        match fast::count(call, origin) {
            Way::Short(tid) => match at_once(tid) {
                Some(0) => 0,
                Some(result) => counted_too_early(call, result, block),
                None => acquire_counted(call, attempt, block),
            },
            Way::Recursive(entry, tid) => match again(tid) {
                Some((0, nested)) => {
                    fast::count_recursive(entry, origin, nested);
                    0
                }
                _ => acquire_recursive(call, origin, entry, attempt, block),
            },
            Way::Free(entry) => acquire_free(call, origin, entry, at_once, attempt, block),
            Way::Long => acquire_long_way(call, origin, attempt, block),
        }
    }
}

/// A call that is counted. It is a function of its own, so that its caller saves no registers.
///
/// # Safety
///
/// The object is live.
#[inline(never)]
unsafe fn acquire_counted(call: Call, attempt: impl Fn() -> c_int, block: impl FnMut() -> c_int) -> c_int {
    match attempt() {
        0 => 0,
        // SAFETY: the caller's object is live.
        result => unsafe { counted_too_early(call, result, block) },
    }
}

/// A call for a recursive mutex that has nothing to record but its number.
///
/// # Safety
///
/// The object is live.
#[inline(never)]
unsafe fn acquire_recursive(
    call: Call,
    origin: Origin,
    entry: &'static Entry,
    attempt: impl Fn() -> c_int,
    block: impl FnMut() -> c_int,
) -> c_int {
    let result = attempt();
    // SAFETY: the caller's object is live.
    unsafe {
        if got(result) {
            fast::count_recursive(entry, origin, call.is_nested());
            return result;
        }
        acquire_long_way(call, origin, attempt, block)
    }
}

/// An attempt has failed that was counted as an acquisition.
///
/// # Safety
///
/// The object is live.
#[cold]
#[inline(never)]
unsafe fn counted_too_early(call: Call, result: c_int, mut block: impl FnMut() -> c_int) -> c_int {
    let mut unrecorded = || match result {
        EBUSY => block(),
        _ => after_first_attempt(call.kind(), call.address, result),
    };
    let Some(local) = &mut threads::current() else { return unrecorded() };
    let origin = fast::take_back(local, call);
    let filter = filter::value(call.address);
    let Some(place) = local.place(call.kind(), call.address) else { return unrecorded() };
    match result {
        // SAFETY: the caller's object is live.
        EBUSY => unsafe { contended(local, place, call, 0, 0, &mut block) },
        result if got(result) => {
            // SAFETY: the caller's object is live.
            unsafe { acquired(local, place, call, origin, 0, filter) };
            result
        }
        error => after_first_attempt(call.kind(), call.address, error),
    }
}

/// A call while threads wait, for which this thread does not pay.
///
/// # Safety
///
/// The object is live.
#[inline(never)]
unsafe fn acquire_free(
    call: Call,
    origin: Origin,
    entry: &'static Entry,
    at_once: impl Fn(u32) -> Option<c_int>,
    attempt: impl Fn() -> c_int,
    block: impl FnMut() -> c_int,
) -> c_int {
    let tid = fast::count_free(call, origin, entry);
    match at_once(tid).unwrap_or_else(&attempt) {
        0 => 0,
        // SAFETY: the caller's object is live.
        result => unsafe { counted_too_early(call, result, block) },
    }
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
    unsafe { acquire_with(call, origin, &attempt, &mut block) }
}

/// # Safety
///
/// The object is live.
#[inline(never)]
unsafe fn acquire_with(
    call: Call,
    origin: Origin,
    attempt: &dyn Fn() -> c_int,
    block: &mut dyn FnMut() -> c_int,
) -> c_int {
    let pass = |block: &mut dyn FnMut() -> c_int| match attempt() {
        EBUSY => block(),
        result => after_first_attempt(call.kind(), call.address, result),
    };
    // The recording of a new thread begins here, which takes a while.
    let begin = if threads::is_new() { clock::now() } else { 0 };
    let Some(local) = &mut threads::current() else { return pass(block) };
    let filter = filter::value(call.address);
    let Some(place) = local.place(call.kind(), call.address) else { return pass(block) };
    let site = site(local, place, call);
    match attempt() {
        result if got(result) => {
            // SAFETY: the caller's object is live.
            unsafe { acquired(local, place, call, origin, site, filter) };
            result
        }
        // SAFETY: the caller's object is live.
        EBUSY => unsafe { contended(local, place, call, site, begin, block) },
        error => after_first_attempt(call.kind(), call.address, error),
    }
}

/// The calling thread's stack, if the lock was contended lately or threads wait for it now; else 0. It is captured before the
/// call, so that no thread waits for that.
#[inline(always)]
pub(super) fn site(local: &mut Local, place: Place, call: Call) -> u32 {
    let hot = place.entry.hot.load(Relaxed) & HOT;
    if hot == 0 && !is_waited_for(place.object, call) {
        return 0;
    }
    place.entry.hot.store(hot.saturating_sub(1), Relaxed);
    local.stacks.capture()
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
    let (recursive, nested) = unsafe { (call.is_recursive(), call.is_nested()) };
    if nested {
        bump_short(&entry.reads);
        return;
    }
    entry.depth.store(if recursive { RECURSIVE } else { call.depth() }, Relaxed);
    if entry.open.load(Relaxed) == 0 {
        // A free section may have left when it began.
        entry.held_since.store(0, Relaxed);
    }
    entry.site.store(site as u16, Relaxed);
    entry.caller.store(origin.caller as u64, Relaxed);
    entry.slot.store(origin.slot as u32, Relaxed);
    if site != 0 {
        local.open(entry);
    }
    if filter::is_watched(call.address)
        && let Some(object) = object
        && u64::from(object.waiting.load(Relaxed)) | object.last.load(Relaxed) != 0
    {
        return acquired_watched(local, place, object, call, site);
    }
    sample(local, place, call);
    if entry.first.load(Relaxed) == 0
        && entry.hot.load(Relaxed) & HOT == 0
        && filter == filter::value(call.address)
        && !filter::is_watched(call.address)
    {
        // The next calls take the short way.
        entry.filter.store(filter::expected(filter, recursive), Relaxed);
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
    if local.countdown > 1 {
        local.countdown -= 1;
    } else {
        let weight = HOLD_PERIODS[usize::from(local.measured >= MOST_MEASURED)];
        local.measured = local.measured.saturating_add(1);
        local.countdown = local.chance.around(1 << weight);
        measure(local, place, call, weight);
    }
}

/// Measures how long the calling thread holds the lock, and which thread has it next. `weight`: for how many acquisitions that
/// stands, the logarithm.
#[cold]
#[inline(never)]
fn measure(local: &mut Local, place: Place, call: Call, weight: u8) {
    let now = clock::now();
    local.thread.seen.store(now, Relaxed);
    let index = place.entry.object.load(Relaxed);
    if index != NONE {
        succession::mark(local, record(index), call.address, weight);
    }
    if call.is_read() {
        succession::look(local, index, call.address, now);
    }
    entries::begin_hold(place.entry, weight, now);
    local.open(place.entry);
    entries::flush_short(place.entry);
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
        site = local.stacks.capture();
    }
    succession::mark_some(local, object, call.address);
    // Behind free sections, this one stands for them, too.
    let weight = if local.free_calls == 0 { core::mem::take(&mut local.pay_weight) } else { 0 };
    let now = clock::now();
    let entry = place.entry;
    entry.site.store(site as u16, Relaxed);
    heat(entry);
    entry.hot.store(HOT | weight << HOT.count_ones(), Relaxed);
    entries::begin_hold(entry, weight, now);
    is_measured(entry);
    entries::flush_short(entry);
    local.open(place.entry);
    take(object, known(site), now, call.is_read());
}

/// A wait of the calling thread, as it is known before it begins.
struct Waiting {
    object_index: u32,
    object: Option<&'static Object>,
    serial: u32,
    class: u32,
    /// The stack, if it was captured.
    site: u32,
    start: u64,
    /// For how many waits it stands; 0: it is only counted.
    weight: u32,
    /// The thread need not pay for those that wait meanwhile. See `Local::has_paid`.
    free: bool,
    /// The mutex is taken again after a wait for a condition variable.
    relocks: bool,
    /// What [`Entry::depth`] is when the thread has the lock.
    depth: u8,
}

impl Waiting {
    /// Calls the function below. `None`: the recording has ended meanwhile. Otherwise, when that function returned.
    #[inline(always)]
    fn wait(&self, local: &Inside, call: Call, block: &mut dyn FnMut() -> c_int) -> (c_int, Option<u64>) {
        // SAFETY: the caller's object is live.
        let holder = unsafe { at_once::holder(call.kind(), call.address) };
        let what = (self.object_index, self.class);
        waits::begin_for(local, (call.address, holder), what, self.site, self.start);
        let session = local.leave();
        let result = block();
        let end = clock::now();
        let goes_on = local.come_back(session);
        if goes_on {
            waits::end(local, end);
        }
        (result, goes_on.then_some(end))
    }

    /// The wait, when it has ended.
    #[inline(always)]
    fn ended(&self, end: u64) -> Wait {
        let nanos = end.saturating_sub(self.start);
        let &Waiting { object_index: object, serial, class, site: waiter, start, weight, .. } = self;
        Wait { object, serial, class, waiter, start, nanos, weight }
    }
}

/// The part of a lock call after a failed attempt. `begin`: when the call began, if the thread had much to do before the
/// attempt; else 0.
///
/// # Safety
///
/// The object is live.
#[cold]
#[inline(never)]
unsafe fn contended(
    local: &mut Inside,
    place: Place,
    call: Call,
    site: u32,
    begin: u64,
    block: &mut dyn FnMut() -> c_int,
) -> c_int {
    // What follows is a part of the wait: meanwhile the thread does not run the program. If other threads have the processors,
    // it may take long.
    let start = if begin == 0 { clock::now() } else { begin };
    // The thread may hold another lock, for which it has waited: then this is a better moment than behind the wait.
    waits::settle(local);
    let entry = place.entry;
    let relocks = core::mem::take(&mut local.relocks) == call.address && call.kind() == kind::MUTEX;
    let Local { rates, chance, .. } = &mut **local;
    let weight = rates.choose(chance, call.address);
    let (object_index, class) = (entry.object.load(Relaxed), entry.class.load(Relaxed));
    let object = (object_index != NONE).then(|| record::<Object>(object_index));
    let serial = object.map_or(0, |object| object.serial.load(Relaxed));
    // SAFETY: the caller's object is live.
    let recursive = unsafe { call.is_recursive() };
    let free = weight == 0 && local.free_calls != 0 && !call.is_read() && !recursive;
    if free {
        local.free_calls -= 1;
    }
    let depth = match () {
        () if free => FREE,
        () if recursive => RECURSIVE,
        () => call.depth(),
    };
    let waiting = Waiting { object_index, object, serial, class, site, start, weight, free, relocks, depth };
    if kind::is_rwlock(call.kind()) && !call.is_read() {
        succession::look(local, object_index, call.address, start);
    }
    let is_closer = weight != 0 || site != 0 || relocks || !free && filter::is_watched(call.address);
    if is_closer {
        return wait_closely(local, call, waiting, block);
    }
    waits::expect(local, &waiting.ended(start));
    let (result, end) = waiting.wait(local, call, block);
    let Some(end) = end else { return result };
    if result != 0
        || entry.address.load(Relaxed) != call.address as u64
        || !free && filter::is_watched(call.address)
    {
        return waited(local, call, &waiting, end, None, None, result);
    }
    // From here on the thread delays the others: it does no more than it must.
    has(local, entry, call, depth, end);
    waits::note_expected(local, call.address, &waiting.ended(end));
    if let Some(object) = object {
        succession::mark_some(local, object, call.address);
    }
    result
}

/// The calling thread has waited for the lock, and has it now.
#[inline(always)]
fn has(local: &mut Local, entry: &Entry, call: Call, depth: u8, since: u64) {
    bump(&entry.acquisitions);
    if call.is_read() {
        bump_short(&entry.reads);
    }
    entry.depth.store(depth, Relaxed);
    entry.site.store(0, Relaxed);
    entry.hot.store(entry.hot.load(Relaxed) & HOT, Relaxed);
    entries::begin_hold(entry, 0, since);
    is_measured(entry);
    local.open(entry);
}

/// One more acquisition has its hold time measured.
#[inline(always)]
fn is_measured(entry: &Entry) {
    entry.first.store(entry.first.load(Relaxed).saturating_sub(1), Relaxed);
}

/// Waits while the thread, or another one, looks closely.
#[cold]
#[inline(never)]
fn wait_closely(
    local: &mut Inside,
    call: Call,
    mut waiting: Waiting,
    block: &mut dyn FnMut() -> c_int,
) -> c_int {
    let weight = waiting.weight;
    let object = waiting.object;
    if waiting.site == 0 && !waiting.free && (weight != 0 || is_waited_for(object, call)) {
        waiting.site = local.stacks.capture();
    }
    let mut timed = None;
    if weight != 0 {
        local.waits = local.waits.saturating_add(1);
        let stands_for = if local.waits <= TIMED { 1 } else { TIMED_PERIOD };
        if stands_for == 1 || local.chance.one_in(TIMED_PERIOD) {
            timed = Some((stands_for, clock::cpu_time()));
        }
    }
    if weight > 1 {
        // The account knows only those that look closely.
        succession::look_at_waiters(local, waiting.object_index, call.address, waiting.start);
    }
    let before = object.filter(|_| weight != 0).map(|object| arrive(object, call.address, waiting.start));
    let ready = clock::now();
    let (result, end) = waiting.wait(local, call, block);
    let spun = timed.map(|(stands_for, before)| (stands_for, clock::cpu_time().saturating_sub(before)));
    let Some(end) = end else { return result };
    if end.saturating_sub(ready) < AT_ONCE {
        // The lock became free while this function looked closely. How long the thread would have waited is not known.
        waiting.start = ready;
    }
    waited(local, call, &waiting, end, before.as_ref(), spun, result)
}

/// A wait has ended. `before`: the account when it began, if the thread looks closely; `spun`: its CPU time, if that was
/// measured, and for how many waits that are looked at closely it stands.
#[cold]
#[inline(never)]
fn waited(
    local: &mut Local,
    call: Call,
    waiting: &Waiting,
    end: u64,
    before: Option<&Snapshot>,
    spun: Option<(u32, u64)>,
    result: c_int,
) -> c_int {
    let &Waiting { object, mut site, free, weight, depth, .. } = waiting;
    let nanos = end.saturating_sub(waiting.start);
    let got = got(result);
    let parts =
        object.zip(before).map(|(object, before)| leave(object, call.address, before, nanos, end, got));
    if !got && result != ETIMEDOUT {
        // The call failed for another reason: it did not wait.
        return result;
    }
    if got && let Some(object) = object {
        if before.is_some() || !free && filter::is_watched(call.address) {
            succession::compare(local, object, call.address);
            if site == 0 && object.waiting.load(Relaxed) != 0 {
                site = local.stacks.capture();
            }
            take(object, known(site), end, call.is_read());
        }
        succession::mark_some(local, object, call.address);
    }
    let counters = || objects::counters(waiting.object_index, waiting.serial, waiting.class);
    local.rates.learn(call.address, nanos);
    if waiting.relocks {
        counters().relocks.fetch_add(1, Relaxed);
        counters().relock_nanos.fetch_add(nanos, Relaxed);
        local.relock_nanos += nanos;
        if weight != 0 {
            relocked(local, &Wait { waiter: site, ..waiting.ended(end) }, parts.as_ref());
        }
    } else {
        if let Some((stands_for, spun)) = spun {
            let all = u64::from(weight) * u64::from(stands_for);
            counters().timed_nanos.fetch_add(nanos * all, Relaxed);
            counters().spun_nanos.fetch_add(spun.min(nanos) * all, Relaxed);
        }
        let wait = Wait { waiter: site, ..waiting.ended(end) };
        waits::note(local, 0, &wait, parts.as_ref());
    }
    if !got {
        if !waiting.relocks {
            counters().timeouts.fetch_add(1, Relaxed);
            waits::settle(local);
        }
        return result;
    }
    // The entry may have gone to another object meanwhile, by a signal handler.
    if let Some(Place { entry, .. }) = local.known_place(call.kind(), call.address) {
        // After a sleep the caches are cold, and this function has taken microseconds since `end`.
        let since = if weight != 0 && nanos > LONG { clock::now() } else { end };
        has(local, entry, call, depth, since);
        entry.site.store(site as u16, Relaxed);
        if weight != 0 {
            heat(entry);
        }
    }
    result
}

/// Adds a wait that was looked at closely to the sums of its holders: the thread has its mutex again, after a wait for a condition
/// variable. (It notes no wait: it will note the one for the condition.)
#[cold]
#[inline(never)]
fn relocked(local: &Local, wait: &Wait, parts: Option<&Parts>) {
    let &Wait { object, serial, class, waiter, nanos, weight, .. } = wait;
    let whole = Key { object, serial, class, waiter: waiter | RELOCK, holder: cause::WHOLE };
    tallies::add(local.table, &whole, weight, nanos);
    let parts = parts.into_iter().flat_map(|parts| parts.holders.into_iter().zip(parts.nanos));
    pending::add_parts(local.table, &whole, weight, nanos, parts.filter(|part| part.1 != 0));
}

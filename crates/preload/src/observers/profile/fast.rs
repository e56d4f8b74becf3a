//! The short way of an uncontended call: what an acquisition costs if there is nothing to record but its number.
//!
//! An entry of the thread's table says that it is valid and that nothing is to be measured ([`Entry::filter`]). Then the thread
//! adds one to the entry's counter *before* it tries the lock ([`count`]), and executes nothing more when it has it: the
//! section is as long as without the recorder. (If the attempt fails, the thread takes the one back.) An unlock call looks at
//! two words ([`is_nothing_to_release`]).
//!
//! Everything else sends the call the long way. The thread's own reasons are in its entry, and in [`Local::attention`]. Those of
//! other threads are in the [`filter`]. So a thread that acquires a lock without contention reads a word that other threads
//! seldom write, and writes only to lines of its own.
//!
//! While threads wait for a lock, most of its short sections are *free* ([`Local::has_paid`]). A free section goes nearly the same
//! way ([`count_free`]), and reads the clock at both ends.
//!
//! A call on the short way does not say that it is inside ([`live`](super::live)). So the memory of the tables stays mapped when
//! the recording ends: it becomes memory without a file, and the next recording takes its place. A thread that was preempted
//! on the short way while the recording was switched off and on again may add one to a count of the new recording.

use super::calls::{Call, Origin};
use super::entries::{self, FREE, FREE_READING, RECURSIVE, bump, bump_short};
use super::filter::{self, WATCHED};
use super::threads::{self, Current, Local};
use super::{clock, session};
use core::sync::atomic::Ordering::*;
use latchwork_recording::layout::{Entry, kind};

/// While threads wait, a thread whose sections are short pays its part about once in so many nanoseconds.
const PAY_PERIOD: u64 = 20_000;
/// A thread pays at least once in two to this power sections.
const LEAST: u32 = 8;

impl Local {
    /// The thread has held a lock for so long while threads waited, and has paid its part. If that was short, then a thread that
    /// waits for long would slow down all the others: each of their sections would have to be accounted for. So of the next
    /// sections some are free, and the one that pays then pays for these, too. Their number is random, so the sums are
    /// unbiased. (The thread has had its first holds of the object, which are all measured.)
    ///
    /// That holds for sections that are not longer than [`PAY_PERIOD`]. Among hundreds of short sections there may be a long one,
    /// which causes most of the waiting. So a longer section pays for itself, and for no other, whether or not it is free
    /// ([`is_long`]).
    pub(super) fn has_paid(&mut self, entry: &Entry, address: usize, nanos: u64) {
        let weight = (PAY_PERIOD / nanos.max(1)).max(1).ilog2().min(LEAST);
        if weight != 0 {
            self.free_calls = self.chance.around(1 << weight) - 1;
            self.pay_weight = weight as u8;
            entry.hot.store(0, Relaxed);
            entry.filter.store(filter::value(address) & !WATCHED, Relaxed);
        }
    }
}

/// What [`count`] says of an acquisition.
pub(super) enum Way {
    /// It is counted. The number is the thread's, as glibc knows it.
    Short(u32),
    /// The thread counts it in this entry when it has the lock ([`count_recursive`]). The object is a recursive mutex, which says only
    /// then whether the thread had it before. The number is as above.
    Recursive(&'static Entry, u32),
    /// The thread may count it in this entry as a free section ([`count_free`]).
    Free(&'static Entry),
    /// Nothing is counted.
    Long,
}

/// Counts an acquisition that the calling thread is about to try.
#[inline(always)]
pub(super) fn count(call: Call, origin: Origin) -> Way {
    let Some(local) = threads::known(Current::get()) else { return Way::Long };
    if local.session() != session::number() {
        return Way::Long;
    }
    let mixed = filter::mix(call.address);
    let Some(entry) = local.shared.entries.of_mixed(mixed, call.address) else { return Way::Long };
    let now = filter::at(mixed).load(Relaxed);
    // SAFETY: only the calling thread writes it. An ordinary load can be a part of the comparison.
    if unsafe { *entry.filter.as_ptr() } != now {
        let own = entry.filter.load(Relaxed);
        let recursive = call.kind() == kind::MUTEX && own == filter::expected(now, true);
        return match () {
            () if own == now & !WATCHED && local.free_calls != 0 => Way::Free(entry),
            () if recursive && local.countdown > 1 => Way::Recursive(entry, local.tid),
            () => Way::Long,
        };
    }
    local.countdown = local.countdown.wrapping_sub(1);
    if local.countdown == 0 {
        // The long way counts down, too.
        local.countdown = 1;
        return Way::Long;
    }
    note(entry, call.is_read(), call.depth(), origin.caller, origin.slot);
    Way::Short(local.tid)
}

/// The calling thread's entry for an object that is no lock, if there is nothing to record of a call but its number.
#[inline(always)]
pub(super) fn entry(address: usize) -> Option<&'static Entry> {
    let local = threads::known(Current::get())?;
    if local.session() != session::number() {
        return None;
    }
    let mixed = filter::mix(address);
    let entry = local.shared.entries.of_mixed(mixed, address)?;
    (entry.filter.load(Relaxed) == filter::at(mixed).load(Relaxed)).then_some(entry)
}

/// Counts an acquisition of a recursive mutex. `nested`: the thread had it before.
#[inline(always)]
pub(super) fn count_recursive(entry: &Entry, origin: Origin, nested: bool) {
    if nested {
        bump(&entry.acquisitions);
        return bump_short(&entry.reads);
    }
    if let Some(local) = threads::known(Current::get()) {
        local.countdown = local.countdown.saturating_sub(1).max(1);
    }
    note(entry, false, RECURSIVE, origin.caller, origin.slot);
}

/// Counts an acquisition that the calling thread is about to try: threads wait, and this thread need not pay each time
/// ([`Local::has_paid`]).
///
/// The section that pays is measured, and stands for this one. So this one does not count down to the next sample. (If it did, and
/// the countdown were over, each section would pay until no thread waits.)
///
/// Returns the thread's number, as glibc knows it.
#[inline(always)]
pub(super) fn count_free(call: Call, origin: Origin, entry: &Entry) -> u32 {
    let mut tid = 0;
    if let Some(local) = threads::known(Current::get()) {
        local.free_calls -= 1;
        tid = local.tid;
    }
    let depth = if call.is_read() { FREE_READING } else { FREE };
    note(entry, call.is_read(), depth, origin.caller, origin.slot);
    entry.held_since.store(clock::now(), Relaxed);
    tid
}

/// Notes in the thread's entry that it is about to try the lock.
#[inline(always)]
fn note(entry: &Entry, read: bool, depth: u8, caller: usize, slot: usize) {
    bump(&entry.acquisitions);
    if read {
        bump_short(&entry.reads);
    }
    entry.depth.store(depth, Relaxed);
    entry.caller.store(caller as u64, Relaxed);
    entry.slot.store(slot as u32, Relaxed);
}

/// Takes back what [`count`] or [`count_free`] has counted: the attempt has failed. Returns where the call was made.
#[cold]
#[inline(never)]
pub(super) fn take_back(local: &mut Local, call: Call) -> Origin {
    let (address, read, rwlock) = (call.address, call.is_read(), kind::is_rwlock(call.kind()));
    let Some(entry) = local.shared.entries.of(address) else { return Origin { caller: 0, slot: 0 } };
    entry.acquisitions.store(entry.acquisitions.load(Relaxed).saturating_sub(1), Relaxed);
    if entries::is_free(entry.depth.load(Relaxed)) {
        local.free_calls += 1;
    }
    if read {
        entry.reads.store(entry.reads.load(Relaxed).saturating_sub(1), Relaxed);
    }
    // The depth is that of the attempt. Of a rwlock it is not known what it was before.
    let still_holds = !rwlock && entries::holds(entry);
    entry.depth.store(if still_holds { 1 } else { 0 }, Relaxed);
    Origin { caller: entry.caller.load(Relaxed) as usize, slot: entry.slot.load(Relaxed) as usize }
}

/// Whether a section of so many nanoseconds pays for itself, and only for itself.
pub(super) fn is_long(nanos: u64) -> bool {
    nanos > PAY_PERIOD
}

/// Whether the release of a lock has nothing to record.
#[inline(always)]
pub(super) fn is_nothing_to_release(address: usize) -> bool {
    match threads::known(Current::get()) {
        Some(local) => local.attention == 0 && !filter::is_watched(address),
        None => false,
    }
}

/// As [`is_nothing_to_release`]. Then it notes that the thread has released the lock: so the tables say which thread holds it. `is_nested`
/// says of a recursive mutex that the thread holds whether it will hold it afterwards, too.
#[inline(always)]
pub(super) fn is_nothing_to_release_but_that(address: usize, is_nested: impl FnOnce() -> bool) -> bool {
    let Some(local) = threads::known(Current::get()) else { return false };
    if local.attention != 0 || local.session() != session::number() {
        return false;
    }
    let mixed = filter::mix(address);
    if filter::at(mixed).load(Relaxed) & WATCHED != 0 {
        return false;
    }
    let Some(entry) = local.shared.entries.of_mixed(mixed, address) else { return false };
    if entry.depth.load(Relaxed) != RECURSIVE || !is_nested() {
        entries::note_release(entry);
    }
    true
}

/// As [`is_nothing_to_release`], of a rwlock. Then it notes that a reader has left.
#[inline(always)]
pub(super) fn is_nothing_to_release_of_rwlock(address: usize) -> bool {
    let Some(local) = threads::known(Current::get()) else { return false };
    if local.attention != 0 || local.session() != session::number() {
        return false;
    }
    let mixed = filter::mix(address);
    if filter::at(mixed).load(Relaxed) & WATCHED != 0 {
        return false;
    }
    let Some(entry) = local.shared.entries.of_mixed(mixed, address) else { return false };
    entry.depth.store(0, Relaxed);
    true
}

/// Whether the release of a lock that is watched has nothing to record: the thread holds it in a free section, which was short.
/// Then it notes that the thread has released the lock.
#[inline(always)]
pub(super) fn is_short_and_free(address: usize) -> bool {
    let Some(local) = threads::known(Current::get()) else { return false };
    if local.attention != 0 || local.session() != session::number() {
        return false;
    }
    let Some(entry) = local.shared.entries.of(address) else { return false };
    if !entries::is_free(entry.depth.load(Relaxed))
        || is_long(clock::now().saturating_sub(entry.held_since.load(Relaxed)))
    {
        return false;
    }
    entry.depth.store(0, Relaxed);
    entries::note_release(entry);
    true
}

//! The short way of an uncontended call: what an acquisition costs if there is nothing to record but its number.
//!
//! An entry of the thread's table says that it is valid and that nothing is to be measured ([`Entry::filter`]). Then the thread
//! adds one to the entry's counter *before* it tries the lock ([`count`]), and executes nothing more when it has it: the
//! section is as long as without the recorder. (If the attempt fails, the thread takes the one back.) An unlock call looks at
//! two words ([`is_nothing_to_release`]).
//!
//! Everything else sends the call the long way. The thread's own reasons are in its entry, and in [`Local::attention`]. Those of
//! other threads are in [`FILTER`]: a number for each hash of an address, in two parts.
//!
//! | part | counts | a change says |
//! |---|---|---|
//! | low 16 bits | threads that wait for an object and shall know its holders; objects whose next owner shall compare itself | while it is not 0, calls go the long way |
//! | high 16 bits | objects that are gone | entries for the address must be checked again |
//!
//! So a thread that acquires a lock without contention reads a word that other threads seldom write, and writes only to lines
//! of its own.
//!
//! A call on the short way does not say that it is inside ([`live`]). So the memory of the tables stays mapped when
//! the recording ends: it becomes memory without a file, and the next recording takes its place. A thread that was preempted
//! on the short way while the recording was switched off and on again may add one to a count of the new recording.

use super::live;
use super::locks::Origin;
use super::threads::{self, Current, Local};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use latchwork_recording::layout::{ENTRIES, Entry, MORE_ENTRIES, READING};

/// Numbers in the filter: 16 KiB, so that objects of one program seldom share one.
const FILTERS: usize = 4096;

/// See the [module](self).
static FILTER: [AtomicU32; FILTERS] = [const { AtomicU32::new(0) }; FILTERS];
const WATCHED: u32 = 0xffff;
const GONE: u32 = WATCHED + 1;

/// In [`Entry::filter`]: calls go the long way. No number in the filter has this value, because there are fewer threads.
pub(super) const LONG_WAY: u32 = WATCHED;

/// Mixes an address. The upper bits are the best.
#[inline(always)]
fn mix(address: usize) -> u64 {
    (address as u64 >> 2).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The slot of an address in a table with so many slots, a power of two.
#[inline(always)]
pub(super) fn slot(address: usize, slots: usize) -> usize {
    (mix(address) >> 32) as usize % slots
}

#[inline(always)]
fn filter_at(mixed: u64) -> &'static AtomicU32 {
    &FILTER[(mixed >> (u64::BITS - FILTERS.ilog2())) as usize]
}

/// The number in the filter for an address.
#[inline(always)]
pub(super) fn filter(address: usize) -> u32 {
    filter_at(mix(address)).load(Relaxed)
}

/// Whether the filter sends calls for this address the long way.
#[inline(always)]
pub(super) fn is_watched(address: usize) -> bool {
    filter(address) & WATCHED != 0
}

/// From here on, calls for this address go the long way in all threads, until as many calls of [`unwatch`].
pub(super) fn watch(address: usize) {
    filter_at(mix(address)).fetch_add(1, Relaxed);
}

/// See [`watch`].
pub(super) fn unwatch(address: usize) {
    filter_at(mix(address)).fetch_sub(1, Relaxed);
}

/// The object at this address is gone.
pub(super) fn gone(address: usize) {
    filter_at(mix(address)).fetch_add(GONE, Relaxed);
}

/// Nobody watches. No thread is in a call of the layer.
pub(super) fn clear_all() {
    for filter in &FILTER {
        let now = filter.load(Relaxed);
        // A page that was never written stays unwritten.
        if now & WATCHED != 0 {
            filter.store(now & !WATCHED, Relaxed);
        }
    }
}

/// The two places at which a thread with [`Local::mask`] can have an entry for an object.
#[inline(always)]
pub(super) fn places(address: usize, mask: u32) -> [usize; 2] {
    places_of(mix(address), mask)
}

#[inline(always)]
fn places_of(mixed: u64, mask: u32) -> [usize; 2] {
    const { assert!(ENTRIES.is_power_of_two() && MORE_ENTRIES == FILTERS) };
    let first = (mixed >> (u64::BITS - FILTERS.ilog2())) as usize & mask as usize;
    [first, first ^ 1]
}

/// In [`Entry::depth`]: the thread holds the lock (a rwlock: for reading or writing), and does not pay its part in waits.
pub(super) const FREE: u8 = READING - 1;

/// While threads wait, a thread whose sections are short pays its part about once in so many nanoseconds.
const PAY_PERIOD: u64 = 20_000;
/// A thread pays at least once in two to this power sections.
const LEAST: u32 = 8;

impl Local {
    /// The thread has held a lock for so long while threads waited, and has paid its part. If that was short, then a thread that
    /// waits for long would slow down all the others: each of their sections would have to be accounted for. So of the next
    /// sections some are free, and the one that pays then pays for these, too. Their number is random, so the sums are
    /// unbiased.
    pub(super) fn has_paid(&mut self, entry: &Entry, address: usize, nanos: u64) {
        let weight = (PAY_PERIOD / nanos.max(1)).max(1).ilog2().min(LEAST);
        if weight != 0 {
            self.free_calls = self.around(1 << weight) - 1;
            self.pay_weight = weight as u8;
            entry.hot.store(0, Relaxed);
            if entry.first.load(Relaxed) == 0 {
                entry.filter.store(filter(address) & !WATCHED, Relaxed);
            }
        }
    }

    /// The thread's entry for the object, if it has one.
    #[inline(always)]
    pub(super) fn entry_of(&self, address: usize) -> Option<&'static Entry> {
        self.entry_of_mixed(mix(address), address)
    }

    #[inline(always)]
    fn entry_of_mixed(&self, mixed: u64, address: usize) -> Option<&'static Entry> {
        let places = places_of(mixed, self.mask.load(Relaxed));
        let entries = self.entries.load(Relaxed);
        // SAFETY: the thread's entries are as many as its places: `mask` changes with `entries`. The memory stays mapped.
        let [first, second] = places.map(|place| unsafe { &*entries.add(place) });
        if first.address.load(Relaxed) == address as u64 {
            return Some(first);
        }
        (second.address.load(Relaxed) == address as u64).then_some(second)
    }

    /// The entry at a place.
    #[inline(always)]
    pub(super) fn entry_at(&self, place: usize) -> &'static Entry {
        // SAFETY: the thread's entries are as many as its places: `mask` changes with `entries`. The memory stays mapped.
        unsafe { &*self.entries.load(Relaxed).add(place) }
    }

    /// The release of the lock has something to record.
    #[inline(always)]
    pub(super) fn open(&mut self, entry: &Entry) {
        if entry.open.swap(1, Relaxed) == 0 {
            self.attention += 1;
        }
    }

    /// It no longer has.
    #[inline(always)]
    pub(super) fn close(&mut self, entry: &Entry) {
        if entry.open.load(Relaxed) != 0 {
            entry.open.store(0, Relaxed);
            self.attention -= 1;
        }
    }
}

/// The next calls for the object of this entry go the long way.
pub(super) fn slow_down(entry: &Entry) {
    entry.filter.store(LONG_WAY, Relaxed);
}

/// Adds to a number that only this thread writes.
#[inline(always)]
pub(super) fn bump(number: &AtomicU64) {
    number.store(number.load(Relaxed) + 1, Relaxed);
}

/// As `bump`. The number does not overflow: the recorder adds it to the object's now and then.
#[inline(always)]
pub(super) fn bump_short(number: &AtomicU32) {
    number.store(number.load(Relaxed).wrapping_add(1), Relaxed);
}

/// Counts an acquisition that the calling thread is about to try. `false`: it takes the long way, and nothing is counted.
#[inline(always)]
pub(super) fn count(address: usize, read: bool, caller: usize, slot: usize) -> bool {
    let Some(local) = threads::known(Current::get()) else { return false };
    if local.session != live::session() {
        return false;
    }
    let mixed = mix(address);
    let Some(entry) = local.entry_of_mixed(mixed, address) else { return false };
    let (own, now) = (entry.filter.load(Relaxed), filter_at(mixed).load(Relaxed));
    if local.countdown <= 1 {
        return false;
    }
    let mut depth = if read { READING } else { 1 };
    if own != now {
        // Threads wait, and this thread need not pay each time: see `Local::has_paid`.
        if local.free_calls == 0 || own != now & !WATCHED {
            return false;
        }
        local.free_calls -= 1;
        depth = FREE;
    }
    local.countdown -= 1;
    bump(&entry.acquisitions);
    if read {
        bump_short(&entry.reads);
    }
    entry.depth.store(depth, Relaxed);
    entry.caller.store(caller as u64, Relaxed);
    entry.slot.store(slot as u32, Relaxed);
    true
}

/// Takes back what [`count`] has counted: the attempt has failed. Returns where the call was made.
#[cold]
#[inline(never)]
pub(super) fn take_back(local: &mut Local, address: usize, read: bool) -> Origin {
    let Some(entry) = local.entry_of(address) else { return Origin { caller: 0, slot: 0 } };
    entry.acquisitions.store(entry.acquisitions.load(Relaxed).saturating_sub(1), Relaxed);
    if read {
        entry.reads.store(entry.reads.load(Relaxed).saturating_sub(1), Relaxed);
        entry.depth.store(0, Relaxed);
    }
    Origin { caller: entry.caller.load(Relaxed) as usize, slot: entry.slot.load(Relaxed) as usize }
}

/// Whether the release of a lock has nothing to record.
#[inline(always)]
pub(super) fn is_nothing_to_release(address: usize) -> bool {
    match threads::known(Current::get()) {
        Some(local) => local.attention == 0 && (!is_watched(address) || is_free(local, address)),
        None => false,
    }
}

/// Whether the thread holds the lock without having to pay.
#[cold]
#[inline(never)]
fn is_free(local: &Local, address: usize) -> bool {
    local.session == live::session()
        && local.entry_of(address).is_some_and(|entry| entry.depth.load(Relaxed) == FREE)
}

/// As [`is_nothing_to_release`], of a rwlock. Then it notes that a reader has left.
#[inline(always)]
pub(super) fn is_nothing_to_release_of_rwlock(address: usize) -> bool {
    let Some(local) = threads::known(Current::get()) else { return false };
    if local.attention != 0 || local.session != live::session() {
        return false;
    }
    let Some(entry) = local.entry_of(address) else { return false };
    if is_watched(address) && entry.depth.load(Relaxed) != FREE {
        return false;
    }
    entry.depth.store(0, Relaxed);
    true
}

//! What sends the calls of all threads for an object the long way: a number for each hash of an address.
//!
//! | part | counts | a change says |
//! |---|---|---|
//! | low 16 bits | threads that wait for an object and shall know its holders; objects whose next owner shall compare itself | while it is not 0, calls go the long way |
//! | high 16 bits | objects that are gone | entries for the address must be checked again |
//!
//! The same hash says where a thread has its entry for an object ([`places`]).

use core::sync::atomic::{AtomicU32, Ordering::*};
use latchwork_recording::layout::{ENTRIES, Entry, MORE_ENTRIES};

/// Numbers in the filter: 16 KiB, so that objects of one program seldom share one.
const FILTERS: usize = 4096;

/// See the [module](self).
static FILTER: [AtomicU32; FILTERS] = [const { AtomicU32::new(0) }; FILTERS];
/// The low part.
pub(super) const WATCHED: u32 = 0xffff;
const GONE: u32 = WATCHED + 1;

/// In [`Entry::filter`](latchwork_recording::layout::Entry::filter): calls go the long way. No number in the filter has this value, because there are fewer threads.
pub(super) const LONG_WAY: u32 = WATCHED;

/// Added to a number of the filter in [`Entry::filter`](latchwork_recording::layout::Entry::filter): the object is a recursive mutex.
/// No number in the filter has this bit, because there are fewer threads.
const RECURSIVE: u32 = GONE >> 1;

/// What an entry has while calls have nothing to record but their number. `filter`: the number in the filter.
#[inline(always)]
pub(super) fn expected(filter: u32, recursive: bool) -> u32 {
    if recursive { filter | RECURSIVE } else { filter }
}

/// Mixes an address, of which the lowest two bits are 0. The upper bits are the best.
#[inline(always)]
pub(super) fn mix(address: usize) -> u64 {
    // A quarter of 2^64 divided by the golden ratio: words that follow each other get numbers far apart.
    (address as u64).wrapping_mul(0x278d_de6e_5fd2_9f05)
}

/// The slot of an address in a table with so many slots, a power of two.
#[inline(always)]
pub(super) fn slot(address: usize, slots: usize) -> usize {
    (mix(address) >> 32) as usize % slots
}

#[inline(always)]
pub(super) fn at(mixed: u64) -> &'static AtomicU32 {
    &FILTER[(mixed >> (u64::BITS - FILTERS.ilog2())) as usize]
}

/// The number in the filter for an address.
#[inline(always)]
pub(super) fn value(address: usize) -> u32 {
    at(mix(address)).load(Relaxed)
}

/// Whether the filter sends calls for this address the long way.
#[inline(always)]
pub(super) fn is_watched(address: usize) -> bool {
    value(address) & WATCHED != 0
}

/// From here on, calls for this address go the long way in all threads, until as many calls of [`unwatch`].
pub(super) fn watch(address: usize) {
    at(mix(address)).fetch_add(1, Relaxed);
}

/// See [`watch`].
pub(super) fn unwatch(address: usize) {
    at(mix(address)).fetch_sub(1, Relaxed);
}

/// The object at this address is gone.
pub(super) fn gone(address: usize) {
    at(mix(address)).fetch_add(GONE, Relaxed);
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

/// The two places at which a thread with this [`Entries::mask`](super::entries::Entries::mask) can have an entry for an object, in bytes.
#[inline(always)]
pub(super) fn places(address: usize, mask: u32) -> [usize; 2] {
    places_of(mix(address), mask)
}

#[inline(always)]
pub(super) fn places_of(mixed: u64, mask: u32) -> [usize; 2] {
    const { assert!(ENTRIES.is_power_of_two() && MORE_ENTRIES == FILTERS && size_of::<Entry>().is_power_of_two()) };
    const BITS: u32 = (FILTERS * size_of::<Entry>()).ilog2();
    let first = (mixed >> (u64::BITS - BITS)) as usize & mask as usize;
    [first, first ^ size_of::<Entry>()]
}

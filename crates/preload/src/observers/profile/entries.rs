//! A thread's entries: what it has counted of each object, and not yet added to the object's record.
//!
//! Only the thread itself writes its entries. Other threads read them, to find the readers of a rwlock.

use super::file::record;
use super::index::prefetch;
use super::{filter, objects};
use core::hint::cold_path;
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering::*};
use latchwork_recording::layout::*;

/// In [`Entry::depth`] of a semaphore: the thread has waited for a unit, and has not posted since.
pub(super) const GOT_UNIT: u8 = 1;
/// In [`Entry::depth`]: the thread holds the lock for reading, and does not pay its part in waits.
pub(super) const FREE_READING: u8 = READING - 1;
/// In [`Entry::depth`]: the thread holds the lock (a rwlock: for writing), and does not pay its part in waits.
pub(super) const FREE: u8 = READING - 2;

/// In [`Entry::depth`]: the thread holds a recursive mutex.
pub(super) const RECURSIVE: u8 = 2;

/// Whether a thread that holds a lock, as its entry's depth says, does not pay its part in waits.
pub(super) fn is_free(depth: u8) -> bool {
    matches!(depth, FREE | FREE_READING)
}

/// Whether a thread holds the lock for reading, as its entry's depth says.
pub(super) fn is_reading(depth: u8) -> bool {
    matches!(depth, READING | FREE_READING)
}

/// Where a thread's entries are. They are as many as a power of two. Zero bytes are none.
#[repr(C)]
pub(super) struct Entries {
    first: AtomicPtr<Entry>,
    /// The place of the last one, in bytes.
    mask: AtomicU32,
}

impl Entries {
    /// How many there are.
    pub(super) fn size(&self) -> usize {
        self.mask.load(Relaxed) as usize / size_of::<Entry>() + 1
    }

    /// These, from here on.
    pub(super) fn set(&self, entries: &'static [Entry]) {
        self.first.store(entries.as_ptr().cast_mut(), Release);
        self.mask.store((size_of_val(entries) - size_of::<Entry>()) as u32, Release); // (D)
    }

    /// The entry for the object at this address, if there is one. The caller is the thread that has these entries.
    #[inline(always)]
    pub(super) fn of(&self, address: usize) -> Option<&'static Entry> {
        self.of_mixed(filter::mix(address), address)
    }

    /// As `of`, for an address that [`filter::mix`] has mixed.
    #[inline(always)]
    pub(super) fn of_mixed(&self, mixed: u64, address: usize) -> Option<&'static Entry> {
        // An atomic load would be an instruction of its own, which an ordinary one need not be.
        // SAFETY: only the calling thread writes the mask and the entries. Each place has an entry, because `set` changes both. The
        // memory stays mapped.
        unsafe {
            let [first, second] = filter::places_of(mixed, *self.mask.as_ptr());
            let first = self.at_byte(first);
            if *first.address.as_ptr() == address as u64 {
                return Some(first);
            }
            self.second(second, address)
        }
    }

    /// The entry at this place, if it is that of the object. Most objects have the first of their places.
    ///
    /// # Safety
    ///
    /// An entry begins so many bytes from the first one.
    #[inline(always)]
    unsafe fn second(&self, place: usize, address: usize) -> Option<&'static Entry> {
        cold_path();
        // SAFETY: the caller says that there is an entry.
        let entry = unsafe { self.at_byte(place) };
        (entry.address.load(Relaxed) == address as u64).then_some(entry)
    }

    /// # Safety
    ///
    /// An entry begins so many bytes from the first one.
    #[inline(always)]
    unsafe fn at_byte(&self, place: usize) -> &'static Entry {
        // SAFETY: the caller says that there is an entry. The memory stays mapped.
        unsafe { &*self.first.load(Relaxed).byte_add(place) }
    }

    /// Asks the processor for the entries that an object may have.
    #[inline(always)]
    pub(super) fn prefetch(&self, address: usize) {
        self.candidates(address).into_iter().for_each(prefetch);
    }

    /// The entry at a place, which is below [`size`](Self::size).
    #[inline(always)]
    pub(super) fn at(&self, place: usize) -> &'static Entry {
        debug_assert!(place < self.size());
        // SAFETY: the caller's place is below the number of entries. The memory stays mapped.
        unsafe { &*self.first.load(Relaxed).add(place) }
    }

    /// The entries at the two places for an object.
    #[inline(always)]
    fn candidates(&self, address: usize) -> [&'static Entry; 2] {
        // SAFETY: there is an entry at each place.
        filter::places(address, self.mask.load(Relaxed)).map(|place| unsafe { self.at_byte(place) })
    }

    /// The entry for an object that has none, or whose entry is not valid any more.
    pub(super) fn choose(&self, address: usize) -> &'static Entry {
        let [first, second] = self.candidates(address);
        let address = address as u64;
        let object = |entry: &Entry| entry.address.load(Relaxed);
        // An entry whose lock the thread holds stays, if it can.
        let is_busy = |entry: &Entry| entry.open.load(Relaxed) != 0;
        let is_second = object(second) == address
            || object(first) != address && (object(second) == 0 || object(first) != 0 && is_busy(first));
        if is_second { second } else { first }
    }

    /// Whether the thread that has these entries holds the rwlock at this address for reading. Another thread may ask.
    pub(super) fn has_reader(&self, address: usize) -> bool {
        // (D) pairs with the stores in `set`: the entries are as many as this mask says, or more.
        let mask = self.mask.load(Acquire);
        let entries = self.first.load(Acquire);
        // A thread that is being made known has none yet.
        !entries.is_null()
            && filter::places(address, mask).iter().any(|place| {
                // SAFETY: there is an entry at each place, and the memory of tables stays mapped.
                let entry = unsafe { &*entries.byte_add(*place) };
                is_reading(entry.depth.load(Relaxed)) && entry.address.load(Relaxed) == address as u64
            })
    }
}

/// Notes that the thread has acquired the lock, and measures its hold from a moment on, for 2 to the power of `weight` acquisitions.
#[inline(always)]
pub(super) fn begin_hold(entry: &Entry, weight: u8, since: u64) {
    entry.weight.store(weight | stamp(entry), Relaxed);
    entry.held_since.store(since, Relaxed);
}

/// For how many acquisitions the hold stands that is measured.
#[inline(always)]
pub(super) fn hold_weight(entry: &Entry) -> u32 {
    1 << (entry.weight.load(Relaxed) % STAMP)
}

/// Before a release. If another thread has released the lock, and this one has acquired it again, then the hold that was measured has
/// ended before, and nobody knows when. `depth`: the entry's depth while the thread held the lock.
#[inline(always)]
pub(super) fn forget_old_hold(entry: &Entry, depth: u8) {
    if depth == 1 && entry.weight.load(Relaxed) / STAMP != stamp(entry) / STAMP {
        entry.held_since.store(0, Relaxed);
    }
}

/// Notes that the thread has released the lock. No hold of it is measured any more.
#[inline(always)]
pub(super) fn note_release(entry: &Entry) {
    entry.weight.store(stamp(entry), Relaxed);
}

/// Whether the thread holds the lock, if each release of it is noted.
pub(super) fn holds(entry: &Entry) -> bool {
    let of = |byte: &AtomicU8| byte.load(Relaxed);
    Entry::holds(of(&entry.depth), of(&entry.open), of(&entry.weight), entry.acquisitions.load(Relaxed))
}

/// The low bits of the number of acquisitions, in the high bits of [`Entry::weight`].
#[inline(always)]
fn stamp(entry: &Entry) -> u8 {
    (entry.acquisitions.load(Relaxed) as u8).wrapping_mul(STAMP)
}

/// No weight is as large.
const STAMP: u8 = 1 << STAMP_SHIFT;

/// The next calls for the object of this entry go the long way.
pub(super) fn slow_down(entry: &Entry) {
    entry.filter.store(filter::LONG_WAY, Relaxed);
}

/// Adds to a number that only this thread writes.
#[inline(always)]
pub(super) fn bump(number: &AtomicU64) {
    number.store(number.load(Relaxed) + 1, Relaxed);
}

/// As `bump`. The number does not overflow: [`flush_short`] adds it to the object's now and then.
#[inline(always)]
pub(super) fn bump_short(number: &AtomicU32) {
    number.store(number.load(Relaxed).wrapping_add(1), Relaxed);
}

/// Whether the entry's object is still there.
#[inline(always)]
fn is_valid(entry: &Entry) -> bool {
    let object = entry.object.load(Relaxed);
    object == NONE || is_of(entry, record(object))
}

/// Whether the record is still that of the entry's object.
#[inline(always)]
pub(super) fn is_of(entry: &Entry, object: &Object) -> bool {
    object.serial.load(Relaxed) as u8 == entry.serial.load(Relaxed)
        && object.address.load(Relaxed) == entry.address.load(Relaxed)
}

/// The counters to which the entry's numbers belong: the object's, or the class's if the object is gone.
pub(super) fn counters(entry: &Entry) -> &'static Counters {
    match entry.object.load(Relaxed) {
        object if object != NONE && is_valid(entry) => objects::sums(record(object)),
        _ => &record::<Class>(entry.class.load(Relaxed)).counters,
    }
}

/// Adds those numbers of the entry to the object that have 32 bits, when they have become large.
pub(super) fn flush_short(entry: &Entry) {
    if entry.reads.load(Relaxed).max(entry.failed.load(Relaxed)) > u32::MAX / 2 && is_valid(entry) {
        let to = counters(entry);
        to.reads.fetch_add(u64::from(entry.reads.swap(0, Relaxed)), Relaxed);
        to.failed.fetch_add(u64::from(entry.failed.swap(0, Relaxed)), Relaxed);
    }
}

/// Counts an attempt that has failed.
pub(super) fn count_failed(entry: &Entry) {
    bump_short(&entry.failed);
    flush_short(entry);
}

/// Adds what the entry counts to the object, and frees the entry.
pub(super) fn flush(entry: &Entry) {
    if entry.address.load(Relaxed) == 0 {
        return;
    }
    let to = counters(entry);
    // Most of these are 0: an exchange would take longer than a look.
    let acquisitions = entry.acquisitions.load(Relaxed);
    if acquisitions != 0 {
        entry.acquisitions.store(0, Relaxed);
        to.acquisitions.fetch_add(acquisitions, Relaxed);
    }
    for (from, to) in [(&entry.reads, &to.reads), (&entry.failed, &to.failed)] {
        let more = from.load(Relaxed);
        if more != 0 {
            from.store(0, Relaxed);
            to.fetch_add(u64::from(more), Relaxed);
        }
    }
    entry.address.store(0, Relaxed);
}

//! A thread's entries: what it has counted of each object, and not yet added to the object's record.
//!
//! Only the thread itself writes its entries. Other threads read them, to find the readers of a rwlock.

use super::file::record;
use super::filter;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use latchwork_recording::layout::*;

/// In [`Count::depth`]: the thread holds the lock (a rwlock: for reading or writing), and does not pay its part in waits.
pub(super) const FREE: u8 = READING - 1;

/// In [`Count::key`]: calls go the long way.
const LONG_WAY: u64 = 1;

/// A thread's entry for an object, and its count.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) count: &'static Count,
    rest: &'static Entry,
}

impl core::ops::Deref for Row {
    type Target = Entry;

    #[inline(always)]
    fn deref(&self) -> &Entry {
        self.rest
    }
}

/// The bits of an address by which a thread knows an object.
#[inline(always)]
pub(super) fn known_by(address: usize) -> u64 {
    address as u64 & ADDRESS
}

/// Where a thread's rows are. They are as many as a power of two: first the counts, then the entries. Zero bytes are none.
#[repr(C)]
pub(super) struct Entries {
    first: AtomicPtr<Count>,
    /// Their number less one.
    mask: AtomicU32,
}

/// Rows of a thread for which nothing is recorded: all are free, so its calls go the long way. They are as many as the largest
/// mask says.
// SAFETY: all fields are atomic numbers; zero bytes are a value of each.
static NOTHING: More = unsafe { core::mem::zeroed() };

impl Entries {
    /// How many there are.
    pub(super) fn size(&self) -> usize {
        self.mask.load(Relaxed) as usize + 1
    }

    /// Those of this table, from here on.
    pub(super) fn set(&self, table: &'static Table) {
        const { assert!(core::mem::offset_of!(Table, entries) == size_of::<Count>() * ENTRIES) };
        self.set_to(core::ptr::from_ref(table).cast(), ENTRIES);
    }

    /// Those of an extension, from here on.
    pub(super) fn set_more(&self, more: &'static More) {
        const { assert!(core::mem::offset_of!(More, entries) == size_of::<Count>() * MORE_ENTRIES) };
        self.set_to(core::ptr::from_ref(more).cast(), MORE_ENTRIES);
    }

    /// None, from here on: each call of the thread goes the long way. Another thread may do this.
    pub(super) fn take_away(&self) {
        // Whichever mask the thread has read, there are as many.
        self.first.store(core::ptr::from_ref(&NOTHING).cast::<Count>().cast_mut(), Release);
    }

    fn set_to(&self, first: *const Count, size: usize) {
        self.first.store(first.cast_mut(), Release);
        self.mask.store(size as u32 - 1, Release); // (D)
    }

    /// The count that is known by this key, if there is one. `mixed`: the address, mixed by [`filter::mix`].
    #[inline(always)]
    pub(super) fn count(&self, mixed: u32, key: u64) -> Option<&'static Count> {
        let place = filter::place(mixed, self.mask.load(Relaxed));
        // SAFETY: the counts are as many as the places, or more, because `set_to` changes both. The memory stays mapped.
        let first = unsafe { &*self.first.load(Relaxed).add(place) };
        if first.key.load(Relaxed) == key {
            return Some(first);
        }
        let second = core::ptr::from_ref(first).map_addr(|first| first ^ size_of::<Count>());
        // SAFETY: the place beside the first one. The counts are an even number, and begin at a cache line.
        let second = unsafe { &*second };
        (second.key.load(Relaxed) == key).then_some(second)
    }

    /// The row for the object at this address, if there is one.
    #[inline(always)]
    pub(super) fn of(&self, address: usize) -> Option<Row> {
        let first = filter::place(filter::mix(address), self.mask.load(Relaxed));
        let is = |row: &Row| row.address() == known_by(address);
        Some(self.at(first)).filter(is).or_else(|| Some(self.at(first ^ 1)).filter(is))
    }

    /// The row at a place, which is below [`size`](Self::size).
    #[inline(always)]
    pub(super) fn at(&self, place: usize) -> Row {
        let size = self.size();
        debug_assert!(place < size);
        let counts = self.first.load(Relaxed);
        // SAFETY: the caller's place is below the number of rows; the entries lie behind the counts. The memory stays mapped.
        unsafe { Row { count: &*counts.add(place), rest: &*counts.add(size).cast::<Entry>().add(place) } }
    }

    /// The place for an object that has none, or whose entry is not valid any more.
    pub(super) fn choose(&self, address: usize) -> usize {
        let first = filter::place(filter::mix(address), self.mask.load(Relaxed));
        let second = first ^ 1;
        let address = known_by(address);
        let object = |place: usize| self.at(place).address();
        // An entry whose lock the thread holds stays, if it can.
        let is_busy = |place: usize| self.at(place).open.load(Relaxed) != 0;
        let is_second = object(second) == address
            || object(first) != address && (object(second) == 0 || object(first) != 0 && is_busy(first));
        if is_second { second } else { first }
    }

    /// Whether the thread that has these entries holds the rwlock at this address for reading. Another thread may ask.
    pub(super) fn has_reader(&self, address: usize) -> bool {
        // (D) pairs with the stores in `set_to`: the counts are as many as this mask says, or more.
        let mask = self.mask.load(Acquire);
        let counts = self.first.load(Acquire);
        let first = filter::place(filter::mix(address), mask);
        // A thread that is being made known has none yet.
        !counts.is_null()
            && [first, first ^ 1].iter().any(|place| {
                // SAFETY: there is a count at each place, and the memory of tables stays mapped.
                let count = unsafe { &*counts.add(*place) };
                matches!(count.depth.load(Relaxed), READING | FREE)
                    && count.key.load(Relaxed) & ADDRESS == known_by(address)
            })
    }
}

impl Row {
    /// The address of the object, as far as the thread knows it; 0: the row is free.
    #[inline(always)]
    pub(super) fn address(self) -> u64 {
        self.count.key.load(Relaxed) & ADDRESS
    }

    /// Whether the row is still that of the object at this address.
    #[inline(always)]
    pub(super) fn is_for(self, address: usize) -> bool {
        self.address() == known_by(address)
    }

    /// The row is for the object at this address. Calls go the long way.
    pub(super) fn begin(self, address: usize) {
        self.count.key.store(known_by(address) | LONG_WAY, Release);
    }

    /// The next calls for the object of this row go the long way.
    pub(super) fn slow_down(self) {
        self.count.key.store(self.address() | LONG_WAY, Relaxed);
    }

    /// The next calls for the object take the short way, as long as no more objects are gone than this number in the filter
    /// says.
    pub(super) fn speed_up(self, number: u32) {
        self.count.key.store(self.address() | filter::gone_in_key(number), Relaxed);
    }

    /// Counts an acquisition.
    #[inline(always)]
    pub(super) fn acquired(self, read: bool) {
        let count = self.count;
        bump(&count.acquisitions);
        if read {
            self.bump_reads();
        }
        if count.acquisitions.load(Relaxed) > u32::MAX / 2 {
            self.flush_acquisitions();
        }
    }

    /// Adds one to the number of reads.
    #[inline(always)]
    pub(super) fn bump_reads(self) {
        let reads = &self.count.reads;
        if reads.load(Relaxed) == MOST_READS {
            counters(self).reads.fetch_add(u64::from(reads.swap(0, Relaxed)), Relaxed);
        }
        reads.store(reads.load(Relaxed) + 1, Relaxed);
    }

    /// Adds the acquisitions to the object's, before they become too many.
    #[cold]
    fn flush_acquisitions(self) {
        let acquisitions = self.count.acquisitions.swap(0, Relaxed);
        counters(self).acquisitions.fetch_add(u64::from(acquisitions), Relaxed);
    }
}

/// A call that would count more reads takes the long way.
pub(super) const MOST_READS: u16 = u16::MAX;

/// Adds to a number that only this thread writes.
#[inline(always)]
pub(super) fn bump(number: &AtomicU32) {
    number.store(number.load(Relaxed).wrapping_add(1), Relaxed);
}

/// Whether the row's object is still there.
#[inline(always)]
fn is_valid(row: Row) -> bool {
    let object = row.object.load(Relaxed);
    object == NONE || is_of(row, record(object))
}

/// Whether the record is still that of the row's object.
#[inline(always)]
pub(super) fn is_of(row: Row, object: &Object) -> bool {
    object.serial.load(Relaxed) as u8 == row.serial.load(Relaxed)
        && object.address.load(Relaxed) & ADDRESS == row.address()
}

/// The counters to which the row's numbers belong: the object's, or the class's if the object is gone.
fn counters(row: Row) -> &'static Counters {
    match row.object.load(Relaxed) {
        object if object != NONE && is_valid(row) => &record::<Object>(object).counters,
        _ => &record::<Class>(row.class.load(Relaxed)).counters,
    }
}

/// Adds what the row counts to the object, and frees the row.
pub(super) fn flush(row: Row) {
    if row.address() == 0 {
        return;
    }
    let to = counters(row);
    // Most of these are 0: an exchange would take longer than a look.
    macro_rules! add {
        ($($from:expr => $to:ident),*) => {
            $(let more = $from.load(Relaxed);
            if more != 0 {
                $from.store(0, Relaxed);
                to.$to.fetch_add(u64::from(more), Relaxed);
            })*
        };
    }
    add!(row.count.acquisitions => acquisitions, row.count.reads => reads, row.failed => failed);
    row.count.key.store(0, Relaxed);
}

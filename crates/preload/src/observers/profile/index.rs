//! Hash tables from keys to indexes of records. They are private to the process: a reader of the file does not need them.
//!
//! A table is divided into parts, and a spin lock for each serialises insertions and removals. Look-ups take no lock. A
//! thread never waits for such a lock for long: it may have interrupted the holder in a signal handler. It gives up, and the
//! record is dropped.

use crate::state::kernel;
use crate::state::memory::quietly;
pub(super) use crate::state::unwind::mix;
use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering::*};
use latchwork::machine::{Machine, Native};

/// Parts of a table, each with a lock.
const PARTS: usize = 64;
/// Slots that are searched from the one that the hash says.
const PROBES: usize = 64;
/// Rounds that a thread waits for the lock of a part. An insertion takes less than one round.
const PATIENCE: u32 = 200;
/// Pauses of a round, behind which the thread lets others run: the holder may be preempted.
const PAUSES: u32 = 64;

/// Values of a slot: an index plus one, or one of these.
const EMPTY: u32 = 0;
const REMOVED: u32 = u32::MAX;

/// It begins a page, which [`clear`](Self::clear) needs.
#[repr(C, align(4096))]
pub(super) struct Index<const SLOTS: usize> {
    locks: [AtomicU32; PARTS],
    slots: [AtomicU32; SLOTS],
}

/// Asks the processor for the cache line at this place, which the calling thread will write to soon.
#[inline(always)]
pub(super) fn prefetch<T>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction changes nothing, and processors that do not have it take it for another one that does nothing.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}

impl<const SLOTS: usize> Index<SLOTS> {
    const PART: usize = SLOTS / PARTS;

    pub(super) const fn new() -> Self {
        assert!(SLOTS.is_power_of_two() && SLOTS >= PARTS * PROBES);
        Index { locks: [const { AtomicU32::new(0) }; PARTS], slots: [const { AtomicU32::new(EMPTY) }; SLOTS] }
    }

    /// The slots for a hash: all lie in one part.
    fn probes(&self, hash: u64) -> impl Iterator<Item = &AtomicU32> {
        let part = hash as usize % PARTS * Self::PART;
        let first = (hash >> 8) as usize;
        (0..PROBES).map(move |probe| &self.slots[part + (first + probe) % Self::PART])
    }

    /// Asks the processor for the slots of a hash, which the caller will need soon.
    #[inline(always)]
    pub(super) fn prefetch(&self, hash: u64) {
        self.probes(hash).take(1).for_each(prefetch);
    }

    /// The index for which `is` says yes; or else the slot for a new one, if there is room.
    #[inline(always)]
    fn search(&self, hash: u64, is: impl Fn(u32) -> bool) -> Result<u32, Option<&AtomicU32>> {
        let mut free = None;
        for slot in self.probes(hash) {
            // (A) pairs with the store in `insert`: the record is complete.
            match slot.load(Acquire) {
                EMPTY => return Err(free.or(Some(slot))),
                REMOVED => free = free.or(Some(slot)),
                value if is(value - 1) => return Ok(value - 1),
                _ => {}
            }
        }
        Err(free)
    }

    /// All indexes. Those that are inserted or removed meanwhile may be left out.
    pub(super) fn indexes(&self) -> impl Iterator<Item = u32> {
        // (A) pairs with the store in `insert`: the record is complete.
        let values = self.slots.iter().map(|slot| slot.load(Acquire));
        values.filter(|value| !matches!(*value, EMPTY | REMOVED)).map(|value| value - 1)
    }

    /// The index for which `is` says yes.
    #[inline]
    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.search(hash, is).ok()
    }

    /// The index for which `is` says yes. If there is none, `make` makes one. It runs before the lock is taken, because it may
    /// ask the kernel for memory; so another thread may come first, and then `discard` takes the index back. `None`: `make`
    /// made none, or there is no room for it, or the lock was not free in time.
    pub(super) fn find_or_insert(
        &self,
        hash: u64,
        is: impl Fn(u32) -> bool,
        make: impl FnOnce() -> Option<u32>,
        discard: impl FnOnce(u32),
    ) -> Option<u32> {
        self.find(hash, &is).or_else(|| self.insert(hash, is, make, discard))
    }

    /// As [`find_or_insert`](Self::find_or_insert), by a caller that has looked already.
    pub(super) fn insert(
        &self,
        hash: u64,
        is: impl Fn(u32) -> bool,
        make: impl FnOnce() -> Option<u32>,
        discard: impl FnOnce(u32),
    ) -> Option<u32> {
        let made = make()?;
        let add = || match self.search(hash, is) {
            Ok(found) => Some(found),
            Err(free) => {
                free?.store(made + 1, Release); // (A)
                Some(made)
            }
        };
        let found = self.locked(hash, add).flatten();
        if found != Some(made) {
            discard(made);
        }
        found
    }

    /// Removes an index. `false`: it was not there, or the lock was not free.
    pub(super) fn remove(&self, hash: u64, index: u32) -> bool {
        self.locked(hash, || {
            let found = self.probes(hash).position(|slot| slot.load(Relaxed) == index + 1);
            let Some(position) = found else { return false };
            // A look-up goes on behind a removed index, unless nothing can be behind it.
            let next = self.probes(hash).nth(position + 1);
            let last = next.is_some_and(|next| next.load(Relaxed) == EMPTY);
            if let Some(slot) = self.probes(hash).nth(position) {
                slot.store(if last { EMPTY } else { REMOVED }, Release);
            }
            true
        })
        .unwrap_or(false)
    }

    /// Runs `change` under the lock of the hash's part. `None`: the lock was not free in time.
    fn locked<T>(&self, hash: u64, change: impl FnOnce() -> T) -> Option<T> {
        let lock = &self.locks[hash as usize % PARTS];
        let mut rounds = 0;
        // (B) pairs with itself: an insertion sees those before it.
        while lock.load(Relaxed) != 0 || lock.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
            rounds += 1;
            if rounds == PATIENCE {
                return None;
            }
            (0..PAUSES).for_each(|_| spin_loop());
            Native::yield_now();
        }
        let result = change();
        lock.store(0, Release); // (B)
        Some(result)
    }

    /// Empties the table. No other thread uses it.
    pub(super) fn clear(&self) {
        let pages = core::ptr::from_ref(self).cast_mut();
        // To look at each slot takes a page fault for each page, 0.7 ms in a forked child for all tables.
        // SAFETY: tables are statics without contents, which have whole pages, so that these are mapped without a file. A slot that
        // is 0 is empty, and a lock that is 0 is free. Other processors may have larger pages than 4 KiB.
        let empty = || unsafe { kernel::empty(pages.cast(), size_of::<Self>()) };
        if cfg!(target_arch = "x86_64") && quietly(empty) {
            return;
        }
        // The program has locked its memory (`mlockall`).
        self.locks.iter().for_each(|lock| lock.store(0, Relaxed));
        for slot in &self.slots {
            // Pages that were never written stay unwritten.
            if slot.load(Relaxed) != EMPTY {
                slot.store(EMPTY, Relaxed);
            }
        }
    }
}

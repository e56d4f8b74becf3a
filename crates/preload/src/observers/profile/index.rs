//! Hash tables from keys to indexes of records. They are private to the process: a reader of the file does not need them.
//!
//! A table is divided into parts, and a spin lock for each serialises insertions and removals. Look-ups take no lock. A
//! thread never waits for such a lock for long: it may have interrupted the holder in a signal handler. It gives up, and the
//! record is dropped.
//!
//! What such a table costs is cache misses. So a search begins in one cache line of a small region, which all parts share:
//! a program with few records uses nothing else. And a slot has some bits of the hash, its *tag*, beside the index: a
//! search looks only at records whose tag is the right one.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering::*};
use latchwork::machine::{Machine, Native};

/// Parts of a table, each with a lock.
const PARTS: usize = 64;
/// Slots of a cache line, where a search begins.
const NEAR: usize = 16;
/// Such lines of a part.
const LINES: usize = 16;
/// Slots that are searched then, from one that the hash says.
const FAR: usize = 64;
/// All slots for a hash.
const PROBES: usize = NEAR + FAR;
/// Rounds that a thread waits for the lock of a part. An insertion takes less than one round.
const PATIENCE: u32 = 200;
/// Pauses of a round, behind which the thread lets others run: the holder may be preempted.
const PAUSES: u32 = 64;

/// Values of a slot: an index plus one, with a tag above, or one of these.
const EMPTY: u32 = 0;
const REMOVED: u32 = u32::MAX;
/// The bits of an index plus one. No index is so large that these are all ones.
const INDEX: u32 = (1 << 18) - 1;

/// `SLOTS` are those beside the small region.
#[repr(C, align(64))]
pub(super) struct Index<const SLOTS: usize> {
    near: [AtomicU32; PARTS * LINES * NEAR],
    slots: [AtomicU32; SLOTS],
    locks: [AtomicU32; PARTS],
}

/// What a slot has for this index.
fn value(hash: u64, index: u32) -> u32 {
    debug_assert!(index + 1 < INDEX);
    ((hash >> 32) as u32 & !INDEX) | (index + 1)
}

/// The index in a slot, if the tag is that of the hash.
#[inline(always)]
fn index_in(slot: u32, hash: u64) -> Option<u32> {
    ((slot ^ (hash >> 32) as u32) & !INDEX == 0).then_some((slot & INDEX).wrapping_sub(1))
}

/// Mixes the bits of a key.
#[inline(always)]
pub(super) fn mix(key: u64) -> u64 {
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ mixed >> 32
}

impl<const SLOTS: usize> Index<SLOTS> {
    const PART: usize = SLOTS / PARTS;

    pub(super) const fn new() -> Self {
        assert!(SLOTS.is_power_of_two() && SLOTS >= PARTS * FAR);
        Index {
            near: [const { AtomicU32::new(EMPTY) }; _],
            slots: [const { AtomicU32::new(EMPTY) }; _],
            locks: [const { AtomicU32::new(0) }; _],
        }
    }

    /// The slot at which a search comes after so many others. All slots for a hash lie in one part.
    #[inline(always)]
    fn slot(&self, hash: u64, probe: usize) -> &AtomicU32 {
        let part = hash as usize % PARTS;
        let first = (hash >> 8) as usize;
        if probe < NEAR {
            &self.near[(part * LINES + first % LINES) * NEAR + probe]
        } else {
            &self.slots[part * Self::PART + (first + probe) % Self::PART]
        }
    }

    /// The index for which `is` says yes.
    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        // (A) pairs with the store in `insert`: the record is complete.
        for probe in 0..PROBES {
            match self.slot(hash, probe).load(Acquire) {
                EMPTY => return None,
                REMOVED => {}
                value => {
                    if let Some(index) = index_in(value, hash)
                        && is(index)
                    {
                        return Some(index);
                    }
                }
            }
        }
        None
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

    /// As [`find_or_insert`](Self::find_or_insert), for an index that was not there a moment ago.
    pub(super) fn insert(
        &self,
        hash: u64,
        is: impl Fn(u32) -> bool,
        make: impl FnOnce() -> Option<u32>,
        discard: impl FnOnce(u32),
    ) -> Option<u32> {
        let made = make()?;
        let found = self
            .locked(hash, || {
                if let Some(found) = self.find(hash, &is) {
                    return Some(found);
                }
                let is_free = |slot: &&AtomicU32| matches!(slot.load(Relaxed), EMPTY | REMOVED);
                let free = (0..PROBES).map(|probe| self.slot(hash, probe)).find(is_free)?;
                free.store(value(hash, made), Release); // (A)
                Some(made)
            })
            .flatten();
        if found != Some(made) {
            discard(made);
        }
        found
    }

    /// Removes an index. `false`: it was not there, or the lock was not free.
    pub(super) fn remove(&self, hash: u64, index: u32) -> bool {
        self.locked(hash, || {
            let value = value(hash, index);
            let Some(probe) = (0..PROBES).find(|probe| self.slot(hash, *probe).load(Relaxed) == value) else {
                return false;
            };
            // A look-up goes on behind a removed index, unless nothing can be behind it. Behind the last slot of a line are
            // the slots of many hashes.
            let next = probe + 1;
            let is_last = next != NEAR && next != PROBES && self.slot(hash, next).load(Relaxed) == EMPTY;
            self.slot(hash, probe).store(if is_last { EMPTY } else { REMOVED }, Release);
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

    /// Empties the table. In a forked child, which has one thread.
    pub(super) fn clear(&self) {
        self.locks.iter().for_each(|lock| lock.store(0, Relaxed));
        for slot in self.near.iter().chain(&self.slots) {
            // Pages that were never written stay unwritten.
            if slot.load(Relaxed) != EMPTY {
                slot.store(EMPTY, Relaxed);
            }
        }
    }
}

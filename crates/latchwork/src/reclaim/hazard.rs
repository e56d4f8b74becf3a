//! Hazard pointers.
//!
//! Source: Michael, "Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects", TPDS 2004; the
//! asymmetric fence as in Folly's and in P1121; McKenney, Hart, Walpole 2005, section 2.4.
//!
//! A reader publishes the address that it is about to follow in a slot of its thread's record, and looks
//! again whether it is still there. Who reclaims looks through all slots after the objects were removed,
//! and keeps those that a slot points into: anywhere between an object's first byte and its last, so that
//! marks in low bits and references into the middle protect the object.
//!
//! It differs from the paper: the fence between publishing and looking again is light, and the scan issues
//! the heavy one; threads keep no lists of what they have retired, whoever fills a batch of 128 scans for
//! all; a slot counts only while its thread says that it is in use, so that dropping a guard is one store.
//! A thread has eight slots, and blocks of eight more when it needs them.
//!
//! State of an object: incoming -> waiting (a scan begins) -> reclaimed, or kept (a slot points into it),
//! and waiting again in the next scan.
//! Size: 64 bytes of slots per thread. Atomics per protection: none.
//! Garbage: at most [`HazardDomain::bound`] objects, whatever readers do. A retirer may wait for a scan,
//! which waits for no reader.

use super::backlog::{BATCH, SHARDS};
use super::header::{Header, Retire};
use super::sieve::Sieve;
use super::{Garbage, Guard, Info, Reader, Reclaim, SLOTS};
use crate::machine::record::{HAZARDS, Hazards, Record, Records};
use crate::machine::{Group, Word};
use alloc::boxed::Box;
use core::marker::PhantomData;
use core::sync::atomic::Ordering::*;

/// Hazards that are looked for at a time; more need one more pass over the objects.
const PASS: usize = 128;

/// Objects that are retired together. Slots are the process's: one protects an object of any domain.
pub struct HazardDomain<M: Records> {
    sieve: Sieve<M>,
}

/// A thread that reads. See [`Reclaim::reader`].
pub struct HazardReader<'d, M: Records> {
    record: &'static Record<M>,
    /// Not `Send`: the record is the thread's.
    domain: PhantomData<(&'d (), *mut ())>,
}

/// [`SLOTS`] hazard pointers.
pub struct HazardGuard<'r, M: Records> {
    block: &'static Hazards<M>,
    /// The first of its slots in the block.
    first: usize,
    reader: PhantomData<(&'r (), *mut ())>,
}

/// The slots from `first` on, in `used`.
const fn bits(first: usize) -> usize {
    ((1 << SLOTS) - 1) << first
}

impl<M: Records> HazardGuard<'_, M> {
    #[inline(always)]
    fn new(record: &'static Record<M>) -> Self {
        Self::in_block(&record.hazards).unwrap_or_else(|| Self::further(&record.hazards))
    }

    #[inline(always)]
    fn in_block(block: &'static Hazards<M>) -> Option<Self> {
        let used = block.used.load(Relaxed);
        let first = (0..HAZARDS).step_by(SLOTS).find(|first| used & bits(*first) == 0)?;
        // (A) What the slots still hold counts from here on: at worst, an object is kept for longer.
        block.used.store(used | bits(first), Relaxed);
        Some(HazardGuard { block, first, reader: PhantomData })
    }

    /// In a further block, which is made if there is none.
    #[cold]
    fn further(block: &'static Hazards<M>) -> Self {
        let next = block.more.load(Relaxed);
        if next.is_null() {
            let new = Box::leak(Box::new(Hazards::new()));
            // Release: pairs with the load in `Hazards::blocks`.
            block.more.store(new, Release);
        }
        // SAFETY: blocks live as long as records, for ever.
        let next: &'static Hazards<M> = unsafe { &*block.more.load(Relaxed) };
        Self::in_block(next).unwrap_or_else(|| Self::further(next))
    }

    /// Protects no object any longer with `slot`.
    #[inline(always)]
    pub fn clear(&self, slot: usize) {
        // (E) what was done with the object happens before the scan that sees this.
        self.slot(slot).store(0, Release);
    }

    #[inline(always)]
    fn slot(&self, slot: usize) -> &M::Usize {
        assert!(slot < SLOTS, "a guard has {SLOTS} slots");
        &self.block.slots[(self.first + slot) % HAZARDS]
    }
}

impl<M: Records> Drop for HazardGuard<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        let used = self.block.used.load(Relaxed);
        // (E) as in `clear`.
        self.block.used.store(used & !bits(self.first), Release);
    }
}

// SAFETY: the address stood in a slot before the object was seen to be linked, so it was there when the
// object was removed, and every scan that finds the object comes after that.
unsafe impl<M: Records> Guard for HazardGuard<'_, M> {
    type Machine = M;

    #[inline(always)]
    fn protect<T: Send + Sync + 'static>(&self, slot: usize, from: &M::Ptr<T>) -> *mut T {
        let slot = self.slot(slot);
        match try_protect::<M, T>(slot, from) {
            Ok(pointer) => pointer,
            Err(()) => protect_again::<M, T>(slot, from),
        }
    }
}

/// Publishes what is there, and looks whether it still is.
#[inline(always)]
fn try_protect<M: Records, T: Send + Sync + 'static>(
    slot: &M::Usize,
    from: &M::Ptr<T>,
) -> Result<*mut T, ()> {
    let pointer = from.load(Relaxed);
    // (E) what was done with the slot's last object happens before who sees this.
    slot.store(pointer.addr(), Release);
    // (A) pairs with the heavy fence in `scan`: it sees the slot, or we see that the object is gone.
    M::light_fence();
    if from.load(Acquire) == pointer { Ok(pointer) } else { Err(()) }
}

/// Apart, so that the first attempt is laid out straight.
#[cold]
fn protect_again<M: Records, T: Send + Sync + 'static>(slot: &M::Usize, from: &M::Ptr<T>) -> *mut T {
    loop {
        if let Ok(pointer) = try_protect::<M, T>(slot, from) {
            return pointer;
        }
    }
}

impl<M: Records> Reader for HazardReader<'_, M> {
    type Machine = M;
    type Guard<'r>
        = HazardGuard<'r, M>
    where
        Self: 'r;

    #[inline(always)]
    fn enter(&self) -> HazardGuard<'_, M> {
        HazardGuard::new(self.record)
    }
}

impl<M: Records> HazardDomain<M> {
    /// Objects that are garbage at most, if `threads` threads retire at the same time and all threads
    /// together have `slots` hazard pointers: what has come in, what is being looked through, and what is
    /// protected.
    pub const fn bound(threads: u64, slots: u64) -> u64 {
        // A stack is emptied when it has a batch, by the thread that makes it one. While that waits for
        // another's scan, each further thread may fill a further batch.
        2 * BATCH as u64 * (SHARDS as u64 + threads) + slots
    }

    /// Reclaims everything that no slot points into. Under the gate.
    fn scan(&self) {
        // (A) pairs with the light fence in `protect`. The objects were removed before they came in.
        let mut objects = self.sieve.begin(M::heavy_fence);
        if objects.is_null() {
            return;
        }
        let mut hazards = [0; PASS];
        let mut found = 0;
        for record in M::records().into_iter().flat_map(Group::owned) {
            for block in record.hazards.blocks() {
                // (E) pairs with the stores of the readers.
                let used = block.used.load(Acquire);
                for slot in (0..HAZARDS).filter(|slot| used & 1 << slot != 0) {
                    match block.slots[slot].load(Acquire) {
                        0 => continue,
                        hazard => hazards[found] = hazard,
                    }
                    found += 1;
                    if found == PASS {
                        objects = self.sift(objects, &mut hazards);
                        found = 0;
                    }
                }
            }
        }
        objects = self.sift(objects, &mut hazards[..found]);
        // SAFETY: they were removed before the heavy fence, after which no slot pointed into them, and none
        // will: its reader would see that the object is gone.
        unsafe { self.sieve.end(objects) };
    }

    /// Keeps those of `objects` that a hazard points into, and returns the others.
    fn sift(&self, objects: *mut Header, hazards: &mut [usize]) -> *mut Header {
        hazards.sort_unstable();
        self.sieve.keep(objects, |header| {
            let object = core::ptr::from_ref(header).addr();
            let first = hazards.partition_point(|hazard| *hazard < object);
            hazards.get(first).is_some_and(|hazard| *hazard < object + header.bytes())
        })
    }
}

impl<M: Records> Reclaim for HazardDomain<M> {
    type Machine = M;
    type Reader<'d> = HazardReader<'d, M>;
    const INFO: Info = Info {
        name: "hazard",
        summary: "hazard pointers: readers publish what they follow, a light fence each",
        reader: "a store and a second look per pointer",
        atomics: 0,
        bound: "256 objects per retiring thread, 2048, and one per hazard pointer",
        source: "Michael 2004",
    };

    fn new_in() -> Self {
        HazardDomain { sieve: Sieve::new() }
    }

    fn reader(&self) -> HazardReader<'_, M> {
        HazardReader { record: M::record(), domain: PhantomData }
    }

    #[inline]
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: forwarded from the caller.
        unsafe { self.sieve.retire(object, || self.scan()) };
    }

    fn collect(&self) {
        self.sieve.collect(|| self.scan());
    }

    /// Waits for hazard pointers that point to objects which are retired already; none may be the caller's.
    fn barrier(&self) {
        self.sieve.barrier(|| self.scan());
    }

    fn garbage(&self) -> Garbage {
        self.sieve.backlog.garbage()
    }
}

impl<M: Records> Drop for HazardDomain<M> {
    /// Reclaims everything that no slot points into; guards that outlive the domain are those of others, and
    /// what they protect is leaked.
    fn drop(&mut self) {
        self.sieve.close(|| self.scan());
    }
}

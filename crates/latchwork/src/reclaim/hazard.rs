//! Hazard pointers.
//!
//! Source: Michael, "Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects", TPDS 2004; the
//! asymmetric fence as in Folly's and in P1121; McKenney, Hart, Walpole 2005, section 2.4.
//!
//! A reader publishes the address that it is about to follow in a slot of its thread's record (a *hazard pointer*). Then
//! it looks again whether the pointer still stands where it read it. A thread that reclaims *scans* all slots after the
//! objects were removed. It keeps each object that a slot points into: anywhere between the object's first byte and its
//! last, so that pointers with marks in their low bits, and pointers into the middle, protect the object.
//!
//! What differs from the paper:
//!
//! - the fence between publishing and looking again is light, and the scan issues the heavy one, for 256 objects at a
//!   time;
//! - slots count only while their thread says that a guard has them, so that dropping a guard is one store;
//! - a thread has slots for two guards, and for two more at a time when it needs them.
//!
//! With `FULL_FENCE`, fences are as in the paper: readers issue a full one for each protection, and the scan issues one of
//! its own. Slots are *static* then, as in McKenney, Hart and Walpole's measurements. They belong to the reader as long as
//! it lives, count all the time, and are not cleared when a guard is dropped; a section costs its fences and nothing
//! else. What they point to stays protected until the reader protects something else, goes offline, or is dropped. This
//! variant is there for comparison, and for systems without `membarrier`.
//!
//! State of an object: incoming -> waiting (a scan begins) -> reclaimed, or kept (a slot points into it) -> waiting in
//! the next scan. State of a group of slots: free (`used` is 0) -> used (a guard takes it) -> free.
//!
//! What pairs with what: (A) the reader stores a slot, fences and loads the pointer again; the scan fences and loads the
//! slots. So the scan sees the slot, or the reader sees that the object has been removed. (E) the reader's release of a
//! slot pairs with the scan's load: what was done with an object happens before it is reclaimed.
//!
//! Size: 64 bytes of slots per thread. Atomics per protection: none. Garbage: at most [`HazardDomain::bound`] objects,
//! whatever readers do. A thread that retires may wait for a scan, which waits for no reader.

use super::garbage::Garbage;
use super::header::{Header, ReclaimFn, Retire, note, prepare};
use super::list::List;
use super::pointer;
use super::sieve::{BATCH, Sieve};
use super::strategy::{Guard, Info, Reader, Reclaim};
use crate::machine::record::{self, Hazards, Kept, POINTERS, Records, SLOTS, Slots};
use crate::machine::{Group, Native, Word};
use alloc::boxed::Box;
use core::hint::cold_path;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, Ordering::*};

/// Hazard pointers that a scan looks for at a time; more of them take another pass over the objects.
const PASS: usize = 128;

pub use super::pointer::HazardPointer;

/// A domain: objects that are retired together. Slots are the process's: one protects an object of any domain.
pub struct HazardDomain<M: Records, const FULL_FENCE: bool = false> {
    sieve: Sieve<M>,
}

/// A thread that reads with hazard pointers. See [`Reclaim::reader`].
pub struct HazardReader<'d, M: Records, const FULL_FENCE: bool = false> {
    record: Kept<M>,
    /// Whether the thread has no light fences.
    fenced: bool,
    /// With `FULL_FENCE`, the slots that belong to this reader.
    own: Option<&'static Slots<M>>,
    /// Whether a guard has the slots in `own`. Only the reader's thread uses this.
    busy: AtomicBool,
    domain: PhantomData<&'d ()>,
}

/// The flag of a guard whose thread has no light fences ([`HazardGuard`]).
static NO_LIGHT_FENCE: AtomicBool = AtomicBool::new(true);

/// [`SLOTS`] hazard pointers.
pub struct HazardGuard<'r, M: Records, const FULL_FENCE: bool = false> {
    slots: &'static Slots<M>,
    /// With `FULL_FENCE`: the reader's `busy`, if the slots are the reader's own. Without: [`NO_LIGHT_FENCE`], if the
    /// thread has none. One field serves both, so that a guard fits into two registers.
    flag: Option<&'r AtomicBool>,
    /// Not `Send`: the slots are the thread's.
    thread: PhantomData<*mut ()>,
}

/// The first slots of the calling thread that no guard has, from this block on; makes more slots if none are free.
#[cold]
pub(super) fn free_slots<M: Records>(mut block: &'static Hazards<M>) -> &'static Slots<M> {
    loop {
        if let Some(slots) = block.groups.iter().find(|slots| slots.used.load(Relaxed) == 0) {
            return slots;
        }
        if block.more.load(Relaxed).is_null() {
            // Release: pairs with the load in `Hazards::blocks`.
            block.more.store(Box::leak(Box::new(Hazards::new())), Release);
        }
        // SAFETY: blocks live as long as records, for ever.
        block = unsafe { &*block.more.load(Relaxed) };
    }
}

impl<'r, M: Records, const FULL_FENCE: bool> HazardGuard<'r, M, FULL_FENCE> {
    /// A guard with the reader's own slots, unless another guard has them.
    #[inline(always)]
    fn take_own(reader: &'r HazardReader<'_, M, FULL_FENCE>) -> Option<Self> {
        let slots = reader.own.filter(|_| !reader.busy.load(Relaxed))?;
        reader.busy.store(true, Relaxed);
        Some(HazardGuard { slots, flag: Some(&reader.busy), thread: PhantomData })
    }

    /// A guard with these slots, unless another guard has them.
    #[inline(always)]
    fn take(slots: &'static Slots<M>, flag: Option<&'r AtomicBool>) -> Option<Self> {
        if slots.used.load(Relaxed) != 0 {
            return None;
        }
        // What the slots still hold counts from here on: at worst, an object is kept for as long as this guard. To clear them in each
        // section would cost four stores.
        // (E) what was done in a section of intervals that had the slots happens before what a look does that sees this.
        slots.used.store(POINTERS, Release);
        Some(HazardGuard { slots, flag, thread: PhantomData })
    }

    /// A guard with the first free slots of the thread; makes more slots if none are free.
    #[cold]
    fn take_any(block: &'static Hazards<M>, flag: Option<&'r AtomicBool>) -> Self {
        Self::take(free_slots(block), flag).expect("the slots are free")
    }

    /// Ends the protection of `slot`.
    #[inline(always)]
    pub fn clear(&self, slot: usize) {
        // (E) what was done with the object happens before what a scan does that sees this.
        self.slot(slot).store(0, Release);
    }

    #[inline(always)]
    fn slot(&self, slot: usize) -> &M::Usize {
        assert!(slot < SLOTS, "a guard has {SLOTS} slots");
        &self.slots.hazards[slot]
    }

    /// Publishes the pointer, and looks whether it still stands there.
    #[inline(always)]
    fn try_protect<T: Send + Sync + 'static>(&self, slot: &M::Usize, from: &M::Ptr<T>) -> Result<*mut T, ()> {
        let pointer = from.load(if FULL_FENCE { Acquire } else { Relaxed });
        // As in Michael's loop. With light fences, the comparison would cost more than it saves.
        if FULL_FENCE && pointer.is_null() {
            return Ok(pointer);
        }
        // (E) what was done with the slot's previous object happens before what a scan does that sees this.
        slot.store(pointer.addr(), Release);
        // (A) pairs with the fence in `scan`: the scan sees the slot, or this thread sees that the object was removed.
        if FULL_FENCE {
            M::full_fence();
        } else if self.flag.is_some() {
            M::light_fence();
        } else {
            M::lightest_fence();
        }
        if from.load(Acquire) == pointer { Ok(pointer) } else { Err(()) }
    }
}

impl<M: Records, const FULL_FENCE: bool> Drop for HazardGuard<'_, M, FULL_FENCE> {
    #[inline(always)]
    fn drop(&mut self) {
        match self.flag {
            Some(busy) if FULL_FENCE => busy.store(false, Relaxed),
            // (E) as in `clear`.
            _ => self.slots.used.store(0, Release),
        }
    }
}

// SAFETY: the address stood in a slot before this thread saw that the object was linked. So it stood there when the object
// was removed. Every scan that finds the object comes after that, and sees the slot (A).
unsafe impl<M: Records, const FULL_FENCE: bool> Guard for HazardGuard<'_, M, FULL_FENCE> {
    type Machine = M;

    #[inline(always)]
    fn protect<T: Send + Sync + 'static>(&self, slot: usize, from: &M::Ptr<T>) -> *mut T {
        let slot = self.slot(slot);
        loop {
            if let Ok(pointer) = self.try_protect(slot, from) {
                return pointer;
            }
            cold_path();
        }
    }
}

impl<M: Records, const FULL_FENCE: bool> Reader for HazardReader<'_, M, FULL_FENCE> {
    type Machine = M;
    type Guard<'r>
        = HazardGuard<'r, M, FULL_FENCE>
    where
        Self: 'r;

    #[inline(always)]
    fn enter(&self) -> HazardGuard<'_, M, FULL_FENCE> {
        let flag = || self.fenced.then_some(&NO_LIGHT_FENCE);
        self.try_enter().unwrap_or_else(|| HazardGuard::take_any(&self.record.get().hazards, flag()))
    }

    #[inline(always)]
    fn try_enter(&self) -> Option<HazardGuard<'_, M, FULL_FENCE>> {
        if FULL_FENCE {
            HazardGuard::take_own(self)
        } else if self.fenced {
            None
        } else {
            HazardGuard::take(&self.record.get().hazards.groups[0], None)
        }
    }

    #[inline]
    fn offline<R>(&mut self, work: impl FnOnce() -> R) -> R {
        // The reader is borrowed mutably, so there is no guard: nothing needs protection.
        for slot in self.own.iter().flat_map(|own| &own.hazards) {
            slot.store(0, Release); // (E)
        }
        work()
    }
}

impl<M: Records, const FULL_FENCE: bool> Drop for HazardReader<'_, M, FULL_FENCE> {
    #[inline]
    fn drop(&mut self) {
        if let Some(own) = self.own {
            own.used.store(0, Release); // (E)
        }
    }
}

impl HazardDomain<Native> {
    /// A domain without garbage, in a constant.
    pub const fn new() -> Self {
        HazardDomain { sieve: Sieve::native() }
    }
}

impl<M: Records, const FULL_FENCE: bool> HazardDomain<M, FULL_FENCE> {
    /// The largest number of objects that are garbage, if `threads` threads retire at the same time and all threads
    /// together have `slots` hazard pointers: what has come in, what is being scanned, and what is protected. What a destructor
    /// retires comes on top, until it has returned and its thread retires again.
    pub const fn bound(threads: u64, slots: u64) -> u64 {
        // A thread scans its list when a batch has come in. While another thread scans what it has taken from that list,
        // a further batch may come in; and one more on the shared stack, before the thread waits.
        3 * BATCH as u64 * threads + slots
    }

    /// [`retire`](Reclaim::retire) for an object of which the caller knows only the header: one of C or C++, say.
    /// A hazard pointer protects the object if it points to one of the `bytes` from the header on; `bytes` also counts as
    /// [`Garbage::bytes`]. `reclaim` is called once, by any thread.
    ///
    /// # Safety
    ///
    /// - The header is valid, and nothing else uses it, until `reclaim` is called.
    /// - The object was removed as [`retire`](Reclaim::retire) says, and is retired once.
    /// - `reclaim` may be called for the header, in any thread.
    #[inline]
    pub unsafe fn retire_raw(&self, header: *mut Header, bytes: u32, reclaim: ReclaimFn) {
        // SAFETY: the header is valid and the caller's alone, says the caller.
        unsafe { note(header, bytes, reclaim) };
        self.sieve.retire(header, |list| self.scan(list));
    }

    /// Whether everything that was retired before is reclaimed. What its destructors did happens before the return.
    pub fn is_clean(&self) -> bool {
        self.sieve.backlog.is_clean()
    }

    /// Reclaims each object that waits in a list and that no slot points into. The caller has the list.
    fn scan(&self, list: &List<M>) {
        // (A) pairs with the fence in `protect`. The objects were removed before they came in.
        if FULL_FENCE {
            M::full_fence();
        } else if !M::heavy_fence() {
            return; // the objects wait for the next scan
        }
        let mut objects = list.detach();
        let mut hazards = [0; PASS];
        let mut found = 0;
        let records = record::groups::<M>().into_iter().flat_map(Group::owned);
        // (E) pairs with the readers' stores.
        let used = |group: &&Slots<M>| group.used.load(Acquire) == POINTERS;
        let of_guards = records.flat_map(|record| record.hazards.all()).filter(used).flat_map(|g| &g.hazards);
        for hazard in of_guards.chain(pointer::addresses::<M>()) {
            let hazard = hazard.load(Acquire); // (E)
            if hazard == 0 {
                continue;
            }
            hazards[found] = hazard;
            found += 1;
            if found == PASS {
                objects = Self::sift(list, objects, &mut hazards);
                found = 0;
            }
        }
        objects = Self::sift(list, objects, &mut hazards[..found]);
        list.attach(objects);
        // SAFETY: the objects were removed before the fence. After it, no slot pointed into them; and none will, because
        // a reader that publishes such an address now sees that the object was removed.
        unsafe { list.reclaim() };
    }

    /// Whether a guard of the calling thread's own protects an object.
    fn protects_itself(object: &Header) -> bool {
        let first = core::ptr::from_ref(object).addr();
        let object = first..first + object.bytes();
        let used = |slots: &&Slots<M>| slots.used.load(Relaxed) == POINTERS;
        record::own_if_any::<M>().is_some_and(|record| {
            let mut own = record.hazards.all().filter(used).flat_map(|slots| &slots.hazards);
            own.any(|hazard| object.contains(&hazard.load(Relaxed)))
        })
    }

    /// Keeps those of `objects` that a hazard pointer points into, and returns the others.
    fn sift(list: &List<M>, objects: *mut Header, hazards: &mut [usize]) -> *mut Header {
        hazards.sort_unstable();
        list.keep(objects, |header| {
            let object = core::ptr::from_ref(header).addr();
            let first = hazards.partition_point(|hazard| *hazard < object);
            hazards.get(first).is_some_and(|hazard| *hazard < object + header.bytes())
        })
    }
}

// SAFETY: a scan looks at the slots of all threads of the process, and keeps each object that one of them points into.
// Each object is in one list.
unsafe impl<M: Records, const FULL_FENCE: bool> Reclaim for HazardDomain<M, FULL_FENCE> {
    type Machine = M;
    type Reader<'d> = HazardReader<'d, M, FULL_FENCE>;
    const INFO: Info = Info {
        name: if FULL_FENCE { "hazard-fence" } else { "hazard" },
        summary: if FULL_FENCE {
            "hazard pointers: readers publish what they follow, a full fence each"
        } else {
            "hazard pointers: readers publish what they follow, a light fence each"
        },
        reader: if FULL_FENCE {
            "a store, a full fence and a second look per pointer"
        } else {
            "a store and a second look per pointer"
        },
        atomics: 0,
        bound: "768 objects per retiring thread, and one per hazard pointer",
        source: "Michael 2004",
    };

    fn new_in() -> Self {
        HazardDomain { sieve: Sieve::new() }
    }

    fn reader(&self) -> HazardReader<'_, M, FULL_FENCE> {
        let kept = Kept::<M>::new();
        let record = kept.get();
        let fenced = !FULL_FENCE && !M::prepare_fences();
        let own = FULL_FENCE.then(|| {
            let guard = HazardGuard::<M, FULL_FENCE>::take_any(&record.hazards, None);
            let slots = guard.slots;
            core::mem::forget(guard); // the reader gives them back
            slots
        });
        HazardReader { record: kept, fenced, own, busy: AtomicBool::new(false), domain: PhantomData }
    }

    #[inline(always)]
    fn covers<'r, 'd>(&self, _: &HazardGuard<'r, M, FULL_FENCE>) -> bool
    where
        HazardReader<'d, M, FULL_FENCE>: 'r,
    {
        true
    }

    #[inline]
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: the object is alive and begins with its header (`Retire`), and is retired once, says the caller.
        self.sieve.retire(unsafe { prepare(object) }, |list| self.scan(list));
    }

    fn collect(&self) {
        self.sieve.collect(|list| self.scan(list));
    }

    /// Waits until no hazard pointer points to an object that is retired already. If a [`HazardPointer`] of the caller's own does, it
    /// waits for ever. A guard counts with what the guard before it in its thread has protected, until it protects something else.
    #[track_caller]
    fn barrier(&self) {
        self.sieve.barrier(|list| self.scan(list), Self::protects_itself);
    }

    fn garbage(&self) -> Garbage {
        self.sieve.backlog.garbage()
    }
}

impl<M: Records, const FULL_FENCE: bool> Default for HazardDomain<M, FULL_FENCE> {
    /// A domain without garbage.
    fn default() -> Self {
        Self::new_in()
    }
}

impl<M: Records, const FULL_FENCE: bool> Drop for HazardDomain<M, FULL_FENCE> {
    /// Reclaims everything that no slot points into. Guards that outlive the domain are those of other domains; what they
    /// protect is leaked.
    fn drop(&mut self) {
        self.sieve.close(|list| self.scan(list));
    }
}

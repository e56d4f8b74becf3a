//! Other libraries' reclamation, as strategies of the table: their readers, their garbage, our chains and locks.

use crate::tables::lock_place::InHead;
use crate::tables::readers::{PerReference, SectionWide};
use latchwork::machine::Native;
use latchwork::reclaim::{Garbage, Guard, Info, Reader, Reclaim, Retire};
use std::cell::{Cell, RefCell, UnsafeCell};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{Acquire, Relaxed},
};

const fn info(name: &'static str) -> Info {
    Info {
        name,
        summary: "another library's",
        reader: "what the library asks",
        atomics: 0,
        bound: "the library's",
        source: "the library",
    }
}

/// Ends an object's life.
///
/// # Safety
///
/// Nobody uses it any more, and this is called once.
unsafe fn finish<T: Retire>(object: *mut T) {
    // SAFETY: the caller's promise.
    unsafe { T::reclaim(object) }
}

/// crossbeam-epoch, with a collector for each table, told apart by a number: its garbage must not outlive the table's
/// pool.
pub struct Crossbeam(crossbeam_epoch::Collector, usize);

thread_local! {
    /// A copy of the registration of the thread's last reader, and with which table. What the thread retires goes there: under
    /// the reader's guard that is no second pin, as in a program that retires through its guard.
    static RETIRES: RefCell<Option<(usize, ManuallyDrop<crossbeam_epoch::LocalHandle>)>> =
        const { RefCell::new(None) };
}

impl Drop for CrossbeamReader<'_> {
    fn drop(&mut self) {
        // The copy is of this registration, or of that of another reader with the table, which then goes without.
        RETIRES.with_borrow_mut(|retires| _ = retires.take_if(|(table, _)| *table == self.1));
    }
}

/// A thread's registration, and with which table.
pub struct CrossbeamReader<'d>(crossbeam_epoch::LocalHandle, usize, PhantomData<&'d ()>);

impl Crossbeam {
    /// Calls `with` with a guard of the thread's registration, or of a new one if the thread has no reader.
    fn pinned<R>(&self, with: impl FnOnce(&crossbeam_epoch::Guard) -> R) -> R {
        RETIRES.with_borrow(|retires| match retires {
            Some((table, handle)) if *table == self.1 => with(&handle.pin()),
            _ => with(&self.0.register().pin()),
        })
    }
}

/// A section.
pub struct CrossbeamGuard(crossbeam_epoch::Guard);

// SAFETY: what is read while a thread is pinned is not reclaimed until it is not.
unsafe impl Guard for CrossbeamGuard {
    type Machine = Native;
    #[inline(always)]
    fn protect<T: Send + Sync + 'static>(&self, _: usize, from: &AtomicPtr<T>) -> *mut T {
        from.load(Acquire)
    }
}

impl Reader for CrossbeamReader<'_> {
    type Machine = Native;
    type Guard<'r>
        = CrossbeamGuard
    where
        Self: 'r;
    #[inline(always)]
    fn enter(&self) -> CrossbeamGuard {
        CrossbeamGuard(self.0.pin())
    }
}

// SAFETY: the library's promise, for the guards of the same collector.
unsafe impl Reclaim for Crossbeam {
    type Machine = Native;
    type Reader<'d> = CrossbeamReader<'d>;
    const INFO: Info = info("crossbeam-epoch");
    fn new_in() -> Self {
        static TABLES: AtomicUsize = AtomicUsize::new(0);
        Crossbeam(crossbeam_epoch::Collector::new(), TABLES.fetch_add(1, Relaxed))
    }
    fn reader(&self) -> CrossbeamReader<'_> {
        let handle = self.0.register();
        // SAFETY: a handle is a pointer to the registration, which lives as long as the reader's handle. The copy is never
        // dropped, and no longer used when the reader ends (`Drop` of the reader).
        let copy = unsafe { ManuallyDrop::new(std::ptr::read(&handle)) };
        RETIRES.set(Some((self.1, copy)));
        CrossbeamReader(handle, self.1, PhantomData)
    }
    #[inline(always)]
    fn covers<'r, 'd>(&self, guard: &CrossbeamGuard) -> bool
    where
        CrossbeamReader<'d>: 'r,
    {
        guard.0.collector() == Some(&self.0)
    }
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: the caller's promise; the collector is dropped before the pool.
        self.pinned(|guard| unsafe { guard.defer_unchecked(move || finish(object)) });
    }
    fn collect(&self) {
        self.pinned(crossbeam_epoch::Guard::flush);
    }
    fn barrier(&self) {
        self.collect();
    }
    fn garbage(&self) -> Garbage {
        Garbage::default()
    }
}

// SAFETY: crossbeam-epoch reclaims nothing that was retired after a guard was made, until that guard is dropped.
unsafe impl SectionWide for Crossbeam {
    const LOCKED: &'static str = "crossbeam-epoch";
    const LOCK_FREE: &'static str = "crossbeam-epoch-nbs";
    const COUNTS: bool = false;
    type Lock = InHead;
}

/// seize.
pub struct Seize(seize::Collector);

/// A thread that reads.
pub struct SeizeReader<'d>(&'d seize::Collector);

/// A section.
pub struct SeizeGuard<'d>(seize::LocalGuard<'d>);

// SAFETY: the library's promise.
unsafe impl Guard for SeizeGuard<'_> {
    type Machine = Native;
    #[inline(always)]
    fn protect<T: Send + Sync + 'static>(&self, _: usize, from: &AtomicPtr<T>) -> *mut T {
        seize::Guard::protect(&self.0, from, Acquire)
    }
}

impl Reader for SeizeReader<'_> {
    type Machine = Native;
    type Guard<'r>
        = SeizeGuard<'r>
    where
        Self: 'r;
    #[inline(always)]
    fn enter(&self) -> SeizeGuard<'_> {
        SeizeGuard(self.0.enter())
    }
}

// SAFETY: the library's promise, for the guards of the same collector.
unsafe impl Reclaim for Seize {
    type Machine = Native;
    type Reader<'d> = SeizeReader<'d>;
    const INFO: Info = info("seize");
    fn new_in() -> Self {
        Seize(seize::Collector::new())
    }
    fn reader(&self) -> SeizeReader<'_> {
        SeizeReader(&self.0)
    }
    #[inline(always)]
    fn covers<'r, 'd>(&self, guard: &SeizeGuard<'r>) -> bool
    where
        SeizeReader<'d>: 'r,
    {
        seize::Guard::collector(&guard.0) == &self.0
    }
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: the caller's promise; the collector is dropped before the pool.
        unsafe { self.0.retire(object, |object, _| finish(object)) };
    }
    fn collect(&self) {
        seize::Guard::flush(&self.0.enter());
    }
    fn barrier(&self) {
        self.collect();
    }
    fn garbage(&self) -> Garbage {
        Garbage::default()
    }
}

// SAFETY: seize reclaims nothing that was retired after a guard was made, until that guard is dropped.
unsafe impl SectionWide for Seize {
    const LOCKED: &'static str = "seize";
    const LOCK_FREE: &'static str = "seize-nbs";
    const COUNTS: bool = false;
    type Lock = InHead;
}

/// haphazard. (Only for tables that follow no marked pointers: its hazards are exact addresses.)
pub struct Haphazard(haphazard::Domain<Family>);

/// The library's name for hazard pointers that belong together.
pub struct Family;

/// Two hazard pointers, which a guard uses.
pub struct HaphazardReader<'d>(
    [UnsafeCell<haphazard::HazardPointer<'d, Family>>; 2],
    Cell<bool>,
    &'d haphazard::Domain<Family>,
);

/// A section.
pub struct HaphazardGuard<'r, 'd>(&'r HaphazardReader<'d>);

// SAFETY: the library's promise. A hazard pointer is used by its reader's one guard.
unsafe impl Guard for HaphazardGuard<'_, '_> {
    type Machine = Native;
    #[inline(always)]
    fn protect<T: Send + Sync + 'static>(&self, slot: usize, from: &AtomicPtr<T>) -> *mut T {
        // SAFETY: nobody else has the hazard pointer, and no reference to it is kept.
        let hazard = unsafe { &mut *self.0.0[slot & 1].get() };
        hazard.protect_ptr(from).map_or(null_mut(), |(found, _)| found.as_ptr())
    }
}

impl Drop for HaphazardGuard<'_, '_> {
    #[inline(always)]
    fn drop(&mut self) {
        for hazard in &self.0.0 {
            // SAFETY: the guard borrows its hazard pointers, and no other reference to one of them is alive.
            unsafe { &mut *hazard.get() }.reset_protection();
        }
        self.0.1.set(false);
    }
}

impl<'d> Reader for HaphazardReader<'d> {
    type Machine = Native;
    type Guard<'r>
        = HaphazardGuard<'r, 'd>
    where
        Self: 'r;
    #[inline(always)]
    fn enter(&self) -> HaphazardGuard<'_, 'd> {
        assert!(!self.1.replace(true), "one guard at a time");
        HaphazardGuard(self)
    }
}

/// What haphazard makes of an object that it reclaims: dropping it ends the object.
struct Ended<T: Retire>(*mut T);

impl<T: Retire> std::ops::Deref for Ended<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: it is there until this is dropped.
        unsafe { &*self.0 }
    }
}

impl<T: Retire> Drop for Ended<T> {
    fn drop(&mut self) {
        // SAFETY: haphazard makes one of each object, once.
        unsafe { finish(self.0) };
    }
}

// SAFETY: a pointer, and back.
unsafe impl<T: Retire> haphazard::raw::Pointer<T> for Ended<T> {
    fn into_raw(self) -> *mut T {
        std::mem::ManuallyDrop::new(self).0
    }
    unsafe fn from_raw(object: *mut T) -> Self {
        Ended(object)
    }
}

// SAFETY: the library's promise, for the hazard pointers of the same domain.
unsafe impl Reclaim for Haphazard {
    type Machine = Native;
    type Reader<'d> = HaphazardReader<'d>;
    const INFO: Info = info("haphazard");
    fn new_in() -> Self {
        Haphazard(haphazard::Domain::new(&Family))
    }
    fn reader(&self) -> HaphazardReader<'_> {
        let hazard = |_| UnsafeCell::new(haphazard::HazardPointer::new_in_domain(&self.0));
        HaphazardReader(std::array::from_fn(hazard), Cell::new(false), &self.0)
    }
    #[inline(always)]
    fn covers<'r, 'd>(&self, guard: &HaphazardGuard<'r, 'd>) -> bool
    where
        HaphazardReader<'d>: 'r,
    {
        std::ptr::eq(guard.0.2, &self.0)
    }
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: the caller's promise; the domain is dropped before the pool.
        unsafe { self.0.retire_ptr::<T, Ended<T>>(object) };
    }
    fn collect(&self) {
        self.0.eager_reclaim();
    }
    fn barrier(&self) {
        self.collect();
    }
    fn garbage(&self) -> Garbage {
        Garbage::default()
    }
}

impl PerReference for Haphazard {
    const LOCKED: &'static str = "haphazard";
    const LOCK_FREE: &'static str = "haphazard-nbs";
    const COUNTS: bool = false;
}

#[cfg(test)]
mod tests {
    use super::*;
    use latchwork::reclaim::Header;
    use std::sync::atomic::AtomicU32;

    static ENDED: AtomicU32 = AtomicU32::new(0);

    #[repr(C)]
    struct Object(Header);

    // SAFETY: `repr(C)`, the header first.
    unsafe impl Retire for Object {}

    impl Drop for Object {
        fn drop(&mut self) {
            ENDED.fetch_add(1, Relaxed);
        }
    }

    /// What a thread has retired is in its registration's bag, so collecting must flush that one.
    #[test]
    fn crossbeam_s_collect_reclaims_what_the_thread_has_retired() {
        let domain = Crossbeam::new_in();
        let reader = domain.reader();
        let guard = reader.enter();
        // SAFETY: no other thread has it.
        unsafe { domain.retire(Box::into_raw(Box::new(Object(Header::new())))) };
        (0..8).for_each(|_| domain.collect());
        assert_eq!(ENDED.load(Relaxed), 0, "the guard keeps it");
        drop(guard);
        (0..8).for_each(|_| domain.collect());
        assert_eq!(ENDED.load(Relaxed), 1);
    }
}

//! The epochs of crossbeam, as a strategy that this library's tables can be over.

use crossbeam_epoch::{Collector, LocalHandle};
use latchwork::machine::{Machine, Native};
use latchwork::map::bucket_lock::SectionWide;
use latchwork::reclaim::{Garbage, Guard, Info, Reader, Reclaim, Retire};
use std::sync::atomic::Ordering::Acquire;
use std::thread::LocalKey;

std::thread_local! {
    /// As `crossbeam_epoch::pin` has it.
    static LOCAL: LocalHandle = collector().register();
}

fn collector() -> &'static Collector {
    crossbeam_epoch::default_collector()
}

/// See the [module documentation](self).
pub struct Crossbeam;

pub struct Thread(&'static LocalKey<LocalHandle>);

pub struct Pinned {
    _guard: crossbeam_epoch::Guard,
}

// SAFETY: what is deferred in one pinned section runs when all that began before it are over.
unsafe impl Guard for Pinned {
    type Machine = Native;
    #[inline(always)]
    fn protect<T: Send + Sync + 'static>(&self, _: usize, from: &<Native as Machine>::Ptr<T>) -> *mut T {
        from.load(Acquire)
    }
}

impl Reader for Thread {
    type Machine = Native;
    type Guard<'r> = Pinned;
    #[inline(always)]
    fn enter(&self) -> Pinned {
        Pinned { _guard: self.0.with(LocalHandle::pin) }
    }
}

impl Reclaim for Crossbeam {
    type Machine = Native;
    type Reader<'d> = Thread;
    const INFO: Info = Info {
        name: "crossbeam-epoch",
        summary: "the epochs of crossbeam",
        bound: "none",
        source: "crossbeam-epoch",
    };
    fn new_in() -> Self {
        Crossbeam
    }
    fn reader(&self) -> Thread {
        Thread(&LOCAL)
    }
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        let guard = LOCAL.with(LocalHandle::pin);
        let object = object.expose_provenance();
        // SAFETY: the caller has removed it; it is reclaimed once, when nobody uses it.
        unsafe {
            guard.defer_unchecked(move || T::reclaim(std::ptr::with_exposed_provenance_mut(object)));
        }
    }
    fn collect(&self) {
        LOCAL.with(LocalHandle::pin).flush();
    }
    fn barrier(&self) {
        self.collect();
    }
    fn garbage(&self) -> Garbage {
        Garbage::default()
    }
}

impl Drop for Crossbeam {
    /// What is deferred goes back to the table's pool, so that has to be there until then: several turns of the
    /// epoch, which nobody holds up when a table is dropped.
    fn drop(&mut self) {
        for _ in 0..1000 {
            self.collect();
        }
    }
}

// SAFETY: a pinned section protects all that it reads.
unsafe impl SectionWide for Crossbeam {
    const LOCKED: &'static str = "crossbeam-epoch, bucket locks";
    const LOCK_FREE: &'static str = "crossbeam-epoch, lock-free";
}

//! Interval-based reclamation that is broken on purpose.

use latchwork::machine::{Machine, Records, Word};
use latchwork::reclaim::interval::{IntervalDomain, IntervalGuard, IntervalReader};
use latchwork::reclaim::{Garbage, Guard, Info, Limit, Reader, Reclaim, Retire};
use std::sync::atomic::Ordering::Acquire;

/// Its readers do not look at the clock when they read a pointer.
pub struct Blind<M: Records>(IntervalDomain<M, 0>);

/// See [`Blind`].
pub struct BlindReader<'d, M: Records>(IntervalReader<'d, M, 0>);

/// See [`Blind`].
pub struct BlindGuard<'r, M: Records> {
    _guard: IntervalGuard<'r, M, 0>,
}

// SAFETY: none: the torture must catch it.
unsafe impl<M: Records> Guard for BlindGuard<'_, M> {
    type Machine = M;
    fn protect<T: Send + Sync + 'static>(&self, _: usize, from: &<M as Machine>::Ptr<T>) -> *mut T {
        from.load(Acquire)
    }
}

impl<M: Records> Reader for BlindReader<'_, M> {
    type Machine = M;
    type Guard<'r>
        = BlindGuard<'r, M>
    where
        Self: 'r;
    fn enter(&self) -> BlindGuard<'_, M> {
        BlindGuard { _guard: self.0.enter() }
    }
}

// SAFETY: none: the torture must catch it.
unsafe impl<M: Records> Reclaim for Blind<M> {
    type Machine = M;
    type Reader<'d> = BlindReader<'d, M>;
    const INFO: Info = IntervalDomain::<M, 0>::INFO;

    fn new_in() -> Self {
        Blind(IntervalDomain::new_in())
    }
    fn reader(&self) -> BlindReader<'_, M> {
        BlindReader(self.0.reader())
    }
    fn covers<'r, 'd>(&self, _: &BlindGuard<'r, M>) -> bool
    where
        BlindReader<'d, M>: 'r,
    {
        true
    }
    fn note_new<T: Retire>(object: &mut T) {
        IntervalDomain::<M, 0>::note_new(object);
    }
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: the caller's promise.
        unsafe { self.0.retire(object) };
    }
    fn set_limit(&self, limit: Limit) {
        self.0.set_limit(limit);
    }
    fn collect(&self) {
        self.0.collect();
    }
    fn barrier(&self) {
        self.0.barrier();
    }
    fn garbage(&self) -> Garbage {
        self.0.garbage()
    }
}

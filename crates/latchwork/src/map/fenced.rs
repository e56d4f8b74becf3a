//! Hazard pointers whose readers pay for the fence, as those of the paper did.
//!
//! Source: Michael, "Hazard Pointers", IEEE TPDS 2004, section 3.1; McKenney, Hart and Walpole, "Practical
//! Concerns for Scalable Synchronization", 2005, section 4.1: readers "are slowed by the memory barriers needed
//! to manage read-side hazard-pointer manipulations".
//!
//! A yardstick, not one to use: our [`HazardDomain`] has a fence that is free for readers. Here each protection
//! also makes an exchange on a word of the reader's own: a full fence on x86-64, and what the simulator charges
//! an atomic operation for. Nothing relies on it.

use crate::machine::{Records, Word};
use crate::reclaim::hazard::HazardDomain;
use crate::reclaim::{Garbage, Guard, Info, Limit, Reader, Reclaim, Retire};
use core::sync::atomic::Ordering::SeqCst;

/// The domain. See the [module documentation](self).
pub struct Fenced<M: Records>(HazardDomain<M>);

type InnerReader<'d, M> = <HazardDomain<M> as Reclaim>::Reader<'d>;

/// A thread that reads.
pub struct FencedReader<'d, M: Records> {
    inner: InnerReader<'d, M>,
    fence: M::U32,
}

/// Hazard pointers, and the word to fence with.
pub struct FencedGuard<'r, M: Records> {
    inner: <InnerReader<'r, M> as Reader>::Guard<'r>,
    fence: &'r M::U32,
}

// SAFETY: the inner guard protects.
unsafe impl<M: Records> Guard for FencedGuard<'_, M> {
    type Machine = M;
    #[inline(always)]
    fn protect<T: Send + Sync + 'static>(&self, slot: usize, from: &M::Ptr<T>) -> *mut T {
        let pointer = self.inner.protect(slot, from);
        self.fence.swap(1, SeqCst);
        pointer
    }
}

impl<'d, M: Records> Reader for FencedReader<'d, M> {
    type Machine = M;
    type Guard<'r>
        = FencedGuard<'r, M>
    where
        Self: 'r;
    #[inline(always)]
    fn enter(&self) -> FencedGuard<'_, M> {
        FencedGuard { inner: self.inner.enter(), fence: &self.fence }
    }
}

impl<M: Records> Reclaim for Fenced<M> {
    type Machine = M;
    type Reader<'d> = FencedReader<'d, M>;
    const INFO: Info = Info {
        name: "hazard-fence",
        summary: "hazard pointers whose readers issue a full fence each",
        ..<HazardDomain<M> as Reclaim>::INFO
    };
    fn new_in() -> Self {
        Fenced(HazardDomain::new_in())
    }
    fn reader(&self) -> FencedReader<'_, M> {
        FencedReader { inner: self.0.reader(), fence: Word::new(0) }
    }
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: forwarded from the caller.
        unsafe { self.0.retire(object) }
    }
    fn set_limit(&self, limit: Limit) {
        self.0.set_limit(limit);
    }
    fn throttle(&self) {
        self.0.throttle();
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

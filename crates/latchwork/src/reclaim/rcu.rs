//! General-purpose RCU.
//!
//! Source: as [`grace`]; this is its "general-purpose" flavour with `sys_membarrier`.
//!
//! A reader stamps the outermost section with the time, with plain instructions and a light fence; the
//! end is one decrement. Sections nest. Nothing has to be announced otherwise, and threads need not be
//! registered: the first section does.
//!
//! State of a record's `section`: (time, nested sections); 0 nested is outside.
//! Atomics per section: none. A reader that stays in its section holds up all reclamation: garbage is
//! bounded by [`Limit`] as far as retirers are outside of sections, and unbounded otherwise.

use super::domain::Domain;
use super::grace::{self, Flavour};
use super::header::Retire;
use super::{Garbage, Guard, Info, Limit, Reader, Reclaim};
use crate::machine::Machine;
use crate::machine::Word;
use crate::machine::record::{Record, Records};
use core::marker::PhantomData;
use core::sync::atomic::Ordering::Acquire;

/// The flavour. See the [module documentation](self).
#[derive(Copy, Clone, Debug)]
pub struct General;

impl Flavour for General {
    #[inline(always)]
    fn word<M: Machine>(record: &Record<M>) -> &M::U64 {
        &record.section
    }
}

/// A domain of general-purpose RCU.
pub type RcuDomain<M> = Domain<M, General>;

/// A thread that reads. See [`Reclaim::reader`].
pub struct RcuReader<'d, M: Records> {
    domain: &'d RcuDomain<M>,
    record: &'static Record<M>,
    /// Not `Send`: the record is the thread's.
    thread: PhantomData<*mut ()>,
}

/// A section.
pub struct RcuGuard<'r, M: Records> {
    record: &'static Record<M>,
    reader: PhantomData<(&'r (), *mut ())>,
}

impl<M: Records> RcuDomain<M> {
    /// A section of the calling thread.
    #[inline(always)]
    pub fn enter(&self) -> RcuGuard<'_, M> {
        RcuGuard::new(M::record())
    }
}

impl<M: Records> RcuGuard<'_, M> {
    #[inline(always)]
    fn new(record: &'static Record<M>) -> Self {
        grace::enter::<M>(&record.section, M::clocks());
        RcuGuard { record, reader: PhantomData }
    }
}

impl<M: Records> Drop for RcuGuard<'_, M> {
    #[inline(always)]
    fn drop(&mut self) {
        grace::exit::<M>(&self.record.section);
    }
}

// SAFETY: a section that has begun before an object is retired ends before it is reclaimed (`grace`).
unsafe impl<M: Records> Guard for RcuGuard<'_, M> {
    type Machine = M;

    #[inline(always)]
    fn protect<T: Send + Sync + 'static>(&self, _: usize, from: &M::Ptr<T>) -> *mut T {
        from.load(Acquire)
    }
}

impl<M: Records> Reader for RcuReader<'_, M> {
    type Machine = M;
    type Guard<'r>
        = RcuGuard<'r, M>
    where
        Self: 'r;

    #[inline(always)]
    fn enter(&self) -> RcuGuard<'_, M> {
        RcuGuard::new(self.record)
    }

    #[inline(always)]
    fn quiescent(&mut self) {
        if self.domain.is_pressed() {
            self.domain.relent();
        }
    }
}

impl<M: Records> Reclaim for RcuDomain<M> {
    type Machine = M;
    type Reader<'d> = RcuReader<'d, M>;
    const INFO: Info = Info {
        name: "rcu",
        summary: "general-purpose RCU: readers stamp sections, a light fence each",
        bound: "the limit, for who retires outside of sections",
        source: "Desnoyers et al. 2012, section 3.4",
    };

    fn new_in() -> Self {
        Domain::new_in()
    }

    fn reader(&self) -> RcuReader<'_, M> {
        RcuReader { domain: self, record: M::record(), thread: PhantomData }
    }

    #[inline]
    unsafe fn retire<T: Retire>(&self, object: *mut T) {
        // SAFETY: forwarded from the caller.
        unsafe { Domain::retire(self, object) };
    }

    fn throttle(&self) {
        Domain::throttle(self);
    }

    fn set_limit(&self, limit: Limit) {
        Domain::set_limit(self, limit);
    }

    fn collect(&self) {
        Domain::collect(self);
    }

    #[track_caller]
    fn synchronize(&self) {
        Domain::synchronize(self);
    }

    #[track_caller]
    fn barrier(&self) {
        Domain::barrier(self);
    }

    fn garbage(&self) -> Garbage {
        Domain::garbage(self)
    }
}

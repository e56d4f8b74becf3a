//! General-purpose RCU.
//!
//! Source: as [`grace`](super::grace); this is its "general-purpose" flavour with `sys_membarrier`.
//!
//! A reader stamps the outermost section with the time, with plain instructions and a light fence; the
//! end is one decrement. Sections nest. Nothing has to be announced otherwise.
//!
//! State of a record's `section`: (time, nested sections); 0 nested is outside.
//! Atomics per section: none. A reader that stays in its section holds up all reclamation: garbage is
//! bounded by [`Limit`](super::Limit) as far as retirers are outside of sections, and unbounded otherwise.

use super::domain::{Domain, Flavour};
use super::grace::{Grace, Stamps};
use super::section::{SectionGuard, SectionReader};
use super::strategy::Info;
use crate::machine::record::{self, Clocks, Record, Records};
use crate::machine::{Machine, Native};
use alloc::boxed::Box;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::*};

/// The flavour. See the [module documentation](self).
#[derive(Copy, Clone, Debug)]
pub struct General;

// SAFETY: `SectionGuard` stamps `section` with `grace`, and issues the light fence after that.
unsafe impl Stamps for General {
    #[inline(always)]
    fn word<M: Machine>(record: &Record<M>) -> &M::U64 {
        &record.section
    }

    #[inline(always)]
    fn clock<M: Machine>(clocks: &Clocks<M>) -> &M::U64 {
        &clocks.grace
    }

    fn reached<M: Machine>(clocks: &Clocks<M>) -> Option<&M::U64> {
        Some(&clocks.reached[0])
    }
}

// SAFETY: sections are stamped with the time (`SectionGuard`), and `Grace` looks at all stamps.
unsafe impl Flavour for General {
    const INFO: Info = Info {
        name: "rcu",
        summary: "general-purpose RCU: readers stamp sections, a light fence each",
        reader: "a stamp on the section, with plain instructions",
        atomics: 0,
        bound: "the limit, for who retires outside of sections",
        source: "Desnoyers et al. 2012, section 3.4",
    };
    type Periods<M: Records> = Grace<M, Self>;
    type Reader<'d, M: Records> = SectionReader<'d, M, Self>;

    fn reader<M: Records>(domain: &Domain<M, Self>) -> SectionReader<'_, M, Self> {
        SectionReader::new(domain)
    }
}

/// A domain of general-purpose RCU.
pub type RcuDomain<M> = Domain<M, General>;

/// A section of general-purpose RCU.
pub type RcuGuard<'r, M> = SectionGuard<'r, M, General>;

/// The process's domain: the one of [`Rcu::new`](super::Rcu::new).
pub fn global() -> &'static RcuDomain<Native> {
    static GLOBAL: AtomicPtr<RcuDomain<Native>> = AtomicPtr::new(null_mut());
    // (A) pairs with the exchange below. SAFETY: never freed.
    if let Some(domain) = unsafe { GLOBAL.load(Acquire).as_ref() } {
        return domain;
    }
    let new = Box::into_raw(Box::new(RcuDomain::new_in()));
    match GLOBAL.compare_exchange(null_mut(), new, AcqRel, Acquire) {
        // SAFETY: as above.
        Ok(_) => unsafe { &*new },
        Err(first) => {
            // SAFETY: made above and given to nobody.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: as above.
            unsafe { &*first }
        }
    }
}

impl<M: Records> RcuDomain<M> {
    /// A section of the calling thread.
    #[inline(always)]
    pub fn enter(&self) -> RcuGuard<'_, M> {
        SectionGuard::new(record::own::<M>())
    }
}

//! General-purpose RCU (read-copy-update): readers mark their sections with plain instructions.
//!
//! Source: Desnoyers, McKenney, Stern, Dagenais, Walpole, "User-Level Implementations of Read-Copy Update", TPDS 2012,
//! section 3.4, the flavour with `sys_membarrier`; McKenney, Hart, Walpole, "Practical Concerns for Scalable
//! Synchronization", 2005, section 2.5.
//!
//! # The idea
//!
//! All readers of the process share one clock. When the outermost section of a thread begins, the thread copies the
//! clock into a word of its own: it *stamps* the section. A thread that wants to free an object first removes it from
//! where readers find it. Then it lets the clock advance, and waits until every thread is outside of any section or has
//! a stamp of the new time. A section with such a stamp began after the removal, so it cannot find the object. This wait
//! is a *grace period*.
//!
//! | file | what it does |
//! |---|---|
//! | this one | says which words general-purpose RCU uses, and holds the domain of the process |
//! | [`section`](super::section) | begins and ends sections (the reading side) |
//! | [`grace`](super::grace) | runs grace periods: clock, fences, the look at all threads |
//! | [`domain`](super::domain) | keeps what was retired, and reclaims it after a grace period (the writing side) |
//!
//! # States
//!
//! Each thread has a word, [`Record::section`]. It holds three things: the stamp (the upper 48 bits), whether the thread
//! lacks the light fence ([`FENCED`](crate::machine::record::FENCED)), and how many sections are nested (the lower 15
//! bits). Only the thread itself writes the word.
//!
//! | state | the word | the next state |
//! |---|---|---|
//! | outside | 0 nested; the stamp means nothing | inside, when the thread begins a section: stores the clock, of which the lowest bit is set |
//! | inside | the stamp, 1 nested | nested, when the thread begins a section in the section: adds 1; outside, when the guard is dropped: subtracts 1 |
//! | nested | the stamp of the outermost section, 2 or more | one fewer, when a guard is dropped |
//!
//! The clock, [`Clocks::grace`], grows with every grace period, and never goes back; the leader of the grace period
//! advances it. The states of a grace period are in [`grace`](super::grace).
//!
//! # What pairs with what
//!
//! | | reader (`section`) | leader (`grace`) | so that |
//! |---|---|---|---|
//! | (B) | loads the clock (acquire) | has advanced it (release) | a section with the new stamp does not find what was removed before |
//! | (C) | light fence, after it stored the stamp | heavy fence, after it advanced the clock | the leader sees the section, or the section begins after the removal |
//! | (E) | stores the word (release) when a section begins and ends | loads the word (acquire) | what was done in a section happens before the end of the grace period |
//!
//! (A), (D) and (F) pair the threads that wait with leaders, and leaders with each other: see [`grace`](super::grace).
//!
//! # What is promised
//!
//! - An object that is retired in any [`RcuDomain`] is reclaimed after every section of general-purpose RCU is over that
//!   began before the object was retired, in every thread of the process.
//! - A section waits for no thread, and executes no atomic read-modify-write. Sections nest, up to 32,767 deep.
//! - A reader that stays in its section holds up all reclamation in all domains. A thread that retires then waits for a
//!   bounded time whenever there is more garbage than the [`Limit`](super::Limit), and the garbage grows. A thread that
//!   retires inside of a section does not wait at all.

use super::domain::{Domain, Flavour};
use super::grace::{Grace, Stamps};
use super::section::{SectionGuard, SectionReader};
use super::strategy::Info;
use crate::machine::record::{self, Clocks, Record, Records};
use crate::machine::{Machine, Native};
use alloc::boxed::Box;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering::*};

/// General-purpose RCU as a flavour of [`Domain`]. See the [module documentation](self).
#[derive(Copy, Clone, Debug)]
pub struct General;

// SAFETY: `SectionGuard` stores the clock in `section`, and issues the light fence (C) after that.
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

// SAFETY: `SectionReader` makes `SectionGuard`s, which stamp as `Stamps` says; `Grace` looks at the stamps of all threads.
unsafe impl Flavour for General {
    const INFO: Info = Info {
        name: "rcu",
        summary: "general-purpose RCU: readers stamp sections, a light fence each",
        reader: "a stamp on the section, with plain instructions",
        atomics: 0,
        bound: "the limit, for threads that retire outside of sections",
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

/// The domain of the process: that of [`Rcu::new`](super::Rcu::new).
pub fn global() -> &'static RcuDomain<Native> {
    static GLOBAL: AtomicPtr<RcuDomain<Native>> = AtomicPtr::new(null_mut());
    // Acquire: pairs with the exchange below. SAFETY: the domain that is stored there is leaked, so it is never freed.
    if let Some(domain) = unsafe { GLOBAL.load(Acquire).as_ref() } {
        return domain;
    }
    let new = Box::into_raw(Box::new(RcuDomain::new_in()));
    match GLOBAL.compare_exchange(null_mut(), new, AcqRel, Acquire) {
        // SAFETY: leaked above.
        Ok(_) => unsafe { &*new },
        Err(first) => {
            // SAFETY: `new` was made above by a box, and no other thread has it.
            drop(unsafe { Box::from_raw(new) });
            // SAFETY: another thread has stored and leaked it.
            unsafe { &*first }
        }
    }
}

impl<M: Records> RcuDomain<M> {
    /// Begins a section of the calling thread, which ends when the guard is dropped.
    #[inline(always)]
    pub fn enter(&self) -> RcuGuard<'_, M> {
        SectionGuard::new(record::own::<M>())
    }
}

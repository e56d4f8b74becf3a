//! General-purpose RCU (read-copy-update): readers mark their sections with plain instructions
//! (and with a full fence where the kernel has no `membarrier`).
//!
//! Source: Desnoyers, McKenney, Stern, Dagenais, Walpole, "User-Level Implementations of Read-Copy Update", TPDS 2012,
//! section 3.4, the flavour with `sys_membarrier`; McKenney, Hart, Walpole, "Practical Concerns for Scalable
//! Synchronization", 2005, section 2.5.
//!
//! # The idea
//!
//! A thread *retires* an object: it has removed the object from where readers find it, and hands it over to be reclaimed.
//! All readers of the process share one clock. When the outermost section of a thread begins, the thread copies the
//! clock into a word of its own: it *stamps* the section. In each domain, one of the threads that want to reclaim, the
//! *leader*, runs the grace period for all of them: it lets the clock advance, and waits until every thread is outside of any
//! section or has a stamp of the new time or a later one. Such a section began after the removal, so it cannot find the
//! object. This wait is a *grace period*. Leaders of different domains may run at once.
//!
//! The paper's clock is one bit, which a reader that stamps late can misread, so a grace period there flips it twice. This
//! clock only grows: a reader that stamps late has an older stamp than need be, and the leader waits for it.
//!
//! The *light fence* is a compiler barrier, and the *heavy fence* is `membarrier`, which makes every running thread of the
//! process execute a full fence. A thread that does not run has executed one at its context switch. Together the two order as
//! two full fences do, and the reader executes none. Without `membarrier`, readers execute a full fence in place of the light
//! one, and so does the leader in place of the heavy one. If the kernel refuses `membarrier` later, no grace period ends and
//! nothing is reclaimed; a thread that waits for one waits for ever, and `on_stall` is told of it.
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
//! Each thread has a word, [`Record::section`], which only the thread itself writes. (When a record changes hands, its new
//! owner writes first; in the child of a `fork`, the thread that forked writes to those of the threads that are not there.)
//! Its upper 48 bits are the stamp. The next bit, [`NEEDS_FULL_FENCE`](crate::machine::record::NEEDS_FULL_FENCE), says that the
//! next section begins with a full fence: the thread *rests*, or `membarrier` is not to be had (then the bit is set for ever). It
//! is in this word so that one test finds both this bit and a nested section. The lower 15 bits count the sections that are nested.
//! The clock, [`Clocks::grace`], has the same layout, a count of 1 and the bit clear. So one store of the clock writes both the stamp
//! and the count, and the thread no longer rests; without `membarrier` it sets the bit in what it stores.
//!
//! | state | the word | the next state |
//! |---|---|---|
//! | outside | 0 nested; the stamp of the last section: the thread has seen that time | inside, when the thread begins a section: it stores the clock; resting, when it reclaims a batch or waits for a grace period |
//! | resting | the same with the bit | inside, when the thread begins a section: it stores the clock, and issues a full fence |
//! | inside | the stamp, 1 nested | nested, when the thread begins a section in the section: it adds 1; outside, when it drops the guard: it subtracts 1 |
//! | nested | the stamp of the outermost section, 2 or more | one fewer, when the thread drops a guard |
//!
//! The leader advances the clock with every grace period. The clock never goes back. Its 48 bits wrap around after three
//! years if a thread does nothing but lead grace periods of 0.36 µs, the fastest `membarrier` that was measured. Without
//! `membarrier`, and with [`retire_ordered`](RcuDomain::retire_ordered), a step may take 20 ns: then it is two months. So times are
//! compared by their difference, and only a section that lasts for half of that time could be misread. The states of a
//! grace period are in [`grace`](super::grace), those of a retired object in [`domain`](super::domain).
//!
//! # What pairs with what
//!
//! | | reader (`section`) | leader (`grace`) | so that |
//! |---|---|---|---|
//! | (B) | loads the clock (acquire) | has advanced it (release) | a section with the new stamp does not find what was removed before the advance; (A) orders the removal before it |
//! | (C) | light fence, after it stored the stamp | heavy fence, after it advanced the clock | the leader sees the stamp, or all loads of the section come after the removal |
//! | (C) | full fence in its place, if the thread rested | full fence, after it advanced the clock | the same, so that the leader needs no heavy fence if all threads rest or have a stamp of the new time |
//! | (E) | stores the word (release) when a section begins and ends | loads the word (acquire) | what was done in a section happens before the end of the grace period; a leader may miss the end of a section and see the beginning of the next one, so that store releases as well |
//!
//! (A) orders what a retiring thread does: it takes a ticket after the removal, and the leader reads the tickets before it
//! advances the clock. (A), (D) and (F) pair the threads that wait with leaders, and leaders with each other: see
//! [`grace`](super::grace).
//!
//! # What is promised
//!
//! - An object that is retired in any [`RcuDomain`] is reclaimed after every section of general-purpose RCU is over that
//!   began before the object was retired, in every thread of the process. A section begins with its stamp. A domain has
//!   only its own garbage and limit: sections and the clock belong to the process.
//! - A section waits for no thread, and executes no atomic read-modify-write. Sections nest, up to 32,767 deep; one more
//!   panics. The first section of a thread also gets a record. For that the thread may map memory, and may wait for another
//!   thread that registers `membarrier`.
//! - No thread reclaims unasked: a thread does so when its batch is full, when it retires and no thread of the domain has reclaimed for
//!   10 ms, or when it calls `collect`, `barrier` or `serve`.
//! - A thread that exits in a section, with a guard that was leaked, stays inside for ever. No other thread gets its record.
//! - The garbage stays near the [`Limit`](super::Limit) as long as no section lasts for a second. A thread that finds more
//!   garbage than that, when it has retired a batch outside of any section, waits until the garbage is reclaimed. A thread
//!   that retires inside of a section does not wait, because it would wait for itself. In its stead the next thread waits
//!   that comes to such a point outside. If all threads retire only inside of sections, none waits: such a thread calls
//!   `throttle` or `quiescent` outside.
//! - A reader that stays in its section holds up all reclamation in all domains, and *the garbage then grows without a
//!   bound*. A thread that waits goes on after a second ([`set_at_limit`](super::domain::Domain::set_at_limit)), and takes a
//!   ticket then. Until this ticket is due, no further thread that retires begins to wait. So a program that has leaked a guard
//!   runs on, and needs more and more memory. But `synchronize`, `barrier` and the drop of a domain wait for that guard for
//!   ever.
//!   [`Garbage::overruns`](super::Garbage::overruns) counts, and the function of
//!   [`on_stall`](super::domain::Domain::on_stall) is called.
//! - In the child of a `fork`, its one thread is in the sections in which it was before, and no other thread is in one. The
//!   handler is `after_fork` in `machine/native/records.rs`, registered with `pthread_atfork` when the first thread gets its
//!   record. It makes the records of all other threads idle, so that no leader waits for them, and increases
//!   [`Records::generation`]. A leader, or a thread that had its list of garbage at the fork, left the generation of the
//!   parent in the gate or in the list. The child sees by it that the gate or the list is free. Therefore a destructor of a
//!   retired object, which runs while its thread has a list, must not fork a child that goes on to use the domain.

use super::domain::{Domain, Flavour};
use super::grace::{Grace, Stamps};
use super::section::{SectionGuard, SectionReader};
use super::strategy::Info;
use crate::machine::record::{self, Clocks, Record, Records};
use crate::machine::{Machine, Native};

/// General-purpose RCU as a flavour of [`Domain`]. See the [module documentation](self).
#[derive(Copy, Clone, Debug)]
pub struct General;

// SAFETY: the outermost `SectionGuard` stores the clock in `section` and then fences (C); a nested one keeps the stamp. Only
// general-purpose RCU uses `reached[0]`.
unsafe impl Stamps for General {
    #[inline(always)]
    fn word<M: Machine>(record: &Record<M>) -> &M::U64 {
        &record.section
    }

    #[inline(always)]
    fn clock<M: Machine>(clocks: &Clocks<M>) -> &M::U64 {
        &clocks.grace
    }

    /// The time that a leader of any domain has seen all threads reach, so that the leader of another domain need not look
    /// again: pair (F) of [`grace`](super::grace). Word 0 is for the sections of general-purpose RCU, and word 1 is QSBR's.
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
#[inline]
pub fn global() -> &'static RcuDomain<Native> {
    static GLOBAL: RcuDomain<Native> = RcuDomain::new();
    &GLOBAL
}

impl RcuDomain<Native> {
    /// A domain without garbage, in a constant.
    ///
    /// ```
    /// use latchwork::machine::Native;
    /// use latchwork::reclaim::rcu::RcuDomain;
    ///
    /// static ROUTES: RcuDomain<Native> = RcuDomain::new();
    /// ROUTES.synchronize();
    /// ```
    pub const fn new() -> Self {
        Self::with(Grace::native())
    }
}

impl<M: Records> RcuDomain<M> {
    /// Begins a section of the calling thread, which ends when the guard is dropped.
    #[inline(always)]
    #[cfg_attr(feature = "section-origins", track_caller)]
    pub fn enter(&self) -> RcuGuard<'_, M> {
        SectionGuard::new(record::own::<M>())
    }
}

//! Epoch-based reclamation.
//!
//! Source: Fraser, "Practical Lock-Freedom", 2003, section 5.2.3; McKenney, Hart, Walpole 2005, section
//! 2.4.
//!
//! A section is in the epoch that was the current one when the section began. A thread that reclaims advances the current
//! epoch when all sections that run are in it. After two advances, no section is left that ran when an object was
//! retired. No thread waits for a particular reader.
//!
//! What differs from the thesis:
//!
//! - the reader's fence is light, and the thread that tries to advance issues the heavy one;
//! - threads keep no counts of their operations, and no limbo list for each epoch: each [domain](super::domain) has two
//!   lists, of what has come in and of what waits for its epoch;
//! - an epoch is a number of 48 bits, not of two. Epochs are compared by their difference, so that the number may wrap around.
//!
//! State of a record's `pinned`: (epoch, nested sections), as of `section` in [`rcu`](super::rcu), with the current epoch
//! for a clock; 0 nested is outside. State of the epoch: current -> the next, when a thread has seen that every section
//! is in the current one (`advance`).
//!
//! What pairs with what: (B) the advance of the epoch with the load of a reader that begins a section, and of the next
//! thread that tries to advance; (C) the heavy fence of `advance` with the reader's light fence; (D) the advance with the
//! load of a waiting thread; (E) the reader's stores with the load of `straggler`.
//!
//! Atomics per section: none. Per batch: two heavy fences and two advances, if no section is in the way, and no fence if one is. A
//! reader that stays in its section holds up all reclamation, as with RCU.

use super::domain::{Domain, Flavour};
use super::grace::{Periods, Stamps, is_at_least};
use super::pace::{Pace, Rest};
use super::section::{SectionGuard, SectionReader};
use super::strategy::Info;
use super::watch::Watch;
use crate::machine::record::{self, Clocks, NESTING, Record, Records, STEP, Stall, TIME};
use crate::machine::{Arith, Deadline, Group, Machine, Native, Word};
use core::sync::atomic::Ordering::*;

/// Epochs as a flavour of [`Domain`]. See the [module documentation](self).
#[derive(Copy, Clone, Debug)]
pub struct Epoch;

// SAFETY: `SectionGuard` stores the epoch in `pinned`, and issues the light fence (C) after that.
unsafe impl Stamps for Epoch {
    #[inline(always)]
    fn word<M: Machine>(record: &Record<M>) -> &M::U64 {
        &record.pinned
    }

    #[inline(always)]
    fn clock<M: Machine>(clocks: &Clocks<M>) -> &M::U64 {
        &clocks.epoch
    }
}

// SAFETY: `SectionReader` makes `SectionGuard`s, which stamp as `Stamps` says; `Epochs` looks at the stamps of all threads
// before each advance.
unsafe impl Flavour for Epoch {
    const INFO: Info = Info {
        name: "epoch",
        summary: "epochs: readers stamp sections, threads that reclaim advance the epoch",
        reader: "a stamp on the section, with plain instructions",
        atomics: 0,
        bound: "the limit, for threads that retire outside of sections",
        source: "Fraser 2003, section 5.2.3",
    };
    type Periods<M: Records> = Epochs<M>;
    type Reader<'d, M: Records> = SectionReader<'d, M, Self>;

    fn reader<M: Records>(domain: &Domain<M, Self>) -> SectionReader<'_, M, Self> {
        SectionReader::new(domain)
    }
}

/// A domain of epoch-based reclamation.
pub type EpochDomain<M> = Domain<M, Epoch>;

/// A section.
pub type EpochGuard<'r, M> = SectionGuard<'r, M, Epoch>;

impl<M: Records> EpochDomain<M> {
    /// Begins a section of the calling thread, which ends when the guard is dropped.
    #[inline(always)]
    #[cfg_attr(feature = "section-origins", track_caller)]
    pub fn enter(&self) -> EpochGuard<'_, M> {
        SectionGuard::new(record::own::<M>())
    }
}

/// Grace periods as advances of the epoch; the epoch is the process's.
pub struct Epochs<M: Machine> {
    /// Runs from the first failed attempt to advance until the epoch advances.
    stuck: Watch<M>,
}

/// The first thread in a section that is not in the current epoch.
fn straggler<M: Records>(epoch: u64) -> Option<&'static Record<M>> {
    record::groups::<M>().into_iter().flat_map(Group::owned).find(|record| {
        // (E) pairs with the stores in `enter` and `exit`: the section happens before what this thread does next.
        let word = record.pinned.load(Acquire);
        word & NESTING != 0 && word & TIME != epoch & TIME
    })
}

impl Epochs<Native> {
    const fn native() -> Self {
        Epochs { stuck: Watch::native() }
    }
}

impl EpochDomain<Native> {
    /// A domain without garbage, in a constant.
    pub const fn new() -> Self {
        Self::with(Epochs::native())
    }
}

impl<M: Records> Epochs<M> {
    /// Advances the epoch, if every section is in the current one. An error may carry a stall that is to be told of.
    fn advance(&self) -> Result<(), Option<Stall>> {
        // (B) pairs with the exchange below: the thread that advanced the epoch has seen the earlier sections end.
        // And what was removed before a `start` that this epoch follows happens before the fence below, whichever threads have
        // advanced the epoch since. So a section that this thread does not see does not find it.
        let epoch = record::clocks::<M>().epoch.load(Acquire);
        let in_the_way = |record| self.due(|nanos| Stall::by::<M>(record, nanos));
        // Before the fence: the thread may be preempted in its section, and each attempt would cost a fence for nothing.
        if let Some(record) = straggler::<M>(epoch) {
            return Err(in_the_way(record));
        }
        // (C) pairs with the light fence in `enter`: a section that this thread does not see begins after this fence.
        if !M::heavy_fence() {
            return Err(self.due(|nanos| Stall { thread: 0, nanos, origin: None }));
        }
        if let Some(record) = straggler::<M>(epoch) {
            return Err(in_the_way(record));
        }
        self.stuck.end();
        // (B) pairs with the load in `enter`. If the exchange fails, another thread has advanced the epoch. (Its acquire, and that
        // of `start`, adds nothing: whatever waits or advances loads the epoch after that, and all changes of the epoch are
        // read-modify-writes, so that this load acquires from all before.)
        let _ =
            record::clocks::<M>().epoch.compare_exchange(epoch, epoch.wrapping_add(STEP), AcqRel, Relaxed);
        Ok(())
    }

    /// The stall, if it is to be told of now.
    fn due(&self, stall: impl FnOnce(u64) -> Stall) -> Option<Stall> {
        if !self.stuck.is_running() {
            self.stuck.begin();
            return None;
        }
        self.stuck.is_due().then(|| stall(self.stuck.nanos()))
    }
}

// SAFETY: the epoch advances when all sections are in the current one. A section that ran when the ticket was given out
// may be in that epoch, or in the one before; after two advances it is over.
unsafe impl<M: Records> Periods for Epochs<M> {
    fn new() -> Self {
        Epochs { stuck: Watch::new() }
    }

    fn start(&self) -> u64 {
        // A read-modify-write, so that what the caller has removed happens before the next advance, and with it before
        // any section in a later epoch.
        record::clocks::<M>().epoch.fetch_add(0, AcqRel).wrapping_add(2 * STEP)
    }

    fn is_over(&self, ticket: u64) -> bool {
        // (D) pairs with the exchange in `advance`.
        is_at_least(record::clocks::<M>().epoch.load(Acquire), ticket)
    }

    fn poll(&self, ticket: u64, tell: &dyn Fn(&Stall)) -> bool {
        while !self.is_over(ticket) {
            if let Err(stall) = self.advance() {
                stall.iter().for_each(tell);
                return self.is_over(ticket);
            }
        }
        true
    }

    fn wait(&self, ticket: u64, pace: Pace, deadline: Option<Deadline>, tell: &dyn Fn(&Stall)) -> bool {
        let mut rest = Rest::new();
        while !self.poll(ticket, tell) {
            if deadline.is_some_and(|deadline| deadline.passed::<M>()) {
                return false;
            }
            rest.take::<M>(pace == Pace::Expedited);
        }
        true
    }

    fn stall(&self) -> Option<Stall> {
        let record = straggler::<M>(record::clocks::<M>().epoch.load(Relaxed))?;
        Some(Stall::by(record, self.stuck.nanos()))
    }

    fn set_patience(&self, nanos: u64) {
        self.stuck.set_patience(nanos);
    }
}

#[cfg(test)]
mod tests {
    use super::super::forks::{advance_to_the_end, in_a_child};
    use super::super::strategy::GracePeriod;
    use super::*;
    use core::sync::atomic::{AtomicBool, AtomicU32};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;

    /// A reader that is preempted in its section costs those that retire no heavy fence: where the fence is refused, they find out
    /// which thread is in the way all the same.
    #[test]
    fn a_section_in_the_way_costs_no_heavy_fence() {
        let check = || {
            let (domain, told) = (&EpochDomain::<Native>::new(), Arc::new(AtomicU32::new(0)));
            domain.set_stall_nanos(0);
            let _section = domain.enter();
            assert!(!domain.poll(domain.start_poll())); // but the epoch has advanced, and the section is in an earlier one
            domain.on_stall({
                let told = told.clone();
                move |stall| told.store(stall.thread, Relaxed)
            });
            let polls = || {
                crate::machine::alone::refuse(libc::SYS_membarrier, None);
                _ = domain.start_poll();
            };
            std::thread::scope(|scope| scope.spawn(polls).join()).unwrap();
            told.load(Relaxed) == record::own::<Native>().thread.load(Relaxed)
        };
        if Native::prepare_fences() {
            assert!(in_a_child(check));
        }
    }

    /// While the number of the epoch wraps around, sections protect, and what is retired is reclaimed.
    #[test]
    fn epochs_wrap_around() {
        let epoch = &record::clocks::<Native>().epoch;
        let domain = &EpochDomain::<Native>::new();
        domain.synchronize(); // so that this thread has a record
        let wraps = || {
            advance_to_the_end(epoch, || domain.synchronize());
            let before = epoch.load(Relaxed);
            while epoch.load(Relaxed) >= before {
                let reclaimed = Arc::new(AtomicBool::new(false));
                let section = domain.enter();
                domain.defer({
                    let reclaimed = reclaimed.clone();
                    move || reclaimed.store(true, Relaxed)
                });
                domain.collect();
                assert!(!reclaimed.load(Relaxed));
                drop(section);
                domain.barrier();
                assert!(reclaimed.load(Relaxed));
            }
        };
        assert!(in_a_child(|| catch_unwind(AssertUnwindSafe(wraps)).is_ok()));
    }
}

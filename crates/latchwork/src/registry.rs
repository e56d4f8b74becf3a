//! Every algorithm, by name.
//!
//! One line in [`visit`] makes a lock appear everywhere: in `latchwork list`, the preloaded library, the model checking,
//! the simulator and the stress tests. Code that handles all locks implements [`Visitor`], and [`visit`] calls
//! it once with each type. It calls the function for what the lock can do; a visitor that does not care implements only
//! [`mutex`](Visitor::mutex) and [`rwlock`](Visitor::rwlock). So there is no table of function pointers that has to be kept up to date.
//!
//! Readers copy what a sequence lock protects, and cannot hold it. So sequence locks are missing where readers must hold
//! a lock: in the preloaded library, and in workloads with readers that do more than copy.
//!
//! Without the feature `all-locks`, the registry has the locks that an application takes.

use crate::locks::Suspension;
use crate::locks::mutex::{Fair, Info, RawMutex};
use crate::locks::rwlock::{RawDowngrade, RawFair, RawRwLock, RawUpgrade};
use crate::locks::seqlock::RawSeqLock;
use crate::locks::{mutex, rwlock};
use crate::machine::{Machine, Native};

/// What [`visit`] calls with the type of each algorithm.
pub trait Visitor<M: Machine> {
    /// A mutual-exclusion lock.
    fn mutex<L: RawMutex<Machine = M>>(&mut self) {}
    /// A reader-writer lock.
    fn rwlock<R: RawRwLock<Machine = M>>(&mut self) {}
    /// A sequence lock, [`RawSeqLock<L>`]: `L` is its writers' mutex.
    fn seqlock<L: RawMutex<Machine = M>>(&mut self) {}

    /// A mutual-exclusion lock that a holder can leave to a waiter.
    fn fair_mutex<L: Fair<Machine = M>>(&mut self) {
        self.mutex::<L>();
    }
    /// A reader-writer lock whose writer can become a reader.
    fn downgradable<R: RawDowngrade<Machine = M>>(&mut self) {
        self.rwlock::<R>();
    }
    /// A reader-writer lock whose reader can become a writer, and that a holder can leave to a waiter.
    fn upgradable<R: RawUpgrade<Machine = M> + RawFair>(&mut self) {
        self.rwlock::<R>();
    }
}

/// Shows every algorithm to `visitor`, in the order of `latchwork list`.
pub fn visit<M: Machine>(visitor: &mut impl Visitor<M>) {
    #[cfg(feature = "all-locks")]
    {
        visitor.mutex::<mutex::tas::RawTas<M>>();
        visitor.mutex::<mutex::ttas::RawTtas<M>>();
    }
    visitor.fair_mutex::<mutex::ticket::RawTicket<M>>();
    #[cfg(feature = "all-locks")]
    {
        visitor.fair_mutex::<mutex::ticket::RawTicketBackoff<M>>();
        visitor.mutex::<mutex::twa::RawTwa<M>>();
    }
    visitor.fair_mutex::<mutex::mcs::RawMcs<M>>();
    #[cfg(feature = "all-locks")]
    {
        visitor.mutex::<mutex::clh::RawClh<M>>();
        visitor.mutex::<mutex::k42::RawK42<M>>();
        visitor.mutex::<mutex::hemlock::RawHemlock<M>>();
        visitor.mutex::<mutex::qspinlock::RawQspinlock<M>>();
        visitor.mutex::<mutex::reciprocating::RawReciprocating<M>>();
        visitor.mutex::<mutex::mcs_tp::RawMcsTp<M>>();
        visitor.mutex::<mutex::hclh::RawHclh<M>>();
        visitor.mutex::<mutex::stacked::CBoMcs<M>>();
        visitor.mutex::<mutex::stacked::CTktMcs<M>>();
        visitor.mutex::<mutex::stacked::Hmcs<M>>();
        visitor.mutex::<mutex::stacked::Clof<M>>();
        visitor.mutex::<mutex::cna::RawCna<M>>();
        visitor.mutex::<mutex::fissile::RawFissile<M>>();
        visitor.mutex::<mutex::mcs_park::RawMcsPark<M>>();
        visitor.mutex::<mutex::malthusian::RawMalthusian<M>>();
        visitor.mutex::<mutex::mutexee::RawMutexee<M>>();
        visitor.mutex::<mutex::hybrid::RawHybrid<M>>();
        visitor.mutex::<mutex::cst::RawCst<M>>();
        visitor.mutex::<mutex::shfl_spin::RawShflSpin<M>>();
    }
    visitor.fair_mutex::<mutex::shfl::RawShfl<M>>();
    #[cfg(feature = "all-locks")]
    {
        visitor.upgradable::<rwlock::pf_t::RawPfT<M>>();
    }
    visitor.upgradable::<rwlock::pf_q::RawPfQ<M>>();
    visitor.upgradable::<rwlock::shfl_rw::RawShflRw<M>>();
    #[cfg(feature = "all-locks")]
    {
        visitor.rwlock::<rwlock::mcs_rw::RawMcsRw<M>>();
        visitor.downgradable::<rwlock::percpu::RawPerCpu<M>>();
        visitor.downgradable::<rwlock::cohort_rw::RawCohortRw<M>>();
        visitor.downgradable::<rwlock::rwsem::RawRwSem<M>>();
        visitor.rwlock::<rwlock::glibc_rw::RawGlibcRw<M>>();
        visitor.rwlock::<rwlock::bravo::Passes<M, rwlock::glibc_rw::RawGlibcRw<M>>>();
        visitor.rwlock::<rwlock::bravo::Rows<M, rwlock::glibc_rw::RawGlibcRw<M>>>();
        visitor.upgradable::<rwlock::bravo::RawBravo<M, rwlock::pf_t::RawPfT<M>>>();
    }
    visitor.upgradable::<rwlock::bravo::RawBravo<M, rwlock::pf_q::RawPfQ<M>>>();
    visitor.upgradable::<rwlock::bravo::RawBravo<M, rwlock::shfl_rw::RawShflRw<M>>>();
    visitor.upgradable::<rwlock::bravo::Columns<M, rwlock::pf_q::RawPfQ<M>>>();
    visitor.upgradable::<rwlock::bravo::Rows<M, rwlock::shfl_rw::RawShflRw<M>>>();
    visitor.seqlock::<mutex::shfl::RawShfl<M>>();
}

/// Which interface an algorithm has.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Mutual exclusion.
    Mutex,
    /// Readers and writers.
    RwLock,
    /// Words that writers change and readers copy. A reader cannot hold it.
    SeqLock,
}

impl Kind {
    /// The name, as it is typed on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Mutex => "mutex",
            Kind::RwLock => "rwlock",
            Kind::SeqLock => "seqlock",
        }
    }
}

/// An algorithm as `latchwork list` shows it.
#[derive(Copy, Clone, Debug)]
pub struct Entry {
    /// Its interface.
    pub kind: Kind,
    /// Its description.
    pub info: Info,
    /// Bytes per lock on the native machine, without what it protects.
    pub bytes: usize,
}

/// The reader-writer locks that only the preloaded library has: BRAVO over the C library's own lock, which stays in the
/// program's `pthread_rwlock_t`. The registry has a model of that lock, and BRAVO over the model, for all machines.
pub const PRELOADED: [Entry; 2] = [
    over_glibc("bravo-glibc", "biased locking for readers over the C library's own rwlock", 1),
    over_glibc(
        "bravo-2d-glibc",
        "biased locking, a row of slots per thread, over the C library's own rwlock",
        0,
    ),
];

const fn over_glibc(name: &'static str, summary: &'static str, atomics: u32) -> Entry {
    let info = Info {
        name,
        summary,
        atomics,
        waiter_bytes: 0,
        holder_bytes: 0,
        fairness: "readers pass waiting writers; only in the preloaded library",
        blocking: true,
        suspension: Suspension::Blocks,
        source: "Dice and Kogan 2019, section 5 (BRAVO-pthread)",
    };
    Entry { kind: Kind::RwLock, info, bytes: 56 }
}

/// Calls `each` with every algorithm.
pub fn for_each(each: impl FnMut(Entry)) {
    struct List<F>(F);
    impl<F: FnMut(Entry)> Visitor<Native> for List<F> {
        fn mutex<L: RawMutex<Machine = Native>>(&mut self) {
            (self.0)(Entry { kind: Kind::Mutex, info: L::INFO, bytes: size_of::<L>() });
        }
        fn rwlock<R: RawRwLock<Machine = Native>>(&mut self) {
            (self.0)(Entry { kind: Kind::RwLock, info: R::INFO, bytes: size_of::<R>() });
        }
        fn seqlock<L: RawMutex<Machine = Native>>(&mut self) {
            let (info, bytes) = (RawSeqLock::<L>::INFO, size_of::<RawSeqLock<L>>());
            (self.0)(Entry { kind: Kind::SeqLock, info, bytes });
        }
    }
    visit(&mut List(each));
}

/// The algorithm called `name`, if there is one of that kind.
pub fn find(kind: Kind, name: &str) -> Option<Entry> {
    let mut found = None;
    for_each(|entry| {
        if entry.kind == kind && entry.info.name == name {
            found = Some(entry);
        }
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_found() {
        let mut seen = HashSet::new();
        for_each(|entry| {
            assert!(seen.insert((entry.kind.name(), entry.info.name)), "{} twice", entry.info.name);
            assert_eq!(find(entry.kind, entry.info.name).unwrap().info, entry.info);
        });
        assert!(find(Kind::Mutex, "no-such-lock").is_none());
        assert!(find(Kind::RwLock, "seqlock").is_none(), "readers cannot hold a sequence lock");
    }
}

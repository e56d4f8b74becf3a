//! The locks of other libraries, to compare with. They run on this machine only.

use crate::candidate::{Candidate, Kind, Origin};
use crate::copies::CopyWorkload;
use crate::measure::Outcome;
use crate::native::Threads;
use crate::registry::{self, ByName, List, Locks, Point, run_over_tables};
use crate::tables::bucket_lock::BucketLocked;
use crate::tables::michael::Michael;
use crate::tables::readers::{Reference, Section};
use crate::tables::{TableWorkload, Visitor};
use crate::workload::Workload;
use ::std::hash::RandomState;
use latchwork::machine::Native;
use latchwork::map::RcuMap;
use maps::Whole;

#[cfg(any(feature = "ck", feature = "absl", feature = "nsync"))]
mod foreign;
mod glibc;
#[cfg(feature = "urcu")]
pub mod lfht;
pub mod maps;
#[cfg(feature = "map-peers")]
pub mod more_maps;
mod parking_lot;
pub mod reclamation;
mod std;

#[cfg(feature = "ck")]
pub use foreign::big_reader_pairs;

/// Shows every peer to `visitor`. A mutex is called as its library, a reader-writer lock as its
/// library with `-rw`; Concurrency Kit has several of both.
pub fn visit(visitor: &mut impl Locks<Native>) {
    let mutex = |name| Candidate { name, kind: Kind::Mutex, blocking: true, origin: Origin::Peer };
    let rwlock = |name| Candidate { name, kind: Kind::RwLock, blocking: true, origin: Origin::Peer };
    visitor.lock::<glibc::Mutex>(mutex("glibc"));
    visitor.lock::<glibc::RwLock>(rwlock("glibc-rw"));
    visitor.lock::<std::Mutex>(mutex("std"));
    visitor.lock::<std::RwLock>(rwlock("std-rw"));
    visitor.lock::<parking_lot::Mutex>(mutex("parking_lot"));
    visitor.lock::<parking_lot::RwLock>(rwlock("parking_lot-rw"));
    #[cfg(feature = "absl")]
    {
        visitor.lock::<foreign::Foreign<foreign::AbslMutex>>(mutex("absl"));
        visitor.lock::<foreign::Foreign<foreign::AbslRw>>(rwlock("absl-rw"));
    }
    #[cfg(feature = "nsync")]
    {
        visitor.lock::<foreign::Foreign<foreign::NsyncMutex>>(mutex("nsync"));
        visitor.lock::<foreign::Foreign<foreign::NsyncRw>>(rwlock("nsync-rw"));
    }
    #[cfg(feature = "ck")]
    {
        let spins = |candidate| Candidate { blocking: false, ..candidate };
        visitor.lock::<foreign::Foreign<foreign::CkTicket>>(spins(mutex("ck-ticket")));
        visitor.lock::<foreign::Foreign<foreign::CkMcs>>(spins(mutex("ck-mcs")));
        visitor.lock::<foreign::Foreign<foreign::CkPf>>(spins(rwlock("ck-pf")));
        visitor.lock::<foreign::Foreign<foreign::CkRw>>(spins(rwlock("ck-rw")));
    }
}

/// Shows every table of another library to `visitor`: their reclamation under our chains and bucket locks, and whole
/// maps, which hash and grow.
pub fn visit_tables(visitor: &mut impl Visitor<Native>) {
    use reclamation::{Crossbeam, Haphazard, Seize};
    visitor.table::<BucketLocked<Crossbeam, Section>>();
    visitor.table::<Michael<Crossbeam, Section>>();
    visitor.table::<BucketLocked<Seize, Section>>();
    visitor.table::<BucketLocked<Haphazard, Reference>>();
    #[cfg(feature = "urcu")]
    {
        visitor.table::<lfht::Lfht<lfht::Memb>>();
        visitor.table::<lfht::Lfht<lfht::Qsbr>>();
    }
    visitor.table::<Whole<RcuMap<u64, u64>>>();
    visitor.table::<Whole<dashmap::DashMap<u64, u64, RandomState>>>();
    visitor.table::<Whole<papaya::HashMap<u64, u64, RandomState>>>();
    visitor.table::<Whole<scc::HashMap<u64, u64, RandomState>>>();
}

/// All locks and tables that run on this machine.
pub fn candidates() -> Vec<Candidate> {
    let mut list = List::default();
    registry::locks::<Native>(&mut list);
    visit(&mut list);
    list.0.extend(registry::strategies::<Native>());
    let ours = list.0.len();
    visit_tables(&mut list);
    list.0[ours..].iter_mut().for_each(|table| table.origin = Origin::Peer);
    list.0
}

/// Measures a point on this machine, under any of [`candidates`].
pub fn run(point: &Point, stage: &Threads, name: &str, kind: Kind) -> Outcome {
    let mut find = ByName { point, stage, name, kind, result: None };
    visit(&mut find);
    let result = find.result.or_else(|| run_table(point, stage, name));
    result.unwrap_or_else(|| point.run_named(stage, name, kind))
}

/// Measures a point under another library's table, if there is one called `name` and the workload is over tables.
fn run_table(point: &Point, stage: &Threads, name: &str) -> Option<Outcome> {
    struct Find<'a>(&'a Point<'a>, &'a Threads, &'a str, Option<Outcome>);
    impl registry::Visitor for Find<'_> {
        fn workload<W: Workload>(&mut self) {}
        fn copy_workload<W: CopyWorkload>(&mut self) {}
        fn table_workload<W: TableWorkload>(&mut self) {
            if W::INFO.name == self.0.workload {
                self.3 = run_over_tables::<W, Threads>(self.0, self.1, self.2, |find| visit_tables(find));
            }
        }
    }
    let mut find = Find(point, stage, name, None);
    registry::visit(&mut find);
    find.3
}

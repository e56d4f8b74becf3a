//! Every workload, and every lock that it can run with, by name.
//!
//! One line in [`visit`] makes a workload appear in `latchwork-lab bench` and `latchwork-lab simulate`.

use crate::candidate::{Candidate, Kind, Origin};
use crate::copies::{Copies, CopyWorkload, Sequence};
use crate::cst_rw::CstRw;
use crate::glibc_futex::GlibcFutex;
use crate::load;
use crate::lock::{Exclusive, Lock, Shared};
use crate::measure::Outcome;
use crate::private::PrivateBravo;
use crate::rwsem_4_19::RwSem4;
use crate::shfl_paper::ShflPaper;
use crate::stage::Stage;
use crate::tables::{self, Table, TableWorkload};
use crate::workload::{Info, Settings, Workload};
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::mutex::policies::NumaPolicy;
use latchwork::locks::mutex::policies::{NoPolicy, RawLocally};
use latchwork::locks::mutex::shfl::RawShfl;
use latchwork::locks::mutex::shfl_spin::RawShflSpin;
use latchwork::locks::rwlock::bravo::RawBravo;
use latchwork::locks::rwlock::bravo::table::{Sector, Twice};
use latchwork::locks::rwlock::percpu::RawPerCpu;
use latchwork::locks::rwlock::pf_q::RawPfQ;
use latchwork::locks::rwlock::rwsem::RawRwSem;
use latchwork::locks::rwlock::{self, RawRwLock, bravo};
use latchwork::locks::semaphore::Unit;
use latchwork::locks::seqlock::{NOT_HELD, RawSeqLock};
use latchwork::machine::{Machine, Records};
use latchwork::registry;

/// Called with the type of each workload.
pub trait Visitor {
    /// A workload.
    fn workload<W: Workload>(&mut self);
    /// A workload with readers that copy.
    fn copy_workload<W: CopyWorkload>(&mut self);
    /// A workload over tables.
    fn table_workload<W: TableWorkload>(&mut self);
}

/// Shows every workload to `visitor`, in the order of `--list`.
pub fn visit(visitor: &mut impl Visitor) {
    visitor.workload::<load::counter::Counter>();
    visitor.workload::<load::oversubscribe::Oversubscribe>();
    visitor.workload::<load::hash_table::HashTable>();
    visitor.workload::<load::barrier::Barrier>();
    visitor.workload::<load::condvar::Condvar>();
    visitor.workload::<load::queue::Queue>();
    visitor.workload::<load::readrandom::ReadRandom>();
    visitor.workload::<load::lock_per_node::LockPerNode>();
    visitor.workload::<load::locktorture::LockTorture>();
    visitor.workload::<load::rwbench::RwBench>();
    visitor.copy_workload::<load::snapshot::Snapshot>();
    visitor.workload::<load::alternator::Alternator>();
    visitor.workload::<load::test_rwlock::TestRwLock>();
    visitor.workload::<load::interference::Interference>();
    visitor.workload::<load::readwhilewriting::ReadWhileWriting>();
    visitor.workload::<load::hash_table_bench::HashTableBench>();
    visitor.workload::<load::page_fault::PageFault>();
    visitor.workload::<load::mmap::Mmap>();
    visitor.workload::<load::wc::Wc>();
    visitor.workload::<load::wrmem::WrMem>();
    visitor.workload::<load::file_sections::FileSections>();
    visitor.workload::<load::interpreter::Interpreter>();
    visitor.workload::<load::thread_pool::ThreadPool>();
    visitor.workload::<load::yield_inside::YieldInside>();
    visitor.workload::<load::working_set::WorkingSet>();
    visitor.table_workload::<load::hashtable_strategies::HashtableStrategies>();
}

/// The descriptions of all workloads.
pub fn all() -> Vec<Info> {
    struct List(Vec<Info>);
    impl Visitor for List {
        fn workload<W: Workload>(&mut self) {
            self.0.push(W::INFO);
        }
        fn copy_workload<W: CopyWorkload>(&mut self) {
            self.0.push(W::INFO);
        }
        fn table_workload<W: TableWorkload>(&mut self) {
            self.0.push(W::INFO);
        }
    }
    let mut list = List(Vec::new());
    visit(&mut list);
    list.0
}

/// What some workloads are called for short.
pub const SHORT: &[(&str, &str)] = &[("hashtable", "hashtable-strategies")];

/// The workload called `name`, for short or not.
pub fn find(name: &str) -> Option<Info> {
    let name = SHORT.iter().find(|(short, _)| *short == name).map_or(name, |(_, name)| name);
    all().into_iter().find(|info| info.name == name)
}

/// Called with the type of each lock.
pub trait Locks<M: Machine> {
    /// A lock.
    fn lock<L: Lock<Machine = M>>(&mut self, candidate: Candidate);
    /// A sequence lock.
    fn seqlock<C: Copies<Machine = M>>(&mut self, candidate: Candidate);
}

/// The locks that it is shown, in that order.
#[derive(Default)]
pub struct List(pub Vec<Candidate>);

impl<M: Machine> Locks<M> for List {
    fn lock<L: Lock<Machine = M>>(&mut self, candidate: Candidate) {
        self.0.push(candidate);
    }
    fn seqlock<C: Copies<Machine = M>>(&mut self, candidate: Candidate) {
        self.0.push(candidate);
    }
}

/// Lists the tables that do not have the name of a lock.
impl<M: Machine> tables::Visitor<M> for List {
    fn table<T: Table<Machine = M>>(&mut self) {
        let tables::Info { name, blocking, .. } = T::INFO;
        if self.0.iter().all(|lock| lock.name != name) {
            self.0.push(Candidate { name, kind: Kind::Strategy, blocking, origin: Origin::Latchwork });
        }
    }
}

/// Shows every lock that runs on any machine to `visitor`.
pub fn locks<M: Machine>(visitor: &mut impl Locks<M>) {
    struct Each<'a, V>(&'a mut V);
    impl<M: Machine, V: Locks<M>> registry::Visitor<M> for Each<'_, V> {
        fn mutex<L: RawMutex<Machine = M>>(&mut self) {
            let (name, blocking) = (L::INFO.name, L::INFO.blocking);
            let candidate = Candidate { name, kind: Kind::Mutex, blocking, origin: Origin::Latchwork };
            self.0.lock::<Exclusive<L>>(candidate);
        }
        fn rwlock<R: RawRwLock<Machine = M>>(&mut self) {
            let (name, blocking) = (R::INFO.name, R::INFO.blocking);
            let candidate = Candidate { name, kind: Kind::RwLock, blocking, origin: Origin::Latchwork };
            self.0.lock::<Shared<R>>(candidate);
        }
        fn seqlock<L: RawMutex<Machine = M>>(&mut self) {
            let info = RawSeqLock::<L>::INFO;
            let (name, blocking) = (info.name, info.blocking);
            let candidate = Candidate { name, kind: Kind::SeqLock, blocking, origin: Origin::Latchwork };
            self.0.seqlock::<Sequence<L>>(candidate);
        }
    }
    registry::visit(&mut Each(visitor));
    let yardstick = |name, kind| Candidate { name, kind, blocking: false, origin: Origin::Yardstick };
    let shared = |name| yardstick(name, Kind::RwLock);
    visitor.lock::<PrivateBravo<RawPfQ<M>>>(shared(PrivateBravo::<RawPfQ<M>>::NAME));
    // BRAVO with sectors for NUMA nodes; with two probes; over a mutex; and in the Linux kernel's place.
    type Table<M, S> = RawBravo<M, RawPfQ<M>, bravo::table::Table<S>>;
    visitor.lock::<Shared<Table<M, Sector>>>(shared(Table::<M, Sector>::INFO.name));
    visitor.lock::<Shared<Table<M, Twice>>>(shared(Table::<M, Twice>::INFO.name));
    let asleep = |name| Candidate { blocking: true, ..shared(name) };
    type OverMutex<M> = RawBravo<M, rwlock::exclusive::Exclusive<RawShfl<M>>>;
    visitor.lock::<Shared<OverMutex<M>>>(asleep(OverMutex::<M>::INFO.name));
    visitor.lock::<Shared<RawBravo<M, RawRwSem<M>>>>(asleep(RawBravo::<M, RawRwSem<M>>::INFO.name));
    // A lock for each CPU of the X5-2.
    visitor.lock::<Shared<RawPerCpu<M, 72>>>(shared("percpu-72"));
    visitor.lock::<Shared<CstRw<M>>>(asleep("cst-rw"));
    // ShflLock without shuffling; with a head's walk only; without the `qlast` optimisation.
    visitor.lock::<Exclusive<RawShflSpin<M, NoPolicy>>>(yardstick("shfl-spin-fifo", Kind::Mutex));
    visitor
        .lock::<Exclusive<RawShflSpin<M, NumaPolicy, false, false>>>(yardstick("shfl-spin-one", Kind::Mutex));
    visitor.lock::<Exclusive<RawShflSpin<M, NumaPolicy, true, false>>>(yardstick(
        "shfl-spin-hand-on",
        Kind::Mutex,
    ));
    // ShflLock with stealing within the NUMA node only.
    let blocking = |name| Candidate { blocking: true, ..yardstick(name, Kind::Mutex) };
    visitor.lock::<Exclusive<RawLocally<M>>>(blocking("shfl-local"));
    // A counting semaphore with one unit.
    visitor.lock::<Exclusive<Unit<M>>>(blocking(Unit::<M>::INFO.name));
    visitor.lock::<Exclusive<GlibcFutex<M>>>(blocking(GlibcFutex::<M>::INFO.name));
    // What the papers measured: ShflLock as its figures have it, and the rwsem of that time, with BRAVO over it.
    visitor.lock::<Exclusive<ShflPaper<M>>>(blocking(ShflPaper::<M>::INFO.name));
    type Old<M> = RwSem4<M, false>;
    type Stock<M> = RwSem4<M, true>;
    visitor.lock::<Shared<Old<M>>>(asleep(Old::<M>::INFO.name));
    visitor.lock::<Shared<Stock<M>>>(asleep(Stock::<M>::INFO.name));
    visitor.lock::<Shared<RawBravo<M, Stock<M>>>>(asleep(RawBravo::<M, Stock<M>>::INFO.name));
}

/// The tables that are not under a lock. Those under a lock have the name of the lock.
pub fn strategies<M: Records>() -> Vec<Candidate> {
    let mut list = List::default();
    locks::<M>(&mut list);
    tables::visit::<M>(&mut list);
    list.0.retain(|candidate| candidate.kind == Kind::Strategy);
    list.0
}

/// A point to measure.
pub struct Point<'a> {
    /// The workload's name.
    pub workload: &'a str,
    /// Its parameters.
    pub settings: &'a Settings,
    /// How many threads.
    pub threads: usize,
}

impl Point<'_> {
    /// Measures it under the lock `L`.
    pub fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S) -> Outcome {
        struct Find<'a, S, L> {
            point: &'a Point<'a>,
            stage: &'a S,
            result: Option<Outcome>,
            lock: std::marker::PhantomData<L>,
        }
        impl<S: Stage, L: Lock<Machine = S::Machine>> Visitor for Find<'_, S, L> {
            fn workload<W: Workload>(&mut self) {
                // A constant: what cannot be is not compiled.
                if const { !W::INFO.locks.allows(L::SHARED) } {
                    return;
                }
                if W::INFO.name == self.point.workload {
                    let workload = W::new(self.point.settings);
                    self.result = Some(workload.run::<S, L>(self.stage, self.point.threads));
                }
            }
            /// See [`Point::run_copies`].
            fn copy_workload<W: CopyWorkload>(&mut self) {}
            /// No lock: see [`Point::run_named`].
            fn table_workload<W: TableWorkload>(&mut self) {}
        }
        if let Some(result) = self.run_copies::<S, L>(stage) {
            return result;
        }
        let mut find = Find { point: self, stage, result: None, lock: std::marker::PhantomData::<L> };
        visit(&mut find);
        find.result.unwrap_or_else(|| Err(format!("there is no workload called {}", self.workload)))
    }

    /// Measures the point if the workload's readers copy, under the lock or sequence lock `C`.
    pub fn run_copies<S: Stage, C: Copies<Machine = S::Machine>>(&self, stage: &S) -> Option<Outcome> {
        struct Find<'a, S, C> {
            point: &'a Point<'a>,
            stage: &'a S,
            result: Option<Outcome>,
            lock: std::marker::PhantomData<C>,
        }
        impl<S: Stage, C: Copies<Machine = S::Machine>> Visitor for Find<'_, S, C> {
            fn workload<W: Workload>(&mut self) {}
            fn copy_workload<W: CopyWorkload>(&mut self) {
                if W::INFO.name == self.point.workload {
                    let workload = W::new(self.point.settings);
                    self.result = Some(workload.run::<S, C>(self.stage, self.point.threads));
                }
            }
            fn table_workload<W: TableWorkload>(&mut self) {}
        }
        let mut find = Find { point: self, stage, result: None, lock: std::marker::PhantomData::<C> };
        visit(&mut find);
        find.result
    }

    /// Measures it under the lock or strategy called `name`, one that runs on any machine.
    pub fn run_named<S: Stage>(&self, stage: &S, name: &str, kind: Kind) -> Outcome {
        if let Some(result) = self.run_table(stage, name) {
            return result;
        }
        let mut find = ByName { point: self, stage, name, kind, result: None };
        locks(&mut find);
        find.result.unwrap_or_else(|| Err(format!("there is no lock called {name}")))
    }
}

impl Point<'_> {
    /// Measures it under the strategy called `name`, if the workload is one over tables.
    fn run_table<S: Stage>(&self, stage: &S, name: &str) -> Option<Outcome> {
        struct Find<'a, S> {
            point: &'a Point<'a>,
            stage: &'a S,
            name: &'a str,
            result: Option<Outcome>,
        }
        impl<S: Stage> Visitor for Find<'_, S> {
            fn workload<W: Workload>(&mut self) {}
            fn copy_workload<W: CopyWorkload>(&mut self) {}
            fn table_workload<W: TableWorkload>(&mut self) {
                if W::INFO.name == self.point.workload {
                    let show = |find: &mut ByTable<W, S>| tables::visit(find);
                    let result = run_over_tables(self.point, self.stage, self.name, show);
                    let result =
                        result.unwrap_or_else(|| Err(format!("there is no table called {}", self.name)));
                    self.result = Some(result);
                }
            }
        }
        let mut find = Find { point: self, stage, name, result: None };
        visit(&mut find);
        find.result
    }
}

/// Runs a point when the lock's name comes up.
pub(crate) struct ByName<'a, S> {
    pub point: &'a Point<'a>,
    pub stage: &'a S,
    pub name: &'a str,
    pub kind: Kind,
    pub result: Option<Outcome>,
}

impl<S: Stage> Locks<S::Machine> for ByName<'_, S> {
    fn lock<L: Lock<Machine = S::Machine>>(&mut self, candidate: Candidate) {
        if (candidate.name, candidate.kind) == (self.name, self.kind) {
            self.result = Some(self.point.run::<S, L>(self.stage));
        }
    }

    fn seqlock<C: Copies<Machine = S::Machine>>(&mut self, candidate: Candidate) {
        if (candidate.name, candidate.kind) == (self.name, self.kind) {
            let result = self.point.run_copies::<S, C>(self.stage);
            self.result = Some(result.unwrap_or_else(|| Err(format!("{}: {NOT_HELD}", self.name))));
        }
    }
}

/// Runs a point when the table's name comes up.
pub(crate) struct ByTable<'a, W, S> {
    workload: &'a W,
    stage: &'a S,
    name: &'a str,
    threads: usize,
    result: Option<Outcome>,
}

impl<W: TableWorkload, S: Stage> tables::Visitor<S::Machine> for ByTable<'_, W, S> {
    fn table<T: Table<Machine = S::Machine>>(&mut self) {
        if T::INFO.name == self.name {
            self.result = Some(self.workload.run::<S, T>(self.stage, self.threads));
        }
    }
}

/// Measures a point under the table called `name`, if it is among those that `show` shows.
pub(crate) fn run_over_tables<W: TableWorkload, S: Stage>(
    point: &Point,
    stage: &S,
    name: &str,
    show: impl FnOnce(&mut ByTable<W, S>),
) -> Option<Outcome> {
    let workload = &W::new(point.settings);
    let mut find = ByTable { workload, stage, name, threads: point.threads, result: None };
    show(&mut find);
    find.result
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn workloads_are_described_and_found() {
        let mut seen = HashSet::new();
        for info in all() {
            assert!(seen.insert(info.name), "{} twice", info.name);
            assert_eq!(find(info.name).unwrap().summary, info.summary);
            assert!(!info.source.is_empty() && !info.shows.is_empty());
            // Reads every default.
            Settings::new(info.parameters);
        }
        assert!(find("no-such-workload").is_none());
        for (short, name) in SHORT {
            assert_eq!(find(short).unwrap().name, *name);
            assert!(!seen.contains(short), "{short} is a workload of its own");
        }
    }
}

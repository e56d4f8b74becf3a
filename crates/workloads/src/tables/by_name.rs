//! Tables as candidates of the registry, and a point of a workload under the table that the user names.

use super::kinds::{self, Visitor};
use super::table::{self, Table};
use super::workload::TableWorkload;
use crate::copies::CopyWorkload;
use crate::measure::Measured;
use crate::native::Threads;
use crate::peers;
use crate::registry::{self, Candidate, Kind, List, Origin, Point, locks};
use crate::stage::Stage;
use crate::workload::Workload;
use latchwork::machine::{Machine, Records};

/// Lists the tables that do not have the name of a lock.
impl<M: Machine> Visitor<M> for List {
    fn table<T: Table<Machine = M>>(&mut self) {
        let table::Info { name, blocking, .. } = T::INFO;
        if self.0.iter().all(|lock| lock.name != name) {
            self.0.push(Candidate { name, kind: Kind::Strategy, blocking, origin: Origin::Latchwork });
        }
    }
}

/// The tables that are not under a lock. Those under a lock have the name of the lock.
pub fn strategies<M: Records>() -> Vec<Candidate> {
    let mut list = List::default();
    locks::<M>(&mut list);
    kinds::visit::<M>(&mut list);
    list.0.retain(|candidate| candidate.kind == Kind::Strategy);
    list.0
}

/// Runs a point when the table's name comes up.
struct ByName<'a, W, S> {
    workload: &'a W,
    stage: &'a S,
    name: &'a str,
    threads: usize,
    result: Option<Result<Measured, String>>,
}

impl<W: TableWorkload, S: Stage> Visitor<S::Machine> for ByName<'_, W, S> {
    fn table<T: Table<Machine = S::Machine>>(&mut self) {
        if T::INFO.name == self.name {
            self.result = Some(self.workload.run::<S, T>(self.stage, self.threads));
        }
    }
}

/// Measures a point under the table called `name`, if it is among those that `show` shows.
fn run<W: TableWorkload, S: Stage>(
    point: &Point,
    stage: &S,
    name: &str,
    show: impl FnOnce(&mut ByName<W, S>),
) -> Option<Result<Measured, String>> {
    let workload = &W::new(point.settings);
    let mut find = ByName { workload, stage, name, threads: point.threads, result: None };
    show(&mut find);
    find.result
}

/// Measures a point under the table called `name`.
pub(crate) fn run_named<W: TableWorkload, S: Stage>(
    point: &Point,
    stage: &S,
    name: &str,
) -> Result<Measured, String> {
    run::<W, S>(point, stage, name, |find| kinds::visit(find))
        .unwrap_or_else(|| Err(format!("there is no table called {name}")))
}

/// Measures a point under another library's table, if there is one called `name` and the workload is over tables.
pub(crate) fn run_peer(point: &Point, stage: &Threads, name: &str) -> Option<Result<Measured, String>> {
    struct Find<'a>(&'a Point<'a>, &'a Threads, &'a str, Option<Result<Measured, String>>);
    impl registry::Visitor for Find<'_> {
        fn workload<W: Workload>(&mut self) {}
        fn copy_workload<W: CopyWorkload>(&mut self) {}
        fn table_workload<W: TableWorkload>(&mut self) {
            if W::INFO.name == self.0.workload {
                self.3 = run::<W, Threads>(self.0, self.1, self.2, |find| peers::visit_tables(find));
            }
        }
    }
    let mut find = Find(point, stage, name, None);
    registry::visit(&mut find);
    find.3
}

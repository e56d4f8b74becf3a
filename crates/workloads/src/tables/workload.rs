//! Workloads over tables. (All other workloads are over locks.)

use super::table::Table;
use crate::measure::Outcome;
use crate::stage::Stage;
use crate::workload::{Info, Settings};

/// A workload over tables, with its parameters set.
pub trait TableWorkload: Sized + Sync {
    /// Its description.
    const INFO: Info;

    /// With these parameters.
    fn new(settings: &Settings) -> Self;

    /// Runs the workload once, and checks that the table has kept its elements right.
    fn run<S: Stage, T: Table<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome;
}

//! Word count: much computation for each page of intermediate pairs.
//!
//! Source: Dice and Kogan, "BRAVO", USENIX ATC 2019, section 6.3 (table 1): `wc` of Metis, whose page
//! faults and mappings contend on mmap_sem; also ShflLock (SOSP 2019), section 6.2, figure 10c. The
//! paper gives run times for a fixed job; here jobs follow each other, and tasks are counted.

use super::map_reduce::{self, MapReduce};
use crate::lock::Lock;
use crate::measure::Outcome;
use crate::stage::Stage;
use crate::workload::{Info, Locks, Settings, Threads, Workload};

/// See the [module documentation](self).
pub struct Wc(MapReduce);

impl Workload for Wc {
    const INFO: Info = Info {
        name: "wc",
        summary: "map-reduce word count, under the lock of the address space",
        source: "BRAVO, section 6.3, table 1 (Metis)",
        shows: "the whole of a program that faults pages in: little is left of the lock's own differences until many threads meet",
        operation: "task of 64 words",
        locks: Locks::RwLock,
        parameters: &map_reduce::parameters("60ns", "64"),
        threads: Threads::UpToCpus,
        all_threads: |threads| threads,
        log_threads: true,
        simulated_us: 10_000,
    };

    fn new(settings: &Settings) -> Self {
        Wc(MapReduce::new(settings))
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        self.0.run::<S, L>(stage, threads)
    }
}

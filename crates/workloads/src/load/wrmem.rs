//! Inverted index over memory that is filled with random words first: more faults for each word than wc.
//!
//! Source: Dice and Kogan, "BRAVO", USENIX ATC 2019, section 6.3 (table 2): `wrmem` of Metis, whose page
//! faults and mappings contend on mmap_sem; also ShflLock (SOSP 2019), section 6.2, figure 10c. The
//! paper gives run times for a fixed job; here jobs follow each other, and tasks are counted.

use super::map_reduce::{self, MapReduce};
use crate::lock::Lock;
use crate::measure::Outcome;
use crate::stage::Stage;
use crate::workload::{Info, Locks, Settings, Threads, Workload};

/// See the [module documentation](self).
pub struct WrMem(MapReduce);

impl Workload for WrMem {
    const INFO: Info = Info {
        name: "wrmem",
        summary: "map-reduce over memory that is written first: more faults, fewer words",
        source: "BRAVO, section 6.3, table 2 (Metis)",
        shows: "as wc with eight times the faults for its computation: the paper's larger speed-ups",
        operation: "task of 64 words",
        locks: Locks::RwLock,
        parameters: &map_reduce::parameters("30ns", "16"),
        threads: Threads::UpToCpus,
        all_threads: |threads| threads,
        log_threads: true,
        simulated_us: 10_000,
    };

    fn new(settings: &Settings) -> Self {
        WrMem(MapReduce::new(settings))
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        self.0.run::<S, L>(stage, threads)
    }
}

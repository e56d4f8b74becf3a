//! Word count: much computation for each page of intermediate pairs.
//!
//! Source: Dice and Kogan, "BRAVO", USENIX ATC 2019, section 6.3 (table 1): `wc` of Metis, whose page
//! faults and mappings contend on mmap_sem; also ShflLock (SOSP 2019), section 6.2, figure 10c. The
//! paper gives run times for a fixed job; here jobs follow each other, and tasks are counted.

use super::map_reduce::MapReduce;
use crate::lock::Lock;
use crate::measure::Measured;
use crate::stage::Stage;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Values, Workload};

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
        parameters: &[
            Parameter {
                name: "word",
                default: "60ns",
                values: Values::Time,
                help: "computation for each word",
            },
            Parameter {
                name: "words",
                default: "64",
                values: Values::Count(1, 1 << 20),
                help: "words that fill a page of intermediate pairs",
            },
            Parameter {
                name: "pages",
                default: "1024",
                values: Values::Count(1, 1 << 20),
                help: "pages of each mapping",
            },
            Parameter {
                name: "fault",
                default: "2us",
                values: Values::Time,
                help: "hold of a page fault, which reads",
            },
            Parameter {
                name: "map",
                default: "2us",
                values: Values::Time,
                help: "hold of mapping and unmapping, which write",
            },
        ],
        threads: Threads::UpToCpus,
        log_threads: true,
        simulated_us: 10_000,
    };

    fn new(settings: &Settings) -> Self {
        Wc(MapReduce {
            word: settings.ns("word"),
            words_per_page: settings.count("words") as u64,
            pages: settings.count("pages") as u64,
            fault: settings.ns("fault"),
            map: settings.ns("map"),
        })
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(
        &self,
        stage: &S,
        threads: usize,
    ) -> Result<Measured, String> {
        self.0.run::<S, L>(stage, threads)
    }
}

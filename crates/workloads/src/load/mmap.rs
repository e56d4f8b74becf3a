//! Mapping and unmapping: an address space that is mostly written.
//!
//! Source: Dice and Kogan, "BRAVO", USENIX ATC 2019, section 6.2 (figures 9c and d): mmap of
//! will-it-scale, which maps and unmaps and does nothing else. Included there, and here, to see what
//! a lock made for readers costs writers.

use super::address_space::AddressSpace;
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};

/// See the [module documentation](self).
pub struct Mmap {
    hold: u64,
    gap: u64,
}

impl Workload for Mmap {
    const INFO: Info = Info {
        name: "mmap",
        summary: "map memory and unmap it again, nothing else",
        source: "BRAVO, section 6.2, figures 9c and d (will-it-scale)",
        shows: "what a lock made for readers costs when everybody writes: nothing, or it is no default",
        operation: "mapping or unmapping",
        locks: Locks::RwLock,
        parameters: &[
            Parameter::time("hold", "2us", "hold of each"),
            Parameter::time("gap", "300ns", "computation between (the system call's own part)"),
        ],
        threads: Threads::UpToCpus,
        all_threads: |threads| threads,
        log_threads: true,
        simulated_us: 20_000,
    };

    fn new(settings: &Settings) -> Self {
        Mmap { hold: settings.ns("hold"), gap: settings.ns("gap") }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let space = AddressSpace::<S::Machine, L>::new(threads);
        let measured = measure::run(stage, threads, &|thread| {
            while thread.running() {
                space.map(thread, 32768, self.hold);
                thread.done();
                thread.work(self.gap);
                space.unmap(thread, self.hold);
                thread.done();
                thread.work(self.gap);
            }
        })?;
        measured.expect("mappings left", space.check()?, 0)
    }
}

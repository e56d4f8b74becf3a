//! Page faults: an address space read far more often than written.
//!
//! Source: Dice and Kogan, "BRAVO", USENIX ATC 2019, section 6.2 (figures 9a and b): page_fault of
//! will-it-scale. Each thread maps a large piece of memory, writes one word into each of its pages,
//! and unmaps it. A fault takes mmap_sem for reading for about 5 microseconds (section 6.1).
//! Each thread begins somewhere in its first piece, so that short runs see as many mappings as long
//! ones.

use super::address_space::AddressSpace;
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};

/// See the [module documentation](self).
pub struct PageFault {
    pages: u64,
    fault: u64,
    map: u64,
    touch: u64,
}

impl Workload for PageFault {
    const INFO: Info = Info {
        name: "page-fault",
        summary: "map memory, fault its pages in one by one, unmap it",
        source: "BRAVO, section 6.2, figures 9a and b (will-it-scale)",
        shows: "read sections of 5 microseconds still suffer from a shared readers' counter once there are enough threads",
        operation: "page fault",
        locks: Locks::RwLock,
        parameters: &[
            Parameter::count("pages", "32768", 1..=1 << 20, "pages of each mapping"),
            Parameter::time("fault", "5us", "hold of a fault, which reads"),
            Parameter::time("map", "2us", "hold of mapping and unmapping, which write"),
            Parameter::time("touch", "200ns", "computation between faults"),
        ],
        threads: Threads::UpToCpus,
        all_threads: |threads| threads,
        log_threads: true,
        simulated_us: 20_000,
    };

    fn new(settings: &Settings) -> Self {
        PageFault {
            pages: settings.count("pages") as u64,
            fault: settings.ns("fault"),
            map: settings.ns("map"),
            touch: settings.ns("touch"),
        }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let space = AddressSpace::<S::Machine, L>::new(threads);
        let measured = measure::run(stage, threads, &|thread| {
            // The first piece is only a part: in step, all would map at once.
            let mut page = thread.below(self.pages);
            while thread.running() {
                space.map(thread, self.pages, self.map);
                while page < self.pages && thread.running() {
                    space.fault(thread, page, self.fault);
                    thread.done();
                    thread.work(self.touch);
                    page += 1;
                }
                space.unmap(thread, self.map);
                page = 0;
            }
        })?;
        measured.expect("mappings left", space.check()?, 0)
    }
}

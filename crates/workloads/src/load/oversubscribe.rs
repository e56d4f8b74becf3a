//! More threads than CPUs: the counter under a lock, up to 16 threads for each CPU.
//!
//! Source: Kashyap et al., "Scalable and Practical Locking with Shuffling", SOSP 2019, sections 6.1
//! and 6.3 (figures 9 and 11c): blocking locks with up to four threads per core; here up to 16.
//!
//! A lock that hands itself to a waiter that is not running waits for the scheduler.

use crate::data::{Cell, Line};
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};

/// See the [module documentation](self).
pub struct Oversubscribe {
    hold: u64,
    gap: u64,
}

impl Workload for Oversubscribe {
    const INFO: Info = Info {
        name: "oversubscribe",
        summary: "short sections under one lock, with up to 16 threads for each CPU",
        source: "ShflLock, sections 6.1 and 6.3",
        shows: "what happens when the next in the queue is not running: strict queues fall to the scheduler's pace, stealing and parking do not",
        operation: "section",
        locks: Locks::Mutex,
        parameters: &[
            Parameter::time("hold", "500ns", "computation under the lock"),
            Parameter::time("gap", "1us", "average computation between sections"),
        ],
        threads: Threads::PerCpu(&[1, 2, 4, 8, 16]),
        all_threads: |threads| threads,
        log_threads: false,
        simulated_us: 40_000,
    };

    fn new(settings: &Settings) -> Self {
        Oversubscribe { hold: settings.ns("hold"), gap: settings.ns("gap") }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let lock = Line(L::new());
        let count = Line(Cell::<S::Machine>::new(0));
        let measured = measure::run(stage, threads, &|thread| {
            while thread.running() {
                let held = thread.write(&*lock);
                let before = count.get();
                thread.work(self.hold);
                count.set(before + 1);
                drop(held);
                thread.done();
                let gap = thread.below(2 * self.gap + 1);
                thread.work(gap);
            }
        })?;
        let total = measured.total;
        measured.expect("the counter", count.get(), total)
    }
}

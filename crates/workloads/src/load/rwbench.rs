//! RWBench: one reader-writer lock, six shares of writes.
//!
//! Source: Dice and Kogan, "BRAVO", USENIX ATC 2019, section 5.4 (figure 4), after Calciu et al.
//!
//! Each thread decides by a Bernoulli trial whether to read or to write. It holds the lock for 10 steps of a random number
//! generator. Then it takes N steps without the lock, N uniform in [0, 200). The paper's
//! generator is std::mt19937; here a step is a computation of [`STEP_NS`].
//!
//! The paper's sections touch no shared data. Ours have one word in the lock's own cache line, which lets the run check
//! that no writer was inside beside others. A writer has that line anyway. A reader loads the word at both ends of its
//! section. The first load finds the line in the cache. Under a lock whose readers share a counter, the second one has to
//! fetch the line again if another reader has come or gone meanwhile: up to one transfer more for each read. Locks
//! whose readers write lines of their own do not pay that. With `word=own` the word has a line of its own, which readers
//! share between two writes: so a run says what the shared line costs.

use crate::data::{Cell, Line};
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};

/// A step of std::mt19937 on the paper's machine (Haswell at 2.3 GHz), our estimate.
pub const STEP_NS: u64 = 4;

/// See the [module documentation](self).
pub struct RwBench {
    writes: f64,
    hold: u64,
    gap: u64,
    own: bool,
}

/// Where the word lies by which a run is checked.
pub(super) const WORD: Parameter = Parameter::word(
    "word",
    "lock",
    &["lock", "own"],
    "line of the word by which a run is checked: the lock's, or one of its own",
);

impl Workload for RwBench {
    const INFO: Info = Info {
        name: "rwbench",
        summary: "read or write at random under one lock, then compute",
        source: "BRAVO, section 5.4, figure 4",
        shows: "with few writes, readers scale unless they share a counter; with many, what the readers' speed costs writers",
        operation: "read or write",
        locks: Locks::Both,
        parameters: &[
            Parameter::fraction(
                "writes",
                "1/10000",
                "share of writes (the paper: 9/10, 1/2, 1/10, 1/100, 1/1000 and 1/10000)",
            ),
            Parameter::count("hold", "10", 0..=1_000_000, "steps of 4 ns under the lock"),
            Parameter::count("gap", "100", 0..=1_000_000, "average steps without it"),
            WORD,
        ],
        threads: Threads::UpToCpus,
        all_threads: |threads| threads,
        log_threads: true,
        simulated_us: 50_000,
    };

    fn new(settings: &Settings) -> Self {
        RwBench {
            writes: settings.number("writes"),
            hold: settings.count("hold") as u64 * STEP_NS,
            gap: settings.count("gap") as u64 * STEP_NS,
            own: settings.count("word") == 1,
        }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let shared = Line((L::new(), Cell::<S::Machine>::new(0)));
        let own = Line(Cell::new(0));
        let (lock, written) = (&shared.0.0, if self.own { &own.0 } else { &shared.0.1 });
        let writes = std::sync::atomic::AtomicU64::new(0);
        let measured = measure::run(stage, threads, &|thread| {
            let mut made = 0;
            while thread.running() {
                if thread.chance(self.writes) {
                    let held = thread.write(lock);
                    let before = written.get();
                    thread.work(self.hold);
                    written.set(before + 1);
                    drop(held);
                    made += 1;
                } else {
                    let held = thread.read(lock);
                    let before = written.get();
                    thread.work(self.hold);
                    let after = written.get();
                    drop(held);
                    if before != after {
                        thread.fail(|| format!("a reader saw {before} and {after}: a writer was inside"));
                    }
                }
                thread.done();
                let gap = thread.below(2 * self.gap + 1);
                thread.work(gap);
            }
            // Outside the simulated machine: it is no part of the workload.
            writes.fetch_add(made, std::sync::atomic::Ordering::Relaxed);
        })?;
        measured.expect("writes", written.get(), writes.into_inner())
    }
}

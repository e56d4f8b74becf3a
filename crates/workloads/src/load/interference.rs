//! Readers of many locks that share one table of readers.
//!
//! Source: Dice and Kogan, "BRAVO", USENIX ATC 2019, section 5.1 (figure 1): 64 threads pick a random
//! lock out of 1 to 8192, read-lock it for 20 steps of a random number generator, and take 100 steps
//! without it. Nobody writes. The paper's figure is BRAVO's throughput over that of
//! `bravo-pf-q-private`, which has a table in each lock, so that locks cannot conflict.

use super::rwbench::STEP_NS;
use crate::data::Line;
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};

/// Locks that are checked at the end.
const CHECKED: usize = 16;

/// See the [module documentation](self).
pub struct Interference {
    locks: usize,
    hold: u64,
    gap: u64,
}

impl Workload for Interference {
    const INFO: Info = Info {
        name: "interference",
        summary: "read-lock random locks of a pool, whose readers meet in one table",
        source: "BRAVO, section 5.1, figure 1",
        shows: "how much conflicts between locks in BRAVO's shared table cost: compare bravo-pf-q with bravo-pf-q-private",
        operation: "read",
        locks: Locks::RwLock,
        parameters: &[
            Parameter::count(
                "locks",
                "64",
                1..=8192,
                "locks in the pool (the paper: powers of two from 1 to 8192)",
            ),
            Parameter::count("hold", "20", 0..=1_000_000, "steps of 4 ns under the lock"),
            Parameter::count("gap", "100", 0..=1_000_000, "steps without it"),
        ],
        threads: Threads::Exactly(64),
        all_threads: |threads| threads,
        log_threads: true,
        simulated_us: 2_000,
    };

    fn new(settings: &Settings) -> Self {
        Interference {
            locks: settings.count("locks"),
            hold: settings.count("hold") as u64 * STEP_NS,
            gap: settings.count("gap") as u64 * STEP_NS,
        }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let pool: Box<[Line<L>]> = (0..self.locks).map(|_| Line(L::new())).collect();
        let measured = measure::run(stage, threads, &|thread| {
            while thread.running() {
                let number = thread.below(self.locks as u64) as usize;
                let held = thread.read_number(number, &*pool[number]);
                thread.work(self.hold);
                drop(held);
                thread.done();
                thread.work(self.gap);
            }
            // One of the threads sees to it that no reader was left behind; a sample, since each looks
            // through a whole table.
            if thread.index == 0 {
                pool.iter().take(CHECKED).for_each(|lock| drop(thread.write(&**lock)));
            }
        })?;
        Ok(measured)
    }
}

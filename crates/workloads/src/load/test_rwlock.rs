//! One writer beside readers that do nothing else.
//!
//! Source: Dice and Kogan, "BRAVO", USENIX ATC 2019, section 5.3 (figure 3): `test_rwlock T 1 10 -c 10
//! -e 10 -d 1000` of the userspace-rcu project (Desnoyers et al.). T readers hold the lock for 10
//! units and come back at once; one writer holds it for 10 units and stays away for 1000.
//!
//! The paper's sections touch no shared data. Ours have a word by which a run is checked, as in [`rwbench`](super::rwbench).
//!
//! The number of threads is T, as in the paper: the writer comes on top.

use super::rwbench::WORD;
use crate::data::{Cell, Line};
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};

/// See the [module documentation](self).
pub struct TestRwLock {
    hold: u64,
    away: u64,
    own: bool,
}

impl Workload for TestRwLock {
    const INFO: Info = Info {
        name: "test-rwlock",
        summary: "readers that come back at once, beside one writer that stays away (threads: readers)",
        source: "BRAVO, section 5.3, figure 3",
        shows: "reader scaling in a read-dominated load, in which few writes must not undo the readers' bias",
        operation: "iteration of a reader or the writer",
        locks: Locks::RwLock,
        parameters: &[
            Parameter::time("unit", "4ns", "a unit of work: counting down a local variable, with a pause"),
            Parameter::count("hold", "10", 0..=1_000_000, "units under the lock (-c, -e)"),
            Parameter::count("away", "1000", 0..=1_000_000, "units between two writes (-d)"),
            WORD,
        ],
        threads: Threads::UpToCpus,
        all_threads: |threads| threads + 1,
        log_threads: true,
        simulated_us: 20_000,
    };

    fn new(settings: &Settings) -> Self {
        let units = |name| settings.ns("unit") * settings.count(name) as u64;
        TestRwLock { hold: units("hold"), away: units("away"), own: settings.count("word") == 1 }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let shared = Line((L::new(), Cell::<S::Machine>::new(0)));
        let own = Line(Cell::new(0));
        let (lock, written) = (&shared.0.0, if self.own { &own.0 } else { &shared.0.1 });
        // The last thread writes, so that reader i is thread i.
        let measured = measure::run(stage, threads + 1, &|thread| {
            if thread.index == threads {
                thread.apart();
                while thread.running() {
                    let held = thread.write(lock);
                    let before = written.get();
                    thread.work(self.hold);
                    written.set(before + 1);
                    drop(held);
                    thread.done();
                    thread.work(self.away);
                }
            } else {
                while thread.running() {
                    let held = thread.read(lock);
                    let before = written.get();
                    thread.work(self.hold);
                    let after = written.get();
                    drop(held);
                    if before != after {
                        thread.fail(|| format!("a reader saw {before} and {after}: the writer was inside"));
                    }
                    thread.done();
                }
            }
        })?;
        let writes = measured.totals[threads];
        let rate = measured.per_thread[threads] as f64 * 1e9 / measured.measured_ns.max(1) as f64;
        Ok(measured.expect("writes", written.get(), writes)?.with("writes/s", rate))
    }
}

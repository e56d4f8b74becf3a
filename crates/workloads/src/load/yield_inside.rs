//! Mutexes whose holders yield their processor.
//!
//! Source: sysbench, test `threads` (`sb_threads.c`), with its defaults. A number that all threads advance gives each event one
//! of 8 mutexes, in turn. The event locks that mutex, yields the processor and unlocks it, 1000 times.
//!
//! The holder is taken off its processor in each section, so a thread that wants the same mutex finds it held by a thread
//! that does not run. The events of sysbench count; here sections do, and each adds one to a counter of its mutex.

use crate::data::{Cell, Line};
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};
use latchwork::machine::Machine;

/// See the [module documentation](self).
pub struct YieldInside {
    locks: usize,
    yields: usize,
}

impl Workload for YieldInside {
    const INFO: Info = Info {
        name: "yield-inside",
        summary: "lock one of several mutexes, yield the processor, unlock",
        source: "sysbench, test threads",
        shows: "what a lock does while its holder does not run: a thread that spins takes the processor that the holder waits for",
        operation: "section",
        locks: Locks::Mutex,
        parameters: &[
            Parameter::count("locks", "8", 1..=65_536, "mutexes (--thread-locks)"),
            Parameter::count(
                "yields",
                "1000",
                1..=1_000_000,
                "sections under one mutex before the thread takes the next (--thread-yields)",
            ),
        ],
        threads: Threads::Each(&[2, 4, 8, 16]),
        all_threads: |threads| threads,
        log_threads: true,
        simulated_us: 20_000,
    };

    fn new(settings: &Settings) -> Self {
        YieldInside { locks: settings.count("locks"), yields: settings.count("yields") }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let locks: Vec<Line<(L, Cell<S::Machine>)>> =
            (0..self.locks).map(|_| Line((L::new(), Cell::new(0)))).collect();
        let events = Line(Cell::<S::Machine>::new(0));
        let measured = measure::run(stage, threads, &|thread| {
            'events: loop {
                let number = events.add_atomically(1) as usize % self.locks;
                let (lock, count) = &*locks[number];
                for _ in 0..self.yields {
                    if !thread.running() {
                        break 'events;
                    }
                    let held = thread.write_number(number, lock);
                    let before = count.get();
                    S::Machine::yield_now();
                    count.set(before + 1);
                    drop(held);
                    thread.done();
                }
            }
        })?;
        let total = measured.total;
        measured.expect("the counters", locks.iter().map(|lock| lock.1.get()).sum(), total)
    }
}

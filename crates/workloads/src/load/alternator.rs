//! Readers in turn: a ring of threads, each read-locks for a moment and notifies the next.
//!
//! Source: Dice and Kogan, "BRAVO", USENIX ATC 2019, section 5.2 (figure 2).
//!
//! There are no writers, and never two readers at a time; what is measured is how the lock's own
//! state moves from cache to cache.

use crate::data::Line;
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::workload::{Info, Locks, Settings, Threads, Workload};
use latchwork::machine::{Machine, Word};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// See the [module documentation](self).
pub struct Alternator;

/// What the last one to hold the turn passes on.
const OVER: u64 = u64::MAX;

impl Workload for Alternator {
    const INFO: Info = Info {
        name: "alternator",
        summary: "a ring of threads that read-lock in turn, one at a time",
        source: "BRAVO, section 5.2, figure 2",
        shows: "what moving the readers' counter from cache to cache costs without any concurrency",
        operation: "notification",
        locks: Locks::RwLock,
        parameters: &[],
        threads: Threads::UpToCpus,
        all_threads: |threads| threads,
        log_threads: true,
        simulated_us: 5_000,
    };

    fn new(_: &Settings) -> Self {
        Alternator
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let lock = Line(L::new());
        // The turn's number, where each thread waits for it. Thread 0 has turn 1.
        let turn = |index| Line::<<S::Machine as Machine>::U64>(Word::new(u64::from(index == 0)));
        let turns: Box<[_]> = (0..threads).map(turn).collect();
        let last = std::sync::atomic::AtomicU64::new(0);
        let measured = measure::run(stage, threads, &|thread| {
            let (mine, next) = (&turns[thread.index], &turns[(thread.index + 1) % threads]);
            let mut had = 0;
            loop {
                let number = S::Machine::spin_until(&mine.0, Acquire, |number| number > had);
                if number == OVER || !thread.running() {
                    if number != OVER {
                        last.store(number - 1, Relaxed);
                    }
                    next.store(OVER, Release);
                    return;
                }
                had = number;
                drop(thread.read(&*lock));
                thread.done();
                next.store(number + 1, Release);
            }
        })?;
        let total = measured.total;
        measured.expect("turns", last.into_inner(), total)
    }
}

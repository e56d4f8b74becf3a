//! The counter loop: acquire, add one, release, a short gap.
//!
//! Source: Bueso, "Scalability techniques for practical synchronization primitives", ACM Queue 12
//! (11), 2014, section on cache-line contention (figure 1, table 2). Threads acquire and release one
//! spinlock in a tight loop. They fill one socket after the other ("first fill") or all sockets in turn ("round robin").
//! The lock's memory is on the threads' node or on another.
//!
//! The paper's loop acquires and releases, and counts nothing. Here the counter, by which a run is checked, lies in the line of
//! a small lock, so that a section needs no further line; but a waiter that spins on the lock takes that line from the holder. With
//! `word=own` it has a line of its own: a transfer more for each handover, under every lock.
//!
//! Placement is the stage's (`--placement`), the memory's home is a parameter.
//!
//! The gap between release and the next acquire is not in the paper; without any, the releasing thread
//! has the line and wins again, and the collapse that the paper is about does not show. Nor is the time
//! inside (`hold`), which makes it the workload for comparing mutexes with short and long sections.

use crate::data::{Cell, Line, Page};
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::{Home, Stage};
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};

/// See the [module documentation](self).
pub struct Counter {
    gap: u64,
    hold: u64,
    home: Home,
    own: bool,
}

struct Shared<S: Stage, L> {
    lock: L,
    count: Cell<S::Machine>,
}

impl Workload for Counter {
    const INFO: Info = Info {
        name: "counter",
        summary: "acquire, add one to a counter, release, in a tight loop",
        source: "Bueso 2014, table 2",
        shows: "what a handover costs: simple spinlocks collapse as threads and sockets are added, queue locks hold",
        operation: "increment",
        locks: Locks::Mutex,
        parameters: &[
            Parameter::time("gap", "20ns", "computation between release and the next acquire"),
            Parameter::time("hold", "0ns", "computation inside, beside the increment"),
            Parameter::word(
                "home",
                "local",
                &["local", "remote"],
                "memory of the lock: the node of thread 0, or a far one",
            ),
            Parameter::word(
                "word",
                "lock",
                &["lock", "own"],
                "line of the counter: the lock's, or one of its own",
            ),
        ],
        threads: Threads::UpToCpus,
        all_threads: |threads| threads,
        log_threads: false,
        simulated_us: 10_000,
    };

    fn new(settings: &Settings) -> Self {
        let home = if settings.count("home") == 0 { Home::Local } else { Home::Remote };
        Counter { gap: settings.ns("gap"), hold: settings.ns("hold"), home, own: settings.count("word") == 1 }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let shared: Box<Page<Shared<S, L>>> = Box::new(Page(Shared { lock: L::new(), count: Cell::new(0) }));
        let own = Line(Cell::new(0));
        let count = if self.own { &own.0 } else { &shared.count };
        let measured = measure::run(stage, threads, &|thread| {
            if thread.index == 0
                && let Err(why) = stage.place(&*shared, self.home)
            {
                thread.fail(|| why);
            }
            while thread.running() {
                let held = thread.write(&shared.lock);
                count.add(1);
                // Not even the call: it would be a third of the section.
                if self.hold > 0 {
                    thread.work(self.hold);
                }
                drop(held);
                thread.done();
                if self.gap > 0 {
                    thread.work(self.gap);
                }
            }
        })?;
        let total = measured.total;
        measured.expect("the counter", count.get(), total)
    }
}

//! The locking of LevelDB's readrandom.
//!
//! Source: Kashyap et al., "Scalable and Practical Locking with Shuffling", SOSP 2019, section 6.4
//! (figures 12a and b): readrandom, which contends on the database's one mutex.
//!
//! `DBImpl::Get` takes the mutex to pin what it will read: a count each in the memtable, the table being flushed, and the
//! current version. It reads without the mutex, and takes it again to unpin. So there are two short sections for each read
//! of a microsecond or two.

use crate::data::{Cell, Line};
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};
use latchwork::machine::Machine;

/// See the [module documentation](self).
pub struct ReadRandom {
    read: u64,
}

/// What the mutex guards; each count is in an object of its own.
struct Database<M: Machine> {
    memtable: Line<Cell<M>>,
    flushing: Line<Cell<M>>,
    version: Line<Cell<M>>,
    /// Reads so far, in the version's statistics.
    reads: Cell<M>,
}

impl<M: Machine> Database<M> {
    fn pins(&self) -> [&Cell<M>; 3] {
        [&self.memtable.0, &self.flushing.0, &self.version.0]
    }

    fn pin(&self) {
        for count in self.pins() {
            count.add(1);
        }
    }

    fn unpin(&self) {
        for count in self.pins() {
            count.set(count.get().wrapping_sub(1));
        }
    }
}

impl Workload for ReadRandom {
    const INFO: Info = Info {
        name: "readrandom",
        summary: "pin under a mutex, read without it, unpin under it: LevelDB's Get",
        source: "ShflLock, section 6.4, figure 12 (LevelDB)",
        shows: "a global mutex in a real pattern: what is left of a read's parallel part",
        operation: "read (two sections)",
        locks: Locks::Mutex,
        parameters: &[Parameter::time("read", "1.5us", "average time of the read itself")],
        threads: Threads::UpToCpus,
        all_threads: |threads| threads,
        log_threads: false,
        simulated_us: 10_000,
    };

    fn new(settings: &Settings) -> Self {
        ReadRandom { read: settings.ns("read") }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let lock = Line(L::new());
        let new = || Line(Cell::new(0));
        let database =
            Database::<S::Machine> { memtable: new(), flushing: new(), version: new(), reads: Cell::new(0) };
        let measured = measure::run(stage, threads, &|thread| {
            while thread.running() {
                let held = thread.write(&*lock);
                database.pin();
                drop(held);
                let time = self.read / 2 + thread.below(self.read + 1);
                thread.work(time);
                let held = thread.write(&*lock);
                database.reads.add(1);
                database.unpin();
                drop(held);
                thread.done();
            }
        })?;
        let total = measured.total;
        let left = database.pins().iter().map(|count| count.get()).fold(0, u64::wrapping_add);
        measured.expect("pins left", left, 0)?.expect("reads counted", database.reads.get(), total)
    }
}

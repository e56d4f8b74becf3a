//! The locking of RocksDB's hash_table_bench: a table of values of 1000 bytes under one lock.
//!
//! Source: Dice and Kogan, "BRAVO", USENIX ATC 2019, section 5.6 (figure 6): `hash_table_bench -nread_thread=T` of RocksDB, with
//! its `std::unordered_map`. One thread inserts the next key, one erases the oldest, T threads look up random keys and copy
//! the values. No thread pauses between its operations.
//!
//! What the program does beside the table is taken from its source (`utilities/persistent_cache/hash_table_bench.cc`):
//!
//! - Each thread counts its operations with an atomic addition, and looks at the flag that ends the run. The counters of all
//!   threads and the flag are neighbours in one object. So every operation of every thread fetches one line, whichever lock the table
//!   has. `counters=own` gives each thread a line of its own.
//! - An inserting thread makes its value before it locks. A reader compares the copied value after it has unlocked. An erasing thread
//!   does nothing.
//! - The number of elements lies in the head of the map, which each lookup reads: writers take that line from all readers.
//!
//! The table has eleven million elements of 1000 bytes, so most of what a section touches is in main memory only. Here that is a time.
//! The defaults are those of a program that does the same with `std::unordered_map` and four million elements, alone on one processor of a
//! Zen 3 (virtual, 2026; processor time, medians of 4 rounds of 200,000 operations): 1,065 ns a lookup, 477 ns to make a value and insert
//! it, 111 ns an erasure, 67 ns to make two values and compare them.
//!
//! The number of threads is that of the readers, as in the paper: the two writers come on top.

use crate::data::{Cell, Line};
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};

/// Threads that write: the one that inserts, and the one that erases.
const WRITERS: usize = 2;

/// See the [module documentation](self).
pub struct HashTableBench {
    lookup: u64,
    insert: u64,
    erase: u64,
    value: u64,
    shared: bool,
}

impl Workload for HashTableBench {
    const INFO: Info = Info {
        name: "hash-table-bench",
        summary: "look up large values that one thread inserts and one erases: RocksDB's persistent cache (threads: readers)",
        source: "BRAVO, section 5.6, figure 6 (RocksDB)",
        shows: "readers beside two writers that do not pause; what a line that all threads write beside the lock hides",
        operation: "lookup, insertion or erasure",
        locks: Locks::RwLock,
        parameters: &[
            Parameter::time(
                "lookup",
                "1us",
                "a lookup under the lock: misses of main memory, and a copy of the value",
            ),
            Parameter::time("insert", "450ns", "an insertion under the lock"),
            Parameter::time("erase", "100ns", "an erasure under the lock"),
            Parameter::time(
                "value",
                "50ns",
                "what is done with a value before it is inserted, or when it is found",
            ),
            Parameter::word(
                "counters",
                "shared",
                &["shared", "own"],
                "line of a thread's count: one for all, or its own",
            ),
        ],
        threads: Threads::UpToCpus,
        all_threads: |threads| threads + WRITERS,
        log_threads: true,
        simulated_us: 10_000,
    };

    fn new(settings: &Settings) -> Self {
        HashTableBench {
            lookup: settings.ns("lookup"),
            insert: settings.ns("insert"),
            erase: settings.ns("erase"),
            value: settings.ns("value"),
            shared: settings.count("counters") == 0,
        }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let lock = Line(L::new());
        // The head of the map: equal whenever no thread writes.
        let head = Line([Cell::<S::Machine>::new(0), Cell::new(0)]);
        // Insertions, lookups, erasures, and the flag.
        let counters = Line([(); 4].map(|()| Cell::<S::Machine>::new(0)));
        let own: Vec<_> = (0..threads + WRITERS).map(|_| Line(Cell::<S::Machine>::new(0))).collect();
        let count = |index: usize, kind: usize| {
            if self.shared {
                counters[kind].add_atomically(1)
            } else {
                own[index].add_atomically(1)
            };
        };
        let measured = measure::run(stage, threads + WRITERS, &|thread| {
            let index = thread.index;
            if index >= threads {
                let inserts = index == threads;
                thread.apart();
                while thread.running() && counters[3].get() == 0 {
                    if inserts {
                        thread.work(self.value);
                    }
                    let held = thread.write(&*lock);
                    let before = head[0].add(1);
                    thread.work(if inserts { self.insert } else { self.erase });
                    let after = head[1].add(1);
                    drop(held);
                    if before != after {
                        thread.fail(|| format!("a writer left {before} and {after}: another one was inside"));
                    }
                    count(index, if inserts { 0 } else { 2 });
                    thread.done();
                }
            } else {
                while thread.running() && counters[3].get() == 0 {
                    let held = thread.read(&*lock);
                    let first = head[0].get();
                    thread.work(self.lookup);
                    let second = head[1].get();
                    drop(held);
                    if first != second {
                        thread.fail(|| format!("a reader saw {first} and {second}: a writer was inside"));
                    }
                    thread.work(self.value);
                    count(index, 1);
                    thread.done();
                }
            }
        })?;
        let writes: u64 = measured.totals[threads..].iter().sum();
        let of_writers: u64 = measured.per_thread[threads..].iter().sum();
        let rate = of_writers as f64 * 1e9 / measured.measured_ns.max(1) as f64;
        Ok(measured.expect("writes", head[0].get(), writes)?.with("writes/s", rate))
    }
}

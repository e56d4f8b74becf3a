//! A hash table under one lock.
//!
//! Source: Kashyap et al., "Scalable and Practical Locking with Shuffling", SOSP 2019, section 6.3
//! (figure 11): the kernel benchmark of Triplett, McKenney and Walpole, with a global lock, 1% writes
//! (mutexes and reader-writer locks) and 50% (reader-writer locks).
//!
//! Chained buckets; a lookup follows its bucket's chain, a write inserts its key, or removes it if it
//! is there. The table is small: in the paper's runs of 30 seconds any table is in the caches, in a
//! simulated millisecond only a small one is.
//!
//! The authors published their benchmark (`benchmarks/kernel-syncstress` of the project `shfllock`). Its script has 4096 entries in
//! 1024 buckets. A lookup there divides by a number that the compiler does not know, and follows two to four entries that lie in the
//! second- or third-level cache: on their machine 50 to 100 ns, where ours takes ten. `hold` stands for what is missing.

use crate::data::{Cell, Line, cells};
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};
use latchwork::machine::Machine;
use latchwork::map::array::Array;

/// See the [module documentation](self).
pub struct HashTable {
    writes: f64,
    keys: usize,
    buckets: usize,
    hold: u64,
    gap: u64,
}

struct Table<M: Machine> {
    /// The first key of each chain, plus one; 0 ends a chain.
    heads: Array<Cell<M>>,
    /// Each key's successor, likewise, and how often it was inserted or removed.
    nodes: Array<[Cell<M>; 2]>,
    /// Keys in the table.
    count: Cell<M>,
}

impl<M: Machine> Table<M> {
    /// With every other key.
    fn new(keys: usize, buckets: usize) -> Self {
        let nodes = Array::new(keys, |_| [Cell::new(0), Cell::new(0)]);
        let table = Table { heads: cells(buckets), nodes, count: Cell::new(0) };
        for key in (0..keys).step_by(2) {
            table.toggle(key);
        }
        table
    }

    /// Whether the key is there; `Err` if its chain is not a chain of its bucket.
    fn contains(&self, key: usize) -> Result<bool, String> {
        let bucket = key % self.heads.len();
        let mut at = self.heads[bucket].get();
        for _ in 0..=self.nodes.len() {
            let Some(found) = (at as usize).checked_sub(1) else { return Ok(false) };
            if found % self.heads.len() != bucket {
                return Err(format!("key {found} in the chain of bucket {bucket}"));
            }
            if found == key {
                return Ok(true);
            }
            at = self.nodes[found][0].get();
        }
        Err(format!("the chain of bucket {bucket} has no end"))
    }

    /// Inserts the key, or removes it if it is there.
    fn toggle(&self, key: usize) {
        let head = &self.heads[key % self.heads.len()];
        let mut link = head;
        // Bounded, so that even a broken lock lets us come to an end.
        for _ in 0..=self.nodes.len() {
            let Some(found) = (link.get() as usize).checked_sub(1) else { break };
            let next = &self.nodes[found][0];
            if found == key {
                link.set(next.get());
                self.nodes[key][1].add(1);
                self.count.set(self.count.get().wrapping_sub(1));
                return;
            }
            link = next;
        }
        self.nodes[key][0].set(head.get());
        head.set(key as u64 + 1);
        self.nodes[key][1].add(1);
        self.count.add(1);
    }

    /// Writes made, if the table is consistent.
    fn check(&self) -> Result<u64, String> {
        let (mut present, mut toggles) = (0, 0);
        for (key, [_, toggled]) in self.nodes.iter().enumerate() {
            let here = self.contains(key)?;
            // An odd number of writes leaves the key in.
            if here != (toggled.get() % 2 == 1) {
                return Err(format!("key {key} was written {} times, and is there: {here}", toggled.get()));
            }
            present += u64::from(here);
            toggles += toggled.get();
        }
        if present != self.count.get() {
            return Err(format!("{present} keys are there, and {} were counted", self.count.get()));
        }
        Ok(toggles - self.nodes.len().div_ceil(2) as u64)
    }
}

impl Workload for HashTable {
    const INFO: Info = Info {
        name: "hash-table",
        summary: "look up and change random keys of a hash table under one lock",
        source: "ShflLock, section 6.3, figure 11",
        shows: "NUMA-aware handover against strict queues (mutexes); batching of readers and writers (reader-writer locks)",
        operation: "lookup or change",
        locks: Locks::Both,
        parameters: &[
            Parameter::fraction(
                "writes",
                "1%",
                "share of operations that change the table (the paper: 1% and 50%)",
            ),
            Parameter::count("keys", "128", 2..=1 << 20, "keys, about half of them in the table"),
            Parameter::count("buckets", "64", 1..=1 << 20, "chains"),
            Parameter::time("hold", "0ns", "computation under the lock, beside the walk along the chain"),
            Parameter::time("gap", "100ns", "average computation between operations"),
        ],
        threads: Threads::UpToCpus,
        all_threads: |threads| threads,
        log_threads: false,
        simulated_us: 20_000,
    };

    fn new(settings: &Settings) -> Self {
        HashTable {
            writes: settings.number("writes"),
            keys: settings.count("keys"),
            buckets: settings.count("buckets"),
            hold: settings.ns("hold"),
            gap: settings.ns("gap"),
        }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let lock = Line(L::new());
        let table = Table::<S::Machine>::new(self.keys, self.buckets);
        let changes: Vec<_> = (0..threads).map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
        let measured = measure::run(stage, threads, &|thread| {
            let mut changed = 0;
            while thread.running() {
                let key = thread.below(self.keys as u64) as usize;
                if thread.chance(self.writes) {
                    let held = thread.write(&*lock);
                    thread.work(self.hold);
                    table.toggle(key);
                    drop(held);
                    changed += 1;
                } else {
                    let held = thread.read(&*lock);
                    thread.work(self.hold);
                    let found = table.contains(key);
                    drop(held);
                    if let Err(why) = found {
                        thread.fail(|| why);
                    }
                }
                thread.done();
                let gap = thread.below(2 * self.gap + 1);
                thread.work(gap);
            }
            // Outside the simulated machine: it is no part of the workload.
            changes[thread.index].store(changed, std::sync::atomic::Ordering::Relaxed);
        })?;
        let changed = changes.iter().map(|changed| changed.load(std::sync::atomic::Ordering::Relaxed)).sum();
        measured.expect("changes in the table", table.check()?, changed)
    }
}

//! A lock in each node of a large structure.
//!
//! Source: Kashyap et al., "Scalable and Practical Locking with Shuffling", SOSP 2019, section 6.4
//! (figure 13): Dedup of PARSEC, "which allocates up to 266K locks throughout its lifetime"; and
//! sections 3 and 6.2 on what big locks do to inodes.
//!
//! Threads change random nodes, each under its own lock. There is hardly any contention: what counts
//! is how much memory the locks take, and so how many nodes the caches hold.

use crate::data::Cell;
use crate::lock::Lock;
use crate::measure::{self, Outcome};
use crate::stage::Stage;
use crate::workload::{Info, Locks, Parameter, Settings, Threads, Workload};
use latchwork::machine::Machine;
use latchwork::map::array::Array;

/// See the [module documentation](self).
pub struct LockPerNode {
    nodes: usize,
    gap: u64,
}

/// As close together as the lock lets them be.
struct Node<M: Machine, L> {
    lock: L,
    changes: Cell<M>,
}

impl Workload for LockPerNode {
    const INFO: Info = Info {
        name: "lock-per-node",
        summary: "change random nodes of a large structure, each under its own lock",
        source: "ShflLock, section 6.4, figure 13 (PARSEC Dedup)",
        shows: "the memory of hundreds of thousands of locks, and what it costs in speed",
        operation: "change",
        locks: Locks::Both,
        parameters: &[
            Parameter::count("nodes", "262144", 1..=1 << 24, "how many nodes, each with a lock"),
            Parameter::time("gap", "100ns", "computation between changes"),
        ],
        threads: Threads::UpToCpus,
        all_threads: |threads| threads,
        log_threads: false,
        simulated_us: 2_000,
    };

    fn new(settings: &Settings) -> Self {
        LockPerNode { nodes: settings.count("nodes"), gap: settings.ns("gap") }
    }

    fn run<S: Stage, L: Lock<Machine = S::Machine>>(&self, stage: &S, threads: usize) -> Outcome {
        let new = |_| Node::<S::Machine, L> { lock: L::new(), changes: Cell::new(0) };
        let nodes = Array::new(self.nodes, new);
        let measured = measure::run(stage, threads, &|thread| {
            while thread.running() {
                let number = thread.below(self.nodes as u64) as usize;
                let node = &nodes[number];
                let held = thread.write_number(number, &node.lock);
                node.changes.add(1);
                drop(held);
                thread.done();
                thread.work(self.gap);
            }
        })?;
        let total = measured.total;
        let changes = nodes.iter().map(|node| node.changes.get()).sum();
        Ok(measured
            .expect("changes", changes, total)?
            .with("bytes/lock", L::bytes() as f64)
            .with("MiB of locks", (L::bytes() * self.nodes) as f64 / f64::from(1 << 20)))
    }
}

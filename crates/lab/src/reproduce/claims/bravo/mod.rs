//! Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", USENIX ATC 2019: sections 3, 5,
//! 6 and 7.

mod kernel;
mod policy;
mod pthread;
mod rwbench;
mod user;

use super::{Claim, Experiment, Paper, at, check, experiment, of, ratio, with};
use crate::reproduce::probe::Probe;
use crate::reproduce::rule::{
    BETTER, Bound, CLOSE, COMPETITIVE, EXCEEDS, FAR_BETTER, FLAT, Figure, LINEAR, SIMILAR, Value, WORSE, gain,
};
use latchwork_sim::Placement;

const BA: &str = "pf-q";
const BRAVO: &str = "bravo-pf-q";
const PAIR: &[&str] = &[BA, BRAVO];
/// With a table for each lock.
const PRIVATE: &str = "bravo-pf-q-private";
/// BRAVO-2D: with a row of the table for each processor.
const BY_CPU: &str = "bravo-cpu-pf-q";
/// What the crate calls `RwLock`: with a row for each thread.
const DEFAULT: &str = "bravo-2d-shfl-rw";
/// What that is over.
const UNDER_DEFAULT: &str = "shfl-rw";
/// With a sector of the table for each NUMA node.
const SECTORS: &str = "bravo-numa-pf-q";
/// The paper's other locks. Per-CPU has a lock for each CPU of the machine.
const COHORT: &str = "cohort-rw";
const PER_CPU: &str = "percpu-72";
/// The kernel's of that time.
const STOCK: &str = "rwsem-4.20";
const KERNEL: &str = "bravo-rwsem-4.20";
/// A later kernel's.
const LATER: &str = "rwsem";
const LATER_KERNEL: &str = "bravo-rwsem";
const KERNELS: &[&str] = &[STOCK, KERNEL, LATER, LATER_KERNEL];
/// Thread counts of RWBench.
const COUNTS: [usize; 6] = [1, 2, 8, 18, 36, 72];

/// The six ratios of figure 4.
const RATIOS: [&str; 6] =
    ["writes=9/10", "writes=1/2", "writes=1/10", "writes=1/100", "writes=1/1000", "writes=1/10000"];

/// What a write takes beside the lock in the paper's command: see the workload.
const WRITE: &[&str] = &["write=2ms"];
/// ... when the table is nearly empty, and when it has all keys.
const WRITES: &[&str] = &["write=800us", "write=4ms"];

/// What it takes with a memtable that finds an entry without sorting all: the default, and more.
const STEADY: [&str; 4] = ["write=4us", "write=20us", "write=100us", "write=300us"];

const POOLS: [&str; 14] = [
    "locks=1",
    "locks=2",
    "locks=4",
    "locks=8",
    "locks=16",
    "locks=32",
    "locks=64",
    "locks=128",
    "locks=256",
    "locks=512",
    "locks=1024",
    "locks=2048",
    "locks=4096",
    "locks=8192",
];

pub fn experiments() -> Vec<Experiment> {
    let mut all = vec![
        experiment("interference", "x5-2", "interference", &[BRAVO, PRIVATE, SECTORS, BY_CPU, DEFAULT], "64")
            .set(&["locks=1,2,4,8,16,32,64,128,256,512,1024,2048,4096,8192"]),
        experiment("alternator", "x5-2", "alternator", &[BA, BRAVO, PER_CPU], "1,2,8,36,72"),
        experiment("test-rwlock", "x5-2", "test-rwlock", &[BA, BRAVO, COHORT, PER_CPU], "1,8,35,71")
            .micros(5_000)
            .unknown(&["unit=2ns", "unit=8ns", "unit=16ns"]),
        experiment("rwbench", "x5-2", "rwbench", &[BA, BRAVO, "pf-t", "bravo-pf-t"], "1,2,8,18,36,72")
            .set(&["writes=9/10,1/2,1/10,1/100,1/1000,1/10000"])
            .micros(20_000),
        experiment("rwbench-others", "x5-2", "rwbench", &[COHORT, PER_CPU], "8,18,36,72")
            .set(&["writes=9/10,1/1000,1/10000"])
            .micros(20_000),
        experiment("rwbench-default", "x5-2", "rwbench", &[UNDER_DEFAULT, DEFAULT], "1,2,8,18,36,72")
            .set(&["writes=9/10,1/2,1/10,1/100"])
            .micros(20_000),
        experiment(
            "readwhilewriting",
            "x5-2",
            "readwhilewriting",
            &[BA, BRAVO, COHORT, PER_CPU],
            "1,8,18,36,71",
        )
        .set(WRITE)
        .unknown(WRITES),
        experiment("readwhilewriting-steady", "x5-2", "readwhilewriting", &[BA, BRAVO, COHORT], "8,71")
            .set(&["write=4us,20us,100us,300us"]),
        experiment("rocksdb-hash-table", "x5-2", "hash-table-bench", PAIR, "4,18,36,70").unknown(&[
            "lookup=500ns",
            "lookup=2us",
            "insert=1us",
        ]),
        experiment("locktorture-long", "x5-4", "locktorture", KERNELS, "2,16,71,143")
            .set(&["writers=1", "read=50ms", "write=10ms", "long=200ms"])
            .micros(10_000_000),
        experiment("locktorture-read-long", "x5-4", "locktorture", KERNELS, "1,16,71,142")
            .set(&["writers=0", "read=50ms", "long=200ms"])
            .micros(4_000_000),
        experiment("locktorture-read-short", "x5-4", "locktorture", KERNELS, "1,16,71,142")
            .set(&["writers=0", "read=5us"]),
        experiment("page-fault", "x5-4", "page-fault", KERNELS, "1,16,72,142")
            .unknown(&["fault=1us", "touch=1us"]),
        experiment("mmap", "x5-4", "mmap", KERNELS, "1,16,72,142")
            .micros(40_000)
            .unknown(&["hold=500ns", "hold=8us"]),
        experiment("wc", "x5-4", "wc", KERNELS, "1,16,72,142"),
        experiment("wrmem", "x5-4", "wrmem", KERNELS, "1,16,72,142"),
    ];
    all.extend(pthread::experiments());
    for one in &mut all {
        one.placement = Placement::RoundRobin;
    }
    // First fill: beside what bravo-alternator-ba-degrades says.
    all.push(experiment("alternator-one-socket", "x5-2", "alternator", PAIR, "2"));
    all
}

fn claim(id: &'static str, place: &'static str) -> Claim {
    Claim::new(id, Paper::Bravo, place)
}

/// BRAVO over BA, in the same experiment with as many threads.
fn over(experiment: &'static str, threads: usize, bound: Bound) -> super::Check {
    ratio(at(experiment, BRAVO, threads), at(experiment, BA, threads), bound)
}

/// BRAVO over the kernel's lock, likewise.
fn over_stock(experiment: &'static str, threads: usize, bound: Bound) -> super::Check {
    ratio(at(experiment, KERNEL, threads), at(experiment, STOCK, threads), bound)
}

/// One lock over another, in the same experiment with as many threads.
fn against(
    experiment: &'static str,
    locks: (&'static str, &'static str),
    counts: &[usize],
    bound: Bound,
) -> Vec<super::Check> {
    let check =
        |threads: &usize| ratio(at(experiment, locks.0, *threads), at(experiment, locks.1, *threads), bound);
    counts.iter().map(check).collect()
}

fn over_with(set: &str, threads: usize, bound: Bound) -> super::Check {
    ratio(with("rwbench", BRAVO, threads, set), with("rwbench", BA, threads, set), bound)
}

fn speedup(experiment: &'static str, lock: &'static str, threads: usize) -> super::Check {
    let rate = |threads| Figure::Rate(at(experiment, lock, threads));
    check(Value::Speedup(rate(threads), rate(1)), Bound::AtLeast(LINEAR))
}

pub fn claims() -> Vec<Claim> {
    [
        section_3_and_4(),
        policy::claims(),
        user::claims(),
        rwbench::claims(),
        pthread::claims(),
        kernel::claims(),
        kernel::later(),
    ]
    .concat()
}

fn section_3_and_4() -> Vec<Claim> {
    vec![
        claim("bravo-no-harm", "section 3 (primum non nocere)")
            .says("... with BRAVO-A never underperforming A by any significant margin on any workload.")
            .number("no harm")
            .checks(
                RATIOS
                    .iter()
                    .flat_map(|set| COUNTS.map(|threads| over_with(set, threads, Bound::AtLeast(0.9)))),
            )
            .beside([8, 35].map(|readers| Value::Of(Figure::Probe(Probe::Revoking { guard: 9, readers }))))
            .because("Two costs add up. The guard allows revocations a tenth of the time, and where reads and writes alternate they take it: the first slow read after the inhibition turns the bias on, and the next write revokes it. One thread alone pays that, too. Beside it, a reader of an unbiased lock looks at the bias before it takes the lock and again when it has it (listing 1, lines 12 and 25), and where threads contend each look may fetch the lock's line once more. The paper bounds the first cost (N = 9, \"about 10%\") and leaves the second out of its model (footnote 2).")
            .so("The paper's BRAVO costs up to a fifth where one operation in ten or more writes. It is for locks whose writes are rare. A lock that may be either wants a policy that asks whether a bias has paid: this crate's default lock remembers what it found and weighs its revocations (bravo-no-harm-default)."),
        claim("bravo-no-harm-default", "section 3 (primum non nocere)")
            .says("... with BRAVO-A never underperforming A by any significant margin on any workload (here: this crate's \
             default lock, against the one that it is over).")
            .number("no harm")
            .checks(RATIOS[..4].iter().flat_map(|set| {
                COUNTS.map(|threads| {
                    let rate = |lock| with("rwbench-default", lock, threads, set);
                    ratio(rate(DEFAULT), rate(UNDER_DEFAULT), Bound::AtLeast(0.9))
                })
            })),
        claim("bravo-bytes-added", "section 5 (footprint)")
            .says("The BRAVO variant adds 12 bytes.")
            .number("12")
            .checks([(BRAVO, BA), ("bravo-pf-t", "pf-t"), ("bravo-shfl-rw", "shfl-rw")].map(|(more, less)| {
                check(
                    Value::Difference(Figure::LockBytes(more), Figure::LockBytes(less)),
                    Bound::Within(1.0, 12.0),
                )
            })),
        claim("bravo-bytes-ba", "section 5 (footprint)")
            .says("BA requires just 128 bytes; rounding up to the sector size, BRAVO-BA still yields a 128 byte lock instance.")
            .number("128")
            .checks([
                of(Figure::LockBytes(BA), Bound::AtMost(128.0)),
                of(Figure::LockBytes(BRAVO), Bound::Within(8.0, 128.0)),
            ]),
        claim("bravo-bytes-pf-t", "section 5")
            .says("PF-T is slightly more compact having just 4 integer fields.")
            .number("4 integers")
            .checks([
                of(Figure::LockBytes("pf-t"), Bound::AtMost(16.0)),
                check(
                    Value::Difference(Figure::LockBytes(BA), Figure::LockBytes("pf-t")),
                    Bound::AtLeast(1.0),
                ),
            ]),
    ]
}

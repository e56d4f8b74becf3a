//! Kashyap, Calciu, Cheng, Min and Kim, "Scalable and Practical Locking with Shuffling", SOSP 2019:
//! table 1 and sections 6.1, 6.3 and 6.4.

mod breakdown;
mod kernel;
mod table;
mod user;

use super::{Check, Claim, Experiment, Paper, at, check, experiment, of, ratio, with};
use crate::reproduce::rule::{At, BETTER, Bound, FAR_BETTER, FLAT, Figure, SIMILAR, Value, WORSE, gain};

const MACHINE: &str = "e7-8890v4";
const NB: &str = "shfl-spin";
const B: &str = "shfl";
/// Without shuffling; with one shuffler; with shufflers that pass the role on, but not where to go on.
const FIFO: &str = "shfl-spin-fifo";
const ONE: &str = "shfl-spin-one";
const HAND_ON: &str = "shfl-spin-hand-on";
/// With stealing within the NUMA node only: the paper's "ShflLock (NUMA)".
const LOCAL: &str = "shfl-local";
const RW: &str = "shfl-rw";
/// What the kernel has: the paper's "Stock".
const STOCK: &str = "qspinlock";
const STOCK_MUTEX: &str = "hybrid";
const STOCK_RW: &str = "rwsem-4.19";
/// A later kernel's.
const LATER_RW: &str = "rwsem";
/// The blocking lock as the paper's figures have it, beside this library's.
const PAPER: &str = "shfl-paper";
/// The paper's "Stock-BRAVO" and "ShflLock-BRAVO".
const STOCK_BRAVO: &str = "bravo-rwsem-4.20";
const SHFL_BRAVO: &str = "bravo-shfl-rw";
/// The paper's "Pthread".
const PTHREAD: &str = "glibc-futex";
/// The paper's "Cohort".
const COHORT: &str = "c-bo-mcs";
const COHORT_RW: &str = "cohort-rw";
/// The paper's "CST".
const CST: &str = "cst";
const CST_RW: &str = "cst-rw";
/// The locks of figure 11 d.
const BLOCKING: [&str; 6] = [B, CST, STOCK_MUTEX, "mutexee", "malthusian", PTHREAD];

pub fn experiments() -> Vec<Experiment> {
    vec![
        experiment("factor-holds", MACHINE, "counter", &[FIFO, ONE], "192")
            .set(&["hold=0ns,500ns,2us,8us", "gap=100ns"])
            .micros(2_000),
        experiment(
            "uncontended",
            MACHINE,
            "counter",
            &["tas", "mcs", COHORT, "cna", STOCK_MUTEX, CST, NB, B],
            "1",
        ),
        experiment(
            "hash-table",
            MACHINE,
            "hash-table",
            &["tas", "ttas", "ticket", "mcs", "clh", STOCK, COHORT, "cna", FIFO, ONE, HAND_ON, NB],
            "1,4,24,48,96,192",
        )
        .set(&["writes=1%"])
        .micros(10_000)
        .unknown(&["keys=512", "gap=1us", "hold=50ns", "hold=100ns"]),
        experiment("short-sections", MACHINE, "oversubscribe", &[COHORT, "cna", NB], "24")
            .set(&["hold=0ns,100ns,300ns", "gap=100ns"])
            .micros(2_000),
        experiment("fairness", MACHINE, "hash-table", &[STOCK, COHORT, "cna", NB], "24,96,192")
            .set(&["writes=1%"])
            .micros(200_000),
        experiment("fairness-blocking", MACHINE, "hash-table", &[B], "24,192")
            .set(&["writes=1%"])
            .micros(1_000_000),
        experiment("fairness-oversubscribed", MACHINE, "hash-table", &BLOCKING, "192,384,576,768")
            .set(&["writes=1%"])
            .micros(200_000),
        experiment(
            "hash-table-blocking",
            MACHINE,
            "hash-table",
            &["mcs", STOCK_MUTEX, CST, NB, B, LOCAL, PAPER],
            "24,192,384,576,768",
        )
        .set(&["writes=1%"])
        .micros(40_000)
        .unknown(&["keys=512", "gap=1us"]),
        experiment(
            "hash-table-rw",
            MACHINE,
            "hash-table",
            &[STOCK_RW, LATER_RW, RW],
            "1,24,96,192,384,576,768",
        )
        .set(&["writes=1%,50%"])
        .unknown(&["keys=512", "gap=1us"]),
        experiment(
            "oversubscribe",
            MACHINE,
            "oversubscribe",
            &["mcs", COHORT, STOCK_MUTEX, CST, NB, B, PAPER],
            "192,384",
        )
        .unknown(&["hold=2us", "gap=5us"]),
        experiment(
            "readers",
            MACHINE,
            "locktorture",
            &[STOCK_RW, LATER_RW, COHORT_RW, CST_RW, RW, STOCK_BRAVO, SHFL_BRAVO],
            "24,192,384",
        )
        .set(&["writers=0", "read=1us", "chance=0"]),
        experiment("page-fault-rw", MACHINE, "page-fault", &["pf-q", RW, SHFL_BRAVO], "1,24,96,192")
            .unknown(&["fault=1us", "touch=1us"]),
        // FxMark's MWCM creates files of 4 KiB in one directory of tmpfs, and writes and closes each. Alone on one processor of a Zen 3
        // (virtual, Linux 6.18, 2026; processor time, medians of 4 rounds of 20,000 files), an open that creates takes 2.9 us more than
        // one that does not; that one, the write and the close take 3.9 us.
        experiment(
            "mmap-rw",
            MACHINE,
            "mmap",
            &[STOCK_RW, LATER_RW, COHORT_RW, CST_RW, RW],
            "1,4,24,48,192,384",
        )
        .set(&["hold=3us", "gap=4us"])
        .micros(100_000)
        .unknown(&["hold=1500ns", "hold=6us"]),
        experiment("mmap-rw-holds", MACHINE, "mmap", &[STOCK_RW, LATER_RW, RW], "192")
            .set(&["hold=1us,2us,3us,4us", "gap=4us"])
            .micros(100_000),
        experiment(
            "readrandom",
            MACHINE,
            "readrandom",
            &["mcs", "hmcs", "cna", "mcs-tp", PTHREAD, "mutexee", "malthusian", NB, B],
            "1,8,24,192,384,576,768",
        )
        .micros(20_000)
        .unknown(&["read=500ns", "read=5us"]),
        experiment("barrier", MACHINE, "barrier", &["mcs", "hmcs", "cna", "mcs-tp", NB], "24,192")
            .micros(20_000)
            .unknown(&["work=200ns", "work=5us"]),
    ]
}

fn claim(id: &'static str, place: &'static str) -> Claim {
    Claim::new(id, Paper::ShflLock, place)
}

/// Two locks in an experiment with as many threads.
fn over(
    experiment: &'static str,
    above: &'static str,
    below: &'static str,
    threads: usize,
    bound: Bound,
) -> Check {
    ratio(at(experiment, above, threads), at(experiment, below, threads), bound)
}

fn extra(name: &'static str, at: At, bound: Bound) -> Check {
    of(Figure::Extra(name, at), bound)
}

pub fn claims() -> Vec<Claim> {
    let mut all = [table::claims(), kernel::claims(), breakdown::claims(), user::claims()].concat();
    let others = others(&all);
    all.extend(others);
    all
}

/// The same claims of a later kernel's rwsem, and of the blocking lock as the paper has it.
fn others(claims: &[Claim]) -> Vec<Claim> {
    const LATER: [(&str, &str); 3] = [
        ("shfl-writers-stock", "shfl-writers-stock-later"),
        ("shfl-readers-stock", "shfl-readers-stock-later"),
        ("shfl-rw-stock", "shfl-rw-stock-later"),
    ];
    const BY_PAPER: [(&str, &str); 4] = [
        ("shfl-mwrm", "shfl-mwrm-paper"),
        ("shfl-oversubscribed", "shfl-oversubscribed-paper"),
        ("shfl-blocking-4x", "shfl-blocking-4x-paper"),
        ("shfl-wakeups", "shfl-wakeups-paper"),
    ];
    let find = |id: &str| claims.iter().find(|claim| claim.id == id).expect("one of the above");
    let later = LATER.map(|(id, other)| {
        find(id).of_others(other, "with the rwsem of a later kernel", &[(STOCK_RW, LATER_RW)])
    });
    let paper = BY_PAPER
        .map(|(id, other)| find(id).of_others(other, "with the lock of figures 4, 6 and 7", &[(B, PAPER)]));
    [&later[..], &paper[..]].concat()
}

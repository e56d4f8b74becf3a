//! Kashyap, Calciu, Cheng, Min and Kim, "Scalable and Practical Locking with Shuffling", SOSP 2019:
//! table 1 and sections 6.1, 6.3 and 6.4.

use super::{Check, Claim, Experiment, Paper, at, check, experiment, of, ratio, with};
use crate::reproduce::rule::{At, BETTER, Bound, FAR_BETTER, FLAT, Figure, SIMILAR, Value, WORSE, gain};

const MACHINE: &str = "e7-8890v4";
const NB: &str = "shfl-spin";
const B: &str = "shfl";
/// Without shuffling; with one shuffler; with shufflers that pass the role on, but not where to go on.
const FIFO: &str = "shfl-spin-fifo";
const ONE: &str = "shfl-spin-one";
const HAND_ON: &str = "shfl-spin-hand-on";
const RW: &str = "shfl-rw";

pub fn experiments() -> Vec<Experiment> {
    vec![
        experiment("uncontended", MACHINE, "counter", &["tas", "mcs", NB, B], "1"),
        Experiment {
            set: &["writes=1%"],
            micros: Some(10_000),
            ..experiment(
                "hash-table",
                MACHINE,
                "hash-table",
                &["tas", "ttas", "ticket", "mcs", "clh", FIFO, ONE, HAND_ON, NB],
                "1,4,24,48,96,192",
            )
        },
        Experiment {
            set: &["writes=1%"],
            micros: Some(200_000),
            ..experiment("fairness", MACHINE, "hash-table", &[NB], "24,96,192")
        },
        Experiment {
            set: &["writes=1%"],
            micros: Some(1_000_000),
            ..experiment("fairness-blocking", MACHINE, "hash-table", &[B], "24,192")
        },
        Experiment {
            set: &["writes=1%"],
            micros: Some(40_000),
            ..experiment("hash-table-blocking", MACHINE, "hash-table", &["mcs", NB, B], "24,192,384,768")
        },
        Experiment {
            set: &["writes=1%,50%"],
            ..experiment(
                "hash-table-rw",
                MACHINE,
                "hash-table",
                &["pf-q", RW, "bravo-shfl-rw"],
                "1,24,96,192",
            )
        },
        experiment("oversubscribe", MACHINE, "oversubscribe", &["mcs", NB, B], "192,384"),
        Experiment {
            set: &["writers=0", "read=1us", "chance=0"],
            ..experiment("readers", MACHINE, "locktorture", &[RW, "bravo-shfl-rw"], "24,192,384")
        },
        experiment("page-fault-rw", MACHINE, "page-fault", &["pf-q", RW, "bravo-shfl-rw"], "1,24,96,192"),
        experiment("mmap-rw", MACHINE, "mmap", &["pf-q", RW], "1,24,192"),
        Experiment {
            micros: Some(20_000),
            ..experiment("readrandom", MACHINE, "readrandom", &["tas", "mcs", NB, B], "8,24,192,768")
        },
        experiment("barrier", MACHINE, "barrier", &["tas", "mcs", NB], "24,192"),
    ]
}

fn claim(id: &'static str, place: &'static str, says: &'static str, checks: Vec<Check>) -> Claim {
    Claim::new(id, Paper::ShflLock, place, says, checks)
}

fn not_yet(id: &'static str, place: &'static str, says: &'static str, needs: &'static str) -> Claim {
    Claim::not_yet(id, Paper::ShflLock, place, says, needs)
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
    [table_1(), section_6_1(), non_blocking(), blocking(), section_6_4()].concat()
}

fn table_1() -> Vec<Claim> {
    let bytes = |lock, most| of(Figure::LockBytes(lock), Bound::AtMost(most));
    let exactly = |value| Bound::Within(value, value);
    vec![
        claim("shfl-table1-bytes-tas", "table 1", "TAS: 1 byte per lock.", vec![bytes("tas", 1.0)])
            .number("1"),
        claim(
            "shfl-table1-bytes-mcs",
            "table 1",
            "MCS: 8 bytes per lock; 12 per waiter and per lock-holder.",
            vec![
                bytes("mcs", 8.0),
                of(Figure::WaiterBytes("mcs"), Bound::AtMost(12.0)),
                of(Figure::HolderBytes("mcs"), Bound::AtMost(12.0)),
            ],
        )
        .number("8, 12, 12"),
        claim(
            "shfl-table1-bytes",
            "table 1",
            "ShflLock: 12 bytes per lock.",
            vec![bytes(B, 12.0), bytes(NB, 12.0)],
        )
        .number("12"),
        claim(
            "shfl-table1-bytes-waiter",
            "table 1",
            "ShflLock: 28 bytes per waiter.",
            [B, NB].map(|lock| of(Figure::WaiterBytes(lock), Bound::AtMost(28.0))).to_vec(),
        )
        .number("28"),
        claim(
            "shfl-table1-bytes-holder",
            "table 1",
            "ShflLock: nothing per lock-holder; MCS keeps its node until the release.",
            vec![
                of(Figure::HolderBytes(B), exactly(0.0)),
                of(Figure::HolderBytes(NB), exactly(0.0)),
                of(Figure::HolderBytes("mcs"), Bound::AtLeast(1.0)),
            ],
        )
        .number("0"),
        claim(
            "shfl-table1-atomics",
            "table 1",
            "Atomic instructions per acquire and release without contention: TAS 1, MCS 2, ShflLock 1.",
            [("tas", 1.0), ("mcs", 2.0), (NB, 1.0), (B, 1.0)]
                .map(|(lock, atomics)| {
                    let bound = Bound::Within(atomics - 0.01, atomics + 0.01);
                    extra("atomics/op", at("uncontended", lock, 1), bound)
                })
                .to_vec(),
        )
        .number("1, 2, 1"),
        claim(
            "shfl-table1-atomics-contended",
            "table 1",
            "With contention: TAS without limit, MCS 1, ShflLock about 2.",
            vec![
                extra("atomics/op", at("hash-table", "tas", 192), Bound::AtLeast(20.0)),
                extra("atomics/op", at("hash-table", "mcs", 192), Bound::Within(0.9, 1.1)),
                extra("atomics/op", at("hash-table", NB, 192), Bound::Within(1.5, 2.5)),
                extra("atomics/op", at("hash-table-blocking", B, 192), Bound::Within(1.5, 2.5)),
            ],
        )
        .number("unbounded, 1, 2"),
        claim(
            "shfl-table1-lines",
            "table 1, F1",
            "Cache-line movement: TAS very high, MCS high, ShflLock low.",
            vec![
                check(
                    Value::Ratio(
                        Figure::Extra("misses/op", at("hash-table", "tas", 192)),
                        Figure::Extra("misses/op", at("hash-table", "mcs", 192)),
                    ),
                    Bound::AtLeast(FAR_BETTER),
                ),
                check(
                    Value::Ratio(
                        Figure::Extra("remote", at("hash-table", NB, 192)),
                        Figure::Extra("remote", at("hash-table", "mcs", 192)),
                    ),
                    Bound::AtMost(1.0 / FAR_BETTER),
                ),
            ],
        )
        .number("very high, high, low"),
        claim(
            "shfl-tas-collapses",
            "table 1, F2",
            "TAS results in better performance when contention is low, and in worse when it is high.",
            vec![
                over("hash-table", "tas", "mcs", 1, Bound::AtLeast(1.0)),
                over("hash-table", "tas", "mcs", 192, Bound::AtMost(1.0 / FAR_BETTER)),
            ],
        )
        .number("better, worse"),
    ]
}

fn section_6_1() -> Vec<Claim> {
    let fewer = |lock, bound| ratio(at("oversubscribe", lock, 384), at("oversubscribe", lock, 192), bound);
    vec![
        not_yet(
            "shfl-mwrl-lock1",
            "section 6.1, figure 8",
            "CNA and ShflLock outperform the Linux version by 2.8x and 2x on MWRL and lock1.",
            "the kernel's qspinlock, and CNA",
        ).number("2.8x, 2x"),
        not_yet(
            "shfl-mwrm",
            "section 6.1, figure 9a",
            "ShflLock is 1.8x faster than both CST and Stock.",
            "the kernel's mutex, and CST",
        ).number("1.8x"),
        claim(
            "shfl-oversubscribed",
            "section 6.1, figure 9a (2x over-subscription)",
            "ShflLock maintains the best throughput in both under- and over-subscribed scenarios.",
            vec![
                over("oversubscribe", B, "mcs", 192, Bound::AtLeast(1.0)),
                over("oversubscribe", B, "mcs", 384, Bound::AtLeast(1.0)),
                over("oversubscribe", B, NB, 384, Bound::AtLeast(1.0)),
                fewer(B, Bound::AtLeast(WORSE)),
            ],
        ).number("best"),
        claim(
            "shfl-non-blocking-oversubscribed",
            "section 6.1, figure 9a",
            "A non-blocking lock performs well up to the total number of cores, but significantly degrades in the \
             over-subscribed case, as waiters waste CPU cycles (said of Cohort; here of MCS).",
            vec![fewer("mcs", Bound::AtMost(1.0 / FAR_BETTER))],
        ).number("degrades"),
        claim(
            "shfl-bravo-readers",
            "section 6.1, figure 9c (readers only, 192 and 384 threads)",
            "The BRAVO approach improves the throughput for both Stock and ShflLock.",
            [192, 384]
                .map(|threads| over("readers", "bravo-shfl-rw", RW, threads, Bound::AtLeast(BETTER)))
                .to_vec(),
        ).number("improves"),
        claim(
            "shfl-bravo-page-fault",
            "section 6.1, figure 9c; page faults of will-it-scale",
            "The BRAVO approach improves the throughput (here: of page faults, which read, with some mapping).",
            vec![over("page-fault-rw", "bravo-shfl-rw", RW, 192, Bound::AtLeast(BETTER))],
        ).number("improves"),
        claim(
            "shfl-writers",
            "section 6.1, figure 9b (the writer side, here mmap)",
            "ShflLock maintains the best throughput at all core counts (here: against pf-q).",
            [1, 24, 192].map(|threads| over("mmap-rw", RW, "pf-q", threads, Bound::AtLeast(0.9))).to_vec(),
        ).number("best"),
        not_yet(
            "shfl-rwsem",
            "section 6.1, figure 9 b, c",
            "ShflLock-RW is 1.5x faster than Stock at 192 threads writing, 1.2 to 1.5x reading.",
            "the kernel's rwsem",
        ).number("1.5x, 1.2-1.5x"),
    ]
}

fn non_blocking() -> Vec<Claim> {
    vec![
        claim(
            "shfl-hash-table",
            "section 6.3, figure 11a (1% writes, 192 threads)",
            "Both CNA and ShflLock are the best performing.",
            ["tas", "ttas", "ticket", "mcs", "clh"]
                .map(|lock| over("hash-table", NB, lock, 192, Bound::AtLeast(BETTER)))
                .to_vec(),
        ).number("best"),
        claim(
            "shfl-one-socket",
            "sections 6.1 and 6.3, figures 8 and 11a",
            "... outperform the Linux version (qspinlock) while maintaining the same throughput under lower contention, \
             e.g., within a single socket (here: against shfl-spin without shuffling, of which section 6.3 says that it \
             behaves as the kernel's).",
            [1, 4, 24].map(|threads| over("hash-table", NB, FIFO, threads, Bound::AtLeast(WORSE))).to_vec(),
        ).number("the same"),
        claim(
            "shfl-best-everywhere",
            "section 1",
            "Our lock algorithms maintain the best throughput regardless of the number of threads contending for the \
             lock (here: on the hash table, among the locks that spin).",
            [1, 4, 24, 48, 96, 192]
                .iter()
                .flat_map(|threads| {
                    ["tas", "ttas", "ticket", "mcs", "clh"]
                        .map(|lock| over("hash-table", NB, lock, *threads, Bound::AtLeast(WORSE)))
                })
                .collect(),
        ).number("best"),
        claim(
            "shfl-mcs-plateau",
            "section 6.3, figure 11a (a curve, not a sentence)",
            "Where ShflLock is set against a queue lock that knows nothing of sockets, that one falls to a plateau.",
            [96, 192]
                .map(|threads| ratio(at("hash-table", "mcs", threads), at("hash-table", "mcs", 48), FLAT))
                .to_vec(),
        ).number("flat"),
        claim(
            "shfl-fairness",
            "section 6.3, figure 11b",
            "Although NUMA-aware locks impact the fairness of locks, they still maintain long-term fairness, as the \
             fairness factor is close to 0.5.",
            [24, 96, 192]
                .map(|threads| of(Figure::Fairness(at("fairness", NB, threads)), Bound::AtMost(0.6)))
                .to_vec(),
        ).number("close to 0.5"),
        claim(
            "shfl-factor-shuffler",
            "section 6.3, figure 11e (192 threads)",
            "+Shuffler: only the very first waiter shuffles, but doesn't pass the role to other threads: 16% over Base, \
             which is no shuffling.",
            vec![over("hash-table", ONE, FIFO, 192, gain(1.16))],
        ).number("1.16x"),
        claim(
            "shfl-factor-shufflers",
            "section 6.3, figure 11e (192 threads)",
            "+Shufflers: a shuffler passes the role to any waiter in the local socket: almost 10% over +Shuffler.",
            vec![over("hash-table", HAND_ON, ONE, 192, gain(1.1))],
        ).number("1.1x"),
        claim(
            "shfl-factor-qlast",
            "section 6.3, figure 11e (192 threads)",
            "+qlast avoids the unnecessary pointer chasing done by the shuffler: 30%.",
            vec![over("hash-table", NB, HAND_ON, 192, gain(1.3))],
        ).number("1.3x"),
    ]
}

fn blocking() -> Vec<Claim> {
    let hash = |lock, threads| at("hash-table-blocking", lock, threads);
    vec![
        claim(
            "shfl-blocking-4x",
            "section 6.3, figure 11c",
            "ShflLock maintains the best throughput even up to 4x over-subscription because it aggressively steals \
             the lock.",
            vec![
                over("hash-table-blocking", B, "mcs", 768, Bound::AtLeast(FAR_BETTER)),
                ratio(hash(B, 384), hash(B, 192), Bound::AtLeast(WORSE)),
                ratio(hash(B, 768), hash(B, 192), Bound::AtLeast(WORSE)),
            ],
        ).number("best"),
        claim(
            "shfl-blocking-fairness",
            "section 6.3, figure 11d",
            "In the under-subscribed scenario, the fairness factor reaches up to 0.6 because of lock stealing but \
             does not starve waiters (the paper's runs take 30 s, these one).",
            [24, 192]
                .map(|threads| of(Figure::Fairness(at("fairness-blocking", B, threads)), Bound::AtMost(0.65)))
                .to_vec(),
        ).number("up to 0.6"),
        claim(
            "shfl-wakeups",
            "section 6.3, figure 11f",
            "The shuffler proactively wakes up threads that will acquire the lock soon, which completely removes the \
             waking-up overhead from the critical path, even in the over-subscribed scenario.",
            [192, 384, 768].map(|threads| extra("late wakes", hash(B, threads), Bound::AtMost(0.01))).to_vec(),
        ).number("none"),
        claim(
            "shfl-rw-consistent",
            "section 6.3, figure 11 g, h",
            "ShflLock-RW maintains consistent performance regardless of the contention on the lock.",
            ["writes=1%", "writes=50%"]
                .iter()
                .flat_map(|set| {
                    let rate = |threads| with("hash-table-rw", RW, threads, set);
                    [96, 192].map(|threads| ratio(rate(threads), rate(24), FLAT))
                })
                .collect(),
        ).number("consistent"),
        not_yet(
            "shfl-rw-stock",
            "section 6.3, figure 11 g, h",
            "ShflLock-RW has higher throughput than the stock version by 8.1x and 3.7x for 1% and 50% writes.",
            "the kernel's rwsem",
        ).number("8.1x, 3.7x"),
    ]
}

fn section_6_4() -> Vec<Claim> {
    let tries = |lock| Figure::Extra("failed tries/op", at("barrier", lock, 192));
    vec![
        claim(
            "shfl-leveldb",
            "section 6.4, figure 12a",
            "LevelDB readrandom: ShflLock is 2.4x faster than MCS locks with 192 threads.",
            vec![over("readrandom", NB, "mcs", 192, gain(2.4))],
        ).number("2.4x"),
        claim(
            "shfl-leveldb-blocking",
            "section 6.4, figure 12b",
            "ShflLock maintains almost the same throughput even at 768 threads.",
            vec![ratio(at("readrandom", B, 768), at("readrandom", B, 192), SIMILAR)],
        ).number("almost the same"),
        claim(
            "shfl-leveldb-best",
            "section 6.4, figure 12 a, b",
            "The throughput of blocking locks is better than non-blocking ones because fewer threads are contending \
             on locks.",
            vec![over("readrandom", B, NB, 192, Bound::AtLeast(BETTER))],
        ).number("better"),
        not_yet(
            "shfl-leveldb-pthread",
            "section 6.4, figure 12b",
            "ShflLock-B outperforms others by 1.7 to 3.8x at 192 threads, and 1.6 to 12.5x at 768; Pthread only \
             scales up to eight threads.",
            "glibc's mutex, CST and Malthusian locks in the simulator",
        ).number("1.7-3.8x"),
        claim(
            "shfl-streamcluster",
            "section 6.4, figure 12c",
            "Streamcluster: ShflLocks are 1.3 to 4.4x faster than other locks (here: 1.3x than MCS).",
            vec![over("barrier", NB, "mcs", 192, gain(1.3))],
        ).number("1.3-4.4x"),
        claim(
            "shfl-trylock",
            "section 6.4",
            "Queue-based locks, such as HMCS, CNA, and MCS, spend 15x excessive trylock operations than ShflLock.",
            vec![check(Value::Ratio(tries("mcs"), tries(NB)), gain(15.0))],
        ).number("15x"),
        claim(
            "shfl-dedup-memory",
            "section 6.4, figure 13b",
            "ShflLock adds no memory overhead over Pthread.",
            vec![check(Value::Difference(Figure::LockBytes(B), Figure::PthreadMutexBytes), Bound::AtMost(0.0))],
        ).number("0"),
    ]
}

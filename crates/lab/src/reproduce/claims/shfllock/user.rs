//! Section 6.4: programs in user space.

use super::*;

pub fn claims() -> Vec<Claim> {
    let tries = |lock: &'static str| Figure::Extra("failed tries/op", at("barrier", lock, 192));
    vec![
        claim(
            "shfl-leveldb",
            "section 6.4, figure 12a",
            "LevelDB readrandom: ShflLock is 2.4x faster than MCS locks with 192 threads.",
            vec![over("readrandom", NB, "mcs", 192, gain(2.4))],
        ).number("2.4x"),
        claim(
            "shfl-leveldb-numa",
            "section 6.4, figure 12a",
            "ShflLock is almost as fast as the existing NUMA-aware locks with increasing core count.",
            ["hmcs", "cna"].map(|lock| over("readrandom", NB, lock, 192, Bound::AtLeast(WORSE))).to_vec(),
        ).number("almost as fast"),
        claim(
            "shfl-leveldb-blocking-others",
            "section 6.4, figure 12b",
            "ShflLock-B outperforms others by 1.7 to 3.8x at 192 threads, and 1.6 to 12.5x at 768 (here: Mutexee and \
             Malthusian, by the least of each).",
            ["mutexee", "malthusian"]
                .iter()
                .flat_map(|lock| {
                    [(192, 1.7), (768, 1.6)]
                        .map(|(threads, factor)| over("readrandom", B, lock, threads, gain(factor)))
                })
                .collect(),
        ).number("1.7-3.8x, 1.6-12.5x"),
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
        ).number("better").because("The paper's reason is that fewer threads contend. Waiters of shfl-spin spin on lines of their own, which costs the holder nothing here, and shuffling keeps the lock within a socket; the waiters of shfl that are awake take the lock from each other wherever they run."),
        claim(
            "shfl-leveldb-pthread",
            "section 6.4, figure 12b",
            "Pthread only scales up to eight threads because it starts parking threads (here: glibc's mutex, written after \
             its source; from 8 threads to 24 and 192).",
            [24, 192]
                .map(|threads| ratio(at("readrandom", PTHREAD, threads), at("readrandom", PTHREAD, 8), Bound::AtMost(1.1)))
                .to_vec(),
        ).number("8 threads"),
        claim(
            "shfl-leveldb-blocking-pthread",
            "section 6.4, figure 12b",
            "ShflLock-B outperforms others by 1.7 to 3.8x at 192 threads, and 1.6 to 12.5x at 768 (here: Pthread, by the \
             least of each).",
            [(192, 1.7), (768, 1.6)]
                .map(|(threads, factor)| over("readrandom", B, PTHREAD, threads, gain(factor)))
                .to_vec(),
        ).number("1.7-3.8x, 1.6-12.5x"),
        claim(
            "shfl-streamcluster",
            "section 6.4, figure 12c",
            "Streamcluster: ShflLocks are 1.3 to 4.4x faster than other locks (here: MCS, CNA and MCS-TP, by the least).",
            ["mcs", "cna", "mcs-tp"].map(|lock| over("barrier", NB, lock, 192, gain(1.3))).to_vec(),
        ).number("1.3-4.4x"),
        claim(
            "shfl-streamcluster-hmcs",
            "section 6.4, figure 12c",
            "ShflLocks has almost similar execution time as that of HMCS.",
            vec![over("barrier", NB, "hmcs", 192, SIMILAR)],
        ).number("similar").because("An attempt can take the word of ShflLock while others queue. The word of HMCS, as that of MCS, is its queue."),
        claim(
            "shfl-streamcluster-cna",
            "section 6.4, figure 12c",
            "Even though CNA is NUMA-aware, its performance is similar to MCS because the lock state and the queue tail \
             are coupled.",
            vec![over("barrier", "cna", "mcs", 192, SIMILAR)],
        ).number("similar").because("A holder of CNA looks for a waiter of its socket before it leaves, and meanwhile all attempts fail."),
        claim(
            "shfl-trylock",
            "section 6.4",
            "Queue-based locks, such as HMCS, CNA, and MCS, spend 15x excessive trylock operations than ShflLock.",
            ["hmcs", "cna", "mcs"].map(|lock| check(Value::Ratio(tries(lock), tries(NB)), gain(15.0))).to_vec(),
        ).number("15x").because("All threads wait for each other at the barrier for longer than they spin there, and then try until they have the lock: most attempts fail because another thread is inside, whichever lock it is."),
        claim(
            "shfl-dedup-memory",
            "section 6.4, figure 13b",
            "ShflLock adds no memory overhead over Pthread.",
            vec![check(Value::Difference(Figure::LockBytes(B), Figure::PthreadMutexBytes), Bound::AtMost(0.0))],
        ).number("0"),
    ]
}

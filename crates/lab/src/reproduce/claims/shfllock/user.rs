//! Section 6.4: programs in user space.

use super::*;

pub fn claims() -> Vec<Claim> {
    let tries = |lock: &'static str| Figure::Extra("failed tries/op", at("barrier", lock, 192));
    vec![
        claim("shfl-leveldb", "section 6.4, figure 12a")
            .says("LevelDB readrandom: ShflLock is 2.4x faster than MCS locks with 192 threads.")
            .number("2.4x")
            .checks([over("readrandom", NB, "mcs", 192, gain(2.4))]),
        claim("shfl-leveldb-numa", "section 6.4, figure 12a")
            .says("ShflLock is almost as fast as the existing NUMA-aware locks with increasing core count.")
            .number("almost as fast")
            .checks(["hmcs", "cna"].map(|lock| over("readrandom", NB, lock, 192, Bound::AtLeast(WORSE)))),
        claim("shfl-leveldb-blocking-others", "section 6.4, figure 12b")
            .says("ShflLock-B outperforms others by 1.7 to 3.8x at 192 threads, and 1.6 to 12.5x at 768 (here: Mutexee and \
             Malthusian, by the least of each).")
            .number("1.7-3.8x, 1.6-12.5x")
            .checks(["mutexee", "malthusian"].iter().flat_map(|lock| {
                [(192, 1.7), (768, 1.6)]
                    .map(|(threads, factor)| over("readrandom", B, lock, threads, gain(factor)))
            })),
        claim("shfl-leveldb-blocking", "section 6.4, figure 12b")
            .says("ShflLock maintains almost the same throughput even at 768 threads.")
            .number("almost the same")
            .checks([ratio(at("readrandom", B, 768), at("readrandom", B, 192), SIMILAR)]),
        claim("shfl-leveldb-best", "section 6.4, figure 12 a, b")
            .says("The throughput of blocking locks is better than non-blocking ones because fewer threads are contending \
             on locks.")
            .number("better")
            .checks([over("readrandom", B, NB, 192, Bound::AtLeast(BETTER))])
            .because("The paper's reason is that fewer threads contend. Waiters of shfl-spin spin on lines of their own, which costs the holder nothing here, and shuffling keeps the lock within a socket; the waiters of shfl that are awake take the lock from each other wherever they run."),
        claim("shfl-leveldb-pthread", "section 6.4, figure 12b")
            .says("Pthread only scales up to eight threads because it starts parking threads (here: glibc's mutex, written after \
             its source; from 8 threads to 24 and 192).")
            .number("8 threads")
            .checks(
                [24, 192]
                    .map(|threads| ratio(at("readrandom", PTHREAD, threads), at("readrandom", PTHREAD, 8), Bound::AtMost(1.1))),
            ),
        claim("shfl-leveldb-blocking-pthread", "section 6.4, figure 12b")
            .says("ShflLock-B outperforms others by 1.7 to 3.8x at 192 threads, and 1.6 to 12.5x at 768 (here: Pthread, by the \
             least of each).")
            .number("1.7-3.8x, 1.6-12.5x")
            .checks(
                [(192, 1.7), (768, 1.6)]
                    .map(|(threads, factor)| over("readrandom", B, PTHREAD, threads, gain(factor))),
            ),
        claim("shfl-streamcluster", "section 6.4, figure 12c")
            .says("Streamcluster: ShflLocks are 1.3 to 4.4x faster than other locks (here: MCS, CNA and MCS-TP, by the least).")
            .number("1.3-4.4x")
            .checks(["mcs", "cna", "mcs-tp"].map(|lock| over("barrier", NB, lock, 192, gain(1.3)))),
        claim("shfl-streamcluster-hmcs", "section 6.4, figure 12c")
            .says("ShflLocks has almost similar execution time as that of HMCS.")
            .number("similar")
            .checks([over("barrier", NB, "hmcs", 192, SIMILAR)])
            .because("An attempt can take the word of ShflLock while others queue. The word of HMCS, as that of MCS, is its queue."),
        claim("shfl-streamcluster-cna", "section 6.4, figure 12c")
            .says("Even though CNA is NUMA-aware, its performance is similar to MCS because the lock state and the queue tail \
             are coupled.")
            .number("similar")
            .checks([over("barrier", "cna", "mcs", 192, SIMILAR)])
            .because("A holder of CNA looks for a waiter of its socket before it leaves, and meanwhile all attempts fail."),
        claim("shfl-trylock", "section 6.4")
            .says("Queue-based locks, such as HMCS, CNA, and MCS, spend 15x excessive trylock operations than ShflLock.")
            .number("15x")
            .checks(["hmcs", "cna", "mcs"].map(|lock| check(Value::Ratio(tries(lock), tries(NB)), gain(15.0))))
            .because("All threads wait for each other at the barrier for longer than they spin there, and then try until they have the lock: most attempts fail because another thread is inside, whichever lock it is."),
        claim("shfl-dedup-memory", "section 6.4, figure 13b")
            .says("ShflLock adds no memory overhead over Pthread.")
            .number("0")
            .checks([check(Value::Difference(Figure::LockBytes(B), Figure::PthreadMutexBytes), Bound::AtMost(0.0))]),
    ]
}

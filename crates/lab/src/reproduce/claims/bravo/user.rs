//! Section 5 but for RWBench: programs in user space.

use super::*;

pub fn claims() -> Vec<Claim> {
    vec![
        claim("bravo-pf-t-similar", "section 5")
            .says("We found that PF-T and PF-Q offer broadly similar performance.")
            .number("broadly similar")
            .checks(["writes=1/10", "writes=1/100", "writes=1/1000"].iter().flat_map(|set| {
                [8, 36, 72].map(|threads| {
                    ratio(with("rwbench", "pf-t", threads, set), with("rwbench", BA, threads, set), FLAT)
                })
            }))
            .because("All waiting readers of pf-t see one word change; pf-q wakes its readers one after the other."),
        claim("bravo-interference", "section 5.1, figure 1")
            .says("The worst-case penalty arising from inter-thread interference (the lowest fraction value) is always \
             under 6%.")
            .number("> 0.94")
            .checks(POOLS.iter().map(|set| {
                ratio(
                    with("interference", BRAVO, 64, set),
                    with("interference", PRIVATE, 64, set),
                    Bound::AtLeast(0.94),
                )
            }))
            .because("Slots of the shared table that lie in one line belong to several readers. With 8192 locks most threads meet most locks for the first time in this run; `--seconds 0.03` has that part near its limit, and the one with 64 locks as it is here."),
        claim("bravo-2d-interference", "section 7")
            .says("BRAVO-2D virtually eliminates inter-thread interference and false sharing (near collisions) (here: with \
             a row for each processor, and as in this crate's default lock one for each thread).")
            .number("virtually none")
            .checks(
                [BY_CPU, DEFAULT]
                    .iter()
                    .flat_map(|lock| POOLS.iter().map(move |set| (lock, set)))
                    .map(|(lock, set)| {
                        ratio(
                            with("interference", lock, 64, set),
                            with("interference", PRIVATE, 64, set),
                            Bound::AtLeast(0.94),
                        )
                    }),
            ),
        claim("bravo-numa-sectors", "section 7")
            .says("Partition the visible readers table into contiguous sectors specified by the NUMA node of the reader. \
             This optimization will reduce the cost of false sharing within the table.")
            .number("reduces")
            .checks(POOLS[3..].iter().map(|set| {
                ratio(
                    with("interference", SECTORS, 64, set),
                    with("interference", BRAVO, 64, set),
                    EXCEEDS,
                )
            })),
        claim("bravo-alternator-drop", "section 5.2, figure 2")
            .says("All locks experience a significant performance drop between 1 and 2 threads due to the impact of \
             coherent communication for notification.")
            .number("significant drop")
            .checks(PAIR.iter().map(|lock| {
                ratio(at("alternator", lock, 2), at("alternator", lock, 1), Bound::AtMost(1.0 / FAR_BETTER))
            })),
        claim("bravo-alternator", "section 5.2, figure 2")
            .says("BRAVO-BA outperforms the underlying BA by a wide margin.")
            .number("wide margin")
            .checks([8, 36, 72].map(|threads| over("alternator", threads, Bound::AtLeast(FAR_BETTER))))
            .because("A turn takes two transfers of a line in the ring itself and one more in pf-q, so one transfer saved can bring half as much again at most."),
        claim("bravo-alternator-ba-degrades", "section 5.2, figure 2")
            .says("The performance of BA can be seen to degrade as we add threads.")
            .number("degrades")
            .checks([ratio(at("alternator", BA, 72), at("alternator", BA, 2), Bound::AtMost(WORSE))])
            .beside(PAIR.iter().map(|lock| {
                Value::Ratio(Figure::Rate(at("alternator", lock, 72)), Figure::Rate(at("alternator-one-socket", lock, 2)))
            }))
            .because("A thread's neighbour in the ring is in the other socket from two threads on, so adding threads changes nothing. The paper's threads are unbound (section 5). If its two threads had one socket, BA degrades; but so does BRAVO-BA, which the paper has stable."),
        claim("bravo-alternator-stable", "section 5.2, figure 2")
            .says("... whereas the performance of BRAVO-BA remains stable.")
            .number("stable")
            .checks(
                [8, 36, 72]
                    .map(|threads| ratio(at("alternator", BRAVO, threads), at("alternator", BRAVO, 2), SIMILAR)),
            ),
        claim("bravo-alternator-per-cpu", "section 5.2, figure 2")
            .says("BRAVO-BA is competitive with the much larger Per-CPU lock.")
            .number("competitive")
            .checks(against("alternator", (BRAVO, PER_CPU), &[2, 8, 36, 72], COMPETITIVE)),
        claim("bravo-test-rwlock", "section 5.3, figure 3")
            .says("BRAVO-BA significantly outperforms BA ... at higher thread counts.")
            .number("significantly")
            .checks([35, 71].map(|threads| over("test-rwlock", threads, Bound::AtLeast(FAR_BETTER))))
            .because("When the bias comes back, most readers are still queued for the lock's line, and the next write revokes it."),
        claim("bravo-test-rwlock-cohort", "section 5.3, figure 3")
            .says("BRAVO-BA significantly outperforms BA, and even the Cohort-RW lock at higher thread counts.")
            .number("outperforms")
            .checks(against("test-rwlock", (BRAVO, COHORT), &[35, 71], Bound::AtLeast(BETTER)))
            .because("The bias hardly ever lasts, and without it BRAVO's readers all count in one word, where Cohort-RW has a word for each node."),
        claim("bravo-test-rwlock-per-cpu", "section 5.3, figure 3")
            .says("Since the workload is extremely read-dominated, the Per-CPU lock yields the best performance.")
            .number("the best")
            .checks(
                [BA, BRAVO, COHORT]
                    .iter()
                    .flat_map(|lock| against("test-rwlock", (PER_CPU, lock), &[35, 71], EXCEEDS)),
            ),
        claim("bravo-readwhilewriting", "section 5.5, figure 5")
            .says("In rocksdb readwhilewriting, the performance of BRAVO-BA always exceeds that of Cohort-RW and of the \
             underlying lock.")
            .number("always exceeds")
            .checks(
                [COHORT, BA]
                    .iter()
                    .flat_map(|lock| against("readwhilewriting", (BRAVO, lock), &[1, 8, 18, 36, 71], EXCEEDS)),
            )
            .because("The paper's memtable sorts all its entries for each write, which takes milliseconds, so that the lock is biased nearly always. A single reader gains nothing."),
        claim("bravo-readwhilewriting-steady", "section 5.5, figure 5")
            .says("... always exceeds that of Cohort-RW and of the underlying lock (here: with a writer that is back after 4 to 300 us, as \
             with a memtable that finds an entry without sorting all of them).")
            .number("always exceeds")
            .checks(STEADY.iter().flat_map(|set| {
                [COHORT, BA].iter().flat_map(move |lock| {
                    [8, 71].map(|threads| {
                        let rate = |lock| with("readwhilewriting-steady", lock, threads, set);
                        ratio(rate(BRAVO), rate(lock), EXCEEDS)
                    })
                })
            }))
            .because("After a revocation the guard keeps the bias off for nine times as long as the scan of the table took, which is most of the time between two writes."),
        claim("bravo-readwhilewriting-per-cpu", "section 5.5, figure 5")
            .says("... and tracks that of Per-CPU.")
            .number("tracks")
            .checks(against("readwhilewriting", (BRAVO, PER_CPU), &[8, 18, 36, 71], CLOSE))
            .because("As bravo-readwhilewriting."),
        claim("bravo-hash-table-bench", "section 5.6, figure 6")
            .says("BRAVO enhances the performance of underlying locks, and shows substantial speedup at high thread \
             counts (rocksdb's hash_table_bench: two threads write, all others look up).")
            .number("substantial")
            .checks([36, 70].map(|threads| over("rocksdb-hash-table", threads, Bound::AtLeast(FAR_BETTER))))
            .beside([36, 70].iter().flat_map(|threads| {
                PAIR.iter().map(|lock| Value::Of(Figure::Extra("writes/s", at("rocksdb-hash-table", lock, *threads))))
            }))
            .because("The two writers do not pause, so that a write follows another after some microseconds, and each that finds the bias on takes it away for ten times a scan of the table, some 50 us: nearly all readers use the lock below, and have looked at the bias in vain. Where a write comes each 100 us, BRAVO-BA has several times the throughput of BA with 71 readers (bravo-readwhilewriting-steady). The program's own line that all threads write, of its counters, changes nothing here (counters=own).")
            .so("Beside writers that do not pause BRAVO is no better than the lock below it, and somewhat slower. Collect changes, so that writes are some hundreds of microseconds apart."),
    ]
}

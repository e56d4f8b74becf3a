//! Section 6.1: micro-benchmarks of the kernel, and what stands for them here.

use super::*;

pub fn claims() -> Vec<Claim> {
    let fewer = |lock, bound| ratio(at("oversubscribe", lock, 384), at("oversubscribe", lock, 192), bound);
    vec![
        claim("shfl-mwrl-lock1", "section 6.1, figure 8")
            .says("Both CNA and ShflLock outperform the Linux version by 2.8x and 2x on MWRL and lock1 (here: on the hash \
             table under one lock, by the smaller of the two).")
            .number("2.8x, 2x")
            .checks(["cna", NB].map(|lock| over("hash-table", lock, STOCK, 192, gain(2.0)))),
        claim("shfl-mwrl-one-socket-cna", "section 6.1, figure 8")
            .says("Both CNA and ShflLock ... maintaining the same throughput under lower contention, e.g., within a single socket \
             (here: CNA; for ShflLock, shfl-one-socket).")
            .number("the same")
            .checks([1, 4, 24].map(|threads| over("hash-table", "cna", STOCK, threads, Bound::AtLeast(WORSE)))),
        claim("shfl-mwrm", "section 6.1, figure 9a")
            .says("ShflLock is 1.8x faster than both CST and Stock (the kernel's mutex; here hybrid).")
            .number("1.8x")
            .checks([STOCK_MUTEX, CST].map(|lock| over("oversubscribe", B, lock, 192, gain(1.8))))
            .beside([
                Value::Ratio(Figure::Rate(at("oversubscribe", NB, 192)), Figure::Rate(at("oversubscribe", CST, 192))),
                Value::Of(Figure::Extra("remote", at("oversubscribe", B, 192))),
                Value::Of(Figure::Extra("remote", at("oversubscribe", CST, 192))),
                Value::Of(Figure::Extra("parked", at("oversubscribe", B, 192))),
                Value::Of(Figure::Extra("parked", at("oversubscribe", CST, 192))),
            ])
            .because("With a processor for each thread no waiter of CST has to sleep, so its queues hand over within a socket, and so does ShflLock's queue where its waiters spin (shfl-spin). Waiters of shfl go to sleep after some microseconds. The few that are awake then take the lock from each other, wherever they run. Beside that, sections of 500 ns bound every lock: one that costs nothing reaches 2 million a second."),
        claim("shfl-stock-mutex-oversubscribed", "section 6.1, figure 9a")
            .says("The stock maintains the throughput in the over-subscribed case.")
            .number("maintains")
            .checks([fewer(STOCK_MUTEX, Bound::AtLeast(WORSE))]),
        claim("shfl-oversubscribed", "section 6.1, figure 9a (2x over-subscription)")
            .says("ShflLock maintains the best throughput in both under- and over-subscribed scenarios.")
            .number("best")
            .checks([
                over("oversubscribe", B, "mcs", 192, Bound::AtLeast(1.0)),
                over("oversubscribe", B, COHORT, 192, Bound::AtLeast(1.0)),
                over("oversubscribe", B, "mcs", 384, Bound::AtLeast(1.0)),
                over("oversubscribe", B, COHORT, 384, Bound::AtLeast(1.0)),
                over("oversubscribe", B, NB, 384, Bound::AtLeast(1.0)),
                fewer(B, Bound::AtLeast(WORSE)),
            ])
            .because("With a processor for each thread, waiters that spin (Cohort) lose no time to waking."),
        claim("shfl-non-blocking-oversubscribed", "section 6.1, figure 9a")
            .says("A non-blocking lock performs well up to the total number of cores, but significantly degrades in the \
             over-subscribed case, as waiters waste CPU cycles (said of Cohort; here of MCS too).")
            .number("degrades")
            .checks([COHORT, "mcs"].map(|lock| fewer(lock, Bound::AtMost(1.0 / FAR_BETTER)))),
        claim("shfl-bravo-readers", "section 6.1, figure 9c (readers only, 192 and 384 threads)")
            .says("The BRAVO approach improves the throughput for both Stock and ShflLock.")
            .number("improves")
            .checks([192, 384].iter().flat_map(|threads| {
                [(SHFL_BRAVO, RW), (STOCK_BRAVO, STOCK_RW)]
                    .map(|(bravo, lock)| over("readers", bravo, lock, *threads, Bound::AtLeast(BETTER)))
            })),
        claim("shfl-bravo-page-fault", "section 6.1, figure 9c; page faults of will-it-scale")
            .says("The BRAVO approach improves the throughput (here: of page faults, which read, with some mapping).")
            .number("improves")
            .checks([over("page-fault-rw", SHFL_BRAVO, RW, 192, Bound::AtLeast(BETTER))]),
        claim("shfl-writers", "section 6.1, figure 9b (the writer side, here sections as long as the creation of a file)")
            .says("ShflLock maintains the best throughput at all core counts (of Stock, which is the kernel's rwsem, Cohort, \
             CST and ShflLock).")
            .number("best")
            .checks([1, 4, 24, 192].iter().flat_map(|threads| {
                [STOCK_RW, COHORT_RW, CST_RW]
                    .map(|lock| over("mmap-rw", RW, lock, *threads, Bound::AtLeast(0.9)))
            }))
            .because("Most waiters of shfl-rw sleep, and the few that are awake look at the word at growing intervals; the next writer of the others spins and sees its turn at once."),
        claim("shfl-writers-stock", "section 6.1, figure 9b (the writer side, here sections as long as the creation of a file)")
            .says("ShflLock is 1.5x faster than Stock at 192 threads.")
            .number("1.5x")
            .checks([over("mmap-rw", RW, STOCK_RW, 192, gain(1.5))])
            .beside(["hold=1us", "hold=2us", "hold=4us"].map(|set| {
                let rate = |lock| Figure::Rate(with("mmap-rw-holds", lock, 192, set));
                Value::Ratio(rate(RW), rate(STOCK_RW))
            }))
            .because("The sections of a lock for writing follow one another, so a lock can gain no more than the time between two of them. The longer a section, the less that is. The paper gives no length; ours is a measurement of what MWCM does, on another machine. Inodes, each of which contains its lock, are not modelled.")
            .so("Where writers hold a lock for some microseconds, as to create a file, no reader-writer lock is much ahead of another. The gain is in sections of a microsecond and less."),
        claim("shfl-writers-hierarchical", "section 6.1, figure 9b (the writer side, here sections as long as the creation of a file)")
            .says("ShflLock is 1.8 to 2x faster than hierarchical locks within a socket (Cohort and CST).")
            .number("1.8-2x")
            .checks([4, 24].iter().flat_map(|threads| {
                [COHORT_RW, CST_RW].map(|lock| over("mmap-rw", RW, lock, *threads, gain(1.8)))
            }))
            .outside("memory: section 6.1 names the allocation of inodes, each of which contains its lock (3.4 times as large with Cohort); here there is one lock, and nothing is allocated"),
        claim("shfl-writers-oversubscribed", "section 6.1, figure 9b (2x over-subscription, here likewise)")
            .says("... at all core counts: also with two threads for each core.")
            .number("best")
            .checks(
                [STOCK_RW, COHORT_RW, CST_RW]
                    .map(|lock| over("mmap-rw", RW, lock, 384, Bound::AtLeast(1.0))),
            )
            .because("CST leaves more of its waiters asleep for longer."),
        claim("shfl-writers-cst", "section 6.1, figure 9b (the writer side, here sections as long as the creation of a file)")
            .says("CST's performance only scales to reach that of ShflLock after 2 NUMA nodes.")
            .number("after 2 nodes")
            .checks([
                over("mmap-rw", CST_RW, RW, 24, Bound::AtMost(WORSE)),
                over("mmap-rw", CST_RW, RW, 48, Bound::AtLeast(WORSE)),
                over("mmap-rw", CST_RW, RW, 192, Bound::AtLeast(WORSE)),
            ])
            .outside("memory: section 6.1 names the allocation of inodes, each of which contains its lock (3.4 times as large with Cohort); here there is one lock, and nothing is allocated")
            .because("In the paper each new inode's lock allocates what its socket needs."),
        claim("shfl-readers-hierarchical", "section 6.1, figure 9c (readers only)")
            .says("Both hierarchical locks are faster than ShflLock and rwsem because of their per-socket readers indicator \
             (Cohort and CST, 192 threads).")
            .number("faster")
            .checks([COHORT_RW, CST_RW].iter().flat_map(|hierarchical| {
                [RW, STOCK_RW]
                    .map(|lock| over("readers", hierarchical, lock, 192, Bound::AtLeast(BETTER)))
            })),
        claim("shfl-readers-stock", "section 6.1, figure 9c (readers only)")
            .says("ShflLock is still faster than stock rwsem by 1.2 to 1.5x.")
            .number("1.2-1.5x")
            .checks([192, 384].map(|threads| over("readers", RW, STOCK_RW, threads, gain(1.2))))
            .beside([STOCK_RW, RW].map(|lock| Value::Of(Figure::Extra("parked", at("readers", lock, 192)))))
            .because("Without a writer each reader of either lock adds to one counter and subtracts from it, and that is all. The paper's reason is spurious sleeping of the stock version's waiters, and does not say why they sleep (section 6.1); the rwsem that is written after that kernel's source puts no reader to sleep."),
        claim("shfl-readers-bravo-cohort", "section 6.1, figure 9c (readers only)")
            .says("The BRAVO approach improves the throughput for both Stock and ShflLock up to 2.3x compared to Cohort and \
             CST locks at 192 threads.")
            .number("2.3x")
            .checks([COHORT_RW, CST_RW].iter().flat_map(|lock| {
                [SHFL_BRAVO, STOCK_BRAVO].map(|bravo| over("readers", bravo, lock, 192, gain(2.3)))
            }))
            .because("Eight slots of the table of readers share a line, which threads of all sockets write."),
        claim("shfl-readers-bravo-stock", "section 6.1, figure 9c (readers only, two threads for each core)")
            .says("Due to the extra cache-line contention in the stock version, ShflLock-BRAVO still outperforms Stock-BRAVO by 1.6x \
             at 384 threads.")
            .number("1.6x")
            .checks([over("readers", SHFL_BRAVO, STOCK_BRAVO, 384, gain(1.6))])
            .because("Once all readers are in the table, no reader touches the lock under it, whichever it is."),
    ]
}

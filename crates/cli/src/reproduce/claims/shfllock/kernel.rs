//! Section 6.1: micro-benchmarks of the kernel, and what stands for them here.

use super::*;

pub fn claims() -> Vec<Claim> {
    let fewer = |lock, bound| ratio(at("oversubscribe", lock, 384), at("oversubscribe", lock, 192), bound);
    vec![
        claim(
            "shfl-mwrl-lock1",
            "section 6.1, figure 8",
            "Both CNA and ShflLock outperform the Linux version by 2.8x and 2x on MWRL and lock1 (here: on the hash \
             table under one lock, by the smaller of the two).",
            ["cna", NB].map(|lock| over("hash-table", lock, STOCK, 192, gain(2.0))).to_vec(),
        ).number("2.8x, 2x"),
        claim(
            "shfl-mwrm",
            "section 6.1, figure 9a",
            "ShflLock is 1.8x faster than both CST and Stock (the kernel's mutex; here hybrid).",
            [STOCK_MUTEX, "cst"].map(|lock| over("oversubscribe", B, lock, 192, gain(1.8))).to_vec(),
        ).number("1.8x"),
        claim(
            "shfl-stock-mutex-oversubscribed",
            "section 6.1, figure 9a",
            "The stock maintains the throughput in the over-subscribed case.",
            vec![fewer(STOCK_MUTEX, Bound::AtLeast(WORSE))],
        ).number("maintains"),
        claim(
            "shfl-oversubscribed",
            "section 6.1, figure 9a (2x over-subscription)",
            "ShflLock maintains the best throughput in both under- and over-subscribed scenarios.",
            vec![
                over("oversubscribe", B, "mcs", 192, Bound::AtLeast(1.0)),
                over("oversubscribe", B, COHORT, 192, Bound::AtLeast(1.0)),
                over("oversubscribe", B, "mcs", 384, Bound::AtLeast(1.0)),
                over("oversubscribe", B, COHORT, 384, Bound::AtLeast(1.0)),
                over("oversubscribe", B, NB, 384, Bound::AtLeast(1.0)),
                fewer(B, Bound::AtLeast(WORSE)),
            ],
        ).number("best")
        .because(
            "With a processor for each of 192 threads, waiters that spin (Cohort) lose no time to \
             waking. With two threads per processor ShflLock is the best, and keeps its rate.",
        ),
        claim(
            "shfl-non-blocking-oversubscribed",
            "section 6.1, figure 9a",
            "A non-blocking lock performs well up to the total number of cores, but significantly degrades in the \
             over-subscribed case, as waiters waste CPU cycles (said of Cohort; here of MCS too).",
            [COHORT, "mcs"].map(|lock| fewer(lock, Bound::AtMost(1.0 / FAR_BETTER))).to_vec(),
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
        ).number("best")
        .because(
            "Within a socket; with 1 and with 192 threads it holds. Most of shfl-rw's waiters \
             sleep, and the few that are awake look at the word at growing intervals, so that it \
             stays free for a while after each section; pf-q's next writer sees at once that it \
             is its turn.",
        ),
        not_yet(
            "shfl-rwsem",
            "section 6.1, figure 9 b, c",
            "ShflLock-RW is 1.5x faster than Stock at 192 threads writing, 1.2 to 1.5x reading.",
            "the kernel's rwsem",
        ).number("1.5x, 1.2-1.5x"),
    ]
}

//! Section 6.3: the hash table under one lock, and what each part of shuffling is worth.

use super::*;

pub fn claims() -> Vec<Claim> {
    [non_blocking(), blocking()].concat()
}

/// ShflLock-NB is not behind any of these locks, whatever the number of threads.
fn best(others: &[&'static str]) -> Vec<Check> {
    let over =
        |threads| others.iter().map(move |lock| over("hash-table", NB, lock, threads, Bound::AtLeast(WORSE)));
    [1, 4, 24, 48, 96, 192].into_iter().flat_map(over).collect()
}

fn non_blocking() -> Vec<Claim> {
    vec![
        claim("shfl-hash-table", "section 6.3, figure 11a (1% writes, 192 threads)")
            .says("Both CNA and ShflLock are the best performing.")
            .number("best")
            .checks(
                ["tas", "ttas", "ticket", "mcs", "clh", STOCK]
                    .map(|lock| over("hash-table", NB, lock, 192, Bound::AtLeast(BETTER))),
            ),
        claim("shfl-hash-table-cna", "section 6.3, figure 11a (1% writes, 192 threads)")
            .says("Both CNA and ShflLock are the best performing: CNA over the others, and ShflLock like CNA.")
            .number("best")
            .checks([
                over("hash-table", "cna", "mcs", 192, Bound::AtLeast(BETTER)),
                over("hash-table", "cna", STOCK, 192, Bound::AtLeast(BETTER)),
                over("hash-table", NB, "cna", 192, SIMILAR),
            ])
            .because("CNA's handover within a socket is that of MCS, a single write; see shfl-best-everywhere."),
        claim("shfl-cohort-one-socket", "section 6.3, figure 11a")
            .says("The performance of Cohort locks is affected because of bloating of the critical section in the case of one \
             socket (here: against ShflLock).")
            .number("affected")
            .checks([over("hash-table", COHORT, NB, 24, Bound::AtMost(WORSE))])
            .because("Cohort hands over within its socket with one write, and ShflLock frees a word that the head of its queue has to fetch and swap (see shfl-best-everywhere). The paper does not say what bloats Cohort's section."),
        claim("shfl-one-socket", "sections 6.1 and 6.3, figures 8 and 11a")
            .says("... outperform the Linux version (qspinlock) while maintaining the same throughput under lower contention, \
             e.g., within a single socket.")
            .number("the same")
            .checks([1, 4, 24].map(|threads| over("hash-table", NB, STOCK, threads, Bound::AtLeast(WORSE)))),
        claim("shfl-best-everywhere", "section 1")
            .says("Our lock algorithms maintain the best throughput regardless of the number of threads contending for the \
             lock (here: on the hash table, of the locks of figure 11a: Stock, Cohort and CNA).")
            .number("best")
            .checks(best(&[STOCK, COHORT, "cna"]))
            .beside(["hold=0ns", "hold=100ns", "hold=300ns"].iter().flat_map(|set| {
                let rate = |lock| Figure::Rate(with("short-sections", lock, 24, set));
                [COHORT, "cna"].map(|lock| Value::Ratio(rate(NB), rate(lock)))
            }))
            .because("MCS, CNA and Cohort hand over with one write to the next waiter's node. ShflLock frees a word that the head of its queue has to see, fetch and swap, and the new holder makes the next waiter the head before it enters. That is some two transfers of a line more from one holder to the next, within a socket as well. The kernel's qspinlock, the paper's baseline, does the same. So does the CNA that the authors published beside their benchmark, which is built into the qspinlock; here CNA is the lock of its own paper. Their table, of 4096 entries in 1024 buckets, makes sections longer than ours: hold=50ns and hold=100ns stand for that in the space.")
            .so("Where threads contend for sections shorter than some 100 ns, a queue lock that hands over directly is faster. Longer ones hide the difference, and ShflLock has cheap attempts and needs no node for a holder."),
        claim("shfl-best-everywhere-others", "section 1")
            .says("Our lock algorithms maintain the best throughput regardless of the number of threads contending for the \
             lock (here: on the hash table, of locks that figure 11a does not have).")
            .number("best")
            .checks(best(&["tas", "ttas", "ticket", "mcs", "clh"]))
            .because("With four threads a lock that is taken and left by one thread time after time is ahead of all that hand over. Beside that as shfl-best-everywhere, whose rule had these locks, too, until it was seen to fail: figure 11a does not have them."),
        claim("shfl-mcs-plateau", "section 6.3, figure 11a (a curve, not a sentence)")
            .says("Where ShflLock is set against a queue lock that knows nothing of sockets, that one falls to a plateau.")
            .number("flat")
            .checks(
                [96, 192]
                    .map(|threads| ratio(at("hash-table", "mcs", threads), at("hash-table", "mcs", 48), FLAT)),
            )
            .because("The more sockets, the more handovers go from one to another, and some of them take two hops."),
        claim("shfl-fairness", "section 6.3, figure 11b")
            .says("Although NUMA-aware locks impact the fairness of locks, they still maintain long-term fairness, as the \
             fairness factor is close to 0.5.")
            .number("close to 0.5")
            .checks(
                [24, 96, 192]
                    .map(|threads| of(Figure::Fairness(at("fairness", NB, threads)), Bound::AtMost(0.6))),
            ),
        claim("shfl-fairness-others", "section 6.3, figure 11b")
            .says("Although NUMA-aware locks impact the fairness of locks, they still maintain long-term fairness, as the \
             fairness factor is close to 0.5: CNA and Cohort, and Stock, which is FIFO.")
            .number("close to 0.5")
            .checks(["cna", COHORT, STOCK].iter().flat_map(|lock| {
                [24, 96, 192]
                    .map(|threads| of(Figure::Fairness(at("fairness", lock, threads)), Bound::AtMost(0.6)))
            })),
        claim("shfl-factor-shuffler", "section 6.3, figure 11e (192 threads)")
            .says("+Shuffler: only the very first waiter shuffles, but doesn't pass the role to other threads: 16% over Base, \
             which is no shuffling.")
            .number("1.16x")
            .checks([over("hash-table", ONE, FIFO, 192, gain(1.16))])
            .beside(
                [FIFO, ONE].map(|lock| Value::Of(Figure::Extra("remote", at("hash-table", lock, 192)))),
            )
            .beside(
                ["hold=0ns", "hold=500ns", "hold=2us", "hold=8us"].map(|set| {
                    let rate = |lock| Figure::Rate(with("factor-holds", lock, 192, set));
                    Value::Ratio(rate(ONE), rate(FIFO))
                }),
            )
            .because("A walk over the queue lasts no longer than the lock is held, and each waiter that it looks at is a line from another socket. In short sections it hardly meets a waiter of its own socket, so that handovers stay between sockets; the gain comes with the length of the sections."),
        claim("shfl-factor-shufflers", "section 6.3, figure 11e (192 threads)")
            .says("+Shufflers: a shuffler passes the role to any waiter in the local socket: almost 10% over +Shuffler.")
            .number("1.1x")
            .checks([over("hash-table", HAND_ON, ONE, 192, gain(1.1))])
            .because("A walk that starts anew each time finds few waiters of its socket while the lock is held."),
        claim("shfl-factor-qlast", "section 6.3, figure 11e (192 threads)")
            .says("+qlast avoids the unnecessary pointer chasing done by the shuffler: 30%.")
            .number("1.3x")
            .checks([over("hash-table", NB, HAND_ON, 192, gain(1.3))]),
    ]
}

fn blocking() -> Vec<Claim> {
    let hash = |lock, threads| at("hash-table-blocking", lock, threads);
    let fairness =
        |lock, threads, bound| of(Figure::Fairness(at("fairness-oversubscribed", lock, threads)), bound);
    vec![
        claim("shfl-blocking-4x", "section 6.3, figure 11c")
            .says("ShflLock maintains the best throughput even up to 4x over-subscription because it aggressively steals \
             the lock.")
            .number("best")
            .checks(
                [
                    over("hash-table-blocking", B, "mcs", 768, Bound::AtLeast(FAR_BETTER)),
                    ratio(hash(B, 384), hash(B, 192), Bound::AtLeast(WORSE)),
                    ratio(hash(B, 576), hash(B, 192), Bound::AtLeast(WORSE)),
                    ratio(hash(B, 768), hash(B, 192), Bound::AtLeast(WORSE)),
                ]
                .into_iter()
                .chain([384, 576, 768].iter().flat_map(|threads| {
                    [STOCK_MUTEX, CST]
                        .map(|lock| over("hash-table-blocking", B, lock, *threads, Bound::AtLeast(1.0)))
                })),
            ),
        claim("shfl-blocking-local", "section 6.3, figure 11c")
            .says("We further confirm this result by only allowing the stealing from the local NUMA-socket, which shows the same \
             throughput.")
            .number("the same")
            .checks([24, 192, 384, 576, 768].map(|threads| over("hash-table-blocking", LOCAL, B, threads, SIMILAR))),
        claim("shfl-blocking-fairness", "section 6.3, figure 11d")
            .says("In the under-subscribed scenario, the fairness factor reaches up to 0.6 because of lock stealing but \
             does not starve waiters (the paper's runs take 30 s, these one).")
            .number("up to 0.6")
            .checks(
                [24, 192]
                    .map(|threads| of(Figure::Fairness(at("fairness-blocking", B, threads)), Bound::AtMost(0.65))),
            ),
        claim("shfl-blocking-fairness-oversubscribed", "section 6.3, figure 11d (1x to 4x; a curve, not a sentence)")
            .says("The fairness factor of ShflLock-B, CST and Stock over-subscribed: nobody is starved (here also of Mutexee and \
             Pthread; runs of 0.2 s).")
            .number("below 1")
            .checks(
                [B, CST, STOCK_MUTEX, "mutexee", PTHREAD]
                    .iter()
                    .flat_map(|lock| [192, 384, 576, 768].map(|threads| fairness(lock, threads, Bound::AtMost(0.9)))),
            ),
        claim("shfl-blocking-fairness-malthusian", "table 2 (here on figure 11d's workload, 1x to 4x)")
            .says("Malthusian: culls extra threads deterministically (so that those are not seen again within 0.2 s).")
            .number("culls")
            .checks([192, 384, 576, 768].map(|threads| fairness("malthusian", threads, Bound::AtLeast(0.9)))),
        claim("shfl-wakeups", "section 6.3, figure 11f")
            .says("The shuffler proactively wakes up threads that will acquire the lock soon, which completely removes the \
             waking-up overhead from the critical path, even in the over-subscribed scenario.")
            .number("none")
            .checks([192, 384, 576, 768].map(|threads| extra("late wakes", hash(B, threads), Bound::AtMost(0.01)))),
        claim("shfl-rw-consistent", "section 6.3, figure 11 g, h")
            .says("ShflLock-RW maintains consistent performance regardless of the contention on the lock.")
            .number("consistent")
            .checks(["writes=1%", "writes=50%"].iter().flat_map(|set| {
                let rate = |threads| with("hash-table-rw", RW, threads, set);
                [96, 192].map(|threads| ratio(rate(threads), rate(24), FLAT))
            }))
            .because("The readers meet in one counter. The more sockets, the farther that line moves at every arrival and departure."),
        claim("shfl-rw-stock", "section 6.3, figure 11 g, h (192 threads)")
            .says("ShflLock-RW has higher throughput than the stock version by 8.1x and 3.7x for 1% and 50% writes.")
            .number("8.1x, 3.7x")
            .checks([("writes=1%", 8.1), ("writes=50%", 3.7)].map(|(set, factor)| {
                let rate = |lock| with("hash-table-rw", lock, 192, set);
                ratio(rate(RW), rate(STOCK_RW), gain(factor))
            })),
        claim("shfl-rw-oversubscribed", "section 6.3, figure 11 g, h (up to 4x over-subscription)")
            .says("In the case of over-subscription, ShflLock-RW aggressively batches readers and writers, which slightly improves \
             the throughput (here: it does not fall).")
            .number("improves")
            .checks(["writes=1%", "writes=50%"].iter().flat_map(|set| {
                let rate = |threads| with("hash-table-rw", RW, threads, set);
                [384, 576, 768].map(|threads| ratio(rate(threads), rate(192), Bound::AtLeast(0.9)))
            })),
    ]
}

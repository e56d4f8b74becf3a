//! McKenney, Hart and Walpole, "Practical Concerns for Scalable Synchronization", 2005.
//!
//! The paper's RCU is `qsbr-l`, its RCU-NBS `qsbr-nbs`; its hazard pointers are those with a full fence in
//! each protection (`hpbr-l-fence`, `hpbr-nbs-fence`), which this library's own do without.

use super::{Check, Claim, Experiment, Paper, at, check, experiment, of, ratio, with};
use crate::reproduce::rule::{At, BETTER, Bound, CLOSE, FAR_BETTER, Figure, SIMILAR, Value};

const MACHINE: &str = "power4";
pub const WORKLOAD: &str = "hashtable-strategies";
/// "globalrw": any reader-writer lock with a reader counter.
pub const GLOBALRW: &str = "pf-q";
pub const BRLOCK: &str = "percpu";
pub const SPINBKT: &str = "ttas";
pub const RCU_L: &str = "qsbr-l";
pub const RCU_NBS: &str = "qsbr-nbs";
pub const HPBR_L: &str = "hpbr-l-fence";
pub const HPBR_NBS: &str = "hpbr-nbs-fence";

/// A table that no CPU has seen much of by the end of a run: the simulated caches have no bound.
pub const LARGE: &str = "buckets=262144";
/// What an operation computes beside the table, which the paper does not say.
const GAP: &[&str] = &["gap=20ns", "gap=42ns", "gap=100ns"];
/// A few thousand operations of each CPU: the large table is still one that nobody has seen much of.
const MICROS: u64 = 700;
pub const BUDGET: &str = "budget=256";
/// Where elements are removed, the runs are longer and the budget is less than a thread's removals in a run. Else nothing would be
/// reclaimed, and the claims about updates would compare strategies without reclamation.
const UPDATE_MICROS: u64 = 3_000;

const SCALING: &str = "strategies";
const SIZES: &str = "strategies-by-size";
const UPDATES: &str = "strategies-by-updates";
const MEMORY: &str = "strategies-by-memory";

pub fn experiments() -> Vec<Experiment> {
    let all: &[&str] = &["ideal", RCU_L, RCU_NBS, HPBR_L, HPBR_NBS, SPINBKT, BRLOCK, GLOBALRW];
    vec![
        experiment(
            SCALING,
            MACHINE,
            WORKLOAD,
            &["ideal", GLOBALRW, BRLOCK, SPINBKT, RCU_L, HPBR_NBS],
            "1,2,4,8",
        )
        .set(&[LARGE, BUDGET])
        .unknown(GAP)
        .micros(MICROS),
        experiment(SIZES, MACHINE, WORKLOAD, all, "8")
            .set(&["buckets=32,262144", BUDGET])
            .unknown(GAP)
            .micros(MICROS),
        experiment(UPDATES, MACHINE, WORKLOAD, &all[1..], "2,8")
            .set(&["updates=0,0.001,0.005,0.02,0.1,0.5,1", LARGE, "budget=16"])
            .unknown(GAP)
            .micros(UPDATE_MICROS),
        experiment(MEMORY, MACHINE, WORKLOAD, &[RCU_L, HPBR_NBS], "8")
            .set(&["budget=2,16,128", "updates=0.2", LARGE])
            .unknown(GAP)
            .micros(UPDATE_MICROS),
    ]
}

fn claim(id: &'static str, place: &'static str) -> Claim {
    Claim::new(id, Paper::McKenney, place)
}

fn small(lock: &'static str) -> At {
    with(SIZES, lock, 8, "buckets=32")
}

fn large(lock: &'static str) -> At {
    with(SIZES, lock, 8, LARGE)
}

/// How much of `other` a lock has in the large table, over how much it has in the small one.
fn large_over_small(lock: &'static str, other: &'static str, bound: Bound) -> Check {
    let pair = |place: fn(&'static str) -> At| (Figure::Rate(place(lock)), Figure::Rate(place(other)));
    check(Value::OfRatios(pair(large), pair(small)), bound)
}

fn updates(lock: &'static str, threads: usize, share: &str) -> At {
    with(UPDATES, lock, threads, &format!("updates={share}"))
}

pub fn not_slower(above: At, below: At) -> Check {
    ratio(above, below, Bound::AtLeast(1.0))
}

/// Each at least as fast as the next.
pub fn order(locks: &[&'static str], place: impl Fn(&'static str) -> At) -> Vec<Check> {
    locks.windows(2).map(|pair| not_slower(place(pair[0]), place(pair[1]))).collect()
}

pub fn claims() -> Vec<Claim> {
    let atomics = |lock, bound| of(Figure::Extra("atomics/op", at(SCALING, lock, 8)), bound);
    let misses = |above, below, bound| {
        let figure = |at| Figure::Extra("misses/op", at);
        check(Value::Ratio(figure(above), figure(below)), bound)
    };
    let fences = |lock, bound| of(Figure::Extra("fences/op", at(SCALING, lock, 8)), bound);
    let mut claims = reads(&atomics, &fences);
    claims.extend(mixes());
    claims.push(claim("mckenney-memory", "section 4.3, figure 9 (updates 0.2)")
        .says("Both algorithms are quite insensitive to memory constraints over a range of from one to three orders of \
         magnitude.")
        .number("insensitive")
        .checks([RCU_L, HPBR_NBS].iter().flat_map(|lock| {
            [("2", "16"), ("16", "128")].map(|(less, more)| {
                let budget = |size| with(MEMORY, lock, 8, &format!("budget={size}"));
                ratio(budget(less), budget(more), SIMILAR)
            })
        })));
    claims.push(claim("mckenney-hazard-misses", "section 4.5.3, table 7")
        .says("HPBR represents a substantial advance: the cache misses are due to hazard-pointer writes that are accessed \
         primarily by the hazard pointer's owner (here: no more misses than RCU).")
        .number("(y)")
        .checks([misses(at(SCALING, HPBR_NBS, 8), at(SCALING, RCU_L, 8), CLOSE)])
        .because("With hazard pointers fewer operations are done in the same time, so more of them meet a line that their CPU sees for the first time."));
    claims
}

/// What is said of a table that nobody changes.
fn reads(
    atomics: &dyn Fn(&'static str, Bound) -> Check,
    fences: &dyn Fn(&'static str, Bound) -> Check,
) -> Vec<Claim> {
    vec![
        claim("mckenney-globalrw", "section 3.3, figure 2")
            .says("globalrw scales negatively.")
            .number("negatively")
            .checks([2, 4, 8].map(|threads| {
                ratio(at(SCALING, GLOBALRW, threads), at(SCALING, GLOBALRW, 1), Bound::AtMost(1.0))
            }))
            .because("The readers wait for the lock's line. Table 2 has its transfer at little more than the atomic instruction, which one CPU pays too."),
        claim("mckenney-brlock", "section 3.3, figure 2")
            .says("Although brlock fares better, it still only achieves around a third of the ideal performance.")
            .number("1/3")
            .checks([
                ratio(at(SCALING, BRLOCK, 8), at(SCALING, GLOBALRW, 8), Bound::AtLeast(BETTER)),
                ratio(at(SCALING, BRLOCK, 8), at(SCALING, "ideal", 8), Bound::Within(0.2, 0.5)),
            ]),
        claim("mckenney-spinbkt", "section 3.3, figure 2")
            .says("A per-bucket spinlock fares slightly better than does brlock, due to the poorer spatial cache locality of \
             brlock.")
            .number("slightly better")
            .checks([not_slower(at(SCALING, SPINBKT, 8), at(SCALING, BRLOCK, 8))]),
        claim("mckenney-brlock-small", "section 3.3, footnote 7")
            .says("The performance of brlock increases sharply compared to that of per-bucket spinlock in cases where the \
             hash tables are sized to fit entirely in first-level cache.")
            .number("sharply")
            .checks([
                not_slower(small(BRLOCK), small(SPINBKT)),
                large_over_small(BRLOCK, SPINBKT, Bound::AtMost(1.0 / FAR_BETTER)),
            ])
            .because("brlock saves that a bucket's line comes from another CPU, which Table 2 has at little beside the atomic instruction, and it has one atomic instruction more."),
        claim("mckenney-pronounced", "section 3.3")
            .says("We obtained similar, although more pronounced, results with hash-tables sized to fit entirely within \
             first-level cache (here: a larger share of the ideal with the large table; but for brlock, see footnote 7).")
            .number("more pronounced")
            .checks([GLOBALRW, SPINBKT].map(|lock| large_over_small(lock, "ideal", Bound::AtLeast(1.0)))),
        claim("mckenney-deferred", "section 3.3, figure 2")
            .says("The strategies based on concurrent reading and deferred reclamation (RCU and HPBR) fare much better.")
            .number("much better")
            .checks(
                [RCU_L, HPBR_NBS]
                    .map(|lock| ratio(at(SCALING, lock, 8), at(SCALING, SPINBKT, 8), Bound::AtLeast(FAR_BETTER))),
            ),
        claim("mckenney-rcu-ideal", "section 3.3, figure 2")
            .says("... with RCU achieving close to the ideal performance.")
            .number("close")
            .checks([1, 2, 4, 8].map(|threads| ratio(at(SCALING, RCU_L, threads), at(SCALING, "ideal", threads), CLOSE))),
        claim("mckenney-small", "section 4.1, figure 4")
            .says("In the small-table case, RCU-L has the best performance, followed by HPBR-NBS, RCU-NBS, and HPBR-L, in \
             that order.")
            .number("order")
            .checks(order(&[RCU_L, HPBR_NBS, RCU_NBS, HPBR_L], small))
            .because("A lookup of HPBR-NBS does all that one of RCU-NBS does, and fences besides, so that no cost of the machine puts it ahead. The paper calls the differences \"small enough to be sensitive to minor variations in both the system hardware and the compiler\"."),
        claim("mckenney-large", "section 4.1, figure 5")
            .says("In the large-table case, RCU-L again has the best performance, followed by HPBR-NBS, with RCU-NBS and \
             HPBR-L having very nearly the same performance.")
            .number("order")
            .checks([
                not_slower(large(RCU_L), large(HPBR_NBS)),
                not_slower(large(HPBR_NBS), large(RCU_NBS)),
                ratio(large(RCU_NBS), large(HPBR_L), CLOSE),
            ])
            .because("HPBR-NBS does all that RCU-NBS does and more, so that no cost of the machine puts it ahead. The longer a miss takes, the more of a fence it covers."),
        claim("mckenney-muted", "section 4.1")
            .says("This increased cache-miss rate affects the ideal performance as well as that of each synchronization \
             mechanism, so that differences between these mechanisms are muted in the large-hash-table case (here: \
             less than half of the ideal with the small table, more than half with the large one).")
            .number("muted")
            .checks(
                [HPBR_L, HPBR_NBS].map(|lock| {
                    let lag = |place: fn(&'static str) -> At| (Figure::Rate(place(lock)), Figure::Rate(place("ideal")));
                    let ((large_one, large_ideal), (small_one, small_ideal)) = (lag(large), lag(small));
                    [
                        check(Value::Ratio(large_one, large_ideal), Bound::AtLeast(0.5)),
                        check(Value::Ratio(small_one, small_ideal), Bound::AtMost(0.5)),
                    ]
                })
                .concat(),
            )
            .input("processor.past_fence of power4: that a fence overlaps the miss after it is taken from this section"),
        claim("mckenney-size", "section 4.1")
            .says("The absolute ideal performance for searching a small hash table is a factor of 2.3 times better than that \
             for the large hash table.")
            .number("2.3")
            .checks([ratio(small("ideal"), large("ideal"), Bound::Within(1.65, 4.6))]),
        claim("mckenney-read-side", "section 4.5.3, table 7")
            .says("Memory barriers on the read side: locking yes, HPBR yes, RCU (non-preemptive) no; atomic instructions: \
             locking yes, RCU no. We term algorithms that incur no overhead from locks, communications cache misses, \
             atomic instructions, and memory barriers as streamlined. (The paper's HPBR has atomic instructions as \
             well, where a reader meets an element that is being removed: there is none without updates.)")
            .number("Y, Y, -")
            .checks([
                atomics(GLOBALRW, Bound::AtLeast(1.0)),
                atomics(BRLOCK, Bound::AtLeast(1.0)),
                atomics(SPINBKT, Bound::AtLeast(1.0)),
                atomics(RCU_L, Bound::AtMost(0.01)),
                fences(GLOBALRW, Bound::AtLeast(1.0)),
                fences(BRLOCK, Bound::AtLeast(1.0)),
                fences(SPINBKT, Bound::AtLeast(1.0)),
                fences(HPBR_NBS, Bound::AtLeast(1.0)),
                fences(RCU_L, Bound::AtMost(0.01)),
            ])
            .because("A chain that is empty has no element to protect."),
        claim("mckenney-hazard-fences", "section 4.1")
            .says("HPBR-L and HPBR-NBS are slowed by the memory barriers needed to manage read-side hazard-pointer \
             manipulations on this weak-memory-consistency machine (here: the same tables under RCU, whose readers \
             have none, against those that do).")
            .number("slowed")
            .checks([
                ratio(small(RCU_L), small(HPBR_L), Bound::AtLeast(BETTER)),
                ratio(small(RCU_NBS), small(HPBR_NBS), Bound::AtLeast(BETTER)),
            ]),
    ]
}

/// What is said of updates.
fn mixes() -> Vec<Claim> {
    let best = |lock, shares: &[&str], others: &[&'static str]| -> Vec<Check> {
        let one = |share: &&str| {
            let (share, others) = ((*share).to_owned(), others.to_vec());
            others
                .into_iter()
                .map(move |other| not_slower(updates(lock, 8, &share), updates(other, 8, &share)))
        };
        shares.iter().flat_map(one).collect()
    };
    vec![
        claim("mckenney-competitive", "section 3.3, figure 3 (8 CPUs, updates only)")
            .says("RCU and HPBR perform competitively with the others even when the workload is update-dominated.")
            .number("competitively")
            .checks([RCU_L, HPBR_NBS].iter().flat_map(|lock| {
                [SPINBKT, BRLOCK, GLOBALRW]
                    .map(|other| ratio(updates(lock, 8, "1"), updates(other, 8, "1"), Bound::AtLeast(0.8)))
            }))
            .because("RCU-L's locks do not lie with the buckets, out of the way of its readers, so that an update has a miss more."),
        claim("mckenney-nbs-updates", "section 4.2, figure 6")
            .says("HPBR-NBS performs better than the other strategies at all update fractions above 0.1.")
            .number("above 0.1")
            .checks(best(HPBR_NBS, &["0.5", "1"], &[RCU_L, RCU_NBS, HPBR_L]))
            .because("An update of HPBR-NBS fences for each element that it looks at; one of RCU-NBS does not. The paper's RCU lost more than that between 2 CPUs and 8; its reclamation is not described."),
        claim("mckenney-rcu-nbs-reads", "section 4.2, figures 6 and 8")
            .says("RCU-NBS is the best-performing strategy at all update fractions below this.")
            .number("below 0.1")
            .checks(best(RCU_NBS, &["0.005", "0.02"], &[RCU_L, HPBR_L, HPBR_NBS])),
        claim("mckenney-rcu-l-worst", "section 4.2, figure 8")
            .says("RCU-L has the worst performance at all update fractions above 0.001 ...")
            .number("above 0.001")
            .checks(["0.005", "0.02", "0.1", "0.5"].iter().flat_map(|share| {
                [RCU_NBS, HPBR_L, HPBR_NBS]
                    .map(|other| not_slower(updates(other, 8, share), updates(RCU_L, 8, share)))
            }))
            .because("The paper blames its \"simple memory-reclamation algorithm that was tuned on a two-CPU system\", which it does not describe."),
        claim("mckenney-rcu-l-best", "section 4.2, figure 8")
            .says("... it gains a significant advantage as the update fraction decreases to zero.")
            .number("best at 0")
            .checks(best(RCU_L, &["0"], &[RCU_NBS, HPBR_L, HPBR_NBS])),
        claim("mckenney-two-cpus", "section 4.2, figure 7 (updates only)")
            .says("The RCU techniques enjoy a 2%-to-13% advantage over the corresponding HPBR technique at two CPUs ...")
            .number("2% to 13%")
            .checks(
                [(RCU_L, HPBR_L), (RCU_NBS, HPBR_NBS)]
                    .map(|(rcu, hazard)| ratio(updates(rcu, 2, "1"), updates(hazard, 2, "1"), Bound::AtLeast(1.01))),
            )
            .because("Updaters that lock the bucket protect nothing under either, so that their updates differ in a mark (HPBR-L) and in grace periods (RCU-L)."),
        claim("mckenney-nbs", "section 4.5.1 (updates only)")
            .says("NBS performs up to 30% better than locking for update-intensive workloads.")
            .number("up to 30%")
            .checks(
                [(RCU_NBS, RCU_L), (HPBR_NBS, HPBR_L)]
                    .map(|(lock_free, locked)| not_slower(updates(lock_free, 8, "1"), updates(locked, 8, "1"))),
            ),
        claim("mckenney-eight-cpus", "section 4.2, figure 6 (updates only)")
            .says("... but the HPBR techniques enjoy a 25% advantage over the corresponding RCU technique at eight CPUs.")
            .number("25%")
            .checks(
                [(RCU_L, HPBR_L), (RCU_NBS, HPBR_NBS)]
                    .map(|(rcu, hazard)| ratio(updates(hazard, 8, "1"), updates(rcu, 8, "1"), Bound::AtLeast(1.125))),
            )
            .because("Nothing of RCU becomes more expensive with more CPUs: one grace period serves all that wait, as a scan of hazard pointers does."),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::results::Results;
    use crate::reproduce::experiment::{Effort, Ready};
    use crate::reproduce::runner;
    use crate::simulate::sweep;

    /// Without reclamation the claims about updates and memory would say nothing about it.
    #[test]
    fn removed_elements_are_reclaimed_within_the_run() {
        let effort = Effort { runs: 1, seconds: None, seed: 1 };
        let points =
            [(UPDATES, "updates=0.1"), (UPDATES, "updates=1"), (MEMORY, "budget=2"), (MEMORY, "budget=128")];
        for (id, set) in points {
            let experiment = experiments().into_iter().find(|experiment| experiment.id == id).unwrap();
            let ready = Ready::find(&experiment, &effort).unwrap();
            let results = Results::new(&ready.plan);
            for lock in [RCU_L, HPBR_NBS] {
                let index = runner::index(&ready.plan, &results, lock, 8, set).unwrap();
                let how = ready.how.as_ref().unwrap();
                let run = sweep::simulate(&ready.plan, how, results.points[index].place, 0).unwrap();
                let (_, share) = run.extra.iter().find(|(name, _)| *name == "reclaimed").unwrap();
                assert!(*share > 0.1, "{id}, {set}, {lock}: {share}");
            }
        }
    }
}

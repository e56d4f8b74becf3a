//! McKenney, Hart and Walpole on this machine: what two processors can show of it. The same sentences as in
//! [`mckenney`](super::mckenney), by the same rules, where the paper shows a curve over 1 to 8 CPUs or says two; and
//! this library's own RCU and hazard pointers beside the paper's.

use super::mckenney::{
    BRLOCK, BUDGET, GLOBALRW, HPBR_L, HPBR_NBS, LARGE, RCU_L, RCU_NBS, SPINBKT, WORKLOAD, not_slower, order,
};
use super::{Check, Claim, Experiment, On, Paper, at, check, experiment, ratio, with};
use crate::reproduce::rule::{At, BETTER, Bound, CLOSE, COMPETITIVE, FAR_BETTER, Figure, SIMILAR, Value};

/// General-purpose RCU.
const OWN_RCU: &str = "rcu-l";
/// Hazard pointers with asymmetric fences.
const OWN_HPBR: &str = "hpbr-nbs";
const IDEAL: &str = "ideal";
const LOCKS: [&str; 3] = [GLOBALRW, BRLOCK, SPINBKT];

const SMALL_TABLE: &str = "here-small";
const LARGE_TABLE: &str = "here-large";
const FEW_UPDATES: &str = "here-few-updates";
const ALL_UPDATES: &str = "here-updates-only";
const MEMORY: &str = "here-memory";

pub fn experiments() -> Vec<Experiment> {
    let all: &[&str] =
        &[IDEAL, GLOBALRW, BRLOCK, SPINBKT, RCU_L, RCU_NBS, HPBR_L, HPBR_NBS, OWN_RCU, OWN_HPBR];
    let here = |id, set, locks, threads| Experiment {
        on: On::Here,
        set,
        ..experiment(id, "", WORKLOAD, locks, threads)
    };
    vec![
        here(SMALL_TABLE, &["buckets=32", BUDGET], all, "1,2"),
        here(LARGE_TABLE, &[LARGE, BUDGET], all, "1,2"),
        here(FEW_UPDATES, &["updates=0.005,0.02", LARGE, BUDGET], &all[4..8], "2"),
        // Without the ideal, which has a table for each thread if they change it.
        here(ALL_UPDATES, &["updates=1", LARGE, BUDGET], &all[1..], "2"),
        here(
            MEMORY,
            &["budget=100,1000,10000", "updates=0.2", LARGE],
            &[RCU_L, HPBR_NBS, OWN_RCU, OWN_HPBR],
            "2",
        ),
    ]
}

fn claim(id: &'static str, place: &'static str) -> Claim {
    Claim::new(id, Paper::McKenneyHere, place)
}

fn small(lock: &'static str) -> At {
    at(SMALL_TABLE, lock, 2)
}

fn large(lock: &'static str) -> At {
    at(LARGE_TABLE, lock, 2)
}

fn changed(lock: &'static str) -> At {
    at(ALL_UPDATES, lock, 2)
}

/// How much of `other` a lock has in the large table, over how much it has in the small one.
fn large_over_small(lock: &'static str, other: &'static str, bound: Bound) -> Check {
    let pair = |place: fn(&'static str) -> At| (Figure::Rate(place(lock)), Figure::Rate(place(other)));
    check(Value::OfRatios(pair(large), pair(small)), bound)
}

pub fn claims() -> Vec<Claim> {
    [strategies(), deferred(), mixes()].concat()
}

/// Section 3.3, without updates.
fn strategies() -> Vec<Claim> {
    let far_ahead = |locks: [&'static str; 2], place: fn(&'static str) -> At| -> Vec<Check> {
        let over = |lock| {
            [SPINBKT, GLOBALRW].map(|other| ratio(place(lock), place(other), Bound::AtLeast(FAR_BETTER)))
        };
        locks.into_iter().flat_map(over).collect()
    };
    let near = |lock, experiment| {
        [1, 2].map(|count| ratio(at(experiment, lock, count), at(experiment, IDEAL, count), CLOSE)).to_vec()
    };
    let negatively = |table| vec![ratio(at(table, GLOBALRW, 2), at(table, GLOBALRW, 1), Bound::AtMost(1.0))];
    vec![
        claim("mckenney-here-globalrw", "section 3.3, figure 2")
            .says("globalrw scales negatively.")
            .number("negatively")
            .checks(negatively(LARGE_TABLE))
            .because("Misses of the lookup cover the lock's own instructions: mckenney-here-size has how much longer a lookup takes in the large table. On the paper's machine a lock that is at hand took 1,057 instructions (Table 2). With the small table it is negative: see mckenney-here-globalrw-small."),
        claim("mckenney-here-globalrw-small", "section 3.3")
            .says("globalrw scales negatively: similar, although more pronounced, with hash-tables sized to fit entirely \
             within first-level cache.")
            .number("negatively")
            .checks(negatively(SMALL_TABLE)),
        claim("mckenney-here-pronounced", "section 3.3")
            .says("We obtained similar, although more pronounced, results with hash-tables sized to fit entirely within \
             first-level cache (here: a larger share of the ideal with the large table; but for brlock, see footnote 7).")
            .number("more pronounced")
            .checks([GLOBALRW, SPINBKT].map(|lock| large_over_small(lock, IDEAL, Bound::AtLeast(1.0)))),
        claim("mckenney-here-brlock", "section 3.3, figure 2")
            .says("Although brlock fares better, it still only achieves around a third of the ideal performance.")
            .number("1/3")
            .checks([
                ratio(large(BRLOCK), large(GLOBALRW), Bound::AtLeast(BETTER)),
                ratio(large(BRLOCK), large(IDEAL), Bound::Within(0.2, 0.5)),
            ])
            .because("As mckenney-here-globalrw."),
        claim("mckenney-here-spinbkt", "section 3.3, figure 2")
            .says("A per-bucket spinlock fares slightly better than does brlock, due to the poorer spatial cache locality of \
             brlock.")
            .number("slightly better")
            .checks([not_slower(large(SPINBKT), large(BRLOCK))]),
        claim("mckenney-here-brlock-small", "section 3.3, footnote 7")
            .says("The performance of brlock increases sharply compared to that of per-bucket spinlock in cases where the \
             hash tables are sized to fit entirely in first-level cache.")
            .number("sharply")
            .checks([
                not_slower(small(BRLOCK), small(SPINBKT)),
                large_over_small(BRLOCK, SPINBKT, Bound::AtMost(1.0 / FAR_BETTER)),
            ])
            .because("What brlock gains in the small table is a lock's line that both CPUs write to, and that line's transfer time changes with the machine's placement of the two CPUs."),
        claim("mckenney-here-deferred", "section 3.3, figure 2")
            .says("The strategies based on concurrent reading and deferred reclamation (RCU and HPBR) fare much better \
             (here: than a lock in each bucket, and than one reader-writer lock).")
            .number("much better")
            .checks(far_ahead([RCU_L, HPBR_NBS], large))
            .because("As mckenney-here-globalrw; and see mckenney-here-deferred-small."),
        claim("mckenney-here-deferred-small", "section 3.3")
            .says("... fare much better: similar, although more pronounced, with hash-tables sized to fit entirely within \
             first-level cache.")
            .number("much better")
            .checks(far_ahead([RCU_L, HPBR_NBS], small)),
        claim("mckenney-here-own-deferred", "section 3.3")
            .says("The same of this library's general-purpose RCU (rcu-l) and of its hazard pointers with asymmetric fences \
             (hpbr-nbs), in the small table.")
            .number("much better")
            .checks(far_ahead([OWN_RCU, OWN_HPBR], small)),
        claim("mckenney-here-rcu-ideal", "section 3.3, figure 2")
            .says("... with RCU achieving close to the ideal performance.")
            .number("close")
            .checks(near(RCU_L, LARGE_TABLE))
            .because("Lookups are the same instructions in both. See mckenney-here-rcu-ideal-small."),
        claim("mckenney-here-rcu-ideal-small", "section 3.3")
            .says("RCU achieving close to the ideal performance: similar, with hash-tables sized to fit entirely within \
             first-level cache.")
            .number("close")
            .checks(near(RCU_L, SMALL_TABLE)),
        claim("mckenney-here-own-ideal", "section 3.3, figure 2")
            .says("RCU close to the ideal: the same of this library's general-purpose RCU, whose sections are not free.")
            .number("close")
            .checks(near(OWN_RCU, LARGE_TABLE)),
        claim("mckenney-here-own-ideal-small", "section 3.3")
            .says("RCU close to the ideal: the same of this library's general-purpose RCU, in the small table.")
            .number("close")
            .checks(near(OWN_RCU, SMALL_TABLE)),
    ]
}

/// Section 4.1, without updates.
fn deferred() -> Vec<Claim> {
    vec![
        claim("mckenney-here-small", "section 4.1, figure 4")
            .says("In the small-table case, RCU-L has the best performance, followed by HPBR-NBS, RCU-NBS, and HPBR-L, in \
             that order.")
            .number("order")
            .checks(order(&[RCU_L, HPBR_NBS, RCU_NBS, HPBR_L], small))
            .because("All four differ by about as much as two runs of one. The paper calls the differences \"small enough to be sensitive to minor variations in both the system hardware and the compiler\"."),
        claim("mckenney-here-large", "section 4.1, figure 5")
            .says("In the large-table case, RCU-L again has the best performance, followed by HPBR-NBS, with RCU-NBS and \
             HPBR-L having very nearly the same performance.")
            .number("order")
            .checks([
                not_slower(large(RCU_L), large(HPBR_NBS)),
                not_slower(large(HPBR_NBS), large(RCU_NBS)),
                ratio(large(RCU_NBS), large(HPBR_L), CLOSE),
            ]),
        claim("mckenney-here-muted", "section 4.1")
            .says("This increased cache-miss rate affects the ideal performance as well as that of each synchronization \
             mechanism, so that differences between these mechanisms are muted in the large-hash-table case (here: \
             those that are furthest from the ideal have a larger share of it there).")
            .number("muted")
            .checks([HPBR_L, HPBR_NBS].map(|lock| large_over_small(lock, IDEAL, Bound::AtLeast(1.0))))
            .because("There is nothing to be muted if the fences of hazard pointers are covered by other instructions of the lookup in the small table too."),
        claim("mckenney-here-size", "section 4.1")
            .says("The absolute ideal performance for searching a small hash table is a factor of 2.3 times better than that \
             for the large hash table.")
            .number("2.3")
            .checks([ratio(small(IDEAL), large(IDEAL), Bound::Within(1.65, 4.6))])
            .because("Memory is further away, counted in operations, than it was in 2005."),
        claim("mckenney-here-hazard-fences", "section 4.1")
            .says("HPBR-L and HPBR-NBS are slowed by the memory barriers needed to manage read-side hazard-pointer \
             manipulations (here: the same tables under RCU, whose readers have none, against those that do).")
            .number("slowed")
            .checks([
                ratio(small(RCU_L), small(HPBR_L), Bound::AtLeast(BETTER)),
                ratio(small(RCU_NBS), small(HPBR_NBS), Bound::AtLeast(BETTER)),
            ])
            .because("A full fence after a store lets later loads go on here; the paper's waited for the whole processor."),
    ]
}

/// What is said of updates.
fn mixes() -> Vec<Claim> {
    let competitive = |locks: [&'static str; 2]| -> Vec<Check> {
        let over = |lock| LOCKS.map(|other| ratio(changed(lock), changed(other), COMPETITIVE));
        locks.into_iter().flat_map(over).collect()
    };
    let insensitive = |locks: [&'static str; 2]| -> Vec<Check> {
        let budget = |lock, size: &str| with(MEMORY, lock, 2, &format!("budget={size}"));
        let steps = [("100", "1000"), ("1000", "10000")];
        let over = |lock| steps.map(|(less, more)| ratio(budget(lock, less), budget(lock, more), SIMILAR));
        locks.into_iter().flat_map(over).collect()
    };
    let best = |lock, shares: &[&'static str], others: &[&'static str]| -> Vec<Check> {
        let updates = |lock, share: &str| with(FEW_UPDATES, lock, 2, &format!("updates={share}"));
        let over =
            |share| others.iter().map(move |other| not_slower(updates(lock, share), updates(other, share)));
        shares.iter().copied().flat_map(over).collect()
    };
    vec![
        claim("mckenney-here-competitive", "section 3.3, figure 3 (updates only; 8 CPUs there, 2 here)")
            .says("RCU and HPBR perform competitively with the others even when the workload is update-dominated.")
            .number("competitively")
            .checks(competitive([RCU_L, HPBR_NBS])),
        claim("mckenney-here-own-competitive", "section 3.3, figure 3 (updates only; 8 CPUs there, 2 here)")
            .says("The same of this library's general-purpose RCU and hazard pointers with asymmetric fences.")
            .number("competitively")
            .checks(competitive([OWN_RCU, OWN_HPBR]))
            .because("Grace periods of the general-purpose RCU need a membarrier, and a small budget makes many of them."),
        claim("mckenney-here-rcu-nbs-reads", "section 4.2, figures 6 and 8 (8 CPUs there, 2 here)")
            .says("RCU-NBS is the best-performing strategy at all update fractions below this [0.1].")
            .number("below 0.1")
            .checks(best(RCU_NBS, &["0.005", "0.02"], &[RCU_L, HPBR_L, HPBR_NBS])),
        claim("mckenney-here-two-cpus", "section 4.2, figure 7 (updates only)")
            .says("The RCU techniques enjoy a 2%-to-13% advantage over the corresponding HPBR technique at two CPUs.")
            .number("2% to 13%")
            .checks(
                [(RCU_L, HPBR_L), (RCU_NBS, HPBR_NBS)]
                    .map(|(rcu, hazard)| ratio(changed(rcu), changed(hazard), Bound::AtLeast(1.01))),
            ),
        claim("mckenney-here-nbs", "section 4.5.1 (updates only)")
            .says("NBS performs up to 30% better than locking for update-intensive workloads.")
            .number("up to 30%")
            .checks(
                [(RCU_NBS, RCU_L), (HPBR_NBS, HPBR_L)]
                    .map(|(lock_free, locked)| not_slower(changed(lock_free), changed(locked))),
            )
            .because("One atomic instruction on a line that is at hand is little beside an update's misses."),
        claim("mckenney-here-memory", "section 4.3, figure 9 (updates 0.2)")
            .says("Both algorithms are quite insensitive to memory constraints over a range of from one to three orders of \
             magnitude.")
            .number("insensitive")
            .checks(insensitive([RCU_L, HPBR_NBS])),
        claim("mckenney-here-own-memory", "section 4.3, figure 9 (updates 0.2)")
            .says("The same of this library's general-purpose RCU and hazard pointers with asymmetric fences.")
            .number("insensitive")
            .checks(insensitive([OWN_RCU, OWN_HPBR]))
            .because("A small budget makes small batches, and each grace period of the general-purpose RCU needs a membarrier."),
    ]
}

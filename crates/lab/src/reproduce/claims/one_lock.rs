//! Which claims can hold in a world in which all locks are one lock.
//!
//! In such a world a figure depends on the point (workload, machine, parameters, threads), and not on the lock. A claim can hold
//! there if the figures can be chosen so that its rule is met. Then a run that meets the rule does not show that locks differ.

use super::super::experiment::Experiment;
use super::super::judge;
use super::super::probe::Probe;
use super::super::rule::{Bound, Check, Figure, Value};
use super::Claim;
use std::collections::HashMap;

/// What a rule demands: the logarithm of the first figure is at most that of the second plus the third.
type Demand = (usize, usize, f64);

/// The demands of a rule on the figures of the one lock.
struct World<'a> {
    experiments: &'a [Experiment],
    /// The figures of the one lock, by name. 0 is the number 1.
    keys: HashMap<String, usize>,
    demands: Vec<Demand>,
    /// A part that compares a figure with itself, and misses.
    impossible: bool,
}

/// What a claim is about that can hold where all locks are one lock.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Sense {
    /// Each of its locks alone: how a rate changes with threads or parameters, a size, a count, fairness.
    Alone,
    /// That locks are alike, or that one is not worse than another.
    Alike,
}

/// None if the claim cannot hold where all locks are one lock.
pub fn sense(claim: &Claim, experiments: &[Experiment]) -> Option<Sense> {
    let of_one = |check: &Check| {
        let locks: Vec<&str> = check.value.figures().iter().map(|figure| figure.lock()).collect();
        locks.iter().all(|lock| *lock == locks[0])
    };
    can_hold(&claim.checks, experiments).then(|| match claim.checks.iter().all(of_one) {
        true => Sense::Alone,
        false => Sense::Alike,
    })
}

/// Whether a run that meets the rule shows something only if its experiments tell locks apart.
pub fn needs_others(claim: &Claim, experiments: &[Experiment]) -> bool {
    match sense(claim, experiments) {
        Some(Sense::Alike) => true,
        Some(Sense::Alone) => judge::says_the_same(&claim.checks),
        None => false,
    }
}

/// Whether there is a world with one lock that meets all parts of a rule.
fn can_hold(checks: &[Check], experiments: &[Experiment]) -> bool {
    let mut world = World { experiments, keys: HashMap::new(), demands: Vec::new(), impossible: false };
    checks.iter().for_each(|check| world.demand(check));
    !world.impossible && world.exists()
}

impl World<'_> {
    /// The figure, without its lock: which one, and the factor to it. Two experiments that differ in their locks alone are one.
    fn key(&mut self, figure: &Figure) -> (usize, f64) {
        let threads = figure.at().map_or(1, |at| at.threads) as f64;
        let point = figure.at().map_or_else(String::new, |at| {
            let found = self.experiments.iter().find(|experiment| experiment.id == at.experiment);
            let found = found.expect("every rule finds its points");
            let name = |set: &str| set.split('=').next().unwrap_or_default().to_owned();
            let fixed = found.set.iter().filter(|set| at.set.is_empty() || name(set) != name(&at.set));
            let fixed: Vec<_> = fixed.collect();
            format!("{} {:?} {:?} {fixed:?} {} {threads}", found.workload, found.on, found.placement, at.set)
        });
        let (what, factor) = match figure {
            Figure::Rate(_) => ("rate".into(), 1.0),
            Figure::PerThread(_) => ("rate".into(), 1.0 / threads),
            Figure::Fairness(_) => ("fairness".into(), 1.0),
            Figure::Extra(name, _) => ((*name).into(), 1.0),
            Figure::LockBytes(_) => ("bytes".into(), 1.0),
            Figure::WaiterBytes(_) => ("bytes of a waiter".into(), 1.0),
            Figure::HolderBytes(_) => ("bytes of a holder".into(), 1.0),
            Figure::PthreadMutexBytes => ("bytes of glibc's".into(), 1.0),
            // Locks that differ in their `N` are different locks.
            Figure::Probe(Probe::Writes { readers, .. }) => (format!("writes, {readers} readers"), 1.0),
            Figure::Probe(Probe::Revoking { readers, .. }) => (format!("revoking, {readers} readers"), 1.0),
            Figure::Probe(probe) => (format!("{probe:?}"), 1.0),
            Figure::Agreement => ("agreement".into(), 1.0),
        };
        let next = self.keys.len() + 1;
        (*self.keys.entry(format!("{what} {point}")).or_insert(next), factor)
    }

    fn demand(&mut self, check: &Check) {
        match &check.value {
            Value::Of(figure) => {
                let (key, factor) = self.key(figure);
                self.within(key, 0, factor, check.bound);
            }
            Value::Ratio(above, below) => {
                let ((above, more), (below, less)) = (self.key(above), self.key(below));
                self.within(above, below, more / less, check.bound);
            }
            Value::Speedup(many, few) => {
                let threads = |figure: &Figure| figure.at().map_or(1.0, |at| at.threads as f64);
                let ideal = threads(few) / threads(many);
                let ((many, more), (few, less)) = (self.key(many), self.key(few));
                self.within(many, few, more / less * ideal, check.bound);
            }
            // Of different figures it can be anything.
            Value::Difference(more, less) => {
                self.impossible |= self.key(more).0 == self.key(less).0 && !check.bound.allows(0.0);
            }
            Value::OfRatios((a, b), (c, d)) => {
                let [a, b, c, d] = [a, b, c, d].map(|figure| self.key(figure).0);
                self.impossible |= ((a == b && c == d) || (a == c && b == d)) && !check.bound.allows(1.0);
            }
        }
    }

    /// The first figure over the second, times the factor, has to be within the bound.
    fn within(&mut self, above: usize, below: usize, factor: f64, bound: Bound) {
        let (least, most) = match bound {
            Bound::AtLeast(least) => (least, f64::INFINITY),
            Bound::AtMost(most) => (0.0, most),
            Bound::Within(least, most) => (least, most),
        };
        if above == below {
            self.impossible |= !bound.allows(factor);
        } else {
            /// In place of 0, which has no logarithm.
            const NOTHING: f64 = 1e-300;
            self.demands.push((above, below, (most.max(NOTHING) / factor).ln()));
            self.demands.push((below, above, -(least / factor).ln()));
        }
    }

    /// Whether logarithms meet all demands: if no circle of them demands that a number is less than itself (Bellman and Ford).
    fn exists(&self) -> bool {
        let mut most = vec![0.0; self.keys.len() + 1];
        for _ in 0..=self.keys.len() + 1 {
            let mut changed = false;
            for (above, below, over) in self.demands.iter().filter(|demand| demand.2.is_finite()) {
                if most[*above] > most[*below] + over + 1e-9 {
                    most[*above] = most[*below] + over;
                    changed = true;
                }
            }
            if !changed {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::{all, experiments};
    use super::*;
    use std::collections::HashSet;

    /// The claims that can hold in a world with one lock, and what they show all the same.
    const NAMED: &[(Sense, &str, &[&str])] = &[
        (
            Sense::Alone,
            "how the rate of a lock changes with threads, placement, parameters or the seconds of a hold",
            &[
                "bravo-alternator-drop",
                "bravo-alternator-ba-degrades",
                "bravo-alternator-stable",
                "bravo-rwbench-a-poor",
                "bravo-rwbench-similar",
                "bravo-rwbench-flat",
                "bravo-rwbench-scales",
                "bravo-pthread-alternator-stable",
                "bravo-pthread-rwbench-flat",
                "bravo-locktorture-linear",
                "bravo-locktorture-scales",
                "bravo-locktorture-linear-later",
                "bravo-locktorture-scales-later",
                "shfl-stock-mutex-oversubscribed",
                "shfl-non-blocking-oversubscribed",
                "shfl-mcs-plateau",
                "shfl-rw-consistent",
                "shfl-rw-oversubscribed",
                "shfl-leveldb-blocking",
                "shfl-leveldb-pthread",
                "bueso-one-socket",
                "bueso-smoothly",
                "bueso-two-sockets",
                "bueso-remote-memory",
                "bueso-remote-memory-90",
                "bueso-first-fill",
                "bueso-scalable-lock",
                "mckenney-globalrw",
                "mckenney-memory",
                "mckenney-here-globalrw",
                "mckenney-here-globalrw-small",
                "mckenney-here-memory",
                "mckenney-here-own-memory",
            ],
        ),
        (
            Sense::Alone,
            "a number of each lock by itself: bytes, atomic instructions, misses, wakeups, handovers, fairness",
            &[
                "bravo-bytes-ba",
                "shfl-table1-bytes-tas",
                "shfl-table1-bytes-mcs",
                "shfl-table1-bytes",
                "shfl-table1-bytes-waiter",
                "shfl-table1-bytes-others",
                "shfl-fairness",
                "shfl-fairness-others",
                "shfl-blocking-fairness",
                "shfl-blocking-fairness-oversubscribed",
                "shfl-blocking-fairness-malthusian",
                "shfl-wakeups",
                "shfl-wakeups-paper",
                "bueso-probability",
                "bueso-unfair",
            ],
        ),
        (
            Sense::Alone,
            "BRAVO's table: the time of a scan, and collisions",
            &["bravo-scan", "bravo-collisions", "bravo-collisions-locks"],
        ),
        (
            Sense::Alone,
            "the machine: the ideal table, and the simulator",
            &["mckenney-size", "mckenney-here-size", "simulator"],
        ),
        (
            Sense::Alike,
            "that locks are alike: the paper finds no difference, or no harm",
            &[
                "bravo-no-harm",
                "bravo-no-harm-default",
                "bravo-pf-t-similar",
                "bravo-interference",
                "bravo-2d-interference",
                "bravo-readwhilewriting-per-cpu",
                "bravo-rwbench-a",
                "bravo-rwbench-b",
                "bravo-rwbench-c",
                "bravo-rwbench-per-cpu",
                "bravo-pthread-test-rwlock-per-cpu",
                "bravo-pthread-rwbench-abc",
                "bravo-pthread-rwbench-ef",
                "bravo-pthread-readwhilewriting-per-cpu",
                "bravo-page-fault-few",
                "bravo-mmap",
                "bravo-page-fault-few-later",
                "bravo-mmap-later",
                "shfl-mwrl-one-socket-cna",
                "shfl-one-socket",
                "shfl-blocking-local",
                "shfl-streamcluster-hmcs",
                "shfl-streamcluster-cna",
                "mckenney-rcu-ideal",
                "mckenney-hazard-misses",
                "mckenney-here-rcu-ideal",
                "mckenney-here-rcu-ideal-small",
                "mckenney-here-own-ideal",
                "mckenney-here-own-ideal-small",
            ],
        ),
        (
            Sense::Alike,
            "that a lock is competitive with another, the best, or in an order: a tie meets its rule",
            &[
                "bravo-numa-sectors",
                "bravo-alternator-per-cpu",
                "bravo-test-rwlock-per-cpu",
                "bravo-readwhilewriting",
                "bravo-readwhilewriting-steady",
                "bravo-rwbench-cohort-writes",
                "bravo-rwbench-cohort",
                "bravo-pthread-alternator-per-cpu",
                "bravo-pthread-readwhilewriting",
                "shfl-oversubscribed",
                "shfl-oversubscribed-paper",
                "shfl-writers",
                "shfl-writers-oversubscribed",
                "shfl-best-everywhere",
                "shfl-best-everywhere-others",
                "shfl-leveldb-numa",
                "mckenney-spinbkt",
                "mckenney-pronounced",
                "mckenney-small",
                "mckenney-large",
                "mckenney-competitive",
                "mckenney-nbs-updates",
                "mckenney-rcu-nbs-reads",
                "mckenney-rcu-l-worst",
                "mckenney-rcu-l-best",
                "mckenney-nbs",
                "mckenney-here-pronounced",
                "mckenney-here-spinbkt",
                "mckenney-here-small",
                "mckenney-here-large",
                "mckenney-here-muted",
                "mckenney-here-competitive",
                "mckenney-here-own-competitive",
                "mckenney-here-rcu-nbs-reads",
                "mckenney-here-nbs",
            ],
        ),
        (
            Sense::Alike,
            "that a lock is no larger than glibc's: sizes, which no run has to tell apart",
            &["shfl-dedup-memory"],
        ),
    ];

    #[test]
    fn a_claim_that_can_hold_where_all_locks_are_one_lock_is_named() {
        let experiments = experiments();
        let mut wrong = Vec::new();
        for claim in all() {
            let named: Vec<Sense> =
                NAMED.iter().filter(|(.., ids)| ids.contains(&claim.id)).map(|(sense, ..)| *sense).collect();
            let sense: Vec<Sense> = sense(&claim, &experiments).into_iter().collect();
            if named != sense {
                wrong.push(format!("{}: named as {named:?}, and it is {sense:?}", claim.id));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let known: HashSet<&str> = all().iter().map(|claim| claim.id).collect();
        let gone = NAMED.iter().flat_map(|(.., ids)| *ids).find(|id| !known.contains(*id));
        assert_eq!(gone, None, "there is no such claim");
    }

    /// Where all locks are alike at all points, no claim that compares locks holds.
    #[test]
    fn a_claim_that_compares_locks_does_not_hold_where_they_are_alike() {
        let experiments = experiments();
        for claim in all().iter().filter(|claim| !claim.experiments().is_empty()) {
            if sense(claim, &experiments) == Some(Sense::Alone) {
                continue;
            }
            // Of a lock that scales, and of one that does not.
            for power in [0.0, 1.0] {
                let alike = |figure: &Figure, _: usize| {
                    let threads = figure.at().map_or(1.0, |at| at.threads as f64);
                    Ok(threads.powf(if matches!(figure, Figure::PerThread(_)) { power - 1.0 } else { power }))
                };
                let mut judged = judge::judge(&claim.checks, 1, &alike);
                judged.same = needs_others(claim, &experiments);
                let verdict = judge::verdict(&judged, claim.ground, None, Some(1.0));
                assert_ne!(verdict, judge::Verdict::Holds, "{}", claim.id);
            }
        }
    }

    #[test]
    fn one_lock_can_be_any_lock_but_not_two() {
        let experiments = experiments();
        let find = |id: &str| all().into_iter().find(|claim| claim.id == id).unwrap();
        for (id, expected) in [
            // Better than MCS alone, worse with all: two locks.
            ("shfl-tas-collapses", None),
            ("shfl-table1-atomics", None),
            // A lock that scales is like itself, whatever it is.
            ("bravo-rwbench-cohort", Some(Sense::Alike)),
            ("bravo-locktorture-linear", Some(Sense::Alone)),
        ] {
            assert_eq!(sense(&find(id), &experiments), expected, "{id}");
        }
    }
}

//! The claims: one entry each, with the rule by which it is judged.

mod bravo;
mod bueso;
mod mckenney;
mod mckenney_here;
pub mod one_lock;
mod shfllock;
mod simulator;

use super::experiment::{Experiment, On};
use super::judge::Ground;
use super::native;
use super::probe::{self, Probe};
use super::rule::{At, Bound, Check, Figure, Value};
use latchwork_sim::Placement;
use serde::Serialize;

pub use simulator::SIMULATOR;

/// Where a claim is made.
#[derive(Copy, Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Paper {
    /// Dice and Kogan.
    Bravo,
    /// Kashyap and others.
    ShflLock,
    /// Bueso.
    Bueso,
    /// McKenney, on a simulated machine.
    McKenney,
    /// McKenney, on this machine.
    McKenneyHere,
    /// Not a paper: what the others stand on.
    Simulator,
}

impl Paper {
    /// All of them, in the order of the report.
    pub const ALL: [Paper; 6] =
        [Paper::Bravo, Paper::ShflLock, Paper::Bueso, Paper::McKenney, Paper::McKenneyHere, Paper::Simulator];

    /// What `--only` calls all its claims.
    pub fn id(self) -> &'static str {
        match self {
            Paper::Bravo => "bravo",
            Paper::ShflLock => "shfllock",
            Paper::Bueso => "bueso",
            Paper::McKenney => "mckenney",
            Paper::McKenneyHere => "mckenney-here",
            Paper::Simulator => SIMULATOR,
        }
    }

    /// Whether `--only` takes its claims for this: `mckenney` covers `mckenney-here`.
    pub fn is_of(self, id: &str) -> bool {
        let rest = self.id().strip_prefix(id);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    }

    /// In a citation.
    pub fn name(self) -> &'static str {
        match self {
            Paper::Bravo => "BRAVO",
            Paper::ShflLock => "ShflLock",
            Paper::Bueso => "Bueso",
            Paper::McKenney | Paper::McKenneyHere => "McKenney",
            Paper::Simulator => "this project",
        }
    }

    /// As a heading.
    pub fn title(self) -> &'static str {
        match self {
            Paper::Bravo => "Dice and Kogan: BRAVO, Biased Locking for Reader-Writer Locks (USENIX ATC 2019)",
            Paper::ShflLock => {
                "Kashyap, Calciu, Cheng, Min and Kim: Scalable and Practical Locking with Shuffling (SOSP 2019)"
            }
            Paper::Bueso => {
                "Bueso: Scalability Techniques for Practical Synchronization Primitives (ACM Queue 2014)"
            }
            Paper::McKenney => "McKenney: Practical Concerns for Scalable Synchronization (2005)",
            Paper::McKenneyHere => {
                "McKenney: Practical Concerns for Scalable Synchronization (2005), on this machine"
            }
            Paper::Simulator => "The simulator against this machine",
        }
    }

    /// What the claims of this paper are run with, in place of what the paper had.
    pub fn setting(self) -> &'static str {
        match self {
            Paper::Bravo => {
                "The paper's machines are simulated: X5-2 for section 5, X5-4 for section 6. Its threads are not \
                 bound, so they are spread over the sockets here, as Linux does it (placement round-robin). The \
                 paper's BA is pf-q, Cohort-RW cohort-rw, Per-CPU percpu with a lock for each CPU. Stock is rwsem-4.20, \
                 written after the source of that kernel, and BRAVO in section 6 is BRAVO over that. The rows whose name \
                 ends in -later have a later kernel's rwsem."
            }
            Paper::ShflLock => {
                "The paper's machine is simulated: 8 sockets of 24 cores, threads pinned to one socket after the \
                 other. ShflLock-NB is shfl-spin, ShflLock-B is shfl, ShflLock-RW is shfl-rw. Of the kernel's \
                 locks (Stock), qspinlock is written after its source, hybrid after the mutex and rwsem-4.19 after \
                 the rwsem of Linux 4.19 (in the rows that end in -later, a later kernel's); in those that end in -paper, \
                 ShflLock-B is the lock of the paper's figures; Pthread is glibc's mutex, written after its source too; Cohort is c-bo-mcs and cohort-rw. \
                 Micro-benchmarks of the kernel are replaced by a lock with the same pattern, as said."
            }
            Paper::Bueso => {
                "The paper's machines had 15 cores per socket: 8x15 is simulated, with the costs that shorthands \
                 have. The spin lock of Linux 3.0 was a ticket lock. Rates are per CPU, as in the paper."
            }
            Paper::McKenney => {
                "The paper's machine is simulated: 8 CPUs, 1.45 GHz POWER4, with the costs of its Table 2, whose instruction is 0.24 ns. RCU-L and \
                 RCU-NBS are qsbr-l and qsbr-nbs; HPBR-L and HPBR-NBS are hpbr-l-fence and hpbr-nbs-fence, whose \
                 readers issue a full fence for each element and have slots of their own, as the paper's did. globalrw is pf-q, brlock percpu, \
                 spinbkt ttas. What an operation computes beside the table is not told; here nothing, and some values of it are tried. A large table is one that no CPU has seen much of: simulated caches have no bound."
            }
            Paper::McKenneyHere => {
                "Nothing is simulated: the same tables, measured with 1 and 2 threads. Each round has three turns. In a \
                 turn each lock at each point makes its table anew and uses it for 50 ms. A rule's value is computed in each turn, \
                 from figures of that turn alone, and the median of the three counts. The large table has 262144 chains, 18 MiB of heads and elements; the small one, \
                 of 32, fits the first-level cache. Operations compute nothing beside the table. What the paper says of 8 CPUs \
                 is not asked here; what it shows as a curve is asked at 2."
            }
            Paper::Simulator => {
                "What the claims above are worth depends on whether the simulator orders locks as a machine does. \
                 This machine's own costs are measured (as `latchwork-lab calibrate` does), then every lock is both \
                 measured and simulated."
            }
        }
    }
}

/// A claim of a paper.
#[derive(Clone, Debug)]
pub struct Claim {
    /// For `--only`.
    pub id: &'static str,
    /// Where it is made.
    pub paper: Paper,
    /// Section and figure.
    pub place: &'static str,
    /// The sentence or number.
    pub says: &'static str,
    /// The paper's number, or the word that stands for one.
    pub number: &'static str,
    /// What has to come out, all of it.
    pub checks: Vec<Check>,
    /// What it is tested with in place of what the paper had, if that is not the paper's own.
    pub note: &'static str,
    /// What a missed rule means.
    pub ground: Ground,
    /// What is computed from the run and printed beside a verdict, because it shows the cause.
    pub seen: Vec<Value>,
    /// Where known, the mechanism behind what comes out, without figures: those are computed from the run.
    pub explanation: &'static str,
    /// What a user of the lock should conclude, where a headline does not hold in half of its space.
    pub conclusion: &'static str,
}

impl Claim {
    fn new(id: &'static str, paper: Paper, place: &'static str) -> Self {
        Claim {
            id,
            paper,
            place,
            says: "",
            number: "",
            note: "",
            checks: Vec::new(),
            ground: Ground::Covered,
            seen: Vec::new(),
            explanation: "",
            conclusion: "",
        }
    }

    fn says(mut self, says: &'static str) -> Self {
        self.says = says;
        self
    }

    fn number(mut self, number: &'static str) -> Self {
        self.number = number;
        self
    }

    fn checks(mut self, checks: impl IntoIterator<Item = Check>) -> Self {
        self.checks.extend(checks);
        self
    }

    /// What the paper says, and with what it is tested here if that is not the paper's own.
    pub fn sentence(&self) -> String {
        if self.note.is_empty() {
            self.says.to_owned()
        } else {
            format!("{} (here: {})", self.says, self.note)
        }
    }

    /// The mechanism.
    fn because(mut self, explanation: &'static str) -> Self {
        self.explanation = explanation;
        self
    }

    /// What a user should conclude.
    fn so(mut self, conclusion: &'static str) -> Self {
        self.conclusion = conclusion;
        self
    }

    /// What shows the cause.
    fn beside(mut self, seen: impl IntoIterator<Item = Value>) -> Self {
        self.seen.extend(seen);
        self
    }

    /// What decides the claim is not in the model, or not on this machine.
    fn outside(mut self, what: &'static str) -> Self {
        self.ground = Ground::Outside(what);
        self
    }

    /// This parameter was fitted to the claim.
    fn input(mut self, what: &'static str) -> Self {
        self.ground = Ground::Input(what);
        self
    }

    /// A lock of ours differs on purpose.
    fn by_design(mut self, how: &'static str) -> Self {
        self.ground = Ground::Design(how);
        self
    }

    /// The same claim under another id, of other locks.
    fn of_others(&self, id: &'static str, note: &'static str, others: &[(&str, &'static str)]) -> Self {
        let mut claim = self.clone();
        (claim.id, claim.note) = (id, note);
        let values = claim.checks.iter_mut().map(|check| &mut check.value).chain(&mut claim.seen);
        for figure in values.flat_map(Value::figures_mut) {
            if let Some(at) = figure.at_mut()
                && let Some((_, other)) = others.iter().find(|(lock, _)| *lock == at.lock)
            {
                at.lock = other;
            }
        }
        claim
    }

    /// What it is tested on: the names of simulated machines, and `here`.
    pub fn on(&self) -> Vec<&'static str> {
        let (used, mut names) = (self.experiments(), Vec::new());
        if self.paper == Paper::Simulator {
            names.push(On::Here.name());
        }
        if !self.probes().is_empty() {
            names.push(probe::MACHINE);
        }
        for experiment in experiments().iter().filter(|experiment| used.contains(&experiment.id)) {
            if !names.contains(&experiment.on.name()) {
                names.push(experiment.on.name());
            }
        }
        names
    }

    /// What its rule and the numbers beside it are computed from.
    pub fn values(&self) -> impl Iterator<Item = &Value> {
        self.checks.iter().map(|check| &check.value).chain(&self.seen)
    }

    /// The experiments that have to be run for it.
    pub fn runs(&self) -> Vec<&'static str> {
        let places = self.values().flat_map(Value::figures).filter_map(Figure::at);
        places.map(|at| at.experiment).collect()
    }

    /// What it asks the simulator beside the workloads.
    pub fn probes(&self) -> Vec<Probe> {
        let figures = self.values().flat_map(Value::figures);
        let probe = |figure: &Figure| if let Figure::Probe(probe) = figure { Some(*probe) } else { None };
        figures.filter_map(probe).collect()
    }

    /// Whether nothing is simulated or measured for it at a point of a workload, as where sizes are compared: it is the same in
    /// every run.
    pub fn is_fixed(&self) -> bool {
        self.experiments().is_empty() && self.probes().is_empty()
    }

    /// In how many turns each of its runs is measured. What is simulated has one.
    pub fn turns(&self) -> usize {
        if self.paper == Paper::McKenneyHere { native::TURNS as usize } else { 1 }
    }

    /// The experiments that it looks at.
    pub fn experiments(&self) -> Vec<&'static str> {
        let mut ids: Vec<&'static str> = Vec::new();
        for figure in self.checks.iter().flat_map(|check| check.value.figures()) {
            if let Some(at) = figure.at()
                && !ids.contains(&at.experiment)
            {
                ids.push(at.experiment);
            }
        }
        ids
    }
}

/// All claims, in the order of the papers.
pub fn all() -> Vec<Claim> {
    [
        bravo::claims(),
        shfllock::claims(),
        bueso::claims(),
        mckenney::claims(),
        mckenney_here::claims(),
        simulator::claims(),
    ]
    .concat()
}

/// All experiments.
pub fn experiments() -> Vec<Experiment> {
    [
        bravo::experiments(),
        shfllock::experiments(),
        bueso::experiments(),
        mckenney::experiments(),
        mckenney_here::experiments(),
    ]
    .concat()
}

// What the tables are written in.

fn experiment(
    id: &'static str,
    machine: &'static str,
    workload: &'static str,
    locks: &'static [&'static str],
    threads: &'static str,
) -> Experiment {
    Experiment {
        id,
        workload,
        on: On::Simulated(machine),
        locks,
        threads,
        set: &[],
        placement: Placement::FirstFill,
        micros: None,
        unknown: &[],
    }
}

fn at(experiment: &'static str, lock: &'static str, threads: usize) -> At {
    At { experiment, lock, threads, set: String::new() }
}

fn with(experiment: &'static str, lock: &'static str, threads: usize, set: &str) -> At {
    At { experiment, lock, threads, set: set.into() }
}

fn check(value: Value, bound: Bound) -> Check {
    Check { value, bound }
}

fn ratio(above: At, below: At, bound: Bound) -> Check {
    check(Value::Ratio(Figure::Rate(above), Figure::Rate(below)), bound)
}

fn of(figure: Figure, bound: Bound) -> Check {
    check(Value::Of(figure), bound)
}

#[cfg(test)]
mod tests {
    use super::super::experiment::{Effort, Ready};
    use super::super::runner;
    use super::*;
    use crate::measure::results::Results;
    use std::collections::HashSet;

    #[test]
    fn every_claim_has_an_id_a_citation_and_a_sentence() {
        let mut seen = HashSet::new();
        for claim in all() {
            assert!(seen.insert(claim.id), "{} twice", claim.id);
            assert!(Paper::ALL.iter().all(|paper| paper.id() != claim.id || claim.paper == Paper::Simulator));
            assert!(!claim.place.is_empty() && !claim.says.is_empty(), "{}", claim.id);
            assert!(!claim.checks.is_empty(), "{} has no rule", claim.id);
        }
    }

    /// Looks every figure up in results that are made up, so that a rule which names a lock, a thread
    /// count or a parameter that its experiment does not have is found without running anything.
    #[test]
    fn every_rule_finds_its_points() {
        let effort = Effort { runs: 1, seconds: None, seed: 1 };
        let ready: Vec<Ready> =
            experiments().iter().map(|experiment| Ready::find(experiment, &effort).unwrap()).collect();
        let results: Vec<Results> = ready.iter().map(|ready| Results::new(&ready.plan)).collect();
        let known = runner::Known { agreement: Some(1.0), ..Default::default() };
        for claim in all() {
            let seen = claim.seen.iter().flat_map(Value::figures);
            for figure in claim.checks.iter().flat_map(|check| check.value.figures()).chain(seen) {
                match runner::figure(&ready, &results, &known, figure, 0) {
                    Ok(_) => assert!(figure.at().is_none(), "{}: {figure:?}", claim.id),
                    // The points are there, and have no runs.
                    Err(why) => {
                        let here = why.contains("it needs") && claim.on() == [On::Here.name()];
                        assert!(here || why.contains("interrupted"), "{}: {why}", claim.id);
                    }
                }
            }
        }
    }

    /// An excuse names where a reader can look it up, and is for nothing that was measured on a real machine. What differs by
    /// design is a size or a count, and no rate.
    #[test]
    fn every_way_out_can_be_checked() {
        for claim in all() {
            match claim.ground {
                Ground::Outside(what) => {
                    let named =
                        ["section ", "docs/", "figure ", "table "].iter().any(|place| what.contains(place));
                    assert!(named, "{}: where does a reader find that? {what}", claim.id);
                    assert!(!claim.on().contains(&On::Here.name()), "{}: it was measured", claim.id);
                }
                Ground::Design(_) => {
                    let rate = |figure: &&Figure| matches!(figure, Figure::Rate(_) | Figure::PerThread(_));
                    assert!(
                        !claim.checks.iter().any(|check| check.value.figures().iter().any(rate)),
                        "{}",
                        claim.id
                    );
                }
                Ground::Covered | Ground::Input(_) => {}
            }
        }
    }

    #[test]
    fn every_experiment_is_used() {
        let used: HashSet<_> = all().iter().flat_map(Claim::runs).collect();
        for experiment in experiments() {
            assert!(used.contains(experiment.id), "{}", experiment.id);
        }
    }

    /// The bounds that are neither a word's of the glossary nor follow from a number that the claim quotes.
    const OWN_BOUNDS: &[(&str, &str)] = &[
        ("bravo-bytes-ba", "a lock with a bias has a word more than none: 8 bytes at least"),
        ("bravo-bytes-pf-t", "4 integers of 4 bytes"),
        ("bravo-guard", "1 - 1/(N + 1), and a twentieth less for chance"),
        (
            "bravo-guard-share",
            "with no inhibition revocations take a fifth of the time: else the rule would ask for nothing",
        ),
        ("bravo-2d-interference", "as bravo-interference, which quotes the 6%"),
        ("shfl-table1-atomics-contended", "\"without limit\": ten times what the other locks have"),
        ("shfl-table1-atomics-others", "\"about 6\": a sixth more or less"),
        ("shfl-fairness", "\"close to 0.5\": a fifth above it at most"),
        ("shfl-fairness-others", "as shfl-fairness"),
        (
            "shfl-blocking-fairness",
            "\"up to 0.6\", and a twentieth more, as the runs are shorter than the paper's",
        ),
        ("shfl-wakeups", "\"completely removes\": one in a hundred is left at most"),
        ("shfl-wakeups-paper", "as shfl-wakeups"),
        ("bueso-probability", "the paper's share, and a twentieth more or less"),
        ("mckenney-brlock", "\"around a third\": a fifth to a half"),
        ("mckenney-here-brlock", "as mckenney-brlock"),
        ("mckenney-muted", "half of the ideal; an input, counted nowhere"),
        ("mckenney-read-side", "\"no\": one in a hundred operations at most"),
    ];

    /// A bound that was chosen after a run would be one of these. Each is a word's of the glossary, or the claim's own number (as it
    /// is, half or twice of it, half of the gain, twice of what remains), or is named.
    #[test]
    fn every_bound_is_a_word_or_a_number_of_the_paper_or_is_named() {
        const WORDS: [f64; 10] = [1.2, 1.5, 0.8, 1.25, 1.0, 0.9, 1.1, 0.67, 1.0 / 1.5, 0.0];
        let mut wrong = Vec::new();
        for claim in all() {
            let text = format!("{} {} {}", claim.number, claim.says, claim.note);
            let split = text.split(|c: char| !c.is_ascii_digit() && c != '.' && c != ',');
            let numbers =
                split.filter_map(|number| number.trim_matches(['.', ',']).replace(',', "").parse().ok());
            let follow = |n: f64| {
                let percent = n / 100.0;
                let of_number =
                    [n, n / 2.0, 2.0 * n, 0.75 * n, 1.25 * n, 0.67 * n, 1.5 * n, n - 0.01, n + 0.01];
                let of_factor = [f64::midpoint(1.0, n), 1.0 / (n + 1.0)];
                let of_percent = [percent, 1.0 - percent, 2.0 * (1.0 - percent), 1.0 + percent / 2.0];
                [&of_number[..], &of_factor[..], &of_percent[..]].concat()
            };
            let known: Vec<f64> = numbers.flat_map(follow).chain(WORDS).collect();
            let is_own =
                |bound: &f64| !known.iter().any(|known| (bound - known).abs() < 0.004 * bound.max(1.0));
            let bounds = claim.checks.iter().flat_map(|check| match check.bound {
                Bound::AtLeast(bound) | Bound::AtMost(bound) => vec![bound],
                Bound::Within(least, most) => vec![least, most],
            });
            let own: Vec<f64> = bounds.filter(is_own).collect();
            let is_named = OWN_BOUNDS.iter().any(|(id, _)| *id == claim.id);
            if own.is_empty() == is_named {
                wrong.push(format!("{}: {own:?}, named: {is_named}", claim.id));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

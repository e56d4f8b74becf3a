//! How much of the space of uncertain costs and unknown parameters a claim holds in, and what decides.
//!
//! Each claim that is simulated runs as it is, in the joint runs, and with each value of the workload's unknowns. These points
//! are the space. Where a joint run has another verdict than the claim as it is, a search finds a cost that decides: the costs
//! take their values of the joint run one after the other, and a bisection finds at which one the verdict turns. Then that cost
//! is changed by itself. All these runs have one seed, and a quarter of the time. If the claim as it is has another verdict in a quarter of
//! the time than in all of it, its space is run for all of it: what happens at the beginning would decide otherwise.

use super::claims::Claim;
use super::experiment::{Effort, Experiment, On, Ready};
use super::judge;
use super::runner::{self, Shard};
use super::space::{self, Variant};
use super::store::Store;
use crate::measure::results::{Place, Results};
use indicatif::ProgressBar;
use latchwork_console::failure::Result;
use latchwork_console::signals::Signals;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, HashSet};

/// A claim in one point of the space.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    /// Which.
    pub variant: String,
    /// Whether all parts of the rule are met.
    pub holds: bool,
    /// The value of the part that is tightest in the runs of the claim itself.
    pub value: Option<f64>,
    /// The value of each part.
    pub values: Vec<Option<f64>>,
    /// Which parts are met.
    pub met: Vec<bool>,
    /// The parameter of the workload that differs, if one does.
    #[serde(skip)]
    parameter: Option<String>,
}

#[cfg(test)]
impl Point {
    /// In which these parts of the rule are met.
    pub fn made_up(met: &[bool]) -> Self {
        Point {
            variant: String::new(),
            holds: met.iter().all(|met| *met),
            value: None,
            values: Vec::new(),
            met: met.to_vec(),
            parameter: None,
        }
    }
}

/// A cost that decides between the claim as it is and a joint run with the other verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decisive {
    /// The cost.
    pub cost: String,
    /// Whether it is doubled; otherwise it is halved.
    pub doubled: bool,
    /// Whether this alone turns the verdict. Otherwise other costs have to change as well.
    pub alone: bool,
}

impl Decisive {
    /// How it is changed.
    pub fn factor(&self) -> &'static str {
        if self.doubled { "x2" } else { "/2" }
    }

    fn text(&self) -> String {
        let with = if self.alone { "alone" } else { "with other costs" };
        format!("{} {} {with}", self.cost, self.factor())
    }
}

/// A claim in all points of its space.
#[derive(Clone, Debug, Serialize)]
pub struct Sensitivity {
    /// The points, as it is first.
    pub points: Vec<Point>,
    /// The cost that decides, if a joint run has another verdict than the claim as it is.
    pub decisive: Option<Decisive>,
}

impl Sensitivity {
    /// In how many of the points it holds.
    pub fn holds(&self) -> usize {
        self.points.iter().filter(|point| point.holds).count()
    }

    /// The share of the points in which it holds.
    pub fn share(&self) -> f64 {
        self.holds() as f64 / self.points.len().max(1) as f64
    }

    /// The smallest and the largest value of the tightest part.
    pub fn band(&self) -> Option<(f64, f64)> {
        band(self.points.iter().filter_map(|point| point.value))
    }

    /// The same of any part of the rule.
    pub fn band_of(&self, part: usize) -> Option<(f64, f64)> {
        band(self.points.iter().filter_map(|point| *point.values.get(part)?))
    }

    /// In how many of the points one part of the rule is met.
    pub fn met(&self, part: usize) -> usize {
        self.points.iter().filter(|point| point.met.get(part) == Some(&true)).count()
    }

    /// The parameters that decide: those of the workload first, then the cost.
    pub fn decides(&self) -> Vec<String> {
        let mut names = self.parameters();
        names.extend(self.decisive.as_ref().map(Decisive::text));
        names
    }

    /// The parameters of the workload that decide.
    pub fn parameters(&self) -> Vec<String> {
        let Some(as_it_is) = self.points.first() else { return Vec::new() };
        let mut names: Vec<String> = Vec::new();
        for point in self.points.iter().filter(|point| point.holds != as_it_is.holds) {
            if let Some(name) = &point.parameter
                && !names.contains(name)
            {
                names.push(name.clone());
            }
        }
        names
    }

    /// Whether the verdict turns with costs, and the search for the one that decides was not finished.
    pub fn is_open(&self) -> bool {
        let as_it_is = self.points.first().is_some_and(|point| point.holds);
        let turns = |point: &Point| point.parameter.is_none() && point.holds != as_it_is;
        self.decisive.is_none() && self.points.iter().any(turns)
    }

    /// Where the claim holds and where not, if that depends on a parameter that the paper does not give.
    pub fn range(&self) -> Option<String> {
        let of = |holds: bool| -> Vec<&str> {
            let unknown =
                self.points.iter().filter(|point| point.parameter.is_some() && point.holds == holds);
            unknown.map(|point| point.variant.as_str()).collect()
        };
        let as_it_is = self.points.first()?.holds;
        let (holds, not) = (of(true), of(false));
        let other = if as_it_is { &not } else { &holds };
        if other.is_empty() {
            return None;
        }
        let list = |values: Vec<&str>| match values.len() {
            0 => "no other value".to_owned(),
            _ => values.join(", "),
        };
        Some(match as_it_is {
            true => format!("it holds as it is and with {}, not with {}", list(holds), list(not)),
            false => format!("it holds with {}, not as it is nor with {}", list(holds), list(not)),
        })
    }

    /// In a sentence.
    pub fn sentence(&self) -> String {
        let (holds, points) = (self.holds(), self.points.len());
        let mut text = format!("{holds} of {points} points of the space");
        let decides = self.decides();
        if !decides.is_empty() {
            text += &format!("; decided by {}", decides.join(", "));
        }
        text
    }
}

fn band(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |band, value| {
        let (least, most) = band.unwrap_or((value, value));
        Some((value.min(least), value.max(most)))
    })
}

/// The experiments with one variant each, and their results.
#[derive(Default)]
pub struct Space {
    ready: Vec<Ready>,
    results: Vec<Results>,
    /// By experiment, variant, and whether it was run for all of the time.
    at: HashMap<(&'static str, Variant, bool), usize>,
    decisive: HashMap<&'static str, Decisive>,
    /// The claims whose space is run for all of the time.
    whole: HashSet<&'static str>,
}

/// Why there is no more.
pub enum Ended {
    /// All of it was run, or what the shard has of it.
    No,
    /// A signal came.
    Signal(i32),
}

impl Ended {
    /// The signal.
    pub fn signal(&self) -> Option<i32> {
        match self {
            Ended::No => None,
            Ended::Signal(signal) => Some(*signal),
        }
    }
}

/// The variants of the claims among `claims` that are simulated.
pub struct Asked<'a> {
    claims: Vec<(&'a Claim, Vec<&'a Experiment>)>,
    effort: Effort,
}

impl<'a> Asked<'a> {
    /// Of these claims, with these experiments.
    pub fn new(claims: &'a [Claim], experiments: &'a [Experiment], effort: &Effort) -> Self {
        let used = |claim: &'a Claim| -> Vec<&'a Experiment> {
            let used = claim.experiments();
            experiments.iter().filter(|experiment| used.contains(&experiment.id)).collect()
        };
        let simulated = |(_, used): &(&Claim, Vec<&Experiment>)| {
            !used.is_empty() && used.iter().all(|experiment| experiment.on != On::Here)
        };
        let claims = claims.iter().map(|claim| (claim, used(claim))).filter(simulated).collect();
        Asked { claims, effort: *effort }
    }

    /// Runs the space, or what the shard has of it. Then runs it for all of the time where that is needed, and looks for the costs
    /// that decide: a shard does not know what the others find, so that is left to the run that prints the answers. `holds` says
    /// whether a claim holds in all of the time, with the first seed.
    pub fn run(
        &self,
        space: &mut Space,
        holds: &dyn Fn(&Claim) -> bool,
        store: &Store,
        shard: Option<Shard>,
        signals: &Signals,
        bar: &ProgressBar,
    ) -> Result<Ended> {
        let first: Vec<_> =
            self.claims.iter().map(|(claim, used)| (*claim, used, space::first(used))).collect();
        if let Ended::Signal(signal) = space.fill(&first, &self.effort, store, shard, signals, bar)? {
            return Ok(Ended::Signal(signal));
        }
        if shard.is_some() {
            return Ok(Ended::No);
        }
        space.whole = self.turned(space, holds);
        if let Ended::Signal(signal) = space.fill(&first, &self.effort, store, None, signals, bar)? {
            return Ok(Ended::Signal(signal));
        }
        self.search(space, store, signals, bar)
    }

    /// The claims that have another verdict in a quarter of the time than `holds` says.
    fn turned(&self, space: &Space, holds: &dyn Fn(&Claim) -> bool) -> HashSet<&'static str> {
        let other = |claim: &Claim| {
            !space.lacks(claim, &Variant::AsItIs)
                && space.point(claim, &Variant::AsItIs, 0).holds != holds(claim)
        };
        self.claims.iter().filter(|(claim, _)| other(claim)).map(|(claim, _)| claim.id).collect()
    }

    /// Finds the cost that decides for each claim that has one. The searches go on side by side, a step of all at a time.
    fn search(
        &self,
        space: &mut Space,
        store: &Store,
        signals: &Signals,
        bar: &ProgressBar,
    ) -> Result<Ended> {
        let mut searches: Vec<Search> = Vec::new();
        for (at, (claim, used)) in self.claims.iter().enumerate() {
            searches.extend(Search::new(at, claim, space, space::costs(used)?));
        }
        loop {
            let step = |search: &Search| {
                let (claim, used) = &self.claims[search.claim];
                Some((*claim, used, vec![search.next()?]))
            };
            let wanted: Vec<Wanted> = searches.iter().filter_map(step).collect();
            if wanted.is_empty() {
                break;
            }
            if let Ended::Signal(signal) = space.fill(&wanted, &self.effort, store, None, signals, bar)? {
                return Ok(Ended::Signal(signal));
            }
            let known = |search: &Search| {
                let variant = search.next();
                variant.is_none_or(|variant| !space.lacks(self.claims[search.claim].0, &variant))
            };
            searches.retain(known);
            for search in &mut searches {
                let claim = self.claims[search.claim].0;
                if let Some(variant) = search.next() {
                    search.found(space.point(claim, &variant, 0).holds);
                }
            }
        }
        for search in searches {
            let claim = self.claims[search.claim].0;
            space.decisive.extend(search.decisive.map(|decisive| (claim.id, decisive)));
        }
        Ok(Ended::No)
    }

    /// What came out for a claim, if it is simulated and its space is known; `tightest` is the part of its rule that is shown.
    pub fn of(&self, space: &Space, id: &str, tightest: usize) -> Option<Sensitivity> {
        let (claim, used) = self.claims.iter().find(|(claim, _)| claim.id == id)?;
        let lacks = |variant: &Variant| space.lacks(claim, variant);
        if space.failed(claim, &Variant::AsItIs) || space::first(used).iter().any(lacks) {
            return None;
        }
        // Where a lock failed, the claim is not judged.
        let judged = space::first(used).into_iter().filter(|variant| !space.failed(claim, variant));
        let points = judged.map(|variant| space.point(claim, &variant, tightest)).collect();
        Some(Sensitivity { points, decisive: space.decisive.get(id).cloned() })
    }
}

/// A search for the cost that decides a claim.
struct Search {
    /// The number of the claim.
    claim: usize,
    /// Its costs, in the order in which they change.
    costs: Vec<Vec<String>>,
    /// The joint run with the other verdict.
    run: usize,
    /// With so many costs changed, the verdict is that of the claim as it is ...
    same: usize,
    /// ... and with so many the other one.
    other: usize,
    /// Whether the claim holds as it is.
    holds: bool,
    /// What was found.
    decisive: Option<Decisive>,
}

impl Search {
    /// None, if no joint run has another verdict than the claim as it is.
    fn new(at: usize, claim: &Claim, space: &Space, costs: Vec<Vec<String>>) -> Option<Self> {
        let holds = |variant: Variant| space.point(claim, &variant, 0).holds;
        let as_it_is = holds(Variant::AsItIs);
        let judged = |run: &usize| {
            let variant = Variant::Joint(*run);
            !space.failed(claim, &variant) && !space.lacks(claim, &variant)
        };
        let run = (0..space::JOINT).filter(judged).find(|run| holds(Variant::Joint(*run)) != as_it_is)?;
        let other = costs.len();
        Some(Search { claim: at, costs, run, same: 0, other, holds: as_it_is, decisive: None })
    }

    /// What has to be run next; none, if the search is over.
    fn next(&self) -> Option<Variant> {
        if self.decisive.is_some() {
            return None;
        }
        if self.other - self.same > 1 {
            return Some(Variant::Part(self.run, usize::midpoint(self.same, self.other)));
        }
        Some(Variant::Alone(self.run, self.same))
    }

    /// What came out of it.
    fn found(&mut self, holds: bool) {
        let turned = holds != self.holds;
        match (self.other - self.same > 1, turned) {
            (true, true) => self.other = usize::midpoint(self.same, self.other),
            (true, false) => self.same = usize::midpoint(self.same, self.other),
            (false, alone) => {
                let doubled = space::is_doubled(self.same, self.run);
                self.decisive = Some(Decisive { cost: self.costs[self.same].join(" or "), doubled, alone });
            }
        }
    }
}

type Wanted<'a> = (&'a Claim, &'a Vec<&'a Experiment>, Vec<Variant>);

impl Space {
    /// Runs the points that the rules of these claims look at, in these variants.
    fn fill(
        &mut self,
        wanted: &[Wanted],
        effort: &Effort,
        store: &Store,
        shard: Option<Shard>,
        signals: &Signals,
        bar: &ProgressBar,
    ) -> Result<Ended> {
        let mut new: BTreeMap<(&'static str, Variant, bool), Ready> = BTreeMap::new();
        for (claim, used, variants) in wanted {
            let whole = self.whole.contains(claim.id);
            for experiment in *used {
                for variant in variants {
                    // An unknown of another experiment changes nothing in this one.
                    if matches!(variant, Variant::Unknown(set) if !experiment.unknown.contains(&set.as_str()))
                    {
                        continue;
                    }
                    let key = (experiment.id, variant.clone(), whole);
                    if self.at.contains_key(&key) {
                        continue;
                    }
                    let ready = match new.entry(key) {
                        std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                        std::collections::btree_map::Entry::Vacant(free) => {
                            free.insert(Ready::variant(experiment, variant, effort, whole)?)
                        }
                    };
                    let values = claim.checks.iter().map(|check| &check.value);
                    ready.only.extend(runner::points(values, ready));
                }
            }
        }
        let (keys, ready): (Vec<_>, Vec<Ready>) = new.into_iter().unzip();
        bar.inc_length(runner::runs(&ready) as u64);
        let ran = runner::run(&ready, store, shard, signals, bar);
        for (key, (ready, results)) in keys.into_iter().zip(ready.into_iter().zip(ran.results)) {
            self.at.insert(key, self.ready.len());
            self.ready.push(ready);
            self.results.push(results);
        }
        Ok(ran.signal.map_or(Ended::No, Ended::Signal))
    }

    /// Whether a lock failed a workload's check in an experiment of a claim, in one variant.
    fn failed(&self, claim: &Claim, variant: &Variant) -> bool {
        let whole = self.whole.contains(claim.id);
        let failed = |experiment: &'static str| {
            let place = self.at.get(&(experiment, variant.clone(), whole));
            place.is_some_and(|place| self.results[*place].failed())
        };
        claim.experiments().into_iter().any(failed)
    }

    /// Whether a point that the claim looks at has no run in one variant, as where a page is printed from a file that does not
    /// have all of them.
    fn lacks(&self, claim: &Claim, variant: &Variant) -> bool {
        let lacks = |experiment: &'static str| {
            let Some(place) = self.place(experiment, variant, claim) else { return true };
            let (ready, results) = (&self.ready[place], &self.results[place]);
            let looked_at = runner::points(claim.checks.iter().map(|check| &check.value), ready);
            let mut points = looked_at.into_iter().map(|index| &results.points[index]);
            points.any(|point| point.runs.is_empty() && point.failure.is_none())
        };
        claim.experiments().into_iter().any(lacks)
    }

    /// Where the results of an experiment in one variant are, for a claim. What the variant does not change is as it is.
    fn place(&self, experiment: &'static str, variant: &Variant, claim: &Claim) -> Option<usize> {
        let whole = self.whole.contains(claim.id);
        let of = |variant: &Variant| self.at.get(&(experiment, variant.clone(), whole)).copied();
        of(variant).or_else(|| of(&Variant::AsItIs))
    }

    /// Each run in which a lock failed a workload's check, and why.
    pub fn failures(&self) -> Vec<String> {
        let of = |(ready, results): (&Ready, &Results)| {
            let failed =
                results.points.iter().filter_map(|point| Some((point.place, point.failure.as_ref()?)));
            let text = |(place, why): (Place, &String)| {
                let (lock, threads) = (ready.plan.locks[place.lock].name, ready.plan.threads[place.threads]);
                let variant = ready.label.as_deref().unwrap_or_default();
                format!("{}, {variant}: {lock} with {threads} threads: {why}", ready.experiment.id)
            };
            failed.map(text).collect::<Vec<_>>()
        };
        self.ready.iter().zip(&self.results).flat_map(of).collect()
    }

    /// A claim in one variant.
    fn point(&self, claim: &Claim, variant: &Variant, tightest: usize) -> Point {
        let get = |figure: &super::rule::Figure, run: usize| {
            let experiment = figure.at().map_or("", |at| at.experiment);
            let place = self.place(experiment, variant, claim);
            let place = place.ok_or_else(|| format!("{experiment} was not run"))?;
            runner::figure_of(&self.ready[place], &self.results[place], figure, run)
        };
        let judged = judge::judge(&claim.checks, 1, &get);
        Point {
            variant: variant.label(),
            holds: judged.holds(),
            value: judged.checks.get(tightest).and_then(|check| check.ours),
            values: judged.checks.iter().map(|check| check.ours).collect(),
            met: judged.checks.iter().map(|check| check.met == 1).collect(),
            parameter: variant.parameter().map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests;

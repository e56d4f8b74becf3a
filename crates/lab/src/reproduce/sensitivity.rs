//! How much of the space of uncertain costs and unknown parameters a claim holds in, and what decides.
//!
//! Each claim that is simulated runs as it is, in the joint runs, and with each value of the workload's unknowns. A claim
//! with one verdict in all of these is settled. The others run with each uncertain cost by itself as well. All these runs
//! have one seed, and a quarter of the time.

use super::claims::Claim;
use super::experiment::{Effort, Experiment, On, Ready};
use super::judge;
use super::runner::{self, Shard};
use super::space::{self, Variant};
use super::store::Store;
use crate::measure::results::Results;
use indicatif::ProgressBar;
use latchwork_console::failure::Result;
use latchwork_console::signals::Signals;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};

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
    /// The parameter that differs, if it is a single one.
    #[serde(skip)]
    parameter: Option<String>,
    /// Whether the paper does not give that parameter of the workload.
    #[serde(skip)]
    unknown: bool,
}

#[cfg(test)]
impl Point {
    /// In which nothing is special.
    pub fn made_up(holds: bool) -> Self {
        Point {
            variant: String::new(),
            holds,
            value: None,
            values: Vec::new(),
            parameter: None,
            unknown: false,
        }
    }
}

/// A claim in all points that it was run in.
#[derive(Clone, Debug, Serialize)]
pub struct Sensitivity {
    /// The points, as it is first.
    pub points: Vec<Point>,
    /// Whether the joint runs and the unknowns left nothing open.
    pub settled: bool,
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

    /// The parameters that decide by themselves.
    pub fn decides(&self) -> Vec<&str> {
        let Some(as_it_is) = self.points.first() else { return Vec::new() };
        let mut names: Vec<&str> = Vec::new();
        for point in self.points.iter().filter(|point| point.holds != as_it_is.holds) {
            if let Some(name) = point.parameter.as_deref()
                && !names.contains(&name)
            {
                names.push(name);
            }
        }
        names
    }

    /// Where the claim holds and where not, if that depends on a parameter that the paper does not give.
    pub fn range(&self) -> Option<String> {
        let of = |holds: bool| -> Vec<&str> {
            let unknown = self.points.iter().filter(|point| point.unknown && point.holds == holds);
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
        match decides.len() {
            0 if holds == 0 || holds == points => (),
            0 => text += "; no parameter decides by itself",
            1 => text += &format!("; it hangs on one: {}", decides[0]),
            _ => text += &format!("; decided by {}", decides.join(", ")),
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
    at: HashMap<(&'static str, Variant), usize>,
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

    /// Runs what every claim is tested in, and then, for those that this leaves open, each cost by itself. A shard cannot
    /// know what the others find, so it runs all of it for all claims.
    pub fn run(
        &self,
        space: &mut Space,
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
        let open = self.claims.iter().filter(|(claim, used)| shard.is_some() || !space.settles(claim, used));
        let each = open.map(|(claim, used)| Ok((*claim, used, space::one_at_a_time(used)?)));
        let each: Vec<_> = each.collect::<Result<_>>()?;
        space.fill(&each, &self.effort, store, shard, signals, bar)
    }

    /// What came out for a claim, if it is simulated; `tightest` is the part of its rule that is shown.
    pub fn of(&self, space: &Space, id: &str, tightest: usize) -> Result<Option<Sensitivity>> {
        let Some((claim, used)) = self.claims.iter().find(|(claim, _)| claim.id == id) else {
            return Ok(None);
        };
        let settled = space.settles(claim, used);
        let mut variants = space::first(used);
        if !settled {
            variants.extend(space::one_at_a_time(used)?);
        }
        let points = variants.iter().map(|variant| space.point(claim, variant, tightest)).collect();
        Ok(Some(Sensitivity { points, settled }))
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
        let mut new: BTreeMap<(&'static str, Variant), Ready> = BTreeMap::new();
        for (claim, used, variants) in wanted {
            for experiment in *used {
                for variant in variants {
                    // An unknown of another experiment changes nothing in this one.
                    if matches!(variant, Variant::Unknown(set) if !experiment.unknown.contains(&set.as_str()))
                    {
                        continue;
                    }
                    let key = (experiment.id, variant.clone());
                    if self.at.contains_key(&key) {
                        continue;
                    }
                    let ready = match new.entry(key) {
                        std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
                        std::collections::btree_map::Entry::Vacant(free) => {
                            free.insert(Ready::variant(experiment, variant, effort)?)
                        }
                    };
                    ready.only.extend(points(claim, experiment.id, ready));
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

    /// A claim in one variant.
    fn point(&self, claim: &Claim, variant: &Variant, tightest: usize) -> Point {
        let get = |figure: &super::rule::Figure, run: usize| {
            let experiment = figure.at().map_or("", |at| at.experiment);
            let here = self.at.get(&(experiment, variant.clone()));
            let place = here.or_else(|| self.at.get(&(experiment, Variant::AsItIs)));
            let place = *place.ok_or_else(|| format!("{experiment} was not run"))?;
            runner::figure_of(&self.ready[place], &self.results[place], figure, run)
        };
        let judged = judge::judge(&claim.checks, 1, &get);
        Point {
            variant: variant.label(),
            holds: judged.holds(),
            value: judged.checks.get(tightest).and_then(|check| check.ours),
            values: judged.checks.iter().map(|check| check.ours).collect(),
            parameter: variant.parameter().map(str::to_owned),
            unknown: matches!(variant, Variant::Unknown(_)),
        }
    }

    /// Whether a claim has one verdict in all variants that it is first run in.
    fn settles(&self, claim: &Claim, used: &[&Experiment]) -> bool {
        let verdicts: BTreeSet<bool> =
            space::first(used).iter().map(|variant| self.point(claim, variant, 0).holds).collect();
        verdicts.len() == 1
    }
}

/// The points of an experiment that a claim's rule looks at.
fn points(claim: &Claim, experiment: &str, ready: &Ready) -> Vec<usize> {
    let results = Results::new(&ready.plan);
    let figures = claim.checks.iter().flat_map(|check| check.value.figures());
    let places = figures.filter_map(|figure| figure.at()).filter(|at| at.experiment == experiment);
    places.filter_map(|at| runner::index(&ready.plan, &results, at.lock, at.threads, &at.set)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(variant: Variant, holds: bool, value: f64) -> Point {
        Point {
            variant: variant.label(),
            holds,
            value: Some(value),
            values: vec![Some(value), None],
            parameter: variant.parameter().map(str::to_owned),
            unknown: matches!(variant, Variant::Unknown(_)),
        }
    }

    #[test]
    fn what_decides_is_what_turns_the_verdict_by_itself() {
        let cost = |name: &str, up| Variant::Cost(name.into(), up);
        let one = Sensitivity {
            points: vec![
                point(Variant::AsItIs, true, 1.5),
                point(Variant::Joint(0), false, 0.5),
                point(cost("one hop", true), true, 2.0),
                point(cost("one hop", false), false, 1.0),
                point(cost("wakeup", true), true, 1.5),
            ],
            settled: false,
        };
        assert_eq!((one.holds(), one.decides(), one.band()), (3, vec!["one hop"], Some((0.5, 2.0))));
        assert_eq!((one.band_of(0), one.band_of(1)), (one.band(), None));
        assert_eq!(one.sentence(), "3 of 5 points of the space; it hangs on one: one hop");
        assert_eq!(one.range(), None);
        let unknown = |set: &str| Variant::Unknown(set.into());
        let range = Sensitivity {
            points: vec![
                point(Variant::AsItIs, false, 0.5),
                point(unknown("write=20us"), false, 0.9),
                point(unknown("write=300us"), true, 1.2),
            ],
            settled: false,
        };
        assert_eq!(range.range().unwrap(), "it holds with write=300us, not as it is nor with write=20us");
    }
}

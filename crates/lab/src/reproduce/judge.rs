//! Applies rules to results, and says what that means for the claim.

use super::rule::{self, Check, Figure};
use super::sensitivity::Sensitivity;
use serde::Serialize;

/// What the runs say about a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is", content = "why")]
pub enum Verdict {
    /// Every check was met in every run.
    Holds,
    /// On a parameter that the paper does not give, or on chance: where it holds and where not.
    Depends(String),
    /// In every run a check was missed, and the model covers what matters.
    Contradicted,
    /// In every run a check was missed, and what decides it is outside of the model or of this machine; or nothing was run.
    CannotBeShown(String),
    /// In every run a check was missed, because a lock of ours differs on purpose.
    ByDesign(String),
    /// A parameter was fitted to the claim, so that it shows nothing. It is counted nowhere.
    Input(String),
}

impl Verdict {
    /// The words of the page and of the document.
    pub const WORDS: [&str; 6] =
        ["holds", "depends", "contradicted", "cannot be shown here", "different by design", "input"];

    /// In a few words.
    pub fn text(&self) -> &'static str {
        Self::WORDS[match self {
            Verdict::Holds => 0,
            Verdict::Depends(_) => 1,
            Verdict::Contradicted => 2,
            Verdict::CannotBeShown(_) => 3,
            Verdict::ByDesign(_) => 4,
            Verdict::Input(_) => 5,
        }]
    }

    /// What is said beside it.
    pub fn why(&self) -> &str {
        match self {
            Verdict::Holds | Verdict::Contradicted => "",
            Verdict::Depends(why)
            | Verdict::CannotBeShown(why)
            | Verdict::ByDesign(why)
            | Verdict::Input(why) => why,
        }
    }
}

/// What a missed rule says about a claim.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub enum Ground {
    /// That it is contradicted.
    #[default]
    Covered,
    /// Nothing: this decides it, and neither the model nor this machine has it.
    Outside(&'static str),
    /// That a lock of ours differs on purpose: in this.
    Design(&'static str),
    /// Nothing, and a rule that is met says nothing either: this parameter was fitted to the claim.
    Input(&'static str),
}

/// The least share of the space that has to agree with the runs of the claim itself.
const AGREES: f64 = 0.75;

/// How many times as fast one lock has to be as another, for a point to tell locks apart.
const APART: f64 = 1.2;

/// Whether a world in which all figures are alike meets the rule.
pub fn says_the_same(checks: &[Check]) -> bool {
    judge(checks, 1, &|_, _| Ok(1.0)).holds()
}

/// The verdict on a claim. `apart`: the largest ratio of two locks' rates at one point that its rule looks at, if there is any.
pub fn verdict(judged: &Judged, ground: Ground, space: Option<&Sensitivity>, apart: Option<f64>) -> Verdict {
    if let Ground::Input(what) = ground {
        return Verdict::Input(what.into());
    }
    if let Some(why) = &judged.missing {
        return Verdict::CannotBeShown(why.clone());
    }
    if judged.good > 0 && judged.good < judged.runs {
        return Verdict::Depends(format!("on chance: it holds in {} of {} runs", judged.good, judged.runs));
    }
    let holds = judged.holds();
    if holds && judged.same && apart.is_some_and(|apart| apart < APART) {
        let why = "no two locks differ by a fifth at any point that its rule looks at, so that it says nothing to find them alike";
        return Verdict::CannotBeShown(why.into());
    }
    if let Some(space) = space {
        if let Some(range) = space.range() {
            return Verdict::Depends(range);
        }
        let agrees = if holds { space.share() } else { 1.0 - space.share() };
        if agrees < AGREES {
            return Verdict::Depends(format!("on uncertain costs: it holds in {}", space.sentence()));
        }
    }
    if let Some(why) = judged.blurred().filter(|_| !holds) {
        return Verdict::CannotBeShown(why);
    }
    match ground {
        _ if holds => Verdict::Holds,
        Ground::Outside(what) => Verdict::CannotBeShown(what.into()),
        Ground::Design(what) => Verdict::ByDesign(what.into()),
        _ => Verdict::Contradicted,
    }
}

/// A check after the runs.
#[derive(Clone, Debug, Serialize)]
pub struct Checked {
    /// What it asks for.
    pub rule: String,
    /// The median over the runs.
    pub ours: Option<f64>,
    /// The value of each run.
    pub runs: Vec<f64>,
    /// How many runs meet it.
    pub met: usize,
    /// What is measured on this machine: the rate of the fastest turn of one of its locks over that of the slowest, in the same round.
    pub spread: Option<f64>,
    #[serde(skip)]
    slack: f64,
    /// By which factor the median misses.
    #[serde(skip)]
    miss: f64,
}

/// A rule after the runs.
#[derive(Clone, Debug)]
pub struct Judged {
    /// The checks.
    pub checks: Vec<Checked>,
    /// How many runs there are.
    pub runs: usize,
    /// How many of them meet all checks.
    pub good: usize,
    /// Why a figure is not there.
    pub missing: Option<String>,
    /// Whether one lock in place of all can meet the rule, so that a run which meets it shows something only if locks can differ.
    pub same: bool,
}

impl Judged {
    /// Whether all runs meet all checks.
    pub fn holds(&self) -> bool {
        self.missing.is_none() && self.good == self.runs && !self.checks.is_empty()
    }

    /// Whether the same lock's turns differ by more than all checks that are missed are missed by.
    fn blurred(&self) -> Option<String> {
        let mut blurs: Option<(f64, f64)> = None;
        for check in self.checks.iter().filter(|check| check.met < check.runs.len()) {
            let spread = check.spread.filter(|spread| *spread >= check.miss)?;
            if blurs.is_none_or(|(miss, _)| check.miss > miss) {
                blurs = Some((check.miss, spread));
            }
        }
        let (miss, spread) = blurs?;
        Some(format!(
            "it is missed by a factor of {}, and turns of the same lock differ by a factor of {}",
            rule::number(miss),
            rule::number(spread)
        ))
    }

    /// Which of the checks is missed by most, or met by least.
    pub fn tightest_index(&self) -> usize {
        let slack = |at: &usize| self.checks[*at].slack;
        (0..self.checks.len()).min_by(|a, b| slack(a).total_cmp(&slack(b))).unwrap_or(0)
    }

    /// The check that is missed by most, or met by least.
    pub fn tightest(&self) -> Option<&Checked> {
        self.checks.iter().min_by(|a, b| a.slack.total_cmp(&b.slack))
    }
}

/// Applies a rule to `runs` runs; `get` has the figures of each.
pub fn judge(checks: &[Check], runs: usize, get: &dyn Fn(&Figure, usize) -> Result<f64, String>) -> Judged {
    judge_in_turns(checks, runs, 1, get)
}

/// Applies a rule to `runs` runs of so many turns; `get` has the figures of each turn. Only figures of the same turn are compared.
pub fn judge_in_turns(
    checks: &[Check],
    runs: usize,
    turns: usize,
    get: &dyn Fn(&Figure, usize) -> Result<f64, String>,
) -> Judged {
    let mut missing = None;
    let mut met = vec![true; runs];
    let mut checked = Vec::new();
    for check in checks {
        let mut values = Vec::new();
        let mut good = 0;
        for (run, all) in met.iter_mut().enumerate() {
            match check.value.over_turns(run, turns, get) {
                Ok(value) => {
                    values.push(value);
                    good += usize::from(check.bound.allows(value));
                    *all &= check.bound.allows(value);
                }
                Err(why) => {
                    missing.get_or_insert(why);
                }
            }
        }
        let ours = (!values.is_empty()).then(|| latchwork_console::stats::median(&values));
        let slack = ours.map_or(f64::NEG_INFINITY, |ours| check.bound.slack(ours));
        let miss = ours.map_or(f64::INFINITY, |ours| check.bound.miss(ours));
        checked.push(Checked {
            rule: check.text(),
            ours,
            runs: values,
            met: good,
            spread: None,
            slack,
            miss,
        });
    }
    let good = met.iter().filter(|all| **all).count();
    if runs == 0 || checks.is_empty() {
        missing.get_or_insert("nothing was run".into());
    }
    Judged { checks: checked, runs, good, missing, same: false }
}

#[cfg(test)]
mod tests {
    use super::super::rule::{At, Bound, LINEAR, SIMILAR, Value};
    use super::*;

    fn rate(lock: &'static str, threads: usize) -> Figure {
        Figure::Rate(At { experiment: "made-up", lock, threads, set: String::new() })
    }

    fn at_least(least: f64) -> Vec<Check> {
        vec![Check { value: Value::Ratio(rate("new", 8), rate("old", 8)), bound: Bound::AtLeast(least) }]
    }

    /// Results that are made up: `new` is as many times as fast as `old` as each run's entry says.
    fn judge_with(checks: &[Check], ratios: &[f64]) -> Judged {
        judge(checks, ratios.len(), &|figure, run| match figure.at().unwrap().lock {
            "new" => Ok(10.0 * ratios[run]),
            "old" => Ok(10.0),
            other => Err(format!("no {other}")),
        })
    }

    #[test]
    fn every_verdict_can_be_reached() {
        let (met, missed) = ([2.5, 2.0, 3.0], [1.9, 1.0, 0.1]);
        let of = |ratios: &[f64], ground| verdict(&judge_with(&at_least(2.0), ratios), ground, None, None);
        assert_eq!(of(&met, Ground::Covered), Verdict::Holds);
        assert_eq!(of(&met, Ground::Outside("memory")), Verdict::Holds);
        assert_eq!(of(&missed, Ground::Covered), Verdict::Contradicted);
        assert_eq!(of(&missed, Ground::Outside("memory")), Verdict::CannotBeShown("memory".into()));
        assert_eq!(of(&missed, Ground::Design("size")), Verdict::ByDesign("size".into()));
        for ratios in [met, missed] {
            assert_eq!(of(&ratios, Ground::Input("gap")), Verdict::Input("gap".into()));
        }
        let mixed = of(&[1.9, 2.1, 3.0], Ground::Covered);
        assert!(matches!(&mixed, Verdict::Depends(why) if why.contains("2 of 3")), "{mixed:?}");
        assert!(matches!(of(&[], Ground::Covered), Verdict::CannotBeShown(_)));
        let nothing = verdict(&judge_with(&[], &[1.0]), Ground::Covered, None, None);
        assert!(matches!(nothing, Verdict::CannotBeShown(_)));
    }

    #[test]
    fn a_rule_that_is_missed_by_less_than_turns_of_one_lock_differ_is_not_contradicted() {
        let of = |spread| {
            let mut judged = judge_with(&at_least(1.1), &[1.0, 1.0]);
            judged.checks[0].spread = spread;
            verdict(&judged, Ground::Covered, None, None)
        };
        assert_eq!(of(None), Verdict::Contradicted);
        assert_eq!(of(Some(1.05)), Verdict::Contradicted);
        assert!(
            matches!(of(Some(1.2)), Verdict::CannotBeShown(why) if why.contains("1.1") && why.contains("1.2"))
        );
        let mut met = judge_with(&at_least(1.1), &[1.2]);
        met.checks[0].spread = Some(2.0);
        assert_eq!(verdict(&met, Ground::Covered, None, None), Verdict::Holds);
    }

    #[test]
    fn to_be_alike_shows_something_only_where_locks_can_differ() {
        let checks = vec![Check { bound: SIMILAR, ..at_least(0.0).remove(0) }];
        assert!(says_the_same(&checks) && !says_the_same(&at_least(2.0)));
        let judged = Judged { same: true, ..judge_with(&checks, &[1.0]) };
        assert_eq!(verdict(&judged, Ground::Covered, None, Some(3.0)), Verdict::Holds);
        assert!(matches!(verdict(&judged, Ground::Covered, None, Some(1.1)), Verdict::CannotBeShown(_)));
    }

    #[test]
    fn a_claim_that_most_of_the_space_denies_depends() {
        use super::super::sensitivity::{Point, Sensitivity};
        let of = |good: usize, all: usize| {
            let points = (0..all).map(|at| Point::made_up(&[at < good])).collect();
            let space = Sensitivity { points, decisive: None };
            verdict(&judge_with(&at_least(2.0), &[2.5]), Ground::Covered, Some(&space), None)
        };
        assert_eq!(of(8, 10), Verdict::Holds);
        assert!(matches!(of(6, 10), Verdict::Depends(why) if why.contains("6 of 10")));
    }

    #[test]
    fn one_missed_check_is_enough_to_break_a_claim() {
        let mut checks = at_least(1.0);
        checks.push(Check { value: Value::Ratio(rate("new", 8), rate("old", 8)), bound: Bound::AtMost(1.5) });
        let judged = judge_with(&checks, &[2.0, 2.0]);
        assert!(!judged.holds());
        assert_eq!(judged.tightest().unwrap().rule, checks[1].text());
        assert_eq!((judged.checks[0].met, judged.checks[1].met), (2, 0));
    }

    #[test]
    fn runs_that_break_different_checks_do_not_hold() {
        let checks = vec![Check { bound: SIMILAR, ..at_least(0.0).remove(0) }];
        assert_eq!(judge_with(&checks, &[0.5, 2.0]).good, 0);
        assert!(judge_with(&checks, &[0.9, 1.2]).holds());
    }

    /// In two turns of three `new` is twice as fast as `old`. The medians of the locks' turns are of different turns, and say that
    /// `old` is faster.
    #[test]
    fn what_is_measured_in_turns_is_compared_turn_by_turn() {
        let turns = [[2.0, 6.0, 1.0], [1.0, 3.0, 9.0]];
        let judged = judge_in_turns(&at_least(1.5), 1, 3, &|figure, turn| {
            Ok(turns[usize::from(figure.at().unwrap().lock == "old")][turn])
        });
        assert_eq!(judged.checks[0].runs, [2.0]);
        assert!(judged.holds());
    }

    #[test]
    fn what_failed_or_did_nothing_shows_nothing() {
        let checks =
            [Check { value: Value::Ratio(rate("new", 8), rate("broken", 8)), bound: Bound::AtLeast(0.0) }];
        assert_eq!(judge_with(&checks, &[9.0]).missing, Some("no broken".into()));
        let idle = judge(&at_least(2.0), 1, &|figure, _| {
            Ok(f64::from(u8::from(figure.at().unwrap().lock == "new")))
        });
        assert!(idle.missing.is_some() && !idle.holds(), "a rate of 0 below is no proof: {idle:?}");
    }

    #[test]
    fn a_speedup_is_set_against_the_ideal_one() {
        let value = Value::Speedup(rate("new", 8), rate("new", 1));
        let checks = [Check { value, bound: Bound::AtLeast(LINEAR) }];
        let with = |share: f64| {
            judge(&checks, 1, &|figure, _| {
                let threads = figure.at().unwrap().threads as f64;
                Ok(if threads > 1.0 { threads * share } else { 1.0 })
            })
        };
        assert!((with(0.9).checks[0].ours.unwrap() - 0.9).abs() < 1e-9);
        assert!(with(0.9).holds());
        assert!(!with(0.5).holds());
    }
}

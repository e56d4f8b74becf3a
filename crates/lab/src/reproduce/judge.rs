//! Applies rules to results: what holds, what does not, and what cannot be told.

use super::rule::{Check, Figure};
use serde::Serialize;

/// What the rule says about a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is", content = "why")]
pub enum Verdict {
    /// Every check was met in every run.
    Holds,
    /// In every run, one was not.
    DoesNotHold,
    /// Neither, or there is nothing to judge by.
    NotShown(String),
}

impl Verdict {
    /// As one word or three.
    pub fn text(&self) -> &'static str {
        match self {
            Verdict::Holds => "holds",
            Verdict::DoesNotHold => "does not hold",
            Verdict::NotShown(_) => "not shown",
        }
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
    #[serde(skip)]
    slack: f64,
}

/// A rule after the runs.
#[derive(Clone, Debug)]
pub struct Judged {
    /// What it says.
    pub verdict: Verdict,
    /// The checks.
    pub checks: Vec<Checked>,
}

impl Judged {
    /// The check that is missed by most, or met by least.
    pub fn tightest(&self) -> Option<&Checked> {
        self.checks.iter().min_by(|a, b| a.slack.total_cmp(&b.slack))
    }
}

/// Applies a rule to `runs` runs; `get` has the figures of each.
pub fn judge(checks: &[Check], runs: usize, get: &dyn Fn(&Figure, usize) -> Result<f64, String>) -> Judged {
    let mut missing = None;
    let mut met = vec![true; runs];
    let mut checked = Vec::new();
    for check in checks {
        let mut values = Vec::new();
        let mut good = 0;
        for (run, all) in met.iter_mut().enumerate() {
            match check.value.compute(&|figure| get(figure, run)) {
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
        checked.push(Checked { rule: check.text(), ours, runs: values, met: good, slack });
    }
    let good = met.iter().filter(|all| **all).count();
    let verdict = match missing {
        Some(why) => Verdict::NotShown(why),
        None if runs == 0 || checks.is_empty() => Verdict::NotShown("nothing was run".into()),
        None if good == runs => Verdict::Holds,
        None if good == 0 => Verdict::DoesNotHold,
        None => Verdict::NotShown(format!("it holds in {good} of {runs} runs")),
    };
    Judged { verdict, checks: checked }
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
        assert_eq!(judge_with(&at_least(2.0), &[2.5, 2.0, 3.0]).verdict, Verdict::Holds);
        assert_eq!(judge_with(&at_least(2.0), &[1.9, 1.0, 0.1]).verdict, Verdict::DoesNotHold);
        let mixed = judge_with(&at_least(2.0), &[1.9, 2.1, 3.0]);
        assert!(matches!(&mixed.verdict, Verdict::NotShown(why) if why.contains("2 of 3")), "{mixed:?}");
        assert!(matches!(judge_with(&at_least(2.0), &[]).verdict, Verdict::NotShown(_)));
        assert!(matches!(judge_with(&[], &[1.0]).verdict, Verdict::NotShown(_)));
    }

    #[test]
    fn one_missed_check_is_enough_to_break_a_claim() {
        let mut checks = at_least(1.0);
        checks.push(Check { value: Value::Ratio(rate("new", 8), rate("old", 8)), bound: Bound::AtMost(1.5) });
        let judged = judge_with(&checks, &[2.0, 2.0]);
        assert_eq!(judged.verdict, Verdict::DoesNotHold);
        assert_eq!(judged.tightest().unwrap().rule, checks[1].text());
        assert_eq!((judged.checks[0].met, judged.checks[1].met), (2, 0));
    }

    #[test]
    fn runs_that_break_different_checks_do_not_hold() {
        let checks = vec![Check { bound: SIMILAR, ..at_least(0.0).remove(0) }];
        assert_eq!(judge_with(&checks, &[0.5, 2.0]).verdict, Verdict::DoesNotHold);
        assert_eq!(judge_with(&checks, &[0.9, 1.2]).verdict, Verdict::Holds);
    }

    #[test]
    fn what_failed_or_did_nothing_shows_nothing() {
        let checks =
            [Check { value: Value::Ratio(rate("new", 8), rate("broken", 8)), bound: Bound::AtLeast(0.0) }];
        assert_eq!(judge_with(&checks, &[9.0]).verdict, Verdict::NotShown("no broken".into()));
        let idle = judge(&at_least(2.0), 1, &|figure, _| {
            Ok(f64::from(u8::from(figure.at().unwrap().lock == "new")))
        });
        assert!(matches!(idle.verdict, Verdict::NotShown(_)), "a rate of 0 below is no proof: {idle:?}");
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
        assert_eq!(with(0.9).verdict, Verdict::Holds);
        assert_eq!(with(0.5).verdict, Verdict::DoesNotHold);
    }
}

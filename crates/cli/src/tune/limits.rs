//! What a choice of locks may cost: `--max-cpu`, `--max-memory` and `--max-p99`.
//!
//! A limit is a number, or a share of what the same program takes under glibc's locks. Shares become numbers as soon as glibc's runs
//! of a step are there. A choice of locks exceeds a limit if the median of its runs is above the number.

use crate::compare::candidates::{Candidate, Measured};
use crate::compare::metric::Metric;
use crate::compare::verdict::Better;
use clap::Args;
use latchwork_console::failure::Result;
use latchwork_console::stats::median;

/// The options.
#[derive(Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitOptions {
    /// Take no locks under which a run needs more CPU time: seconds, or a share of glibc's, such as 110%
    #[arg(long, value_name = "SECS|N%", allow_negative_numbers = true, value_parser = seconds)]
    max_cpu: Option<Limit>,
    /// Take no locks under which the program needs more memory: bytes (512M, 2G), or a share of glibc's
    #[arg(long, value_name = "BYTES|N%", value_parser = bytes)]
    max_memory: Option<Limit>,
    /// The program's latency: what the expression's first group captures in its output
    #[arg(long, value_name = "REGEX")]
    p99: Option<String>,
    /// Take no locks under which the latency of --p99 is higher: a number, or a share of glibc's [default: 110%]
    #[arg(long, value_name = "N|N%", value_parser = number, requires = "p99")]
    max_p99: Option<Limit>,
}

/// The most that something may be.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Limit {
    /// A number.
    Value(f64),
    /// So many times what glibc's locks need.
    Share(f64),
}

/// The limit of `--p99` if the user names none.
const P99: Limit = Limit::Share(1.1);

fn limit(text: &str, value: impl Fn(&str) -> Option<f64>) -> Option<Limit> {
    let positive = |number: &f64| number.is_finite() && *number > 0.0;
    match text.strip_suffix('%') {
        Some(percent) => percent.parse().ok().filter(positive).map(|percent| Limit::Share(percent / 100.0)),
        None => value(text).filter(positive).map(Limit::Value),
    }
}

fn seconds(text: &str) -> std::result::Result<Limit, String> {
    let value = |text: &str| text.strip_suffix('s').unwrap_or(text).parse().ok();
    limit(text, value).ok_or("a positive number of seconds, or of percent, such as 110%".into())
}

fn bytes(text: &str) -> std::result::Result<Limit, String> {
    let value = |text: &str| {
        let units = [('K', 10), ('M', 20), ('G', 30)];
        let unit = units.into_iter().find_map(|(unit, bits)| Some((text.strip_suffix(unit)?, bits)));
        let (number, bits) = unit.unwrap_or((text, 0));
        Some(number.parse::<f64>().ok()? * f64::from(1_u32 << bits))
    };
    limit(text, value).ok_or("a positive number of bytes, with K, M or G behind it, or of percent".into())
}

fn number(text: &str) -> std::result::Result<Limit, String> {
    limit(text, |text| text.parse().ok()).ok_or("a positive number, or one of percent, such as 110%".into())
}

/// One of the limits.
struct Rule {
    option: &'static str,
    limit: Limit,
    of: fn(&Measured) -> Option<f64>,
    show: fn(f64) -> String,
    /// The limit as a number.
    allowed: Option<f64>,
}

/// All of them.
pub struct Limits(Vec<Rule>);

impl Limits {
    /// What the user asks for, and how the latency is found in the output.
    pub fn new(options: &LimitOptions) -> Result<(Self, Option<Metric>)> {
        let p99 = options.p99.as_deref().map(|text| Metric::of("--p99", text, Better::Lower)).transpose()?;
        let rule = |option, limit, of, show| {
            // A number needs no run.
            let allowed = match limit {
                Limit::Value(value) => Some(value),
                Limit::Share(_) => None,
            };
            Rule { option, limit, of, show, allowed }
        };
        let mut rules = Vec::new();
        rules.extend(
            options.max_cpu.map(|limit| rule("--max-cpu", limit, cpu, |value| format!("{value:.2} s"))),
        );
        let memory: fn(f64) -> String = |value| format!("{:.1} MiB", value / f64::from(1 << 20));
        rules.extend(
            options
                .max_memory
                .map(|limit| rule("--max-memory", limit, |run| Some(run.cost.memory as f64), memory)),
        );
        if p99.is_some() {
            let limit = options.max_p99.unwrap_or(P99);
            rules.push(rule("--max-p99", limit, |run| run.p99, |value| format!("{value}")));
        }
        Ok((Limits(rules), p99))
    }

    /// Shares are shares of these runs from now on.
    pub fn set_by(&mut self, glibc: &Candidate) {
        for rule in &mut self.0 {
            if let (Limit::Share(share), Some(base)) = (rule.limit, rule.median(glibc)) {
                rule.allowed = Some(share * base);
            }
        }
    }

    /// What the runs of a candidate exceed, in words.
    pub fn exceeded(&self, candidate: &Candidate) -> Option<String> {
        self.0.iter().find_map(|rule| {
            let (found, allowed) = (rule.median(candidate)?, rule.allowed?);
            let show = rule.show;
            (found > allowed)
                .then(|| format!("{}: {}, and {} are allowed", rule.option, show(found), show(allowed)))
        })
    }
}

impl Rule {
    fn median(&self, candidate: &Candidate) -> Option<f64> {
        let values: Vec<f64> = candidate.runs.iter().filter_map(|(_, run)| (self.of)(run)).collect();
        (!values.is_empty()).then(|| median(&values))
    }
}

fn cpu(run: &Measured) -> Option<f64> {
    Some((run.cost.user + run.cost.system).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::child::Cost;
    use latchwork_console::names::Choice;
    use std::time::Duration;

    /// Runs that took so many milliseconds of CPU time, twice as many KiB of memory, and a latency as high.
    fn candidate(runs: &[u64]) -> Candidate {
        let mut candidate = Candidate::new(Choice::glibc());
        for (round, number) in runs.iter().enumerate() {
            let cost = Cost {
                wall: Duration::from_secs(1),
                user: Duration::from_millis(number / 2),
                system: Duration::from_millis(number - number / 2),
                memory: number << 11,
                voluntary: 0,
                involuntary: 0,
            };
            let p99 = Some(*number as f64);
            candidate.runs.push((round as u32, Measured { cost, metric: None, p99 }));
        }
        candidate
    }

    fn limits(cpu: Option<Limit>, memory: Option<Limit>, p99: Option<Limit>) -> Limits {
        let expression = p99.map(|_| "p99: ([0-9]+)".to_owned());
        let options = LimitOptions { max_cpu: cpu, max_memory: memory, p99: expression, max_p99: p99 };
        Limits::new(&options).map_err(|failure| failure.message).unwrap().0
    }

    #[test]
    fn numbers_are_read_with_their_units() {
        assert_eq!(seconds("1.5"), Ok(Limit::Value(1.5)));
        assert_eq!(seconds("2s"), Ok(Limit::Value(2.0)));
        assert_eq!(seconds("110%"), Ok(Limit::Share(1.1)));
        assert_eq!(bytes("512M"), Ok(Limit::Value(536_870_912.0)));
        assert_eq!(bytes("50%"), Ok(Limit::Share(0.5)));
        assert_eq!(number("250"), Ok(Limit::Value(250.0)));
        for bad in ["", "0", "-1", "%", "inf", "NaN%", "many", "1T"] {
            assert!(seconds(bad).is_err() && bytes(bad).is_err() && number(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_median_decides_and_not_a_single_run() {
        let limits = limits(Some(Limit::Value(1.0)), None, None);
        assert_eq!(limits.exceeded(&candidate(&[900, 1000, 5000])), None);
        let why = limits.exceeded(&candidate(&[900, 1100, 1200])).unwrap();
        assert_eq!(why, "--max-cpu: 1.10 s, and 1.00 s are allowed");
        // What did not run is judged elsewhere.
        assert_eq!(limits.exceeded(&candidate(&[])), None);
    }

    #[test]
    fn shares_are_those_of_glibc() {
        for (limits, option) in [
            (limits(Some(Limit::Share(1.1)), None, None), "--max-cpu"),
            (limits(None, Some(Limit::Share(1.1)), None), "--max-memory"),
            (limits(None, None, Some(Limit::Share(1.1))), "--max-p99"),
        ] {
            let mut limits = limits;
            // There is nothing to compare with yet.
            assert_eq!(limits.exceeded(&candidate(&[1200])), None);
            limits.set_by(&candidate(&[900, 1000, 1100]));
            assert_eq!(limits.exceeded(&candidate(&[1090, 1100, 2000])), None);
            assert!(limits.exceeded(&candidate(&[1110])).unwrap().starts_with(option));
            // Fresh rounds set it anew.
            limits.set_by(&candidate(&[2000]));
            assert_eq!(limits.exceeded(&candidate(&[1110])), None);
        }
    }

    #[test]
    fn without_options_nothing_is_exceeded() {
        let mut limits = limits(None, None, None);
        limits.set_by(&candidate(&[1]));
        assert_eq!(limits.exceeded(&candidate(&[1_000_000])), None);
    }
}

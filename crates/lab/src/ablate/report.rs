//! What each variant is worth: a table for people, Markdown, JSON.

use super::run::{Plan, Point, Results};
use super::variants::{Variant, YARDSTICKS};
use crate::measure::report::time;
use latchwork_console::stats;
use latchwork_console::table::{self, markdown_head, markdown_row};
use serde::Serialize;
use std::collections::BTreeMap;

/// A difference in throughput that counts.
const MATTERS: f64 = 0.05;
/// Shares below this count as this in a geometric mean: a variant may do nothing at a point.
const LEAST: f64 = 1e-4;

/// A variant against the lock as it is, over all points.
struct Summary {
    /// Geometric means of its shares: throughput, and processor time for each operation.
    mean: f64,
    processor: Option<f64>,
    /// The smallest and the largest share that counts, and its point.
    worst: Option<(f64, usize)>,
    best: Option<(f64, usize)>,
    /// Points with a smaller or larger share that counts, and all points.
    behind: usize,
    ahead: usize,
    points: usize,
    /// Nanoseconds.
    longest: f64,
}

impl Summary {
    /// `None`: the variant and the lock as it is have no point in common yet.
    fn new(plan: &Plan, results: &Results, variant: usize) -> Option<Self> {
        let points = || 0..plan.points.len();
        let shares: Vec<(f64, usize)> =
            points().filter_map(|point| Some((results.share(point, variant)?, point))).collect();
        let (low, high) = (1.0 - MATTERS, 1.0 + MATTERS);
        // Every run of one is ahead of every run of the other.
        let apart = |point: usize, behind: usize, ahead: usize| {
            let ahead = results.rates(point, ahead).into_iter().fold(f64::INFINITY, f64::min);
            results.rates(point, behind).into_iter().all(|rate| rate < ahead)
        };
        let behind: Vec<_> = shares
            .iter()
            .copied()
            .filter(|(share, point)| *share < low && apart(*point, variant, 0))
            .collect();
        let ahead: Vec<_> = shares
            .iter()
            .copied()
            .filter(|(share, point)| *share > high && apart(*point, 0, variant))
            .collect();
        let longest =
            |point: usize| results.runs(point, variant).iter().map(|run| run.longest).fold(0.0, f64::max);
        Some(Summary {
            mean: mean(shares.iter().map(|(share, _)| *share))?,
            processor: mean(points().filter_map(|point| results.processor(point, variant))),
            worst: behind.iter().copied().min_by(|a, b| a.0.total_cmp(&b.0)),
            best: ahead.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0)),
            behind: behind.len(),
            ahead: ahead.len(),
            points: shares.len(),
            longest: shares.iter().map(|(_, point)| longest(*point)).fold(0.0, f64::max),
        })
    }
}

/// The geometric mean, if there is anything.
fn mean(shares: impl Iterator<Item = f64>) -> Option<f64> {
    let logarithms: Vec<f64> = shares.map(|share| share.max(LEAST).ln()).collect();
    (!logarithms.is_empty()).then(|| (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp())
}

const HEAD: [&str; 11] = [
    "mechanism",
    "change",
    "mean",
    "behind",
    "worst",
    "at",
    "ahead",
    "best",
    "at",
    "processor",
    "longest wait",
];
/// Whether a column has numbers.
const NUMBERS: [bool; HEAD.len()] = [false, false, true, true, true, false, true, true, false, true, true];

/// A row for each variant.
fn rows(plan: &Plan, results: &Results) -> Vec<[String; HEAD.len()]> {
    let row = |(index, (_, Variant { mechanism, change })): (usize, &(usize, Variant))| {
        let summary = Summary::new(plan, results, index)?;
        let place = |place: Option<(f64, usize)>| match place {
            Some((share, point)) => [format!("{share:.2}"), describe(plan, &plan.points[point])],
            None => [String::new(), String::new()],
        };
        let ([worst, worst_at], [best, best_at]) = (place(summary.worst), place(summary.best));
        let of = |count: usize| format!("{count} of {}", summary.points);
        Some([
            (*mechanism).to_owned(),
            (*change).to_owned(),
            format!("{:.3}", summary.mean),
            of(summary.behind),
            worst,
            worst_at,
            of(summary.ahead),
            best,
            best_at,
            summary.processor.map_or("-".into(), |share| format!("{share:.2}")),
            time(summary.longest),
        ])
    };
    plan.variants.iter().enumerate().filter_map(row).collect()
}

fn describe(plan: &Plan, point: &Point) -> String {
    let machine = plan.machines.get(point.machine).filter(|_| plan.machines.len() > 1);
    let machine = machine.map_or(String::new(), |machine| format!("{}: ", machine.name));
    format!("{machine}{} threads, {}", point.threads, point.text)
}

/// What the columns mean, and the mechanisms that nothing depends on.
fn legend(plan: &Plan, results: &Results) -> String {
    let mut text = format!(
        "mean: throughput as a share of {}'s, medians of {} runs, geometric mean over the points. behind, ahead: at how\n\
         many points the share is more than {:.0}% off, and all runs of one are ahead of all runs of the other; the worst and\n\
         the best of these. processor: processor time for each operation, likewise. none: what chance does.\n",
        plan.subject.name(),
        plan.runs,
        MATTERS * 100.0
    );
    let variants = plan.variants[YARDSTICKS..].iter().map(|(_, variant)| variant.mechanism);
    // Only what was measured everywhere can be worth nothing everywhere.
    let whole = |summary: &Summary| summary.points == plan.points.len() && results.interrupted.is_none();
    let worthless = |mechanism: &&str| {
        let mine = |index: &usize| plan.variants[*index].1.mechanism == *mechanism;
        (YARDSTICKS..plan.variants.len()).filter(mine).all(|index| {
            Summary::new(plan, results, index).is_some_and(|summary| whole(&summary) && summary.behind == 0)
        })
    };
    let mechanisms = distinct(&variants.collect::<Vec<_>>());
    let worthless: Vec<_> = mechanisms.into_iter().filter(worthless).collect();
    if !worthless.is_empty() {
        text += &format!("Worth less than {:.0}% everywhere: {}.\n", MATTERS * 100.0, worthless.join(", "));
    }
    if results.interrupted.is_some() {
        text += "Interrupted; this is what was measured until then.\n";
    }
    for failure in &results.failures {
        text += &format!("FAILED: {failure}\n");
    }
    text
}

/// Each of the names once, in their order.
pub fn distinct(names: &[&'static str]) -> Vec<&'static str> {
    let mut distinct: Vec<&'static str> = Vec::new();
    for name in names {
        if !distinct.contains(name) {
            distinct.push(name);
        }
    }
    distinct
}

/// For people.
pub fn text(plan: &Plan, results: &Results) -> String {
    let mut table = table::new(HEAD);
    table.add_rows(rows(plan, results));
    table::right(&mut table, (0..HEAD.len()).filter(|column| NUMBERS[*column]));
    format!(
        "{} without each of its parts\n{}; {} s each\n\n{}\n\n{}",
        plan.subject.name(),
        plan.machine(),
        plan.length.as_secs_f64(),
        table.trim_fmt(),
        legend(plan, results)
    )
}

/// The same table, and below it every variant's share at every point.
pub fn markdown(plan: &Plan, results: &Results) -> String {
    let mut page =
        format!("# {} without each of its parts\n\n{}\n", plan.subject.name(), legend(plan, results));
    page += &markdown_head(&HEAD, |column| NUMBERS[column]);
    rows(plan, results).iter().for_each(|row| page += &markdown_row(row));
    page += "\n## Every point\n\nThe columns are the variants, by their numbers:\n\n";
    for (number, (_, variant)) in plan.variants.iter().enumerate().skip(1) {
        page += &format!("{number}. {}: {}\n", variant.mechanism, variant.change);
    }
    for machine in 0..plan.machines.len().max(1) {
        if let Some(machine) = plan.machines.get(machine) {
            page += &format!("\n### {}\n", machine.name);
        }
        let numbers = (1..plan.variants.len()).map(|number| number.to_string());
        page.push('\n');
        let head: Vec<String> =
            ["point", "threads", "op/s"].map(str::to_owned).into_iter().chain(numbers).collect();
        page += &markdown_row(&head);
        page += &format!("|---|---:|---:{}|\n", "|---:".repeat(plan.variants.len() - 1));
        for (index, point) in plan.points.iter().enumerate().filter(|(_, point)| point.machine == machine) {
            let share =
                |variant| results.share(index, variant).map_or("-".into(), |share| format!("{share:.2}"));
            let rate = results.rate(index, 0).map_or("-".into(), crate::measure::report::rate);
            let shares = (1..plan.variants.len()).map(share);
            let row = [point.text.clone(), point.threads.to_string(), rate].into_iter().chain(shares);
            page += &markdown_row(&row.collect::<Vec<_>>());
        }
    }
    page
}

#[derive(Serialize)]
struct Document<'a> {
    latchwork: &'static str,
    lock: &'static str,
    machine: String,
    seconds: f64,
    runs: u32,
    interrupted: bool,
    failures: &'a [String],
    points: Vec<OnePoint<'a>>,
}

#[derive(Serialize)]
struct OnePoint<'a> {
    machine: Option<&'a str>,
    threads: usize,
    settings: BTreeMap<&'static str, &'a str>,
    variants: Vec<OneVariant>,
}

#[derive(Serialize)]
struct OneVariant {
    mechanism: &'static str,
    change: &'static str,
    ops_per_s: Option<f64>,
    spread: Option<f64>,
    share: Option<f64>,
    processor_share: Option<f64>,
    longest_wait_ns: f64,
}

/// Every number.
pub fn json(plan: &Plan, results: &Results) -> String {
    let variant = |point, index: usize| {
        let Variant { mechanism, change } = plan.variants[index].1;
        let runs = results.runs(point, index);
        let rates = results.rates(point, index);
        OneVariant {
            mechanism,
            change,
            ops_per_s: results.rate(point, index),
            spread: (!rates.is_empty()).then(|| stats::spread(&rates)),
            share: results.share(point, index),
            processor_share: results.processor(point, index),
            longest_wait_ns: runs.iter().map(|run| run.longest).fold(0.0, f64::max),
        }
    };
    let points = plan.points.iter().enumerate().map(|(index, point)| OnePoint {
        machine: plan.machines.get(point.machine).map(|machine| machine.name.as_str()),
        threads: point.threads,
        settings: point.settings.iter().map(|(name, text, _)| (name, text)).collect(),
        variants: (0..plan.variants.len()).map(|number| variant(index, number)).collect(),
    });
    let document = Document {
        latchwork: env!("CARGO_PKG_VERSION"),
        lock: plan.subject.name(),
        machine: plan.machine(),
        seconds: plan.length.as_secs_f64(),
        runs: plan.runs,
        interrupted: results.interrupted.is_some(),
        failures: &results.failures,
        points: points.collect(),
    };
    serde_json::to_string_pretty(&document).expect("plain data") + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::Options;
    use super::super::run::Run;
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    #[test]
    fn a_mechanism_without_figures_is_not_called_worthless() {
        let line = Line::parse_from(["ablate", "shfl", "--machine", "1x2", "--only", "spin before sleep"]);
        let plan = Plan::new(&line.options).map_err(|error| error.message).unwrap();
        let mut results = Results::new(&plan);
        let is_said = |results: &Results| text(&plan, results).contains("everywhere: spin before sleep");
        assert!(!is_said(&results), "no run");
        let run = Run { rate: 1.0, longest: 1.0, processor: None };
        let variants = plan.variants.len();
        // All runs but those of the last variant at the last point.
        results.runs.iter_mut().for_each(|runs| runs.push(run));
        results.runs[plan.points.len() * variants - 1].clear();
        assert!(!is_said(&results), "a point is missing");
        results.runs[plan.points.len() * variants - 1].push(run);
        assert!(is_said(&results), "{}", text(&plan, &results));
        results.interrupted = Some(2);
        assert!(!is_said(&results), "interrupted");
    }
}

//! Locks against one of them: throughput and processor time as ratios, round by round.
//!
//! In each round the locks take turns, so the two runs that make a ratio are close to each other in time.

use super::Part;
use super::plan::Plan;
use super::results::{Place, Point, Results, Run, varied};
use latchwork_console::stats;

/// A lock that does less than this share of the other's operations does harm.
const LEAST_RATE: f64 = 0.97;
/// A lock does harm, too, if an operation takes more than this many times the other lock's user time.
const MOST_USER: f64 = 1.10;

/// What is compared.
struct Figure {
    title: &'static str,
    of: fn(&Run) -> Option<f64>,
    /// Whether a ratio is harm.
    harms: fn(f64) -> bool,
}

static FIGURES: [Figure; 2] = [
    Figure { title: "operations a second", of: |run| Some(run.rate), harms: |ratio| ratio < LEAST_RATE },
    Figure {
        title: "user time of an operation",
        of: |run| run.usage.map(|usage| run.each(usage.user_ns)),
        harms: |ratio| ratio > MOST_USER,
    },
];

/// A point's ratio to another point: the median of the rounds, the lowest and the highest.
struct Ratio {
    median: f64,
    lowest: f64,
    highest: f64,
}

impl Figure {
    fn is_known(&self, results: &Results) -> bool {
        results.points.iter().flat_map(|point| &point.runs).any(|run| (self.of)(run).is_some())
    }

    /// The ratio at `place` to lock number `against`.
    fn at(&self, results: &Results, place: Place, against: usize) -> Option<Ratio> {
        self.ratio(results.at(place), results.at(Place { lock: against, ..place }))
    }

    fn ratio(&self, point: &Point, other: &Point) -> Option<Ratio> {
        let ratios: Vec<f64> = point
            .by_rounds(other)
            .filter_map(|(run, other)| Some((self.of)(run)? / (self.of)(other)?))
            .filter(|ratio| ratio.is_finite())
            .collect();
        (!ratios.is_empty()).then(|| Ratio {
            median: stats::median(&ratios),
            lowest: stats::quantile(&ratios, 0.0),
            highest: stats::quantile(&ratios, 1.0),
        })
    }
}

/// The ratios as tables of Markdown, one for each figure, with `heading` before each; and at how many points there is no
/// harm. Nothing if no lock was chosen to compare with.
pub fn text(plan: &Plan, results: &Results, heading: &str) -> String {
    let mut text = String::new();
    let Some(against) = plan.against else { return text };
    let threads: Vec<String> = plan.threads.iter().map(usize::to_string).collect();
    for figure in FIGURES.iter().filter(|figure| figure.is_known(results)) {
        text += &format!(
            "\n{heading}{}: {} to {}\n\n| threads | {} |\n|---|{}\n",
            plan.workload.name,
            figure.title,
            plan.locks[against].name,
            threads.join(" | "),
            "---|".repeat(threads.len()),
        );
        for settings in 0..plan.settings.len() {
            for (lock, candidate) in plan.locks.iter().enumerate().filter(|(lock, _)| *lock != against) {
                let cell = |threads| match figure.at(results, Place { settings, threads, lock }, against) {
                    Some(Ratio { median, lowest, highest }) => {
                        let mark = if (figure.harms)(median) { "!" } else { "" };
                        format!("{median:.2}{mark} ({lowest:.2} .. {highest:.2})")
                    }
                    None => "-".to_owned(),
                };
                let cells: Vec<String> = (0..plan.threads.len()).map(cell).collect();
                let name = [candidate.name, &varied(plan, settings)].join(" ");
                text += &format!("| {} | {} |\n", name.trim_end(), cells.join(" | "));
            }
        }
    }
    text += "\n";
    text += &sentences(&tally(plan, results));
    text + "Medians of the rounds' ratios (lowest .. highest); `!` marks harm.\n"
}

/// At how many points of all parts there is no harm.
pub fn sum(parts: &[Part]) -> String {
    let mut sum: Vec<Tally> = Vec::new();
    for tally in parts.iter().flat_map(|part| tally(&part.plan, &part.results)) {
        match sum.iter_mut().find(|other| (other.lock, other.against) == (tally.lock, tally.against)) {
            Some(other) => {
                for (sum, more) in other.counts.iter_mut().zip(tally.counts) {
                    *sum = Count { harmless: sum.harmless + more.harmless, all: sum.all + more.all };
                }
            }
            None => sum.push(tally),
        }
    }
    sentences(&sum)
}

/// At how many points a lock does no harm.
struct Tally {
    lock: &'static str,
    against: &'static str,
    /// For each of [`FIGURES`].
    counts: [Count; FIGURES.len()],
}

/// Points without harm, and all for which there is a ratio.
#[derive(Copy, Clone)]
struct Count {
    harmless: usize,
    all: usize,
}

fn tally(plan: &Plan, results: &Results) -> Vec<Tally> {
    let Some(against) = plan.against else { return Vec::new() };
    let of_lock = |lock: usize| {
        let places = || {
            (0..plan.settings.len()).flat_map(move |settings| {
                (0..plan.threads.len()).map(move |threads| Place { settings, threads, lock })
            })
        };
        let count = |figure: &Figure| {
            let ratios: Vec<Ratio> =
                places().filter_map(|place| figure.at(results, place, against)).collect();
            let harmless = ratios.iter().filter(|ratio| !(figure.harms)(ratio.median)).count();
            Count { harmless, all: ratios.len() }
        };
        Tally {
            lock: plan.locks[lock].name,
            against: plan.locks[against].name,
            counts: FIGURES.each_ref().map(count),
        }
    };
    (0..plan.locks.len()).filter(|lock| *lock != against).map(of_lock).collect()
}

fn sentences(tallies: &[Tally]) -> String {
    let mut text = String::new();
    for Tally { lock, against, counts: [rates, users] } in tallies {
        let of = |count: &Count| format!("{} of {} points", count.harmless, count.all);
        text += &format!("{lock}: operations at least {LEAST_RATE} times {against}'s at {}", of(rates));
        if users.all > 0 {
            text += &format!(", user time at most {MOST_USER} times at {}", of(users));
        }
        text += ".\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(rates: &[f64]) -> Point {
        let runs = (0..).zip(rates).map(|(round, rate)| Run::at(*rate).of_round(round)).collect();
        Point { place: Place { settings: 0, threads: 0, lock: 0 }, runs, failure: None, cut: false }
    }

    #[test]
    fn a_ratio_is_that_of_the_same_round() {
        let rate = &FIGURES[0];
        let ratio = rate.ratio(&point(&[2.0, 30.0, 1.0]), &point(&[1.0, 10.0, 1.0])).unwrap();
        assert_eq!((ratio.median, ratio.lowest, ratio.highest), (2.0, 1.0, 3.0));
        assert!((rate.harms)(0.96) && !(rate.harms)(0.97));
        // A run that was not repeated.
        assert_eq!(rate.ratio(&point(&[3.0]), &point(&[1.0, 1.0])).unwrap().highest, 3.0);
        assert!(rate.ratio(&point(&[]), &point(&[1.0])).is_none());
        // Nobody says what the threads used.
        assert!(FIGURES[1].ratio(&point(&[1.0]), &point(&[1.0])).is_none());
    }
}

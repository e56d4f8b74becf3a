//! What was measured, and what is said about it.

use super::plan::Plan;
use latchwork_console::stats;
use latchwork_workloads::measure::Measured;
use latchwork_workloads::stage::Usage;
use std::ops::Range;

/// One measurement of a point.
#[derive(Clone, Debug)]
pub struct Run {
    /// Which of the point's rounds. All locks of a round take turns.
    pub round: u32,
    /// Operations a second.
    pub rate: f64,
    /// All operations that counted.
    pub operations: u64,
    /// How long they counted.
    pub measured_ns: u64,
    /// See [`latchwork_workloads::measure::fairness`].
    pub fairness: f64,
    /// Waits for the lock, if any was timed.
    pub waits: Option<Waits>,
    /// Operations of each thread.
    pub per_thread: Vec<u64>,
    /// What the threads used, if that is known.
    pub usage: Option<Usage>,
    /// Figures of the workload and of the machine.
    pub extra: Vec<(&'static str, f64)>,
}

/// Waits for the lock in a run, in nanoseconds.
#[derive(Copy, Clone, Debug)]
pub struct Waits {
    /// The median.
    pub p50: f64,
    /// What 99 in 100 do not exceed.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Run {
    /// A run of one thread, of which only the rate is known.
    pub fn at(rate: f64) -> Self {
        Run {
            round: 0,
            rate,
            operations: 1,
            measured_ns: 1,
            fairness: 0.5,
            waits: None,
            per_thread: vec![1],
            usage: None,
            extra: Vec::new(),
        }
    }
}

impl Run {
    /// The same, of this round.
    pub fn of_round(self, round: u32) -> Self {
        Run { round, ..self }
    }

    /// So many of a whole run, for each operation.
    pub fn each(&self, count: u64) -> f64 {
        count as f64 / self.operations.max(1) as f64
    }

    /// So many of a whole run, a second.
    pub fn a_second(&self, count: u64) -> f64 {
        count as f64 * 1e9 / self.measured_ns.max(1) as f64
    }
}

impl From<Measured> for Run {
    fn from(measured: Measured) -> Self {
        let quantile = |q| measured.waits.value_at_quantile(q) as f64;
        // Tables time no wait, and a thread may have got no lock in a short time.
        let some = !measured.waits.is_empty();
        Run {
            round: 0,
            rate: measured.rate(),
            operations: measured.operations,
            measured_ns: measured.measured_ns,
            fairness: measured.fairness,
            waits: some.then(|| Waits {
                p50: quantile(0.5),
                p99: quantile(0.99),
                max: measured.waits.max() as f64,
            }),
            usage: measured.usage,
            extra: measured.extra.iter().map(|extra| (extra.name, extra.value)).collect(),
            per_thread: measured.per_thread,
        }
    }
}

/// Where a point is in its [`Plan`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Index of the settings.
    pub settings: usize,
    /// Index of the thread count.
    pub threads: usize,
    /// Index of the lock.
    pub lock: usize,
}

/// A point and its runs.
#[derive(Clone, Debug)]
pub struct Point {
    /// Where it is.
    pub place: Place,
    /// Runs that went well.
    pub runs: Vec<Run>,
    /// Why one did not.
    pub failure: Option<String>,
    /// Whether it is not worth another run.
    pub cut: bool,
}

impl Point {
    /// The median over the runs of what `figure` says, if there are any.
    pub fn median(&self, figure: impl Fn(&Run) -> f64) -> Option<f64> {
        stats::median_of(self.runs.iter().map(figure))
    }

    /// The median over the runs of a figure of what the threads used.
    pub fn used(&self, figure: impl Fn(&Run, &Usage) -> f64) -> Option<f64> {
        stats::median_of(self.runs.iter().filter_map(|run| Some(figure(run, run.usage.as_ref()?))))
    }

    /// Operations a second, of each run.
    pub fn rates(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.rate).collect()
    }

    /// Median operations a second. None if a run failed: a lock that lost an update has no rate to compare with.
    pub fn rate(&self) -> Option<f64> {
        self.median(|run| run.rate).filter(|_| self.failure.is_none())
    }

    /// The median over the runs of a figure of the waits, if any was timed.
    pub fn wait(&self, figure: impl Fn(&Waits) -> f64) -> Option<f64> {
        stats::median_of(self.runs.iter().filter_map(|run| run.waits.as_ref().map(&figure)))
    }

    /// The point's runs, each with the other point's run of the same round. None if one of them failed.
    pub fn by_rounds<'a>(&'a self, other: &'a Point) -> impl Iterator<Item = (&'a Run, &'a Run)> {
        let well = self.failure.is_none() && other.failure.is_none();
        let pair = |run: &'a Run| Some((run, other.runs.iter().find(|other| other.round == run.round)?));
        self.runs.iter().filter(move |_| well).filter_map(pair)
    }

    /// The median of an extra figure.
    pub fn extra(&self, name: &str) -> Option<f64> {
        let of = |run: &Run| run.extra.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
        stats::median_of(self.runs.iter().filter_map(of))
    }
}

/// All points, in the order of settings, threads and locks.
pub struct Results {
    /// The points.
    pub points: Vec<Point>,
    /// A lock that does less than this share of the best in the first round has no other.
    pub cut: Option<f64>,
    /// The signal that ended it early.
    pub interrupted: Option<i32>,
    /// What it took, in seconds.
    pub took: f64,
}

impl Results {
    /// None yet.
    pub fn new(plan: &Plan) -> Self {
        let mut points = Vec::new();
        for settings in 0..plan.settings.len() {
            for threads in 0..plan.threads.len() {
                for lock in 0..plan.locks.len() {
                    let place = Place { settings, threads, lock };
                    points.push(Point { place, runs: Vec::new(), failure: None, cut: false });
                }
            }
        }
        Results { points, cut: None, interrupted: None, took: 0.0 }
    }

    /// The point at `place`.
    pub fn at(&self, place: Place) -> &Point {
        self.points.iter().find(|point| point.place == place).expect("a place of the plan")
    }

    /// The names of all extra figures, in the order in which they came up.
    pub fn extras(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        for (name, _) in self.points.iter().flat_map(|point| &point.runs).flat_map(|run| &run.extra) {
            if !names.contains(name) {
                names.push(*name);
            }
        }
        names
    }

    /// Whether any run says what its threads used.
    pub fn usage_is_known(&self) -> bool {
        self.points.iter().flat_map(|point| &point.runs).any(|run| run.usage.is_some())
    }

    /// Files a measurement.
    pub fn file(&mut self, index: usize, result: Result<Run, String>) {
        let point = &mut self.points[index];
        match result {
            Ok(run) => point.runs.push(run),
            Err(why) => {
                point.failure.get_or_insert(why);
            }
        }
    }

    /// Marks a point of `points` as cut if its first run did less than that share of the best.
    pub fn cut(&mut self, points: Range<usize>) {
        let Some(share) = self.cut else { return };
        let first = |point: &Point| point.runs.first().map_or(0.0, |run| run.rate);
        let best = self.points[points.clone()].iter().map(first).fold(0.0, f64::max);
        for point in &mut self.points[points] {
            point.cut = first(point) < best * share;
        }
    }

    /// Whether a lock failed a workload's check.
    pub fn failed(&self) -> bool {
        self.points.iter().any(|point| point.failure.is_some())
    }
}

/// The settings with values that differ between points, as `name=value`.
pub fn varied(plan: &Plan, index: usize) -> String {
    let differs = |name: &str| {
        let of = |settings: &latchwork_workloads::workload::Settings| {
            settings.iter().find(|(other, ..)| *other == name).map(|(_, text, _)| text.to_owned())
        };
        plan.settings.iter().any(|settings| of(settings) != of(&plan.settings[0]))
    };
    let varied = plan.settings[index].iter().filter(|(name, ..)| differs(name));
    varied.map(|(name, text, _)| format!("{name}={text}")).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(rounds: &[(u32, f64)]) -> Point {
        let runs = rounds.iter().map(|(round, rate)| Run::at(*rate).of_round(*round)).collect();
        Point { place: Place { settings: 0, threads: 0, lock: 0 }, runs, failure: None, cut: false }
    }

    #[test]
    fn a_point_with_a_failure_has_no_rate() {
        let fast = point(&[(0, 9.0), (2, 9.0)]);
        assert_eq!(fast.rate(), Some(9.0));
        let failed = Point { failure: Some("it lost an update".into()), ..fast };
        assert_eq!(failed.rate(), None);
        assert_eq!(failed.by_rounds(&point(&[(0, 1.0)])).count(), 0);
    }

    #[test]
    fn runs_of_the_same_round_are_compared() {
        let (one, other) = (point(&[(0, 1.0), (2, 3.0)]), point(&[(0, 10.0), (1, 20.0), (2, 30.0)]));
        let pairs: Vec<_> = one.by_rounds(&other).map(|(one, other)| (one.rate, other.rate)).collect();
        assert_eq!(pairs, [(1.0, 10.0), (3.0, 30.0)]);
    }
}

//! What was measured, and what is said about it.

use super::plan::Plan;
use latchwork_console::stats;
use latchwork_workloads::measure::Measured;
use latchwork_workloads::stage::Usage;
use std::ops::Range;

/// One measurement of a point.
#[derive(Clone, Debug)]
pub struct Run {
    /// Operations a second.
    pub rate: f64,
    /// All operations that counted.
    pub operations: u64,
    /// How long they counted.
    pub measured_ns: u64,
    /// See [`latchwork_workloads::measure::fairness`].
    pub fairness: f64,
    /// Median wait, in nanoseconds.
    pub wait_p50: f64,
    /// ... that 99 in 100 do not exceed.
    pub wait_p99: f64,
    /// ... the longest.
    pub wait_max: f64,
    /// Operations of each thread.
    pub per_thread: Vec<u64>,
    /// What the threads used, if that is known.
    pub usage: Option<Usage>,
    /// Figures of the workload and of the machine.
    pub extra: Vec<(&'static str, f64)>,
}

impl Run {
    /// A run of one thread, of which only the rate is known.
    pub fn at(rate: f64) -> Self {
        Run {
            rate,
            operations: 1,
            measured_ns: 1,
            fairness: 0.5,
            wait_p50: 1.0,
            wait_p99: 1.0,
            wait_max: 1.0,
            per_thread: vec![1],
            usage: None,
            extra: Vec::new(),
        }
    }
}

impl Run {
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
        Run {
            rate: measured.rate(),
            operations: measured.operations,
            measured_ns: measured.measured_ns,
            fairness: measured.fairness,
            wait_p50: quantile(0.5),
            wait_p99: quantile(0.99),
            wait_max: measured.waits.max() as f64,
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
        let values: Vec<f64> = self.runs.iter().map(figure).collect();
        (!values.is_empty()).then(|| stats::median(&values))
    }

    /// The median over the runs of a figure of what the threads used.
    pub fn used(&self, figure: impl Fn(&Run, &Usage) -> f64) -> Option<f64> {
        let values: Vec<f64> =
            self.runs.iter().filter_map(|run| Some(figure(run, run.usage.as_ref()?))).collect();
        (!values.is_empty()).then(|| stats::median(&values))
    }

    /// Operations a second, of each run.
    pub fn rates(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.rate).collect()
    }

    /// Median operations a second.
    pub fn rate(&self) -> Option<f64> {
        self.median(|run| run.rate)
    }

    /// The median of an extra figure.
    pub fn extra(&self, name: &str) -> Option<f64> {
        let of = |run: &Run| run.extra.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
        let values: Vec<f64> = self.runs.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| stats::median(&values))
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

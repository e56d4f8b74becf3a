//! The simulator against reality: this machine's costs are measured, every lock is measured and
//! simulated, and their orders are compared.

use super::experiment::{Effort, Experiment, On, Ready};
use super::{native, runner};
use crate::calibrate::{self, steady::Probe};
use crate::measure::results::{Point, Results};
use indicatif::ProgressBar;
use latchwork_console::failure::Result;
use latchwork_console::machine::Machine;
use latchwork_console::signals::Signals;
use latchwork_sim::{Placement, Profile};
use serde::Serialize;

/// Two locks differ if the slowest measurement of one is by this faster than the fastest of the other: where
/// luck decides whether threads fall in behind one that was preempted, medians differ from round to round.
const DIFFER: f64 = 1.2;
/// Rounds of native measurements.
const ROUNDS: u32 = 3;
/// Calibrations, if the machine never stays the same.
const CALIBRATIONS: usize = 4;
/// Simulated microseconds. There are more threads than CPUs, and one that is preempted in a queue makes the
/// others fall in behind it: a convoy, which stays for good, but takes some quanta to come about.
const MICROS: u64 = 100_000;

/// The experiments; their machine is this one.
pub fn experiments() -> Vec<Experiment> {
    let of = |id, workload| Experiment {
        id,
        workload,
        on: On::Simulated("this-machine"),
        locks: &["all"],
        threads: "1,2,4",
        set: &[],
        placement: Placement::FirstFill,
        micros: Some(MICROS),
        unknown: &[],
    };
    vec![of("this-counter", "counter"), of("this-hash-table", "hash-table")]
}

/// Calibrates this machine and measures all points on it, until it stays the same during both; less if a
/// signal came.
pub fn measure(effort: &Effort, signals: &Signals, bar: &ProgressBar) -> Result<Measured> {
    let machine = Machine::here();
    for calibration in 1.. {
        let (profile, probe) = calibrate::profile(|what| {
            bar.set_message(format!("measuring {what}"));
            bar.tick();
        })?;
        let ready: Vec<Ready> = experiments()
            .iter()
            .map(|experiment| Ready::on(experiment, profile.clone(), effort))
            .collect::<Result<_>>()?;
        bar.set_position(0);
        bar.set_length((measurements(&ready) + runner::runs(&ready)) as u64);
        let results = ready.iter().map(|one| Results::new(&one.plan)).collect();
        let (machine, load_average) = (machine.line(), machine.load_average);
        let mut measured =
            Measured { machine, load_average, profile, ready, results, unsteady: Some(0), signal: None };
        measured.fill(&probe, calibration == CALIBRATIONS, signals, bar);
        if measured.signal.is_some() || measured.unsteady == Some(0) || calibration == CALIBRATIONS {
            return Ok(measured);
        }
    }
    unreachable!("there is a last calibration")
}

/// How many native measurements there will be.
fn measurements(ready: &[Ready]) -> usize {
    ready.iter().map(|one| Results::new(&one.plan).points.len()).sum::<usize>() * ROUNDS as usize
}

/// What was measured on a machine.
pub struct Measured {
    /// Processor, kernel and C library.
    pub machine: String,
    /// CPUs that other programs used, when the measurement began.
    pub load_average: f64,
    /// What it costs.
    pub profile: Profile,
    /// The experiments, to be simulated on a machine with that profile.
    pub ready: Vec<Ready>,
    /// Of each experiment.
    pub results: Vec<Results>,
    /// Rounds of all locks during which the machine did not stay the same; none if that was not watched.
    pub unsteady: Option<usize>,
    /// What ended it.
    pub signal: Option<i32>,
}

impl Measured {
    /// Measures all points; if it is not the `last` calibration, until the machine is another.
    fn fill(&mut self, probe: &Probe, last: bool, signals: &Signals, bar: &ProgressBar) {
        for round in 0..ROUNDS {
            for (one, results) in self.ready.iter().zip(&mut self.results) {
                for first in (0..results.points.len()).step_by(one.plan.locks.len().max(1)) {
                    let place = results.points[first].place;
                    let measured = native::measure_steadily(&one.plan, place, round, probe, signals, bar);
                    let (runs, steady) = match measured {
                        Ok(measured) => measured,
                        Err(signal) => return self.signal = Some(signal),
                    };
                    self.unsteady = self.unsteady.map(|rounds| rounds + usize::from(!steady));
                    if !steady && !last {
                        return;
                    }
                    bar.inc(runs.len() as u64);
                    runs.into_iter().for_each(|(lock, run)| results.file(first + lock, run));
                }
            }
        }
    }
}

/// A pair that measures otherwise than it simulates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// On which workload.
    pub workload: &'static str,
    /// With how many threads.
    pub threads: usize,
    /// What is faster when it is measured.
    pub faster: &'static str,
    /// What is slower.
    pub slower: &'static str,
    /// The measured rate of the faster over the slower.
    pub measured: f64,
    /// The same, simulated.
    pub simulated: f64,
}

/// A lock, measured and simulated.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// On which workload.
    pub workload: &'static str,
    /// With how many threads.
    pub threads: usize,
    /// Which.
    pub lock: &'static str,
    /// Operations a second.
    pub measured: Option<f64>,
    /// Same.
    pub simulated: Option<f64>,
}

/// What came out.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Comparison {
    /// The machine.
    pub machine: String,
    /// CPUs that other programs used, when the measurement began.
    pub load_average: f64,
    /// What its costs were measured to be, as a profile.
    pub profile: String,
    /// Rounds of all locks during which those costs did not stay the same; none if that was not watched.
    pub unsteady: Option<usize>,
    /// Pairs that differ by enough.
    pub pairs: usize,
    /// Those that are in the same order.
    pub agree: usize,
    /// The same two numbers if medians decide which pairs differ.
    pub by_medians: [usize; 2],
    /// The pairs that are in another order.
    pub disagree: Vec<Pair>,
    /// Everything.
    pub rows: Vec<Row>,
}

impl Comparison {
    /// Of the measured with the simulated results of the same plans.
    pub fn new(measured: &Measured, simulated: &[Results]) -> Self {
        let mut comparison = Comparison {
            machine: measured.machine.clone(),
            load_average: measured.load_average,
            profile: measured.profile.to_toml(),
            unsteady: measured.unsteady,
            ..Comparison::default()
        };
        for ((one, measured), simulated) in measured.ready.iter().zip(&measured.results).zip(simulated) {
            let plan = &one.plan;
            let locks = plan.locks.len().max(1);
            let groups = measured.points.chunks(locks).zip(simulated.points.chunks(locks));
            for (measured, simulated) in groups {
                let group = Group {
                    workload: plan.workload.name,
                    threads: plan.threads[measured[0].place.threads],
                    names: plan.locks.iter().map(|lock| lock.name).collect(),
                };
                comparison.add(&group, measured, simulated);
            }
        }
        comparison
    }

    fn add(&mut self, group: &Group, measured: &[Point], simulated: &[Point]) {
        for (at, name) in group.names.iter().enumerate() {
            self.rows.push(Row {
                workload: group.workload,
                threads: group.threads,
                lock: name,
                measured: measured[at].rate(),
                simulated: simulated[at].rate(),
            });
            for other in 0..group.names.len() {
                let (Some(fast), Some(slow)) = (measured[at].rate(), measured[other].rate()) else {
                    continue;
                };
                let (Some(ours), Some(others)) = (simulated[at].rate(), simulated[other].rate()) else {
                    continue;
                };
                let agree = ours > others;
                if fast > DIFFER * slow {
                    self.by_medians[0] += 1;
                    self.by_medians[1] += usize::from(agree);
                }
                let least = measured[at].rates().into_iter().fold(f64::INFINITY, f64::min);
                let most = measured[other].rates().into_iter().fold(0.0, f64::max);
                if least <= DIFFER * most {
                    continue;
                }
                self.pairs += 1;
                if agree {
                    self.agree += 1;
                    continue;
                }
                self.disagree.push(Pair {
                    workload: group.workload,
                    threads: group.threads,
                    faster: name,
                    slower: group.names[other],
                    measured: fast / slow,
                    simulated: ours / others,
                });
            }
        }
    }

    /// All of it but the pairs.
    pub fn sentence(&self) -> String {
        let mut text = format!(
            "Measured on {} (load average {} before). Of {} pairs whose medians differ by over 20%, {} ({:.1}%) are in the \
             same order in the simulator. Of {} that differ by over 20% in each of {ROUNDS} rounds, {} ({:.1}%) are.",
            self.machine,
            self.load_average,
            self.by_medians[0],
            self.by_medians[1],
            100.0 * self.share().unwrap_or_default(),
            self.pairs,
            self.agree,
            100.0 * share(self.pairs, self.agree).unwrap_or_default(),
        );
        if let Some(unsteady) = self.unsteady {
            text += &format!(
                " In {unsteady} of the rounds the machine's cache lines did not take the time that they took when it was \
                 calibrated."
            );
        }
        text
    }

    /// The share of the pairs that agree, if there are any.
    pub fn share(&self) -> Option<f64> {
        share(self.by_medians[0], self.by_medians[1])
    }
}

fn share(pairs: usize, agree: usize) -> Option<f64> {
    (pairs > 0).then(|| agree as f64 / pairs as f64)
}

/// Locks that are compared with each other.
struct Group {
    workload: &'static str,
    threads: usize,
    names: Vec<&'static str>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::results::{Place, Run};

    fn points(rates: &[f64]) -> Vec<Point> {
        let point = |(lock, rate): (usize, &f64)| Point {
            place: Place { settings: 0, threads: 0, lock },
            runs: vec![Run::at(*rate)],
            failure: None,
            cut: false,
        };
        rates.iter().enumerate().map(point).collect()
    }

    fn compare(measured: &[f64], simulated: &[f64]) -> Comparison {
        let names = ["a", "b", "c"][..measured.len()].to_vec();
        let mut comparison = Comparison::default();
        comparison.add(&Group { workload: "w", threads: 2, names }, &points(measured), &points(simulated));
        comparison
    }

    #[test]
    fn pairs_that_differ_are_counted_once_and_those_in_another_order_are_listed() {
        let same = compare(&[30.0, 20.0, 10.0], &[3.0, 2.0, 1.0]);
        assert_eq!((same.pairs, same.agree, same.share()), (3, 3, Some(1.0)));
        let swapped = compare(&[30.0, 20.0, 10.0], &[2.0, 3.0, 1.0]);
        assert_eq!((swapped.pairs, swapped.agree), (3, 2));
        let pair = &swapped.disagree[0];
        assert_eq!((pair.faster, pair.slower, pair.measured), ("a", "b", 1.5));
        assert!(pair.simulated < 1.0);
        assert_eq!(compare(&[30.0, 20.0, 10.0], &[1.0, 2.0, 3.0]).share(), Some(0.0));
    }

    #[test]
    fn what_measures_alike_is_not_asked_about_and_a_tie_in_simulation_is_not_the_same_order() {
        assert_eq!(compare(&[11.0, 10.0], &[1.0, 2.0]).share(), None);
        assert_eq!(compare(&[13.0, 10.0], &[1.0, 1.0]).share(), Some(0.0));
    }
}

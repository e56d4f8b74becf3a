//! Measures the points of a plan on this machine. Locks take turns, so that what disturbs the machine for a while
//! disturbs all alike.

use super::experiment::{MEASURED, Ready};
use crate::calibrate::steady::Probe;
use crate::measure;
use crate::measure::plan::Plan;
use crate::measure::results::{Place, Results, Run};
use indicatif::ProgressBar;
use latchwork_console::machine::{self, Clock};
use latchwork_console::signals::Signals;
use latchwork_console::stats::{self, order};
use latchwork_workloads::native::{Options, Threads};
use latchwork_workloads::{peers, registry, topology};
use serde::{Deserialize, Serialize};
use std::time::{Duration, Instant};

/// Time of each measurement with more threads than CPUs. There the order of the scheduler's quanta, milliseconds
/// each, decides the rate, and only many quanta average it out.
const MEASURED_IN_TURNS: Duration = Duration::from_millis(250);
/// Before that.
const WARM_UP: Duration = Duration::from_millis(10);
/// Turns of all experiments in a round. Each makes its tables anew, and where the pages of a large one happen to lie is a
/// matter of a tenth. A rule compares what was measured in the same turn.
pub const TURNS: u32 = 3;
/// Measurements of the same lock until the machine stays the same during one.
const ATTEMPTS: usize = 4;
/// How long to wait after a measurement until the processors are where they were. A hypervisor that had moved them moved them back
/// within seconds, or not for minutes.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two looks, which take a few milliseconds each.
const BETWEEN_PROBES: Duration = Duration::from_millis(100);

/// What the machine was like while experiments were measured on it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Conditions {
    /// How long a load of a line took that the other CPU had, before each turn of all locks, in nanoseconds.
    pub transfer_ns: Vec<f64>,
    /// Turns of all locks during which that changed.
    pub unsteady: usize,
    /// The share of the CPUs that other programs had during each.
    pub others: Vec<f64>,
}

impl Conditions {
    /// A run of each lock in a turn.
    fn measure(
        &mut self,
        plan: &Plan,
        place: Place,
        turn: u32,
        signals: &Signals,
        bar: &ProgressBar,
    ) -> Result<Vec<(usize, Outcome)>, i32> {
        let (probe, clock, own) = (Probe::new(), Clock::now(), own_seconds());
        let (runs, steady) = measure_steadily(plan, place, turn, &probe, signals, bar)?;
        self.transfer_ns.push(probe.nanos());
        self.unsteady += usize::from(!steady);
        self.others.push(clock.others_share(Clock::now(), own_seconds() - own));
        let numbered = |(lock, outcome): (usize, Outcome)| (lock, outcome.map(|run| run.of_round(turn)));
        Ok(runs.into_iter().map(numbered).collect())
    }

    /// For the reader, if anything was measured.
    pub fn sentence(&self) -> Option<String> {
        if self.transfer_ns.is_empty() {
            return None;
        }
        let least = self.transfer_ns.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.transfer_ns.iter().copied().fold(0.0, f64::max);
        let busiest = self.others.iter().copied().fold(0.0, f64::max);
        let others = format!(
            "Other programs had {:.0}% of its CPUs (median over the turns of all locks), at most {:.0}%.",
            100.0 * stats::median(&self.others),
            100.0 * busiest
        );
        if most == 0.0 {
            return Some(others); // there is one CPU
        }
        Some(format!(
            "{others} A cache line took {least:.0} to {most:.0} ns from one CPU to the other; in {} of {} turns that changed.",
            self.unsteady,
            self.transfer_ns.len()
        ))
    }
}

/// Measures all points of those experiments that run on this machine, one turn after the other, and files the
/// results, which are in the order of the experiments. Returns the signal that ended it.
pub fn run(
    experiments: &[Ready],
    results: &mut [Results],
    signals: &Signals,
    bar: &ProgressBar,
) -> (Conditions, Option<i32>) {
    let mut conditions = Conditions::default();
    let rounds = experiments.iter().map(|ready| ready.plan.runs).max().unwrap_or(0);
    for turn in 0..rounds * TURNS {
        let here = experiments.iter().zip(&mut *results).filter(|(ready, _)| ready.how.is_none());
        for (ready, results) in here {
            let locks = ready.plan.locks.len();
            for first in (0..results.points.len()).step_by(locks.max(1)) {
                let place = results.points[first].place;
                if ready.plan.threads[place.threads] <= machine::cpus() {
                    match conditions.measure(&ready.plan, place, turn, signals, bar) {
                        Ok(runs) => {
                            runs.into_iter().for_each(|(lock, run)| results.file(first + lock, run));
                        }
                        Err(signal) => return (conditions, Some(signal)),
                    }
                }
                // The bar counts rounds.
                bar.inc(if turn % TURNS == 0 { locks as u64 } else { 0 });
            }
        }
    }
    (conditions, None)
}

/// What this process has used of the CPUs.
fn own_seconds() -> f64 {
    // SAFETY: plain old data.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: it is there to be written to; nothing else can fail.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// A run of a point, or why there is none.
pub type Outcome = Result<Run, String>;

/// Measures each lock once, in each round another one first, and says whether the machine was the same after each
/// lock; `Err` if a signal came. A lock after which the machine is another one is measured again.
pub fn measure_steadily(
    plan: &Plan,
    place: Place,
    round: u32,
    probe: &Probe,
    signals: &Signals,
    bar: &ProgressBar,
) -> Result<(Vec<(usize, Outcome)>, bool), i32> {
    let mut runs = Vec::new();
    let mut all_steady = true;
    for lock in order(round as usize, plan.locks.len()) {
        let mut attempts = 0;
        let (outcome, steady) = loop {
            if let Some(signal) = signals.take() {
                return Err(signal);
            }
            let outcome = measure_lock(plan, place, round, lock, bar);
            attempts += 1;
            // Once the machine stays another one, the locks that follow are not waited for.
            let again = all_steady && attempts < ATTEMPTS;
            let steady = probe.same();
            if steady || !again || !wait_until_same(probe, signals, bar)? {
                break (outcome, steady);
            }
        };
        all_steady &= steady;
        runs.push((lock, outcome));
    }
    Ok((runs, all_steady))
}

/// Waits until the machine is again the one that was calibrated, and says whether it is; `Err` if a signal came.
fn wait_until_same(probe: &Probe, signals: &Signals, bar: &ProgressBar) -> Result<bool, i32> {
    bar.set_message("waiting until the processors are where they were");
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        if let Some(signal) = signals.take() {
            return Err(signal);
        }
        bar.tick();
        if probe.same() {
            return Ok(true);
        }
        std::thread::sleep(BETWEEN_PROBES);
    }
    Ok(false)
}

/// Measures one lock once.
fn measure_lock(plan: &Plan, place: Place, round: u32, lock: usize, bar: &ProgressBar) -> Outcome {
    let threads = plan.threads[place.threads];
    let candidate = plan.locks[lock];
    bar.set_message(format!("measuring {}, {threads} threads", candidate.name));
    bar.tick();
    let options = Options {
        measured: if threads > machine::cpus() { MEASURED_IN_TURNS } else { MEASURED },
        warm_up: WARM_UP,
        placement: topology::Placement::Free,
        seed: plan.seed.wrapping_add(u64::from(round)),
    };
    let stage = Threads::new(options, measure::stuck);
    let settings = &plan.settings[place.settings];
    let point = registry::Point { workload: plan.workload.name, settings, threads };
    peers::run(&point, &stage, candidate.name, candidate.kind).map(Run::from)
}

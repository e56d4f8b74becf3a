//! All points of one plan or several, on all CPUs of this machine.

use super::How;
use super::stage::{self, Simulated};
use crate::measure::interrupt;
use crate::measure::plan::Plan;
use crate::measure::progress;
use crate::measure::results::{Place, Results, Run};
use indicatif::ProgressBar;
use latchwork_console::failure::Result;
use latchwork_console::machine;
use latchwork_console::signals::Signals;
use latchwork_workloads::registry::Point;
use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A point to simulate once.
struct Job {
    /// Which of the plans it belongs to.
    plan: usize,
    /// Which of the plan's results it is.
    index: usize,
    /// Where it is in the plan.
    place: Place,
    /// Which of its runs.
    round: u32,
}

/// Simulates a plan, or as much as there is until Ctrl-C.
pub fn run(plan: &Plan, how: &How) -> Result<Results> {
    let signals = Signals::watch()?;
    let bar = progress(plan.measurements());
    bar.set_message(plan.workload.name);
    let start = Instant::now();
    let (mut all, interrupted) = run_all(&[(plan, how)], &signals, &bar, |_| ());
    bar.finish_and_clear();
    let mut results = all.pop().expect("one plan, one set of results");
    results.interrupted = interrupted;
    results.took = start.elapsed().as_secs_f64();
    Ok(results)
}

/// The results of all plans, in their order, or as many as there are until Ctrl-C; and the signal that
/// ended it. `each` hears which plan a point that is done belongs to.
pub fn run_all(
    plans: &[(&Plan, &How)],
    signals: &Signals,
    bar: &ProgressBar,
    mut each: impl FnMut(usize),
) -> (Vec<Results>, Option<i32>) {
    let mut results: Vec<Results> = plans.iter().map(|(plan, _)| Results::new(plan)).collect();
    // Filed in the order of their rounds at the end, so that the output does not depend on which simulation ended first.
    let mut done = Vec::new();
    let work = |job: &Job| {
        let (plan, how) = plans[job.plan];
        simulate(plan, how, job.place, job.round)
    };
    let interrupted = in_parallel(&jobs(plans, &results), signals, bar, work, |job, result| {
        each(job.plan);
        done.push((job.plan, job.index, job.round, result));
    });
    done.sort_by_key(|(plan, index, round, _)| (*plan, *index, *round));
    for (plan, index, _, result) in done {
        results[plan].file(index, result);
    }
    (results, interrupted)
}

/// Does `work` for each of the `jobs`, on all CPUs of this machine, and calls `done` with each result as it comes. Ends early
/// at a signal, and returns it; simulations that run then are stopped, and their results left out. A second signal ends this
/// process.
pub fn in_parallel<J: Sync, R: Send>(
    jobs: &[J],
    signals: &Signals,
    bar: &ProgressBar,
    work: impl Fn(&J) -> R + Sync,
    mut done: impl FnMut(&J, R),
) -> Option<i32> {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    let mut interrupted = None;
    thread::scope(|scope| {
        for _ in 0..machine::cpus().min(jobs.len()) {
            let sender = sender.clone();
            let (work, next, stop) = (&work, &next, &stop);
            scope.spawn(move || {
                while !stop.load(Relaxed)
                    && let Some(job) = jobs.get(next.fetch_add(1, Relaxed))
                {
                    if sender.send((job, work(job))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        loop {
            match receiver.recv_timeout(Duration::from_millis(100)) {
                // What comes after the signal may have been cut short.
                Ok(_) if interrupted.is_some() => (),
                Ok((job, result)) => {
                    bar.inc(1);
                    done(job, result);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => bar.tick(),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            if let Some(signal) = signals.take() {
                interrupt::again(interrupted);
                stop.store(true, Relaxed);
                stage::stop();
                interrupted = Some(signal);
            }
        }
    });
    interrupted
}

/// The longest first, so that no CPU is left alone with one at the end.
fn jobs(plans: &[(&Plan, &How)], results: &[Results]) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (plan, ((planned, _), results)) in plans.iter().zip(results).enumerate() {
        for (index, point) in results.points.iter().enumerate() {
            jobs.extend((0..planned.runs).map(|round| Job { plan, index, place: point.place, round }));
        }
    }
    jobs.sort_by_key(|job| {
        let (plan, how) = plans[job.plan];
        // An operation of a thread that has a processor takes about as long everywhere.
        Reverse(plan.threads[job.place.threads].min(how.profile.cpus()) as u64 * how.measured_ns)
    });
    jobs
}

/// Simulates one point of a plan once.
pub fn simulate(plan: &Plan, how: &How, place: Place, round: u32) -> std::result::Result<Run, String> {
    let lock = &plan.locks[place.lock];
    let stage = Simulated::new(how, plan.seed.wrapping_add(u64::from(round)));
    let settings = &plan.settings[place.settings];
    let threads = plan.threads[place.threads];
    let point = Point { workload: plan.workload.name, settings, threads };
    let measured = point.run_named(&stage, lock.name, lock.kind)?;
    Ok(Run::from(stage.explain(measured)).of_round(round))
}

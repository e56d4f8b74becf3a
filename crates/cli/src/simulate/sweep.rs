//! All points of a plan, on all CPUs of this machine.

use super::How;
use super::stage::Simulated;
use crate::bench::plan::Plan;
use crate::bench::progress;
use crate::bench::results::{Place, Results, Run};
use crate::compare::machine;
use crate::compare::signals::Signals;
use crate::failure::{Failure, Result};
use latchwork_workloads::registry::Point;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A point to simulate once.
pub struct Job {
    /// Which of the results it is.
    pub index: usize,
    /// Where it is in the plan.
    pub place: Place,
    /// Which of its runs.
    pub round: u32,
}

/// Simulates them all, or as many as there are until Ctrl-C.
pub fn run(plan: &Plan, how: &How) -> Result<Results> {
    let mut results = Results::new(plan);
    let signals = Signals::watch().map_err(|error| Failure::new(format!("signalfd: {error}")))?;
    let jobs = jobs(plan, &results);
    let bar = progress(jobs.len());
    bar.set_message(plan.workload.name);
    let start = Instant::now();
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..machine::cpus().min(jobs.len()) {
            let sender = sender.clone();
            let (jobs, next, stop) = (&jobs, &next, &stop);
            scope.spawn(move || {
                while !stop.load(Relaxed)
                    && let Some(job) = jobs.get(next.fetch_add(1, Relaxed))
                {
                    if sender.send((job.index, job.round, simulate(plan, how, job))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(sender);
        // Filed in the order of their rounds at the end, so that the output does not depend on who
        // was first.
        let mut done = Vec::new();
        loop {
            match receiver.recv_timeout(Duration::from_millis(100)) {
                Ok(one) => {
                    bar.inc(1);
                    done.push(one);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => bar.tick(),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            if let Some(signal) = signals.take() {
                stop.store(true, Relaxed);
                results.interrupted = Some(signal);
            }
        }
        done.sort_by_key(|(index, round, _)| (*index, *round));
        done.into_iter().for_each(|(index, _, result)| results.file(index, result));
    });
    bar.finish_and_clear();
    results.took = start.elapsed().as_secs_f64();
    Ok(results)
}

/// The longest first, so that no CPU is left alone with one at the end.
fn jobs(plan: &Plan, results: &Results) -> Vec<Job> {
    let all = results.points.iter().enumerate();
    let mut jobs: Vec<Job> = all
        .flat_map(|(index, point)| (0..plan.runs).map(move |round| Job { index, place: point.place, round }))
        .collect();
    jobs.sort_by_key(|job| std::cmp::Reverse(plan.threads[job.place.threads]));
    jobs
}

/// Simulates one.
pub fn simulate(plan: &Plan, how: &How, job: &Job) -> std::result::Result<Run, String> {
    let lock = &plan.locks[job.place.lock];
    let stage = Simulated::new(how, plan.seed.wrapping_add(u64::from(job.round)));
    let settings = &plan.settings[job.place.settings];
    let threads = plan.threads[job.place.threads];
    let point = Point { workload: plan.workload.name, settings, threads };
    let measured = point.run_named(&stage, lock.name, lock.kind)?;
    Ok(Run::from(stage.explain(measured)))
}

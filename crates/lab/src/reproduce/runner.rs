//! Runs experiments, simulated ones on all CPUs of this machine, and finds the figures of the rules in the results.

use super::experiment::Ready;
use super::native::{self, Conditions};
use super::rule::Figure;
use crate::measure::results::{Place, Point, Results};
use crate::simulate::sweep;
use indicatif::ProgressBar;
use latchwork::registry::Entry;
use latchwork_console::machine;
use latchwork_console::names;
use latchwork_console::signals::Signals;

/// How many points there are to run.
pub fn measurements(experiments: &[Ready]) -> usize {
    experiments.iter().map(|ready| ready.plan.measurements()).sum()
}

/// What came out.
pub struct Ran {
    /// The results of all experiments, in their order, or as many as there are until Ctrl-C.
    pub results: Vec<Results>,
    /// What this machine was like, where experiments were measured on it.
    pub conditions: Conditions,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

/// Runs all experiments: first those on this machine, as long as nothing else of ours is running.
pub fn run(experiments: &[Ready], signals: &Signals, bar: &ProgressBar) -> Ran {
    let mut results: Vec<Results> = experiments.iter().map(|ready| Results::new(&ready.plan)).collect();
    let (conditions, mut signal) = native::run(experiments, &mut results, signals, bar);
    if signal.is_none() {
        let simulated: Vec<usize> =
            (0..experiments.len()).filter(|at| experiments[*at].how.is_some()).collect();
        let ready = |at: &usize| Some((&experiments[*at].plan, experiments[*at].how.as_ref()?));
        let plans: Vec<_> = simulated.iter().filter_map(ready).collect();
        let name = |index: usize| bar.set_message(experiments[simulated[index]].experiment.id);
        let (swept, ended) = sweep::run_all(&plans, signals, bar, name);
        simulated.into_iter().zip(swept).for_each(|(at, swept)| results[at] = swept);
        signal = ended;
    }
    Ran { results, conditions, signal }
}

/// A figure of one of the runs.
pub fn figure(
    experiments: &[Ready],
    results: &[Results],
    agreement: Option<f64>,
    figure: &Figure,
    run: usize,
) -> Result<f64, String> {
    let registered = |lock: &str, bytes: fn(&Entry) -> usize| {
        let entry = names::registered().into_iter().find(|entry| entry.info.name == lock);
        let entry = entry.ok_or_else(|| format!("there is no lock called {lock}"))?;
        Ok(bytes(&entry) as f64)
    };
    match figure {
        Figure::LockBytes(lock) => return registered(lock, |entry| entry.bytes),
        Figure::WaiterBytes(lock) => return registered(lock, |entry| entry.info.waiter_bytes),
        Figure::HolderBytes(lock) => return registered(lock, |entry| entry.info.holder_bytes),
        Figure::PthreadMutexBytes => return Ok(size_of::<libc::pthread_mutex_t>() as f64),
        Figure::Agreement => return agreement.ok_or_else(|| "nothing was measured".into()),
        _ => (),
    }
    let at = figure.at().expect("all others have a point");
    let place = experiments.iter().position(|ready| ready.experiment.id == at.experiment);
    let place = place.ok_or_else(|| format!("{} was not run", at.experiment))?;
    let point = self::point(&experiments[place], &results[place], at.lock, at.threads, &at.set)
        .ok_or_else(|| format!("{} has no point {at:?}", at.experiment))?;
    let cpus = machine::cpus();
    if experiments[place].how.is_none() && at.threads > cpus {
        return Err(format!("it needs {} CPUs, and this machine has {cpus}", at.threads));
    }
    let Some(one) = point.runs.get(run) else {
        let why = point.failure.as_deref().unwrap_or("the run was interrupted");
        return Err(format!("{} with {} threads: {why}", at.lock, at.threads));
    };
    match figure {
        Figure::PerThread(_) => Ok(one.rate / at.threads as f64),
        Figure::Fairness(_) => Ok(one.fairness),
        Figure::Extra(name, _) => {
            let found = one.extra.iter().find(|(other, _)| other == name);
            found.map(|(_, value)| *value).ok_or_else(|| format!("the workload has no figure {name:?}"))
        }
        _ => Ok(one.rate),
    }
}

/// The point with this lock, so many threads, and this parameter (`name=value`; may be empty).
fn point<'a>(
    ready: &Ready,
    results: &'a Results,
    lock: &str,
    threads: usize,
    set: &str,
) -> Option<&'a Point> {
    let plan = &ready.plan;
    let lock = plan.locks.iter().position(|candidate| candidate.name == lock)?;
    let threads = plan.threads.iter().position(|count| *count == threads)?;
    let matches = |wanted: &str, settings: &latchwork_workloads::workload::Settings| {
        settings.iter().any(|(name, text, _)| wanted == format!("{name}={text}"))
    };
    let settings = plan.settings.iter().position(|settings| set.is_empty() || matches(set, settings))?;
    Some(results.at(Place { settings, threads, lock }))
}

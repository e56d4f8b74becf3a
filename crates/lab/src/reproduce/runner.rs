//! Runs experiments, simulated ones on all CPUs of this machine, and finds the figures of the rules in the results.

use super::claims::Claim;
use super::experiment::Ready;
use super::native::{self, Conditions};
use super::probe;
use super::rule::{self, Check, Figure, Value};
use super::store::Store;
use crate::measure::plan::Plan;
use crate::measure::results::{Point, Results, Run, varied};
use crate::simulate::{stage, sweep};
use indicatif::ProgressBar;
use latchwork::registry::Entry;
use latchwork_console::machine::{self, Machine};
use latchwork_console::names;
use latchwork_console::signals::Signals;
use latchwork_console::stats;
use std::cmp::Reverse;
use std::time::Instant;

/// What came out.
pub struct Ran {
    /// The results of all experiments, in their order, or as many as there are until Ctrl-C.
    pub results: Vec<Results>,
    /// What this machine was like, where experiments were measured on it.
    pub conditions: Conditions,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

/// Part `part` of `of` of the simulated runs.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 1.
    pub part: usize,
    /// How many there are.
    pub of: usize,
}

/// A point to simulate once.
struct Task {
    ready: usize,
    index: usize,
    round: u32,
    key: String,
}

/// Runs all experiments: first those on this machine, as long as nothing else of ours is running.
pub fn run(
    experiments: &[Ready],
    store: &Store,
    shard: Option<Shard>,
    signals: &Signals,
    bar: &ProgressBar,
) -> Ran {
    let mut results: Vec<Results> = experiments.iter().map(|ready| Results::new(&ready.plan)).collect();
    let (conditions, mut signal) = match shard {
        // What is measured is measured by the run that prints it.
        Some(_) => (Conditions::default(), None),
        None if store.is_frozen() => (measured_before(experiments, &mut results, store), None),
        None => native::run(experiments, &mut results, signals, bar),
    };
    if signal.is_none() {
        signal = simulate(experiments, &mut results, store, shard, signals, bar);
    }
    Ran { results, conditions, signal }
}

/// Writes what was measured on this machine to the file.
pub fn keep_measured(
    experiments: &[Ready],
    results: &[Results],
    store: &Store,
    machine: &Machine,
    conditions: &Conditions,
) {
    if conditions.sentence().is_none() {
        return; // nothing was measured
    }
    for (ready, results) in experiments.iter().zip(results).filter(|(ready, _)| ready.how.is_none()) {
        for point in &results.points {
            for run in &point.runs {
                store.put(&key(ready, point, run.round), Ok(run.clone()), 0.0).expect("it went well");
            }
            if let Some(why) = &point.failure {
                // Each turn that went well has a key of its own: this is none of them.
                let _ = store.put(&key(ready, point, u32::MAX), Err(why.clone()), 0.0);
            }
        }
    }
    store.put_here(machine, conditions);
}

/// Files what a run before this one measured; what the machine was like.
fn measured_before(experiments: &[Ready], results: &mut [Results], store: &Store) -> Conditions {
    for (ready, results) in experiments.iter().zip(results).filter(|(ready, _)| ready.how.is_none()) {
        for index in 0..results.points.len() {
            for round in (0..ready.plan.runs * native::TURNS).chain([u32::MAX]) {
                if let Some(known) = store.get(&key(ready, &results.points[index], round)) {
                    results.file(index, known.clone().map(|run| run.of_round(round)));
                }
            }
        }
    }
    store.here().map(|here| here.conditions.clone()).unwrap_or_default()
}

/// Runs what is simulated and not known yet, and files all of it.
fn simulate(
    experiments: &[Ready],
    results: &mut [Results],
    store: &Store,
    shard: Option<Shard>,
    signals: &Signals,
    bar: &ProgressBar,
) -> Option<i32> {
    let all = tasks(experiments, results);
    let ours = |at: usize| !store.is_frozen() && shard.is_none_or(|shard| at % shard.of == shard.part - 1);
    let mut done = Vec::new();
    let mut open = Vec::new();
    for (at, task) in all.iter().enumerate() {
        match store.get(&task.key).filter(|_| experiments[task.ready].label.is_some()) {
            Some(known) => done.push((task, known.clone())),
            None if ours(at) => open.push(task),
            None => (),
        }
    }
    bar.inc((all.len() - open.len()) as u64);
    let work = |task: &&Task| {
        let ready = &experiments[task.ready];
        let start = Instant::now();
        let place = results[task.ready].points[task.index].place;
        let how = ready.how.as_ref().expect("it is simulated");
        let outcome = sweep::simulate(&ready.plan, how, place, task.round);
        match ready.label {
            // A simulation that was cut short has measured nothing.
            Some(_) if !stage::is_stopped() => store.put(&task.key, outcome, start.elapsed().as_secs_f64()),
            _ => outcome,
        }
    };
    let signal = sweep::in_parallel(&open, signals, bar, work, |task, outcome| {
        bar.set_message(experiments[task.ready].experiment.id);
        done.push((*task, outcome));
    });
    // Filed in the order of their rounds, so that the output does not depend on which simulation ended first.
    done.sort_by_key(|(task, _)| (task.ready, task.index, task.round));
    for (task, outcome) in done {
        results[task.ready].file(task.index, outcome);
    }
    signal
}

/// The points of an experiment that these values look at.
pub fn points<'a>(values: impl Iterator<Item = &'a Value>, ready: &Ready) -> Vec<usize> {
    let results = Results::new(&ready.plan);
    let places = values.flat_map(Value::figures).filter_map(Figure::at);
    let ours = places.filter(|at| at.experiment == ready.experiment.id);
    ours.filter_map(|at| index(&ready.plan, &results, at.lock, at.threads, &at.set)).collect()
}

/// How many runs there are to do or to look up.
pub fn runs(experiments: &[Ready]) -> usize {
    let of = |ready: &Ready| {
        let points = Results::new(&ready.plan).points.len();
        (0..points).map(|index| rounds(ready, index) as usize).sum::<usize>()
    };
    experiments.iter().map(of).sum()
}

/// How many runs a point has.
fn rounds(ready: &Ready, index: usize) -> u32 {
    if !ready.only.is_empty() && !ready.only.contains(&index) {
        return 0;
    }
    let again = ready.again.as_ref().is_none_or(|again| again.contains(&index));
    if again { ready.plan.runs } else { ready.plan.runs.min(1) }
}

/// The longest first, so that no CPU is left alone with one at the end.
fn tasks(experiments: &[Ready], results: &[Results]) -> Vec<Task> {
    let mut tasks = Vec::new();
    for (at, (ready, results)) in experiments.iter().zip(results).enumerate() {
        if ready.how.is_none() {
            continue;
        }
        for (index, point) in results.points.iter().enumerate() {
            tasks.extend((0..rounds(ready, index)).map(|round| {
                let key = key(ready, point, round);
                Task { ready: at, index, round, key }
            }));
        }
    }
    tasks.sort_by_key(|task| {
        let ready = &experiments[task.ready];
        let how = ready.how.as_ref().expect("it is simulated");
        let threads = ready.plan.threads[results[task.ready].points[task.index].place.threads];
        // An operation of a thread that has a processor takes about as long everywhere.
        Reverse(threads.min(how.profile.cpus()) as u64 * how.measured_ns)
    });
    tasks
}

/// Under which a run is filed: all that decides what comes out.
fn key(ready: &Ready, point: &Point, round: u32) -> String {
    let plan = &ready.plan;
    format!(
        "{}|{}|{}|{}|{}|{}|{}|{}",
        ready.experiment.id,
        ready.experiment.command(),
        ready.label.as_deref().unwrap_or_default(),
        plan.locks[point.place.lock].name,
        plan.threads[point.place.threads],
        varied(plan, point.place.settings),
        ready.measured_ns(),
        plan.seed.wrapping_add(u64::from(round))
    )
}

/// What comes from elsewhere than the experiments.
#[derive(Default)]
pub struct Known {
    /// Of the comparison with measurements.
    pub agreement: Option<f64>,
    /// What the claims ask the simulator beside the workloads.
    pub probes: probe::Answers,
}

/// A figure of one of the runs.
pub fn figure(
    experiments: &[Ready],
    results: &[Results],
    known: &Known,
    figure: &Figure,
    run: usize,
) -> Result<f64, String> {
    let Some(at) = figure.at() else { return without_experiment(known, figure, run) };
    let place = experiments.iter().position(|ready| ready.experiment.id == at.experiment);
    let place = place.ok_or_else(|| format!("{} was not run", at.experiment))?;
    figure_of(&experiments[place], &results[place], figure, run)
}

/// A figure that needs no run of an experiment.
fn without_experiment(known: &Known, figure: &Figure, run: usize) -> Result<f64, String> {
    let registered = |lock: &str, bytes: fn(&Entry) -> usize| {
        let entry = names::registered().into_iter().find(|entry| entry.info.name == lock);
        let entry = entry.ok_or_else(|| format!("there is no lock called {lock}"))?;
        Ok(bytes(&entry) as f64)
    };
    match figure {
        Figure::LockBytes(lock) => registered(lock, |entry| entry.bytes),
        Figure::WaiterBytes(lock) => registered(lock, |entry| entry.info.waiter_bytes),
        Figure::HolderBytes(lock) => registered(lock, |entry| entry.info.holder_bytes),
        Figure::PthreadMutexBytes => Ok(size_of::<libc::pthread_mutex_t>() as f64),
        Figure::Probe(probe) => known.probes.get(*probe, run),
        _ => known.agreement.ok_or_else(|| "nothing was measured".into()),
    }
}

/// A figure of one of the runs of an experiment.
pub fn figure_of(ready: &Ready, results: &Results, figure: &Figure, run: usize) -> Result<f64, String> {
    let Some(at) = figure.at() else { return without_experiment(&Known::default(), figure, run) };
    let index = index(&ready.plan, results, at.lock, at.threads, &at.set)
        .ok_or_else(|| format!("{} has no point {at:?}", at.experiment))?;
    let point = &results.points[index];
    let cpus = machine::cpus();
    if ready.how.is_none() && at.threads > cpus {
        return Err(format!("it needs {} CPUs, and this machine has {cpus}", at.threads));
    }
    // A turn in which the lock failed has no run.
    let turn = |one: &&Run| one.round as usize == run;
    let one = if ready.how.is_none() { point.runs.iter().find(turn) } else { point.runs.get(run) };
    let Some(one) = one else {
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

/// The largest ratio of two locks' rates at one point that the claim's rule looks at, if there is any that ran.
pub fn apart(experiments: &[Ready], results: &[Results], claim: &Claim) -> Option<f64> {
    let used = claim.experiments();
    let of = |(ready, results): (&Ready, &Results)| -> Option<f64> {
        let locks = ready.plan.locks.len().max(1);
        let looked_at: Vec<usize> = points(claim.checks.iter().map(|check| &check.value), ready)
            .iter()
            .map(|index| index / locks)
            .collect();
        let groups = results.points.chunks(locks).enumerate().filter(|(at, _)| looked_at.contains(at));
        let ratios = groups.filter_map(|(_, group)| {
            let rates = || group.iter().filter_map(Point::rate).filter(|rate| *rate > 0.0);
            Some(rates().max_by(f64::total_cmp)? / rates().min_by(f64::total_cmp)?)
        });
        ratios.max_by(f64::total_cmp)
    };
    let used = experiments.iter().zip(results).filter(|(ready, _)| used.contains(&ready.experiment.id));
    used.filter_map(of).max_by(f64::total_cmp)
}

/// The rate of the fastest turn over that of the slowest in the same round, of the figure of the check where that is largest: the
/// median over the rounds. None for what is not measured here.
pub fn spread(experiments: &[Ready], results: &[Results], check: &Check) -> Option<f64> {
    let of = |figure: &&Figure| -> Option<f64> {
        let at = figure.at()?;
        let place = experiments.iter().position(|ready| ready.experiment.id == at.experiment)?;
        let ready = &experiments[place];
        let index = index(&ready.plan, &results[place], at.lock, at.threads, &at.set)?;
        let runs = ready.how.is_none().then_some(&results[place].points[index].runs)?;
        let rounds = runs.chunk_by(|one, next| one.round / native::TURNS == next.round / native::TURNS);
        let range = |round: &[Run]| {
            let rates = || round.iter().map(|run| run.rate);
            rates().fold(0.0, f64::max) / rates().fold(f64::INFINITY, f64::min)
        };
        stats::median_of(rounds.map(range))
    };
    check.value.figures().iter().filter_map(of).max_by(f64::total_cmp)
}

/// What the simulator counts, in the order in which it is told as a reason.
const COUNTED: [&str; 5] = ["misses/op", "atomics/op", "remote", "late wakes", "parked"];

/// What the simulator counted at the two points that a check compares, where that differs: the computed part of a reason.
pub fn evidence(experiments: &[Ready], results: &[Results], check: &Check) -> Option<String> {
    let [above, below] = check.value.figures()[..] else { return None };
    let median = |figure: &Figure, name: &'static str| {
        let at = figure.at()?;
        let place = experiments.iter().position(|ready| ready.experiment.id == at.experiment)?;
        let index = index(&experiments[place].plan, &results[place], at.lock, at.threads, &at.set)?;
        results[place].points[index].extra(name)
    };
    let differ = |a: f64, b: f64| (a - b).abs() > 0.05 * a.abs().max(b.abs()) && a.max(b) >= 0.005;
    let counted = COUNTED.iter().filter_map(|name| {
        let (a, b) = (median(above, name)?, median(below, name)?);
        differ(a, b).then(|| format!("{name} {} and {}", rule::number(a), rule::number(b)))
    });
    let counted: Vec<String> = counted.collect();
    (!counted.is_empty()).then(|| counted.join(", "))
}

/// What a claim names beside its rule, as medians of the runs.
pub fn seen(
    experiments: &[Ready],
    results: &[Results],
    known: &Known,
    claim: &Claim,
    runs: usize,
) -> Vec<String> {
    let one = |value: &Value| {
        let get = |wanted: &Figure, run: usize| figure(experiments, results, known, wanted, run);
        let of = |run| value.over_turns(run, claim.turns(), &get).ok();
        let median = stats::median_of((0..runs).filter_map(of))?;
        Some(format!("{} is {}", value.text(), rule::number(median)))
    };
    claim.seen.iter().filter_map(one).collect()
}

/// Which of the points has this lock, so many threads, and this parameter (`name=value`; may be empty).
pub fn index(plan: &Plan, results: &Results, lock: &str, threads: usize, set: &str) -> Option<usize> {
    let lock = plan.locks.iter().position(|candidate| candidate.name == lock)?;
    let threads = plan.threads.iter().position(|count| *count == threads)?;
    let matches = |wanted: &str, settings: &latchwork_workloads::workload::Settings| {
        settings.iter().any(|(name, text, _)| wanted == format!("{name}={text}"))
    };
    let settings = plan.settings.iter().position(|settings| set.is_empty() || matches(set, settings))?;
    results.points.iter().position(|point| {
        let place = point.place;
        (place.settings, place.threads, place.lock) == (settings, threads, lock)
    })
}

#[cfg(test)]
mod tests {
    use super::super::claims;
    use super::super::experiment::Effort;
    use super::*;

    #[test]
    fn what_stands_beside_a_rule_may_be_a_probe() {
        let mut claim = claims::all().into_iter().find(|claim| claim.id == "bravo-scan").unwrap();
        claim.seen = vec![claim.checks[0].value.clone()];
        let asked = claim.probes()[0];
        let known = Known { probes: probe::Answers::made_up(asked, 1.5), ..Known::default() };
        assert_eq!(seen(&[], &[], &known, &claim, 1), [format!("{} is 1.5", asked.text())]);
        claim.checks.clear();
        assert_eq!(claim.probes(), [asked], "what stands beside the rule alone is asked, too");
    }

    /// Locks that differ where no rule of the claim looks do not show that they can differ where it does.
    #[test]
    fn locks_are_told_apart_where_the_rule_looks() {
        let effort = Effort { runs: 1, seconds: None, seed: 1 };
        let page_fault =
            claims::experiments().into_iter().find(|experiment| experiment.id == "page-fault").unwrap();
        let ready = Ready::find(&page_fault, &effort).map_err(|error| error.message).unwrap();
        let mut results = Results::new(&ready.plan);
        for at in 0..results.points.len() {
            let place = results.points[at].place;
            let bravo = ready.plan.locks[place.lock].name.starts_with("bravo");
            let threefold = bravo && ready.plan.threads[place.threads] == 142;
            results.file(at, Ok(Run::at(if threefold { 3.0 } else { 1.0 })));
        }
        let (ready, results) = ([ready], [results]);
        let of = |id: &str| {
            let claim = claims::all().into_iter().find(|claim| claim.id == id).unwrap();
            apart(&ready, &results, &claim)
        };
        assert_eq!(of("bravo-page-fault-few"), Some(1.0));
        assert_eq!(of("bravo-page-fault-many"), Some(3.0));
    }
}

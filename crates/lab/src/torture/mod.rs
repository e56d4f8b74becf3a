//! `latchwork-lab torture`: uses every lock as a bad day in production would, and says which locks failed.

mod child;
mod explore;
mod parent;
mod report;
mod twins;

pub use child::{One, one};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use latchwork::reclaim;
use latchwork::registry::Entry;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::signals::Signals;
use latchwork_console::{names, output};
use latchwork_torture::{Report, Settings};
use parent::{End, Job};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// After the options in `latchwork-lab torture --help`.
pub const HELP: &str = "\
What the torture does: more threads than there are processors acquire the lock in every way it has (wait,
try, wait until a deadline that mostly passes in the queue). They hold it for no time, for long, or asleep,
let other threads release it, exit and are replaced. Half of the time they are also interrupted by signals
and moved between processors while they wait, and the process forks. All of this happens to the machine
code of production, and on a machine that delays threads between any two steps of the lock.

What the torture checks: a writer is alone inside; no update is lost; no reader sees half a write; tries and
deadlines keep their promises; the condition variable over each mutex loses no notification; a lock can be
freed as soon as its last holder has released it; the child of a fork can use a lock of its own; every
thread makes progress. A copy of a sequence lock is of one moment, and not of an earlier one than the
thread's last copy. No reader of a reclamation strategy sees a reclaimed object, and every object is
reclaimed once. If no thread makes progress for --patience seconds, the torture shows the lock's memory
and what each thread is doing. It reports the longest waits and does not judge them.

Each lock has a process of its own, so a lock that stands still or crashes does not disturb the others.

Exit status: 0; 1 if a lock failed; 2 for wrong arguments; 130 after Ctrl-C, which prints the results so far.

Examples:
  latchwork-lab torture                                    every lock, 10 seconds each
  latchwork-lab torture --lock shfl --seconds 3600 --threads 32
  latchwork-lab torture --lock mcs,bravo-pf-q --json result.json
  latchwork-lab torture --lock rcu,hazard                  two ways to read without locks
  latchwork-lab torture --lock shfl --seed 7              the same random numbers, another run";

/// Options of `latchwork-lab torture`.
#[derive(Args)]
pub struct Options {
    /// Locks to torture, mutexes and reader-writer locks alike, reclamation strategies, or `all`
    #[arg(long, value_name = "NAME,..", value_delimiter = ',', default_value = "all")]
    lock: Vec<String>,
    /// Seconds for each lock
    #[arg(long, value_name = "S", default_value = "10", value_parser = seconds)]
    seconds: f64,
    /// Threads that use the lock at a time [default: 4 for each processor, at least 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
    /// Seed of all random numbers [default: from the clock]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Seconds without progress after which the lock has failed
    #[arg(long, value_name = "S", default_value = "30", value_parser = seconds)]
    patience: f64,
    /// Write everything here as JSON (- for standard output, in place of the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Explore N schedules of each lock, or of rcu-map and rcu-tree-map, on a simulated machine instead, from number --seed
    /// (or 0) on. A schedule that fails is shown step by step, and fails again when it is repeated
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), conflicts_with_all = ["seconds", "threads", "patience", "json", "self_test", "twin"])]
    explore: Option<u64>,
    /// With --explore: stop one waiting thread for ever; the lock must stay available to the others. `all` leaves out the locks
    /// that do not promise this
    #[arg(long, requires = "explore")]
    freeze: bool,
    /// Torture locks that are broken on purpose instead (or the one that --twin names), and fail if one is not caught
    #[arg(long, hide = true, conflicts_with_all = ["lock", "threads", "json"])]
    self_test: bool,
    /// Torture one lock that is broken on purpose, as if it were one of the library's
    #[arg(long, value_name = "NAME", hide = true, conflicts_with = "lock")]
    twin: Option<String>,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=1e7).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds, at least 0.01".into()),
    }
}

/// What is asked of every lock.
struct Plan {
    seconds: f64,
    threads: u32,
    seed: u64,
    patience: f64,
}

/// A lock to torture.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
struct Target {
    /// `mutex`, `rwlock`, `seqlock`, `reclamation` or `twin`.
    kind: &'static str,
    name: &'static str,
}

/// What came of it.
struct Tortured {
    target: Target,
    report: Report,
}

/// All that came out.
struct Results {
    started: SystemTime,
    locks: Vec<Tortured>,
    /// By which signal.
    interrupted: Option<i32>,
}

/// Tortures, prints, and returns the exit status.
pub fn torture(options: &Options) -> Result<i32> {
    let seed = options.seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Short enough to type again.
        now.as_nanos() as u64 % 1_000_000
    });
    if options.self_test {
        return twins::self_test(seed, options.twin.as_deref());
    }
    if let Some(schedules) = options.explore {
        return explore::explore(&options.lock, options.seed.unwrap_or(0), schedules, options.freeze);
    }
    let plan = Plan {
        seconds: options.seconds,
        threads: options.threads.unwrap_or(Settings::default_threads() as u32),
        seed,
        patience: options.patience,
    };
    let targets = match options.twin.as_deref() {
        Some(name) => vec![twins::find(name)?],
        None => choose(&options.lock)?,
    };
    if let Some(path) = options.json.as_deref() {
        output::check("--json", path)?;
    }
    let results = run(&plan, &targets)?;
    let (text, json) = (|| report::text(&plan, &results), || report::json(&plan, &results));
    output::report(options.json.as_deref(), text, json)?;
    let failed = results.locks.iter().any(|lock| lock.report.failed.is_some());
    Ok(results.interrupted.map_or(i32::from(failed), |signal| 128 + signal))
}

/// All that can be tortured: locks, the semaphore, then strategies.
fn all() -> Vec<Target> {
    let strategy = |info: reclaim::Info| Target { kind: "reclamation", name: info.name };
    let locks = names::registered().into_iter().map(Target::from);
    let semaphore = Target { kind: "semaphore", name: "semaphore" };
    locks.chain([semaphore]).chain(reclaim::STRATEGIES.map(strategy)).collect()
}

/// Those of these names.
fn choose(names: &[String]) -> Result<Vec<Target>> {
    named(all(), |target| target.name, names)
}

/// Those of `all` that are called so; `all` is the name of all.
fn named<T>(all: Vec<T>, name_of: impl Fn(&T) -> &'static str, names: &[String]) -> Result<Vec<T>> {
    let mut known: Vec<&str> = all.iter().map(&name_of).collect();
    known.push("all");
    for name in names.iter().map(|name| name.trim()) {
        if !known.contains(&name) {
            let near = names::did_you_mean(name, &known);
            return Err(Failure::usage(format!(
                "there is no lock called {name:?}{near}{} --lock can be: {}",
                if near.is_empty() { ";" } else { "" },
                known.join(", ")
            )));
        }
    }
    let wanted = |target: &T| names.iter().any(|name| ["all", name_of(target)].contains(&name.trim()));
    Ok(all.into_iter().filter(wanted).collect())
}

fn run(plan: &Plan, targets: &[Target]) -> Result<Results> {
    let signals = Signals::watch()?;
    let mut results = Results { started: SystemTime::now(), locks: Vec::new(), interrupted: None };
    let each = (plan.seconds * 1000.0) as u64;
    let bar = ProgressBar::new(each * targets.len() as u64).with_style(
        ProgressStyle::with_template("{wide_msg} {bar:30} {percent}%, {eta} left").expect("a valid template"),
    );
    for (index, &target) in targets.iter().enumerate() {
        let name = target.name;
        let before = each * index as u64;
        let job = Job { arguments: plan.arguments(target), silence: plan.silence() };
        let end = parent::run(&job, &signals, |progress| {
            bar.set_position(before + ((progress.seconds * 1000.0) as u64).min(each));
            let on = if progress.machine == "native" { "" } else { " with jitter" };
            bar.set_message(format!("{name}: {}{on}", progress.scenario));
        });
        let end = end.inspect_err(|_| bar.finish_and_clear())?;
        let (report, interrupted) = match end {
            End::Done(report, interrupted) => (report, interrupted),
            End::Killed(signal) => {
                results.interrupted = Some(signal);
                break;
            }
        };
        if let Some(failed) = &report.failed {
            bar.suspend(|| output::say(report::failure(plan, target, failed).trim_end_matches('\n')));
        }
        results.locks.push(Tortured { target, report: *report });
        results.interrupted = interrupted;
        if interrupted.is_some() {
            break;
        }
    }
    bar.finish_and_clear();
    Ok(results)
}

impl Plan {
    /// The arguments of the process that tortures `target`.
    fn arguments(&self, target: Target) -> Vec<String> {
        vec![
            "torture-one".into(),
            target.kind.into(),
            target.name.into(),
            format!("--seconds={}", self.seconds),
            format!("--threads={}", self.threads),
            format!("--seed={}", self.seed),
            format!("--patience={}", self.patience),
        ]
    }

    /// The longest time that a process may take between two messages.
    fn silence(&self) -> Duration {
        Duration::from_secs_f64(2.0 * self.patience + 60.0)
    }
}

impl From<Entry> for Target {
    fn from(entry: Entry) -> Self {
        Self { kind: entry.kind.name(), name: entry.info.name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_both_kinds_and_all() {
        let choose = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            choose(&names).map(|targets| targets.iter().map(|target| target.name).collect::<Vec<_>>())
        };
        assert_eq!(choose(&["pf-q", "mcs"]).unwrap(), ["mcs", "pf-q"]);
        assert_eq!(choose(&["rcu", "mcs", "hazard"]).unwrap(), ["mcs", "rcu", "hazard"]);
        let locks = names::registered().len();
        assert_eq!(choose(&["mcs", "all"]).unwrap().len(), locks + 1 + reclaim::STRATEGIES.len());
        let error = choose(&["mcs", "pfq"]).unwrap_err();
        assert_eq!(error.status, 2);
        assert!(error.message.contains("did you mean pf-q?"), "{}", error.message);
        assert_eq!(error.message.lines().count(), 1);
    }
}

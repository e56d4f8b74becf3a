//! `latchwork-lab bench`: measures a workload on this machine, under several locks in turn.

mod instructions;

use crate::measure::interrupt::hearing;
use crate::measure::json::About;
use crate::measure::options::{self, Common};
use crate::measure::plan::{Limits, Plan};
use crate::measure::results::{Results, Run};
use crate::measure::{Part, finish, list, progress, stuck, suite};
use clap::{Args, ValueEnum};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::machine::{self, Machine};
use latchwork_console::output;
use latchwork_console::signals::Signals;
use latchwork_console::stats::order;
use latchwork_workloads::native::{self, Stop, Threads};
use latchwork_workloads::registry::Point;
use latchwork_workloads::{peers, topology};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// After the options in `latchwork-lab bench --help`.
pub const HELP: &str = "\
At each point all locks take turns, and each round begins with another lock, so a disturbance of the
machine affects all locks alike. Threads start spread out and warm up for a fifth of the time (--warm-up)
before anything counts. Each workload checks its data: a lock that loses an update is reported as failed.

One acquisition in up to 256 is timed (every one if a thread makes fewer than one in 5 us), so that
reading the clock does not change the result; `max` is the longest timed wait.

Exit status: 0; 1 if a lock failed; 2 for wrong arguments; 130 after Ctrl-C, which prints the results so far
(a second one ends the command at once).

Examples:
  latchwork-lab bench --list                            the workloads
  latchwork-lab bench hash-table --list                 one of them, with its parameters
  latchwork-lab bench counter
  latchwork-lab bench snapshot --set writes=0,1%,10%    readers that copy: a sequence lock; others
  latchwork-lab bench hashtable --set updates=0,1%,50%  locks against RCU and hazard pointers
  latchwork-lab bench hashtable --locks rcu-map,papaya  whole maps
  latchwork-lab bench instructions                      what synchronization costs on this machine
  latchwork-lab bench rwbench --locks bravo-pf-q,pf-q,glibc --threads 1..8 --set writes=1/2,1/1000
  latchwork-lab bench harm                              does the recommended pair harm? a minute
  latchwork-lab bench yield-inside --locks shfl,mutexee --against glibc
  latchwork-lab bench counter --locks all --threads 1..64 --cut 0.1 --markdown locks.md
  latchwork-lab bench oversubscribe --locks shfl,mcs,glibc --runs 7 --json over.json --plot over.svg";

/// Locks that are compared unless the user names some.
const HANDFUL: &[&str] = &[
    "glibc",
    "parking_lot",
    "shfl",
    "mcs",
    "ttas",
    "glibc-rw",
    "parking_lot-rw",
    "pf-q",
    "bravo-pf-q",
    "shfl-rw",
];

/// Threads per CPU at most. More threads would measure the scheduler only.
const MOST_PER_CPU: usize = 64;

/// Options of `latchwork-lab bench`.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Length of each measurement [default: 0.4]
    #[arg(long, value_name = "SECS", value_parser = options::seconds, allow_negative_numbers = true)]
    seconds: Option<Duration>,
    /// Length of the warm-up before a measurement [default: a fifth of its length]
    #[arg(long, value_name = "SECS", value_parser = options::seconds, allow_negative_numbers = true)]
    warm_up: Option<Duration>,
    /// Where threads run [default: free]
    #[arg(long, value_enum)]
    placement: Option<Placement>,
    /// Measure a lock once only where it did less than this share of the best in the first round
    #[arg(long, value_name = "SHARE", value_parser = share, allow_negative_numbers = true)]
    cut: Option<f64>,
}

fn share(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err("a share of the best, from 0 to below 1, such as 0.1".into()),
    }
}

/// Where threads run.
#[derive(Copy, Clone, Debug, ValueEnum)]
enum Placement {
    /// Where the scheduler puts them
    Free,
    /// Bound to one NUMA node's CPUs after the other's
    FirstFill,
    /// Bound to one CPU of each NUMA node in turn
    RoundRobin,
}

impl Placement {
    fn native(self) -> topology::Placement {
        match self {
            Placement::Free => topology::Placement::Free,
            Placement::FirstFill => topology::Placement::FirstFill,
            Placement::RoundRobin => topology::Placement::RoundRobin,
        }
    }
}

/// Measures, prints, and returns the exit status.
pub fn bench(options: &Options) -> Result<i32> {
    let common = &options.common;
    if common.workload.as_deref() == Some(instructions::NAME) {
        return instructions::run(options);
    }
    let candidates = peers::candidates();
    if common.list {
        output::print(&list::text(common.workload.as_deref(), &candidates)?)?;
        return Ok(0);
    }
    let cpus = machine::cpus();
    let limits = Limits {
        candidates: &candidates,
        handful: HANDFUL,
        cpus,
        most_threads: MOST_PER_CPU * cpus.max(16),
        name: "this machine",
        runs: 3,
    };
    let plans = suite::plans(common, &limits)?;
    if plans.iter().any(Plan::is_far) && topology::Topology::here().nodes() < 2 {
        return Err(Failure::usage(
            "home=remote needs two NUMA nodes, and this machine has one: see latchwork-lab simulate",
        ));
    }
    let machine = Machine::here();
    let mut parts = Vec::new();
    for plan in plans {
        let results = measure(&plan, options)?;
        let interrupted = results.interrupted.is_some();
        let header = format!("{}; {} s each", machine.line(), seconds(options).as_secs_f64());
        let about = About {
            command: "bench",
            machine: serde_json::to_value(&machine).expect("plain data"),
            options: serde_json::json!({
                "seconds": seconds(options).as_secs_f64(),
                "warm_up_s": warm_up(options).as_secs_f64(),
                "placement": format!("{:?}", placement(options)),
                "cut": options.cut,
            }),
        };
        parts.push(Part { plan, results, header, about });
        if interrupted {
            break;
        }
    }
    finish(&parts, common, &machine.line())
}

fn seconds(options: &Options) -> Duration {
    options.seconds.unwrap_or(Duration::from_millis(400))
}

fn placement(options: &Options) -> Placement {
    options.placement.unwrap_or(Placement::Free)
}

fn warm_up(options: &Options) -> Duration {
    options.warm_up.unwrap_or(seconds(options) / 5)
}

fn measure(plan: &Plan, options: &Options) -> Result<Results> {
    let mut results = Results { cut: options.cut, ..Results::new(plan) };
    let signals = Signals::watch()?;
    let bar = progress(plan.measurements());
    let start = Instant::now();
    let locks = plan.locks.len();
    let stop = Arc::new(Stop::default());
    'rounds: for round in 0..plan.runs {
        for first in (0..results.points.len()).step_by(locks.max(1)) {
            if round == 1 {
                results.cut(first..first + locks);
            }
            for lock in order(round as usize, locks) {
                if let Some(signal) = signals.take() {
                    results.interrupted = Some(signal);
                    break 'rounds;
                }
                if results.points[first + lock].cut {
                    bar.inc(1);
                    continue;
                }
                let place = results.points[first + lock].place;
                let (name, kind) = (plan.locks[lock].name, plan.locks[lock].kind);
                let threads = plan.threads[place.threads];
                bar.set_message(format!("{name}, {threads} threads"));
                bar.tick();
                let stage = Threads::new(
                    native::Options {
                        measured: seconds(options),
                        warm_up: warm_up(options),
                        placement: placement(options).native(),
                        seed: plan.seed.wrapping_add(u64::from(round)),
                    },
                    stuck,
                )
                .stopped_by(stop.clone());
                let settings = &plan.settings[place.settings];
                let point = Point { workload: plan.workload.name, settings, threads };
                let run = || peers::run(&point, &stage, name, kind);
                let (result, signal) = hearing(&signals, &stop, run)?;
                if signal.is_some() {
                    results.interrupted = signal;
                    break 'rounds;
                }
                results.file(first + lock, result.map(|measured| Run::from(measured).of_round(round)));
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    results.took = start.elapsed().as_secs_f64();
    Ok(results)
}

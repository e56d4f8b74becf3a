//! `latchwork-lab simulate`: measures a workload on a simulated machine, under several locks.

pub mod stage;
pub mod sweep;

use crate::measure::json::About;
use crate::measure::options::{self, Common};
use crate::measure::plan::{Limits, Plan};
use crate::measure::{Part, finish, list, suite};
use clap::{Args, ValueEnum};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::output;
use latchwork_sim::{Adversary, Arbitration, MAX_THREADS, Profile, Sim};
use latchwork_workloads::candidate::Candidate;
use latchwork_workloads::registry::{self, List};
use std::time::Duration;

/// After the options in `latchwork-lab simulate --help`.
pub const HELP: &str = "\
The locks are the same source that runs in production. The machine under them is simulated: cache lines
that move between cores and sockets, wakeups, fences, a scheduler. Times are simulated times, and short,
because a lock settles within microseconds. The same seed gives the same numbers. The simulations of
different points run on all CPUs of this machine at once.

Beside what `latchwork-lab bench` shows, the table has: `remote`, the share of handovers between sockets;
accesses to words, cache misses and atomic operations per operation; `late wakes`, how often per
acquisition the lock was free while its next holder was still being woken; `parked`, the share of the
threads' time that they slept.

Exit status: 0; 1 if a lock failed; 2 for wrong arguments; 130 after Ctrl-C, which prints the results so far
(a second one ends the command at once).

Examples:
  latchwork-lab simulate rwbench --machine x5-2 --locks pf-q,bravo-pf-q --threads 1..72
  latchwork-lab simulate hash-table --machine 8x24 --locks tas,mcs,shfl-spin --threads 1..192
  latchwork-lab simulate counter --machine e7-8890v4 --placement round-robin --set home=local,remote
  latchwork-lab simulate interference --machine x5-2 --locks bravo-pf-q,bravo-pf-q-private \\
                     --set locks=1,8,64,512,4096,8192
  latchwork-lab simulate counter --machine my.toml --arbitration fifo     a profile of your own";

/// Locks that are compared unless the user names some.
const HANDFUL: &[&str] =
    &["tas", "ticket", "mcs", "shfl-spin", "shfl", "pf-t", "pf-q", "bravo-pf-q", "shfl-rw", "bravo-shfl-rw"];

/// Options of `latchwork-lab simulate`.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// The machine: a profile's name, a shorthand such as 8x24 or 2x18x2 (sockets x cores x hardware
    /// threads), or a TOML file
    #[arg(long, value_name = "M", required_unless_present = "list")]
    machine: Option<String>,
    /// Simulated time of each measurement [default: a few milliseconds, as the workload needs]
    #[arg(long, value_name = "SECS", value_parser = options::seconds, allow_negative_numbers = true)]
    seconds: Option<Duration>,
    /// Simulated length of the warm-up before a measurement [default: a quarter of its length]
    #[arg(long, value_name = "SECS", value_parser = options::seconds, allow_negative_numbers = true)]
    warm_up: Option<Duration>,
    /// Where threads run
    #[arg(long, value_enum, default_value_t)]
    placement: Placement,
    /// Which of several requests for a cache line is served first: fifo, random, or near:P (the nearest
    /// one with probability P)
    #[arg(long, value_name = "RULE", default_value = "near:0.8", value_parser = arbitration)]
    arbitration: Arbitration,
    /// Take threads off their processors at bad moments
    #[arg(long)]
    adversary: bool,
}

/// Where threads run.
#[derive(Copy, Clone, Default, Debug, ValueEnum)]
enum Placement {
    /// On one socket after the other
    #[default]
    FirstFill,
    /// On each socket in turn
    RoundRobin,
}

fn arbitration(text: &str) -> std::result::Result<Arbitration, String> {
    let near = || text.strip_prefix("near:")?.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    match text {
        "fifo" => Ok(Arbitration::Fifo),
        "random" => Ok(Arbitration::Random),
        _ => near()
            .map(Arbitration::Nearest)
            .ok_or_else(|| "fifo, random, or near:P with P from 0 to 1".into()),
    }
}

/// The locks that run on a simulated machine.
pub fn candidates() -> Vec<Candidate> {
    let mut list = List::default();
    registry::locks::<Sim>(&mut list);
    list.0.extend(registry::strategies::<Sim>());
    list.0
}

/// How each point is simulated.
pub struct How {
    /// The machine.
    pub profile: Profile,
    /// Placement, arbitration and so on; the seed is set for each run.
    pub options: latchwork_sim::Options,
    /// How long it counts.
    pub measured_ns: u64,
    /// How long it runs before that.
    pub warm_up_ns: u64,
}

/// Simulates, prints, and returns the exit status.
pub fn simulate(options: &Options) -> Result<i32> {
    let common = &options.common;
    let candidates = candidates();
    if common.list {
        output::print(&list::text(common.workload.as_deref(), &candidates)?)?;
        return Ok(0);
    }
    let name = options.machine.as_deref().unwrap_or_default();
    let profile = Profile::find(name).map_err(|error| Failure::usage(error.to_string()))?;
    let limits = Limits {
        candidates: &candidates,
        handful: HANDFUL,
        cpus: profile.cpus(),
        most_threads: MAX_THREADS - 1,
        name: &profile.name,
        runs: 1,
    };
    let mut parts = Vec::new();
    let machine = format!("{} ({} CPUs, simulated): {}", profile.name, profile.cpus(), profile.summary);
    let plans = suite::plans(common, &limits)?;
    if plans.iter().any(Plan::is_far) && profile.topology.sockets < 2 {
        return Err(Failure::usage(format!("home=remote needs two sockets, and {} has one", profile.name)));
    }
    for plan in plans {
        let measured = options.seconds.unwrap_or(Duration::from_micros(plan.workload.simulated_us));
        let how = How {
            options: simulation(options),
            measured_ns: nanos(measured),
            warm_up_ns: nanos(options.warm_up.unwrap_or(measured / 4)),
            profile: profile.clone(),
        };
        let results = sweep::run(&plan, &how)?;
        let interrupted = results.interrupted.is_some();
        let header = format!("{machine}; {:.3} ms each, seed {}", how.measured_ns as f64 / 1e6, plan.seed);
        let about = About {
            command: "simulate",
            machine: serde_json::json!({
                "name": profile.name,
                "summary": profile.summary,
                "cpus": profile.cpus(),
                "nodes": profile.topology.sockets,
            }),
            options: serde_json::json!({
                "seconds": how.measured_ns as f64 / 1e9,
                "warm_up_s": how.warm_up_ns as f64 / 1e9,
                "placement": format!("{:?}", options.placement),
                "arbitration": format!("{:?}", options.arbitration),
                "adversary": options.adversary,
            }),
        };
        parts.push(Part { plan, results, header, about });
        if interrupted {
            break;
        }
    }
    finish(&parts, common, &machine)
}

#[allow(clippy::field_reassign_with_default)] // latchwork_sim::Options has private fields
fn simulation(options: &Options) -> latchwork_sim::Options {
    let mut simulation = latchwork_sim::Options::default();
    simulation.adversary = options.adversary.then(Adversary::default);
    simulation.placement = match options.placement {
        Placement::FirstFill => latchwork_sim::Placement::FirstFill,
        Placement::RoundRobin => latchwork_sim::Placement::RoundRobin,
    };
    simulation.arbitration = options.arbitration;
    simulation
}

/// As the simulator counts.
pub fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).expect("an hour at most")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arbitration_is_read_or_refused() {
        assert_eq!(arbitration("fifo").unwrap(), Arbitration::Fifo);
        assert_eq!(arbitration("near:0.5").unwrap(), Arbitration::Nearest(0.5));
        for bad in ["near", "near:2", "near:x", "lifo"] {
            assert!(arbitration(bad).is_err(), "{bad}");
        }
    }
}

//! `latchwork-lab choose`: which lock is the fastest for a section, a number of threads, a machine and a share of reads.

use crate::generated;
use crate::measure::options::Common;
use crate::measure::plan::{Limits, Plan};
use crate::measure::progress;
use crate::measure::results::{Place, Results};
use crate::simulate::{self, How, sweep};
use clap::Args;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::machine::Machine;
use latchwork_console::output;
use latchwork_console::signals::Signals;
use latchwork_sim::{MAX_THREADS, Profile};
use std::num::NonZero;
use std::path::PathBuf;
use std::thread;

/// After the options in `latchwork-lab choose --help`.
pub const HELP: &str = "\
A small grid of simulations: sections of 100 ns and 2 us, from a few threads to twice as many as there are processors, on
machines of today, with and without reads. Each point is the median of five seeds. On two CPUs it takes some minutes; how
many is printed first. The table names each lock within 10% of
the best one. Waits that are long, other work of the machine and real-time priorities are not asked about: `latchwork
compare` measures your own program.

Examples:
  latchwork-lab choose                                   print the table
  latchwork-lab choose --markdown docs/which-lock.md     write it";

/// Options of `latchwork-lab choose`.
#[derive(Args)]
pub struct Options {
    /// Write the table as Markdown here
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// The machines, as `simulate --machine` takes them
    #[arg(long, value_name = "M,..", value_delimiter = ',', default_values = MACHINES)]
    machines: Vec<String>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Machines of today.
const MACHINES: [&str; 3] = ["xeon-8375c", "epyc-7r13", "graviton3"];
/// The least number of threads; the others are the cores of a socket, all processors, and twice as many.
const FEW: usize = 4;

/// What a program may take: locks that sleep, and those for a processor for each thread.
const MUTEXES: &[&str] =
    &["shfl", "shfl-spin", "ttas", "mcs", "cna", "hmcs", "cst", "malthusian", "hybrid", "glibc-futex"];
const RWLOCKS: &[&str] = &["bravo-2d-shfl-rw", "shfl-rw", "pf-q", "cohort-rw", "percpu", "glibc-rw-model"];

/// A question: a workload with its parameters. The last of `set` is the length of sections, and has several values.
struct Question {
    title: &'static str,
    workload: &'static str,
    locks: &'static [&'static str],
    set: &'static [&'static str],
}

/// How a reader calls the lengths of sections, which are the same in all questions.
const SECTIONS: [&str; 2] = ["100 ns", "2 us"];

/// All of them. A section and the computation after it are as in the workload's source; a step of rwbench takes 4 ns.
const QUESTIONS: [Question; 4] = [
    Question {
        title: "no reads: a mutex",
        workload: "oversubscribe",
        locks: MUTEXES,
        set: &["gap=1us", "hold=100ns,2us"],
    },
    Question {
        title: "90% reads",
        workload: "rwbench",
        locks: RWLOCKS,
        set: &["writes=1/10", "gap=250", "hold=25,500"],
    },
    Question {
        title: "99% reads",
        workload: "rwbench",
        locks: RWLOCKS,
        set: &["writes=1/100", "gap=250", "hold=25,500"],
    },
    Question {
        title: "99.9% reads",
        workload: "rwbench",
        locks: RWLOCKS,
        set: &["writes=1/1000", "gap=250", "hold=25,500"],
    },
];

/// Simulated time of each run.
const MEASURED_NS: u64 = 2_000_000;
/// With more threads than processors a run takes some quanta of the scheduler.
const MEASURED_IN_TURNS_NS: u64 = 20_000_000;
/// Seeds of each point, of which the median counts. In [`MEASURED_NS`] a lock that batches by sockets, such as `shfl`, makes
/// two or three batches, and its rate is up to a fifth lower with one seed than with another.
const RUNS: u32 = 5;
/// Processor time of a release build for a simulated nanosecond of a thread: a mean over the locks on an AMD EPYC (Zen 4). Only the
/// announcement needs it.
const SECONDS_PER_THREAD_NS: f64 = 7e-11;
/// A lock with this share of the best one's rate is named beside it.
const NEAR: f64 = 0.9;

/// Simulates, prints, and returns the exit status.
pub fn choose(options: &Options) -> Result<i32> {
    if let Some(path) = &options.markdown {
        output::check("--markdown", path)?;
    }
    let mut plans: Vec<(Plan, How)> = Vec::new();
    for question in &QUESTIONS {
        for machine in &options.machines {
            plans.extend(prepared(question, machine, options.seed)?);
        }
    }
    let signals = Signals::watch()?;
    let all = plans.iter().map(|(plan, _)| plan.measurements()).sum();
    let work = plans.iter().map(|(plan, how)| thread_ns(plan, how)).sum();
    output::say(&announcement(all, work, thread::available_parallelism().map_or(1, NonZero::get)));
    let bar = progress(all);
    let borrowed: Vec<(&Plan, &How)> = plans.iter().map(|(plan, how)| (plan, how)).collect();
    let (results, interrupted) = sweep::run_all(&borrowed, &signals, &bar, |_| ());
    bar.finish_and_clear();
    if let Some(signal) = interrupted {
        return Ok(128 + signal);
    }
    let text = page(&plans, &results, 2 * options.machines.len());
    match &options.markdown {
        Some(path) => output::write("--markdown", path, &(generated::head(&Machine::here().line()) + &text))?,
        None => output::print(&text)?,
    }
    Ok(i32::from(results.iter().any(Results::failed)))
}

/// The simulated nanoseconds of all threads together that have a processor: what a simulation takes is in proportion.
fn thread_ns(plan: &Plan, how: &How) -> u64 {
    let at_once = plan.threads.iter().map(|threads| (*threads).min(how.profile.cpus()) as u64).sum::<u64>();
    let points = plan.locks.len() as u64 * plan.settings.len() as u64 * u64::from(plan.runs);
    at_once * points * (how.warm_up_ns + how.measured_ns)
}

/// How long it will take on so many CPUs.
fn announcement(simulations: usize, thread_ns: u64, cpus: usize) -> String {
    let seconds = thread_ns as f64 * SECONDS_PER_THREAD_NS / cpus as f64;
    let time = match (seconds / 60.0).round() {
        ..2.0 => "a minute or two".into(),
        minutes => format!("{minutes:.0} minutes"),
    };
    let cpus = if cpus == 1 { "a CPU".into() } else { format!("{cpus} CPUs") };
    format!(
        "latchwork-lab: {simulations} simulations, about {time} on {cpus} without other work (Ctrl-C ends them)"
    )
}

/// The plans of a question on a machine: one of the counts with a processor for each thread, one of the others.
fn prepared(question: &Question, machine: &str, seed: u64) -> Result<Vec<(Plan, How)>> {
    let profile = Profile::find(machine).map_err(|error| Failure::usage(error.to_string()))?;
    let (cpus, shape) = (profile.cpus(), &profile.topology);
    let mut few = vec![FEW.min(cpus), shape.clusters * shape.cores, cpus];
    few.dedup();
    let many = vec![2 * cpus];
    let candidates = simulate::candidates();
    let mut plans = Vec::new();
    for (counts, measured_ns) in [(few, MEASURED_NS), (many, MEASURED_IN_TURNS_NS)] {
        let limits = Limits {
            candidates: &candidates,
            handful: &[],
            cpus: profile.cpus(),
            most_threads: MAX_THREADS - 1,
            name: &profile.name,
            runs: RUNS,
        };
        let counts: Vec<String> = counts.iter().map(usize::to_string).collect();
        let common = Common {
            workload: Some(question.workload.into()),
            locks: question.locks.iter().map(|lock| (*lock).to_owned()).collect(),
            threads: Some(counts.join(",")),
            set: question.set.iter().map(|set| (*set).to_owned()).collect(),
            seed,
            ..Common::default()
        };
        let how = How {
            profile: profile.clone(),
            options: latchwork_sim::Options::default(),
            measured_ns,
            warm_up_ns: measured_ns / 4,
        };
        plans.push((Plan::new(&common, &limits)?, how));
    }
    Ok(plans)
}

/// The locks within a tenth of the best one at a point, as shares of it, the best first.
fn nearest(rates: &mut Vec<(&'static str, f64)>) -> String {
    rates.sort_by(|one, other| other.1.total_cmp(&one.1));
    let Some((_, best)) = rates.first().copied().filter(|(_, best)| *best > 0.0) else { return "-".into() };
    let (near, rest): (Vec<_>, Vec<_>) = rates.iter().partition(|(_, rate)| rate / best >= NEAR);
    let names: Vec<String> = near
        .iter()
        .map(|(name, rate)| match rate / best {
            share if share >= 0.995 => format!("`{name}`"),
            share => format!("`{name}` {share:.2}"),
        })
        .collect();
    let share = |at: Option<&(&str, f64)>| at.map_or(0.0, |(_, rate)| rate / best);
    match rest.len() {
        0 => names.join(", "),
        1 => format!("{} (the other {:.2})", names.join(", "), share(rest.first())),
        _ => format!("{} (others {:.2} to {:.2})", names.join(", "), share(rest.last()), share(rest.first())),
    }
}

/// The page; a question has `each` of the plans.
fn page(plans: &[(Plan, How)], results: &[Results], each: usize) -> String {
    let mut text = INTRODUCTION
        .replace("MACHINES", &machines(plans))
        .replace("RUNS", &RUNS.to_string())
        .replace("MEASURED", &(MEASURED_NS / 1_000_000).to_string())
        .replace("TURNS", &(MEASURED_IN_TURNS_NS / 1_000_000).to_string());
    let parts = plans.chunks(each).zip(results.chunks(each));
    for (question, (plans, results)) in QUESTIONS.iter().zip(parts) {
        text += &format!(
            "\n## {}\n\nWorkload `{}`, {}; among {}.\n\n| machine | threads | sections of {} | sections of {} |\n|---|---|---|---|\n",
            capital(question.title),
            question.workload,
            question.set[..question.set.len() - 1].join(", "),
            question.locks.iter().map(|lock| format!("`{lock}`")).collect::<Vec<_>>().join(", "),
            SECTIONS[0],
            SECTIONS[1]
        );
        for ((plan, how), results) in plans.iter().zip(results) {
            for (threads, count) in plan.threads.iter().enumerate() {
                let cell = |settings: usize| {
                    let rate = |(lock, candidate): (usize, &latchwork_workloads::candidate::Candidate)| {
                        let point = results.at(Place { settings, threads, lock });
                        Some((candidate.name, point.rate()?))
                    };
                    nearest(&mut plan.locks.iter().enumerate().filter_map(rate).collect())
                };
                text += &format!(
                    "| {} | {count}{} | {} | {} |\n",
                    how.profile.name,
                    if *count > how.profile.cpus() { " (2 for each CPU)" } else { "" },
                    cell(0),
                    cell(1)
                );
            }
        }
    }
    text
}

/// The machines of the plans, each once, with what they are.
fn machines(plans: &[(Plan, How)]) -> String {
    let mut all: Vec<String> = Vec::new();
    let mut todays = true;
    for (_, How { profile, .. }) in plans {
        todays &= MACHINES.contains(&profile.name.as_str());
        let sockets = profile.topology.sockets;
        let kind = match profile.name.as_str() {
            "xeon-8375c" => ", Ice Lake",
            "epyc-7r13" => ", Zen 3",
            _ => "",
        };
        let plural = if sockets == 1 { "" } else { "s" };
        let one = format!("`{}` ({sockets} socket{plural}{kind})", profile.name);
        if !all.contains(&one) {
            all.push(one);
        }
    }
    format!("{} machines: {}", if todays { "today's" } else { "these" }, all.join(", "))
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// `MACHINES` stands for what [`machines`] says, and `RUNS`, `MEASURED` and `TURNS` for the numbers above.
const INTRODUCTION: &str = "\
# Which lock for what

Which lock is the fastest for a length of the section, a number of threads and a share of reads? For a person who wants a shortlist before
`latchwork compare` measures the program.

The laboratory prints this page (`latchwork-lab choose --markdown docs/which-lock.md`); do not edit it. It simulates a small grid
on profiles of MACHINES. Threads
fill one socket after the other: the counts are 4, the cores of a socket, all processors, and two threads for each processor. A cell
has the fastest lock, then each lock within 10% of it with its share of the best rate, then the range of the others' shares. A rate is
the median of RUNS seeds, each of MEASURED simulated ms (TURNS with two threads for each processor).

[simulator.md](simulator.md#is-it-right) says how far the simulator is to be trusted. `shfl`, `malthusian`, `hybrid`, `glibc-futex`, `cst`, `shfl-rw`, `bravo-2d-shfl-rw` and `glibc-rw-model` put
waiters to sleep. The others only spin: take them for a processor for every thread. A lock may be fast because it is unfair; the table
says nothing of that. One thread at a time, and threads that seldom meet, need no choice.

The rates are those of programs that call the locks themselves. In a preloaded program do not take `pf-q`, `cohort-rw` or `percpu` if
threads write: one reader that unlocks and at once locks again can keep a writer out for seconds ([cli.md](cli.md)).
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_is_named_with_those_within_a_tenth() {
        let of = |rates: &[(&'static str, f64)]| nearest(&mut rates.to_vec());
        assert_eq!(
            of(&[("a", 50.0), ("b", 100.0), ("c", 91.0), ("d", 20.0)]),
            "`b`, `c` 0.91 (others 0.20 to 0.50)"
        );
        assert_eq!(of(&[("a", 100.0), ("b", 10.0)]), "`a` (the other 0.10)");
        assert_eq!(of(&[("a", 100.0), ("b", 100.0)]), "`a`, `b`");
        assert_eq!((of(&[]), of(&[("a", 0.0)])), ("-".into(), "-".into()));
    }

    #[test]
    fn the_page_names_the_machines_that_were_simulated() {
        let of = |names: &[&str]| {
            machines(
                &names.iter().flat_map(|name| prepared(&QUESTIONS[0], name, 1).unwrap()).collect::<Vec<_>>(),
            )
        };
        assert_eq!(
            of(&MACHINES),
            "today's machines: `xeon-8375c` (2 sockets, Ice Lake), `epyc-7r13` (2 sockets, Zen 3), `graviton3` (1 socket)"
        );
        assert_eq!(of(&["x5-2", "1x2"]), "these machines: `x5-2` (2 sockets), `1x2` (1 socket)");
    }

    #[test]
    fn the_duration_is_said_first() {
        let seconds = |seconds: f64| (seconds / SECONDS_PER_THREAD_NS) as u64;
        let text = announcement(3_360, seconds(720.0), 2);
        assert!(text.contains("3360 simulations, about 6 minutes on 2 CPUs"), "{text}");
        assert!(announcement(3, seconds(20.0), 1).contains("about a minute or two on a CPU"));
        let plans =
            prepared(&QUESTIONS[0], "graviton3", 1).unwrap_or_else(|failure| panic!("{}", failure.message));
        // 10 locks, 2 lengths and 5 runs, with a quarter of the time for warming up.
        let expected = |threads: u64, ms: u64| threads * 100 * ms * 1_250_000;
        let found: Vec<u64> = plans.iter().map(|(plan, how)| thread_ns(plan, how)).collect();
        assert_eq!(found, [expected(4 + 64, 2), expected(64, 20)]);
    }

    #[test]
    fn every_question_can_be_asked() {
        for question in &QUESTIONS {
            for machine in MACHINES {
                let plans = prepared(question, machine, 1).unwrap();
                assert_eq!(plans.len(), 2);
                assert!(plans.iter().all(|(plan, _)| plan.runs >= 5), "a shortlist of one seed is chance");
                assert!(plans.iter().all(|(plan, _)| plan.settings.len() == 2 && !plan.threads.is_empty()));
            }
        }
    }
}

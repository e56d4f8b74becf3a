//! `latchwork predict`, which is `latchwork-lab predict`: a recorded program on a machine that you do not have.
//!
//! | module | what it does |
//! |---|---|
//! | [`load`] | what the trace says of the program |
//! | [`stream`] | a thread's events, as a replay performs them |
//! | [`events`] | what threads of the simulated machine wait for, but for locks |
//! | [`locks`] | the locks of the simulated machine |
//! | [`replay`] | one simulation |
//! | [`length`] | for how long it goes on |
//! | [`check`] | whether the replay can be trusted |
//! | [`plan`] | which simulations there are, and what their results mean |
//! | [`report`] | table and JSON |
//! | [`plot`] | throughput over threads as SVG |

mod check;
mod events;
mod length;
mod load;
mod locks;
mod plan;
mod plot;
mod replay;
mod report;
mod stream;
#[cfg(test)]
mod tests;

use crate::measure::plan::range;
use clap::{Args, ValueHint};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::output;
use latchwork_recording::trace_file::{Error, Trace};
use latchwork_sim::{MAX_THREADS, Profile};
use load::Load;
use plan::{Curve, Plan, WhatIf};
use std::path::{Path, PathBuf};

/// After the options in `latchwork-lab predict --help`.
pub const HELP: &str = "\
The trace comes from `latchwork record`. Its threads run again on a simulated machine, over the same lock source that runs in
production: each computes as long as it did between its lock calls and inside of its sections, and the locks decide who gets
them when. A thread that waits for a condition or a semaphore goes on when another one has signalled, and at a barrier when all have
come. Threads that come and go are created and joined again. More threads than were recorded are copies of the recorded ones, in
the proportions of their roles. It is a closed loop: a thread's next operation
begins when its last one has ended.

First the recorded threads run on the recording machine's own profile. If that does not give the recorded throughput within 10%
and the recorded share of waiting within 5 points, there is no prediction, and the exit status is 1.

Each range comes from five simulations: other seeds, other rules for which request a cache line serves first, and all latencies 30% lower and
higher. Where ranges overlap, the answer is \"undecided\". The same trace, options and seed give the same output.

--what-if changes one lock: 'NAME: hold/2' halves its sections, 'NAME: split 4' divides it into four, 'NAME: uncontended' lets
everybody in (the most that mending it could bring), 'NAME: lock mcs' takes another algorithm for it.

Exit status: 0; 1 if the prediction is refused; 2 for wrong arguments; 130 after Ctrl-C.

Examples:
  latchwork record -o trace.lw -- ./server --bench
  latchwork predict trace.lw --machine 8x24 --threads 1..192
  latchwork predict trace.lw --machine epyc-7742 --locks glibc,shfl,mcs
  latchwork predict trace.lw --machine 8x24 --what-if 'Cache::mutex_: hold/2' --json -
  latchwork predict trace.lw --machine 8x24 --threads 1,2,4,8,16,32,64,128,192 --plot curves.svg";

/// Options of `latchwork-lab predict`.
#[derive(Args)]
pub struct Options {
    /// What `latchwork record` has written
    #[arg(value_name = "TRACE", value_hint = ValueHint::FilePath)]
    trace: PathBuf,
    /// The machine: a profile's name, a shorthand such as 8x24 or 2x18x2 (sockets x cores x hardware
    /// threads), or a TOML file
    #[arg(long, value_name = "M")]
    machine: String,
    /// Numbers of threads: 8, 1,2,4 or 1..192 [default: 1 to the machine's CPUs]
    #[arg(long, value_name = "LIST")]
    threads: Option<String>,
    /// Locks to compare: a mutex, a reader-writer lock, or glibc [default: those of the recording, and
    /// the recommended ones]
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    locks: Vec<String>,
    /// Change one lock: 'NAME: hold/2', 'NAME: split 4', 'NAME: uncontended' or 'NAME: lock mcs'
    #[arg(long, value_name = "CHANGE")]
    what_if: Vec<String>,
    /// The machine on which the trace was recorded [default: this-machine, if it is known and has as many CPUs; else
    /// one with as many cores and the costs of emerald-rapids-2]
    #[arg(long, value_name = "M")]
    recorded_on: Option<String>,
    /// Predict although the replay does not fit the recording
    #[arg(long)]
    anyway: bool,
    /// Acquisitions of one simulation, at most; fewer are faster and widen the ranges
    #[arg(long, value_name = "N", default_value_t = plan::MOST, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    acquisitions: u64,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write every number here (- for standard output, in place of the table)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,
    /// Draw throughput over threads, with the ranges, into this SVG file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    plot: Option<PathBuf>,
}

/// Replays, prints, and returns the exit status.
pub fn predict(options: &Options) -> Result<i32> {
    let files = [("--json", &options.json), ("--plot", &options.plot)];
    let written = files.into_iter().filter_map(|(option, path)| Some((option, path.as_deref()?)));
    for (option, path) in written.clone() {
        if path == Path::new("-") && option != "--json" {
            let why = "only --json is printed; name a file (./- for one of this name)";
            return Err(Failure::usage(format!("{option} -: {why}")));
        }
        output::check(option, path)?;
    }
    let read = [("TRACE", &*options.trace), ("--machine", Path::new(&options.machine))];
    let home = options.recorded_on.iter().map(|file| ("--recorded-on", Path::new(file)));
    output::check_distinct(written, read.into_iter().chain(home))?;
    if let Some(path) = &options.plot {
        crate::measure::plot::check(path)?;
    }
    let trace = Trace::read(&options.trace).map_err(|error| {
        // The others go on where the file's name ends.
        let colon = if matches!(error, Error::Io(_)) { ":" } else { "" };
        Failure::new(format!("{}{colon} {error}", options.trace.display()))
    })?;
    let machine = profile(&options.machine)?;
    let (home, why) = recorded_on(options.recorded_on.as_deref(), &trace)?;
    let load = Load::new(&trace, 2.0 * home.lines.atomic.value);
    if load.threads() > MAX_THREADS {
        return Err(Failure::new(format!(
            "{}: {} threads ran at the same time, and at most {MAX_THREADS} can be simulated. Record the program with fewer \
             threads, or a time in which fewer run: latchwork record --delay 10 --seconds 5 -- PROG",
            options.trace.display(),
            load.threads()
        )));
    }
    let threads = threads(options.threads.as_deref(), &machine, &load)?;
    let what_if = options.what_if.iter().map(|text| WhatIf::parse(text, &load)).collect::<Result<_>>()?;
    let curves = Curve::all(&options.locks, what_if, &trace.about, &load)?;
    let (seed, most) = (options.seed, options.acquisitions);
    let plan = Plan { load, machine, home, home_is: why, curves, threads, seed, most };
    let answer = match plan.run(options.anyway)? {
        Ok(answer) => answer,
        Err(signal) => return Ok(128 + signal),
    };
    let report = report::Report::new(&trace.about, &plan, &answer);
    match &options.plot {
        Some(path) if answer.is_refused() => {
            output::say(&format!(
                "latchwork-lab: --plot {}: nothing is drawn, because there is no prediction",
                path.display()
            ));
        }
        Some(path) => {
            let text = plot::text(&report)
                .map_err(|error| Failure::new(format!("--plot {}: {error}", path.display())))?;
            output::write("--plot", path, &text)?;
        }
        None => {}
    }
    output::report(options.json.as_deref(), || report.text(), || report.json())?;
    Ok(i32::from(answer.is_refused()))
}

fn profile(name: &str) -> Result<Profile> {
    Profile::find(name).map_err(|error| Failure::usage(error.to_string()))
}

/// The profile of the machine on which the trace was recorded, and why it is that one.
fn recorded_on(name: Option<&str>, trace: &Trace) -> Result<(Profile, String)> {
    if let Some(name) = name {
        return Ok((profile(name)?, "as --recorded-on says".into()));
    }
    let cpus = trace.about.cpus;
    if let Ok(found) = Profile::find(latchwork_sim::THIS_MACHINE)
        && found.cpus() == cpus
    {
        return Ok((found, "as `latchwork-lab calibrate` measured this machine".into()));
    }
    let mut found = profile("emerald-rapids-2")?;
    if cpus > latchwork_sim::MAX_CPUS {
        return Err(Failure::usage("name the recording machine with --recorded-on"));
    }
    found.name = format!("1x{cpus}");
    found.topology.cores = cpus;
    let why = "with the costs of emerald-rapids-2; run `latchwork-lab calibrate` on the recording machine for its own";
    Ok((found, why.into()))
}

fn threads(wanted: Option<&str>, machine: &Profile, load: &Load) -> Result<Vec<usize>> {
    let default = format!("1..{}", machine.cpus());
    let text = wanted.unwrap_or(&default);
    let mut counts = Vec::new();
    for part in text.split(',') {
        counts.extend(range(part.trim()).map_err(|why| Failure::usage(format!("--threads {text}: {why}")))?);
    }
    let least = load.least().max(1);
    if counts.iter().any(|count| *count < least) && wanted.is_some() {
        output::say(&format!(
            "latchwork-lab: --threads {text}: the replay has at least {least} threads, one for each role of the recorded ones"
        ));
    }
    counts.iter_mut().for_each(|count| *count = (*count).max(least));
    counts.sort_unstable();
    counts.dedup();
    match counts.last() {
        Some(most) if *most >= MAX_THREADS => Err(Failure::usage(format!(
            "--threads {text}: at most {} threads can be simulated",
            MAX_THREADS - 1
        ))),
        _ => Ok(counts),
    }
}

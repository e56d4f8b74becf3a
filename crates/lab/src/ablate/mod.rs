//! `latchwork-lab ablate`: what each mechanism and each constant of a lock is worth, at each of many points.

mod machines;
mod report;
mod run;
mod variants;

use crate::generated;
use crate::measure::options;
use clap::{Args, ValueEnum};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::output;
use run::Plan;
use std::path::PathBuf;
use std::time::Duration;

/// After the options in `latchwork-lab ablate --help`.
pub const HELP: &str = "\
Each variant of the lock differs from it in one thing: a mechanism that is off, or a constant that is halved or doubled.
All variants run at the same points: sections of 0, 0.5 and 5 us, think times of 0, 1 and 20 us, 2 threads, and 1, 2 and 8
threads for each processor; a reader-writer lock also with 1 write in 1000 and in 10. The simulated machines differ in what
PAUSE costs, what the transfer of a cache line costs, and how many sockets they have.

The table says for each variant how its throughput compares with the lock's: `mean` over all points, `worst` and `best` and
where that was, at how many points it is more than 5% behind or ahead, and the longest wait. A mechanism whose variants are
nowhere far behind is worth nothing. How far chance alone goes is in the row `none`: the lock itself, with other seeds.

Exit status: 0; 1 if a variant failed; 2 for wrong arguments; 130 after Ctrl-C, which prints the results so far.

Examples:
  latchwork-lab ablate shfl                            every variant, on ten simulated machines
  latchwork-lab ablate shfl --native                   on this machine, in interleaved rounds
  latchwork-lab ablate bravo --machine emerald-rapids-2 --runs 5
  latchwork-lab ablate shfl --only batches,looks       mechanisms with these words in their names
  latchwork-lab ablate shfl-rw --markdown shfl-rw.md --json shfl-rw.json";

/// Options of `latchwork-lab ablate`.
#[derive(Args)]
pub struct Options {
    /// The lock
    #[arg(value_enum)]
    lock: Subject,
    /// Run on this machine, in place of simulated ones
    #[arg(long, conflicts_with = "machine")]
    native: bool,
    /// Only variants of the mechanisms with one of these words in their names
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    only: Vec<String>,
    /// Simulate these machines, named as in `latchwork-lab simulate` [default: emerald-rapids-2, and nine of 16 processors]
    #[arg(long, value_name = "M,N,..", value_delimiter = ',')]
    machine: Vec<String>,
    /// Length of each measurement [default: 0.005 of simulated time; 0.05 with --native]
    #[arg(long, value_name = "SECS", value_parser = options::seconds, allow_negative_numbers = true)]
    seconds: Option<Duration>,
    /// How often to measure each point; medians are compared [default: 3; 5 with --native]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: Option<u32>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write the throughput of every variant at every point here (- for standard output, in place of the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the table here as Markdown, and every variant's share at every point
    #[arg(long, value_name = "FILE.md")]
    markdown: Option<PathBuf>,
}

/// A lock whose parts can be taken away.
#[derive(Copy, Clone, PartialEq, Eq, Debug, ValueEnum)]
pub enum Subject {
    /// The default mutex
    Shfl,
    /// The default reader-writer lock without bias
    ShflRw,
    /// The bias of bravo-2d-shfl-rw
    Bravo,
}

impl Subject {
    /// What it is called in tables.
    fn name(self) -> &'static str {
        match self {
            Subject::Shfl => "shfl",
            Subject::ShflRw => "shfl-rw",
            Subject::Bravo => "bravo-2d-shfl-rw",
        }
    }
}

/// Runs all variants, prints what they are worth, and returns the exit status.
pub fn ablate(options: &Options) -> Result<i32> {
    for (option, path) in [("--json", &options.json), ("--markdown", &options.markdown)] {
        path.as_ref().map_or(Ok(()), |path| output::check(option, path))?;
    }
    let plan = Plan::new(options)?;
    if plan.variants.len() <= variants::YARDSTICKS {
        let all: Vec<_> = variants::list(options.lock).into_iter().map(|variant| variant.mechanism).collect();
        return Err(Failure::usage(format!(
            "--only {}: no mechanism is called so; there are: {}",
            options.only.join(","),
            report::distinct(&all[variants::YARDSTICKS..]).join(", ")
        )));
    }
    let results = if options.native { run::natively(&plan) } else { run::simulated(&plan) }?;
    let (text, json) = (|| report::text(&plan, &results), || report::json(&plan, &results));
    output::report(options.json.as_deref(), text, json)?;
    if let Some(path) = &options.markdown {
        output::write(
            "--markdown",
            path,
            &(generated::head(&plan.machine()) + &report::markdown(&plan, &results)),
        )?;
    }
    Ok(results.interrupted.map_or(i32::from(!results.failures.is_empty()), |signal| 128 + signal))
}

//! The options that `bench` and `simulate` share.

use super::plot;
use clap::Args;
use latchwork_console::failure::Failure;
use latchwork_console::output;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The name of the suite of workloads in which a lock that spins does harm, in the place of a workload's.
pub const HARM: &str = "harm";

/// The seed unless the user says.
pub const SEED: u64 = 1;

/// What to measure, and where to write it.
#[derive(Clone, Default, Args)]
pub struct Common {
    /// The workload, or `harm` for five of them; `--list` shows all
    #[arg(value_name = "WORKLOAD", required_unless_present = "list")]
    pub workload: Option<String>,
    /// Show all workloads, or everything about WORKLOAD and the locks for it
    #[arg(long)]
    pub list: bool,
    /// Locks to compare, or `all` [default: a handful of well-known ones]
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    pub locks: Vec<String>,
    /// Print each lock's throughput and user time as ratios to this lock's
    #[arg(long, value_name = "LOCK")]
    pub against: Option<String>,
    /// Thread counts: 1,2,4 or 1..72 (evenly spread on a logarithmic scale) or 1..72:8 (steps of 8)
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub threads: Option<String>,
    /// Set a parameter of the workload; several values make a point of each
    #[arg(long, value_name = "NAME=A,B,..")]
    pub set: Vec<String>,
    /// How often to measure each point
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// Seed of everything random
    #[arg(long, value_name = "N", default_value_t = SEED)]
    pub seed: u64,
    /// Write every number of every run here (- for standard output, in place of the table)
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write each lock's share of the best here, as Markdown, and where the default lock is behind
    #[arg(long, value_name = "FILE.md")]
    pub markdown: Option<PathBuf>,
    /// Draw the curves into this SVG file
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

impl Common {
    /// Fails if a file cannot be written, or if two of them are one.
    pub fn check_files(&self) -> Result<(), Failure> {
        let files = [("--json", &self.json), ("--markdown", &self.markdown), ("--plot", &self.plot)];
        let mut named: Vec<(&str, &Path)> = Vec::new();
        for (option, path) in files.into_iter().filter_map(|(option, path)| Some((option, path.as_deref()?)))
        {
            let is_stdout = path == Path::new("-");
            if is_stdout && option != "--json" {
                return Err(Failure::usage(format!(
                    "{option} -: only --json is printed; name a file (./- for one of this name)"
                )));
            }
            output::check(option, path)?;
            if option == "--plot" {
                plot::check(path)?;
            }
            if let Some((other, _)) = named.iter().find(|(_, other)| *other == path) {
                return Err(Failure::usage(format!(
                    "{other} and {option} name one file, {}",
                    path.display()
                )));
            }
            named.push((option, path));
        }
        Ok(())
    }
}

/// Reads a number of seconds.
pub fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= 3600.0 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a number of seconds above 0, 3600 at most".into()),
    }
}

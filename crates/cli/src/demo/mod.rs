//! `latchwork demo-kv`: the built-in program, in a process of its own so that a library can be
//! preloaded into it.

use clap::Args;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::output::print;
use std::time::Duration;

mod kv;
mod pthread;

/// The largest number of threads.
pub const MOST_THREADS: usize = 4096;

/// Options of `latchwork demo-kv`.
#[derive(Args)]
pub struct Options {
    /// Worker threads
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=MOST_THREADS as i64))]
    threads: u16,
    /// Seconds to run
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    seconds: f64,
}

fn seconds(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=86400.0).contains(&seconds) => Ok(seconds),
        _ => Err("a number of seconds between 0 and 86400".into()),
    }
}

/// What `compare` runs, after the command's own name.
pub fn arguments(threads: usize, seconds: f64) -> [String; 5] {
    ["demo-kv".into(), "--threads".into(), threads.to_string(), "--seconds".into(), seconds.to_string()]
}

/// What `compare` reads from the output.
pub const METRIC: &str = r"^operations/s: ([0-9.]+)$";

/// Runs the store; a failed check is an error.
pub fn demo(options: &Options) -> Result<()> {
    let options =
        kv::Options { threads: options.threads.into(), duration: Duration::from_secs_f64(options.seconds) };
    let report = kv::run(options).map_err(|wrong| Failure::new(format!("the store is damaged: {wrong}")))?;
    print(&format!(
        "operations/s: {:.0}\noperations: {}\nupdates: {}\nlog entries: {} in {} batches\n",
        report.rate(),
        report.operations,
        report.updates,
        report.logged,
        report.flushes
    ))?;
    Ok(())
}

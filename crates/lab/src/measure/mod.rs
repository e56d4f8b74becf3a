//! What `bench`, `simulate` and `reproduce` share: a plan of points, their results, and the ways to show them.
//!
//! A [`plan::Plan`] says which locks are measured, with how many threads and which parameters. [`results::Results`]
//! holds what came out, wherever it was measured. The other modules print both.

pub mod json;
pub mod list;
pub mod options;
pub mod plan;
pub mod plot;
pub mod report;
pub mod results;
mod shares;

use indicatif::{ProgressBar, ProgressStyle};
use json::About;
use latchwork_console::failure::Result;
use latchwork_console::output;
use options::Common;
use plan::Plan;
use results::Results;
use std::path::Path;

/// Prints and writes what was asked for; the exit status.
pub fn finish(
    plan: &Plan,
    results: &Results,
    common: &Common,
    header: &str,
    machine: &str,
    about: &About,
) -> Result<i32> {
    let to_stdout = common.json.as_deref() == Some(Path::new("-"));
    if to_stdout {
        print!("{}", json::text(plan, results, about));
    } else {
        print!("{}", report::text(plan, results, header));
    }
    if let Some(path) = &common.markdown {
        output::write("--markdown", path, &shares::page(plan, results, header, machine))?;
    }
    if let Some(path) = common.json.as_deref().filter(|_| !to_stdout) {
        output::write("--json", path, &json::text(plan, results, about))?;
    }
    if let Some(path) = &common.plot {
        plot::write(path, plan, results, machine)?;
    }
    Ok(results.interrupted.map_or(i32::from(results.failed()), |signal| 128 + signal))
}

/// A progress bar for so many measurements.
pub fn progress(measurements: usize) -> ProgressBar {
    let template = "{wide_msg} {bar:30} {pos}/{len}, {eta} left";
    ProgressBar::new(measurements as u64)
        .with_style(ProgressStyle::with_template(template).expect("a valid template"))
}

/// Threads that wait for a lock for ever cannot be ended by anything less.
pub fn stuck(why: &str) -> ! {
    eprintln!("\nlatchwork-lab: the lock that was being measured is stuck: {why}");
    std::process::exit(1)
}

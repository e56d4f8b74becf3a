//! What `bench`, `simulate` and `reproduce` share: a plan of points, their results, and the ways to show them.
//!
//! A [`plan::Plan`] says which locks are measured, with how many threads and which parameters. [`results::Results`]
//! holds what came out, wherever it was measured. The other modules print both.

mod against;
pub mod interrupt;
pub mod json;
pub mod list;
pub mod options;
pub mod plan;
pub mod plot;
pub mod report;
pub mod results;
mod shares;
pub mod suite;

use crate::generated;
use indicatif::{ProgressBar, ProgressStyle};
use json::About;
use latchwork_console::failure::Result;
use latchwork_console::output;
use options::Common;
use plan::Plan;
use results::Results;
use std::path::Path;

/// A workload that was measured.
pub struct Part<'a> {
    /// What was to be measured.
    pub plan: Plan,
    /// What came out.
    pub results: Results,
    /// What it was measured on, and for how long.
    pub header: String,
    /// Same, for a program that reads it.
    pub about: About<'a>,
}

/// Prints and writes what was asked for; the exit status.
pub fn finish(parts: &[Part], common: &Common, machine: &str) -> Result<i32> {
    let to_stdout = common.json.as_deref() == Some(Path::new("-"));
    let json = || {
        let documents: Vec<_> =
            parts.iter().map(|part| json::text(&part.plan, &part.results, &part.about)).collect();
        match &documents[..] {
            [document] => document.clone(),
            _ => format!("[\n{}]\n", documents.join(",\n")),
        }
    };
    if to_stdout {
        output::print(&json())?;
    } else {
        let texts: Vec<_> =
            parts.iter().map(|part| report::text(&part.plan, &part.results, &part.header)).collect();
        output::print(&texts.join("\n"))?;
        if parts.len() > 1 {
            output::print(&format!("\nAll workloads:\n{}", against::sum(parts)))?;
        }
    }
    if let Some(path) = &common.markdown {
        let pages: Vec<_> =
            parts.iter().map(|part| shares::page(&part.plan, &part.results, &part.header)).collect();
        output::write("--markdown", path, &(generated::head(machine) + &pages.join("\n")))?;
    }
    if let Some(path) = common.json.as_deref().filter(|_| !to_stdout) {
        output::write("--json", path, &json())?;
    }
    if let (Some(path), [part]) = (&common.plot, parts) {
        plot::write(path, &part.plan, &part.results, machine)?;
    }
    let failed = parts.iter().any(|part| part.results.failed());
    let signal = parts.iter().find_map(|part| part.results.interrupted);
    Ok(signal.map_or(i32::from(failed), |signal| 128 + signal))
}

/// A progress bar for so many measurements.
pub fn progress(measurements: usize) -> ProgressBar {
    let template = "{wide_msg} {bar:30} {pos}/{len}, {eta} left";
    ProgressBar::new(measurements as u64)
        .with_style(ProgressStyle::with_template(template).expect("a valid template"))
}

/// Threads that wait for a lock for ever cannot be ended by anything less.
pub fn stuck(why: &str) -> ! {
    output::say(&format!("\nlatchwork-lab: the lock that was being measured is stuck: {why}"));
    std::process::exit(1)
}

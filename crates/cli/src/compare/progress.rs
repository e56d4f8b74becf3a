//! What the user sees on stderr during the measuring: a bar, the warnings, and the locks that fail.

use super::plan::{Length, Plan};
use indicatif::{ProgressBar, ProgressStyle};
use latchwork_console::output::say;
use std::time::Duration;

/// The bar, which shows only on a terminal, and the messages above it.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// For the measuring of so many candidates. Prints nothing yet.
    pub fn new(plan: &Plan, candidates: usize) -> Self {
        let (length, template) = match plan.length {
            Length::Rounds(rounds) => (
                u64::from(plan.warmup + rounds) * candidates as u64,
                "{wide_msg} {bar:30} {pos}/{len} runs, {eta} left",
            ),
            Length::Time(_) => (0, "{wide_msg} {pos} runs, {elapsed}"),
        };
        let style = ProgressStyle::with_template(template).expect("a valid template");
        Self { bar: ProgressBar::new(length).with_style(style) }
    }

    /// Other programs use this share of the CPUs, and the first run waits for them. The bar is not drawn yet.
    pub fn waits(&self, share: f64, longest: Duration) {
        say(&format!(
            "latchwork: other programs use {:.0}% of the CPUs; waiting until they are done, at most {} s",
            share * 100.0,
            longest.as_secs_f64()
        ));
    }

    /// The turn of this lock begins.
    pub fn begins(&self, lock: &str, warmup: bool) {
        let warmup = if warmup { "warm-up, " } else { "" };
        self.bar.set_message(format!("{warmup}{lock}"));
        self.bar.tick();
    }

    /// A lock has had its turn, or was left out.
    pub fn one_more(&self) {
        self.bar.inc(1);
    }

    /// A run of this lock failed.
    pub fn failed(&self, lock: &str, why: &str) {
        self.bar.suspend(|| say(&format!("latchwork: {lock} failed: {why}")));
    }

    /// A warning, which the caller also keeps for the results.
    pub fn warn(&self, text: &str) {
        self.bar.suspend(|| say(&format!("latchwork: warning: {text}")));
    }

    /// The last run is over: the bar vanishes.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

//! What the measuring gave.

use super::candidates::{self, Candidate, Judgement};
use super::plan::Plan;
use latchwork_console::failure::Failure;
use latchwork_console::machine::Machine;
use std::time::SystemTime;

/// All that was measured.
pub struct Results {
    /// The first one is glibc.
    pub candidates: Vec<Candidate>,
    pub machine: Machine,
    pub started: SystemTime,
    /// Share of the machine that other processes used meanwhile.
    pub others: f64,
    pub warnings: Vec<String>,
    /// The programs that the first run with such left running in the background.
    pub left_running: Vec<String>,
    /// The signal that ended the measuring.
    pub interrupted: Option<i32>,
    /// What ended the measuring early, when there were complete runs already.
    pub failure: Option<Failure>,
}

impl Results {
    /// The judgement of each candidate.
    pub fn judgements(&self, plan: &Plan) -> Vec<Option<Judgement>> {
        candidates::judge(&self.candidates, 0, plan.deciding(), plan.better())
    }

    /// The locks that were compared with glibc, but for those that failed.
    pub fn locks(&self) -> usize {
        self.candidates[1..].iter().filter(|candidate| candidate.failed.is_none()).count()
    }
}

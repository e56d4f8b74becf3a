//! What came of it.

use crate::run::Outcome;
use crate::worker::Count;
use serde::{Deserialize, Serialize};

/// What was done, over all rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Operations, whatever came of them.
    pub operations: u64,
    /// Read sections.
    pub reads: u64,
    /// Write sections, or sections of a mutex.
    pub writes: u64,
    /// Tries that were refused.
    pub refused: u64,
    /// Timed acquisitions that gave up.
    pub timed_out: u64,
    /// Waits on a condition variable.
    pub condition_waits: u64,
    /// Locks that another thread released than the one that acquired them.
    pub handed_over: u64,
    /// Locks destroyed by the last one to release them.
    pub destroyed: u64,
    /// Threads that exited and were replaced.
    pub threads_replaced: u64,
    /// Signals sent to threads.
    pub signals: u64,
    /// Threads moved between processors.
    pub moves: u64,
    /// Children forked.
    pub forks: u64,
    /// Readers seen inside at a time, at most.
    pub readers_at_once: u64,
    /// The longest untimed wait to read, in seconds. Not judged: see the lock's fairness.
    pub longest_read_wait_s: f64,
    /// To write.
    pub longest_write_wait_s: f64,
    /// For a condition, the mutex included.
    pub longest_condition_wait_s: f64,
}

impl Totals {
    pub(crate) fn add(&mut self, outcome: &Outcome) {
        let total = |count| outcome.crew.total(count);
        self.operations += total(Count::Operations);
        self.reads += total(Count::Reads);
        self.writes += total(Count::Writes);
        self.refused += total(Count::Refused);
        self.timed_out += total(Count::TimedOut);
        self.condition_waits += total(Count::ConditionWaits);
        self.handed_over += total(Count::HandedOver);
        self.destroyed += total(Count::Destroyed);
        self.threads_replaced += total(Count::Replaced);
        self.signals += outcome.disturbances.signals;
        self.moves += outcome.disturbances.moves;
        self.forks += outcome.disturbances.forks;
        self.readers_at_once = self.readers_at_once.max(outcome.readers_at_once);
        let longest = |had: f64, count| had.max(total(count) as f64 / 1e9);
        self.longest_read_wait_s = longest(self.longest_read_wait_s, Count::LongestRead);
        self.longest_write_wait_s = longest(self.longest_write_wait_s, Count::LongestWrite);
        self.longest_condition_wait_s = longest(self.longest_condition_wait_s, Count::LongestCondition);
    }
}

/// One failure, and where it happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// The scenario.
    pub scenario: String,
    /// The machine.
    pub machine: String,
    /// The seed of the round.
    pub round_seed: u64,
    /// What was wrong, in a line.
    pub what: String,
    /// The lock's memory and what each thread did, if the lock stood still.
    pub state: Vec<String>,
}

/// What came of one lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Rounds run to their end.
    pub rounds: u64,
    /// How long it took.
    pub seconds: f64,
    /// Of this, how long the process did not run at all (stopped, or the machine was suspended).
    /// Waits that were going on then look longer than they were.
    pub away_s: f64,
    /// What was done.
    pub totals: Totals,
    /// Why it ended early, if it did.
    pub failed: Option<Failed>,
}

/// Between rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Progress {
    /// The scenario that is next.
    pub scenario: String,
    /// The machine that it runs on.
    pub machine: String,
    /// Of the whole time.
    pub seconds: f64,
    /// So far.
    pub operations: u64,
}

//! Runs a workload's threads and gathers what they did.

use crate::stage::{Stage, Usage};
use crate::thread::{Tally, Thread, waits};
use hdrhistogram::Histogram;
use std::sync::Mutex;

/// A figure that only some workloads have.
#[derive(Copy, Clone, Debug, PartialEq)]
pub struct Extra {
    /// As a table's head and as a key.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
}

/// What a run of a workload did, or what went wrong in it.
pub type Outcome = Result<Measured, String>;

/// What a run of a workload did.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Operations within the measured time.
    pub operations: u64,
    /// The measured time, in nanoseconds.
    pub measured_ns: u64,
    /// Operations of each thread within the measured time.
    pub per_thread: Vec<u64>,
    /// All operations, those of the warm-up and of the end included: what the data must agree with.
    pub total: u64,
    /// Same, of each thread.
    pub totals: Vec<u64>,
    /// See [`fairness`].
    pub fairness: f64,
    /// Waits for the lock, in nanoseconds.
    pub waits: Histogram<u64>,
    /// What the threads used within the measured time, where the stage knows.
    pub usage: Option<Usage>,
    /// Figures of this workload.
    pub extra: Vec<Extra>,
}

impl Measured {
    /// Operations a second.
    pub fn rate(&self) -> f64 {
        self.operations as f64 * 1e9 / self.measured_ns.max(1) as f64
    }

    /// Adds a figure.
    pub fn with(mut self, name: &'static str, value: f64) -> Self {
        self.extra.push(Extra { name, value });
        self
    }

    /// Checks a workload's invariant: `found` has to be `expected`.
    pub fn expect(self, what: &str, found: u64, expected: u64) -> Result<Self, String> {
        if found == expected {
            Ok(self)
        } else {
            Err(format!("{what}: {found} where {expected} is right; the lock does not exclude"))
        }
    }
}

/// Dice's fairness factor (ShflLock, section 6.3): the operations of the better half of the threads
/// over all operations. 0.5 is strictly fair, 1 is as unfair as can be. The middle one of an odd
/// number of threads counts half in each half.
pub fn fairness(operations: &[u64]) -> f64 {
    let total: u64 = operations.iter().sum();
    if total == 0 {
        return 0.5;
    }
    let mut sorted = operations.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let half = sorted.len() / 2;
    let mut better = sorted[..half].iter().sum::<u64>() as f64;
    if sorted.len() % 2 == 1 {
        better += sorted[half] as f64 / 2.0;
    }
    better / total as f64
}

/// Runs `body` on `threads` threads; fails if one of them reported a failure.
pub fn run<S: Stage>(stage: &S, threads: usize, body: &(dyn Fn(&mut Thread<S>) + Sync)) -> Outcome {
    let tallies: Mutex<Vec<(usize, Tally)>> = Mutex::new(Vec::with_capacity(threads));
    stage.run(threads, &|index| {
        let mut thread = Thread::start(stage, index);
        body(&mut thread);
        // What was done since the last look.
        thread.running();
        tallies.lock().expect("no thread panics while it holds the mutex").push((index, thread.finish()));
    })?;
    let mut tallies = tallies.into_inner().expect("no thread panics while it holds the mutex");
    if tallies.len() != threads {
        return Err(format!("{} of {threads} threads came to their end", tallies.len()));
    }
    tallies.sort_by_key(|(index, _)| *index);
    let mut all = waits();
    for (index, tally) in &tallies {
        if let Some(failure) = &tally.failure {
            return Err(format!("thread {index}: {failure}"));
        }
        all.add(&tally.waits).expect("same bounds");
    }
    let per_thread: Vec<u64> = tallies.iter().map(|(_, tally)| tally.counted).collect();
    let peers: Vec<u64> =
        tallies.iter().filter(|(_, tally)| !tally.apart).map(|(_, tally)| tally.counted).collect();
    Ok(Measured {
        operations: per_thread.iter().sum(),
        measured_ns: stage.measured_ns(),
        fairness: fairness(&peers),
        totals: tallies.iter().map(|(_, tally)| tally.total).collect(),
        total: tallies.iter().map(|(_, tally)| tally.total).sum(),
        per_thread,
        waits: all,
        usage: stage.usage(),
        extra: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fairness_factor_is_that_of_the_paper() {
        assert_eq!(fairness(&[10, 10, 10, 10]), 0.5);
        assert_eq!(fairness(&[0, 0, 10, 10]), 1.0);
        assert_eq!(fairness(&[5, 5, 5]), 0.5);
        assert_eq!(fairness(&[7]), 0.5);
        assert_eq!(fairness(&[0, 0]), 0.5);
        assert_eq!(fairness(&[1, 3, 2, 2]), 5.0 / 8.0);
    }
}

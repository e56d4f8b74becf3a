//! `latchwork-lab torture --explore`: many schedules of many clients on a machine that is simulated, where each failure
//! can be repeated.

use super::Target as Wanted;
use latchwork_console::failure::Result;
use latchwork_console::output;
use latchwork_sim::explore::{Outcome, Settings, Target, explore_all, targets};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Runs so many schedules of each of these, from number `first` on, and prints what came of it. Returns the exit
/// status. `freeze`: a thread that waits is stopped for ever.
pub fn explore(wanted: &[Wanted], first: u64, schedules: u64, freeze: bool) -> Result<i32> {
    let settings = Settings { freeze, ..Settings::default() };
    let is_wanted =
        |target: &Target| wanted.iter().any(|one| (one.kind, one.name) == (target.kind, target.name));
    let chosen: Vec<Target> = targets().into_iter().filter(is_wanted).collect();
    let (failed, unprinted) = (AtomicBool::new(false), OnceLock::new());
    explore_all(&chosen, &settings, first..first.saturating_add(schedules), |target, outcome| {
        failed.fetch_or(outcome.failure.is_some(), Relaxed);
        if let Err(failure) = output::print(&(line(target, outcome, first, freeze) + "\n")) {
            // The schedules that still run tell the same, or nothing.
            let _ = unprinted.set(failure);
        }
    });
    unprinted.into_inner().map_or(Ok(i32::from(failed.into_inner())), Err)
}

fn line(target: &Target, outcome: &Outcome, first: u64, freeze: bool) -> String {
    let Outcome { schedules, steps, failure } = outcome;
    let about = steps / (*schedules).max(1);
    let name = format!("{} {}", target.kind, target.name);
    match failure {
        None => format!("{name:<24} {schedules} schedules of about {about} steps: no failure"),
        Some(failure) => format!(
            "{name:<24} FAILED: {}\n{}\nAgain: latchwork-lab torture --explore {schedules} --seed {first} --lock {}{}\n",
            failure.message,
            failure.trace,
            target.name,
            if freeze { " --freeze" } else { "" }
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lock_that_can_be_tortured_can_be_explored() {
        let explored = targets();
        for one in super::super::all() {
            let found = explored.iter().any(|target| (one.kind, one.name) == (target.kind, target.name));
            assert!(found, "{one:?}");
        }
    }

    #[test]
    fn a_few_schedules() {
        let mcs = [Wanted { kind: "mutex", name: "mcs" }];
        assert_eq!(explore(&mcs, 0, 500, false).unwrap(), 0);
    }
}

//! `latchwork-lab torture --explore`: many schedules of many clients on a machine that is simulated, where each failure
//! can be repeated.

use latchwork_console::failure::{Failure, Result};
use latchwork_console::output;
use latchwork_sim::explore::{Outcome, Settings, Target, explore_all, targets};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Runs so many schedules of each of those that are called so, from number `first` on, and prints what came of it. Returns
/// the exit status. `freeze`: a thread that waits is stopped for ever.
pub fn explore(names: &[String], first: u64, schedules: u64, freeze: bool) -> Result<i32> {
    let settings = Settings { freeze, ..Settings::default() };
    let Some(end) = first.checked_add(schedules) else {
        return Err(Failure::usage(format!("--seed {first}: the number of the last schedule is too large")));
    };
    let mut chosen = super::named(targets(), |target| target.name, names)?;
    if freeze {
        chosen = tolerant(chosen, names)?;
    }
    let (failed, unprinted) = (AtomicBool::new(false), OnceLock::new());
    explore_all(&chosen, &settings, first..end, |target, outcome| {
        failed.fetch_or(outcome.failure.is_some(), Relaxed);
        if let Err(failure) = output::print(&(line(target, outcome, first, freeze) + "\n")) {
            // The schedules that still run tell the same, or nothing.
            let _ = unprinted.set(failure);
        }
    });
    unprinted.into_inner().map_or(Ok(i32::from(failed.into_inner())), Err)
}

/// Those that stay available to the others when a waiting thread is stopped for ever. Others need not, as a queue lock does
/// not: they are refused if the user names them, and left out of `all`.
fn tolerant(chosen: Vec<Target>, names: &[String]) -> Result<Vec<Target>> {
    let (tolerant, others): (Vec<_>, Vec<_>) =
        chosen.into_iter().partition(|target| target.tolerates_suspension);
    if let Some(other) = others.iter().find(|other| names.iter().any(|name| name.trim() == other.name)) {
        return Err(Failure::usage(format!(
            "--freeze: {} does not promise to stay available when a thread that waits is stopped",
            other.name
        )));
    }
    if !others.is_empty() {
        let names: Vec<_> = others.iter().map(|other| other.name).collect();
        output::print(&format!(
            "Left out, because they do not promise to stay available when a thread that waits is stopped: {}\n",
            names.join(", ")
        ))?;
    }
    Ok(tolerant)
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
        assert_eq!(explore(&["mcs".into()], 0, 500, false).unwrap(), 0);
    }

    #[test]
    fn the_maps_are_explored_by_name() {
        assert_eq!(explore(&["rcu-map".into()], 0, 1, false).unwrap(), 0);
    }

    #[test]
    fn a_queue_lock_is_not_asked_to_outlive_a_stopped_waiter() {
        let error = explore(&["mcs".into()], 0, 500, true).unwrap_err();
        assert!(error.status == 2 && error.message.contains("mcs does not promise"), "{}", error.message);
        let left = tolerant(targets(), &["all".into()]).unwrap();
        assert!(!left.is_empty() && left.iter().all(|target| target.tolerates_suspension));
    }

    #[test]
    fn numbers_that_are_too_large_are_refused() {
        assert_eq!(explore(&["mcs".into()], u64::MAX, 10, false).unwrap_err().status, 2);
    }
}

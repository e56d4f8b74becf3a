//! Every algorithm of the library on real threads: more of them than cores, coming and going, with
//! short and sleeping sections, attempts and deadlines mixed in. What loom cannot do: the machine's
//! real memory, the kernel's futex and `membarrier`, and time.
//!
//! Each lock runs for about a second, or `LATCHWORK_STRESS_SECONDS`; `LATCHWORK_LOCK=name` runs one
//! lock only (or several, separated by commas). A lock that stands still is named on stderr, and the
//! process ends. `latchwork torture` does the same at length.

#[path = "../../latchwork/tests/example/futex.rs"]
mod example;

use example::RawFutex;
use latchwork::machine::Native;
use latchwork::mutex::RawMutex;
use latchwork::registry;
use latchwork_torture::jitter::Jitter;
use latchwork_torture::{Scenario, Settings, of_mutex, registered, torture};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn settings() -> Settings {
    let seconds = match std::env::var("LATCHWORK_STRESS_SECONDS") {
        Ok(text) => text.parse().expect("LATCHWORK_STRESS_SECONDS is a number of seconds"),
        Err(_) => 0.8,
    };
    Settings {
        time: Duration::from_secs_f64(seconds),
        patience: Duration::from_secs(60),
        ..Settings::default()
    }
}

/// Tortures a lock that must work, and names it if it does not.
fn must_work(name: &str, scenarios: &[Scenario]) {
    if std::env::var("LATCHWORK_LOCK").is_ok_and(|only| only.split(',').all(|other| other != name)) {
        return;
    }
    let report = torture(scenarios, settings(), &AtomicBool::new(false), |_| ());
    let Some(failed) = report.failed else {
        assert!(report.totals.writes > 0, "nobody ever got {name}");
        eprintln!("{name:>12}: {} operations in {} rounds", report.totals.operations, report.rounds);
        return;
    };
    let what =
        format!("{name} failed in {} on the {} machine: {}", failed.scenario, failed.machine, failed.what);
    if failed.state.is_empty() {
        panic!("{what}");
    }
    // Its threads may spin for ever, and other tests would fail for it.
    eprintln!("{what}\n  {}", failed.state.join("\n  "));
    std::process::abort();
}

#[test]
fn every_lock() {
    registry::for_each(|entry| must_work(entry.info.name, &registered(entry.kind, entry.info.name)));
}

#[test]
fn the_example_of_contributing() {
    let mut scenarios = of_mutex::<RawFutex<Native>>();
    scenarios.extend(of_mutex::<RawFutex<Jitter>>());
    must_work(RawFutex::<Native>::INFO.name, &scenarios);
}

//! The torture is itself tested: it must catch every lock that is broken on purpose. `LATCHWORK_TWIN=name`
//! tries one only (or several, separated by commas).

use latchwork_torture::twins::{self, Verdict};
use std::time::Duration;

/// Rounds go on until a twin is caught; one that is not by then counts as missed.
const AT_MOST: Duration = Duration::from_secs(120);

/// Catching one is mostly waiting for its threads to stand still, so every third twin is tried beside the others.
fn every_third_is_caught_from(first: usize) {
    let mut missed = Vec::new();
    let only = std::env::var("LATCHWORK_TWIN").ok();
    let wanted = |name| only.as_ref().is_none_or(|only| only.split(',').any(|other| other == name));
    for twin in twins::all().into_iter().skip(first).step_by(3).filter(|twin| wanted(twin.name)) {
        let start = std::time::Instant::now();
        let verdict = twin.check(1, AT_MOST);
        eprintln!("{:>20}: {:.1} s", twin.name, start.elapsed().as_secs_f64());
        match verdict {
            Verdict::Caught(failed) => eprintln!("{:>20}  {}", "", failed.what),
            other => missed.push(format!("{}, which {}: {other:?}", twin.name, twin.mistake)),
        }
    }
    assert!(missed.is_empty(), "not caught:\n{}", missed.join("\n"));
}

#[test]
fn the_first_twin_and_every_third_is_caught() {
    every_third_is_caught_from(0);
}

#[test]
fn the_second_twin_and_every_third_is_caught() {
    every_third_is_caught_from(1);
}

#[test]
fn the_third_twin_and_every_third_is_caught() {
    every_third_is_caught_from(2);
}

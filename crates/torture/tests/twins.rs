//! The torture is itself tested: it must catch every lock that is broken on purpose.

use latchwork_torture::twins::{self, Verdict};
use std::time::Duration;

/// Rounds go on until a twin is caught; one that is not by then counts as missed.
const AT_MOST: Duration = Duration::from_secs(30);

#[test]
fn every_twin_is_caught() {
    let mut missed = Vec::new();
    for twin in twins::all() {
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

//! The torture is itself tested: it must catch every lock that is broken on purpose. `LATCHWORK_TWIN=name`
//! tries one only (or several, separated by commas).

use latchwork_torture::twins::{self, Verdict};
use std::time::Duration;

/// Rounds go on until a twin is caught; one that is not by then counts as missed.
const AT_MOST: Duration = Duration::from_secs(120);

#[test]
fn every_twin_is_caught() {
    let mut missed = Vec::new();
    let only = std::env::var("LATCHWORK_TWIN").ok();
    let wanted = |name| only.as_ref().is_none_or(|only| only.split(',').any(|other| other == name));
    for twin in twins::all().into_iter().filter(|twin| wanted(twin.name)) {
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

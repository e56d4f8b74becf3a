//! Every reclamation strategy, tortured for a short while (`LATCHWORK_TORTURE_SECONDS` says for how long,
//! each).

use latchwork_torture::{Settings, reclaim, torture};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

#[test]
fn strategies_survive() {
    let seconds = std::env::var("LATCHWORK_TORTURE_SECONDS").ok().and_then(|text| text.parse().ok());
    let time = Duration::from_secs_f64(seconds.unwrap_or(0.5));
    for (name, scenarios) in reclaim::strategies() {
        let settings = Settings { threads: 8, time, round: time / 4, ..super::settings() };
        // On a busy machine, again, until everything has happened.
        let totals = (0..30)
            .map(|attempt| {
                let settings = Settings { seed: settings.seed + attempt, ..settings };
                let report = torture(&scenarios, settings, &AtomicBool::new(false), |_| ());
                assert!(report.failed.is_none(), "{name}, seed {}: {:?}", settings.seed, report.failed);
                report.totals
            })
            .find(|totals| totals.reads > 0 && totals.writes > 0 && totals.threads_replaced > 0)
            .unwrap_or_else(|| panic!("{name}: nothing happens"));
        eprintln!("{name}: {} reads, {} writes", totals.reads, totals.writes);
    }
}

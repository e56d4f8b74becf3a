//! Explores schedules of locks: `explore [name,..|all] [schedules] [first seed]`.

use latchwork_sim::explore::{Mistake, Settings, targets};
use std::time::Instant;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let names = arguments.next().unwrap_or_else(|| "all".into());
    let schedules: u64 = arguments.next().map_or(100_000, |n| n.parse().expect("a number of schedules"));
    let first: u64 = arguments.next().map_or(0, |n| n.parse().expect("a seed"));
    for target in targets() {
        if names != "all" && names.split(',').all(|name| name != target.name) {
            continue;
        }
        if std::env::var_os("COUNT").is_some() {
            let (mut seed, mut found) = (first, 0);
            while seed < first + schedules {
                let settings = Settings { shrink: false, ..Settings::default() };
                let outcome = target.explore(&settings, seed..first + schedules);
                let Some(failure) = outcome.failure else { break };
                found += 1;
                if found <= 5 {
                    println!("{} {}\n{}", failure.seed, failure.message, failure.trace);
                }
                seed = failure.seed + 1;
            }
            println!("{target:?}: {found} failures");
            continue;
        }
        let start = Instant::now();
        let mistake = std::env::var("MISTAKE").ok().map(|name| {
            Mistake::ALL.into_iter().find(|mistake| format!("{mistake:?}") == name).expect("a mistake")
        });
        let mistake = mistake.unwrap_or(Mistake::None);
        let shrink = std::env::var_os("BRIEF").is_none();
        let outcome = target.explore(
            &Settings { mistake, shrink, freeze: std::env::var_os("FREEZE").is_some() },
            first..first + schedules,
        );
        let time = start.elapsed();
        let steps = outcome.steps as f64 / outcome.schedules as f64;
        println!(
            "{target:?}: {} schedules of {steps:.0} steps, {time:.1?}, {:.2} us each",
            outcome.schedules,
            time.as_secs_f64() * 1e6 / outcome.schedules as f64
        );
        if let Some(failure) = outcome.failure {
            println!("seed {}: {}\n{}", failure.seed, failure.message, failure.trace);
        }
    }
}

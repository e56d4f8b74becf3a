//! What came out, as a table and as JSON.

use super::{Plan, Results, Target};
use latchwork_console::table;
use latchwork_torture::{Failed, Report, Totals};
use serde::Serialize;
use std::time::UNIX_EPOCH;

/// A failure, and how to see it again.
pub fn failure(plan: &Plan, target: Target, failed: &Failed) -> String {
    let name = target.name;
    let place = match (failed.scenario.as_str(), failed.machine.as_str()) {
        ("", _) => String::new(),
        (scenario, "native") => format!(" in {scenario}"),
        (scenario, _) => format!(" in {scenario} with jitter"),
    };
    let mut text = format!("latchwork-lab: {name} failed{place}: {}\n", failed.what);
    for line in &failed.state {
        text += &format!("  {line}\n");
    }
    text += &format!("  again: {}\n", again(plan, target));
    text
}

fn again(plan: &Plan, target: Target) -> String {
    let Plan { seconds, threads, seed, patience } = plan;
    let option = if target.kind == "twin" { "--twin" } else { "--lock" };
    format!(
        "latchwork-lab torture {option} {} --seconds {seconds} --threads {threads} --seed {seed} --patience {patience}",
        target.name
    )
}

/// All of it.
pub fn text(plan: &Plan, results: &Results) -> String {
    let mut text = String::new();
    if results.interrupted.is_some() {
        text += "Interrupted; what came out until then:\n";
    }
    text += &format!("{} threads, {} s each, seed {}\n\n", plan.threads, plan.seconds, plan.seed);
    let mut table = table::new([
        "lock",
        "result",
        "rounds",
        "operations",
        "readers",
        "gave up",
        "freed",
        "max read",
        "max write",
        "max cond",
    ]);
    for lock in &results.locks {
        let Report { rounds, totals, failed, .. } = &lock.report;
        let Totals { operations, readers_at_once, timed_out, destroyed, .. } = totals;
        table.add_row([
            lock.target.name.to_owned(),
            if failed.is_some() { "FAILED" } else { "ok" }.to_owned(),
            rounds.to_string(),
            operations.to_string(),
            if *readers_at_once == 0 { "-".into() } else { readers_at_once.to_string() },
            timed_out.to_string(),
            destroyed.to_string(),
            time(totals.longest_read_wait_s),
            time(totals.longest_write_wait_s),
            time(totals.longest_condition_wait_s),
        ]);
    }
    table::right(&mut table, 2..=9);
    text += &format!("{}\n\n", table.trim_fmt());
    text += "readers: most seen inside at a time; gave up: timed waits; freed: locks, by the last to release them;\n\
             max: the longest untimed wait to read, to write, for a condition (not judged)\n";
    let away = results.locks.iter().map(|lock| lock.report.away_s).sum::<f64>();
    if away >= 1.0 {
        text += &format!("The process did not run for {away:.0} s in all: such a wait is not the lock's.\n");
    }
    for lock in &results.locks {
        if let Some(failed) = &lock.report.failed {
            text += "\n";
            text += failure(plan, lock.target, failed).trim_start_matches("latchwork-lab: ");
        }
    }
    text
}

/// Seconds, as people read them.
fn time(seconds: f64) -> String {
    match seconds {
        0.0 => "-".into(),
        s if s < 1e-3 => format!("{:.0} us", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    latchwork: &'static str,
    /// Seconds since 1970.
    started: u64,
    threads: u32,
    seconds: f64,
    seed: u64,
    patience_s: f64,
    interrupted: bool,
    locks: Vec<Lock<'a>>,
}

#[derive(Serialize)]
struct Lock<'a> {
    name: &'static str,
    kind: &'static str,
    ok: bool,
    again: String,
    #[serde(flatten)]
    report: &'a Report,
}

/// The document, with a line end.
pub fn json(plan: &Plan, results: &Results) -> String {
    let document = Document {
        latchwork: env!("CARGO_PKG_VERSION"),
        started: results.started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        threads: plan.threads,
        seconds: plan.seconds,
        seed: plan.seed,
        patience_s: plan.patience,
        interrupted: results.interrupted.is_some(),
        locks: results
            .locks
            .iter()
            .map(|lock| Lock {
                name: lock.target.name,
                kind: lock.target.kind,
                ok: lock.report.failed.is_none(),
                again: again(plan, lock.target),
                report: &lock.report,
            })
            .collect(),
    };
    serde_json::to_string_pretty(&document).expect("plain data") + "\n"
}

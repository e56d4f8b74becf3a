//! The results as a page of Markdown: each lock's share of the best at each point, and where the default
//! lock is behind.

use super::against;
use super::plan::Plan;
use super::report;
use super::results::{Place, Point, Results, varied};
use latchwork_console::names;
use latchwork_console::stats;
use latchwork_workloads::stage::Usage;

/// A share of the best below this is called behind.
const NEAR: f64 = 0.95;

/// The page, without the head of a generated one. `header` says what the points were measured on and for how long.
pub fn page(plan: &Plan, results: &Results, header: &str) -> String {
    let mut page = format!("# {}\n\n", plan.workload.name);
    if results.interrupted.is_some() {
        page += "Interrupted; this is what was measured until then.\n\n";
    }
    page += &format!(
        "{}: {}. {header}; medians of {} rounds. In the tables: operations a second as a share of the best\n\
         lock's at the point (the column).\n",
        plan.workload.name, plan.workload.summary, plan.runs
    );
    if let Some(cut) = results.cut {
        page += &format!(
            "`*`: in the first round it did less than {cut} of the best, and was not measured again.\n"
        );
    }
    for settings in 0..plan.settings.len() {
        table(&mut page, plan, results, settings);
    }
    if results.usage_is_known() {
        used(&mut page, plan, results);
    }
    page += &against::text(plan, results, "## ");
    let choice = names::default_choice();
    let is_default = |name: &str| name != names::GLIBC && (name == choice.mutex || name == choice.rwlock);
    for (lock, candidate) in plan.locks.iter().enumerate().filter(|(_, lock)| is_default(lock.name)) {
        behind(&mut page, plan, results, lock, candidate.name);
    }
    page
}

/// What the threads used: processor time of an operation, and context switches a second.
fn used(page: &mut String, plan: &Plan, results: &Results) {
    *page += "\n## Processor time and context switches\n\n\
              User and system time of an operation; voluntary and involuntary context switches a second.\n";
    for settings in 0..plan.settings.len() {
        let varied = varied(plan, settings);
        let threads: Vec<_> = plan.threads.iter().map(usize::to_string).collect();
        *page += &format!("\n| threads | {} |\n|---|{}\n", threads.join(" | "), "---|".repeat(threads.len()));
        for (lock, candidate) in plan.locks.iter().enumerate() {
            let cell = |threads| {
                let point = results.at(Place { settings, threads, lock });
                let time = |of: fn(&Usage) -> u64| {
                    point.used(|run, usage| run.each(of(usage))).map_or("-".into(), report::time)
                };
                let switches = |of: fn(&Usage) -> u64| {
                    point.used(|run, usage| run.a_second(of(usage))).map_or("-".into(), report::rate)
                };
                format!(
                    "{} + {}; {} + {}",
                    time(|usage| usage.user_ns),
                    time(|usage| usage.system_ns),
                    switches(|usage| usage.voluntary),
                    switches(|usage| usage.involuntary)
                )
            };
            let cells: Vec<String> = (0..plan.threads.len()).map(cell).collect();
            let name = [candidate.name, &varied].join(" ");
            *page += &format!("| {} | {} |\n", name.trim_end(), cells.join(" | "));
        }
    }
}

/// The points of all locks at one thread count.
fn column<'a>(plan: &Plan, results: &'a Results, settings: usize, threads: usize) -> Vec<&'a Point> {
    (0..plan.locks.len()).map(|lock| results.at(Place { settings, threads, lock })).collect()
}

/// The fastest of a column that did anything.
fn best<'a>(column: &[&'a Point]) -> Option<(&'a Point, f64)> {
    let rates = column.iter().filter_map(|point| Some((*point, point.rate()?)));
    rates.filter(|(_, rate)| *rate > 0.0).max_by(|a, b| a.1.total_cmp(&b.1))
}

fn table(page: &mut String, plan: &Plan, results: &Results, settings: usize) {
    let varied = varied(plan, settings);
    *page += &format!("\n## {}\n\n", if varied.is_empty() { "All locks" } else { &varied });
    let columns: Vec<_> =
        (0..plan.threads.len()).map(|threads| column(plan, results, settings, threads)).collect();
    let bests: Vec<_> = columns.iter().map(|column| best(column)).collect();
    let mut row = |name: &str, cells: Vec<String>| {
        *page += &format!("| {name} | {} |\n", cells.join(" | "));
    };
    row("threads", plan.threads.iter().map(usize::to_string).collect());
    row("---", vec!["---:".to_owned(); columns.len()]);
    let rate = |best: &Option<(&Point, f64)>| best.map_or("-".into(), |(_, rate)| report::rate(rate));
    row("op/s of the best", bests.iter().map(rate).collect());
    for (lock, candidate) in plan.locks.iter().enumerate() {
        let cell = |(column, best): (&Vec<&Point>, &Option<(&Point, f64)>)| share(column[lock], *best, plan);
        row(candidate.name, columns.iter().zip(&bests).map(cell).collect());
    }
}

fn share(point: &Point, best: Option<(&Point, f64)>, plan: &Plan) -> String {
    if point.failure.is_some() {
        return "FAILED".into();
    }
    let (Some(rate), Some((fastest, best))) = (point.rate(), best) else { return "-".into() };
    let once = if plan.runs > 1 && point.runs.len() == 1 { "*" } else { "" };
    let share = rate / best;
    match share {
        _ if fastest.place == point.place => "**1.00**".into(),
        0.0005.. => format!("{share:.*}{once}", if share < 0.01 { 3 } else { 2 }),
        _ => format!("0{once}"),
    }
}

/// Where `lock` is behind, and which lock is ahead. The fairness and the longest wait of both stand beside each other,
/// because a lock that lets a thread starve is fast.
fn behind(page: &mut String, plan: &Plan, results: &Results, lock: usize, name: &str) {
    let mut rows = String::new();
    let (mut points, mut far) = (0, 0);
    for settings in 0..plan.settings.len() {
        for threads in 0..plan.threads.len() {
            let column = column(plan, results, settings, threads);
            let (Some(rate), Some((fastest, best))) = (column[lock].rate(), best(&column)) else { continue };
            points += 1;
            if rate >= best * NEAR {
                continue;
            }
            far += 1;
            let rounds = column[lock].by_rounds(fastest);
            let shares: Vec<f64> = rounds.map(|(own, other)| own.rate / other.rate.max(1e-9)).collect();
            let range = match shares.len() {
                0 | 1 => String::new(),
                _ => {
                    format!("{:.2} .. {:.2}", stats::quantile(&shares, 0.0), stats::quantile(&shares, 1.0))
                }
            };
            let fair = |point: &Point| {
                point.median(|run| run.fairness).map_or("-".into(), |share| format!("{share:.2}"))
            };
            let longest = |point: &Point| {
                let waits = point.runs.iter().filter_map(|run| Some(run.waits?.max));
                waits.reduce(f64::max).map_or("-".into(), report::time)
            };
            rows += &format!(
                "| {} | {} | {} | {:.2} | {range} | {} / {} | {} / {} |\n",
                varied(plan, settings),
                plan.threads[threads],
                plan.locks[fastest.place.lock].name,
                rate / best,
                fair(column[lock]),
                fair(fastest),
                longest(column[lock]),
                longest(fastest),
            );
        }
    }
    let tolerance = (1.0 - NEAR) * 100.0;
    *page += &format!(
        "\n## Where {name} is more than {tolerance:.0}% behind the best\n\n{far} of {points} points.\n"
    );
    if far > 0 {
        *page += &format!(
            "\nRounds: its share of the best lock's, round by round. Fairness (0.5 is fair) and the longest\n\
             wait of all rounds: of {name} / of the best.\n\n\
             | settings | threads | best | share | rounds | fairness | longest wait |\n\
             |---|---:|---|---:|---|---|---|\n{rows}\n"
        );
    }
}

//! The results as a table and a few sentences.

use super::against;
use super::plan::Plan;
use super::results::{Place, Point, Results, Waits, varied};
use comfy_table::Table;
use latchwork_console::{stats, table};

/// All of it. `header` says what it was measured on.
pub fn text(plan: &Plan, results: &Results, header: &str) -> String {
    let mut text = String::new();
    if results.interrupted.is_some() {
        text += "Interrupted; what was measured until then:\n";
    }
    let workload = &plan.workload;
    text += &format!("{}: {}\n{header}\n\n", workload.name, workload.summary);
    text += &format!("{}\n\n", table(plan, results).trim_fmt());
    text += &format!(
        "op: {}. Medians of {} run{}; +-: distance of the quartiles. fair: share of the better half of the\n\
         threads (0.5 is fair). Waits for the lock: median, 99 of 100, longest.\n",
        workload.operation,
        plan.runs,
        if plan.runs == 1 { "" } else { "s" },
    );
    if results.points.iter().flat_map(|point| &point.runs).any(|run| run.waits.is_none()) {
        text += "-: no wait was timed.\n";
    }
    if results.usage_is_known() {
        text += "user/op, sys/op: processor time of all threads for each operation, in the program and in the kernel.\n\
                 vol/s, inv/s: voluntary and involuntary context switches a second.\n";
    }
    for point in results.points.iter().filter(|point| point.failure.is_some()) {
        let why = point.failure.as_deref().unwrap_or_default();
        let lock = plan.locks[point.place.lock].name;
        let threads = plan.threads[point.place.threads];
        text += &format!("\n{lock} FAILED with {threads} threads: {why}\n");
    }
    text += "\n";
    text += &conclusion(plan, results);
    text += &against::text(plan, results, "");
    text
}

fn table(plan: &Plan, results: &Results) -> Table {
    let extras = results.extras();
    // A column for the settings, if there is more than one.
    let several = plan.settings.len() > 1;
    let mut heads = vec!["threads", "lock", "op/s", "+-", "fair", "p50", "p99", "max"];
    let known = results.usage_is_known();
    if known {
        heads.extend(["user/op", "sys/op", "vol/s", "inv/s"]);
    }
    heads.extend(&extras);
    if several {
        heads.insert(0, "settings");
    }
    let words = if several { [0, 2] } else { [1, 1] };
    let numbers = (0..heads.len()).filter(|column| !words.contains(column));
    let mut table = table::new(heads);
    for settings in 0..plan.settings.len() {
        for (index, threads) in plan.threads.iter().enumerate() {
            for (lock, candidate) in plan.locks.iter().enumerate() {
                let point = results.at(Place { settings, threads: index, lock });
                let mut row = Vec::new();
                if several {
                    // On every line: that is what grep wants.
                    row.push(varied(plan, settings));
                }
                row.push(threads.to_string());
                row.push(candidate.name.to_owned());
                row.extend(figures(point, known, &extras));
                table.add_row(row);
            }
        }
    }
    table::right(&mut table, numbers);
    table
}

fn figures(point: &Point, known: bool, extras: &[&'static str]) -> Vec<String> {
    if point.runs.is_empty() || point.failure.is_some() {
        return vec![if point.failure.is_some() { "FAILED" } else { "-" }.to_owned()];
    }
    let shown = |value: Option<f64>, show: fn(f64) -> String| value.map(show).unwrap_or_default();
    let wait = |of: fn(&Waits) -> f64| point.wait(of).map_or("-".into(), time);
    let mut figures = vec![
        shown(point.rate(), rate),
        if point.runs.len() > 1 {
            format!("{:.0}%", stats::spread(&point.rates()) * 100.0)
        } else {
            String::new()
        },
        shown(point.median(|run| run.fairness), |fairness| format!("{fairness:.2}")),
        wait(|waits| waits.p50),
        wait(|waits| waits.p99),
        wait(|waits| waits.max),
    ];
    if known {
        figures.extend([
            shown(point.used(|run, usage| run.each(usage.user_ns)), time),
            shown(point.used(|run, usage| run.each(usage.system_ns)), time),
            shown(point.used(|run, usage| run.a_second(usage.voluntary)), rate),
            shown(point.used(|run, usage| run.a_second(usage.involuntary)), rate),
        ]);
    }
    figures.extend(extras.iter().map(|name| shown(point.extra(name), plain)));
    figures
}

/// Operations a second, in three or four digits.
pub fn rate(rate: f64) -> String {
    match rate {
        rate if rate >= 1e8 => format!("{:.0} M", rate / 1e6),
        rate if rate >= 1e6 => format!("{:.2} M", rate / 1e6),
        rate if rate >= 1e3 => format!("{:.1} k", rate / 1e3),
        rate => format!("{rate:.1}"),
    }
}

/// Nanoseconds with a unit.
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns >= 1e9 => format!("{:.1} s", ns / 1e9),
        ns if ns >= 1e6 => format!("{:.1} ms", ns / 1e6),
        ns if ns >= 1e4 => format!("{:.0} us", ns / 1e3),
        ns if ns >= 1e3 => format!("{:.1} us", ns / 1e3),
        ns => format!("{ns:.0} ns"),
    }
}

fn plain(value: f64) -> String {
    match value.abs() {
        size if size >= 1e4 => rate(value),
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

/// The order of the locks where there are most threads, for each of the settings.
fn conclusion(plan: &Plan, results: &Results) -> String {
    let mut text = String::new();
    let last = plan.threads.len() - 1;
    for settings in 0..plan.settings.len() {
        let rate = |lock| results.at(Place { settings, threads: last, lock }).rate();
        let mut order: Vec<(usize, f64)> =
            (0..plan.locks.len()).filter_map(|lock| Some((lock, rate(lock)?))).collect();
        if order.len() < 2 {
            continue;
        }
        order.sort_by(|a, b| b.1.total_cmp(&a.1));
        let best = order[0].1;
        let name = |lock: usize| plan.locks[lock].name;
        let others: Vec<String> = order[1..]
            .iter()
            .map(|(lock, rate)| format!("{} {:.2}", name(*lock), rate / best.max(f64::MIN_POSITIVE)))
            .collect();
        let varied = varied(plan, settings);
        let with = if varied.is_empty() { String::new() } else { format!(" and {varied}") };
        text += &format!(
            "With {} threads{with}: {} is the fastest; as a share of it: {}.\n",
            plan.threads[last],
            name(order[0].0),
            others.join(", ")
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::options::Common;
    use crate::measure::plan::Limits;
    use crate::measure::results::Run;

    #[test]
    fn a_table_without_a_figure_says_why() {
        let limits = Limits {
            candidates: &crate::simulate::candidates(),
            handful: &["shfl"],
            cpus: 2,
            most_threads: 8,
            name: "",
            runs: 1,
        };
        let common =
            Common { workload: Some("counter".into()), threads: Some("1,2".into()), ..Common::default() };
        let plan = Plan::new(&common, &limits).map_err(|error| error.message).unwrap();
        let mut results = Results::new(&plan);
        results.file(1, Err("the lock lost an increment".into()));
        let text = text(&plan, &results, "on nothing");
        assert!(text.contains("shfl FAILED with 2 threads: the lock lost an increment"), "{text}");
        assert!(text.contains("op/s") && text.lines().any(|line| line.trim() == "2  shfl  FAILED"), "{text}");
    }

    #[test]
    fn a_lock_that_failed_is_not_the_fastest() {
        let limits = Limits {
            candidates: &crate::simulate::candidates(),
            handful: &["shfl", "mcs", "ttas"],
            cpus: 2,
            most_threads: 8,
            name: "",
            runs: 3,
        };
        let common =
            Common { workload: Some("counter".into()), threads: Some("2".into()), ..Common::default() };
        let plan = Plan::new(&common, &limits).map_err(|error| error.message).unwrap();
        let mut results = Results::new(&plan);
        for round in 0..3 {
            for (lock, rate) in [9e6, 2e6, 1e6].into_iter().enumerate() {
                let failed = lock == 0 && round == 1;
                let run = Run::at(rate).of_round(round);
                results.file(lock, if failed { Err("it lost an update".into()) } else { Ok(run) });
            }
        }
        let text = text(&plan, &results, "on nothing");
        let name = |lock: usize| plan.locks[lock].name;
        assert!(text.contains(&format!("{} is the fastest; as a share of it: {} 0.50.", name(1), name(2))));
        let row = format!("2  {}  FAILED", name(0));
        assert!(text.lines().any(|line| line.split_whitespace().eq(row.split_whitespace())), "{text}");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(rate(123.0), "123.0");
        assert_eq!(rate(45_678.0), "45.7 k");
        assert_eq!(rate(12_345_678.0), "12.35 M");
        assert_eq!(time(950.0), "950 ns");
        assert_eq!(time(1_500.0), "1.5 us");
        assert_eq!(time(2_500_000.0), "2.5 ms");
        assert_eq!(plain(8.0), "8");
        assert_eq!(plain(0.254), "0.25");
    }
}

//! A look as text, for people and scripts without a terminal.

use super::sample::{Figures, Order, Row, Sample};
use crate::profile::findings::ratio;
use crate::profile::units::{count, cut, percent, things, time};
use crate::unseen::{self, OTHER_LOCKS};
use latchwork_console::fold::fold;
use serde_json::{Value, json};

/// Rows of a table; the rest is counted below it.
const ROWS: usize = 20;
/// Characters of a line of a sentence.
const WIDTH: usize = 100;
/// What stands in place of rows.
pub const NO_LOCK: &str = "No pthread lock has been called since the recording began.";
/// Characters of a name.
pub const NAME: usize = 32;

/// The first line: what happened to all locks together.
pub fn headline(pid: u32, program: &str, sample: &Sample, whole: bool) -> String {
    let seconds = sample.time(whole);
    let sum = |of: fn(&Figures) -> u64| sample.rows.iter().map(|row| of(row.figures(whole))).sum::<u64>();
    let waiting: u64 = sample.rows.iter().map(|row| row.waiting).sum();
    format!(
        "{program} ({pid}): {}, {:.1} wait ({waiting} now), {} acquisitions/s, {} contended",
        things(sample.threads as u64, "thread"),
        sum(|figures| figures.wait_ns) as f64 / 1e9 / seconds.max(1e-9),
        count(per_second(sum(|figures| figures.acquisitions), seconds)),
        percent(ratio(sum(|figures| figures.contended), sum(Figures::calls))),
    )
}

/// So many in each second.
pub fn per_second(number: u64, seconds: f64) -> u64 {
    (number as f64 / seconds.max(1e-9)).round() as u64
}

/// The names of the columns behind the lock's, and their widths.
pub const COLUMNS: [(&str, usize); 7] =
    [("kind", 7), ("locks", 7), ("acq/s", 8), ("contended", 9), ("waiting", 7), ("wait/s", 8), ("held", 8)];

/// What stands in these columns.
pub fn columns(row: &Row, seconds: f64, whole: bool) -> [String; COLUMNS.len()] {
    let figures = row.figures(whole);
    [
        row.kind.key().into(),
        count(row.instances),
        count(per_second(figures.acquisitions, seconds)),
        percent(ratio(figures.contended, figures.calls())),
        count(row.waiting),
        time(per_second(figures.wait_ns, seconds)),
        figures.hold_mean_ns().map_or_else(|| "-".into(), time),
    ]
}

/// A line of a table: a name of this width, and the columns behind it.
pub fn line(name: &str, width: usize, cells: &[impl std::fmt::Display; COLUMNS.len()]) -> String {
    let mut line = format!("{name:width$}");
    for ((_, width), cell) in COLUMNS.iter().zip(cells) {
        line += &format!(" {cell:>width$}");
    }
    line
}

/// The table.
pub fn text(pid: u32, program: &str, sample: &Sample, order: Order) -> String {
    let mut text = headline(pid, program, sample, false) + "\n";
    text.extend(sample.stuck.deadlock.iter().map(|sentence| fold(sentence, "  ", WIDTH)));
    let rows = sample.sorted(order, false);
    text += &(line("lock", NAME, &COLUMNS.map(|(name, _)| name)) + "\n");
    for row in rows.iter().take(ROWS) {
        let line = line(&cut(&row.name, NAME), NAME, &columns(row, sample.seconds, false));
        text += &(line + "\n");
    }
    if rows.is_empty() {
        text += &format!("{NO_LOCK} ({OTHER_LOCKS}.)\n");
        let asleep = unseen::asleep(pid, sample.asleep, &sample.stuck);
        text.extend(asleep.map(|sentences| fold(&sentences, "", WIDTH)));
    }
    if rows.len() > ROWS {
        text += &format!("and {} more\n", rows.len() - ROWS);
    }
    text
}

/// A line of JSON.
pub fn json(pid: u32, sample: &Sample, order: Order) -> String {
    let figures = |figures: &Figures| {
        json!({
            "acquisitions": figures.acquisitions,
            "reads": figures.reads,
            "contended": figures.contended,
            "wait_ns": figures.wait_ns,
            "hold_ns": figures.hold_mean_ns(),
        })
    };
    let row = |row: &&Row| {
        let mut line = figures(&row.last);
        line["name"] = row.name.clone().into();
        line["kind"] = row.kind.key().into();
        line["instances"] = row.instances.into();
        line["waiting"] = row.waiting.into();
        line["total"] = figures(&row.all);
        line
    };
    let rows: Vec<Value> = sample.sorted(order, false).iter().map(row).collect();
    let document = json!({
        "pid": pid,
        "seconds": sample.seconds,
        "total_seconds": sample.total_seconds,
        "threads": sample.threads,
        "asleep": sample.asleep,
        "deadlock": sample.stuck.deadlock,
        "locks": rows,
    });
    document.to_string() + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::sample::tests::looks;
    use super::*;

    #[test]
    fn a_table_for_people_and_a_line_for_scripts() {
        let [first, second] = looks();
        let table = text(7, "server", &first, Order::Wait);
        let lines: Vec<_> = table.lines().collect();
        assert!(lines[0].starts_with("server (7): 10 threads, 3.8 wait ("), "{table}");
        assert!(lines[1].starts_with("lock ") && lines[2].starts_with("cache.mutex_ "), "{table}");
        assert!(lines.iter().skip(1).all(|line| line.chars().count() <= 100), "{table}");
        let line = json(7, &second, Order::Wait);
        let value: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line.lines().count(), 1);
        assert_eq!(value["locks"][0]["acquisitions"], 500);
        assert_eq!(value["locks"][0]["wait_ns"], 1_000_000_000);
        assert_eq!(value["locks"][1]["total"]["contended"], 4_000);
    }

    /// A hundred calls gave up, and one got the lock.
    #[test]
    fn no_share_is_larger_than_all() {
        let figures = Figures { acquisitions: 1, contended: 100, timeouts: 100, ..Figures::default() };
        let row = |row: &Row| Row { last: figures, ..row.clone() };
        let [mut look, _] = looks();
        look.rows = vec![row(&look.rows[0])];
        assert_eq!(columns(&look.rows[0], 1.0, false)[3], "99%");
        assert!(headline(7, "server", &look, false).ends_with("99% contended"));
    }
}

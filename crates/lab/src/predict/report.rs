//! The answer as a table and sentences, and as JSON.

use super::check::Check;
use super::load::Shares;
use super::plan::{Answer, Plan, Point};
use latchwork_console::table;
use latchwork_recording::trace_file::About;
use serde::Serialize;
use std::fmt::Write as _;

/// All that is to say.
#[derive(Serialize)]
pub struct Report {
    pub(super) command: Vec<String>,
    recorded: Recorded,
    pub(super) check: Check,
    refused: bool,
    pub(super) machine: Machine,
    pub(super) seed: u64,
    loop_is: &'static str,
    pub(super) curves: Vec<Curve>,
    best_lock: Option<String>,
}

#[derive(Serialize)]
struct Recorded {
    seconds: f64,
    cpus: usize,
    processor: String,
    mutex: String,
    rwlock: String,
    replayed_on: String,
    shares: Shares,
    roles: Vec<Role>,
}

#[derive(Serialize)]
struct Role {
    name: String,
    threads: usize,
    share_of_acquisitions: f64,
}

#[derive(Serialize)]
pub(super) struct Machine {
    pub(super) name: String,
    summary: String,
    pub(super) cpus: usize,
}

/// Throughput against threads, under one choice of locks.
#[derive(Serialize)]
pub(super) struct Curve {
    pub(super) name: String,
    pub(super) mutex: String,
    rwlock: String,
    pub(super) is_what_if: bool,
    /// From so many threads on it has 90% of its best throughput.
    pub(super) knee: usize,
    /// With the most threads, against the locks of the recording: `faster`, `slower` or `undecided`.
    pub(super) against_recorded: &'static str,
    pub(super) points: Vec<Row>,
}

/// A point of a curve.
#[derive(Serialize)]
pub(super) struct Row {
    pub(super) threads: usize,
    pub(super) low: f64,
    pub(super) throughput: f64,
    pub(super) high: f64,
    waiting: f64,
    /// Share of the threads' time spent waiting for what other threads do, outside of locks.
    sleeping: f64,
    pub(super) limit: Option<Limit>,
    locks: Vec<Lock>,
}

/// The lock that limits.
#[derive(Clone, Serialize)]
pub(super) struct Limit {
    pub(super) name: String,
    /// How busy it is.
    busy: f64,
    waiting: f64,
}

#[derive(Serialize)]
struct Lock {
    name: String,
    throughput: f64,
    waiting: f64,
    busy: f64,
}

/// A lock limits if threads wait for it for more than this share of their time.
const LIMITS: f64 = 0.05;

impl Report {
    /// Of what was simulated.
    pub fn new(about: &About, plan: &Plan, answer: &Answer) -> Self {
        let roles = plan.load.roles.iter().map(|role| Role {
            name: role.name.clone(),
            threads: role.threads,
            share_of_acquisitions: role.share,
        });
        let is_lock = |curve: usize| plan.curves[curve].what_if.is_none();
        let curves = answer.points.iter().enumerate().map(|(index, points)| {
            let curve = &plan.curves[index];
            Curve {
                name: curve.name.clone(),
                mutex: curve.mutex.clone(),
                rwlock: curve.rwlock.clone(),
                is_what_if: curve.what_if.is_some(),
                knee: plan.threads[Plan::knee(points)],
                against_recorded: against(points, &answer.points[0]),
                points: points
                    .iter()
                    .zip(&plan.threads)
                    .map(|(point, threads)| row(&plan.load.classes, point, *threads))
                    .collect(),
            }
        });
        Report {
            command: about.command.clone(),
            recorded: Recorded {
                seconds: about.seconds,
                cpus: about.cpus,
                processor: about.processor.clone(),
                mutex: about.mutex.clone(),
                rwlock: about.rwlock.clone(),
                replayed_on: format!("{}, {}", plan.home.name, plan.home_is),
                shares: plan.load.shares,
                roles: roles.collect(),
            },
            check: answer.check.clone(),
            refused: answer.is_refused(),
            machine: Machine {
                name: plan.machine.name.clone(),
                summary: plan.machine.summary.clone(),
                cpus: plan.machine.cpus(),
            },
            seed: plan.seed,
            loop_is: "closed",
            curves: curves.collect(),
            best_lock: Plan::best(&answer.points, is_lock).map(|curve| plan.curves[curve].name.clone()),
        }
    }

    /// For a program.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and text") + "\n"
    }

    /// For a person. A trace may come from anybody, and a terminal obeys control characters.
    pub fn text(&self) -> String {
        self.whole_text().replace(|char: char| char.is_control() && char != '\n', " ")
    }

    fn whole_text(&self) -> String {
        let mut text = String::new();
        self.recording(&mut text).expect("a String");
        if self.refused {
            text += "\nNo prediction:\n";
            self.check.refusals.iter().for_each(|why| text += &format!("  {why}\n"));
            if !self.recorded.roles.is_empty() {
                text += "(--anyway predicts all the same.)\n";
            }
            return text;
        }
        if !self.check.refusals.is_empty() {
            text += "\nThis prediction is not to be trusted (--anyway):\n";
            self.check.refusals.iter().for_each(|why| text += &format!("  {why}\n"));
        }
        self.prediction(&mut text).expect("a String");
        text
    }

    fn recording(&self, text: &mut String) -> std::fmt::Result {
        let recorded = &self.recorded;
        let roles: Vec<String> = recorded
            .roles
            .iter()
            .map(|role| {
                format!("{} x {} ({:.0}%)", role.threads, role.name, role.share_of_acquisitions * 100.0)
            })
            .collect();
        writeln!(
            text,
            "{}: {:.2} s on {} CPUs, {}",
            self.command.join(" ").replace('\n', " "),
            recorded.seconds,
            recorded.cpus,
            recorded.processor
        )?;
        writeln!(text, "threads (share of the acquisitions): {}", roles.join(", "))?;
        let shares = recorded.shares;
        writeln!(
            text,
            "their time: computing {:.1}%, waiting for locks {:.1}%, for conditions, semaphores, barriers and joins {:.1}%, asleep otherwise {:.1}%",
            shares.cpu * 100.0,
            shares.waiting * 100.0,
            (shares.sleeping + shares.joining + shares.timed) * 100.0,
            shares.off * 100.0
        )?;
        let check = &self.check;
        writeln!(text, "\nReplay on the recording machine ({}):", recorded.replayed_on)?;
        let mut table = table::new(["", "recorded", "replayed"]);
        table.add_row([
            "acquisitions/s".into(),
            rate(check.recorded_throughput),
            rate(check.replayed_throughput),
        ]);
        let percent = |share: f64| format!("{:.1}%", share * 100.0);
        table.add_row([
            "waiting for locks".into(),
            percent(check.recorded_waiting),
            percent(check.replayed_waiting),
        ]);
        if check.recorded_sleeping.max(check.replayed_sleeping) > 0.0 {
            table.add_row([
                "waiting otherwise".into(),
                percent(check.recorded_sleeping),
                percent(check.replayed_sleeping),
            ]);
        }
        table::right(&mut table, 1..=2);
        writeln!(text, "{}", table.trim_fmt())?;
        for warning in &check.warnings {
            writeln!(text, "Note: {warning}")?;
        }
        Ok(())
    }

    fn prediction(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "\nPrediction for {} ({} CPUs): {}\nClosed loop; acquisitions a second, median and range of five simulations; seed {}.\n",
            self.machine.name, self.machine.cpus, self.machine.summary, self.seed
        )?;
        let mut table = table::new(["locks", "threads", "acq/s", "low", "high", "waiting", "limit"]);
        for curve in &self.curves {
            for row in &curve.points {
                let limit = row.limit.as_ref().map_or_else(String::new, |limit| {
                    format!("{} (held {:.0}%)", limit.name, limit.busy * 100.0)
                });
                table.add_row([
                    curve.name.clone(),
                    row.threads.to_string(),
                    rate(row.throughput),
                    rate(row.low),
                    rate(row.high),
                    format!("{:.0}%", row.waiting * 100.0),
                    limit,
                ]);
            }
        }
        table::right(&mut table, 1..=5);
        writeln!(text, "{}\n", table.trim_fmt())?;
        for curve in &self.curves {
            let Some(last) = curve.points.last() else { continue };
            write!(text, "{}: 90% of its best from {} threads on", curve.name, curve.knee)?;
            if let Some(limit) = &last.limit {
                write!(text, "; with {} threads {} limits", last.threads, limit.name)?;
            }
            if curve.name != self.curves[0].name {
                let first = self.curves[0].points.last().map_or(1.0, |row| row.throughput);
                let ratio = last.throughput / first.max(1.0);
                match curve.against_recorded {
                    "undecided" => write!(text, "; against {}: undecided", self.curves[0].name)?,
                    which => write!(text, "; {ratio:.2} times {} ({which})", self.curves[0].name)?,
                }
            }
            writeln!(text, ".")?;
        }
        let locks = self.curves.iter().filter(|curve| !curve.is_what_if).count();
        match &self.best_lock {
            Some(best) if locks > 1 => {
                writeln!(text, "The best of these locks with the most threads: {best}.")
            }
            None if locks > 1 => {
                writeln!(
                    text,
                    "The best of these locks with the most threads: undecided, the ranges overlap."
                )
            }
            _ => Ok(()),
        }
    }
}

/// Against the curve of the recording, with the most threads.
fn against(points: &[Point], recorded: &[Point]) -> &'static str {
    let last = |points: &[Point]| points.last().map_or([0.0; 3], |point| point.throughput);
    let (curve, base) = (last(points), last(recorded));
    match () {
        () if curve[0] > base[2] => "faster",
        () if curve[2] < base[0] => "slower",
        () => "undecided",
    }
}

fn row(classes: &[String], point: &Point, threads: usize) -> Row {
    let mut locks: Vec<Lock> = classes
        .iter()
        .zip(&point.classes)
        .filter(|(_, (throughput, ..))| *throughput > 0.0)
        .map(|(name, (throughput, waiting, busy))| Lock {
            name: name.clone(),
            throughput: *throughput,
            waiting: *waiting,
            busy: *busy,
        })
        .collect();
    locks.sort_by(|first, second| second.waiting.total_cmp(&first.waiting));
    let limit = locks.first().filter(|lock| lock.waiting > LIMITS).map(|lock| Limit {
        name: lock.name.clone(),
        busy: lock.busy,
        waiting: lock.waiting,
    });
    let [low, throughput, high] = point.throughput;
    let (waiting, sleeping) = (point.waiting, point.sleeping);
    Row { threads, low, throughput, high, waiting, sleeping, limit, locks }
}

/// A number of acquisitions a second.
pub fn rate(value: f64) -> String {
    match value {
        value if value >= 1e8 => format!("{:.0} M", value / 1e6),
        value if value >= 1e6 => format!("{:.2} M", value / 1e6),
        value if value >= 1e4 => format!("{:.0} k", value / 1e3),
        value => format!("{value:.0}"),
    }
}

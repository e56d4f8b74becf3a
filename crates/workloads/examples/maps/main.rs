//! Measures this library's tables beside those of other libraries, interleaved: the tables of `docs/maps.md`.
//!
//! `latchwork-lab bench hashtable` measures the fixed table only, with the workload's checks around each lookup. This program
//! also measures `RcuMap` and other libraries' maps as a user calls them, with sections of many lookups.

mod ordered;
mod table;
mod user;

use clap::{Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use latchwork_console::stats::quantile;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Measures tables. Figures of one run are comparable with each other, not across machines.
#[derive(Parser)]
#[command(after_help = "Examples:
  cargo run --release --example maps -- table
  cargo run --release --example maps -- table --keys 64 --updates 0% --threads 2
  cargo run --release --example maps -- user --rounds 11 --json user.json
  cargo run --release --example maps -- user --updates 50% --zipf true
  cargo run --release --example maps -- ordered --keys 1024
  cargo run --release --example maps -- memory
  valgrind --tool=callgrind target/release/examples/maps count dashmap 1000000
  valgrind --tool=cachegrind --cache-sim=yes target/release/examples/maps count RcuMap 1000000 --keys 131072 --updates
  cargo run --release --example maps --features urcu -- user --only liburcu

The feature `urcu` adds liburcu's hash table (Debian: liburcu-dev), the feature `map-peers` adds flurry, evmap and left-right.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The fixed table (workload hashtable-strategies).
    Table(Options),
    /// RcuMap beside the concurrent maps of other libraries.
    User(Options),
    /// RcuTreeMap beside other ordered maps.
    Ordered(Options),
    /// Bytes of the heap for each element of these maps.
    Memory,
    /// Looks keys up in one map so many times, or updates it, for callgrind and cachegrind: the difference of two runs, divided
    /// by the difference of their counts, is what an operation has.
    Count {
        map: String,
        operations: u64,
        /// Keys, of which half are in the map.
        #[arg(long, default_value_t = 1024)]
        keys: u64,
        /// Insert and remove random keys, half of the operations each.
        #[arg(long)]
        updates: bool,
    },
}

/// How to measure.
#[derive(clap::Args)]
struct Options {
    /// Rounds; every point is measured once in each.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Seconds per measurement.
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// Only what has this in its name (and the first, which the others are compared with). Several times: any.
    #[arg(long)]
    only: Vec<String>,
    /// Only with so many keys.
    #[arg(long)]
    keys: Option<u64>,
    /// Only with this share of updates (0%, 1%, 10%, 50%, 100%). Several times: any.
    #[arg(long)]
    updates: Vec<String>,
    /// Only uniform keys, or only keys by Zipf's law: true or false.
    #[arg(long)]
    zipf: Option<bool>,
    /// Only with so many threads.
    #[arg(long)]
    threads: Option<usize>,
    /// For `table`: removed elements that may wait to be reclaimed, for each thread.
    #[arg(long, default_value_t = 1000)]
    budget: usize,
    /// Write all measurements to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Something to measure.
struct Subject {
    name: &'static str,
    /// What it does in a second under these conditions.
    rate: fn(&Point, f64) -> Result<f64, String>,
    /// Whether it has a way of its own to look keys up, and updates as another subject does: it is measured without updates only.
    lookups_only: bool,
}

impl Subject {
    const fn new(name: &'static str, rate: fn(&Point, f64) -> Result<f64, String>) -> Self {
        Subject { name, rate, lookups_only: false }
    }

    /// Whether it is measured at this point.
    fn is_measured(&self, point: &Point) -> bool {
        !self.lookups_only || point.share() == 0.0
    }
}

/// Under which conditions.
#[derive(Clone, Debug, serde::Serialize)]
struct Point {
    threads: usize,
    updates: &'static str,
    keys: u64,
    zipf: bool,
    budget: usize,
}

/// Operations a second of so many threads. `work` gets the thread's number, waits at the barrier when it is ready, and goes on
/// until the flag is set; it returns how many operations that were. It panics if a map is wrong.
fn timed(
    threads: usize,
    seconds: f64,
    work: impl Fn(u64, &Barrier, &AtomicBool) -> u64 + Sync,
) -> Result<f64, String> {
    let (over, together) = (AtomicBool::new(false), Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        let (work, together, over) = (&work, &together, &over);
        let threads: Vec<_> =
            (0..threads as u64).map(|thread| scope.spawn(move || work(thread, together, over))).collect();
        together.wait();
        let start = Instant::now();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        over.store(true, Relaxed);
        let took = start.elapsed().as_secs_f64();
        let done: Result<Vec<u64>, _> = threads.into_iter().map(|thread| thread.join()).collect();
        done.map(|done| done.iter().sum::<u64>() as f64 / took).map_err(|_| "a map is wrong".into())
    })
}

impl Point {
    fn share(&self) -> f64 {
        self.updates.trim_end_matches('%').parse::<f64>().expect("a percentage") / 100.0
    }
}

/// Those points and subjects that the options ask for.
fn chosen(
    subjects: &'static [Subject],
    points: Vec<Point>,
    options: &Options,
) -> Result<(Vec<&'static Subject>, Vec<Point>), String> {
    let of_point = |point: &Point| {
        options.keys.is_none_or(|keys| point.keys == keys)
            && (options.updates.is_empty() || options.updates.iter().any(|updates| point.updates == updates))
            && options.zipf.is_none_or(|zipf| point.zipf == zipf)
            && options.threads.is_none_or(|threads| point.threads == threads)
    };
    let all = points.clone();
    let mut points: Vec<Point> = points.into_iter().filter(of_point).collect();
    points.iter_mut().for_each(|point| point.budget = options.budget);
    if points.is_empty() {
        let names: Vec<_> = all.iter().map(|p| format!("{} {} {}", p.keys, p.updates, p.threads)).collect();
        return Err(format!("no such point; there are (keys, updates, threads): {}", names.join(", ")));
    }
    if let Some(unknown) =
        options.only.iter().find(|only| !subjects.iter().any(|s| s.name.contains(only.as_str())))
    {
        let names: Vec<_> = subjects.iter().map(|subject| subject.name).collect();
        return Err(format!("nothing is called {unknown:?}; there are {}", names.join(", ")));
    }
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| name.contains(only));
    let chosen = subjects.iter().enumerate().filter(|(at, subject)| *at == 0 || wanted(subject.name));
    Ok((chosen.map(|(_, subject)| subject).collect(), points))
}

/// Measures each subject at each point in each round; prints a table of each point as Markdown.
fn compare(
    subjects: &[&Subject],
    points: &[Point],
    options: &Options,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut values = vec![vec![Vec::new(); subjects.len()]; points.len()];
    let bar = ProgressBar::new((options.rounds * points.len() * subjects.len()) as u64)
        .with_style(ProgressStyle::with_template("{wide_msg} {bar:30} {pos}/{len}, {eta} left")?);
    for round in 0..options.rounds {
        for (at, point) in points.iter().enumerate() {
            // Each round begins with another.
            for turn in 0..subjects.len() {
                let which = (turn + round) % subjects.len();
                bar.set_message(subjects[which].name);
                if subjects[which].is_measured(point) {
                    values[at][which].push((subjects[which].rate)(point, options.seconds)?);
                }
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    let mut first = 0;
    for group in points.chunk_by(|one, next| (one.keys, one.zipf) == (next.keys, next.zipf)) {
        print(subjects, group, &values[first..]);
        first += group.len();
    }
    if let Some(path) = &options.json {
        let names: Vec<_> = subjects.iter().map(|subject| subject.name).collect();
        let document = serde_json::json!({ "subjects": names, "points": points, "rates": values });
        std::fs::write(path, serde_json::to_string_pretty(&document)?)?;
    }
    Ok(())
}

/// Prints a Markdown table of the points with one number of keys: a column for each point.
fn print(subjects: &[&Subject], points: &[Point], values: &[Vec<Vec<f64>>]) {
    let law = if points[0].zipf { ", by Zipf's law" } else { "" };
    println!("\n{} keys{law}; million operations a second: median, and quartiles.\n", points[0].keys);
    let head = points.iter().map(|point| {
        let plural = if point.threads == 1 { "" } else { "s" };
        format!(" {} updates, {} thread{plural} |", point.updates, point.threads)
    });
    println!("| |{}\n|---|{}", head.collect::<String>(), "---|".repeat(points.len()));
    for (at, subject) in subjects.iter().enumerate() {
        let cells = values.iter().take(points.len()).map(|rates| format!(" {} |", cell(&rates[at])));
        println!("| {} |{}", subject.name, cells.collect::<String>());
    }
}

/// The median and the quartiles of what was measured at a point, in millions.
fn cell(rates: &[f64]) -> String {
    if rates.is_empty() {
        return "-".into();
    }
    let [low, middle, high] = [0.25, 0.5, 0.75].map(|q| quantile(rates, q) / 1e6);
    format!("{middle:.1} ({low:.1} .. {high:.1})")
}

fn points(keys: &[u64], updates: &[&'static str], laws: &[bool]) -> Vec<Point> {
    let mut points = Vec::new();
    for keys in keys {
        for zipf in laws {
            for updates in updates {
                points.extend([1, 2].map(|threads| Point {
                    threads,
                    updates,
                    keys: *keys,
                    zipf: *zipf,
                    budget: 0,
                }));
            }
        }
    }
    points
}

/// Prints what the heap has for each element.
fn memory() {
    let sizes = [1000, 50_000, 65_536, 1_000_000];
    println!("| bytes for each element, of |{}", sizes.map(|size| format!(" {size} |")).concat());
    println!("|---|{}", "---|".repeat(sizes.len()));
    for (name, bytes) in user::MEMORY.iter().chain(ordered::MEMORY) {
        println!("| {name} |{}", sizes.map(|size| format!(" {:.0} |", bytes(size))).concat());
    }
}

fn main() -> ExitCode {
    let (subjects, points, options): (&'static [Subject], _, _) = match Cli::parse().command {
        Command::Table(options) => {
            (table::SUBJECTS, points(&[64, 1 << 18], &["0%", "1%", "50%", "100%"], &[false]), options)
        }
        Command::User(options) => {
            let updates = ["0%", "1%", "10%", "50%", "100%"];
            (user::SUBJECTS, points(&[1 << 10, 1 << 17], &updates, &[false, true]), options)
        }
        Command::Ordered(options) => {
            let updates = ["0%", "1%", "10%", "50%", "100%"];
            (ordered::SUBJECTS, points(&[1 << 10, 1 << 17], &updates, &[false]), options)
        }
        Command::Memory => {
            memory();
            return ExitCode::SUCCESS;
        }
        Command::Count { map, operations, keys, updates } => {
            let Some((_, run)) = user::COUNTED.iter().find(|(name, _)| *name == map) else {
                let names: Vec<_> = user::COUNTED.iter().map(|(name, _)| *name).collect();
                eprintln!("maps: nothing is called {map:?}; there are {}", names.join(", "));
                return ExitCode::from(2);
            };
            run(keys.max(1), updates, operations);
            return ExitCode::SUCCESS;
        }
    };
    let (subjects, points) = match chosen(subjects, points, &options) {
        Ok(chosen) => chosen,
        Err(why) => {
            eprintln!("maps: {why}");
            return ExitCode::from(2);
        }
    };
    match compare(&subjects, &points, &options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("maps: {why}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_of_many_lookups_are_measured_only_without_updates() {
        let sections = user::SUBJECTS.iter().find(|subject| subject.name.contains("sections")).unwrap();
        for point in points(&[64], &["0%", "1%", "50%"], &[false]) {
            assert_eq!(sections.is_measured(&point), point.updates == "0%", "{point:?}");
            assert!(user::SUBJECTS[0].is_measured(&point));
        }
        assert_eq!((cell(&[]), cell(&[2e6])), ("-".into(), "2.0 (2.0 .. 2.0)".into()));
    }
}

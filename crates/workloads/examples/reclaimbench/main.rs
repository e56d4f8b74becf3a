//! Measures reclamation: what a reader pays per section, and what an updater pays per replaced object, under
//! the library's strategies and those of other libraries, interleaved: the tables of `docs/reclamation.md`.
//!
//! No workload of `latchwork-lab bench` shows a section alone: a lookup in a table costs more than the section around it.

mod cells;
mod grace;
mod readers;
mod stalled;
mod updates;

use clap::{Parser, Subcommand};
use indicatif::ProgressBar;
use std::process::ExitCode;

/// Measures reclamation strategies. Figures of one run are comparable with each other, not across machines.
#[derive(Parser)]
#[command(after_help = "Examples:
  cargo run --release -p latchwork-workloads --example reclaimbench --features urcu -- readers
  cargo run --release -p latchwork-workloads --example reclaimbench -- updates --json
  cargo run --release -p latchwork-workloads --example reclaimbench -- cells
  cargo run --release -p latchwork-workloads --example reclaimbench -- grace
  cargo run --release -p latchwork-workloads --example reclaimbench -- stalled
  valgrind --tool=callgrind --toggle-collect='*rcu_reader*' target/release/examples/reclaimbench \\
      count rcu 100000          # instructions of 100000 sections

The feature `urcu` adds liburcu's readers, inlined in C (Debian: liburcu-dev).")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Nanoseconds of a reader: begin a section, follow a pointer, read a word, end the section.
    Readers(Options),
    /// Nanoseconds of an updater: allocate, replace, retire, and its share of reclaiming.
    Updates(Options),
    /// Nanoseconds of a read or a write of a cell whose value is replaced as a whole, beside arc-swap.
    Cells(Options),
    /// Microseconds of a grace period, with so many threads that have read.
    Grace {
        /// Rounds, of 100 each.
        #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// Numbers of threads; each as long as all are idle, and again when they have exited.
        #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64, 256, 1024])]
        threads: Vec<usize>,
        /// One JSON object instead of the table.
        #[arg(long)]
        json: bool,
    },
    /// Objects that wait to be reclaimed, and nanoseconds of an update, with and without a reader that stays in its section.
    Stalled {
        /// Rounds; everything is measured once in each.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// Objects that are replaced in a measurement.
        #[arg(long, default_value_t = 300_000, value_parser = clap::value_parser!(u64).range(100..))]
        updates: u64,
        /// One JSON object instead of the table.
        #[arg(long)]
        json: bool,
    },
    /// Runs one reader so many times and prints nothing: for a profiler.
    Count {
        /// Its name in the table of `readers`.
        name: String,
        /// Sections.
        times: u64,
    },
}

#[derive(clap::Args)]
struct Options {
    /// Rounds; everything is measured once in each.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Operations per measurement; updates do a tenth of them.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(100..))]
    operations: u64,
    /// One JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

/// Something to be measured: does so many operations, and returns what it has read.
type Work = fn(u64) -> u64;

/// Measures all in turn, round after round, and prints the table. `base` is what the ratios refer to; the first row is
/// what all the others do as well, and `added` is without it (McKenney, Hart and Walpole 2005, section 3.2).
fn measure(options: &Options, operations: u64, base: &str, all: &[(&str, Work)]) {
    let bar = ProgressBar::new(u64::from(options.rounds) * all.len() as u64);
    let mut nanos = vec![Vec::new(); all.len()];
    for _ in 0..options.rounds {
        for ((_, work), nanos) in all.iter().zip(&mut nanos) {
            work(operations / 10); // warm
            let start = std::time::Instant::now();
            std::hint::black_box(work(operations));
            nanos.push(start.elapsed().as_nanos() as f64 / operations as f64);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let names = all.iter().map(|(name, _)| *name);
    let figures: Vec<_> = names.zip(nanos.into_iter().map(sorted)).collect();
    let middle = |nanos: &[f64]| nanos[nanos.len() / 2];
    let empty = middle(&figures[0].1);
    let base_nanos = figures.iter().find(|(name, _)| *name == base).map_or(1.0, |(_, nanos)| middle(nanos));
    if options.json {
        let object: serde_json::Map<_, _> =
            figures.iter().map(|(name, nanos)| ((*name).to_owned(), serde_json::json!(nanos))).collect();
        return println!("{}", serde_json::json!({ "nanos": object, "rounds": options.rounds }));
    }
    println!(
        "| | ns (median) | fastest | slowest | to {base} | added ns | to {base} |\n|---|---|---|---|---|---|---|"
    );
    for (name, nanos) in &figures {
        let (least, most) = (nanos[0], nanos[nanos.len() - 1]);
        let ratio = middle(nanos) / base_nanos;
        let (added, added_ratio) = (middle(nanos) - empty, (middle(nanos) - empty) / (base_nanos - empty));
        print!("| {name} | {:.2} | {least:.2} | {most:.2} | {ratio:.2} ", middle(nanos));
        println!("| {added:.2} | {added_ratio:.2} |");
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn main() -> ExitCode {
    latchwork::machine::Native::init();
    match Cli::parse().command {
        Command::Readers(options) => measure(&options, options.operations, "rcu", &readers::all()),
        Command::Updates(options) => measure(&options, options.operations / 10, "rcu", &updates::all()),
        Command::Cells(options) => measure(&options, options.operations, "Rcu::get", &cells::all()),
        Command::Grace { rounds, threads, json } => grace::grace(rounds, &threads, json),
        Command::Stalled { rounds, updates, json } => stalled::stalled(rounds, updates, json),
        Command::Count { name, times } => {
            let Some((_, work)) = readers::all().into_iter().find(|(known, _)| *known == name) else {
                let known: Vec<_> = readers::all().iter().map(|(name, _)| *name).collect();
                eprintln!("reclaimbench: no reader is called {name:?}; there are {}", known.join(", "));
                return ExitCode::from(2);
            };
            std::hint::black_box(work(times));
        }
    }
    ExitCode::SUCCESS
}

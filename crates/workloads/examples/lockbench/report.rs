//! Everything, under each lock, interleaved.

use crate::contended::BATCH;
use crate::range;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use latchwork_console::stats::median;
use serde_json::Value;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

#[derive(Args)]
pub struct Options {
    /// The `latchwork` command [default: beside this program's folder].
    #[arg(long)]
    latchwork: Option<PathBuf>,
    /// Mutexes; glibc is always measured, as the baseline.
    #[arg(long, value_delimiter = ',', default_value = "shfl,shfl-spin,ttas,mcs,ticket")]
    mutex: Vec<String>,
    /// Threads of the contended part.
    #[arg(long, value_delimiter = ',', default_value = "2,4,8,16,64")]
    threads: Vec<u32>,
    /// Rounds; every point is measured once in each.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Seconds per contended measurement.
    #[arg(long, default_value_t = 0.5)]
    seconds: f64,
    /// Write all measurements to this file.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Runs this program's own commands under other locks.
pub struct Runner {
    latchwork: PathBuf,
    own: PathBuf,
}

impl Runner {
    pub fn new(latchwork: Option<PathBuf>) -> Result<Self, Box<dyn Error>> {
        let own = std::env::current_exe()?;
        let beside = || Some(own.parent()?.parent()?.join("latchwork"));
        let latchwork = latchwork
            .or_else(beside)
            .filter(|path| path.exists())
            .ok_or("there is no `latchwork` command: run `cargo build --release`")?;
        Ok(Runner { latchwork, own })
    }

    pub fn run(&self, mutex: &str, rwlock: &str, arguments: &[&str]) -> Result<Value, Box<dyn Error>> {
        let mut command = if (mutex, rwlock) == ("glibc", "glibc") {
            Command::new(&self.own)
        } else {
            let mut command = Command::new(&self.latchwork);
            command.args(["run", "--mutex", mutex, "--rwlock", rwlock, "--"]).arg(&self.own);
            command
        };
        let output = command.args(arguments).output()?;
        if !output.status.success() {
            return Err(format!(
                "{arguments:?} under {mutex}, {rwlock}: {}\n{}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            )
            .into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }
}

/// Measurements by point (what, lock, figure).
type Figures = BTreeMap<(String, String, String), Vec<f64>>;

pub fn main(options: &Options) -> Result<(), Box<dyn Error>> {
    let runner = Runner::new(options.latchwork.clone())?;
    let locks: Vec<&str> = std::iter::once("glibc").chain(options.mutex.iter().map(String::as_str)).collect();

    let mut plan: Vec<(String, Vec<String>)> = vec![
        ("uncontended".into(), ["uncontended", "--json", "--rounds", "3"].map(String::from).to_vec()),
        ("hold".into(), ["hold"].map(String::from).to_vec()),
    ];
    for threads in &options.threads {
        let arguments =
            ["contended", "--threads", &threads.to_string(), "--seconds", &options.seconds.to_string()];
        plan.push((format!("{threads} threads"), arguments.map(String::from).to_vec()));
    }

    let bar = ProgressBar::new(u64::from(options.rounds) * (plan.len() * locks.len()) as u64);
    bar.set_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} (about {eta} left)")?);
    let mut figures = Figures::new();
    for _ in 0..options.rounds {
        for (what, arguments) in &plan {
            for lock in &locks {
                bar.set_message(format!("{what}, {lock}"));
                let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
                collect(&mut figures, what, lock, &runner.run(lock, "glibc", &arguments)?);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    if let Some(path) = &options.json {
        let all: Vec<Value> = figures
            .iter()
            .map(|((what, lock, figure), values)| serde_json::json!({ "what": what, "lock": lock, "figure": figure, "values": values }))
            .collect();
        std::fs::write(path, serde_json::to_string_pretty(&all)?)?;
    }
    print_tables(&figures, &locks, options);
    Ok(())
}

/// Files every number of `value`, by its path, under the point.
fn collect(figures: &mut Figures, what: &str, lock: &str, value: &Value) {
    fn walk(path: &str, value: &Value, file: &mut impl FnMut(&str, f64)) {
        match value {
            Value::Object(map) => {
                map.iter().for_each(|(key, value)| walk(&format!("{path}/{key}"), value, file))
            }
            Value::Array(values) => values.iter().for_each(|value| walk(path, value, file)),
            value => file(path, value.as_f64().unwrap_or(f64::NAN)),
        }
    }
    walk("", value, &mut |figure, number| {
        figures.entry((what.into(), lock.into(), figure.into())).or_default().push(number);
    });
}

fn print_tables(figures: &Figures, locks: &[&str], options: &Options) {
    let get = |what: &str, lock: &str, figure: &str| {
        figures.get(&(what.into(), lock.into(), figure.into())).map(Vec::as_slice).unwrap_or(&[f64::NAN])
    };
    let row = |name: &str, values: &[f64], base: f64| {
        let (low, high) = range(values);
        println!("| {name} | {:.2} | {low:.2} .. {high:.2} | {:.2} |", median(values), median(values) / base);
    };
    for (title, key) in [
        ("Uncontended, single-threaded process (ns per lock+unlock)", "single_threaded"),
        ("Uncontended, a second thread has existed (ns per lock+unlock)", "multi_threaded"),
    ] {
        println!("\n### {title}\n\n| lock | median | range | ratio to glibc |\n|---|---|---|---|");
        let base = median(get("uncontended", "glibc", &format!("/{key}/pthread_mutex")));
        for lock in locks {
            row(
                &format!("pthread, {lock}"),
                get("uncontended", lock, &format!("/{key}/pthread_mutex")),
                base,
            );
        }
        for own in [
            "pthread_self, twice",
            "an empty function of the program, twice",
            "latchwork Mutex",
            "std::sync::Mutex",
            "parking_lot::Mutex",
        ] {
            row(own, get("uncontended", "glibc", &format!("/{key}/{own}")), base);
        }
    }
    let table = |title: &str, cell: &dyn Fn(&str, &str) -> String| {
        println!("\n### {title}\n\n| threads | {} |", locks.join(" | "));
        println!("|---|{}", "---|".repeat(locks.len()));
        for threads in &options.threads {
            let what = format!("{threads} threads");
            let cells: Vec<String> = locks.iter().map(|lock| cell(&what, lock)).collect();
            println!("| {threads} | {} |", cells.join(" | "));
        }
    };
    table(
        "Contended, no think time: million lock+unlock per second (ratio to glibc's median: median, range)",
        &|what, lock| {
            let base = median(get(what, "glibc", "/operations_per_second"));
            let speed = get(what, lock, "/operations_per_second");
            let (low, high) = range(speed);
            let ratio = |speed: f64| speed / base;
            let [middle, low, high] = [median(speed), low, high].map(ratio);
            format!("{:.2} ({middle:.3}x, {low:.3} .. {high:.3})", median(speed) / 1e6)
        },
    );
    table(
        &format!("The same: longest {BATCH} acquisitions of a thread, of all rounds (ms)"),
        &|what, lock| format!("{:.1}", range(get(what, lock, "/longest_batch_ms")).1),
    );
    table(
        "The same: fairness factor (share of the better half of the threads; 0.5 is even)",
        &|what, lock| format!("{:.2}", median(get(what, lock, "/fairness_factor"))),
    );
    println!(
        "\n### Processor time of 8 waiters behind a lock held for 2 seconds (percent of one CPU)\n\n| lock | median | range |\n|---|---|---|"
    );
    for lock in locks {
        let values = get("hold", lock, "/waiters_cpu_percent");
        let (low, high) = range(values);
        println!("| {lock} | {:.2} | {low:.2} .. {high:.2} |", median(values));
    }
}

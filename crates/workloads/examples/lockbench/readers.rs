//! Readers of one reader-writer lock: one of them, and several at once.

use crate::range;
use crate::report::Runner;
use clap::Args;
use crossbeam_utils::sync::ShardedLock;
use latchwork::RwLock;
use latchwork_console::stats::median;
use serde_json::Value;
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::error::Error;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct Options {
    /// Rounds; every lock is measured once in each.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Pairs per uncontended measurement.
    #[arg(long, default_value_t = 40_000)]
    pairs: u32,
    /// Readers of the measurement with several.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Seconds per measurement of throughput.
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// Only `pthread_rwlock_t`, whatever serves it.
    #[arg(long)]
    only_pthread: bool,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub struct ReportOptions {
    #[command(flatten)]
    readers: Options,
    /// The `latchwork` command [default: beside this program's folder].
    #[arg(long)]
    latchwork: Option<PathBuf>,
    /// Reader-writer locks to put in the place of glibc's.
    #[arg(long, value_delimiter = ',', default_value = "bravo-2d-shfl-rw,shfl-rw,bravo-pf-q,pf-q")]
    rwlock: Vec<String>,
}

/// Read lock and unlock, so many times.
type Pairs = fn(u32);

// One function per lock, not inlined, so that each can be found in a disassembly.

struct Pthread(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: made to be shared.
unsafe impl Sync for Pthread {}

#[inline(never)]
fn pthread(pairs: u32) {
    static LOCK: Pthread = Pthread(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));
    let lock = black_box(&LOCK);
    for _ in 0..pairs {
        // SAFETY: an initialised lock that does not move.
        unsafe {
            libc::pthread_rwlock_rdlock(lock.0.get());
            libc::pthread_rwlock_unlock(lock.0.get());
        }
    }
}

#[inline(never)]
fn latchwork_rwlock(pairs: u32) {
    static LOCK: RwLock<u64> = RwLock::new(0);
    let lock = black_box(&LOCK);
    for _ in 0..pairs {
        black_box(&*lock.read());
    }
}

#[inline(never)]
fn std_rwlock(pairs: u32) {
    static LOCK: std::sync::RwLock<u64> = std::sync::RwLock::new(0);
    let lock = black_box(&LOCK);
    for _ in 0..pairs {
        black_box(&*lock.read().expect("nobody panics"));
    }
}

#[inline(never)]
fn parking_lot_rwlock(pairs: u32) {
    static LOCK: parking_lot::RwLock<u64> = parking_lot::RwLock::new(0);
    let lock = black_box(&LOCK);
    for _ in 0..pairs {
        black_box(&*lock.read());
    }
}

#[inline(never)]
fn sharded_lock(pairs: u32) {
    static LOCK: std::sync::LazyLock<ShardedLock<u64>> = std::sync::LazyLock::new(|| ShardedLock::new(0));
    let lock = black_box(&*LOCK);
    for _ in 0..pairs {
        black_box(&*lock.read().expect("nobody panics"));
    }
}

const PTHREAD: &str = "pthread_rwlock";
const LOCKS: &[(&str, Pairs)] = &[
    (PTHREAD, pthread),
    ("latchwork RwLock", latchwork_rwlock),
    ("std::sync::RwLock", std_rwlock),
    ("parking_lot::RwLock", parking_lot_rwlock),
    ("crossbeam ShardedLock", sharded_lock),
    #[cfg(feature = "ck")]
    ("Concurrency Kit ck_brlock", latchwork_workloads::peers::big_reader_pairs),
    ("pthread_self, twice", crate::library_calls),
    ("an empty function of the program, twice", crate::own_calls),
];

/// Their names, in this order.
fn names() -> Vec<String> {
    LOCKS.iter().map(|(name, _)| name.to_string()).collect()
}

/// By lock and figure, one number per round.
type Figures = BTreeMap<(String, &'static str), Vec<f64>>;
const NANOS: &str = "ns per pair";
const ONE: &str = "one reader, M/s";
const SEVERAL: &str = "all readers, M/s";
const FIGURES: [&str; 3] = [NANOS, ONE, SEVERAL];

/// Pairs per second of so many threads together.
fn throughput(pairs: Pairs, threads: usize, seconds: f64) -> f64 {
    const BATCH: u32 = 4096;
    let (stop, start) = (AtomicBool::new(false), Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    pairs(BATCH);
                    start.wait();
                    let (began, mut done) = (Instant::now(), 0);
                    while !stop.load(Ordering::Relaxed) {
                        pairs(BATCH);
                        done += u64::from(BATCH);
                    }
                    done as f64 / began.elapsed().as_secs_f64()
                })
            })
            .collect();
        start.wait();
        std::thread::sleep(Duration::from_secs_f64(seconds));
        stop.store(true, Ordering::Relaxed);
        readers.into_iter().map(|reader| reader.join().expect("a reader")).sum()
    })
}

fn measure(options: &Options) -> Figures {
    // As a program that cares would do, at the start of `main`; and no process with one thread.
    latchwork::machine::Native::init();
    std::thread::spawn(|| ()).join().expect("an empty thread");
    let mut figures = Figures::new();
    for round in 0..=options.rounds {
        for &(name, pairs) in LOCKS {
            if options.only_pthread && name != PTHREAD {
                continue;
            }
            let mut note = |what, figure| {
                if round > 0 {
                    figures.entry((name.to_string(), what)).or_default().push(figure);
                } // the first round warms up
            };
            let start = Instant::now();
            pairs(options.pairs);
            note(NANOS, start.elapsed().as_nanos() as f64 / f64::from(options.pairs));
            note(ONE, throughput(pairs, 1, options.seconds) / 1e6);
            note(SEVERAL, throughput(pairs, options.threads, options.seconds) / 1e6);
        }
    }
    figures
}

pub fn main(options: &Options) {
    let figures = measure(options);
    if options.json {
        let list: Vec<Value> = figures
            .iter()
            .map(|((lock, figure), values)| serde_json::json!({ "lock": lock, "figure": figure, "values": values }))
            .collect();
        println!("{}", Value::Array(list));
        return;
    }
    print(&figures, &names(), options.threads);
}

/// The same with other locks in the place of glibc's, each in its own process, one after the other in
/// each round.
pub fn report(options: &ReportOptions) -> Result<(), Box<dyn Error>> {
    let runner = Runner::new(options.latchwork.clone())?;
    let own = &options.readers;
    let seconds = own.seconds.to_string();
    let threads = own.threads.to_string();
    let common = ["readers", "--json", "--rounds", "1", "--seconds", &seconds, "--threads", &threads];
    let pthread: Vec<&str> = common.iter().copied().chain(["--only-pthread"]).collect();
    let mut figures = Figures::new();
    let mut file = |lock: Option<&str>, output: &Value| {
        for point in output.as_array().into_iter().flatten() {
            let lock = lock.map_or_else(
                || point["lock"].as_str().unwrap_or_default().to_string(),
                |lock| format!("{PTHREAD}, {lock}"),
            );
            let Some(figure) = FIGURES.into_iter().find(|name| point["figure"] == *name) else { continue };
            let values = point["values"].as_array().into_iter().flatten().filter_map(Value::as_f64);
            figures.entry((lock, figure)).or_default().extend(values);
        }
    };
    for _ in 0..own.rounds {
        file(None, &runner.run("glibc", "glibc", &common)?);
        for lock in &options.rwlock {
            file(Some(lock), &runner.run("glibc", lock, &pthread)?);
        }
    }
    let preloaded = options.rwlock.iter().map(|lock| format!("{PTHREAD}, {lock}"));
    let names: Vec<String> = names().into_iter().chain(preloaded).collect();
    print(&figures, &names, own.threads);
    Ok(())
}

fn print(figures: &Figures, names: &[String], threads: usize) {
    let get = |lock: &str, figure| figures.get(&(lock.to_string(), figure)).map(Vec::as_slice);
    for figure in FIGURES {
        println!(
            "\n### {figure}{}\n",
            if figure == SEVERAL { format!(" ({threads})") } else { String::new() }
        );
        println!(
            "| lock | median | range | ratio to glibc |{}",
            if figure == SEVERAL { " ratio to one reader |" } else { "" }
        );
        println!("|---|---|---|---|{}", if figure == SEVERAL { "---|" } else { "" });
        let Some(base) = get(PTHREAD, figure).map(median) else { continue };
        for name in names {
            let Some(values) = get(name, figure) else { continue };
            let ((low, high), middle) = (range(values), median(values));
            print!("| {name} | {middle:.2} | {low:.2} .. {high:.2} | {:.3} |", middle / base);
            if let (SEVERAL, Some(one)) = (figure, get(name, ONE)) {
                print!(" {:.2} |", middle / median(one));
            }
            println!();
        }
    }
}

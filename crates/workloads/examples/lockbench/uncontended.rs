//! One thread, one lock, nobody else.

use crate::range;
use clap::Args;
use latchwork::Mutex;
use latchwork_console::stats::median;
use std::cell::UnsafeCell;
use std::hint::black_box;
use std::time::Instant;

#[derive(Args)]
pub struct Options {
    /// Rounds; every lock is measured once in each.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Pairs per measurement.
    #[arg(long, default_value_t = 2_000_000)]
    pairs: u32,
    /// Print one JSON object instead of the table.
    #[arg(long)]
    json: bool,
}

/// Nanoseconds per call of `pair`.
#[inline(always)]
fn time(pairs: u32, mut pair: impl FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..pairs {
        pair();
    }
    start.elapsed().as_nanos() as f64 / f64::from(pairs)
}

// One function per lock, not inlined, so that each can be found in a disassembly.

#[inline(never)]
fn pthread(pairs: u32) -> f64 {
    let mutex = UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER);
    let mutex = black_box(&mutex);
    time(pairs, || {
        // SAFETY: an initialised mutex that does not move.
        unsafe {
            libc::pthread_mutex_lock(mutex.get());
            libc::pthread_mutex_unlock(mutex.get());
        }
    })
}

fn library_calls(pairs: u32) -> f64 {
    time(1, || crate::library_calls(pairs)) / f64::from(pairs)
}

fn own_calls(pairs: u32) -> f64 {
    time(1, || crate::own_calls(pairs)) / f64::from(pairs)
}

#[inline(never)]
fn shfl(pairs: u32) -> f64 {
    static MUTEX: Mutex<u64> = Mutex::new(0);
    let mutex = black_box(&MUTEX);
    time(pairs, || drop(black_box(mutex.lock())))
}

#[inline(never)]
fn std_mutex(pairs: u32) -> f64 {
    static MUTEX: std::sync::Mutex<u64> = std::sync::Mutex::new(0);
    let mutex = black_box(&MUTEX);
    time(pairs, || drop(black_box(mutex.lock())))
}

#[inline(never)]
fn parking_lot(pairs: u32) -> f64 {
    static MUTEX: parking_lot::Mutex<u64> = parking_lot::Mutex::new(0);
    let mutex = black_box(&MUTEX);
    time(pairs, || drop(black_box(mutex.lock())))
}

/// A lock's name and its measurement: nanoseconds per pair, over so many pairs.
type Lock = (&'static str, fn(u32) -> f64);

const LOCKS: [Lock; 6] = [
    ("pthread_mutex", pthread),
    ("pthread_self, twice", library_calls),
    ("an empty function of the program, twice", own_calls),
    ("latchwork Mutex", shfl),
    ("std::sync::Mutex", std_mutex),
    ("parking_lot::Mutex", parking_lot),
];

pub fn main(options: &Options) {
    // As a program that cares would do, at the start of `main`.
    latchwork::machine::Native::init();
    let alone = rounds(options);
    std::thread::spawn(|| ()).join().expect("an empty thread");
    let after = rounds(options);
    if options.json {
        let object = |figures: &[Vec<f64>]| {
            LOCKS
                .iter()
                .zip(figures)
                .map(|((name, _), f)| (name.to_string(), serde_json::json!(f)))
                .collect::<serde_json::Map<_, _>>()
        };
        println!(
            "{}",
            serde_json::json!({ "single_threaded": object(&alone), "multi_threaded": object(&after) })
        );
        return;
    }
    print("before a second thread has existed", &alone);
    print("after a second thread has existed", &after);
}

fn rounds(options: &Options) -> Vec<Vec<f64>> {
    let mut figures = vec![Vec::new(); LOCKS.len()];
    for round in 0..=options.rounds {
        for (figures, (_, measure)) in figures.iter_mut().zip(LOCKS) {
            let figure = measure(options.pairs);
            if round > 0 {
                figures.push(figure); // the first round warms up
            }
        }
    }
    figures
}

fn print(when: &str, figures: &[Vec<f64>]) {
    println!("ns per lock+unlock, {when}:");
    for ((name, _), figures) in LOCKS.iter().zip(figures) {
        let (low, high) = range(figures);
        println!("  {name:25} {:6.2}  [{low:.2} .. {high:.2}]", median(figures));
    }
}

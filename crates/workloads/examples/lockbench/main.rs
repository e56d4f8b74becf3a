//! Measures mutexes and readers: uncontended cost, throughput and longest wait under contention, and what
//! waiters behind a long hold cost.
//!
//! The `contended` and `hold` commands use plain pthread calls, so that they measure whatever
//! library answers for them; `report` runs them under each lock, interleaved, and prints the tables
//! of `docs/performance.md`.
//!
//! `latchwork-lab bench` cannot replace it: its locks are called directly, and not through the preloaded library.

mod contended;
mod readers;
mod report;
mod uncontended;

use clap::{Parser, Subcommand};
use std::hint::black_box;

/// Measures locks. Figures of one run are comparable with each other, not across machines.
#[derive(Parser)]
#[command(after_help = "Examples:
  cargo build --release && cargo run --release --example lockbench -- report
  cargo run --release --example lockbench -- uncontended
  cargo run --release --example lockbench -- readers
  latchwork run --mutex shfl -- target/release/examples/lockbench contended --threads 8")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Nanoseconds per lock+unlock pair, before and after the process has had a second thread.
    Uncontended(uncontended::Options),
    /// Throughput, longest batch of acquisitions and fairness of threads that do nothing but lock and unlock.
    Contended(contended::Contended),
    /// Processor time used by waiters while one thread holds the lock.
    Hold(contended::Hold),
    /// All of the above under several locks, interleaved, as Markdown tables.
    Report(report::Options),
    /// Read lock and unlock of reader-writer locks: nanoseconds per pair, throughput of one and several.
    Readers(readers::Options),
    /// The same with other locks in the place of glibc's as well, interleaved.
    ReportReaders(readers::ReportOptions),
}

/// Pairs of calls into a library, atomic instructions or not.
#[inline(never)]
fn library_calls(pairs: u32) {
    for _ in 0..pairs {
        // SAFETY: it returns a register.
        unsafe {
            black_box(libc::pthread_self());
            black_box(libc::pthread_self());
        }
    }
}

/// The same of calls that stay in the program: what no function that is called can be faster than.
#[inline(never)]
fn own_calls(pairs: u32) {
    #[inline(never)]
    extern "C" fn empty() -> usize {
        0
    }
    let call: extern "C" fn() -> usize = black_box(empty);
    for _ in 0..pairs {
        black_box(call());
        black_box(call());
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match Cli::parse().command {
        Command::Uncontended(options) => uncontended::main(&options),
        Command::Contended(options) => contended::contended(&options),
        Command::Hold(options) => contended::hold(&options),
        Command::Report(options) => report::main(&options)?,
        Command::Readers(options) => readers::main(&options),
        Command::ReportReaders(options) => readers::report(&options)?,
    }
    Ok(())
}

/// The smallest and the largest.
fn range(values: &[f64]) -> (f64, f64) {
    (values.iter().copied().fold(f64::INFINITY, f64::min), values.iter().copied().fold(0.0, f64::max))
}

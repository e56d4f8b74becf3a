//! The `latchwork-lab` command: the papers' workloads on this machine and on simulated ones, their claims, torture,
//! and calibration.

// Rust's runtime ignores SIGPIPE before main. Without it, `latchwork-lab bench --list | head` ends as other programs do.
#![cfg_attr(not(test), no_main)]
#![cfg_attr(test, allow(dead_code))]
// `print!` and `eprint!` panic if the disk is full or the reader is gone: see `latchwork_console::output`.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod ablate;
mod bench;
mod calibrate;
mod choose;
mod count;
mod generated;
mod measure;
mod predict;
mod reproduce;
mod simulate;
mod torture;

use clap::{Parser, Subcommand};
use latchwork_console::failure;
use latchwork_console::help::flowing;

const EXAMPLES: &str = "\
Examples:
  latchwork-lab bench rwbench                locks against each other in a paper's workload
  latchwork-lab simulate rwbench             the same on a machine that you do not have
  latchwork-lab reproduce --report DIR       which of the papers' claims hold?
  latchwork-lab choose                       which lock for what?
  latchwork-lab torture                      is every lock correct on this machine?

This is the laboratory of latchwork. To run and to compare programs under its locks, use the command `latchwork`.";

#[derive(Parser)]
#[command(name = "latchwork-lab", version, about = "Measure, simulate and torture latchwork's locks", after_help = flowing(EXAMPLES), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure a workload on this machine, under several locks
    #[command(after_help = flowing(bench::HELP))]
    Bench(bench::Options),
    /// Measure a workload on a machine that you do not have, under several locks
    #[command(after_help = flowing(simulate::HELP))]
    Simulate(simulate::Options),
    /// Replay what `latchwork record` has written on a machine that you do not have
    #[command(after_help = flowing(predict::HELP))]
    Predict(predict::Options),
    /// Print the papers' claims beside what this library does on their machines, simulated
    #[command(after_help = flowing(reproduce::HELP))]
    Reproduce(reproduce::Options),
    /// Print which lock is the fastest for sections, threads, machines and shares of reads, simulated
    #[command(after_help = flowing(choose::HELP))]
    Choose(choose::Options),
    /// Use locks as a bad day in production would, and say which of them fail
    #[command(after_help = flowing(torture::HELP))]
    Torture(torture::Options),
    /// Measure what this machine's cache lines and system calls cost, for the simulator
    #[command(after_help = flowing(calibrate::HELP))]
    Calibrate(calibrate::Options),
    /// Say what each mechanism and each constant of a lock is worth
    #[command(after_help = flowing(ablate::HELP))]
    Ablate(ablate::Options),
    /// Count the atomic instructions and queue nodes of every lock
    #[command(after_help = flowing(count::HELP))]
    Count(count::Options),
    /// The process in which `torture` tortures one lock
    #[command(hide = true)]
    TortureOne(torture::One),
}

fn command() -> i32 {
    let result = match Cli::parse().command {
        Command::Ablate(options) => ablate::ablate(&options),
        Command::Bench(options) => bench::bench(&options),
        Command::Simulate(options) => simulate::simulate(&options),
        Command::Predict(options) => predict::predict(&options),
        Command::Reproduce(options) => reproduce::reproduce(&options),
        Command::Choose(options) => choose::choose(&options),
        Command::Torture(options) => torture::torture(&options),
        Command::Count(options) => count::count(&options).map(|()| 0),
        Command::TortureOne(options) => torture::one(&options).map(|()| 0),
        Command::Calibrate(options) => calibrate::calibrate(&options),
    };
    failure::exit_status("latchwork-lab", result)
}

/// The C library's entry.
#[cfg(not(test))]
#[unsafe(no_mangle)]
pub extern "C" fn main(_argc: i32, _argv: *const *const std::ffi::c_char) -> i32 {
    std::process::exit(command())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn examples_fit() {
        // clap would break an example that is wider than it may be.
        for command in Cli::command().get_subcommands() {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let wide: Vec<_> =
                after.lines().filter(|line| line.starts_with(' ') && line.len() > 100).collect();
            assert!(wide.is_empty(), "{wide:#?}");
        }
    }
}

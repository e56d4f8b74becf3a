//! The `latchwork` command: run any program under a better lock, and measure which one serves it
//! best.

// Without Rust's runtime before main, `latchwork run` hands on signals and descriptors exactly as it found them: the
// runtime would ignore SIGPIPE and open /dev/null for closed descriptors. It also makes
// `latchwork list | head` end as any other program does. Commands with a directory to remove hold a `WithoutSigpipe`.
#![cfg_attr(not(test), no_main)]
#![cfg_attr(test, allow(dead_code))]

mod compare;
mod config;
mod demo;
mod documents;
mod leftovers;
mod library;
mod list;
// The screen of `top` uses more of these two than its tables.
#[cfg_attr(not(feature = "top"), allow(dead_code))]
mod live;
#[cfg_attr(test, allow(dead_code))]
mod memory;
mod predict;
mod profile;
mod program;
mod record;
mod run;
mod stack;
#[cfg_attr(not(feature = "top"), allow(dead_code))]
mod top;
mod tune;
mod unseen;

use clap::{CommandFactory, Parser, Subcommand};
use latchwork_console::failure::{self, Failure};
use latchwork_console::help::flowing;
use latchwork_console::names;
use latchwork_console::{output, signals};
use std::io::Write;

const CHECK_HELP: &str = "\
Reported on stderr, with stacks, whichever lock serves:
  lock-order inversion      a thread takes B while it holds A; earlier, A was taken under B
  deadlock                  threads wait for each other: said when it happens
  self-deadlock             a thread waits for a lock that it holds itself
  unlock by a stranger      a thread unlocks a lock that it does not hold, or waits for a
                            condition with it
  end of the holder         a thread ends while it holds a lock
  destruction               a lock is destroyed while it is held

A program that does nothing of this runs without a word. Each acquisition records its stack, which takes
a tenth of a microsecond to some microseconds: this is for tests. The exit status is the program's; the signal
that kills the program ends this command, too. If no process of the program called a pthread lock (Rust's std and
Go have their own), a warning says that nothing was checked, also in the file of --json. With --require-calls
that is a failure.

Examples:
  latchwork check -- ./test-suite
  latchwork check --error-exitcode 99 -- ./test                 fail if a mistake is found
  latchwork check --require-calls -- ./test                     fail if nothing could be checked
  latchwork check --ignore known.txt -- ./test                  but for those that are known
  latchwork check --json mistakes.json -- ./test                for a program that reads them
  latchwork check --mutex glibc --rwlock glibc -- ./server      leave the locks themselves to glibc
  latchwork check --only '*_test' -- make check";

const EXAMPLES: &str = "\
Examples:
  latchwork compare                          see the point, on a built-in program
  latchwork compare -- ./server --bench      which lock serves this program best?
  latchwork run -- ./server                  run it under the recommended locks
  latchwork tune -- ./server --bench         find a lock for each of its locks
  latchwork profile -- ./server              which locks do its threads wait for, and where?
  latchwork top PID                          watch one that runs under latchwork run
  latchwork record -- ./server               write down its lock calls, and
  latchwork predict trace.lw --machine 8x24  see them on a machine that you do not have
  latchwork check -- ./server                does it misuse its locks?
  latchwork list                             every lock there is

No rebuild is needed: a preloaded library takes over the program's pthread calls. The C library's own
locks, the baseline of every comparison, are called glibc.";

#[derive(Parser)]
#[command(name = "latchwork", version, about = "Run any program under a better lock, and measure which one \
serves it best", after_help = flowing(EXAMPLES), max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Show every lock: what it costs, how it waits, where it comes from
    #[command(after_help = "Examples:\n  latchwork list\n  latchwork list --json | jq -r '.[].name'")]
    List(list::Options),
    /// Run a program under another lock
    #[command(after_help = flowing(&run_help()))]
    Run(run::Options),
    /// Run a program, and report what it does wrong with its locks
    #[command(after_help = flowing(CHECK_HELP))]
    Check(run::CheckOptions),
    /// Run a program, and report which locks its threads waited for, and because of which holders
    #[command(after_help = flowing(profile::HELP))]
    Profile(Box<profile::Options>),
    /// Run a program, and write down every lock call, for `predict`
    #[command(after_help = flowing(record::HELP))]
    Record(Box<record::Options>),
    /// Replay what `record` has written on a machine that you do not have
    #[command(disable_help_flag = true, after_help = flowing(predict::HELP))]
    Predict(predict::Options),
    /// Watch which locks the threads of a live process wait for
    #[command(after_help = flowing(top::HELP))]
    Top(top::Options),
    /// Measure a program under several locks, and say which one serves it best
    #[command(after_help = flowing(compare::HELP))]
    Compare(Box<compare::Options>),
    /// Measure a program, and find a lock for each of its locks
    #[command(after_help = flowing(tune::HELP))]
    Tune(Box<tune::Options>),
    /// Print the script that completes this command's options in a shell
    #[command(after_help = documents::COMPLETIONS_HELP)]
    Completions(documents::CompletionsOptions),
    /// Write the manual pages
    #[command(after_help = documents::MAN_HELP)]
    Man(documents::ManOptions),
    /// Write the preload library that this command carries to a file, for installations
    #[command(hide = true)]
    Library(library::Options),
    /// The built-in program that `compare` measures: a key-value store that checks itself
    #[command(hide = true)]
    DemoKv(demo::Options),
}

fn run_help() -> String {
    let names::Choice { mutex, rwlock } = names::default_choice();
    format!(
        "\
With neither --mutex nor --rwlock: --mutex {mutex} --rwlock {rwlock}. With one of them, the other kind is
left to glibc.

Signals, exit status, standard input and everything else are the program's own: this process becomes
the program. Exit status if that fails: 2 for wrong arguments, 127 if the program is not there, 126
if it cannot be executed, or not with the library in it (it uses musl, or an old glibc).

Examples:
  latchwork run -- ./server
  latchwork run --mutex mcs --rwlock glibc --stats -- make -j8
  latchwork run --config latchwork.toml -- ./server             what `latchwork tune` found
  latchwork run --only 'ld*' -- make -j8                        only the linkers that make starts
  LATCHWORK_PRELOAD_PATH=/opt/lw.so latchwork run -- ./server   use this library file"
    )
}

fn command() -> i32 {
    signals::survive_limit_on_files();
    let command = match Cli::try_parse() {
        Ok(options) => options.command,
        // --help and --version: a result like others.
        Err(text) if !text.use_stderr() => {
            let printed = text.print().and_then(|()| std::io::stdout().flush());
            let failed = |error| Failure::new(format!("standard output: {error}"));
            return failure::exit_status("latchwork", printed.map(|()| 0).map_err(failed));
        }
        Err(wrong) => wrong.exit(),
    };
    // The other commands become a program, which has the streams.
    if !matches!(command, Command::Run(_) | Command::Predict(_)) {
        output::reserve_streams();
    }
    let result = match command {
        Command::List(options) => list::list(&options).map(|()| 0),
        Command::Run(options) => run::run(&options).map(|never| match never {}),
        Command::Check(options) => run::check(&options),
        Command::Profile(options) => profile::profile(&options),
        Command::Predict(options) => predict::predict(&options).map(|never| match never {}),
        Command::Record(options) => record::record(&options),
        Command::Top(options) => top::top(&options).map(|()| 0),
        Command::Compare(options) => compare::compare(*options),
        Command::Tune(options) => tune::tune(*options),
        Command::Completions(options) => documents::completions(Cli::command(), &options).map(|()| 0),
        Command::Man(options) => documents::man(Cli::command(), &options).map(|()| 0),
        Command::Library(options) => library::write(&options).map(|()| 0),
        Command::DemoKv(options) => demo::demo(&options).map(|()| 0),
    };
    failure::exit_status("latchwork", result)
}

/// The C library's entry.
#[cfg(not(test))]
#[unsafe(no_mangle)]
pub extern "C" fn main(_argc: i32, _argv: *const *const std::ffi::c_char) -> i32 {
    stack::exit_with(command)
}

#[cfg(test)]
mod tests {
    use super::*;

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

//! `latchwork top`: which locks the threads of a live process wait for, second by second.
//!
//! | module | what it does |
//! |---|---|
//! | [`sample`] | what happened between two looks at the recording |
//! | [`batch`] | the same as text and JSON, for scripts |
//! | [`view`] | the screen: what is on it, and what each key does |
//! | [`terminal`] | the terminal |

mod batch;
mod sample;
#[cfg(feature = "top")]
mod terminal;
#[cfg(feature = "top")]
mod view;

use crate::live::{Session, Signals};
use crate::profile::attach::{pid, seconds};
use clap::Args;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::output::{print, say};
use sample::{Order, Sample, Watch};
use std::time::Duration;

/// Text below the options.
pub const HELP: &str = "\
PID is a process that was started with latchwork run. It is recorded as long as this command runs, and not before or
afterwards; while nothing is recorded, its lock calls cost what they cost without this command.

Keys:
  up, down, j, k    choose a lock                Enter, Esc   its waiters and holders, and back
  w c a h           sort by wait, contended,     t            the last second, or all
                    acquisitions, hold time      space        pause, go on
  o                 recording off, on            r            write a report (HTML)
  q                 quit

Examples:
  latchwork top 4711
  latchwork top 4711 --once                        one table, after a second
  latchwork top 4711 --batch 60 --json | jq .      a line of JSON each second for a minute
  latchwork top $(pidof server) --sort acquisitions";

/// Options of `latchwork top`.
#[derive(Args)]
pub struct Options {
    /// The process
    #[arg(value_name = "PID", value_parser = pid)]
    pid: u32,
    /// Print one table and end
    #[arg(long, conflicts_with = "batch")]
    once: bool,
    /// Print N tables and end
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u64).range(1..))]
    batch: Option<u64>,
    /// With --once or --batch: print a line of JSON in place of each table
    #[arg(long)]
    json: bool,
    /// Seconds between two looks
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Sort by this first
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Order::Wait)]
    sort: Order,
}

/// Watches the process.
pub fn top(options: &Options) -> Result<()> {
    let tables = options.batch.or(options.once.then_some(1));
    if options.json && tables.is_none() {
        return Err(Failure::usage("--json needs --once or --batch N"));
    }
    if tables.is_none() {
        check_terminal()?;
    }
    let signals = Signals::block()?;
    let mut session = Session::new(options.pid)?;
    session.on()?;
    match tables {
        Some(tables) => print_tables(options, tables, signals, &mut session),
        None => interactive(options, signals, session),
    }
}

#[cfg(feature = "top")]
fn check_terminal() -> Result<()> {
    use std::io::IsTerminal;
    if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
        return Ok(());
    }
    Err(Failure::usage("there is no terminal; use --once or --batch N"))
}

#[cfg(not(feature = "top"))]
fn check_terminal() -> Result<()> {
    Err(Failure::usage("this latchwork was built without the feature `top`; use --once or --batch N"))
}

#[cfg(feature = "top")]
fn interactive(options: &Options, signals: Signals, session: Session) -> Result<()> {
    terminal::run(session, signals, options.interval, options.sort)
}

#[cfg(not(feature = "top"))]
fn interactive(_: &Options, _: Signals, _: Session) -> Result<()> {
    check_terminal()
}

fn print_tables(options: &Options, tables: u64, signals: Signals, session: &mut Session) -> Result<()> {
    let mut watch = Watch::new();
    for number in 0..tables {
        let [ended] = signals.wait([session.descriptor()], options.interval);
        let sample = look(session, &mut watch)?;
        let text = if options.json {
            batch::json(session.pid(), &sample, options.sort)
        } else {
            let gap = if number == 0 { "" } else { "\n" };
            format!("{gap}{}", batch::text(session.pid(), session.program(), &sample, options.sort))
        };
        print(&text)?;
        if signals.come().is_some() {
            break;
        }
        if ended {
            say(&format!("latchwork: process {} has ended", session.pid()));
            break;
        }
    }
    Ok(())
}

/// What has happened since the last look.
fn look(session: &mut Session, watch: &mut Watch) -> Result<Sample> {
    // If the process has executed another program, the figures begin anew with that program.
    if session.follow(false)? {
        watch.restart();
    }
    watch.keep(&session.take_ended());
    let mut sample = watch.look(&session.read()?);
    sample.asleep = session.asleep();
    sample.stuck = session.stuck().clone();
    sample.profile.deadlock.clone_from(&sample.stuck.deadlock);
    Ok(sample)
}

//! Commands that run before and after the measured program, as hyperfine's options of the same names.

use super::child::{self, End, Launch};
use super::tail::tail;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::signals::Signals;
use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Duration;

const HEADING: &str = "Commands around the runs";
/// How long what a command leaves running may take to end when it is asked to.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// The commands, in the words of the shell.
#[derive(clap::Args)]
pub struct Hooks {
    /// Run this before the first run of each lock
    #[arg(long, value_name = "CMD", help_heading = HEADING)]
    pub setup: Option<String>,
    /// Run this before each run, warm-up included
    #[arg(long, value_name = "CMD", help_heading = HEADING)]
    pub prepare: Option<String>,
    /// Run this after each run
    #[arg(long, value_name = "CMD", help_heading = HEADING)]
    pub conclude: Option<String>,
    /// Run this for each lock after all runs
    #[arg(long, value_name = "CMD", help_heading = HEADING)]
    pub cleanup: Option<String>,
}

impl Hooks {
    /// Fails if the shell cannot read one of the commands.
    pub fn check(&self) -> Result<()> {
        let Self { setup, prepare, conclude, cleanup } = self;
        let all =
            [("--setup", setup), ("--prepare", prepare), ("--conclude", conclude), ("--cleanup", cleanup)];
        all.into_iter().try_for_each(|(option, command)| match command {
            Some(command) => check_syntax(option, command),
            None => Ok(()),
        })
    }
}

/// Fails if the shell cannot read `command`, the value of `option`. Nothing in it is run.
pub fn check_syntax(option: &str, command: &str) -> Result<()> {
    let checked = Command::new("sh").args(["-n", "-c", command]).stdin(Stdio::null()).output();
    // If there is no shell, the first run says so.
    let Some(refused) = checked.ok().filter(|checked| !checked.status.success()) else { return Ok(()) };
    let why = open_quote(command).map_or_else(
        || String::from_utf8_lossy(&refused.stderr).trim().to_owned(),
        |(quote, at)| format!("the {quote} at character {at} is not closed"),
    );
    Err(Failure::usage(format!("{option} {command}: {why}")))
}

/// The quotation mark of a command that has no end, and where it is, counted from 1. A guess where the shell has other rules (in
/// comments, for example).
fn open_quote(command: &str) -> Option<(char, usize)> {
    let mut open = None;
    let mut chars = command.chars().zip(1..);
    while let Some((char, at)) = chars.next() {
        match (open, char) {
            (Some((quote, _)), _) if quote == char => open = None,
            (Some(('\'', _)), _) => {}
            (_, '\\') => _ = chars.next(),
            (None, '\'' | '"') => open = Some((char, at)),
            _ => {}
        }
    }
    open
}

/// Runs the command that is the value of `option`, if there is one, without the preload library and untimed. Returns
/// the signal that asked this process to end meanwhile.
pub fn run(option: &str, command: Option<&String>, signals: &Signals) -> Result<Option<i32>> {
    let Some(command) = command else { return Ok(None) };
    let words = ["sh", "-c", command].map(OsString::from);
    let launch = Launch { command: &words, environment: &[], input: None };
    let run = child::run(&launch, None, STOP_TIMEOUT, false, signals)
        .map_err(|error| Failure::new(format!("--{option} {command:?}: {error}")))?;
    match run.end {
        End::Good(..) => Ok(None),
        End::Interrupted(signal) => Ok(Some(signal)),
        End::Bad(why, output) => {
            Err(Failure::new(format!("--{option} {command:?} failed: {why}{}", tail(&output))))
        }
    }
}

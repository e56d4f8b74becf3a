//! `latchwork profile`: which lock threads wait for, where, for how long, and because of which holders.
//!
//! | module | what it does |
//! |---|---|
//! | [`session`] | runs the program |
//! | [`attach`] | records a process that runs already |
//! | [`files`] | finds the recordings |
//! | [`symbols`] | turns addresses into names |
//! | [`distinct`] | tells classes of one name apart |
//! | [`join`] | makes one [`model::Profile`], with its [`lengths`], of the recordings of all processes |
//! | [`findings`], [`conditions`], [`advice`], [`chains`] | say what the profile means |
//! | [`terminal`], [`json`], [`pprof`], [`folded`], [`html`] | the reports |

mod advice;
pub mod attach;
mod chains;
mod conditions;
mod distinct;
pub mod files;
pub mod findings;
mod folded;
pub mod html;
pub mod join;
mod json;
mod lengths;
pub mod model;
mod pprof;
#[cfg(test)]
pub mod sample;
pub mod session;
pub mod symbols;
mod terminal;
pub mod top_holders;
pub mod units;

use crate::program;
use crate::run::Under;
use crate::unseen;
use attach::Attached;
use clap::{Args, ValueHint};
use files::Recordings;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::names::Choice;
use latchwork_console::{ending, output, table};
use model::Profile;
use session::{Ended, Stdout};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Text below the options.
pub const HELP: &str = "\
The report says which locks threads waited for, how long, where, and because of which holders. It comes on stderr when the
program has ended, also after Ctrl-C. The exit status is the program's (128 and the number of the signal that killed it).
Waiting for a condition or a semaphore is shown apart: an idle thread waits like this. So do threads of languages that build their
locks from them, as Java and Python do.

A file can be -, standard output. What the program itself prints there then goes to standard error.

The program keeps glibc's locks unless --mutex, --rwlock or --config says otherwise. Build it with -g and -fno-omit-frame-pointer, or
install its debug symbols, to see lines and whole stacks.

Examples:
  latchwork profile -- ./server --bench                 the report on the terminal
  latchwork profile -o report.html -- ./server          a page to look at in a browser
  latchwork profile --json - -- ./server | jq '.locks[0].name'
  latchwork profile --pprof locks.pb.gz -- ./server && go tool pprof -http=: locks.pb.gz
  latchwork profile --folded locks.txt -- ./server      for tools that draw flame graphs
  latchwork profile --config latchwork.toml -- ./server what is left after `latchwork tune`
  latchwork profile --pid 4711 --seconds 10             a process under latchwork run
  latchwork profile --keep recording -- ./server        keep what was recorded, and
  latchwork profile --read recording -o report.html     report on it again";

/// Options of `latchwork profile`.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    under: Under,
    /// Write the report as a page for a browser, which needs no network
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    output: Option<PathBuf>,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,
    /// Write the stacks for `go tool pprof`
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pprof: Option<PathBuf>,
    /// Write the stacks of waiting threads, one a line, for tools that draw flame graphs
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    folded: Option<PathBuf>,
    /// Keep the recording in this new or empty directory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    keep: Option<PathBuf>,
    /// Report on a recording that was kept; nothing is run
    #[arg(long, value_name = "DIR", value_hint = ValueHint::AnyPath, conflicts_with_all = ["command", "keep", "mutex", "rwlock", "config", "only", "not"])]
    read: Option<PathBuf>,
    /// Record this process, which was started with latchwork run; nothing is run
    #[arg(long, value_name = "PID", allow_negative_numbers = true, value_parser = attach::pid, conflicts_with_all = ["command", "read", "mutex", "rwlock", "config", "only", "not"])]
    pid: Option<u32>,
    /// Record it for so long [default: until Ctrl-C, or until it ends]
    #[arg(long, value_name = "N", allow_negative_numbers = true, requires = "pid", conflicts_with_all = ["command", "read"], value_parser = attach::seconds)]
    seconds: Option<Duration>,
    /// The program and its arguments
    #[arg(value_name = "PROG", trailing_var_arg = true, required_unless_present_any = ["read", "pid"], value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// Runs the program and reports. Returns the program's exit status.
pub fn profile(options: &Options) -> Result<i32> {
    let kept = options.read.iter().map(|file| ("--read", file.clone()));
    let read = options.under.read().chain(kept).chain(program::named(&options.command));
    output::check_results(options.files(), read)?;
    let recorded = match (&options.read, options.pid) {
        (Some(kept), _) => Some(Attached { recordings: files::read_kept(kept)?, ..Attached::default() }),
        (None, Some(pid)) => Some(attach::record(pid, options.seconds, options.keep.as_deref())?),
        (None, None) => None,
    };
    if let Some(Attached { recordings, asleep, stuck }) = recorded {
        ending::by_signals();
        let mut profile = join::join(&recordings);
        if let Some(pid) = options.pid
            && unseen::calls(&profile) == 0
        {
            profile.notes.extend(unseen::asleep(pid, asleep, &stuck));
        }
        profile.deadlock = stuck.deadlock;
        let mut printed = Ok(());
        // No program runs, so the text cannot be mixed with a program's output.
        if options.files().all(|(_, path)| path != Path::new("-")) {
            printed = output::print(&terminal::text(&profile, table::stdout_columns()));
        }
        options.write(&profile).map_err(|(failure, _)| failure)?;
        printed?;
        return Ok(0);
    }
    let locks = |path: &Path| options.under.locks(path, Choice::glibc());
    let programs = &options.under.programs;
    let mut environment = session::environment(&options.command, programs, locks, session::NOT_RECORDED)?;
    let recordings = Recordings::new(options.keep.as_deref())?;
    environment.push(("LATCHWORK_PROFILE", recordings.path().into()));
    let is_printed = options.files().any(|(_, path)| path == Path::new("-"));
    let stdout = if is_printed { Stdout::Stderr } else { Stdout::Own };
    let Ended { status, left, gone, killed_by } = session::run(&options.command, &environment, stdout)?;
    ending::by_signals();
    let left = (!left.is_empty()).then(|| session::background(&left, "profile", "report"));
    files::note_gone(recordings.path(), &gone);
    let found = files::read_all(recordings.path());
    recordings.check_room(files::is_lost(&found))?;
    let found = found.map_err(|failure| {
        let left = left.iter().map(|left| format!(". Besides, {left}"));
        // It has come to nothing yet.
        let early = if killed_by.is_some() { "a signal ended it, perhaps too early; " } else { "" };
        let rest = format!(" and made no recording: {early}{}{}", failure.message, left.collect::<String>());
        session::not_recorded(&options.command, status, &rest)
    })?;
    let mut profile = join::join(&found);
    profile.missing.extend(left.map(|left| format!("Note that {left}.")));
    let mut text = format!("\n{}", terminal::text(&profile, table::stderr_columns()));
    if let Some(kept) = &options.keep {
        let word = output::shell_word(&kept.to_string_lossy());
        text += &format!("The recording is in {}: latchwork profile --read {word}\n", kept.display());
    }
    let shown = output::print_to_stderr(&text);
    if let Err((failure, keep)) = options.write(&profile) {
        // A run of an hour must not be lost because there was no room for its report.
        return Err(if keep { recordings.keep(failure, "profile --read") } else { failure });
    }
    shown?;
    Ok(status)
}

impl Options {
    /// The files to write, with their options.
    fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> + Clone {
        let files = [
            ("--output", &self.output),
            ("--json", &self.json),
            ("--pprof", &self.pprof),
            ("--folded", &self.folded),
        ];
        files.into_iter().filter_map(|(name, path)| Some((name, path.as_deref()?)))
    }

    /// Writes the files, also those behind one that cannot be written. If one fails: the first failure, and whether the recording should be kept.
    fn write(&self, profile: &Profile) -> std::result::Result<(), (Failure, bool)> {
        let mut failed = None;
        for (name, path) in self.files() {
            let content = match name {
                "--output" => html::text(profile).into_bytes(),
                "--json" => json::text(profile).into_bytes(),
                "--pprof" => pprof::bytes(profile),
                _ => folded::text(profile).into_bytes(),
            };
            // A reader that goes away wants no more.
            if let Err(error) = output::write_or_print(path, &content) {
                let keep = error.kind() != ErrorKind::BrokenPipe;
                failed.get_or_insert_with(|| (output::not_written(name, path, &error), keep));
            }
        }
        failed.map_or(Ok(()), Err)
    }
}

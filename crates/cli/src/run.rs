//! `latchwork run` becomes the program, with the preload library in it; `latchwork check` runs it.

use crate::compare::used::Used;
use crate::config;
use crate::leftovers::{self, Daemon};
use crate::library;
use crate::profile::session::{self, Ended, Stdout};
use crate::program;
use clap::{Args, ValueHint};
use latchwork::registry::Kind;
use latchwork_console::failure::{Failure, NOT_EXECUTABLE, NOT_FOUND, Result};
use latchwork_console::names::{self, Choice, GLIBC};
use latchwork_console::output;
use latchwork_console::signals::end_by;
use serde_json::json;
use std::convert::Infallible;
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{env, io};

/// What the library reads. A program that is to run without the library, or under chosen locks, must not find the values
/// that this process was given. (`LATCHWORK_NEAR` and `LATCHWORK_MEMBARRIER` say what suits a program, under all locks. They
/// stay.)
pub const VARIABLES: [&str; 14] = [
    "LATCHWORK_MUTEX",
    "LATCHWORK_RWLOCK",
    "LATCHWORK_LOCKS",
    "LATCHWORK_STATS",
    "LATCHWORK_CHECK",
    "LATCHWORK_CHECK_JSON",
    "LATCHWORK_CHECK_IGNORE",
    "LATCHWORK_PROFILE",
    "LATCHWORK_TRACE",
    "LATCHWORK_TRACE_WINDOW",
    "LATCHWORK_LIVE",
    "LATCHWORK_USED",
    "LATCHWORK_ONLY",
    "LATCHWORK_NOT",
];

/// Under which locks a program runs, and which of the programs that it starts.
#[derive(Args)]
pub struct Under {
    /// Lock to use for pthread mutexes, or glibc to leave them alone
    #[arg(long, value_name = "NAME")]
    mutex: Option<String>,
    /// Lock to use for pthread reader-writer locks, or glibc to leave them alone
    #[arg(long, value_name = "NAME")]
    rwlock: Option<String>,
    /// A lock per lock: a file that `latchwork tune` has written or that you have edited
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["mutex", "rwlock"])]
    config: Option<PathBuf>,
    #[command(flatten)]
    pub programs: Programs,
}

/// The locks of a program.
pub struct Locks {
    pub choice: Choice,
    /// The value of `LATCHWORK_LOCKS`; empty if no lock has one of its own. A value of this process's own must not reach the
    /// program.
    pub by_place: OsString,
}

impl Locks {
    /// With neither name `otherwise`; with one, only that kind is replaced.
    pub fn named(mutex: Option<&str>, rwlock: Option<&str>, otherwise: Choice) -> Result<Self> {
        let choice = match (mutex, rwlock) {
            (None, None) => otherwise,
            _ => Choice {
                mutex: names::check(Kind::Mutex, mutex.unwrap_or(GLIBC))?,
                rwlock: names::check(Kind::RwLock, rwlock.unwrap_or(GLIBC))?,
            },
        };
        Ok(Self { choice, by_place: OsString::new() })
    }
}

impl Under {
    /// The file that is read.
    pub fn read(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        self.config.iter().map(|file| ("--config", file.clone()))
    }

    /// The locks for the program in this file: those of the configuration or of the options; with neither, `otherwise`.
    pub fn locks(&self, program: &Path, otherwise: Choice) -> Result<Locks> {
        let Some(file) = &self.config else {
            return Locks::named(self.mutex.as_deref(), self.rwlock.as_deref(), otherwise);
        };
        let resolved = config::read(file)?.resolve(program).map_err(|why| config::refused(file, &why))?;
        for note in &resolved.notes {
            output::say(&format!("latchwork: {}: {note}", file.display()));
        }
        Ok(Locks { choice: resolved.choice, by_place: resolved.locks.unwrap_or_default().into() })
    }
}

/// Which of the programs that are started get the locks, by the names of their executables.
#[derive(Args)]
pub struct Programs {
    /// Of PROG and the programs that it starts, choose those with such a name (* and ? as in the shell)
    #[arg(long, value_name = "PATTERN,..", value_delimiter = ',', value_parser = pattern)]
    only: Vec<String>,
    /// Of PROG and the programs that it starts, leave out those with such a name
    #[arg(long, value_name = "PATTERN,..", value_delimiter = ',', value_parser = pattern)]
    not: Vec<String>,
}

fn pattern(text: &str) -> std::result::Result<String, String> {
    match text {
        "" => Err("a pattern must not be empty".into()),
        text if text.contains('/') => Err(
            "a pattern is compared with the executable's name without directories, so it must not contain /"
                .into(),
        ),
        text => Ok(text.into()),
    }
}

impl Programs {
    /// Whether all programs are chosen.
    pub fn is_all(&self) -> bool {
        self.only.is_empty() && self.not.is_empty()
    }

    /// The options, for a command that the user may type: each with a space behind it.
    pub fn options(&self) -> String {
        let given = [("--only", &self.only), ("--not", &self.not)].into_iter();
        let given = given.filter(|(_, patterns)| !patterns.is_empty());
        given.map(|(name, patterns)| format!("{name} {} ", output::shell_word(&patterns.join(",")))).collect()
    }

    /// The variables that tell the library.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let given = [("LATCHWORK_ONLY", &self.only), ("LATCHWORK_NOT", &self.not)];
        given
            .into_iter()
            .filter(|(_, patterns)| !patterns.is_empty())
            .map(|(name, patterns)| (name, patterns.join(",").into()))
            .collect()
    }
}

/// Options of `latchwork run`.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    under: Under,
    /// When the program exits, say on stderr what each lock served and what was left to glibc
    #[arg(long)]
    stats: bool,
    /// When the program exits, append the same to this file, one line of JSON per process
    #[arg(long, value_name = "FILE", conflicts_with = "stats")]
    stats_json: Option<PathBuf>,
    /// The same as the command `latchwork check`
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    mistakes: Mistakes,
    /// The program and its arguments
    #[arg(value_name = "PROG", trailing_var_arg = true, required = true, value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// What is done about the mistakes that are found.
#[derive(Args)]
pub struct Mistakes {
    /// Exit status of each process in which a mistake was found, in place of its own
    #[arg(long, help_heading = "Mistakes", value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u8).range(1..))]
    error_exitcode: Option<u8>,
    /// Append each report to this file as well, as one line of JSON
    #[arg(long, help_heading = "Mistakes", value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,
    /// Leave out mistakes with such functions or libraries in their stacks: a pattern in each line (* and ? as in the
    /// shell)
    #[arg(long, help_heading = "Mistakes", value_name = "FILE", value_hint = ValueHint::FilePath)]
    ignore: Option<PathBuf>,
}

impl Mistakes {
    /// The option that was given, if one was.
    fn given(&self) -> Option<&'static str> {
        let Self { error_exitcode, json, ignore } = self;
        let first = [
            ("--error-exitcode", error_exitcode.is_some()),
            ("--json", json.is_some()),
            ("--ignore", ignore.is_some()),
        ];
        first.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// The variables that tell the library.
    fn environment(&self) -> Result<Vec<(&'static str, OsString)>> {
        let mode = self.error_exitcode.map_or_else(|| "1".into(), |status| format!("exit:{status}").into());
        let mut variables: Vec<(_, OsString)> = vec![("LATCHWORK_CHECK", mode)];
        if let Some(file) = &self.json {
            variables.push(("LATCHWORK_CHECK_JSON", appended("--json", file)?));
        }
        if let Some(file) = &self.ignore {
            let failed = |error| Failure::usage(format!("--ignore {}: {error}", file.display()));
            // An empty one, such as `/dev/null`, leaves nothing out.
            if !config::read_small(file).map_err(failed)?.is_empty() {
                if !file.is_file() {
                    return Err(failed(io::Error::other(
                        "is no regular file, and each process of the program reads it",
                    )));
                }
                // The program may change its directory, and then start others.
                variables.push(("LATCHWORK_CHECK_IGNORE", std::path::absolute(file).map_err(failed)?.into()));
            }
        }
        Ok(variables)
    }

    /// Appends a line to the file of `--json`, if there is one, as the library does for a warning.
    fn add_warning(&self, warning: &str) {
        let Some(file) = &self.json else { return };
        let line = json!({"pid": std::process::id(), "warning": warning}).to_string() + "\n";
        // One call, so that no other process's line comes between.
        let append = || File::options().append(true).create(true).open(file)?.write_all(line.as_bytes());
        if let Err(error) = append() {
            output::say(&format!("latchwork: warning: --json {}: {error}", file.display()));
        }
    }
}

/// Options of `latchwork check`.
#[derive(Args)]
pub struct CheckOptions {
    #[command(flatten)]
    under: Under,
    /// Fail if no process of the program called a lock, so that nothing was checked
    #[arg(long)]
    require_calls: bool,
    #[command(flatten)]
    mistakes: Mistakes,
    /// The program and its arguments
    #[arg(value_name = "PROG", trailing_var_arg = true, required = true, value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

/// Replaces this process by the program; returns only when that fails.
pub fn run(options: &Options) -> Result<Infallible> {
    let appended = [("--stats-json", &options.stats_json), ("--json", &options.mistakes.json)];
    check_appended(&appended, &options.under, &options.mistakes, &options.command)?;
    let mut more = match options.mistakes.given() {
        _ if options.check => options.mistakes.environment()?,
        None => Vec::new(),
        Some(option) => return Err(Failure::usage(format!("{option} needs --check"))),
    };
    if let Some(report) = report(options)? {
        more.push(("LATCHWORK_STATS", report));
    }
    let without = if options.check { NOT_CHECKED } else { OWN_LOCKS };
    note_waiters(&options.under);
    become_program(&options.command, variables(&options.under, more, &options.command, without)?)
}

/// On a terminal: says what to expect of a lock that is made for a thread per CPU. Whether the program has more is not known yet.
fn note_waiters(under: &Under) {
    if !io::stderr().is_terminal() {
        return;
    }
    for (kind, name) in [(Kind::Mutex, &under.mutex), (Kind::RwLock, &under.rwlock)] {
        let Some(found) = name.as_deref().and_then(|name| names::find(kind, name)) else { continue };
        let why = match found.info {
            info if !info.blocking => format!("waiters of {} only spin", info.name),
            info if info.fairness == "FIFO" => {
                format!(
                    "{} goes to its waiters in their order, and the next one may have to be woken each time",
                    info.name
                )
            }
            _ => continue,
        };
        output::say(&format!(
            "latchwork: note: {why}: a program with more threads than CPUs may be many times slower than under glibc"
        ));
    }
}

/// What a program that gets no library does, for the warning.
const OWN_LOCKS: &str = "runs with the locks of its own C library";
const NOT_CHECKED: &str = "is not checked";

/// Runs the program, and has the library check how the program uses its locks. Says so if nothing was checked. Returns the exit
/// status.
pub fn check(options: &CheckOptions) -> Result<i32> {
    let CheckOptions { under, require_calls, mistakes, command } = options;
    check_appended(&[("--json", &mistakes.json)], under, mistakes, command)?;
    let mut variables = variables(under, mistakes.environment()?, command, NOT_CHECKED)?;
    let used = match Used::new() {
        Ok(used) => used,
        Err(failure) if *require_calls => return Err(failure),
        // The program can be checked all the same.
        Err(Failure { message, .. }) => {
            output::say(&format!(
                "latchwork: warning: if nothing is checked, no message will say so: {message}"
            ));
            return become_program(command, variables).map(|never| match never {});
        }
    };
    variables.push(("LATCHWORK_USED", used.path().into()));
    let Ended { status, killed_by, left, .. } = session::run(command, &variables, Stdout::Own)?;
    let why = used.why_nothing_was_checked(&under.programs)?;
    drop(used);
    if let Some(why) = &why {
        say_nothing_was_checked(options, why, &left);
    }
    if let Some(signal) = killed_by {
        // As the program itself does under `run`. A shell that runs a script ends at Ctrl-C only if the signal ends its command.
        end_by(signal);
    }
    let fails = why.is_some() && *require_calls && status == 0;
    Ok(if fails { mistakes.error_exitcode.map_or(1, i32::from) } else { status })
}

fn say_nothing_was_checked(options: &CheckOptions, why: &str, left: &[Daemon]) {
    let mut nothing = format!("nothing was checked: {why}");
    if !left.is_empty() {
        nothing += &format!(". So far: {}", leftovers::text(left));
    }
    output::say(&match options.require_calls {
        true => format!("latchwork: {nothing}"),
        false => format!("latchwork: warning: {nothing} (--require-calls makes that a failure)"),
    });
    options.mistakes.add_warning(&nothing);
}

/// The variables for the program, and `more` of them; `without` as for [`session::environment`].
fn variables(
    under: &Under,
    more: Vec<(&'static str, OsString)>,
    command: &[OsString],
    without: &str,
) -> Result<Vec<(&'static str, OsString)>> {
    let locks = |path: &Path| under.locks(path, names::default_choice());
    let mut variables = session::environment(command, &under.programs, locks, without)?;
    variables.extend(more);
    variables.push(("LATCHWORK_LIVE", "1".into()));
    Ok(variables)
}

fn become_program(command: &[OsString], variables: Vec<(&'static str, OsString)>) -> Result<Infallible> {
    // SAFETY: no other thread exists: this runs first thing in main.
    unsafe {
        VARIABLES.iter().for_each(|name| env::remove_var(name));
        variables.into_iter().for_each(|(name, value)| env::set_var(name, value));
    }
    execute(command)
}

/// The failure for a program that its dynamic linker would not start with the library.
pub fn cannot_start(program: &dyn std::fmt::Display, why: &str) -> Failure {
    Failure { status: NOT_EXECUTABLE, message: format!("{program} cannot run under latchwork: {why}") }
}

/// The variables that put `choice` to work in a program, which may be built with a sanitizer.
pub fn environment(
    choice: &Choice,
    library: &Path,
    sanitizer: Option<&str>,
) -> Vec<(&'static str, OsString)> {
    let before = library::preloaded_by_user();
    vec![
        ("LD_PRELOAD", library::preloading(sanitizer, library, before.as_deref())),
        ("LATCHWORK_MUTEX", choice.mutex.clone().into()),
        ("LATCHWORK_RWLOCK", choice.rwlock.clone().into()),
    ]
}

fn report(options: &Options) -> Result<Option<OsString>> {
    if let Some(file) = &options.stats_json {
        let mut value = OsString::from("json:");
        value.push(appended("--stats-json", file)?);
        return Ok(Some(value));
    }
    Ok(options.stats.then(|| "1".into()))
}

/// Fails if the library would append to a file that is read.
fn check_appended(
    files: &[(&'static str, &Option<PathBuf>)],
    under: &Under,
    mistakes: &Mistakes,
    command: &[OsString],
) -> Result<()> {
    for (option, file) in files.iter().filter_map(|(option, file)| Some((*option, file.as_deref()?))) {
        let ignore = mistakes.ignore.iter().map(|file| ("--ignore", file.clone()));
        output::check_distinct([(option, file)], under.read().chain(ignore).chain(program::named(command)))?;
    }
    Ok(())
}

/// The file that is the value of `option`, to which the library appends: absolute, because the program may change its directory.
fn appended(option: &str, file: &Path) -> Result<OsString> {
    output::check_file(option, file)?;
    let file =
        std::path::absolute(file).map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    if file.is_symlink() {
        let why = "is a symbolic link, which the library does not follow; name the file itself";
        return Err(Failure::usage(format!("{option} {}: {why}", file.display())));
    }
    Ok(file.into())
}

/// `execvp`, directly: std's own exec resets the disposition of SIGPIPE, and the program must find
/// everything as it would have without us.
pub fn execute(command: &[OsString]) -> Result<Infallible> {
    let words: Vec<CString> = command
        .iter()
        .map(|word| CString::new(word.as_bytes()).expect("arguments of a process hold no zero byte"))
        .collect();
    let mut pointers: Vec<_> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(std::ptr::null());
    // SAFETY: a null-terminated array of terminated strings, the first of which exists.
    unsafe { libc::execvp(pointers[0], pointers.as_ptr()) };
    let error = io::Error::last_os_error();
    let status = if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE };
    // "Not found" although the file is there: what it asks to be run by is missing.
    let hint = if status == NOT_FOUND { " (its interpreter or dynamic linker is missing)" } else { "" };
    Err(Failure { status, message: format!("{}: {error}{hint}", Path::new(&command[0]).display()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_named_lock_leaves_the_other_kind_alone() {
        let choose =
            |mutex, rwlock| Locks::named(mutex, rwlock, names::default_choice()).map(|locks| locks.choice);
        assert_eq!(choose(Some("mcs"), None).unwrap(), Choice { mutex: "mcs".into(), rwlock: GLIBC.into() });
        assert_eq!(choose(Some(GLIBC), None).unwrap(), Choice::glibc());
        assert_eq!(choose(None, None).unwrap(), names::default_choice());
        assert!(choose(None, Some("nope")).is_err());
    }
}

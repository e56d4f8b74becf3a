//! What the user asks for: the options of `latchwork compare`, checked before anything is run.

use super::hooks::{self, Hooks};
use super::metric::{Metric, expression_of};
use super::plan::{Length, Plan, Subject};
use super::server::{Ready, Server};
use super::used::Used;
use super::verdict::{self, Better};
use crate::program::{self, Obstacle};
use crate::run::{self, Programs};
use crate::{demo, library};
use clap::{Args, ValueHint};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::signals::Signals;
use latchwork_console::{machine, output};
use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Seconds that each run of the built-in program takes.
const DEMO_SECONDS: f64 = 0.5;

/// Options of `latchwork compare`.
#[derive(Args)]
pub struct Options {
    /// Mutexes to try, or `all`
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    pub mutex: Vec<String>,
    /// Reader-writer locks to try, or `all`
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    pub rwlock: Vec<String>,
    /// Measured runs of each lock [default: so many that a verdict stands if one run disagrees: 12 for five locks]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=10000))]
    runs: Option<u32>,
    /// Measure as many rounds as fit into so many seconds, and at least one
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = seconds, conflicts_with = "runs")]
    seconds: Option<Duration>,
    /// Runs of each lock before that, not measured
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=10000))]
    warmup: u32,
    /// Write every number of every run here; with -, print it in place of the table
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub json: Option<PathBuf>,
    /// Write the table here as Markdown; with -, print it in place of the table
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub markdown: Option<PathBuf>,
    /// Write a line of comma-separated values for each lock here; with -, print them in place of the table
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub csv: Option<PathBuf>,
    #[command(flatten)]
    run: RunOptions,
}

/// What is run, and how a run is measured: the options that `latchwork tune` has too.
#[derive(Args)]
pub struct RunOptions {
    #[command(flatten)]
    programs: Programs,
    /// Compare by a number in the program's output: what the expression's first group captures
    #[arg(
        long,
        value_name = "REGEX",
        long_help = "\
Compare by a number in the program's output: what the regular expression's first group captures. The \
last match in stdout and stderr together counts; ^ and $ match at line ends; commas in the number are \
skipped. With --server, the output is that of the load. Without this option, runs are compared by wall time."
    )]
    metric: Option<String>,
    /// More of the metric is better (the default)
    #[arg(long, requires = "metric", conflicts_with = "lower_is_better")]
    higher_is_better: bool,
    /// Less of the metric is better
    #[arg(long, requires = "metric")]
    lower_is_better: bool,
    /// End a run after so many seconds [default: ten times glibc's slowest run, at least 30]
    #[arg(long, value_name = "SECS", allow_negative_numbers = true, value_parser = seconds)]
    timeout: Option<Duration>,
    /// A run may exit with another status than 0 and counts nevertheless
    #[arg(long)]
    ignore_failure: bool,
    /// Standard input for each run [default: none]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Before the first run, wait at most so many seconds until other programs leave the CPUs alone
    #[arg(long, value_name = "SECS", allow_negative_numbers = true, default_value = "5", value_parser = seconds_or_zero)]
    settle: Duration,
    /// Kill a server, or what PROG leaves running, if it does not end within so many seconds after SIGTERM
    #[arg(long, value_name = "SECS", allow_negative_numbers = true, default_value = "5", value_parser = seconds)]
    stop_timeout: Duration,
    #[command(flatten)]
    hooks: Hooks,
    /// Start this server under each lock, in place of PROG, and measure it under --load
    #[arg(
        long,
        value_name = "CMD",
        help_heading = "Servers",
        requires_all = ["ready", "load"],
        conflicts_with_all = ["command", "input"]
    )]
    server: Option<String>,
    /// The server is ready when its output matches this, or when a program listens on this port
    #[arg(long, value_name = "REGEX|PORT", help_heading = "Servers", requires = "server")]
    ready: Option<String>,
    /// How long the server may take to be ready, in seconds
    #[arg(long, value_name = "SECS", allow_negative_numbers = true, help_heading = "Servers", requires = "server", default_value = "30", value_parser = seconds)]
    ready_timeout: Duration,
    /// Run this load generator beside the server, without the library; a run is over when it ends
    #[arg(long, value_name = "CMD", help_heading = "Servers", requires = "server")]
    load: Option<String>,
    /// The program and its arguments; without it, the built-in key-value store
    #[arg(value_name = "PROG", trailing_var_arg = true, value_hint = ValueHint::CommandWithArguments)]
    command: Vec<OsString>,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    seconds_or_zero(text)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or("a positive number of seconds, at most 1000000".into())
}

fn seconds_or_zero(text: &str) -> std::result::Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if (0.0..=1e6).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a number of seconds from 0 to 1000000".into()),
    }
}

impl Options {
    /// What they ask for, in a comparison of so many locks with glibc.
    pub fn plan(self, locks: usize) -> Result<Plan> {
        output::check_stdout()?;
        let files = [("--json", &self.json), ("--markdown", &self.markdown), ("--csv", &self.csv)];
        let written = files.iter().filter_map(|(option, file)| Some((*option, file.as_deref()?)));
        output::check_results(written, self.run.read())?;
        let length = match (self.seconds, self.runs) {
            (Some(seconds), _) => Length::Time(seconds),
            (None, runs) => Length::Rounds(runs.unwrap_or(verdict::default_rounds(locks))),
        };
        self.run.plan(length, self.warmup)
    }
}

impl RunOptions {
    /// The files that are read.
    pub fn read(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        let input = self.input.iter().map(|file| ("--input", file.clone()));
        input.chain(program::named(&self.command))
    }

    /// What they ask for.
    pub fn plan(self, length: Length, warmup: u32) -> Result<Plan> {
        let better = if self.lower_is_better { Better::Lower } else { Better::Higher };
        let built_in = self.command.is_empty() && self.server.is_none();
        let metric = match self.metric.as_deref() {
            Some(expression) => Some(Metric::new(expression, better)?),
            None if built_in => Some(Metric::new(demo::METRIC, Better::Higher)?),
            None => None,
        };
        let subject = match (self.server, self.ready, self.load) {
            (Some(server), Some(ready), Some(load)) => {
                Subject::Server(self::server(&server, &ready, &load, self.ready_timeout)?)
            }
            _ if built_in => Subject::Program(built_in_program()?, input(self.input.as_deref())?),
            _ => Subject::Program(self.command, input(self.input.as_deref())?),
        };
        self.hooks.check()?;
        let library = library::path()?;
        if let Some(file) = library::preloaded_by_system() {
            output::say(&format!(
                "latchwork: warning: {} names a library of latchwork's, so the runs under glibc's locks have it too, which is \
                 not free: take it out",
                file.display()
            ));
        }
        let sanitizer = check_program(&subject.command()[0], &library)?;
        Ok(Plan {
            subject,
            built_in,
            metric,
            p99: None,
            length,
            warmup,
            timeout: self.timeout,
            any_status: self.ignore_failure,
            settle: self.settle,
            stop_timeout: self.stop_timeout,
            warns: true,
            earlier: 0,
            hooks: self.hooks,
            programs: self.programs,
            signals: Signals::watch()?,
            used: Used::new()?,
            library,
            sanitizer,
        })
    }
}

fn built_in_program() -> Result<Vec<OsString>> {
    let own = env::current_exe().map_err(|error| Failure::new(format!("/proc/self/exe: {error}")))?;
    // More threads than CPUs: the built-in program is there to show how locks take that.
    let arguments = demo::arguments((4 * machine::cpus()).min(demo::MOST_THREADS), DEMO_SECONDS);
    Ok([own.into()].into_iter().chain(arguments.map(OsString::from)).collect())
}

fn input(path: Option<&Path>) -> Result<Option<File>> {
    let open = |path: &Path| {
        File::open(path).map_err(|error| Failure::usage(format!("--input {}: {error}", path.display())))
    };
    if let Some(path) = path.filter(|path| path.is_dir()) {
        return Err(Failure::usage(format!("--input {}: is a directory", path.display())));
    }
    path.map(open).transpose()
}

fn server(server: &str, ready: &str, load: &str, ready_timeout: Duration) -> Result<Server> {
    let ready = match ready.parse() {
        Ok(0) => return Err(Failure::usage("--ready 0: a server cannot listen on port 0")),
        Ok(port) => Ready::Port(port),
        Err(_) if ready.bytes().all(|byte| byte.is_ascii_digit()) && !ready.is_empty() => {
            return Err(Failure::usage(format!("--ready {ready}: a port is a number from 1 to 65535")));
        }
        Err(_) => Ready::Output(expression_of("--ready", ready)?),
    };
    let load = words("--load", load)?;
    program::find(&load[0])?;
    Ok(Server { command: words("--server", server)?, ready, ready_timeout, load })
}

/// A command line as words. A command that contains anything that means something to the shell is left to the shell.
fn words(option: &str, command: &str) -> Result<Vec<OsString>> {
    let plain = |char: char| !"|&;<>()$`\\\"'*?[]#~={}!\n".contains(char);
    let words: Vec<OsString> = command.split_whitespace().map(OsString::from).collect();
    match words.is_empty() {
        true => Err(Failure::usage(format!("{option}: there is no command"))),
        false if command.chars().all(plain) => Ok(words),
        false => {
            hooks::check_syntax(option, command)?;
            Ok(["sh", "-c", command].map(OsString::from).to_vec())
        }
    }
}

/// Finds the program, and says what will happen if the library cannot be loaded into it. Returns the runtime of the
/// sanitizer that the program is built with.
fn check_program(name: &OsString, library: &Path) -> Result<Option<String>> {
    let path = program::find(name)?;
    match program::obstacle(&path, library) {
        None => {}
        Some(Obstacle::RunsWithout(why)) => {
            output::say(&format!("latchwork: warning: all locks will measure alike: {why}"));
        }
        Some(Obstacle::DoesNotStart(why)) => {
            return Err(run::cannot_start(&Path::new(name).display(), &why));
        }
    }
    Ok(program::sanitizer(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_command_is_split_and_the_shell_gets_the_rest() {
        let words = |command| words("--server", command).unwrap();
        assert_eq!(words(" ./server  -p 80 "), ["./server", "-p", "80"]);
        assert_eq!(words("cd /tmp && ./server"), ["sh", "-c", "cd /tmp && ./server"]);
        assert_eq!(words("A=1 ./server"), ["sh", "-c", "A=1 ./server"]);
        assert_eq!(words("./server 'a b'"), ["sh", "-c", "./server 'a b'"]);
        for (command, why) in [
            (" ", "there is no command"),
            ("./server \"a b", "the \" at character 10 is not closed"),
            ("echo \\' \"it's\" it's", "the ' at character 18 is not closed"),
            ("(./server", "expect"),
        ] {
            let failure = super::words("--load", command).unwrap_err();
            assert!(failure.status == 2 && failure.message.contains(why), "{}", failure.message);
        }
    }
}

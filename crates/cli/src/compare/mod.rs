//! `latchwork compare`: runs a program under several locks in turn, and says which one serves it
//! best.

mod candidates;
mod child;
mod json;
mod leftovers;
mod report;

use crate::program::{self, Obstacle};
use crate::run;
use crate::{demo, library};
use candidates::{Candidate, Failed, Measured};
use child::{End, Launch};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use latchwork_console::failure::{Failure, Result};
use latchwork_console::machine::{Clock, Machine};
use latchwork_console::signals::Signals;
use latchwork_console::stats::{self, Better, order};
use latchwork_console::{machine, output};
use leftovers::Daemon;
use regex::{Regex, RegexBuilder};
use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// After the options in `latchwork compare --help`.
pub const HELP: &str = "\
What is compared: glibc, and every combination of the named mutexes with the named reader-writer locks;
a kind that is not named is left to glibc. `all` stands for every lock of the kind (see `latchwork
list`). With neither option, a handful of well-known ones.

The runs are interleaved (A B C, B C A, ...), and each is set against glibc's run of the same
round, so that a machine that changes its speed meanwhile changes all alike. The program reads nothing
from standard input (see --input), its output is kept back, and whatever it leaves running is ended. A
run that exits with another status than 0 or takes too long is reported, with the end of its output, and
its lock is left out from there on.

Exit status: 0; 1 if a lock failed, or glibc itself; 2 for wrong arguments; 126 or 127 if the program
cannot be run; 130 after Ctrl-C, when what was measured until then is printed.

Examples:
  latchwork compare                                  on the built-in key-value store
  latchwork compare -- ./server --self-test
  latchwork compare --mutex shfl,mcs --runs 9 -- ./bench
  latchwork compare --mutex shfl --rwlock bravo-2d-shfl-rw,glibc -- ./bench
  latchwork compare --metric 'ops/sec: ([0-9.]+)' -- ./bench
  latchwork compare --metric 'p99: (\\d+) us' --lower-is-better -- ./bench
  latchwork compare --json result.json -- sh -c 'rm -f db; ./bench db'";

/// Seconds that each run of the built-in program takes.
const DEMO_SECONDS: f64 = 0.6;
/// Timeout where the user sets none: this many times glibc's slowest run so far ...
const TIMEOUT_FACTOR: u32 = 10;
/// ... but no less than this.
const TIMEOUT_LEAST: Duration = Duration::from_secs(30);

/// Options of `latchwork compare`.
#[derive(Args)]
pub struct Options {
    /// Mutexes to try, or `all`
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    mutex: Vec<String>,
    /// Reader-writer locks to try, or `all`
    #[arg(long, value_name = "A,B,..", value_delimiter = ',')]
    rwlock: Vec<String>,
    /// Measured runs of each
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10000))]
    runs: u32,
    /// Runs of each before that, not measured
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=10000))]
    warmup: u32,
    /// Compare by a number in the program's output: what the expression's first group captures
    #[arg(
        long,
        value_name = "REGEX",
        long_help = "\
Compare by a number in the program's output: what the regular expression's first group captures. The \
last match in stdout and stderr together counts; ^ and $ match at line ends; commas in the number are \
skipped. Without this, runs are compared by wall time."
    )]
    metric: Option<String>,
    /// More of the metric is better (the default)
    #[arg(long, requires = "metric", conflicts_with = "lower_is_better")]
    higher_is_better: bool,
    /// Less of the metric is better
    #[arg(long, requires = "metric")]
    lower_is_better: bool,
    /// Give a run up after so long [default: ten times glibc's slowest run, at least 30 s]
    #[arg(long, value_name = "SECS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Standard input for each run [default: none]
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Write every number of every run here (- for standard output, in place of the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The program and its arguments; without it, the built-in key-value store
    #[arg(value_name = "PROG", trailing_var_arg = true)]
    command: Vec<OsString>,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0.0 && seconds <= 1e6 => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a positive number of seconds".into()),
    }
}

/// What is asked of each run, from the options.
struct Plan {
    command: Vec<OsString>,
    built_in: bool,
    metric: Option<Metric>,
    runs: u32,
    warmup: u32,
    timeout: Option<Duration>,
    input: Option<File>,
    library: PathBuf,
    /// The runtime of the sanitizer that the program is built with.
    sanitizer: Option<String>,
}

struct Metric {
    expression: Regex,
    better: Better,
}

impl Metric {
    fn new(expression: &str, better: Better) -> Result<Self> {
        let fail = |why: &dyn std::fmt::Display| Failure::usage(format!("--metric: {why}"));
        let expression =
            RegexBuilder::new(expression).multi_line(true).build().map_err(|error| fail(&error))?;
        if expression.captures_len() < 2 {
            let hint = format!("{expression:?} captures nothing: put (...) around the number");
            return Err(fail(&hint));
        }
        Ok(Self { expression, better })
    }

    fn read(&self, output: &str) -> std::result::Result<f64, String> {
        let expression = self.expression.as_str();
        let found = self.expression.captures_iter(output).filter_map(|captures| captures.get(1)).last();
        let text =
            found.ok_or_else(|| format!("nothing in its output matches --metric {expression:?}"))?.as_str();
        match text.replace(',', "").parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => Err(format!("--metric {expression:?} matches {text:?}, which is not a number")),
        }
    }
}

/// All that was measured.
struct Results {
    candidates: Vec<Candidate>,
    machine: Machine,
    started: SystemTime,
    /// Share of the machine that other processes used meanwhile.
    others: f64,
    warnings: Vec<String>,
    /// The programs that the first run with such left running in the background.
    left_running: Vec<String>,
    interrupted: Option<i32>,
}

/// Measures, prints, and returns the exit status.
pub fn compare(options: &Options) -> Result<i32> {
    // Everything that can be wrong with the arguments is found before anything is run.
    let choices = candidates::choose(&options.mutex, &options.rwlock)?;
    let plan = plan(options)?;
    if let Some(path) = options.json.as_deref() {
        output::check("--json", path)?;
    }
    let results = measure(&plan, choices.into_iter().map(Candidate::new).collect())?;

    let to_stdout = options.json.as_deref() == Some(Path::new("-"));
    if to_stdout {
        print!("{}", json::text(&plan, &results));
    } else {
        print!("{}", report::text(&plan, &results));
    }
    if let Some(path) = options.json.as_deref().filter(|_| !to_stdout) {
        json::write(path, &plan, &results)?;
    }
    let failed = results.candidates.iter().any(|candidate| candidate.failed.is_some());
    Ok(results.interrupted.map_or(i32::from(failed), |signal| 128 + signal))
}

fn plan(options: &Options) -> Result<Plan> {
    let built_in = options.command.is_empty();
    let better = if options.lower_is_better { Better::Lower } else { Better::Higher };
    let metric = match options.metric.as_deref() {
        Some(expression) => Some(Metric::new(expression, better)?),
        None if built_in => Some(Metric::new(demo::METRIC, Better::Higher)?),
        None => None,
    };
    let command = if built_in {
        let own = env::current_exe().map_err(|error| Failure::new(format!("/proc/self/exe: {error}")))?;
        // More threads than CPUs: the built-in program is there to show how locks take that.
        let arguments = demo::arguments(4 * machine::cpus(), DEMO_SECONDS);
        [own.into()].into_iter().chain(arguments.map(OsString::from)).collect()
    } else {
        options.command.clone()
    };
    let path = program::find(&command[0])?;
    let library = library::path()?;
    match program::obstacle(&path, &library) {
        None => {}
        Some(Obstacle::RunsWithout(why)) => {
            eprintln!("latchwork: warning: all locks will measure alike: {why}");
        }
        Some(Obstacle::DoesNotStart(why)) => {
            return Err(run::cannot_start(&Path::new(&command[0]).display(), &why));
        }
    }
    let input = match options.input.as_deref() {
        Some(path) => {
            let opened = File::open(path);
            Some(opened.map_err(|error| Failure::usage(format!("--input {}: {error}", path.display())))?)
        }
        None => None,
    };
    Ok(Plan {
        command,
        built_in,
        metric,
        runs: options.runs,
        warmup: options.warmup,
        timeout: options.timeout,
        input,
        library,
        sanitizer: program::sanitizer(&path),
    })
}

fn measure(plan: &Plan, candidates: Vec<Candidate>) -> Result<Results> {
    let machine = Machine::here();
    let mut results = Results {
        candidates,
        machine,
        started: SystemTime::now(),
        others: 0.0,
        warnings: Vec::new(),
        left_running: Vec::new(),
        interrupted: None,
    };
    if results.machine.load_average > results.machine.cpus as f64 / 2.0 {
        warn(
            &mut results.warnings,
            format!(
                "other programs are using this machine (load average {}); the numbers will be noisy",
                results.machine.load_average
            ),
        );
    }
    let signals = Signals::watch().map_err(|error| Failure::new(format!("signalfd: {error}")))?;
    leftovers::adopt();
    let count = results.candidates.len();
    let bar = ProgressBar::new(u64::from(plan.warmup + plan.runs) * count as u64).with_style(
        ProgressStyle::with_template("{wide_msg} {bar:30} {pos}/{len} runs, {eta} left")
            .expect("a valid template"),
    );
    let clock = Clock::now();
    let mut own = 0.0;
    'rounds: for round in 0..plan.warmup + plan.runs {
        for index in order(round as usize, count) {
            let candidate = &mut results.candidates[index];
            if candidate.failed.is_some() {
                bar.inc(1);
                continue;
            }
            let warmup = if round < plan.warmup { "warm-up, " } else { "" };
            bar.set_message(format!("{warmup}{}", candidate.choice.label()));
            bar.tick();
            let timeout = plan.timeout.or_else(|| timeout(&results.candidates[0]));
            let candidate = &mut results.candidates[index];
            let run = run_once(plan, candidate, timeout, &signals);
            bar.inc(1);
            let (once, daemons) = run.inspect_err(|_| bar.finish_and_clear())?;
            if results.left_running.is_empty() && !daemons.is_empty() {
                bar.suspend(|| warn(&mut results.warnings, background(&daemons)));
                results.left_running = daemons.into_iter().map(|daemon| daemon.name).collect();
            }
            let candidate = &mut results.candidates[index];
            match once {
                Once::Good(run) => {
                    own += (run.cost.user + run.cost.system).as_secs_f64();
                    candidate.slowest = candidate.slowest.max(run.cost.wall);
                    if round >= plan.warmup {
                        candidate.runs.push((round - plan.warmup, run));
                    }
                }
                Once::Bad(why, output) if index == 0 => {
                    bar.finish_and_clear();
                    return Err(Failure::new(format!(
                        "the program fails under glibc already, so there is nothing to compare with: {why}{}",
                        report::tail(&output)
                    )));
                }
                Once::Bad(why, output) => {
                    bar.suspend(|| eprintln!("latchwork: {} failed: {why}", candidate.choice.label()));
                    let round = round.checked_sub(plan.warmup);
                    candidate.failed = Some(Failed { round, why, output });
                }
                Once::Interrupted(signal) => {
                    results.interrupted = Some(signal);
                    break 'rounds;
                }
            }
        }
    }
    bar.finish_and_clear();
    results.others = clock.others_share(Clock::now(), own);
    noise(plan, &mut results);
    Ok(results)
}

fn timeout(glibc: &Candidate) -> Option<Duration> {
    (!glibc.slowest.is_zero()).then(|| (glibc.slowest * TIMEOUT_FACTOR).max(TIMEOUT_LEAST))
}

enum Once {
    Good(Measured),
    Bad(String, String),
    Interrupted(i32),
}

fn run_once(
    plan: &Plan,
    candidate: &Candidate,
    timeout: Option<Duration>,
    signals: &Signals,
) -> Result<(Once, Vec<Daemon>)> {
    let environment = if candidate.choice.is_glibc() {
        Vec::new()
    } else {
        run::environment(&candidate.choice, &plan.library, plan.sanitizer.as_deref())
    };
    let launch =
        Launch { command: &plan.command, environment: &environment, input: plan.input.as_ref(), timeout };
    let (end, daemons) = child::run(&launch, signals).map_err(Failure::new)?;
    let once = match end {
        End::Interrupted(signal) => Once::Interrupted(signal),
        End::Bad(why, output) => Once::Bad(why, output),
        End::Good(cost, output) => match plan.metric.as_ref().map(|metric| metric.read(&output)) {
            None => Once::Good(Measured { cost, metric: None }),
            Some(Ok(number)) => Once::Good(Measured { cost, metric: Some(number) }),
            Some(Err(why)) => Once::Bad(why, output),
        },
    };
    Ok((once, daemons))
}

/// What to say of a program that goes on in the background.
fn background(daemons: &[Daemon]) -> String {
    let names = daemons.iter().map(|Daemon { name, process }| format!("{name} (process {process})"));
    format!(
        "the program left {} running in the background; latchwork ends such processes after each run. A run is \
         measured until the program itself ends. If that is only a server's start, compare a script that runs the \
         server in the foreground (there is often an option for it, such as -f, -F, -D or --foreground) and its \
         client: sh -c './server -F & ./client; kill $!; wait'",
        names.collect::<Vec<_>>().join(", ")
    )
}

fn noise(plan: &Plan, results: &mut Results) {
    const NOISY: f64 = 0.10;
    let glibc = &results.candidates[0];
    let deciding = candidates::Measure::deciding(plan.metric.is_some());
    let values = glibc.values(deciding);
    let spread = if values.is_empty() { 0.0 } else { stats::spread(&values) };
    if spread > NOISY {
        let text = format!(
            "glibc's own runs differ by {:.0}%: close the other programs, or take more --runs",
            spread * 100.0
        );
        warn(&mut results.warnings, text);
    }
    if results.others > NOISY {
        let text = format!(
            "other processes used {:.0}% of the machine's CPU time meanwhile: the numbers are noisy",
            results.others * 100.0
        );
        warn(&mut results.warnings, text);
    }
}

fn warn(warnings: &mut Vec<String>, text: String) {
    eprintln!("latchwork: warning: {text}");
    warnings.push(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_match_of_the_metric_counts() {
        let metric = Metric::new(r"^rate: (\S+)$", Better::Higher).unwrap();
        assert_eq!(metric.read("rate: 1\nrate: 1,234.5\nerate: 3\n"), Ok(1234.5));
        assert!(metric.read("rate: fast\n").unwrap_err().contains("not a number"));
        assert!(metric.read("").unwrap_err().contains("nothing"));
        assert!(Metric::new("rate", Better::Higher).is_err_and(|failure| failure.message.contains("(...)")));
        assert!(Metric::new("(", Better::Higher).is_err_and(|failure| failure.status == 2));
    }
}

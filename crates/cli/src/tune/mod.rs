//! `latchwork tune`: finds a lock for each of a program's locks.
//!
//! | module | what it does |
//! |---|---|
//! | this one | the steps, in order |
//! | [`classes`] | the classes of locks that matter, and their features, from a profile |
//! | [`limits`] | what a choice of locks may cost |
//! | [`rules`] | which locks are tried for a class |
//! | [`search`] | the measuring: the best pair for all locks, then the locks of one class after the other |
//! | [`proof`] | fresh rounds: whether the result beats glibc and the best pair, or the pair glibc |
//! | [`report`] | the file, the report and the JSON |

mod classes;
mod limits;
mod proof;
mod report;
mod rules;
mod search;

use crate::compare::options::RunOptions;
use crate::compare::plan::{Length, Plan};
use crate::compare::rounds;
use crate::profile::files::{self, Recordings};
use crate::profile::join;
use crate::profile::units::things;
use crate::unseen::OTHER_LOCKS;
use crate::{program, run};
use clap::{Args, ValueHint};
use classes::Tuned;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::names::Choice;
use latchwork_console::{ending, output};
use limits::Limits;
use proof::Proof;
use search::Found;
use std::path::PathBuf;

/// After the options in `latchwork tune --help`.
pub const HELP: &str = "\
What happens: the program is profiled once under glibc's locks. The classes of locks that take 1% of the
threads' time are tuned, at most ten. The waits for classes that take more do not count in that time.
Then the program runs at most --runs times: first under single pairs of locks for all its locks, then
with other locks for one class after the other. The result is measured
again, in fresh rounds, against glibc and against the best single pair. If it beats both by the rule of
`latchwork compare`, it is written. Otherwise the pair is, if it beats glibc by that rule. Otherwise nothing is written, and
the answer is to keep what you have.

A class is what `latchwork profile` shows as one lock: a static object, or the objects that one place in
the program initialises, or else uses first. A lock whose waiters only spin is tried only if the program has
no more threads than there are CPUs.

--max-cpu, --max-memory and --max-p99 set limits. A limit is a number, or a share of what the program takes under glibc's
locks: --max-cpu 110% allows a tenth more. Locks under which the median of the runs is above a limit are not
taken, neither in the search nor in the fresh rounds, however fast the program is with them. CPU time and memory
are those of a run of the program, or of the server; the latency is what the program, or the load, prints.

The file can be read and edited; docs/tuning.md describes it. It fits the program by its build id, and after
a rebuild by its symbols.

Exit status: 0 if a file was written; 3 if the program is best left as it is; 1 if a run failed; 2 for
wrong arguments; 130 after Ctrl-C, when nothing is written.

Examples:
  latchwork tune -- ./bench --threads 8
  latchwork run --config latchwork.toml -- ./bench --threads 8
  latchwork tune --metric 'ops/sec: ([0-9.]+)' -o bench.toml -- ./bench
  latchwork tune --runs 30 --json tuned.json -- ./bench
  latchwork tune --max-cpu 110% --max-memory 512M --p99 'p99: ([0-9.]+) us' --max-p99 250 -- ./bench
  latchwork tune --server './server -p 7000' --ready 7000 --load './client -p 7000' \\
                 --metric 'requests/s: ([0-9.]+)'";

/// Exit status if the program is best left as it is.
const KEEP: i32 = 3;

/// Options of `latchwork tune`.
#[derive(Args)]
pub struct Options {
    /// Write the locks here
    #[arg(short, long, value_name = "FILE", default_value = "latchwork.toml", value_hint = ValueHint::FilePath)]
    output: PathBuf,
    /// Runs of the search, at most; the profile and the fresh rounds come on top
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 60, value_parser = clap::value_parser!(u32).range(12..=1000))]
    runs: u32,
    /// Write what was found and measured here; with -, print it in place of the report
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    json: Option<PathBuf>,
    #[command(flatten)]
    limits: limits::LimitOptions,
    #[command(flatten)]
    run: RunOptions,
}

/// What stopped the tuning early.
enum Stopped {
    Failed(Failure),
    /// By this signal.
    Interrupted(i32),
}

impl From<Failure> for Stopped {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The result of a step.
type Step<T> = std::result::Result<T, Stopped>;

/// Tunes; returns the exit status.
pub fn tune(options: Options) -> Result<i32> {
    steps(options).or_else(|stopped| match stopped {
        Stopped::Failed(failure) => Err(failure),
        Stopped::Interrupted(signal) => Ok(128 + signal),
    })
}

fn steps(options: Options) -> Step<i32> {
    output::check_stdout()?;
    output::check_file("--output", &options.output)?;
    let json = options.json.as_deref().map(|file| ("--json", file));
    if let Some((option, file)) = json {
        output::check(option, file)?;
    }
    let written = [("--output", &*options.output)].into_iter().chain(json);
    output::check_distinct(written, options.run.read())?;
    let (mut limits, p99) = Limits::new(&options.limits)?;
    let mut plan = options.run.plan(Length::Rounds(1), 0)?;
    plan.p99 = p99;
    let mut tuned = profile(&plan)?;
    for name in tuned.leave_out_unfit(&program::find(&plan.subject.command()[0])?).map_err(Failure::new)? {
        say(&format!("  {name}: no rule for it would fit, so it keeps the lock of all others"));
    }
    say(&match tuned.calls {
        0 => format!("the program called no pthread lock ({OTHER_LOCKS})"),
        _ => {
            format!("worth tuning: {} of {} of locks", tuned.classes.len(), things(tuned.all as u64, "class"))
        }
    });
    for class in &tuned.classes {
        say(&format!("  {}: {}; to try: {}", class.name, class.features.text(), class.candidates.join(", ")));
    }
    let (found, proof) = if tuned.classes.is_empty() {
        (Found::nothing(), Proof::nothing())
    } else {
        let found = search::search(&mut plan, &tuned, options.runs, &mut limits)?;
        let proof = proof::prove(&mut plan, &tuned, &found, &mut limits)?;
        (found, proof)
    };
    ending::by_signals();
    let keeps = proof.answer() == proof::Answer::Keep;
    if !keeps {
        let text = report::file(&plan, &tuned, &found, &proof);
        output::write("--output", &options.output, &text)?;
    }
    output::report(
        options.json.as_deref(),
        || report::text(&plan, &tuned, &found, &proof, &options.output),
        || report::json(&plan, &tuned, &found, &proof),
    )?;
    Ok(if keeps { KEEP } else { 0 })
}

/// A line on stderr about what goes on.
fn say(text: &str) {
    output::say(&format!("latchwork: {text}"));
}

/// Runs the program once under glibc's locks, recorded.
fn profile(plan: &Plan) -> Step<Tuned> {
    say("profiling the program under glibc's locks");
    let recordings = Recordings::new(None)?;
    let mut environment = run::environment(&Choice::glibc(), &plan.library, plan.sanitizer.as_deref());
    environment.extend(plan.programs.environment());
    environment.push(("LATCHWORK_PROFILE", recordings.path().into()));
    if let Some(signal) = rounds::observe(plan, &environment)? {
        return Err(Stopped::Interrupted(signal));
    }
    let found = files::read_all(recordings.path());
    recordings.check_room(files::is_lost(&found))?;
    let found = found
        .map_err(|failure| Failure::new(format!("the program made no recording: {}", failure.message)))?;
    let tuned = Tuned::new(&join::join(&found), &found);
    let lost = files::lost(&found);
    if lost > 0 && tuned.classes.is_empty() {
        return Err(Failure::new(format!("not recorded: {}", files::lost_text(lost))).into());
    } else if lost > 0 {
        say(&format!("warning: not recorded: {}", files::lost_text(lost)));
    }
    if tuned.classes.is_empty() && files::is_lossy(&found) {
        let directory = recordings.path().display();
        let why = format!("{directory}: there was no room to record all threads and locks");
        return Err(Failure::new(why).into());
    }
    Ok(tuned)
}

//! The measuring: rounds in which each lock has its turn.

use super::candidates::{Candidate, Failed, Measured};
use super::child::{self, End, Launch, Run};
use super::hooks;
use super::metric::Metric;
use super::plan::{Length, Plan, Subject};
use super::progress::Progress;
use super::results::Results;
use super::tail::{end, tail};
use crate::leftovers::{self, Daemon};
use crate::run;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::machine::{self, Clock, Machine};
use latchwork_console::signals::Signals;
use latchwork_console::stats::{self, order};
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::time::{Duration, Instant, SystemTime};

/// Timeout where the user sets none: this many times glibc's slowest run so far ...
const TIMEOUT_FACTOR: u32 = 10;
/// ... but no less than this.
const TIMEOUT_LEAST: Duration = Duration::from_secs(30);
/// The share of the machine's CPU time that other programs may use, and the spread of glibc's own runs, beyond which the
/// numbers are called noisy.
const NOISY: f64 = 0.10;
/// How often a run is repeated at most because of SIGCONT: the signal also comes to processes that were not stopped.
const MOST_REPEATS: u32 = 3;

/// Measures the candidates, of which the first is glibc, and reports to `progress` meanwhile. A failure that comes after the first
/// measured run of glibc's is in the results.
pub fn measure(plan: &Plan, candidates: Vec<Candidate>, progress: &Progress) -> Result<Results> {
    let signals = &plan.signals;
    leftovers::adopt();
    // The kernel counts what this process has at a program's start into the program's peak. So the output of a run, which may have
    // 16 MiB, goes back to the kernel when it was read.
    // SAFETY: a call with plain arguments.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 128 << 10) };
    let results = Results {
        candidates,
        machine: Machine::here(),
        started: SystemTime::now(),
        others: 0.0,
        warnings: Vec::new(),
        left_running: Vec::new(),
        interrupted: None,
        failure: None,
    };
    let mut measuring = Measuring { plan, signals, progress, results };
    measuring.results.interrupted = wait_for_quiet(plan.settle, signals, progress);
    let (clock, own) = (Clock::now(), machine::own_seconds());
    let measured = match measuring.results.interrupted {
        Some(_) => Ok(()),
        None => measuring.all_rounds(),
    };
    progress.finish();
    if let Err(failure) = measured.and(measuring.clean_up()) {
        if measuring.results.candidates[0].runs.is_empty() {
            return Err(failure);
        }
        measuring.results.failure = Some(failure);
    }
    measuring.results.others = clock.others_share(Clock::now(), machine::own_seconds() - own);
    for warning in noise(plan, &measuring.results).into_iter().filter(|_| plan.warns) {
        measuring.warn_once(warning);
    }
    Ok(measuring.results)
}

/// Waits until other programs leave the CPUs alone, and tells `progress` if they do not at once. The build that has just
/// made this command is such a program: its last processes may still be running. Whether others disturb the measuring
/// itself is judged at the end. Returns the signal that ended the wait.
fn wait_for_quiet(longest: Duration, signals: &Signals, progress: &Progress) -> Option<i32> {
    /// Long enough for a share of 10% to be told from single clock ticks, which are 10 ms.
    const LOOK: Duration = Duration::from_millis(250);
    let begin = Instant::now();
    let mut said = false;
    while begin.elapsed() < longest {
        let before = Clock::now();
        if let child::Event::Interrupted(signal) = child::watch(&[], signals, Some(Instant::now() + LOOK)) {
            return Some(signal);
        }
        let share = before.others_share(Clock::now(), 0.0);
        if share <= NOISY {
            break;
        }
        if !said {
            said = true;
            progress.waits(share, longest);
        }
    }
    None
}

struct Measuring<'a> {
    plan: &'a Plan,
    signals: &'a Signals,
    progress: &'a Progress,
    results: Results,
}

/// A run under one lock.
enum Once {
    Good(Measured),
    /// Why, and the end of the output.
    Bad(String, String),
    Interrupted(i32),
}

impl Measuring<'_> {
    fn all_rounds(&mut self) -> Result<()> {
        let begin = Instant::now();
        let mut longest = Duration::ZERO;
        for round in 0_u32.. {
            if is_enough(self.plan.length, round.checked_sub(self.plan.warmup), begin.elapsed(), longest) {
                break;
            }
            let start = Instant::now();
            if self.one_round(round)?.is_break() {
                break;
            }
            longest = longest.max(start.elapsed());
        }
        Ok(())
    }

    fn one_round(&mut self, round: u32) -> Result<ControlFlow<()>> {
        for index in order((self.plan.earlier + round) as usize, self.results.candidates.len()) {
            let candidate = &self.results.candidates[index];
            if candidate.failed.is_none() {
                self.progress.begins(&candidate.label(), round < self.plan.warmup);
                let once = self.whole_turn(index)?;
                if self.take(index, round, once)?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            self.progress.one_more();
        }
        Ok(ControlFlow::Continue(()))
    }

    /// One run of one lock, which is repeated if this process may have been stopped: the program would have run on meanwhile, so its
    /// end would not be known.
    fn whole_turn(&mut self, index: usize) -> Result<Once> {
        let mut repeats = 0;
        loop {
            self.signals.was_continued();
            let once = self.turn(index)?;
            if !self.signals.was_continued() || matches!(once, Once::Interrupted(_)) {
                return Ok(once);
            }
            if repeats == MOST_REPEATS {
                self.warn_once(format!(
                    "latchwork received SIGCONT during each of {} attempts at a run. It counts the last one, which may be too long",
                    MOST_REPEATS + 1
                ));
                return Ok(once);
            }
            repeats += 1;
            self.progress.warn(
                "latchwork received SIGCONT during a run, so it may have been stopped: the run is repeated",
            );
        }
    }

    /// One run of one lock, and the commands around it.
    fn turn(&mut self, index: usize) -> Result<Once> {
        let hooks = &self.plan.hooks;
        if !self.results.candidates[index].set_up {
            self.results.candidates[index].set_up = true;
            if let Some(signal) = hooks::run("setup", hooks.setup.as_ref(), self.signals)? {
                return Ok(Once::Interrupted(signal));
            }
        }
        if let Some(signal) = hooks::run("prepare", hooks.prepare.as_ref(), self.signals)? {
            return Ok(Once::Interrupted(signal));
        }
        let once = self.run(index)?;
        let asked = hooks::run("conclude", hooks.conclude.as_ref(), self.signals)?;
        Ok(asked.map_or(once, Once::Interrupted))
    }

    fn run(&mut self, index: usize) -> Result<Once> {
        let plan = self.plan;
        let environment = environment(plan, &self.results.candidates[index]);
        let timeout = plan.timeout.or_else(|| timeout(&self.results.candidates[0]));
        plan.used.clear()?;
        let Run { end, daemons, killed } = one_run(plan, &environment, timeout, self.signals)?;
        if killed {
            self.warn_once(format!(
                "the server did not stop within {} s after SIGTERM, so it was killed (see --stop-timeout)",
                plan.stop_timeout.as_secs_f64()
            ));
        }
        if self.results.left_running.is_empty() && !daemons.is_empty() {
            self.warn_once(match plan.subject {
                Subject::Program(..) => background(&daemons, "compare"),
                Subject::Server(_) => format!("{}; latchwork ended it", leftovers::text(&daemons)),
            });
            self.results.left_running = daemons.into_iter().map(|daemon| daemon.name).collect();
        }
        Ok(match end {
            End::Interrupted(signal) => Once::Interrupted(signal),
            End::Bad(why, output) => Once::Bad(why, output),
            End::Good(cost, output) => {
                // What was measured is the library that serves nothing, if it was loaded at all.
                if !self.results.candidates[index].choice.is_glibc()
                    && let Some(why) = plan.used.why_not(&plan.programs)?
                {
                    return Ok(Once::Bad(why, output));
                }
                let read =
                    |metric: &Option<Metric>| metric.as_ref().map(|metric| metric.read(&output)).transpose();
                match (read(&plan.metric), read(&plan.p99)) {
                    (Ok(metric), Ok(p99)) => Once::Good(Measured { cost, metric, p99 }),
                    (Err(why), _) | (_, Err(why)) => Once::Bad(why, output),
                }
            }
        })
    }

    /// Files the result of a run.
    fn take(&mut self, index: usize, round: u32, once: Once) -> Result<ControlFlow<()>> {
        let round = round.checked_sub(self.plan.warmup);
        let candidate = &mut self.results.candidates[index];
        match once {
            Once::Good(run) => {
                candidate.slowest = candidate.slowest.max(run.cost.wall);
                candidate.runs.extend(round.map(|round| (round, run)));
            }
            Once::Bad(why, output) if index == 0 => {
                let (label, tail) = (candidate.label(), tail(&output));
                let why = why.clone() + as_good(&why);
                return Err(Failure::new(match round {
                    Some(round) if !candidate.runs.is_empty() => format!(
                        "the program fails under {label} in round {}, so the comparison ends: {why}{tail}",
                        round + 1
                    ),
                    _ => format!(
                        "the program fails under {label} already, so there is nothing to compare with: {why}{tail}"
                    ),
                }));
            }
            Once::Bad(why, output) => {
                let label = candidate.label();
                let is_known =
                    |other: &Candidate| other.failed.as_ref().is_some_and(|failed| failed.why == why);
                let is_known = self.results.candidates.iter().any(is_known);
                self.progress.failed(&label, if is_known { "the same" } else { &why });
                let candidate = &mut self.results.candidates[index];
                candidate.failed = Some(Failed { round, why, output: end(output) });
            }
            Once::Interrupted(signal) => {
                self.results.interrupted = Some(signal);
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Runs `--cleanup` for each lock whose `--setup` ran, also after Ctrl-C and after an error.
    fn clean_up(&mut self) -> Result<()> {
        let hooks = &self.plan.hooks;
        for _ in self.results.candidates.iter().filter(|candidate| candidate.set_up) {
            if let Some(signal) = hooks::run("cleanup", hooks.cleanup.as_ref(), self.signals)? {
                self.results.interrupted = Some(signal);
                break;
            }
        }
        Ok(())
    }

    fn warn_once(&mut self, text: String) {
        if !self.results.warnings.contains(&text) {
            self.progress.warn(&text);
            self.results.warnings.push(text);
        }
    }
}

/// The variables of a candidate's runs.
fn environment(plan: &Plan, candidate: &Candidate) -> Vec<(&'static str, OsString)> {
    if candidate.choice.is_glibc() {
        return Vec::new();
    }
    let mut environment = run::environment(&candidate.choice, &plan.library, plan.sanitizer.as_deref());
    environment.extend(plan.programs.environment());
    environment.push(("LATCHWORK_USED", plan.used.path().into()));
    environment.extend(candidate.locks.iter().map(|(locks, _)| ("LATCHWORK_LOCKS", locks.into())));
    environment
}

/// Runs the program, or the server and its load, once.
fn one_run(
    plan: &Plan,
    environment: &[(&'static str, OsString)],
    timeout: Option<Duration>,
    signals: &Signals,
) -> Result<Run> {
    let run = match &plan.subject {
        Subject::Program(command, input) => {
            let launch = Launch { command, environment, input: input.as_ref() };
            child::run(&launch, timeout, plan.stop_timeout, plan.any_status, signals)
        }
        Subject::Server(server) => {
            server.run(environment, timeout, plan.stop_timeout, plan.any_status, signals)
        }
    };
    run.map_err(Failure::new)
}

/// What can be done about a run that fails for this reason.
fn as_good(why: &str) -> &'static str {
    if why.starts_with("exit status ") { " (with --ignore-failure, such a run is a good one)" } else { "" }
}

/// Runs the program once with these variables and the commands around a run, for what it leaves elsewhere: a profile, from which
/// it is tuned. Returns the signal that ended it. A program that goes on in the background is an error, unless there
/// is `--metric`.
pub fn observe(plan: &Plan, environment: &[(&'static str, OsString)]) -> Result<Option<i32>> {
    let signals = &plan.signals;
    leftovers::adopt();
    let hooks = &plan.hooks;
    let mut asked = None;
    for (name, hook) in [("setup", &hooks.setup), ("prepare", &hooks.prepare)] {
        asked = asked.or(hooks::run(name, hook.as_ref(), signals)?);
    }
    let mut failed = None;
    if asked.is_none() {
        match one_run(plan, environment, plan.timeout, signals) {
            Ok(Run { end: End::Good(..), daemons, .. }) => {
                // As for `compare`, what a program prints is its own business.
                let is_program = matches!(plan.subject, Subject::Program(..));
                if is_program && plan.metric.is_none() && !daemons.is_empty() {
                    failed = Some(Failure::new(background(&daemons, "tune")));
                }
            }
            Ok(Run { end: End::Interrupted(signal), .. }) => asked = Some(signal),
            Ok(Run { end: End::Bad(why, output), .. }) => {
                let (hint, tail) = (as_good(&why), tail(&output));
                let why = format!("the program fails while it is profiled: {why}{hint}{tail}");
                failed = Some(Failure::new(why));
            }
            Err(why) => failed = Some(why),
        }
    }
    // These also run after an error, which is then the one to show.
    for (name, hook) in [("conclude", &hooks.conclude), ("cleanup", &hooks.cleanup)] {
        match hooks::run(name, hook.as_ref(), signals) {
            Ok(signal) => asked = asked.or(signal),
            Err(why) => failed = failed.or(Some(why)),
        }
    }
    failed.map_or(Ok(asked), Err)
}

/// Whether the measuring ends before the next round, when so many rounds were measured (none: warm-up), the whole has taken
/// `elapsed`, and the longest round `longest`.
fn is_enough(length: Length, measured: Option<u32>, elapsed: Duration, longest: Duration) -> bool {
    match (length, measured) {
        (Length::Rounds(rounds), measured) => measured.is_some_and(|measured| measured >= rounds),
        (Length::Time(_), None | Some(0)) => false,
        // One more round would probably end too late.
        (Length::Time(time), Some(_)) => elapsed + longest > time,
    }
}

fn timeout(glibc: &Candidate) -> Option<Duration> {
    (!glibc.slowest.is_zero()).then(|| (glibc.slowest * TIMEOUT_FACTOR).max(TIMEOUT_LEAST))
}

/// What `command` says of a program that goes on in the background.
fn background(daemons: &[Daemon], command: &str) -> String {
    format!(
        "{}; latchwork ends such processes after each run. A run is measured until the program itself ends. If that is \
         only a server's start, {} with --server, --ready and --load",
        leftovers::text(daemons),
        leftovers::in_the_foreground(command)
    )
}

/// The warnings about numbers that are noisy.
fn noise(plan: &Plan, results: &Results) -> Vec<String> {
    let values = results.candidates[0].values(plan.deciding());
    let spread = if values.is_empty() { 0.0 } else { stats::spread(&values) };
    let glibc = (spread > NOISY).then(|| {
        format!(
            "glibc's own runs differ by {:.0}%: close the other programs, or take more --runs",
            spread * 100.0
        )
    });
    let others = (results.others > NOISY).then(|| {
        format!(
            "other processes used {:.0}% of the machine's CPU time meanwhile: the numbers are noisy",
            results.others * 100.0
        )
    });
    glibc.into_iter().chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_end_by_number_or_by_time() {
        let seconds = Duration::from_secs;
        let enough = |length, measured| is_enough(length, measured, seconds(8), seconds(3));
        assert!(!enough(Length::Rounds(2), None) && !enough(Length::Rounds(2), Some(1)));
        assert!(enough(Length::Rounds(2), Some(2)));
        // The next round would end after 11 s.
        assert!(enough(Length::Time(seconds(10)), Some(2)) && !enough(Length::Time(seconds(11)), Some(2)));
        // However little time there is, one round is measured.
        assert!(!enough(Length::Time(seconds(1)), None) && !enough(Length::Time(seconds(1)), Some(0)));
    }
}

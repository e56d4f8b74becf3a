//! The search: first the best single pair for all locks, then other locks for one class after the other.
//!
//! Each step is a comparison of its own: the present state and its alternatives in interleaved rounds, each run set against the
//! run of the present state in the same round. A class moves to another lock if that was ahead in the median, by more than
//! [`NOTABLE`], and in every round, or in all rounds but one of [`MOST_ROUNDS`].
//!
//! All alternatives of a round are set against one run of the present state. If that run is a lucky one, all of them are behind. So
//! the first round drops only two kinds of alternatives: the slower half, and those that are far behind ([`HOPEFUL`]). (The order of the
//! alternatives does not depend on the run of the present state.) After that, a lock that has been behind twice has no further round,
//! which leaves runs for others. So few rounds prove nothing; the proof comes later, in fresh rounds.

use super::classes::Tuned;
use super::limits::Limits;
use super::{Step, Stopped, say};
use crate::compare::candidates::Candidate;
use crate::compare::plan::{Length, Plan};
use crate::compare::progress::Progress;
use crate::compare::rounds;
use crate::compare::verdict::{Better, NOTABLE};
use crate::config::Defaults;
use crate::config::resolve::recommended;
use crate::profile::model;
use crate::profile::units::things;
use crate::program;
use latchwork::registry::Kind;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::names::{Choice, GLIBC};
use latchwork_console::stats::median;
use std::time::Duration;

/// Rounds for the pairs, after one that is not measured.
const PAIR_ROUNDS: u32 = 3;
/// The most rounds for a class.
const MOST_ROUNDS: u32 = 4;
/// The first round drops a pair that has less than this part of the best one's gain, and a class's lock that has less than this part of
/// the present one's throughput.
const HOPEFUL: f64 = 0.7;

/// What the search gives.
pub struct Found {
    /// The best single pair for all locks; glibc if none was better.
    pub pair: Choice,
    /// The pairs that were tried.
    pub pairs: Vec<Pair>,
    /// The lock of each class.
    pub locks: Vec<String>,
    /// For each class what was tried, with the median ratio to the lock that it had then, and the rounds.
    pub tried: Vec<Vec<Trial>>,
    /// Runs of the program.
    pub runs: u32,
}

/// A pair of locks for all.
pub struct Pair {
    pub choice: Choice,
    /// Its median ratio to glibc. None: the program failed under it.
    pub ratio: Option<f64>,
    /// Which limit it exceeds.
    pub exceeds: Option<String>,
    pub rounds: u32,
}

/// A lock that was tried for a class.
pub struct Trial {
    pub lock: String,
    /// None: the program failed.
    pub ratio: Option<f64>,
    /// Which limit it exceeds.
    pub exceeds: Option<String>,
    pub rounds: u32,
}

impl Found {
    /// Without a search.
    pub fn nothing() -> Self {
        Found { pair: Choice::glibc(), pairs: Vec::new(), locks: Vec::new(), tried: Vec::new(), runs: 0 }
    }

    /// Whether some class has another lock than the pair gives it.
    pub fn differs(&self, tuned: &Tuned) -> bool {
        tuned.classes.iter().zip(&self.locks).any(|(class, lock)| of_pair(&self.pair, class.kind) != lock)
    }

    /// The locks of everything else.
    pub fn default(&self) -> Defaults {
        Defaults { mutex: self.pair.mutex.clone(), rwlock: self.pair.rwlock.clone() }
    }
}

/// The lock that a pair gives to a kind.
pub fn of_pair(pair: &Choice, kind: model::Kind) -> &String {
    if kind == model::Kind::RwLock { &pair.rwlock } else { &pair.mutex }
}

/// A candidate with these locks for the classes.
pub fn candidate(
    plan: &Plan,
    tuned: &Tuned,
    pair: &Choice,
    locks: &[String],
    label: String,
) -> Result<Candidate> {
    let default = Defaults { mutex: pair.mutex.clone(), rwlock: pair.rwlock.clone() };
    let path = program::find(&plan.subject.command()[0])?;
    let resolved = tuned.config(default, locks).resolve(&path).map_err(Failure::new)?;
    let mut candidate = Candidate::new(resolved.choice);
    candidate.locks = resolved.locks.map(|locks| (locks, label));
    Ok(candidate)
}

/// Searches, in at most so many runs.
pub fn search(plan: &mut Plan, tuned: &Tuned, most: u32, limits: &mut Limits) -> Step<Found> {
    let mut search = Search { plan, tuned, limits, runs: 0 };
    let better = search.plan.better();
    let gain = |ratio: f64| if better == Better::Higher { ratio } else { 1.0 / ratio };
    let pairs = search.pairs(most / 2, &gain)?;
    let of = |pair: &&Pair| pair.ratio.map_or(0.0, gain);
    let allowed = pairs.iter().filter(|pair| pair.exceeds.is_none() && pair.rounds > 1);
    let best = allowed.filter(|pair| of(pair) > 1.0 + NOTABLE).max_by(|a, b| of(a).total_cmp(&of(b)));
    let pair = best.map_or_else(Choice::glibc, |pair| pair.choice.clone());
    say(&format!("the best single pair of locks for all is {}", pair.label()));

    let mut locks: Vec<String> =
        tuned.classes.iter().map(|class| of_pair(&pair, class.kind).clone()).collect();
    let mut tried = Vec::new();
    let fails = pairs.iter().all(|pair| pair.ratio.is_none());
    if fails {
        say("the program fails under all of them, so no class is tried with a lock of its own");
    }
    for number in 0..tuned.classes.len() {
        if fails {
            tried.push(Vec::new());
            continue;
        }
        // The classes that take most time come first. They may use up all runs.
        let left = most.saturating_sub(search.runs);
        match search.class(&pair, &mut locks, number, left, &gain) {
            Ok(trials) => tried.push(trials),
            Err(Stopped::Interrupted(signal)) => return Err(Stopped::Interrupted(signal)),
            // The program may fail now and then. What has been found stays.
            Err(Stopped::Failed(failure)) => {
                say(&format!("{}: no other lock was tried: {}", tuned.classes[number].name, failure.message));
                tried.push(Vec::new());
            }
        }
    }
    Ok(Found { pair, pairs, locks, tried, runs: search.runs })
}

struct Search<'a> {
    plan: &'a mut Plan,
    tuned: &'a Tuned,
    limits: &'a mut Limits,
    runs: u32,
}

impl Search<'_> {
    fn measure(&mut self, candidates: Vec<Candidate>, rounds: u32, warmup: u32) -> Step<Vec<Candidate>> {
        self.plan.length = Length::Rounds(rounds);
        self.plan.warmup = warmup;
        // The proof warns.
        self.plan.warns = false;
        self.runs += candidates.len() as u32 * (rounds + warmup);
        let progress = Progress::new(self.plan, candidates.len());
        let results = rounds::measure(self.plan, candidates, &progress)?;
        if let Some(failure) = results.failure {
            return Err(failure.into());
        }
        // The machine was quiet before the first step; no later one waits again.
        self.plan.settle = Duration::ZERO;
        results.interrupted.map_or(Ok(results.candidates), |signal| Err(Stopped::Interrupted(signal)))
    }

    /// Further rounds for some of these candidates, and for the first one.
    fn more_rounds(&mut self, candidates: &mut [Candidate], which: &[usize], rounds: u32) -> Step<()> {
        let all = || std::iter::once(0).chain(which.iter().copied());
        let again = |at: usize| {
            // `--cleanup` has run after its first rounds, so `--setup` runs again.
            let Candidate { choice, locks, slowest, .. } = &candidates[at];
            Candidate { locks: locks.clone(), slowest: *slowest, ..Candidate::new(choice.clone()) }
        };
        let before = candidates[0].runs.len() as u32;
        self.plan.earlier = before;
        let measured = self.measure(all().map(again).collect(), rounds, 0);
        self.plan.earlier = 0;
        let measured = measured?;
        for (at, more) in all().zip(measured) {
            let candidate = &mut candidates[at];
            candidate.runs.extend(more.runs.into_iter().map(|(round, run)| (round + before, run)));
            (candidate.failed, candidate.slowest) = (more.failed, more.slowest);
        }
        Ok(())
    }

    /// Pairs for all locks: glibc, the recommended ones, and each lock that is to be tried for some class. All of them have one
    /// round, and the best ones more.
    fn pairs(&mut self, most: u32, gain: &dyn Fn(f64) -> f64) -> Step<Vec<Pair>> {
        let has = |kind| {
            self.tuned
                .classes
                .iter()
                .any(|class| (class.kind == model::Kind::RwLock) == (kind == Kind::RwLock))
        };
        let of_kind = |kind| if has(kind) { recommended(kind) } else { GLIBC.into() };
        let base = Choice { mutex: of_kind(Kind::Mutex), rwlock: of_kind(Kind::RwLock) };
        let mut choices = vec![Choice::glibc(), base.clone()];
        for class in &self.tuned.classes {
            for lock in &class.candidates {
                let choice = match class.kind {
                    model::Kind::RwLock => Choice { rwlock: lock.clone(), ..base.clone() },
                    _ => Choice { mutex: lock.clone(), ..base.clone() },
                };
                if !choices.contains(&choice) {
                    choices.push(choice);
                }
            }
        }
        // A run that is not measured and one that is, and as much again for further rounds.
        choices.truncate((most / 3).max(2) as usize);
        say(&format!("measuring {} pairs of locks for all locks together", choices.len()));
        let candidates = choices.into_iter().map(Candidate::new).collect();
        let mut measured = self.measure(candidates, 1, 1)?;
        self.limits.set_by(&measured[0]);
        let gains: Vec<f64> = measured
            .iter()
            .map(|candidate| match self.limits.exceeded(candidate) {
                Some(_) => 0.0,
                None => ratio(self.plan, candidate, &measured[0]).map_or(0.0, gain),
            })
            .collect();
        let best = |of: &dyn Fn(&Choice) -> bool| {
            let among = (1..gains.len()).filter(|at| gains[*at] > 0.0 && of(&measured[*at].choice));
            among.max_by(|a, b| gains[*a].total_cmp(&gains[*b])).map(|at| &measured[at].choice)
        };
        // The best lock of each kind together: they have been measured beside the recommended lock of the other kind only.
        let mutex = best(&|choice| choice.rwlock == base.rwlock);
        let rwlock = best(&|choice| choice.mutex == base.mutex);
        let both = mutex
            .zip(rwlock)
            .map(|(mutex, rwlock)| Choice { mutex: mutex.mutex.clone(), rwlock: rwlock.rwlock.clone() });
        let highest = gains.iter().copied().fold(0.0, f64::max);
        // Not less, rather than more: the highest may be infinite, against a measure of 0.
        let is_hopeful = |at: &usize| gains[*at] > 0.0 && gains[*at] >= HOPEFUL * highest;
        let mut hopeful: Vec<usize> = (1..gains.len()).filter(is_hopeful).collect();
        hopeful.sort_by(|a, b| gains[*b].total_cmp(&gains[*a]));
        if let Some(both) = both.filter(|both| measured.iter().all(|candidate| candidate.choice != *both)) {
            hopeful.insert(0, measured.len());
            measured.push(Candidate::new(both));
        }
        let left = most.saturating_sub(self.runs);
        hopeful.truncate((left / (PAIR_ROUNDS - 1)).saturating_sub(1).max(1) as usize);
        let rounds = (left / (hopeful.len() as u32 + 1)).min(PAIR_ROUNDS - 1);
        if !hopeful.is_empty() && rounds > 0 {
            self.more_rounds(&mut measured, &hopeful, rounds)?;
        }
        self.limits.set_by(&measured[0]);
        let pair = |candidate: &Candidate| Pair {
            choice: candidate.choice.clone(),
            ratio: ratio(self.plan, candidate, &measured[0]),
            exceeds: self.exceeds(candidate),
            rounds: candidate.runs.len() as u32,
        };
        let ran = |candidate: &&Candidate| !candidate.runs.is_empty() || candidate.failed.is_some();
        Ok(measured[1..].iter().filter(ran).map(pair).collect())
    }

    /// Which limit a candidate exceeds; says so.
    fn exceeds(&self, candidate: &Candidate) -> Option<String> {
        let why = self.limits.exceeded(candidate)?;
        say(&format!("  {} exceeds {why}", candidate.label()));
        Some(why)
    }

    /// Tries the locks of a class, in at most so many runs: all of them in one round, and the better half in more rounds.
    fn class(
        &mut self,
        pair: &Choice,
        locks: &mut [String],
        number: usize,
        runs: u32,
        gain: &dyn Fn(f64) -> f64,
    ) -> Step<Vec<Trial>> {
        let class = &self.tuned.classes[number];
        // The locks that a rule names for these features come last.
        let mut others: Vec<&String> =
            class.candidates.iter().rev().filter(|lock| **lock != locks[number]).collect();
        // The present lock and one other must have runs left for a second round.
        others.truncate((runs as usize).saturating_sub(3));
        if others.is_empty() {
            say(&format!("{}: no runs are left to try other locks", class.name));
            return Ok(Vec::new());
        }
        say(&format!("{}: trying {}", class.name, things(others.len() as u64, "other lock")));
        let mut candidates = vec![candidate(self.plan, self.tuned, pair, locks, "the locks so far".into())?];
        for lock in &others {
            let mut changed = locks.to_vec();
            changed[number].clone_from(lock);
            candidates.push(candidate(self.plan, self.tuned, pair, &changed, (*lock).clone())?);
        }
        let mut measured = self.measure(candidates, 1, 0)?;
        let deciding = self.plan.deciding();
        let gains = |measured: &[Candidate], at: usize, limits: &Limits| -> Vec<f64> {
            let candidate = &measured[at];
            if candidate.failed.is_some() || limits.exceeded(candidate).is_some() {
                return Vec::new();
            }
            candidate.ratios(&measured[0], deciding).into_iter().map(gain).collect()
        };
        let mut left = (runs as usize).saturating_sub(measured.len());
        let mut remaining =
            hopeful(&(1..measured.len()).map(|at| gains(&measured, at, self.limits)).collect::<Vec<_>>());
        for _ in 1..MOST_ROUNDS {
            // A round is a run of the present lock and one of another, at least. Those that remain may still be chosen.
            if remaining.is_empty() || left < 2 {
                break;
            }
            remaining.truncate(left - 1);
            self.more_rounds(&mut measured, &remaining, 1)?;
            left -= remaining.len() + 1;
            remaining.retain(|at| may_be_ahead(&gains(&measured, *at, self.limits)));
        }
        let trial = |(lock, candidate): (&&String, &Candidate)| Trial {
            lock: (*lock).clone(),
            ratio: ratio(self.plan, candidate, &measured[0]),
            exceeds: self.exceeds(candidate),
            rounds: candidate.runs.len() as u32,
        };
        let trials: Vec<Trial> = others.iter().zip(&measured[1..]).map(trial).collect();
        let ahead = remaining.into_iter().map(|at| (at, gains(&measured, at, self.limits)));
        let best = ahead
            .filter(|(_, gains)| is_ahead(gains))
            .max_by(|(_, first), (_, second)| median(first).total_cmp(&median(second)));
        if let Some((best, _)) = best {
            let trial = &trials[best - 1];
            say(&format!("  {} is ahead: {:.2} times", trial.lock, trial.ratio.unwrap_or(1.0)));
            locks[number].clone_from(&trial.lock);
        }
        Ok(trials)
    }
}

/// Which locks of a class have a second round, the best first, by their gains in the first one. The present lock is number 0.
fn hopeful(gains: &[Vec<f64>]) -> Vec<usize> {
    let first = |at: &usize| gains[at - 1].first().copied().unwrap_or(0.0);
    let mut all: Vec<usize> = (1..=gains.len()).filter(|at| first(at) > 0.0).collect();
    all.sort_by(|a, b| first(b).total_cmp(&first(a)));
    all.truncate(gains.len().div_ceil(2));
    all.retain(|at| first(at) >= HOPEFUL);
    all
}

/// In how many rounds a lock was not ahead of the present one.
fn behind(gains: &[f64]) -> usize {
    gains.iter().filter(|gain| **gain <= 1.0).count()
}

/// Whether a lock with these gains can still be chosen.
fn may_be_ahead(gains: &[f64]) -> bool {
    !gains.is_empty() && behind(gains) <= 1
}

/// Whether a lock with these gains is better than the present one. A single bad round counts only where there are few.
fn is_ahead(gains: &[f64]) -> bool {
    let allowed = usize::from(gains.len() >= MOST_ROUNDS as usize);
    !gains.is_empty() && behind(gains) <= allowed && median(gains) > 1.0 + NOTABLE
}

/// The median ratio of a candidate to another.
fn ratio(plan: &Plan, candidate: &Candidate, to: &Candidate) -> Option<f64> {
    let ratios = candidate.ratios(to, plan.deciding());
    (candidate.failed.is_none() && !ratios.is_empty()).then(|| median(&ratios))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock that is 10% better than the present one, which had a lucky run in the first round.
    #[test]
    fn one_lucky_run_of_the_present_lock_decides_nothing() {
        let first = [0.95, 0.9, 0.85, 0.5].map(|gain| vec![gain]);
        assert_eq!(hopeful(&first), [1, 2]);
        assert!(may_be_ahead(&first[0]) && !is_ahead(&first[0]));
        assert!(is_ahead(&[0.95, 1.1, 1.12, 1.08]));
        // What is far behind, what failed, and what is behind twice.
        assert_eq!(hopeful(&[vec![0.69], Vec::new(), Vec::new()]), [0; 0]);
        assert!(!may_be_ahead(&[]) && !may_be_ahead(&[0.95, 0.99]));
        // Too few rounds to pass over one of them, and too little.
        assert!(is_ahead(&[1.1, 1.2]) && !is_ahead(&[0.99, 1.2, 1.2]));
        assert!(!is_ahead(&[1.02, 1.03, 1.03, 1.5]) && !is_ahead(&[]));
    }
}

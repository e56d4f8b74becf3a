//! The search: first the best single pair for all locks, then other locks for one class after the other.
//!
//! Each step is a comparison of its own: the present state and its alternatives in interleaved rounds, each run set against the
//! run of the present state in the same round. A class moves to another lock if that was ahead in every round, by more than
//! [`NOTABLE`]. So few rounds prove nothing; the proof comes later, in fresh rounds.

use super::classes::{Tunable, Tuned};
use super::limits::Limits;
use super::{Asked, Interrupted, say};
use crate::compare::candidates::Candidate;
use crate::compare::plan::{Length, Plan};
use crate::compare::progress::Progress;
use crate::compare::rounds;
use crate::compare::verdict::{Better, NOTABLE};
use crate::config::Defaults;
use crate::config::resolve::recommended;
use crate::profile::model;
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
pub fn search(plan: &mut Plan, tuned: &Tuned, most: u32, limits: &mut Limits) -> Result<Asked<Found>> {
    let mut search = Search { plan, tuned, limits, runs: 0 };
    let pairs = match search.pairs(most / 2)? {
        Ok(pairs) => pairs,
        Err(interrupted) => return Ok(Err(interrupted)),
    };
    let better = search.plan.better();
    let gain = |ratio: f64| if better == Better::Higher { ratio } else { 1.0 / ratio };
    let of = |pair: &&Pair| pair.ratio.map_or(0.0, gain);
    let allowed = pairs.iter().filter(|pair| pair.exceeds.is_none());
    let best = allowed.filter(|pair| of(pair) > 1.0 + NOTABLE).max_by(|a, b| of(a).total_cmp(&of(b)));
    let pair = best.map_or_else(Choice::glibc, |pair| pair.choice.clone());
    say(&format!("the best single pair of locks for all is {}", pair.label()));

    let mut locks: Vec<String> =
        tuned.classes.iter().map(|class| of_pair(&pair, class.kind).clone()).collect();
    let mut tried = Vec::new();
    for (number, class) in tuned.classes.iter().enumerate() {
        let left = most.saturating_sub(search.runs) / (tuned.classes.len() - number) as u32;
        match search.class(&pair, &mut locks, number, class, left, &gain)? {
            Ok(trials) => tried.push(trials),
            Err(interrupted) => return Ok(Err(interrupted)),
        }
    }
    Ok(Ok(Found { pair, pairs, locks, tried, runs: search.runs }))
}

struct Search<'a> {
    plan: &'a mut Plan,
    tuned: &'a Tuned,
    limits: &'a mut Limits,
    runs: u32,
}

impl Search<'_> {
    fn measure(
        &mut self,
        candidates: Vec<Candidate>,
        rounds: u32,
        warmup: u32,
    ) -> Result<Asked<Vec<Candidate>>> {
        self.plan.length = Length::Rounds(rounds);
        self.plan.warmup = warmup;
        // The proof warns.
        self.plan.warns = false;
        self.runs += candidates.len() as u32 * (rounds + warmup);
        let progress = Progress::new(self.plan, candidates.len());
        let results = rounds::measure(self.plan, candidates, &progress)?;
        // The machine was quiet before the first step; no later one waits again.
        self.plan.settle = Duration::ZERO;
        Ok(results.interrupted.map_or(Ok(results.candidates), |signal| Err(Interrupted(signal))))
    }

    /// Pairs for all locks: glibc, the recommended ones, and each lock that is to be tried for some class.
    fn pairs(&mut self, most: u32) -> Result<Asked<Vec<Pair>>> {
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
        choices.truncate((most / (PAIR_ROUNDS + 1)).max(2) as usize);
        say(&format!("measuring {} pairs of locks for all locks together", choices.len()));
        let candidates = choices.into_iter().map(Candidate::new).collect();
        let measured = match self.measure(candidates, PAIR_ROUNDS, 1)? {
            Ok(measured) => measured,
            Err(interrupted) => return Ok(Err(interrupted)),
        };
        self.limits.set_by(&measured[0]);
        let pair = |candidate: &Candidate| Pair {
            choice: candidate.choice.clone(),
            ratio: ratio(self.plan, candidate, &measured[0]),
            exceeds: self.exceeds(candidate),
        };
        Ok(Ok(measured[1..].iter().map(pair).collect()))
    }

    /// Which limit a candidate exceeds; says so.
    fn exceeds(&self, candidate: &Candidate) -> Option<String> {
        let why = self.limits.exceeded(candidate)?;
        say(&format!("  {} exceeds {why}", candidate.label()));
        Some(why)
    }

    /// Tries the locks of a class in at most so many runs.
    fn class(
        &mut self,
        pair: &Choice,
        locks: &mut [String],
        number: usize,
        class: &Tunable,
        runs: u32,
        gain: &dyn Fn(f64) -> f64,
    ) -> Result<Asked<Vec<Trial>>> {
        let mut others: Vec<&String> =
            class.candidates.iter().filter(|lock| **lock != locks[number]).collect();
        // Two rounds at least, or one alternative less.
        others.truncate((runs / 2).saturating_sub(1) as usize);
        if others.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        let rounds = (runs / (others.len() as u32 + 1)).clamp(2, MOST_ROUNDS);
        say(&format!("{}: trying {} other locks in {rounds} rounds", class.name, others.len()));
        let mut candidates = vec![candidate(self.plan, self.tuned, pair, locks, locks[number].clone())?];
        for lock in &others {
            let mut changed = locks.to_vec();
            changed[number].clone_from(lock);
            candidates.push(candidate(self.plan, self.tuned, pair, &changed, (*lock).clone())?);
        }
        let measured = match self.measure(candidates, rounds, 0)? {
            Ok(measured) => measured,
            Err(interrupted) => return Ok(Err(interrupted)),
        };
        let trial = |(lock, candidate): (&&String, &Candidate)| Trial {
            lock: (*lock).clone(),
            ratio: ratio(self.plan, candidate, &measured[0]),
            exceeds: self.exceeds(candidate),
            rounds,
        };
        let trials: Vec<Trial> = others.iter().zip(&measured[1..]).map(trial).collect();
        let ahead = |candidate: &&Candidate| {
            let ratios = candidate.ratios(&measured[0], self.plan.deciding());
            candidate.failed.is_none() && !ratios.is_empty() && ratios.iter().all(|ratio| gain(*ratio) > 1.0)
        };
        let best = trials
            .iter()
            .zip(&measured[1..])
            .filter(|(trial, candidate)| {
                trial.exceeds.is_none()
                    && trial.ratio.is_some_and(|ratio| gain(ratio) > 1.0 + NOTABLE)
                    && ahead(candidate)
            })
            .max_by(|a, b| gain(a.0.ratio.unwrap_or(0.0)).total_cmp(&gain(b.0.ratio.unwrap_or(0.0))));
        if let Some((trial, _)) = best {
            say(&format!("  {} is ahead: {:.2} times", trial.lock, trial.ratio.unwrap_or(1.0)));
            locks[number].clone_from(&trial.lock);
        }
        Ok(Ok(trials))
    }
}

/// The median ratio of a candidate to another.
fn ratio(plan: &Plan, candidate: &Candidate, to: &Candidate) -> Option<f64> {
    let ratios = candidate.ratios(to, plan.deciding());
    (candidate.failed.is_none() && !ratios.is_empty()).then(|| median(&ratios))
}

//! The locks under comparison, and what their runs gave.

use super::child::Cost;
use super::verdict::{self, Better, Verdict};
use latchwork::registry::Kind;
use latchwork_console::failure::Result;
use latchwork_console::names::{self, Choice, GLIBC};
use std::time::Duration;

/// One lock or pair of locks.
pub struct Candidate {
    /// Which.
    pub choice: Choice,
    /// Where single locks have other algorithms: the value of `LATCHWORK_LOCKS`, and how people call the whole.
    pub locks: Option<(String, String)>,
    /// Measured runs, each with its round.
    pub runs: Vec<(u32, Measured)>,
    /// Why it was left out, if it was.
    pub failed: Option<Failed>,
    /// Its slowest run, warm-up included.
    pub slowest: Duration,
    /// Whether its first run has begun.
    pub set_up: bool,
}

/// A good run.
#[derive(Copy, Clone)]
pub struct Measured {
    /// What it cost.
    pub cost: Cost,
    /// What the program said about itself.
    pub metric: Option<f64>,
    /// What it said about its latency, where that is asked for.
    pub p99: Option<f64>,
}

/// A run that was not good.
pub struct Failed {
    /// Measured round, or none during warm-up.
    pub round: Option<u32>,
    /// Exit status, signal, timeout ...
    pub why: String,
    /// What the program printed.
    pub output: String,
}

/// What is measured of a run.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Measure {
    /// What `--metric` captures.
    Metric,
    /// Wall time in seconds.
    Wall,
    /// CPU time in seconds, user and system.
    Cpu,
    /// Peak memory in bytes.
    Memory,
    /// Context switches.
    Switches,
}

impl Measure {
    /// Those that there are, the deciding one first.
    pub fn all(metric: bool) -> &'static [Self] {
        use Measure::{Cpu, Memory, Metric, Switches, Wall};
        if metric { &[Metric, Wall, Cpu, Memory, Switches] } else { &[Wall, Cpu, Memory, Switches] }
    }

    /// The one that the verdict is about.
    pub fn deciding(metric: bool) -> Self {
        Self::all(metric)[0]
    }

    /// Its name in the JSON file.
    pub fn key(self) -> &'static str {
        match self {
            Self::Metric => "metric",
            Self::Wall => "wall_s",
            Self::Cpu => "cpu_s",
            Self::Memory => "memory_bytes",
            Self::Switches => "context_switches",
        }
    }

    fn of(self, run: &Measured) -> Option<f64> {
        let Measured { cost, metric, .. } = run;
        Some(match self {
            Self::Metric => return *metric,
            Self::Wall => cost.wall.as_secs_f64(),
            Self::Cpu => (cost.user + cost.system).as_secs_f64(),
            Self::Memory => cost.memory as f64,
            Self::Switches => (cost.voluntary + cost.involuntary) as f64,
        })
    }
}

impl Candidate {
    /// Before its first run.
    pub fn new(choice: Choice) -> Self {
        Self { choice, locks: None, runs: Vec::new(), failed: None, slowest: Duration::ZERO, set_up: false }
    }

    /// As tables show it.
    pub fn label(&self) -> String {
        self.locks.as_ref().map_or_else(|| self.choice.label(), |(_, label)| label.clone())
    }

    /// One measure of all runs.
    pub fn values(&self, measure: Measure) -> Vec<f64> {
        self.runs.iter().filter_map(|(_, run)| measure.of(run)).collect()
    }

    /// This one's runs relative to the other's, round by round. Two zeroes are alike; of a zero and another value, only the
    /// direction is known, which is what verdicts need.
    pub fn ratios(&self, to: &Self, measure: Measure) -> Vec<f64> {
        let pair = |(round, run): &(u32, Measured)| {
            let (_, other) = to.runs.iter().find(|(other, _)| other == round)?;
            let (ours, theirs) = (measure.of(run)?, measure.of(other)?);
            Some(if ours == theirs { 1.0 } else { ours / theirs })
        };
        self.runs.iter().filter_map(pair).collect()
    }
}

/// What may be said about a candidate, and the probability of such a difference by chance.
pub type Judgement = (Verdict, Option<f64>);

/// Judges all candidates against the one at `to`: for each a judgement, or nothing for `to` itself, for glibc, and for
/// those that failed.
pub fn judge(
    candidates: &[Candidate],
    to: usize,
    measure: Measure,
    better: Better,
) -> Vec<Option<Judgement>> {
    let judged = |index: usize| index != 0 && index != to && candidates[index].failed.is_none();
    let ratios: Vec<_> = (0..candidates.len())
        .filter(|index| judged(*index))
        .map(|index| candidates[index].ratios(&candidates[to], measure))
        .collect();
    let mut judgements = verdict::judge(&ratios, better).into_iter();
    (0..candidates.len()).map(|index| judged(index).then(|| judgements.next()).flatten()).collect()
}

/// The best of those that are better than glibc, and those that the noise does not tell from it.
///
/// Of locks that the noise does not tell apart, one that spins is not recommended: these runs do not show what it does
/// when there are more threads, or other programs.
pub fn best(candidates: &[Candidate], measure: Measure, better: Better) -> Option<(usize, Vec<usize>)> {
    let against_glibc = judge(candidates, 0, measure, better);
    let gain = |index: usize| match against_glibc[index]?.0 {
        Verdict::Better(ratio) => Some(if better == Better::Higher { ratio } else { -ratio }),
        _ => None,
    };
    let first = |indices: &mut dyn Iterator<Item = usize>| {
        let gains = indices.filter_map(|index| Some((index, gain(index)?)));
        gains.min_by(|a, b| b.1.total_cmp(&a.1)).map(|(index, _)| index)
    };
    let alike = |to: usize| -> Vec<usize> {
        let judgements = judge(candidates, to, measure, better);
        let alike = |index: &usize| matches!(judgements[*index], Some((Verdict::Noise | Verdict::TooFew, _)));
        (1..candidates.len()).filter(alike).collect()
    };
    let mut best = first(&mut (1..candidates.len()))?;
    if candidates[best].choice.spins() {
        let mut sleeping = alike(best).into_iter().filter(|index| !candidates[*index].choice.spins());
        best = first(&mut sleeping).unwrap_or(best);
    }
    Some((best, alike(best)))
}

/// What is compared when the user names nothing.
const DEFAULT: [(&str, &str); 5] =
    [("shfl", GLIBC), ("shfl", "shfl-rw"), ("shfl", "bravo-2d-shfl-rw"), ("ttas", GLIBC), ("mcs", GLIBC)];

/// Glibc first, then every combination of the named locks.
pub fn choose(mutexes: &[String], rwlocks: &[String]) -> Result<Vec<Choice>> {
    let mut choices = vec![Choice::glibc()];
    let mut add = |mutex: &str, rwlock: &str| {
        let choice = Choice { mutex: mutex.into(), rwlock: rwlock.into() };
        if !choices.contains(&choice) {
            choices.push(choice);
        }
    };
    if mutexes.is_empty() && rwlocks.is_empty() {
        // Few enough to be done in half a minute: the library's first choices, and one of each family
        // that the literature compares with.
        let known = |kind, name| name == GLIBC || names::find(kind, name).is_some();
        for (mutex, rwlock) in DEFAULT {
            if known(Kind::Mutex, mutex) && known(Kind::RwLock, rwlock) {
                add(mutex, rwlock);
            }
        }
        return Ok(choices);
    }
    let or_glibc = |names: Vec<String>| if names.is_empty() { vec![GLIBC.to_owned()] } else { names };
    let mutexes = or_glibc(names::list(Kind::Mutex, mutexes)?);
    let rwlocks = or_glibc(names::list(Kind::RwLock, rwlocks)?);
    for mutex in &mutexes {
        for rwlock in &rwlocks {
            add(mutex, rwlock);
        }
    }
    Ok(choices)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(mutexes: &[&str], rwlocks: &[&str]) -> Vec<String> {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let choices = choose(&owned(mutexes), &owned(rwlocks)).unwrap();
        choices.iter().map(Choice::label).collect()
    }

    fn candidate(walls: &[u64]) -> Candidate {
        let mut candidate = Candidate::new(Choice::glibc());
        for (round, wall) in walls.iter().enumerate() {
            let cost = Cost {
                wall: Duration::from_secs(*wall),
                user: Duration::ZERO,
                system: Duration::ZERO,
                memory: 0,
                voluntary: 0,
                involuntary: 0,
            };
            candidate.runs.push((round as u32, Measured { cost, metric: None, p99: None }));
        }
        candidate
    }

    #[test]
    fn glibc_comes_first_and_once() {
        assert_eq!(labels(&["mcs", "ttas"], &[]), ["glibc", "mcs", "ttas"]);
        assert_eq!(labels(&["glibc", "mcs"], &["glibc"]), ["glibc", "mcs"]);
        let default = labels(&[], &[]);
        assert_eq!(default[0], "glibc");
        assert!(default.len() >= 4, "{default:?}");
        assert_eq!(labels(&["all"], &[]).len(), 1 + names::of_kind(Kind::Mutex).len());
    }

    #[test]
    fn a_zero_is_a_value() {
        // As good as each other: each is 0 in half of the rounds.
        let (glibc, lock) = (candidate(&[0, 1].repeat(15)), candidate(&[1, 0].repeat(15)));
        assert_eq!(judge(&[glibc, lock], 0, Measure::Wall, Better::Lower)[1].unwrap().0, Verdict::Noise);
        let (glibc, lock) = (candidate(&[1, 0].repeat(6)), candidate(&[0; 12]));
        assert_eq!(lock.ratios(&glibc, Measure::Wall), [0.0, 1.0].repeat(6));
        assert_eq!(
            judge(&[glibc, lock], 0, Measure::Wall, Better::Lower)[1].unwrap().0,
            Verdict::Better(0.5)
        );
        let (glibc, lock) = (candidate(&[0; 12]), candidate(&[1; 12]));
        let judged = judge(&[glibc, lock], 0, Measure::Wall, Better::Lower)[1].unwrap().0;
        assert_eq!(judged, Verdict::Worse(f64::INFINITY));
    }

    #[test]
    fn runs_are_paired_by_round() {
        let mut other = candidate(&[2, 4, 8]);
        let glibc = candidate(&[1, 2, 2]);
        assert_eq!(other.ratios(&glibc, Measure::Wall), [2.0, 2.0, 4.0]);
        other.runs.remove(0);
        assert_eq!(other.ratios(&glibc, Measure::Wall), [2.0, 4.0]);
        assert_eq!(other.ratios(&glibc, Measure::Metric), Vec::<f64>::new());
    }

    #[test]
    fn the_best_is_named_with_those_like_it() {
        let all = [
            candidate(&[10; 9]),
            candidate(&[5; 9]),
            candidate(&[5, 6, 4, 5, 6, 4, 5, 6, 4]),
            candidate(&[9; 9]),
        ];
        assert_eq!(best(&all, Measure::Wall, Better::Lower), Some((1, vec![2])));
        assert_eq!(best(&all, Measure::Wall, Better::Higher), None);
    }

    #[test]
    fn of_equals_one_that_sleeps_is_best() {
        let mut all = [candidate(&[10; 9]), candidate(&[5; 9]), candidate(&[5, 6, 4, 5, 6, 4, 5, 6, 4])];
        all[1].choice.mutex = "ttas".into();
        assert_eq!(best(&all, Measure::Wall, Better::Lower), Some((2, vec![1])));
        all[2] = candidate(&[7; 9]);
        assert_eq!(best(&all, Measure::Wall, Better::Lower), Some((1, vec![])));
    }

    #[test]
    fn locks_that_failed_are_not_judged() {
        let mut all = [candidate(&[10; 6]), candidate(&[5; 6]), candidate(&[5; 6])];
        let failed = Failed { round: None, why: String::new(), output: String::new() };
        // Two locks take seven rounds, one takes six.
        assert_eq!(judge(&all, 0, Measure::Wall, Better::Lower)[1], Some((Verdict::TooFew, None)));
        all[2].failed = Some(failed);
        let judgements = judge(&all, 0, Measure::Wall, Better::Lower);
        assert_eq!(judgements[1].map(|(verdict, _)| verdict), Some(Verdict::Better(0.5)));
        assert_eq!((judgements[0], judgements[2]), (None, None));
    }
}

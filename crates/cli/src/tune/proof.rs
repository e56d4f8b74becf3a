//! Fresh rounds: glibc, the best single pair, and the locks that the search has found.
//!
//! What a search finds looks better than it is, because it was chosen by its luck, too. These rounds were not seen by the
//! search. The tuned locks must be better than glibc and than the pair by the rule of `latchwork compare`. Otherwise the pair is
//! the answer, if it is better than glibc by that rule, and else glibc. All three comparisons count in the correction. The answer must
//! also keep the limits that the user has set, in these rounds.

use super::classes::Tuned;
use super::limits::Limits;
use super::search::{self, Found};
use super::{Step, Stopped, say};
use crate::compare::candidates::Candidate;
use crate::compare::plan::{Length, Plan};
use crate::compare::progress::Progress;
use crate::compare::rounds;
use crate::compare::verdict::{self, Verdict};
use latchwork_console::names::Choice;
use latchwork_console::stats::median;

/// What the fresh rounds say.
pub struct Proof {
    pub rounds: u32,
    /// Median of the deciding measure under glibc. `None`: nothing was measured.
    pub glibc: Option<f64>,
    /// The best single pair, unless that is glibc.
    pub pair: Option<Challenger>,
    /// The locks of single classes, if they differ from the pair.
    pub tuned: Option<Challenger>,
}

/// Locks that are to be better than others.
pub struct Challenger {
    /// Median of the deciding measure. `None`: no round has one.
    pub value: Option<f64>,
    /// What they were set against: glibc, and the pair if there is one and they are not the pair.
    pub against: Vec<Against>,
    /// Under them the program failed, and why.
    pub failed: Option<String>,
    /// Which limit they exceed.
    pub exceeds: Option<String>,
}

/// A comparison.
pub struct Against {
    /// `glibc`, or the pair.
    pub what: String,
    /// The median of the rounds' ratios. `None`: no round has both.
    pub ratio: Option<f64>,
    pub verdict: Verdict,
    pub chance: Option<f64>,
}

/// What the user is told to do.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Take the locks of single classes.
    Tuned,
    /// Take one pair for all locks.
    Pair,
    /// Change nothing.
    Keep,
}

impl Proof {
    /// Without a comparison.
    pub fn nothing() -> Self {
        Proof { rounds: 0, glibc: None, pair: None, tuned: None }
    }

    /// The answer.
    pub fn answer(&self) -> Answer {
        let is_better =
            |challenger: &Option<Challenger>| challenger.as_ref().is_some_and(Challenger::is_better);
        match (is_better(&self.tuned), is_better(&self.pair)) {
            (true, _) => Answer::Tuned,
            (false, true) => Answer::Pair,
            (false, false) => Answer::Keep,
        }
    }

    /// All comparisons.
    pub fn comparisons(&self) -> usize {
        self.tuned.iter().chain(&self.pair).map(|challenger| challenger.against.len()).sum()
    }
}

impl Challenger {
    fn new(candidate: &Candidate, plan: &Plan, limits: &Limits) -> Self {
        let values = candidate.values(plan.deciding());
        Challenger {
            value: (!values.is_empty()).then(|| median(&values)),
            against: Vec::new(),
            failed: candidate.failed.as_ref().map(|failed| failed.why.clone()),
            exceeds: limits.exceeded(candidate),
        }
    }

    /// Whether they are better than glibc's locks, the first that they were set against.
    pub fn beats_glibc(&self) -> bool {
        self.against.first().is_some_and(|against| matches!(against.verdict, Verdict::Better(_)))
    }

    /// Whether they are better than all that they were set against.
    fn is_better(&self) -> bool {
        self.failed.is_none()
            && self.exceeds.is_none()
            && !self.against.is_empty()
            && self.against.iter().all(|against| matches!(against.verdict, Verdict::Better(_)))
    }
}

/// Measures.
pub fn prove(plan: &mut Plan, tuned: &Tuned, found: &Found, limits: &mut Limits) -> Step<Proof> {
    let differs = found.differs(tuned);
    let mut candidates = vec![Candidate::new(Choice::glibc())];
    if !found.pair.is_glibc() {
        candidates.push(Candidate::new(found.pair.clone()));
    }
    if differs {
        candidates.push(search::candidate(plan, tuned, &found.pair, &found.locks, "tuned".into())?);
    }
    // Each is set against all that come before it.
    let comparisons: Vec<(usize, usize)> =
        (1..candidates.len()).flat_map(|one| (0..one).map(move |other| (one, other))).collect();
    let rounds = verdict::default_rounds(comparisons.len());
    if comparisons.is_empty() {
        return Ok(Proof::nothing());
    }
    say(&format!("measuring the result in {rounds} fresh rounds"));
    plan.length = Length::Rounds(rounds);
    plan.warmup = 0;
    plan.warns = true;
    let progress = Progress::new(plan, candidates.len());
    let results = rounds::measure(plan, candidates, &progress)?;
    if let Some(failure) = results.failure {
        return Err(failure.into());
    }
    if let Some(signal) = results.interrupted {
        return Err(Stopped::Interrupted(signal));
    }
    let measured = &results.candidates;
    limits.set_by(&measured[0]);
    let mut challengers: Vec<Challenger> =
        measured.iter().map(|candidate| Challenger::new(candidate, plan, limits)).collect();
    let ratios = |(one, other): &(usize, usize)| measured[*one].ratios(&measured[*other], plan.deciding());
    let ratios: Vec<Vec<f64>> = comparisons.iter().map(ratios).collect();
    let verdicts = verdict::judge(&ratios, plan.better());
    for (((one, other), ratios), (verdict, chance)) in comparisons.iter().zip(&ratios).zip(verdicts) {
        let ratio = (!ratios.is_empty()).then(|| median(ratios));
        let what = measured[*other].label();
        challengers[*one].against.push(Against { what, ratio, verdict, chance });
    }
    let glibc = challengers[0].value;
    // The tuned locks come last, the pair before them.
    let tuned = differs.then(|| challengers.pop()).flatten();
    let pair = (!found.pair.is_glibc()).then(|| challengers.pop()).flatten();
    Ok(Proof { rounds, glibc, pair, tuned })
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn challenger(verdicts: &[Verdict]) -> Challenger {
        let against = |verdict: &Verdict| Against {
            what: "another".into(),
            ratio: Some(1.0),
            verdict: *verdict,
            chance: None,
        };
        Challenger {
            value: Some(1.0),
            against: verdicts.iter().map(against).collect(),
            failed: None,
            exceeds: None,
        }
    }

    #[test]
    fn the_answer_is_what_has_proved_itself() {
        let (better, noise, worse) = (Verdict::Better(1.2), Verdict::Noise, Verdict::Worse(0.8));
        let answer = |pair: Option<Challenger>, tuned: Option<Challenger>| {
            Proof { rounds: 11, glibc: Some(1.0), pair, tuned }.answer()
        };
        let of = |verdicts: &[Verdict]| Some(challenger(verdicts));
        assert_eq!(answer(of(&[better]), of(&[better, better])), Answer::Tuned);
        // The pair is no better than glibc, the tuned locks are better than both.
        assert_eq!(answer(of(&[noise]), of(&[better, better])), Answer::Tuned);
        // What does not beat the pair is not taken, and the pair is only if it beats glibc.
        for against_the_pair in [noise, worse, Verdict::TooFew] {
            assert_eq!(answer(of(&[better]), of(&[better, against_the_pair])), Answer::Pair);
            assert_eq!(answer(of(&[noise]), of(&[better, against_the_pair])), Answer::Keep);
            assert_eq!(answer(of(&[worse]), of(&[better, against_the_pair])), Answer::Keep);
        }
        // Without a pair, without tuned locks, and without both.
        assert_eq!(answer(None, of(&[better])), Answer::Tuned);
        assert_eq!(answer(None, of(&[noise])), Answer::Keep);
        assert_eq!(answer(of(&[better]), None), Answer::Pair);
        assert_eq!(answer(None, None), Answer::Keep);
        // Locks under which the program fails, or that exceed a limit, are not taken, however fast they are.
        let failed = Challenger { failed: Some("exit status 1".into()), ..challenger(&[better, better]) };
        assert_eq!(answer(of(&[better]), Some(failed)), Answer::Pair);
        let exceeds = Challenger { exceeds: Some("--max-cpu".into()), ..challenger(&[better]) };
        assert_eq!(answer(Some(exceeds), None), Answer::Keep);
    }
}

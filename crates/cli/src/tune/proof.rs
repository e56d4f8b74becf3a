//! Fresh rounds: glibc, the best single pair, and the locks that the search has found.
//!
//! What a search finds looks better than it is, because it was chosen by its luck, too. These rounds were not seen by the
//! search. The result must be better than glibc and than the best pair by the rule of `latchwork compare`; both comparisons
//! count in the correction. It must also keep the limits that the user has set, in these rounds.

use super::classes::Tuned;
use super::limits::Limits;
use super::search::{self, Found};
use super::{Asked, Interrupted, say};
use crate::compare::candidates::Candidate;
use crate::compare::plan::{Length, Plan};
use crate::compare::progress::Progress;
use crate::compare::rounds;
use crate::compare::verdict::{self, Verdict};
use latchwork_console::failure::Result;
use latchwork_console::names::Choice;
use latchwork_console::stats::median;

/// What the fresh rounds say.
pub struct Proof {
    pub rounds: u32,
    /// Whether the tuned locks, or only a pair for all, were set against glibc.
    pub tuned: bool,
    /// Medians of the deciding measure: of glibc, of the pair unless it is glibc, and of the tuned locks if there are any.
    pub glibc: f64,
    pub pair: Option<f64>,
    pub value: Option<f64>,
    /// The best of what was found, set against glibc and against the pair.
    pub against: Vec<Against>,
    /// What failed meanwhile, and why.
    pub failed: Option<String>,
    /// Which limit the result exceeds.
    pub exceeds: Option<String>,
}

/// A comparison.
pub struct Against {
    /// `glibc`, or the pair.
    pub what: String,
    pub ratio: f64,
    pub verdict: Verdict,
    pub chance: Option<f64>,
}

impl Proof {
    /// Whether tuned locks are to be written.
    pub fn wins(&self) -> bool {
        self.tuned && self.is_better()
    }

    /// Whether what was found is better than all that it was set against.
    pub fn is_better(&self) -> bool {
        self.failed.is_none()
            && self.exceeds.is_none()
            && !self.against.is_empty()
            && self.against.iter().all(|against| matches!(against.verdict, Verdict::Better(_)))
    }
}

/// Measures.
pub fn prove(plan: &mut Plan, tuned: &Tuned, found: &Found, limits: &mut Limits) -> Result<Asked<Proof>> {
    let differs = found.differs(tuned);
    let mut candidates = vec![Candidate::new(Choice::glibc())];
    if !found.pair.is_glibc() {
        candidates.push(Candidate::new(found.pair.clone()));
    }
    if differs {
        candidates.push(search::candidate(plan, tuned, &found.pair, &found.locks, "tuned".into())?);
    }
    let comparisons = candidates.len() - 1;
    let rounds = verdict::default_rounds(comparisons);
    let mut proof = Proof {
        rounds,
        tuned: differs,
        glibc: 0.0,
        pair: None,
        value: None,
        against: Vec::new(),
        failed: None,
        exceeds: None,
    };
    if comparisons == 0 {
        return Ok(Ok(proof));
    }
    say(&format!("measuring the result in {rounds} fresh rounds"));
    plan.length = Length::Rounds(rounds);
    plan.warmup = 0;
    plan.warns = true;
    let progress = Progress::new(plan, candidates.len());
    let results = rounds::measure(plan, candidates, &progress)?;
    if let Some(signal) = results.interrupted {
        return Ok(Err(Interrupted(signal)));
    }
    let measure = plan.deciding();
    let of = |candidate: &Candidate| {
        let values = candidate.values(measure);
        if values.is_empty() { 0.0 } else { median(&values) }
    };
    let measured = &results.candidates;
    proof.glibc = of(&measured[0]);
    proof.pair = (!found.pair.is_glibc()).then(|| of(&measured[1]));
    let best = measured.last().expect("glibc at least");
    proof.value = differs.then(|| of(best));
    if let Some(failed) = &best.failed {
        proof.failed = Some(failed.why.clone());
        return Ok(Ok(proof));
    }
    limits.set_by(&measured[0]);
    proof.exceeds = limits.exceeded(best);
    let others = &measured[..measured.len() - 1];
    let ratios: Vec<Vec<f64>> = others.iter().map(|other| best.ratios(other, measure)).collect();
    let verdicts = verdict::judge(&ratios, plan.better());
    for ((other, ratios), (verdict, chance)) in others.iter().zip(&ratios).zip(verdicts) {
        let ratio = if ratios.is_empty() { 1.0 } else { median(ratios) };
        proof.against.push(Against { what: other.label(), ratio, verdict, chance });
    }
    Ok(Ok(proof))
}

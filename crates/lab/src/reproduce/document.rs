//! What a run found, and as JSON.

use super::claims::one_lock::{self, Sense};
use super::claims::{self, Claim, Paper};
use super::experiment::{Effort, On, Ready};
use super::headlines;
use super::judge::{Judged, Verdict};
use super::native::Conditions;
use super::sensitivity::Sensitivity;
use super::validate::Comparison;
use crate::measure::results::{Results, varied};
use latchwork_console::machine::Machine;
use serde_json::{Value, json};
use std::time::Duration;

/// A claim and what came out.
pub struct Answer {
    /// The claim.
    pub claim: Claim,
    /// What its rule says.
    pub judged: Judged,
    /// What that means.
    pub verdict: Verdict,
    /// Over the space, if that was run.
    pub space: Option<Sensitivity>,
    /// What the simulator counted where the rule is tightest.
    pub evidence: Option<String>,
    /// What the claim names beside its rule to explain what comes out, computed from this run.
    pub seen: Vec<String>,
}

impl Answer {
    /// What is said beside the verdict: first what is computed from this run, then the mechanism.
    pub fn why(&self) -> String {
        let mut parts = Vec::new();
        if !self.verdict.why().is_empty() {
            parts.push(self.verdict.why().to_owned());
        }
        if self.verdict != Verdict::Holds && self.judged.missing.is_none() {
            let checks = &self.judged.checks;
            let missed = checks.iter().filter(|check| check.met < check.runs.len()).count();
            if checks.len() > 1 && missed > 0 {
                parts.push(format!("{missed} of {} parts are missed", checks.len()));
            }
            let causes = self.causes("the part shown");
            if !causes.is_empty() {
                parts.push(causes);
            }
        }
        parts.join("; ")
    }

    /// What shows why the tightest part, called `part`, came out as it did, and the mechanism.
    pub fn causes(&self, part: &str) -> String {
        let mut parts = Vec::new();
        if let Some(evidence) = &self.evidence {
            parts.push(format!("in {part}: {evidence}"));
        }
        if !self.seen.is_empty() {
            parts.push(format!("beside it: {}", self.seen.join(", ")));
        }
        if !self.claim.explanation.is_empty() {
            parts.push(format!("explanation: {}", self.claim.explanation));
        }
        parts.join("; ")
    }
}

/// All of it.
pub struct Document {
    /// The claims, in the order of the papers.
    pub answers: Vec<Answer>,
    /// The results, in the order of the experiments that were run.
    pub results: Vec<Results>,
    /// The runs over the space in which a lock failed a workload's check, and why.
    pub failures: Vec<String>,
    /// What this machine was like where experiments ran on it.
    pub conditions: Conditions,
    /// The simulator against measured machines, if that was asked for.
    pub comparisons: Vec<Comparison>,
    /// How it was run.
    pub effort: Effort,
    /// The signal that ended it early.
    pub interrupted: Option<i32>,
    /// What it took.
    pub took: Duration,
    /// Whether nothing was run.
    pub kept: bool,
    /// Where it ran.
    pub machine: Machine,
}

impl Document {
    /// How many claims have this verdict.
    pub fn count(&self, verdict: &str) -> usize {
        self.answers.iter().filter(|answer| answer.verdict.text() == verdict).count()
    }

    /// In a sentence. Inputs are not counted.
    pub fn summary(&self) -> String {
        let [holds, depends, contradicted, outside, design, input] =
            Verdict::WORDS.map(|verdict| self.count(verdict));
        let all = holds + depends + contradicted + outside + design;
        let inputs = match input {
            0 => String::new(),
            1 => " 1 more is an input, and counted nowhere.".into(),
            _ => format!(" {input} more are inputs, and counted nowhere."),
        };
        format!(
            "{holds} of {all} claims hold, {depends} depend, {contradicted} are contradicted, {design} are different \
             by design, {outside} cannot be shown here.{inputs}"
        )
    }

    /// How many of the claims that hold do not show that locks differ.
    pub fn alike(&self) -> String {
        let experiments = claims::experiments();
        let holds = self.answers.iter().filter(|answer| answer.verdict == Verdict::Holds);
        let senses: Vec<Sense> =
            holds.filter_map(|answer| one_lock::sense(&answer.claim, &experiments)).collect();
        let count = |wanted: Sense| senses.iter().filter(|sense| **sense == wanted).count();
        format!(
            "Of those that hold, {} are about each lock alone, and {} find locks alike or one not worse than another. One lock in place of \
             all could meet their rules. Where a point that the rule looks at does not tell any two locks apart, to find them alike does \
             not count as holding.",
            count(Sense::Alone),
            count(Sense::Alike)
        )
    }

    /// How many of the claims that are simulated were run over the space. The verdicts of the others are those of one set of costs.
    pub fn over_space(&self) -> String {
        let simulated = |answer: &&Answer| !answer.claim.is_fixed() && answer.claim.on() != [On::Here.name()];
        let all = self.answers.iter().filter(simulated).count();
        let others: Vec<&str> = self
            .answers
            .iter()
            .filter(simulated)
            .filter(|answer| answer.space.is_none())
            .map(|answer| answer.claim.id)
            .collect();
        let mut text = format!(
            "{} of the {all} simulated claims were also run over the space of uncertain costs and unknown parameters",
            all - others.len()
        );
        if others.is_empty() {
            return text + ".";
        }
        text += "; the others, whose rows below have no share, were run with one set of costs, and may depend on them, too";
        // More would be hard to read.
        if others.len() <= 20 {
            text += &format!(": {}", others.join(", "));
        }
        text + "."
    }

    /// How long it took, and where.
    pub fn duration(&self) -> String {
        if self.kept {
            return "This page was printed from runs that were kept.".into();
        }
        format!("This run took {:.0} seconds on {}.", self.took.as_secs_f64(), self.machine.line())
    }

    /// What was measured here, if anything was but for the simulator's sake.
    pub fn here(&self) -> Option<String> {
        let conditions = self.conditions.sentence()?;
        let Machine { load_average, .. } = self.machine;
        let machine = self.machine.line();
        Some(format!("Here is {machine} (load average {load_average} before). {conditions}"))
    }

    /// The claims of a paper.
    pub fn of(&self, paper: Paper) -> Vec<&Answer> {
        self.answers.iter().filter(|answer| answer.claim.paper == paper).collect()
    }

    /// Whether a lock failed a workload's check.
    pub fn failed(&self) -> bool {
        !self.failures.is_empty() || self.results.iter().any(Results::failed)
    }

    /// The JSON document.
    pub fn json(&self, ready: &[Ready]) -> String {
        let document = json!({
            "latchwork": env!("CARGO_PKG_VERSION"),
            "command": "reproduce",
            "runs": self.effort.runs,
            "seed": self.effort.seed,
            "seconds": self.effort.seconds.map(|seconds| seconds.as_secs_f64()),
            "interrupted": self.interrupted.is_some(),
            "took_s": self.took.as_secs_f64(),
            "host": self.machine,
            "claims": self.answers.iter().map(answer).collect::<Vec<_>>(),
            "experiments": ready.iter().zip(&self.results).map(experiment).collect::<Vec<_>>(),
            "failures_in_space": self.failures,
            "here": self.conditions,
            "simulator": self.comparisons,
        });
        let mut text = serde_json::to_string_pretty(&document).expect("plain data");
        text.push('\n');
        text
    }
}

fn answer(answer: &Answer) -> Value {
    let Answer { claim, judged, verdict, space, .. } = answer;
    json!({
        "id": claim.id,
        "paper": claim.paper,
        "place": claim.place,
        "says": claim.sentence(),
        "number": claim.number,
        "verdict": verdict.text(),
        "detail": verdict,
        "headline": headlines::is_one(claim.id),
        "space": space.as_ref().map(|space| json!({
            "holds": space.holds(),
            "points": space.points.len(),
            "decides": space.decides(),
            "decisive": space.decisive,
            "each": space.points,
        })),
        "evidence": answer.evidence,
        "seen": answer.seen,
        "why": answer.why(),
        "on": claim.on(),
        "experiments": claim.experiments(),
        "checks": judged.checks,
    })
}

fn experiment((ready, results): (&Ready, &Results)) -> Value {
    let plan = &ready.plan;
    let point = |point: &crate::measure::results::Point| {
        json!({
            "lock": plan.locks[point.place.lock].name,
            "threads": plan.threads[point.place.threads],
            "settings": varied(plan, point.place.settings),
            "failure": point.failure,
            "ops_per_s": point.rates(),
            "fairness": point.runs.iter().map(|run| run.fairness).collect::<Vec<_>>(),
            "extra": point.runs.iter().map(|run| run.extra.iter().copied().collect::<std::collections::BTreeMap<_, _>>())
                .collect::<Vec<_>>(),
        })
    };
    json!({
        "id": ready.experiment.id,
        "command": ready.experiment.command(),
        "workload": plan.workload.name,
        "machine": ready.experiment.on.name(),
        "simulated": ready.how.is_some(),
        "measured_ns": ready.measured_ns(),
        "points": results.points.iter().map(point).collect::<Vec<_>>(),
    })
}

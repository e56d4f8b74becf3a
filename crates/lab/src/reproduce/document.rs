//! What a run found, and as JSON.

use super::claims::{Claim, Paper};
use super::experiment::{Effort, Ready};
use super::judge::{Judged, Verdict};
use super::native::Conditions;
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
}

impl Answer {
    /// Why it is what it is, where that has to be said.
    pub fn why(&self) -> String {
        match &self.judged.verdict {
            Verdict::Holds => String::new(),
            Verdict::DoesNotHold if self.claim.doubt.is_empty() => "we do not know why".into(),
            Verdict::DoesNotHold => self.claim.doubt.into(),
            Verdict::NotShown(why) => why.clone(),
        }
    }
}

/// All of it.
pub struct Document {
    /// The claims, in the order of the papers.
    pub answers: Vec<Answer>,
    /// The results, in the order of the experiments that were run.
    pub results: Vec<Results>,
    /// What this machine was like where experiments ran on it.
    pub conditions: Conditions,
    /// The simulator against this machine, if that was asked for.
    pub comparison: Option<Comparison>,
    /// How it was run.
    pub effort: Effort,
    /// The signal that ended it early.
    pub interrupted: Option<i32>,
    /// What it took.
    pub took: Duration,
    /// Where it ran.
    pub machine: Machine,
}

impl Document {
    /// How many claims have this verdict.
    pub fn count(&self, verdict: &str) -> usize {
        self.answers.iter().filter(|answer| answer.judged.verdict.text() == verdict).count()
    }

    /// In a sentence.
    pub fn summary(&self) -> String {
        let (holds, not) = (self.count("holds"), self.count("does not hold"));
        let unclear = self.count("not shown");
        format!("{holds} of {} claims hold, {not} do not, {unclear} are not shown.", holds + not + unclear)
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
        self.results.iter().any(Results::failed)
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
            "here": self.conditions,
            "simulator": self.comparison,
        });
        let mut text = serde_json::to_string_pretty(&document).expect("plain data");
        text.push('\n');
        text
    }
}

fn answer(answer: &Answer) -> Value {
    let Answer { claim, judged } = answer;
    json!({
        "id": claim.id,
        "paper": claim.paper,
        "place": claim.place,
        "says": claim.says,
        "number": claim.number,
        "verdict": judged.verdict.text(),
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

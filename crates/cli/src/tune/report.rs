//! What the user gets: the file with its reasons, a report, and the same as JSON.

use super::classes::Tuned;
use super::proof::Proof;
use super::search::{Found, Pair, of_pair};
use crate::compare::plan::Plan;
use crate::compare::verdict::{CHANCE, NOTABLE};
use crate::config::write;
use latchwork_console::machine::Machine;
use latchwork_console::names::Choice;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// The file's text.
pub fn file(plan: &Plan, tuned: &Tuned, found: &Found, proof: &Proof) -> String {
    let command =
        plan.subject.command().iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let mut head = vec![
        format!("A lock for each of the locks of: {command}"),
        "Made by `latchwork tune`; use it with `latchwork run --config FILE -- PROG`. docs/tuning.md describes it.".into(),
        format!("Measured in {} fresh rounds, {} ({}):", proof.rounds, plan.name(plan.deciding()), direction(plan)),
    ];
    head.extend(proof.against.iter().map(|against| {
        format!("  {:.2} times {} ({})", against.ratio, against.what, against.verdict.text())
    }));
    let reasons: Vec<Vec<String>> = tuned
        .classes
        .iter()
        .zip(&found.tried)
        .map(|(class, trials)| {
            let mut lines = vec![class.features.text()];
            if !trials.is_empty() {
                let trial = |trial: &super::search::Trial| match (trial.ratio, &trial.exceeds) {
                    (Some(ratio), None) => format!("{} {ratio:.2}", trial.lock),
                    (Some(ratio), Some(why)) => format!("{} {ratio:.2} (exceeds {why})", trial.lock),
                    (None, _) => format!("{} failed", trial.lock),
                };
                let trials_text: Vec<String> = trials.iter().map(trial).collect();
                lines.push(format!(
                    "tried in {} rounds, as ratios to {}: {}",
                    trials[0].rounds,
                    of_pair(&found.pair, class.kind),
                    trials_text.join(", ")
                ));
            }
            lines
        })
        .collect();
    write::text(&tuned.config(found.default(), &found.locks), &head, &reasons)
}

fn direction(plan: &Plan) -> &'static str {
    if plan.better() == crate::compare::verdict::Better::Higher { "more is better" } else { "less is better" }
}

/// The report.
pub fn text(plan: &Plan, tuned: &Tuned, found: &Found, proof: &Proof, output: &Path) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("a String takes all");
    line(Machine::here().line());
    line(String::new());
    for (class, lock) in tuned.classes.iter().zip(&found.locks) {
        line(format!("{lock:>20}  {}", class.name));
        line(format!("{:>20}  {}", "", class.features.text()));
    }
    line(String::new());
    if proof.against.is_empty() && proof.failed.is_none() {
        line(conclusion(found, proof, output));
        line(format!("{} runs to search; there was nothing to prove.", found.runs));
        return out;
    }
    let pair = found.pair.label();
    line(format!(
        "Medians of {} fresh rounds, {} ({}): glibc {}{}{}.",
        proof.rounds,
        plan.name(plan.deciding()),
        direction(plan),
        number(proof.glibc),
        proof.pair.map_or(String::new(), |value| format!(", {pair} {}", number(value))),
        proof.value.map_or(String::new(), |value| format!(", tuned {}", number(value))),
    ));
    for against in &proof.against {
        let what = if proof.tuned { "tuned" } else { &pair };
        line(format!("{what} to {}: {:.2} times, {}", against.what, against.ratio, against.verdict.text()));
    }
    line(String::new());
    line(conclusion(found, proof, output));
    line(format!(
        "{} runs to search, {} to prove. Better means: the median ratio differs by more than {:.0}%, and an exact sign \
         test over the fresh rounds excludes chance at {:.0}%, corrected for {} comparisons (Holm).",
        found.runs,
        proof.rounds as usize * (proof.against.len() + 1),
        NOTABLE * 100.0,
        CHANCE * 100.0,
        proof.against.len()
    ));
    out
}

fn number(value: f64) -> String {
    match value.abs() {
        1e6.. => format!("{:.2} M", value / 1e6),
        1e3.. => format!("{:.1} k", value / 1e3),
        _ => format!("{value:.3}"),
    }
}

fn conclusion(found: &Found, proof: &Proof, output: &Path) -> String {
    if let Some(why) = &proof.failed {
        return format!("Keep what you have: the program failed under the locks that were found: {why}");
    }
    if let Some(why) = &proof.exceeds {
        return format!("Keep what you have: in the fresh rounds, the locks that were found exceed {why}.");
    }
    if proof.wins() {
        let output = output.display();
        return format!("The locks are in {output}. To use them: latchwork run --config {output} -- PROG");
    }
    let keep = "Keep what you have";
    let options = |pair: &Choice| pair.options();
    match (proof.tuned, found.pair.is_glibc()) {
        (false, true) => format!("{keep}: no lock that was tried is better than glibc's."),
        (false, false) if proof.is_better() => format!(
            "No lock of its own for any class is better than one pair for all: latchwork run {} -- PROG",
            options(&found.pair)
        ),
        (true, false) => format!(
            "{keep}: locks for single classes do not beat both glibc and the pair {} for all.",
            found.pair.label()
        ),
        _ => format!("{keep}: what was found does not beat glibc's locks in fresh rounds."),
    }
}

/// The JSON.
pub fn json(plan: &Plan, tuned: &Tuned, found: &Found, proof: &Proof) -> String {
    let classes: Vec<Value> = tuned
        .classes
        .iter()
        .zip(&found.locks)
        .zip(&found.tried)
        .map(|((class, lock), trials)| {
            let trial = |trial: &super::search::Trial| json!({"lock": trial.lock, "ratio": trial.ratio, "exceeds": trial.exceeds, "rounds": trial.rounds});
            let features = &class.features;
            json!({
                "name": class.name,
                "kind": class.kind.key(),
                "lock": lock,
                "share": features.share,
                "acquisitions": features.acquisitions,
                "contended": features.contended,
                "reads": features.reads,
                "hold_ns": features.hold_ns,
                "hold_p99_ns": features.hold_p99_ns,
                "waiters_max": features.waiters,
                "failed_tries": features.failed_tries,
                "has_conditions": features.has_conditions,
                "candidates": class.candidates,
                "tried": trials.iter().map(trial).collect::<Vec<_>>(),
            })
        })
        .collect();
    let pair = |pair: &Pair| {
        let Pair { choice, ratio, exceeds } = pair;
        json!({"mutex": choice.mutex, "rwlock": choice.rwlock, "ratio": ratio, "exceeds": exceeds})
    };
    let against = |against: &super::proof::Against| {
        json!({
            "what": against.what,
            "ratio": against.ratio,
            "verdict": against.verdict.key(),
            "chance": against.chance,
        })
    };
    let command: Vec<_> = plan.subject.command().iter().map(|word| word.to_string_lossy()).collect();
    let value = json!({
        "command": command,
        "measure": plan.deciding().key(),
        "threads": tuned.threads,
        "oversubscribed": tuned.oversubscribed,
        "classes": classes,
        "pair": {"mutex": found.pair.mutex, "rwlock": found.pair.rwlock},
        "pairs": found.pairs.iter().map(pair).collect::<Vec<_>>(),
        "search_runs": found.runs,
        "proof": {
            "rounds": proof.rounds,
            "glibc": proof.glibc,
            "pair": proof.pair,
            "tuned": proof.value,
            "against": proof.against.iter().map(against).collect::<Vec<_>>(),
            "failed": proof.failed,
            "exceeds": proof.exceeds,
        },
        "result": if proof.wins() { "tuned" } else if !proof.tuned && proof.is_better() { "pair" } else { "keep" },
    });
    serde_json::to_string_pretty(&value).expect("numbers and texts") + "\n"
}

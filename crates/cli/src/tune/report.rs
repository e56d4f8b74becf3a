//! What the user gets: the file with its reasons, a report, and the same as JSON.

use super::classes::Tuned;
use super::proof::{Answer, Challenger, Proof};
use super::search::{Found, Pair, of_pair};
use crate::compare::plan::Plan;
use crate::compare::verdict::{CHANCE, NOTABLE};
use crate::config::write;
use crate::unseen::{FEW_CALLS, UNSEEN};
use latchwork_console::machine::Machine;
use latchwork_console::names::Choice;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// The file's text.
pub fn file(plan: &Plan, tuned: &Tuned, found: &Found, proof: &Proof) -> String {
    let command =
        plan.subject.command().iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let pair = proof.answer() == Answer::Pair;
    let what = if pair { "A pair of locks for all locks of" } else { "A lock for each of the locks of" };
    let mut head = vec![
        format!("{what}: {command}"),
        "Made by `latchwork tune`; use it with `latchwork run --config FILE -- PROG`. docs/tuning.md describes it.".into(),
        format!("Measured in {} fresh rounds, {} ({}):", proof.rounds, plan.name(plan.deciding()), direction(plan)),
    ];
    let chosen = if pair { &proof.pair } else { &proof.tuned };
    head.extend(
        chosen.iter().flat_map(|chosen| &chosen.against).map(|against| {
            format!("  {} {} ({})", times(against.ratio), against.what, against.verdict.text())
        }),
    );
    if pair {
        head.push(single_classes(proof));
        return write::text(&tuned.config(found.default(), &[]), &head, &[]);
    }
    let reasons: Vec<Vec<String>> = tuned
        .classes
        .iter()
        .zip(&found.tried)
        .map(|(class, trials)| {
            let mut lines = vec![class.features.text()];
            if !trials.is_empty() {
                let trial = |trial: &super::search::Trial| match (trial.ratio, &trial.exceeds) {
                    (Some(ratio), None) if trial.rounds > 1 => {
                        format!("{} {ratio:.2} ({} rounds)", trial.lock, trial.rounds)
                    }
                    (Some(ratio), None) => format!("{} {ratio:.2}", trial.lock),
                    (Some(ratio), Some(why)) => format!("{} {ratio:.2} (exceeds {why})", trial.lock),
                    (None, _) => format!("{} failed", trial.lock),
                };
                let trials_text: Vec<String> = trials.iter().map(trial).collect();
                lines.push(format!(
                    "tried, in one round if nothing else is said, as ratios to {}: {}",
                    of_pair(&found.pair, class.kind),
                    trials_text.join(", ")
                ));
            }
            lines
        })
        .collect();
    write::text(&tuned.config(found.default(), &found.locks), &head, &reasons)
}

/// Why the locks of single classes are not taken, where the pair is.
fn single_classes(proof: &Proof) -> String {
    let Some(tuned) = &proof.tuned else {
        return "No lock of its own for any class was better in the search.".into();
    };
    let locks = "Locks of their own for single classes";
    match (&tuned.failed, &tuned.exceeds) {
        (Some(why), _) => format!("{locks} are not taken: the program failed under them: {why}"),
        (None, Some(why)) => format!("{locks} are not taken: they exceed {why}."),
        (None, None) => format!("{locks} were no better in the fresh rounds."),
    }
}

/// A ratio, for people.
fn times(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "no ratio to".into(), |ratio| format!("{ratio:.2} times"))
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
    if proof.comparisons() == 0 {
        line(conclusion(tuned, found, proof, output));
        if !tuned.classes.is_empty() {
            line(format!("{} runs to search; there was nothing to prove.", found.runs));
        }
        return out;
    }
    let pair = found.pair.label();
    let challengers = [(&pair[..], &proof.pair), ("tuned", &proof.tuned)];
    let challengers = challengers.into_iter().filter_map(|(name, of)| Some((name, of.as_ref()?)));
    let challengers: Vec<(&str, &Challenger)> = challengers.collect();
    let medians = challengers.iter().map(|(name, of)| format!(", {name} {}", number(of.value)));
    line(format!(
        "Medians of {} fresh rounds, {} ({}): glibc {}{}.",
        proof.rounds,
        plan.name(plan.deciding()),
        direction(plan),
        number(proof.glibc),
        medians.collect::<String>(),
    ));
    for (name, challenger) in &challengers {
        match (&challenger.failed, &challenger.exceeds) {
            (Some(why), _) => line(format!("{name}: the program failed: {why}")),
            (None, Some(why)) => line(format!("{name} exceeds {why}")),
            (None, None) => {}
        }
        for against in &challenger.against {
            let Some(ratio) = against.ratio else {
                line(format!("{name} to {}: no round has both", against.what));
                continue;
            };
            line(format!("{name} to {}: {ratio:.2} times, {}", against.what, against.verdict.text()));
        }
    }
    line(String::new());
    line(conclusion(tuned, found, proof, output));
    let comparisons = proof.comparisons();
    line(format!(
        "{} runs to search, {} to prove. Better means: the median ratio differs by more than {:.0}%, and an exact sign \
         test over the fresh rounds excludes chance at {:.0}%{}.",
        found.runs,
        proof.rounds as usize * (challengers.len() + 1),
        NOTABLE * 100.0,
        CHANCE * 100.0,
        if comparisons > 1 {
            format!(", corrected for {comparisons} comparisons (Holm)")
        } else {
            String::new()
        }
    ));
    out
}

/// A median, for people.
fn number(value: Option<f64>) -> String {
    let Some(value) = value else { return "none".into() };
    match value.abs() {
        1e6.. => format!("{:.2} M", value / 1e6),
        1e3.. => format!("{:.1} k", value / 1e3),
        _ => format!("{value:.3}"),
    }
}

fn conclusion(tuned: &Tuned, found: &Found, proof: &Proof, output: &Path) -> String {
    let output = output.display();
    let how = format!("To use them: latchwork run --config {output} -- PROG");
    match proof.answer() {
        Answer::Tuned => return format!("The locks are in {output}. {how}"),
        Answer::Pair => {
            let single = single_classes(proof);
            return format!(
                "The pair {} for all locks beats glibc, and is in {output}. {how}\n{single}",
                found.pair.label()
            );
        }
        Answer::Keep => {}
    }
    if tuned.calls == 0 {
        return format!("{KEEP}: the program called no pthread lock, so there is none to tune.\n{UNSEEN}");
    }
    if tuned.classes.is_empty() {
        let unseen = if tuned.calls < FEW_CALLS { format!("\n{UNSEEN}") } else { String::new() };
        return format!(
            "{KEEP}: threads wait for no lock long enough that another one could matter.{unseen}"
        );
    }
    keep(found, proof)
}

const KEEP: &str = "Keep what you have";

/// Why nothing is changed, of a program that waits for locks.
fn keep(found: &Found, proof: &Proof) -> String {
    let Some(best) = proof.tuned.as_ref().or(proof.pair.as_ref()) else {
        return format!("{KEEP}: no lock that was tried is better than glibc's.");
    };
    match (&best.failed, &best.exceeds) {
        (Some(why), _) => format!("{KEEP}: the program failed under the locks that were found: {why}"),
        (None, Some(why)) => format!("{KEEP}: in the fresh rounds, the locks that were found exceed {why}."),
        (None, None) if best.beats_glibc() => format!(
            "{KEEP}: in the fresh rounds, the locks that were found for single classes beat glibc's locks, but not the pair {} \
             for all locks; and that pair does not beat glibc's. More rounds may tell.",
            found.pair.label()
        ),
        (None, None) => format!("{KEEP}: what was found does not beat glibc's locks in fresh rounds."),
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
        let Pair { choice, ratio, exceeds, rounds } = pair;
        let Choice { mutex, rwlock } = choice;
        json!({"mutex": mutex, "rwlock": rwlock, "ratio": ratio, "exceeds": exceeds, "rounds": rounds})
    };
    let challengers = [("pair", &proof.pair), ("tuned", &proof.tuned)];
    let against: Vec<Value> = challengers
        .iter()
        .flat_map(|(locks, of)| of.iter().flat_map(|of| &of.against).map(|against| (*locks, against)))
        .map(|(locks, against)| {
            json!({
                "locks": locks,
                "what": against.what,
                "ratio": against.ratio,
                "verdict": against.verdict.key(),
                "chance": against.chance,
            })
        })
        .collect();
    let value = |of: &Option<Challenger>| of.as_ref().and_then(|of| of.value);
    let best = proof.tuned.as_ref().or(proof.pair.as_ref());
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
            "pair": value(&proof.pair),
            "tuned": value(&proof.tuned),
            "against": against,
            "failed": best.and_then(|best| best.failed.as_ref()),
            "exceeds": best.and_then(|best| best.exceeds.as_ref()),
        },
        "result": match proof.answer() {
            Answer::Tuned => "tuned",
            Answer::Pair => "pair",
            Answer::Keep => "keep",
        },
    });
    serde_json::to_string_pretty(&value).expect("numbers and texts") + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::proof::tests::challenger;
    use super::*;
    use crate::compare::verdict::Verdict;

    /// The last sentence fits the comparisons above it.
    #[test]
    fn the_conclusion_says_what_the_rounds_say() {
        let (better, noise) = (Verdict::Better(1.2), Verdict::Noise);
        let found =
            Found { pair: Choice { mutex: "shfl".into(), rwlock: "glibc".into() }, ..Found::nothing() };
        let of = |pair, tuned| keep(&found, &Proof { rounds: 11, glibc: Some(1.0), pair, tuned });
        let both = of(Some(challenger(&[noise])), Some(challenger(&[better, noise])));
        assert!(both.contains("beat glibc's locks, but not the pair"), "{both}");
        let none = of(Some(challenger(&[noise])), Some(challenger(&[noise, noise])));
        assert!(none.ends_with("does not beat glibc's locks in fresh rounds."), "{none}");
        // Why the locks of single classes are not taken.
        let single = |tuned| single_classes(&Proof { rounds: 11, glibc: Some(1.0), pair: None, tuned });
        assert!(single(None).contains("in the search"));
        assert!(single(Some(challenger(&[better, noise]))).ends_with("were no better in the fresh rounds."));
        let failed = Challenger { failed: Some("exit status 1".into()), ..challenger(&[better, better]) };
        assert!(single(Some(failed)).ends_with("the program failed under them: exit status 1"));
        let exceeds = Challenger { exceeds: Some("--max-cpu".into()), ..challenger(&[better, better]) };
        assert!(single(Some(exceeds)).ends_with("they exceed --max-cpu."));
    }

    /// What was not measured is no number.
    #[test]
    fn a_candidate_that_failed_has_no_figures() {
        assert_eq!((number(None), number(Some(0.5))), ("none".into(), "0.500".into()));
        assert_eq!((times(None), times(Some(0.8))), ("no ratio to".into(), "0.80 times".into()));
    }
}

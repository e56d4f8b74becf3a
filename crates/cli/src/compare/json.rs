//! The comparison as a JSON file: every number of every run.

use super::candidates::{Candidate, Judgement, Measure};
use super::plan::{Length, Plan, Subject};
use super::results::Results;
use super::server::Ready;
use super::verdict::{self, Better};
use latchwork_console::machine::Machine;
use latchwork_console::stats;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::UNIX_EPOCH;

#[derive(Serialize)]
struct Document<'a> {
    latchwork: &'static str,
    /// Seconds since 1970.
    started: u64,
    /// Of the program, or of the server.
    command: Vec<String>,
    built_in_program: bool,
    load: Option<Vec<String>>,
    ready: Option<String>,
    /// None if `seconds` decides.
    runs: Option<u32>,
    seconds: Option<f64>,
    warmup: u32,
    timeout_s: Option<f64>,
    metric: Option<&'a str>,
    deciding: &'static str,
    better: &'static str,
    rule: String,
    rounds_needed: u32,
    interrupted: bool,
    /// What ended the comparison early.
    failure: Option<&'a str>,
    machine: &'a Machine,
    others_cpu_share: f64,
    warnings: &'a [String],
    left_running: &'a [String],
    /// The first one is glibc.
    candidates: Vec<OneCandidate<'a>>,
}

#[derive(Serialize)]
struct OneCandidate<'a> {
    label: String,
    mutex: &'a str,
    rwlock: &'a str,
    verdict: &'static str,
    /// The probability of such a difference if the lock were as good as glibc, corrected for the number of locks.
    chance: Option<f64>,
    failure: Option<OneFailure<'a>>,
    summary: BTreeMap<&'static str, Summary>,
    runs: Vec<OneRun>,
}

#[derive(Serialize)]
struct OneFailure<'a> {
    /// From 1; none during warm-up.
    round: Option<u32>,
    reason: &'a str,
    output: &'a str,
}

#[derive(Serialize)]
struct Summary {
    #[serde(flatten)]
    values: stats::Summary,
    /// Median over the rounds of this run to glibc's.
    ratio: Option<f64>,
    ratios: Vec<f64>,
}

#[derive(Serialize)]
struct OneRun {
    /// From 1.
    round: u32,
    wall_s: f64,
    user_s: f64,
    system_s: f64,
    memory_bytes: u64,
    voluntary_switches: u64,
    involuntary_switches: u64,
    metric: Option<f64>,
}

/// The document, with a line end.
pub fn text(plan: &Plan, results: &Results) -> String {
    let words = |words: &[OsString]| words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let server = match &plan.subject {
        Subject::Server(server) => Some(server),
        Subject::Program(..) => None,
    };
    let document = Document {
        latchwork: env!("CARGO_PKG_VERSION"),
        started: results.started.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        command: words(plan.subject.command()),
        built_in_program: plan.built_in,
        load: server.map(|server| words(&server.load)),
        ready: server.map(|server| match &server.ready {
            Ready::Output(expression) => expression.to_string(),
            Ready::Port(port) => port.to_string(),
        }),
        runs: match plan.length {
            Length::Rounds(rounds) => Some(rounds),
            Length::Time(_) => None,
        },
        seconds: match plan.length {
            Length::Rounds(_) => None,
            Length::Time(time) => Some(time.as_secs_f64()),
        },
        warmup: plan.warmup,
        timeout_s: plan.timeout.map(|timeout| timeout.as_secs_f64()),
        metric: plan.metric.as_ref().map(|metric| metric.expression()),
        deciding: plan.deciding().key(),
        better: if plan.better() == Better::Higher { "higher" } else { "lower" },
        rule: verdict::rule(results.locks()),
        rounds_needed: verdict::rounds_needed(results.locks()),
        interrupted: results.interrupted.is_some(),
        failure: results.failure.as_ref().map(|failure| &*failure.message),
        machine: &results.machine,
        others_cpu_share: results.others,
        warnings: &results.warnings,
        left_running: &results.left_running,
        candidates: results
            .candidates
            .iter()
            .zip(results.judgements(plan))
            .map(|(candidate, judgement)| one(plan, candidate, judgement, &results.candidates[0]))
            .collect(),
    };
    serde_json::to_string_pretty(&document).expect("plain data") + "\n"
}

/// The verdict in one word.
pub fn verdict(candidate: &Candidate, judgement: Option<Judgement>) -> &'static str {
    match judgement {
        _ if candidate.failed.is_some() => "failed",
        Some((verdict, _)) => verdict.key(),
        None => "baseline",
    }
}

fn one<'a>(
    plan: &Plan,
    candidate: &'a Candidate,
    judgement: Option<Judgement>,
    glibc: &Candidate,
) -> OneCandidate<'a> {
    let measures = Measure::all(plan.metric.is_some());
    OneCandidate {
        label: candidate.choice.label(),
        mutex: &candidate.choice.mutex,
        rwlock: &candidate.choice.rwlock,
        verdict: verdict(candidate, judgement),
        chance: judgement.and_then(|(_, chance)| chance),
        failure: candidate.failed.as_ref().map(|failed| OneFailure {
            round: failed.round.map(|round| round + 1),
            reason: &failed.why,
            output: &failed.output,
        }),
        summary: measures.iter().filter_map(|measure| summary(candidate, glibc, *measure)).collect(),
        runs: candidate
            .runs
            .iter()
            .map(|(round, run)| OneRun {
                round: round + 1,
                wall_s: run.cost.wall.as_secs_f64(),
                user_s: run.cost.user.as_secs_f64(),
                system_s: run.cost.system.as_secs_f64(),
                memory_bytes: run.cost.memory,
                voluntary_switches: run.cost.voluntary,
                involuntary_switches: run.cost.involuntary,
                metric: run.metric,
            })
            .collect(),
    }
}

fn summary(candidate: &Candidate, glibc: &Candidate, measure: Measure) -> Option<(&'static str, Summary)> {
    let values = stats::Summary::of(&candidate.values(measure))?;
    let ratios = candidate.ratios(glibc, measure);
    let ratio = (!ratios.is_empty()).then(|| stats::median(&ratios));
    Some((measure.key(), Summary { values, ratio, ratios }))
}

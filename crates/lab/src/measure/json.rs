//! The results as a JSON document: every number of every run.

use super::plan::Plan;
use super::results::{self, Point, Results, Run};
use latchwork_console::stats::Summary;
use latchwork_workloads::stage;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Document<'a> {
    latchwork: &'static str,
    command: &'a str,
    workload: &'a str,
    source: &'a str,
    operation: &'a str,
    /// Of `bench`: this machine. Of `simulate`: the profile's name.
    machine: &'a serde_json::Value,
    /// How it was run.
    options: &'a serde_json::Value,
    runs: u32,
    seed: u64,
    interrupted: bool,
    took_s: f64,
    points: Vec<OnePoint<'a>>,
}

#[derive(Serialize)]
struct OnePoint<'a> {
    lock: &'a str,
    kind: &'static str,
    threads: usize,
    settings: BTreeMap<&'static str, &'a str>,
    failure: Option<&'a str>,
    ops_per_s: Option<Summary>,
    fairness: Option<f64>,
    wait_ns: Option<Waits>,
    usage: Option<Usage>,
    extra: BTreeMap<&'static str, f64>,
    runs: Vec<OneRun<'a>>,
}

#[derive(Serialize)]
struct Waits {
    p50: f64,
    p99: f64,
    max: f64,
}

/// Processor time and context switches of all threads within the measured time.
#[derive(Serialize)]
struct Usage {
    user_ns_per_op: f64,
    system_ns_per_op: f64,
    voluntary_per_s: f64,
    involuntary_per_s: f64,
}

#[derive(Serialize)]
struct OneRun<'a> {
    ops_per_s: f64,
    operations: u64,
    measured_ns: u64,
    fairness: f64,
    wait_ns: Option<Waits>,
    per_thread: &'a [u64],
    usage: Option<Usage>,
    extra: BTreeMap<&'static str, f64>,
}

/// What differs between `bench` and `simulate`.
pub struct About<'a> {
    /// Which of them.
    pub command: &'a str,
    /// What was measured on.
    pub machine: serde_json::Value,
    /// How.
    pub options: serde_json::Value,
}

/// The document.
pub fn text(plan: &Plan, results: &Results, about: &About) -> String {
    let document = Document {
        latchwork: env!("CARGO_PKG_VERSION"),
        command: about.command,
        workload: plan.workload.name,
        source: plan.workload.source,
        operation: plan.workload.operation,
        machine: &about.machine,
        options: &about.options,
        runs: plan.runs,
        seed: plan.seed,
        interrupted: results.interrupted.is_some(),
        took_s: results.took,
        points: results.points.iter().map(|one| point(plan, one)).collect(),
    };
    let mut text = serde_json::to_string_pretty(&document).expect("plain data");
    text.push('\n');
    text
}

fn point<'a>(plan: &'a Plan, point: &'a Point) -> OnePoint<'a> {
    let lock = &plan.locks[point.place.lock];
    let extras = point.runs.iter().flat_map(|run| &run.extra);
    OnePoint {
        lock: lock.name,
        kind: lock.kind.name(),
        threads: plan.threads[point.place.threads],
        settings: plan.settings[point.place.settings].iter().map(|(name, text, _)| (name, text)).collect(),
        failure: point.failure.as_deref(),
        ops_per_s: Summary::of(&point.rates()),
        fairness: point.median(|run| run.fairness),
        wait_ns: waits(|figure| point.wait(figure)),
        usage: usage(|figure| point.used(figure)),
        extra: extras.filter_map(|(name, _)| Some((*name, point.extra(name)?))).collect(),
        runs: point
            .runs
            .iter()
            .map(|run| OneRun {
                ops_per_s: run.rate,
                operations: run.operations,
                measured_ns: run.measured_ns,
                fairness: run.fairness,
                wait_ns: waits(|figure| run.waits.as_ref().map(figure)),
                per_thread: &run.per_thread,
                usage: usage(|figure| Some(figure(run, run.usage.as_ref()?))),
                extra: run.extra.iter().copied().collect(),
            })
            .collect(),
    }
}

fn waits(of: impl Fn(fn(&results::Waits) -> f64) -> Option<f64>) -> Option<Waits> {
    Some(Waits { p50: of(|waits| waits.p50)?, p99: of(|waits| waits.p99)?, max: of(|waits| waits.max)? })
}

/// A figure of what the threads of a run used.
type Figure = fn(&Run, &stage::Usage) -> f64;

fn usage(of: impl Fn(Figure) -> Option<f64>) -> Option<Usage> {
    Some(Usage {
        user_ns_per_op: of(|run, usage| run.each(usage.user_ns))?,
        system_ns_per_op: of(|run, usage| run.each(usage.system_ns))?,
        voluntary_per_s: of(|run, usage| run.a_second(usage.voluntary))?,
        involuntary_per_s: of(|run, usage| run.a_second(usage.involuntary))?,
    })
}

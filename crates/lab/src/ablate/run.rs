//! Which points there are, and running every variant at each of them.

use super::variants::{self, Variant, Visitor, YARDSTICKS};
use super::{Options, Subject, machines};
use crate::measure::interrupt::hearing;
use crate::measure::{progress, stuck};
use crate::simulate::stage::Simulated;
use crate::simulate::sweep::in_parallel;
use crate::simulate::{How, nanos};
use indicatif::ProgressBar;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::machine::{self, Machine};
use latchwork_console::signals::Signals;
use latchwork_console::stats::{self, order};
use latchwork_sim::{MAX_THREADS, Profile};
use latchwork_workloads::load::counter::Counter;
use latchwork_workloads::load::rwbench::RwBench;
use latchwork_workloads::lock::Lock;
use latchwork_workloads::measure::{Measured, Outcome};
use latchwork_workloads::native::{self, Stop, Threads};
use latchwork_workloads::stage::Stage;
use latchwork_workloads::topology::Placement;
use latchwork_workloads::workload::{Settings, Workload};
use std::sync::Arc;
use std::time::Duration;

/// Threads for each processor.
const SUBSCRIPTIONS: [usize; 3] = [1, 2, 8];
/// What is set at the points of a mutex.
const MUTEX: [(&str, &[&str]); 2] = [("hold", &["0ns", "500ns", "5us"]), ("gap", &["0ns", "1us", "20us"])];
/// What is set at the points of a reader-writer lock. Sections and think times are in steps of 4 ns.
const RWLOCK: [(&str, &[&str]); 3] =
    [("writes", &["1/1000", "1/10"]), ("hold", &["0", "125", "1250"]), ("gap", &["0", "250", "5000"])];
/// What is added to the seeds of the variant that shows what chance does.
const OTHER_SEEDS: u64 = 1 << 32;

/// What is run.
pub struct Plan {
    /// The lock.
    pub subject: Subject,
    /// Its variants, the lock as it is first; and the number of each among all variants.
    pub variants: Vec<(usize, Variant)>,
    /// The simulated machines; none with `--native`.
    pub machines: Vec<Profile>,
    /// Every variant runs at each of them.
    pub points: Vec<Point>,
    /// How often.
    pub runs: u32,
    /// For how long.
    pub length: Duration,
    seed: u64,
}

/// Where a variant runs.
pub struct Point {
    /// Index of the simulated machine.
    pub machine: usize,
    /// Threads.
    pub threads: usize,
    /// The workload's parameters.
    pub settings: Settings,
    /// Those that differ between points, for people.
    pub text: String,
}

/// What one run did.
#[derive(Copy, Clone)]
pub struct Run {
    /// Operations a second.
    pub rate: f64,
    /// The longest wait, in nanoseconds.
    pub longest: f64,
    /// Nanoseconds of processor time for each operation, where that is known.
    pub processor: Option<f64>,
}

impl Run {
    /// On so many processors.
    fn new(measured: &Measured, cpus: usize) -> Self {
        let rate = measured.rate();
        let used = measured.usage.map(|usage| (usage.user_ns + usage.system_ns) as f64);
        // A simulation knows for how much of the time its threads slept.
        let parked = measured.extra.iter().find(|extra| extra.name == "parked").map(|extra| extra.value);
        let running = |parked: f64| (measured.per_thread.len() as f64 * (1.0 - parked)).min(cpus as f64);
        let simulated = || parked.map(|parked| running(parked) * measured.measured_ns as f64);
        let operations = measured.operations as f64;
        let processor = used.or_else(simulated).filter(|_| operations > 0.0).map(|used| used / operations);
        Run { rate, longest: measured.waits.max() as f64, processor }
    }
}

/// What came out.
pub struct Results {
    /// The runs of each variant at each point.
    pub(super) runs: Vec<Vec<Run>>,
    variants: usize,
    /// What went wrong.
    pub failures: Vec<String>,
    /// The signal that ended it early.
    pub interrupted: Option<i32>,
}

impl Plan {
    /// What the options ask for.
    pub fn new(options: &Options) -> Result<Self> {
        let wanted = |(index, variant): &(usize, Variant)| {
            *index < YARDSTICKS
                || options.only.is_empty()
                || options.only.iter().any(|word| variant.mechanism.contains(word.trim()))
        };
        let machines = match options.machine.as_slice() {
            _ if options.native => Vec::new(),
            [] => machines::all(),
            names => names
                .iter()
                .map(|name| Profile::find(name).map_err(|error| Failure::usage(error.to_string())))
                .collect::<Result<_>>()?,
        };
        let cpus = match options.native {
            true => vec![machine::cpus()],
            false => machines.iter().map(Profile::cpus).collect(),
        };
        let settings = all_settings(options.lock);
        let points = cpus.iter().enumerate().flat_map(|(machine, cpus)| {
            let settings = &settings;
            thread_counts(*cpus).into_iter().flat_map(move |threads| {
                settings.iter().map(move |(settings, text)| Point {
                    machine,
                    threads,
                    settings: settings.clone(),
                    text: text.clone(),
                })
            })
        });
        let (seconds, runs) = if options.native { (0.05, 5) } else { (0.005, 3) };
        Ok(Plan {
            subject: options.lock,
            variants: variants::list(options.lock).into_iter().enumerate().filter(wanted).collect(),
            points: points.collect(),
            machines,
            runs: options.runs.unwrap_or(runs),
            length: options.seconds.unwrap_or(Duration::from_secs_f64(seconds)),
            seed: options.seed,
        })
    }

    /// Where it runs, in a line.
    pub fn machine(&self) -> String {
        match self.machines.as_slice() {
            [] => Machine::here().line(),
            [one] => format!("{} (simulated)", one.name),
            all => format!("{} simulated ones", all.len()),
        }
    }

    fn measurements(&self) -> usize {
        self.points.len() * self.variants.len() * self.runs as usize
    }

    fn job(&self, round: u32, point: usize, variant: usize) -> Job {
        let other = if self.variants[variant].0 == 1 { OTHER_SEEDS } else { 0 };
        Job { point, variant, seed: self.seed.wrapping_add(u64::from(round)).wrapping_add(other) }
    }

    /// Runs one variant at one point, on `stage`.
    fn measure<S: Stage>(&self, job: &Job, stage: &S) -> Outcome {
        let point = &self.points[job.point];
        let wanted = self.variants[job.variant].0;
        match self.subject {
            Subject::Shfl => {
                Find::run(Counter::new(&point.settings), wanted, stage, point.threads, variants::shfl)
            }
            Subject::ShflRw => {
                Find::run(RwBench::new(&point.settings), wanted, stage, point.threads, variants::shfl_rw)
            }
            Subject::Bravo => {
                Find::run(RwBench::new(&point.settings), wanted, stage, point.threads, variants::bravo)
            }
        }
    }
}

/// Two threads, and so many for each processor.
fn thread_counts(cpus: usize) -> Vec<usize> {
    let mut counts: Vec<usize> = SUBSCRIPTIONS.iter().map(|factor| factor * cpus).collect();
    counts.push(2);
    counts.retain(|count| (2..MAX_THREADS).contains(count));
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Every combination of what is set, and its text.
fn all_settings(subject: Subject) -> Vec<(Settings, String)> {
    let (info, set): (_, &[_]) = match subject {
        Subject::Shfl => (Counter::INFO, &MUTEX),
        Subject::ShflRw | Subject::Bravo => (RwBench::INFO, &RWLOCK),
    };
    let mut all = vec![(Settings::new(info.parameters), String::new())];
    for (name, values) in set {
        let parameter = info.parameters.iter().find(|parameter| parameter.name == *name);
        let parameter = parameter.expect("a parameter of the workload");
        let with = |(settings, text): &(Settings, String), value: &str| {
            let mut settings = settings.clone();
            settings.set(parameter, value).expect("a valid value");
            let space = if text.is_empty() { "" } else { " " };
            (settings, format!("{text}{space}{name}={value}"))
        };
        all = all.iter().flat_map(|one| values.iter().map(move |value| with(one, value))).collect();
    }
    all
}

/// Runs a workload when the variant's type comes up.
struct Find<'a, W, S> {
    workload: W,
    /// How many variants come before it.
    before: usize,
    stage: &'a S,
    threads: usize,
    result: Option<Outcome>,
}

impl<'a, W: Workload, S: Stage> Find<'a, W, S> {
    fn run(
        workload: W,
        wanted: usize,
        stage: &'a S,
        threads: usize,
        visit: impl FnOnce(&mut Self),
    ) -> Outcome {
        let mut find = Find { workload, before: wanted, stage, threads, result: None };
        visit(&mut find);
        find.result.expect("the number of a variant")
    }
}

impl<W: Workload, S: Stage> Visitor<S::Machine> for Find<'_, W, S> {
    fn variant<L: Lock<Machine = S::Machine>>(&mut self, _: &'static str, _: &'static str) {
        if self.before == 0 && self.result.is_none() {
            self.result = Some(self.workload.run::<S, L>(self.stage, self.threads));
        }
        self.before = self.before.wrapping_sub(1);
    }
}

/// A variant to run once.
struct Job {
    point: usize,
    variant: usize,
    seed: u64,
}

impl Results {
    /// None yet.
    pub(super) fn new(plan: &Plan) -> Self {
        let runs = vec![Vec::new(); plan.points.len() * plan.variants.len()];
        Results { runs, variants: plan.variants.len(), failures: Vec::new(), interrupted: None }
    }

    /// The runs of a variant at a point.
    pub fn runs(&self, point: usize, variant: usize) -> &[Run] {
        &self.runs[point * self.variants + variant]
    }

    /// Its throughput in each of them.
    pub fn rates(&self, point: usize, variant: usize) -> Vec<f64> {
        self.runs(point, variant).iter().map(|run| run.rate).collect()
    }

    /// The median of these.
    pub fn rate(&self, point: usize, variant: usize) -> Option<f64> {
        stats::median_of(self.rates(point, variant))
    }

    /// The processor time of its operations as a share of the lock's as it is.
    pub fn processor(&self, point: usize, variant: usize) -> Option<f64> {
        let median =
            |variant| stats::median_of(self.runs(point, variant).iter().filter_map(|run| run.processor));
        Some(median(variant)? / median(0).filter(|time| *time > 0.0)?)
    }

    /// Its throughput as a share of the lock's as it is.
    pub fn share(&self, point: usize, variant: usize) -> Option<f64> {
        Some(self.rate(point, variant)? / self.rate(point, 0).filter(|rate| *rate > 0.0)?)
    }

    fn file(&mut self, plan: &Plan, job: &Job, result: Outcome) {
        match result {
            Ok(measured) => {
                let machine = plan.machines.get(plan.points[job.point].machine);
                let cpus = machine.map_or_else(machine::cpus, Profile::cpus);
                self.runs[job.point * self.variants + job.variant].push(Run::new(&measured, cpus));
            }
            Err(why) => {
                let (point, Variant { mechanism, change }) =
                    (&plan.points[job.point], plan.variants[job.variant].1);
                self.failures
                    .push(format!("{mechanism}, {change}; {} threads, {}: {why}", point.threads, point.text));
            }
        }
    }
}

fn watch(plan: &Plan) -> Result<(Signals, ProgressBar)> {
    let signals = Signals::watch()?;
    let bar = progress(plan.measurements());
    bar.set_message(format!("{} variants of {}", plan.variants.len(), plan.subject.name()));
    Ok((signals, bar))
}

/// Simulates the plan, or as much of it as there is until Ctrl-C.
pub fn simulated(plan: &Plan) -> Result<Results> {
    let (signals, bar) = watch(plan)?;
    let measured_ns = nanos(plan.length);
    let how = |profile: &Profile| How {
        profile: profile.clone(),
        options: latchwork_sim::Options::default(),
        measured_ns,
        warm_up_ns: measured_ns / 4,
    };
    let hows: Vec<How> = plan.machines.iter().map(how).collect();
    let variants = plan.variants.len();
    // All variants of a point come one after the other, so that after Ctrl-C the points that were reached are complete.
    let jobs: Vec<Job> = (0..plan.runs)
        .flat_map(|round| (0..plan.points.len() * variants).map(move |at| (round, at)))
        .map(|(round, at)| plan.job(round, at / variants, at % variants))
        .collect();
    let mut results = Results::new(plan);
    let work = |job: &Job| {
        let stage = Simulated::new(&hows[plan.points[job.point].machine], job.seed);
        plan.measure(job, &stage).map(|measured| stage.explain(measured))
    };
    results.interrupted =
        in_parallel(&jobs, &signals, &bar, work, |job, result| results.file(plan, job, result));
    bar.finish_and_clear();
    Ok(results)
}

/// The same on this machine: at each point the variants take turns.
pub fn natively(plan: &Plan) -> Result<Results> {
    let (signals, bar) = watch(plan)?;
    let mut results = Results::new(plan);
    let stop = Arc::new(Stop::default());
    'rounds: for round in 0..plan.runs {
        for point in 0..plan.points.len() {
            for variant in order(round as usize, plan.variants.len()) {
                results.interrupted = signals.take();
                if results.interrupted.is_some() {
                    break 'rounds;
                }
                let job = plan.job(round, point, variant);
                let options = native::Options {
                    measured: plan.length,
                    warm_up: plan.length / 5,
                    placement: Placement::Free,
                    seed: job.seed,
                };
                let stage = Threads::new(options, stuck).stopped_by(stop.clone());
                let (result, signal) = hearing(&signals, &stop, || plan.measure(&job, &stage))?;
                results.interrupted = signal;
                if signal.is_some() {
                    break 'rounds;
                }
                results.file(plan, &job, result);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    Ok(results)
}

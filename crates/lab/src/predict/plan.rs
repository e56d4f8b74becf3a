//! Which simulations there are, and what their results mean.

use super::check::{self, Check};
use super::load::{Form, Load};
use super::locks::{self, GLIBC, Make};
use super::replay::{Change, How, Outcome, replay};
use crate::measure::progress;
use crate::simulate::sweep::in_parallel;
use latchwork::registry::Kind;
use latchwork_console::failure::{Failure, Result};
use latchwork_console::names;
use latchwork_console::signals::Signals;
use latchwork_recording::trace_file::About;
use latchwork_sim::{Arbitration, Profile};

/// Acquisitions of all simulations together, if no thread waits. It bounds the time that a prediction takes.
const BUDGET: u64 = 6_000_000;
/// The fewest of one simulation, for each thread.
const LEAST_EACH: u64 = 60;
/// The most of one simulation, unless each thread must have [`LEAST_EACH`].
pub const MOST: u64 = 60_000;
/// Acquisitions of a simulation of the recording machine, to those of the others.
const AT_HOME: u64 = 4;
/// A point from which on more threads bring less than this share of the best throughput is the knee.
const KNEE: f64 = 0.9;
/// How much latencies are lowered and raised for the range.
const LATENCIES: f64 = 0.3;

/// A change that the user asks about.
#[derive(Clone, Debug, PartialEq)]
pub struct WhatIf {
    /// As the user wrote it.
    pub text: String,
    /// An index into [`Load::classes`].
    pub class: usize,
    /// What is changed.
    pub what: What,
}

/// See [`WhatIf`].
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// The lock is used in another way.
    Change(Change),
    /// The lock is another one.
    Lock(String),
}

impl WhatIf {
    /// Reads `NAME: CHANGE`.
    pub fn parse(text: &str, load: &Load) -> Result<Self> {
        let bad = |why: &str| Failure::usage(format!("--what-if '{text}': {why}"));
        let forms = "write 'NAME: hold/2', 'NAME: split 4', 'NAME: uncontended' or 'NAME: lock mcs'";
        // A name may have colons.
        let (name, change) = text.rsplit_once(": ").ok_or_else(|| bad(forms))?;
        let (name, change) = (name.trim(), change.trim());
        let class = class(name, load).map_err(|why| bad(&why))?;
        let what = match change.split_once(['/', ' ']) {
            None if change == "uncontended" => What::Change(Change::Free),
            Some(("hold", by)) => match by.trim().parse::<f64>() {
                Ok(by) if (0.01..=1000.0).contains(&by) => What::Change(Change::Hold(1.0 / by)),
                _ => return Err(bad("hold/N takes a number from 0.01 to 1000")),
            },
            Some(("split", parts)) => match parts.trim().parse::<usize>() {
                Ok(parts) if (2..=1024).contains(&parts) => What::Change(Change::Split(parts)),
                _ => return Err(bad("split N takes a number from 2 to 1024")),
            },
            Some(("lock", lock)) => What::Lock(lock.trim().into()),
            _ => return Err(bad(forms)),
        };
        Ok(WhatIf { text: text.into(), class, what })
    }
}

/// The class that a name or a part of a name means.
fn class(name: &str, load: &Load) -> std::result::Result<usize, String> {
    let is_lock =
        |class: usize| load.objects.iter().any(|object| object.class == class && object.form != Form::Event);
    let locks: Vec<usize> = (0..load.classes.len()).filter(|class| is_lock(*class)).collect();
    let exact = locks.iter().find(|class| load.classes[**class] == name);
    let parts: Vec<usize> =
        locks.iter().copied().filter(|class| load.classes[*class].contains(name)).collect();
    let list = |which: &[usize]| {
        which.iter().map(|class| load.classes[*class].as_str()).collect::<Vec<_>>().join(", ")
    };
    match (exact, &parts[..]) {
        (Some(class), _) => Ok(*class),
        (None, [class]) => Ok(*class),
        (None, []) => Err(format!("there is no such lock in the trace; it has {}", list(&locks))),
        (None, several) => Err(format!("the name fits several locks: {}", list(several))),
    }
}

/// A curve: throughput against threads, under one choice of locks.
#[derive(Clone)]
pub struct Curve {
    /// As the table names it.
    pub name: String,
    /// The algorithms, by name.
    pub mutex: String,
    /// See `mutex`.
    pub rwlock: String,
    make_mutex: Make,
    make_rwlock: Make,
    /// What is changed.
    pub what_if: Option<WhatIf>,
    other: Option<(usize, Option<Make>, Option<Make>)>,
}

impl Curve {
    fn new(mutex: &str, rwlock: &str) -> Result<Self> {
        let name = match (mutex, rwlock) {
            (GLIBC, GLIBC) => GLIBC.into(),
            (mutex, GLIBC) => mutex.into(),
            (GLIBC, rwlock) => rwlock.into(),
            (mutex, rwlock) => format!("{mutex} + {rwlock}"),
        };
        Ok(Curve {
            name,
            mutex: mutex.into(),
            rwlock: rwlock.into(),
            make_mutex: make(mutex, false)?,
            make_rwlock: make(rwlock, true)?,
            what_if: None,
            other: None,
        })
    }

    /// The locks of the recording come first: the others and the changes are compared with them. An algorithm for a kind of locks of
    /// which the program, or the class to change, has none would change nothing, and is refused.
    pub fn all(wanted: &[String], what_if: Vec<WhatIf>, about: &About, load: &Load) -> Result<Vec<Self>> {
        let recorded = Curve::new(&about.mutex, &about.rwlock)?;
        let mut curves = vec![recorded.clone()];
        if wanted.is_empty() {
            let names::Choice { mutex, rwlock } = names::default_choice();
            curves.push(Curve::new(&mutex, &rwlock)?);
        }
        for name in wanted {
            let is = |rwlock| locks::find(name, rwlock).is_some();
            let (mutex, rwlock) = (is(false), is(true));
            if mutex || rwlock {
                kinds(load, None).fits(name, mutex, rwlock, "the trace")?;
            }
            curves.push(match (name == GLIBC, mutex, rwlock) {
                (true, ..) => Curve::new(GLIBC, GLIBC)?,
                (_, true, _) => Curve::new(name, &about.rwlock)?,
                (_, _, true) => Curve::new(&about.mutex, name)?,
                _ => return Err(unknown(name)),
            });
        }
        for what_if in what_if {
            let mut curve = recorded.clone();
            if let What::Lock(name) = &what_if.what {
                let (mutex, rwlock) = (locks::find(name, false), locks::find(name, true));
                if mutex.is_none() && rwlock.is_none() {
                    return Err(unknown(name));
                }
                let class = &load.classes[what_if.class];
                kinds(load, Some(what_if.class)).fits(name, mutex.is_some(), rwlock.is_some(), class)?;
                curve.other = Some((what_if.class, mutex, rwlock));
            }
            curve.name = what_if.text.clone();
            curve.what_if = Some(what_if);
            curves.push(curve);
        }
        let mut seen = std::collections::BTreeSet::new();
        curves.retain(|curve| seen.insert(curve.name.clone()));
        Ok(curves)
    }
}

/// Whether there are mutexes and reader-writer locks among the locks of a program, or of one of its classes.
struct Kinds {
    mutex: bool,
    rwlock: bool,
}

fn kinds(load: &Load, class: Option<usize>) -> Kinds {
    let has = |form: Form| {
        let mut objects =
            load.objects.iter().filter(|object| class.is_none_or(|class| object.class == class));
        objects.any(|object| object.form == form)
    };
    Kinds { mutex: has(Form::Mutex), rwlock: has(Form::RwLock) }
}

impl Kinds {
    /// Refuses an algorithm for mutexes, for reader-writer locks or for both, if `whose` locks are none of these.
    fn fits(&self, name: &str, mutex: bool, rwlock: bool, whose: &str) -> Result<()> {
        let (is, has) = match (self.mutex, self.rwlock) {
            (true, false) if !mutex => ("a reader-writer lock", "only mutexes"),
            (false, true) if !rwlock => ("a mutex", "only reader-writer locks"),
            _ => return Ok(()),
        };
        Err(Failure::usage(format!("{name} is {is}, and {whose} has {has}")))
    }
}

fn make(name: &str, rwlock: bool) -> Result<Make> {
    locks::find(name, rwlock).ok_or_else(|| unknown(name))
}

fn unknown(name: &str) -> Failure {
    // The message of the commands that take such names, with the nearest ones.
    let error = names::check(Kind::Mutex, name).err().or_else(|| names::check(Kind::RwLock, name).err());
    error.unwrap_or_else(|| {
        Failure::usage(format!("{name}: this lock does not run in the simulator; `latchwork-lab simulate --list counter` shows those that do"))
    })
}

/// What is simulated.
pub struct Plan {
    /// The program.
    pub load: Load,
    /// The machine that is asked about.
    pub machine: Profile,
    /// The machine of the recording.
    pub home: Profile,
    /// Why it is that one.
    pub home_is: String,
    /// The curves; the first one is the recording's.
    pub curves: Vec<Curve>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Everything random follows from it.
    pub seed: u64,
    /// The most acquisitions of one simulation.
    pub most: u64,
}

/// A point of a curve.
#[derive(Clone, Debug, Default)]
pub struct Point {
    /// Acquisitions a second: lowest, median and highest.
    pub throughput: [f64; 3],
    /// Share of the threads' time spent waiting for locks (median).
    pub waiting: f64,
    /// Share of it spent waiting for what other threads do, outside of locks (median).
    pub sleeping: f64,
    /// In one of the simulations every thread waited for another one.
    pub stands_still: bool,
    /// In one of the simulations threads waited for locks that others of them held.
    pub deadlocked: bool,
    /// For each class: acquisitions a second, share of waiting, and how busy its busiest lock is (medians).
    pub classes: Vec<(f64, f64, f64)>,
}

/// What came out.
#[derive(Default)]
pub struct Answer {
    /// Whether the replay fits.
    pub check: Check,
    /// For each curve and each number of threads; empty if the prediction is refused.
    pub points: Vec<Vec<Point>>,
    /// The user wanted a prediction although the replay does not fit.
    pub anyway: bool,
}

impl Answer {
    /// Whether there is no prediction.
    pub fn is_refused(&self) -> bool {
        !self.check.refusals.is_empty() && !self.anyway
    }
}

/// A simulation: which curve (`None`: the recording machine), which number of threads, which variant.
struct Job {
    curve: Option<usize>,
    threads: usize,
    variant: usize,
}

/// What a range is made of: the arbitration, a factor for the latencies. The seed is another one in each.
const VARIANTS: [(Arbitration, f64); 5] = [
    (Arbitration::Nearest(0.8), 1.0),
    (Arbitration::Fifo, 1.0),
    (Arbitration::Random, 1.0),
    (Arbitration::Nearest(0.8), 1.0 - LATENCIES),
    (Arbitration::Nearest(0.8), 1.0 + LATENCIES),
];

impl Plan {
    /// Simulates. The inner error is the signal that ended it.
    pub fn run(&self, anyway: bool) -> Result<std::result::Result<Answer, i32>> {
        let signals = Signals::watch()?;
        let mut answer =
            Answer { check: check::of_trace(&self.load, self.home.cpus()), anyway, ..Answer::default() };
        if self.load.roles.is_empty() {
            answer.anyway = false;
            return Ok(Ok(answer));
        }
        let recorded = self.load.threads();
        let jobs: Vec<Job> =
            (0..VARIANTS.len()).map(|variant| Job { curve: None, threads: recorded, variant }).collect();
        let outcomes = match self.simulate(&jobs, &signals)? {
            Ok(outcomes) => outcomes,
            Err(signal) => return Ok(Err(signal)),
        };
        let home = Point::new(&outcomes);
        check::compare(&mut answer.check, &self.load, &home);
        if answer.is_refused() {
            return Ok(Ok(answer));
        }
        let mut jobs = Vec::new();
        for curve in 0..self.curves.len() {
            for threads in &self.threads {
                for variant in 0..VARIANTS.len() {
                    jobs.push(Job { curve: Some(curve), threads: *threads, variant });
                }
            }
        }
        let outcomes = match self.simulate(&jobs, &signals)? {
            Ok(outcomes) => outcomes,
            Err(signal) => return Ok(Err(signal)),
        };
        let points: Vec<Point> = outcomes.chunks(VARIANTS.len()).map(Point::new).collect();
        answer.points = points.chunks(self.threads.len()).map(<[Point]>::to_vec).collect();
        for (points, curve) in answer.points.iter().zip(&self.curves) {
            for (point, threads) in points.iter().zip(&self.threads).filter(|(point, _)| point.is_stuck()) {
                check::is_stuck(&mut answer.check, &format!("{} with {threads} threads", curve.name), point);
            }
        }
        let waiting = answer.points.iter().flatten().map(|point| point.waiting).fold(0.0, f64::max);
        check::not_recorded(&mut answer.check, waiting);
        if answer.is_refused() {
            answer.points.clear();
        }
        Ok(Ok(answer))
    }

    /// The outcomes, in the order of the jobs, or the signal that ended it.
    fn simulate(&self, jobs: &[Job], signals: &Signals) -> Result<std::result::Result<Vec<Outcome>, i32>> {
        let bar = progress(jobs.len());
        bar.set_message("replaying");
        let numbers: Vec<usize> = (0..jobs.len()).collect();
        let mut outcomes: Vec<Option<std::result::Result<Outcome, String>>> = vec![None; jobs.len()];
        let interrupted = in_parallel(
            &numbers,
            signals,
            &bar,
            |number| replay(&self.load, &self.how(&jobs[*number], jobs.len())),
            |number, outcome| outcomes[*number] = Some(outcome),
        );
        bar.finish_and_clear();
        if let Some(signal) = interrupted {
            return Ok(Err(signal));
        }
        let all = outcomes.into_iter().flatten().collect::<std::result::Result<Vec<_>, _>>();
        all.map(Ok).map_err(|why| Failure::new(format!("the replay fails: {why}")))
    }

    fn how(&self, job: &Job, jobs: usize) -> How {
        let (arbitration, latencies) = VARIANTS[job.variant];
        let curve = &self.curves[job.curve.unwrap_or(0)];
        let mut profile = if job.curve.is_some() { self.machine.clone() } else { self.home.clone() };
        scale(&mut profile, latencies);
        let threads = if job.curve.is_some() {
            self.load.divide(job.threads)
        } else {
            self.load.roles.iter().map(|role| role.threads).collect()
        };
        let least = LEAST_EACH * job.threads as u64;
        How {
            profile,
            mutex: curve.make_mutex,
            rwlock: curve.make_rwlock,
            other: curve.other,
            change: curve.what_if.as_ref().and_then(|what_if| match what_if.what {
                What::Change(change) => Some((what_if.class, change)),
                What::Lock(_) => None,
            }),
            threads,
            seed: self.seed.wrapping_mul(16).wrapping_add(job.variant as u64 + 1),
            arbitration,
            // The replay on the recording machine is to see most of the recording: a rare long section may be a large part of it.
            acquisitions: match job.curve {
                None => self.most * AT_HOME,
                Some(_) => (BUDGET / jobs as u64).clamp(least, self.most.max(least)),
            },
            tries_first: job.curve.is_none(),
        }
    }

    /// The place in `threads` of the knee of a curve.
    pub fn knee(points: &[Point]) -> usize {
        let best = points.iter().map(|point| point.throughput[1]).fold(0.0, f64::max);
        points.iter().position(|point| point.throughput[1] >= KNEE * best).unwrap_or(0)
    }

    /// Which curve is the best with the most threads: its place among those that `among` admits. `None`: undecided.
    pub fn best(points: &[Vec<Point>], among: impl Fn(usize) -> bool) -> Option<usize> {
        let last = |curve: usize| points[curve].last().map_or([0.0; 3], |point| point.throughput);
        let mut curves: Vec<usize> = (0..points.len()).filter(|curve| among(*curve)).collect();
        curves.sort_by(|first, second| last(*second)[1].total_cmp(&last(*first)[1]));
        match curves[..] {
            [] => None,
            [only] => Some(only),
            [first, ..] => {
                let others = curves[1..].iter().map(|curve| last(*curve)[2]).fold(0.0, f64::max);
                (last(first)[0] > others).then_some(first)
            }
        }
    }
}

impl Point {
    /// Whether in one of the simulations no thread could go on.
    pub fn is_stuck(&self) -> bool {
        self.stands_still || self.deadlocked
    }

    fn new(outcomes: &[Outcome]) -> Self {
        let sorted = |value: &dyn Fn(&Outcome) -> f64| {
            let mut values: Vec<f64> = outcomes.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let median = |value: &dyn Fn(&Outcome) -> f64| sorted(value)[outcomes.len() / 2];
        let throughput = sorted(&|outcome| outcome.throughput);
        let classes = outcomes.first().map_or(0, |outcome| outcome.classes.len());
        Point {
            throughput: [throughput[0], throughput[outcomes.len() / 2], throughput[outcomes.len() - 1]],
            waiting: median(&|outcome| outcome.waiting),
            sleeping: median(&|outcome| outcome.sleeping),
            stands_still: outcomes.iter().any(|outcome| outcome.stands_still),
            deadlocked: outcomes.iter().any(|outcome| outcome.deadlocked),
            classes: (0..classes)
                .map(|class| {
                    (
                        median(&|outcome| outcome.classes[class].0),
                        median(&|outcome| outcome.classes[class].1),
                        median(&|outcome| outcome.classes[class].2),
                    )
                })
                .collect(),
        }
    }
}

/// Changes the latencies of transfers, of system calls and of waking.
pub(super) fn scale(profile: &mut Profile, by: f64) {
    let lines = &mut profile.lines;
    let always = [&mut lines.sibling, &mut lines.cluster, &mut lines.cluster_modified];
    let more =
        [&mut lines.dram_local, &mut lines.third_party, &mut lines.home_at_reader, &mut lines.per_sharer];
    let sometimes = [
        &mut lines.socket,
        &mut lines.socket_modified,
        &mut lines.hop,
        &mut lines.hop_modified,
        &mut lines.two_hops,
        &mut lines.two_hops_modified,
        &mut lines.dram_remote,
    ];
    let kernel = &mut profile.kernel;
    let system = [&mut kernel.wake, &mut kernel.wakeup, &mut kernel.context_switch, &mut kernel.syscall];
    // What was measured of more special cases. `falls_asleep` says when these are, and stays.
    let special = [
        &mut kernel.wakeup_soon,
        &mut kernel.wake_early,
        &mut kernel.wakeup_early,
        &mut kernel.wakeup_busy,
        &mut kernel.futex_wait,
        &mut kernel.futex_wake,
    ];
    let shared = profile.memory.as_mut().map(|memory| &mut memory.shared_hit);
    let given = sometimes.into_iter().chain(special).flatten().chain(shared);
    let all = always.into_iter().chain(more).chain(system).chain(given);
    all.for_each(|number| number.value *= by);
}

//! Searching: many schedules of many clients; and the first that fails, made small.

use super::Mistake;
use super::client::{Client, THREADS, What};
use super::engine::{Engine, Setup};
use super::machine::Explore;
use super::map::Map;
use super::mutex::{self, Leaves, Mutex};
use super::plan::{Chain, Chance, Decision, Source};
use super::reclamation::{Never, Periods, Reclamation};
use super::rwlock::{self, Downgrades, RwLock, Upgrades};
use super::semaphore::Semaphore;
use super::seqlock::SeqLock;
use super::subject::Subject;
use super::tables::{Hashed, Ordered};
use super::world::World;
use crate::rng::Rng;
use latchwork::locks::mutex::shfl::RawShfl;
use latchwork::locks::mutex::{Fair, Info, RawMutex, Suspension};
use latchwork::locks::rwlock::{RawDowngrade, RawFair, RawRwLock, RawUpgrade};
use latchwork::locks::semaphore::Unit;
use latchwork::locks::seqlock::RawSeqLock;
use latchwork::reclaim::counted::CountedDomain;
use latchwork::reclaim::epoch::EpochDomain;
use latchwork::reclaim::hazard::HazardDomain;
use latchwork::reclaim::interval::IntervalDomain;
use latchwork::reclaim::qsbr::QsbrDomain;
use latchwork::reclaim::rcu::RcuDomain;
use latchwork::reclaim::{GracePeriod, Reclaim};
use latchwork::registry::{Visitor, visit};
use std::cell::Cell;
use std::fmt::Write as _;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Schedules of a client.
const SCHEDULES: u64 = 16;

/// How to explore.
#[derive(Copy, Clone, Debug)]
pub struct Settings {
    /// The promise that the machine breaks.
    pub mistake: Mistake,
    /// Whether a failure is made small, and shown.
    pub shrink: bool,
    /// Whether a thread that waits is stopped for ever, for locks that promise to stay available then.
    pub freeze: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { mistake: Mistake::None, shrink: true, freeze: false }
    }
}

/// What can be explored.
#[derive(Copy, Clone)]
pub struct Target {
    /// Its name.
    pub name: &'static str,
    /// `mutex`, `rwlock`, ...
    pub kind: &'static str,
    /// Whether it promises to stay available with a waiter that is suspended for ever.
    pub tolerates_suspension: bool,
    calls: Calls,
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Schedules.
    pub schedules: u64,
    /// Steps of all of them.
    pub steps: u64,
    /// The first that failed.
    pub failure: Option<Failure>,
}

/// A schedule that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Which one: the same again fails again.
    pub seed: u64,
    /// What did not hold.
    pub message: String,
    /// The client and the trace, made small.
    pub trace: String,
}

/// What the search needs of a [`Subject`]. So it is compiled once, and not once for each lock.
#[derive(Copy, Clone)]
struct Calls {
    client: fn(&mut Rng) -> Client,
    valid: fn(&Client) -> bool,
    another: fn(&Client, &mut Rng) -> Option<What>,
    /// One schedule of a client, from a fresh subject on.
    run: fn(&Engine, &Client) -> Result<(), String>,
}

impl Calls {
    const fn of<S: Subject>() -> Calls {
        Calls { client: S::client, valid: S::valid, another: S::another, run: run::<S> }
    }
}

fn run<S: Subject>(engine: &Engine, client: &Client) -> Result<(), String> {
    let subject = S::new(engine, client);
    engine.run(client.threads, &|thread| subject.run(client, thread), &|| subject.after(client))
}

impl Target {
    fn new(kind: &'static str, info: Info, calls: Calls) -> Target {
        let tolerates_suspension = info.suspension == Suspension::Tolerates;
        Target { name: info.name, kind, tolerates_suspension, calls }
    }

    fn strategy(name: &'static str, calls: Calls) -> Target {
        Target { name, kind: "reclamation", tolerates_suspension: false, calls }
    }

    /// A mutex, and condition variables over it.
    pub fn mutex<L: RawMutex<Machine = Explore>>() -> Target {
        Target::new("mutex", L::INFO, Calls::of::<Mutex<L, mutex::Plain>>())
    }

    /// A sequence lock with `L` as its writers' mutex.
    pub fn seqlock<L: RawMutex<Machine = Explore>>() -> Target {
        Target::new("seqlock", RawSeqLock::<L>::INFO, Calls::of::<SeqLock<L>>())
    }

    /// The semaphore.
    pub fn semaphore() -> Target {
        Target::new("semaphore", Unit::<Explore>::INFO, Calls::of::<Semaphore>())
    }

    /// A mutex that a holder can leave to a waiter.
    pub fn fair_mutex<L: Fair<Machine = Explore>>() -> Target {
        Target::new("mutex", L::INFO, Calls::of::<Mutex<L, Leaves>>())
    }

    /// A reader-writer lock.
    pub fn rwlock<R: RawRwLock<Machine = Explore>>() -> Target {
        Target::new("rwlock", R::INFO, Calls::of::<RwLock<R, rwlock::Plain>>())
    }

    /// A reader-writer lock with downgrades.
    pub fn downgradable<R: RawDowngrade<Machine = Explore>>() -> Target {
        Target::new("rwlock", R::INFO, Calls::of::<RwLock<R, Downgrades>>())
    }

    /// A reader-writer lock with downgrades, upgradable reads and fair unlocks.
    pub fn upgradable<R: RawUpgrade<Machine = Explore> + RawFair>() -> Target {
        Target::new("rwlock", R::INFO, Calls::of::<RwLock<R, Upgrades>>())
    }

    /// A strategy of reclamation that has grace periods.
    pub fn grace<D: GracePeriod<Machine = Explore>>() -> Target {
        Target::strategy(D::INFO.name, Calls::of::<Reclamation<D, Periods>>())
    }

    /// One that has none.
    pub fn reclaim<D: Reclaim<Machine = Explore>>() -> Target {
        Target::strategy(D::INFO.name, Calls::of::<Reclamation<D, Never>>())
    }

    /// The hash map over RCU, with this lock for its updates.
    pub fn map<L: RawMutex<Machine = Explore>>() -> Target {
        let calls = Calls::of::<Map<Hashed<L>>>();
        Target { name: "rcu-map", kind: "map", tolerates_suspension: false, calls }
    }

    /// The ordered map over RCU, with this lock for its updates.
    pub fn tree<L: RawMutex<Machine = Explore>>() -> Target {
        let calls = Calls::of::<Map<Ordered<L>>>();
        Target { name: "rcu-tree-map", kind: "map", tolerates_suspension: false, calls }
    }

    /// Runs the schedules with these numbers, until one fails.
    pub fn explore(&self, settings: &Settings, seeds: Range<u64>) -> Outcome {
        explore(self.calls, settings, seeds)
    }
}

/// Everything in the registry, the semaphore, the strategies of reclamation, and the maps.
pub fn targets() -> Vec<Target> {
    struct All(Vec<Target>);
    impl Visitor<Explore> for All {
        fn mutex<L: RawMutex<Machine = Explore>>(&mut self) {
            self.0.push(Target::mutex::<L>());
        }
        fn seqlock<L: RawMutex<Machine = Explore>>(&mut self) {
            self.0.push(Target::seqlock::<L>());
        }
        fn rwlock<R: RawRwLock<Machine = Explore>>(&mut self) {
            self.0.push(Target::rwlock::<R>());
        }
        fn fair_mutex<L: Fair<Machine = Explore>>(&mut self) {
            self.0.push(Target::fair_mutex::<L>());
        }
        fn downgradable<R: RawDowngrade<Machine = Explore>>(&mut self) {
            self.0.push(Target::downgradable::<R>());
        }
        fn upgradable<R: RawUpgrade<Machine = Explore> + RawFair>(&mut self) {
            self.0.push(Target::upgradable::<R>());
        }
    }
    let mut all = All(Vec::new());
    visit(&mut all);
    all.0.extend([
        Target::semaphore(),
        Target::grace::<QsbrDomain<Explore>>(),
        Target::grace::<RcuDomain<Explore>>(),
        Target::grace::<EpochDomain<Explore>>(),
        Target::reclaim::<IntervalDomain<Explore, 0>>(),
        Target::reclaim::<HazardDomain<Explore>>(),
        Target::reclaim::<CountedDomain<Explore>>(),
        Target::map::<RawShfl<Explore>>(),
        Target::tree::<RawShfl<Explore>>(),
    ]);
    all.0
}

/// Explores all of these on all processors, and calls `each` with what came of it, in the order in which they come to
/// their end.
pub fn explore_all(
    targets: &[Target],
    settings: &Settings,
    seeds: Range<u64>,
    each: impl Fn(&Target, &Outcome) + Sync,
) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads.min(targets.len()) {
            scope.spawn(|| {
                while let Some(target) = targets.get(next.fetch_add(1, Relaxed)) {
                    each(target, &target.explore(settings, seeds.clone()));
                }
            });
        }
    });
}

/// Runs schedules.
struct Explorer<'a> {
    engine: &'a Engine,
    calls: Calls,
    mistake: Mistake,
    freezes: bool,
    /// The thread that is stopped where it waits, and from which step on.
    freeze: Cell<Option<(usize, u32)>>,
    /// Steps that may still be taken to make a failure small.
    budget: Cell<u64>,
}

/// Steps that may be taken to make a failure small.
const BUDGET: u64 = 5_000_000;

impl Explorer<'_> {
    fn one(&self, client: &Client, source: Source, record: bool, trace: bool) -> Result<(), String> {
        let setup = Setup {
            threads: client.threads,
            source,
            record,
            trace,
            mistake: self.mistake,
            patience: client.patience,
            nodes: client.nodes,
            freeze: self.freeze.get(),
            refused_fences: client.refused,
            whole_releases: client.whole,
        };
        self.engine.begin(setup, client.grouped);
        let result = (self.calls.run)(self.engine, client);
        self.budget.update(|left| left.saturating_sub(u64::from(self.engine.with(|s| s.step))));
        result
    }

    fn length(&self, client: &Client) -> Result<(u32, u32), String> {
        self.one(client, Source::Chance(Chance::straight()), false, false)?;
        Ok(self.engine.with(|s| (s.step, s.marks)))
    }
}

/// Engines that nobody uses: what they have is never freed, as locks keep references to it.
static ENGINES: std::sync::Mutex<Vec<Spare>> = std::sync::Mutex::new(Vec::new());

struct Spare(Box<Engine>);
// SAFETY: no coroutine of it is alive, and it is used by one OS thread at a time.
unsafe impl Send for Spare {}

fn explore(calls: Calls, settings: &Settings, seeds: Range<u64>) -> Outcome {
    let spare = ENGINES.lock().ok().and_then(|mut engines| engines.pop());
    let engine = spare.map_or_else(|| Engine::new(Box::new(World::new())), |spare| spare.0);
    let outcome = explore_with(&engine, calls, settings, seeds);
    if let Ok(mut engines) = ENGINES.lock() {
        engines.push(Spare(engine));
    }
    outcome
}

fn explore_with(engine: &Engine, calls: Calls, settings: &Settings, seeds: Range<u64>) -> Outcome {
    engine.enter(|| {
        let Settings { mistake, freeze: freezes, .. } = *settings;
        let (freeze, budget) = (Cell::new(None), Cell::new(BUDGET));
        let explorer = Explorer { engine, calls, mistake, freezes, freeze, budget };
        engine.with(|s| s.coverage.forget());
        let mut outcome = Outcome::default();
        let mut fresh = None;
        let mut corpus: Vec<Promising> = Vec::new();
        for seed in seeds {
            let rng = &mut Rng::new(seed ^ 0xc0ff_ee00_0000_0000);
            // Half of the schedules go on from one that has come to a rare state.
            let from =
                (!corpus.is_empty() && rng.below(2) == 0).then(|| rng.below(corpus.len() as u64) as usize);
            let (client, length, chain) = match from {
                Some(at) => {
                    let Promising { mut client, length, mut chain, step, operations } = corpus[at];
                    client.vary(operations, rng, calls.another);
                    chain.push(step, seed);
                    (client, length, chain)
                }
                None => {
                    let number = seed / SCHEDULES;
                    let (client, length) = match fresh {
                        Some((of, client, length)) if of == number => (client, length),
                        _ => {
                            let client = (calls.client)(&mut Rng::new(number));
                            // If that fails, so does its first schedule below, soon.
                            explorer.freeze.set(None);
                            let length = explorer.length(&client).unwrap_or((64, 16));
                            fresh = Some((number, client, length));
                            (client, length)
                        }
                    };
                    (client, length, Chain::new(seed))
                }
            };
            let chance = Chance::start(chain, length);
            explorer.freeze.set((explorer.freezes && !client.market).then(|| {
                let thread = rng.below(client.threads as u64) as usize;
                (thread, rng.below(u64::from(length.0)) as u32)
            }));
            let result = explorer.one(&client, Source::Chance(chance.clone()), false, false);
            outcome.schedules += 1;
            let (steps, step, operations) =
                engine.with(|s| (s.step, s.coverage.rare_at, s.coverage.operations));
            outcome.steps += u64::from(steps);
            if let Err(message) = result {
                let trace = match settings.shrink {
                    true => explorer.shrink(client, chance, &message),
                    false => client.to_string(),
                };
                outcome.failure = Some(Failure { seed, message, trace });
                break;
            }
            if step > 0 && !chain.is_full() {
                let promising = Promising { client, length, chain, step, operations };
                if corpus.len() < CORPUS {
                    corpus.push(promising);
                } else {
                    corpus[rng.below(CORPUS as u64) as usize] = promising;
                }
            }
        }
        outcome
    })
}

/// A schedule that has come to a rare state.
#[derive(Copy, Clone)]
struct Promising {
    client: Client,
    length: (u32, u32),
    chain: Chain,
    /// When it did, and in which operations the threads were.
    step: u32,
    operations: [u8; THREADS],
}

/// As many of them are kept.
const CORPUS: usize = 4096;

/// What a failure is about, without numbers: to tell it from another one.
fn sort_of(message: &str) -> String {
    let end = message.find([':', '(']).unwrap_or(message.len());
    message[..end].chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// Without as many decisions as possible.
fn fewer(mut decisions: Vec<Decision>, fails: impl Fn(&[Decision]) -> bool) -> Vec<Decision> {
    // Without so many at a time, then fewer.
    let mut size = decisions.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < decisions.len() {
            let mut less = decisions.clone();
            less.drain(at..(at + size).min(decisions.len()));
            if fails(&less) {
                decisions = less;
            } else {
                at += size;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    decisions
}

/// Lines of a trace at most; the last ones.
const LINES: usize = 400;

/// Schedules of a smaller client before it counts as one that does not fail.
const ATTEMPTS: u64 = 500;

impl Explorer<'_> {
    /// Makes a failing schedule small, and shows it.
    fn shrink(&self, client: Client, chance: Chance, message: &str) -> String {
        let sort = sort_of(message);
        self.budget.set(BUDGET);
        let recorded = |client: &Client, chance: Chance| {
            let result = self.one(client, Source::Chance(chance), true, false);
            let same = result.is_err_and(|message| sort_of(&message) == sort);
            same.then(|| self.engine.with(|s| s.record.take().unwrap_or_default()))
        };
        let Some(mut decisions) = recorded(&client, chance) else {
            return "(the same schedule does not fail again: this is a mistake of the explorer)".into();
        };
        let fails = |client: &Client, decisions: &[Decision]| {
            let source = Source::Record(decisions.to_vec());
            self.one(client, source, false, false).is_err_and(|message| sort_of(&message) == sort)
        };
        let mut text = String::new();
        if !fails(&client, &decisions) {
            text.push_str("(the record of the schedule does not fail: this is a mistake of the explorer)\n");
        }
        let mut client = client;
        'smaller: loop {
            decisions = fewer(decisions, |less| fails(&client, less));
            for less in client.smaller().into_iter().filter(self.calls.valid) {
                if fails(&less, &decisions) {
                    client = less;
                    continue 'smaller;
                }
            }
            for less in client.smaller().into_iter().filter(self.calls.valid) {
                if self.budget.get() == 0 {
                    break 'smaller;
                }
                let Ok(length) = self.length(&less) else { continue };
                for seed in 0..ATTEMPTS {
                    if let Some(found) = recorded(&less, Chance::start(Chain::new(seed), length)) {
                        (client, decisions) = (less, found);
                        continue 'smaller;
                    }
                }
            }
            break;
        }
        let result = self.one(&client, Source::Record(decisions.clone()), false, true);
        let _ = write!(text, "{client}  {} decisions\n\n", decisions.len());
        let lines = self.engine.with(|s| s.trace.take()).unwrap_or_default();
        let left_out = lines.len().saturating_sub(LINES);
        if left_out > 0 {
            let _ = writeln!(text, "  ({left_out} lines left out)");
        }
        for line in &lines[left_out..] {
            let _ = writeln!(text, "  {:indent$}{} {}", "", line.thread, line.text, indent = 4 * line.thread);
        }
        let _ = writeln!(text, "  {}", result.err().unwrap_or_else(|| "(no failure)".into()));
        text
    }
}

//! The scenarios of a lock, and their order.

use crate::copies::{Copies, MadeCopied, Make, WORDS};
use crate::jitter::Jitter;
use crate::ledger::{Habits, Ledger};
use crate::lock::{Class, Exclusive, Made, Shared};
use crate::manners::Manners;
use crate::market::Market;
use crate::modes::{Downgrades, Leaves, Upgrades};
use crate::priorities::{PRIORITIES, under_priorities};
use crate::random::Random;
use crate::report::{Failed, Progress, Report};
use crate::reuse::Reuse;
use crate::run::{Bounds, Failure, Outcome, run};
use latchwork::locks::mutex::{Fair, RawMutex};
use latchwork::locks::rwlock::{RawDowngrade, RawFair, RawRwLock, RawUpgrade};
use latchwork::locks::seqlock::{RawSeqLock, SeqLock};
use latchwork::machine::{Machine, Native};
use latchwork::registry::{self, Kind, Visitor};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// One thing that is done to one lock.
pub struct Scenario {
    /// Which.
    pub name: &'static str,
    /// The machine that the lock runs on.
    pub machine: &'static str,
    run: Run,
}

type Run = fn(Bounds, &AtomicBool) -> Outcome;

/// For how long, with how many, and with what chance.
#[derive(Copy, Clone, Debug)]
pub struct Settings {
    /// Threads that use the lock at a time.
    pub threads: usize,
    /// All rounds together.
    pub time: Duration,
    /// A round at most.
    pub round: Duration,
    /// See [`Bounds::patience`].
    pub patience: Duration,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl Settings {
    /// Threads if nothing else is said: more than processors, and enough to queue.
    pub fn default_threads() -> usize {
        let processors = std::thread::available_parallelism().map_or(2, |n| n.get());
        (4 * processors).clamp(8, 256)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            threads: Self::default_threads(),
            time: Duration::from_secs(10),
            round: Duration::from_secs(1),
            patience: Duration::from_secs(30),
            seed: 1,
        }
    }
}

pub(crate) fn manners<L: Made>(bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    run(Manners(Class::of::<L>()), Bounds { disturb: false, ..bounds }, cancelled)
}

pub(crate) fn exclusion<L: Made>(bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    ledger(Class::of::<L>(), bounds, cancelled, false)
}

pub(crate) fn abandonment<L: Made>(bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    ledger(Class::of::<L>(), bounds, cancelled, true)
}

pub(crate) fn priorities<L: Made>(bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    ledger_under_priorities(Class::of::<L>(), bounds, cancelled)
}

/// Of a mutex: half of the rounds are exclusion, the others condition.
fn priorities_of_mutex<L: Made>(bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    if Random::new(bounds.seed).once_in(2) {
        market_under_priorities::<L::Machine>(Class::of::<L>(), bounds, cancelled)
    } else {
        ledger_under_priorities(Class::of::<L>(), bounds, cancelled)
    }
}

fn ledger_under_priorities(class: &'static Class, bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    let habits = Habits { books: 1, writes: 2, impatient: false };
    under_priorities(Ledger::new(class, PRIORITIES, habits), bounds, cancelled)
}

fn market_under_priorities<M: Machine>(
    class: &'static Class,
    bounds: Bounds,
    cancelled: &AtomicBool,
) -> Outcome {
    let singly = Random::new(bounds.seed.rotate_left(1)).once_in(2);
    under_priorities(Market::<M>::new(class, PRIORITIES, 1, singly), bounds, cancelled)
}

fn ledger(class: &'static Class, bounds: Bounds, cancelled: &AtomicBool, impatient: bool) -> Outcome {
    let mut random = Random::new(bounds.seed);
    let habits = Habits { books: random.pick(&[1, 1, 3]), writes: random.pick(&[2, 8, 64]), impatient };
    let ledger = Ledger::new(class, bounds.threads, habits);
    let company = ledger.company();
    let mut outcome = run(ledger, bounds, cancelled);
    outcome.readers_at_once = company.load(Relaxed);
    outcome
}

pub(crate) fn condition<L: Made>(bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    market::<L::Machine>(Class::of::<L>(), bounds, cancelled)
}

fn market<M: Machine>(class: &'static Class, bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    let mut random = Random::new(bounds.seed);
    let (room, singly) = (random.pick(&[1, 2, 5]), random.once_in(2));
    run(Market::<M>::new(class, bounds.threads, room, singly), bounds, cancelled)
}

pub(crate) fn reuse<L: Made>(bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    run(Reuse::new(Class::of::<L>(), bounds.threads), bounds, cancelled)
}

pub(crate) fn copies<C: MadeCopied>(bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    copies_of(|| Box::new(C::new()), bounds, cancelled)
}

fn copies_of(make: Make, bounds: Bounds, cancelled: &AtomicBool) -> Outcome {
    let mut random = Random::new(bounds.seed);
    run(Copies::new(make, bounds.threads, random.pick(&[2, 8, 64])), bounds, cancelled)
}

impl Scenario {
    pub(crate) fn new(name: &'static str, machine: &'static str, run: Run) -> Self {
        Scenario { name, machine, run }
    }
}

fn machine<M: Machine>() -> &'static str {
    if std::any::TypeId::of::<M>() == std::any::TypeId::of::<Native>() { "native" } else { "jitter" }
}

/// What is done to a mutex, on its machine.
pub fn of_mutex<L: RawMutex>() -> Vec<Scenario> {
    all_of_mutex::<Exclusive<L>>()
}

/// What is done to a mutex that a holder can leave to a waiter.
fn of_fair_mutex<L: Fair>() -> Vec<Scenario> {
    all_of_mutex::<Exclusive<L, Leaves>>()
}

fn all_of_mutex<L: Made>() -> Vec<Scenario> {
    let machine = machine::<L::Machine>();
    vec![
        Scenario::new("manners", machine, manners::<L>),
        Scenario::new("exclusion", machine, exclusion::<L>),
        Scenario::new("abandonment", machine, abandonment::<L>),
        Scenario::new("condition", machine, condition::<L>),
        Scenario::new("priorities", machine, priorities_of_mutex::<L>),
        Scenario::new("reuse", machine, reuse::<L>),
    ]
}

/// What is done to a reader-writer lock, on its machine.
pub fn of_rwlock<R: RawRwLock>() -> Vec<Scenario> {
    all_of_rwlock::<Shared<R>>()
}

/// What is done to a reader-writer lock with downgrades.
fn of_downgradable<R: RawDowngrade>() -> Vec<Scenario> {
    all_of_rwlock::<Shared<R, Downgrades>>()
}

/// What is done to a reader-writer lock with downgrades, upgradable reads and fair unlocks.
pub fn of_upgradable<R: RawUpgrade + RawFair>() -> Vec<Scenario> {
    all_of_rwlock::<Shared<R, Upgrades>>()
}

fn all_of_rwlock<L: Made>() -> Vec<Scenario> {
    let machine = machine::<L::Machine>();
    vec![
        Scenario::new("manners", machine, manners::<L>),
        Scenario::new("exclusion", machine, exclusion::<L>),
        Scenario::new("abandonment", machine, abandonment::<L>),
        Scenario::new("priorities", machine, priorities::<L>),
        Scenario::new("reuse", machine, reuse::<L>),
    ]
}

/// What is done to a sequence lock, on its machine.
pub fn of_seqlock<L: RawMutex>() -> Vec<Scenario> {
    vec![Scenario::new("copies", machine::<L::Machine>(), copies::<SeqLock<L, WORDS>>)]
}

/// What is done to the lock `name` of the library, on both machines; nothing if there is no such lock.
pub fn registered(kind: Kind, name: &str) -> Vec<Scenario> {
    struct Find<'a> {
        kind: Kind,
        name: &'a str,
        found: Vec<Scenario>,
    }
    impl Find<'_> {
        fn add(&mut self, kind: Kind, name: &str, scenarios: fn() -> Vec<Scenario>) {
            if (self.kind, self.name) == (kind, name) {
                self.found.extend(scenarios());
            }
        }
    }
    impl<M: Machine> Visitor<M> for Find<'_> {
        fn mutex<L: RawMutex<Machine = M>>(&mut self) {
            self.add(Kind::Mutex, L::INFO.name, of_mutex::<L>);
        }
        fn fair_mutex<L: Fair<Machine = M>>(&mut self) {
            self.add(Kind::Mutex, L::INFO.name, of_fair_mutex::<L>);
        }
        fn rwlock<R: RawRwLock<Machine = M>>(&mut self) {
            self.add(Kind::RwLock, R::INFO.name, of_rwlock::<R>);
        }
        fn downgradable<R: RawDowngrade<Machine = M>>(&mut self) {
            self.add(Kind::RwLock, R::INFO.name, of_downgradable::<R>);
        }
        fn upgradable<R: RawUpgrade<Machine = M> + RawFair>(&mut self) {
            self.add(Kind::RwLock, R::INFO.name, of_upgradable::<R>);
        }
        fn seqlock<L: RawMutex<Machine = M>>(&mut self) {
            self.add(Kind::SeqLock, RawSeqLock::<L>::INFO.name, of_seqlock::<L>);
        }
    }
    let mut find = Find { kind, name, found: Vec::new() };
    registry::visit::<Native>(&mut find);
    registry::visit::<Jitter>(&mut find);
    find.found
}

/// Runs the scenarios in turn until the time is over, the lock has failed, or `cancelled` is set.
/// `tell` is called before each round.
pub fn torture(
    scenarios: &[Scenario],
    settings: Settings,
    cancelled: &AtomicBool,
    mut tell: impl FnMut(Progress),
) -> Report {
    let start = Instant::now();
    let mut seeds = Random::new(settings.seed);
    let mut report = Report::default();
    // Every scenario has its turn, however short the time.
    let round = (settings.time / scenarios.len().max(1) as u32).min(settings.round);
    for (index, scenario) in scenarios.iter().cycle().enumerate() {
        let elapsed = start.elapsed();
        let all_had_their_turn = index >= scenarios.len();
        if cancelled.load(Relaxed) || all_had_their_turn && elapsed + round / 2 > settings.time {
            break;
        }
        tell(Progress {
            scenario: scenario.name.to_owned(),
            machine: scenario.machine.to_owned(),
            seconds: elapsed.as_secs_f64(),
            operations: report.totals.operations,
        });
        let bounds = Bounds {
            threads: settings.threads,
            // Manners are not a matter of time.
            time: if scenario.name == "manners" { round.min(Duration::from_millis(100)) } else { round },
            patience: settings.patience,
            seed: seeds.number(),
            // A signal may wake a forgotten waiter, so half of the rounds run without signals.
            disturb: (scenario.machine == "native") == (index / scenarios.len()).is_multiple_of(2),
        };
        let outcome = (scenario.run)(bounds, cancelled);
        report.totals.add(&outcome);
        report.away_s += outcome.away.as_secs_f64();
        if let Some(failure) = outcome.failure {
            let (what, state) = match failure {
                Failure::Broken(what) => (what, Vec::new()),
                Failure::Stuck { seconds, state } => {
                    (format!("it stands still: no operation ended in {seconds} s"), state)
                }
            };
            report.failed = Some(Failed {
                scenario: scenario.name.to_owned(),
                machine: scenario.machine.to_owned(),
                round_seed: bounds.seed,
                what,
                state,
            });
            break;
        }
        report.rounds += 1;
    }
    report.seconds = start.elapsed().as_secs_f64();
    report
}

//! Every lock under many schedules of many clients; and mistakes, which the same schedules must find.
//!
//! `LATCHWORK_LOCK=name` runs one lock only (or several, separated by commas). `LATCHWORK_EXPLORE=10000000` runs so
//! many schedules of each; 200 000 if it is not set.

mod mcs_rw_before;

use crate::broken;
use latchwork_sim::explore::{Explore, Failure, Mistake, Outcome, Settings, Target, explore_all, targets};
use std::sync::Mutex;

/// Schedules in which a mistake must be found.
const ENOUGH: u64 = 50_000;

fn schedules() -> u64 {
    std::env::var("LATCHWORK_EXPLORE").map_or(200_000, |n| n.parse().expect("a number of schedules"))
}

fn wanted(name: &str) -> bool {
    std::env::var("LATCHWORK_LOCK").map_or(true, |only| only.split(',').any(|one| one == name))
}

fn shown(target: &Target, failure: &Failure) -> String {
    format!("{target:?}, schedule {}: {}\n{}", failure.seed, failure.message, failure.trace)
}

#[test]
fn every_lock_under_many_schedules() {
    let all: Vec<Target> = targets().into_iter().filter(|target| wanted(target.name)).collect();
    let failures = Mutex::new(Vec::new());
    explore_all(&all, &Settings::default(), 0..schedules(), |target, outcome| {
        eprintln!("{target:?}: {} schedules, {} steps", outcome.schedules, outcome.steps);
        assert!(outcome.steps > 10 * outcome.schedules, "{target:?}: hardly anything is explored");
        if let Some(failure) = &outcome.failure {
            failures.lock().unwrap().push(shown(target, failure));
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The first failure of a target in enough schedules.
fn failure(target: &Target, settings: &Settings) -> Option<Failure> {
    target.explore(settings, 0..ENOUGH).failure
}

fn named(name: &str) -> Target {
    targets().into_iter().find(|target| target.name == name).expect("in the registry")
}

/// A failure that says one of these things.
fn must_fail(target: &Target, settings: &Settings, symptoms: &[&str]) {
    let failure = failure(target, settings);
    let failure = failure.unwrap_or_else(|| panic!("{target:?}, {settings:?}: not found"));
    let expected = symptoms.iter().any(|symptom| failure.message.contains(symptom));
    assert!(expected, "{target:?}, {settings:?}: {}", failure.message);
}

const STUCK: &str = "all threads wait";
const CIRCLES: &str = "go round in circles";
const BESIDE: &str = "beside";
const RECLAIMED: &str = "was reclaimed";

#[test]
fn broken_locks_are_found() {
    use broken::*;
    let settings = Settings { shrink: false, ..Settings::default() };
    let two = "at the same time";
    must_fail(&Target::mutex::<TestThenSet<Explore>>(), &settings, &[two, "nobody else used it"]);
    must_fail(&Target::mutex::<DropsWakes<Explore>>(), &settings, &[STUCK]);
    must_fail(&Target::mutex::<ForgetsToGrant<Explore>>(), &settings, &[STUCK, "nobody else used it"]);
    must_fail(
        &Target::mutex::<ForgetsToClear<Explore>>(),
        &settings,
        &[CIRCLES, "nobody else used it", "looks locked"],
    );
    must_fail(&Target::mutex::<LeavesItsTicket<Explore>>(), &settings, &[STUCK, "nobody else used it"]);
    must_fail(&Target::rwlock::<OverlooksReaders<Explore>>(), &settings, &[BESIDE, "nobody else used it"]);
}

/// The announcement of a waiter falls between the load and the store of an unlock, without the heavy fence.
#[test]
fn parking_without_the_heavy_fence_is_found() {
    let settings = Settings { shrink: false, ..Settings::default() };
    must_fail(&Target::mutex::<broken::Parks<false, Explore>>(), &settings, &[STUCK]);
    let sound = failure(&Target::mutex::<broken::Parks<true, Explore>>(), &settings);
    assert!(sound.is_none(), "with the fence it is right: {sound:?}");
}

/// A try, a reader that stays, another that leaves, and a writer: three threads must stop at the right place.
#[test]
fn the_attempt_of_mcs_rw_that_let_a_writer_in_is_found() {
    let target = Target::rwlock::<mcs_rw_before::LosesCount<Explore>>();
    let outcome = target.explore(&Settings::default(), 0..20 * ENOUGH);
    let failure = outcome.failure.expect("not found");
    assert!(failure.message.contains(BESIDE), "{}", shown(&target, &failure));
    // Small enough to read.
    assert!(failure.trace.lines().count() < 150, "{}", shown(&target, &failure));
    assert!(!failure.trace.contains("mistake of the explorer"), "{}", failure.trace);
}

/// An attempt of `shfl-rw` that erases the hint of a head which has gone to sleep: a reader and a writer that only try
/// must each stop at the right step, in a lock where a hint is left, and the head must come after that.
#[test]
fn an_attempt_that_erases_a_hint_is_found() {
    let target = named("shfl-rw");
    let settings = Settings { mistake: Mistake::ErasesHint, ..Settings::default() };
    let failure = target.explore(&settings, 0..60 * ENOUGH).failure.expect("not found");
    assert!(failure.message.contains(STUCK), "{}", shown(&target, &failure));
    assert!(!failure.trace.contains("mistake of the explorer"), "{}", failure.trace);
}

/// The same schedules again fail again, with the same trace.
#[test]
fn a_failure_can_be_repeated() {
    let settings = Settings { mistake: Mistake::SleepsUnseen, ..Settings::default() };
    let run = || failure(&named("mutexee"), &settings).expect("found above");
    let (first, again) = (run(), run());
    assert_eq!((first.seed, first.message, first.trace), (again.seed, again.message, again.trace));
}

/// The machine breaks one promise, and the locks that rely on it fail. (What store buffers cannot show is not here: a
/// processor like x86-64 keeps the order of acquire loads and release stores, whatever the source asks for.)
#[test]
fn mistakes_are_found() {
    use Mistake::*;
    let cases: [(Mistake, &[&str], &[&str]); 19] = [
        (NoHeavyFence, &["shfl-rw"], &[STUCK]),
        (NoHeavyFence, &["bravo-2d-shfl-rw"], &[STUCK, BESIDE]),
        (NoHeavyFence, &["rcu", "epoch", "hazard"], &[RECLAIMED, "was never reclaimed"]),
        (NoHeavyFence, &["counted"], &["twice", "was never reclaimed", RECLAIMED, STUCK, "no end"]),
        (NoFullFence, &["qsbr"], &[RECLAIMED]),
        (TornRelease, &["shfl", "rwsem", "seqlock"], &[STUCK]),
        (TornDecrement, &["shfl-rw", "bravo-2d-shfl-rw"], &[STUCK]),
        (LateRow, &["bravo-2d-shfl-rw"], &[BESIDE]),
        (ExitEmptiesRow, &["bravo-2d-shfl-rw"], &[BESIDE]),
        (SkipsReader, &["qsbr", "rcu", "epoch", "hazard"], &[RECLAIMED]),
        (BlindVoucher, &["qsbr"], &[RECLAIMED]),
        (BlindScan, &["bravo-pf-t", "bravo-pf-q", "bravo-shfl-rw", "bravo-cpu-pf-q"], &[BESIDE]),
        (DroppedWake, &["mcs-park", "malthusian", "mutexee", "hybrid", "cst", "shfl", "tas"], &[STUCK]),
        (DroppedWake, &["shfl-rw", "rwsem", "semaphore", "seqlock", "rcu", "hazard"], &[STUCK]),
        (SleepsUnseen, &["mcs-park", "mutexee", "hybrid", "cst", "shfl", "mcs"], &[STUCK]),
        (SleepsUnseen, &["shfl-rw", "rwsem", "semaphore", "seqlock", "epoch"], &[STUCK]),
        (PrivateArray, &["twa", "qspinlock"], &[STUCK]),
        (LostLink, &["k42", "cna", "malthusian"], &[STUCK, "was destroyed"]),
        (SeenCleared, &["hemlock"], &[CIRCLES, STUCK, "no end"]),
    ];
    for (mistake, names, symptoms) in cases {
        for name in names.iter().filter(|name| wanted(name)) {
            must_fail(&named(name), &Settings { mistake, shrink: false, ..Settings::default() }, symptoms);
        }
    }
    for name in ["mcs", "clh", "hclh", "hmcs", "cna", "malthusian", "percpu"] {
        let settings = Settings { mistake: NodeTooEarly, shrink: false, ..Settings::default() };
        assert!(failure(&named(name), &settings).is_some(), "{name}: a node that is used too early");
    }
}

/// With a waiter that is stopped for ever, the locks that promise it stay available; others do not.
#[test]
fn a_waiter_that_is_stopped() {
    let settings = Settings { freeze: true, ..Settings::default() };
    let promise: Vec<_> =
        targets().into_iter().filter(|target| target.tolerates_suspension && wanted(target.name)).collect();
    let failures: Vec<String> =
        promise.iter().filter_map(|target| Some(shown(target, &failure(target, &settings)?))).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    for name in ["mcs", "clh", "mcs-rw"] {
        must_fail(&named(name), &Settings { shrink: false, ..settings }, &["is stopped"]);
    }
}

/// As many schedules as were asked for.
#[test]
fn an_outcome_counts() {
    let outcome: Outcome = named("tas").explore(&Settings::default(), 0..1000);
    assert_eq!((outcome.schedules, outcome.failure.is_none()), (1000, true));
}

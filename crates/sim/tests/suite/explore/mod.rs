//! Every lock under many schedules of many clients; and mistakes, which the same schedules must find.
//!
//! `LATCHWORK_LOCK=name` runs one lock only (or several, separated by commas). `LATCHWORK_EXPLORE=10000000` runs so
//! many schedules of each lock, 10,000 if it is not set. CI runs as many as a mistake must be found in.
//! `LATCHWORK_SEED=7` runs 2,000 schedules more of each lock, from number 7 on.

use crate::{again, broken, fresh_seed, wanted};
use latchwork::reclaim::{epoch::Epoch, rcu::General};
use latchwork_sim::explore::{Explore, Failure, Mistake, Outcome, Settings, Target, explore_all, targets};
use std::ops::Range;
use std::sync::Mutex;

/// Schedules in which every seeded mistake but one must be found.
const ENOUGH: u64 = 50_000;
/// Schedules of each sound lock, if no other number is asked for.
const DAILY: u64 = 10_000;
/// Schedules of each sound lock from a fresh number on.
const FRESH: u64 = 2_000;

fn schedules() -> u64 {
    std::env::var("LATCHWORK_EXPLORE").map_or(DAILY, |n| n.parse().expect("a number of schedules"))
}

fn shown(target: &Target, failure: &Failure) -> String {
    format!("{target:?}, schedule {}: {}\n{}", failure.seed, failure.message, failure.trace)
}

#[test]
fn every_lock_under_many_schedules() {
    every_lock(0..schedules());
}

/// The usual schedules are the same in every run.
#[test]
fn every_lock_under_fresh_schedules() {
    if let Some(first) = fresh_seed() {
        every_lock(first..first + FRESH);
    }
}

fn every_lock(schedules: Range<u64>) {
    let all: Vec<Target> = targets().into_iter().filter(|target| wanted(target.name)).collect();
    let failures = Mutex::new(Vec::new());
    explore_all(&all, &Settings::default(), schedules.clone(), |target, outcome| {
        eprintln!("{target:?}: {} schedules, {} steps", outcome.schedules, outcome.steps);
        assert!(outcome.steps > 10 * outcome.schedules, "{target:?}: hardly anything is explored");
        if let Some(failure) = &outcome.failure {
            failures.lock().unwrap().push((target.name, shown(target, failure)));
        }
    });
    let failures = failures.into_inner().unwrap();
    let all: Vec<String> =
        failures.iter().map(|(name, failure)| format!("{failure}{}", again(name))).collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
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
/// What a reader of a map says that is not waited for.
const LATE: &[&str] = &["was dropped", "was destroyed", "in the place of", "no order", "never dropped"];

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

/// A waiter that a release in one step wakes, and a release that looks at the queue first does not.
#[test]
fn broken_announcements_are_found() {
    use broken::*;
    let settings = Settings { shrink: false, ..Settings::default() };
    must_fail(&Target::mutex::<Announces<Explore, UNANNOUNCED>>(), &settings, &[STUCK]);
    must_fail(&Target::mutex::<Announces<Explore, UNBOUNDED>>(), &settings, &[STUCK]);
    let sound = failure(&Target::mutex::<Announces<Explore, ANNOUNCED>>(), &settings);
    assert!(sound.is_none(), "without a mistake: {sound:?}");
}

/// A downgrade and an upgrade that let go of the lock in between, and fair unlocks that wake no thread.
#[test]
fn broken_modes_are_found() {
    use broken::*;
    let settings = Settings { shrink: false, ..Settings::default() };
    let between = &[BESIDE, "between an upgradable read"];
    must_fail(&Target::upgradable::<Careless<DOWNGRADES_BY_LEAVING, Explore>>(), &settings, &[BESIDE]);
    must_fail(&Target::upgradable::<Careless<UPGRADES_BY_LEAVING, Explore>>(), &settings, between);
    must_fail(
        &Target::upgradable::<Careless<UNLOCKS_UNHEARD, Explore>>(),
        &settings,
        &[CIRCLES, "looks locked"],
    );
    must_fail(&Target::fair_mutex::<LeavesUnheard<Explore>>(), &settings, &[STUCK]);
    let sound = failure(&Target::upgradable::<Careless<SOUND, Explore>>(), &settings);
    assert!(sound.is_none(), "without a mistake: {sound:?}");
}

/// A waiter of a condition variable that takes its ticket after it has counted itself in: a notification in between claims it,
/// a second one finds it claimed, and it sleeps on.
#[test]
fn a_late_ticket_is_found() {
    let settings = Settings { mistake: Mistake::LateTicket, shrink: false, ..Settings::default() };
    let failure = named("ttas").explore(&settings, 0..200 * ENOUGH).failure.expect("not found");
    assert!(failure.message.contains(STUCK), "{}", failure.message);
}

/// The same schedules again fail again, with the same trace.
#[test]
fn a_failure_can_be_repeated() {
    let settings = Settings { mistake: Mistake::SleepsUnseen, ..Settings::default() };
    let run = || failure(&named("mutexee"), &settings).expect("found above");
    let (first, again) = (run(), run());
    assert_eq!((first.seed, first.message, first.trace), (again.seed, again.message, again.trace));
}

/// The machine breaks one promise, and the locks that rely on it fail. Orders of acquire loads and release stores are not
/// among the promises: a processor like x86-64 keeps those orders whatever the source asks for.
#[test]
fn mistakes_are_found() {
    use Mistake::*;
    let cases: [(Mistake, &[&str], &[&str]); 25] = [
        (NoHeavyFence, &["bravo-2d-shfl-rw"], &[BESIDE]),
        (NoHeavyFence, &["rcu", "epoch", "interval", "hazard"], &[RECLAIMED, "was never reclaimed"]),
        (NoHeavyFence, &["counted"], &["twice", "was never reclaimed", RECLAIMED, STUCK, "no end"]),
        (NoFullFence, &["qsbr", "rcu"], &[RECLAIMED]),
        (NoTornTimeout, &["shfl", "shfl-rw", "bravo-2d-shfl-rw", "rwsem", "seqlock"], &[STUCK]),
        (BlindRelease, &["shfl", "shfl-rw", "bravo-2d-shfl-rw", "rwsem", "seqlock"], &[STUCK]),
        // Two threads with one record: what the one protects seems to be the other's own.
        (UntakenRecord, &["rcu", "epoch", "interval"], &[RECLAIMED, "being reclaimed"]),
        (UntakenRecord, &["hazard"], &[RECLAIMED, "being reclaimed", "protects a retired object"]),
        (NoSecondLook, &["bravo-2d-shfl-rw"], &[BESIDE, "overflow", "says that it is free", STUCK]),
        (UntakenRow, &["bravo-2d-shfl-rw"], &[BESIDE]),
        (EarlyReturn, &["bravo-2d-shfl-rw"], &[BESIDE]),
        (SkipsReader, &["qsbr", "rcu", "epoch", "interval", "hazard"], &[RECLAIMED]),
        (BlindVoucher, &["qsbr"], &[RECLAIMED]),
        (BlindScan, &["bravo-pf-t", "bravo-pf-q", "bravo-shfl-rw", "bravo-cpu-pf-q"], &[BESIDE]),
        (DroppedWake, &["mcs-park", "malthusian", "mutexee", "hybrid", "cst", "shfl", "tas"], &[STUCK]),
        (DroppedWake, &["shfl-rw", "rwsem", "semaphore", "seqlock", "rcu", "hazard"], &[STUCK]),
        (SleepsUnseen, &["mcs-park", "mutexee", "hybrid", "cst", "shfl", "mcs"], &[STUCK]),
        (SleepsUnseen, &["shfl-rw", "rwsem", "semaphore", "seqlock", "epoch"], &[STUCK]),
        (PrivateArray, &["twa", "qspinlock"], &[STUCK]),
        (LostLink, &["k42", "cna", "malthusian"], &[STUCK, "was destroyed"]),
        (SeenCleared, &["hemlock"], &[CIRCLES, STUCK, "no end"]),
        (NoHeavyFence, &["rcu-map", "rcu-tree-map"], LATE),
        (SkipsReader, &["rcu-map", "rcu-tree-map"], LATE),
        (DroppedWake, &["rcu-map", "rcu-tree-map"], &[STUCK]),
        (TornUpdate, &["rcu-map", "rcu-tree-map"], &["no order of the operations"]),
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
    // Each mistake has a case here or elsewhere, or a reason.
    let elsewhere = [NodeTooEarly, LateTicket];
    // The first follows a null pointer where that cannot unwind, so it ends the process. The second is `mcs-tp`'s, and is seeded
    // by a client of loom.
    let excused = [OpenRing, LostSkip];
    for mistake in Mistake::ALL {
        let others = [&elsewhere[..], &excused].concat();
        let covered = cases.iter().any(|case| case.0 == mistake) || others.contains(&mistake);
        assert!(covered, "{mistake:?} is in no case");
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

/// A strategy that reclaims at once, and one whose readers are in sections that it does not wait for.
#[test]
fn broken_strategies_are_found() {
    use broken::{TOO_EARLY, Twin, WRONG_GUARD};
    let settings = Settings { shrink: false, ..Settings::default() };
    must_fail(&Target::reclaim::<Twin<TOO_EARLY, General>>(), &settings, &[RECLAIMED]);
    must_fail(&Target::reclaim::<Twin<WRONG_GUARD, Epoch>>(), &settings, &[RECLAIMED]);
    let sound = failure(&Target::reclaim::<Twin<WRONG_GUARD, General>>(), &settings);
    assert!(sound.is_none(), "with the right guard: {sound:?}");
}

/// As many schedules as were asked for.
#[test]
fn an_outcome_counts() {
    let outcome: Outcome = named("tas").explore(&Settings::default(), 0..1000);
    assert_eq!((outcome.schedules, outcome.failure.is_none()), (1000, true));
}

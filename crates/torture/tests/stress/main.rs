//! Every algorithm of the library on real threads: more of them than cores, coming and going, with
//! short and sleeping sections, attempts and deadlines mixed in. What loom cannot do: the machine's
//! real memory, the kernel's futex and `membarrier`, and time.
//!
//! Each lock runs for 0.2 seconds, or `LATCHWORK_STRESS_SECONDS`; `LATCHWORK_LOCK=name` runs one
//! lock only (or several, separated by commas). A lock that stands still is named on stderr, and the
//! process ends. `latchwork-lab torture` does the same at length. `LATCHWORK_SEED=7` is the seed of the random numbers, 1 if it is
//! not set; threads are real, so the same seed gives another run.

#[path = "../../../latchwork/tests/example/futex.rs"]
mod example;
mod strategies;

use example::RawFutex;
use latchwork::locks::mutex::RawMutex;
use latchwork::machine::Native;
use latchwork::registry::{self, Kind};
use latchwork_torture::jitter::Jitter;
use latchwork_torture::{Report, Scenario, Settings, of_mutex, of_rwlock, registered, torture};
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

fn settings() -> Settings {
    let seconds = match std::env::var("LATCHWORK_STRESS_SECONDS") {
        Ok(text) => text.parse().expect("LATCHWORK_STRESS_SECONDS is a number of seconds"),
        Err(_) => 0.2,
    };
    Settings {
        time: Duration::from_secs_f64(seconds),
        patience: Duration::from_secs(60),
        seed: std::env::var("LATCHWORK_SEED").map_or(1, |seed| seed.parse().expect("a number, the seed")),
        ..Settings::default()
    }
}

/// Tortures a lock that must work, and names it if it does not.
fn must_work(name: &str, scenarios: &[Scenario]) {
    must_work_with(name, scenarios, settings());
}

fn must_work_with(name: &str, scenarios: &[Scenario], settings: Settings) {
    if std::env::var("LATCHWORK_LOCK").is_ok_and(|only| only.split(',').all(|other| other != name)) {
        return;
    }
    // On a busy machine no thread may get to write in so short a time: then again.
    let mut reports = (0..30).map(|attempt| {
        let settings = Settings { seed: settings.seed + attempt, ..settings };
        (settings, torture(scenarios, settings, &AtomicBool::new(false), |_| ()))
    });
    let says_something =
        |(_, report): &(Settings, Report)| report.failed.is_some() || report.totals.writes > 0;
    let (settings, report) =
        reports.find(says_something).unwrap_or_else(|| panic!("no thread ever got {name}"));
    let Some(failed) = report.failed else {
        eprintln!("{name:>12}: {} operations in {} rounds", report.totals.operations, report.rounds);
        return;
    };
    let what = format!(
        "{name} failed in {} on the {} machine: {}\nThe same random numbers, in another run: LATCHWORK_SEED={} \
         LATCHWORK_LOCK={name} cargo test -p latchwork-torture --test stress",
        failed.scenario, failed.machine, failed.what, settings.seed
    );
    if failed.state.is_empty() {
        panic!("{what}");
    }
    // Its threads may spin for ever, which would make other tests fail. What `eprintln` prints is kept back until a test has
    // ended, and this one does not end.
    let _ = writeln!(std::io::stderr(), "{what}\n  {}", failed.state.join("\n  "));
    std::process::abort();
}

/// The registered locks that are mutexes, or all others. Their threads sleep much, so that the two halves run beside each other.
fn every_lock(mutexes: bool) {
    registry::for_each(|entry| {
        if (entry.kind == Kind::Mutex) == mutexes {
            must_work(entry.info.name, &registered(entry.kind, entry.info.name));
        }
    });
}

#[test]
fn every_mutex() {
    every_lock(true);
}

#[test]
fn every_lock_that_is_no_mutex() {
    every_lock(false);
}

#[test]
fn the_example_of_contributing() {
    let mut scenarios = of_mutex::<RawFutex<Native>>();
    scenarios.extend(of_mutex::<RawFutex<Jitter>>());
    must_work(RawFutex::<Native>::INFO.name, &scenarios);
}

#[test]
fn the_semaphore() {
    must_work("semaphore", &latchwork_torture::unit::scenarios());
}

/// Threads of three priorities of `SCHED_FIFO` on one processor make progress in every lock whose waiters sleep, in the
/// condition variable, the semaphore and the strategies of reclamation. Without the right to use `SCHED_FIFO`, the test
/// prints that, and passes. [`every_lock`] runs the same scenario for a shorter time, on the locks whose waiters spin too.
#[test]
fn real_time_priorities() {
    let urgently = |name: &str, mut scenarios: Vec<Scenario>| {
        scenarios.retain(|scenario| scenario.name == "priorities");
        assert!(!scenarios.is_empty(), "{name} has no scenario");
        if latchwork_torture::priorities::are_permitted() {
            let (time, round) = (settings().time / 3, settings().time / 24);
            must_work_with(name, &scenarios, Settings { time, round, ..settings() });
        } else {
            eprintln!("{name:>12}: skipped, SCHED_FIFO is not permitted");
        }
    };
    registry::for_each(|entry| {
        if entry.info.blocking && entry.kind != registry::Kind::SeqLock {
            urgently(entry.info.name, registered(entry.kind, entry.info.name));
        }
    });
    urgently("semaphore", latchwork_torture::unit::scenarios());
    for (name, scenarios) in latchwork_torture::reclaim::strategies() {
        urgently(name, scenarios);
    }
}

/// Compositions that are not in the registry: BRAVO over a mutex, with readers that share by the table only, and BRAVO
/// with a second probe, with sectors, and with readers that pass a revocation.
#[test]
fn compositions_of_bravo() {
    use latchwork::locks::mutex::shfl::RawShfl;
    use latchwork::locks::rwlock::bravo::bias::Guard;
    use latchwork::locks::rwlock::bravo::publish::Owned;
    use latchwork::locks::rwlock::bravo::revoke::Passing;
    use latchwork::locks::rwlock::bravo::table::{Sector, Table, Twice};
    use latchwork::locks::rwlock::{bravo::RawBravo, exclusive::Exclusive, pf_q::RawPfQ, shfl_rw::RawShflRw};
    use latchwork::machine::Machine;

    fn of<M: Machine>() -> [(&'static str, Vec<Scenario>); 4] {
        [
            ("bravo-shfl", of_rwlock::<RawBravo<M, Exclusive<RawShfl<M>>>>()),
            ("bravo-twice-pf-q", of_rwlock::<RawBravo<M, RawPfQ<M>, Table<Twice>>>()),
            ("bravo-numa-pf-q", of_rwlock::<RawBravo<M, RawPfQ<M>, Table<Sector>>>()),
            ("passing", of_rwlock::<RawBravo<M, RawShflRw<M>, Owned, Guard, Passing>>()),
        ]
    }
    for ((name, mut scenarios), (_, others)) in of::<Native>().into_iter().zip(of::<Jitter>()) {
        scenarios.extend(others);
        must_work(name, &scenarios);
    }
}

/// Policies: one that is moody, and those of the library that decide by what a thread is.
mod policies {
    use latchwork::locks::mutex::policies::{Account, Urgency};
    use latchwork::locks::mutex::shuffle::Policy;
    use latchwork::machine::Machine;
    use std::cell::Cell;

    thread_local! {
        static WORD: Cell<u64> = const { Cell::new(0) };
    }

    pub struct Moody;
    impl Policy for Moody {
        const RANKS: usize = 5;
        const PATIENCE: Option<u32> = Some(4);
        const THOROUGH: bool = true;
        fn key<M: Machine>() -> u32 {
            WORD.set(WORD.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
            (WORD.get() >> 32) as u32
        }
        fn rank<M: Machine>(shuffler: u32, waiter: u32) -> usize {
            (shuffler ^ waiter) as usize % 9
        }
    }

    pub struct ByAddress;
    impl Urgency for ByAddress {
        fn of_caller<M: Machine>() -> u32 {
            (M::thread_id() >> 12) as u32 % 4
        }
    }

    pub struct Used;
    impl Account for Used {
        fn get<M: Machine>() -> u64 {
            WORD.get()
        }
        fn set<M: Machine>(word: u64) {
            WORD.set(word);
        }
    }
}

#[test]
fn shuffling_policies() {
    use latchwork::locks::mutex::policies::{Priority, RawLocally, RawOpportunity};
    use latchwork::locks::mutex::{shfl::RawShfl, shfl_spin::RawShflSpin};
    use policies::{ByAddress, Moody, Used};
    fn both<N: RawMutex, J: RawMutex>(name: &str) {
        let mut scenarios = of_mutex::<N>();
        scenarios.extend(of_mutex::<J>());
        must_work(name, &scenarios);
    }
    both::<RawShfl<Native, Moody>, RawShfl<Jitter, Moody>>("shfl-moody");
    both::<RawShflSpin<Native, Moody>, RawShflSpin<Jitter, Moody>>("shfl-spin-moody");
    both::<RawLocally<Native, Moody>, RawLocally<Jitter, Moody>>("shfl-locally");
    both::<RawShfl<Native, Priority<ByAddress>>, RawShfl<Jitter, Priority<ByAddress>>>("shfl-priority");
    both::<RawShflSpin<Native, Priority<ByAddress>>, RawShflSpin<Jitter, Priority<ByAddress>>>(
        "shfl-spin-priority",
    );
    both::<RawOpportunity<Native, Used>, RawOpportunity<Jitter, Used>>("shfl-opportunity");
}

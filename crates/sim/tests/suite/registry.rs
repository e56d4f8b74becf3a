//! Every lock of the registry in the simulator: exclusion and progress, on a quiet machine, with more
//! threads than processors, and with threads stopped at random; and broken locks, which the same checks
//! must catch.
//!
//! `LATCHWORK_LOCK=name` runs one lock only. `LATCHWORK_SIM_SEEDS=100` tries more seeds, and `LATCHWORK_SEED=7` another one.

use crate::broken;
use crate::checks::{
    Copied, Copy, Few, Outcome, Scene, mutex, nobody_starves, outnumbered, outpaced, rwlock, scenes, seqlock,
};
use crate::{again, wanted};
use latchwork::locks::mutex::{RawMutex, cst::RawCst, shfl::RawShfl};
use latchwork::locks::rwlock::RawRwLock;
use latchwork::locks::rwlock::bravo::RawBravo;
use latchwork::locks::rwlock::bravo::table::{Sector, Table, Twice};
use latchwork::locks::rwlock::{exclusive::Exclusive, pf_q::RawPfQ};
use latchwork::locks::semaphore::Unit;
use latchwork::locks::seqlock::RawSeqLock;
use latchwork::machine::Word;
use latchwork::registry::{Visitor, visit};
use latchwork_sim::{Error, Sim};
use std::sync::atomic::Ordering::Acquire;

/// Runs one lock in every scene, twice in the first: the trace must be the same.
fn all_scenes(name: &str, check: impl Fn(&Scene) -> Result<Outcome, Error>) {
    if !wanted(name) {
        return;
    }
    let mut covered = 0;
    for (i, scene) in scenes().iter().enumerate() {
        let run = || check(scene).unwrap_or_else(|error| panic!("{name}, {scene}: {error}{}", again(name)));
        let outcome = run();
        covered += u32::from(outcome.covered);
        if i % 4 == 0 {
            assert_eq!(
                outcome.report.trace_hash,
                run().report.trace_hash,
                "{name}, {scene}: the trace differs{}",
                again(name)
            );
        }
    }
    assert!(covered > 0, "{name}: no timed acquisition gave up, or no readers shared it: nothing was tested");
}

#[test]
fn every_mutex() {
    struct Each;
    impl Visitor<Sim> for Each {
        fn mutex<L: RawMutex<Machine = Sim>>(&mut self) {
            all_scenes(L::INFO.name, mutex::<L>);
        }
    }
    visit(&mut Each);
    Each.mutex::<Unit<Sim>>(); // a semaphore
}

/// In a long turn of a node `cst` wakes one of those that it has set aside; in the short scenes above no turn is
/// long enough. (If the one that is woken is not, this comes to a deadlock: that was tried.)
#[test]
fn sleepers_are_woken_in_a_long_turn() {
    for scene in (1..=3).map(Scene::long) {
        mutex::<RawCst<Sim>>(&scene).unwrap_or_else(|error| panic!("{scene}: {error}"));
    }
}

#[test]
fn every_rwlock() {
    struct Each;
    impl Visitor<Sim> for Each {
        fn rwlock<R: RawRwLock<Machine = Sim>>(&mut self) {
            all_scenes(R::INFO.name, rwlock::<R>);
        }
    }
    visit(&mut Each);
    Each.rwlock::<RawBravo<Sim, Exclusive<RawShfl<Sim>>>>(); // readers share by the table only
    Each.rwlock::<RawBravo<Sim, RawPfQ<Sim>, Table<Twice>>>();
    Each.rwlock::<RawBravo<Sim, RawPfQ<Sim>, Table<Sector>>>();
}

#[test]
fn every_seqlock() {
    struct Each;
    impl Visitor<Sim> for Each {
        fn seqlock<L: RawMutex<Machine = Sim>>(&mut self) {
            all_scenes(RawSeqLock::<L>::INFO.name, |scene| seqlock::<L>(scene, copies));
        }
    }
    visit(&mut Each);
}

fn copies<L: RawMutex<Machine = Sim>>((lock, words): &Copied<L>) -> Copy {
    let (mut copy, mut again) = ([0; 4], 0);
    lock.read(words, &mut copy, || again += 1);
    (copy, again)
}

#[test]
fn copies_that_are_not_looked_at_again_are_caught() {
    let error = failure(|scene| {
        seqlock::<RawShfl<Sim>>(scene, |(_, words)| (words.each_ref().map(|word| word.load(Acquire)), 1))
    });
    assert!(error.to_string().contains("a copy of two moments"), "{error}");
}

/// From a few threads to one for every processor: which thread starves depends on where the threads are.
const CROWDS: [usize; 3] = [37, 42, 48];

#[test]
fn nobody_starves_who_was_promised_a_turn() {
    struct Each;
    impl Visitor<Sim> for Each {
        fn mutex<L: RawMutex<Machine = Sim>>(&mut self) {
            let promised = !L::INFO.fairness.starts_with("none");
            for threads in CROWDS.into_iter().filter(|_| promised && wanted(L::INFO.name)) {
                if let Err(error) = nobody_starves::<L>(threads) {
                    panic!("{}, {threads} threads: {error}", L::INFO.name);
                }
            }
        }
    }
    visit(&mut Each);
}

#[test]
fn starving_is_caught() {
    let error = CROWDS.into_iter().find_map(|threads| nobody_starves::<broken::Despairs>(threads).err());
    assert!(error.expect("nobody starved").to_string().starts_with("not finished"));
}

/// A thread of the smaller side, and the longest wait that a lock may make of it, in nanoseconds: with a
/// processor for each thread; and, for locks whose waiters sleep, with four threads for each, where
/// the holder may lose its processor for three quanta.
const OUTNUMBERED: [(Few, &str, usize, u64); 4] = [
    (Few::Writers, "2x8", 16, 5_000_000),
    (Few::Readers, "2x8", 16, 5_000_000),
    (Few::Writers, "2x4", 32, 200_000_000),
    (Few::Readers, "2x4", 32, 200_000_000),
];

#[test]
fn neither_readers_nor_writers_starve() {
    struct Each(Vec<String>);
    impl Visitor<Sim> for Each {
        fn rwlock<R: RawRwLock<Machine = Sim>>(&mut self) {
            let name = R::INFO.name;
            let scenes = if R::INFO.blocking { &OUTNUMBERED[..] } else { &OUTNUMBERED[..2] };
            let promised = |few| few == Few::Readers || !R::PREFERS_READERS;
            let scenes = scenes.iter().filter(|(few, ..)| wanted(name) && promised(*few));
            for &(few, machine, threads, bound) in scenes {
                // A waiter of `shfl-rw` waits for a turn of 1 ms, and a wakeup, for each waiter in front of it.
                let turns = if R::INFO.blocking { (threads as u64 + 1) * 1_100_000 } else { 0 };
                let bound = bound.max(turns);
                let longest = outnumbered::<R>(few, machine, threads).map_err(|error| error.to_string());
                println!("{name}: {few:?} among {threads} on {machine}: {longest:?}");
                if !longest.as_ref().is_ok_and(|longest| *longest <= bound) {
                    self.0.push(format!("{name}: {few:?} among {threads} on {machine}: {longest:?}"));
                }
            }
        }
    }
    let mut each = Each(Vec::new());
    visit(&mut each);
    for (_, machine, threads, bound) in OUTNUMBERED.into_iter().filter(|(few, ..)| *few == Few::Readers) {
        let longest = outpaced::<RawShfl<Sim>>(machine, threads).map_err(|error| error.to_string());
        println!("seqlock: {threads} on {machine}: {longest:?}");
        if !longest.as_ref().is_ok_and(|longest| *longest <= bound) {
            each.0.push(format!("seqlock: {threads} on {machine}: {longest:?}"));
        }
    }
    assert!(each.0.is_empty(), "{}", each.0.join("\n"));
}

#[test]
fn a_side_that_starves_is_caught() {
    let starved =
        |result: Result<u64, Error>| result.is_err_and(|error| error.to_string().starts_with("not finished"));
    let [writers, readers, ..] = OUTNUMBERED.map(|(few, machine, threads, _)| (few, machine, threads));
    let prefers_readers =
        |(few, machine, threads)| outnumbered::<broken::Prefers<false>>(few, machine, threads);
    let prefers_writers =
        |(few, machine, threads)| outnumbered::<broken::Prefers<true>>(few, machine, threads);
    assert!(starved(prefers_readers(writers)) && prefers_readers(readers).is_ok());
    assert!(starved(prefers_writers(readers)) && prefers_writers(writers).is_ok());
}

/// The first failure of a broken lock.
fn failure(check: impl Fn(&Scene) -> Result<Outcome, Error>) -> Error {
    scenes().iter().find_map(|scene| check(scene).err()).expect("a broken lock passed every check")
}

#[test]
fn a_lock_that_does_not_exclude_is_caught() {
    let error = failure(mutex::<broken::TestThenSet>);
    assert!(error.to_string().starts_with("two holders at once"), "{error}");
}

#[test]
fn a_lost_wakeup_is_caught_at_once_and_named() {
    let error = failure(mutex::<broken::DropsWakes>);
    let Error::Deadlock { waits, .. } = &error else { panic!("{error}") };
    assert!(waits.iter().all(|wait| wait.contains("sleeps on lock")), "{error}");
}

#[test]
fn a_dropped_grant_is_caught_at_once_and_named() {
    let error = failure(mutex::<broken::ForgetsToGrant>);
    let Error::Deadlock { waits, .. } = &error else { panic!("{error}") };
    assert!(waits.iter().all(|wait| wait.contains("spins on lock+4")), "{error}");
}

#[test]
fn going_round_in_circles_is_caught() {
    let error = failure(mutex::<broken::ForgetsToClear>);
    assert!(matches!(error, Error::Deadlock { .. }), "{error}");
}

#[test]
fn a_torn_queue_of_timed_waiters_is_caught() {
    // A thread that gives up takes its ticket with it, and no thread serves the next.
    let error = failure(mutex::<broken::LeavesItsTicket>);
    assert!(matches!(error, Error::Deadlock { .. }), "{error}");
}

#[test]
fn readers_that_a_writer_overlooks_are_caught() {
    let error = failure(rwlock::<broken::OverlooksReaders>);
    assert!(error.to_string().contains("a writer"), "{error}");
}

/// What [`traces_are_the_same_in_every_process`] runs in another process.
#[test]
#[ignore = "a part of another test"]
fn print_traces() {
    struct Each;
    impl Visitor<Sim> for Each {
        fn mutex<L: RawMutex<Machine = Sim>>(&mut self) {
            println!("trace {} {:x}", L::INFO.name, mutex::<L>(&scenes()[2]).unwrap().report.trace_hash);
        }
        fn rwlock<R: RawRwLock<Machine = Sim>>(&mut self) {
            println!("trace {} {:x}", R::INFO.name, rwlock::<R>(&scenes()[2]).unwrap().report.trace_hash);
        }
        fn seqlock<L: RawMutex<Machine = Sim>>(&mut self) {
            let hash = seqlock::<L>(&scenes()[2], copies).unwrap().report.trace_hash;
            println!("trace {} {hash:x}", RawSeqLock::<L>::INFO.name);
        }
    }
    visit(&mut Each);
}

#[test]
fn traces_are_the_same_in_every_process() {
    let traces = || {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "registry::print_traces", "--ignored", "--nocapture"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter(|line| line.starts_with("trace ")).map(String::from).collect::<Vec<_>>()
    };
    let first = traces();
    assert!(first.len() > 10, "{first:?}");
    assert_eq!(first, traces());
}

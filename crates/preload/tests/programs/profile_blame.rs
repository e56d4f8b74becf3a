//! Which holder `LATCHWORK_PROFILE` says caused a wait.

use crate::recorded::*;
use crate::{Setting, compile, default_mutex, names};
use latchwork::registry::Kind as LockKind;
use latchwork_recording::reader::{Cause, Kind, Pair};
use std::collections::HashSet;
use std::env;
use std::ffi::OsStr;

/// Mutexes to record under: some of each sort, or all.
fn mutexes() -> Vec<&'static str> {
    let all = names(LockKind::Mutex);
    let some = |name: &&str| ["mcs", "ticket", "ttas"].contains(name) || *name == default_mutex();
    let chosen = all.into_iter().filter(|name| env::var_os("LATCHWORK_ALL").is_some() || some(name));
    ["glibc"].into_iter().chain(chosen).collect()
}

#[test]
fn waits_are_charged_to_the_holder_that_causes_them() {
    let Some(program) = program() else { return };
    for mutex in mutexes() {
        let check = |run: &Run| {
            check_blame(run, Kind::Mutex)?;
            // What is charged to a holder is the culprit's.
            let mut charged = [0, 0];
            for pair in &run.only().pairs {
                if let Cause::Holder(stack) = pair.cause {
                    charged[usize::from(run.site(stack) == "culprit")] += pair.nanos;
                }
            }
            (charged[0] < slack(charged[1])).then_some(()).ok_or_else(|| format!("{mutex}: {charged:?}"))
        };
        let run = run(&Setting::new(mutex, "glibc"), &program, "blame", check);
        assert_eq!(run.only().mutex, mutex);
        assert!(run.only().complete);
    }
}

/// A thread that locks a recursive mutex again holds it from the first lock call to the last unlock call. It is named by the first.
#[test]
fn recursive_mutexes_are_held_until_the_last_unlock() {
    let Some(program) = program() else { return };
    for mutex in ["glibc", default_mutex(), "mcs"] {
        run(&Setting::new(mutex, "glibc"), &program, "nested", |run| {
            assert_eq!(
                sum(run.only(), Kind::Mutex, |class| class.counters.acquisitions),
                run.counts["acquisitions"]
            );
            assert_eq!(run.found("victim", "within"), 0);
            near_truth(run, "victim", "culprit")?;
            let longest = of(run.only(), Kind::Mutex).map(|class| class.counters.hold_max).max().unwrap();
            // Eight sections of at least 20 ms each.
            (longest >= 20_000_000).then_some(()).ok_or_else(|| format!("held for {longest} ns at most"))
        });
    }
}

/// A hundred threads, of which one causes all delay: Go's issue 61015, where its profile finds that one once in a hundred times.
#[test]
fn one_culprit_among_a_hundred() {
    let Some(program) = program() else { return };
    for mutex in ["glibc", default_mutex()] {
        let check = |run: &Run| {
            check_blame(run, Kind::Mutex)?;
            let truth = |of: &str| {
                let parts = run.pairs.iter().filter(|pair| pair.1 == of).map(|pair| pair.2);
                parts.sum::<u64>()
            };
            let found = run.found("victim", "culprit");
            let enough = found + slack(truth("culprit")) / 2 >= truth("culprit");
            enough.then_some(()).ok_or_else(|| format!("{found} ns of {} ns", truth("culprit")))
        };
        run(&Setting::new(mutex, "glibc"), &program, "hundred", check);
    }
}

/// A holder that acquired the lock before anyone waited is named by its lock call, not by its unlock.
#[test]
fn the_first_holder_is_named_by_its_lock_call() {
    for (name, arguments) in [("apart", &[][..]), ("apart_unoptimized", &["-O0"])] {
        let arguments: Vec<_> = arguments.iter().map(OsStr::new).collect();
        let Some(program) = compile("profile.c", &format!("profile_{name}"), &arguments) else { return };
        for mutex in ["glibc", default_mutex()] {
            let holder = |run: &Run| {
                run.only().pairs.iter().find_map(|pair| match pair.cause {
                    Cause::Holder(stack) => Some(stack),
                    _ => None,
                })
            };
            let check = |run: &Run| holder(run).map(|_| ()).ok_or_else(|| "no wait".into());
            let run = run(&Setting::new(mutex, "glibc"), &program, "apart", check);
            assert_eq!(run.sites_of(holder(&run).unwrap()), ["locking"], "{name} under {mutex}");
            let [hold] =
                run.only().holds.iter().filter(|hold| run.site(hold.holder) == "locking").collect::<Vec<_>>()
                    [..]
            else {
                panic!("{:?}", run.only().holds)
            };
            assert_eq!(hold.count, 1);
        }
    }
}

/// The front waits for the middle, which itself waits for the rear: each wait is charged to its own holder.
#[test]
fn chains_of_locks() {
    let Some(program) = program() else { return };
    for mutex in ["glibc", default_mutex()] {
        let check = |run: &Run| {
            for (waiter, holder, truth) in &run.pairs {
                let found = run.found(waiter, holder);
                if found.abs_diff(*truth) > slack(run.times["wait"]) {
                    return Err(format!(
                        "{waiter} waited for {holder}: {found} ns recorded, {truth} in truth"
                    ));
                }
            }
            let named = |name: &str| run.pairs.iter().any(|pair| pair.1 == name);
            (named("middle") && named("rear")).then_some(()).ok_or_else(|| "nobody waited".into())
        };
        run(&Setting::new(mutex, "glibc"), &program, "chain", check);
    }
}

/// Of two threads, each holds the lock for a moment two hundred times, and then for a millisecond. The long sections cause nearly all
/// waiting, and each of them is found.
#[test]
fn rare_long_holds_among_short_ones() {
    let Some(program) = program() else { return };
    for mutex in ["glibc", default_mutex()] {
        run(&Setting::new(mutex, "glibc"), &program, "rare", |run| {
            near_truth(run, "victim", "rarely")?;
            // Of most waits, the CPU time of one in sixteen was measured. Each stands for as many.
            let class = of(run.only(), Kind::Mutex).max_by_key(|class| class.counters.wait_nanos).unwrap();
            let (timed, wait) = (class.counters.timed_nanos, class.counters.wait_nanos);
            eprintln!("{timed} ns stand for {wait} ns");
            let near = timed.abs_diff(wait) < wait / 2;
            near.then_some(()).ok_or_else(|| format!("CPU time was measured for {timed} ns of {wait} ns"))
        });
    }
}

/// A thread that takes a mutex again after a condition is the holder for which others wait, by the place of its wait.
#[test]
fn holders_that_come_from_a_condition() {
    let Some(program) = program() else { return };
    for mutex in ["glibc", default_mutex()] {
        run(&Setting::new(mutex, "glibc"), &program, "woken", |run| {
            // On a busy machine the thread that signals may wait for the first lock call in `woken`.
            let of_victim = run.only().pairs.iter().filter(|pair| run.site(pair.waiter) == "victim");
            let holders: HashSet<_> = of_victim
                .filter_map(|pair| match pair.cause {
                    Cause::Holder(stack) if run.site(stack) == "woken" => Some(&run.only().stacks[stack]),
                    _ => None,
                })
                .collect();
            assert!(holders.len() <= 1, "{mutex}: one place of the program is several holders: {holders:x?}");
            near_truth(run, "victim", "woken")
        });
    }
}

/// A thread that was woken waits for its mutex because of the thread that keeps it. (glibc takes the mutex within its own function.)
#[test]
fn a_mutex_that_is_kept_from_a_woken_thread() {
    let Some(program) = program() else { return };
    let check = |run: &Run| {
        let relocks = |is: &dyn Fn(&Pair) -> bool| {
            let relocks = run.only().relocks.iter().filter(|pair| is(pair));
            relocks.map(|pair| pair.nanos).sum::<u64>()
        };
        let all = sum(run.only(), Kind::Mutex, |class| class.counters.relock_nanos);
        let parts =
            [relocks(&|pair| pair.cause == Cause::Whole), relocks(&|pair| pair.cause != Cause::Whole)];
        assert_eq!(parts, [all, all]);
        let kept = relocks(&|pair| {
            let by = matches!(pair.cause, Cause::Holder(stack) if run.site(stack) == "keeping");
            by && run.site(pair.waiter) == "woken"
        });
        about(kept, run.times["kept"], 0, "waits for the thread that keeps the mutex")
    };
    run(&Setting::new(default_mutex(), "glibc"), &program, "kept", check);
}

/// A holder that comes after many others is told apart from them.
#[test]
fn a_culprit_behind_many_call_paths() {
    let Some(program) = program() else { return };
    for mutex in ["glibc", default_mutex()] {
        run(&Setting::new(mutex, "glibc"), &program, "paths", |run| near_truth(run, "culprit", "culprit"));
    }
}

/// A reader that stays for long is blamed for the writer's waits, and not those that come and go meanwhile.
#[test]
fn a_long_reader_among_short_ones() {
    let Some(program) = program() else { return };
    for rwlock in ["glibc", "bravo-2d-glibc"] {
        run(&Setting::new("glibc", rwlock), &program, "scan", |run| {
            near_truth(run, "updating", "scanning")?;
            let (looking, all) = (run.found("updating", "looking"), run.times["wait"]);
            (looking <= all / 10).then_some(()).ok_or_else(|| format!("looking: {looking} ns of {all} ns"))
        });
    }
}

/// Those who hold a lock shortly while a thread waits for long pay their part now and then only: for each payment a stack is
/// captured.
#[test]
fn short_holds_beside_a_long_wait() {
    let Some(program) = program() else { return };
    // On a busy machine the writer may come when the reader has left.
    let check = |run: &Run| {
        let waits = sum(run.only(), Kind::RwLock, |class| class.counters.contended);
        (waits == 1).then_some(()).ok_or_else(|| "the writer did not wait".into())
    };
    let run = run(&Setting::new("glibc", "glibc"), &program, "starved", check);
    assert_eq!(sum(run.only(), Kind::RwLock, |class| class.counters.reads), 100_001);
    let captured = run.only().unwound + run.only().cached;
    assert!((1..20_000).contains(&captured), "{captured} stacks");
}

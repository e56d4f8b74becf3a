//! What `LATCHWORK_PROFILE` records is true.

use crate::recorded::*;
use crate::{GAPS, Setting, compile, default_mutex, scratch, watch};
use latchwork_recording::reader::{Cause, Class, Kind, Recording};
use std::ffi::OsStr;
use std::{env, fs};

/// Stacks are complete, through a frame of variable size and a signal handler: with descriptions of the code, and with frame
/// pointers only.
#[test]
fn stacks_are_complete() {
    for (name, arguments) in [
        ("described", &["-fomit-frame-pointer"][..]),
        ("pointers", &["-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "-fno-omit-frame-pointer"]),
        ("unoptimized", &["-O0"]),
        ("stripped", &["-s"]),
        ("gaps", &GAPS),
    ] {
        let arguments: Vec<_> = arguments.iter().map(OsStr::new).collect();
        let Some(program) = compile("profile.c", &format!("profile_{name}"), &arguments) else { return };
        for mutex in ["glibc", default_mutex()] {
            let wait = |run: &Run| run.only().pairs.iter().position(|pair| pair.cause == Cause::Whole);
            let check = |run: &Run| wait(run).map(|_| ()).ok_or_else(|| "no wait".into());
            let run = run(&Setting::new(mutex, "glibc"), &program, "deep", check);
            let waited = &run.only().pairs[wait(&run).unwrap()];
            let found = run.sites_of(waited.waiter);
            let expected = ["victim", "fourth", "handling", "third", "second", "first"];
            assert_eq!(found, expected, "{name} under {mutex}: {:x?}", run.only().stacks[waited.waiter]);
            // The program itself has no path.
            let programs = run.only().modules.iter().filter(|module| module.path.as_os_str().is_empty());
            assert_eq!(programs.count(), 1, "{name}: {:?}", run.only().modules);
        }
    }
}

/// A stack of which a part is taken from the one before is the same as one that was unwound as a whole: each place that makes
/// locks again and again has one class, and all have the same callers.
#[test]
fn stacks_that_begin_alike() {
    for (name, arguments) in
        [("births", &["-O2"][..]), ("births_unoptimized", &["-O0"]), ("births_stripped", &["-s"])]
    {
        let arguments: Vec<_> = arguments.iter().map(OsStr::new).collect();
        let Some(program) = compile("profile.c", &format!("profile_{name}"), &arguments) else { return };
        for mutex in ["glibc", default_mutex()] {
            let run = Run::new(&Setting::new(mutex, "glibc"), &program, "births");
            let recording = run.only();
            let births: Vec<_> = of(recording, Kind::Mutex).filter(|class| class.instances > 1).collect();
            assert!(
                births.iter().all(|class| class.instances == run.counts["instances"]),
                "{name}: {births:?}"
            );
            let mut places: Vec<_> = births.iter().map(|class| run.sites_of(class.birth)).collect();
            places.sort();
            assert_eq!(places, [&[][..], &["left", "trunk"], &["right", "trunk"]], "{name} under {mutex}");
            let stack = |place: &str| {
                let class = births.iter().find(|class| run.site(class.birth) == place).unwrap();
                &recording.stacks[class.birth]
            };
            // Behind the two that differ come `main` and its callers.
            assert_eq!(stack("left")[2..], stack("right")[2..], "{name} under {mutex}");
            let of_main = stack("left").len() - 2;
            assert!(of_main >= 2 && stack("elsewhere").len() <= of_main, "{name} under {mutex}");
            assert!(stack("left").ends_with(&stack("elsewhere")[1..]), "{name} under {mutex}");
        }
    }
}

/// Of many short waits only a part is looked at closely. All counts and sums are exact, and the estimates agree with them.
#[test]
fn estimates_agree_with_the_exact_sums() {
    let Some(program) = program() else { return };
    for (mutex, rwlock, rounds) in [
        ("glibc", "glibc", "100000"),
        (default_mutex(), "bravo-2d-shfl-rw", "100000"),
        // The next in line may not be running: on a busy machine each release may cost a time slice.
        ("mcs", "pf-q", "2000"),
    ] {
        let run = Run::new(&Setting::new(mutex, rwlock), &program, &format!("busy {rounds}"));
        let recording = run.only();
        assert_eq!(
            sum(recording, Kind::Mutex, |class| class.counters.acquisitions),
            run.counts["acquisitions"]
        );
        let both = run.counts["reads"] + run.counts["writes"];
        assert_eq!(sum(recording, Kind::RwLock, |class| class.counters.acquisitions), both);
        assert_eq!(sum(recording, Kind::RwLock, |class| class.counters.reads), run.counts["reads"]);
        for (number, class) in recording.classes.iter().enumerate() {
            let counters = &class.counters;
            assert!(counters.contended <= counters.acquisitions && counters.wait_max <= counters.wait_nanos);
            assert_eq!(class.waits.iter().sum::<u64>(), counters.contended, "{mutex}, {rwlock}");
            let pairs = |whole| {
                let of_class = recording.pairs.iter().filter(move |pair| pair.class == number);
                of_class.filter(move |pair| (pair.cause == Cause::Whole) == whole)
            };
            let nanos = |whole| pairs(whole).map(|pair| pair.nanos).sum::<u64>();
            assert_eq!((nanos(true), nanos(false)), (counters.wait_nanos, counters.wait_nanos), "{mutex}");
            assert_eq!(pairs(true).map(|pair| pair.waits).sum::<u64>(), counters.contended, "{mutex}");
        }
        let waits: u64 = recording.threads.iter().map(|thread| thread.waits).sum();
        assert_eq!(waits, recording.classes.iter().map(|class| class.counters.contended).sum::<u64>());
    }
}

/// Where a lock goes next, and how many readers are inside.
#[test]
fn successions_and_readers() {
    let Some(program) = program() else { return };
    for mutex in ["glibc", default_mutex()] {
        for (batch, place) in [(1, "together"), (1, "apart"), (10, "together"), (20_000, "together")] {
            let run = Run::new(&Setting::new(mutex, "glibc"), &program, &format!("turns {batch} {place}"));
            let class = of(run.only(), Kind::Mutex).next().unwrap();
            let counters = &class.counters;
            assert_eq!((counters.acquisitions, counters.contended), (run.counts["acquisitions"], 0));
            // One acquisition in 64 is compared, and stands for 64.
            let compared = counters.successions;
            assert!(compared.abs_diff(counters.acquisitions) < counters.acquisitions / 3, "{compared}");
            let share = |part: u64| part as f64 / compared as f64;
            match batch {
                1 => assert_eq!(counters.owner_changes, compared),
                // Of about 600 that are compared: the tolerance is five times the standard deviation.
                10 => assert!((share(counters.owner_changes) - 0.1).abs() < 0.07, "{counters:?}"),
                _ => assert!(counters.owner_changes <= 64, "{counters:?}"),
            }
            let moves = place == "apart" && run.counts["apart"] == 1;
            assert_eq!(counters.cpu_changes, if moves { compared } else { 0 }, "{batch} {place}");
            assert!(counters.node_changes <= counters.cpu_changes, "{counters:?}");
        }
    }
    for rwlock in ["glibc", "bravo-2d-shfl-rw", "pf-q"] {
        let read = |run: &Run| sum(run.only(), Kind::RwLock, |class| class.counters.read_nanos);
        let check = |run: &Run| about(read(run), run.times["hold"], 6, "reading");
        let run = run(&Setting::new("glibc", rwlock), &program, "inside", check);
        let class = of(run.only(), Kind::RwLock).next().unwrap();
        assert_eq!(class.counters.most_readers, run.counts["readers"], "{rwlock}");
        assert_eq!(class.counters.read_samples, 6);
    }
    let single = Run::new(&Setting::new("glibc", "glibc"), &program, "single");
    assert_eq!(of(single.only(), Kind::RwLock).next().unwrap().counters.most_readers, 1);
    let writers = Run::new(&Setting::new("glibc", "glibc"), &program, "writers");
    let class = of(writers.only(), Kind::RwLock).next().unwrap();
    assert_eq!((class.counters.most_readers, class.counters.read_samples), (0, 0));
}

/// Waiters of a spin lock spin, and those of a mutex sleep: the threads' own CPU clocks say how long.
#[test]
fn spinning_and_sleeping() {
    let Some(program) = program() else { return };
    for mutex in ["glibc", default_mutex(), "mcs", "ticket"] {
        for mode in ["spin", "blame"] {
            let check = |run: &Run| {
                check_blame(run, if mode == "spin" { Kind::Spin } else { Kind::Mutex })?;
                let spun: u64 = run.only().classes.iter().map(|class| class.counters.spun_nanos).sum();
                let (cpu, wait) = (run.times["cpu"], run.times["wait"]);
                let near = spun.abs_diff(cpu) <= slack(wait);
                near.then_some(()).ok_or_else(|| format!("{spun} ns of CPU time recorded, {cpu} in truth"))
            };
            run(&Setting::new(mutex, "glibc"), &program, mode, check);
        }
    }
}

/// C++: a lock in a template wrapper, `std::shared_mutex`, `std::condition_variable`; with and without frame pointers.
#[test]
fn cpp_programs() {
    for (name, arguments) in [
        ("described", &["-fomit-frame-pointer"][..]),
        ("pointers", &["-fno-omit-frame-pointer"]),
        ("unoptimized", &["-O0"]),
        ("stripped", &["-s"]),
    ] {
        let arguments: Vec<_> = arguments.iter().map(OsStr::new).collect();
        let Some(program) = compile("profile.cpp", &format!("profile_cpp_{name}"), &arguments) else {
            return;
        };
        for mutex in ["glibc", default_mutex()] {
            let setting = Setting::new(mutex, "glibc");
            run(&setting, &program, "blame", |run| check_blame(run, Kind::Mutex));
            run(&setting, &program, "rwlock", |run| check_blame(run, Kind::RwLock));
            let check = |run: &Run| {
                let idle = sum(run.only(), Kind::Condvar, |class| class.counters.wait_nanos);
                about(idle, run.times["idle"], 10, "waits for the condition")?;
                no_contention(run, idle)
            };
            run(&setting, &program, "pool", check);
        }
    }
}

/// A Rust program whose parking goes by pthread. (That of Rust's standard library does not: it calls the kernel itself.)
#[test]
fn rust_programs() {
    let program = scratch().join("profile_rust");
    let rustc = env::var_os("RUSTC").unwrap_or("rustc".into());
    let output = std::process::Command::new(rustc)
        .args(["-O", "-C", "debuginfo=1", "--edition", "2024", "-o"])
        .arg(&program)
        .arg(crate::manifest().join("tests/programs/profile_rust.rs"))
        .output()
        .expect("rustc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for mutex in ["glibc", default_mutex()] {
        let check = |run: &Run| {
            let class = of(run.only(), Kind::Mutex).max_by_key(|class| class.counters.acquisitions).unwrap();
            assert_eq!(class.counters.acquisitions, run.counts["acquisitions"], "none of std's");
            about(class.counters.wait_nanos, run.times["wait"], 24, "waits")?;
            about(class.counters.hold_nanos, run.times["hold"], 24, "holds")?;
            let idle = sum(run.only(), Kind::Condvar, |class| class.counters.wait_nanos);
            about(idle, run.times["idle"], 20, "the parked thread")
        };
        run(&Setting::new(mutex, "glibc"), &program, "", check);
    }
}

/// Ten thousand threads at one time, each with a table.
#[test]
fn ten_thousand_threads() {
    let Some(program) = program() else { return };
    for mutex in ["glibc", default_mutex()] {
        let run = Run::new(&Setting::new(mutex, "glibc"), &program, "many");
        let recording = run.only();
        // The system may allow fewer.
        let threads = run.counts["threads"];
        assert_eq!(recording.threads.len() as u64, threads + 1);
        let mutexes: u64 = sum(recording, Kind::Mutex, |class| class.counters.acquisitions);
        assert!(mutexes > threads && recording.dropped.is_empty(), "{:?}", recording.dropped);
        // A table has 5 KiB.
        assert!(recording.bytes < threads * 6 * 1024 + (8 << 20), "{} bytes", recording.bytes);
    }
}

#[test]
fn spin_locks_and_rwlocks() {
    let Some(program) = program() else { return };
    for mutex in ["glibc", default_mutex()] {
        run(&Setting::new(mutex, "glibc"), &program, "spin", |run| check_blame(run, Kind::Spin));
    }
    for rwlock in ["glibc", "bravo-2d-shfl-rw", "pf-q", "bravo-2d-glibc"] {
        run(&Setting::new("glibc", rwlock), &program, "rwlock", |run| check_blame(run, Kind::RwLock));
    }
}

/// Threads that wait for work show no contention.
#[test]
fn waits_for_conditions_are_kept_apart() {
    let Some(program) = program() else { return };
    for mutex in ["glibc", default_mutex()] {
        let idle = |run: &Run| sum(run.only(), Kind::Condvar, |class| class.counters.wait_nanos);
        let check = |run: &Run| {
            about(idle(run), run.times["idle"], 100, "waits for the condition")?;
            no_contention(run, idle(run))
        };
        let pool = run(&Setting::new(mutex, "glibc"), &program, "pool", check);
        let (recording, idle) = (pool.only(), idle(&pool));
        let sleeps: u64 = recording.threads.iter().map(|thread| thread.sleep_nanos).sum();
        assert_eq!(sleeps, idle);
        let again = sum(recording, Kind::Mutex, |class| class.counters.relock_nanos);
        assert!(again <= idle);
        assert_eq!(sum(recording, Kind::Condvar, |class| class.counters.reads), pool.counts["notifications"]);

        let idle = |run: &Run| sum(run.only(), Kind::Semaphore, |class| class.counters.wait_nanos);
        let refused = Run::new(&Setting::new(mutex, "glibc"), &program, "refused");
        assert_eq!(sum(refused.only(), Kind::Mutex, |class| class.counters.acquisitions), 1);

        // Some waits are interrupted by signals, and begun again.
        for mode in ["sem", "interrupted"] {
            let pieces = |run: &Run| 20 + run.counts.get("interruptions").copied().unwrap_or(0);
            let check = |run: &Run| about(idle(run), run.times["idle"], pieces(run), "waits for units");
            let run = run(&Setting::new(mutex, "glibc"), &program, mode, check);
            let recording = run.only();
            assert_eq!(pieces(&run) > 40, mode == "interrupted", "{mode}");
            assert_eq!(sum(recording, Kind::Semaphore, |class| class.counters.acquisitions), 20, "{mode}");
            assert_eq!(sum(recording, Kind::Semaphore, |class| class.counters.reads), run.counts["posts"]);
            assert_eq!(sum(recording, Kind::Semaphore, |class| class.counters.relocks), 0, "{mode}");
            assert_eq!(recording.threads.iter().map(|thread| thread.waits).sum::<u64>(), 0, "{mode}");
        }
    }
}

/// The threads that wait for the semaphore post it afterwards.
#[test]
fn a_semaphore_that_serves_as_a_lock() {
    let Some(program) = program() else { return };
    let waits = |run: &Run| sum(run.only(), Kind::Semaphore, |class| class.counters.contended);
    // On a busy machine one thread may come when the other one has ended.
    let check = |run: &Run| {
        let waits = waits(run);
        (waits >= 10).then_some(()).ok_or_else(|| format!("{waits} waits"))
    };
    let run = run(&Setting::new("glibc", "glibc"), &program, "unit", check);
    let waits = waits(&run);
    assert_eq!(sum(run.only(), Kind::Semaphore, |class| class.counters.relocks), waits);
}

/// A wait for a condition ends when the thread begins to wait for its mutex, as far as the recorder sees that.
#[test]
fn a_mutex_that_is_taken_again_after_a_condition() {
    let Some(program) = program() else { return };
    for mutex in ["glibc", default_mutex()] {
        let check = |run: &Run| {
            let asleep = sum(run.only(), Kind::Condvar, |class| class.counters.wait_nanos);
            let again = sum(run.only(), Kind::Mutex, |class| class.counters.relock_nanos);
            let both = run.times["idle"];
            eprintln!("{mutex}: {asleep} ns asleep, {again} ns for the mutex, {both} ns in truth");
            about(asleep + again, both, 50, "waits for the condition and for the mutex")?;
            if mutex == "glibc" {
                assert_eq!(again, 0);
            } else if again < both / 10 {
                return Err(format!("{again} ns of {both} ns only were spent on the mutex"));
            }
            let sleeps: u64 = run.only().threads.iter().map(|thread| thread.sleep_nanos).sum();
            assert_eq!(sleeps, asleep);
            Ok(())
        };
        run(&Setting::new(mutex, "glibc"), &program, "herd", check);
    }
}

/// A thread's life begins when it starts, and not with its first lock call.
#[test]
fn threads_that_lock_late() {
    let Some(program) = program() else { return };
    let check = |run: &Run| {
        let threads = &run.only().threads;
        assert!(threads.len() == 3 && threads.iter().all(|thread| thread.started >= run.only().started));
        let lived: u64 = threads.iter().map(|thread| thread.ended - thread.started).sum();
        eprintln!("{lived} ns recorded, {} in truth", run.times["lived"]);
        about(lived, run.times["lived"], 0, "the lives of threads")
    };
    run(&Setting::new("glibc", "glibc"), &program, "newcomers", check);
}

/// Locks have the names that the program gives them, and locks of `latchwork.h` are recorded too.
#[test]
fn names_and_locks_of_their_own() {
    let Some(program) = compile("named.c", "named", &[]) else { return };
    for mutex in ["glibc", default_mutex()] {
        let run = Run::new(&Setting::new(mutex, "glibc"), &program, "names");
        let mut found: Vec<_> = run
            .only()
            .classes
            .iter()
            .map(|class| {
                let counters = &class.counters;
                assert_eq!(class.waits.iter().sum::<u64>(), counters.contended);
                let counts = (counters.acquisitions, counters.reads, counters.contended, counters.failed);
                (&*class.name, class.kind, class.own, counts)
            })
            .collect();
        found.sort_by_key(|&(name, _, own, counts)| (name, own, counts.0));
        let expected = [
            ("", Kind::Mutex, false, (1, 0, 0, 0)),
            ("", Kind::Mutex, false, (6, 0, 0, 0)),
            ("", Kind::Mutex, true, (7, 0, 0, 0)),
            ("a name of more than thirty-nine bytes i", Kind::Mutex, false, (5, 0, 0, 0)),
            ("accounts", Kind::Mutex, false, (30, 0, 0, 0)),
            ("ledger", Kind::Mutex, false, (2, 0, 0, 0)),
            ("log", Kind::Mutex, true, (24, 0, 3, 2)),
            ("routes", Kind::RwLock, false, (1, 1, 0, 0)),
            ("shard 1", Kind::Mutex, false, (4, 0, 0, 0)),
            ("table", Kind::RwLock, true, (33, 23, 0, 0)),
        ];
        assert_eq!(found, expected, "under {mutex}");
    }
}

#[test]
fn calls_that_give_up() {
    let Some(program) = program() else { return };
    for mutex in ["glibc", default_mutex()] {
        let waited = |run: &Run| sum(run.only(), Kind::Mutex, |class| class.counters.wait_nanos);
        let check = |run: &Run| about(waited(run), run.times["wait"], 2, "waits");
        let run = run(&Setting::new(mutex, "glibc"), &program, "late", check);
        let timeouts = sum(run.only(), Kind::Mutex, |class| class.counters.timeouts);
        assert_eq!(timeouts, run.counts["timeouts"]);
        let parts = run.only().pairs.iter().filter(|pair| pair.cause != Cause::Whole);
        assert_eq!(parts.map(|pair| pair.nanos).sum::<u64>(), waited(&run));
        let expired = Run::new(&Setting::new(mutex, "glibc"), &program, "expired");
        for (kind, name) in [(Kind::Condvar, "conditions"), (Kind::Semaphore, "units")] {
            let timeouts = sum(expired.only(), kind, |class| class.counters.timeouts);
            assert_eq!(timeouts, expired.counts[name], "{mutex}");
        }
    }
}

/// A hold ends with the release by the thread that acquired the lock. One that another thread releases is not measured.
#[test]
fn locks_that_another_thread_releases() {
    let Some(program) = program() else { return };
    let run = Run::new(&Setting::new("glibc", "glibc"), &program, "passed");
    let counters = &of(run.only(), Kind::Mutex).next().unwrap().counters;
    assert_eq!((counters.acquisitions, counters.hold_samples), (12, 8));
    crate::recorded::run(&Setting::new("glibc", "glibc"), &program, "returned", |run| {
        let longest = of(run.only(), Kind::Mutex).map(|class| class.counters.hold_max).max().unwrap();
        (longest < 25_000_000).then_some(()).ok_or_else(|| format!("held for {longest} ns"))
    });
}

#[test]
fn counts_are_exact() {
    let Some(program) = program() else { return };
    let check = |run: &Run| {
        let all = |count: fn(&Class) -> u64| {
            sum(run.only(), Kind::Mutex, count) + sum(run.only(), Kind::RwLock, count)
        };
        assert_eq!(all(|class| class.counters.acquisitions), run.counts["acquisitions"]);
        assert_eq!(sum(run.only(), Kind::RwLock, |class| class.counters.reads), run.counts["reads"]);
        assert_eq!(sum(run.only(), Kind::Mutex, |class| class.counters.reads), run.counts["nested"]);
        assert_eq!(all(|class| class.counters.failed), run.counts["failed"]);
        assert_eq!(all(|class| class.counters.contended), 0);
        // A recursive mutex is held from the first acquisition to the last release. The main thread holds another one for
        // longer, which has not been destroyed.
        let longest = of(run.only(), Kind::Mutex)
            .filter(|class| class.counters.acquisitions == 3)
            .map(|class| class.counters.hold_max)
            .max();
        about(longest.unwrap(), run.times["longest"], 1, "the recursive mutex")
    };
    for (mutex, rwlock) in [("glibc", "glibc"), (default_mutex(), "bravo-2d-shfl-rw"), ("mcs", "pf-q")] {
        run(&Setting::new(mutex, rwlock), &program, "counts", check);
    }
}

/// A million locks that live shortly need no more memory than the few that live at one time, and one hot lock among a
/// thousand is found.
#[test]
fn many_locks() {
    let Some(program) = program() else { return };
    let short = Run::new(&Setting::new("glibc", "glibc"), &program, "instances");
    let recording = short.only();
    assert_eq!(
        sum(recording, Kind::Mutex, |class| class.counters.acquisitions),
        short.counts["acquisitions"]
    );
    assert_eq!(sum(recording, Kind::Mutex, |class| class.instances), short.counts["instances"]);
    assert!(recording.dropped.is_empty(), "{:?}", recording.dropped);
    assert!(recording.bytes < 4 << 20, "{} bytes", recording.bytes);

    let check = |run: &Run| {
        let class = of(run.only(), Kind::Mutex).max_by_key(|class| class.instances).unwrap();
        assert_eq!(class.instances, run.counts["instances"]);
        assert_eq!(class.counters.acquisitions, run.counts["acquisitions"]);
        let contended: Vec<_> = class.objects.iter().filter(|object| object.contended > 0).collect();
        let hot = match contended[..] {
            [hot] => hot,
            [] => return Err("no contended object".into()),
            _ => panic!("{} contended objects", contended.len()),
        };
        // Two wait for the third. One that has just been let in may still count as waiting when the one before it comes again.
        assert!(hot.acquisitions >= 300 && hot.most_waiting <= 3, "{hot:?}");
        (hot.most_waiting >= 2).then_some(()).ok_or_else(|| format!("no two waited: {hot:?}"))
    };
    run(&Setting::new("glibc", "glibc"), &program, "crowd", check);
}

/// Stacks that cannot be unwound, and code that interrupts the recorder.
#[test]
fn hostile_stacks_and_signal_handlers() {
    let Some(program) = program() else { return };
    for mutex in ["glibc", default_mutex()] {
        for mode in ["jit", "coroutine"] {
            let run = Run::new(&Setting::new(mutex, "glibc"), &program, mode);
            let acquisitions = sum(run.only(), Kind::Mutex, |class| class.counters.acquisitions);
            assert_eq!(acquisitions, run.counts["acquisitions"], "{mode}");
        }
        let run = Run::new(&Setting::new(mutex, "glibc"), &program, "signals");
        assert!(sum(run.only(), Kind::Mutex, |class| class.counters.acquisitions) > 60_000);
        // Threads that have ended leave their tables to new ones.
        let run = Run::new(&Setting::new(mutex, "glibc"), &program, "threads");
        let acquisitions = sum(run.only(), Kind::Mutex, |class| class.counters.acquisitions);
        assert_eq!(acquisitions, run.counts["acquisitions"]);
        // One uncontended hold in 64 is measured, and stands for 64.
        let samples = sum(run.only(), Kind::Mutex, |class| class.counters.hold_samples);
        assert!(samples.abs_diff(acquisitions) < acquisitions / 7, "{samples} for {acquisitions}");
        assert!(run.only().threads.len() >= 2000 && run.only().bytes < 4 << 20);
    }
}

#[test]
fn a_killed_process_leaves_its_recording() {
    let Some(program) = program() else { return };
    let check = |run: &Run| check_blame(run, Kind::Mutex);
    let run = run(&Setting::new(default_mutex(), "glibc"), &program, "kill", check);
    assert!(!run.only().complete);
    // The last sign of life of each thread is near its end.
    for thread in &run.only().threads {
        assert!(thread.started < thread.ended && thread.ended <= run.only().ended, "{thread:?}");
    }
}

/// A forked child and the program that it becomes have recordings of their own.
#[test]
fn fork_and_exec() {
    let Some(program) = program() else { return };
    for mutex in ["glibc", default_mutex()] {
        let run = Run::new(&Setting::new(mutex, "glibc"), &program, "family");
        assert_eq!(run.recordings.len(), 3);
        let acquisitions = |recording| sum(recording, Kind::Mutex, |class| class.counters.acquisitions);
        let parent = run.recordings.iter().find(|one| acquisitions(one) == 1).expect("the parent's");
        let child = run.recordings.iter().find(|one| one.forked).expect("the child's");
        let program = run.recordings.iter().find(|one| acquisitions(one) == 1202).expect("the new program's");
        assert_eq!((acquisitions(child), child.parent), (40, parent.pid));
        assert_eq!((program.pid, program.parent), (child.pid, parent.pid));
        assert!(parent.complete && !child.complete && program.complete);
    }
}

/// So have children that no fork handler runs in. None writes into its parent's recording.
#[test]
fn unnoticed_forks() {
    let Some(program) = program() else { return };
    for mutex in ["glibc", default_mutex()] {
        let run = Run::new(&Setting::new(mutex, "glibc"), &program, "unnoticed");
        let acquisitions = |recording| sum(recording, Kind::Mutex, |class| class.counters.acquisitions);
        let found = |forked: bool| run.recordings.iter().filter(move |one| one.forked == forked);
        let [parent] = found(false).collect::<Vec<_>>()[..] else { panic!("one parent") };
        let children: Vec<_> = found(true).collect();
        assert_eq!((acquisitions(parent), parent.threads.len(), parent.complete), (2, 1, true));
        assert_eq!(children.iter().map(|child| acquisitions(child)).collect::<Vec<_>>(), [40, 40]);
        assert_eq!(children.iter().filter(|child| child.complete).count(), 1);
        assert!(children.iter().all(|child| child.parent == parent.pid && child.ended <= parent.ended));
    }
}

/// A full disk costs records, not the program.
#[test]
fn full_disk() {
    let Some(program) = program() else { return };
    let disk = scratch().join("small-disk");
    let _ = fs::create_dir(&disk);
    let path = std::ffi::CString::new(disk.as_os_str().as_encoded_bytes()).unwrap();
    /// Ends the mount, also if the test fails.
    struct Mounted<'a>(&'a std::ffi::CStr);
    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            // SAFETY: a string.
            unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
        }
    }
    let mount = || {
        let options = c"size=128k".as_ptr().cast();
        // SAFETY: a system call with strings; the file system is this test's own.
        let status =
            unsafe { libc::mount(c"latchwork".as_ptr(), path.as_ptr(), c"tmpfs".as_ptr(), 0, options) };
        (status == 0).then(|| Mounted(&path))
    };
    let mut modes = Vec::new();
    for mode in ["counts", "threads", "crowd", "signals"] {
        // Each has a disk of its own: what one leaves may keep its room a little longer, while another process looks at it in
        // /proc.
        let Some(_mounted) = mount() else {
            eprintln!("SKIPPED: this user may not mount a file system");
            return;
        };
        let mut command = Setting::new("glibc", "glibc").command(&program);
        let output = watch(command.arg(mode).env("LATCHWORK_PROFILE", &disk), "profile.c on a full disk");
        let files = fs::read_dir(&disk).unwrap().map(|file| file.unwrap().path());
        let dropped: u64 = files
            .flat_map(|file| {
                let dropped = Recording::read(&file).unwrap().dropped;
                fs::remove_file(file).unwrap();
                dropped
            })
            .map(|(_, count)| count)
            .sum();
        modes.push((mode, output.status.success(), dropped > 0));
    }
    assert!(modes.iter().all(|(_, success, dropped)| *success && *dropped), "{modes:?}");
}

/// Programs that check themselves find no difference when they are recorded. (`LATCHWORK_TEST_PROFILED=1` runs all programs
/// of all tests so.)
#[test]
fn programs_run_as_before() {
    for source in
        ["mutex.c", "cond.c", "cancel.c", "fork.c", "rwlock.c", "spin.c", "sem.c", "c11.c", "cpp.cpp"]
    {
        let Some(program) = compile(source, &format!("profiled_{source}"), &[]) else { return };
        let settings = [("glibc", "glibc"), (default_mutex(), "bravo-2d-shfl-rw")];
        let all = env::var_os("LATCHWORK_ALL").is_some();
        for (mutex, rwlock) in settings.into_iter().skip(usize::from(!all && source != "fork.c")) {
            Setting { profiled: true, ..Setting::new(mutex, rwlock) }.check(&program);
        }
    }
}

/// Where the recorder makes the first attempt at a lock of glibc's itself, the lock looks as glibc's own function leaves it.
#[test]
fn locks_look_as_glibc_leaves_them() {
    let Some(program) = compile("alike.c", "alike", &[]) else { return };
    for profiled in [false, true] {
        Setting { profiled, ..Setting::new("glibc", "glibc") }.check(&program);
    }
}

/// A process that hardly locks occupies the memory of a few pages with its recording, on any file system. (The files of a test
/// lie in memory elsewhere. Some file systems fill 2 MiB where a program touches 4 KiB of a file.)
#[test]
fn the_memory_of_a_recording() {
    let Some(program) = compile("room.c", "room", &[]) else { return };
    for variable in ["LATCHWORK_PROFILE", "LATCHWORK_TRACE"] {
        let directory = scratch().join(format!("room-{variable}-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let setting = Setting::new(default_mutex(), "glibc");
        let output = watch(
            setting.command(&program).arg(&directory).env(variable, &directory),
            &setting.what(&program),
        );
        fs::remove_dir_all(directory).unwrap();
        let room: u32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
        assert!((4..2048).contains(&room), "{variable}: {room} KiB");
    }
}

/// Without a directory that can be written, the program runs all the same.
#[test]
fn without_a_directory() {
    let Some(program) = program() else { return };
    let mut command = Setting::new(default_mutex(), "glibc").command(&program);
    command.arg("counts").env("LATCHWORK_PROFILE", "/dev/null/profile");
    let output = watch(command, "profile.c without a directory");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && stderr.contains("no profile in /dev/null/profile"), "{stderr}");
}

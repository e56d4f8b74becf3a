//! Runs as a whole: what they report, and how they end.

use super::*;
use latchwork::locks::mutex::{RawMutex, mcs::RawMcs, shfl::RawShfl};
use latchwork::machine::Machine;
use latchwork_sim::{Error, Number, Sim, U32, acquired, acquiring, fail, released};
use std::sync::atomic::AtomicU64;

/// A closed loop over one lock.
fn contend<L: RawMutex<Machine = Sim>>(threads: usize, rounds: u64, options: &Options) -> Report {
    let lock = Padded(L::new_in());
    let data = line();
    let body = || {
        for _ in 0..rounds {
            acquiring();
            let token = lock.0.lock();
            acquired(0);
            rmw(&data);
            work(20);
            released(0);
            // SAFETY: acquired above.
            unsafe { lock.0.unlock(token) };
            work(100);
        }
    };
    play(&machine((2, 1, 8, 1)), options, vec![&body; threads])
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let hash = |seed| contend::<RawMcs<Sim>>(16, 50, &Options { seed, ..Options::default() }).trace_hash;
    assert_eq!(hash(1), hash(1));
    assert_ne!(hash(1), hash(2));
}

#[test]
fn the_reference_trace() {
    // It changes when the model does: put the new one here, knowing that all results change with it.
    let report = contend::<RawMcs<Sim>>(4, 10, &Options::default());
    assert_eq!(format!("{:016x}", report.trace_hash), "8c84319eb201624e");
}

#[test]
fn several_simulations_at_once() {
    let alone = contend::<RawShfl<Sim>>(12, 40, &Options::default()).trace_hash;
    std::thread::scope(|scope| {
        let runs: Vec<_> = (0..3)
            .map(|_| scope.spawn(|| contend::<RawShfl<Sim>>(12, 40, &Options::default()).trace_hash))
            .collect();
        for run in runs {
            assert_eq!(run.join().unwrap(), alone);
        }
    });
}

#[test]
fn what_a_report_says() {
    let report = contend::<RawMcs<Sim>>(16, 50, &Options::default());
    assert_eq!(report.acquisitions, 16 * 50);
    assert!(report.handovers > 700 && report.handovers <= report.acquisitions);
    assert!((0.05..0.95).contains(&report.remote_handover_fraction()));
    assert_eq!(report.waits.len(), report.acquisitions);
    assert!(report.wait_quantile(0.5) <= report.wait_quantile(0.99));
    assert!(report.wait_quantile(0.99) <= report.longest_wait());
    assert!(report.wait_quantile(0.5) > 16 * 70, "sixteen sections of at least 70 ns");
    // The lock word's swap and exchange, the data, the successor's link, the grant.
    let misses = report.total.misses as f64 / report.acquisitions as f64;
    assert!((3.0..8.0).contains(&misses), "{misses}");
    assert_eq!(report.critical_wakeups, 0);
    let sum: u64 = report.threads.iter().map(|thread| thread.misses).sum();
    assert_eq!(sum, report.total.misses);
}

#[test]
fn wakeups_on_the_critical_path() {
    // Thread 1 sleeps until the lock is free, and takes it then.
    let word = Padded(U32::new(1));
    let report = play(
        &machine((1, 1, 2, 1)),
        &exact(),
        vec![
            &|| {
                acquired(0);
                at(10_000);
                released(0);
                word.0.store(0, Relaxed);
                Sim::wake(&raw const word.0, 1);
            },
            &|| {
                acquiring();
                while word.0.load(Relaxed) != 0 {
                    Sim::wait(&word.0, 1, None);
                }
                acquired(0);
                released(0);
            },
        ],
    );
    assert_eq!((report.critical_wakeups, report.handovers, report.remote_handovers), (1, 1, 0));
    assert!(report.longest_wait() > 15_000);
}

fn error(options: &Options, bodies: Vec<&dyn Fn()>) -> Error {
    let bodies = bodies.into_iter().map(|body| Box::new(body) as Box<dyn FnOnce()>).collect();
    run(&machine((1, 1, 2, 1)), options, bodies).unwrap_err()
}

#[test]
fn too_many_threads_and_none() {
    let nothing = || ();
    let Error::Usage(message) = error(&exact(), vec![&nothing; 1025]) else { panic!() };
    assert_eq!(message, "1025 threads: at most 1024 can be simulated");
    assert!(matches!(error(&exact(), vec![]), Error::Usage(_)));
    play(&machine((1, 1, 2, 1)), &exact(), vec![&nothing; 1024]);
}

#[test]
fn a_deadlock_says_who_waits_for_what() {
    let (flag, word) = (Padded((0u32, U32::new(0))), Padded(U32::new(0)));
    let mut options = exact();
    options.label(&flag, "flag");
    options.label(&word, "word");
    let error = error(
        &options,
        vec![&|| ignore(Sim::spin_until(&flag.0.1, Relaxed, |f| f != 0)), &|| {
            acquired(0);
            Sim::wait(&word.0, 0, None);
        }],
    );
    let Error::Deadlock { at_ns, waits } = &error else { panic!("{error}") };
    assert!(*at_ns < 1000, "{error}");
    let offset = std::mem::offset_of!((u32, U32), 1);
    let flag = if offset == 0 { "flag".into() } else { format!("flag+{offset}") };
    assert_eq!(waits[0], format!("thread 0 on CPU 0 spins on {flag}"));
    assert_eq!(waits[1], "thread 1 on CPU 1 sleeps on word, holding a lock");
}

#[test]
fn a_deadlock_of_spinners_that_share_a_processor() {
    let x = line();
    let spinner = || ignore(Sim::spin_until(&x.0, Relaxed, |value| value != 0));
    assert!(matches!(error(&exact(), vec![&spinner; 7]), Error::Deadlock { .. }));
}

#[test]
fn a_long_scan_is_no_deadlock() {
    let words: Vec<Line> = (0..64).map(|_| line()).collect();
    let scan = || (0..1000).for_each(|_| words.iter().for_each(|word| ignore(load(word))));
    let report = play(&machine((1, 1, 2, 1)), &exact(), vec![&scan, &scan]);
    assert_eq!(report.total.accesses, 2 * 64_000);
}

#[test]
fn a_predicate_that_panics() {
    let x = line();
    let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        play(
            &machine((1, 1, 2, 1)),
            &exact(),
            vec![
                &|| {
                    work(100);
                    store(&x);
                },
                &|| ignore(Sim::spin_until(&x.0, Relaxed, |value| value != 0 && panic!("on purpose"))),
            ],
        )
    }));
    assert_eq!(run.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
}

#[test]
fn a_time_limit() {
    let options = Options { limit_ns: 1_000_000, ..exact() };
    let error = error(
        &options,
        vec![&|| loop {
            work(1000);
        }],
    );
    assert!(matches!(error, Error::TimeLimit { limit_ns: 1_000_000, .. }), "{error}");
}

#[test]
fn a_body_can_fail_and_the_next_run_is_not_disturbed() {
    let before = contend::<RawShfl<Sim>>(8, 20, &Options::default()).trace_hash;
    let other = || work(1_000_000);
    let error = error(
        &exact(),
        vec![&other, &|| {
            work(70);
            fail("no luck");
        }],
    );
    assert_eq!(error, Error::Failed { at_ns: 70, message: "no luck".into() });
    assert_eq!(contend::<RawShfl<Sim>>(8, 20, &Options::default()).trace_hash, before);
}

#[test]
fn a_panic_is_passed_on() {
    let run = std::panic::catch_unwind(|| {
        let other = || work(1_000_000);
        play(
            &machine((1, 1, 2, 1)),
            &exact(),
            vec![&other, &|| {
                work(70);
                panic!("on purpose");
            }],
        )
    });
    assert_eq!(run.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
}

#[test]
fn a_thousand_threads_on_512_processors() {
    let report = contend_on("8x64");
    assert_eq!(report.acquisitions, 1024 * 3);
}

fn contend_on(machine: &str) -> Report {
    let lock = Padded(RawShfl::<Sim>::new_in());
    let body = || {
        for _ in 0..3 {
            lock.0.lock();
            acquired(0);
            work(20);
            released(0);
            // SAFETY: acquired above.
            unsafe { lock.0.unlock(()) };
            work(1000);
        }
    };
    play(&Profile::find(machine).unwrap(), &Options::default(), vec![&body; 1024])
}

#[test]
fn a_processor_that_was_idle_for_a_moment_wakes_up_sooner() {
    // Thread 1 sleeps for a while, and says when it runs again.
    let waits = |idle: u64, soon: Option<f64>| {
        let (word, ran) = (Padded(U32::new(0)), AtomicU64::new(0));
        let mut profile = machine((1, 1, 2, 1));
        let number = |value| Number { value, source: "test".into() };
        profile.kernel.wakeup_soon = soon.map(number);
        play(
            &profile,
            &exact(),
            vec![
                &|| {
                    at(idle);
                    word.0.store(1, Relaxed);
                    Sim::wake(&raw const word.0, 1);
                },
                &|| {
                    Sim::wait(&word.0, 0, None);
                    ran.store(now(), Relaxed);
                },
            ],
        );
        ran.load(Relaxed) - idle
    };
    let (long, short) = (200_000, 20_000);
    assert_eq!(waits(long, None), waits(short, None));
    assert_eq!(waits(long, Some(1000.0)), waits(long, None));
    assert_eq!(waits(short, Some(1000.0)), waits(short, None) - 4000, "the round number is 5000");
}

/// A processor needs a moment to fall asleep: until then a wake needs no interrupt.
#[test]
fn a_thread_that_has_just_gone_to_sleep_is_woken_at_less_cost() {
    // What the wake takes, and from its end to the woken thread.
    let wake = |idle: u64, falls_asleep: Option<f64>| {
        let (word, ran, call) = (Padded(U32::new(0)), AtomicU64::new(0), AtomicU64::new(0));
        let mut profile = machine((1, 1, 2, 1));
        let number = |value| Number { value, source: "test".into() };
        profile.kernel.falls_asleep = falls_asleep.map(number);
        profile.kernel.wake_early = Some(number(300.0));
        profile.kernel.wakeup_early = Some(number(1000.0));
        play(
            &profile,
            &exact(),
            vec![
                &|| {
                    at(1000 + idle);
                    word.0.store(1, Relaxed);
                    call.store(timed(|| Sim::wake(&raw const word.0, 1)), Relaxed);
                },
                &|| {
                    work(1000);
                    Sim::wait(&word.0, 0, None);
                    ran.store(now(), Relaxed);
                },
            ],
        );
        (call.load(Relaxed), ran.load(Relaxed) - 1000 - idle)
    };
    let late = wake(1500, None);
    assert_eq!(wake(20_000, Some(2000.0)).0, late.0, "the processor sleeps");
    let early = wake(1500, Some(2000.0));
    assert_eq!(late.0 - early.0, 1000 - 300);
    assert_eq!(late.1 - early.1, 1000 - 300 + 5000 - 1000);
}

/// On one processor: the second thread sleeps, and the first wakes it and goes on. On two, the waker is alone on its own.
#[test]
fn a_woken_thread_takes_the_place_of_one_that_has_had_more_time() {
    // How long after the wake the woken thread runs, if it has computed for `before` nanoseconds before it went to sleep.
    let waits = |cpus: usize, before: u64, busy: Option<f64>| {
        let (word, woken, ran) = (Padded(U32::new(0)), AtomicU64::new(0), AtomicU64::new(0));
        let mut profile = machine((1, 1, cpus, 1));
        profile.kernel.wakeup_busy = busy.map(|value| Number { value, source: "test".into() });
        let waker = || {
            if cpus == 1 {
                // The other thread computes now, and goes to sleep.
                Sim::yield_now();
            }
            work(20_000);
            word.0.store(1, Relaxed);
            Sim::wake(&raw const word.0, 1);
            woken.store(now(), Relaxed);
            work(60_000);
        };
        let sleeper = || {
            work(before);
            Sim::wait(&word.0, 0, None);
            ran.store(now(), Relaxed);
        };
        // With two processors the waker takes its place on the first one, and it gets the sleeper's.
        let company = || work(90_000);
        let threads: Vec<&dyn Fn()> = match cpus {
            1 => vec![&waker, &sleeper],
            _ => vec![&company, &sleeper, &waker],
        };
        play(&profile, &exact(), threads);
        ran.load(Relaxed) - woken.load(Relaxed)
    };
    assert!(waits(1, 1000, None) >= 60_000, "no preemption without a number for it");
    // In the waker's own place, as soon as the system call returns, but for the piece of computation that the waker begins.
    let at_once = waits(1, 1000, Some(6000.0));
    assert!((1500..=3500).contains(&at_once), "{at_once}");
    // In another's place, also at the end of a piece.
    let soon = waits(2, 1000, Some(6000.0));
    assert!((6000..=8100).contains(&soon), "{soon}");
    // It has had 90 us, and the other thread 20.
    let late = waits(1, 90_000, Some(6000.0));
    assert!(late >= 60_000, "{late}");
}

/// A waiter that spins for a number of looks makes none while its processor pauses.
#[test]
fn a_pause_lengthens_a_bounded_spin() {
    let spins = |pause: Option<f64>| {
        let (word, took) = (Padded(U32::new(0)), AtomicU64::new(0));
        let mut profile = machine((1, 1, 1, 1));
        let number = |value| Number { value, source: "test".into() };
        profile.kernel.pause_every = pause.map(|_| number(10_000.0));
        profile.kernel.pause = pause.map(number);
        let spinner = || {
            took.store(
                timed(|| ignore(Sim::spin_for(&word.0, Relaxed, 20_000, |value| value == 1))),
                Relaxed,
            );
        };
        play(&profile, &exact(), vec![&spinner]);
        took.load(Relaxed)
    };
    let (undisturbed, disturbed) = (spins(None), spins(Some(10_000.0)));
    assert!(disturbed > undisturbed + 20_000, "{undisturbed} and {disturbed}");
}

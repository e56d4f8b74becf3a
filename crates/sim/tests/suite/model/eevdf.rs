//! The rules of a scheduler that is EEVDF.

use super::*;
use latchwork::machine::Machine;
use latchwork_sim::{Eevdf, Number, Sim, U32, cpu};
use std::sync::atomic::AtomicU64;

/// The machine of round numbers with so many processors. A slice is 0.7 ms with one of them, and 1.4 ms with two.
fn fair(cpus: usize) -> Profile {
    let mut profile = machine((1, 1, cpus, 1));
    profile.kernel.wakeup_busy = Some(Number { value: 6000.0, source: "test".into() });
    profile.eevdf = Some(Eevdf::linux(cpus));
    profile
}

fn sleep_until(word: &U32, value: u32) {
    while word.load(Relaxed) < value {
        Sim::wait(word, value - 1, None);
    }
}

fn set(word: &U32, value: u32) {
    word.store(value, Relaxed);
    Sim::wake(word, 1);
}

/// Three threads of one processor wake each other in turn. Each computes before it sleeps, while the next one waits for the
/// processor. A thread that has waited is behind the others, so the one that it wakes does not take its place. Without
/// `[eevdf]` it does: all have had about the same processor time.
#[test]
fn a_thread_that_has_waited_for_the_processor_keeps_it_when_it_wakes_another() {
    const TURNS: u32 = 100;
    let preemptions = |profile: &Profile| {
        let words = [0; 3].map(|_| Padded(U32::new(0)));
        let body = |id: usize| {
            let next = (id + 1) % 3;
            for turn in 1..=TURNS {
                sleep_until(&words[id].0, turn);
                set(&words[next].0, turn + u32::from(next == 0));
                work(20_000);
            }
        };
        words[0].0.store(1, Relaxed);
        play(profile, &exact(), vec![&|| body(0), &|| body(1), &|| body(2)]).total.preemptions
    };
    let (with, without) = (fair(1), Profile { eevdf: None, ..fair(1) });
    assert!(preemptions(&with) < 10, "{}", preemptions(&with));
    assert!(preemptions(&without) > 100, "{}", preemptions(&without));
}

/// On one processor a thread wakes another, which has had less time.
#[test]
fn a_woken_thread_takes_the_place_of_one_that_is_ahead() {
    let (word, woken, ran) = (Padded(U32::new(0)), AtomicU64::new(0), AtomicU64::new(0));
    let sleeper = || {
        sleep_until(&word.0, 1);
        ran.store(now(), Relaxed);
    };
    let waker = || {
        work(2_000_000); // more than a slice
        set(&word.0, 1);
        woken.store(now(), Relaxed);
        work(60_000);
    };
    play(&fair(1), &exact(), vec![&sleeper, &waker]);
    let waited = ran.load(Relaxed) - woken.load(Relaxed);
    assert!(waited < 5000, "{waited}");
}

/// Two threads share a processor. One has waited for it and yields: the other one has a slice more. Without `[eevdf]` it has a
/// quantum of 0.1 ms.
#[test]
fn a_yield_costs_the_rest_of_the_slice() {
    let waits = |profile: &Profile| {
        let took = AtomicU64::new(0);
        let yields = || {
            work(10_000);
            Sim::yield_now();
            work(10_000);
            took.store(timed(Sim::yield_now), Relaxed);
        };
        play(profile, &exact(), vec![&yields, &|| work(5_000_000)]);
        took.load(Relaxed)
    };
    let (with, without) = (waits(&fair(1)), waits(&Profile { eevdf: None, ..fair(1) }));
    assert!((500_000..800_000).contains(&with), "{with}");
    assert!(without < 150_000, "{without}");
}

/// A thread goes to sleep on the first processor 50 us ahead of another one, which waits there, and is woken while the second processor
/// is idle.
#[test]
fn a_thread_that_sleeps_ahead_of_its_processor_stays_there() {
    let (word, on) = (Padded(U32::new(0)), AtomicU64::new(9));
    let sleeper = || {
        work(50_000);
        sleep_until(&word.0, 1);
        on.store(cpu() as u64, Relaxed);
    };
    let waker = || {
        work(70_000);
        set(&word.0, 1);
    };
    play(&fair(2), &exact(), vec![&sleeper, &waker, &|| work(3_000_000)]);
    assert_eq!(on.load(Relaxed), 0);
}

/// A woken thread whose last processor is busy looks for an idle one, unless the processors have been busy of late.
#[test]
fn a_woken_thread_stays_on_its_busy_processor_if_the_others_were_busy_too() {
    let runs_on = |rest: u64| {
        let (word, on) = (Padded(U32::new(0)), AtomicU64::new(9));
        let waker = || {
            work(50_000_000 + rest);
            set(&word.0, 1);
            work(1_000_000);
        };
        let company = || work(50_000_000);
        let sleeper = || {
            sleep_until(&word.0, 1);
            on.store(cpu() as u64, Relaxed);
        };
        play(&fair(2), &exact(), vec![&waker, &company, &sleeper]);
        on.load(Relaxed)
    };
    assert_eq!([runs_on(1_000_000), runs_on(200_000_000)], [0, 1]);
}

/// Two threads share the first processor when the second one becomes idle: at which time after that does one of them move?
#[test]
fn an_idle_processor_leaves_a_thread_that_has_just_run_where_it_is() {
    let moves = |migration_cost: f64, idle_at: u64| {
        let moved = AtomicU64::new(u64::MAX);
        let shares = || {
            while now() < 8_000_000 {
                work(1000);
                if cpu() == 1 {
                    moved.fetch_min(now(), Relaxed);
                }
            }
        };
        let mut profile = fair(2);
        profile.kernel.quantum.value = 1e6;
        profile.eevdf.as_mut().unwrap().migration_cost.value = migration_cost;
        play(&profile, &exact(), vec![&shares, &|| work(idle_at), &shares]);
        moved.load(Relaxed) - idle_at
    };
    // The two take turns of 1 ms, so the one that waits has run just now, or some time ago.
    let moves = |cost| (20..34).map(|tenths| moves(cost, tenths * 100_000)).collect::<Vec<_>>();
    let (cold, hot) = (moves(0.0), moves(500_000.0));
    assert!(cold.iter().all(|time| *time < 10_000), "{cold:?}");
    // At once, or at a timer tick: these are 1 ms apart, and at the third it takes any thread.
    assert!(hot.iter().any(|time| *time < 10_000), "{hot:?}");
    assert!(hot.iter().any(|time| (1_000_000..4_000_000).contains(time)), "{hot:?}");
}

//! Processors, sleeping and waking.

use super::*;
use latchwork::machine::{Clock, Deadline, Machine, Wait};
use latchwork_sim::{Number, Placement, Sim, U32, cpu};
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

fn word() -> Padded<U32> {
    Padded(U32::new(0))
}

#[test]
fn placement() {
    let places = |placement, threads| {
        let places = RefCell::new(Vec::new());
        let body = || {
            at(100);
            places.borrow_mut().push(cpu());
        };
        play(&machine((2, 1, 2, 2)), &Options { placement, ..exact() }, vec![&body; threads]);
        places.into_inner()
    };
    assert_eq!(places(Placement::FirstFill, 6), [0, 1, 2, 3, 4, 5]);
    assert_eq!(places(Placement::RoundRobin, 6), [0, 4, 1, 5, 2, 6]);
}

#[test]
fn threads_share_a_processor_by_the_quantum() {
    let body = || work(1_000_000);
    let report = machine((1, 1, 1, 1)).play(vec![&body, &body]);
    // Ten quanta each, of which nine or all end in a preemption, and one in an end.
    let switches = report.total.preemptions + 1;
    assert_eq!(report.simulated_ns, 2_000_000 + switches * 1500);
    assert!((18..=20).contains(&report.total.preemptions), "{}", report.total.preemptions);
}

#[test]
fn a_processor_pauses_now_and_then() {
    let with = |every: f64, pause: f64| {
        let mut profile = machine((1, 1, 1, 1));
        let number = |value| Some(Number { value, source: "test".into() });
        (profile.kernel.pause_every, profile.kernel.pause) = (number(every), number(pause));
        profile.play(vec![&|| work(50_000_000)]).simulated_ns
    };
    // Pauses take a tenth of the time.
    let slow = with(100_000.0, 10_000.0);
    assert!((54_500_000..57_000_000).contains(&slow), "{slow}");
    assert_eq!(slow, with(100_000.0, 10_000.0), "the same seed gives the same run");
    let hardly = with(10_000_000.0, 1.0);
    assert!((50_000_000..50_000_100).contains(&hardly), "{hardly}");
}

#[test]
fn an_idle_processor_steals() {
    let (long, short) = (|| work(90_000), || work(10_000));
    // Threads 0 and 2 start on processor 0, thread 1 on processor 1.
    let report = machine((1, 1, 2, 1)).play(vec![&long, &short, &long]);
    assert_eq!(report.threads[2].end_ns, 10_000 + 1500 + 90_000);
    assert_eq!(report.simulated_ns, 10_000 + 1500 + 90_000);
}

/// A thread that is stolen by another processor pays for the move with its cache lines, and with nothing else: each comes from where
/// the thread has left it.
#[test]
fn a_thread_that_moves_fetches_its_lines_anew() {
    let loads = |shape| {
        let (x, loads) = (line(), Cell::new([0; 2]));
        let mover = || {
            store(&x);
            assert_eq!(cpu(), 0);
            work(120_000);
            assert_eq!(cpu(), 1, "it has waited behind the other thread of processor 0, and was stolen");
            loads.set([load(&x), load(&x)]);
        };
        let (short, long) = (|| work(150_000), || work(300_000));
        machine(shape).play(vec![&mover, &short, &long]);
        loads.into_inner()
    };
    assert_eq!(loads((1, 1, 2, 1)), [50, 1], "to another core of the socket");
    assert_eq!(loads((2, 1, 1, 1)), [110, 1], "to another socket");
}

#[test]
fn a_spinner_makes_room_for_the_one_it_waits_for() {
    let x = line();
    let report = machine((1, 1, 1, 1))
        .play(vec![&|| ignore(Sim::spin_until(&x.0, Relaxed, |value| value == 1)), &|| {
            x.0.store(1, Relaxed)
        }]);
    // It has looked once (80), and then 64 times; a switch, the store, and a switch back.
    let expected = 80 + 64 * 5 + 1500 + 1 + 1500;
    assert!((expected..expected + 100).contains(&report.simulated_ns), "{}", report.simulated_ns);
}

/// A thread that has queued while another thread spun gets the processor when the other thread's quantum is over, whether the spin has
/// succeeded or has timed out.
#[test]
fn a_thread_that_has_spun_is_preempted_at_the_end_of_its_quantum() {
    for looks in [30_000, 16_000] {
        let (x, ran) = (line(), Cell::new(0));
        let sleeper = || {
            Sim::doze(50_000);
            ran.set(now());
        };
        let storer = || {
            work(100_000);
            x.0.store(1, Relaxed);
            work(3_000_000);
        };
        let spinner = || {
            // A look takes 5 ns.
            assert_eq!(Sim::spin_for(&x.0, Relaxed, looks, |value| value == 1).is_some(), looks == 30_000);
            work(1_000_000);
        };
        // The sleeper and the spinner have processor 0.
        machine((1, 1, 2, 1)).play(vec![&sleeper, &storer, &spinner]);
        assert!((100_000..110_000).contains(&ran.get()), "{looks}: {}", ran.get());
    }
}

#[test]
fn two_hardware_threads_slow_each_other_down() {
    let body = || work(1000);
    let time = |threads| machine((1, 1, 1, 2)).play(vec![&body; threads]).simulated_ns;
    assert_eq!((time(1), time(2)), (1000, 1500));
}

#[test]
fn sleeping_and_waking() {
    let x = word();
    let woken = Cell::new(0);
    let report = machine((1, 1, 2, 1)).play(vec![
        &|| {
            assert_eq!(Sim::wait(&x.0, 1, None), Wait::Woken, "another value: at once");
            assert_eq!(Sim::wait(&x.0, 0, None), Wait::Woken);
            woken.set(now());
        },
        &|| {
            at(10_000);
            // The system call, the bucket's lock from the other processor (50 + 10), one wake.
            assert_eq!(timed(|| assert_eq!(Sim::wake(&raw const x.0, 7), 1)), 100 + 60 + 1000);
            assert_eq!(Sim::wake(&raw const x.0, 7), 0);
        },
    ]);
    assert_eq!(woken.get(), 10_000 + 1160 + 5000);
    let sleeper = report.threads[0];
    assert_eq!((sleeper.sleeps, report.threads[1].wakes), (1, 1));
    assert!((15_000..16_160).contains(&sleeper.parked_ns), "{}", sleeper.parked_ns);
    assert!(report.parked_share() > 0.4);
}

#[test]
fn longest_sleeper_first_and_requeue() {
    let (x, y) = (word(), word());
    let order = RefCell::new(Vec::new());
    let sleeper = |start: u64| {
        at(start);
        Sim::wait(&x.0, 0, None);
        order.borrow_mut().push(latchwork_sim::thread());
    };
    machine((1, 1, 4, 1)).play(vec![&|| sleeper(3000), &|| sleeper(1000), &|| sleeper(2000), &|| {
        at(10_000);
        Sim::requeue(&raw const x.0, 1, &y.0); // not the value: nothing
        Sim::requeue(&raw const x.0, 0, &y.0); // thread 1
        assert_eq!(Sim::wake(&raw const x.0, 1), 1); // thread 2
        at(30_000);
        assert_eq!(Sim::wake(&raw const x.0, 9), 1); // thread 0
        at(50_000);
        assert_eq!(Sim::wake(&raw const y.0, 9), 1);
    }]);
    assert_eq!(order.into_inner(), [2, 0, 1]);
}

#[test]
fn a_deadline_ends_a_sleep() {
    let x = word();
    machine((1, 1, 2, 1)).play(vec![&|| {
        let deadline = Deadline { clock: Clock::Monotonic, nanos: 20_000 };
        assert_eq!(Sim::wait(&x.0, 0, Some(deadline)), Wait::TimedOut);
        assert_eq!(now(), 25_000);
        assert_eq!(Sim::wait(&x.0, 0, Some(deadline)), Wait::TimedOut);
        assert!(now() < 25_300, "it had passed already");
        assert_eq!(Sim::wake(&raw const x.0, 9), 0);
    }]);
}

/// A thread that was woken is not told that its deadline has passed, however close the two are.
#[test]
fn a_wakeup_that_is_counted_is_no_timeout() {
    let mut seen = [0, 0];
    for start in (18_000..21_000).step_by(10) {
        let x = word();
        let reason = Cell::new(Wait::Woken);
        let woken = Cell::new(0);
        machine((1, 1, 2, 1)).play(vec![
            &|| {
                let deadline = Deadline { clock: Clock::Monotonic, nanos: 20_000 };
                reason.set(Sim::wait(&x.0, 0, Some(deadline)));
            },
            &|| {
                at(start);
                woken.set(Sim::wake(&raw const x.0, 1));
            },
        ]);
        assert_eq!(woken.get() == 1, reason.get() == Wait::Woken, "woken at {start} ns");
        seen[woken.get()] += 1;
    }
    assert!(seen[0] > 10 && seen[1] > 10, "{seen:?}");
}

#[test]
fn a_heavy_fence_interrupts_every_running_thread() {
    let x = word();
    let ends = RefCell::new(Vec::new());
    let busy = || {
        work(30_000);
        x.0.load(Relaxed);
        ends.borrow_mut().push(now());
    };
    let sleeper = || ignore(Sim::wait(&x.0, 0, Some(Deadline { clock: Clock::Monotonic, nanos: 90_000 })));
    machine((1, 1, 4, 1)).play(vec![
        &|| {
            at(10_000);
            // The system call, the kernel's mutex (from memory), and two interrupts.
            assert_eq!(timed(|| assert!(Sim::heavy_fence())), 100 + 90 + 1000 + 2000 + 200);
        },
        &busy,
        &busy,
        &sleeper,
    ]);
    assert!(ends.into_inner().iter().all(|end| (32_000..32_200).contains(end)));
}

#[test]
fn a_full_fence_costs_an_atomic_instruction_where_ordering_is_strong() {
    let x = line();
    let report = machine((1, 1, 1, 1)).play(vec![&|| {
        assert_eq!(store(&x), 1);
        assert_eq!(timed(Sim::full_fence), 80 + 10, "the store is done when the line has come from memory");
        assert_eq!(timed(Sim::full_fence), 10);
        assert_eq!(timed(|| x.0.fetch_add(1, AcqRel)), 10);
        assert_eq!(timed(|| x.0.store(0, Release)), 1);
    }]);
    assert_eq!(report.total.fences, 2);
}

#[test]
fn barriers_where_ordering_is_weak() {
    let number = |value| Some(Number { value, source: "test".into() });
    let mut weak = machine((1, 1, 1, 1));
    weak.processor.fence = number(50.0);
    weak.processor.past_fence = number(10.0);
    weak.processor.acquire = number(100.0);
    weak.processor.release = number(30.0);
    let [x, y, z] = [line(), line(), line()];
    let report = weak.play(vec![&|| {
        assert_eq!(timed(Sim::full_fence), 50);
        assert_eq!(load(&y), 30, "sent for when the fence began");
        assert_eq!(load(&z), 80, "too late for that");
        assert_eq!(timed(|| x.0.fetch_add(1, Acquire)), 80 + 10 + 100);
        assert_eq!(timed(|| x.0.store(0, Release)), 30 + 1);
        assert_eq!(timed(|| x.0.fetch_add(1, Release)), 30 + 10);
        Sim::full_fence();
        assert_eq!(timed(|| x.0.store(0, Release)), 1, "nothing to wait for");
        assert_eq!(timed(|| x.0.load(Acquire)), 1);
        let failed = timed(|| ignore(x.0.compare_exchange(1, 2, Acquire, Relaxed)));
        assert_eq!(failed, 10, "nothing acquired");
    }]);
    assert_eq!(report.total.fences, 2 + 1 + 2);
}

#[test]
fn the_clock_and_pauses_take_time() {
    machine((1, 1, 1, 1)).play(vec![&|| {
        work(500);
        assert_eq!(Sim::now(Clock::Monotonic), 520);
        assert_eq!(timed(|| Sim::pause(10)), 40);
        assert_eq!(timed(Sim::yield_now), 100, "nobody else is there");
        assert_eq!(timed(Sim::light_fence), 0);
        assert_eq!((Sim::thread_id(), Sim::numa_node(), Sim::numa_nodes()), (1, 0, 1));
    }]);
}

#[test]
fn the_adversary_stops_holders_and_others() {
    use latchwork_sim::{Adversary, acquired, released};
    let only = Adversary { every_ns: u64::MAX / 1_000_000, holder: 0.0, stop_ns: 10_000, spurious: 0.0 };
    let stops = |adversary| {
        let body = || {
            for _ in 0..10 {
                acquired(0);
                work(2000);
                released(0);
                work(2000);
            }
        };
        let options = Options { adversary: Some(adversary), ..exact() };
        play(&machine((1, 1, 1, 1)), &options, vec![&body]).total.preemptions
    };
    assert_eq!(stops(only), 0);
    assert_eq!(stops(Adversary { holder: 1.0, ..only }), 10, "once in each section");
    let some = stops(Adversary { every_ns: 2000, ..only });
    assert!((8..40).contains(&some), "{some} stops in 40 microseconds, one in 2 on average");
}

#[test]
fn waits_that_return_for_no_reason() {
    use latchwork_sim::Adversary;
    let x = word();
    let adversary = Some(Adversary { spurious: 1.0, ..Adversary::default() });
    play(
        &machine((1, 1, 1, 1)),
        &Options { adversary, ..exact() },
        vec![&|| {
            assert_eq!(Sim::wait(&x.0, 0, None), Wait::Woken);
        }],
    );
}

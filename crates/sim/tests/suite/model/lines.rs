//! Cache lines.

use super::*;
use latchwork::machine::Machine;
use latchwork_sim::{Number, Sim, U32, set_home};
use std::cell::Cell;

#[test]
fn memory_then_hits_then_a_silent_upgrade() {
    let x = line();
    machine((2, 1, 8, 1)).play(vec![&|| {
        assert_eq!(load(&x), 80);
        assert_eq!(load(&x), 1);
        assert_eq!(rmw(&x), 10, "nobody else has it");
        assert_eq!(store(&x), 1);
        assert_eq!(rmw(&x), 10);
    }]);
    let report = machine((2, 1, 8, 1)).play(vec![&|| assert_eq!(rmw(&x), 90)]);
    assert_eq!((report.total.misses, report.total.atomics, report.total.remote), (1, 1, 0));
}

#[test]
fn others_see_the_old_value_while_a_locked_instruction_waits() {
    for (wait, seen, took) in [(0.0, 2, 10), (0.8, 1, 103)] {
        let mut profile = machine((2, 1, 8, 1));
        profile.lines.atomic_wait = Some(Number { value: wait, source: "test".into() });
        let x = line();
        let owner = || {
            rmw(&x);
            at(1000);
            // If the line is gone when the instruction takes effect at 1008, it is free at 1053, and comes back in 40.5.
            assert_eq!(rmw(&x), took, "{wait}");
        };
        let other = || {
            at(1003);
            assert_eq!(x.0.load(Relaxed), seen, "{wait}");
        };
        profile.play(vec![&owner, &other]);
    }
}

#[test]
fn remote_memory() {
    let x = line();
    machine((2, 1, 8, 1)).play(vec![&|| {
        set_home(&x, 1);
        assert_eq!(load(&x), 150);
    }]);
}

#[test]
fn a_modified_line_within_a_socket_and_across() {
    for (there, transfer) in [(1, 50), (8, 110)] {
        let x = line();
        let nothing = || ();
        let writer = || ignore(store(&x));
        let other = || {
            at(1000);
            assert_eq!(rmw(&x), transfer + 10);
            at(2000);
            assert_eq!(rmw(&x), 10, "it is ours");
        };
        let mut bodies: Vec<&dyn Fn()> = vec![&nothing; 9];
        bodies[0] = &writer;
        bodies[there] = &other;
        let report = machine((2, 1, 8, 1)).play(bodies);
        assert_eq!(report.threads[there].remote, u64::from(there == 8));
        assert_eq!(report.total.misses, 2);
    }
}

#[test]
fn a_modified_line_is_dearer_than_a_clean_one() {
    let (clean, dirty) = (line(), line());
    machine((2, 1, 8, 1)).play(vec![
        &|| {
            load(&clean);
            store(&dirty);
        },
        &|| {
            at(1000);
            assert_eq!(load(&clean), 40);
            assert_eq!(load(&dirty), 50);
            assert_eq!(load(&dirty), 1);
        },
    ]);
}

#[test]
fn clusters_are_nearer_than_the_rest_of_the_socket() {
    let x = line();
    // Two clusters of two: processors 0 1 | 2 3.
    machine((1, 2, 2, 1)).play(vec![
        &|| ignore(store(&x)),
        &|| {
            at(1000);
            assert_eq!(load(&x), 50);
        },
        &|| {
            at(2000);
            assert_eq!(load(&x), 60, "shared by the other cluster");
        },
        &|| {
            at(3000);
            assert_eq!(load(&x), 40, "shared by our own");
            at(4000);
            assert_eq!(rmw(&x), 60 + 1 + 10, "three sharers in all, the farthest in the other cluster");
        },
    ]);
}

#[test]
fn siblings_share_their_cache() {
    let x = line();
    // Two cores: processors 0 and 2 are one, 1 and 3 the other.
    machine((1, 1, 2, 2)).play(vec![
        &|| ignore(store(&x)),
        &|| {
            at(2000);
            assert_eq!(load(&x), 50);
        },
        &|| {
            at(1000);
            assert_eq!(load(&x), 8);
            assert_eq!(load(&x), 1);
            assert_eq!(rmw(&x), 10);
        },
    ]);
}

#[test]
fn an_extra_leg_for_a_home_elsewhere() {
    // Written on node 0, read on node 1, homed on each of three nodes.
    for (home, cost) in [(0, 110), (1, 110 + 30), (2, 110 + 65)] {
        let x = line();
        machine((3, 1, 1, 1)).play(vec![
            &|| {
                set_home(&x, home);
                store(&x);
            },
            &|| {
                at(1000);
                assert_eq!(load(&x), cost, "home {home}");
            },
        ]);
    }
}

#[test]
fn two_hops() {
    let mut profile = machine((4, 1, 1, 1));
    profile.topology.links = latchwork_sim::Links::Cube;
    let x = line();
    let nothing = || ();
    profile.play(vec![&|| ignore(store(&x)), &nothing, &nothing, &|| {
        at(1000);
        assert_eq!(load(&x), 210);
    }]);
}

#[test]
fn requests_queue_and_ownership_takes_the_whole_transfer() {
    let x = line();
    machine((2, 1, 8, 1)).play(vec![
        &|| ignore(store(&x)),
        &|| {
            at(1000);
            assert_eq!(rmw(&x), 60);
        },
        &|| {
            at(1001);
            assert_eq!(rmw(&x), 59 + 60, "behind the first");
        },
        &|| {
            at(1002);
            assert_eq!(rmw(&x), 58 + 60 + 60, "behind both");
        },
    ]);
}

#[test]
fn reads_after_the_downgrade_are_short() {
    let x = line();
    let nothing = || ();
    let mut bodies: Vec<&dyn Fn()> = vec![&nothing; 10];
    let writer = || ignore(store(&x));
    let first = || {
        at(1000);
        assert_eq!(load(&x), 50, "the owner is downgraded");
    };
    let second = || {
        at(1001);
        assert_eq!(load(&x), 49 + 40);
    };
    let third = || {
        at(1002);
        assert_eq!(load(&x), 48 + 5 + 40, "the second has kept the line for 5");
    };
    let remote = || {
        at(1003);
        assert_eq!(load(&x), 47 + 10 + 100);
    };
    let after_remote = || {
        at(1004);
        assert_eq!(load(&x), 46 + 20 + 40, "the remote one has kept the line for a tenth of the hop");
    };
    bodies[0] = &writer;
    bodies[1] = &first;
    bodies[2] = &second;
    bodies[3] = &third;
    bodies[8] = &remote;
    bodies[4] = &after_remote;
    machine((2, 1, 8, 1)).play(bodies);
}

#[test]
fn taking_a_shared_line_costs_the_farthest_and_a_little_for_each() {
    let x = line();
    let nothing = || ();
    let reader = || ignore(load(&x));
    let near = || {
        at(2000);
        assert_eq!(rmw(&x), 40 + 1 + 10, "two other sharers here");
    };
    machine((2, 1, 8, 1)).play(vec![&reader, &reader, &near]);
    let y = line();
    let far_reader = || {
        at(500);
        load(&y);
    };
    let near = || {
        at(2000);
        // Four sharers, one of them ourselves; the farthest is a hop away. 1.5 ns for three.
        assert_eq!(timed(|| (0..2).for_each(|_| ignore(rmw(&y)))), 100 + 1 + 10 + 10);
    };
    let reader = || ignore(load(&y));
    let me = || {
        reader();
        near();
    };
    let mut bodies: Vec<&dyn Fn()> = vec![&nothing; 9];
    bodies[0] = &reader;
    bodies[1] = &reader;
    bodies[2] = &me;
    bodies[8] = &far_reader;
    machine((2, 1, 8, 1)).play(bodies);
}

#[test]
fn a_miss_fetches_the_other_line_of_the_pair() {
    #[repr(align(64))]
    struct Half(U64);
    let mut profile = machine((1, 1, 2, 1));
    for (probability, cost) in [(0.0, 10), (1.0, 40 + 10)] {
        profile.lines.pair_prefetch.value = probability;
        let pair = Padded((Half(U64::new(0)), Half(U64::new(0))));
        profile.play(vec![
            &|| {
                (pair.0.0).0.store(1, Relaxed);
                at(1000);
                // Had the other not read the second half, the first would still be ours.
                assert_eq!(timed(|| (pair.0.0).0.fetch_add(1, Relaxed)), cost);
            },
            &|| {
                at(500);
                (pair.0.1).0.load(Relaxed);
            },
        ]);
    }
}

#[test]
fn a_store_is_buffered_and_an_atomic_drains_the_buffer() {
    let (x, y) = (line(), line());
    machine((2, 1, 8, 1)).play(vec![
        &|| {
            rmw(&y);
            at(1000);
            assert_eq!(store(&x), 1, "into the buffer, though the line is elsewhere");
            assert_eq!(load(&y), 1, "loads pass it");
            assert_eq!(rmw(&y), 50 - 1 + 10, "1051 is when the store is done");
        },
        &|| ignore(rmw(&x)),
    ]);
}

#[test]
fn others_see_stores_in_order() {
    let (x, y) = (line(), line());
    machine((2, 1, 8, 1)).play(vec![
        &|| {
            store(&y);
            at(1000);
            store(&x); // done at 1051
            store(&y); // ours, but not before that
        },
        &|| ignore(rmw(&x)),
        &|| {
            at(1010);
            assert_eq!(load(&y), 41 + 50);
        },
    ]);
}

#[test]
fn a_write_wakes_spinners_who_pay_for_their_look() {
    let x = line();
    let seen = [const { Cell::new(0) }; 3];
    let spinner = |i: usize| {
        Sim::spin_until(&x.0, Relaxed, |value| value != 0);
        seen[i].set(now());
    };
    let report = machine((1, 1, 8, 1)).play(vec![
        &|| {
            at(1000);
            store(&x);
        },
        &|| spinner(0),
        &|| spinner(1),
        &|| spinner(2),
    ]);
    // The store waits for two acknowledgements and for its own first copy: 40 + 1.5 + 1.
    let visible = 1042;
    let mut seen = seen.map(Cell::into_inner);
    seen.sort();
    // Each comes back within a turn (5), the first reads for 50, and the others wait for it.
    assert!((visible + 50..visible + 50 + 6).contains(&seen[0]), "{seen:?}");
    assert!((visible + 50 + 40..visible + 50 + 40 + 6).contains(&seen[1]), "{seen:?}");
    assert_eq!(seen[2], seen[1] + 5, "{seen:?}");
    assert_eq!(report.threads[1].accesses, 2, "spinning is free until the write");
}

#[test]
fn spinners_come_back_in_random_order() {
    let order = |seed| {
        let x = line();
        let order = std::cell::RefCell::new(Vec::new());
        let spinner = || {
            Sim::spin_until(&x.0, Relaxed, |value| value != 0);
            order.borrow_mut().push(latchwork_sim::thread());
        };
        let writer = || {
            at(5000);
            store(&x);
        };
        let mut bodies: Vec<&dyn Fn()> = vec![&spinner; 8];
        bodies[0] = &writer;
        play(&machine((1, 1, 8, 1)), &Options { seed, ..exact() }, bodies);
        order.into_inner()
    };
    let orders: std::collections::HashSet<_> = (0..10).map(order).collect();
    assert!(orders.len() > 3, "{orders:?}");
    assert_eq!(order(3), order(3));
}

#[test]
fn a_spinner_gives_up_after_about_as_many_looks() {
    let x = line();
    machine((1, 1, 2, 1)).play(vec![&|| {
        x.0.load(Relaxed);
        let time = timed(|| assert_eq!(Sim::spin_for(&x.0, Relaxed, 100, |value| value != 0), None));
        assert_eq!(time, 1 + 100 * 5, "a look and a pause each");
        assert_eq!(timed(|| assert!(Sim::spin_for(&x.0, Relaxed, 0, |_| true).is_none())), 0);
    }]);
}

#[test]
fn who_wins_a_contended_line() {
    let winner = |arbitration| {
        let x = line();
        let first = Cell::new(0);
        let get = |time| {
            at(time);
            if x.0.fetch_add(1, Relaxed) == 1 {
                first.set(latchwork_sim::thread());
            }
        };
        let nothing = || ();
        // Processor 1 takes the line; while it does, one from afar asks, and then a near one.
        let owner = || get(1000);
        let far = || get(1001);
        let near = || get(1002);
        let mut bodies: Vec<&dyn Fn()> = vec![&nothing; 9];
        bodies[1] = &owner;
        bodies[8] = &far;
        bodies[2] = &near;
        play(&machine((2, 1, 8, 1)), &Options { arbitration, ..exact() }, bodies);
        first.get()
    };
    assert_eq!(winner(Arbitration::Fifo), 8);
    assert_eq!(winner(Arbitration::Nearest(1.0)), 2);
    assert_eq!(winner(Arbitration::Nearest(0.0)), 8);
    let random: Vec<_> = (0..10).map(|_| winner(Arbitration::Random)).collect();
    assert!(random.iter().all(|thread| [2, 8].contains(thread)));
}

#[test]
fn false_sharing_and_words_of_a_line() {
    // Two words of one line, written by two processors: every write is a transfer.
    let x = Padded((U32::new(0), U32::new(0)));
    let report = machine((1, 1, 2, 1))
        .play(vec![&|| (0..10).for_each(|_| ignore((x.0.0.fetch_add(1, Relaxed), work(200)))), &|| {
            (0..10).for_each(|_| ignore((work(100), x.0.1.fetch_add(1, Relaxed), work(100))))
        }]);
    assert_eq!((report.lines, report.total.misses), (1, 20));
}

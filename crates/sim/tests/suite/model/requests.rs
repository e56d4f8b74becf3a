//! What a request does on its way: until it arrives, the owner goes on; and how one follows another.

use super::*;
use std::cell::Cell;

#[test]
fn the_owner_keeps_the_line_until_the_request_arrives() {
    for (way, last) in [(0.0, 2), (0.5, 4), (0.7, 5)] {
        let mut profile = machine((2, 1, 8, 1));
        profile.lines.request.value = way;
        let x = line();
        let hits = Cell::new(0);
        let owner = || {
            rmw(&x);
            at(1000);
            // Ten each, while the line is ours; then it is fetched back.
            while now() < 1100 && rmw(&x) == 10 {
                hits.set(hits.get() + 1);
            }
        };
        let other = || {
            at(1001);
            assert_eq!(
                rmw(&x),
                9 + 60,
                "the owner's instruction ends, and the transfer takes as long as ever"
            );
        };
        profile.play(vec![&owner, &other]);
        // Those that begin before the request is sent, at 1010 at the earliest, and until it arrives.
        assert_eq!(hits.into_inner(), last, "{way}");
    }
}

#[test]
fn a_store_takes_its_place_at_once() {
    let mut profile = machine((2, 1, 8, 1));
    profile.lines.request.value = 0.5;
    let x = line();
    profile.play(vec![
        &|| {
            rmw(&x);
            at(1002);
            assert_eq!(load(&x), 49 + 50, "behind the store");
        },
        &|| {
            at(1000);
            assert_eq!(store(&x), 1);
        },
    ]);
}

#[test]
fn those_that_wait_are_served_one_by_one() {
    let mut profile = machine((2, 1, 8, 1));
    profile.lines.request.value = 0.5;
    let x = line();
    let order = std::cell::RefCell::new(Vec::new());
    let asks = |time| {
        at(time);
        let old = x.0.fetch_add(1, Relaxed);
        order.borrow_mut().push((old, latchwork_sim::thread()));
    };
    profile.play(vec![&|| asks(0), &|| asks(1000), &|| asks(1003), &|| asks(1001), &|| asks(1002)]);
    assert_eq!(order.into_inner(), [(0, 0), (1, 1), (2, 3), (3, 4), (4, 2)]);
}

#[test]
fn a_write_that_follows_a_read_at_once_has_been_asked_for_with_it() {
    let time = |ahead, pause| {
        let mut profile = machine((2, 1, 8, 1));
        profile.processor.ahead.value = ahead;
        let x = line();
        let time = Cell::new(0);
        let me = || {
            at(1000);
            let read_and_add = || {
                x.0.load(Relaxed);
                work(pause);
                x.0.fetch_add(1, Relaxed);
            };
            time.set(timed(read_and_add) - pause);
        };
        profile.play(vec![&|| ignore(store(&x)), &me]);
        time.into_inner()
    };
    // The read takes 50, the line from its other sharer 40.5, the instruction 10.
    assert_eq!(time(0.0, 0), 100, "one after the other");
    assert_eq!(time(20.0, 0), 60, "both at once");
    assert_eq!(time(20.0, 19), 60);
    assert_eq!(time(20.0, 20), 100, "too late");
}

#[test]
fn somebody_between_the_read_and_the_write_disturbs_them() {
    let mut profile = machine((2, 1, 8, 1));
    profile.processor.ahead.value = 60.0;
    let x = line();
    let me = || {
        at(1000);
        x.0.load(Relaxed); // until 1050
        at(1100);
        assert!(rmw(&x) > 40);
    };
    let other = || {
        at(1052);
        x.0.load(Relaxed);
    };
    profile.play(vec![&|| ignore(store(&x)), &me, &other]);
}

#[test]
fn transfers_differ_a_little() {
    let mut profile = machine((2, 1, 8, 1));
    profile.lines.jitter.value = 0.2;
    let x = line();
    let times = std::cell::RefCell::new(Vec::new());
    let mine = || (0..40).for_each(|i| ignore((at(1000 + 400 * i), times.borrow_mut().push(rmw(&x)))));
    let other = || (0..40).for_each(|i| ignore((at(1200 + 400 * i), rmw(&x))));
    profile.play(vec![&other, &mine]);
    let times = times.into_inner().split_off(1);
    assert!(times.iter().all(|time| (50..=70).contains(time)), "{times:?}");
    assert!(times.iter().collect::<std::collections::HashSet<_>>().len() > 5, "{times:?}");
}

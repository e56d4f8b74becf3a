//! Loads that a prefetcher sees coming, and those that it does not.

use super::*;
use latchwork::machine::Machine;
use latchwork_sim::Sim;

/// Lines one after the other, of eight words each.
fn lines(count: usize) -> Vec<Padded<[U64; 16]>> {
    (0..count / 2).map(|_| Padded(std::array::from_fn(|_| U64::new(0)))).collect()
}

/// Runs `other` on a processor of the same socket or of the other one, and then `me`.
fn after(profile: &Profile, place: usize, other: &dyn Fn(), me: &dyn Fn()) {
    let nothing = || ();
    let me = || {
        at(1_000_000);
        me();
    };
    let mut bodies: Vec<&dyn Fn()> = vec![&nothing; place + 1];
    bodies[0] = &me;
    bodies[place] = other;
    play(profile, &exact(), bodies);
}

#[test]
fn line_after_line_overlaps_from_the_third_step_on() {
    let lines = lines(16);
    let words = || lines.iter().flat_map(|pair| &pair.0);
    after(&machine((2, 1, 8, 1)), 1, &|| words().for_each(|word| word.store(1, Relaxed)), &|| {
        let first = || words().map(|word| word.load(Relaxed)).sum::<u64>();
        // Two lines in full, the third before it is seen that there is a row, and then a tenth of the
        // transfer for each of the others. Further words of a line take 1, and 0.5 from the third line on.
        assert_eq!(timed(first), 2 * 57 + 53 + 13 * 8 + 14 / 2);
        assert_eq!(timed(first), 2 * 8 + 4 + 13 * 4, "all are here now");
    });
}

#[test]
fn a_walk_that_needs_each_value_costs_what_it_did() {
    let lines = lines(64);
    let line = |at: usize| &lines[at / 2].0[at % 2 * 8];
    let next = |at: usize| (at * 37 + 11) % 64;
    after(
        &machine((2, 1, 8, 1)),
        1,
        &|| (0..64).for_each(|at| line(at).store(next(at) as u64, Relaxed)),
        &|| {
            let mut at = 0;
            let walk = || (0..64).for_each(|_| at = line(at).load(Relaxed) as usize);
            assert_eq!(timed(walk), 64 * 50);
            assert_eq!(at, 0, "once around");
        },
    );
}

#[test]
fn the_scan_does_not_hide_who_holds_a_line() {
    // The line is as busy as ever: a thread that asks for it at the same time waits for the whole transfer.
    let lines = lines(16);
    let word = |at: usize| &lines[at / 2].0[at % 2 * 8];
    let scanner = || {
        at(1000);
        (0..8).for_each(|at| ignore(word(at).load(Relaxed)));
        assert_eq!(now(), 1000 + 3 * 50 + 5 * 5);
    };
    let writer = || (0..8).for_each(|at| word(at).store(1, Relaxed));
    let other = || {
        at(1000 + 3 * 50 + 4 * 5 + 1);
        // The eighth line, which the scanner asked for one nanosecond ago.
        assert_eq!(timed(|| word(7).load(Relaxed)), 49 + 40);
    };
    machine((2, 1, 8, 1)).play(vec![&scanner, &writer, &other]);
}

/// BRAVO, section 3: "We observe a scan rate of about 1.1 nanoseconds per element" (4.5 us for all).
#[test]
fn revocation_takes_what_the_paper_measured() {
    let per_slot = |place| {
        let time = std::cell::Cell::new(0);
        // SAFETY: no lock is in use.
        let slots = || unsafe { Sim::visible_readers() };
        let fill = || slots().iter().for_each(|slot| slot.store(0, Relaxed));
        let scan = || assert!(slots().iter().all(|slot| slot.load(Relaxed) != 1));
        let profile = Profile::find("x5-2").unwrap();
        after(&profile, place, &fill, &|| time.set(timed(scan)));
        time.into_inner() as f64 / slots().len() as f64
    };
    // The last reader was on the writer's socket, or on the other one.
    let (near, far) = (per_slot(1), per_slot(36));
    assert!((0.8..1.1).contains(&near) && (1.1..2.0).contains(&far), "{near} {far}");
}

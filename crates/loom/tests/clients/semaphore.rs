//! Clients of the semaphore.

use crate::machine::{DEADLINE, Loom, Mistake, Model, one_fewer_daily};
use latchwork::locks::semaphore::{RawSemaphore, Step};
use latchwork::machine::Machine;
use loom::cell::UnsafeCell;
use std::mem::ManuallyDrop;

/// A semaphore, and what a unit of it stands for.
struct Shared {
    semaphore: RawSemaphore<Loom>,
    made: UnsafeCell<usize>,
}

// SAFETY: only the thread with the only unit uses the cell; if the semaphore gives two, loom reports that.
unsafe impl Sync for Shared {}

fn with<const UNITS: u32>() -> Shared {
    Shared { semaphore: RawSemaphore::new_in(UNITS), made: UnsafeCell::new(0) }
}

impl Shared {
    fn count(&self) {
        // SAFETY: the caller has the only unit.
        self.made.with_mut(|made| unsafe { *made += 1 });
    }
}

/// With one unit, a mutex.
fn section(shared: &Shared) {
    shared.semaphore.acquire();
    shared.count();
    shared.semaphore.release().unwrap();
}

fn takes(shared: &Shared) {
    shared.semaphore.acquire();
}

fn gives(shared: &Shared) {
    shared.semaphore.release().unwrap();
}

fn gives_two(shared: &Shared) {
    gives(shared);
    gives(shared);
}

fn gives_two_at_once(shared: &Shared) {
    shared.semaphore.release_many(2).unwrap();
}

/// A unit, or none in time: then none is lost.
fn takes_in_time(shared: &Shared) {
    if shared.semaphore.acquire_until(DEADLINE) {
        gives(shared);
    }
}

fn left<const UNITS: u32>(shared: &Shared) {
    assert_eq!(shared.semaphore.value(), UNITS);
}

fn report(client: impl FnOnce() -> String) {
    crate::report("semaphore", client);
}

fn check(model: Model, start: fn() -> Shared, threads: &[fn(&Shared)], after: fn(&Shared)) {
    report(|| model.check(start, threads, after).to_string());
}

/// Two threads exclude each other, in every interleaving; three with at most 1 preemption.
#[test]
fn one_unit_excludes() {
    check(Model::exhaustive(), with::<1>, &[section, section], left::<1>);
    check(Model::new(1), with::<1>, &[section, section, section], left::<1>);
}

/// Two sleepers, two units, one after the other or at once; at most 1 preemption, or 2.
#[test]
fn every_unit_wakes() {
    check(Model::new(1), with::<0>, &[takes, takes, gives_two], left::<0>);
    check(Model::new(2), with::<0>, &[takes, takes, gives_two_at_once], left::<0>);
    check(Model::new(2), with::<1>, &[takes, takes, gives], left::<0>);
}

/// A waiter that gives up takes no other waiter's wakeup with it; at most 1 preemption, or 2.
#[test]
fn timeouts_swallow_no_wake() {
    check(Model::new(1).with_clock(), with::<0>, &[takes_in_time, takes, gives], left::<0>);
    check(Model::new(2).with_clock(), with::<0>, &[takes_in_time, gives], left::<1>);
}

/// Sleeps, and then gives up what may have been a wake for it: as `end` says, which returns whether it has a unit.
fn sleeps_once(shared: &Shared, end: fn(&RawSemaphore<Loom>) -> bool) {
    let taken = match shared.semaphore.step(false, false) {
        Step::Sleep(expected) => {
            Loom::wait(shared.semaphore.word(), expected, None);
            end(&shared.semaphore)
        }
        step => step == Step::Taken,
    };
    if taken {
        gives(shared);
    }
}

/// As a thread that is cancelled.
fn is_cancelled(shared: &Shared) {
    sleeps_once(shared, |semaphore| {
        semaphore.forsake();
        false
    });
}

/// As a thread that must not sleep again.
fn is_late(shared: &Shared) {
    sleeps_once(shared, |semaphore| semaphore.step(true, true) == Step::Taken);
}

fn takes_and_gives(shared: &Shared) {
    takes(shared);
    gives(shared);
}

/// Gives a unit, and may be the one that takes it: then the waiter that was woken for it finds none.
fn gives_and_tries(shared: &Shared) {
    gives(shared);
    if shared.semaphore.try_acquire() {
        gives(shared);
    }
}

/// A waiter that was woken, and then gives up, leaves the wake or the note of the other sleepers behind; up to 2 preemptions.
#[test]
fn waiters_that_give_up_swallow_no_wake() {
    for gives_up in [is_cancelled as fn(&Shared), is_late] {
        check(Model::new(2), with::<0>, &[gives_up, takes_and_gives, gives], left::<1>);
        check(
            Model::new(one_fewer_daily(2)),
            with::<0>,
            &[gives_up, takes_and_gives, gives_and_tries],
            left::<1>,
        );
    }
}

/// A thread that acquires the unit of a release may destroy the semaphore; every interleaving.
#[test]
fn destroyed_by_who_acquires() {
    struct Once(ManuallyDrop<RawSemaphore<Loom>>);
    fn takes_and_destroys(once: &Once) {
        once.0.acquire();
        let semaphore = std::ptr::from_ref(&*once.0).cast_mut();
        // SAFETY: the release is over as far as the semaphore is concerned; the words report if it is not.
        // Nobody uses or drops it again.
        unsafe { semaphore.drop_in_place() };
    }
    report(|| {
        Model::exhaustive()
            .check(
                || Once(ManuallyDrop::new(RawSemaphore::new_in(0))),
                &[takes_and_destroys, |once: &Once| once.0.release().unwrap()],
                |_| (),
            )
            .to_string()
    });
}

/// So may one that sees that its unit was acquired. The thread that acquires it spins after a wait
/// without a spin, and notes that it has succeeded; at most 3 preemptions.
#[test]
fn destroyed_by_who_sees_the_unit_taken() {
    struct Once(ManuallyDrop<RawSemaphore<Loom>>);
    fn waited_once() -> Once {
        let semaphore = RawSemaphore::new_in(0);
        assert!(!semaphore.spin());
        Once(ManuallyDrop::new(semaphore))
    }
    fn gives_and_destroys(once: &Once) {
        once.0.release().unwrap();
        while once.0.value() != 0 {
            Loom::pause(1);
        }
        let semaphore = std::ptr::from_ref(&*once.0).cast_mut();
        // SAFETY: nobody waits; the words report an access of the thread that has the unit.
        unsafe { semaphore.drop_in_place() };
    }
    report(|| {
        Model::new(3)
            .check(waited_once, &[gives_and_destroys, |once: &Once| while !once.0.spin() {}], |_| ())
            .to_string()
    });
}

/// Seeded: relaxed orderings, a dropped wake, and a sleep without a look are found.
#[test]
fn finds_mistakes() {
    for mistake in
        [Mistake::RelaxedRelease, Mistake::RelaxedAcquire, Mistake::DroppedWake, Mistake::SleepsUnseen]
    {
        report(|| {
            Model::new(2).with_mistake(mistake).check_fails(
                with::<1>,
                &[section as fn(&Shared), section],
                left::<1>,
            )
        });
    }
}

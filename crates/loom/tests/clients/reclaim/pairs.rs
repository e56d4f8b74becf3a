//! Clients each of which needs one ordering that the other clients of the strategies can do without.

use super::*;
use loom::sync::atomic::AtomicBool;
use loom::thread::yield_now;

/// A thread says that it has retired the object.
struct Told<D> {
    shared: Shared<D>,
    retired: AtomicBool,
}

fn start_told<D: Reclaim<Machine = Loom>>() -> Told<D> {
    Told { shared: start(), retired: AtomicBool::new(false) }
}

fn retires_and_tells<D: Reclaim<Machine = Loom>>(told: &Told<D>) {
    // SAFETY: this thread's exchange has removed it.
    unsafe { told.shared.domain.retire(remove(&told.shared, null_mut())) };
    told.retired.store(true, Release);
}

/// Retires, tells, and reclaims in its own list.
fn retires_and_collects<D: Reclaim<Machine = Loom>>(told: &Told<D>) {
    retires_and_tells(told);
    told.shared.domain.collect();
}

/// The object is reclaimed, and that happens before this.
fn is_reclaimed() {
    GRAVES.with_borrow(|graves| {
        assert_eq!(graves.len(), 1, "what was retired is not reclaimed");
        // SAFETY: kept until the next execution; only read.
        unsafe { (*graves[0]).alive.with(|alive| assert!(!*alive)) };
    });
}

fn waits_if_told<D: Reclaim<Machine = Loom>>(told: &Told<D>) {
    let retired = told.retired.load(Acquire);
    told.shared.domain.barrier();
    if retired {
        is_reclaimed();
    }
}

fn asks_if_told(told: &Told<HazardDomain<Loom>>) {
    let retired = told.retired.load(Acquire);
    if told.shared.domain.is_clean() && retired {
        is_reclaimed();
    }
}

fn waits_whatever<D: Reclaim<Machine = Loom>>(told: &Told<D>) {
    told.shared.domain.barrier();
}

fn clean_told<D: Reclaim<Machine = Loom>>(told: &Told<D>) {
    clean(&told.shared);
}

type Hazards = Told<HazardDomain<Loom>>;

/// A thread that finds a list empty sees what was done with all that was in it.
#[test]
fn empty_lists() {
    check(
        "empty lists",
        bounded(2),
        start_told,
        &[retires_and_collects, waits_if_told as fn(&Hazards)],
        clean_told,
    );
    check(
        "empty lists",
        bounded(2),
        start_told,
        &[retires_and_collects, asks_if_told as fn(&Hazards)],
        clean_told,
    );
    let moves = &[retires_and_tells, waits_whatever, asks_if_told as fn(&Hazards)];
    check("empty lists", bounded(1), start_told, moves, clean_told);
}

/// Starts a grace period, and looks later whether others have ended it.
fn starts_and_looks(shared: &Epoch) {
    let object = remove(shared, null_mut());
    let cookie = shared.domain.start_poll();
    yield_now();
    if shared.domain.poll(cookie) {
        // SAFETY: no reader has it any more.
        unsafe { Object::reclaim(object) };
    } else {
        // SAFETY: this thread's exchange has removed it.
        unsafe { shared.domain.retire(object) };
    }
}

fn starts_and_polls(shared: &Epoch) {
    let cookie = shared.domain.start_poll();
    yield_now();
    shared.domain.poll(cookie);
}

/// A thread waits for a grace period that other threads end. (What `advance` acquires with its load of the epoch takes four threads
/// to be missed, one that waits, two that advance the epoch once each, and a reader: too many for every interleaving.)
#[test]
fn epochs_of_others() {
    check("epoch", bounded(1), start, &[starts_and_looks, starts_and_polls, reads as fn(&Epoch)], clean);
}

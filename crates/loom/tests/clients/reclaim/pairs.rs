//! Clients each of which needs one ordering that the other clients of the strategies can do without.

use super::*;
use latchwork::machine::record::NEEDS_FULL_FENCE;
use latchwork::reclaim::Sections;
use latchwork::reclaim::domain::{Domain, Flavour};
use latchwork::reclaim::epoch;
use latchwork::reclaim::grace::Periods;
use latchwork::reclaim::rcu::General;
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

/// Retires one object; and, when an era has passed, makes another one, and retires that.
fn replaces_later(shared: &Shared<IntervalDomain<Loom, 0>>) {
    retires(shared);
    shared.root.store(object::<IntervalDomain<Loom, 0>>(), Release);
    yield_now();
    retires(shared);
}

/// Finds an object that was made after its section has begun.
fn reads_seen(shared: &Interval) {
    let reader = shared.domain.reader();
    let guard = reader.enter();
    yield_now();
    let seen = shared.root.load(Acquire);
    look(IntervalDomain::<Loom, 0>::protect_seen(&guard, seen, &shared.root));
}

/// A section that has found a pointer itself must have its era.
#[test]
fn eras() {
    check("interval", bounded(1), start, &[replaces_later, reads_seen as fn(&Interval)], clean);
}

/// Domains of two strategies, whose guards use the same slots.
struct Mixed {
    hazard: Hazard,
    interval: Interval,
}

fn start_mixed() -> Mixed {
    Mixed {
        hazard: start(),
        interval: Shared {
            domain: IntervalDomain::new_in(),
            root: Word::new(object::<IntervalDomain<Loom, 0>>()),
        },
    }
}

fn clean_mixed(mixed: &Mixed) {
    clean(&mixed.hazard);
    clean(&mixed.interval);
}

/// A section of intervals in the slots that a guard of hazard pointers has had.
fn reads_a_hazard_first<const SLOT: usize>(mixed: &Mixed) {
    let reader = mixed.hazard.domain.reader();
    look(reader.enter().protect(SLOT, &mixed.hazard.root));
    reads(&mixed.interval);
}

/// A guard of hazard pointers in the slots that a section of intervals has had. It writes to the slot of the interval's end.
fn reads_an_interval_first(mixed: &Mixed) {
    reads(&mixed.interval);
    let reader = mixed.hazard.domain.reader();
    reader.enter().clear(1);
}

/// An era ends, and then a hazard pointer may be all that keeps an object.
fn retires_both(mixed: &Mixed) {
    retires(&mixed.interval);
    retires(&mixed.hazard);
}

/// What was done in a guard of one strategy happens before what a look of this strategy does that finds a guard of the other one
/// in the slots.
#[test]
fn slots_of_two_strategies() {
    let retires_hazard = |mixed: &Mixed| retires(&mixed.hazard);
    let retires_interval = |mixed: &Mixed| retires(&mixed.interval);
    check("hazard", bounded(2), start_mixed, &[retires_hazard, reads_a_hazard_first::<0>], clean_mixed);
    check("hazard", bounded(2), start_mixed, &[retires_hazard, reads_a_hazard_first::<1>], clean_mixed);
    check("hazard", bounded(2), start_mixed, &[retires_both, reads_a_hazard_first::<1>], clean_mixed);
    check("interval", bounded(2), start_mixed, &[retires_interval, reads_an_interval_first], clean_mixed);
}

/// Starts a grace period, and looks later whether others have ended it.
fn starts_and_looks<F: Flavour>(shared: &Shared<Domain<Loom, F>>) {
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

fn starts_and_polls<F: Flavour>(shared: &Shared<Domain<Loom, F>>) {
    let cookie = shared.domain.start_poll();
    yield_now();
    shared.domain.poll(cookie);
}

/// Stays in its section while others have turns.
fn reads_and_stays<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    let reader = shared.domain.reader();
    let guard = reader.enter();
    let object = guard.protect(0, &shared.root);
    yield_now();
    look(object);
}

/// As above, and lets others have turns before.
fn reads_late_and_stays<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    yield_now();
    reads_and_stays(shared);
}

/// Waits without a removal of its own.
fn only_synchronizes<D: GracePeriod<Machine = Loom>>(shared: &Shared<D>) {
    shared.domain.synchronize();
}

/// Waits in a domain of its own, without a removal.
fn only_synchronizes_apart<D: GracePeriod<Machine = Loom>>(_: &Shared<D>) {
    D::new_in().synchronize();
}

/// Opens a grace period, and looks later whether it is over.
fn polls_twice(shared: &Rcu) {
    let object = remove(shared, null_mut());
    let cookie = shared.domain.start_poll();
    let mut is_over = shared.domain.poll(cookie);
    if !is_over {
        yield_now();
        is_over = shared.domain.poll(cookie);
    }
    if is_over {
        // SAFETY: no reader has it any more.
        unsafe { Object::reclaim(object) };
    } else {
        // SAFETY: this thread's exchange has removed it.
        unsafe { shared.domain.retire(object) };
    }
}

/// A thread waits for a grace period that another thread leads, (A) and (D) of `grace`; or the leader of another domain has looked at
/// all threads meanwhile, (F).
#[test]
fn leaders() {
    let leader_last = &[reads_and_stays, only_synchronizes, starts_and_looks as fn(&Rcu)];
    check("rcu", bounded(1), start, leader_last, clean);
    let leader_first = &[starts_and_polls, starts_and_looks, reads_late_and_stays as fn(&Rcu)];
    check("rcu", bounded(1), start, leader_first, clean);
    let meanwhile = &[reads_and_stays, polls_twice, only_synchronizes_apart as fn(&Rcu)];
    check("rcu", bounded(1), start, meanwhile, clean);
}

/// Grace periods for which threads take tickets one by one, beside a domain that has those of its own.
struct Tickets<F: Flavour> {
    shared: Shared<Domain<Loom, F>>,
    periods: F::Periods<Loom>,
}

fn start_tickets<F: Flavour>() -> Tickets<F> {
    Tickets { shared: start(), periods: Periods::new() }
}

/// Takes a ticket for what it has removed, and leads no grace period.
fn takes_a_ticket<F: Flavour>(tickets: &Tickets<F>) {
    let object = remove(&tickets.shared, null_mut());
    let ticket = tickets.periods.start();
    yield_now();
    if tickets.periods.is_over(ticket) {
        // SAFETY: no reader has it any more.
        unsafe { Object::reclaim(object) };
    } else {
        // SAFETY: this thread's exchange has removed it.
        unsafe { tickets.shared.domain.retire(object) };
    }
}

/// Takes a ticket, and leads later: for a ticket of another thread, too.
fn leads_for_others<F: Flavour>(tickets: &Tickets<F>) {
    let ticket = tickets.periods.start();
    yield_now();
    tickets.periods.poll(ticket, &|_| ());
}

fn reads_beside_tickets<F: Flavour>(tickets: &Tickets<F>) {
    reads_late_and_stays(&tickets.shared);
}

/// A leader serves a thread whose ticket comes while it leads: (A) of `grace`, and the order of fence and look in `epoch`.
#[test]
fn tickets_of_others() {
    fn check_one<F: Flavour>() {
        let threads = &[leads_for_others, takes_a_ticket, reads_beside_tickets as fn(&Tickets<F>)];
        check(F::INFO.name, bounded(1), start_tickets, threads, |tickets| clean(&tickets.shared));
    }
    check_one::<General>();
    check_one::<epoch::Epoch>();
}

/// A section of a thread that has no light fences.
fn reads_without_light_fences(shared: &Rcu) {
    // SAFETY: the machine says so in this way.
    unsafe { Loom::record() }.section.store(NEEDS_FULL_FENCE, Release);
    reads(shared);
}

#[test]
fn full_fences() {
    check("rcu", bounded(2), start, &[synchronizes, reads_without_light_fences as fn(&Rcu)], clean);
}

/// Retires an object, and another one that it has made itself.
fn retires_another<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    // SAFETY: this thread's exchange has removed it.
    unsafe { shared.domain.retire(remove(shared, null_mut())) };
    // SAFETY: no other thread has it.
    unsafe { shared.domain.retire(object::<D>()) };
}

fn only_waits<D: Reclaim<Machine = Loom>>(shared: &Shared<D>) {
    shared.domain.barrier();
}

/// The second object may come onto the shared stack, while the list with the first one is stopped.
#[test]
fn stopped_lists() {
    check("lists", bounded(2), start, &[retires_another, only_waits as fn(&Counted)], clean_of_two);
}

/// A thread waits for a grace period that other threads end. (What `advance` acquires with its load of the epoch takes four threads
/// to be missed, one that waits, two that advance the epoch once each, and a reader: too many for every interleaving.)
#[test]
fn epochs_of_others() {
    check("epoch", bounded(1), start, &[starts_and_looks, starts_and_polls, reads as fn(&Epoch)], clean);
}

/// Three guards at a time: the third has slots in a block that the thread has made for it.
fn reads_in_a_third_guard(shared: &Hazard) {
    let reader = shared.domain.reader();
    let guards = [reader.enter(), reader.enter(), reader.enter()];
    look(guards[2].protect(0, &shared.root));
}

/// Ends the protection of the object before the guard.
fn reads_and_clears(shared: &Hazard) {
    let reader = shared.domain.reader();
    let guard = reader.enter();
    look(guard.protect(0, &shared.root));
    guard.clear(0);
    yield_now();
}

/// Protects one object after the other.
fn reads_twice_with_a_pointer(shared: &Hazard) {
    let mut hazard = HazardPointer::<Loom>::new_in();
    look(hazard.protect_raw(&shared.root));
    look(hazard.protect_raw(&shared.root));
}

#[test]
fn slots() {
    check("hazard", bounded(2), start, &[retires, reads_in_a_third_guard as fn(&Hazard)], clean);
    check("hazard", bounded(2), start, &[retires, reads_and_clears as fn(&Hazard)], clean);
    check("hazard pointer", bounded(2), start, &[replaces, reads_twice_with_a_pointer as fn(&Hazard)], clean);
    check("hazard-fence", bounded(2), start, &[retires, reads_and_rests as fn(&HazardFence)], clean);
}

/// A thread that finds that the object was removed sees what the remover did before.
struct Noted<D> {
    shared: Shared<D>,
    note: UnsafeCell<bool>,
}

// SAFETY: loom checks how the note is used.
unsafe impl<D: Sync> Sync for Noted<D> {}

fn start_noted<D: Reclaim<Machine = Loom>>() -> Noted<D> {
    Noted { shared: start(), note: UnsafeCell::new(false) }
}

fn notes_and_removes<D: Reclaim<Machine = Loom>>(noted: &Noted<D>) {
    // SAFETY: no other thread looks at the note before the object is removed.
    noted.note.with_mut(|note| unsafe { *note = true });
    // SAFETY: this thread's exchange has removed it.
    unsafe { noted.shared.domain.retire(remove(&noted.shared, null_mut())) };
}

fn sees_the_removal<D: Reclaim<Machine = Loom>>(noted: &Noted<D>) {
    let reader = noted.shared.domain.reader();
    let guard = reader.enter();
    if guard.protect(0, &noted.shared.root).is_null() {
        // SAFETY: only read.
        noted.note.with(|note| assert!(unsafe { *note }));
    }
}

#[test]
fn removals_are_seen() {
    fn check_one<D: Reclaim<Machine = Loom> + Send + Sync + 'static>() {
        let threads = &[notes_and_removes, sees_the_removal as fn(&Noted<D>)];
        check(D::INFO.name, bounded(2), start_noted, threads, |noted| clean(&noted.shared));
    }
    check_one::<CountedDomain<Loom>>();
    check_one::<HazardDomain<Loom>>();
    check_one::<HazardDomain<Loom, true>>();
    check_one::<IntervalDomain<Loom, 0>>();
    check_one::<RcuDomain<Loom>>();
    check_one::<QsbrDomain<Loom>>();
    check_one::<EpochDomain<Loom>>();
}

/// Announces twice: that it has reached a time, and that a thread below it has.
fn announces_twice(shared: &Shared<QsbrDomain<Loom>>) {
    // No other thread runs before it is online: so its record is the first one.
    loom::stop_exploring();
    let mut reader = shared.domain.reader();
    loom::explore();
    for _ in 0..2 {
        yield_now();
        reader.quiescent();
    }
}

/// Is not preempted before it has found the object.
fn reads_at_once(shared: &Shared<QsbrDomain<Loom>>) {
    loom::stop_exploring();
    let reader = shared.domain.reader();
    look(reader.enter().protect(0, &shared.root));
    loom::explore();
}

/// A thread vouches for another one, of which it has not heard by a full fence of its own. Up to 1 preemption.
#[test]
fn vouchers() {
    let threads = &[announces_twice, reads_at_once, synchronizes as fn(&Shared<QsbrDomain<Loom>>)];
    check("vouchers", Model::new(1).grouped(), start, threads, clean);
}

//! Clients of the mutexes.

use crate::announces::{ANNOUNCED, Announces, UNANNOUNCED, UNBOUNDED};
use crate::machine::{
    DEADLINE, Loom, Mistake, Model, Outcome, deep, fails, one_fewer_daily, stay, thorough, thread_number,
};
use latchwork::locks::mutex::mcs::RawMcs;
use latchwork::locks::mutex::shfl::RawShfl;
use latchwork::locks::mutex::shfl_spin::RawShflSpin;
use latchwork::locks::mutex::shuffle::Policy;
use latchwork::locks::mutex::stacked::{Local, Stacked};
use latchwork::locks::mutex::ticket::RawTicket;
use latchwork::locks::mutex::{Fair, Info, RawMutex};
use latchwork::machine::Machine;
use latchwork::registry::{self, Visitor};
use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicUsize;
use std::mem::ManuallyDrop;
use std::sync::atomic::Ordering::*;

/// A lock and what it protects: how many sections there were.
pub struct Shared<L> {
    pub lock: L,
    sections: UnsafeCell<usize>,
}

// SAFETY: the cell is only used by holders of the lock; if the lock fails at that, loom tells.
unsafe impl<L: Sync> Sync for Shared<L> {}

impl<L: RawMutex> Shared<L> {
    pub fn new() -> Self {
        Shared { lock: L::new_in(), sections: UnsafeCell::new(0) }
    }

    /// The critical section, and its end.
    pub fn finish(&self, token: L::Token) {
        assert!(self.lock.is_locked());
        // SAFETY: the caller holds the lock.
        self.sections.with_mut(|sections| unsafe { *sections += 1 });
        stay();
        // SAFETY: the token is from the caller's acquisition.
        unsafe { self.lock.unlock(token) };
    }

    pub fn sections(&self) -> usize {
        // SAFETY: called when the threads are gone.
        self.sections.with(|sections| unsafe { *sections })
    }
}

/// One section.
pub fn once<L: RawMutex>(shared: &Shared<L>) {
    shared.finish(shared.lock.lock());
}

/// Two sections in a row: queue nodes are reused, handovers overlap with arrivals.
pub fn twice<L: RawMutex>(shared: &Shared<L>) {
    once(shared);
    once(shared);
}

/// A section that lasts until the others have queued up.
pub fn once_for_long<L: RawMutex>(shared: &Shared<L>) {
    let token = shared.lock.lock();
    be_patient();
    shared.finish(token);
}

/// Turns that a long section gives to the others.
pub fn be_patient() {
    for _ in 0..4 {
        loom::thread::yield_now();
    }
}

/// Afterwards the lock is free and works.
pub fn free_after<L: RawMutex, const SECTIONS: usize>(shared: &Shared<L>) {
    assert!(!shared.lock.is_locked());
    assert_eq!(shared.sections(), SECTIONS);
    shared.finish(shared.lock.try_lock().expect("a free lock can be taken"));
}

/// One attempt.
fn attempt<L: RawMutex>(shared: &Shared<L>) {
    if let Some(token) = shared.lock.try_lock() {
        shared.finish(token);
    }
}

/// One attempt until the deadline.
fn attempt_until<L: RawMutex>(shared: &Shared<L>) {
    if let Some(token) = shared.lock.lock_until(DEADLINE) {
        shared.finish(token);
    }
}

/// A section. The thread whose section is the second of two destroys the lock as soon as it has
/// released it.
fn last_destroys<L: RawMutex>(shared: &Shared<ManuallyDrop<L>>) {
    let token = shared.lock.lock();
    // SAFETY: the lock is held.
    let last = shared.sections.with_mut(|sections| unsafe {
        *sections += 1;
        *sections == 2
    });
    // SAFETY: the token is from the acquisition above.
    unsafe { shared.lock.unlock(token) };
    if last {
        let lock = std::ptr::from_ref(&*shared.lock).cast_mut();
        // SAFETY: the other thread's section is over, so it must not touch the lock any more; the
        // words report it if it does. Nobody looks at the lock afterwards, or drops it again.
        unsafe { lock.drop_in_place() };
    }
}

/// Calls a generic client for every mutex and the example of `CONTRIBUTING.md`, or every one for
/// which a condition on its `INFO` holds.
macro_rules! for_each_mutex {
    ($lock:ident => $body:expr) => {
        for_each_mutex!($lock if true => $body)
    };
    ($lock:ident if $condition:expr => $body:expr) => {{
        struct Each;
        impl Visitor<Loom> for Each {
            fn mutex<$lock: RawMutex<Machine = Loom>>(&mut self) {
                if $condition {
                    crate::report($lock::INFO.name, || $body);
                }
            }
        }
        registry::visit(&mut Each);
        Each.mutex::<crate::example::RawFutex<Loom>>();
    }};
}

pub(crate) use for_each_mutex;

/// At most so many preemptions; one fewer for locks that have the most interleavings. (With one more they
/// have passed as well; `LATCHWORK_LOOM_DEEP=1` does that.)
pub fn bounded<L: RawMutex>(preemptions: usize) -> Model {
    const LARGE: [&str; 11] = [
        "shfl-spin",
        "c-bo-mcs",
        "clof",
        "fissile",
        "mcs-tp",
        "mcs-park",
        "malthusian",
        "cst",
        "hybrid",
        "k42",
        "qspinlock",
    ];
    Model::new(preemptions - usize::from(LARGE.contains(&L::INFO.name)))
}

/// Two threads, one section each: every interleaving, or for the two largest up to 3 preemptions.
#[test]
fn exclusion_of_two() {
    fn model<L: RawMutex>() -> Model {
        let large = ["mcs-tp", "fissile"].contains(&L::INFO.name);
        if large { Model::new(3) } else { Model::exhaustive() }
    }
    for_each_mutex!(L => model::<L>().check(Shared::<L>::new, &[once, once], free_after::<L, 2>));
}

/// Two threads, two sections each; up to 3 preemptions.
#[test]
fn exclusion_of_two_twice() {
    for_each_mutex!(L => bounded::<L>(3).check(Shared::<L>::new, &[twice, twice], free_after::<L, 4>));
}

/// Three threads, one section each; up to 2 preemptions.
#[test]
fn exclusion_of_three() {
    for_each_mutex!(L => bounded::<L>(2).check(Shared::<L>::new, &[once, once, once], free_after::<L, 3>));
}

/// Three threads, two sections in one of them; at most 1 preemption, none every day.
#[test]
fn exclusion_of_three_and_again() {
    for_each_mutex!(L => Model::new(one_fewer_daily(1)).check(Shared::<L>::new, &[twice, once, once], free_after::<L, 4>));
}

/// A holder comes again, and robs the waiter that it has woken, which demands the lock then. The next release hands it over: before the
/// waiter sleeps again, while it falls asleep, or later. Up to 3 preemptions.
#[test]
fn handed_over_on_demand() {
    fn robs<L: RawMutex>(shared: &Shared<L>) {
        once_for_long(shared);
        once(shared);
    }
    for_each_mutex!(L if L::INFO.name == "hybrid" => Model::new(3).check(
        Shared::<L>::new,
        &[robs, once],
        free_after::<L, 3>
    ));
}

/// A lock that excludes nobody.
struct Nobody(AtomicUsize);

// SAFETY: not true; the test below expects that this is found.
unsafe impl RawMutex for Nobody {
    type Machine = Loom;
    type Token = ();
    const INFO: Info = crate::example::RawFutex::<Loom>::INFO;

    fn new_in() -> Self {
        Nobody(AtomicUsize::new(0))
    }

    fn lock(&self) {
        self.0.fetch_add(1, Acquire);
    }

    fn try_lock(&self) -> Option<()> {
        self.lock();
        Some(())
    }

    unsafe fn unlock(&self, (): ()) {
        self.0.fetch_sub(1, Release);
    }

    fn is_locked(&self) -> bool {
        self.0.load(Relaxed) > 0
    }
}

/// Threads that are never preempted meet all the same.
#[test]
fn finds_a_lock_that_excludes_nobody_without_preemptions() {
    let failure =
        Model::new(0).check_fails(Shared::<Nobody>::new, &[twice, once, once], free_after::<Nobody, 4>);
    assert!(failure.contains("Causality violation"), "{failure}");
}

/// Threads queue up behind a holder, from two NUMA nodes in turn. Four are enough for one to be moved
/// and for a waiter that is not the head to become the shuffler; with the blocking lock that takes
/// too long for every day. Threads take turns where they spin or sleep, and are never preempted.
#[test]
fn shuffled_queue() {
    for_each_mutex!(L if L::INFO.name.starts_with("shfl") => Model::new(0).check(
        Shared::<L>::new,
        &[once_for_long, once, once, once],
        free_after::<L, 4>
    ));
    for_each_mutex!(L if L::INFO.name == "shfl-spin" || deep() && L::INFO.name == "shfl" =>
        Model::new(0).check(
            Shared::<L>::new,
            &[once_for_long, once, once, once, once],
            free_after::<L, 5>
        )
    );
}

/// A policy that sorts all waiters, those that came last first, and moves the last one of the queue too.
struct Sorts;
impl Policy for Sorts {
    const RANKS: usize = 3;
    const PATIENCE: Option<u32> = Some(2);
    const THOROUGH: bool = true;
    const STEALING: bool = false;
    fn key<M: Machine>() -> u32 {
        3 - thread_number() as u32
    }
    fn rank<M: Machine>(_: u32, waiter: u32) -> usize {
        waiter as usize
    }
}

/// As above, with a policy that moves more. Threads are never preempted.
#[test]
fn sorted_queue() {
    crate::report("shfl-spin", || {
        Model::new(0).check(
            Shared::<RawShflSpin<Loom, Sorts>>::new,
            &[once_for_long, once, once, once],
            free_after::<RawShflSpin<Loom, Sorts>, 4>,
        )
    });
    crate::report("shfl", || {
        Model::new(0).check(
            Shared::<RawShfl<Loom, Sorts>>::new,
            &[once_for_long, once, once],
            free_after::<RawShfl<Loom, Sorts>, 3>,
        )
    });
}

/// Locks that prefer waiters of the holder's NUMA node.
const NUMA_AWARE: [&str; 7] = ["c-bo-mcs", "c-tkt-mcs", "hmcs", "clof", "cna", "cst", "hclh"];

/// Locks that prefer waiters of the holder's NUMA node: of three waiters, from both nodes, some are passed
/// over and must still get it. Threads take turns where they spin or sleep; at most 1 preemption.
#[test]
fn passed_within_a_node() {
    for_each_mutex!(L if NUMA_AWARE.contains(&L::INFO.name) => Model::new(1).check(
        Shared::<L>::new,
        &[once_for_long, once, once],
        free_after::<L, 3>
    ));
    for_each_mutex!(L if NUMA_AWARE.contains(&L::INFO.name) => Model::new(0).check(
        Shared::<L>::new,
        &[once_for_long, once, once, once],
        free_after::<L, 4>
    ));
}

/// Two threads of one NUMA node, two sections each: the lock is passed on within the node, comes free there, and is taken
/// again; up to 1 preemption.
#[test]
fn twice_in_a_node() {
    for_each_mutex!(L if NUMA_AWARE.contains(&L::INFO.name) => Model::new(1).on_one_node().check(
        Shared::<L>::new,
        &[twice, twice],
        free_after::<L, 4>
    ));
}

/// Waiters of one node that are asleep when the lock is handed over: `cst` sets those aside that stand in front
/// of a waiter that is awake, and wakes them later. Threads take turns where they spin or sleep; at most 1
/// preemption. (To wake one in the middle of a turn takes a waiter that is awake, another one behind it, and a turn that
/// was passed on before: 256,560 executions of four threads, one of which came twice, had none. That is the
/// simulator's, which knows no relaxed orders: no test notices if the loads (D) of `rouse_one` are relaxed.)
#[test]
fn asleep_in_a_node() {
    for_each_mutex!(L if L::INFO.name == "cst" => Model::new(1).on_one_node().check(
        Shared::<L>::new,
        &[once_for_long, once, once],
        free_after::<L, 3>
    ));
    for_each_mutex!(L if L::INFO.name == "cst" => Model::new(0).on_one_node().check(
        Shared::<L>::new,
        &[once_for_long, once, once, once],
        free_after::<L, 4>
    ));
}

/// An attempt against a holder, and two attempts against each other, of which one must succeed;
/// every interleaving.
#[test]
fn attempts() {
    for_each_mutex!(L => Model::exhaustive().check(
        Shared::<L>::new,
        &[once, attempt],
        |shared| assert!((1..=2).contains(&shared.sections()))
    ));
    for_each_mutex!(L => Model::exhaustive().check(
        Shared::<L>::new,
        &[attempt, attempt],
        |shared| assert!((1..=2).contains(&shared.sections()))
    ));
}

/// Two threads and an attempt between them; up to 2 preemptions.
#[test]
fn attempt_among_waiters() {
    for_each_mutex!(L => bounded::<L>(2).check(
        Shared::<L>::new,
        &[once, attempt, once],
        |shared| assert!((2..=3).contains(&shared.sections()))
    ));
}

/// A deadline that passes at any moment: never for nothing on a free lock (every interleaving); a
/// waiter that gives up or just not (up to 3 preemptions).
#[test]
fn deadline_against_holder() {
    for_each_mutex!(L => Model::exhaustive().with_clock().check(
        Shared::<L>::new,
        &[attempt_until],
        free_after::<L, 1>
    ));
    for_each_mutex!(L => Model::new(3).with_clock().check(
        Shared::<L>::new,
        &[once, attempt_until],
        |shared| {
            assert!((1..=2).contains(&shared.sections()));
            shared.finish(shared.lock.try_lock().expect("the queue survives who gave up"));
        }
    ));
}

/// A waiter gives up between others, which must all get the lock; at most 1 preemption.
#[test]
fn deadline_among_waiters() {
    for_each_mutex!(L => Model::new(1).with_clock().check(
        Shared::<L>::new,
        &[once, attempt_until, once],
        |shared| {
            assert!((2..=3).contains(&shared.sections()));
            shared.finish(shared.lock.try_lock().expect("the queue survives who gave up"));
        }
    ));
}

/// Two waiters with deadlines; at most 1 preemption. None for `clof`, whose attempts look at each of three levels, and none
/// for `shfl`, for which 1 is a million executions. (One waiter with a deadline meets `shfl` with 1 preemption above.) None for
/// the other locks of several levels, unless `LATCHWORK_THOROUGH` asks, and `clof` only then.
#[test]
fn two_deadlines() {
    fn none(name: &str) -> bool {
        ["clof", "shfl"].contains(&name) || !thorough() && ["hmcs", "c-bo-mcs", "c-tkt-mcs"].contains(&name)
    }
    for_each_mutex!(L if thorough() || L::INFO.name != "clof" => Model::new(usize::from(!none(L::INFO.name))).with_clock().check(
        Shared::<L>::new,
        &[once, attempt_until, attempt_until],
        |shared| {
            assert!((1..=3).contains(&shared.sections()));
            shared.finish(shared.lock.try_lock().expect("the queue survives who gave up"));
        }
    ));
}

/// One section, with a fair release.
fn once_fairly<L: Fair>(shared: &Shared<L>) {
    let token = shared.lock.lock();
    // SAFETY: the lock is held.
    shared.sections.with_mut(|sections| unsafe { *sections += 1 });
    // SAFETY: the token is from the acquisition above.
    unsafe { shared.lock.unlock_fair(token) };
}

/// A fair release meets waiters that stay, that make one attempt, and that give up: every waiter that stays gets the
/// lock, and the lock can be taken afterwards, although a head that gave up may have left its promise behind. Two
/// threads: every interleaving, or up to 3 preemptions with a clock; three: at most 1 preemption.
#[test]
fn fair_releases() {
    fn fair<L: Fair>() {
        let usable =
            |shared: &Shared<L>| shared.finish(shared.lock.try_lock().expect("a free lock can be taken"));
        crate::report(L::INFO.name, || {
            Model::exhaustive().check(Shared::<L>::new, &[once_fairly, once_fairly], free_after::<L, 2>)
        });
        crate::report(L::INFO.name, || {
            Model::exhaustive().check(Shared::<L>::new, &[once_fairly, attempt], usable)
        });
        crate::report(L::INFO.name, || {
            Model::new(3).with_clock().check(Shared::<L>::new, &[once_fairly, attempt_until], usable)
        });
        crate::report(L::INFO.name, || {
            Model::new(1).check(Shared::<L>::new, &[once_fairly, once_fairly, once], free_after::<L, 3>)
        });
    }
    fair::<RawTicket<Loom>>();
    fair::<RawMcs<Loom>>();
    fair::<RawShfl<Loom>>();
}

/// A head that was robbed naps, and a fair release ends that: here a nap does not end by itself. The holder comes again, and robs
/// the head. Up to 2 preemptions.
#[test]
fn a_fair_release_ends_a_nap() {
    fn robs_and_leaves<L: Fair>(shared: &Shared<L>) {
        once_for_long(shared);
        once_fairly(shared);
    }
    type L = RawShfl<Loom>;
    crate::report(L::INFO.name, || {
        Model::new(2).with_lasting_naps().check(
            Shared::<L>::new,
            &[robs_and_leaves, once],
            free_after::<L, 3>,
        )
    });
}

/// A waiter has put itself at the end of the queue, but is not linked yet. The head in front of it gets the lock, and leaves its node
/// to that waiter. Up to 2 preemptions, from the arrival of that waiter on, and none of the holder.
#[test]
fn a_head_leaves_its_node_to_an_arrival() {
    fn waits<L: RawMutex>(shared: &Shared<L>) {
        loom::stop_exploring();
        once(shared);
    }
    fn arrives<L: RawMutex>(shared: &Shared<L>) {
        loom::explore();
        once(shared);
    }
    fn releases<L: RawMutex<Token = ()>>(shared: &Shared<L>) {
        loom::stop_exploring();
        shared.finish(());
        loom::explore();
    }
    type L = RawShfl<Loom>;
    let held = |shared: &Shared<L>| shared.lock.lock();
    let threads: &[fn(&Shared<L>)] = &[waits, arrives, releases];
    crate::report(L::INFO.name, || {
        Model::new(2).check((Shared::<L>::new, held), threads, free_after::<L, 3>)
    });
}

/// The lock may be destroyed as soon as it has been released for the last time; every interleaving.
#[test]
fn destroyed_by_the_last() {
    for_each_mutex!(L => Model::exhaustive().check(
        || Shared { lock: ManuallyDrop::new(L::new_in()), sections: UnsafeCell::new(0) },
        &[last_destroys::<L>, last_destroys::<L>],
        |_| ()
    ));
}

/// Seeded: the end of a section is not ordered before the next one.
#[test]
fn finds_relaxed_release() {
    for_each_mutex!(L => Model::new(2).with_mistake(Mistake::RelaxedRelease).check_fails(
        Shared::<L>::new,
        &[once, once],
        free_after::<L, 2>
    ));
}

/// Seeded: the start of a section is not ordered after the last one.
#[test]
fn finds_relaxed_acquire() {
    for_each_mutex!(L => Model::new(2).with_mistake(Mistake::RelaxedAcquire).check_fails(
        Shared::<L>::new,
        &[once, once],
        free_after::<L, 2>
    ));
}

/// Seeded: a node that the successor still looks at is used again (CLH leaves one behind; a holder of
/// two MCS locks has two).
#[test]
fn finds_node_released_too_early() {
    for_each_mutex!(L if ["clh", "hmcs"].contains(&L::INFO.name) => Model::new(2)
        .with_mistake(Mistake::NodeTooEarly)
        .check_fails(Shared::<L>::new, &[twice, twice], free_after::<L, 4>));
}

/// Seeded: a waiter in the waiting array and the thread that wakes it do not mean the same place.
#[test]
fn finds_private_waiting_arrays() {
    for_each_mutex!(L if ["twa", "qspinlock"].contains(&L::INFO.name) => Model::new(0)
        .with_mistake(Mistake::PrivateArray)
        .check_fails(Shared::<L>::new, &[once_for_long, once, once, once], free_after::<L, 4>));
}

/// A local lock that sees waiters where there are none.
struct Lies(RawMcs<Loom>);

// SAFETY: that of the lock inside; it is what stands above that breaks.
unsafe impl RawMutex for Lies {
    type Machine = Loom;
    type Token = <RawMcs<Loom> as RawMutex>::Token;
    const INFO: Info = RawMcs::<Loom>::INFO;
    fn new_in() -> Self {
        Lies(RawMcs::new_in())
    }
    fn lock(&self) -> Self::Token {
        self.0.lock()
    }
    fn try_lock(&self) -> Option<Self::Token> {
        self.0.try_lock()
    }
    unsafe fn unlock(&self, token: Self::Token) {
        // SAFETY: forwarded from the caller.
        unsafe { self.0.unlock(token) }
    }
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

impl Local for Lies {
    unsafe fn has_waiters(&self, _: Self::Token) -> bool {
        true
    }
}

/// Seeded: a cohort passes the global lock on to nobody.
#[test]
fn finds_a_cohort_that_passes_to_nobody() {
    crate::report("stacked", || {
        Model::new(2).check_fails(
            Shared::<Stacked<RawTicket<Loom>, Lies>>::new,
            &[once, once],
            free_after::<Stacked<RawTicket<Loom>, Lies>, 2>,
        )
    });
}

/// Seeded: a sleeper is not woken.
#[test]
fn finds_dropped_wake() {
    for_each_mutex!(L if L::INFO.blocking => Model::new(2)
        .with_mistake(Mistake::DroppedWake)
        .check_fails(Shared::<L>::new, &[once, once], free_after::<L, 2>));
}

/// Seeded: a thread goes to sleep without a second look at the word.
#[test]
fn finds_sleep_without_a_look() {
    for_each_mutex!(L if L::INFO.blocking => Model::new(2)
        .with_mistake(Mistake::SleepsUnseen)
        .check_fails(Shared::<L>::new, &[once, once], free_after::<L, 2>));
}

/// Releases in one step, as in the kernel, where no sleep ends by itself; up to 2 preemptions.
#[test]
fn whole_releases() {
    for_each_mutex!(L if L::INFO.name == "shfl" => Model::new(2)
        .with_whole_releases()
        .check(Shared::<L>::new, &[twice, twice], free_after::<L, 4>));
}

/// Seeded: the head announces itself between the look and the store of the holder's release, and then sleeps without a bound.
#[test]
fn finds_torn_release() {
    for_each_mutex!(L if L::INFO.name == "shfl" => Model::new(2)
        .with_mistake(Mistake::NoTornTimeout)
        .check_fails(Shared::<L>::new, &[once, once], free_after::<L, 2>));
}

/// Seeded: the holder's release does not look whether there is a head that sleeps.
#[test]
fn finds_blind_release() {
    for_each_mutex!(L if L::INFO.name == "shfl" => Model::new(2)
        .with_mistake(Mistake::BlindRelease)
        .check_fails(Shared::<L>::new, &[once, once], free_after::<L, 2>));
}

/// A waiter that is not in the queue when it announces itself, and one that sleeps without a bound: releases in one step wake
/// both, and releases in the steps of a native machine do not.
#[test]
fn finds_a_waiter_that_the_look_does_not_find() {
    type Twin<const KIND: u8> = Announces<Loom, KIND>;
    fn check<const KIND: u8>(model: Model) -> Outcome {
        model.check(Shared::<Twin<KIND>>::new, &[once, once], free_after::<Twin<KIND>, 2>)
    }
    let (steps, whole) = (Model::new(2), Model::new(2).with_whole_releases());
    crate::report("announced", || check::<ANNOUNCED>(steps));
    crate::report("unannounced", || check::<UNANNOUNCED>(whole));
    crate::report("unbounded", || check::<UNBOUNDED>(whole));
    for twin in [check::<UNANNOUNCED>, check::<UNBOUNDED>] {
        assert!(fails(|| twin(steps)).contains("deadlock"));
    }
}

/// Two locks, of which the second is taken while the first is held.
struct Nested<L> {
    outer: Shared<L>,
    inner: Shared<L>,
}

impl<L: RawMutex> Nested<L> {
    fn new() -> Self {
        Nested { outer: Shared::new(), inner: Shared::new() }
    }

    /// A section within a section.
    fn once(&self) {
        let token = self.outer.lock.lock();
        once(&self.inner);
        self.outer.finish(token);
    }

    /// A section, for long enough that others queue up.
    fn inner_for_long(&self) {
        once_for_long(&self.inner);
    }

    fn free_after(&self) {
        free_after::<L, 2>(&self.outer);
        free_after::<L, 3>(&self.inner);
    }
}

/// Locks with a node of the pool for each holder, which is in the lock's queue until the release.
const NODE_PER_HOLDER: [&str; 5] = ["mcs", "hemlock", "reciprocating", "mcs-tp", "cna"];

/// Two threads hold a lock while they queue for another, behind a third: each has two nodes. Time jumps, so
/// that a waiter may count as preempted (`mcs-tp`); at most 1 preemption.
#[test]
fn nested() {
    for_each_mutex!(L if NODE_PER_HOLDER.contains(&L::INFO.name) => Model::new(1).check(
        Nested::<L>::new,
        &[Nested::inner_for_long, Nested::once, Nested::once],
        Nested::free_after
    ));
    for_each_mutex!(L if L::INFO.name == "mcs-tp" => Model::new(1).with_clock().check(
        Nested::<L>::new,
        &[Nested::once, Nested::once],
        |shared| {
            free_after::<L, 2>(&shared.outer);
            free_after::<L, 2>(&shared.inner);
        }
    ));
}

/// Seeded: the node of a holder, or of a waiter that was passed over and will queue again, is already used
/// for another lock. (With `hemlock` that is no mistake as long as one thread releases both: it is what the paper
/// does. `reciprocating` follows a wrong pointer, which ends the process.)
#[test]
fn finds_node_in_two_queues() {
    for_each_mutex!(L if ["mcs", "mcs-tp", "cna"].contains(&L::INFO.name) => Model::new(1)
    .with_mistake(Mistake::NodeTooEarly)
    .check_fails(
        Nested::<L>::new,
        &[Nested::inner_for_long, Nested::once, Nested::once],
        Nested::free_after
    ));
}

/// Seeded: the releaser uses its grant word again though its successor has not cleared it.
#[test]
fn finds_a_grant_that_is_not_awaited() {
    for_each_mutex!(L if L::INFO.name == "hemlock" => Model::new(2)
        .with_mistake(Mistake::SeenCleared)
        .check_fails(Shared::<L>::new, &[twice, twice], free_after::<L, 4>));
}

/// Seeded: waiters are moved within the queue, or to a second one, and a link of it is lost: with `cna`, where a
/// waiter of another node is in front of one of the holder's, which takes three waiters; with `malthusian`,
/// where one is culled; with `k42`, where the holder leaves its successor's place to the lock.
#[test]
fn finds_a_lost_splice() {
    for_each_mutex!(L if ["cna", "malthusian", "k42"].contains(&L::INFO.name) => Model::new(0)
        .with_mistake(Mistake::LostLink)
        .check_fails(Shared::<L>::new, &[once_for_long, once, once, once], free_after::<L, 4>));
}

/// Seeded: `cst` sets a sleeper aside, and the list of those is not one: so it does set them aside above.
#[test]
fn finds_a_sleeper_that_is_lost_aside() {
    for_each_mutex!(L if L::INFO.name == "cst" => Model::new(0)
        .on_one_node()
        .with_mistake(Mistake::OpenRing)
        .check_fails(Shared::<L>::new, &[once_for_long, once, once], free_after::<L, 3>));
}

/// Seeded: `mcs-tp` passes over a waiter whose time is old, and does not tell it: so it does pass over some in
/// [`nested`] and above. (That it tells them with a release store cannot be shown here. The order is between
/// the holder's last look at the node and what the owner then writes there, and loom has no loads that are
/// overtaken by later stores.)
#[test]
fn finds_a_waiter_that_is_not_told() {
    for_each_mutex!(L if L::INFO.name == "mcs-tp" => Model::new(1).with_clock().check(
        Shared::<L>::new,
        &[once, once],
        free_after::<L, 2>
    ));
    for_each_mutex!(L if L::INFO.name == "mcs-tp" => Model::new(1)
        .with_clock()
        .with_mistake(Mistake::LostSkip)
        .check_fails(Shared::<L>::new, &[once, once], free_after::<L, 2>));
}

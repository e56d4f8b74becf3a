use super::super::turn::{begun_before, stamp};
use super::*;
use crate::locks::tests::in_a_minute;
use crate::machine::{Clock, MICRO};
use core::sync::atomic::AtomicBool;
use std::thread;
use std::time::Duration;

/// Takes the lock and gives it back.
fn once<P: Policy>(lock: &RawShfl<Native, P>) {
    lock.lock();
    // SAFETY: from the acquisition above.
    unsafe { lock.unlock(()) };
}

/// Waits until a waiter is in the queue.
fn await_queue<P: Policy>(lock: &RawShfl<Native, P>) {
    while lock.is_queue_empty() {
        thread::yield_now();
    }
}

/// After a fair release, the next attempt does not pass the waiter in the queue. An attempt that comes after
/// `PROMISE_BOUND` may pass a waiter that has not run, so it proves nothing: on a busy machine the kernel may preempt
/// both threads for as long.
#[test]
fn a_fair_release_hands_over() {
    for _ in 0..100 {
        let (lock, served) = (RawShfl::<Native>::new(), AtomicBool::new(false));
        lock.lock();
        thread::scope(|scope| {
            scope.spawn(|| {
                lock.lock();
                served.store(true, Relaxed);
                // SAFETY: from the acquisition above.
                unsafe { lock.unlock(()) };
            });
            await_queue(&lock);
            let begin = Native::now(Clock::Monotonic);
            // SAFETY: from the acquisition above.
            unsafe { lock.unlock_fair(()) };
            if lock.try_lock().is_some() {
                let late = Native::now(Clock::Monotonic) - begin >= u64::from(PROMISE_BOUND) << MICRO;
                let in_order = late || served.load(Relaxed);
                // SAFETY: from the attempt above.
                unsafe { lock.unlock(()) };
                assert!(in_order, "the attempt passed the waiter");
            }
        });
        assert!(served.into_inner() && !lock.is_locked());
    }
}

/// A lock whose queue has a head that does not run, and whose turn began 30 seconds ago.
fn with_a_late_head(node: &'static QNode<Native>, word: u32, turn: u32) -> RawShfl<Native> {
    let lock = RawShfl::new();
    lock.tail.store(node.as_ptr(), Relaxed);
    lock.turn.0.store(turn | begun_before::<Native>(30_000_000), Relaxed);
    lock.word.store(word, Relaxed);
    lock
}

/// A release leaves a demanded lock to the head of the queue, for as long as promised from that moment on, and keeps what else `turn`
/// says. Without a queue it drops the demand.
#[test]
fn a_demanded_lock_is_left_to_the_head_from_its_release_on() {
    let node = Native::acquire_node();
    for other in [ASLEEP, LAPSED] {
        let lock = with_a_late_head(node, HELD | DEMAND, other);
        // SAFETY: the lock is held, by no other thread.
        unsafe { lock.unlock(()) };
        assert_eq!(lock.word.load(Relaxed), DEMAND);
        assert!(lock.turn.get().has(other));
        assert!(age::<Native>(lock.turn.get()) < 15_000_000, "the promise is as old as the head's turn");
    }
    let lock = with_a_late_head(node, HELD | DEMAND, 0);
    lock.tail.store(null_mut(), Relaxed);
    lock.unlock_slow();
    assert_eq!(lock.word.load(Relaxed), 0);
    // SAFETY: acquired above, and in no queue any more.
    unsafe { Native::release_node(node) };
}

/// A head that finds the lock free and demands it is promised the lock from that moment on, however old its turn is.
#[test]
fn a_demand_of_a_free_lock_begins_the_promise() {
    let node = Native::acquire_node();
    let lock = with_a_late_head(node, 0, 0);
    let begin = Native::now(Clock::Monotonic);
    lock.demand();
    let passed = lock.try_lock().is_some();
    let late = Native::now(Clock::Monotonic) - begin >= u64::from(PROMISE_BOUND) << MICRO;
    assert!(late || !passed, "an attempt has passed a head that runs");
    // SAFETY: acquired above, and in no queue any more.
    unsafe { Native::release_node(node) };
}

/// After the promise the head counts as suspended, and an attempt passes it.
#[test]
fn a_promise_ends() {
    let node = Native::acquire_node();
    let lock = with_a_late_head(node, DEMAND, 0);
    assert!(lock.try_lock().is_some() && lock.turn.get().has(LAPSED));
    // SAFETY: acquired above, and in no queue any more.
    unsafe { Native::release_node(node) };
}

/// A demand of a head that has left keeps no attempt out, and none is made for a head that is suspended.
#[test]
fn a_demand_is_for_a_head_that_runs() {
    let lock = RawShfl::<Native>::new();
    lock.word.store(DEMAND, Relaxed);
    lock.turn.begin();
    assert!(lock.try_lock().is_some(), "there is no head");
    let node = Native::acquire_node();
    let lock = with_a_late_head(node, HELD, LAPSED);
    // SAFETY: the lock is held, by no other thread.
    unsafe { lock.unlock_fair(()) };
    assert_eq!(lock.word.load(Relaxed), 0, "the head is suspended");
    // SAFETY: acquired above, and in no queue any more.
    unsafe { Native::release_node(node) };
}

/// No newcomer queues behind a head that is suspended: nodes would pile up.
#[test]
fn no_waiter_queues_behind_a_suspended_head() {
    let node = Native::acquire_node();
    let lock = with_a_late_head(node, HELD, LAPSED);
    assert!(lock.lock_until(Deadline::after::<Native>(1_000_000)).is_none());
    assert_eq!(lock.tail.load(Relaxed), node.as_ptr());
    // SAFETY: acquired above, and in no queue any more.
    unsafe { Native::release_node(node) };
}

/// The turn of a first head begins when it queues. A turn that seems to be older lets other threads pass the head.
#[test]
fn a_turn_begins_with_its_head() {
    let lock = RawShfl::<Native>::new();
    lock.lock();
    lock.turn.0.store(begun_before::<Native>(30_000_000), Relaxed);
    let start = stamp::<Native>();
    thread::scope(|scope| {
        scope.spawn(|| once(&lock));
        let is_new = in_a_minute(|| lock.turn.has_begun_since(start));
        // SAFETY: from the acquisition above.
        unsafe { lock.unlock(()) };
        assert!(is_new, "the turn of the head began before it came");
    });
}

/// A head that was taken for suspended, and runs, says so.
#[test]
fn a_head_that_runs_again_does_not_look_suspended() {
    let lock = RawShfl::<Native>::new();
    lock.lock();
    thread::scope(|scope| {
        scope.spawn(|| once(&lock));
        await_queue(&lock);
        lock.turn.0.fetch_or(LAPSED, Relaxed);
        // The head wakes up by itself several times a second.
        let cleared = in_a_minute(|| !lock.turn.get().has(LAPSED));
        // SAFETY: from the acquisition above.
        unsafe { lock.unlock(()) };
        assert!(cleared, "the head is awake");
    });
}

/// A waiter that wakes up by itself does not take the head for suspended while the lock is held: there is nothing to come for.
#[test]
fn no_head_looks_suspended_behind_a_holder() {
    let lock = RawShfl::<Native>::new();
    lock.lock();
    thread::scope(|scope| {
        scope.spawn(|| once(&lock));
        await_queue(&lock);
        let first = lock.tail.load(Relaxed);
        scope.spawn(|| once(&lock));
        while lock.tail.load(Relaxed) == first {
            thread::yield_now();
        }
        // The second waiter wakes up after 10 ms, the head after 10, 20 and 40 ms.
        let lapsed = (0..60).any(|_| {
            thread::sleep(Duration::from_millis(1));
            lock.turn.get().has(LAPSED)
        });
        // SAFETY: from the acquisition above.
        unsafe { lock.unlock(()) };
        assert!(!lapsed);
    });
}

/// Ten threads spin in vain for one long section. That says little of the next ones, so newcomers spin again.
#[test]
fn one_long_section_does_not_stop_the_spins() {
    let lock = RawShfl::<Native>::new();
    lock.lock();
    thread::scope(|scope| {
        (0..10).for_each(|_| _ = scope.spawn(|| once(&lock)));
        await_queue(&lock);
        thread::sleep(Duration::from_millis(20));
        let turn = lock.turn.get().0 | 1; // a multiple of `TRIAL` would be a trial
        // SAFETY: from the acquisition above.
        unsafe { lock.unlock(()) };
        assert!(Turn::<Native>(AtomicU32::new(turn)).spins_pay::<NumaPolicy>());
    });
}

/// LAPSED may stay behind in an empty queue: a head that is interrupted while it leaves looks suspended. The next waiter
/// queues nevertheless, and clears it. It would else poll for as long as other threads use the lock.
#[test]
fn a_waiter_queues_where_lapsed_has_stayed_behind() {
    let lock = RawShfl::<Native>::new();
    lock.turn.0.store(LAPSED, Relaxed);
    lock.lock();
    thread::scope(|scope| {
        scope.spawn(|| once(&lock));
        let queued = in_a_minute(|| !lock.tail.load(Relaxed).is_null());
        // SAFETY: from the acquisition above.
        unsafe { lock.unlock(()) };
        assert!(queued, "the waiter never queued");
    });
    assert!(!lock.turn.get().has(LAPSED));
}

/// A release unparks every thread that sleeps at `word`. Beside the head, a requeue may have moved there the head of
/// another lock; see `leave`.
#[test]
fn a_release_leaves_no_sleeper() {
    for _ in 0..20 {
        let lock = RawShfl::<Native>::new();
        lock.lock();
        thread::scope(|scope| {
            scope.spawn(|| once(&lock));
            // Sleeps at `word` beside the head, as a thread does that a requeue has moved there.
            scope.spawn(|| {
                let until = Some(Deadline::after::<Native>(10_000_000_000));
                while lock.is_locked() {
                    let word = lock.word();
                    if word.has(PARKED) {
                        Native::wait(&lock.word, word.0, until);
                    }
                    thread::yield_now();
                }
            });
            while !lock.word().has(PARKED) {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(2));
            // SAFETY: from the acquisition above.
            unsafe { lock.unlock(()) };
            assert_eq!(Native::wake(&lock.word, u32::MAX), 0, "a thread slept on after the release");
        });
    }
}

/// Waiters time out, one after the other, behind a head that waits for long. The head takes out the nodes that they abandon, so that
/// later waiters get these again. Otherwise each would get a new one.
#[test]
fn abandoned_nodes_do_not_pile_up_behind_a_head_that_waits() {
    let lock = RawShfl::<Native>::new();
    lock.lock();
    thread::scope(|scope| {
        scope.spawn(|| once(&lock));
        await_queue(&lock);
        // The head wakes up by itself several times a second.
        let mut nodes = std::collections::BTreeSet::new();
        let comes_back = (0..60_000).any(|_| {
            assert!(lock.lock_until(Deadline::after::<Native>(1_000_000)).is_none());
            !nodes.insert(lock.tail.load(Relaxed).addr())
        });
        // SAFETY: from the acquisition above.
        unsafe { lock.unlock(()) };
        assert!(comes_back, "{} waiters have left, and no node has come back", nodes.len());
    });
}

/// In order of arrival, and no thread steals.
struct NoStealing;

impl Policy for NoStealing {
    const STEALING: bool = false;

    fn applies<M: Machine>() -> bool {
        false
    }
    fn key<M: Machine>() -> u32 {
        0
    }
    fn rank<M: Machine>(_: u32, _: u32) -> usize {
        1
    }
}

/// What a leaving head leaves behind. In the word: without stealing, the demand of the next head; with stealing, no demand if it gives
/// up. The next head's turn begins.
#[test]
fn a_leaving_head_demands_for_the_next_or_takes_back() {
    fn word_after<P: Policy>(word: u32, locked: bool) -> u32 {
        let (lock, node) = (RawShfl::<Native, P>::new(), Waiter(Native::acquire_node()));
        node.next().store(null_mut(), Relaxed);
        lock.tail.store(node.as_ptr(), Relaxed);
        lock.word.store(word, Relaxed);
        lock.turn.0.store(begun_before::<Native>(30_000_000), Relaxed);
        lock.leave(node, locked);
        assert!(age::<Native>(lock.turn.get()) < 15_000_000, "the turn is as old as that of the head before");
        lock.word.load(Relaxed)
    }
    assert_eq!(word_after::<NoStealing>(HELD, true), HELD | DEMAND);
    assert_eq!(word_after::<NumaPolicy>(HELD | DEMAND, false), HELD);
}

/// A lock without stealing that is no longer contended has its fast path again. DEMAND, which each head sets, would take it away.
#[test]
fn a_demand_does_not_outlive_the_queue() {
    let lock = RawShfl::<Native, NoStealing>::new();
    lock.lock();
    thread::scope(|scope| {
        scope.spawn(|| once(&lock));
        await_queue(&lock);
        // SAFETY: from the acquisition above.
        unsafe { lock.unlock(()) };
    });
    assert!(lock.try_lock_weak().is_some(), "the word is {:#b}", lock.word.load(Relaxed));
}

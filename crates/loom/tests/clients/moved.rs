//! A waiter that the head has moved, and that becomes the head before it has looked at its node: (R) of `sleepers`.
//!
//! The lock is held. Four threads queue for it, in the order of their numbers: the head, a waiter, a *hurried* waiter whose
//! deadline has passed, and the last. The last one ends the section before it queues. The head moves the hurried waiter in front
//! of the other one, takes the lock, and makes the hurried waiter the head. That waiter finds the lock held, gives up, and hands
//! its place on. If it reads the link that its node had before it was moved, it hands on to the last waiter, and the waiter
//! between them sleeps for ever.
//!
//! All this takes one preemption: the hurried waiter's, after it has queued. Four threads with a preemption each would take hours.
//! So [`Meeting`] lets the threads queue in turn, by means that loom does not see and that order no memory. And waiters
//! [look late](Model::with_late_looks).

use crate::machine::{Loom, Mistake, Model, deep, thread_number};
use latchwork::locks::mutex::RawMutex;
use latchwork::locks::mutex::shfl::RawShfl;
use latchwork::locks::mutex::shuffle::Policy;
use latchwork::machine::{Clock, Deadline, Machine};
use std::cell::Cell;

type Lock = RawShfl<Loom, Hurries>;

const HURRIED: u32 = 2;
const LAST: u32 = 3;
const THREADS: u32 = 4;

const PASSED: Deadline = Deadline { clock: Clock::Monotonic, nanos: 0 };

/// A policy that moves the hurried waiter to the front. It asks each waiter for its key just before the waiter queues, and the
/// head whether there is anything to move: there the threads meet.
struct Hurries;

impl Policy for Hurries {
    const THOROUGH: bool = true;
    const STEALING: bool = false;
    fn applies<M: Machine>() -> bool {
        until(|meeting| meeting.queued.get() == THREADS);
        true
    }
    fn key<M: Machine>() -> u32 {
        let me = thread_number() as u32;
        until(|meeting| meeting.queued.get() == me);
        MEETING.with(|meeting| meeting.queued.set(me + 1));
        if me == LAST {
            let lock = MEETING.with(|meeting| meeting.lock.get());
            // SAFETY: the lock outlives the threads, and `begin` holds it.
            unsafe { (*lock).unlock(()) };
        }
        me
    }
    fn rank<M: Machine>(_: u32, waiter: u32) -> usize {
        usize::from(waiter != HURRIED)
    }
}

/// What the threads of an execution know of each other. loom runs all of them on one OS thread.
struct Meeting {
    lock: Cell<*const Lock>,
    /// How many threads are about to queue, or have queued.
    queued: Cell<u32>,
    /// Whether the hurried waiter has come back.
    has_left: Cell<bool>,
}

std::thread_local! {
    static MEETING: Meeting = const {
        Meeting { lock: Cell::new(std::ptr::null()), queued: Cell::new(0), has_left: Cell::new(false) }
    };
}

fn until(done: impl Fn(&Meeting) -> bool) {
    while !MEETING.with(&done) {
        loom::thread::yield_now();
    }
}

fn begin(lock: &Lock) {
    MEETING.with(|meeting| {
        meeting.lock.set(lock);
        meeting.queued.set(0);
        meeting.has_left.set(false);
    });
    lock.lock();
}

/// The head, which holds the lock until the hurried waiter has left.
fn heads(lock: &Lock) {
    lock.lock();
    until(|meeting| meeting.has_left.get());
    // SAFETY: acquired above.
    unsafe { lock.unlock(()) };
}

fn waits(lock: &Lock) {
    lock.lock();
    // SAFETY: acquired above.
    unsafe { lock.unlock(()) };
}

fn gives_up(lock: &Lock) {
    if lock.lock_until(PASSED).is_some() {
        // SAFETY: acquired above.
        unsafe { lock.unlock(()) };
    }
}

fn hurries(lock: &Lock) {
    assert!(lock.lock_until(PASSED).is_none(), "beside the head");
    MEETING.with(|meeting| meeting.has_left.set(true));
}

fn free_after(lock: &Lock) {
    lock.try_lock().expect("a free lock can be taken");
}

/// Where the last waiter gives up, so that it neither sleeps nor competes: a quarter of the executions.
const CLIENT: [fn(&Lock); THREADS as usize] = [heads, waits, hurries, gives_up];

/// Releases are one step: what the looks of a release may see would multiply the executions.
fn model() -> Model {
    Model::new(0).with_late_looks().with_whole_releases()
}

/// No thread is preempted. The second client takes ten minutes.
#[test]
fn becomes_the_head_before_it_looks() {
    crate::report("shfl", || model().check((Lock::new_in, begin), &CLIENT, free_after));
    if deep() {
        crate::report("shfl", || {
            model().check((Lock::new_in, begin), &[heads, waits, hurries, waits], free_after)
        });
    }
}

/// Seeded: the new head is not ordered after the old one, by the load of its status or by the exchange. The waiter that is lost
/// sleeps, and so does the model's first thread, which waits for it.
#[test]
fn finds_a_new_head_that_reads_a_stale_link() {
    for mistake in [Mistake::RelaxedLoadOf(4), Mistake::RelaxedSwapOf(4)] {
        crate::report("shfl", || {
            let failure =
                model().with_mistake(mistake).check_fails((Lock::new_in, begin), &CLIENT, free_after);
            assert!(failure.starts_with("deadlock"), "{failure}");
            failure
        });
    }
}

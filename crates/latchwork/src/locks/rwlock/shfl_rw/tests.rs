use super::super::RawUpgrade;
use super::words::{CLAIMED, LAPSED, OFFERED, SHARED};
use super::*;
use crate::locks::mutex::invite::invite;
use crate::locks::mutex::shuffle::Waiter;
use crate::locks::mutex::sleepers::{self, NODE_PARKED};
use crate::locks::mutex::turn::{PROMISE_BOUND, age, begun_before, stamp};
use crate::locks::tests::in_a_minute;
use crate::machine::{Clock, MICRO};
use std::thread;

mod hints;

type Lock = RawShflRw<Native>;

/// Half a minute, in microseconds.
const LONG: u32 = 30_000_000;

/// A lock whose queue has a head that does not run, and whose turn has lasted for [`LONG`].
struct Beside {
    lock: Lock,
    node: &'static QNode<Native>,
}

impl Beside {
    fn a_head(word: u32, readers: u32) -> Self {
        let beside = Beside { lock: Lock::new(), node: Native::acquire_node() };
        Waiter(beside.node).next().store(null_mut(), Relaxed);
        beside.lock.tail.store(beside.node.as_ptr(), Relaxed);
        beside.lock.turn.0.store(begun_before::<Native>(LONG), Relaxed);
        beside.lock.word.store(word, Relaxed);
        beside.lock.readers.store(readers, Relaxed);
        beside
    }

    fn word(&self) -> u32 {
        self.lock.word.load(Relaxed)
    }

    fn readers(&self) -> u32 {
        self.lock.readers.load(Relaxed)
    }

    /// Waits until a waiter behind the head has parked.
    fn await_a_parked_waiter(&self) {
        assert!(in_a_minute(|| {
            let next = Waiter(self.node).next().load(Acquire);
            // SAFETY: nodes of the pool are never unmapped.
            !next.is_null() && unsafe { Waiter::<Native>::at(next) }.status().load(Relaxed) == NODE_PARKED
        }));
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        _ = sleepers::next_head::<Native>(&self.lock.tail, Waiter(self.node)); // with the nodes that waiters have left behind it
    }
}

/// A thread that finds the lock free, and left to the head, offers it to the head: the promise begins then, and not with the turn.
#[test]
fn a_promise_begins_when_the_lock_is_found_free() {
    let beside = Beside::a_head(CLAIMED, 0);
    let start = Native::now(Clock::Monotonic);
    let passed = beside.lock.try_write().is_some();
    assert_eq!((passed, beside.word()), (false, CLAIMED | OFFERED));
    assert!(age::<Native>(beside.lock.turn.get()) < LONG / 2, "the promise is as old as the head's turn");
    let passed = beside.lock.try_read().is_some() || beside.lock.try_write().is_some();
    let late = Native::now(Clock::Monotonic) - start >= u64::from(PROMISE_BOUND) << MICRO;
    assert!(late || !passed, "an attempt has passed a head that was promised the lock");
}

/// After the promise the head counts as suspended, and its claim ends.
#[test]
fn a_promise_ends() {
    let beside = Beside::a_head(CLAIMED | OFFERED, 0);
    assert!(beside.lock.try_write().is_some());
    assert_eq!(beside.word(), LAPSED | WRITER);
    let beside = Beside::a_head(CLAIMED | OFFERED | SHARED, 0);
    assert!(beside.lock.try_upgradable().is_some());
    assert_eq!(beside.word(), LAPSED | SHARED);
}

/// The lock is free for a head only if no thread inside keeps that head out.
#[test]
fn a_lock_is_free_for_one_head_and_not_for_another() {
    let writes = Beside::a_head(CLAIMED, READER);
    assert!(writes.lock.try_read().is_none());
    assert_eq!(writes.word(), CLAIMED, "a writer waits for the reader");
    let upgrades = Beside::a_head(CLAIMED | SHARED, READER);
    assert!(upgrades.lock.try_upgradable().is_none());
    assert_eq!(upgrades.word(), CLAIMED | OFFERED | SHARED, "an upgradable reader does not");
    assert!(upgrades.lock.try_read().is_some());
}

/// No newcomer queues behind a head that is suspended: nodes would pile up.
#[test]
fn no_waiter_queues_behind_a_suspended_head() {
    let beside = Beside::a_head(LAPSED | WRITER, 0);
    assert!(beside.lock.read_until(Deadline::after::<Native>(1_000_000)).is_none());
    assert!(beside.lock.write_until(Deadline::after::<Native>(1_000_000)).is_none());
    assert_eq!(beside.lock.tail.load(Relaxed), beside.node.as_ptr());
}

/// The turn of a first head begins when it queues. It says so that it runs when it was taken for suspended.
#[test]
fn a_head_says_when_it_came_and_that_it_runs() {
    let lock = Lock::new();
    lock.write();
    lock.turn.0.store(begun_before::<Native>(LONG), Relaxed);
    let start = stamp::<Native>();
    thread::scope(|scope| {
        scope.spawn(|| {
            lock.write();
            // SAFETY: acquired above.
            unsafe { lock.unlock_write(()) };
        });
        let queued = in_a_minute(|| !lock.is_queue_empty());
        let new = in_a_minute(|| lock.turn.has_begun_since(start));
        // The head wakes up by itself several times a second.
        lock.word.fetch_or(LAPSED, Relaxed);
        let runs = in_a_minute(|| !lock.state().has(LAPSED));
        // SAFETY: acquired above.
        unsafe { lock.unlock_write(()) };
        assert_eq!((queued, new, runs), (true, true, true));
    });
}

/// A reader that was invited and cannot enter gives the invitation back. It parks again, and its deadline ends its wait.
#[test]
fn an_invited_reader_that_cannot_enter_times_out() {
    let beside = Beside::a_head(WRITER, 0);
    thread::scope(|scope| {
        let reader = scope.spawn(|| beside.lock.read_until(Deadline::after::<Native>(300_000_000)));
        beside.await_a_parked_waiter();
        invite(Waiter(beside.node), 1, |_| true);
        let times_out = in_a_minute(|| reader.is_finished());
        beside.lock.word.store(FREE, Relaxed); // a reader that is still invited enters
        assert_eq!((times_out, reader.join().unwrap()), (true, None));
    });
}

/// A reader that was invited enters, although the head has claimed the lock.
#[test]
fn an_invited_reader_enters() {
    let beside = Beside::a_head(CLAIMED, READER);
    thread::scope(|scope| {
        let reader = scope.spawn(|| beside.lock.read());
        beside.await_a_parked_waiter();
        invite(Waiter(beside.node), 1, |_| true);
        let enters = in_a_minute(|| reader.is_finished());
        beside.lock.word.store(FREE, Relaxed); // a reader that still waits enters
        assert!(enters, "the reader waits for the head");
    });
    assert_eq!(beside.readers(), 2 * READER);
}

/// Only what stands right behind the head is invited: a reader behind a writer would pass it.
#[test]
fn no_reader_behind_a_writer_is_invited() {
    let [head, writer, reader] = core::array::from_fn(|_| Waiter(Native::acquire_node()));
    for (waiter, next) in [(head, writer.as_ptr()), (writer, reader.as_ptr()), (reader, null_mut())] {
        waiter.next().store(next, Relaxed);
        waiter.status().store(NODE_PARKED, Relaxed);
    }
    invite(head, 2, |waiter| waiter == reader);
    assert_eq!(reader.status().load(Relaxed), NODE_PARKED);
    // SAFETY: no thread waits with these nodes.
    [head, writer, reader].into_iter().for_each(|waiter| unsafe { Native::release_node(waiter.0) });
}

/// Spins for so long that a test can act meanwhile.
struct SpinsLong;

impl Policy for SpinsLong {
    const SPIN: u32 = 50_000_000;

    fn key<M: Machine>() -> u32 {
        0
    }
    fn rank<M: Machine>(_: u32, _: u32) -> usize {
        0
    }
}

/// A writer's release that looks at the word before the head claims it, and stores 0 afterwards, erases the claim. The head claims the
/// lock again at its next look. It does not park without a claim, while newcomers pass.
#[test]
fn the_head_claims_again_after_a_torn_release() {
    let lock = RawShflRw::<Native, SpinsLong>::new_in();
    lock.write();
    thread::scope(|scope| {
        scope.spawn(|| {
            lock.write();
            // SAFETY: acquired above.
            unsafe { lock.unlock_write(()) };
        });
        let claims = in_a_minute(|| lock.state().has(CLAIMED));
        lock.word.store(WRITER, Relaxed); // a torn release, and the next writer
        let seen = core::cell::Cell::new(0);
        let acts = in_a_minute(|| {
            seen.set(lock.word.load(Relaxed));
            Bits(seen.get()).has(CLAIMED | PARKED)
        });
        // SAFETY: acquired above.
        unsafe { lock.unlock_write(()) };
        assert!(claims && acts && Bits(seen.get()).has(CLAIMED), "the word is {:#b}", seen.get());
    });
}

/// An offer of the free lock ends when the head runs. A recursive reader may enter past the claim before the head runs. When that reader
/// leaves, after more than `PROMISE_BOUND`, the next attempt would otherwise take the head for suspended.
#[test]
fn an_offer_ends_when_the_head_runs() {
    let lock = Lock::new();
    lock.read();
    thread::scope(|scope| {
        scope.spawn(|| {
            lock.write();
            // SAFETY: acquired above.
            unsafe { lock.unlock_write(()) };
        });
        let queued = in_a_minute(|| !lock.is_queue_empty());
        lock.word.fetch_or(CLAIMED | OFFERED, Relaxed);
        // The head wakes up by itself several times a second.
        let ends = in_a_minute(|| !lock.state().has(OFFERED));
        // SAFETY: acquired above.
        unsafe { lock.unlock_read(()) };
        assert!(queued && ends);
    });
}

/// A waiter that passes a head that does not run says so. Otherwise later waiters would queue behind that head, and leave their nodes there.
#[test]
fn no_nodes_pile_up_behind_a_head_that_does_not_run() {
    let beside = Beside::a_head(WRITER, 0);
    let lock = &beside.lock;
    thread::scope(|scope| {
        scope.spawn(|| {
            lock.write();
            // SAFETY: acquired above.
            unsafe { lock.unlock_write(()) };
        });
        beside.await_a_parked_waiter();
        // SAFETY: the lock is held, by no other thread.
        unsafe { lock.unlock_write(()) };
    });
    let last = lock.tail.load(Relaxed);
    lock.word.fetch_or(WRITER, Relaxed);
    assert!(lock.read_until(Deadline::after::<Native>(1_000_000)).is_none());
    assert!(lock.write_until(Deadline::after::<Native>(1_000_000)).is_none());
    assert_eq!(lock.tail.load(Relaxed), last, "a newcomer has queued");
}

/// LAPSED may stay behind in an empty queue. The next waiter queues nevertheless: it would else poll until the writer leaves.
#[test]
fn a_waiter_queues_where_lapsed_has_stayed_behind() {
    let lock = Lock::new();
    lock.write();
    lock.word.fetch_or(LAPSED, Relaxed);
    thread::scope(|scope| {
        scope.spawn(|| {
            lock.write();
            // SAFETY: acquired above.
            unsafe { lock.unlock_write(()) };
        });
        let queued = in_a_minute(|| !lock.is_queue_empty());
        // SAFETY: acquired above.
        unsafe { lock.unlock_write(()) };
        assert!(queued, "the waiter never queued");
    });
}

/// PARKED may stay behind in `readers`, set by a leaving reader for a waiter that has just timed out. The next writer clears it:
/// otherwise no write would be uncontended until a thread reads.
#[test]
fn parked_does_not_outlive_the_queue() {
    let lock = Lock::new();
    lock.readers.store(PARKED, Relaxed);
    lock.write();
    // SAFETY: acquired above.
    unsafe { lock.unlock_write(()) };
    assert!(lock.try_write_free());
}

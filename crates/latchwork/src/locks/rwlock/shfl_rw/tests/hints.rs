//! What the words say about the head: which thread writes it, and when it is over.

use super::super::queue::{READING, UPGRADABLE_READING, WRITING, key};
use super::super::words::LEFT;
use super::*;
use crate::locks::mutex::turn::ASLEEP;
use crate::locks::rwlock::{RawFair, RawRecursive, Timeout};
use core::sync::atomic::AtomicBool;

/// The head that leaves wakes the next one if that may enter beside it. Otherwise the next one sleeps on, until the words are open.
#[test]
fn a_leaving_head_wakes_whom_it_does_not_keep_out() {
    let sleeps_on = |side, next_key| {
        let (lock, [node, next]) = (Lock::new(), core::array::from_fn(|_| Waiter(Native::acquire_node())));
        node.next().store(next.as_ptr(), Relaxed);
        next.next().store(null_mut(), Relaxed);
        next.status().store(NODE_PARKED, Relaxed);
        next.key().store(next_key, Relaxed);
        lock.tail.store(next.as_ptr(), Relaxed);
        lock.turn.0.store(begun_before::<Native>(LONG), Relaxed);
        lock.leave(node, side, true);
        // SAFETY: no thread waits with this node. `leave` has released the other one.
        unsafe { Native::release_node(next.0) };
        assert!(age::<Native>(lock.turn.get()) < LONG / 2, "the turn is as old as that of the head before");
        let at = [&lock.word, &lock.readers].map(|word| Bits::of::<Native>(word).has(PARKED));
        assert_eq!(lock.turn.get().has(ASLEEP), at != [false, false]);
        at
    };
    for (side, [writer, upgradable, reader]) in [
        (Side::Write, [[true, false]; 3]),
        (Side::Upgradable, [[false, true], [false, true], [false, false]]),
        (Side::Read, [[false, true], [false, false], [false, false]]),
    ] {
        assert_eq!(sleeps_on(side, 0), writer);
        assert_eq!(sleeps_on(side, UPGRADABLE_READING), upgradable);
        assert_eq!(sleeps_on(side, READING), reader);
    }
}

/// A policy's key makes no writer look like a reader, which may be invited.
#[test]
fn no_key_makes_a_reader_of_a_writer() {
    struct Largest;
    impl Policy for Largest {
        fn key<M: Machine>() -> u32 {
            u32::MAX
        }
        fn rank<M: Machine>(_: u32, _: u32) -> usize {
            0
        }
    }
    assert_eq!(key::<Native, Largest>(Side::Write), WRITING);
}

/// A reader that enters past a parked head, beside other readers, claims the lock for that head after its turn: no release would wake
/// the head while readers come and go.
#[test]
fn a_reader_claims_the_lock_for_a_parked_head() {
    for enters in [|lock: &Lock| lock.try_read().is_some(), |lock: &Lock| lock.try_upgradable().is_some()] {
        let beside = Beside::a_head(FREE, READER | PARKED);
        assert!(enters(&beside.lock));
        assert_eq!(beside.word(), CLAIMED);
        assert!(beside.lock.inside().has(PARKED));
        let suspended = Beside::a_head(LAPSED, READER | PARKED);
        assert!(enters(&suspended.lock));
        assert_eq!(suspended.word(), LAPSED);
    }
}

/// A reader that enters alone, or where no thread waits, clears PARKED: the last reader to leave has woken the head.
#[test]
fn a_reader_clears_a_note_that_is_over() {
    let beside = Beside::a_head(FREE, PARKED);
    assert!(beside.lock.try_read().is_some());
    assert_eq!((beside.word(), beside.readers()), (FREE, READER));
    let lock = Lock::new();
    lock.readers.store(READER | PARKED, Relaxed);
    assert!(lock.try_read().is_some());
    assert_eq!(lock.readers.load(Relaxed), 2 * READER);
}

/// A head that gives up takes back what it has set in the words. Its SHARED would let readers pass the claim of the next head, a writer,
/// for ever.
#[test]
fn a_head_that_gives_up_leaves_no_hint() {
    let lock = Lock::new();
    assert!(lock.try_upgradable().is_some());
    let soon = || Deadline::after::<Native>(5_000_000);
    assert!(lock.write_until(soon()).is_none());
    assert_eq!((lock.word.load(Relaxed), lock.readers.load(Relaxed)), (FREE, UPGRADABLE));
    assert!(lock.upgradable_within(Timeout::At(soon()), &|| ()).is_none());
    assert_eq!((lock.word.load(Relaxed), lock.readers.load(Relaxed)), (FREE, UPGRADABLE));
    let lock = Lock::new();
    lock.write();
    assert!(lock.write_until(soon()).is_none());
    assert_eq!((lock.word.load(Relaxed), lock.readers.load(Relaxed)), (WRITER, 0));
}

/// A reader that was the head takes its claim back when it enters: newcomers need not queue any more.
#[test]
fn a_reader_that_enters_takes_its_claim_back() {
    let lock = Lock::new();
    lock.write();
    thread::scope(|scope| {
        scope.spawn(|| lock.read());
        let claims = in_a_minute(|| lock.state().has(CLAIMED));
        // SAFETY: acquired above.
        unsafe { lock.unlock_write(()) };
        assert!(claims, "the head has not claimed the lock");
    });
    assert_eq!((lock.word.load(Relaxed), lock.readers.load(Relaxed)), (FREE, READER));
}

/// The claim of an upgradable reader at the head keeps no plain reader out.
#[test]
fn readers_pass_the_claim_of_an_upgradable_reader() {
    let lock = Lock::new();
    assert!(lock.try_upgradable().is_some());
    thread::scope(|scope| {
        scope.spawn(|| lock.upgradable_within(Timeout::Never, &|| ()));
        let claims = in_a_minute(|| lock.state().has(CLAIMED));
        let passes = lock.try_read().is_some();
        // SAFETY: acquired above.
        unsafe { lock.unlock_upgradable(()) };
        assert!(claims && passes);
    });
}

/// A turn that lasts for long: the head claims the lock while it is awake only.
struct LongTurn;

impl Policy for LongTurn {
    const SPIN: u32 = 1_000_000;
    const TURN: u32 = 300_000;

    fn key<M: Machine>() -> u32 {
        0
    }
    fn rank<M: Machine>(_: u32, _: u32) -> usize {
        0
    }
}

/// A writer at the head that waits for readers takes its claim back before it sleeps: otherwise no reader could enter until the last
/// reader leaves, which may be preempted.
#[test]
fn a_writer_that_sleeps_behind_readers_lets_others_in() {
    let lock = RawShflRw::<Native, LongTurn>::new_in();
    lock.read();
    thread::scope(|scope| {
        scope.spawn(|| lock.write());
        let lets_in = in_a_minute(|| lock.inside().has(PARKED) && !lock.state().has(CLAIMED));
        // SAFETY: acquired above.
        unsafe { lock.unlock_read(()) };
        assert!(lets_in);
    });
}

/// The head does not take back what a fair release has left to it while it spun: the next release would not be its.
#[test]
fn a_head_keeps_what_was_left_to_it() {
    let lock = RawShflRw::<Native, SpinsLong>::new_in();
    lock.read();
    lock.read();
    thread::scope(|scope| {
        scope.spawn(|| lock.write());
        let claims = in_a_minute(|| lock.state().has(CLAIMED));
        // SAFETY: acquired above.
        unsafe { lock.unlock_read_fair(()) };
        let sleeps = in_a_minute(|| lock.inside().has(PARKED));
        let keeps = lock.state().has(CLAIMED);
        // SAFETY: acquired above.
        unsafe { lock.unlock_read(()) };
        assert!(claims && sleeps && keeps);
    });
}

/// A fair release leaves the lock to the head, unless that is suspended.
#[test]
fn a_fair_release_leaves_the_lock_to_a_head_that_runs() {
    for (before, after) in [(FREE, CLAIMED | LEFT), (LAPSED, LAPSED)] {
        let beside = Beside::a_head(before, READER);
        // SAFETY: the lock is held for reading, by no other thread.
        unsafe { beside.lock.unlock_read_fair(()) };
        assert_eq!((beside.word(), beside.readers()), (after, 0));
    }
}

/// An upgrade ends an offer of the free lock, as it is not free any more. Otherwise the first thread that comes after the writer would
/// take the head for suspended.
#[test]
fn an_upgrade_ends_an_offer() {
    let beside = Beside::a_head(CLAIMED | OFFERED | SHARED, UPGRADABLE);
    // SAFETY: the lock is held by an upgradable reader, which is no other thread's.
    assert!(unsafe { beside.lock.upgrade_within((), Timeout::Immediate) }.is_ok());
    assert_eq!((beside.word(), beside.readers()), (CLAIMED | SHARED | WRITER, 0));
}

/// A release unparks every thread that sleeps at the word: a requeue may have moved the head of another lock there.
#[test]
fn a_release_leaves_no_sleeper() {
    for _ in 0..20 {
        let beside = Beside::a_head(WRITER | PARKED, 0);
        let (lock, until) = (&beside.lock, Some(Deadline::after::<Native>(10_000_000_000)));
        let sleeps = || {
            while lock.is_write_locked() {
                Native::wait(&lock.word, WRITER | PARKED, until);
            }
        };
        thread::scope(|scope| {
            scope.spawn(sleeps);
            scope.spawn(sleeps);
            thread::sleep(std::time::Duration::from_millis(2));
            // SAFETY: the lock is held, by no other thread.
            unsafe { lock.unlock_write(()) };
            assert_eq!(Native::wake(&lock.word, u32::MAX), 0, "a thread slept on after the release");
            assert_eq!(beside.word(), FREE);
        });
    }
}

/// A hint about a head that has left keeps no attempt out: a fair release may have come after that head gave up.
#[test]
fn a_claim_does_not_outlive_the_queue() {
    let lock = Lock::new();
    lock.word.store(CLAIMED | LEFT, Relaxed);
    assert!(lock.try_write().is_some());
    assert_eq!(lock.word.load(Relaxed), WRITER);
    let lock = Lock::new();
    lock.word.store(CLAIMED | LEFT, Relaxed);
    assert!(lock.try_read().is_some());
    assert_eq!(lock.word.load(Relaxed), FREE);
}

/// Each waiter watches when its sleep ends by itself: the head, one behind it, one beside a queue whose head is suspended, and a reader
/// that reads again. It may be the only one that can end the hold of a suspended writer (BRAVO).
#[test]
fn every_waiter_watches() {
    let watches = |lock: &Lock, recursive| {
        let (watched, done) = (AtomicBool::new(false), Deadline::after::<Native>(60_000_000_000));
        let watch = || {
            watched.store(true, Relaxed);
            lock.word.store(FREE, Relaxed);
        };
        if recursive {
            lock.read_recursive_within(Timeout::At(done), &watch);
        } else {
            lock.read_watching(Some(done), &watch);
        }
        watched.load(Relaxed)
    };
    let lock = Lock::new();
    lock.write();
    assert!(watches(&lock, false), "the head");
    for word in [WRITER, WRITER | LAPSED] {
        let beside = Beside::a_head(word, 0);
        assert!(watches(&beside.lock, false), "beside a head, the word was {word:#b}");
    }
    let lock = Lock::new();
    lock.word.store(WRITER, Relaxed);
    lock.readers.store(READER, Relaxed);
    assert!(watches(&lock, true), "a reader that reads again");
}

/// The waiters behind a head that does not run pass it, although it has claimed the lock, and no newcomer comes.
#[test]
fn a_waiter_passes_a_suspended_head_that_has_claimed() {
    let beside = Beside::a_head(CLAIMED, READER);
    thread::scope(|scope| {
        let reader = scope.spawn(|| beside.lock.read());
        beside.await_a_parked_waiter();
        // SAFETY: the lock is held for reading, by no other thread.
        unsafe { beside.lock.unlock_read(()) };
        let passes = in_a_minute(|| reader.is_finished());
        beside.lock.word.store(LAPSED, Relaxed); // a reader that still waits enters
        assert!(passes);
    });
}

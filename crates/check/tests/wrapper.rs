//! The wrapper tells what is wrong, for mutexes and reader-writer locks, and nothing that is right.
//!
//! One test, because problems are counted for the whole process.

use latchwork::locks::mutex::mcs::RawMcs;
use latchwork::locks::mutex::{RawMutex, Token};
use latchwork::machine::Native;
use latchwork_check::{Checked, CheckedMutex, CheckedRwLock, problems};
use std::thread;
use std::time::Duration;

/// What `act` adds to the number of problems.
fn found(act: impl FnOnce()) -> u64 {
    let before = problems();
    act();
    problems() - before
}

#[test]
fn every_kind_of_problem() {
    let (a, b) = (CheckedMutex::<u32>::new(0), CheckedMutex::<u32, RawMcs<Native>>::new(0));
    let r = CheckedRwLock::<u32>::new(0);

    let right = || {
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let (_a, _b) = (a.lock(), b.lock());
                        assert!(a.try_lock().is_none());
                        drop(r.read());
                        *r.write() += 1;
                    }
                });
            }
        });
        let _b = b.lock();
        assert!(a.try_lock().is_some(), "an attempt may be against the order");
    };
    assert_eq!(found(right), 0);

    let inverted = || {
        let (_b, _a) = (b.lock(), a.lock());
    };
    assert_eq!(found(inverted), 1);
    assert_eq!(found(inverted), 0, "once is enough");

    let through_another = || {
        let (_r, _a) = (r.read(), a.lock()); // a, then r above
    };
    assert_eq!(found(through_another), 1);

    let again = || {
        let _a = a.lock();
        assert!(a.try_lock_for(Duration::from_millis(1)).is_none());
    };
    assert_eq!(found(again), 1);

    let raw = Checked::<RawMcs<Native>>::new_in();
    let stranger = || {
        let token = thread::scope(|scope| scope.spawn(|| raw.lock().into_word()).join().expect("no panic"));
        // SAFETY: the token of the acquisition that this ends.
        unsafe { raw.unlock(Token::from_word(token)) };
    };
    assert_eq!(found(stranger), 1);

    let destroyed = || {
        let lock = CheckedMutex::<u32>::new(0);
        std::mem::forget(lock.lock());
    };
    assert_eq!(found(destroyed), 1);
}

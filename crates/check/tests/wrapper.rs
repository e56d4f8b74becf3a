//! The wrapper tells what is wrong, for mutexes and reader-writer locks, and nothing that is right.
//!
//! One test, because problems are counted for the whole process.

use latchwork::ReadRecursive;
use latchwork::lock_api::{MutexGuard, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};
use latchwork::locks::mutex::mcs::RawMcs;
use latchwork::locks::mutex::{RawMutex, Token};
use latchwork::machine::Native;
use latchwork_check::{Checked, CheckedCondvar, CheckedMutex, CheckedRwLock, problems};
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

    // What lock_api's guards can do beside: each acquisition and release is seen, and no more.
    let converted = || {
        let condvar = CheckedCondvar::new();
        let mut guard = a.lock();
        assert!(condvar.wait_for(&mut guard, Duration::from_millis(1)).timed_out());
        MutexGuard::bump(&mut guard);
        MutexGuard::unlock_fair(guard);
        let mut upgradable = r.upgradable_read();
        upgradable.with_upgraded(|value| *value += 1);
        let mut write = RwLockUpgradableReadGuard::upgrade(upgradable);
        RwLockWriteGuard::bump(&mut write);
        let read = RwLockWriteGuard::downgrade(write);
        let again = (r.read_recursive(), r.try_read_recursive(), r.read());
        drop((read, again));
        let write = RwLockUpgradableReadGuard::try_upgrade(r.try_upgradable_read().expect("free"));
        let upgradable = RwLockWriteGuard::downgrade_to_upgradable(write.expect("no reader"));
        RwLockReadGuard::unlock_fair(RwLockUpgradableReadGuard::downgrade(upgradable));
        RwLockUpgradableReadGuard::unlock_fair(r.upgradable_read());
        RwLockWriteGuard::unlock_fair(r.write());
    };
    assert_eq!(found(converted), 0);
    assert!(!latchwork_check::holds_any());

    let inverted = || {
        let (_b, _a) = (b.lock(), a.lock());
    };
    assert_eq!(found(inverted), 1);
    assert_eq!(found(inverted), 0, "once is enough");

    let through_another = || {
        let (_r, _a) = (r.read(), a.lock()); // a, then r above
    };
    assert_eq!(found(through_another), 1);

    let upgradable_twice = || {
        let lock = CheckedRwLock::<u32>::new(0);
        let _upgradable = lock.upgradable_read();
        assert!(lock.try_upgradable_read_for(Duration::from_millis(1)).is_none());
    };
    assert_eq!(found(upgradable_twice), 1);

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

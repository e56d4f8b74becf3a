//! Locks that are broken on purpose, each in a way that a real one could be. The harness has to
//! notice all of them.

use crate::harness::{Bounds, Failure, torture};
use crate::mutex::Counter;
use crate::rwlock::Pair;
use latchwork::machine::{Machine, Native};
use latchwork::mutex::ticket::RawTicket;
use latchwork::mutex::{Info, RawMutex};
use latchwork::rwlock::RawRwLock;
use std::sync::atomic::{AtomicU32, Ordering::*};

const INFO: Info = Info {
    name: "broken",
    summary: "broken on purpose",
    atomics: 0,
    waiter_bytes: 0,
    holder_bytes: 0,
    fairness: "none",
    blocking: false,
    source: "none",
};

/// Sees that the lock is free, and takes it a moment later.
struct CheckThenAct(AtomicU32);

// SAFETY: none, it is broken on purpose; the harness accesses what it protects volatilely.
unsafe impl RawMutex for CheckThenAct {
    type Machine = Native;
    type Token = ();
    const INFO: Info = INFO;

    fn new_in() -> Self {
        CheckThenAct(AtomicU32::new(0))
    }
    fn lock(&self) {
        while self.try_lock().is_none() {
            Native::yield_now();
        }
    }
    fn try_lock(&self) -> Option<()> {
        if self.0.load(Acquire) != 0 {
            return None;
        }
        Native::yield_now();
        self.0.store(1, Relaxed);
        Some(())
    }
    unsafe fn unlock(&self, (): ()) {
        self.0.store(0, Release);
    }
    fn is_locked(&self) -> bool {
        true
    }
}

/// Hands the lock on before the section is over.
struct UnlocksEarly(RawTicket<Native>);

// SAFETY: as above.
unsafe impl RawMutex for UnlocksEarly {
    type Machine = Native;
    type Token = ();
    const INFO: Info = INFO;

    fn new_in() -> Self {
        UnlocksEarly(RawTicket::new())
    }
    fn lock(&self) {
        self.0.lock();
        // SAFETY: acquired just now.
        unsafe { self.0.unlock(()) };
    }
    fn try_lock(&self) -> Option<()> {
        self.0.try_lock()?;
        // SAFETY: acquired just now.
        unsafe { self.0.unlock(()) };
        Some(())
    }
    unsafe fn unlock(&self, (): ()) {}
    fn is_locked(&self) -> bool {
        true
    }
}

/// Waiters sleep, and nobody wakes them.
struct ForgetsToWake(AtomicU32);

// SAFETY: exclusion holds; it is progress that is broken.
unsafe impl RawMutex for ForgetsToWake {
    type Machine = Native;
    type Token = ();
    const INFO: Info = INFO;

    fn new_in() -> Self {
        ForgetsToWake(AtomicU32::new(0))
    }
    fn lock(&self) {
        while self.0.swap(1, Acquire) != 0 {
            Native::wait(&self.0, 1, None);
        }
    }
    fn try_lock(&self) -> Option<()> {
        (self.0.swap(1, Acquire) == 0).then_some(())
    }
    unsafe fn unlock(&self, (): ()) {
        self.0.store(0, Release);
    }
    fn is_locked(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
}

/// Readers publish themselves, as in BRAVO, but the writer does not look whether anybody did.
struct RevokesBlindly {
    readers: AtomicU32,
    writer: RawTicket<Native>,
}

// SAFETY: as above.
unsafe impl RawRwLock for RevokesBlindly {
    type Machine = Native;
    type Read = ();
    type Write = ();
    const INFO: Info = INFO;

    fn new_in() -> Self {
        RevokesBlindly { readers: AtomicU32::new(0), writer: RawTicket::new() }
    }
    fn read(&self) {
        while self.try_read().is_none() {
            Native::yield_now();
        }
    }
    fn try_read(&self) -> Option<()> {
        self.readers.fetch_add(1, SeqCst);
        if self.writer.is_locked() {
            self.readers.fetch_sub(1, SeqCst);
            return None;
        }
        Some(())
    }
    unsafe fn unlock_read(&self, (): ()) {
        self.readers.fetch_sub(1, SeqCst);
    }
    fn write(&self) {
        self.writer.lock();
    }
    fn try_write(&self) -> Option<()> {
        self.writer.try_lock()
    }
    unsafe fn unlock_write(&self, (): ()) {
        // SAFETY: forwarded from the caller.
        unsafe { self.writer.unlock(()) };
    }
    fn is_locked(&self) -> bool {
        self.is_write_locked() || self.readers.load(Relaxed) != 0
    }
    fn is_write_locked(&self) -> bool {
        self.writer.is_locked()
    }
}

/// That the harness noticed, in these words.
fn assert_broken(result: Result<u64, Failure>, words: &str) {
    match result {
        Err(Failure::Broken(what)) => assert!(what.contains(words), "{what}"),
        other => panic!("the harness did not notice: {other:?}"),
    }
}

#[test]
fn notices_check_then_act() {
    assert_broken(torture(Counter::<CheckThenAct>::new(), Bounds::for_broken()), "two threads were inside");
}

#[test]
fn notices_an_early_unlock() {
    assert_broken(torture(Counter::<UnlocksEarly>::new(), Bounds::for_broken()), "two threads were inside");
}

#[test]
fn notices_a_forgotten_wake() {
    let bounds = Bounds::for_broken();
    assert_eq!(torture(Counter::<ForgetsToWake>::new(), bounds), Err(Failure::Stuck(bounds.patience)));
}

#[test]
fn notices_a_blind_revocation() {
    assert_broken(torture(Pair::<RevokesBlindly>::new(), Bounds::for_broken()), "was inside");
}

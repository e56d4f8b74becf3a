//! Locks that are broken on purpose.

mod announces;
mod modes;
mod strategies;
pub use announces::*;
pub use modes::*;
pub use strategies::*;

use latchwork::locks::mutex::{Info, RawMutex, Suspension};
use latchwork::locks::rwlock::RawRwLock;
use latchwork::machine::{Arith, Deadline, Machine, Word};
use latchwork_sim::{Sim, U32};
use std::sync::atomic::Ordering::*;

const INFO: Info = Info {
    name: "broken",
    summary: "broken on purpose",
    atomics: 1,
    waiter_bytes: 0,
    holder_bytes: 0,
    fairness: "none",
    blocking: false,
    suspension: Suspension::Blocks,
    source: "none",
};

/// What locks of one word share that is 0 when the lock is free, and 1 otherwise: all but how they wait.
macro_rules! test_and_set {
    () => {
        type Token = ();
        const INFO: Info = INFO;
        fn new_in() -> Self {
            Self(Word::new(0))
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
    };
}

/// Looks, and then takes, in two steps.
pub struct TestThenSet<M: Machine = Sim>(M::U32);

// SAFETY: not safe at all; that is what the test is about. Nothing but plain counters relies on it.
unsafe impl<M: Machine> RawMutex for TestThenSet<M> {
    type Machine = M;
    test_and_set!();
    fn lock(&self) {
        M::spin_until(&self.0, Acquire, |word| word == 0);
        self.0.store(1, Relaxed);
    }
}

/// A futex mutex that wakes nobody.
pub struct DropsWakes<M: Machine = Sim>(M::U32);

// SAFETY: excludes; but waiters sleep for ever.
unsafe impl<M: Machine> RawMutex for DropsWakes<M> {
    type Machine = M;
    test_and_set!();
    fn lock(&self) {
        while self.0.swap(1, Acquire) != 0 {
            M::wait(&self.0, 1, None);
        }
    }
}

/// Waits twice as long after each failed attempt, without bound.
pub struct Despairs(U32);

// SAFETY: excludes; but a thread that has lost often enough never tries again.
unsafe impl RawMutex for Despairs {
    type Machine = Sim;
    test_and_set!();
    fn lock(&self) {
        let mut pause = 100;
        while self.try_lock().is_none() {
            latchwork_sim::work(pause);
            pause *= 2;
        }
    }
}

/// A ticket lock: every tenth unlock does not serve the next waiter.
pub struct ForgetsToGrant<M: Machine = Sim> {
    next: M::U32,
    serving: M::U32,
}

// SAFETY: excludes; but waiters spin for ever.
unsafe impl<M: Machine> RawMutex for ForgetsToGrant<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = INFO;
    fn new_in() -> Self {
        ForgetsToGrant { next: M::U32::new(0), serving: M::U32::new(0) }
    }
    fn lock(&self) {
        let ticket = self.next.fetch_add(1, Relaxed);
        M::spin_until(&self.serving, Acquire, |serving| serving == ticket);
    }
    fn try_lock(&self) -> Option<()> {
        None
    }
    unsafe fn unlock(&self, (): ()) {
        let serving = self.serving.load(Relaxed);
        if serving % 10 != 9 {
            self.serving.store(serving + 1, Release);
        }
    }
    fn is_locked(&self) -> bool {
        self.serving.load(Relaxed) != self.next.load(Relaxed)
    }
}

/// A test-and-set lock that stays locked, with waiters that try, pause and never look at a clock.
pub struct ForgetsToClear<M: Machine = Sim>(M::U32);

// SAFETY: excludes all too well.
unsafe impl<M: Machine> RawMutex for ForgetsToClear<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = INFO;
    fn new_in() -> Self {
        ForgetsToClear(M::U32::new(0))
    }
    fn lock(&self) {
        while self.0.swap(1, Acquire) != 0 {
            M::pause(8);
            M::yield_now();
        }
    }
    fn try_lock(&self) -> Option<()> {
        None
    }
    fn lock_until(&self, _: Deadline) -> Option<()> {
        None
    }
    unsafe fn unlock(&self, (): ()) {}
    fn is_locked(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
}

/// A ticket lock: timed waiters leave, and do not pass their turn on.
pub struct LeavesItsTicket<M: Machine = Sim>(ForgetsToGrant<M>);

// SAFETY: excludes; but a waiter that gave up is served for ever.
unsafe impl<M: Machine> RawMutex for LeavesItsTicket<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = INFO;
    fn new_in() -> Self {
        LeavesItsTicket(ForgetsToGrant::new_in())
    }
    fn lock(&self) {
        self.0.lock();
    }
    fn try_lock(&self) -> Option<()> {
        None
    }
    fn lock_until(&self, _: Deadline) -> Option<()> {
        let ticket = self.0.next.fetch_add(1, Relaxed);
        M::spin_for(&self.0.serving, Acquire, 20, |serving| serving == ticket).map(drop)
    }
    unsafe fn unlock(&self, (): ()) {
        let serving = self.0.serving.load(Relaxed);
        self.0.serving.store(serving + 1, Release);
    }
    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

/// Writers wait for the readers that they see, and then for no more.
pub struct OverlooksReaders<M: Machine = Sim> {
    readers: M::U32,
    writer: M::U32,
}

// SAFETY: not safe at all; nothing but plain counters relies on it.
unsafe impl<M: Machine> RawRwLock for OverlooksReaders<M> {
    type Machine = M;
    type Read = ();
    type Write = ();
    type Counted = Self;
    const INFO: Info = INFO;
    fn new_in() -> Self {
        OverlooksReaders { readers: M::U32::new(0), writer: M::U32::new(0) }
    }
    fn read(&self) {
        // It should announce itself first, and look then.
        M::spin_until(&self.writer, Acquire, |writer| writer == 0);
        self.readers.fetch_add(1, Acquire);
    }
    fn try_read(&self) -> Option<()> {
        None
    }
    unsafe fn unlock_read(&self, (): ()) {
        self.readers.fetch_sub(1, Release);
    }
    fn write(&self) {
        while self.writer.swap(1, Acquire) != 0 {
            M::pause(4);
        }
        M::spin_until(&self.readers, Acquire, |readers| readers == 0);
    }
    fn try_write(&self) -> Option<()> {
        None
    }
    unsafe fn unlock_write(&self, (): ()) {
        self.writer.store(0, Release);
    }
    fn is_locked(&self) -> bool {
        self.readers.load(Relaxed) != 0
    }
    fn is_write_locked(&self) -> bool {
        self.writer.load(Relaxed) != 0
    }
}

/// Lets one side pass the other for ever.
pub struct Prefers<const WRITERS: bool, M: Machine = Sim> {
    /// Readers inside, or a writer.
    word: M::U32,
    /// Writers inside or waiting.
    writers: M::U32,
}

const WRITING: u32 = 1 << 31;

// SAFETY: excludes; but one side may wait for ever.
unsafe impl<const WRITERS: bool, M: Machine> RawRwLock for Prefers<WRITERS, M> {
    type Machine = M;
    type Read = ();
    type Write = ();
    type Counted = Self;
    const INFO: Info = INFO;
    fn new_in() -> Self {
        Prefers { word: M::U32::new(0), writers: M::U32::new(0) }
    }
    fn read(&self) {
        while self.try_read().is_none() {
            M::pause(4);
        }
    }
    fn try_read(&self) -> Option<()> {
        if WRITERS && self.writers.load(Relaxed) != 0 {
            return None;
        }
        let free = self.word.fetch_add(1, Acquire) & WRITING == 0;
        if !free {
            self.word.fetch_sub(1, Relaxed);
        }
        free.then_some(())
    }
    unsafe fn unlock_read(&self, (): ()) {
        self.word.fetch_sub(1, Release);
    }
    fn write(&self) {
        self.writers.fetch_add(1, Relaxed);
        while self.word.compare_exchange(0, WRITING, Acquire, Relaxed).is_err() {
            M::pause(4);
        }
    }
    fn try_write(&self) -> Option<()> {
        None
    }
    unsafe fn unlock_write(&self, (): ()) {
        self.word.fetch_and(!WRITING, Release);
        self.writers.fetch_sub(1, Relaxed);
    }
    fn is_locked(&self) -> bool {
        self.word.load(Relaxed) != 0
    }
    fn is_write_locked(&self) -> bool {
        self.word.load(Relaxed) & WRITING != 0
    }
}

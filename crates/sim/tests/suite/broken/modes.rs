//! Locks whose downgrade, upgrade or fair unlock is broken on purpose.

use super::INFO;
use latchwork::locks::mutex::{Fair, Info, RawMutex};
use latchwork::locks::rwlock::{RawDowngrade, RawFair, RawRwLock, RawUpgrade, Timeout};
use latchwork::machine::{Arith, Machine, Word};
use std::sync::atomic::Ordering::*;

/// Nothing is broken.
pub const SOUND: u8 = 0;
/// A downgrade releases the lock and reads again.
pub const DOWNGRADES_BY_LEAVING: u8 = 1;
/// An upgrade releases the lock and writes.
pub const UPGRADES_BY_LEAVING: u8 = 2;
/// A fair unlock keeps newcomers out, and lets no waiter in.
pub const UNLOCKS_UNHEARD: u8 = 3;

/// Readers inside, and one of these.
const WRITER: u32 = 1 << 31;
const UPGRADABLE: u32 = 1 << 30;
const CLOSED: u32 = 1 << 29;

/// A reader-writer lock of one word, with one of the mistakes above.
pub struct Careless<const MISTAKE: u8, M: Machine>(M::U32);

impl<const MISTAKE: u8, M: Machine> Careless<MISTAKE, M> {
    /// Replaces the word by `next(word)` if there is a next word.
    fn update(&self, next: impl Fn(u32) -> Option<u32>) -> bool {
        let mut word = self.0.load(Relaxed);
        while let Some(new) = next(word) {
            match self.0.compare_exchange(word, new, AcqRel, Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    /// Waits until `next(word)` is a next word, and replaces the word by it.
    fn update_within(&self, timeout: Timeout, next: impl Fn(u32) -> Option<u32>) -> bool {
        while !self.update(&next) {
            match timeout {
                Timeout::Immediate => return false,
                Timeout::At(deadline) if deadline.passed::<M>() => return false,
                _ => M::pause(1),
            }
        }
        true
    }
}

fn with_reader(word: u32) -> Option<u32> {
    (word & (WRITER | CLOSED) == 0).then_some(word + 1)
}

fn with_writer(word: u32) -> Option<u32> {
    (word == 0).then_some(WRITER)
}

fn with_upgradable(word: u32) -> Option<u32> {
    (word & (WRITER | UPGRADABLE | CLOSED) == 0).then_some(word | UPGRADABLE)
}

// SAFETY: excludes; what follows does not.
unsafe impl<const MISTAKE: u8, M: Machine> RawRwLock for Careless<MISTAKE, M> {
    type Machine = M;
    type Read = ();
    type Write = ();
    type Counted = Self;
    const INFO: Info = INFO;
    fn new_in() -> Self {
        Careless(M::U32::new(0))
    }
    fn read(&self) {
        self.update_within(Timeout::Never, with_reader);
    }
    fn try_read(&self) -> Option<()> {
        self.update(with_reader).then_some(())
    }
    unsafe fn unlock_read(&self, (): ()) {
        self.0.fetch_sub(1, Release);
    }
    fn write(&self) {
        self.update_within(Timeout::Never, with_writer);
    }
    fn try_write(&self) -> Option<()> {
        self.update(with_writer).then_some(())
    }
    unsafe fn unlock_write(&self, (): ()) {
        self.0.store(0, Release);
    }
    fn is_locked(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
    fn is_write_locked(&self) -> bool {
        self.0.load(Relaxed) & WRITER != 0
    }
}

// SAFETY: broken on purpose, with the first mistake. Nothing but a shadow state relies on it.
unsafe impl<const MISTAKE: u8, M: Machine> RawDowngrade for Careless<MISTAKE, M> {
    unsafe fn downgrade(&self, (): ()) {
        if MISTAKE == DOWNGRADES_BY_LEAVING {
            self.0.store(0, Release);
            self.read();
        } else {
            self.0.store(1, Release);
        }
    }
}

// SAFETY: broken on purpose, with the second mistake. Nothing but a shadow state relies on it.
unsafe impl<const MISTAKE: u8, M: Machine> RawUpgrade for Careless<MISTAKE, M> {
    type Upgradable = ();
    fn upgradable_within(&self, timeout: Timeout, _: &dyn Fn()) -> Option<()> {
        self.update_within(timeout, with_upgradable).then_some(())
    }
    unsafe fn unlock_upgradable(&self, (): ()) {
        self.0.fetch_and(!UPGRADABLE, Release);
    }
    unsafe fn upgrade_within(&self, (): (), timeout: Timeout) -> Result<(), ()> {
        if MISTAKE == UPGRADES_BY_LEAVING && matches!(timeout, Timeout::Never) {
            self.0.fetch_and(!UPGRADABLE, Release);
            self.write();
            return Ok(());
        }
        let alone = |word| (word == UPGRADABLE).then_some(WRITER);
        if self.update_within(timeout, alone) { Ok(()) } else { Err(()) }
    }
    unsafe fn downgrade_upgradable(&self, (): ()) {
        self.update(|word| Some((word & !UPGRADABLE) + 1));
    }
    unsafe fn downgrade_to_upgradable(&self, (): ()) {
        self.0.store(UPGRADABLE, Release);
    }
}

// SAFETY: ends the acquisitions; with the third mistake it lets no thread in any more.
unsafe impl<const MISTAKE: u8, M: Machine> RawFair for Careless<MISTAKE, M> {
    unsafe fn unlock_write_fair(&self, (): ()) {
        let word = if MISTAKE == UNLOCKS_UNHEARD { CLOSED } else { 0 };
        self.0.store(word, Release);
    }
}

/// A mutex whose fair unlock wakes no waiter.
pub struct LeavesUnheard<M: Machine>(M::U32);

/// Held, and a thread may sleep.
const PARKED: u32 = 2;

// SAFETY: excludes; but a waiter may sleep for ever.
unsafe impl<M: Machine> RawMutex for LeavesUnheard<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = INFO;
    fn new_in() -> Self {
        LeavesUnheard(M::U32::new(0))
    }
    fn lock(&self) {
        // A thread that has slept takes the lock with PARKED: others may still sleep.
        let mut take = 1;
        while self.0.swap(take, Acquire) != 0 {
            if take == PARKED {
                M::wait(&self.0, PARKED, None);
            }
            take = PARKED;
        }
    }
    fn try_lock(&self) -> Option<()> {
        self.0.compare_exchange(0, 1, Acquire, Relaxed).ok().map(drop)
    }
    unsafe fn unlock(&self, (): ()) {
        let word = &raw const self.0;
        if self.0.swap(0, Release) == PARKED {
            M::wake(word, 1);
        }
    }
    fn is_locked(&self) -> bool {
        self.0.load(Relaxed) != 0
    }
}

impl<M: Machine> Fair for LeavesUnheard<M> {
    unsafe fn unlock_fair(&self, (): ()) {
        self.0.store(0, Release);
    }
}

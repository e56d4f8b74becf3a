//! Reader-writer locks with one mistake in each.

use super::INFO;
use crate::jitter::Jitter;
use crate::lock::{Access, Token, Way};
use crate::modes::{self, Modes, OfRwLock, Upgrades};
use latchwork::locks::mutex::{Info, Token as _};
use latchwork::locks::rwlock::{RawFair, RawRwLock, RawUpgrade};
use latchwork::machine::{Arith, Machine, Word};
use std::sync::atomic::Ordering::*;

type M = Jitter;
type U32 = <M as Machine>::U32;

/// A count of readers, and a writer that waits until it is zero.
struct Counted {
    readers: U32,
    writer: U32,
}

impl Counted {
    fn new() -> Self {
        Counted { readers: U32::new(0), writer: U32::new(0) }
    }

    fn enter(&self, count: impl Fn(&U32)) -> bool {
        if self.writer.load(SeqCst) != 0 {
            return false;
        }
        count(&self.readers);
        if self.writer.load(SeqCst) != 0 {
            self.readers.fetch_sub(1, SeqCst);
            return false;
        }
        true
    }

    fn write(&self) {
        while self.writer.swap(1, SeqCst) != 0 {
            M::yield_now();
        }
        M::spin_until(&self.readers, SeqCst, |readers: u32| readers == 0);
    }

    fn try_write(&self) -> bool {
        if self.readers.load(SeqCst) != 0 || self.writer.swap(1, SeqCst) != 0 {
            return false;
        }
        let alone = self.readers.load(SeqCst) == 0;
        if !alone {
            self.writer.store(0, SeqCst);
        }
        alone
    }
}

/// Counts readers with a load and a store.
pub struct MiscountsReaders(Counted);

// SAFETY: none: it is broken on purpose. What it protects is accessed volatilely.
unsafe impl RawRwLock for MiscountsReaders {
    type Machine = M;
    type Read = ();
    type Write = ();
    type Counted = Self;
    const INFO: Info = INFO;

    fn new_in() -> Self {
        MiscountsReaders(Counted::new())
    }
    fn read(&self) {
        while self.try_read().is_none() {
            M::yield_now();
        }
    }
    fn try_read(&self) -> Option<()> {
        let count = |readers: &U32| readers.store(readers.load(SeqCst).wrapping_add(1), SeqCst);
        self.0.enter(count).then_some(())
    }
    unsafe fn unlock_read(&self, (): ()) {
        self.0.readers.fetch_sub(1, SeqCst);
    }
    fn write(&self) {
        self.0.write();
    }
    fn try_write(&self) -> Option<()> {
        self.0.try_write().then_some(())
    }
    unsafe fn unlock_write(&self, (): ()) {
        self.0.writer.store(0, SeqCst);
    }
    fn is_locked(&self) -> bool {
        self.is_write_locked() || self.0.readers.load(Relaxed) != 0
    }
    fn is_write_locked(&self) -> bool {
        self.0.writer.load(Relaxed) != 0
    }
}

/// Its writer announces itself, waits for the readers, and then lets new ones in.
pub struct LetsReadersInEarly {
    counted: Counted,
    busy: U32,
}

// SAFETY: none: the lock is broken on purpose. What it protects is accessed volatilely.
unsafe impl RawRwLock for LetsReadersInEarly {
    type Machine = M;
    type Read = ();
    type Write = ();
    type Counted = Self;
    const INFO: Info = INFO;

    fn new_in() -> Self {
        LetsReadersInEarly { counted: Counted::new(), busy: U32::new(0) }
    }
    fn read(&self) {
        while self.try_read().is_none() {
            M::yield_now();
        }
    }
    fn try_read(&self) -> Option<()> {
        let count = |readers: &U32| {
            readers.fetch_add(1, SeqCst);
        };
        self.counted.enter(count).then_some(())
    }
    unsafe fn unlock_read(&self, (): ()) {
        self.counted.readers.fetch_sub(1, SeqCst);
    }
    fn write(&self) {
        while self.try_write().is_none() {
            M::yield_now();
        }
    }
    fn try_write(&self) -> Option<()> {
        if self.busy.swap(1, SeqCst) != 0 {
            return None;
        }
        if !self.counted.try_write() {
            self.busy.store(0, SeqCst);
            return None;
        }
        self.counted.writer.store(0, SeqCst);
        Some(())
    }
    unsafe fn unlock_write(&self, (): ()) {
        self.busy.store(0, SeqCst);
    }
    fn is_locked(&self) -> bool {
        self.is_write_locked() || self.counted.readers.load(Relaxed) != 0
    }
    fn is_write_locked(&self) -> bool {
        self.busy.load(Relaxed) != 0
    }
}

/// Any lock, with a downgrade that releases the lock and reads again.
pub struct LeavesToDowngrade;

impl<R: RawRwLock> OfRwLock<R> for LeavesToDowngrade {
    const MODES: Modes = Modes { downgrades: true, upgrades: false, fair: false };

    unsafe fn change(lock: &R, token: Token, to: Access, _: Way) -> Result<Token, Token> {
        // SAFETY: the token is from the caller's write acquisition.
        unsafe { modes::unlock(lock, token) };
        Ok(Token { access: to, word: lock.read().into_word() })
    }
}

/// Any lock, with an upgrade that releases the lock and writes.
pub struct LeavesToUpgrade;

impl<R: RawUpgrade + RawFair> OfRwLock<R> for LeavesToUpgrade {
    const MODES: Modes = Modes { downgrades: false, upgrades: true, fair: false };

    fn upgradable(lock: &R, way: Way) -> Option<usize> {
        Upgrades::upgradable(lock, way)
    }

    unsafe fn change(lock: &R, token: Token, to: Access, way: Way) -> Result<Token, Token> {
        if to != Access::Write || token.access != Access::Upgradable {
            // SAFETY: forwarded from the caller.
            return unsafe { Upgrades::change(lock, token, to, way) };
        }
        // SAFETY: the word is the token of the caller's upgradable acquisition.
        unsafe { <Self as OfRwLock<R>>::unlock_upgradable(lock, token.word) };
        Ok(Token { access: to, word: lock.write().into_word() })
    }

    unsafe fn unlock_upgradable(lock: &R, word: usize) {
        // SAFETY: forwarded from the caller.
        unsafe { <Upgrades as OfRwLock<R>>::unlock_upgradable(lock, word) };
    }
}

/// Any lock, with a fair unlock that leaves a reader inside.
pub struct StaysInside;

impl<R: RawRwLock> OfRwLock<R> for StaysInside {
    const MODES: Modes = Modes { downgrades: false, upgrades: false, fair: true };

    unsafe fn unlock_fair(lock: &R, token: Token) {
        if token.access == Access::Write {
            // SAFETY: the token is from the caller's write acquisition.
            unsafe { modes::unlock(lock, token) };
        }
    }
}

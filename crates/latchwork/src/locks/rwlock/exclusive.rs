//! A mutex in the place of a reader-writer lock, for BRAVO over it.
//!
//! # Source
//!
//! Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", USENIX ATC 2019, section 3: the underlying lock may be a
//! mutual-exclusion lock.
//!
//! # Idea
//!
//! Readers take the mutex as writers do. Alone that is of no use. As BRAVO's underlying lock it gives readers that share, by
//! way of the slots, for the price of a mutex. But a reader that gets no slot excludes other readers, so a program in which one
//! reader waits for another must not use it. For this reason it is not in the registry: each lock there can stand in for
//! `pthread_rwlock_t`. (The commands `latchwork-lab bench` and `simulate`, the tests of the simulator, those on real threads and
//! loom know it by the name `bravo-shfl`.)
//!
//! # Properties
//!
//! - State: the mutex, and a word that says whether its holder writes, which nothing depends on but `is_write_locked`.
//! - Size: the mutex and a word. Atomics, fairness and progress: the mutex's.
//! - Re-entry: a thread that reads again deadlocks with itself, unless it gets a slot.

use super::{Info, RawRwLock};
use crate::locks::mutex::{self, RawMutex};
use crate::machine::{Deadline, Machine, Native, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// A mutex that readers take as well. See the [module documentation](self).
#[repr(C)]
pub struct Exclusive<L: RawMutex> {
    mutex: L,
    writes: <L::Machine as Machine>::U32,
}

impl<L: mutex::ConstNew> super::ConstNew for Exclusive<L>
where
    L: RawMutex<Machine = Native>,
{
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Exclusive { mutex: L::NEW, writes: AtomicU32::new(0) };
}

impl<L: RawMutex> Exclusive<L> {
    fn writing(&self, token: L::Token) -> L::Token {
        self.writes.store(1, Relaxed);
        token
    }
}

// SAFETY: everybody holds the mutex, alone.
unsafe impl<L: RawMutex> RawRwLock for Exclusive<L> {
    type Machine = L::Machine;
    type Read = L::Token;
    type Write = L::Token;
    type Counted = Self;
    const INFO: Info = L::INFO;
    const SHARES: bool = false;

    fn new_in() -> Self {
        Exclusive { mutex: L::new_in(), writes: Word::new(0) }
    }

    #[inline]
    fn read(&self) -> L::Token {
        self.mutex.lock()
    }

    #[inline]
    fn try_read(&self) -> Option<L::Token> {
        self.mutex.try_lock()
    }

    #[inline(always)]
    fn try_read_weak(&self) -> Option<L::Token> {
        self.mutex.try_lock_weak()
    }

    fn read_until(&self, deadline: Deadline) -> Option<L::Token> {
        self.mutex.lock_until(deadline)
    }

    #[inline]
    unsafe fn unlock_read(&self, token: L::Token) {
        // SAFETY: the token is the mutex's.
        unsafe { self.mutex.unlock(token) }
    }

    #[inline]
    fn write(&self) -> L::Token {
        self.writing(self.mutex.lock())
    }

    #[inline]
    fn try_write(&self) -> Option<L::Token> {
        self.mutex.try_lock().map(|token| self.writing(token))
    }

    fn write_until(&self, deadline: Deadline) -> Option<L::Token> {
        self.mutex.lock_until(deadline).map(|token| self.writing(token))
    }

    #[inline]
    unsafe fn unlock_write(&self, token: L::Token) {
        self.writes.store(0, Relaxed);
        // SAFETY: the token is the mutex's.
        unsafe { self.mutex.unlock(token) }
    }

    fn is_locked(&self) -> bool {
        self.mutex.is_locked()
    }

    fn is_write_locked(&self) -> bool {
        self.writes.load(Relaxed) != 0
    }
}

//! A spin lock that knows its holder, for the handlers of `fork`: a signal handler that forks may have interrupted the holder.

use latchwork::machine::{Machine, Native};
use std::sync::atomic::{AtomicUsize, Ordering::*};

/// A spin lock that knows its holder, for a library that puts itself under a program.
#[derive(Debug, Default)]
pub struct OwnedLock(
    /// The thread that holds it, or 0.
    AtomicUsize,
);

impl OwnedLock {
    /// An unlocked lock.
    pub const fn new() -> Self {
        OwnedLock(AtomicUsize::new(0))
    }

    /// Waits for the lock. `false`: the calling thread holds it already, and a signal handler has interrupted it there.
    #[must_use]
    pub fn acquire(&self) -> bool {
        let me = Native::thread_id();
        loop {
            // (A) pairs with the store in `release`.
            match self.0.compare_exchange(0, me, Acquire, Relaxed) {
                Ok(_) => return true,
                Err(holder) if holder == me => return false,
                Err(_) => Native::spin_until(&self.0, Relaxed, |holder| holder == 0),
            };
        }
    }

    /// Releases the lock.
    ///
    /// # Safety
    ///
    /// The calling thread, or the one that it is a copy of, has acquired it.
    pub unsafe fn release(&self) {
        self.0.store(0, Release); // (A)
    }

    pub(crate) fn is_mine(&self) -> bool {
        self.0.load(Relaxed) == Native::thread_id()
    }

    /// In a forked child, which has only the calling thread: releases the lock if another thread held it, which leaves what it protects
    /// as it is.
    pub(crate) fn release_if_orphaned(&self) {
        if !self.is_mine() {
            self.0.store(0, Relaxed);
        }
    }
}

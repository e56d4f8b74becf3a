//! Sections that one thread at a time is in. A signal handler may interrupt a section, and use a lock or fork there.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use latchwork_check::OwnedLock;

/// The right to be in a section. A thread that forks has it, so that no child begins in the middle of another thread's section.
pub(crate) struct Alone {
    lock: OwnedLock,
    /// Forks by signal handlers that have interrupted the thread that has the lock: they have nothing to give back. Only that
    /// thread uses this.
    interrupted: AtomicU32,
}

impl Alone {
    pub(crate) const fn new() -> Self {
        Alone { lock: OwnedLock::new(), interrupted: AtomicU32::new(0) }
    }

    /// Runs `section` while no other thread is in one. It is passed whether the calling thread is in one itself, which a signal
    /// handler has interrupted.
    pub(crate) fn run<T>(&self, section: impl FnOnce(bool) -> T) -> T {
        let taken = self.lock.acquire();
        let result = section(!taken);
        if taken {
            // SAFETY: taken above.
            unsafe { self.lock.release() };
        }
        result
    }

    /// In a thread that is about to fork.
    pub(crate) fn before_fork(&self) {
        if !self.lock.acquire() {
            // The interrupted section goes on in the parent and in the child.
            self.interrupted.store(self.interrupted.load(Relaxed) + 1, Relaxed);
        }
    }

    /// In the parent and in the child.
    pub(crate) fn after_fork(&self) {
        match self.interrupted.load(Relaxed) {
            // SAFETY: this thread, or the one that it is a copy of, has taken it in `before_fork`.
            0 => unsafe { self.lock.release() },
            forks => self.interrupted.store(forks - 1, Relaxed),
        }
    }
}

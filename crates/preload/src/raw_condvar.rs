//! Stands in until `latchwork::condvar::RawCondvar` is there, with the interface that it will have.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering::*};
use latchwork::machine::{Machine, Native};

/// A sequence number that changes with every notification.
#[repr(C)]
pub(crate) struct RawCondvar<M> {
    sequence: AtomicU32,
    waiters: AtomicU32,
    machine: PhantomData<M>,
}

impl RawCondvar<Native> {
    /// Joins the waiters; called with the mutex held. The caller then releases the mutex and sleeps
    /// while [`word`](Self::word) holds the value that this returns.
    pub(crate) fn prepare(&self) -> u32 {
        self.waiters.fetch_add(1, Relaxed);
        self.sequence.load(Relaxed)
    }

    pub(crate) fn word(&self) -> &AtomicU32 {
        &self.sequence
    }

    /// Leaves the waiters.
    pub(crate) fn finish(&self, _: u32) {
        self.waiters.fetch_sub(1, Relaxed);
    }

    pub(crate) fn notify_one(&self) {
        self.notify(1);
    }

    pub(crate) fn notify_all(&self) {
        self.notify(u32::MAX);
    }

    fn notify(&self, count: u32) {
        // The mutex orders a waiter's `prepare` before the notification that is meant for it.
        if self.waiters.load(Relaxed) != 0 {
            self.sequence.fetch_add(1, Release);
            Native::wake(&self.sequence, count);
        }
    }
}

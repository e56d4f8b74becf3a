//! `Semaphore`.

use crate::locks::semaphore::{Overflow, RawSemaphore};
use crate::machine::Native;
use core::fmt;
#[cfg(feature = "std")]
use {
    crate::locks::timed,
    std::time::{Duration, Instant},
};

/// A counting semaphore.
#[derive(Default)]
#[repr(transparent)]
pub struct Semaphore(RawSemaphore<Native>);

impl Semaphore {
    /// The largest number of units: `SEM_VALUE_MAX`, 2^31 - 1.
    pub const MAX: u32 = RawSemaphore::<Native>::MAX;

    /// A semaphore with `units` units.
    ///
    /// # Panics
    ///
    /// If `units` exceeds [`MAX`](Self::MAX).
    pub const fn new(units: u32) -> Self {
        Semaphore(RawSemaphore::new(units))
    }

    /// Takes a unit, and waits as long as there is none.
    #[inline]
    pub fn acquire(&self) {
        self.0.acquire();
    }

    /// Takes a unit if there is one now. Returns whether it did.
    #[inline]
    pub fn try_acquire(&self) -> bool {
        self.0.try_acquire()
    }

    /// Takes a unit, and waits for it for at most `timeout`. Returns whether it has the unit.
    #[cfg(feature = "std")]
    pub fn try_acquire_for(&self, timeout: Duration) -> bool {
        self.0.acquire_until(timed::after(timeout))
    }

    /// Takes a unit, and waits for it until `deadline` at most. Returns whether it has the unit.
    #[cfg(feature = "std")]
    pub fn try_acquire_until(&self, deadline: Instant) -> bool {
        self.0.acquire_until(timed::at(deadline))
    }

    /// Gives one unit, and wakes a waiter if there is one.
    ///
    /// # Errors
    ///
    /// If there would be more than [`MAX`](Self::MAX) units. The semaphore is unchanged then.
    #[inline]
    pub fn release(&self) -> Result<(), Overflow> {
        self.0.release()
    }

    /// Gives `units` units, and wakes waiters if there are any.
    ///
    /// # Errors
    ///
    /// If there would be more than [`MAX`](Self::MAX) units. The semaphore is unchanged then.
    pub fn release_many(&self, units: u32) -> Result<(), Overflow> {
        self.0.release_many(units)
    }

    /// How many units there were a moment ago.
    pub fn available(&self) -> u32 {
        self.0.value()
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("available", &self.available()).finish_non_exhaustive()
    }
}

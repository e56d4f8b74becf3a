//! `Semaphore`.

use crate::locks::semaphore::{Overflow, RawSemaphore};
use crate::machine::Native;
use core::fmt;
#[cfg(feature = "std")]
use {
    crate::locks::timed,
    std::time::{Duration, Instant},
};

/// A counting semaphore: a number of units that threads take and give.
///
/// **When to take it.** To let a limited number of threads use something, or to count what one thread makes and another
/// thread uses. Any thread may give a unit, also one that took none.
///
/// ```
/// use latchwork::Semaphore;
/// use std::time::Duration;
///
/// static CONNECTIONS: Semaphore = Semaphore::new(2);
///
/// CONNECTIONS.acquire();
/// CONNECTIONS.acquire();
/// assert!(!CONNECTIONS.try_acquire());
/// assert!(!CONNECTIONS.try_acquire_for(Duration::from_millis(1)));
/// CONNECTIONS.release().unwrap();
/// assert!(CONNECTIONS.try_acquire());
/// ```
///
/// **What it costs.** One atomic read-modify-write to take a unit, and one to give it.
///
/// | `semaphore` | |
/// |---|---|
/// | bytes | 8 |
/// | bytes for each waiter | 0 |
/// | bytes for each holder | 0 |
/// | atomic read-modify-writes, uncontended | 2 |
/// | waiters | spin for microseconds, then sleep |
/// | fairness | none |
///
/// **Panics.** [`new`](Self::new) panics if there are too many units. No other method does.
///
/// **Poisoning.** There is none. A thread that panics gives back no unit by itself.
///
/// **Between processes.** It is for the threads of one process: do not use it in memory that processes share.
///
/// **On fork.** The child has a copy. Units that other threads hold in the parent are missing in the child.
///
/// **In a signal handler.** [`release`](Self::release), [`release_many`](Self::release_many),
/// [`try_acquire`](Self::try_acquire) and [`available`](Self::available) may be called. The others may wait for the
/// interrupted thread.
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

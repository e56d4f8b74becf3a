//! Clocks and points in time: [`Clock`], [`Deadline`].

use super::Machine;

/// The clock that a [`Deadline`] is read on.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Never jumps (`CLOCK_MONOTONIC`).
    Monotonic,
    /// Wall time (`CLOCK_REALTIME`); a deadline on it moves when the clock is set.
    Realtime,
}

/// A point in time after which a waiter gives up.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// The clock that `nanos` is read on.
    pub clock: Clock,
    /// Nanoseconds since that clock's epoch.
    pub nanos: u64,
}

impl Deadline {
    /// `nanos` nanoseconds from now on `M`'s monotonic clock.
    pub fn after<M: Machine>(nanos: u64) -> Self {
        Deadline { clock: Clock::Monotonic, nanos: M::now(Clock::Monotonic).saturating_add(nanos) }
    }

    /// Whether the deadline has passed on machine `M`.
    pub fn passed<M: Machine>(&self) -> bool {
        self.left::<M>() == 0
    }

    /// Nanoseconds until the deadline on machine `M`; 0 once it has passed.
    pub fn left<M: Machine>(&self) -> u64 {
        self.nanos.saturating_sub(M::now(self.clock))
    }
}

/// Binary logarithm of the nanoseconds in one unit of [`micros`]: 1024 ns, nearly a microsecond.
pub(crate) const MICRO: u32 = 10;

/// The monotonic clock in units of 1024 ns. The number wraps around after 73 minutes: compare two of them by their
/// wrapping difference.
pub(crate) fn micros<M: Machine>() -> u32 {
    (M::now(Clock::Monotonic) >> MICRO) as u32
}

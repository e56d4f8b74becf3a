//! For how long something has been held up, and when that is to be reported.

use crate::machine::{Clock, Machine, Word};
use core::sync::atomic::Ordering::Relaxed;

/// After how long a grace period is reported that does not end.
const PATIENCE: u64 = 10_000_000_000;

pub(super) struct Watch<M: Machine> {
    /// Since when; 0: nothing is.
    since: M::U64,
    report_at: M::U64,
    /// How long it may take until it is reported.
    patience: M::U64,
}

impl<M: Machine> Watch<M> {
    pub(super) fn new() -> Self {
        Watch { since: M::U64::new(0), report_at: M::U64::new(0), patience: M::U64::new(PATIENCE) }
    }

    pub(super) fn set_patience(&self, nanos: u64) {
        self.patience.store(nanos, Relaxed);
    }

    /// From now on.
    pub(super) fn begin(&self) {
        let now = M::now(Clock::Monotonic);
        self.since.store(now, Relaxed);
        self.report_at.store(now.saturating_add(self.patience.load(Relaxed)), Relaxed);
    }

    pub(super) fn is_running(&self) -> bool {
        self.since.load(Relaxed) != 0
    }

    pub(super) fn end(&self) {
        self.since.store(0, Relaxed);
    }

    /// For how many nanoseconds.
    pub(super) fn nanos(&self) -> u64 {
        match self.since.load(Relaxed) {
            0 => 0,
            since => M::now(Clock::Monotonic).saturating_sub(since),
        }
    }

    /// Whether it is to be reported now: when it has taken too long, and again each time after that time.
    pub(super) fn is_due(&self) -> bool {
        let now = M::now(Clock::Monotonic);
        let due = now >= self.report_at.load(Relaxed);
        if due {
            self.report_at.store(now.saturating_add(self.patience.load(Relaxed)), Relaxed);
        }
        due
    }
}

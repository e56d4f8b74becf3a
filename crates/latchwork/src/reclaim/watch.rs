//! For how long a grace period has been held up, and when to report that.

use crate::machine::{Clock, Machine, Native, Word};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Nanoseconds after which a grace period that does not end is reported.
const PATIENCE: u64 = 10_000_000_000;

/// A stop watch that says when a report is due.
pub(super) struct Watch<M: Machine> {
    /// When the grace period was opened; 0: the watch does not run.
    since: M::U64,
    /// When the next report is due.
    report_at: M::U64,
    /// Nanoseconds until the first report, and between two reports.
    patience: M::U64,
}

impl Watch<Native> {
    pub(super) const fn native() -> Self {
        Watch { since: AtomicU64::new(0), report_at: AtomicU64::new(0), patience: AtomicU64::new(PATIENCE) }
    }
}

impl<M: Machine> Watch<M> {
    pub(super) fn new() -> Self {
        Watch { since: M::U64::new(0), report_at: M::U64::new(0), patience: M::U64::new(PATIENCE) }
    }

    pub(super) fn set_patience(&self, nanos: u64) {
        self.patience.store(nanos, Relaxed);
    }

    /// Starts the watch.
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

    /// For how many nanoseconds the watch has run.
    pub(super) fn nanos(&self) -> u64 {
        match self.since.load(Relaxed) {
            0 => 0,
            since => M::now(Clock::Monotonic).saturating_sub(since),
        }
    }

    /// Whether a report is due now. If so, the next one is due after the same time again.
    pub(super) fn is_due(&self) -> bool {
        let now = M::now(Clock::Monotonic);
        let due = now >= self.report_at.load(Relaxed);
        if due {
            self.report_at.store(now.saturating_add(self.patience.load(Relaxed)), Relaxed);
        }
        due
    }
}

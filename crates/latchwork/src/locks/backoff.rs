//! Waiting at growing intervals between two attempts at a lock.
//!
//! Source of the backoff: Anderson, "The performance of spin lock alternatives for shared-memory multiprocessors", 1990.

use crate::machine::{Deadline, Machine, Offers};

/// Spin hints after the first failure.
const FIRST: u32 = 4;
/// Spin hints at most between two attempts: 5 to 20 microseconds, depending on the processor.
const LAST: u32 = 512;
/// Failures at the longest pause before the processor is offered to other threads.
const PATIENCE: u32 = 4;

/// Bounded exponential backoff.
#[derive(Default)]
pub(crate) struct Backoff {
    step: u32,
    offers: Offers,
}

impl Backoff {
    /// Pauses, for twice as long the next time, up to [`LAST`]. After several pauses of that length it also offers the
    /// processor to other threads, and after many offers it sleeps for a bounded time.
    pub(crate) fn wait<M: Machine>(&mut self) {
        self.wait_until_late::<M>(u64::MAX);
    }

    /// The same for a waiter whose deadline is `left` nanoseconds ahead: no sleep is longer.
    fn wait_until_late<M: Machine>(&mut self, left: u64) {
        let spins = FIRST << self.step.min(LAST.ilog2() - FIRST.ilog2());
        M::pause(spins);
        self.step = self.step.saturating_add(1);
        if self.step > LAST.ilog2() - FIRST.ilog2() + PATIENCE {
            self.offers.take::<M>(left);
        }
    }
}

/// Calls `attempt` until it succeeds or the deadline has passed, for locks whose queue cannot be left.
///
/// The last attempt comes after the deadline was seen to pass, so a lock that an attempt could take is never reported as a timeout. (An
/// attempt leaves a free lock to a waiter that has been promised it, though that waiter may nap or be preempted: `fissile`,
/// `shfl-spin`, locks of several levels.)
pub(crate) fn poll<M: Machine, T>(deadline: Deadline, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let mut backoff = Backoff::default();
    loop {
        let left = deadline.left::<M>();
        if let Some(token) = attempt() {
            return Some(token);
        }
        if left == 0 {
            return None;
        }
        backoff.wait_until_late::<M>(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Native;

    /// With a nap of a millisecond each time, a waiter has waited so often after some weeks.
    #[test]
    fn a_wait_may_last_for_months() {
        Backoff { step: u32::MAX, ..Backoff::default() }.wait::<Native>();
    }
}

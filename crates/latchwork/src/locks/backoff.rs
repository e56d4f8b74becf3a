//! Bounded exponential backoff, and polling for locks whose queue cannot be left.

use crate::machine::{Deadline, Machine, Offers};

/// Spin hints after the first failure.
const FIRST: u32 = 4;
/// Spin hints at most between two attempts (about 5 to 20 microseconds).
const LAST: u32 = 512;
/// Failures at the longest pause before the processor is offered to other threads.
const PATIENCE: u32 = 4;

/// Bounded exponential backoff (Anderson, "The performance of spin lock alternatives", 1990).
#[derive(Default)]
pub(crate) struct Backoff {
    step: u32,
    offers: Offers,
}

impl Backoff {
    /// Waits a little, and twice as long the next time, up to a bound; then also yields, and after many yields
    /// naps.
    pub(crate) fn wait<M: Machine>(&mut self) {
        self.wait_until_late::<M>(u64::MAX);
    }

    /// The same for a waiter whose deadline is `left` nanoseconds ahead: no nap is longer.
    fn wait_until_late<M: Machine>(&mut self, left: u64) {
        let spins = FIRST << self.step.min(LAST.ilog2() - FIRST.ilog2());
        M::pause(spins);
        self.step += 1;
        if self.step > LAST.ilog2() - FIRST.ilog2() + PATIENCE {
            self.offers.take::<M>(left);
        }
    }
}

/// Tries until it works or the deadline has passed. The last attempt comes after the deadline was
/// seen to pass, so a free lock is never reported as a timeout.
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

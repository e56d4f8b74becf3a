//! How a waiter waits for long when nobody wakes it: [`Offers`].
//!
//! The waiter first offers its processor to other threads. `sched_yield` gives the processor only to threads of
//! the same or a higher priority: a waiter under `SCHED_FIFO` that only yields keeps the preempted thread that it
//! waits for, of a lower priority, from running. So after some offers the waiter sleeps, for a bounded time,
//! between two looks.

use super::Machine;

/// Offers of the processor before the first nap. An offer costs about a microsecond if no other thread can run, so all
/// of them take 10 ms. A queue whose waiters nap hands over slowly; a long queue alone must not make its waiters nap.
const OFFERS: u32 = 10_000;
/// The shortest and the longest nap in nanoseconds.
const NAPS: (u64, u64) = (50_000, 1_000_000);
/// Short pauses before an offer.
const PAUSES: u32 = 64;

/// What a waiter does between two looks.
pub(crate) struct Offers {
    pauses: u32,
    offers: u32,
    nap: u64,
}

impl Offers {
    pub(crate) const fn new() -> Self {
        Offers { pauses: 0, offers: 0, nap: NAPS.0 }
    }

    /// Offers the processor. The waiter that has done so for long naps instead, for at most `left` nanoseconds;
    /// each nap is a quarter longer than the one before.
    #[cold]
    pub(crate) fn take<M: Machine>(&mut self, left: u64) {
        if self.offers < M::patience(OFFERS) {
            self.offers += 1;
            M::yield_now();
        } else {
            M::doze(self.nap.min(left));
            self.nap = (self.nap + self.nap / 4).min(NAPS.1);
        }
    }

    /// Pauses for a spin hint; one in so many pauses is also an offer.
    pub(crate) fn pause<M: Machine>(&mut self) {
        M::pause(1);
        self.pauses += 1;
        if self.pauses.is_multiple_of(PAUSES) {
            self.take::<M>(u64::MAX);
        }
    }
}

impl Default for Offers {
    fn default() -> Self {
        Self::new()
    }
}

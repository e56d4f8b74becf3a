//! How a waiter that no other thread wakes waits for long: [`Offers`].
//!
//! The waiter first offers its processor to other threads. `sched_yield` gives the processor only to threads of
//! the same or a higher priority: a waiter under `SCHED_FIFO` that only yields keeps the preempted thread that it
//! waits for, of a lower priority, from running. So after some offers the waiter sleeps, for a bounded time,
//! between two looks.

use super::Machine;

/// Offers of the processor before the first nap. If no other thread can run, all of them and the looks between them take
/// some 20 ms, and with the pauses of a backoff some 140 ms (`docs/real-time.md`). A queue whose waiters nap hands over
/// slowly, so a long queue alone must not make them nap.
const OFFERS: u32 = 10_000;
/// The same for a waiter with a deadline: some 5 ms. It polls the lock outside of the queue, so only itself is late after a
/// nap.
const TIMED_OFFERS: u64 = 300;
/// Nanoseconds that a waiter with a deadline has left for each offer, at least: four times what an offer takes with the
/// longest pause of a backoff. So a thread that waits again and again for a short time naps for a good part of it. (The
/// preloaded library waits so, for a writer of a real-time policy and for a thread that may be cancelled.)
const LEFT_PER_OFFER: u64 = 64_000;
/// Nanoseconds of the first nap: about what going to sleep and waking up cost.
const FIRST_NAP: u64 = 50_000;
/// Nanoseconds of the longest nap: how late a waiter may wake up.
const LONGEST_NAP: u64 = 1_000_000;
/// Pauses before an offer, of one spin hint each.
const PAUSES: u32 = 64;

/// What a waiter does between two looks.
pub(crate) struct Offers {
    pauses: u32,
    offers: u32,
    nap: Nap,
}

impl Offers {
    pub(crate) const fn new() -> Self {
        Offers { pauses: 0, offers: 0, nap: Nap::new() }
    }

    /// Offers the processor. A waiter that has made enough offers naps instead, for at most `left` nanoseconds, which is
    /// `u64::MAX` if it has no deadline.
    #[cold]
    pub(crate) fn take<M: Machine>(&mut self, left: u64) {
        let most = if left == u64::MAX { OFFERS } else { TIMED_OFFERS.min(left / LEFT_PER_OFFER) as u32 };
        if self.offers < M::patience(most) {
            self.offers += 1;
            M::yield_now();
        } else {
            self.nap.take::<M>(left);
        }
    }

    /// Pauses for one spin hint; every `PAUSES`th pause is also an offer.
    pub(crate) fn pause<M: Machine>(&mut self) {
        M::pause(1);
        self.pauses = self.pauses.wrapping_add(1);
        if self.pauses.is_multiple_of(PAUSES) {
            self.take::<M>(u64::MAX);
        }
    }
}

/// The next nap's nanoseconds. Each nap is a quarter longer than the one before. So the waiter wakes up late by a quarter of its
/// wait, and by one millisecond at most.
pub(crate) struct Nap(u64);

impl Nap {
    pub(crate) const fn new() -> Self {
        Nap(FIRST_NAP)
    }

    /// Sleeps, for at most `left` nanoseconds.
    pub(crate) fn take<M: Machine>(&mut self, left: u64) {
        M::doze(self.0.min(left));
        self.0 = (self.0 + self.0 / 4).min(LONGEST_NAP);
    }
}

impl Default for Offers {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Native;

    /// A waiter makes so many pauses in about a day.
    #[test]
    fn a_wait_may_last_for_months() {
        Offers { pauses: u32::MAX, ..Offers::new() }.pause::<Native>();
    }
}

//! Waiting at growing intervals: between two attempts at a lock, and for threads that park.
//!
//! Source of the backoff: Anderson, "The performance of spin lock alternatives for shared-memory multiprocessors", 1990.

use crate::machine::{Deadline, MICRO, Machine, Offers};

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
        self.step += 1;
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

/// Nanoseconds after which the head of a queue, parked, wakes up by itself for the first time: 1 ms. A torn unlock is noticed soon.
const FIRST_SLEEP: u64 = 1 << (10 + MICRO);
/// Nanoseconds after which a parked head wakes up by itself at most (134 ms), and the other waiters (0.54 s): a thousand of them
/// take 2% of a processor.
const SLEEPS: (u64, u64) = (128 << (10 + MICRO), 512 << (10 + MICRO));
/// The factor between two such sleeps: a long wait costs few wakeups.
const FACTOR: u64 = 4;
/// The same of a waiter that no thread unparks: 65 microseconds to 4 ms.
const NAPS: (u64, u64, u64) = (64 << MICRO, 4096 << MICRO, 2);

/// Sleeps that get longer: a waiter that looks often at first and rarely later.
pub(crate) struct Intervals {
    next: u64,
    most: u64,
    factor: u64,
}

impl Intervals {
    /// Of a parked head. A holder unparks it, unless the unlock was torn or the holder is suspended; then the sleep ends by itself.
    pub fn of_head() -> Self {
        Intervals { next: FIRST_SLEEP, most: SLEEPS.0, factor: FACTOR }
    }

    /// Of a parked waiter. Another thread unparks it, unless that thread is suspended; then the sleep ends by itself, the first time
    /// after `first` nanoseconds.
    pub fn of_waiter(first: u64) -> Self {
        Intervals { next: first, most: SLEEPS.1, factor: FACTOR }
    }

    /// Of the naps of a robbed head, which no other thread ends: first a sixteenth of its `turn` (microseconds), at most a turn.
    pub fn of_naps(turn: u32) -> Self {
        Intervals { next: u64::from(turn / 16) << MICRO, most: u64::from(turn) << MICRO, factor: 2 }
    }

    pub fn next(&mut self) -> u64 {
        let nanos = self.next;
        self.next = (nanos * self.factor).min(self.most);
        nanos
    }

    /// When the next sleep ends if no thread unparks the caller: at the `deadline`, or before.
    pub fn until<M: Machine>(&mut self, deadline: Option<Deadline>) -> Option<Deadline> {
        let nanos = self.next();
        Self::first::<M>(deadline, M::safety_timeout(nanos))
    }

    /// The same for a sleep that a torn [`release_if`](Machine::release_if) may leave without a wakeup.
    pub fn until_torn<M: Machine>(&mut self, deadline: Option<Deadline>) -> Option<Deadline> {
        let nanos = self.next();
        Self::first::<M>(deadline, M::torn_timeout(nanos))
    }

    /// The first of the two deadlines.
    fn first<M: Machine>(deadline: Option<Deadline>, own: Option<Deadline>) -> Option<Deadline> {
        match (deadline, own) {
            (Some(deadline), Some(own)) if deadline.left::<M>() <= own.left::<M>() => Some(deadline),
            (deadline, own) => own.or(deadline),
        }
    }
}

/// Waits at a lock and not in its queue, for as long as the head of the queue is suspended: nodes behind the head would
/// pile up.
///
/// `attempt` says that the lock has been taken (`Some(true)`), that it has not (`Some(false)`), or that the head runs
/// again (`None`).
pub(crate) fn wait_outside<M: Machine>(
    deadline: Option<Deadline>,
    mut attempt: impl FnMut() -> Option<bool>,
) -> Option<bool> {
    let mut naps = Intervals { next: NAPS.0, most: NAPS.1, factor: NAPS.2 };
    loop {
        let late = deadline.is_some_and(|d| d.passed::<M>());
        match attempt() {
            Some(false) if late => return Some(false),
            Some(false) => (),
            outcome => return outcome,
        }
        let left = deadline.map_or(u64::MAX, |d| d.left::<M>());
        M::doze(naps.next().min(left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Signals may end any number of naps in one turn.
    #[test]
    fn naps_end_with_the_turn() {
        let mut naps = Intervals::of_naps(1000);
        assert_eq!((naps.next(), naps.next()), (62 << MICRO, 124 << MICRO));
        assert_eq!((0..100).map(|_| naps.next()).last(), Some(1000 << MICRO));
    }
}

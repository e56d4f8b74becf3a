//! What will happen when: the queue of future events.
//!
//! Events at the same time happen in the order in which they were planned, so the order of all
//! events is a function of the seed alone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Simulated time: picoseconds since the start.
pub(crate) type Time = u64;

/// Picoseconds in a nanosecond.
pub(crate) const NS: Time = 1000;

/// A time that never comes.
pub(crate) const NEVER: Time = Time::MAX;

/// What happens.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A thread that has a processor goes on.
    Run(u32),
    /// A cache line can serve the next request.
    LineFree(u32),
    /// A thread's deadline, or its turn to leave the processor.
    Timer(u32),
    /// A thread can run again and needs a processor.
    Ready(u32),
    /// A timer tick at which idle processors look for threads that wait for others.
    Balance,
}

/// The queue. An entry is one number, of which the time is the upper half, so that comparing two
/// is one instruction pair.
#[derive(Default)]
pub(crate) struct Events {
    heap: BinaryHeap<Reverse<u128>>,
    planned: u32,
    pub(crate) happened: u64,
}

const KIND: u32 = 3;

impl Events {
    /// Plans an event; returns a number that identifies it among those of the near past.
    #[inline]
    pub(crate) fn plan(&mut self, at: Time, event: Event) -> u32 {
        let (kind, id) = match event {
            Event::Run(id) => (0, id),
            Event::LineFree(id) => (1, id),
            Event::Timer(id) => (2, id),
            Event::Ready(id) => (3, id),
            Event::Balance => (4, 0),
        };
        self.planned = self.planned.wrapping_add(1).max(1);
        let entry = u128::from(at) << 64 | u128::from(self.planned) << 32 | u128::from(id << KIND | kind);
        self.heap.push(Reverse(entry));
        self.planned
    }

    /// When the next event happens.
    #[inline]
    pub(crate) fn soonest(&self) -> Time {
        self.heap.peek().map_or(NEVER, |entry| (entry.0 >> 64) as Time)
    }

    /// Takes the next event: when, which number, what.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<(Time, u32, Event)> {
        let Reverse(entry) = self.heap.pop()?;
        self.happened += 1;
        let id = entry as u32 >> KIND;
        let event = match entry as u32 & ((1 << KIND) - 1) {
            0 => Event::Run(id),
            1 => Event::LineFree(id),
            2 => Event::Timer(id),
            3 => Event::Ready(id),
            _ => Event::Balance,
        };
        Some(((entry >> 64) as Time, (entry >> 32) as u32, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_time_and_then_in_order_of_planning() {
        let mut events = Events::default();
        events.plan(7, Event::Run(1));
        let second = events.plan(5, Event::Timer(3));
        events.plan(5, Event::LineFree(1 << 28));
        events.plan(5, Event::Ready(0));
        assert_eq!(events.soonest(), 5);
        assert_eq!(events.next(), Some((5, second, Event::Timer(3))));
        assert_eq!(events.next().unwrap().2, Event::LineFree(1 << 28));
        assert_eq!(events.next().unwrap().2, Event::Ready(0));
        assert_eq!(events.next().unwrap().2, Event::Run(1));
        assert_eq!(events.next(), None);
        assert_eq!(events.soonest(), NEVER);
    }
}

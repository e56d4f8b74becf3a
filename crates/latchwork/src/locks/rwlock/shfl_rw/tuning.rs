//! The constants of the lock. `latchwork-lab ablate shfl-rw` says what each is worth.

use super::turn::STEALS;
use crate::locks::mutex::shuffle::{NumaPolicy, Policy};

/// How the lock waits. [`Tuned`] is what users get; other tunings serve to measure what a constant is worth.
///
/// A time is in microseconds of 1024 ns. A pair is of looks, and of spin hints before each.
pub trait Tuning: Send + Sync + 'static {
    /// The order of the writers in the queue.
    type Order: Policy;

    /// Looks at the lock before a newcomer queues: about as long as a short section.
    const NEWCOMER_LOOKS: u32 = 24;
    /// Spin hints between two of these looks at most: they grow from one, so that newcomers do not meet at every look.
    const NEWCOMER_PAUSE: u32 = 8;
    /// After which looks a newcomer that wants to write believes that the lock is idle.
    const NEWCOMER_IDLE: (u32, u32) = (1, 5);
    /// Spin hints between two looks of the head, at first and at most.
    const HEAD_PAUSE: (u32, u32) = (1, 128);
    /// Looks of the head at the longest pause before it sleeps: about 100 microseconds, twice what a sleep and a wakeup cost.
    const HEAD_LOOKS: u32 = 32;
    /// After which looks a head that wants to write believes that the lock is idle.
    const HEAD_IDLE: (u32, u32) = (4, 8);
    /// Looks at the readers inside, for some microseconds, while newcomers are shut out and before a writing head sleeps.
    const DRAIN: u32 = 512;
    /// Sleeping readers that a reader which enters from the queue wakes. Each costs it a wakeup; but a chain, in which each
    /// reader wakes the next, takes as long as all of them need until they run.
    const INVITATIONS: u32 = 16;
    /// Whether a parked waiter that becomes the head sleeps on until the lock is released.
    const REQUEUES: bool = true;
    /// For how long newcomers may pass a head that is awake.
    const STEAL_BOUND: u32 = 200;
    /// For how long they may pass a head that sleeps or does not run yet. A turn that begins with a wakeup leaves the lock, and
    /// often processors, unused until the head runs. This is longer than the scheduler takes to run a woken thread (a quantum
    /// or two), unless there are very many threads.
    const WAKE_BOUND: u32 = 10_000;
    /// The part of that from when the thread became the head: waiters that queued one behind the other would otherwise all be
    /// late in turn, and no newcomer could pass any more.
    const HEAD_BOUND: u32 = 1_000;

    /// The longest wait in the queue that shortens a head's turn, in the units of `turn`.
    #[doc(hidden)]
    const OLDEST: u32 = Self::WAKE_BOUND.saturating_sub(Self::HEAD_BOUND) * (STEALS + 1);
}

/// The tuning that users get.
#[derive(Debug)]
pub struct Tuned;

impl Tuning for Tuned {
    type Order = NumaPolicy;
}

//! Statistics of how readers got in, and of revocations.

use crate::machine::{Group, Machine, Native, ROW_COUNTS, Word, shared};
use core::sync::atomic::Ordering::Relaxed;

/// Whether a lock counts. It is a type, so that a lock which does not count has no instruction for it.
pub trait Count: Send + Sync + 'static {
    /// Adds `value` to a counter.
    fn add<M: Machine>(event: Event, value: u64);
    /// Whether it counts.
    const ON: bool;
}

/// The lock does not count.
#[derive(Debug)]
pub struct Uncounted;

impl Count for Uncounted {
    const ON: bool = false;
    #[inline(always)]
    fn add<M: Machine>(_: Event, _: u64) {}
}

/// The lock counts, in the calling thread's row: a cache line that no other thread writes.
#[derive(Debug)]
pub struct Counted;

impl Count for Counted {
    const ON: bool = true;
    #[inline]
    fn add<M: Machine>(event: Event, value: u64) {
        if let Some(row) = shared::reader_row::<M>() {
            let counter = &row.counts[event as usize];
            counter.store(counter.load(Relaxed) + value, Relaxed);
        }
    }
}

/// What is counted.
#[derive(Copy, Clone, Debug)]
pub enum Event {
    /// A read through a slot.
    Fast,
    /// A read through the underlying lock: there was no bias.
    Unbiased,
    /// A read through the underlying lock: there was bias, but the slot was taken, or all slots of the thread's row.
    Collision,
    /// A reader filled a slot and emptied it again, because the bias had been revoked.
    InVain,
    /// A revocation.
    Revocation,
    /// Nanoseconds that revocations took.
    Revoking,
}

const _: () = assert!(Event::Revoking as usize + 1 == ROW_COUNTS);

/// What all [`Counted`] locks of the process have counted.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads through a slot.
    pub fast: u64,
    /// Reads through the underlying lock because there was no bias.
    pub unbiased: u64,
    /// Reads through the underlying lock because no slot was free.
    pub collisions: u64,
    /// Slots that were filled and emptied again. The reads that followed are counted above.
    pub in_vain: u64,
    /// Revocations.
    pub revocations: u64,
    /// Nanoseconds that revocations took.
    pub revoking: u64,
}

impl Counts {
    /// The counts until now.
    pub fn of_process() -> Counts {
        let mut sums = [0; ROW_COUNTS];
        let groups = shared::reader_rows::<Native>().into_iter().flat_map(Group::groups);
        for row in groups.flat_map(Group::entries) {
            for (sum, counter) in sums.iter_mut().zip(&row.counts) {
                *sum += counter.load(Relaxed);
            }
        }
        let [fast, unbiased, collisions, in_vain, revocations, revoking] = sums;
        Counts { fast, unbiased, collisions, in_vain, revocations, revoking }
    }
}

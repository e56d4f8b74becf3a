//! Statistics of how readers got in, and of revocations.

use crate::machine::{Machine, Native, ROW_COUNTS, Word, shared};
use core::sync::atomic::Ordering::Relaxed;

/// Whether a lock counts. A type, so that one that does not has no trace of it.
pub trait Count: Send + Sync + 'static {
    /// Adds `value` to a counter.
    fn add<M: Machine>(event: Event, value: u64);
    /// Whether it does.
    const ON: bool;
}

/// It does not.
#[derive(Debug)]
pub struct Uncounted;

impl Count for Uncounted {
    const ON: bool = false;
    #[inline(always)]
    fn add<M: Machine>(_: Event, _: u64) {}
}

/// It does, in the calling thread's row: no line that others write.
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
    /// The same: there was bias, but the slot was taken, or the whole row of the thread.
    Collision,
    /// A slot was filled in vain, because there was no bias any more.
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
    /// Slots that were filled in vain; those reads are among the ones above.
    pub in_vain: u64,
    /// Revocations.
    pub revocations: u64,
    /// Nanoseconds that they took.
    pub revoking: u64,
}

impl Counts {
    /// Until now.
    pub fn of_process() -> Counts {
        let mut sums = [0; ROW_COUNTS];
        if let Some(newest) = shared::reader_rows::<Native>() {
            newest.all_rows(|row| {
                for (sum, counter) in sums.iter_mut().zip(&row.counts) {
                    *sum += counter.load(Relaxed);
                }
                true
            });
        }
        let [fast, unbiased, collisions, in_vain, revocations, revoking] = sums;
        Counts { fast, unbiased, collisions, in_vain, revocations, revoking }
    }
}

//! For how long newcomers may pass the head of the queue.
//!
//! | the head | newcomers may pass it |
//! |---|---|
//! | is awake | for [`Tuning::STEAL_BOUND`] from when it became the head; then it sets CLAIMED |
//! | sleeps, or has been woken and does not run yet | for [`Tuning::WAKE_BOUND`] from when it queued, and for [`Tuning::HEAD_BOUND`] at least from when it became the head |
//! | does not come although the lock is free and left to it | after [`PROMISE_BOUND`], until it runs again (LAPSED) |
//!
//! Two words hold the times. Several threads write them with plain stores. If a newcomer and a new head write at the same
//! time, one of the writes is lost, and the head's turn comes early or a little late.

use super::Tuning;
use crate::locks::mutex::sleepers::PROMISE_BOUND;
use crate::machine::{Machine, Native, Word, micros};
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The low bits of `since` count newcomers that have passed a sleeping head; the clock is read at every sixteenth, because
/// reading it costs as much as passing.
pub(super) const STEALS: u32 = 15;

/// The times.
#[repr(C)]
pub(super) struct Turn<M: Machine> {
    /// When the head became the head, or when the lock was offered to it; and the count of steals from it.
    since: M::U32,
    /// When the head queued, or later; see [`begin`](Turn::begin).
    queued: M::U32,
}

impl Turn<Native> {
    pub const fn new() -> Self {
        Turn { since: AtomicU32::new(0), queued: AtomicU32::new(0) }
    }
}

impl<M: Machine> Turn<M> {
    pub fn new_in() -> Self {
        Turn { since: M::U32::new(0), queued: M::U32::new(0) }
    }

    /// There is a new head, which queued at `queued`.
    pub fn begin<T: Tuning>(&self, queued: u32) {
        let now = moment::<M>();
        self.since.store(now, Relaxed);
        let age = now.wrapping_sub(queued).min(T::OLDEST);
        self.queued.store(now.wrapping_sub(age), Relaxed);
    }

    /// The lock is free and left to the head from now on.
    pub fn offer(&self) {
        self.since.store(moment::<M>(), Relaxed);
    }

    /// A newcomer has passed a sleeping head.
    pub fn count_steal(&self) {
        let since = self.since.load(Relaxed);
        self.since.store(since & !STEALS | (since + 1) & STEALS, Relaxed);
    }

    /// Whether the head has been passed for [`Tuning::STEAL_BOUND`].
    pub fn is_overdue<T: Tuning>(&self) -> bool {
        self.age() > T::STEAL_BOUND
    }

    /// Whether a sleeping head is to be woken, so that it shuts newcomers out itself. Asked at each steal; the clock is read
    /// at every sixteenth.
    pub fn is_due<T: Tuning>(&self) -> bool {
        self.since.load(Relaxed) & STEALS == 0 && self.is_overdue::<T>()
    }

    /// Whether the head must not be passed any more, although it may not be running yet. Asked at each steal, likewise.
    pub fn has_waited<T: Tuning>(&self) -> bool {
        self.since.load(Relaxed) & STEALS == 0 && elapsed::<M>(self.queued.load(Relaxed)) > T::WAKE_BOUND
    }

    /// Whether the head has not come to a lock that was offered to it, or has been the head, for [`PROMISE_BOUND`].
    pub fn has_lapsed(&self) -> bool {
        self.age() > PROMISE_BOUND
    }

    fn age(&self) -> u32 {
        elapsed::<M>(self.since.load(Relaxed))
    }
}

/// Now: microseconds of 1024 ns in the upper bits, no steals in the lower ones. The time wraps after 4.6 minutes; times are
/// compared by their difference.
pub(super) fn moment<M: Machine>() -> u32 {
    micros::<M>().wrapping_mul(STEALS + 1)
}

/// Microseconds since `time`.
fn elapsed<M: Machine>(time: u32) -> u32 {
    moment::<M>().wrapping_sub(time & !STEALS) / (STEALS + 1)
}

//! When a thread reclaims what it has retired: with each batch, with each 32nd of the limit on bytes, and after a pause.
//!
//! A batch of small objects is worth a grace period. But a thread that retires one object a minute would keep hundreds for hours, with all
//! that they own. So a thread that finds that no thread of the domain has reclaimed for some milliseconds does not wait for its batch
//! to be full.

use super::backlog::Backlog;
use super::list::Mine;
use crate::machine::record::Records;
use crate::machine::{Clock, Machine, Native, Word};
use core::sync::atomic::{AtomicU64, Ordering::*};

/// Bytes up to which an object is small. The limit on bytes allows for so many in each object of a batch.
pub(super) const SMALL: usize = 256;

/// A thread looks at least with each of so many objects whether it is time to reclaim. While few have come in, it looks more often,
/// unless these are the first that follow a full batch. A look at the clock takes 25 ns. A batch of 128, as in a domain with a small
/// limit, had 18 looks, which were a fifth of what retiring costs. A power of two.
pub(super) const LOOK: u32 = 64;

/// Nanoseconds after which a thread reclaims a batch that is not full, if no thread of the domain has done that since. A grace period
/// may take 20 microseconds of every processor's time: a fifth of a percent.
const SOON: u64 = 10_000_000;
/// The pause is at least so many times as long as it took to reclaim the last time.
const PAUSES: u64 = 100;

/// When a thread may reclaim a batch next that is not full, on the monotonic clock.
pub struct Soon<M: Machine>(M::U64);

impl Soon<Native> {
    /// A pause after the clock's epoch.
    pub const fn native() -> Self {
        Soon(AtomicU64::new(SOON))
    }
}

impl<M: Machine> Soon<M> {
    pub(super) fn new() -> Self {
        Soon(M::U64::new(SOON))
    }

    /// Whether the time has come. Then other threads leave it to the caller to reclaim.
    pub fn has_come(&self) -> bool {
        let now = M::now(Clock::Monotonic);
        let has_come = now >= self.0.load(Relaxed);
        if has_come {
            self.0.store(now + SOON, Relaxed);
        }
        has_come
    }

    /// Reclaims, and notes when the next batch that is not full is due.
    pub fn reclaim(&self, reclaim: impl FnOnce()) {
        let begin = M::now(Clock::Monotonic);
        reclaim();
        let end = M::now(Clock::Monotonic);
        let pause = end.saturating_sub(begin).saturating_mul(PAUSES).max(SOON);
        self.0.store(end.saturating_add(pause), Relaxed);
    }
}

/// Whether it is time to reclaim.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    No,
    /// A batch is not full, but its objects have waited for long enough.
    Soon,
    /// A batch is full.
    Full,
}

impl<M: Records> Backlog<M> {
    /// Whether it is time to reclaim what has come in on the calling thread's list, and when to look again.
    #[cold]
    #[inline(never)]
    pub(super) fn look(&self, mine: Mine<'_, M>, most: u32) -> Due {
        let (count, batch) = (mine.count(), self.batch.load(Relaxed).min(most));
        let multiple = (count | (batch.min(LOOK) - 1)) + 1;
        let follows_a_batch = count == 1 && mine.next_look() > batch;
        mine.look_at(if follows_a_batch { multiple } else { multiple.min(count + (count / 4).max(1)) });
        if count & (batch - 1) == 0 {
            Due::Full
        } else if self.soon.has_come() {
            Due::Soon
        } else {
            Due::No
        }
    }

    /// Reclaims if it is time: by `soon` a batch that is not full, by `full` one that is.
    #[inline(always)]
    pub(super) fn reclaim_if(&self, due: Due, soon: impl FnOnce(), full: impl FnOnce()) {
        match due {
            Due::No => {}
            Due::Soon => self.reclaim_soon(soon),
            Due::Full => full(),
        }
    }

    #[cold]
    fn reclaim_soon(&self, reclaim: impl FnOnce()) {
        self.soon.reclaim(reclaim);
    }

    /// The next look finds that the pause is over.
    #[cfg(test)]
    pub(super) fn soon_now(&self) {
        self.soon.0.store(0, Relaxed);
    }

    /// From now on, only full batches are reclaimed.
    #[cfg(test)]
    pub(super) fn never_soon(&self) {
        self.soon.0.store(u64::MAX, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After a batch that is not full, the next one is due after a pause, and after a longer one if it took long to reclaim.
    #[test]
    fn a_pause_follows_a_batch_that_is_not_full() {
        let (soon, now) = (Soon::<Native>::native(), || Native::now(Clock::Monotonic));
        let after_a_pause = |begin, pause| soon.0.load(Relaxed) >= begin + pause;
        let mut begin = now();
        assert!(soon.has_come() && after_a_pause(begin, SOON));
        begin = now();
        soon.reclaim(|| ());
        assert!(after_a_pause(begin, SOON));
        begin = now();
        soon.reclaim(|| std::thread::sleep(std::time::Duration::from_millis(1)));
        assert!(after_a_pause(begin, PAUSES * 1_000_000));
    }
}

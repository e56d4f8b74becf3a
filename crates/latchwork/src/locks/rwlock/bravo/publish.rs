//! Where a BRAVO reader says that it reads.

use crate::machine::{Deadline, Machine, ReaderRow, Word, shared};
use core::sync::atomic::Ordering::*;

/// The slots that readers use instead of the lock, and the fences that go with them.
///
/// # Safety
///
/// A slot that [`publish`](Publish::publish) has filled is among [`all`](Publish::all) until it is emptied, for a writer
/// that has issued [`fence`](Publish::fence) after the reader's look at the bias.
///
/// A caller of the unsafe functions writes to slots as BRAVO does. A reader puts the lock's address into a slot, and takes
/// it out again when its acquisition ends; a writer waits for that.
pub unsafe trait Publish<M: Machine>: Send + Sync + 'static {
    /// How the names of its locks begin.
    const PREFIX: &'static str;
    /// How their summaries begin.
    const SUMMARY: &'static str;
    /// Atomic read-modify-writes of a fast read.
    const ATOMICS: u32;
    /// Paper and section.
    const SOURCE: &'static str;

    /// Writes `lock` into a slot if that is empty. May first look whether it is `biased`, or remember that it
    /// was not: then there is nothing to be had here, or mostly not. What the caller then reads of the bias is ordered after
    /// this with respect to [`fence`](Publish::fence). `None`: there is no slot to be had.
    ///
    /// Release, and after acquiring the slot's last user: a writer of *another* lock may read this where
    /// it would have read that user's leaving.
    ///
    /// # Safety
    ///
    /// See the [trait](Publish).
    unsafe fn publish(lock: usize, biased: impl FnOnce() -> bool) -> Option<&'static M::Usize>;

    /// The same with another slot, when the first was in use.
    ///
    /// # Safety
    ///
    /// See the [trait](Publish).
    #[inline]
    unsafe fn publish_elsewhere(_lock: usize, _biased: impl FnOnce() -> bool) -> Option<&'static M::Usize> {
        None
    }

    /// Comes between a writer's store to the bias, which is sequentially consistent, and its scan.
    fn fence();

    /// Calls `each` with every slot that holds `lock`, read with sequentially consistent loads, until it
    /// says `false`; whether it never did.
    ///
    /// # Safety
    ///
    /// See the [trait](Publish).
    unsafe fn all(lock: usize, each: impl FnMut(&'static M::Usize) -> bool) -> bool;

    /// The calling thread's first slot that holds `lock`, if slots belong to threads.
    ///
    /// # Safety
    ///
    /// See the [trait](Publish).
    #[inline(always)]
    unsafe fn own(_lock: usize) -> Option<&'static M::Usize> {
        None
    }

    /// Whether slots belong to threads.
    const OWNED: bool = false;

    /// Notes for the calling thread, which has used the underlying lock, that `lock` is not biased, or is: it
    /// then goes to the underlying lock the next time without looking first. Two looks at a contended cache
    /// line cost twice as much as one.
    #[inline(always)]
    fn note_unbiased(_lock: usize, _unbiased: bool) {}

    /// Called before a bias is set; whether it may be.
    fn prepare() -> bool {
        true
    }
}

/// A row of slots per thread (BRAVO-2D, section 7, with rows owned by threads instead of processors).
/// Nobody else fills the slots of a row, so publication is a plain store, and only the light half of an
/// asymmetric fence; the writer pays for the heavy half. It looks at one cache line per thread instead
/// of 512. A reader that has its row full uses the underlying lock, and so do all where the operating
/// system refuses the heavy half. Rows come and go with threads: see
/// [`Machine::reader_row`].
#[derive(Debug)]
pub struct Owned;

/// What a writer waits when the heavy fence was refused (a filter was installed after the process had
/// it granted), in nanoseconds: a store is visible to other processors long before.
const UNFENCED_WAIT: u64 = 10_000_000;

// SAFETY: rows are linked before their owners fill them, and a row that the heavy fence does not show belongs to a reader
// that sees the bias off.
unsafe impl<M: Machine> Publish<M> for Owned {
    const PREFIX: &'static str = "bravo-2d-";
    const SUMMARY: &'static str = "biased locking, a row of slots per thread, over ";
    const ATOMICS: u32 = 0;
    const SOURCE: &'static str = "Dice and Kogan 2019, section 7 (BRAVO-2D)";

    /// Most threads read one lock at a time. Filling a slot in vain costs less than looking at the bias.
    #[inline(always)]
    unsafe fn publish(lock: usize, _: impl FnOnce() -> bool) -> Option<&'static M::Usize> {
        let row = shared::reader_row::<M>()?;
        let slot = &row.slots[0];
        if row.unbiased.load(Relaxed) != lock && slot.load(Acquire) == 0 {
            Self::fill::<M>(slot, lock)
        } else {
            None
        }
    }

    unsafe fn publish_elsewhere(lock: usize, biased: impl FnOnce() -> bool) -> Option<&'static M::Usize> {
        let row = shared::reader_row::<M>()?;
        if row.unbiased.load(Relaxed) == lock || !biased() {
            return None;
        }
        Self::fill::<M>(row.slots.iter().find(|slot| slot.load(Acquire) == 0)?, lock)
    }

    fn fence() {
        // (B) A row that this does not show was linked later, so its readers see the bias off.
        if !M::heavy_fence() {
            let end = Deadline::after::<M>(UNFENCED_WAIT);
            while !end.passed::<M>() {
                M::doze(UNFENCED_WAIT);
            }
        }
    }

    #[inline]
    unsafe fn all(lock: usize, mut each: impl FnMut(&'static M::Usize) -> bool) -> bool {
        shared::reader_rows::<M>().is_none_or(|newest| {
            newest.all_rows(|row| row.slots.iter().all(|slot| slot.load(SeqCst) != lock || each(slot)))
        })
    }

    fn prepare() -> bool {
        M::prepare_fences()
    }

    const OWNED: bool = true;

    #[inline(always)]
    fn note_unbiased(lock: usize, unbiased: bool) {
        if let Some(row) = shared::reader_row::<M>() {
            row.unbiased.store(if unbiased { lock } else { 0 }, Relaxed);
        }
    }

    #[inline(always)]
    unsafe fn own(lock: usize) -> Option<&'static M::Usize> {
        let row = shared::reader_row::<M>()?;
        let slot = &row.slots[0];
        if slot.load(Relaxed) == lock { Some(slot) } else { Self::further_own(row, lock) }
    }
}

impl Owned {
    /// Fills a slot of the calling thread that it has seen to be empty: acquire, because another thread
    /// may have emptied it.
    #[inline(always)]
    fn fill<M: Machine>(slot: &'static M::Usize, lock: usize) -> Option<&'static M::Usize> {
        slot.store(lock, Release);
        // (B) Dekker pair with the writer's heavy fence: before that, our store is seen by its scan;
        // after it, our next look sees its store to the bias. (Without `prepare` there is no fence, and no bias.)
        M::lightest_fence();
        Some(slot)
    }

    #[inline(never)]
    fn further_own<M: Machine>(row: &'static ReaderRow<M>, lock: usize) -> Option<&'static M::Usize> {
        row.slots[1..].iter().find(|slot| slot.load(Relaxed) == lock)
    }
}

//! Where a BRAVO reader publishes that it reads: in a slot, a word that holds the address of the lock or 0.
//!
//! [`Publish`] is the place: which slot a reader fills, how a writer finds those of its lock, and the fences for Dekker's handshake
//! between the two. [`Owned`], here, is a row of slots for each thread: plain stores for readers, `membarrier` for a revoking writer. The
//! other places are one [`table`](super::table) for the process: a compare-and-exchange for readers, nothing but loads for the writer.

use crate::machine::{Deadline, Group, Machine, ReaderRow, Word, shared};
use core::sync::atomic::Ordering::*;

/// The slots that readers use in place of the lock, and the fences that go with them.
///
/// # Safety
///
/// A slot that [`publish`](Publish::publish) has filled is among [`all_slots_of`](Publish::all_slots_of) until it is emptied, for a writer
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

    /// Writes `lock` into a slot if that slot is empty. It may write nothing if it finds that the lock is not `biased`, or has
    /// a note of that ([`note_unbiased`](Publish::note_unbiased)). What the caller reads of the bias afterwards is ordered after the write with respect to
    /// [`fence`](Publish::fence).
    ///
    /// (D) The slot is found empty with acquire and filled with release. A writer of the lock that the slot was last used for
    /// may see this store in place of the store with which that lock's reader left. The writer must then come after that
    /// reader's section.
    ///
    /// # Safety
    ///
    /// See the [trait](Publish).
    unsafe fn publish(lock: usize, biased: impl FnOnce() -> bool) -> Published<M>;

    /// The same with another slot, after the attempt with the first has failed. `None`: nothing was written. A table with two probes has a second slot; a row
    /// has seven further ones.
    ///
    /// # Safety
    ///
    /// See the [trait](Publish).
    #[inline]
    unsafe fn publish_elsewhere(_lock: usize, _biased: impl FnOnce() -> bool) -> Option<&'static M::Usize> {
        None
    }

    /// The same for a thread that reads `lock` through a slot already: the first empty slot *behind* the thread's first slot that
    /// holds `lock`, whether the lock is biased or not. A revoking writer waits at that one, and looks at the later ones next.
    /// In an earlier one, which it has passed, it would miss the reader. `None`: the thread has no such slot.
    ///
    /// # Safety
    ///
    /// See the [trait](Publish). The calling thread reads `lock` through a slot if one of its slots holds the address.
    unsafe fn publish_again(_lock: usize) -> Option<&'static M::Usize> {
        None
    }

    /// A revoking writer calls this between its change of the bias, which is sequentially consistent, and its look at the slots.
    fn fence();

    /// As [`Iterator::all`] over the slots that hold `lock`: calls `each` with one slot after the other, and stops when `each`
    /// returns `false`. Returns whether `each` never did. The slots are read with sequentially consistent loads.
    ///
    /// # Safety
    ///
    /// See the [trait](Publish).
    unsafe fn all_slots_of(lock: usize, each: impl FnMut(&'static M::Usize) -> bool) -> bool;

    /// The calling thread's first slot that holds `lock`, if slots belong to threads.
    ///
    /// # Safety
    ///
    /// See the [trait](Publish).
    #[inline(always)]
    unsafe fn own(_lock: usize) -> Option<&'static M::Usize> {
        None
    }

    /// The slot in which an acquisition of `lock` by the calling thread most likely is, if it holds `lock` now. Another thread
    /// may have filled it.
    ///
    /// # Safety
    ///
    /// See the [trait](Publish).
    #[inline(always)]
    unsafe fn of_caller(lock: usize) -> Option<&'static M::Usize> {
        // SAFETY: the caller keeps to the rules of the trait.
        unsafe { Self::own(lock) }
    }

    /// Whether slots belong to threads.
    const OWNED: bool = false;

    /// Notes for the calling thread, which has used the underlying lock, whether `lock` was unbiased. If it was, the thread
    /// goes to the underlying lock the next time without a look at the bias: two looks at a contended cache line cost twice as
    /// much as one.
    #[inline(always)]
    fn note_unbiased(_lock: usize, _unbiased: bool) {}

    /// Called before the bias is turned on. Returns whether it may be.
    fn prepare() -> bool {
        true
    }
}

/// What a reader's attempt through its first slot has come to.
pub enum Published<M: Machine> {
    /// This slot is filled.
    In(&'static M::Usize),
    /// Nothing was written: this row, the calling thread's, notes that the lock is unbiased.
    Noted(&'static ReaderRow<M>),
    /// Nothing was written.
    Nowhere,
}

/// A row of slots per thread (BRAVO-2D, section 7, with rows owned by threads instead of processors). Only the owner fills
/// the slots of a row, so publication is a plain store and the light half of an asymmetric fence. The writer pays for the
/// heavy half, and looks at one cache line per thread instead of 512 lines of a table. A reader whose row is full uses the
/// underlying lock; so do all readers where the operating system refuses the heavy half. Rows come and go with threads: see
/// [`Machine::reader_row`].
#[derive(Debug)]
pub struct Owned;

/// Nanoseconds that a writer waits if the heavy fence is refused, because a system-call filter was installed after the
/// process had been granted the fence. A store is visible to other processors long before.
const UNFENCED_WAIT: u64 = 10_000_000;

// SAFETY: a row is marked as taken, in a linked group, before its owner fills a slot. A reader that takes its row after the
// heavy fence sees the bias off. One that gives its row back has seen it empty, and what was read through it happens before
// what a writer does that sees it given back.
unsafe impl<M: Machine> Publish<M> for Owned {
    const PREFIX: &'static str = "bravo-2d-";
    const SUMMARY: &'static str = "biased locking, a row of slots per thread, over ";
    const ATOMICS: u32 = 0;
    const SOURCE: &'static str = "Dice and Kogan 2019, section 7 (BRAVO-2D)";

    /// Only the first slot: most threads read one lock at a time. It does not look at the bias first: to fill and empty a slot
    /// costs less.
    #[inline(always)]
    unsafe fn publish(lock: usize, _: impl FnOnce() -> bool) -> Published<M> {
        let Some(row) = shared::reader_row::<M>() else { return Published::Nowhere };
        let slot = &row.slots[0];
        if row.unbiased.load(Relaxed) == lock {
            Published::Noted(row)
        } else if slot.load(Acquire) == 0 {
            Published::In(Self::fill::<M>(slot, lock))
        } else {
            Published::Nowhere
        }
    }

    unsafe fn publish_elsewhere(lock: usize, biased: impl FnOnce() -> bool) -> Option<&'static M::Usize> {
        let row = shared::reader_row::<M>()?;
        if row.unbiased.load(Relaxed) == lock || !biased() {
            return None;
        }
        Some(Self::fill::<M>(row.slots.iter().find(|slot| slot.load(Acquire) == 0)?, lock))
    }

    unsafe fn publish_again(lock: usize) -> Option<&'static M::Usize> {
        let mut behind = shared::reader_row::<M>()?.slots.iter();
        behind.find(|slot| slot.load(Relaxed) == lock)?;
        Some(Self::fill::<M>(behind.find(|slot| slot.load(Acquire) == 0)?, lock))
    }

    fn fence() {
        // (B) A row that is taken after this fence belongs to a reader that sees the bias off.
        if !M::heavy_fence() {
            let end = Deadline::after::<M>(UNFENCED_WAIT);
            while !end.passed::<M>() {
                M::doze(UNFENCED_WAIT);
            }
        }
    }

    #[inline]
    unsafe fn all_slots_of(lock: usize, mut each: impl FnMut(&'static M::Usize) -> bool) -> bool {
        let mut rows = shared::reader_rows::<M>().into_iter().flat_map(Group::owned);
        rows.all(|row| row.slots.iter().all(|slot| slot.load(SeqCst) != lock || each(slot)))
    }

    /// Not by a thread without a row, which has no slot to gain by the bias. On a machine without rows no thread has.
    fn prepare() -> bool {
        shared::reader_row::<M>().is_some() && M::prepare_fences()
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
    /// Fills a slot of the calling thread, which has seen it empty with acquire: another thread may have emptied it (D).
    #[inline(always)]
    fn fill<M: Machine>(slot: &'static M::Usize, lock: usize) -> &'static M::Usize {
        slot.store(lock, Release);
        // (B) Dekker pair with the writer's heavy fence. If this store comes before that fence, the writer sees it. Otherwise
        // this thread's next look at the bias sees the writer's change. (If `prepare` failed there is no fence, and no bias.)
        M::lightest_fence();
        slot
    }

    #[inline(never)]
    fn further_own<M: Machine>(row: &'static ReaderRow<M>, lock: usize) -> Option<&'static M::Usize> {
        row.slots[1..].iter().find(|slot| slot.load(Relaxed) == lock)
    }
}

//! The row of slots in which one thread says which locks it reads: [`ReaderRow`].

use super::{Machine, Word};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// Slots in a row. With the link to the next row they fill one cache line, so that a writer looks at one line per thread.
pub const ROW_SLOTS: usize = 7;

/// Counters in a row; see [`bravo::count`](crate::locks::rwlock::bravo::count).
pub const ROW_COUNTS: usize = 6;

/// A thread's row (BRAVO-2D). Only the owner fills a slot, and only an empty one; any thread that holds the read
/// acquisition that a slot stands for may empty it. Rows live in type-stable memory and stay linked for ever. A row whose
/// owner has exited gets another owner when it is empty.
#[repr(C, align(128))]
pub struct ReaderRow<M: Machine> {
    /// Each is 0 or the address of a lock that the owner reads.
    pub slots: [M::Usize; ROW_SLOTS],
    /// The row that was made before this one.
    pub(super) next: M::Ptr<ReaderRow<M>>,
    /// For the machine: whether the owner has exited and left the row behind.
    pub left: M::U32,
    /// For the owner: read acquisitions without a slot until the next one that is sampled (BRAVO).
    pub until_sample: M::U32,
    /// For the owner: the lock that it last found without bias to readers, or 0.
    pub unbiased: M::Usize,
    /// For the owner: statistics. They stay when the row gets another owner.
    pub counts: [M::U64; ROW_COUNTS],
}

impl<M: Machine> ReaderRow<M> {
    /// An empty row.
    pub fn new() -> Self {
        ReaderRow {
            slots: core::array::from_fn(|_| M::Usize::new(0)),
            next: M::Ptr::new(null_mut()),
            left: M::U32::new(0),
            until_sample: M::U32::new(0),
            unbiased: M::Usize::new(0),
            counts: core::array::from_fn(|_| M::U64::new(0)),
        }
    }

    /// The row's address, as it is stored in links.
    pub fn as_ptr(&self) -> *mut Self {
        core::ptr::from_ref(self).cast_mut()
    }

    /// Sets the row that was made before this one. To be called before this one is linked.
    pub fn link(&self, next: Option<&'static Self>) {
        self.next.store(next.map_or(null_mut(), Self::as_ptr), Relaxed);
    }

    /// Whether no slot is in use.
    pub fn is_empty(&self) -> bool {
        // Acquire: the threads that emptied the slots did so before the next owner gets the row.
        self.slots.iter().all(|slot| slot.load(Acquire) == 0)
    }

    /// Calls `each` with this row and those linked behind it, until it says `false`. Returns whether it never
    /// did.
    pub fn all_rows(&'static self, mut each: impl FnMut(&'static Self) -> bool) -> bool {
        let mut row = self.as_ptr();
        while !row.is_null() {
            // SAFETY: only rows that live for ever are linked (`link` takes a `'static` reference).
            let this: &'static Self = unsafe { &*row };
            if !each(this) {
                return false;
            }
            row = this.next.load(Acquire); // pairs with the exchange by which the machine links a row
        }
        true
    }
}

impl<M: Machine> Default for ReaderRow<M> {
    fn default() -> Self {
        Self::new()
    }
}

//! The row of slots in which one thread says which locks it reads: [`ReaderRow`].

use super::group::Entry;
use super::{Machine, Word};
use core::sync::atomic::Ordering::Acquire;

/// Slots in a row. They fill one cache line, so that a writer looks at one line per thread.
pub const ROW_SLOTS: usize = 8;

/// Counters in a row; see [`bravo::count`](crate::locks::rwlock::bravo::count).
pub const ROW_COUNTS: usize = 6;

/// A thread's row (BRAVO-2D). Only the owner fills a slot, and only an empty one; any thread that holds the read
/// acquisition that a slot stands for may empty it. Rows live in type-stable memory, in groups that stay linked for ever. A
/// row whose owner has exited gets another owner when it is empty.
#[repr(C, align(128))]
pub struct ReaderRow<M: Machine> {
    /// Each is 0 or the address of a lock that the owner reads.
    pub slots: [M::Usize; ROW_SLOTS],
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
            left: M::U32::new(0),
            until_sample: M::U32::new(0),
            unbiased: M::Usize::new(0),
            counts: core::array::from_fn(|_| M::U64::new(0)),
        }
    }

    /// The row's address.
    pub fn as_ptr(&self) -> *mut Self {
        core::ptr::from_ref(self).cast_mut()
    }

    /// Whether no slot is in use.
    pub fn is_empty(&self) -> bool {
        // Acquire: the threads that emptied the slots did so before the next owner gets the row.
        self.slots.iter().all(|slot| slot.load(Acquire) == 0)
    }
}

// SAFETY: a row of zero bytes is empty, and only an owner fills slots.
unsafe impl<M: Machine> Entry<M> for ReaderRow<M> {
    fn left(&self) -> &M::U32 {
        &self.left
    }

    fn is_idle(&'static self) -> bool {
        self.is_empty()
    }
}

impl<M: Machine> Default for ReaderRow<M> {
    fn default() -> Self {
        Self::new()
    }
}

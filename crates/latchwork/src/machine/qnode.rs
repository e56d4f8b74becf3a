//! The queue node that all queue locks share.

use super::{Machine, Word};
use core::ptr::null_mut;

/// A waiter's place in the queue of a lock: 64 bytes, one cache line, so that each waiter spins on
/// a line of its own.
///
/// Which fields a lock uses is its own affair; `mcs` and `clh` use the first two.
#[repr(C, align(64))]
pub struct QNode<M: Machine> {
    /// The waiter behind this one.
    pub next: M::Ptr<QNode<M>>,
    /// What the waiter is told (by its lock's states); the word it parks on.
    pub status: M::U32,
    /// ShflLock: how many waiters have been grouped up to and including this one.
    pub batch: M::U32,
    /// ShflLock: the key that the shuffling policy groups by (a NUMA node).
    pub group: M::U32,
    /// ShflLock: nonzero if a previous shuffler made this waiter the next one.
    pub shuffler: M::U32,
    /// ShflLock: where the previous shuffler stopped (the `qlast` optimisation).
    pub resume: M::Ptr<QNode<M>>,
    /// Reader-writer ShflLock: when the waiter queued.
    pub since: M::U32,
}

impl<M: Machine> QNode<M> {
    /// A node with every field zero.
    pub fn new() -> Self {
        M::note_node();
        QNode {
            next: M::Ptr::new(null_mut()),
            status: M::U32::new(0),
            batch: M::U32::new(0),
            group: M::U32::new(0),
            shuffler: M::U32::new(0),
            resume: M::Ptr::new(null_mut()),
            since: M::U32::new(0),
        }
    }

    /// The node's address, as it is stored in `next` and tail words.
    pub fn as_ptr(&self) -> *mut Self {
        core::ptr::from_ref(self).cast_mut()
    }
}

impl<M: Machine> Default for QNode<M> {
    fn default() -> Self {
        Self::new()
    }
}

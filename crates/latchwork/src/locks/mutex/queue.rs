//! The attempt that queue locks have in common.

use crate::machine::{Machine, QNode, Word};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering::*;

/// An attempt at a lock whose holders and waiters queue at `tail`. It succeeds if `tail` is null, and fails if a thread
/// holds the lock. It never waits: its node gets into the queue only as the holder's.
///
/// `fresh` makes a node from the machine's pool, initialised for a holder without waiters. The letters are those of
/// [`mcs`](super::mcs); the other queue locks use the same two.
#[inline(always)]
pub(super) fn attempt<M: Machine>(
    tail: &M::Ptr<QNode<M>>,
    fresh: impl FnOnce() -> &'static QNode<M>,
) -> Option<NonNull<QNode<M>>> {
    // Relaxed: this look only saves the node where the exchange would fail.
    if !tail.load(Relaxed).is_null() {
        return None;
    }
    let node = fresh();
    // Success: acquire (A), with the last holder's exchange that made `tail` null, so that holder's critical section happens
    // before the caller's; release (C), with the successor's swap, which finds the node initialised. Failure: relaxed, because
    // the caller learns nothing from the thread that was faster.
    if tail.compare_exchange(null_mut(), node.as_ptr(), AcqRel, Relaxed).is_err() {
        // SAFETY: the caller took it from the pool above, and no other thread has seen it.
        unsafe { M::release_node(node) };
        return None;
    }
    Some(NonNull::from(node))
}

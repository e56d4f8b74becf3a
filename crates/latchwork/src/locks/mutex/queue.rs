//! The attempt that queue locks have in common.

use crate::machine::{Machine, QNode, Word};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering::*;

/// An attempt at a lock whose holders and waiters queue at `tail`. It succeeds if `tail` is null.
///
/// `fresh` makes a node from the machine's pool, initialised for a holder without waiters. Acquire pairs with the last
/// holder's exchange that made `tail` null. Release: the successor finds the node initialised.
#[inline(always)]
pub(super) fn attempt<M: Machine>(
    tail: &M::Ptr<QNode<M>>,
    fresh: impl FnOnce() -> &'static QNode<M>,
) -> Option<NonNull<QNode<M>>> {
    if !tail.load(Relaxed).is_null() {
        return None;
    }
    let node = fresh();
    if tail.compare_exchange(null_mut(), node.as_ptr(), AcqRel, Relaxed).is_err() {
        // SAFETY: the caller took it from the pool above, and no other thread has seen it.
        unsafe { M::release_node(node) };
        return None;
    }
    Some(NonNull::from(node))
}

//! What queue locks have in common.

use crate::machine::{Machine, QNode, Word};
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::Ordering::*;

/// An attempt at a lock whose holders and waiters queue at `tail`: it succeeds if there are none.
///
/// `fresh` makes a node from the machine's pool as a holder without waiters has it. Acquire: pairs with
/// the last holder's exchange that made `tail` null; release: for the successor, which finds our node
/// initialised.
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
        // SAFETY: taken above and never published.
        unsafe { M::release_node(node) };
        return None;
    }
    Some(NonNull::from(node))
}

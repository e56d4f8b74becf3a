//! Invitations: the head of a queue of sleepers lets others enter beside it.
//!
//! For [`shfl_rw`](crate::locks::rwlock::shfl_rw): a head that is inside as a reader invites the readers behind
//! it. The states of a node are in [`sleepers`](super::sleepers).

use super::shuffle::Waiter;
use super::sleepers::{INVITED, NODE_PARKED};
use crate::machine::{Machine, Word};
use core::sync::atomic::Ordering::*;

/// Unparks up to `most` of the waiters that are parked behind the head, `node`, and for which `may_enter` holds, up to
/// the first one for which it does not. They take the lock by themselves.
pub(crate) fn invite<M: Machine>(
    node: Waiter<'_, M>,
    mut most: u32,
    may_enter: impl Fn(Waiter<'_, M>) -> bool,
) {
    let mut current = node;
    while most > 0 {
        let next = current.next().load(Acquire); // (Q)
        if next.is_null() {
            return;
        }
        // SAFETY: nodes stay in the queue until the head, the caller, has left or takes them out.
        let waiter = unsafe { Waiter::at(next) };
        if !may_enter(waiter) {
            return;
        }
        // Relaxed: the waiter takes the lock by itself, and so comes after all earlier writers, as a newcomer does.
        if waiter.status().load(Relaxed) == NODE_PARKED
            && waiter.status().compare_exchange(NODE_PARKED, INVITED, Relaxed, Relaxed).is_ok()
        {
            M::wake(waiter.status(), 1);
            most -= 1;
        }
        current = waiter;
    }
}

//! The walk of a policy with several ranks: it sorts the queue behind the shuffler by rank.
//!
//! Source: Kashyap et al. 2019, section 7, which leaves such policies open. [`shuffle`](super::shuffle) has the rules of
//! the role and the queue; here is what ranks add to them.
//!
//! Behind the shuffler stand the waiters of rank 0, behind them those of rank 1, and so on, then the waiters that the
//! walk has not sorted. A waiter that is moved up passes all waiters that stand between its new place and its old one.
//! To bound that, each first waiter behind the new place counts the waiters that have passed it, in its `role`. At the
//! policy's quota it becomes a *wall*: no waiter behind it passes it until it has had the lock. A waiter with `n` waiters
//! in front of it is therefore passed by at most `(n + 1) * PATIENCE` others. (With a single rank, the wall is the first
//! waiter behind a full run.)

use super::policy::{MAX_RANKS, Policy};
use super::shuffle::{Cut, Waiter, begin_walk, behind, drop_abandoned, pass_role, resumed, same, take_out};
use crate::machine::{Machine, QNode, Word};
use core::sync::atomic::Ordering::*;

/// In a waiter's `role`: one waiter has passed it. Below it stands SHUFFLER.
const PASSED: u32 = 2;

/// [`shuffle`](super::shuffle::shuffle) for a policy with several ranks. `grouped` is called once, with the waiter that
/// is next in line at the end.
pub(super) fn sort<M: Machine, P: Policy>(
    node: Waiter<'_, M>,
    tail: &M::Ptr<QNode<M>>,
    quota: u32,
    cut: Cut,
    mut stop: impl FnMut() -> bool,
    mut grouped: impl FnMut(Waiter<'_, M>),
    abandoned: impl Fn(Waiter<'_, M>) -> bool,
) -> bool {
    let key = node.key().load(Relaxed);
    let Some(mut batch) = begin_walk(node, quota) else { return false };
    let mut stopped = false;
    // For each rank, the last waiter of it or of the ranks before it.
    let mut ends = [node; MAX_RANKS];
    // A shuffler that resumes only groups: it does not know where the other ranks end.
    let (mut before, ranks) = resumed(node).map_or((node, P::RANKS), |resume| (resume, 1));
    while batch < quota {
        let Some(current) = behind(before) else { break };
        let rank = P::rank::<M>(key, current.key().load(Relaxed));
        let mut wall = current.role().load(Relaxed) / PASSED >= quota;
        if abandoned(current) {
            if !drop_abandoned(before, current) {
                break;
            }
        } else if rank >= ranks {
            before = current;
        } else {
            let end = ends[rank];
            if same(before, end) {
                before = current;
            } else {
                if !take_out::<M, P>(tail, before, current) {
                    break;
                }
                let passed = end.next().load(Relaxed);
                // SAFETY: it stands between the shuffler and `current`.
                let count = unsafe { Waiter::at(passed) }.role();
                let now = count.load(Relaxed) + PASSED;
                count.store(now, Relaxed);
                wall |= now / PASSED >= quota;
                current.next().store(passed, Release);
                end.next().store(current.as_ptr(), Release);
            }
            if rank == 0 {
                batch += 1;
                current.batch().store(batch, Relaxed);
            }
            for later in &mut ends[rank..P::RANKS] {
                if same(*later, end) {
                    *later = current;
                }
            }
        }
        if wall {
            break;
        }
        if !P::THOROUGH && stop() {
            stopped = true;
            break;
        }
    }
    if let Some(next) = behind(node) {
        grouped(next); // it may have come after the walk
    }
    let last = if !P::HANDS_ON || P::THOROUGH && cut != Cut::Keeps {
        node
    } else if cut != Cut::Keeps && stopped && same(ends[0], node) {
        before
    } else {
        ends[0]
    };
    pass_role::<M, P>(last, before);
    true
}

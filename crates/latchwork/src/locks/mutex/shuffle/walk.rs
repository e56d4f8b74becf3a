//! The shuffler's walk through the queue behind it.
//!
//! The shuffler moves the waiters of rank 0 right behind itself: its own group, by default. A [`Policy`] with several ranks has
//! those of rank 1 moved behind them, and so on. Waiters without a rank stay behind all of these, in order of arrival.
//! A thorough walk also moves the last waiter of the queue: it first takes that waiter out of the tail word.
//!
//! *No waiter starves.* With several ranks, each first waiter behind a new place counts the waiters that were moved there
//! (`passed`). At the policy's quota it becomes a *wall*: no waiter behind it passes it until it has had the lock. A waiter with
//! `n` waiters in front of it is therefore passed by at most `(n + 1) * PATIENCE` others.

use super::{MAX_RANKS, Policy, Waiter, Walk, behind, drop_abandoned, same, take_out};
use crate::machine::{Machine, QNode, Word};
use core::ptr::null_mut;
use core::sync::atomic::Ordering::*;

/// The walk, for a run that has `batch` waiters and may have `quota`.
pub(super) fn walk<'a, M: Machine, P: Policy>(
    node: Waiter<'a, M>,
    from: Waiter<'a, M>,
    tail: &M::Ptr<QNode<M>>,
    mut batch: u32,
    quota: u32,
    mut stop: impl FnMut(Waiter<'_, M>) -> bool,
    abandoned: impl Fn(Waiter<'_, M>) -> bool,
) -> Walk<'a, M> {
    const { assert!(P::RANKS >= 1 && P::RANKS <= MAX_RANKS) };
    let key = node.key().load(Relaxed);
    // For each rank, the last waiter of it or of the ranks before it. A walk that does not begin at the shuffler only groups: it
    // does not know where the other ranks end.
    let mut ends = [node; MAX_RANKS];
    let ranks = if same(from, node) { P::RANKS } else { 1 };
    let (mut reached, mut stopped) = (from, false);
    while batch < quota && !stopped {
        let Some(current) = behind(reached) else { break };
        let rank = P::rank::<M>(key, current.key().load(Relaxed));
        let mut wall = P::RANKS > 1 && current.passed().load(Relaxed) >= quota;
        if abandoned(current) {
            if !drop_abandoned(reached, current) {
                break;
            }
        } else if rank >= ranks {
            reached = current;
        } else {
            let end = ends[rank];
            if same(reached, end) {
                reached = current;
            } else {
                if !(take_out(reached, current) || P::THOROUGH && take_out_last(tail, reached, current)) {
                    break;
                }
                let next = end.next().load(Relaxed);
                if P::RANKS > 1 {
                    // SAFETY: it stands between the shuffler and `current`.
                    let passed = unsafe { Waiter::at(next) }.passed();
                    let now = passed.load(Relaxed) + 1;
                    passed.store(now, Relaxed);
                    wall |= now >= quota;
                }
                current.next().store(next, Release);
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
        stopped = !P::THOROUGH && stop(reached);
    }
    Walk { last: ends[0], reached, stopped }
}

/// Takes `current`, the last waiter of the queue, out from behind `before`. `false`: a waiter has arrived behind it.
#[inline(always)]
fn take_out_last<M: Machine>(tail: &M::Ptr<QNode<M>>, before: Waiter<'_, M>, current: Waiter<'_, M>) -> bool {
    // From here on an arrival links itself to `before`. Release: (C) the arrival finds the node of `before` initialised, and
    // its `next` null.
    before.next().store(null_mut(), Relaxed);
    let taken = tail.compare_exchange(current.as_ptr(), before.as_ptr(), Release, Relaxed).is_ok();
    if !taken {
        before.next().store(current.as_ptr(), Release);
    }
    taken
}

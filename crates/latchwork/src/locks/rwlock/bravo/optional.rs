//! Downgrade, upgradable reads, recursive reads and fair unlock, over an underlying lock that has them.
//!
//! | operation | through the underlying lock | and the slots |
//! |---|---|---|
//! | downgrade | its downgrade | nothing: the writer has revoked the bias |
//! | upgradable read | its upgradable read; the slots are not used | plain readers may be in slots beside it |
//! | upgrade | its upgrade, after the revocation | the bias is revoked while readers still pass through the underlying lock |
//! | recursive read | its recursive read | a slot if the lock is biased, or if the caller has one already |
//! | fair unlock | its fair unlock | a reader in a slot empties it |

use super::bias::When;
use super::count::Count;
use super::publish::Publish;
use super::revoke::{Await, HOLD_TIME, Passing, Revoke};
use super::{Filled, RawBravo, ReadToken};
use crate::locks::rwlock::{RawDowngrade, RawFair, RawRecursive, RawUpgrade, Timeout};
use crate::machine::{Clock, Machine};
use core::sync::atomic::Ordering::*;

// SAFETY: a writer has revoked the bias, so all readers are in the underlying lock, and a downgraded writer is one of them.
unsafe impl<M: Machine, R: RawDowngrade<Machine = M>, P: Publish<M>, W: When, V: Revoke, S: Count>
    RawDowngrade for RawBravo<M, R, P, W, V, S>
{
    #[inline]
    unsafe fn downgrade(&self, token: Self::Write) -> Self::Read {
        // SAFETY: the token is from the caller's acquisition of the underlying lock.
        ReadToken::Slow(unsafe { self.lock.downgrade(token) })
    }
}

// SAFETY: the underlying lock keeps other writers and upgradable readers out. An upgrade holds it for writing when there
// is no reader in a slot: it has revoked the bias, and stayed counted, until it held the lock.
unsafe impl<M: Machine, R: RawUpgrade<Machine = M>, P: Publish<M>, W: When, V: Revoke, S: Count> RawUpgrade
    for RawBravo<M, R, P, W, V, S>
{
    type Upgradable = R::Upgradable;

    fn upgradable_within(&self, timeout: Timeout, watch: &dyn Fn()) -> Option<Self::Upgradable> {
        let watch = || {
            self.end_overdue_hold();
            watch();
        };
        match self.lock.upgradable_within(timeout, &watch) {
            None if matches!(timeout, Timeout::Immediate) && self.end_overdue_hold() => {
                self.lock.try_upgradable()
            }
            token => token,
        }
    }

    #[inline]
    unsafe fn unlock_upgradable(&self, token: Self::Upgradable) {
        // SAFETY: the token is from the caller's acquisition of the underlying lock.
        unsafe { self.lock.unlock_upgradable(token) }
    }

    #[inline]
    unsafe fn unlock_upgradable_fair(&self, token: Self::Upgradable) {
        // SAFETY: the token is from the caller's acquisition of the underlying lock.
        unsafe { self.lock.unlock_upgradable_fair(token) }
    }

    /// The bias is revoked while the underlying lock is upgradable, so that readers pass: one of those that the upgrade
    /// waits for may read again. Then the underlying lock is upgraded. Only a reader of the underlying lock may set the
    /// bias, so it cannot return after that, but it may have before.
    unsafe fn upgrade_within(
        &self,
        mut token: Self::Upgradable,
        timeout: Timeout,
    ) -> Result<Self::Write, Self::Upgradable> {
        loop {
            let start = M::now(Clock::Monotonic);
            let counted = self.join_revocation();
            if counted && !self.scan(timeout) {
                self.leave_revocation(false, self.revoked(start));
                return Err(token);
            }
            // SAFETY: the token is from the caller's acquisition of the underlying lock.
            match unsafe { self.lock.upgrade_within(token, timeout) } {
                Ok(write) if counted => {
                    self.leave_revocation(true, self.revoked(start));
                    return Ok(write);
                }
                // Relaxed as in `revoke`: the underlying lock is held for writing, and so it was when slots were last seen empty.
                Ok(write) if !self.bias.load(Relaxed).hides_readers() => return Ok(write),
                // SAFETY: the token is from the caller's acquisition of the underlying lock.
                Ok(write) => token = unsafe { self.lock.downgrade_to_upgradable(write) },
                Err(token) => {
                    if counted {
                        self.leave_revocation(false, self.revoked(start));
                    }
                    return Err(token);
                }
            }
        }
    }

    #[inline]
    unsafe fn downgrade_upgradable(&self, token: Self::Upgradable) -> Self::Read {
        // SAFETY: the token is from the caller's acquisition of the underlying lock.
        ReadToken::Slow(unsafe { self.lock.downgrade_upgradable(token) })
    }

    #[inline]
    unsafe fn downgrade_to_upgradable(&self, token: Self::Write) -> Self::Upgradable {
        // SAFETY: the token is from the caller's acquisition of the underlying lock.
        unsafe { self.lock.downgrade_to_upgradable(token) }
    }
}

// SAFETY: a recursive reader reads through a slot, or through the underlying lock. A writer that waits for readers in their
// slots has given that lock back, or will within a bounded time, and the caller does not queue meanwhile.
unsafe impl<M: Machine, R: RawRecursive<Machine = M>, P: Publish<M>, W: When, A: Await, S: Count> RawRecursive
    for RawBravo<M, R, P, W, Passing<A>, S>
{
    #[inline]
    fn read_recursive_within(&self, timeout: Timeout, watch: &dyn Fn()) -> Option<Self::Read> {
        match self.read_first() {
            None => self.read_recursive_slow(timeout, watch),
            token => token,
        }
    }
}

impl<M: Machine, R: RawRecursive<Machine = M>, P: Publish<M>, W: When, A: Await, S: Count>
    RawBravo<M, R, P, W, Passing<A>, S>
{
    #[inline(never)]
    fn read_recursive_slow(
        &self,
        timeout: Timeout,
        watch: &dyn Fn(),
    ) -> Option<ReadToken<M::Usize, R::Read>> {
        loop {
            // While a writer waits for the caller's slot, the underlying lock may be that writer's for a millisecond.
            if let token @ Some(_) = self.read_elsewhere().or_else(|| self.read_again()) {
                return token;
            }
            let lacks_slot = self.lacks_slot();
            // With a reader in a slot, perhaps the caller itself, the caller must not queue behind a writer.
            let timeout_below =
                if self.bias.load(Relaxed).hides_readers() { Timeout::Immediate } else { timeout };
            let watch_below = || {
                self.end_overdue_hold();
                watch();
            };
            if let Some(token) = self.lock.read_recursive_within(timeout_below, &watch_below) {
                self.after_slow_read(lacks_slot);
                return Some(ReadToken::Slow(token));
            }
            if matches!(timeout_below, Timeout::Immediate) && !matches!(timeout, Timeout::Immediate) {
                // The writer that holds the underlying lock changes the bias soon: a brief hold lasts a millisecond.
                let bias = self.bias.load(Relaxed);
                watch_below();
                let soon = timeout.at_most(M::now(Clock::Monotonic) + HOLD_TIME);
                A::until::<M, _, _>(self.bias.word(), soon, |now| now != bias.0);
                if !timeout.passed::<M>() {
                    continue;
                }
            }
            let ended = self.end_overdue_hold();
            return ended.then(|| self.lock.try_read_recursive()).flatten().map(ReadToken::Slow);
        }
    }
}

// SAFETY: the functions end the acquisitions as those of `RawRwLock` do.
unsafe impl<M: Machine, R: RawFair<Machine = M>, P: Publish<M>, W: When, V: Revoke, S: Count> RawFair
    for RawBravo<M, R, P, W, V, S>
{
    #[inline]
    fn is_awaited(&self) -> bool {
        self.bias.load(Relaxed).is_being_revoked() || self.lock.is_awaited()
    }

    #[inline]
    unsafe fn unlock_read_fair(&self, token: Self::Read) {
        match token {
            ReadToken::Fast(Filled(slot)) => Self::leave(slot),
            // SAFETY: the token is from the caller's acquisition of the underlying lock.
            ReadToken::Slow(token) => unsafe { self.lock.unlock_read_fair(token) },
        }
    }

    #[inline]
    unsafe fn unlock_write_fair(&self, token: Self::Write) {
        // SAFETY: the token is from the caller's acquisition of the underlying lock.
        unsafe { self.lock.unlock_write_fair(token) }
    }
}

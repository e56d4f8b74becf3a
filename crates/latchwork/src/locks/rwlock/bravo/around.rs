//! BRAVO around calls that the caller makes itself.
//!
//! glibc's `pthread_rwlock_t` reports errors, and a [`RawRwLock`] has no room for them. So the preloaded library calls
//! glibc's functions directly, and tells BRAVO before and after each call what it does:
//!
//! | the caller | before its call | after its call |
//! |---|---|---|
//! | reads | [`read_in_first_slot`](Around::read_in_first_slot), [`read_in_other_slot`](Around::read_in_other_slot); if one of them reads, there is no call | [`has_read_below`](Around::has_read_below) |
//! | writes | | [`has_written_below`](Around::has_written_below), if [`must_revoke`](Around::must_revoke) |

use super::RawBravo;
use super::bias::When;
use super::count::Count;
use super::publish::{Publish, Published};
use super::revoke::Revoke;
use crate::locks::for_assembly::BiasedRwLock;
use crate::locks::rwlock::{RawRwLock, Timeout};
use crate::machine::Machine;
use core::sync::atomic::Ordering::Relaxed;

/// BRAVO over a lock that the caller acquires itself. See the [module documentation](self).
pub trait Around: BiasedRwLock {
    /// Whether read acquisitions through slots are [recorded](RawRwLock::is_recorded).
    const RECORDS: bool;

    /// Reads through the first slot that the thread may use, if the lock is biased.
    fn read_in_first_slot(&self) -> Option<Self::Read>;

    /// Reads through another slot, after the attempt through the first one has failed.
    fn read_in_other_slot(&self) -> Option<Self::Read>;

    /// Reads once more, through a further slot, if the thread reads through a slot already: a revoking writer waits for the
    /// thread in any case. `None` if it does not, or has no free slot.
    fn read_in_further_slot(&self) -> Option<Self::Read>;

    /// Whether the lock is biased; for [`has_read_below`](Around::has_read_below).
    fn is_biased(&self) -> bool;

    /// Whether readers can be in slots: the lock is biased, or a writer waits for such readers.
    fn may_have_slot_readers(&self) -> bool;

    /// Whether a writer waits for readers in slots.
    fn is_being_revoked(&self) -> bool;

    /// The caller has acquired the underlying lock for reading. `was_biased`: the lock was biased before that, and had no
    /// free slot for the caller.
    ///
    /// # Safety
    ///
    /// The caller holds the underlying lock for reading: this may turn the bias on, and no writer must be inside then.
    unsafe fn has_read_below(&self, was_biased: bool);

    /// Whether the caller, which has acquired the underlying lock for writing, must call [`has_written_below`](Around::has_written_below).
    fn must_revoke(&self) -> bool;

    /// The caller has acquired the underlying lock for writing. Waits for the readers in slots. `None`: there was a reader
    /// in a slot until the timeout, and the underlying lock is released.
    ///
    /// # Safety
    ///
    /// The caller holds the underlying lock for writing, with this token.
    unsafe fn has_written_below(&self, token: Self::Write, timeout: Timeout) -> Option<Self::Write>;
}

impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W: When, V: Revoke, S: Count> Around
    for RawBravo<M, R, P, W, V, S>
{
    const RECORDS: bool = P::OWNED;

    #[inline(always)]
    fn read_in_first_slot(&self) -> Option<Self::Read> {
        // SAFETY: `read_fast` empties the slot unless the lock is biased, and then this thread reads it.
        match unsafe { P::publish(self.address(), || RawBravo::is_biased(self)) } {
            Published::In(slot) => self.read_fast(slot),
            _ => None,
        }
    }

    fn read_in_other_slot(&self) -> Option<Self::Read> {
        self.read_elsewhere()
    }

    #[cold]
    fn read_in_further_slot(&self) -> Option<Self::Read> {
        self.read_again()
    }

    #[inline(always)]
    fn is_biased(&self) -> bool {
        RawBravo::is_biased(self)
    }

    #[inline(always)]
    fn may_have_slot_readers(&self) -> bool {
        RawBravo::may_have_slot_readers(self)
    }

    fn is_being_revoked(&self) -> bool {
        self.bias.load(Relaxed).is_being_revoked()
    }

    #[inline(always)]
    unsafe fn has_read_below(&self, was_biased: bool) {
        self.after_slow_read(S::ON && was_biased);
    }

    #[inline(always)]
    fn must_revoke(&self) -> bool {
        let bias = self.bias.load(Relaxed);
        let revoke = bias.is_on() || V::PASSING && bias.is_revoking();
        if !revoke {
            self.note_write();
        }
        revoke
    }

    #[cold]
    unsafe fn has_written_below(&self, token: Self::Write, timeout: Timeout) -> Option<Self::Write> {
        self.revoke(token, timeout)
    }
}

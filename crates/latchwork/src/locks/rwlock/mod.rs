//! Reader-writer locks: one algorithm, one file.
//!
//! Every lock implements [`RawRwLock`], generic over its machine; [`Api`] fits any of them to
//! [`lock_api`].

use super::backoff;
pub use super::{Info, Suspension, Token};
use crate::machine::{Deadline, Machine, Native};

pub mod bravo;
pub mod pf_q;
pub mod pf_t;
pub mod shfl_rw;

// What the others are compared with.
#[cfg(feature = "all-locks")]
pub mod cohort_rw;
#[cfg(feature = "all-locks")]
pub mod exclusive;
#[cfg(feature = "all-locks")]
pub mod mcs_rw;
#[cfg(feature = "all-locks")]
pub mod percpu;
#[cfg(feature = "all-locks")]
pub mod rwsem;

mod api;
mod api_optional;
mod optional;
mod phases;
mod wait;
pub use api::Api;
pub use api_optional::ReadRecursive;
pub use optional::{RawDowngrade, RawFair, RawRecursive, RawUpgrade};
pub use wait::Timeout;

#[cfg(test)]
mod tests;

/// Which part of a lock an acquisition used, as a token.
#[derive(Copy, Clone, Debug)]
pub struct Index(pub(crate) u32);

impl Token for Index {
    const HAS_FREE_BIT: bool = true;
    fn into_word(self) -> usize {
        (self.0 as usize) << 1
    }
    unsafe fn from_word(word: usize) -> Self {
        Index((word >> 1) as u32)
    }
}

/// A reader-writer lock over machine [`Machine`](RawRwLock::Machine). All-zero bytes are an
/// unlocked lock.
///
/// A thread must not read-lock again while it holds a read lock, unless the algorithm's
/// [`Info::fairness`] says that readers pass waiting writers: with a writer waiting in between,
/// both would wait for ever.
///
/// # Safety
///
/// A write token is outstanding alone; acquire and release order memory accordingly; `new_in()` on
/// the native machine is all-zero bytes.
pub unsafe trait RawRwLock: Send + Sync + Sized + 'static {
    /// The machine it runs on.
    type Machine: Machine;
    /// What `read` hands to `unlock_read`.
    type Read: Token;
    /// What `write` hands to `unlock_write`.
    type Write: Token;
    /// The same lock with statistics of how readers got in, see [`bravo::count`]; itself if it has none.
    type Counted: RawRwLock<Machine = Self::Machine>;
    /// Its description.
    const INFO: Info;
    /// Whether a reader inside keeps no other reader out. All locks have it so but BRAVO over a mutex.
    const SHARES: bool = true;

    /// An unlocked lock, on any machine.
    fn new_in() -> Self;

    /// Acquires for reading, waiting as long as it takes.
    fn read(&self) -> Self::Read;

    /// Acquires for reading if that is possible without waiting.
    fn try_read(&self) -> Option<Self::Read>;

    /// The uncontended part of [`try_read`](RawRwLock::try_read), for callers that go on to it: it may
    /// fail although the lock can be read.
    #[inline(always)]
    fn try_read_weak(&self) -> Option<Self::Read> {
        self.try_read()
    }

    /// Acquires for reading unless the deadline passes first. The default polls, outside any queue.
    fn read_until(&self, deadline: Deadline) -> Option<Self::Read> {
        backoff::poll::<Self::Machine, _>(deadline, || self.try_read())
    }

    /// [`read`](RawRwLock::read) or [`read_until`](RawRwLock::read_until). A lock whose waiters wake by themselves from
    /// time to time calls `watch` then, for a caller that knows what may keep the lock from being released.
    #[inline]
    fn read_watching(&self, deadline: Option<Deadline>, _watch: &dyn Fn()) -> Option<Self::Read> {
        match deadline {
            Some(deadline) => self.read_until(deadline),
            None => Some(self.read()),
        }
    }

    /// Ends a read acquisition.
    ///
    /// # Safety
    ///
    /// `token` came from the acquisition that this ends.
    unsafe fn unlock_read(&self, token: Self::Read);

    /// Whether the lock itself remembers that the calling thread, which has just got `token`, reads:
    /// then [`unlock_own`](RawRwLock::unlock_own) ends the acquisition as well, and an adapter that
    /// has no room for tokens need not keep this one.
    #[inline(always)]
    fn remembers(_token: &Self::Read) -> bool {
        false
    }

    /// Whether the calling thread has a read acquisition that the lock remembers.
    #[inline(always)]
    fn reads_own(&self) -> bool {
        false
    }

    /// Ends a read acquisition of the calling thread that the lock remembers, if there is one. Does not
    /// look at the lock, only at where it is.
    ///
    /// # Safety
    ///
    /// Its token is not used.
    #[inline(always)]
    unsafe fn unlock_own(&self) -> bool {
        false
    }

    /// The same for whichever thread has one, and does not end it meanwhile.
    ///
    /// # Safety
    ///
    /// As [`unlock_own`](RawRwLock::unlock_own).
    unsafe fn unlock_of_another(&self) -> bool {
        false
    }

    /// Whether the lock remembers any reader.
    fn is_remembered(&self) -> bool {
        false
    }

    /// Makes a lock that has been set to zero know the readers again that it remembered before.
    ///
    /// # Safety
    ///
    /// Nobody uses the lock meanwhile, and no writer holds it.
    unsafe fn remember_again(&self) {}

    /// Acquires for writing, waiting as long as it takes.
    fn write(&self) -> Self::Write;

    /// Acquires for writing if that is possible without waiting for the underlying lock.
    fn try_write(&self) -> Option<Self::Write>;

    /// Acquires for writing unless the deadline passes first. The default polls, outside any queue.
    fn write_until(&self, deadline: Deadline) -> Option<Self::Write> {
        backoff::poll::<Self::Machine, _>(deadline, || self.try_write())
    }

    /// The same for writing as [`read_watching`](RawRwLock::read_watching).
    #[inline]
    fn write_watching(&self, deadline: Option<Deadline>, _watch: &dyn Fn()) -> Option<Self::Write> {
        match deadline {
            Some(deadline) => self.write_until(deadline),
            None => Some(self.write()),
        }
    }

    /// Ends a write acquisition.
    ///
    /// # Safety
    ///
    /// `token` came from the acquisition that this ends.
    unsafe fn unlock_write(&self, token: Self::Write);

    /// Whether somebody held it, for reading or writing, a moment ago.
    fn is_locked(&self) -> bool;

    /// Whether somebody held it for writing a moment ago.
    fn is_write_locked(&self) -> bool;
}

/// A reader-writer lock that can be made in a constant, on the native machine.
pub trait ConstNew: RawRwLock<Machine = Native> {
    /// An unlocked lock.
    const NEW: Self;
}

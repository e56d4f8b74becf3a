//! What some reader-writer locks can do beyond [`RawRwLock`]: downgrade, upgradable reads, recursive reads, fair unlock.
//!
//! | trait | what a holder or a reader can do | locks |
//! |---|---|---|
//! | [`RawDowngrade`] | a writer becomes a reader | `shfl-rw`, `pf-t`, `pf-q`, `percpu`, `rwsem`, `cohort-rw`; BRAVO over any of them |
//! | [`RawUpgrade`] | an upgradable reader becomes a writer | `shfl-rw`, `pf-t`, `pf-q`; BRAVO over any of them |
//! | [`RawRecursive`] | a reader reads again while a writer waits | `shfl-rw`, `rwsem`; BRAVO that lets readers pass a revocation |
//! | [`RawFair`] | a holder leaves the lock to a waiter, past threads that have just come | `shfl-rw`; the FIFO locks; BRAVO over any of them |
//!
//! [`Api`](super::Api) fits each to the trait of the same kind in [`lock_api`]; [`ReadRecursive`](super::ReadRecursive) is
//! for recursive reads, for which there is none.

use super::{RawRwLock, Timeout, Token};
use crate::machine::Deadline;

/// A lock that lets a writer become a reader.
///
/// # Safety
///
/// From the call of [`downgrade`](RawDowngrade::downgrade) until the read acquisition ends, no other thread holds the
/// lock for writing. The writer's section happens before the sections of all readers that enter afterwards.
pub unsafe trait RawDowngrade: RawRwLock {
    /// Turns the caller's write acquisition into a read acquisition.
    ///
    /// # Safety
    ///
    /// `token` came from the write acquisition that this ends.
    unsafe fn downgrade(&self, token: Self::Write) -> Self::Read;
}

/// A lock with a third kind of acquisition, the *upgradable read*. Its holder reads beside plain readers, keeps writers
/// and other upgradable readers out, and can become a writer without letting another writer in between.
///
/// | holder inside | a reader enters | an upgradable reader enters | a writer enters |
/// |---|---|---|---|
/// | readers | yes | yes | no |
/// | an upgradable reader | yes | no | no |
/// | an upgradable reader that upgrades | no | no | no |
/// | a writer | no | no | no |
///
/// Two threads cannot deadlock by upgrading: only one of them is the upgradable reader. A thread that holds a plain read
/// acquisition as well deadlocks with its own upgrade.
///
/// # Safety
///
/// The table holds. A successful upgrade happens after the sections of all readers that have left, and no other writer
/// enters between the upgradable acquisition and the write acquisition. An attempt to upgrade that fails leaves the
/// caller with its upgradable acquisition.
pub unsafe trait RawUpgrade: RawDowngrade {
    /// What an upgradable acquisition hands to its release.
    type Upgradable: Token;

    /// Acquires an upgradable read unless the timeout passes first. A waiter calls `watch` when
    /// its sleep has ended by itself, as in [`read_watching`](RawRwLock::read_watching).
    fn upgradable_within(&self, timeout: Timeout, watch: &dyn Fn()) -> Option<Self::Upgradable>;

    /// Acquires an upgradable read, waiting as long as it takes.
    #[inline]
    fn upgradable(&self) -> Self::Upgradable {
        let Some(token) = self.upgradable_within(Timeout::Never, &|| ()) else {
            unreachable!("without a deadline")
        };
        token
    }

    /// Acquires an upgradable read if that is possible without waiting.
    #[inline]
    fn try_upgradable(&self) -> Option<Self::Upgradable> {
        self.upgradable_within(Timeout::Immediate, &|| ())
    }

    /// Acquires an upgradable read unless the deadline passes first.
    #[inline]
    fn upgradable_until(&self, deadline: Deadline) -> Option<Self::Upgradable> {
        self.upgradable_within(Timeout::At(deadline), &|| ())
    }

    /// Ends an upgradable acquisition.
    ///
    /// # Safety
    ///
    /// `token` came from the upgradable acquisition that this ends.
    unsafe fn unlock_upgradable(&self, token: Self::Upgradable);

    /// Ends an upgradable acquisition, and leaves the lock to a waiter if there is one. See [`RawFair`].
    ///
    /// # Safety
    ///
    /// `token` came from the upgradable acquisition that this ends.
    #[inline]
    unsafe fn unlock_upgradable_fair(&self, token: Self::Upgradable) {
        // SAFETY: the token is from the caller's acquisition, by this function's condition.
        unsafe { self.unlock_upgradable(token) }
    }

    /// Turns an upgradable acquisition into a write acquisition unless the timeout passes first. Then the caller has
    /// its upgradable acquisition back, as the error.
    ///
    /// # Safety
    ///
    /// `token` came from an upgradable acquisition of the caller.
    unsafe fn upgrade_within(
        &self,
        token: Self::Upgradable,
        timeout: Timeout,
    ) -> Result<Self::Write, Self::Upgradable>;

    /// Turns an upgradable acquisition into a write acquisition, waiting for the readers inside as long as it takes.
    ///
    /// # Safety
    ///
    /// `token` came from an upgradable acquisition of the caller.
    #[inline]
    unsafe fn upgrade(&self, token: Self::Upgradable) -> Self::Write {
        // SAFETY: the token is from the caller's acquisition, by this function's condition.
        let Ok(token) = (unsafe { self.upgrade_within(token, Timeout::Never) }) else {
            unreachable!("without a deadline")
        };
        token
    }

    /// Turns an upgradable acquisition into a write acquisition if that is possible without waiting.
    ///
    /// # Safety
    ///
    /// `token` came from an upgradable acquisition of the caller.
    #[inline]
    unsafe fn try_upgrade(&self, token: Self::Upgradable) -> Result<Self::Write, Self::Upgradable> {
        // SAFETY: the token is from the caller's acquisition, by this function's condition.
        unsafe { self.upgrade_within(token, Timeout::Immediate) }
    }

    /// Turns an upgradable acquisition into a write acquisition unless the deadline passes first.
    ///
    /// # Safety
    ///
    /// `token` came from an upgradable acquisition of the caller.
    #[inline]
    unsafe fn upgrade_until(
        &self,
        token: Self::Upgradable,
        deadline: Deadline,
    ) -> Result<Self::Write, Self::Upgradable> {
        // SAFETY: the token is from the caller's acquisition, by this function's condition.
        unsafe { self.upgrade_within(token, Timeout::At(deadline)) }
    }

    /// Turns an upgradable acquisition into a read acquisition: another thread may then become the upgradable reader.
    ///
    /// # Safety
    ///
    /// `token` came from the upgradable acquisition that this ends.
    unsafe fn downgrade_upgradable(&self, token: Self::Upgradable) -> Self::Read;

    /// Turns a write acquisition into an upgradable acquisition. No other writer enters in between.
    ///
    /// # Safety
    ///
    /// `token` came from the write acquisition that this ends.
    unsafe fn downgrade_to_upgradable(&self, token: Self::Write) -> Self::Upgradable;
}

/// A lock that a reader may acquire again although a writer waits.
///
/// # Safety
///
/// As [`RawRwLock`]. And as long as a reader is inside, a recursive read does not wait for a writer that waits, nor for
/// an upgradable reader that upgrades.
pub unsafe trait RawRecursive: RawRwLock {
    /// Acquires for reading, past all waiting writers, unless the timeout passes first. It waits only for a writer that
    /// is inside, and, for a bounded time, for one that is about to turn back. A waiter calls `watch` when its
    /// sleep has ended by itself, as in [`read_watching`](RawRwLock::read_watching).
    fn read_recursive_within(&self, timeout: Timeout, watch: &dyn Fn()) -> Option<Self::Read>;

    /// Acquires for reading, past all waiting writers.
    #[inline]
    fn read_recursive(&self) -> Self::Read {
        let Some(token) = self.read_recursive_within(Timeout::Never, &|| ()) else {
            unreachable!("without a deadline")
        };
        token
    }

    /// Acquires for reading, past all waiting writers, if no writer is inside.
    #[inline]
    fn try_read_recursive(&self) -> Option<Self::Read> {
        self.read_recursive_within(Timeout::Immediate, &|| ())
    }

    /// Acquires for reading, past all waiting writers, unless the deadline passes first.
    #[inline]
    fn read_recursive_until(&self, deadline: Deadline) -> Option<Self::Read> {
        self.read_recursive_within(Timeout::At(deadline), &|| ())
    }
}

/// A lock that a holder can leave to a waiter. Threads that come afterwards do not acquire it before that waiter, unless the
/// waiter is suspended. A lock that is FIFO or phase-fair anyway has the functions of [`RawRwLock`] here.
///
/// # Safety
///
/// As [`RawRwLock`].
pub unsafe trait RawFair: RawRwLock {
    /// Whether a thread may be waiting for the lock, so that a fair unlock may help it.
    #[inline]
    fn is_awaited(&self) -> bool {
        true
    }

    /// Ends a read acquisition, and leaves the lock to a waiter if there is one.
    ///
    /// # Safety
    ///
    /// `token` came from the acquisition that this ends.
    #[inline]
    unsafe fn unlock_read_fair(&self, token: Self::Read) {
        // SAFETY: the token is from the caller's acquisition, by this function's condition.
        unsafe { self.unlock_read(token) }
    }

    /// Ends a write acquisition, and leaves the lock to a waiter if there is one.
    ///
    /// # Safety
    ///
    /// `token` came from the acquisition that this ends.
    #[inline]
    unsafe fn unlock_write_fair(&self, token: Self::Write) {
        // SAFETY: the token is from the caller's acquisition, by this function's condition.
        unsafe { self.unlock_write(token) }
    }
}

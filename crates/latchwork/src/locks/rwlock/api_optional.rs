//! What a lock can do beyond [`RawRwLock`](super::RawRwLock), behind [`lock_api`].

use super::{Api, ConstNew, RawDowngrade, RawFair, RawRecursive, RawUpgrade};
use crate::locks::mutex::Held;
use crate::locks::relock;
use lock_api::{RwLock, RwLockReadGuard};
#[cfg(feature = "std")]
use {
    crate::locks::timed,
    std::time::{Duration, Instant},
};

/// Recursive reads of an [`RwLock`] over a [`RawRecursive`] algorithm. (`lock_api` has no trait for them.)
///
/// A thread that holds a read guard may read the lock again with these functions, also while a writer waits. With
/// [`RwLock::read`] it would queue behind that writer, which waits for the guard: both would wait for ever.
///
/// Recursive reads pass every waiting writer. A program in which readers overlap without end, and all of them read with
/// these functions, keeps writers out without end.
///
/// ```
/// use latchwork::locks::Bravo2dShflRwLock;
/// use latchwork::locks::rwlock::ReadRecursive;
///
/// let lock = Bravo2dShflRwLock::new(7);
/// let outer = lock.read();
/// let inner = lock.read_recursive();
/// assert_eq!(*outer + *inner, 14);
/// ```
pub trait ReadRecursive<R: ConstNew, T: ?Sized> {
    /// Reads; waits only while a writer is inside.
    fn read_recursive(&self) -> RwLockReadGuard<'_, Api<R>, T>;
    /// Reads if no writer is inside. If the caller reads already, it fails at most in the moment in which a writer looks whether
    /// readers are inside.
    fn try_read_recursive(&self) -> Option<RwLockReadGuard<'_, Api<R>, T>>;
    /// Reads unless a writer is inside until the end of `timeout`.
    #[cfg(feature = "std")]
    fn try_read_recursive_for(&self, timeout: Duration) -> Option<RwLockReadGuard<'_, Api<R>, T>>;
    /// Reads unless a writer is inside until `deadline`.
    #[cfg(feature = "std")]
    fn try_read_recursive_until(&self, deadline: Instant) -> Option<RwLockReadGuard<'_, Api<R>, T>>;
}

impl<R: ConstNew + RawRecursive, T: ?Sized> ReadRecursive<R, T> for RwLock<Api<R>, T> {
    #[inline]
    fn read_recursive(&self) -> RwLockReadGuard<'_, Api<R>, T> {
        // SAFETY: the raw lock is used to acquire it for reading, and the guard is the only one for that acquisition.
        unsafe { self.make_read_guard_unchecked(Held::new(self.raw().0.read_recursive())) }
    }

    #[inline]
    fn try_read_recursive(&self) -> Option<RwLockReadGuard<'_, Api<R>, T>> {
        // SAFETY: as in `read_recursive`, if there is a token.
        unsafe {
            let token = self.raw().0.try_read_recursive()?;
            Some(self.make_read_guard_unchecked(Held::new(token)))
        }
    }

    #[cfg(feature = "std")]
    fn try_read_recursive_for(&self, timeout: Duration) -> Option<RwLockReadGuard<'_, Api<R>, T>> {
        // SAFETY: as in `read_recursive`, if there is a token.
        unsafe {
            let token = self.raw().0.read_recursive_until(timed::after(timeout))?;
            Some(self.make_read_guard_unchecked(Held::new(token)))
        }
    }

    #[cfg(feature = "std")]
    fn try_read_recursive_until(&self, deadline: Instant) -> Option<RwLockReadGuard<'_, Api<R>, T>> {
        // SAFETY: as in `read_recursive`, if there is a token.
        unsafe {
            let token = self.raw().0.read_recursive_until(timed::at(deadline))?;
            Some(self.make_read_guard_unchecked(Held::new(token)))
        }
    }
}

// SAFETY: `RawDowngrade` promises it: no writer enters in between, and the section happens before later readers.
unsafe impl<R: ConstNew + RawDowngrade> lock_api::RawRwLockDowngrade for Api<R> {
    #[inline]
    unsafe fn downgrade(&self, guard: Self::ExclusiveGuard) -> Self::SharedGuard {
        // SAFETY: the guard's token is from the write acquisition that the guard stands for.
        Held::new(unsafe { self.0.downgrade(guard.token) })
    }
}

// SAFETY: `RawUpgrade` promises it: one upgradable reader at a time, beside readers, and no writer before its upgrade.
unsafe impl<R: ConstNew + RawUpgrade> lock_api::RawRwLockUpgrade for Api<R> {
    type UpgradableGuard = Held<R::Upgradable>;

    #[inline]
    fn lock_upgradable(&self) -> Self::UpgradableGuard {
        Held::new(self.0.upgradable())
    }

    #[inline]
    fn try_lock_upgradable(&self) -> Option<Self::UpgradableGuard> {
        self.0.try_upgradable().map(Held::new)
    }

    #[inline]
    unsafe fn unlock_upgradable(&self, guard: Self::UpgradableGuard) {
        // SAFETY: the guard's token is from the upgradable acquisition that the guard stands for.
        unsafe { self.0.unlock_upgradable(guard.token) }
    }

    #[inline]
    unsafe fn upgrade(&self, guard: Self::UpgradableGuard) -> Self::ExclusiveGuard {
        // SAFETY: the guard's token is from the upgradable acquisition that the guard stands for.
        Held::new(unsafe { self.0.upgrade(guard.token) })
    }

    #[inline]
    unsafe fn try_upgrade(
        &self,
        guard: Self::UpgradableGuard,
    ) -> Result<Self::ExclusiveGuard, Self::UpgradableGuard> {
        // SAFETY: the guard's token is from the upgradable acquisition that the guard stands for.
        unsafe { self.0.try_upgrade(guard.token) }.map(Held::new).map_err(Held::new)
    }
}

// SAFETY: `RawUpgrade` promises it: no writer enters in between.
unsafe impl<R: ConstNew + RawUpgrade> lock_api::RawRwLockUpgradeDowngrade for Api<R> {
    #[inline]
    unsafe fn downgrade_upgradable(&self, guard: Self::UpgradableGuard) -> Self::SharedGuard {
        // SAFETY: the guard's token is from the upgradable acquisition that the guard stands for.
        Held::new(unsafe { self.0.downgrade_upgradable(guard.token) })
    }

    #[inline]
    unsafe fn downgrade_to_upgradable(&self, guard: Self::ExclusiveGuard) -> Self::UpgradableGuard {
        // SAFETY: the guard's token is from the write acquisition that the guard stands for.
        Held::new(unsafe { self.0.downgrade_to_upgradable(guard.token) })
    }
}

// SAFETY: the fair functions end the acquisition; after a bump the guard has the token of a new one.
unsafe impl<R: ConstNew + RawFair> lock_api::RawRwLockFair for Api<R> {
    #[inline]
    unsafe fn unlock_shared_fair(&self, guard: Self::SharedGuard) {
        // SAFETY: the guard's token is from the read acquisition that the guard stands for.
        unsafe { self.0.unlock_read_fair(guard.token) }
    }

    #[inline]
    unsafe fn unlock_exclusive_fair(&self, guard: Self::ExclusiveGuard) {
        // SAFETY: the guard's token is from the write acquisition that the guard stands for.
        unsafe { self.0.unlock_write_fair(guard.token) }
    }

    #[inline]
    unsafe fn bump_shared(&self, guard: &mut Self::SharedGuard) {
        if self.0.is_awaited() {
            // SAFETY: the guard's token is from the read acquisition that the guard stands for, and is replaced.
            unsafe { self.0.unlock_read_fair(guard.token) };
            relock(guard, || self.0.read());
        }
    }

    #[inline]
    unsafe fn bump_exclusive(&self, guard: &mut Self::ExclusiveGuard) {
        if self.0.is_awaited() {
            // SAFETY: the guard's token is from the write acquisition that the guard stands for, and is replaced.
            unsafe { self.0.unlock_write_fair(guard.token) };
            relock(guard, || self.0.write());
        }
    }
}

// SAFETY: the fair functions end the acquisition; after a bump the guard has the token of a new one.
unsafe impl<R: ConstNew + RawUpgrade + RawFair> lock_api::RawRwLockUpgradeFair for Api<R> {
    #[inline]
    unsafe fn unlock_upgradable_fair(&self, guard: Self::UpgradableGuard) {
        // SAFETY: the guard's token is from the upgradable acquisition that the guard stands for.
        unsafe { self.0.unlock_upgradable_fair(guard.token) }
    }

    #[inline]
    unsafe fn bump_upgradable(&self, guard: &mut Self::UpgradableGuard) {
        if self.0.is_awaited() {
            // SAFETY: the guard's token is from the upgradable acquisition that the guard stands for, and is replaced.
            unsafe { self.0.unlock_upgradable_fair(guard.token) };
            relock(guard, || self.0.upgradable());
        }
    }
}

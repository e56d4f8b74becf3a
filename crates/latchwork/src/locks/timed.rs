//! Timed acquisition behind [`lock_api`], with [`Duration`] and [`Instant`].
//!
//! The locks themselves take a [`Deadline`], which says its clock and exists without the standard library. `Instant`
//! does not, so that this file belongs to the feature `std`.

use super::{condvar, mutex, rwlock};
use crate::machine::{Deadline, Native, Wait};
use core::time::Duration;
use std::time::Instant;

/// The deadline at the end of `timeout`, which begins now. A timeout beyond the clock's range never ends.
pub(crate) fn after(timeout: Duration) -> Deadline {
    Deadline::after::<Native>(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

/// The deadline at `instant`, or a few nanoseconds later: an `Instant` does not tell its number on the clock, only its
/// distance from now.
pub(crate) fn at(instant: Instant) -> Deadline {
    after(instant.saturating_duration_since(Instant::now()))
}

// SAFETY: a guard is returned only with the token of an acquisition, from `RawMutex::lock_until`.
unsafe impl<L: mutex::ConstNew> lock_api::RawMutexTimed for mutex::Api<L> {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_for(&self, timeout: Duration) -> Option<Self::Guard> {
        self.0.lock_until(after(timeout)).map(mutex::Held::new)
    }

    fn try_lock_until(&self, instant: Instant) -> Option<Self::Guard> {
        self.0.lock_until(at(instant)).map(mutex::Held::new)
    }
}

// SAFETY: a guard is returned only with the token of an acquisition, from `RawRwLock::read_until` or `write_until`.
unsafe impl<R: rwlock::ConstNew> lock_api::RawRwLockTimed for rwlock::Api<R> {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_shared_for(&self, timeout: Duration) -> Option<Self::SharedGuard> {
        self.0.read_until(after(timeout)).map(mutex::Held::new)
    }

    fn try_lock_shared_until(&self, instant: Instant) -> Option<Self::SharedGuard> {
        self.0.read_until(at(instant)).map(mutex::Held::new)
    }

    fn try_lock_exclusive_for(&self, timeout: Duration) -> Option<Self::ExclusiveGuard> {
        self.0.write_until(after(timeout)).map(mutex::Held::new)
    }

    fn try_lock_exclusive_until(&self, instant: Instant) -> Option<Self::ExclusiveGuard> {
        self.0.write_until(at(instant)).map(mutex::Held::new)
    }
}

// SAFETY: a guard is returned only with the token of an acquisition, from `RawUpgrade`.
unsafe impl<R: rwlock::ConstNew + rwlock::RawUpgrade> lock_api::RawRwLockUpgradeTimed for rwlock::Api<R> {
    fn try_lock_upgradable_for(&self, timeout: Duration) -> Option<Self::UpgradableGuard> {
        self.0.upgradable_until(after(timeout)).map(mutex::Held::new)
    }

    fn try_lock_upgradable_until(&self, instant: Instant) -> Option<Self::UpgradableGuard> {
        self.0.upgradable_until(at(instant)).map(mutex::Held::new)
    }

    unsafe fn try_upgrade_for(
        &self,
        guard: Self::UpgradableGuard,
        timeout: Duration,
    ) -> Result<Self::ExclusiveGuard, Self::UpgradableGuard> {
        // SAFETY: the guard's token is from the upgradable acquisition that the guard stands for.
        unsafe { self.0.upgrade_until(guard.token, after(timeout)) }
            .map(mutex::Held::new)
            .map_err(mutex::Held::new)
    }

    unsafe fn try_upgrade_until(
        &self,
        guard: Self::UpgradableGuard,
        instant: Instant,
    ) -> Result<Self::ExclusiveGuard, Self::UpgradableGuard> {
        // SAFETY: the guard's token is from the upgradable acquisition that the guard stands for.
        unsafe { self.0.upgrade_until(guard.token, at(instant)) }
            .map(mutex::Held::new)
            .map_err(mutex::Held::new)
    }
}

// SAFETY: `wait_deadline` keeps the promises of `lock_api::RawCondvar::wait`, with a deadline or without.
unsafe impl<L: mutex::ConstNew> lock_api::RawCondvarTimed for condvar::Api<L> {
    fn checked_duration_to_instant(timeout: &Duration) -> Option<Instant> {
        Instant::now().checked_add(*timeout)
    }

    unsafe fn wait_until(
        &self,
        mutex: &Self::RawMutex,
        guard: &mut mutex::Held<L::Token>,
        instant: &Instant,
    ) -> bool {
        // SAFETY: the caller holds `mutex`, with the acquisition in `guard`.
        unsafe { self.wait_deadline(mutex, guard, Some(at(*instant))) == Wait::TimedOut }
    }

    unsafe fn wait_for(
        &self,
        mutex: &Self::RawMutex,
        guard: &mut mutex::Held<L::Token>,
        timeout: &Duration,
    ) -> bool {
        // SAFETY: the caller holds `mutex`, with the acquisition in `guard`.
        unsafe { self.wait_deadline(mutex, guard, Some(after(*timeout))) == Wait::TimedOut }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_not_before_its_instant() {
        let instant = Instant::now() + Duration::from_millis(20);
        let deadline = at(instant);
        while !deadline.passed::<Native>() {
            std::thread::yield_now();
        }
        assert!(Instant::now() >= instant);
        assert!(at(Instant::now()).passed::<Native>());
        assert_eq!(after(Duration::MAX).nanos, u64::MAX);
    }
}

//! Any [`RawMutex`](super::RawMutex) behind [`lock_api`].

use super::ConstNew;
use crate::machine::{Deadline, Native};
use core::time::Duration;
use lock_api::GuardNoSend;

/// Fits a raw mutex to [`lock_api::RawMutex`].
#[repr(transparent)]
#[derive(Debug)]
pub struct Api<L>(pub(crate) L);

/// What a guard carries: the acquisition's token. Not `Send`: queue nodes and reader slots belong
/// to the thread that took them.
pub struct Held<T> {
    pub(crate) token: T,
    _not_send: GuardNoSend,
}

impl<T> Held<T> {
    #[inline(always)]
    pub(crate) const fn new(token: T) -> Self {
        Held { token, _not_send: GuardNoSend::new() }
    }
}

/// The deadline `timeout` from now, for `try_lock_until` and `wait_until`.
pub fn deadline(timeout: Duration) -> Deadline {
    Deadline::after::<Native>(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
}

// SAFETY: exclusion and orderings are those of `RawMutex`; tokens are plain values, so forgetting a
// guard leaks at most a queue node; no lock's memory is pointed to by anything a holder leaves
// behind except its own queue, which is empty when the lock is exclusively owned.
unsafe impl<L: ConstNew> lock_api::RawMutex for Api<L> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Api(L::NEW);
    type Guard = Held<L::Token>;

    #[inline]
    fn lock(&self) -> Self::Guard {
        Held::new(self.0.lock())
    }

    #[inline]
    fn try_lock(&self) -> Option<Self::Guard> {
        self.0.try_lock().map(Held::new)
    }

    #[inline]
    unsafe fn unlock(&self, guard: Self::Guard) {
        // SAFETY: the guard's token is from the acquisition it stands for.
        unsafe { self.0.unlock(guard.token) }
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: as above.
unsafe impl<L: ConstNew> lock_api::RawMutexTimed for Api<L> {
    type Duration = Duration;
    /// Nanoseconds on the monotonic clock; see [`deadline`].
    type Instant = Deadline;

    fn try_lock_for(&self, timeout: Duration) -> Option<Self::Guard> {
        self.0.lock_until(deadline(timeout)).map(Held::new)
    }

    fn try_lock_until(&self, deadline: Deadline) -> Option<Self::Guard> {
        self.0.lock_until(deadline).map(Held::new)
    }
}

//! Any [`RawRwLock`](super::RawRwLock) behind [`lock_api`].

use super::ConstNew;
use crate::locks::mutex::Held;

/// Fits a raw reader-writer lock to [`lock_api::RawRwLock`].
#[repr(transparent)]
#[derive(Debug)]
pub struct Api<R>(pub(crate) R);

// SAFETY: exclusion and orderings are those of `RawRwLock`; tokens are plain values, so forgetting
// a guard leaks at most a queue node or a reader's slot.
unsafe impl<R: ConstNew> lock_api::RawRwLock for Api<R> {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Api(R::NEW);
    type SharedGuard = Held<R::Read>;
    type ExclusiveGuard = Held<R::Write>;

    #[inline]
    fn lock_shared(&self) -> Self::SharedGuard {
        Held::new(self.0.read())
    }

    #[inline]
    fn try_lock_shared(&self) -> Option<Self::SharedGuard> {
        self.0.try_read().map(Held::new)
    }

    #[inline]
    unsafe fn unlock_shared(&self, guard: Self::SharedGuard) {
        // SAFETY: the guard's token is from the acquisition it stands for.
        unsafe { self.0.unlock_read(guard.token) }
    }

    #[inline]
    fn lock_exclusive(&self) -> Self::ExclusiveGuard {
        Held::new(self.0.write())
    }

    #[inline]
    fn try_lock_exclusive(&self) -> Option<Self::ExclusiveGuard> {
        self.0.try_write().map(Held::new)
    }

    #[inline]
    unsafe fn unlock_exclusive(&self, guard: Self::ExclusiveGuard) {
        // SAFETY: the guard's token is from the acquisition it stands for.
        unsafe { self.0.unlock_write(guard.token) }
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    fn is_locked_exclusive(&self) -> bool {
        self.0.is_write_locked()
    }
}

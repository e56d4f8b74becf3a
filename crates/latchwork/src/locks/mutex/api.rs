//! Any [`RawMutex`](super::RawMutex) behind [`lock_api`].

use super::{ConstNew, Fair};
use lock_api::GuardNoSend;

/// Fits a raw mutex to [`lock_api::RawMutex`].
#[repr(transparent)]
#[derive(Debug)]
pub struct Api<L>(pub(crate) L);

/// What a guard carries: the acquisition's token. Not `Send`, because queue nodes and reader slots belong to the thread
/// that took them.
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

// SAFETY: `&Held` gives no access to the token: its fields are private to the crate, which reads the token only where it
// owns the guard. So threads that share a guard share nothing. (Without this line, `NonNull` in a token would keep a
// guard from being `Sync`.)
unsafe impl<T> Sync for Held<T> {}

// SAFETY: exclusion and orderings are those of `RawMutex`. Tokens are plain values, so forgetting a guard leaks at most a
// queue node. Nothing that a holder leaves behind points into a lock's memory but the lock's own queue, which is empty when
// the lock is exclusively owned.
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
        // SAFETY: the guard's token is from the acquisition that the guard stands for.
        unsafe { self.0.unlock(guard.token) }
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }
}

// SAFETY: `Fair::unlock_fair` releases as `RawMutex::unlock` does.
unsafe impl<L: ConstNew + Fair> lock_api::RawMutexFair for Api<L> {
    unsafe fn unlock_fair(&self, guard: Self::Guard) {
        // SAFETY: the guard's token is from the acquisition that the guard stands for.
        unsafe { self.0.unlock_fair(guard.token) }
    }
}

//! The pthread calls that a C program would make, for workloads whose locks are to be replaced from
//! outside. Nothing here knows about latchwork; the calls go to whichever library answers for the
//! pthread symbols.

use std::cell::UnsafeCell;

/// A `pthread_mutex_t` of the default kind.
pub struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

/// A `pthread_rwlock_t` of the default kind.
pub struct RwLock(UnsafeCell<libc::pthread_rwlock_t>);

/// A `pthread_cond_t` of the default kind.
pub struct Condvar(UnsafeCell<libc::pthread_cond_t>);

// SAFETY: pthread objects are made to be shared between threads.
unsafe impl Sync for Mutex {}
// SAFETY: as above.
unsafe impl Sync for RwLock {}
// SAFETY: as above.
unsafe impl Sync for Condvar {}
// SAFETY: none of them is tied to the thread that made it. They must not move once used; the users
// below keep them behind a reference from the first call to the last.
unsafe impl Send for Mutex {}
// SAFETY: as above.
unsafe impl Send for RwLock {}
// SAFETY: as above.
unsafe impl Send for Condvar {}

/// A pthread call that must not fail; a C program would print and abort here too.
fn must(call: &str, result: i32) {
    assert!(result == 0, "{call}: {}", std::io::Error::from_raw_os_error(result));
}

impl Mutex {
    /// `PTHREAD_MUTEX_INITIALIZER`.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }

    /// Runs `f` with the mutex held.
    pub fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: an initialised mutex that does not move while anyone refers to it.
        must("pthread_mutex_lock", unsafe { libc::pthread_mutex_lock(self.0.get()) });
        let result = f();
        // SAFETY: as above, and held by this thread since the call before.
        must("pthread_mutex_unlock", unsafe { libc::pthread_mutex_unlock(self.0.get()) });
        result
    }
}

impl RwLock {
    /// `PTHREAD_RWLOCK_INITIALIZER`.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER))
    }

    /// Runs `f` with the lock held for reading.
    pub fn reading<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: an initialised lock that does not move while anyone refers to it.
        must("pthread_rwlock_rdlock", unsafe { libc::pthread_rwlock_rdlock(self.0.get()) });
        let result = f();
        self.unlock();
        result
    }

    /// Runs `f` with the lock held for writing.
    pub fn writing<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: an initialised lock that does not move while anyone refers to it.
        must("pthread_rwlock_wrlock", unsafe { libc::pthread_rwlock_wrlock(self.0.get()) });
        let result = f();
        self.unlock();
        result
    }

    fn unlock(&self) {
        // SAFETY: both callers hold it.
        must("pthread_rwlock_unlock", unsafe { libc::pthread_rwlock_unlock(self.0.get()) });
    }
}

impl Condvar {
    /// `PTHREAD_COND_INITIALIZER`.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER))
    }

    /// Waits; to be called inside [`Mutex::with`] of the same mutex.
    pub fn wait(&self, mutex: &Mutex) {
        // SAFETY: both are initialised and do not move; the caller holds the mutex.
        must("pthread_cond_wait", unsafe { libc::pthread_cond_wait(self.0.get(), mutex.0.get()) });
    }

    /// Wakes one waiter.
    pub fn signal(&self) {
        // SAFETY: initialised, and does not move.
        must("pthread_cond_signal", unsafe { libc::pthread_cond_signal(self.0.get()) });
    }

    /// Wakes all waiters.
    pub fn broadcast(&self) {
        // SAFETY: initialised, and does not move.
        must("pthread_cond_broadcast", unsafe { libc::pthread_cond_broadcast(self.0.get()) });
    }
}

//! The pthread calls of a C program. This module does not know latchwork: the dynamic linker binds the calls to the
//! library that answers for the pthread symbols.
//!
//! The store that uses these objects keeps them behind a reference from the first call to the last, so none moves while it
//! is in use.

use std::cell::UnsafeCell;

/// A `pthread_mutex_t` of the default kind.
pub struct Mutex(UnsafeCell<libc::pthread_mutex_t>);

/// A `pthread_rwlock_t` of the default kind.
pub struct RwLock(UnsafeCell<libc::pthread_rwlock_t>);

/// A `pthread_cond_t` of the default kind.
pub struct Condvar(UnsafeCell<libc::pthread_cond_t>);

// SAFETY: POSIX allows any thread of the process to lock a mutex that another one initialised.
unsafe impl Sync for Mutex {}
// SAFETY: POSIX allows any thread of the process to lock a reader-writer lock that another one initialised.
unsafe impl Sync for RwLock {}
// SAFETY: POSIX allows any thread of the process to use a condition variable that another one initialised.
unsafe impl Sync for Condvar {}

/// A mutex that this thread holds.
pub struct Held<'a>(&'a Mutex);

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
    pub fn with<R>(&self, f: impl FnOnce(&Held<'_>) -> R) -> R {
        // SAFETY: an initialised mutex, which cannot move while `self` refers to it.
        must("pthread_mutex_lock", unsafe { libc::pthread_mutex_lock(self.0.get()) });
        let result = f(&Held(self));
        // SAFETY: an initialised mutex, which this thread has held since the call before.
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
        // SAFETY: an initialised lock, which cannot move while `self` refers to it.
        must("pthread_rwlock_rdlock", unsafe { libc::pthread_rwlock_rdlock(self.0.get()) });
        let result = f();
        self.unlock();
        result
    }

    /// Runs `f` with the lock held for writing.
    pub fn writing<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: an initialised lock, which cannot move while `self` refers to it.
        must("pthread_rwlock_wrlock", unsafe { libc::pthread_rwlock_wrlock(self.0.get()) });
        let result = f();
        self.unlock();
        result
    }

    fn unlock(&self) {
        // SAFETY: both callers have locked it in this thread.
        must("pthread_rwlock_unlock", unsafe { libc::pthread_rwlock_unlock(self.0.get()) });
    }
}

impl Condvar {
    /// `PTHREAD_COND_INITIALIZER`.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER))
    }

    /// Waits. Other threads may hold the mutex meanwhile.
    pub fn wait(&self, held: &Held<'_>) {
        // SAFETY: both objects are initialised and cannot move while references to them exist. A `Held` exists only
        // while this thread holds the mutex.
        must("pthread_cond_wait", unsafe { libc::pthread_cond_wait(self.0.get(), held.0.0.get()) });
    }

    /// Wakes one waiter.
    pub fn signal(&self) {
        // SAFETY: an initialised condition variable, which cannot move while `self` refers to it.
        must("pthread_cond_signal", unsafe { libc::pthread_cond_signal(self.0.get()) });
    }

    /// Wakes all waiters.
    pub fn broadcast(&self) {
        // SAFETY: an initialised condition variable, which cannot move while `self` refers to it.
        must("pthread_cond_broadcast", unsafe { libc::pthread_cond_broadcast(self.0.get()) });
    }
}

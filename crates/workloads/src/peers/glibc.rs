//! The C library: `pthread_mutex_t` and `pthread_rwlock_t` of the default kinds, `pthread_cond_t` and `sem_t`. If this program runs
//! under a preloaded library, these are that library's.

use crate::lock::{self, Lock};
use latchwork::locks::condvar::RawCondvar;
use latchwork::machine::Native;
use std::cell::UnsafeCell;

/// `pthread_mutex_t`.
pub struct Mutex(UnsafeCell<libc::pthread_mutex_t>);
/// `pthread_rwlock_t`.
pub struct RwLock(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: pthread objects are made to be shared; they are moved only before their first use, since
// every use takes a reference that the user keeps until the last one.
unsafe impl Sync for Mutex {}
// SAFETY: pthread objects are made to be shared, and move only before their first use.
unsafe impl Sync for RwLock {}
// SAFETY: none is tied to the thread that made it.
unsafe impl Send for Mutex {}
// SAFETY: a pthread lock is not tied to the thread that made it.
unsafe impl Send for RwLock {}

/// Holds a [`Mutex`].
pub struct Held<'a>(&'a Mutex);
/// Holds a [`RwLock`], either way.
pub struct HeldRw<'a>(&'a RwLock);

/// A C program would stop here too.
#[inline]
fn must(result: i32) {
    assert!(result == 0, "pthread: {}", std::io::Error::from_raw_os_error(result));
}

impl Drop for Held<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: a guard is made by the thread that locked it.
        must(unsafe { libc::pthread_mutex_unlock(self.0.0.get()) });
    }
}

impl Drop for HeldRw<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the guard stands for an acquisition of this lock, and is dropped once.
        must(unsafe { libc::pthread_rwlock_unlock(self.0.0.get()) });
    }
}

impl Lock for Mutex {
    type Machine = Native;
    type Read<'a> = Held<'a>;
    type Write<'a> = Held<'a>;
    type Condvar = Condvar;
    type Semaphore = Semaphore;
    const SHARED: bool = false;

    fn new() -> Self {
        Mutex(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER))
    }
    #[inline]
    fn read(&self) -> Held<'_> {
        self.write()
    }
    #[inline]
    fn write(&self) -> Held<'_> {
        // SAFETY: initialised, and not moved any more.
        must(unsafe { libc::pthread_mutex_lock(self.0.get()) });
        Held(self)
    }
    #[inline]
    fn try_write(&self) -> Option<Held<'_>> {
        // SAFETY: the mutex is initialised, and not moved any more.
        (unsafe { libc::pthread_mutex_trylock(self.0.get()) } == 0).then(|| Held(self))
    }
}

impl Lock for RwLock {
    type Machine = Native;
    type Read<'a> = HeldRw<'a>;
    type Write<'a> = HeldRw<'a>;
    type Condvar = RawCondvar<Native>;
    type Semaphore = Semaphore;
    const SHARED: bool = true;

    fn new() -> Self {
        RwLock(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER))
    }
    #[inline]
    fn read(&self) -> HeldRw<'_> {
        // SAFETY: initialised, and not moved any more.
        must(unsafe { libc::pthread_rwlock_rdlock(self.0.get()) });
        HeldRw(self)
    }
    #[inline]
    fn write(&self) -> HeldRw<'_> {
        // SAFETY: the lock is initialised, and not moved any more.
        must(unsafe { libc::pthread_rwlock_wrlock(self.0.get()) });
        HeldRw(self)
    }
    #[inline]
    fn try_write(&self) -> Option<HeldRw<'_>> {
        // SAFETY: the lock is initialised, and not moved any more.
        (unsafe { libc::pthread_rwlock_trywrlock(self.0.get()) } == 0).then(|| HeldRw(self))
    }
}

/// `pthread_cond_t`.
pub struct Condvar(UnsafeCell<libc::pthread_cond_t>);

// SAFETY: pthread objects are made to be shared, and move only before their first use.
unsafe impl Sync for Condvar {}
// SAFETY: a condition variable is not tied to the thread that made it.
unsafe impl Send for Condvar {}

impl lock::Condvar<Mutex> for Condvar {
    fn new() -> Self {
        Condvar(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER))
    }
    #[inline]
    fn wait<'l>(&self, lock: &'l Mutex, held: Held<'l>) -> Held<'l> {
        // SAFETY: both are initialised and not moved any more; `held` says that the caller holds the mutex.
        must(unsafe { libc::pthread_cond_wait(self.0.get(), lock.0.get()) });
        held
    }
    #[inline]
    fn notify_one(&self) {
        // SAFETY: the condition variable is initialised, and not moved any more.
        must(unsafe { libc::pthread_cond_signal(self.0.get()) });
    }
    #[inline]
    fn notify_all(&self) {
        // SAFETY: the condition variable is initialised, and not moved any more.
        must(unsafe { libc::pthread_cond_broadcast(self.0.get()) });
    }
}

/// `sem_t`.
pub struct Semaphore(UnsafeCell<libc::sem_t>);

// SAFETY: pthread objects are made to be shared, and move only before their first use.
unsafe impl Sync for Semaphore {}
// SAFETY: a semaphore is not tied to the thread that made it.
unsafe impl Send for Semaphore {}

impl lock::Semaphore for Semaphore {
    fn new(units: u32) -> Self {
        let mut semaphore = std::mem::MaybeUninit::uninit();
        // SAFETY: `sem_init` initialises the memory that it is given, or fails.
        let failed = unsafe { libc::sem_init(semaphore.as_mut_ptr(), 0, units) } != 0;
        assert!(!failed, "sem_init: {}", std::io::Error::last_os_error());
        // SAFETY: `sem_init` has initialised it.
        Semaphore(UnsafeCell::new(unsafe { semaphore.assume_init() }))
    }
    #[inline]
    fn acquire(&self) {
        // SAFETY: the semaphore is initialised, and not moved any more. A signal handler may interrupt the wait.
        while unsafe { libc::sem_wait(self.0.get()) } != 0 {}
    }
    #[inline]
    fn try_acquire(&self) -> bool {
        // SAFETY: the semaphore is initialised, and not moved any more.
        unsafe { libc::sem_trywait(self.0.get()) == 0 }
    }
    #[inline]
    fn release(&self) {
        // SAFETY: the semaphore is initialised, and not moved any more.
        let failed = unsafe { libc::sem_post(self.0.get()) } != 0;
        assert!(!failed, "sem_post: {}", std::io::Error::last_os_error());
    }
}

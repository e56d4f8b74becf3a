//! Deadlock and misuse detection (`LATCHWORK_CHECK=1`, which `latchwork check` sets): a layer over the table, whichever lock
//! serves. The detection itself is in the crate `latchwork-check`.
//!
//! Each function of the layer tells the detector what the thread is about to do, calls the function that was in the table
//! before, and tells the detector the result. Without the variable the layer is not in the table.
//!
//! The detector does not hear of a lock that is acquired before set-up: glibc serves that call ([`startup`](crate::startup)). glibc
//! serves the lock later, too, and knows whether a thread holds it. Such a lock is released without a report.

mod stack;

pub(crate) use stack::unwind;

use crate::families::mutex;
use crate::state::abi::*;
use crate::state::table::{TABLE, Table, install};
use crate::state::used;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use latchwork_check::{
    Wish, acquired, acquiring, destroying, early, forget, found, refused, releasing, waiting,
};
use libc::{c_int, clockid_t, timespec};

/// The functions that the layer calls.
static BELOW: Table = Table::EMPTY;

/// Puts the layer over the table. `glibc` and `glibc_rwlocks` say that the C library serves mutexes, or rwlocks.
///
/// If glibc serves mutexes, the layer has C11 functions too, because glibc's do not call the pthread symbols. Nor does a
/// condition variable of glibc's when it releases a mutex: the layer looks whether the thread holds it, and counts the waiter as
/// the holder, which does nothing meanwhile.
pub(crate) fn install(glibc: bool, glibc_rwlocks: bool) {
    BELOW.copy_from(&TABLE);
    ON.store(true, Relaxed);
    GLIBC.store(glibc, Relaxed);
    GLIBC_RWLOCKS.store(glibc_rwlocks, Relaxed);
    // A waiter that is notified must ask for its mutex, or it is in no circle.
    mutex::holder::wake_at_once();
    stack::install();
    install! {
        mutex_init => mutex_init, mutex_destroy => mutex_destroy, mutex_lock => mutex_lock,
        mutex_trylock => mutex_trylock, mutex_timedlock => mutex_timedlock,
        mutex_clocklock => mutex_clocklock, mutex_unlock => mutex_unlock,
        rwlock_init => rwlock_init, rwlock_destroy => rwlock_destroy,
        rwlock_rdlock => rwlock_rdlock, rwlock_wrlock => rwlock_wrlock,
        rwlock_tryrdlock => rwlock_tryrdlock, rwlock_trywrlock => rwlock_trywrlock,
        rwlock_timedrdlock => rwlock_timedrdlock, rwlock_timedwrlock => rwlock_timedwrlock,
        rwlock_clockrdlock => rwlock_clockrdlock, rwlock_clockwrlock => rwlock_clockwrlock,
        rwlock_unlock => rwlock_unlock,
        spin_init => spin_init, spin_destroy => spin_destroy, spin_lock => spin_lock,
        spin_trylock => spin_trylock, spin_unlock => spin_unlock,
    }
    if glibc {
        install! {
            mtx_init => mtx_init, mtx_destroy => mtx_destroy, mtx_lock => mtx_lock,
            mtx_trylock => mtx_trylock, mtx_timedlock => mtx_timedlock, mtx_unlock => mtx_unlock,
            cond_wait => cond_wait, cond_timedwait => cond_timedwait, cond_clockwait => cond_clockwait,
        }
    }
}

pub(super) const LOCK: Wish = Wish::LOCK;
/// With a deadline.
const TIMED: Wish = Wish { forever: false, ..LOCK };
pub(super) const TRY: Wish = Wish { waits: false, ..TIMED };
pub(super) const READ: Wish = Wish { shared: true, ..LOCK };
const TIMED_READ: Wish = Wish { shared: true, ..TIMED };
pub(super) const TRY_READ: Wish = Wish { shared: true, ..TRY };

/// The first attempt of a call that may wait, made by a recorder above this layer. The detector learns what the call asks
/// for. If the thread holds the lock already, the attempt fails, and the rest of the call reports the deadlock.
pub(super) fn first(wish: Wish) -> Wish {
    Wish { again: true, forever: false, ..wish }
}

/// Whether a lock call acquired the lock. EOWNERDEAD: it acquired a robust mutex; the former holder has died.
fn got(result: c_int) -> bool {
    result == 0 || result == libc::EOWNERDEAD
}

/// Whether the C library serves mutexes, or rwlocks.
static GLIBC: AtomicBool = AtomicBool::new(false);
static GLIBC_RWLOCKS: AtomicBool = AtomicBool::new(false);

/// Offsets of words that glibc does not use. In a mutex: the link to the next robust one, if this one is not robust. In a
/// rwlock: padding. A constructor that calls no function (`std::mutex`) clears them.
const SPARE_IN_MUTEX: usize = 32;
const SPARE_IN_RWLOCK: usize = 40;

/// Whether this is the first use of a lock that was initialised without a call. An earlier lock may have been at this
/// address. A lock that this library serves is marked when it is first acquired; another one is marked here.
unsafe fn is_new_mutex(m: *mut Mutex) -> bool {
    // SAFETY: the program passes a live mutex, and the spare word lies in it.
    unsafe {
        let kind = (*m).kind.load(Relaxed);
        if kind & GLIBC_MUTEX != 0 {
            false // made by a call
        } else if GLIBC.load(Relaxed) || kind & (SERVED | LEFT_TO_GLIBC) == LEFT_TO_GLIBC {
            mark(m.wrapping_byte_add(SPARE_IN_MUTEX).cast())
        } else {
            kind & SERVED == 0
        }
    }
}

/// The same of a rwlock.
unsafe fn is_new_rwlock(l: *mut RwLock) -> bool {
    // SAFETY: the program passes a live rwlock, and the spare word lies in it.
    unsafe {
        let flags = (*l).flags.load(Relaxed);
        if !GLIBC_RWLOCKS.load(Relaxed) && flags & RWLOCK_OURS != 0 || (*l).shared().load(Relaxed) != 0 {
            false // claimed before; or process-shared, and so made by a call
        } else if GLIBC_RWLOCKS.load(Relaxed) || flags & LOW == PREFERS_WRITERS || (*l).is_left_to_glibc() {
            mark(l.wrapping_byte_add(SPARE_IN_RWLOCK).cast())
        } else {
            true
        }
    }
}

/// Marks a spare word; returns whether it was not marked.
unsafe fn mark(word: *mut AtomicU32) -> bool {
    // SAFETY: the word is aligned and lies in a live object, all words of which are accessed as atomics.
    let word = unsafe { &*word };
    word.load(Relaxed) == 0 && word.swap(1, Relaxed) == 0
}

/// Acquires a rwlock with `call`.
unsafe fn take_rwlock(l: *mut RwLock, wish: Wish, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the program passes a live rwlock.
    found(l.addr(), || unsafe { is_new_rwlock(l) });
    take(l.addr(), wish, call)
}

/// Whether the layer is in the table.
pub(super) fn is_on() -> bool {
    ON.load(Relaxed)
}
static ON: AtomicBool = AtomicBool::new(false);

/// Whether a lock that is checked has been called.
static CALLED: AtomicBool = AtomicBool::new(false);

/// Acquires the lock at this address with `call`.
pub(super) fn take(lock: usize, wish: Wish, call: impl FnOnce() -> c_int) -> c_int {
    if !CALLED.load(Relaxed) {
        CALLED.store(true, Relaxed);
        used::used();
    }
    let asked = acquiring(lock, wish);
    let result = call();
    if got(result) {
        acquired(lock, wish, asked);
    } else if wish.forever {
        refused(asked);
    }
    result
}

/// Acquires a mutex with `call`. The detector leaves out a process-shared one: its holder may be in another process. glibc marks
/// robust ones as process-shared.
unsafe fn take_mutex(m: *mut Mutex, wish: Wish, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the program passes a live mutex.
    let kind = unsafe { (*m).kind.load(Relaxed) };
    if kind & SHARED != 0 {
        return call();
    }
    // SAFETY: the program passes a live mutex.
    found(m.addr(), || unsafe { is_new_mutex(m) });
    let checks = matches!(kind & 3, RECURSIVE | ERRORCHECK);
    take(m.addr(), Wish { again: checks || wish.again, refuses: checks, ..wish }, call)
}

unsafe fn give_mutex(m: *mut Mutex, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the program passes a live mutex.
    let kind = unsafe { (*m).kind.load(Relaxed) };
    if kind & SHARED == 0 {
        // SAFETY: the program passes a live mutex.
        give(m.addr(), unsafe { (*m).is_left_to_glibc_and_held() });
    }
    call()
}

/// The calling thread is about to release the lock at this address. `early`: a thread may have acquired the lock before set-up.
fn give(lock: usize, early: bool) {
    if early { early::releasing(lock) } else { releasing(lock) }
}

/// Whether glibc holds the state of the spin lock, and a thread holds the lock.
unsafe fn is_spin_held_in_glibc(s: *mut Spin) -> bool {
    // SAFETY: the program passes a live spin lock, which all threads access as an atomic.
    let word = unsafe { (*s.cast::<AtomicU32>()).load(Relaxed) } as i32;
    if cfg!(target_arch = "x86_64") { word <= 0 } else { word == 1 }
}

/// The calling thread is about to wait for a condition of glibc's with this mutex.
unsafe fn look_at_waiter(m: *mut Mutex) {
    // SAFETY: the program passes a live mutex.
    let (kind, early) = unsafe { ((*m).kind.load(Relaxed), (*m).is_left_to_glibc_and_held()) };
    if kind & SHARED == 0 {
        if early { early::waiting(m.addr()) } else { waiting(m.addr()) }
    }
}

/// Destroys the lock at this address with `call`. A lock that refuses stays what it is, and its holder the holder.
fn destroy(lock: usize, call: impl FnOnce() -> c_int) -> c_int {
    destroying(lock);
    let result = call();
    if result == 0 {
        forget(lock);
    }
    result
}

/// The result of glibc's `mtx_destroy`, which returns none: it is `pthread_mutex_destroy`, and leaves a held mutex as it is.
unsafe fn result_of_destroy(m: *mut Mutex) -> c_int {
    // SAFETY: the program passes memory for a mutex.
    if unsafe { (*m).kind.load(Relaxed) } == u32::MAX { 0 } else { libc::EBUSY }
}

type Time = *const timespec;

layer! {
    mutex_init(m: *mut Mutex, attr: *const Attr) -> c_int = |call| { forget(m.addr()); call() };
    mutex_destroy(m: *mut Mutex) -> c_int = |call| destroy(m.addr(), call);
    mutex_lock(m: *mut Mutex) -> c_int = |call| take_mutex(m, LOCK, call);
    mutex_trylock(m: *mut Mutex) -> c_int = |call| take_mutex(m, TRY, call);
    mutex_timedlock(m: *mut Mutex, time: Time) -> c_int = |call| take_mutex(m, TIMED, call);
    mutex_clocklock(m: *mut Mutex, clock: clockid_t, time: Time) -> c_int = |call| take_mutex(m, TIMED, call);
    mutex_unlock(m: *mut Mutex) -> c_int = |call| give_mutex(m, call);

    rwlock_init(l: *mut RwLock, attr: *const Attr) -> c_int = |call| { forget(l.addr()); call() };
    rwlock_destroy(l: *mut RwLock) -> c_int = |call| destroy(l.addr(), call);
    rwlock_rdlock(l: *mut RwLock) -> c_int = |call| take_rwlock(l, READ, call);
    rwlock_wrlock(l: *mut RwLock) -> c_int = |call| take_rwlock(l, LOCK, call);
    rwlock_tryrdlock(l: *mut RwLock) -> c_int = |call| take_rwlock(l, TRY_READ, call);
    rwlock_trywrlock(l: *mut RwLock) -> c_int = |call| take_rwlock(l, TRY, call);
    rwlock_timedrdlock(l: *mut RwLock, time: Time) -> c_int = |call| take_rwlock(l, TIMED_READ, call);
    rwlock_timedwrlock(l: *mut RwLock, time: Time) -> c_int = |call| take_rwlock(l, TIMED, call);
    rwlock_clockrdlock(l: *mut RwLock, clock: clockid_t, time: Time) -> c_int = |call| take_rwlock(l, TIMED_READ, call);
    rwlock_clockwrlock(l: *mut RwLock, clock: clockid_t, time: Time) -> c_int = |call| take_rwlock(l, TIMED, call);
    rwlock_unlock(l: *mut RwLock) -> c_int = |call| { give(l.addr(), (*l).is_left_to_glibc_and_held()); call() };

    spin_init(s: *mut Spin, shared: c_int) -> c_int = |call| { forget(s.addr()); call() };
    spin_destroy(s: *mut Spin) -> c_int = |call| destroy(s.addr(), call);
    spin_lock(s: *mut Spin) -> c_int = |call| take(s.addr(), LOCK, call);
    spin_trylock(s: *mut Spin) -> c_int = |call| take(s.addr(), TRY, call);
    spin_unlock(s: *mut Spin) -> c_int = |call| { give(s.addr(), is_spin_held_in_glibc(s)); call() };

    mtx_init(m: *mut Mutex, kind: c_int) -> c_int = |call| { forget(m.addr()); call() };
    mtx_destroy(m: *mut Mutex) -> () = |call| { destroy(m.addr(), || { call(); result_of_destroy(m) }); };
    mtx_lock(m: *mut Mutex) -> c_int = |call| take_mutex(m, LOCK, call);
    mtx_trylock(m: *mut Mutex) -> c_int = |call| take_mutex(m, TRY, call);
    mtx_timedlock(m: *mut Mutex, time: Time) -> c_int = |call| take_mutex(m, TIMED, call);
    mtx_unlock(m: *mut Mutex) -> c_int = |call| give_mutex(m, call);

    // A thread may be cancelled in these, so they keep nothing that is to be dropped.
    cond_wait(c: *mut Cond, m: *mut Mutex) -> c_int = |call| { look_at_waiter(m); call() };
    cond_timedwait(c: *mut Cond, m: *mut Mutex, time: Time) -> c_int = |call| { look_at_waiter(m); call() };
    cond_clockwait(c: *mut Cond, m: *mut Mutex, clock: clockid_t, time: Time) -> c_int = |call| { look_at_waiter(m); call() };
}

/// Sets what tries a lock in the table of a recorder above this layer to the first attempts of calls that may wait. Returns
/// that of `pthread_mutex_lock`. To this layer's own functions, each attempt would be a call that cannot deadlock.
pub(super) fn first_attempts(table: &Table) -> unsafe extern "C" fn(*mut Mutex) -> c_int {
    table.mutex_trylock.set(first::mutex_timedlock);
    table.rwlock_tryrdlock.set(first::rwlock_rdlock);
    table.rwlock_trywrlock.set(first::rwlock_wrlock);
    table.spin_trylock.set(first::spin_lock);
    first::mutex_lock
}

/// The first attempts of these functions.
mod first {
    use super::*;

    pub(super) unsafe extern "C" fn mutex_lock(m: *mut Mutex) -> c_int {
        if GLIBC.load(Relaxed) {
            // SAFETY: the program passes a live mutex.
            return unsafe { mutex_timedlock(m) };
        }
        // SAFETY: the program passes a live mutex.
        unsafe { take_mutex(m, first(LOCK), || mutex::try_weak(m)) }
    }

    /// Of `pthread_mutex_clocklock`, too.
    pub(super) unsafe extern "C" fn mutex_timedlock(m: *mut Mutex) -> c_int {
        // SAFETY: the program passes a live mutex.
        unsafe { take_mutex(m, first(LOCK), || BELOW.mutex_trylock.get()(m)) }
    }

    pub(super) unsafe extern "C" fn rwlock_rdlock(l: *mut RwLock) -> c_int {
        // SAFETY: the program passes a live rwlock.
        unsafe { take_rwlock(l, first(READ), || BELOW.rwlock_tryrdlock.get()(l)) }
    }

    pub(super) unsafe extern "C" fn rwlock_wrlock(l: *mut RwLock) -> c_int {
        // SAFETY: the program passes a live rwlock.
        unsafe { take_rwlock(l, first(LOCK), || BELOW.rwlock_trywrlock.get()(l)) }
    }

    pub(super) unsafe extern "C" fn spin_lock(s: *mut Spin) -> c_int {
        // SAFETY: the program passes a live spin lock.
        take(s.addr(), first(LOCK), || unsafe { BELOW.spin_trylock.get()(s) })
    }
}

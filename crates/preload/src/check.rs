//! Deadlock and misuse detection (`LATCHWORK_CHECK=1`, `latchwork run --check`): a layer over the table,
//! whoever serves it. The detection itself is the crate `latchwork-check`.
//!
//! The functions of the layer tell it what is about to happen and what has happened, and call what was in
//! the table before. Without it they are not in the table.

use crate::abi::*;
use crate::table::{Attr, Spin, TABLE, Table, install};
use latchwork_check::{Wish, acquired, acquiring, destroyed, made, releasing};
use libc::{c_int, clockid_t, timespec};

/// What the layer calls.
static BELOW: Table = Table::EMPTY;

/// Puts the layer over the table. `glibc`: mutexes are the C library's, which does not come back to us for
/// the C11 functions. (Nor when a condition variable releases a mutex: then its waiter counts as a holder,
/// but does nothing meanwhile.)
pub(crate) fn install(glibc: bool) {
    BELOW.copy_from(&TABLE);
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
        }
    }
}

const LOCK: Wish = Wish::LOCK;
const TRY: Wish = Wish { waits: false, ..LOCK };
const READ: Wish = Wish { shared: true, ..LOCK };
const TRY_READ: Wish = Wish { shared: true, ..TRY };

/// glibc's `__kind`: process-shared. Who holds such a mutex may be another process.
const SHARED: u32 = 0x80;
/// A robust mutex whose holder has died is acquired all the same.
fn got(result: c_int) -> bool {
    result == 0 || result == libc::EOWNERDEAD
}

/// An acquisition of the lock at `lock`.
fn take(lock: usize, wish: Wish, call: impl FnOnce() -> c_int) -> c_int {
    let asked = acquiring(lock, wish);
    let result = call();
    if got(result) {
        acquired(lock, wish, asked);
    }
    result
}

/// The same of a mutex, by its kind.
unsafe fn take_mutex(m: *mut Mutex, wish: Wish, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's mutex.
    let kind = unsafe { (*m).kind.load(core::sync::atomic::Ordering::Relaxed) };
    if kind & SHARED != 0 {
        return call();
    }
    let again = matches!(kind & 3, RECURSIVE | ERRORCHECK);
    take(m.addr(), Wish { again, ..wish }, call)
}

unsafe fn give_mutex(m: *mut Mutex, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's mutex.
    let kind = unsafe { (*m).kind.load(core::sync::atomic::Ordering::Relaxed) };
    if kind & SHARED == 0 {
        releasing(m.addr());
    }
    call()
}

/// One function of the layer: what it is about, and what it passes on.
macro_rules! layer {
    ($($name:ident($first:ident: $type:ty $(, $arg:ident: $arg_type:ty)*) -> $ret:ty = |$call:ident| $body:expr;)*) => {
        $(unsafe extern "C" fn $name($first: $type $(, $arg: $arg_type)*) -> $ret {
            // SAFETY: the caller's call, with the caller's arguments.
            let $call = || unsafe { BELOW.$name.get()($first $(, $arg)*) };
            #[allow(unused_unsafe)]
            // SAFETY: the caller's lock.
            unsafe { $body }
        })*
    };
}

type Time = *const timespec;

layer! {
    mutex_init(m: *mut Mutex, attr: *const Attr) -> c_int = |call| { made(m.addr()); call() };
    mutex_destroy(m: *mut Mutex) -> c_int = |call| { destroyed(m.addr()); call() };
    mutex_lock(m: *mut Mutex) -> c_int = |call| take_mutex(m, LOCK, call);
    mutex_trylock(m: *mut Mutex) -> c_int = |call| take_mutex(m, TRY, call);
    mutex_timedlock(m: *mut Mutex, time: Time) -> c_int = |call| take_mutex(m, LOCK, call);
    mutex_clocklock(m: *mut Mutex, clock: clockid_t, time: Time) -> c_int = |call| take_mutex(m, LOCK, call);
    mutex_unlock(m: *mut Mutex) -> c_int = |call| give_mutex(m, call);

    rwlock_init(l: *mut RwLock, attr: *const Attr) -> c_int = |call| { made(l.addr()); call() };
    rwlock_destroy(l: *mut RwLock) -> c_int = |call| { destroyed(l.addr()); call() };
    rwlock_rdlock(l: *mut RwLock) -> c_int = |call| take(l.addr(), READ, call);
    rwlock_wrlock(l: *mut RwLock) -> c_int = |call| take(l.addr(), LOCK, call);
    rwlock_tryrdlock(l: *mut RwLock) -> c_int = |call| take(l.addr(), TRY_READ, call);
    rwlock_trywrlock(l: *mut RwLock) -> c_int = |call| take(l.addr(), TRY, call);
    rwlock_timedrdlock(l: *mut RwLock, time: Time) -> c_int = |call| take(l.addr(), READ, call);
    rwlock_timedwrlock(l: *mut RwLock, time: Time) -> c_int = |call| take(l.addr(), LOCK, call);
    rwlock_clockrdlock(l: *mut RwLock, clock: clockid_t, time: Time) -> c_int = |call| take(l.addr(), READ, call);
    rwlock_clockwrlock(l: *mut RwLock, clock: clockid_t, time: Time) -> c_int = |call| take(l.addr(), LOCK, call);
    rwlock_unlock(l: *mut RwLock) -> c_int = |call| { releasing(l.addr()); call() };

    spin_init(s: *mut Spin, shared: c_int) -> c_int = |call| { made(s.addr()); call() };
    spin_destroy(s: *mut Spin) -> c_int = |call| { destroyed(s.addr()); call() };
    spin_lock(s: *mut Spin) -> c_int = |call| take(s.addr(), LOCK, call);
    spin_trylock(s: *mut Spin) -> c_int = |call| take(s.addr(), TRY, call);
    spin_unlock(s: *mut Spin) -> c_int = |call| { releasing(s.addr()); call() };

    mtx_init(m: *mut Mutex, kind: c_int) -> c_int = |call| { made(m.addr()); call() };
    mtx_destroy(m: *mut Mutex) -> () = |call| { destroyed(m.addr()); call() };
    mtx_lock(m: *mut Mutex) -> c_int = |call| take_mutex(m, LOCK, call);
    mtx_trylock(m: *mut Mutex) -> c_int = |call| take_mutex(m, TRY, call);
    mtx_timedlock(m: *mut Mutex, time: Time) -> c_int = |call| take_mutex(m, LOCK, call);
    mtx_unlock(m: *mut Mutex) -> c_int = |call| give_mutex(m, call);

}

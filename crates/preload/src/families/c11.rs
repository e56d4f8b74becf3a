//! `mtx_*` and `cnd_*`, over the pthread functions of the table.
//!
//! The objects are pthread objects. glibc's own C11 functions do not call the pthread symbols, so this library must export
//! C11 functions too.

use super::mutex;
use crate::state::abi::{Cond, Mutex};
use crate::state::table::{TABLE, install};
use core::ptr::null;
use libc::{c_int, timespec};

// Results of the C11 functions.
const SUCCESS: c_int = 0;
const BUSY: c_int = 1;
const ERROR: c_int = 2;
const NO_MEMORY: c_int = 3;
const TIMED_OUT: c_int = 4;

/// `mtx_recursive`, with or without `mtx_timed`: every mutex is.
const RECURSIVE: [c_int; 2] = [1, 3];

/// Serves both families.
pub(crate) fn install() {
    install! {
        mtx_init => mtx_init,
        mtx_destroy => mtx_destroy,
        mtx_lock => mtx_lock,
        mtx_trylock => mtx_trylock,
        mtx_timedlock => mtx_timedlock,
        mtx_unlock => mtx_unlock,
        cnd_init => cnd_init,
        cnd_destroy => cnd_destroy,
        cnd_wait => latchwork_cnd_wait,
        cnd_timedwait => latchwork_cnd_timedwait,
        cnd_signal => cnd_signal,
        cnd_broadcast => cnd_broadcast,
    }
}

/// The result that stands for an error number.
pub(crate) fn result(error: c_int) -> c_int {
    match error {
        0 => SUCCESS,
        libc::EBUSY => BUSY,
        libc::ENOMEM => NO_MEMORY,
        libc::ETIMEDOUT => TIMED_OUT,
        _ => ERROR,
    }
}

/// The same, for cond.c.
#[unsafe(no_mangle)]
extern "C" fn latchwork_thread_result(error: c_int) -> c_int {
    result(error)
}

/// As under glibc, a number that is no kind makes a mutex that is not recursive.
unsafe extern "C" fn mtx_init(m: *mut Mutex, kind: c_int) -> c_int {
    // SAFETY: the program passes a mutex.
    unsafe {
        let error = TABLE.mutex_init.get()(m, null());
        if error == 0 && RECURSIVE.contains(&kind) {
            mutex::make_recursive(&*m);
        }
        result(error)
    }
}

unsafe extern "C" fn mtx_destroy(m: *mut Mutex) {
    // SAFETY: the program passes a mutex.
    unsafe { TABLE.mutex_destroy.get()(m) };
}

unsafe extern "C" fn mtx_lock(m: *mut Mutex) -> c_int {
    // SAFETY: the program passes a mutex.
    result(unsafe { TABLE.mutex_lock.get()(m) })
}

unsafe extern "C" fn mtx_trylock(m: *mut Mutex) -> c_int {
    // SAFETY: the program passes a mutex.
    result(unsafe { TABLE.mutex_trylock.get()(m) })
}

unsafe extern "C" fn mtx_timedlock(m: *mut Mutex, time: *const timespec) -> c_int {
    // SAFETY: the program passes a mutex and a valid time.
    result(unsafe { TABLE.mutex_timedlock.get()(m, time) })
}

unsafe extern "C" fn mtx_unlock(m: *mut Mutex) -> c_int {
    // SAFETY: the program passes a mutex.
    result(unsafe { TABLE.mutex_unlock.get()(m) })
}

unsafe extern "C" fn cnd_init(c: *mut Cond) -> c_int {
    // SAFETY: the program passes a condition variable.
    result(unsafe { TABLE.cond_init.get()(c, null()) })
}

unsafe extern "C" fn cnd_destroy(c: *mut Cond) {
    // SAFETY: the program passes a condition variable.
    unsafe { TABLE.cond_destroy.get()(c) };
}

unsafe extern "C" {
    // In cond.c: a thread that is cancelled unwinds through them.
    fn latchwork_cnd_wait(c: *mut Cond, m: *mut Mutex) -> c_int;
    fn latchwork_cnd_timedwait(c: *mut Cond, m: *mut Mutex, time: *const timespec) -> c_int;
}

unsafe extern "C" fn cnd_signal(c: *mut Cond) -> c_int {
    // SAFETY: the program passes a condition variable.
    result(unsafe { TABLE.cond_signal.get()(c) })
}

unsafe extern "C" fn cnd_broadcast(c: *mut Cond) -> c_int {
    // SAFETY: the program passes a condition variable.
    result(unsafe { TABLE.cond_broadcast.get()(c) })
}

//! The locks of `latchwork.h` in programs that are compiled with `LW_DEBUG`. Their library calls these functions, if it finds
//! them, in place of the lock's own. The checks see such a lock like one of pthread, and so does the recorder of profiles.
//! Names are for all locks.

use super::check::{self, LOCK, READ, TRY, TRY_READ};
use super::profile::own;
use core::ffi::CStr;
use latchwork_check::Wish;
use libc::{c_char, c_int, c_void};

/// A step of a lock call, with its context.
type Step = unsafe extern "C" fn(*mut c_void) -> c_int;

/// `how`, as `lw_debug_acquire` in `latchwork/base.h` has it.
const READING: c_int = 1;
const RECURSIVE: c_int = 3;
const ATTEMPT: c_int = 4;
/// Bits that are 0 for a mutex.
const RWLOCK: c_int = 3;

fn wish(how: c_int) -> own::Wish {
    own::Wish { rwlock: how & RWLOCK != 0, read: how & READING != 0, tries: how & ATTEMPT != 0 }
}

/// Acquires a lock with `block`.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_observe_acquire(
    lock: *mut c_void,
    how: c_int,
    attempt: Step,
    block: Step,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the library passes a function of its own, with its context.
    let call = || unsafe { block(context) };
    // SAFETY: `attempt` too is the library's own function, with the same context.
    let try_lock = || unsafe { attempt(context) };
    let asks = match (how & READING != 0, how & ATTEMPT != 0) {
        (false, false) => LOCK,
        (false, true) => TRY,
        (true, false) => READ,
        (true, true) => TRY_READ,
    };
    // The call may have a deadline, which is not known here.
    let asks = Wish { again: how & RECURSIVE == RECURSIVE, forever: false, ..asks };
    let call = || if check::is_on() { check::take(lock.addr(), asks, call) } else { call() };
    if !own::is_on() {
        return call();
    }
    let try_lock =
        || if check::is_on() { check::take(lock.addr(), check::first(asks), try_lock) } else { try_lock() };
    own::acquire(lock.addr(), wish(how), try_lock, call)
}

/// Releases a lock with `below`.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_observe_release(
    lock: *mut c_void,
    how: c_int,
    below: Step,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the library passes a function of its own, with its context.
    let call = || unsafe { below(context) };
    if check::is_on() {
        latchwork_check::releasing(lock.addr());
    }
    if own::is_on() { own::release(lock.addr(), wish(how), call) } else { call() }
}

/// The lock is destroyed.
#[unsafe(no_mangle)]
extern "C" fn latchwork_observe_gone(lock: *mut c_void) {
    if check::is_on() {
        latchwork_check::destroying(lock.addr());
        latchwork_check::forget(lock.addr());
    }
    latchwork_check::name(lock.addr(), b"");
    own::gone(lock.addr());
}

/// The name of a lock, of pthread's as well; null takes it away. It is kept in any case: a recording may begin later.
#[unsafe(no_mangle)]
unsafe extern "C" fn latchwork_observe_name(object: *mut c_void, name: *const c_char) {
    // SAFETY: null, or the program's string.
    let name = if name.is_null() { b"" } else { unsafe { CStr::from_ptr(name) }.to_bytes() };
    latchwork_check::name(object.addr(), name);
    own::named(object.addr());
}

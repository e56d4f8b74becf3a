//! Calls that come before the process is set up. The next library serves them: glibc, as a rule.
//!
//! An object that glibc has served stays glibc's for good. When set-up ends, a thread may hold it or wait for it. And a free one
//! need not consist of zero bytes, as an unused object does: a rwlock that was locked for writing does not, nor does a condition
//! variable that a thread has waited for.
//!
//! | object | what says that it is glibc's |
//! |---|---|
//! | mutex | [`Mutex::leave_to_glibc`] |
//! | rwlock | [`rwlock::chosen::leave_to_glibc`] |
//! | condition variable | [`cond::leave_to_glibc`] if a thread waits; if it has the monotonic clock, what `pthread_cond_init` writes |
//! | semaphore, spin lock | what their `init` functions of glibc's write |
//!
//! `init` and `destroy` leave a mutex or a rwlock as a static initialiser does, so they do not mark it.

use super::set_up_once;
use crate::families::{cond, rwlock};
use crate::state::abi::{Attr, Cond, Mutex, RwLock, Sem, Spin};
use crate::state::table::{AtFork, Destructor, Start};
use core::ffi::c_char;
use libc::{c_int, c_void, timespec};

/// An argument of a function that this library exports.
pub(super) trait Argument: Sized {
    /// Before glibc runs this function: leaves the object to glibc, if this is one. `false`: this library has used it before,
    /// because another thread has set the process up meanwhile. Then the table is filled.
    ///
    /// # Safety
    ///
    /// The argument is valid for the function.
    unsafe fn leave_to_glibc(self, _function: &str) -> bool {
        true
    }
}

/// Whether the function neither makes nor destroys an object.
fn uses(function: &str) -> bool {
    !function.ends_with("_init") && !function.ends_with("_destroy")
}

/// Waits until the process is set up, if this library has used the object.
fn is_left(left: bool) -> bool {
    if !left {
        set_up_once();
    }
    left
}

impl Argument for *mut Mutex {
    unsafe fn leave_to_glibc(self, function: &str) -> bool {
        // SAFETY: a function that does not make a mutex gets a live one.
        !uses(function) || is_left(unsafe { (*self).leave_to_glibc() })
    }
}

impl Argument for *mut RwLock {
    unsafe fn leave_to_glibc(self, function: &str) -> bool {
        // SAFETY: a function that does not make a rwlock gets a live one.
        !uses(function) || is_left(unsafe { rwlock::chosen::leave_to_glibc(&*self) })
    }
}

impl Argument for *mut Cond {
    unsafe fn leave_to_glibc(self, function: &str) -> bool {
        // A notification changes nothing if no thread waits.
        if function.ends_with("wait") {
            // SAFETY: a thread waits for a live condition variable.
            cond::leave_to_glibc(unsafe { &*self });
        }
        true
    }
}

macro_rules! no_objects {
    ($($type:ty),* $(,)?) => {
        $(impl Argument for $type {})*
    };
}

no_objects! {
    *mut Sem, *mut Spin, *const Attr, *const timespec, *mut c_void, *mut *mut c_void, c_int, *mut c_int, u32, isize,
    *const c_char, libc::pthread_t, *mut libc::pthread_t, *mut libc::pthread_barrier_t, Destructor, Start, AtFork,
}

//! Memory from the operating system.
//!
//! This library never calls `malloc`: `malloc` may itself be waiting for the lock call that is being served.

use super::kernel;
use core::ptr::null_mut;
use libc::c_int;

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}
const DISABLE: c_int = 1;
const DEFERRED: c_int = 0;

/// Runs `calls` unnoticed by the program. It leaves `errno` as it was, because a lock call must not change it. And the thread is not
/// cancelled meanwhile: `open`, `read` and others are cancellation points, and a lock call is none.
pub(crate) fn quietly<T>(calls: impl FnOnce() -> T) -> T {
    // SAFETY: the C library says where the calling thread's `errno` is, for as long as the thread lives. `state` and `kind` are valid
    // for writes.
    unsafe {
        let mut state = DISABLE;
        pthread_setcancelstate(DISABLE, &mut state);
        let errno = libc::__errno_location();
        let saved = *errno;
        let result = calls();
        *errno = saved;
        if state != DISABLE {
            // A thread that was cancelled meanwhile, and may be so at any time, ends in the change of the type. In the change of
            // the state glibc 2.36 would lose its result, `PTHREAD_CANCELED`.
            let mut kind = DEFERRED;
            pthread_setcanceltype(DEFERRED, &mut kind);
            pthread_setcancelstate(state, &mut state);
            if kind != DEFERRED {
                pthread_setcanceltype(kind, &mut kind);
            }
        }
        result
    }
}

/// Zeroed pages.
pub(crate) fn map(bytes: usize) -> *mut u8 {
    quietly(|| {
        // SAFETY: a new mapping replaces nothing. `abort` does not return.
        unsafe {
            let memory = kernel::map(null_mut(), bytes, 0, None);
            if memory == libc::MAP_FAILED {
                // A lock call has no error for this, and a lock without memory would not exclude.
                libc::abort();
            }
            memory.cast()
        }
    })
}

/// Gives pages back.
///
/// # Safety
///
/// `memory` is from [`map`] with the same number of bytes, and nothing uses it any more.
pub(crate) unsafe fn unmap<T>(memory: *mut T, bytes: usize) {
    // SAFETY: the caller owns the whole mapping.
    quietly(|| unsafe { kernel::unmap(memory.cast(), bytes) });
}

//! Memory from the operating system.
//!
//! This library never calls `malloc`: `malloc` may itself be waiting for the lock call that is being served.

use super::kernel;
use core::ptr::null_mut;

/// Runs `calls` unnoticed by the program. It leaves `errno` as it was, because a lock call must not change it. And the thread is not
/// cancelled meanwhile: `open`, `read` and others are cancellation points, and a lock call is none.
pub(crate) use latchwork_check::quietly;

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

//! Memory from the operating system.
//!
//! This library never calls `malloc`: `malloc` may itself be waiting for the lock call that is being served.

use core::ptr::null_mut;

/// Runs `calls`, and leaves `errno` as it was: a lock call must not change it.
pub(crate) fn keeping_errno<T>(calls: impl FnOnce() -> T) -> T {
    // SAFETY: the C library says where the calling thread's `errno` is, for as long as the thread lives.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let result = calls();
        *errno = saved;
        result
    }
}

/// Zeroed pages.
pub(crate) fn map(bytes: usize) -> *mut u8 {
    keeping_errno(|| {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new anonymous mapping replaces nothing. `abort` does not return.
        unsafe {
            let memory = libc::mmap(null_mut(), bytes, protection, flags, -1, 0);
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
    keeping_errno(|| unsafe { libc::munmap(memory.cast(), bytes) });
}

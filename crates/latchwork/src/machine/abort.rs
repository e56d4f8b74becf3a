//! How the process ends where a lock call can neither go on nor return.

/// Writes `why`, a line of text, to the standard error stream, and ends the process.
#[cold]
#[inline(never)]
pub(crate) fn end(why: &'static str) -> ! {
    // The system call itself: `write` is a cancellation point, which a lock call must not have.
    // SAFETY: the bytes are static. `abort` takes no arguments.
    unsafe {
        libc::syscall(libc::SYS_write, libc::STDERR_FILENO, why.as_ptr(), why.len());
        libc::abort()
    }
}

/// Does what must not unwind: the process ends if it does.
pub(crate) fn or_abort<R>(work: impl FnOnce() -> R) -> R {
    struct AbortOnUnwind;

    impl Drop for AbortOnUnwind {
        #[cold]
        fn drop(&mut self) {
            end("latchwork: a panic inside of a lock call, which other threads rely on: the process ends\n");
        }
    }

    let abort = AbortOnUnwind;
    let result = work();
    core::mem::forget(abort);
    result
}

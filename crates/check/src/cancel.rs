//! What the program must not notice of a call: no cancellation while something is held that a dead thread could not give back, and
//! `errno` as it was.

use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

const DISABLE: libc::c_int = 1;
const DEFERRED: libc::c_int = 0;
const ASYNCHRONOUS: libc::c_int = 1;

unsafe extern "C" {
    fn pthread_setcanceltype(kind: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

fn set_state(state: libc::c_int) -> libc::c_int {
    let mut old = DISABLE;
    // SAFETY: `old` is valid for writes.
    unsafe { pthread_setcancelstate(state, &mut old) };
    old
}

/// Restores the state. A thread that was cancelled meanwhile, and asked for asynchronous cancellation, ends here. It must
/// end in the change of the type: in the change of the state glibc 2.36 loses the thread's result (`PTHREAD_CANCELED`).
fn restore(state: libc::c_int) {
    let mut kind = DEFERRED;
    // SAFETY: `kind` is valid for writes, and the second argument may be null.
    unsafe {
        pthread_setcanceltype(DEFERRED, &mut kind);
        set_state(state);
        if kind == ASYNCHRONOUS {
            pthread_setcanceltype(kind, std::ptr::null_mut());
        }
    }
}

/// The calling thread's `errno`.
fn errno() -> *mut libc::c_int {
    // SAFETY: the C library says where it is.
    unsafe { libc::__errno_location() }
}

/// Runs `calls` unnoticed by the program: the thread is not cancelled meanwhile, and `errno` is as it was.
pub fn quietly<T>(calls: impl FnOnce() -> T) -> T {
    let _uncancelled = Uncancelled::new();
    calls()
}

/// Switches cancellation off until it is dropped, and then sets `errno` to what it was.
pub(crate) struct Uncancelled {
    state: libc::c_int,
    errno: libc::c_int,
}

/// The state before a `fork`, as [`fork`](crate::fork) keeps it.
static KEPT: AtomicI32 = AtomicI32::new(0);

impl Uncancelled {
    pub(crate) fn new() -> Self {
        // SAFETY: the thread's own.
        Uncancelled { state: set_state(DISABLE), errno: unsafe { *errno() } }
    }

    /// Stays until [`kept`](Self::kept) is dropped, beyond the end of the function.
    pub(crate) fn keep(self) {
        KEPT.store(self.state, Relaxed);
        std::mem::forget(self);
    }

    /// What the calling thread has kept.
    pub(crate) fn kept() -> Self {
        // SAFETY: the thread's own. `fork` may have changed it.
        Uncancelled { state: KEPT.load(Relaxed), errno: unsafe { *errno() } }
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: the thread's own.
        unsafe { *errno() = self.errno };
        restore(self.state);
    }
}

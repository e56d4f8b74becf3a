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

fn set_kind(kind: libc::c_int) -> libc::c_int {
    let mut old = DEFERRED;
    // SAFETY: `old` is valid for writes.
    unsafe { pthread_setcanceltype(kind, &mut old) };
    old
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
///
/// The kind is set, too: the C library's handler of the signal that cancels a thread at once (glibc 2.36) looks at nothing else. It may
/// run after the thread has switched cancellation off, if the signal was sent before.
pub(crate) struct Uncancelled {
    state: libc::c_int,
    kind: libc::c_int,
    errno: libc::c_int,
}

/// The state and the kind before a `fork`, as [`fork`](crate::fork) keeps them.
static KEPT: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];

impl Uncancelled {
    pub(crate) fn new() -> Self {
        let state = set_state(DISABLE);
        // SAFETY: the thread's own.
        Uncancelled { state, kind: set_kind(DEFERRED), errno: unsafe { *errno() } }
    }

    /// Stays until [`kept`](Self::kept) is dropped, beyond the end of the function.
    pub(crate) fn keep(self) {
        KEPT[0].store(self.state, Relaxed);
        KEPT[1].store(self.kind, Relaxed);
        std::mem::forget(self);
    }

    /// What the calling thread has kept.
    pub(crate) fn kept() -> Self {
        let [state, kind] = [0, 1].map(|at| KEPT[at].load(Relaxed));
        // SAFETY: the thread's own. `fork` may have changed it.
        Uncancelled { state, kind, errno: unsafe { *errno() } }
    }
}

impl Drop for Uncancelled {
    /// A thread that was cancelled meanwhile, and asked to be cancelled at once, ends here. It must end in the change of the kind:
    /// in the change of the state glibc 2.36 loses the thread's result (`PTHREAD_CANCELED`).
    fn drop(&mut self) {
        // SAFETY: the thread's own.
        unsafe { *errno() = self.errno };
        set_state(self.state);
        if self.kind == ASYNCHRONOUS {
            set_kind(ASYNCHRONOUS);
        }
    }
}

//! The users of a mutex that glibc serves, as glibc counts them: its holder, and waiters of condition variables. Its `destroy` fails while
//! there are some.
//!
//! glibc's own wait releases the mutex and leaves the waiter counted. The public function, which ours calls, takes one off.

use crate::state::abi::{Mutex, ROBUST};
use core::sync::atomic::{AtomicU32, Ordering::*};

/// Where a waiter of a condition variable counts as a user of its mutex.
#[repr(i32)]
#[derive(Copy, Clone, PartialEq, Eq)]
pub(in crate::families) enum Counted {
    /// Nowhere: the next unlock will fail, or nothing looks at the count.
    No = 0,
    /// In the word of this library.
    Here = 1,
    /// In glibc's.
    ByGlibc = 2,
}

/// Where glibc has `__owner`, the kernel's number of the thread that holds the mutex, and `__nusers`.
const OWNER: usize = 8;
const USERS: usize = 12;

/// A word of glibc's.
fn word(m: &Mutex, offset: usize) -> &AtomicU32 {
    // SAFETY: the words lie in the first 16 bytes, aligned, and all accesses to them are atomic or under the mutex.
    unsafe { &*m.raw.get().byte_add(offset).cast::<AtomicU32>() }
}

/// Counts the calling thread once more, if it holds the mutex. glibc does not look at the count of a robust one.
pub(super) fn note(m: &Mutex) -> Counted {
    // SAFETY: the call takes no arguments and touches no memory.
    let me = || unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    if m.kind.load(Relaxed) & ROBUST != 0 || word(m, OWNER).load(Relaxed) != me() {
        return Counted::No;
    }
    // Only the holder writes the word.
    word(m, USERS).store(word(m, USERS).load(Relaxed).wrapping_add(1), Relaxed);
    Counted::ByGlibc
}

/// Takes the calling thread, which holds the mutex again, off once.
pub(super) fn forget(m: &Mutex) {
    word(m, USERS).store(word(m, USERS).load(Relaxed).wrapping_sub(1), Relaxed);
}

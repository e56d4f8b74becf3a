//! The users of a mutex that glibc serves, as glibc counts them: its holder, and waiters of condition variables. Its `destroy` fails while
//! there are some.
//!
//! glibc's own wait releases the mutex and leaves the waiter counted. The public function, which ours calls, takes one off.

use crate::state::abi::{Mutex, ROBUST};
use crate::state::memory::quietly;
use core::sync::atomic::{AtomicU32, Ordering::*};
use libc::{ENOTRECOVERABLE, c_int};

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

/// Where glibc has `__lock`. Of a robust mutex: the kernel's number of the thread that holds it, and whether threads wait.
const LOCK: usize = 0;
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;
const FUTEX_WAITERS: u32 = 0x8000_0000;
/// Where it has `__owner`, the kernel's number of the thread that holds the mutex, and `__nusers`.
const OWNER: usize = 8;
const USERS: usize = 12;

/// A word of glibc's.
fn word(m: &Mutex, offset: usize) -> &AtomicU32 {
    // SAFETY: the words lie in the first 16 bytes, aligned, and all accesses to them are atomic or under the mutex.
    unsafe { &*m.raw.get().byte_add(offset).cast::<AtomicU32>() }
}

fn me() -> u32 {
    // SAFETY: the call takes no arguments and touches no memory.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Counts the calling thread once more, if it holds the mutex. glibc does not look at the count of a robust one.
pub(super) fn note(m: &Mutex) -> Counted {
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

/// What a first attempt, which the program did not ask for, makes of an error: glibc's `pthread_mutex_trylock` (2.36 and later) keeps the
/// word of a mutex that is not recoverable. `pthread_mutex_lock`, which the program has called, gives it back.
///
/// # Safety
///
/// The mutex is live.
#[cold]
pub(crate) unsafe fn after_first_attempt(m: *const Mutex, error: c_int) -> c_int {
    // SAFETY: the caller's mutex is live.
    let m = unsafe { &*m };
    if error == ENOTRECOVERABLE && m.kind.load(Relaxed) & ROBUST != 0 {
        let lock = word(m, LOCK);
        let value = lock.load(Relaxed);
        // The word is the caller's, so no other thread but one that begins to wait changes it.
        if value & FUTEX_TID_MASK == me() && lock.swap(0, Release) & FUTEX_WAITERS != 0 {
            // All processes that map the mutex, as glibc has it for robust ones.
            // SAFETY: the call takes an address and numbers.
            quietly(|| unsafe { libc::syscall(libc::SYS_futex, lock, libc::FUTEX_WAKE, 1) });
        }
    }
    error
}

//! The number of the present session. [`live`](super::live) says what a session is.
//!
//! In a forked child the number is 0 from the start. So the child writes nothing into its parent's recording, also if no fork
//! handler runs in it.

use crate::state::wiped::SESSION as PRESENT;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// The process whose session it is: this one, or an ancestor that had one when it made a child. 0: there is none.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicU64 = AtomicU64::new(0);

/// The number of the present session; 0: nothing is recorded.
#[inline(always)]
pub(super) fn number() -> u64 {
    PRESENT.load(Acquire) // (D) pairs with the store in `begin`: the file is mapped
}

/// Whether there is a session, or this process is a child that was made in one and has none yet.
pub(super) fn is_on() -> bool {
    PROCESS.load(Relaxed) != 0
}

/// Whether the session is that of the parent: this process is a child that has none yet.
#[inline(always)]
pub(super) fn is_of_parent() -> bool {
    // Another thread may begin a session between these two.
    number() == 0 && is_on() && PROCESS.load(Relaxed) != this_process()
}

#[cold]
fn this_process() -> u32 {
    // SAFETY: `getpid` takes nothing and always succeeds.
    unsafe { libc::getpid() as u32 }
}

/// A session begins. The file is open, and no thread is inside.
pub(super) fn begin() {
    PROCESS.store(this_process(), Relaxed);
    PRESENT.store(LAST.fetch_add(1, Relaxed) + 1, Release); // (D)
}

/// The session ends.
pub(super) fn end() {
    PROCESS.store(0, Relaxed);
    PRESENT.store(0, SeqCst);
}

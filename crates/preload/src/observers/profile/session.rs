//! The number of the present session. [`live`](super::live) says what a session is.

use core::sync::atomic::{AtomicU64, Ordering::*};

static PRESENT: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicU64 = AtomicU64::new(0);

/// The number of the present session; 0: nothing is recorded.
#[inline(always)]
pub(super) fn number() -> u64 {
    PRESENT.load(Acquire) // (D) pairs with the store in `begin`: the file is mapped
}

/// A session begins. The file is open, and no thread is inside.
pub(super) fn begin() {
    PRESENT.store(LAST.fetch_add(1, Relaxed) + 1, Release); // (D)
}

/// The session ends.
pub(super) fn end() {
    PRESENT.store(0, SeqCst);
}

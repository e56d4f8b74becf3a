//! The number of the calling thread: no other thread of the process has it, or ever had it.
//!
//! The address of a thread's control block and the kernel's thread id are both used again after the thread has ended.
//! If a mutex stored one of those, a mutex that an ended thread left locked would look as if a later thread held it. So
//! each thread takes a number at its first use, from a counter that never goes back.
//!
//! The thread of a forked child keeps the number of the thread that forked, and so it still owns what that thread had
//! locked.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use latchwork::machine::native::tls::thread_local_word;

/// Bits of a number. A process that starts a million threads a second uses them up in twelve days.
pub(crate) const BITS: u32 = 40;

thread_local_word! {
    /// The number, or 0 until the thread has one.
    Number: u64 = "thread_number"
}

/// The calling thread's number: never 0.
#[inline(always)]
pub(crate) fn me() -> u64 {
    match Number::get() {
        0 => take(),
        number => number,
    }
}

/// Gives the calling thread its number.
#[cold]
#[inline(never)]
fn take() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let number = LAST.fetch_add(1, Relaxed) + 1;
    // SAFETY: the thread's own word, which lives as long as the thread and is aligned to eight bytes.
    let own = unsafe { AtomicU64::from_ptr(Number::address()) };
    // If a signal handler of this thread has taken a number meanwhile, that number stands.
    match own.compare_exchange(0, number, Relaxed, Relaxed) {
        Ok(_) => number,
        Err(first) => first,
    }
}

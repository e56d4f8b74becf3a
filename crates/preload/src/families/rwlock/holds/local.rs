//! A thread's own words: where its list begins, and how much of it is in use.

use super::records::Record;
use latchwork::machine::native::tls::{Zero, thread_local_bytes};

/// A thread's own words. All-zero: the thread has no list.
#[repr(C)]
pub(crate) struct Local {
    pub(super) first: *mut Record,
    /// Entries of the first record below this index may be in use.
    pub(super) used: u32,
    /// How many entries of further records are in use, or were until another thread took them away.
    pub(super) overflow: u32,
}

/// The offset, in a thread's words, of the eight bytes that are zero while the thread reads nothing.
#[cfg(versioned)]
pub(crate) const ANY: usize = {
    assert!(core::mem::offset_of!(Local, overflow) == core::mem::offset_of!(Local, used) + 4);
    core::mem::offset_of!(Local, used)
};

// SAFETY: zero bytes are a null pointer and two numbers.
unsafe impl Zero for Local {}

thread_local_bytes! {
    /// The calling thread's words.
    pub(crate) Words: Local = "read_locks"
}

/// Where the calling thread has its words. They live as long as the thread.
#[inline(always)]
pub(super) fn local() -> *mut Local {
    Words::address()
}

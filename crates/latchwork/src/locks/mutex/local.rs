//! Locks that can be the local one of a stacked lock.

use super::RawMutex;

/// A lock that can stand below another one in [`Stacked`](super::stacked::Stacked).
pub trait Local: RawMutex {
    /// Whether another thread waits for the lock already, and will certainly acquire it after the holder of `token`.
    ///
    /// A thread that has just arrived may be missed. A thread that is counted cannot leave without the lock.
    ///
    /// # Safety
    ///
    /// `token` came from an acquisition that has not ended.
    ///
    /// ```compile_fail,E0133
    /// use latchwork::locks::mutex::{mcs::RawMcs, stacked::Local};
    /// use latchwork::machine::Native;
    ///
    /// RawMcs::<Native>::new().has_waiters(std::ptr::NonNull::dangling());
    /// ```
    unsafe fn has_waiters(&self, token: Self::Token) -> bool;
}

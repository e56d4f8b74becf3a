//! `ReentrantMutex` and its guards.

use crate::RawMutex;
use crate::machine::{Machine, Native};
use core::num::NonZeroUsize;

/// A mutex that the thread which holds it can lock again.
///
/// **When to take it.** If a function that locks calls another function that locks the same mutex, and the two cannot be
/// taken apart. A guard gives shared access to the value, because one thread can have several guards: put a
/// [`Cell`](core::cell::Cell) or [`RefCell`](core::cell::RefCell) inside to change the value.
///
/// ```
/// use latchwork::ReentrantMutex;
/// use std::cell::Cell;
///
/// static DEPTH: ReentrantMutex<Cell<u32>> = ReentrantMutex::new(Cell::new(0));
///
/// let outer = DEPTH.lock();
/// let inner = DEPTH.lock();
/// inner.set(inner.get() + 1);
/// assert_eq!(outer.get(), 1);
/// ```
///
/// **What it costs.** A [`Mutex`](crate::Mutex), 16 bytes more, and a look at the thread's number for each lock and unlock.
///
/// **Panics.** If a thread locks it `usize::MAX` times without unlocking.
///
/// **Poisoning, between processes, on fork, in a signal handler.** As [`Mutex`](crate::Mutex).
///
/// A guard that is forgotten ([`mem::forget`](core::mem::forget)) leaves the mutex locked by its thread. When that thread has ended, a
/// new thread may get its number, and the mutex takes the new thread for the holder.
pub type ReentrantMutex<T> = lock_api::ReentrantMutex<RawMutex, ThreadId, T>;

/// What [`ReentrantMutex::lock`](lock_api::ReentrantMutex::lock) returns.
pub type ReentrantMutexGuard<'a, T> = lock_api::ReentrantMutexGuard<'a, RawMutex, ThreadId, T>;

/// A [`ReentrantMutexGuard`] of a part of the value.
pub type MappedReentrantMutexGuard<'a, T> = lock_api::MappedReentrantMutexGuard<'a, RawMutex, ThreadId, T>;

/// A [`ReentrantMutexGuard`] that owns a reference to its mutex.
#[cfg(feature = "arc_lock")]
pub type ArcReentrantMutexGuard<T> = lock_api::ArcReentrantMutexGuard<RawMutex, ThreadId, T>;

/// How [`ReentrantMutex`] recognises the thread that holds it.
#[derive(Copy, Clone, Debug, Default)]
pub struct ThreadId;

// SAFETY: `Machine::thread_id` promises a number that no other live thread has, which is never 0 and stays the
// thread's own.
unsafe impl lock_api::GetThreadId for ThreadId {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = ThreadId;

    #[inline]
    fn nonzero_thread_id(&self) -> NonZeroUsize {
        let Some(id) = NonZeroUsize::new(Native::thread_id()) else {
            unreachable!("a thread's number is never 0")
        };
        id
    }
}

//! The locks by name: mutexes, reader-writer locks, condition variables, semaphores and sequence locks.
//!
//! An application takes its types from the root of the crate. The aliases below ([`McsMutex`], [`PfQRwLock`], ...) are for
//! a program that wants one certain algorithm, and [`MutexOver`] is for an algorithm of its own. The feature `all-locks`
//! adds the locks that are there to be compared with.
//!
//! Each algorithm is one file under [`mutex`] or [`rwlock`], or is [`condvar`], [`semaphore`] or [`seqlock`]. This
//! file holds what the registry says about every lock ([`Info`]), and what an acquisition hands to its release
//! ([`Token`]).

use core::ptr::NonNull;

/// Gives a lock with a `const fn new()` its `Default` and its kind's `ConstNew`, which the file imports.
macro_rules! const_new {
    ($lock:ty $(, $($generics:tt)*)?) => {
        impl $(<$($generics)*>)? Default for $lock {
            fn default() -> Self {
                Self::new()
            }
        }

        impl $(<$($generics)*>)? ConstNew for $lock {
            #[allow(clippy::declare_interior_mutable_const)]
            const NEW: Self = Self::new();
        }
    };
}

pub mod condvar;
#[doc(hidden)]
pub mod for_assembly;
pub mod mutex;
pub mod rwlock;
pub mod semaphore;
pub mod seqlock;

pub(crate) mod aliases;
pub(crate) mod backoff;
pub(crate) mod bits;
#[cfg(feature = "std")]
pub(crate) mod timed;

#[cfg(test)]
pub(crate) mod tests;

pub use aliases::*;

/// Locks again for a guard whose lock was released meanwhile. If `lock` unwinds, which a lock whose parts are its user's can do,
/// the process ends: the guard would be dropped, and end another holder's acquisition.
fn relock<T>(guard: &mut mutex::Held<T>, lock: impl FnOnce() -> T) {
    *guard = mutex::Held::new(crate::machine::or_abort(lock));
}

/// What an acquisition must remember until its release. Adapters that have no room for a typed
/// token (pthread) keep it as one word.
pub trait Token: Copy {
    /// Whether the lowest bit of every token's word is 0, so that a lock that wraps the token can put a tag there
    /// ([`bravo`](crate::locks::rwlock::bravo) does).
    const HAS_FREE_BIT: bool;
    /// The token as a word.
    fn into_word(self) -> usize;
    /// The token back from its word.
    ///
    /// # Safety
    ///
    /// `word` came from [`into_word`](Token::into_word) of the same type.
    unsafe fn from_word(word: usize) -> Self;
}

impl Token for () {
    const HAS_FREE_BIT: bool = true;
    fn into_word(self) -> usize {
        0
    }
    unsafe fn from_word(_: usize) {}
}

impl<T> Token for NonNull<T> {
    const HAS_FREE_BIT: bool = align_of::<T>() > 1;
    fn into_word(self) -> usize {
        self.as_ptr().expose_provenance()
    }
    unsafe fn from_word(word: usize) -> Self {
        // SAFETY: the word came from a non-null pointer.
        unsafe { NonNull::new_unchecked(core::ptr::with_exposed_provenance_mut(word)) }
    }
}

/// What happens to the other threads when one waiter is suspended for ever: stopped by a debugger or in a signal
/// handler, in a frozen control group, or of a scheduling class that gets no processor. A holder is no waiter: it
/// keeps its lock.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Suspension {
    /// They get the lock when it is released, those in a queue as well as newcomers, attempts and timed acquisitions.
    /// It may take tens of milliseconds.
    Tolerates,
    /// Some of them may wait until that waiter runs again.
    Blocks,
}

impl Suspension {
    /// As `latchwork list` shows it.
    pub const fn name(self) -> &'static str {
        match self {
            Suspension::Tolerates => "tolerates",
            Suspension::Blocks => "blocks",
        }
    }
}

/// What the registry, `latchwork list` and the docs say about an algorithm.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// The name that a user types.
    pub name: &'static str,
    /// One line: what it is.
    pub summary: &'static str,
    /// Atomic read-modify-writes per uncontended acquire+release (for a reader-writer lock: of a
    /// read).
    pub atomics: u32,
    /// Bytes of queue nodes that a waiter occupies beside the lock.
    pub waiter_bytes: usize,
    /// Bytes of queue nodes that a holder occupies beside the lock (of a reader-writer lock: a reader).
    pub holder_bytes: usize,
    /// Which waiter gets the lock next, and what is promised about it.
    pub fairness: &'static str,
    /// Whether waiters sleep (after a bounded spin) or spin until they have it.
    ///
    /// A waiter that spins offers its processor to other threads, and naps after some 20 to 140 ms. Under `SCHED_FIFO` it
    /// keeps a preempted holder of a lower priority from running until then (`docs/real-time.md`).
    pub blocking: bool,
    /// What a suspended waiter does to the others.
    pub suspension: Suspension,
    /// Paper and section.
    pub source: &'static str,
}

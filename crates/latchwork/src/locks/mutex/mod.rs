//! Mutual exclusion: one algorithm, one file.
//!
//! Every lock implements [`RawMutex`], generic over its machine. [`Api`] fits any of them to [`lock_api`].

pub use super::{Info, Suspension, Token};
use crate::locks::backoff;
use crate::machine::{Deadline, Machine, Native};

// What an application takes.
pub mod mcs;
pub mod policies;
pub mod shfl;
pub mod shuffle;
pub mod ticket;

// What that is made of.
mod api;
pub(crate) mod invite;
mod local;
mod queue;
pub(crate) mod sleepers;
pub(crate) mod turn;

// What it is compared with.
#[cfg(feature = "all-locks")]
pub mod clh;
#[cfg(feature = "all-locks")]
pub mod cna;
#[cfg(feature = "all-locks")]
pub mod cst;
#[cfg(feature = "all-locks")]
pub mod fissile;
#[cfg(feature = "all-locks")]
pub mod hclh;
#[cfg(feature = "all-locks")]
pub mod hemlock;
#[cfg(feature = "all-locks")]
pub mod hybrid;
#[cfg(feature = "all-locks")]
pub mod k42;
#[cfg(feature = "all-locks")]
pub mod malthusian;
#[cfg(feature = "all-locks")]
pub mod mcs_park;
#[cfg(feature = "all-locks")]
pub mod mcs_tp;
#[cfg(feature = "all-locks")]
pub mod mutexee;
#[cfg(feature = "all-locks")]
pub mod osq;
#[cfg(feature = "all-locks")]
pub mod qspinlock;
#[cfg(feature = "all-locks")]
pub mod reciprocating;
#[cfg(feature = "all-locks")]
pub mod shfl_spin;
#[cfg(feature = "all-locks")]
pub mod stacked;
#[cfg(feature = "all-locks")]
pub mod tas;
#[cfg(feature = "all-locks")]
pub mod ttas;
#[cfg(feature = "all-locks")]
pub mod twa;

pub use api::{Api, Held};

/// A mutual-exclusion lock over machine [`Machine`](RawMutex::Machine). All-zero bytes are an unlocked lock.
///
/// The holder may give its token to another thread, which then releases the lock.
///
/// In the child of a `fork`, a lock that another thread held or waited for is lost: the child must not even release it. A
/// lock that is made in the child works, at an address where no lock was in use. The same goes for
/// [`RawRwLock`](crate::locks::rwlock::RawRwLock), but there the thread that acquired a read releases it.
///
/// # Safety
///
/// An implementation promises: at most one token is outstanding; a release happens before the next acquisition; `new_in()`
/// on the native machine is all-zero bytes.
pub unsafe trait RawMutex: Send + Sync + Sized + 'static {
    /// The machine that the lock runs on.
    type Machine: Machine;
    /// What `lock` hands to `unlock`.
    type Token: Token;
    /// What the registry says about the lock.
    const INFO: Info;

    /// An unlocked lock, on any machine.
    fn new_in() -> Self;

    /// Acquires the lock, and waits for as long as that takes.
    fn lock(&self) -> Self::Token;

    /// Acquires the lock if that is possible without waiting.
    fn try_lock(&self) -> Option<Self::Token>;

    /// The uncontended part of [`try_lock`](RawMutex::try_lock), for callers that go on to wait. It may fail although the
    /// lock is free.
    #[inline(always)]
    fn try_lock_weak(&self) -> Option<Self::Token> {
        self.try_lock()
    }

    /// [`lock`](RawMutex::lock), after an attempt that has just failed.
    fn lock_contended(&self) -> Self::Token {
        self.lock()
    }

    /// Acquires the lock unless the deadline passes first. An algorithm whose waiters cannot leave their queue (strict
    /// FIFO) polls [`try_lock`](RawMutex::try_lock) instead, outside the queue.
    fn lock_until(&self, deadline: Deadline) -> Option<Self::Token> {
        backoff::poll::<Self::Machine, _>(deadline, || self.try_lock())
    }

    /// Releases the lock.
    ///
    /// # Safety
    ///
    /// `token` came from the acquisition that this ends.
    unsafe fn unlock(&self, token: Self::Token);

    /// Whether a thread held the lock a moment ago.
    fn is_locked(&self) -> bool;

    /// Whether a thread that a condition variable has woken should offer its processor to the holder before it waits for the lock:
    /// a thread holds the lock, and a waiter would spin.
    fn wants_offers(&self) -> bool {
        self.is_locked()
    }
}

/// A lock whose holder can hand it over to the waiter that is first in the queue.
pub trait Fair: RawMutex {
    /// Releases, and keeps every other thread from taking the lock before the first waiter in the queue does. Without
    /// a waiter in the queue, this is [`unlock`](RawMutex::unlock). A waiter that gives up, or is suspended, loses its
    /// precedence.
    ///
    /// The default is for locks that are first come, first served.
    ///
    /// # Safety
    ///
    /// `token` came from the acquisition that this ends.
    #[inline]
    unsafe fn unlock_fair(&self, token: Self::Token) {
        // SAFETY: the caller's token came from the acquisition that this ends.
        unsafe { self.unlock(token) }
    }
}

/// A lock that can be made in a constant, on the native machine.
pub trait ConstNew: RawMutex<Machine = Native> {
    /// An unlocked lock.
    const NEW: Self;
}

//! Mutual exclusion: one algorithm, one file.
//!
//! Every lock implements [`RawMutex`], generic over its machine; [`Api`] fits any of them to
//! [`lock_api`].

pub use super::{Info, Suspension, Token};
use crate::locks::backoff;
use crate::machine::{Deadline, Machine, Native};

/// Gives a lock with a `const fn new()` its `Default` and [`ConstNew`].
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

pub mod clh;
pub mod cna;
pub mod cst;
pub mod fissile;
pub mod hclh;
pub mod hemlock;
pub mod hybrid;
pub mod k42;
pub mod malthusian;
pub mod mcs;
pub mod mcs_park;
pub mod mcs_tp;
pub mod mutexee;
pub mod policies;
pub mod qspinlock;
pub mod reciprocating;
pub mod shfl;
pub mod shfl_spin;
pub mod stacked;
pub mod tas;
pub mod ticket;
pub mod ttas;
pub mod twa;

mod api;
mod invite;
mod local;
mod newcomer;
mod osq;
pub mod policy;
mod queue;
mod ranks;
pub mod shuffle;
pub(crate) mod sleepers;

pub use api::{Api, Held, deadline};

/// A mutual-exclusion lock over machine [`Machine`](RawMutex::Machine). All-zero bytes are an
/// unlocked lock.
///
/// A token may be given to another thread, which then releases.
///
/// In the child of a `fork`, a lock that another thread held or waited for is lost: it must not even
/// be released there. Locks that are made in the child work, at an address where none was in use.
/// The same goes for [`RawRwLock`](crate::locks::rwlock::RawRwLock), but there a read is released by the
/// thread that acquired it.
///
/// # Safety
///
/// At most one token is outstanding, acquire and release order memory accordingly, and
/// `new_in()` on the native machine is all-zero bytes.
pub unsafe trait RawMutex: Send + Sync + Sized + 'static {
    /// The machine it runs on.
    type Machine: Machine;
    /// What `lock` hands to `unlock`.
    type Token: Token;
    /// Its description.
    const INFO: Info;

    /// An unlocked lock, on any machine.
    fn new_in() -> Self;

    /// Acquires, waiting as long as it takes.
    fn lock(&self) -> Self::Token;

    /// Acquires if that is possible without waiting.
    fn try_lock(&self) -> Option<Self::Token>;

    /// The uncontended part of [`try_lock`](RawMutex::try_lock), for callers that go on to wait: it
    /// may fail although the lock is free.
    #[inline(always)]
    fn try_lock_weak(&self) -> Option<Self::Token> {
        self.try_lock()
    }

    /// [`lock`](RawMutex::lock), after an attempt that has just failed.
    fn lock_contended(&self) -> Self::Token {
        self.lock()
    }

    /// Acquires unless the deadline passes first. An algorithm whose waiters cannot leave their
    /// queue (strict FIFO) polls [`try_lock`](RawMutex::try_lock) instead, outside the queue.
    fn lock_until(&self, deadline: Deadline) -> Option<Self::Token> {
        backoff::poll::<Self::Machine, _>(deadline, || self.try_lock())
    }

    /// Releases.
    ///
    /// # Safety
    ///
    /// `token` came from the acquisition that this ends.
    unsafe fn unlock(&self, token: Self::Token);

    /// Whether somebody held it a moment ago.
    fn is_locked(&self) -> bool;
}

/// A lock that can be made in a constant, on the native machine.
pub trait ConstNew: RawMutex<Machine = Native> {
    /// An unlocked lock.
    const NEW: Self;
}

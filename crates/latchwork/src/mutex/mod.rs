//! Mutual exclusion: one algorithm, one file.
//!
//! Every lock implements [`RawMutex`], generic over its machine; [`Api`] fits any of them to
//! [`lock_api`].

use crate::machine::{Deadline, Machine, Native};
use core::ptr::NonNull;

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
pub(crate) mod backoff;
mod newcomer;
mod osq;
mod queue;
pub mod shuffle;
pub(crate) mod sleepers;

pub use api::{Api, Held, deadline};

/// What an acquisition must remember until its release. Adapters that have no room for a typed
/// token (pthread) keep it as one word.
pub trait Token: Copy {
    /// Whether the lowest bit of every token's word is 0, so that a lock that wraps the token can put a tag there
    /// ([`bravo`](crate::rwlock::bravo) does).
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
    /// Who gets the lock next, and what is promised about it.
    pub fairness: &'static str,
    /// Whether waiters sleep (after a bounded spin) or spin until they have it.
    pub blocking: bool,
    /// What a suspended waiter does to the others.
    pub suspension: Suspension,
    /// Paper and section.
    pub source: &'static str,
}

/// A mutual-exclusion lock over machine [`Machine`](RawMutex::Machine). All-zero bytes are an
/// unlocked lock.
///
/// A token may be given to another thread, which then releases.
///
/// In the child of a `fork`, a lock that another thread held or waited for is lost: it must not even
/// be released there. Locks that are made in the child work, at an address where none was in use.
/// The same goes for [`RawRwLock`](crate::rwlock::RawRwLock), but there a read is released by the
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

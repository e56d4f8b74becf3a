//! Reader-writer locks: one algorithm, one file.
//!
//! Every lock implements [`RawRwLock`], generic over its machine; [`Api`] fits any of them to
//! [`lock_api`].

use super::backoff;
pub use super::{Info, Suspension, Token};
use crate::machine::{Deadline, Machine, Native, Word};
use core::sync::atomic::Ordering::{Acquire, Relaxed};

pub mod bravo;
pub mod pf_q;
pub mod pf_t;
pub mod shfl_rw;

// What the others are compared with.
#[cfg(feature = "all-locks")]
pub mod cohort_rw;
#[cfg(feature = "all-locks")]
pub mod exclusive;
#[cfg(feature = "all-locks")]
pub mod glibc_rw;
#[cfg(feature = "all-locks")]
pub mod mcs_rw;
#[cfg(feature = "all-locks")]
pub mod percpu;
#[cfg(feature = "all-locks")]
pub mod rwsem;

mod api;
mod api_optional;
mod optional;
mod phases;
mod wait;
pub use api::Api;
pub use api_optional::ReadRecursive;
pub use optional::{RawDowngrade, RawFair, RawRecursive, RawUpgrade};
pub use wait::Timeout;

#[cfg(test)]
mod tests;

/// The number of the part of a lock that an acquisition used, as a token.
#[derive(Copy, Clone, Debug)]
pub struct Index(pub(crate) u32);

impl Token for Index {
    const HAS_FREE_BIT: bool = true;
    fn into_word(self) -> usize {
        (self.0 as usize) << 1
    }
    unsafe fn from_word(word: usize) -> Self {
        Index((word >> 1) as u32)
    }
}

/// The most readers that a lock counts, or half of them. No machine has so many threads: guards were forgotten, again and again.
const MOST_READERS: u32 = 1 << 28;

/// Ends the process, as more readers would wrap the count around and let a writer in beside them. It does not unwind: the caller
/// may be in a queue.
#[cold]
#[inline(never)]
extern "C" fn too_many_readers() -> ! {
    panic!("a lock has so many readers that their number would wrap around: read guards were forgotten");
}

/// Arrivals from one look at the number of readers to the next, in the locks that count arrivals and departures. Far fewer than
/// [`MOST_READERS`]: a reader may be suspended before its look, and then another reader looks in time.
const LOOK: u32 = 1 << 20;

/// The longest time in which a look may find too many readers, in nanoseconds. The counts do not wrap around meanwhile: 2^30 atomic
/// additions to one word take more than a second.
const VERDICT: u64 = 100_000_000;

/// A reader has found `before` arrivals, a multiple of [`LOOK`]. The counts of arrivals and departures wrap around, in units of
/// `reader`, and their difference must not.
///
/// Other readers arrive and depart between two loads, and this thread may be suspended there, so the difference of two loads may
/// be anything. The process ends only if too many readers were inside at the moment when the arrivals were loaded. That is known
/// from the departures before and after that moment, if the counts cannot have wrapped around in between.
#[cold]
#[inline(never)]
fn check_difference<M: Machine, W: Word<u32>>(before: u32, arrived: &W, departed: &W, reader: u32) {
    // Not at 0, where every lock begins.
    if before == 0 {
        return;
    }
    let most = MOST_READERS / 2 * reader;
    // The departures, and then at least as many readers as are inside. Acquire: the first load pairs with the releases of departing
    // readers, so that their arrivals are counted. The second load comes before the next one of the departures.
    let look = || {
        let departures = departed.load(Acquire);
        (departures, (arrived.load(Acquire) & !(reader - 1)).wrapping_sub(departures))
    };
    while look().1 >= most {
        let late = Deadline::after::<M>(VERDICT);
        let (departures, inside) = look();
        let departed_meanwhile = departed.load(Relaxed).wrapping_sub(departures);
        if inside.saturating_sub(departed_meanwhile) >= most && !late.passed::<M>() {
            too_many_readers();
        }
    }
}

/// A reader-writer lock over machine [`Machine`](RawRwLock::Machine). All-zero bytes are an
/// unlocked lock.
///
/// A thread that holds a read acquisition must not call [`read`](RawRwLock::read) again: a writer that waits in between waits
/// for the thread, and the thread for the writer, for ever. A [`RawRecursive`] lock has functions for such a thread.
///
/// # Safety
///
/// While a write token is outstanding, no other token is. Acquisitions and releases order the sections accordingly. `new_in()`
/// on the native machine is all-zero bytes.
pub unsafe trait RawRwLock: Send + Sync + Sized + 'static {
    /// The machine it runs on.
    type Machine: Machine;
    /// What `read` hands to `unlock_read`.
    type Read: Token;
    /// What `write` hands to `unlock_write`.
    type Write: Token;
    /// The same lock with statistics of how readers got in, see [`bravo::count`]; `Self` if it has none.
    type Counted: RawRwLock<Machine = Self::Machine>;
    /// What the registry says about it.
    const INFO: Info;
    /// Whether several readers can be inside together. Only BRAVO over a mutex has `false`.
    const SHARES: bool = true;
    /// Whether readers may pass a waiting writer for as long as they overlap, so that the writer may wait for ever.
    const PREFERS_READERS: bool = false;
    /// Whether any thread may end a write acquisition. glibc's lock takes a release by another thread than the writer for
    /// that of a reader.
    const RELEASED_BY_ANY: bool = true;
    /// Whether the lock's own address stands in the slots of readers. [`bravo`] cannot be over such a lock, because both would have one
    /// address:
    ///
    /// ```compile_fail,E0080
    /// use latchwork::locks::rwlock::{bravo::Rows, shfl_rw::RawShflRw};
    /// use latchwork::machine::Native;
    /// static TWICE: Rows<Native, Rows<Native, RawShflRw<Native>>> = Rows::new();
    /// ```
    const HAS_SLOTS: bool = false;

    /// An unlocked lock, on any machine.
    fn new_in() -> Self;

    /// Acquires for reading, waiting as long as it takes.
    fn read(&self) -> Self::Read;

    /// Acquires for reading if that is possible without waiting.
    fn try_read(&self) -> Option<Self::Read>;

    /// The uncontended part of [`try_read`](RawRwLock::try_read), for callers that call that next. It may fail although the lock
    /// can be read.
    #[inline(always)]
    fn try_read_weak(&self) -> Option<Self::Read> {
        self.try_read()
    }

    /// Acquires for reading unless the deadline passes first. The default polls, outside any queue.
    fn read_until(&self, deadline: Deadline) -> Option<Self::Read> {
        backoff::poll::<Self::Machine, _>(deadline, || self.try_read())
    }

    /// [`read`](RawRwLock::read) or [`read_until`](RawRwLock::read_until), with a function for waiters. If a waiter's sleep can
    /// end by itself, the waiter calls `watch` then. BRAVO uses it to release a lock that a suspended writer holds.
    #[inline]
    fn read_watching(&self, deadline: Option<Deadline>, _watch: &dyn Fn()) -> Option<Self::Read> {
        match deadline {
            Some(deadline) => self.read_until(deadline),
            None => Some(self.read()),
        }
    }

    /// Ends a read acquisition.
    ///
    /// # Safety
    ///
    /// `token` came from the acquisition that this ends.
    unsafe fn unlock_read(&self, token: Self::Read);

    /// Whether the read acquisition of the calling thread that returned `token` is *recorded*: the lock itself knows which
    /// thread has it (BRAVO with a row of slots per thread, for a reader in a slot). Then
    /// [`unlock_own_recorded_read`](RawRwLock::unlock_own_recorded_read) can end it, and an adapter that has no room for tokens
    /// need not keep this one.
    #[inline(always)]
    fn is_recorded(_token: &Self::Read) -> bool {
        false
    }

    /// Whether the calling thread has a recorded read acquisition.
    #[inline(always)]
    fn has_own_recorded_read(&self) -> bool {
        false
    }

    /// Ends a recorded read acquisition of the calling thread, if there is one. It uses the lock's address and does not look
    /// at its contents.
    ///
    /// # Safety
    ///
    /// The token of that acquisition is not used.
    #[inline(always)]
    unsafe fn unlock_own_recorded_read(&self) -> bool {
        false
    }

    /// Ends a recorded read acquisition of any thread, if there is one.
    ///
    /// # Safety
    ///
    /// The token of that acquisition is not used. Meanwhile no thread begins or ends a recorded acquisition of this lock: this
    /// function may find that one, and both would end it.
    unsafe fn unlock_any_recorded_read(&self) -> bool {
        false
    }

    /// Whether any thread has a recorded read acquisition.
    fn has_recorded_read(&self) -> bool {
        false
    }

    /// Restores the recorded read acquisitions of a lock that has been set to zero while it had some.
    ///
    /// # Safety
    ///
    /// Before the lock was set to zero, [`has_recorded_read`](RawRwLock::has_recorded_read) was true. No other thread uses the
    /// lock meanwhile, and no writer holds it.
    unsafe fn restore_recorded_reads(&self) {}

    /// Acquires for writing, waiting as long as it takes.
    fn write(&self) -> Self::Write;

    /// Acquires for writing if that is possible without waiting for the underlying lock.
    fn try_write(&self) -> Option<Self::Write>;

    /// Acquires for writing unless the deadline passes first. The default polls, outside any queue.
    fn write_until(&self, deadline: Deadline) -> Option<Self::Write> {
        backoff::poll::<Self::Machine, _>(deadline, || self.try_write())
    }

    /// As [`read_watching`](RawRwLock::read_watching), for writing.
    #[inline]
    fn write_watching(&self, deadline: Option<Deadline>, _watch: &dyn Fn()) -> Option<Self::Write> {
        match deadline {
            Some(deadline) => self.write_until(deadline),
            None => Some(self.write()),
        }
    }

    /// Ends a write acquisition.
    ///
    /// # Safety
    ///
    /// `token` came from the acquisition that this ends.
    unsafe fn unlock_write(&self, token: Self::Write);

    /// Whether a thread held the lock, for reading or writing, a moment ago.
    fn is_locked(&self) -> bool;

    /// Whether a thread held the lock for writing a moment ago. In some locks a writer that only waits for readers to leave
    /// counts as well.
    fn is_write_locked(&self) -> bool;
}

/// A reader-writer lock that can be made in a constant, on the native machine.
pub trait ConstNew: RawRwLock<Machine = Native> {
    /// An unlocked lock.
    const NEW: Self;
}

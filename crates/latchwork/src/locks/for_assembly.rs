//! What fast paths that are not written in Rust must know about a lock.
//!
//! The preloaded library has copies of the uncontended acquisition and release of its default locks in assembly, and
//! `latchwork.h` has them in C. They depend on the layout of the lock and on the values of its words, which this module alone
//! gives out. It is no part of the library's interface: an application calls the lock.

use super::mutex::RawMutex;
use super::rwlock::RawRwLock;

/// A mutex that a compare-and-exchange of one 32-bit word acquires.
///
/// The uncontended acquisition changes the word from 0 to [`LOCKED`](Self::LOCKED), with acquire ordering
/// ([`Machine::acquire_zero`](crate::machine::Machine::acquire_zero)). The release, if the pointer at [`QUEUE`](Self::QUEUE) is
/// null, stores 0 ([`Machine::release_if`](crate::machine::Machine::release_if)). In any other case the lock's own functions are
/// called.
pub trait CompareMutex: RawMutex {
    /// Where the word is: its offset in the lock, in bytes.
    const WORD: usize;
    /// The word while the lock is held and no thread waits.
    const LOCKED: u32;
    /// Where the pointer to the queue's last waiter is. It is null if no thread waits in the queue.
    const QUEUE: usize;

    /// The uncontended release. `false`: the caller still holds the lock, and calls [`RawMutex::unlock`].
    ///
    /// # Safety
    ///
    /// If the lock is held, the caller holds it.
    unsafe fn release(&self) -> bool;
}

/// A reader-writer lock that a compare-and-exchange of one 32-bit word acquires for writing, if no reader is inside.
///
/// The uncontended acquisition finds 0 in the count of readers, and changes the word from 0 to [`WRITER`](Self::WRITER),
/// sequentially consistent. Then it looks at the count again, sequentially consistent: if that is 0, the thread holds the lock,
/// and otherwise it calls [`RawRwLock::unlock_write`] and begins anew. The release, if the pointer at [`QUEUE`](Self::QUEUE) is
/// null, stores 0 ([`Machine::release_if`](crate::machine::Machine::release_if)); otherwise it calls `unlock_write`.
pub trait CompareRwLock: RawRwLock {
    /// Where the word is: its offset in the lock, in bytes.
    const WORD: usize;
    /// Where the count of readers is.
    const READERS: usize;
    /// The word while the lock is held for writing and no thread waits.
    const WRITER: u32;
    /// Where the pointer to the queue's last waiter is. It is null if no thread waits in the queue.
    const QUEUE: usize;
}

/// BRAVO. Its readers use slots while one 32-bit word of the lock, the bias, is [`BIASED`](Self::BIASED).
///
/// The assembly fills and empties slots of the thread's row itself, as
/// [`Owned`](super::rwlock::bravo::publish::Owned) does. The uncontended read acquisition begins if the row does not note the
/// lock as unbiased and its first slot is 0. It stores the lock's address in that slot and then looks at the bias. If that is
/// `BIASED`, the thread holds the lock; otherwise it sets the slot to 0 again. The release is a store of 0 to the slot.
///
/// A writer acquires the underlying lock, and then looks at the bias. If that is `BIASED`, or [`REVOKING`](Self::REVOKING) or
/// more, the writer releases the underlying lock, and calls [`RawRwLock::write`]. Otherwise it sets the word at
/// [`IN_A_ROW`](Self::IN_A_ROW) to 0, and holds the lock. The release is that of the underlying lock.
pub trait BiasedRwLock: RawRwLock {
    /// Where the bias is: its offset in the lock, in bytes.
    const BIAS: usize;
    /// The value of the bias with which readers use slots.
    const BIASED: u32;
    /// The lowest value of the bias while threads wait for readers in slots and do not hold the underlying lock.
    const REVOKING: u32;
    /// Where the policy of the bias counts reads in a row.
    const IN_A_ROW: usize;
    /// Where the underlying lock is.
    const BELOW: usize;
}

//! Reader-writer ShflLock, blocking.
//!
//! Source: Kashyap et al., "Scalable and practical locking with shuffling", SOSP 2019, section 4.2.3.
//!
//! One word says whether there is a writer, another counts readers. Behind them is the queue of the blocking mutex,
//! [`shfl`](crate::locks::mutex::shfl), with readers and writers in it. A *newcomer* that finds the words open to it enters.
//! Otherwise it spins for some microseconds and then queues. Only the *head* of the queue waits at the words. How long a
//! thread spins, when it sleeps and when the head's turn comes are the mutex's rules, with the constants of its [`Policy`].
//!
//! A reader adds itself to the count, looks for a writer, and *withdraws* (subtracts itself) if there is one. A writer sets WRITER,
//! looks for readers, and withdraws (clears WRITER) if there are any. (This is Dekker's handshake; each addition and each bit is one
//! atomic instruction, and none is retried.)
//!
//! # States
//!
//! `words.rs` has the bits of `word` and `readers`, and [`turn`](crate::locks::mutex::turn) has those of `turn`.
//!
//! | a thread is | it goes on to be | when |
//! |---|---|---|
//! | a newcomer (`arrive.rs`) | inside | no writer is inside, for a writer no reader either, and CLAIMED is not set (a reader: or the head is an upgradable reader) |
//! | | a waiter | it has spun for [`SPIN`](Policy::SPIN); at once if the head is awake or has set CLAIMED |
//! | a waiter (`queue.rs`) | the head | the head before it has left the queue |
//! | | inside | a reader in front of it invites it; or the head is suspended |
//! | the head | asleep | it has spun for [`SPIN`](Policy::SPIN) |
//! | | inside | the words are open to it, CLAIMED or not |
//! | a head asleep at `word` | awake | the writer leaves |
//! | a head asleep at `readers` | awake | the last reader leaves |
//! | a head that naps | awake | its nap ends; a holder unlocks fairly |
//! | a reader inside | outside | it subtracts itself |
//! | a writer inside | outside | it clears WRITER |
//! | | a reader, or the upgradable reader, inside | downgrade: it adds itself, then clears WRITER |
//! | the upgradable reader inside | a writer inside | upgrade: it sets WRITER and waits until all other readers have left |
//!
//! # Orderings
//!
//! | pair | one side | other side |
//! |---|---|---|
//! | (A) | a writer leaves: store to `word`, or read-modify-write, release | the thread that enters next: look at, or exchange of, `word`, acquire |
//! | (B) | a reader leaves: subtraction, release | the writer that finds no readers, acquire; subtractions are read-modify-writes, so the last one stands for all |
//! | (E) | a reader adds itself, then looks for WRITER | a writer sets WRITER, then looks for readers; all sequentially consistent, so one of them sees the other |
//! | (F) | the head sets PARKED, and looks again 0.75 microseconds later | the writer looks for a queue and for hints in `word`, then stores 0: the head sees that its bit is lost, unless the writer was interrupted between the two |
//! | (N) | the head naps at `word`, as it was without CLAIMED | a fair unlock sets CLAIMED there, and wakes: the head does not begin to sleep, or is woken |
//! | (U) | a recursive reader adds itself, then looks for UPGRADING | the upgrading thread takes UPGRADING back, then looks for readers; as (E) |
//!
//! In the rare case of (F) the head sleeps beside a free lock, which any other thread may take. So each of its sleeps is
//! bounded: 10 ms, or as long as the head has waited.
//!
//! # Where it differs from the paper
//!
//! - *One lock, not two.* In the paper a reader or writer that cannot enter acquires a ShflLock mutex, waits at the word, and
//!   releases the mutex. Here the head of the queue does so directly: one sleep per waiter instead of two.
//! - *A waiting writer shuts readers out for as long as it is awake*, which is for some microseconds (CLAIMED). Then it lets
//!   them in again and sleeps. With more threads than cores, shutting readers out until a preempted reader runs again costs
//!   most of the throughput.
//! - *A head is passed for one turn*, [`TURN`](Policy::TURN): a waiting reader does not shut writers out at once, nor a waiting
//!   writer other writers. Then the head sets CLAIMED, which shuts newcomers out: for a writer it is the paper's writer-waiting
//!   bit, for a reader its early increment. A reader that enters sets it for a head that sleeps until no reader is inside.
//! - *A robbed head naps*: if another thread entered before the woken head ran, the head sleeps for as long as it has
//!   waited, again and again, and no release has to wake it.
//! - *Bounded unfairness.* A waiter with `n` waiters in front of it waits for at most `n + 1` times (a turn, the time until an
//!   unparked thread runs, and the sections inside), if unparked threads run within `PROMISE_BOUND` (10 ms).
//! - *Readers in a row enter together.* A reader that enters from the queue wakes the readers that sleep right behind it. Each
//!   of them enters by itself, past CLAIMED, unless a writer is inside by then, and leaves its node behind. (If a reader were
//!   counted in before it runs, and then suspended, it would keep writers out for ever.) On machines with several NUMA nodes,
//!   readers are moved up behind readers, whatever their node, and writers behind writers of their node.
//! - *Suspended waiters* are passed as in the mutex. A head for which the lock is claimed keeps it for 10 ms after a thread has
//!   found it free. A head that has claimed nothing for 10 ms loses it to the first waiter behind it that wakes up by itself and
//!   finds it free. Then LAPSED lets others in until the head runs again.
//! - *Upgradable reads, downgrade, recursive reads and fair unlock*: see `optional.rs`.
//!
//! # Properties
//!
//! - Size: 24 bytes; 64 per waiter, from the machine's pool; none per holder.
//! - Atomic read-modify-writes per uncontended pair: read 2, write 1; upgradable read 2; upgrade 2; downgrade 1.
//! - Fairness: bounded stealing both ways, as above; FIFO in the queue but for shuffling.
//! - Suspension: tolerated, but for a few instructions on each side. A reader that is suspended between its addition and its
//!   look at `word` is inside for that time, and writers wait for it. A writer that is suspended between setting WRITER and
//!   taking it back counts as the holder.
//! - Destruction: a thread that releases the lock does not touch it afterwards (a wakeup needs only the address). So the
//!   thread that enters next may destroy the lock.
//! - Attempts: one that meets a reader or writer that is about to withdraw fails too.
//! - Re-entry: a reader that reads again with [`read`](RawRwLock::read) while a writer waits may wait for that writer, and so
//!   for ever; [`RawRecursive`](super::RawRecursive) is for such threads. (The preloaded library counts a thread's read
//!   acquisitions and does not ask the lock again.)
//! - Limit: 2^28 simultaneous readers. The next one ends the process.

use super::{ConstNew, Info, RawRwLock, Suspension};
use crate::locks::bits::Bits;
use crate::locks::for_assembly::CompareRwLock;
use crate::locks::mutex::policies::NumaPolicy;
use crate::locks::mutex::shuffle::Policy;
use crate::locks::mutex::turn::Turn;
use crate::machine::{Arith, Deadline, Machine, Native, QNode, Word};
use core::marker::PhantomData;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering, Ordering::*};

mod arrive;
mod optional;
mod queue;
#[cfg(test)]
mod tests;
mod words;

use words::{ANY_READER, FREE, PARKED, READER, Side, UPGRADABLE, WRITER};

/// Reader-writer ShflLock. `P` orders the writers in the queue. See the [module documentation](self).
#[repr(C)]
pub struct RawShflRw<M: Machine, P = NumaPolicy> {
    word: M::U32,
    readers: M::U32,
    tail: M::Ptr<QNode<M>>,
    turn: Turn<M>,
    policy: PhantomData<P>,
}

impl RawShflRw<Native> {
    /// An unlocked lock.
    pub const fn new() -> Self {
        RawShflRw {
            word: AtomicU32::new(FREE),
            readers: AtomicU32::new(0),
            tail: AtomicPtr::new(null_mut()),
            turn: Turn(AtomicU32::new(0)),
            policy: PhantomData,
        }
    }
}

const _: () = assert!(size_of::<RawShflRw<Native>>() == 24);

const_new!(RawShflRw<Native>);

// SAFETY: WRITER is set from a word without it, so there is one writer. Of a reader and a writer one sees the other (E) and
// withdraws. (A) and (B) order the sections.
unsafe impl<M: Machine, P: Policy> RawRwLock for RawShflRw<M, P> {
    type Machine = M;
    type Read = ();
    type Write = ();
    type Counted = Self;
    const INFO: Info = Info {
        name: "shfl-rw",
        summary: "reader-writer ShflLock, blocking: one queue of sleepers behind a stealable word",
        atomics: 2,
        waiter_bytes: 64,
        holder_bytes: 0,
        fairness: "stealing for 1 to 2 ms per queue position; then FIFO, readers together, writers per NUMA node",
        blocking: true,
        suspension: Suspension::Tolerates,
        source: "Kashyap et al. 2019, section 4.2.3",
    };

    fn new_in() -> Self {
        RawShflRw {
            word: M::U32::new(FREE),
            readers: M::U32::new(0),
            tail: M::Ptr::new(null_mut()),
            turn: Turn(M::U32::new(0)),
            policy: PhantomData,
        }
    }

    #[inline]
    fn read(&self) {
        if !self.try_read_free() {
            self.wait_for_lock(Side::Read, None, &|| ());
        }
    }

    #[inline]
    fn try_read(&self) -> Option<()> {
        // An attempt that withdraws may keep a waiting writer from seeing that no reader is inside: look first.
        let is_free = self.word.load(Relaxed) == FREE;
        (is_free && self.try_read_free() || self.steal(Side::Read)).then_some(())
    }

    #[inline(always)]
    fn try_read_weak(&self) -> Option<()> {
        self.try_read_free().then_some(())
    }

    fn read_until(&self, deadline: Deadline) -> Option<()> {
        (self.try_read_free() || self.wait_for_lock(Side::Read, Some(deadline), &|| ())).then_some(())
    }

    #[inline]
    fn read_watching(&self, deadline: Option<Deadline>, watch: &dyn Fn()) -> Option<()> {
        (self.try_read_free() || self.wait_for_lock(Side::Read, deadline, watch)).then_some(())
    }

    #[inline]
    unsafe fn unlock_read(&self, (): ()) {
        // (B) the section happens before the writer that finds this reader gone, directly or through the read-modify-writes of
        // other readers.
        self.depart(Release);
    }

    #[inline]
    fn write(&self) {
        if !self.try_write_free() {
            self.wait_for_lock(Side::Write, None, &|| ());
        }
    }

    #[inline]
    fn try_write(&self) -> Option<()> {
        (self.try_write_free() || self.steal(Side::Write)).then_some(())
    }

    fn write_until(&self, deadline: Deadline) -> Option<()> {
        (self.try_write_free() || self.wait_for_lock(Side::Write, Some(deadline), &|| ())).then_some(())
    }

    #[inline]
    fn write_watching(&self, deadline: Option<Deadline>, watch: &dyn Fn()) -> Option<()> {
        (self.try_write_free() || self.wait_for_lock(Side::Write, deadline, watch)).then_some(())
    }

    #[inline]
    unsafe fn unlock_write(&self, (): ()) {
        // (A) the section happens before the next acquisition. (F) pairs with `park`.
        if !M::release_if(&self.tail, &self.word, WRITER) {
            self.release_writer(Release);
        }
    }

    fn is_locked(&self) -> bool {
        self.state().has(WRITER) || self.inside().has(ANY_READER)
    }

    fn is_write_locked(&self) -> bool {
        self.state().has(WRITER)
    }
}

impl<M: Machine, P: Policy> CompareRwLock for RawShflRw<M, P> {
    const WORD: usize = core::mem::offset_of!(Self, word);
    const READERS: usize = core::mem::offset_of!(Self, readers);
    const WRITER: u32 = WRITER;
    const QUEUE: usize = core::mem::offset_of!(Self, tail);
}

impl<M: Machine, P: Policy> RawShflRw<M, P> {
    fn state(&self) -> Bits {
        Bits::of::<M>(&self.word)
    }

    fn inside(&self) -> Bits {
        Bits::of::<M>(&self.readers)
    }

    /// Clears WRITER in a word that may have hints, and wakes a head that sleeps until the writer leaves.
    #[cold]
    #[inline(never)]
    fn release_writer(&self, order: Ordering) {
        if Bits(self.word.fetch_and(!(WRITER | PARKED), order)).has(PARKED) {
            unpark::<M>(&raw const self.word);
        }
    }

    /// Subtracts a reader, and wakes a head that sleeps until the last reader leaves.
    #[inline(always)]
    fn depart(&self, order: Ordering) {
        if self.readers.fetch_sub(READER, order) & (ANY_READER | PARKED) == READER | PARKED {
            unpark::<M>(&raw const self.readers);
        }
    }

    /// Subtracts the upgradable reader. The head may wait for just that while other readers are inside.
    fn leave_upgradable(&self, order: Ordering) {
        if Bits(self.readers.fetch_sub(UPGRADABLE, order)).has(PARKED) {
            unpark::<M>(&raw const self.readers);
        }
    }
}

/// Unparks all threads that have parked at the word: a requeue may have moved a second one there, which would leave the
/// first asleep if only one woke up. The lock may be gone by now: only its address is used.
#[cold]
#[inline(never)]
fn unpark<M: Machine>(word: *const M::U32) {
    M::wake(word, u32::MAX);
}

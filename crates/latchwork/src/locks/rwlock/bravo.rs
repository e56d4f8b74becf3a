//! BRAVO: biased locking for readers, over any reader-writer lock.
//!
//! # Source
//!
//! Dice and Kogan, "BRAVO: Biased Locking for Reader-Writer Locks", USENIX ATC 2019, section 3 and listing 1. The
//! encoding of bias and inhibition in one word is from the notes of the extended version on arXiv.
//!
//! # Idea
//!
//! While the lock is *biased*, a reader does not touch it. The reader writes the lock's address into a *slot* that all
//! writers know of, and then looks at the bias once more. A writer takes the underlying lock. If the lock is biased, the
//! writer *revokes*: it turns the bias off, looks through the slots, and waits for each reader of this lock that it finds
//! there. A reader that finds no bias, or no free slot, uses the underlying lock. Some of these slow readers turn the bias
//! on again, but not soon after a revocation.
//!
//! # States
//!
//! | a reader | the writer | the bias ([`word`] has its state machine) |
//! |---|---|---|
//! | fills a slot, finds the bias on: is inside | | on |
//! | | has the underlying lock, turns the bias off | on -> held, or alone |
//! | fills a slot, finds the bias off: empties the slot, uses the underlying lock | | not on |
//! | empties its slot: has left | waits for each slot that it found filled | held, alone or revoking |
//! | | has seen all slots empty: is inside | -> off |
//! | uses the underlying lock; may turn the bias on | | off -> on |
//!
//! # Parts
//!
//! Each part is a type parameter:
//!
//! | part | types | the paper's (a default) | the crate's `RwLock` |
//! |---|---|---|---|
//! | where a reader publishes | [`Hashed`]; [`Twice`](table::Twice), with two probes; [`Sector`](table::Sector), a sector per NUMA node; [`Columns`](table::Columns), a row per processor; [`Owned`], a row per thread | [`Hashed`] | [`Owned`]: a fast read has no atomic read-modify-write |
//! | when the lock is biased | [`Guard`], [`Bernoulli`](bias::Bernoulli), [`Adaptive`] | [`Guard`] | [`Adaptive`] |
//! | what a revoking writer does with the underlying lock | keeps it ([`Holding`]), or lets readers through it ([`Passing`]) | [`Holding`] | [`Passing`] |
//! | how a writer waits for a reader | [`Spins`](revoke::Spins), [`Naps`](revoke::Naps) | | [`Naps`](revoke::Naps) |
//! | statistics | [`Uncounted`], [`Counted`] | [`Uncounted`] | [`Uncounted`] |
//!
//! The publishing type also decides how a writer looks through the slots: all of the table, a cache line at a time
//! ([`Machine::find`]); one column of it; or the threads' rows.
//!
//! # Orderings
//!
//! | pair | one side | other side |
//! |---|---|---|
//! | (A) | the release that turns the bias on | the reader's second look at the bias, acquire: fast readers come after all earlier writers |
//! | (B) | the reader fills its slot, then looks at the bias | the writer changes the bias, then looks at the slots: one of them sees the other (Dekker). With a table all four are sequentially consistent; with rows the reader's half is a light fence and the writer's a heavy fence |
//! | (C) | the reader empties its slot, release | the writer sees it empty, acquire: the writer's section comes after |
//! | (D) | a reader empties a slot, release | a reader of another lock finds it empty and fills it, acquire: see `leave` |
//!
//! # Where it differs from the paper
//!
//! - A lock starts unbiased, and gets its first bias after several slow reads, not one: see [`word`].
//! - `try_write` never waits for a reader. The paper's revokes like `write`, and so waits for readers in slots. Here the
//!   attempt turns the bias off, looks through the slots, and gives up at the first reader that it meets. A timed write
//!   gives up at its deadline. Both turn the bias on again before they release the underlying lock, so that the next
//!   writer looks through the slots again.
//! - A thread with a row remembers the lock that it last found unbiased, and goes straight to the underlying lock the next
//!   time. A look at the bias first would make the lock's cache line move twice.
//! - A revoking writer spins briefly and then sleeps in naps: see [`Naps`](revoke::Naps).
//! - Upgradable reads, downgrade, recursive reads and fair unlock, where the underlying lock has them: see `optional`.
//!
//! # Properties
//!
//! - Size: the underlying lock and 8 bytes: 24 over `pf-t`, 32 over `pf-q` and `shfl-rw`. Per process, 4096 slots (32 KiB),
//!   or a row of 128 bytes per thread. A holder occupies its slot, or what the underlying lock needs.
//! - Atomic read-modify-writes per uncontended pair: fast read 1 (filling the slot; leaving is a store), with [`Owned`] 0;
//!   slow read and write as the underlying lock, and a write that revokes 1 more.
//! - Fairness and progress: as the underlying lock, among the threads that use it. A revoking writer also waits for the
//!   readers in slots, and no reader enters through a slot any more.
//! - Suspension: with [`Holding`], a writer that is suspended while it revokes blocks all other threads. With [`Passing`], it
//!   blocks them for about ten milliseconds; after that the lock works as the underlying one and stays unbiased until that
//!   writer runs again. Two stretches of a few instructions are exceptions. A writer that is suspended between taking the
//!   underlying lock and changing the bias counts as the holder. A reader that is suspended between filling its slot and
//!   looking at the bias counts as a reader inside.
//! - Re-entry: a thread that reads again may have to use the underlying lock, and then blocks as that does when a writer
//!   waits. With [`Holding`] it blocks for ever if the writer already has the underlying lock and waits for this thread's
//!   slot. [`RawRecursive`](super::RawRecursive) is for such threads.
//! - Forgotten guards: the lock stays read-locked, and no other lock does. A lock that is dropped empties the slots that
//!   hold its address. A lock that is forgotten or moved leaves its address in them, and another lock that is later at that
//!   address stays unbiased. (But a lock that is moved to that address while it is biased is harmed: its writers wait for
//!   ever.)
//! - Fork: a child finds the other threads' slots as they were; see [`Native::forget_readers`].

use super::{ConstNew, Info, RawRwLock, Suspension, Timeout};
use crate::locks::for_assembly::BiasedRwLock;
use crate::machine::{Deadline, Machine, Native, Word};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering::*};

pub mod bias;
pub mod count;
pub mod publish;
pub mod revoke;
pub mod table;

mod describe;
mod optional;
mod slow;
mod token;
mod word;

use bias::{Adaptive, Guard, When};
use count::{Count, Counted, Event, Uncounted};
use describe::Described;
use publish::{Owned, Publish};
use revoke::{Holding, Passing, Revoke};
use table::Hashed;
pub use token::{Filled, ReadToken};
use word::{Bias, BiasWord};

/// BRAVO with a row of slots per thread over `R`, biased when that has paid.
pub type Rows<M, R> = RawBravo<M, R, Owned, Adaptive, Passing>;

/// BRAVO with a row of slots per processor over `R`.
pub type Columns<M, R> = RawBravo<M, R, table::Columns>;

/// BRAVO over the lock `R`. See the [module documentation](self).
#[repr(C)]
pub struct RawBravo<
    M: Machine,
    R: RawRwLock<Machine = M>,
    P: Publish<M> = Hashed,
    W = Guard,
    V = Holding,
    C = Uncounted,
> {
    lock: R,
    bias: BiasWord<M>,
    /// What the policy remembers; see [`bias`].
    memory: M::U32,
    parts: PhantomData<(P, W, V, C)>,
}

impl<R: ConstNew, P: Publish<Native>, W, V, C> RawBravo<Native, R, P, W, V, C> {
    /// An unlocked lock, unbiased.
    pub const fn new() -> Self {
        RawBravo { lock: R::NEW, bias: BiasWord::new(), memory: AtomicU32::new(0), parts: PhantomData }
    }
}

impl<R: ConstNew, P: Publish<Native>, W, V, C> Default for RawBravo<Native, R, P, W, V, C> {
    fn default() -> Self {
        Self::new()
    }
}

impl<R: ConstNew, P: Publish<Native>, W: When, V: Revoke, C: Count> ConstNew
    for RawBravo<Native, R, P, W, V, C>
{
    #[allow(clippy::declare_interior_mutable_const)]
    const NEW: Self = Self::new();
}

impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W, V, C> Drop for RawBravo<M, R, P, W, V, C> {
    /// Empties the slots that forgotten guards (`mem::forget`) have left filled. These slots hold an address that another
    /// lock may have next.
    #[inline]
    fn drop(&mut self) {
        if self.may_have_slots() {
            self.forget_readers();
        }
    }
}

impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W: When, V: Revoke, C: Count>
    RawBravo<M, R, P, W, V, C>
{
    /// Bytes of the lock that are ever written; what follows is padding.
    #[cfg(test)]
    pub(super) const USED_BYTES: usize = core::mem::offset_of!(Self, memory) + size_of::<M::U32>();

    /// An unlocked lock that is biased from the start: for a lock that is known to be mostly read.
    pub fn new_biased_in() -> Self {
        let bias = if P::prepare() { Bias::ON } else { Bias::NEW };
        RawBravo {
            lock: R::new_in(),
            bias: BiasWord::new_in(bias),
            memory: M::U32::new(0),
            parts: PhantomData,
        }
    }

    /// Whether readers used slots a moment ago.
    pub fn is_biased(&self) -> bool {
        self.bias.load(Relaxed).is_on()
    }

    /// A reader's attempt through its first slot.
    #[inline(always)]
    fn read_first(&self) -> Option<&'static M::Usize> {
        // SAFETY: `read_fast` empties the slot unless the lock is biased, and then this thread reads it.
        self.read_fast(unsafe { P::publish(self.address(), || self.is_biased()) })
    }

    /// The second half of listing 1, lines 12 to 22: the reader has filled the slot `published`, if it found one, and
    /// looks at the bias. `None`: the slot is empty again, and the reader must use the underlying lock.
    #[inline(always)]
    fn read_fast(&self, published: Option<&'static M::Usize>) -> Option<&'static M::Usize> {
        let slot = published?; // (B)
        // (A) Acquire: pairs with the release in `step`, which comes after the last writer.
        if self.bias.load(SeqCst).is_on() {
            C::add::<M>(Event::Fast, 1);
            return Some(slot);
        }
        C::add::<M>(Event::InVain, 1);
        Self::leave(slot);
        None
    }
}

impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W, V, C> RawBravo<M, R, P, W, V, C> {
    /// What a reader writes into its slot. Never 0.
    #[inline]
    fn address(&self) -> usize {
        M::identity(core::ptr::from_ref(self).addr())
    }

    /// A reader leaves its slot.
    #[inline]
    fn leave(slot: &M::Usize) {
        // (C) pairs with the scan in `revoke`: the section happens before the writer's.
        // (D) Release even if there was no section. A writer of *another* lock may read this store in place of the store of
        // the slot's previous user, and must then come after that user's section.
        slot.store(0, Release);
    }

    /// Whether there can be readers of this lock in slots. If not, a slot may still hold this lock's address. A forgotten
    /// reader of another lock, which was at this address before, may have left it there; or a thread that is about to look
    /// at the bias has filled it.
    fn may_have_slots(&self) -> bool {
        // (A) Acquire: pairs with the release in `step`, for a caller that does not hold the lock.
        self.bias.load(Acquire).may_have_slots()
    }

    /// Whether a slot holds the lock's address.
    fn is_in_a_slot(&self) -> bool {
        // SAFETY: the closure writes to no slot.
        !unsafe { P::all(self.address(), |_| false) }
    }

    /// Empties the slots that hold the lock's address, which is about to be another lock's.
    #[cold]
    #[inline(never)]
    fn forget_readers(&mut self) {
        // SAFETY: `&mut self`: no thread uses the lock, so no reader will leave these slots.
        unsafe {
            P::all(self.address(), |slot| {
                Self::leave(slot);
                true
            })
        };
    }
}

// SAFETY: a reader holds the underlying lock, which excludes writers; or it filled a slot before a writer looked, and that
// writer waits for it (B); or it filled a slot after that, and does not enter. (A) and (C) order the sections of fast
// readers and writers, the underlying lock all others.
unsafe impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W: When, V: Revoke, C: Count> RawRwLock
    for RawBravo<M, R, P, W, V, C>
{
    type Machine = M;
    type Read = ReadToken<M::Usize, R::Read>;
    type Write = R::Write;
    type Counted = RawBravo<M, R, P, W, V, Counted>;
    const INFO: Info = Info {
        name: Described::<M, R, P>::NAME,
        summary: Described::<M, R, P>::SUMMARY,
        atomics: P::ATOMICS,
        waiter_bytes: R::INFO.waiter_bytes,
        holder_bytes: R::INFO.holder_bytes,
        fairness: "as the lock below; a writer also waits for the readers in the table",
        blocking: R::INFO.blocking,
        suspension: if V::PASSING { R::INFO.suspension } else { Suspension::Blocks },
        source: P::SOURCE,
    };

    const SHARES: bool = R::SHARES;

    fn new_in() -> Self {
        RawBravo {
            lock: R::new_in(),
            bias: BiasWord::new_in(Bias::NEW),
            memory: M::U32::new(0),
            parts: PhantomData,
        }
    }

    #[inline]
    fn read(&self) -> Self::Read {
        match self.read_first() {
            Some(slot) => ReadToken::Fast(Filled(slot)),
            None => self.read_slow(),
        }
    }

    #[inline(always)]
    fn try_read(&self) -> Option<Self::Read> {
        match self.read_first() {
            Some(slot) => Some(ReadToken::Fast(Filled(slot))),
            None => self.try_read_slow(),
        }
    }

    #[inline(always)]
    fn try_read_weak(&self) -> Option<Self::Read> {
        if let Some(slot) = self.read_first() {
            return Some(ReadToken::Fast(Filled(slot)));
        }
        let biased = C::ON && self.is_biased();
        let token = self.lock.try_read_weak()?;
        self.after_slow_read(biased);
        Some(ReadToken::Slow(token))
    }

    fn read_until(&self, deadline: Deadline) -> Option<Self::Read> {
        match self.read_first() {
            Some(slot) => Some(ReadToken::Fast(Filled(slot))),
            None => self.read_within(Some(deadline)),
        }
    }

    #[inline]
    unsafe fn unlock_read(&self, token: Self::Read) {
        match token {
            ReadToken::Fast(Filled(slot)) => Self::leave(slot),
            // SAFETY: the token is from the caller's acquisition of the underlying lock.
            ReadToken::Slow(token) => unsafe { self.lock.unlock_read(token) },
        }
    }

    #[inline]
    fn write(&self) -> Self::Write {
        let token = self.lock.write_watching(None, &|| _ = self.end_hold());
        let token = token.and_then(|token| self.revoke(token, Timeout::Never));
        let Some(token) = token else { unreachable!("without a deadline") };
        token
    }

    #[inline]
    fn try_write(&self) -> Option<Self::Write> {
        let token = match self.lock.try_write() {
            None if self.end_hold() => self.lock.try_write(),
            token => token,
        }?;
        self.revoke(token, Timeout::Immediate)
    }

    fn write_until(&self, deadline: Deadline) -> Option<Self::Write> {
        let token = self.lock.write_watching(Some(deadline), &|| _ = self.end_hold())?;
        self.revoke(token, Timeout::At(deadline))
    }

    #[inline]
    unsafe fn unlock_write(&self, token: Self::Write) {
        // SAFETY: the token is from the caller's acquisition of the underlying lock.
        unsafe { self.lock.unlock_write(token) }
    }

    fn is_locked(&self) -> bool {
        self.lock.is_locked() || self.may_have_slots() && self.is_in_a_slot()
    }

    fn is_write_locked(&self) -> bool {
        self.lock.is_write_locked()
    }

    #[inline(always)]
    fn remembers(token: &Self::Read) -> bool {
        P::OWNED && matches!(token, ReadToken::Fast(_))
    }

    #[inline(always)]
    fn reads_own(&self) -> bool {
        // SAFETY: the slot is only looked at.
        self.may_have_slots() && unsafe { P::own(self.address()) }.is_some()
    }

    #[inline(always)]
    unsafe fn unlock_own(&self) -> bool {
        // SAFETY: the caller ends the acquisition that the slot stands for.
        unsafe { P::own(self.address()) }.map(Self::leave).is_some()
    }

    unsafe fn unlock_of_another(&self) -> bool {
        let me = self.address();
        // (C) as in `leave`; Acquire: the section was the other thread's. The exchange fails at most if that thread leaves
        // as well, which the caller excludes.
        // SAFETY: the caller ends the acquisition that the slot stands for.
        self.is_remembered()
            && !unsafe { P::all(me, |slot| slot.compare_exchange(me, 0, AcqRel, Relaxed).is_err()) }
    }

    fn is_remembered(&self) -> bool {
        P::OWNED && self.may_have_slots() && self.is_in_a_slot()
    }

    unsafe fn remember_again(&self) {
        P::prepare();
        self.bias.store(Bias::ON, Relaxed);
    }
}

impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W: When, V: Revoke, C: Count> BiasedRwLock
    for RawBravo<M, R, P, W, V, C>
{
    const BIAS: usize = core::mem::offset_of!(Self, bias);
    const BIASED: u32 = Bias::ON.0;
}

#[cfg(test)]
mod tests;

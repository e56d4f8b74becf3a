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
//! there. A reader that finds no bias, or no free slot, is a *slow* reader: it uses the underlying lock. Some slow readers
//! turn the bias on again, but not soon after a revocation.
//!
//! # States
//!
//! [`word`] has all changes of the bias.
//!
//! | the bias | what the threads do |
//! |---|---|
//! | *warming up* | readers use the underlying lock, and each takes the bias one step nearer to *on*; a new lock begins here |
//! | *on* | a reader that fills a slot and then finds this state is inside |
//! | *holding* | a writer of type [`Holding`] waits for the readers in slots, and keeps the underlying lock until all of them have left or the writer gives up |
//! | *brief hold since t* | a writer of type [`Passing`] does the same, for one millisecond at most |
//! | *revoking n* | n threads wait for the readers in slots, and do not hold the underlying lock for writing: other readers pass through that lock. The last of the n to leave turns the bias *off* if one of them has written, else *on* |
//! | *off* | no reader is in a slot: a writer may be inside, readers use the underlying lock, and one of them may turn the bias on |
//!
//! In all states but *on*, a reader that has filled a slot empties it again and uses the underlying lock. From filling the slot
//! to its look at the bias the reader is a *candidate*: other threads cannot tell it from a reader inside.
//!
//! A [`Passing`] writer begins with the brief hold. If a reader is still in a slot when the millisecond is over, the writer
//! changes the bias to *revoking*, releases the underlying lock, and waits. When it has seen all slots empty, it acquires the
//! underlying lock again: readers that passed are inside until then. The bias cannot be *on* before that, so the slots stay
//! empty.
//!
//! If the writer is suspended during the brief hold, other threads would wait for a thread that does not run.
//! Therefore a thread that waits for the underlying lock looks at t whenever its sleep ends by itself. After ten milliseconds
//! that thread ends the hold for the writer: it changes the bias to *revoking* and releases the underlying lock. It can do
//! that only if the write token of the underlying lock has no content, and any thread may release that lock
//! ([`RELEASED_BY_ANY`](RawRwLock::RELEASED_BY_ANY)); otherwise the writer begins with *revoking*.
//!
//! # Parts
//!
//! Four parts are type parameters. The last column is [`Rows`], which the crate's `RwLock` is:
//!
//! | parameter | part | types | the paper's (default) | [`Rows`] |
//! |---|---|---|---|---|
//! | `P`: [`Publish`] | where a reader publishes | [`Hashed`]; [`Twice`](table::Twice), with two probes; [`Sector`](table::Sector), a sector per NUMA node; [`Columns`](table::Columns), a row per processor; [`Owned`], a row per thread | [`Hashed`] | [`Owned`]: a fast read has no atomic read-modify-write |
//! | `W`: [`When`] | when the lock is biased | [`Guard`], [`Bernoulli`](bias::Bernoulli), [`Adaptive`] | [`Guard`] | [`Adaptive`] |
//! | `V`: [`Revoke`] | what a revoking writer does with the underlying lock | keeps it ([`Holding`]), or lets readers through it ([`Passing`]) | [`Holding`] | [`Passing`] |
//! | the parameter of `V`: [`Await`](revoke::Await) | how a writer waits for a reader | [`Spins`](revoke::Spins), [`Naps`](revoke::Naps) | [`Spins`](revoke::Spins); the default is [`Naps`](revoke::Naps) | [`Naps`](revoke::Naps) |
//! | `S`: [`Count`] | statistics | [`Uncounted`], [`Counted`] | [`Uncounted`] | [`Uncounted`] |
//!
//! `P` also decides how a writer looks through the slots: all of the table, a cache line at a time ([`Machine::find`]); one
//! column of it; or the threads' rows.
//!
//! # Orderings
//!
//! | pair | one side | other side |
//! |---|---|---|
//! | (A) | the release that turns the bias on: `step` in [`slow`], or a writer in [`revoke`] that gives up | the reader's second look at the bias (`read_fast`), acquire: fast readers come after all earlier writers |
//! | (B) | the reader fills its slot (`fill` in [`table`] or [`publish`]), then looks at the bias (`read_fast`) | the writer changes the bias, then looks at the slots (`scan` in [`revoke`]): one of them sees the other (Dekker). With a table all four accesses are sequentially consistent. With rows the reader's half is a light fence in `fill` and the writer's half a heavy fence in `scan` |
//! | (C) | the reader empties its slot (`leave`), release | the writer sees it empty (`scan`), acquire: the writer's section comes after |
//! | (D) | a reader empties a slot (`leave`), release | a reader of another lock finds it empty and fills it, acquire and release: see `leave` |
//! | (E) | a release without a token empties a slot ([`anonymous`]), release | the reader that had filled the slot in vain finds it emptied (`leave_in_vain`), acquire: its section comes after all earlier writers |
//!
//! # Where it differs from the paper
//!
//! - A lock starts unbiased, and gets its first bias after several slow reads, not one: see [`word`].
//! - `try_write` never waits for a reader. The paper's revokes like `write`, and so waits for readers in slots. Here the
//!   attempt turns the bias off, looks through the slots, and gives up at the first reader that it meets. A timed write
//!   gives up at its deadline. In both cases the next writer looks through the slots again. A [`Holding`] writer turns the bias
//!   on before it releases the underlying lock. A [`Passing`] one that has released that lock already leaves the revocation,
//!   and the last thread that leaves it turns the bias on, unless another one has written.
//! - The row of a thread has a note of the lock that the thread last found unbiased. The thread reads that lock through the
//!   underlying lock the next time. A look at the bias first would make the lock's cache line move twice. The thread looks at
//!   the bias when it has the underlying lock, and drops the note if the bias is on: its next read uses a slot.
//! - A revoking writer spins briefly and then sleeps in naps: see [`Naps`](revoke::Naps).
//! - Upgradable reads, downgrade, recursive reads and fair unlock, where the underlying lock has them: see `optional`.
//!
//! # Properties
//!
//! - Size: the underlying lock and 8 bytes: 24 over `pf-t`, 32 over `pf-q` and `shfl-rw`. Per process, 4096 slots (32 KiB),
//!   or a row of 128 bytes per thread. A holder occupies its slot, or what the underlying lock needs.
//! - Atomic read-modify-writes per uncontended pair: fast read 1 (filling the slot; leaving is a store), with [`Owned`] 0;
//!   slow read and write as the underlying lock. A write that revokes has 1 more with [`Holding`] and 2 more with [`Passing`];
//!   if readers are inside for longer than the brief hold, 3 more and a second acquisition of the underlying lock.
//! - Fairness and progress: as the underlying lock, among the threads that use it. A revoking writer also waits for the
//!   readers in slots, and no reader enters through a slot any more.
//! - Suspension: with [`Holding`], a writer that is suspended while it revokes blocks all other threads. With [`Passing`], it
//!   blocks them until its brief hold is ended, after about ten milliseconds (`OVERDUE_AFTER` in [`revoke`]: a writer that was
//!   merely preempted runs again sooner). Then the lock works as the underlying one, and stays unbiased until that writer
//!   runs again. Stretches of a few instructions are exceptions. A writer that is suspended between taking the underlying lock
//!   and changing the bias counts as the holder. So does a thread that is suspended between the end of the brief hold, its own
//!   or another writer's, and the release of the underlying lock. A candidate that is suspended counts as a reader inside.
//! - Re-entry: a thread that reads again may have to use the underlying lock, and then blocks as that does when a writer
//!   waits. With [`Holding`] it blocks for ever if the writer already has the underlying lock and waits for this thread's
//!   slot. [`RawRecursive`](super::RawRecursive) is for such threads.
//! - Forgotten guards: the lock stays read-locked, and no other lock does. A lock that is dropped empties the slots that
//!   hold its address. A lock that is forgotten or moved leaves its address in them. Another lock that is later at that
//!   address stays unbiased: before a reader turns the bias on, it looks for the lock's address in the slots. The exception
//!   is a lock that is already biased when it is moved to that address: its writers wait for ever.
//! - Fork: a child finds the other threads' slots as they were; see [`Native::forget_readers`].

use super::{ConstNew, Info, RawRwLock, Suspension, Timeout};
use crate::locks::for_assembly::BiasedRwLock;
use crate::machine::{Deadline, Machine, Native, Word};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU32, Ordering::*};

pub mod around; // for a caller that acquires the underlying lock itself.
pub mod bias; // the policies: when a bias that was revoked comes back.
pub mod count; // statistics.
pub mod publish; // what a place for slots must do; a row of slots per thread.
pub mod revoke; // what a writer does when the lock is biased.
pub mod table; // one table of slots for the process.

mod anonymous; // releases of reads that have lost their token.
mod describe; // names and summaries.
mod optional; // downgrade, upgrade, recursive reads, fair unlock.
mod slow; // readers that use the underlying lock, and turn the bias on.
mod token; // what a read acquisition hands to its release.
mod word; // the states of the bias.

use bias::{Adaptive, Guard, When};
use count::{Count, Counted, Event, Uncounted};
use describe::Described;
use publish::{Owned, Publish, Published};
use revoke::{Holding, Passing, Revoke};
use table::Hashed;
pub use token::{Filled, ReadToken};
use word::{Bias, BiasWord};

/// BRAVO with a row of slots per thread over `R`, biased when that has paid.
pub type Rows<M, R> = RawBravo<M, R, Owned, Adaptive, Passing>;

/// The paper's BRAVO over `R`, but its revoking writer lets other readers through `R`. For an `R` whose readers may pass
/// waiting writers, and do so because they read again.
pub type Passes<M, R> = RawBravo<M, R, Hashed, Guard, Passing>;

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
    S = Uncounted,
> {
    lock: R,
    bias: BiasWord<M>,
    /// Slow reads since the last write, as the sampled ones tell; see [`bias`].
    in_a_row: M::U32,
    parts: PhantomData<(P, W, V, S)>,
}

impl<R: ConstNew, P: Publish<Native>, W, V, S> RawBravo<Native, R, P, W, V, S> {
    /// An unlocked lock, unbiased.
    pub const fn new() -> Self {
        const { assert!(!R::HAS_SLOTS, "BRAVO over BRAVO: both locks would have one address") };
        RawBravo { lock: R::NEW, bias: BiasWord::new(), in_a_row: AtomicU32::new(0), parts: PhantomData }
    }
}

const_new!(RawBravo<Native, R, P, W, V, S>, R: ConstNew, P: Publish<Native>, W: When, V: Revoke, S: Count);

impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W, V, S> Drop for RawBravo<M, R, P, W, V, S> {
    /// Empties the slots that forgotten guards (`mem::forget`) have left filled. These slots hold an address that another
    /// lock may have next.
    #[inline]
    fn drop(&mut self) {
        if self.may_have_slot_readers() {
            self.empty_slots();
        }
    }
}

impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W: When, V: Revoke, S: Count>
    RawBravo<M, R, P, W, V, S>
{
    /// Bytes of the lock that are ever written; what follows is padding.
    #[cfg(test)]
    pub(super) const USED_BYTES: usize = core::mem::offset_of!(Self, in_a_row) + size_of::<M::U32>();

    /// An unlocked lock that its first slow reader biases, as in the paper: for a lock that is known to be mostly read.
    ///
    /// It is not biased yet, because it will be moved to its place. The reader that turns the bias on first looks whether a
    /// forgotten reader of an earlier lock has left the address of that place in a slot.
    pub fn new_warm_in() -> Self {
        Self::with_bias(Bias::WARM)
    }

    fn with_bias(bias: Bias) -> Self {
        const { assert!(!R::HAS_SLOTS, "BRAVO over BRAVO: both locks would have one address") };
        let (lock, bias, in_a_row) = (R::new_in(), BiasWord::new_in(bias), M::U32::new(0));
        RawBravo { lock, bias, in_a_row, parts: PhantomData }
    }

    /// Whether the bias was on a moment ago, so that readers could use slots.
    pub fn is_biased(&self) -> bool {
        self.bias.load(Relaxed).is_on()
    }

    /// A reader's first attempt: through the first slot that it may use (`read_elsewhere` in `slow` tries the others), or, if it
    /// has noted that the lock is not biased, through the underlying lock.
    #[inline(always)]
    fn read_first(&self) -> Option<ReadToken<M::Usize, R::Read>> {
        // `publish` may ask for the bias before it writes, and give up: that saves a reader of an unbiased lock the slot.
        // SAFETY: `read_fast` empties the slot unless the lock is biased, and then this thread reads it.
        match unsafe { P::publish(self.address(), || self.is_biased()) } {
            Published::In(slot) => self.read_fast(slot),
            Published::Noted(row) => self.read_noted(row).map(ReadToken::Slow),
            Published::Nowhere => None,
        }
    }

    /// The second half of listing 1, lines 12 to 22: the reader has filled the slot, and looks at the bias. `None`: the slot is
    /// empty again, and the reader must use the underlying lock.
    #[inline(always)]
    fn read_fast(&self, slot: &'static M::Usize) -> Option<ReadToken<M::Usize, R::Read>> {
        // (A) Acquire: pairs with the release that turned the bias on, which came after the last writer.
        // (B) Dekker pair with a revoking writer: the reader has filled its slot, and this is its look at the bias. With a
        // table the look must be sequentially consistent. With rows the light fence in `fill` orders the two: on AArch64, the
        // stronger load would wait until the slot's store is visible.
        if self.bias.load(if P::OWNED { Acquire } else { SeqCst }).is_on() {
            S::add::<M>(Event::Fast, 1);
            return Some(ReadToken::Fast(Filled(slot)));
        }
        S::add::<M>(Event::InVain, 1);
        self.leave_in_vain(slot).then_some(ReadToken::Fast(Filled(slot)))
    }

    /// A reader that has found no bias empties its slot. `true`: the reader is inside all the same.
    ///
    /// Until here, the slot looks like that of a reader inside. A release without a token ([`anonymous`]) may have emptied it in
    /// place of the slot of the acquisition that it ends. That other slot is still filled, a writer waits for it, and from
    /// now on it stands for this reader. `anonymous` says why there is always such a slot.
    #[inline(always)]
    fn leave_in_vain(&self, slot: &M::Usize) -> bool {
        if P::OWNED {
            Self::leave(slot); // such a release does not meet readers: see `unlock_any_recorded_read`
            return false;
        }
        // Release: (D) as in `leave`. Acquire: (E) pairs with the release that has emptied the slot: the acquisition that it
        // ended came after all writers so far.
        slot.compare_exchange(self.address(), 0, Release, Acquire).is_err()
    }
}

impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W, V, S> RawBravo<M, R, P, W, V, S> {
    /// What a reader writes into its slot: the lock's address, or what stands for it on a simulated machine, where addresses
    /// differ from run to run. Never 0, which is an empty slot.
    #[inline]
    fn address(&self) -> usize {
        M::identity(core::ptr::from_ref(self).addr())
    }

    /// A reader leaves its slot.
    #[inline]
    fn leave(slot: &M::Usize) {
        // (C) pairs with `scan` in `revoke`: the section happens before the writer's.
        // (D) Release even if the reader found no bias and had no section. Let a slot be used by two locks:
        // 1. A reader of lock 1 ends its section and empties the slot.
        // 2. A reader of lock 2 finds the slot empty and fills it. It finds no bias, and empties the slot here.
        // 3. A writer of lock 1 looks at the slot and sees a store of step 2, not that of step 1.
        // The writer must come after the section of step 1. It does: step 2 comes after step 1 (acquire), and step 3 after
        // step 2 (release).
        slot.store(0, Release);
    }

    /// Whether readers of this lock can be in slots: yes if the bias is on, or if a writer may still wait for such readers.
    ///
    /// If not, a slot may hold this lock's address all the same, but no reader of this lock is inside through that slot.
    /// Either a forgotten reader of an earlier lock at this address has left it there; or a reader has just filled the slot,
    /// and will find no bias and empty it.
    fn may_have_slot_readers(&self) -> bool {
        // (A) Acquire: pairs with the release in `step`, for a caller that does not hold the lock.
        self.bias.load(Acquire).may_have_slot_readers()
    }

    /// Whether a slot holds the lock's address.
    fn is_in_a_slot(&self) -> bool {
        // SAFETY: the closure writes to no slot. It ends the search at the first slot that is found.
        !unsafe { P::all_slots_of(self.address(), |_| false) }
    }

    /// Empties the slots that hold the lock's address, which is about to be another lock's.
    #[cold]
    #[inline(never)]
    fn empty_slots(&mut self) {
        // SAFETY: `&mut self`: no thread uses the lock, so no reader will leave these slots.
        unsafe {
            P::all_slots_of(self.address(), |slot| {
                Self::leave(slot);
                true // goes on to the next slot
            })
        };
    }
}

// SAFETY: a reader holds the underlying lock, or a slot. When a writer is inside, there is neither:
// - The writer holds the underlying lock for writing, which excludes readers of that lock. A writer that has let readers
//   through (`Passing`) has acquired it again, and returns the token of that acquisition.
// - The writer has changed the bias and then seen all slots empty. A reader that filled its slot before that was seen, and the
//   writer waited for it; one that filled its slot later finds no bias and does not enter (B). The bias is not turned on
//   before the writer leaves: that takes a thread that holds the underlying lock (a slow reader, or a writer that gives up),
//   or the last of n revoking threads, if none of them has written.
// (A) and (C) order the sections of fast readers and writers, the underlying lock all others.
unsafe impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W: When, V: Revoke, S: Count> RawRwLock
    for RawBravo<M, R, P, W, V, S>
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
        // The ten milliseconds of a brief hold are within what `Suspension::Tolerates` allows.
        suspension: if V::PASSING { R::INFO.suspension } else { Suspension::Blocks },
        source: P::SOURCE,
    };

    const SHARES: bool = R::SHARES;
    const HAS_SLOTS: bool = true;
    const PREFERS_READERS: bool = R::PREFERS_READERS;

    fn new_in() -> Self {
        Self::with_bias(Bias::NEW)
    }

    #[inline]
    fn read(&self) -> Self::Read {
        match self.read_first() {
            Some(token) => token,
            None => self.read_slow(),
        }
    }

    #[inline(always)]
    fn try_read(&self) -> Option<Self::Read> {
        match self.read_first() {
            None => self.try_read_slow(),
            token => token,
        }
    }

    #[inline(always)]
    fn try_read_weak(&self) -> Option<Self::Read> {
        match self.read_first() {
            None => self.try_read_weak_slow(),
            token => token,
        }
    }

    fn read_until(&self, deadline: Deadline) -> Option<Self::Read> {
        match self.read_first() {
            None => self.read_within(Some(deadline)),
            token => token,
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
        // While this writer waits in the underlying lock's queue, it ends the brief hold of a writer that is suspended
        // (`end_overdue_hold` in `revoke`).
        let token = self.lock.write_watching(None, &|| _ = self.end_overdue_hold());
        let token = token.and_then(|token| self.revoke(token, Timeout::Never));
        let Some(token) = token else { unreachable!("without a deadline") };
        token
    }

    #[inline]
    fn try_write(&self) -> Option<Self::Write> {
        let token = match self.lock.try_write() {
            None if self.end_overdue_hold() => self.lock.try_write(),
            token => token,
        }?;
        self.revoke(token, Timeout::Immediate)
    }

    fn write_until(&self, deadline: Deadline) -> Option<Self::Write> {
        let token = self.lock.write_watching(Some(deadline), &|| _ = self.end_overdue_hold())?;
        self.revoke(token, Timeout::At(deadline))
    }

    #[inline]
    unsafe fn unlock_write(&self, token: Self::Write) {
        // SAFETY: the token is from the caller's acquisition of the underlying lock.
        unsafe { self.lock.unlock_write(token) }
    }

    fn is_locked(&self) -> bool {
        // Twice: while this looks, a release without a token may empty the slot of a reader that goes on (`anonymous`). It then
        // leaves a read of the underlying lock in the place of that one. (A second such release meanwhile, by a thread that ends
        // another thread's read, can leave a slot in the place of that again. A look at words one by one may miss that too.)
        let below = || self.lock.is_locked();
        below() || self.may_have_slot_readers() && (self.is_in_a_slot() || below())
    }

    /// Also while a writer holds the underlying lock and still waits for readers in slots (*holding*, *brief hold*); but not
    /// while it waits without that lock (*revoking*).
    fn is_write_locked(&self) -> bool {
        self.lock.is_write_locked()
    }

    // A slot in the row of a thread records that the thread reads the lock. A slot of a table does not say which thread.
    #[inline(always)]
    fn is_recorded(token: &Self::Read) -> bool {
        P::OWNED && matches!(token, ReadToken::Fast(_))
    }

    #[inline(always)]
    fn has_own_recorded_read(&self) -> bool {
        // SAFETY: the slot is only looked at.
        self.may_have_slot_readers() && unsafe { P::own(self.address()) }.is_some()
    }

    #[inline(always)]
    unsafe fn unlock_own_recorded_read(&self) -> bool {
        // SAFETY: the caller ends the acquisition that the slot stands for.
        unsafe { P::own(self.address()) }.map(Self::leave).is_some()
    }

    unsafe fn unlock_any_recorded_read(&self) -> bool {
        // An acquisition that is ended ends the search. The caller excludes that the slot is a candidate's.
        // SAFETY: `end` empties a slot only to end the acquisition that it stands for.
        self.has_recorded_read() && !unsafe { P::all_slots_of(self.address(), |slot| !self.end(slot)) }
    }

    fn has_recorded_read(&self) -> bool {
        P::OWNED && self.may_have_slot_readers() && self.is_in_a_slot()
    }

    /// For a forked child: the slots of the thread that forked are still filled, and writers look at them only if the lock is
    /// biased.
    unsafe fn restore_recorded_reads(&self) {
        // `P::prepare` returned true before these readers filled their slots, and a child inherits its effect. (A) Relaxed:
        // the caller is alone, so every later reader comes after all earlier writers anyway. No revocation is undone: the
        // lock was set to zero, and a lock that no other thread uses has no revoking thread.
        self.bias.store(Bias::ON, Relaxed);
    }
}

impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W: When, V: Revoke, S: Count> BiasedRwLock
    for RawBravo<M, R, P, W, V, S>
{
    const BIAS: usize = core::mem::offset_of!(Self, bias);
    const BIASED: u32 = Bias::ON.0;
    const REVOKING: u32 = Bias::HOLDING.0;
    const IN_A_ROW: usize = core::mem::offset_of!(Self, in_a_row);
    const BELOW: usize = core::mem::offset_of!(Self, lock);
}

#[cfg(test)]
mod tests;

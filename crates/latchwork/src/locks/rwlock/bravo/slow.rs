//! A reader that finds no bias or no free slot uses the underlying lock, and may turn the bias on.
//!
//! A read takes these steps, until one of them succeeds:
//!
//! 1. Its first slot (`read_first` in [`bravo`](super)), or the underlying lock at once if the thread has noted that the lock is not
//!    biased (`read_noted`).
//! 2. Another slot (`read_elsewhere`). A recursive read also tries a slot behind one of its own while a writer revokes (`read_again`).
//! 3. The underlying lock. Then `after_slow_read` notes whether the lock was biased. One slow read in [`SAMPLE`](super::bias) and each of
//!    a new lock takes the bias a `step` towards *on*.

use super::bias::{self, When};
use super::count::{Count, Event};
use super::publish::Publish;
use super::revoke::Revoke;
use super::word::Bias;
use super::{Filled, RawBravo, ReadToken};
use crate::locks::rwlock::RawRwLock;
use crate::machine::{Arith, Deadline, Machine, ReaderRow, shared};
use core::sync::atomic::Ordering::*;

impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W: When, V: Revoke, S: Count>
    RawBravo<M, R, P, W, V, S>
{
    /// The attempt of a thread whose `row` notes that the lock is not biased. It is what the underlying lock's attempt is, and the
    /// count of slow reads: a longer way would make a read of nanoseconds a tenth slower.
    #[inline(always)]
    pub(super) fn read_noted(&self, row: &'static ReaderRow<M>) -> Option<R::Read> {
        let lacks_slot = self.lacks_slot();
        let token = self.lock.try_read_weak()?;
        self.count_slow_read(lacks_slot);
        let bias = self.bias.load(Relaxed); // relaxed as in `after_slow_read`
        if bias::samples(row) || bias.is_warming_up() || bias.is_on() {
            self.note(bias);
        }
        Some(token)
    }

    /// Reads after the first attempt has failed.
    #[inline(never)]
    pub(super) fn read_slow(&self) -> ReadToken<M::Usize, R::Read> {
        let Some(token) = self.read_within(None) else { unreachable!("without a deadline") };
        token
    }

    /// Reads after the first attempt has failed, unless the deadline passes. While the reader waits in the underlying lock, it ends
    /// the brief hold of a writer that is suspended.
    pub(super) fn read_within(&self, deadline: Option<Deadline>) -> Option<ReadToken<M::Usize, R::Read>> {
        self.read_elsewhere_or(|| self.lock.read_watching(deadline, &|| _ = self.end_overdue_hold()))
    }

    /// The same without waiting.
    #[inline(never)]
    pub(super) fn try_read_slow(&self) -> Option<ReadToken<M::Usize, R::Read>> {
        self.read_elsewhere_or(|| match self.lock.try_read() {
            None if self.end_overdue_hold() => self.lock.try_read(),
            token => token,
        })
    }

    /// The same in one attempt at the underlying lock. A thread that reads another lock needs a further slot: without it, hand over
    /// hand, each second lock would cost two atomic instructions.
    #[inline(never)]
    pub(super) fn try_read_weak_slow(&self) -> Option<ReadToken<M::Usize, R::Read>> {
        self.read_elsewhere_or(|| self.lock.try_read_weak())
    }

    /// Reads through another slot, or else through the underlying lock, with what `below` returns.
    #[inline(always)]
    fn read_elsewhere_or(
        &self,
        below: impl FnOnce() -> Option<R::Read>,
    ) -> Option<ReadToken<M::Usize, R::Read>> {
        self.read_elsewhere().or_else(|| {
            let lacks_slot = self.lacks_slot();
            let token = below()?;
            self.after_slow_read(lacks_slot);
            Some(ReadToken::Slow(token))
        })
    }

    /// A reader's attempt through a slot other than its first.
    pub(super) fn read_elsewhere(&self) -> Option<ReadToken<M::Usize, R::Read>> {
        // SAFETY: `read_fast` empties the slot unless the lock is biased, and then this thread reads it.
        self.read_fast(unsafe { P::publish_elsewhere(self.address(), || self.is_biased()) }?)
    }

    /// A reader that reads again, through a further slot, if it reads through a slot already: a revoking writer waits for it in
    /// any case. A slot that was left full by an earlier lock at this address keeps the lock from being biased.
    pub(super) fn read_again(&self) -> Option<ReadToken<M::Usize, R::Read>> {
        if !self.may_have_slot_readers() {
            return None;
        }
        // SAFETY: a slot of this thread that holds the address stands for an acquisition of this lock, because the lock is or was
        // biased.
        unsafe { P::publish_again(self.address()) }.map(|slot| ReadToken::Fast(Filled(slot)))
    }

    /// For the statistics: whether this reader, which is about to use the underlying lock, has found the lock biased but no
    /// slot free. A reader looks before it takes the underlying lock: it may wait there, and the bias may change meanwhile.
    #[inline(always)]
    pub(super) fn lacks_slot(&self) -> bool {
        S::ON && self.is_biased()
    }

    /// Listing 1, lines 25 and 26. The caller holds the underlying lock for reading; several readers may be here at once.
    /// `lacked_slot` is what [`lacks_slot`](Self::lacks_slot) has returned.
    #[inline]
    pub(super) fn after_slow_read(&self, lacked_slot: bool) {
        self.count_slow_read(lacked_slot);
        // Relaxed: no writer is inside, so the value is the last writer's, or that of a reader since then.
        let bias = self.bias.load(Relaxed);
        P::note_unbiased(self.address(), !bias.is_on());
        if P::OWNED && !bias.may_have_slot_readers() {
            self.empty_own_slots();
        }
        if shared::reader_row::<M>().is_none_or(bias::samples) || bias.is_warming_up() {
            self.step(bias);
        }
    }

    #[inline(always)]
    fn count_slow_read(&self, lacked_slot: bool) {
        S::add::<M>(if lacked_slot { Event::Collision } else { Event::Unbiased }, 1);
    }

    /// What a slow read does about the bias `bias` if it is sampled, or finds that the lock is biased or new.
    #[cold]
    #[inline(never)]
    fn note(&self, bias: Bias) {
        P::note_unbiased(self.address(), !bias.is_on());
        self.step(bias);
    }

    /// Takes the bias from the state `bias` one step towards *on*.
    #[cold]
    pub(super) fn step(&self, bias: Bias) {
        let reads = bias::begin_sample::<M>();
        let next = if let Some(warmer) = bias.warmer() {
            warmer
        } else if bias.may_have_slot_readers()
            || !bias.is_warming_up() && !self.may_return(bias, reads)
            || !P::prepare()
        {
            return;
        } else if self.no_slot_holds_it() {
            Bias::ON
        } else {
            Bias::NEW // as many slow reads as in a new lock before the slots are looked through again
        };
        // (A) pairs with the second look in `read_fast`: fast readers come after the writers that this reader came after.
        // If the exchange fails, another reader has made a step.
        _ = self.bias.compare_exchange(bias, next, Release);
    }

    /// Whether the policy says that the bias may be turned on again, asked by a slow read that stands for so many `reads`.
    fn may_return(&self, bias: Bias, reads: u32) -> bool {
        let before = if W::COUNTS { self.in_a_row.fetch_add(reads, Relaxed) } else { 0 };
        W::may_return::<M>(bias.0, before.saturating_add(reads), reads)
    }

    /// Whether no slot holds the lock's address; asked before the bias is turned on. A forgotten reader of an earlier lock at
    /// this address may have left it in a slot, and a writer would wait for that reader for ever. So the lock stays unbiased
    /// until the slot is empty. The calling thread empties such slots of its own row.
    #[cold]
    fn no_slot_holds_it(&self) -> bool {
        self.empty_own_slots();
        !self.is_in_a_slot()
    }

    /// Empties the slots of the calling thread's row that hold the lock's address, by a thread that has found no reader in slots:
    /// this thread has forgotten them when it read an earlier lock at this address. Otherwise a release of the read below that
    /// looks for the calling thread's slot first ([`RawRwLock::unlock_own_recorded_read`]) would end the forgotten read.
    #[inline]
    fn empty_own_slots(&self) {
        // SAFETY: only the calling thread fills slots of its row, and as it found no bias, no reader is inside through them.
        while let Some(slot) = unsafe { P::own(self.address()) } {
            Self::leave(slot);
        }
    }
}

//! A reader that finds no bias or no free slot uses the underlying lock, and may turn the bias on.

use super::bias::{self, When};
use super::count::{Count, Event};
use super::publish::Publish;
use super::revoke::Revoke;
use super::word::Bias;
use super::{Filled, RawBravo, ReadToken};
use crate::locks::rwlock::RawRwLock;
use crate::machine::{Arith, Deadline, Machine, Word};
use core::sync::atomic::Ordering::*;

impl<M: Machine, R: RawRwLock<Machine = M>, P: Publish<M>, W: When, V: Revoke, C: Count>
    RawBravo<M, R, P, W, V, C>
{
    /// Reads after the first slot was of no use.
    #[inline(never)]
    pub(super) fn read_slow(&self) -> ReadToken<M::Usize, R::Read> {
        let Some(token) = self.read_within(None) else { unreachable!("without a deadline") };
        token
    }

    /// Reads through another slot, or else through the underlying lock. A waiter there gives the lock back in the place of
    /// a writer that is suspended while the bias is *held*.
    pub(super) fn read_within(&self, deadline: Option<Deadline>) -> Option<ReadToken<M::Usize, R::Read>> {
        if let Some(slot) = self.read_elsewhere() {
            return Some(ReadToken::Fast(Filled(slot)));
        }
        let biased = C::ON && self.is_biased();
        let token = self.lock.read_watching(deadline, &|| _ = self.end_hold())?;
        self.after_slow_read(biased);
        Some(ReadToken::Slow(token))
    }

    /// The same without waiting.
    #[inline(never)]
    pub(super) fn try_read_slow(&self) -> Option<ReadToken<M::Usize, R::Read>> {
        if let Some(slot) = self.read_elsewhere() {
            return Some(ReadToken::Fast(Filled(slot)));
        }
        let biased = C::ON && self.is_biased();
        let token = match self.lock.try_read() {
            None if self.end_hold() => self.lock.try_read(),
            token => token,
        }?;
        self.after_slow_read(biased);
        Some(ReadToken::Slow(token))
    }

    /// A reader's attempt through a slot other than its first.
    pub(super) fn read_elsewhere(&self) -> Option<&'static M::Usize> {
        // SAFETY: `read_fast` empties the slot unless the lock is biased, and then this thread reads it.
        self.read_fast(unsafe { P::publish_elsewhere(self.address(), || self.is_biased()) })
    }

    /// Listing 1, lines 25 and 26. The caller holds the underlying lock for reading; several readers may be here at once.
    /// `was_biased` is for the statistics: it says whether the reader is slow for want of a slot.
    #[inline]
    pub(super) fn after_slow_read(&self, was_biased: bool) {
        C::add::<M>(if was_biased { Event::Collision } else { Event::Unbiased }, 1);
        // Relaxed: no writer is inside, so the value is the last writer's, or that of a reader since then.
        let bias = self.bias.load(Relaxed);
        P::note_unbiased(self.address(), !bias.is_on());
        if bias.is_warming_up() || !bias.is_on() && bias::sampled::<M>() {
            self.step(bias);
        }
    }

    /// Takes the bias from the state `bias` one step towards *on*.
    #[cold]
    pub(super) fn step(&self, bias: Bias) {
        let next = if let Some(warmer) = bias.warmer() {
            warmer
        } else if bias.may_have_slots() || !bias.is_warming_up() && !self.may_return(bias) || !P::prepare() {
            return;
        } else if self.is_unnamed() {
            Bias::ON
        } else {
            Bias::NEW // as many slow reads as in a new lock before the slots are looked through again
        };
        // (A) pairs with the second look in `read_fast`: fast readers come after the writers that this reader came after.
        // If the exchange fails, another reader has made a step.
        let stepped = self.bias.compare_exchange(bias, next, Release).is_ok();
        if stepped && next.is_on() {
            self.memory.store(W::returning::<M>(self.memory.load(Relaxed)), Relaxed);
        }
    }

    /// Whether the policy says that the bias may be turned on again. It is told of this slow read.
    fn may_return(&self, bias: Bias) -> bool {
        let sampled = W::sampled(self.memory.load(Relaxed));
        if sampled != 0 {
            self.memory.fetch_add(sampled, Relaxed);
        }
        W::may_return::<M>(bias.0)
    }

    /// Whether no slot holds the lock's address, before the bias is turned on. A slot that a forgotten reader has left
    /// behind would keep writers waiting, so the lock does without bias until the slot is empty.
    #[cold]
    fn is_unnamed(&self) -> bool {
        let me = self.address();
        // SAFETY: the lock is not biased, so no reader of it has a slot.
        while let Some(slot) = unsafe { P::own(me) } {
            Self::leave(slot);
        }
        !self.is_in_a_slot()
    }
}

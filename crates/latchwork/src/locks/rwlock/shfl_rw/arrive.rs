//! A thread that has just come: it enters past the head of the queue while it may, and spins briefly before it queues.

use super::words::*;
use super::{RawShflRw, unpark};
use crate::locks::bits::Bits;
use crate::locks::mutex::shuffle::Policy;
use crate::locks::mutex::sleepers;
use crate::locks::mutex::turn::{ASLEEP, PROMISE_BOUND};
use crate::machine::{Arith, Deadline, Machine, Nap, Word};
use core::sync::atomic::Ordering::*;

impl<M: Machine, P: Policy> RawShflRw<M, P> {
    /// An acquisition for reading, past the head while the head's turn has not come.
    #[inline(always)]
    pub(super) fn try_read_free(&self) -> bool {
        // (E) Dekker pair with `finds_no_readers`: a reader adds itself and then looks for a writer, a writer sets WRITER
        // and then looks for readers, all four sequentially consistent, so one sees the other.
        let before = Bits(self.readers.fetch_add(READER, SeqCst));
        // (A) pairs with the release of `word` in `unlock_write`.
        !before.has(PARKED | TOO_MANY) && self.word.load(SeqCst) == FREE || self.stays(Side::Read, before)
    }

    /// The same for an upgradable read.
    pub(super) fn try_upgradable_free(&self) -> bool {
        self.announce_upgradable().is_some_and(|before| {
            // (A), (E) as in `try_read_free`.
            !before.has(PARKED) && self.word.load(SeqCst) == FREE || self.stays(Side::Upgradable, before)
        })
    }

    /// Adds the upgradable reader to `readers`. `None`: there is one already. Otherwise what was there before.
    pub(super) fn announce_upgradable(&self) -> Option<Bits> {
        if self.inside().has(UPGRADABLE) {
            return None;
        }
        // (E) as in `try_read_free`. If another thread was faster, this changes nothing.
        let before = Bits(self.readers.fetch_or(UPGRADABLE, SeqCst));
        (!before.has(UPGRADABLE)).then_some(before)
    }

    /// A reader that has added itself to `before`, and has not seen a free lock, stays inside or takes its addition back.
    /// Returns whether it stays.
    #[cold]
    #[inline(never)]
    fn stays(&self, side: Side, before: Bits) -> bool {
        check(before);
        let state = Bits(self.word.load(SeqCst)); // (A), (E)
        if state.has(WRITER) || !self.may_pass(state, side) {
            self.withdraw(side);
            return false;
        }
        if before.has(PARKED) {
            if !before.has(ANY_READER) || self.is_queue_empty() {
                // The last reader to leave has woken the head, and readers that leave from now on need not do so again. But the
                // head may have taken this reader's addition for the reader that it knew, and have gone to sleep; so it is
                // woken here.
                self.unpark_at_readers();
            } else if !state.has(LAPSED) && !state.has(CLAIMED) && self.turn.exceeds(P::TURN) {
                self.word.fetch_or(CLAIMED, Relaxed); // for the head, which sleeps until no reader is inside
            }
        }
        true
    }

    /// Clears PARKED in `readers`, and unparks a head that sleeps there.
    fn unpark_at_readers(&self) {
        self.readers.fetch_and(!PARKED, Relaxed);
        unpark::<M>(&raw const self.readers);
    }

    /// Takes back the addition of a reader, or of an upgradable reader.
    #[inline]
    pub(super) fn withdraw(&self, side: Side) {
        if side == Side::Upgradable { self.leave_upgradable(Relaxed) } else { self.depart(Relaxed) }
    }

    /// The uncontended acquisition for writing.
    #[inline(always)]
    pub(super) fn try_write_free(&self) -> bool {
        self.readers.load(Relaxed) == 0
            && self.word.load(Relaxed) == FREE
            // (A) as in `try_read_free`. (E) pairs with `try_read_free`.
            && self.word.compare_exchange(FREE, WRITER, SeqCst, Relaxed).is_ok()
            && (self.finds_no_readers() || self.withdraw_writer())
    }

    /// Whether there are no readers, asked by a writer that has set WRITER.
    #[inline(always)]
    fn finds_no_readers(&self) -> bool {
        // (E) as in `try_read_free`. (B) pairs with the subtraction in `unlock_read`.
        !Bits(self.readers.load(SeqCst)).has(ANY_READER)
    }

    /// A writer that has found readers takes WRITER back. Returns `false`.
    #[cold]
    pub(super) fn withdraw_writer(&self) -> bool {
        self.release_writer(Relaxed);
        false
    }

    /// Whether a thread that is not the head may enter past it, by the `state` of the word.
    fn may_pass(&self, state: Bits, side: Side) -> bool {
        if state.has(HINTS) && self.is_queue_empty() {
            self.clear(HINTS); // about a head that has left
            return true;
        }
        !side.is_kept_out_by_claim(state)
    }

    /// An attempt of a thread that is not the head, past the head if there is one.
    #[cold]
    #[inline(never)]
    pub(super) fn steal(&self, side: Side) -> bool {
        let (state, inside) = (self.state(), self.inside());
        let head = if state.has(SHARED) { Side::Upgradable } else { Side::Write };
        let free = !state.has(WRITER) && !inside.has(head.kept_out_by());
        if state.has(WRITER) || !(self.may_pass(state, side) || free && self.lapses(state)) {
            return false;
        }
        match side {
            Side::Read => self.try_read_free(),
            Side::Upgradable => self.try_upgradable_free(),
            Side::Write => {
                if inside.has(PARKED) && self.is_queue_empty() {
                    self.unpark_at_readers(); // set for a waiter that has timed out: `try_write_free` fails beside it
                }
                let state = self.state();
                !inside.has(ANY_READER)
                    && !state.has(WRITER)
                    && !state.has(CLAIMED)
                    // (A), (E) as in `try_write_free`. LAPSED stays: the head clears it.
                    && self.word.compare_exchange(state.0, state.0 | WRITER, SeqCst, Relaxed).is_ok()
                    && (self.finds_no_readers() || self.withdraw_writer())
            }
        }
    }

    /// The lock is free and left to the head by `state`. Returns whether the head has not come for too long.
    #[cold]
    fn lapses(&self, state: Bits) -> bool {
        let next = if !state.has(OFFERED) {
            self.turn.restamp();
            Bits(state.0 | OFFERED)
        } else if self.turn.exceeds(PROMISE_BOUND) {
            Bits(state.0 & !CLAIMS | LAPSED)
        } else {
            return false;
        };
        self.word.compare_exchange(state.0, next.0, Relaxed, Relaxed).is_ok() && next.has(LAPSED)
    }

    /// Waits for the lock: briefly as a newcomer, then in the queue, or beside the queue while its head is suspended. Returns
    /// `false` after the deadline. Calls `watch` when a sleep has ended by itself.
    #[cold]
    #[inline(never)]
    pub(super) fn wait_for_lock(&self, side: Side, deadline: Option<Deadline>, watch: &dyn Fn()) -> bool {
        let mut nap = Nap::new();
        loop {
            let beside = P::BESIDE && self.turn.get().has(ASLEEP) && !self.state().has(CLAIMED);
            let spins = self.is_queue_empty() || beside;
            let spin = |nanos, at_once| self.spin(side, nanos, at_once, || self.steal(side));
            if self.turn.try_as_newcomer::<P>(spins, spin) {
                return true;
            }
            if !self.state().has(LAPSED) || self.is_queue_empty() {
                return self.lock_queued(side, deadline, spins, watch);
            }
            let left = deadline.map_or(u64::MAX, |deadline| deadline.left::<M>());
            if left == 0 {
                return self.steal(side);
            }
            nap.take::<M>(left);
            watch();
        }
    }

    /// [`sleepers::spin`] at the words. A reader takes an open lock at once.
    pub(super) fn spin(&self, side: Side, nanos: u32, at_once: bool, take: impl Fn() -> bool) -> bool {
        sleepers::spin::<M, P>(nanos, at_once || side != Side::Write, || self.is_open(side), take)
    }

    /// Whether no thread inside keeps `side` out.
    pub(super) fn is_open(&self, side: Side) -> bool {
        !self.state().has(WRITER) && !self.inside().has(side.kept_out_by())
    }

    pub(super) fn is_queue_empty(&self) -> bool {
        self.tail.load(Relaxed).is_null()
    }

    /// Clears hints in `word`.
    pub(super) fn clear(&self, hints: u32) {
        if self.word.load(Relaxed) & hints != 0 {
            self.word.fetch_and(!hints, Relaxed);
        }
    }
}

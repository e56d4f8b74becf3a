//! A thread that has just come: it enters past the head of the queue while it may, and waits briefly before it queues.

use super::words::*;
use super::{RawShflRw, Tuning};
use crate::locks::mutex::sleepers;
use crate::locks::parked_bit::unpark;
use crate::machine::{Arith, Deadline, Machine, Word};
use core::sync::atomic::Ordering::*;

/// What came of an attempt to barge.
pub(super) enum Steal {
    /// The newcomer has the lock.
    Taken,
    /// Another thread is inside.
    Held,
    /// It is the head's turn.
    Refused,
}

impl<M: Machine, T: Tuning> RawShflRw<M, T> {
    /// An acquisition for reading, past the head while the head's turn has not come.
    #[inline(always)]
    pub(super) fn try_read_free(&self) -> bool {
        // (E) Dekker pair with `finds_no_readers`: a reader adds itself and then looks for a writer, a writer sets WRITER
        // and then looks for readers, all four sequentially consistent, so one sees the other.
        let before = self.readers.fetch_add(READER, SeqCst);
        // (A) pairs with the decrement in `unlock_write`.
        !Inside(before).is_head_asleep() && self.word.load(SeqCst) == FREE
            || self.stays(Side::Read, Inside(before))
    }

    /// The same for an upgradable read.
    pub(super) fn try_upgradable_free(&self) -> bool {
        self.announce_upgradable().is_some_and(|before| {
            // (A), (E) as in `try_read_free`.
            !before.is_head_asleep() && self.word.load(SeqCst) == FREE || self.stays(Side::Upgradable, before)
        })
    }

    /// Adds the upgradable reader to `readers`. `None`: there is one already. Otherwise what was there before.
    pub(super) fn announce_upgradable(&self) -> Option<Inside> {
        if self.inside().has_upgradable() {
            return None;
        }
        // (E) as in `try_read_free`. If another thread was faster, this changes nothing.
        let before = Inside(self.readers.fetch_or(UPGRADABLE, SeqCst));
        (!before.has_upgradable()).then_some(before)
    }

    /// A reader that has added itself to `before`, and has not seen a free lock, stays inside or takes its addition back.
    /// Returns whether it stays.
    #[cold]
    #[inline(never)]
    fn stays(&self, side: Side, before: Inside) -> bool {
        let state = State(self.word.load(SeqCst)); // (A), (E)
        let asleep = state.is_head_asleep() || before.is_head_asleep();
        let left_to_head = state.is_claimed() || asleep && self.turn.has_waited::<T>();
        if state.is_written() || left_to_head && !state.is_lapsed() {
            self.turn_back(side);
            return false;
        }
        if asleep {
            self.turn.count_steal();
        }
        if before.is_parked() && (before.is_empty() || self.turn.is_due::<T>()) {
            // The head sleeps at `readers`. Either its turn has come. Or no reader was inside, so the last one to leave has
            // woken the head, and readers that leave from now on need not do so again. But the head may have taken this
            // reader's addition for the reader that it knew, and have gone to sleep; so it is woken here.
            self.readers.fetch_and(!PARKED, Relaxed);
            unpark::<M>(&raw const self.readers);
        }
        true
    }

    /// Takes back the addition of a reader, or of an upgradable reader.
    #[inline]
    pub(super) fn turn_back(&self, side: Side) {
        if side == Side::Upgradable { self.leave_upgradable(Relaxed) } else { self.depart(Relaxed) }
    }

    /// The uncontended acquisition for writing.
    #[inline(always)]
    pub(super) fn try_write_free(&self) -> bool {
        self.readers.load(Relaxed) == 0
            && self.word.load(Relaxed) == FREE
            // (A) as in `try_read_free`. (E) pairs with `try_read_free`.
            && self.word.compare_exchange(FREE, WRITER, SeqCst, Relaxed).is_ok()
            && (self.finds_no_readers() || self.take_back())
    }

    /// Whether there are no readers, asked by a writer that has set WRITER.
    #[inline(always)]
    fn finds_no_readers(&self) -> bool {
        // (E) as in `try_read_free`. (B) pairs with the subtraction in `unlock_read`.
        Inside(self.readers.load(SeqCst)).is_empty()
    }

    /// A writer that has found readers takes WRITER back. Returns `false`.
    #[cold]
    pub(super) fn take_back(&self) -> bool {
        if State(self.word.fetch_and(!WRITER, Relaxed)).is_parked() {
            unpark::<M>(&raw const self.word);
        }
        false
    }

    /// A newcomer's attempt, past the head if there is one.
    pub(super) fn steal(&self, side: Side) -> Steal {
        let (mut state, inside) = (self.state(), self.inside());
        let asleep = state.is_head_asleep() || inside.is_head_asleep();
        let waited = asleep && self.turn.has_waited::<T>();
        if (waited || state.is_claimed()) && !state.is_lapsed() {
            let free = !state.is_written() && inside.is_empty();
            if !(free && self.lapses(state)) {
                return if waited { Steal::Refused } else { Steal::Held };
            }
            state = self.state();
        }
        if state.is_written() {
            return Steal::Held;
        }
        let taken = match side {
            Side::Read => self.try_read_free(),
            Side::Upgradable => self.try_upgradable_free(),
            Side::Write if !inside.is_empty() => false,
            Side::Write => {
                // PARKED goes: if the head sleeps at the word, the writer that left has woken it.
                let mut hints = if asleep { WAKING } else { 0 };
                // LAPSED stays only while there is a head to clear it.
                if state.is_lapsed() && !self.tail.load(Relaxed).is_null() {
                    hints |= LAPSED;
                }
                // (A), (E) as in `try_write_free`.
                self.word.compare_exchange(state.0, hints | WRITER, SeqCst, Relaxed).is_ok()
                    && (self.finds_no_readers() || self.take_back())
            }
        };
        if taken && asleep && side == Side::Write {
            self.turn.count_steal();
        }
        if taken { Steal::Taken } else { Steal::Held }
    }

    /// The lock is free and left to the head by `state`. Returns whether the head has not come for too long.
    #[cold]
    fn lapses(&self, state: State) -> bool {
        let next = if !state.is_offered() {
            self.turn.offer();
            State(state.0 | OFFERED)
        } else if self.turn.has_lapsed() {
            State(state.0 & !(CLAIMED | OFFERED) | LAPSED)
        } else {
            return false;
        };
        self.word.compare_exchange(state.0, next.0, Relaxed, Relaxed).is_ok() && next.is_lapsed()
    }

    /// An attempt that the fast path has failed at.
    #[cold]
    pub(super) fn try_slow(&self, side: Side) -> bool {
        // A hint may outlive its head if that gave up at its deadline. A free lock must not look held then.
        matches!(self.steal(side), Steal::Taken)
            || self.tail.load(Relaxed).is_null() && self.try_as_head(side, true)
    }

    #[cold]
    #[inline(never)]
    pub(super) fn lock_slow(&self, side: Side) {
        self.wait_for_lock(side, None, &|| ());
    }

    #[cold]
    #[inline(never)]
    pub(super) fn lock_timed(&self, side: Side, deadline: Deadline) -> bool {
        self.wait_for_lock(side, Some(deadline), &|| ())
    }

    /// Waits for the lock: briefly as a newcomer, then in the queue, or beside the queue while its head is suspended. Returns
    /// `false` after the deadline. Calls `watch` when a sleep has ended by itself.
    #[cold]
    #[inline(never)]
    pub(super) fn wait_for_lock(&self, side: Side, deadline: Option<Deadline>, watch: &dyn Fn()) -> bool {
        loop {
            if self.arrive(side) {
                return true;
            }
            if !self.state().is_lapsed() {
                return self.lock_queued(side, deadline, watch);
            }
            let attempt = || {
                watch();
                self.state().is_lapsed().then(|| matches!(self.steal(side), Steal::Taken))
            };
            if let Some(locked) = sleepers::wait_outside::<M>(deadline, attempt) {
                return locked;
            }
        }
    }

    /// A newcomer's short wait, at growing intervals. Returns whether it has the lock.
    fn arrive(&self, side: Side) -> bool {
        let mut pause = 1;
        // A newcomer that wants to write waits until the lock is idle, so as not to take it from a thread that has it in its
        // cache. With the head asleep it does not wait at its first look: the lock would stay unused.
        let mut at_once =
            side != Side::Write || self.state().is_head_asleep() || self.inside().is_head_asleep();
        for _ in 0..M::patience(T::NEWCOMER_LOOKS) {
            if at_once || self.is_idle(T::NEWCOMER_IDLE) {
                at_once = side != Side::Write;
                match self.steal(side) {
                    Steal::Taken => return true,
                    Steal::Refused => return false,
                    Steal::Held => (),
                }
            }
            M::pause(pause);
            pause = (pause * 2).min(T::NEWCOMER_PAUSE);
        }
        false
    }
}

//! A thread that waits in the queue, and its part as the head: it alone waits at the two words.

use super::RawShflRw;
use super::words::*;
use crate::locks::bits::Bits;
use crate::locks::mutex::invite::invite;
use crate::locks::mutex::shuffle::{Policy, Waiter};
use crate::locks::mutex::sleepers::{self, Head, READY, SHORTEST_SLEEP};
use crate::locks::mutex::turn::{ASLEEP, PROMISE_BOUND};
use crate::machine::{Arith, Deadline, Machine, Word};
use core::sync::atomic::Ordering::*;

/// Looks of a writer that has set WRITER, for readers that are about to withdraw: they need a few instructions. Not tuned.
pub(super) const WITHDRAWAL: u32 = 16;
/// Sleeping readers that a reader which enters from the queue wakes. Each costs it a wakeup; but a chain, in which each
/// reader wakes the next, takes as long as all of them need until they run. No measurement of other numbers is kept.
const INVITATIONS: u32 = 16;
/// The shuffling key of readers. No writer has it: it says that a waiter may be invited.
pub(super) const READING: u32 = u32::MAX;
/// The shuffling key of upgradable readers, likewise.
pub(super) const UPGRADABLE_READING: u32 = u32::MAX - 1;
/// The largest shuffling key of writers. A policy's keys that are larger count as this one.
pub(super) const WRITING: u32 = u32::MAX - 2;

/// The shuffling key of a waiter: all readers are one group, and so are writers of one NUMA node.
pub(super) fn key<M: Machine, P: Policy>(side: Side) -> u32 {
    match side {
        Side::Read => READING,
        Side::Upgradable => UPGRADABLE_READING,
        Side::Write => P::key::<M>().min(WRITING),
    }
}

impl<M: Machine, P: Policy> RawShflRw<M, P> {
    /// Queues, waits to be the head, and competes for the lock. `false`: the deadline has passed.
    pub(super) fn lock_queued(
        &self,
        side: Side,
        deadline: Option<Deadline>,
        spun: bool,
        watch: &dyn Fn(),
    ) -> bool {
        let enter = |invited| {
            if invited {
                return self.enter(Side::Read); // only readers are invited
            }
            // No thread has ended the caller's sleep: the head may be suspended.
            watch();
            self.is_passed() && self.steal(side)
        };
        let key = key::<M, P>(side);
        let waited = sleepers::wait_for_head::<M, P>(&self.tail, &self.turn, key, deadline, enter);
        let Head { node, at_once, locked } = match waited {
            Ok(head) => head,
            Err(locked) => return locked,
        };
        let locked = locked || self.compete(node, side, deadline, spun && at_once, watch);
        if locked && side != Side::Write {
            let reads = |waiter: Waiter<'_, M>| waiter.key().load(Relaxed) == READING;
            invite(node, M::patience(INVITATIONS), reads);
        }
        self.leave(node, side, locked);
        locked
    }

    /// Whether a waiter may pass the head, which has been the head for long or does not run. If the lock is free, and no claim says since
    /// when, this sets LAPSED: newcomers that queue behind a suspended head would leave their nodes there.
    fn is_passed(&self) -> bool {
        let state = self.state();
        let late = !state.has(LAPSED) && self.turn.exceeds(PROMISE_BOUND);
        if late && !state.has(CLAIMED) && self.is_open(Side::Write) {
            _ = self.word.compare_exchange(state.0, state.0 | LAPSED, Relaxed, Relaxed);
        }
        late || state.has(LAPSED)
    }

    /// The head's part: `true` with the lock, `false` after the deadline. A head that has `spun` before it queued parks at
    /// once.
    fn compete(
        &self,
        node: Waiter<'_, M>,
        side: Side,
        deadline: Option<Deadline>,
        mut spun: bool,
        watch: &dyn Fn(),
    ) -> bool {
        let mut has_parked = false;
        let spins = !M::has_one_processor();
        loop {
            sleepers::walk::<M, P>(&self.tail, &self.turn, node, || self.is_open(side));
            self.clear(LAPSED | OFFERED | PARKED); // the head runs
            if self.inside().has(PARKED) {
                self.readers.fetch_and(!PARKED, Relaxed);
            }
            let demands = self.state().has(CLAIMED) || self.turn.exceeds(P::TURN);
            let drains = side == Side::Write && !self.state().has(WRITER) && self.inside().has(ANY_READER);
            let hints = if demands || drains { CLAIMED } else { 0 }
                | if side == Side::Upgradable { SHARED } else { 0 };
            let is_open = || {
                self.set(hints);
                self.is_open(side)
            };
            let nanos = if spins && (drains || !spun) { P::SPIN } else { 0 };
            let at_once = demands || drains || side != Side::Write;
            if sleepers::spin::<M, P>(nanos, at_once, is_open, || self.try_as_head(side)) {
                return true;
            }
            spun = false;
            let late = deadline.is_some_and(|d| d.passed::<M>());
            if late {
                self.clear(CLAIMS | SHARED);
                return self.try_as_head(side);
            }
            if drains && !demands && !self.withdraws_claim() {
                continue;
            }
            let nap = (has_parked && !demands && P::NAPS).then_some((&self.word, CLAIMED));
            let bits = if demands { PARKED | hints } else { PARKED };
            // A reader that leaves wakes it only if it is the last one inside, so the head looks when its turn is over.
            let least = if self.state().has(WRITER) { SHORTEST_SLEEP } else { P::TURN };
            sleepers::sleep(&self.turn, deadline, least, nap, |until| self.park(side, bits, until));
            has_parked = true;
            watch();
        }
    }

    /// The head takes its own claim back. `false`: a holder has left the lock to it meanwhile.
    fn withdraws_claim(&self) -> bool {
        loop {
            let state = self.state();
            if state.has(LEFT) {
                return false;
            }
            let next = state.0 & !CLAIMS;
            if next == state.0 || self.word.compare_exchange(state.0, next, Relaxed, Relaxed).is_ok() {
                return true;
            }
        }
    }

    /// The head's attempt: CLAIMED does not keep it out.
    fn try_as_head(&self, side: Side) -> bool {
        if side != Side::Write {
            let entered = self.enter(side);
            if entered {
                self.clear(HINTS);
            }
            return entered;
        }
        let state = self.state();
        !state.has(WRITER)
            && !self.inside().has(ANY_READER)
            // (A), (E) as in `try_write_free`.
            && self.word.compare_exchange(state.0, WRITER, SeqCst, Relaxed).is_ok()
            // (B), (E) as in `try_write_free`.
            && (M::spin_for(&self.readers, SeqCst, WITHDRAWAL, |readers| !Bits(readers).has(ANY_READER)).is_some()
                || self.withdraw_writer_as_head(state))
    }

    /// The head has set WRITER, in the word that was `state`, and has found readers. What keeps newcomers out stays. Returns `false`.
    #[cold]
    fn withdraw_writer_as_head(&self, state: Bits) -> bool {
        if state.has(CLAIMED) {
            self.word.fetch_or(state.0 & (CLAIMED | LEFT), Relaxed);
        }
        self.withdraw_writer()
    }

    /// The attempt of a reader or an upgradable reader past all hints: it is the head, or has been invited.
    fn enter(&self, side: Side) -> bool {
        if self.state().has(WRITER) {
            return false;
        }
        if side == Side::Upgradable {
            if self.announce_upgradable().is_none() {
                return false;
            }
        } else {
            check(Bits(self.readers.fetch_add(READER, SeqCst))); // (E)
        }
        // (A), (E) as in `try_read_free`.
        if Bits(self.word.load(SeqCst)).has(WRITER) {
            self.withdraw(side);
            return false;
        }
        true
    }

    /// The head sets hints in `word`, at each of its looks: a torn release may have erased them, and newcomers would pass.
    fn set(&self, hints: u32) {
        if hints != 0 && self.word.load(Relaxed) & hints != hints {
            self.word.fetch_or(hints, Relaxed);
        }
    }

    /// Parks the head until the writer or the last reader inside leaves, or until the deadline. May return at any time. Beside a writer it
    /// sets `bits` in `word`, PARKED among them.
    fn park(&self, side: Side, bits: u32, deadline: Option<Deadline>) {
        let state = self.state();
        if !state.has(WRITER) {
            let inside = self.readers.fetch_or(PARKED, Relaxed) | PARKED;
            if Bits(inside).has(side.kept_out_by()) {
                M::wait(&self.readers, inside, deadline);
            }
        } else if self.word.compare_exchange(state.0, state.0 | bits, Relaxed, Relaxed).is_ok() {
            // (F) the writer's release comes after this, and finds PARKED; or it is torn, and has overwritten PARKED when the
            // pause ends.
            sleepers::let_release_end::<M>();
            let state = self.state();
            if state.has(PARKED) {
                M::wait(&self.word, state.0, deadline);
            }
        }
    }

    /// Stops being the head, with the lock or without: the next waiter that is still there becomes the head.
    pub(super) fn leave(&self, node: Waiter<'static, M>, side: Side, locked: bool) {
        self.turn.begin(); // the next head's, by (R), (L) or (C) of `sleepers`
        let next = sleepers::next_head(&self.tail, node);
        let Some((status, key)) = next else { return };
        let kept_out = match side {
            Side::Write => true,
            Side::Upgradable => key != READING,
            Side::Read => key != READING && key != UPGRADABLE_READING,
        };
        if locked && kept_out && P::REQUEUES {
            // The next head cannot enter beside this thread. It sleeps on, as a parked head, until this thread leaves. It is
            // moved before PARKED is set: the thread that sees PARKED must find the sleeper. (A waiter of another lock may be moved in its
            // place: see `leave` in `shfl`.)
            let at = if side == Side::Write { &self.word } else { &self.readers };
            self.turn.0.fetch_or(ASLEEP, Relaxed); // before the system call, so that newcomers do not queue meanwhile
            M::requeue(status, READY, at);
            at.fetch_or(PARKED, Relaxed);
        } else {
            M::wake(status, 1);
        }
    }
}

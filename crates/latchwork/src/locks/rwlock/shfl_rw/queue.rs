//! A thread that waits in the queue, and its part as the head: it alone waits at the two words.

use super::turn::moment;
use super::words::*;
use super::{RawShflRw, Tuning};
use crate::locks::bits::Bits;
use crate::locks::mutex::shuffle::{Policy, Waiter, head_may_shuffle};
use crate::locks::mutex::sleepers::{self, Intervals, Next, READY, Waited};
use crate::locks::parked_bit::{park, unpark};
use crate::machine::{Arith, Deadline, Machine, Word};
use core::sync::atomic::Ordering::*;

/// Looks of a writer that has set WRITER, for readers that are about to turn back: they need a few instructions.
pub(super) const TURNING: u32 = 16;
/// Attempts to fall asleep while readers come and go, and spin hints between them.
const SLEEPS: (u32, u32) = (16, 64);
/// The shuffling key of readers: no NUMA node has this number.
const READING: u32 = u32::MAX;
/// The shuffling key of upgradable readers, likewise.
const UPGRADABLE_READING: u32 = u32::MAX - 1;

/// The shuffling key of a waiter: all readers are one group, and so are writers of one NUMA node.
fn key<M: Machine, P: Policy>(side: Side) -> u32 {
    match side {
        Side::Read => READING,
        Side::Upgradable => UPGRADABLE_READING,
        Side::Write => P::key::<M>(),
    }
}

impl<M: Machine, T: Tuning> RawShflRw<M, T> {
    /// Queues, waits to be the head, and competes for the lock. `false`: the deadline has passed.
    pub(super) fn lock_queued(&self, side: Side, deadline: Option<Deadline>, watch: &dyn Fn()) -> bool {
        let node = sleepers::new_node::<M>();
        let now = moment::<M>();
        node.key().store(key::<M, T::Order>(side), Relaxed);
        node.queued().store(now, Relaxed);
        let mut locked = false;
        if sleepers::enqueue::<M>(&self.tail, node) {
            self.turn.begin::<T>(now);
        } else {
            let enter = |invited| {
                if invited {
                    return self.enter(Side::Read); // only readers are invited
                }
                watch();
                self.rescue(side)
            };
            let spins = M::hints(<T::Order as Policy>::SPIN);
            match sleepers::wait_for_head::<M, T::Order>(&self.tail, node, deadline, spins, enter) {
                Waited::Head => (),
                Waited::HeadWithLock => locked = true,
                Waited::Locked => return true,
                Waited::TimedOut => return false,
            }
        }
        locked = locked || self.compete(node, side, deadline, watch);
        if locked && side != Side::Write {
            let reads = |waiter: Waiter<'_, M>| waiter.key().load(Relaxed) == READING;
            sleepers::invite::<M, T::Order>(node, M::patience(T::INVITATIONS), reads);
        }
        self.leave(node, side, locked);
        locked
    }

    /// A waiter tries, after a sleep that no thread has ended, to pass a head that does not run.
    fn rescue(&self, side: Side) -> bool {
        (self.state().is_lapsed() || self.turn.has_lapsed())
            && matches!(self.steal(side), super::arrive::Steal::Taken)
    }

    /// The head competes for the lock. `true`: it has the lock. `false`: the deadline has passed.
    fn compete(&self, node: Waiter<'_, M>, side: Side, deadline: Option<Deadline>, watch: &dyn Fn()) -> bool {
        let mut claimed = false;
        let mut pause = T::HEAD_PAUSE.0;
        let mut looks = 0;
        let mut intervals = Intervals::of_sleeps();
        if self.inside().is_head_asleep() {
            self.readers.fetch_and(COUNT, Relaxed); // the head, this thread, does not sleep any more
        }
        loop {
            if head_may_shuffle::<M, T::Order>(node) {
                sleepers::walk::<M, T::Order>(&self.tail, node, || self.is_open(side));
            }
            let kept_out = self.is_kept_out_by_readers(side);
            let drained = kept_out && self.drain(side);
            if self.try_as_head(side, claimed || drained) {
                return true;
            }
            self.drop_hints(if kept_out && side == Side::Write && !claimed { CLAIMED } else { 0 });
            let kept_out = self.is_kept_out_by_readers(side);
            M::pause(pause);
            if pause < M::patience(T::HEAD_PAUSE.1) && !kept_out {
                pause *= 2;
                continue;
            }
            if deadline.is_some_and(|d| d.passed::<M>()) {
                if claimed {
                    self.word.fetch_and(!(CLAIMED | OFFERED), Relaxed);
                }
                return self.try_as_head(side, true);
            }
            claimed = claimed || self.turn.is_overdue::<T>();
            if claimed && !self.state().is_claimed() {
                self.word.fetch_or(CLAIMED, Relaxed);
                pause = T::HEAD_PAUSE.0;
            }
            looks += 1;
            if kept_out || looks >= M::patience(T::HEAD_LOOKS) {
                let until = intervals.until::<M>(deadline);
                if kept_out {
                    self.park_behind_readers(side, until);
                } else {
                    // Until the writer leaves.
                    park::<M>(&self.word, Bits(WRITER), Bits(PARKED), until);
                }
                watch();
                looks = 0;
            }
        }
    }

    /// The head runs: WAKING and LAPSED do not hold any more, nor does `and`.
    fn drop_hints(&self, and: u32) {
        let past = WAKING | LAPSED | and;
        if self.word.load(Relaxed) & past != 0 {
            self.word.fetch_and(!past, Relaxed);
        }
    }

    /// Whether no thread inside keeps `side` out.
    fn is_open(&self, side: Side) -> bool {
        !self.state().is_written() && (side == Side::Read || !self.inside().keeps_out(side))
    }

    /// Whether readers inside keep `side` out, and no writer does.
    fn is_kept_out_by_readers(&self, side: Side) -> bool {
        side != Side::Read && !self.state().is_written() && self.inside().keeps_out(side)
    }

    /// Whether the lock is unused, and not merely between two sections of a thread that has it in its cache. To take the lock
    /// from that thread costs two cache misses, and often a wakeup of the next head.
    pub(super) fn is_idle(&self, (looks, pause): (u32, u32)) -> bool {
        (0..M::patience(looks)).all(|_| {
            M::pause(pause);
            self.is_open(Side::Write)
        })
    }

    /// The head waits some microseconds for the readers inside to leave. Returns whether they did. A writer shuts newcomers
    /// out meanwhile: with CLAIMED and not with WRITER, since only CLAIMED lapses if the head is suspended.
    fn drain(&self, side: Side) -> bool {
        if side == Side::Write {
            self.word.fetch_or(CLAIMED, Relaxed);
        }
        M::spin_for(&self.readers, Relaxed, T::DRAIN, |readers| !Inside(readers).keeps_out(side)).is_some()
    }

    /// The attempt of the head, or of a thread that has found the queue empty. Hints do not keep it out, and it drops them.
    /// A writer takes a lock that is merely between two sections of another writer only if it is its `turn`.
    pub(super) fn try_as_head(&self, side: Side, turn: bool) -> bool {
        match side {
            Side::Read | Side::Upgradable => {
                if !self.enter(side) {
                    return false;
                }
                if self.word.load(Relaxed) != FREE {
                    // An upgradable reader may have set WRITER and UPGRADING just now.
                    let dropped = State(self.word.fetch_and(WRITER | UPGRADING, Relaxed));
                    if dropped.is_written() && dropped.is_parked() {
                        // A writer that is about to turn back has set WRITER, and another head has parked behind it. That
                        // head must announce itself again. (Without WRITER, the writer that took it back has seen PARKED,
                        // and wakes the head.)
                        unpark::<M>(&raw const self.word);
                    }
                }
                true
            }
            Side::Write => {
                let state = self.state();
                if state.is_written() || !self.inside().is_empty() || !(turn || self.is_idle(T::HEAD_IDLE)) {
                    return false;
                }
                // (A), (E) as in `try_write_free`.
                if self.word.compare_exchange(state.0, WRITER, SeqCst, Relaxed).is_err() {
                    return false;
                }
                // (B), (E) as in `try_write_free`.
                M::spin_for(&self.readers, SeqCst, TURNING, |readers| Inside(readers).is_empty()).is_some()
                    || self.take_back()
            }
        }
    }

    /// The attempt of a reader or an upgradable reader past all hints: it is the head, or has been invited.
    fn enter(&self, side: Side) -> bool {
        if self.state().is_written() {
            return false;
        }
        if side == Side::Upgradable {
            if self.announce_upgradable().is_none() {
                return false;
            }
        } else {
            self.readers.fetch_add(READER, SeqCst); // (E)
        }
        // (A), (E) as in `try_read_free`.
        if State(self.word.load(SeqCst)).is_written() {
            self.turn_back(side);
            return false;
        }
        true
    }

    /// A head that readers keep out sleeps until the last of them leaves. While readers come and go, the word changes too
    /// often to fall asleep at it; then the head tries a few times and looks at the lock again.
    fn park_behind_readers(&self, side: Side, deadline: Option<Deadline>) {
        let announced = ASLEEP | PARKED;
        let mut inside = Inside(self.readers.fetch_or(announced, Relaxed) | announced);
        for _ in 0..M::patience(SLEEPS.0) {
            if !inside.keeps_out(side) || !inside.is_parked() {
                break;
            }
            M::wait(&self.readers, inside.0, deadline);
            M::pause(SLEEPS.1);
            inside = self.inside();
        }
        self.readers.fetch_and(COUNT, Relaxed);
    }

    /// Stops being the head, with the lock or without: the next waiter that is still there becomes the head.
    fn leave(&self, node: Waiter<'static, M>, side: Side, locked: bool) {
        // (R) of the queue makes these times visible to the next head.
        let begin = |next: Waiter<'_, M>| self.turn.begin::<T>(next.queued().load(Relaxed));
        let Some(Next { status, before, group: key }) = sleepers::next_head(&self.tail, node, begin) else {
            return;
        };
        if before != sleepers::NODE_PARKED {
            return;
        }
        let kept_out = match side {
            Side::Write => true,
            Side::Upgradable => key != READING,
            Side::Read => key != READING && key != UPGRADABLE_READING,
        };
        if !(locked && kept_out && T::REQUEUES) {
            self.word.fetch_or(WAKING, Relaxed);
            M::wake(status, 1);
        } else if side == Side::Write {
            // The next head cannot enter beside this thread. It sleeps on, as a parked head, until this thread leaves. It is
            // moved before PARKED is set: the thread that sees PARKED must find the sleeper.
            M::requeue(status, READY, &self.word);
            self.word.fetch_or(PARKED, Relaxed);
        } else {
            M::requeue(status, READY, &self.readers);
            self.readers.fetch_or(ASLEEP | PARKED, Relaxed);
        }
    }
}

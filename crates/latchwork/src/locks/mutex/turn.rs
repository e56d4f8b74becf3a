//! The word `turn` of the blocking ShflLocks: since when the head of the queue is the head, and whether it pays to spin.
//!
//! | bits | meaning | set by | cleared by |
//! |---|---|---|---|
//! | TIME (26) | when the turn began, or when a lock that is left to the head became free, in microseconds of 1024 ns | [`begin`](Turn::begin): a leaving head, a first head; [`restamp`](Turn::restamp) | |
//! | VAIN (4) | a hint: in how many turns newcomers have spun in vain lately, and whether this turn is one of them | a newcomer that has spun | the same; a new turn (one bit) |
//! | LAPSED | a hint of [`shfl`](super::shfl): the head does not run | a newcomer or waiter | the head, when it runs; a new turn |
//! | ASLEEP | a hint: the head sleeps, at the lock's word or (a nap) at `turn` | the head; a leaving head, for the next | the head, when it wakes up; a fair unlock (N); a new turn |
//!
//! # (N): a fair unlock ends a nap
//!
//! The head sets ASLEEP, and naps if the lock is not left to it. A fair unlock leaves the lock to the head, and clears ASLEEP. One of
//! the two comes second in `turn`. So the head sees that the lock is left to it, or the unlock ends the nap. (If a new turn begins
//! between, the nap goes on.)
//!
//! # Spins in vain
//!
//! A count goes from 0 to 7. The first newcomer in each turn that has spun in vain adds one; each that got the lock so takes two
//! off. At 6, newcomers and queued waiters park at once: holders sleep, yield or are preempted, and waiters that spin keep
//! processors from them. The head of the queue spins nevertheless: it is the one that all others wait for. In one turn of 64 all
//! of them spin, which is a trial: one success makes them spin again.
//!
//! The others that spin in vain in the same turn do not count. They wait for the same holder, often: if one is preempted in its
//! section once, all threads that run meanwhile spin in vain, and the lock would not be spun for in the next 64 turns. Then each
//! meeting of two threads puts one of them to sleep, for a section of nanoseconds.
//!
//! `docs/mutexes.md` has what this is worth, and `latchwork-lab ablate` shows it without.

use super::shuffle::Policy;
use crate::locks::bits::Bits;
use crate::machine::{Arith, Machine, Word, micros};
use core::sync::atomic::Ordering::*;

pub(crate) const ASLEEP: u32 = 1 << 31;
pub(crate) const LAPSED: u32 = 1 << 30;
/// These bits publish nothing, and it does no harm if a change of them is lost.
const VAIN: u32 = COUNT | COUNTED;
const COUNT: u32 = 7 << 27;
/// A spin in vain has been counted in this turn.
const COUNTED: u32 = 1 << 26;
const TIME: u32 = u32::MAX >> 6;

/// One of [`COUNT`].
const ONCE: u32 = 1 << 27;
/// The count from which on threads do not spin. (A limit of one spin in two cost 8% with sections of 5 us and pauses of 2 us.)
const OFTEN: u32 = 6 * ONCE;
/// One turn in so many is a trial. The time is as good as chance. (With 16, programs that yield inside of sections lost 12%.)
const TRIAL: u32 = 64;

/// Microseconds (of 1024 ns) for which a head that does not run may keep a free lock: two or three quanta of the scheduler (3 ms
/// each), within which an unparked thread usually runs. If it runs later, other threads have merely passed it once more.
pub(crate) const PROMISE_BOUND: u32 = 10_000;

/// The present time, modulo 68 seconds.
pub(crate) fn stamp<M: Machine>() -> u32 {
    micros::<M>() & TIME
}

/// Microseconds since the time in `turn`. That may be a little newer than the clock, and counts as new then: the processor may
/// read the clock before it loads `turn`, and the clocks of two processors may differ. (A time of nearly 68 s ago counts as new too,
/// for 10 ms.)
pub(crate) fn age<M: Machine>(turn: Bits) -> u32 {
    let age = micros::<M>().wrapping_sub(turn.0) & TIME;
    if age > TIME - PROMISE_BOUND { 0 } else { age }
}

/// The word after a turn has begun so many microseconds ago.
#[cfg(test)]
pub(crate) fn begun_before<M: Machine>(micros: u32) -> u32 {
    stamp::<M>().wrapping_sub(micros) & TIME
}

/// See the [module documentation](self).
#[repr(transparent)]
pub(crate) struct Turn<M: Machine>(pub M::U32);

impl<M: Machine> Turn<M> {
    /// The value. Acquire: the clock is read afterwards, in [`age`].
    pub fn get(&self) -> Bits {
        Bits(self.0.load(Acquire))
    }

    /// Whether it has lasted for longer than `bound` microseconds.
    pub fn exceeds(&self, bound: u32) -> bool {
        age::<M>(self.get()) > bound
    }

    /// The turn of the next head begins.
    pub fn begin(&self) {
        self.0.store(stamp::<M>() | self.0.load(Relaxed) & COUNT, Relaxed);
    }

    /// Whether it began at `start` or later: in half of what the word can say.
    #[cfg(test)]
    pub fn has_begun_since(&self, start: u32) -> bool {
        self.get().0.wrapping_sub(start) & TIME <= TIME / 2
    }

    /// The lock is free from now on, and left to the head.
    pub fn restamp(&self) {
        let turn = self.get();
        let next = stamp::<M>() | turn.0 & !TIME;
        // Relaxed: it publishes nothing. It fails if `turn` has changed just now: the head runs, or a thread has set LAPSED.
        _ = self.0.compare_exchange(turn.0, next, Relaxed, Relaxed);
    }

    /// The caller has left the lock to the head, which may nap. Otherwise it is awake, or sleeps at another word.
    pub fn end_nap(&self) {
        // (N). Release: what leaves the lock to the head, for a head that comes second.
        if Bits(self.0.fetch_and(!ASLEEP, Release)).has(ASLEEP) {
            M::wake(&self.0, u32::MAX);
        }
    }

    /// Whether a thread that finds the lock held, and is not the head, should spin.
    pub fn spins_pay<P: Policy>(&self) -> bool {
        let pay = |turn: u32| turn & COUNT < OFTEN || turn.is_multiple_of(TRIAL);
        !P::LEARNS || pay(self.0.load(Relaxed))
    }

    /// A newcomer's attempts before it queues. If it `spins` and that pays, it calls `spin` with the time for which to spin, and with
    /// whether to take a free lock at once. Otherwise that is one attempt.
    pub fn try_as_newcomer<P: Policy>(&self, spins: bool, spin: impl FnOnce(u32, bool) -> bool) -> bool {
        let pays = spins && self.spins_pay::<P>();
        let got = spin(if pays { P::SPIN } else { 0 }, !pays);
        if pays {
            self.learn::<P>(got);
        }
        got
    }

    /// A newcomer has spun, and `got` the lock so, or not.
    fn learn<P: Policy>(&self, got: bool) {
        let before = self.0.load(Relaxed);
        let (counted, count) = (before & COUNTED, before & COUNT);
        let next = match got {
            true => before & !VAIN | counted | count.saturating_sub(2 * ONCE),
            false if counted != 0 => before,
            false => before & !VAIN | COUNTED | (count + ONCE).min(COUNT),
        };
        if P::LEARNS && next != before {
            _ = self.0.compare_exchange(before, next, Relaxed, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::mutex::policies::NumaPolicy;
    use crate::machine::Native;
    use core::sync::atomic::AtomicU32;

    fn count_after(turn: &Turn<Native>, spins: &[bool]) -> u32 {
        spins.iter().for_each(|&got| turn.learn::<NumaPolicy>(got));
        (turn.get().0 & COUNT) / ONCE
    }

    #[test]
    fn a_stamp_that_is_newer_than_the_clock_is_new() {
        let later = |micros: u32| Bits(stamp::<Native>().wrapping_add(micros) & TIME);
        let second = 1_000_000_u32;
        assert!(age::<Native>(later(5000)) < second);
        assert!((second..2 * second).contains(&age::<Native>(later(second.wrapping_neg()))));
    }

    #[test]
    fn the_spins_in_vain_of_one_turn_count_once() {
        let turn = Turn(AtomicU32::new(0));
        assert_eq!(count_after(&turn, &[false; 20]), 1);
        turn.begin();
        assert_eq!(count_after(&turn, &[false; 20]), 2);
        assert_eq!(
            count_after(&turn, &[true, false]),
            0,
            "a success takes two off, and the turn has counted"
        );
    }

    #[test]
    fn turns_in_vain_stop_the_spins_and_one_success_begins_them_anew() {
        let pays =
            |turn: &Turn<Native>| Turn::<Native>(AtomicU32::new(turn.get().0 | 1)).spins_pay::<NumaPolicy>(); // no trial
        let turn = Turn(AtomicU32::new(0));
        for in_vain in 1..=10 {
            assert_eq!(pays(&turn), in_vain <= 6, "after {} turns in vain", in_vain - 1);
            turn.begin();
            assert_eq!(count_after(&turn, &[false]), in_vain.min(7));
        }
        assert_eq!(count_after(&turn, &[true]), 5);
        assert!(pays(&turn));
    }
}

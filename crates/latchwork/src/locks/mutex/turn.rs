//! The word `turn` of the blocking ShflLocks: since when the head of the queue is the head, and whether it pays to spin.
//!
//! | bits | meaning | set by | cleared by |
//! |---|---|---|---|
//! | TIME (26) | when the turn began, or since when a free lock is left to the head, in microseconds of 1024 ns | [`begin`](Turn::begin): a leaving head, a first head; [`restamp`](Turn::restamp) | |
//! | VAIN (4) | a hint: COUNT, in how many turns newcomers have spun in vain since one got the lock so, and IN_VAIN, whether this turn is one of them | a newcomer that has spun in vain; a new turn | a newcomer that got the lock |
//! | LAPSED | a hint of [`shfl`](super::shfl): the head does not run | a newcomer or waiter | the head, when it runs; a new turn |
//! | ASLEEP | a hint: the head sleeps | the head; a leaving head, for the next | the head, when it wakes up; a new turn |
//!
//! # Spins in vain
//!
//! After seven turns in which newcomers have spun in vain, and none has got the lock so, newcomers and queued waiters park at once:
//! holders sleep, yield or are preempted, and waiters that spin keep processors from them. The head of the queue spins
//! nevertheless: it is the one that all others wait for. In one turn of 64 all of them spin, which is a trial: one success makes
//! them spin again.
//!
//! Where the process has a single processor ([`has_one_processor`](Machine::has_one_processor)), all of them park at once, the head too.
//!
//! The others that spin in vain in the same turn do not count. They wait for the same holder, often: if one is preempted in its
//! section once, all threads that run meanwhile spin in vain, and the lock would not be spun for in the next 64 turns. Then each
//! meeting of two threads puts one of them to sleep, for a section of nanoseconds.
//!
//! `docs/mutexes.md` has what this is worth, and `latchwork-lab ablate` shows it without.

use super::shuffle::Policy;
use crate::locks::bits::Bits;
use crate::machine::{Machine, Word, micros};
use core::sync::atomic::Ordering::*;

pub(crate) const ASLEEP: u32 = 1 << 31;
pub(crate) const LAPSED: u32 = 1 << 30;
/// These bits publish nothing, and it does no harm if a change of them is lost.
const COUNT: u32 = 7 << 27;
const IN_VAIN: u32 = 1 << 26;
const TIME: u32 = u32::MAX >> 6;

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
        let before = self.0.load(Relaxed);
        // IN_VAIN is half of one in COUNT, which stays at its largest value.
        let count = ((before & (COUNT | IN_VAIN)) + (before & IN_VAIN)).min(COUNT);
        self.0.store(stamp::<M>() | count, Relaxed);
    }

    /// Whether it began at `start` or later: in half of what the word can say.
    #[cfg(test)]
    pub fn has_begun_since(&self, start: u32) -> bool {
        self.get().0.wrapping_sub(start) & TIME <= TIME / 2
    }

    /// The lock is free from now on, and left to the head.
    pub fn restamp(&self) {
        let mut turn = self.0.load(Relaxed);
        let next = |turn| stamp::<M>() | turn & !TIME;
        // Relaxed: it publishes nothing. It fails if a hint, or the turn, has changed just now.
        while let Err(now) = self.0.compare_exchange(turn, next(turn), Relaxed, Relaxed) {
            turn = now;
        }
    }

    /// Whether a thread that finds the lock held, and is not the head, should spin.
    pub fn spins_pay<P: Policy>(&self) -> bool {
        let turn = self.0.load(Relaxed);
        turn & COUNT != COUNT || turn.is_multiple_of(P::TRIAL)
    }

    /// A newcomer's attempts before it queues. If it `spins` and that pays, it calls `spin` with the time for which to spin, and with
    /// whether to take a free lock at once. Otherwise that is one attempt.
    pub fn try_as_newcomer<P: Policy>(&self, spins: bool, spin: impl FnOnce(u32, bool) -> bool) -> bool {
        let pays = spins && self.spins_pay::<P>() && !M::has_one_processor();
        let got = spin(if pays { P::SPIN } else { 0 }, !pays);
        if pays {
            self.learn(got);
        }
        got
    }

    /// A newcomer has spun, and `got` the lock so, or not.
    fn learn(&self, got: bool) {
        let before = self.0.load(Relaxed);
        let next = if got { before & !(COUNT | IN_VAIN) } else { before | IN_VAIN };
        if next != before {
            _ = self.0.compare_exchange(before, next, Relaxed, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::mutex::policies::NumaPolicy;
    use crate::machine::Native;
    use core::sync::atomic::{AtomicBool, AtomicU32};

    fn count_after(turn: &Turn<Native>, spins: &[bool]) -> u32 {
        spins.iter().for_each(|&got| turn.learn(got));
        turn.begin();
        (turn.get().0 & COUNT) / (2 * IN_VAIN)
    }

    #[test]
    fn a_stamp_that_is_newer_than_the_clock_is_new() {
        let later = |micros: u32| Bits(stamp::<Native>().wrapping_add(micros) & TIME);
        let second = 1_000_000_u32;
        assert!(age::<Native>(later(5000)) < second);
        assert!((second..2 * second).contains(&age::<Native>(later(second.wrapping_neg()))));
    }

    /// Also while another thread changes a hint: a promise that begins with an old stamp has ended already.
    #[test]
    fn a_promise_begins_now_whatever_else_changes() {
        let (turn, done) = (Turn::<Native>(AtomicU32::new(0)), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Relaxed) {
                    turn.0.fetch_xor(ASLEEP, Relaxed);
                }
            });
            let is_new = || {
                let old = begun_before::<Native>(30_000_000) & TIME;
                turn.0.store(old, Relaxed);
                turn.restamp();
                turn.0.load(Relaxed) & TIME != old
            };
            let old = (0..300_000).find(|_| !is_new());
            done.store(true, Relaxed);
            assert_eq!(old, None, "the stamp stayed old in this round");
        });
    }

    #[test]
    fn the_spins_in_vain_of_one_turn_count_once() {
        let turn = Turn(AtomicU32::new(0));
        assert_eq!(count_after(&turn, &[false; 20]), 1);
        assert_eq!(count_after(&turn, &[false; 20]), 2);
        assert_eq!(count_after(&turn, &[]), 2, "in this turn no thread has spun");
        assert_eq!(count_after(&turn, &[false, true]), 0);
    }

    #[test]
    fn turns_in_vain_stop_the_spins_and_one_success_begins_them_anew() {
        let pays =
            |turn: &Turn<Native>| Turn::<Native>(AtomicU32::new(turn.get().0 | 1)).spins_pay::<NumaPolicy>(); // no trial
        let turn = Turn(AtomicU32::new(0));
        for in_vain in 1..=10 {
            assert_eq!(pays(&turn), in_vain <= 7, "after {} turns in vain", in_vain - 1);
            assert_eq!(count_after(&turn, &[false]), in_vain.min(7));
        }
        let trial = Turn::<Native>(AtomicU32::new(turn.get().0 & !TIME | NumaPolicy::TRIAL));
        assert!(trial.spins_pay::<NumaPolicy>(), "no turn is a trial");
        assert_eq!(count_after(&turn, &[true]), 0);
        assert!(pays(&turn));
    }

    #[test]
    fn only_a_newcomer_that_spins_learns() {
        let turn = Turn::<Native>(AtomicU32::new(1));
        let fails = |spins, wanted| {
            let spin = |nanos, at_once| {
                assert_eq!((nanos, at_once), wanted);
                false
            };
            assert!(!turn.try_as_newcomer::<NumaPolicy>(spins, spin));
            count_after(&turn, &[])
        };
        assert_eq!(fails(false, (0, true)), 0);
        assert_eq!(fails(true, (NumaPolicy::SPIN, false)), 1);
    }
}

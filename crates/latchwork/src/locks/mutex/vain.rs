//! Whether it pays to spin for a lock, learned for each of the blocking ShflLocks in its word `turn`.
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
use super::sleepers::stamp;
use crate::locks::bits::Bits;
use crate::machine::{Machine, Word};
use core::sync::atomic::Ordering::Relaxed;

/// The bits of `turn` that this module keeps. They publish nothing, and it does no harm if a change of them is lost.
pub(crate) const VAIN: Bits = COUNT.with(COUNTED);
const COUNT: Bits = Bits(7 << 27);
/// A spin in vain has been counted in this turn.
const COUNTED: Bits = Bits(1 << 26);
/// One of [`COUNT`].
const ONCE: u32 = 1 << 27;
/// The count from which on threads do not spin. (A limit of one spin in two cost 8% with sections of 5 us and pauses of 2 us.)
const OFTEN: u32 = 6 * ONCE;
/// One turn in so many is a trial. The stamp in `turn` is as good as chance. (With 16, programs that yield inside of sections lost 12%.)
const TRIAL: u32 = 64;

/// Whether a thread that finds the lock held, and is not the head, should spin.
pub(crate) fn spins_pay<M: Machine, P: Policy>(turn: &M::U32) -> bool {
    let pay = |turn: Bits| turn.only(COUNT).0 < OFTEN || turn.0.is_multiple_of(TRIAL);
    !(P::STEALING && P::LEARNS) || pay(Bits::of::<M>(turn))
}

/// A newcomer has spun, and `got` the lock so, or not.
pub(crate) fn learn<M: Machine, P: Policy>(turn: &M::U32, got: bool) {
    let before = Bits::of::<M>(turn);
    let (vain, count) = (before.only(VAIN), before.only(COUNT).0);
    let next = match got {
        true => before.only(COUNTED).with(Bits(count.saturating_sub(2 * ONCE))),
        false if before.has(COUNTED) => vain,
        false => COUNTED.with(Bits((count + ONCE).min(COUNT.0))),
    };
    if P::STEALING && P::LEARNS && next.0 != vain.0 {
        _ = turn.compare_exchange(before.0, before.0 - vain.0 + next.0, Relaxed, Relaxed);
    }
}

/// The turn of the next head begins.
pub(crate) fn begin_turn<M: Machine>(turn: &M::U32) {
    turn.store(stamp::<M>().with(Bits::of::<M>(turn).only(COUNT)).0, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::mutex::policies::NumaPolicy;
    use crate::machine::Native;
    use core::sync::atomic::AtomicU32;

    fn count_after(turn: &AtomicU32, spins: &[bool]) -> u32 {
        spins.iter().for_each(|&got| learn::<Native, NumaPolicy>(turn, got));
        Bits::of::<Native>(turn).only(COUNT).0 / ONCE
    }

    #[test]
    fn the_spins_in_vain_of_one_turn_count_once() {
        let turn = AtomicU32::new(0);
        assert_eq!(count_after(&turn, &[false; 20]), 1);
        begin_turn::<Native>(&turn);
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
            |turn: &AtomicU32| spins_pay::<Native, NumaPolicy>(&AtomicU32::new(turn.load(Relaxed) | 1)); // no trial
        let turn = AtomicU32::new(0);
        for in_vain in 1..=10 {
            assert_eq!(pays(&turn), in_vain <= 6, "after {} turns in vain", in_vain - 1);
            begin_turn::<Native>(&turn);
            assert_eq!(count_after(&turn, &[false]), in_vain.min(7));
        }
        assert_eq!(count_after(&turn, &[true]), 5);
        assert!(pays(&turn));
    }
}

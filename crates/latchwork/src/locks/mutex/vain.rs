//! Whether it pays to spin for a lock, learned for each of the blocking ShflLocks in its word `turn`.
//!
//! A newcomer that has spun in vain adds one to a count from 0 to 7 ([`VAIN`]); one that got the lock so takes two off. So the
//! count goes up if more than two spins in three are in vain: holders sleep, yield or are preempted, and the spinning waiters keep
//! processors from them. At 6, newcomers and queued waiters park at once. The head of the queue spins nevertheless: it is the one
//! that all others wait for. In one turn of 64 all of them spin, which is a trial: one success makes them
//! spin again.
//!
//! `docs/mutexes.md` has what this is worth, and `latchwork-lab ablate` shows it without.

use super::shuffle::Policy;
use super::sleepers::stamp;
use crate::locks::bits::Bits;
use crate::machine::{Machine, Word};
use core::sync::atomic::Ordering::Relaxed;

/// The bits of `turn` with the count. They publish nothing, and it does no harm if a change of them is lost.
pub(crate) const VAIN: Bits = Bits(7 << 27);
/// One of [`VAIN`].
const ONCE: u32 = 1 << 27;
/// The count from which on threads do not spin. (A limit of one spin in two cost 8% with sections of 5 us and pauses of 2 us.)
const OFTEN: u32 = 6 * ONCE;
/// One turn in so many is a trial. The stamp in `turn` is as good as chance. (With 16, programs that yield inside of sections lost 12%.)
const TRIAL: u32 = 64;

/// Whether a thread that finds the lock held, and is not the head, should spin.
pub(crate) fn spins_pay<M: Machine, P: Policy>(turn: &M::U32) -> bool {
    let pay = |turn: Bits| turn.only(VAIN).0 < OFTEN || turn.0.is_multiple_of(TRIAL);
    !(P::STEALING && P::LEARNS) || pay(Bits::of::<M>(turn))
}

/// A newcomer has spun, and `got` the lock so, or not.
pub(crate) fn learn<M: Machine, P: Policy>(turn: &M::U32, got: bool) {
    let before = turn.load(Relaxed);
    let vain = before & VAIN.0;
    let next = if got { vain.saturating_sub(2 * ONCE) } else { (vain + ONCE).min(VAIN.0) };
    if P::STEALING && P::LEARNS && next != vain {
        _ = turn.compare_exchange(before, before - vain + next, Relaxed, Relaxed);
    }
}

/// The turn of the next head begins.
pub(crate) fn begin_turn<M: Machine>(turn: &M::U32) {
    turn.store(stamp::<M>().with(Bits::of::<M>(turn).only(VAIN)).0, Relaxed);
}

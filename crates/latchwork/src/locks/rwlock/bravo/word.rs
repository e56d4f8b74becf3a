//! The bias: the word that says whether readers may use slots, and what a revoking writer does about it.
//!
//! # States
//!
//! | state | meaning | which thread leaves it, and to where |
//! |---|---|---|
//! | warming up, 0 to 15 | off; so many slow reads since the lock was made, or since a slow reader found the lock's address in a slot | each slow reader, to the next number; the last one to *on*, or to *warming up 0* if a slot holds the lock's address |
//! | on | readers use slots | a writer that has the underlying lock: to *holding* if it is a `Holding` one; to *brief hold* if it is a `Passing` one, or to *revoking 1* if tokens of the underlying lock have content; an upgradable reader that upgrades: to *revoking 1* |
//! | off | the number is the policy's: a time until which the bias stays off, or how many reads in a row end that | a slow reader, when the policy allows it: to *on*, or to *warming up 0* if a slot holds the lock's address |
//! | brief hold since t | a `Passing` writer waits for readers in their slots and still has the underlying lock, for a millisecond at most | that writer: to *off*, to *on* if it gives up, or to *revoking 1*; another thread, after ten milliseconds: to *revoking 1* |
//! | holding | a `Holding` writer waits for readers in their slots and keeps the underlying lock | that writer: to *off*, or to *on* if it gives up |
//! | revoking n | n threads wait for readers in their slots without the underlying write lock | a thread that joins them: to *n + 1*; one that leaves: to *n - 1*; the last one to *on*, since none of them has written |
//! | revoking n, empty | the same, and one of the n has seen that no reader is left, and has written | as before; the last one to *off* |
//!
//! # Rules
//!
//! - Only a thread that holds the underlying lock for reading turns the bias on, or a thread that gives up a revocation
//!   and knows that no writer has been inside since. So no writer is inside when the bias appears.
//! - Slow readers change the word by compare-and-exchange. A plain store of the next number could undo a bias that
//!   another reader has just turned on, with readers in slots already.
//! - *Revoking* excludes *on* until the last thread has left. So a thread among the n that has seen the slots empty knows
//!   that they stay empty.
//!
//! A lock starts with *warming up*, not *on*. Programs make locks that are read once or twice in their lives; OpenSSL
//! makes tens of thousands a second. There a first write that looks through the slots would cost more than bias can give.

use crate::machine::{Machine, Native, Word};
use core::sync::atomic::{AtomicU32, Ordering};

/// Slow reads before a new lock is biased for the first time. `crates/loom` does as many.
pub(in super::super) const WARM_UP: u32 = 16;
/// The lowest number of the state *off*.
pub(super) const FIRST: u32 = WARM_UP + 1;
/// The lowest number of the state *brief hold*, and the end of *off*. A policy's time that would be higher is clamped: it is
/// early by 35 seconds at most, once in five hours.
pub(super) const BRIEF_HOLD: u32 = HOLDING - (1 << 16);
/// The number of the state *holding*; what is added to it counts the revoking threads.
const HOLDING: u32 = u32::MAX << 23;
/// The bit that says *empty*. The bits below it count 2^22 - 1 revoking threads. Linux has no more: thread numbers are below 2^22
/// (`PID_MAX_LIMIT`).
const EMPTY: u32 = 1 << 22;
/// The bits that count revoking threads.
const THREADS: u32 = EMPTY - 1;
/// Binary logarithm of the nanoseconds in a unit of the time in *brief hold*: about a millisecond.
const HOLD_TICK: u32 = 20;

/// A value of the bias. See the [module documentation](self).
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Bias(pub(super) u32);

impl Bias {
    /// *warming up*, with no reads.
    pub const NEW: Bias = Bias(0);
    /// *warming up*, with one read to go.
    pub const WARM: Bias = Bias(WARM_UP - 1);
    /// *on*.
    pub const ON: Bias = Bias(WARM_UP);
    /// *holding*.
    pub const HOLDING: Bias = Bias(HOLDING);
    /// *revoking 1*.
    pub const REVOKING: Bias = Bias(HOLDING + 1);

    /// *off*, with the policy's number.
    pub fn off(number: u32) -> Bias {
        Bias(number.clamp(FIRST, BRIEF_HOLD - 1))
    }

    /// *brief hold* since `start`, in nanoseconds.
    pub fn brief_hold(start: u64) -> Bias {
        Bias(BRIEF_HOLD + (start >> HOLD_TICK) as u32 % (HOLDING - BRIEF_HOLD))
    }

    /// Whether it is *on*.
    #[inline(always)]
    pub fn is_on(self) -> bool {
        self == Bias::ON
    }

    /// Whether it is *warming up*.
    #[inline(always)]
    pub fn is_warming_up(self) -> bool {
        self.0 < WARM_UP
    }

    /// Whether it is *brief hold*.
    pub fn is_brief_hold(self) -> bool {
        (BRIEF_HOLD..HOLDING).contains(&self.0)
    }

    /// Whether it is *holding* or *revoking*.
    #[inline(always)]
    pub fn is_revoking(self) -> bool {
        self.0 >= HOLDING
    }

    /// Whether a revoking thread is at work: *brief hold*, *holding* or *revoking*.
    pub fn is_being_revoked(self) -> bool {
        self.0 >= BRIEF_HOLD
    }

    /// Whether there can be readers in slots.
    pub fn may_have_slot_readers(self) -> bool {
        self.is_on() || self.is_being_revoked()
    }

    /// Whether there can be readers in slots for which no writer has waited yet.
    pub fn hides_readers(self) -> bool {
        self.may_have_slot_readers() && !(self.is_revoking() && self.0 & EMPTY != 0)
    }

    /// Units of about a millisecond since it was *brief hold*, modulo 2^16.
    pub fn hold_age(self, now: u64) -> u32 {
        ((now >> HOLD_TICK) as u32).wrapping_sub(self.0 - BRIEF_HOLD) % (HOLDING - BRIEF_HOLD)
    }

    /// With one more slow read: the next number of *warming up*, or `None` if the next state is *on*.
    pub fn warmer(self) -> Option<Bias> {
        (self.0 < WARM_UP - 1).then_some(Bias(self.0 + 1))
    }

    /// With one more revoking thread. `None`: no reader can be in a slot. The caller keeps writers out, so it is not
    /// *brief hold*.
    pub fn joined(self) -> Option<Bias> {
        match self {
            Bias::ON => Some(Bias::REVOKING),
            bias if !bias.is_revoking() || bias.0 & EMPTY != 0 => None,
            Bias(number) => Some(Bias(number + 1)),
        }
    }

    /// With one less revoking thread. `wrote`: the thread that leaves has seen the slots empty and holds the lock for
    /// writing. `off` is what the last one leaves behind if any of them wrote.
    pub fn left(self, wrote: bool, off: Bias) -> Bias {
        let number = (self.0 | if wrote { EMPTY } else { 0 }) - 1;
        if number & THREADS != 0 {
            Bias(number)
        } else if number & EMPTY != 0 {
            off
        } else {
            Bias::ON
        }
    }
}

/// The word that holds a [`Bias`].
#[repr(transparent)]
pub(super) struct BiasWord<M: Machine>(M::U32);

impl BiasWord<Native> {
    pub const fn new() -> Self {
        BiasWord(AtomicU32::new(Bias::NEW.0))
    }
}

impl<M: Machine> BiasWord<M> {
    pub fn new_in(bias: Bias) -> Self {
        BiasWord(M::U32::new(bias.0))
    }

    #[inline(always)]
    pub fn load(&self, order: Ordering) -> Bias {
        Bias(self.0.load(order))
    }

    pub fn store(&self, bias: Bias, order: Ordering) {
        self.0.store(bias.0, order);
    }

    pub fn swap(&self, bias: Bias, order: Ordering) {
        self.0.swap(bias.0, order);
    }

    /// `Err` is the value that was found.
    pub fn compare_exchange(&self, from: Bias, to: Bias, ok: Ordering) -> Result<(), Bias> {
        self.0.compare_exchange(from.0, to.0, ok, Ordering::Relaxed).map(drop).map_err(Bias)
    }

    /// The word itself, to wait at.
    pub fn word(&self) -> &M::U32 {
        &self.0
    }
}

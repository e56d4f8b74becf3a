//! How long a newcomer spins before it queues behind those who sleep.
//!
//! Where sections last for some microseconds it pays to spin for one: who queues sleeps, and the lock and a
//! processor are unused until somebody has woken up. It does not pay where the holder does something
//! else meanwhile, nor where sections are short and there is always somebody who comes just then, nor does it
//! pay twice: so one newcomer at a time is patient, and only while others like it have been lucky (as Falsafi et
//! al. do it in MUTEXEE, "Unlocking Energy", USENIX ATC 2016, section 5).
//!
//! What it has to know stands above the time in the lock's word that says since when the head is the head:
//!
//! | bits | meaning | written by |
//! |---|---|---|
//! | 0 to 25 | a time in microseconds | a new head |
//! | 26 to 28 | how much oftener than not patience was in vain | who has been patient |
//! | 29 to 31 | in which 16 microseconds (modulo 8) somebody began to be | who begins |
//!
//! These are hints, not written atomically. A write that is lost lets two be patient, or none for 16 microseconds, or
//! a head have its turn too soon.

use crate::machine::{Machine, Word, micros};
use core::sync::atomic::Ordering::Relaxed;

/// Bits of the word that are a time.
pub(crate) const TIME: u32 = 26;
const VAIN_BITS: u32 = 7;
/// Where patience has been in vain so many times more often than not, one newcomer in 2^n still tries.
const MOST_VAIN: u32 = 4;
const BEGAN: u32 = 29;
/// Binary logarithm of the microseconds for which nobody else begins.
const TURN: u32 = 4;

/// Looks at the lock: of one that gives up at once, of one that does not, and of one that is patient.
const HASTY: u32 = 4;
const SHORT: u32 = 24;
const PATIENT: u32 = 96;
/// Spin hints between two looks, at first and at most.
const PAUSE: (u32, u32) = (1, 8);

/// A newcomer that looks at a lock.
pub(crate) struct Newcomer<'a, M: Machine> {
    word: &'a M::U32,
    looks: u32,
    limit: u32,
    pause: u32,
    learns: bool,
}

impl<'a, M: Machine> Newcomer<'a, M> {
    /// Nothing is learnt if the bits in `word` are taken for something else.
    pub fn new(word: &'a M::U32, learns: bool) -> Self {
        let vain = if learns { word.load(Relaxed) >> TIME & VAIN_BITS } else { 0 };
        let hasty = vain > 0 && micros::<M>() & ((1 << vain) - 1) != 0;
        let limit = if hasty { HASTY } else { SHORT };
        Newcomer { word, looks: 0, limit, pause: PAUSE.0, learns: learns && !hasty }
    }

    /// Waits for a while before the next look, if there is to be one, after `held` in a row that found the lock
    /// held.
    pub fn waits(&mut self, held: u32) -> bool {
        M::pause(self.pause);
        self.pause = (self.pause * 2).min(PAUSE.1);
        self.looks += 1;
        if self.looks == SHORT && self.learns && self.is_worth_it(held) && self.begin() {
            self.limit = PATIENT;
        }
        if self.looks < M::patience(self.limit) {
            return true;
        }
        if self.limit == PATIENT {
            self.learn(1);
        }
        false
    }

    /// It has the lock.
    pub fn succeeded(&self) {
        if self.looks > HASTY && self.learns {
            self.learn(-1);
        }
    }

    /// Sections are long; or else who comes from the same NUMA node as the last holder, mostly that one, should be
    /// faster.
    fn is_worth_it(&self, held: u32) -> bool {
        held >= SHORT || M::numa_nodes() == 1
    }

    /// Whether nobody else is patient.
    fn begin(&self) -> bool {
        let word = self.word.load(Relaxed);
        let turn = (micros::<M>() >> TURN) % 8;
        if word >> BEGAN == turn {
            return false;
        }
        self.word.store(word & ((1 << BEGAN) - 1) | turn << BEGAN, Relaxed);
        true
    }

    /// Patience was in vain, or was not. Somebody else may begin.
    fn learn(&self, vain: i32) {
        let word = self.word.load(Relaxed);
        let vain = (word >> TIME & VAIN_BITS).saturating_add_signed(vain).min(MOST_VAIN);
        let elsewhen = word >> BEGAN ^ 4;
        self.word.store(word & ((1 << TIME) - 1) | vain << TIME | elsewhen << BEGAN, Relaxed);
    }
}

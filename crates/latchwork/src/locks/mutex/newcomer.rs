//! How long a newcomer spins before it queues, and the word in which newcomers keep what they have learnt.
//!
//! Source: MUTEXEE (Falsafi et al., "Unlocking Energy", USENIX ATC 2016, section 5) spins less where spinning has failed.
//!
//! A newcomer that queues mostly parks. The lock and a processor are unused until it runs again, so where sections last for
//! some microseconds, it pays to spin for one. It does not pay where holders give their processor away in the section, where
//! sections are short and another thread always comes first, or for two newcomers at a time:
//!
//! | spin | lasts | which newcomers |
//! |---|---|---|
//! | brief | 4 looks | if long spins have failed, all but one in 2^FAILURES |
//! | normal | 24 looks, 3 us | the others |
//! | long | 96 looks, 13 us | one at a time of those whose normal spin has found the lock held at every look. (On a machine with one NUMA node, at any look; with several, neighbours of the last holder should be faster) |
//!
//! | field of `since` | meaning | written by |
//! |---|---|---|
//! | TIME | when the head became the head, or a free lock was offered to it, in microseconds | a new or leaving head; the thread that sets OFFERED |
//! | FAILURES | how much more often long spins failed than spins of over 4 looks succeeded, at most 4 | a newcomer that is done |
//! | SLOT | the 16 microseconds (modulo 8) in which the last long spin began | the newcomer that begins it |
//!
//! These are hints, written without atomic read-modify-writes. If a write is lost, two newcomers spin for long at once, or
//! none for 16 microseconds, or a head has its turn too soon. Where stealing is local, GROUP (the group of the last holder)
//! takes the place of the newcomers' fields, and newcomers learn nothing.

use crate::machine::{Machine, Word, micros};
use core::sync::atomic::Ordering::Relaxed;

/// Looks at the lock of a brief, a normal and a long spin.
const BRIEF: u32 = 4;
const NORMAL: u32 = 24;
const LONG: u32 = 96;
/// Spin hints between two looks, at first and at most: each look takes the cache line away from the holder.
const PAUSE: (u32, u32) = (1, 8);
/// Where long spins keep failing, one newcomer in 2^4 still tries one.
const MOST_FAILURES: u32 = 4;
/// Binary logarithm of the microseconds of a slot: about as long as a long spin.
const SLOT_MICROS: u32 = 4;

/// A value of a lock's word `since`. See the [module documentation](self).
#[derive(Copy, Clone)]
pub(super) struct Since(u32);

/// The first bit of a field, and how many bits it has.
type Field = (u32, u32);
const TIME: Field = (0, 26);
const FAILURES: Field = (26, 3);
const SLOT: Field = (29, 3);
const GROUP: Field = (26, 6);

impl Since {
    pub fn load<M: Machine>(word: &M::U32) -> Self {
        Since(word.load(Relaxed))
    }

    /// Stores this value with the present time.
    pub fn store_now<M: Machine>(self, word: &M::U32) {
        word.store(self.with(TIME, micros::<M>()).0, Relaxed);
    }

    /// Microseconds since the time in `word`.
    pub fn elapsed<M: Machine>(word: &M::U32) -> u32 {
        Since(micros::<M>().wrapping_sub(word.load(Relaxed))).get(TIME)
    }

    /// Of a lock that is in the group of `key`.
    pub fn in_group(key: u32) -> Self {
        Since(0).with(GROUP, key)
    }

    pub fn is_in_group(self, key: u32) -> bool {
        self.get(GROUP) == Self::in_group(key).get(GROUP)
    }

    fn get(self, (first, bits): Field) -> u32 {
        self.0 >> first & ((1 << bits) - 1)
    }

    fn with(self, (first, bits): Field, value: u32) -> Self {
        let mask = ((1 << bits) - 1) << first;
        Since(self.0 & !mask | value << first & mask)
    }
}

/// A newcomer that looks at a lock.
pub(super) struct Newcomer<'a, M: Machine> {
    since: &'a M::U32,
    looks: u32,
    limit: u32,
    pause: u32,
    learns: bool,
}

impl<'a, M: Machine> Newcomer<'a, M> {
    /// `learns`: the upper fields of `since` are the newcomers'.
    pub fn new(since: &'a M::U32, learns: bool) -> Self {
        let failures = if learns { Since::load::<M>(since).get(FAILURES) } else { 0 };
        let brief = failures > 0 && micros::<M>() & ((1 << failures) - 1) != 0;
        let limit = if brief { BRIEF } else { NORMAL };
        Newcomer { since, looks: 0, limit, pause: PAUSE.0, learns: learns && !brief }
    }

    /// Pauses, and returns whether there is to be another look; otherwise the caller queues. The last `held` looks have
    /// found the lock held.
    pub fn waits(&mut self, held: u32) -> bool {
        M::pause(self.pause);
        self.pause = (self.pause * 2).min(PAUSE.1);
        self.looks += 1;
        let pays = || held >= NORMAL || M::numa_nodes() == 1;
        if self.looks == NORMAL && self.learns && pays() && self.begin() {
            self.limit = LONG;
        }
        if self.looks < M::patience(self.limit) {
            return true;
        }
        if self.limit == LONG {
            self.learn(1);
        }
        false
    }

    /// The caller has the lock.
    pub fn succeeded(&self) {
        if self.looks > BRIEF && self.learns {
            self.learn(-1);
        }
    }

    /// Begins a long spin, unless another newcomer has begun one in this slot.
    fn begin(&self) -> bool {
        let since = Since::load::<M>(self.since);
        let begun = since.with(SLOT, micros::<M>() >> SLOT_MICROS);
        let is_free = begun.get(SLOT) != since.get(SLOT);
        if is_free {
            self.since.store(begun.0, Relaxed);
        }
        is_free
    }

    /// A spin has failed (1) or succeeded (-1). Another newcomer may begin a long one at once: SLOT is moved away.
    fn learn(&self, failed: i32) {
        let since = Since::load::<M>(self.since);
        let failures = since.get(FAILURES).saturating_add_signed(failed).min(MOST_FAILURES);
        self.since.store(since.with(FAILURES, failures).with(SLOT, since.get(SLOT) ^ 4).0, Relaxed);
    }
}

//! Counting semaphore whose waiters spin, then sleep.
//!
//! Source: Dijkstra 1965 (the semaphore); as a futex word, glibc's `sem_t` since 2.21 (T. Riegel), without its count of
//! waiters.
//!
//! The word is the value, and one bit, SLEEPERS, that says that some waiters may be asleep. A release that finds the bit
//! clears it and wakes one sleeper. The woken waiter takes its unit and sets the bit again, because others may sleep too. It
//! wakes the next one if there are units left.
//!
//! | the word | becomes | moved by | pairs with |
//! |---|---|---|---|
//! | value n > 0 | n - 1 | a thread that takes a unit; with SLEEPERS if it has slept | (A) acquire, (B) release |
//! | value n | n + units, without SLEEPERS | a release; it wakes a sleeper if the bit was set | (A) release |
//! | value 0 | SLEEPERS too | a waiter before it sleeps, or that gives up after it has slept | none; the futex compares the word |
//!
//! *Whether to spin.* A waiter sleeps at once until spins are known to help: one waiter in [`PROBE`] spins for ten microseconds
//! before it sleeps. If it gets a unit, the next waiter spins too, and so on, as long as three spins of four succeed. So a semaphore
//! that serves a few waits, as each wait for a condition in Python makes one, costs no spin at all: on one processor, where no
//! spin succeeds, such spins cost half of the throughput of Python's queue (`docs/condvars.md`). There
//! ([`has_one_processor`](Machine::has_one_processor)) no waiter spins at all: the one in `PROBE` cost `interpreter` 3% of its
//! throughput. Where each unit goes to a thread that sleeps (tokens that 64 threads pass round), waiters that always spin cost a third of
//! the throughput, and three times the processor time.
//!
//! Size: 8 bytes, none per waiter or holder.
//! Atomics per uncontended acquire and release: 2 (compare-and-exchange).
//! Fairness: none. A waiter may be passed over for ever.
//! Suspension: blocks. A release may wake a suspended waiter, and no other.
//!
//! Like a mutex, a semaphore may be destroyed by the thread that has acquired what the last release gave, or that sees that
//! another thread has: neither touches the semaphore after that.

use crate::locks::mutex::{Info, RawMutex, Suspension};
use crate::machine::{Deadline, Machine, Native, Word};
use core::sync::atomic::{AtomicU32, Ordering::*};

const SLEEPERS: u32 = 1;
const UNIT: u32 = 2;

/// Looks at the word before a waiter sleeps, and nanoseconds before each: about a transfer of a cache line; together about what a
/// sleep and a wakeup cost. With less, the one waiter in [`PROBE`] gives up before the thread that it waits for is awake, and
/// both sleep at each step from then on. On a Zen 3, two threads that pass a unit to and fro and work for 3 us in between pass it
/// 290,000 times a second (68,000 to 312,000 in five rounds); with 64 looks and with 4 pauses before each, 130,000 to 250,000;
/// without spins, 90,000.
const LOOKS: u32 = 160;
const LOOK: u32 = 60;

/// Waits without a spin before one waiter spins. That spin takes a hundredth of the time of their sleeps and wakeups.
const PROBE: u32 = 128;
/// What a failed spin takes from the trust in spins, to which a successful one adds 1. A failed spin lasts ten microseconds, a
/// successful one mostly less than half of that. A sleep and a wakeup cost as much, so spins pay if three of four succeed.
const FAILURE: u32 = 3;
/// The most trust. Some failures in a row do not end all spins, because a preempted holder makes the spins of all waiters fail.
const MOST: u32 = 3 * FAILURE;

/// A counting semaphore, on any machine. See the [module documentation](self).
#[repr(C)]
pub struct RawSemaphore<M: Machine> {
    word: M::U32,
    /// Up to PROBE: the waits without a spin. What exceeds that is the trust in spins, up to MOST. Waiters update it by a load and
    /// a store: a lost update only delays a change.
    trust: M::U32,
}

impl Default for RawSemaphore<Native> {
    fn default() -> Self {
        Self::new(0)
    }
}

/// The value would have exceeded [`RawSemaphore::MAX`], and was left as it is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct Overflow;

impl core::fmt::Display for Overflow {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "the semaphore's value cannot exceed {}", RawSemaphore::<Native>::MAX)
    }
}

impl core::error::Error for Overflow {}

/// What an acquisition has come to; see [`RawSemaphore::step`].
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It has a unit.
    Taken,
    /// It was late, and has none.
    GivenUp,
    /// It has to sleep while the word has this value.
    Sleep(u32),
}

impl RawSemaphore<Native> {
    /// A semaphore with `value` units.
    ///
    /// # Panics
    ///
    /// If `value` exceeds [`MAX`](Self::MAX).
    pub const fn new(value: u32) -> Self {
        assert!(value <= Self::MAX, "the value exceeds Semaphore::MAX");
        RawSemaphore { word: AtomicU32::new(value * UNIT), trust: AtomicU32::new(0) }
    }
}

impl<M: Machine> RawSemaphore<M> {
    /// The largest value (`SEM_VALUE_MAX`).
    pub const MAX: u32 = i32::MAX as u32;

    /// A semaphore with `value` units, which must not exceed [`MAX`](Self::MAX), on any machine.
    pub fn new_in(value: u32) -> Self {
        assert!(value <= Self::MAX, "the value exceeds Semaphore::MAX");
        RawSemaphore { word: M::U32::new(value * UNIT), trust: M::U32::new(0) }
    }

    /// The value, a moment ago. If it is 0, the threads that have taken the units no longer use the semaphore.
    pub fn value(&self) -> u32 {
        self.word.load(Acquire) / UNIT // (B) pairs with `take`
    }

    /// Takes a unit, and waits for as long as that takes.
    #[inline]
    pub fn acquire(&self) {
        if !self.try_acquire() {
            self.acquire_slow(None);
        }
    }

    /// Takes a unit if there is one.
    #[inline]
    pub fn try_acquire(&self) -> bool {
        self.take(0)
    }

    /// Takes a unit unless the deadline passes first.
    pub fn acquire_until(&self, deadline: Deadline) -> bool {
        self.try_acquire() || self.acquire_slow(Some(deadline))
    }

    /// Takes a unit if there is one. A waiter that has slept sets SLEEPERS for the others.
    #[inline]
    fn take(&self, slept: u32) -> bool {
        let mut word = self.word.load(Relaxed);
        while word >= UNIT {
            let left = (word - UNIT) | slept;
            // (A) pairs with the exchange in `release_many`. (B) pairs with `value`: it is the caller's last access.
            match self.word.compare_exchange(word, left, AcqRel, Relaxed) {
                Ok(_) => {
                    if slept != 0 && left >= UNIT {
                        // The releases that brought these units found no bit: the one that woke the caller had
                        // cleared it. By now the memory may be gone: only its address is used.
                        M::wake(&raw const self.word, 1);
                    }
                    return true;
                }
                Err(now) => word = now,
            }
        }
        false
    }

    #[cold]
    fn acquire_slow(&self, deadline: Option<Deadline>) -> bool {
        if self.spin() {
            return true;
        }
        let (mut slept, mut late) = (false, false);
        loop {
            match self.step(slept, late) {
                Step::Taken => return true,
                Step::GivenUp => return false,
                Step::Sleep(while_it_is) => {
                    late = deadline.is_some_and(|deadline| deadline.passed::<M>());
                    if !late {
                        M::wait(&self.word, while_it_is, deadline);
                        slept = true;
                    }
                }
            }
        }
    }

    /// Waits for a unit for some microseconds, if that is likely to succeed. Returns whether the caller has a unit.
    pub fn spin(&self) -> bool {
        let before = self.trust.load(Relaxed);
        if before < M::patience(PROBE) {
            self.trust.store(before + 1, Relaxed);
            return false;
        }
        if M::has_one_processor() {
            return false;
        }
        let note = |now| {
            if now != before {
                self.trust.store(now, Relaxed);
            }
        };
        let taken = (0..M::patience(LOOKS)).any(|_| {
            M::pause(M::hints(LOOK));
            if self.value() == 0 {
                return false;
            }
            // Now: a thread that sees that the unit is taken may destroy the semaphore.
            note((before + 1).min(M::patience(PROBE) + MOST));
            self.take(0)
        });
        if !taken {
            let left = before.saturating_sub(FAILURE);
            note(if left < M::patience(PROBE) { 0 } else { left });
        }
        taken
    }

    /// One step of an acquisition that waits, for a caller that sleeps in a way of its own (the preloaded library, where a
    /// sleeping thread may be interrupted and cancelled). `slept`: the caller has slept on [`word`](Self::word). `late`:
    /// this is the last step; a sleeper that gives up passes on a wake that it may have got.
    pub fn step(&self, slept: bool, late: bool) -> Step {
        loop {
            // Also if `late`: a unit that is there is never reported as a timeout.
            if self.take(if slept { SLEEPERS } else { 0 }) {
                return Step::Taken;
            }
            let word = self.word.load(Relaxed);
            // Also when the caller gives up: the release that woke it may have cleared the bit of other sleepers.
            if word >= UNIT
                || word & SLEEPERS == 0
                    && (!late || slept)
                    && self.word.compare_exchange(word, word | SLEEPERS, Relaxed, Relaxed).is_err()
            {
                continue;
            }
            return if late { Step::GivenUp } else { Step::Sleep(SLEEPERS) };
        }
    }

    /// What a waiter sleeps on.
    pub fn word(&self) -> &M::U32 {
        &self.word
    }

    /// The caller has slept and gives up without [`step`](Self::step), because its thread is being cancelled. A wake that it
    /// may have got goes to another waiter.
    pub fn forsake(&self) {
        loop {
            let word = self.word.load(Relaxed);
            if word >= UNIT {
                M::wake(&raw const self.word, 1);
                return;
            }
            if word & SLEEPERS != 0
                || self.word.compare_exchange(word, word | SLEEPERS, Relaxed, Relaxed).is_ok()
            {
                return;
            }
        }
    }

    /// Gives a unit.
    #[inline]
    pub fn release(&self) -> Result<(), Overflow> {
        self.release_many(1)
    }

    /// Gives `units` units.
    pub fn release_many(&self, units: u32) -> Result<(), Overflow> {
        let address = &raw const self.word;
        let mut word = self.word.load(Relaxed);
        loop {
            let value =
                (word / UNIT).checked_add(units).filter(|value| *value <= Self::MAX).ok_or(Overflow)?;
            let asleep = word & SLEEPERS != 0 && value > 0;
            let new = (value * UNIT) | if asleep { 0 } else { word & SLEEPERS };
            // (A) what comes before happens before what the threads do that take the units.
            match self.word.compare_exchange(word, new, Release, Relaxed) {
                Ok(_) => {
                    if asleep {
                        // The semaphore may be gone by now: only its address is used.
                        M::wake(address, 1);
                    }
                    return Ok(());
                }
                Err(now) => word = now,
            }
        }
    }
}

/// A semaphore with one unit, as a mutex: to be measured and tested as one. (It is not in the registry, because a
/// semaphore of zero bytes has no unit, so it cannot take the place of another lock.)
pub struct Unit<M: Machine>(RawSemaphore<M>);

// SAFETY: there is one unit, and (A) orders a release before the acquisitions that follow. (All-zero bytes are no unlocked
// one, but only `new_in` makes this type.)
unsafe impl<M: Machine> RawMutex for Unit<M> {
    type Machine = M;
    type Token = ();
    const INFO: Info = Info {
        name: "semaphore",
        summary: "counting semaphore: waiters spin, then sleep",
        atomics: 2,
        waiter_bytes: 0,
        holder_bytes: 0,
        fairness: "none",
        blocking: true,
        suspension: Suspension::Blocks,
        source: "Dijkstra 1965; glibc 2.21 (futex)",
    };

    fn new_in() -> Self {
        Unit(RawSemaphore::new_in(1))
    }
    fn lock(&self) {
        self.0.acquire();
    }
    fn try_lock(&self) -> Option<()> {
        self.0.try_acquire().then_some(())
    }
    fn lock_until(&self, deadline: Deadline) -> Option<()> {
        self.0.acquire_until(deadline).then_some(())
    }
    unsafe fn unlock(&self, (): ()) {
        self.0.release().expect("one unit is not too many");
    }
    fn is_locked(&self) -> bool {
        self.0.value() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicU32;

    type Semaphore = RawSemaphore<Native>;

    #[test]
    fn never_more_inside_than_units() {
        let (semaphore, inside, most) = (Semaphore::new(3), AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for number in 0..8 {
                let (semaphore, inside, most) = (&semaphore, &inside, &most);
                scope.spawn(move || {
                    for round in 0..2000 {
                        let timed = (number + round) % 4 == 0;
                        if !timed {
                            semaphore.acquire();
                        } else if !semaphore.acquire_until(Deadline::after::<Native>(20_000)) {
                            continue;
                        }
                        most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                        if round % 16 == 0 {
                            std::thread::yield_now();
                        }
                        inside.fetch_sub(1, SeqCst);
                        semaphore.release().unwrap();
                    }
                });
            }
        });
        assert!((1..=3).contains(&most.load(SeqCst)));
        assert_eq!(semaphore.value(), 3);
    }

    #[test]
    fn waiters_spin_where_that_has_succeeded() {
        if Native::has_one_processor() {
            return; // none spins
        }
        let semaphore = Semaphore::new(1);
        let waits_without_a_spin = || {
            for _ in 0..PROBE {
                assert!(!semaphore.spin(), "a waiter spins although that has not succeeded");
            }
        };
        waits_without_a_spin();
        assert!(semaphore.spin(), "one waiter in `PROBE` spins");
        semaphore.release().unwrap();
        assert!(semaphore.spin(), "a waiter does not spin although the spin before succeeded");
        assert!(!semaphore.spin(), "there is no unit");
        semaphore.release().unwrap();
        waits_without_a_spin(); // Two spins that succeed do not make up for one that fails.
        for _ in 0..2 * MOST {
            assert!(semaphore.spin(), "a waiter does not spin although all spins succeeded");
            semaphore.release().unwrap();
        }
        assert!(semaphore.try_acquire());
        (0..MOST / FAILURE).for_each(|_| assert!(!semaphore.spin(), "there is no unit"));
        semaphore.release().unwrap();
        assert!(semaphore.spin(), "some failures have ended all spins");
        assert!(!semaphore.spin(), "there is no unit");
        semaphore.release().unwrap();
        waits_without_a_spin(); // So many failures have, however many spins succeeded before.
    }

    /// A waiter that is cancelled leaves a note for others that may sleep: it may have got the wake for them.
    #[test]
    fn a_cancelled_waiter_leaves_a_note() {
        let semaphore = Semaphore::new(0);
        semaphore.forsake();
        assert_eq!(semaphore.word().load(Relaxed), SLEEPERS);
    }

    /// A waiter that is woken for no unit would only go to sleep again.
    #[test]
    fn no_units_change_nothing() {
        let semaphore = Semaphore::new(0);
        assert_eq!(semaphore.step(false, false), Step::Sleep(SLEEPERS));
        assert_eq!(semaphore.release_many(0), Ok(()));
        assert_eq!(semaphore.word().load(Relaxed), SLEEPERS, "a waiter is woken for no unit");
        let full = Semaphore::new(Semaphore::MAX);
        assert_eq!(full.release_many(0), Ok(()));
        assert_eq!(full.value(), Semaphore::MAX);
    }

    /// A release that wakes a sleeper leaves the note of others to it. Otherwise each release from then on would be a system call.
    #[test]
    fn a_release_clears_the_note() {
        let semaphore = Semaphore::new(0);
        assert_eq!(semaphore.step(false, false), Step::Sleep(SLEEPERS));
        semaphore.release().unwrap();
        assert_eq!(semaphore.word().load(Relaxed), UNIT);
    }

    #[test]
    fn the_last_step_takes_a_unit_or_leaves_a_note() {
        for slept in [false, true] {
            let semaphore = Semaphore::new(1);
            assert_eq!(semaphore.step(slept, true), Step::Taken);
            // Other threads may sleep where the caller has slept.
            assert_eq!(semaphore.word().load(Relaxed), if slept { SLEEPERS } else { 0 });
            let semaphore = Semaphore::new(0);
            assert_eq!(semaphore.step(slept, true), Step::GivenUp);
            assert_eq!(semaphore.word().load(Relaxed), if slept { SLEEPERS } else { 0 });
        }
    }

    #[test]
    fn the_value_has_a_bound() {
        let semaphore = Semaphore::new(Semaphore::MAX - 1);
        assert_eq!(semaphore.release_many(2), Err(Overflow));
        assert_eq!(semaphore.release(), Ok(()));
        assert_eq!(semaphore.release(), Err(Overflow));
        assert_eq!(semaphore.value(), Semaphore::MAX);
        assert!(semaphore.try_acquire());
    }
}

//! One thread of a workload: its random numbers, its counts, and its waits.

use crate::lock::{Condvar, Lock};
use crate::stage::{Phase, Stage};
use hdrhistogram::Histogram;
use latchwork::machine::Machine;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// The longest wait that is told from longer ones: an hour.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Starts are spread over this time: threads that start in step keep the order of their start in
/// every queue that is first in, first out.
const SPREAD_NS: u64 = 10_000;
/// Samples are taken about this often ...
const SAMPLE_EVERY_NS: u64 = 5_000;
/// ... but at most after so many acquisitions.
const LONGEST_GAP: u64 = 256;

/// Failed tries before a thread offers its processor to others.
const TRIES_BEFORE_YIELD: u64 = 64;

/// An empty histogram of waits in nanoseconds.
pub fn waits() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("valid bounds")
}

/// Decides which acquisitions are timed.
///
/// Timing one takes two looks at the clock, tens of nanoseconds, which is more than a lock costs.
/// So one in `gap` is timed, where the gap follows the pace of the thread: doubled while samples
/// come faster than one in [`SAMPLE_EVERY_NS`], halved while they come much slower, 1 for slow
/// workloads. Each sample counts for all acquisitions since the sample before, so that slow phases are
/// not over-represented. Gaps vary by half, so that they do not fall in step with the workload.
struct Sampler {
    gap: u64,
    /// Acquisitions until the next sample.
    left: u64,
    /// What `left` was after the last sample.
    stands_for: u64,
    /// When the last sample was taken.
    last: u64,
}

/// What a thread did.
pub(crate) struct Tally {
    pub counted: u64,
    pub total: u64,
    pub apart: bool,
    pub waits: Histogram<u64>,
    pub failure: Option<String>,
}

/// Holds a lock; dropping it tells the stage and releases the lock.
pub struct Section<S: Stage, G> {
    /// Dropped first: the stage is told before the lock is released.
    mark: Mark<S>,
    held: G,
}

/// Tells the stage when it is dropped.
struct Mark<S: Stage> {
    /// The lock's number, if the stage is told.
    number: Option<usize>,
    stage: PhantomData<S>,
}

impl<S: Stage, G> Deref for Section<S, G> {
    type Target = G;
    #[inline]
    fn deref(&self) -> &G {
        &self.held
    }
}

impl<S: Stage, G> DerefMut for Section<S, G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G {
        &mut self.held
    }
}

impl<S: Stage> Drop for Mark<S> {
    #[inline]
    fn drop(&mut self) {
        if let Some(number) = self.number {
            S::released(number);
        }
    }
}

/// One thread of a workload.
pub struct Thread<'a, S: Stage> {
    stage: &'a S,
    /// From 0.
    pub index: usize,
    random: Xoshiro256PlusPlus,
    phase: Phase,
    pending: u64,
    sampler: Sampler,
    tally: Tally,
}

impl<'a, S: Stage> Thread<'a, S> {
    /// Thread `index`, which has just begun to run.
    pub(crate) fn start(stage: &'a S, index: usize) -> Self {
        let seed = stage.seed() ^ (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut thread = Thread {
            stage,
            index,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            phase: Phase::WarmUp,
            pending: 0,
            sampler: Sampler { gap: 1, left: 1, stands_for: 1, last: 0 },
            tally: Tally { counted: 0, total: 0, apart: false, waits: waits(), failure: None },
        };
        let delay = thread.below(SPREAD_NS);
        S::work(delay);
        thread
    }

    pub(crate) fn finish(self) -> Tally {
        self.tally
    }

    /// Whether to go on. Operations that were [`done`](Thread::done) since the last call count if
    /// they were begun and done within the measured time.
    #[inline]
    pub fn running(&mut self) -> bool {
        let before = self.phase;
        self.phase = self.stage.phase();
        if before == Phase::Measuring && self.phase == Phase::Measuring {
            self.tally.counted += self.pending;
        }
        self.tally.total += self.pending;
        self.pending = 0;
        self.phase != Phase::Over
    }

    /// Counts an operation that is done.
    #[inline]
    pub fn done(&mut self) {
        self.pending += 1;
    }

    /// This thread has a role of its own: its operations count, but its share says nothing about
    /// fairness.
    pub fn apart(&mut self) {
        self.tally.apart = true;
    }

    /// The workload's data are not as they should be. The first report of a thread is kept.
    #[cold]
    pub fn fail(&mut self, what: impl FnOnce() -> String) {
        self.tally.failure.get_or_insert_with(what);
    }

    /// Computes for about `ns` nanoseconds.
    #[inline]
    pub fn work(&self, ns: u64) {
        if ns > 0 {
            S::work(ns);
        }
    }

    /// A random number below `limit`.
    #[inline]
    pub fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.random.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// A Bernoulli trial.
    #[inline]
    pub fn chance(&mut self, probability: f64) -> bool {
        // 53 bits, as many as a float between 0 and 1 holds.
        ((self.random.next_u64() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// Acquires for reading; some of the waits are measured.
    #[inline]
    pub fn read<'l, L: Lock<Machine = S::Machine>>(&mut self, lock: &'l L) -> Section<S, L::Read<'l>> {
        self.read_number(0, lock)
    }

    /// Same, for lock `number` of a workload that has several.
    #[inline]
    pub fn read_number<'l, L: Lock<Machine = S::Machine>>(
        &mut self,
        number: usize,
        lock: &'l L,
    ) -> Section<S, L::Read<'l>> {
        self.acquire((!L::SHARED).then_some(number), || lock.read())
    }

    /// Acquires for writing; some of the waits are measured.
    #[inline]
    pub fn write<'l, L: Lock<Machine = S::Machine>>(&mut self, lock: &'l L) -> Section<S, L::Write<'l>> {
        self.write_number(0, lock)
    }

    /// Same, for lock `number` of a workload that has several.
    #[inline]
    pub fn write_number<'l, L: Lock<Machine = S::Machine>>(
        &mut self,
        number: usize,
        lock: &'l L,
    ) -> Section<S, L::Write<'l>> {
        self.acquire(Some(number), || lock.write())
    }

    /// Has what `acquire` returns, lock `number` if that keeps all others out; some of the waits are measured.
    #[inline]
    pub fn acquire<G>(&mut self, number: Option<usize>, acquire: impl FnOnce() -> G) -> Section<S, G> {
        let since = self.before(number);
        let held = acquire();
        self.after(number, since, held)
    }

    /// Tries until it has the lock; adds the tries that failed to `failed`. The time that this takes
    /// is a wait like others.
    pub fn try_hard<'l, L: Lock<Machine = S::Machine>>(
        &mut self,
        lock: &'l L,
        failed: &mut u64,
    ) -> Section<S, L::Write<'l>> {
        let since = self.before(Some(0));
        let mut tries = 0u64;
        loop {
            if let Some(held) = lock.try_write() {
                *failed += tries;
                return self.after(Some(0), since, held);
            }
            tries += 1;
            // The holder may be waiting for our processor.
            if tries.is_multiple_of(TRIES_BEFORE_YIELD) {
                S::Machine::yield_now();
            }
        }
    }

    /// Releases the lock that the section holds, waits for a notification, and acquires the lock again. That is no
    /// wait for the lock, and is not timed.
    pub fn wait<'l, L: Lock<Machine = S::Machine>>(
        &mut self,
        lock: &'l L,
        section: Section<S, L::Write<'l>>,
        condvar: &L::Condvar,
    ) -> Section<S, L::Write<'l>> {
        let Section { mark, held } = section;
        let number = mark.number;
        drop(mark);
        let held = condvar.wait(lock, held);
        self.after(number, None, held)
    }

    #[inline]
    fn before(&mut self, mark: Option<usize>) -> Option<u64> {
        if let Some(number) = mark {
            S::acquiring(number);
        }
        if S::FREE_CLOCK {
            return Some(S::now());
        }
        self.sampler.left -= 1;
        (self.sampler.left == 0).then(S::now)
    }

    #[inline]
    fn after<G>(&mut self, mark: Option<usize>, since: Option<u64>, held: G) -> Section<S, G> {
        if let Some(number) = mark {
            S::acquired(number);
        }
        if let Some(since) = since {
            self.sample(since);
        }
        Section { mark: Mark { number: mark, stage: PhantomData }, held }
    }

    fn sample(&mut self, since: u64) {
        let waited = S::now().saturating_sub(since).saturating_sub(S::clock_ns());
        // A wait counts, whole, if it ends after the warm-up. A thread that began to wait in the warm-up and gets the lock
        // late, or only after the end, is the one that starved.
        let began_in_warm_up = self.phase == Phase::WarmUp;
        if !began_in_warm_up || self.stage.phase() != Phase::WarmUp {
            // The acquisitions that this sample would stand for were in the warm-up.
            let times = if began_in_warm_up { 1 } else { self.sampler.stands_for };
            // Clamped to the bounds, which is all that recording asks.
            self.tally.waits.record_n(waited.clamp(1, LONGEST_NS), times).expect("within bounds");
        }
        if S::FREE_CLOCK {
            return;
        }
        let sampler = &mut self.sampler;
        let pace = since.saturating_sub(sampler.last);
        sampler.last = since;
        if pace < SAMPLE_EVERY_NS {
            sampler.gap = (sampler.gap * 2).min(LONGEST_GAP);
        } else if pace > 4 * SAMPLE_EVERY_NS {
            sampler.gap = (sampler.gap / 2).max(1);
        }
        let gap = sampler.gap;
        // Between half and one and a half times the gap; on average the gap.
        let next = if gap == 1 { 1 } else { gap / 2 + 1 + self.below(gap) };
        self.sampler.left = next;
        self.sampler.stands_for = next;
    }
}

//! Policies: when a bias that was revoked comes back.
//!
//! [`word`](super::word) has the states of the bias; a policy chooses the number in the state *off*. A second word of the
//! lock is the policy's memory. It holds hints: slow readers, the slow reader that turns the bias on, and revoking threads
//! write it, with plain loads and stores or relaxed additions.

use super::word::FIRST;
use crate::machine::{Clock, Machine, Word, shared};
use core::sync::atomic::Ordering::Relaxed;

/// One in so many slow reads of a thread, of any lock, asks the policy. To read the clock costs more than the rest of a slow
/// read, and a count in the lock would cost an atomic instruction.
const SAMPLE: u32 = 16;

/// When a bias that was revoked comes back.
///
/// # Safety
///
/// [`revoked`](When::revoked) returns at least `FIRST`, and less than `REVOKING`.
pub unsafe trait When: Send + Sync + 'static {
    /// A revocation began at `start` and ended `now` (nanoseconds). Returns the number of the state *off*. May change the
    /// `memory`.
    fn revoked<M: Machine>(start: u64, now: u64, memory: &mut u32) -> u32;

    /// Whether the lock may be biased again, in the state *off* with the number `bias`. Asked at a sampled slow read.
    fn may_return<M: Machine>(bias: u32) -> bool;

    /// A slow read is sampled, and asks next. Returns what to add to the `memory`; the lock may be biased by then.
    fn sampled(_memory: u32) -> u32 {
        0
    }

    /// The bias has been turned on. Returns the new `memory`.
    fn returning<M: Machine>(memory: u32) -> u32 {
        memory
    }
}

/// Whether this slow read of the calling thread is sampled: it asks the policy.
#[inline]
pub(super) fn sampled<M: Machine>() -> bool {
    let Some(row) = shared::reader_row::<M>() else { return true };
    let reads = row.slow_reads.load(Relaxed).wrapping_add(1);
    row.slow_reads.store(reads, Relaxed);
    reads.is_multiple_of(M::patience(SAMPLE))
}

/// The slow-down guard (listing 1, `N` = 9). After a revocation that took time t, the bias stays off for N t, so revoking
/// costs writers at most one part in N + 1. The number in the state *off* is the time at which the bias may return, in
/// units of 4.096 microseconds (from the extended version's notes on one-word encodings).
///
/// Times wrap after 4.9 hours. Inhibition lasts 68 seconds at most, and a time farther ahead than that has passed. (A lock
/// without slow reads for so long that its time looks ahead again stays unbiased for another 68 seconds at worst.)
#[derive(Debug)]
pub struct Guard<const N: u64 = 9>;

/// Nanoseconds per unit of time, as a shift.
pub(super) const TICK: u32 = 12;
/// The longest inhibition in units of time: 68 seconds.
const LONGEST: u32 = 1 << 24;

// SAFETY: `inhibit` returns at least `FIRST`.
unsafe impl<const N: u64> When for Guard<N> {
    fn revoked<M: Machine>(start: u64, now: u64, _: &mut u32) -> u32 {
        inhibit(now, now.saturating_sub(start).saturating_mul(N))
    }

    fn may_return<M: Machine>(bias: u32) -> bool {
        expired(bias, M::now(Clock::Monotonic))
    }
}

/// The number that keeps the bias off for so many nanoseconds from `now`.
fn inhibit(now: u64, nanos: u64) -> u32 {
    let ticks = (nanos >> TICK).min(u64::from(LONGEST) - 1) as u32 + 1;
    // Lower numbers are other states. This costs 70 microseconds every five hours.
    ((now >> TICK) as u32).wrapping_add(ticks).max(FIRST)
}

/// Whether the time that the number `bias` stands for has come.
pub(super) fn expired(bias: u32, now: u64) -> bool {
    let ahead = bias.wrapping_sub((now >> TICK) as u32);
    ahead == 0 || ahead > LONGEST + FIRST
}

/// A Bernoulli trial (the authors' first policy, section 3): a slow read brings the bias back with probability 1 / `ODDS`,
/// independently of what revocations cost. It suits workloads with few writers.
#[derive(Debug)]
pub struct Bernoulli<const ODDS: u32 = 100>;

// SAFETY: it returns `FIRST`.
unsafe impl<const ODDS: u32> When for Bernoulli<ODDS> {
    fn revoked<M: Machine>(_: u64, _: u64, _: &mut u32) -> u32 {
        FIRST
    }

    fn may_return<M: Machine>(_: u32) -> bool {
        // The thread's own count of reads, hashed, is random enough for this choice.
        let reads = shared::reader_row::<M>().map_or(0, |row| row.slow_reads.load(Relaxed));
        let seed = u64::from(reads).wrapping_add((M::thread_id() as u64).rotate_left(32));
        super::table::mix32(seed).is_multiple_of(M::patience((ODDS / SAMPLE).max(1)))
    }
}

/// A cost model that also counts the benefit. The guard bounds the cost of a revocation, but it pays that cost for every
/// bias, also for one that served few readers. Here a bias that was not worth its revocation doubles the time until the
/// next bias, up to `STEPS` times in a row and to `AWAY`. A bias that was worth it brings that time back to the guard's.
///
/// A bias was worth its revocation if it has spared all readers together twice as much waiting as the revocation took.
/// Without bias, readers meet at the lock's cache line, and each needs the line for `MEETING`. Let `u` be the share of the
/// time in which the line is busy. Then `u * u / (1 - u)` readers wait for it at any moment (a queue with random arrivals and
/// service times). Of `n` processors at most `n - 1` wait, so `u` is bounded by `1 - 1 / n`. Fast reads are not counted,
/// because a count would cost them instructions; `u` is that of the slow reads before the bias.
///
/// A revocation that takes longer than looking at all slots can take has met a reader that does not run, or reads for long.
/// Threads that come meanwhile go to sleep and have to be woken, which costs more than they have waited (`SLEEPERS`). With
/// 16 threads on two processors and one write in 1000 that was a sixth of the throughput.
///
/// | memory | while the bias is off | while it is on |
/// |---|---|---|
/// | bits 0 to 3 | how often the time was doubled | the same |
/// | bits 4 to 15 | sampled slow reads since the revocation | bits 4 to 11: slow reads before, 64 in 1.05 ms |
/// | bits 16 to 31 | when it ended, in units of 16 microseconds | bits 12 to 31: since when, in microseconds |
///
/// These times wrap after a second, so a bias that lasted longer may be taken for a short one.
#[derive(Debug)]
pub struct Adaptive<const N: u64 = 9>;

/// Nanoseconds for which a slow reader needs the lock's cache line: two transfers between processors.
const MEETING: u64 = 150;
/// Doublings of the inhibition at most. Then revocations cost writers one part in 2305.
pub(super) const STEPS: u32 = 8;
/// By how much the duration of a long revocation is multiplied: the threads that went to sleep must be woken.
const SLEEPERS: u64 = 32;
/// Processors that are counted at most, so that `u` stays below 1.
const MOST_CPUS: u32 = 100;
/// Nanoseconds for which doubling keeps the bias off at most: half a second.
const AWAY: u64 = 1 << 29;
const STEPS_MASK: u32 = (1 << 4) - 1;

// In the memory while the bias is off: one sampled read, the bits that count them, the lowest bit of the time, and the time's
// unit as a shift of nanoseconds.
const ONE_READ: u32 = 1 << 4;
const READS: u32 = (1 << 16) - ONE_READ;
const ENDED: u32 = 16;
const ENDED_TICK: u32 = 14;

// In the memory while the bias is on: the lowest bit of the rate, the rate's unit and maximum, and the lowest bit and unit of
// the time.
const RATE: u32 = 4;
const RATE_UNIT: u64 = 64;
const MOST_RATE: u64 = 255;
/// The rate at which the line is busy all the time.
const BUSY: u64 = (1 << PERIOD) / MEETING / RATE_UNIT;
const BEGAN: u32 = 12;
const BEGAN_TICK: u32 = 10;
/// Binary logarithm of the nanoseconds in which the rate is counted: about a millisecond.
const PERIOD: u32 = 20;

// SAFETY: `inhibit` returns at least `FIRST`.
unsafe impl<const N: u64> When for Adaptive<N> {
    fn revoked<M: Machine>(start: u64, now: u64, memory: &mut u32) -> u32 {
        let took = now.saturating_sub(start);
        let cpus = u64::from(M::cpus().clamp(2, MOST_CPUS));
        let cost = took.saturating_mul(if took < longest_scan(cpus) { 1 } else { SLEEPERS });
        let began = *memory >> BEGAN;
        let lasted = u64::from(((start >> BEGAN_TICK) as u32).wrapping_sub(began) << BEGAN >> BEGAN);
        let share = |of: u64| of * (cpus - 1) / cpus;
        let rate = (u64::from(*memory >> RATE) & MOST_RATE).min(share(BUSY));
        let spared = share((lasted << BEGAN_TICK) * rate * rate / (BUSY * (BUSY - rate)));
        let steps = if spared < cost.saturating_mul(2) { ((*memory & STEPS_MASK) + 1).min(STEPS) } else { 0 };
        *memory = ((now >> ENDED_TICK) as u32) << ENDED | steps;
        let away = cost.saturating_mul(N << steps).min(AWAY);
        inhibit(now, away.max(took.saturating_mul(N)))
    }

    fn may_return<M: Machine>(bias: u32) -> bool {
        expired(bias, M::now(Clock::Monotonic))
    }

    fn sampled(memory: u32) -> u32 {
        // Half of the range is for threads that add one at the same time.
        if memory & READS > READS / 2 { 0 } else { ONE_READ }
    }

    fn returning<M: Machine>(memory: u32) -> u32 {
        Self::begin(memory, M::now(Clock::Monotonic))
    }
}

/// Nanoseconds that looking at the readers of so many processors takes at most, with a brief wait for one of them: 65
/// microseconds for two processors.
fn longest_scan(cpus: u64) -> u64 {
    (6 + cpus) << 13
}

impl<const N: u64> Adaptive<N> {
    /// The memory when the bias is turned on, `now`.
    pub(super) fn begin(memory: u32, now: u64) -> u32 {
        let ticks = ((now >> ENDED_TICK) as u32).wrapping_sub(memory >> ENDED) << ENDED >> ENDED;
        let reads = u64::from((memory & READS) / ONE_READ * SAMPLE);
        let rate = (reads << (PERIOD - ENDED_TICK)) / u64::from(ticks.max(1)) / RATE_UNIT;
        ((now >> BEGAN_TICK) as u32) << BEGAN | (rate.min(MOST_RATE) as u32) << RATE | memory & STEPS_MASK
    }
}

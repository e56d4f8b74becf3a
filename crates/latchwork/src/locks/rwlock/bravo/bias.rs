//! Policies: when a bias that was revoked comes back.
//!
//! [`word`](super::word) has the states of the bias; a policy chooses the number in the state *off*. A second word of the
//! lock counts slow reads in a row, for a policy that asks for it: sampled slow reads add to it, writers set it to 0. It is a
//! hint, so all that is relaxed.

use super::word::FIRST;
use crate::machine::{Clock, Machine, ReaderRow, Word, shared};
use core::sync::atomic::Ordering::Relaxed;

/// One in so many slow reads of a thread is *sampled*: it asks the policy of the lock that it reads, and stands for as many reads of
/// that lock, though the others may have been of other locks. A thread's first slow read is sampled. To read the
/// clock costs more than the rest of a slow read, and a count in the lock would cost an atomic instruction. A thread without a
/// row has no place to count in, so each of its slow reads asks, and stands for itself alone. It is a prime: of locks that a
/// thread reads in turn, all are sampled. (With 16, of two locks one never was.)
pub(super) const SAMPLE: u32 = 17;

/// When a bias that was revoked comes back.
///
/// # Safety
///
/// [`revoked`](When::revoked) returns at least `FIRST`. ([`Bias::off`](super::word::Bias::off) lowers a number that is too high.)
pub unsafe trait When: Send + Sync + 'static {
    /// Whether slow reads in a row are counted.
    const COUNTS: bool = false;

    /// A revocation began at `start` and ended `now` (nanoseconds). Returns the number of the state *off*.
    fn revoked<M: Machine>(start: u64, now: u64) -> u32;

    /// Whether the lock may be biased again, in the state *off* with the number `bias`. Asked by a slow read that stands for
    /// `reads` slow reads. With them there have been `in_a_row` without a write between, if they are counted.
    fn may_return<M: Machine>(bias: u32, in_a_row: u32, reads: u32) -> bool;
}

/// Counts a slow read of the calling thread, whose `row` this is. Returns whether the read is sampled; then
/// [`begin_sample`] must be called.
#[inline(always)]
pub(super) fn samples<M: Machine>(row: &ReaderRow<M>) -> bool {
    // A count down to zero needs no register beside the row's address.
    let left = (row.until_sample.load(Relaxed) as i32).wrapping_sub(1);
    row.until_sample.store(left as u32, Relaxed);
    left <= 0
}

/// The calling thread's next [`SAMPLE`] slow reads begin, if the last ones are over. Returns how many slow reads the present one
/// stands for.
pub(super) fn begin_sample<M: Machine>() -> u32 {
    let Some(row) = shared::reader_row::<M>() else { return 1 };
    if row.until_sample.load(Relaxed) as i32 <= 0 {
        row.until_sample.store(M::patience(SAMPLE), Relaxed);
    }
    SAMPLE
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
    fn revoked<M: Machine>(start: u64, now: u64) -> u32 {
        inhibit(now, now.saturating_sub(start).saturating_mul(N))
    }

    fn may_return<M: Machine>(bias: u32, _: u32, _: u32) -> bool {
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
    fn revoked<M: Machine>(_: u64, _: u64) -> u32 {
        FIRST
    }

    fn may_return<M: Machine>(_: u32, _: u32, reads: u32) -> bool {
        // The time, hashed, is random enough for this choice.
        let seed = M::now(Clock::Monotonic).wrapping_add((M::thread_id() as u64).rotate_left(32));
        super::table::mix32(seed).is_multiple_of(M::patience((ODDS / reads.max(1)).max(1)))
    }
}

/// The default: the bias comes back after reads in a row, without a write between them, that would have paid for its last
/// revocation.
///
/// A read without bias needs the lock's cache line twice, to come and to go. Where readers meet, each time costs a transfer.
/// With a bias a read needs neither, so the bias spares it `MEETING`. A revocation that takes time `t` costs as much as `t /
/// MEETING` such reads, and is paid for if so many reads come before the next write. That is not known in advance. The best
/// guess is what has come just now: after `N` times as many reads in a row the bias is on. Where writes are more frequent
/// there is never such a row, and no bias; where they are rarer, the row is short beside the reads with bias.
/// `N`: all threads wait for a revocation, and not all reads meet. With 6 or 18 in place of 9 the throughput is within
/// 4% on average (docs/readers.md).
///
/// `MOST`: a revocation counts as one of so many nanoseconds at most. What takes longer is not the bias' cost: a writer waits for a
/// reader in its section, or does not run. Without a bias it would wait for that as well, behind the underlying lock. (A
/// revocation that took a second once kept the bias off for ever, where a write comes with each 60 million reads.) The fence and a look
/// at a thousand rows take less.
///
/// The number in the state *off* is how many slow reads in a row that takes, a multiple of `SAMPLE`.
#[derive(Debug)]
pub struct Adaptive<const N: u64 = 9, const MOST: u64 = 100_000>;

/// Nanoseconds that a bias spares a read where readers meet: two transfers of a cache line between processors.
const MEETING: u64 = 150;
/// Samples in a row that are asked for at most.
const MOST_SAMPLES: u64 = 1 << 24;

// SAFETY: the number is at least `FIRST`, and `MOST_SAMPLES` times `SAMPLE`, which is less than 2^29, above it at most.
unsafe impl<const N: u64, const MOST: u64> When for Adaptive<N, MOST> {
    const COUNTS: bool = true;

    fn revoked<M: Machine>(start: u64, now: u64) -> u32 {
        let reads = now.saturating_sub(start).min(MOST).saturating_mul(N) / MEETING;
        FIRST + (reads / u64::from(SAMPLE)).clamp(1, MOST_SAMPLES) as u32 * SAMPLE
    }

    fn may_return<M: Machine>(bias: u32, in_a_row: u32, _: u32) -> bool {
        in_a_row >= bias.saturating_sub(FIRST)
    }
}

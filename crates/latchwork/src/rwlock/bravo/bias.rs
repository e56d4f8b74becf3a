//! When a lock is biased.
//!
//! State of the bias, one 32-bit word:
//!
//! | value | meaning | who leaves it |
//! |---|---|---|
//! | 0 to WARM_UP - 1 | off; so many slow reads since the lock was made | each slow reader, to the next; the last to BIASED |
//! | BIASED | on | a writer, to REVOKING, holding the underlying lock for writing or about to |
//! | REVOKING | off; that writer waits for readers in their slots | it alone: to what the policy says, or to BIASED if it gives up |
//! | anything else: a value of the policy's | off | a slow reader, to BIASED, when the policy says so |
//!
//! A second word is the policy's memory. It is written by who sets the bias, holding the underlying lock for
//! reading, and who revokes it, holding that for writing.
//!
//! Only a holder of the underlying read lock sets the bias, so no writer is past its revocation
//! when it appears. (A writer that gives up puts it back, from REVOKING, for which others wait.) All slow readers change the word by compare-and-exchange: a plain store of the
//! next count could undo the bias that another has just set, with readers in the table already.
//!
//! A lock starts unbiased and gets its first bias after WARM_UP slow reads. Programs make locks that
//! are read once or twice in their lives (OpenSSL, tens of thousands a second), and a first write that
//! scans a table would undo the "primum non nocere".

use crate::machine::{Clock, Machine, Word};
use core::sync::atomic::Ordering::Relaxed;

/// Slow reads before a new lock is biased for the first time (`tests/loom` does as many).
pub(super) const WARM_UP: u32 = 16;
/// The bias is on.
pub(super) const BIASED: u32 = WARM_UP;
/// A writer revokes it.
pub(super) const REVOKING: u32 = u32::MAX;
/// The first value that is the policy's. The last one comes before [`REVOKING`].
pub(super) const FIRST: u32 = BIASED + 1;

/// A thread's slow reads, of whatever lock, of which one asks the policy: the clock costs more than
/// the rest of a slow read, and a count in the lock costs an atomic instruction.
const SAMPLE: u32 = 16;

/// When a bias that was revoked comes back.
pub trait When: Send + Sync + 'static {
    /// A revocation began at `start` and ended `now` (nanoseconds). What the word then holds: at least
    /// `FIRST`. May change the `memory`.
    fn revoked(start: u64, now: u64, memory: &mut u32) -> u32;

    /// Whether the lock may be biased again. Asked at one in so many slow reads.
    fn may_return<M: Machine>(bias: u32) -> bool;

    /// The bias is about to be set. What to remember, having remembered `memory`.
    fn returning<M: Machine>(memory: u32) -> u32 {
        memory
    }
}

/// Whether this slow read of the calling thread is one to ask at.
#[inline]
pub(super) fn sampled<M: Machine>() -> bool {
    let Some(row) = M::reader_row() else { return true };
    let reads = row.slow_reads.load(Relaxed).wrapping_add(1);
    row.slow_reads.store(reads, Relaxed);
    reads.is_multiple_of(M::patience(SAMPLE))
}

/// The slow-down guard (listing 1, `N` = 9): after a revocation that took time t, the bias stays off
/// for N t, so that revoking costs writers at most one part in N + 1. The word holds the time until
/// which it does (in units of 4.096 microseconds, from the extended version's notes on one-word
/// encodings).
///
/// Times wrap after 4.9 hours: inhibition lasts 68 seconds at most, and a time farther ahead than that
/// has passed. (Should a lock go without slow reads until its time looks ahead again, it stays unbiased
/// for another 68 seconds at worst.)
#[derive(Debug)]
pub struct Guard<const N: u64 = 9>;

/// Nanoseconds per unit of time, as a shift.
pub(super) const TICK: u32 = 12;
/// The longest inhibition in units of time: 68 seconds.
const LONGEST: u32 = 1 << 24;

impl<const N: u64> When for Guard<N> {
    fn revoked(start: u64, now: u64, _: &mut u32) -> u32 {
        inhibit(now, now.saturating_sub(start).saturating_mul(N))
    }

    fn may_return<M: Machine>(bias: u32) -> bool {
        expired(bias, M::now(Clock::Monotonic))
    }
}

/// The word that keeps the bias off for so many nanoseconds from `now`.
fn inhibit(now: u64, nanos: u64) -> u32 {
    let ticks = (nanos >> TICK).min(u64::from(LONGEST) - 1) as u32 + 1;
    // The lowest values have other meanings; 70 microseconds more every five hours.
    ((now >> TICK) as u32).wrapping_add(ticks).max(FIRST)
}

/// Whether the time in `bias` has come.
pub(super) fn expired(bias: u32, now: u64) -> bool {
    let ahead = bias.wrapping_sub((now >> TICK) as u32);
    ahead == 0 || ahead > LONGEST + FIRST
}

/// A Bernoulli trial (the authors' first policy, section 3): a slow read brings the bias back with
/// probability 1 / `ODDS`, whatever revocations cost. For workloads whose writers do not mind.
#[derive(Debug)]
pub struct Bernoulli<const ODDS: u32 = 100>;

impl<const ODDS: u32> When for Bernoulli<ODDS> {
    fn revoked(_: u64, _: u64, _: &mut u32) -> u32 {
        FIRST
    }

    fn may_return<M: Machine>(_: u32) -> bool {
        // The thread's own count, scrambled, is random enough to choose with.
        let reads = M::reader_row().map_or(0, |row| row.slow_reads.load(Relaxed));
        let seed = u64::from(reads).wrapping_add((M::thread_id() as u64).rotate_left(32));
        super::table::mix32(seed).is_multiple_of(M::patience((ODDS / SAMPLE).max(1)))
    }
}

/// A cost model that also counts the benefit. The guard bounds what a revocation costs, but pays that
/// for every bias, also for one that served no readers: between frequent writes, a tenth of the throughput
/// for nothing. Here a bias that ended sooner than `WORTH` times its revocation took doubles the time
/// until the next, up to `STEPS` times in a row; one that lasted longer brings that back to the guard's.
///
/// The memory: how often it was doubled, and above that when the bias was set, in units of
/// 256 nanoseconds. These wrap after 69 seconds: a bias that lasted a little longer than a multiple of that
/// is taken for a short one.
#[derive(Debug)]
pub struct Adaptive<const N: u64 = 9>;

/// A bias that lasted for so many times its revocation has been worth it.
pub(super) const WORTH: u64 = 2;
/// Doublings of the inhibition at most: then revocations cost writers one part in 289.
pub(super) const STEPS: u32 = 5;
/// Bits of the memory that count them, and nanoseconds per unit of the rest, as a shift.
const STEP_BITS: u32 = 4;
const MOMENT: u32 = 8;

impl<const N: u64> When for Adaptive<N> {
    fn revoked(start: u64, now: u64, memory: &mut u32) -> u32 {
        let took = now.saturating_sub(start);
        let moments = ((start >> MOMENT) as u32).wrapping_sub(*memory >> STEP_BITS) & (u32::MAX >> STEP_BITS);
        let steps = match u64::from(moments) << MOMENT < took.saturating_mul(WORTH) {
            true => ((*memory & ((1 << STEP_BITS) - 1)) + 1).min(STEPS),
            false => 0,
        };
        *memory = steps;
        inhibit(now, took.saturating_mul(N << steps))
    }

    fn may_return<M: Machine>(bias: u32) -> bool {
        expired(bias, M::now(Clock::Monotonic))
    }

    fn returning<M: Machine>(memory: u32) -> u32 {
        let moment = (M::now(Clock::Monotonic) >> MOMENT) as u32;
        moment << STEP_BITS | memory & ((1 << STEP_BITS) - 1)
    }
}

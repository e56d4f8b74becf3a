//! Counters of objects and calls, for `LATCHWORK_STATS`.
//!
//! The families count here; [`statistics`](crate::observers::statistics) reports. A fast path counts nothing: while
//! counting is on, [`generation`](super::generation) lets no call take one that would have to. All other paths look at
//! one flag.

use super::used;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use latchwork::machine::{Machine, Native};

/// Objects of one type, with the functions for them.
#[derive(Copy, Clone, PartialEq, Eq)]
pub(crate) enum Family {
    Mutex,
    RwLock,
    Cond,
    Spin,
    Sem,
}

/// Why this library leaves an object to glibc.
#[derive(Copy, Clone)]
pub(crate) enum Reason {
    MutexRobust,
    MutexPriority,
    MutexShared,
    RwLockShared,
    CondShared,
    SemShared,
    SpinShared,
    RwLockPrefersWriters,
    MutexChoice,
    RwLockChoice,
}

/// Numbers of [`Family`] and of [`Reason`].
pub(crate) const FAMILIES: usize = 5;
pub(crate) const REASONS: usize = 10;

/// What is counted of a family.
#[derive(Copy, Clone)]
enum Of {
    Objects,
    Calls,
    Contended,
}

/// Counters of a family, and of a reason.
const PER_FAMILY: usize = 3;
const PER_REASON: usize = 2;
const COUNTERS: usize = FAMILIES * PER_FAMILY + REASONS * PER_REASON;

/// Sets of counters. Threads are spread over them, so that few threads write the same cache lines.
const SHARDS: usize = 32;

/// One set, in cache lines of its own (128: processors fetch lines in pairs).
#[repr(align(128))]
struct Shard([AtomicU64; COUNTERS]);
static SHARD: [Shard; SHARDS] = [const { Shard([const { AtomicU64::new(0) }; COUNTERS]) }; SHARDS];

/// What is wanted: [`COUNTS`], [`FIRST_OBJECT`].
static WANTED: AtomicU8 = AtomicU8::new(0);
/// Objects and calls are counted.
const COUNTS: u8 = 1;
/// The first object is to be reported to [`used`].
const FIRST_OBJECT: u8 = 2;

/// Whether calls are counted.
#[inline]
pub(crate) fn on() -> bool {
    WANTED.load(Relaxed) & COUNTS != 0
}

/// Starts or stops counting; returns whether it was on.
pub(crate) fn set(on: bool) -> bool {
    let before = if on { WANTED.fetch_or(COUNTS, Relaxed) } else { WANTED.fetch_and(!COUNTS, Relaxed) };
    before & COUNTS != 0
}

/// Has the first object reported.
pub(crate) fn report_first_object() {
    WANTED.fetch_or(FIRST_OBJECT, Relaxed);
}

#[inline]
fn bump(counter: usize) {
    if on() {
        bump_shard(counter);
    }
}

#[cold]
#[inline(never)]
fn bump_shard(counter: usize) {
    // Thread control blocks lie in the threads' stacks, megabytes apart: a product mixes the bits, and its top five choose
    // one of the 32 shards.
    let hash = (Native::thread_id() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59;
    SHARD[hash as usize % SHARDS].0[counter].fetch_add(1, Relaxed);
}

const fn of_family(family: Family, of: Of) -> usize {
    family as usize * PER_FAMILY + of as usize
}

const fn of_reason(reason: usize, call: bool) -> usize {
    FAMILIES * PER_FAMILY + reason * PER_REASON + call as usize
}

/// An object of ours was made, or used for the first time.
#[inline]
pub(crate) fn object(family: Family) {
    if WANTED.load(Relaxed) != 0 {
        wanted_object(family);
    }
}

#[cold]
#[inline(never)]
fn wanted_object(family: Family) {
    report();
    bump(of_family(family, Of::Objects));
}

/// Reports the first object, if that is wanted.
fn report() {
    if WANTED.load(Relaxed) & FIRST_OBJECT != 0 {
        WANTED.fetch_and(!FIRST_OBJECT, Relaxed);
        used::used();
    }
}

/// A lock call (of a condition variable: a wait or a notification) was served.
#[inline]
pub(crate) fn call(family: Family) {
    bump(of_family(family, Of::Calls));
}

/// A lock call did not get the lock at the first attempt (of a condition variable: a wait).
#[inline]
pub(crate) fn contended(family: Family) {
    bump(of_family(family, Of::Contended));
}

/// An object was made that is glibc's.
pub(crate) fn foreign_object(reason: Reason) {
    // This library has looked for the object's lock, and has found glibc's.
    if matches!(reason, Reason::MutexChoice | Reason::RwLockChoice) {
        report();
    }
    bump(of_reason(reason as usize, false));
}

/// A call was passed to glibc.
pub(crate) fn foreign_call(reason: Reason) {
    bump(of_reason(reason as usize, true));
}

/// In a forked child, which counts from zero.
pub(crate) fn after_fork() {
    if on() {
        SHARD.iter().flat_map(|shard| &shard.0).for_each(|counter| counter.store(0, Relaxed));
    }
}

fn sum(counter: usize) -> u64 {
    SHARD.iter().map(|shard| shard.0[counter].load(Relaxed)).sum()
}

/// Objects, calls and contended calls of a family.
pub(crate) fn of(family: Family) -> [u64; PER_FAMILY] {
    [Of::Objects, Of::Calls, Of::Contended].map(|of| sum(of_family(family, of)))
}

/// Objects and calls that went to glibc for the reason with this number.
pub(crate) fn to_glibc(reason: usize) -> [u64; PER_REASON] {
    [false, true].map(|call| sum(of_reason(reason, call)))
}

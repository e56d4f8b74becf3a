//! The short way of an uncontended call: what an acquisition costs if there is nothing to record but its number.
//!
//! An entry of the thread's table says that it is valid and that nothing is to be measured ([`Entry::filter`]). Then the thread
//! adds one to the entry's counter *before* it tries the lock ([`count`]), and executes nothing more when it has it: the
//! section is as long as without the recorder. (If the attempt fails, the thread takes the one back.) An unlock call looks at
//! two words ([`is_nothing_to_release`]).
//!
//! Everything else sends the call the long way. The thread's own reasons are in its entry, and in [`Attention`]. Those of
//! other threads are in the [`filter`]. So a thread that acquires a lock without contention reads a word that other threads
//! seldom write, and writes only to lines of its own.
//!
//! A call on the short way does not say that it is inside ([`live`](super::live)). So the memory of the tables stays mapped when
//! the recording ends: it becomes memory without a file, and the next recording takes its place. A thread that was preempted
//! on the short way while the recording was switched off and on again may add one to a count of the new recording.

use super::calls::Origin;
use super::entries::{FREE, MOST_READS, Row, bump};
use super::filter::{self, WATCHED};
use super::threads::{self, Acquired, Attention, Current, Local};
use core::sync::atomic::Ordering::*;
use latchwork_recording::layout::{Count, READING};

/// While threads wait, a thread whose sections are short pays its part about once in so many nanoseconds.
const PAY_PERIOD: u64 = 20_000;
/// A thread pays at least once in two to this power sections.
const LEAST: u32 = 8;

impl Local {
    /// The thread has held a lock for so long while threads waited, and has paid its part. If that was short, then a thread that
    /// waits for long would slow down all the others: each of their sections would have to be accounted for. So of the next
    /// sections some are free, and the one that pays then pays for these, too. Their number is random, so the sums are
    /// unbiased. (The thread has had its first holds of the object, which are all measured.)
    pub(super) fn has_paid(&mut self, row: Row, address: usize, nanos: u64) {
        let weight = (PAY_PERIOD / nanos.max(1)).max(1).ilog2().min(LEAST);
        if weight != 0 {
            self.free_calls = self.chance.around(1 << weight) - 1;
            self.pay_weight = weight as u8;
            row.hot.store(0, Relaxed);
            row.speed_up(filter::value(address));
        }
    }
}

/// Counts an acquisition that the calling thread is about to try. `false`: it takes the long way, and nothing is counted.
#[inline(always)]
pub(super) fn count(address: usize, read: bool, caller: usize, slot: usize) -> bool {
    let Some(local) = threads::known(Current::get()) else { return false };
    let mixed = filter::mix(address);
    let number = filter::at(mixed).load(Relaxed);
    if number & WATCHED != 0 {
        return false;
    }
    // A lock's address has none of the bits that `Count::key` has besides.
    let key = address as u64 | u64::from(number) << 32;
    let Some(count) = local.shared.entries.count(mixed, key) else { return false };
    let depth = if read { READING } else { 1 };
    count_at(local, count, read, depth) && {
        local.origins.set(mixed, Acquired::new(address, caller, slot));
        true
    }
}

/// As [`count`], while other threads shall know the holders of the lock, or of another one with the same number. The calling
/// thread need not pay each time: see [`Local::has_paid`].
#[inline(never)]
pub(super) fn count_for_free(address: usize, read: bool, origin: Origin) -> bool {
    let Some(local) = threads::known(Current::get()) else { return false };
    if local.free_calls == 0 {
        return false;
    }
    let mixed = filter::mix(address);
    let key = address as u64 | filter::gone_in_key(filter::at(mixed).load(Relaxed));
    let Some(count) = local.shared.entries.count(mixed, key) else { return false };
    if !count_at(local, count, read, FREE) {
        return false;
    }
    local.free_calls -= 1;
    local.origins.set(mixed, Acquired::new(address, origin.caller, origin.slot));
    true
}

#[inline(always)]
fn count_at(local: &mut Local, count: &Count, read: bool, depth: u8) -> bool {
    if read && count.reads.load(Relaxed) == MOST_READS {
        return false;
    }
    local.countdown = local.countdown.wrapping_sub(1);
    if local.countdown == 0 {
        // The long way measures this acquisition, and sets the next distance.
        local.countdown = 1;
        return false;
    }
    bump(&count.acquisitions);
    if read {
        count.reads.store(count.reads.load(Relaxed) + 1, Relaxed);
    }
    count.depth.store(depth, Relaxed);
    true
}

/// Takes back what [`count`] has counted: the attempt has failed. Returns where the call was made.
#[cold]
#[inline(never)]
pub(super) fn take_back(local: &mut Local, address: usize, read: bool) -> Origin {
    if let Some(row) = local.shared.entries.of(address) {
        let count = row.count;
        count.acquisitions.store(count.acquisitions.load(Relaxed).saturating_sub(1), Relaxed);
        if read {
            count.reads.store(count.reads.load(Relaxed).saturating_sub(1), Relaxed);
            count.depth.store(0, Relaxed);
        }
    }
    local.origins.get(address)
}

/// Whether the release of a lock has nothing to record.
#[inline(always)]
pub(super) fn is_nothing_to_release(address: usize) -> bool {
    Attention::get() == 0 && (!filter::is_watched(address) || is_free(address))
}

/// Whether the calling thread holds the lock without having to pay.
#[cold]
#[inline(never)]
fn is_free(address: usize) -> bool {
    let depth = |local: &mut Local| Some(local.shared.entries.of(address)?.count.depth.load(Relaxed));
    threads::known(Current::get()).and_then(depth) == Some(FREE)
}

/// As [`is_nothing_to_release`], of a rwlock. Then it notes that a reader has left.
#[inline(always)]
pub(super) fn is_nothing_to_release_of_rwlock(address: usize) -> bool {
    let Some(local) = threads::known(Current::get()) else { return false };
    if Attention::get() != 0 {
        return false;
    }
    let mixed = filter::mix(address);
    let number = filter::at(mixed).load(Relaxed);
    let key = address as u64 | filter::gone_in_key(number);
    let Some(count) = local.shared.entries.count(mixed, key) else { return false };
    if number & WATCHED != 0 && count.depth.load(Relaxed) != FREE {
        return false;
    }
    count.depth.store(0, Relaxed);
    true
}

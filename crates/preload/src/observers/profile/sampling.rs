//! Which waits are looked at closely.
//!
//! The recorder counts each wait, with its length: that takes two readings of the clock. To find out *who* waited and *because of whom*
//! costs more, and delays other threads as well: the waiter's stack is captured, and each holder reads the clock twice, adds up
//! its part, and has its stack captured too. If threads wait for a microsecond a hundred thousand times a second, that would
//! change what is measured.
//!
//! So a thread looks closely at some of its waits: at all of its first ones for a lock, and then at one in so many that it comes
//! to one for [`PERIOD`] of waiting. A lock for which threads wait long has all its waits looked at, and a lock for which they
//! wait shortly a few. The thread chooses by chance, before the wait, and from the lengths of earlier waits only. A chosen
//! wait stands for as many as it was chosen from, its *weight*. So the sums of chosen waits are unbiased estimates of the sums
//! of all. The reader knows the exact sums of each class, too, and makes the estimates agree with them.

use super::fast;
use super::threads::Local;

/// How much waiting comes to one chosen wait, in nanoseconds. To look closely takes a few microseconds of several threads' time,
/// so this makes it less than a hundredth of the time that is waited.
const PERIOD: u32 = 500_000;
/// Of a thread's waits for an object, so many first ones are all chosen.
const FIRST: u32 = 8;
/// The largest weight.
const MOST: u32 = 4096;
/// The influence of a wait on the expected length of the next one is a part in so many.
const INERTIA: u32 = 8;

/// Numbers of [`Rate`]s of a thread. Objects that share one have a common expectation.
pub(super) const RATES: usize = 64;

/// What a thread expects of its waits. Zero bytes are one that expects nothing.
pub(super) struct Rate {
    waits: u32,
    /// Nanoseconds.
    expected: u32,
}

impl Local {
    /// The thread is about to wait for the object at this address: for how many waits this one stands; 0: it is only counted.
    pub(super) fn choose_wait(&mut self, address: usize) -> u32 {
        let rate = &self.rates[fast::slot(address, RATES)];
        if rate.waits < FIRST {
            return 1;
        }
        let weight = (PERIOD / rate.expected.max(1)).clamp(1, MOST);
        if weight == 1 || self.one_in(weight) { weight } else { 0 }
    }

    /// The wait has taken so long.
    pub(super) fn learn(&mut self, address: usize, nanos: u64) {
        let rate = &mut self.rates[fast::slot(address, RATES)];
        rate.waits = rate.waits.saturating_add(1);
        let nanos = nanos.min(u64::from(u32::MAX / 2)) as i64;
        let expected = i64::from(rate.expected);
        rate.expected = (expected + (nanos - expected) / i64::from(rate.waits.min(INERTIA))) as u32;
    }
}

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

use super::chance::Chance;
use super::filter;

/// How much waiting comes to one chosen wait, in nanoseconds. To look closely takes a few microseconds of several threads' time,
/// so this makes it less than a hundredth of the time that is waited.
const PERIOD: u32 = 500_000;
/// Of a thread's waits for an object, so many first ones are all chosen.
const FIRST: u32 = 8;
/// The largest weight.
const MOST: u32 = 4096;
/// The influence of a wait on the expected length of the next one is a part in 2 to this power.
const INERTIA: u32 = 3;

/// Numbers of [`Rate`]s of a thread. Objects that share one have a common expectation.
const RATES: usize = 64;

/// What a thread expects of its waits. Zero bytes are those of a thread that has not waited.
pub(super) struct Rates([Rate; RATES]);

/// What a thread expects of its waits for some objects.
struct Rate {
    waits: u32,
    /// Nanoseconds.
    expected: u32,
}

impl Rates {
    /// The thread is about to wait for the object at this address: for how many waits this one stands; 0: it is only counted.
    pub(super) fn choose(&self, chance: &mut Chance, address: usize) -> u32 {
        let rate = &self.0[filter::slot(address, RATES)];
        if rate.waits < FIRST {
            return 1;
        }
        let weight = (PERIOD / rate.expected.max(1)).clamp(1, MOST);
        if weight == 1 || chance.one_in(weight) { weight } else { 0 }
    }

    /// The wait has taken so long.
    pub(super) fn learn(&mut self, address: usize, nanos: u64) {
        let rate = &mut self.0[filter::slot(address, RATES)];
        rate.waits = rate.waits.saturating_add(1);
        let nanos = nanos.min(u64::from(u32::MAX / 2)) as i64;
        let expected = i64::from(rate.expected);
        let change = nanos - expected;
        // A division takes longer than the rest of this function.
        let change =
            if rate.waits >> INERTIA == 0 { change / i64::from(rate.waits) } else { change >> INERTIA };
        rate.expected = (expected + change) as u32;
    }
}

//! How a grace period is waited for by who leads it. Readers do not tell when they leave, as that would
//! cost them a look at somebody's flag: the leader looks again.

use crate::machine::Machine;

/// How a grace period is waited for.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Asleep, after a few looks: the leader naps for up to a millisecond between two looks.
    Normal,
    /// Awake, mostly.
    Expedited,
}

/// Offers of the processor before the leader sleeps, and in a hurry.
const OFFERS: u32 = 4;
const HURRIED_OFFERS: u32 = 1000;
/// How long it sleeps, at first and at most, in nanoseconds. In a hurry it stays with the first.
const NAP: u64 = 20_000;
const LONG_NAP: u64 = 1_000_000;

/// What the leader does between two looks.
pub(super) struct Rest {
    offers: u32,
    nap: u64,
}

impl Rest {
    pub(super) fn new() -> Self {
        Rest { offers: 0, nap: NAP }
    }

    pub(super) fn take<M: Machine>(&mut self, hurry: bool) {
        self.offers += 1;
        if self.offers <= M::patience(if hurry { HURRIED_OFFERS } else { OFFERS }) {
            M::yield_now();
        } else {
            M::doze(self.nap);
            self.nap = if hurry { NAP } else { (self.nap * 2).min(LONG_NAP) };
        }
    }
}

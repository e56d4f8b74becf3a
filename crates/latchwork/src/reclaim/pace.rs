//! How the leader of a grace period waits. Readers do not tell when they leave their sections, because that would cost
//! them a look at a flag; so the leader looks again and again.

use crate::machine::Machine;

/// How the leader of a grace period waits between two looks at the readers.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Asleep, after a few looks: the leader naps for up to a millisecond between two looks.
    Normal,
    /// Awake for a thousand offers of the processor, and then in short naps.
    Expedited,
}

/// Offers of the processor before the leader sleeps.
const OFFERS: u32 = 4;
/// The same for a leader in a hurry.
const HURRIED_OFFERS: u32 = 1000;
/// The first nap in nanoseconds, and every nap of a leader in a hurry.
const NAP: u64 = 20_000;
/// The longest nap in nanoseconds; each is twice as long as the one before.
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

//! Random numbers of one thread.

/// A generator of random numbers: xorshift64. Zero bytes are none that can be used.
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        Chance(seed | 1)
    }

    /// A number from 1 to `2 * mean - 1`, each as likely.
    pub(super) fn around(&mut self, mean: u32) -> u32 {
        self.number() % (2 * mean - 1) + 1
    }

    /// `true` once in so many times, by chance.
    pub(super) fn one_in(&mut self, times: u32) -> bool {
        self.number().is_multiple_of(times)
    }

    fn number(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u32
    }
}

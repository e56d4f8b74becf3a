//! Seeded random numbers.
//!
//! Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014
//! (SplitMix64). Written out because the sequence is part of what a seed promises.

/// A generator; the same seed gives the same sequence.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Rng(seed)
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`; 0 if that is 0.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in [0, 1).
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Whether something of probability `p` happens.
    #[inline]
    pub(crate) fn chance(&mut self, p: f64) -> bool {
        p >= 1.0 || p > 0.0 && self.unit() < p
    }

    /// An exponentially distributed time with the given mean.
    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        (-(1.0 - self.unit()).ln() * mean as f64) as u64
    }
}

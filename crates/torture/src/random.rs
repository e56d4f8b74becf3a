//! Chance, from a seed.

/// xorshift64*: Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence that belongs to `seed`.
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds must not give neighbouring sequences; zero is the one bad state.
        let mixed = (seed ^ seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Random((mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) | 1)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        (self.number() >> 32) % n
    }

    /// Whether something happens that happens once in `n` times.
    pub fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of them.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_and_repeat() {
        let first = |seed| Random::new(seed).number();
        assert_eq!(first(7), first(7));
        let distinct: std::collections::HashSet<_> = (0..1000).map(first).collect();
        assert!(distinct.len() >= 999, "{}", distinct.len()); // 0 and 1 may share a state
        let mut random = Random::new(1);
        let hits = (0..8000).filter(|_| random.once_in(8)).count();
        assert!((700..1300).contains(&hits), "{hits}");
    }
}

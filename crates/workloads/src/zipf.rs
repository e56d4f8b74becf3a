//! Keys by Zipf's law.

/// Numbers from 0 of which the n-th is drawn in proportion to n^-0.99, as in YCSB (Cooper et al. 2010).
pub struct Zipf {
    /// The weights of all numbers up to each.
    sums: Vec<f64>,
}

impl Zipf {
    /// Of so many numbers. Panics without any.
    pub fn new(numbers: u64) -> Self {
        assert!(numbers > 0, "a law needs a number to draw");
        let mut sum = 0.0;
        let weights = (1..=numbers).map(|rank| (rank as f64).powf(-0.99));
        Zipf { sums: weights.map(|weight| (sum += weight, sum).1).collect() }
    }

    /// Draws a number. `random` returns a random number from 0 to below 1; it is asked once.
    pub fn draw(&self, mut random: impl FnMut() -> f64) -> u64 {
        let all = self.sums[self.sums.len() - 1];
        let at = random() * all;
        let number = self.sums.partition_point(|below| *below < at);
        // Rounding may put the last share past the end.
        number.min(self.sums.len() - 1) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    #[test]
    fn the_most_frequent_of_1024_keys_is_an_eighth_of_the_draws() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let zipf = Zipf::new(1024);
        let mut drawn = [0; 1024];
        for _ in 0..1 << 15 {
            let number = zipf.draw(|| (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64);
            drawn[number as usize] += 1;
        }
        let share = |of: &[i32]| f64::from(of.iter().sum::<i32>()) / f64::from(1 << 15);
        // The law: 1 / 7.7 of the draws are 0, and 0.38 of them are below 10.
        assert!((0.11..0.14).contains(&share(&drawn[..1])), "{}", share(&drawn[..1]));
        assert!((0.36..0.40).contains(&share(&drawn[..10])), "{}", share(&drawn[..10]));
    }
}

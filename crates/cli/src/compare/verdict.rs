//! What may be said about several locks after a number of rounds.
//!
//! Each lock is compared with glibc by an exact sign test: if a lock were as good as glibc, it would be ahead of
//! glibc's run of the same round as often as behind, like the faces of a coin. The test assumes nothing else. Run times
//! have no normal distribution, and one run that the machine disturbs counts as one round, however long it took.
//!
//! With many locks, one of them is ahead in every round by chance. Holm's correction (S. Holm, "A Simple Sequentially
//! Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6, 1979) accounts for that: the chance that
//! *any* lock is called better or worse although it is as good as glibc is at most [`CHANCE`]. The correction holds
//! although all locks are compared with the same runs of glibc.

use latchwork_console::stats::median;

/// A median ratio that differs from 1 by no more than this share is not worth a change of locks.
pub const NOTABLE: f64 = 0.03;
/// The probability that a comparison calls some lock better or worse although all are as good as glibc.
pub const CHANCE: f64 = 0.05;
/// Which direction is good.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Better {
    /// As with operations a second.
    Higher,
    /// As with seconds.
    Lower,
}

/// What may be said about a lock.
#[derive(Copy, Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Better than the baseline; the median ratio.
    Better(f64),
    /// Worse; the median ratio.
    Worse(f64),
    /// The noise explains the difference.
    Noise,
    /// No number of agreeing rounds as small as this one excludes chance.
    TooFew,
}

/// The fewest rounds after which a lock among so many can be called better or worse, if all rounds agree.
pub fn rounds_needed(locks: usize) -> u32 {
    fewest_rounds(locks, 0)
}

/// The number of rounds when the user names none: the fewest with which one round may disagree. Then one run that the
/// machine disturbs does not end all verdicts.
pub fn default_rounds(locks: usize) -> u32 {
    fewest_rounds(locks, 1)
}

/// The fewest rounds after which a lock among so many can be called better or worse although some rounds disagree.
fn fewest_rounds(locks: usize, disagree: usize) -> u32 {
    let rejects = |rounds: &usize| coin(*rounds, disagree) * locks.max(1) as f64 <= CHANCE;
    let rounds = (2 * disagree + 1..).find(rejects).expect("the probability goes to zero");
    u32::try_from(rounds).expect("a few more than the logarithm of the number of locks")
}

/// The rule by which so many locks are judged, as it is printed.
pub fn rule(locks: usize) -> String {
    let correction = if locks > 1 { format!(", corrected for {locks} locks (Holm)") } else { String::new() };
    format!(
        "a lock is called better or worse when its median ratio to glibc differs from 1 by more than {:.0}%, and an \
         exact sign test over the rounds excludes chance at {:.0}%{correction}; that takes at least {} rounds",
        NOTABLE * 100.0,
        CHANCE * 100.0,
        rounds_needed(locks)
    )
}

/// Judges locks that were measured together. `ratios` holds for each lock its ratios to the baseline, one a round.
/// Returns for each lock the verdict, and the probability of such a difference by chance after the correction.
pub fn judge(ratios: &[Vec<f64>], better: Better) -> Vec<(Verdict, Option<f64>)> {
    let needed = rounds_needed(ratios.len()) as usize;
    let verdict = |ratios: &Vec<f64>, chance: f64| {
        if ratios.len() < needed {
            return (Verdict::TooFew, None);
        }
        let middle = median(ratios);
        let verdict = if chance > CHANCE || (middle - 1.0).abs() <= NOTABLE {
            Verdict::Noise
        } else if (middle > 1.0) == (better == Better::Higher) {
            Verdict::Better(middle)
        } else {
            Verdict::Worse(middle)
        };
        (verdict, Some(chance))
    };
    let chances = holm(&ratios.iter().map(|ratios| sign_test(ratios)).collect::<Vec<_>>());
    ratios.iter().zip(chances).map(|(ratios, chance)| verdict(ratios, chance)).collect()
}

/// The probability that a coin falls at least as unevenly as these ratios fall above and below 1. Rounds without a
/// difference say nothing and are left out.
fn sign_test(ratios: &[f64]) -> f64 {
    let above = ratios.iter().filter(|ratio| **ratio > 1.0).count();
    let below = ratios.iter().filter(|ratio| **ratio < 1.0).count();
    coin(above + below, above.min(below))
}

/// The probability that of so many throws of a coin, one of the two sides comes up `fewer` times or less.
fn coin(throws: usize, fewer: usize) -> f64 {
    // The binomial coefficients by their logarithms: 2^throws is no `f64` for some thousand throws.
    let mut coefficient = 0.0;
    let mut sum = 0.0;
    for chosen in 0..=fewer {
        if chosen > 0 {
            coefficient += ((throws - chosen + 1) as f64 / chosen as f64).ln();
        }
        sum += (coefficient - throws as f64 * std::f64::consts::LN_2).exp();
    }
    (2.0 * sum).min(1.0)
}

/// Holm's correction: the smallest probability times the number of tests, the next one times one less, and so on; and
/// none below the one before it.
fn holm(chances: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..chances.len()).collect();
    order.sort_by(|a, b| chances[*a].total_cmp(&chances[*b]));
    let mut corrected = vec![0.0; chances.len()];
    let mut least: f64 = 0.0;
    for (rank, index) in order.into_iter().enumerate() {
        least = least.max(chances[index] * (chances.len() - rank) as f64).min(1.0);
        corrected[index] = least;
    }
    corrected
}

impl Verdict {
    /// As the tables say it.
    pub fn text(self) -> String {
        match self {
            Self::Better(0.0 | f64::INFINITY) => "better (from or to 0)".into(),
            Self::Worse(0.0 | f64::INFINITY) => "worse (from or to 0)".into(),
            Self::Better(ratio) => format!("{} better", times(ratio)),
            Self::Worse(ratio) => format!("{} worse", times(ratio)),
            Self::Noise => "within the noise".into(),
            Self::TooFew => "too few runs".into(),
        }
    }

    /// As the JSON and CSV files say it.
    pub fn key(self) -> &'static str {
        match self {
            Self::Better(_) => "better",
            Self::Worse(_) => "worse",
            Self::Noise => "noise",
            Self::TooFew => "too few runs",
        }
    }
}

/// "12%" for small differences, "3.1x" for large ones.
fn times(ratio: f64) -> String {
    let factor = if ratio < 1.0 { 1.0 / ratio } else { ratio };
    match factor {
        10.0.. => format!("{factor:.0}x"),
        2.0.. => format!("{factor:.1}x"),
        _ => format!("{:.0}%", (ratio - 1.0).abs() * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Better::{Higher, Lower};

    /// xorshift64*: the same numbers on every machine.
    struct Random(u64);

    impl Random {
        fn uniform(&mut self) -> f64 {
            self.0 ^= self.0 >> 12;
            self.0 ^= self.0 << 25;
            self.0 ^= self.0 >> 27;
            (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
        }

        /// A run on a noisy machine: 10% up and down, and every tenth run disturbed, up to three times as long.
        fn run(&mut self) -> f64 {
            let normal: f64 = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
            let hiccup = if self.uniform() < 0.1 { 1.0 + 2.0 * self.uniform() } else { 1.0 };
            (0.1 * normal).exp() * hiccup
        }

        /// Rounds of locks that take this share of glibc's time.
        fn comparison(&mut self, locks: &[f64], rounds: u32) -> Vec<Vec<f64>> {
            let mut ratios = vec![Vec::new(); locks.len()];
            for _ in 0..rounds {
                let glibc = self.run();
                for (time, ratios) in locks.iter().zip(&mut ratios) {
                    ratios.push(time * self.run() / glibc);
                }
            }
            ratios
        }
    }

    fn verdicts(ratios: &[Vec<f64>], better: Better) -> Vec<Verdict> {
        judge(ratios, better).into_iter().map(|(verdict, _)| verdict).collect()
    }

    #[test]
    fn of_38_equal_locks_none_wins() {
        const COMPARISONS: u32 = 1000;
        let (mut random, mut crowned, mut uncorrected) = (Random(1), 0, 0);
        for _ in 0..COMPARISONS {
            let ratios = random.comparison(&[1.0; 38], default_rounds(38));
            let decided = |verdict: &Verdict| matches!(verdict, Verdict::Better(_) | Verdict::Worse(_));
            crowned += u32::from(verdicts(&ratios, Lower).iter().any(decided));
            uncorrected += u32::from(ratios.iter().any(|one| sign_test(one) <= CHANCE));
        }
        // The correction is what prevents it: without one, chance decides about some lock in many comparisons.
        assert!(uncorrected > COMPARISONS / 4, "{uncorrected}");
        assert!(f64::from(crowned) <= CHANCE * f64::from(COMPARISONS), "{crowned}");
    }

    #[test]
    fn with_few_rounds_nothing_is_said_about_38_locks() {
        let mut random = Random(2);
        let ratios = random.comparison(&[0.5; 38], rounds_needed(38) - 1);
        assert!(verdicts(&ratios, Lower).iter().all(|verdict| *verdict == Verdict::TooFew));
        let ratios = random.comparison(&[0.1; 38], rounds_needed(38));
        assert!(verdicts(&ratios, Lower).iter().all(|verdict| matches!(verdict, Verdict::Better(_))));
    }

    #[test]
    fn a_gain_of_20_percent_is_found_with_enough_rounds() {
        const COMPARISONS: u32 = 200;
        let mut locks = [1.0; 38];
        locks[17] = 0.8;
        let found = |locks: &[f64], rounds: u32| {
            let mut random = Random(3);
            let better = locks.iter().position(|time| *time < 1.0).expect("one is better");
            let found = (0..COMPARISONS).filter(|_| {
                matches!(verdicts(&random.comparison(locks, rounds), Lower)[better], Verdict::Better(_))
            });
            f64::from(u32::try_from(found.count()).expect("a few")) / f64::from(COMPARISONS)
        };
        let (few, many) = (found(&locks, default_rounds(38)), found(&locks, 60));
        assert!(few < 0.5 && many > 0.9, "{few} {many}");
        // The comparison without options: five locks, one of them twice as fast.
        let double = found(&[1.0, 0.5, 1.0, 1.0, 1.0], default_rounds(5));
        assert!(double > 0.8, "{double}");
    }

    #[test]
    fn more_locks_need_more_rounds() {
        assert_eq!([1, 2, 5, 38].map(rounds_needed), [6, 7, 8, 11]);
        assert_eq!([1, 5, 38].map(default_rounds), [9, 12, 15]);
        for (locks, words) in
            [(1, "at least 6 rounds"), (38, "38 locks (Holm); that takes at least 11 rounds")]
        {
            assert!(rule(locks).contains(words), "{}", rule(locks));
        }
    }

    #[test]
    fn the_sign_test_is_that_of_a_coin() {
        let near =
            |chance: f64, expected: f64| assert!((chance - expected).abs() < 1e-12, "{chance} {expected}");
        near(sign_test(&[2.0; 6]), 2.0 / 64.0);
        near(sign_test(&[2.0, 2.0, 2.0, 2.0, 2.0, 0.5]), 14.0 / 64.0);
        near(sign_test(&[2.0, 0.5]), 1.0);
        near(sign_test(&[1.0; 6]), 1.0);
        near(sign_test(&[&[1.0; 9][..], &[0.5; 6]].concat()), 2.0 / 64.0);
        let thousands = [vec![2.0; 5000], vec![0.5; 5000]].concat();
        assert!((0.99..=1.0).contains(&sign_test(&thousands)));
        assert!(sign_test(&[2.0; 5000]) < 1e-300);
    }

    #[test]
    fn holm_corrects_the_smallest_most() {
        let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-12);
        assert!(near(&holm(&[0.01, 0.04, 0.03]), &[0.03, 0.06, 0.06]));
        assert!(near(&holm(&[0.6, 0.7]), &[1.0, 1.0]));
    }

    #[test]
    fn a_verdict_needs_size_agreement_and_rounds() {
        let one = |ratios: &[f64], better| verdicts(&[ratios.to_vec()], better)[0];
        let ahead = [1.4, 1.5, 1.5, 1.5, 1.5, 1.6];
        assert_eq!(one(&[2.0; 5], Higher), Verdict::TooFew);
        assert_eq!(one(&ahead, Higher), Verdict::Better(1.5));
        assert_eq!(one(&ahead, Lower), Verdict::Worse(1.5));
        assert_eq!(one(&[0.5; 6], Lower), Verdict::Better(0.5));
        assert_eq!(one(&[1.02; 6], Higher), Verdict::Noise);
        assert_eq!(one(&[0.9, 1.5, 1.5, 1.5, 1.5, 1.5], Higher), Verdict::Noise);
        assert_eq!(one(&[0.0; 6], Lower).text(), "better (from or to 0)");
        assert_eq!(one(&[f64::INFINITY; 6], Lower).text(), "worse (from or to 0)");
        assert_eq!(one(&[0.9, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5], Higher), Verdict::Better(1.5));
    }

    #[test]
    fn sizes_are_told_as_people_tell_them() {
        assert_eq!(Verdict::Better(1.52).text(), "52% better");
        assert_eq!(Verdict::Better(0.8).text(), "20% better");
        assert_eq!(Verdict::Worse(0.25).text(), "4.0x worse");
        assert_eq!(Verdict::Worse(0.01).text(), "100x worse");
    }
}

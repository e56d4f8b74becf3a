//! What the numbers of a few runs say.

use std::fmt::Write as _;

/// Ratios nearer to 1 than this are not worth a word.
pub const NOTABLE: f64 = 0.03;
/// With fewer rounds than this nothing is said.
pub const FEWEST: usize = 3;

/// The verdict's rule, as it is printed.
pub const RULE: &str = "a lock is called better or worse when its median ratio to glibc differs from 1 by \
                        more than 3% and all rounds agree about the direction (one in eight may not)";

/// The `q`-quantile, linearly interpolated. `values` must not be empty.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = q * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    low + (high - low) * at.fract()
}

/// The median.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The distance between the quartiles, relative to the median.
pub fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    if middle == 0.0 { 0.0 } else { (quantile(values, 0.75) - quantile(values, 0.25)) / middle.abs() }
}

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
    /// Nothing that the noise does not explain.
    Noise,
    /// Nothing, for want of runs.
    TooFew,
}

impl Verdict {
    /// Applies [`RULE`] to the ratios of runs paired by round.
    ///
    /// The sign of each round is what is counted, because neither normal distributions nor steady
    /// machines are to be had: with five rounds, equal locks agree by chance one time in sixteen.
    pub fn of(ratios: &[f64], better: Better) -> Self {
        if ratios.len() < FEWEST {
            return Self::TooFew;
        }
        let middle = median(ratios);
        let against = ratios.iter().filter(|ratio| (**ratio > 1.0) != (middle > 1.0)).count();
        if (middle - 1.0).abs() <= NOTABLE || against > ratios.len() / 8 {
            return Self::Noise;
        }
        if (middle > 1.0) == (better == Better::Higher) { Self::Better(middle) } else { Self::Worse(middle) }
    }

    /// As the table says it.
    pub fn text(self) -> String {
        match self {
            Self::Better(ratio) => format!("{} better", times(ratio)),
            Self::Worse(ratio) => format!("{} worse", times(ratio)),
            Self::Noise => "within the noise".into(),
            Self::TooFew => "too few runs".into(),
        }
    }
}

/// "12%" for what is near, "3.1x" for what is far.
fn times(ratio: f64) -> String {
    let factor = if ratio < 1.0 { 1.0 / ratio } else { ratio };
    let mut text = String::new();
    let written = match (ratio, factor) {
        (_, 10.0..) => write!(text, "{factor:.0}x"),
        (_, 2.0..) => write!(text, "{factor:.1}x"),
        _ => write!(text, "{:.0}%", (ratio - 1.0).abs() * 100.0),
    };
    written.expect("a String takes all");
    text
}

/// The order of a round: each starts with another candidate, and two in four run backwards, so that
/// nobody always follows the same one.
pub fn order(round: usize, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    order.rotate_left(round % count);
    if round / 2 % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_runs_all_and_starts_with_another() {
        for round in 0..6 {
            let mut sorted = order(round, 3);
            sorted.sort();
            assert_eq!(sorted, [0, 1, 2]);
        }
        assert_eq!([0, 1, 2].map(|round| order(round, 3)), [[0, 1, 2], [1, 2, 0], [1, 0, 2]]);
        assert_eq!([0, 1, 2, 3].map(|round| order(round, 2)), [[0, 1], [1, 0], [1, 0], [0, 1]]);
    }

    #[test]
    fn quantiles_interpolate() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert_eq!(quantile(&[0.0, 1.0, 2.0, 3.0, 4.0], 0.25), 1.0);
        assert_eq!(spread(&[8.0, 9.0, 10.0, 11.0, 12.0]), 0.2);
        assert_eq!(spread(&[7.0]), 0.0);
    }

    #[test]
    fn a_verdict_needs_size_agreement_and_runs() {
        use Better::{Higher, Lower};
        assert_eq!(Verdict::of(&[2.0, 2.0], Higher), Verdict::TooFew);
        assert_eq!(Verdict::of(&[1.4, 1.5, 1.6], Higher), Verdict::Better(1.5));
        assert_eq!(Verdict::of(&[1.4, 1.5, 1.6], Lower), Verdict::Worse(1.5));
        assert_eq!(Verdict::of(&[0.4, 0.5, 0.6], Lower), Verdict::Better(0.5));
        assert_eq!(Verdict::of(&[1.01, 1.02, 1.02], Higher), Verdict::Noise);
        assert_eq!(Verdict::of(&[0.9, 1.5, 1.5, 1.5, 1.5], Higher), Verdict::Noise);
        assert_eq!(Verdict::of(&[0.9, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5], Higher), Verdict::Better(1.5));
    }

    #[test]
    fn sizes_are_told_as_people_tell_them() {
        assert_eq!(Verdict::Better(1.52).text(), "52% better");
        assert_eq!(Verdict::Better(0.8).text(), "20% better");
        assert_eq!(Verdict::Worse(0.25).text(), "4.0x worse");
        assert_eq!(Verdict::Worse(0.01).text(), "100x worse");
    }
}

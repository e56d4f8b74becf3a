//! What the numbers of a few runs say.

use serde::Serialize;

/// With fewer values than this a spread says nothing.
pub const FEWEST: usize = 3;

/// The `q`-quantile, linearly interpolated. `values` must not be empty.
pub fn quantile(values: &[f64], q: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = q * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    // A ratio to zero is infinite, and between two infinities there is no number.
    if at.fract() == 0.0 || low == high { low } else { low + (high - low) * at.fract() }
}

/// The median.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// The same of values that may be none.
pub fn median_of(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let values: Vec<f64> = values.into_iter().collect();
    (!values.is_empty()).then(|| median(&values))
}

/// The distance between the quartiles, relative to the median.
pub fn spread(values: &[f64]) -> f64 {
    let middle = median(values);
    if middle == 0.0 { 0.0 } else { (quantile(values, 0.75) - quantile(values, 0.25)) / middle.abs() }
}

/// What a JSON document says of a few numbers.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// The median.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
    /// Distance of the quartiles, relative to the median.
    pub spread: f64,
}

impl Summary {
    /// `None`: there are no numbers.
    pub fn of(values: &[f64]) -> Option<Self> {
        (!values.is_empty()).then(|| Self {
            median: median(values),
            min: quantile(values, 0.0),
            max: quantile(values, 1.0),
            spread: spread(values),
        })
    }
}

/// The order of a round: each round starts with another candidate, and two rounds in four run backwards, so that no
/// candidate always follows the same one.
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
        assert_eq!(median(&[1.0, f64::INFINITY, f64::INFINITY]), f64::INFINITY);
        assert_eq!(median(&[1.0, 2.0, f64::INFINITY]), 2.0);
        assert_eq!(median(&[1.0, f64::INFINITY]), f64::INFINITY);
    }
}

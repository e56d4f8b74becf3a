//! A measured number: many samples, of which the median counts.

use latchwork_console::stats;
use serde::Serialize;

/// Samples of one number.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// The median.
    pub median: f64,
    /// The quartiles: what noise there was.
    pub quartiles: (f64, f64),
    /// How many samples.
    pub samples: usize,
}

impl Sample {
    /// Of at least one value. What is negative by the clock's jitter is 0.
    pub fn of(values: &[f64]) -> Sample {
        let values: Vec<f64> = values.iter().map(|value| value.max(0.0)).collect();
        Sample {
            median: stats::median(&values),
            quartiles: (stats::quantile(&values, 0.25), stats::quantile(&values, 0.75)),
            samples: values.len(),
        }
    }

    /// As a profile's source says it.
    pub fn source(&self, what: &str) -> String {
        let (low, high) = self.quartiles;
        format!("measured: {what}; median of {}, quartiles {} and {}", self.samples, round(low), round(high))
    }
}

/// A number with three digits that matter.
pub fn round(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let scale = 10f64.powi(2 - value.abs().log10().floor() as i32);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        assert_eq!(round(123_456.0), 123_000.0);
        assert_eq!(round(1.23456), 1.23);
        assert_eq!(round(0.0), 0.0);
        assert_eq!(round(98.76), 98.8);
    }

    #[test]
    fn the_median_counts() {
        let sample = Sample::of(&[5.0, -1.0, 1e9, 4.0, 6.0]);
        assert_eq!((sample.median, sample.samples), (5.0, 5));
        assert_eq!(sample.quartiles, (4.0, 6.0));
    }
}

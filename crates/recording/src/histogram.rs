//! The buckets of durations: log-linear, so that each bucket is at most 1/32 of its values wide, or 8 ns.
//!
//! Durations below 256 ns lie in buckets of 8 ns. Above, each power of two has 32 buckets. The middle of a bucket is
//! therefore within 1.6% or 4 ns of each duration in it.

/// The width of the smallest buckets is 2 to this power, in nanoseconds.
const UNIT_BITS: u32 = 3;
/// Each power of two has 2 to this power buckets.
const SUB_BITS: u32 = 5;
const SUB: usize = 1 << SUB_BITS;
/// How many powers of two lie above the smallest buckets. The last bucket ends at 2^37 ns, 137 s.
const POWERS: usize = 29;

/// Buckets of a histogram.
pub const BUCKETS: usize = SUB + POWERS * SUB;

/// The bucket of a duration. Durations of 137 s and more lie in the last one.
#[inline]
pub fn bucket(nanos: u64) -> usize {
    let units = nanos >> UNIT_BITS;
    if units < SUB as u64 {
        return units as usize;
    }
    let power = u64::BITS - 1 - units.leading_zeros() - SUB_BITS;
    let within = (units >> power) as usize - SUB;
    (SUB + power as usize * SUB + within).min(BUCKETS - 1)
}

/// The first duration of a bucket, and the first behind it, in nanoseconds.
pub fn bounds(bucket: usize) -> (u64, u64) {
    let bucket = bucket.min(BUCKETS - 1);
    let (power, within) = match bucket.checked_sub(SUB) {
        None => (0, bucket as u64),
        Some(above) => (above / SUB, (SUB + above % SUB) as u64),
    };
    let start = within << power << UNIT_BITS;
    (start, start + (1 << power << UNIT_BITS))
}

/// The middle of a bucket, in nanoseconds.
pub fn middle(bucket: usize) -> u64 {
    let (start, end) = bounds(bucket);
    start + (end - start) / 2
}

/// The duration below which the part `q` (0 to 1) of all counted durations lie. `None`: there are none.
pub fn quantile(counts: &[u64], q: f64) -> Option<u64> {
    let total: u64 = counts.iter().sum();
    if total == 0 {
        return None;
    }
    let wanted = ((total as f64 * q).ceil() as u64).clamp(1, total);
    let mut seen = 0;
    counts
        .iter()
        .position(|count| {
            seen += count;
            seen >= wanted
        })
        .map(middle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_adjacent_and_narrow() {
        for index in 0..BUCKETS {
            let (start, end) = bounds(index);
            assert_eq!((bucket(start), bucket(end - 1)), (index, index));
            assert!(end - start <= (start / 32).max(8), "{start}..{end}");
            if index + 1 < BUCKETS {
                assert_eq!(bounds(index + 1).0, end);
            }
        }
        assert_eq!(bounds(BUCKETS - 1).1, 1 << 37);
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_within_two_percent() {
        let mut counts = [0; BUCKETS];
        (1..=1000).for_each(|micros| counts[bucket(micros * 1000)] += 1);
        for (q, truth) in [(0.5, 500_000.0), (0.99, 990_000.0), (1.0, 1_000_000.0)] {
            let found = quantile(&counts, q).unwrap() as f64;
            assert!((found / truth - 1.0).abs() < 0.02, "{q}: {found}");
        }
        assert_eq!(quantile(&[0; BUCKETS], 0.5), None);
    }
}

//! How long waits and holds were, and how far an estimate of that may be off.

/// Lengths of many waits or holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lengths {
    /// How many there were.
    pub count: u64,
    /// Sum of all, in nanoseconds. Of a sample: of those in the sample.
    pub sum_ns: u64,
    /// The longest one.
    pub max_ns: u64,
    /// How many there were of each length, in order.
    pub buckets: Vec<Bucket>,
}

/// Lengths from `start` up to `end`, in nanoseconds.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    pub start: u64,
    pub end: u64,
    pub count: u64,
}

impl Lengths {
    /// The mean in nanoseconds.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count).unwrap_or(0)
    }

    /// The standard error of the mean of holds, which are a sample, from the holds that are in it.
    ///
    /// The recording has no weights, but a bucket cannot have a hold of a larger weight than its count: so a single long hold that met
    /// contention, and stands for itself, adds nothing. The mean is a ratio of two estimates, so its error depends on the distances
    /// from the mean.
    pub fn sampling_error_ns(&self) -> Error {
        // One hold in 64, and later one in 512, if the thread has measured 1024: see `HOLD_PERIODS` of the recorder.
        let many = self.count > 64 * 1024;
        let mean = self.mean_ns() as f64;
        let variance = self.buckets.iter().map(|bucket| {
            let weight = if many && bucket.count >= 512 { 512 } else { 64 };
            let chosen = (bucket.count / weight) as f64;
            let distance = bucket.start.midpoint(bucket.end) as f64 - mean;
            chosen * (weight * (weight - 1)) as f64 * distance * distance
        });
        Error((variance.sum::<f64>().sqrt() / self.count.max(1) as f64) as u64)
    }

    /// The length that the share `quantile` does not exceed: the middle of the bucket that holds it.
    pub fn quantile_ns(&self, quantile: f64) -> u64 {
        // A damaged recording may have any numbers.
        let total = self.buckets.iter().fold(0_u64, |total, bucket| total.saturating_add(bucket.count));
        let rank = (total as f64 * quantile).ceil().max(1.0) as u64;
        let mut seen = 0_u64;
        for bucket in &self.buckets {
            seen = seen.saturating_add(bucket.count);
            if seen >= rank {
                return bucket.start.midpoint(bucket.end).min(self.max_ns);
            }
        }
        self.max_ns
    }

    /// Adds what another lock of the class has.
    pub fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        for more in &other.buckets {
            match self.buckets.binary_search_by_key(&more.start, |bucket| bucket.start) {
                Ok(index) => {
                    let count = &mut self.buckets[index].count;
                    *count = count.saturating_add(more.count);
                }
                Err(index) => self.buckets.insert(index, *more),
            }
        }
    }
}

/// The standard error of an estimate, in nanoseconds; 0: it is no estimate, but exact.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Error(pub u64);

impl Error {
    /// That of the sum of two estimates.
    pub fn and(self, other: Self) -> Self {
        // Not `hypot`, which glibc 2.35 has in a new version: the command would not start with 2.34.
        let (a, b) = (self.0 as f64, other.0 as f64);
        Self((a * a + b * b).sqrt() as u64)
    }

    /// Half of the interval that has the truth in 95 of 100 runs: twice the error.
    pub fn margin_ns(self) -> u64 {
        2 * self.0
    }
}

//! Latencies in buckets whose width grows with their value.

use super::LatencySummary;

/// Buckets per power of two: a value is at most 1/32 below the top of its bucket.
const STEPS: u64 = 32;
const STEP_BITS: u32 = STEPS.trailing_zeros();

/// Counts by value; 0 to 31 exactly, above that with 3.2 % resolution.
pub(super) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        let buckets = bucket(u64::MAX) + 1;
        Self {
            counts: vec![0; buckets],
            total: 0,
            max: 0,
        }
    }
}

/// The bucket of a value.
fn bucket(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let exponent = value.ilog2() - STEP_BITS;
    ((u64::from(exponent) + 1) * STEPS + (value >> exponent) - STEPS) as usize
}

/// The largest value of a bucket.
fn bucket_top(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let exponent = bucket / STEPS - 1;
    let mantissa = u128::from(bucket % STEPS + STEPS + 1);
    u64::try_from((mantissa << exponent) - 1).unwrap_or(u64::MAX)
}

impl Histogram {
    pub(super) fn add(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.total += 1;
        self.max = self.max.max(value);
    }

    /// The smallest bucket top that at least `per_mille` of all values do not exceed.
    fn percentile(&self, per_mille: u64) -> u64 {
        let wanted = (u128::from(self.total) * u128::from(per_mille)).div_ceil(1000);
        let mut seen = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            seen += u128::from(count);
            if count > 0 && seen >= wanted {
                return bucket_top(bucket).min(self.max);
            }
        }
        self.max
    }

    pub(super) fn summary(&self) -> LatencySummary {
        LatencySummary {
            p50_ns: self.percentile(500),
            p95_ns: self.percentile(950),
            p99_ns: self.percentile(990),
            max_ns: self.max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        let mut previous = 0;
        for value in (0..63).flat_map(|bits| [1u64 << bits, (1 << bits) + 1, (1 << bits) * 2 - 1]) {
            let at = bucket(value);
            assert!(value <= bucket_top(at), "{value}");
            assert!(at == 0 || value > bucket_top(at - 1), "{value}");
            assert!(bucket_top(at) - value <= value / STEPS, "{value}");
            assert!(at >= previous || value == 1, "{value}");
            previous = at;
        }
        assert_eq!(bucket_top(bucket(u64::MAX)), u64::MAX);
    }

    #[test]
    fn percentiles_of_known_values() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.summary(), LatencySummary::default());
        for value in 1..=1000 {
            histogram.add(value);
        }
        let summary = histogram.summary();
        assert_eq!((summary.p50_ns, summary.max_ns), (503, 1000));
        assert!((950..=980).contains(&summary.p95_ns));
        assert!((990..=1000).contains(&summary.p99_ns));
    }
}

//! Latency percentiles from counters: no lock, no allocation, 2 KiB.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets per doubling: a percentile is right to about 1/8.
const STEPS: usize = 8;
const BUCKETS: usize = 32 * STEPS;

// `bucket` takes the three bits behind the leading one; 32 doublings of 1 ns are 4 s.
const _: () = assert!(STEPS == 1 << 3 && BUCKETS / STEPS == 32);
const _: () = assert!(size_of::<Histogram>() == (BUCKETS + 1) * size_of::<u64>());

/// Durations from 1 ns to 4 s, longer ones in the last bucket.
#[doc(hidden)]
#[derive(Debug)]
pub struct Histogram {
    counts: [AtomicU64; BUCKETS],
    total_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            total_ns: AtomicU64::new(0),
        }
    }
}

/// The lowest and the highest bound of [`Latency::below`]: powers of two, nanoseconds.
const LOWEST: usize = 10;
const HIGHEST: usize = 31;
/// Bounds in between, both included.
const BOUNDS: usize = HIGHEST - LOWEST + 1;

/// Count, mean and percentiles, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Requests.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// Requests that took less than each of [`Latency::bounds_s`]; not part of what is serialised.
    #[serde(skip)]
    pub below: [u64; BOUNDS],
}

impl Latency {
    /// Bounds for a histogram, in seconds, rising: from 1 µs to 2 s by doubling.
    pub fn bounds_s() -> impl Iterator<Item = f64> {
        (LOWEST..=HIGHEST).map(|power| (1_u64 << power) as f64 / 1e9)
    }
}

fn bucket(ns: u64) -> usize {
    let ns = ns.max(STEPS as u64);
    let power = ns.ilog2() as usize;
    let step = (ns >> (power - 3)) as usize - STEPS;
    debug_assert!(step < STEPS, "the leading bit is taken off");
    let found = (power * STEPS + step).min(BUCKETS - 1);
    debug_assert!(
        found == BUCKETS - 1 || (middle(found) / ns as f64 - 1.0).abs() <= 0.5 / STEPS as f64,
        "a duration is near the middle of its bucket"
    );
    found
}

/// Middle of a bucket, in nanoseconds.
fn middle(bucket: usize) -> f64 {
    debug_assert!(bucket < BUCKETS);
    let (power, step) = (bucket / STEPS, bucket % STEPS);
    2f64.powi(power as i32) * (1.0 + (step as f64 + 0.5) / STEPS as f64)
}

impl Histogram {
    /// Counts one duration.
    pub fn add(&self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.counts[bucket(ns)].fetch_add(1, Ordering::Relaxed);
        self.total_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Summary so far.
    #[must_use]
    pub fn latency(&self) -> Latency {
        let counts: Vec<u64> = self
            .counts
            .iter()
            .map(|c| c.load(Ordering::Relaxed))
            .collect();
        let count: u64 = counts.iter().sum();
        if count == 0 {
            return Latency::default();
        }
        let percentile = |share: f64| {
            let rank = (count as f64 * share).ceil().max(1.0) as u64;
            debug_assert!(rank <= count, "the last rank is the largest value");
            let mut seen = 0;
            let at = counts.iter().position(|n| {
                seen += n;
                seen >= rank
            });
            debug_assert!(at.is_some(), "the buckets add up to the count");
            middle(at.unwrap_or(BUCKETS - 1)) / 1000.0
        };
        let below = std::array::from_fn(|at| counts[..(LOWEST + at) * STEPS].iter().sum());
        let latency = Latency {
            below,
            count,
            mean_us: self.total_ns.load(Ordering::Relaxed) as f64 / count as f64 / 1000.0,
            p50_us: percentile(0.50),
            p95_us: percentile(0.95),
            p99_us: percentile(0.99),
        };
        debug_assert!(latency.p50_us <= latency.p95_us && latency.p95_us <= latency.p99_us);
        latency
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_right_to_an_eighth() {
        let histogram = Histogram::default();
        (1..=1000u64).for_each(|us| histogram.add(Duration::from_micros(us)));
        let latency = histogram.latency();
        assert_eq!(latency.count, 1000);
        assert!((latency.mean_us - 500.5).abs() < 0.01);
        for (found, exact) in [
            (latency.p50_us, 500.0),
            (latency.p95_us, 950.0),
            (latency.p99_us, 990.0),
        ] {
            assert!(
                (found / exact - 1.0).abs() < 0.125,
                "{found} is not {exact}"
            );
        }
    }

    #[test]
    fn durations_below_each_bound_are_counted() {
        let histogram = Histogram::default();
        for ns in [1, 1023, 1024, 1_000_000, 1 << 31, u64::MAX] {
            histogram.add(Duration::from_nanos(ns));
        }
        let latency = histogram.latency();
        let bounds: Vec<f64> = Latency::bounds_s().collect();
        assert_eq!((bounds[0], bounds.len()), (1.024e-6, latency.below.len()));
        let below = |seconds: f64| {
            let at = bounds.iter().position(|bound| *bound >= seconds);
            latency.below[at.expect("a bound")]
        };
        assert_eq!((below(1e-6), below(2e-6), below(1e-3)), (2, 3, 4));
        assert_eq!(
            latency.below.last(),
            Some(&4),
            "longer ones are only counted"
        );
        assert_eq!(latency.count, 6);
    }

    #[test]
    fn every_duration_has_a_bucket() {
        let mut last = 0;
        for ns in (0..64).map(|p| 1u64 << p).chain([0, 7, 9, u64::MAX]) {
            assert!(bucket(ns) < BUCKETS);
            if ns.is_power_of_two() {
                assert!(bucket(ns) >= last);
                last = bucket(ns);
            }
        }
    }
}

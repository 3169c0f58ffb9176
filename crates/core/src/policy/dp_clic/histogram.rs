//! What DP-CLIC keeps of a hint set: when its pages are requested again, and from that its
//! priority curve (thesis §4.2, §4.3).

use crate::policy::Op;
use crate::policy::hints::{ClicConfig, Counts, Evidence};

/// Re-references at one range of distances, those of earlier windows with less weight. In half as
/// many bits, one more would be none from 2^24 on.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    reads: f64,
    writes: f64,
}

impl Bucket {
    fn all(&self) -> f64 {
        self.reads + self.writes
    }
}

/// Read and write re-reference histograms of a hint set H, and the priority curve they give.
///
/// Buckets are made up to the largest distance seen: 16 bytes each, and 4 in a curve.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    /// W: distances per bucket.
    width: u64,
    /// Buckets at most; what is requested again later counts as not requested again.
    max: u32,
    buckets: Vec<Bucket>,
    /// Pr(H, d) for d at the beginning of each bucket; 0 beyond.
    curve: Vec<f32>,
    /// Where the curve is highest.
    peak: u32,
    /// Pr(H, d) beyond the curve, and no less than that anywhere: the share of CLIC's priority.
    beyond: f32,
    /// See [`ClicConfig::evidence`].
    evidence: f64,
}

impl Histogram {
    /// Nothing recorded.
    pub(super) fn new(config: &ClicConfig, capacity: u32) -> Self {
        assert!(config.buckets > 0, "a histogram has buckets");
        Self {
            width: config.bucket_width_of(capacity),
            max: config.buckets,
            buckets: Vec::new(),
            curve: Vec::new(),
            peak: 0,
            beyond: 0.0,
            evidence: f64::from(config.evidence),
        }
    }

    fn bucket(&self, distance: u64) -> usize {
        usize::try_from(distance / self.width).unwrap_or(usize::MAX)
    }

    /// Pr(H, d) for d = `distance`.
    pub(super) fn priority(&self, distance: u64) -> f64 {
        let found = self.curve.get(self.bucket(distance));
        f64::from(found.copied().unwrap_or(self.beyond))
    }

    /// The highest priority of the curve.
    pub(super) fn highest(&self) -> f64 {
        let found = self.curve.get(self.peak as usize);
        f64::from(found.copied().unwrap_or(self.beyond))
    }

    /// Whether `distance` lies beyond the peak.
    pub(super) fn has_passed(&self, distance: u64) -> bool {
        self.bucket(distance) > self.peak as usize
    }

    /// Whether the curve never falls before its peak and never rises after it.
    #[cfg(test)]
    pub(super) fn is_hill(&self) -> bool {
        let (rise, fall) = self.curve.split_at(self.peak as usize);
        rise.is_sorted() && fall.is_sorted_by(|a, b| a >= b) && rise.last() <= fall.first()
    }

    /// Equation 4.6, bucket by bucket: for d at the beginning of bucket i, the sum over buckets
    /// j >= i of N_r(j) / N(i) / (distance from d to the middle of j). N(i) is what had not been
    /// requested again before bucket i (equation 4.2). O(buckets × buckets with reads).
    fn make_curve(&mut self, requests: f64) {
        let reads = self.buckets.iter().rposition(|bucket| bucket.reads > 0.0);
        let len = reads.map_or(0, |last| last + 1);
        let gain: Vec<f64> = (0..len)
            .map(|apart| 1.0 / ((apart as f64 + 0.5) * self.width as f64))
            .collect();
        let mut curve = vec![0.0; len];
        for (at, bucket) in self.buckets.iter().enumerate().take(len) {
            if bucket.reads > 0.0 {
                let before = curve[..=at].iter_mut().zip(gain[..=at].iter().rev());
                before.for_each(|(sum, gain)| *sum += bucket.reads * gain);
            }
        }
        // A page requested again in a window may have been requested first in an earlier one, so
        // more can come back than were sent out.
        let again: f64 = self.buckets.iter().map(Bucket::all).sum();
        let mut left = (requests - again).max(0.0);
        for (at, bucket) in self.buckets.iter().enumerate().rev() {
            left += bucket.all();
            if at < len {
                debug_assert!(left > 0.0, "reads are still to come");
                curve[at] /= left;
            }
        }
        self.curve = curve.into_iter().map(|priority| priority as f32).collect();
        self.peak = 0;
        for (at, priority) in (0u32..).zip(&self.curve) {
            if *priority > self.curve[self.peak as usize] {
                self.peak = at;
            }
        }
    }

    /// Weighs the curve by the reads it was made of: while they are few it is nearly CLIC's
    /// priority, the same at all distances. A hill stays a hill, with the same peak.
    fn blend(&mut self, counts: &Counts) {
        if self.evidence <= 0.0 {
            return;
        }
        let own: f64 = self.buckets.iter().map(|bucket| bucket.reads).sum();
        let own = own / (own + self.evidence);
        self.beyond = (counts.priority() * (1.0 - own)) as f32;
        for priority in &mut self.curve {
            *priority = *priority * own as f32 + self.beyond;
        }
    }
}

impl Evidence for Histogram {
    fn record(&mut self, distance: u64, op: Op) {
        let at = self.bucket(distance);
        if at >= self.max as usize {
            return;
        }
        if at >= self.buckets.len() {
            self.buckets.resize(at + 1, Bucket::default());
        }
        match op {
            Op::Read => self.buckets[at].reads += 1.0,
            Op::Write => self.buckets[at].writes += 1.0,
        }
    }

    fn join(&mut self, older: &Self, weight: f64) {
        debug_assert!(self.width == older.width && (0.0..=1.0).contains(&weight));
        if weight > 0.0 && self.buckets.len() < older.buckets.len() {
            self.buckets.resize(older.buckets.len(), Bucket::default());
        }
        for (bucket, older) in self.buckets.iter_mut().zip(&older.buckets) {
            bucket.reads += weight * older.reads;
            bucket.writes += weight * older.writes;
        }
    }

    /// Makes the curve; its peak stands for the whole of it where one number must.
    fn conclude(&mut self, counts: &Counts) -> f64 {
        self.make_curve(counts.requests);
        self.blend(counts);
        self.highest()
    }

    fn clear(&mut self) {
        self.buckets.clear();
        self.curve.clear();
        self.peak = 0;
        self.beyond = 0.0;
    }

    fn bytes(&self) -> usize {
        self.buckets.capacity() * size_of::<Bucket>() + self.curve.capacity() * size_of::<f32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn empty(buckets: u32, width: u64) -> Histogram {
        let config = ClicConfig {
            buckets,
            bucket_width: width,
            evidence: 0,
            ..ClicConfig::default()
        };
        Histogram::new(&config, 100)
    }

    /// Three reads weigh as much as CLIC's priority, be the distance within the curve or not.
    #[test]
    fn few_reads_leave_the_priority_of_clic() {
        let mut histogram = empty(10, 10);
        histogram.evidence = 3.0;
        let counts = Counts {
            requests: 6.0,
            rereads: 3.0,
            distance: 75.0,
        };
        assert_eq!(
            histogram.conclude(&counts),
            f64::from(counts.priority() as f32)
        );
        assert_eq!(histogram.priority(999), histogram.highest(), "flat");
        for _ in 0..3 {
            histogram.record(25, Op::Read);
        }
        histogram.conclude(&counts);
        let flat = counts.priority() / 2.0;
        let found = [0, 20, 30].map(|distance| histogram.priority(distance));
        let expected = [3.0 / 6.0 / 25.0, 3.0 / 6.0 / 5.0, 0.0].map(|p| p / 2.0 + flat);
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
        }
        assert!(histogram.is_hill() && histogram.highest() == found[1]);
    }

    fn counts(requests: u64) -> Counts {
        Counts {
            requests: requests as f64,
            ..Counts::default()
        }
    }

    /// Equation 4.6 by hand: 4 requests, one written again in bucket 0, two read in bucket 2.
    #[test]
    fn a_curve_by_hand() {
        let mut histogram = empty(10, 10);
        histogram.record(5, Op::Write);
        histogram.record(20, Op::Read);
        histogram.record(29, Op::Read);
        histogram.record(100, Op::Read);
        let highest = histogram.conclude(&counts(4));
        assert_eq!(highest, histogram.priority(25), "bucket 2 is the peak");
        let expected = [2.0 / 4.0 / 25.0, 2.0 / 3.0 / 15.0, 2.0 / 3.0 / 5.0, 0.0];
        for (distance, expected) in [3, 10, 25, 30].into_iter().zip(expected) {
            let found = histogram.priority(distance);
            assert!((found - expected).abs() < 1e-6, "{distance}: {found}");
        }
        assert!(!histogram.has_passed(29) && histogram.has_passed(30));
        assert!(histogram.is_hill());
    }

    #[test]
    fn nothing_read_is_worth_nothing() {
        let mut histogram = empty(10, 10);
        histogram.record(5, Op::Write);
        assert_eq!(histogram.conclude(&counts(2)), 0.0);
        assert_eq!(histogram.priority(0), 0.0);
    }

    #[test]
    fn earlier_windows_weigh_less() {
        let mut older = empty(10, 10);
        for _ in 0..4 {
            older.record(25, Op::Read);
        }
        let mut newer = empty(10, 10);
        newer.record(5, Op::Read);
        newer.join(&older, 0.5);
        newer.conclude(&counts(6));
        let expected = 1.0 / 6.0 / 5.0 + 2.0 / 6.0 / 25.0;
        assert!((newer.priority(0) - expected).abs() < 1e-6);
        assert!((newer.priority(20) - 2.0 / 5.0 / 5.0).abs() < 1e-6);
    }

    /// In a window as long as that of a large tier each re-reference counts.
    #[test]
    fn one_more_counts_after_many() {
        let mut histogram = empty(10, 10);
        histogram.record(25, Op::Read);
        histogram.record(25, Op::Write);
        let many = 16_777_216.0;
        (histogram.buckets[2].reads, histogram.buckets[2].writes) = (many, many);
        histogram.record(25, Op::Read);
        histogram.record(25, Op::Write);
        assert_eq!(histogram.buckets[2].all(), 2.0 * 16_777_217.0);
    }

    proptest! {
        /// Beside the sum as it is written, over distances at the middles of their buckets.
        #[test]
        fn equals_the_sum(
            width in 1u64..20,
            requests in 0u64..100,
            again in prop::collection::vec((0u64..200, any::<bool>()), 1..60),
            d in 0u64..250,
        ) {
            let mut histogram = empty(8, width);
            for (distance, read) in &again {
                histogram.record(*distance, if *read { Op::Read } else { Op::Write });
            }
            let highest = histogram.conclude(&counts(requests));
            let counted = again.iter().filter(|e| e.0 / width < 8);
            let counted: Vec<(u64, bool)> = counted.map(|e| (e.0 / width, e.1)).collect();
            let d = d / width;
            let gone = counted.iter().filter(|e| e.0 < d).count() as u64;
            let left = (requests.max(counted.len() as u64) - gone) as f64;
            let terms = counted.iter().filter(|e| e.0 >= d && e.1);
            let cost = |bucket: u64| ((bucket - d) as f64 + 0.5) * width as f64;
            let sum: f64 = terms.map(|e| 1.0 / left / cost(e.0)).sum();
            let found = histogram.priority(d * width);
            prop_assert!((found - sum).abs() <= 1e-5 * sum, "{} {}", found, sum);
            prop_assert!(found <= highest);
        }
    }
}

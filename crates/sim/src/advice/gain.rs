//! A gain with its uncertainty.

use crate::result::RunResult;
use serde::{Deserialize, Serialize};

/// Blocks of time that a run is cut into.
pub const BLOCKS: usize = 8;
/// Student's t for 95 %, two-sided, with `BLOCKS - 1` degrees of freedom.
const STUDENT: f64 = 2.365;
/// How much further apart than the halves of this period are this period and the next: their
/// middles are as far apart as the trace is long, those of the halves half of what is counted,
/// which is four fifths of it ([`Gain`] does not know of other warm-ups).
const AHEAD: f64 = 1.0 / (0.5 * 0.8);
/// How far the time that is left may be from what it was, as a part of it, for reasons that nothing
/// in one recording shows. Chosen on the halves of the captures of MariaDB, so that all advice on
/// the first held in the second; those of PostgreSQL judge it (evaluation/results/advise.md).
const BETWEEN: f64 = 0.04;

/// The part of the virtual time that goes, in per cent, and how far that of another period as long
/// may be from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gain {
    /// Per cent of the time; below 0 when it takes longer.
    pub percent: f64,
    /// Points either way: 95 %.
    pub plus_minus: f64,
}

impl Gain {
    /// What `with` gains on `without`, two runs over the same requests.
    #[must_use]
    pub fn between(without: &RunResult, with: &RunResult) -> Self {
        Self::of(&blocks(without), &blocks(with))
    }

    /// The same of two runs of which this is the virtual time at the beginning and at the ends of
    /// equally long parts, ms.
    #[must_use]
    pub fn between_ends(without: &[f64], with: &[f64]) -> Self {
        Self::of(&blocks_of(without), &blocks_of(with))
    }

    /// The same of the times of each block.
    ///
    /// The gain is 1 - sum of b / sum of a: a ratio estimate. Its variance is that of the residuals
    /// d = (a - b) - gain × a (Cochran: "Sampling Techniques", 3rd ed., §6.3). Another period has
    /// the same variance again. To it comes the *drift*: as fast as the gain moved from the first
    /// half to the second it may go on moving, either way, until the middle of the next period.
    /// Blocks do not show that when each is like the last. Last, two periods differ in more than
    /// their parts do: [`BETWEEN`] of the time that is left.
    fn of(without: &[f64], with: &[f64]) -> Self {
        let (all, left): (f64, f64) = (without.iter().sum(), with.iter().sum());
        let count = without.len() as f64;
        if all <= 0.0 || count < 2.0 {
            return Self::default();
        }
        let gain = 1.0 - left / all;
        let residuals = without.iter().zip(with).map(|(a, b)| (a - b) - gain * a);
        let squares: f64 = residuals.map(|d| d * d).sum();
        let deviation = (count / (count - 1.0) * squares).sqrt() / all;
        let spread = STUDENT * std::f64::consts::SQRT_2 * deviation;
        let half = |from: usize, to: usize| {
            let sum = |times: &[f64]| times[from..to].iter().sum::<f64>();
            1.0 - sum(with) / sum(without).max(f64::MIN_POSITIVE)
        };
        let middle = without.len() / 2;
        let drift = half(middle, without.len()) - half(0, middle);
        Self {
            percent: 100.0 * gain,
            plus_minus: 100.0 * spread.hypot(AHEAD * drift).hypot(BETWEEN * (1.0 - gain)),
        }
    }

    /// Whether another period would gain as well, most likely.
    #[must_use]
    pub fn is_sure(&self) -> bool {
        self.percent > self.plus_minus
    }

    /// The part of the uncertainty that the recording itself shows: without [`BETWEEN`].
    #[must_use]
    pub(super) fn shown(&self) -> f64 {
        let between = BETWEEN * (100.0 - self.percent);
        (self.plus_minus.powi(2) - between.powi(2)).max(0.0).sqrt()
    }

    /// Whether `observed`, of another period, is as near as was said.
    #[must_use]
    pub fn holds(&self, observed: &Self) -> bool {
        (observed.percent - self.percent).abs() <= self.plus_minus
    }
}

/// Virtual time of each block of the counted part, ms. Blocks have equally many requests, but for
/// the last one.
fn blocks(run: &RunResult) -> Vec<f64> {
    let before = run.samples.iter();
    let warm = before.take_while(|sample| sample.requests < run.warm_up_requests);
    // The sample in which the warm-up ends is the first whose end counts as a beginning.
    let from = warm.count();
    blocks_of(run.sample_ms.get(from..).unwrap_or_default())
}

/// The blocks between equally many of `ends` each.
fn blocks_of(ends: &[f64]) -> Vec<f64> {
    let Some(steps) = ends.len().checked_sub(1) else {
        return Vec::new();
    };
    let end = |block: usize| ends[block * steps / BLOCKS];
    (0..BLOCKS)
        .map(|block| end(block + 1) - end(block))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Sample;

    #[test]
    fn equal_blocks_are_certain_and_unequal_ones_are_not() {
        let without = [10.0; BLOCKS];
        let halved = Gain::of(&without, &[5.0; BLOCKS]);
        assert_eq!((halved.percent, halved.plus_minus), (50.0, 2.0));
        let mut with = [5.0; BLOCKS];
        (with[0], with[1]) = (0.0, 10.0);
        let unsure = Gain::of(&without, &with);
        assert_eq!(unsure.percent, 50.0);
        // Two residuals of 5 among 80: sqrt(8 / 7 × 50) / 80.
        let deviation = (8.0f64 / 7.0 * 50.0).sqrt() / 80.0;
        let spread = 100.0 * 2.365 * 2f64.sqrt() * deviation;
        assert!((unsure.plus_minus - spread.hypot(2.0)).abs() < 1e-9);
        assert!((unsure.shown() - spread).abs() < 1e-9 && halved.shown() < 1e-9);
        assert!(halved.is_sure() && unsure.holds(&halved) && !halved.holds(&unsure.worse()));
        assert_eq!(Gain::of(&[], &[]), Gain::default());
        // From 60 % to 40 %, in two steps.
        let with = [4.0, 4.0, 4.0, 4.0, 6.0, 6.0, 6.0, 6.0];
        let moved = Gain::of(&without, &with);
        let spread = 100.0 * STUDENT * 2f64.sqrt() * (8.0f64 / 7.0 * 8.0).sqrt() / 80.0;
        let drift = 2.5 * 20.0;
        assert!((moved.plus_minus - spread.hypot(drift).hypot(2.0)).abs() < 1e-9);
    }

    impl Gain {
        fn worse(&self) -> Self {
            Self {
                percent: self.percent - 3.0,
                ..*self
            }
        }
    }

    #[test]
    fn blocks_begin_after_the_warm_up() {
        let sample = |at: u64| Sample {
            requests: 10 * at,
            ..Sample::default()
        };
        let run = RunResult {
            warm_up_requests: 200,
            samples: (1..=100).map(sample).collect(),
            sample_ms: (1..=100).map(|at| f64::from(at) * 2.0).collect(),
            ..RunResult::default()
        };
        // Samples 20 to 100 are the ends: 80 samples of 2 ms in 8 blocks.
        assert_eq!(blocks(&run), [20.0; BLOCKS]);
    }
}

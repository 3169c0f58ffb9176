//! The value of a page: a sum of weights, one from each of some tables, and how they are learned.
//!
//! V = 1 / (1 + e^-z), z = bias + the weights found under the page's [`Indices`]. A weight moves
//! against the error of V with a step that shrinks as its errors add up (AdaGrad: Duchi, Hazan and
//! Singer, JMLR 2011). Cost: one cache line a table to score, one to learn. Memory: 8 bytes a
//! weight, 2048 weights a table, the same for every size of tier.
//!
//! # Invariants
//! 1. Weights, bias and sums of squared errors are finite, and no sum is negative: they are 0 at
//!    first, and each error that changes some is finite, which [`Model::learn`] checks.

use super::math;

/// Tables.
pub(super) const TABLES: usize = 17;
/// Weights of one table.
pub(super) const WEIGHTS: usize = 1 << 11;

/// For each table the position of the weight that stands for a page now.
pub(super) type Indices = [u16; TABLES];

/// First step of a weight, for an error of 1.
const STEP: f32 = 0.1;
/// Step of the bias.
const BIAS_STEP: f32 = 0.001;
/// What nothing is known of is worth e^-1 to 1.
const BIAS_FIRST: f32 = -1.0;

#[derive(Clone, Copy, Debug, Default)]
struct Weight {
    weight: f32,
    /// Sum of the squares of its errors.
    squares: f32,
}

/// See the module text.
#[derive(Clone, Debug)]
pub(super) struct Model {
    weights: Vec<Weight>,
    bias: f32,
}

impl Model {
    /// Bytes of one.
    pub(super) const BYTES: usize = TABLES * WEIGHTS * size_of::<Weight>();

    /// Nothing learned.
    pub(super) fn new() -> Self {
        Self {
            weights: vec![Weight::default(); TABLES * WEIGHTS],
            bias: BIAS_FIRST,
        }
    }

    /// The odds V / (1 - V), above 0. O(tables).
    pub(super) fn odds(&self, indices: &Indices) -> f32 {
        let weights = indices.iter().enumerate();
        let sum: f32 = weights.map(|(table, &at)| self.at(table, at).weight).sum();
        math::exp(self.bias + sum)
    }

    /// V, between 0 and 1.
    pub(super) fn value(&self, indices: &Indices) -> f32 {
        let odds = self.odds(indices);
        odds / (1.0 + odds)
    }

    /// A page that had these indices turned out to be worth `target`, from 0 to 1. O(tables).
    pub(super) fn learn(&mut self, indices: &Indices, target: f32) {
        debug_assert!((0.0..=1.0).contains(&target), "a value");
        let error = self.value(indices) - target;
        assert!(error.is_finite(), "invariant 1: {error}");
        self.bias -= BIAS_STEP * error;
        for (table, &at) in indices.iter().enumerate() {
            let weight = &mut self.weights[table * WEIGHTS + usize::from(at)];
            weight.squares += error * error;
            weight.weight -= STEP * error / (weight.squares + 1.0).sqrt();
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.weights.capacity() * size_of::<Weight>()
    }

    /// Panics unless the numbered invariant holds. O(weights): too slow for every step of a test.
    #[cfg(test)]
    pub(super) fn assert_invariants(&self) {
        assert!(self.bias.is_finite(), "invariant 1");
        for weight in &self.weights {
            assert!(weight.weight.is_finite(), "invariant 1");
            assert!(
                weight.squares.is_finite() && weight.squares >= 0.0,
                "invariant 1"
            );
        }
    }

    fn at(&self, table: usize, at: u16) -> &Weight {
        &self.weights[table * WEIGHTS + usize::from(at)]
    }
}

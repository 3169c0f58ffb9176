//! Hints that mean nothing, to see what they do to a policy that learns (thesis §3.4.4).
//!
//! T extra hint types, each with [`NOISE_VALUES`] values drawn from a Zipf distribution with
//! skew 1, independently for each type and each I/O. The draw is a pure function of the seed,
//! the number of the I/O in the workload and the type, so that every policy and every size sees
//! the same noise.

use thermocline_core::hash::mix;

/// D of the thesis: values of one noise type.
pub const NOISE_VALUES: u32 = 10;

/// How much noise, and which.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noise {
    /// T: hint types to add.
    pub types: usize,
    /// Seed of the draws.
    pub seed: u64,
}

impl Noise {
    /// The value of noise type `position` (from 0) for I/O number `io`: 1 (the most frequent) to
    /// [`NOISE_VALUES`].
    #[must_use]
    pub fn value(&self, io: u64, position: usize) -> u32 {
        let word = mix(mix(self.seed, io), position as u64 + 1);
        // 53 bits make an exact fraction below 1.
        let share = (word >> 11) as f64 / (1u64 << 53) as f64;
        let weights = (1..=NOISE_VALUES).map(|rank| 1.0 / f64::from(rank));
        let mut left = share * weights.clone().sum::<f64>();
        for (rank, weight) in (1..).zip(weights) {
            if left < weight {
                return rank;
            }
            left -= weight;
        }
        NOISE_VALUES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_follow_zipf() {
        let noise = Noise { types: 2, seed: 1 };
        let total = 100_000;
        for position in 0..2 {
            let mut counts = [0u32; NOISE_VALUES as usize + 1];
            for io in 0..total {
                counts[noise.value(io, position) as usize] += 1;
            }
            let harmonic: f64 = (1..=NOISE_VALUES).map(|k| 1.0 / f64::from(k)).sum();
            assert_eq!(counts[0], 0, "0 means unknown");
            for rank in 1..=NOISE_VALUES {
                let expected = total as f64 / f64::from(rank) / harmonic;
                let found = f64::from(counts[rank as usize]);
                assert!((found / expected - 1.0).abs() < 0.05, "{rank}: {found}");
            }
        }
    }

    #[test]
    fn same_seed_same_noise_other_seed_other_noise() {
        let draw = |seed| {
            let noise = Noise { types: 1, seed };
            (0..50).map(|io| noise.value(io, 0)).collect::<Vec<_>>()
        };
        assert_eq!(draw(3), draw(3));
        assert_ne!(draw(3), draw(4));
    }
}

//! Hints that mean nothing, to see what they do to a policy that learns (thesis §3.4.4): how many
//! types of them a workload gets. What they are is drawn by [`thermocline_core::noise`] from the
//! seed and the number of the I/O, so that every policy and every size sees the same noise.

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

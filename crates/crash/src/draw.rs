//! Lots from a seed: all chance in this crate.

use thermocline_core::hash::mix;

/// A sequence of lots. The same seed gives the same sequence everywhere.
#[derive(Clone, Debug)]
pub struct Draw {
    seed: u64,
    drawn: u64,
}

impl Draw {
    /// The sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed: mix(seed, 0x7468_6572),
            drawn: 0,
        }
    }

    /// Any 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.seed, self.drawn)
    }

    /// 0 to `end` - 1.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "there is something to draw from");
        (self.bits() >> 16) % end
    }

    /// True `of` times in `all`.
    pub fn chance(&mut self, of: u64, all: u64) -> bool {
        assert!(of <= all, "a share is at most the whole");
        self.below(all) < of
    }

    /// One of `choices`.
    pub fn one<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence() {
        let sequence = |seed| {
            let mut draw = Draw::new(seed);
            (0..8).map(|_| draw.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(sequence(1), sequence(1));
        assert_ne!(sequence(1), sequence(2));
        let mut draw = Draw::new(3);
        let hits = (0..1000).filter(|_| draw.chance(1, 4)).count();
        assert!((200..300).contains(&hits), "{hits} of 1000 at one in four");
    }
}

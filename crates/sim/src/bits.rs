//! A set of small integers that knows its largest.

/// A set over 0..n as a tree of 64-way bit words. Insert, remove, largest: O(log64 n).
#[derive(Debug)]
pub(crate) struct BitTree {
    /// Leaves first; a bit of a level says that the word below it is not empty.
    levels: Vec<Vec<u64>>,
}

impl BitTree {
    /// The empty set over 0..`size`.
    pub(crate) fn new(size: usize) -> Self {
        let mut levels = Vec::new();
        let mut words = size.div_ceil(64).max(1);
        loop {
            levels.push(vec![0u64; words]);
            if words == 1 {
                return Self { levels };
            }
            words = words.div_ceil(64);
        }
    }

    /// Adds `value`.
    pub(crate) fn insert(&mut self, value: usize) {
        let mut at = value;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            let filled = *word != 0;
            *word |= 1 << (at % 64);
            if filled {
                return;
            }
            at /= 64;
        }
    }

    /// Takes `value` out; it must be there.
    pub(crate) fn remove(&mut self, value: usize) {
        let mut at = value;
        for level in &mut self.levels {
            let word = &mut level[at / 64];
            debug_assert!(*word & (1 << (at % 64)) != 0, "only what is there leaves");
            *word &= !(1 << (at % 64));
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// The largest value.
    pub(crate) fn max(&self) -> Option<usize> {
        let mut at = 0;
        for level in self.levels.iter().rev() {
            let word = level[at];
            if word == 0 {
                return None;
            }
            at = at * 64 + (63 - word.leading_zeros() as usize);
        }
        Some(at)
    }
}

/// A plain set of bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    /// Sets bit `at`, growing as needed.
    pub(crate) fn set(&mut self, at: u64) {
        let word = (at / 64) as usize;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (at % 64);
    }

    /// Whether bit `at` is set.
    pub(crate) fn get(&self, at: u64) -> bool {
        let word = self.0.get((at / 64) as usize);
        word.is_some_and(|word| word >> (at % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(
            size in 1usize..10_000,
            steps in prop::collection::vec(any::<u32>(), 1..300),
        ) {
            let (mut tree, mut naive) = (BitTree::new(size), BTreeSet::new());
            for step in steps {
                let value = step as usize % size;
                match naive.insert(value) {
                    true => tree.insert(value),
                    false => {
                        naive.remove(&value);
                        tree.remove(value);
                    }
                }
                prop_assert_eq!(tree.max(), naive.last().copied());
            }
        }
    }

    #[test]
    fn bits_grow() {
        let mut bits = Bits::default();
        assert!(!bits.get(1000));
        bits.set(1000);
        assert!(bits.get(1000) && !bits.get(999) && !bits.get(1001));
    }
}

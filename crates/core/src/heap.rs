//! The smallest of many keys over dense ids, with removal and re-keying of any: a tree of minima.
//!
//! The key of an id stands at its own place in the lowest level; each number of a level above is
//! the smallest of [`FAN`] below it. So no id has to be stored, and no place: 8.5 bytes an id.
//! Every operation is O(log n), with two cache lines a level (7 levels for 2^27 ids), and stops
//! early where a minimum does not change. Ties are broken by the smaller id, so equal histories
//! give equal victims.
//!
//! # Invariants (checked by [`IndexedHeap::assert_invariants`])
//! 1. A number of a level above the lowest is the smallest of its [`FAN`] below.
//! 2. `len` places of the lowest level hold keys, all others [`ABSENT`].
//! 3. The highest level is one group of [`FAN`], no other is.

/// Numbers that one number of the level above stands for.
const FAN: usize = 16;
/// The key of ids that are not there: above all keys.
const ABSENT: f64 = f64::INFINITY;

/// Min-heap of `(key, id)`; see the module text.
#[derive(Debug, Clone)]
pub struct IndexedHeap {
    levels: Vec<Vec<f64>>,
    len: usize,
}

impl IndexedHeap {
    /// A heap for ids `0..capacity`.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        assert!(capacity < u32::MAX, "the last id is reserved");
        let mut levels = Vec::new();
        let mut numbers = capacity as usize;
        loop {
            let groups = numbers.div_ceil(FAN).max(1);
            levels.push(vec![ABSENT; groups * FAN]);
            if groups == 1 {
                return Self { levels, len: 0 };
            }
            numbers = groups;
        }
    }

    /// Number of ids in the heap.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the heap is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Smallest key and its id.
    #[must_use]
    pub fn peek(&self) -> Option<(f64, u32)> {
        if self.len == 0 {
            return None;
        }
        let least = least(group(self.levels.last()?, 0));
        let mut at = 0;
        for level in self.levels.iter().rev() {
            // The first of equals: the smaller id.
            let place = group(level, at).iter().position(|key| *key == least);
            assert!(place.is_some(), "invariant 1");
            at = at * FAN + place?;
        }
        Some((least, at as u32))
    }

    /// The key stored for `id`.
    #[must_use]
    pub fn key(&self, id: u32) -> Option<f64> {
        let key = self.levels[0][id as usize];
        (key < ABSENT).then_some(key)
    }

    /// Adds `id`, which is not in the heap, under a key below infinity.
    pub fn insert(&mut self, id: u32, key: f64) {
        debug_assert_eq!(self.key(id), None, "id is already in the heap");
        assert!(key < ABSENT, "keys are ordered and below infinity");
        self.len += 1;
        self.set(id, key);
    }

    /// Takes `id` out; `None` when it is not there.
    pub fn remove(&mut self, id: u32) -> Option<f64> {
        let key = self.key(id)?;
        self.len -= 1;
        self.set(id, ABSENT);
        Some(key)
    }

    /// Changes the key of `id`, which is in the heap.
    pub fn update(&mut self, id: u32, key: f64) {
        debug_assert!(self.key(id).is_some(), "id is not in the heap");
        assert!(key < ABSENT, "keys are ordered and below infinity");
        self.set(id, key);
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let numbers: usize = self.levels.iter().map(Vec::capacity).sum();
        numbers * size_of::<f64>()
    }

    /// Panics unless the numbered invariants hold. O(n).
    pub fn assert_invariants(&self) {
        for pair in self.levels.windows(2) {
            for (at, above) in pair[1].iter().enumerate() {
                let below = (at * FAN < pair[0].len()).then(|| least(group(&pair[0], at)));
                assert_eq!(*above, below.unwrap_or(ABSENT), "invariant 1");
            }
            assert!(pair[0].len() > FAN, "invariant 3");
        }
        let held = self.levels[0].iter().filter(|key| **key < ABSENT).count();
        assert_eq!(held, self.len, "invariant 2");
        assert_eq!(self.levels.last().map(Vec::len), Some(FAN), "invariant 3");
    }

    /// Multiplies every key by `factor`, above 0, as when the unit of keys changes. O(n).
    pub fn scale_keys(&mut self, factor: f64) {
        assert!(factor > 0.0, "the order of keys stays");
        // What was smallest is so still: rounding keeps the order, but for making keys equal.
        for key in self.levels.iter_mut().flatten() {
            *key *= factor;
        }
    }

    /// Writes the number of `id`, and those above it that change.
    fn set(&mut self, id: u32, key: f64) {
        let (mut at, mut key) = (id as usize, key);
        for level in 0..self.levels.len() {
            let before = std::mem::replace(&mut self.levels[level][at], key);
            at /= FAN;
            let Some(least_before) = self.levels.get(level + 1).map(|above| above[at]) else {
                return;
            };
            if before == least_before && key > before {
                key = least(group(&self.levels[level], at));
            }
            let beside = before > least_before && key > least_before;
            if beside || key == least_before {
                return;
            }
        }
    }
}

/// The numbers below number `at` of the level above.
fn group(level: &[f64], at: usize) -> &[f64] {
    &level[at * FAN..(at + 1) * FAN]
}

/// The smallest of a group. Four at a time, so that the machine can do the same.
fn least(group: &[f64]) -> f64 {
    let smaller = |a: f64, b: f64| if a < b { a } else { b };
    let mut lanes = [ABSENT; 4];
    let (quads, rest) = group.as_chunks::<4>();
    debug_assert!(rest.is_empty(), "{FAN} is a multiple of 4");
    for quad in quads {
        for (lane, key) in lanes.iter_mut().zip(quad) {
            *lane = smaller(*key, *lane);
        }
    }
    smaller(smaller(lanes[0], lanes[1]), smaller(lanes[2], lanes[3]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_a_sorted_list(
            // One level, or three.
            step in prop::sample::select(vec![1u32, 97]),
            ops in proptest::collection::vec((0u8..4, 0u32..12, 0u8..6), 1..300),
        ) {
            let mut heap = IndexedHeap::new(12 * step);
            let mut model: Vec<(f64, u32)> = Vec::new();
            for (op, id, key) in ops {
                let id = id * step;
                let key = f64::from(key);
                let present = model.iter().any(|e| e.1 == id);
                match (op, present) {
                    (0, false) => { heap.insert(id, key); model.push((key, id)); }
                    (1, _) => {
                        let expected = model.iter().find(|e| e.1 == id).map(|e| e.0);
                        prop_assert_eq!(heap.remove(id), expected);
                        model.retain(|e| e.1 != id);
                    }
                    (2, true) => {
                        heap.update(id, key);
                        model.iter_mut().filter(|e| e.1 == id).for_each(|e| e.0 = key);
                    }
                    (3, _) => {
                        // Small enough that keys become equal.
                        let factor = if key == 0.0 { 1e-320 } else { 0.5 };
                        heap.scale_keys(factor);
                        model.iter_mut().for_each(|e| e.0 *= factor);
                    }
                    _ => {}
                }
                heap.assert_invariants();
                model.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
                prop_assert_eq!(heap.peek(), model.first().copied());
                prop_assert_eq!(heap.len(), model.len());
            }
        }
    }
}

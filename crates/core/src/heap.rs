//! A binary min-heap over dense ids with removal and re-keying of any id.
//!
//! 20 bytes an id; every operation is O(log n), [`IndexedHeap::peek`] O(1).
//! Ties are broken by the smaller id, so equal histories give equal victims.

const ABSENT: u32 = u32::MAX;

/// Min-heap of `(key, id)` with a position per id.
#[derive(Debug, Clone)]
pub struct IndexedHeap {
    entries: Vec<(f64, u32)>,
    position: Vec<u32>,
}

impl IndexedHeap {
    /// A heap for ids `0..capacity`.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        assert!(capacity < ABSENT, "the last id is reserved");
        Self {
            entries: Vec::with_capacity(capacity as usize),
            position: vec![ABSENT; capacity as usize],
        }
    }

    /// Number of ids in the heap.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the heap is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Smallest key and its id.
    #[must_use]
    pub fn peek(&self) -> Option<(f64, u32)> {
        self.entries.first().copied()
    }

    /// The key stored for `id`.
    #[must_use]
    pub fn key(&self, id: u32) -> Option<f64> {
        let at = self.position[id as usize];
        (at != ABSENT).then(|| self.entries[at as usize].0)
    }

    /// Adds `id`, which is not in the heap.
    pub fn insert(&mut self, id: u32, key: f64) {
        debug_assert_eq!(
            self.position[id as usize], ABSENT,
            "id is already in the heap"
        );
        debug_assert!(!key.is_nan(), "keys are ordered");
        self.entries.push((key, id));
        self.position[id as usize] = (self.entries.len() - 1) as u32;
        self.sift_up(self.entries.len() - 1);
    }

    /// Takes `id` out; `None` when it is not there.
    pub fn remove(&mut self, id: u32) -> Option<f64> {
        let at = self.position[id as usize];
        if at == ABSENT {
            return None;
        }
        let at = at as usize;
        let (key, _) = self.entries.swap_remove(at);
        self.position[id as usize] = ABSENT;
        if at < self.entries.len() {
            self.position[self.entries[at].1 as usize] = at as u32;
            self.settle(at);
        }
        Some(key)
    }

    /// Changes the key of `id`, which is in the heap.
    pub fn update(&mut self, id: u32, key: f64) {
        debug_assert!(!key.is_nan(), "keys are ordered");
        let at = self.position[id as usize];
        debug_assert_ne!(at, ABSENT, "id is not in the heap");
        self.entries[at as usize].0 = key;
        self.settle(at as usize);
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(f64, u32)>() + self.position.capacity() * 4
    }

    /// Every parent is at most its children and positions agree with entries. O(n).
    pub fn assert_invariants(&self) {
        for (at, &(_, id)) in self.entries.iter().enumerate() {
            assert_eq!(self.position[id as usize] as usize, at);
            assert!(
                at == 0 || !less(self.entries[at], self.entries[(at - 1) / 2]),
                "child below its parent"
            );
        }
    }

    /// Multiplies every key by `factor`, above 0, as when the unit of keys changes. O(n).
    pub fn scale_keys(&mut self, factor: f64) {
        assert!(factor > 0.0, "the order of keys stays");
        for (key, _) in &mut self.entries {
            *key *= factor;
        }
        // Keys that differed may be equal now, and then the smaller id comes first.
        for at in (0..self.entries.len() / 2).rev() {
            self.sift_down(at);
        }
    }

    fn settle(&mut self, at: usize) {
        let at = self.sift_up(at);
        self.sift_down(at);
    }

    /// Writes `entry` to `at` and says so in its position.
    fn place(&mut self, at: usize, entry: (f64, u32)) {
        self.entries[at] = entry;
        self.position[entry.1 as usize] = at as u32;
    }

    /// Moves the entry at `at` up to its place: parents slide down into the hole it leaves.
    fn sift_up(&mut self, mut at: usize) -> usize {
        let entry = self.entries[at];
        let from = at;
        while at > 0 {
            let parent = self.entries[(at - 1) / 2];
            if !less(entry, parent) {
                break;
            }
            self.place(at, parent);
            at = (at - 1) / 2;
        }
        if at != from {
            self.place(at, entry);
        }
        at
    }

    /// Moves the entry at `at` down to its place: children slide up into the hole it leaves.
    fn sift_down(&mut self, mut at: usize) {
        let entry = self.entries[at];
        let from = at;
        loop {
            let left = 2 * at + 1;
            if left >= self.entries.len() {
                break;
            }
            let right = left + 1;
            let goes_right =
                right < self.entries.len() && less(self.entries[right], self.entries[left]);
            let child = if goes_right { right } else { left };
            if !less(self.entries[child], entry) {
                break;
            }
            self.place(at, self.entries[child]);
            at = child;
        }
        if at != from {
            self.place(at, entry);
        }
    }
}

/// Order of entries: by key, then by id.
fn less(a: (f64, u32), b: (f64, u32)) -> bool {
    a.0 < b.0 || (a.0 == b.0 && a.1 < b.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_a_sorted_list(
            ops in proptest::collection::vec((0u8..4, 0u32..12, 0u8..6), 1..300),
        ) {
            let mut heap = IndexedHeap::new(12);
            let mut model: Vec<(f64, u32)> = Vec::new();
            for (op, id, key) in ops {
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

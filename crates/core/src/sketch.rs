//! How often a page was asked for lately, in four bits a counter: a count-min sketch that ages.
//!
//! Each page has four counters, one in each row; its count is the least of them, so it is never
//! below the truth (up to 15, and since the last ageing) and above it only when four others
//! collide. An addition raises only the counters that are least (conservative update). After
//! `10 x capacity` additions every counter is halved (TinyLFU, ACM TOS 2017, §3.3: the reset). The
//! four counters of a page lie in one 64-byte block, chosen by one hash, so an operation touches
//! one cache line.
//!
//! Cost: O(1); every `5 x capacity` additions a pass over the table. Memory: 8 bytes per page of
//! `capacity`, at least one block.

/// Additions between two agings, per page (§3.3, Figure 5: W/C around 10).
const SAMPLE: u64 = 10;
/// Words of 16 counters in a block; each row has two of them.
const BLOCK: usize = 8;
const ROWS: usize = 4;
const COUNTER_MAX: u64 = 15;

/// See the module text.
#[derive(Clone, Debug)]
pub struct Sketch {
    words: Vec<u64>,
    additions: u64,
    sample: u64,
}

/// Where a counter is: its word and the bits to shift.
type Counter = (usize, u32);

impl Sketch {
    /// A sketch for about `capacity` pages that are worth remembering.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        let blocks = (capacity as usize).div_ceil(BLOCK).max(1);
        Self {
            words: vec![0; blocks * BLOCK],
            additions: 0,
            sample: SAMPLE * u64::from(capacity.max(BLOCK as u32)),
        }
    }

    /// Counts one more request for what hashes to `hash`.
    pub fn add(&mut self, hash: u64) {
        let counters = self.counters(hash);
        let least = self.least(&counters);
        if least < COUNTER_MAX {
            for (word, shift) in counters {
                let is_least = (self.words[word] >> shift) & COUNTER_MAX == least;
                self.words[word] += u64::from(is_least) << shift;
            }
        }
        debug_assert!(self.count(hash) >= 1, "what was added is counted");
        self.additions += 1;
        if self.additions >= self.sample {
            self.age();
        }
    }

    /// Requests counted for what hashes to `hash`, at most 15, halved as time went by.
    #[must_use]
    pub fn count(&self, hash: u64) -> u8 {
        self.least(&self.counters(hash)) as u8
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    fn counters(&self, hash: u64) -> [Counter; ROWS] {
        let blocks = (self.words.len() / BLOCK) as u64;
        // The high half chooses the block, five bits of the low half a counter in each row.
        let block = (((hash >> 32) * blocks) >> 32) as usize * BLOCK;
        std::array::from_fn(|row| {
            let bits = hash >> (5 * row);
            let word = block + 2 * row + ((bits >> 4) & 1) as usize;
            (word, (bits & 15) as u32 * 4)
        })
    }

    fn least(&self, counters: &[Counter; ROWS]) -> u64 {
        let values = counters.map(|(word, shift)| (self.words[word] >> shift) & COUNTER_MAX);
        values.into_iter().fold(COUNTER_MAX, u64::min)
    }

    /// Halves every counter.
    fn age(&mut self) {
        const LOW_THREE_BITS: u64 = 0x7777_7777_7777_7777;
        for word in &mut self.words {
            *word = (*word >> 1) & LOW_THREE_BITS;
        }
        self.additions /= 2;
        debug_assert!(
            self.additions < self.sample,
            "ageing makes room for additions"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;
    use proptest::prelude::*;

    proptest! {
        /// Against exact counts that age at the same moments.
        #[test]
        fn never_below_the_truth(
            capacity in 1u32..40,
            pages in prop::collection::vec(0u64..60, 1..1500),
        ) {
            let mut sketch = Sketch::new(capacity);
            let mut exact = [0u8; 60];
            for page in pages {
                let before = sketch.additions;
                sketch.add(mix(7, page));
                exact[page as usize] = (exact[page as usize] + 1).min(15);
                if sketch.additions < before {
                    exact = exact.map(|count| count / 2);
                }
                for (page, least) in exact.iter().enumerate() {
                    prop_assert!(sketch.count(mix(7, page as u64)) >= *least);
                }
            }
        }
    }

    #[test]
    fn is_exact_when_it_is_roomy() {
        let mut sketch = Sketch::new(4000);
        let wanted = |page: u64| (page % 14 + 1) as u8;
        for page in 0..300u64 {
            for _ in 0..wanted(page) {
                sketch.add(mix(1, page));
            }
        }
        let off = (0..300u64).filter(|p| sketch.count(mix(1, *p)) != wanted(*p));
        assert_eq!(off.count(), 0);
        for _ in 0..100 {
            sketch.add(mix(1, 5));
        }
        assert_eq!(sketch.count(mix(1, 5)), 15, "a counter stops at its end");
    }

    #[test]
    fn ages_after_ten_additions_a_page() {
        let mut sketch = Sketch::new(8);
        for _ in 0..79 {
            sketch.add(mix(1, 1));
        }
        assert_eq!(sketch.count(mix(1, 1)), 15);
        sketch.add(mix(1, 1));
        assert_eq!(sketch.count(mix(1, 1)), 7);
        assert_eq!(sketch.bytes(), 64);
    }
}

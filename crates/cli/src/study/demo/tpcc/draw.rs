//! Random draws of the specification from a seeded generator: the same on every machine.

/// Syllables of customers' last names (clause 4.3.2.3).
const SYLLABLES: [&str; 10] = [
    "BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING",
];
/// Random text that strings are cut from.
const TEXT_BYTES: usize = 1 << 16;

/// A generator (SplitMix64) and the constants a run draws once.
pub(crate) struct Draw {
    state: u64,
    /// The constant C of NURand per use: last name, customer, item.
    constants: [u64; 3],
    text: String,
}

impl Draw {
    /// A generator for `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        let mut draw = Self {
            state: seed,
            constants: [0; 3],
            text: String::new(),
        };
        draw.constants = [
            draw.between(0, 255),
            draw.between(0, 1023),
            draw.between(0, 8191),
        ];
        let letter = |draw: &mut Self| char::from(b'a' + draw.below(26) as u8);
        draw.text = (0..TEXT_BYTES).map(|_| letter(&mut draw)).collect();
        draw
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to `n` − 1.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0);
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high);
        low + self.below(high - low + 1)
    }

    /// A number from 0 to 1, 1 excluded.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The numbers from 1 to `count` in a drawn order.
    pub(crate) fn permutation(&mut self, count: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = (1..=count).collect();
        for last in (1..numbers.len()).rev() {
            let other = self.below(last as u64 + 1) as usize;
            numbers.swap(last, other);
        }
        numbers
    }

    /// True `percent` times of a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// NURand (clause 2.1.6): `or`-ing two uniform draws makes numbers with many one bits in
    /// their low part likelier. `a` is 255, 1023 or 8191 for the full ranges; for a range that
    /// was scaled down it shrinks alike.
    fn skewed(&mut self, use_: usize, a: u64, full: u64, count: u64) -> u64 {
        let a = (a + 1).min((count * (a + 1)).div_ceil(full).next_power_of_two()) - 1;
        let either = self.between(0, a) | self.between(0, count - 1);
        (either + self.constants[use_]) % count
    }

    /// A customer number from 1 to `count`.
    pub(crate) fn customer(&mut self, count: u64) -> u64 {
        1 + self.skewed(1, 1023, 3_000, count)
    }

    /// An item number from 1 to `count`.
    pub(crate) fn item(&mut self, count: u64) -> u64 {
        1 + self.skewed(2, 8191, 100_000, count)
    }

    /// A last name that `customers` of a district can have.
    pub(crate) fn last_name(&mut self, customers: u64) -> String {
        let names = customers.div_ceil(3).min(1_000);
        last_name(self.skewed(0, 255, 1_000, names))
    }

    /// A string of `low` to `high` letters.
    pub(crate) fn letters(&mut self, low: u64, high: u64) -> &str {
        let length = self.between(low, high) as usize;
        let start = self.below((TEXT_BYTES - length) as u64) as usize;
        &self.text[start..start + length]
    }
}

/// The name with `number`, made of three syllables.
pub(crate) fn last_name(number: u64) -> String {
    let syllable = |place: u64| SYLLABLES[(number / place % 10) as usize];
    [syllable(100), syllable(10), syllable(1)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_specification() {
        assert_eq!(last_name(371), "PRICALLYOUGHT");
        assert_eq!(last_name(40), "BARPRESBAR");
    }

    #[test]
    fn items_are_skewed_and_in_range() {
        let mut draw = Draw::new(1);
        let mut counts = vec![0_u32; 100_000];
        for _ in 0..1_000_000 {
            counts[draw.item(100_000) as usize - 1] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let hottest_fifth: u32 = counts[..20_000].iter().sum();
        assert!(
            (700_000..900_000).contains(&hottest_fifth),
            "{hottest_fifth}"
        );
    }

    #[test]
    fn draws_stay_in_small_ranges() {
        let mut draw = Draw::new(2);
        for _ in 0..10_000 {
            assert!((1..=30).contains(&draw.customer(30)));
            assert!((1..=200).contains(&draw.item(200)));
            assert!((5..=9).contains(&draw.letters(5, 9).len()));
        }
    }
}

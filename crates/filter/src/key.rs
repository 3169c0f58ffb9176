//! Keys, and where their bits are.

use serde::Serialize;
use std::fmt;
use twox_hash::XxHash3_64;

/// What the keys of a filter are: the same number as text and as an integer are different keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyKind {
    /// Bytes.
    #[default]
    Text,
    /// Whole numbers of 64 bits.
    Integer,
}

impl fmt::Display for KeyKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Text => "text",
            Self::Integer => "integer",
        })
    }
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// Any bytes.
    Text(&'a [u8]),
    /// A whole number.
    Integer(i64),
}

impl Key<'_> {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> KeyKind {
        match self {
            Self::Text(_) => KeyKind::Text,
            Self::Integer(_) => KeyKind::Integer,
        }
    }

    /// Its 64-bit hash under `seed`: all the filter ever knows of it.
    pub(crate) fn hash(&self, seed: u64) -> u64 {
        match self {
            Self::Text(bytes) => XxHash3_64::oneshot_with_seed(seed, bytes),
            Self::Integer(number) => mix(number.cast_unsigned() ^ mix(seed)),
        }
    }
}

/// A bijection of 64-bit numbers whose every output bit depends on every input bit (the finaliser
/// of `SplitMix64`).
fn mix(number: u64) -> u64 {
    let x = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The page that a hash belongs to.
pub(crate) fn page_of(hash: u64, pages: u32) -> u32 {
    let page = (u128::from(hash) * u128::from(pages)) >> 64;
    debug_assert!(page < u128::from(pages));
    page as u32
}

/// The part of a hash that is kept while it waits: its low 48 bits. With at most 2^16 pages the
/// high 16 bits have said which page it is.
pub(crate) type Mark = [u8; 6];

pub(crate) fn mark_of(hash: u64) -> Mark {
    let [a, b, c, d, e, f, _, _] = hash.to_le_bytes();
    [a, b, c, d, e, f]
}

/// The `k` bit positions of a mark in a page of `bits` bits.
pub(crate) fn positions(mark: Mark, k: u32, bits: u32) -> impl Iterator<Item = u32> {
    let [a, b, c, d, e, f] = mark;
    let mut x = u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
    (0..k).map(move |_| {
        x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^= x >> 32;
        x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (((x >> 32) * u64::from(bits)) >> 32) as u32
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_bits_are_hit_evenly() {
        let (mut pages, mut bits) = ([0_u32; 7], [0_u32; 8]);
        for number in 0..80_000 {
            let hash = Key::Integer(number).hash(3);
            pages[page_of(hash, 7) as usize] += 1;
            for position in positions(mark_of(hash), 2, 1 << 15) {
                bits[(position >> 12) as usize] += 1;
            }
        }
        assert!(
            pages.iter().all(|n| (10_900..12_000).contains(n)),
            "{pages:?}"
        );
        assert!(
            bits.iter().all(|n| (19_400..20_600).contains(n)),
            "{bits:?}"
        );
    }

    #[test]
    fn kinds_and_seeds_make_other_hashes() {
        let hashes = [
            Key::Integer(7).hash(0),
            Key::Integer(7).hash(1),
            Key::Text(b"7").hash(0),
            Key::Text(b"7").hash(1),
        ];
        for (at, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..at].contains(hash));
        }
    }
}

//! One fixed hash for page addresses, so that a run is the same everywhere.

use crate::hint::HintSet;
use crate::page::{ObjectId, PageId, RegionId};

/// Mixes two words into one (multiply and fold; the constants are those of splitmix64).
#[must_use]
pub const fn mix(a: u64, b: u64) -> u64 {
    let mut x = a.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ b;
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Hash of a number by one multiplication, which puts small numbers far apart: only its upper half
/// is good (Knuth, The Art of Computer Programming 3, section 6.4).
#[must_use]
pub const fn quick(a: u64) -> u64 {
    a.wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// Hash of a page address.
#[must_use]
pub const fn of_page(page: PageId) -> u64 {
    mix(page.object.0 as u64 + 1, page.index)
}

/// Hash of a region address.
#[must_use]
pub const fn of_region(region: RegionId) -> u64 {
    of_page(PageId {
        object: ObjectId(region.object.0),
        index: region.index,
    })
}

/// Hash of a hint set.
#[must_use]
pub fn of_hints(hints: &HintSet) -> u64 {
    let (pairs, _) = hints.values().as_chunks::<2>();
    let folded = pairs.iter().fold(0u64, |hash, &[low, high]| {
        let word = u64::from(low) | u64::from(high) << 32;
        (hash.rotate_left(5) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    });
    mix(u64::from(hints.client()), folded)
}

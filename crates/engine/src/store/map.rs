//! Sectors of the map: which page each block holds.
//!
//! A sector is 512 bytes, the unit that a torn write leaves old or new, and describes 15 blocks.
//! Layout (little-endian):
//!
//! | bytes | field |
//! |---|---|
//! | 0..8 | xxh3-64 of bytes 8..512, seeded with format id and sector number |
//! | 8..32 | zero |
//! | 32..512 | 15 entries of 32 bytes |
//!
//! An entry: page index u64, checksum u64, version (48 bits) and flags (16 bits: 1 present,
//! 2 dirty), object u32, zero u32. A sector with an object or a page past the bounds of
//! [`super::bounds`] is damaged. A sector of zeros is one that was never written: empty.

use super::bounds::page_fits;
use super::superblock::{u32_at, u64_at};
use thermocline_core::ledger::MapEntry;
use thermocline_core::{ObjectId, PageId, hash};
use twox_hash::XxHash3_64;

/// Bytes of a sector.
pub(crate) const SECTOR_BYTES: usize = 512;
/// Blocks a sector describes.
pub(crate) const ENTRIES: usize = 15;
/// Versions are below this.
pub(crate) const VERSION_END: u64 = 1 << 48;
/// Bytes of a packed entry without padding: what the journal keeps.
pub(crate) const PACKED_BYTES: usize = 28;

const ENTRY_BYTES: usize = 32;
const HEADER_BYTES: usize = SECTOR_BYTES - ENTRIES * ENTRY_BYTES;
const PRESENT: u64 = 1;
const DIRTY: u64 = 2;

/// What a sector says of its blocks.
pub(crate) type Sector = [Option<MapEntry>; ENTRIES];

/// An entry in 28 bytes.
pub(crate) fn pack(entry: &MapEntry) -> [u8; PACKED_BYTES] {
    debug_assert!(entry.version < VERSION_END, "48 bits of versions last");
    assert!(
        page_fits(entry.page),
        "{} is past the bounds",
        entry.page.object.0
    );
    let flags = PRESENT | if entry.dirty { DIRTY } else { 0 };
    let mut out = [0; PACKED_BYTES];
    out[..8].copy_from_slice(&entry.page.index.to_le_bytes());
    out[8..16].copy_from_slice(&entry.checksum.to_le_bytes());
    out[16..24].copy_from_slice(&(entry.version | flags << 48).to_le_bytes());
    out[24..].copy_from_slice(&entry.page.object.0.to_le_bytes());
    out
}

/// The other way, from 28 bytes at least; `None` when the flags are not those of an entry, or its
/// page cannot be.
pub(crate) fn unpack(bytes: &[u8]) -> Option<MapEntry> {
    let word = u64_at(bytes, 16);
    let flags = word >> 48;
    let page = PageId::new(ObjectId(u32_at(bytes, 24)), u64_at(bytes, 0));
    let whole = flags & PRESENT != 0 && flags <= PRESENT | DIRTY && page_fits(page);
    whole.then(|| MapEntry {
        page,
        checksum: u64_at(bytes, 8),
        version: word & (VERSION_END - 1),
        dirty: flags & DIRTY != 0,
    })
}

fn sum(bytes: &[u8], format_id: u64, sector: u32) -> u64 {
    XxHash3_64::oneshot_with_seed(hash::mix(format_id, u64::from(sector)), &bytes[8..])
}

/// Writes `entries` as sector number `sector` into `out`, 512 bytes.
pub(crate) fn encode(entries: &Sector, format_id: u64, sector: u32, out: &mut [u8]) {
    debug_assert_eq!(out.len(), SECTOR_BYTES);
    out.fill(0);
    for (at, entry) in entries.iter().enumerate() {
        if let Some(entry) = entry {
            let from = HEADER_BYTES + at * ENTRY_BYTES;
            out[from..from + PACKED_BYTES].copy_from_slice(&pack(entry));
        }
    }
    let sum = sum(out, format_id, sector);
    out[..8].copy_from_slice(&sum.to_le_bytes());
    debug_assert_eq!(decode(out, format_id, sector).as_ref(), Some(entries));
}

/// What 512 bytes say as sector number `sector`; `None` when they are damaged.
pub(crate) fn decode(bytes: &[u8], format_id: u64, sector: u32) -> Option<Sector> {
    debug_assert_eq!(bytes.len(), SECTOR_BYTES);
    let mut entries = Sector::default();
    if u64_at(bytes, 0) != sum(bytes, format_id, sector) {
        return bytes.iter().all(|&b| b == 0).then_some(entries);
    }
    for (at, entry) in entries.iter_mut().enumerate() {
        let from = HEADER_BYTES + at * ENTRY_BYTES;
        let packed = &bytes[from..from + PACKED_BYTES];
        if u64_at(packed, 16) != 0 {
            *entry = Some(unpack(packed)?);
        }
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn entry() -> impl Strategy<Value = Option<MapEntry>> {
        let fields = (
            0..super::super::OBJECT_END,
            0u64..1 << 54,
            any::<u64>(),
            0..VERSION_END,
            any::<bool>(),
        );
        proptest::option::of(
            fields.prop_map(|(object, index, checksum, version, dirty)| MapEntry {
                page: PageId::new(ObjectId(object), index),
                checksum,
                version,
                dirty,
            }),
        )
    }

    proptest! {
        #[test]
        fn round_trip(
            entries in proptest::collection::vec(entry(), ENTRIES), id: u64, sector: u32,
        ) {
            let entries: Sector = entries.try_into().unwrap();
            let mut bytes = [0xFF; SECTOR_BYTES];
            encode(&entries, id, sector, &mut bytes);
            prop_assert_eq!(decode(&bytes, id, sector), Some(entries));
            prop_assert_eq!(decode(&bytes, id ^ 1, sector), None, "of another format");
            prop_assert_eq!(decode(&bytes, id, sector ^ 1), None, "in the wrong place");
        }

        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), SECTOR_BYTES)) {
            prop_assert_eq!(decode(&bytes, 1, 2), None);
            let mut sealed = bytes.clone();
            let sum = sum(&sealed, 1, 2);
            sealed[..8].copy_from_slice(&sum.to_le_bytes());
            let _ = decode(&sealed, 1, 2);
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let mut entries = Sector::default();
        entries[3] = Some(MapEntry {
            version: 7,
            dirty: true,
            ..MapEntry::default()
        });
        let mut bytes = [0; SECTOR_BYTES];
        encode(&entries, 5, 6, &mut bytes);
        for bit in 0..SECTOR_BYTES * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bytes, 5, 6), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn an_entry_past_the_bounds_is_damage() {
        let mut packed = pack(&MapEntry::default());
        assert!(unpack(&packed).is_some());
        packed[24..].copy_from_slice(&0xFFFF_FFF0u32.to_le_bytes());
        assert_eq!(unpack(&packed), None, "object");
        packed = pack(&MapEntry::default());
        packed[..8].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(unpack(&packed), None, "page");
    }

    #[test]
    fn zeros_are_empty() {
        assert_eq!(decode(&[0; SECTOR_BYTES], 5, 6), Some(Sector::default()));
    }
}

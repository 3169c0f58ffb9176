//! Where the parts of a cache lie.
//!
//! ```text
//! 0          8 KiB                                                      map_offset        length
//! | superblock A, B | journal | objects A | objects B | blocks ... | (gap) | map            |
//! ```
//!
//! Everything starts on a multiple of 4 KiB, so every access can be direct I/O. The sizes of
//! journal and object areas are chosen when the cache is made and stay; map and blocks follow
//! the length (see `resize`).

use super::map::{ENTRIES, SECTOR_BYTES};
use super::superblock::SUPERBLOCK_BYTES;
use thermocline_core::BlockId;

/// Unit of journal, object areas and alignment, in bytes.
pub(crate) const UNIT: u64 = 4096;
/// Bytes before the journal.
pub(crate) const JOURNAL_OFFSET: u64 = 2 * SUPERBLOCK_BYTES as u64;

/// Largest journal and largest object area, in bytes.
const JOURNAL_MAX: u64 = 64 << 20;
const OBJECTS_MAX: u64 = 16 << 20;
/// Smallest journal: 4 units below this length, 16 units from it on.
const SMALL: u64 = 1 << 20;
/// Journal bytes per block that let a batch name every block once, for this many blocks at most.
const JOURNAL_PER_BLOCK: u64 = 40;
const JOURNAL_BLOCKS_COUNTED: u64 = 64 << 10;

/// Sizes and places of the parts. All offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Bytes per page and per block.
    pub(crate) page_size: u32,
    /// Journal in units of 4 KiB.
    pub(crate) journal_units: u32,
    /// One object area in units of 4 KiB.
    pub(crate) object_units: u32,
    /// Number of blocks.
    pub(crate) blocks: u32,
    /// Where the map starts.
    pub(crate) map_offset: u64,
    /// Length of the cache.
    pub(crate) length: u64,
}

const fn round_up(bytes: u64) -> u64 {
    bytes.div_ceil(UNIT) * UNIT
}

/// Bytes of a map of `blocks` blocks.
const fn map_bytes(blocks: u64) -> u64 {
    round_up(blocks.div_ceil(ENTRIES as u64) * SECTOR_BYTES as u64)
}

impl Layout {
    /// The layout of a new cache of `length` bytes; `None` when not one block fits.
    pub(crate) fn of_length(length: u64, page_size: u32) -> Option<Self> {
        debug_assert!(page_size.is_power_of_two() && page_size >= 512);
        let named = (length / u64::from(page_size)).min(JOURNAL_BLOCKS_COUNTED);
        let least = if length < SMALL { 4 * UNIT } else { 16 * UNIT };
        let journal = (length / 256)
            .max(named * JOURNAL_PER_BLOCK)
            .clamp(least, JOURNAL_MAX);
        let objects = (length / 64).clamp(UNIT, 512 << 10).max(length / 1024);
        let layout = Self {
            page_size,
            journal_units: (journal / UNIT) as u32,
            object_units: (objects.min(OBJECTS_MAX) / UNIT) as u32,
            blocks: 0,
            map_offset: 0,
            length,
        };
        layout.with_length(length)
    }

    /// The same journal and object areas with blocks and map for another length.
    pub(crate) fn with_length(self, length: u64) -> Option<Self> {
        let end = length / UNIT * UNIT;
        let room = end.checked_sub(self.data_offset())?;
        let page = u64::from(self.page_size);
        let fits = |n: u64| round_up(n * page) + map_bytes(n) <= room;
        let mut blocks = (room / page).min(u64::from(u32::MAX - 1));
        if !fits(blocks) {
            let share = SECTOR_BYTES as u64 + ENTRIES as u64 * page;
            blocks = (room / share) * ENTRIES as u64 + ENTRIES as u64;
            while blocks > 0 && !fits(blocks) {
                blocks -= 1;
            }
        }
        let blocks = blocks.min(u64::from(u32::MAX - 1));
        (blocks > 0).then(|| Self {
            blocks: blocks as u32,
            map_offset: end - map_bytes(blocks),
            length,
            ..self
        })
    }

    /// The least length of a cache with pages of `page_size` bytes.
    pub(crate) fn least(page_size: u32) -> u64 {
        let mut length = round_up(u64::from(page_size)) + JOURNAL_OFFSET;
        while Self::of_length(length, page_size).is_none() {
            length += UNIT;
        }
        length
    }

    pub(crate) fn journal_bytes(&self) -> u64 {
        u64::from(self.journal_units) * UNIT
    }

    /// Where the journal block with this sequence number lies.
    pub(crate) fn journal_block(&self, sequence: u64) -> u64 {
        JOURNAL_OFFSET + sequence % u64::from(self.journal_units) * UNIT
    }

    pub(crate) fn object_bytes(&self) -> u64 {
        u64::from(self.object_units) * UNIT
    }

    /// Where object area 0 or 1 lies.
    pub(crate) fn objects_offset(&self, area: u32) -> u64 {
        debug_assert!(area < 2);
        JOURNAL_OFFSET + self.journal_bytes() + u64::from(area) * self.object_bytes()
    }

    pub(crate) fn data_offset(&self) -> u64 {
        JOURNAL_OFFSET + self.journal_bytes() + 2 * self.object_bytes()
    }

    pub(crate) fn block_offset(&self, block: BlockId) -> u64 {
        debug_assert!(block.0 < self.blocks);
        self.data_offset() + u64::from(block.0) * u64::from(self.page_size)
    }

    /// Bytes of the map, a multiple of 4 KiB.
    pub(crate) fn map_bytes(&self) -> u64 {
        map_bytes(u64::from(self.blocks))
    }

    pub(crate) fn map_sectors(&self) -> u32 {
        self.blocks.div_ceil(ENTRIES as u32)
    }

    pub(crate) fn sector_offset(&self, sector: u32) -> u64 {
        self.map_offset + u64::from(sector) * SECTOR_BYTES as u64
    }

    /// Whether the parts lie in order, apart from each other and inside the length.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        if !self.page_size.is_power_of_two() || self.page_size < 512 {
            return Err("page size");
        }
        if self.journal_units < 4 || self.journal_bytes() > JOURNAL_MAX {
            return Err("length of the journal");
        }
        if self.object_units == 0 || self.object_bytes() > OBJECTS_MAX {
            return Err("length of the object areas");
        }
        // Below 2^64: pages are at most 2^31 bytes, blocks below 2^32.
        let blocks = u64::from(self.page_size) * u64::from(self.blocks);
        let end = blocks.checked_add(self.data_offset());
        if self.blocks == 0 || self.blocks == u32::MAX || end.is_none_or(|e| e > self.map_offset) {
            return Err("number of blocks");
        }
        let map_end = self.map_offset.checked_add(self.map_bytes());
        if !self.map_offset.is_multiple_of(UNIT) || map_end.is_none_or(|e| e > self.length) {
            return Err("place of the map");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tiny_and_huge() {
        let tiny = Layout::of_length(64 << 10, 512).unwrap();
        assert_eq!(tiny.check(), Ok(()));
        assert!(tiny.blocks >= 50, "{tiny:?}");
        let huge = Layout::of_length(1 << 40, 8192).unwrap();
        assert_eq!(huge.check(), Ok(()));
        assert_eq!(huge.journal_bytes(), JOURNAL_MAX);
        let used = u64::from(huge.blocks) * 8192;
        assert!(used > (1 << 40) / 1000 * 995);
    }

    proptest! {
        #[test]
        fn every_length_from_the_least_on(extra in 0u64..(1 << 34), shift in 9u32..17) {
            let page = 1 << shift;
            let least = Layout::least(page);
            prop_assert_eq!(Layout::of_length(least - 1, page), None);
            let layout = Layout::of_length(least + extra, page).unwrap();
            prop_assert_eq!(layout.check(), Ok(()));
            let one_more = u64::from(layout.blocks) + 1;
            let room = layout.length / UNIT * UNIT - layout.data_offset();
            let need = round_up(one_more * u64::from(page)) + map_bytes(one_more);
            prop_assert!(need > room, "another block would fit");
        }

        #[test]
        fn check_never_panics(
            page_size: u32, journal_units: u32, object_units: u32, blocks: u32,
            map_offset: u64, length: u64,
        ) {
            let layout =
                Layout { page_size, journal_units, object_units, blocks, map_offset, length };
            let _ = layout.check();
        }
    }
}

//! What is stored: objects, pages, regions, and the places a page can be (frame, slot).

/// A file, volume or database with a stable identity for as long as the tier knows it.
///
/// Ids are given out by the engine and never reused within one cache file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u32);

/// One fixed-size page: an object and the page's index within it (byte offset / page size).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageId {
    /// The object the page belongs to.
    pub object: ObjectId,
    /// Byte offset divided by the page size.
    pub index: u64,
}

impl PageId {
    /// The page `index` of `object`.
    #[must_use]
    pub const fn new(object: ObjectId, index: u64) -> Self {
        Self { object, index }
    }

    /// The region (extent) of `pages` contiguous pages this page lies in, *within its object*
    /// (TAC §1.2: an extent never spans two objects).
    #[must_use]
    pub const fn region(self, pages: u64) -> RegionId {
        RegionId {
            object: self.object,
            index: self.index / pages,
        }
    }
}

/// A run of contiguous pages of one object, the unit TAC keeps temperatures for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId {
    /// The object the region belongs to.
    pub object: ObjectId,
    /// Page index divided by the pages per region.
    pub index: u64,
}

/// A page-sized place in DRAM, dense from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId(pub u32);

/// A page's place in the tier as policies know it, dense from 0. Which block of the device holds
/// its bytes changes with every write (see [`BlockId`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u32);

/// A page-sized place on the flash device, dense from 0. A block that a durable map entry names is
/// never overwritten: new bytes of a page go to another block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub u32);

impl BlockId {
    /// The block as an index into per-block tables.
    #[must_use]
    pub const fn at(self) -> usize {
        self.0 as usize
    }
}

impl SlotId {
    /// The slot as an index into per-slot tables.
    #[must_use]
    pub const fn at(self) -> usize {
        self.0 as usize
    }
}

impl FrameId {
    /// The frame as an index into per-frame tables.
    #[must_use]
    pub const fn at(self) -> usize {
        self.0 as usize
    }
}

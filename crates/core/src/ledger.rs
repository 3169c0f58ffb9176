//! What the map on flash says, what it will say after the next commit, and which blocks of the
//! device may be written meanwhile.

use crate::page::{BlockId, ObjectId, PageId};

/// Pages per write-intent region: see [`Intent`].
pub const INTENT_PAGES: u64 = 512;

/// What the map says of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapEntry {
    /// The page whose bytes the block holds.
    pub page: PageId,
    /// Checksum of those bytes, which covers the page's address.
    pub checksum: u64,
    /// Counts up over the life of the cache: where two blocks claim one page the higher is newer.
    pub version: u64,
    /// Whether these bytes are newer than base's.
    pub dirty: bool,
}

/// A run of [`INTENT_PAGES`] pages of an object of which base may be newer than clean copies on
/// flash: after a crash those copies are not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Intent {
    /// The object.
    pub object: ObjectId,
    /// Page index divided by [`INTENT_PAGES`].
    pub region: u64,
}

/// One change of the durable map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapChange {
    /// The block's entry is now this; `None`: the block holds nothing.
    Set {
        /// The block.
        block: BlockId,
        /// Its new entry.
        entry: Option<MapEntry>,
    },
    /// Base writes to the region are about to happen (`on`), or all are durable (`!on`).
    Intend {
        /// The region.
        intent: Intent,
        /// Whether it starts.
        on: bool,
    },
}

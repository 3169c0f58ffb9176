//! How many pages of which parts of which objects are on flash, so that whoever means all pages of
//! an object looks at no others.
//!
//! # Invariants (checked by [`Extents::is_of`])
//! 1. An extent is there when pages of it are, with their number.
//!
//! Memory: about 30 bytes an extent of [`EXTENT_PAGES`]: less than a byte a slot while an extent
//! has 50 pages on flash, and at most about 80 MB for 20 TiB of 8-KiB pages, however few are on
//! flash. A list of each object's slots would take 8 bytes a slot.

use crate::page::{ObjectId, PageId};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::RangeInclusive;

/// Pages of an extent: 8 MiB of 8-KiB pages. To find the few that are on flash takes a search for
/// each, 50 µs or so.
const EXTENT_PAGES: u64 = 1024;

/// See the module text.
#[derive(Clone, Debug, Default)]
pub(super) struct Extents {
    extents: BTreeMap<(ObjectId, u64), u32>,
}

impl Extents {
    /// `page`, which was not on flash, is.
    pub(super) fn insert(&mut self, page: PageId) {
        *self.extents.entry(extent_of(page)).or_default() += 1;
    }

    /// Pages of these extents, which were not on flash, are; empties `pages`.
    pub(super) fn insert_all(&mut self, pages: &mut Vec<(ObjectId, u64)>) {
        // In order: neighbours in the map are near each other in memory.
        pages.sort_unstable();
        for same in pages.chunk_by(|a, b| a == b) {
            *self.extents.entry(same[0]).or_default() += same.len() as u32;
        }
        pages.clear();
    }

    /// `page`, which was on flash, is not.
    pub(super) fn remove(&mut self, page: PageId) {
        let Entry::Occupied(mut entry) = self.extents.entry(extent_of(page)) else {
            panic!("invariant 1: {page:?}, which leaves, was counted")
        };
        *entry.get_mut() -= 1;
        if *entry.get() == 0 {
            entry.remove();
        }
    }

    /// Number of pages of `object`. O(its extents).
    pub(super) fn count(&self, object: ObjectId) -> u32 {
        let extents = self.extents.range((object, 0)..=(object, u64::MAX));
        extents.map(|(_, pages)| pages).sum()
    }

    /// Runs of pages of `object` within `first..=last` that hold all there are, in order, each with
    /// the most there are.
    pub(super) fn runs(
        &self,
        object: ObjectId,
        first: u64,
        last: u64,
    ) -> impl Iterator<Item = (RangeInclusive<u64>, u32)> + '_ {
        let extents = (object, first / EXTENT_PAGES)..=(object, last / EXTENT_PAGES);
        self.extents
            .range(extents)
            .map(move |((_, extent), pages)| {
                let from = (extent * EXTENT_PAGES).max(first);
                let to = (extent * EXTENT_PAGES + (EXTENT_PAGES - 1)).min(last);
                (from..=to, *pages)
            })
    }

    pub(super) fn bytes(&self) -> usize {
        self.extents.len() * 30
    }

    /// Whether these are the pages on flash: then there are no other extents, and their numbers
    /// are right. O(pages).
    pub(super) fn is_of(&self, pages: impl Iterator<Item = PageId>) -> bool {
        let mut anew = Self::default();
        pages.for_each(|page| anew.insert(page));
        assert!(
            !self.extents.values().any(|pages| *pages == 0),
            "invariant 1"
        );
        anew.extents == self.extents
    }
}

/// The extent that `page` is in.
pub(super) fn extent_of(page: PageId) -> (ObjectId, u64) {
    (page.object, page.index / EXTENT_PAGES)
}

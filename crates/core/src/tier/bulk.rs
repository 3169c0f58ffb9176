//! Very many pages at once, as a restart brings them: the same as [`SlotTable::restore`] of one
//! after the other, in a fraction of the time.
//!
//! What takes time in a large table is memory that no cache of the processor holds. So the lines
//! that the next pages go to are asked for some at a time, which memory answers side by side, and
//! what is ordered by page (extents, dirty pages) is sorted first and then put in, in order.
//!
//! # States
//! *Begun* ([`Bulk::default`]): pages go to slots; extents and dirty pages may lack them.
//! *Ended* ([`SlotTable::end_bulk`]): the invariants of the table hold again.
//!
//! Whoever begins one ends it before anybody asks the table for extents or dirty pages:
//! [`crate::hierarchy::Hierarchy::restore_all`] does.
//!
//! Memory: 16 bytes a page for up to [`EXTENTS_MAX`] pages, and 24 for each dirty one.

use super::extents::extent_of;
use super::{Dirty, SlotTable};
use crate::hash;
use crate::page::{BlockId, ObjectId, PageId, SlotId};
use std::collections::BTreeMap;
use std::hint::black_box;

/// Pages whose extents are sorted together.
const EXTENTS_MAX: usize = 1 << 20;

/// What the table still lacks of the pages that came; see the module text.
#[derive(Debug, Default)]
pub(crate) struct Bulk {
    extents: Vec<(ObjectId, u64)>,
    policy: Vec<(PageId, Dirty)>,
    reserve: Vec<(PageId, Dirty)>,
}

impl SlotTable {
    /// The pages are about to be looked for: has their lines brought near, all at the same time.
    pub(crate) fn approach(&self, pages: impl Iterator<Item = PageId>) {
        let seen = pages.fold(0u8, |seen, page| {
            seen ^ self.map.glance(hash::of_page(page))
        });
        black_box(seen);
    }

    /// As [`SlotTable::restore`], as a part of `bulk`.
    pub(crate) fn restore_in_bulk(
        &mut self,
        bulk: &mut Bulk,
        page: PageId,
        block: BlockId,
        (dirty, keep): (bool, bool),
    ) -> Option<SlotId> {
        if self.find(page).is_some() {
            return None;
        }
        let slot = self.pop_to_restore(dirty, keep)?;
        self.hold(slot, page);
        self.slots[slot.at()].set_valid(block);
        if dirty {
            let generation = self.next_generation();
            self.slots[slot.at()].set_dirty(true);
            let entry = (page, Dirty { slot, generation });
            match self.is_reserve(slot) {
                false => bulk.policy.push(entry),
                true => bulk.reserve.push(entry),
            }
        }
        bulk.extents.push(extent_of(page));
        if bulk.extents.len() == EXTENTS_MAX {
            self.extents.insert_all(&mut bulk.extents);
        }
        Some(slot)
    }

    /// All pages of `bulk` have come: the table knows all of them in every way.
    pub(crate) fn end_bulk(&mut self, mut bulk: Bulk) {
        self.extents.insert_all(&mut bulk.extents);
        insert_all(&mut self.dirty_policy, bulk.policy);
        insert_all(&mut self.dirty_reserve, bulk.reserve);
    }
}

/// Into an empty map, all of them are built in at once.
fn insert_all(into: &mut BTreeMap<PageId, Dirty>, mut pages: Vec<(PageId, Dirty)>) {
    pages.sort_unstable_by_key(|(page, _)| *page);
    let before = into.len();
    let added = pages.len();
    match into.is_empty() {
        true => *into = pages.into_iter().collect(),
        false => into.extend(pages),
    }
    assert_eq!(
        into.len(),
        before + added,
        "invariant 6 of the table: each once"
    );
}

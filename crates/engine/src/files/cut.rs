//! A file is cut or punched. Before base is, the map on flash says so durably (rule R6 of
//! `docs/write-back.md`), so that a crash in between can be carried to its end.
//!
//! A page of which a part stays is held as a writer holds it, from when base has its newest bytes
//! until the tier has dropped it: a write of that part is not lost with the rest. Pages are held
//! before the layout; whoever has the layout waits for no page.

use crate::durable::lease::Change;
use crate::durable::sync::lost_error;
use crate::engine::Engine;
use crate::files::object::Object;
use crate::mutant::Mutant;
use crate::state::page_of;
use std::io;
use std::sync::atomic::Ordering;
use thermocline_core::ledger::INTENT_PAGES;
use thermocline_core::{ObjectId, PageId};
use thermocline_trace::Op;

/// Regions that a punch marks one by one at most.
const REGIONS_MAX: u64 = 64;

/// Pages that nobody reads or writes as long as this lives.
struct Held<'a> {
    engine: &'a Engine,
    object: &'a Object,
    pages: Vec<u64>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for index in &self.pages {
            self.engine.abandon_writes(self.object, *index..=*index);
        }
    }
}

impl Engine {
    pub(crate) fn trim_pages(&self, id: ObjectId, first: u64, last: u64) {
        debug_assert!(first <= last, "a range has a first page");
        let mut inner = self.inner();
        inner.ahead.forget(id, first, last);
        self.decide(&mut inner, &[], |hierarchy, out| {
            hierarchy.trim(id, first, last, out)
        });
    }

    /// Drops what is clean of the pages `first..=last`: base may have changed there. What is dirty
    /// stays.
    fn trim_clean(&self, id: ObjectId, first: u64, last: u64) {
        let mut inner = self.inner();
        inner.ahead.forget(id, first, last);
        let (slots, pool) = (inner.hierarchy.slots(), inner.hierarchy.pool());
        let on_flash = slots.dirty_in(id, first, last).into_iter();
        let frames = pool.dirty_of(id).into_iter();
        let in_dram = frames.filter_map(|frame| pool.page(frame));
        let pages = on_flash.map(|(page, _)| page).chain(in_dram);
        let mut dirty: Vec<u64> = pages.map(|page| page.index).collect();
        dirty.sort_unstable();
        dirty.retain(|index| (first..=last).contains(index));
        self.decide(&mut inner, &[], |hierarchy, out| {
            let mut from = first;
            for index in dirty {
                if from < index {
                    hierarchy.trim(id, from, index - 1, out);
                }
                from = from.max(index + 1);
            }
            if from <= last {
                hierarchy.trim(id, from, last, out);
            }
        });
    }

    /// Cuts or extends the object to `length` bytes.
    ///
    /// # Errors
    /// Those of the base device, and of flash when dirty pages are concerned.
    pub fn truncate(&self, object: &Object, length: u64) -> io::Result<()> {
        let id = self.still_open(object)?.id;
        self.end_cut(object)?;
        let size = u64::from(self.config.page_size);
        let first = length / size;
        let cut_page = (!length.is_multiple_of(size)).then_some(first);
        let held = self.settle_and_hold(object, cut_page)?;
        let layout = object.layout_alone();
        // Somebody else's may have failed meanwhile.
        self.end_cut_alone(object)?;
        let mut noted = None;
        let unseen = object.passthrough.load(Ordering::Acquire);
        // Once the device has failed nobody knows what its map says of a file.
        let failed = self.has_flash && self.is_off() && self.is_paged(object);
        let concerned = failed || self.is_named(id) || self.has_pages(id, first, u64::MAX);
        assert!(
            !(concerned && unseen),
            "flash has nothing of what it does not see"
        );
        let mut marked = None;
        if concerned {
            noted = self.announce_cut(object, length);
            marked = self.regions_unread(object, first);
            let change = marked.as_ref().map_or(Change::Pages(&[]), |regions| {
                Self::change_of(id, regions.as_deref())
            });
            self.before(object, change);
        }
        let cut = object.base.set_len(length);
        object.unsynced.add();
        // A cut that is said to have failed may have been made.
        if cut.is_ok() || object.base.len().is_ok_and(|found| found == length) {
            let before = object.length.swap(length, Ordering::AcqRel);
            if length <= before {
                object.room.is_gone();
            }
            // A page cut in the middle goes too: its tail must read zeros if the file grows.
            self.trim_pages(id, first, u64::MAX);
            // A page that was written and synced while base was cut is dirty in the durable map.
            if self.is_named(id) {
                object.uncommitted.add();
            }
            self.record_quiet(Op::Trim, object, length, before.saturating_sub(length));
        }
        drop(layout);
        drop(held);
        if let Some(regions) = &marked {
            self.after(Self::change_of(id, regions.as_deref()));
        }
        if concerned {
            // Flash forgets the pages for good only once base has forgotten them for good.
            self.sync_base(object)?;
        }
        if let Some(number) = noted {
            self.take_back_cut(object, number)?;
        }
        cut
    }

    /// Gives base what is newer of these pages, which ascend, and keeps others from reading and
    /// writing them.
    fn settle_and_hold<'a>(
        &'a self,
        object: &'a Object,
        pages: impl IntoIterator<Item = u64>,
    ) -> io::Result<Held<'a>> {
        let mut pages: Vec<u64> = pages.into_iter().collect();
        pages.dedup();
        assert!(
            pages.is_sorted(),
            "two who hold pages never wait in a circle"
        );
        loop {
            for index in &pages {
                self.settle(object.id, *index, *index)?;
            }
            let mut held = Held {
                engine: self,
                object,
                pages: Vec::new(),
            };
            for index in &pages {
                self.start_writes(object, *index..=*index);
                held.pages.push(*index);
            }
            let inner = self.inner();
            let dirty = |index: &u64| inner.hierarchy.is_dirty(page_of(object, *index));
            let dirtied = pages.iter().any(dirty);
            drop(inner);
            // Somebody may have written them just before they were held.
            if !dirtied {
                return Ok(held);
            }
        }
    }

    /// Durably notes that a cut is about to happen to a file that has pages on flash; its number.
    fn announce_cut(&self, object: &Object, length: u64) -> Option<u64> {
        if !self.has_flash || self.is_off() {
            return None;
        }
        let number = object.under_way.note_cut(length);
        self.put_record(object);
        // A failed commit switches the tier off, and base is all there is. Should the note have
        // reached the device all the same, it counts only while base does not change later.
        let _ = self.commit();
        Some(number)
    }

    /// Ends a cut whose sync failed: it is made again, for the system may have given it up, and
    /// synced. Until then the object is not changed: were the note still on flash after a crash,
    /// recovery would cut away what came later.
    pub(crate) fn end_cut(&self, object: &Object) -> io::Result<()> {
        if object.under_way.cut().is_none() {
            return Ok(());
        }
        let _layout = object.layout_alone();
        self.end_cut_alone(object)
    }

    /// As [`Engine::end_cut`], by whoever holds the layout alone.
    fn end_cut_alone(&self, object: &Object) -> io::Result<()> {
        let Some(number) = object.under_way.cut() else {
            return Ok(());
        };
        self.before_base_write(object, &[]);
        // Perhaps nobody uses the file any more: then it is still as it was left.
        object.own_change(|| object.base.set_len(object.length()))?;
        object.unsynced.add();
        self.sync_base(object)?;
        self.take_back_cut(object, number)
    }

    /// Base durably has the length that the object shows, whether the cut was made or failed: the
    /// note must not count any more. One that flash may keep counts until base was changed after
    /// the lease, and a base that refused the cut was not.
    fn take_back_cut(&self, object: &Object, number: u64) -> io::Result<()> {
        if !object.under_way.cut_is_durable(number) {
            return Ok(());
        }
        self.put_record(object);
        // A failed commit switches the tier off.
        if self.is_off() || self.commit().is_err() {
            self.before_base_write(object, &[]);
            object.own_change(|| (object.touch)(None))?;
            self.sync_base_now(object, false)?;
        }
        object.under_way.end_cut(number);
        Ok(())
    }

    pub(crate) fn has_pages(&self, id: ObjectId, first: u64, last: u64) -> bool {
        let inner = self.inner();
        let some = inner.hierarchy.resident_of(id) > 0;
        some && !inner.hierarchy.slots().in_range(id, first, last).is_empty()
    }

    /// Deallocates a range, which reads zeros afterwards. Costs by the pages the tier has of the
    /// range, and by the part of it that lies in the file.
    ///
    /// # Errors
    /// Those of the base device.
    pub fn punch(&self, object: &Object, offset: u64, length: u64) -> io::Result<()> {
        let id = self.still_open(object)?.id;
        // Past its end a file has no pages; a device may not know such offsets.
        let end = offset.saturating_add(length);
        if length == 0 {
            return Ok(());
        }
        self.end_cut(object)?;
        let page = u64::from(self.config.page_size);
        let (first, last) = (offset / page, (end - 1) / page);
        let kept = [(offset, first), (end, last)];
        let kept = kept.into_iter().filter(|(at, _)| !at.is_multiple_of(page));
        // What flash does not give of the pages that go whole is nobody's loss.
        let lost = self.settle_but_lost(id, first, last)?;
        if lost
            .iter()
            .any(|lost| kept.clone().any(|(_, index)| index == lost.index))
        {
            return Err(lost_error());
        }
        if self.is_named(id) && !self.is_off() {
            // The durable map may still call pages dirty that are clean or gone by now (rule R2).
            // A failed commit switches the tier off: base is then written after the lease.
            let _ = self.commit();
        }
        let held = self.settle_and_hold(object, kept.map(|(_, index)| index))?;
        let regions = self.regions(object, first, last);
        let change = Self::change_of(id, regions.as_deref());
        self.before(object, change);
        let layout = object.layout_alone();
        let punched = object.base.punch(offset, length);
        object.unsynced.add();
        match &punched {
            Ok(()) => self.trim_pages(id, first, last),
            // Who knows how much of it was punched. What somebody wrote meanwhile stays.
            Err(_) => self.trim_clean(id, first, last),
        }
        // A page that was written and synced just before is dirty in the durable map.
        if self.is_named(id) {
            object.uncommitted.add();
        }
        drop(layout);
        drop(held);
        self.after(change);
        self.record_quiet(Op::Trim, object, offset, length);
        punched
    }

    /// While the map is being read nobody can empty what it says of pages that a cut drops: then
    /// their regions are marked, as those of a punch are.
    fn regions_unread(&self, object: &Object, first: u64) -> Option<Option<Vec<PageId>>> {
        let unread = self.inner().is_named_unread(object.id);
        let marks = unread && self.config.planted != Mutant::UnmarkedCut;
        marks.then(|| self.regions(object, first, u64::MAX))
    }

    /// A change in these regions, or anywhere.
    fn change_of(id: ObjectId, regions: Option<&[PageId]>) -> Change<'_> {
        match regions {
            Some(pages) => Change::Pages(pages),
            None => Change::Whole(id),
        }
    }

    /// One page of each region (see [`INTENT_PAGES`]) of the range that the file has pages in;
    /// `None`
    /// when they are too many to be marked one by one.
    fn regions(&self, object: &Object, first: u64, last: u64) -> Option<Vec<PageId>> {
        let page = u64::from(self.config.page_size);
        let last = last.min(object.length().div_ceil(page));
        let regions = first / INTENT_PAGES..=last / INTENT_PAGES;
        if first > last || !self.is_paged(object) {
            return Some(Vec::new());
        }
        let few = regions.end() - regions.start() < REGIONS_MAX;
        let page = |region| PageId::new(object.id, region * INTENT_PAGES);
        few.then(|| regions.map(page).collect())
    }

    /// The frontend allocates in the object on base, which may then be `length` bytes long; 0: as
    /// long as it is.
    ///
    /// # Errors
    /// Those of `allocate`, and of base when a cut has to be ended before.
    pub fn allocate(
        &self,
        object: &Object,
        length: u64,
        allocate: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let object = self.still_open(object)?;
        self.end_cut(object)?;
        // Nobody sets base's length to what it was meanwhile.
        let _layout = object.layout();
        if length == 0 {
            object.room.is_theirs();
        }
        object.base_writes.fetch_add(1, Ordering::AcqRel);
        let allocated = allocate();
        object.base_writes.fetch_add(1, Ordering::AcqRel);
        object.unsynced.add();
        match allocated {
            Ok(()) => object.grow(length),
            // A part may have been allocated, and have made the file longer.
            Err(_) => object.grow(object.base.len().unwrap_or(0)),
        }
        allocated
    }
}

//! Pinned objects: their pages have slots of their own, which no policy knows and nobody evicts.
//!
//! A page of a pinned object comes to a *kept slot* whenever its bytes are at hand, be it read,
//! written or on its way out of the pool, and stays until it is trimmed, or until its bytes on
//! flash are no longer right. At a restart a dirty page that finds no other place takes a kept slot
//! too, until base has it. Policies are not told of its requests: what they learn is about the
//! pages that they decide about. When all kept slots are taken, the object has grown past what was
//! set aside for it, and a page more of it is like any other.
//!
//! How many kept slots there are is a matter of the tier's shape ([`HierarchyOptions::keeps`]): it
//! changes in the way the tier's size does (`reshape.rs`), and pages that were on flash before come
//! to kept slots then.
//!
//! # Invariants
//! 1. A clean page in a kept slot belongs to a pinned object.
//! 2. The pool weighs a page at flash's price exactly while the page has a slot; one of the reserve
//!    only with [`HierarchyOptions::reserve_as_flash`].
//!
//! [`HierarchyOptions::keeps`]: super::HierarchyOptions::keeps
//! [`HierarchyOptions::reserve_as_flash`]: super::HierarchyOptions::reserve_as_flash

use super::{Action, Hierarchy};
use crate::page::{FrameId, ObjectId, PageId, SlotId};
use crate::policy::{Access, Aside, Refusal, Removal};
use crate::pool::FlashMove;
use crate::tier::Area;

impl Hierarchy {
    /// Pins the object, or not any more: then its clean pages leave the kept slots, and dirty ones
    /// when base has them. O(its pages).
    pub fn set_pinned(&mut self, object: ObjectId, pinned: bool, out: &mut Vec<Action>) {
        if pinned {
            self.pinned.insert(object);
            return;
        }
        if !self.pinned.remove(&object) {
            return;
        }
        for slot in self.slots.in_range(object, 0, u64::MAX) {
            let kept = self.slots.area(slot) == Area::Kept;
            if kept && !self.slots.is_dirty(slot) && self.slots.pins(slot) == 0 {
                self.remove(slot, Removal::Evicted, out);
            }
        }
    }

    /// These objects are pinned, or not any more. To be followed by [`Hierarchy::reshape`], which
    /// brings their pages where they belong.
    pub fn mark_pinned(&mut self, objects: &[(ObjectId, bool)]) {
        for (object, pinned) in objects {
            match pinned {
                true => self.pinned.insert(*object),
                false => self.pinned.remove(object),
            };
        }
    }

    /// Whether the object is pinned.
    #[must_use]
    pub fn is_pinned(&self, object: ObjectId) -> bool {
        self.pinned.contains(&object)
    }

    /// Whether `page`, which is not on flash, would come to a kept slot.
    pub(super) fn keeps(&self, page: PageId) -> bool {
        self.slots.has_kept_room() && self.is_pinned(page.object)
    }

    /// The page in `slot` is in a kept slot, and its object is not pinned.
    pub(super) fn is_kept_in_vain(&self, slot: SlotId, page: PageId) -> bool {
        self.slots.area(slot) == Area::Kept && !self.is_pinned(page.object)
    }

    /// Tells the policy of a request, unless the page is none of its business.
    pub(super) fn tell_policy(&mut self, access: &Access, resident: Option<SlotId>) {
        self.tell_policy_of(access, resident, None);
    }

    /// The same of a request that is set apart by `why`, if nothing else does.
    pub(super) fn tell_policy_of(
        &mut self,
        access: &Access,
        resident: Option<SlotId>,
        why: Option<Aside>,
    ) {
        let area = resident.map(|slot| self.slots.area(slot));
        let kept = match area {
            Some(area) => area == Area::Kept,
            None => self.keeps(access.page),
        };
        if kept {
            return;
        }
        let known = resident.filter(|_| area == Some(Area::Policy));
        match area {
            _ if self.health.is_off() => self.policy.on_aside(access, known, Aside::Off),
            Some(Area::Reserve) => self.policy.on_aside(access, None, Aside::Reserve),
            _ => match why {
                Some(why) => self.policy.on_aside(access, known, why),
                None => self.policy.on_request(access, known),
            },
        }
    }

    /// A kept slot for a page that has no slot.
    pub(super) fn admit_kept(&mut self, page: PageId, how: FlashMove) -> Option<SlotId> {
        debug_assert!(self.keeps(page), "there is room");
        let Some(slot) = self.slots.admit_kept(page) else {
            self.refuse(Refusal::Pinned);
            return None;
        };
        self.came_in(page);
        self.counters.admissions += 1;
        self.flash_move(page, how);
        Some(slot)
    }

    /// Whether `page` is weighed as one on flash.
    pub(super) fn is_weighed_as_flash(&self, page: PageId) -> bool {
        let slot = self.slots.find(page);
        slot.is_some_and(|slot| self.reserve_as_flash || !self.slots.is_reserve(slot))
    }

    /// `page` came into the reserve from elsewhere than flash.
    pub(super) fn came_to_reserve(&mut self, page: PageId, how: FlashMove) {
        self.tell_reserve(page, true);
        if self.reserve_as_flash {
            self.flash_move(page, how);
        }
    }

    /// Tells the policy that `page` came into the reserve or left it, where that counts.
    pub(super) fn tell_reserve(&mut self, page: PageId, reserved: bool) {
        if self.reserve_as_flash {
            self.policy.on_reserve(page, reserved);
        }
    }

    /// Pages may have gone from one kind of slot to another: the pool weighs them anew.
    pub(super) fn weigh_frames(&mut self) {
        for frame in (0..self.pool.capacity()).map(FrameId) {
            let page = self.pool.page(frame);
            let how = match page.map(|page| self.is_weighed_as_flash(page)) {
                Some(true) => FlashMove::Entered,
                Some(false) => FlashMove::Left,
                None => continue,
            };
            self.pool.set_on_flash(frame, how);
        }
    }

    pub(super) fn assert_kept(&self) {
        for frame in (0..self.pool.capacity()).map(FrameId) {
            let page = self.pool.page(frame);
            let on_flash = page.map(|page| self.is_weighed_as_flash(page));
            let told = self.pool.is_on_flash(frame);
            let same = told.is_none() || told == on_flash;
            assert!(same, "invariant 2 of pinned objects: {page:?}");
        }
        for (slot, page) in self.slots.occupied() {
            let used = self.slots.is_dirty(slot) || self.slots.pins(slot) > 0;
            let in_vain = self.is_kept_in_vain(slot, page);
            assert!(used || !in_vain, "invariant 1 of pinned objects: {page:?}");
        }
    }
}

//! Making the tier larger or smaller, or moving it to another device, under requests that go on.
//!
//! # States
//! ```text
//!   Open -----> Through -----> Closed -----> Still -- reshape, start_over --+
//!    ^                                                                      |
//!    +----------------------------------------------------------------------+
//! ```
//! *Through*: writes go to base as in write-through, and every dirty page on flash is destaged.
//! *Closed*: no page comes to flash but new bytes of pages that are dirty there, so the write
//! buffer runs empty; the caller lets no new write requests in. *Still*: no slot is read or
//! destaged either. The pool serves and takes writes in all states. Any state may go back to
//! *Open*.
//!
//! # Invariants
//! 1. From *Through* on no page on flash becomes dirty that was not.
//! 2. Slots get other numbers only while nobody outside the lock knows one
//!    ([`Hierarchy::is_still`]).
//! 3. A dirty page on flash stays there whatever the shape.

use super::{Action, Hierarchy, HierarchyOptions, UnknownPolicy, quiet_access};
use crate::page::{BlockId, FrameId, SlotId};
use crate::policy::{self, Removal, TierPolicy};
use crate::tier::SlotTable;

/// How far the tier has come to rest; see the module text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Calm {
    /// At work.
    #[default]
    Open,
    /// Nothing more becomes dirty, and what is dirty goes to base.
    Through,
    /// Nothing more comes to flash.
    Closed,
    /// Nothing on flash is touched.
    Still,
}

impl Hierarchy {
    /// Brings the tier closer to rest, or back to work: then whoever waited may ask again.
    pub fn set_calm(&mut self, calm: Calm, out: &mut Vec<Action>) {
        self.calm = calm;
        match calm {
            Calm::Open => out.extend([Action::Room, Action::WakeWriter, Action::WakeCleaner]),
            _ => out.push(Action::WakeDestager),
        }
    }

    /// A page on flash gets bytes that base has not; it `was` dirty there before, or not.
    pub(super) fn assert_may_become_dirty(&self, was: bool) {
        let open = self.calm == Calm::Open;
        assert!(
            was || open,
            "invariant 1: nothing becomes dirty on the way to rest"
        );
    }

    /// Whether write requests that have not begun must wait.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.calm >= Calm::Closed
    }

    /// Whether nobody outside knows a slot by its number. O(1).
    #[must_use]
    pub fn is_still(&self) -> bool {
        let idle = self.staged() == 0 && self.held.is_empty() && self.slots.pinned() == 0;
        self.calm == Calm::Still && idle
    }

    /// Whether the tier has the slots and gives out the blocks of `options`.
    #[must_use]
    pub fn is_shaped(&self, options: &HierarchyOptions) -> bool {
        let slots = &self.slots;
        let areas = (slots.capacity(), slots.keeps(), slots.reserve());
        let blocks = (self.ledger.blocks(), self.ledger.limit());
        areas == options.areas() && blocks == (options.all_blocks(), options.all_blocks())
    }

    /// Gives the tier the slots and blocks of `options`; pages keep their blocks and their kind of
    /// slot. Where there will be fewer blocks, clean pages past the new end leave, and some more
    /// when there are more pages than slots; the blocks are then given out no more
    /// ([`crate::ledger::Ledger::retire`]). The policy starts anew, as in
    /// [`Hierarchy::set_policy`]. False, and nothing is done, unless the tier is still, no dirty
    /// page would have to go and no write past the new end was too late: it may still be to come.
    /// O(slots).
    ///
    /// # Errors
    /// [`UnknownPolicy`] when the one in force cannot be built by its name.
    pub fn reshape(
        &mut self,
        options: &HierarchyOptions,
        out: &mut Vec<Action>,
    ) -> Result<bool, UnknownPolicy> {
        let policy = self.anew(options)?;
        let blocks = options.all_blocks();
        let sizes = options.areas();
        let (capacity, keeps, reserve) = sizes;
        let less = capacity < self.slots.capacity()
            || keeps < self.slots.keeps()
            || reserve < self.slots.reserve()
            || blocks < self.ledger.blocks();
        let in_the_way = (less && self.slots.dirty() > 0) || self.ledger.has_taken(blocks);
        if !self.is_still() || in_the_way {
            return Ok(false);
        }
        for slot in self.without_place(capacity, keeps, blocks) {
            assert!(!self.slots.is_dirty(slot), "invariant 3: {slot:?}");
            self.remove(slot, Removal::Evicted, out);
        }
        let pinned = &self.pinned;
        self.slots = self
            .slots
            .reshaped(sizes, |object| pinned.contains(&object));
        self.make_way_for_slots();
        self.take_over(policy, options);
        match blocks < self.ledger.blocks() {
            true => self.ledger.retire(blocks),
            false => self.ledger.resize(blocks),
        }
        Ok(true)
    }

    /// Slots whose clean pages cannot stay: those past the new end, and of the others as many as
    /// there are more than slots, once pinned objects have theirs. Dirty ones take a kept slot when
    /// they find no other place, and stay: where there are any, no kind of slot becomes fewer, so
    /// that there is one ([`SlotTable::reshaped`] does the same).
    fn without_place(&self, capacity: u32, keeps: u32, blocks: u32) -> Vec<SlotId> {
        let inside = |slot: SlotId| self.slots.block(slot).is_some_and(|b| b < BlockId(blocks));
        let (mut free, mut free_kept) = (capacity, keeps);
        let mut go = Vec::new();
        for (slot, page) in self.slots.occupied() {
            let reserve = self.slots.is_reserve(slot);
            let pinned = self.is_pinned(page.object) && free_kept > 0;
            let kept = pinned || (free == 0 && self.slots.is_dirty(slot));
            let place = match kept {
                true => &mut free_kept,
                false => &mut free,
            };
            match (inside(slot), reserve && !pinned) {
                (false, _) => go.push(slot),
                (true, true) => {}
                (true, false) if *place > 0 => *place -= 1,
                (true, false) => go.push(slot),
            }
        }
        go
    }

    /// The tier is on another device now, which holds nothing: every page on flash is forgotten,
    /// and the tier is on. What is in the pool stays, dirty or not. False, and nothing is done,
    /// unless the tier is still and no page on flash is dirty.
    ///
    /// # Errors
    /// As [`Hierarchy::reshape`].
    pub fn start_over(
        &mut self,
        options: &HierarchyOptions,
        out: &mut Vec<Action>,
    ) -> Result<bool, UnknownPolicy> {
        let policy = self.anew(options)?;
        if !self.is_still() || self.slots.dirty() > 0 {
            return Ok(false);
        }
        let all: Vec<SlotId> = self.slots.occupied().map(|(slot, _)| slot).collect();
        for slot in all {
            self.remove(slot, Removal::Off, out);
        }
        self.slots = SlotTable::reshaped(&self.slots, options.areas(), |_| false);
        self.take_over(policy, options);
        self.ledger = self.ledger.moved_to(options.all_blocks());
        self.health.switch_on();
        Ok(true)
    }

    /// The map on the device is empty and knows nothing: every block is free. Base writes that go
    /// on keep their regions. False, and nothing is done, while a page is on flash or under way to
    /// it.
    pub fn forget_map(&mut self) -> bool {
        let idle = self.is_idle();
        if idle {
            self.ledger = self.ledger.moved_to(self.ledger.blocks());
        }
        idle
    }

    /// Uses flash again. False, and nothing is done, while a batch is under way or has failed, or
    /// while base may be getting bytes that no batch can name: those of dirty pages whose newest
    /// are in DRAM alone.
    pub fn switch_on(&mut self) -> bool {
        let may = !self.ledger.is_committing() && !self.has_dirty_staged();
        if may {
            self.health.switch_on();
        }
        may
    }

    /// Tells a new policy of the pages on flash and in the pool.
    pub(super) fn introduce(&self, policy: &mut dyn TierPolicy) {
        for (slot, page) in self.slots.residents() {
            let access = quiet_access(page, self.requests);
            policy.on_found(&access, slot);
            if self.slots.is_dirty(slot) {
                policy.on_dirty(&access, slot);
            }
        }
        let reserve = self.slots.occupied().filter(|_| self.reserve_as_flash);
        for (_, page) in reserve.filter(|(slot, _)| self.slots.is_reserve(*slot)) {
            policy.on_reserve(page, true);
        }
        let frames = (0..self.pool.capacity()).map(FrameId);
        for page in frames.filter_map(|frame| self.pool.page(frame)) {
            policy.on_pool(page, true);
        }
    }

    /// The name that the policy in force was asked for by: its own, or [`policy::DEFAULT`].
    #[must_use]
    pub fn policy_asked(&self) -> &str {
        &self.asked
    }

    /// What the memory allowed made of it, in one sentence; see [`policy::remark`].
    #[must_use]
    pub fn policy_remark(&self) -> Option<String> {
        policy::remark(&self.asked, &self.policy_options)
    }

    /// The policy in force, empty, at another size; where it is the default, what that is there.
    pub(super) fn anew(
        &self,
        options: &HierarchyOptions,
    ) -> Result<Box<dyn TierPolicy>, UnknownPolicy> {
        let name = self.asked.as_str();
        let policy = policy::build(name, &options.policy_options);
        policy.ok_or_else(|| UnknownPolicy::of_tier(name))
    }

    /// Switches to the policy called `name`; pages on flash stay, what was learned does not.
    pub fn set_policy(&mut self, name: &str) -> Result<(), UnknownPolicy> {
        let mut policy = policy::build(name, &self.policy_options)
            .ok_or_else(|| UnknownPolicy::of_tier(name))?;
        self.introduce(policy.as_mut());
        self.policy = policy;
        self.asked = name.to_string();
        Ok(())
    }

    fn take_over(&mut self, mut policy: Box<dyn TierPolicy>, options: &HierarchyOptions) {
        self.shape += 1;
        assert_eq!(self.slots.capacity(), options.policy_options.capacity);
        assert!(self.is_still(), "invariant 2: nobody knows a slot");
        self.introduce(policy.as_mut());
        self.policy = policy;
        self.policy_options = options.policy_options.clone();
        self.weigh_frames();
    }
}

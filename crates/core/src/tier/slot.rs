//! One slot in 17 bytes, and what a few of them need beside that.

use super::SlotState;
use crate::hash;
use crate::page::{BlockId, ObjectId, PageId, SlotId};
use hashbrown::HashTable;

/// No device is that long: [`super::SlotTable::with_reserve`] sees to it.
pub(super) const NO_BLOCK: u32 = u32::MAX;

const STATE: u8 = 3;
const DIRTY: u8 = 4;
const BUSY: u8 = 8;

/// A page, where its bytes are, and what state they are in. Packed: there is one for every page on
/// flash, and a read that crosses two lines of a cache costs less than seven bytes of padding.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed)]
pub(super) struct Slot {
    index: u64,
    object: u32,
    /// Where its valid bytes are; staged: where the bytes before are. [`NO_BLOCK`] for none. Of a
    /// free slot: the next free one, or [`NO_BLOCK`].
    block: u32,
    flags: u8,
}

const _: () = assert!(
    size_of::<Slot>() == 17,
    "there is one for every page on flash"
);

impl Slot {
    /// Free, with `next` after it in the chain of free ones.
    pub(super) const fn free(next: u32) -> Self {
        Self {
            index: 0,
            object: 0,
            block: next,
            flags: SlotState::Free as u8,
        }
    }

    /// Holds `page`, clean, without a block.
    pub(super) const fn holding(page: PageId, state: SlotState) -> Self {
        Self {
            index: page.index,
            object: page.object.0,
            block: NO_BLOCK,
            flags: state as u8,
        }
    }

    pub(super) const fn page(&self) -> PageId {
        PageId::new(ObjectId(self.object), self.index)
    }

    pub(super) const fn state(&self) -> SlotState {
        match self.flags & STATE {
            0 => SlotState::Free,
            1 => SlotState::Staged,
            2 => SlotState::Valid,
            _ => SlotState::Draining,
        }
    }

    pub(super) fn set_state(&mut self, state: SlotState) {
        self.flags = (self.flags & !STATE) | state as u8;
    }

    pub(super) const fn is_dirty(&self) -> bool {
        self.flags & DIRTY != 0
    }

    pub(super) fn set_dirty(&mut self, dirty: bool) {
        self.flags = (self.flags & !DIRTY) | if dirty { DIRTY } else { 0 };
    }

    /// Whether there is a [`Busy`] of it.
    pub(super) const fn is_busy(&self) -> bool {
        self.flags & BUSY != 0
    }

    pub(super) fn set_busy(&mut self, busy: bool) {
        self.flags = (self.flags & !BUSY) | if busy { BUSY } else { 0 };
    }

    pub(super) const fn is_resident(&self) -> bool {
        matches!(self.state(), SlotState::Staged | SlotState::Valid)
    }

    /// The block with its bytes; of a free slot, none.
    pub(super) fn block(&self) -> Option<BlockId> {
        let some = self.block != NO_BLOCK && self.state() != SlotState::Free;
        some.then_some(BlockId(self.block))
    }

    /// The next free slot after this one, which is free.
    pub(super) fn next_free(&self) -> u32 {
        assert_eq!(self.state(), SlotState::Free, "only free slots are chained");
        self.block
    }

    pub(super) fn forget_block(&mut self) {
        self.block = NO_BLOCK;
    }

    /// The bytes of its page are in `block` now; says where they were.
    pub(super) fn set_valid(&mut self, block: BlockId) -> Option<BlockId> {
        assert!(block.0 != NO_BLOCK, "invariant 5: no device is that long");
        let old = self.block();
        self.block = block.0;
        self.set_state(SlotState::Valid);
        old
    }
}

/// What a staged, draining or pinned slot needs beside its page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Busy {
    slot: u32,
    /// Counts contents: a write that finishes for an older generation is stale. 0: not staged
    /// since.
    pub(super) generation: u32,
    pub(super) pins: u16,
    pub(super) writing: bool,
}

/// The busy slots, few of all.
#[derive(Clone, Debug, Default)]
pub(super) struct BusySlots(HashTable<Busy>);

impl BusySlots {
    pub(super) fn get(&self, slot: SlotId) -> Option<&Busy> {
        self.0.find(hash_of(slot.0), |busy| busy.slot == slot.0)
    }

    /// That of `slot`, made when there is none.
    pub(super) fn entry(&mut self, slot: SlotId) -> &mut Busy {
        let same = |busy: &Busy| busy.slot == slot.0;
        let new = Busy {
            slot: slot.0,
            generation: 0,
            pins: 0,
            writing: false,
        };
        let found = self
            .0
            .entry(hash_of(slot.0), same, |busy| hash_of(busy.slot));
        found.or_insert(new).into_mut()
    }

    pub(super) fn remove(&mut self, slot: SlotId) {
        let found = self
            .0
            .find_entry(hash_of(slot.0), |busy| busy.slot == slot.0);
        assert!(found.is_ok(), "busy slots are known");
        if let Ok(found) = found {
            found.remove();
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotId, &Busy)> + '_ {
        self.0.iter().map(|busy| (SlotId(busy.slot), busy))
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.allocation_size()
    }
}

fn hash_of(slot: u32) -> u64 {
    hash::mix(1, u64::from(slot))
}

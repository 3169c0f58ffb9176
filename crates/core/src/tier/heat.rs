//! How often the page in each slot was read lately: what a list of hot pages is ordered by.
//!
//! A count belongs to a page's stay in its slot: it begins at 0, goes up by one a read to 255 at
//! most, and is halved whenever a list is made ([`SlotTable::take_hot`]), so it fades. Policies do
//! not see it. A table of another shape begins anew.

use super::SlotTable;
use crate::page::{PageId, SlotId};
use std::ops::Range;

/// How many slots have each count, by count.
pub type HeatCounts = [u64; 256];

impl SlotTable {
    /// The page in `slot` was read there. O(1).
    pub fn warm_up(&mut self, slot: SlotId) {
        let heat = &mut self.heat[slot.at()];
        *heat = heat.saturating_add(1);
    }

    /// Reads of the page in `slot` lately; 0 of a free slot.
    #[must_use]
    pub fn heat(&self, slot: SlotId) -> u8 {
        self.heat[slot.at()]
    }

    /// Adds the slots of `range` that hold a page to `counts`; a slot that there is not is none.
    /// O(range).
    pub fn count_heat(&self, range: Range<u32>, counts: &mut HeatCounts) {
        for (slot, _) in self.pages_in(range) {
            counts[usize::from(self.heat[slot.at()])] += 1;
        }
    }

    /// Pages in the slots of `range` that were read `least` times, each with its count, in slot
    /// order. Every count in the range fades. O(range).
    pub fn take_hot(&mut self, range: Range<u32>, least: u8) -> Vec<(PageId, u8)> {
        let pages = self.pages_in(range.clone());
        let hot = pages.map(|(slot, page)| (page, self.heat[slot.at()]));
        let hot = hot.filter(|(_, heat)| *heat >= least).collect();
        let end = range.end.min(self.heat.len() as u32);
        let start = range.start.min(end);
        for heat in &mut self.heat[start as usize..end as usize] {
            *heat /= 2;
        }
        hot
    }

    /// Slots of every kind.
    #[must_use]
    pub fn all(&self) -> u32 {
        self.heat.len() as u32
    }

    fn pages_in(&self, range: Range<u32>) -> impl Iterator<Item = (SlotId, PageId)> + '_ {
        let ids = (range.start..range.end.min(self.all())).map(SlotId);
        ids.filter_map(|slot| self.page(slot).map(|page| (slot, page)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{BlockId, ObjectId};

    fn page(index: u64) -> PageId {
        PageId::new(ObjectId(1), index)
    }

    #[test]
    fn counts_belong_to_a_stay_and_fade() {
        let mut table = SlotTable::with_areas(3, 0, 1);
        let slots: Vec<SlotId> = (0..3).filter_map(|i| table.admit(page(i))).collect();
        for (at, slot) in slots.iter().enumerate() {
            (0..300 * at).for_each(|_| table.warm_up(*slot));
        }
        let mut counts = [0; 256];
        table.count_heat(0..u32::MAX, &mut counts);
        assert_eq!((counts[0], counts[255]), (1, 2));
        assert_eq!(table.take_hot(1..2, 1), [(page(1), 255)]);
        assert_eq!(table.heat(slots[1]), 127, "it faded");
        assert_eq!(table.heat(slots[2]), 255, "it is in no range yet");
        assert_eq!(table.take_hot(0..9, 200), [(page(2), 255)]);
        assert_eq!(table.take_hot(7..9, 0), []);
        let slot = slots[1];
        table.start_write(slot);
        table.end_write(slot, table.generation(slot), Some(BlockId(7)));
        table.remove(slot);
        assert_eq!(table.heat(slot), 0, "another page begins anew");
    }
}

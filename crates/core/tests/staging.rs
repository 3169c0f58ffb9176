//! Blocks whose writes fail now and then must not run out; what leaves on its way is gone.

use thermocline_core::policy::PolicyOptions;
use thermocline_core::tier::SlotTable;
use thermocline_core::{
    BlockId, Fault, Hierarchy, HierarchyOptions, HintSet, ObjectId, PageId, hash,
};

/// Reads 2,000 pages through a tier of 8 slots; every `every`-th write to flash ends in `fault`.
/// Each page on its way to flash gets there, or the tier is off.
fn read_with_faults(every: u32, fault: Fault) -> Hierarchy {
    let options = HierarchyOptions {
        blocks: 10,
        ..HierarchyOptions::new("lru", PolicyOptions::new(8))
    };
    let mut hierarchy = Hierarchy::new(&options).expect("a known policy");
    let (mut out, mut writes) = (Vec::new(), 0);
    for index in 0..2000 {
        let page = PageId::new(ObjectId(1), index);
        let start = hierarchy.start_read(page);
        hierarchy.finish_read(page, &HintSet::UNKNOWN, start, &mut out);
        for _ in 0..4 {
            if hierarchy.wants_commit() {
                hierarchy.commit_now(&mut out);
            }
            if let Some(job) = hierarchy.next_write() {
                writes += 1;
                let failed = writes % every == 0;
                let result = if failed { Err(fault) } else { Ok(index) };
                hierarchy.end_write(job, result, &mut out);
            }
        }
        let stuck = hierarchy.staged() > 0 && !hierarchy.is_off();
        assert!(!stuck, "page {index} finds no block after {writes} writes");
        hierarchy.assert_invariants();
    }
    hierarchy
}

#[test]
fn blocks_that_could_not_be_written_are_tried_again() {
    assert!(!read_with_faults(20, Fault::WriteError).is_off());
}

#[test]
fn the_tier_goes_off_when_late_writes_hold_all_spare_blocks() {
    assert!(read_with_faults(200, Fault::TimedOut).is_off());
}

/// The table of slots knows a page by a byte of its hash first; those of these pages are the
/// lowest, as of an empty place.
#[test]
fn a_page_that_leaves_while_it_is_being_written_is_not_found() {
    let pages = (0..).map(|index| PageId::new(ObjectId(1), index));
    let mut pages = pages.filter(|page| hash::of_page(*page) as u8 <= 1);
    let (stays, leaves) = (pages.next().expect("one"), pages.next().expect("another"));
    let mut slots = SlotTable::new(8);
    slots.admit(stays).expect("room");
    let slot = slots.admit(leaves).expect("room");
    slots.start_write(slot);
    slots.remove(slot);
    assert_eq!(slots.find(leaves), None);
    slots.end_write(slot, slots.generation(slot), Some(BlockId(0)));
    assert_eq!(slots.find(leaves), None);
    slots.assert_invariants();
}

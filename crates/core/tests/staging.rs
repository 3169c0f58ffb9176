//! Blocks whose writes fail now and then must not run out.

use thermocline_core::policy::PolicyOptions;
use thermocline_core::{Fault, Hierarchy, HierarchyOptions, HintSet, ObjectId, PageId};

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

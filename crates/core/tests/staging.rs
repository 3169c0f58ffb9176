//! Blocks whose writes fail now and then must not run out; what leaves on its way is gone; a full
//! buffer gives up its coldest page.

#![allow(
    clippy::disallowed_types,
    reason = "a test looks at what a policy was asked that a hierarchy owns"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use thermocline_core::policy::{
    Access, Decision, Opportunity, PolicyOptions, Refusal, Removal, TierPolicy,
};
use thermocline_core::tier::SlotTable;
use thermocline_core::{
    Absorbed, BlockId, Fault, Hierarchy, HierarchyOptions, HintSet, ObjectId, PageId, RequestType,
    SlotId, hash, hint_type,
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

/// A policy that lets in what there is room for, and knows pages with higher numbers to be worth
/// more. It counts how often it is asked.
struct Asked {
    times: Arc<AtomicU64>,
    /// This page is worth most.
    risen: Arc<AtomicU64>,
}

impl TierPolicy for Asked {
    fn name(&self) -> &'static str {
        "asked"
    }
    fn on_request(&mut self, _: &Access, _: Option<SlotId>) {}
    fn decide(&mut self, _: &Access, _: Opportunity, slots: &SlotTable) -> Decision {
        match slots.has_room() {
            true => Decision::Admit,
            false => Decision::Refuse(Refusal::Cold),
        }
    }
    fn on_admit(&mut self, _: &Access, _: SlotId) {}
    fn on_remove(&mut self, _: PageId, _: SlotId, _: Removal) {}
    fn worth(&self, page: PageId) -> f64 {
        self.times.fetch_add(1, Ordering::Relaxed);
        match page.index == self.risen.load(Ordering::Relaxed) {
            true => f64::MAX,
            false => page.index as f64,
        }
    }
    fn bytes(&self) -> usize {
        0
    }
    fn assert_invariants(&self, _: &SlotTable) {}
}

/// When writes to flash lag, a newcomer takes the place of the page that is worth least, as it is
/// worth now, and the policy is not asked about all of them each time.
#[test]
fn a_full_buffer_gives_up_its_coldest_page_and_asks_little() {
    const BUFFER: u64 = 64;
    let (times, risen) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let policy = Asked {
        times: Arc::clone(&times),
        risen: Arc::clone(&risen),
    };
    let options = HierarchyOptions {
        buffer_pages: BUFFER as u32,
        ..HierarchyOptions::new("lru", PolicyOptions::new(1000))
    };
    let mut hierarchy = Hierarchy::with_policy(Box::new(policy), &options).expect("known");
    let mut out = Vec::new();
    let mut read = |hierarchy: &mut Hierarchy, index: u64| {
        let page = PageId::new(ObjectId(1), index);
        let start = hierarchy.start_read(page);
        hierarchy.finish_read(page, &HintSet::UNKNOWN, start, &mut out);
        hierarchy.assert_invariants();
        hierarchy.slots().find(page).is_some()
    };
    for index in 1001..=1000 + BUFFER {
        assert!(read(&mut hierarchy, index));
    }
    assert_eq!(times.swap(0, Ordering::Relaxed), 0, "there was room");
    for index in 1..=500 {
        assert!(!read(&mut hierarchy, index), "{index} is worth least");
    }
    risen.store(1001, Ordering::Relaxed);
    assert!(
        read(&mut hierarchy, 2000),
        "the page after the one that rose leaves"
    );
    let slots = hierarchy.slots();
    let on_flash = |index| slots.find(PageId::new(ObjectId(1), index)).is_some();
    assert!(on_flash(1001) && !on_flash(1002) && on_flash(1003));
    let asked = times.load(Ordering::Relaxed);
    assert!(asked <= BUFFER + 2 * 500 + 4, "asked {asked} times");
}

/// A commit settles what was staged before it took the pages. Newer bytes of a page that it is
/// writing are not among that, and whoever syncs them must not take its end for theirs.
#[test]
fn newer_bytes_of_a_page_that_is_being_written_are_staged_after_it() {
    let options = HierarchyOptions::new("lru", PolicyOptions::new(8));
    let mut hierarchy = Hierarchy::new(&options).expect("a known policy");
    hierarchy.set_write_back(true);
    let page = PageId::new(ObjectId(1), 3);
    let mut out = Vec::new();
    let mut write = |hierarchy: &mut Hierarchy| {
        assert!(hierarchy.start_write(page));
        let absorbed = hierarchy.absorb(page, &HintSet::UNKNOWN, 0, &mut out);
        assert_eq!(absorbed, Absorbed::Done);
    };
    write(&mut hierarchy);
    let job = hierarchy.next_write().expect("it is staged");
    // As the commit that takes it says.
    let settled = hierarchy.staged_from();
    write(&mut hierarchy);
    assert!(
        settled < hierarchy.stagings(),
        "{settled} covers the newer bytes"
    );
    let mut out = Vec::new();
    hierarchy.end_write(job, Ok(1), &mut out);
    assert!(hierarchy.staged_from() < hierarchy.stagings(), "they wait");
    let job = hierarchy.next_write().expect("they are next");
    hierarchy.end_write(job, Ok(2), &mut out);
    assert_eq!(hierarchy.staged_from(), hierarchy.stagings());
}

/// No commit is made while the tier is off: whoever waits for one would ask for it again and again.
#[test]
fn a_tier_that_is_off_wants_no_commit() {
    let options = HierarchyOptions {
        blocks: 9,
        ..HierarchyOptions::new("lru", PolicyOptions::new(8))
    };
    let mut hierarchy = Hierarchy::new(&options).expect("a known policy");
    hierarchy.set_write_back(true);
    let mut out = Vec::new();
    let write = |hierarchy: &mut Hierarchy, index: u64, out: &mut Vec<_>| {
        let page = PageId::new(ObjectId(1), index);
        assert!(hierarchy.start_write(page));
        let absorbed = hierarchy.absorb(page, &HintSet::UNKNOWN, 0, out);
        assert_eq!(absorbed, Absorbed::Done);
    };
    for index in 0..8 {
        write(&mut hierarchy, index, &mut out);
        let job = hierarchy.next_write().expect("it is staged");
        hierarchy.end_write(job, Ok(index), &mut out);
    }
    hierarchy.commit_now(&mut out);
    // A newer version takes the last block; its old one is free after a commit.
    write(&mut hierarchy, 0, &mut out);
    let job = hierarchy.next_write().expect("there is one block");
    hierarchy.end_write(job, Ok(9), &mut out);
    write(&mut hierarchy, 1, &mut out);
    assert!(hierarchy.wants_commit(), "else this shows nothing");
    hierarchy.fail(Fault::WriteError, &mut out);
    assert!(hierarchy.is_off() && !hierarchy.wants_commit());
}

fn hint_of_read() -> HintSet {
    HintSet::UNKNOWN.with(hint_type::REQUEST, RequestType::Read.value())
}

/// Nothing leaves the buffer for a page that the policy does not take: TAC admits on no write.
#[test]
fn a_page_that_stays_out_drops_nothing() {
    let options = HierarchyOptions {
        buffer_pages: 1,
        ..HierarchyOptions::new("tac", PolicyOptions::new(8))
    };
    let mut hierarchy = Hierarchy::new(&options).expect("a known policy");
    let mut out = Vec::new();
    let page = |index| PageId::new(ObjectId(1), index);
    let mut read = |hierarchy: &mut Hierarchy, index: u64| {
        let start = hierarchy.start_read(page(index));
        hierarchy.finish_read(page(index), &hint_of_read(), start, &mut out);
    };
    // Of one region the pages are three times as warm as that of the other.
    for _ in 0..3 {
        read(&mut hierarchy, 1000);
        if let Some(job) = hierarchy.next_write() {
            hierarchy.end_write(job, Ok(0), &mut Vec::new());
        }
    }
    read(&mut hierarchy, 0);
    assert_eq!(hierarchy.staged(), 1, "page 0 is on its way");
    assert!(hierarchy.policy().worth(page(1001)) > hierarchy.policy().worth(page(0)));
    let dropped = |hierarchy: &Hierarchy| hierarchy.counters().removals[Removal::Dropped as usize];
    let holds = |hierarchy: &Hierarchy, index| hierarchy.slots().find(page(index)).is_some();
    assert!(hierarchy.start_write(page(1001)));
    hierarchy.finish_write(page(1001), &HintSet::UNKNOWN, true, true, &mut out);
    hierarchy.assert_invariants();
    assert_eq!((holds(&hierarchy, 0), dropped(&hierarchy)), (true, 0));
    // It takes the page when that is read, and the coldest makes way.
    let mut read = |hierarchy: &mut Hierarchy, index: u64| {
        let start = hierarchy.start_read(page(index));
        hierarchy.finish_read(page(index), &hint_of_read(), start, &mut out);
    };
    read(&mut hierarchy, 1001);
    hierarchy.assert_invariants();
    assert_eq!((holds(&hierarchy, 0), dropped(&hierarchy)), (false, 1));
    assert!(holds(&hierarchy, 1001));
}

/// A page that is dropped from the buffer frees a slot, so no page of a full tier leaves as well.
#[test]
fn one_page_makes_way_in_a_full_tier() {
    let options = HierarchyOptions {
        buffer_pages: 1,
        ..HierarchyOptions::new("tac", PolicyOptions::new(2))
    };
    let mut hierarchy = Hierarchy::new(&options).expect("a known policy");
    let page = |index| PageId::new(ObjectId(1), index);
    let read = |hierarchy: &mut Hierarchy, index: u64, written: bool| {
        let mut out = Vec::new();
        let start = hierarchy.start_read(page(index));
        hierarchy.finish_read(page(index), &hint_of_read(), start, &mut out);
        if let Some(job) = written.then(|| hierarchy.next_write()).flatten() {
            hierarchy.end_write(job, Ok(0), &mut out);
        }
        hierarchy.assert_invariants();
    };
    read(&mut hierarchy, 0, true);
    read(&mut hierarchy, 100, false);
    assert_eq!((hierarchy.staged(), hierarchy.slots().resident()), (1, 2));
    // The third read makes it warm enough for a place.
    (0..3).for_each(|_| read(&mut hierarchy, 1000, false));
    let holds = |index| hierarchy.slots().find(page(index)).is_some();
    assert!(holds(1000), "it came in");
    assert_eq!(hierarchy.slots().resident(), 2, "for one page");
}

/// A dirty page that nobody has room for goes to base, and what waits for flash stays.
#[test]
fn a_dirty_page_that_goes_to_base_drops_nothing() {
    let mut policy = PolicyOptions::new(4);
    policy.admit_on_write = false;
    let options = HierarchyOptions {
        buffer_pages: 1,
        write_back: true,
        ..HierarchyOptions::new("lru", policy)
    };
    let mut hierarchy = Hierarchy::new(&options).expect("a known policy");
    let mut out = Vec::new();
    let page = |index| PageId::new(ObjectId(1), index);
    let start = hierarchy.start_read(page(0));
    hierarchy.finish_read(page(0), &HintSet::UNKNOWN, start, &mut out);
    assert_eq!(hierarchy.staged(), 1);
    assert!(hierarchy.start_write(page(1)));
    let absorbed = hierarchy.absorb(page(1), &HintSet::UNKNOWN, 0, &mut out);
    assert_eq!(absorbed, Absorbed::Base);
    hierarchy.finish_write(page(1), &HintSet::UNKNOWN, true, true, &mut out);
    hierarchy.assert_invariants();
    assert!(hierarchy.slots().find(page(0)).is_some());
    let dropped = hierarchy.counters().removals[Removal::Dropped as usize];
    assert_eq!(dropped, 0);
}

/// What a policy is told was written to flash, by page.
struct Told(Arc<AtomicU64>);

impl TierPolicy for Told {
    fn name(&self) -> &'static str {
        "told"
    }
    fn on_request(&mut self, _: &Access, _: Option<SlotId>) {}
    fn decide(&mut self, _: &Access, _: Opportunity, _: &SlotTable) -> Decision {
        Decision::Admit
    }
    fn on_admit(&mut self, _: &Access, _: SlotId) {}
    fn on_written(&mut self, page: PageId) {
        self.0.fetch_add(page.index, Ordering::Relaxed);
    }
    fn on_remove(&mut self, _: PageId, _: SlotId, _: Removal) {}
    fn bytes(&self) -> usize {
        0
    }
    fn assert_invariants(&self, _: &SlotTable) {}
}

/// A policy hears of a write to flash when it ended well: once of bytes that replaced others before
/// these were written, not of a part of a page, which takes its copy away, nor of a failure.
#[test]
fn a_policy_hears_of_what_was_written() {
    let told = Arc::new(AtomicU64::new(0));
    let options = HierarchyOptions::new("lru", PolicyOptions::new(8));
    let policy = Box::new(Told(Arc::clone(&told)));
    let mut hierarchy = Hierarchy::with_policy(policy, &options).expect("known");
    let mut out = Vec::new();
    let page = PageId::new(ObjectId(1), 5);
    let mut write = |hierarchy: &mut Hierarchy, whole| {
        assert!(hierarchy.start_write(page));
        hierarchy.finish_write(page, &HintSet::UNKNOWN, whole, true, &mut out);
        told.swap(0, Ordering::Relaxed)
    };
    (0..3).for_each(|_| assert_eq!(write(&mut hierarchy, true), 0));
    let job = hierarchy.next_write().expect("it is staged");
    hierarchy.end_write(job, Ok(1), &mut Vec::new());
    assert_eq!(write(&mut hierarchy, false), 5, "once");
    assert_eq!(
        write(&mut hierarchy, true),
        0,
        "a part is not written to flash"
    );
    let job = hierarchy.next_write().expect("it is staged");
    hierarchy.end_write(job, Err(Fault::WriteError), &mut Vec::new());
    assert_eq!(write(&mut hierarchy, false), 0, "a failure");
}

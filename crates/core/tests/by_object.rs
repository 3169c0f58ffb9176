//! Ranges of pages, however long, against the plainest answer: filter all there are. What they cost
//! follows the pages of the object that are there, so ranges up to the last page there can be are
//! asked for throughout; a loop over their pages would not end.

use proptest::prelude::*;
use std::collections::BTreeMap;
use thermocline_core::by_object::ByObject;
use thermocline_core::hierarchy::Action;
use thermocline_core::policy::PolicyOptions;
use thermocline_core::pool::Pool;
use thermocline_core::tier::SlotTable;
use thermocline_core::{
    BlockId, Hierarchy, HierarchyOptions, HintSet, Intent, MapEntry, ObjectId, PageId, ReadStart,
};

/// Pages that are near, far apart, and at the end.
fn index() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..20u64,
        1020..1030u64,
        (0..5u64).prop_map(|n| n << 50),
        Just(u64::MAX)
    ]
}

fn page() -> impl Strategy<Value = PageId> {
    (0..3u32, index()).prop_map(|(object, index)| PageId::new(ObjectId(object), index))
}

fn range() -> impl Strategy<Value = (ObjectId, u64, u64)> {
    (0..4u32, index(), index()).prop_map(|(o, a, b)| (ObjectId(o), a.min(b), a.max(b)))
}

fn inside(page: &PageId, (object, first, last): (ObjectId, u64, u64)) -> bool {
    page.object == object && (first..=last).contains(&page.index)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn lists_hold_what_was_put_into_them(
        ops in prop::collection::vec((0..16u32, 0..4u32), 0..200),
    ) {
        let (mut lists, mut model) = (ByObject::new(16), BTreeMap::new());
        for (id, object) in ops {
            match model.remove(&id) {
                Some(object) => lists.remove(object, id),
                None => {
                    lists.insert(ObjectId(object), id);
                    model.insert(id, ObjectId(object));
                }
            }
            lists.assert_invariants(|object, id| model.get(&id) == Some(&object));
            for object in (0..4).map(ObjectId) {
                let mut listed: Vec<u32> = lists.of(object).collect();
                listed.sort_unstable();
                let of = model.iter().filter(|(_, of)| **of == object).map(|(id, _)| *id);
                prop_assert_eq!(&listed, &of.collect::<Vec<_>>());
                prop_assert_eq!(lists.count(object) as usize, listed.len());
            }
            prop_assert_eq!(lists.len() as usize, model.len());
            prop_assert_eq!(lists.is_empty(), model.is_empty());
        }
    }

    #[test]
    fn slots_in_a_range_are_those_of_its_pages(
        pages in prop::collection::vec((page(), any::<bool>()), 0..60),
        ranges in prop::collection::vec(range(), 1..20),
    ) {
        let mut slots = SlotTable::with_reserve(24, 4);
        for (page, keep) in pages {
            match slots.find(page) {
                Some(slot) if !keep => drop(slots.remove(slot)),
                Some(_) => {}
                None => drop(slots.restore(page, BlockId(slots.resident() + 40), keep, false)),
            }
            // Blocks are shared when pages come and go; what is asked here does not look at them.
        }
        for range in ranges {
            let all = slots.occupied().filter(|(_, page)| inside(page, range));
            let mut all: Vec<_> = all.map(|(slot, page)| (page, slot)).collect();
            all.sort_unstable();
            let found = slots.in_range(range.0, range.1, range.2);
            prop_assert_eq!(found, all.iter().map(|(_, slot)| *slot).collect::<Vec<_>>());
            all.retain(|(_, slot)| slots.is_dirty(*slot));
            prop_assert_eq!(slots.dirty_in(range.0, range.1, range.2), all);
        }
    }

    #[test]
    fn frames_in_a_range_are_those_of_its_pages(
        pages in prop::collection::vec((page(), any::<bool>()), 0..60),
        ranges in prop::collection::vec(range(), 1..20),
    ) {
        let mut pool = Pool::new(16);
        for (page, dirty) in pages {
            match (pool.find(page), dirty) {
                (Some(frame), false) => drop(pool.remove(frame)),
                (Some(frame), true) => pool.set_dirty(frame, &HintSet::UNKNOWN, 1),
                (None, _) => drop(pool.fill(page, HintSet::UNKNOWN, false, false)),
            }
            pool.assert_invariants();
        }
        let frames = || (0..pool.capacity()).map(thermocline_core::FrameId);
        for range in ranges {
            let page = |frame: &thermocline_core::FrameId| pool.page(*frame);
            let mut all: Vec<_> = frames()
                .filter(|frame| page(frame).is_some_and(|page| inside(&page, range)))
                .collect();
            all.sort_unstable_by_key(page);
            prop_assert_eq!(pool.in_range(range.0, range.1, range.2), all);
            let mut dirty: Vec<_> = frames()
                .filter(|f| pool.is_dirty(*f) && page(f).is_some_and(|p| p.object == range.0))
                .collect();
            dirty.sort_unstable_by_key(page);
            prop_assert_eq!(pool.dirty_of(range.0), dirty);
        }
    }
}

fn tier(slots: u32) -> Hierarchy {
    let options = HierarchyOptions {
        frames: 4,
        ..HierarchyOptions::new("lru", PolicyOptions::new(slots))
    };
    Hierarchy::new(&options).expect("a known policy")
}

fn entry(page: PageId, version: u64) -> MapEntry {
    MapEntry {
        page,
        checksum: version,
        version,
        dirty: false,
    }
}

/// A hole of 2^62 bytes and more in an object with a few pages, among many pages of another one:
/// what is known, intended and trimmed is that of the object alone.
#[test]
fn a_range_of_all_pages_there_can_be_costs_what_is_there() {
    let (few, many) = (ObjectId(7), ObjectId(8));
    let mut tier = tier(3000);
    let mut block = (0..).map(BlockId);
    let mut version = 1..;
    for index in 0..2000 {
        let entry = entry(PageId::new(many, index), version.next().expect("endless"));
        assert!(tier.restore(block.next().expect("endless"), &entry));
    }
    let pages = [3, 1 << 40, u64::MAX].map(|index| PageId::new(few, index));
    for page in pages {
        let entry = entry(page, version.next().expect("endless"));
        assert!(tier.restore(block.next().expect("endless"), &entry));
    }
    let doubted = PageId::new(few, 1 << 55);
    let known = entry(doubted, version.next().expect("endless"));
    assert!(tier.hold_in_doubt(block.next().expect("endless"), &known));
    tier.restored(5000, [Intent::of(doubted)]);
    let read = PageId::new(few, 1 << 30);
    assert_eq!(tier.start_read(read), ReadStart::Base);
    let mut all = vec![pages[0], read, pages[1], doubted, pages[2]];
    assert_eq!(tier.known_in(few, 0, u64::MAX), all);
    assert_eq!(tier.known_in(few, 4, u64::MAX - 1), all[1..4]);
    assert_eq!(tier.resident_of(few), 4);

    tier.ledger_mut().intend_all(few);
    assert!(!tier.ledger().may_write_base_all(few), "not durable yet");
    let mut out: Vec<Action> = Vec::new();
    tier.commit_now(&mut out);
    assert!(tier.ledger().may_write_base_all(few));
    assert!(!tier.ledger().may_write_base_all(many));
    assert!(
        !tier.ledger().may_write_base(pages[0]),
        "its own region is not on"
    );
    tier.trim(few, 0, u64::MAX, &mut out);
    tier.ledger_mut().base_written_all(few);
    all.retain(|page| *page == read);
    assert_eq!(tier.known_in(few, 0, u64::MAX), all, "it is being read");
    assert_eq!((tier.resident_of(few), tier.resident_of(many)), (0, 2000));
    tier.abandon_read(read, &mut out);
    tier.ledger_mut().forget_intents(few);
    tier.commit_now(&mut out);
    assert!(!tier.ledger().may_write_base_all(few));
    tier.assert_invariants();
}

/// What the durable map may still call dirty keeps base from being changed, anywhere in the object.
#[test]
fn base_is_not_changed_under_pages_that_the_map_calls_dirty() {
    let mut tier = tier(8);
    let page = PageId::new(ObjectId(1), 1 << 45);
    let dirty = MapEntry {
        dirty: true,
        ..entry(page, 1)
    };
    assert!(tier.restore(BlockId(0), &dirty));
    tier.restored(2, []);
    let mut out = Vec::new();
    tier.ledger_mut().intend_all(page.object);
    tier.trim(page.object, 0, u64::MAX, &mut out);
    assert!(tier.begin_commit().is_some());
    assert!(!tier.ledger().may_write_base_all(page.object), "under way");
    tier.end_commit(&mut out);
    assert!(tier.ledger().may_write_base_all(page.object));
    tier.ledger_mut().base_written_all(page.object);
    tier.assert_invariants();
}

/// A map that names the last version there is (a damaged or made-up cache file): the next version
/// would start anew and lose against older ones after a crash, so nothing is written instead.
#[test]
#[should_panic(expected = "versions count up")]
fn versions_never_start_anew() {
    let mut tier = tier(8);
    assert!(tier.restore(BlockId(0), &entry(PageId::new(ObjectId(1), 0), u64::MAX)));
    tier.restored(0, []);
    let mut out = Vec::new();
    let page = PageId::new(ObjectId(1), 1);
    let how = tier.start_read(page);
    tier.finish_read(page, &HintSet::UNKNOWN, how, &mut out);
    let job = tier.next_write().expect("a staged page");
    tier.end_write(job, Ok(1), &mut out);
}

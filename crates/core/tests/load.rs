//! A hierarchy takes over one that was made of a map meanwhile, without what was touched.

use thermocline_core::hierarchy::{Hierarchy, HierarchyOptions, ReadStart};
use thermocline_core::ledger::Intent;
use thermocline_core::policy::{self, PolicyOptions};
use thermocline_core::{BlockId, HintSet, MapChange, MapEntry, ObjectId, PageId};

const ONE: ObjectId = ObjectId(1);
const TWO: ObjectId = ObjectId(2);

fn options(policy: &str, slots: u32, frames: u32) -> HierarchyOptions {
    HierarchyOptions {
        frames,
        ..HierarchyOptions::new(policy, PolicyOptions::new(slots))
    }
}

fn page(object: ObjectId, index: u64) -> PageId {
    PageId::new(object, index)
}

/// Forty pages of each of two objects, in blocks from 0 on.
fn entries() -> Vec<(BlockId, MapEntry)> {
    let pages = [ONE, TWO].map(|object| (0..40).map(move |index| page(object, index)));
    let pages = pages.into_iter().flatten();
    let entry = |page| MapEntry {
        page,
        version: 3,
        ..MapEntry::default()
    };
    (0..).map(BlockId).zip(pages.map(entry)).collect()
}

/// One without slots that reads its map, and the one made of that map.
fn loading(policy: &str, frames: u32) -> (Hierarchy, Hierarchy) {
    let mut running = Hierarchy::new(&options(policy, 0, frames)).expect("a policy");
    running.begin_load([ONE, TWO]);
    let mut loaded = Hierarchy::new(&options(policy, 100, 0)).expect("a policy");
    let entries = entries();
    loaded.restore_all(entries.iter().map(|(block, entry)| (*block, entry)));
    loaded.restored(4, []);
    running.assert_invariants();
    (running, loaded)
}

fn write(running: &mut Hierarchy, page: PageId) {
    let mut out = Vec::new();
    assert!(running.start_write(page));
    running.ledger_mut().intend(page);
    running.ledger_mut().base_written(page);
    running.finish_write(page, &HintSet::UNKNOWN, true, true, &mut out);
}

#[test]
fn what_was_touched_is_not_taken_over() {
    for policy in policy::NAMES {
        let (mut running, loaded) = loading(policy, 4);
        let mut out = Vec::new();
        assert_eq!(running.start_read(page(ONE, 3)), ReadStart::Base);
        running.finish_read(page(ONE, 3), &HintSet::UNKNOWN, ReadStart::Base, &mut out);
        write(&mut running, page(ONE, 7));
        running.trim(ONE, 30, 33, &mut out);
        assert!(running.is_unread(TWO));
        running.trim(TWO, 0, u64::MAX, &mut out);
        assert!(!running.is_unread(TWO) && running.is_unread(ONE));
        // One that begins before and ends after.
        assert!(running.start_write(page(ONE, 8)));
        assert!(running.end_load(loaded, &mut out).is_ok());
        running.finish_write(page(ONE, 8), &HintSet::UNKNOWN, true, true, &mut out);
        running.assert_invariants();
        let there: Vec<u64> = (0..40)
            .filter(|index| running.start_read(page(ONE, *index)) != ReadStart::Base)
            .collect();
        let stale = |index: &u64| [7, 8, 30, 31, 32, 33].contains(index);
        // Page 8 may have been admitted with its new bytes.
        assert!(
            there.iter().all(|index| !stale(index) || *index == 8),
            "{policy}: {there:?}"
        );
        assert!(there.len() >= 34, "{policy}: {there:?}");
        assert_eq!(
            running.start_read(page(TWO, 5)),
            ReadStart::Base,
            "{policy}"
        );
    }
}

/// A page in DRAM that the map has on flash is weighed as that, once the map was read.
#[test]
fn the_pool_weighs_pages_anew() {
    let (_, loaded) = loading("lru", 4);
    let mut running = Hierarchy::new(&HierarchyOptions {
        pool_policy: "gd2l".into(),
        ..options("lru", 0, 4)
    })
    .expect("policies");
    running.begin_load([ONE, TWO]);
    let mut out = Vec::new();
    let read = page(ONE, 3);
    assert_eq!(running.start_read(read), ReadStart::Base);
    running.finish_read(read, &HintSet::UNKNOWN, ReadStart::Base, &mut out);
    let weighed = |running: &Hierarchy| {
        let frame = running.pool().find(read).expect("buffered");
        running.pool().is_on_flash(frame)
    };
    assert_eq!(weighed(&running), Some(false), "nothing is on flash yet");
    assert!(running.end_load(loaded, &mut out).is_ok());
    assert_eq!(weighed(&running), Some(true));
    running.assert_invariants();
}

/// The map empties what was touched, and only then takes the mark of its region back.
#[test]
fn marks_stay_until_the_map_knows() {
    let (mut running, loaded) = loading("lru", 0);
    let mut out = Vec::new();
    write(&mut running, page(ONE, 7));
    running.begin_commit().expect("a batch");
    running.end_commit(&mut out);
    let epoch = running.ledger_mut().start_base_sync();
    running.ledger_mut().base_synced(ONE, epoch);
    for _ in 0..5 {
        running.ledger_mut().expire_intents();
        running.ledger_mut().forget_quiet();
    }
    assert!(running.ledger().has_intents(ONE), "while the map is read");
    assert!(running.end_load(loaded, &mut out).is_ok());
    running.ledger_mut().forget_quiet();
    let batch = running.begin_commit().expect("a batch");
    let block = BlockId(7);
    let empties = MapChange::Set { block, entry: None };
    let intent = Intent::of(page(ONE, 7));
    let off = MapChange::Intend { intent, on: false };
    assert!(
        batch.contains(&empties) && batch.contains(&off),
        "{batch:?}"
    );
}

#[test]
fn nothing_is_taken_over_during_a_batch() {
    let (mut running, loaded) = loading("lru", 0);
    let mut out = Vec::new();
    write(&mut running, page(ONE, 7));
    running.begin_commit().expect("a batch");
    let loaded = running
        .end_load(loaded, &mut out)
        .expect_err("a batch is under way");
    running.end_commit(&mut out);
    assert!(running.end_load(*loaded, &mut out).is_ok());
    running.assert_invariants();
}

#[test]
fn a_map_that_is_given_up_leaves_an_empty_tier_that_is_off() {
    let (mut running, _) = loading("lru", 4);
    let mut out = Vec::new();
    write(&mut running, page(ONE, 7));
    running.switch_off(&mut out);
    let shape = options("lru", 100, 4);
    assert_eq!(running.give_up_load(&shape, &mut out), Ok(()));
    running.assert_invariants();
    assert_eq!((running.on_flash(), running.slots().capacity()), (0, 100));
    running.switch_on();
    assert_eq!(running.start_read(page(ONE, 1)), ReadStart::Base);
}

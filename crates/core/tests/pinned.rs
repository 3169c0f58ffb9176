//! Pages of pinned objects stay, under every policy, whatever else is read and written.

use thermocline_core::hierarchy::{Absorbed, Action, Calm, Hierarchy, HierarchyOptions, ReadStart};
use thermocline_core::policy::{self, PolicyOptions};
use thermocline_core::{BlockId, HintSet, MapEntry, ObjectId, PageId};

const TABLE: ObjectId = ObjectId(7);
const OTHER: ObjectId = ObjectId(8);
const SLOTS: u32 = 16;
const KEPT: u32 = 8;

fn tier(policy: &str, write_back: bool) -> Hierarchy {
    let mut options = HierarchyOptions::new(policy, PolicyOptions::new(SLOTS - KEPT));
    options.keeps = KEPT;
    options.reserve = 2;
    options.write_back = write_back;
    options.buffer_pages = 4;
    Hierarchy::new(&options).expect("a known policy")
}

/// Carries out what has to be done on a device that always works.
fn settle(tier: &mut Hierarchy, out: &mut Vec<Action>) {
    while let Some(job) = tier.next_write() {
        tier.end_write(job, Ok(0), out);
    }
    tier.commit_now(out);
    tier.commit_now(out);
}

fn read(tier: &mut Hierarchy, page: PageId) -> ReadStart {
    let mut out = Vec::new();
    let how = tier.start_read(page);
    tier.finish_read(page, &HintSet::UNKNOWN, how, &mut out);
    settle(tier, &mut out);
    how
}

fn write(tier: &mut Hierarchy, page: PageId) {
    let mut out = Vec::new();
    assert!(tier.start_write(page), "nobody uses it");
    match tier.absorb(page, &HintSet::UNKNOWN, 0, &mut out) {
        Absorbed::Done => {}
        Absorbed::Base => tier.finish_write(page, &HintSet::UNKNOWN, true, true, &mut out),
        other => panic!("{other:?}"),
    }
    settle(tier, &mut out);
    let jobs = tier.next_destage(64, None);
    for job in &jobs {
        tier.destage_written(job, &mut out);
    }
    tier.destaged(&jobs, &mut out);
    settle(tier, &mut out);
}

fn table(index: u64) -> PageId {
    PageId::new(TABLE, index)
}

fn on_flash(tier: &Hierarchy, pages: u64) -> usize {
    let there = |index: &u64| tier.is_on_flash(table(*index));
    (0..pages).filter(there).count()
}

/// Two hundred pages of another object, read and written.
fn flood(tier: &mut Hierarchy) {
    for round in 0..3 {
        for index in 0..200 {
            read(tier, PageId::new(OTHER, index));
            if index % 3 == round {
                write(tier, PageId::new(OTHER, index));
            }
        }
    }
}

#[test]
fn pinned_pages_come_in_at_once_and_stay() {
    for name in policy::NAMES {
        for back in [false, true] {
            let mut tier = tier(name, back);
            tier.set_pinned(TABLE, true, &mut Vec::new());
            for index in 0..u64::from(KEPT) {
                read(&mut tier, table(index));
            }
            assert_eq!(
                on_flash(&tier, KEPT.into()),
                KEPT as usize,
                "{name}, {back}"
            );
            flood(&mut tier);
            for index in [0, 3] {
                write(&mut tier, table(index));
            }
            flood(&mut tier);
            assert_eq!(
                on_flash(&tier, KEPT.into()),
                KEPT as usize,
                "{name}, {back}"
            );
            assert_eq!(tier.slots().kept(), KEPT);
            for index in 0..u64::from(KEPT) {
                let how = read(&mut tier, table(index));
                assert!(matches!(how, ReadStart::Slot(_)), "{name}, {back}: {how:?}");
            }
            tier.assert_invariants();
        }
    }
}

#[test]
fn what_outgrows_its_slots_is_like_any_other_page() {
    let mut tier = tier("lru", false);
    tier.set_pinned(TABLE, true, &mut Vec::new());
    for index in 0..12 {
        read(&mut tier, table(index));
    }
    assert_eq!((tier.slots().kept(), tier.slots().resident()), (KEPT, 4));
    flood(&mut tier);
    assert_eq!(on_flash(&tier, 12), KEPT as usize);
}

#[test]
fn pages_that_are_there_when_their_object_is_pinned_move_with_the_shape() {
    for name in policy::NAMES {
        let mut options = HierarchyOptions::new(name, PolicyOptions::new(SLOTS));
        options.buffer_pages = 4;
        let mut tier = Hierarchy::new(&options).expect("a known policy");
        for index in 0..4 {
            for _ in 0..3 {
                read(&mut tier, table(index));
            }
        }
        let before = on_flash(&tier, 4) as u32;
        let mut out = Vec::new();
        tier.set_pinned(TABLE, true, &mut out);
        tier.set_calm(Calm::Still, &mut out);
        options.policy_options.capacity = SLOTS - KEPT;
        options.keeps = KEPT;
        assert_eq!(tier.reshape(&options, &mut out), Ok(true), "{name}");
        tier.set_calm(Calm::Open, &mut out);
        assert_eq!(tier.slots().kept(), before, "{name}");
        tier.assert_invariants();
        tier.set_pinned(TABLE, false, &mut out);
        assert_eq!(tier.slots().kept(), 0, "{name}: nothing is kept in vain");
        tier.assert_invariants();
    }
}

/// A restart with other pins finds dirty pages in more kept slots than a larger tier has policy
/// slots for; so does one without a restart, when a pinned file gets another name.
#[test]
fn dirty_pages_of_what_is_not_pinned_stay_when_the_tier_grows() {
    for name in policy::NAMES {
        let mut options = HierarchyOptions::new(name, PolicyOptions::new(2));
        (options.keeps, options.reserve) = (KEPT, 2);
        options.write_back = true;
        let mut tier = Hierarchy::new(&options).expect("a known policy");
        let clean = (0..2).map(|index| (PageId::new(OTHER, index), false));
        let dirty = (0..u64::from(KEPT) + 2).map(|index| (table(index), true));
        for (block, (page, dirty)) in (0..).map(BlockId).zip(clean.chain(dirty)) {
            let (checksum, version) = (0, 1 + u64::from(block.0));
            let entry = MapEntry {
                page,
                checksum,
                version,
                dirty,
            };
            assert!(tier.restore(block, &entry), "{name}");
        }
        tier.restored(100, []);
        assert_eq!((tier.slots().kept(), tier.slots().reserved()), (KEPT, 2));
        let mut out = Vec::new();
        tier.set_calm(Calm::Still, &mut out);
        options.policy_options.capacity = 3;
        assert_eq!(tier.reshape(&options, &mut out), Ok(true), "{name}");
        tier.set_calm(Calm::Open, &mut out);
        tier.assert_invariants();
        assert_eq!(
            on_flash(&tier, 100) as u32,
            KEPT + 2,
            "{name}: none is lost"
        );
        assert_eq!(
            tier.slots().dirty(),
            KEPT + 2,
            "{name}: base has none of them"
        );
        assert_eq!(
            tier.slots().resident(),
            3,
            "{name}: clean ones have room too"
        );
        tier.set_flush(true);
        let jobs = tier.next_destage(64, None);
        assert_eq!(jobs.len() as u32, KEPT + 2, "{name}");
        for job in &jobs {
            tier.destage_written(job, &mut out);
        }
        tier.destaged(&jobs, &mut out);
        assert_eq!(tier.slots().kept(), 0, "{name}: nothing is kept in vain");
        tier.assert_invariants();
    }
}

//! What the race of `auto` counts for the tier itself is what the tier did.

use std::sync::mpsc::channel;
use thermocline_core::hierarchy::{Absorbed, Action, Hierarchy, HierarchyOptions, ReadStart};
use thermocline_core::policy::{
    Access, Decision, LearnedRace, Opportunity, PolicyOptions, Refusal, Removal, TierPolicy,
};
use thermocline_core::tier::{Area, SlotTable};
use thermocline_core::{HintSet, ObjectId, PageId, SlotId};

const SLOTS: u32 = 64;

fn page(index: u64) -> PageId {
    PageId::new(ObjectId(1), index)
}

/// In write-back, with a reserve.
fn options(slots: u32) -> HierarchyOptions {
    HierarchyOptions {
        reserve: slots + 1,
        write_back: true,
        ..HierarchyOptions::new("auto", PolicyOptions::new(slots))
    }
}

fn read(tier: &mut Hierarchy, index: u64) -> ReadStart {
    let how = tier.start_read(page(index));
    tier.finish_read(page(index), &HintSet::UNKNOWN, how, &mut Vec::new());
    how
}

/// New bytes come to flash.
fn write(tier: &mut Hierarchy, index: u64) {
    assert!(tier.start_write(page(index)));
    let absorbed = tier.absorb(page(index), &HintSet::UNKNOWN, 0, &mut Vec::new());
    assert_eq!(absorbed, Absorbed::Done);
}

/// What was staged gets to flash.
fn settle(tier: &mut Hierarchy) {
    let out: &mut Vec<Action> = &mut Vec::new();
    while let Some(job) = tier.next_write() {
        tier.end_write(job, Ok(0), out);
    }
    tier.commit_now(out);
}

fn race(tier: &Hierarchy) -> LearnedRace {
    let learned = tier.policy().learned().expect("it learns");
    learned.race.expect("a race")
}

/// Leads over the tier.
fn leads(tier: &Hierarchy) -> Vec<f64> {
    let finalists = race(tier).finalists.into_iter();
    finalists.map(|one| one.ahead).collect()
}

/// Every slot is taken, so one more page goes to the reserve, where reads find it; miniatures that
/// hold it earn nothing by that.
#[test]
fn a_read_that_the_reserve_serves_is_none_of_base() {
    let mut tier = Hierarchy::new(&options(SLOTS)).expect("a known policy");
    (0..=u64::from(SLOTS)).for_each(|index| write(&mut tier, index));
    let last = u64::from(SLOTS);
    let slot = tier.slots().find(page(last)).expect("on flash");
    assert_eq!(tier.slots().area(slot), Area::Reserve);
    let before = leads(&tier);
    for _ in 0..SLOTS / 2 {
        assert!(matches!(read(&mut tier, last), ReadStart::Buffer(_)));
    }
    let ahead = leads(&tier);
    let mut both = before.iter().zip(&ahead);
    assert!(
        both.all(|(before, now)| now <= before),
        "{before:?} {ahead:?}"
    );
    assert_eq!(race(&tier).requests, u64::from(SLOTS + 1 + SLOTS / 2));
    tier.assert_invariants();
}

/// While the tier is off nobody wins or loses.
#[test]
fn a_tier_that_is_off_is_not_raced_against() {
    let mut tier = Hierarchy::new(&HierarchyOptions::new("auto", PolicyOptions::new(SLOTS)))
        .expect("a known policy");
    for index in 0..u64::from(SLOTS) / 2 {
        read(&mut tier, index);
        settle(&mut tier);
    }
    let before = race(&tier);
    tier.switch_off(&mut Vec::new());
    for index in 0..u64::from(SLOTS) / 2 {
        assert_eq!(read(&mut tier, index), ReadStart::Base);
    }
    assert_eq!(race(&tier), before, "nothing was raced");
    assert!(tier.switch_on());
    assert_eq!(read(&mut tier, 0), ReadStart::Base);
    assert_eq!(race(&tier).requests, before.requests + 1);
}

/// Admits what is read and whatever there is room for, and says what it was told of pages that
/// came.
struct Open(Box<dyn Fn(&'static str, PageId) + Send>);

impl TierPolicy for Open {
    fn name(&self) -> &'static str {
        "open"
    }
    fn on_request(&mut self, _: &Access, _: Option<SlotId>) {}
    fn decide(&mut self, _: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        let mut residents = slots.residents().map(|(slot, _)| slot);
        let victim = residents.find(|slot| slots.evictable(*slot));
        match victim.filter(|_| why == Opportunity::Read && !slots.has_room()) {
            Some(victim) => Decision::Replace(victim),
            None if slots.has_room() => Decision::Admit,
            None => Decision::Refuse(Refusal::Cold),
        }
    }
    fn on_admit(&mut self, access: &Access, _: SlotId) {
        (self.0)("written", access.page);
    }
    fn on_found(&mut self, access: &Access, _: SlotId) {
        (self.0)("found", access.page);
    }
    fn on_remove(&mut self, _: PageId, _: SlotId, _: Removal) {}
    fn bytes(&self) -> usize {
        0
    }
    fn assert_invariants(&self, _: &SlotTable) {}
}

/// A page that comes from the reserve is on flash already: nothing is written, and the policy is
/// told so.
#[test]
fn a_page_that_comes_from_the_reserve_was_found() {
    let (told, said) = channel();
    let open = Open(Box::new(move |what, page| {
        told.send((what, page)).expect("a listener");
    }));
    let mut tier = Hierarchy::with_policy(Box::new(open), &options(1)).expect("a pool");
    for index in 0..2 {
        write(&mut tier, index);
        settle(&mut tier);
    }
    let area = |tier: &Hierarchy, index: u64| {
        let slot = tier.slots().find(page(index));
        slot.map(|slot| tier.slots().area(slot))
    };
    assert_eq!(area(&tier, 1), Some(Area::Reserve));
    let written = tier.counters().flash_writes;
    assert!(matches!(read(&mut tier, 1), ReadStart::Slot(_)));
    assert_eq!(area(&tier, 1), Some(Area::Policy));
    assert_eq!(area(&tier, 0), Some(Area::Reserve));
    settle(&mut tier);
    assert_eq!(tier.counters().flash_writes, written);
    assert_eq!(
        said.try_iter().collect::<Vec<_>>(),
        [("written", page(0)), ("found", page(1))]
    );
}

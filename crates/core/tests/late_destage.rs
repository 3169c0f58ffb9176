//! Batches of destaging that outlast a change of the tier. Where its size or device changed, slots
//! have other numbers or are no more: what a late batch says is not believed. Where the tier was
//! off and is to be used again, it waits for what no batch of the map can name.

use thermocline_core::health::Way;
use thermocline_core::hierarchy::{Absorbed, Action, Calm, DestageJob};
use thermocline_core::policy::PolicyOptions;
use thermocline_core::{
    Fault, Hierarchy, HierarchyOptions, HintSet, MapChange, ObjectId, PageId, ReadStart, SlotId,
};

const PAGES: u64 = 8;

fn page(index: u64) -> PageId {
    PageId::new(ObjectId(1), index)
}

fn options(slots: u32) -> HierarchyOptions {
    HierarchyOptions {
        write_back: true,
        ..HierarchyOptions::new("lru", PolicyOptions::new(slots))
    }
}

/// A tier whose caller keeps no bytes.
struct Tier {
    hierarchy: Hierarchy,
    out: Vec<Action>,
}

impl Tier {
    /// Every slot holds a dirty page.
    fn of_dirty_pages() -> Self {
        let hierarchy = Hierarchy::new(&options(PAGES as u32)).expect("a known policy");
        let out = Vec::new();
        let mut tier = Self { hierarchy, out };
        tier.write(0..PAGES);
        assert_eq!(tier.hierarchy.slots().dirty_resident(), PAGES as u32);
        tier.hierarchy.set_flush(true);
        tier
    }

    /// New bytes of the pages get to flash, and the map says so.
    fn write(&mut self, pages: impl Iterator<Item = u64>) {
        let (hierarchy, out) = (&mut self.hierarchy, &mut self.out);
        for index in pages {
            assert!(hierarchy.start_write(page(index)));
            let absorbed = hierarchy.absorb(page(index), &HintSet::UNKNOWN, 0, out);
            assert_eq!(absorbed, Absorbed::Done);
            let job = hierarchy.next_write().expect("a staged page");
            hierarchy.end_write(job, Ok(index), out);
        }
        hierarchy.commit_now(out);
        hierarchy.assert_invariants();
    }

    /// All dirty pages as one batch, whose writes to base have ended. Base was not synced yet.
    fn written(&mut self) -> Vec<DestageJob> {
        let jobs = self.hierarchy.next_destage(PAGES as usize, None);
        let dirty = self.hierarchy.slots().dirty() as usize;
        assert_eq!(jobs.len(), dirty, "every dirty page is held");
        for job in &jobs {
            assert!(self.hierarchy.destage_stands(job));
            self.hierarchy.destage_written(job, &mut self.out);
        }
        jobs
    }

    /// Takes a batch as one thread, and ends with no dirty page: another thread was faster.
    fn overtaken(&mut self) -> Vec<DestageJob> {
        let late = self.written();
        let fast = self.written();
        assert_eq!(late, fast, "the same pages once more");
        let cleaned = self.hierarchy.destaged(&fast, &mut self.out);
        assert_eq!((cleaned, self.hierarchy.slots().dirty()), (fast.len(), 0));
        late
    }

    /// The tier has so many slots now, or is as it was.
    fn reshape(&mut self, slots: u32) -> bool {
        let out = &mut self.out;
        self.hierarchy.set_calm(Calm::Still, out);
        let reshaped = self.hierarchy.reshape(&options(slots), out);
        self.hierarchy.set_calm(Calm::Open, out);
        self.hierarchy.assert_invariants();
        reshaped.expect("a known policy")
    }

    /// What a late batch could change.
    fn state(&self) -> (Vec<(SlotId, PageId)>, u32, usize, u64, Vec<PageId>) {
        let slots = self.hierarchy.slots();
        (
            slots.occupied().collect(),
            slots.dirty(),
            self.hierarchy.ledger().changed(),
            self.hierarchy.counters().destaged,
            self.hierarchy.lost(),
        )
    }

    /// Base was synced at last. None of `late` stands, and nothing becomes clean by them.
    fn is_not_moved_by(&mut self, late: &[DestageJob]) {
        let before = self.state();
        assert!(!late.is_empty(), "there is something to say");
        for job in late {
            assert!(!self.hierarchy.destage_stands(job), "{job:?}");
            self.hierarchy.destaged(&[*job], &mut self.out);
            assert_eq!(self.state(), before, "{job:?}");
        }
        assert_eq!(self.hierarchy.destaged(late, &mut self.out), 0);
        assert_eq!(self.state(), before);
        self.hierarchy.assert_invariants();
    }
}

/// A page that is read all the time would never become clean, and whoever waits for that would not
/// get on. Who reads it has base to turn to.
#[test]
fn pages_that_are_being_read_become_clean() {
    let mut tier = Tier::of_dirty_pages();
    let first = tier.written();
    let reading = tier.hierarchy.next_destage(PAGES as usize, None);
    assert_eq!(first, reading, "the same pages, read once more");
    let cleaned = tier.hierarchy.destaged(&first, &mut tier.out);
    assert_eq!(
        (cleaned, tier.hierarchy.slots().dirty()),
        (PAGES as usize, 0)
    );
    tier.hierarchy.assert_invariants();
    for job in &reading {
        tier.hierarchy.destage_written(job, &mut tier.out);
    }
    assert_eq!(tier.hierarchy.destaged(&reading, &mut tier.out), 0);
    assert_eq!(tier.hierarchy.slots().resident(), PAGES as u32);
    tier.hierarchy.assert_invariants();
}

/// A page that is cut while a batch syncs base, and that somebody reads: the batch does not say
/// that it is a clean copy of what base holds. After a crash it would come back.
#[test]
fn what_was_cut_meanwhile_is_not_named_again() {
    let mut tier = Tier::of_dirty_pages();
    let late = tier.written();
    let reading = tier.hierarchy.next_destage(PAGES as usize, None);
    tier.hierarchy.trim(ObjectId(1), 0, u64::MAX, &mut tier.out);
    assert_eq!(tier.hierarchy.destaged(&late, &mut tier.out), 0);
    let batch = tier.hierarchy.begin_commit().expect("pages leave");
    let named = |change: &MapChange| matches!(change, MapChange::Set { entry: Some(_), .. });
    assert!(!batch.iter().any(named), "{batch:?}");
    tier.hierarchy.end_commit(&mut tier.out);
    for job in &reading {
        assert!(!tier.hierarchy.destage_stands(job));
        tier.hierarchy.destage_written(job, &mut tier.out);
    }
    tier.hierarchy.assert_invariants();
    assert_eq!(tier.hierarchy.slots().resident(), 0);
}

/// What a second batch cannot read is no loss where the first one has made it clean meanwhile.
#[test]
fn what_became_clean_while_it_was_read_is_not_lost() {
    let mut tier = Tier::of_dirty_pages();
    let first = tier.written();
    let reading = tier.hierarchy.next_destage(PAGES as usize, None);
    tier.hierarchy.destaged(&first, &mut tier.out);
    for job in &reading {
        tier.hierarchy
            .destage_failed(job, Fault::Corrupt, &mut tier.out);
        tier.hierarchy.assert_invariants();
    }
    assert_eq!(tier.hierarchy.lost(), []);
    assert_eq!(tier.hierarchy.slots().resident(), 0, "bad copies leave");
}

/// Whoever asks for the next batch while pages leave would otherwise get these again and again, and
/// sync base each time, until the read ends.
#[test]
fn pages_that_are_being_read_do_not_leave() {
    let mut tier = Tier::of_dirty_pages();
    let first = tier.written();
    let reading = tier.hierarchy.next_destage(PAGES as usize, None);
    tier.hierarchy.switch_off(&mut tier.out);
    assert_eq!(tier.hierarchy.destaged(&first, &mut tier.out), 0);
    assert_eq!(tier.hierarchy.slots().dirty(), PAGES as u32);
    for job in &reading {
        tier.hierarchy.destage_written(job, &mut tier.out);
    }
    let cleaned = tier.hierarchy.destaged(&reading, &mut tier.out);
    assert_eq!(
        (cleaned, tier.hierarchy.slots().resident()),
        (PAGES as usize, 0)
    );
}

/// Many may read a page at once. That they all find the same bad copy is one fault, and who comes
/// later does not read it.
#[test]
fn a_bad_page_is_one_fault_however_many_read_it() {
    let mut tier = Tier::of_dirty_pages();
    let jobs = tier.written();
    tier.hierarchy.destaged(&jobs, &mut tier.out);
    let (hierarchy, out) = (&mut tier.hierarchy, &mut tier.out);
    let begun: Vec<ReadStart> = (0..40).map(|_| hierarchy.start_read(page(3))).collect();
    for start in begun {
        let ReadStart::Slot(slot) = start else {
            panic!("it is on flash: {start:?}");
        };
        hierarchy.begin_call(Way::Read);
        assert!(
            hierarchy.slot_failed(slot, Fault::Corrupt, out),
            "it is clean"
        );
        hierarchy.end_call(Way::Read, out);
        assert_eq!(hierarchy.start_read(page(3)), ReadStart::Base);
        for _ in 0..2 {
            hierarchy.finish_read(page(3), &HintSet::UNKNOWN, ReadStart::Base, out);
        }
        hierarchy.assert_invariants();
    }
    let faults = hierarchy.counters().faults[Fault::Corrupt as usize];
    assert_eq!((faults, hierarchy.is_off()), (1, false));
}

/// A flash read that comes too late, once, does not keep a page from base for good.
#[test]
fn a_page_that_reads_well_again_is_destaged() {
    let mut tier = Tier::of_dirty_pages();
    let begin = |tier: &mut Tier| match tier.hierarchy.start_read(page(3)) {
        ReadStart::Slot(slot) => slot,
        other => panic!("it is on flash: {other:?}"),
    };
    let slot = begin(&mut tier);
    let elsewhere = tier
        .hierarchy
        .slot_failed(slot, Fault::TimedOut, &mut tier.out);
    assert!(!elsewhere, "base is older");
    assert_eq!(tier.hierarchy.lost(), [page(3)]);
    tier.hierarchy.assert_invariants();
    let how = ReadStart::Slot(begin(&mut tier));
    tier.out.clear();
    let unknown = HintSet::UNKNOWN;
    tier.hierarchy
        .finish_read(page(3), &unknown, how, &mut tier.out);
    assert_eq!(tier.hierarchy.lost(), []);
    assert!(tier.out.contains(&Action::WakeDestager));
    tier.hierarchy.assert_invariants();
    tier.written();
}

#[test]
fn a_batch_from_before_the_tier_was_made_smaller_is_not_believed() {
    let mut tier = Tier::of_dirty_pages();
    let late = tier.overtaken();
    let past = late.iter().filter(|job| job.slot.0 >= 3).count();
    assert_eq!(past, 5, "slots that will be no more");
    assert!(tier.reshape(3));
    tier.is_not_moved_by(&late);
    let (hierarchy, out) = (&mut tier.hierarchy, &mut tier.out);
    hierarchy.commit_now(out);
    hierarchy.commit_now(out);
    assert!(hierarchy.ledger().is_retired());
    let left = hierarchy.ledger().blocks() - (PAGES as u32 - 3);
    hierarchy.ledger_mut().resize(left);
    // The slots that stayed hold newer bytes of the same pages, then those of others.
    for pages in [0..3, 100..103] {
        tier.write(pages);
        assert_eq!(tier.hierarchy.slots().dirty(), 3);
        tier.is_not_moved_by(&late);
        let jobs = tier.written();
        tier.hierarchy.destaged(&jobs, &mut tier.out);
    }
}

#[test]
fn a_batch_from_before_the_tier_was_made_larger_is_not_believed() {
    let mut tier = Tier::of_dirty_pages();
    let late = tier.written();
    assert!(tier.reshape(32));
    assert_eq!(tier.hierarchy.slots().dirty(), PAGES as u32, "they stay");
    tier.is_not_moved_by(&late);
    // Those that are taken now are believed.
    let jobs = tier.written();
    tier.hierarchy.destaged(&jobs, &mut tier.out);
    assert_eq!(tier.hierarchy.slots().dirty(), 0);
}

#[test]
fn a_batch_of_the_device_before_is_not_believed() {
    let mut tier = Tier::of_dirty_pages();
    let late = tier.overtaken();
    let out = &mut tier.out;
    tier.hierarchy.set_calm(Calm::Still, out);
    let moved = tier.hierarchy.start_over(&options(3), out);
    assert!(moved.expect("a known policy"));
    tier.hierarchy.set_calm(Calm::Open, out);
    tier.is_not_moved_by(&late);
    tier.write(0..3);
    tier.is_not_moved_by(&late);
}

/// A batch that still holds its pages is not late: the tier waits for it.
#[test]
fn the_tier_keeps_its_shape_while_a_batch_holds_pages() {
    let mut tier = Tier::of_dirty_pages();
    let jobs = tier.hierarchy.next_destage(1, None);
    assert!(!tier.reshape(32), "a page is held");
    assert!(tier.hierarchy.destage_stands(&jobs[0]));
    tier.hierarchy.destage_written(&jobs[0], &mut tier.out);
    tier.hierarchy.destaged(&jobs, &mut tier.out);
    assert_eq!(tier.hierarchy.slots().dirty(), PAGES as u32 - 1);
    assert!(tier.reshape(32));
}

/// A late batch, in a larger tier whose pages are held by a batch of now.
fn with_another_batch() -> (Tier, DestageJob) {
    let mut tier = Tier::of_dirty_pages();
    let late = tier.written();
    assert!(tier.reshape(32));
    let jobs = tier.hierarchy.next_destage(PAGES as usize, None);
    assert_eq!(jobs.len(), late.len());
    (tier, late[0])
}

#[test]
#[should_panic(expected = "the tier is not still")]
fn a_late_batch_does_not_let_go_of_a_page() {
    let (mut tier, late) = with_another_batch();
    tier.hierarchy.destage_written(&late, &mut tier.out);
}

#[test]
#[should_panic(expected = "the tier is not still")]
fn a_late_batch_loses_no_page() {
    let (mut tier, late) = with_another_batch();
    let out = &mut tier.out;
    tier.hierarchy.destage_failed(&late, Fault::ReadError, out);
}

/// A page whose bytes on flash and base have too; its next version is in DRAM, and goes to base
/// because the tier is off.
fn rescued() -> (Tier, DestageJob) {
    let mut tier = Tier::of_dirty_pages();
    let jobs = tier.written();
    let (hierarchy, out) = (&mut tier.hierarchy, &mut tier.out);
    hierarchy.destaged(&jobs, out);
    hierarchy.commit_now(out);
    assert!(hierarchy.start_write(page(0)));
    let absorbed = hierarchy.absorb(page(0), &HintSet::UNKNOWN, 0, out);
    assert_eq!(absorbed, Absorbed::Done);
    hierarchy.switch_off(out);
    let jobs = hierarchy.next_destage(PAGES as usize, None);
    assert_eq!((jobs.len(), jobs[0].from), (1, None));
    (tier, jobs[0])
}

/// No batch can name what base gets: were the tier on, an older copy could come back.
#[test]
fn the_tier_stays_off_while_base_gets_bytes_from_dram() {
    let (mut tier, job) = rescued();
    let (hierarchy, out) = (&mut tier.hierarchy, &mut tier.out);
    assert!(hierarchy.destage_stands(&job) && !hierarchy.may_destage(&job));
    assert!(!hierarchy.switch_on(), "base is being written");
    hierarchy.destage_written(&job, out);
    assert!(!hierarchy.switch_on(), "base was not synced yet");
    hierarchy.destaged(&[job], out);
    hierarchy.assert_invariants();
    assert_eq!(hierarchy.slots().dirty(), 0);
    assert!(!hierarchy.destage_stands(&job) && hierarchy.may_destage(&job));
    assert!(hierarchy.switch_on() && !hierarchy.is_off());
    assert!(hierarchy.ledger().changed() > 0, "the next batch says so");
    // What comes to the slot next is not what the batch had.
    tier.write(0..1);
    tier.is_not_moved_by(&[job]);
}

/// Base refused them: they are still in DRAM alone.
#[test]
fn the_tier_stays_off_while_base_refuses_bytes_from_dram() {
    let (mut tier, job) = rescued();
    let (hierarchy, out) = (&mut tier.hierarchy, &mut tier.out);
    hierarchy.destage_written(&job, out);
    assert!(!hierarchy.switch_on() && hierarchy.is_off());
    hierarchy.trim(job.page.object, 0, 0, out);
    assert!(hierarchy.switch_on(), "nobody wants them any more");
}

#[test]
fn the_tier_stays_off_while_a_batch_is_under_way() {
    let mut tier = Tier::of_dirty_pages();
    let (hierarchy, out) = (&mut tier.hierarchy, &mut tier.out);
    assert!(hierarchy.begin_commit().is_some());
    hierarchy.switch_off(out);
    assert!(!hierarchy.switch_on() && hierarchy.is_off());
    hierarchy.end_commit(out);
    assert!(hierarchy.switch_on() && !hierarchy.is_off());
}

/// A batch that was taken while the tier was off, and is written when it is on again.
#[test]
fn base_gets_what_the_map_does_not_name_only_while_the_tier_is_off() {
    let mut tier = Tier::of_dirty_pages();
    let (hierarchy, out) = (&mut tier.hierarchy, &mut tier.out);
    assert!(hierarchy.start_write(page(0)));
    let absorbed = hierarchy.absorb(page(0), &HintSet::UNKNOWN, 0, out);
    assert_eq!(absorbed, Absorbed::Done);
    let job = hierarchy.next_write().expect("a staged page");
    hierarchy.end_write(job, Ok(100), out);
    hierarchy.switch_off(out);
    let jobs = hierarchy.next_destage(2, None);
    assert!(hierarchy.switch_on(), "flash has all newest bytes");
    let may = |hierarchy: &Hierarchy| [0, 1].map(|at| hierarchy.may_destage(&jobs[at]));
    assert_eq!(may(hierarchy), [false, true]);
    assert!(hierarchy.begin_commit().is_some());
    assert_eq!(may(hierarchy), [false, true], "it is not durable yet");
    hierarchy.end_commit(out);
    assert_eq!(may(hierarchy), [true, true]);
    hierarchy.assert_invariants();
}

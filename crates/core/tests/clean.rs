//! Page cleaners pass over what cannot be written now, and ask base for it no more often than it is
//! worth.

use thermocline_core::hierarchy::{Absorbed, Action, CleanJob, Cleaned};
use thermocline_core::policy::PolicyOptions;
use thermocline_core::{Hierarchy, HierarchyOptions, HintSet, ObjectId, PageId};

const FRAMES: u64 = 64;

fn page(index: u64) -> PageId {
    PageId::new(ObjectId(1), index)
}

/// A tier whose caller keeps no bytes, with a DRAM pool.
struct Tier {
    hierarchy: Hierarchy,
    out: Vec<Action>,
}

impl Tier {
    fn new() -> Self {
        let options = HierarchyOptions {
            write_back: true,
            frames: FRAMES as u32,
            ..HierarchyOptions::new("lru", PolicyOptions::new(16))
        };
        Self {
            hierarchy: Hierarchy::new(&options).expect("a known policy"),
            out: Vec::new(),
        }
    }

    /// New bytes of the page, in a frame.
    fn write(&mut self, index: u64) {
        let (hierarchy, out) = (&mut self.hierarchy, &mut self.out);
        assert!(hierarchy.start_write(page(index)));
        let absorbed = hierarchy.absorb(page(index), &HintSet::UNKNOWN, 0, out);
        assert_eq!(absorbed, Absorbed::Done);
    }

    /// The next page for base, if there is one.
    fn next(&mut self) -> Option<CleanJob> {
        match self.hierarchy.next_clean(0, &mut self.out) {
            Cleaned::Base(job) => Some(job),
            Cleaned::Nothing => None,
            other => panic!("all goes to base: {other:?}"),
        }
    }

    /// Base takes what `takes` says, until nothing is due; the pages it was asked for.
    fn clean(&mut self, takes: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut asked = Vec::new();
        while let Some(job) = self.next() {
            let ok = takes(job.page.index);
            self.hierarchy.finish_clean(&job, ok, &mut self.out);
            self.hierarchy.assert_invariants();
            asked.push(job.page.index);
            assert!(asked.len() as u64 <= FRAMES, "asked without an end");
        }
        asked
    }
}

/// Once with frames to spare, by age, and once with a full pool, by the order in which they leave.
#[test]
fn a_page_that_base_refuses_holds_up_no_other() {
    for pages in [8, FRAMES] {
        let mut tier = Tier::new();
        (0..pages).for_each(|index| tier.write(index));
        tier.hierarchy.switch_off(&mut tier.out);
        let mut asked = tier.clean(|index| index > 1);
        asked.sort_unstable();
        let all: Vec<u64> = (0..pages).collect();
        assert_eq!(asked, all, "each once");
        assert_eq!(tier.hierarchy.pool().dirty(), 2);
        tier.hierarchy.on_time(1);
        assert_eq!(tier.clean(|_| true).len(), 2, "asked again");
        assert_eq!(tier.hierarchy.pool().dirty(), 0);
    }
}

#[test]
fn base_that_takes_nothing_is_not_asked_for_everything() {
    let mut tier = Tier::new();
    (0..FRAMES).for_each(|index| tier.write(index));
    tier.hierarchy.switch_off(&mut tier.out);
    let asked = tier.clean(|_| false).len();
    assert!(0 < asked && asked < FRAMES as usize, "{asked}");
    assert_eq!(tier.hierarchy.pool().dirty(), FRAMES as u32);
}

#[test]
fn a_page_that_waits_for_its_older_version_holds_up_no_other() {
    let mut tier = Tier::new();
    tier.write(0);
    let placed = tier.hierarchy.clean_page(page(0), &mut tier.out);
    assert_eq!(placed, Cleaned::Placed);
    let job = tier.hierarchy.next_write().expect("a staged page");
    tier.hierarchy.end_write(job, Ok(1), &mut tier.out);
    tier.hierarchy.commit_now(&mut tier.out);
    (0..3).for_each(|index| tier.write(index));
    tier.hierarchy.switch_off(&mut tier.out);
    assert_eq!(tier.clean(|_| true), [1, 2]);
    let older = tier.hierarchy.next_destage(1, None);
    assert_eq!(older.len(), 1);
    tier.hierarchy.destage_written(&older[0], &mut tier.out);
    assert_eq!(tier.hierarchy.destaged(&older, &mut tier.out), 1);
    assert_eq!(tier.clean(|_| true), [0]);
}

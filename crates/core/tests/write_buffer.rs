//! The write buffer of hStorage-DB (VLDB 2012 §4.2.4) in the hierarchy: what comes in, what has to
//! leave for it, and when all of it goes to base.

use thermocline_core::hierarchy::{Absorbed, Action, DestageJob, ReadStart};
use thermocline_core::hint::{FileKind, RequestType, hint_type};
use thermocline_core::policy::PolicyOptions;
use thermocline_core::{Hierarchy, HierarchyOptions, HintSet, ObjectId, PageId};

const SLOTS: u32 = 10;

fn page(index: u64) -> PageId {
    PageId::new(ObjectId(1), index)
}

fn of(kind: FileKind, request: RequestType) -> HintSet {
    HintSet::UNKNOWN
        .with(hint_type::FILE_KIND, kind.value())
        .with(hint_type::REQUEST, request.value())
}

fn heap(request: RequestType) -> HintSet {
    of(FileKind::Relation, request)
}

/// Write-back under the priority groups, with b = 0.4: four of ten slots.
struct Tier {
    hierarchy: Hierarchy,
    out: Vec<Action>,
}

impl Tier {
    fn new() -> Self {
        let mut policy = PolicyOptions::new(SLOTS);
        policy.priority.write_buffer = 0.4;
        let options = HierarchyOptions {
            write_back: true,
            ..HierarchyOptions::new("priority", policy)
        };
        Self {
            hierarchy: Hierarchy::new(&options).expect("a known policy"),
            out: Vec::new(),
        }
    }

    /// Takes what is staged to flash.
    fn settle(&mut self) {
        while let Some(job) = self.hierarchy.next_write() {
            self.hierarchy.end_write(job, Ok(0), &mut self.out);
        }
        self.hierarchy.commit_now(&mut self.out);
        self.hierarchy.assert_invariants();
    }

    fn write(&mut self, index: u64, hints: HintSet) -> Absorbed {
        let (hierarchy, out) = (&mut self.hierarchy, &mut self.out);
        assert!(hierarchy.start_write(page(index)));
        let absorbed = hierarchy.absorb(page(index), &hints, 0, out);
        if absorbed == Absorbed::Base {
            hierarchy.finish_write(page(index), &hints, true, true, out);
        }
        self.settle();
        absorbed
    }

    fn update(&mut self, index: u64) -> Absorbed {
        self.write(index, heap(RequestType::ReplacementWrite))
    }

    fn read(&mut self, index: u64, hints: HintSet) -> ReadStart {
        let start = self.hierarchy.start_read(page(index));
        let out = &mut self.out;
        self.hierarchy.finish_read(page(index), &hints, start, out);
        self.settle();
        start
    }

    /// Ten pages of temporary files: the best priority, and every slot taken.
    fn fill(&mut self) {
        for index in 100..100 + u64::from(SLOTS) {
            self.read(index, of(FileKind::Temporary, RequestType::Read));
        }
        assert_eq!(self.hierarchy.slots().resident(), SLOTS);
    }

    fn holds(&self, index: u64) -> bool {
        self.hierarchy.slots().find(page(index)).is_some()
    }

    fn dirty(&self) -> u32 {
        self.hierarchy.slots().dirty()
    }

    /// One batch of `most` pages written to base; which.
    fn destage(&mut self, most: usize) -> Vec<u64> {
        if !self.hierarchy.destage_due() {
            return Vec::new();
        }
        let jobs: Vec<DestageJob> = self.hierarchy.next_destage(most, None);
        for job in &jobs {
            self.hierarchy.destage_written(job, &mut self.out);
        }
        self.hierarchy.destaged(&jobs, &mut self.out);
        self.hierarchy.assert_invariants();
        jobs.iter().map(|job| job.page.index).collect()
    }

    /// Whether the destager was woken since this was asked last.
    fn woke_destager(&mut self) -> bool {
        let woken = |action: &Action| matches!(action, Action::WakeDestager);
        std::mem::take(&mut self.out).iter().any(woken)
    }
}

/// It is no dedicated space: an update wins that of a page of any priority, up to b.
#[test]
fn an_update_wins_space_up_to_b() {
    let mut tier = Tier::new();
    tier.fill();
    assert_eq!(tier.read(1, heap(RequestType::Read)), ReadStart::Base);
    assert!(!tier.holds(1), "nothing else wins over temporary files");
    for index in 1..=4 {
        assert_eq!(tier.update(index), Absorbed::Done);
        assert!(tier.holds(index) && !tier.holds(99 + index));
    }
    assert_eq!(
        (tier.dirty(), tier.destage(9).len()),
        (4, 0),
        "b is allowed"
    );
    assert_eq!(
        tier.update(5),
        Absorbed::Base,
        "past b its priority decides"
    );
    assert!(!tier.holds(5) && tier.dirty() == 4);
}

/// Nothing evicts what is in the buffer, whatever its priority and how long ago it was written.
#[test]
fn nothing_wins_over_an_update() {
    let mut tier = Tier::new();
    for index in 1..=4 {
        tier.update(index);
    }
    for index in 100..150 {
        tier.read(index, of(FileKind::Temporary, RequestType::Read));
    }
    assert!((1..=4).all(|index| tier.holds(index)));
    assert_eq!(
        (tier.dirty(), tier.hierarchy.slots().resident()),
        (4, SLOTS)
    );
}

/// Past b all that is in the buffer is written, in base order, and nothing that comes later.
#[test]
fn past_b_all_of_it_is_flushed_in_base_order() {
    let mut tier = Tier::new();
    for index in [8, 2, 6, 4] {
        tier.update(index);
    }
    assert!(!tier.woke_destager() && tier.destage(9).is_empty());
    tier.update(3);
    assert!(tier.woke_destager(), "5 of 10 are more than b");
    assert_eq!(tier.destage(2), [2, 3]);
    tier.update(2);
    tier.update(9);
    assert_eq!(tier.destage(2), [4, 6]);
    assert_eq!(tier.destage(2), [8]);
    assert_eq!(tier.destage(2).len(), 0, "what came later is 2 of 10");
    assert_eq!(tier.dirty(), 2);
    assert!([2, 3, 4, 6, 8, 9].iter().all(|index| tier.holds(*index)));
}

/// A page that was flushed has the priority of its last request.
#[test]
fn what_was_flushed_is_a_page_of_its_kind() {
    let mut tier = Tier::new();
    for index in 1..=5 {
        tier.update(index);
    }
    let inner = of(FileKind::Index, RequestType::Read);
    assert!(matches!(tier.read(3, inner), ReadStart::Slot(_)));
    assert_eq!(tier.destage(9), [1, 2, 3, 4, 5]);
    for index in 100..109 {
        tier.read(index, of(FileKind::Temporary, RequestType::Read));
    }
    assert!(tier.holds(3), "an index page now");
    assert!([1, 2, 4, 5].iter().all(|index| !tier.holds(*index)));
}

/// Rule 3: temporary files are no updates. They take no part of b, and no flush takes them.
#[test]
fn temporary_files_are_not_in_the_buffer() {
    let mut tier = Tier::new();
    let temporary = of(FileKind::Temporary, RequestType::Write);
    for index in 1..=2 {
        assert_eq!(tier.write(index, temporary), Absorbed::Done);
    }
    assert_eq!((tier.dirty(), tier.destage(9).len()), (2, 0));
    for index in 11..=14 {
        tier.update(index);
    }
    assert_eq!(tier.destage(9).len(), 0);
    let out = &mut tier.out;
    tier.hierarchy.trim(ObjectId(1), 0, 10, out);
    assert_eq!((tier.dirty(), tier.hierarchy.slots().resident()), (4, 4));
    tier.hierarchy.assert_invariants();
}

/// Dirty pages that another policy left are updates: the buffer may begin past b.
#[test]
fn a_change_of_policy_finds_the_updates() {
    let mut tier = Tier::new();
    tier.hierarchy.set_policy("lru").expect("known");
    for index in 1..=6 {
        tier.update(index);
    }
    assert_eq!(tier.destage(9).len(), 0, "lru has no buffer");
    tier.hierarchy.set_policy("priority").expect("known");
    assert_eq!(tier.destage(9), [1, 2, 3, 4, 5, 6]);
}

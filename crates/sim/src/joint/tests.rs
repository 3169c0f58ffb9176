//! The newest bytes of every page are where the state machine says, whatever the combination.

use super::*;
use crate::request::PageRequest;
use hashbrown::HashMap as Table;
use std::hash::{BuildHasherDefault, DefaultHasher};
use thermocline_core::hash::mix;
use thermocline_core::{HintSet, ObjectId, PageId, hint_type};

type Map<K> = Table<K, u64, BuildHasherDefault<DefaultHasher>>;

/// Versions of pages, 0 for never written.
#[derive(Default)]
struct Versions {
    places: Map<At>,
    newest: Map<PageId>,
    next: u64,
}

impl Versions {
    fn of(&self, at: At) -> u64 {
        self.places.get(&at).copied().unwrap_or(0)
    }
}

impl Bytes for Versions {
    fn renew(&mut self, page: PageId) {
        self.next += 1;
        self.newest.insert(page, self.next);
        self.places.insert(At::Hand, self.next);
    }

    fn copy(&mut self, from: At, to: At) {
        let held = matches!(from, At::Base(_)) || self.places.contains_key(&from);
        assert!(held, "{from:?} is empty");
        let version = self.of(from);
        self.places.insert(to, version);
    }

    fn clear(&mut self, at: At) {
        self.places.remove(&at);
    }

    fn give(&mut self, page: PageId) {
        let newest = self.newest.get(&page).copied().unwrap_or(0);
        assert_eq!(self.of(At::Hand), newest, "{page:?} is old");
    }

    fn forget(&mut self, first: PageId, last: u64) {
        let inside = |page: &PageId| {
            page.object == first.object && (first.index..=last).contains(&page.index)
        };
        self.newest.retain(|page, _| !inside(page));
        self.places
            .retain(|at, _| !matches!(at, At::Base(page) if inside(page)));
    }
}

/// Reads and writes of two objects, skewed; scans; a trim now and then; a part of a page.
fn request(seed: u64, number: u64) -> (PageRequest, HintSet) {
    let draw = |salt: u64| mix(mix(seed, number), salt);
    let object = ObjectId((draw(1) % 2) as u32);
    let skewed = draw(2) % (draw(3) % 300 + 1);
    let (kind, index, pages, hint) = match draw(4) % 100 {
        0..55 => (Kind::Read, skewed, 1, 1),
        55..85 => (Kind::Write, skewed, 1, 6),
        85..88 => (Kind::PartWrite, skewed, 1, 6),
        88..99 => (Kind::Read, number % 300, 1, 2),
        _ => (Kind::Trim, draw(5) % 300, 8, 0),
    };
    let hints = HintSet::UNKNOWN
        .with(0, object.0 + 1)
        .with(hint_type::REQUEST, hint);
    let page = PageId::new(object, index);
    (PageRequest::new(page, kind, 0, number, pages), hints)
}

fn options(combination: &str, seed: u64) -> HierarchyOptions {
    let combination: Combination = combination.parse().expect("a combination");
    let none = combination.tier == NO_TIER;
    let (tier, slots) = if none {
        ("lru", 0)
    } else {
        (&*combination.tier, 90)
    };
    let mut options = HierarchyOptions::new(tier, PolicyOptions::new(slots));
    options.buffers = none;
    options.frames = [0, 5, 20][seed as usize % 3];
    options.pool_policy = combination.pool;
    options.reserve = if combination.back && !none { 10 } else { 0 };
    options.write_back = combination.back;
    options.recovery_age = [50, 5000][seed as usize % 2];
    options.buffer_pages = [4, 64][seed as usize / 2 % 2];
    options
}

const TIERS: [&str; 12] = [
    "cac",
    "cc",
    "lc",
    "mv-fifo",
    "clean-write",
    "dual-write",
    "tac",
    "tac-mixed",
    "tac-blocks",
    "priority",
    "tac:through",
    "none:back",
];

#[test]
fn reads_give_the_newest_bytes_and_a_flush_brings_them_all_to_base() {
    let layout = Layout::new(&[300, 300], 4096);
    for pool in thermocline_core::pool::NAMES {
        for tier in TIERS {
            for seed in 0..6 {
                let combination = format!("{pool}+{tier}");
                let options = options(&combination, seed);
                let versions = Versions::default();
                let mut all = Instant::new(&options, &layout, versions).expect("policies");
                for number in 0..3000 {
                    let (request, hints) = request(seed, number);
                    match request.kind() {
                        Kind::Trim => all.trim(&request),
                        _ => {
                            all.serve(&request, &hints);
                        }
                    }
                    if number % 500 == 0 {
                        all.hierarchy().assert_invariants();
                    }
                }
                every_page_is_accounted_for(&mut all, &combination);
            }
        }
    }
}

fn every_page_is_accounted_for(all: &mut Instant<Versions>, combination: &str) {
    all.flush();
    let hierarchy = all.hierarchy();
    assert_eq!(hierarchy.pool().dirty(), 0, "{combination}");
    assert_eq!(hierarchy.slots().dirty(), 0, "{combination}");
    for (page, newest) in &all.bytes().newest {
        let base = all.bytes().of(At::Base(*page));
        assert_eq!(base, *newest, "{combination}: {page:?}");
    }
    let flow = all.flow();
    let written = flow.writes_through + flow.cleaned_to_base + flow.destage_writes();
    assert_eq!(flow.base_writes, written, "{combination}");
    assert!(flow.destaged <= flow.destage_reads, "{combination}");
    assert_eq!(hierarchy.counters().destaged, flow.destaged);
}

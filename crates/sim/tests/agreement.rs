//! The simulator's tier against the live tier's state machine: the same decisions.

use proptest::prelude::*;
use thermocline_core::counters::Source;
use thermocline_core::hierarchy::{Action, Hierarchy, HierarchyOptions};
use thermocline_core::policy::{self, PolicyOptions};
use thermocline_core::{HintSet, ObjectId, PageId};
use thermocline_sim::tier::PolicyTier;

/// One event of a random stream.
#[derive(Clone, Copy, Debug)]
enum Event {
    Read(u64, u32),
    Write(u64, u32),
    PartWrite(u64, u32),
    Trim(u64, u64),
}

/// Mostly reads of pages of which some are asked for more often.
fn event() -> impl Strategy<Value = Event> {
    let page = prop_oneof![0u64..20, 0u64..200];
    let trim = (0u64..220, prop_oneof![Just(u64::MAX), 1u64..9]);
    prop_oneof![
        12 => (page.clone(), 0u32..4).prop_map(|(page, hint)| Event::Read(page, hint)),
        4 => (page.clone(), 0u32..4).prop_map(|(page, hint)| Event::Write(page, hint)),
        1 => (page, 0u32..4).prop_map(|(page, hint)| Event::PartWrite(page, hint)),
        1 => trim.prop_map(|(first, pages)| Event::Trim(first, pages)),
    ]
}

/// Two objects, so that an object's pages are not all there is.
fn page(number: u64) -> PageId {
    PageId::new(ObjectId((number % 2) as u32), number / 2)
}

fn hints(value: u32) -> HintSet {
    let position = thermocline_core::hint_type::REQUEST;
    HintSet::UNKNOWN.with(position, value).with(0, value * 7)
}

/// The live state machine with one client and flash writes done at once.
struct Live {
    hierarchy: Hierarchy,
    actions: Vec<Action>,
}

impl Live {
    fn new(name: &str, options: &PolicyOptions, frames: u32) -> Self {
        let options = HierarchyOptions {
            frames,
            buffer_pages: 4,
            ..HierarchyOptions::new(name, options.clone())
        };
        Self {
            hierarchy: Hierarchy::new(&options).expect("a policy"),
            actions: Vec::new(),
        }
    }

    /// Does the event; says where the page was.
    fn event(&mut self, event: Event) -> Option<Source> {
        let found = match event {
            Event::Read(number, hint) => {
                let how = self.hierarchy.start_read(page(number));
                let hints = hints(hint);
                self.hierarchy
                    .finish_read(page(number), &hints, how, &mut self.actions);
                how.source()
            }
            Event::Write(number, hint) => Some(self.write(number, hint, true)),
            Event::PartWrite(number, hint) => Some(self.write(number, hint, false)),
            Event::Trim(first, pages) => {
                let (first, last) = (page(first), first.saturating_add(pages - 1));
                let last = if pages == u64::MAX {
                    last
                } else {
                    first.index + pages - 1
                };
                self.hierarchy
                    .trim(first.object, first.index, last, &mut self.actions);
                None
            }
        };
        while let Some(job) = self.hierarchy.next_write() {
            self.hierarchy.end_write(job, Ok(0), &mut self.actions);
        }
        self.hierarchy.commit_now(&mut self.actions);
        self.actions.clear();
        found
    }

    fn write(&mut self, number: u64, hint: u32, whole: bool) -> Source {
        let resident = self.hierarchy.slots().find(page(number));
        assert!(self.hierarchy.start_write(page(number)));
        let (page, hints) = (page(number), hints(hint));
        self.hierarchy
            .finish_write(page, &hints, whole, true, &mut self.actions);
        resident.map_or(Source::Base, |_| Source::Flash)
    }
}

/// The same on the simulator's tier; also the pages written to flash.
fn simulate(tier: &mut PolicyTier, event: Event) -> (Option<Source>, u32) {
    let effect = match event {
        Event::Read(number, hint) => tier.read(page(number), &hints(hint)),
        Event::Write(number, hint) => tier.write(page(number), &hints(hint), true),
        Event::PartWrite(number, hint) => tier.write(page(number), &hints(hint), false),
        Event::Trim(first, pages) => {
            let end = first.saturating_add(pages - 1);
            let first = page(first);
            let last = if pages == u64::MAX {
                end
            } else {
                first.index + pages - 1
            };
            tier.forget(first.object, first.index, last);
            return (None, 0);
        }
    };
    (Some(effect.source), effect.flash_writes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_policy_decides_as_it_does_live(
        events in prop::collection::vec(event(), 1..600),
        capacity in 1u32..40,
        frames in prop_oneof![Just(0u32), 1u32..12],
        admit_on_write: bool,
    ) {
        for name in policy::NAMES {
            let mut options = PolicyOptions::new(capacity);
            options.admit_on_write = admit_on_write;
            let mut live = Live::new(name, &options, frames);
            let built = policy::build(name, &options).expect("a policy");
            let mut tier = PolicyTier::new(built, capacity, frames);
            let mut flash_writes = 0;
            for (at, event) in events.iter().enumerate() {
                let expected = live.event(*event);
                let (found, written) = simulate(&mut tier, *event);
                flash_writes += u64::from(written);
                prop_assert_eq!(found, expected, "{}: event {}: {:?}", name, at, event);
            }
            let live = &live.hierarchy;
            let residents: Vec<_> = tier.slots().residents().collect();
            let expected: Vec<_> = live.slots().residents().collect();
            prop_assert_eq!(residents, expected, "{}", name);
            prop_assert_eq!(flash_writes, live.counters().flash_writes, "{}", name);
            tier.policy().assert_invariants(tier.slots());
        }
    }
}

//! W-TinyLFU: a small recency window, and a main part that takes only what is asked for more often.
//!
//! *Algorithm*: a newcomer enters the window, an LRU list of a hundredth of the slots. When the
//! window is full its oldest page is a candidate for the main part, a segmented LRU: a page comes
//! into probation, a request takes it to protected (four fifths of the main part), whose oldest
//! pages fall back to probation. When the tier is full the candidate meets the oldest page of
//! probation, and the one that a [`Sketch`] of recent requests has counted less often leaves; the
//! candidate when they are even (Einziger, Friedman, Manes, "TinyLFU: a highly efficient cache
//! admission policy", ACM TOS 2017, §3 the sketch and its ageing, §4 the window). *Cost*: O(1) a
//! request; every five requests a slot, one pass over the sketch. *Memory*: 17 bytes a slot, 8 of
//! them the sketch.
//!
//! # Where the paper leaves a choice
//! - *Sketch* (§3.4 allows several): counters of four bits, no doorkeeper (§3.4.2), sample of ten
//!   requests a slot.
//! - *Window*: one slot at least. It does not adapt.
//! - *A page leaves the window* only when another enters, so the candidate is decided on then.
//!
//! Departures: requests that the window serves are not counted, where the paper counts all. They
//! come in bursts, and a burst says little about whether the page is wanted again later: at 30
//! sizes of six traces the misses changed by -12 to +2 %, and fell at 22 of them. Pages that are
//! being read or written are passed over. The newcomer itself always comes in, so every miss is a
//! write to flash, unlike TinyLFU alone.

use super::{
    Access, Decision, Opportunity, PolicyOptions, Removal, TierPolicy, admit_always,
    evictable_from_back,
};
use crate::hash;
use crate::list::{Links, List};
use crate::page::{PageId, SlotId};
use crate::sketch::Sketch;
use crate::tier::SlotTable;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Window,
    Probation,
    Protected,
}

/// See the module text.
#[derive(Debug)]
pub struct WTinyLfu {
    links: Links,
    /// By [`Part`].
    lists: [List; 3],
    parts: Vec<Part>,
    window_max: u32,
    protected_max: u32,
    sketch: Sketch,
    seed: u64,
    admit_on_write: bool,
}

impl WTinyLfu {
    /// An empty policy for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        let capacity = options.capacity;
        let window_max = (capacity / 100).max(1);
        let main = u64::from(capacity.saturating_sub(window_max));
        Self {
            links: Links::new(capacity),
            lists: [List::default(); 3],
            parts: vec![Part::Window; capacity as usize],
            window_max,
            protected_max: (main * 4 / 5) as u32,
            sketch: Sketch::new(capacity),
            seed: options.seed,
            admit_on_write: options.admit_on_write,
        }
    }

    fn hash(&self, page: PageId) -> u64 {
        hash::mix(self.seed, hash::of_page(page))
    }

    fn count(&self, slot: SlotId, slots: &SlotTable) -> u8 {
        let page = slots.page(slot);
        debug_assert!(page.is_some(), "only residents are compared");
        page.map_or(0, |page| self.sketch.count(self.hash(page)))
    }

    fn list(&self, part: Part) -> &List {
        &self.lists[part as usize]
    }

    /// Puts a slot that is in no list at the front of `part`.
    fn enter(&mut self, id: u32, part: Part) {
        self.parts[id as usize] = part;
        self.lists[part as usize].push_front(&mut self.links, id);
    }

    fn leave(&mut self, id: u32) {
        let part = self.parts[id as usize];
        self.lists[part as usize].remove(&mut self.links, id);
    }

    /// Moves pages from the back of `from` to probation until `from` has at most `max`.
    fn overflow(&mut self, from: Part, max: u32) {
        while self.list(from).len() > max {
            let Some(id) = self.list(from).back() else {
                return;
            };
            self.leave(id);
            self.enter(id, Part::Probation);
        }
    }

    /// The window's oldest page against the main part's, once the window has its share.
    fn victim(&self, slots: &SlotTable) -> Option<SlotId> {
        let last = |part: Part| evictable_from_back(self.list(part), &self.links, slots);
        let main = last(Part::Probation).or_else(|| last(Part::Protected));
        let window_full = self.list(Part::Window).len() >= self.window_max;
        let candidate = match window_full || main.is_none() {
            true => last(Part::Window),
            false => None,
        };
        let (Some(candidate), Some(main)) = (candidate, main) else {
            return candidate.or(main);
        };
        let wins = self.count(candidate, slots) > self.count(main, slots);
        Some(if wins { main } else { candidate })
    }
}

impl TierPolicy for WTinyLfu {
    fn name(&self) -> &'static str {
        "w-tinylfu"
    }

    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        let part = match resident.map(|slot| self.parts[slot.at()]) {
            Some(Part::Window) => Part::Window,
            _ => Part::Protected,
        };
        if part != Part::Window {
            self.sketch.add(self.hash(access.page));
        }
        let Some(slot) = resident else { return };
        self.leave(slot.0);
        self.enter(slot.0, part);
        self.overflow(Part::Protected, self.protected_max);
    }

    fn decide(&mut self, _access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        admit_always(slots, why, self.admit_on_write, || self.victim(slots))
    }

    fn on_admit(&mut self, _access: &Access, slot: SlotId) {
        self.enter(slot.0, Part::Window);
        self.overflow(Part::Window, self.window_max);
    }

    fn on_remove(&mut self, _page: PageId, slot: SlotId, _why: Removal) {
        self.leave(slot.0);
    }

    fn bytes(&self) -> usize {
        self.links.bytes() + self.parts.capacity() * size_of::<Part>() + self.sketch.bytes()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        let listed: u32 = self.lists.iter().map(List::len).sum();
        assert_eq!(listed, slots.resident(), "the lists hold the residents");
        for part in [Part::Window, Part::Probation, Part::Protected] {
            for id in self.list(part).iter_from_back(&self.links) {
                assert!(slots.page(SlotId(id)).is_some(), "a listed slot has a page");
                assert_eq!(self.parts[id as usize], part, "in its list");
            }
        }
        assert!(self.list(Part::Window).len() <= self.window_max, "window");
        let protected = self.list(Part::Protected).len();
        assert!(protected <= self.protected_max, "protected has its share");
    }
}

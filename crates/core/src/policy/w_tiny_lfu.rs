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

use super::queues::Queues;
use super::{Access, Decision, Opportunity, PolicyOptions, Removal, TierPolicy, admit_always};
use crate::hash;
use crate::page::{PageId, SlotId};
use crate::sketch::Sketch;
use crate::tier::SlotTable;

/// The queues.
const WINDOW: u8 = 0;
const PROBATION: u8 = 1;
const PROTECTED: u8 = 2;

/// See the module text.
#[derive(Debug)]
pub struct WTinyLfu {
    queues: Queues,
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
            queues: Queues::new(capacity, 3),
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

    /// Moves pages from the back of `from` to probation until `from` has at most `max`.
    fn overflow(&mut self, from: u8, max: u32) {
        while self.queues.len(from) > max {
            let Some(slot) = self.queues.oldest(from) else {
                return;
            };
            self.queues.renew(slot, PROBATION);
        }
    }

    /// The window's oldest page against the main part's, once the window has its share.
    fn victim(&self, slots: &SlotTable) -> Option<SlotId> {
        let main = self.queues.victim([PROBATION, PROTECTED], slots);
        let window_full = self.queues.len(WINDOW) >= self.window_max;
        let candidate = match window_full || main.is_none() {
            true => self.queues.victim([WINDOW], slots),
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
        let queue = match resident.map(|slot| self.queues.of(slot)) {
            Some(WINDOW) => WINDOW,
            _ => PROTECTED,
        };
        if queue != WINDOW {
            self.sketch.add(self.hash(access.page));
        }
        let Some(slot) = resident else { return };
        self.queues.renew(slot, queue);
        self.overflow(PROTECTED, self.protected_max);
    }

    fn decide(&mut self, _access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        admit_always(slots, why, self.admit_on_write, || self.victim(slots))
    }

    fn on_admit(&mut self, _access: &Access, slot: SlotId) {
        self.queues.enter(slot, WINDOW);
        self.overflow(WINDOW, self.window_max);
    }

    fn on_remove(&mut self, _page: PageId, slot: SlotId, _why: Removal) {
        self.queues.leave(slot);
    }

    fn bytes(&self) -> usize {
        self.queues.bytes() + self.sketch.bytes()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        self.queues.assert_invariants(slots);
        assert!(self.queues.len(WINDOW) <= self.window_max, "window");
        let protected = self.queues.len(PROTECTED);
        assert!(protected <= self.protected_max, "protected has its share");
    }
}

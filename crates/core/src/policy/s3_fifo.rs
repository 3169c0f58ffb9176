//! S3-FIFO: three FIFO queues are enough.
//!
//! *Algorithm*: a newcomer enters the small queue S; a page that left S lately, and is therefore in
//! the ghost queue G, enters the main queue M instead. A request only counts, up to 3. To evict:
//! when M holds more than its share, from M, else from S. From the back of S a page requested at
//! least twice since it came moves to the front of M, its count forgotten; the first other one
//! leaves and is remembered in G. From the back of M a page with a count goes to the front with one
//! less; the first without leaves and is not remembered (Yang et al., "FIFO queues are all you
//! need for cache eviction", SOSP 2023, §4, Algorithm 1). *Cost*: O(1) amortised a request.
//! *Memory*: 9 bytes a slot, and 0.9 ghosts a slot of 30 to 47 bytes each ([`Ghost`]).
//!
//! # Where the paper leaves a choice
//! - *Sizes* (§4.1): S has ⌊slots / 10⌋, M the rest; G remembers ⌊9 slots / 10⌋ pages.
//! - *Which queue yields*: M while it is above its share, else S (Algorithm 1 asks whether S is
//!   above its share, which is the same when the tier is full).
//! - *Threshold*: two requests after admission (§4.1 says "more than once").
//!
//! Departures: a page that is being read or written stays where it is in S, and goes round once
//! more in M. Pages that leave otherwise than by eviction are not remembered.

use super::{Access, Decision, Opportunity, PolicyOptions, Removal, TierPolicy, admit_always};
use crate::ghost::Ghost;
use crate::list::{Links, List};
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;

/// Counts stop here (§4.1: two bits).
const COUNT_MAX: u8 = 3;
/// Requests after admission that take a page from S to M.
const TO_MAIN: u8 = 2;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    count: u8,
    in_main: bool,
}

/// See the module text.
#[derive(Debug)]
pub struct S3Fifo {
    links: Links,
    small: List,
    main: List,
    /// Slots M may have before it must yield.
    main_share: u32,
    states: Vec<State>,
    ghosts: Ghost<()>,
    /// The page asked about last, when it was a ghost then: it makes room in G for the page that
    /// leaves in its favour.
    returning: Option<PageId>,
    admit_on_write: bool,
}

impl S3Fifo {
    /// An empty policy for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        let capacity = options.capacity;
        Self {
            links: Links::new(capacity),
            small: List::default(),
            main: List::default(),
            main_share: capacity - capacity / 10,
            states: vec![State::default(); capacity as usize],
            ghosts: Ghost::new((u64::from(capacity) * 9 / 10) as u32),
            returning: None,
            admit_on_write: options.admit_on_write,
        }
    }

    fn victim(&mut self, slots: &SlotTable) -> Option<SlotId> {
        let main_yields = self.main.len() > self.main_share || self.small.is_empty();
        let found = match main_yields {
            true => self.main_victim(slots),
            false => self.small_victim(slots),
        };
        match (found, main_yields) {
            (None, true) => self.small_victim(slots),
            (None, false) => self.main_victim(slots),
            _ => found,
        }
    }

    /// The first page from the back of S that nothing saves; those on the way that were asked for
    /// again move to M.
    fn small_victim(&mut self, slots: &SlotTable) -> Option<SlotId> {
        let mut at = self.small.back();
        while let Some(id) = at {
            at = self.links.towards_front(id);
            if self.states[id as usize].count >= TO_MAIN {
                self.small.remove(&mut self.links, id);
                self.main.push_front(&mut self.links, id);
                self.states[id as usize] = State {
                    count: 0,
                    in_main: true,
                };
            } else if slots.evictable(SlotId(id)) {
                return Some(SlotId(id));
            }
        }
        None
    }

    /// The first evictable page from the back of M without a count. After as many rounds as counts
    /// go up to there are none left, and one more finds it.
    fn main_victim(&mut self, slots: &SlotTable) -> Option<SlotId> {
        for _ in 0..(u64::from(COUNT_MAX) + 1) * u64::from(self.main.len()) {
            let id = self.main.back()?;
            let count = &mut self.states[id as usize].count;
            if *count == 0 && slots.evictable(SlotId(id)) {
                return Some(SlotId(id));
            }
            *count = count.saturating_sub(1);
            self.main.move_to_front(&mut self.links, id);
        }
        None
    }
}

impl TierPolicy for S3Fifo {
    fn name(&self) -> &'static str {
        "s3-fifo"
    }

    fn on_request(&mut self, _access: &Access, resident: Option<SlotId>) {
        if let Some(slot) = resident {
            let count = &mut self.states[slot.at()].count;
            *count = (*count + 1).min(COUNT_MAX);
        }
    }

    fn decide(&mut self, access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        self.returning = self.ghosts.contains(access.page).then_some(access.page);
        let admit_on_write = self.admit_on_write;
        admit_always(slots, why, admit_on_write, || self.victim(slots))
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        let was_ghost = self.ghosts.remove(access.page).is_some();
        let in_main = was_ghost || self.returning == Some(access.page);
        self.returning = None;
        let queue = match in_main {
            true => &mut self.main,
            false => &mut self.small,
        };
        queue.push_front(&mut self.links, slot.0);
        debug_assert_eq!(
            self.states[slot.at()].count,
            0,
            "a free slot keeps no count"
        );
        self.states[slot.at()] = State { count: 0, in_main };
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        let state = std::mem::take(&mut self.states[slot.at()]);
        match state.in_main {
            true => self.main.remove(&mut self.links, slot.0),
            false => self.small.remove(&mut self.links, slot.0),
        }
        if why == Removal::Evicted && !state.in_main {
            if let Some(returning) = self.returning {
                self.ghosts.remove(returning);
            }
            self.ghosts.insert(page, ());
        }
    }

    fn bytes(&self) -> usize {
        self.links.bytes() + self.states.capacity() * size_of::<State>() + self.ghosts.bytes()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        self.ghosts.assert_invariants();
        let queued = self.small.len() + self.main.len();
        assert_eq!(
            queued,
            slots.resident(),
            "S and M hold exactly the residents"
        );
        for (list, in_main) in [(&self.small, false), (&self.main, true)] {
            for id in list.iter_from_back(&self.links) {
                let page = slots.page(SlotId(id));
                assert!(page.is_some(), "a queued slot holds a page");
                assert_eq!(self.states[id as usize].in_main, in_main, "in its queue");
                let ghost = page.is_some_and(|page| self.ghosts.contains(page));
                assert!(!ghost, "a ghost is not resident");
            }
        }
    }
}

//! Lazy cleaning and its simpler kin, on one order of pages (thesis §6.5; Do et al., SIGMOD 2011,
//! as the thesis and hStorage-DB §7 tell it).
//!
//! *Algorithm*: a page comes in when it is cleaned or leaves the DRAM pool, whatever it is worth;
//! the victim is LRU-2's. What becomes of a dirty page that is written out makes three policies:
//!
//! | | to flash | to base |
//! |---|---|---|
//! | `lc`, the thesis's LRU2 | yes | when it leaves flash |
//! | `dual-write` | yes | at once |
//! | `clean-write` | never: only clean pages come in | at once |
//!
//! *Cost* and *memory*: those of [`Lru2`]: 33 bytes a slot and four remembered pages.
//!
//! # Where the thesis leaves a choice
//! - *Cleaning*: its LRU2 cleans a page of flash only when it is evicted, the least aggressive
//!   form of lazy cleaning. When pages are destaged is the tier's affair, not the policy's.
//! - *Invalidation* (§6.5, as for CAC): a clean copy leaves when its page is dirtied in DRAM.
//! - *No pool*: pages come in when they are read, as for CAC.

use super::{
    Access, Decision, DirtyPages, Lru2, Opportunity, PolicyOptions, Pooled, Refusal, Removal,
    TierPolicy,
};
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;

/// See the module text.
#[derive(Debug)]
pub struct LazyCleaning {
    name: &'static str,
    dirty: DirtyPages,
    order: Lru2,
    pooled: Pooled,
    admit_on_write: bool,
}

impl LazyCleaning {
    /// An empty `lc` for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        Self::named("lc", DirtyPages::Back, options)
    }

    /// An empty `dual-write` for `options.capacity` slots.
    #[must_use]
    pub fn dual_write(options: &PolicyOptions) -> Self {
        Self::named("dual-write", DirtyPages::Both, options)
    }

    /// An empty `clean-write` for `options.capacity` slots.
    #[must_use]
    pub fn clean_write(options: &PolicyOptions) -> Self {
        Self::named("clean-write", DirtyPages::Around, options)
    }

    fn named(name: &'static str, dirty: DirtyPages, options: &PolicyOptions) -> Self {
        Self {
            name,
            dirty,
            order: Lru2::new(options),
            pooled: Pooled::default(),
            admit_on_write: options.admit_on_write,
        }
    }

    fn takes(&mut self, why: Opportunity) -> bool {
        let written = matches!(why, Opportunity::Write | Opportunity::Clean);
        let around = written && self.dirty == DirtyPages::Around;
        !around && self.pooled.takes(why, self.admit_on_write)
    }
}

impl TierPolicy for LazyCleaning {
    fn name(&self) -> &'static str {
        self.name
    }

    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        self.order.on_request(access, resident);
    }

    fn decide(&mut self, _access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        match self.takes(why) {
            true => self.order.make_room(slots),
            false => Decision::Refuse(Refusal::Opportunity),
        }
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        self.order.on_admit(access, slot);
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        self.order.on_remove(page, slot, why);
    }

    fn on_pool(&mut self, _page: PageId, _buffered: bool) {
        self.pooled.announce();
    }

    fn dirty_pages(&self) -> DirtyPages {
        self.dirty
    }

    fn keeps_outdated(&self) -> bool {
        false
    }

    fn bytes(&self) -> usize {
        self.order.bytes()
    }

    fn bytes_full(&self) -> usize {
        self.order.bytes_full()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        self.order.assert_invariants(slots);
    }
}

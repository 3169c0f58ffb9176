//! MQ: multi-queue (Zhou, Philbin and Li, USENIX 2001, §4).
//!
//! *Algorithm*: eight queues in order of recency. A page that was requested f times is put into
//! queue min(log2 f, 7) and may stay there for `LIFETIME` requests without being requested; then
//! it goes down one queue. The victim is the oldest page of the lowest queue that has one. Qout
//! remembers how often evicted pages were requested, so that a page that comes back takes up its
//! count. Made for caches below another cache, where a page returns late but often.
//! *Cost*: O(8) a request (O(pinned) to find a victim). *Memory*: 25 bytes a slot, and an entry of
//! a [`Ghost`] for each of at most four times as many remembered pages.
//!
//! # Where the paper leaves a choice
//! - *Lifetime* (§4 estimates it from the trace at run time): a fixed 10,000 requests.
//! - *Ageing*: each request looks once at the oldest page of each queue, lowest queue first; one
//!   that has outlived its time goes to the young end of the queue below with a new lifetime.
//!   This happens before the request itself is looked at.
//! - *Qout*: four times the slots, in order of eviction. A page that comes back leaves it before
//!   the victim enters.
//! - *Free slots* (trims and failures): taken without a victim. Pages that did not leave by
//!   eviction are not remembered.

use super::queues::Queues;
use super::{Access, Decision, Opportunity, PolicyOptions, Removal, TierPolicy, admit_always};
use crate::ghost::Ghost;
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;

/// Queues.
const QUEUES: u8 = 8;

/// Requests a page stays in its queue without being requested, where nothing else is said.
const LIFETIME: u64 = 10_000;

/// Remembered pages per slot.
const REMEMBERED_PER_SLOT: u32 = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// The last request that leaves the page in its queue.
    expires: u64,
    /// Requests counted, those before an eviction included.
    frequency: u32,
}

/// See the module text.
#[derive(Debug)]
pub struct Mq {
    queues: Queues,
    entries: Vec<Entry>,
    /// Qout: how often evicted pages were requested.
    evicted: Ghost<u32>,
    evicted_max: u32,
    lifetime: u64,
    /// Requests so far.
    now: u64,
    admit_on_write: bool,
}

impl Mq {
    /// An empty policy for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        Self::with_lifetime(options, LIFETIME)
    }

    /// An empty policy in which a page stays in its queue for `lifetime` requests.
    #[must_use]
    pub fn with_lifetime(options: &PolicyOptions, lifetime: u64) -> Self {
        let evicted_max = options
            .capacity
            .saturating_mul(REMEMBERED_PER_SLOT)
            .min(u32::MAX - 2);
        Self {
            queues: Queues::new(options.capacity, QUEUES),
            entries: vec![Entry::default(); options.capacity as usize],
            // A victim enters before the newcomer leaves: one more.
            evicted: Ghost::new(evicted_max + 1),
            evicted_max,
            lifetime,
            now: 0,
            admit_on_write: options.admit_on_write,
        }
    }

    /// Puts `slot`, which is in no queue, where a page requested `frequency` times belongs.
    fn enqueue(&mut self, slot: SlotId, frequency: u32) {
        debug_assert!(frequency > 0, "a page is here because it was requested");
        self.entries[slot.at()] = Entry {
            expires: self.now + self.lifetime,
            frequency,
        };
        let queue = frequency.ilog2().min(u32::from(QUEUES) - 1);
        self.queues.enter(slot, queue as u8);
    }

    /// The oldest page of each queue goes down one when it has outlived its time.
    fn age(&mut self) {
        for below in 0..QUEUES - 1 {
            let Some(slot) = self.queues.oldest(below + 1) else {
                continue;
            };
            let entry = &mut self.entries[slot.at()];
            if entry.expires < self.now {
                entry.expires = self.now + self.lifetime;
                self.queues.renew(slot, below);
            }
        }
    }
}

impl TierPolicy for Mq {
    fn name(&self) -> &'static str {
        "mq"
    }

    fn on_request(&mut self, _access: &Access, resident: Option<SlotId>) {
        self.now += 1;
        self.age();
        if let Some(slot) = resident {
            let Entry { frequency, .. } = self.entries[slot.at()];
            self.queues.leave(slot);
            self.enqueue(slot, frequency.saturating_add(1));
        }
    }

    fn decide(&mut self, _access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        let victim = || self.queues.victim(0..QUEUES, slots);
        admit_always(slots, why, self.admit_on_write, victim)
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        let before = self.evicted.remove(access.page).unwrap_or(0);
        self.enqueue(slot, before.saturating_add(1));
        if self.evicted.len() > self.evicted_max {
            self.evicted.pop_oldest();
        }
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        let Entry { frequency, .. } = self.entries[slot.at()];
        self.queues.leave(slot);
        if why == Removal::Evicted {
            self.evicted.insert(page, frequency);
        }
    }

    fn bytes(&self) -> usize {
        self.queues.bytes() + self.entries.capacity() * size_of::<Entry>() + self.evicted.bytes()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        self.queues.assert_invariants(slots);
        for (slot, page) in slots.residents() {
            let expires = self.entries[slot.at()].expires;
            assert!(
                expires <= self.now + self.lifetime,
                "no page outlives the lifetime"
            );
            assert!(
                !self.evicted.contains(page),
                "what is in a queue is not in Qout"
            );
        }
        self.evicted.assert_invariants();
    }
}

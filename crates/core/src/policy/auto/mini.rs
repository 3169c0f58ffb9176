//! A miniature: a policy in charge of a tier without bytes, whose flash writes are done at once.

use crate::page::{BlockId, ObjectId, PageId, SlotId};
use crate::policy::streams::Streams;
use crate::policy::{
    Access, Decision, Learned, Op, Opportunity, PolicyOptions, Removal, TierPolicy,
};
use crate::tier::SlotTable;

/// What one request came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Effect {
    /// It read a page that was on flash.
    pub hit: bool,
    /// What it cost base, random reads.
    pub base: f64,
    /// Pages written to flash.
    pub written: u8,
}

impl Effect {
    /// A page on flash was requested.
    pub(super) fn of_resident(op: Op) -> Self {
        Self {
            hit: op == Op::Read,
            base: 0.0,
            written: u8::from(op == Op::Write),
        }
    }

    /// Less what it cost, random reads of base, where a page written to flash costs `price`.
    pub(super) fn score(self, price: f64) -> f64 {
        -self.base - price * f64::from(self.written)
    }
}

/// See the module text.
pub(super) struct Mini {
    slots: SlotTable,
    policy: Box<dyn TierPolicy>,
    streams: Streams,
    hits: u64,
    score: f64,
    writes: u64,
}

impl Mini {
    /// An empty tier whose policy has these `options`.
    pub(super) fn new(policy: Box<dyn TierPolicy>, options: &PolicyOptions) -> Self {
        Self {
            slots: SlotTable::new(options.capacity),
            policy,
            streams: Streams::new(&options.costs),
            hits: 0,
            score: 0.0,
            writes: 0,
        }
    }

    /// Serves a request; its score, where a page written to flash costs `price`.
    pub(super) fn serve(&mut self, access: &Access, price: f64) -> f64 {
        let resident = self.slots.find(access.page);
        self.policy.on_request(access, resident);
        let mut effect = match (resident, access.op) {
            (Some(_), op) => Effect::of_resident(op),
            (None, Op::Read) => self.consider(access, Opportunity::Read),
            (None, Op::Write) => self.consider(access, Opportunity::Write),
        };
        while let Some(victim) = self.policy.surplus(&self.slots) {
            let left = self.slots.remove(victim);
            self.policy.on_remove(left, victim, Removal::Evicted);
        }
        effect.base = self.streams.cost(access, resident.is_some());
        self.hits += u64::from(effect.hit);
        self.writes += u64::from(effect.written);
        let score = effect.score(price);
        self.score += score;
        score
    }

    /// A write that leaves no copy of its page: of a part of it. It costs nothing here.
    pub(super) fn pass(&mut self, access: &Access) {
        let resident = self.slots.find(access.page);
        self.policy.on_request(access, resident);
        self.forget(access.page, Removal::Stale);
    }

    /// `page` is not what it was.
    pub(super) fn forget(&mut self, page: PageId, why: Removal) {
        if let Some(slot) = self.slots.find(page) {
            self.slots.remove(slot);
            self.policy.on_remove(page, slot, why);
        }
    }

    /// Pages `first..` of `object` are gone.
    pub(super) fn trim(&mut self, object: ObjectId, first: u64) {
        for slot in self.slots.in_range(object, first, u64::MAX) {
            let page = self.slots.remove(slot);
            self.policy.on_remove(page, slot, Removal::Trimmed);
        }
        self.policy.on_trim(object, first);
    }

    /// Read hits so far.
    pub(super) fn hits(&self) -> u64 {
        self.hits
    }

    /// The sum of its scores so far.
    pub(super) fn score(&self) -> f64 {
        self.score
    }

    /// Pages written to flash so far.
    pub(super) fn writes(&self) -> u64 {
        self.writes
    }

    /// What its policy learned.
    pub(super) fn learned(&self) -> Option<Learned> {
        self.policy.learned()
    }

    /// Whether it holds `page`.
    #[cfg(test)]
    pub(super) fn finds(&self, page: PageId) -> bool {
        self.slots.find(page).is_some()
    }

    /// The page in `slot`.
    pub(super) fn page(&self, slot: SlotId) -> Option<PageId> {
        self.slots.page(slot)
    }

    /// The pages it holds.
    pub(super) fn pages(&self) -> impl Iterator<Item = PageId> + '_ {
        self.slots.residents().map(|(_, page)| page)
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.slots.bytes() + self.policy.bytes()
    }

    /// Bytes held once all is full.
    pub(super) fn bytes_full(&self) -> usize {
        self.slots.bytes() + self.policy.bytes_full()
    }

    /// Panics unless slots and policy are sound.
    pub(super) fn assert_invariants(&self) {
        self.slots.assert_invariants();
        self.streams.assert_invariants();
        self.policy.assert_invariants(&self.slots);
    }

    /// Asks about a page that is not here.
    fn consider(&mut self, access: &Access, why: Opportunity) -> Effect {
        if self.slots.capacity() == 0 {
            return Effect::default();
        }
        match self.policy.decide(access, why, &self.slots) {
            Decision::Refuse(_) => return Effect::default(),
            Decision::Replace(victim) => {
                let left = self.slots.remove(victim);
                self.policy.on_remove(left, victim, Removal::Evicted);
            }
            Decision::Admit => {}
        }
        let Some(slot) = self.slots.admit(access.page) else {
            debug_assert!(false, "a policy admits only where there is room");
            return Effect::default();
        };
        let generation = self.slots.generation(slot);
        self.slots.start_write(slot);
        self.slots
            .end_write(slot, generation, Some(BlockId(slot.0)));
        self.policy.on_admit(access, slot);
        Effect {
            written: 1,
            ..Effect::default()
        }
    }
}

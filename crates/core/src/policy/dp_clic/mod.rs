//! DP-CLIC: CLIC with dynamic priorities (thesis chapter 4).
//!
//! *Algorithm*: as [`super::clic`], but what a hint set H is worth depends on how many requests d
//! ago the page was requested: Pr(H, d) is the expected benefit of each distance d' at which such
//! a page is read, divided by the cost d' − d of waiting for it, given that d requests have passed
//! (equation 4.6). The curve is a hill, so the page of least priority in a list ordered by request
//! is at one of its ends: the most recent before the peak, the oldest after it (figure 4.5).
//! `dp-clic` tells all hint sets apart, `dp-clic-topk` the most frequent, `dp-clic-hybrid` by the
//! hint types that say most.
//!
//! *Cost*: O(1) expected a request, O(n) to find a victim (§4.4), n being the most hint sets that
//! were told apart at a time, and O(buckets) a request, at worst, for the curves when a window
//! closes. *Memory*: see [`super::hints`]; besides, a hint set has up to 20 bytes for each of
//! [`ClicConfig::buckets`] buckets, as many as the distances it was read again at need.
//!
//! # Where the thesis leaves a choice
//! - *The term d' = d* of equation 4.6 divides by zero. Distances are known by bucket: d is taken
//!   at the beginning of its bucket and d' in the middle of its own, so that d' − d is at least
//!   half a bucket.
//! - *Bucket width* (§4.3, §4.6): 5000 × 3000 buckets for 60 000 to 300 000 slots; a few hundred
//!   do as long as they are narrower than the rise of the hill and reach past it (§4.6.3). Here
//!   a sixteenth of the slots × 256, which reaches 16 requests a slot; pages that nobody asked
//!   for in so long are worth nothing.
//! - *Curves that are no hills*: the search is figure 4.5 all the same. The victim is then the
//!   least among the pages that it looks at, at least one of every hint set.
//! - *Little evidence*: a curve of a few reads says less than their mean. A curve made of n reads
//!   has the weight n / (n + [`ClicConfig::evidence`]), the rest is CLIC's priority, the same at
//!   all distances. So with few reads this is CLIC, and with many it is the thesis.
//! - *Smoothing* (r < 1): histograms of earlier windows fade like the counts of CLIC; the curve
//!   of a hint set that was not requested in a window keeps its shape and is lowered by 1 − r.
//! - *Equal priorities*, the time before the first window closes, writes and pinned pages: as in
//!   CLIC. Of pages of equal priority the one not requested for longest leaves (figure 4.5, 9).

mod histogram;

use super::hints::{ClicConfig, GroupId, HintKeys, HintedPages};
use super::{
    Access, Decision, Learned, Opportunity, PolicyOptions, Refusal, Removal, TierPolicy, Ties,
    evictable_from_back, evictable_from_front, takes,
};
use crate::page::{ObjectId, PageId, SlotId};
use crate::tier::SlotTable;
use histogram::Histogram;

/// See the module text.
#[derive(Debug)]
pub struct DpClic {
    name: &'static str,
    pages: HintedPages<Histogram>,
    ties: Ties,
    admit_on_write: bool,
}

impl DpClic {
    /// An empty policy for `options.capacity` slots that tells hint sets apart by `keys`.
    #[must_use]
    pub fn new(keys: HintKeys, options: &PolicyOptions) -> Self {
        let ClicConfig { ties, .. } = options.clic;
        let empty = Histogram::new(&options.clic, options.capacity);
        Self {
            name: match keys {
                HintKeys::All => "dp-clic",
                HintKeys::TopK => "dp-clic-topk",
                HintKeys::Hybrid => "dp-clic-hybrid",
            },
            pages: HintedPages::new(keys, options, empty),
            ties,
            admit_on_write: options.admit_on_write,
        }
    }

    /// Pr(H, d) of the hint sets in `group`.
    fn priority(&self, group: GroupId, distance: u64) -> f64 {
        let Some(group) = self.pages.groups().get(group) else {
            return 0.0;
        };
        let highest = group.evidence.highest();
        if highest <= 0.0 {
            return 0.0;
        }
        let height = group.priority / highest;
        debug_assert!(height <= 1.0, "a group that is not counted only loses");
        group.evidence.priority(distance) * height
    }

    /// Priority of the page in `slot` at request `now`.
    fn priority_of(&self, slot: SlotId, now: u64) -> f64 {
        let distance = now.saturating_sub(self.pages.seq(slot));
        self.priority(self.pages.group_in(slot), distance)
    }

    /// Figure 4.5, lines 13 to 30: the evictable page of `group` to be looked at.
    fn candidate(&self, group: GroupId, now: u64, slots: &SlotTable) -> Option<SlotId> {
        let list = self.pages.list(group);
        let oldest = evictable_from_back(list, self.pages.links(), slots)?;
        let newest = evictable_from_front(list, self.pages.links(), slots)?;
        let Some(known) = self.pages.groups().get(group) else {
            return Some(oldest);
        };
        let passed = |slot| {
            let distance = now.saturating_sub(self.pages.seq(slot));
            known.evidence.has_passed(distance)
        };
        debug_assert!(passed(oldest) || !passed(newest), "the oldest is first");
        Some(match (passed(newest), passed(oldest)) {
            (true, _) => oldest,
            (false, false) => newest,
            (false, true) if self.priority_of(newest, now) < self.priority_of(oldest, now) => {
                newest
            }
            (false, true) => oldest,
        })
    }

    /// The page to leave, with its priority. O(most groups that there were at a time).
    fn victim(&self, now: u64, slots: &SlotTable) -> Option<(f64, SlotId)> {
        let mut least: Option<(f64, u64, SlotId)> = None;
        for group in (0..self.pages.groups().numbers()).map(GroupId) {
            let Some(slot) = self.candidate(group, now, slots) else {
                continue;
            };
            let (priority, seq) = (self.priority_of(slot, now), self.pages.seq(slot));
            if least.is_none_or(|(p, s, _)| priority < p || (priority == p && seq < s)) {
                least = Some((priority, seq, slot));
            }
        }
        least.map(|(priority, _, slot)| (priority, slot))
    }
}

impl TierPolicy for DpClic {
    fn name(&self) -> &'static str {
        self.name
    }

    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        self.pages.on_request(access, resident);
    }

    fn decide(&mut self, access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        if !takes(why, self.admit_on_write) {
            return Decision::Refuse(Refusal::Opportunity);
        }
        if slots.has_room() {
            return Decision::Admit;
        }
        let Some((least, victim)) = self.victim(access.number, slots) else {
            return Decision::Refuse(Refusal::Pinned);
        };
        let priority = self.priority(self.pages.group_of(access), 0);
        let equal = priority == least;
        if priority > least || (equal && self.pages.yields(victim, access.number, self.ties)) {
            return Decision::Replace(victim);
        }
        Decision::Refuse(Refusal::Cold)
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        self.pages.on_admit(access, slot);
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        self.pages.on_remove(page, slot, why);
    }

    fn on_trim(&mut self, object: ObjectId, first: u64) {
        self.pages.on_trim(object, first);
    }

    fn learned(&self) -> Option<Learned> {
        Some(self.pages.learned())
    }

    fn bytes(&self) -> usize {
        self.pages.bytes()
    }

    fn bytes_full(&self) -> usize {
        self.pages.bytes_full()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        self.pages.assert_invariants(slots);
        for (_, group) in self.pages.groups().iter() {
            let highest = group.evidence.highest();
            assert!(group.priority <= highest, "a priority is the peak or faded");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash;
    use crate::hint::{HintSet, hint_type};
    use crate::policy::{Clic, Op};
    use proptest::prelude::*;

    struct Tier<P> {
        policy: P,
        slots: SlotTable,
        number: u64,
        hits: u64,
    }

    impl<P: TierPolicy> Tier<P> {
        fn new(policy: P, capacity: u32) -> Self {
            Self {
                policy,
                slots: SlotTable::new(capacity),
                number: 0,
                hits: 0,
            }
        }

        /// A request; `full` sees the policy when it is about to decide on a full tier.
        fn request(&mut self, index: u64, op: Op, object: u32, full: impl FnOnce(&Self)) {
            self.number += 1;
            let access = Access {
                page: PageId::new(ObjectId(1), index),
                op,
                hints: HintSet::UNKNOWN.with(hint_type::OBJECT, object),
                number: self.number,
            };
            let resident = self.slots.find(access.page);
            self.policy.on_request(&access, resident);
            if resident.is_some() {
                self.hits += u64::from(op == Op::Read);
                return;
            }
            if !self.slots.has_room() {
                full(self);
            }
            let why = match op {
                Op::Read => Opportunity::Read,
                Op::Write => Opportunity::Write,
            };
            match self.policy.decide(&access, why, &self.slots) {
                Decision::Refuse(_) => return,
                Decision::Replace(slot) => {
                    let page = self.slots.remove(slot);
                    self.policy.on_remove(page, slot, Removal::Evicted);
                }
                Decision::Admit => {}
            }
            let slot = self.slots.admit(access.page).expect("room was made");
            self.policy.on_admit(&access, slot);
        }
    }

    /// Beside a scan of all pages. Gives whether every curve with pages is a hill.
    fn check_victim(tier: &Tier<DpClic>) -> bool {
        let (policy, now) = (&tier.policy, tier.number);
        let (found, victim) = policy.victim(now, &tier.slots).expect("nothing is pinned");
        assert_eq!(found, policy.priority_of(victim, now));
        let residents = || tier.slots.residents().map(|(slot, _)| slot);
        let least = residents()
            .map(|slot| policy.priority_of(slot, now))
            .fold(f64::INFINITY, f64::min);
        let groups = policy.pages.groups();
        let mut hills = residents().filter_map(|slot| groups.get(policy.pages.group_in(slot)));
        let hills = hills.all(|group| group.evidence.is_hill());
        if hills {
            assert_eq!(found, least, "exact where curves are hills");
        }
        for group in (0..groups.numbers()).map(GroupId) {
            let candidate = policy.candidate(group, now, &tier.slots);
            let priority = candidate.map_or(found, |slot| policy.priority_of(slot, now));
            assert!(found <= priority, "the least of what is looked at");
        }
        hills
    }

    fn options(capacity: u32, window: u64, buckets: u32, bucket_width: u64) -> PolicyOptions {
        PolicyOptions {
            clic: ClicConfig {
                window,
                buckets,
                bucket_width,
                evidence: 0,
                ..ClicConfig::default()
            },
            ..PolicyOptions::new(capacity)
        }
    }

    proptest! {
        #[test]
        fn the_victim_is_the_least(
            capacity in 1u32..20,
            keys in prop::sample::select(vec![HintKeys::All, HintKeys::TopK, HintKeys::Hybrid]),
            evidence in prop::sample::select(vec![0, 5, 10_000]),
            requests in prop::collection::vec((0u64..40, any::<bool>(), 0u32..4), 1..400),
        ) {
            let mut options = options(capacity, 50, 6, 8);
            options.clic.evidence = evidence;
            let mut tier = Tier::new(DpClic::new(keys, &options), capacity);
            for (page, write, object) in requests {
                let op = if write { Op::Write } else { Op::Read };
                tier.request(page, op, object, |tier| { check_victim(tier); });
                tier.policy.assert_invariants(&tier.slots);
            }
        }
    }

    /// Pages of hint set 1 are read once more, about 60 requests later, or never; those of 2 are
    /// read in a loop; what is read again has hint set 3 and is dead.
    fn early_or_never(length: u64) -> impl Iterator<Item = (u64, u32)> {
        (0..length).flat_map(|i| {
            let fresh = 1_000_000 + i;
            let again = (i >= 30 && hash::mix(7, i - 30) % 10 < 6).then(|| (fresh - 30, 3));
            [Some((fresh, 1)), Some((i % 300, 2)), again]
                .into_iter()
                .flatten()
        })
    }

    #[test]
    fn what_is_past_its_hill_makes_room() {
        let options = options(200, 4000, 64, 20);
        let mut clic = Tier::new(Clic::new(HintKeys::All, &options), 200);
        let mut dp = Tier::new(DpClic::new(HintKeys::All, &options), 200);
        let mut hills = [0, 0];
        for (page, object) in early_or_never(30_000) {
            clic.request(page, Op::Read, object, |_| {});
            dp.request(page, Op::Read, object, |tier| {
                hills[usize::from(check_victim(tier))] += 1;
            });
        }
        assert!(hills[1] > 1000, "the exact case is met: {hills:?}");
        assert!(
            dp.hits > clic.hits,
            "DP-CLIC {}, CLIC {}",
            dp.hits,
            clic.hits
        );
        let learned = dp.policy.learned().expect("it learns");
        let sets = learned.hint_sets.iter();
        let order: Vec<u32> = sets.map(|set| set.hints.get(hint_type::OBJECT)).collect();
        assert_eq!(
            order,
            [2, 1, 3],
            "certain, likely and never, just before it is due"
        );
        assert_eq!(learned.hint_sets[2].priority, 0.0);
    }
}

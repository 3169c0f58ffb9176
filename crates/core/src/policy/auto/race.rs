//! The race: which finalist leads, from what each earned at every request of the sample.
//!
//! *Lead* of a miniature over the tier: the greatest sum of differences of their scores over the
//! requests up to now from any later than the last decision, or 0 (the one-sided cumulative sum:
//! Page, Biometrika 1954). When one is *decisive*, the finalist with the greatest lead (where two
//! have it, the leader) leads from now on, and a new *stretch* begins: all leads are 0. It may be
//! the leader again, whose contents have not come to be its own yet.
//!
//! *Decisive* in the k-th stretch is a lead above k m, from the eighth stretch on above 8 m, m
//! being the miniature's slots, so that a workload that turns often is not run after. Less is
//! enough for a finalist whose pages the tier holds for the most part: a change costs as many
//! misses at most as there are pages that the miniature holds and the tier lacks, the tier's
//! *lack*. So m / 8 is enough ([`LACK_MIN`]), and seven eighths of the lack besides; of what the
//! finalist is ahead of the leader's own miniature, for what that is ahead of the tier says how
//! well miniatures tell what happens in life (`evaluation/results/policies.md` has what other rules
//! came to).
//!
//! *Lack* is looked up in a page of a miniature at a time, drawn by lot; the share is a mean over
//! the last [`LACK_LOTS`] or so.
//!
//! # Invariants (the first checked by [`Race::assert_invariants`], the second by a test)
//! 1. No lead is below 0, or decisive.
//! 2. In a stretch no miniature earned more than the tier by more than its lead.

use super::{COUNT, VALUES};
use std::cmp::Ordering;

/// A lead near a decisive one, as a share of it.
const NEAR: f64 = 0.5;
/// Stretches in which what decides grows: a mount of weeks is to follow its workload still.
const GROWTH: u64 = 8;
/// Slots of a lead that decides where the tier lacks nothing, as a share of a miniature's.
pub(super) const LACK_MIN: f64 = 0.125;
/// Pages that the mean lack is over, about.
const LACK_LOTS: f64 = 256.0;

/// See the module text.
#[derive(Debug)]
pub(super) struct Race {
    leader: usize,
    leads: [f64; COUNT],
    /// Share of a miniature's pages that the tier does not hold.
    lacks: [f64; COUNT],
    /// The others have no lead.
    raced: [bool; COUNT],
    slots: f64,
    changes: u64,
    stretches: u64,
}

impl Race {
    /// The first finalist leads; miniatures have `slots` slots, and there are those of `raced`.
    pub(super) fn new(slots: u32, raced: [bool; COUNT]) -> Self {
        Self {
            leader: 0,
            leads: [0.0; COUNT],
            lacks: [1.0; COUNT],
            raced,
            slots: f64::from(slots),
            changes: 0,
            stretches: 1,
        }
    }

    /// The finalist `leader` leads at first, not the first one. Nobody has earned anything yet.
    pub(super) fn begin(&mut self, leader: usize) {
        assert!(
            self.stretches == 1 && self.leads == [0.0; COUNT],
            "at first"
        );
        self.leader = leader;
    }

    /// The finalist that leads.
    pub(super) fn leader(&self) -> usize {
        self.leader
    }

    /// Changes of leader so far.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Stretches so far, the one at hand included.
    pub(super) fn stretches(&self) -> u64 {
        self.stretches
    }

    /// The lead of the miniature `at`, and what would be decisive.
    pub(super) fn ahead(&self, at: usize) -> (f64, f64) {
        (self.leads[at], self.decisive(at))
    }

    /// A lead above this is decisive for any finalist: in the k-th stretch k times the slots, 8 at
    /// most.
    fn most(&self) -> f64 {
        self.slots * self.stretches.min(GROWTH) as f64
    }

    /// A lead of the miniature `at` above this is decisive; the leader's own never is above `less`.
    fn decisive(&self, at: usize) -> f64 {
        let enough = LACK_MIN + (1.0 - LACK_MIN) * self.lack(at);
        let less = self.leads[self.leader] + enough * self.slots;
        less.min(self.most())
    }

    /// The sum of that over all stretches so far.
    pub(super) fn behind(&self) -> f64 {
        let (growing, steady) = (self.stretches.min(GROWTH), self.stretches.max(GROWTH));
        let growing = growing as f64 * (growing as f64 + 1.0) / 2.0;
        (growing + ((steady - GROWTH) * GROWTH) as f64) * self.slots
    }

    /// A request earned the miniatures these `scores`, and the tier `own`.
    pub(super) fn observe(&mut self, scores: &[f64; COUNT], own: f64) {
        for at in (0..COUNT).filter(|at| self.raced[*at]) {
            self.leads[at] = (self.leads[at] + scores[at] - own).max(0.0);
        }
        self.decide();
    }

    /// What a request caused cost the tier `price` later.
    pub(super) fn charge(&mut self, price: f64) {
        self.observe(&[0.0; COUNT], -price);
    }

    /// Share of the pages of the miniature `at` that the tier does not hold.
    pub(super) fn lack(&self, at: usize) -> f64 {
        self.lacks[at]
    }

    /// A page that the miniature `at` holds, drawn by lot, is one that the tier holds, or not.
    pub(super) fn look(&mut self, at: usize, held: bool) {
        let lack = f64::from(u8::from(!held));
        self.lacks[at] += (lack - self.lacks[at]) / LACK_LOTS;
        self.decide();
    }

    /// Who is to be in life besides `value`, where `now` is: the leader; else `now` while it is
    /// near a decisive lead; else who is; else `now` while it has any. So two that are near one
    /// after the other do not take turns: each turn would make a policy.
    pub(super) fn wanted(&self, now: Option<usize>) -> Option<usize> {
        if self.leader >= VALUES {
            return Some(self.leader);
        }
        let is_near = |at: &usize| self.leads[*at] > NEAR * self.decisive(*at);
        let coming = (VALUES..COUNT)
            .filter(is_near)
            .max_by(|a, b| self.by_lead(*a, *b));
        now.filter(is_near)
            .or(coming)
            .or(now.filter(|at| self.leads[*at] > 0.0))
    }

    /// By their leads; of two that have the same, the leader is ahead.
    fn by_lead(&self, a: usize, b: usize) -> Ordering {
        let is_leader = |at| at == self.leader;
        let order = self.leads[a].total_cmp(&self.leads[b]);
        order.then(is_leader(a).cmp(&is_leader(b)))
    }

    fn decide(&mut self) {
        let ahead = (0..COUNT).filter(|at| self.leads[*at] > self.decisive(*at));
        let greatest = ahead.max_by(|a, b| self.by_lead(*a, *b));
        if let Some(best) = greatest {
            self.changes += u64::from(best != self.leader);
            self.leader = best;
            self.leads = [0.0; COUNT];
            self.stretches += 1;
        }
    }

    /// Panics unless the first invariant holds.
    pub(super) fn assert_invariants(&self) {
        for (at, lead) in self.leads.iter().enumerate() {
            let range = 0.0..=self.decisive(at);
            assert!(range.contains(lead), "invariant 1");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;

    /// Scores of a request in which finalist `good` has hits more often than the others.
    fn scores(number: u64, good: usize) -> [f64; COUNT] {
        std::array::from_fn(|at| {
            let percent = if at == good { 60 } else { 40 };
            f64::from(u8::from(mix(number, at as u64) % 100 < percent))
        })
    }

    /// Invariant 2, and the bound; the tier earns what the leader does, less now and then.
    #[test]
    fn in_a_stretch_nobody_is_ahead_by_more_than_the_slots() {
        for turn in [1000, 5000, 20_000] {
            let mut race = Race::new(200, [true; COUNT]);
            let (mut since, mut earned, mut own) = ([0.0; COUNT], [0.0; COUNT], 0.0);
            for number in 0..60_000 {
                let scores = scores(number, (number / turn) as usize % COUNT);
                let stretches = race.stretches();
                let tier = match number % 5 {
                    0 => 0.0,
                    _ => scores[race.leader()],
                };
                race.observe(&scores, tier);
                race.assert_invariants();
                own += tier;
                let ended = race.stretches() > stretches;
                for at in 0..COUNT {
                    since[at] += scores[at] - tier;
                    earned[at] += scores[at];
                    let most = 200.0 * stretches.min(GROWTH) as f64 + 1.0;
                    let lead = if ended { most } else { race.leads[at] };
                    assert!(since[at] <= lead + 1e-6, "invariant 2");
                }
                if ended {
                    since = [0.0; COUNT];
                }
            }
            let best = earned.iter().fold(0.0, |a: f64, b| a.max(*b));
            let bound = race.behind() + race.stretches() as f64;
            assert!(race.changes() > 0, "it turns");
            assert!(own >= best - bound, "{turn}: {own} {best} {bound}");
        }
    }

    /// Of a finalist whose pages the tier holds an eighth of a lead is enough, of what it is ahead
    /// of the leader's own miniature; of one whose pages it lacks a whole one is needed.
    #[test]
    fn less_is_enough_for_one_whose_pages_are_held() {
        let changed_after = |lack: &dyn Fn(u64) -> bool, leader: f64| {
            let mut race = Race::new(200, [true; COUNT]);
            (0..4000).for_each(|number| race.look(3, !lack(number)));
            let mut scores = [0.0; COUNT];
            (scores[0], scores[3]) = (leader, 0.5);
            let requests = 1..2000;
            let mut changes = requests.skip_while(|_| {
                race.observe(&scores, 0.0);
                race.assert_invariants();
                race.stretches() == 1
            });
            (changes.next(), race.leader())
        };
        assert_eq!(changed_after(&|_| true, 0.0), (Some(401), 3));
        assert_eq!(changed_after(&|_| false, 0.0), (Some(51), 3));
        let (half, _) = changed_after(&|number| number % 2 == 0, 0.0);
        assert!((215..235).contains(&half.unwrap_or(0)), "{half:?}");
        // The leader's own miniature is half as far ahead: twice as many requests.
        assert_eq!(changed_after(&|_| false, 0.25), (Some(101), 3));
        // It is as far ahead: nothing but a whole lead decides.
        assert_eq!(changed_after(&|_| false, 0.5).0, Some(401));
    }

    /// Two that do the same: the one that leads leads on.
    #[test]
    fn of_two_alike_the_leader_stays() {
        for leader in 0..2 {
            let mut race = Race::new(200, [true; COUNT]);
            race.begin(leader);
            let mut scores = [0.0; COUNT];
            (scores[0], scores[1]) = (0.5, 0.5);
            (0..2000).for_each(|_| race.observe(&scores, 0.0));
            assert_eq!((race.leader(), race.changes()), (leader, 0));
            assert!(race.stretches() > 1);
        }
    }

    /// A second one is called at half a decisive lead, not before, and stays while it is near,
    /// though another has overtaken it; it goes when its lead is gone.
    #[test]
    fn who_is_called_stays_while_it_is_near() {
        let mut race = Race::new(400, [true; COUNT]);
        let earn = |race: &mut Race, at: usize, score: f64| {
            let mut scores = [0.0; COUNT];
            scores[at] = score;
            race.observe(&scores, 0.0);
        };
        earn(&mut race, 4, 200.0);
        assert_eq!(race.wanted(None), None, "half of it");
        earn(&mut race, 4, 1.0);
        assert_eq!(race.wanted(None), Some(4));
        earn(&mut race, 5, 220.0);
        assert_eq!(race.wanted(Some(4)), Some(4));
        assert_eq!(race.wanted(None), Some(5));
        let mut losses = [0.0; COUNT];
        losses[4] = -100.0;
        race.observe(&losses, 0.0);
        assert_eq!(race.wanted(Some(4)), Some(5), "it is near no more");
        losses = [0.0; COUNT];
        (losses[4], losses[5]) = (-50.0, -220.0);
        race.observe(&losses, 0.0);
        assert_eq!(race.wanted(Some(4)), Some(4), "nobody else is near");
        earn(&mut race, 4, -100.0);
        assert_eq!(race.wanted(Some(4)), None);
        // Near is by what is decisive for each: the tier has the pages of 3, and little is enough.
        (0..4000).for_each(|_| race.look(3, true));
        earn(&mut race, 5, 60.0);
        earn(&mut race, 3, 40.0);
        assert_eq!(race.wanted(None), Some(3));
    }

    /// A leader who does worse in life than in miniature makes way for nobody worse.
    #[test]
    fn a_leader_ahead_in_miniature_leads_on() {
        let mut race = Race::new(200, [true; COUNT]);
        let mut scores = [0.0; COUNT];
        scores[0] = 1.0;
        (0..1000).for_each(|_| race.observe(&scores, 0.0));
        assert_eq!((race.leader(), race.changes()), (0, 0));
        assert!(race.stretches() > 1);
    }
}

//! The race: which finalist leads, from what each earned at every request of the sample.
//!
//! *Lead* of a miniature over the tier: the greatest sum of differences of their scores over the
//! requests up to now from any later than the last decision, or 0 (the one-sided cumulative sum:
//! Page, Biometrika 1954). When one is *decisive*, the finalist with the greatest lead leads from
//! now on, and a new *stretch* begins: all leads are 0. It may be the leader again, whose contents
//! have not come to be its own yet.
//!
//! In the k-th stretch a lead is decisive above k times the miniature's slots, from the eighth on
//! above 8 times, so that a workload that turns often is not run after; half of that is enough
//! where it is above twice the lead's own noise. The noise is that of eight parts of the sample,
//! each with its own extents: if the lead is no accident, the parts agree.
//!
//! # Invariants (the first checked by [`Race::assert_invariants`], the second by a test)
//! 1. No lead is below 0, or decisive.
//! 2. In a stretch no miniature earned more than the tier by more than its lead.

use super::COUNT;

/// Parts of the sample.
pub(super) const PARTS: usize = 8;
/// The least decisive lead, as a share of what always is.
const LEAD: f64 = 0.5;
/// A lead near a decisive one, as a share of the least.
const NEAR: f64 = 0.5;
/// Stretches in which what decides grows: a mount of weeks is to follow its workload still.
const GROWTH: u64 = 8;
/// The least decisive lead, as a multiple of its standard deviation.
const NOISE: f64 = 2.0;

/// A lead, part by part.
#[derive(Clone, Copy, Debug, Default)]
struct Lead {
    sum: f64,
    parts: [f64; PARTS],
}

impl Lead {
    fn add(&mut self, part: usize, difference: f64) {
        self.sum += difference;
        self.parts[part] += difference;
        if self.sum <= 0.0 {
            *self = Self::default();
        }
    }

    /// Standard deviation of the sum.
    fn noise(&self) -> f64 {
        let mean = self.sum / PARTS as f64;
        let squares = self.parts.iter().map(|part| (part - mean) * (part - mean));
        (squares.sum::<f64>() * PARTS as f64 / (PARTS as f64 - 1.0)).sqrt()
    }

    /// What is decisive with this noise, where `most` always is.
    fn needed(&self, most: f64) -> f64 {
        (NOISE * self.noise()).clamp(LEAD * most, most)
    }
}

/// See the module text.
#[derive(Debug)]
pub(super) struct Race {
    leader: usize,
    leads: [Lead; COUNT],
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
            leads: [Lead::default(); COUNT],
            raced,
            slots: f64::from(slots),
            changes: 0,
            stretches: 1,
        }
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
        let lead = &self.leads[at];
        (lead.sum, lead.needed(self.most()))
    }

    /// A lead that is decisive in any case: in the k-th stretch k times the slots, 8 at most.
    fn most(&self) -> f64 {
        self.slots * self.stretches.min(GROWTH) as f64
    }

    /// The sum of that over all stretches so far.
    pub(super) fn behind(&self) -> f64 {
        let (growing, steady) = (self.stretches.min(GROWTH), self.stretches.max(GROWTH));
        let growing = growing as f64 * (growing as f64 + 1.0) / 2.0;
        (growing + ((steady - GROWTH) * GROWTH) as f64) * self.slots
    }

    /// A request in `part` earned the miniatures these `scores`, and the tier `own`.
    pub(super) fn observe(&mut self, part: usize, scores: &[f64; COUNT], own: f64) {
        for at in (0..COUNT).filter(|at| self.raced[*at]) {
            self.leads[at].add(part, scores[at] - own);
        }
        self.decide();
    }

    /// What a request in `part` caused cost the tier `price` later.
    pub(super) fn charge(&mut self, part: usize, price: f64) {
        for at in (0..COUNT).filter(|at| self.raced[*at]) {
            self.leads[at].add(part, price);
        }
        self.decide();
    }

    /// Who is to be in life besides the first, where `now` is: the leader; else who is near a
    /// decisive lead; else `now` while it has any.
    pub(super) fn wanted(&self, now: Option<usize>) -> Option<usize> {
        if self.leader > 0 {
            return Some(self.leader);
        }
        let near = NEAR * LEAD * self.most();
        let others = self.leads.iter().enumerate().skip(1);
        let best = others.max_by(|a, b| a.1.sum.total_cmp(&b.1.sum));
        let coming = best.filter(|(_, lead)| lead.sum > near).map(|(at, _)| at);
        coming.or(now.filter(|at| self.leads[*at].sum > 0.0))
    }

    fn decide(&mut self) {
        let most = self.most();
        let decisive = |lead: &Lead| lead.sum > LEAD * most && lead.sum > lead.needed(most);
        if !self.leads.iter().any(decisive) {
            return;
        }
        let all = self.leads.iter().enumerate();
        if let Some((best, _)) = all.max_by(|a, b| a.1.sum.total_cmp(&b.1.sum)) {
            self.changes += u64::from(best != self.leader);
            self.leader = best;
            self.leads = [Lead::default(); COUNT];
            self.stretches += 1;
        }
    }

    /// Panics unless the first invariant holds.
    pub(super) fn assert_invariants(&self) {
        for lead in &self.leads {
            let range = 0.0..=lead.needed(self.most());
            assert!(range.contains(&lead.sum), "invariant 1");
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
                race.observe((number % 8) as usize, &scores, tier);
                race.assert_invariants();
                own += tier;
                let ended = race.stretches() > stretches;
                for at in 0..COUNT {
                    since[at] += scores[at] - tier;
                    earned[at] += scores[at];
                    let most = 200.0 * stretches.min(GROWTH) as f64 + 1.0;
                    let lead = if ended { most } else { race.leads[at].sum };
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

    /// The same lead, from one extent or from all: only the second is believed.
    #[test]
    fn a_lead_of_one_part_alone_is_noise() {
        let changes = |part: fn(u64) -> usize| {
            let mut race = Race::new(200, [true; COUNT]);
            let mut scores = [0.0; COUNT];
            scores[2] = 1.0;
            (0..150).for_each(|number| race.observe(part(number), &scores, 0.0));
            race.changes()
        };
        assert_eq!(changes(|number| number as usize % PARTS), 1);
        assert_eq!(changes(|_| 3), 0);
    }

    /// A leader who does worse in life than in miniature makes way for nobody worse.
    #[test]
    fn a_leader_ahead_in_miniature_leads_on() {
        let mut race = Race::new(200, [true; COUNT]);
        let mut scores = [0.0; COUNT];
        scores[0] = 1.0;
        (0..1000).for_each(|number| race.observe(number % PARTS, &scores, 0.0));
        assert_eq!((race.leader(), race.changes()), (0, 0));
        assert!(race.stretches() > 1);
    }
}

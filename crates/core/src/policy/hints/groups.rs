//! Priorities in force: what the last window taught, by group of hint sets.
//!
//! A *group* is all hint sets that are not told apart: one hint set, or, where only some hint
//! types are used (thesis §5.1), all that agree in those. The pages of groups whose priority is
//! 0, and of hint sets that are in no group, are all in [`GroupId::REST`] (§3.3.1).
//!
//! Priorities change only when a window closes (§3.2.3). A group that is still there afterwards
//! keeps its number.
//!
//! # Invariants (checked by [`Groups::assert_invariants`])
//! 1. Every group is found under its hints; `REST` is none.
//! 2. At most `max` groups; every priority is finite and at least 0.

use super::counting::{Counts, Evidence};
use crate::hash;
use crate::hint::{HINT_TYPES_MAX, HintSet};
use hashbrown::HashTable;

/// A group's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl GroupId {
    /// Hint sets of which nothing good is known.
    pub const REST: Self = Self(0);

    /// The number as an index.
    #[must_use]
    pub const fn at(self) -> usize {
        self.0 as usize
    }
}

/// Which hint types are looked at; the client always is (§3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HintTypes(u16);

impl HintTypes {
    /// Every type.
    pub const ALL: Self = Self((1 << HINT_TYPES_MAX) - 1);

    /// The types at `positions`.
    #[must_use]
    pub fn at(positions: impl IntoIterator<Item = usize>) -> Self {
        let bits = positions.into_iter().map(|position| 1u16 << position);
        Self(bits.fold(0, |all, bit| all | bit))
    }

    /// Whether the type at `position` is looked at.
    #[must_use]
    pub fn contains(self, position: usize) -> bool {
        self.0 & (1 << position) != 0
    }

    /// `hints` with every other type unknown.
    #[must_use]
    pub fn project(self, hints: &HintSet) -> HintSet {
        if self == Self::ALL {
            return *hints;
        }
        let others = (0..HINT_TYPES_MAX).filter(|position| !self.contains(*position));
        others.fold(*hints, |hints, position| hints.with(position, 0))
    }
}

/// What is known of one group.
#[derive(Clone, Debug)]
pub struct Group<E> {
    /// Its hint set; of types that are not used, 0.
    pub hints: HintSet,
    /// Counts, those of earlier windows with less weight.
    pub counts: Counts,
    /// What else was recorded, likewise.
    pub evidence: E,
    /// Pr, as of the last window in which it was counted.
    pub priority: f64,
    /// Windows in a row in which it was not counted.
    idle: u32,
}

/// Windows without a request after which a smoothed priority is forgotten.
const IDLE_MAX: u32 = 8;
/// With less left of its requests and re-reads than this a group is forgotten. What was counted in
/// the last window is 1 at least.
const LEFT_MIN: f64 = 0.1;

/// All groups. See the module text.
#[derive(Clone, Debug)]
pub struct Groups<E> {
    groups: Vec<Option<Group<E>>>,
    map: HashTable<u32>,
    free: Vec<u32>,
    types: HintTypes,
    max: u32,
    /// See [`Groups::tells_apart`].
    tells_apart: bool,
}

impl<E: Evidence> Groups<E> {
    /// No groups; at most `max` of them at any time.
    #[must_use]
    pub fn new(max: u32) -> Self {
        assert!((1..u32::MAX).contains(&max), "there can be groups");
        Self {
            groups: vec![None],
            map: HashTable::new(),
            free: Vec::new(),
            types: HintTypes::ALL,
            max,
            tells_apart: false,
        }
    }

    /// Whether two groups have different priorities above 0: hints tell pages apart.
    #[must_use]
    pub fn tells_apart(&self) -> bool {
        self.tells_apart
    }

    /// The hint types by which hint sets are told apart.
    #[must_use]
    pub fn types(&self) -> HintTypes {
        self.types
    }

    /// The group of the pages requested with `hints`: `REST` when its priority is 0. O(1)
    /// expected.
    #[must_use]
    pub fn of(&self, hints: &HintSet) -> GroupId {
        let id = self.find(&self.types.project(hints));
        match self.priority(id) > 0.0 {
            true => id,
            false => GroupId::REST,
        }
    }

    /// What is known of `hints`, be it good or bad. O(1) expected.
    #[must_use]
    pub fn known(&self, hints: &HintSet) -> Option<&Group<E>> {
        self.get(self.find(&self.types.project(hints)))
    }

    /// Group `id`; none for `REST`.
    #[must_use]
    pub fn get(&self, id: GroupId) -> Option<&Group<E>> {
        self.groups.get(id.at())?.as_ref()
    }

    /// Priority of group `id`. O(1).
    #[must_use]
    pub fn priority(&self, id: GroupId) -> f64 {
        self.get(id).map_or(0.0, |group| group.priority)
    }

    /// One more than the largest number in use.
    #[must_use]
    pub fn numbers(&self) -> u32 {
        self.groups.len() as u32
    }

    /// All groups with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (GroupId, &Group<E>)> {
        let numbered = (0u32..).zip(&self.groups);
        numbered.filter_map(|(id, group)| Some((GroupId(id), group.as_ref()?)))
    }

    /// A window closed: `report` has what was counted, by hint set under `types`.
    ///
    /// Counts of earlier windows are added with weight 1 - `r`, those of the window before that
    /// with (1 - `r`)^2 and so on, and priorities follow from the sums. (Equation 3.3 weighs
    /// priorities in this way. The windows of a small tier are short, and then a priority learned
    /// from three requests would weigh as much as one learned from thousands. With `r` = 1, as in
    /// all experiments of the thesis, it is the same.) A group that was not counted has shown no
    /// benefit: its priority is multiplied by 1 - `r`, as in equation 3.3. When the hint types
    /// change, the past cannot be compared and is forgotten. O(groups).
    pub fn renew(
        &mut self,
        types: HintTypes,
        r: f64,
        report: impl IntoIterator<Item = (HintSet, Counts, E)>,
    ) {
        debug_assert!(r > 0.0 && r <= 1.0, "a weight");
        if types != self.types {
            self.map.clear();
            self.groups.truncate(1);
            self.free.clear();
            self.types = types;
        }
        for group in self.groups.iter_mut().flatten() {
            group.counts = group.counts.weighted(1.0 - r);
            group.idle += 1;
            group.priority *= 1.0 - r;
        }
        for (hints, counts, mut evidence) in report {
            let id = self.find(&hints);
            let mut sum = counts;
            if let Some(older) = self.get(id) {
                sum = counts.plus(&older.counts);
                evidence.join(&older.evidence, (1.0 - r).powi(older.idle as i32));
            }
            let priority = evidence.conclude(&sum);
            debug_assert!(priority.is_finite() && priority >= 0.0);
            self.put(
                id,
                Group {
                    hints,
                    counts: sum,
                    evidence,
                    priority,
                    idle: 0,
                },
            );
        }
        self.drop_where(|_, group| {
            let left = group.counts.requests.max(group.counts.rereads);
            left < LEFT_MIN || group.idle > IDLE_MAX
        });
        self.keep_best();
        self.tells_apart = self.priorities_differ();
    }

    /// O(groups).
    fn priorities_differ(&self) -> bool {
        let all = self.iter().map(|(_, group)| group.priority);
        let mut above = all.filter(|priority| *priority > 0.0);
        let one = above.next();
        one.is_some_and(|one| above.any(|other| other != one))
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let groups = self.groups.iter().flatten();
        let evidence: usize = groups.map(|group| group.evidence.bytes()).sum();
        let groups = self.groups.capacity() * size_of::<Option<Group<E>>>();
        groups + evidence + self.map.allocation_size()
    }

    /// Panics unless the numbered invariants of the module text hold. O(groups).
    pub fn assert_invariants(&self) {
        assert!(self.groups[0].is_none(), "invariant 1");
        for (id, group) in self.iter() {
            assert_eq!(self.find(&group.hints), id, "invariant 1");
            assert!(
                group.priority.is_finite() && group.priority >= 0.0,
                "invariant 2"
            );
        }
        assert_eq!(self.iter().count(), self.map.len(), "invariant 1");
        assert!(self.map.len() <= self.max as usize, "invariant 2");
    }

    fn find(&self, projected: &HintSet) -> GroupId {
        let same = |&id: &u32| {
            let group = self.groups[id as usize].as_ref();
            group.is_some_and(|group| group.hints == *projected)
        };
        let found = self.map.find(hash::of_hints(projected), same);
        found.map_or(GroupId::REST, |&id| GroupId(id))
    }

    /// Makes `group` the one with number `id`, or a new one when that is `REST`.
    fn put(&mut self, id: GroupId, group: Group<E>) {
        if id != GroupId::REST {
            debug_assert!(self.get(id).is_some_and(|old| old.hints == group.hints));
            self.groups[id.at()] = Some(group);
            return;
        }
        let hash = hash::of_hints(&group.hints);
        let id = self.free.pop().unwrap_or(self.groups.len() as u32);
        match self.groups.get_mut(id as usize) {
            Some(place) => *place = Some(group),
            None => self.groups.push(Some(group)),
        }
        let groups = &self.groups;
        let rehash = |&id: &u32| {
            let group = groups[id as usize].as_ref();
            group.map_or(0, |group| hash::of_hints(&group.hints))
        };
        self.map.insert_unique(hash, id, rehash);
    }

    fn drop_where(&mut self, drop: impl Fn(u32, &Group<E>) -> bool) {
        for (id, place) in (0u32..).zip(&mut self.groups) {
            if place.take_if(|group| drop(id, group)).is_some() {
                self.free.push(id);
            }
        }
        let groups = &self.groups;
        self.map.retain(|id| groups[*id as usize].is_some());
    }

    /// Keeps the `max` groups of highest priority (the lower number where equal).
    fn keep_best(&mut self) {
        let mut order: Vec<(f64, u32)> = self.iter().map(|(id, g)| (g.priority, id.0)).collect();
        if order.len() <= self.max as usize {
            return;
        }
        let better = |a: &(f64, u32), b: &(f64, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        let (_, worst_kept, _) = order.select_nth_unstable_by(self.max as usize - 1, better);
        let bound = *worst_kept;
        self.drop_where(|id, group| better(&(group.priority, id), &bound).is_gt());
        debug_assert!(self.map.len() == self.max as usize, "invariant 2");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Op;

    /// Nothing besides N, Nr and D.
    #[derive(Clone)]
    struct Nothing;

    impl Evidence for Nothing {
        fn record(&mut self, _: u64, _: Op) {}

        fn join(&mut self, _: &Self, _: f64) {}

        fn conclude(&mut self, counts: &Counts) -> f64 {
            counts.priority()
        }

        fn clear(&mut self) {}

        fn bytes(&self) -> usize {
            0
        }
    }

    fn renew(groups: &mut Groups<Nothing>, r: f64, report: Option<(HintSet, Counts)>) {
        let report = report.map(|(hints, counts)| (hints, counts, Nothing));
        groups.renew(HintTypes::ALL, r, report);
        groups.assert_invariants();
    }

    /// A hint set that is the same in every window is worth the same after any number of them,
    /// few as its re-reads are.
    #[test]
    fn what_fades_keeps_its_means() {
        let hints = HintSet::UNKNOWN.with(0, 1);
        let counts = Counts {
            requests: 3.0,
            rereads: 1.0,
            distance: 1000.0,
        };
        for r in [1.0, 0.3, 0.05] {
            let mut groups = Groups::new(4);
            (0..30).for_each(|_| renew(&mut groups, r, Some((hints, counts))));
            let found = groups.known(&hints).expect("it is counted").counts;
            let (mean, rate) = (found.mean_distance(), found.hit_rate());
            assert!((mean - 1000.0).abs() < 10.0, "{r}: {mean}");
            assert!((rate - 1.0 / 3.0).abs() < 0.01, "{r}: {rate}");
        }
    }

    /// Counts never fade to nothing, so a group goes when little is left of them.
    #[test]
    fn a_group_that_faded_is_forgotten() {
        let hints = HintSet::UNKNOWN.with(0, 1);
        let counts = Counts {
            requests: 2.0,
            ..Counts::default()
        };
        for (r, windows) in [(1.0, 1), (0.5, 5), (0.3, 9)] {
            let mut groups = Groups::new(4);
            renew(&mut groups, r, Some((hints, counts)));
            for window in 1..=windows {
                assert!(groups.known(&hints).is_some(), "{r}: {window}");
                renew(&mut groups, r, None);
            }
            assert!(groups.known(&hints).is_none(), "{r}");
        }
    }
}

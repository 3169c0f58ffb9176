//! Learning what hint sets are worth, window by window (thesis §3.2.2, §3.2.3).

use super::HintKeys;
use super::counting::{Counted, Counting, Counts, Evidence};
use super::groups::{GroupId, Groups, HintTypes};
use super::impurity;
use super::sets::{HintSets, SetId};
use crate::hash;
use crate::hint::HintSet;
use crate::policy::{Learned, LearnedHintSet, LearnedHintType, Op, PolicyOptions};

/// What the window at hand is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Counting hint sets as they are.
    Plain,
    /// Sampling hint sets to choose hint types (§5.1, step 1).
    Sample,
    /// Counting hint sets of which only some types are looked at (§5.1, step 2).
    Chosen(HintTypes),
}

/// Numbers of hint sets, their counters in this window, the priorities of the last one.
#[derive(Clone, Debug)]
pub struct Learning<E> {
    sets: HintSets,
    /// Hint sets without the types that are not looked at, while there are such.
    projected: HintSets,
    counting: Counting<E>,
    groups: Groups<E>,
    step: Step,
    /// Requests in a window.
    window: u64,
    /// Requests in this window so far.
    requests: u64,
    /// Windows closed.
    windows: u64,
    r: f64,
    k: u32,
    types_kept: u32,
    seed: u64,
    empty: E,
    hint_types: Vec<LearnedHintType>,
}

impl<E: Evidence> Learning<E> {
    /// Nothing learned yet.
    #[must_use]
    pub fn new(keys: HintKeys, options: &PolicyOptions, empty: E) -> Self {
        let config = &options.clic;
        assert!(config.r > 0.0 && config.r <= 1.0, "0 < r <= 1 (§3.2.3)");
        assert!(config.k > 0 && config.types > 0, "something is counted");
        let (counting, step) = match keys {
            HintKeys::All => (Counting::every(empty.clone()), Step::Plain),
            HintKeys::TopK => (Counting::frequent(config.k, empty.clone()), Step::Plain),
            HintKeys::Hybrid => {
                let drawn = Counting::drawn(config.k, options.seed, empty.clone());
                (drawn, Step::Sample)
            }
        };
        let groups_max = match keys {
            HintKeys::All => config.sets_max,
            HintKeys::TopK | HintKeys::Hybrid => config.k,
        };
        Self {
            sets: HintSets::new(config.sets_max),
            projected: HintSets::new(config.sets_max),
            counting,
            groups: Groups::new(groups_max),
            step,
            window: config.window_of(options.capacity),
            requests: 0,
            windows: 0,
            r: config.r,
            k: config.k,
            types_kept: config.types,
            seed: options.seed,
            empty,
            hint_types: Vec::new(),
        }
    }

    /// Windows closed so far.
    #[must_use]
    pub fn windows(&self) -> u64 {
        self.windows
    }

    /// Requests in a window.
    #[must_use]
    pub fn window(&self) -> u64 {
        self.window
    }

    /// The groups in force.
    #[must_use]
    pub fn groups(&self) -> &Groups<E> {
        &self.groups
    }

    /// Number of hint sets told apart.
    #[must_use]
    pub fn sets(&self) -> &HintSets {
        &self.sets
    }

    /// One more, or one less, page remembers `set`.
    pub fn hold(&mut self, set: SetId) {
        self.sets.hold(set);
    }

    /// See [`Self::hold`].
    pub fn release(&mut self, set: SetId) {
        self.sets.release(set);
    }

    /// The group of the pages last requested with `set`.
    #[must_use]
    pub fn group(&self, set: SetId) -> GroupId {
        self.sets.group(set)
    }

    /// A request with `hints`: counts it and gives its number.
    pub fn request(&mut self, hints: &HintSet) -> SetId {
        let (set, new) = self.sets.intern(hints);
        if new {
            self.sets.set_group(set, self.groups.of(hints));
            self.count_as(set);
        }
        self.counting.request(self.sets.subject(set), hints);
        self.requests += 1;
        set
    }

    /// A page last requested with `set` was requested again.
    pub fn reference(&mut self, set: SetId, distance: u64, op: Op) {
        self.counting
            .reference(self.sets.subject(set), distance, op);
    }

    /// Whether this window has had all its requests: then [`Self::close`] is due.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.requests >= self.window
    }

    /// Ends the window: priorities are those it taught. Gives whether a page's group changed.
    /// O(hint sets + groups).
    pub fn close(&mut self) -> bool {
        debug_assert!(self.is_full(), "a window closes when it is full");
        self.requests = 0;
        self.windows += 1;
        let report = self.counting.take();
        let report: Vec<(HintSet, Counts, E)> = self.by_hints(report);
        self.sets.sweep();
        let types = match self.step {
            Step::Plain => HintTypes::ALL,
            Step::Chosen(types) => types,
            Step::Sample => {
                self.choose_types(&report);
                return false;
            }
        };
        self.groups.renew(types, self.r, report);
        if self.step != Step::Plain {
            let seed = hash::mix(self.seed, self.windows);
            self.counting = Counting::drawn(self.k, seed, self.empty.clone());
            self.turn_to(Step::Sample);
        }
        self.regroup()
    }

    /// Begins with the counts of another instance that saw the requests of one page of `slots`, as
    /// if they were those of a window; where hint types are chosen it begins with nothing. Gives
    /// whether a page's group changed. O(hint sets).
    pub fn taught(&mut self, learned: &Learned, slots: f64) -> bool {
        if learned.windows == 0 || self.step != Step::Plain {
            return false;
        }
        let report = learned.hint_sets.iter().map(|set| {
            let counts = Counts {
                requests: set.requests,
                rereads: set.rereads,
                distance: set.rereads * set.distance * slots,
            };
            (set.hints, counts, self.empty.clone())
        });
        self.groups.renew(HintTypes::ALL, self.r, report);
        self.windows += 1;
        self.regroup()
    }

    /// What was learned, most valuable first; `resident` counts the pages of a group on flash.
    #[must_use]
    pub fn learned(&self, resident: impl Fn(GroupId) -> u32) -> Learned {
        let groups = self.groups.iter();
        let sets = groups.map(|(id, group)| LearnedHintSet {
            hints: group.hints,
            requests: group.counts.requests,
            rereads: group.counts.rereads,
            distance: group.counts.mean_distance(),
            priority: group.priority,
            resident: resident(id),
        });
        let mut hint_sets: Vec<LearnedHintSet> = sets.collect();
        hint_sets.sort_by(|a, b| {
            let by_requests = b.requests.total_cmp(&a.requests);
            let order = b.priority.total_cmp(&a.priority).then(by_requests);
            order.then(a.hints.cmp(&b.hints))
        });
        Learned {
            windows: self.windows,
            window: self.window,
            hint_sets,
            hint_types: self.hint_types.clone(),
            worth: Vec::new(),
            race: None,
        }
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let sets = self.sets.bytes() + self.projected.bytes();
        sets + self.counting.bytes() + self.groups.bytes()
    }

    /// Panics unless all parts are consistent. O(hint sets + groups).
    pub fn assert_invariants(&self) {
        self.sets.assert_invariants();
        self.projected.assert_invariants();
        self.counting.assert_invariants();
        self.groups.assert_invariants();
        for id in self.sets.ids() {
            let group = self.groups.of(self.sets.hints(id));
            assert_eq!(self.sets.group(id), group, "sets are in their groups");
        }
    }

    fn by_hints(&self, report: Vec<Counted<E>>) -> Vec<(HintSet, Counts, E)> {
        let names = match self.step {
            Step::Plain | Step::Sample => &self.sets,
            Step::Chosen(_) => &self.projected,
        };
        let named = report.into_iter();
        named
            .map(|c| (*names.hints(c.subject), c.counts, c.evidence))
            .collect()
    }

    /// The end of step 1 (§5.1): the purest types of the sample are looked at in step 2. Nothing
    /// sampled, nothing chosen: all are.
    fn choose_types(&mut self, sample: &[(HintSet, Counts, E)]) {
        let sample: Vec<(HintSet, Counts)> = sample.iter().map(|(h, c, _)| (*h, *c)).collect();
        self.hint_types = impurity::rank(&sample, self.types_kept);
        let used = self.hint_types.iter().filter(|ranked| ranked.used);
        let types = match self.hint_types.len() {
            0 => HintTypes::ALL,
            _ => HintTypes::at(used.map(|ranked| ranked.position)),
        };
        self.counting = Counting::frequent(self.k, self.empty.clone());
        self.turn_to(Step::Chosen(types));
    }

    /// Begins `step`: its requests are counted in its way.
    fn turn_to(&mut self, step: Step) {
        self.step = step;
        self.projected.clear();
        for set in self.sets.ids() {
            self.count_as(set);
        }
    }

    /// Says what requests with `set` are counted as in this step.
    fn count_as(&mut self, set: SetId) {
        let subject = match self.step {
            Step::Plain | Step::Sample => set,
            Step::Chosen(types) => {
                let projected = types.project(self.sets.hints(set));
                self.projected.intern(&projected).0
            }
        };
        self.sets.set_subject(set, subject);
    }

    /// Puts every hint set into its group; gives whether that changes the group of any page.
    fn regroup(&mut self) -> bool {
        let mut changed = false;
        for id in self.sets.ids() {
            let group = self.groups.of(self.sets.hints(id));
            changed |= self.sets.set_group(id, group);
        }
        changed
    }
}

//! What is counted of a hint set in one window: N, Nr and D (thesis §3.2.1, §3.2.2), and which
//! hint sets are counted at all.

use super::sets::SetId;
use super::space_saving::SpaceSaving;
use crate::hash;
use crate::hint::HintSet;
use crate::policy::Op;
use std::collections::BinaryHeap;

const NONE: u32 = u32::MAX;

/// N, Nr and D of one hint set H in one window; of several, each with its weight. They are whole
/// numbers until they are [`Counts::weighted`]: rounded then, window after window, the smallest of
/// them would lose most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Counts {
    /// N(H): requests with H.
    pub requests: f64,
    /// Nr(H): requests with H whose page was read next, counted when it was read.
    pub rereads: f64,
    /// Sum of the re-reference distances of those, in requests.
    pub distance: f64,
}

impl Counts {
    /// D(H), in requests; 0 when there was no read re-reference.
    #[must_use]
    pub fn mean_distance(&self) -> f64 {
        match self.rereads > 0.0 {
            true => self.distance / self.rereads,
            false => 0.0,
        }
    }

    /// f_hit(H) (equation 3.1), at most 1: a read that re-references a request of an earlier
    /// window is counted in this one, so Nr can exceed N.
    #[must_use]
    pub fn hit_rate(&self) -> f64 {
        match self.rereads > 0.0 {
            true => self.rereads / self.requests.max(self.rereads),
            false => 0.0,
        }
    }

    /// Pr(H) = f_hit(H) / D(H) (equation 3.2): hits per request for which a page is kept.
    #[must_use]
    pub fn priority(&self) -> f64 {
        match self.rereads > 0.0 {
            true => self.hit_rate() / self.mean_distance(),
            false => 0.0,
        }
    }

    /// What is left of the counts with weight `weight`.
    #[must_use]
    pub fn weighted(&self, weight: f64) -> Self {
        debug_assert!((0.0..=1.0).contains(&weight), "counts only fade");
        Self {
            requests: self.requests * weight,
            rereads: self.rereads * weight,
            distance: self.distance * weight,
        }
    }

    /// Both together (equations 5.2 to 5.4).
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            requests: self.requests + other.requests,
            rereads: self.rereads + other.rereads,
            distance: self.distance + other.distance,
        }
    }
}

/// What a policy keeps of the re-references of one hint set besides [`Counts`], and the priority
/// it gives the set.
pub trait Evidence: Clone {
    /// The page of an earlier request with the hint set was requested again: `op`, `distance`
    /// requests later (at least 1).
    fn record(&mut self, distance: u64, op: Op);

    /// Adds what was recorded in earlier windows, `older`, each record with weight `weight`.
    fn join(&mut self, older: &Self, weight: f64);

    /// A window is over and these are the counts: the priority of the hint set, at least 0; 0
    /// means that its pages are not worth keeping.
    fn conclude(&mut self, counts: &Counts) -> f64;

    /// Back to nothing recorded.
    fn clear(&mut self);

    /// Bytes held outside the value itself.
    fn bytes(&self) -> usize;
}

/// One hint set being counted.
#[derive(Clone, Debug)]
pub struct Counted<E> {
    /// Which one.
    pub subject: SetId,
    /// N, Nr and D.
    pub counts: Counts,
    /// What else was recorded.
    pub evidence: E,
}

/// Which hint sets are counted.
#[derive(Clone, Debug)]
enum Choice {
    /// All that have a number.
    Every,
    /// The most frequent ones (§3.3.1).
    Frequent(SpaceSaving),
    /// As many drawn at random from the distinct ones (§5.1): those with the smallest hashes
    /// under a seed. A set that is in the final draw was drawn at its first request, for the
    /// bound only falls, so its counts are complete.
    Drawn {
        k: u32,
        seed: u64,
        largest: BinaryHeap<(u64, u32)>,
    },
}

/// The counters of one window.
#[derive(Clone, Debug)]
pub struct Counting<E> {
    choice: Choice,
    /// Counter of every subject, by its number.
    index: Vec<u32>,
    counters: Vec<Counted<E>>,
    empty: E,
}

impl<E: Evidence> Counting<E> {
    /// Counts every hint set.
    #[must_use]
    pub fn every(empty: E) -> Self {
        Self::new(Choice::Every, empty)
    }

    /// Counts the (about) `k` most frequent hint sets.
    #[must_use]
    pub fn frequent(k: u32, empty: E) -> Self {
        Self::new(Choice::Frequent(SpaceSaving::new(k)), empty)
    }

    /// Counts `k` hint sets drawn by lot.
    #[must_use]
    pub fn drawn(k: u32, seed: u64, empty: E) -> Self {
        assert!(k > 0, "something is counted");
        let largest = BinaryHeap::with_capacity(k as usize);
        Self::new(Choice::Drawn { k, seed, largest }, empty)
    }

    fn new(choice: Choice, empty: E) -> Self {
        Self {
            choice,
            index: Vec::new(),
            counters: Vec::new(),
            empty,
        }
    }

    /// A request counted as `subject`, which stands for `hints`. O(1); O(log k) where lots are
    /// drawn.
    pub fn request(&mut self, subject: SetId, hints: &HintSet) {
        if subject == SetId::OTHER {
            return;
        }
        let counter = match self.counter(subject) {
            Some(at) => {
                if let Choice::Frequent(saving) = &mut self.choice {
                    saving.increment(at);
                }
                at
            }
            None => match self.place(hints) {
                Some(at) => self.start(at, subject),
                None => return,
            },
        };
        self.counters[counter as usize].counts.requests += 1.0;
    }

    /// A page last requested with `subject` was requested again; nothing happens when `subject`
    /// is not among the hint sets chosen to be counted (§3.3.1). O(1).
    pub fn reference(&mut self, subject: SetId, distance: u64, op: Op) {
        debug_assert!(distance > 0, "a request follows another");
        let every = matches!(self.choice, Choice::Every) && subject != SetId::OTHER;
        let at = match self.counter(subject) {
            Some(at) => at,
            None if every => self.start(self.counters.len() as u32, subject),
            None => return,
        };
        let Counted {
            counts, evidence, ..
        } = &mut self.counters[at as usize];
        if op == Op::Read {
            counts.rereads += 1.0;
            counts.distance += distance as f64;
        }
        evidence.record(distance, op);
    }

    /// Everything counted. With Space-Saving N is the estimate less its error (§3.3.1).
    #[must_use]
    pub fn report(&self) -> &[Counted<E>] {
        &self.counters
    }

    /// Ends the window: gives what was counted and starts again from nothing. O(counters).
    pub fn take(&mut self) -> Vec<Counted<E>> {
        for counted in &self.counters {
            self.index[counted.subject.at()] = NONE;
        }
        match &mut self.choice {
            Choice::Every => {}
            Choice::Frequent(saving) => saving.clear(),
            Choice::Drawn { largest, .. } => largest.clear(),
        }
        debug_assert!(
            self.index.iter().all(|at| *at == NONE),
            "nothing is counted"
        );
        std::mem::take(&mut self.counters)
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let choice = match &self.choice {
            Choice::Every => 0,
            Choice::Frequent(saving) => saving.bytes(),
            Choice::Drawn { largest, .. } => largest.capacity() * size_of::<(u64, u32)>(),
        };
        let evidence: usize = self.counters.iter().map(|c| c.evidence.bytes()).sum();
        let counters = self.counters.capacity() * size_of::<Counted<E>>();
        choice + evidence + counters + self.index.capacity() * 4
    }

    /// Panics unless counters and index agree. O(subjects).
    pub fn assert_invariants(&self) {
        for (at, counted) in self.counters.iter().enumerate() {
            assert_eq!(self.counter(counted.subject), Some(at as u32));
            if let Choice::Frequent(saving) = &self.choice {
                let sure = saving.count(at as u32) - saving.error(at as u32);
                assert_eq!(sure as f64, counted.counts.requests, "N = estimate - error");
            }
        }
        let counted = self.index.iter().filter(|at| **at != NONE).count();
        assert_eq!(counted, self.counters.len(), "a subject has one counter");
        if let Choice::Frequent(saving) = &self.choice {
            saving.assert_invariants();
        }
    }

    fn counter(&self, subject: SetId) -> Option<u32> {
        let at = self.index.get(subject.at()).copied();
        at.filter(|at| *at != NONE)
    }

    /// The counter that a subject without one may have.
    fn place(&mut self, hints: &HintSet) -> Option<u32> {
        let used = self.counters.len() as u32;
        match &mut self.choice {
            Choice::Every => Some(used),
            Choice::Frequent(saving) => Some(saving.replace_least()),
            Choice::Drawn { k, seed, largest } => {
                let lot = hash::mix(*seed, hash::of_hints(hints));
                let at = match largest.peek() {
                    Some(&(most, at)) if largest.len() as u32 == *k => {
                        if lot >= most {
                            return None;
                        }
                        largest.pop();
                        at
                    }
                    _ => used,
                };
                largest.push((lot, at));
                Some(at)
            }
        }
    }

    /// Gives counter `at` to `subject`, with nothing counted yet.
    fn start(&mut self, at: u32, subject: SetId) -> u32 {
        if subject.at() >= self.index.len() {
            self.index.resize(subject.at() + 1, NONE);
        }
        self.index[subject.at()] = at;
        match self.counters.get_mut(at as usize) {
            Some(counter) => {
                self.index[counter.subject.at()] = NONE;
                counter.subject = subject;
                counter.counts = Counts::default();
                counter.evidence.clear();
            }
            None => self.counters.push(Counted {
                subject,
                counts: Counts::default(),
                evidence: self.empty.clone(),
            }),
        }
        debug_assert_eq!(self.counter(subject), Some(at));
        at
    }
}

//! Write intents: which parts of base may be newer than clean copies on flash.
//!
//! A base write is announced ([`Ledger::intend`], [`Ledger::intend_all`]), allowed once that is
//! durable ([`Ledger::may_write_base`], [`Ledger::may_write_base_all`]) and reported when it has
//! ended. A region whose writes are all durable on base is *quiet*, and is taken back when it has
//! been so for a while and no copy under it is in doubt.

use super::Ledger;
use crate::page::{ObjectId, PageId};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Pages per write-intent region: see [`Intent`].
pub const INTENT_PAGES: u64 = 512;

/// A run of [`INTENT_PAGES`] pages of an object, or all of an object, of which base may be newer
/// than clean copies on flash: after a crash those copies are not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Intent {
    /// The object.
    pub object: ObjectId,
    /// Page index divided by [`INTENT_PAGES`], or [`Intent::WHOLE`].
    pub region: u64,
}

impl Intent {
    /// The region that is all of the object. No page's own region has this number.
    pub const WHOLE: u64 = u64::MAX;

    /// The region of `page`.
    #[must_use]
    pub const fn of(page: PageId) -> Self {
        Self {
            object: page.object,
            region: page.index / INTENT_PAGES,
        }
    }

    /// All of `object`.
    #[must_use]
    pub const fn all_of(object: ObjectId) -> Self {
        Self {
            object,
            region: Self::WHOLE,
        }
    }

    /// The pages of the region.
    #[must_use]
    pub const fn pages(self) -> RangeInclusive<PageId> {
        let (first, last) = match self.region {
            Self::WHOLE => (0, u64::MAX),
            region => {
                let first = region.saturating_mul(INTENT_PAGES);
                (first, first.saturating_add(INTENT_PAGES - 1))
            }
        };
        PageId::new(self.object, first)..=PageId::new(self.object, last)
    }
}

/// The regions of which clean copies are not to be believed, as a restart finds them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Doubtful(BTreeSet<Intent>);

impl Doubtful {
    /// Whether a clean copy of `page` is not to be believed.
    #[must_use]
    pub fn covers(&self, page: PageId) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let of = [Intent::of(page), Intent::all_of(page.object)];
        of.iter().any(|intent| self.0.contains(intent))
    }
}

impl FromIterator<Intent> for Doubtful {
    fn from_iter<I: IntoIterator<Item = Intent>>(intents: I) -> Self {
        Self(intents.into_iter().collect())
    }
}

/// How far an intent has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Step {
    /// In the next batch.
    #[default]
    Pending,
    /// In the batch under way that has this number.
    Begun(u64),
    Durable,
}

/// One region with base writes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Intended {
    pub(super) step: Step,
    active: u32,
    /// [`Ledger::sync_epoch`] when a write last ended.
    written: u64,
    /// Every write is durable on base; counts the calls of [`Ledger::expire_intents`] since.
    quiet: Option<u8>,
}

impl Intended {
    /// The same region, which the map of another device does not know of yet.
    pub(super) fn moved(self) -> Self {
        Self {
            step: Step::Pending,
            ..self
        }
    }

    /// As a restart finds it.
    pub(super) const RESTORED: Self = Self {
        step: Step::Durable,
        active: 0,
        written: 0,
        quiet: None,
    };
}

impl Ledger {
    /// Whether base may be written at `page` now (rules R1 and R2 of `docs/write-back.md`). When
    /// not, [`Ledger::intend`] and a commit make it so.
    #[must_use]
    pub fn may_write_base(&self, page: PageId) -> bool {
        self.is_durable(Intent::of(page)) && !self.is_owed(page)
    }

    /// Whether base may be changed anywhere in `object` now. When not, [`Ledger::intend_all`] and
    /// a commit make it so. O(log pages owed).
    #[must_use]
    pub fn may_write_base_all(&self, object: ObjectId) -> bool {
        self.is_durable(Intent::all_of(object)) && !self.owes(object)
    }

    /// Whether the durable map may call a page of `object` dirty although it is not.
    #[must_use]
    pub fn owes(&self, object: ObjectId) -> bool {
        let pages = Intent::all_of(object).pages();
        let some = |owed: &BTreeSet<PageId>| owed.range(pages.clone()).next().is_some();
        self.waiting().any(|waiting| some(&waiting.owed))
    }

    /// Regions marked.
    #[must_use]
    pub fn intents(&self) -> usize {
        self.intents.len()
    }

    /// Whether a region of `object` is marked.
    #[must_use]
    pub fn has_intents(&self, object: ObjectId) -> bool {
        self.intents.range(regions(object)).next().is_some()
    }

    fn is_durable(&self, intent: Intent) -> bool {
        let on = self.intents.get(&intent);
        on.is_some_and(|intended| intended.step == Step::Durable)
    }

    /// Base is about to be written at `page`; matched by [`Ledger::base_written`].
    pub fn intend(&mut self, page: PageId) {
        self.start(Intent::of(page));
    }

    /// Base is about to be changed anywhere in `object`; matched by [`Ledger::base_written_all`].
    pub fn intend_all(&mut self, object: ObjectId) {
        self.start(Intent::all_of(object));
    }

    fn start(&mut self, intent: Intent) {
        let intended = self.intents.entry(intent).or_default();
        intended.active += 1;
        intended.quiet = None;
        if intended.step == Step::Pending {
            self.intent_changes.insert(intent, true);
        }
    }

    /// The base write at `page` ended, well or not.
    pub fn base_written(&mut self, page: PageId) {
        self.end(Intent::of(page));
    }

    /// The change of `object` announced by [`Ledger::intend_all`] ended, well or not.
    pub fn base_written_all(&mut self, object: ObjectId) {
        self.end(Intent::all_of(object));
    }

    fn end(&mut self, intent: Intent) {
        let intended = self.intents.get_mut(&intent);
        assert!(
            intended.as_ref().is_some_and(|on| on.active > 0),
            "invariant 4: the end of a base write at {intent:?} follows its start"
        );
        if let Some(intended) = intended {
            intended.active -= 1;
            intended.written = self.sync_epoch;
        }
    }

    /// A sync of base starts; the answer goes to [`Ledger::base_synced`].
    pub fn start_base_sync(&mut self) -> u64 {
        self.sync_epoch += 1;
        self.sync_epoch
    }

    /// The sync of `object` that started as `epoch` ended well: what was written before is durable.
    pub fn base_synced(&mut self, object: ObjectId, epoch: u64) {
        assert!(
            epoch <= self.sync_epoch,
            "the end of a sync follows its start"
        );
        for (_, intended) in self.intents.range_mut(regions(object)) {
            if intended.active == 0 && intended.written < epoch && intended.quiet.is_none() {
                intended.quiet = Some(0);
            }
        }
    }

    /// Takes back intents that have been quiet since the call before the last; to be called every
    /// few seconds, so that a region in use does not go on and off.
    pub fn expire_intents(&mut self) {
        self.take_back(2);
        for intended in self.intents.values_mut() {
            if let Some(calls) = &mut intended.quiet {
                *calls = calls.saturating_add(1);
            }
        }
    }

    /// Takes back every intent that is quiet: a clean stop. Those with copies in doubt stay.
    pub fn forget_quiet(&mut self) {
        self.take_back(0);
    }

    /// Regions stay marked from now on, quiet or not, until that is over: not all copies that they
    /// stand for are known yet.
    pub fn keep_marks(&mut self, keep: bool) {
        self.keeps_marks = keep;
    }

    fn take_back(&mut self, calls: u8) {
        if self.keeps_marks {
            return;
        }
        let old = |(intent, intended): (&Intent, &Intended)| {
            let over = intended.quiet.is_some_and(|n| n >= calls);
            over.then_some(*intent)
        };
        let over: Vec<Intent> = self.intents.iter().filter_map(old).collect();
        self.switch_off(over);
    }

    /// The object is gone or empty: nothing of it can be stale. O(its regions).
    pub fn forget_intents(&mut self, object: ObjectId) {
        if self.keeps_marks {
            return;
        }
        let of_object = self.intents.range(regions(object));
        let idle = of_object.filter(|(_, intended)| intended.active == 0);
        let over: Vec<Intent> = idle.map(|(intent, _)| *intent).collect();
        self.switch_off(over);
    }

    /// Until that is durable a region counts as on; a new write makes it on again. Regions with
    /// copies in doubt stay on (invariant 6).
    fn switch_off(&mut self, over: Vec<Intent>) {
        for intent in over {
            if self.has_doubts(intent) {
                continue;
            }
            let was = self.intents.remove(&intent);
            assert!(
                was.is_some_and(|intended| intended.active == 0),
                "invariant 4: base is being written in {intent:?}"
            );
            self.intent_changes.insert(intent, false);
        }
    }

    pub(super) fn assert_intents(&self) {
        for (intent, intended) in &self.intents {
            let announced = self.intent_changes.get(intent) == Some(&true);
            let pending = intended.step == Step::Pending;
            assert_eq!(pending, announced, "invariant 4: {intent:?}");
        }
        for (intent, on) in &self.intent_changes {
            let known = self.intents.contains_key(intent);
            assert_eq!(known, *on, "invariant 4: {intent:?}");
        }
    }
}

/// Every region of `object`, the whole one too.
fn regions(object: ObjectId) -> RangeInclusive<Intent> {
    Intent { object, region: 0 }..=Intent::all_of(object)
}

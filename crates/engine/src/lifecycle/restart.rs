//! What a restart finds.
//!
//! At the start the map is believed but for clean pages of regions that base was being written in:
//! those are held in doubt until they were compared with base ([`super::verify`]).
//! The pages of a file are believed only when it was not changed meanwhile: after a clean stop its
//! length, times, inode and generation must be what they were, also when a crash came after it but
//! before the first batch; after any other crash it must not have been
//! changed later than [`LEASE`] after the newest batch. A changed file loses its
//! clean pages; with dirty pages waiting for it [`Engine::adopt`] refuses and says so.

use crate::device::Device;
use crate::durable::lease::LEASE;
use crate::engine::Engine;
use crate::error::{Behind, Error, Refused};
use crate::files::object::{Identity, Object, ObjectSpec};
use crate::mutant::Mutant;
use crate::state::Inner;
use crate::store::{Fate, Recovered, SavedObject};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thermocline_core::hierarchy::Hierarchy;
use thermocline_core::ledger::{Intent, MapEntry};
use thermocline_core::{BlockId, Doubtful, ObjectId};

/// Finds the file an identity stands for under this name, or, when the flag is set, under any;
/// `None` when there is none.
pub type Opener<'a> = dyn Fn(&Identity, &str, bool) -> io::Result<Option<ObjectSpec>> + 'a;

/// Which files' dirty pages are given up when the files are gone or were changed meanwhile.
///
/// ```
/// use thermocline::Discard;
///
/// let one = Discard::Files(["old/table".into()].into());
/// assert!(one.covers("old/table") && !one.covers("other"));
/// assert_eq!(Discard::from(false), Discard::Nothing);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discard {
    /// Those of none: the start is refused.
    Nothing,
    /// Those of the files with these names.
    Files(BTreeSet<String>),
    /// Those of all.
    All,
}

impl Discard {
    /// Whether it is to be given up what waits for the file of this name.
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        match self {
            Self::Nothing => false,
            Self::Files(names) => names.contains(name),
            Self::All => true,
        }
    }
}

impl From<bool> for Discard {
    fn from(all: bool) -> Self {
        if all { Self::All } else { Self::Nothing }
    }
}

/// What was found at the start, but for the map itself.
#[derive(Clone)]
pub(crate) struct Found {
    clean_stop: bool,
    as_closed: bool,
    last_commit_ns: i64,
    pub(crate) objects: Vec<SavedObject>,
    pub(crate) intents: Vec<Intent>,
    pub(crate) next_version: u64,
}

impl Found {
    /// The map, and the rest.
    pub(crate) fn of(found: Recovered) -> (Vec<(BlockId, MapEntry)>, Self) {
        let rest = Self {
            clean_stop: found.clean_stop,
            as_closed: found.as_closed,
            last_commit_ns: found.last_commit_ns,
            objects: found.objects,
            intents: found.intents,
            next_version: found.next_version,
        };
        (found.entries, rest)
    }
}

/// Brings a map into an empty hierarchy, which knows already what is pinned.
pub(crate) struct Fill {
    /// By id: asked for every page; ids are small and dense.
    known: Vec<bool>,
    doubtful: Doubtful,
    intents: Vec<Intent>,
    /// What is not simply believed.
    others: Vec<(BlockId, MapEntry)>,
}

impl Fill {
    pub(crate) fn of(found: &Found) -> Self {
        let last = found.objects.last().map_or(0, |o| o.id.0 as usize + 1);
        let mut known = vec![false; last];
        for object in &found.objects {
            known[object.id.0 as usize] = true;
        }
        Self {
            known,
            doubtful: found.intents.iter().copied().collect(),
            intents: found.intents.clone(),
            others: Vec::new(),
        }
    }

    fn is_known(&self, entry: &MapEntry) -> bool {
        self.known.get(entry.page.object.0 as usize) == Some(&true)
    }

    /// Clean pages that are believed come to slots; parts of the map in order of blocks.
    pub(crate) fn add(&mut self, hierarchy: &mut Hierarchy, entries: &[(BlockId, MapEntry)]) {
        let mut others = std::mem::take(&mut self.others);
        let believed = entries.iter().filter(|(block, entry)| {
            let believed =
                !entry.dirty && self.is_known(entry) && !self.doubtful.covers(entry.page);
            if !believed {
                others.push((*block, *entry));
            }
            believed
        });
        hierarchy.restore_all(believed.map(|(block, entry)| (*block, entry)));
        self.others = others;
    }

    /// All of the map was added.
    pub(crate) fn end(self, hierarchy: &mut Hierarchy, next_version: u64) {
        // Dirty pages later: they may take the reserve when the policy has no slot left.
        let dirty = |(_, entry): &&(BlockId, MapEntry)| entry.dirty && self.is_known(entry);
        let pages = self.others.iter().filter(dirty);
        hierarchy.restore_all(pages.map(|(block, entry)| (*block, entry)));
        for (block, entry) in self.others.iter().filter(|other| !dirty(other)) {
            if !self.is_known(entry) || !hierarchy.hold_in_doubt(*block, entry) {
                hierarchy.discard(*block, entry);
            }
        }
        hierarchy.restored(next_version, self.intents);
    }
}

impl Engine {
    /// Takes over what was found, map and all.
    pub(crate) fn restore(&self, found: Recovered) {
        let (entries, found) = Found::of(found);
        self.register(&found);
        let mut inner = self.inner();
        let hierarchy = &mut inner.hierarchy;
        hierarchy.mark_pinned(&self.pinned_among(&found.objects));
        let mut fill = Fill::of(&found);
        fill.add(hierarchy, &entries);
        fill.end(hierarchy, found.next_version);
        let (restored, doubted) = (hierarchy.on_flash(), hierarchy.doubts());
        self.restored_pages.store(restored, Ordering::Relaxed);
        self.doubted_pages.store(doubted, Ordering::Relaxed);
        self.note_found(&mut inner, found);
    }

    /// The files of the map are known from now on.
    pub(crate) fn register(&self, found: &Found) {
        let tolerance = LEASE.as_nanos() as i64;
        let until = (!found.as_closed).then_some(found.last_commit_ns.saturating_add(tolerance));
        self.registry().restore(&found.objects, until);
    }

    pub(crate) fn pinned_among(&self, objects: &[SavedObject]) -> Vec<(ObjectId, bool)> {
        let pins = self.pins();
        let pinned = objects.iter().map(|o| (o.id, pins.matches(&o.name)));
        pinned.collect()
    }

    /// Commits go on from what was found.
    pub(crate) fn note_found(&self, inner: &mut Inner, found: Found) {
        let known: BTreeSet<ObjectId> = found.objects.iter().map(|o| o.id).collect();
        let written: BTreeSet<ObjectId> = found.intents.iter().map(|i| i.object).collect();
        // Nothing of a file without pages can be stale: its regions need not stay marked.
        let ledger = inner.hierarchy.ledger_mut();
        let epoch = ledger.start_base_sync();
        for id in written.difference(&known) {
            ledger.base_synced(*id, epoch);
        }
        inner.commits.held = !known.is_empty();
        inner.found_crashed = !found.clean_stop;
        inner.commits.found = Some(self.config.clock.now());
        inner.commits.named = known;
        for object in found.objects {
            if object.fate != Fate::default() {
                inner.fates.insert(object.id, object.fate);
            }
        }
    }

    /// Opens the files that dirty pages wait for, ends what a crash interrupted, and compares the
    /// other files that have pages on flash with what they were. To be called once after the start,
    /// before requests. `discard` gives up the dirty pages of files that are gone or were changed.
    ///
    /// # Errors
    /// [`Error::ChangedBehind`] names the files that are gone or were changed meanwhile; nothing
    /// is given up then. And those of `opener`.
    pub fn adopt(&self, opener: &Opener<'_>, discard: impl Into<Discard>) -> Result<(), Error> {
        let mut cuts = Vec::new();
        let adopted = self.adopt_all(opener, &discard.into(), &mut cuts);
        assert!(adopted.is_err() || cuts.is_empty(), "all cuts were made");
        // What is under way with them stays so: the next start asks again.
        for (object, _) in cuts {
            self.close_object(&object);
        }
        adopted
    }

    /// As [`Engine::adopt`]; leaves in `cuts` the objects that are open for a cut that was not
    /// made.
    fn adopt_all(
        &self,
        opener: &Opener<'_>,
        discard: &Discard,
        cuts: &mut Vec<(Arc<Object>, u64)>,
    ) -> Result<(), Error> {
        let (mut refused, mut owed) = (Vec::new(), Vec::new());
        let found = self.registry().to_save();
        // All are compared before base is written or a batch is made: after another crash a later
        // batch would cover the changes.
        for saved in found {
            let fate = self.inner().fates.get(&saved.id).copied();
            let fate = fate.unwrap_or_default();
            if fate == Fate::default() && !self.has_dirty(saved.id) {
                self.check_clean(&saved, opener)?;
                continue;
            }
            match self.compare_owed(&saved, fate, opener)?.1 {
                None => owed.push((saved, fate, false)),
                Some(_) if discard.covers(&saved.name) => owed.push((saved, fate, true)),
                Some(why) => refused.push(self.refused(&saved, why)),
            }
        }
        {
            let inner = self.inner();
            let none = inner.commits.held || inner.refused;
            debug_assert!(none || owed.is_empty(), "no batch was made yet");
        }
        let given_up = owed.iter().any(|(_, _, given_up)| *given_up);
        if refused.is_empty() {
            for (saved, fate, given_up) in &owed {
                if let Some(why) = self.adopt_one(saved, *fate, opener, *given_up, cuts)? {
                    // It was changed just now.
                    refused.push(self.refused(saved, why));
                }
            }
        }
        if refused.is_empty() {
            return self.end_adopting(cuts, given_up);
        }
        self.inner().refused = true;
        Err(Error::ChangedBehind {
            path: self.cache_name(),
            files: refused,
        })
    }

    /// All files are what they were, or their pages were given up: makes the cuts that a crash
    /// interrupted. One that fails is still asked for, with those after it.
    fn end_adopting(
        &self,
        cuts: &mut Vec<(Arc<Object>, u64)>,
        given_up: bool,
    ) -> Result<(), Error> {
        let interrupted = {
            let mut inner = self.inner();
            inner.commits.held = false;
            let any = !inner.fates.is_empty();
            let is_cut = |id| cuts.iter().any(|(object, _)| object.id == id);
            inner.fates.retain(|id, _| is_cut(*id));
            any
        };
        while let Some((object, length)) = cuts.first() {
            self.carry_out_cut(object, *length)?;
            self.inner().fates.remove(&object.id);
            cuts.remove(0);
        }
        // What was ended or given up is not asked for again after the next crash.
        match interrupted || given_up {
            true => self.commit().map_err(|source| self.cache_error(source)),
            false => Ok(()),
        }
    }

    fn refused(&self, saved: &SavedObject, why: Behind) -> Refused {
        let inner = self.inner();
        let dirty = inner.hierarchy.slots().dirty_in(saved.id, 0, u64::MAX);
        let mut pages: Vec<u64> = dirty.iter().map(|(page, _)| page.index).collect();
        pages.sort_unstable();
        let total = pages.len() as u64;
        pages.truncate(Refused::LISTED);
        Refused {
            name: saved.name.clone(),
            why,
            pages,
            total,
        }
    }

    pub(crate) fn cache_error(&self, source: io::Error) -> Error {
        let path = self.cache_name();
        Error::CacheIo { path, source }
    }

    /// Forgets the pages of a file that is gone, or that was changed since it was believed. Now:
    /// after this run's own commits a later restart could no longer tell.
    pub(crate) fn check_clean(
        &self,
        saved: &SavedObject,
        opener: &Opener<'_>,
    ) -> Result<(), Error> {
        let spec = opener(&saved.identity, &saved.name, false);
        let spec = spec.map_err(|source| Error::BaseIo {
            path: saved.name.clone(),
            source,
        })?;
        let stamp = spec.as_ref().and_then(|spec| (spec.stamp)());
        if let Some(spec) = &spec {
            self.settle_intents(saved.id, &*spec.base);
        }
        let mut registry = self.registry();
        if registry.changed_id(&saved.identity, stamp).is_none() {
            registry.compared(&saved.identity, self.believable(stamp));
            return Ok(());
        }
        drop(registry);
        self.stale_objects.fetch_add(1, Ordering::Relaxed);
        self.forget(&saved.identity);
        Ok(())
    }

    /// Syncs the base of a file that nobody has open, if its regions are marked since the last run:
    /// else they would stay so until it is opened, and add up from crash to crash.
    fn settle_intents(&self, id: ObjectId, base: &dyn Device) {
        let marked = self.inner().hierarchy.ledger().has_intents(id);
        if marked {
            let epoch = self.inner().hierarchy.ledger_mut().start_base_sync();
            // What base refuses stays marked.
            if base.sync(false).is_ok() {
                let mut inner = self.inner();
                inner.hierarchy.ledger_mut().base_synced(id, epoch);
            }
        }
    }

    /// The file that dirty pages, or something interrupted, wait for, and why they cannot go there.
    fn compare_owed(
        &self,
        saved: &SavedObject,
        fate: Fate,
        opener: &Opener<'_>,
    ) -> Result<(Option<ObjectSpec>, Option<Behind>), Error> {
        let spec = opener(&saved.identity, &saved.name, true);
        let spec = spec.map_err(|source| Error::BaseIo {
            path: saved.name.clone(),
            source,
        })?;
        let dirty = self.has_dirty(saved.id);
        let behind = match &spec {
            None => {
                // A file that may have lost its name, that was never promised, or that nothing but
                // a cut waits for, is owed nothing.
                let promised = saved.promised || self.config.planted == Mutant::UnsyncedPromise;
                (!fate.unlinked && promised && dirty).then_some(Behind::Gone)
            }
            Some(spec) => {
                let now = (spec.stamp)();
                let changed = self.registry().changed_id(&saved.identity, now).is_some();
                let times = now.map(|stamp| stamp.mtime_ns.max(stamp.ctime_ns));
                (changed && dirty).then_some(Behind::Changed(times))
            }
        };
        Ok((spec, behind))
    }

    /// Opens that file and ends what was interrupted, but for a cut, which is put to `cuts`.
    fn adopt_one(
        &self,
        saved: &SavedObject,
        fate: Fate,
        opener: &Opener<'_>,
        discard: bool,
        cuts: &mut Vec<(Arc<Object>, u64)>,
    ) -> Result<Option<Behind>, Error> {
        let failed = |source| Error::BaseIo {
            path: saved.name.clone(),
            source,
        };
        let (spec, behind) = self.compare_owed(saved, fate, opener)?;
        if behind.is_some() && !discard {
            return Ok(behind);
        }
        let Some(spec) = spec else {
            self.forget(&saved.identity);
            return Ok(None);
        };
        let changed = self
            .registry()
            .changed_id(&saved.identity, (spec.stamp)())
            .is_some();
        let object = self.open_or_discard(spec, discard).map_err(failed)?;
        if let (Some(length), false) = (fate.cut, changed) {
            cuts.push((object, length));
            return Ok(None);
        }
        if fate != Fate::default() {
            // Base may have brought back a name that was taken: then it is there, with its pages.
            self.put_record(&object);
        }
        self.close_object(&object);
        Ok(None)
    }

    /// Does to its end a cut that a crash interrupted. Base is written under a lease, else another
    /// crash would find that somebody else changed the file; so all files were compared before.
    fn carry_out_cut(&self, object: &Arc<Object>, length: u64) -> Result<(), Error> {
        let failed = |source| Error::BaseIo {
            path: object.name(),
            source,
        };
        let size = u64::from(self.config.page_size);
        let (middle, first) = (length / size, length.div_ceil(size));
        let reaches = object.length() >= length;
        if reaches && middle < first && self.is_dirty_at(object.id, middle) {
            // What is left of a page that is cut in the middle must be on base; and its tail must
            // read zeros if the file grows, so it goes below as well.
            self.settle(object.id, middle, middle).map_err(failed)?;
        }
        if reaches {
            self.before_base_write(object, &[]);
            let cut = object.base.set_len(length);
            let cut = cut.and_then(|()| object.base.sync(false));
            cut.map_err(failed)?;
            object.length.store(length, Ordering::Release);
        }
        self.trim_pages(object.id, first, u64::MAX);
        if !self.is_dirty_at(object.id, middle) {
            self.trim_pages(object.id, middle, middle);
        }
        self.put_record(object);
        self.close_object(object);
        Ok(())
    }

    fn is_dirty_at(&self, id: ObjectId, page: u64) -> bool {
        let inner = self.inner();
        !inner.hierarchy.slots().dirty_in(id, page, page).is_empty()
    }

    /// Forgets the pages of a file that is not open.
    fn forget(&self, identity: &Identity) {
        let mut registry = self.registry();
        if let Some(id) = registry.forget(identity, !self.is_recording()) {
            self.trim_pages(id, 0, u64::MAX);
            self.gone(id);
        }
    }
}

//! What a restart finds, and what a stop leaves.
//!
//! At the start the map is believed but for clean pages of regions that base was being written in.
//! The pages of a file are believed only when it was not changed meanwhile: after a clean stop its
//! length, times, inode and generation must be what they were; after a crash it must not have been
//! changed later than [`crate::commit::LEASE`] after the newest batch. A changed file loses its
//! clean pages; with dirty pages waiting for it [`Engine::adopt`] refuses and says so.

use crate::commit::LEASE;
use crate::engine::Engine;
use crate::error::Error;
use crate::object::{Identity, Object, ObjectSpec};
use crate::store::{Fate, Recovered, SavedObject, Store};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use thermocline_core::{Intent, ObjectId, PageId};

/// Finds the file an identity stands for under this name, or, when the flag is set, under any;
/// `None` when there is none.
pub type Opener<'a> = dyn Fn(&Identity, &str, bool) -> io::Result<Option<ObjectSpec>> + 'a;

impl Engine {
    pub(crate) fn restore(&self, found: Recovered) {
        let known: BTreeSet<ObjectId> = found.objects.iter().map(|o| o.id).collect();
        let tolerance = LEASE.as_nanos() as i64;
        let until = (!found.clean_stop).then_some(found.last_commit_ns.saturating_add(tolerance));
        self.registry().restore(&found.objects, until);
        let doubtful: BTreeSet<Intent> = found.intents.iter().copied().collect();
        let mut inner = self.inner();
        // Dirty pages last: they may take the reserve when the policy has no slot left.
        for dirty in [false, true] {
            for (block, entry) in found.entries.iter().filter(|(_, e)| e.dirty == dirty) {
                let doubt = !dirty && doubtful.contains(&Intent::of(entry.page));
                if doubt || !known.contains(&entry.page.object) {
                    inner.hierarchy.discard(*block, entry);
                } else {
                    inner.hierarchy.restore(*block, entry);
                }
            }
        }
        inner.hierarchy.restored(found.next_version, found.intents);
        let restored = inner.hierarchy.slots().resident();
        inner.commits.held = !known.is_empty();
        inner.commits.named = known;
        for object in found.objects {
            if object.fate != Fate::Stays {
                inner.fates.insert(object.id, object.fate);
            }
        }
        self.restored_pages.store(restored, Ordering::Relaxed);
    }

    /// Opens the files that dirty pages wait for, ends what a crash interrupted, and compares the
    /// other files that have pages on flash with what they were. To be called once after the start,
    /// before requests. `discard` gives up the dirty pages of files that are gone or were changed.
    ///
    /// # Errors
    /// [`Error::ChangedBehind`] names the files that are gone or were changed meanwhile; and those
    /// of `opener`.
    pub fn adopt(&self, opener: &Opener<'_>, discard: bool) -> Result<(), Error> {
        let mut refused = Vec::new();
        let found = self.registry().to_save();
        for saved in found {
            let fate = self
                .inner()
                .fates
                .get(&saved.id)
                .copied()
                .unwrap_or_default();
            if fate == Fate::Stays && !self.has_dirty(saved.id) {
                self.check_clean(&saved, opener)?;
                continue;
            }
            if let Err(why) = self.adopt_one(&saved, fate, opener, discard)? {
                refused.push(format!("{} ({why})", saved.name));
            }
        }
        let fates = std::mem::take(&mut self.inner().fates);
        if refused.is_empty() {
            self.inner().commits.held = false;
            // What was ended or given up is not asked for again after the next crash.
            return match fates.is_empty() && !discard {
                true => Ok(()),
                false => self.commit().map_err(|source| self.cache_error(source)),
            };
        }
        self.inner().fates = fates;
        Err(Error::ChangedBehind {
            path: self.cache_name(),
            files: refused.join(", "),
        })
    }

    fn cache_error(&self, source: io::Error) -> Error {
        let path = self.cache_name();
        Error::CacheIo { path, source }
    }

    /// Forgets the pages of a file that is gone, or that was changed since it was believed. Now:
    /// after this run's own commits a later restart could no longer tell.
    fn check_clean(&self, saved: &SavedObject, opener: &Opener<'_>) -> Result<(), Error> {
        let spec = opener(&saved.identity, &saved.name, false);
        let spec = spec.map_err(|source| Error::BaseIo {
            path: saved.name.clone(),
            source,
        })?;
        let stamp = spec.and_then(|spec| (spec.stamp)());
        let changed = self.registry().changed_id(&saved.identity, stamp);
        if changed.is_some() {
            self.stale_objects.fetch_add(1, Ordering::Relaxed);
            self.forget(&saved.identity);
        }
        Ok(())
    }

    fn adopt_one(
        &self,
        saved: &SavedObject,
        fate: Fate,
        opener: &Opener<'_>,
        discard: bool,
    ) -> Result<Result<(), &'static str>, Error> {
        let failed = |source| Error::BaseIo {
            path: saved.name.clone(),
            source,
        };
        let spec = opener(&saved.identity, &saved.name, true).map_err(failed)?;
        let Some(spec) = spec else {
            if fate != Fate::Unlinked && !discard {
                return Ok(Err("it is gone"));
            }
            self.forget(&saved.identity);
            return Ok(Ok(()));
        };
        let changed = self.registry().changed_id(&saved.identity, (spec.stamp)());
        if changed.is_some_and(|id| self.has_dirty(id)) && !discard {
            return Ok(Err("it was changed"));
        }
        let id = self.open_or_discard(spec, discard).map_err(failed)?;
        if let (Fate::Cut(length), None) = (fate, changed) {
            // What the crash interrupted is done to its end.
            let object = self.object(id).map_err(failed)?;
            if object.length() > length {
                object.base.set_len(length).map_err(failed)?;
                object.base.sync(false).map_err(failed)?;
                object.length.store(length, Ordering::Release);
            }
            self.trim_pages(
                id,
                length.div_ceil(u64::from(self.config.page_size)),
                u64::MAX,
            );
        }
        if fate != Fate::Stays
            && let Some(object) = self.saved(id, Fate::Stays)
        {
            self.inner().commits.put(object);
        }
        self.close_object(id);
        Ok(Ok(()))
    }

    /// Whether DRAM or flash hold bytes of the object that base has not.
    #[must_use]
    pub fn has_dirty(&self, id: ObjectId) -> bool {
        let inner = self.inner();
        let slots = inner.hierarchy.slots().dirty_in(id, 0, u64::MAX);
        !slots.is_empty() || !inner.hierarchy.pool().dirty_of(id).is_empty()
    }

    /// Ends the engine: writes what is in DRAM to flash and saves the map, so that the next start
    /// is warm. Dirty pages stay on flash: call [`Engine::flush`] before if base is to be whole.
    /// Requests must have ended and objects be closed, or their pages are left out.
    ///
    /// # Errors
    /// [`Error::Save`]; the next start is then as after a crash. [`Error::Unsaved`] when dirty
    /// pages could be written nowhere.
    pub fn stop(&self) -> Result<(), Error> {
        // What base refuses stays dirty, and is counted below.
        let _ = self.clean_everything();
        self.inner().stopping = true;
        self.signals.wake_all();
        let writers =
            std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in writers {
            let _ = thread.join();
        }
        while self.config.inline && self.step() {}
        let Some(flash) = self.store() else {
            return Ok(());
        };
        #[cfg(debug_assertions)]
        self.assert_invariants();
        if self.is_off() {
            return self.stop_without_flash(&flash);
        }
        self.close_lingering();
        self.close_all_idle();
        self.inner().hierarchy.ledger_mut().forget_quiet();
        self.wait_for_older_stamps();
        if let Err(source) = self.commit() {
            self.stop_without_flash(&flash)?;
            return Err(self.save_error(source));
        }
        let named = self.inner().commits.named.clone();
        let mut objects = self.registry().to_save();
        objects.retain(|object| named.contains(&object.id));
        flash.close(objects)
    }

    /// What the device says is not to be believed; it stays as after a crash, and base gets what
    /// it takes.
    fn stop_without_flash(&self, flash: &Store) -> Result<(), Error> {
        debug_assert!(self.is_off(), "else flash keeps dirty pages");
        if self.dirty_pages() > 0 {
            // What cannot be written is named.
            let _ = self.flush(|_| true);
        }
        let pages = self.all_dirty();
        match pages.is_empty() {
            true => Ok(()),
            false => Err(Error::Unsaved {
                path: flash.name().into(),
                pages: pages.len() as u64,
                files: self.in_words(&pages),
            }),
        }
    }

    /// Pages that are dirty in DRAM or on flash.
    fn all_dirty(&self) -> BTreeSet<PageId> {
        let objects = self.all_objects();
        let inner = self.inner();
        let (pool, slots) = (inner.hierarchy.pool(), inner.hierarchy.slots());
        let of_object = |(id, _): &(ObjectId, Arc<Object>)| {
            let frames = pool.dirty_of(*id).into_iter();
            let frames = frames.filter_map(|frame| pool.page(frame));
            let slots = slots.dirty_in(*id, 0, u64::MAX).into_iter();
            frames
                .chain(slots.map(|(page, _)| page))
                .collect::<Vec<_>>()
        };
        objects.iter().flat_map(of_object).collect()
    }

    /// "a pages 1, 2; b page 0; and 3 more".
    pub(crate) fn in_words(&self, pages: &BTreeSet<PageId>) -> String {
        let named: Vec<PageId> = pages.iter().copied().take(NAMED_MAX).collect();
        let of_file = |pages: &[PageId]| {
            let numbers: Vec<String> = pages.iter().map(|page| page.index.to_string()).collect();
            let word = if pages.len() == 1 { "page" } else { "pages" };
            let object = self.object(pages[0].object);
            let name = object.map_or_else(|_| String::new(), |object| object.name());
            format!("{name} {word} {}", numbers.join(", "))
        };
        let files = named.chunk_by(|a, b| a.object == b.object);
        let mut parts: Vec<String> = files.map(of_file).collect();
        if pages.len() > named.len() {
            parts.push(format!("and {} more", pages.len() - named.len()));
        }
        parts.join("; ")
    }

    pub(crate) fn all_objects(&self) -> Vec<(ObjectId, Arc<Object>)> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        let all = objects.iter().flatten();
        all.map(|object| (object.id, Arc::clone(object))).collect()
    }

    /// Closes what lingers with dirty pages: their bytes are safe on flash.
    fn close_all_idle(&self) {
        for (_, object) in self.all_objects() {
            self.really_close(&object);
        }
    }

    fn save_error(&self, source: io::Error) -> Error {
        let path = self.cache_name();
        Error::Save { path, source }
    }

    /// A file changed within the granularity of base's clock could change again without a trace;
    /// waits until every stamp is older than that.
    fn wait_for_older_stamps(&self) {
        let newest = self.registry().newest_stamp_ns();
        if self.is_young(newest) {
            crate::clock::pass(self.config.stamp_granularity);
        }
    }

    /// Whether a file with this stamp can change now without getting another one.
    pub(crate) fn is_young(&self, stamp_ns: i64) -> bool {
        let now = crate::clock::wall_ns().saturating_add(self.config.clock_offset_ns);
        let age = now.saturating_sub(stamp_ns);
        age >= 0 && u128::from(age.unsigned_abs()) < self.config.stamp_granularity.as_nanos()
    }
}

/// Pages named by the error of [`Engine::stop`] at most.
const NAMED_MAX: usize = 20;

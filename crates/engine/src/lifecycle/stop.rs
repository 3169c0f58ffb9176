//! What a stop leaves: everything in DRAM on flash, the map saved, the cache marked clean.

use crate::engine::Engine;
use crate::error::Error;
use crate::files::object::{Object, Stamp};
use crate::lock;
use crate::store::{Fate, SavedObject};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thermocline_core::{ObjectId, PageId};

/// So many slots are checked at a stop: 32 GiB of 8-KiB pages, about two seconds.
const CHECKED_WHOLE: u32 = 4 << 20;

impl Engine {
    /// Ends the engine: writes what is in DRAM to flash and saves the map, so that the next start
    /// is warm. Dirty pages stay on flash: call [`Engine::flush`] before if base is to be whole.
    /// Requests must have ended and objects be closed, or their pages are left out.
    ///
    /// # Errors
    /// [`Error::Save`], also when base cannot tell what a file with dirty pages looks like; the
    /// next start is then as after a crash. [`Error::Unsaved`] when dirty pages could be written
    /// nowhere.
    pub fn stop(&self) -> Result<(), Error> {
        // What base refuses stays dirty, and is counted below.
        let _ = self.clean_everything();
        self.end_threads();
        self.bury();
        while self.config.inline && self.step() {}
        let Some(flash) = self.store() else {
            return self.are_saved(&self.dirty_frames());
        };
        // What is about to be called clean is looked at once more, whole where that takes no time.
        if self.inner().hierarchy.slots().capacity() <= CHECKED_WHOLE {
            self.assert_invariants();
        }
        if self.is_off() {
            return self.stop_without_flash();
        }
        if self.is_as_found() {
            return Ok(());
        }
        self.close_lingering();
        // Said while the files are open and have names; the map is saved all the same.
        let frames_saved = self.are_saved(&self.dirty_frames());
        let under_way = self.under_way();
        self.close_all_idle();
        self.inner().hierarchy.ledger_mut().forget_quiet();
        self.wait_for_older_stamps();
        if let Err(source) = self.commit() {
            self.stop_without_flash()?;
            return Err(self.save_error(source));
        }
        let named = self.inner().commits.named.clone();
        let mut objects = self.registry().to_save();
        objects.retain(|object| named.contains(&object.id));
        // Base did not make durable that they have no name, or were cut: the next start sees to it.
        for object in &mut objects {
            object.fate = under_way.get(&object.id).copied().unwrap_or_default();
        }
        // After a start that failed: what a crash interrupted has not been ended yet.
        for (id, fate) in &self.inner().fates {
            let interrupted = objects.iter_mut().filter(|object| object.id == *id);
            interrupted.for_each(|object| object.fate = *fate);
        }
        self.must_be_found_again(&objects, &under_way)?;
        let all_clean = self.inner().hierarchy.ledger().is_all_clean();
        self.still_ours()?;
        flash.close_as(objects, all_clean)?;
        frames_saved
    }

    /// Whether a start after a crash came to nothing: no file was adopted, no batch made, nothing
    /// written. The cache stays as it was found, so that a later start can tell as well what was
    /// changed: the stamps that this one has are of before the newest batch.
    fn is_as_found(&self) -> bool {
        let inner = self.inner();
        let is_written = self.write_bytes.load(Ordering::Relaxed) > 0;
        inner.found_crashed && inner.commits.held && !is_written
    }

    /// The engine stops: its threads end what they are at.
    pub(crate) fn end_threads(&self) {
        self.inner().stopping = true;
        self.signals.wake_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.join().is_err() {
                lock::die("a thread of the engine panicked");
            }
        }
    }

    /// The table that a stop leaves replaces all records of before. A file that is not in it loses
    /// its pages at the next start, so a closed one with dirty pages, or with something under way,
    /// must be there. Without a stamp it cannot be; the records of the last commit need none.
    fn must_be_found_again(
        &self,
        objects: &[SavedObject],
        under_way: &BTreeMap<ObjectId, Fate>,
    ) -> Result<(), Error> {
        let mut lost = self.inner().commits.named.clone();
        for object in objects {
            lost.remove(&object.id);
        }
        let interrupted: BTreeSet<ObjectId> = self.inner().fates.keys().copied().collect();
        let is_lost = |id| {
            let under_way = under_way.contains_key(&id) || interrupted.contains(&id);
            lost.contains(&id) && (under_way || self.has_dirty(id))
        };
        let closed = self.registry().closed();
        let Some(first) = closed.iter().find(|closed| is_lost(closed.id)) else {
            return Ok(());
        };
        let name = &first.name;
        let why = format!("base does not tell what {name} looks like, which has newer bytes here");
        Err(self.save_error(io::Error::other(why)))
    }

    /// What is still under way with objects that are open.
    fn under_way(&self) -> BTreeMap<ObjectId, Fate> {
        let fates = self.all_objects().into_iter();
        let fates = fates.map(|object| (object.id, object.fate()));
        fates.filter(|(_, fate)| *fate != Fate::default()).collect()
    }

    /// What the device says is not to be believed; it stays as after a crash, and base gets what
    /// it takes.
    pub(crate) fn stop_without_flash(&self) -> Result<(), Error> {
        debug_assert!(self.is_off(), "else flash keeps dirty pages");
        if self.dirty_pages() > 0 {
            // What cannot be written is named.
            let _ = self.flush(|_| true);
        }
        self.are_saved(&self.all_dirty())
    }

    /// The error that names these pages, which nothing but DRAM, or a device that failed, has.
    fn are_saved(&self, pages: &BTreeSet<PageId>) -> Result<(), Error> {
        match pages.is_empty() {
            true => Ok(()),
            false => Err(Error::Unsaved {
                path: self.cache_name(),
                pages: pages.len() as u64,
                files: self.in_words(pages),
            }),
        }
    }

    /// Pages that are dirty in DRAM.
    fn dirty_frames(&self) -> BTreeSet<PageId> {
        let objects = self.all_objects();
        let inner = self.inner();
        let pool = inner.hierarchy.pool();
        let of_object = |object: &Arc<Object>| {
            let frames = pool.dirty_of(object.id).into_iter();
            let pages = frames.filter_map(|frame| pool.page(frame));
            pages.collect::<Vec<_>>()
        };
        objects.iter().flat_map(of_object).collect()
    }

    /// Pages that are dirty in DRAM or on flash.
    fn all_dirty(&self) -> BTreeSet<PageId> {
        let mut pages = self.dirty_frames();
        let objects = self.all_objects();
        let inner = self.inner();
        let slots = inner.hierarchy.slots();
        let of_object = |object: &Arc<Object>| slots.dirty_in(object.id, 0, u64::MAX);
        pages.extend(objects.iter().flat_map(of_object).map(|(page, _)| page));
        pages
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

    pub(crate) fn save_error(&self, source: io::Error) -> Error {
        let path = self.cache_name();
        Error::Save { path, source }
    }

    /// A file changed within the granularity of base's clock could change again without a trace;
    /// waits until every stamp is older than that.
    pub(crate) fn wait_for_older_stamps(&self) {
        let newest = self.registry().newest_stamp_ns();
        if self.is_young(newest) {
            self.config.clock.pass(self.config.stamp_granularity);
        }
    }

    /// Whether a file with this stamp can change now without getting another one.
    fn is_young(&self, stamp_ns: i64) -> bool {
        let age = self.base_wall_ns().saturating_sub(stamp_ns);
        age >= 0 && u128::from(age.unsigned_abs()) < self.config.stamp_granularity.as_nanos()
    }

    /// The stamp of a file, unless it says nothing of what may still be done to it in the same
    /// second: where base keeps whole seconds. (At a stop that second is waited for instead.)
    pub(crate) fn believable(&self, stamp: Option<Stamp>) -> Option<Stamp> {
        let coarse = self.config.stamp_granularity >= COARSE;
        if !coarse || self.inner().stopping {
            return stamp;
        }
        stamp.filter(|stamp| !self.is_young(stamp.mtime_ns.max(stamp.ctime_ns)))
    }
}

/// From this granularity on a change is likely to leave the stamp as it was.
const COARSE: Duration = Duration::from_millis(500);
/// Pages named by the error of [`Engine::stop`] at most.
const NAMED_MAX: usize = 20;

//! Base files as objects: opened, closed, renamed, cut, punched, synced, removed.
//!
//! An object is *open*, *lingering* (nobody has it open, but dirty pages wait for its base, or base
//! has writes that were never synced) or *closed*. Before base is cut or a file removed, the map on
//! flash says so durably (rule R6 of `docs/write-back.md`), so that a crash in between can be
//! carried to its end.

use crate::destage::lost_error;
use crate::engine::{Engine, Inner, Request, name_in_trace};
use crate::object::{Object, ObjectSpec, Stamp};
use crate::registry::Registry;
use crate::store::Fate;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};
use thermocline_core::{HintSet, ObjectId, PageId};
use thermocline_trace::{Op, Served};

/// From this granularity on a change is likely to leave the stamp as it was.
const COARSE: Duration = Duration::from_millis(500);

impl Engine {
    /// Registers an open base file. The same identity gives the same id while it is open, and
    /// while pages of it are on flash. Each call is matched by one of [`Engine::close_object`].
    ///
    /// # Errors
    /// Those of the base device when its length is asked for.
    pub fn open_object(&self, spec: ObjectSpec) -> io::Result<ObjectId> {
        let mut registry = self.registry();
        if let Some(id) = registry.open_again(&spec.identity) {
            self.object(id)?.opens.fetch_add(1, Ordering::Relaxed);
            return Ok(id);
        }
        let length = spec.base.len()?;
        let stamp = (spec.stamp)();
        self.open_known(&mut registry, spec, length, stamp, false)
    }

    /// As [`Engine::open_object`]; with `discard` even dirty pages of a changed file go.
    pub(crate) fn open_or_discard(&self, spec: ObjectSpec, discard: bool) -> io::Result<ObjectId> {
        let mut registry = self.registry();
        let length = spec.base.len()?;
        let stamp = (spec.stamp)();
        self.open_known(&mut registry, spec, length, stamp, discard)
    }

    fn open_known(
        &self,
        registry: &mut Registry,
        mut spec: ObjectSpec,
        length: u64,
        stamp: Option<Stamp>,
        discard: bool,
    ) -> io::Result<ObjectId> {
        if let Some(id) = registry.changed_id(&spec.identity, stamp)
            && !discard
            && self.has_dirty(id)
        {
            return Err(io::Error::other(format!(
                "{} was changed behind the tier's back while dirty pages wait for it",
                spec.name
            )));
        }
        // Rules that no longer cache the file do not make its dirty pages go.
        let known = registry.closed_id(&spec.identity);
        spec.cached |= known.is_some_and(|id| self.has_dirty(id));
        let (id, changed, counts) = registry.open(&spec.identity, stamp, spec.cached);
        if changed {
            self.stale_objects.fetch_add(1, Ordering::Relaxed);
            self.trim_pages(id, 0, u64::MAX);
        } else {
            self.drop_past_end(id, length);
        }
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        let at = id.0 as usize;
        if at >= objects.len() {
            objects.resize_with(at + 1, || None);
        }
        debug_assert!(objects[at].is_none(), "an id is open once");
        let object = Arc::new(Object::new(id, spec, length, counts));
        if let Some(recorder) = self.recorder() {
            name_in_trace(&recorder, &object);
        }
        objects[at] = Some(object);
        Ok(id)
    }

    /// Drops dirty pages that base does not wholly have. Base's length is durable before a sync
    /// promises anything past it, so a crash has taken them back together.
    fn drop_past_end(&self, id: ObjectId, length: u64) {
        let first = length / u64::from(self.config.page_size);
        let dirty = self.inner().hierarchy.slots().dirty_in(id, first, u64::MAX);
        if !dirty.is_empty() {
            self.trim_pages(id, first, u64::MAX);
        }
    }

    /// Ends one use of an object. Its pages stay on flash; while some are dirty it lingers.
    pub fn close_object(&self, id: ObjectId) {
        let registry = self.registry();
        let Ok(object) = self.object(id) else { return };
        if object.opens.fetch_sub(1, Ordering::Relaxed) > 1 {
            return;
        }
        debug_assert_eq!(
            object.opens.load(Ordering::Relaxed),
            0,
            "the last close closes"
        );
        drop(registry);
        self.close_if_idle(id);
    }

    /// Closes a lingering object that nothing waits for any more.
    pub(crate) fn close_if_idle(&self, id: ObjectId) {
        let Ok(object) = self.object(id) else { return };
        let unsynced = object.unsynced.is_due() || object.unstamped.load(Ordering::Acquire);
        let unsynced = unsynced && self.is_paged(&object);
        if object.opens.load(Ordering::Relaxed) == 0 && !unsynced && !self.has_dirty(id) {
            self.really_close(&object);
        }
    }

    /// Where base keeps whole seconds, a stamp of this second says nothing of what may still be
    /// done in it. (At a stop that second is waited for instead.)
    fn is_coarse_and_young(&self, stamp: &Stamp) -> bool {
        let coarse = self.config.stamp_granularity >= COARSE;
        coarse && !self.inner().stopping && self.is_young(stamp.mtime_ns.max(stamp.ctime_ns))
    }

    pub(crate) fn really_close(&self, object: &Arc<Object>) {
        let mut registry = self.registry();
        if object.opens.load(Ordering::Relaxed) > 0 || self.object(object.id).is_err() {
            return;
        }
        let id = object.id;
        let saved = self.saved(id, Fate::Stays);
        let resident = {
            let mut inner = self.inner();
            let resident = inner.hierarchy.resident_of(id);
            // Whoever writes the map later can no longer ask the object what it is called.
            let unnamed = resident > 0 && !inner.commits.named.contains(&id);
            if let Some(saved) = saved.filter(|_| unnamed) {
                inner.commits.put(saved);
            }
            // The table has room for files with pages only.
            if resident == 0 {
                inner.commits.gone(id);
            }
            resident
        };
        debug_assert!(
            object.cached || resident == 0,
            "only cached objects have pages on flash"
        );
        let name = object
            .name
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let reuse_id = !self.is_recording();
        let stamp = (object.stamp)().filter(|stamp| !self.is_coarse_and_young(stamp));
        registry.close(object, stamp, name, resident > 0, reuse_id);
        let mut objects = self.objects.write().unwrap_or_else(PoisonError::into_inner);
        objects[id.0 as usize] = None;
    }

    /// The file is gone for good (unlinked and released): forgets its pages.
    pub fn trim(&self, id: ObjectId) {
        let length = self.object(id).map_or(0, |object| object.length());
        self.trim_pages(id, 0, u64::MAX);
        self.gone(id);
        self.record_quiet(Op::Trim, id, 0, length);
    }

    /// As [`Engine::trim`] for a file that is not open.
    pub fn forget(&self, identity: &crate::object::Identity) {
        let (id, lingering) = {
            let mut registry = self.registry();
            let open = registry.open_again(identity);
            (open.or_else(|| registry.forget(identity)), open.is_some())
        };
        let Some(id) = id else { return };
        self.trim_pages(id, 0, u64::MAX);
        self.gone(id);
        if lingering {
            self.close_if_idle(id);
        }
    }

    /// Nothing of the object is kept: the next commit says so.
    fn gone(&self, id: ObjectId) {
        let mut inner = self.inner();
        inner.hierarchy.ledger_mut().forget_intents(id);
        inner.hierarchy.trust(id);
        inner.commits.gone(id);
    }

    /// The file's last name is about to go: should a crash come between, its dirty pages are then
    /// not waited for (rule R6). Call [`Engine::not_unlinked`] should that fail.
    ///
    /// # Errors
    /// Those of the flash device.
    pub fn before_unlink(&self, identity: &crate::object::Identity) -> io::Result<()> {
        let id = self.registry().open_again(identity);
        match id {
            // The durable map may still call pages dirty that are clean by now.
            Some(id) if self.is_named(id) => self.set_fate(id, Fate::Unlinked),
            _ => Ok(()),
        }
    }

    /// The unlink announced by [`Engine::before_unlink`] failed: the file stays.
    pub fn not_unlinked(&self, identity: &crate::object::Identity) {
        let id = self.registry().open_again(identity);
        if let Some(id) = id.filter(|id| self.is_named(*id))
            && let Some(object) = self.saved(id, Fate::Stays)
        {
            self.inner().commits.put(object);
        }
    }

    /// Whether the durable map may name pages of the object.
    fn is_named(&self, id: ObjectId) -> bool {
        self.inner().commits.named.contains(&id)
    }

    /// Durably notes what is about to happen to a file, where its pages are on flash.
    fn set_fate(&self, id: ObjectId, fate: Fate) -> io::Result<()> {
        let Some(object) = self.saved(id, fate) else {
            return Ok(());
        };
        if !self.has_flash || self.is_off() {
            return Ok(());
        }
        self.inner().commits.put(object);
        self.commit()
    }

    /// The object has a new name: for people and traces only.
    pub fn rename(&self, id: ObjectId, name: &str) {
        if let Ok(object) = self.object(id) {
            *object.name.write().unwrap_or_else(PoisonError::into_inner) = name.to_string();
        }
        if let Some(recorder) = self.recorder() {
            recorder.name_object(id, name);
        }
    }

    pub(crate) fn trim_pages(&self, id: ObjectId, first: u64, last: u64) {
        debug_assert!(first <= last, "a range has a first page");
        let mut inner = self.inner();
        let Inner {
            hierarchy, actions, ..
        } = &mut *inner;
        hierarchy.trim(id, first, last, actions);
        self.carry_out(&mut inner, &[]);
    }

    /// Cuts or extends the object to `length` bytes.
    ///
    /// # Errors
    /// Those of the base device, and of flash when dirty pages are concerned.
    pub fn truncate(&self, id: ObjectId, length: u64) -> io::Result<()> {
        let object = self.object(id)?;
        self.end_cut(&object)?;
        let size = u64::from(self.config.page_size);
        let first = length / size;
        if !length.is_multiple_of(size) {
            // What is left of a page that is cut in the middle must be on base.
            self.settle(id, first, first)?;
        }
        let layout = object.layout_alone();
        let concerned = self.is_named(id) || self.has_pages(id, first, u64::MAX);
        if concerned {
            // A failed commit switches the tier off, and base is all there is. Should the note have
            // reached the device all the same, it counts only while base does not change later.
            object.cut_noted.store(!self.is_off(), Ordering::Release);
            let _ = self.set_fate(id, Fate::Cut(length));
            self.before_base_write(&[]);
        }
        let cut = object.base.set_len(length);
        object.unsynced.add();
        if cut.is_ok() {
            let before = object.length.swap(length, Ordering::AcqRel);
            // A page cut in the middle goes too: its tail must read zeros if the file grows.
            self.trim_pages(id, first, u64::MAX);
            self.record_quiet(Op::Trim, id, length, before.saturating_sub(length));
        }
        drop(layout);
        if concerned {
            // Flash forgets the pages for good only once base has forgotten them for good.
            self.sync_base(&object)?;
            self.take_back_cut(&object);
        }
        cut
    }

    /// Ends a cut whose sync failed: it is made again, for the system may have given it up, and
    /// synced. Until then the object is not changed: were the note still on flash after a crash,
    /// recovery would cut away what came later.
    pub(crate) fn end_cut(&self, object: &Object) -> io::Result<()> {
        if !object.cut_noted.load(Ordering::Acquire) {
            return Ok(());
        }
        let _layout = object.layout_alone();
        if object.cut_noted.load(Ordering::Acquire) {
            self.before_base_write(&[]);
            object.base.set_len(object.length())?;
            object.unsynced.add();
            self.sync_base(object)?;
            self.take_back_cut(object);
        }
        Ok(())
    }

    /// The cut is durable on base.
    fn take_back_cut(&self, object: &Object) {
        if !object.cut_noted.swap(false, Ordering::AcqRel) {
            return;
        }
        if let Some(saved) = self.saved(object.id, Fate::Stays) {
            self.inner().commits.put(saved);
        }
        if !self.is_off() {
            // Should it fail base is changed only after the lease, and the note no longer counts.
            let _ = self.commit();
        }
    }

    fn has_pages(&self, id: ObjectId, first: u64, last: u64) -> bool {
        let inner = self.inner();
        let some = inner.hierarchy.resident_of(id) > 0;
        some && !inner.hierarchy.slots().in_range(id, first, last).is_empty()
    }

    /// Deallocates a range, which reads zeros afterwards.
    ///
    /// # Errors
    /// Those of the base device.
    pub fn punch(&self, id: ObjectId, offset: u64, length: u64) -> io::Result<()> {
        let object = self.object(id)?;
        if length == 0 {
            return Ok(());
        }
        self.end_cut(&object)?;
        let page = u64::from(self.config.page_size);
        let (first, last) = (offset / page, (offset + length - 1) / page);
        self.settle(id, first, last)?;
        if self.is_named(id) && !self.is_off() {
            // The durable map may still call pages dirty that are clean or gone by now (rule R2).
            self.commit()?;
        }
        let pages: Vec<PageId> = match self.has_pages(id, first, last) {
            true => (first..=last).map(|index| PageId::new(id, index)).collect(),
            false => Vec::new(),
        };
        self.before_base_write(&pages);
        let layout = object.layout_alone();
        let punched = object.base.punch(offset, length);
        object.unsynced.add();
        self.trim_pages(id, first, last);
        drop(layout);
        self.base_written(&pages);
        self.record_quiet(Op::Trim, id, offset, length);
        punched
    }

    /// Makes earlier writes of the object durable: those that base has by base's own sync, those
    /// that only DRAM or flash have by writing them to flash and one commit of its map, which
    /// serves everybody who waits at that time.
    ///
    /// # Errors
    /// Those of the devices.
    pub fn sync(&self, id: ObjectId, data_only: bool) -> io::Result<()> {
        let object = self.object(id)?;
        let started = Instant::now();
        let synced = self.sync_object(&object, data_only);
        // A background sync of base that failed may have lost writes of before: said once.
        let failed = object.sync_failed.swap(false, Ordering::AcqRel);
        synced?;
        if failed {
            return Err(lost_error());
        }
        if self.recording.load(Ordering::Relaxed) {
            let request = Request {
                object: id,
                offset: 0,
                hints: HintSet::UNKNOWN,
                client: 0,
            };
            self.record(&request, &object, Op::Sync, 0, Served::Unknown, started);
        }
        Ok(())
    }

    fn sync_object(&self, object: &Object, data_only: bool) -> io::Result<()> {
        if object.uncommitted.is_due() {
            let covered = object.uncommitted.begin();
            self.sync_flash(object.id)?;
            object.uncommitted.end(covered);
        }
        // A sync that is for more than data may concern attributes that only base knows of.
        if object.unsynced.is_due() || !data_only {
            self.sync_base_now(object, data_only)?;
        }
        Ok(())
    }

    /// Frames to flash or base, staged pages to flash, and a commit.
    fn sync_flash(&self, id: ObjectId) -> io::Result<()> {
        self.clean_pages(id, 0, u64::MAX)?;
        self.drain(id, 0, u64::MAX);
        if self.is_off() {
            // What was on flash goes to base, or is lost and said so.
            return self.settle(id, 0, u64::MAX);
        }
        self.commit()
    }

    /// The object's length changed on base by the frontend's own doing (fallocate).
    pub fn set_length(&self, id: ObjectId, length: u64) {
        if let Ok(object) = self.object(id) {
            object.unsynced.add();
            object.grow(length);
        }
    }
}

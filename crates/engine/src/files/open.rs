//! Base files as objects: opened and closed.
//!
//! # States of an object
//! *Open* (somebody uses it) → *lingering* (nobody does, but dirty pages wait for its base, or base
//! has writes that were never synced) → *closed* (its pages may stay on flash). A file without a
//! name goes from *open* to *buried* instead ([`super::names`]).
//!
//! The tier opens files for reasons of its own too ([`Engine::open_aside`]: to warm a file, to load
//! a pinned one). Nobody else knows of such a use. So a file that is open *aside* alone is compared
//! when somebody opens it, as one that is closed, and again when the last such use ends: until then
//! the object says what its file was (`left`), with the tier's own changes since.
//!
//! An id is given to another file only when nobody holds the object that it meant, which is the
//! [`Registry`]'s to see to.
//!
//! # Invariants
//! 1. An object is in the table of open objects under its id from its first use until it is closed
//!    or buried, and it is the only one there; the registry says *open* for exactly that time.

use crate::engine::Engine;
use crate::files::clients::client_of;
use crate::files::object::{Identity, Object, ObjectSpec, Stamp};
use crate::files::registry::Registry;
use crate::files::room::has_nothing_of;
use crate::lock::MutexGuard;
use crate::mutant::Mutant;
use crate::observe::record::name_in_trace;
use crate::store::OBJECT_END;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thermocline_core::ObjectId;

/// Files that were changed so long before the start count as changed since: base may have another
/// clock.
const NEW_BEFORE_NS: i64 = 60_000_000_000;

impl Engine {
    /// Registers an open base file. The same identity gives the same object while it is open.
    /// Each call is matched by one of [`Engine::close_object`]. Costs a sync of base where somebody
    /// else has written the file since the start.
    ///
    /// # Errors
    /// Those of the base device when its length is asked for, or when it is synced.
    pub fn open_object(&self, spec: ObjectSpec) -> io::Result<Arc<Object>> {
        self.sync_what_others_wrote(&spec)?;
        let mut registry = self.registry();
        if let Some(object) = self.open_again(&mut registry, &spec)? {
            if object.is_alone() {
                self.compare(&object)?;
                object.in_use();
            }
            object.opens.fetch_add(1, Ordering::AcqRel);
            return Ok(object);
        }
        self.open_known(&mut registry, spec, false, 0)
    }

    /// As [`Engine::open_object`], for what the tier does of its own accord. Each call is matched
    /// by one of [`Engine::close_aside`]. What changes a file that is open in no other way is
    /// noticed as if it was closed: at its next opening.
    ///
    /// # Errors
    /// As [`Engine::open_object`].
    pub fn open_aside(&self, spec: ObjectSpec) -> io::Result<Arc<Object>> {
        self.sync_what_others_wrote(&spec)?;
        let mut registry = self.registry();
        let Some(object) = self.open_again(&mut registry, &spec)? else {
            return self.open_known(&mut registry, spec, false, 1);
        };
        if object.is_alone() {
            self.compare(&object)?;
        }
        object.asides.fetch_add(1, Ordering::AcqRel);
        object.opens.fetch_add(1, Ordering::AcqRel);
        Ok(object)
    }

    /// Makes durable what others wrote to the file since the start, before copies of it can be on
    /// flash: they must not outlive a power failure that takes the file back. What was there at the
    /// start is durable, and what the engine wrote itself it remembers.
    fn sync_what_others_wrote(&self, spec: &ObjectSpec) -> io::Result<()> {
        let stamp = match (spec.stamp)() {
            Some(stamp) if spec.cached && stamp.length > 0 => stamp,
            _ => return Ok(()),
        };
        let is_new = stamp.ctime_ns.saturating_add(NEW_BEFORE_NS) >= self.started_ns;
        if !is_new || self.is_as_left(&spec.identity, stamp) {
            return Ok(());
        }
        spec.base.sync(false)
    }

    /// Whether the file is known, and nobody else changed it since it was closed.
    fn is_as_left(&self, identity: &Identity, now: Stamp) -> bool {
        let registry = self.registry();
        match registry.open_again(identity) {
            // As in `compare`: a background write of base is not waited for.
            Some(id) => self.object(id).is_ok_and(|object| {
                !object.is_alone() || self.has_dirty(id) || !object.was_changed()
            }),
            None => {
                let known = registry.closed_id(identity).is_some();
                known && registry.changed_id(identity, Some(now)).is_none()
            }
        }
    }

    /// The object of a file that is open or lingers. One that lingers and whose base was opened to
    /// be read makes way for a base that can be written, since the file's mode was changed: nothing
    /// waits for it but a sync.
    fn open_again(
        &self,
        registry: &mut Registry,
        spec: &ObjectSpec,
    ) -> io::Result<Option<Arc<Object>>> {
        let Some(id) = registry.open_again(&spec.identity) else {
            return Ok(None);
        };
        let object = self.object(id)?;
        assert_eq!(
            object.identity, spec.identity,
            "invariant 1: one file an id"
        );
        let lingers = object.opens.load(Ordering::Acquire) == 0;
        let makes_way = lingers && !object.base.can_write() && spec.base.can_write();
        let kept = object.unlinked.load(Ordering::Acquire) || self.has_dirty(id);
        // Where base refuses the sync it lingers on.
        if makes_way && !kept && self.sync_to_close(&object).is_ok() {
            self.close_now(registry, &object);
            return Ok(None);
        }
        Ok(Some(object))
    }

    /// Whether requests of the object may go to base past the engine, for as long as it is open:
    /// those of a file that neither the rules nor an earlier run let into the tier, while nothing
    /// is recorded. From then on each sync syncs base, whatever the engine knows of.
    #[doc(hidden)]
    #[must_use]
    pub fn allow_passthrough(&self, object: &Object) -> bool {
        let tiered = self.is_paged(object) || self.is_named(object.id);
        let allowed = !tiered && !self.is_recording();
        if allowed {
            object.passthrough.store(true, Ordering::Release);
        }
        allowed
    }

    /// Compares the file of an object that nobody but the tier uses with what it was when that
    /// began; its pages go when it was changed.
    fn compare(&self, object: &Object) -> io::Result<()> {
        // While newest bytes wait for base they count: nobody else has any business with it. Nor is
        // a background write of base waited for then.
        if !self.has_dirty(object.id) && object.was_changed() {
            let now = (object.stamp)();
            object.length.store(object.base.len()?, Ordering::Release);
            self.stale_objects.fetch_add(1, Ordering::Relaxed);
            self.trim_all(object.id);
            // What is changed after this was asked is a change again.
            object.left_as(now);
        }
        Ok(())
    }

    /// As [`Engine::open_object`]; with `discard` even dirty pages of a changed file go.
    pub(crate) fn open_or_discard(
        &self,
        spec: ObjectSpec,
        discard: bool,
    ) -> io::Result<Arc<Object>> {
        self.open_known(&mut self.registry(), spec, discard, 0)
    }

    fn open_known(
        &self,
        registry: &mut Registry,
        mut spec: ObjectSpec,
        discard: bool,
        asides: u32,
    ) -> io::Result<Arc<Object>> {
        let length = spec.base.len()?;
        let stamp = (spec.stamp)();
        if registry
            .changed_id(&spec.identity, stamp)
            .is_some_and(|id| !discard && self.has_dirty(id))
        {
            return Err(changed_behind(&spec.name));
        }
        let pinned = self.pins.read().matches(&spec.name);
        spec.cached |= pinned;
        // Rules that no longer cache the file do not make its dirty pages go.
        let known = registry.closed_id(&spec.identity);
        spec.cached |= known.is_some_and(|id| self.has_dirty(id));
        if spec.cached && known.is_none() {
            spec.cached = self.has_room_for(registry, &spec.name);
        }
        let unknown = |id: ObjectId| self.knows_nothing_of(id);
        let opened = registry.open(&spec.identity, stamp, spec.cached, unknown);
        let id = opened.id;
        // The map on flash has no room for more; such a file is served from base.
        spec.cached &= id.0 < OBJECT_END;
        let mut inner = self.inner();
        let doubted = registry.is_doubted(&spec.identity);
        self.decide(&mut inner, &[], |hierarchy, out| {
            hierarchy.set_pinned(id, pinned, out);
            if doubted {
                // Its id was given up with its pages when it was closed.
                hierarchy.doubt(id, out);
            }
        });
        drop(inner);
        if opened.changed {
            self.stale_objects.fetch_add(1, Ordering::Relaxed);
            // If it is not cached, base is written without rule R1 from now on.
            self.trim_all(id);
        } else {
            self.drop_past_end(id, length);
        }
        let client = client_of(&self.config.clients, &spec.name);
        let mut object = Object::new(id, spec, length, opened.counts);
        object.client = client;
        object.promised.store(opened.promised, Ordering::Release);
        let losing = registry.is_losing_name(&object.identity);
        object.under_way.loses_name(losing);
        let failed = registry.take_failed(&object.identity);
        object.failed_syncs.store(failed.into(), Ordering::Release);
        object.sync_failed.store(failed, Ordering::Release);
        if asides > 0 {
            object.asides.store(asides, Ordering::Release);
            object.left_as(stamp);
        }
        Ok(self.enter(object))
    }

    /// Drops all pages of an object that goes on, in the durable map too: who reads new bytes now
    /// must not read old ones after a crash. A map that is being read may name pages that nobody
    /// can empty yet: then what it says of the object is not to count, whoever reads it.
    pub(crate) fn trim_all(&self, id: ObjectId) {
        let mut inner = self.inner();
        let unread = inner.is_named_unread(id);
        if unread {
            inner.commits.gone(id);
        }
        drop(inner);
        self.trim_pages(id, 0, u64::MAX);
        let held = self.inner().commits.held;
        if self.is_named(id) && !self.is_off() && !held {
            // Before base is written again, too. A failed commit switches the tier off. A start
            // commits when all files were compared.
            let _ = self.commit();
        }
    }

    /// Whether neither DRAM nor flash, nor a batch to come, have anything of the id.
    fn knows_nothing_of(&self, id: ObjectId) -> bool {
        let mut inner = self.inner();
        let commits = &inner.commits;
        let noted = commits.named.contains(&id) || commits.objects.contains_key(&id);
        // A map that is being read may still name pages of those that are gone.
        if noted || inner.hierarchy.is_loading() {
            return false;
        }
        let hierarchy = &mut inner.hierarchy;
        let unknown = has_nothing_of(hierarchy, id);
        if unknown {
            hierarchy.trust(id);
        }
        unknown
    }

    /// Puts an object into the table.
    fn enter(&self, object: Object) -> Arc<Object> {
        let mut objects = self.objects.write();
        let at = object.id.0 as usize;
        if at >= objects.len() {
            objects.resize_with(at + 1, || None);
        }
        assert!(objects[at].is_none(), "invariant 1: an id is open once");
        if let Some(recorder) = self.recorder() {
            name_in_trace(&recorder, &object);
        }
        let object = Arc::new(object);
        objects[at] = Some(Arc::clone(&object));
        self.open_objects.fetch_add(1, Ordering::AcqRel);
        object
    }

    /// Takes an object out of the table.
    pub(crate) fn leave(&self, object: &Arc<Object>) {
        let mut objects = self.objects.write();
        let place = &mut objects[object.id.0 as usize];
        let before = place.take();
        assert!(
            before.is_some_and(|before| Arc::ptr_eq(&before, object)),
            "invariant 1: the object that leaves is the one that is there"
        );
        let count = self.open_objects.fetch_sub(1, Ordering::AcqRel);
        assert!(count > 0, "invariant 2");
    }

    /// Whether `object` itself, not another one under its id, is in the table.
    pub(crate) fn is_there(&self, object: &Arc<Object>) -> bool {
        let found = self.object(object.id);
        found.is_ok_and(|found| Arc::ptr_eq(&found, object))
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

    /// With more than `most` open objects, whoever ends the last use of one waits until base has
    /// all of it and it is closed. So those that linger do not use up the process's descriptors.
    /// Without a limit unless this is called.
    pub fn limit_objects(&self, most: usize) {
        self.objects_most.store(most, Ordering::Release);
    }

    /// Objects that are open or linger. O(1).
    #[must_use]
    pub fn open_objects(&self) -> usize {
        self.open_objects.load(Ordering::Acquire)
    }

    /// Ends one use of an object. Its pages stay on flash; while some are dirty it lingers. The
    /// last use of a file without a name is the end of its pages. Costs a sync of base, and in
    /// write-back writes to it, when there are too many objects ([`Engine::limit_objects`]).
    pub fn close_object(&self, object: &Arc<Object>) {
        self.end(object, 0);
    }

    /// Ends one use of an object from [`Engine::open_aside`], as [`Engine::close_object`] does.
    pub fn close_aside(&self, object: &Arc<Object>) {
        self.end(object, 1);
    }

    fn end(&self, object: &Arc<Object>, aside: u32) {
        self.give_back(object);
        let (registry, before) = self.end_use(object, aside);
        assert!(before > 0, "an object is closed as often as it was opened");
        if !object.is_alone() {
            return;
        }
        // Under the registry's lock: whoever opens it next compares with this.
        match (aside, before) {
            (0, _) => object.leave_alone(),
            // What base does not answer is compared by whoever opens it next.
            (_, 1) => drop(self.compare(object)),
            _ => return,
        }
        drop(registry);
        if before > 1 {
            self.touch(object);
            return;
        }
        if object.unlinked.load(Ordering::Acquire) {
            self.inner().graves.push(Arc::clone(object));
            self.bury_if_clean(object);
            return;
        }
        self.touch(object);
        if self.open_objects() > self.objects_most.load(Ordering::Acquire) {
            // What base refuses is tried again later; the object lingers.
            let settled = match self.has_dirty(object.id) {
                true => self.settle(object.id, 0, u64::MAX),
                false => Ok(()),
            };
            let _ = settled.and_then(|()| self.sync_to_close(object));
        }
        self.close_if_idle(object);
    }

    /// Takes one use away, the last one when nothing of the object is being read ahead; how many
    /// there were before.
    fn end_use(&self, object: &Object, aside: u32) -> (MutexGuard<'_, Registry>, u32) {
        loop {
            let registry = self.registry();
            let mut inner = self.inner();
            let last = object.opens.load(Ordering::Acquire) == 1;
            if last {
                inner.ahead.forget_object(object.id);
            }
            if !last || !inner.ahead.is_coming(object.id, &(0..u64::MAX)) {
                let asides = object.asides.fetch_sub(aside, Ordering::AcqRel);
                assert!(asides >= aside, "a use aside ends once");
                return (registry, object.opens.fetch_sub(1, Ordering::AcqRel));
            }
            drop(registry);
            drop(self.wait_for_page(inner));
        }
    }

    /// Closes a lingering object that nothing waits for any more. All is asked under the registry's
    /// lock: nobody opens it, writes and leaves in between.
    pub(crate) fn close_if_idle(&self, object: &Arc<Object>) {
        let mut registry = self.registry();
        let owed = object.base_sync_is_due() || object.unstamped.load(Ordering::Acquire);
        let unsynced = owed || object.length_due.load(Ordering::Acquire);
        let unsynced = unsynced && self.is_paged(object);
        let noted = object.under_way.cut().is_some();
        let kept = noted || object.unlinked.load(Ordering::Acquire);
        if !unsynced && !kept && !self.has_dirty(object.id) {
            self.close_now(&mut registry, object);
        }
    }

    /// Closes an object that nobody uses, dirty or not.
    pub(crate) fn really_close(&self, object: &Arc<Object>) {
        self.close_now(&mut self.registry(), object);
    }

    fn close_now(&self, registry: &mut Registry, object: &Arc<Object>) {
        let there = match self.config.planted {
            Mutant::SharedId => self.object(object.id).is_ok(),
            _ => self.is_there(object),
        };
        if object.opens.load(Ordering::Acquire) > 0 || !there {
            return;
        }
        let id = object.id;
        let saved = Self::saved_of(object);
        let resident = {
            let mut inner = self.inner();
            let unread = u32::from(inner.hierarchy.is_unread(id));
            // Until a start has made the cut that it found, the file must be found again.
            let owed = u32::from(object.cached && inner.fates.contains_key(&id));
            let resident = inner.hierarchy.resident_of(id) + unread + owed;
            // Whoever writes the map later can no longer ask the object what it is called.
            if resident > 0 && !inner.commits.named.contains(&id) {
                inner.commits.put(saved);
            }
            // The table has room for files with pages only.
            if resident == 0 {
                inner.commits.gone(id);
            }
            resident
        };
        assert!(
            object.cached || resident == 0,
            "only cached objects have pages on flash"
        );
        let reuse_id = !self.is_recording();
        let stamp = self.believable(object.last_stamp());
        registry.close(object, stamp, resident > 0, reuse_id);
        self.leave(object);
    }

    /// Syncs the base of lingering objects, and closes those that nothing waits for any more.
    pub(crate) fn close_lingering(&self) {
        let objects: Vec<Arc<Object>> = {
            let objects = self.objects.read();
            let lingers = |o: &&Arc<Object>| {
                o.opens.load(Ordering::Acquire) == 0 && !o.unlinked.load(Ordering::Acquire)
            };
            objects.iter().flatten().filter(lingers).cloned().collect()
        };
        for object in objects {
            // What base refuses is tried again; meanwhile its regions stay doubtful.
            let _ = self.sync_to_close(&object);
            self.close_if_idle(&object);
        }
    }

    pub(crate) fn all_objects(&self) -> Vec<Arc<Object>> {
        let objects = self.objects.read();
        objects.iter().flatten().map(Arc::clone).collect()
    }

    /// Closes what lingers with dirty pages: their bytes are safe on flash.
    pub(crate) fn close_all_idle(&self) {
        for object in self.all_objects() {
            self.really_close(&object);
        }
    }

    /// Panics unless the table of open objects and the registry agree (invariant 1). O(objects).
    pub(crate) fn assert_table(&self) {
        let registry = self.registry();
        let objects = self.objects.read();
        for (at, object) in objects.iter().enumerate() {
            let Some(object) = object else { continue };
            assert_eq!(object.id.0 as usize, at, "invariant 1: found by its id");
            assert_eq!(
                registry.open_again(&object.identity),
                Some(object.id),
                "invariant 1: the registry says open"
            );
        }
        assert_eq!(
            registry.open_count(),
            objects.iter().flatten().count(),
            "invariant 1: for exactly that time"
        );
        let count = objects.iter().flatten().count();
        assert_eq!(self.open_objects(), count, "invariant 2");
    }
}

fn changed_behind(name: &str) -> io::Error {
    io::Error::other(format!(
        "{name} was changed behind the tier's back while dirty pages wait for it"
    ))
}

//! Base files as objects: opened and closed.
//!
//! An object is *open*, *lingering* (nobody has it open, but dirty pages wait for its base, or base
//! has writes that were never synced) or *closed*.

use crate::engine::Engine;
use crate::files::object::{Object, ObjectSpec, Stamp};
use crate::files::registry::Registry;
use crate::observe::record::name_in_trace;
use crate::store::Fate;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thermocline_core::ObjectId;

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

    pub(crate) fn open_known(
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
        let mut objects = self.objects.write();
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
    pub(crate) fn drop_past_end(&self, id: ObjectId, length: u64) {
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
        let name = object.name.read().clone();
        let reuse_id = !self.is_recording();
        registry.close(object, (object.stamp)(), name, resident > 0, reuse_id);
        let mut objects = self.objects.write();
        objects[id.0 as usize] = None;
    }

    /// Syncs the base of lingering objects, and closes those that nothing waits for any more.
    pub(crate) fn close_lingering(&self) {
        let objects: Vec<Arc<Object>> = {
            let objects = self.objects.read();
            let lingers = |o: &&Arc<Object>| o.opens.load(Ordering::Relaxed) == 0;
            objects.iter().flatten().filter(lingers).cloned().collect()
        };
        for object in objects {
            // What base refuses is tried again; meanwhile its regions stay doubtful.
            let _ = self.sync_to_close(&object);
            self.close_if_idle(object.id);
        }
    }

    pub(crate) fn all_objects(&self) -> Vec<(ObjectId, Arc<Object>)> {
        let objects = self.objects.read();
        let all = objects.iter().flatten();
        all.map(|object| (object.id, Arc::clone(object))).collect()
    }

    /// Closes what lingers with dirty pages: their bytes are safe on flash.
    pub(crate) fn close_all_idle(&self) {
        for (_, object) in self.all_objects() {
            self.really_close(&object);
        }
    }
}

//! A file is renamed, gets other attributes, or loses its last name.
//!
//! # What base's metadata tells after a crash
//! A file that base changed later than the lease allows is taken to have been changed behind the
//! tier's back. So what the mount itself does to a file's metadata it does under a lease, like a
//! write ([`Engine::change_metadata`]), and the stamp of a closed file follows.
//!
//! # A file without a name
//! ```text
//!  announced ------------> unlinked ---------------> waiting -------------> forgotten
//!   the map says            the name is gone;         nobody has it open;    that the name is gone
//!   durably that the        whoever has the file      its pages stay         is durable on base:
//!   name may go (R6)        open goes on using it     where they are         its pages go
//! ```
//! A power failure of base before it made the change durable brings the name back, with everything
//! that was acknowledged: the pages are still there. After it, nobody waits for them: the map says
//! that the file may be gone.

use crate::engine::Engine;
use crate::files::object::{Grave, Identity, Object, Stamp};
use crate::files::registry::Registry;
use crate::mutant::Mutant;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thermocline_core::ObjectId;
use thermocline_trace::Op;

impl Engine {
    /// What the tier has of the file is no longer what base has: forgets its pages, durably. Costs
    /// a commit when flash may have some. What is known of the file's own syncs stays: it lives on.
    pub fn trim(&self, object: &Object) {
        let length = object.length();
        self.trim_all(object.id);
        self.record_quiet(Op::Trim, object, 0, length);
    }

    /// Somebody else changed the file's length: takes note of what base has. Changes nothing there,
    /// where the file may be read-only.
    ///
    /// # Errors
    /// Those of the base device when its length is asked for.
    pub fn take_length(&self, object: &Object) -> io::Result<()> {
        let _layout = object.layout_alone();
        object.length.store(object.base.len()?, Ordering::Release);
        object.room.is_gone();
        Ok(())
    }

    /// The object has a new name: for people and traces only.
    pub fn rename(&self, object: &Object, name: &str) {
        *object.name.write() = name.to_string();
        if let Some(recorder) = self.recorder() {
            recorder.name_object(object.id, name);
        }
    }

    /// A file, open or not, has a new name: after a start its clean pages are looked for under it.
    pub fn rename_file(&self, identity: &Identity, name: &str) {
        let mut registry = self.registry();
        match self.found(&registry, identity) {
            Some(object) => self.rename(&object, name),
            None => registry.rename(identity, name),
        }
        if registry.id_of(identity).is_some_and(|id| self.is_named(id)) {
            self.put_identity(&registry, identity);
        }
    }

    /// Changes a file's metadata on base (names, attributes, what was allocated) so that it is
    /// known
    /// to be the tier's own doing, after a crash and when the file is opened again. `stamp` is
    /// asked before and after. Costs a commit when the last one is older than the lease allows.
    ///
    /// # Errors
    /// Those of `change`.
    pub fn change_metadata<T>(
        &self,
        identity: &Identity,
        stamp: impl Fn() -> Option<Stamp>,
        change: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let Some(id) = self.registry().id_of(identity) else {
            return change();
        };
        if self.is_named(id) && self.config.planted != Mutant::UnleasedMetadata {
            self.before_metadata();
        }
        let object = self.found(&self.registry(), identity);
        let before = stamp();
        let changed = match &object {
            Some(object) => object.own_change(change),
            None => change(),
        };
        let after = self.believable(stamp());
        let mut registry = self.registry();
        registry.note_change(identity, before, after);
        if let Some(object) = self.found(&registry, identity) {
            // A power failure must not take back the times that it is known by when it is closed.
            object.unstamped.store(true, Ordering::Release);
        }
        changed
    }

    /// Sets a file's times on base, within [`Engine::change_metadata`]: what the tier does to the
    /// file's times is done before or comes later.
    ///
    /// # Errors
    /// Those of `set`.
    pub fn set_times(
        &self,
        identity: &Identity,
        set: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let object = self.found(&self.registry(), identity);
        match object {
            Some(object) => object.set_times(set),
            None => set(),
        }
    }

    /// The file's last name is about to go: should a crash come between, its dirty pages are then
    /// not waited for (rule R6). Matched by [`Engine::unlinked`] or [`Engine::not_unlinked`]. Flash
    /// cannot stand in the way: when it fails, the lease is waited for instead.
    pub fn before_unlink(&self, identity: &Identity) {
        // Held until the note is made: a closed file's number is its own no longer than that.
        let mut registry = self.registry();
        if self.config.planted == Mutant::SilentUnlink {
            return;
        }
        registry.loses_name(identity, true);
        let Some(id) = registry.id_of(identity) else {
            return;
        };
        if let Some(object) = self.found(&registry, identity) {
            object.under_way.loses_name(true);
        }
        if self.may_be_dirty(id) && !self.is_off() {
            self.put_identity(&registry, identity);
            drop(registry);
            // A failed commit switches the tier off.
            let _ = self.commit();
        }
    }

    /// The unlink announced by [`Engine::before_unlink`] failed: the file stays.
    pub fn not_unlinked(&self, identity: &Identity) {
        let mut registry = self.registry();
        registry.loses_name(identity, false);
        if let Some(object) = self.found(&registry, identity) {
            object.under_way.loses_name(false);
        }
        if registry.id_of(identity).is_some_and(|id| self.is_named(id)) {
            self.put_identity(&registry, identity);
        }
    }

    /// The file's last name is gone, though perhaps not durably: `grave` makes it so. Its pages go
    /// once nobody has the file open and the grave was closed.
    pub fn unlinked(&self, identity: &Identity, grave: Grave) {
        let mut registry = self.registry();
        registry.loses_name(identity, false);
        registry.believe(identity);
        if let Some(object) = self.found(&registry, identity) {
            *object.grave.lock() = Some(grave);
            object.unlinked.store(true, Ordering::Release);
            if self.is_named(object.id) {
                // It may have been clean until now: whatever is made dirty from here on is not
                // waited for when the file is gone.
                self.put_record(&object);
            }
            if object.opens.load(Ordering::Acquire) == 0 {
                self.inner().graves.push(Arc::clone(&object));
                drop(registry);
                self.bury_if_clean(&object);
            }
            return;
        }
        let mut named = false;
        // Nothing of a closed file is newer than base: should its name come back, base is right.
        if let Some(id) = registry.forget(identity, !self.is_recording()) {
            // Under the registry's lock: the id is not another file's before its pages are gone.
            self.trim_pages(id, 0, u64::MAX);
            named = self.gone(id);
        }
        drop(registry);
        if named {
            self.let_go(&grave);
        }
    }

    /// The pages of a file are gone. Where its number may be another file's once it is closed, the
    /// durable map says so before that: a crash would give that file these pages.
    fn let_go(&self, grave: &Grave) {
        let held = self.inner().commits.held;
        if grave.kept.is_some() && !held && !self.is_off() {
            // A failed commit switches the tier off.
            let _ = self.commit();
        }
    }

    /// The object of a file that is open.
    fn found(&self, registry: &Registry, identity: &Identity) -> Option<Arc<Object>> {
        let id = registry.open_again(identity)?;
        self.object(id).ok()
    }

    /// Forgets an unlinked object at once when nothing of it is newer than base.
    pub(crate) fn bury_if_clean(&self, object: &Arc<Object>) {
        if !self.has_dirty(object.id) || self.config.planted == Mutant::EarlyGrave {
            self.inner().graves.retain(|o| !Arc::ptr_eq(o, object));
            let named = self.forget_unlinked(object);
            let grave = object.grave.lock().clone();
            if let Some(grave) = grave.filter(|_| named) {
                self.let_go(&grave);
            }
        }
    }

    /// Makes durable that files have lost their names, with one sync a directory, and forgets their
    /// pages; false when there was nothing to do.
    #[doc(hidden)]
    pub fn bury(&self) -> bool {
        let graves = std::mem::take(&mut self.inner().graves);
        let mut directories: BTreeMap<(u64, u64), bool> = BTreeMap::new();
        let (mut done, mut kept) = (Vec::new(), None);
        for object in graves {
            let grave = object.grave.lock().clone();
            let durable = grave.as_ref().is_none_or(|grave| {
                let sync = || (grave.sync)().is_ok();
                *directories.entry(grave.directory).or_insert_with(sync)
            });
            if durable {
                let named = self.forget_unlinked(&object);
                kept = kept.or(grave.filter(|grave| named && grave.kept.is_some()));
                done.push(object);
            } else {
                self.inner().graves.push(object);
            }
        }
        // One commit for all, while `done` has their files open.
        if let Some(grave) = &kept {
            self.let_go(grave);
        }
        !done.is_empty()
    }

    /// Whether the durable map may name pages of it until the next commit.
    fn forget_unlinked(&self, object: &Arc<Object>) -> bool {
        let mut registry = self.registry();
        // Somebody who still had the inode opened it again, and closes it again.
        if object.opens.load(Ordering::Acquire) > 0 || !self.is_there(object) {
            return false;
        }
        self.trim_pages(object.id, 0, u64::MAX);
        let named = self.gone(object.id);
        self.record_quiet(Op::Trim, object, 0, object.length());
        registry.close(object, None, false, !self.is_recording());
        self.leave(object);
        named
    }

    /// Nothing of the object is kept: the next commit says so. Whether that is needed.
    pub(crate) fn gone(&self, id: ObjectId) -> bool {
        let mut inner = self.inner();
        inner.hierarchy.ledger_mut().forget_intents(id);
        inner.hierarchy.trust(id);
        inner.commits.gone(id)
    }

    /// Whether the durable map may name pages of the object.
    pub(crate) fn is_named(&self, id: ObjectId) -> bool {
        self.inner().commits.named.contains(&id)
    }

    /// Whether the object has dirty pages, or had some of which the durable map does not know that
    /// they are clean.
    fn may_be_dirty(&self, id: ObjectId) -> bool {
        let owes = self.inner().hierarchy.ledger().owes(id);
        owes || self.has_dirty(id)
    }

    /// The next batch is to say what is known of a file, open or closed.
    fn put_identity(&self, registry: &Registry, identity: &Identity) {
        if let Some(object) = self.found(registry, identity) {
            self.put_record(&object);
        } else if let Some(saved) = registry.saved(identity) {
            self.inner().commits.put(saved);
        }
    }
}

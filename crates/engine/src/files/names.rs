//! A file is renamed, or loses its last name. Before it does, the map on flash says so durably
//! (rule R6 of `docs/write-back.md`), so that a crash in between can be carried to its end.

use crate::engine::Engine;
use crate::store::Fate;
use std::io;
use thermocline_core::ObjectId;
use thermocline_trace::Op;

impl Engine {
    /// The file is gone for good (unlinked and released): forgets its pages.
    pub fn trim(&self, id: ObjectId) {
        let length = self.object(id).map_or(0, |object| object.length());
        self.trim_pages(id, 0, u64::MAX);
        self.gone(id);
        self.record_quiet(Op::Trim, id, 0, length);
    }

    /// As [`Engine::trim`] for a file that is not open.
    pub fn forget(&self, identity: &crate::files::object::Identity) {
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
    pub(crate) fn gone(&self, id: ObjectId) {
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
    pub fn before_unlink(&self, identity: &crate::files::object::Identity) -> io::Result<()> {
        let id = self.registry().open_again(identity);
        match id {
            // The durable map may still call pages dirty that are clean by now.
            Some(id) if self.is_named(id) => self.set_fate(id, Fate::Unlinked),
            _ => Ok(()),
        }
    }

    /// The unlink announced by [`Engine::before_unlink`] failed: the file stays.
    pub fn not_unlinked(&self, identity: &crate::files::object::Identity) {
        let id = self.registry().open_again(identity);
        if let Some(id) = id.filter(|id| self.is_named(*id))
            && let Some(object) = self.saved(id, Fate::Stays)
        {
            self.inner().commits.put(object);
        }
    }

    /// Whether the durable map may name pages of the object.
    pub(crate) fn is_named(&self, id: ObjectId) -> bool {
        self.inner().commits.named.contains(&id)
    }

    /// Durably notes what is about to happen to a file, where its pages are on flash.
    pub(crate) fn set_fate(&self, id: ObjectId, fate: Fate) -> io::Result<()> {
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
            *object.name.write() = name.to_string();
        }
        if let Some(recorder) = self.recorder() {
            recorder.name_object(id, name);
        }
    }
}

//! Room in the cache's table of files: which file may still have pages on flash.
//!
//! The table has a record for each file with pages on flash, and a fixed length. A file that was
//! closed keeps its record when its last page leaves. So before a file is let in for the first time
//! there must be room for its record beside all that is in the table, under way, or could come from
//! files that are open. Where there is none, records of closed files without pages are given up.
//! If that is not enough the file is served from base for as long as it is open.
//!
//! An eighth of the table stays free, for files that are renamed to longer names.
//!
//! Cost: O(open files) where the table could be short of room; a look at all files that the tier
//! knows once for each sixteenth of them that is opened then.

use crate::engine::Engine;
use crate::files::object::Object;
use crate::files::registry::Registry;
use crate::store::record_bytes;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use thermocline_core::{Hierarchy, ObjectId};

/// Of the table's bytes, the share that newcomers leave free.
const SPARE: u64 = 8;
/// A look at all closed files follows each time so large a part of them was opened.
const LOOK: usize = 16;

/// Whether neither DRAM nor flash, nor the durable map, have pages of the object.
pub(super) fn has_nothing_of(hierarchy: &Hierarchy, id: ObjectId) -> bool {
    let known = !hierarchy.known_in(id, 0, u64::MAX).is_empty() || hierarchy.is_unread(id);
    !known && !hierarchy.ledger().owes(id)
}

impl Engine {
    /// Whether a file of which the tier knows nothing may come to have pages on flash.
    pub(crate) fn has_room_for(&self, registry: &mut Registry, name: &str) -> bool {
        let Some(store) = self.store() else {
            return true;
        };
        let limit = |limit: u64| limit - limit / SPARE;
        let fits = |others: u64| {
            let (used, all) = store.table_room();
            used + others + record_bytes(name) <= limit(all)
        };
        if fits(self.bytes_to_come()) {
            return true;
        }
        if registry.is_look_due(LOOK) {
            self.forget_empty(registry);
        }
        let room = fits(self.bytes_to_come());
        self.unnamed_files
            .fetch_add(u32::from(!room), Ordering::Relaxed);
        room
    }

    /// Bytes of records that the table may be asked to take: those under way, and those of open
    /// files that have none yet. Records that are given up are not taken off.
    fn bytes_to_come(&self) -> u64 {
        let objects = self.all_objects();
        let inner = self.inner();
        let named = &inner.commits.named;
        let new = |object: &&Arc<Object>| object.cached && !named.contains(&object.id);
        let names = objects.iter().filter(new);
        let names: u64 = names.map(|object| record_bytes(&object.name())).sum();
        inner.commits.bytes_to_come() + names
    }

    /// Gives up the records of closed files that have no pages any more.
    fn forget_empty(&self, registry: &mut Registry) {
        for (identity, id) in registry.closed_ids() {
            if !has_nothing_of(&self.inner().hierarchy, id) {
                continue;
            }
            let forgotten = registry.forget(&identity, !self.is_recording());
            assert_eq!(forgotten, Some(id), "it was closed");
            // Under the registry's lock: nobody has opened it since.
            self.gone(id);
        }
    }
}

//! Which id belongs to which file, open or closed.
//!
//! # States of an identity
//! *Unknown* → *open* → *closed* (pages are on flash; the stamp at closing is kept) → *open*, or
//! *unknown* when its pages are gone. After a warm start the files of the saved map are *restored*,
//! which is *closed* with a stricter comparison.
//!
//! # Invariants
//! 1. An id belongs to at most one identity.
//! 2. A closed or restored identity was cached; ids of others are given out again.

use crate::flash::SavedObject;
use crate::object::{Identity, Object, Stamp};
use std::collections::HashMap;
use thermocline_core::ObjectId;

#[derive(Clone, Debug)]
enum State {
    Open,
    Closed { stamp: Option<Stamp>, name: String },
    Restored { stamp: Stamp, name: String },
}

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    known: HashMap<Identity, (ObjectId, State)>,
    free: Vec<ObjectId>,
    next: u32,
}

impl Registry {
    /// The files of a saved map.
    pub(crate) fn restore(&mut self, objects: &[SavedObject]) {
        debug_assert!(self.known.is_empty(), "restored before anything is opened");
        for object in objects {
            self.next = self.next.max(object.id.0.saturating_add(1));
            let state = State::Restored {
                stamp: object.stamp,
                name: object.name.clone(),
            };
            self.known.insert(object.identity, (object.id, state));
        }
    }

    /// The id of a file that is open already.
    pub(crate) fn open_again(&self, identity: &Identity) -> Option<ObjectId> {
        match self.known.get(identity) {
            Some((id, State::Open)) => Some(*id),
            _ => None,
        }
    }

    /// Opens a file that is not open. True when it has pages that are no longer to be believed.
    pub(crate) fn open(
        &mut self,
        identity: &Identity,
        now: Option<Stamp>,
        cached: bool,
    ) -> (ObjectId, bool) {
        if let Some((id, state)) = self.known.get_mut(identity) {
            let changed = has_changed(state, now) || !cached;
            *state = State::Open;
            return (*id, changed);
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            ObjectId(self.next - 1)
        });
        debug_assert!(id.0 < self.next, "ids count up from 0");
        debug_assert!(
            self.known.values().all(|(other, _)| *other != id),
            "invariant 1"
        );
        self.known.insert(*identity, (id, State::Open));
        (id, false)
    }

    /// The last use of `object` ended.
    pub(crate) fn close(
        &mut self,
        object: &Object,
        stamp: Option<Stamp>,
        name: String,
        has_pages: bool,
    ) {
        let known = self.known.get(&object.identity);
        debug_assert!(matches!(known, Some((id, State::Open)) if *id == object.id));
        debug_assert!(object.cached || !has_pages, "invariant 2");
        if object.cached && has_pages {
            let state = State::Closed { stamp, name };
            self.known.insert(object.identity, (object.id, state));
            return;
        }
        self.known.remove(&object.identity);
        if !object.cached {
            self.free.push(object.id);
        }
    }

    /// The file no longer exists. Its id, when it had one and is not open.
    pub(crate) fn forget(&mut self, identity: &Identity) -> Option<ObjectId> {
        match self.known.get(identity) {
            Some((id, State::Closed { .. } | State::Restored { .. })) => {
                let id = *id;
                self.known.remove(identity);
                Some(id)
            }
            _ => None,
        }
    }

    /// Name of a closed object, by id.
    pub(crate) fn closed_names(&self) -> HashMap<ObjectId, String> {
        let names = self.known.values().filter_map(|(id, state)| match state {
            State::Open => None,
            State::Closed { name, .. } | State::Restored { name, .. } => Some((*id, name.clone())),
        });
        names.collect()
    }

    /// The newest time in any stamp.
    pub(crate) fn newest_stamp_ns(&self) -> i64 {
        let stamps = self.known.values().filter_map(|(_, state)| match state {
            State::Closed { stamp, .. } => *stamp,
            _ => None,
        });
        stamps
            .map(|s| s.mtime_ns.max(s.ctime_ns))
            .max()
            .unwrap_or(i64::MIN)
    }

    /// What a warm restart needs to know of closed files.
    pub(crate) fn to_save(&self) -> Vec<SavedObject> {
        let closed = self.known.iter().filter_map(|(identity, (id, state))| {
            let (stamp, name) = match state {
                State::Open => return None,
                State::Closed { stamp, name } => ((*stamp)?, name),
                State::Restored { stamp, name } => (*stamp, name),
            };
            Some(SavedObject {
                id: *id,
                identity: *identity,
                stamp,
                name: name.clone(),
            })
        });
        let mut objects: Vec<SavedObject> = closed.collect();
        objects.sort_by_key(|o| o.id);
        objects
    }
}

/// Whether a file is no longer what it was. While mounted only contents count: attributes change
/// through the mount itself. Across an unmount everything counts.
fn has_changed(state: &State, now: Option<Stamp>) -> bool {
    match (state, now) {
        (State::Open, _) => false,
        (
            State::Closed {
                stamp: Some(then), ..
            },
            Some(now),
        ) => (then.length, then.mtime_ns) != (now.length, now.mtime_ns),
        (State::Restored { stamp, .. }, Some(now)) => *stamp != now,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Identity = Identity {
        device: 1,
        inode: 2,
        generation: 3,
    };
    const STAMP: Stamp = Stamp {
        length: 8192,
        mtime_ns: 10,
        ctime_ns: 20,
    };

    fn restored() -> Registry {
        let mut registry = Registry::default();
        let object = SavedObject {
            id: ObjectId(5),
            identity: FILE,
            stamp: STAMP,
            name: "t".into(),
        };
        registry.restore(&[object]);
        registry
    }

    #[test]
    fn a_restored_file_is_believed_only_when_nothing_changed() {
        assert_eq!(
            restored().open(&FILE, Some(STAMP), true),
            (ObjectId(5), false)
        );
        for changed in [
            Stamp { length: 1, ..STAMP },
            Stamp {
                mtime_ns: 11,
                ..STAMP
            },
            Stamp {
                ctime_ns: 21,
                ..STAMP
            },
        ] {
            assert_eq!(
                restored().open(&FILE, Some(changed), true),
                (ObjectId(5), true)
            );
        }
        assert!(
            restored().open(&FILE, None, true).1,
            "a file that cannot be asked is not believed"
        );
        let reused = Identity {
            generation: 4,
            ..FILE
        };
        assert_eq!(
            restored().open(&reused, Some(STAMP), true),
            (ObjectId(6), false)
        );
    }

    #[test]
    fn open_twice_is_one_id() {
        let mut registry = Registry::default();
        let (id, _) = registry.open(&FILE, Some(STAMP), true);
        assert_eq!(registry.open_again(&FILE), Some(id));
        assert_eq!(
            registry.forget(&FILE),
            None,
            "an open file is trimmed by its id"
        );
    }
}

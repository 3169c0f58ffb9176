//! Which id belongs to which file, open or closed.
//!
//! # States of an identity
//! *Unknown* → *open* → *closed* (pages are on flash; the stamp at closing is kept) → *open*, or
//! *unknown* when its pages are gone. After a warm start the files of the saved map are *restored*,
//! which is *closed* with a stricter comparison.
//!
//! # Invariants
//! 1. An id belongs to at most one identity.
//! 2. A closed or restored identity was cached; ids of others may be given out
//!    again, once nobody holds the object that had it and the tier knows nothing of it.
//! 3. Only what is open is closed.
//! 4. What was counted of a file goes to its client when the registry forgets it, once.

use crate::files::clients::client_of;
use crate::files::object::{Counted, Counts, Identity, Object, Stamp};
use crate::mutant::Mutant;
use crate::store::{Fate, SavedObject};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use thermocline_core::{FileKind, ObjectId};

/// Closed files remembered for a sync that failed; with so many of them every file is doubted.
const FAILED_MAX: usize = 1 << 16;

/// Free ids looked at for one that may be given out.
const FREE_TRIED: usize = 8;

#[derive(Clone, Debug)]
enum State {
    Open,
    Closed { stamp: Option<Stamp>, last: Closed },
    Restored { trust: Trust, last: Closed },
}

/// When a file of before the restart is believed to be what it was.
#[derive(Clone, Copy, Debug)]
enum Trust {
    /// After a clean stop: with exactly this stamp.
    Exact(Stamp),
    /// After a crash: when it was not changed later than this, ns since 1970.
    Until(i64, Stamp),
}

impl Trust {
    fn stamp(self) -> Stamp {
        match self {
            Self::Exact(stamp) | Self::Until(_, stamp) => stamp,
        }
    }

    fn holds(self, now: Stamp) -> bool {
        match self {
            Self::Exact(stamp) => stamp == now,
            // The time of contents may be set to anything by anybody; this one only moves on.
            Self::Until(last, _) => now.ctime_ns <= last,
        }
    }
}

/// Alive while somebody holds an object that an id meant: its counters, which the objects of a file
/// that is closed and opened again share.
type Held = Weak<Counts>;

/// What is remembered of a file that is not open.
#[derive(Clone, Debug)]
pub(crate) struct Closed {
    pub(crate) id: ObjectId,
    pub(crate) name: String,
    pub(crate) kind: FileKind,
    pub(crate) length: u64,
    pub(crate) counts: Arc<Counts>,
    pub(crate) promised: bool,
    held: Held,
}

/// What [`Registry::open`] found.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) id: ObjectId,
    /// It has pages that are no longer to be believed.
    pub(crate) changed: bool,
    pub(crate) counts: Arc<Counts>,
    pub(crate) promised: bool,
}

/// See the module text.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    known: HashMap<Identity, (ObjectId, State)>,
    /// The ids of those.
    ids: HashSet<ObjectId>,
    /// Files closed since a sync of base failed, of which no frontend was told: whoever syncs one
    /// next is.
    failed: HashSet<Identity>,
    /// Files of which a sync of base failed before they were closed: what base shows of them may be
    /// what the system gave up, for as long as this process lives.
    doubted: HashSet<Identity>,
    /// Files whose last name is about to go.
    losing: HashSet<Identity>,
    /// Ids that may be given out again once nobody holds what they meant.
    free: VecDeque<(ObjectId, Held)>,
    next: u32,
    /// Files opened for the first time since closed ones were looked through.
    opened: usize,
    /// Directories of the clients.
    clients: Vec<String>,
    /// What was counted of forgotten files, by the client's number; empty without clients.
    gone: BTreeMap<u32, Counted>,
    /// A bug on purpose.
    planted: Mutant,
}

impl Registry {
    /// One that knows no files.
    pub(crate) fn new(planted: Mutant, clients: &[String]) -> Self {
        Self {
            planted,
            clients: clients.to_vec(),
            ..Self::default()
        }
    }

    /// The files of the map found at the start; after a crash those not changed later than `until`
    /// are believed.
    pub(crate) fn restore(&mut self, objects: &[SavedObject], until: Option<i64>) {
        debug_assert!(self.known.is_empty(), "restored before anything is opened");
        for object in objects {
            self.next = self.next.max(object.id.0.saturating_add(1));
            let last = Closed {
                id: object.id,
                name: object.name.clone(),
                kind: FileKind::Unknown,
                length: object.stamp.length,
                counts: Arc::default(),
                promised: object.promised,
                held: Held::new(),
            };
            let trust = match until {
                Some(last) => Trust::Until(last, object.stamp),
                None => Trust::Exact(object.stamp),
            };
            let state = State::Restored { trust, last };
            self.known.insert(object.identity, (object.id, state));
            self.ids.insert(object.id);
        }
    }

    /// The id of a file that is open already.
    pub(crate) fn open_again(&self, identity: &Identity) -> Option<ObjectId> {
        match self.known.get(identity) {
            Some((id, State::Open)) => Some(*id),
            _ => None,
        }
    }

    /// How many files are open.
    pub(crate) fn open_count(&self) -> usize {
        let open = |state: &&(ObjectId, State)| matches!(state.1, State::Open);
        self.known.values().filter(open).count()
    }

    /// The id of a file, open or not.
    pub(crate) fn id_of(&self, identity: &Identity) -> Option<ObjectId> {
        self.known.get(identity).map(|(id, _)| *id)
    }

    /// What the table on flash is to say of a file that is not open.
    pub(crate) fn saved(&self, identity: &Identity) -> Option<SavedObject> {
        let (id, state) = self.known.get(identity)?;
        let mut saved = saved(*id, identity, state)?;
        saved.fate.unlinked = self.losing.contains(identity);
        Some(saved)
    }

    /// The file's last name is about to go, or that is over.
    pub(crate) fn loses_name(&mut self, identity: &Identity, loses: bool) {
        match loses {
            true => self.losing.insert(*identity),
            false => self.losing.remove(identity),
        };
    }

    /// Whether the file's last name is about to go.
    pub(crate) fn is_losing_name(&self, identity: &Identity) -> bool {
        self.losing.contains(identity)
    }

    /// The mount itself changed a closed file's metadata: one that was known by `before` is known
    /// by
    /// `after` now.
    pub(crate) fn note_change(
        &mut self,
        identity: &Identity,
        before: Option<Stamp>,
        after: Option<Stamp>,
    ) {
        if let Some((_, State::Closed { stamp, .. })) = self.known.get_mut(identity)
            && stamp.is_some()
            && *stamp == before
        {
            *stamp = after;
        }
    }

    /// A file that is not open has a new name.
    pub(crate) fn rename(&mut self, identity: &Identity, name: &str) {
        assert!(!name.is_empty(), "a file has a name to show");
        let state = self.known.get_mut(identity).map(|(_, state)| state);
        if let Some(State::Closed { last, .. } | State::Restored { last, .. }) = state {
            last.name = name.into();
        }
    }

    /// A restored file was compared and is what it was: from now on it is like one that was closed.
    pub(crate) fn compared(&mut self, identity: &Identity, now: Option<Stamp>) {
        if let Some((_, state)) = self.known.get_mut(identity)
            && let State::Restored { last, .. } = state
        {
            let last = last.clone();
            *state = State::Closed { stamp: now, last };
        }
    }

    /// The id of a file that is not open.
    pub(crate) fn closed_id(&self, identity: &Identity) -> Option<ObjectId> {
        match self.known.get(identity) {
            Some((id, State::Closed { .. } | State::Restored { .. })) => Some(*id),
            _ => None,
        }
    }

    /// The id of a file that is not open and no longer what it was.
    pub(crate) fn changed_id(&self, identity: &Identity, now: Option<Stamp>) -> Option<ObjectId> {
        let (id, state) = self.known.get(identity)?;
        has_changed(state, now).then_some(*id)
    }

    /// Opens a file that is not open.
    pub(crate) fn open(
        &mut self,
        identity: &Identity,
        now: Option<Stamp>,
        cached: bool,
        is_unknown: impl Fn(ObjectId) -> bool,
    ) -> Opened {
        if let Some((id, state)) = self.known.get_mut(identity) {
            let changed = has_changed(state, now) || !cached;
            let (counts, promised) = match std::mem::replace(state, State::Open) {
                State::Closed { last, .. } | State::Restored { last, .. } => {
                    (last.counts, last.promised)
                }
                State::Open => (Arc::default(), false),
            };
            return Opened {
                id: *id,
                changed,
                counts,
                promised,
            };
        }
        self.opened += 1;
        let id = self.new_id(is_unknown);
        debug_assert!(id.0 < self.next, "ids count up from 0");
        assert!(self.ids.insert(id), "invariant 1: {id:?} is another file's");
        self.known.insert(*identity, (id, State::Open));
        Opened {
            id,
            changed: false,
            counts: Arc::default(),
            promised: false,
        }
    }

    /// An id that means nothing to anybody: one of those free for longest, when nobody holds what
    /// it meant and the tier has nothing of it, or a new one.
    fn new_id(&mut self, is_unknown: impl Fn(ObjectId) -> bool) -> ObjectId {
        for _ in 0..self.free.len().min(FREE_TRIED) {
            let Some((id, held)) = self.free.pop_front() else {
                break;
            };
            if held.strong_count() == 0 && is_unknown(id) {
                return id;
            }
            self.free.push_back((id, held));
        }
        self.next += 1;
        ObjectId(self.next - 1)
    }

    /// The last use of `object` ended. A trace tells objects apart by their ids, so ids are not
    /// given out again while one is recorded.
    pub(crate) fn close(
        &mut self,
        object: &Arc<Object>,
        stamp: Option<Stamp>,
        has_pages: bool,
        reuse_id: bool,
    ) {
        let known = self.known.get(&object.identity);
        assert!(
            matches!(known, Some((id, State::Open)) if *id == object.id),
            "invariant 3: what is closed was open"
        );
        assert!(object.cached || !has_pages, "invariant 2");
        if object.sync_failed.load(Ordering::Acquire) && self.failed.len() < FAILED_MAX {
            self.failed.insert(object.identity);
        }
        let gone = object.unlinked.load(Ordering::Acquire);
        let doubted = object.failed_syncs.load(Ordering::Acquire) > 0;
        if doubted && !gone && self.doubted.len() < FAILED_MAX {
            self.doubted.insert(object.identity);
        }
        let held = match self.planted {
            Mutant::SharedId => Held::new(),
            _ => Arc::downgrade(&object.counts),
        };
        if object.cached && has_pages {
            let last = Closed {
                id: object.id,
                name: object.name(),
                kind: object.kind,
                length: object.length(),
                counts: Arc::clone(&object.counts),
                promised: object.promised.load(Ordering::Acquire),
                held,
            };
            let state = State::Closed { stamp, last };
            self.known.insert(object.identity, (object.id, state));
            return;
        }
        self.known.remove(&object.identity);
        self.ids.remove(&object.id);
        self.keep_counts(&object.name(), &object.counts);
        if reuse_id {
            self.set_free(object.id, held);
        }
    }

    /// Whether a sync of base failed before the file was closed, and nobody was told; asked once.
    pub(crate) fn take_failed(&mut self, identity: &Identity) -> bool {
        self.failed.remove(identity)
    }

    /// Whether flash is to keep no clean copies of the file that is being opened.
    pub(crate) fn is_doubted(&self, identity: &Identity) -> bool {
        self.doubted.contains(identity) || self.doubted.len() >= FAILED_MAX
    }

    /// The file of this identity is gone: another one that gets it is another file.
    pub(crate) fn believe(&mut self, identity: &Identity) {
        self.doubted.remove(identity);
    }

    fn set_free(&mut self, id: ObjectId, held: Held) {
        debug_assert!(self.free.iter().all(|(free, _)| *free != id), "freed once");
        self.free.push_back((id, held));
    }

    /// The file no longer exists. Its id, when it had one and is not open.
    pub(crate) fn forget(&mut self, identity: &Identity, reuse_id: bool) -> Option<ObjectId> {
        self.closed_id(identity)?;
        let (id, state) = self.known.remove(identity)?;
        self.ids.remove(&id);
        if let State::Closed { last, .. } | State::Restored { last, .. } = state {
            self.keep_counts(&last.name, &last.counts);
            if reuse_id {
                self.set_free(id, last.held);
            }
        }
        Some(id)
    }

    /// A file called `name` is known no more, but its client is.
    fn keep_counts(&mut self, name: &str, counts: &Counts) {
        if self.clients.is_empty() {
            return;
        }
        let client = client_of(&self.clients, name);
        self.gone.entry(client).or_default().add(counts.now());
    }

    /// What was counted of files that are not known any more, by the client's number.
    pub(crate) fn gone(&self) -> &BTreeMap<u32, Counted> {
        &self.gone
    }

    /// Whether files have been opened for the first time since this was last so, as many as the
    /// `part`th part of all that are known.
    pub(crate) fn is_look_due(&mut self, part: usize) -> bool {
        let due = self.opened * part >= self.known.len();
        if due {
            self.opened = 0;
        }
        due
    }

    /// Identities and ids of files that are not open.
    pub(crate) fn closed_ids(&self) -> Vec<(Identity, ObjectId)> {
        let closed = self.known.iter().filter_map(|(identity, (id, state))| {
            let open = matches!(state, State::Open);
            (!open).then_some((*identity, *id))
        });
        closed.collect()
    }

    /// Files that are not open.
    pub(crate) fn closed(&self) -> Vec<Closed> {
        let closed = self.known.values().filter_map(|(_, state)| match state {
            State::Open => None,
            State::Closed { last, .. } | State::Restored { last, .. } => Some(last.clone()),
        });
        closed.collect()
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
        let closed = self
            .known
            .iter()
            .filter_map(|(identity, (id, state))| saved(*id, identity, state));
        let mut objects: Vec<SavedObject> = closed.collect();
        objects.sort_by_key(|o| o.id);
        objects
    }
}

/// What the table on flash is to say of a file that is not open and can be asked for its stamp.
fn saved(id: ObjectId, identity: &Identity, state: &State) -> Option<SavedObject> {
    let (stamp, last) = match state {
        State::Open => return None,
        State::Closed { stamp, last } => ((*stamp)?, last),
        State::Restored { trust, last } => (trust.stamp(), last),
    };
    Some(SavedObject {
        fate: Fate::default(),
        id,
        identity: *identity,
        stamp,
        name: last.name.clone(),
        promised: last.promised,
    })
}

/// Whether a file is no longer what it was. Its time of any change tells, because what the mount
/// itself does to a closed file is noted ([`Registry::note_change`]).
fn has_changed(state: &State, now: Option<Stamp>) -> bool {
    match (state, now) {
        (State::Open, _) => false,
        (
            State::Closed {
                stamp: Some(then), ..
            },
            Some(now),
        ) => *then != now,
        (State::Restored { trust, .. }, Some(now)) => !trust.holds(now),
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
        restored_until(None)
    }

    fn restored_until(until: Option<i64>) -> Registry {
        let mut registry = Registry::default();
        let object = SavedObject {
            id: ObjectId(5),
            identity: FILE,
            stamp: STAMP,
            name: "t".into(),
            fate: Fate::default(),
            promised: true,
        };
        registry.restore(&[object], until);
        registry
    }

    fn open(mut registry: Registry, identity: &Identity, stamp: Option<Stamp>) -> (u32, bool) {
        let opened = registry.open(identity, stamp, true, |_| true);
        (opened.id.0, opened.changed)
    }

    #[test]
    fn a_restored_file_is_believed_only_when_nothing_changed() {
        assert_eq!(open(restored(), &FILE, Some(STAMP)), (5, false));
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
            assert_eq!(open(restored(), &FILE, Some(changed)), (5, true));
        }
        assert!(
            open(restored(), &FILE, None).1,
            "a file that cannot be asked is not believed"
        );
        let reused = Identity {
            generation: 4,
            ..FILE
        };
        assert_eq!(open(restored(), &reused, Some(STAMP)), (6, false));
    }

    #[test]
    fn after_a_crash_only_later_changes_count() {
        let grown = Stamp {
            length: 1 << 20,
            mtime_ns: 90,
            ctime_ns: 100,
        };
        assert_eq!(
            open(restored_until(Some(100)), &FILE, Some(grown)),
            (5, false)
        );
        assert_eq!(
            open(restored_until(Some(99)), &FILE, Some(grown)),
            (5, true)
        );
        let registry = restored_until(Some(99));
        assert_eq!(registry.changed_id(&FILE, Some(grown)), Some(ObjectId(5)));
        assert_eq!(registry.changed_id(&FILE, Some(STAMP)), None);
    }

    #[test]
    fn open_twice_is_one_id() {
        let mut registry = Registry::default();
        let id = registry.open(&FILE, Some(STAMP), true, |_| true).id;
        assert_eq!(registry.open_again(&FILE), Some(id));
        assert_eq!(
            registry.forget(&FILE, true),
            None,
            "an open file is trimmed by its id"
        );
    }

    #[test]
    fn the_id_of_a_file_that_went_is_given_out_again() {
        let other = Identity { inode: 3, ..FILE };
        for (reuse_id, known_of, wanted) in [
            (true, false, 5),
            (true, true, 6),   // the tier still has pages of it
            (false, false, 6), // a trace is being recorded
        ] {
            let mut registry = restored();
            assert_eq!(registry.forget(&FILE, reuse_id), Some(ObjectId(5)));
            let opened = registry.open(&other, Some(STAMP), true, |_| !known_of);
            assert_eq!(opened.id, ObjectId(wanted), "{reuse_id} {known_of}");
        }
    }

    #[test]
    fn what_was_counted_of_a_closed_file_that_goes_stays_with_its_client() {
        let mut registry = restored();
        registry.clients = vec!["other".into(), "t".into()];
        if let Some((_, State::Restored { last, .. })) = registry.known.get_mut(&FILE) {
            last.name = "t/file".into();
            last.counts.reads.store(7, Ordering::Relaxed);
        }
        assert_eq!(registry.forget(&FILE, true), Some(ObjectId(5)));
        let counted = registry.gone().get(&2).map(|of| of.reads);
        assert_eq!(counted, Some(7), "invariant 4");
        assert_eq!(registry.forget(&FILE, true), None);
        assert_eq!(registry.gone().len(), 1, "invariant 4: once");
    }
}

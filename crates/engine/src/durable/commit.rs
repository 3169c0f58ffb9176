//! Group commit: one sync of the flash device serves everybody who waits for it.
//!
//! A commit makes durable what the map says now and the bytes it names. Whoever finds no commit
//! under way makes one; whoever comes meanwhile waits for the next, which carries their changes.

use crate::durable::lease::{LEASE, MARGIN};
use crate::engine::Engine;
use crate::files::object::Object;
use crate::lock::MutexGuard;
use crate::mutant::Mutant;
use crate::state::Inner;
use crate::store::{Batch, Fate, ObjectChange, SavedObject};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thermocline_core::{Fault, MapChange, ObjectId};

/// State of commits, under the engine's lock.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    begun: u64,
    ended: u64,
    under_way: bool,
    /// When the newest batch was made, by [`Clock::now`](crate::clock::Clock::now).
    pub(crate) newest: Option<Duration>,
    /// When the batch was made that is being written.
    making: Option<Duration>,
    /// When a map of an earlier run was found: its newest batch is older.
    pub(crate) found: Option<Duration>,
    /// Files found at the start are not compared yet: a commit would move the time by which a
    /// change of theirs is noticed, so none is made that nobody waits for.
    pub(crate) held: bool,
    /// Base was written since then.
    pub(crate) base_written: bool,
    /// Marked regions from which on some are taken back; 0 for a device not asked yet.
    pub(crate) spare_marks_at: usize,
    /// Objects the table on flash has.
    pub(crate) named: BTreeSet<ObjectId>,
    /// Changes of the table for the next batch.
    pub(crate) objects: BTreeMap<ObjectId, ObjectChange>,
    /// Commits and syncs of the device so far.
    pub(crate) count: u64,
}

impl Commits {
    /// What is under way with an object, for the next batch.
    pub(crate) fn put(&mut self, object: SavedObject) {
        self.named.insert(object.id);
        self.objects.insert(object.id, ObjectChange::Put(object));
    }

    /// The object is gone for good.
    pub(crate) fn gone(&mut self, id: ObjectId) {
        if self.named.remove(&id) {
            self.objects.insert(id, ObjectChange::Gone(id));
        }
    }

    /// Whether a batch is being written.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way
    }

    /// No batch is made until [`Commits::moved`]: the device is being replaced.
    pub(crate) fn seize(&mut self) {
        debug_assert!(!self.under_way, "one batch at a time");
        self.under_way = true;
    }

    /// Batches go to another device now, which knows of no object yet.
    pub(crate) fn moved(&mut self) {
        debug_assert!(self.under_way, "it was seized");
        self.objects
            .retain(|_, change| matches!(change, ObjectChange::Put(_)));
        self.named = self.objects.keys().copied().collect();
        self.spare_marks_at = 0;
        self.under_way = false;
        self.let_go();
    }

    /// The device knows that it is no longer used: no file has to look newer than its newest batch.
    fn let_go(&mut self) {
        (self.newest, self.found) = (None, None);
    }

    /// A time that no batch which counts after a restart is younger than.
    pub(crate) fn newest_or_found(&self) -> Option<Duration> {
        self.making.or(self.newest).or(self.found)
    }

    /// Whether base may be written at this moment, `now`.
    pub(crate) fn has_lease(&self, now: Duration) -> bool {
        self.newest
            .is_some_and(|at| now.saturating_sub(at) < LEASE - MARGIN)
    }
}

impl Engine {
    /// Makes durable whatever changed before the call.
    ///
    /// # Errors
    /// Those of the flash device; the tier is then off.
    pub(crate) fn commit(&self) -> io::Result<()> {
        let mut inner = self.inner();
        inner.commits.held = false;
        let target = inner.commits.begun + 1;
        while inner.commits.ended < target {
            if inner.hierarchy.is_off() {
                return Err(io::Error::other("the flash device has failed"));
            }
            inner = match inner.commits.under_way {
                true => self.wait_for_commit(inner),
                false => self.commit_once(inner)?,
            };
        }
        Ok(())
    }

    pub(crate) fn commit_once<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
    ) -> io::Result<MutexGuard<'a, Inner>> {
        let Some(store) = self.store() else {
            return Err(io::Error::other("there is no flash device"));
        };
        let Some(batch) = self.next_batch(&mut inner) else {
            // What a batch that failed was about to say is not known to the device.
            return Err(io::Error::other("a batch has failed"));
        };
        inner.commits.under_way = true;
        inner.commits.begun += 1;
        let made = self.config.clock.now();
        inner.commits.making = Some(made);
        drop(inner);
        let done = self.fence_holds().and_then(|()| store.commit(&batch));
        let mut inner = self.inner();
        inner.commits.under_way = false;
        inner.commits.making = None;
        inner.commits.count += 1;
        // A batch that failed may have reached the device: its lease is to be outlasted too.
        inner.commits.newest = Some(made);
        if done.is_ok() {
            inner.commits.ended = inner.commits.begun;
            inner.commits.base_written = false;
        }
        self.decide(&mut inner, &[], |hierarchy, out| match &done {
            Ok(()) => hierarchy.end_commit(out),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                hierarchy.fail(Fault::TimedOut, out);
            }
            Err(_) => hierarchy.fail(Fault::WriteError, out),
        });
        self.signals.committed.notify_all();
        done.map(|()| inner)
    }

    pub(crate) fn wait_for_commit<'a>(
        &self,
        inner: MutexGuard<'a, Inner>,
    ) -> MutexGuard<'a, Inner> {
        debug_assert!(!self.config.inline, "one thread waits for nobody");

        self.signals.committed.wait(inner)
    }

    pub(crate) fn next_batch(&self, inner: &mut Inner) -> Option<Batch> {
        let mut changes = inner.hierarchy.begin_commit()?;
        if self.config.planted == Mutant::SilentTrim {
            changes.retain(|change| !matches!(change, MapChange::Set { entry: None, .. }));
        }
        for change in &changes {
            let MapChange::Set {
                entry: Some(entry), ..
            } = change
            else {
                continue;
            };
            let id = entry.page.object;
            if !inner.commits.named.contains(&id)
                && let Ok(object) = self.object(id)
            {
                inner.commits.put(Self::saved_of(&object, Fate::Stays));
            }
        }
        let objects = std::mem::take(&mut inner.commits.objects);
        Some(Batch {
            changes,
            objects: objects.into_values().collect(),
            // Stamps of files are compared with it.
            time_ns: self.base_wall_ns(),
        })
    }

    /// What the table on flash is to say of an object.
    pub(crate) fn saved_of(object: &Object, fate: Fate) -> SavedObject {
        let unlinked = object.unlinked.load(Ordering::Acquire);
        SavedObject {
            id: object.id,
            identity: object.identity,
            stamp: (object.stamp)().unwrap_or_default(),
            name: object.name(),
            // Whatever else is under way with it, it may be gone after a crash.
            fate: if unlinked { Fate::Unlinked } else { fate },
            promised: object.promised.load(Ordering::Acquire),
        }
    }

    /// The tier was switched off with a working device: says so durably, so that nobody has to
    /// outlast the lease. Should that fail they do.
    pub(crate) fn commit_nothing(&self) {
        let mut inner = self.inner();
        // What is under way does not know of it yet.
        while inner.commits.under_way {
            inner = self.wait_for_commit(inner);
        }
        if self.has_flash && self.commit_once(inner).is_ok() {
            self.inner().commits.let_go();
            self.page_free.notify_all();
        }
    }

    /// Whether a commit should be made though nobody waits for one.
    pub(crate) fn commit_due(&self, inner: &Inner) -> bool {
        let commits = &inner.commits;
        let waits = commits.held || commits.under_way;
        if !self.has_flash || inner.hierarchy.is_off() || waits {
            return false;
        }
        let now = self.config.clock.now();
        let old = (commits.newest).is_none_or(|at| now.saturating_sub(at) > LEASE / 4);
        let ledger = inner.hierarchy.ledger();
        let changed = ledger.changed();
        let many = changed > (ledger.blocks() as usize / 64).max(64);
        let aged = old && (commits.base_written || changed > 0);
        inner.hierarchy.wants_commit() || many || aged
    }
}

//! Group commit: one sync of the flash device serves everybody who waits for it, and the lease
//! under which base may be written.
//!
//! A commit makes durable what the map says now and the bytes it names. Whoever finds no commit
//! under way makes one; whoever comes meanwhile waits for the next, which carries their changes.
//!
//! # The lease
//! After a crash a file that was changed later than [`LEASE`] after the newest batch is taken to
//! have been changed behind the tier's back. So base is written only within that time of a commit
//! (less two seconds for slow I/O), and whoever is late commits first. When the device has failed,
//! base is written only after the lease has run out: should the device come back after a restart,
//! its copies are then seen to be older.

use crate::clock::{self, Moment};
use crate::engine::{Engine, Inner};
use crate::mutant::{self, Mutant};
use crate::store::{Batch, Fate, ObjectChange, SavedObject};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;
use thermocline_core::{Fault, MapChange, ObjectId, PageId};

/// See the module text.
pub const LEASE: Duration = Duration::from_secs(6);
/// How long before its end a lease is no longer used.
const MARGIN: Duration = Duration::from_secs(2);
/// How much longer than the lease is waited for its end: file systems give times by a clock that
/// is some hundredths of a second behind.
const TICKS: Duration = Duration::from_millis(100);

/// State of commits, under the engine's lock.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    begun: u64,
    ended: u64,
    under_way: bool,
    /// When the newest batch was made.
    newest: Option<Moment>,
    /// Files found at the start are not compared yet: a commit would move the time by which a
    /// change of theirs is noticed, so none is made that nobody waits for.
    pub(crate) held: bool,
    /// Base was written since then.
    pub(crate) base_written: bool,
    /// Objects the table on flash has.
    pub(crate) named: BTreeSet<ObjectId>,
    /// Changes of the table for the next batch.
    objects: BTreeMap<ObjectId, ObjectChange>,
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
        (self.under_way, self.newest) = (false, None);
    }

    fn has_lease(&self) -> bool {
        self.newest.is_some_and(|at| at.elapsed() < LEASE - MARGIN)
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

    fn commit_once<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
    ) -> io::Result<MutexGuard<'a, Inner>> {
        let Some(store) = self.store() else {
            return Err(io::Error::other("there is no flash device"));
        };
        let batch = self.next_batch(&mut inner);
        let Some(batch) = batch else { return Ok(inner) };
        inner.commits.under_way = true;
        inner.commits.begun += 1;
        let made = Moment::now();
        drop(inner);
        let done = self.fence_holds().and_then(|()| store.commit(&batch));
        let mut inner = self.inner();
        inner.commits.under_way = false;
        inner.commits.count += 1;
        let Inner {
            hierarchy, actions, ..
        } = &mut *inner;
        match &done {
            Ok(()) => hierarchy.end_commit(actions),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                hierarchy.fail(Fault::TimedOut, actions);
            }
            Err(_) => hierarchy.fail(Fault::WriteError, actions),
        }
        // A batch that failed may have reached the device: its lease is to be outlasted too.
        inner.commits.newest = Some(made);
        if done.is_ok() {
            inner.commits.ended = inner.commits.begun;
            inner.commits.base_written = false;
        }
        self.carry_out(&mut inner, &[]);
        self.signals.committed.notify_all();
        done.map(|()| inner)
    }

    fn wait_for_commit<'a>(&self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        debug_assert!(!self.config.inline, "one thread waits for nobody");
        let waited = self.signals.committed.wait(inner);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    fn next_batch(&self, inner: &mut Inner) -> Option<Batch> {
        let mut changes = inner.hierarchy.begin_commit()?;
        if mutant::is(Mutant::SilentTrim) {
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
                && let Some(object) = self.saved(id, Fate::Stays)
            {
                inner.commits.put(object);
            }
        }
        let objects = std::mem::take(&mut inner.commits.objects);
        Some(Batch {
            changes,
            objects: objects.into_values().collect(),
            // Stamps of files are compared with it: by base's clock.
            time_ns: clock::wall_ns().saturating_add(self.config.clock_offset_ns),
        })
    }

    /// What the table on flash says of an open object.
    pub(crate) fn saved(&self, id: ObjectId, fate: Fate) -> Option<SavedObject> {
        let object = self.object(id).ok()?;
        let name = object.name.read().unwrap_or_else(PoisonError::into_inner);
        Some(SavedObject {
            id,
            identity: object.identity,
            stamp: (object.stamp)().unwrap_or_default(),
            name: name.clone(),
            fate,
        })
    }

    /// Waits until base may be written at `pages` (rules R1 and R2, and the lease); matched by
    /// [`Engine::base_written`]. While the tier is off, waits for the lease to end, once.
    pub(crate) fn before_base_write(&self, pages: &[PageId]) {
        if !self.has_flash {
            return;
        }
        let mut inner = self.inner();
        for page in pages {
            inner.hierarchy.ledger_mut().intend(*page);
        }
        inner.commits.base_written = true;
        loop {
            let off = inner.hierarchy.is_off();
            let lease = inner.commits.has_lease();
            let ledger = inner.hierarchy.ledger();
            if off {
                drop(inner);
                return self.outlast();
            }
            if lease && pages.iter().all(|page| ledger.may_write_base(*page)) {
                return;
            }
            drop(inner);
            // A failed commit switches the tier off.
            let _ = self.commit();
            inner = self.inner();
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
            self.inner().commits.newest = None;
            self.page_free.notify_all();
        }
    }

    /// Sleeps until the last lease has certainly run out.
    pub(crate) fn outlast(&self) {
        let mut inner = self.inner();
        while let Some(newest) = inner.commits.newest {
            let left = (LEASE + TICKS).saturating_sub(newest.elapsed());
            if left.is_zero() {
                return;
            }
            if self.config.inline {
                return clock::pass(left);
            }
            let waited = self.page_free.wait_timeout(inner, left);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The base writes of `pages` ended, well or not.
    pub(crate) fn base_written(&self, pages: &[PageId]) {
        if !self.has_flash {
            return;
        }
        let mut inner = self.inner();
        for page in pages {
            inner.hierarchy.ledger_mut().base_written(*page);
        }
    }

    /// Whether a commit should be made though nobody waits for one.
    pub(crate) fn commit_due(&self, inner: &Inner) -> bool {
        let commits = &inner.commits;
        let waits = commits.held || commits.under_way;
        if !self.has_flash || inner.hierarchy.is_off() || waits {
            return false;
        }
        let old = commits.newest.is_none_or(|at| at.elapsed() > LEASE / 4);
        let ledger = inner.hierarchy.ledger();
        let changed = ledger.changed();
        let many = changed > (ledger.blocks() as usize / 64).max(64);
        let aged = old && (commits.base_written || changed > 0);
        inner.hierarchy.wants_commit() || many || aged
    }
}

//! Group commit: one sync of the flash device serves everybody who waits for it.
//!
//! A commit makes durable what the map says now and the bytes it names. Whoever finds that one can
//! be made makes it; whoever comes meanwhile waits for the next, which carries their changes.
//!
//! # States of a commit
//! ```text
//!  writing (its batch and the pages it names) --> written --> being synced --> ended
//! ```
//! Two are under way at most: the next one is written while one is being synced. Whoever makes one
//! sees it to its end; when one was written or ended, one of those who wait is woken to make the
//! next or to sync it, and when it ended all whose commit it was.
//!
//! # Invariants
//! 1. One commit at a time is being written, and none while two are under way.
//! 2. One sync at a time is under way; it is for the commits that were written before it began.
//! 3. Commits end in the order in which they were begun, each after a sync that was for it: so one
//!    that has ended has all before it on the device.
//! 4. When a sync fails, so do all commits that were written, and the one that is being written
//!    finds the store poisoned. Whoever waits for any of them has the error.
//! 5. No commit is begun while one is under way of which a page could not be written: the journal
//!    named that page's block at first, so the block is used again only after that.
//!
//! While somebody waits for a sync, whoever makes the commit also writes all staged pages: together
//! with the batch that names them, so that nobody waits for a page, then for the journal, then for
//! the device. Other writers take none meanwhile. The batch *settles* what was staged before it:
//! pages that it could not take, or that could not be written, wait for another.
//!
//! When much is staged while a commit is under way, those who wait for the next one write it, as
//! writers do: the device is given bytes while it makes the batch durable, and the next batch only
//! names them.

use crate::device::AlignedBuf;
use crate::durable::lease::{LEASE, MARGIN};
use crate::engine::Engine;
use crate::files::object::Object;
use crate::lifecycle::background::{take_jobs, write_batch};
use crate::lock::{self, MutexGuard};
use crate::mutant::Mutant;
use crate::state::Inner;
use crate::store::{Batch, NewPage, ObjectChange, SavedObject, checksum};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thermocline_core::health::Way;
use thermocline_core::ledger::UNDER_WAY_MAX;
use thermocline_core::{BlockId, Fault, MapChange, ObjectId, WriteJob};

/// Pages staged from which on those who wait for a commit write them. Fewer cost less as part of
/// the next commit than as a request of their own.
const WRITE_MEANWHILE: u32 = 16;

/// State of commits, under the engine's lock.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    begun: u64,
    ended: u64,
    /// Those under way, oldest first.
    under_way: VecDeque<Commit>,
    /// The newest of them is being written.
    writing: bool,
    /// The device is being synced for some of the others.
    syncing: bool,
    /// None is made: the device is being replaced.
    seized: bool,
    /// When the newest batch was made, by [`Clock::now`](crate::clock::Clock::now).
    pub(crate) newest: Option<Duration>,
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
    /// Bytes of the records in those, and in the batch under way.
    new_bytes: [u64; 2],
    /// Commits and syncs of the device so far.
    pub(crate) count: u64,
    /// Those who wait for a commit: they know it by its number.
    waiting: u32,
    /// Those who wait for staged pages to be durable.
    syncs: u32,
    /// Pages staged before so many stagings are durable, or newer bytes of them.
    settled: u64,
}

/// A commit under way.
#[derive(Debug)]
struct Commit {
    number: u64,
    /// When its batch was made.
    made: Duration,
    /// What it settles when it ends.
    settles: u64,
    /// Its pages, where one of them could not be written: they end with it.
    held_back: Option<(Pages, Vec<Result<(), Fault>>)>,
}

impl Commits {
    /// What is under way with an object, for the next batch.
    pub(crate) fn put(&mut self, object: SavedObject) {
        self.named.insert(object.id);
        self.change(object.id, ObjectChange::Put(object));
    }

    fn change(&mut self, id: ObjectId, change: ObjectChange) {
        self.new_bytes[0] += change.bytes();
        if let Some(before) = self.objects.insert(id, change) {
            assert!(self.new_bytes[0] >= before.bytes(), "bytes are counted");
            self.new_bytes[0] -= before.bytes();
        }
    }

    /// Takes the changes for a batch: first what is gone, to make room for the rest.
    fn take_changes(&mut self) -> Vec<ObjectChange> {
        self.new_bytes = [0, self.new_bytes[0]];
        let objects = std::mem::take(&mut self.objects).into_values();
        let (mut gone, put): (Vec<_>, Vec<_>) =
            objects.partition(|change| matches!(change, ObjectChange::Gone(_)));
        gone.extend(put);
        gone
    }

    /// Bytes of records that are not in the table yet.
    pub(crate) fn bytes_to_come(&self) -> u64 {
        self.new_bytes[0] + self.new_bytes[1]
    }

    /// The object is gone for good.
    /// The durable map may name it until the next batch where the answer is true.
    pub(crate) fn gone(&mut self, id: ObjectId) -> bool {
        let named = self.named.remove(&id);
        if named {
            self.change(id, ObjectChange::Gone(id));
        }
        named
    }

    /// Whether staged pages are left to whoever makes the next commit.
    pub(crate) fn takes_pages(&self) -> bool {
        self.syncs > 0
    }

    /// Whether a batch is being written or made durable, or the device is being replaced.
    pub(crate) fn is_under_way(&self) -> bool {
        self.seized || !self.under_way.is_empty()
    }

    /// Whether a batch is under way, or somebody waits for one, perhaps for one that has failed.
    pub(crate) fn is_in_use(&self) -> bool {
        self.is_under_way() || self.waiting > 0
    }

    /// Whether one can be begun now.
    fn may_begin(&self) -> bool {
        let held_back = |commit: &Commit| commit.held_back.is_some();
        let busy = self.seized || self.writing || self.under_way.iter().any(held_back);
        !busy && self.under_way.len() < UNDER_WAY_MAX
    }

    /// Those that are written and wait for a sync, or have one.
    fn written(&self) -> usize {
        self.under_way.len() - usize::from(self.writing)
    }

    /// Whether somebody should sync the device.
    pub(crate) fn may_sync(&self) -> bool {
        !self.syncing && self.written() > 0
    }

    /// Whether the end of those under way is all that somebody waits for who wants number `target`,
    /// and settled what was staged before so many stagings.
    fn is_promised(&self, target: u64, staged: u64) -> bool {
        let settles = |commit: &Commit| commit.settles >= staged;
        let settled = self.settled >= staged || self.under_way.iter().any(settles);
        target <= self.begun && settled
    }

    /// The commit that he waits for.
    fn awaited(&self, target: u64, staged: u64) -> u64 {
        if self.ended < target {
            return target;
        }
        let mut settling = self.under_way.iter().filter(|c| c.settles >= staged);
        settling.next().map_or(self.begun + 1, |c| c.number)
    }

    /// Commits of a map that begins anew. Numbers begin anew, too, so nobody may wait for one.
    pub(crate) fn begin_anew(&mut self) {
        *self = Self {
            // Those who look once while the tier is off, and go.
            waiting: self.waiting,
            syncs: self.syncs,
            ..Self::default()
        };
    }

    /// No batch is made until [`Commits::moved`]: the device is being replaced.
    pub(crate) fn seize(&mut self) {
        assert!(!self.is_under_way(), "those under way have ended");
        self.seized = true;
    }

    /// Batches go to another device now, which knows of no object yet.
    pub(crate) fn moved(&mut self) {
        assert!(self.seized, "it was seized");
        assert!(self.under_way.is_empty(), "none is made meanwhile");
        // Those that failed never ended: who still waits for one waits for as many of this device.
        self.begun = self.ended;
        self.objects
            .retain(|_, change| matches!(change, ObjectChange::Put(_)));
        self.named = self.objects.keys().copied().collect();
        self.spare_marks_at = 0;
        self.seized = false;
        self.let_go();
    }

    /// The device knows that it is no longer used: no file has to look newer than its newest batch.
    fn let_go(&mut self) {
        (self.newest, self.found) = (None, None);
    }

    /// A time that no batch which counts after a restart is younger than.
    pub(crate) fn newest_or_found(&self) -> Option<Duration> {
        let newest = self.under_way.back().map(|commit| commit.made);
        newest.or(self.newest).or(self.found)
    }

    /// Whether base may be written at this moment, `now`.
    pub(crate) fn has_lease(&self, now: Duration) -> bool {
        self.newest
            .is_some_and(|at| now.saturating_sub(at) < LEASE - MARGIN)
    }
}

/// Pages that are written together with a batch.
#[derive(Debug, Default)]
struct Pages {
    all: Vec<Page>,
    /// What the batch settles if all of them are written.
    settles: u64,
}

#[derive(Debug)]
struct Page {
    job: WriteJob,
    bytes: Arc<AlignedBuf>,
    sum: u64,
    named: bool,
    old: Option<BlockId>,
}

impl Page {
    fn news(&self) -> NewPage<'_> {
        NewPage {
            block: self.job.block,
            bytes: &self.bytes,
            named: self.named,
            old: self.old,
        }
    }
}

impl Pages {
    fn news(&self) -> Vec<NewPage<'_>> {
        self.all.iter().map(Page::news).collect()
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
        self.commit_to(inner, target, 0).map(drop)
    }

    /// As [`Engine::commit`], for a tester.
    ///
    /// # Errors
    /// As [`Engine::commit`].
    #[doc(hidden)]
    pub fn commit_now(&self) -> io::Result<()> {
        self.commit()
    }

    /// Writes the next batch, with all staged pages, while one is being made durable, as a second
    /// thread would; for a tester that has none. Whoever makes the next commit makes it durable.
    /// False when there was nothing to write, or no room for it in the journal.
    #[doc(hidden)]
    pub fn write_next(&self) -> bool {
        let mut inner = self.inner();
        let full = self.store().is_none_or(|store| store.wants_checkpoint());
        let changed = inner.hierarchy.ledger().changed() > 0 || inner.hierarchy.staged() > 0;
        if full || !changed || inner.hierarchy.is_off() || !inner.commits.may_begin() {
            return false;
        }
        inner.commits.syncs += 1;
        let (mut inner, written) = match self.write_commit(inner) {
            Ok((inner, _)) => (inner, true),
            Err(_) => (self.inner(), false),
        };
        inner.commits.syncs -= 1;
        written
    }

    /// As [`Engine::commit`], and all pages that are staged now, or newer bytes of them.
    ///
    /// # Errors
    /// As [`Engine::commit`].
    pub(crate) fn commit_staged(&self) -> io::Result<()> {
        let mut inner = self.inner();
        inner.commits.held = false;
        inner.commits.syncs += 1;
        let (target, staged) = (inner.commits.begun + 1, inner.hierarchy.stagings());
        let (mut inner, done) = match self.commit_to(inner, target, staged) {
            Ok(inner) => (inner, Ok(())),
            Err(error) => (self.inner(), Err(error)),
        };
        assert!(inner.commits.syncs > 0, "an end follows a start");
        inner.commits.syncs -= 1;
        done
    }

    /// Makes commits, or waits for those of others, until that of number `target` has ended and
    /// what was staged before so many stagings is settled.
    fn commit_to<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        target: u64,
        staged: u64,
    ) -> io::Result<MutexGuard<'a, Inner>> {
        inner.commits.waiting += 1;
        let (mut inner, done) = match self.commit_until(inner, target, staged) {
            Ok(inner) => (inner, Ok(())),
            Err(error) => {
                // Perhaps the one who was woken to make the next: nobody else would be.
                self.signals.wake_committed();
                (self.inner(), Err(error))
            }
        };
        assert!(inner.commits.waiting > 0, "an end follows a start");
        inner.commits.waiting -= 1;
        done.map(|()| inner)
    }

    fn commit_until<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        target: u64,
        staged: u64,
    ) -> io::Result<MutexGuard<'a, Inner>> {
        while inner.commits.ended < target || inner.commits.settled < staged {
            if inner.hierarchy.is_off() {
                return Err(io::Error::other("the flash device has failed"));
            }
            let stuck = inner.hierarchy.is_starved();
            let many = staged > 0 && inner.hierarchy.staged() >= WRITE_MEANWHILE;
            let commits = &inner.commits;
            let promised = commits.is_promised(target, staged);
            inner = match commits.may_begin() && !promised {
                _ if commits.may_sync() => self.sync_once(inner)?,
                false if many && !promised => match write_batch(self, inner) {
                    Ok(inner) => inner,
                    Err(inner) => self.wait_for_commit(inner, target, staged),
                },
                false => self.wait_for_commit(inner, target, staged),
                // What they write is named by the next batch; they take nothing else.
                true if staged > 0 && inner.writers_at_work > 0 => self.wait_for_page(inner),
                // A commit would make no room for what is staged; writing back does.
                true if stuck && inner.commits.ended >= target => self.wait_for_room(inner),
                true => self.commit_once(inner)?,
            };
        }
        Ok(inner)
    }

    /// Makes a commit, from its start to its end.
    pub(crate) fn commit_once<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
    ) -> io::Result<MutexGuard<'a, Inner>> {
        let (mut inner, number) = self.write_commit(inner)?;
        while inner.commits.ended < number {
            let mut under_way = inner.commits.under_way.iter();
            if !under_way.any(|commit| commit.number == number) {
                return Err(io::Error::other("the flash device has failed"));
            }
            inner = match inner.commits.may_sync() {
                true => self.sync_once(inner)?,
                false => self.wait_for_commit(inner, number, 0),
            };
        }
        Ok(inner)
    }

    /// Makes a commit until it is written; its number.
    pub(crate) fn write_commit<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
    ) -> io::Result<(MutexGuard<'a, Inner>, u64)> {
        assert!(inner.commits.may_begin(), "invariant 1");
        let Some(store) = self.store() else {
            return Err(io::Error::other("there is no flash device"));
        };
        if inner.hierarchy.ledger().under_way() != inner.commits.under_way.len() {
            // What a batch that failed was about to say is not known to the device.
            return Err(io::Error::other("a batch has failed"));
        }
        let well = |commit: &Commit| commit.held_back.is_none();
        assert!(inner.commits.under_way.iter().all(well), "invariant 5");
        inner.commits.begun += 1;
        let number = inner.commits.begun;
        inner.commits.writing = true;
        inner.commits.under_way.push_back(Commit {
            number,
            made: self.config.clock.now(),
            settles: 0,
            held_back: None,
        });
        let (mut inner, mut pages) = self.take_pages(inner);
        let batch = self.next_batch(&mut inner, &mut pages);
        let made = self.config.clock.now();
        if let Some(commit) = inner.commits.under_way.back_mut() {
            commit.made = made;
        }
        drop(inner);
        let news = pages.news();
        let done = (self.fence_holds()).and_then(|()| store.log_pages(&batch, &news));
        let mut inner = self.inner();
        inner.commits.writing = false;
        inner.commits.new_bytes[1] = 0;
        match done {
            Ok(written) => {
                self.was_written(&mut inner, pages, written);
                Ok((inner, number))
            }
            Err(error) => {
                self.end_pages(&mut inner, &pages, None);
                // A batch that failed may have reached the device: its lease is to be outlasted
                // too.
                inner.commits.newest = inner.commits.newest.max(Some(made));
                let gone = inner.commits.under_way.pop_back();
                assert!(gone.is_some_and(|commit| commit.number == number));
                self.commits_failed(&mut inner, &error);
                Err(error)
            }
        }
    }

    /// The newest commit is written: the next one may be, unless a page of this one failed.
    fn was_written(&self, inner: &mut Inner, pages: Pages, written: Vec<Result<(), Fault>>) {
        let settles = pages.settles;
        let well = written.iter().all(Result::is_ok);
        if well {
            self.end_pages(inner, &pages, Some(&written));
            inner.hierarchy.commit_written();
        }
        let Some(commit) = inner.commits.under_way.back_mut() else {
            lock::die("what was written was begun");
        };
        match well {
            true => commit.settles = settles,
            false => commit.held_back = Some((pages, written)),
        }
        self.wake_maker(inner);
    }

    /// Syncs the device for the commits that are written, and ends them.
    fn sync_once<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
    ) -> io::Result<MutexGuard<'a, Inner>> {
        assert!(inner.commits.may_sync(), "invariant 2");
        let Some(store) = self.store() else {
            return Err(io::Error::other("there is no flash device"));
        };
        inner.commits.syncing = true;
        let mut covered = inner.commits.written();
        drop(inner);
        let done = (self.fence_holds()).and_then(|()| store.make_durable());
        let mut inner = self.inner();
        inner.commits.syncing = false;
        if self.config.planted == Mutant::EarlyBatch {
            covered = inner.commits.written();
        }
        match done {
            Ok(()) => {
                (0..covered).for_each(|_| self.end_commit(&mut inner));
                if inner.commits.may_sync() {
                    self.signals.of_commit(inner.commits.ended + 1).notify_one();
                }
                self.wake_maker(&inner);
                Ok(inner)
            }
            Err(error) => {
                // Also of what was written since: the store is poisoned.
                while inner.commits.written() > 0 {
                    let Some(commit) = inner.commits.under_way.pop_front() else {
                        lock::die("those that are written are under way");
                    };
                    inner.commits.newest = inner.commits.newest.max(Some(commit.made));
                    if let Some((pages, _)) = commit.held_back {
                        self.end_pages(&mut inner, &pages, None);
                    }
                }
                assert_eq!(inner.commits.written(), 0, "invariant 4");
                self.commits_failed(&mut inner, &error);
                Err(error)
            }
        }
    }

    /// The oldest commit is durable.
    fn end_commit(&self, inner: &mut Inner) {
        let Some(commit) = inner.commits.under_way.pop_front() else {
            lock::die("those that are written are under way");
        };
        assert_eq!(commit.number, inner.commits.ended + 1, "invariant 3");
        if let Some((pages, written)) = &commit.held_back {
            self.end_pages(inner, pages, Some(written));
        }
        inner.commits.count += 1;
        inner.commits.newest = inner.commits.newest.max(Some(commit.made));
        inner.commits.ended = commit.number;
        inner.commits.base_written = false;
        inner.commits.settled = inner.commits.settled.max(commit.settles);
        self.decide(inner, &[], |hierarchy, out| hierarchy.end_commit(out));
        self.signals.of_commit(commit.number).notify_all();
    }

    /// A batch could not be written or made durable: nothing more will be.
    fn commits_failed(&self, inner: &mut Inner, error: &io::Error) {
        let was_off = inner.hierarchy.is_off();
        let fault = match error.kind() {
            io::ErrorKind::TimedOut => Fault::TimedOut,
            _ => Fault::WriteError,
        };
        self.decide(inner, &[], |hierarchy, out| hierarchy.fail(fault, out));
        if !was_off && self.fence_reason().is_none() {
            inner.off_reason += &format!("; the map could not be saved: {error}");
        }
        self.signals.wake_committed();
    }

    /// Wakes one to make the next commit, where that can be done.
    fn wake_maker(&self, inner: &Inner) {
        if inner.commits.may_begin() {
            self.signals.of_commit(inner.commits.begun + 1).notify_one();
        }
    }

    /// Takes all staged pages, if a sync waits for them, for the batch that is about to be made.
    fn take_pages<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
    ) -> (MutexGuard<'a, Inner>, Pages) {
        let mut pages = Pages::default();
        if inner.commits.syncs == 0 {
            return (inner, pages);
        }
        let jobs = take_jobs(&mut inner, usize::MAX);
        if inner.writers_at_work == 0 {
            pages.settles = inner.hierarchy.staged_from();
        }
        if jobs.is_empty() {
            return (inner, pages);
        }
        drop(inner);
        for (job, bytes) in jobs {
            let sum = checksum(job.page, &bytes);
            pages.all.push(Page {
                job,
                bytes,
                sum,
                named: false,
                old: None,
            });
        }
        (self.inner(), pages)
    }

    /// The pages were written with a batch, and how: `None`, the batch failed.
    fn end_pages(&self, inner: &mut Inner, pages: &Pages, written: Option<&[Result<(), Fault>]>) {
        inner.hierarchy.begin_call(Way::Write);
        for (at, page) in pages.all.iter().enumerate() {
            let result = written.map(|written| written[at]);
            self.decide(inner, &[], |hierarchy, out| match (result, page.named) {
                (Some(result), true) => hierarchy.end_ahead(page.job, result, out),
                (None, true) => hierarchy.lose_ahead(page.job, out),
                (result, false) => {
                    let result = result.unwrap_or(Err(Fault::WriteError));
                    hierarchy.end_write(page.job, result.map(|()| page.sum), out);
                }
            });
        }
        self.end_call(inner, Way::Write);
        if !pages.all.is_empty() {
            self.page_free.notify_all();
        }
    }

    /// Waits for the end of a commit: of that with number `target`, unless it has ended already,
    /// then for the one that settles what was staged before so many stagings.
    fn wait_for_commit<'a>(
        &self,
        inner: MutexGuard<'a, Inner>,
        target: u64,
        staged: u64,
    ) -> MutexGuard<'a, Inner> {
        debug_assert!(!self.config.inline, "one thread waits for nobody");
        let number = inner.commits.awaited(target, staged);
        self.signals.of_commit(number).wait(inner)
    }

    /// The next batch, with those of `pages` that are still the newest of theirs.
    fn next_batch(&self, inner: &mut Inner, pages: &mut Pages) -> Batch {
        for page in &mut pages.all {
            page.named = inner.hierarchy.is_current(&page.job);
            page.old = inner.hierarchy.slots().block(page.job.slot);
            let dirty = inner.hierarchy.is_dirty(page.job.page);
            // Its newest bytes are staged, and who waits for these waits for those.
            if dirty && !page.named {
                pages.settles = 0;
            }
        }
        let named = pages.all.iter().filter(|page| page.named);
        let named: Vec<_> = named.map(|page| (page.job, page.sum)).collect();
        let Some(mut changes) = inner.hierarchy.begin_commit_ahead(&named) else {
            lock::die("one batch is written at a time");
        };
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
                inner.commits.put(Self::saved_of(&object));
            }
        }
        Batch {
            changes,
            objects: inner.commits.take_changes(),
            // Stamps of files are compared with it.
            time_ns: self.base_wall_ns(),
        }
    }

    /// The next batch is to say what is known of the object. What is under way with it is asked
    /// under the lock: no record is older than the one it replaces.
    pub(crate) fn put_record(&self, object: &Object) {
        let saved = Self::saved_of(object);
        let mut inner = self.inner();
        if inner.hierarchy.is_loading() && !inner.commits.named.contains(&object.id) {
            // Gone from the table: what a map that is being read says of it must not count again.
            return;
        }
        let mut fate = object.fate();
        if self.config.planted == Mutant::LostCut && fate.unlinked {
            fate.cut = None;
        }
        inner.commits.put(SavedObject { fate, ..saved });
    }

    /// What the table on flash is to say of an object.
    pub(crate) fn saved_of(object: &Object) -> SavedObject {
        SavedObject {
            id: object.id,
            identity: object.identity,
            stamp: (object.stamp)().unwrap_or_default(),
            name: object.name(),
            fate: object.fate(),
            promised: object.promised.load(Ordering::Acquire),
        }
    }

    /// The tier was switched off with a working device: says so durably, so that nobody has to
    /// outlast the lease. Should that fail they do.
    pub(crate) fn commit_nothing(&self) {
        let mut inner = self.inner();
        inner.commits.waiting += 1;
        // What is under way does not know of it yet.
        while inner.commits.is_under_way() {
            let newest = inner.commits.begun;
            inner = match inner.commits.may_sync() {
                true => self.sync_once(inner).unwrap_or_else(|_| self.inner()),
                false => self.wait_for_commit(inner, newest, 0),
            };
        }
        let told = match self.has_flash {
            true => self.commit_once(inner).map(drop).is_ok(),
            false => {
                drop(inner);
                false
            }
        };
        let mut inner = self.inner();
        assert!(inner.commits.waiting > 0, "an end follows a start");
        inner.commits.waiting -= 1;
        if told {
            inner.commits.let_go();
            self.page_free.notify_all();
        }
    }

    /// Whether a commit should be made though nobody waits for one.
    pub(crate) fn commit_due(&self, inner: &Inner) -> bool {
        let commits = &inner.commits;
        let waits = commits.held || commits.is_under_way();
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

//! Writing back: dirty frames to flash or base (page cleaners), dirty pages on flash to base
//! (destaging), in the background or on request.
//!
//! Base writes of both hold the object's layout lock for reading, so that none of them can land
//! behind a truncate or punch, which holds it for writing.

use crate::device::AlignedBuf;
use crate::engine::{Engine, Inner};
use crate::mutant::{self, Mutant};
use crate::object::Object;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thermocline_core::hierarchy::{CleanJob, Cleaned, DestageJob};
use thermocline_core::{Fault, ObjectId, PageId};

/// Pages destaged as one batch at most: what one sync of base makes clean.
pub(crate) const BATCH: usize = 256;
/// Adjacent pages written to base with one I/O at most, bytes.
const RUN_BYTES_MAX: usize = 1 << 20;

/// Progress of [`Engine::flush`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushProgress {
    /// Dirty pages when it started.
    pub total: u64,
    /// Dirty pages now.
    pub left: u64,
}

impl Engine {
    /// Time in the unit of recovery ages: milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        match self.config.inline {
            // Deterministic: one unit a background step.
            true => self.steps.load(Ordering::Relaxed),
            false => self.started.elapsed().as_millis() as u64,
        }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.inner().hierarchy.is_off()
    }

    /// Pages of which DRAM or flash hold bytes that base has not.
    #[must_use]
    pub fn dirty_pages(&self) -> u64 {
        let inner = self.inner();
        u64::from(inner.hierarchy.slots().dirty()) + u64::from(inner.hierarchy.pool().dirty())
    }

    /// Cleans one dirty frame that is due; false when none is.
    pub(crate) fn clean_one(&self) -> bool {
        let now = self.now_ms();
        let mut inner = self.inner();
        let Inner {
            hierarchy, actions, ..
        } = &mut *inner;
        let cleaned = hierarchy.next_clean(now, actions);
        self.carry_out(&mut inner, &[]);
        drop(inner);
        match cleaned {
            Cleaned::Placed => true,
            Cleaned::Base(job) => self.clean_to_base(&job).is_ok(),
            Cleaned::Nothing | Cleaned::Wait => false,
        }
    }

    /// Cleans the frames of pages `first..=last` of an object, wherever they go.
    pub(crate) fn clean_pages(&self, id: ObjectId, first: u64, last: u64) -> io::Result<()> {
        let pages: Vec<PageId> = {
            let inner = self.inner();
            let pool = inner.hierarchy.pool();
            let frames = pool.dirty_of(id).into_iter();
            let pages = frames.filter_map(|frame| pool.page(frame));
            pages
                .filter(|page| (first..=last).contains(&page.index))
                .collect()
        };
        for page in pages {
            self.clean_page(page)?;
        }
        Ok(())
    }

    fn clean_page(&self, page: PageId) -> io::Result<()> {
        let mut inner = self.inner();
        loop {
            let Inner {
                hierarchy, actions, ..
            } = &mut *inner;
            let cleaned = hierarchy.clean_page(page, actions);
            self.carry_out(&mut inner, &[]);
            match cleaned {
                Cleaned::Nothing | Cleaned::Placed => return Ok(()),
                Cleaned::Base(job) => {
                    drop(inner);
                    return self.clean_to_base(&job);
                }
                // An older version on a failed device goes to base first.
                Cleaned::Wait if inner.hierarchy.is_off() => inner = self.rescue(inner, page)?,
                Cleaned::Wait => inner = self.wait_for_room(inner),
            }
        }
    }

    /// Destages `page` if that can be done now, or waits for whoever is busy with it.
    fn rescue<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        page: PageId,
    ) -> io::Result<MutexGuard<'a, Inner>> {
        let only = Some((page.object, page.index, page.index));
        let jobs = inner.hierarchy.next_destage(1, only);
        if jobs.is_empty() {
            return Ok(self.wait_for_room(inner));
        }
        drop(inner);
        self.destage(jobs)?;
        Ok(self.inner())
    }

    fn clean_to_base(&self, job: &CleanJob) -> io::Result<()> {
        let written = self.object(job.page.object).and_then(|object| {
            self.before_base_write(&[job.page]);
            let written = self.frame_to_base(&object, job);
            self.base_written(&[job.page]);
            written
        });
        let mut inner = self.inner();
        let Inner {
            hierarchy, actions, ..
        } = &mut *inner;
        hierarchy.finish_clean(job, written.is_ok(), actions);
        self.carry_out(&mut inner, &[]);
        written
    }

    fn frame_to_base(&self, object: &Object, job: &CleanJob) -> io::Result<()> {
        let _layout = object.layout();
        if !self.inner().hierarchy.clean_stands(job) {
            return Ok(());
        }
        let mut bytes = AlignedBuf::new(self.page_size());
        let found = self
            .frames
            .read(job.page, |frame| bytes.copy_from_slice(frame));
        debug_assert!(found.is_some(), "a frame that stands has bytes");
        if found.is_none() {
            return Ok(());
        }
        let offset = job.page.index * self.page_size() as u64;
        let written = object.base.write_at(&bytes, offset);
        object.unsynced.add();
        written
    }

    /// Destages one batch if that is due; false when nothing was done.
    pub(crate) fn destage_some(&self) -> bool {
        let mut inner = self.inner();
        if inner.commits.held || !inner.hierarchy.destage_due() {
            return false;
        }
        let jobs = inner.hierarchy.next_destage(BATCH, None);
        drop(inner);
        let started = Instant::now();
        let count = jobs.len();
        let done = self.destage(jobs);
        self.slow_down(count, started.elapsed());
        count > 0 && done.is_ok()
    }

    /// Keeps to the rate that was asked for, while there is time.
    fn slow_down(&self, pages: usize, took: Duration) {
        let rate = self.config.dirty.rate;
        let urgent = {
            let inner = self.inner();
            let slots = inner.hierarchy.slots();
            inner.flushing || u64::from(slots.reserved()) * 10 > u64::from(slots.reserve()) * 9
        };
        if rate > 0 && !urgent && !self.config.inline {
            let due = Duration::from_secs_f64(pages as f64 / f64::from(rate));
            std::thread::sleep(due.saturating_sub(took));
        }
    }

    /// Writes what `jobs` hold to base, syncs it, and makes the pages clean.
    pub(crate) fn destage(&self, jobs: Vec<DestageJob>) -> io::Result<()> {
        let mut done: Vec<DestageJob> = Vec::new();
        let mut objects: Vec<ObjectId> = jobs.iter().map(|job| job.page.object).collect();
        objects.sort_unstable();
        objects.dedup();
        // The durable map must know every version that base is about to get.
        let off = self.is_off();
        let known = if off { Ok(()) } else { self.commit() };
        // A failed commit has switched the tier off; the pages are in DRAM or can be read.
        let mut result = known;
        let most = (RUN_BYTES_MAX / self.page_size()).max(1);
        let adjacent = |a: &DestageJob, b: &DestageJob| {
            a.page.object == b.page.object && a.page.index + 1 == b.page.index
        };
        for run in jobs.chunk_by(adjacent).flat_map(|run| run.chunks(most)) {
            match self.destage_run(run, &mut done) {
                Ok(()) => {}
                Err(error) => result = Err(error),
            }
        }
        for id in objects {
            let Ok(object) = self.object(id) else {
                continue;
            };
            let jobs: Vec<DestageJob> = done
                .iter()
                .copied()
                .filter(|j| j.page.object == id)
                .collect();
            let synced = match mutant::is(Mutant::CleanBeforeSync) {
                true => Ok(()),
                false => self.sync_base(&object),
            };
            match synced {
                Ok(()) => self.destaged(&jobs),
                Err(error) => result = Err(error),
            }
            self.close_if_idle(id);
        }
        result
    }

    fn destaged(&self, jobs: &[DestageJob]) {
        let mut inner = self.inner();
        let Inner {
            hierarchy, actions, ..
        } = &mut *inner;
        hierarchy.destaged(jobs, actions);
        self.carry_out(&mut inner, &[]);
    }

    /// Reads a run of adjacent pages from flash and writes them to base with one I/O, less those
    /// that cannot be read or no longer stand.
    fn destage_run(&self, run: &[DestageJob], done: &mut Vec<DestageJob>) -> io::Result<()> {
        debug_assert!(!run.is_empty(), "a run has pages");
        let size = self.page_size();
        let mut bytes = AlignedBuf::new(run.len() * size);
        let mut read = Vec::with_capacity(run.len());
        for (job, into) in run.iter().zip(bytes.chunks_exact_mut(size)) {
            match self.dirty_bytes(job, into) {
                Ok(()) => read.push(true),
                Err(fault) => {
                    read.push(false);
                    let mut inner = self.inner();
                    let Inner {
                        hierarchy, actions, ..
                    } = &mut *inner;
                    hierarchy.destage_failed(job, fault, actions);
                    self.carry_out(&mut inner, &[]);
                }
            }
        }
        let mut result = Ok(());
        let mut at = 0;
        while at < run.len() {
            let end = (at..run.len()).find(|&i| !read[i]).unwrap_or(run.len());
            if end > at {
                let written = self.write_run(&run[at..end], &bytes[at * size..end * size], done);
                result = result.and(written);
            }
            at = end.max(at) + 1;
        }
        result
    }

    fn dirty_bytes(&self, job: &DestageJob, into: &mut [u8]) -> Result<(), Fault> {
        match (job.from, self.store()) {
            (Some((block, expected)), Some(flash)) => {
                flash.read_block(block, job.page, expected, into)
            }
            _ => {
                let staged = self.inner().staged.get(&job.slot.0).cloned();
                let bytes = staged.ok_or(Fault::ReadError)?;
                into.copy_from_slice(&bytes);
                Ok(())
            }
        }
    }

    fn write_run(
        &self,
        run: &[DestageJob],
        bytes: &[u8],
        done: &mut Vec<DestageJob>,
    ) -> io::Result<()> {
        let (first, size) = (run[0].page, self.page_size());
        debug_assert_eq!(run.len() * size, bytes.len());
        // The map knows these versions, so no copy can be too old: the lease will do.
        self.before_base_write(&[]);
        let written = self.object(first.object).and_then(|object| {
            let _layout = object.layout();
            let written = self.write_standing(&object, run, bytes, done);
            object.unsynced.add();
            written
        });
        let mut inner = self.inner();
        for job in run {
            let Inner {
                hierarchy, actions, ..
            } = &mut *inner;
            hierarchy.destage_written(job, actions);
        }
        self.carry_out(&mut inner, &[]);
        written
    }

    /// Writes those of a run that still stand: with one I/O when all do.
    fn write_standing(
        &self,
        object: &Object,
        run: &[DestageJob],
        bytes: &[u8],
        done: &mut Vec<DestageJob>,
    ) -> io::Result<()> {
        let size = self.page_size();
        let stands = |job: &DestageJob| self.inner().hierarchy.destage_stands(job);
        if run.iter().all(stands) {
            object
                .base
                .write_at(bytes, run[0].page.index * size as u64)?;
            done.extend(run);
            return Ok(());
        }
        for (job, page) in run.iter().zip(bytes.chunks_exact(size)) {
            if stands(job) {
                object.base.write_at(page, job.page.index * size as u64)?;
                done.push(*job);
            }
        }
        Ok(())
    }

    /// Syncs base if anything was written to the object since the last time.
    pub(crate) fn sync_base(&self, object: &Object) -> io::Result<()> {
        match object.unsynced.is_due() {
            true => self.sync_base_now(object, false),
            false => Ok(()),
        }
    }

    /// As [`Engine::sync_base`], for a file that is about to be closed: a power cut must not take
    /// bytes from base that stay on flash as clean copies, nor the times by which the file is
    /// known again.
    pub(crate) fn sync_to_close(&self, object: &Object) -> io::Result<()> {
        if object.unstamped.swap(false, Ordering::AcqRel) {
            object.unsynced.add();
        }
        self.sync_base(object)
    }

    pub(crate) fn sync_base_now(&self, object: &Object, data_only: bool) -> io::Result<()> {
        let epoch = self.inner().hierarchy.ledger_mut().start_base_sync();
        let covered = object.unsynced.begin();
        let synced = object.base.sync(data_only);
        match &synced {
            Ok(()) => {
                object.unsynced.end(covered);
                object.unstamped.fetch_or(data_only, Ordering::AcqRel);
                let mut inner = self.inner();
                inner.hierarchy.ledger_mut().base_synced(object.id, epoch);
            }
            Err(_) => self.sync_failed(object),
        }
        synced
    }

    /// The system may have given up writes that it still shows. The next sync of a frontend says
    /// so, whoever's sync failed, and flash keeps no copies of what it shows.
    fn sync_failed(&self, object: &Object) {
        object.sync_failed.store(true, Ordering::Release);
        let mut inner = self.inner();
        let Inner {
            hierarchy, actions, ..
        } = &mut *inner;
        hierarchy.doubt(object.id, actions);
        self.carry_out(&mut inner, &[]);
    }

    /// Writes the dirty pages `first..=last` of an object to base, durably, whatever it takes.
    pub(crate) fn settle(&self, id: ObjectId, first: u64, last: u64) -> io::Result<()> {
        loop {
            self.clean_pages(id, first, last)?;
            self.drain(id, first, last);
            let mut inner = self.inner();
            let slots = inner.hierarchy.slots();
            if slots.dirty_in(id, first, last).is_empty() {
                return Ok(());
            }
            if inner
                .hierarchy
                .lost()
                .iter()
                .any(|p| p.object == id && (first..=last).contains(&p.index))
            {
                return Err(lost_error());
            }
            let jobs = inner.hierarchy.next_destage(BATCH, Some((id, first, last)));
            match jobs.is_empty() {
                true => drop(self.wait_for_room(inner)),
                false => {
                    drop(inner);
                    self.destage(jobs)?;
                }
            }
        }
    }

    /// Waits until staged dirty pages `first..=last` of an object are on flash.
    pub(crate) fn drain(&self, id: ObjectId, first: u64, last: u64) {
        let mut inner = self.inner();
        inner.draining += 1;
        self.signals.writers.notify_all();
        while inner.hierarchy.is_staging(id, first, last) && !inner.hierarchy.is_off() {
            inner = self.wait_a_moment(inner);
        }
        inner.draining -= 1;
    }

    /// Writes every dirty page to base. `progress` is told now and then; its answer false ends
    /// the flush early.
    ///
    /// # Errors
    /// Those of base; and when pages on flash cannot be read.
    pub fn flush(&self, mut progress: impl FnMut(FlushProgress) -> bool) -> io::Result<()> {
        let total = self.dirty_pages();
        {
            let mut inner = self.inner();
            inner.flushing = true;
            inner.hierarchy.set_flush(true);
        }
        let result = self.flush_all(total, &mut progress);
        let mut inner = self.inner();
        inner.flushing = false;
        inner.hierarchy.set_flush(false);
        result
    }

    fn flush_all(
        &self,
        total: u64,
        progress: &mut impl FnMut(FlushProgress) -> bool,
    ) -> io::Result<()> {
        loop {
            let left = self.dirty_pages();
            if !progress(FlushProgress {
                total: total.max(left),
                left,
            }) || left == 0
            {
                break;
            }
            self.clean_everything()?;
            let mut inner = self.inner();
            if inner.hierarchy.lost().len() as u64
                >= u64::from(inner.hierarchy.slots().dirty()).max(1)
            {
                return Err(lost_error());
            }
            let jobs = match inner.hierarchy.destage_due() {
                true => inner.hierarchy.next_destage(BATCH, None),
                false => Vec::new(),
            };
            match jobs.is_empty() {
                true => drop(self.wait_for_room(inner)),
                false => {
                    drop(inner);
                    self.destage(jobs)?;
                }
            }
        }
        let off = !self.has_flash || self.is_off();
        if off { Ok(()) } else { self.commit() }
    }

    /// Writes every dirty frame out, to flash or base, as far as that works.
    ///
    /// # Errors
    /// The first that base gave; what it refused stays dirty.
    pub(crate) fn clean_everything(&self) -> io::Result<()> {
        let dirty: Vec<ObjectId> = {
            let inner = self.inner();
            let pool = inner.hierarchy.pool();
            let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
            let open = objects.iter().flatten().map(|o| o.id);
            match pool.dirty() {
                0 => Vec::new(),
                _ => open.filter(|id| !pool.dirty_of(*id).is_empty()).collect(),
            }
        };
        let mut result = Ok(());
        for id in dirty {
            result = result.and(self.clean_pages(id, 0, u64::MAX));
        }
        result
    }

    /// Waits for room, or makes some when there are no threads to do it.
    pub(crate) fn wait_for_room<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
    ) -> MutexGuard<'a, Inner> {
        self.signals.wake_all();
        self.wait_a_moment(inner)
    }

    fn wait_a_moment<'a>(&'a self, inner: MutexGuard<'a, Inner>) -> MutexGuard<'a, Inner> {
        if self.config.inline {
            drop(inner);
            self.step();
            return self.inner();
        }
        // Most of what makes room says so; the rest is found by asking again.
        let waited = self
            .page_free
            .wait_timeout(inner, Duration::from_millis(20));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until somebody is done with a page, or with a commit.
    pub(crate) fn wait_for_page<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
    ) -> MutexGuard<'a, Inner> {
        debug_assert!(!self.config.inline, "one thread waits for nobody");
        self.page_free
            .wait(inner)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Syncs the base of lingering objects, and closes those that nothing waits for any more.
    pub(crate) fn close_lingering(&self) {
        let objects: Vec<Arc<Object>> = {
            let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
            let lingers = |o: &&Arc<Object>| o.opens.load(Ordering::Relaxed) == 0;
            objects.iter().flatten().filter(lingers).cloned().collect()
        };
        for object in objects {
            // What base refuses is tried again; meanwhile its regions stay doubtful.
            let _ = self.sync_to_close(&object);
            self.close_if_idle(object.id);
        }
    }
}

/// Reads and writes of a page whose newest bytes were on a device that failed.
pub(crate) fn lost_error() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

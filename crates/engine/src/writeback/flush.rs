//! Writing back on request: everything ([`Engine::flush`]), or some pages of one object.

use crate::device::AlignedBuf;
use crate::durable::sync::lost_error;
use crate::engine::Engine;
use crate::files::object::Identity;
use crate::writeback::destage::BATCH;
use std::io;
use thermocline_core::{Fault, ObjectId, PageId};

/// Reads of pages that could not be read before that may be too late at a time.
const LATE_MAX: u32 = 3;

/// Progress of [`Engine::flush`].
///
/// ```
/// use thermocline::{Engine, EngineConfig};
///
/// # let engine = Engine::start(EngineConfig::default(), None)?;
/// engine.flush(|progress| {
///     println!("{} of {} pages are left", progress.left, progress.total);
///     true // go on
/// })?;
/// assert_eq!(engine.dirty_pages(), 0);
/// # engine.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushProgress {
    /// Dirty pages when it started.
    pub total: u64,
    /// Dirty pages now.
    pub left: u64,
}

impl Engine {
    /// Pages of which DRAM or flash hold bytes that base has not.
    #[must_use]
    pub fn dirty_pages(&self) -> u64 {
        self.inner().dirty_pages()
    }

    /// Writes the dirty pages `first..=last` of an object to base, durably, whatever it takes.
    pub(crate) fn settle(&self, id: ObjectId, first: u64, last: u64) -> io::Result<()> {
        match self.settle_but_lost(id, first, last)?.is_empty() {
            true => Ok(()),
            false => Err(lost_error()),
        }
    }

    /// As [`Engine::settle`], but for those that flash does not give: these pages.
    pub(crate) fn settle_but_lost(
        &self,
        id: ObjectId,
        first: u64,
        last: u64,
    ) -> io::Result<Vec<PageId>> {
        let wanted = |page: &PageId| page.object == id && (first..=last).contains(&page.index);
        self.ask_again(wanted);
        loop {
            self.clean_pages(id, first, last)?;
            self.drain(id, first, last);
            let mut inner = self.inner();
            let lost = inner.hierarchy.lost();
            let dirty = inner.hierarchy.slots().dirty_in(id, first, last);
            let mut dirty = dirty.into_iter().map(|(page, _)| page);
            if dirty.all(|page| lost.contains(&page)) {
                return Ok(lost.into_iter().filter(wanted).collect());
            }
            let jobs = inner.hierarchy.next_destage(BATCH, Some((id, first, last)));
            match jobs.is_empty() {
                true => drop(self.wait_for_room(inner)),
                false => {
                    drop(inner);
                    self.destage_or_wait(jobs)?;
                }
            }
        }
    }

    /// Waits until staged dirty pages `first..=last` of an object are on flash.
    pub(crate) fn drain(&self, id: ObjectId, first: u64, last: u64) {
        let mut inner = self.inner();
        while inner.hierarchy.is_staging(id, first, last) && !inner.hierarchy.is_off() {
            inner = match self.write_some(inner) {
                Ok(inner) => inner,
                Err(inner) => {
                    // Others write, or a block is free only after a commit, which writers make.
                    self.signals.writers.notify_one();
                    self.wait_a_moment(inner)
                }
            };
        }
    }

    /// Writes every dirty page to base. `progress` is told now and then; its answer false ends
    /// the flush early.
    ///
    /// # Errors
    /// Those of base; and when pages on flash cannot be read. Then all other files are whole, but
    /// for what was written meanwhile.
    pub fn flush(&self, mut progress: impl FnMut(FlushProgress) -> bool) -> io::Result<()> {
        let total = self.dirty_pages();
        {
            let mut inner = self.inner();
            inner.flushing += 1;
            inner.hierarchy.set_flush(true);
        }
        self.ask_again(|_| true);
        let result = self.flush_all(total, &mut progress);
        let mut inner = self.inner();
        assert!(inner.flushing > 0, "an end follows a start");
        inner.flushing -= 1;
        let all = inner.flushing > 0;
        inner.hierarchy.set_flush(all);
        result
    }

    /// Reads those `wanted` of the pages that flash did not give: one that it gives now can go to
    /// base. No policy hears of it, and it is nothing against the device that it fails again.
    pub(crate) fn ask_again(&self, wanted: impl Fn(&PageId) -> bool) {
        let mut lost = self.inner().hierarchy.lost();
        lost.retain(wanted);
        let mut bytes = AlignedBuf::new(if lost.is_empty() { 0 } else { self.page_size() });
        let mut late = 0;
        for page in lost {
            let Some(job) = self.inner().hierarchy.hold_lost(page) else {
                continue;
            };
            let read = self.dirty_bytes(&[job], &mut bytes);
            let found = read.iter().all(Result::is_ok);
            let mut inner = self.inner();
            self.decide(&mut inner, &[], |hierarchy, out| {
                hierarchy.end_lost(&job, found, out);
            });
            late += u32::from(read.contains(&Err(Fault::TimedOut)));
            if late == LATE_MAX {
                return;
            }
        }
    }

    pub(crate) fn flush_all(
        &self,
        total: u64,
        progress: &mut impl FnMut(FlushProgress) -> bool,
    ) -> io::Result<()> {
        loop {
            self.bury();
            let left = self.dirty_pages();
            if !progress(FlushProgress {
                total: total.max(left),
                left,
            }) || left == 0
            {
                break;
            }
            match self.clean_everything() {
                Err(error) if is_not_open(&error) => continue,
                Err(error) => return Err(self.flush_others(error, total, progress)),
                Ok(()) => {}
            }
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
                    match self.destage_or_wait(jobs) {
                        // A file without a name was forgotten meanwhile, with its pages.
                        Err(error) if is_not_open(&error) => {}
                        Err(error) => return Err(self.flush_others(error, total, progress)),
                        Ok(()) => {}
                    }
                }
            }
        }
        if !self.has_flash || self.is_off() {
            return Ok(());
        }
        match self.commit() {
            // It went off meanwhile, and base is whole.
            Err(_) if self.is_off() => Ok(()),
            done => done,
        }
    }

    /// Base refused some page, with `error`: the other files are written all the same, one by one.
    /// Of each, what is dirty now, up to the first batch of which base refuses a page. Returns the
    /// error.
    fn flush_others(
        &self,
        error: io::Error,
        total: u64,
        progress: &mut impl FnMut(FlushProgress) -> bool,
    ) -> io::Error {
        // Twice: what is on its way to flash can be destaged once it is there.
        let mut goes_on = || {
            let left = self.dirty_pages();
            let total = total.max(left);
            progress(FlushProgress { total, left })
        };
        for pass in 0..2 {
            for object in self.all_objects() {
                if !self.flush_file(object.id, &mut goes_on) {
                    return error;
                }
            }
            // Where base keeps all of flash in use nothing more comes there.
            let starved = self.inner().hierarchy.is_starved();
            if pass == 0 && (starved || self.commit_staged().is_err()) {
                return error;
            }
        }
        error
    }

    /// Writes what is dirty of a file now, up to the first batch of which base refuses a page. The
    /// answer of `goes_on`, which is asked before each batch.
    fn flush_file(&self, id: ObjectId, goes_on: &mut impl FnMut() -> bool) -> bool {
        if !goes_on() {
            return false;
        }
        if self.clean_pages(id, 0, u64::MAX).is_err() {
            return true;
        }
        let dirty = self.inner().hierarchy.slots().dirty_in(id, 0, u64::MAX);
        let mut due = dirty.len();
        while due > 0 {
            let all = Some((id, 0, u64::MAX));
            let jobs = self.inner().hierarchy.next_destage(BATCH, all);
            debug_assert!(jobs.iter().all(|job| job.page.object == id), "of one file");
            due = due.saturating_sub(jobs.len());
            // Others have what is left of it in hand, or base refuses it.
            if jobs.is_empty() || self.destage_or_wait(jobs).is_err() {
                return true;
            }
            if !goes_on() {
                return false;
            }
        }
        true
    }

    /// As [`Engine::has_dirty`], of a file that may not be open.
    #[must_use]
    pub fn is_newer(&self, identity: &Identity) -> bool {
        let id = self.registry().id_of(identity);
        id.is_some_and(|id| self.has_dirty(id))
    }

    /// Whether DRAM or flash hold bytes of the object that base has not.
    #[must_use]
    pub fn has_dirty(&self, id: ObjectId) -> bool {
        let inner = self.inner();
        let slots = inner.hierarchy.slots().dirty_in(id, 0, u64::MAX);
        !slots.is_empty() || !inner.hierarchy.pool().dirty_of(id).is_empty()
    }
}

/// Whether it says that an object was closed meanwhile, as [`Engine::object`] does. What a system
/// says has a number.
fn is_not_open(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound && error.raw_os_error().is_none()
}

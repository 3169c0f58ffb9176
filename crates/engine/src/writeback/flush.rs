//! Writing back on request: everything ([`Engine::flush`]), or some pages of one object.

use crate::durable::sync::lost_error;
use crate::engine::{Engine, Request};
use crate::files::object::Identity;
use crate::writeback::destage::BATCH;
use std::io;
use thermocline_core::{HintSet, ObjectId};

/// Reads of pages that could not be read before that may fail again in one flush.
const REFUSED_MAX: u32 = 3;

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
        let inner = self.inner();
        u64::from(inner.hierarchy.slots().dirty()) + u64::from(inner.hierarchy.pool().dirty())
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
    /// Those of base; and when pages on flash cannot be read.
    pub fn flush(&self, mut progress: impl FnMut(FlushProgress) -> bool) -> io::Result<()> {
        let total = self.dirty_pages();
        {
            let mut inner = self.inner();
            inner.flushing += 1;
            inner.hierarchy.set_flush(true);
        }
        self.ask_again();
        let result = self.flush_all(total, &mut progress);
        let mut inner = self.inner();
        assert!(inner.flushing > 0, "an end follows a start");
        inner.flushing -= 1;
        let all = inner.flushing > 0;
        inner.hierarchy.set_flush(all);
        result
    }

    /// Reads pages that could not be read: one that reads well now is lost no more. A device that
    /// refuses a few is not asked for all.
    fn ask_again(&self) {
        let lost = self.inner().hierarchy.lost();
        let mut bytes = vec![0; if lost.is_empty() { 0 } else { self.page_size() }];
        let mut refused = 0;
        for page in lost {
            let Ok(object) = self.object(page.object) else {
                continue;
            };
            let request = Request {
                object: &object,
                offset: page.index * self.page_size() as u64,
                hints: HintSet::UNKNOWN,
                client: 0,
            };
            refused += u32::from(self.read_paged(&object, &request, &mut bytes).is_err());
            if refused == REFUSED_MAX {
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
                done => done?,
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
                        done => done?,
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

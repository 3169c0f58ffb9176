//! Page cleaners: dirty frames to flash or base, in the background or on request.
//!
//! A base write holds the object's layout lock for reading, so that it cannot land behind a
//! truncate or punch, which holds it for writing.

use crate::device::AlignedBuf;
use crate::engine::Engine;
use crate::files::object::Object;
use crate::lock::{self, MutexGuard};
use crate::state::Inner;
use std::io;
use thermocline_core::hierarchy::{CleanJob, Cleaned};
use thermocline_core::{ObjectId, PageId};

impl Engine {
    /// Cleans one dirty frame that is due; false when none is.
    pub(crate) fn clean_one(&self) -> bool {
        let now = self.now_ms();
        let mut inner = self.inner();
        let cleaned = self.decide(&mut inner, &[], |hierarchy, out| {
            hierarchy.next_clean(now, out)
        });
        drop(inner);
        match cleaned {
            Cleaned::Placed => true,
            Cleaned::Base(job) => {
                // What base refused is passed over for a while; there may be others.
                let _ = self.clean_to_base(&job);
                true
            }
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
        let mut inner = self.inner();
        for page in pages {
            inner = self.clean_page(inner, page)?;
        }
        Ok(())
    }

    fn clean_page<'a>(
        &'a self,
        mut inner: MutexGuard<'a, Inner>,
        page: PageId,
    ) -> io::Result<MutexGuard<'a, Inner>> {
        loop {
            let cleaned = self.decide(&mut inner, &[], |hierarchy, out| {
                hierarchy.clean_page(page, out)
            });
            match cleaned {
                Cleaned::Nothing | Cleaned::Placed => return Ok(inner),
                Cleaned::Base(job) => {
                    drop(inner);
                    self.clean_to_base(&job)?;
                    return Ok(self.inner());
                }
                // An older version on a failed device goes to base first.
                Cleaned::Wait if inner.hierarchy.is_off() => inner = self.rescue(inner, page)?,
                Cleaned::Wait => inner = self.wait_for_room(inner),
            }
        }
    }

    /// Destages `page` if that can be done now, or waits for whoever is busy with it.
    pub(crate) fn rescue<'a>(
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
        self.destage_or_wait(jobs)?;
        Ok(self.inner())
    }

    pub(crate) fn clean_to_base(&self, job: &CleanJob) -> io::Result<()> {
        let written = self.object(job.page.object).and_then(|object| {
            self.before_base_write(&object, &[job.page]);
            let written = self.frame_to_base(&object, job);
            self.base_written(&[job.page]);
            written
        });
        let mut inner = self.inner();
        self.decide(&mut inner, &[], |hierarchy, out| {
            hierarchy.finish_clean(job, written.is_ok(), out)
        });
        written
    }

    pub(crate) fn frame_to_base(&self, object: &Object, job: &CleanJob) -> io::Result<()> {
        let _layout = object.layout();
        debug_assert_eq!(object.id, job.page.object, "its own base");
        let mut bytes = AlignedBuf::new(self.page_size());
        {
            // Held until the bytes are copied: pages are trimmed without the layout lock too.
            let inner = self.inner();
            if !inner.hierarchy.clean_stands(job) {
                return Ok(());
            }
            let copy = |frame: &[u8]| bytes.copy_from_slice(frame);
            if !self.frames.peek(job.page, copy) {
                lock::die("a frame that stands has bytes");
            }
        }
        let offset = job.page.index * self.page_size() as u64;
        let written = self.write_quietly(object, &bytes, offset);
        object.unsynced.add();
        written
    }

    /// Writes every dirty frame out, to flash or base, as far as that works.
    ///
    /// # Errors
    /// The first that base gave; what it refused stays dirty.
    pub(crate) fn clean_everything(&self) -> io::Result<()> {
        let dirty: Vec<ObjectId> = {
            let inner = self.inner();
            let pool = inner.hierarchy.pool();
            let objects = self.objects.read();
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
}

//! Writes: to base and to whatever copies there are, or in write-back to DRAM and flash alone.

use super::Part;
use crate::device::AlignedBuf;
use crate::durable::sync::lost_error;
use crate::engine::{Engine, Request};
use crate::files::object::Object;
use crate::state::{Inner, page_of};
use crate::store::{LENGTH_MAX, Stored};
use std::io;
use std::ops::{Range, RangeInclusive};
use std::sync::atomic::Ordering;
use std::time::Instant;
use thermocline_core::health::Way;
use thermocline_core::{Absorbed, BlockId, PageId};
use thermocline_trace::{Op, Served};

impl Engine {
    /// Writes `data` at the request's offset, to base and to whatever copies there are.
    ///
    /// # Errors
    /// Those of base; copies of the pages are then dropped.
    pub fn write(&self, request: &Request<'_>, data: &[u8]) -> io::Result<()> {
        let object = self.still_open(request.object)?;
        let started = Instant::now();
        if data.is_empty() {
            return Ok(());
        }
        let end = request.offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| end > LENGTH_MAX) {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        let paged = self.is_paged(object);
        self.end_cut(object)?;
        if paged {
            self.write_paged(object, request, data)?;
        } else {
            object.write_base(data, request.offset)?;
            self.bypassed[1].fetch_add(1, Ordering::Relaxed);
        }
        self.write_latency.add(started.elapsed());
        self.write_bytes
            .fetch_add(data.len() as u64, Ordering::Relaxed);
        object.counts.writes.fetch_add(1, Ordering::Relaxed);
        if self.is_recorded(object, request.offset, data.len() as u64) {
            let served = if paged { Served::Base } else { Served::Bypass };
            let typed = self.typed(request, object, data);
            self.record(
                &typed,
                object,
                Op::Write,
                data.len() as u64,
                served,
                started,
            );
        }
        Ok(())
    }

    pub(crate) fn write_paged(
        &self,
        object: &Object,
        request: &Request<'_>,
        data: &[u8],
    ) -> io::Result<()> {
        let size = self.page_size() as u64;
        let first = request.offset / size;
        let last = (request.offset + data.len() as u64 - 1) / size;
        let mut inner = self.inner();
        // While pages are on their way out of the tier no more begin their way in.
        while inner.hierarchy.is_closed() {
            inner = self.wait_for_page(inner);
        }
        drop(inner);
        self.start_writes(object, first..=last);
        let (before, end) = (object.length(), request.offset + data.len() as u64);
        let lengthened = self.lengthen(object, &(request.offset..end));
        let mut writing = Writing {
            engine: self,
            object,
            request,
            data,
            new_from: before.div_ceil(size),
            base_from: u64::MAX,
            failed: None,
        };
        let (mut index, mut result) = (first, lengthened);
        while index <= last && result.is_ok() {
            (index, result) = writing.step(index, last);
        }
        self.abandon_writes(object, index..=last);
        result
    }

    /// Ascending, so that two writers never wait for each other in a circle.
    pub(crate) fn start_writes(&self, object: &Object, pages: RangeInclusive<u64>) {
        let mut inner = self.inner();
        for index in pages {
            while !inner.hierarchy.start_write(page_of(object, index)) {
                inner = self.wait_for_page(inner);
            }
            inner.ahead.forget(object.id, index, index);
        }
    }

    pub(crate) fn abandon_writes(&self, object: &Object, pages: RangeInclusive<u64>) {
        let mut inner = self.inner();
        for index in pages {
            let page = page_of(object, index);
            inner.ahead.forget(object.id, index, index);
            self.decide(&mut inner, &[], |hierarchy, out| {
                hierarchy.abandon_write(page, out)
            });
        }
    }

    /// The newest bytes of `page`, whose write was started, into `bytes`; zeros past base's end.
    pub(crate) fn fetch(&self, object: &Object, page: PageId, bytes: &mut [u8]) -> io::Result<()> {
        debug_assert_eq!(bytes.len(), self.page_size());
        if self.frames.peek(page, |frame| bytes.copy_from_slice(frame)) {
            return Ok(());
        }
        loop {
            let inner = self.inner();
            let place = dirty_place(&inner, page);
            let slot = inner.hierarchy.slots().find(page);
            let staged = slot.and_then(|slot| inner.staged.get(&slot.0));
            if let Some(staged) = staged {
                bytes.copy_from_slice(staged);
                return Ok(());
            }
            drop(inner);
            let Some(((block, expected), flash)) = place.zip(self.store()) else {
                let offset = page.index * self.page_size() as u64;
                let read = object.base.read_at(bytes, offset)?;
                bytes[read..].fill(0);
                return Ok(());
            };
            let stored = Stored {
                block,
                page,
                checksum: expected,
            };
            let Err(fault) = flash.read_surely(&stored, bytes) else {
                return Ok(());
            };
            // Base may have got the page meanwhile, and the block another one.
            let mut inner = self.inner();
            if dirty_place(&inner, page) == place {
                inner.hierarchy.begin_call(Way::Read);
                self.decide(&mut inner, &[], |hierarchy, out| {
                    hierarchy.newest_failed(page, fault, out)
                });
                self.end_call(&mut inner, Way::Read);
                return Err(lost_error());
            }
        }
    }
}

/// Block and checksum of the newest bytes of `page` where flash alone has them.
fn dirty_place(inner: &Inner, page: PageId) -> Option<(BlockId, u64)> {
    let slots = inner.hierarchy.slots();
    let dirty = slots.find(page).filter(|slot| slots.is_dirty(*slot));
    dirty.and_then(|slot| inner.hierarchy.bytes_of(slot))
}

/// One write under way; its pages were started.
struct Writing<'a> {
    engine: &'a Engine,
    object: &'a Object,
    request: &'a Request<'a>,
    data: &'a [u8],
    /// First page that base had nothing of.
    new_from: u64,
    /// First page of those that base takes because it took a new one before them.
    base_from: u64,
    /// Why a page that has ended was not written.
    failed: Option<io::Error>,
}

impl Writing<'_> {
    pub(crate) fn part(&self, index: u64) -> Part {
        let size = self.engine.page_size();
        Part::of(self.object, self.request, self.data.len(), size, index)
    }

    /// Writes page `index` and perhaps pages after it; returns the first one not done, and how
    /// it went.
    pub(crate) fn step(&mut self, index: u64, last: u64) -> (u64, io::Result<()>) {
        match self.absorb(index, last) {
            Err(error) => (index, Err(error)),
            Ok(true) => (index + 1, self.failed.take().map_or(Ok(()), Err)),
            Ok(false) => {
                if index >= self.new_from {
                    self.base_from = self.base_from.min(index);
                }
                let mut end = index + 1;
                while end <= last && self.goes_to_base(end) {
                    end += 1;
                }
                (end, self.to_base(index..end))
            }
        }
    }

    /// Whether nothing but base can take page `index`.
    pub(crate) fn goes_to_base(&self, index: u64) -> bool {
        let inner = self.engine.inner();
        let page = page_of(self.object, index);
        let hierarchy = &inner.hierarchy;
        let takes = !hierarchy.is_off() && !hierarchy.is_loading();
        let back = hierarchy.is_write_back() && takes && index < self.base_from;
        !inner.hierarchy.is_dirty(page) && (!back || self.is_past_end(index))
    }

    /// Pages that base does not wholly have are written to base, so that its length is right: the
    /// last part of the file, and more where [`Engine::lengthen`] could not make it longer.
    pub(crate) fn is_past_end(&self, index: u64) -> bool {
        (index + 1) * self.engine.page_size() as u64 > self.object.length()
    }

    /// True when DRAM or flash took page `index`.
    pub(crate) fn absorb(&mut self, index: u64, last: u64) -> io::Result<bool> {
        loop {
            if self.goes_to_base(index) {
                return Ok(false);
            }
            match self.absorb_once(index)? {
                Some(taken) => return Ok(taken),
                None => self.rescue(index, last)?,
            }
        }
    }

    /// The device failed, and holds a version of page `index` that base has to get before: for
    /// that the writes that are not done yet are given up and started anew.
    pub(crate) fn rescue(&self, index: u64, last: u64) -> io::Result<()> {
        let (engine, object) = (self.engine, self.object);
        engine.abandon_writes(object, index..=last);
        let settled = engine.settle(object.id, index, index);
        engine.start_writes(object, index..=last);
        settled
    }

    /// `None`: ask again after [`Writing::rescue`].
    pub(crate) fn absorb_once(&mut self, index: u64) -> io::Result<Option<bool>> {
        let part = self.part(index);
        let bytes = &self.data[part.outside.clone()];
        if part.inside.len() == self.engine.page_size() {
            return self.absorb_whole(&part, bytes);
        }
        let mut page = AlignedBuf::new(self.engine.page_size());
        self.engine.fetch(self.object, part.page, &mut page)?;
        page[part.inside.clone()].copy_from_slice(bytes);
        let taken = self.absorb_whole(&part, &page)?;
        if taken != Some(false) {
            return Ok(taken);
        }
        // Dirty in a frame, and flash is off: base gets the whole page.
        let dirty = self.engine.inner().hierarchy.is_dirty(part.page);
        if dirty {
            let offset = part.page.index * page.len() as u64;
            self.failed = self.base_run(&[part.page], &page, offset, true).err();
        }
        Ok(Some(dirty))
    }

    pub(crate) fn absorb_whole(&self, part: &Part, bytes: &[u8]) -> io::Result<Option<bool>> {
        let engine = self.engine;
        let hints = engine.complete(&self.request.hints, self.object, Some(bytes));
        let mut inner = engine.inner();
        loop {
            let now = engine.now_ms();
            let absorbed = engine.decide(&mut inner, bytes, |hierarchy, out| {
                hierarchy.absorb(part.page, &hints, now, out)
            });
            match absorbed {
                Absorbed::Done => {
                    // Also what came ahead from the page's old frame while this was under way.
                    inner
                        .ahead
                        .forget(part.page.object, part.page.index, part.page.index);
                    self.object.uncommitted.add();
                    self.object.touch_due.store(true, Ordering::Release);
                    return Ok(Some(true));
                }
                Absorbed::Base => return Ok(Some(false)),
                Absorbed::Lost => return Err(lost_error()),
                Absorbed::Wait if inner.hierarchy.is_off() => return Ok(None),
                Absorbed::Wait => inner = engine.wait_for_room(inner),
            }
        }
    }

    /// Writes the request's bytes of pages `run` to base with one I/O.
    pub(crate) fn to_base(&self, run: Range<u64>) -> io::Result<()> {
        let pages: Vec<PageId> = run.clone().map(|i| page_of(self.object, i)).collect();
        let (first, last) = (self.part(run.start), self.part(run.end - 1));
        let bytes = &self.data[first.outside.start..last.outside.end];
        let offset = self.request.offset + first.outside.start as u64;
        self.base_run(&pages, bytes, offset, false)
    }

    /// Writes `bytes` at `offset` of base and ends the writes of `pages`. `completed`: the bytes
    /// are one whole page, put together from a part of it.
    pub(crate) fn base_run(
        &self,
        pages: &[PageId],
        bytes: &[u8],
        offset: u64,
        completed: bool,
    ) -> io::Result<()> {
        let (engine, object) = (self.engine, self.object);
        engine.before_base_write(object, pages);
        let written = object.write_base(bytes, offset);
        engine.base_written(pages);
        let mut inner = engine.inner();
        for page in pages {
            inner.ahead.forget(page.object, page.index, page.index);
            let part = self.part(page.index);
            let whole = completed || part.inside.len() == engine.page_size();
            let bytes = match completed {
                true => bytes,
                false => &self.data[part.outside.clone()],
            };
            let hints = engine.complete(&self.request.hints, object, whole.then_some(bytes));
            engine.decide(&mut inner, bytes, |hierarchy, out| {
                hierarchy.finish_write(*page, &hints, whole, written.is_ok(), out)
            });
        }
        written
    }
}

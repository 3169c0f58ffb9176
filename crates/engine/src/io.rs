//! Reads and writes: requests of any offset and length, split into pages and put together again.

use crate::destage::lost_error;
use crate::device::AlignedBuf;
use crate::engine::{Engine, Inner, Request, page_of};
use crate::object::Object;
use std::cell::RefCell;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Instant;
use thermocline_core::{Absorbed, BlockId, HintSet, PageId, ReadStart, SlotId};
use thermocline_trace::{Op, Served};

/// Pages read from base in one I/O at most.
const RUN_BYTES_MAX: usize = 1 << 20;

thread_local! {
    /// Whole pages of requests that want only parts of them.
    static SCRATCH: RefCell<AlignedBuf> = RefCell::new(AlignedBuf::new(0));
}

/// Runs `with` on a scratch buffer of `len` bytes of this thread.
fn with_scratch<R>(len: usize, with: impl FnOnce(&mut [u8]) -> R) -> R {
    SCRATCH.with_borrow_mut(|scratch| {
        if scratch.len() < len {
            *scratch = AlignedBuf::new(len);
        }
        with(&mut scratch[..len])
    })
}

/// The part of one page that a request wants.
#[derive(Clone, Debug)]
struct Part {
    page: PageId,
    /// Bytes within the page.
    inside: Range<usize>,
    /// The same bytes within the request's buffer.
    outside: Range<usize>,
}

impl Part {
    fn of(object: &Object, request: &Request, length: usize, page_size: usize, index: u64) -> Self {
        let (start, size) = (request.offset, page_size as u64);
        let from = start.max(index * size);
        let to = (start + length as u64).min((index + 1) * size);
        debug_assert!(from < to, "every page of a request has bytes of it");
        Self {
            page: page_of(object, index),
            inside: (from - index * size) as usize..(to - index * size) as usize,
            outside: (from - start) as usize..(to - start) as usize,
        }
    }
}

/// One read under way.
struct Reading<'a> {
    engine: &'a Engine,
    object: &'a Object,
    request: &'a Request,
    length: usize,
    served: Served,
}

impl Engine {
    /// Reads into `buf` from the request's offset; returns bytes read, short at the end of the
    /// object.
    ///
    /// # Errors
    /// Those of base. Flash never fails a read: a bad copy is dropped and fetched again.
    pub fn read(&self, request: &Request, buf: &mut [u8]) -> io::Result<usize> {
        let object = self.object(request.object)?;
        let started = Instant::now();
        let paged = self.is_paged(&object);
        let (length, served) = match paged {
            true => self.read_paged(&object, request, buf)?,
            false => (object.base.read_at(buf, request.offset)?, Served::Bypass),
        };
        if !paged {
            self.bypassed[0].fetch_add(1, Ordering::Relaxed);
        }
        self.latency[served as usize].add(started.elapsed());
        self.read_bytes.fetch_add(length as u64, Ordering::Relaxed);
        object.counts.reads.fetch_add(1, Ordering::Relaxed);
        if matches!(served, Served::Pool | Served::Buffer | Served::Flash) {
            object.counts.hits.fetch_add(1, Ordering::Relaxed);
        }
        if self.is_recording() {
            let typed = self.typed(request, &object, &buf[..length]);
            self.record(&typed, &object, Op::Read, length as u64, served, started);
        }
        Ok(length)
    }

    /// Lends the whole page `page` to `use_bytes` if it is in the DRAM pool: a hit without
    /// copying, locking out nobody but a writer of the same shard of the pool.
    pub fn read_pooled(&self, page: PageId, use_bytes: impl FnOnce(&[u8])) -> bool {
        match self.frames.read(page, use_bytes) {
            Some(hit) => {
                self.after_hit(hit);
                true
            }
            None => false,
        }
    }

    fn read_paged(
        &self,
        object: &Object,
        request: &Request,
        buf: &mut [u8],
    ) -> io::Result<(usize, Served)> {
        let left = object.length().saturating_sub(request.offset);
        let length = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if length == 0 {
            return Ok((0, Served::Unknown));
        }
        let size = self.page_size() as u64;
        let last = (request.offset + length as u64 - 1) / size;
        let mut reading = Reading {
            engine: self,
            object,
            request,
            length,
            served: Served::Unknown,
        };
        let mut index = request.offset / size;
        while index <= last {
            index = reading.step(index, last, &mut buf[..length])?;
        }
        Ok((length, reading.served))
    }

    /// Writes `data` at the request's offset, to base and to whatever copies there are.
    ///
    /// # Errors
    /// Those of base; copies of the pages are then dropped.
    pub fn write(&self, request: &Request, data: &[u8]) -> io::Result<()> {
        let object = self.object(request.object)?;
        let started = Instant::now();
        if data.is_empty() {
            return Ok(());
        }
        let paged = self.is_paged(&object);
        self.end_cut(&object)?;
        if paged {
            self.write_paged(&object, request, data)?;
        } else {
            object.base.write_at(data, request.offset)?;
            object.unsynced.add();
            object.grow(request.offset + data.len() as u64);
            self.bypassed[1].fetch_add(1, Ordering::Relaxed);
        }
        self.write_latency.add(started.elapsed());
        self.write_bytes
            .fetch_add(data.len() as u64, Ordering::Relaxed);
        object.counts.writes.fetch_add(1, Ordering::Relaxed);
        if self.is_recording() {
            let served = if paged { Served::Base } else { Served::Bypass };
            let typed = self.typed(request, &object, data);
            self.record(
                &typed,
                &object,
                Op::Write,
                data.len() as u64,
                served,
                started,
            );
        }
        Ok(())
    }

    fn write_paged(&self, object: &Object, request: &Request, data: &[u8]) -> io::Result<()> {
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
        let mut writing = Writing {
            engine: self,
            object,
            request,
            data,
            failed: None,
        };
        let (mut index, mut result) = (first, Ok(()));
        while index <= last && result.is_ok() {
            (index, result) = writing.step(index, last);
        }
        self.abandon_writes(object, index..=last);
        result
    }

    /// Ascending, so that two writers never wait for each other in a circle.
    fn start_writes(&self, object: &Object, pages: RangeInclusive<u64>) {
        let mut inner = self.inner();
        for index in pages {
            while !inner.hierarchy.start_write(page_of(object, index)) {
                inner = self.wait_for_page(inner);
            }
        }
    }

    fn abandon_writes(&self, object: &Object, pages: RangeInclusive<u64>) {
        let mut inner = self.inner();
        for index in pages {
            let Inner {
                hierarchy, actions, ..
            } = &mut *inner;
            hierarchy.abandon_write(page_of(object, index), actions);
        }
        self.carry_out(&mut inner, &[]);
    }

    /// The newest bytes of `page`, whose write was started, into `bytes`; zeros past base's end.
    fn fetch(&self, object: &Object, page: PageId, bytes: &mut [u8]) -> io::Result<()> {
        debug_assert_eq!(bytes.len(), self.page_size());
        if self
            .frames
            .read(page, |frame| bytes.copy_from_slice(frame))
            .is_some()
        {
            return Ok(());
        }
        let place = {
            let inner = self.inner();
            let slot = inner.hierarchy.slots().find(page);
            let staged = slot.and_then(|slot| inner.staged.get(&slot.0));
            if let Some(staged) = staged {
                bytes.copy_from_slice(staged);
                return Ok(());
            }
            let dirty = slot.filter(|slot| inner.hierarchy.slots().is_dirty(*slot));
            dirty.and_then(|slot| inner.hierarchy.bytes_of(slot))
        };
        match (place, self.store()) {
            (Some((block, expected)), Some(flash)) => flash
                .read_block(block, page, expected, bytes)
                .map_err(|_| lost_error()),
            _ => {
                let offset = page.index * self.page_size() as u64;
                let read = object.base.read_at(bytes, offset)?;
                bytes[read..].fill(0);
                Ok(())
            }
        }
    }
}

/// One write under way; its pages were started.
struct Writing<'a> {
    engine: &'a Engine,
    object: &'a Object,
    request: &'a Request,
    data: &'a [u8],
    /// Why a page that has ended was not written.
    failed: Option<io::Error>,
}

impl Writing<'_> {
    fn part(&self, index: u64) -> Part {
        let size = self.engine.page_size();
        Part::of(self.object, self.request, self.data.len(), size, index)
    }

    /// Writes page `index` and perhaps pages after it; returns the first one not done, and how
    /// it went.
    fn step(&mut self, index: u64, last: u64) -> (u64, io::Result<()>) {
        match self.absorb(index, last) {
            Err(error) => (index, Err(error)),
            Ok(true) => (index + 1, self.failed.take().map_or(Ok(()), Err)),
            Ok(false) => {
                let mut end = index + 1;
                while end <= last && self.goes_to_base(end) {
                    end += 1;
                }
                (end, self.to_base(index..end))
            }
        }
    }

    /// Whether nothing but base can take page `index`.
    fn goes_to_base(&self, index: u64) -> bool {
        let inner = self.engine.inner();
        let page = page_of(self.object, index);
        let back = inner.hierarchy.is_write_back() && !inner.hierarchy.is_off();
        !inner.hierarchy.is_dirty(page) && (!back || self.is_past_end(index))
    }

    /// Pages that base does not wholly have are written to base, so that its length is right.
    fn is_past_end(&self, index: u64) -> bool {
        (index + 1) * self.engine.page_size() as u64 > self.object.length()
    }

    /// True when DRAM or flash took page `index`.
    fn absorb(&mut self, index: u64, last: u64) -> io::Result<bool> {
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
    fn rescue(&self, index: u64, last: u64) -> io::Result<()> {
        let (engine, object) = (self.engine, self.object);
        engine.abandon_writes(object, index..=last);
        let settled = engine.settle(object.id, index, index);
        engine.start_writes(object, index..=last);
        settled
    }

    /// `None`: ask again after [`Writing::rescue`].
    fn absorb_once(&mut self, index: u64) -> io::Result<Option<bool>> {
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

    fn absorb_whole(&self, part: &Part, bytes: &[u8]) -> io::Result<Option<bool>> {
        let engine = self.engine;
        let hints = engine.complete(&self.request.hints, self.object, Some(bytes));
        let mut inner = engine.inner();
        loop {
            let now = engine.now_ms();
            let Inner {
                hierarchy, actions, ..
            } = &mut *inner;
            let absorbed = hierarchy.absorb(part.page, &hints, now, actions);
            engine.carry_out(&mut inner, bytes);
            match absorbed {
                Absorbed::Done => {
                    self.object.uncommitted.add();
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
    fn to_base(&self, run: Range<u64>) -> io::Result<()> {
        let pages: Vec<PageId> = run.clone().map(|i| page_of(self.object, i)).collect();
        let (first, last) = (self.part(run.start), self.part(run.end - 1));
        let bytes = &self.data[first.outside.start..last.outside.end];
        let offset = self.request.offset + first.outside.start as u64;
        self.base_run(&pages, bytes, offset, false)
    }

    /// Writes `bytes` at `offset` of base and ends the writes of `pages`. `completed`: the bytes
    /// are one whole page, put together from a part of it.
    fn base_run(
        &self,
        pages: &[PageId],
        bytes: &[u8],
        offset: u64,
        completed: bool,
    ) -> io::Result<()> {
        let (engine, object) = (self.engine, self.object);
        engine.before_base_write(pages);
        let written = object.base.write_at(bytes, offset);
        object.unsynced.add();
        match written {
            Ok(()) => object.grow(offset + bytes.len() as u64),
            // A part may have been written, and have made the file longer.
            Err(_) => object.grow(object.base.len().unwrap_or(0)),
        }
        engine.base_written(pages);
        let mut inner = engine.inner();
        for page in pages {
            let part = self.part(page.index);
            let whole = completed || part.inside.len() == engine.page_size();
            let bytes = match completed {
                true => bytes,
                false => &self.data[part.outside.clone()],
            };
            let hints = engine.complete(&self.request.hints, object, whole.then_some(bytes));
            let Inner {
                hierarchy, actions, ..
            } = &mut *inner;
            hierarchy.finish_write(*page, &hints, whole, written.is_ok(), actions);
            engine.carry_out(&mut inner, bytes);
        }
        written
    }
}

impl Reading<'_> {
    fn part(&self, index: u64) -> Part {
        let size = self.engine.page_size();
        Part::of(self.object, self.request, self.length, size, index)
    }

    /// Serves page `index` and perhaps pages after it; returns the first one not served.
    fn step(&mut self, index: u64, last: u64, buf: &mut [u8]) -> io::Result<u64> {
        let part = self.part(index);
        if self.serve_pooled(&part, buf) {
            return Ok(index + 1);
        }
        let engine = self.engine;
        let mut inner = engine.inner();
        let start = loop {
            match inner.hierarchy.start_read(part.page) {
                ReadStart::Busy => inner = engine.wait_for_page(inner),
                start => break start,
            }
        };
        match start {
            ReadStart::Frame(_) => self.serve_frame(&mut inner, start, &part, buf),
            ReadStart::Buffer(slot) => self.serve_buffer(&mut inner, slot, &part, buf),
            ReadStart::Slot(slot) => {
                let bytes = inner.hierarchy.bytes_of(slot);
                debug_assert!(bytes.is_some(), "a valid slot has bytes");
                drop(inner);
                self.serve_slot(slot, bytes.unwrap_or_default(), &part, buf)?;
            }
            ReadStart::Base | ReadStart::Busy => {
                let end = self.extend_run(&mut inner, index, last);
                drop(inner);
                self.serve_base(index..end, buf)?;
                return Ok(end);
            }
        }
        Ok(index + 1)
    }

    fn note(&mut self, served: Served) {
        self.served = self.served.and(served);
    }

    /// The fast path: no lock but that of the pool's shard.
    fn serve_pooled(&mut self, part: &Part, buf: &mut [u8]) -> bool {
        let engine = self.engine;
        if engine.frame_count == 0 {
            return false;
        }
        let to = &mut buf[part.outside.clone()];
        let hit = engine.frames.read(part.page, |bytes| {
            to.copy_from_slice(&bytes[part.inside.clone()])
        });
        let Some(hit) = hit else { return false };
        engine.after_hit(hit);
        self.note(Served::Pool);
        true
    }

    /// The page came into the pool just now.
    fn serve_frame(&mut self, inner: &mut Inner, start: ReadStart, part: &Part, buf: &mut [u8]) {
        let to = &mut buf[part.outside.clone()];
        let frames = &self.engine.frames;
        let hit = frames.read(part.page, |b| to.copy_from_slice(&b[part.inside.clone()]));
        debug_assert!(
            hit.is_some(),
            "frames agree with the core's pool under the lock"
        );
        let Inner {
            hierarchy, actions, ..
        } = &mut *inner;
        hierarchy.finish_read(part.page, &self.request.hints, start, actions);
        self.note(Served::Pool);
    }

    fn serve_buffer(&mut self, inner: &mut Inner, slot: SlotId, part: &Part, buf: &mut [u8]) {
        let staged = inner.staged.get(&slot.0).cloned();
        debug_assert!(staged.is_some(), "a staged slot has bytes");
        let Some(bytes) = staged else { return };
        debug_assert_eq!(bytes.len(), self.engine.page_size());
        buf[part.outside.clone()].copy_from_slice(&bytes[part.inside.clone()]);
        self.finish(inner, part.page, ReadStart::Buffer(slot), &bytes);
        inner.recycle(bytes);
        self.note(Served::Buffer);
    }

    fn serve_slot(
        &mut self,
        slot: SlotId,
        at: (BlockId, u64),
        part: &Part,
        buf: &mut [u8],
    ) -> io::Result<()> {
        let size = self.engine.page_size();
        if part.inside.len() == size {
            return self.slot_into(slot, at, part.page, &mut buf[part.outside.clone()]);
        }
        with_scratch(size, |page| {
            self.slot_into(slot, at, part.page, page)?;
            buf[part.outside.clone()].copy_from_slice(&page[part.inside.clone()]);
            Ok(())
        })
    }

    /// Reads a whole page from its slot, or from base when the slot does not give it.
    fn slot_into(
        &mut self,
        slot: SlotId,
        (block, expected): (BlockId, u64),
        page: PageId,
        bytes: &mut [u8],
    ) -> io::Result<()> {
        let engine = self.engine;
        debug_assert_eq!(bytes.len(), engine.page_size(), "slots hold whole pages");
        let read = match engine.store() {
            Some(flash) => flash.read_block(block, page, expected, bytes),
            None => Err(thermocline_core::Fault::ReadError),
        };
        let Err(fault) = read else {
            self.finish(&mut engine.inner(), page, ReadStart::Slot(slot), bytes);
            self.note(Served::Flash);
            return Ok(());
        };
        let mut inner = engine.inner();
        let Inner {
            hierarchy, actions, ..
        } = &mut *inner;
        let on_base = hierarchy.slot_failed(slot, fault, actions);
        engine.carry_out(&mut inner, &[]);
        drop(inner);
        if !on_base {
            return Err(lost_error());
        }
        self.base_into(page.index, bytes)?;
        self.finish(&mut engine.inner(), page, ReadStart::Base, bytes);
        self.note(Served::Base);
        Ok(())
    }

    /// Starts base reads of pages after `index` as long as they are absent too; returns the end of
    /// the run.
    fn extend_run(&self, inner: &mut MutexGuard<'_, Inner>, index: u64, last: u64) -> u64 {
        let most = (RUN_BYTES_MAX / self.engine.page_size()).max(1) as u64;
        let mut end = index + 1;
        while end <= last && end - index < most {
            let page = page_of(self.object, end);
            if !inner.hierarchy.is_absent(page) {
                break;
            }
            match inner.hierarchy.start_read(page) {
                ReadStart::Base => end += 1,
                other => {
                    debug_assert_eq!(other, ReadStart::Busy, "an absent page is read from base");
                    break;
                }
            }
        }
        end
    }

    /// Reads pages `run` from base with one I/O.
    fn serve_base(&mut self, run: Range<u64>, buf: &mut [u8]) -> io::Result<()> {
        let size = self.engine.page_size();
        debug_assert!(run.start < run.end, "a run has pages");
        let (first, last) = (self.part(run.start), self.part(run.end - 1));
        let total = (run.end - run.start) as usize * size;
        let wanted = first.outside.start..last.outside.end;
        debug_assert!(
            wanted.len() <= total,
            "no page gives more bytes than it has"
        );
        debug_assert!(wanted.end <= buf.len());
        if wanted.len() == total {
            return self.run_into(run, &mut buf[wanted]);
        }
        with_scratch(total, |pages| {
            self.run_into(run, pages)?;
            let from = first.inside.start;
            debug_assert!(from < size && from + wanted.len() <= pages.len());
            buf[wanted.clone()].copy_from_slice(&pages[from..from + wanted.len()]);
            Ok(())
        })
    }

    fn run_into(&mut self, run: Range<u64>, pages: &mut [u8]) -> io::Result<()> {
        let engine = self.engine;
        debug_assert_eq!(pages.len() % engine.page_size(), 0, "runs are whole pages");
        self.note(Served::Base);
        self.base_into_run(run.clone(), pages)?;
        let mut inner = engine.inner();
        for (index, bytes) in run.zip(pages.chunks_exact(engine.page_size())) {
            self.finish(
                &mut inner,
                page_of(self.object, index),
                ReadStart::Base,
                bytes,
            );
        }
        Ok(())
    }

    fn base_into(&self, index: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.base_into_run(index..index + 1, bytes)
    }

    /// Fills `pages` from base, zeros past its end. On an error the pages' reads are abandoned.
    fn base_into_run(&self, run: Range<u64>, pages: &mut [u8]) -> io::Result<()> {
        let offset = run.start * self.engine.page_size() as u64;
        match self.object.base.read_at(pages, offset) {
            Ok(read) => {
                debug_assert!(read <= pages.len(), "a device reads no more than was asked");
                pages[read..].fill(0);
                Ok(())
            }
            Err(error) => {
                let mut inner = self.engine.inner();
                for index in run {
                    let Inner {
                        hierarchy, actions, ..
                    } = &mut *inner;
                    hierarchy.abandon_read(page_of(self.object, index), actions);
                }
                self.engine.carry_out(&mut inner, &[]);
                Err(error)
            }
        }
    }

    fn finish(&self, inner: &mut Inner, page: PageId, how: ReadStart, bytes: &[u8]) {
        let hints: HintSet = self
            .engine
            .complete(&self.request.hints, self.object, Some(bytes));
        let Inner {
            hierarchy, actions, ..
        } = &mut *inner;
        hierarchy.finish_read(page, &hints, how, actions);
        self.engine.carry_out(inner, bytes);
    }
}

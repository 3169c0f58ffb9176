//! Reads: from the pool, the write buffer, a slot on flash, or base.

use super::ahead::Found;
use super::{Part, RUN_BYTES_MAX, with_scratch};
use crate::durable::sync::lost_error;
use crate::engine::{Engine, Request};
use crate::files::object::Object;
use crate::lock::{self, MutexGuard};
use crate::state::{Inner, page_of};
use crate::store::{Store, Stored, checksum};
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use thermocline_core::health::Way;
use thermocline_core::hint::RequestType;
use thermocline_core::tier::SlotState;
use thermocline_core::{Fault, HintSet, PageId, ReadStart, SlotId, hint_type};
use thermocline_trace::{Op, Served};

/// How often a read that is to be answered after its pages are on flash looks whether they are: at
/// most 20 ms pass between.
const FLASH_WAITS: u32 = 50;

/// How long a request waits for a page that is coming ahead before it gets it from flash itself.
const AHEAD_WAIT: Duration = Duration::from_millis(100);

/// One read under way.
pub(crate) struct Reading<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) object: &'a Object,
    pub(crate) request: &'a Request<'a>,
    pub(crate) length: usize,
    pub(crate) served: Served,
    /// Done ahead of requests: what was read ahead is not for it.
    pub(crate) ahead: bool,
}

impl Engine {
    /// Reads into `buf` from the request's offset; returns bytes read, short at the end of the
    /// object.
    ///
    /// # Errors
    /// Those of base. Flash never fails a read: a bad copy is dropped and fetched again.
    pub fn read(&self, request: &Request<'_>, buf: &mut [u8]) -> io::Result<usize> {
        let object = self.still_open(request.object)?;
        let started = Instant::now();
        let paged = self.is_paged(object);
        let (length, served) = match paged {
            true => self.read_paged(object, request, buf)?,
            false => (object.base.read_at(buf, request.offset)?, Served::Bypass),
        };
        if !paged {
            self.bypassed[0].fetch_add(1, Ordering::Relaxed);
        }
        self.count_read(object, request, &buf[..length], served, started);
        Ok(length)
    }

    /// Asks `flash` once more for the pages of `run` that did not come right where base is older,
    /// and where the request itself was `unfinished`. Any other clean page is a fault of the
    /// device: it is counted, and the page leaves flash, because base has it.
    pub(crate) fn flash_again(
        &self,
        flash: &Store,
        run: &[(SlotId, Stored)],
        bytes: &mut [u8],
        read: &mut [Result<(), Fault>],
        unfinished: impl Fn(usize) -> bool,
    ) {
        assert_eq!(read.len(), run.len(), "a result for each page");
        if read.iter().all(Result::is_ok) {
            return;
        }
        let inner = self.inner();
        let slots = inner.hierarchy.slots();
        let dirty: Vec<bool> = run.iter().map(|(slot, _)| slots.is_dirty(*slot)).collect();
        drop(inner);
        let at: Vec<Stored> = run.iter().map(|(_, stored)| *stored).collect();
        flash.read_again(&at, bytes, read, |index| dirty[index] || unfinished(index));
    }

    /// Notes a read that ended with `bytes`.
    pub(crate) fn count_read(
        &self,
        object: &Object,
        request: &Request<'_>,
        bytes: &[u8],
        served: Served,
        started: Instant,
    ) {
        let length = bytes.len() as u64;
        if served != Served::Bypass {
            self.look_ahead(object, request, bytes.len());
        }
        self.latency[served as usize].add(started.elapsed());
        self.read_bytes.fetch_add(length, Ordering::Relaxed);
        object.counts.reads.fetch_add(1, Ordering::Relaxed);
        if matches!(served, Served::Pool | Served::Buffer | Served::Flash) {
            object.counts.hits.fetch_add(1, Ordering::Relaxed);
        }
        if self.is_recorded(object, request.offset, length) {
            let typed = self.typed(request, object, bytes);
            self.record(&typed, object, Op::Read, length, served, started);
        }
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

    pub(crate) fn read_paged(
        &self,
        object: &Object,
        request: &Request<'_>,
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
            ahead: false,
        };
        let mut index = request.offset / size;
        while index <= last {
            index = reading.step(index, last, &mut buf[..length])?;
        }
        Ok((length, reading.served))
    }
}

impl Reading<'_> {
    pub(crate) fn part(&self, index: u64) -> Part {
        let size = self.engine.page_size();
        Part::of(self.object, self.request, self.length, size, index)
    }

    /// Serves page `index` and perhaps pages after it; returns the first one not served.
    pub(crate) fn step(&mut self, index: u64, last: u64, buf: &mut [u8]) -> io::Result<u64> {
        let part = self.part(index);
        if self.serve_pooled(&part, buf) {
            return Ok(index + 1);
        }
        let engine = self.engine;
        let mut inner = engine.inner();
        if !self.ahead {
            inner = match self.serve_ahead(inner, &part, last, buf) {
                Ok(next) => return Ok(next),
                Err(inner) => inner,
            };
        }
        let start = loop {
            match inner.hierarchy.start_read(part.page) {
                ReadStart::Busy => inner = engine.wait_for_page(inner),
                start => break start,
            }
        };
        match start {
            ReadStart::Frame(_) => self.serve_frame(&mut inner, &part, buf),
            ReadStart::Buffer(slot) => self.serve_buffer(&mut inner, slot, &part, buf),
            ReadStart::Slot(slot) => {
                let run = self.extend_slots(&mut inner, slot, &part, last);
                drop(inner);
                return self.serve_slots(&run, &part, buf);
            }
            ReadStart::Base | ReadStart::Busy => {
                let run = self.extend_run(&mut inner, index, last);
                drop(inner);
                for left in self.serve_base(&run, buf)? {
                    self.step(left, left, buf)?;
                }
                return Ok(run.pages.end);
            }
        }
        Ok(index + 1)
    }

    pub(crate) fn note(&mut self, served: Served) {
        self.served = self.served.and(served);
    }

    /// The fast path: no lock but that of the pool's shard.
    pub(crate) fn serve_pooled(&mut self, part: &Part, buf: &mut [u8]) -> bool {
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

    /// Serves the page and those after it from what was read ahead; returns the first one after
    /// them, or the lock when there is nothing.
    fn serve_ahead<'i>(
        &mut self,
        mut inner: MutexGuard<'i, Inner>,
        part: &Part,
        last: u64,
        buf: &mut [u8],
    ) -> Result<u64, MutexGuard<'i, Inner>>
    where
        Self: 'i,
    {
        let size = self.engine.page_size();
        // The rest of the last page is going to be asked for by the next request.
        let keep = part.page.index == last && part.inside.end < size;
        let sequential = RequestType::SequentialRead.value();
        let is_alone = self.request.hints.get(hint_type::REQUEST) != sequential;
        let started = Instant::now();
        let found = loop {
            match inner.ahead.take(part.page, last, keep) {
                // What comes is another one's: a page at hand is read sooner.
                Found::Coming { .. } | Found::Queued
                    if is_alone && inner.hierarchy.is_at_hand(part.page) =>
                {
                    return Err(inner);
                }
                // Base may keep it waiting for others. Were it to be read from base a second time,
                // base would have the more to do the slower it is.
                Found::Coming { given_up }
                    if (given_up || started.elapsed() > AHEAD_WAIT)
                        && inner.hierarchy.is_at_hand(part.page) =>
                {
                    inner.ahead.wait_no_more(part.page);
                }
                Found::Coming { .. } => inner = self.engine.wait_a_moment(inner),
                // The rest of the chunk may be on base, and base may hang.
                Found::Queued if inner.hierarchy.is_at_hand(part.page) => {
                    let object = part.page.object;
                    let mut pages = part.page.index..=last;
                    let is_at_hand =
                        |index: &u64| inner.hierarchy.is_at_hand(PageId::new(object, *index));
                    let end = pages.find(|index| !is_at_hand(index)).unwrap_or(last + 1);
                    inner.ahead.pass_by(object, &(part.page.index..end));
                }
                // A part of it would cost base as much.
                Found::Queued => {
                    drop(inner);
                    self.engine.read_ahead(Some(part.page));
                    inner = self.engine.inner();
                }
                Found::Here(buffer, pages, served) => break (buffer, pages, served),
                Found::Nothing => return Err(inner),
            }
        };
        drop(inner);
        let (buffer, pages, served) = found;
        let end = part.page.index + pages.len() as u64;
        for (index, page) in (part.page.index..end).zip(pages) {
            let part = self.part(index);
            let from = page * size;
            let bytes = &buffer[from + part.inside.start..from + part.inside.end];
            buf[part.outside].copy_from_slice(bytes);
        }
        self.engine.return_chunk(buffer);
        self.note(served);
        Ok(end)
    }

    /// The page came into the pool just now.
    pub(crate) fn serve_frame(&mut self, inner: &mut Inner, part: &Part, buf: &mut [u8]) {
        debug_assert!(part.inside.end <= self.engine.page_size());
        let to = &mut buf[part.outside.clone()];
        let copy = |frame: &[u8]| to.copy_from_slice(&frame[part.inside.clone()]);
        self.engine.hit_under_lock(inner, part.page, copy);
        self.note(Served::Pool);
    }

    pub(crate) fn serve_buffer(
        &mut self,
        inner: &mut Inner,
        slot: SlotId,
        part: &Part,
        buf: &mut [u8],
    ) {
        let Some(bytes) = inner.staged.get(&slot.0).cloned() else {
            lock::die("a staged slot has bytes");
        };
        debug_assert_eq!(bytes.len(), self.engine.page_size());
        buf[part.outside.clone()].copy_from_slice(&bytes[part.inside.clone()]);
        self.finish(inner, part.page, ReadStart::Buffer(slot), &bytes);
        inner.recycle(bytes);
        self.note(Served::Buffer);
    }

    /// Starts flash reads of the whole pages after `first`, whose read was started, as long as
    /// they are on flash too and nobody has to be waited for.
    pub(crate) fn extend_slots(
        &self,
        inner: &mut MutexGuard<'_, Inner>,
        slot: SlotId,
        first: &Part,
        last: u64,
    ) -> Vec<(SlotId, Stored)> {
        let size = self.engine.page_size();
        let most = (RUN_BYTES_MAX / size).max(1) as u64;
        let mut run = vec![(slot, stored(inner, slot, first.page))];
        if first.inside.len() < size {
            return run;
        }
        for index in first.page.index + 1..(last + 1).min(first.page.index + most) {
            let part = self.part(index);
            if part.inside.len() < size || !inner.hierarchy.is_on_flash(part.page) {
                break;
            }
            match inner.hierarchy.start_read(part.page) {
                ReadStart::Slot(slot) => run.push((slot, stored(inner, slot, part.page))),
                ReadStart::Busy => break,
                other => lock::die(&format!("a page on flash is read from its slot: {other:?}")),
            }
        }
        run
    }

    /// Serves the pages of `run`, which begins with that of `first`; returns the first one after
    /// them.
    pub(crate) fn serve_slots(
        &mut self,
        run: &[(SlotId, Stored)],
        first: &Part,
        buf: &mut [u8],
    ) -> io::Result<u64> {
        let size = self.engine.page_size();
        let end = first.page.index + run.len() as u64;
        if first.inside.len() == size {
            let from = first.outside.start;
            self.slots_into(run, &mut buf[from..from + run.len() * size])?;
            return Ok(end);
        }
        assert_eq!(run.len(), 1, "runs are whole pages");
        with_scratch(size, |page| {
            self.slots_into(run, page)?;
            buf[first.outside.clone()].copy_from_slice(&page[first.inside.clone()]);
            Ok(end)
        })
    }

    /// Reads whole pages from their slots, all at once; those that their slots do not give come
    /// from base, one by one.
    pub(crate) fn slots_into(
        &mut self,
        run: &[(SlotId, Stored)],
        bytes: &mut [u8],
    ) -> io::Result<()> {
        let engine = self.engine;
        let size = engine.page_size();
        assert_eq!(bytes.len(), run.len() * size, "slots hold whole pages");
        let at: Vec<Stored> = run.iter().map(|(_, stored)| *stored).collect();
        let Some(flash) = engine.store() else {
            return self.settle_slots(run, vec![Err(Fault::ReadError); run.len()], bytes);
        };
        let mut read = flash.read_blocks(&at, bytes);
        engine.flash_again(&flash, run, bytes, &mut read, |_| false);
        self.settle_slots(run, read, bytes)
    }

    /// Ends the flash reads of `run`, each as `read` says, with the pages in `bytes`; those that
    /// their slots did not give come from base, one by one.
    pub(crate) fn settle_slots(
        &mut self,
        run: &[(SlotId, Stored)],
        read: Vec<Result<(), Fault>>,
        bytes: &mut [u8],
    ) -> io::Result<()> {
        let engine = self.engine;
        let size = engine.page_size();
        assert!(read.len() == run.len() && bytes.len() == run.len() * size);
        let (mut on_base, mut result) = (Vec::new(), Ok(()));
        let mut inner = engine.inner();
        inner.hierarchy.begin_call(Way::Read);
        let pages = run.iter().zip(bytes.chunks_exact_mut(size));
        for ((&(slot, stored), bytes), read) in pages.zip(read) {
            let Err(fault) = read else {
                self.finish(&mut inner, stored.page, ReadStart::Slot(slot), bytes);
                continue;
            };
            let given_up = engine.decide(&mut inner, &[], |hierarchy, out| {
                hierarchy.slot_failed(slot, fault, out)
            });
            match given_up {
                true => on_base.push((stored.page, bytes)),
                false => result = Err(lost_error()),
            }
        }
        engine.end_call(&mut inner, Way::Read);
        drop(inner);
        if on_base.len() < run.len() {
            self.note(Served::Flash);
        }
        // Each read that was started is ended, also when one before it failed.
        for (page, bytes) in on_base {
            match self.base_into(page.index, bytes) {
                Ok(()) => self.finish(&mut engine.inner(), page, ReadStart::Base, bytes),
                Err(error) => result = Err(error),
            }
            self.note(Served::Base);
        }
        result
    }

    /// Synchronous read allocation (hStorage-DB §5.1): waits until those of the pages `read` that
    /// are on their way to flash are there. Not for ever: flash that lags only makes a read slow.
    pub(crate) fn wait_for_flash(&self, read: impl Iterator<Item = u64>) {
        let engine = self.engine;
        let mut inner = engine.inner();
        let slots = inner.hierarchy.slots();
        let staged = read.filter_map(|index| {
            let page = page_of(self.object, index);
            let slot = slots.find(page)?;
            let waits = slots.state(slot) == SlotState::Staged;
            waits.then(|| (page, slots.generation(slot)))
        });
        let staged: Vec<(PageId, u32)> = staged.collect();
        // By the page: the tier may have other slots after a wait.
        let on_the_way = |inner: &Inner, (page, generation): &(PageId, u32)| {
            let slots = inner.hierarchy.slots();
            slots.find(*page).is_some_and(|slot| {
                slots.state(slot) == SlotState::Staged && slots.generation(slot) == *generation
            })
        };
        for _ in 0..FLASH_WAITS {
            let off = inner.hierarchy.is_off();
            if off || !staged.iter().any(|one| on_the_way(&inner, one)) {
                return;
            }
            inner = match engine.write_some(inner) {
                Ok(inner) => inner,
                Err(inner) => engine.wait_for_room(inner),
            };
        }
    }

    pub(crate) fn base_into(&self, index: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.base_into_run(index..index + 1, bytes)
    }

    /// Fills `pages` from base, zeros past its end. On an error the pages' reads are abandoned.
    pub(crate) fn base_into_run(&self, run: Range<u64>, pages: &mut [u8]) -> io::Result<()> {
        let read = self.base_at(run.start, pages);
        if read.is_err() {
            let mut inner = self.engine.inner();
            for index in run {
                let page = page_of(self.object, index);
                self.engine.decide(&mut inner, &[], |hierarchy, out| {
                    hierarchy.abandon_read(page, out);
                });
            }
        }
        read
    }

    /// Fills `pages` from page `first` of base on, zeros past its end.
    pub(crate) fn base_at(&self, first: u64, pages: &mut [u8]) -> io::Result<()> {
        let offset = first * self.engine.page_size() as u64;
        let read = self.object.base.read_at(pages, offset)?;
        debug_assert!(read <= pages.len(), "a device reads no more than was asked");
        pages[read..].fill(0);
        Ok(())
    }

    pub(crate) fn finish(&self, inner: &mut Inner, page: PageId, how: ReadStart, bytes: &[u8]) {
        let hints: HintSet = self
            .engine
            .complete(&self.request.hints, self.object, Some(bytes));
        let doubt = inner.hierarchy.doubt_of(page);
        let doubt = doubt.filter(|_| how == ReadStart::Base);
        let same = doubt.map(|sum| checksum(page, bytes) == sum);
        self.engine.decide(inner, bytes, |hierarchy, out| {
            if let Some(same) = same {
                hierarchy.settle_doubt(page, same);
            }
            hierarchy.finish_read(page, &hints, how, out)
        });
    }
}

/// Where the bytes in the valid `slot` are.
pub(crate) fn stored(inner: &Inner, slot: SlotId, page: PageId) -> Stored {
    let Some((block, checksum)) = inner.hierarchy.bytes_of(slot) else {
        lock::die("a valid slot has bytes");
    };
    Stored {
        block,
        page,
        checksum,
    }
}

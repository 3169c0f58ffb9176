//! Reads in two halves, for a caller who makes the device's requests itself.
//!
//! States of a [`FlashRead`]: *started* ([`Engine::start_read`]: the slots are pinned, nobody holds
//! a lock) → *ended* ([`FlashRead::end`]), or → *failed* ([`FailedRead`]: some page must come from
//! base, which may take long) → *ended* ([`FailedRead::from_base`]).
//!
//! # Invariants
//! 1. A read that was started is ended: until then its pages cannot be written, and their slots
//!    are not given to others.
//! 2. Bytes reach the caller's reply only after their checksum was right.

use super::ahead::Found;
use super::read::{Reading, stored};
use crate::device::DirectFile;
use crate::engine::{Engine, Request};
use crate::files::object::Object;
use crate::lock;
use crate::state::page_of;
use crate::store::{Store, Stored};
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use thermocline_core::{Fault, HintSet, ReadStart, SlotId};
use thermocline_trace::Served;

/// Pages in a row, and where on flash each of them is.
type Run = Vec<(SlotId, Stored)>;

/// How a read can go on.
#[derive(Debug)]
pub enum ReadStarted {
    /// It has ended: so many bytes were in DRAM.
    Done(usize),
    /// All of it is on flash, and the caller is to fetch it.
    Flash(FlashRead),
    /// [`Engine::read`] is to be called, and may wait.
    Waits,
}

/// A read whose pages are on flash, all of them whole. See the module text.
#[derive(Debug)]
#[must_use = "a read that was started must be ended"]
pub struct FlashRead {
    object: Arc<Object>,
    store: Arc<Store>,
    run: Run,
    offset: u64,
    hints: HintSet,
    client: u32,
    started: Instant,
    /// For the device's meter.
    begun: u64,
    ended: bool,
}

/// How fetching ended.
#[derive(Debug)]
pub enum ReadEnded {
    /// So many bytes are in the reply.
    Done(usize),
    /// Not all pages could be had.
    Failed(Box<FailedRead>),
}

/// A read that needs base after all.
#[derive(Debug)]
#[must_use = "a read that was started must be ended"]
pub struct FailedRead {
    read: FlashRead,
    pages: Vec<Result<(), Fault>>,
    /// Which of them the request left out: it was interrupted, or ended early.
    unfinished: Vec<bool>,
}

impl Engine {
    /// Begins the read of `buf.len()` bytes, of which the caller fetches at most `most` from flash
    /// by itself. `hints` are asked for only when the read is not [`ReadStarted::Waits`]. Waits
    /// for no device and for nobody but the engine's lock.
    #[doc(hidden)]
    pub fn start_read(
        &self,
        object: &Arc<Object>,
        (offset, client): (u64, u32),
        buf: &mut [u8],
        most: usize,
        hints: impl FnOnce() -> HintSet,
    ) -> ReadStarted {
        if self.still_open(object).is_err() || !self.is_paged(object) || self.config.inline {
            return ReadStarted::Waits;
        }
        let started = Instant::now();
        let left = object.length().saturating_sub(offset);
        let length = buf.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let size = self.page_size();
        let whole = offset.is_multiple_of(size as u64) && length.is_multiple_of(size);
        if length == 0 || !whole {
            return ReadStarted::Waits;
        }
        let pages = offset / size as u64..(offset + length as u64) / size as u64;
        assert_eq!((pages.end - pages.start) as usize * size, length);
        let at_hand = match self.pooled(object, pages.start, &mut buf[..length]) {
            true => Some(Served::Pool),
            false => self.take_ahead(object, &pages, &mut buf[..length]),
        };
        if let Some(served) = at_hand {
            let request = Request {
                object,
                offset,
                hints: hints(),
                client,
            };
            self.count_read(object, &request, &buf[..length], served, started);
            return ReadStarted::Done(length);
        }
        if length > most {
            return ReadStarted::Waits;
        }
        let Some((store, run)) = self.start_flash(object, pages) else {
            return ReadStarted::Waits;
        };
        let begun = store.direct().map_or(0, |file| file.begun());
        ReadStarted::Flash(FlashRead {
            object: Arc::clone(object),
            store,
            run,
            offset,
            hints: hints(),
            client,
            started,
            begun,
            ended: false,
        })
    }

    /// Whether the pages from `first` on that fill `buf` were all in the DRAM pool; `buf` has
    /// them then.
    fn pooled(&self, object: &Object, first: u64, buf: &mut [u8]) -> bool {
        let mut pages = (first..).zip(buf.chunks_exact_mut(self.page_size()));
        self.frame_count > 0
            && pages.all(|(index, to)| {
                let page = page_of(object, index);
                self.read_pooled(page, |bytes| to.copy_from_slice(bytes))
            })
    }

    /// Fills `buf` with `pages` if all of them were read ahead; says from where.
    fn take_ahead(&self, object: &Object, pages: &Range<u64>, buf: &mut [u8]) -> Option<Served> {
        let size = self.page_size();
        let mut found = Vec::new();
        let mut inner = self.inner();
        if !inner.ahead.is_here(object.id, pages) {
            return None;
        }
        let mut index = pages.start;
        while index < pages.end {
            match inner
                .ahead
                .take(page_of(object, index), pages.end - 1, false)
            {
                Found::Here(buffer, part, served) => {
                    index += part.len() as u64;
                    found.push((buffer, part, served));
                }
                _ => lock::die("what was read ahead is gone under the lock"),
            }
        }
        drop(inner);
        let (mut at, mut served) = (0, Served::Unknown);
        for (buffer, part, from) in found {
            let bytes = &buffer[part.start * size..part.end * size];
            buf[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
            served = served.and(from);
            self.return_chunk(buffer);
        }
        assert_eq!(at, buf.len(), "all pages were taken");
        Some(served)
    }

    /// Starts the reads of `pages` when they are all to be read from slots of a cache that lends
    /// its file.
    fn start_flash(&self, object: &Object, pages: Range<u64>) -> Option<(Arc<Store>, Run)> {
        let mut inner = self.inner();
        let page = |index| page_of(object, index);
        // A page that comes soon is waited for by somebody who may wait.
        if inner.ahead.is_coming(object.id, &pages) {
            return None;
        }
        if !(pages.clone()).all(|index| inner.hierarchy.is_on_flash(page(index))) {
            return None;
        }
        // Pinned below, under the same lock: the cache stays until they are ended.
        let store = self.store()?;
        if !store.is_aligned() || store.direct().is_none_or(|file| file.is_stuck()) {
            return None;
        }
        inner.ahead.pass_by(object.id, &pages);
        let mut run = Vec::with_capacity((pages.end - pages.start) as usize);
        for index in pages {
            let page = page(index);
            match inner.hierarchy.start_read(page) {
                ReadStart::Slot(slot) => run.push((slot, stored(&inner, slot, page))),
                other => lock::die(&format!("a page on flash is read from its slot: {other:?}")),
            }
        }
        Some((store, run))
    }
}

impl FlashRead {
    /// Bytes to fetch.
    #[must_use]
    pub fn length(&self) -> usize {
        self.run.len() * self.store.page_size() as usize
    }

    /// The file to fetch them from; `None` when it lends it no more.
    #[must_use]
    pub fn file(&self) -> Option<DirectFile<'_>> {
        self.store.direct()
    }

    /// The parts to fetch one after another into one buffer: offset in the file and bytes, in the
    /// order of the pages. Pages that lie one behind the other are one part.
    pub fn parts(&self) -> impl Iterator<Item = (u64, usize)> {
        let size = self.store.page_size() as usize;
        let adjacent = |a: &(SlotId, Stored), b: &(SlotId, Stored)| {
            a.1.block.0.checked_add(1) == Some(b.1.block.0)
        };
        let parts = self.run.chunk_by(adjacent);
        parts.map(move |part| (self.store.offset(part[0].1.block), part.len() * size))
    }

    /// Ends the read: `results` say how each of [`FlashRead::parts`] went, whose bytes lie in
    /// `fetched`, and those that are right go to `reply`, as long. Waits for no device.
    pub fn end(
        mut self,
        engine: &Engine,
        results: &[io::Result<usize>],
        fetched: &[u8],
        reply: &mut [u8],
    ) -> ReadEnded {
        let length = self.length();
        assert!(fetched.len() == length && reply.len() == length);
        if let Some(file) = self.file() {
            file.ended(self.begun, results);
        }
        let size = self.store.page_size() as usize;
        let mut pages = Vec::with_capacity(self.run.len());
        let mut unfinished = Vec::with_capacity(self.run.len());
        for ((_, part), result) in self.parts().zip(results) {
            let moved = result.as_ref().map_err(kind_of);
            for at in (0..part).step_by(size) {
                pages.push(match moved {
                    Ok(&moved) if moved >= at + size => Ok(()),
                    Ok(_) => Err(Fault::Corrupt),
                    Err(fault) => Err(fault),
                });
                unfinished.push(match result {
                    Ok(moved) => *moved < at + size,
                    Err(error) => says_nothing(error),
                });
            }
        }
        assert_eq!(pages.len(), self.run.len(), "a result for each part");
        let bytes = fetched.chunks_exact(size).zip(reply.chunks_exact_mut(size));
        for ((page, (_, stored)), (fetched, reply)) in pages.iter_mut().zip(&self.run).zip(bytes) {
            *page = page.and_then(|()| stored.check(fetched));
            if page.is_ok() {
                assert_eq!(fetched.len(), reply.len(), "invariant 2: checked whole");
                reply.copy_from_slice(fetched);
            }
        }
        if pages.iter().any(Result::is_err) {
            return ReadEnded::Failed(Box::new(FailedRead {
                read: self,
                pages,
                unfinished,
            }));
        }
        match self.settle(engine, pages, reply) {
            Ok(length) => ReadEnded::Done(length),
            Err(error) => lock::die(&format!("pages that are right were not served: {error}")),
        }
    }

    fn settle(
        &mut self,
        engine: &Engine,
        pages: Vec<Result<(), Fault>>,
        reply: &mut [u8],
    ) -> io::Result<usize> {
        let request = Request {
            object: &self.object,
            offset: self.offset,
            hints: self.hints,
            client: self.client,
        };
        let mut reading = Reading {
            engine,
            object: &self.object,
            request: &request,
            length: reply.len(),
            served: Served::Unknown,
            ahead: false,
        };
        let settled = reading.settle_slots(&self.run, pages, reply);
        let served = reading.served;
        self.ended = true;
        settled?;
        engine.count_read(&self.object, &request, reply, served, self.started);
        Ok(reply.len())
    }
}

impl FailedRead {
    /// Fetches what did not come right into the `reply` that [`FlashRead::end`] was called with:
    /// from base, and once more from flash where base is older or the request was not finished.
    /// Returns the bytes it has.
    ///
    /// # Errors
    /// Those of base, and `EIO` for a page that only flash had.
    pub fn from_base(mut self, engine: &Engine, reply: &mut [u8]) -> io::Result<usize> {
        let unfinished = std::mem::take(&mut self.unfinished);
        let FlashRead { store, run, .. } = &self.read;
        engine.flash_again(store, run, reply, &mut self.pages, |page| unfinished[page]);
        self.read
            .settle(engine, std::mem::take(&mut self.pages), reply)
    }
}

impl Drop for FlashRead {
    fn drop(&mut self) {
        if !self.ended {
            lock::die("invariant 1: a read was started and never ended");
        }
    }
}

/// Whether an error is the request's own, and says nothing of the device.
fn says_nothing(error: &io::Error) -> bool {
    let own = [libc::EINTR, libc::EAGAIN, libc::EINVAL, libc::EBADF];
    let own = own.map(Some).contains(&error.raw_os_error());
    own || error.kind() == io::ErrorKind::Interrupted
}

fn kind_of(error: &io::Error) -> Fault {
    match error.kind() {
        io::ErrorKind::TimedOut => Fault::TimedOut,
        _ => Fault::ReadError,
    }
}

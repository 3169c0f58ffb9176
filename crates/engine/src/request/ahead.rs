//! Reading ahead of sequential streams, from flash and from base.
//!
//! A mount serves its files past the kernel's page cache, so the kernel reads nothing ahead, and a
//! scan page by page would wait for the device at each page. Here a thread of the engine reads the
//! pages that come next, as an ordinary read does, with the hints of the stream: policies are told
//! then, and a page read ahead counts as requested whether or not it is asked for later. What it
//! brings waits in DRAM for the stream to come by, once.
//!
//! States of a *chunk*, pages in a row of one object: *queued* → *coming* (a thread reads it: one
//! of the engine, or the one whose request needs a page of it, whichever is first) → *here* →
//! gone (served to its end, or the oldest when memory is short, or not asked for in a while). A
//! chunk whose read failed is gone: the request that needs its pages meets the error.
//!
//! A *stream* is a place in an object up to which requests have come, and one up to which was read
//! ahead. It is one from its second request on: a long read at random begins none. A request for
//! pages that a stream has had is another reader's, a few requests behind, who is a stream of his
//! own; where there are [`BESIDE_MAX`] beside each other he is taken for one of them, so that
//! somebody who reads a few pages again and again is no more than that many. Chunks start at
//! four times a request's length and double, up to what the settings say. A request has one more
//! read, unless two are ahead already; one as long as a chunk takes a chunk away whole, so it has
//! two read, or the device would wait until it was answered.
//!
//! Streams share the memory: a chunk is as long at most as lets each recent stream have three, two
//! ahead and one that it is in. So none loses pages that it is about to ask for.
//!
//! # Invariants
//! 1. A chunk serves a page only as it is now: whoever starts or ends a write of the page, trims it
//!    or doubts the object makes the chunk forget it, under the engine's lock ([`Ahead::forget`]).
//!    Also at the end: a hit in the DRAM pool asks no write that is under way.
//! 2. A chunk is read while its object is in use: the last close waits for it, and none is queued
//!    after it.
//! 3. Chunks, and buffers kept for the next ones, together hold at most [`BYTES_MAX`]; with what
//!    is left of their huge pages they take four times that at most. Buffers that a request still
//!    copies from when their chunk is gone, and those that nobody has unmapped yet come on top.
//! 4. A stream is read ahead up to `until` and no further: what found no memory is tried again,
//!    and so is what was given up because nobody came for it in a while.

use super::read::Reading;
use crate::device::AlignedBuf;
use crate::engine::{Engine, Request};
use crate::files::object::Object;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use thermocline_core::hint::RequestType;
use thermocline_core::{HintSet, ObjectId, PageId, hint_type};
use thermocline_trace::Served;

/// Threads that read ahead.
pub(crate) const READERS: usize = 2;
/// Bytes of all chunks together.
const BYTES_MAX: usize = 64 << 20;
/// Bytes of a chunk at most: several streams have room for theirs.
pub(crate) const CHUNK_MAX: u32 = 16 << 20;
const _: () = assert!(CHUNK_MAX as usize * 4 <= BYTES_MAX);
/// Streams remembered. One that is not recent makes room; with more at once the others are not
/// read ahead.
const STREAMS_MAX: usize = 256;
/// Streams of one object beside each other.
const BESIDE_MAX: usize = 4;
/// Requests that a stream remembers: as many as two streams can be apart and be beside each other,
/// when one comes a little later.
const REMEMBERED: usize = 8;
/// A stream with none of the last so many sequential requests is not recent.
const RECENT: u64 = 4 * STREAMS_MAX as u64;
/// Bytes of the shortest chunk.
const CHUNK_MIN: usize = 128 << 10;
/// Chunks of this many bytes on are in huge pages: base reads them several times as fast.
const HUGE_MIN: usize = 512 << 10;
/// One chunk. See the module text.
struct Chunk {
    number: u64,
    object: ObjectId,
    pages: Range<u64>,
    bytes: usize,
    /// Pages that are served from it.
    good: Vec<bool>,
    state: State,
    /// Somebody asked for a page of it since the last look.
    asked: bool,
    /// Somebody has waited in vain for it.
    given_up: bool,
}

enum State {
    Queued(Arc<Object>, HintSet),
    Coming,
    Here(Arc<AlignedBuf>, Served),
}

impl Chunk {
    /// Whether `page` is served from it, now or later.
    fn has(&self, page: PageId) -> bool {
        self.object == page.object
            && self.pages.contains(&page.index)
            && self.good[(page.index - self.pages.start) as usize]
    }

    /// How many pages it serves one after another from `first` on, up to `last`.
    fn run(&self, first: u64, last: u64) -> usize {
        let from = (first - self.pages.start) as usize;
        let most = (last.min(self.pages.end - 1) - first) as usize + 1;
        let good = self.good[from..][..most].iter();
        good.take_while(|good| **good).count()
    }
}

impl State {
    /// Lower: served sooner.
    fn rank(&self) -> u8 {
        match self {
            Self::Here(..) => 0,
            Self::Coming => 1,
            Self::Queued(..) => 2,
        }
    }
}

struct Stream {
    object: ObjectId,
    /// The page after the last one that was asked for.
    next: u64,
    /// The page after the last one that was read ahead.
    until: u64,
    /// Pages of the next chunk.
    pages: u64,
    /// Pages of its first chunk.
    shortest: u64,
    /// When it was last seen, in requests.
    seen: u64,
    /// A second request went on where the first one ended.
    goes_on: bool,
    /// First pages of its last requests, the latest first; `u64::MAX` where there was none.
    firsts: [u64; REMEMBERED],
}

impl Stream {
    /// How far a request that begins with `page` is from going on with it; `None` when it had such
    /// a request before its latest one. (Requests shorter than a page begin with the same one.)
    fn distance(&self, page: u64) -> Option<u64> {
        match self.firsts.iter().position(|first| *first == page) {
            Some(0) => Some(0),
            Some(_) => None,
            None => Some(self.next.abs_diff(page)),
        }
    }

    /// Notes a request for `pages`.
    fn goes_by(&mut self, pages: &Range<u64>) {
        if self.firsts[0] != pages.start {
            self.firsts.rotate_right(1);
            self.firsts[0] = pages.start;
        }
        self.goes_on |= pages.end > self.next;
        self.next = self.next.max(pages.end);
        self.until = self.until.max(self.next);
        assert!(
            self.next <= self.until,
            "invariant 4: it is not behind itself"
        );
    }
}

/// What is read ahead, under the engine's lock.
#[derive(Default)]
pub(crate) struct Ahead {
    chunks: Vec<Chunk>,
    streams: Vec<Stream>,
    spare: Vec<AlignedBuf>,
    /// Buffers that there was no room for among the spare ones: see [`Ahead::unwanted`].
    unwanted: Vec<AlignedBuf>,
    /// See [`Ahead::watch`].
    watched: Vec<(u64, ObjectId, Vec<u64>)>,
    requests: u64,
    numbers: u64,
    bytes: usize,
}

/// What there is of a page.
pub(crate) enum Found {
    Nothing,
    /// It is in a chunk that nobody reads yet.
    Queued,
    /// A thread is reading it; somebody may have waited in vain for it.
    Coming {
        given_up: bool,
    },
    /// So many pages from it on, in this buffer from this page of the buffer on.
    Here(Arc<AlignedBuf>, Range<usize>, Served),
}

impl Ahead {
    /// What there is of `page` and of those after it up to `last`; they are served once.
    /// `page` is not taken when `keep` says that more of it is going to be asked for.
    pub(crate) fn take(&mut self, page: PageId, last: u64, keep: bool) -> Found {
        let with_it = (0..self.chunks.len()).filter(|at| self.chunks[*at].has(page));
        // Streams that overlap may have read it more than once: what is here comes first.
        let Some(at) = with_it.min_by_key(|at| self.chunks[*at].state.rank()) else {
            return Found::Nothing;
        };
        let chunk = &mut self.chunks[at];
        chunk.asked = true;
        let (buffer, served) = match &chunk.state {
            State::Here(buffer, served) => (Arc::clone(buffer), *served),
            State::Coming => {
                let given_up = chunk.given_up;
                return Found::Coming { given_up };
            }
            State::Queued(..) => return Found::Queued,
        };
        let from = (page.index - chunk.pages.start) as usize;
        let count = chunk.run(page.index, last);
        assert!(count > 0, "the first is good");
        if !keep {
            chunk.good[from..from + count].fill(false);
            self.drop_if_spent(at);
        }
        Found::Here(buffer, from..from + count, served)
    }

    /// Whether all of `pages` were read ahead and can be taken now. Looks at every chunk once for
    /// each run of pages that one of them serves, not for each page.
    pub(crate) fn is_here(&self, object: ObjectId, pages: &Range<u64>) -> bool {
        let mut reached = pages.start;
        while reached < pages.end {
            let page = PageId::new(object, reached);
            let chunks = self.chunks.iter();
            let here = chunks.filter(|one| matches!(one.state, State::Here(..)) && one.has(page));
            let Some(run) = here.map(|chunk| chunk.run(reached, pages.end - 1)).max() else {
                return false;
            };
            assert!(run > 0, "a chunk that has a page serves it");
            reached += run as u64;
        }
        !self.chunks.is_empty()
    }

    /// Whether a chunk with any of `pages` is being read.
    pub(crate) fn is_coming(&self, object: ObjectId, pages: &Range<u64>) -> bool {
        let overlaps = |chunk: &Chunk| {
            chunk.object == object && chunk.pages.start < pages.end && pages.start < chunk.pages.end
        };
        let mut chunks = self.chunks.iter();
        chunks.any(|chunk| matches!(chunk.state, State::Coming) && overlaps(chunk))
    }

    /// A request has waited long enough for `page`, and reads it itself: nobody waits for what
    /// comes with it any more who need not.
    pub(crate) fn wait_no_more(&mut self, page: PageId) {
        let chunks = self.chunks.iter_mut();
        for chunk in chunks.filter(|chunk| chunk.has(page)) {
            chunk.given_up |= matches!(chunk.state, State::Coming);
        }
        self.forget(page.object, page.index, page.index);
    }

    /// A request reads `pages` itself: what is queued need not bring them.
    pub(crate) fn pass_by(&mut self, object: ObjectId, pages: &Range<u64>) {
        for at in (0..self.chunks.len()).rev() {
            let chunk = &mut self.chunks[at];
            let from = pages.start.max(chunk.pages.start);
            let to = pages.end.min(chunk.pages.end);
            let queued = matches!(chunk.state, State::Queued(..));
            if chunk.object == object && queued && from < to {
                let first = chunk.pages.start;
                chunk.good[(from - first) as usize..(to - first) as usize].fill(false);
                self.drop_if_spent(at);
            }
        }
    }

    /// Watches `pages` of an object for changes, as it does those of chunks, until
    /// [`Ahead::unchanged`] is asked with this number.
    pub(crate) fn watch(&mut self, object: ObjectId, pages: Vec<u64>) -> u64 {
        self.numbers += 1;
        self.watched.push((self.numbers, object, pages));
        self.numbers
    }

    /// The pages watched under `number` that nobody began to change.
    pub(crate) fn unchanged(&mut self, number: u64) -> Vec<u64> {
        let at = self.watched.iter().position(|watched| watched.0 == number);
        let Some(at) = at else {
            panic!("what is watched is asked for once");
        };
        self.watched.swap_remove(at).2
    }

    /// Pages `first..=last` of an object are about to change.
    pub(crate) fn forget(&mut self, object: ObjectId, first: u64, last: u64) {
        for (_, _, pages) in self
            .watched
            .iter_mut()
            .filter(|watched| watched.1 == object)
        {
            pages.retain(|page| !(first..=last).contains(page));
        }
        for at in (0..self.chunks.len()).rev() {
            let chunk = &mut self.chunks[at];
            if chunk.object != object || chunk.pages.start > last || chunk.pages.end <= first {
                continue;
            }
            let from = first.max(chunk.pages.start) - chunk.pages.start;
            let to = last.min(chunk.pages.end - 1) - chunk.pages.start;
            chunk.good[from as usize..=to as usize].fill(false);
            self.drop_if_spent(at);
        }
        let first = PageId::new(object, first);
        assert!(
            !self.chunks.iter().any(|chunk| chunk.has(first)),
            "invariant 1: a page that changes is served from no chunk"
        );
    }

    /// Everything of an object is forgotten: nobody uses it, or what it shows is in doubt.
    pub(crate) fn forget_object(&mut self, object: ObjectId) {
        self.forget(object, 0, u64::MAX);
        self.streams.retain(|stream| stream.object != object);
    }

    /// Forgets chunks that nobody asked for since the last time.
    pub(crate) fn forget_quiet(&mut self) {
        for at in (0..self.chunks.len()).rev() {
            let asked = std::mem::take(&mut self.chunks[at].asked);
            if !asked && matches!(self.chunks[at].state, State::Here(..)) {
                self.draw_back(at);
                self.remove(at);
            }
        }
        self.unwanted.append(&mut self.spare);
    }

    /// A chunk is about to be given up: streams on their way to it have it read again when they go
    /// on (invariant 4). They begin with short chunks: one that is so slow would have long ones
    /// read in vain.
    fn draw_back(&mut self, at: usize) {
        let chunk = &self.chunks[at];
        let Some(passed) = chunk.good.iter().position(|good| *good) else {
            return;
        };
        let first = chunk.pages.start + passed as u64;
        let waits =
            |stream: &&mut Stream| stream.object == chunk.object && stream.next < chunk.pages.end;
        for stream in self.streams.iter_mut().filter(waits) {
            let reached = first.max(stream.next);
            if reached < stream.until {
                stream.until = reached;
                stream.pages = stream.shortest;
            }
            assert!(
                stream.next <= stream.until,
                "invariant 4: not behind itself"
            );
        }
    }

    /// Buffers to be unmapped where no lock is held: the kernel takes its time for that.
    #[must_use]
    pub(crate) fn unwanted(&mut self) -> Vec<AlignedBuf> {
        std::mem::take(&mut self.unwanted)
    }

    fn drop_if_spent(&mut self, at: usize) {
        let chunk = &self.chunks[at];
        let spent = !chunk.good.contains(&true);
        if spent && !matches!(chunk.state, State::Coming) {
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) {
        let chunk = self.chunks.swap_remove(at);
        self.bytes -= chunk.bytes;
        if let State::Here(buffer, _) = chunk.state
            && let Ok(buffer) = Arc::try_unwrap(buffer)
        {
            self.recycle(buffer);
        }
    }

    /// Keeps a buffer that nobody reads from any more for a chunk to come.
    pub(crate) fn recycle(&mut self, buffer: AlignedBuf) {
        self.spare.push(buffer);
        self.trim_spare();
    }

    /// Gives up spare buffers that there is no memory for, the latest last: chunks of a stream that
    /// goes on are all as long.
    fn trim_spare(&mut self) {
        let mut bytes: usize = self.spare.iter().map(|buffer| buffer.len()).sum();
        let mut given_up = 0;
        while bytes + self.bytes > BYTES_MAX {
            bytes -= self.spare[given_up].len();
            given_up += 1;
        }
        self.unwanted.extend(self.spare.drain(..given_up));
    }

    /// Notes a sequential request for `pages`; the place of its stream, if it goes on with one.
    fn note(
        &mut self,
        object: ObjectId,
        pages: &Range<u64>,
        (least, most): (u64, u64),
    ) -> Option<usize> {
        self.requests += 1;
        let len = pages.end - pages.start;
        let Some(at) = self.stream_of(object, pages) else {
            if self.streams.len() == STREAMS_MAX {
                let all = self.streams.iter().enumerate();
                let (quiet, stream) = all.min_by_key(|(_, one)| one.seen)?;
                if self.is_recent(stream) {
                    return None;
                }
                self.streams.swap_remove(quiet);
            }
            let shortest = (4 * len).clamp(least, most);
            let mut firsts = [u64::MAX; REMEMBERED];
            firsts[0] = pages.start;
            self.streams.push(Stream {
                object,
                next: pages.end,
                until: pages.end,
                pages: shortest,
                shortest,
                seen: self.requests,
                goes_on: false,
                firsts,
            });
            return None;
        };
        let stream = &mut self.streams[at];
        stream.seen = self.requests;
        stream.goes_by(pages);
        stream.goes_on.then_some(at)
    }

    /// The stream that a request for `pages` goes on with: the nearest one that has not had it.
    /// When all have, the one quiet for longest, if there are as many as there may be.
    fn stream_of(&self, object: ObjectId, pages: &Range<u64>) -> Option<usize> {
        // As far out of order as the requests of one stream come (`classify::stream`).
        let far = 4 * (pages.end - pages.start);
        let is_beside =
            |stream: &Stream| stream.object == object && stream.next.abs_diff(pages.start) <= far;
        let beside = || {
            (0..)
                .zip(&self.streams)
                .filter(|(_, stream)| is_beside(stream))
        };
        let distances = beside().filter_map(|(at, stream)| {
            let distance = stream.distance(pages.start)?;
            Some((distance, !stream.goes_on, at))
        });
        if let Some((_, _, nearest)) = distances.min() {
            return Some(nearest);
        }
        let is_full = beside().count() >= BESIDE_MAX;
        let quiet = beside().min_by_key(|(_, stream)| stream.seen);
        quiet.filter(|_| is_full).map(|(at, _)| at)
    }

    /// Whether a stream had one of the last requests.
    fn is_recent(&self, stream: &Stream) -> bool {
        self.requests - stream.seen < RECENT
    }

    /// Bytes of a chunk at most, so that all recent streams have room for three.
    fn share(&self) -> usize {
        let shares = |stream: &&Stream| stream.goes_on && self.is_recent(stream);
        let streams = self.streams.iter().filter(shares).count();
        BYTES_MAX / (3 * streams.max(1))
    }

    /// Queues the chunks that the stream needs after a request of `len` pages, of `most` pages at
    /// most, in `end` pages of the object: see the module text. `queue` says whether there was
    /// memory for one. A stream that has come to the end is none any more, and shares no memory.
    fn next_chunks(
        &mut self,
        at: usize,
        (len, end, most): (u64, u64, u64),
        mut queue: impl FnMut(&mut Self, Range<u64>) -> bool,
    ) {
        if self.streams[at].next >= end {
            self.streams.swap_remove(at);
            return;
        }
        loop {
            let stream = &self.streams[at];
            let ahead = stream.until - stream.next;
            let pages = stream.pages.min(most);
            if stream.until >= end || ahead > pages {
                return;
            }
            let chunk = stream.until..end.min(stream.until + pages);
            let is_longer = chunk.end - chunk.start > len;
            if !queue(self, chunk.clone()) {
                return;
            }
            let stream = &mut self.streams[at];
            assert_eq!(stream.until, chunk.start, "invariant 4");
            stream.until = chunk.end;
            stream.pages = (pages * 2).min(most);
            if is_longer {
                return;
            }
        }
    }

    /// Puts a chunk into the queue; false when there is no memory for it.
    fn queue(
        &mut self,
        object: &Arc<Object>,
        pages: Range<u64>,
        bytes: usize,
        hints: HintSet,
    ) -> bool {
        while self.bytes + bytes > BYTES_MAX {
            let here = |at: &usize| matches!(self.chunks[*at].state, State::Here(..));
            let here = (0..self.chunks.len()).filter(here);
            let Some(oldest) = here.min_by_key(|at| self.chunks[*at].number) else {
                return false;
            };
            self.remove(oldest);
        }
        self.numbers += 1;
        self.bytes += bytes;
        assert!(self.bytes <= BYTES_MAX, "invariant 3");
        self.chunks.push(Chunk {
            number: self.numbers,
            object: object.id,
            good: vec![true; (pages.end - pages.start) as usize],
            pages,
            bytes,
            state: State::Queued(Arc::clone(object), hints),
            asked: true,
            given_up: false,
        });
        true
    }

    /// The chunk to read next, which is coming from now on: one with `page`, if that is given.
    fn next_job(&mut self, page: Option<PageId>) -> Option<Job> {
        let queued = |chunk: &&mut Chunk| matches!(chunk.state, State::Queued(..));
        let wanted = |chunk: &&mut Chunk| page.is_none_or(|page| chunk.has(page));
        let chunks = self.chunks.iter_mut().filter(queued).filter(wanted);
        let first = chunks.min_by_key(|chunk| chunk.number)?;
        let State::Queued(object, hints) = std::mem::replace(&mut first.state, State::Coming)
        else {
            return None;
        };
        let fits = |buffer: &AlignedBuf| buffer.len() == first.bytes;
        let spare = self
            .spare
            .iter()
            .position(fits)
            .map(|at| self.spare.swap_remove(at));
        // The stream may have passed its first pages by now.
        let passed = first.good.iter().take_while(|good| !**good).count();
        let (number, pages, bytes) = (first.number, first.pages.clone(), first.bytes);
        Some(Job {
            number,
            object,
            pages,
            passed: passed as u64,
            hints,
            buffer: spare.unwrap_or_else(|| self.new_buffer(bytes)),
        })
    }

    /// A buffer for a chunk of so many bytes; others of the same huge page are kept.
    fn new_buffer(&mut self, bytes: usize) -> AlignedBuf {
        self.trim_spare();
        if bytes < HUGE_MIN {
            return AlignedBuf::new(bytes);
        }
        let mut more = AlignedBuf::in_huge_pages(bytes);
        let buffer = more.swap_remove(0);
        more.into_iter().for_each(|buffer| self.recycle(buffer));
        buffer
    }

    fn has_job(&self) -> bool {
        self.chunks
            .iter()
            .any(|chunk| matches!(chunk.state, State::Queued(..)))
    }

    /// A chunk was read, or could not be (`served` is `None`).
    fn came(&mut self, number: u64, buffer: AlignedBuf, served: Option<Served>) {
        let at = self.chunks.iter().position(|chunk| chunk.number == number);
        let Some(at) = at else {
            panic!("a chunk that is coming stays until it came");
        };
        assert_eq!(self.chunks[at].bytes, buffer.len());
        match served {
            Some(served) => {
                self.chunks[at].state = State::Here(Arc::new(buffer), served);
                self.drop_if_spent(at);
            }
            None => self.remove(at),
        }
    }
}

/// A chunk to read.
struct Job {
    number: u64,
    object: Arc<Object>,
    pages: Range<u64>,
    /// Pages at its beginning that need not be read any more.
    passed: u64,
    hints: HintSet,
    buffer: AlignedBuf,
}

impl Engine {
    /// Notes a request that has just been served; has the pages after it read ahead when it is one
    /// of a sequential stream.
    pub(crate) fn look_ahead(&self, object: &Object, request: &Request<'_>, length: usize) {
        let sequential = RequestType::SequentialRead.value();
        let is_sequential = request.hints.get(hint_type::REQUEST) == sequential;
        let most = u64::from(self.config.read_ahead / self.config.page_size);
        if !is_sequential || most == 0 || length == 0 || self.config.inline {
            return;
        }
        let size = self.page_size();
        let page = |at: u64| at / size as u64;
        let end = object.length().div_ceil(size as u64);
        let pages = page(request.offset)..page(request.offset + length as u64 - 1) + 1;
        let least = most.min((CHUNK_MIN / size).max(1) as u64);
        let mut inner = self.inner();
        if object.opens.load(Ordering::Acquire) == 0 {
            return;
        }
        let Some(at) = inner.ahead.note(object.id, &pages, (least, most)) else {
            return;
        };
        let Ok(object) = self.object(object.id) else {
            return;
        };
        let share = (inner.ahead.share() / size).max(1) as u64;
        let bounds = (pages.end - pages.start, end, most.min(share));
        inner.ahead.next_chunks(at, bounds, |ahead, chunk| {
            let bytes = (chunk.end - chunk.start) as usize * size;
            let queued = ahead.queue(&object, chunk, bytes, request.hints);
            if queued {
                self.signals.reader.notify_one();
            }
            queued
        });
    }

    /// A request has copied from `buffer`; of a chunk that is spent nobody else has the bytes.
    pub(crate) fn return_chunk(&self, buffer: Arc<AlignedBuf>) {
        if let Ok(buffer) = Arc::try_unwrap(buffer) {
            let unwanted = {
                let mut inner = self.inner();
                inner.ahead.recycle(buffer);
                inner.ahead.unwanted()
            };
            drop(unwanted);
        }
    }

    /// Reads one chunk that is queued, one with `page` if that is given; false when there is none.
    pub(crate) fn read_ahead(&self, page: Option<PageId>) -> bool {
        let Some(mut job) = self.inner().ahead.next_job(page) else {
            return false;
        };
        let served = self.read_chunk(&mut job);
        let unwanted = {
            let mut inner = self.inner();
            inner.ahead.came(job.number, job.buffer, served);
            inner.ahead.unwanted()
        };
        self.page_free.notify_all();
        drop(unwanted);
        true
    }

    fn read_chunk(&self, job: &mut Job) -> Option<Served> {
        let users = job.object.opens.load(Ordering::Acquire);
        assert!(users > 0, "invariant 2: whoever reads ahead is a user");
        let size = self.page_size() as u64;
        let request = Request {
            object: &job.object,
            offset: job.pages.start * size,
            hints: job.hints,
            client: 0,
        };
        let left = job.object.length().saturating_sub(request.offset);
        let length = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(job.buffer.len());
        let mut reading = Reading {
            engine: self,
            object: &job.object,
            request: &request,
            length,
            served: Served::Unknown,
            ahead: true,
        };
        let mut index = job.pages.start + job.passed;
        let end = (request.offset + length as u64).div_ceil(size).max(index);
        while index < end {
            index = reading
                .step(index, end - 1, &mut job.buffer[..length])
                .ok()?;
        }
        // The file has become shorter meanwhile.
        if end < job.pages.end {
            self.inner()
                .ahead
                .forget(job.object.id, end, job.pages.end - 1);
        }
        job.buffer[length..].fill(0);
        Some(reading.served)
    }
}

/// The life of a thread that reads ahead.
pub(crate) fn run_reader(engine: &Weak<Engine>) {
    while let Some(engine) = engine.upgrade() {
        engine.until_stopping(|engine| engine.read_ahead(None));
        if !engine.rest(&engine.signals.reader, |inner| inner.ahead.has_job()) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EngineConfig, ObjectSpec};
    use proptest::prelude::*;
    use thermocline_core::FileKind;

    /// Pages that each of some requests of `len` pages in a row has read ahead.
    fn ahead_of(len: u64, requests: u64) -> Vec<Vec<u64>> {
        let mut ahead = Ahead::default();
        let bounds = (16, 128);
        let mut each = Vec::new();
        for first in (0..requests).map(|at| at * len) {
            let mut chunks = Vec::new();
            if let Some(at) = ahead.note(ObjectId(1), &(first..first + len), bounds) {
                ahead.next_chunks(at, (len, 10_000, bounds.1), |_, chunk| {
                    chunks.push(chunk.end - chunk.start);
                    true
                });
            }
            each.push(chunks);
        }
        each
    }

    /// A request that is no stream's costs four times its length, not the whole ramp.
    #[test]
    fn a_short_request_has_one_chunk_read() {
        let each = ahead_of(1, 6);
        let chunks = [vec![16], vec![32], vec![64], vec![128], vec![]];
        assert_eq!(each[0], [0; 0], "one request is no stream");
        assert_eq!(each[1..], chunks);
        assert_eq!(ahead_of(16, 4), [vec![], vec![64], vec![128], vec![]]);
    }

    #[test]
    fn what_found_no_memory_is_tried_again() {
        let mut ahead = Ahead::default();
        let mut tried = Vec::new();
        assert!(ahead.note(ObjectId(1), &(0..1), (16, 128)).is_none());
        for (first, room) in [(1, true), (2, false), (3, true)] {
            let at = ahead.note(ObjectId(1), &(first..first + 1), (16, 128));
            let at = at.expect("it goes on");
            ahead.next_chunks(at, (1, 10_000, 128), |_, chunk| {
                tried.push(chunk);
                room
            });
        }
        assert_eq!(tried, [2..18, 18..50, 18..50]);
    }

    /// Three chunks each for as many streams as there are, however they come by turns.
    #[test]
    fn streams_share_the_memory() {
        let mut ahead = Ahead::default();
        for (round, streams) in (0..).zip([1, 20, STREAMS_MAX]) {
            for turn in 4 * round..4 * round + 4 {
                for object in 0..streams as u32 {
                    ahead.note(ObjectId(object), &(turn..turn + 1), (16, 128));
                }
            }
            let three = 3 * ahead.share() * streams;
            assert!(three <= BYTES_MAX && three > BYTES_MAX / 2, "{streams}");
        }
        assert_eq!(ahead.streams.len(), STREAMS_MAX);
        for object in 0..STREAMS_MAX as u32 {
            let at = ahead.note(ObjectId(object), &(12..13), (16, 128));
            let at = at.expect("it goes on");
            ahead.next_chunks(at, (1, 13, 128), |_, _| panic!("nothing is past the end"));
        }
        assert!(ahead.streams.is_empty() && ahead.share() == BYTES_MAX / 3);
        for object in [0, 0, 1, 1] {
            let first = ahead.requests % 2;
            ahead.note(ObjectId(object), &(first..first + 1), (16, 128));
        }
        assert_eq!(ahead.share(), BYTES_MAX / 6);
        for turn in 1..=RECENT {
            ahead.note(ObjectId(0), &(turn..turn + 1), (16, 128));
        }
        assert_eq!(ahead.share(), BYTES_MAX / 3, "the others are quiet");
    }

    /// Long reads at random, backwards, or with gaps are no streams: they take nothing from one.
    #[test]
    fn what_does_not_go_on_is_no_stream() {
        let mut ahead = Ahead::default();
        let places = [
            |at: u64| at * 7919 % 100_000,
            |at| (4000 - at) * 16,
            |at| at * 96,
        ];
        for turn in 0..1000u64 {
            for (object, place) in (2..).zip(places) {
                let first = place(turn);
                let at = ahead.note(ObjectId(object), &(first..first + 16), (16, 128));
                assert!(at.is_none(), "request {turn} of object {object}");
            }
            let at = ahead.note(ObjectId(1), &(turn..turn + 1), (16, 128));
            assert_eq!(at.is_some(), turn > 0);
            assert_eq!(ahead.share(), BYTES_MAX / 3);
        }
    }

    /// Two readers of one file, at any distance, are a stream each.
    #[test]
    fn readers_behind_each_other_are_streams_of_their_own() {
        for behind in 1..8 {
            let mut ahead = Ahead::default();
            let mut note = |page: u64| ahead.note(ObjectId(1), &(page..page + 1), (16, 128));
            let mut streams = Vec::new();
            for page in 0..100 {
                let first = note(page);
                let second = (page >= behind).then(|| note(page - behind));
                if page > behind {
                    streams.push((first.expect("goes on"), second.flatten().expect("goes on")));
                }
            }
            assert!(
                streams.iter().all(|at| *at == (0, 1)),
                "{behind} behind: {streams:?}"
            );
            assert_eq!(ahead.streams.len(), 2);
            let next: Vec<u64> = ahead.streams.iter().map(|stream| stream.next).collect();
            assert_eq!(next, [100, 100 - behind]);
        }
    }

    /// One reader is not taken for ever more of them, whatever he reads again.
    #[test]
    fn one_reader_is_a_few_streams_at_most() {
        let streams = |requests: &mut dyn Iterator<Item = Range<u64>>| {
            let mut ahead = Ahead::default();
            for pages in requests {
                ahead.note(ObjectId(1), &pages, (16, 128));
            }
            ahead.streams.len()
        };
        let again_and_again = &mut (0..1000).map(|at| at % 2..at % 2 + 1);
        assert!(streams(again_and_again) <= BESIDE_MAX);
        let window = &mut (0..1000).map(|at| at / 20 + at % 3..at / 20 + at % 3 + 1);
        assert!(streams(window) <= 2 * BESIDE_MAX, "a window that goes on");
        let halves = &mut (0..1000).map(|at| at / 2..at / 2 + 1);
        assert_eq!(streams(halves), 1, "requests shorter than a page");
        let unaligned = &mut (0..1000).map(|at| at * 3 / 2..at * 3 / 2 + 2);
        assert_eq!(streams(unaligned), 1, "requests that share a page");
        let out_of_order = &mut (0..1000).map(|at| (at ^ 1) * 4..(at ^ 1) * 4 + 4);
        assert_eq!(streams(out_of_order), 1, "requests of one read at a time");
        let retries = &mut (0..1000).map(|at: u64| at - at % 10 / 9..at - at % 10 / 9 + 1);
        assert_eq!(streams(retries), 1, "the last one is tried again");
    }

    /// One more stream than are remembered pushes out none of them: in turn, that would be the one
    /// that comes next.
    #[test]
    fn more_streams_than_there_is_room_for_push_out_none() {
        let mut ahead = Ahead::default();
        for turn in 0..4 {
            for object in 0..2 * STREAMS_MAX as u32 {
                let at = ahead.note(ObjectId(object), &(turn..turn + 1), (16, 128));
                let has_room = (object as usize) < STREAMS_MAX;
                assert_eq!(
                    at.is_some(),
                    turn > 0 && has_room,
                    "{object} in turn {turn}"
                );
            }
        }
        for _ in 0..RECENT {
            ahead.note(ObjectId(0), &(4..5), (16, 128));
        }
        let newcomer = ObjectId(9999);
        for first in 0..2 {
            let at = ahead.note(newcomer, &(first..first + 1), (16, 128));
            assert_eq!(at.is_some(), first == 1, "the others are quiet");
        }
    }

    /// Chunks of a stream that goes on are as long as its last ones.
    #[test]
    fn the_latest_buffers_are_spared() {
        const MIB: usize = 1 << 20;
        let mut ahead = Ahead {
            bytes: BYTES_MAX - 7 * MIB,
            ..Ahead::default()
        };
        for len in [1, 2, 3, 4] {
            ahead.recycle(AlignedBuf::new(len * MIB));
        }
        let lens = |buffers: &[AlignedBuf]| {
            let lens = buffers.iter().map(|buffer| buffer.len() / MIB);
            lens.collect::<Vec<_>>()
        };
        assert_eq!(lens(&ahead.spare), [3, 4]);
        assert_eq!(lens(&ahead.unwanted()), [1, 2]);
        ahead.bytes += MIB;
        assert_eq!(ahead.new_buffer(1).len(), 1);
        assert_eq!(lens(&ahead.unwanted()), [3], "there is room for one less");
        ahead.forget_quiet();
        assert_eq!(lens(&ahead.unwanted()), [4]);
        assert!(ahead.unwanted().is_empty() && ahead.spare.is_empty());
    }

    /// An engine of its own, for chunks that name an object.
    fn with_object(test: impl FnOnce(&Arc<Object>)) {
        let base = tempfile::tempdir().expect("a folder");
        std::fs::write(base.path().join("t"), "").expect("writes");
        let engine = Engine::start(EngineConfig::default(), None).expect("starts");
        let spec = ObjectSpec::of_file(base.path(), "t", FileKind::Relation).expect("is there");
        let object = engine.open_object(spec).expect("opens");
        test(&object);
        engine.close_object(&object);
        engine.stop().expect("stops");
    }

    /// What is queued for the request of one page, at most 128 pages a chunk.
    fn asks(ahead: &mut Ahead, object: &Arc<Object>, page: u64) -> Vec<(u64, u64)> {
        let mut chunks = Vec::new();
        if let Some(at) = ahead.note(object.id, &(page..page + 1), (16, 128)) {
            ahead.next_chunks(at, (1, 10_000, 128), |ahead, chunk| {
                chunks.push((chunk.start, chunk.end));
                ahead.queue(object, chunk, 1 << 12, HintSet::UNKNOWN)
            });
        }
        chunks
    }

    fn all_come(ahead: &mut Ahead) {
        while let Some(job) = ahead.next_job(None) {
            ahead.came(job.number, job.buffer, Some(Served::Unknown));
        }
    }

    /// A stream that goes on after a pause has what was given up meanwhile read ahead again.
    #[test]
    fn what_was_given_up_in_a_pause_is_read_ahead_again() {
        with_object(|object| {
            let mut ahead = Ahead::default();
            let queued: Vec<_> = (0..4)
                .flat_map(|page| asks(&mut ahead, object, page))
                .collect();
            assert_eq!(queued, [(2, 18), (18, 50), (50, 114)]);
            all_come(&mut ahead);
            let mut take = |page| {
                let page = PageId::new(object.id, page);
                let found = ahead.take(page, page.index, false);
                assert!(matches!(found, Found::Here(..)));
            };
            (2..4).for_each(&mut take);
            for _ in 0..2 {
                ahead.forget_quiet();
            }
            assert!(ahead.chunks.is_empty(), "nobody came for them");
            assert_eq!(
                asks(&mut ahead, object, 4),
                [(5, 21)],
                "from the next page on, and short"
            );
            all_come(&mut ahead);
            assert_eq!(asks(&mut ahead, object, 5), [(21, 53)]);
        });
    }

    /// What other streams have before them stays theirs.
    #[test]
    fn what_is_given_up_draws_back_those_alone_that_were_on_their_way_to_it() {
        with_object(|object| {
            let mut ahead = Ahead::default();
            for page in [0, 1, 1000, 1001] {
                asks(&mut ahead, object, page);
            }
            all_come(&mut ahead);
            ahead.forget_quiet();
            for page in [2, 1002] {
                let found = ahead.take(PageId::new(object.id, page), page, page == 2);
                assert!(matches!(found, Found::Here(..)));
            }
            ahead.chunks[1].asked = false;
            ahead.forget_quiet();
            let reached = ahead
                .streams
                .iter()
                .map(|stream| (stream.next, stream.until));
            assert_eq!(reached.collect::<Vec<_>>(), [(2, 18), (1002, 1003)]);
        });
    }

    /// A chunk that is here or coming.
    fn chunk_of(object: u32, start: u64, good: Vec<bool>, is_here: bool) -> Chunk {
        Chunk {
            number: 0,
            object: ObjectId(object),
            pages: start..start + good.len() as u64,
            bytes: 512,
            good,
            state: match is_here {
                true => State::Here(Arc::new(AlignedBuf::new(512)), Served::Unknown),
                false => State::Coming,
            },
            asked: true,
            given_up: false,
        }
    }

    fn any_chunk() -> impl Strategy<Value = (u32, u64, Vec<bool>, bool)> {
        let good = prop::collection::vec(prop::bool::weighted(0.9), 1..12);
        (0..2u32, 0..24u64, good, prop::bool::weighted(0.8))
    }

    proptest! {
        /// By runs as page by page.
        #[test]
        fn what_is_here_is_each_page_in_some_chunk(
            chunks in prop::collection::vec(any_chunk(), 0..8),
            start in 0..30u64,
            len in 0..12u64,
        ) {
            let (object, pages) = (ObjectId(0), start..start + len);
            let chunks = chunks.into_iter();
            let chunks = chunks.map(|(of, start, good, here)| chunk_of(of, start, good, here));
            let ahead = Ahead { chunks: chunks.collect(), ..Ahead::default() };
            let here = |index: u64| {
                let page = PageId::new(object, index);
                let mut chunks = ahead.chunks.iter();
                chunks.any(|chunk| chunk.has(page) && matches!(chunk.state, State::Here(..)))
            };
            let plain = !ahead.chunks.is_empty() && pages.clone().all(here);
            prop_assert_eq!(ahead.is_here(object, &pages), plain);
        }
    }

    /// What requests read themselves while it is queued is not read a second time.
    #[test]
    fn what_is_passed_by_is_not_read() {
        with_object(|object| {
            let mut ahead = Ahead::default();
            for pages in [0..16, 16..32, 32..48] {
                assert!(ahead.queue(object, pages, 1 << 16, HintSet::UNKNOWN));
            }
            ahead.pass_by(object.id, &(0..8));
            ahead.pass_by(object.id, &(16..32));
            let jobs = std::iter::from_fn(|| ahead.next_job(None));
            let jobs: Vec<_> = jobs.map(|job| (job.pages, job.passed)).collect();
            assert_eq!(jobs, [(0..16, 8), (32..48, 0)]);
            assert_eq!(ahead.bytes, 2 << 16);
            ahead.pass_by(object.id, &(32..48));
            let page = PageId::new(object.id, 32);
            let is_coming = matches!(ahead.take(page, 32, false), Found::Coming { .. });
            assert!(is_coming, "somebody waits for what is being read");
        });
    }

    #[test]
    fn a_request_as_long_as_a_chunk_has_two_ahead() {
        assert_eq!(ahead_of(128, 3), [vec![], vec![128, 128], vec![128]]);
    }
}

//! Recording: requests hand over a record and go on, one thread writes.
//!
//! States of a recorder: *open* → *closing* (asked to finish) → *closed*; or *open* → *failed*
//! (a write failed) → *closed*.
//!
//! Invariants:
//! 1. [`Recorder::record`] takes no lock that is held during I/O, and never waits: a shard
//!    whose lock is taken or which is full is passed over for the next one; when none has
//!    room the record is dropped and counted.
//! 2. Shards are closed under their own lock, so every record handed in is either written or
//!    counted as dropped, never both: after `finish`, written + dropped = records handed in.
//! 3. A shard never grows beyond its capacity, so nothing is allocated while recording.
//!
//! Memory, in bytes, with `R` = 112 (one [`TraceRecord`]):
//! `queue_records × R × 9/8` (eight shards and one spare) + `row_group_rows × R` (the row group
//! being filled) + at most `row_group_rows × 64` (one column being encoded) + one compressed
//! column + names (at most [`NAMES_MAX`] objects; 64 KiB rows and records by default: below
//! 24 MiB without names).
//!
//! Cost: see `benches/record.rs`.

mod encode;
mod names;
#[cfg(test)]
mod tests;
mod writer;

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};
use std::{fs, io};

use thermocline_core::{HintSchema, ObjectId};

use crate::column::check_hint_names;
use crate::error::RecordError;
use crate::parts::{create_partial, lock_partial, part_numbers, part_path, partial_path};
use crate::record::TraceRecord;
use crate::sample::Sample;
pub(crate) use encode::{NameSource, Part};
use names::Names;
pub(crate) use writer::Writer;

/// Shards of the queue. Threads spread over them, so that two rarely want the same one.
const SHARDS: usize = 8;

/// Most objects that can have a name; further ones are written as `#` and their number.
const NAMES_MAX: usize = 1 << 18;

/// How a trace is recorded.
#[derive(Clone, Debug)]
pub struct RecorderOptions {
    /// The hint types, one column each.
    pub schema: HintSchema,
    /// Bytes per page, noted in the file for those who read it; 0 when there is none to note.
    pub page_size: u32,
    /// Which requests are handed over, noted in the file; the recorder itself leaves out none.
    pub sample: Sample,
    /// When the trace starts, in nanoseconds since 1970-01-01 UTC; 0 when not known.
    pub start_unix_ns: u64,
    /// Records held between requests and writer; when it is full records are dropped. At least
    /// 64 (8 shards of 8).
    pub queue_records: usize,
    /// Rows per Parquet row group. Rows are in order of time within a row group.
    pub row_group_rows: usize,
    /// A part is closed when it has this many rows.
    pub part_rows: u64,
    /// A part is closed when its first record is this old: what a killed process can lose.
    pub part_age: Duration,
    /// Compression level of Zstandard, 1 to 22.
    pub zstd_level: i32,
    /// Replace a trace of the same name instead of refusing.
    pub overwrite: bool,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            schema: HintSchema::default(),
            page_size: 8192,
            sample: Sample::ALL,
            start_unix_ns: 0,
            queue_records: 1 << 16,
            row_group_rows: 1 << 16,
            part_rows: 1 << 22,
            part_age: Duration::from_secs(300),
            zstd_level: 1,
            overwrite: false,
        }
    }
}

impl RecorderOptions {
    fn check(&self) -> Result<(), RecordError> {
        check_hint_names(&self.schema)?;
        let refuse = |option, expected| Err(RecordError::Option { option, expected });
        if self.queue_records < SHARDS * 8 {
            return refuse("queue_records", "at least 64");
        }
        if self.row_group_rows == 0 {
            return refuse("row_group_rows", "at least 1");
        }
        if self.part_rows == 0 {
            return refuse("part_rows", "at least 1");
        }
        if self.part_age.is_zero() {
            return refuse("part_age", "more than 0 seconds");
        }
        if !(1..=22).contains(&self.zstd_level) {
            return refuse("zstd_level", "1 to 22");
        }
        Ok(())
    }
}

/// What became of a finished recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecorderSummary {
    /// Rows in the trace.
    pub written: u64,
    /// Records that did not get into the trace because the writer fell behind.
    pub dropped: u64,
    /// Bytes of all parts.
    pub bytes: u64,
    /// Number of parts.
    pub parts: u32,
}

/// Handle to a recording in progress; clones write to the same trace.
///
/// The recording ends with [`Recorder::finish`] or when the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Recorder {
    owner: Arc<Owner>,
}

/// What all handles share; dropping it ends the recording.
#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<Result<RecorderSummary, RecordError>>>>,
    wake: Thread,
    origin: Instant,
    sample: Sample,
}

/// What requests and the writer thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    shards: [Shard; SHARDS],
    shard_capacity: usize,
    closing: AtomicBool,
    dropped: AtomicU64,
    names: Mutex<Names>,
}

/// Aligned so that two shards never share a cache line (two lines are fetched at a time).
#[derive(Debug)]
#[repr(align(128))]
struct Shard(Mutex<Queue>);

#[derive(Debug)]
struct Queue {
    records: Vec<TraceRecord>,
    closed: bool,
}

/// Opens the file behind a part; tests put something else there.
pub(crate) type OpenPart = Box<dyn FnMut(&Path) -> io::Result<Box<dyn Write + Send>> + Send>;

impl Recorder {
    /// Starts recording to `path`, and to further parts beside it as the trace grows.
    ///
    /// # Errors
    /// When a trace is there already and may not be replaced, an option is out of range, a hint
    /// type has an impossible name, or the file cannot be created.
    pub fn create(path: impl AsRef<Path>, options: RecorderOptions) -> Result<Self, RecordError> {
        let path = path.as_ref();
        make_room(path, options.overwrite)?;
        Self::create_with(path, options, Box::new(create_file))
    }

    pub(crate) fn create_with(
        path: &Path,
        options: RecorderOptions,
        open: OpenPart,
    ) -> Result<Self, RecordError> {
        options.check()?;
        let sample = options.sample;
        let shared = Arc::new(Shared::new(&options));
        let mut writer = Writer::new(path.to_path_buf(), options, Arc::clone(&shared), open);
        // The first part is opened here, so that a bad path is reported to the caller.
        writer.open_part()?;
        let thread = std::thread::Builder::new()
            .name("trace-writer".into())
            .spawn(move || writer.run())
            .map_err(RecordError::Thread)?;
        let wake = thread.thread().clone();
        let writer = Mutex::new(Some(thread));
        Ok(Self {
            owner: Arc::new(Owner {
                shared,
                writer,
                wake,
                origin: Instant::now(),
                sample,
            }),
        })
    }

    /// Nanoseconds from the start of the recording to `at` (0 when `at` is earlier), for
    /// [`TraceRecord::time_ns`].
    #[must_use]
    pub fn time_of(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.owner.origin);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Hands over one record. Never waits: when there is no room the record is counted as
    /// dropped.
    pub fn record(&self, record: TraceRecord) {
        match self.owner.shared.push(record) {
            Pushed::Kept => {}
            Pushed::HalfFull => self.owner.wake.unpark(),
            Pushed::Dropped => {
                self.owner.shared.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Which requests are to be handed over.
    #[must_use]
    pub fn sample(&self) -> Sample {
        self.owner.sample
    }

    /// Records dropped so far.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.owner.shared.dropped.load(Ordering::Relaxed)
    }

    /// Whether the writer has ended by itself: a part could not be written, and nothing that is
    /// handed over any more gets into the trace. [`Recorder::finish`] tells why.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        let thread = lock(&self.owner.writer);
        let closing = self.owner.shared.closing.load(Ordering::Acquire);
        !closing && thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Names an object; rows written from now on carry it. A later name replaces an earlier one
    /// (rename), rows already written keep the old one. An object without a name is written as
    /// `#` and its number.
    pub fn name_object(&self, object: ObjectId, name: &str) {
        lock(&self.owner.shared.names).name_object(object, name);
    }

    /// Names a value of the hint type at `position`, for values that do not name themselves
    /// (all but file kind, request, page type and role). A value without a name is written as
    /// `#` and its number.
    pub fn name_hint_value(&self, position: usize, value: u32, name: &str) {
        lock(&self.owner.shared.names).name_value(position, value, name);
    }

    /// Ends the recording for all handles and waits until the last part is closed. Records
    /// handed in later are counted as dropped.
    ///
    /// # Errors
    /// When a part could not be written. Parts closed before are complete. A second call (on a
    /// clone) returns zeros.
    pub fn finish(self) -> Result<RecorderSummary, RecordError> {
        self.owner.finish()
    }
}

impl Owner {
    fn finish(&self) -> Result<RecorderSummary, RecordError> {
        self.shared.closing.store(true, Ordering::Release);
        self.wake.unpark();
        let Some(thread) = lock(&self.writer).take() else {
            return Ok(RecorderSummary::default());
        };
        thread.join().unwrap_or(Err(RecordError::Panicked))
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Nobody is left to hear of an error; parts closed before are complete all the same.
        let _ = self.finish();
    }
}

enum Pushed {
    Kept,
    HalfFull,
    Dropped,
}

impl Shared {
    fn new(options: &RecorderOptions) -> Self {
        let shard_capacity = options.queue_records / SHARDS;
        debug_assert!(shard_capacity >= 8);
        let shards = std::array::from_fn(|_| {
            let records = Vec::with_capacity(shard_capacity);
            Shard(Mutex::new(Queue {
                records,
                closed: false,
            }))
        });
        Self {
            shards,
            shard_capacity,
            closing: AtomicBool::new(false),
            dropped: AtomicU64::new(0),
            names: Mutex::new(Names::new(options.schema.names().len())),
        }
    }

    /// Puts the record into the first shard with room, beginning at the thread's own.
    fn push(&self, record: TraceRecord) -> Pushed {
        let home = home_shard();
        for step in 0..SHARDS {
            let shard = &self.shards[(home + step) % SHARDS];
            let mut queue = match shard.0.try_lock() {
                Ok(queue) => queue,
                Err(TryLockError::WouldBlock) => continue,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            };
            if queue.closed || queue.records.len() >= self.shard_capacity {
                continue;
            }
            queue.records.push(record);
            let half = queue.records.len() == self.shard_capacity / 2;
            return if half { Pushed::HalfFull } else { Pushed::Kept };
        }
        Pushed::Dropped
    }

    /// Exchanges the records of shard `at` for the empty `spare`; `close` lets no more in.
    fn take(&self, at: usize, spare: &mut Vec<TraceRecord>, close: bool) {
        assert!(spare.is_empty() && spare.capacity() >= self.shard_capacity);
        let mut queue = lock(&self.shards[at].0);
        std::mem::swap(&mut queue.records, spare);
        queue.closed |= close;
        debug_assert!(spare.len() <= self.shard_capacity);
    }
}

/// The shard a thread tries first: threads take turns when they record for the first time.
fn home_shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static HOME: usize = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
    }
    HOME.with(|home| *home)
}

/// Locks; what these locks guard is valid at every point a thread could panic at.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Refuses or removes an earlier trace at `path`. Part 1 left unfinished by a process that was
/// killed is no trace: it is overwritten. One that is being written is refused before anything is
/// removed.
fn make_room(path: &Path, overwrite: bool) -> Result<(), RecordError> {
    let file_error = |path: &Path, source| {
        let path = path.to_path_buf();
        RecordError::File { path, source }
    };
    let numbers = part_numbers(path).map_err(|source| file_error(path, source))?;
    let unfinished = partial_path(&part_path(path, numbers.last().map_or(1, |last| last + 1)));
    let locked = lock_partial(&unfinished);
    let locked = locked.map_err(|source| file_error(&unfinished, source))?;
    for &number in &numbers {
        let part = part_path(path, number);
        if !overwrite || !part.is_file() {
            return Err(RecordError::Exists { path: part });
        }
        fs::remove_file(&part).map_err(|source| file_error(&part, source))?;
    }
    // Where there was none, somebody may have begun one by now.
    match locked.map(|_locked| fs::remove_file(&unfinished)) {
        Some(Err(source)) if source.kind() != io::ErrorKind::NotFound => {
            Err(file_error(&unfinished, source))
        }
        _ => Ok(()),
    }
}

fn create_file(path: &Path) -> io::Result<Box<dyn Write + Send>> {
    Ok(Box::new(create_partial(path)?))
}

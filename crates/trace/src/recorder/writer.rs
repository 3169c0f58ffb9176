//! The thread that writes.
//!
//! It sleeps until a shard is half full, the recording ends, or a record may have become older
//! than the age at which parts are closed; without load it wakes once per
//! `RecorderOptions::part_age`.

use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use std::{fs, thread};

use parquet::errors::ParquetError;

use super::encode::Part;
use super::{OpenPart, RecorderOptions, RecorderSummary, SHARDS, Shared};
use crate::error::RecordError;
use crate::parts::{part_path, partial_path};
use crate::reader::Addressing;
use crate::record::TraceRecord;

type Sink = BufWriter<Box<dyn Write + Send>>;

pub(crate) struct Writer {
    path: PathBuf,
    options: RecorderOptions,
    shared: Arc<Shared>,
    open: OpenPart,
    spare: Vec<TraceRecord>,
    /// The row group being filled.
    rows: Vec<TraceRecord>,
    part: Option<Part<Sink>>,
    /// Number of the part that is open or will be opened next, from 1.
    number: u32,
    /// Rows in the open part, without `rows`.
    part_rows: u64,
    /// No record held back (in shards, in `rows`, in the open part) arrived before this.
    oldest: Instant,
    summary: RecorderSummary,
}

impl Writer {
    pub(crate) fn new(
        path: PathBuf,
        options: RecorderOptions,
        shared: Arc<Shared>,
        open: OpenPart,
    ) -> Self {
        Self {
            path,
            spare: Vec::with_capacity(shared.shard_capacity),
            rows: Vec::with_capacity(options.row_group_rows),
            options,
            shared,
            open,
            part: None,
            number: 1,
            part_rows: 0,
            oldest: Instant::now(),
            summary: RecorderSummary::default(),
        }
    }

    /// Creates the file of the next part.
    pub(crate) fn open_part(&mut self) -> Result<(), RecordError> {
        assert!(
            self.part.is_none() && self.part_rows == 0,
            "one part at a time"
        );
        let path = partial_path(&part_path(&self.path, self.number));
        let sink = (self.open)(&path).map_err(|source| RecordError::File { path, source })?;
        let sink = BufWriter::with_capacity(1 << 16, sink);
        let part = Part::new(sink, &self.options, Addressing::Bytes, self.number);
        self.part = Some(part.map_err(|source| self.failed(source))?);
        Ok(())
    }

    /// Writes until the recording ends or a write fails.
    pub(crate) fn run(mut self) -> Result<RecorderSummary, RecordError> {
        let result = self.write_all();
        match result {
            Ok(()) => {
                self.summary.dropped = self.shared.dropped.load(Ordering::Relaxed);
                Ok(self.summary)
            }
            Err(error) => Err(self.give_up(error)),
        }
    }

    fn write_all(&mut self) -> Result<(), RecordError> {
        loop {
            // Read before draining: records handed in before `finish` are then drained.
            let closing = self.shared.closing.load(Ordering::Acquire);
            let drained_from = Instant::now();
            let taken = self.drain(closing)?;
            if closing {
                break;
            }
            if self.part_rows == 0 && self.rows.is_empty() {
                self.oldest = drained_from;
            }
            self.close_part_when_due(drained_from)?;
            if taken == 0 {
                thread::park_timeout(self.until_due());
            }
        }
        self.flush_rows()?;
        self.close_part()
    }

    /// Moves what the shards hold to the row group, writing row groups as they fill.
    fn drain(&mut self, close: bool) -> Result<usize, RecordError> {
        let mut taken = 0;
        for at in 0..SHARDS {
            let mut spare = std::mem::take(&mut self.spare);
            self.shared.take(at, &mut spare, close);
            taken += spare.len();
            let result = self.append(&spare);
            spare.clear();
            self.spare = spare;
            result?;
        }
        Ok(taken)
    }

    fn append(&mut self, mut records: &[TraceRecord]) -> Result<(), RecordError> {
        while !records.is_empty() {
            let room = self.options.row_group_rows - self.rows.len();
            let (now, later) = records.split_at(room.min(records.len()));
            self.rows.extend_from_slice(now);
            records = later;
            if self.rows.len() == self.options.row_group_rows
                && let Err(error) = self.flush_rows()
            {
                // Taken from the queue, but in no row group: `give_up` cannot know of them.
                self.shared
                    .dropped
                    .fetch_add(records.len() as u64, Ordering::Relaxed);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Writes the rows gathered so far as a row group, ordered by time.
    fn flush_rows(&mut self) -> Result<(), RecordError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        if self.part.is_none() {
            self.open_part()?;
        }
        self.rows.sort_by_key(|row| row.time_ns);
        if let Some(part) = &mut self.part {
            let written = part.write(&self.rows, self.shared.as_ref());
            written.map_err(|source| self.failed(source))?;
        }
        self.part_rows += self.rows.len() as u64;
        self.rows.clear();
        if self.part_rows >= self.options.part_rows {
            self.close_part()?;
        }
        Ok(())
    }

    fn until_due(&self) -> Duration {
        self.options.part_age.saturating_sub(self.oldest.elapsed())
    }

    fn close_part_when_due(&mut self, drained_from: Instant) -> Result<(), RecordError> {
        if self.until_due().is_zero() {
            self.flush_rows()?;
            if self.part_rows > 0 {
                self.close_part()?;
            }
            self.oldest = drained_from;
        }
        Ok(())
    }

    /// Closes the open part and gives it its final name.
    fn close_part(&mut self) -> Result<(), RecordError> {
        let Some(mut part) = self.part.take() else {
            return Ok(());
        };
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        let bytes = match part.close(dropped) {
            Ok(bytes) => bytes,
            Err(source) => {
                self.part = Some(part);
                return Err(self.failed(source));
            }
        };
        let path = part_path(&self.path, self.number);
        let partial = partial_path(&path);
        if partial.exists() {
            fs::rename(&partial, &path).map_err(|source| RecordError::File { path, source })?;
        }
        self.summary.written += self.part_rows;
        self.summary.bytes += bytes;
        self.summary.parts = self.number;
        self.part_rows = 0;
        self.number += 1;
        Ok(())
    }

    fn failed(&self, source: ParquetError) -> RecordError {
        let path = partial_path(&part_path(&self.path, self.number));
        RecordError::Write {
            path,
            written: self.summary.written,
            dropped: 0,
            source,
        }
    }

    /// Lets nothing more in and counts everything that reached no finished part as dropped.
    fn give_up(&mut self, error: RecordError) -> RecordError {
        let mut lost = self.part_rows + self.rows.len() as u64;
        for at in 0..SHARDS {
            let mut spare = Vec::with_capacity(self.shared.shard_capacity);
            self.shared.take(at, &mut spare, true);
            lost += spare.len() as u64;
        }
        let before = self.shared.dropped.fetch_add(lost, Ordering::Relaxed);
        if let Some(part) = self.part.take() {
            // Without its end nobody can read it, and what ended it may be a disk that is full.
            let _stays = fs::remove_file(partial_path(&part_path(&self.path, self.number)));
            drop(part);
        }
        match error {
            RecordError::Write {
                path,
                written,
                source,
                ..
            } => RecordError::Write {
                path,
                written,
                dropped: before + lost,
                source,
            },
            other => other,
        }
    }
}

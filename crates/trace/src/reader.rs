//! Reading a trace back, row by row, in memory that does not grow with its length.
//!
//! Held at any time: 4,096 decoded rows, the current page of each column, the directory of
//! each part while it is opened, and the [`Catalog`] (each distinct object name and hint value
//! once).
//!
//! Any Parquet file with the fixed columns is a trace, whoever wrote it: columns may come in any
//! order, numbers may be 32 or 64 bits wide, and columns not known here are hint types.

mod column;
mod guard;
mod part;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use thermocline_core::HintSchema;

use crate::catalog::Catalog;
use part::{Footer, OpenPart};

use crate::error::ReadError;
use crate::parts::parts_of;
use crate::record::TraceRecord;
use crate::sample::Sample;

/// What [`TraceRecord::offset`] and [`TraceRecord::length`] count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Addressing {
    /// Bytes of an object.
    #[default]
    Bytes,
    /// Pages of unknown size: the offset is the page's number, all 64 bits of it, and the length
    /// a number of pages. [`TraceMeta::page_size`] is 1, so that splitting into pages of that
    /// size is right for both.
    Pages,
}

/// What is known about a trace as a whole before it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceMeta {
    /// Rows in all files; `None` when they have not been counted.
    pub rows: Option<u64>,
    /// Bytes per page; `None` when the file does not say.
    pub page_size: Option<u32>,
    /// What offsets and lengths count.
    pub addressing: Addressing,
    /// Start of the earliest file, nanoseconds since 1970-01-01 UTC; `None` when not known.
    pub start_unix_ns: Option<u64>,
    /// Which requests are in it.
    pub sample: Sample,
    /// The program that wrote the first file.
    pub product: Option<String>,
    /// Records the recorder dropped (the most that a part says).
    pub dropped: u64,
    /// Number of files.
    pub parts: usize,
    /// Bytes of all files.
    pub bytes: u64,
}

/// Streams the records of one trace. After an error the iterator ends.
#[derive(Debug)]
pub struct TraceReader {
    meta: TraceMeta,
    catalog: Catalog,
    waiting: VecDeque<(PathBuf, u64)>,
    open: Option<OpenPart>,
    batch: std::vec::IntoIter<TraceRecord>,
    rows_read: u64,
}

impl TraceReader {
    /// Opens the trace at `path` with all its parts (`path`, `path.0002`, ...).
    ///
    /// # Errors
    /// When a file is missing, unfinished, not Parquet, or has columns that make no trace.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, ReadError> {
        Self::open_files(&parts_of(path.as_ref())?)
    }

    /// Opens exactly these files as one trace, in this order. When they say when they started,
    /// times count from the earliest start.
    ///
    /// # Errors
    /// As [`Self::open`]; also when files have different page sizes or too many hint types
    /// together.
    pub fn open_files(paths: &[PathBuf]) -> Result<Self, ReadError> {
        if paths.is_empty() {
            return Err(ReadError::NoFile);
        }
        let mut catalog = Catalog::new();
        let mut footers = Vec::with_capacity(paths.len());
        for path in paths {
            let footer = Footer::read(path)?;
            catalog.add_hint_columns(path, &footer.hint_columns)?;
            footers.push(footer);
        }
        let meta = join(paths, &footers)?;
        let origin = meta.start_unix_ns.unwrap_or(0);
        let shifts = footers
            .iter()
            .map(|footer| footer.start_unix_ns.map_or(0, |at| at - origin));
        let waiting = paths.iter().cloned().zip(shifts).collect();
        Ok(Self {
            meta,
            catalog,
            waiting,
            open: None,
            batch: Vec::new().into_iter(),
            rows_read: 0,
        })
    }

    /// What the files say about themselves.
    #[must_use]
    pub fn meta(&self) -> &TraceMeta {
        &self.meta
    }

    /// The hint types of the trace, built-in ones first.
    #[must_use]
    pub fn schema(&self) -> &HintSchema {
        self.catalog.schema()
    }

    /// Names behind the numbers in the records read *so far*.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The names, when all records were read and the reader is no longer needed.
    #[must_use]
    pub fn into_catalog(self) -> Catalog {
        self.catalog
    }

    /// Bytes of the files behind the rows read so far, as a share of all rows: for progress.
    pub(crate) fn bytes_read(&self) -> u64 {
        let rows = self.meta.rows.unwrap_or(0).max(1);
        let read = self.rows_read.min(rows);
        let bytes = u128::from(self.meta.bytes) * u128::from(read) / u128::from(rows);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    fn next_batch(&mut self) -> Result<bool, ReadError> {
        loop {
            if self.open.is_none() {
                let Some((path, shift)) = self.waiting.pop_front() else {
                    return Ok(false);
                };
                self.open = Some(OpenPart::open(path, shift, &self.catalog)?);
            }
            let Some(part) = &mut self.open else { continue };
            let rows = part.next_batch(&mut self.catalog)?;
            if !rows.is_empty() {
                self.rows_read += rows.len() as u64;
                self.batch = rows.into_iter();
                return Ok(true);
            }
            self.open = None;
        }
    }
}

impl Iterator for TraceReader {
    type Item = Result<TraceRecord, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(record) = self.batch.next() {
            return Some(Ok(record));
        }
        match self.next_batch() {
            Ok(true) => self.batch.next().map(Ok),
            Ok(false) => None,
            Err(error) => {
                self.waiting.clear();
                self.open = None;
                Some(Err(error))
            }
        }
    }
}

/// Joins what the files say; refuses files of different page sizes.
fn join(paths: &[PathBuf], footers: &[Footer]) -> Result<TraceMeta, ReadError> {
    let mut rows = 0u64;
    let mut meta = TraceMeta {
        page_size: footers[0].page_size,
        addressing: footers[0].addressing,
        sample: footers[0].sample,
        product: footers[0].product.clone(),
        parts: paths.len(),
        ..TraceMeta::default()
    };
    for (path, footer) in paths.iter().zip(footers) {
        if footer.page_size != meta.page_size {
            let text = |size: Option<u32>| size.map_or("not given".into(), |s| s.to_string());
            return Err(ReadError::Mismatch {
                path: path.clone(),
                first: paths[0].clone(),
                what: "page size",
                found: text(footer.page_size),
                expected: text(meta.page_size),
            });
        }
        if footer.addressing != meta.addressing {
            let text = |addressing| match addressing {
                Addressing::Bytes => "bytes".to_string(),
                Addressing::Pages => "pages".to_string(),
            };
            return Err(ReadError::Mismatch {
                path: path.clone(),
                first: paths[0].clone(),
                what: "unit of offsets",
                found: text(footer.addressing),
                expected: text(meta.addressing),
            });
        }
        if footer.sample != meta.sample {
            return Err(ReadError::Mismatch {
                path: path.clone(),
                first: paths[0].clone(),
                what: "share of the requests",
                found: footer.sample.share().to_string(),
                expected: meta.sample.share().to_string(),
            });
        }
        rows = rows.saturating_add(footer.rows);
        meta.bytes += footer.bytes;
        // Each part counts from the beginning of its recording.
        meta.dropped = meta.dropped.max(footer.dropped.unwrap_or(0));
        meta.start_unix_ns = match (meta.start_unix_ns, footer.start_unix_ns) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    meta.rows = Some(rows);
    Ok(meta)
}

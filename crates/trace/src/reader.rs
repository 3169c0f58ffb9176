//! Reading a trace back, row by row, in memory that does not grow with its length.
//!
//! Held at any time: 4,096 decoded rows, the current page of each column, the directory of
//! each part while it is opened, and the [`Catalog`] (each distinct object name and hint value
//! once).
//!
//! Any Parquet file with the fixed columns is a trace, whoever wrote it: columns may come in any
//! order, numbers may be 32 or 64 bits wide, and columns not known here are hint types.

mod catalog;
mod column;
mod part;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use thermocline_core::HintSchema;

pub use catalog::Catalog;
use part::{Footer, OpenPart};

use crate::error::ReadError;
use crate::parts::parts_of;
use crate::record::TraceRecord;

/// What the files say about the trace as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceMeta {
    /// Rows in all files.
    pub rows: u64,
    /// Bytes per page; `None` when the file does not say.
    pub page_size: Option<u32>,
    /// Start of the earliest file, nanoseconds since 1970-01-01 UTC; `None` when not known.
    pub start_unix_ns: Option<u64>,
    /// The program that wrote the first file.
    pub product: Option<String>,
    /// Records the recorder dropped (from the last part that says so).
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
    let mut meta = TraceMeta {
        page_size: footers[0].page_size,
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
        meta.rows = meta.rows.saturating_add(footer.rows);
        meta.bytes += footer.bytes;
        meta.dropped = footer.dropped.unwrap_or(meta.dropped);
        meta.start_unix_ns = match (meta.start_unix_ns, footer.start_unix_ns) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
    }
    Ok(meta)
}

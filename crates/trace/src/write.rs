//! Writing traces that do not come from a running engine, and converting between formats.
//!
//! Three formats can be written: the native one (nothing is lost), CSV (nothing is lost but the
//! page size, the start, and of how much it is), and libCacheSim's oracleGeneral (a sequence of
//! pages: operations, hints and latencies have no place there).
//!
//! A file is written beside its final name, which it gets when it is complete.

mod csv;
mod native;
mod oracle_general;
mod output;

use std::path::{Path, PathBuf};

use thermocline_core::HintSchema;

use crate::catalog::Catalog;
use crate::error::{ReadError, RecordError};
use crate::format::Format;
use crate::reader::Addressing;
use crate::record::{Op, TraceRecord};
use crate::sample::{EXTENT_PAGES, Sample};
use crate::source::Source;
use crate::split::pages_of;

/// Page size when neither the trace nor the caller says one, bytes; the simulator's as well.
pub(crate) const PAGE_SIZE_DEFAULT: u32 = 4096;

/// Most pages of one request; more is a damaged trace.
const REQUEST_PAGES_MAX: u128 = 1 << 24;

/// Records between two calls of a progress function.
const PROGRESS_EVERY: u64 = 1 << 16;

/// How a trace is written.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// The format; by the name of the file when not given.
    pub format: Option<Format>,
    /// Bytes per page for splitting; the trace's own, or 4,096, when not given. Not for traces
    /// that count in pages.
    pub page_size: Option<u32>,
    /// One row per page touched instead of one per request, also in formats that can hold
    /// requests. oracleGeneral always has one record per page.
    pub split: bool,
    /// Replace a file of the same name instead of refusing.
    pub overwrite: bool,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The format.
    pub format: Format,
    /// Requests read.
    pub requests: u64,
    /// Rows or records written.
    pub rows: u64,
    /// Requests that have no page to write: trims, syncs and requests without length, where
    /// rows are pages.
    pub left_out: u64,
    /// The page size requests were split with; `None` when they were not split.
    pub split: Option<u32>,
    /// Records of oracleGeneral whose object is not made of 24 bits of object and 40 bits of
    /// page, so that two pages could share a number (by a chance of about 1 in 2^40).
    pub far_pages: u64,
    /// Bytes of the file.
    pub bytes: u64,
}

/// Why a trace could not be converted.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The trace could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file could not be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The format is not given and the name does not tell.
    #[error("{}: cannot tell which format to write", path.display())]
    UnknownFormat {
        /// The file to be written.
        path: PathBuf,
    },
    /// The format can only be read.
    #[error("{}: {format} can be read but not written", path.display())]
    ReadOnly {
        /// The file to be written.
        path: PathBuf,
        /// The format.
        format: Format,
    },
    /// A sample would be said to have other extents than it has.
    #[error(
        "{}: pages of {given} B cannot be noted: the trace is a sample by extents of {} pages of \
         {own} B",
        path.display(), EXTENT_PAGES
    )]
    Sample {
        /// The file to be written.
        path: PathBuf,
        /// Bytes per page to be noted.
        given: u32,
        /// Bytes per page of the trace.
        own: u32,
    },
    /// A request has no place in the format.
    #[error("{}: request {request} cannot be written: {reason}", path.display())]
    Unfit {
        /// The file being written.
        path: PathBuf,
        /// The request, counted from 0.
        request: u64,
        /// Why.
        reason: String,
    },
}

impl WriteError {
    fn file(path: &Path, source: std::io::Error) -> Self {
        let path = path.to_path_buf();
        Self::Record(RecordError::File { path, source })
    }
}

/// What a writer must know before the first record.
struct Head<'a> {
    schema: &'a HintSchema,
    addressing: Addressing,
    /// Bytes per page to split with or to note; 0 when there is none to note.
    page_size: u32,
    start_unix_ns: u64,
    sample: Sample,
    dropped: u64,
    split: bool,
}

/// A file of one format being written.
trait Sink {
    /// Writes one row. The reason of an error is a phrase that follows the request's number.
    fn write(&mut self, row: &TraceRecord, catalog: &Catalog) -> Result<(), Refused>;

    /// Completes the file and returns its size in bytes, and how many pages were far.
    fn finish(self: Box<Self>, catalog: &Catalog) -> Result<(u64, u64), WriteError>;
}

/// Why a row was not written.
enum Refused {
    Failed(WriteError),
    Unfit(String),
}

impl From<WriteError> for Refused {
    fn from(error: WriteError) -> Self {
        Self::Failed(error)
    }
}

/// Writes everything `source` yields to `path`. `progress` is called now and then with
/// [`Source::bytes_read`] and [`Source::bytes_total`].
///
/// Memory: a row group (65,536 rows) for Parquet; for oracleGeneral 24–50 bytes per distinct
/// page, once all records are read.
///
/// # Errors
/// Those of reading; when the file is there already or cannot be written; when a request has no
/// place in the format; when Parquet of a sample is to have another page size than the trace. The
/// file is then not there.
pub fn convert(
    mut source: Source,
    path: &Path,
    options: &WriteOptions,
    mut progress: impl FnMut(u64, u64),
) -> Result<Written, WriteError> {
    let format = options.format.or_else(|| Format::of_name(path));
    let format = format.ok_or_else(|| WriteError::UnknownFormat {
        path: path.to_path_buf(),
    })?;
    let split = options.split || format == Format::OracleGeneral;
    let page_size = page_size(&source, options, split);
    if format == Format::Parquet {
        same_extents(&source, path, page_size)?;
    }
    let mut sink = open(format, path, &source, page_size, split, options.overwrite)?;
    let mut written = Written {
        format,
        requests: 0,
        rows: 0,
        left_out: 0,
        split: split.then_some(page_size),
        far_pages: 0,
        bytes: 0,
    };
    while let Some(record) = source.next() {
        let record = record?;
        let result = match split {
            true => write_pages(
                &mut *sink,
                &record,
                page_size,
                source.catalog(),
                &mut written,
            ),
            false => sink
                .write(&record, source.catalog())
                .map(|()| written.rows += 1),
        };
        result.map_err(|refused| refused.at(path, written.requests))?;
        written.requests += 1;
        if written.requests.is_multiple_of(PROGRESS_EVERY) {
            progress(source.bytes_read(), source.bytes_total());
        }
    }
    (written.bytes, written.far_pages) = sink.finish(source.catalog())?;
    Ok(written)
}

impl Refused {
    fn at(self, path: &Path, request: u64) -> WriteError {
        match self {
            Self::Failed(error) => error,
            Self::Unfit(reason) => WriteError::Unfit {
                path: path.to_path_buf(),
                request,
                reason,
            },
        }
    }
}

/// Bytes per page to split with, or to note.
fn page_size(source: &Source, options: &WriteOptions, split: bool) -> u32 {
    let meta = source.meta();
    let given = options.page_size.filter(|&size| size > 0);
    match meta.addressing {
        Addressing::Pages => 1,
        Addressing::Bytes if split => given.or(meta.page_size).unwrap_or(PAGE_SIZE_DEFAULT),
        Addressing::Bytes => given.or(meta.page_size).unwrap_or(0),
    }
}

/// Refuses to note another page size beside a sample: its extents are so many pages.
fn same_extents(source: &Source, path: &Path, given: u32) -> Result<(), WriteError> {
    let meta = source.meta();
    let own = meta.page_size.unwrap_or(PAGE_SIZE_DEFAULT);
    // Noting none leaves it as it was.
    let same = meta.addressing == Addressing::Pages || given == 0 || given == own;
    if meta.sample.is_all() || same {
        return Ok(());
    }
    let path = path.to_path_buf();
    Err(WriteError::Sample { path, given, own })
}

fn open(
    format: Format,
    path: &Path,
    source: &Source,
    page_size: u32,
    split: bool,
    overwrite: bool,
) -> Result<Box<dyn Sink>, WriteError> {
    let head = Head {
        schema: source.schema(),
        addressing: source.meta().addressing,
        page_size,
        start_unix_ns: source.meta().start_unix_ns.unwrap_or(0),
        sample: source.meta().sample,
        dropped: source.meta().dropped,
        split,
    };
    match format {
        Format::Parquet => Ok(Box::new(native::TraceWriter::create(
            path, &head, overwrite,
        )?)),
        Format::Csv => Ok(Box::new(csv::CsvWriter::create(path, &head, overwrite)?)),
        Format::OracleGeneral => {
            let writer = oracle_general::OracleWriter::create(path, &head, overwrite)?;
            Ok(Box::new(writer))
        }
        _ => Err(WriteError::ReadOnly {
            path: path.to_path_buf(),
            format,
        }),
    }
}

/// Writes one row per page the request touches.
fn write_pages(
    sink: &mut dyn Sink,
    record: &TraceRecord,
    page_size: u32,
    catalog: &Catalog,
    written: &mut Written,
) -> Result<(), Refused> {
    let pages = pages_of(record, page_size);
    if matches!(record.op, Op::Trim | Op::Sync) || pages.is_empty() {
        written.left_out += 1;
        return Ok(());
    }
    let count = pages.end - pages.start;
    if count > REQUEST_PAGES_MAX {
        return Err(Refused::Unfit(format!("it touches {count} pages")));
    }
    let size = u128::from(page_size);
    for page in pages {
        // The first byte of a page that holds a byte below 2^64.
        let offset = u64::try_from(page * size).unwrap_or(u64::MAX);
        let row = TraceRecord {
            offset,
            length: u64::from(page_size),
            ..*record
        };
        sink.write(&row, catalog)?;
        written.rows += 1;
    }
    Ok(())
}

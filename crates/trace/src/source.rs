//! One way to open a trace, whatever its format.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use thermocline_core::HintSchema;

use crate::catalog::Catalog;
use crate::error::ReadError;
use crate::format::Format;
use crate::import::{self, CsvColumns, Decoded, Decoder, Input, Unit};
use crate::reader::{TraceMeta, TraceReader};
use crate::record::TraceRecord;

/// What a file does not say about itself.
#[derive(Clone, Debug)]
pub struct ImportOptions {
    /// The format; found out when not given.
    pub format: Option<Format>,
    /// What the columns of a CSV file are; the names in its header say so when not given. With them
    /// the file is CSV where no format is given; other formats refuse them.
    pub columns: Option<CsvColumns>,
    /// Bytes per block or page where a trace counts in them: 512 for `.lis` when not given; page
    /// columns of CSV stay numbers of pages of unknown size when not given. What counts in neither
    /// refuses it.
    pub unit: Option<u32>,
    /// The `blkparse` action that stands for a request.
    pub blkparse_action: char,
    /// The options are for several files: those that a file's format does not use are for others.
    pub several: bool,
}

/// The action that stands for a request when none is given: it is queued.
const ACTION_DEFAULT: char = 'Q';

impl Default for ImportOptions {
    fn default() -> Self {
        Self {
            format: None,
            columns: None,
            unit: None,
            blkparse_action: ACTION_DEFAULT,
            several: false,
        }
    }
}

/// Streams the records of one trace of any format; see [`open`]. After an error the iterator
/// ends.
#[derive(Debug)]
pub struct Source {
    format: Format,
    kind: Kind,
}

// A simulator reads in one thread and works in others.
const _: fn() = || {
    fn sent<T: Send>() {}
    sent::<Source>();
};

#[derive(Debug)]
enum Kind {
    Parquet(Box<TraceReader>),
    Stream(Box<Stream>),
}

/// Opens the trace at `path`.
///
/// A native trace is opened with all its parts. The other formats may be compressed (Zstandard,
/// xz, gzip: their first bytes tell). The first record is decoded at once, so that most mistakes
/// about the format show here.
///
/// Memory: buffers of about 400 KiB, what the decompressor needs (Zstandard: the window, at most
/// 128 MiB; xz: at most 256 MiB), and the [`Catalog`]; nothing grows with the number of records.
///
/// # Errors
/// When the file cannot be read, its format cannot be told, it holds no record, or its beginning
/// is malformed.
pub fn open(path: impl AsRef<Path>, options: &ImportOptions) -> Result<Source, ReadError> {
    let path = path.as_ref();
    check(options)?;
    let native = || {
        used(path, Format::Parquet, options)?;
        TraceReader::open(path).map(Source::native)
    };
    if !path.exists() {
        // It says what is not there, before what options would mean.
        return TraceReader::open(path).map(Source::native);
    }
    if options.format == Some(Format::Parquet) {
        return native();
    }
    let mut input = Input::open(path)?;
    match format_of(path, &mut input, options)? {
        Format::Parquet => native(),
        format => Source::stream(format, input, options),
    }
}

/// Opens several files as one trace; more than one only of the native format, see
/// [`TraceReader::open_files`].
///
/// # Errors
/// As [`open`].
pub fn open_files(paths: &[PathBuf], options: &ImportOptions) -> Result<Source, ReadError> {
    match paths {
        [path] => open(path, options),
        _ => {
            for path in paths {
                used(path, Format::Parquet, options)?;
                if is_foreign(path) {
                    let path = path.clone();
                    return Err(ReadError::Together { path });
                }
            }
            TraceReader::open_files(paths).map(Source::native)
        }
    }
}

/// Whether a file begins as no Parquet file does. What cannot be read, or is empty, says so itself.
fn is_foreign(path: &Path) -> bool {
    let mut head = Vec::new();
    let mut read = |file: File| file.take(4).read_to_end(&mut head);
    let read = path.is_file() && File::open(path).and_then(&mut read).is_ok();
    read && !head.is_empty() && head != b"PAR1"
}

/// Reads a trace of any format but Parquet from `reader`, calling it `name` in errors.
///
/// # Errors
/// As [`open`].
pub fn open_reader(
    name: impl AsRef<Path>,
    reader: impl Read + Send + 'static,
    options: &ImportOptions,
) -> Result<Source, ReadError> {
    check(options)?;
    let mut input = Input::new(name.as_ref(), Box::new(reader), 0)?;
    let format = format_of(name.as_ref(), &mut input, options)?;
    Source::stream(format, input, options)
}

fn check(options: &ImportOptions) -> Result<(), ReadError> {
    if options.unit == Some(0) {
        return Err(ReadError::Option {
            option: "unit",
            expected: "at least 1 byte",
        });
    }
    Ok(())
}

/// The format asked for, or the one that the file looks like: CSV whatever it looks like where its
/// columns are given, but for Parquet.
fn format_of(path: &Path, input: &mut Input, options: &ImportOptions) -> Result<Format, ReadError> {
    let format = match (options.format, &options.columns) {
        (Some(format), _) => format,
        (None, Some(_)) if !input.head()?.starts_with(b"PAR1") => Format::Csv,
        _ => detect(path, input)?,
    };
    used(path, format, options)?;
    Ok(format)
}

/// Refuses options that `format` does not use. Whether CSV uses a unit, its columns say.
fn used(path: &Path, format: Format, options: &ImportOptions) -> Result<(), ReadError> {
    let option = match format {
        _ if options.several => return Ok(()),
        _ if format != Format::Blkparse && options.blkparse_action != ACTION_DEFAULT => "action",
        Format::Csv => return Ok(()),
        _ if options.columns.is_some() => "columns",
        Format::Lis => return Ok(()),
        _ if options.unit.is_some() => "unit",
        _ => return Ok(()),
    };
    Err(ReadError::Unused {
        path: path.to_path_buf(),
        option,
        what: format.name(),
    })
}

fn detect(path: &Path, input: &mut Input) -> Result<Format, ReadError> {
    let head = input.head()?;
    if let Some(format) = Format::detect(path, head) {
        return Ok(format);
    }
    let path = path.to_path_buf();
    Err(if head.is_empty() {
        ReadError::Empty { path }
    } else {
        ReadError::UnknownFormat { path }
    })
}

impl From<TraceReader> for Source {
    fn from(reader: TraceReader) -> Self {
        Self::native(reader)
    }
}

impl Source {
    fn native(reader: TraceReader) -> Self {
        Self {
            format: Format::Parquet,
            kind: Kind::Parquet(Box::new(reader)),
        }
    }

    fn stream(format: Format, input: Input, options: &ImportOptions) -> Result<Self, ReadError> {
        let stream = Stream::open(format, input, options)?;
        Ok(Self {
            format,
            kind: Kind::Stream(Box::new(stream)),
        })
    }

    /// The format being read.
    #[must_use]
    pub fn format(&self) -> Format {
        self.format
    }

    /// What is known about the trace as a whole.
    #[must_use]
    pub fn meta(&self) -> &TraceMeta {
        match &self.kind {
            Kind::Parquet(reader) => reader.meta(),
            Kind::Stream(stream) => &stream.meta,
        }
    }

    /// The hint types of the trace, built-in ones first.
    #[must_use]
    pub fn schema(&self) -> &HintSchema {
        self.catalog().schema()
    }

    /// Names behind the numbers in the records read *so far*.
    #[must_use]
    pub fn catalog(&self) -> &Catalog {
        match &self.kind {
            Kind::Parquet(reader) => reader.catalog(),
            Kind::Stream(stream) => &stream.catalog,
        }
    }

    /// The names, when all records were read and the source is no longer needed.
    #[must_use]
    pub fn into_catalog(self) -> Catalog {
        match self.kind {
            Kind::Parquet(reader) => reader.into_catalog(),
            Kind::Stream(stream) => stream.catalog,
        }
    }

    /// Bytes of the file read so far, compressed as it is; for progress. The file is read ahead
    /// of the records by up to 128 KiB.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        match &self.kind {
            Kind::Parquet(reader) => reader.bytes_read(),
            Kind::Stream(stream) => stream.input.taken(),
        }
    }

    /// Bytes of the file or files; 0 when not known.
    #[must_use]
    pub fn bytes_total(&self) -> u64 {
        match &self.kind {
            Kind::Parquet(reader) => reader.meta().bytes,
            Kind::Stream(stream) => stream.input.total(),
        }
    }

    /// Requests left out so far because they are none for data (a SCSI inquiry) or were asked to
    /// be left out.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        match &self.kind {
            Kind::Parquet(_) => 0,
            Kind::Stream(stream) => stream.skipped,
        }
    }
}

impl Iterator for Source {
    type Item = Result<TraceRecord, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.kind {
            Kind::Parquet(reader) => reader.next(),
            Kind::Stream(stream) => stream.next(),
        }
    }
}

/// A trace read from its beginning to its end by a decoder.
struct Stream {
    input: Input,
    decoder: Box<dyn Decoder>,
    unit: Unit,
    catalog: Catalog,
    meta: TraceMeta,
    skipped: u64,
    /// The first record, decoded when the stream was opened.
    first: Option<TraceRecord>,
    ended: bool,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Stream");
        out.field("input", &self.input).finish_non_exhaustive()
    }
}

impl Stream {
    fn open(format: Format, mut input: Input, options: &ImportOptions) -> Result<Self, ReadError> {
        let empty = |input: &Input| ReadError::Empty {
            path: input.path().to_path_buf(),
        };
        if input.head()?.is_empty() {
            return Err(empty(&input));
        }
        let opened = import::open(format, &mut input, options)?;
        let mut stream = Self {
            decoder: opened.decoder,
            unit: opened.unit,
            catalog: opened.catalog,
            meta: TraceMeta {
                page_size: opened.page_size,
                addressing: opened.addressing,
                parts: 1,
                bytes: input.total(),
                ..TraceMeta::default()
            },
            input,
            skipped: 0,
            first: None,
            ended: false,
        };
        stream.first = stream.decode()?;
        if stream.first.is_none() {
            return Err(empty(&stream.input));
        }
        stream.meta.start_unix_ns = stream.decoder.start_unix_ns();
        Ok(stream)
    }

    /// Decodes units up to the next record; `None` at the end.
    fn decode(&mut self) -> Result<Option<TraceRecord>, ReadError> {
        while self.input.advance(self.unit)? {
            match self.decoder.decode(self.input.unit(), &mut self.catalog) {
                Ok(Decoded::Record(record)) => return Ok(Some(record)),
                Ok(Decoded::Nothing) => {}
                Ok(Decoded::Skipped) => self.skipped += 1,
                Ok(Decoded::End) => break,
                Err(reason) => return Err(self.input.wrong(reason)),
            }
        }
        Ok(None)
    }

    fn next(&mut self) -> Option<Result<TraceRecord, ReadError>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        if self.ended {
            return None;
        }
        let result = self.decode();
        self.ended = !matches!(result, Ok(Some(_)));
        result.transpose()
    }
}

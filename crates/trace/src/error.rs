//! What can go wrong while recording and while reading.

use std::io;
use std::path::PathBuf;

use parquet::errors::ParquetError;

/// Why a recording could not be started or was cut short.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A trace is there already; see `RecorderOptions::overwrite`.
    #[error("{}: a trace is there already; remove it or choose another name", path.display())]
    Exists {
        /// The file found.
        path: PathBuf,
    },
    /// A hint type has a name no column can have.
    #[error("hint type {name:?} cannot be a column: {reason}")]
    HintName {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An option is out of range.
    #[error("{option} must be {expected}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its range.
        expected: &'static str,
    },
    /// The file could not be created, renamed or removed.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Rows could not be written; recording stopped there.
    #[error(
        "{}: recording stopped after {written} rows ({dropped} lost): {source}", path.display()
    )]
    Write {
        /// The part being written.
        path: PathBuf,
        /// Rows safe in finished parts.
        written: u64,
        /// Records that reached no file.
        dropped: u64,
        /// What the write failed with.
        source: ParquetError,
    },
    /// The writer thread could not be started.
    #[error("cannot start the trace writer thread: {0}")]
    Thread(io::Error),
    /// The writer thread panicked: a defect of this crate.
    #[error("the trace writer thread panicked; the last part is lost")]
    Panicked,
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// There is no finished part, only one that was being written.
    #[error(
        "{}: only an unfinished part is there ({}): the recording is still running, or was \
         killed before its first part was finished", path.display(), partial.display()
    )]
    Unfinished {
        /// The file asked for.
        path: PathBuf,
        /// The unfinished part found.
        partial: PathBuf,
    },
    /// A part in the middle of the sequence is missing.
    #[error("{}: missing, though later parts of the trace are there", path.display())]
    MissingPart {
        /// The part that should be there.
        path: PathBuf,
    },
    /// No file was given.
    #[error("no trace file given")]
    NoFile,
    /// Not a Parquet file, or a damaged one.
    #[error("{}: not a readable Parquet file: {reason}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What the decoder said.
        reason: String,
    },
    /// Written by a later version of the format.
    #[error("{}: trace format version {found}, this program reads up to {known}", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// Version in the file.
        found: String,
        /// Latest version known.
        known: u32,
    },
    /// A metadata entry has no sensible value.
    #[error("{}: metadata {key:?} has value {value:?}, expected {expected}", path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Its value.
        value: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A column is missing, twice there, or of a type that cannot be used.
    #[error("{}: column {column:?}: {reason}", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// What is wrong with it.
        reason: String,
    },
    /// One cell has a value that makes no sense, or a page of the column is damaged.
    #[error("{}: row {row}, column {column:?}: {reason}", path.display())]
    Cell {
        /// The file.
        path: PathBuf,
        /// Row in the file, counted from 0. For a damaged page: the first row not read.
        row: u64,
        /// The column.
        column: String,
        /// What is wrong.
        reason: String,
    },
    /// A line of a text trace makes no sense.
    #[error("{}: line {line}: {reason}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong.
        reason: String,
    },
    /// A record of a binary trace makes no sense.
    #[error("{}: record {record} (byte {byte}): {reason}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The record, counted from 0.
        record: u64,
        /// Where it begins, in bytes after decompression.
        byte: u64,
        /// What is wrong.
        reason: String,
    },
    /// There is no request in the file.
    #[error("{}: no request in it", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// Neither the name nor the first bytes of the file tell its format.
    #[error("{}: cannot tell the format of this trace", path.display())]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// An option of the reader is out of range.
    #[error("{option} must be {expected}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its range.
        expected: &'static str,
    },
    /// Only files of one recording, which are Parquet, are one trace together.
    #[error("{}: it is not Parquet, and only Parquet files of one recording are one trace together",
        path.display())]
    Together {
        /// The first file that is something else.
        path: PathBuf,
    },
    /// An option of the reader says something about the file that its format does not ask.
    #[error("{}: {option} would mean nothing for {what}", path.display())]
    Unused {
        /// The file.
        path: PathBuf,
        /// The option.
        option: &'static str,
        /// The format, with what makes the option useless.
        what: &'static str,
    },
    /// More hint columns than a hint set can hold.
    #[error("{}: {found} hint types, at most {max} are possible; first one too many: {column:?}",
        path.display())]
    TooManyHints {
        /// The file that brought one too many.
        path: PathBuf,
        /// How many there would be.
        found: usize,
        /// [`thermocline_core::hint::HINT_TYPES_MAX`].
        max: usize,
        /// The first column that has no place.
        column: String,
    },
    /// Files given together do not belong together.
    #[error("{}: {what} is {found}, but {expected} in {}", path.display(), first.display())]
    Mismatch {
        /// The odd file.
        path: PathBuf,
        /// The first file.
        first: PathBuf,
        /// What differs.
        what: &'static str,
        /// Its value in `path`.
        found: String,
        /// Its value in `first`.
        expected: String,
    },
}

//! One file of a trace.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::basic::Type as PhysicalType;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::SerializedFileReader;
use thermocline_core::{HintSet, ObjectId};

use super::Addressing;
use super::column::{Column, Target};
use super::guard::guarded;
use crate::catalog::Catalog;
use crate::column::{FORMAT_VERSION, Fixed, is_ignored, key};
use crate::error::ReadError;
use crate::record::{Op, Served, TraceRecord};
use crate::sample::Sample;

/// Rows decoded at a time.
const BATCH_ROWS: u64 = 4096;

/// What the directory at the end of a file says, checked.
pub(super) struct Footer {
    pub(super) rows: u64,
    pub(super) bytes: u64,
    pub(super) page_size: Option<u32>,
    pub(super) addressing: Addressing,
    pub(super) start_unix_ns: Option<u64>,
    pub(super) sample: Sample,
    pub(super) product: Option<String>,
    pub(super) dropped: Option<u64>,
    pub(super) hint_columns: Vec<String>,
}

impl Footer {
    pub(super) fn read(path: &Path) -> Result<Self, ReadError> {
        let reader = open_parquet(path)?;
        let metadata = reader.metadata();
        let hint_columns = check_columns(path, metadata)?;
        let texts = Texts { path, metadata };
        texts.check_version()?;
        let rows = (0..metadata.num_row_groups()).map(|at| group_rows(metadata, at));
        let bytes = path.metadata().map(|found| found.len());
        Ok(Self {
            rows: rows.fold(0, u64::saturating_add),
            bytes: bytes.map_err(|source| file_error(path, source))?,
            page_size: texts.page_size()?,
            addressing: texts.addressing()?,
            start_unix_ns: texts.number(key::START)?.filter(|&at| at > 0),
            sample: texts.sample()?,
            product: texts.get(key::PRODUCT).map(str::to_string),
            dropped: texts.number(key::DROPPED)?,
            hint_columns,
        })
    }
}

/// The key-value metadata of a file.
struct Texts<'a> {
    path: &'a Path,
    metadata: &'a ParquetMetaData,
}

impl Texts<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        let pairs = self.metadata.file_metadata().key_value_metadata()?;
        pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
    }

    fn number(&self, key: &str) -> Result<Option<u64>, ReadError> {
        let Some(text) = self.get(key) else {
            return Ok(None);
        };
        text.parse()
            .map(Some)
            .map_err(|_| self.refuse(key, text, "a whole number"))
    }

    fn page_size(&self) -> Result<Option<u32>, ReadError> {
        let Some(size) = self.number(key::PAGE_SIZE)? else {
            return Ok(None);
        };
        match u32::try_from(size) {
            Ok(size) if size > 0 => Ok(Some(size)),
            _ => Err(self.refuse(key::PAGE_SIZE, &size.to_string(), "1 to 4294967295 bytes")),
        }
    }

    fn sample(&self) -> Result<Sample, ReadError> {
        let Some(text) = self.get(key::SAMPLE) else {
            return Ok(Sample::ALL);
        };
        let share = text.parse().ok().and_then(Sample::of);
        share.ok_or_else(|| self.refuse(key::SAMPLE, text, "a share above 0, at most 1"))
    }

    fn addressing(&self) -> Result<Addressing, ReadError> {
        match self.get(key::ADDRESSING) {
            None | Some("bytes") => Ok(Addressing::Bytes),
            Some("pages") => Ok(Addressing::Pages),
            Some(other) => Err(self.refuse(key::ADDRESSING, other, "bytes or pages")),
        }
    }

    fn check_version(&self) -> Result<(), ReadError> {
        match self.number(key::VERSION)? {
            Some(found) if found > u64::from(FORMAT_VERSION) => Err(ReadError::Version {
                path: self.path.to_path_buf(),
                found: found.to_string(),
                known: FORMAT_VERSION,
            }),
            _ => Ok(()),
        }
    }

    fn refuse(&self, key: &str, value: &str, expected: &'static str) -> ReadError {
        let path = self.path.to_path_buf();
        ReadError::Metadata {
            path,
            key: key.into(),
            value: value.into(),
            expected,
        }
    }
}

/// A file being read.
pub(super) struct OpenPart {
    path: PathBuf,
    reader: SerializedFileReader<File>,
    /// What the columns of this file are, by column number; `None` is ignored.
    targets: Vec<Option<Target>>,
    /// Added to every time of this file, nanoseconds.
    shift: u64,
    /// The next row group to open.
    next_group: usize,
    columns: Vec<Column>,
    /// Rows of the open row group not read yet.
    rows_left: u64,
    /// Rows of this file read so far.
    rows_read: u64,
}

impl std::fmt::Debug for OpenPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("OpenPart");
        out.field("path", &self.path)
            .field("rows_read", &self.rows_read)
            .finish_non_exhaustive()
    }
}

impl OpenPart {
    pub(super) fn open(path: PathBuf, shift: u64, catalog: &Catalog) -> Result<Self, ReadError> {
        let reader = open_parquet(&path)?;
        let schema = reader.metadata().file_metadata().schema_descr();
        let mut targets = Vec::with_capacity(schema.num_columns());
        for column in schema.columns() {
            let target = Target::of(column.name(), catalog);
            if target.is_none() && !is_ignored(column.name()) {
                let reason = "the file changed while it was read";
                return Err(column_error(&path, column.name(), reason));
            }
            targets.push(target);
        }
        let columns = Vec::new();
        Ok(Self {
            path,
            reader,
            targets,
            shift,
            next_group: 0,
            columns,
            rows_left: 0,
            rows_read: 0,
        })
    }

    /// The next rows; none at the end of the file.
    pub(super) fn next_batch(
        &mut self,
        catalog: &mut Catalog,
    ) -> Result<Vec<TraceRecord>, ReadError> {
        while self.rows_left == 0 {
            if self.next_group == self.reader.metadata().num_row_groups() {
                return Ok(Vec::new());
            }
            self.open_group()?;
        }
        let rows = self.rows_left.min(BATCH_ROWS);
        let mut batch = vec![BLANK; rows as usize];
        for column in &mut self.columns {
            column
                .fill(&mut batch, catalog)
                .map_err(|(at, reason)| ReadError::Cell {
                    path: self.path.clone(),
                    row: self.rows_read + at,
                    column: column.name.clone(),
                    reason,
                })?;
        }
        for record in &mut batch {
            record.time_ns = record.time_ns.saturating_add(self.shift);
        }
        self.rows_left -= rows;
        self.rows_read += rows;
        Ok(batch)
    }

    fn open_group(&mut self) -> Result<(), ReadError> {
        let at = self.next_group;
        self.next_group += 1;
        self.rows_left = group_rows(self.reader.metadata(), at);
        self.columns.clear();
        let (reader, targets) = (&self.reader, &self.targets);
        let schema = reader.metadata().file_metadata().schema_descr();
        let opened = guarded(|| {
            let group = reader.get_row_group(at)?;
            if group.num_columns() != targets.len() {
                return Err(ParquetError::General("row group lacks columns".into()));
            }
            let mut columns = Vec::with_capacity(targets.len());
            for (number, target) in targets.iter().enumerate() {
                if let Some(target) = *target {
                    let cells = group.get_column_reader(number)?;
                    columns.push(Column::new(&schema.column(number), target, cells));
                }
            }
            Ok(columns)
        });
        self.columns = opened.map_err(|reason| format_error(&self.path, reason))?;
        Ok(())
    }
}

const BLANK: TraceRecord = TraceRecord {
    time_ns: 0,
    client: 0,
    op: Op::Read,
    served: Served::Unknown,
    object: ObjectId(0),
    offset: 0,
    length: 0,
    latency_ns: 0,
    hints: HintSet::UNKNOWN,
};

fn open_parquet(path: &Path) -> Result<SerializedFileReader<File>, ReadError> {
    // Its directory is at its end. To open a pipe again would wait for another writer.
    if path.metadata().is_ok_and(|found| !found.is_file()) {
        let reason = "it is no regular file; write it to one, from a pipe it cannot be read";
        return Err(format_error(path, reason.into()));
    }
    let file = File::open(path).map_err(|source| file_error(path, source))?;
    guarded(|| SerializedFileReader::new(file)).map_err(|reason| format_error(path, reason))
}

fn group_rows(metadata: &ParquetMetaData, at: usize) -> u64 {
    u64::try_from(metadata.row_group(at).num_rows()).unwrap_or(0)
}

/// Checks that the columns make a trace; returns the names of the hint columns.
fn check_columns(path: &Path, metadata: &ParquetMetaData) -> Result<Vec<String>, ReadError> {
    let schema = metadata.file_metadata().schema_descr();
    let mut seen: Vec<&str> = Vec::new();
    let mut hints = Vec::new();
    for column in schema.columns() {
        let name = column.name();
        if is_ignored(name) {
            continue;
        }
        if column.path().parts().len() != 1 || column.max_rep_level() > 0 {
            let full = column.path().string();
            return Err(column_error(path, &full, "nested columns cannot be read"));
        }
        if seen.contains(&name) {
            return Err(column_error(path, name, "there twice"));
        }
        seen.push(name);
        let fixed = Fixed::from_name(name);
        check_type(path, name, column.physical_type(), fixed)?;
        if fixed.is_none() {
            hints.push(name.to_string());
        }
    }
    for column in Fixed::ALL {
        if !column.optional() && !seen.contains(&column.name()) {
            return Err(column_error(path, column.name(), "missing"));
        }
    }
    Ok(hints)
}

fn check_type(
    path: &Path,
    name: &str,
    found: PhysicalType,
    fixed: Option<Fixed>,
) -> Result<(), ReadError> {
    use PhysicalType::{BOOLEAN, BYTE_ARRAY, INT32, INT64};
    let (fits, expected) = match fixed {
        Some(column) if column.is_text() => (found == BYTE_ARRAY, "text"),
        Some(_) => (matches!(found, INT32 | INT64), "whole numbers"),
        None => (
            matches!(found, BYTE_ARRAY | INT32 | INT64 | BOOLEAN),
            "text, whole numbers or truth values (a hint is a category)",
        ),
    };
    if fits {
        return Ok(());
    }
    Err(column_error(
        path,
        name,
        &format!("has type {found}, expected {expected}"),
    ))
}

fn file_error(path: &Path, source: std::io::Error) -> ReadError {
    ReadError::File {
        path: path.to_path_buf(),
        source,
    }
}

fn format_error(path: &Path, reason: String) -> ReadError {
    ReadError::Format {
        path: path.to_path_buf(),
        reason,
    }
}

fn column_error(path: &Path, column: &str, reason: &str) -> ReadError {
    let path = path.to_path_buf();
    ReadError::Column {
        path,
        column: column.into(),
        reason: reason.into(),
    }
}

//! Keys out of lines, CSV columns and Parquet columns.

use crate::failure::{Code, Failure, Outcome, reason};
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_filter::{Key, KeyKind};

/// The byte-order mark, in UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// A key of its own; none is a null, which is no key.
#[derive(Debug, PartialEq)]
pub(super) enum OwnKey {
    Null,
    Text(Vec<u8>),
    Integer(i64),
}

impl OwnKey {
    pub(super) fn key(&self) -> Option<Key<'_>> {
        match self {
            Self::Null => None,
            Self::Text(bytes) => Some(Key::Text(bytes)),
            Self::Integer(number) => Some(Key::Integer(*number)),
        }
    }
}

/// A file of rows that have keys. It is read more than once.
#[derive(Debug)]
pub(super) struct Rows {
    path: PathBuf,
    column: Option<String>,
    parquet: bool,
    kind: KeyKind,
}

/// One row: its number, its key, its text where that was asked for, and how far the file is read.
pub(super) struct Seen<'a> {
    pub(super) number: u64,
    pub(super) key: &'a OwnKey,
    pub(super) text: &'a [u8],
    pub(super) position: u64,
}

impl Rows {
    /// The rows of `path` with their keys in `column`. `kind` is what keys of text stand for, or
    /// what the keys must be; none takes what a Parquet column is, and text of other files.
    pub(super) fn open(
        path: &Path,
        column: Option<&str>,
        kind: Option<KeyKind>,
    ) -> Result<Self, Failure> {
        let failed = |error: &std::io::Error| Failure::io("read", path, error);
        let found = path.metadata().map_err(|error| failed(&error))?;
        if !found.is_file() {
            let fact = format!(
                "{} is not a file, and it is read more than once",
                path.display()
            );
            return Err(Failure::usage(fact).advise("write the rows to a file first"));
        }
        let mut rows = Self {
            path: path.to_path_buf(),
            column: column.map(str::to_string),
            parquet: path.extension().is_some_and(|end| end == "parquet"),
            kind: kind.unwrap_or_default(),
        };
        if rows.parquet {
            let actual = rows.parquet_kind()?;
            if kind.is_some_and(|kind| kind != actual) {
                let fact = format!(
                    "{}: column {:?} is of kind {actual}, the keys are of kind {}",
                    path.display(),
                    rows.column.as_deref().unwrap_or_default(),
                    rows.kind
                );
                return Err(Failure::usage(fact).advise("name a column of the filter's kind"));
            }
            rows.kind = actual;
        } else if column.is_some() {
            rows.find_column(&rows.header()?)?;
        }
        Ok(rows)
    }

    pub(super) fn kind(&self) -> KeyKind {
        self.kind
    }

    /// What positions count up to: bytes of text, rows of Parquet.
    pub(super) fn length(&self) -> Result<u64, Failure> {
        if self.parquet {
            let reader = self.parquet_reader()?;
            let rows = reader.metadata().file_metadata().num_rows();
            return Ok(u64::try_from(rows).unwrap_or(0));
        }
        let found = self.path.metadata();
        Ok(found.map_err(|error| self.failed(&error))?.len())
    }

    /// The first line of a CSV file, for the top of what is printed.
    pub(super) fn heading(&self) -> Result<Option<String>, Failure> {
        match (self.parquet, &self.column) {
            (false, None) => Ok(None),
            (false, Some(_)) => self.header().map(Some),
            (true, _) => {
                let reader = self.parquet_reader()?;
                let schema = reader.metadata().file_metadata().schema();
                let names = schema.get_fields().iter().map(|field| quoted(field.name()));
                Ok(Some(names.collect::<Vec<_>>().join(",")))
            }
        }
    }

    /// Calls `each` with every row; `texts` when their texts are needed.
    pub(super) fn each(&self, texts: bool, each: &mut dyn FnMut(&Seen<'_>) -> Outcome) -> Outcome {
        match self.parquet {
            true => self.each_of_parquet(texts, each),
            false => self.each_line(each),
        }
    }

    fn failed(&self, error: &std::io::Error) -> Failure {
        Failure::io("read", &self.path, error)
    }

    fn wrong(&self, line: u64, reason: &str) -> Failure {
        let fact = format!("{}: line {line}: {reason}", self.path.display());
        Failure::new(Code::Failure, fact)
    }

    fn lines(&self) -> Result<BufReader<File>, Failure> {
        let file = File::open(&self.path).map_err(|error| self.failed(&error))?;
        Ok(BufReader::with_capacity(1 << 20, file))
    }

    fn header(&self) -> Result<String, Failure> {
        let mut line = String::new();
        let read = self.lines()?.read_line(&mut line);
        read.map_err(|error| self.wrong(1, &reason(&error)))?;
        let line = line.strip_prefix('\u{feff}').unwrap_or(&line);
        Ok(line.trim_end_matches(['\n', '\r']).to_string())
    }

    /// Where the column is in the first line of a CSV file.
    fn find_column(&self, header: &str) -> Result<(usize, u8), Failure> {
        let name = self.column.as_deref().unwrap_or_default();
        let count = |separator: &u8| header.bytes().filter(|byte| byte == separator).count();
        let separators = [b'\t', b';', b','];
        let delimiter = separators.into_iter().max_by_key(count).unwrap_or(b',');
        let mut found = Vec::new();
        let mut names = Vec::new();
        while let Some(cell) = cell_of(header.as_bytes(), delimiter, names.len()) {
            let cell = String::from_utf8_lossy(&cell).into_owned();
            if cell == name {
                found.push(names.len());
            }
            names.push(cell);
        }
        match found[..] {
            [at] => Ok((at, delimiter)),
            [] => Err(self.no_column(name, &names.join(", "))),
            _ => Err(self.wrong(1, &format!("column {name:?} is there twice"))),
        }
    }

    fn no_column(&self, name: &str, names: &str) -> Failure {
        let fact = format!("{}: no column {name:?}", self.path.display());
        Failure::usage(fact).advise(format!("--column with one of: {names}"))
    }

    fn each_line(&self, each: &mut dyn FnMut(&Seen<'_>) -> Outcome) -> Outcome {
        let mut input = self.lines()?;
        let (mut line, mut position, mut numbered) = (Vec::new(), 0, 0_u64);
        let mut place = None;
        if self.column.is_some() {
            place = Some(self.find_column(&self.header()?)?);
        }
        let mut header = place.is_some();
        let mut number = 0;
        loop {
            line.clear();
            let read = input.read_until(b'\n', &mut line);
            let read = read.map_err(|error| self.failed(&error))?;
            if read == 0 {
                return Ok(());
            }
            position += read as u64;
            numbered += 1;
            // The mark that some programs put at the beginning of UTF-8 text is no part of a key.
            if numbered == 1 && line.starts_with(MARK) {
                line.drain(..MARK.len());
            }
            while line.last().is_some_and(|end| matches!(end, b'\n' | b'\r')) {
                line.pop();
            }
            // An empty line is no row.
            if std::mem::take(&mut header) || line.is_empty() {
                continue;
            }
            let cell = match place {
                None => line.clone(),
                Some((at, delimiter)) => cell_of(&line, delimiter, at)
                    .ok_or_else(|| self.wrong(numbered, "has too few cells, or an open quote"))?,
            };
            let key = self.parsed(cell, numbered)?;
            each(&Seen {
                number,
                key: &key,
                text: &line,
                position,
            })?;
            number += 1;
        }
    }

    fn parsed(&self, cell: Vec<u8>, line: u64) -> Result<OwnKey, Failure> {
        if self.kind == KeyKind::Text {
            return Ok(OwnKey::Text(cell));
        }
        let text = String::from_utf8_lossy(&cell);
        let number = text.trim().parse().map(OwnKey::Integer);
        number.map_err(|_| {
            let reason = format!("{text:?} is no whole number of 64 bits; the keys are integers");
            self.wrong(line, &reason)
                .advise("another --column, or a filter that was built of text")
        })
    }

    fn parquet_failed(&self, error: &str) -> Failure {
        let fact = format!(
            "{}: cannot be read as Parquet: {error}",
            self.path.display()
        );
        Failure::new(Code::Failure, fact)
    }

    /// A step of the decoder, which panics on some damaged files.
    fn decode<T>(&self, step: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, Failure> {
        match catch_unwind(AssertUnwindSafe(step)) {
            Ok(done) => done.map_err(|error| self.parquet_failed(&error.to_string())),
            Err(_) => Err(self.parquet_failed("a page is damaged")),
        }
    }

    fn parquet_reader(&self) -> Result<SerializedFileReader<File>, Failure> {
        let file = File::open(&self.path).map_err(|error| self.failed(&error))?;
        self.decode(|| SerializedFileReader::new(file))
    }

    fn parquet_kind(&self) -> Result<KeyKind, Failure> {
        use parquet::basic::Type as Physical;
        let reader = self.parquet_reader()?;
        let fields = reader.metadata().file_metadata().schema().get_fields();
        let names: Vec<&str> = fields.iter().map(|field| field.name()).collect();
        let Some(name) = self.column.as_deref() else {
            let fact = format!("{} is Parquet: which column?", self.path.display());
            let names = names.join(", ");
            return Err(Failure::usage(fact).advise(format!("--column with one of: {names}")));
        };
        let field = fields.iter().find(|field| field.name() == name);
        let field = field.ok_or_else(|| self.no_column(name, &names.join(", ")))?;
        let physical = field.is_primitive().then(|| field.get_physical_type());
        match physical {
            Some(Physical::INT32 | Physical::INT64) => Ok(KeyKind::Integer),
            Some(Physical::BYTE_ARRAY) => Ok(KeyKind::Text),
            _ => {
                let fact = format!(
                    "{}: column {name:?} is neither whole numbers nor text",
                    self.path.display()
                );
                Err(Failure::usage(fact).advise("name a column of whole numbers or of text"))
            }
        }
    }

    fn each_of_parquet(&self, texts: bool, each: &mut dyn FnMut(&Seen<'_>) -> Outcome) -> Outcome {
        let reader = self.parquet_reader()?;
        let schema = reader.metadata().file_metadata().schema();
        let name = self.column.as_deref().unwrap_or_default();
        let projection = match texts {
            true => None,
            false => Some(only(schema, name)),
        };
        let mut rows = self.decode(|| reader.get_row_iter(projection))?;
        let mut number = 0;
        while let Some(row) = self.decode(|| rows.next().transpose())? {
            let key = self.key_of(&row, name)?;
            let text = if texts { csv_of(&row) } else { String::new() };
            each(&Seen {
                number,
                key: &key,
                text: text.as_bytes(),
                position: number + 1,
            })?;
            number += 1;
        }
        Ok(())
    }

    fn key_of(&self, row: &Row, name: &str) -> Result<OwnKey, Failure> {
        let field = row.get_column_iter().find(|(column, _)| *column == name);
        Ok(match field.map(|(_, field)| field) {
            Some(Field::Null) => OwnKey::Null,
            Some(Field::Str(text)) => OwnKey::Text(text.clone().into_bytes()),
            Some(Field::Bytes(bytes)) => OwnKey::Text(bytes.data().to_vec()),
            Some(Field::Byte(n)) => OwnKey::Integer((*n).into()),
            Some(Field::Short(n)) => OwnKey::Integer((*n).into()),
            Some(Field::Int(n)) => OwnKey::Integer((*n).into()),
            Some(Field::Long(n)) => OwnKey::Integer(*n),
            Some(Field::UByte(n)) => OwnKey::Integer((*n).into()),
            Some(Field::UShort(n)) => OwnKey::Integer((*n).into()),
            Some(Field::UInt(n)) => OwnKey::Integer((*n).into()),
            Some(Field::ULong(n)) => OwnKey::Integer(n.cast_signed()),
            _ => {
                let fact = format!("column {name:?} is neither whole numbers nor text");
                return Err(self.parquet_failed(&fact));
            }
        })
    }
}

/// The schema with one column.
fn only(schema: &Type, name: &str) -> Type {
    let fields = schema.get_fields().iter();
    let fields: Vec<Arc<Type>> = fields.filter(|f| f.name() == name).cloned().collect();
    let built = Type::group_type_builder(schema.name()).with_fields(fields);
    built.build().unwrap_or_else(|_| schema.clone())
}

/// A row as a line of CSV.
fn csv_of(row: &Row) -> String {
    let cells = row.get_column_iter().map(|(_, field)| match field {
        Field::Null => String::new(),
        Field::Str(text) => quoted(text),
        Field::Bytes(bytes) => quoted(&String::from_utf8_lossy(bytes.data())),
        other => quoted(&other.to_string()),
    });
    cells.collect::<Vec<_>>().join(",")
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

/// Cell `at` of a line of CSV; none when there are fewer, or a quote is left open.
fn cell_of(line: &[u8], delimiter: u8, at: usize) -> Option<Vec<u8>> {
    let mut rest = line;
    for passed in 0..=at {
        let mut cell = Vec::new();
        if let [b'"', inside @ ..] = rest {
            rest = inside;
            loop {
                let end = rest.iter().position(|&byte| byte == b'"')?;
                cell.extend_from_slice(&rest[..end]);
                rest = &rest[end + 1..];
                let [b'"', after @ ..] = rest else { break };
                cell.push(b'"');
                rest = after;
            }
        } else {
            let end = rest.iter().position(|&byte| byte == delimiter);
            let end = end.unwrap_or(rest.len());
            cell.extend_from_slice(rest[..end].trim_ascii());
            rest = &rest[end..];
        }
        if passed == at {
            return Some(cell);
        }
        match rest {
            [byte, after @ ..] if *byte == delimiter => rest = after,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_cut_at_delimiters_outside_quotes() {
        let line = br#"7, "a" ,"b,""c""",,z"#;
        let cell = |at| cell_of(line, b',', at).map(|c| String::from_utf8(c).expect("UTF-8"));
        let cells: Vec<_> = (0..6).map(cell).collect();
        let expected = ["7", "\"a\"", "b,\"c\"", "", "z"].map(|c| Some(c.to_string()));
        assert_eq!(cells[..5], expected);
        assert_eq!(cells[5], None);
        assert_eq!(cell_of(b"\"open", b',', 0), None);
    }
}

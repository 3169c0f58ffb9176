//! Keys out of lines, CSV columns and Parquet columns.

use crate::failure::{Code, Failure, Outcome};
use crate::show::shell;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use parquet::schema::types::Type;
use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline_filter::{Key, KeyKind};

/// The byte-order mark, in UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The longest line: a file without line ends would otherwise be read into memory whole.
const LINE_MAX: usize = 1 << 20;

/// The first bytes of a Parquet file.
const PARQUET: &[u8] = b"PAR1";

/// The first bytes of compressed files, and the program that unpacks them.
const COMPRESSED: [(&[u8], &str); 4] = [
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ\x00", "xz"),
    // Words may begin with its first three bytes, so those of the first block are asked for.
    (b"BZh", "bzip2"),
];
const BZIP2_BLOCK: &[u8] = b"1AY&SY";

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
        let head = head(path).map_err(|error| failed(&error))?;
        if let Some(program) = compressed(&head) {
            let name = path.display();
            let fact = format!("{name} is compressed, and only trace commands read such files");
            let named = shell::operand(&name.to_string());
            let unpack = format!("unpack it first: {program} -dc {named} > FILE");
            return Err(Failure::usage(fact).advise(unpack));
        }
        let named = path.extension().is_some_and(|end| end == "parquet");
        let mut rows = Self {
            path: path.to_path_buf(),
            column: column.map(str::to_string),
            parquet: named || is_parquet(&head),
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
        let mut line = Vec::new();
        self.next_line(&mut self.lines()?, &mut line, 1)?;
        let line = String::from_utf8(line);
        line.map_err(|_| self.wrong(1, "it is no text in UTF-8"))
    }

    /// Reads line `number` from `input` into `line`, without its end; returns how many bytes it
    /// takes in the file, which is none at the end.
    fn next_line(
        &self,
        input: &mut impl BufRead,
        line: &mut Vec<u8>,
        number: u64,
    ) -> Result<u64, Failure> {
        line.clear();
        // Its end is not counted.
        let most = LINE_MAX as u64 + 2;
        let read = input.take(most).read_until(b'\n', line);
        let read = read.map_err(|error| self.failed(&error))?;
        // Some programs end a line with two carriage returns.
        while line.pop_if(|last| b"\r\n".contains(last)).is_some() {}
        // The mark that some programs put at the beginning of UTF-8 text is no part of a key.
        if number == 1 && line.starts_with(MARK) {
            line.drain(..MARK.len());
        }
        if line.len() > LINE_MAX {
            let wrong = self.wrong(number, "it is longer than 1 MiB");
            return Err(wrong.advise("a file of keys that has a row a line"));
        }
        Ok(read as u64)
    }

    /// Where the column is in the first line of a CSV file.
    fn find_column(&self, header: &str) -> Result<Place, Failure> {
        let name = self.column.as_deref().unwrap_or_default();
        let count = |separator: &u8| header.bytes().filter(|byte| byte == separator).count();
        let separators = [b'\t', b';', b','];
        let delimiter = separators.into_iter().max_by_key(count).unwrap_or(b',');
        let mut found = Vec::new();
        let mut names = Vec::new();
        let read = each_cell(header.as_bytes(), delimiter, &mut |at, cell| {
            let cell = String::from_utf8_lossy(&cell).trim().to_string();
            if cell == name.trim() {
                found.push(at);
            }
            names.push(cell);
        });
        let cells = read.map_err(|reason| self.no_row(1, reason))?;
        match found[..] {
            [at] => Ok(Place {
                at,
                cells,
                delimiter,
            }),
            [] => Err(self.no_column(name, &names.join(", "))),
            _ => Err(self.wrong(1, &format!("column {name:?} is there twice"))),
        }
    }

    fn no_column(&self, name: &str, names: &str) -> Failure {
        let fact = format!("{}: no column {name:?}", self.path.display());
        Failure::usage(fact).advise(format!("--column with one of: {names}"))
    }

    /// A line that is no row of CSV.
    fn no_row(&self, line: u64, reason: &str) -> Failure {
        self.wrong(line, reason).advise(
            "rows of one line each with as many cells as the first, and quotes as RFC 4180 \
                 has them (doubled, no backslashes); or Parquet",
        )
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
            numbered += 1;
            let read = self.next_line(&mut input, &mut line, numbered)?;
            if read == 0 {
                return Ok(());
            }
            position += read;
            // An empty line is no row.
            if std::mem::take(&mut header) || line.is_empty() {
                continue;
            }
            let cell = match &place {
                None => line.clone(),
                Some(place) => {
                    let cell = place.cell_of(&line);
                    cell.map_err(|reason| self.no_row(numbered, &reason))?
                }
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

/// Where the keys are in a line of CSV.
#[derive(Debug)]
struct Place {
    at: usize,
    /// Cells of the first line.
    cells: usize,
    delimiter: u8,
}

impl Place {
    /// The cell with the key. The whole line is looked at: where a cell holds a line break, this
    /// is a part of a row, and the next line another.
    fn cell_of(&self, line: &[u8]) -> Result<Vec<u8>, String> {
        let mut found = Vec::new();
        let cells = each_cell(line, self.delimiter, &mut |at, cell| {
            if at == self.at {
                found = cell.into_owned();
            }
        })?;
        match cells == self.cells {
            true => Ok(found),
            false => Err(format!(
                "it has {cells} cells, and the first line has {}",
                self.cells
            )),
        }
    }
}

/// Calls `each` with the cells of a line of CSV and their places; returns how many there are. As
/// in RFC 4180, blanks around a cell are a part of it.
fn each_cell<'a>(
    line: &'a [u8],
    delimiter: u8,
    each: &mut dyn FnMut(usize, Cow<'a, [u8]>),
) -> Result<usize, &'static str> {
    let (mut rest, mut at) = (line, 0);
    loop {
        let cell;
        if let [b'"', inside @ ..] = rest {
            (cell, rest) = quoted_cell(inside)?;
        } else {
            let end = rest.iter().position(|&byte| byte == delimiter);
            let (plain, after) = rest.split_at(end.unwrap_or(rest.len()));
            (cell, rest) = (Cow::Borrowed(plain), after);
        }
        each(at, cell);
        at += 1;
        match rest {
            [] => return Ok(at),
            [byte, after @ ..] if *byte == delimiter => rest = after,
            _ => return Err("there is text after the closing quote of a cell"),
        }
    }
}

/// The cell whose quote was opened just before `rest`, and what follows the closing one.
fn quoted_cell(mut rest: &[u8]) -> Result<(Cow<'_, [u8]>, &[u8]), &'static str> {
    let mut cell = Vec::new();
    loop {
        let end = rest.iter().position(|&byte| byte == b'"');
        let end = end.ok_or("a quote is open: cells may hold no line breaks")?;
        cell.extend_from_slice(&rest[..end]);
        rest = &rest[end + 1..];
        let [b'"', after @ ..] = rest else {
            return Ok((Cow::Owned(cell), rest));
        };
        cell.push(b'"');
        rest = after;
    }
}

/// The first bytes of a file.
fn head(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(16).read_to_end(&mut head)?;
    Ok(head)
}

/// Whether a file that begins with `head` is Parquet: what follows its first bytes is no text.
fn is_parquet(head: &[u8]) -> bool {
    let is_text = |byte: &u8| !byte.is_ascii_control() || byte.is_ascii_whitespace();
    head.starts_with(PARQUET) && !head.get(PARQUET.len()).is_some_and(is_text)
}

/// The program that unpacks a file that begins with `head`, where it is compressed.
fn compressed(head: &[u8]) -> Option<&'static str> {
    let begins = |magic: &[u8]| match magic {
        b"BZh" => head.starts_with(magic) && head.get(4..10) == Some(BZIP2_BLOCK),
        _ => head.starts_with(magic),
    };
    let found = COMPRESSED.iter().find(|(magic, _)| begins(magic));
    found.map(|(_, program)| *program)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_cut_at_delimiters_outside_quotes() {
        let cells = |line: &str| {
            let mut cells = Vec::new();
            let read = each_cell(line.as_bytes(), b',', &mut |_, cell| {
                cells.push(String::from_utf8(cell.into_owned()).expect("UTF-8"));
            });
            read.map(|count| (cells, count))
        };
        let (found, count) = cells(r#"7, "a" ,"b,""c""",,z"#).expect("a row");
        assert_eq!(
            (&found[..], count),
            (
                &["7", " \"a\" ", "b,\"c\"", "", "z"].map(String::from)[..],
                5
            )
        );
        assert_eq!(cells("a,").expect("a row").0, ["a", ""]);
        for wrong in ["\"open", "a,\"b\"\"", "\"a\" ,b"] {
            assert!(cells(wrong).is_err(), "{wrong}");
        }
    }
}

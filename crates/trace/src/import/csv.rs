//! CSV: columns separated by commas, semicolons or tabs (whichever the first line has most of),
//! cells optionally in double quotes, one line per request.
//!
//! What a column means is said by a [`CsvColumns`], or by its name in the header when it has a
//! name of the native format. Objects may be made of several columns; any column can be a hint
//! type; rows with a given value in a column can be left out.

mod cells;
mod columns;

use cells::Cells;
pub use columns::CsvColumns;
use columns::Field;
pub(crate) use columns::{PAGE_ID, is_no_hint};

use super::number::{natural, scaled, shown, text, times};
use super::{Decoded, Decoder, Input, Opened, Unit, object, read_of};
use crate::catalog::Catalog;
use crate::error::ReadError;
use crate::reader::Addressing;
use crate::record::{Op, Served, TraceRecord};
use crate::source::ImportOptions;

/// The object of a trace without a column for it.
const OBJECT: &str = "disk";

const SECOND_NS: u64 = 1_000_000_000;

/// A column that is used.
struct Column {
    /// Its name in messages.
    name: String,
    /// Where it is in a row.
    at: usize,
    field: Field,
    /// For hints, the position in a hint set.
    position: usize,
}

pub(super) fn open(input: &mut Input, options: &ImportOptions) -> Result<Opened, ReadError> {
    let mapped = options.columns.as_ref();
    let (cells, delimiter) = if mapped.is_none_or(CsvColumns::has_header) {
        header(input)?
    } else {
        (Cells::default(), b',')
    };
    let names = cells.texts().map_err(|reason| input.wrong(reason))?;
    let meaning = mapped.map_or_else(|| CsvColumns::of_header(&names), Clone::clone);
    let refuse = |column: String, reason: &str| ReadError::Column {
        path: input.path().to_path_buf(),
        column,
        reason: format!("{reason}; {}", found(&names)),
    };
    let checked = meaning.check();
    checked.map_err(|(column, reason)| refuse(column.into(), reason))?;
    let mut catalog = Catalog::new();
    catalog.add_hint_columns(input.path(), &meaning.hint_names())?;
    let columns = used(&meaning, &names, &catalog);
    let columns = columns.map_err(|(column, reason)| refuse(column, reason))?;
    if options.unit.is_some() && !meaning.in_pages() {
        return Err(ReadError::Unused {
            path: input.path().to_path_buf(),
            option: "unit",
            what: "csv without page columns",
        });
    }
    let page_size = options.unit;
    let mut opened = Opened::bytes(
        Csv {
            delimiter,
            width: cells.len(),
            cells,
            columns,
            page_size: page_size.map_or(1, u64::from),
            counted: meaning.has(&Field::Length) || meaning.has(&Field::Pages),
            named: meaning.has(&Field::Object),
            name: String::new(),
        },
        Unit::Line,
    );
    opened.catalog = catalog;
    opened.page_size = page_size;
    if meaning.in_pages() && page_size.is_none() {
        opened.page_size = Some(1);
        opened.addressing = Addressing::Pages;
    }
    Ok(opened)
}

/// The names in the first line that says something, and what stands between them.
fn header(input: &mut Input) -> Result<(Cells, u8), ReadError> {
    let mut cells = Cells::default();
    while input.advance(Unit::Line)? && is_comment(input.unit()) {}
    let line = without_mark(input.unit());
    let delimiter = delimiter_of(line);
    let split = cells.split(line, delimiter);
    split.map_err(|reason| input.wrong(reason))?;
    Ok((cells, delimiter))
}

/// Whether a line above the header, or above the first row, says nothing.
fn is_comment(line: &[u8]) -> bool {
    let line = without_mark(line).trim_ascii();
    line.is_empty() || line.starts_with(b"#")
}

/// `line` without the mark that some programs put at the beginning of UTF-8 text.
fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
}

/// Finds the columns that have a meaning; names the one that is wrong, and why.
fn used(
    meaning: &CsvColumns,
    names: &[&str],
    catalog: &Catalog,
) -> Result<Vec<Column>, (String, &'static str)> {
    let mut used = Vec::new();
    for (field, place) in meaning.fields() {
        let name = place.name();
        let Some(at) = place.find(names) else {
            return Err((name, "missing"));
        };
        if names.iter().filter(|&&other| other == name).count() > 1 {
            return Err((name, "there twice"));
        }
        let position = match field {
            Field::Hint(hint) => catalog.position(hint).unwrap_or(0),
            _ => 0,
        };
        used.push(Column {
            name,
            at,
            field: field.clone(),
            position,
        });
    }
    Ok(used)
}

/// The separator of which `line` has most; a comma when it has none.
fn delimiter_of(line: &[u8]) -> u8 {
    let count = |separator: u8| line.iter().filter(|&&byte| byte == separator).count();
    let mut best = b',';
    for separator in [b';', b'\t'] {
        if count(separator) > count(best) {
            best = separator;
        }
    }
    best
}

fn found(names: &[&str]) -> String {
    if names.is_empty() {
        return "the file has no header".into();
    }
    let mut list = names.join(", ");
    if list.len() > 400 {
        let cut = (0..=400).rev().find(|&at| list.is_char_boundary(at));
        list.truncate(cut.unwrap_or(0));
        list.push_str(" ...");
    }
    format!("the columns are {list}")
}

struct Csv {
    /// Found in the header, else in the first row.
    delimiter: u8,
    /// Cells every row must have; 0 until the first row of a file without a header.
    width: usize,
    cells: Cells,
    columns: Vec<Column>,
    /// Bytes per page of page columns; 1 otherwise.
    page_size: u64,
    /// Whether a column says how long a request is.
    counted: bool,
    /// Whether objects have a column.
    named: bool,
    /// The object of the row, put together.
    name: String,
}

impl Decoder for Csv {
    fn decode(&mut self, unit: &[u8], catalog: &mut Catalog) -> Result<Decoded, String> {
        if unit.trim_ascii().is_empty() {
            return Ok(Decoded::Nothing);
        }
        let mut unit = unit;
        if self.width == 0 {
            if is_comment(unit) {
                return Ok(Decoded::Nothing);
            }
            unit = without_mark(unit);
            self.delimiter = delimiter_of(unit);
        }
        let split = self.cells.split(unit, self.delimiter);
        // Before anything else is looked at: such rows may have no sense in any other column.
        if self.is_skipped() {
            return Ok(Decoded::Skipped);
        }
        split?;
        if self.width == 0 {
            self.width = self.cells.len();
        }
        if self.cells.len() != self.width {
            let (found, expected) = (self.cells.len(), self.width);
            return Err(format!("{found} columns, expected {expected}"));
        }
        self.name.clear();
        // A row of page columns is about one page where no column says how many, a sync about none.
        let mut record = read_of(thermocline_core::ObjectId(0), 0, self.page_size);
        let mut joined = false;
        for column in &self.columns {
            let cell = self
                .cells
                .get(column.at)
                .ok_or_else(|| format!("column {:?} is missing", column.name))?;
            let put = match &column.field {
                Field::Object => {
                    let first = !std::mem::replace(&mut joined, true);
                    join(&mut self.name, first, cell)
                }
                Field::Hint(_) => put_hint(&mut record, column.position, cell, catalog),
                field => put(&mut record, field, cell, self.page_size),
            };
            put.map_err(|reason| format!("column {:?}: {reason}", column.name))?;
        }
        if record.op == Op::Sync && !self.counted {
            record.length = 0;
        }
        // The page of the last number ends at 2^64 exactly.
        let last = record.offset.checked_add(record.length.saturating_sub(1));
        if record.op != Op::Sync && last.is_none() {
            return Err("the request ends beyond 2^64".into());
        }
        self.named(record, catalog)
    }
}

impl Csv {
    /// Whether the row has a value in one of its cells whose rows are to be left out.
    fn is_skipped(&self) -> bool {
        self.columns.iter().any(|column| match &column.field {
            Field::Skip(value) => self.cells.get(column.at) == Some(value.as_bytes()),
            _ => false,
        })
    }

    fn named(&self, mut record: TraceRecord, catalog: &mut Catalog) -> Result<Decoded, String> {
        let name = if self.named { &self.name } else { OBJECT };
        record.object = object(catalog, name)?;
        Ok(Decoded::Record(record))
    }
}

/// Adds a part to the name of an object.
fn join(name: &mut String, first: bool, cell: &[u8]) -> Result<(), String> {
    if !first {
        name.push('/');
    }
    name.push_str(text(cell)?);
    Ok(())
}

fn put_hint(
    record: &mut TraceRecord,
    position: usize,
    cell: &[u8],
    catalog: &mut Catalog,
) -> Result<(), String> {
    if !cell.is_empty() {
        let value = catalog.value(position, text(cell)?);
        let value = value.ok_or("more distinct values than can be numbered")?;
        record.hints.set(position, value);
    }
    Ok(())
}

fn put(record: &mut TraceRecord, field: &Field, cell: &[u8], page: u64) -> Result<(), String> {
    match field {
        Field::Time(unit) => record.time_ns = scaled(cell, *unit)?,
        Field::Latency => record.latency_ns = natural(cell)?,
        Field::Offset => record.offset = natural(cell)?,
        Field::Length => record.length = natural(cell)?,
        Field::Page => record.offset = times(natural(cell)?, page, cell)?,
        Field::Pages => record.length = times(natural(cell)?, page, cell)?,
        Field::Client => {
            let client = u32::try_from(natural(cell)?);
            record.client = client.map_err(|_| format!("{} is too large", shown(cell)))?;
        }
        Field::Op => record.op = operation(cell)?,
        Field::Served => {
            let place = Served::from_name(text(cell)?);
            record.served = place.ok_or_else(|| format!("{} is no place", shown(cell)))?;
        }
        Field::Object | Field::Hint(_) | Field::Skip(_) => {}
    }
    Ok(())
}

fn operation(cell: &[u8]) -> Result<Op, String> {
    let words: [(Op, &[&str]); 4] = [
        (Op::Read, &["read", "r", "get"]),
        (Op::Write, &["write", "w", "put"]),
        (Op::Trim, &["trim", "t", "discard"]),
        (Op::Sync, &["sync", "s", "flush"]),
    ];
    let is = |word: &&str| cell.eq_ignore_ascii_case(word.as_bytes());
    let found = words.iter().find(|(_, words)| words.iter().any(is));
    found
        .map(|(op, _)| *op)
        .ok_or_else(|| format!("{} is not read, write, trim or sync", shown(cell)))
}

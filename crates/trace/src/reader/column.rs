//! One column of an open row group: decodes cells and puts them into records.

use parquet::basic::LogicalType;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, DataType};
use parquet::schema::types::ColumnDescriptor;

use super::guard::guarded;
use crate::catalog::Catalog;
use crate::column::Fixed;
use crate::record::{Op, Served, TraceRecord};

/// Which field of a record a column goes to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    Fixed(Fixed),
    /// The hint type at this position.
    Hint(usize),
}

impl Target {
    /// `None` for a column the catalog was not told of.
    pub(super) fn of(name: &str, catalog: &Catalog) -> Option<Self> {
        Fixed::from_name(name)
            .map(Self::Fixed)
            .or_else(|| catalog.position(name).map(Self::Hint))
    }
}

/// What is wrong, and in which row of the batch.
type CellError = (u64, String);

/// The cells of one batch; `None` is null.
enum Cells {
    /// Wide enough for columns of either sign.
    Numbers(Vec<Option<i128>>),
    Texts(Vec<Option<ByteArray>>),
}

pub(super) struct Column {
    pub(super) name: String,
    target: Target,
    nullable: bool,
    unsigned: bool,
    reader: ColumnReader,
    /// The text last seen and its number: neighbours are often equal.
    last: Option<(ByteArray, u32)>,
}

impl Column {
    pub(super) fn new(column: &ColumnDescriptor, target: Target, reader: ColumnReader) -> Self {
        let unsigned = matches!(
            column.logical_type_ref(), Some(LogicalType::Integer(int)) if !int.is_signed
        );
        let nullable = column.max_def_level() > 0;
        Self {
            name: column.name().to_string(),
            target,
            nullable,
            unsigned,
            reader,
            last: None,
        }
    }

    /// Decodes as many cells as `batch` has records and puts them there.
    pub(super) fn fill(
        &mut self,
        batch: &mut [TraceRecord],
        catalog: &mut Catalog,
    ) -> Result<(), CellError> {
        let cells = self.decode(batch.len()).map_err(|reason| (0, reason))?;
        match cells {
            Cells::Numbers(numbers) => {
                assert_eq!(numbers.len(), batch.len());
                for (at, (record, number)) in batch.iter_mut().zip(numbers).enumerate() {
                    let put = self.put_number(record, number, catalog);
                    put.map_err(|reason| (at as u64, reason))?;
                }
            }
            Cells::Texts(texts) => {
                assert_eq!(texts.len(), batch.len());
                for (at, (record, text)) in batch.iter_mut().zip(texts).enumerate() {
                    let put = self.put_text(record, text, catalog);
                    put.map_err(|reason| (at as u64, reason))?;
                }
            }
        }
        Ok(())
    }

    fn decode(&mut self, rows: usize) -> Result<Cells, String> {
        let nullable = self.nullable;
        let unsigned = self.unsigned;
        let narrow = |v: i32| match unsigned {
            true => i128::from(v.cast_unsigned()),
            false => i128::from(v),
        };
        let wide = |v: i64| match unsigned {
            true => i128::from(v.cast_unsigned()),
            false => i128::from(v),
        };
        match &mut self.reader {
            ColumnReader::Int32ColumnReader(reader) => {
                cells(reader, rows, nullable, narrow).map(Cells::Numbers)
            }
            ColumnReader::Int64ColumnReader(reader) => {
                cells(reader, rows, nullable, wide).map(Cells::Numbers)
            }
            ColumnReader::BoolColumnReader(reader) => {
                cells(reader, rows, nullable, i128::from).map(Cells::Numbers)
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                cells(reader, rows, nullable, |v| v).map(Cells::Texts)
            }
            _ => Err("has another type in this row group".into()),
        }
    }

    fn put_number(
        &mut self,
        record: &mut TraceRecord,
        number: Option<i128>,
        catalog: &mut Catalog,
    ) -> Result<(), String> {
        let fixed = match self.target {
            Target::Fixed(fixed) => fixed,
            Target::Hint(position) => {
                let Some(number) = number else { return Ok(()) };
                let value = catalog
                    .value(position, &number.to_string())
                    .ok_or(TOO_MANY)?;
                record.hints.set(position, value);
                return Ok(());
            }
        };
        let number = number.ok_or("is null")?;
        let natural = u64::try_from(number).map_err(|_| format!("{number} is negative"))?;
        match fixed {
            Fixed::Time => record.time_ns = natural,
            Fixed::Offset => record.offset = natural,
            Fixed::Length => record.length = natural,
            Fixed::Latency => record.latency_ns = natural,
            Fixed::Client => {
                let small = u32::try_from(natural);
                record.client = small.map_err(|_| format!("{natural} is not a client number"))?;
            }
            _ => return Err("is a number, expected text".into()),
        }
        Ok(())
    }

    fn put_text(
        &mut self,
        record: &mut TraceRecord,
        cell: Option<ByteArray>,
        catalog: &mut Catalog,
    ) -> Result<(), String> {
        let Some(cell) = cell else {
            return if matches!(self.target, Target::Hint(_)) {
                Ok(())
            } else {
                Err("is null".into())
            };
        };
        let number = match &self.last {
            Some((last, number)) if *last == cell => *number,
            _ => self.number_of(&cell, catalog)?,
        };
        match self.target {
            Target::Hint(position) => record.hints.set(position, number),
            Target::Fixed(Fixed::Operation) => record.op = Op::ALL[number as usize],
            Target::Fixed(Fixed::Served) => record.served = Served::ALL[number as usize],
            Target::Fixed(Fixed::Object) => record.object.0 = number,
            Target::Fixed(_) => return Err("is text, expected a number".into()),
        }
        self.last = Some((cell, number));
        Ok(())
    }

    /// The number a text stands for in this column.
    fn number_of(&self, cell: &ByteArray, catalog: &mut Catalog) -> Result<u32, String> {
        let text = std::str::from_utf8(cell.data()).map_err(|_| "is not UTF-8 text")?;
        match self.target {
            Target::Hint(position) => catalog.value(position, text).ok_or(TOO_MANY.into()),
            Target::Fixed(Fixed::Object) => catalog
                .object(text)
                .map(|object| object.0)
                .ok_or(TOO_MANY.into()),
            Target::Fixed(Fixed::Operation) => {
                let op = Op::from_name(text).ok_or_else(|| not_one_of(text, Op::ALL, Op::name))?;
                Ok(op as u32)
            }
            Target::Fixed(Fixed::Served) => {
                let place = Served::from_name(text);
                let place = place.ok_or_else(|| not_one_of(text, Served::ALL, Served::name))?;
                Ok(place as u32)
            }
            Target::Fixed(_) => Err("is text, expected a number".into()),
        }
    }
}

const TOO_MANY: &str = "has more distinct values than can be numbered";

fn not_one_of<T: Copy>(text: &str, all: &[T], name: fn(T) -> &'static str) -> String {
    let names: Vec<&str> = all.iter().map(|&value| name(value)).collect();
    format!("{text:?} is not one of {}", names.join(", "))
}

/// Decodes exactly `rows` cells.
fn cells<T: DataType, V>(
    reader: &mut ColumnReaderImpl<T>,
    rows: usize,
    nullable: bool,
    convert: impl Fn(T::T) -> V,
) -> Result<Vec<Option<V>>, String> {
    let mut levels = Vec::new();
    let mut values = Vec::new();
    let levels_out = nullable.then_some(&mut levels);
    let read = guarded(|| reader.read_records(rows, levels_out, None, &mut values));
    let (records, _, _) = read?;
    let expected = if nullable {
        levels.iter().filter(|&&level| level > 0).count()
    } else {
        rows
    };
    if records != rows || values.len() != expected || (nullable && levels.len() != rows) {
        return Err(format!("ends after {records} of {rows} rows"));
    }
    let mut values = values.into_iter().map(convert);
    if !nullable {
        return Ok(values.map(Some).collect());
    }
    Ok(levels
        .iter()
        .map(|&level| if level > 0 { values.next() } else { None })
        .collect())
}

//! Rows to columns: one row group at a time.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::ColumnPath;
use thermocline_core::ObjectId;

use super::{RecorderOptions, Shared, lock};
use crate::catalog::Catalog;
use crate::column::{FORMAT_VERSION, Fixed, key, parquet_schema};
use crate::reader::Addressing;
use crate::record::TraceRecord;

/// Where the names behind numbers come from.
pub(crate) trait NameSource {
    /// The name of an object.
    fn object_text(&self, object: ObjectId) -> String;
    /// The text of a value, not 0, of the hint type at `position`.
    fn value_text(&self, position: usize, value: u32) -> String;
}

impl NameSource for Shared {
    fn object_text(&self, object: ObjectId) -> String {
        lock(&self.names).object(object)
    }

    fn value_text(&self, position: usize, value: u32) -> String {
        lock(&self.names).value(position, value)
    }
}

impl NameSource for Catalog {
    fn object_text(&self, object: ObjectId) -> String {
        self.object_name(object)
            .map_or_else(|| format!("#{}", object.0), str::to_string)
    }

    fn value_text(&self, position: usize, value: u32) -> String {
        self.value_name(position, value)
            .map_or_else(|| format!("#{value}"), str::to_string)
    }
}

/// A part under construction.
pub(crate) struct Part<W: Write + Send> {
    file: SerializedFileWriter<W>,
    hint_types: usize,
    addressing: Addressing,
}

impl<W: Write + Send> Part<W> {
    pub(crate) fn new(
        sink: W,
        options: &RecorderOptions,
        addressing: Addressing,
        number: u32,
    ) -> Result<Self, ParquetError> {
        let schema = parquet_schema(&options.schema, addressing)?;
        let properties = Arc::new(properties(options, addressing, number)?);
        let file = SerializedFileWriter::new(sink, schema, properties)?;
        Ok(Self {
            file,
            hint_types: options.schema.names().len(),
            addressing,
        })
    }

    /// Writes `rows` as one row group.
    pub(crate) fn write(
        &mut self,
        rows: &[TraceRecord],
        names: &impl NameSource,
    ) -> Result<(), ParquetError> {
        assert!(!rows.is_empty(), "a row group has rows");
        let mut group = self.file.next_row_group()?;
        for at in 0..Fixed::ALL.len() + self.hint_types {
            let Some(mut column) = group.next_column()? else {
                return Err(ParquetError::General("schema has too few columns".into()));
            };
            match Fixed::ALL.get(at) {
                Some(&Fixed::Offset) if self.addressing == Addressing::Pages => {
                    // The column is annotated as unsigned: same 64 bits.
                    write_numbers(&mut column, rows, |row| row.offset.cast_signed())?;
                }
                Some(&fixed) => write_fixed(&mut column, fixed, rows, names)?,
                None => write_hint(&mut column, at - Fixed::ALL.len(), rows, names)?,
            }
            column.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Writes the directory and returns the size of the file in bytes. The file stays open, and so
    /// locked, until it has its name.
    pub(crate) fn close(&mut self, dropped: u64) -> Result<u64, ParquetError> {
        self.file
            .append_key_value_metadata(pair(key::DROPPED, dropped));
        self.file.finish()?;
        self.file.inner_mut().flush()?;
        Ok(self.file.bytes_written() as u64)
    }
}

fn pair(key: &str, value: impl ToString) -> KeyValue {
    KeyValue::new(key.to_string(), value.to_string())
}

fn properties(
    options: &RecorderOptions,
    addressing: Addressing,
    number: u32,
) -> Result<WriterProperties, ParquetError> {
    let product = format!("thermocline {}", env!("CARGO_PKG_VERSION"));
    let mut metadata = vec![
        pair(key::VERSION, FORMAT_VERSION),
        pair(key::START, options.start_unix_ns),
        pair(key::PRODUCT, &product),
        pair(key::PART, number),
    ];
    if options.page_size > 0 {
        metadata.push(pair(key::PAGE_SIZE, options.page_size));
    }
    if !options.sample.is_all() {
        metadata.push(pair(key::SAMPLE, options.sample.share()));
    }
    if addressing == Addressing::Pages {
        metadata.push(pair(key::ADDRESSING, "pages"));
    }
    let mut builder = WriterProperties::builder()
        .set_created_by(product)
        .set_key_value_metadata(Some(metadata))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(options.zstd_level)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(None);
    // Numbers that hardly repeat: a dictionary would only cost time.
    for (column, encoding) in [
        (Fixed::Time, Encoding::DELTA_BINARY_PACKED),
        (Fixed::Offset, Encoding::PLAIN),
        (Fixed::Latency, Encoding::PLAIN),
    ] {
        let path = ColumnPath::from(column.name());
        builder = builder
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, encoding);
    }
    Ok(builder.build())
}

fn write_fixed(
    column: &mut SerializedColumnWriter<'_>,
    fixed: Fixed,
    rows: &[TraceRecord],
    names: &impl NameSource,
) -> Result<(), ParquetError> {
    match fixed {
        Fixed::Time => write_i64(column, rows, |row| row.time_ns),
        Fixed::Offset => write_i64(column, rows, |row| row.offset),
        Fixed::Length => write_i64(column, rows, |row| row.length),
        Fixed::Latency => write_i64(column, rows, |row| row.latency_ns),
        Fixed::Client => {
            // The column is annotated as unsigned: same 32 bits.
            let values: Vec<i32> = rows.iter().map(|row| row.client.cast_signed()).collect();
            column
                .typed::<Int32Type>()
                .write_batch(&values, None, None)
                .map(drop)
        }
        Fixed::Operation => write_text(column, rows, |row| row.op, |op| op.name().into()),
        Fixed::Served => write_text(column, rows, |row| row.served, |place| place.name().into()),
        Fixed::Object => {
            let name = |object: ObjectId| names.object_text(object);
            write_text(column, rows, |row| row.object, name)
        }
    }
}

/// Values beyond what a signed column holds (292 years, 8 EiB) are written as its largest: no mount
/// has such, and a conversion refuses them.
fn write_i64(
    column: &mut SerializedColumnWriter<'_>,
    rows: &[TraceRecord],
    value: impl Fn(&TraceRecord) -> u64,
) -> Result<(), ParquetError> {
    let signed = |row: &TraceRecord| i64::try_from(value(row)).unwrap_or(i64::MAX);
    write_numbers(column, rows, signed)
}

fn write_numbers(
    column: &mut SerializedColumnWriter<'_>,
    rows: &[TraceRecord],
    value: impl Fn(&TraceRecord) -> i64,
) -> Result<(), ParquetError> {
    let values: Vec<i64> = rows.iter().map(value).collect();
    column
        .typed::<Int64Type>()
        .write_batch(&values, None, None)
        .map(drop)
}

/// Texts are made once per distinct key and shared by the rows.
fn write_text<K: Copy + Eq + Hash>(
    column: &mut SerializedColumnWriter<'_>,
    rows: &[TraceRecord],
    key: impl Fn(&TraceRecord) -> K,
    name: impl Fn(K) -> String,
) -> Result<(), ParquetError> {
    let mut texts = Texts::new(name);
    let values: Vec<ByteArray> = rows.iter().map(|row| texts.get(key(row))).collect();
    column
        .typed::<ByteArrayType>()
        .write_batch(&values, None, None)
        .map(drop)
}

fn write_hint(
    column: &mut SerializedColumnWriter<'_>,
    position: usize,
    rows: &[TraceRecord],
    names: &impl NameSource,
) -> Result<(), ParquetError> {
    let mut texts = Texts::new(|value| names.value_text(position, value));
    let mut values = Vec::with_capacity(rows.len());
    let mut levels = Vec::with_capacity(rows.len());
    for row in rows {
        let value = row.hints.get(position);
        levels.push(i16::from(value != 0));
        if value != 0 {
            values.push(texts.get(value));
        }
    }
    debug_assert_eq!(levels.len(), rows.len());
    column
        .typed::<ByteArrayType>()
        .write_batch(&values, Some(&levels), None)
        .map(drop)
}

struct Texts<K, F> {
    made: HashMap<K, ByteArray>,
    last: Option<(K, ByteArray)>,
    name: F,
}

impl<K: Copy + Eq + Hash, F: Fn(K) -> String> Texts<K, F> {
    fn new(name: F) -> Self {
        Self {
            made: HashMap::new(),
            last: None,
            name,
        }
    }

    fn get(&mut self, key: K) -> ByteArray {
        if let Some((last, text)) = &self.last
            && *last == key
        {
            return text.clone();
        }
        let make = || ByteArray::from((self.name)(key).into_bytes());
        let text = self.made.entry(key).or_insert_with(make).clone();
        self.last = Some((key, text.clone()));
        text
    }
}

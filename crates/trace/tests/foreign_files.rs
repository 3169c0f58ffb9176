//! Files of other programs, and damaged ones.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use thermocline_core::hint_type::FIRST_CUSTOM;
use thermocline_core::{ObjectId, hint_type};
use thermocline_trace::{
    Op, ReadError, Recorder, RecorderOptions, Served, TraceReader, TraceRecord, summarise,
};

/// A column of a hand-made file.
enum Cells {
    Long(Vec<i64>),
    Int(Vec<i32>),
    Text(Vec<&'static str>),
    /// Nullable text.
    Maybe(Vec<Option<&'static str>>),
    MaybeLong(Vec<Option<i64>>),
}

/// Writes a Parquet file of one row group with the given columns.
fn write(path: &Path, columns: &[(&str, Cells)], metadata: &[(&str, &str)]) {
    let mut message = "message m {\n".to_string();
    for (name, cells) in columns {
        let kind = match cells {
            Cells::Long(_) => "REQUIRED INT64",
            Cells::Int(_) => "REQUIRED INT32",
            Cells::Text(_) => "REQUIRED BYTE_ARRAY",
            Cells::Maybe(_) => "OPTIONAL BYTE_ARRAY",
            Cells::MaybeLong(_) => "OPTIONAL INT64",
        };
        message += &format!("{kind} {name};\n");
    }
    let schema = Arc::new(parse_message_type(&(message + "}")).unwrap());
    let pairs = metadata
        .iter()
        .map(|(key, value)| KeyValue::new(key.to_string(), value.to_string()));
    let properties = WriterProperties::builder().set_key_value_metadata(Some(pairs.collect()));
    let file = std::fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::new(properties.build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    for (_, cells) in columns {
        let mut column = group.next_column().unwrap().unwrap();
        let levels = |set: Vec<bool>| set.into_iter().map(i16::from).collect::<Vec<i16>>();
        match cells {
            Cells::Long(v) => column.typed::<Int64Type>().write_batch(v, None, None),
            Cells::Int(v) => column.typed::<Int32Type>().write_batch(v, None, None),
            Cells::Text(v) => {
                let v: Vec<ByteArray> = v.iter().map(|&text| ByteArray::from(text)).collect();
                column.typed::<ByteArrayType>().write_batch(&v, None, None)
            }
            Cells::Maybe(v) => {
                let set = levels(v.iter().map(Option::is_some).collect());
                let v: Vec<ByteArray> = v.iter().flatten().map(|&text| text.into()).collect();
                column
                    .typed::<ByteArrayType>()
                    .write_batch(&v, Some(&set), None)
            }
            Cells::MaybeLong(v) => {
                let set = levels(v.iter().map(Option::is_some).collect());
                let v: Vec<i64> = v.iter().flatten().copied().collect();
                column
                    .typed::<Int64Type>()
                    .write_batch(&v, Some(&set), None)
            }
        }
        .unwrap();
        column.close().unwrap();
    }
    group.close().unwrap();
    writer.close().unwrap();
}

fn base_columns() -> Vec<(&'static str, Cells)> {
    vec![
        ("length", Cells::Int(vec![8192, 4096])),
        ("object", Cells::Text(vec!["stock", "orders"])),
        ("operation", Cells::Text(vec!["read", "write"])),
        ("offset", Cells::Long(vec![0, 8192])),
        ("time_ns", Cells::MaybeLong(vec![Some(10), Some(20)])),
    ]
}

struct Scratch {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

fn scratch() -> Scratch {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("foreign.parquet");
    Scratch { _dir: dir, path }
}

fn open_error(columns: Vec<(&str, Cells)>, metadata: &[(&str, &str)]) -> String {
    let at = scratch();
    write(&at.path, &columns, metadata);
    TraceReader::open(&at.path).unwrap_err().to_string()
}

fn read_error(columns: Vec<(&str, Cells)>) -> String {
    let at = scratch();
    write(&at.path, &columns, &[]);
    let mut reader = TraceReader::open(&at.path).unwrap();
    let error = reader.find_map(Result::err).expect("an error");
    assert!(reader.next().is_none(), "nothing comes after an error");
    error.to_string()
}

#[test]
fn columns_in_any_order_and_unknown_ones_become_hints() {
    let at = scratch();
    let mut columns = base_columns();
    columns.insert(0, ("pool_id", Cells::Maybe(vec![None, Some("keep")])));
    columns.insert(1, ("__index_level_0__", Cells::Long(vec![7, 9])));
    columns.insert(4, ("priority", Cells::MaybeLong(vec![Some(4), None])));
    columns.push((
        "role",
        Cells::Maybe(vec![Some("backend"), Some("tape robot")]),
    ));
    write(&at.path, &columns, &[]);
    let mut reader = TraceReader::open(&at.path).unwrap();
    assert_eq!(
        reader.schema().names()[FIRST_CUSTOM..],
        ["pool_id", "priority"]
    );
    let first = reader.next().unwrap().unwrap();
    let second = reader.next().unwrap().unwrap();
    assert_eq!(
        (first.op, first.length, first.time_ns, first.client),
        (Op::Read, 8192, 10, 0)
    );
    assert_eq!(
        (second.op, second.offset, second.served),
        (Op::Write, 8192, Served::Unknown)
    );
    let name = |record: &TraceRecord, at| reader.catalog().value_name(at, record.hints.get(at));
    assert_eq!(
        (name(&first, FIRST_CUSTOM), name(&first, FIRST_CUSTOM + 1)),
        (Some("unknown"), Some("4"))
    );
    assert_eq!(
        (name(&second, FIRST_CUSTOM), name(&second, FIRST_CUSTOM + 1)),
        (Some("keep"), Some("unknown"))
    );
    assert_eq!(name(&second, hint_type::ROLE), Some("tape robot"));
    assert_eq!(reader.catalog().object_name(second.object), Some("orders"));
    assert_eq!(reader.meta().page_size, None);
}

#[test]
fn too_many_hint_columns_are_a_clear_error() {
    let mut columns = base_columns();
    for name in ["h1", "h2", "h3", "h4", "h5", "h6", "h7", "h8"] {
        columns.push((name, Cells::Maybe(vec![None, None])));
    }
    let error = open_error(columns, &[]);
    assert!(
        error.contains("16 hint types, at most 15") && error.contains("\"h8\""),
        "{error}"
    );
}

#[test]
fn missing_and_mistyped_columns_are_named() {
    let mut columns = base_columns();
    columns.remove(3);
    let error = open_error(columns, &[]);
    assert!(error.contains("column \"offset\": missing"), "{error}");
    let mut columns = base_columns();
    columns[1].1 = Cells::Long(vec![1, 2]);
    let error = open_error(columns, &[]);
    assert!(
        error.contains("column \"object\": has type INT64, expected text"),
        "{error}"
    );
}

#[test]
fn bad_cells_are_named_with_row_and_column() {
    let mut columns = base_columns();
    columns[2].1 = Cells::Text(vec!["read", "peek"]);
    let error = read_error(columns);
    assert!(
        error.contains("row 1, column \"operation\": \"peek\" is not one of read"),
        "{error}"
    );
    let mut columns = base_columns();
    columns[3].1 = Cells::Long(vec![0, -1]);
    let error = read_error(columns);
    assert!(
        error.contains("row 1, column \"offset\": -1 is negative"),
        "{error}"
    );
    let mut columns = base_columns();
    columns[4].1 = Cells::MaybeLong(vec![None, Some(1)]);
    let error = read_error(columns);
    assert!(
        error.contains("row 0, column \"time_ns\": is null"),
        "{error}"
    );
}

#[test]
fn metadata_is_checked() {
    let error = open_error(base_columns(), &[("thermocline.trace_version", "2")]);
    assert!(
        error.contains("version 2, this program reads up to 1"),
        "{error}"
    );
    let error = open_error(base_columns(), &[("thermocline.page_size", "0")]);
    assert!(error.contains("page_size"), "{error}");
    let error = open_error(
        base_columns(),
        &[("thermocline.start_unix_ns", "yesterday")],
    );
    assert!(error.contains("\"yesterday\""), "{error}");
}

#[test]
fn files_of_different_starts_share_one_clock_and_must_share_the_page_size() {
    let (first, second) = (scratch(), scratch());
    let start = |at| {
        [
            ("thermocline.start_unix_ns", at),
            ("thermocline.page_size", "8192"),
        ]
    };
    write(&first.path, &base_columns(), &start("1500"));
    write(&second.path, &base_columns(), &start("1000"));
    let files = [first.path.clone(), second.path.clone()];
    let reader = TraceReader::open_files(&files).unwrap();
    let times: Vec<u64> = reader.map(|record| record.unwrap().time_ns).collect();
    assert_eq!(times, [510, 520, 10, 20]);
    write(
        &second.path,
        &base_columns(),
        &[("thermocline.page_size", "4096")],
    );
    let error = TraceReader::open_files(&files).unwrap_err();
    assert!(
        matches!(
            error,
            ReadError::Mismatch {
                what: "page size",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn what_is_no_parquet_file_is_said_to_be_none() {
    let at = scratch();
    for content in ["", "PAR1", "PAR1PAR1", "time,client\n1,2\n"] {
        std::fs::write(&at.path, content).unwrap();
        let error = TraceReader::open(&at.path).unwrap_err();
        assert!(
            matches!(error, ReadError::Format { .. }),
            "{content:?}: {error}"
        );
    }
    assert!(matches!(
        TraceReader::open_files(&[]),
        Err(ReadError::NoFile)
    ));
}

/// A small but complete trace: several row groups, all kinds of columns.
fn sample() -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sample.parquet");
    let options = RecorderOptions {
        row_group_rows: 64,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::create(&path, options).unwrap();
    for number in 0..200u32 {
        let mut record = TraceRecord {
            time_ns: u64::from(number) * 977,
            client: number % 3,
            op: Op::ALL[number as usize % 4],
            served: Served::ALL[number as usize % 7],
            object: ObjectId(number % 5),
            offset: u64::from(number * number) * 8192,
            length: 8192,
            latency_ns: u64::from(number % 17) * 1000,
            hints: Default::default(),
        };
        record.hints.set(hint_type::ROLE, number % 4);
        record.hints.set(hint_type::OBJECT, number % 9);
        recorder.record(record);
    }
    recorder.finish().unwrap();
    std::fs::read(&path).unwrap()
}

/// Reads whatever is there to the end; all that matters is that it comes back.
fn read_all(bytes: &[u8]) -> Result<u64, ReadError> {
    let at = scratch();
    std::fs::write(&at.path, bytes).unwrap();
    summarise(TraceReader::open(&at.path)?, 10, None).map(|info| info.rows)
}

/// The same cases in every run.
fn fixed(cases: u32) -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(0x7ace);
    ProptestConfig {
        cases,
        rng_seed,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(fixed(300))]

    #[test]
    fn truncated_files_are_errors(cut in any::<prop::sample::Index>()) {
        let mut bytes = sample();
        bytes.truncate(cut.index(bytes.len()));
        prop_assert!(read_all(&bytes).is_err());
    }

    #[test]
    fn flipped_bits_never_panic(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u8), 1..8),
    ) {
        let mut bytes = sample();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        if let Ok(rows) = read_all(&bytes) {
            prop_assert!(rows <= 200 * 64, "{rows} rows out of 200");
        }
    }

    #[test]
    fn damaged_directories_never_panic(
        at in any::<prop::sample::Index>(),
        junk in prop::collection::vec(any::<u8>(), 1..16),
    ) {
        let mut bytes = sample();
        let end = bytes.len() - 8;
        let length = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap()) as usize;
        let start = end - length + at.index(length);
        for (place, byte) in bytes[start..end].iter_mut().zip(junk) {
            *place = byte;
        }
        let _ = read_all(&bytes);
    }
}

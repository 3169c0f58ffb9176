//! What is recorded is what is read.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use thermocline_core::{FileKind, HintSchema, HintSet, ObjectId, PageType, RequestType, Role};
use thermocline_core::{hint::HINT_TYPES_MAX, hint_type};
use thermocline_trace::{
    ImportOptions, Op, ReadError, RecordError, Recorder, RecorderOptions, Served, TraceReader,
    TraceRecord, WriteOptions, convert, open, part_path, partial_path, summarise,
};

/// xorshift64*: enough for test data, the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

fn random_record(random: &mut Random, time_ns: u64, custom: usize) -> TraceRecord {
    let mut hints = HintSet::UNKNOWN
        .with(hint_type::OBJECT, random.below(40) as u32)
        .with(hint_type::FILE_KIND, random.pick(FileKind::ALL).value())
        .with(hint_type::REQUEST, random.pick(RequestType::ALL).value())
        .with(hint_type::PAGE_TYPE, random.pick(PageType::ALL).value())
        .with(hint_type::ROLE, random.pick(Role::ALL).value());
    for position in hint_type::FIRST_CUSTOM..hint_type::FIRST_CUSTOM + custom {
        hints.set(position, random.below(5) as u32);
    }
    TraceRecord {
        time_ns,
        client: random.next() as u32,
        op: random.pick(Op::ALL),
        served: random.pick(Served::ALL),
        object: ObjectId(random.below(300) as u32),
        offset: random.next() >> random.below(40).max(1),
        length: random.below(1 << 34),
        latency_ns: random.next() >> random.below(60).max(1),
        hints,
    }
}

fn object_name(object: ObjectId) -> String {
    if object.0.is_multiple_of(7) {
        format!("#{}", object.0)
    } else {
        format!("base/5/{}", object.0)
    }
}

fn options() -> RecorderOptions {
    let schema = HintSchema::with_custom(["plan_node", "query"]).unwrap();
    RecorderOptions {
        schema,
        page_size: 16384,
        start_unix_ns: 1_700_000_000_000_000_000,
        // Nothing may be dropped: even one shard holds everything.
        queue_records: 8 * 100_000,
        row_group_rows: 10_000,
        ..RecorderOptions::default()
    }
}

/// Records `count` random records; returns them.
fn record_some(path: &Path, options: RecorderOptions, count: u64) -> Vec<TraceRecord> {
    let recorder = Recorder::create(path, options).unwrap();
    for object in (0..300).map(ObjectId).filter(|object| object.0 % 7 != 0) {
        recorder.name_object(object, "to be renamed");
        recorder.name_object(object, &object_name(object));
    }
    for value in 1..5 {
        recorder.name_hint_value(hint_type::FIRST_CUSTOM, value, &format!("node {value}"));
    }
    let mut random = Random(count + 1);
    let records: Vec<_> = (0..count)
        .map(|i| random_record(&mut random, i * 10, 2))
        .collect();
    records.iter().for_each(|&record| recorder.record(record));
    let summary = recorder.finish().unwrap();
    assert_eq!((summary.written, summary.dropped), (count, 0));
    records
}

/// Whether a record read stands for the record written, under the reader's own numbers.
fn assert_same(read: &TraceRecord, written: &TraceRecord, reader: &TraceReader) {
    let catalog = reader.catalog();
    let name = object_name(written.object);
    assert_eq!(catalog.object_name(read.object), Some(name.as_str()));
    for position in 0..HINT_TYPES_MAX {
        let value = written.hints.get(position);
        let expected = match position {
            _ if value == 0 => "unknown".to_string(),
            hint_type::FILE_KIND => written.hints.file_kind().name().to_string(),
            hint_type::REQUEST => written.hints.request().name().to_string(),
            hint_type::PAGE_TYPE => written.hints.page_type().name().to_string(),
            hint_type::ROLE => written.hints.role().name().to_string(),
            hint_type::FIRST_CUSTOM => format!("node {value}"),
            _ => format!("#{value}"),
        };
        let read = catalog.value_name(position, read.hints.get(position));
        assert_eq!(read.unwrap_or("unknown"), expected, "position {position}");
    }
    let same = TraceRecord {
        object: written.object,
        hints: written.hints,
        ..*read
    };
    assert_eq!(&same, written);
}

#[test]
fn a_hundred_thousand_records_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.parquet");
    let written = record_some(&path, options(), 100_000);
    let mut reader = TraceReader::open(&path).unwrap();
    assert_eq!(reader.meta().rows, Some(100_000));
    assert_eq!(reader.meta().page_size, Some(16384));
    assert_eq!(reader.meta().start_unix_ns, Some(1_700_000_000_000_000_000));
    assert_eq!(
        reader.schema().names()[hint_type::FIRST_CUSTOM..],
        ["plan_node", "query"]
    );
    for record in &written {
        let read = reader.next().unwrap().unwrap();
        assert_same(&read, record, &reader);
    }
    assert!(reader.next().is_none());
}

#[test]
fn a_long_trace_is_written_in_parts_and_read_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.parquet");
    let options = RecorderOptions {
        part_rows: 3_000,
        row_group_rows: 1_000,
        ..options()
    };
    let written = record_some(&path, options, 10_000);
    for part in 1..=4 {
        assert!(part_path(&path, part).exists(), "part {part}");
        assert!(
            !partial_path(&part_path(&path, part)).exists(),
            "part {part}"
        );
    }
    let mut reader = TraceReader::open(&path).unwrap();
    assert_eq!((reader.meta().rows, reader.meta().parts), (Some(10_000), 4));
    for record in &written {
        let read = reader.next().unwrap().unwrap();
        assert_same(&read, record, &reader);
    }
    assert!(reader.next().is_none());
    std::fs::remove_file(part_path(&path, 2)).unwrap();
    assert!(matches!(
        TraceReader::open(&path),
        Err(ReadError::MissingPart { .. })
    ));
    let files: Vec<PathBuf> = [1, 3, 4].map(|part| part_path(&path, part)).into();
    assert_eq!(TraceReader::open_files(&files).unwrap().count(), 7_000);
}

#[test]
fn a_part_is_closed_when_it_is_old_enough() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.parquet");
    let options = RecorderOptions {
        part_age: Duration::from_millis(20),
        ..options()
    };
    let recorder = Recorder::create(&path, options).unwrap();
    recorder.record(random_record(&mut Random(1), 5, 2));
    // Nothing else wakes the writer. No limit on how long it may take: it must happen.
    while !path.exists() {
        std::thread::sleep(Duration::from_millis(5));
    }
    // The recording goes on and the first part can be read already.
    assert_eq!(TraceReader::open(&path).unwrap().count(), 1);
    recorder.record(random_record(&mut Random(2), 6, 2));
    assert_eq!(recorder.finish().unwrap().written, 2);
    assert_eq!(TraceReader::open(&path).unwrap().count(), 2);
}

#[test]
fn a_process_that_is_killed_keeps_its_finished_parts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.parquet");
    let options = RecorderOptions {
        part_rows: 1_000,
        row_group_rows: 500,
        ..options()
    };
    let recorder = Recorder::create(
        &path,
        RecorderOptions {
            queue_records: 800,
            ..options
        },
    )
    .unwrap();
    let mut random = Random(9);
    for time in 0.. {
        recorder.record(random_record(&mut random, time, 2));
        if time % 100 == 0 && part_path(&path, 2).exists() {
            break;
        }
    }
    // As a kill does: nobody finishes, whatever was not in a finished part is gone.
    std::mem::forget(recorder);
    let reader = TraceReader::open(&path).unwrap();
    let (rows, parts) = (reader.meta().rows.unwrap(), reader.meta().parts as u64);
    assert!(
        parts >= 2 && rows == parts * 1_000,
        "{rows} rows in {parts} parts"
    );
    assert_eq!(reader.filter(Result::is_ok).count() as u64, rows);
}

#[test]
fn an_existing_trace_is_replaced_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.parquet");
    let parts = RecorderOptions {
        part_rows: 10,
        row_group_rows: 10,
        ..options()
    };
    record_some(&path, parts, 30);
    assert!(part_path(&path, 3).exists());
    let unfinished = partial_path(&part_path(&path, 4));
    std::fs::write(&unfinished, "left by a process that was killed").unwrap();
    let refused = Recorder::create(&path, options());
    assert!(matches!(refused, Err(RecordError::Exists { .. })));
    record_some(
        &path,
        RecorderOptions {
            overwrite: true,
            ..options()
        },
        5,
    );
    assert!(!unfinished.exists());
    let reader = TraceReader::open(&path).unwrap();
    assert_eq!((reader.meta().parts, reader.count()), (1, 5));
}

#[test]
fn a_recording_under_way_is_not_begun_anew() {
    let dir = tempfile::tempdir().unwrap();
    let [path, other] = ["trace.parquet", "other.ids"].map(|name| dir.path().join(name));
    std::fs::write(&other, "1\n2\n").unwrap();
    let recorder = Recorder::create(&path, options()).unwrap();
    for overwrite in [false, true] {
        let options = RecorderOptions {
            overwrite,
            ..options()
        };
        let refused = Recorder::create(&path, options).err().unwrap();
        assert!(refused.to_string().contains("being written"), "{refused}");
        let options = WriteOptions {
            overwrite,
            ..WriteOptions::default()
        };
        let source = open(&other, &ImportOptions::default()).unwrap();
        let refused = convert(source, &path, &options, |_, _| {}).unwrap_err();
        assert!(refused.to_string().contains("being written"), "{refused}");
    }
    recorder.finish().unwrap();
    assert_eq!(TraceReader::open(&path).unwrap().meta().rows, Some(0));
    // What was killed holds no lock.
    let left = dir.path().join("left.parquet");
    std::fs::write(partial_path(&left), "left by a process that was killed").unwrap();
    Recorder::create(&left, options())
        .unwrap()
        .finish()
        .unwrap();
    assert_eq!(TraceReader::open(&left).unwrap().meta().rows, Some(0));
}

#[test]
fn a_recorder_dropped_without_finishing_leaves_a_whole_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.parquet");
    let recorder = Recorder::create(&path, options()).unwrap();
    let clone = recorder.clone();
    drop(recorder);
    assert!(!path.exists(), "a handle is left");
    clone.record(random_record(
        &mut Random(1),
        clone.time_of(Instant::now()),
        0,
    ));
    drop(clone);
    assert_eq!(TraceReader::open(&path).unwrap().count(), 1);
}

#[test]
fn an_empty_recording_is_an_empty_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    record_some(&path, options(), 0);
    let info = summarise(TraceReader::open(&path).unwrap(), 10, None).unwrap();
    assert_eq!(
        (info.rows, info.duration_ns, info.distinct_pages),
        (0, 0, 0)
    );
    assert!(info.table().contains("rows      0 in 1 part(s)"));
}

#[test]
fn rows_of_a_group_are_in_order_of_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.parquet");
    let recorder = Recorder::create(&path, options()).unwrap();
    let mut random = Random(3);
    for time in [50, 10, 40, 20, 30] {
        recorder.record(random_record(&mut random, time, 0));
    }
    recorder.finish().unwrap();
    let times: Vec<u64> = TraceReader::open(&path)
        .unwrap()
        .map(|record| record.unwrap().time_ns)
        .collect();
    assert_eq!(times, [10, 20, 30, 40, 50]);
}

#[test]
fn a_directory_that_is_not_there_is_an_error_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let error = Recorder::create(dir.path().join("no/trace.parquet"), options()).unwrap_err();
    assert!(error.to_string().contains("no/trace.parquet"), "{error}");
}

#[test]
fn the_summary_counts_what_was_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace.parquet");
    let recorder = Recorder::create(&path, options()).unwrap();
    recorder.name_object(ObjectId(1), "accounts");
    let read = TraceRecord {
        time_ns: 1_000,
        client: 7,
        op: Op::Read,
        served: Served::Flash,
        object: ObjectId(1),
        offset: 16384,
        length: 16384,
        latency_ns: 500,
        hints: HintSet::UNKNOWN.with(hint_type::ROLE, Role::Backend.value()),
    };
    recorder.record(read);
    recorder.record(TraceRecord {
        time_ns: 2_000,
        served: Served::Base,
        length: 16385,
        ..read
    });
    recorder.record(TraceRecord {
        op: Op::Write,
        client: 8,
        hints: HintSet::UNKNOWN,
        ..read
    });
    recorder.record(TraceRecord {
        op: Op::Trim,
        offset: 0,
        length: 1 << 40,
        ..read
    });
    recorder.record(TraceRecord {
        op: Op::Sync,
        object: ObjectId(2),
        length: 0,
        ..read
    });
    recorder.finish().unwrap();

    let info = summarise(TraceReader::open(&path).unwrap(), 1, None).unwrap();
    assert_eq!(
        (info.rows, info.clients, info.distinct_pages, info.page_size),
        (5, 2, 2, 16384)
    );
    assert_eq!(info.duration_ns, 1_500);
    let operations: Vec<_> = info
        .operations
        .iter()
        .map(|op| (op.name, op.requests))
        .collect();
    assert_eq!(
        operations,
        [("read", 2), ("write", 1), ("trim", 1), ("sync", 1)]
    );
    let places: Vec<_> = info
        .reads_by_place
        .iter()
        .map(|at| (at.name, at.bytes))
        .collect();
    assert_eq!(places, [("flash", 16384), ("base", 16385)]);
    assert_eq!((info.objects_total, info.objects.len()), (2, 1));
    assert_eq!(
        (info.objects[0].name.as_str(), info.objects[0].reads),
        ("accounts", 2)
    );
    let role = info.hints.iter().find(|hint| hint.name == "role").unwrap();
    assert_eq!(role.values, [("backend".to_string(), 4)]);
    assert_eq!(role.distinct, 1);
    assert_eq!(info.operations[0].latency.p99_ns, 500);
    let halved = summarise(TraceReader::open(&path).unwrap(), 1, Some(8192)).unwrap();
    assert_eq!(halved.distinct_pages, 3);
}

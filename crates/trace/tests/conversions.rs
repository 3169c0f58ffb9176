//! Traces written in another format and read back.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use thermocline_core::{FileKind, HintSet, hint_type};
use thermocline_trace::{
    Addressing, Catalog, Format, ImportOptions, Op, Recorder, RecorderOptions, Served, Source,
    TraceRecord, WriteOptions, Written, convert, open, open_reader, pages_of, part_path,
    partial_path,
};

struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { dir }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

fn opened(path: &Path) -> Source {
    open(path, &ImportOptions::default()).unwrap()
}

fn converted(source: Source, to: &Path, options: &WriteOptions) -> Written {
    convert(source, to, options, |_, _| {}).unwrap()
}

/// A record with names in place of numbers.
type Named = (TraceRecord, String, Vec<String>);

fn all(path: &Path) -> Vec<Named> {
    let mut source = opened(path);
    let records: Vec<TraceRecord> = source.by_ref().map(Result::unwrap).collect();
    let catalog = source.into_catalog();
    records
        .iter()
        .map(|record| named(record, &catalog))
        .collect()
}

fn named(record: &TraceRecord, catalog: &Catalog) -> Named {
    let types = 0..catalog.schema().names().len();
    let text = |at| {
        catalog
            .value_name(at, record.hints.get(at))
            .unwrap()
            .to_string()
    };
    let hints = types.map(text).collect();
    let object = catalog.object_name(record.object).unwrap().to_string();
    // Numbers are each catalog's own.
    let mut plain = *record;
    plain.hints = HintSet::UNKNOWN;
    plain.object.0 = 0;
    (plain, object, hints)
}

/// A native trace with every operation, every place, hints of all kinds and odd names.
fn recorded(path: &Path) {
    let options = RecorderOptions {
        schema: thermocline_core::HintSchema::with_custom(["plan, node"]).unwrap(),
        page_size: 8192,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::create(path, options).unwrap();
    for (object, name) in [" a,b", "say \"x\"", "", "x;y\tz"].iter().enumerate() {
        recorder.name_object(thermocline_core::ObjectId(object as u32), name);
    }
    recorder.name_hint_value(thermocline_core::hint_type::FIRST_CUSTOM, 3, "hash;join");
    for number in 0..3000u64 {
        let op = Op::ALL[(number % 11 % 4) as usize];
        let mut hints = HintSet::UNKNOWN;
        hints.set(
            hint_type::FILE_KIND,
            (number % FileKind::ALL.len() as u64) as u32,
        );
        hints.set(
            thermocline_core::hint_type::FIRST_CUSTOM,
            (number % 5) as u32,
        );
        recorder.record(TraceRecord {
            time_ns: number * 1_234_567,
            client: (number % 7) as u32,
            op,
            served: Served::ALL[(number % 7) as usize],
            object: thermocline_core::ObjectId((number % 5) as u32),
            offset: if op == Op::Sync {
                0
            } else {
                number * 7919 % 1000 * 4096
            },
            length: if op == Op::Sync { 0 } else { number % 4 * 4096 },
            latency_ns: number,
            hints,
        });
    }
    recorder.finish().unwrap();
}

#[test]
fn native_to_csv_and_back_loses_nothing() {
    let scratch = Scratch::new();
    let (first, csv, last) = (
        scratch.at("a.parquet"),
        scratch.at("a.csv.zst"),
        scratch.at("b.parquet"),
    );
    recorded(&first);
    let written = converted(opened(&first), &csv, &WriteOptions::default());
    assert_eq!(
        (written.requests, written.rows, written.split),
        (3000, 3000, None)
    );
    assert_eq!(written.bytes, csv.metadata().unwrap().len());
    let original = all(&first);
    assert!(original.iter().any(|(_, object, _)| object == " a,b"));
    assert_eq!(all(&csv), original);
    converted(opened(&csv), &last, &WriteOptions::default());
    assert_eq!(all(&last), original);
    assert_eq!(
        opened(&last).schema().names()[thermocline_core::hint_type::FIRST_CUSTOM..],
        ["plan, node"]
    );
}

/// Pages in order, numbered by first appearance.
fn sequence(pages: impl Iterator<Item = (u32, u128)>) -> Vec<usize> {
    let mut seen = std::collections::HashMap::new();
    let mut order = Vec::new();
    for page in pages {
        let next = seen.len();
        order.push(*seen.entry(page).or_insert(next));
    }
    order
}

fn pages(path: &Path, page_size: u32) -> Vec<usize> {
    let records = opened(path).map(Result::unwrap);
    let moved = records.filter(|r| matches!(r.op, Op::Read | Op::Write));
    sequence(moved.flat_map(move |record| {
        pages_of(&record, page_size).map(move |page| (record.object.0, page))
    }))
}

#[test]
fn native_to_oracle_general_keeps_the_pages() {
    let scratch = Scratch::new();
    let (first, oracle) = (scratch.at("a.parquet"), scratch.at("a.oracleGeneral.zst"));
    recorded(&first);
    let written = converted(opened(&first), &oracle, &WriteOptions::default());
    let expected = pages(&first, 8192);
    assert_eq!(
        (written.split, written.rows),
        (Some(8192), expected.len() as u64)
    );
    assert!(written.left_out > 0 && written.far_pages == 0);
    assert_eq!(pages(&oracle, 1), expected);

    let small = WriteOptions {
        page_size: Some(4096),
        overwrite: true,
        ..WriteOptions::default()
    };
    let written = converted(opened(&first), &oracle, &small);
    assert_eq!(written.split, Some(4096));
    assert_eq!(pages(&oracle, 1), pages(&first, 4096));
    assert_ne!(pages(&oracle, 1), expected);
}

#[test]
fn split_csv_has_one_line_per_page_and_numbers_them() {
    let scratch = Scratch::new();
    let (first, csv) = (scratch.at("a.parquet"), scratch.at("a.csv"));
    recorded(&first);
    let split = WriteOptions {
        split: true,
        ..WriteOptions::default()
    };
    let written = converted(opened(&first), &csv, &split);
    assert_eq!(pages(&csv, 8192), pages(&first, 8192));
    let text = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(text.lines().count() as u64, written.rows + 1);
    assert!(
        text.lines()
            .next()
            .unwrap()
            .ends_with(",\"plan, node\",page_id")
    );
    let ids = text.lines().skip(1).map(|line| {
        let id: u128 = line.rsplit(',').next().unwrap().parse().unwrap();
        (0, id)
    });
    assert_eq!(sequence(ids), pages(&first, 8192));
}

/// The next access of every record, the plain way.
fn next_accesses(ids: &[u64]) -> Vec<i64> {
    let later = |at: usize| ids[at + 1..].iter().position(|id| *id == ids[at]);
    let number = |at: usize| later(at).map_or(-1, |steps| (at + 1 + steps + 1) as i64);
    (0..ids.len()).map(number).collect()
}

#[test]
fn the_next_access_is_right_across_chunks() {
    let scratch = Scratch::new();
    let oracle = scratch.at("a.oracleGeneral");
    // More than two chunks of records; hash-sized ids keep their value.
    let ids: Vec<u64> = (0..40_000u64)
        .map(|n| {
            if n % 3 == 0 {
                u64::MAX - n % 101
            } else {
                n * n % 9973
            }
        })
        .collect();
    let text: String = ids.iter().map(|id| format!("{id}\n")).collect();
    let source = open_reader("t.ids", Cursor::new(text), &ImportOptions::default()).unwrap();
    let written = converted(source, &oracle, &WriteOptions::default());
    assert_eq!(
        (written.rows, written.far_pages, written.bytes),
        (40_000, 0, 40_000 * 24)
    );
    let bytes = std::fs::read(&oracle).unwrap();
    let field = |record: &[u8], at| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
    let found: Vec<u64> = bytes.chunks(24).map(|record| field(record, 4)).collect();
    assert_eq!(found, ids);
    let next: Vec<i64> = bytes
        .chunks(24)
        .map(|record| field(record, 16) as i64)
        .collect();
    assert_eq!(next[..2000], next_accesses(&ids)[..2000]);
    assert_eq!(next[39_000..], next_accesses(&ids)[39_000..]);
}

#[test]
fn ids_survive_every_format() {
    let scratch = Scratch::new();
    let text = "18446744073709551615\n7\n9223372036854775808\n7\n";
    let mut source = open_reader("t", Cursor::new(text), &ImportOptions::default()).unwrap();
    for name in ["a.parquet", "a.csv", "a.oracleGeneral"] {
        let path = scratch.at(name);
        converted(source, &path, &WriteOptions::default());
        let read = opened(&path);
        assert_eq!(read.meta().addressing, Addressing::Pages, "{name}");
        let ids: Vec<u64> = read.map(|record| record.unwrap().offset).collect();
        assert_eq!(ids, [u64::MAX, 7, 1 << 63, 7], "{name}");
        source = opened(&path);
    }
}

#[test]
fn far_pages_are_counted() {
    let scratch = Scratch::new();
    let text = "object,page\na,1\nb,1099511627776\nb,1\na,1\n";
    let source = open_reader("t", Cursor::new(text), &ImportOptions::default()).unwrap();
    let path = scratch.at("a.oracleGeneral");
    let written = converted(source, &path, &WriteOptions::default());
    assert_eq!(written.far_pages, 1);
    assert_eq!(pages(&path, 1), [0, 1, 2, 0]);
}

#[test]
fn what_cannot_be_written_is_refused_and_leaves_nothing() {
    let scratch = Scratch::new();
    let source = |text: &'static str| {
        open_reader("t", Cursor::new(text), &ImportOptions::default()).unwrap()
    };
    let failed = |text, name: &str, options: &WriteOptions| {
        let error = convert(source(text), &scratch.at(name), options, |_, _| {});
        error.unwrap_err().to_string()
    };
    let plain = WriteOptions::default();
    assert!(failed("1\n", "a.xyz", &plain).contains("cannot tell which format"));
    assert!(failed("1\n", "a.lis", &plain).contains("lis can be read but not written"));
    let late = "time_ns,page\n4294967296000000000,1\n";
    let text = failed(late, "a.oracleGeneral", &plain);
    assert!(
        text.contains("request 0 cannot be written: its time, 4294967296 s"),
        "{text}"
    );
    let huge = "offset,length\n0,0\n0,1000000000000000000\n";
    let text = failed(huge, "a.oracleGeneral", &plain);
    assert!(
        text.contains("request 1 cannot be written: it touches 244140625000000 pages"),
        "{text}"
    );
    for (text, part) in [
        (
            "offset,length\n1,2\n9223372036854775808,1\n",
            "its offset, 9223372036854775808,",
        ),
        (
            "offset,length\n1,2\n0,9223372036854775808\n",
            "its length, 9223372036854775808,",
        ),
        (
            "time_ns,page\n0,2\n18446744073709551615,1\n",
            "its time, 18446744073709551615 ns,",
        ),
    ] {
        let error = failed(text, "a.parquet", &plain);
        assert!(error.contains("request 1 cannot be written: "), "{error}");
        assert!(error.contains(part) && error.contains("csv"), "{error}");
    }
    assert!(failed("1\n2\nx\n", "a.csv", &plain).contains("t: line 3"));
    assert_eq!(std::fs::read_dir(scratch.dir.path()).unwrap().count(), 0);

    let path = scratch.at("a.csv");
    converted(source("1\n"), &path, &plain);
    assert!(failed("2\n", "a.csv", &plain).contains("a trace is there already"));
    assert_eq!(opened(&path).next().unwrap().unwrap().offset, 1);
    assert_eq!(std::fs::read_dir(scratch.dir.path()).unwrap().count(), 1);
}

/// Writes a trace of these pages to `path`; the error as text.
fn put(pages: &'static str, path: &Path, overwrite: bool) -> Result<Written, String> {
    let source = open_reader("t", Cursor::new(pages), &ImportOptions::default()).unwrap();
    let options = WriteOptions {
        format: Format::of_name(path).or(Some(Format::Csv)),
        overwrite,
        ..WriteOptions::default()
    };
    convert(source, path, &options, |_, _| {}).map_err(|error| error.to_string())
}

#[test]
fn only_regular_files_are_replaced_and_links_stay() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    let scratch = Scratch::new();
    let pipe = scratch.at("pipe.csv");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for overwrite in [false, true] {
        let text = put("1\n", &pipe, overwrite).unwrap_err();
        assert!(text.contains("pipe.csv: it is no regular file"), "{text}");
    }
    assert!(pipe.metadata().unwrap().file_type().is_fifo());

    let (real, link) = (scratch.at("real.csv"), scratch.at("link.csv"));
    put("1\n", &real, false).unwrap();
    symlink("real.csv", &link).unwrap();
    assert!(
        put("2\n", &link, false)
            .unwrap_err()
            .contains("there already")
    );
    let bytes = put("2\n3\n", &link, true).unwrap().bytes;
    assert!(link.is_symlink() && !real.is_symlink());
    assert_eq!(real.metadata().unwrap().len(), bytes);
    assert_eq!(opened(&real).count(), 2);

    let dangling = scratch.at("dangling.csv");
    symlink("nowhere.csv", &dangling).unwrap();
    for overwrite in [false, true] {
        let text = put("1\n", &dangling, overwrite).unwrap_err();
        assert!(text.contains("a link to what is not there"), "{text}");
    }
    assert!(dangling.is_symlink() && !scratch.at("nowhere.csv").exists());
}

#[test]
fn a_new_trace_has_no_parts_of_an_old_one() {
    let scratch = Scratch::new();
    let path = scratch.at("t.parquet");
    let later = part_path(&path, 2);
    put("7\n8\n", &later, false).unwrap();
    // Part 1 is gone, what is left would be read as the rest of the new trace.
    let text = put("1\n", &path, false).unwrap_err();
    assert!(text.contains("t.0002.parquet: a trace is there"), "{text}");
    assert!(!path.exists() && later.exists());
    put("1\n", &path, true).unwrap();
    assert_eq!(opened(&path).count(), 1);
    assert!(!later.exists());

    for number in 2..5 {
        let source = open_reader("t", Cursor::new("9\n"), &ImportOptions::default()).unwrap();
        let aside = scratch.at("aside.parquet");
        converted(source, &aside, &WriteOptions::default());
        std::fs::rename(aside, part_path(&path, number)).unwrap();
    }
    assert_eq!(opened(&path).meta().parts, 4);
    // Other formats have no parts.
    put("5\n", &scratch.at("t.csv"), false).unwrap();
    assert_eq!(opened(&path).meta().parts, 4);
    put("1\n2\n", &path, true).unwrap();
    let new = opened(&path);
    assert_eq!((new.meta().parts, new.count()), (1, 2));
}

#[test]
fn a_trace_that_is_being_recorded_is_not_replaced() {
    let scratch = Scratch::new();
    let path = scratch.at("t.parquet");
    put("1\n", &path, false).unwrap();
    let recorded = std::fs::File::create(partial_path(&part_path(&path, 2))).unwrap();
    recorded.try_lock().unwrap();
    let text = put("2\n3\n", &path, true).unwrap_err();
    assert!(
        text.contains("t.0002.parquet.partial: it is being"),
        "{text}"
    );
    assert_eq!(opened(&path).count(), 1);
    drop(recorded);
    put("2\n3\n", &path, true).unwrap();
}

#[test]
fn hint_types_that_csv_takes_for_page_numbers_are_refused_there() {
    let scratch = Scratch::new();
    for name in ["page", "pages", "page_id"] {
        let options = ImportOptions {
            columns: Some(format!("offset=o,length=l,hint:{name}=h").parse().unwrap()),
            ..ImportOptions::default()
        };
        let source = || open_reader("t", Cursor::new("o,l,h\n0,512,x\n"), &options).unwrap();
        let native = scratch.at(&format!("{name}.parquet"));
        converted(source(), &native, &WriteOptions::default());
        assert_eq!(all(&native)[0].2.last().unwrap(), "x");
        let csv = scratch.at("t.csv");
        let refused = convert(source(), &csv, &WriteOptions::default(), |_, _| {});
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(&format!("hint type {name:?}")), "{text}");
        assert!(!csv.exists());
    }
}

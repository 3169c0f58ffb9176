//! Traces of other programs: what the decoders read, and what they say about damage.

use std::io::Cursor;

use thermocline_core::hint_type::FIRST_CUSTOM;
use thermocline_trace::{
    Addressing, CsvColumns, Format, ImportOptions, Op, ReadError, Source, TraceRecord, open,
    open_reader,
};

fn with(format: Format) -> ImportOptions {
    ImportOptions {
        format: Some(format),
        ..ImportOptions::default()
    }
}

fn source(format: Format, bytes: impl Into<Vec<u8>>) -> Result<Source, ReadError> {
    open_reader("t", Cursor::new(bytes.into()), &with(format))
}

fn read(format: Format, bytes: impl Into<Vec<u8>>) -> Vec<TraceRecord> {
    let source = source(format, bytes).unwrap();
    source.collect::<Result<_, _>>().unwrap()
}

/// The error that reading ends with, as text.
fn error(format: Format, bytes: impl Into<Vec<u8>>) -> String {
    let failed = match source(format, bytes) {
        Ok(source) => source.collect::<Result<Vec<_>, _>>(),
        Err(error) => Err(error),
    };
    failed.unwrap_err().to_string()
}

/// Object number, offset, length.
fn places(records: &[TraceRecord]) -> Vec<(u32, u64, u64)> {
    let places = records.iter().map(|r| (r.object.0, r.offset, r.length));
    places.collect()
}

fn oracle(time: u32, id: u64, next: i64) -> Vec<u8> {
    let mut record = time.to_le_bytes().to_vec();
    record.extend(id.to_le_bytes());
    record.extend(512u32.to_le_bytes());
    record.extend(next.to_le_bytes());
    record
}

#[test]
fn oracle_general_keeps_all_bits_of_an_id() {
    let bytes = [
        oracle(100, u64::MAX, 3),
        oracle(102, 7, -1),
        oracle(101, u64::MAX, -1),
    ];
    let source = source(Format::OracleGeneral, bytes.concat()).unwrap();
    assert_eq!(source.meta().addressing, Addressing::Pages);
    assert_eq!(source.meta().page_size, Some(1));
    assert_eq!(source.format(), Format::OracleGeneral);
    let records: Vec<TraceRecord> = source.map(Result::unwrap).collect();
    assert_eq!(
        places(&records),
        [(0, u64::MAX, 1), (0, 7, 1), (0, u64::MAX, 1)]
    );
    let times: Vec<u64> = records.iter().map(|r| r.time_ns).collect();
    assert_eq!(times, [0, 2_000_000_000, 1_000_000_000]);
    assert!(records.iter().all(|r| r.op == Op::Read));
}

#[test]
fn damaged_oracle_general() {
    let mut bytes = [oracle(0, 1, -1), oracle(0, 2, -1)].concat();
    bytes.truncate(47);
    let text = error(Format::OracleGeneral, bytes);
    assert_eq!(
        text,
        "t: record 1 (byte 24): the file ends after 23 of its 24 bytes"
    );
    let text = error(Format::OracleGeneral, oracle(0, 1, -2));
    assert!(text.contains("record 0 (byte 0): next access -2"), "{text}");
    assert_eq!(error(Format::OracleGeneral, ""), "t: no request in it");
}

#[test]
fn a_file_is_found_out_and_decompressed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.oracleGeneral.zst");
    let bytes = [oracle(0, 5, 2), oracle(1, 5, -1)].concat();
    std::fs::write(&path, zstd::encode_all(bytes.as_slice(), 1).unwrap()).unwrap();
    let mut source = open(&path, &ImportOptions::default()).unwrap();
    assert_eq!(source.by_ref().count(), 2);
    let size = path.metadata().unwrap().len();
    assert_eq!((source.bytes_read(), source.bytes_total()), (size, size));
}

#[test]
fn lis_counts_in_blocks_of_512_bytes() {
    let records = read(Format::Lis, "230027 8 0 0\r\n1842745 64 0 1\n\n");
    let expected = [(0, 230_027 * 512, 4096), (0, 1_842_745 * 512, 32768)];
    assert_eq!(places(&records), expected);
    let options = ImportOptions {
        unit: Some(4096),
        ..with(Format::Lis)
    };
    let source = open_reader("t", Cursor::new("3 2 0 0"), &options).unwrap();
    assert_eq!(source.meta().page_size, Some(4096));
    let records: Vec<TraceRecord> = source.map(Result::unwrap).collect();
    assert_eq!(places(&records), [(0, 12288, 8192)]);
}

#[test]
fn damaged_lis() {
    for (text, expected) in [
        ("1 1 0 0\n-4 1 0 0\n", "t: line 2: \"-4\" is negative"),
        ("1 x 0 0", "t: line 1: \"x\" is not a whole number"),
        ("1 1 0", "t: line 1: the fourth number is missing"),
        ("1 1 0 0 0", "t: line 1: more than four numbers"),
        ("1 0 0 0", "t: line 1: a request of 0 blocks"),
        (
            "18446744073709551615 1 0 0",
            "times 512 does not fit 64 bits",
        ),
        ("", "t: no request in it"),
        ("\n\n", "t: no request in it"),
    ] {
        let error = error(Format::Lis, text);
        assert!(error.contains(expected), "{text:?}: {error}");
    }
}

#[test]
fn ids_one_per_line() {
    let records = read(Format::Ids, "*\n10 \n18446744073709551615\n\n*\n10\n");
    assert_eq!(places(&records), [(0, 10, 1), (0, u64::MAX, 1), (0, 10, 1)]);
    let text = error(Format::Ids, "1\n2\nthree\n");
    assert_eq!(text, "t: line 3: \"three\" is not a whole number");
    assert!(error(Format::Ids, vec![b'1'; 100_000]).contains("line 1: longer than"));
}

fn vscsi1(command: u16, version: u16, block: u64, length: u32, us: u64) -> Vec<u8> {
    let mut record = 7u32.to_le_bytes().to_vec();
    record.extend(length.to_le_bytes());
    record.extend(1u32.to_le_bytes());
    record.extend(command.to_le_bytes());
    record.extend(version.to_le_bytes());
    record.extend(block.to_le_bytes());
    record.extend(us.to_le_bytes());
    record
}

fn vscsi2(command: u16, block: u64, length: u32, us: u64, response: u64) -> Vec<u8> {
    let mut record = command.to_le_bytes().to_vec();
    record.extend(0x200u16.to_le_bytes());
    record.extend(7u32.to_le_bytes());
    record.extend(length.to_le_bytes());
    record.extend(1u32.to_le_bytes());
    for field in [block, us, response] {
        record.extend(field.to_le_bytes());
    }
    record
}

#[test]
fn vscsi_of_both_versions() {
    let bytes = [
        vscsi1(0x28, 0x100, 8, 4096, 1_000_000),
        vscsi1(0x12, 0x100, 0, 96, 1_000_001),
        vscsi1(0x8a, 0x100, 16, 512, 1_000_005),
    ];
    let mut source = source(Format::Vscsi, bytes.concat()).unwrap();
    let records: Vec<TraceRecord> = source.by_ref().map(Result::unwrap).collect();
    assert_eq!(places(&records), [(0, 4096, 4096), (0, 8192, 512)]);
    assert_eq!((records[1].op, records[1].time_ns), (Op::Write, 5000));
    assert_eq!(
        (
            source.skipped(),
            source.catalog().object_name(records[0].object)
        ),
        (1, Some("disk"))
    );
    let bytes = [vscsi2(0x28, 1, 512, 50, 9), vscsi2(0x2a, 2, 1024, 60, 10)].concat();
    let records = read(Format::Vscsi, bytes);
    assert_eq!(places(&records), [(0, 512, 512), (0, 1024, 1024)]);
    assert_eq!(
        (records[1].time_ns, records[1].latency_ns),
        (10_000, 10_000)
    );
}

#[test]
fn damaged_vscsi() {
    let fine = vscsi1(0x28, 0x100, 8, 4096, 0);
    let cut = [fine.clone(), fine[..10].to_vec()].concat();
    let other = [fine.clone(), vscsi1(0x28, 0x200, 8, 4096, 0)].concat();
    let far = vscsi1(0x28, 0x100, u64::MAX / 512, 4096, 0);
    let late = [fine, vscsi1(0x28, 0x100, 8, 4096, u64::MAX)].concat();
    for (bytes, expected) in [
        (
            cut,
            "t: record 1 (byte 32): the file ends after 10 of its 32 bytes",
        ),
        (
            other,
            "record 1 (byte 32): version field 0x0200 in a trace of version 1",
        ),
        (far, "is beyond 2^64 bytes"),
        (late, "does not fit"),
        (
            vec![0; 64],
            "record 0 (byte 0): neither version 1 nor version 2",
        ),
        (vec![1, 2], "neither version 1 nor version 2"),
        (vec![], "t: no request in it"),
        (vscsi1(0x12, 0x100, 0, 96, 0), "t: no request in it"),
    ] {
        let error = error(Format::Vscsi, bytes);
        assert!(error.contains(expected), "{expected:?}: {error}");
    }
}

#[test]
fn what_cannot_be_told_apart_is_asked_for() {
    let unknown = open_reader(
        "t.trace",
        Cursor::new(vec![0u8; 100]),
        &ImportOptions::default(),
    );
    assert!(matches!(unknown, Err(ReadError::UnknownFormat { .. })));
    let empty = open_reader("t.trace", Cursor::new(""), &ImportOptions::default());
    assert!(matches!(empty, Err(ReadError::Empty { .. })));
    let missing = open("/no/such/trace.csv", &ImportOptions::default());
    assert!(matches!(missing, Err(ReadError::File { .. })));
}

fn csv(columns: &str, unit: Option<u32>, text: &str) -> Result<Source, ReadError> {
    let options = ImportOptions {
        columns: (!columns.is_empty()).then(|| columns.parse::<CsvColumns>().unwrap()),
        unit,
        ..with(Format::Csv)
    };
    open_reader("t", Cursor::new(text.to_string()), &options)
}

const POSTGRES: &str = "\
time_us,op,rel,relfilenode,fork,kind,block,nblocks,role,access
52229,R,wal,1,main,wal,0,1,startup,bg
64309,R,pg_database,1262,main,heap,3,1,autovacuum_launcher,bg
64310.5,w,pg_database,1262,fsm,heap,4294967295,2,,oltp
";

#[test]
fn csv_with_a_mapping() {
    let columns = "time=time_us,op=op,object=relfilenode+fork,page=block,pages=nblocks,\
                   hint:role,hint:path=access,skip:kind=wal";
    let mut source = csv(columns, Some(8192), POSTGRES).unwrap();
    let records: Vec<TraceRecord> = source.by_ref().map(Result::unwrap).collect();
    assert_eq!(source.skipped(), 1);
    assert_eq!(source.meta().addressing, Addressing::Bytes);
    assert_eq!(source.meta().page_size, Some(8192));
    let expected = [(0, 3 * 8192, 8192), (1, 4_294_967_295 * 8192, 16384)];
    assert_eq!(places(&records), expected);
    assert_eq!(
        (records[0].time_ns, records[1].time_ns),
        (64_309_000, 64_310_500)
    );
    assert_eq!((records[0].op, records[1].op), (Op::Read, Op::Write));
    let catalog = source.catalog();
    assert_eq!(catalog.object_name(records[1].object), Some("1262/fsm"));
    assert_eq!(catalog.schema().names()[FIRST_CUSTOM..], ["path"]);
    let name = |record: &TraceRecord, at| catalog.value_name(at, record.hints.get(at));
    assert_eq!(name(&records[0], 4), Some("autovacuum_launcher"));
    assert_eq!(name(&records[1], FIRST_CUSTOM), Some("oltp"));
    assert_eq!(records[1].hints.get(4), 0);
}

#[test]
fn csv_rows_to_skip_need_no_sense_in_other_columns() {
    let text = "op,page,kind\n\
                erase,none,bad\n\
                R,7,good\n\
                R,99999999999999999999999,bad\n\
                ,,bad,and,more\n\
                x,y,bad,\"cut\n";
    let mut source = csv("op=op,page=page,skip:kind=bad", None, text).unwrap();
    let records: Vec<TraceRecord> = source.by_ref().map(Result::unwrap).collect();
    assert_eq!(places(&records), [(0, 7, 1)]);
    assert_eq!(source.skipped(), 4);
    // The first row of a file without a header may be such a row, of another width.
    let mut source = csv("page=#2,skip:#1=bad", None, "bad;x;y;z\nok;3\n").unwrap();
    assert_eq!(source.by_ref().map(Result::unwrap).count(), 1);
    assert_eq!(source.skipped(), 1);
    // What nobody told to skip is still an error.
    let error = csv("op=op,page=page,skip:kind=other", None, text).unwrap_err();
    assert!(error.to_string().contains("line 2"), "{error}");
}

#[test]
fn csv_comments_above_the_header_are_no_header() {
    let comment = "# taken on db1, with pg_buffercache; see notes\n\n# second\n";
    for rows in ["op;page\nR;7\n", "op,page\nR,7\n"] {
        let source = csv("op=op,page=page", None, &format!("{comment}{rows}")).unwrap();
        let records: Vec<TraceRecord> = source.map(Result::unwrap).collect();
        assert_eq!(places(&records), [(0, 7, 1)], "{rows}");
    }
    let source = csv("op=#1,page=#2", None, &format!("\u{feff}{comment}R;7\n")).unwrap();
    assert_eq!(source.map(Result::unwrap).count(), 1);
    // Below, a row may begin with an object of any name.
    let source = csv("object=o,page=p", None, "o,p\n#temporary,7\n").unwrap();
    assert_eq!(source.map(Result::unwrap).count(), 1);
    let named = format!("{comment}page,object\n1,a\n");
    let detected = open_reader("t", Cursor::new(named), &ImportOptions::default()).unwrap();
    assert_eq!(detected.format(), Format::Csv);
    assert_eq!(detected.map(Result::unwrap).count(), 1);
}

#[test]
fn csv_pages_without_a_count_are_one_page_each() {
    let of = |columns, rows: &str| {
        let source = csv(columns, Some(8192), rows).unwrap();
        source.map(Result::unwrap).collect::<Vec<_>>()
    };
    let alone = of("op=op,page=page", "op,page\nw,3\nr,0\n");
    assert_eq!(places(&alone), [(0, 3 * 8192, 8192), (0, 0, 8192)]);
    let counted = of(
        "op=op,page=page,pages=pages",
        "op,page,pages\nw,3,1\nr,0,1\n",
    );
    assert_eq!(alone, counted);
}

#[test]
fn csv_syncs_without_a_count_are_about_no_page_and_the_last_page_is_one() {
    let of = |unit, rows: &str| {
        let source = csv("op=op,page=page", unit, rows).unwrap();
        let records: Vec<_> = source.map(Result::unwrap).collect();
        records.iter().map(|r| (r.op, r.length)).collect::<Vec<_>>()
    };
    let rows = "op,page\nsync,5\nr,4503599627370495\n";
    assert_eq!(of(Some(4096), rows), [(Op::Sync, 0), (Op::Read, 4096)]);
    assert_eq!(of(None, rows), [(Op::Sync, 0), (Op::Read, 1)]);
    let text = "offset,length\n18446744073709547520,4097\n";
    let error = csv("", None, text).unwrap_err().to_string();
    assert!(error.contains("the request ends beyond 2^64"), "{error}");
}

#[test]
fn csv_in_pages_of_unknown_size() {
    let source = csv(
        "page=#2,hint:kind=#1",
        None,
        "a;18446744073709551615\nb;7\n",
    )
    .unwrap();
    assert_eq!(source.meta().addressing, Addressing::Pages);
    let records: Vec<TraceRecord> = source.map(Result::unwrap).collect();
    assert_eq!(places(&records), [(0, u64::MAX, 1), (0, 7, 1)]);
}

#[test]
fn csv_with_native_names_needs_no_mapping() {
    let text = "\u{feff}object\toffset\tlength\toperation\tplan\tserved\n\
                \"t/1\"\t8192\t4096\twrite\tscan\tflash\n";
    let mut source = open_reader("t.tsv", Cursor::new(text), &ImportOptions::default()).unwrap();
    let record = source.next().unwrap().unwrap();
    assert_eq!(places(&[record]), [(0, 8192, 4096)]);
    assert_eq!((record.op, record.served.name()), (Op::Write, "flash"));
    assert_eq!(source.catalog().object_name(record.object), Some("t/1"));
    assert_eq!(
        {
            source
                .catalog()
                .value_name(FIRST_CUSTOM, record.hints.get(FIRST_CUSTOM))
        },
        Some("scan")
    );
    assert!(source.next().is_none());
}

#[test]
fn damaged_csv() {
    for (text, expected) in [
        ("time_ns,page\n1,2\n1\n", "t: line 3: 1 columns, expected 2"),
        (
            "page\n-1\n",
            "t: line 2: column \"page\": \"-1\" is negative",
        ),
        (
            "page,client\n1,4294967296\n",
            "line 2: column \"client\": \"4294967296\" is too large",
        ),
        (
            "page,operation\n1,erase\n",
            "\"erase\" is not read, write, trim or sync",
        ),
        ("page,served\n1,moon\n", "\"moon\" is no place"),
        ("page,role\n1,\"x\n", "line 2: cell 2 has no closing quote"),
        (
            "page,pages\n18446744073709551615,2\n",
            "line 2: the request ends beyond",
        ),
        (
            "when,block\n1,2\n",
            "t: column \"offset\": neither this nor page is there: say which \
          it is; the columns are when, block",
        ),
        ("offset,page\n1,2\n", "column \"page\": given beside offset"),
        ("page,page\n1,2\n", "column \"page\": there twice"),
        (
            "page,a,b,c,d,e,f,g,h\n",
            "16 hint types, at most 15 are possible; first one too many: \"h\"",
        ),
        ("page\n", "t: no request in it"),
        ("", "t: no request in it"),
    ] {
        let failed = csv("", None, text).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let error = failed.unwrap_err().to_string();
        assert!(error.contains(expected), "{text:?}: {error}");
    }
    let error = csv("page=blk", None, "a,b\n1,2\n").unwrap_err().to_string();
    assert_eq!(error, "t: column \"blk\": missing; the columns are a, b");
    let error = csv("page=#3", None, "1,2\n").unwrap_err().to_string();
    assert_eq!(error, "t: line 1: column \"#3\" is missing");
    let far = csv("page=page", Some(8192), "page\n18446744073709551615\n");
    assert!(
        far.unwrap_err()
            .to_string()
            .contains("times 8192 does not fit 64 bits")
    );
}

const MSR: &str = "\
128166372003061629,hm,1,Read,383496192,32768,413
128166372016382155,HM,0,write,2822144,4096,79
";

#[test]
fn msr_cambridge() {
    let mut source = source(Format::Msr, MSR).unwrap();
    // 2007-02-22 17:00:00.306 UTC.
    assert_eq!(source.meta().start_unix_ns, Some(1_172_163_600_306_162_900));
    let records: Vec<TraceRecord> = source.by_ref().map(Result::unwrap).collect();
    assert_eq!(
        places(&records),
        [(0, 383_496_192, 32768), (1, 2_822_144, 4096)]
    );
    assert_eq!((records[0].op, records[1].op), (Op::Read, Op::Write));
    assert_eq!((records[0].time_ns, records[1].time_ns), (0, 1_332_052_600));
    assert_eq!(records[0].latency_ns, 41_300);
    let name = |record: &TraceRecord| source.catalog().object_name(record.object);
    assert_eq!(
        (name(&records[0]), name(&records[1])),
        (Some("hm.1"), Some("HM.0"))
    );
}

#[test]
fn damaged_msr() {
    let line = "128166372003061629,hm,1,Read,383496192,32768,413";
    for (from, to, expected) in [
        (
            "Read",
            "Erase",
            "t: line 2: type: \"Erase\" is not Read or Write",
        ),
        (",413", "", "t: line 2: 6 columns, expected 7"),
        ("32768", "-5", "t: line 2: size: \"-5\" is negative"),
        (
            "383496192",
            "0x1f",
            "t: line 2: offset: \"0x1f\" is not a whole number",
        ),
        (
            "383496192",
            "18446744073709551615",
            "t: line 2: the request ends beyond 2^64 bytes",
        ),
        ("413", "18446744073709551615", "times 100 does not fit"),
        (",1,", ",,", "disk number: a number is missing"),
    ] {
        let error = error(Format::Msr, format!("{line}\n{}\n", line.replace(from, to)));
        assert!(error.contains(expected), "{to:?}: {error}");
    }
    let latin = b"1,h\xe9,1,Read,0,512,1".to_vec();
    assert!(error(Format::Msr, latin).contains("line 1: \"h\u{fffd}\" is not UTF-8 text"));
    assert_eq!(error(Format::Msr, ""), "t: no request in it");
}

const BLKPARSE: &str = "
  8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]
  8,0    3        2     0.000001829   697  P   N [kjournald]
  8,0    3        3     0.000002197   697  Q   W 223490 + 8 [kjournald]
  8,16   0        4     1.500000000  4162  Q  RA 100 + 16 [cat]
  8,0    1        5     2.000000001   697  Q FWS [kjournald]
  8,0    1        5     2.000000002   697  Q FWS 0 + 0 [kjournald]
  8,0    1        5     2.000000003   697  Q FWFS 1008 + 8 [jbd2/sda1-8]
  8,0    1        6     2.100000000   697  Q  DS 64 + 128 [fstrim]
  8,0    1        7     2.200000000   697  Q   N 0 + 0 [x]
  8,0    1        0     2.300000000     0  m   N cfq697 slice expired t=0
CPU0 (8,0):
 Reads Queued:           1,        8KiB
";

#[test]
fn blkparse_text() {
    let mut source = source(Format::Blkparse, BLKPARSE).unwrap();
    let records: Vec<TraceRecord> = source.by_ref().map(Result::unwrap).collect();
    let expected = [
        (0, 223_490 * 512, 4096),
        (1, 51_200, 8192),
        (0, 0, 0),
        (0, 0, 0),
        (0, 1008 * 512, 4096),
        (0, 32_768, 65_536),
    ];
    assert_eq!(places(&records), expected);
    let ops: Vec<Op> = records.iter().map(|r| r.op).collect();
    let (read, write, sync) = (Op::Read, Op::Write, Op::Sync);
    assert_eq!(ops, [write, read, sync, sync, write, Op::Trim]);
    assert_eq!(
        (records[1].time_ns, records[1].client),
        (1_500_000_000, 4162)
    );
    assert_eq!(source.skipped(), 1);
    assert_eq!(
        source.catalog().object_name(records[1].object),
        Some("8,16")
    );
    let options = ImportOptions {
        blkparse_action: 'G',
        ..ImportOptions::default()
    };
    let other = open_reader("t", Cursor::new(BLKPARSE), &options).unwrap();
    assert_eq!(other.format(), Format::Blkparse);
    assert_eq!(other.count(), 1);
}

#[test]
fn columns_make_it_csv_whatever_the_first_line_looks_like() {
    // They look like MSR and like page numbers.
    for (text, columns, place) in [
        (
            "1,hm,1,Read,4096,8192,7\n",
            "time=#1,offset=#6,length=#7",
            (0, 8192, 7),
        ),
        ("5\n", "page=#1", (0, 5, 1)),
    ] {
        let options = ImportOptions {
            columns: Some(columns.parse().unwrap()),
            ..ImportOptions::default()
        };
        let opened = open_reader("t.ids", Cursor::new(text), &options);
        let source = opened.unwrap();
        assert_eq!(source.format(), Format::Csv);
        let records: Vec<_> = source.map(Result::unwrap).collect();
        assert_eq!(places(&records), [place], "{text}");
    }
}

#[test]
fn options_that_a_format_does_not_use_are_refused() {
    let unused = |format, options: ImportOptions, text: &'static str| {
        let options = ImportOptions { format, ..options };
        let opened = open_reader("t", Cursor::new(text), &options);
        match opened.map(|source| source.format()) {
            Err(ReadError::Unused { option, .. }) => Some(option),
            other => {
                assert!(other.is_ok(), "{other:?}");
                None
            }
        }
    };
    let columns = || ImportOptions {
        columns: Some("page=#1".parse().unwrap()),
        ..ImportOptions::default()
    };
    let unit = || ImportOptions {
        unit: Some(4096),
        ..ImportOptions::default()
    };
    let (lis, ids, msr) = ("1 1 0 0\n", "1\n", "1,h,1,Read,0,512,1\n");
    assert_eq!(unused(Some(Format::Ids), columns(), ids), Some("columns"));
    assert_eq!(unused(Some(Format::Lis), columns(), lis), Some("columns"));
    assert_eq!(unused(None, columns(), "PAR1"), Some("columns"));
    assert_eq!(unused(Some(Format::Csv), columns(), ids), None);
    assert_eq!(unused(None, unit(), ids), Some("unit"));
    assert_eq!(unused(None, unit(), msr), Some("unit"));
    assert_eq!(unused(None, unit(), lis), None);
    assert_eq!(unused(None, unit(), "page,op\n1,r\n"), None);
    assert_eq!(unused(None, unit(), "offset,length\n1,1\n"), Some("unit"));
    let several = |options: ImportOptions| ImportOptions {
        several: true,
        ..options
    };
    assert_eq!(unused(Some(Format::Ids), several(columns()), ids), None);
    assert_eq!(unused(None, several(unit()), msr), None);
}

#[test]
fn damaged_blkparse() {
    let line = "8,0 3 1 0.5 697 Q W 8 + 8 [x]";
    for (from, to, expected) in [
        (
            "8,0",
            "sda",
            "t: line 2: \"sda\" is not a device (major,minor)",
        ),
        ("0.5", "noon", "t: line 2: \"noon\" is not a whole number"),
        ("697", "-1", "t: line 2: \"-1\" is negative"),
        ("697", "4294967296", "t: line 2: process 4294967296"),
        (" + 8 [x]", "", "t: line 2: the + is missing"),
        ("+", "-", "t: line 2: \"-\" where + is expected"),
        (
            "W 8 + 8",
            "FWFS 8 + x",
            "t: line 2: \"x\" is not a whole number",
        ),
        ("W 8", "W 18446744073709551615", "times 512 does not fit"),
        (" Q W 8 + 8 [x]", "", "t: line 2: the action is missing"),
    ] {
        let error = error(
            Format::Blkparse,
            format!("{line}\n{}\n", line.replace(from, to)),
        );
        assert!(error.contains(expected), "{to:?}: {error}");
    }
    assert_eq!(
        error(Format::Blkparse, "CPU0 (8,0):\n"),
        "t: no request in it"
    );
    assert_eq!(error(Format::Blkparse, ""), "t: no request in it");
}

#[test]
fn damaged_compression_is_an_error() {
    let text = "12345 1 0 0\n".repeat(50_000);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gz, text.as_bytes()).unwrap();
    let whole = [
        zstd::encode_all(text.as_bytes(), 1).unwrap(),
        gz.finish().unwrap(),
        include_bytes!("data/ids.xz").to_vec(),
    ];
    for (bytes, format) in whole
        .into_iter()
        .zip([Format::Lis, Format::Lis, Format::Ids])
    {
        assert_eq!(read(format, bytes.clone()).len(), 50_000);
        let cut = bytes[..bytes.len() / 2].to_vec();
        let text = error(format, cut);
        assert!(text.starts_with("t: "), "{text}");
        assert!(source(format, bytes[..7].to_vec()).is_err());
    }
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig {
        cases: 400,
        rng_seed: proptest::test_runner::RngSeed::Fixed(0x7ace),
        failure_persistence: None,
        ..proptest::prelude::ProptestConfig::default()
    })]

    /// Whatever the bytes are, a decoder returns records or an error, in every format, and ends
    /// after the first error.
    #[test]
    fn arbitrary_bytes_never_panic(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400),
        head in proptest::sample::select(vec![
            "", "1 1 0 0\n", MSR, BLKPARSE, POSTGRES, "page,role\n", "\u{1f}\u{8b}", "*\n5\n",
        ]),
    ) {
        let bytes = [head.as_bytes(), &bytes].concat();
        for format in Format::ALL {
            if let Ok(mut source) = source(format, bytes.clone()) {
                let end = source.by_ref().find_map(Result::err);
                proptest::prop_assert!(end.is_none() || source.next().is_none());
            }
        }
        let found = open_reader("t", Cursor::new(bytes), &ImportOptions::default());
        let _ = found.map(Iterator::count);
    }
}

#[test]
fn a_native_trace_in_a_pipe_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    let to = pipe.clone();
    let writer = std::thread::spawn(move || std::fs::write(to, b"PAR1 and more"));
    let (told, outcome) = std::sync::mpsc::channel();
    let from = pipe.clone();
    std::thread::spawn(move || {
        let opened = open(&from, &ImportOptions::default());
        told.send(opened.map(drop).map_err(|error| error.to_string()))
    });
    // The limit only ends a test that would hang.
    let limit = std::time::Duration::from_secs(60);
    let text = outcome.recv_timeout(limit).expect("an answer").unwrap_err();
    assert!(
        text.contains("pipe") && text.contains("no regular file"),
        "{text}"
    );
    let _broken_or_not = writer.join().unwrap();
}

#[test]
fn an_action_of_blkparse_is_refused_for_other_formats() {
    let options = |several| ImportOptions {
        blkparse_action: 'D',
        several,
        ..ImportOptions::default()
    };
    for text in ["object,page\na,1\n", "1 1 0 0\n", "1\n2\n"] {
        let open = |several| open_reader("t", Cursor::new(text), &options(several));
        let refused = open(false).unwrap_err().to_string();
        assert!(refused.contains("action would mean nothing"), "{refused}");
        assert!(open(true).is_ok());
    }
}

#[test]
fn a_file_that_is_not_there_is_told_before_what_options_mean() {
    let directory = tempfile::tempdir().unwrap();
    let options = [
        ImportOptions {
            blkparse_action: 'D',
            ..ImportOptions::default()
        },
        ImportOptions {
            unit: Some(4096),
            ..with(Format::Parquet)
        },
    ];
    for options in options {
        let error = open(directory.path().join("typo.blk"), &options).unwrap_err();
        assert!(
            error.to_string().contains("typo.blk: no such file"),
            "{error}"
        );
    }
}

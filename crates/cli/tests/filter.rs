//! `thermocline filter` as a built command.

use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

fn filter(directory: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    command.current_dir(directory).arg("filter");
    command.args(line.split_whitespace());
    command.output().expect("runs")
}

fn success(directory: &Path, line: &str) -> String {
    let output = filter(directory, line);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {error}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The message of a command line that must be refused, and prints nothing.
fn failure(directory: &Path, line: &str, code: i32) -> String {
    let output = filter(directory, line);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{line}: {message}");
    assert!(message.starts_with("error: "), "{line}: {message}");
    assert!(output.stdout.is_empty(), "{line}");
    message
}

/// A directory with `keys` (0 to 9,999) and the filters `f` (text) and `n` (integers) of them.
fn ground() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("dir");
    let keys: Vec<String> = (0..10_000).map(|key| key.to_string()).collect();
    fs::write(directory.path().join("keys"), keys.join("\n")).expect("written");
    success(directory.path(), "build keys --out f");
    success(
        directory.path(),
        "build keys --integers --out n --page 4096 --memory 1MiB",
    );
    directory
}

fn parquet(path: &Path) {
    let schema = "message rows { required int64 id; optional binary name (UTF8); }";
    let schema = Arc::new(parse_message_type(schema).expect("a schema"));
    let file = fs::File::create(path).expect("file");
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(file, schema, properties).expect("writer");
    let mut group = writer.next_row_group().expect("group");
    let mut column = group.next_column().expect("column").expect("id");
    let ids = [5, 99_999_999, 9_999];
    column
        .typed::<Int64Type>()
        .write_batch(&ids, None, None)
        .expect("ids");
    column.close().expect("closed");
    let mut column = group.next_column().expect("column").expect("name");
    let names = [ByteArray::from("a,b"), ByteArray::from("7")];
    let levels = [1, 0, 1];
    let typed = column.typed::<ByteArrayType>();
    typed
        .write_batch(&names, Some(&levels), None)
        .expect("names");
    column.close().expect("closed");
    group.close().expect("closed");
    writer.close().expect("closed");
}

#[test]
fn rows_that_may_be_in_and_rows_that_are_not_are_all_rows() {
    let ground = ground();
    let at = ground.path();
    let rows: Vec<String> = (5_000..25_000).map(|key| key.to_string()).collect();
    fs::write(at.join("rows"), rows.join("\n")).expect("written");
    for name in ["f", "n"] {
        let maybe = success(at, &format!("probe {name} rows"));
        let not = success(at, &format!("probe {name} rows --not"));
        let maybe: Vec<&str> = maybe.lines().collect();
        let not: Vec<&str> = not.lines().collect();
        assert_eq!(maybe.len() + not.len(), 20_000);
        assert_eq!(maybe[..5_000], rows[..5_000], "in order, none missing");
        assert!(not.iter().all(|row| rows[5_000..].iter().any(|r| r == row)));
        let json = success(at, &format!("probe {name} rows --json"));
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["maybe"], maybe.len());
        // As many false ones of 15,000 as promised, give or take six standard deviations.
        let expected = json["expected_false_positives"].as_f64().expect("a share") * 15_000.0;
        let off = (maybe.len() - 5_000) as f64 - expected;
        assert!(
            expected > 10.0 && off.abs() < 6.0 * expected.sqrt(),
            "{off} {expected}"
        );
        assert_eq!(
            (&json["rows"], &json["asked"]),
            (&20_000.into(), &20_000.into())
        );
    }
}

#[test]
fn columns_of_csv_and_parquet_are_keys() {
    let ground = ground();
    let at = ground.path();
    fs::write(at.join("t.csv"), "id;name\n7;\"x;y\"\n123456789;z\n").expect("written");
    assert_eq!(
        success(at, "probe n t.csv --column id"),
        "id;name\n7;\"x;y\"\n"
    );
    assert_eq!(
        success(at, "probe n t.csv --column id --not"),
        "id;name\n123456789;z\n"
    );
    parquet(&at.join("t.parquet"));
    let found = success(at, "probe n t.parquet --column id");
    assert_eq!(found, "id,name\n5,\"a,b\"\n9999,7\n");
    // A null is in no filter, and not counted as a key.
    let found = success(at, "probe f t.parquet --column name");
    assert_eq!(found, "id,name\n9999,7\n");
    let json = success(at, "build t.parquet --column name --out g --json");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(
        (&json["null_keys"], &json["summary"]["keys"]),
        (&1.into(), &2.into())
    );
}

#[test]
fn keys_of_another_kind_or_in_no_column_are_refused() {
    let ground = ground();
    let at = ground.path();
    parquet(&at.join("t.parquet"));
    fs::write(at.join("t.csv"), "id,name\n7,x\n").expect("written");
    for (line, code, part) in [
        ("probe f t.parquet --column id", 2, "is of kind integer"),
        ("probe n t.parquet --column name", 2, "is of kind text"),
        (
            "probe n t.parquet --column ID",
            2,
            "--column with one of: id, name",
        ),
        ("probe n t.parquet", 2, "which column"),
        (
            "probe n t.csv --column nr",
            2,
            "--column with one of: id, name",
        ),
        (
            "probe n t.csv --column name",
            1,
            "line 2: \"x\" is no whole number",
        ),
        ("build keys --out f", 2, "--force"),
        (
            "build keys --out h --memory 1k",
            2,
            "the memory must be at least",
        ),
        ("build keys --out h --page 5000", 2, "multiple of 4096"),
        ("probe keys keys", 1, "not a filter"),
    ] {
        let message = failure(at, line, code);
        assert!(message.contains(part), "{line}: {message}");
    }
    let left = fs::read_dir(at).expect("listed").flatten();
    let left = left.filter(|file| file.file_name().to_string_lossy().contains("partial"));
    assert_eq!(left.count(), 0, "nothing half done is left");
}

#[test]
fn damaged_cut_and_foreign_filters_never_answer() {
    let ground = ground();
    let at = ground.path();
    let whole = fs::read(at.join("n")).expect("read");
    let mut torn = whole.clone();
    torn[4096 + 512..4096 + 1024].fill(0);
    let mut version = whole.clone();
    version[8] = 2;
    let mut unfinished = whole.clone();
    unfinished[12] = 0;
    for (bytes, part) in [
        (torn, "page 0 is not what was written"),
        (version, "filter format version 2"),
        (unfinished, "damaged: the header"),
        (whole[..whole.len() - 1].to_vec(), "truncated"),
        (whole[..6000].to_vec(), "truncated"),
        (Vec::new(), "not a filter"),
    ] {
        fs::write(at.join("x"), bytes).expect("written");
        for not in ["", " --not", " --json"] {
            let message = failure(at, &format!("probe x keys{not}"), 1);
            assert!(
                message.contains(part) && message.contains("try: "),
                "{part}: {message}"
            );
        }
    }
}

#[test]
fn a_filter_larger_than_the_format_allows_is_refused() {
    let directory = ground();
    let directory = directory.path();
    for share in ["1e-18", "1e-12%"] {
        let line = format!("build keys --out g --hashes 1 --false-positives {share}");
        let message = failure(directory, &line, 2);
        assert!(message.contains("larger than a filter may be"), "{message}");
        assert!(message.contains("try: "), "{message}");
    }
    assert!(!directory.join("g").exists() && !directory.join("g.partial").exists());
}

#[test]
fn two_builds_of_one_filter_do_not_write_into_each_other() {
    let directory = ground();
    let directory = directory.path();
    let partial = directory.join("g.partial");
    fs::write(&partial, "of the other").expect("written");
    let other = fs::File::open(&partial).expect("opened");
    other.lock().expect("locked");
    let message = failure(directory, "build keys --out g", 2);
    assert!(message.contains("another build writes it"), "{message}");
    assert_eq!(fs::read(&partial).expect("there"), b"of the other");
    drop(other);
    // What a build left that was killed stands in nobody's way.
    let filter = fs::read(directory.join("f")).expect("read");
    fs::write(&partial, &filter[..4096]).expect("written");
    success(directory, "build keys --out g");
    assert!(directory.join("g").exists() && !partial.exists());
}

#[test]
fn what_is_no_regular_file_is_never_replaced() {
    let ground = ground();
    let (directory, path) = (ground.path(), |name| ground.path().join(name));
    let made = Command::new("mkfifo").arg(path("pipe")).status();
    assert!(made.expect("runs").success());
    let refused = failure(directory, "build keys --out pipe --force", 2);
    assert!(refused.contains("pipe: it is no regular file"), "{refused}");
    assert!(!path("pipe").is_file());
    fs::write(path("real"), "old").expect("written");
    std::os::unix::fs::symlink("real", path("link")).expect("link");
    success(directory, "build keys --out link --force");
    assert!(path("link").is_symlink());
    assert!(fs::read(path("real")).expect("reads") != b"old");
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_key() {
    let ground = ground();
    let path = |name| ground.path().join(name);
    fs::write(path("marked"), "\u{feff}5\n77777\n").expect("written");
    for of in ["f", "n"] {
        let rows = success(ground.path(), &format!("probe {of} marked"));
        assert_eq!(rows.lines().next(), Some("5"), "{of}");
    }
    success(ground.path(), "build marked --out m");
    fs::write(path("plain"), "5\n").expect("written");
    assert_eq!(success(ground.path(), "probe m plain"), "5\n");
}

#[test]
fn a_reader_who_has_seen_enough_ends_it() {
    let ground = ground();
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    command.current_dir(ground.path()).stdout(writer);
    let output = command.args(["filter", "probe", "f", "keys"]).output();
    let output = output.expect("runs");
    assert_eq!(output.status.code(), Some(141));
    assert!(output.stderr.is_empty());
}

/// A Parquet file of one column of text.
fn texts(path: &Path, texts: &[&str]) {
    let schema = Arc::new(parse_message_type("message r { required binary id (UTF8); }").unwrap());
    let file = fs::File::create(path).expect("file");
    let properties = Arc::new(WriterProperties::builder().build());
    let mut writer = SerializedFileWriter::new(file, schema, properties).expect("writer");
    let mut group = writer.next_row_group().expect("group");
    let mut column = group.next_column().expect("column").expect("id");
    let texts: Vec<ByteArray> = texts.iter().map(|text| ByteArray::from(*text)).collect();
    let typed = column.typed::<ByteArrayType>();
    typed.write_batch(&texts, None, None).expect("texts");
    column.close().expect("closed");
    group.close().expect("closed");
    writer.close().expect("closed");
}

#[test]
fn a_key_with_blanks_is_the_same_in_every_form() {
    let ground = tempfile::tempdir().expect("dir");
    let at = ground.path();
    fs::write(at.join("lines"), " a \nb \n").expect("written");
    fs::write(at.join("c.csv"), "id,n\n a ,1\nb ,2\n").expect("written");
    fs::write(at.join("dos.csv"), "n,id\r\n1, a \r\n2,\"b \"\r\n").expect("written");
    fs::write(at.join("dos"), " a \r\nb \r\n").expect("written");
    texts(&at.join("p.parquet"), &[" a ", "b "]);
    fs::write(at.join("twice.csv"), "n,id\r\r\n1, a \r\r\n2,b \r\r\n").expect("written");
    let csv = ["c.csv", "dos.csv", "twice.csv", "p.parquet"].map(|of| format!("{of} --column id"));
    let lines = ["lines", "dos"].map(String::from);
    let forms = [&lines[..], &csv[..]].concat();
    for (number, of) in forms.iter().enumerate() {
        success(at, &format!("build {of} --out f{number}"));
        for rows in &forms {
            let json = success(at, &format!("probe f{number} {rows} --json"));
            let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
            assert_eq!(json["maybe"], 2, "{rows} in a filter of {of}");
        }
    }
    fs::write(at.join("parts"), "PAR1234\n").expect("written");
    success(at, "build parts --out parts.filter");
    // Without its blanks it is another key; numbers and names of columns have none.
    fs::write(at.join("cut"), "a\nb\n").expect("written");
    assert_eq!(success(at, "probe f0 cut --not"), "a\nb\n");
    fs::write(at.join("n.csv"), "x, id\n1, 7 \n").expect("written");
    success(at, "build n.csv --column id --integers --out n");
    fs::write(at.join("seven"), "7\n").expect("written");
    assert_eq!(success(at, "probe n seven"), "7\n");
}

#[test]
fn rows_that_are_no_rows_of_csv_are_refused_with_their_line() {
    let ground = ground();
    let at = ground.path();
    for (text, line, part) in [
        ("id,c\n1,\"hello\nworld\"\n2,plain\n", 2, "a quote is open"),
        ("id,c\n1,x\n2,\"a\"b\n", 3, "after the closing quote"),
        ("id,c\n1,x\n2,y,z\n", 3, "3 cells, and the first line has 2"),
        ("id,c\n1,x\n\n2\n", 4, "1 cells, and the first line has 2"),
        ("id,\"c\nd\"\n1,x\n", 1, "a quote is open"),
    ] {
        fs::write(at.join("r.csv"), text).expect("written");
        for command in [
            "probe f r.csv --column id",
            "probe f r.csv --column id --not",
            "build r.csv --column id --out g",
        ] {
            let message = failure(at, command, 1);
            let place = format!("r.csv: line {line}: ");
            assert!(message.contains(&place), "{text:?}: {message}");
            assert!(message.contains(part), "{text:?}: {message}");
            assert!(message.contains("\n  try: "), "{text:?}: {message}");
        }
    }
}

#[test]
fn what_a_file_is_its_first_bytes_tell() {
    let ground = ground();
    let at = ground.path();
    parquet(&at.join("rows.parq"));
    let found = success(at, "probe n rows.parq --column id");
    assert_eq!(found, "id,name\n5,\"a,b\"\n9999,7\n");
    assert!(failure(at, "build rows.parq --out g", 2).contains("which column"));
    let magics: [(&[u8], &str); 4] = [
        (b"\x1f\x8b\x08\x00", "gzip"),
        (b"\x28\xb5\x2f\xfd\x04", "zstd"),
        (b"\xfd7zXZ\x00\x00", "xz"),
        (b"BZh91AY&SY\x00", "bzip2"),
    ];
    for (magic, name) in magics {
        fs::write(at.join("k.txt"), magic).expect("written");
        for command in ["build k.txt --out g", "probe f k.txt --not"] {
            let message = failure(at, command, 2);
            let try_it = format!("{name} -dc k.txt > ");
            assert!(message.contains("k.txt is compressed"), "{message}");
            assert!(message.contains(&try_it), "{message}");
        }
    }
    // Words may begin like that.
    fs::write(at.join("k.txt"), "BZhang\n").expect("written");
    success(at, "build k.txt --out g");
}

#[test]
fn keys_are_never_written_over() {
    let ground = ground();
    let at = ground.path();
    let keys = fs::read(at.join("keys")).expect("read");
    std::os::unix::fs::symlink("keys", at.join("link")).expect("link");
    fs::hard_link(at.join("keys"), at.join("hard")).expect("link");
    fs::hard_link(at.join("keys"), at.join("g.partial")).expect("link");
    for out in ["keys", "link", "hard", "g"] {
        let message = failure(at, &format!("build keys --out {out} --force"), 2);
        assert!(message.contains("which is read"), "{message}");
        assert!(message.contains("another file for --out"), "{message}");
        assert_eq!(fs::read(at.join("keys")).expect("read"), keys);
    }
}

#[test]
fn only_what_a_build_left_is_cut_to_nothing() {
    let ground = ground();
    let at = ground.path();
    fs::write(at.join("g.partial"), "mine").expect("written");
    let message = failure(at, "build keys --out g", 2);
    assert!(
        message.contains("g.partial: a file of something else"),
        "{message}"
    );
    assert!(message.contains("\n  try: "), "{message}");
    assert_eq!(fs::read(at.join("g.partial")).expect("read"), b"mine");
    let half = fs::read(at.join("f")).expect("read");
    for left in [&half[..5000], b""] {
        fs::write(at.join("g.partial"), left).expect("written");
        success(at, "build keys --out g --force");
    }
}

#[test]
fn a_line_has_an_end() {
    let ground = ground();
    let at = ground.path();
    let long = "x".repeat((1 << 20) + 1);
    fs::write(at.join("long"), format!("a\n{long}\n")).expect("written");
    fs::write(at.join("long.csv"), format!("id\na\n{long}\n")).expect("written");
    fs::write(at.join("head.csv"), format!("id{long}\na\n")).expect("written");
    for (command, line) in [
        ("build long --out g", 2),
        ("build long.csv --column id --out g", 3),
        ("build head.csv --column id --out g", 1),
    ] {
        let message = failure(at, command, 1);
        let part = format!("line {line}: it is longer than 1 MiB");
        assert!(message.contains(&part), "{message}");
    }
    fs::write(at.join("most"), &long[1..]).expect("written");
    success(at, "build most --out g");
}

//! `thermocline joint` as a built command: forms of output, errors.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn joint(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    command.arg("joint").args(arguments).output().expect("runs")
}

fn success(arguments: &[&str]) -> String {
    let output = joint(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// A trace in CSV: reads of 100 pages, every third followed by a write of the same page.
fn trace(directory: &Path) -> PathBuf {
    let mut text = "operation,page\n".to_string();
    for number in 0..2000 {
        let page = number * number % 100;
        let _ = writeln!(text, "read,{page}");
        if number % 3 == 0 {
            let _ = writeln!(text, "write,{page}");
        }
    }
    let path = directory.join("pages.csv");
    fs::write(&path, text).expect("writes");
    path
}

#[test]
fn the_tables_and_the_objects_say_the_same() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let path = path.to_str().expect("path");
    let page = directory.path().join("joint.html");
    let html = ["--html", page.to_str().expect("path")];
    let tables = [path, "--transactions", "500", "--zone", "1%,100%"];
    let text = success(&[&tables[..], &html].concat());
    let html = fs::read_to_string(page).expect("written");
    for part in [
        "<svg",
        "gd2l+cac, pool 20 %",
        "total ms/tx",
        "a transaction, ms",
    ] {
        assert!(html.contains(part), "{part} not in: {html}");
    }
    assert!(!html.contains("http") && !html.contains("<script"));
    for part in [
        "lru+cc",
        "gd2l+cac",
        "lru+mv-fifo",
        "database 0.8 times",
        "database 3 times",
        "(model)",
        "total ms/tx",
        "on flash %",
        "destaged",
        "zone 100 %",
        "journal",
    ] {
        assert!(text.contains(part), "{part} not in: {text}");
    }
    let json = success(&[path, "--combination", "gd2l+cac", "--base-filled", "--json"]);
    let runs: Vec<serde_json::Value> = serde_json::from_str(&json).expect("an array");
    assert_eq!(runs.len(), 9);
    for run in &runs {
        let number = |field: &str| run[field].as_u64().unwrap_or_else(|| panic!("{field}"));
        let served = number("pool_hits") + number("flash_reads") + number("base_reads");
        assert_eq!(number("reads"), served);
        assert_eq!(number("requests"), number("reads") + number("writes"));
        assert!(run["ms_per_transaction"].is_null() && run["device_ms"].is_f64());
    }
}

#[test]
fn errors_name_the_value_and_the_way_out() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let path = path.to_str().expect("path");
    let cases: [(&[&str], &[&str]); 5] = [
        (&["--combination", "mru+cac"], &["mru", "gd2l"]),
        (&["--combination", "lru+magic"], &["magic", "cac"]),
        (&["--database", "0"], &["\"0\"", "0.8"]),
        (&["--pool", "7"], &["\"7\"", "10%"]),
        (&["--warm-up", "99999"], &["99999", "--warm-up"]),
    ];
    for (arguments, parts) in cases {
        let output = joint(&[&[path], arguments].concat());
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        for part in parts {
            assert!(message.contains(part), "{part} not in: {message}");
        }
    }
}

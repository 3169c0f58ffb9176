//! `thermocline mrc` as a built command.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn thermocline(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    command.args(arguments).output().expect("runs")
}

fn success(arguments: &[&str]) -> String {
    let output = thermocline(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The message of a command line that must be refused.
fn failure(arguments: &[&str], code: i32) -> String {
    let output = thermocline(arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
    assert!(message.starts_with("error: "), "{arguments:?}: {message}");
    message
}

/// A `.lis` trace: five times around 1,000 blocks.
fn trace(directory: &Path) -> PathBuf {
    let mut text = String::new();
    for number in 0..5000 {
        let _ = writeln!(text, "{} 1 0 {number}", number % 1000);
    }
    let path = directory.join("loop.lis");
    fs::write(&path, text).expect("writes");
    path
}

#[test]
fn a_loop_misses_until_it_fits() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let path = path.to_str().expect("path");
    let arguments = [
        "mrc",
        path,
        "--sizes",
        "10%,999p,1000p",
        "--policy",
        "lru,fifo",
    ];
    let text = success(&arguments);
    for part in [
        "every page",
        "20.0 % of reads",
        "● lru   ○ fifo",
        "no listed size below",
    ] {
        assert!(text.contains(part), "{part} not in: {text}");
    }
    let picture = directory.path().join("curves.html");
    let html = ["--json", "--html", picture.to_str().expect("path")];
    let json = success(&[&arguments[..], &html].concat());
    let html = fs::read_to_string(picture).expect("written");
    assert!(
        html.contains("<svg") && html.contains("no listed size below"),
        "{html}"
    );
    let curves: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    for (at, policy) in ["lru", "fifo"].iter().enumerate() {
        let curve = &curves[at];
        assert_eq!(curve["policy"], *policy);
        assert_eq!(
            (&curve["rate"], &curve["reads"]),
            (&1.0.into(), &5000.into())
        );
        let misses = |point: usize| curve["points"][point]["read_misses"].as_u64();
        assert_eq!(
            [misses(0), misses(1), misses(2)],
            [5000, 5000, 1000].map(Some)
        );
    }
}

#[test]
fn a_sample_is_called_one() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let path = path.to_str().expect("path");
    let text = success(&["mrc", path, "--rate", "20%", "--sizes", "100p,1000p"]);
    for part in ["20.00 % of the pages", "estimates", "~"] {
        assert!(text.contains(part), "{part} not in: {text}");
    }
}

#[test]
fn wrong_options_are_named() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let path = path.to_str().expect("path");
    let rate = failure(&["mrc", path, "--rate", "7"], 2);
    assert!(
        rate.contains("\"7\"") && rate.contains("0.1 or 10%"),
        "{rate}"
    );
    let none = failure(&["mrc", path, "--rate", "0.0000001"], 2);
    assert!(
        none.contains("no read is in the sample") && none.contains("try: "),
        "{none}"
    );
    let size = failure(&["mrc", path, "--sizes", "0p"], 2);
    assert!(size.contains("--sizes 0p"), "{size}");
    failure(&["mrc", path, "--policy", "opt"], 2);
    failure(&["mrc", "/nonexistent/trace"], 1);
}

#[test]
fn no_more_threads_are_started_than_there_are_tiers_to_follow() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let path = path.to_str().expect("path");
    let arguments = ["mrc", path, "--sizes", "10%,999p", "--policy", "fifo"];
    let many = success(&[&arguments[..], &["--threads", "100000"]].concat());
    assert_eq!(many, success(&arguments));
}

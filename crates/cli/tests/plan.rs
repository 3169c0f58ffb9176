//! `thermocline plan` as a built command.

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

fn failure(arguments: &[&str]) -> String {
    let output = thermocline(arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    message
}

/// A CSV trace of an hour: reads all over 256 MiB, of which nine in ten go to 16 MiB.
fn trace(directory: &Path) -> PathBuf {
    trace_at(directory, 100_000_000)
}

/// The same with so many nanoseconds from one request to the next.
fn trace_at(directory: &Path, apart_ns: u64) -> PathBuf {
    let mut text = "time_ns,offset,length,op\n".to_string();
    for number in 0..36_000u64 {
        let draw = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        let pages = if number % 10 == 0 { 65_536 } else { 4096 };
        let _ = writeln!(text, "{},{},4096,r", number * apart_ns, draw % pages * 4096);
    }
    let path = directory.join("skewed.csv");
    fs::write(&path, text).expect("writes");
    path
}

#[test]
fn the_hot_part_is_what_is_worth_buying() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let path = path.to_str().expect("path");
    let sizes = "4MiB,8MiB,20MiB,40MiB,60MiB";
    let arguments = [
        "plan", path, "--flash", sizes, "--pool", "1MiB", "--policy", "lru",
    ];
    let text = success(&arguments);
    for part in [
        "Buy ",
        "(model)",
        "base alone",
        "I/Os per second",
        "€",
        "written a day",
        "→",
    ] {
        assert!(text.contains(part), "{part} not in: {text}");
    }
    let picture = directory.path().join("plan.html");
    let html = ["--html", picture.to_str().expect("path")];
    let json = success(&[&arguments[..], &["--json", "--worth", "50%"], &html].concat());
    let html = fs::read_to_string(picture).expect("written");
    assert!(
        html.contains("<svg") && html.contains("Buy 20.0 MiB of flash"),
        "{html}"
    );
    let plan: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let options = plan["options"].as_array().expect("options");
    assert_eq!(options.len(), 12);
    assert_eq!(
        (&options[0]["cost"], &options[0]["speedup"]),
        (&0.0.into(), &1.0.into())
    );
    let at = plan["recommended"].as_u64().expect("a position") as usize;
    assert_eq!(options[at]["flash_bytes"], 20 << 20, "{text}");
    assert!(options[at]["efficient"] == true && options[at]["envelope"] == true);
    assert!(options[at]["endurance_years"].as_f64() > Some(0.0));
    let sentence = plan["recommendation"].as_str().expect("a sentence");
    assert!(
        sentence.starts_with("Buy 20.0 MiB of flash (model)"),
        "{sentence}"
    );
    let target = success(&[&arguments[..], &["--target", "100000x"]].concat());
    assert!(
        target.contains("No size tried reaches the target"),
        "{target}"
    );
    let target = success(&[&arguments[..], &["--target", "1ms", "--base", "ssd"]].concat());
    assert!(target.contains("Buy nothing"), "{target}");
}

#[test]
fn the_last_sentence_is_cautious_and_half_a_minute_tells_no_wear() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let said = |path: &Path, more: &[&str]| {
        let path = path.to_str().expect("path");
        let sizes = ["--flash", "20MiB", "--pool", "1MiB", "--policy", "lru"];
        success(&[&["plan", path], &sizes[..], more].concat())
    };
    let hour = said(&path, &[]);
    let last = hour.trim_end().lines().last().expect("a line");
    assert!(
        last.contains("Be careful: this is a model of 48 min"),
        "{hour}"
    );
    assert!(last.contains("has 240 GB (22.35 €)"), "{hour}");
    assert!(last.contains("rated writes"), "{hour}");
    assert!(
        hour.contains("€/GiB (assumed), memory 4.00 €/GiB (assumed)"),
        "{hour}"
    );
    let given = [
        "--flash-price",
        "0.2",
        "--dram-price",
        "3",
        "--dwpd",
        "1",
        "--years",
        "5",
    ];
    assert!(!said(&path, &given).contains("assumed"));
    let short = trace_at(directory.path(), 1_000_000);
    let text = said(&short, &[]);
    assert!(
        text.contains("of 29 s of requests, too little to tell wear from"),
        "{text}"
    );
    assert!(!text.contains("rated writes of"), "{text}");
    let plan: serde_json::Value = serde_json::from_str(&said(&short, &["--json"])).expect("JSON");
    assert_eq!(plan["tells_wear"], false);
    let options = plan["options"].as_array().expect("options");
    assert!(
        options
            .iter()
            .all(|option| option["endurance_years"].is_null()),
        "{plan}"
    );
}

#[test]
fn wrong_options_are_named() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let path = path.to_str().expect("path");
    let wrong = |option: &str, value: &str| failure(&["plan", path, option, value]);
    for (option, value) in [
        ("--flash-price", "cheap"),
        ("--dram-price", "-1"),
        ("--worth", "0%"),
        ("--target", "fast"),
        ("--flash", "0p"),
        ("--base", "floppy"),
    ] {
        let message = wrong(option, value);
        assert!(
            message.starts_with("error: ") && message.contains(value),
            "{message}"
        );
    }
}

#[test]
fn a_pool_that_serves_all_has_a_speed() {
    let directory = tempfile::tempdir().expect("dir");
    let path = directory.path().join("loop.csv");
    let rows = (0..2000).map(|at| format!("{at},r,{}\n", at % 100));
    fs::write(
        &path,
        format!("time_ms,op,page\n{}", rows.collect::<String>()),
    )
    .expect("writes");
    let picture = directory.path().join("plan.html");
    let [path, picture] = [&path, &picture].map(|path| path.to_str().expect("path"));
    let columns = "time=time_ms,op=op,page=page";
    let common = [
        "plan",
        path,
        "--columns",
        columns,
        "--unit",
        "4KiB",
        "--policy",
        "lru",
    ];
    let sizes = ["--flash", "50%", "--pool", "100%", "--html", picture];
    let text = success(&[&common[..], &sizes].concat());
    assert!(!text.contains("inf") && !text.contains("NaN"), "{text}");
    let html = fs::read_to_string(picture).expect("written");
    assert!(!html.contains("inf") && !html.contains("NaN"), "{html}");
    let json = success(&[&common[..], &sizes, &["--json"]].concat());
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    for option in json["options"].as_array().expect("options") {
        for field in ["ios_per_s", "speedup", "mean_io_ms"] {
            assert!(option[field].is_number(), "{field} in {option}");
        }
    }
}

#[test]
fn times_of_day_are_no_years() {
    let directory = tempfile::tempdir().expect("dir");
    let path = directory.path().join("epoch.csv");
    let mut text = "ts,op,page\n".to_string();
    for number in 0..2000 {
        let second = 1_700_000_000.0 + f64::from(number) * 0.3;
        let _ = writeln!(text, "{second:.1},w,{}", number % 100);
    }
    fs::write(&path, text).expect("writes");
    let path = path.to_str().expect("path");
    let columns = "time=ts,op=op,page=page";
    let json = success(&[
        "plan",
        path,
        "--columns",
        columns,
        "--flash",
        "50%",
        "--policy",
        "lru",
        "--json",
    ]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let seconds = json["seconds"].as_f64().expect("seconds");
    assert!(
        (475.0..485.0).contains(&seconds),
        "0.8 of ten minutes: {seconds}"
    );
}

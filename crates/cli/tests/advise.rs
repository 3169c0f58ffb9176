//! `thermocline advise` as a built command: forms of output, what following it gains, errors.

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
fn failure(arguments: &[&str]) -> String {
    failure_with(2, arguments)
}

fn failure_with(code: i32, arguments: &[&str]) -> String {
    let output = thermocline(arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
    assert!(message.starts_with("error: "), "{message}");
    assert!(message.contains("\n  try: "), "{message}");
    message
}

fn json(arguments: &[&str]) -> Vec<serde_json::Value> {
    let text = success(&[arguments, &["--json"]].concat());
    serde_json::from_str(&text).expect("a JSON array")
}

/// An hour: two in five requests read 2,000 pages of `hot` at random, the others go once through
/// `audit`, reading and writing every page.
fn trace(directory: &Path, name: &str, requests: u64) -> PathBuf {
    let mut text = "time_ns,object,offset,length,operation\n".to_string();
    for number in 0..requests {
        let draw = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        let (object, page, op) = match number % 5 {
            0 | 2 => ("hot.db", draw % 2000, "r"),
            1 | 3 => ("audit [1].db", 7 * (number / 5 * 2 + number % 5 / 2), "r"),
            _ => ("audit [1].db", 7 * (number / 5 * 2), "w"),
        };
        let offset = page * 4096;
        let _ = writeln!(text, "{},{object},{offset},4096,{op}", number * 60_000_000);
    }
    let path = directory.join(name);
    fs::write(&path, text).expect("writes");
    path
}

#[test]
fn lines_have_gains_prices_commands_and_undos() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path(), "hot.csv", 60_000);
    let path = path.to_str().expect("path");
    let page = directory.path().join("advice.html");
    let arguments = ["advise", path, "--policies", "tac,lru", "--policy", "lru"];
    let html = ["--html", page.to_str().expect("path")];
    let text = success(&[&arguments[..], &html].concat());
    for part in [
        "1 SIZE",
        "less I/O time (±",
        "do:",
        "undo:",
        "€",
        "access density",
    ] {
        assert!(text.contains(part), "{part} not in: {text}");
    }
    let html = fs::read_to_string(page).expect("written");
    assert!(html.contains("<svg") && html.contains("1 SIZE"), "{html}");
    assert!(
        !html.contains("http") && !html.contains("<script"),
        "{html}"
    );
    // A name that a shell takes for more than a name.
    let mount = ["--mount", "/srv/my data;rm"];
    let lines = json(&[&arguments[..], &mount].concat());
    assert!(!lines.is_empty());
    for line in &lines {
        for key in ["id", "kind", "gain", "price", "command", "undo"] {
            assert!(!line[key].is_null(), "{key} not in: {line}");
        }
        assert!(line["gain"]["percent"].is_f64() && line["gain"]["plus_minus"].is_f64());
        assert!(line["price"]["amount"].is_f64(), "{line}");
    }
    assert_eq!(lines[0]["kind"], "SIZE");
    let command = lines[0]["command"].as_str().expect("a command");
    assert!(command.starts_with("thermocline mount BASE '/srv/my data;rm' --cache FILE --size "));
    assert_eq!(lines[0]["undo"], "thermocline umount '/srv/my data;rm'");
}

#[test]
fn what_only_passes_is_kept_off_flash_and_following_gains_what_was_said() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path(), "hot.csv", 60_000);
    let path = path.to_str().expect("path");
    let arguments = [
        "advise",
        path,
        "--policies",
        "lru",
        "--policy",
        "lru",
        "--size",
        "2300p",
        "--keep-size",
    ];
    let lines = json(&arguments);
    let of = |kind: &str| lines.iter().find(|line| line["kind"] == kind);
    let pin = of("PIN").expect("hot.db is worth a pin");
    assert_eq!(pin["id"], "pin:hot.db");
    assert!(pin["gain"]["percent"].as_f64() > Some(10.0), "{pin}");
    assert_eq!(pin["price"]["flash_bytes"], 2000 * 4096);
    assert_eq!(
        (&pin["price"]["amount"], &pin["now"]["flash_bytes"]),
        (&0.0.into(), &(2300 * 4096).into())
    );
    let advice = directory.path().join("advice.json");
    let advice = advice.to_str().expect("path");
    fs::write(advice, serde_json::to_string(&lines).expect("JSON")).expect("writes");
    let checked = json(&[&arguments[..2], &["--check", advice]].concat());
    assert_eq!(checked.len(), lines.len());
    for (line, row) in lines.iter().zip(&checked) {
        assert_eq!((&row["id"], &row["held"]), (&line["id"], &true.into()));
        assert_eq!(
            row["observed"]["percent"], line["gain"]["percent"],
            "the same trace"
        );
    }
    let text = success(&[&arguments[..2], &["--check", advice]].concat());
    assert!(
        text.contains("predicted") && text.contains("pin:hot.db"),
        "{text}"
    );
    // Room for `audit` too, but nothing of it is read twice.
    let roomy = [&arguments[..6], &["--size", "2500p", "--keep-size"]].concat();
    let bypass = json(&roomy);
    let bypass = bypass.iter().find(|line| line["kind"] == "BYPASS");
    let bypass = bypass.expect("audit hits nothing");
    assert!(
        bypass["more_flash_writes"].as_f64() < Some(-0.5),
        "{bypass}"
    );
    let rule = bypass["command"].as_str().expect("a rule");
    let config = directory.path().join("tier.toml");
    fs::write(&config, rule).expect("writes");
    success(&["config", "--check", config.to_str().expect("path")]);
}

#[test]
fn a_tier_in_write_back_is_advised_on_as_it_is() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path(), "hot.csv", 60_000);
    let path = path.to_str().expect("path");
    let of_tier = [
        "--policies",
        "lru,tac",
        "--policy",
        "lru",
        "--size",
        "1000p",
    ];
    let through = [&["advise", path], &of_tier[..]].concat();
    let back = [&through[..], &["--write-back"]].concat();
    let text = success(&back);
    assert!(text.contains("policy lru, write-back"), "{text}");
    assert!(
        !text.contains("WRITE-BACK") && !text.contains("in part, LRU each"),
        "{text}"
    );
    let lines = json(&back);
    let kept = [
        "--policies",
        "lru",
        "--policy",
        "lru",
        "--size",
        "2600p",
        "--keep-size",
    ];
    let kept = json(&[&back[..2], &kept[..], &["--write-back"]].concat());
    assert_eq!(kept[0]["kind"], "PIN", "{kept:?}");
    assert!(!lines.is_empty());
    let lines: Vec<serde_json::Value> = lines.into_iter().chain(kept).collect();
    for line in &lines {
        for state in ["now", "then"] {
            assert_eq!(line[state]["write_back"], true, "{line}");
        }
    }
    // The mode makes a difference: every fifth request of the load writes.
    let other = &json(&through)[0];
    assert_eq!(
        (&other["kind"], &lines[0]["kind"]),
        (&"SIZE".into(), &"SIZE".into())
    );
    assert_ne!(other["gain"], lines[0]["gain"]);
    let advice = directory.path().join("advice.json");
    let advice = advice.to_str().expect("path");
    fs::write(advice, serde_json::to_string(&lines).expect("JSON")).expect("writes");
    for row in json(&["advise", path, "--check", advice]) {
        assert_eq!(row["observed"], row["predicted"], "the same trace: {row}");
    }
}

#[test]
fn too_little_evidence_is_refused_with_what_is_needed() {
    let directory = tempfile::tempdir().expect("dir");
    let short = trace(directory.path(), "short.csv", 1000);
    let short = short.to_str().expect("path");
    // The command line is right, so it is no 2.
    let message = failure_with(1, &["advise", short]);
    assert!(
        message.contains("640 page reads") && message.contains("needs 10000"),
        "{message}"
    );
    assert!(
        message.contains("record 16 times as long: about 16 minutes"),
        "{message}"
    );
    let empty = directory.path().join("empty.csv");
    fs::write(&empty, "time_ns,object,offset,length,operation\n").expect("writes");
    let output = thermocline(&["advise", empty.to_str().expect("path")]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && message.starts_with("error: "),
        "{message}"
    );
}

#[test]
fn wrong_files_and_options_are_named() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path(), "hot.csv", 40_000);
    let path = path.to_str().expect("path");
    let advice = directory.path().join("advice.json");
    let line = serde_json::json!([{
        "id": "pin:gone.db",
        "gain": {"percent": 5.0, "plus_minus": 1.0},
        "now": {"flash_bytes": 4_096_000, "policy": "lru", "memory_bytes": 0, "pinned": [],
                "bypassed": []},
        "then": {"flash_bytes": 4_096_000, "policy": "lru", "memory_bytes": 0,
                 "pinned": ["gone.db"], "bypassed": []},
    }]);
    fs::write(&advice, line.to_string()).expect("writes");
    let advice = advice.to_str().expect("path");
    let message = failure(&["advise", path, "--check", advice]);
    assert!(message.contains("no request for \"gone.db\""), "{message}");
    let message = failure(&["advise", path, "--check", path]);
    assert!(
        message.contains("is not what advise --json prints"),
        "{message}"
    );
    let message = failure(&["advise", path, "--begin", "60%", "--end", "50%"]);
    assert!(message.contains("--begin 60%"), "{message}");
    let message = failure(&["advise", path, "--keep-size"]);
    assert!(message.contains("--keep-size without --size"), "{message}");
}

#[test]
fn a_sample_of_the_trace_is_told_at_the_size_of_the_whole() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path(), "hot.csv", 120_000);
    let path = path.to_str().expect("path");
    let arguments = ["advise", path, "--policies", "lru", "--policy", "lru"];
    let size = ["--size", "1024p", "--sizes", "1024p,2304p"];
    let ask = |more: &[&str]| json(&[&arguments[..], &size, more].concat());
    let (whole, half) = (ask(&[]), ask(&["--sample", "50%"]));
    let of = |lines: &[serde_json::Value], kind: &str| {
        let line = lines.iter().find(|line| line["kind"] == kind);
        line.unwrap_or_else(|| panic!("no {kind} in {lines:?}"))
            .clone()
    };
    let (whole, half) = (of(&whole, "SIZE"), of(&half, "SIZE"));
    for key in ["id", "now", "then", "command"] {
        assert_eq!(half[key], whole[key], "{key}");
    }
    let flash = |line: &serde_json::Value| line["price"]["flash_bytes"].clone();
    assert_eq!(flash(&half), flash(&whole));
    let percent = |line: &serde_json::Value| line["gain"]["percent"].as_f64().expect("a gain");
    // Of the 63 extents of `hot` half are in the sample, give or take three standard deviations:
    // 20 to 43, for a tier of half the size.
    let apart = (percent(&half) - percent(&whole)).abs();
    assert!(apart < 12.0, "{half} {whole}");
    let requests = |line: &serde_json::Value| {
        let saved = line["base_requests_saved_per_s"].as_f64();
        saved.expect("a trace with times")
    };
    let ratio = requests(&half) / requests(&whole);
    assert!((0.5..1.6).contains(&ratio), "{half} {whole}");
    // Earlier advice is followed at the size that fits the sample.
    let advice = directory.path().join("advice.json");
    fs::write(&advice, serde_json::json!([whole]).to_string()).expect("writes");
    let advice = advice.to_str().expect("path");
    let checked = json(&["advise", path, "--check", advice, "--sample", "50%"]);
    let seen = checked[0]["observed"]["percent"].as_f64().expect("a gain");
    assert!((seen - percent(&half)).abs() < 1e-9, "{checked:?}");
    let text = success(&[&arguments[..], &["--sample", "50%"]].concat());
    assert!(text.contains("the extents of 50.0 %"), "{text}");
    let refused = thermocline(&["advise", path, "--sample", "0%"]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2));
    assert!(message.contains("is not a share"), "{message}");
}

#[test]
fn a_pin_takes_of_a_sample_what_it_takes_of_the_whole() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path(), "hot.csv", 120_000);
    let path = path.to_str().expect("path");
    let of_tier = ["--policies", "lru", "--policy", "lru", "--size", "2300p"];
    let asked = [&["advise", path], &of_tier[..], &["--keep-size"]].concat();
    let lines = json(&[&asked[..], &["--sample", "50%"]].concat());
    let pin = lines.iter().find(|line| line["kind"] == "PIN");
    let pin = pin.unwrap_or_else(|| panic!("hot.db is worth a pin: {lines:?}"));
    assert_eq!(pin["id"], "pin:hot.db");
    // The sample may lack the last extents of the file.
    let bytes = pin["price"]["flash_bytes"].as_u64().expect("bytes");
    assert!((1800 * 4096..=2000 * 4096).contains(&bytes), "{pin}");
}

#[test]
fn files_of_the_same_name_in_two_traces_are_told_apart() {
    let directory = tempfile::tempdir().expect("dir");
    let second = trace(directory.path(), "b.csv", 60_000);
    let swapped = fs::read_to_string(&second).expect("text");
    let swapped = swapped
        .replace("hot.db", "x")
        .replace("audit [1].db", "hot.db");
    let first = directory.path().join("a.csv");
    fs::write(&first, swapped.replace(",x,", ",audit [1].db,")).expect("writes");
    let traces = [
        first.to_str().expect("path"),
        second.to_str().expect("path"),
    ];
    let arguments = [
        &["advise"],
        &traces[..],
        &[
            "--policies",
            "lru",
            "--policy",
            "lru",
            "--size",
            "4600p",
            "--keep-size",
        ],
    ];
    let arguments = arguments.concat();
    let lines = json(&arguments);
    let of = |id: &str| {
        let line = lines.iter().find(|line| line["id"] == id);
        line.unwrap_or_else(|| panic!("no {id} in {lines:?}"))
    };
    // What is hot in one trace only passes in the other.
    let pins = [of("pin:trace 1: audit [1].db"), of("pin:trace 2: hot.db")];
    for pin in pins {
        assert!(pin["gain"]["percent"].as_f64() > Some(5.0), "{pin}");
    }
    assert_eq!(pins[1]["command"], "thermocline pin MOUNTPOINT hot.db");
    assert_eq!(pins[1]["undo"], "thermocline unpin MOUNTPOINT hot.db");
    let text = success(&arguments);
    assert!(text.contains("PIN    trace 2: hot.db, 7.8 MiB"), "{text}");
    let advice = directory.path().join("advice.json");
    fs::write(&advice, serde_json::to_string(&lines).expect("JSON")).expect("writes");
    let advice = advice.to_str().expect("path");
    for row in json(&[&arguments[..3], &["--check", advice]].concat()) {
        assert_eq!(row["observed"], row["predicted"], "the same traces: {row}");
    }
}

/// Four in five requests read 500 pages of `hot` at random, the others append to `log`; one page in
/// four hundred of it is read, when it was just written.
fn log_trace(directory: &Path) -> PathBuf {
    let mut text = "time_ns,object,offset,length,operation\n".to_string();
    for number in 0..60_000u64 {
        let draw = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33;
        let (object, page, op) = match number % 5 {
            4 => ("log.db", number / 5, "w"),
            0 if number % 2000 == 0 && number > 0 => ("log.db", number / 5 - 1, "r"),
            _ => ("hot.db", draw % 500, "r"),
        };
        let offset = page * 4096;
        let _ = writeln!(text, "{},{object},{offset},4096,{op}", number * 60_000_000);
    }
    let path = directory.join("log.csv");
    fs::write(&path, text).expect("writes");
    path
}

#[test]
fn reads_that_take_longer_are_told_though_none_missed_before() {
    let directory = tempfile::tempdir().expect("dir");
    let path = log_trace(directory.path());
    let path = path.to_str().expect("path");
    let of_tier = ["--policies", "lru", "--policy", "lru", "--size", "4000p"];
    let text = success(&[&["advise", path], &of_tier[..], &["--keep-size"]].concat());
    assert!(text.contains("BYPASS log.db"), "{text}");
    let said = text.split("reads of log.db take longer, by ").nth(1);
    let said = said.unwrap_or_else(|| panic!("nothing of log.db in {text}"));
    let percent: f64 = said
        .split(' ')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(f64::NAN);
    // 24 reads of a hard disk beside 38,000 of flash.
    assert!((1.0..50.0).contains(&percent), "{text}");
}

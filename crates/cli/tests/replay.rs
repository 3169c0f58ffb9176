//! `thermocline replay` as a built command: the live engine does what the simulator says.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn thermocline(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    command.args(arguments).output().expect("runs")
}

fn json(arguments: &[&str]) -> Vec<serde_json::Value> {
    let output = thermocline(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {error}");
    serde_json::from_slice(&output.stdout).expect("an array of objects")
}

/// The message of a command line that must be refused.
fn failure(arguments: &[&str]) -> String {
    let output = thermocline(arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
    message
}

/// A CSV trace: skewed reads of 400 pages of 4 KiB, one write of a page in eight, one of a part
/// of a page in sixty.
fn trace(directory: &Path) -> PathBuf {
    let mut text = "time_ns,offset,length,op\n".to_string();
    for number in 0..3000u64 {
        let draw = |salt: u64| {
            let mixed = (number * 8 + salt).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (mixed ^ mixed >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 33
        };
        let page = draw(0) % (draw(1) % 400 + 1);
        let (op, length) = match draw(2) % 60 {
            0 => ("w", 1000),
            1..8 => ("w", 4096),
            _ => ("r", 4096),
        };
        let _ = writeln!(text, "{},{},{length},{op}", number * 1_000_000, page * 4096);
    }
    let path = directory.join("skewed.csv");
    fs::write(&path, text).expect("writes");
    path
}

/// The arguments of a replay in `directory`, but for policies.
fn arguments(directory: &Path) -> Vec<String> {
    let path = |name: &str| directory.join(name).display().to_string();
    let arguments = [
        "replay",
        &path("skewed.csv"),
        "--directory",
        &path("base"),
        "--json",
    ];
    let tier = ["--cache", &path("cache"), "--size", "500KiB"];
    arguments
        .iter()
        .chain(&tier)
        .map(ToString::to_string)
        .collect()
}

fn left_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("reads");
    let name = |entry: fs::DirEntry| entry.file_name().to_string_lossy().into_owned();
    entries.map(|entry| name(entry.expect("entry"))).collect()
}

#[test]
fn one_client_does_what_the_simulator_says() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let line = arguments(directory.path());
    let mut line: Vec<&str> = line.iter().map(String::as_str).collect();
    line.extend([
        "--policy",
        "none,lru,tac",
        "--settle",
        "--verify",
        "--emulate-base",
        "hdd",
    ]);
    let replayed = json(&line);
    let slots = replayed[1]["slots"].as_u64().expect("slots");
    assert!((50..200).contains(&slots), "{slots}");
    let path = path.to_str().expect("path");
    let flash = format!("{slots}p");
    let simulate = [
        "simulate", path, "--flash", &flash, "--policy", "lru,tac", "--json",
    ];
    let simulated = json(&simulate);
    for (live, model) in replayed[1..].iter().zip(&simulated) {
        for count in [
            "policy",
            "ios",
            "reads",
            "writes",
            "flash_reads",
            "base_reads",
        ] {
            assert_eq!(live[count], model[count], "{count}: {live} {model}");
        }
        assert_eq!(live["flash_writes"], model["flash_writes"], "{live}");
        assert!(live["flash_reads"].as_u64() > Some(0), "{live}");
        assert!(live["speedup"].as_f64() > Some(1.0), "{live}");
    }
    let alone = &replayed[0];
    assert_eq!(
        (&alone["policy"], &alone["speedup"]),
        (&"none".into(), &1.0.into())
    );
    assert_eq!(alone["base_reads"], simulated[0]["reads"]);
    assert_eq!(
        (&alone["read_hit_ratio"], &alone["flash_reads"]),
        (&0.0.into(), &0.into())
    );
    // An emulated disk needs milliseconds for each of 3000 I/Os; nobody waits for it.
    assert!(alone["elapsed_s"].as_f64() > Some(3.0), "{alone}");
    assert!(
        replayed
            .iter()
            .all(|run| run["wrong_pages"] == 0 && run["emulated"] == true)
    );
    assert_eq!(left_in(directory.path()), ["skewed.csv"]);
}

#[test]
fn real_files_and_several_clients_leave_nothing_behind() {
    let directory = tempfile::tempdir().expect("dir");
    trace(directory.path());
    let base = directory.path().join("base");
    fs::create_dir(&base).expect("an empty directory of somebody else");
    let line = arguments(directory.path());
    let mut line: Vec<&str> = line.iter().map(String::as_str).collect();
    line.extend(["--policy", "none,arc", "--threads", "3", "--verify"]);
    let runs = json(&line);
    for run in &runs {
        assert_eq!(run["ios"], 3000);
        assert!(run["elapsed_s"].as_f64() > Some(0.0) && run["ios_per_s"].as_f64() > Some(0.0));
        assert_eq!(
            (&run["emulated"], &run["wrong_pages"]),
            (&false.into(), &0.into())
        );
    }
    assert_eq!(left_in(&base).len(), 0, "the directory stays, its files go");
    assert!(!directory.path().join("cache").exists());
    line.push("--keep");
    json(&line);
    assert_eq!(left_in(&base).len(), 2, "one object and the mark");
    json(&line[..line.len() - 1]);
    assert_eq!(left_in(&base).len(), 0);
}

#[test]
fn what_is_not_ours_is_not_touched() {
    let directory = tempfile::tempdir().expect("dir");
    trace(directory.path());
    let line = arguments(directory.path());
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let cache = directory.path().join("cache");
    fs::write(&cache, "mine").expect("writes");
    let message = failure(&line);
    assert!(
        message.contains("is there already") && message.contains("try: "),
        "{message}"
    );
    assert_eq!(fs::read(&cache).expect("reads"), b"mine");
    fs::remove_file(&cache).expect("removes");
    let base = directory.path().join("base");
    fs::create_dir(&base).expect("makes");
    fs::write(base.join("table"), "precious").expect("writes");
    let message = failure(&line);
    assert!(message.contains("nothing was touched"), "{message}");
    assert_eq!(left_in(&base), ["table"]);
    let message = failure(&line[..5]);
    assert!(message.contains("--cache and --size"), "{message}");
}

/// A CSV trace of reads of one page each, so many milliseconds apart.
fn slow_trace(directory: &Path, requests: u64, apart_ms: u64) {
    let mut text = "time_ns,offset,length,op\n".to_string();
    for number in 0..requests {
        let _ = writeln!(
            text,
            "{},{},4096,r",
            number * apart_ms * 1_000_000,
            number % 64 * 4096
        );
    }
    fs::write(directory.join("skewed.csv"), text).expect("writes");
}

#[test]
fn progress_is_told_where_there_is_no_terminal() {
    let directory = tempfile::tempdir().expect("dir");
    // At this pace it takes 3.5 s; the first line comes after 2.
    slow_trace(directory.path(), 3500, 1);
    let arguments = arguments(directory.path());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output =
        thermocline(&[&arguments[..], &["--policy", "lru", "--speed", "recorded"]].concat());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    assert!(
        error.starts_with("lru: ") && error.contains(" s left\n"),
        "{error}"
    );
}

#[test]
fn a_signal_ends_it_and_nothing_is_left() {
    let directory = tempfile::tempdir().expect("dir");
    // It would take half an hour.
    slow_trace(directory.path(), 1800, 1000);
    let arguments = arguments(directory.path());
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    let command = command
        .args(&arguments)
        .args(["--policy", "lru", "--speed", "recorded"]);
    let mut child = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("runs");
    let (base, cache) = (
        directory.path().join("base"),
        directory.path().join("cache"),
    );
    while !cache.exists() {
        assert!(
            child.try_wait().expect("its state").is_none(),
            "it ended by itself"
        );
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let ended = Command::new("kill").arg(child.id().to_string()).status();
    assert!(ended.expect("kill").success());
    let output = child.wait_with_output().expect("its end");
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("ended by a signal"), "{error}");
    assert!(!base.exists() && !cache.exists(), "files are left");
}

#[test]
fn a_trace_of_more_objects_than_the_usual_limit_on_open_files_is_replayed() {
    let directory = tempfile::tempdir().expect("dir");
    let mut text = "object,page\n".to_string();
    for object in 0..300 {
        let _ = writeln!(text, "t{object},0");
    }
    fs::write(directory.path().join("many.csv"), text).expect("writes");
    // The soft limit alone, which a process may raise.
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -Sn 256 && exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_thermocline"))
        .args(["replay", "many.csv", "--directory", "base"])
        .args(["--prepare", "sparse", "--policy", "none", "--json"]);
    let output = command.current_dir(directory.path()).output();
    let output = output.expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let runs: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(runs[0]["ios"], 300);
}

//! The built command: help, generated files, configuration checks, exit codes.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use thermocline_core::{HintSet, ObjectId};
use thermocline_trace::{Op, Recorder, RecorderOptions, Sample, Served, TraceRecord};

fn thermocline(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    command.args(arguments).output().expect("runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// The output of a command that must succeed.
fn success(arguments: &[&str]) -> String {
    let output = thermocline(arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The message of a command that must end with `code`.
fn failure(arguments: &[&str], code: i32) -> String {
    let output = thermocline(arguments);
    let message = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
    assert!(message.starts_with("error: "), "{arguments:?}: {message}");
    message
}

const COMMANDS: [&str; 17] = [
    "mount",
    "umount",
    "status",
    "policy",
    "tier",
    "calibrate",
    "trace",
    "simulate",
    "joint",
    "mrc",
    "plan",
    "advise",
    "replay",
    "demo",
    "config",
    "man",
    "completions",
];

#[test]
fn help_lists_every_command_and_the_exit_codes() {
    let help = success(&["--help"]);
    for command in COMMANDS {
        assert!(
            help.contains(&format!("\n  {command}")),
            "{command} not in: {help}"
        );
        assert!(
            success(&[command, "--help"]).contains("Usage: thermocline"),
            "{command}"
        );
    }
    assert!(help.contains("Exit codes:"), "{help}");
    assert!(
        help.lines().all(|line| line.chars().count() <= 100),
        "{help}"
    );
}

#[test]
fn mount_help_names_units_and_configuration_settings() {
    let help = success(&["mount", "--help"]);
    for part in [
        "--cache <FILE>",
        "8GiB",
        "[config: tier.size]",
        "--emulate-base",
        "--record",
    ] {
        assert!(help.contains(part), "{part} not in: {help}");
    }
}

#[test]
fn man_pages_cover_every_command() {
    let directory = tempfile::tempdir().expect("dir");
    let out = directory.path().join("man/man1");
    success(&["man", "--out", out.to_str().expect("path")]);
    for command in COMMANDS {
        let page = fs::read_to_string(out.join(format!("thermocline-{command}.1")));
        let page = page.unwrap_or_else(|e| panic!("{command}: {e}"));
        assert!(
            page.contains(".TH thermocline\\-") || page.contains(".TH thermocline-"),
            "{page}"
        );
        assert!(page.contains("Exit codes"), "{command}: {page}");
    }
    let index = fs::read_to_string(out.join("thermocline.1")).expect("main page");
    assert!(index.contains("thermocline\\-mount"), "{index}");
    assert!(out.join("thermocline-trace-info.1").exists());
}

#[test]
fn completions_for_every_shell_know_the_options() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = success(&["completions", shell]);
        assert!(script.contains("emulate-base"), "{shell}");
        let lists_values = ["bash", "zsh", "fish"].contains(&shell);
        assert!(
            !lists_values || script.contains("clock"),
            "{shell}: policies"
        );
    }
    failure(&["completions", "tcsh"], 2);
}

#[test]
fn the_printed_defaults_check_clean() {
    let directory = tempfile::tempdir().expect("dir");
    let file = directory.path().join("t.toml");
    fs::write(&file, success(&["config", "--defaults"])).expect("write");
    let path = file.to_str().expect("path");
    assert_eq!(success(&["config", "--check", path]), success(&["config"]));
    let json = success(&["config", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["tier"]["policy"], "default");
}

#[test]
fn a_wrong_configuration_names_file_line_and_setting() {
    let directory = tempfile::tempdir().expect("dir");
    let file = directory.path().join("t.toml");
    fs::write(&file, "[tier]\n\npage_sise = \"8k\"\n").expect("write");
    let path = file.to_str().expect("path");
    let message = failure(&["config", "--check", path], 2);
    assert!(
        message.contains("t.toml line 3") && message.contains("page_sise"),
        "{message}"
    );
    assert!(message.contains("try: "), "{message}");
    fs::write(&file, "[tier]\nsize = \"8 gigs\"\n").expect("write");
    let message = failure(&["config", "--check", path], 2);
    assert!(
        message.contains("8 gigs") && message.contains("8GiB"),
        "{message}"
    );
    failure(&["config", "--check", "/nonexistent.toml"], 1);
    fs::write(&file, "[tier]\ndrive_writes_per_day = 2\n").expect("write");
    let message = failure(&["config", "--check", path], 2);
    assert!(
        message.contains("t.toml: 2 drive writes a day") && message.contains("tier.policy"),
        "{message}"
    );
    fs::write(
        &file,
        "[tier]\ndrive_writes_per_day = 2\npolicy = \"value\"\n",
    )
    .expect("write");
    success(&["config", "--check", path]);
}

#[test]
fn wrong_command_lines_end_with_2_and_name_the_value() {
    let size = failure(&["mount", "/a", "/b", "--cache", "c", "--size", "8X"], 2);
    assert!(
        size.contains("\"8X\"") && size.contains("8GiB") && size.contains("--size"),
        "{size}"
    );
    let policy = failure(&["policy", "/mnt", "magic"], 2);
    assert!(policy.contains("tac"), "{policy}");
    failure(&["mount", "/a"], 2);
    failure(&["nonsense"], 2);
    failure(&["status", "/mnt", "--json", "--live"], 2);
}

#[test]
fn commands_on_a_directory_that_is_no_mount_end_with_5() {
    let directory = tempfile::tempdir().expect("dir");
    let path = directory.path().to_str().expect("path");
    let all: [&[&str]; 5] = [
        &["status", path],
        &["status", path, "--json"],
        &["policy", path, "lru"],
        &["tier", path, "off"],
        &["umount", path],
    ];
    for arguments in all {
        let message = failure(arguments, 5);
        assert!(
            message.contains(path) && message.contains("try: "),
            "{message}"
        );
    }
}

#[test]
fn traces_are_converted_and_summarised() {
    let directory = tempfile::tempdir().expect("dir");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (lis, parquet, oracle) = (path("a.lis"), path("a.parquet"), path("a.oracleGeneral"));
    fs::write(&lis, "0 16 0 0\n8 8 0 1\n").expect("write");
    let said = success(&["trace", "convert", &lis, &parquet]);
    assert!(said.contains("parquet of 2 requests, "), "{said}");
    let info = success(&["trace", "info", &parquet, "--json"]);
    assert!(info.contains("\"distinct_pages\": 16"), "{info}");
    let said = success(&["trace", "convert", &lis, &oracle, "--page-size", "4KiB"]);
    assert!(
        said.contains("2 requests split into 3 pages of 4096 B"),
        "{said}"
    );
    let info = success(&["trace", "info", &oracle]);
    assert!(info.contains("2 different ones, of unknown size"), "{info}");
    let again = failure(&["trace", "convert", &lis, &oracle], 2);
    assert!(again.contains("there already"), "{again}");
    let onto = failure(&["trace", "convert", &lis, &lis, "--force"], 2);
    assert!(onto.contains("onto itself"), "{onto}");
}

#[test]
fn a_trace_is_not_converted_onto_its_own_parts() {
    let directory = tempfile::tempdir().expect("dir");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (lis, first, second) = (path("a.lis"), path("q.parquet"), path("q.0002.parquet"));
    fs::write(&lis, "0 16 0 0\n8 8 0 1\n").expect("write");
    success(&["trace", "convert", &lis, &second]);
    fs::copy(&second, path("kept")).expect("copies");
    fs::copy(&second, &first).expect("copies");
    // Over a part that is read, and over a trace whose later part is read, which would go with it.
    for (from, to) in [(&first, &second), (&second, &first)] {
        let said = failure(&["trace", "convert", from, to, "--force"], 2);
        assert!(said.contains("is read: it would be lost"), "{said}");
    }
    // The same under a link, whose own name has no parts.
    let link = path("latest.parquet");
    std::os::unix::fs::symlink("q.parquet", &link).expect("links");
    let said = failure(&["trace", "convert", &second, &link, "--force"], 2);
    assert!(said.contains("is read: it would be lost"), "{said}");
    let csv = path("q.csv");
    success(&["trace", "convert", &first, &csv]);
    let kept = fs::read(path("kept")).expect("reads");
    for part in [&first, &second] {
        assert!(fs::read(part).expect("reads") == kept, "{part}");
    }
}

#[test]
fn page_sizes_of_traces_in_pages_are_refused() {
    let directory = tempfile::tempdir().expect("dir");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (pages, bytes, out) = (path("pages.csv"), path("bytes.csv"), path("out.parquet"));
    fs::write(&pages, "page\n1\n2\n").expect("write");
    for command in [
        &["trace", "info", &pages][..],
        &["trace", "convert", &pages, &out],
    ] {
        let said = failure(&[command, &["--page-size", "64KiB"]].concat(), 2);
        assert!(said.contains("the trace counts in pages"), "{said}");
    }
    let said = failure(&["trace", "info", &pages, "--action", "D"], 2);
    assert!(said.contains("leave --action out"), "{said}");
    // Without a page size pages are those of the simulator.
    fs::write(&bytes, "offset,length\n0,8192\n4096,4096\n").expect("write");
    let info = success(&["trace", "info", &bytes, "--json"]);
    assert!(info.contains("\"distinct_pages\": 2"), "{info}");
    let lru = ["--policy", "lru", "--flash", "1p"];
    let said = success(&[&["simulate", &bytes][..], &lru].concat());
    assert!(said.contains("4.0 KiB"), "{said}");
}

#[test]
fn malformed_traces_are_refused_with_their_place() {
    let directory = tempfile::tempdir().expect("dir");
    let path = directory.path().join("a.csv");
    let name = path.display().to_string();
    fs::write(&path, "ts,block\n1,5\n2,-5\n").expect("write");
    let message = failure(&["trace", "info", &name], 1);
    assert!(message.contains("the columns are ts, block"), "{message}");
    let columns = ["trace", "info", &name, "--columns", "time=ts,page=block"];
    let message = failure(&columns, 1);
    assert!(
        message.contains("line 3: column \"block\": \"-5\" is negative"),
        "{message}"
    );
    let message = failure(&["trace", "info", &name, "--unit", "0"], 2);
    assert!(message.contains("--unit"), "{message}");
}

/// As under `| head`: no message, no panic.
#[test]
fn a_reader_who_has_seen_enough_ends_a_command_quietly() {
    let commands: [&[&str]; 4] = [
        &["completions", "bash"],
        &["config", "--defaults"],
        &["config", "--json"],
        &["policies"],
    ];
    for arguments in commands {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
        command.args(arguments).stdout(writer);
        let output = command.output().expect("runs");
        assert_eq!(output.status.code(), Some(141), "{arguments:?}");
        assert_eq!(text(&output.stderr), "", "{arguments:?}");
    }
}

const READ: TraceRecord = TraceRecord {
    time_ns: 0,
    client: 0,
    op: Op::Read,
    served: Served::Base,
    object: ObjectId(0),
    offset: 0,
    length: 4096,
    latency_ns: 0,
    hints: HintSet::UNKNOWN,
};

#[test]
fn a_sample_in_a_format_that_does_not_say_so_is_told() {
    let directory = tempfile::tempdir().expect("dir");
    let path = |name: &str| directory.path().join(name);
    let options = RecorderOptions {
        sample: Sample::of(0.5).expect("a share"),
        ..RecorderOptions::default()
    };
    let recorder = Recorder::create(path("s.parquet"), options).expect("creates");
    recorder.record(READ);
    recorder.finish().expect("finishes");
    let convert = |from: &str, to: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
        command
            .args(["trace", "convert"])
            .arg(path(from))
            .arg(path(to));
        let output = command.output().expect("runs");
        assert!(output.status.success());
        text(&output.stderr)
    };
    let note = convert("s.parquet", "s.csv");
    assert!(note.contains("50.0 % of all extents"), "{note}");
    assert_eq!(convert("s.parquet", "copy.parquet"), "");
    assert_eq!(convert("s.csv", "whole.csv"), "");
}

#[test]
fn a_sample_keeps_the_page_size_that_its_extents_have() {
    let directory = tempfile::tempdir().expect("dir");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let sample = path("s.parquet");
    let options = RecorderOptions {
        sample: Sample::of(0.5).expect("a share"),
        page_size: 8192,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::create(&sample, options).expect("creates");
    recorder.record(READ);
    recorder.finish().expect("finishes");
    let other = path("t.parquet");
    for size in ["64KiB", "512"] {
        let convert = ["trace", "convert", &sample, &other, "--page-size", size];
        for line in [&convert[..], &[&convert[..], &["--split"]].concat()] {
            let said = failure(line, 2);
            assert!(said.contains("by extents of 32 pages of 8192 B"), "{said}");
            assert!(said.contains("try: --page-size 8192"), "{said}");
            assert!(!Path::new(&other).exists(), "{line:?}");
        }
    }
    let (csv, oracle) = (path("t.csv"), path("t.oracleGeneral"));
    for (to, size) in [(&other, "8KiB"), (&csv, "64KiB"), (&oracle, "4KiB")] {
        success(&["trace", "convert", &sample, to, "--page-size", size]);
    }
}

#[test]
fn only_files_of_one_recording_are_one_trace() {
    let directory = tempfile::tempdir().expect("dir");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let (a, b) = (path("a.csv"), path("b.csv"));
    for name in [&a, &b] {
        std::fs::write(name, "op,offset,length\nr,0,4096\n").expect("written");
    }
    let message = failure(&["trace", "info", &a, &b], 2);
    assert!(message.contains("a.csv: it is not Parquet"), "{message}");
    assert!(message.contains("one trace at a time"), "{message}");
}

//! `thermocline simulate` as a built command: figures, forms of output, errors.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn simulate(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    command
        .arg("simulate")
        .args(arguments)
        .output()
        .expect("runs")
}

fn success(arguments: &[&str]) -> String {
    let output = simulate(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The message of a command line that must be refused.
fn failure(arguments: &[&str], code: i32) -> String {
    let output = simulate(arguments);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {message}");
    assert!(message.starts_with("error: "), "{arguments:?}: {message}");
    message
}

/// A `.lis` trace: a loop over 100 blocks, then 40 I/Os of 4 blocks that all are in it.
fn trace(directory: &Path) -> PathBuf {
    let mut text = String::new();
    for number in 0..300 {
        let _ = writeln!(text, "{} 1 0 {number}", number % 100);
    }
    for number in 300..340 {
        let _ = writeln!(text, "{} 4 0 {number}", number % 25 * 4);
    }
    let path = directory.join("loop.lis");
    fs::write(&path, text).expect("writes");
    path
}

fn json(arguments: &[&str]) -> Vec<serde_json::Value> {
    let text = success(arguments);
    serde_json::from_str(&text).expect("an array of objects")
}

#[test]
fn json_has_one_object_for_each_policy_and_size() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let path = path.to_str().expect("path");
    let sizes = "10%,10p,51200,100p";
    let runs = json(&[path, "--policy", "lru,fifo,opt", "--flash", sizes, "--json"]);
    // Sizes that are the same are run once.
    assert_eq!(runs.len(), 6);
    for run in &runs {
        let number = |field: &str| {
            run[field]
                .as_u64()
                .unwrap_or_else(|| panic!("{field}: {run}"))
        };
        assert_eq!(number("requests"), 460);
        assert_eq!(number("hits") + number("misses"), number("requests"));
        assert_eq!(number("reads"), number("read_hits") + number("base_reads"));
        assert_eq!(number("base_writes"), 0);
        assert_eq!(number("compulsory_misses"), 100);
        assert!(run["device_ms"].as_f64().expect("a number") > 0.0);
        assert!(run["flash_writes"].is_u64() && run["policy"].is_string());
    }
    let pages: Vec<_> = runs
        .iter()
        .map(|run| run["capacity_pages"].as_u64())
        .collect();
    let expected = [10, 100].map(|pages| [Some(pages); 3]).concat();
    assert_eq!(pages, expected);
    // A loop is the worst for LRU and FIFO, until all of it fits.
    assert_eq!(runs[0]["misses"], 460);
    assert_eq!(runs[1]["misses"], 460);
    assert!(runs[2]["misses"].as_u64() < Some(460));
    for run in &runs[3..] {
        assert_eq!(run["misses"], 100);
        assert_eq!(run["ios"], 340);
    }
}

#[test]
fn the_table_names_what_was_done_and_the_picture_stands_alone() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let html = directory.path().join("out.html");
    let (path, html_path) = (path.to_str().expect("path"), html.to_str().expect("path"));
    let arguments = [
        path, "--policy", "all", "--flash", "5%,50%", "--html", html_path,
    ];
    let text = success(&arguments);
    let facts = [
        "340 I/Os, split into 460 requests",
        "100 different",
        "(model)",
        "of OPT",
    ];
    for part in facts.iter().chain(thermocline_core::policy::NAMES) {
        assert!(text.contains(part), "{part} not in: {text}");
    }
    let page = fs::read_to_string(html).expect("the picture");
    assert!(page.contains("<svg") && page.contains("<title>lru: "));
    assert!(!page.contains("<script") && !page.contains("http"));
    the_picture_can_be_read(&page);
    let last = text
        .lines()
        .rfind(|line| line.starts_with("None is faster than base alone over these 2 sizes"));
    let last = last.unwrap_or_else(|| panic!("no conclusion in: {text}"));
    assert!(
        last.contains("another day may have another order"),
        "{last}"
    );
    assert!(page.contains(last), "the page ends as the text does");
    // The tables begin with what did most I/Os per second.
    let rows: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("flash 5 pages"))
        .skip(2)
        .take_while(|line| !line.trim().is_empty())
        .collect();
    let rate = |row: &str| {
        let cells: Vec<&str> = row.split("   ").filter(|cell| !cell.is_empty()).collect();
        let text = cells[9].trim().replace(',', "");
        text.parse::<f64>()
            .unwrap_or_else(|_| panic!("no rate in: {row}"))
    };
    let rates: Vec<f64> = rows[..rows.len() - 1].iter().map(|row| rate(row)).collect();
    assert!(
        rates.len() > 20 && rates.is_sorted_by(|a, b| a >= b),
        "{rates:?}"
    );
}

/// Each picture has five lines in colour with a name each; no name lies over another or below the
/// axis; the axis ends with a label.
fn the_picture_can_be_read(page: &str) {
    for picture in page.split("<svg").skip(1) {
        let picture = picture.split("</svg>").next().expect("an end");
        let lines = picture.split("<path class='line' stroke='").skip(1);
        let colours: Vec<&str> = lines.filter_map(|line| line.split('\'').next()).collect();
        let different: std::collections::BTreeSet<&str> = colours.iter().copied().collect();
        // OPT is as dark as its bound, which has dots.
        assert_eq!((colours.len(), different.len()), (6, 6), "{colours:?}");
        let heights: Vec<f64> = picture
            .split("<text class='name'")
            .skip(1)
            .map(|label| {
                label
                    .split(" y='")
                    .nth(1)
                    .and_then(|y| y.split('\'').next())
            })
            .map(|y| y.and_then(|y| y.parse().ok()).expect("a number"))
            .collect();
        assert!(heights.len() >= 6, "{heights:?}");
        assert!(
            heights.windows(2).all(|pair| pair[1] - pair[0] >= 15.9),
            "{heights:?}"
        );
        assert!(heights.iter().all(|y| *y < 380.0), "{heights:?}");
    }
}

#[test]
fn a_warm_up_is_not_counted_and_clients_change_time_only() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let path = path.to_str().expect("path");
    let common = [path, "--policy", "lru", "--flash", "100p", "--json"];
    let warm = json(&[&common[..], &["--warm-up", "50%"]].concat());
    assert_eq!(
        (&warm[0]["requests"], &warm[0]["misses"]),
        (&230.into(), &0.into())
    );
    let one = json(&common);
    let ssd = ["--base", "ssd", "--clients", "8"];
    let eight = json(&[&common[..], &ssd].concat());
    assert_eq!(one[0]["misses"], eight[0]["misses"]);
    assert!(one[0]["elapsed_ms"].as_f64() > eight[0]["elapsed_ms"].as_f64());
}

#[test]
fn errors_name_the_value_and_the_way_out() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let path = path.to_str().expect("path");
    let cases: [(&[&str], &[&str]); 7] = [
        (&[path, "--flash", "7x%"], &["7x%"]),
        (
            &[path, "--flash", "0.1%"],
            &["--flash 0.1%", "not one page"],
        ),
        (&[path, "--policy", "magic"], &["magic", "lru", "opt"]),
        (
            &[path, "--base", "floppy"],
            &["--base floppy", "hdd", "calibrate"],
        ),
        (&[path, "--warm-up", "9999"], &["9999", "460", "--warm-up"]),
        (
            &[path, "--policy", "opt", "--memory", "1k"],
            &["--memory", "opt"],
        ),
        (&[path, "--noise", "8"], &["--noise", "15"]),
    ];
    for (arguments, parts) in cases {
        let message = failure(arguments, 2);
        for part in parts {
            assert!(message.contains(part), "{part} not in: {message}");
        }
    }
    let missing = failure(&["/nonexistent/trace"], 1);
    assert!(missing.contains("/nonexistent/trace"), "{missing}");
}

#[test]
fn a_trace_that_does_not_fit_in_memory_gives_the_same_counts() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let path = path.to_str().expect("path");
    let common = [path, "--policy", "lru,tac", "--flash", "30p,80p", "--json"];
    let (kept, streamed) = (
        json(&common),
        json(&[&common[..], &["--memory", "1k"]].concat()),
    );
    for (kept, streamed) in kept.iter().zip(&streamed) {
        for field in ["misses", "flash_writes", "compulsory_misses", "device_ms"] {
            assert_eq!(kept[field], streamed[field], "{field}");
        }
        assert!(kept["opt_share"].is_number() && streamed["opt_share"].is_null());
    }
}

#[test]
fn parameters_reach_the_policies() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let path = path.to_str().expect("path");
    let window = |arguments: &[&str]| -> Vec<(String, u64)> {
        let asked = [
            "--policy",
            "clic,dp-clic",
            "--flash",
            "10p",
            "--learned",
            "--json",
        ];
        let runs = json(&[&[path][..], &asked, arguments].concat());
        let of = |run: &serde_json::Value| {
            let name = run["policy"].as_str().expect("a name").to_string();
            (name, run["learned"]["window"].as_u64().expect("a window"))
        };
        runs.iter().map(of).collect()
    };
    let pairs = |pairs: &[(&str, u64)]| -> Vec<(String, u64)> {
        pairs
            .iter()
            .map(|(name, window)| (name.to_string(), *window))
            .collect()
    };
    let set = ["--set", "clic.window=77", "--set", "dp-clic.window=88"];
    assert_eq!(window(&set), pairs(&[("clic", 77), ("dp-clic", 88)]));
    let file = directory.path().join("t.toml");
    fs::write(&file, "[clic]\nwindow = 55\n").expect("writes");
    let config = ["--config", file.to_str().expect("path")];
    let both = [
        &config[..],
        &["--set", "dp-clic.window=88", "--preset", "paper"],
    ]
    .concat();
    let papers = [
        ("clic", 55),
        ("clic:paper", 1_000_000),
        ("dp-clic", 88),
        ("dp-clic:paper", 88),
    ];
    assert_eq!(window(&both), pairs(&papers));
    let text = success(&[
        path, "--policy", "clic", "--flash", "10p", "--preset", "paper",
    ]);
    assert!(
        text.contains("clic:paper window 1000000 (default 0: 2 a slot"),
        "{text}"
    );
}

#[test]
fn wrong_parameters_name_what_there_is() {
    for (setting, part) in [
        ("magic.window=1", "those with parameters are tac"),
        ("clic.widow=1", "there are window"),
        ("clic.smoothing=2", "must be above 0 and at most 1"),
    ] {
        let message = failure(&["none.lis", "--set", setting], 2);
        assert!(message.contains(part), "{message}");
    }
}

/// `auto` knows no allowance, here as on a mount.
#[test]
fn drive_writes_are_no_matter_of_auto() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let path = path.to_str().expect("path");
    let option = ["--flash", "50p", "--drive-writes-per-day", "1"];
    let message = failure(
        &[&[path, "--policy", "value,auto"], &option[..]].concat(),
        2,
    );
    let said = "1 drive writes a day are no matter of the policy auto";
    assert!(message.contains(said), "{message}");
    for policies in [&[][..], &["--policy", "all"]] {
        let run = [&[path, "--json"], policies, &option[..]].concat();
        let text = success(&run);
        assert!(
            text.contains("\"tac\"") && !text.contains("\"auto\""),
            "{text}"
        );
    }
}

/// What comes through a pipe can be read once.
#[test]
fn a_trace_may_come_through_a_pipe() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let options = ["--policy", "lru", "--flash", "50p", "--json"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    command.args(["simulate", "/dev/stdin", "--from", "lis"]);
    command
        .args(options)
        .stdin(File::open(&path).expect("opens"));
    let direct = command.output().expect("runs");
    let mut cat = Command::new("cat");
    let mut cat = cat.arg(&path).stdout(Stdio::piped()).spawn().expect("cat");
    command.stdin(cat.stdout.take().expect("piped"));
    let piped = command.output().expect("runs");
    cat.wait().expect("ends");
    assert!(piped.status.success(), "{piped:?}");
    assert_eq!(piped.stdout, direct.stdout);
}

#[test]
fn drive_writes_are_a_number_from_0() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let path = path.to_str().expect("path");
    for writes in ["nan", "-1", "inf", "some"] {
        let option = format!("--drive-writes-per-day={writes}");
        let message = failure(&[path, "--policy", "value", "--flash", "50p", &option], 2);
        assert!(message.contains("is not a number from 0"), "{message}");
    }
}

#[test]
fn later_parts_of_a_recording_are_no_clients_of_their_own() {
    let directory = tempfile::tempdir().expect("dir");
    let lis = trace(directory.path());
    let parts = ["t.parquet", "t.0002.parquet"].map(|name| directory.path().join(name));
    for part in &parts {
        let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
        let converted = command
            .args(["trace", "convert"])
            .arg(&lis)
            .arg(part)
            .output();
        assert!(converted.expect("runs").status.success());
    }
    let [first, second] = parts.each_ref().map(|part| part.to_str().expect("path"));
    let common = ["--policy", "lru", "--flash", "30p", "--json"];
    let named_once = simulate(&[&[first][..], &common].concat());
    let by_the_shell = simulate(&[&[second, first][..], &common].concat());
    assert!(named_once.status.success() && by_the_shell.status.success());
    assert!(named_once.stdout == by_the_shell.stdout);
    let note = String::from_utf8_lossy(&by_the_shell.stderr).into_owned();
    assert!(
        note.contains(second) && note.contains("later part"),
        "{note}"
    );
    assert!(named_once.stderr.is_empty());
}

#[test]
fn a_picture_does_not_go_over_a_trace() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let before = fs::read(&path).expect("reads");
    let link = directory.path().join("link.html");
    fs::hard_link(&path, &link).expect("link");
    for output in [&path, &link] {
        let [path, output] = [&path, output].map(|path| path.to_str().expect("path"));
        let message = failure(&[path, "--html", output], 2);
        assert!(message.contains("would be lost"), "{message}");
    }
    assert!(fs::read(&path).expect("reads") == before);
}

#[test]
fn there_is_no_share_of_opt_under_a_pool() {
    let directory = tempfile::tempdir().expect("dir");
    let path = directory.path().join("loop.ids");
    fs::write(&path, "0\n1\n2\n3\n4\n5\n6\n".repeat(300)).expect("writes");
    let path = path.to_str().expect("path");
    let common = [path, "--flash", "2p", "--policy", "mv-fifo,opt-bypass"];
    let shares = |pool: &str| {
        let runs = json(&[&common[..], &["--json", "--pool", pool]].concat());
        let shares = runs.iter().map(|run| run["opt_share"].as_f64());
        shares.collect::<Vec<_>>()
    };
    assert_eq!(shares("5p"), [None, None]);
    assert_eq!(shares("0")[1], Some(1.0));
}

#[test]
fn columns_are_not_passed_over() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let path = path.to_str().expect("path");
    let message = failure(&[path, "--from", "lis", "--columns", "page=a"], 2);
    assert!(message.contains("leave --columns out"), "{message}");
    let message = failure(&[path, "--columns", "page=a"], 1);
    assert!(message.contains("column \"a\""), "{message}");
}

#[test]
fn a_full_disk_leaves_the_picture_that_was_there() {
    let directory = tempfile::tempdir().expect("dir");
    let path = trace(directory.path());
    let picture = directory.path().join("keep.html");
    fs::write(&picture, "<!doctype html>the old one").expect("writes");
    // A limit on the length of files in place of a full disk: 2 blocks of 512 or 1024 bytes.
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' XFSZ; ulimit -f 2; exec \"$0\" \"$@\""])
        .arg(env!("CARGO_BIN_EXE_thermocline"))
        .args(["simulate", "--policy", "lru", "--flash", "10p", "--html"])
        .args([&picture, &path]);
    let output = command.output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("keep.html"), "{said}");
    let left = fs::read_to_string(&picture).expect("reads");
    assert_eq!(left, "<!doctype html>the old one");
    let files = fs::read_dir(directory.path()).expect("lists").count();
    assert_eq!(files, 2, "nothing half written is left");
}

#[test]
fn a_pipe_is_read_once_and_what_needs_it_again_says_so() {
    let directory = tempfile::tempdir().expect("dir");
    let bytes = fs::read(trace(directory.path())).expect("reads");
    let pipe = directory.path().join("pipe.lis");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("runs");
    assert!(made.success());
    // The limit only ends a test that would hang.
    let run = |command: &str, options: &[&str]| {
        let (to, bytes) = (pipe.clone(), bytes.clone());
        let writer = std::thread::spawn(move || fs::write(to, bytes));
        let mut limited = Command::new("timeout");
        limited.arg("60").arg(env!("CARGO_BIN_EXE_thermocline"));
        let output = limited.arg(command).arg(&pipe).args(options).output();
        let _broken_or_not = writer.join().expect("ends");
        output.expect("runs")
    };
    let lru = ["--policy", "lru", "--flash", "10p"];
    assert!(run("simulate", &lru).status.success());
    let short = run("simulate", &[&lru[..], &["--memory", "1KiB"]].concat());
    let part = run("advise", &["--begin", "50%", "--size", "10p"]);
    for output in [short, part] {
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("pipe.lis is no regular file"), "{said}");
        assert!(said.contains("write it to a file"), "{said}");
    }
}

#[test]
fn calibrated_costs_hold_for_pages_of_any_size() {
    let directory = tempfile::tempdir().expect("dir");
    let [costs, path] = ["costs.toml", "long.csv"].map(|name| directory.path().join(name));
    let text = "[tier]\npage_size = \"8KiB\"\n[costs]\nbase_random_read_us = 8000.0\n\
                base_sequential_read_us = 50.0\n";
    fs::write(&costs, text).expect("writes");
    let mut text = "offset,length\n".to_string();
    for number in 0..200u64 {
        let _ = writeln!(text, "{},1048576", (number * 7 % 200) << 24);
    }
    fs::write(&path, text).expect("writes");
    let (costs, path) = (costs.to_str().expect("path"), path.to_str().expect("path"));
    let took = |page_size: &str| {
        let tier = [
            "--flash", "1p", "--policy", "lru", "--base", costs, "--json",
        ];
        let output = simulate(&[&[path, "--page-size", page_size][..], &tier].concat());
        let note = String::from_utf8_lossy(&output.stderr).into_owned();
        let own = page_size == "8KiB";
        assert_eq!(
            note.matches("has costs of pages of 8.0 KiB").count(),
            usize::from(!own)
        );
        let runs: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        runs[0]["base_device_ms"].as_f64().expect("a number")
    };
    let expected = took("8KiB");
    for page_size in ["4KiB", "64KiB"] {
        let found = took(page_size);
        assert!(
            (found / expected - 1.0).abs() < 0.01,
            "{page_size}: {found} {expected}"
        );
    }
}

#[test]
fn a_tier_whose_tables_do_not_fit_into_memory_is_refused() {
    let directory = tempfile::tempdir().expect("dir");
    let path = directory.path().join("few.csv");
    fs::write(&path, "offset,length\n0,65536\n65536,65536\n").expect("writes");
    let run = |command: &[&str]| {
        let mut limited = Command::new("sh");
        limited
            .args(["-c", "ulimit -v 4000000; exec \"$0\" \"$@\""])
            .arg(env!("CARGO_BIN_EXE_thermocline"))
            .args(command)
            .arg(&path)
            .args(["--page-size", "64KiB"]);
        limited.output().expect("runs")
    };
    // 2^28 pages.
    for command in [
        &["simulate", "--policy", "lru", "--flash", "16TiB"],
        &["mrc", "--policy", "fifo", "--sizes", "16TiB"],
        &["plan", "--policy", "lru", "--flash", "16TiB"],
        &["advise", "--policy", "lru", "--sizes", "16TiB"],
        &["advise", "--policy", "lru", "--size", "4TiB"],
    ] {
        let output = run(command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
        assert!(said.contains("268,435,456 slots"), "{said}");
    }
    let output = run(&["simulate", "--policy", "lru", "--flash", "1p"]);
    assert!(output.status.success());
    // One stack has every size of LRU, and needs no tables.
    let output = run(&["mrc", "--policy", "lru", "--sizes", "16TiB"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    // Tiers of other policies are all there at once, whatever the threads: one alone would fit.
    let sizes = ["--sizes", "4TiB,5TiB", "--threads", "1"];
    let output = run(&[&["mrc", "--policy", "fifo"][..], &sizes].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("up to 83,886,080 slots"), "{said}");
    assert!(
        said.contains("a smaller --rate") && !said.contains("--threads"),
        "{said}"
    );
    // What was not given is not named, and the way out that helps is.
    let output = run(&["advise", "--size", "4TiB"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.starts_with("error: advise needs tables"), "{said}");
    assert!(said.contains("--keep-size, a smaller --sample"), "{said}");
}

#[test]
fn joint_and_replay_refuse_tables_that_do_not_fit_into_memory() {
    let directory = tempfile::tempdir().expect("dir");
    let path = directory.path().join("long.csv");
    // 2^20 pages.
    fs::write(&path, "offset,length\n0,536870912\n").expect("writes");
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (base, cache) = (at("base"), at("cache"));
    let files = ["--directory", &base, "--cache", &cache];
    let joint = ["joint", "--database", "0.01", "--combination", "lru+lc"];
    let replay = ["replay", "--policy", "none,lru", "--size", "50GiB"];
    for (command, option, way) in [
        (&joint[..], "--database", "a larger --database"),
        (&[&replay[..], &files].concat(), "--size", "a smaller size"),
    ] {
        let mut limited = Command::new("sh");
        limited
            .args(["-c", "ulimit -v 2000000; exec \"$0\" \"$@\""])
            .arg(env!("CARGO_BIN_EXE_thermocline"))
            .args(command)
            .arg(&path)
            .args(["--page-size", "512"]);
        let output = limited.output().expect("runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
        assert!(said.contains(&format!("{option} needs tables")), "{said}");
        assert!(said.contains(way), "{said}");
    }
    assert!(!Path::new(&base).exists() && !Path::new(&cache).exists());
}

fn thermocline(directory: &Path, line: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    command.current_dir(directory).args(line.split_whitespace());
    let output = command.output().expect("runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

#[test]
fn a_picture_replaces_pictures_alone() {
    let directory = tempfile::tempdir().expect("dir");
    let at = directory.path();
    trace(at);
    let settings = "[costs]\nbase_random_read_us = 5000.0\n";
    fs::write(at.join("c.toml"), settings).expect("written");
    std::os::unix::fs::symlink("c.toml", at.join("link")).expect("link");
    fs::write(at.join("notes.txt"), "mine").expect("written");
    fs::write(at.join("advice.json"), "[]").expect("written");
    let size = "--flash 10%";
    for (line, kept) in [
        (
            format!("plan loop.lis {size} --base c.toml --html c.toml"),
            "which is read",
        ),
        (
            format!("simulate loop.lis {size} --base c.toml --html link"),
            "which is read",
        ),
        (
            format!("simulate loop.lis {size} --policy tac --config c.toml --html c.toml"),
            "which is read",
        ),
        (
            format!("simulate loop.lis {size} --policy lru --html notes.txt"),
            "is no web page",
        ),
        (
            "mrc loop.lis --policy tac --config c.toml --html c.toml".to_string(),
            "which is read",
        ),
        (
            "mrc loop.lis --html notes.txt".to_string(),
            "is no web page",
        ),
        (
            "joint loop.lis --database 2 --config c.toml --html c.toml".to_string(),
            "which is read",
        ),
        (
            "joint loop.lis --database 2 --html notes.txt".to_string(),
            "is no web page",
        ),
        (
            format!("plan loop.lis {size} --html notes.txt"),
            "is no web page",
        ),
        (
            "advise loop.lis --base c.toml --html c.toml".to_string(),
            "which is read",
        ),
        (
            "advise loop.lis --base c.toml --placements c.toml".to_string(),
            "which is read",
        ),
        (
            "advise loop.lis --html notes.txt".to_string(),
            "is no web page",
        ),
        ("demo --out notes.txt".to_string(), "is no web page"),
    ] {
        let (code, said) = thermocline(at, &line);
        assert_eq!(code, Some(2), "{line}: {said}");
        assert!(
            said.contains(kept) && said.contains("\n  try: "),
            "{line}: {said}"
        );
        assert_eq!(
            fs::read_to_string(at.join("c.toml")).expect("read"),
            settings
        );
        assert_eq!(
            fs::read_to_string(at.join("notes.txt")).expect("read"),
            "mine"
        );
    }
    for page in ["<!DOCTYPE html><p>", ""] {
        fs::write(at.join("page.html"), page).expect("written");
        let line = format!("simulate loop.lis {size} --policy lru --html page.html");
        let (code, said) = thermocline(at, &line);
        assert_eq!(code, Some(0), "{said}");
        let (code, said) = thermocline(at, &line);
        assert_eq!(code, Some(0), "{said}");
    }
}

#[test]
fn a_cost_beyond_all_devices_is_refused_by_its_name() {
    let directory = tempfile::tempdir().expect("dir");
    let at = directory.path();
    trace(at);
    for (name, cost) in [
        ("base_random_read_us", "1e308"),
        ("flash_write_us", "1.1e9"),
    ] {
        fs::write(at.join("c.toml"), format!("[costs]\n{name} = {cost}\n")).expect("written");
        for line in [
            "simulate loop.lis --policy tac --flash 10% --base c.toml",
            "plan loop.lis --base c.toml",
        ] {
            let (code, said) = thermocline(at, line);
            assert_eq!(code, Some(2), "{line}: {said}");
            let part = format!("costs.{name} = ");
            assert!(
                said.contains(&part) && said.contains("1000000000"),
                "{said}"
            );
            assert!(said.contains("c.toml"), "{said}");
        }
    }
    fs::write(at.join("c.toml"), "[costs]\nbase_random_read_us = 1e9\n").expect("written");
    let (code, said) = thermocline(at, "plan loop.lis --base c.toml");
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_page_size_that_no_trace_can_have_is_refused_until_one_is_given() {
    let directory = tempfile::tempdir().expect("dir");
    let at = directory.path();
    trace(at);
    let (code, said) = thermocline(at, "trace convert loop.lis t.parquet --page-size 8KiB");
    assert_eq!(code, Some(0), "{said}");
    let mut bytes = fs::read(at.join("t.parquet")).expect("read");
    let key = b"thermocline.page_size";
    let place = bytes.windows(key.len()).position(|found| found == key);
    let place = place.expect("the size is there");
    let value = bytes[place..].windows(4).position(|found| found == b"8192");
    let value = place + value.expect("its value");
    for size in ["0001", "0003", "9999"] {
        bytes[value..value + 4].copy_from_slice(size.as_bytes());
        fs::write(at.join("odd.parquet"), &bytes).expect("written");
        for command in ["simulate", "plan", "mrc"] {
            let (code, said) = thermocline(at, &format!("{command} odd.parquet"));
            assert_eq!(code, Some(2), "{said}");
            let fact = format!(
                "odd.parquet has pages of {} B",
                size.trim_start_matches('0')
            );
            assert!(
                said.contains(&fact) && said.contains("--page-size"),
                "{said}"
            );
        }
        let line = "simulate odd.parquet --page-size 8KiB --policy lru --flash 2p";
        let (code, said) = thermocline(at, line);
        assert_eq!(code, Some(0), "{said}");
    }
}

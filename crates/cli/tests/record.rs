//! `record` on a running mount, and `advise` on what it records.

mod common;

use common::*;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Pages of the relation that is read at random, several times the cache.
const MANY: usize = 2000;

fn failure(command: &mut Command) -> String {
    let output = command.output().expect("runs");
    assert!(!output.status.success(), "{command:?} went well");
    message(&output)
}

fn json(command: &mut Command) -> Value {
    serde_json::from_str(&success(command)).expect("JSON")
}

/// Reads random pages of a relation of [`MANY`] pages until `over`.
fn read_at_random(ground: &Ground, over: &AtomicBool) {
    let file = File::open(ground.mountpoint().join("base/5/17000")).expect("open");
    let (mut page, mut buffer) = (1u64, vec![0; PAGE]);
    while !over.load(Ordering::Relaxed) {
        page = page.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (page >> 33) % MANY as u64;
        file.read_exact_at(&mut buffer, at * PAGE as u64)
            .expect("read");
        assert!(buffer.iter().all(|byte| *byte == 7), "page {at}");
    }
}

/// A mount of a cache that is smaller than the relation that is read.
fn prepared(case: &str) -> Option<Ground> {
    prepared_with(case, "")
}

/// The same with more options.
fn prepared_with(case: &str, options: &str) -> Option<Ground> {
    let ground = Ground::prepare(case)?;
    std::fs::write(ground.path("base/base/5/17000"), vec![7; MANY * PAGE]).expect("a file");
    ground.mounted(&format!("--size 4M --policy lru {options}"));
    Some(ground)
}

/// Does `work` while pages are read at random.
fn while_reading<T>(ground: &Ground, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| read_at_random(ground, &over));
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        over.store(true, Ordering::Relaxed);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[test]
fn a_running_mount_is_recorded_for_a_while() {
    let Some(ground) = prepared("record") else {
        return;
    };
    let record = |name: &str| {
        let mut command = thermocline("record");
        command.arg(ground.mountpoint()).arg(ground.path(name));
        command
    };
    let said = while_reading(&ground, || {
        json(record("a.parquet").args(["--for", "1s", "--json"]))
    });
    let requests = said["requests"].as_u64().expect("count");
    assert!(requests > 0, "{said}");
    assert_eq!(said["lost"], 0);
    let info = json(
        thermocline("trace")
            .args(["info", "--json"])
            .arg(ground.path("a.parquet")),
    );
    assert!(info.to_string().contains("base/5/17000"), "{info}");
    assert_eq!(ground.status("/mount/record"), "");

    let there = failure(&mut record("a.parquet"));
    assert!(there.contains("a.parquet is there already"), "{there}");
    for (name, part) in [
        ("base/x", "is inside"),
        ("mnt/x", "is inside"),
        ("no/x", "directory"),
    ] {
        let refused = failure(&mut record(name));
        assert!(refused.contains(part), "{name}: {refused}");
    }
    for length in ["0", "5y", "32d"] {
        let refused = failure(record("b.parquet").args(["--for", length]));
        assert!(refused.contains("is not a time"), "{refused}");
    }
    ground.umount();
}

#[test]
fn a_recording_outlives_its_command_and_ends_when_asked_or_with_the_mount() {
    let Some(ground) = prepared("record, stopped") else {
        return;
    };
    let begun = |name: &str| -> Child {
        let mut command = thermocline("record");
        command.arg(ground.mountpoint()).arg(ground.path(name));
        command.args(["--for", "1h"]).stdout(Stdio::null());
        let child = command.spawn().expect("starts");
        eventually("the recording", || {
            ground.said("record").contains("state running")
        });
        child
    };
    let mut first = begun("a.parquet");
    first.kill().expect("ends");
    first.wait().expect("ended");
    let path = ground.path("a.parquet").display().to_string();
    assert_eq!(ground.status("/mount/record"), path.as_str());
    let mut second = thermocline("record");
    let busy = failure(
        second
            .arg(ground.mountpoint())
            .arg(ground.path("b.parquet")),
    );
    assert!(
        busy.contains("is recorded already") && busy.contains("--stop"),
        "{busy}"
    );
    success(thermocline("record").arg(ground.mountpoint()).arg("--stop"));
    eventually("its end", || ground.said("record").contains("state done"));
    let mut third = begun("b.parquet");
    third.kill().expect("ends");
    third.wait().expect("ended");
    ground.read();
    ground.umount();
    let info = thermocline("trace")
        .arg("info")
        .arg(ground.path("b.parquet"))
        .output();
    let info = info.expect("runs");
    assert!(info.status.success(), "{}", message(&info));
}

#[test]
fn a_trace_is_written_under_the_name_that_was_given() {
    let Some(ground) = Ground::prepare("record, odd names") else {
        return;
    };
    ground.mounted("--size 4M");
    let record = |name: &[u8]| {
        let path = ground.path("").join(OsStr::from_bytes(name));
        let mut command = thermocline("record");
        command.arg(ground.mountpoint()).arg(&path);
        command.args(["--for", "1s"]);
        (command, path)
    };
    for name in [&b"a b.parquet "[..], b"line\n"] {
        let (mut command, path) = record(name);
        success(&mut command);
        assert!(path.exists(), "{path:?}");
    }
    let (mut command, path) = record(b"t\xe9");
    let refused = failure(&mut command);
    assert!(
        refused.contains("t\\xE9\" is not UTF-8") && refused.contains("\n  try: "),
        "{refused}"
    );
    assert!(!path.exists());
    ground.umount();
}

#[test]
fn only_what_a_command_records_is_stopped() {
    let Some(ground) = Ground::prepare("record, not stopped") else {
        return;
    };
    let stop = || {
        let mut command = thermocline("record");
        command.arg(ground.mountpoint()).arg("--stop");
        command
    };
    ground.mounted("--size 4M");
    let nothing = failure(&mut stop());
    assert!(nothing.contains("nothing is recorded at"), "{nothing}");
    ground.umount();

    let trace = ground.path("own.parquet").display().to_string();
    ground.mounted(&format!("--record {trace}"));
    let mut another = thermocline("record");
    another.arg(ground.mountpoint()).arg(ground.path("x"));
    for command in [&mut stop(), &mut another] {
        let refused = failure(command);
        assert!(
            refused.contains("at its start") && refused.contains("thermocline umount"),
            "{refused}"
        );
        assert!(!refused.contains("--stop"), "{refused}");
    }
    assert_eq!(ground.status("/mount/record"), trace.as_str(), "it goes on");
    ground.read();
    ground.umount();
    let info = json(thermocline("trace").args(["info", "--json"]).arg(&trace));
    assert!(info.to_string().contains("base/5/16384"), "{info}");
}

#[test]
fn a_running_mount_is_advised_on() {
    let Some(ground) = prepared("advise on a mount") else {
        return;
    };
    let advise = || {
        let mut command = thermocline("advise");
        command.arg(ground.mountpoint()).args(["--policies", "lru"]);
        command
    };
    let refused = failure(advise().args(["--for", "1s", "--keep-size"]));
    assert!(
        refused.contains("nothing was asked of the mount in 1 s"),
        "{refused}"
    );
    let lines = while_reading(&ground, || json(advise().args(["--for", "8s", "--json"])));
    let first = &lines[0];
    assert_eq!(first["kind"], "SIZE", "{lines:#}");
    assert_eq!(first["now"]["policy"], "lru");
    let count = |of: &str| ground.status(of).as_u64().expect("a count");
    let (slots, bytes) = (count("/stats/tier/slots"), count("/stats/tier/bytes"));
    assert_eq!(first["now"]["flash_bytes"], slots * PAGE as u64);
    // What is simulated is slots, and what is typed the length of a file that has them.
    let mountpoint = ground.mountpoint().display().to_string();
    let begin = format!("thermocline resize {mountpoint} --size ");
    let follow = |key: &str| {
        let command = first[key].as_str().expect("a command");
        assert!(command.starts_with(&begin), "{command}");
        success(
            thermocline("resize")
                .arg(ground.mountpoint())
                .args(["--size", &command[begin.len()..]]),
        );
        (count("/stats/tier/slots"), count("/stats/tier/bytes"))
    };
    let simulated = first["then"]["flash_bytes"].as_u64().expect("bytes") / PAGE as u64;
    let (larger, _) = follow("command");
    assert!(
        (simulated..simulated * 21 / 20).contains(&larger),
        "{larger} {simulated}"
    );
    assert_eq!(follow("undo"), (slots, bytes));
    ground.umount();
}

#[test]
fn advice_that_is_interrupted_leaves_no_recording() {
    let Some(ground) = prepared("advise, interrupted") else {
        return;
    };
    let temporary = ground.path("temporary");
    std::fs::create_dir(&temporary).expect("directory");
    let mut command = thermocline("advise");
    command.arg(ground.mountpoint()).args(["--for", "10m"]);
    command.env("TMPDIR", &temporary).stderr(Stdio::piped());
    let child = command.stdout(Stdio::null()).spawn().expect("starts");
    let state = |of: &str| ground.said("record").contains(of);
    eventually("the recording", || state("state running"));
    assert_eq!(std::fs::read_dir(&temporary).expect("reads").count(), 1);
    // SAFETY: a signal to a child of ours that was not waited for.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGTERM) }, 0);
    let output = child.wait_with_output().expect("ends");
    let said = message(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("ended by a signal"), "{said}");
    assert!(!state("state running"), "{}", ground.said("record"));
    assert_eq!(std::fs::read_dir(&temporary).expect("reads").count(), 0);
}

#[test]
fn a_mount_in_write_back_is_advised_on_as_it_is() {
    let Some(ground) = prepared_with("advise in write-back", "--write-back --pool 1M") else {
        return;
    };
    let lines = while_reading(&ground, || {
        let mut command = thermocline("advise");
        command.arg(ground.mountpoint());
        json(command.args(["--policies", "lru", "--for", "8s", "--json"]))
    });
    let now = &lines[0]["now"];
    assert_eq!(now["write_back"], true, "{lines:#}");
    assert_eq!(now["memory_bytes"], 1 << 20, "the pool");
    // A tenth of the cache is no slot of the policy.
    let count = |of: &str| ground.status(of).as_u64().expect("a count");
    let pages = count("/stats/tier/slots") + count("/stats/tier/reserve");
    assert_eq!(now["flash_bytes"], pages * PAGE as u64);
    let undo = lines[0]["undo"].as_str().expect("a command");
    assert!(undo.ends_with("--size 4MiB"), "{undo}");
    ground.umount();
}

#[test]
fn a_sample_of_the_requests_is_recorded_and_says_so() {
    let Some(ground) = prepared("record, sampled") else {
        return;
    };
    let record = |name: &str, share: &str| {
        let mut command = thermocline("record");
        command.arg(ground.mountpoint()).arg(ground.path(name));
        command.args(["--for", "1s", "--share", share]);
        command
    };
    while_reading(&ground, || success(&mut record("a.parquet", "25%")));
    let path = ground.path("a.parquet");
    let info = json(thermocline("trace").args(["info", "--json"]).arg(&path));
    assert_eq!(info["sample"], 0.25);
    let text = success(thermocline("trace").arg("info").arg(&path));
    assert!(text.contains("25.00 % of the extents"), "{text}");
    // Extents of 32 pages: of 63 about 16, three standard deviations more at most.
    let pages = info["distinct_pages"].as_u64().expect("pages");
    assert!((1..27 * 32).contains(&pages), "{info}");
    let simulated = thermocline("simulate").arg(&path).output().expect("runs");
    let note = message(&simulated);
    assert!(note.contains("a sample of 25.0 %"), "{note}");
    for share in ["0%", "101%", "some"] {
        let refused = failure(&mut record("b.parquet", share));
        assert!(refused.contains("is not a share"), "{refused}");
    }
    while_reading(&ground, || success(&mut record("c.parquet", "auto")));
    ground.umount();
}

#[test]
fn an_allowance_outlives_a_change_of_policy_and_is_refused_where_it_means_nothing() {
    let Some(ground) = Ground::prepare("an allowance") else {
        return;
    };
    ground.mounted("--size 4M --policy value --drive-writes-per-day 1");
    success(thermocline("policy").arg(ground.mountpoint()).arg("tac"));
    // The mount's settings are read, and nobody asks for anything.
    let advised = failure(
        thermocline("advise")
            .arg(ground.mountpoint())
            .args(["--for", "1s"]),
    );
    assert!(advised.contains("nothing was asked"), "{advised}");
    success(thermocline("policy").arg(ground.mountpoint()).arg("value"));
    let status = thermocline("status")
        .arg(ground.mountpoint())
        .arg("--once")
        .output();
    let status = String::from_utf8(status.expect("runs").stdout).expect("text");
    assert!(status.contains("1 drive writes a day allowed"), "{status}");
    ground.umount();
    let refused = failure(
        thermocline("mount")
            .arg(ground.path("base"))
            .arg(ground.mountpoint())
            .arg("--cache")
            .arg(ground.path("other"))
            .args(["--size", "4M", "--drive-writes-per-day", "1"]),
    );
    assert!(refused.contains("of the policy default"), "{refused}");
}

#[test]
fn the_directory_one_is_in_is_advised_on_and_leaves_nothing_behind() {
    let Some(ground) = prepared("advise here") else {
        return;
    };
    let temporary = ground.path("tmp");
    std::fs::create_dir(&temporary).expect("a directory");
    for (here, name) in [("mnt", "."), ("mnt/base", "..")] {
        let mut command = thermocline("advise");
        command
            .current_dir(ground.path(here))
            .env("TMPDIR", &temporary);
        let refused = failure(command.args([name, "--for", "1s"]));
        assert!(
            refused.contains("nothing was asked of the mount"),
            "{refused}"
        );
        let left = std::fs::read_dir(&temporary).expect("there");
        assert_eq!(left.count(), 0, "{name}");
    }
    ground.umount();
}

/// A file system of that many bytes, at a directory of its own, until it is dropped.
struct Small(PathBuf);

impl Small {
    fn mounted(at: PathBuf, bytes: usize) -> Self {
        std::fs::create_dir(&at).expect("mkdir");
        let size = format!("size={bytes}");
        let mut command = Command::new("mount");
        success(command.args(["-t", "tmpfs", "-o", &size, "none"]).arg(&at));
        Self(at)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}

/// Whoever waits is told at once, not when the time is over; and the cache is closed as ever.
#[test]
fn a_recording_whose_disk_is_full_ends_at_once_and_says_so() {
    let Some(ground) = Ground::prepare("record, full disk") else {
        return;
    };
    let small = Small::mounted(ground.path("small"), 64 << 10);
    std::fs::write(ground.path("base/base/5/17000"), vec![7; MANY * PAGE]).expect("a file");
    let file = |name: &str| ground.path("small").join(name);
    ground.mounted("--size 4M --policy lru");
    while_reading(&ground, || {
        let mut command = thermocline("record");
        command.arg(ground.mountpoint()).arg(file("a.parquet"));
        let said = failure(command.args(["--for", "1h"]));
        assert!(said.contains("No space left"), "{said}");
    });
    let left = std::fs::read_dir(ground.path("small")).expect("lists");
    assert_eq!(left.count(), 0, "what cannot be read takes no room");
    ground.umount();
    ground.mounted(&format!("--record {}", file("b.parquet").display()));
    while_reading(&ground, || {
        eventually("the end of the second", || {
            let why = ground.status("/mount/not_recorded");
            why.as_str()
                .is_some_and(|why| why.contains("No space left"))
        });
    });
    assert_eq!(ground.status("/mount/record"), "");
    let shown = success(thermocline("status").arg("--once").arg(ground.mountpoint()));
    assert!(shown.contains("record    STOPPED: "), "{shown}");
    let log = std::fs::read_to_string(ground.path("tier.log")).expect("log");
    assert_eq!(log.matches("recording failed: ").count(), 2, "{log}");
    let said = failure(thermocline("umount").arg(ground.mountpoint()));
    assert!(said.contains("the recording is not whole"), "{said}");
    assert!(said.contains("everything else ended well"), "{said}");
    assert_eq!(check(&ground)["clean_stop"], true);
    drop(small);
}

//! The life of a mount, by its commands alone: started, watched, switched, ended, warm again.

mod common;

use common::*;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn returns_once_it_serves_and_is_warm_after_umount() {
    let Some(ground) = Ground::prepare("warm") else {
        return;
    };
    ground.mounted("--size 4M");
    ground.read();
    eventually("admissions to be written", || {
        ground.status("/stats/tier/staged") == 0
    });
    let resident = ground
        .status("/stats/tier/resident")
        .as_u64()
        .expect("count");
    assert!(resident > 0);
    let pid = ground.status("/mount/pid").as_u64().expect("pid");
    assert!(runs(pid));
    ground.umount();
    assert!(!runs(pid), "umount returns when the process has ended");
    let log = fs::read_to_string(ground.path("tier.log")).expect("log");
    assert!(log.contains("map saved"), "{log}");
    ground.mounted("");
    assert_eq!(ground.status("/stats/tier/restored"), resident);
    ground.read();
    assert!(ground.status("/stats/page_reads/flash").as_u64() >= Some(resident));
    ground.umount();
}

#[test]
fn policy_and_tier_switch_while_mounted() {
    let Some(ground) = Ground::prepare("switch") else {
        return;
    };
    ground.mounted("--size 4M --policy clock");
    assert_eq!(ground.said("policy"), "clock\n");
    success(thermocline("policy").arg(ground.mountpoint()).arg("lru"));
    assert_eq!(ground.said("policy"), "lru\n");
    assert!(ground.said("config").contains("policy = \"lru\""));
    assert!(
        fs::write(ground.control("policy"), "magic\n").is_err(),
        "no such policy"
    );
    assert_eq!(ground.said("policy"), "lru\n");
    success(thermocline("tier").arg(ground.mountpoint()).arg("off"));
    ground.read();
    assert_eq!(ground.status("/stats/tier/off"), "switched off by command");
    let shown = success(thermocline("status").arg("--once").arg(ground.mountpoint()));
    assert!(shown.contains("OFF: switched off by command"), "{shown}");
    success(thermocline("tier").arg(ground.mountpoint()).arg("on"));
    assert_eq!(ground.said("tier"), "on\n");
    assert!(fs::write(ground.control("tier"), "maybe\n").is_err());
    assert!(!ground.control("faults").exists(), "only on request");
    ground.umount();
}

#[test]
fn a_mount_describes_itself() {
    let Some(ground) = Ground::prepare("describe") else {
        return;
    };
    ground.mounted("--size 4M --pool 1M --emulate-base ssd");
    ground.read();
    let text = ground.said("stats");
    let shown = success(thermocline("status").arg("--once").arg(ground.mountpoint()));
    for part in [
        "hit ratio",
        "served by",
        "base/5/16384",
        "emulated SATA SSD",
        "frames used",
    ] {
        assert!(
            text.contains(part) && shown.contains(part),
            "no \"{part}\" in {text}"
        );
    }
    let metrics = success(
        thermocline("status")
            .arg("--metrics")
            .arg(ground.mountpoint()),
    );
    assert!(
        metrics.contains("# TYPE thermocline_page_reads_total counter"),
        "{metrics}"
    );
    assert!(
        ground
            .said("metrics")
            .contains("label=\"emulated SATA SSD over")
    );
    let openmetrics = success(
        thermocline("status")
            .arg("--openmetrics")
            .arg(ground.mountpoint()),
    );
    assert!(
        openmetrics.contains("# TYPE thermocline_page_reads counter")
            && openmetrics.ends_with("# EOF\n"),
        "{openmetrics}"
    );
    let settings = ground.path("settings.toml");
    fs::write(&settings, ground.said("config")).expect("write");
    success(thermocline("config").arg("--check").arg(&settings));
    assert!(
        fs::read_dir(ground.mountpoint()).expect("list").count() == 1,
        "it is not listed"
    );
    ground.umount();
}

#[test]
fn a_mount_without_a_tier_serves_from_base() {
    let Some(ground) = Ground::prepare("none") else {
        return;
    };
    let log = ground.path("log");
    let mut command = ground.mount(&format!(
        "--policy none --write-back --log {}",
        log.display()
    ));
    let output = command.output().expect("runs");
    let said = message(&output);
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("set aside are --cache, --write-back"),
        "{said}"
    );
    ground.read();
    assert_eq!(ground.status("/stats/tier"), Value::Null);
    assert!(!ground.path("tier").exists());
    for (command, word) in [("policy", "lru"), ("tier", "off"), ("tier", "on")] {
        let output = thermocline(command)
            .arg(ground.mountpoint())
            .arg(word)
            .output();
        let output = output.expect("runs");
        assert!(!output.status.success(), "{command} {word}");
        assert!(
            message(&output).contains("no flash tier"),
            "{}",
            message(&output)
        );
    }
    ground.umount();
    let log = std::fs::read_to_string(log).expect("log");
    assert!(log.contains("no map to save"), "{log}");
}

#[test]
fn a_recording_is_complete_after_umount() {
    let Some(ground) = Ground::prepare("record") else {
        return;
    };
    let trace = ground.path("t.parquet");
    ground.mounted(&format!("--size 4M --record {}", trace.display()));
    ground.read();
    ground.umount();
    let text = success(thermocline("trace").args(["info", "--json"]).arg(&trace));
    let info: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(info["dropped"], 0);
    assert_eq!(info["distinct_pages"], PAGES as u64);
    assert_eq!(info["objects"][0]["name"], "base/5/16384");
    let table = success(thermocline("trace").arg("info").arg(&trace));
    assert!(table.contains("base/5/16384"), "{table}");
    let again = ground
        .mount(&format!("--record {}", trace.display()))
        .output()
        .expect("runs");
    assert_eq!(
        again.status.code(),
        Some(2),
        "a trace is not overwritten: {}",
        message(&again)
    );
}

#[test]
fn a_signal_ends_it_cleanly_and_not_while_it_is_used() {
    let Some(ground) = Ground::prepare("signal") else {
        return;
    };
    let mut child = ground.served("--size 4M");
    let signal = |child: &Child| {
        // SAFETY: no pointers; the process is this test's own child.
        let sent = unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
        assert_eq!(sent, 0);
    };
    let open = File::open(ground.mountpoint().join("base/5/16384")).expect("open");
    ground.read();
    signal(&child);
    ground.read();
    assert_eq!(child.try_wait().expect("child"), None, "a file is open");
    drop(open);
    signal(&child);
    let status = child.wait().expect("ends");
    assert!(status.success(), "{status}");
    ground.mounted("");
    assert!(
        ground.status("/stats/tier/restored").as_u64() > Some(0),
        "the map was saved"
    );
    ground.umount();
}

#[test]
fn a_killed_mount_is_named_and_cleared_away() {
    let Some(ground) = Ground::prepare("kill") else {
        return;
    };
    let mut child = ground.served("--size 4M");
    child.kill().expect("kill");
    assert_eq!(child.wait().expect("ends").signal(), Some(libc::SIGKILL));
    let dead = thermocline("status")
        .arg("--once")
        .arg(ground.mountpoint())
        .output()
        .expect("runs");
    assert_eq!(dead.status.code(), Some(5), "{}", message(&dead));
    assert!(message(&dead).contains("is gone"), "{}", message(&dead));
    let again = ground.mount("").output().expect("runs");
    assert_eq!(again.status.code(), Some(2), "{}", message(&again));
    assert!(message(&again).contains("umount"), "{}", message(&again));
    success(thermocline("umount").arg(ground.mountpoint()));
    let shown = success(thermocline("check").arg(ground.path("tier")));
    assert!(shown.contains(" is without a mount: process "), "{shown}");
    ground.mounted("");
    assert_eq!(
        ground.status("/stats/tier/restored"),
        0,
        "cold, but it starts"
    );
    ground.read();
    ground.umount();
}

/// A process that is stopped answers nothing, as one whose threads all wait for base.
#[test]
fn a_mount_that_hangs_is_named_by_every_command_and_can_be_left() {
    let Some(ground) = Ground::prepare("hung") else {
        return;
    };
    let mut child = ground.served("--size 4M");
    ground.read();
    // What flash is just asked for would be late once the process goes on.
    eventually("admissions to be written", || {
        ground.status("/stats/tier/staged") == 0
    });
    let pid = child.id();
    let signal = |signal| {
        // SAFETY: no pointers; the process is this test's own child.
        assert_eq!(unsafe { libc::kill(pid as libc::pid_t, signal) }, 0);
    };
    signal(libc::SIGSTOP);
    // What the kernel keeps of it for a while would be given without asking the process.
    std::thread::sleep(Duration::from_millis(1_500));
    let started = |mut command: Command| {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("starts")
    };
    let of_mount = |command, option: &str| {
        let mut command = thermocline(command);
        command.arg(ground.mountpoint()).arg(option);
        started(command)
    };
    // All wait at once. What they left behind must not keep their output open.
    for asking in [
        of_mount("status", "--once"),
        of_mount("status", "--metrics"),
        of_mount("umount", "--timeout=3"),
        of_mount("policy", "lru"),
        started(ground.mount("")),
    ] {
        let output = asking.wait_with_output().expect("ends");
        let said = message(&output);
        assert_eq!(output.status.code(), Some(6), "{said}");
        assert!(said.contains(&format!("its process is {pid}")), "{said}");
        assert!(said.contains("umount --lazy"), "{said}");
    }
    let mut lazy = thermocline("umount");
    let lazy = lazy
        .arg(ground.mountpoint())
        .args(["--lazy", "--timeout", "1"]);
    let output = lazy.output().expect("ends");
    let said = message(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("kill -9 {pid}")), "{said}");
    let listed = fs::read_dir(ground.mountpoint()).expect("it is free");
    assert_eq!(listed.count(), 0);
    signal(libc::SIGCONT);
    let status = child.wait().expect("ends");
    assert!(status.success(), "it goes on to its end: {status}");
    ground.mounted("");
    ground.read();
    ground.umount();
}

#[test]
fn what_was_synced_in_write_back_survives_a_kill() {
    let Some(ground) = Ground::prepare("write-back kill") else {
        return;
    };
    let (above, below) = (
        ground.mountpoint().join("base/5/16384"),
        ground.path("base/base/5/16384"),
    );
    let mut child = ground.served(&format!("--size 4M {WRITE_BACK}"));
    assert_eq!(ground.said("write_back"), "on\n");
    overwrite(&above, 7);
    assert!(!holds(&below, 7), "base would have all of it");
    let busy = thermocline("check").arg(ground.path("tier")).output();
    assert_eq!(busy.expect("runs").status.code(), Some(3), "it is in use");
    child.kill().expect("kill");
    child.wait().expect("ends");
    success(thermocline("umount").arg(ground.mountpoint()));
    let shown = success(thermocline("check").arg(ground.path("tier")));
    assert!(
        shown.contains(", which is gone: the newest bytes"),
        "{shown}"
    );
    let found = check(&ground);
    assert_eq!(found["clean_stop"], false);
    assert_eq!(found["sound"], true);
    assert!(found["dirty"].as_u64() > Some(0), "{found}");
    ground.mounted(WRITE_BACK);
    assert!(holds(&above, 7), "the mount gives what was synced");
    assert!(ground.status("/stats/tier/dirty").as_u64() > Some(0));
    let flushed = success(thermocline("flush").arg("--json").arg(ground.mountpoint()));
    let flushed: Value = serde_json::from_str(&flushed).expect("JSON");
    assert_eq!(flushed["left"], 0, "{flushed}");
    assert!(holds(&below, 7), "base is whole after a flush");
    assert_eq!(ground.status("/stats/tier/dirty"), 0);
    assert_eq!(ground.said("flush").lines().last(), Some("state done"));
    assert!(fs::write(ground.control("flush"), "hurry\n").is_err());
    ground.umount();
}

#[test]
fn umount_and_detach_leave_base_whole() {
    let Some(ground) = Ground::prepare("write-back end") else {
        return;
    };
    let (above, below) = (
        ground.mountpoint().join("base/5/16384"),
        ground.path("base/base/5/16384"),
    );
    ground.mounted(&format!("--size 4M {WRITE_BACK}"));
    overwrite(&above, 1);
    ground.umount();
    assert!(holds(&below, 1), "umount writes back");
    assert_eq!(check(&ground)["dirty"], 0);
    ground.mounted(WRITE_BACK);
    overwrite(&above, 2);
    success(thermocline("detach").arg(ground.mountpoint()));
    assert!(holds(&below, 2), "detach writes back");
    ground.mounted(WRITE_BACK);
    for (mode, says) in [("write-through", "off\n"), ("write-back", "on\n")] {
        success(thermocline("mode").arg(ground.mountpoint()).arg(mode));
        assert_eq!(ground.said("write_back"), says);
    }
    overwrite(&above, 3);
    success(
        thermocline("umount")
            .arg("--keep-dirty")
            .arg(ground.mountpoint()),
    );
    assert!(!holds(&below, 3), "it was to stay on flash");
    let recover = || {
        let mut recover = thermocline("recover");
        recover.arg(ground.path("base")).arg(ground.path("tier"));
        recover
    };
    success(&mut recover());
    assert!(holds(&below, 3), "recover writes back without a mount");
    assert_eq!(check(&ground)["dirty"], 0);
    success(&mut recover());
}

/// Bytes of the cache, and slots, as a command's JSON says.
fn reshaped(command: &mut Command) -> (u64, u64) {
    let text = success(command.arg("--json"));
    let said: Value = serde_json::from_str(&text).expect("JSON");
    let number = |name: &str| said[name].as_u64().expect("a number");
    (number("bytes"), number("slots"))
}

fn resize(ground: &Ground, size: &str) -> Command {
    let mut resize = thermocline("resize");
    resize.arg(ground.mountpoint()).arg("--size").arg(size);
    resize
}

fn replace(ground: &Ground, cache: &str) -> Command {
    let mut replace = thermocline("replace");
    replace.arg(ground.mountpoint());
    replace.arg("--cache").arg(ground.path(cache));
    replace
}

/// Overwrites the relation's first half again and again, each time with the next byte, and reads
/// it back; how often, and the last byte.
fn keep_writing(path: &Path, stop: &AtomicBool) -> (u64, u8) {
    let (mut rounds, mut fill) = (0, 100);
    while !stop.load(Ordering::Relaxed) {
        (rounds, fill) = (rounds + 1, 100 + (rounds % 100) as u8);
        overwrite(path, fill);
        assert!(
            holds(path, fill),
            "round {rounds}: what was written is read"
        );
    }
    (rounds, fill)
}

#[test]
fn the_cache_grows_shrinks_and_is_replaced_under_a_writer() {
    let Some(ground) = Ground::prepare("reshape") else {
        return;
    };
    let (above, below) = (
        ground.mountpoint().join("base/5/16384"),
        ground.path("base/base/5/16384"),
    );
    ground.mounted(&format!("--size 4M {WRITE_BACK}"));
    overwrite(&above, 1);
    let stop = AtomicBool::new(false);
    let last = std::thread::scope(|scope| {
        let writer = scope.spawn(|| keep_writing(&above, &stop));
        let (bytes, slots) = reshaped(&mut resize(&ground, "8M"));
        assert_eq!(bytes, 8 << 20);
        assert!(slots > 800, "{slots}");
        let (bytes, slots) = reshaped(&mut resize(&ground, "1M"));
        assert_eq!(bytes, 1 << 20);
        assert!(slots < 120, "{slots}");
        assert_eq!(
            fs::metadata(ground.path("tier")).expect("cache").len(),
            1 << 20
        );
        let (bytes, _) = reshaped(&mut replace(&ground, "other"));
        assert_eq!(bytes, 1 << 20, "as long as the one before");
        reshaped(&mut resize(&ground, "3M"));
        stop.store(true, Ordering::Relaxed);
        let (rounds, fill) = writer.join().expect("writer");
        assert!(rounds > 0);
        fill
    });
    assert!(holds(&above, last));
    assert_eq!(ground.said("cache"), "dirty 0 of 0\nstate done\n");
    assert_eq!(
        ground.status("/mount/cache"),
        ground.path("other").to_str().expect("UTF-8")
    );
    assert!(ground.said("config").contains("3MiB"));
    let busy = thermocline("check").arg(ground.path("other")).output();
    assert_eq!(busy.expect("runs").status.code(), Some(3), "it is in use");
    ground.umount();
    assert!(holds(&below, last), "base is whole");
    let old = check(&ground);
    assert_eq!(
        (&old["dirty"], &old["clean"]),
        (&0.into(), &0.into()),
        "{old}"
    );
    let other = success(
        thermocline("check")
            .args(["--data", "--json"])
            .arg(ground.path("other")),
    );
    assert!(other.contains("\"sound\": true"), "{other}");
    // The size is in the cache.
    fs::rename(ground.path("other"), ground.path("tier")).expect("rename");
    ground.mounted(WRITE_BACK);
    assert_eq!(ground.status("/stats/tier/bytes"), 3 << 20);
    assert!(holds(&above, last));
    ground.umount();
}

#[test]
fn after_a_replacement_the_new_cache_is_in_use_and_the_old_one_is_free() {
    let Some(ground) = Ground::prepare("replaced, in use") else {
        return;
    };
    ground.mounted("--size 4M");
    // There and back, so that the first one is asked for again.
    for (cache, other) in [("other", "tier"), ("tier", "other")] {
        reshaped(replace(&ground, cache).arg("--format"));
        let another = ground.another();
        let mount = |cache: &str| {
            let mut mount = thermocline("mount");
            mount.arg(another.path("base")).arg(another.mountpoint());
            mount.arg("--cache").arg(ground.path(cache));
            mount.args(["--size", "4M", "--format"]);
            mount.arg("--log").arg(another.path("log"));
            mount
        };
        let busy = mount(cache).output().expect("runs");
        let said = message(&busy);
        assert_eq!(busy.status.code(), Some(3), "{said}");
        let serves = format!("serves it at {}", ground.mountpoint().display());
        assert!(said.contains(&serves), "{said}");
        let log = another.path("log");
        assert!(!log.exists(), "it was refused before it had a log");
        success(&mut mount(other));
        another.read();
        another.umount();
        fs::remove_file(ground.path(other)).expect("nobody's");
    }
    ground.umount();
}

#[test]
fn a_cache_takes_the_place_of_another_under_the_name_that_was_given() {
    let Some(ground) = Ground::prepare("replaced, odd names") else {
        return;
    };
    ground.mounted("--size 4M");
    for name in ["a b ", "line\n"] {
        reshaped(&mut replace(&ground, name));
        assert!(ground.path(name).exists(), "{name:?}");
        let cache = ground.path(name).display().to_string();
        assert_eq!(ground.status("/mount/cache"), cache.as_str());
    }
    let mut odd = thermocline("replace");
    odd.arg(ground.mountpoint()).arg("--cache");
    odd.arg(ground.path("").join(OsStr::from_bytes(b"t\xe9")));
    let refused = odd.output().expect("runs");
    assert_eq!(refused.status.code(), Some(2), "{}", message(&refused));
    assert!(message(&refused).contains("t\\xE9\" is not UTF-8"));
    ground.umount();
}

#[test]
fn changes_of_the_cache_that_cannot_be_are_refused_with_the_way_out() {
    let Some(ground) = Ground::prepare("reshape refused") else {
        return;
    };
    ground.mounted(&format!("--size 4M {WRITE_BACK}"));
    ground.read();
    fs::write(ground.path("notes"), "precious").expect("write");
    let refused = |command: &mut Command, code: i32, parts: &[&str]| {
        let output = command.output().expect("runs");
        let said = message(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        for part in parts {
            assert!(said.contains(part), "no \"{part}\" in {said}");
        }
        assert!(said.contains("\n  try: "), "{said}");
    };
    let few = &["are the least", "--size"];
    refused(&mut resize(&ground, "4194305"), 1, few);
    refused(&mut resize(&ground, "4k"), 1, &["a shorter cache has"]);
    let full = &["notes exists and is not empty", "--format"];
    refused(&mut replace(&ground, "notes"), 3, full);
    let inside = &["is inside the base directory"];
    refused(&mut replace(&ground, "base/tier"), 2, inside);
    let same = &["is in use"];
    refused(replace(&ground, "tier").arg("--format"), 3, same);
    let small = &["too small"];
    refused(replace(&ground, "small").args(["--size", "1k"]), 2, small);
    assert!(!ground.path("small").exists(), "nothing is left behind");
    assert_eq!(fs::read(ground.path("notes")).expect("read"), b"precious");
    assert!(fs::write(ground.control("cache"), "grow\n").is_err());
    assert_eq!(ground.status("/stats/tier/bytes"), 4 << 20);
    ground.read();
    success(thermocline("tier").arg(ground.mountpoint()).arg("off"));
    refused(&mut resize(&ground, "8M"), 1, &["the tier is off"]);
    reshaped(replace(&ground, "notes").args(["--format", "--size", "2M"]));
    assert_eq!(ground.said("tier"), "on\n", "the new one is used");
    ground.read();
    ground.umount();
    let gone = resize(&ground, "8M").output().expect("runs");
    assert_eq!(gone.status.code(), Some(5), "{}", message(&gone));
}

#[test]
fn files_changed_behind_dirty_pages_are_refused_until_those_are_given_up() {
    let Some(ground) = Ground::prepare("write-back changed") else {
        return;
    };
    let above = ground.mountpoint().join("base/5/16384");
    ground.mounted(&format!("--size 4M {WRITE_BACK}"));
    overwrite(&above, 4);
    success(
        thermocline("umount")
            .arg("--keep-dirty")
            .arg(ground.mountpoint()),
    );
    let restored = content();
    fs::write(ground.path("base/base/5/16384"), &restored).expect("changed");
    let mut recover = thermocline("recover");
    recover.arg(ground.path("base")).arg(ground.path("tier"));
    for command in [&mut ground.mount(WRITE_BACK), &mut recover] {
        let refused = command.output().expect("runs");
        assert_eq!(refused.status.code(), Some(3), "{}", message(&refused));
        let said = message(&refused);
        for part in ["base/5/16384", "\n  try: ", "--discard"] {
            assert!(said.contains(part), "no \"{part}\" in {said}");
        }
    }
    let said = success(recover.arg("--discard"));
    assert!(said.contains("given up"), "{said}");
    ground.mounted(WRITE_BACK);
    ground.read();
    ground.umount();
}

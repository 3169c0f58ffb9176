//! How a mount ends, and what is found when it did not end well: by its commands alone.

mod common;

use common::*;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

fn signal(child: &Child) {
    // SAFETY: no pointers; the process is this test's own child.
    let sent = unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    assert_eq!(sent, 0);
}

/// A mount in the foreground with a log of its own, once it serves.
fn logged(ground: &Ground, options: &str) -> Child {
    let log = ground.path("own.log");
    let child = ground.served(&format!("{options} --log {}", log.display()));
    eventually("the first line of the log", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("serving"))
    });
    child
}

fn log(ground: &Ground) -> String {
    fs::read_to_string(ground.path("own.log")).expect("log")
}

#[test]
fn a_signal_while_a_file_is_open_is_remembered() {
    let Some(ground) = Ground::prepare("remembered") else {
        return;
    };
    let mut child = logged(&ground, &format!("--size 4M {WRITE_BACK}"));
    let above = ground.mountpoint().join("base/5/16384");
    overwrite(&above, 9);
    let open = File::open(&above).expect("open");
    assert_eq!(ground.status("/mount/asked_to_end"), false);
    signal(&child);
    eventually("the mount to say that it was asked", || {
        ground.status("/mount/asked_to_end") == true
    });
    let said = success(thermocline("status").arg("--once").arg(ground.mountpoint()));
    assert!(
        said.contains("asked to end; waits for open files"),
        "{said}"
    );
    assert!(
        ground
            .said("stats")
            .contains("asked to end; waits for open files")
    );
    assert!(holds(&above, 9), "it serves on");
    assert_eq!(child.try_wait().expect("child"), None);
    drop(open);
    let status = child.wait().expect("ends");
    assert!(status.success(), "{status}");
    let log = log(&ground);
    for part in [
        "asked to end",
        "waits for open files",
        "pages are to be written back",
        "a second signal detaches",
        "base is whole",
    ] {
        assert!(log.contains(part), "no {part:?} in {log}");
    }
    assert!(holds(&ground.path("base/base/5/16384"), 9));
}

#[test]
fn a_second_signal_detaches() {
    let Some(ground) = Ground::prepare("detaches") else {
        return;
    };
    let mut child = logged(&ground, &format!("--size 4M {WRITE_BACK}"));
    let above = ground.mountpoint().join("base/5/16384");
    let open = File::options().write(true).open(&above).expect("open");
    signal(&child);
    eventually("the first signal", || {
        ground.status("/mount/asked_to_end") == true
    });
    signal(&child);
    eventually("the mountpoint to be free", || {
        !ground.control("policy").exists()
    });
    let output = thermocline("status").arg(ground.mountpoint()).output();
    let output = output.expect("runs");
    assert_eq!(output.status.code(), Some(5));
    let said = message(&output);
    let pid = child.id().to_string();
    assert!(
        said.contains("files that are still open") && said.contains(&pid),
        "{said}"
    );
    open.write_all_at(&[5; PAGE], 0).expect("served on");
    drop(open);
    assert!(child.wait().expect("ends").success());
    let below = fs::read(ground.path("base/base/5/16384")).expect("base");
    assert!(below[..PAGE].iter().all(|byte| *byte == 5));
}

/// What kind of file system is on top at `path`.
fn on_top(path: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").expect("table");
    table.lines().rev().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let here = place.split(' ').nth(4) == path.to_str();
        here.then(|| kind.split(' ').next().unwrap_or_default().to_string())
    })
}

#[test]
fn what_was_mounted_below_stays() {
    let Some(ground) = Ground::prepare("below") else {
        return;
    };
    let mountpoint = ground.mountpoint();
    let mut tmpfs = Command::new("mount");
    success(tmpfs.args(["-t", "tmpfs", "none"]).arg(&mountpoint));
    let mut child = ground.served("--size 4M");
    assert_eq!(on_top(&mountpoint).as_deref(), Some("fuse.thermocline"));
    ground.umount();
    assert!(child.wait().expect("ends").success());
    assert_eq!(on_top(&mountpoint).as_deref(), Some("tmpfs"));
    success(Command::new("umount").arg(&mountpoint));
}

/// The old one neither takes the new one away when it ends, nor is it taken for it.
#[test]
fn a_mount_where_another_was_detached_is_one_of_its_own() {
    let Some(ground) = Ground::prepare("another") else {
        return;
    };
    let other = ground.another();
    let detach = |child: &Child| {
        for asked in [false, true] {
            eventually("the signal before", || {
                ground.status("/mount/asked_to_end") == asked
            });
            signal(child);
        }
        eventually("the mountpoint to be free", || {
            !ground.control("policy").exists()
        });
    };
    let mut old = logged(&ground, "--size 4M");
    let above = ground.mountpoint().join("base/5/16384");
    let open = File::open(&above).expect("open");
    detach(&old);
    let mut command = thermocline("mount");
    command.arg(other.path("base")).arg(ground.mountpoint());
    command.arg("--cache").arg(other.path("tier"));
    command.args(["--size", "4M", "--foreground"]);
    let mut new = command.stderr(Stdio::null()).spawn().expect("starts");
    eventually("the new mount", || ground.control("policy").exists());
    drop(open);
    assert!(old.wait().expect("ends").success());
    assert_eq!(
        on_top(&ground.mountpoint()).as_deref(),
        Some("fuse.thermocline")
    );
    let open = File::open(&above).expect("open");
    detach(&new);
    let pid = format!("process {} ", new.id());
    eventually("the new mount to answer", || {
        let output = thermocline("status").arg(ground.mountpoint()).output();
        message(&output.expect("runs")).contains(&pid)
    });
    drop(open);
    assert!(new.wait().expect("ends").success());
}

#[test]
fn a_mount_that_writes_back_says_so_to_every_command() {
    let Some(ground) = Ground::prepare("writes back") else {
        return;
    };
    // A slow base, and pages far from each other: writing back takes seconds.
    fs::write(ground.path("base/base/5/16385"), vec![1; 4096 * PAGE]).expect("relation");
    let options = format!("--size 16M {WRITE_BACK} --emulate-base hdd");
    let mut child = ground.served(&options);
    let above = ground.mountpoint().join("base/5/16385");
    let file = File::options().write(true).open(above).expect("open");
    for page in (0..4096).step_by(8) {
        file.write_all_at(&[3; PAGE], page * PAGE as u64)
            .expect("write");
    }
    file.sync_data().expect("sync");
    drop(file);
    let dirty = ground.status("/stats/tier/dirty").as_u64().expect("count");
    assert!(dirty > 100, "{dirty}");
    signal(&child);
    eventually("the unmount", || !ground.control("policy").exists());
    let pid = format!("pid {}", child.id());
    let mut seen = 0;
    for command in [
        &mut *thermocline("status").arg(ground.mountpoint()),
        &mut ground.mount("--foreground"),
        &mut *thermocline("check").arg(ground.path("tier")),
    ] {
        let output = command.output().expect("runs");
        let said = message(&output);
        // It may have ended by now: then the message has nothing to say.
        if said.contains("still writing back") || said.contains("still saving the map") {
            seen += 1;
            assert!(said.contains(&pid), "{said}");
        }
    }
    let mut umount = thermocline("umount");
    let output = umount.arg(ground.mountpoint()).output().expect("runs");
    let said = message(&output);
    if output.status.success() {
        assert!(said.contains(&pid), "{said}");
    }
    assert!(child.wait().expect("ends").success());
    assert!(seen > 0, "it ended before anybody could ask");
    let below = fs::read(ground.path("base/base/5/16385")).expect("base");
    let fills = below.chunks(PAGE).map(|page| page[0]);
    assert!(
        fills
            .enumerate()
            .all(|(at, fill)| fill == if at % 8 == 0 { 3 } else { 1 })
    );
}

/// Whoever waits for the end of a mount is told of one that did not come to it, also where there is
/// no log to read: base is not whole then.
#[test]
fn umount_of_a_mount_that_died_while_it_wrote_back_fails() {
    for with_log in [false, true] {
        let Some(ground) = Ground::prepare("died") else {
            return;
        };
        fs::write(ground.path("base/base/5/16385"), vec![1; 4096 * PAGE]).expect("relation");
        let options = format!("--size 16M {WRITE_BACK} --emulate-base hdd");
        let mut child = match with_log {
            true => logged(&ground, &options),
            false => ground.served(&options),
        };
        let above = ground.mountpoint().join("base/5/16385");
        let file = File::options().write(true).open(above).expect("open");
        for page in (0..4096).step_by(4) {
            file.write_all_at(&[3; PAGE], page * PAGE as u64)
                .expect("write");
        }
        file.sync_data().expect("sync");
        drop(file);
        let mut command = thermocline("umount");
        command.arg(ground.mountpoint()).stderr(Stdio::piped());
        let umount = command.spawn().expect("starts");
        eventually("the unmount", || !ground.control("policy").exists());
        child.kill().expect("kill");
        child.wait().expect("ends");
        let output = umount.wait_with_output().expect("ends");
        let said = message(&output);
        assert!(!output.status.success(), "{said}");
        assert!(said.contains("ended before it was done with"), "{said}");
        // And one that comes to its end is told as such.
        ground.mounted(WRITE_BACK);
        ground.umount();
    }
}

#[test]
fn a_dead_mount_gets_the_same_advice_from_every_command() {
    let Some(ground) = Ground::prepare("dead") else {
        return;
    };
    let mut child = ground.served("--size 4M");
    child.kill().expect("kill");
    child.wait().expect("ends");
    let said = |command: &mut Command| message(&command.output().expect("runs"));
    let status = said(thermocline("status").arg(ground.mountpoint()));
    let mount = said(&mut ground.mount("--foreground"));
    assert!(status.contains("is gone"), "{status}");
    assert!(status.contains("try: thermocline umount"), "{status}");
    assert_eq!(status, mount);
    success(thermocline("umount").arg(ground.mountpoint()));
    ground.mounted("");
    ground.umount();
}

#[test]
fn what_a_log_says_in_the_foreground() {
    let Some(ground) = Ground::prepare("log") else {
        return;
    };
    let log = ground.path("own.log");
    let mut command = ground.mount(&format!("--size 4M --foreground --log {}", log.display()));
    let mut child = command.stderr(Stdio::piped()).spawn().expect("starts");
    eventually("the log", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("serving"))
    });
    signal(&child);
    assert!(child.wait().expect("ends").success());
    let mut said = String::new();
    let mut stderr = child.stderr.take().expect("stderr");
    std::io::Read::read_to_string(&mut stderr, &mut said).expect("read");
    assert_eq!(
        said,
        fs::read_to_string(&log).expect("log"),
        "both have every line"
    );
    assert!(said.contains("map saved"), "{said}");
}

#[test]
fn dirty_pages_outlive_a_format() {
    let Some(ground) = Ground::prepare("format") else {
        return;
    };
    let above = ground.mountpoint().join("base/5/16384");
    let mut child = ground.served(&format!("--size 4M {WRITE_BACK}"));
    overwrite(&above, 6);
    child.kill().expect("kill");
    child.wait().expect("ends");
    success(thermocline("umount").arg(ground.mountpoint()));
    let dirty = check(&ground)["dirty"].as_u64().expect("count");
    assert!(dirty > 0);
    let format = format!("--size 4M --format {WRITE_BACK}");
    let refused = ground.mount(&format).output().expect("runs");
    assert_eq!(refused.status.code(), Some(3), "{}", message(&refused));
    let said = message(&refused);
    assert!(said.contains(&format!("--discard-dirty {dirty}")), "{said}");
    let text = success(thermocline("check").arg(ground.path("tier")));
    assert!(text.contains("BASE IS NOT WHOLE"), "{text}");
    // Another mount may not overwrite it either.
    let other = ground.another();
    other.mounted("--size 4M");
    let cache = ground.path("tier");
    let replace = || {
        let mut replace = thermocline("replace");
        replace.arg(other.mountpoint()).arg("--cache").arg(&cache);
        replace.args(["--size", "4M", "--format"]);
        replace
    };
    let refused = replace().output().expect("runs");
    assert_eq!(refused.status.code(), Some(3), "{}", message(&refused));
    assert!(message(&refused).contains("--discard-dirty"));
    other.umount();
    ground.mounted(WRITE_BACK);
    assert!(holds(&above, 6), "nothing was lost");
    ground.umount();
    assert!(holds(&ground.path("base/base/5/16384"), 6));
}

/// Keeps two files dirty on flash, then changes both behind the cache.
fn two_changed(ground: &Ground) {
    fs::write(ground.path("base/base/5/16385"), content()).expect("relation");
    ground.mounted(&format!("--size 4M {WRITE_BACK}"));
    for (name, fill) in [("16384", 4), ("16385", 5)] {
        overwrite(&ground.mountpoint().join("base/5").join(name), fill);
    }
    success(
        thermocline("umount")
            .arg("--keep-dirty")
            .arg(ground.mountpoint()),
    );
}

#[test]
fn a_refusal_names_the_pages_and_they_are_saved_before_they_are_given_up() {
    let Some(ground) = Ground::prepare("save") else {
        return;
    };
    two_changed(&ground);
    let saved = ground.path("saved");
    let changed = ground.path("base/base/5/16384");
    fs::write(&changed, content()).expect("changed");
    let recover = |options: &[&str]| {
        let mut recover = thermocline("recover");
        recover.arg(ground.path("base")).arg(ground.path("tier"));
        recover.args(options).output().expect("runs")
    };
    let refused = recover(&[]);
    let said = message(&refused);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    for part in [
        "base/5/16384: changed at 20",
        "dirty pages: ",
        "--save-to DIR --discard=FILE",
    ] {
        assert!(said.contains(part), "no {part:?} in {said}");
    }
    assert!(!said.contains("16385"), "that one was not changed: {said}");
    let wrong = recover(&["--discard=base/5/16385"]);
    let said = message(&wrong);
    assert_eq!(wrong.status.code(), Some(2), "{said}");
    assert!(said.contains("one of: base/5/16384"), "{said}");
    let directory = saved.display().to_string();
    let done = recover(&["--save-to", &directory, "--discard=base/5/16384"]);
    assert!(done.status.success(), "{}", message(&done));
    let pages = fs::read(saved.join("base_5_16384.pages")).expect("saved");
    assert!(pages.len().is_multiple_of(PAGE) && pages.len() <= PAGES / 2 * PAGE);
    let full = pages.chunks(PAGE).filter(|page| page[0] == 4);
    let full: Vec<&[u8]> = full.collect();
    assert!(full.len() > 8 && full.iter().all(|page| page.iter().all(|byte| *byte == 4)));
    assert_eq!(
        fs::read(&changed).expect("file"),
        content(),
        "kept as it is"
    );
    assert!(holds(&ground.path("base/base/5/16385"), 5), "written back");
}

#[test]
fn one_file_is_given_up_only_when_no_other_stands_in_the_way() {
    let Some(ground) = Ground::prepare("one of two") else {
        return;
    };
    two_changed(&ground);
    let path = |name: &str| ground.path("base/base/5").join(name);
    fs::write(path("16384"), content()).expect("changed");
    fs::remove_file(path("16385")).expect("removed");
    let recover = |options: &[&str]| {
        let mut recover = thermocline("recover");
        recover.arg(ground.path("base")).arg(ground.path("tier"));
        recover.args(options).output().expect("runs")
    };
    let before = dirty(&ground);
    let refused = recover(&["--discard=base/5/16384"]);
    let said = message(&refused);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("base/5/16385: gone"), "{said}");
    assert!(!said.contains("base/5/16384:"), "{said}");
    assert_eq!(dirty(&ground), before, "nothing was given up");
    let done = recover(&["--discard=base/5/16384", "--discard=base/5/16385"]);
    assert!(done.status.success(), "{}", message(&done));
    assert!(!Path::new(&path("16385")).exists());
}

fn dirty(ground: &Ground) -> u64 {
    check(ground)["dirty"].as_u64().expect("count")
}

/// A signal is not forgotten: the mount ends once it can.
#[test]
fn a_mount_that_is_mounted_over_ends_when_that_is_gone() {
    let Some(ground) = Ground::prepare("over") else {
        return;
    };
    let mountpoint = ground.mountpoint();
    let mut child = ground.served("--size 4M");
    let mut tmpfs = Command::new("mount");
    success(tmpfs.args(["-t", "tmpfs", "none"]).arg(&mountpoint));
    signal(&child);
    std::thread::sleep(std::time::Duration::from_secs(1));
    assert!(child.try_wait().expect("waits").is_none(), "it is there");
    assert_eq!(on_top(&mountpoint).as_deref(), Some("tmpfs"));
    success(Command::new("umount").arg(&mountpoint));
    assert!(child.wait().expect("ends").success());
    assert_eq!(on_top(&mountpoint), None);
}

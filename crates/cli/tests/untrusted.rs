//! Caches that are not what they should be: somebody else's, crafted, damaged, or with pages in
//! them that nothing else has. None is believed, and none is destroyed without a word.

mod refusals;

use refusals::*;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

#[test]
fn a_file_that_is_no_cache() {
    if !fuse("a_file_that_is_no_cache") {
        return;
    }
    let ground = Ground::new();
    let settings = "[tier]\npolicy = \"lru\"\n";
    fs::write(ground.cache(), settings).expect("file");
    let mut command = ground.mount_cache("--size 4M");
    refused(&mut command, CACHE, &["it has 22 bytes"]);
    let said = message(&command.output().expect("runs"));
    assert_eq!(said.matches("22 bytes").count(), 1, "said once: {said}");
    assert_eq!(fs::read_to_string(ground.cache()).expect("file"), settings);
}

#[test]
fn a_cache_that_somebody_else_may_have_made_or_may_change() {
    let case = "a_cache_that_somebody_else_may_have_made_or_may_change";
    if !root(case) || !fuse(case) {
        return;
    }
    let ground = Ground::new();
    let cache = ground.cache();
    let untrusted = |part: &str| {
        for options in ["--size 4M", "--size 4M --format"] {
            let parts = ["not to be trusted", part];
            refused(&mut ground.mount_cache(options), CACHE, &parts);
        }
    };
    fs::write(&cache, "").expect("file");
    refused(
        &mut ground.mount_cache("--size 4M"),
        CACHE,
        &["not to be trusted", "it is empty", "remove it"],
    );
    std::os::unix::fs::chown(&cache, Some(NOBODY), None).expect("owner");
    untrusted("belongs to user 65534");
    assert_eq!(fs::metadata(&cache).expect("file").len(), 0);
    std::os::unix::fs::chown(&cache, Some(0), None).expect("owner");
    fs::set_permissions(&cache, PermissionsExt::from_mode(0o666)).expect("mode");
    untrusted("others may write it (mode 0666)");
    fs::rename(&cache, ground.path("target")).expect("rename");
    symlink(ground.path("target"), &cache).expect("link");
    std::os::unix::fs::lchown(&cache, Some(NOBODY), None).expect("owner");
    untrusted("symbolic link");
}

#[test]
fn a_log_beside_the_cache_that_somebody_else_may_have_made() {
    let case = "a_log_beside_the_cache_that_somebody_else_may_have_made";
    if !root(case) || !fuse(case) {
        return;
    }
    let ground = Ground::new();
    let log = ground.path("tier.log");
    let mount = || {
        // In the background, where the log is this one.
        let mut command = std::process::Command::new("timeout");
        command.arg("20").arg(env!("CARGO_BIN_EXE_thermocline"));
        command
            .arg("mount")
            .arg(ground.base())
            .arg(ground.mountpoint());
        command
            .arg("--cache")
            .arg(ground.cache())
            .args(["--size", "4M"]);
        command
    };
    let untrusted = |part: &str| refused(&mut mount(), SYSTEM, &["tier.log", part, "--log"]);
    let target = ground.path("target");
    fs::write(&target, "own").expect("target");
    symlink(&target, &log).expect("link");
    std::os::unix::fs::lchown(&log, Some(NOBODY), None).expect("owner");
    untrusted("it is a symbolic link of somebody else");
    assert_eq!(fs::read_to_string(&target).expect("target"), "own");
    fs::remove_file(&log).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(&log).status();
    assert!(made.expect("runs").success());
    untrusted("it is no regular file");
    fs::remove_file(&log).expect("removed");
    fs::write(&log, "").expect("log");
    std::os::unix::fs::chown(&log, Some(NOBODY), None).expect("owner");
    untrusted("it belongs to user 65534");
    fs::remove_file(&log).expect("removed");
    let output = mount().output().expect("runs");
    assert!(output.status.success(), "{}", message(&output));
    let mode = fs::metadata(&log).expect("log").permissions().mode();
    assert_eq!(mode & 0o137, 0, "{mode:o}");
    unmount(&ground.mountpoint());
    // One that was named may be a link.
    symlink(&target, ground.path("named")).expect("link");
    let output = mount().arg("--log").arg(ground.path("named")).output();
    let output = output.expect("runs");
    assert!(output.status.success(), "{}", message(&output));
    unmount(&ground.mountpoint());
    let text = fs::read_to_string(&target).expect("target");
    assert!(
        text.starts_with("own") && text.contains("map saved"),
        "{text}"
    );
}

#[test]
fn dirty_pages_are_not_made_anew() {
    if !fuse("dirty_pages_are_not_made_anew") {
        return;
    }
    let ground = Ground::new();
    ground.make_dirty(3);
    let before = fs::read(ground.cache()).expect("cache");
    for options in ["--format", "--format --discard-dirty 2"] {
        refused(
            &mut ground.mount_cache(&format!("{options} --size 4M")),
            CACHE,
            &[
                "holds 3 pages that base does not have",
                "thermocline recover",
                "--discard-dirty 3",
            ],
        );
    }
    assert!(fs::read(ground.cache()).expect("cache") == before);
    let mut alone = ground.mount_cache("--size 4M --discard-dirty 3");
    let output = alone.output().expect("runs");
    assert_eq!(output.status.code(), Some(USAGE), "{}", message(&output));
    let mut other = thermocline();
    let elsewhere = ground.path("elsewhere");
    fs::create_dir(&elsewhere).expect("directory");
    other.arg("recover").arg(&elsewhere).arg(ground.cache());
    let said = message(&other.output().expect("runs"));
    assert!(said.contains("belongs to base"), "{said}");
    assert!(!said.contains("--format"), "{said}");
}

#[test]
fn a_crafted_object_is_damage() {
    if !fuse("a_crafted_object_is_damage") {
        return;
    }
    let outside = ["/etc/hostname", "../../outside", "base/../../x"];
    for (id, name) in outside
        .map(|name| (1, name))
        .into_iter()
        .chain([(u32::MAX - 15, "a")])
    {
        let ground = Ground::new();
        ground.make_dirty(1);
        ground.craft(id, name);
        let mut check = thermocline();
        let output = check
            .arg("check")
            .arg(ground.cache())
            .output()
            .expect("runs");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{name}: {said}");
        assert!(said.contains("object table at byte"), "{name}: {said}");
        let mut mount = ground.mount("--write-back");
        mount.arg("--cache").arg(ground.cache());
        refused(&mut mount, CACHE, &["is damaged", "thermocline check"]);
    }
}

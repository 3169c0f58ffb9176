//! `pin` and `unpin` by their commands: loaded, kept, listed, refused with the numbers, and there
//! again at the next start.

mod common;

use common::*;
use serde_json::Value;
use std::fs;
use std::process::Command;

const OTHER_PAGES: usize = 2000;

/// Reads the other file through the mount, some of it more than once.
fn flood(ground: &Ground) {
    for _ in 0..2 {
        let read = fs::read(ground.mountpoint().join("base/5/17000")).expect("read");
        assert_eq!(read.len(), OTHER_PAGES * PAGE);
    }
}

fn failure(command: &mut Command) -> String {
    let output = command.output().expect("runs");
    assert!(!output.status.success(), "{command:?} went well");
    message(&output)
}

fn listed(ground: &Ground) -> Value {
    let text = success(thermocline("pin").arg("--json").arg(ground.mountpoint()));
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_pinned_file_stays_on_flash() {
    let Some(ground) = Ground::prepare("pins") else {
        return;
    };
    let other = vec![7; OTHER_PAGES * PAGE];
    fs::write(ground.path("base/base/5/17000"), other).expect("a file");
    ground.mounted("--size 4M");
    let pin = |paths: &[&str]| {
        let mut command = thermocline("pin");
        command.arg(ground.mountpoint()).args(paths);
        command
    };
    assert_eq!(success(&mut pin(&[])), "nothing is pinned\n");
    let said = success(&mut pin(&["base/5/16384"]));
    assert!(said.contains("pin = [\"base/5/16384\"]"), "{said}");
    assert!(ground.said("config").contains("pin = [\"base/5/16384\"]"));
    flood(&ground);
    assert_eq!(ground.status("/stats/tier/pinned"), PAGES);
    let hits = || {
        ground
            .status("/stats/tier/pinned_hits")
            .as_u64()
            .expect("count")
    };
    let before = hits();
    ground.read();
    assert!(hits() - before >= PAGES as u64, "all of it came from flash");
    let status = success(thermocline("status").arg("--once").arg(ground.mountpoint()));
    assert!(status.contains("64 of 64 slots set aside"), "{status}");

    let too_much = failure(&mut pin(&["base/5/17000"]));
    assert!(
        too_much.contains("2064 pages") && too_much.contains("resize"),
        "{too_much}"
    );
    let unknown = failure(&mut pin(&["base/5/99"]));
    assert!(unknown.contains("\"base/5/99\""), "{unknown}");
    let not_pinned = failure(thermocline("unpin").arg(ground.mountpoint()).arg("x"));
    assert!(
        not_pinned.contains("pinned are base/5/16384"),
        "{not_pinned}"
    );
    assert_eq!(
        listed(&ground)["pin"],
        serde_json::json!(["base/5/16384"]),
        "as before"
    );

    success(thermocline("unpin").arg(ground.mountpoint()).arg("--all"));
    assert_eq!(listed(&ground)["slots"], 0);
    ground.umount();

    let config = ground.path("pins.toml");
    fs::write(&config, "[tier]\npin = [\"base/*/16384\", \"gone\"]\n").expect("written");
    // A cold cache: the file is loaded once the mount serves.
    ground.mounted(&format!("--size 4M --format --config {}", config.display()));
    eventually("the file to be loaded", || {
        ground.status("/stats/tier/pinned") == PAGES
    });
    let log = fs::read_to_string(ground.path("tier.log")).expect("log");
    assert!(log.contains("pin \"gone\" matches no file"), "{log}");
    flood(&ground);
    assert_eq!(ground.status("/stats/tier/pinned"), PAGES);
    ground.umount();
}

#[test]
fn another_cache_gets_the_pinned_files_too() {
    let Some(ground) = Ground::prepare("pins and replace") else {
        return;
    };
    fs::write(ground.path("base/base/5/17001"), [7; 3 * PAGE]).expect("a file");
    ground.mounted("--size 4M");
    let mountpoint = ground.mountpoint();
    let pin = |path| success(thermocline("pin").arg(&mountpoint).arg(path));
    pin("base/5/16384");
    pin("base/5/17001");
    success(
        thermocline("replace")
            .arg(&mountpoint)
            .arg("--cache")
            .arg(ground.path("other"))
            .args(["--size", "8M"]),
    );
    eventually("the files to be loaded", || {
        ground.status("/stats/tier/pinned") == PAGES + 3
    });
    // Its file gets another name: the others can be changed all the same.
    let renamed = (
        mountpoint.join("base/5/17001"),
        mountpoint.join("base/5/17002"),
    );
    fs::rename(&renamed.0, &renamed.1).expect("renamed");
    pin("base/5/17002");
    let unpin = |path| success(thermocline("unpin").arg(&mountpoint).arg(path));
    unpin("base/5/17001");
    unpin("base/5/16384");
    assert_eq!(listed(&ground)["pin"], serde_json::json!(["base/5/17002"]));
    ground.umount();
}

#[test]
fn a_load_that_fails_undoes_no_change() {
    let Some(ground) = Ground::prepare("pins not loaded") else {
        return;
    };
    ground.mounted("--size 4M");
    let pin = || {
        let mut pin = thermocline("pin");
        pin.arg(ground.mountpoint()).arg("base/5/16384");
        pin
    };
    success(&mut pin());
    let changed = |command: &str, options: &[&str]| {
        let mut command = thermocline(command);
        command.arg(ground.mountpoint()).args(options);
        success(&mut command)
    };
    let not_loaded = |part: &str| {
        eventually("the load to end", || {
            ground.said("cache").contains("state done")
        });
        let why = ground.status("/mount/not_loaded");
        let why = why.as_str().expect("text");
        assert_eq!(
            why.contains(part),
            why.is_empty() == part.is_empty(),
            "{why}"
        );
        let shown = changed("status", &["--once"]);
        assert_eq!(shown.contains("PINS"), !part.is_empty(), "{shown}");
    };
    not_loaded("");
    // The mount goes on without the name, but finds no files.
    let (base, away) = (ground.path("base"), ground.path("away"));
    fs::rename(&base, &away).expect("renamed");
    let said = changed("resize", &["--size", "8M"]);
    assert!(said.contains("8,388,608 bytes"), "{said}");
    not_loaded("cannot look through");
    let other = ground.path("other").display().to_string();
    changed("replace", &["--cache", &other]);
    not_loaded("cannot look through");
    let log = fs::read_to_string(ground.path("tier.log")).expect("log");
    assert!(log.contains("pinned files are not loaded: "), "{log}");
    fs::rename(&away, &base).expect("renamed");
    success(&mut pin());
    not_loaded("");
    assert_eq!(ground.status("/stats/tier/pinned"), PAGES);
    ground.umount();
}

/// What `psql -At` prints of two tables.
const RELATIONS: &str = "base/5/16384|accounts\nbase/5/17003|shop.history\nbase/5/1|gone\n";

#[test]
fn tables_are_pinned_by_name() {
    let Some(ground) = Ground::prepare("pins by name") else {
        return;
    };
    fs::write(ground.path("base/base/5/17003"), vec![7; 2000 * PAGE]).expect("a file");
    ground.mounted("--size 4M");
    let list = ground.path("relations");
    fs::write(&list, RELATIONS).expect("a list");
    let by_name = |command: &str, name: &str| {
        let mut command = thermocline(command);
        command.arg(ground.mountpoint()).arg("--relation").arg(name);
        command
    };
    let no_list = failure(&mut by_name("pin", "accounts"));
    assert!(
        no_list.contains("\"accounts\"") && no_list.contains("psql"),
        "{no_list}"
    );
    let listed_by_name = |command: &str, name: &str| {
        let mut command = by_name(command, name);
        command.arg("--relations").arg(&list);
        command
    };
    let unknown = failure(&mut listed_by_name("pin", "history"));
    assert!(unknown.contains("there are shop.history"), "{unknown}");
    let gone = failure(&mut listed_by_name("pin", "gone"));
    assert!(gone.contains("base/5/1, which is not below"), "{gone}");
    let too_much = failure(&mut listed_by_name("pin", "shop.history"));
    assert!(
        too_much.contains("2000 pages") && too_much.contains("resize"),
        "{too_much}"
    );
    success(&mut listed_by_name("pin", "public.accounts"));
    assert_eq!(listed(&ground)["pin"], serde_json::json!(["base/5/16384"]));
    assert_eq!(ground.status("/stats/tier/pinned"), PAGES);
    success(&mut listed_by_name("unpin", "accounts"));
    assert_eq!(listed(&ground)["pin"], serde_json::json!([]));
    ground.umount();
}

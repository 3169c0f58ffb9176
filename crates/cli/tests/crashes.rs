//! `kill -9` of a mount in write-back after what happens to files every day: none of it needs a
//! person at the next start, and nothing that was synced is lost.

mod common;

use common::{Ground, overwrite, success, thermocline};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, SystemTime};

const WRITE_BACK: &str = "--write-back --policy lc";
/// Longer than a lease: what happens then is not covered by the commit before.
const IDLE: Duration = Duration::from_secs(8);

/// A file with pages that only flash has, synced.
fn newer_than_base(path: &Path, fill: u8) {
    fs::write(path, vec![fill; 64 * 8192]).expect("write");
    File::open(path).expect("open").sync_all().expect("fsync");
    overwrite(path, fill + 1);
    let file = File::options().write(true).open(path).expect("open");
    file.write_all_at(&[fill + 1; 64 * 8192], 0).expect("write");
    file.sync_all().expect("fsync");
}

fn kill(ground: &Ground, mut child: Child) {
    child.kill().expect("kill");
    child.wait().expect("ends");
    success(thermocline("umount").arg(ground.mountpoint()));
}

fn file(ground: &Ground, name: &str) -> PathBuf {
    ground.mountpoint().join("base/5").join(name)
}

fn shows(path: &Path, fill: u8) {
    assert_eq!(fs::read(path).expect("read"), vec![fill; 64 * 8192]);
}

#[test]
fn metadata_changed_while_nothing_is_written_is_the_mounts_own_doing() {
    let Some(ground) = Ground::prepare("metadata, then a kill") else {
        return;
    };
    let child = ground.served(&format!("--size 8M {WRITE_BACK}"));
    for (name, fill) in [("1", 10), ("2", 20)] {
        newer_than_base(&file(&ground, name), fill);
    }
    std::thread::sleep(IDLE);
    let mode = fs::Permissions::from_mode(0o640);
    fs::set_permissions(file(&ground, "1"), mode).expect("chmod");
    fs::rename(file(&ground, "2"), file(&ground, "3")).expect("rename");
    kill(&ground, child);
    ground.mounted(WRITE_BACK);
    shows(&file(&ground, "1"), 11);
    shows(&file(&ground, "3"), 21);
    ground.umount();
}

#[test]
fn a_time_of_change_ahead_of_now_refuses_nothing() {
    let Some(ground) = Ground::prepare("times ahead, then a kill") else {
        return;
    };
    let child = ground.served(&format!("--size 8M {WRITE_BACK}"));
    newer_than_base(&file(&ground, "1"), 10);
    let opened = File::options().write(true).open(file(&ground, "1"));
    let ahead = SystemTime::now() + Duration::from_secs(86_400);
    opened.and_then(|f| f.set_modified(ahead)).expect("utimens");
    newer_than_base(&file(&ground, "2"), 20);
    kill(&ground, child);
    ground.mounted(WRITE_BACK);
    shows(&file(&ground, "1"), 11);
    shows(&file(&ground, "2"), 21);
    ground.umount();
}

#[test]
fn files_that_were_removed_are_not_waited_for() {
    let Some(ground) = Ground::prepare("unlink, then a kill") else {
        return;
    };
    let child = ground.served(&format!("--size 8M {WRITE_BACK}"));
    newer_than_base(&file(&ground, "stays"), 10);
    // Removed while it is newer than base, open and closed.
    newer_than_base(&file(&ground, "open"), 20);
    let open = File::options().write(true).open(file(&ground, "open"));
    let open = open.expect("open");
    newer_than_base(&file(&ground, "closed"), 30);
    fs::remove_file(file(&ground, "open")).expect("unlink");
    fs::remove_file(file(&ground, "closed")).expect("unlink");
    open.write_all_at(&[1; 64 * 8192], 0).expect("write");
    open.sync_all().expect("fsync");
    // Removed just after it was written back: the map on flash does not know yet.
    newer_than_base(&file(&ground, "written"), 40);
    fs::write(ground.control("write_back"), "off\n").expect("written back");
    common::eventually("all is with base but what is open", || {
        fs::metadata(file(&ground, "written")).is_ok()
            && fs::read(ground.path("base/base/5/written")).expect("base") == vec![41; 64 * 8192]
    });
    fs::remove_file(file(&ground, "written")).expect("unlink");
    kill(&ground, child);
    drop(open);
    ground.mounted(WRITE_BACK);
    shows(&file(&ground, "stays"), 11);
    for name in ["open", "closed", "written"] {
        assert!(!file(&ground, name).exists(), "{name}");
    }
    ground.umount();
}

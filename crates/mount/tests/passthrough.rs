//! Files that bypass the tier, served by the kernel on base itself.

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use common::TestMount;
use thermocline::{Recorder, RecorderOptions};
use thermocline_mount::MountConfig;

/// Whether the kernel serves the file called `name`, which is open.
fn is_passed(mount: &TestMount, name: &str) -> bool {
    let objects = mount.engine.stats().objects;
    let found = objects.iter().find(|object| object.name == name);
    found.is_some_and(|object| object.passthrough)
}

/// Whether this system can do it at all: root, on Linux 6.9.
fn is_possible() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("release");
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let possible = common::is_root() && version >= (6, 9);
    if !possible {
        eprintln!("skipped: passthrough needs root and Linux 6.9");
    }
    possible
}

/// A mount with nothing in the tier, or `None` where there is none to be had.
fn start(adjust: impl FnOnce(&mut MountConfig)) -> Option<TestMount> {
    if !is_possible() {
        return None;
    }
    TestMount::start(|config| {
        config.rules = common::cache_all(false);
        adjust(config);
    })
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).expect("open")
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).expect("stat").len()
}

#[test]
fn a_bypassed_file_is_read_and_written_by_the_kernel() {
    let Some(mount) = start(|_| {}) else { return };
    let (path, on_base) = (mount.mnt().join("f"), mount.base().join("f"));
    let file = open(&path);
    assert!(is_passed(&mount, "f"));
    file.write_all_at(&[7; 10_000], 0).expect("write");
    let other = open(&path);
    let mut bytes = vec![0; 10_000];
    other.read_exact_at(&mut bytes, 0).expect("read");
    assert_eq!(bytes, [7; 10_000]);
    assert_eq!(fs::read(&on_base).expect("base"), bytes);
    let stats = mount.engine.stats();
    assert_eq!((stats.bypassed_reads, stats.bypassed_writes), (0, 0));
    let listed = stats
        .objects
        .iter()
        .find(|object| object.name == "f")
        .expect("listed");
    assert_eq!(listed.pages, 3, "as long as base says");
    drop((file, other));
    // What base gets besides is seen.
    fs::write(&on_base, b"other").expect("write base");
    assert_eq!(fs::read(&path).expect("read"), b"other");
    mount.end();
}

#[test]
fn lengths_are_those_of_base() {
    let Some(mount) = start(|_| {}) else { return };
    let path = mount.mnt().join("f");
    let mut file = open(&path);
    file.write_all(&[1; 5000]).expect("write");
    assert_eq!(size(&path), 5000);
    file.set_len(100).expect("truncate");
    assert_eq!(size(&path), 100);
    file.write_all_at(&[2; 10], 9000)
        .expect("write behind the end");
    assert_eq!(size(&path), 9010);
    // SAFETY: no memory is passed.
    let allocated = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 20_000) };
    assert_eq!(allocated, 0);
    assert_eq!(size(&path), 20_000);
    let mut appending = OpenOptions::new().append(true).open(&path).expect("open");
    appending.write_all(b"end").expect("append");
    assert_eq!(size(&path), 20_003);
    assert_eq!(size(&mount.base().join("f")), 20_003);
    let shorter = OpenOptions::new().write(true).truncate(true).open(&path);
    drop(shorter.expect("open and truncate"));
    assert_eq!(size(&path), 0);
    file.write_all_at(b"x", 0).expect("write");
    assert_eq!(fs::read(&path).expect("read"), b"x");
    drop((file, appending));
    mount.end();
}

#[test]
fn every_sync_reaches_base() {
    let (devices, syncs) = common::noting();
    let Some(mount) = start(|config| config.devices = devices) else {
        return;
    };
    let file = open(&mount.mnt().join("f"));
    assert!(is_passed(&mount, "f"));
    for number in 0..10 {
        file.write_all_at(&[number; 100], 0).expect("write");
        let data_only = number % 2 == 1;
        let synced = match data_only {
            true => file.sync_data(),
            false => file.sync_all(),
        };
        synced.expect("sync");
        let noted = std::mem::take(&mut *syncs.lock().expect("lock"));
        assert_eq!(noted, [data_only], "sync {number}");
    }
    drop(file);
    mount.end();
}

#[test]
fn a_name_that_is_lost_or_changed_leaves_open_files_be() {
    let Some(mount) = start(|_| {}) else { return };
    let path = mount.mnt().join("f");
    let file = open(&path);
    file.write_all_at(b"first", 0).expect("write");
    fs::rename(&path, mount.mnt().join("g")).expect("rename");
    let again = open(&mount.mnt().join("g"));
    again.write_all_at(b"F", 0).expect("write");
    fs::remove_file(mount.mnt().join("g")).expect("unlink");
    let new = open(&path);
    new.write_all_at(b"another", 0).expect("write");
    let mut bytes = [0; 5];
    file.read_exact_at(&mut bytes, 0).expect("read");
    assert_eq!(&bytes, b"First");
    assert_eq!(file.metadata().expect("stat").nlink(), 0);
    drop((file, again, new));
    assert_eq!(fs::read(&path).expect("read"), b"another");
    mount.end();
}

#[test]
fn maps_of_a_passed_file_are_those_of_base() {
    let Some(mount) = start(|_| {}) else { return };
    let path = mount.mnt().join("f");
    let file = open(&path);
    file.set_len(8192).expect("length");
    // SAFETY: a new map of an open file, given back below.
    let map = unsafe {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let shared = libc::MAP_SHARED;
        libc::mmap(
            std::ptr::null_mut(),
            8192,
            access,
            shared,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(map, libc::MAP_FAILED);
    // SAFETY: the map is 8192 bytes long.
    let bytes = unsafe { std::slice::from_raw_parts_mut(map.cast::<u8>(), 8192) };
    bytes[5000] = 9;
    let mut byte = [0];
    file.read_exact_at(&mut byte, 5000).expect("read");
    assert_eq!(byte, [9]);
    file.write_all_at(&[8], 1).expect("write");
    assert_eq!(bytes[1], 8);
    // SAFETY: what was mapped above.
    assert_eq!(unsafe { libc::munmap(map, 8192) }, 0);
    drop(file);
    assert_eq!(fs::read(mount.base().join("f")).expect("base")[5000], 9);
    mount.end();
}

#[test]
fn whoever_may_not_write_does_not_and_set_id_bits_go() {
    let Some(mount) = start(|_| {}) else { return };
    fs::set_permissions(mount.dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let path = mount.mnt().join("f");
    fs::write(&path, b"x").expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("chmod");
    let refused = common::as_user(12_345, || OpenOptions::new().write(true).open(&path));
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    // The mount hears of the last close a moment later; until then the file is the kernel's.
    std::thread::sleep(std::time::Duration::from_millis(20));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).expect("chmod");
    common::as_user(12_345, || {
        let mut file = OpenOptions::new().write(true).open(&path).expect("open");
        assert!(!is_passed(&mount, "f"));
        file.write_all(b"y").expect("write");
    });
    assert_eq!(fs::metadata(&path).expect("stat").mode() & 0o7777, 0o777);
    mount.end();
}

#[test]
fn what_is_recorded_or_asked_for_goes_through_the_mount() {
    let Some(mount) = start(|config| config.passthrough = false) else {
        return;
    };
    let file = open(&mount.mnt().join("f"));
    assert!(!is_passed(&mount, "f"));
    drop(file);
    mount.end();

    let Some(mount) = start(|_| {}) else { return };
    let trace = mount.dir.path().join("trace");
    let recorder = Recorder::create(&trace, RecorderOptions::default()).expect("recorder");
    mount.engine.set_recorder(Some(recorder));
    let file = open(&mount.mnt().join("f"));
    file.write_all_at(b"x", 0).expect("write");
    assert!(!is_passed(&mount, "f"));
    assert_eq!(mount.engine.stats().bypassed_writes, 1);
    let recorder = mount.engine.set_recorder(None).expect("it recorded");
    recorder.finish().expect("trace");
    // It goes on the way that it went on, until it is closed.
    let again = open(&mount.mnt().join("f"));
    assert!(!is_passed(&mount, "f"));
    drop((file, again));
    let mut options = OpenOptions::new();
    let direct = options.read(true).custom_flags(libc::O_DIRECT);
    // A close returns before the mount is told of it, and an open may be served before that.
    let passed = (0..1000).any(|_| {
        let file = direct.open(mount.mnt().join("f")).expect("open");
        let passed = is_passed(&mount, "f");
        drop(file);
        std::thread::sleep(Duration::from_millis(1));
        passed
    });
    assert!(passed, "closed, it may go the other way");
    mount.end();
}

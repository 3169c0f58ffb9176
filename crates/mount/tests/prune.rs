//! More files than the process may have open: the kernel is asked to forget some, and nobody
//! notices.

mod common;

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::TestMount;

/// Inodes that the kernel may hold.
const MOST: usize = 200;
/// Files, many times as many.
const FILES: usize = 2_000;

fn path(mount: &TestMount, number: usize) -> PathBuf {
    let directory = mount.mnt().join(format!("d{}", number % 7));
    directory.join(format!("f{number}"))
}

fn content(number: usize) -> Vec<u8> {
    vec![number as u8; 100 + number % 9_000]
}

fn start() -> Option<TestMount> {
    let mount = TestMount::start(|config| {
        config.inodes_max = Some(MOST);
        config.rules = common::cache_everything();
    })?;
    for number in 0..7 {
        fs::create_dir(mount.mnt().join(format!("d{number}"))).expect("directory");
    }
    Some(mount)
}

/// Waits until the kernel holds no more inodes than it may.
fn settles(mount: &TestMount) {
    let begin = Instant::now();
    while mount.handle().fs().held().0 > MOST {
        let held = mount.handle().fs().held().0;
        assert!(begin.elapsed() < Duration::from_secs(60), "still {held}");
        std::thread::sleep(Duration::from_millis(20));
        // A lookup is what has the next round made.
        let _ = fs::metadata(mount.mnt().join("d0"));
        let _ = fs::metadata(mount.mnt().join("none"));
        let _ = fs::metadata(path(mount, 0));
    }
}

#[test]
fn many_files_are_written_and_read_with_few_inodes() {
    let Some(mount) = start() else { return };
    let write = |part: usize| {
        for number in (part..FILES).step_by(4) {
            fs::write(path(&mount, number), content(number)).expect("write");
        }
    };
    std::thread::scope(|scope| {
        (0..4).for_each(|part| drop(scope.spawn(move || write(part))));
    });
    settles(&mount);
    for number in 0..FILES {
        let found = fs::read(path(&mount, number)).expect("read");
        assert!(found == content(number), "file {number}");
    }
    settles(&mount);
}

#[test]
fn files_that_are_only_made_are_pruned_too() {
    let Some(mount) = start() else { return };
    // In the root: nothing on the way to them is looked up.
    let most = (0..FILES).map(|number| {
        let path = mount.mnt().join(format!("new{number}"));
        drop(File::create_new(path).expect("made"));
        mount.handle().fs().held().0
    });
    let most = most.max().expect("files");
    assert!(most < FILES / 2, "{most} inodes at once");
}

#[test]
fn what_is_in_use_stays() {
    let Some(mount) = start() else { return };
    let open = |name: &str| {
        fs::write(mount.mnt().join(name), name).expect("write");
        File::open(mount.mnt().join(name)).expect("open")
    };
    let (mut named, mut nameless, linked) = (open("named"), open("nameless"), open("linked"));
    fs::remove_file(mount.mnt().join("nameless")).expect("unlink");
    fs::hard_link(mount.mnt().join("linked"), mount.mnt().join("other")).expect("link");
    let inode = linked.metadata().expect("stat").ino();
    drop(linked);
    for number in 0..FILES {
        fs::write(path(&mount, number), content(number)).expect("write");
    }
    settles(&mount);
    let text = |file: &mut File| {
        let mut text = String::new();
        file.rewind().expect("seek");
        file.read_to_string(&mut text).expect("read");
        text
    };
    assert_eq!(text(&mut named), "named");
    assert_eq!(text(&mut nameless), "nameless");
    let seen: &Path = &mount.mnt();
    assert_eq!(fs::metadata(seen.join("other")).expect("stat").ino(), inode);
    assert_eq!(fs::metadata(seen.join("linked")).expect("stat").nlink(), 2);
    assert_eq!(fs::metadata(seen.join("named")).expect("stat").nlink(), 1);
    assert_eq!(named.metadata().expect("stat").nlink(), 1);
}

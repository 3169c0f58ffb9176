//! A base with little room, in write-back: the write that finds it full is told so, and what was
//! accepted before it has its place.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::TestMount;

const PAGE: usize = common::PAGE as usize;
/// Pages of the base.
const ROOM: usize = 256;

/// Puts a file system of [`ROOM`] pages on a directory.
fn small(base: &Path) {
    let mut command = Command::new("mount");
    let size = format!("size={}", ROOM * PAGE);
    command
        .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
        .arg(base);
    assert!(command.status().expect("mount is there").success());
}

/// Pages that the base has room for.
fn free(base: &Path) -> usize {
    let mut command = Command::new("stat");
    let said = command.args(["-f", "-c", "%f %S"]).arg(base).output();
    let said = String::from_utf8(said.expect("stat is there").stdout).expect("text");
    let numbers: Vec<usize> = said.split_whitespace().flat_map(str::parse).collect();
    numbers[0] * numbers[1] / PAGE
}

/// Writes pages to a new file until there is no room; how many there was room for.
fn fill(file: &File) -> usize {
    for page in 0..=ROOM {
        let bytes = [page as u8 | 1; PAGE];
        match file.write_all_at(&bytes, (page * PAGE) as u64) {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOSPC), "page {page}");
                return page;
            }
        }
    }
    panic!("more than there is room for");
}

#[test]
fn a_full_base_is_told_to_the_write_that_finds_it_full() {
    if !common::is_root() {
        return;
    }
    for pool in [0, 512 << 10] {
        let engine = common::engine_back(8 << 20, pool);
        let start = TestMount::start_with(engine, |config| {
            config.rules = common::cache_everything();
            small(&config.base);
        });
        let Some(mount) = start else { return };
        let path = mount.mnt().join("a");
        // Twice: what is removed gives its room back, though it never reached base.
        for _ in 0..2 {
            let file = File::create_new(&path).expect("creates");
            let pages = fill(&file);
            assert!(pages > ROOM * 3 / 4, "{pages} pages");
            assert_eq!(
                file.metadata().expect("is there").len(),
                (pages * PAGE) as u64
            );
            file.sync_all().expect("fsync");
            let expected: Vec<u8> = (0..pages).flat_map(|page| [page as u8 | 1; PAGE]).collect();
            assert!(
                fs::read(&path).expect("reads") == expected,
                "through the mount"
            );
            drop(file);
            mount
                .engine
                .flush(|_| true)
                .expect("all of it has its place");
            assert!(
                fs::read(mount.base().join("a")).expect("reads") == expected,
                "on base"
            );
            fs::remove_file(&path).expect("removes");
            // The kernel tells of the last use after the fact.
            let begun = Instant::now();
            while free(&mount.base()) < ROOM * 3 / 4 {
                assert!(begun.elapsed().as_secs() < 60, "its room is not back");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        // The mount still has it open; its directory can go.
        common::detach(&mount.base());
        mount.end();
    }
}

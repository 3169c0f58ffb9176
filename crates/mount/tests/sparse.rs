//! `SEEK_DATA` and `SEEK_HOLE` while the newest bytes are in DRAM or on flash: programs that copy
//! what they find (GNU `cp`, `tar -S`) must find all of it.

mod common;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use common::{Random, TestMount};

const LEN: u64 = 1 << 20;

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).expect("open")
}

fn seek(file: &File, offset: u64, whence: i32) -> Result<u64, i32> {
    // SAFETY: no memory is passed.
    let at = unsafe { libc::lseek(file.as_raw_fd(), offset as i64, whence) };
    u64::try_from(at).map_err(|_| io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// What a program gets that copies data and leaves holes out.
fn copied(file: &File) -> Vec<u8> {
    let len = file.metadata().expect("stat").len();
    let mut copy = vec![0; len as usize];
    let mut at = 0;
    while at < len {
        let data = match seek(file, at, libc::SEEK_DATA) {
            Ok(data) => data,
            Err(code) => {
                assert_eq!(code, libc::ENXIO, "no data behind {at}");
                break;
            }
        };
        let hole = seek(file, data, libc::SEEK_HOLE).expect("the end is a hole");
        assert!(
            data >= at && hole > data && hole <= len,
            "{at} {data} {hole} of {len}"
        );
        file.read_exact_at(&mut copy[data as usize..hole as usize], data)
            .expect("read");
        at = hole;
    }
    copy
}

fn whole(file: &File) -> Vec<u8> {
    let mut content = vec![0; file.metadata().expect("stat").len() as usize];
    file.read_exact_at(&mut content, 0).expect("read");
    content
}

fn start(pool_bytes: u64) -> Option<TestMount> {
    let engine = common::engine_back(8 << 20, pool_bytes);
    TestMount::start_with(engine, |config| config.rules = common::cache_everything())
}

#[test]
fn pages_that_base_does_not_have_are_data() {
    for pool_bytes in [0, 512 << 10] {
        let Some(mount) = start(pool_bytes) else {
            return;
        };
        let file = open(&mount.mnt().join("f"));
        file.set_len(LEN).expect("truncate");
        file.write_all_at(&[7; 65536], 65536).expect("write");
        let plain = open(&mount.dir.path().join("plain"));
        plain.set_len(LEN).expect("truncate");
        plain.write_all_at(&[7; 65536], 65536).expect("write");
        for synced in [false, true] {
            if synced {
                file.sync_all().expect("fsync");
            }
            for at in [0, 5, 65536, 70_000, 131_071, 131_072, LEN - 1, LEN, LEN + 1] {
                for whence in [libc::SEEK_DATA, libc::SEEK_HOLE] {
                    assert_eq!(
                        seek(&file, at, whence),
                        seek(&plain, at, whence),
                        "pool {pool_bytes}, synced {synced}: whence {whence} from {at}"
                    );
                }
            }
            assert_eq!(copied(&file), whole(&plain));
        }
        drop(file);
        mount.end();
    }
}

#[test]
fn a_copy_of_the_data_is_a_copy_of_the_file_whatever_was_done_to_it() {
    for (seed, pool_bytes) in [(1, 0), (2, 128 << 10), (3, 2 << 20)] {
        let Some(mount) = start(pool_bytes) else {
            return;
        };
        let path = mount.mnt().join("f");
        let file = open(&path);
        file.set_len(LEN).expect("truncate");
        let mut random = Random::new(seed);
        for step in 0..120 {
            let (offset, len) = (random.below(LEN), random.below(40_000) + 1);
            match random.below(8) {
                0 => file.set_len(random.below(LEN)).expect("truncate"),
                1 => file.sync_all().expect("fsync"),
                2 => {
                    let mode = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE;
                    let (offset, len) = (offset as i64, len as i64);
                    // SAFETY: no memory is passed.
                    let done = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) };
                    assert_eq!(done, 0);
                }
                _ => file
                    .write_all_at(&random.bytes(len as usize), offset)
                    .expect("write"),
            }
            assert!(copied(&file) == whole(&file), "seed {seed}, step {step}");
        }
        drop(file);
        mount.end();
    }
}

#[test]
fn a_file_whose_bytes_are_all_on_flash_has_blocks() {
    let Some(mount) = start(64 << 10) else { return };
    let path = mount.mnt().join("f");
    let file = open(&path);
    file.set_len(LEN).expect("truncate");
    file.write_all_at(&[7; 65536], 65536).expect("write");
    file.sync_all().expect("fsync");
    let on_base = std::fs::metadata(mount.base().join("f")).expect("stat");
    assert_eq!(on_base.blocks(), 0, "base has nothing yet");
    assert!(file.metadata().expect("stat").blocks() > 0);
    drop(file);
    let closed = std::fs::metadata(&path).expect("stat");
    assert!(closed.blocks() > 0, "tar -S would take it for a hole");
    mount.end();
}

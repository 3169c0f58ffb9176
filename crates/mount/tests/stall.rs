//! The deadlock that roles must not cause.
//!
//! A process maps and unmaps files of the mount in some threads and takes page faults on them
//! in others, so that its address-space lock is often held by a thread that waits for the mount.
//! Whoever reads the process's command line waits for that lock. If a request handler did, the
//! mount would wait for itself; the process is called `postgres`, which is the one name whose
//! command line is read at all.

mod common;

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::TestMount;

const CLIENT: &str = "THERMOCLINE_TEST_CLIENT";
const LEN: usize = 1 << 20;
const THREADS: usize = 8;
const ROUNDS: usize = 300;
/// Far above what the rounds take; only a stall gets here.
const STALLED: Duration = Duration::from_secs(120);

#[test]
fn a_process_that_maps_files_under_load_does_not_stall_the_mount() {
    // The other side of the test is this same program, started again by it.
    if let Some(dir) = std::env::var_os(CLIENT) {
        return client(Path::new(&dir));
    }
    let Some(mount) = TestMount::all_cached() else {
        return;
    };
    std::fs::write(mount.mnt().join("shared"), vec![1; LEN]).expect("write");
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args([
            "--exact",
            "a_process_that_maps_files_under_load_does_not_stall_the_mount",
        ])
        .env(CLIENT, mount.mnt())
        .spawn()
        .expect("client");
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("client") {
            break status;
        }
        if started.elapsed() > STALLED {
            child.kill().expect("kill");
            panic!("the client did not end: the mount is stalled");
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(status.success(), "the client failed: {status}");
    mount.end();
}

fn client(dir: &Path) {
    let path = dir.join("shared");
    let threads: Vec<_> = (0..THREADS)
        .map(|number| {
            let path: PathBuf = path.clone();
            // A thread's name is its `comm`.
            let thread = std::thread::Builder::new().name("postgres".into());
            thread
                .spawn(move || exercise(&path, number))
                .expect("thread")
        })
        .collect();
    for thread in threads {
        thread.join().expect("thread");
    }
}

fn exercise(path: &Path, number: usize) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .expect("open");
    let mut page = [0; 4096];
    for round in 0..ROUNDS {
        if number.is_multiple_of(2) {
            map_and_touch(&file, round + number);
        } else {
            let offset = ((round * 7 + number) * 4096 % LEN) as u64;
            file.read_exact_at(&mut page, offset).expect("read");
            file.write_all_at(&page, offset).expect("write");
        }
    }
}

fn map_and_touch(file: &File, seed: usize) {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new map of a file that is `LEN` bytes long, touched only within, unmapped at the
    // end; other processes and threads may change the bytes, which are read as volatile.
    unsafe {
        let fd = file.as_raw_fd();
        let map = libc::mmap(std::ptr::null_mut(), LEN, prot, libc::MAP_SHARED, fd, 0);
        assert_ne!(map, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        for step in 0..8 {
            let at = map.cast::<u8>().add((seed * 31 + step * 37) * 4096 % LEN);
            at.write_volatile(at.read_volatile().wrapping_add(1));
        }
        assert_eq!(libc::munmap(map, LEN), 0);
    }
}

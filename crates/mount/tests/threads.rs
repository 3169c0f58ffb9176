//! How many threads serve a mount through `/dev/fuse`.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use common::{TestMount, cache_everything};
use thermocline_mount::Transport;

/// Threads of a mount at first.
const THREADS: usize = 16;
const PAGE: usize = common::PAGE as usize;
const PAGES: u64 = 64;
const READS: u64 = 4000;

/// Threads of this process that serve requests of the device.
fn serving() -> usize {
    let tasks = fs::read_dir("/proc/self/task").expect("a list");
    let names = tasks.map(|task| {
        let comm = task.expect("a thread").path().join("comm");
        fs::read_to_string(comm).unwrap_or_default()
    });
    names.filter(|name| name.starts_with("fuse-")).count()
}

/// Whoever has an answer may ask at once, and finds the thread that gave it.
#[test]
fn fewer_clients_than_threads_bring_no_more() {
    let engine = common::engine(1 << 20, 1 << 20);
    let Some(mount) = TestMount::start_with(engine, |config| {
        config.rules = cache_everything();
        config.transport = Transport::Device;
    }) else {
        return;
    };
    let path = mount.mnt().join("f");
    fs::write(&path, vec![7; PAGES as usize * PAGE]).expect("write");
    // A thread names itself, some time after it was started.
    let begun = Instant::now();
    while serving() < THREADS {
        assert!(begun.elapsed() < Duration::from_secs(60), "all have names");
        std::thread::yield_now();
    }
    let file = File::open(&path).expect("open");
    std::thread::scope(|scope| {
        for client in 0..THREADS as u64 - 2 {
            let file = &file;
            scope.spawn(move || {
                let mut page = vec![0; PAGE];
                for number in 0..READS {
                    let at = (client + number) % PAGES * PAGE as u64;
                    file.read_exact_at(&mut page, at).expect("read");
                    assert_eq!(page[0], 7);
                }
            });
        }
    });
    assert_eq!(serving(), THREADS, "14 clients need no more");
    drop(file);
    mount.end();
}

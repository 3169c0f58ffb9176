//! What the mount adds to a direct read of the same device, inside one run.
//!
//! `cargo bench -p thermocline-mount` (needs FUSE and the right to mount). Random page reads of a
//! file whose pages are all on flash, through the mount, in turn with `O_DIRECT` reads of the cache
//! file. `THERMOCLINE_BENCH_THREADS` sets the threads that serve the mount. The cache file is made
//! under `THERMOCLINE_BENCH_DIR` (default: the temporary directory).

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thermocline::device::AlignedBuf;
use thermocline::{BaseIdentity, Engine, EngineConfig, Store, StoreOptions};
use thermocline_mount::{Mount, MountConfig};

const DATA_BYTES: u64 = 256 << 20;
const ROUND: Duration = Duration::from_secs(5);
const TURNS: usize = 9;

fn main() {
    let directory = std::env::var_os("THERMOCLINE_BENCH_DIR").map(PathBuf::from);
    let directory = tempfile::tempdir_in(directory.unwrap_or_else(std::env::temp_dir));
    let directory = directory.expect("a directory");
    println!(
        "flash: file in {} on this machine's disk",
        directory.path().display()
    );
    println!(
        "{:>6} {:>8} {:>10} {:>10} {:>10} {:>9}",
        "page", "threads", "raw us", "mount us", "added us", "ratio"
    );
    for page_size in [8192, 16384] {
        measure(&directory.path().join(page_size.to_string()), page_size);
    }
}

/// A base directory that looks like PostgreSQL's, so that the rules cache its relation.
fn base(directory: &Path) -> PathBuf {
    let base = directory.join("base");
    fs::create_dir_all(base.join("base/5")).expect("directories");
    fs::create_dir_all(directory.join("mount")).expect("directories");
    fs::write(base.join("PG_VERSION"), "15\n").expect("a file");
    let relation = File::create(base.join("base/5/16400")).expect("a file");
    relation.set_len(DATA_BYTES).expect("a sparse file");
    base
}

fn measure(directory: &Path, page_size: u32) {
    let base = base(directory);
    let cache = directory.join("cache");
    let identity = BaseIdentity {
        file_system: 0,
        inode: fs::metadata(&base).expect("base").ino(),
        path: base.display().to_string(),
        ..BaseIdentity::default()
    };
    let options = StoreOptions {
        page_size,
        size: Some(DATA_BYTES + (16 << 20)),
        base: identity,
        format: true,
        deadline: Some(Duration::from_secs(5)),
        ..StoreOptions::default()
    };
    let store = Store::open(&cache, &options).expect("a cache file");
    let config = EngineConfig {
        page_size,
        policy: "lru".into(),
        ..EngineConfig::default()
    };
    let engine = Engine::start(config, Some(store)).expect("an engine");
    let mut config = MountConfig::new(&base, directory.join("mount"));
    if let Some(threads) = std::env::var_os("THERMOCLINE_BENCH_THREADS") {
        config.threads = threads
            .to_string_lossy()
            .parse()
            .expect("a number of threads");
    }
    let mount = Mount::start(config, engine.clone()).expect("a mount");

    let raw = direct(&cache);
    let mounted = direct(&mount.mountpoint().join("base/5/16400"));
    warm(&engine, &mounted, page_size);
    let pages = DATA_BYTES / u64::from(page_size);
    let size = page_size as usize;
    let raw_op = |random: u64, buf: &mut AlignedBuf| {
        read(
            &raw,
            8192 + random % pages * u64::from(page_size),
            &mut buf[..size],
        );
    };
    let mount_op = |random: u64, buf: &mut AlignedBuf| {
        read(
            &mounted,
            random % pages * u64::from(page_size),
            &mut buf[..size],
        );
    };
    let [a, b] = in_turn(&raw_op, &mount_op);
    println!(
        "{page_size:>6} {:>8} {a:>10.1} {b:>10.1} {:>10.1} {:>8.2}x",
        1,
        b - a,
        b / a
    );
    let (mut raws, mut mounts) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        raws.push(8e6 / rate(8, &raw_op));
        mounts.push(8e6 / rate(8, &mount_op));
    }
    let (a, b) = (median(raws), median(mounts));
    println!(
        "{page_size:>6} {:>8} {a:>10.1} {b:>10.1} {:>10.1} {:>8.2}x",
        8,
        b - a,
        b / a
    );
    assert_eq!(engine.stats().tier.expect("a tier").off, None);
    drop((raw, mounted));
    mount.unmount().expect("unmounts");
    engine.stop().expect("stops");
}

fn direct(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(path)
        .expect("opens")
}

/// Reads everything once, at the pace of the background writers.
fn warm(engine: &Engine, file: &File, page_size: u32) {
    let mut buf = AlignedBuf::new(page_size as usize);
    for page in 0..DATA_BYTES / u64::from(page_size) {
        read(file, page * u64::from(page_size), &mut buf);
        while engine.stats().tier.is_some_and(|t| t.staged > 200) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    while engine.stats().tier.is_some_and(|t| t.staged > 0) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let resident = engine.stats().tier.map_or(0, |t| u64::from(t.resident));
    assert_eq!(
        resident,
        DATA_BYTES / u64::from(page_size),
        "every page is on flash"
    );
}

fn read(file: &File, offset: u64, buf: &mut [u8]) {
    // SAFETY: `buf` is writable for its length and outlives the call.
    let read = unsafe {
        libc::pread(
            file.as_raw_fd(),
            buf.as_mut_ptr().cast(),
            buf.len(),
            offset as libc::off_t,
        )
    };
    assert_eq!(read, buf.len() as isize);
}

type Op<'a> = &'a (dyn Fn(u64, &mut AlignedBuf) + Sync);

fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    thermocline_core::hash::mix(*state, 1)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Median time of a call of each, called in turn by one thread, in microseconds.
fn in_turn(a: Op<'_>, b: Op<'_>) -> [f64; 2] {
    let mut times = [Vec::new(), Vec::new()];
    let (mut state, mut buf) = (1, AlignedBuf::new(16384));
    let started = Instant::now();
    while started.elapsed() < ROUND {
        for (op, times) in [a, b].into_iter().zip(&mut times) {
            let page = random(&mut state);
            let began = Instant::now();
            op(page, &mut buf);
            times.push(began.elapsed().as_secs_f64() * 1e6);
        }
    }
    times.map(median)
}

/// Calls per second of `threads` threads in one short round.
fn rate(threads: u64, op: Op<'_>) -> f64 {
    let done = AtomicU64::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let done = &done;
            scope.spawn(move || {
                let (mut state, mut buf, mut count) = (thread, AlignedBuf::new(16384), 0);
                while started.elapsed() < ROUND / 10 {
                    op(random(&mut state), &mut buf);
                    count += 1;
                }
                done.fetch_add(count, Ordering::Relaxed);
            });
        }
    });
    done.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
}

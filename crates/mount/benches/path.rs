//! The way through the mount beside the hardware's, inside one run.
//!
//! `cargo bench -p thermocline-mount --bench path` (needs FUSE and the right to mount). Scans and
//! random reads of a relation whose pages are all on flash, or all in base, beside direct reads of
//! the same device; and files that bypass the tier beside the same files without a mount. Each
//! figure is a time; rivals take turns; *ratio* is the median of the turns' ratios, with the lowest
//! and the highest. Files lie in `THERMOCLINE_BENCH_DIR` (default: the temporary directory). A
//! word as argument runs the rows whose name has it.

mod floor;

use floor::Floor;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use thermocline::device::AlignedBuf;
use thermocline::{BaseIdentity, Engine, EngineConfig, Store, StoreOptions};
use thermocline_mount::{Mount, MountConfig, MountHandle};

const PAGE: usize = 8192;
const DATA: usize = 256 << 20;
/// Bytes of a file that bypasses the tier: it stays in the page cache.
const SMALL: usize = 16 << 20;
const REPEATS: usize = 7;
/// Random reads of each of several clients in one turn.
const READS: u64 = 2000;
/// One client asks for fewer in more turns: what is looked for are a few microseconds, and the
/// disk's speed changes by more from one second to the next. Several do not: where a host limits
/// requests a second, what was saved up in the turns of others would go at once.
const SINGLE_READS: u64 = 500;
const SINGLE_TURNS: usize = 61;
/// How long a mount's device may take.
const DEADLINE: Option<Duration> = Some(Duration::from_secs(5));

fn main() {
    let only: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let directory = std::env::var_os("THERMOCLINE_BENCH_DIR").map(PathBuf::from);
    let directory = tempfile::tempdir_in(directory.unwrap_or_else(std::env::temp_dir));
    let directory = directory.expect("a directory");
    println!(
        "files in {}, {REPEATS} turns each\n",
        directory.path().display()
    );
    println!(
        "{:<44} {:>10} {:>10} {:>7}  range",
        "", "without", "mount", "ratio"
    );
    let bench = Bench { only };
    let flash = Mounted::start(&directory.path().join("flash"), true, DEADLINE);
    let patient = Mounted::start(&directory.path().join("patient"), true, None);
    flash.warm();
    patient.warm();
    bench.flash(&flash, &patient);
    patient.end();
    bench.bypassed(&flash);
    flash.end();
    let base = Mounted::start(&directory.path().join("base"), false, None);
    bench.base(&base);
    base.end();
}

/// A mount of a base that looks like PostgreSQL's, so that the rules cache its relation.
struct Mounted {
    directory: PathBuf,
    engine: Arc<Engine>,
    handle: MountHandle,
}

impl Mounted {
    /// Without flash a small pool takes part, so that reads are split into pages all the same.
    fn start(directory: &Path, flash: bool, deadline: Option<Duration>) -> Self {
        let base = directory.join("base");
        fs::create_dir_all(base.join("base/5")).expect("directories");
        fs::create_dir_all(base.join("pg_wal")).expect("directories");
        fs::create_dir_all(directory.join("mount")).expect("directories");
        fs::write(base.join("PG_VERSION"), "15\n").expect("a file");
        fs::write(base.join("base/5/16400"), noise(DATA)).expect("a relation");
        for name in ["one", "two"] {
            fs::write(base.join("pg_wal").join(name), noise(SMALL)).expect("a log");
        }
        let identity = BaseIdentity {
            inode: fs::metadata(&base).expect("base").ino(),
            path: base.display().to_string(),
            ..BaseIdentity::default()
        };
        let options = StoreOptions {
            page_size: PAGE as u32,
            size: Some((DATA + (16 << 20)) as u64),
            base: identity,
            format: true,
            deadline,
            ..StoreOptions::default()
        };
        let open = || Store::open(&directory.join("cache"), &options).expect("a cache file");
        let config = EngineConfig {
            page_size: PAGE as u32,
            policy: "lru".into(),
            pool_bytes: if flash { 0 } else { 1 << 20 },
            ..EngineConfig::default()
        };
        let engine = Engine::start(config, flash.then(open)).expect("an engine");
        let config = MountConfig::new(&base, directory.join("mount"));
        let handle = Mount::start(config, Arc::clone(&engine)).expect("a mount");
        Self {
            directory: directory.into(),
            engine,
            handle,
        }
    }

    fn relation(&self) -> File {
        direct(&self.directory.join("mount/base/5/16400"))
    }

    /// Reads everything, at the pace of the background writers, until all of it is on flash: what
    /// is read ahead may come faster than they write.
    fn warm(&self) {
        let tier = || self.engine.stats().tier.expect("a tier");
        let (file, mut buf) = (self.relation(), AlignedBuf::new(PAGE));
        for _ in 0..5 {
            for page in 0..DATA / PAGE {
                file.read_exact_at(&mut buf, (page * PAGE) as u64)
                    .expect("read");
                while page % 64 == 0 && tier().staged > 100 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            while tier().staged > 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
            if tier().resident as usize == DATA / PAGE {
                break;
            }
        }
        assert_eq!(
            tier().resident as usize,
            DATA / PAGE,
            "every page is on flash"
        );
    }

    fn end(self) {
        assert_eq!(self.engine.stats().tier.and_then(|tier| tier.off), None);
        self.handle
            .unmount()
            .map_err(|(_, error)| error)
            .expect("unmounts");
        self.engine.stop().expect("stops");
    }
}

struct Bench {
    only: Vec<String>,
}

impl Bench {
    /// Runs both in turn; prints medians, in `unit`s of `scale` seconds, and their ratio.
    fn row(
        &self,
        name: &str,
        scale: f64,
        unit: &str,
        without: &dyn Fn() -> f64,
        with: &dyn Fn() -> f64,
    ) {
        self.rows(&[name], REPEATS, (scale, unit), without, &[with]);
    }

    /// As [`Bench::row`], several rivals of one, each with a name. The first name says whether to.
    fn rows(
        &self,
        names: &[&str],
        repeats: usize,
        (scale, unit): (f64, &str),
        without: &dyn Fn() -> f64,
        with: &[&dyn Fn() -> f64],
    ) {
        let wanted = |word: &String| names[0].contains(word.as_str());
        if !self.only.is_empty() && !self.only.iter().any(wanted) {
            return;
        }
        let turn = |_| (without(), with.iter().map(|one| one()).collect::<Vec<_>>());
        let turns: Vec<_> = (0..=repeats).map(turn).skip(1).collect();
        let a = sorted(turns.iter().map(|turn| turn.0).collect());
        let middle = repeats / 2;
        for (at, name) in names.iter().enumerate() {
            let b = sorted(turns.iter().map(|turn| turn.1[at]).collect());
            let ratios = sorted(turns.iter().map(|turn| turn.1[at] / turn.0).collect());
            println!(
                "{name:<44} {:>7.1} {unit} {:>7.1} {unit} {:>6.2}x  {:.2}-{:.2}",
                a[middle] / scale,
                b[middle] / scale,
                ratios[middle],
                ratios[0],
                ratios[repeats - 1]
            );
        }
    }

    fn flash(&self, mounted: &Mounted, patient: &Mounted) {
        let raw = direct(&mounted.directory.join("cache"));
        self.scans("on flash", &raw, &mounted.relation());
        self.hits(mounted, patient, &raw);
    }

    /// Scans by a client whose buffer is ordinary memory, as most are; and what a raw read takes
    /// into a huge page, which to the device is one segment.
    fn scans(&self, place: &str, raw: &File, file: &File) {
        for (size, name) in [(1 << 20, "1 MiB"), (128 << 10, "128 KiB"), (PAGE, "8 KiB")] {
            let name = format!("scan, pages {place}, {name} requests");
            self.rows(
                &[&name, "  raw, into a huge page"],
                REPEATS,
                (1e-3, "ms"),
                &|| scan(raw, &mut AlignedBuf::new(size)),
                &[&|| scan(file, &mut AlignedBuf::new(size)), &|| {
                    scan(raw, &mut AlignedBuf::in_huge_page(size))
                }],
            );
        }
    }

    /// Hits; those of a mount that waits for its device as long as it takes; and what the kernel
    /// alone makes of them: a mount that answers at once, from memory, and one that reads the
    /// device once for each read. All take turns.
    fn hits(&self, mounted: &Mounted, patient: &Mounted, raw: &File) {
        let (file, patient) = (mounted.relation(), patient.relation());
        let ring = mounted.handle.is_over_io_uring();
        let source = Arc::new(direct(&mounted.directory.join("cache")));
        let start = |name: &str, source, threads| {
            let at = mounted.directory.join(name);
            Floor::start(&at, DATA as u64, source, ring, threads)
        };
        // The fewest threads that serve all clients are the fastest.
        let memory = start("memory", None, 1);
        let device = start("device", Some(source), 16);
        let (memory_file, device_file) = (direct(&memory.file()), direct(&device.file()));
        for (threads, turns, each) in [(1, SINGLE_TURNS, SINGLE_READS), (8, REPEATS, READS)] {
            let name = format!("8-KiB flash hit, {threads} threads, a read");
            self.rows(
                &[
                    &name,
                    &format!("  without a deadline, {threads} threads"),
                    &format!("  floor, answered from memory, {threads} threads"),
                    &format!("  floor, read from the device, {threads} threads"),
                ],
                turns,
                (1e-6, "us"),
                &|| reads(raw, threads, each),
                &[
                    &|| reads(&file, threads, each),
                    &|| reads(&patient, threads, each),
                    &|| reads(&memory_file, threads, each),
                    &|| reads(&device_file, threads, each),
                ],
            );
        }
        drop((memory_file, device_file));
        memory.end();
        device.end();
    }

    fn base(&self, mounted: &Mounted) {
        let raw = direct(&mounted.directory.join("base/base/5/16400"));
        let file = mounted.relation();
        self.scans("in base", &raw, &file);
    }

    /// Two files, so that neither shares anything with its rival but the page cache.
    fn bypassed(&self, mounted: &Mounted) {
        let open = |path: &str| {
            let path = mounted.directory.join(path);
            let file = OpenOptions::new().read(true).write(true).open(path);
            file.expect("opens")
        };
        let (plain, passed) = (open("base/pg_wal/one"), open("mount/pg_wal/two"));
        for (size, name) in [(PAGE, "8-KiB"), (1 << 20, "1-MiB")] {
            let read = |file: &File| {
                buffered(file, size, &|file, buf, at| {
                    file.read_exact_at(buf, at).expect("read");
                })
            };
            let write = |file: &File| {
                buffered(file, size, &|file, buf, at| {
                    file.write_all_at(buf, at).expect("write");
                })
            };
            let row = format!("bypassed file, {name} buffered read");
            self.row(&row, 1e-6, "us", &|| read(&plain), &|| read(&passed));
            let row = format!("bypassed file, {name} buffered write");
            self.row(&row, 1e-6, "us", &|| write(&plain), &|| write(&passed));
        }
        let sync = |file: &File| {
            let started = Instant::now();
            for turn in 0..50 {
                file.write_all_at(&[turn; PAGE], 0).expect("write");
                file.sync_data().expect("sync");
            }
            started.elapsed().as_secs_f64() / 50.0
        };
        let row = "bypassed file, 8-KiB write and fdatasync";
        self.row(row, 1e-6, "us", &|| sync(&plain), &|| sync(&passed));
    }
}

fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

fn direct(path: &Path) -> File {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_DIRECT).open(path);
    file.expect("opens")
}

/// Seconds to read the relation's length from the file's beginning with requests as long as `buf`.
fn scan(file: &File, buf: &mut AlignedBuf) -> f64 {
    let started = Instant::now();
    for at in (0..DATA).step_by(buf.len()) {
        file.read_exact_at(buf, at as u64).expect("read");
    }
    started.elapsed().as_secs_f64()
}

/// Seconds a read of a random page takes while so many threads make `each` of them.
fn reads(file: &File, threads: u64, each: u64) -> f64 {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut buf = AlignedBuf::new(PAGE);
                for number in 0..each {
                    let page = thermocline_core::hash::mix(number, thread) % (DATA / PAGE) as u64;
                    file.read_exact_at(&mut buf, page * PAGE as u64)
                        .expect("read");
                }
            });
        }
    });
    started.elapsed().as_secs_f64() / each as f64
}

/// Seconds a request of `size` takes over the whole of a small file.
fn buffered(file: &File, size: usize, request: &dyn Fn(&File, &mut [u8], u64)) -> f64 {
    let mut buf = AlignedBuf::new(size);
    let started = Instant::now();
    for at in (0..SMALL).step_by(size) {
        request(file, &mut buf, at as u64);
    }
    started.elapsed().as_secs_f64() / (SMALL / size) as f64
}

/// Bytes that nothing compresses.
fn noise(len: usize) -> Vec<u8> {
    let words = (0..len as u64 / 8).map(|at| thermocline_core::hash::mix(at, 7));
    words.flat_map(u64::to_le_bytes).collect()
}

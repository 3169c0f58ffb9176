//! What the path itself costs, as ratios inside one run.
//!
//! `cargo bench -p thermocline --bench overhead [-- flash|pool|space|idle|profile]`
//!
//! *flash*: random page reads that hit flash, through [`Engine::read`], against direct reads of the
//! same offsets of the same file: bare, and followed by looking at the bytes once, which every user
//! of a page does and which a checksum cannot avoid; without a deadline for flash I/O and with one.
//! *pool*: hits in the DRAM pool against `quick_cache`. *space*: bytes written to flash per stored
//! page, usable share of the cache file. *idle*: CPU time while nothing is asked. Rounds of the
//! rivals alternate and medians of ratios are printed, so that a machine whose speed drifts does
//! not decide. The tier's policy is the default one, or that of `THERMOCLINE_BENCH_POLICY`. The
//! cache file is made under `THERMOCLINE_BENCH_DIR` (default: the temporary
//! directory); it should be on the device that is to be measured.

use quick_cache::sync::Cache;
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thermocline::classify::Dialect;
use thermocline::device::{AlignedBuf, Device, MemoryDevice};
use thermocline::{
    BaseIdentity, Engine, EngineConfig, Identity, Object, ObjectSpec, Request, Stamp, Store,
    StoreOptions,
};
use thermocline_core::{FileKind, HintSet, PageId, RequestType, hint_type};

const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(300);
const FLASH_BYTES: u64 = 512 << 20;

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with("--"))
        .collect();
    let run = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    let directory = std::env::var_os("THERMOCLINE_BENCH_DIR").map(PathBuf::from);
    let directory = tempfile::tempdir_in(directory.unwrap_or_else(std::env::temp_dir));
    let directory = directory.expect("a directory for the cache file");
    if run("flash") || run("space") || run("idle") {
        println!(
            "flash: file in {} on this machine's disk",
            directory.path().display()
        );
    }
    if run("flash") {
        println!("\nrandom reads that hit flash, against O_DIRECT reads of the same offsets");
        println!(
            "{:>6} {:>8} {:>8} {:>9} {:>9} {:>9}   {:>7} {:>7}",
            "page", "threads", "deadline", "raw", "raw, seen", "library", "to raw", "to seen"
        );
        for page_size in [8192, 16384] {
            for deadline in [None, Some(Duration::from_secs(5))] {
                flash_hits(directory.path(), page_size, deadline);
            }
        }
    }
    if wanted.iter().any(|w| w == "profile") {
        profile(directory.path());
    }
    if run("pool") {
        pool_hits();
    }
    if run("space") {
        space(directory.path());
    }
    if run("idle") {
        idle(directory.path());
    }
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

struct Rig {
    engine: Arc<Engine>,
    object: Arc<Object>,
    pages: u64,
    cache: PathBuf,
}

/// An engine whose flash holds every page of one object.
fn rig(
    directory: &Path,
    page_size: u32,
    deadline: Option<Duration>,
    bytes: u64,
    pool_bytes: u64,
) -> Rig {
    let cache = directory.join("cache");
    let _ = std::fs::remove_file(&cache);
    let base = BaseIdentity {
        file_system: 0,
        inode: 0,
        path: "bench".into(),
        ..BaseIdentity::default()
    };
    let options = StoreOptions {
        page_size,
        size: Some(bytes),
        base,
        format: true,
        deadline,
        ..StoreOptions::default()
    };
    let store = Store::open(&cache, &options).expect("a cache file");
    let pages = u64::from(EngineConfig::default().shares(store.blocks()).slots);
    let policy = std::env::var("THERMOCLINE_BENCH_POLICY");
    let config = EngineConfig {
        policy: policy.unwrap_or_else(|_| EngineConfig::default().policy),
        page_size,
        pool_bytes,
        ..Default::default()
    };
    let engine = Engine::start(config, Some(store)).expect("an engine");
    let device = Arc::new(MemoryDevice::new());
    device
        .set_len(pages * u64::from(page_size))
        .expect("memory");
    let object = open(&engine, device);
    let mut buf = vec![0; page_size as usize];
    for page in 0..pages {
        read(&engine, &object, page * u64::from(page_size), &mut buf);
        while engine.stats().tier.is_some_and(|t| t.staged > 200) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    while engine.stats().tier.is_some_and(|t| t.staged > 0) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(
        engine.stats().tier.map(|t| u64::from(t.resident)),
        Some(pages)
    );
    Rig {
        engine,
        object,
        pages,
        cache,
    }
}

fn open(engine: &Engine, base: Arc<dyn Device>) -> Arc<Object> {
    let spec = ObjectSpec {
        name: "bench".into(),
        group: "bench".into(),
        identity: Identity {
            device: 0,
            inode: 1,
            generation: 0,
        },
        base,
        kind: FileKind::Relation,
        dialect: Dialect::Postgres,
        cached: true,
        stamp: Arc::new(|| Some(Stamp::default())),
        touch: thermocline::untouched(),
    };
    engine.open_object(spec).expect("an object")
}

fn read(engine: &Engine, object: &Arc<Object>, offset: u64, buf: &mut [u8]) {
    let hints = HintSet::UNKNOWN.with(hint_type::REQUEST, RequestType::Read.value());
    let read = engine
        .read(
            &Request {
                object,
                offset,
                hints,
                client: 0,
            },
            buf,
        )
        .expect("reads");
    assert_eq!(read, buf.len());
}

/// What one rival did in one round.
#[derive(Clone, Copy)]
struct Round {
    per_second: f64,
    cpu_us: f64,
}

/// `threads` threads that each call `op(random)` for one round.
fn paced(threads: usize, round: usize, op: &(impl Fn(u64, &mut AlignedBuf) + Sync)) -> Round {
    let done = AtomicU64::new(0);
    let (started, cpu) = (Instant::now(), cpu_time());
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let done = &done;
            scope.spawn(move || {
                let mut random = Random((thread * 1000 + round) as u64);
                let mut buf = AlignedBuf::new(16384);
                let mut count = 0;
                while started.elapsed() < ROUND {
                    op(random.next(), &mut buf);
                    count += 1;
                }
                done.fetch_add(count, Ordering::Relaxed);
            });
        }
    });
    let operations = done.load(Ordering::Relaxed) as f64;
    Round {
        per_second: operations / started.elapsed().as_secs_f64(),
        cpu_us: (cpu_time() - cpu).as_secs_f64() * 1e6 / operations,
    }
}

/// One way to read the page a random number chooses.
type Rival<'a> = &'a dyn Fn(u64, &mut AlignedBuf);

/// Median time of one call of each rival, called in turn by one thread, in microseconds.
fn in_turn(rivals: &[Rival<'_>]) -> Vec<f64> {
    let mut times = vec![Vec::new(); rivals.len()];
    let (mut random, mut buf) = (Random(7), AlignedBuf::new(16384));
    let started = Instant::now();
    while started.elapsed() < ROUND * ROUNDS as u32 {
        for (rival, times) in rivals.iter().zip(&mut times) {
            let page = random.next();
            let began = Instant::now();
            rival(page, &mut buf);
            times.push(began.elapsed().as_secs_f64() * 1e6);
        }
    }
    times.into_iter().map(median).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn flash_hits(directory: &Path, page_size: u32, deadline: Option<Duration>) {
    let rig = rig(directory, page_size, deadline, FLASH_BYTES, 0);
    let limit = if deadline.is_some() { "5 s" } else { "none" };
    let mut direct = OpenOptions::new();
    let file = direct
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&rig.cache)
        .expect("opens");
    let size = page_size as usize;
    let before = rig.engine.stats();
    let raw = |random: u64, buf: &mut AlignedBuf| {
        let offset = 8192 + random % rig.pages * u64::from(page_size);
        raw_read(&file, offset, &mut buf[..size]);
    };
    let seen = |random: u64, buf: &mut AlignedBuf| {
        raw(random, buf);
        // One word of every cache line, as any user of the bytes would have to.
        black_box(buf[..size].iter().step_by(64).fold(0u8, |sum, b| sum ^ b));
    };
    let library = |random: u64, buf: &mut AlignedBuf| {
        let offset = random % rig.pages * u64::from(page_size);
        read(&rig.engine, &rig.object, offset, &mut buf[..size]);
    };
    let times = in_turn(&[&raw, &seen, &library]);
    println!(
        "{page_size:>6} {:>8} {limit:>8} {:>9.1} {:>9.1} {:>9.1}   {:>6.3}x {:>6.3}x   \
         median latency",
        1,
        times[0],
        times[1],
        times[2],
        times[2] / times[0],
        times[2] / times[1]
    );
    for threads in [1usize, 8] {
        let mut rounds: [Vec<Round>; 3] = Default::default();
        for round in 0..ROUNDS {
            for turn in 0..3 {
                // Each rival is first, second and third equally often.
                match (turn + round) % 3 {
                    0 => rounds[0].push(paced(threads, round, &raw)),
                    1 => rounds[1].push(paced(threads, round, &seen)),
                    _ => rounds[2].push(paced(threads, round, &library)),
                }
            }
        }
        let of = |rival: usize, value: fn(&Round) -> f64| {
            median(rounds[rival].iter().map(value).collect())
        };
        let ratio = |rival: usize| {
            let pairs = rounds[2].iter().zip(&rounds[rival]);
            median(
                pairs
                    .map(|(ours, raw)| ours.per_second / raw.per_second)
                    .collect(),
            )
        };
        println!(
            "{page_size:>6} {threads:>8} {limit:>8} {:>9.0} {:>9.0} {:>9.0}   {:>6.3}x {:>6.3}x   \
             reads/s; CPU us a read {:.1} {:.1} {:.1}",
            of(0, |r| r.per_second),
            of(1, |r| r.per_second),
            of(2, |r| r.per_second),
            ratio(0),
            ratio(1),
            of(0, |r| r.cpu_us),
            of(1, |r| r.cpu_us),
            of(2, |r| r.cpu_us),
        );
    }
    let after = rig.engine.stats();
    assert_eq!(
        before.page_reads["base"], after.page_reads["base"],
        "every read hit flash"
    );
}

/// Nothing but flash hits for ten seconds, for `perf record` to look at.
fn profile(directory: &Path) {
    let rig = rig(directory, 8192, None, FLASH_BYTES, 0);
    let (mut random, mut buf) = (Random(1), AlignedBuf::new(8192));
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(10) {
        let offset = random.next() % rig.pages * 8192;
        read(&rig.engine, &rig.object, offset, &mut buf);
    }
}

fn raw_read(file: &File, offset: u64, buf: &mut [u8]) {
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

/// Zipf-distributed page numbers, drawn before the clock starts.
fn zipf(pages: u64, exponent: f64, draws: usize, seed: u64) -> Vec<u64> {
    let mut cumulative = Vec::with_capacity(pages as usize);
    let mut sum = 0.0;
    for rank in 1..=pages {
        sum += (rank as f64).powf(-exponent);
        cumulative.push(sum);
    }
    let mut random = Random(seed);
    let draw = |_| {
        let point = random.next() as f64 / u64::MAX as f64 * sum;
        let rank = cumulative.partition_point(|c| *c < point) as u64;
        // Scattered, so that rank and shard have nothing to do with each other.
        rank.wrapping_mul(0x9E37_79B1) % pages
    };
    (0..draws).map(draw).collect()
}

fn pool_hits() {
    const FRAMES: u64 = 16_384;
    const PAGE: u64 = 8192;
    let config = EngineConfig {
        pool_bytes: FRAMES * PAGE,
        ..EngineConfig::default()
    };
    let engine = Engine::start(config, None).expect("an engine");
    let device = Arc::new(MemoryDevice::new());
    device.set_len(FRAMES * PAGE).expect("memory");
    let object = open(&engine, device);
    let mut buf = vec![0; PAGE as usize];
    let cache: Cache<PageId, Arc<[u8]>> = Cache::new(2 * FRAMES as usize);
    for page in 0..FRAMES {
        read(&engine, &object, page * PAGE, &mut buf);
        cache.insert(PageId::new(object.id(), page), Arc::from(&buf[..]));
    }
    println!("\nDRAM hits, {FRAMES} pages of 8 KiB, Zipf, one word read of each; Mop/s");
    println!(
        "{:>9} {:>8} {:>10} {:>12} {:>8}",
        "exponent", "threads", "pool", "quick_cache", "ratio"
    );
    for exponent in [0.9, 0.99] {
        for threads in [1usize, 2] {
            let keys: Vec<Vec<u64>> = (0..threads)
                .map(|t| zipf(FRAMES, exponent, 1 << 18, t as u64 + 1))
                .collect();
            let ours = |page: u64| {
                let id = PageId::new(object.id(), page);
                assert!(engine.read_pooled(id, |bytes| {
                    black_box(bytes[(page % PAGE) as usize]);
                }));
            };
            let theirs = |page: u64| {
                let bytes = cache
                    .get(&PageId::new(object.id(), page))
                    .expect("all pages fit");
                black_box(bytes[(page % PAGE) as usize]);
            };
            let (mut a, mut b, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let (x, y) = (keyed(&keys, &ours), keyed(&keys, &theirs));
                a.push(x / 1e6);
                b.push(y / 1e6);
                ratios.push(x / y);
            }
            println!(
                "{exponent:>9} {threads:>8} {:>10.1} {:>12.1} {:>7.2}x",
                median(a),
                median(b),
                median(ratios)
            );
        }
    }
}

/// Calls per second over pre-drawn keys, one list a thread, each list four times.
fn keyed(keys: &[Vec<u64>], op: &(impl Fn(u64) + Sync)) -> f64 {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for list in keys {
            scope.spawn(move || (0..4).for_each(|_| list.iter().for_each(|key| op(*key))));
        }
    });
    4.0 * keys.iter().map(Vec::len).sum::<usize>() as f64 / started.elapsed().as_secs_f64()
}

/// Bytes the device took per page that was stored, and how much of the file pages can use.
fn space(directory: &Path) {
    let before = written_bytes();
    let rig = rig(directory, 8192, None, FLASH_BYTES, 0);
    rig.engine.close_object(&rig.object);
    rig.engine.stop().expect("saves its map");
    let written = written_bytes() - before;
    let stored = rig.pages * 8192;
    let file = std::fs::metadata(&rig.cache).expect("the cache file").len();
    println!(
        "\nspace: {} pages of 8 KiB in a file of {file} bytes",
        rig.pages
    );
    println!(
        "  usable share of the cache file  {:.2} %",
        100.0 * stored as f64 / file as f64
    );
    println!(
        "  flash bytes written per stored byte, saved map included  {:.4}x",
        written as f64 / stored as f64
    );
}

/// Bytes this process caused to be written to storage (direct I/O counts as it is issued).
fn written_bytes() -> u64 {
    let io = std::fs::read_to_string("/proc/self/io").expect("Linux");
    let line = io.lines().find_map(|l| l.strip_prefix("write_bytes: "));
    line.and_then(|n| n.parse().ok()).expect("a number")
}

fn idle(directory: &Path) {
    let rig = rig(
        directory,
        8192,
        Some(Duration::from_secs(5)),
        64 << 20,
        8 << 20,
    );
    let before = cpu_time();
    std::thread::sleep(Duration::from_secs(5));
    let used = cpu_time() - before;
    println!(
        "\nidle: {:.3} ms of CPU in 5 s with {} slots warm",
        used.as_secs_f64() * 1e3,
        rig.pages
    );
}

fn cpu_time() -> Duration {
    // SAFETY: an all-zero rusage is a valid value, and getrusage fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
        usage
    };
    let of = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    of(usage.ru_utime) + of(usage.ru_stime)
}

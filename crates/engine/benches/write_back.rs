//! What durability costs in write-back, as ratios inside one run.
//!
//! `cargo bench -p thermocline --bench write_back`
//! `cargo bench -p thermocline --bench write_back -- profile tier|unbounded|plain THREADS PAGES
//! SECONDS`: one rival alone, without a pool, for `perf` and `strace`; says how many syncs it made.
//!
//! Threads write pages at random places of one object and sync it after each, or after 32: through
//! [`Engine::write`] and [`Engine::sync`], where flash takes the pages, and with `pwrite` and
//! `fdatasync` to a plain file of the same length on the same disk. Rounds of the two alternate and
//! medians of ratios are printed, and the range of the syncs' ones, so that a machine whose speed
//! drifts does not decide. *No limit*: a third rival, the tier over a device whose requests have no
//! deadline, so that a sync is made by the thread that waits for it and not by one of the kernel's
//! that can be left. Also: bytes written to flash that are not pages, for each byte of pages; syncs
//! of the device for each
//! commit; commits for each sync asked for. Base, cache and plain file are made under
//! `THERMOCLINE_BENCH_DIR` (default: the temporary directory), which should be on the flash device.
//! Every page of object, cache and plain file was written before: no round pays for allocation.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use thermocline::classify::Dialect;
use thermocline::device::{AlignedBuf, FileDevice, FileOptions, Metered, Meters};
use thermocline::{
    BaseIdentity, Engine, EngineConfig, Identity, Object, ObjectSpec, Request, Stamp, Store,
    StoreOptions,
};
use thermocline_core::{FileKind, HintSet};

const PAGE: usize = 8192;
const PAGES: u64 = 8192;
const CACHE: u64 = 128 << 20;
/// What a mount gives its flash device.
const LIMIT: Duration = Duration::from_secs(2);
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(700);

fn main() {
    let directory = std::env::var_os("THERMOCLINE_BENCH_DIR")
        .map_or_else(std::env::temp_dir, std::path::PathBuf::from);
    let directory = tempfile::tempdir_in(directory).expect("a directory");
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    if let [mode, rival, threads, writes, seconds] = &arguments[..]
        && mode == "profile"
    {
        let number = |text: &String| text.parse().expect("a number");
        let limit = (rival != "unbounded").then_some(LIMIT);
        let rig = Rig::new(directory.path(), 0, limit);
        let time = Duration::from_secs(number(seconds));
        return profile(&rig, rival, number(threads), number(writes) as u32, time);
    }
    println!(
        "{PAGES} pages of {PAGE} bytes, all on flash, on this machine's disk; median us, syncs/s"
    );
    println!(
        "  pool threads a sync |  plain s plain/s |  tier s  tier/s | sync x  range    rate x | no \
         limit: sync x, rate x | metadata  syncs commits"
    );
    for pool in [0u64, 16 << 20] {
        let bounded = Rig::new(directory.path(), pool, Some(LIMIT));
        let other = directory.path().join("unbounded");
        std::fs::create_dir_all(&other).expect("a directory");
        let unbounded = Rig::new(&other, pool, None);
        for (threads, writes) in [(1, 1), (8, 1), (1, 32), (8, 32)] {
            compare([&bounded, &unbounded], pool, threads, writes);
        }
    }
}

struct Rig {
    engine: Arc<Engine>,
    object: Arc<Object>,
    flash: Arc<Meters>,
    plain: File,
}

impl Rig {
    fn new(directory: &Path, pool_bytes: u64, deadline: Option<Duration>) -> Self {
        let plain = full_file(&directory.join("plain"));
        let base_path = directory.join("base");
        drop(full_file(&base_path));
        let flash = Arc::new(Meters::default());
        let meters = Arc::clone(&flash);
        let cache = directory.join("cache");
        let _ = std::fs::remove_file(&cache);
        let options = StoreOptions {
            page_size: PAGE as u32,
            size: Some(CACHE),
            base: BaseIdentity {
                file_system: 0,
                inode: 0,
                path: "bench".into(),
                ..BaseIdentity::default()
            },
            format: true,
            deadline,
            ..StoreOptions::default()
        };
        let store = Store::open(&cache, &options).expect("a cache");
        let store = store.wrapped(|device| Arc::new(Metered::sharing(device, meters)));
        let config = EngineConfig {
            page_size: PAGE as u32,
            policy: "lc".into(),
            write_back: true,
            pool_bytes,
            ..Default::default()
        };
        let engine = Engine::start(config, Some(store)).expect("an engine");
        let base = FileDevice::open(&base_path, FileOptions::default()).expect("base");
        let spec = ObjectSpec {
            name: "bench".into(),
            group: "bench".into(),
            identity: Identity {
                device: 0,
                inode: 1,
                generation: 0,
            },
            base: Arc::new(base),
            kind: FileKind::Relation,
            dialect: Dialect::None,
            cached: true,
            stamp: Arc::new(|| Some(Stamp::default())),
            touch: thermocline::untouched(),
        };
        let object = engine.open_object(spec).expect("an object");
        let rig = Self {
            engine,
            object,
            flash,
            plain,
        };
        // New versions go to blocks in turn, so after three times every block was written.
        for _ in 0..3 {
            for page in 0..PAGES {
                rig.write(page, page);
            }
            rig.sync();
        }
        rig
    }

    fn write(&self, page: u64, word: u64) {
        let mut bytes = AlignedBuf::new(PAGE);
        bytes[..8].copy_from_slice(&word.to_le_bytes());
        let request = Request {
            object: &self.object,
            offset: page * PAGE as u64,
            hints: HintSet::UNKNOWN,
            client: 0,
        };
        self.engine.write(&request, &bytes).expect("writes");
    }

    fn sync(&self) {
        self.engine.sync(&self.object, true).expect("syncs");
    }

    fn plain_write(&self) -> impl Fn(u64, u64) + Sync {
        |page, word| {
            let mut bytes = AlignedBuf::new(PAGE);
            bytes[..8].copy_from_slice(&word.to_le_bytes());
            let written = self.plain.write_all_at(&bytes, page * PAGE as u64);
            written.expect("writes");
        }
    }

    fn plain_sync(&self) -> impl Fn() + Sync {
        || self.plain.sync_data().expect("syncs")
    }
}

/// A file whose every page was written and is durable.
fn full_file(path: &Path) -> File {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path)
        .expect("a file");
    let page = vec![1; PAGE];
    for index in 0..PAGES {
        file.write_all_at(&page, index * PAGE as u64)
            .expect("writes");
    }
    file.sync_all().expect("syncs");
    file
}

/// What one rival did in one round.
struct Round {
    sync_us: f64,
    syncs_per_second: f64,
}

/// One rival for some time; its process is what a profiler attaches to when it says so.
fn profile(rig: &Rig, rival: &str, threads: u64, writes: u32, time: Duration) {
    let before = rig.flash.read(String::new());
    println!("process {}: {rival} begins", std::process::id());
    let made = match rival {
        "plain" => round(
            threads,
            writes,
            1,
            time,
            &rig.plain_write(),
            &rig.plain_sync(),
        ),
        _ => round(threads, writes, 1, time, &|p, w| rig.write(p, w), &|| {
            rig.sync()
        }),
    };
    let after = rig.flash.read(String::new());
    let syncs = made.syncs_per_second * time.as_secs_f64();
    println!(
        "{syncs:.0} syncs, median {:.1} us; a sync: {:.3} writes of {:.0} bytes, {:.3} flushes",
        made.sync_us,
        (after.write.requests - before.write.requests) as f64 / syncs,
        (after.write.bytes - before.write.bytes) as f64 / syncs,
        (after.sync.requests - before.sync.requests) as f64 / syncs,
    );
}

fn round(
    threads: u64,
    writes: u32,
    seed: u64,
    time: Duration,
    write: &(impl Fn(u64, u64) + Sync),
    sync: &(impl Fn() + Sync),
) -> Round {
    let times = Mutex::new(Vec::new());
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let times = &times;
            scope.spawn(move || {
                let mut random = seed * 64 + thread;
                let mut of_syncs = Vec::new();
                while started.elapsed() < time {
                    for _ in 0..writes {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        write((random >> 33) % PAGES, random);
                    }
                    let began = Instant::now();
                    sync();
                    of_syncs.push(began.elapsed().as_secs_f64() * 1e6);
                }
                times.lock().expect("no panic").append(&mut of_syncs);
            });
        }
    });
    let of_syncs = times.into_inner().expect("no panic");
    Round {
        syncs_per_second: of_syncs.len() as f64 / started.elapsed().as_secs_f64(),
        sync_us: median(of_syncs),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Round `number` of each rival: the tier, the same without deadlines, the plain file.
fn take_turns(rigs: [&Rig; 2], threads: u64, writes: u32, number: usize) -> [Round; 3] {
    let [bounded, unbounded] = rigs;
    let seed = number as u64;
    let tier = |rig: &Rig| {
        let (write, sync) = (|p, w| rig.write(p, w), || rig.sync());
        round(threads, writes, seed, ROUND, &write, &sync)
    };
    let plain = || {
        let (write, sync) = (bounded.plain_write(), bounded.plain_sync());
        round(threads, writes, seed, ROUND, &write, &sync)
    };
    let mut rounds = [const { None }; 3];
    for turn in 0..3 {
        let which = (turn + number) % 3;
        rounds[which] = Some(match which {
            0 => tier(bounded),
            1 => tier(unbounded),
            _ => plain(),
        });
    }
    rounds.map(|round| round.expect("each had its turn"))
}

/// Median, least and greatest of the rounds' ratios.
fn ratios(ours: &[Round], plain: &[Round], value: fn(&Round) -> f64) -> [f64; 3] {
    let pairs = ours.iter().zip(plain);
    let all: Vec<f64> = pairs
        .map(|(ours, plain)| value(ours) / value(plain))
        .collect();
    let least = all.iter().copied().fold(f64::INFINITY, f64::min);
    let greatest = all.iter().copied().fold(0.0, f64::max);
    [median(all), least, greatest]
}

fn compare(rigs: [&Rig; 2], pool: u64, threads: u64, writes: u32) {
    let [rig, _] = rigs;
    let (flash, stats) = (rig.flash.read(String::new()), rig.engine.stats());
    let (mut tier, mut unbounded, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..ROUNDS {
        let [ours, without, theirs] = take_turns(rigs, threads, writes, number);
        tier.push(ours);
        unbounded.push(without);
        plain.push(theirs);
    }
    let asked: f64 = tier.iter().map(|r| r.syncs_per_second).sum::<f64>() * ROUND.as_secs_f64();
    let (flash_after, stats_after) = (rig.flash.read(String::new()), rig.engine.stats());
    let (tier_before, tier_after) = (stats.tier.expect("a tier"), stats_after.tier.expect("one"));
    let pages = (tier_after.flash_writes - tier_before.flash_writes) * PAGE as u64;
    let bytes = flash_after.write.bytes - flash.write.bytes;
    let commits = (tier_after.commits - tier_before.commits) as f64;
    let syncs = (flash_after.sync.requests - flash.sync.requests) as f64;
    let of =
        |rounds: &[Round], value: fn(&Round) -> f64| median(rounds.iter().map(value).collect());
    let [sync, least, most] = ratios(&tier, &plain, |r| r.sync_us);
    let [without, without_least, without_most] = ratios(&unbounded, &plain, |r| r.sync_us);
    println!(
        "{:>3}MiB {threads:>7} {writes:>6} | {:>7.1} {:>7.0} | {:>7.1} {:>7.0} | {sync:>5.2}x \
         {least:.2}-{most:.2} {:>5.2}x | {without:>5.2}x {without_least:.2}-{without_most:.2} \
         {:>5.2}x | {:>7.4} {:>6.3} {:>6.3}",
        pool >> 20,
        of(&plain, |r| r.sync_us),
        of(&plain, |r| r.syncs_per_second),
        of(&tier, |r| r.sync_us),
        of(&tier, |r| r.syncs_per_second),
        ratios(&tier, &plain, |r| r.syncs_per_second)[0],
        ratios(&unbounded, &plain, |r| r.syncs_per_second)[0],
        bytes.saturating_sub(pages) as f64 / pages as f64,
        syncs / commits,
        commits / asked,
    );
}

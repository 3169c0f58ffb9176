//! What durability costs in write-back, as ratios inside one run.
//!
//! `cargo bench -p thermocline --bench write_back`
//!
//! Threads write pages at random places of one object and sync it after each, or after 32: through
//! [`Engine::write`] and [`Engine::sync`], where flash takes the pages, and with `pwrite` and
//! `fdatasync` to a plain file of the same length on the same disk. Rounds of the two alternate and
//! medians of ratios are printed, so that a machine whose speed drifts does not decide. Also:
//! bytes written to flash that are not pages, for each byte of pages; syncs of the device for each
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
const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(700);

fn main() {
    let directory = std::env::var_os("THERMOCLINE_BENCH_DIR")
        .map_or_else(std::env::temp_dir, std::path::PathBuf::from);
    let directory = tempfile::tempdir_in(directory).expect("a directory");
    println!(
        "{PAGES} pages of {PAGE} bytes, all on flash, on this machine's disk; median us of a write \
         and of a sync, syncs/s"
    );
    println!(
        "{:>6} {:>7} {:>8} | {:>7} {:>8} {:>8} | {:>7} {:>8} {:>8} | {:>7} {:>8} | {:>8} \
         {:>7} {:>7}",
        "pool",
        "threads",
        "a sync",
        "plain w",
        "plain s",
        "plain/s",
        "tier w",
        "tier s",
        "tier/s",
        "sync x",
        "rate x",
        "metadata",
        "syncs",
        "commits"
    );
    for pool in [0u64, 16 << 20] {
        let rig = Rig::new(directory.path(), pool);
        for (threads, writes) in [(1, 1), (8, 1), (1, 32), (8, 32)] {
            compare(&rig, pool, threads, writes);
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
    fn new(directory: &Path, pool_bytes: u64) -> Self {
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
            deadline: Some(Duration::from_secs(2)),
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
    write_us: f64,
    sync_us: f64,
    syncs_per_second: f64,
}

fn round(
    threads: u64,
    writes: u32,
    seed: u64,
    write: &(impl Fn(u64, u64) + Sync),
    sync: &(impl Fn() + Sync),
) -> Round {
    let times = Mutex::new((Vec::new(), Vec::new()));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let times = &times;
            scope.spawn(move || {
                let mut random = seed * 64 + thread;
                let (mut of_writes, mut of_syncs) = (Vec::new(), Vec::new());
                while started.elapsed() < ROUND {
                    for _ in 0..writes {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1);
                        let began = Instant::now();
                        write((random >> 33) % PAGES, random);
                        of_writes.push(began.elapsed().as_secs_f64() * 1e6);
                    }
                    let began = Instant::now();
                    sync();
                    of_syncs.push(began.elapsed().as_secs_f64() * 1e6);
                }
                let mut all = times.lock().expect("no panic");
                all.0.append(&mut of_writes);
                all.1.append(&mut of_syncs);
            });
        }
    });
    let (of_writes, of_syncs) = times.into_inner().expect("no panic");
    Round {
        syncs_per_second: of_syncs.len() as f64 / started.elapsed().as_secs_f64(),
        write_us: median(of_writes),
        sync_us: median(of_syncs),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn compare(rig: &Rig, pool: u64, threads: u64, writes: u32) {
    let (mut plain, mut tier) = (Vec::new(), Vec::new());
    let plain_write = |page: u64, word: u64| {
        let mut bytes = AlignedBuf::new(PAGE);
        bytes[..8].copy_from_slice(&word.to_le_bytes());
        let written = rig.plain.write_all_at(&bytes, page * PAGE as u64);
        written.expect("writes");
    };
    let plain_sync = || rig.plain.sync_data().expect("syncs");
    let (flash, stats) = (rig.flash.read(String::new()), rig.engine.stats());
    let mut asked = 0.0;
    for number in 0..ROUNDS {
        let seed = number as u64;
        let ours = || {
            round(threads, writes, seed, &|p, w| rig.write(p, w), &|| {
                rig.sync()
            })
        };
        let theirs = || round(threads, writes, seed, &plain_write, &plain_sync);
        if number % 2 == 0 {
            tier.push(ours());
            plain.push(theirs());
        } else {
            plain.push(theirs());
            tier.push(ours());
        }
        asked += tier[number].syncs_per_second * ROUND.as_secs_f64();
    }
    let (flash_after, stats_after) = (rig.flash.read(String::new()), rig.engine.stats());
    let (tier_before, tier_after) = (stats.tier.expect("a tier"), stats_after.tier.expect("one"));
    let pages = (tier_after.flash_writes - tier_before.flash_writes) * PAGE as u64;
    let bytes = flash_after.write.bytes - flash.write.bytes;
    let commits = (tier_after.commits - tier_before.commits) as f64;
    let syncs = (flash_after.sync.requests - flash.sync.requests) as f64;
    let of =
        |rounds: &[Round], value: fn(&Round) -> f64| median(rounds.iter().map(value).collect());
    let ratio = |value: fn(&Round) -> f64| {
        let pairs = tier.iter().zip(&plain);
        median(
            pairs
                .map(|(ours, theirs)| value(ours) / value(theirs))
                .collect(),
        )
    };
    println!(
        "{:>3}MiB {threads:>7} {writes:>8} | {:>7.1} {:>8.1} {:>8.0} | {:>7.1} {:>8.1} {:>8.0} | \
         {:>6.2}x {:>7.2}x | {:>8.4} {:>7.3} {:>7.3}",
        pool >> 20,
        of(&plain, |r| r.write_us),
        of(&plain, |r| r.sync_us),
        of(&plain, |r| r.syncs_per_second),
        of(&tier, |r| r.write_us),
        of(&tier, |r| r.sync_us),
        of(&tier, |r| r.syncs_per_second),
        ratio(|r| r.sync_us),
        ratio(|r| r.syncs_per_second),
        bytes.saturating_sub(pages) as f64 / pages as f64,
        syncs / commits,
        commits / asked,
    );
}

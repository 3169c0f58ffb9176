//! One run: an engine over the files, clients that do the trace's I/Os, and what it took.

use super::Replay;
use super::files::contents;
use crate::failure::{Code, Failure};
use crate::study::modelled::Bar;
use serde::Serialize;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use thermocline::classify::Dialect;
use thermocline::config::PolicySection;
use thermocline::device::{Device, FileDevice, FileOptions, Metered, Meters};
use thermocline::device::{ShapedDisk, Witness};
use thermocline::{
    BaseIdentity, Engine, EngineConfig, Identity, Object, ObjectSpec, Request, Stats, Store,
    StoreOptions,
};
use thermocline_core::FileKind;
use thermocline_core::policy::resolve;
use thermocline_sim::PageRequest;
use thermocline_sim::request::{Kind, PAGES_MAX};

/// The longest a flash I/O may take before the request goes to base instead.
const FLASH_DEADLINE: Duration = Duration::from_secs(2);
/// Between looks at whether the tier's writers are done.
const PAUSE: Duration = Duration::from_micros(50);
/// The longest sleep until an I/O is due: so soon the end is noticed.
const NAP: Duration = Duration::from_millis(100);
/// I/Os between two moves of the progress bar.
const BAR_EVERY: usize = 256;

/// What a run came to.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Measured {
    /// The policy; "none" for base only.
    pub(super) policy: String,
    /// Slots of the tier.
    pub(super) slots: u32,
    /// I/Os of the trace, trims not counted.
    pub(super) ios: u64,
    /// Page reads, by where they were served.
    pub(super) reads: u64,
    pub(super) pool_hits: u64,
    pub(super) flash_reads: u64,
    pub(super) base_reads: u64,
    /// Page writes.
    pub(super) writes: u64,
    /// Pages written to flash.
    pub(super) flash_writes: u64,
    pub(super) read_hit_ratio: Option<f64>,
    /// Time of the run; with a disk whose time is added up, that of the run's clock.
    pub(super) elapsed_s: f64,
    /// Time that really passed.
    pub(super) wall_s: f64,
    pub(super) ios_per_s: f64,
    /// Elapsed without tier / elapsed.
    pub(super) speedup: Option<f64>,
    /// Mean time of an I/O, µs; of the run's clock.
    pub(super) mean_io_us: f64,
    /// I/Os base did, and how long they took, added up.
    pub(super) base_ios: u64,
    pub(super) base_s: f64,
    /// Whether base's time is an emulated disk's.
    pub(super) emulated: bool,
    /// Pages whose bytes were not those expected; only with --verify.
    pub(super) wrong_pages: u64,
    /// Why the tier was off at the end; base served the rest.
    pub(super) off: Option<String>,
}

/// A file whose length and pages outlast trims, so that every policy finds it the same.
struct Lasting(FileDevice);

impl Device for Lasting {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(buf, offset)
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.0.sync(data_only)
    }
    fn witness(&self) -> Witness {
        self.0.witness()
    }
    fn sync_before(&self, witness: &Witness, data_only: bool) -> io::Result<()> {
        self.0.sync_before(witness, data_only)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, _len: u64) -> io::Result<()> {
        Ok(())
    }
    fn punch(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }
    fn label(&self) -> String {
        self.0.label()
    }
}

/// An engine over the files, and what is measured of it.
struct Bench<'a> {
    replay: &'a Replay<'a>,
    engine: Arc<Engine>,
    objects: Vec<Arc<Object>>,
    base: Arc<Meters>,
    disk: Option<Arc<ShapedDisk>>,
    next: AtomicUsize,
    failed: AtomicBool,
    error: Mutex<Option<io::Error>>,
    ios: AtomicU64,
    /// Pages read and written: an engine without tier and pool does not count them.
    pages_read: AtomicU64,
    pages_written: AtomicU64,
    io_ns: AtomicU64,
    /// Real time that is no part of the run: waiting for writers on their behalf.
    left_out_ns: AtomicU64,
    wrong_pages: AtomicU64,
    bar: &'a Bar,
}

/// Runs the whole trace under `policy` with a cold tier.
pub(super) fn run(
    replay: &Replay<'_>,
    policy: Option<&str>,
    bar: &Bar,
) -> Result<Measured, Failure> {
    let cache = policy.and(replay.cache.as_deref());
    let made = cache.map(CacheFile::new).transpose()?;
    let measured = measure(replay, policy, cache, bar);
    drop(made);
    measured
}

/// Removes the cache file, which was not there before.
struct CacheFile<'a>(&'a Path);

impl<'a> CacheFile<'a> {
    fn new(path: &'a Path) -> Result<Self, Failure> {
        match path.exists() {
            false => Ok(Self(path)),
            true => Err(
                Failure::usage(format!("--cache {} is there already", path.display()))
                    .advise("the name of a file that is not there: it is made and removed"),
            ),
        }
    }
}

impl Drop for CacheFile<'_> {
    fn drop(&mut self) {
        // Nothing to do about a file that cannot be removed, or was never made.
        let _ = fs::remove_file(self.0);
    }
}

fn measure(
    replay: &Replay<'_>,
    policy: Option<&str>,
    cache: Option<&Path>,
    bar: &Bar,
) -> Result<Measured, Failure> {
    let store = cache.map(|path| store(replay, path)).transpose()?;
    let mut config = EngineConfig {
        page_size: replay.layout.page_size,
        pool_bytes: replay.pool_bytes,
        admit_on_write: replay.admit_on_write,
        seed: replay.seed,
        costs: replay.costs,
        ..EngineConfig::default()
    };
    if let Some(policy) = policy {
        let resolved = resolve(policy, &replay.policy_options);
        let (plain, own) =
            resolved.ok_or_else(|| Failure::usage(format!("no policy is called '{policy}'")))?;
        config.policy = plain.to_string();
        config.tac = PolicySection(own.tac);
        config.clic = PolicySection(own.clic);
        config.cac = PolicySection(own.cac);
    }
    let engine = Engine::start(config, store)?;
    let bench = Bench::new(replay, engine, bar)?;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..replay.threads {
            scope.spawn(|| bench.client(begin));
        }
    });
    let wall = begin.elapsed();
    let stats = bench.engine.stats();
    let base_ns = bench.base_ns();
    let mut measured = bench.measured(&stats, wall);
    measured.policy = policy.unwrap_or(super::NO_TIER).to_string();
    measured.slots = stats.tier.as_ref().map_or(0, |tier| tier.slots);
    measured.base_s = base_ns as f64 / 1e9;
    for object in &bench.objects {
        bench.engine.close_object(object);
    }
    bench.engine.stop()?;
    let error = bench
        .error
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    match error {
        None if replay.ended.load(Ordering::Relaxed) => Err(super::ended()),
        None => Ok(measured),
        Some(error) => Err(Failure::new(
            Code::Failure,
            format!("an I/O failed: {}", crate::failure::reason(&error)),
        )),
    }
}

fn store(replay: &Replay<'_>, path: &Path) -> Result<Store, Failure> {
    let options = StoreOptions {
        page_size: replay.layout.page_size,
        size: Some(replay.flash_bytes),
        base: BaseIdentity {
            file_system: 0,
            inode: 0,
            path: String::new(),
            ..BaseIdentity::default()
        },
        format: true,
        // Decisions that are those of a simulation do not hang on how long the device takes.
        deadline: (!replay.settle).then_some(FLASH_DEADLINE),
        ..StoreOptions::default()
    };
    Ok(Store::open(path, &options)?)
}

impl<'a> Bench<'a> {
    fn new(replay: &'a Replay<'a>, engine: Arc<Engine>, bar: &'a Bar) -> Result<Self, Failure> {
        let base = Arc::new(Meters::default());
        // As in a simulation the files lie at the beginning of a disk that is otherwise empty.
        let disk = replay.emulated.as_ref().map(|model| {
            let (model, capacity) = (model.clone(), model.capacity());
            match replay.virtual_time() {
                true => ShapedDisk::accounting(model, capacity),
                false => ShapedDisk::new(model, capacity),
            }
        });
        let mut bench = Self {
            replay,
            engine,
            objects: Vec::new(),
            base,
            disk,
            next: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            error: Mutex::new(None),
            ios: AtomicU64::new(0),
            pages_read: AtomicU64::new(0),
            pages_written: AtomicU64::new(0),
            io_ns: AtomicU64::new(0),
            left_out_ns: AtomicU64::new(0),
            wrong_pages: AtomicU64::new(0),
            bar,
        };
        for object in 0..replay.layout.extents.len() {
            let id = bench.open(object)?;
            bench.objects.push(id);
        }
        Ok(bench)
    }

    fn open(&self, object: usize) -> Result<Arc<Object>, Failure> {
        let path = self.replay.files.path(object);
        let options = FileOptions {
            // Behind an emulated disk the file itself may be as fast as it can.
            direct: self.disk.is_none(),
            ..FileOptions::default()
        };
        let file = FileDevice::open(&path, options);
        let file = file.map_err(|error| Failure::io("open", &path, &error))?;
        let (file, meters) = (Lasting(file), Arc::clone(&self.base));
        let base: Arc<dyn Device> = match &self.disk {
            Some(disk) => Arc::new(Metered::sharing(disk.attach(file, object as u64), meters)),
            None => Arc::new(Metered::sharing(file, meters)),
        };
        let name = format!("object-{object:05}");
        let spec = ObjectSpec {
            group: name.clone(),
            name,
            identity: Identity {
                device: 0,
                inode: object as u64 + 1,
                generation: 1,
            },
            base,
            kind: FileKind::Relation,
            dialect: Dialect::None,
            cached: true,
            stamp: Arc::new(|| None),
            touch: thermocline::untouched(),
        };
        let opened = self.engine.open_object(spec);
        opened.map_err(|error| Failure::io("open", &path, &error))
    }

    /// Whether a signal asked for the end.
    fn is_ended(&self) -> bool {
        self.replay.ended.load(Ordering::Relaxed)
    }

    /// Takes the next I/O of the trace until there is none, or the end is asked for.
    fn client(&self, begin: Instant) {
        let page = self.replay.layout.page_size as usize;
        let mut buffer = vec![0; page];
        while !self.failed.load(Ordering::Relaxed) && !self.is_ended() {
            let at = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(&start) = self.replay.starts.get(at) else {
                return;
            };
            let requests = &self.replay.requests[start as usize..];
            if self.replay.recorded {
                let due = Duration::from_millis(requests[0].time_ms());
                while begin.elapsed() < due && !self.is_ended() {
                    std::thread::sleep(due.saturating_sub(begin.elapsed()).min(NAP));
                }
            }
            if let Err(error) = self.io(requests, &mut buffer) {
                self.failed.store(true, Ordering::Relaxed);
                let mut first = self.error.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(error);
                return;
            }
            if at.is_multiple_of(BAR_EVERY) {
                self.bar.set(at as u64);
            }
        }
    }

    /// Does the I/O that begins with the first of `requests`.
    fn io(&self, requests: &[PageRequest], buffer: &mut Vec<u8>) -> io::Result<()> {
        let first = &requests[0];
        if first.kind() == Kind::Trim {
            return self.trim(first);
        }
        let before = self.disk.is_some().then(|| self.base_ns());
        let begin = Instant::now();
        let pages = first.pages().max(1) as usize;
        let page = self.replay.layout.page_size as usize;
        buffer.resize(buffer.len().max(pages * page), 0);
        let bytes = &mut buffer[..pages * page];
        if first.kind() == Kind::Read {
            self.read(first, bytes)?;
            self.pages_read.fetch_add(pages as u64, Ordering::Relaxed);
        } else {
            self.write(requests, bytes)?;
            self.pages_written
                .fetch_add(pages as u64, Ordering::Relaxed);
        }
        let took = begin.elapsed();
        self.ios.fetch_add(1, Ordering::Relaxed);
        self.io_ns
            .fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        let base = before.map(|before| Duration::from_nanos(self.base_ns() - before));
        self.let_writers_work(base);
        Ok(())
    }

    fn request(&self, first: &PageRequest, offset: u64) -> Request<'_> {
        Request {
            object: &self.objects[first.object.0 as usize],
            offset,
            hints: self.replay.hint_sets[first.hints as usize],
            client: 0,
        }
    }

    fn read(&self, first: &PageRequest, bytes: &mut [u8]) -> io::Result<()> {
        let page = self.replay.layout.page_size as usize;
        let offset = first.index * page as u64;
        let read = self.engine.read(&self.request(first, offset), bytes)?;
        if read < bytes.len() {
            let message = format!("{read} of {} bytes at {offset}", bytes.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        if self.replay.verify {
            let mut expected = vec![0; page];
            for (index, found) in (first.index..).zip(bytes.chunks_exact(page)) {
                contents(first.object.0 as usize, index, &mut expected);
                let hole = !self.replay.layout.filled && found.iter().all(|&byte| byte == 0);
                if *found != expected[..] && !hole {
                    self.wrong_pages.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Ok(())
    }

    /// Writes what is there already. A part of a page is its second half at the beginning of
    /// the I/O and its first half at the end.
    fn write(&self, requests: &[PageRequest], bytes: &mut [u8]) -> io::Result<()> {
        let page = self.replay.layout.page_size as usize;
        let first = &requests[0];
        let pages = bytes.len() / page;
        for (index, bytes) in (first.index..).zip(bytes.chunks_exact_mut(page)) {
            contents(first.object.0 as usize, index, bytes);
        }
        let part = |request: &PageRequest| request.kind() == Kind::PartWrite;
        let skipped = if part(first) { page / 2 } else { 0 };
        let cut = if pages > 1 && part(&requests[pages - 1]) {
            page / 2
        } else {
            0
        };
        let offset = first.index * page as u64 + skipped as u64;
        let request = self.request(first, offset);
        let bytes = &bytes[skipped..bytes.len() - cut];
        self.engine.write(&request, bytes)
    }

    fn trim(&self, trim: &PageRequest) -> io::Result<()> {
        let page = u64::from(self.replay.layout.page_size);
        let object = trim.object.0 as usize;
        let length = self.replay.layout.extents[object] * page;
        let offset = trim.index.saturating_mul(page);
        if offset >= length {
            return Ok(());
        }
        let id = &self.objects[object];
        if trim.pages() == PAGES_MAX {
            self.engine.truncate(id, offset)?;
            return self.engine.truncate(id, length);
        }
        let bytes = u64::from(trim.pages().max(1)) * page;
        self.engine.punch(id, offset, bytes.min(length - offset))
    }

    /// While a disk is waited for the tier's writers empty their buffer. Where the disk's time
    /// is only added up they get real time instead, at most as much, which is left out.
    fn let_writers_work(&self, base: Option<Duration>) {
        let limit = match (self.replay.settle, base) {
            (true, _) => Duration::MAX,
            (false, Some(base)) if self.replay.virtual_time() => base,
            _ => return,
        };
        let staged = || self.engine.stats().tier.map_or(0, |tier| tier.staged);
        let begin = Instant::now();
        while begin.elapsed() < limit && staged() > 0 {
            std::thread::sleep(PAUSE);
        }
        let waited = begin.elapsed().as_nanos() as u64;
        self.left_out_ns.fetch_add(waited, Ordering::Relaxed);
    }

    /// Time base's I/Os took, on the run's clock.
    fn base_ns(&self) -> u64 {
        match &self.disk {
            Some(disk) if self.replay.virtual_time() => disk.usage().service_ns,
            _ => self.real_base_ns(),
        }
    }

    fn real_base_ns(&self) -> u64 {
        let meter = self.base.read(String::new());
        meter.read.time_ns + meter.write.time_ns + meter.sync.time_ns
    }

    fn measured(&self, stats: &Stats, wall: Duration) -> Measured {
        let count = |source: &str| stats.page_reads.get(source).copied().unwrap_or(0);
        let (pool, flash) = (count("pool"), count("flash") + count("buffer"));
        let reads = self.pages_read.load(Ordering::Relaxed);
        let ios = self.ios.load(Ordering::Relaxed);
        let left_out = self.left_out_ns.load(Ordering::Relaxed) as f64 / 1e9;
        let mut elapsed = wall.as_secs_f64() - left_out;
        let mut in_ios = self.io_ns.load(Ordering::Relaxed) as f64;
        if self.replay.virtual_time() {
            let shift = self.base_ns() as f64 - self.real_base_ns() as f64;
            elapsed += shift / 1e9;
            in_ios += shift;
        }
        let meter = self.base.read(String::new());
        Measured {
            ios,
            reads,
            pool_hits: pool,
            flash_reads: flash,
            base_reads: reads.saturating_sub(pool + flash),
            writes: self.pages_written.load(Ordering::Relaxed),
            flash_writes: stats.tier.as_ref().map_or(0, |tier| tier.flash_writes),
            read_hit_ratio: (reads > 0).then(|| (pool + flash) as f64 / reads as f64),
            elapsed_s: elapsed,
            wall_s: wall.as_secs_f64(),
            ios_per_s: ios as f64 / elapsed.max(1e-9),
            mean_io_us: in_ios / 1e3 / ios.max(1) as f64,
            base_ios: meter.read.requests + meter.write.requests,
            emulated: self.disk.is_some(),
            wrong_pages: self.wrong_pages.load(Ordering::Relaxed),
            off: stats.tier.as_ref().and_then(|tier| tier.off.clone()),
            ..Measured::default()
        }
    }
}

//! Measuring what a page costs on the user's own device (CAC7; thesis §6.5.2).
//!
//! The thesis divides the device's total service time by the number of requests, under a
//! read-only workload for R and after deducting the reads for W. Here nothing else uses the
//! device's scratch file, so each cost is measured alone: the time a phase took, divided by its
//! requests. With one thread that is the service time; with more, the device's share per
//! request when it is kept busy.
//!
//! Phases: fill the scratch file (sequential write), sequential read, random read, random
//! write. Where a file system refuses direct I/O its page cache is emptied before reads, and
//! the result says so. Write phases end with a sync that counts. Offsets are pseudo-random from
//! the seed.
//! The caller provides the device; [`scratch`] makes one that no user data is on.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::device::{AlignedBuf, Device, FileDevice, FileOptions};

/// Bytes of one request of a sequential phase, as large read-ahead makes them.
const SEQUENTIAL_BYTES: usize = 1 << 20;

// The span is a whole number of sequential requests, and those are whole numbers of pages.
const _: () = assert!(SEQUENTIAL_BYTES == 1 << 20);

/// What to measure, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CalibrateOptions {
    /// Longest time of each of the phases after the filling.
    pub duration: Duration,
    /// Most requests of each phase; 0 = only the duration counts.
    pub requests: u64,
    /// Bytes of a page.
    pub page_size: u32,
    /// Bytes of the device to use; rounded down to whole MiB, at least one. A short span makes a
    /// hard disk look better than it is, because its arm hardly moves.
    pub span: u64,
    /// Threads of the random phases.
    pub threads: u32,
    /// Whether to measure random and sequential overwriting. The file is filled in any case.
    pub write: bool,
    /// Seed of the offsets.
    pub seed: u64,
}

impl Default for CalibrateOptions {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(5),
            requests: 0,
            page_size: 8192,
            span: 1 << 30,
            threads: 1,
            write: true,
            seed: 1,
        }
    }
}

/// What is being measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// Writing the scratch file from end to end.
    Fill,
    /// Reading it in large requests.
    SequentialRead,
    /// Reading pages anywhere.
    RandomRead,
    /// Writing pages anywhere.
    RandomWrite,
}

impl Phase {
    /// The name in output.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fill => "sequential write",
            Self::SequentialRead => "sequential read",
            Self::RandomRead => "random read",
            Self::RandomWrite => "random write",
        }
    }
}

/// How far a phase is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Which.
    pub phase: Phase,
    /// 0 to 1.
    pub share: f64,
}

/// One phase's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Measured {
    /// Mean microseconds of device time per page: the phase's time divided by its pages.
    pub mean_us: f64,
    /// Median microseconds of one request from call to return. A request of a sequential phase
    /// is 1 MiB.
    pub median_us: f64,
    /// 99 of 100 requests took at most this many microseconds.
    pub p99_us: f64,
    /// Requests made.
    pub requests: u64,
    /// Mebibytes per second.
    pub mib_per_s: f64,
}

/// What pages cost on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DeviceCosts {
    /// The device's label.
    pub device: String,
    /// Bytes of a page.
    pub page_size: u32,
    /// R: a page read anywhere.
    pub random_read: Measured,
    /// W: a page written anywhere; `None` when writing was not asked for.
    pub random_write: Option<Measured>,
    /// S: a page of a sequential read.
    pub sequential_read: Measured,
    /// A page of a sequential write.
    pub sequential_write: Measured,
    /// The file system refuses direct I/O: reads came through the system's page cache, which was
    /// emptied before each of them as far as the system does that.
    pub page_cache: bool,
}

/// Time since some start. Tests give the emulated device's own.
pub type Clock<'a> = &'a (dyn Fn() -> Duration + Sync);

/// Measures `device`, whose contents are overwritten. `progress` is called from this thread,
/// some times a second.
///
/// # Errors
/// `InvalidInput` for a page size that is not a power of two between 512 bytes and 1 MiB, or
/// no threads, or no time and no requests; else what the device reports.
pub fn calibrate(
    device: &dyn Device,
    options: &CalibrateOptions,
    progress: &mut dyn FnMut(Progress),
) -> io::Result<DeviceCosts> {
    let begin = Instant::now();
    calibrate_by(&move || begin.elapsed(), device, options, progress)
}

/// As [`calibrate`], by another clock.
///
/// # Errors
/// As [`calibrate`].
pub fn calibrate_by(
    clock: Clock<'_>,
    device: &dyn Device,
    options: &CalibrateOptions,
    progress: &mut dyn FnMut(Progress),
) -> io::Result<DeviceCosts> {
    check(options)?;
    let span = (options.span >> 20).max(1) << 20;
    debug_assert!(span > 0 && span.is_multiple_of(SEQUENTIAL_BYTES as u64));
    debug_assert!(span <= options.span.max(1 << 20), "rounded down");
    let run = Run {
        clock,
        device,
        options,
        span,
    };
    let sequential_write = run.sequential(Phase::Fill, progress)?;
    let page_cache = device.drop_cached(0, span);
    let sequential_read = run.sequential(Phase::SequentialRead, progress)?;
    let random_read = run.random(Phase::RandomRead, progress)?;
    let random_write = if options.write {
        Some(run.random(Phase::RandomWrite, progress)?)
    } else {
        None
    };
    Ok(DeviceCosts {
        device: device.label(),
        page_size: options.page_size,
        random_read,
        random_write,
        sequential_read,
        sequential_write,
        page_cache,
    })
}

fn check(options: &CalibrateOptions) -> io::Result<()> {
    let page = options.page_size as usize;
    let message = if !page.is_power_of_two() || !(512..=SEQUENTIAL_BYTES).contains(&page) {
        "the page size must be a power of two from 512 bytes to 1 MiB"
    } else if options.threads == 0 {
        "at least one thread must measure"
    } else if options.duration.is_zero() && options.requests == 0 {
        "measuring needs time or a number of requests"
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// One calibration.
struct Run<'a> {
    clock: Clock<'a>,
    device: &'a dyn Device,
    options: &'a CalibrateOptions,
    span: u64,
}

impl Run<'_> {
    /// Goes through the span once (to fill it: all of it, however long that takes).
    fn sequential(&self, phase: Phase, progress: &mut dyn FnMut(Progress)) -> io::Result<Measured> {
        let mut buf = pattern(SEQUENTIAL_BYTES, self.options.seed);
        let mut times = Vec::new();
        let begin = (self.clock)();
        for offset in (0..self.span).step_by(SEQUENTIAL_BYTES) {
            let before = (self.clock)();
            if phase == Phase::SequentialRead
                && self.finished(begin, before, offset / SEQUENTIAL_BYTES as u64)
            {
                break;
            }
            progress(Progress {
                phase,
                share: offset as f64 / self.span as f64,
            });
            self.request(phase, &mut buf, offset)?;
            times.push((self.clock)() - before);
        }
        if phase == Phase::Fill {
            let filled = times.len() as u64 * SEQUENTIAL_BYTES as u64;
            debug_assert_eq!(filled, self.span, "reads find bytes everywhere");
            self.device.sync(false)?;
        }
        progress(Progress { phase, share: 1.0 });
        Ok(self.summary((self.clock)() - begin, times, SEQUENTIAL_BYTES))
    }

    /// Pages anywhere in the span, from as many threads as asked for.
    fn random(&self, phase: Phase, progress: &mut dyn FnMut(Progress)) -> io::Result<Measured> {
        let all = Mutex::new(Vec::new());
        let made = AtomicU64::new(0);
        let begin = (self.clock)();
        let results = std::thread::scope(|scope| {
            let (made, all) = (&made, &all);
            let others: Vec<_> = (1..self.options.threads)
                .map(|t| scope.spawn(move || self.worker(phase, t, begin, made, all, &mut |_| {})))
                .collect();
            let mut results = vec![self.worker(phase, 0, begin, made, all, progress)];
            let joined = others.into_iter().map(|other| {
                other
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("a measuring thread died")))
            });
            results.extend(joined);
            results
        });
        results.into_iter().collect::<io::Result<()>>()?;
        if phase == Phase::RandomWrite {
            self.device.sync(true)?;
        }
        progress(Progress { phase, share: 1.0 });
        let times = all.into_inner().unwrap_or_else(PoisonError::into_inner);
        let limit = self.options.requests;
        debug_assert!(limit == 0 || times.len() as u64 <= limit, "none too many");
        Ok(self.summary(
            (self.clock)() - begin,
            times,
            self.options.page_size as usize,
        ))
    }

    /// One thread of a random phase.
    fn worker(
        &self,
        phase: Phase,
        thread: u32,
        begin: Duration,
        made: &AtomicU64,
        all: &Mutex<Vec<Duration>>,
        progress: &mut dyn FnMut(Progress),
    ) -> io::Result<()> {
        let page = u64::from(self.options.page_size);
        debug_assert!(self.span.is_multiple_of(page), "pages tile the span");
        let mut buf = pattern(page as usize, self.options.seed);
        let mut offsets = Offsets::new(self.options.seed, phase, thread);
        let mut times = Vec::new();
        let mut reported = begin;
        loop {
            let before = (self.clock)();
            if self.finished(begin, before, made.fetch_add(1, Ordering::Relaxed)) {
                break;
            }
            if before - reported > Duration::from_millis(50) {
                progress(Progress {
                    phase,
                    share: self.share(begin, before, made),
                });
                reported = before;
            }
            let offset = offsets.next(self.span / page) * page;
            let mut begun = before;
            if phase == Phase::RandomRead && self.device.drop_cached(offset, page) {
                begun = (self.clock)();
            }
            self.request(phase, &mut buf, offset)?;
            times.push((self.clock)() - begun);
        }
        all.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .append(&mut times);
        Ok(())
    }

    /// One request of `phase`.
    fn request(&self, phase: Phase, buf: &mut [u8], offset: u64) -> io::Result<()> {
        assert!(
            offset + buf.len() as u64 <= self.span,
            "nothing outside the span is touched"
        );
        match phase {
            Phase::Fill | Phase::RandomWrite => self.device.write_at(buf, offset),
            Phase::SequentialRead | Phase::RandomRead => match self.device.read_at(buf, offset)? {
                n if n == buf.len() => Ok(()),
                _ => Err(io::ErrorKind::UnexpectedEof.into()),
            },
        }
    }

    /// Whether a phase that began at `begin` is over after `made` requests.
    fn finished(&self, begin: Duration, now: Duration, made: u64) -> bool {
        let limit = self.options.requests;
        let late = !self.options.duration.is_zero() && now - begin >= self.options.duration;
        // One request at least, or there is nothing to divide by.
        made > 0 && (late || (limit > 0 && made >= limit))
    }

    fn share(&self, begin: Duration, now: Duration, made: &AtomicU64) -> f64 {
        let by_time = if self.options.duration.is_zero() {
            0.0
        } else {
            (now - begin).as_secs_f64() / self.options.duration.as_secs_f64()
        };
        let by_count = match self.options.requests {
            0 => 0.0,
            limit => made.load(Ordering::Relaxed) as f64 / limit as f64,
        };
        by_time.max(by_count).min(1.0)
    }

    /// Figures of a phase that took `elapsed` for requests of `bytes` each.
    fn summary(&self, elapsed: Duration, mut times: Vec<Duration>, bytes: usize) -> Measured {
        assert!(!times.is_empty(), "every phase makes a request");
        times.sort_unstable();
        let us = |d: Duration| d.as_secs_f64() * 1e6;
        let at = |percent: usize| us(times[(times.len() - 1) * percent / 100]);
        debug_assert!(at(0) <= at(50) && at(50) <= at(99), "shortest first");
        debug_assert!(bytes.is_multiple_of(self.options.page_size as usize));
        let total = times.len() as f64 * bytes as f64;
        let pages = total / f64::from(self.options.page_size);
        Measured {
            mean_us: us(elapsed) / pages,
            median_us: at(50),
            p99_us: at(99),
            requests: times.len() as u64,
            mib_per_s: total / f64::from(1 << 20) / elapsed.as_secs_f64().max(1e-9),
        }
    }
}

/// Pseudo-random page numbers (SplitMix64).
struct Offsets {
    state: u64,
}

impl Offsets {
    fn new(seed: u64, phase: Phase, thread: u32) -> Self {
        let mut offsets = Self {
            state: seed ^ (u64::from(thread) << 8 | phase as u64) << 32,
        };
        offsets.next(1);
        offsets
    }

    /// A number below `limit`.
    fn next(&mut self, limit: u64) -> u64 {
        assert!(limit > 0, "the span holds a page");
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let number = ((u128::from(z ^ (z >> 31)) * u128::from(limit)) >> 64) as u64;
        debug_assert!(number < limit);
        number
    }
}

/// Bytes that no device can compress or leave out.
fn pattern(len: usize, seed: u64) -> AlignedBuf {
    let mut buf = AlignedBuf::new(len);
    assert!(len.is_multiple_of(8), "no byte is left zero");
    let mut numbers = Offsets { state: !seed };
    for chunk in buf.chunks_exact_mut(8) {
        chunk.copy_from_slice(&numbers.next(u64::MAX).to_le_bytes());
    }
    buf
}

/// A file of `len` bytes in `directory` to calibrate on, with its space allocated. It has no
/// name by the time this returns, so nothing stays behind, whatever happens.
///
/// # Errors
/// Those of creating and allocating a file: no space, no permission, read-only.
pub fn scratch(directory: &Path, len: u64, options: FileOptions) -> io::Result<FileDevice> {
    let path = directory.join(format!(".thermocline-calibrate-{}", std::process::id()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)?;
    std::fs::remove_file(&path)?;
    let size = i64::try_from(len).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: the descriptor is open; the other arguments are plain numbers.
    if unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, size) } < 0 {
        let error = io::Error::last_os_error();
        // A file system that cannot allocate ahead still takes the writes.
        if error.raw_os_error() != Some(libc::EOPNOTSUPP) {
            return Err(error);
        }
    }
    FileDevice::from_file(file, format!("in {}", directory.display()), options)
}

#[cfg(test)]
mod tests {
    use thermocline_core::model::{IoOp, Model, Pattern};

    use super::*;
    use crate::device::{FaultScript, Faulty, MemoryDevice, ShapedDisk};

    const SPAN: u64 = 64 << 20;

    fn counted(requests: u64) -> CalibrateOptions {
        CalibrateOptions {
            duration: Duration::ZERO,
            requests,
            span: SPAN,
            ..CalibrateOptions::default()
        }
    }

    fn ignore(_: Progress) {}

    /// Calibrates an emulated device by its own clock.
    fn emulated(preset: &str, options: &CalibrateOptions) -> DeviceCosts {
        let disk = ShapedDisk::accounting(Model::preset(preset).unwrap(), SPAN);
        let device = disk.attach(MemoryDevice::with_len(SPAN as usize), 1);
        let clock = || Duration::from_nanos(disk.usage().elapsed_ns);
        calibrate_by(&clock, &device, options, &mut ignore).unwrap()
    }

    /// A device behind a page cache that forgets nothing it is not told to.
    struct Remembering {
        device: MemoryDevice,
        kept: Mutex<std::collections::BTreeSet<u64>>,
        hits: AtomicU64,
    }

    impl Device for Remembering {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
            for at in (offset..offset + buf.len() as u64).step_by(4096) {
                if !self.kept.lock().unwrap().insert(at) {
                    self.hits.fetch_add(1, Ordering::Relaxed);
                }
            }
            self.device.read_at(buf, offset)
        }
        fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
            let written = (offset..offset + buf.len() as u64).step_by(4096);
            self.kept.lock().unwrap().extend(written);
            self.device.write_at(buf, offset)
        }
        fn sync(&self, _: bool) -> io::Result<()> {
            Ok(())
        }
        fn len(&self) -> io::Result<u64> {
            self.device.len()
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.device.set_len(len)
        }
        fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
            self.device.punch(offset, len)
        }
        fn drop_cached(&self, offset: u64, len: u64) -> bool {
            let mut kept = self.kept.lock().unwrap();
            kept.retain(|at| !(offset..offset + len).contains(at));
            true
        }
        fn label(&self) -> String {
            "remembering".into()
        }
    }

    #[test]
    fn a_page_cache_is_emptied_before_reads_and_told_of() {
        let device = Remembering {
            device: MemoryDevice::new(),
            kept: Mutex::default(),
            hits: AtomicU64::new(0),
        };
        let options = CalibrateOptions {
            span: 2 << 20,
            ..counted(300)
        };
        let costs = calibrate(&device, &options, &mut ignore).unwrap();
        assert!(costs.page_cache);
        assert_eq!(device.hits.load(Ordering::Relaxed), 0, "reads from memory");
        let memory = calibrate(&MemoryDevice::new(), &options, &mut ignore).unwrap();
        assert!(!memory.page_cache);
    }

    #[test]
    fn finds_the_costs_of_every_model() {
        for preset in ["hdd", "hdd-15k", "ssd", "iodrive", "nvme", "network"] {
            let model = Model::preset(preset).unwrap();
            let costs = emulated(preset, &counted(2000));
            let near = |measured: f64, op, pattern, len| {
                let expected = model.expected(op, pattern, len) as f64 / 1000.0;
                let pages = len as f64 / 8192.0;
                let close = (measured * pages - expected).abs() < expected * 0.05;
                assert!(
                    close,
                    "{preset} {op:?} {pattern:?}: {measured} for {expected}"
                );
            };
            near(costs.random_read.mean_us, IoOp::Read, Pattern::Random, 8192);
            near(
                costs.random_write.unwrap().mean_us,
                IoOp::Write,
                Pattern::Random,
                8192,
            );
            near(
                costs.sequential_read.mean_us,
                IoOp::Read,
                Pattern::Sequential,
                1 << 20,
            );
            near(
                costs.sequential_write.mean_us,
                IoOp::Write,
                Pattern::Sequential,
                1 << 20,
            );
            assert!(costs.device.contains("emulated"));
        }
    }

    #[test]
    fn a_disk_wants_sequence_and_flash_does_not_care_as_much() {
        let options = counted(500);
        let (disk, flash) = (emulated("hdd", &options), emulated("ssd", &options));
        assert!(disk.random_read.mean_us > 50.0 * disk.sequential_read.mean_us);
        assert!(disk.random_read.mean_us > 50.0 * flash.random_read.mean_us);
        assert!(flash.random_read.mean_us < 10.0 * flash.sequential_read.mean_us);
        assert!(disk.random_write.unwrap().mean_us > disk.random_read.mean_us);
        assert!(disk.random_read.median_us <= disk.random_read.p99_us);
    }

    #[test]
    fn the_same_seed_gives_the_same_figures() {
        let options = counted(300);
        assert_eq!(emulated("hdd", &options), emulated("hdd", &options));
        let other = CalibrateOptions { seed: 2, ..options };
        assert_ne!(
            emulated("hdd", &options).random_read,
            emulated("hdd", &other).random_read
        );
    }

    #[test]
    fn counts_and_stays_within_the_span() {
        let device = MemoryDevice::new();
        let options = CalibrateOptions {
            threads: 3,
            span: (3 << 20) + 5,
            ..counted(100)
        };
        let costs = calibrate(&device, &options, &mut ignore).unwrap();
        assert_eq!(device.len().unwrap(), 3 << 20);
        assert_eq!(costs.random_read.requests, 100);
        assert_eq!(costs.random_write.unwrap().requests, 100);
        assert_eq!(costs.sequential_write.requests, 3);
        assert_eq!(costs.sequential_read.requests, 3);
        let read_only = CalibrateOptions {
            write: false,
            ..options
        };
        assert_eq!(
            calibrate(&device, &read_only, &mut ignore)
                .unwrap()
                .random_write,
            None
        );
    }

    #[test]
    fn a_phase_ends_with_its_time() {
        // 8 KiB anywhere on a 7200-rpm disk: some 80 a second.
        let options = CalibrateOptions {
            duration: Duration::from_secs(10),
            span: SPAN,
            ..CalibrateOptions::default()
        };
        let costs = emulated("hdd", &options);
        assert!(
            (700..900).contains(&costs.random_read.requests),
            "{costs:?}"
        );
    }

    #[test]
    fn progress_ends_each_phase_in_order() {
        let mut ended = Vec::new();
        let mut last = 0.0;
        let mut watch = |p: Progress| {
            assert!((0.0..=1.0).contains(&p.share));
            if p.share == 1.0 {
                ended.push(p.phase);
                last = 0.0;
            } else {
                assert!(p.share >= last, "progress never goes back");
                last = p.share;
            }
        };
        let device = MemoryDevice::new();
        let options = CalibrateOptions {
            span: 4 << 20,
            ..counted(10)
        };
        calibrate(&device, &options, &mut watch).unwrap();
        assert_eq!(
            ended,
            [
                Phase::Fill,
                Phase::SequentialRead,
                Phase::RandomRead,
                Phase::RandomWrite
            ]
        );
    }

    #[test]
    fn errors_come_through() {
        let script = FaultScript::new();
        script.load("write after 30 fail ENOSPC").unwrap();
        let device = Faulty::new(MemoryDevice::new(), script, None);
        let error = calibrate(&device, &counted(10), &mut ignore).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
        for wrong in [
            CalibrateOptions {
                page_size: 5000,
                ..counted(10)
            },
            CalibrateOptions {
                threads: 0,
                ..counted(10)
            },
            counted(0),
        ] {
            let error = calibrate(&MemoryDevice::new(), &wrong, &mut ignore).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }

    #[test]
    fn a_scratch_file_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let device = scratch(directory.path(), 4 << 20, FileOptions::default()).unwrap();
        assert_eq!(device.len().unwrap(), 4 << 20);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let options = CalibrateOptions {
            span: 4 << 20,
            ..counted(20)
        };
        let costs = calibrate(&device, &options, &mut ignore).unwrap();
        assert_eq!(costs.random_read.requests, 20);
        let missing = scratch(&directory.path().join("x"), 4096, FileOptions::default());
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

//! What a device does and how long it takes.
//!
//! [`Metered`] wraps any device, real or emulated, and counts. It takes no locks: a request
//! costs two clock readings and some ten atomic operations.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use super::clock;
use super::{Data, Device, DirectFile, Transfer, Witness};
use crate::observe::histogram::Histogram;

/// Counters of one kind of request.
#[derive(Debug, Default)]
struct Meter {
    bytes: AtomicU64,
    errors: AtomicU64,
    time_ns: AtomicU64,
    latency: Histogram,
}

impl Meter {
    /// A request moved so many bytes, or failed, and took `took` nanoseconds.
    fn count(&self, moved: Option<usize>, took: u64) {
        match moved {
            Some(bytes) => self.bytes.fetch_add(bytes as u64, Ordering::Relaxed),
            None => self.errors.fetch_add(1, Ordering::Relaxed),
        };
        self.time_ns.fetch_add(took, Ordering::Relaxed);
        self.latency.add(Duration::from_nanos(took));
    }

    fn read(&self) -> OperationMeter {
        let latency = self.latency.latency();
        debug_assert!(latency.p50_us <= latency.p95_us && latency.p95_us <= latency.p99_us);
        let ns = |us: f64| (us * 1000.0) as u64;
        OperationMeter {
            requests: latency.count,
            bytes: self.bytes.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            time_ns: self.time_ns.load(Ordering::Relaxed),
            p50_ns: ns(latency.p50_us),
            p95_ns: ns(latency.p95_us),
            p99_ns: ns(latency.p99_us),
        }
    }
}

/// One kind of request, as measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OperationMeter {
    /// Requests finished, with or without error.
    pub requests: u64,
    /// Bytes moved by those that succeeded.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Nanoseconds from call to return, added up.
    pub time_ns: u64,
    /// Half of the requests took at most this many nanoseconds (to within 12.5 %).
    pub p50_ns: u64,
    /// 95 % of the requests took at most this.
    pub p95_ns: u64,
    /// 99 % of the requests took at most this.
    pub p99_ns: u64,
}

/// A device as measured from above.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceMeter {
    /// The device's label.
    pub label: String,
    /// Nanoseconds since measuring began.
    pub elapsed_ns: u64,
    /// Nanoseconds in which at least one request was under way.
    pub busy_ns: u64,
    /// Reads.
    pub read: OperationMeter,
    /// Writes.
    pub write: OperationMeter,
    /// Syncs.
    pub sync: OperationMeter,
}

impl DeviceMeter {
    /// Busy share of the elapsed time, 0 to 1.
    #[must_use]
    pub fn utilisation(&self) -> f64 {
        if self.elapsed_ns == 0 {
            return 0.0;
        }
        (self.busy_ns as f64 / self.elapsed_ns as f64).min(1.0)
    }
}

/// Time with at least one request under way.
///
/// One word holds how many are under way (low 16 bits) and since when (the rest, in units of
/// 64 ns from the origin), so that both change together. The time wraps around after 208 days;
/// differences stay right as long as the device is idle once in half of that.
#[derive(Debug, Default)]
struct Busy {
    word: AtomicU64,
    total_ns: AtomicU64,
}

impl Busy {
    const DEPTH_BITS: u32 = 16;
    const DEPTH: u64 = (1 << Self::DEPTH_BITS) - 1;
    const UNIT: u32 = 6;
    /// The largest time the word holds, in units.
    const SINCE_MAX: u64 = u64::MAX >> Self::DEPTH_BITS;

    /// Nanoseconds from the time in `word` to `now`; 0 when another thread read the clock later
    /// but came first.
    fn since(word: u64, now: u64) -> u64 {
        let begun = word >> Self::DEPTH_BITS;
        let units = (now >> Self::UNIT).wrapping_sub(begun) & Self::SINCE_MAX;
        let ahead = units > Self::SINCE_MAX / 2;
        let ns = if ahead { 0 } else { units << Self::UNIT };
        debug_assert!(ns <= now, "nothing began before the origin");
        ns
    }

    /// A request begins at `now` (nanoseconds from the origin).
    fn begin(&self, now: u64) {
        let change = |word: u64| {
            let fresh = (now >> Self::UNIT & Self::SINCE_MAX) << Self::DEPTH_BITS;
            Some(if word & Self::DEPTH == 0 {
                fresh | 1
            } else {
                word + 1
            })
        };
        let before = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
        debug_assert!(before.is_ok_and(|word| word & Self::DEPTH < Self::DEPTH));
    }

    /// A request ends at `now`.
    fn end(&self, now: u64) {
        let before = self.word.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before & Self::DEPTH > 0, "what ends has begun");
        if before & Self::DEPTH == 1 {
            self.total_ns
                .fetch_add(Self::since(before, now), Ordering::Relaxed);
        }
    }

    /// The total so far, the present busy period included.
    fn total(&self, now: u64) -> u64 {
        let word = self.word.load(Ordering::Acquire);
        let open = if word & Self::DEPTH > 0 {
            Self::since(word, now)
        } else {
            0
        };
        self.total_ns.load(Ordering::Relaxed) + open
    }
}

/// The counters of one device, or of one drive that many files are on.
#[derive(Debug)]
pub struct Meters {
    origin: u64,
    busy: Busy,
    read: Meter,
    write: Meter,
    sync: Meter,
}

impl Default for Meters {
    fn default() -> Self {
        Self {
            origin: clock::now(),
            busy: Busy::default(),
            read: Meter::default(),
            write: Meter::default(),
            sync: Meter::default(),
        }
    }
}

impl Meters {
    /// What was measured so far of what is called `label`. Figures of requests that finish
    /// meanwhile may be in part.
    #[must_use]
    pub fn read(&self, label: String) -> DeviceMeter {
        let now = clock::now() - self.origin;
        DeviceMeter {
            label,
            elapsed_ns: now,
            busy_ns: self.busy.total(now),
            read: self.read.read(),
            write: self.write.read(),
            sync: self.sync.read(),
        }
    }

    fn measure<T>(
        &self,
        meter: &Meter,
        bytes: impl FnOnce(&T) -> usize,
        call: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let begin = clock::now() - self.origin;
        self.busy.begin(begin);
        let result = call();
        let end = clock::now() - self.origin;
        self.busy.end(end);
        debug_assert!(end >= begin, "the clock never goes back");
        meter.count(result.as_ref().map(bytes).ok(), end.saturating_sub(begin));
        result
    }

    /// Reads of somebody else's making begin; when, for [`Meters::end_reads`].
    pub(super) fn begin(&self) -> u64 {
        let begin = clock::now() - self.origin;
        self.busy.begin(begin);
        begin
    }

    /// Reads that began at `begin` have ended, all at once.
    pub(super) fn end_reads(&self, begin: u64, results: &[io::Result<usize>]) {
        let end = clock::now() - self.origin;
        self.busy.end(end);
        for result in results {
            let moved = result.as_ref().ok().copied();
            self.read.count(moved, end.saturating_sub(begin));
        }
    }

    /// The requests of a batch are under way at once, and each takes as long as the batch.
    fn measure_batch(&self, batch: &mut [Transfer<'_>], device: &impl Device) {
        let begin = clock::now() - self.origin;
        self.busy.begin(begin);
        device.transfer(batch);
        let end = clock::now() - self.origin;
        self.busy.end(end);
        for one in batch {
            let meter = match one.data {
                Data::Read(_) => &self.read,
                Data::Write(_) => &self.write,
            };
            meter.count(one.result.as_ref().ok().copied(), end.saturating_sub(begin));
        }
    }
}

/// A device that counts what passes through it. `len`, `set_len`, `reserve` and `punch` are not
/// counted.
#[derive(Debug)]
pub struct Metered<D> {
    device: D,
    meters: Arc<Meters>,
}

impl<D: Device> Metered<D> {
    /// Measures `device` from now on.
    pub fn new(device: D) -> Self {
        Self::sharing(device, Arc::default())
    }

    /// Counts what `device` does together with all others that share `meters`.
    pub fn sharing(device: D, meters: Arc<Meters>) -> Self {
        Self { device, meters }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.device
    }

    /// What was measured so far. Figures of requests that finish meanwhile may be in part.
    #[must_use]
    pub fn meter(&self) -> DeviceMeter {
        self.meters.read(self.device.label())
    }
}

impl<D: Device> Device for Metered<D> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let meters = &*self.meters;
        let wanted = buf.len();
        let n = meters.measure(&meters.read, |n| *n, || self.device.read_at(buf, offset))?;
        debug_assert!(n <= wanted, "a device fills no more than the buffer");
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let meters = &*self.meters;
        meters.measure(
            &meters.write,
            |()| buf.len(),
            || self.device.write_at(buf, offset),
        )
    }

    fn transfer(&self, batch: &mut [Transfer<'_>]) {
        self.meters.measure_batch(batch, &self.device);
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        let meters = &*self.meters;
        meters.measure(&meters.sync, |()| 0, || self.device.sync(data_only))
    }

    fn witness(&self) -> Witness {
        self.device.witness()
    }

    fn sync_before(&self, witness: &Witness, data_only: bool) -> io::Result<()> {
        let meters = &*self.meters;
        let synced = || self.device.sync_before(witness, data_only);
        meters.measure(&meters.sync, |()| 0, synced)
    }

    fn len(&self) -> io::Result<u64> {
        self.device.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.device.set_len(len)
    }

    fn reserve(&self, offset: u64, len: u64, ahead: u64) -> io::Result<()> {
        self.device.reserve(offset, len, ahead)
    }

    fn give_back(&self) -> io::Result<()> {
        self.device.give_back()
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device.punch(offset, len)
    }

    fn drop_cached(&self, offset: u64, len: u64) -> bool {
        self.device.drop_cached(offset, len)
    }

    fn direct(&self) -> Option<DirectFile<'_>> {
        let lent = self.device.direct()?;
        // A file is metered once: by the outermost meter.
        let meters = Some(&*self.meters);
        Some(DirectFile { meters, ..lent })
    }

    fn late(&self) -> u32 {
        self.device.late()
    }

    fn can_write(&self) -> bool {
        self.device.can_write()
    }

    fn label(&self) -> String {
        self.device.label()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{FaultScript, Faulty, MemoryDevice};
    use super::*;

    #[test]
    fn busy_time_is_the_union_of_requests() {
        let busy = Busy::default();
        busy.begin(6400);
        busy.begin(9600);
        busy.end(12_800);
        assert_eq!(busy.total(16_000), 9600, "still open");
        busy.end(19_200);
        assert_eq!(busy.total(64_000), 12_800);
        busy.begin(64_000);
        busy.end(70_400);
        assert_eq!(busy.total(99_999), 19_200);
    }

    #[test]
    fn busy_time_is_right_after_the_time_has_wrapped_around() {
        let wrap = (Busy::SINCE_MAX + 1) << Busy::UNIT;
        let busy = Busy::default();
        busy.begin(wrap - 640);
        assert_eq!(busy.total(wrap + 640), 1280, "begun before, read after");
        busy.end(wrap + 6400);
        busy.begin(2 * wrap + 64);
        busy.end(2 * wrap + 128);
        assert_eq!(busy.total(3 * wrap), 7040 + 64);
        busy.begin(3 * wrap);
        busy.end(3 * wrap - 64);
        assert_eq!(busy.total(3 * wrap), 7040 + 64, "clocks read out of order");
    }

    #[test]
    fn counts_requests_bytes_and_errors() {
        let script = FaultScript::new();
        script.load("write after 2 fail EIO").unwrap();
        let device = Metered::new(Faulty::new(MemoryDevice::new(), script, None));
        for page in 0..3u64 {
            let failed = device.write_at(&[1; 4096], page * 4096).is_err();
            assert_eq!(failed, page == 2);
        }
        assert_eq!(device.read_at(&mut [0; 4096], 6144).unwrap(), 2048);
        device.sync(true).unwrap();
        let meter = device.meter();
        assert_eq!(
            (meter.write.requests, meter.write.bytes, meter.write.errors),
            (3, 8192, 1)
        );
        assert_eq!(
            (meter.read.requests, meter.read.bytes, meter.read.errors),
            (1, 2048, 0)
        );
        assert_eq!((meter.sync.requests, meter.sync.bytes), (1, 0));
        let (median, only) = (meter.read.p50_ns, meter.read.time_ns);
        assert!(
            median.abs_diff(only) <= only / 8 + 8,
            "one value: {median} for {only}"
        );
        assert!(meter.write.p50_ns <= meter.write.p99_ns);
        let sum = meter.read.time_ns + meter.write.time_ns + meter.sync.time_ns;
        assert!(
            meter.busy_ns <= sum + 5 * 64,
            "one thread: the union is the sum"
        );
        assert!(meter.utilisation() <= 1.0);
        assert_eq!(meter.label, "memory with scripted faults");
    }

    #[test]
    fn many_threads_leave_nobody_under_way() {
        let device = Metered::new(MemoryDevice::with_len(4096));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..500).for_each(|_| drop(device.read_at(&mut [0; 512], 0))));
            }
        });
        let meter = device.meter();
        assert_eq!((meter.read.requests, meter.read.bytes), (2000, 2000 * 512));
        assert_eq!(
            device.meters.busy.word.load(Ordering::Relaxed) & Busy::DEPTH,
            0
        );
        assert!(meter.busy_ns <= meter.elapsed_ns);
    }
}

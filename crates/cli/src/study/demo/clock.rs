//! Time in a demo run: the emulated disk's is added up, everything else is measured.
//!
//! A request to the emulated disk takes, on this clock, exactly what its model says, however
//! fast the file below it answers; outside of such requests the clock runs with the wall clock.
//! With one client that waits for every read and write, that is the time a run with such a disk
//! would take. (In `--real-time` runs the disk is really waited for, and the clock is the wall's.)

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use thermocline::device::{Device, Shaped, ShapedDisk, Witness};

/// What requests to a device took.
#[derive(Default)]
pub(crate) struct Meter {
    /// Real nanoseconds, all requests.
    real: AtomicU64,
    /// Nanoseconds on the run's clock: reads.
    reads: AtomicU64,
    /// The same: writes and syncs.
    writes: AtomicU64,
}

impl Meter {
    /// Time of the reads so far, added up over requests.
    pub(crate) fn reads(&self) -> Duration {
        Duration::from_nanos(self.reads.load(Ordering::Relaxed))
    }

    /// Time of the writes and syncs.
    pub(crate) fn writes(&self) -> Duration {
        Duration::from_nanos(self.writes.load(Ordering::Relaxed))
    }

    /// Time of all of them.
    pub(crate) fn time(&self) -> Duration {
        self.reads() + self.writes()
    }
}

/// A device whose requests are metered.
pub(crate) struct Metered<D> {
    inner: D,
    /// The emulated disk below, whose time counts instead of the real one.
    disk: Option<Arc<ShapedDisk>>,
    meter: Arc<Meter>,
}

impl<D: Device> Metered<D> {
    /// A real device.
    pub(crate) fn real(inner: D, meter: &Arc<Meter>) -> Self {
        Self {
            inner,
            disk: None,
            meter: Arc::clone(meter),
        }
    }

    fn timed<T>(&self, on: &AtomicU64, request: impl FnOnce(&D) -> io::Result<T>) -> io::Result<T> {
        let disk_time = || self.disk.as_ref().map(|disk| disk.usage().service_ns);
        let (start, before) = (Instant::now(), disk_time());
        let result = request(&self.inner);
        let real = start.elapsed().as_nanos() as u64;
        let took = before
            .zip(disk_time())
            .map_or(real, |(before, after)| after - before);
        self.meter.real.fetch_add(real, Ordering::Relaxed);
        on.fetch_add(took, Ordering::Relaxed);
        result
    }
}

impl<D: Device> Metered<Shaped<D>> {
    /// A file on an emulated disk. Requests come one at a time.
    pub(crate) fn emulated(file: D, disk: &Arc<ShapedDisk>, meter: &Arc<Meter>) -> Self {
        let inner = disk.attach(file, 0);
        Self {
            inner,
            disk: Some(Arc::clone(disk)),
            meter: Arc::clone(meter),
        }
    }
}

impl<D: Device> Device for Metered<D> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.timed(&self.meter.reads, |inner| inner.read_at(buf, offset))
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.timed(&self.meter.writes, |inner| inner.write_at(buf, offset))
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.timed(&self.meter.writes, |inner| inner.sync(data_only))
    }
    fn witness(&self) -> Witness {
        self.inner.witness()
    }
    fn sync_before(&self, witness: &Witness, data_only: bool) -> io::Result<()> {
        self.timed(&self.meter.writes, |inner| {
            inner.sync_before(witness, data_only)
        })
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.timed(&self.meter.writes, |inner| inner.set_len(len))
    }
    fn reserve(&self, offset: u64, len: u64, ahead: u64) -> io::Result<()> {
        self.timed(&self.meter.writes, |inner| {
            inner.reserve(offset, len, ahead)
        })
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.timed(&self.meter.writes, |inner| inner.punch(offset, len))
    }
    fn late(&self) -> u32 {
        self.inner.late()
    }

    fn label(&self) -> String {
        self.inner.label()
    }
}

/// What the base of a run is.
#[derive(Clone)]
pub(crate) enum Base {
    /// A real file, as fast as it is.
    Real,
    /// An emulated disk nobody waits for: its time is added up.
    Accounted(Arc<ShapedDisk>),
    /// An emulated disk at its own pace.
    RealTime(Arc<ShapedDisk>),
}

/// The clock of one run.
pub(crate) struct Clock {
    start: Instant,
    /// Base's time is added up instead of waited for.
    accounted: bool,
    /// Requests to base.
    base: Arc<Meter>,
}

impl Clock {
    /// Starts now. `meter` meters the requests to `base`.
    pub(crate) fn start(base: &Base, meter: Arc<Meter>) -> Self {
        let accounted = matches!(base, Base::Accounted(_));
        Self {
            start: Instant::now(),
            accounted,
            base: meter,
        }
    }

    /// Wall-clock time since the start.
    pub(crate) fn wall(&self) -> Duration {
        self.start.elapsed()
    }

    /// Whether base's time really passes.
    pub(crate) fn waits(&self) -> bool {
        !self.accounted
    }

    /// Leaves out real time in which the run stood still.
    pub(crate) fn leave_out(&self, real: Duration) {
        debug_assert!(self.accounted);
        self.base
            .real
            .fetch_add(real.as_nanos() as u64, Ordering::Relaxed);
    }

    /// The run's time since the start.
    pub(crate) fn now(&self) -> Duration {
        if self.waits() {
            return self.wall();
        }
        let real = Duration::from_nanos(self.base.real.load(Ordering::Relaxed));
        self.wall().saturating_sub(real) + self.base.time()
    }

    /// What base did.
    pub(crate) fn base(&self) -> &Meter {
        &self.base
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline::device::MemoryDevice;
    use thermocline_core::model::Model;

    #[test]
    fn an_accounted_disk_costs_its_model_not_its_file() {
        const LENGTH: usize = 64 << 20;
        let model = Model::preset("hdd").expect("preset");
        let disk = ShapedDisk::accounting(model.clone(), model.capacity());
        let meter = Arc::new(Meter::default());
        let file = Metered::emulated(MemoryDevice::with_len(LENGTH), &disk, &meter);
        let clock = Clock::start(&Base::Accounted(disk), Arc::clone(&meter));
        let mut page = [0; 4096];
        for step in 0..100_u64 {
            let at = step * 7_654_321 % LENGTH as u64 / 4096 * 4096;
            file.read_at(&mut page, at).expect("reads");
        }
        let read = clock.base().time() / 100;
        assert!(
            read > Duration::from_millis(2) && read < Duration::from_millis(13),
            "{read:?}"
        );
        assert!(clock.now() >= clock.base().time());
        assert!(file.label().contains("emulated"), "{}", file.label());
    }
}

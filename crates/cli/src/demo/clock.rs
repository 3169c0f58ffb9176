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
use thermocline::device::{Device, ShapedDisk};

/// Requests to a device and the real time they took.
#[derive(Default)]
pub(crate) struct Meter {
    nanoseconds: AtomicU64,
}

impl Meter {
    /// Time so far, added up over requests.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }
}

/// A device whose requests are timed.
pub(crate) struct Metered<D> {
    inner: D,
    meter: Arc<Meter>,
}

impl<D: Device> Metered<D> {
    /// Times `inner`'s requests on `meter`.
    pub(crate) fn new(inner: D, meter: &Arc<Meter>) -> Self {
        Self {
            inner,
            meter: Arc::clone(meter),
        }
    }

    fn timed<T>(&self, request: impl FnOnce(&D) -> io::Result<T>) -> io::Result<T> {
        let start = Instant::now();
        let result = request(&self.inner);
        let took = start.elapsed().as_nanos() as u64;
        self.meter.nanoseconds.fetch_add(took, Ordering::Relaxed);
        result
    }
}

impl<D: Device> Device for Metered<D> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.timed(|inner| inner.read_at(buf, offset))
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.timed(|inner| inner.write_at(buf, offset))
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.timed(|inner| inner.sync(data_only))
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.timed(|inner| inner.set_len(len))
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.timed(|inner| inner.punch(offset, len))
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
    base: Base,
    meter: Arc<Meter>,
}

impl Clock {
    /// Starts now. `meter` times the requests to base.
    pub(crate) fn start(base: Base, meter: Arc<Meter>) -> Self {
        Self {
            start: Instant::now(),
            base,
            meter,
        }
    }

    /// Wall-clock time since the start.
    pub(crate) fn wall(&self) -> Duration {
        self.start.elapsed()
    }

    /// Whether the disk is waited for.
    pub(crate) fn waits(&self) -> bool {
        !matches!(self.base, Base::Accounted(_))
    }

    /// Leaves out real time in which the run stood still.
    pub(crate) fn leave_out(&self, real: Duration) {
        debug_assert!(!self.waits());
        self.meter
            .nanoseconds
            .fetch_add(real.as_nanos() as u64, Ordering::Relaxed);
    }

    /// The run's time since the start.
    pub(crate) fn now(&self) -> Duration {
        match &self.base {
            Base::Real | Base::RealTime(_) => self.wall(),
            Base::Accounted(_) => self.wall().saturating_sub(self.meter.time()) + self.base_time(),
        }
    }

    /// Time the base device was busy on this clock.
    pub(crate) fn base_time(&self) -> Duration {
        match &self.base {
            Base::Real => self.meter.time(),
            Base::Accounted(disk) | Base::RealTime(disk) => {
                Duration::from_nanos(disk.usage().service_ns)
            }
        }
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
        let file = disk.attach(MemoryDevice::with_len(LENGTH), 1);
        let file = Metered::new(file, &meter);
        let clock = Clock::start(Base::Accounted(disk), Arc::clone(&meter));
        let mut page = [0; 4096];
        for step in 0..100_u64 {
            let at = step * 7_654_321 % LENGTH as u64 / 4096 * 4096;
            file.read_at(&mut page, at).expect("reads");
        }
        let read = clock.base_time() / 100;
        assert!(
            read > Duration::from_millis(2) && read < Duration::from_millis(13),
            "{read:?}"
        );
        assert!(clock.now() >= clock.base_time());
        assert!(file.label().contains("emulated"), "{}", file.label());
    }
}

//! Time in a demo run: the emulated disk's is added up, everything else is measured.
//!
//! A request to the emulated disk takes, on this clock, exactly what the model says, however
//! fast the file below it answers. Outside of such requests the clock runs with the wall clock.
//! With one client that waits for every request, that is the time a run with the real disk would
//! take, less what a slower disk would let happen in the background.
//!
//! Invariants:
//! 1. `now` never goes back.
//! 2. Base requests come one at a time (the lock is held for the whole request).

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use thermocline::device::Device;
use thermocline_core::model::{IoOp, Model, Nanos};

/// Wall time with the waits for the emulated disk swapped for the model's.
pub(crate) struct Clock {
    start: Instant,
    /// Nanoseconds the model said, and nanoseconds that really passed meanwhile.
    swapped: Mutex<Swapped>,
}

#[derive(Clone, Copy, Default)]
struct Swapped {
    model: u64,
    real: u64,
}

impl Clock {
    /// A clock that starts now.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), swapped: Mutex::default() })
    }

    /// Time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.at(&self.lock())
    }

    fn at(&self, swapped: &Swapped) -> Duration {
        let real = self.start.elapsed().as_nanos() as u64;
        Duration::from_nanos(real.saturating_sub(swapped.real) + swapped.model)
    }

    fn lock(&self) -> MutexGuard<'_, Swapped> {
        self.swapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What went to a device in a run: requests and their time on the run's clock.
#[derive(Default)]
pub(crate) struct Meter {
    nanoseconds: AtomicU64,
    requests: AtomicU64,
}

impl Meter {
    fn note(&self, nanoseconds: u64) {
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Time so far.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed))
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// A device as fast as it is, measured.
pub(crate) struct Measured<D> {
    pub(crate) inner: D,
    pub(crate) meter: Arc<Meter>,
}

impl<D: Device> Measured<D> {
    fn timed<T>(&self, request: impl FnOnce(&D) -> io::Result<T>) -> io::Result<T> {
        let start = Instant::now();
        let result = request(&self.inner);
        self.meter.note(start.elapsed().as_nanos() as u64);
        result
    }
}

impl<D: Device> Device for Measured<D> {
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
        self.inner.set_len(len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.punch(offset, len)
    }
    fn label(&self) -> String {
        self.inner.label()
    }
}

/// A file that takes, on the run's clock, the time of the modelled device.
pub(crate) struct Emulated<D> {
    pub(crate) inner: D,
    pub(crate) model: Mutex<Model>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) meter: Arc<Meter>,
    /// Wait for the model's time as well, instead of only adding it up.
    pub(crate) wait: bool,
}

impl<D: Device> Emulated<D> {
    fn request<T>(
        &self,
        op: IoOp,
        position: u64,
        len: u64,
        request: impl FnOnce(&D) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut swapped = self.clock.lock();
        let begun = Instant::now();
        let now = Nanos(self.clock.at(&swapped).as_nanos() as u64);
        let mut model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        let service = model.service(now, op, position, len);
        let result = request(&self.inner);
        if self.wait {
            std::thread::sleep(Duration::from_nanos(service).saturating_sub(begun.elapsed()));
        }
        swapped.model += service;
        swapped.real += begun.elapsed().as_nanos() as u64;
        self.meter.note(service);
        result
    }
}

impl<D: Device> Device for Emulated<D> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let len = buf.len() as u64;
        self.request(IoOp::Read, offset, len, |inner| inner.read_at(buf, offset))
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let len = buf.len() as u64;
        self.request(IoOp::Write, offset, len, |inner| inner.write_at(buf, offset))
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        // The file below is thrown away after the run; the model's disk has no write cache.
        let _ = data_only;
        self.request(IoOp::Sync, 0, 0, |_| Ok(()))
    }
    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.punch(offset, len)
    }
    fn label(&self) -> String {
        let model = self.model.lock().unwrap_or_else(PoisonError::into_inner);
        format!("emulated {} over {}", model.name(), self.inner.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline::device::MemoryDevice;

    #[test]
    fn the_emulated_disk_costs_its_model_not_its_file() {
        let (clock, meter) = (Clock::new(), Arc::new(Meter::default()));
        let model = Mutex::new(Model::preset("hdd").expect("preset"));
        let inner = MemoryDevice::new();
        inner.set_len(1 << 30).expect("sparse enough");
        let disk =
            Emulated { inner, model, clock: clock.clone(), meter: meter.clone(), wait: false };
        let mut page = [0; 4096];
        for step in 0..100 {
            disk.read_at(&mut page, step * 7_654_321 % (1 << 29)).expect("reads");
        }
        assert_eq!(meter.requests(), 100);
        let per_read = meter.time() / 100;
        assert!(per_read > Duration::from_millis(2), "{per_read:?}");
        assert!(per_read < Duration::from_millis(12), "{per_read:?}");
        assert!(clock.now() >= meter.time());
        assert!(disk.label().contains("emulated"));
    }
}

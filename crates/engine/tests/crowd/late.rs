//! A flash device in memory some of whose writes and syncs are given up, and arrive later.
//!
//! A write that is late says that it timed out. It arrives at some later request, whole, in its
//! first half, or never; [`Device::late`] counts it until then. A sync that is late covers nothing.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use thermocline::device::{Device, MemoryDevice};
use thermocline::lock::Mutex;
use thermocline_core::hash::mix;

/// A late write arrives within so many requests.
const WITHIN: u64 = 60;

struct Pending {
    due: u64,
    offset: u64,
    /// What arrives of it.
    bytes: Vec<u8>,
}

/// See the module text.
pub(crate) struct LateDevice {
    bytes: MemoryDevice,
    seed: u64,
    /// One request in so many is late; 0: none yet.
    every: AtomicU64,
    requests: AtomicU64,
    given_up: AtomicU64,
    /// Held while something arrives, which the scheduler may interrupt.
    pending: Mutex<Vec<Pending>>,
}

impl LateDevice {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            bytes: MemoryDevice::new(),
            seed,
            every: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            pending: Mutex::new(Vec::new()),
        }
    }

    /// From now on one request in so many is late.
    pub(crate) fn be_late(&self, every: u64) {
        self.every.store(every, Ordering::Relaxed);
    }

    /// Requests that were given up so far.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up.load(Ordering::Relaxed)
    }

    /// Whatever is late arrives.
    pub(crate) fn answer_everything(&self) {
        self.arrive(u64::MAX);
    }

    fn arrive(&self, now: u64) {
        // Held until it has arrived: until then it counts as late.
        let mut pending = self.pending.lock();
        let mut at = 0;
        while at < pending.len() {
            if pending[at].due > now {
                at += 1;
                continue;
            }
            let write = &pending[at];
            self.bytes
                .write_at(&write.bytes, write.offset)
                .expect("memory takes it");
            pending.swap_remove(at);
        }
    }

    /// The lot of this request, when it is given up.
    fn is_late(&self) -> Option<u64> {
        let now = self.requests.fetch_add(1, Ordering::Relaxed);
        self.arrive(now);
        let (lot, every) = (mix(self.seed, now), self.every.load(Ordering::Relaxed));
        let late = every > 0 && lot.is_multiple_of(every);
        late.then(|| self.given_up.fetch_add(1, Ordering::Relaxed));
        late.then_some(lot >> 32)
    }
}

fn timed_out() -> io::Error {
    io::Error::from(io::ErrorKind::TimedOut)
}

impl Device for LateDevice {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.bytes.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let Some(lot) = self.is_late() else {
            return self.bytes.write_at(buf, offset);
        };
        let part = match lot % 4 {
            0 => 0,
            1 => buf.len() / 2,
            _ => buf.len(),
        };
        let now = self.requests.load(Ordering::Relaxed);
        let mut pending = self.pending.lock();
        pending.push(Pending {
            due: now + lot / 4 % WITHIN,
            offset,
            bytes: buf[..part].to_vec(),
        });
        Err(timed_out())
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        match self.is_late() {
            Some(_) => Err(timed_out()),
            None => self.bytes.sync(data_only),
        }
    }

    /// To be asked lets some time pass, too: while the tier is off there are no other requests.
    fn late(&self) -> u32 {
        self.arrive(self.requests.fetch_add(7, Ordering::Relaxed));
        self.pending.lock().len() as u32
    }

    fn len(&self) -> io::Result<u64> {
        self.bytes.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.bytes.set_len(len)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.bytes.punch(offset, len)
    }

    fn label(&self) -> String {
        "memory that answers late".into()
    }
}

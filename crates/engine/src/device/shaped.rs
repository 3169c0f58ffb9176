//! Emulated devices: real bytes at the pace of a device model, in real time.
//!
//! A [`ShapedDisk`] is one emulated drive: one model, one queue, one clock. Any number of real
//! files are attached to it as [`Shaped`] devices and compete for it. A request does its real
//! I/O first, then waits until the emulated drive would have been done; so real time is right
//! as long as the real device is faster than the emulated one.
//!
//! A request is *placed* (object and offset -> position on the drive), *waiting* (the drive is
//! busy), *in service* (its end is known, its thread sleeps until then), *done*.
//!
//! Rules
//! 1. A disk serves one request at a time. When it is done, its thread chooses the next among
//!    the [`QUEUE_DEPTH`] oldest by shortest positioning time, as native command queueing does;
//!    a request passed over [`PASSED_MAX`] times goes first.
//! 2. Devices with channels serve in order of arrival, each request on the channel that is
//!    free first.
//! 3. The next request starts when the one before *should* have ended, not when its thread
//!    woke up. Late wake-ups therefore do not add up.
//!    Nor is the caller charged for them: the lateness of a thread's wake-up (up to
//!    [`LATENESS_MAX`]) is taken off the arrival of its next request.
//! 4. Waiting uses no CPU: a condition variable while queued, an absolute-time sleep in service.
//! 5. Writes are charged when issued (the emulated drive's write cache is off); what a sync
//!    costs is up to the model. `set_len` and `punch` are free. Requests that fail are free.
//! 6. Setting room aside (`reserve`) is charged as the journal of a file system is: the first in
//!    [`JOURNAL_NS`] waits for a write of [`JOURNAL_BYTES`] at a place of its own, the others are
//!    free. (Writes that make a file longer are not charged for that.)
//!
//! All times in [`DeviceUsage`] are the emulated device's own, also when `time_scale` makes it
//! run faster or slower than real.

mod placement;
mod usage;

use crate::lock::{Condvar, Mutex, MutexGuard};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use thermocline_core::model::{IoOp, Model, Nanos};

use super::clock;
use super::{Device, Witness};
use placement::{Extent, Placement};
pub use usage::DeviceUsage;

/// Requests the drive chooses among.
const QUEUE_DEPTH: usize = 32;

/// How often a waiting request lets others go first.
const PASSED_MAX: u32 = 64;

/// The most real nanoseconds of one late wake-up that are made good.
const LATENESS_MAX: u64 = 1_000_000;

/// How often a file system writes its journal out when nobody asks: ext4's default.
const JOURNAL_NS: u64 = 5_000_000_000;

/// What is written then: some blocks of metadata, and the record that ends them.
const JOURNAL_BYTES: u64 = 32 << 10;

/// The journal, among objects.
const JOURNAL: u64 = u64::MAX;

const _: () = assert!(QUEUE_DEPTH > 1 && PASSED_MAX > 0);

thread_local! {
    /// Real nanoseconds by which this thread's last request came back late.
    static LATE: Cell<u64> = const { Cell::new(0) };
}

/// The time of a device that was made at real time `origin`, at real time `now`.
fn device_time(now: u64, origin: u64, scale: f64) -> u64 {
    debug_assert!(scale > 0.0, "time moves forward");
    (now.saturating_sub(origin) as f64 / scale) as u64
}

/// How the emulated device's time relates to real time.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// One device nanosecond takes `scale` real ones, from `origin` on.
    Real { origin: u64, scale: f64 },
    /// Nobody waits; time is what the requests so far have taken.
    Virtual,
}

/// A request on the emulated drive: `extents` is never empty.
#[derive(Debug)]
struct Job {
    op: IoOp,
    extents: Vec<Extent>,
    arrival: u64,
}

/// A job that waits for the disk.
#[derive(Debug)]
struct Waiting {
    job: Job,
    passed: u32,
    /// Set to the job's end when it is started.
    end: Option<u64>,
    wake: Arc<Condvar>,
}

#[derive(Debug)]
struct State {
    model: Model,
    /// When each channel is free; one entry for a disk.
    free_at: Vec<u64>,
    /// A disk has a job in service whose thread has not come back yet.
    held: bool,
    last_start: u64,
    busy_until: u64,
    /// Oldest first; ticket -> job, until its thread picks up the end. At most one job has its
    /// end; then `held` is true.
    queue: BTreeMap<u64, Waiting>,
    next_ticket: u64,
    placement: Placement,
    /// From when on the journal is written again.
    journal_due: u64,
    usage: DeviceUsage,
}

/// One emulated drive, shared by the files attached to it.
#[derive(Debug)]
pub struct ShapedDisk {
    state: Mutex<State>,
    pace: Pace,
    seeks: bool,
    name: String,
}

impl ShapedDisk {
    /// A drive that behaves like `model` in real time. `capacity` is the number of bytes a full
    /// stroke of a disk's arm spans: the model's own capacity emulates a nearly empty drive
    /// (short seeks), the size of the data a full one.
    ///
    /// # Panics
    /// When `capacity` is 0.
    #[must_use]
    pub fn new(model: Model, capacity: u64) -> Arc<Self> {
        Self::scaled(model, capacity, 1.0)
    }

    /// The same, with one nanosecond of the device taking `time_scale` real ones: 0.1 is ten
    /// times faster than the real device. The label says so.
    ///
    /// # Panics
    /// When `capacity` is 0 or `time_scale` is not a positive number.
    #[must_use]
    pub fn scaled(model: Model, capacity: u64, time_scale: f64) -> Arc<Self> {
        assert!(
            time_scale.is_finite() && time_scale > 0.0,
            "time moves forward"
        );
        let name = match time_scale {
            1.0 => format!("emulated {}", model.name()),
            scale => format!("emulated {} (time x{scale})", model.name()),
        };
        Self::build(
            model,
            capacity,
            Pace::Real {
                origin: clock::now(),
                scale: time_scale,
            },
            name,
        )
    }

    /// A drive nobody waits for: it only counts what it would have taken. Its clock stands
    /// still between requests. For one thread; for tests and accounting.
    ///
    /// # Panics
    /// When `capacity` is 0.
    #[must_use]
    pub fn accounting(model: Model, capacity: u64) -> Arc<Self> {
        let name = format!("emulated {} (virtual time)", model.name());
        Self::build(model, capacity, Pace::Virtual, name)
    }

    fn build(model: Model, capacity: u64, pace: Pace, name: String) -> Arc<Self> {
        let model = model.with_capacity(capacity);
        let channels = model.channels() as usize;
        assert!(channels > 0, "a device serves somebody");
        let state = State {
            free_at: vec![0; channels],
            held: false,
            last_start: 0,
            busy_until: 0,
            queue: BTreeMap::new(),
            next_ticket: 0,
            placement: Placement::default(),
            journal_due: 0,
            usage: DeviceUsage {
                label: name.clone(),
                ..DeviceUsage::default()
            },
            model,
        };
        let seeks = matches!(state.model, Model::Disk(_));
        assert!(!seeks || channels == 1, "a disk has one head");
        Arc::new(Self {
            state: Mutex::new(state),
            pace,
            seeks,
            name,
        })
    }

    /// Serves `device` at this drive's pace. `object_key` tells files apart; attaching the same
    /// key again finds the same place on the drive. What the file holds now is placed in one
    /// piece.
    pub fn attach<D: Device>(self: &Arc<Self>, device: D, object_key: u64) -> Shaped<D> {
        let len = device.len().unwrap_or(0);
        let mut state = self.lock();
        state.placement.place_whole(object_key, len);
        drop(state);
        Shaped {
            device,
            disk: Arc::clone(self),
            object_key,
        }
    }

    /// What the drive has done.
    #[must_use]
    pub fn usage(&self) -> DeviceUsage {
        let state = self.lock();
        DeviceUsage {
            elapsed_ns: self.now(&state),
            ..state.usage.clone()
        }
    }

    /// "emulated ..."; without the files behind it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The device's time.
    fn now(&self, state: &State) -> u64 {
        match self.pace {
            Pace::Real { origin, scale } => device_time(clock::now(), origin, scale),
            Pace::Virtual => state.busy_until,
        }
    }

    /// The device's time at which a request made now arrives; 0 in virtual time, where
    /// requests arrive when the one before is done.
    fn arrival(&self) -> u64 {
        match self.pace {
            Pace::Real { origin, scale } => {
                device_time(clock::now().saturating_sub(LATE.take()), origin, scale)
            }
            Pace::Virtual => 0,
        }
    }

    /// Waits until the device's time is `end`.
    fn sleep_until(&self, end: u64) {
        if let Pace::Real { origin, scale } = self.pace {
            let late = clock::sleep_until(origin + (end as f64 * scale) as u64);
            LATE.set(late.min(LATENESS_MAX));
        }
    }

    /// Takes the request through the emulated drive, from `arrival` (the device's time when the
    /// caller asked) to its end.
    fn serve(&self, op: IoOp, object: u64, offset: u64, len: u64, arrival: u64) {
        let mut state = self.lock();
        let arrival = match self.pace {
            Pace::Real { .. } => arrival,
            Pace::Virtual => state.busy_until,
        };
        let extents = state.placement.extents(object, offset, len);
        debug_assert!(len > 0 && op != IoOp::Sync, "a request that moves bytes");
        let job = Job {
            op,
            extents,
            arrival,
        };
        if !self.seeks {
            let end = state.start_on_channel(&job);
            drop(state);
            return self.sleep_until(end);
        }
        let (state, end) = self.wait_for_head(state, job);
        drop(state);
        self.sleep_until(end);
        self.lock().hand_over(end);
    }

    /// Metadata was changed: the journal is written if that is due.
    fn serve_metadata(&self, arrival: u64) {
        let mut state = self.lock();
        let now = self.now(&state);
        if now < state.journal_due {
            return;
        }
        state.journal_due = now + JOURNAL_NS;
        drop(state);
        self.serve(IoOp::Write, JOURNAL, 0, JOURNAL_BYTES, arrival);
    }

    /// A disk without a write cache has nothing to sync; elsewhere it is a request like others.
    fn serve_sync(&self, arrival: u64) {
        let mut state = self.lock();
        if self.seeks {
            state.usage.syncs += 1;
            return;
        }
        let arrival = match self.pace {
            Pace::Real { .. } => arrival,
            Pace::Virtual => state.busy_until,
        };
        let extents = vec![Extent {
            position: 0,
            len: 0,
        }];
        let end = state.start_on_channel(&Job {
            op: IoOp::Sync,
            extents,
            arrival,
        });
        drop(state);
        self.sleep_until(end);
    }

    /// Starts the job as soon as it is its turn on the one head; returns its end.
    fn wait_for_head<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        job: Job,
    ) -> (MutexGuard<'a, State>, u64) {
        if !state.held {
            assert!(state.queue.is_empty(), "an idle disk has no queue");
            let end = state.start_on_head(&job, job.arrival);
            return (state, end);
        }
        let wake = Arc::new(Condvar::new());
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        let waiting = Waiting {
            job,
            passed: 0,
            end: None,
            wake: Arc::clone(&wake),
        };
        let other = state.queue.insert(ticket, waiting);
        debug_assert!(other.is_none(), "tickets are given once");
        loop {
            state = wake.wait(state);
            if let Some(end) = state.queue.get(&ticket).and_then(|waiting| waiting.end) {
                state.queue.remove(&ticket);
                assert!(state.held, "who has an end has the head");
                debug_assert_eq!(end, state.free_at[0], "and is the last who was started");
                return (state, end);
            }
        }
    }
}

impl State {
    /// Starts `job` on a disk that is free from `from` on; returns its end.
    fn start_on_head(&mut self, job: &Job, from: u64) -> u64 {
        assert!(!self.held, "one head, one request");
        debug_assert_eq!(self.free_at.len(), 1, "a disk has no channels");
        self.held = true;
        self.start(job, 0, from)
    }

    /// Starts `job` on the channel that is free first; returns its end.
    fn start_on_channel(&mut self, job: &Job) -> u64 {
        debug_assert!(!self.held && self.queue.is_empty(), "channels have no head");
        let channel = (0..self.free_at.len())
            .min_by_key(|&c| self.free_at[c])
            .unwrap_or(0);
        self.start(job, channel, job.arrival)
    }

    fn start(&mut self, job: &Job, channel: usize, from: u64) -> u64 {
        debug_assert!(!job.extents.is_empty() && from >= job.arrival);
        let start = from.max(self.free_at[channel]).max(self.last_start);
        let mut end = start;
        for extent in &job.extents {
            end += self
                .model
                .service(Nanos(end), job.op, extent.position, extent.len);
        }
        assert!(end >= start && start >= job.arrival);
        self.last_start = start;
        self.free_at[channel] = end;
        self.count(job, start, end);
        end
    }

    fn count(&mut self, job: &Job, start: u64, end: u64) {
        let bytes: u64 = job.extents.iter().map(|e| e.len).sum();
        let usage = &mut self.usage;
        match job.op {
            IoOp::Read => {
                usage.reads += 1;
                usage.bytes_read += bytes;
            }
            IoOp::Write => {
                usage.writes += 1;
                usage.bytes_written += bytes;
            }
            IoOp::Sync => usage.syncs += 1,
        }
        usage.service_ns += end - start;
        usage.queue_ns += start - job.arrival;
        usage.busy_ns += end.saturating_sub(start.max(self.busy_until));
        self.busy_until = self.busy_until.max(end);
        debug_assert!(usage.busy_ns <= usage.service_ns);
        debug_assert!(usage.busy_ns <= self.busy_until, "busy within its time");
    }

    /// The job that ended at `end` leaves the head; the next one starts at that time.
    fn hand_over(&mut self, end: u64) {
        assert!(self.held, "somebody had the head");
        debug_assert_eq!(end, self.free_at[0], "whose job was started last");
        debug_assert!(self.queue.values().all(|waiting| waiting.end.is_none()));
        self.held = false;
        let Some(ticket) = self.choose(end) else {
            return;
        };
        for (_, waiting) in self.queue.range_mut(..ticket) {
            waiting.passed += u32::from(waiting.end.is_none());
            debug_assert!(waiting.passed <= PASSED_MAX, "nobody waits for ever");
        }
        // Taken out for the time of the call, so that the job can be borrowed.
        if let Some(mut waiting) = self.queue.remove(&ticket) {
            waiting.end = Some(self.start_on_head(&waiting.job, waiting.job.arrival.max(end)));
            waiting.wake.notify_one();
            self.queue.insert(ticket, waiting);
        }
    }

    /// The next job to start: shortest positioning among the oldest, unless one has been passed
    /// over too often.
    fn choose(&self, now: u64) -> Option<u64> {
        let candidates = || {
            self.queue
                .iter()
                .filter(|(_, waiting)| waiting.end.is_none())
                .take(QUEUE_DEPTH)
        };
        let (&oldest, waiting) = candidates().next()?;
        if waiting.passed >= PASSED_MAX {
            return Some(oldest);
        }
        candidates()
            .min_by_key(|(_, waiting)| {
                self.model
                    .positioning(Nanos(now), waiting.job.extents[0].position)
            })
            .map(|(&ticket, _)| ticket)
    }
}

/// A device served at the pace of a [`ShapedDisk`].
#[derive(Debug)]
pub struct Shaped<D> {
    device: D,
    disk: Arc<ShapedDisk>,
    object_key: u64,
}

impl<D> Shaped<D> {
    /// The drive it competes for.
    #[must_use]
    pub fn disk(&self) -> &Arc<ShapedDisk> {
        &self.disk
    }

    /// The device below.
    #[must_use]
    pub fn inner(&self) -> &D {
        &self.device
    }
}

impl<D: Device> Device for Shaped<D> {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let arrival = self.disk.arrival();
        let n = self.device.read_at(buf, offset)?;
        debug_assert!(n <= buf.len(), "a device fills no more than the buffer");
        if n > 0 {
            self.disk
                .serve(IoOp::Read, self.object_key, offset, n as u64, arrival);
        }
        Ok(n)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let arrival = self.disk.arrival();
        self.device.write_at(buf, offset)?;
        if !buf.is_empty() {
            self.disk.serve(
                IoOp::Write,
                self.object_key,
                offset,
                buf.len() as u64,
                arrival,
            );
        }
        Ok(())
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        let arrival = self.disk.arrival();
        self.device.sync(data_only)?;
        self.disk.serve_sync(arrival);
        Ok(())
    }

    fn witness(&self) -> Witness {
        self.device.witness()
    }

    fn sync_before(&self, witness: &Witness, data_only: bool) -> io::Result<()> {
        let arrival = self.disk.arrival();
        self.device.sync_before(witness, data_only)?;
        self.disk.serve_sync(arrival);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.device.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.device.set_len(len)
    }

    fn reserve(&self, offset: u64, len: u64, ahead: u64) -> io::Result<()> {
        let arrival = self.disk.arrival();
        self.device.reserve(offset, len, ahead)?;
        self.disk.serve_metadata(arrival);
        Ok(())
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

    fn late(&self) -> u32 {
        self.device.late()
    }

    fn can_write(&self) -> bool {
        self.device.can_write()
    }

    fn label(&self) -> String {
        format!("{} over {}", self.disk.name, self.device.label())
    }
}

#[cfg(test)]
mod tests {
    use thermocline_core::model::{DiskParameters, Pattern};

    use super::super::MemoryDevice;
    use super::*;

    const MIB: u64 = 1 << 20;

    fn hdd() -> Model {
        Model::preset("hdd").unwrap()
    }

    /// Reads `len` bytes at each offset of a zero device, one after the other.
    fn reads(disk: &Arc<ShapedDisk>, size: u64, offsets: &[u64], len: usize) -> DeviceUsage {
        let shaped = disk.attach(MemoryDevice::with_len(size as usize), 1);
        let before = disk.usage();
        let mut buf = vec![0; len];
        for &offset in offsets {
            assert_eq!(shaped.read_at(&mut buf, offset).unwrap(), len);
        }
        disk.usage().since(&before)
    }

    /// Page-aligned offsets below `size`, the same ones each time.
    fn scattered(size: u64, count: u64) -> Vec<u64> {
        let mut state = 7u64;
        (0..count)
            .map(|_| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                (state >> 20) % (size / 8192) * 8192
            })
            .collect()
    }

    #[test]
    fn random_reads_of_a_full_disk_cost_what_the_model_says() {
        let size = 64 * MIB;
        let disk = ShapedDisk::accounting(hdd(), size);
        let usage = reads(&disk, size, &scattered(size, 3000), 8192);
        let expected = hdd().expected(IoOp::Read, Pattern::Random, 8192);
        let mean = usage.busy_ns / usage.reads;
        assert!(
            mean.abs_diff(expected) * 20 < expected,
            "{mean} for {expected}"
        );
        assert_eq!(usage.elapsed_ns, usage.busy_ns);
        assert_eq!((usage.reads, usage.writes, usage.queue_ns), (3000, 0, 0));
        assert_eq!(usage.bytes_read, 3000 * 8192);
        assert!(usage.utilisation() > 0.999);
    }

    #[test]
    fn a_scan_of_an_attached_file_runs_at_the_media_rate() {
        let size = 16 * MIB;
        let disk = ShapedDisk::accounting(hdd(), 1 << 40);
        let offsets: Vec<u64> = (0..size / 8192).map(|page| page * 8192).collect();
        let usage = reads(&disk, size, &offsets, 8192);
        let wire = size as f64 / DiskParameters::RPM_7200.media_rate as f64 * 1e9;
        let first = DiskParameters::RPM_7200.rotation() as f64;
        assert!(
            usage.busy_ns as f64 <= wire * 1.01 + first,
            "{}",
            usage.busy_ns
        );
    }

    #[test]
    fn writes_pay_to_settle_and_failures_pay_nothing() {
        let disk = ShapedDisk::accounting(hdd(), 1 << 30);
        let shaped = disk.attach(MemoryDevice::new(), 1);
        shaped.write_at(&[1; 4096], 40 * MIB).unwrap();
        let one = disk.usage();
        assert!(one.busy_ns >= DiskParameters::RPM_7200.write_settle);
        assert!(shaped.write_at(&[1], u64::MAX).is_err());
        assert_eq!(shaped.read_at(&mut [0; 10], 1 << 40).unwrap(), 0);
        shaped.sync(true).unwrap();
        let two = disk.usage();
        assert_eq!(
            (two.busy_ns, two.writes, two.reads, two.syncs),
            (one.busy_ns, 1, 0, 1)
        );
        assert_eq!(two.bytes_written, 4096);
    }

    #[test]
    fn a_sync_of_flash_takes_its_time() {
        let disk = ShapedDisk::accounting(Model::preset("ssd").unwrap(), 1 << 30);
        disk.attach(MemoryDevice::new(), 1).sync(false).unwrap();
        let usage = disk.usage();
        assert_eq!((usage.syncs, usage.busy_ns), (1, 85_000));
    }

    /// A disk with `positions` waiting while another request has the head.
    fn busy_state(positions: &[u64]) -> State {
        let disk = ShapedDisk::accounting(hdd(), 1 << 30);
        let mut state = Arc::into_inner(disk).unwrap().state.into_inner();
        let job = |position| Job {
            op: IoOp::Read,
            extents: vec![Extent {
                position,
                len: 8192,
            }],
            arrival: 0,
        };
        state.start_on_head(&job(0), 0);
        for (ticket, &position) in (0u64..).zip(positions) {
            let wake = Arc::new(Condvar::new());
            let waiting = Waiting {
                job: job(position),
                passed: 0,
                end: None,
                wake,
            };
            state.queue.insert(ticket, waiting);
        }
        state
    }

    /// Lets the head go and returns whose turn it is, until nobody waits.
    fn order(mut state: State) -> (Vec<u64>, u64) {
        let mut order = Vec::new();
        let mut now = state.free_at[0];
        loop {
            state.hand_over(now);
            let Some((&ticket, waiting)) = state.queue.iter().find(|(_, w)| w.end.is_some()) else {
                return (order, now);
            };
            now = waiting.end.unwrap();
            state.queue.remove(&ticket);
            order.push(ticket);
        }
    }

    #[test]
    fn the_continued_stream_goes_first() {
        let (order, _) = order(busy_state(&[900 * MIB, 500 * MIB, 8192]));
        assert_eq!(order[0], 2);
        assert_eq!(order.len(), 3);
    }

    #[test]
    fn choosing_saves_time_over_order_of_arrival() {
        let positions = scattered(1 << 30, 32);
        let (order, end) = order(busy_state(&positions));
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..32).collect::<Vec<_>>(), "everyone once");
        let in_order = reads(
            &ShapedDisk::accounting(hdd(), 1 << 30),
            1 << 30,
            &positions,
            8192,
        );
        assert!(
            end * 3 < in_order.busy_ns * 2,
            "{end} of {}",
            in_order.busy_ns
        );
    }

    #[test]
    fn nobody_is_passed_over_for_ever() {
        // One request at the far end, and always another that continues the stream.
        let mut state = busy_state(&[900 * MIB]);
        let mut next = 8192;
        for ticket in 1..=u64::from(PASSED_MAX) + 1 {
            let job = Job {
                op: IoOp::Read,
                extents: vec![Extent {
                    position: next,
                    len: 8192,
                }],
                arrival: 0,
            };
            let wake = Arc::new(Condvar::new());
            state.queue.insert(
                ticket,
                Waiting {
                    job,
                    passed: 0,
                    end: None,
                    wake,
                },
            );
            state.hand_over(state.free_at[0]);
            next += 8192;
            if state.queue[&0].end.is_some() {
                assert_eq!(ticket, u64::from(PASSED_MAX) + 1);
                return;
            }
            state.queue.remove(&ticket);
        }
        panic!("the far request never got the head");
    }

    #[test]
    fn many_threads_share_one_head() {
        let disk = ShapedDisk::scaled(hdd(), 64 * MIB, 0.01);
        let shaped: Vec<_> = (0..4)
            .map(|key| disk.attach(MemoryDevice::with_len(8 << 20), key))
            .collect();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let device = &shaped[thread % 4];
                scope.spawn(move || {
                    for offset in scattered(8 * MIB, 25) {
                        device.read_at(&mut [0; 8192], offset).unwrap();
                    }
                });
            }
        });
        let usage = disk.usage();
        assert_eq!(usage.reads, 200);
        assert_eq!(
            usage.busy_ns, usage.service_ns,
            "one head: services do not overlap"
        );
        assert!(usage.busy_ns <= usage.elapsed_ns, "nobody came back early");
        assert!(disk.lock().queue.is_empty() && !disk.lock().held);
    }

    #[test]
    fn many_threads_share_the_channels() {
        let disk = ShapedDisk::new(Model::preset("ssd").unwrap(), 1 << 30);
        let shaped = disk.attach(MemoryDevice::with_len(1 << 20), 0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for offset in scattered(MIB, 50) {
                        shaped.read_at(&mut [0; 8192], offset).unwrap();
                        shaped.write_at(&[0; 4096], offset).unwrap();
                    }
                });
            }
        });
        let usage = disk.usage();
        assert_eq!((usage.reads, usage.writes), (200, 200));
        assert!(usage.busy_ns <= usage.service_ns && usage.busy_ns <= usage.elapsed_ns);
    }

    #[test]
    fn setting_room_aside_costs_a_write_now_and_then() {
        let disk = ShapedDisk::accounting(Model::preset("hdd").unwrap(), 1 << 30);
        let shaped = disk.attach(MemoryDevice::new(), 0);
        for page in 0..1000 {
            shaped.reserve(page * 8192, 8192, 0).unwrap();
        }
        assert_eq!((disk.usage().writes, shaped.len().unwrap()), (1, 8_192_000));
        assert_eq!(disk.usage().bytes_written, JOURNAL_BYTES);
        while disk.usage().elapsed_ns < JOURNAL_NS + 100_000_000 {
            shaped
                .read_at(&mut [0; 8192], disk.usage().reads * 819_200 % 8_000_000)
                .unwrap();
        }
        shaped.reserve(0, 8192, 0).unwrap();
        assert_eq!(disk.usage().writes, 2);
    }

    #[test]
    fn labels_say_emulated() {
        let model = || Model::preset("hdd").unwrap();
        let label = |disk: Arc<ShapedDisk>| disk.attach(MemoryDevice::new(), 0).label();
        assert_eq!(
            label(ShapedDisk::new(model(), 1)),
            "emulated 7200-rpm disk over memory"
        );
        assert_eq!(
            label(ShapedDisk::scaled(model(), 1, 0.1)),
            "emulated 7200-rpm disk (time x0.1) over memory"
        );
        assert!(label(ShapedDisk::accounting(model(), 1)).contains("emulated"));
    }
}

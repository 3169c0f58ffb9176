//! Destaging: dirty pages on flash to base, in base order.
//!
//! A base write holds the object's layout lock for reading, so that it cannot land behind a
//! truncate or punch, which holds it for writing. A page is clean only after base was synced (R4).

use crate::device::{AlignedBuf, Witness};
use crate::durable::lease::Change;
use crate::engine::Engine;
use crate::files::object::Object;
use crate::lifecycle::background::TICK;
use crate::mutant::Mutant;
use crate::store::Stored;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thermocline_core::Fault;
use thermocline_core::health::Way;
use thermocline_core::hierarchy::DestageJob;

/// Pages destaged as one batch at most: what one sync of base makes clean.
pub(crate) const BATCH: usize = 256;

/// Files whose pages are written before the first of them is synced, at most. The system can write
/// them together; each costs a descriptor meanwhile.
const FILES_AT_ONCE: usize = 32;

/// Adjacent pages written to base with one I/O at most, bytes.
const RUN_BYTES_MAX: usize = 1 << 20;

/// An object since before a batch writes to its base.
struct Watched {
    object: Arc<Object>,
    witness: Witness,
    /// Syncs of base that had failed.
    failed_before: u64,
}

impl Watched {
    fn new(object: Arc<Object>) -> Self {
        Self {
            witness: object.base.witness(),
            failed_before: object.failed_syncs.load(Ordering::Acquire),
            object,
        }
    }
}

impl Engine {
    /// Destages one batch if that is due; false when no page became clean. A batch that cleans
    /// nothing (its pages are being read, or a sync failed meanwhile) is not asked for again at
    /// once.
    pub(crate) fn destage_some(&self) -> bool {
        let buried = self.bury();
        let mut inner = self.inner();
        if inner.commits.held || !inner.hierarchy.destage_due() {
            return buried;
        }
        let jobs = inner.hierarchy.next_destage(BATCH, None);
        drop(inner);
        let started = self.config.clock.now();
        let count = jobs.len();
        let done = self.destage(jobs);
        self.slow_down(count, self.config.clock.now().saturating_sub(started));
        buried || done.is_ok_and(|cleaned| cleaned > 0)
    }

    /// Keeps to the rate that was asked for, while there is time: until the engine stops, somebody
    /// waits for a flush, or the reserve is nearly full.
    pub(crate) fn slow_down(&self, pages: usize, took: Duration) {
        let rate = self.config.dirty.rate;
        if rate == 0 || self.config.inline {
            return;
        }
        debug_assert!(pages <= BATCH, "one batch");
        let due = Duration::from_secs_f64(pages as f64 / f64::from(rate));
        let until = self.config.clock.now() + due.saturating_sub(took);
        let mut inner = self.inner();
        loop {
            let left = until.saturating_sub(self.config.clock.now());
            let slots = inner.hierarchy.slots();
            let full = u64::from(slots.reserved()) * 10 > u64::from(slots.reserve()) * 9;
            if left.is_zero() || full || inner.flushing > 0 || inner.stopping {
                return;
            }
            inner = self.signals.destager.wait_timeout(inner, left.min(TICK));
        }
    }

    /// Destages `jobs` for a caller who then looks again what is dirty. Where no page became clean
    /// it waits for another thread's step first: the next batch would be the same one. Without
    /// threads of the engine's own there is no other's step.
    pub(crate) fn destage_or_wait(&self, jobs: Vec<DestageJob>) -> io::Result<()> {
        if self.destage(jobs)? == 0 && !self.config.inline {
            drop(self.wait_for_room(self.inner()));
        }
        Ok(())
    }

    /// Writes what `jobs` hold to base, syncs it, and makes the pages clean: how many.
    fn destage(&self, jobs: Vec<DestageJob>) -> io::Result<usize> {
        // The durable map must know every version that base is about to get.
        let off = self.is_off();
        let known = if off { Ok(()) } else { self.commit() };
        // A failed commit has switched the tier off, and is no failure of what follows: the pages
        // are in DRAM or can be read, and base is written after the lease.
        let mut result = if self.is_off() { Ok(()) } else { known };
        let mut cleaned = 0;
        let files: Vec<&[DestageJob]> = jobs
            .chunk_by(|a, b| a.page.object == b.page.object)
            .collect();
        for some in files.chunks(FILES_AT_ONCE) {
            cleaned += self.destage_files(some, &mut result);
        }
        result.map(|()| cleaned)
    }

    /// The same for the jobs of a few files, a slice each.
    fn destage_files(&self, files: &[&[DestageJob]], result: &mut io::Result<()>) -> usize {
        let most = (RUN_BYTES_MAX / self.page_size()).max(1);
        let adjacent = |a: &DestageJob, b: &DestageJob| a.page.index + 1 == b.page.index;
        assert!(files.len() <= FILES_AT_ONCE, "each costs a descriptor");
        let mut written = Vec::with_capacity(files.len());
        for jobs in files {
            let watched = self.object(jobs[0].page.object).map(Watched::new);
            let mut done = Vec::with_capacity(jobs.len());
            for run in jobs.chunk_by(adjacent).flat_map(|run| run.chunks(most)) {
                if let Err(error) = self.destage_run(run, &mut done) {
                    *result = Err(error);
                }
            }
            written.extend(watched.map(|watched| (watched, done)));
        }
        let mut cleaned = 0;
        for (watched, done) in written {
            match self.sync_watched(&watched, &done) {
                Ok(true) => cleaned += self.destaged(&done),
                Ok(false) => {}
                Err(error) => *result = Err(error),
            }
            self.close_if_idle(&watched.object);
        }
        cleaned
    }

    /// Syncs base, even where another's sync ended well since the writes: that one may not have
    /// been told of what was lost. Whether base has what was written since the object is watched.
    fn sync_watched(&self, watched: &Watched, done: &[DestageJob]) -> io::Result<bool> {
        let object = &watched.object;
        if self.config.planted == Mutant::CleanBeforeSync {
            return Ok(true);
        }
        if !done.is_empty() || object.destaged.is_due() {
            self.sync_base_before(object, &watched.witness)?;
        }
        if object.is_alone() {
            // Nobody else syncs it for what was owed before, and it is to be closed.
            self.sync_base(object)?;
        }
        // Another's sync that failed since may have given it up.
        Ok(object.failed_syncs.load(Ordering::Acquire) == watched.failed_before)
    }

    fn destaged(&self, jobs: &[DestageJob]) -> usize {
        let mut inner = self.inner();
        self.decide(&mut inner, &[], |hierarchy, out| {
            hierarchy.destaged(jobs, out)
        })
    }

    /// Reads a run of adjacent pages from flash and writes them to base with one I/O, less those
    /// that cannot be read or no longer stand.
    pub(crate) fn destage_run(
        &self,
        run: &[DestageJob],
        done: &mut Vec<DestageJob>,
    ) -> io::Result<()> {
        debug_assert!(!run.is_empty(), "a run has pages");
        let size = self.page_size();
        let mut bytes = AlignedBuf::new(run.len() * size);
        let read = self.dirty_bytes(run, &mut bytes);
        let mut inner = self.inner();
        inner.hierarchy.begin_call(Way::Read);
        for (job, read) in run.iter().zip(&read) {
            if let Err(fault) = *read {
                self.decide(&mut inner, &[], |hierarchy, out| {
                    hierarchy.destage_failed(job, fault, out)
                });
            }
        }
        self.end_call(&mut inner, Way::Read);
        drop(inner);
        let mut result = Ok(());
        let mut at = 0;
        while at < run.len() {
            let end = (at..run.len()).find(|&i| read[i].is_err());
            let end = end.unwrap_or(run.len());
            if end > at {
                let written = self.write_run(&run[at..end], &bytes[at * size..end * size], done);
                result = result.and(written);
            }
            at = end.max(at) + 1;
        }
        result
    }

    /// The bytes of `run` from flash, all at once, or from the write buffer. What flash does not
    /// give is asked for once more: without it base is older for good.
    pub(crate) fn dirty_bytes(
        &self,
        run: &[DestageJob],
        bytes: &mut [u8],
    ) -> Vec<Result<(), Fault>> {
        let size = self.page_size();
        let (mut read, mut rest) = (Vec::with_capacity(run.len()), bytes);
        for part in run.chunk_by(|a, b| a.from.is_some() == b.from.is_some()) {
            let (into, later) = rest.split_at_mut(part.len() * size);
            rest = later;
            let on_flash = |job: &DestageJob| {
                let (page, from) = (job.page, job.from?);
                let (block, checksum) = from;
                Some(Stored {
                    block,
                    page,
                    checksum,
                })
            };
            let at: Vec<Stored> = part.iter().filter_map(on_flash).collect();
            match self.store().filter(|_| at.len() == part.len()) {
                Some(flash) => {
                    read.extend(flash.read_all_surely(&at, into));
                }
                None => {
                    let pages = part.iter().zip(into.chunks_exact_mut(size));
                    read.extend(pages.map(|(job, into)| self.staged_bytes(job, into)));
                }
            }
        }
        read
    }

    fn staged_bytes(&self, job: &DestageJob, into: &mut [u8]) -> Result<(), Fault> {
        let staged = self.inner().staged.get(&job.slot.0).cloned();
        let bytes = staged.ok_or(Fault::ReadError)?;
        into.copy_from_slice(&bytes);
        Ok(())
    }

    pub(crate) fn write_run(
        &self,
        run: &[DestageJob],
        bytes: &[u8],
        done: &mut Vec<DestageJob>,
    ) -> io::Result<()> {
        let (first, size) = (run[0].page, self.page_size());
        debug_assert_eq!(run.len() * size, bytes.len());
        let written = self.object(first.object).and_then(|object| {
            // The tier may be on again since the map was to know these versions.
            self.before(&object, Change::Destage(run));
            let _layout = object.layout();
            let written = self.write_standing(&object, run, bytes, done);
            object.destaged.add();
            written
        });
        let mut inner = self.inner();
        for job in run {
            self.decide(&mut inner, &[], |hierarchy, out| {
                hierarchy.destage_written(job, out)
            });
        }
        written
    }

    /// Writes those of a run that still stand: with one I/O when all do.
    pub(crate) fn write_standing(
        &self,
        object: &Object,
        run: &[DestageJob],
        bytes: &[u8],
        done: &mut Vec<DestageJob>,
    ) -> io::Result<()> {
        let size = self.page_size();
        let stands = |job: &DestageJob| self.inner().hierarchy.destage_stands(job);
        if run.iter().all(stands) {
            self.write_quietly(object, bytes, run[0].page.index * size as u64)?;
            done.extend(run);
            return Ok(());
        }
        for (job, page) in run.iter().zip(bytes.chunks_exact(size)) {
            if stands(job) {
                self.write_quietly(object, page, job.page.index * size as u64)?;
                done.push(*job);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::Dialect;
    use crate::clock::{Clock, SharedClock};
    use crate::config::{DirtySettings, EngineConfig};
    use crate::device::{Device, FaultScript, Faulty, MemoryDevice};
    use crate::durable::lease::LEASE;
    use crate::engine::Request;
    use crate::files::object::{Identity, ObjectSpec, Stamp, TouchFn};
    use crate::lock::Mutex;
    use crate::state::Inner;
    use crate::store::{Store, StoreOptions};
    use std::sync::atomic::AtomicU64;
    use std::sync::{OnceLock, Weak};
    use thermocline_core::{FileKind, HintSet, PageId, ReadStart};

    const PAGE: u32 = 512;

    /// A file of one page, on `base`.
    fn file(base: Arc<dyn Device>, touch: TouchFn) -> ObjectSpec {
        ObjectSpec {
            name: "file".into(),
            group: "file".into(),
            identity: Identity::default(),
            base,
            kind: FileKind::Relation,
            dialect: Dialect::Postgres,
            cached: true,
            stamp: Arc::new(|| Some(Stamp::default())),
            touch,
        }
    }

    /// An engine without threads, with a DRAM pool or none, whose only file has its newest bytes on
    /// `flash` alone.
    fn dirty_on(
        flash: Arc<dyn Device>,
        file: ObjectSpec,
        (pool_bytes, clock): (u64, SharedClock),
    ) -> (Arc<Engine>, PageId) {
        let config = EngineConfig {
            page_size: PAGE,
            policy: "lru".into(),
            pool_bytes,
            write_back: true,
            inline: true,
            clock,
            ..EngineConfig::default()
        };
        let options = StoreOptions {
            page_size: PAGE,
            size: Some(Store::length_for(64, PAGE)),
            ..StoreOptions::default()
        };
        let store = Store::with_device(flash, "cache", &options).expect("opens");
        let engine = Engine::start(config, Some(store)).expect("starts");
        let object = engine.open_object(file).expect("opens");
        let request = Request {
            object: &object,
            offset: 0,
            hints: HintSet::UNKNOWN,
            client: 0,
        };
        engine.write(&request, &[7; PAGE as usize]).expect("writes");
        engine.sync(&object, false).expect("syncs");
        (engine, PageId::new(object.id, 0))
    }

    fn dirty() -> (Arc<Engine>, PageId) {
        let device = || Arc::new(MemoryDevice::new());
        let file = file(device(), crate::untouched());
        dirty_on(device(), file, (0, SharedClock::default()))
    }

    /// Saying otherwise, the destager would write base and sync it until the read ends.
    #[test]
    fn a_batch_whose_pages_are_being_read_is_not_asked_for_again_at_once() {
        let (engine, page) = dirty();
        assert_eq!(engine.dirty_pages(), 1);
        engine.inner().hierarchy.set_flush(true);
        let how = engine.inner().hierarchy.start_read(page);
        assert!(matches!(how, ReadStart::Slot(_)), "{how:?}");
        // From now on a page leaves when it is clean.
        engine.decide(&mut engine.inner(), &[], |hierarchy, out| {
            hierarchy.switch_off(out);
        });
        assert!(!engine.destage_some(), "nothing became clean");
        assert_eq!(engine.dirty_pages(), 1);
        engine.decide(&mut engine.inner(), &[], |hierarchy, out| {
            hierarchy.finish_read(page, &HintSet::UNKNOWN, how, out);
        });
        assert!(engine.destage_some());
        assert_eq!(engine.dirty_pages(), 0);
    }

    /// Also where a frame of DRAM has its bytes, so that no read asks flash.
    #[test]
    fn what_flash_did_not_give_is_asked_for_again_by_a_flush() {
        for pool in [0, 16 * u64::from(PAGE)] {
            let script = FaultScript::new();
            let flash = Faulty::new(MemoryDevice::new(), Arc::clone(&script), None);
            let file = file(Arc::new(MemoryDevice::new()), crate::untouched());
            let clock = SharedClock::default();
            let (engine, page) = dirty_on(Arc::new(flash), file, (pool, clock));
            let in_dram = engine.inner().hierarchy.pool().find(page).is_some();
            assert_eq!(in_dram, pool > 0);
            script.load("read fail EIO").expect("script");
            engine.flush(|_| true).expect_err("flash gives nothing");
            assert_eq!(engine.inner().hierarchy.lost(), [page]);
            script.clear();
            engine.flush(|_| true).expect("it does again");
            assert_eq!(engine.dirty_pages(), 0);
        }
    }

    #[test]
    fn what_flash_does_not_give_once_is_not_lost() {
        let script = FaultScript::new();
        let flash = Faulty::new(MemoryDevice::new(), Arc::clone(&script), None);
        let file = file(Arc::new(MemoryDevice::new()), crate::untouched());
        let (engine, _) = dirty_on(Arc::new(flash), file, (0, SharedClock::default()));
        script.load("read times 1 fail EIO").expect("script");
        engine.inner().hierarchy.set_flush(true);
        assert!(engine.destage_some());
        assert_eq!(engine.dirty_pages(), 0);
    }

    /// A page of bytes whose first ones were written again.
    fn partly() -> Vec<u8> {
        [vec![9; 100], vec![7; PAGE as usize - 100]].concat()
    }

    #[test]
    fn requests_ask_once_more_for_what_only_flash_has() {
        for times in ["read times 1 fail EIO", "read fail EIO"] {
            for write in [false, true] {
                let script = FaultScript::new();
                let flash = Faulty::new(MemoryDevice::new(), Arc::clone(&script), None);
                let file = file(Arc::new(MemoryDevice::new()), crate::untouched());
                let clock = SharedClock::default();
                let (engine, page) = dirty_on(Arc::new(flash), file, (0, clock));
                let object = engine.object(page.object).expect("is open");
                let request = Request {
                    object: &object,
                    offset: 0,
                    hints: HintSet::UNKNOWN,
                    client: 0,
                };
                let mut bytes = vec![0; PAGE as usize];
                script.load(times).expect("script");
                let done = match write {
                    true => engine.write(&request, &[9; 100]),
                    false => engine.read(&request, &mut bytes).map(drop),
                };
                let once = times.contains("times");
                assert_eq!(done.is_ok(), once, "{times}, write {write}: {done:?}");
                let lost = engine.inner().hierarchy.lost();
                assert_eq!(lost.contains(&page), !once, "{times}, write {write}");
                script.clear();
                engine.read(&request, &mut bytes).expect("reads");
                let newest = if once && write {
                    partly()
                } else {
                    vec![7; PAGE as usize]
                };
                assert!(bytes == newest, "{times}, write {write}");
                assert_eq!(engine.inner().hierarchy.lost(), []);
            }
        }
    }

    /// What flash does not give of it is thrown away.
    #[test]
    fn a_hole_takes_a_page_that_flash_does_not_give() {
        let script = FaultScript::new();
        let flash = Faulty::new(MemoryDevice::new(), Arc::clone(&script), None);
        let file = file(Arc::new(MemoryDevice::new()), crate::untouched());
        let (engine, page) = dirty_on(Arc::new(flash), file, (0, SharedClock::default()));
        let object = engine.object(page.object).expect("is open");
        script.load("read fail EIO").expect("script");
        let part = engine.punch(&object, 0, u64::from(PAGE) - 1);
        part.expect_err("a byte of it stays");
        engine.punch(&object, 0, PAGE.into()).expect("punches");
        assert_eq!(
            (engine.dirty_pages(), engine.inner().hierarchy.lost()),
            (0, vec![])
        );
        let request = Request {
            object: &object,
            offset: 0,
            hints: HintSet::UNKNOWN,
            client: 0,
        };
        let mut bytes = [1; PAGE as usize];
        engine.read(&request, &mut bytes).expect("reads");
        assert!(bytes == [0; PAGE as usize], "zeros");
    }

    /// A clock that goes on when it is told to, and a base that takes its time for a write.
    #[derive(Debug, Default)]
    struct Slow {
        now_s: AtomicU64,
        base: MemoryDevice,
    }

    impl Slow {
        fn wait(&self, seconds: u64) {
            self.now_s.fetch_add(seconds, Ordering::SeqCst);
        }
    }

    impl Clock for Slow {
        fn now(&self) -> Duration {
            Duration::from_secs(self.now_s.load(Ordering::SeqCst))
        }
        fn wall_ns(&self) -> i64 {
            self.now().as_nanos() as i64
        }
        fn pass(&self, time: Duration) {
            self.wait(time.as_secs());
        }
    }

    struct SlowBase(Arc<Slow>);

    impl Device for SlowBase {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
            self.0.base.read_at(buf, offset)
        }
        fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
            self.0.wait(2 * LEASE.as_secs());
            self.0.base.write_at(buf, offset)
        }
        fn sync(&self, data_only: bool) -> io::Result<()> {
            self.0.base.sync(data_only)
        }
        fn len(&self) -> io::Result<u64> {
            self.0.base.len()
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            self.0.base.set_len(len)
        }
        fn reserve(&self, offset: u64, len: u64, ahead: u64) -> io::Result<()> {
            self.0.base.reserve(offset, len, ahead)
        }
        fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
            self.0.base.punch(offset, len)
        }
        fn label(&self) -> String {
            "slow".into()
        }
    }

    /// After a crash a file is believed that was changed within the lease of the newest batch.
    #[test]
    fn the_time_of_a_file_is_set_within_a_lease_however_long_base_takes() {
        let slow = Arc::new(Slow::default());
        let engine: Arc<OnceLock<Weak<Engine>>> = Arc::default();
        let within = Arc::new(Mutex::new(Vec::new()));
        let (same, to) = (Arc::clone(&engine), Arc::clone(&within));
        let touch: TouchFn = Arc::new(move |_| {
            if let Some(engine) = same.get().and_then(Weak::upgrade) {
                let now = engine.config.clock.now();
                let newest = engine.inner().commits.newest_or_found();
                to.lock().push(newest.is_some_and(|at| now - at < LEASE));
            }
            Ok(())
        });
        let clock = SharedClock::new(Arc::clone(&slow) as Arc<dyn Clock>);
        let file = file(Arc::new(SlowBase(slow)), touch);
        let (started, _) = dirty_on(Arc::new(MemoryDevice::new()), file, (0, clock));
        engine.set(Arc::downgrade(&started)).expect("once");
        assert_eq!(started.dirty_pages(), 1);
        started.flush(|_| true).expect("flushes");
        assert_eq!(*within.lock(), [true]);
    }

    /// Time stands still: whoever waits for it to pass waits for ever.
    #[derive(Debug)]
    struct Still;

    impl Clock for Still {
        fn now(&self) -> Duration {
            Duration::ZERO
        }
        fn wall_ns(&self) -> i64 {
            0
        }
        fn pass(&self, time: Duration) {
            panic!("{time:?} without a look at what is asked for");
        }
    }

    /// A stop joins the destager, and whoever flushes waits for what it holds.
    #[test]
    fn a_pause_between_batches_ends_when_somebody_waits() {
        let ends: [fn(&mut Inner); 2] = [|inner| inner.stopping = true, |inner| inner.flushing = 1];
        for end in ends {
            let config = EngineConfig {
                write_back: true,
                clock: SharedClock::new(Arc::new(Still)),
                dirty: DirtySettings {
                    rate: 1,
                    ..DirtySettings::default()
                },
                ..EngineConfig::default()
            };
            let engine = Engine::start(config, None).expect("starts");
            let pausing = Arc::clone(&engine);
            let pause = std::thread::spawn(move || pausing.slow_down(BATCH, Duration::ZERO));
            end(&mut engine.inner());
            engine.signals.wake_all();
            pause.join().expect("has ended");
        }
    }
}

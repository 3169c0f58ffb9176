//! The engine: the only code that does I/O. It reports events to the core's hierarchy and
//! carries out its actions on devices.
//!
//! # Locks, in the order they may be taken
//! 0. `reshaping`: one change of the tier's size or device at a time
//! 1. `registry` (objects by identity)
//! 2. the layout lock of an object
//! 3. `inner` (hierarchy, write buffer, commits)
//! 4. a shard of `frames`
//!
//! `objects` (open objects by id) and `flash` are leaves, held only to clone an `Arc`.
//!
//! No lock is held across device I/O, except `reshaping`, `registry` while a file is opened for the
//! first time, and an object's layout lock while its base is written in the background, cut or
//! punched.
//!
//! # States
//! *Running* → *stopping* (writers drain the buffer) → *stopped* (map saved). Requests may arrive
//! only while running; [`Engine::stop`] is called once they have ended.

use crate::background::{self, Signals};
use crate::claim::Fence;
use crate::classify::{self, Dialect};
use crate::commit::Commits;
use crate::config::EngineConfig;
use crate::device::AlignedBuf;
use crate::error::Error;
use crate::frames::{Frames, Hit};
use crate::histogram::Histogram;
use crate::object::Object;
use crate::registry::Registry;
use crate::store::{Fate, Store};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::thread::JoinHandle;
use std::time::Instant;
use thermocline_core::hierarchy::{Action, Hierarchy, HierarchyOptions};
use thermocline_core::policy::{PolicyOptions, TierPolicy};
use thermocline_core::writers::WriterPace;
use thermocline_core::{Fault, HintSet, ObjectId, PageId, hint_type};
use thermocline_trace::{Op, Recorder, Served, TraceRecord};

/// A request of a frontend.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// The object, from [`Engine::open_object`].
    pub object: ObjectId,
    /// First byte.
    pub offset: u64,
    /// What the request says about itself; object, file kind and page type are filled in by the
    /// engine where they are unknown.
    pub hints: HintSet,
    /// Who asks: means something to traces only.
    pub client: u32,
}

/// What a thread of the engine does until the engine stops or is gone.
type ThreadBody = Box<dyn FnOnce(&Weak<Engine>) + Send>;

/// Everything that is decided or staged under one lock.
pub(crate) struct Inner {
    pub(crate) hierarchy: Hierarchy,
    /// The write buffer: bytes of staged slots.
    pub(crate) staged: HashMap<u32, Arc<AlignedBuf>>,
    spare: Vec<AlignedBuf>,
    pub(crate) actions: Vec<Action>,
    pub(crate) pace: WriterPace,
    pub(crate) writers_at_work: u32,
    /// The cleaner was woken since it last looked.
    pub(crate) clean_asked: bool,
    /// The same of the destager.
    pub(crate) destage_asked: bool,
    /// Syncs that wait for writers.
    pub(crate) draining: u32,
    pub(crate) stopping: bool,
    pub(crate) commits: Commits,
    /// What a crash interrupted, until [`Engine::adopt`].
    pub(crate) fates: BTreeMap<ObjectId, Fate>,
    /// Somebody waits for a flush.
    pub(crate) flushing: bool,
    /// Why the tier is off, when it is.
    pub(crate) off_reason: String,
    /// Faults by kind when the tier was last switched on: they are forgiven.
    pub(crate) forgiven: [u64; Fault::ALL.len()],
}

/// A running tier over open base files. See the module text.
pub struct Engine {
    pub(crate) config: EngineConfig,
    /// Changes when the device is replaced; never to or from none (see [`Engine::store`]).
    pub(crate) flash: RwLock<Option<Arc<Store>>>,
    pub(crate) has_flash: bool,
    pub(crate) reshaping: Mutex<()>,
    pub(crate) frames: Frames,
    pub(crate) frame_count: u32,
    inner: Mutex<Inner>,
    /// Somebody waits for a page.
    pub(crate) page_free: Condvar,
    /// What threads of the engine wait for.
    pub(crate) signals: Signals,
    pub(crate) objects: RwLock<Vec<Option<Arc<Object>>>>,
    pub(crate) registry: Mutex<Registry>,
    recorder: RwLock<Option<Recorder>>,
    pub(crate) recording: AtomicBool,
    pub(crate) started: Instant,
    pub(crate) latency: [Histogram; Served::ALL.len()],
    pub(crate) write_latency: Histogram,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) write_bytes: AtomicU64,
    pub(crate) bypassed: [AtomicU64; 2],
    pub(crate) stale_objects: AtomicU32,
    pub(crate) restored_pages: AtomicU32,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) steps: AtomicU64,
    /// Whether the base is still ours to use.
    pub(crate) fence: OnceLock<Arc<dyn Fence>>,
}

impl Engine {
    /// Starts an engine over `flash`, or over base alone. A store that was closed cleanly is
    /// warm at once; the pages of a file are believed only after its stamp was compared when
    /// it is opened.
    ///
    /// Base is to be durable before: pages read from it go to flash, where a power cut does not
    /// take them back.
    ///
    /// # Errors
    /// [`Error::Setting`], [`Error::Policy`], [`Error::PageSize`], and those of the store.
    pub fn start(config: EngineConfig, flash: Option<Store>) -> Result<Arc<Self>, Error> {
        config.check()?;
        let blocks = flash.as_ref().map_or(0, Store::blocks);
        let hierarchy = Hierarchy::new(&hierarchy_options(&config, blocks))?;
        Self::start_over(config, flash, hierarchy)
    }

    /// As [`Engine::start`], under a policy of the caller's own that `policy` builds;
    /// `config.policy` is then only what its counters are filed under.
    ///
    /// # Errors
    /// Those of [`Engine::start`].
    pub fn start_with_policy(
        config: EngineConfig,
        flash: Option<Store>,
        policy: impl FnOnce(&PolicyOptions) -> Box<dyn TierPolicy>,
    ) -> Result<Arc<Self>, Error> {
        config.check()?;
        let blocks = flash.as_ref().map_or(0, Store::blocks);
        let options = hierarchy_options(&config, blocks);
        let policy = policy(&options.policy_options);
        let hierarchy = Hierarchy::with_policy(policy, &options)?;
        Self::start_over(config, flash, hierarchy)
    }

    fn start_over(
        config: EngineConfig,
        mut flash: Option<Store>,
        hierarchy: Hierarchy,
    ) -> Result<Arc<Self>, Error> {
        if let Some(store) = flash.as_ref().filter(|f| f.page_size() != config.page_size) {
            return Err(Error::PageSize {
                path: store.name().into(),
                found: store.page_size(),
                wanted: config.page_size,
            });
        }
        let found = flash.as_mut().and_then(Store::take_recovered);
        if let Some(store) = &flash {
            store.mark_open()?;
        }
        let engine = Arc::new(Self::assemble(config, flash, hierarchy));
        if let Some(found) = found {
            engine.restore(found);
        }
        engine.start_threads();
        Ok(engine)
    }

    fn assemble(config: EngineConfig, flash: Option<Store>, hierarchy: Hierarchy) -> Self {
        let inner = Inner {
            hierarchy,
            staged: HashMap::new(),
            spare: Vec::new(),
            actions: Vec::new(),
            pace: WriterPace::default(),
            writers_at_work: 0,
            clean_asked: false,
            destage_asked: false,
            draining: 0,
            stopping: false,
            commits: Commits::default(),
            fates: BTreeMap::new(),
            flushing: false,
            off_reason: String::new(),
            forgiven: [0; Fault::ALL.len()],
        };
        Self {
            frames: Frames::new(config.page_size as usize, config.frames()),
            frame_count: config.frames(),
            config,
            has_flash: flash.is_some(),
            flash: RwLock::new(flash.map(Arc::new)),
            reshaping: Mutex::new(()),
            inner: Mutex::new(inner),
            page_free: Condvar::new(),
            signals: Signals::default(),
            objects: RwLock::default(),
            registry: Mutex::default(),
            recorder: RwLock::default(),
            recording: AtomicBool::new(false),
            started: Instant::now(),
            latency: std::array::from_fn(|_| Histogram::default()),
            write_latency: Histogram::default(),
            read_bytes: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
            bypassed: [AtomicU64::new(0), AtomicU64::new(0)],
            stale_objects: AtomicU32::new(0),
            restored_pages: AtomicU32::new(0),
            threads: Mutex::default(),
            steps: AtomicU64::new(0),
            fence: OnceLock::new(),
        }
    }

    fn start_threads(self: &Arc<Self>) {
        if !self.has_flash || self.config.inline {
            return;
        }
        let spawn = |name: String, work: ThreadBody| {
            // Weak: the threads must not keep a forgotten engine alive.
            let engine = Arc::downgrade(self);
            let thread = std::thread::Builder::new().name(name);
            thread.spawn(move || work(&engine)).ok()
        };
        let writer = |number: u32| {
            let work = move |engine: &Weak<Self>| background::run_writer(engine, number);
            spawn(format!("tc-writer-{number}"), Box::new(work))
        };
        let mut threads: Vec<_> = (0..self.config.writers_max).filter_map(writer).collect();
        threads.extend(spawn(
            "tc-commit".into(),
            Box::new(background::run_committer),
        ));
        threads.extend(spawn("tc-clean".into(), Box::new(background::run_cleaner)));
        threads.extend(spawn(
            "tc-destage".into(),
            Box::new(background::run_destager),
        ));
        *self.threads.lock().unwrap_or_else(PoisonError::into_inner) = threads;
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The cache. Whoever uses blocks of it asks for it after having taken what keeps them from
    /// going away: a pinned slot, a write job, a page held for destaging, or the engine's lock.
    pub(crate) fn store(&self) -> Option<Arc<Store>> {
        self.flash
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// File name of the cache, for messages; empty without one.
    #[must_use]
    pub fn cache_name(&self) -> String {
        self.store()
            .map_or_else(String::new, |store| store.name().into())
    }

    pub(crate) fn try_inner(&self) -> Option<MutexGuard<'_, Inner>> {
        self.inner.try_lock().ok()
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn page_size(&self) -> usize {
        self.config.page_size as usize
    }

    /// The open object `id`.
    pub(crate) fn object(&self, id: ObjectId) -> io::Result<Arc<Object>> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        let found = objects.get(id.0 as usize).and_then(Clone::clone);
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "object is not open"))
    }

    /// Whether pages of `object` go through pool and tier.
    pub(crate) fn is_paged(&self, object: &Object) -> bool {
        object.cached && (self.has_flash || self.frame_count > 0)
    }

    /// Carries out the actions the hierarchy appended; `bytes` are those of the page of the
    /// request at hand.
    pub(crate) fn carry_out(&self, inner: &mut Inner, bytes: &[u8]) {
        debug_assert!(bytes.is_empty() || bytes.len() <= self.page_size());
        let mut actions = std::mem::take(&mut inner.actions);
        for action in actions.drain(..) {
            match action {
                Action::Stage { slot, .. } => inner.stage(slot.0, bytes),
                Action::StageFrame { slot, page, .. } => {
                    let mut copy = inner.take_buffer(self.page_size());
                    let hit = self.frames.read(page, |frame| copy.copy_from_slice(frame));
                    debug_assert!(hit.is_some(), "a frame is staged before it is evicted");
                    if let Some(old) = inner.staged.insert(slot.0, Arc::new(copy)) {
                        inner.recycle(old);
                    }
                }
                Action::Unstage { slot } => inner.unstage(slot.0),
                Action::FillFrame { frame, page } => self.frames.fill(frame, page, bytes),
                Action::EvictFrame { frame, page } => self.frames.evict(frame, page),
                Action::Wake { .. } | Action::Room => self.page_free.notify_all(),
                Action::WakeWriter => self.signals.writers.notify_one(),
                Action::WakeCleaner => {
                    inner.clean_asked = true;
                    self.signals.cleaner.notify_one();
                }
                Action::WakeDestager => {
                    inner.destage_asked = true;
                    self.signals.destager.notify_one();
                }
            }
        }
        debug_assert!(inner.actions.is_empty() && actions.is_empty());
        inner.actions = actions;
        if inner.hierarchy.is_off() && inner.off_reason.is_empty() {
            let faults = || describe_faults(&inner.hierarchy, &inner.forgiven);
            inner.off_reason = self.fence_reason().unwrap_or_else(faults);
        }
    }

    /// A page was served from the pool; hands a due batch of hits to the policy, unless somebody
    /// else holds the lock.
    pub(crate) fn after_hit(&self, hit: Hit) {
        let Hit::BatchDue(shard) = hit else { return };
        if let Some(mut inner) = self.try_inner() {
            self.drain_hits(&mut inner, shard);
        }
    }

    pub(crate) fn drain_hits(&self, inner: &mut Inner, shard: usize) {
        let mut batch = Vec::with_capacity(64);
        self.frames.take_batch(shard, &mut batch);
        debug_assert!(batch.iter().all(|(frame, ..)| frame.0 < self.frame_count));
        inner.hierarchy.pool_hits(&batch);
    }

    /// Whether writes stay off base where they can.
    #[must_use]
    pub fn is_write_back(&self) -> bool {
        self.inner().hierarchy.is_write_back()
    }

    /// Write-back from now on, or write-through: then dirty pages are written back in the
    /// background, and [`Engine::flush`] waits for that.
    pub fn set_write_back(&self, back: bool) {
        self.inner().hierarchy.set_write_back(back);
        self.signals.wake_all();
    }

    /// The tier policy in force.
    #[must_use]
    pub fn policy(&self) -> String {
        self.inner().hierarchy.policy().name().into()
    }

    /// Switches the policy; pages on flash stay.
    ///
    /// # Errors
    /// [`Error::Policy`].
    pub fn set_policy(&self, name: &str) -> Result<(), Error> {
        Ok(self.inner().hierarchy.set_policy(name)?)
    }

    /// Stops using flash; every request goes to base. Dirty pages are written back first.
    ///
    /// # Errors
    /// Those of [`Engine::flush`]; the tier then stays on.
    pub fn tier_off(&self, reason: &str) -> io::Result<()> {
        let _one = self.reshaping();
        if self.dirty_pages() > 0 {
            self.flush(|_| true)?;
        }
        let mut inner = self.inner();
        inner.off_reason = reason.to_string();
        let Inner {
            hierarchy, actions, ..
        } = &mut *inner;
        hierarchy.switch_off(actions);
        self.carry_out(&mut inner, &[]);
        drop(inner);
        self.commit_nothing();
        Ok(())
    }

    /// Uses flash again, from empty, after writing to it once.
    ///
    /// # Errors
    /// [`Error::NoTier`], [`Error::CacheIo`] when the device still does not work,
    /// [`Error::StillInUse`] while pages that base has not wait for it.
    pub fn tier_on(&self) -> Result<(), Error> {
        let _one = self.reshaping();
        let flash = self.store().ok_or(Error::NoTier)?;
        // A map that starts anew knows nothing of writes that base may still lose.
        for (_, object) in self.all_objects() {
            self.sync_base(&object).map_err(|source| Error::BaseIo {
                path: object.name(),
                source,
            })?;
        }
        if flash.is_poisoned() {
            let mut inner = self.inner();
            if inner.commits.is_under_way() || !inner.hierarchy.forget_map() {
                return Err(Error::StillInUse {
                    path: flash.name().into(),
                });
            }
            inner.commits = Commits::default();
            drop(inner);
            flash.renew()?;
        }
        flash.mark_open()?;
        let mut inner = self.inner();
        if inner.hierarchy.is_off() {
            inner.hierarchy.switch_on();
            inner.off_reason.clear();
            inner.forgiven = inner.hierarchy.counters().faults;
        }
        Ok(())
    }

    /// Whether the tier is on; when it is off, why.
    pub fn tier_state(&self) -> Result<(), String> {
        let inner = self.inner();
        match (self.has_flash, inner.hierarchy.is_off()) {
            (false, _) => Err("no cache file".into()),
            (true, true) => Err(inner.off_reason.clone()),
            (true, false) => Ok(()),
        }
    }

    /// Records every request from now on, or stops doing so.
    pub fn set_recorder(&self, recorder: Option<Recorder>) -> Option<Recorder> {
        if let Some(recorder) = &recorder {
            let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
            for object in objects.iter().flatten() {
                name_in_trace(recorder, object);
            }
        }
        self.recording.store(recorder.is_some(), Ordering::Relaxed);
        let mut slot = self
            .recorder
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut slot, recorder)
    }

    pub(crate) fn recorder(&self) -> Option<Recorder> {
        match self.is_recording() {
            true => self
                .recorder
                .read()
                .unwrap_or_else(PoisonError::into_inner)
                .clone(),
            false => None,
        }
    }

    pub(crate) fn is_recording(&self) -> bool {
        self.recording.load(Ordering::Relaxed)
    }

    /// Hints as the policies see them: what the engine knows is filled in.
    pub(crate) fn complete(
        &self,
        hints: &HintSet,
        object: &Object,
        page: Option<&[u8]>,
    ) -> HintSet {
        let mut hints = *hints;
        let mut fill = |position: usize, value: u32| {
            if hints.get(position) == 0 {
                hints.set(position, value);
            }
        };
        fill(hint_type::OBJECT, object.hint);
        fill(hint_type::FILE_KIND, object.kind.value());
        if let (Some(page), true) = (page, object.dialect != Dialect::None) {
            let page_type = classify::page_type(object.dialect, page, object.kind);
            fill(hint_type::PAGE_TYPE, page_type.value());
        }
        hints
    }

    /// The request as it is recorded: with the type of its first whole page (`data` is its bytes).
    pub(crate) fn typed(&self, request: &Request, object: &Object, data: &[u8]) -> Request {
        let size = self.page_size();
        let skip = (request.offset.next_multiple_of(size as u64) - request.offset) as usize;
        let page = data.get(skip..skip.saturating_add(size));
        Request {
            hints: self.complete(&request.hints, object, page),
            ..*request
        }
    }

    pub(crate) fn record(
        &self,
        request: &Request,
        object: &Object,
        op: Op,
        length: u64,
        served: Served,
        started: Instant,
    ) {
        let Some(recorder) = self.recorder() else {
            return;
        };
        recorder.record(TraceRecord {
            time_ns: recorder.time_of(started),
            client: request.client,
            op,
            served,
            object: object.id,
            offset: request.offset,
            length,
            latency_ns: started.elapsed().as_nanos() as u64,
            hints: self.complete(&request.hints, object, None),
        });
    }

    pub(crate) fn record_quiet(&self, op: Op, id: ObjectId, offset: u64, length: u64) {
        if !self.is_recording() {
            return;
        }
        if let Ok(object) = self.object(id) {
            let request = Request {
                object: id,
                offset,
                hints: HintSet::UNKNOWN,
                client: 0,
            };
            self.record(
                &request,
                &object,
                op,
                length,
                Served::Unknown,
                Instant::now(),
            );
        }
    }

    /// Panics unless hierarchy, write buffer and objects agree. O(slots).
    pub fn assert_invariants(&self) {
        let inner = self.inner();
        inner.hierarchy.assert_invariants();
        let staged = inner.hierarchy.staged() as usize;
        // A page that left while it was being written keeps its bytes until that write ends.
        assert!(inner.staged.len() >= staged.saturating_sub(inner.writers_at_work as usize));
        assert!(inner.staged.len() <= staged + inner.writers_at_work as usize);
        for slot in inner.staged.keys() {
            assert!(
                *slot < inner.hierarchy.slots().capacity() + inner.hierarchy.slots().reserve(),
                "staged for a slot of this tier"
            );
        }
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        for (at, object) in objects.iter().enumerate() {
            let Some(object) = object else { continue };
            assert_eq!(object.id.0 as usize, at, "objects are found by their id");
            let resident = inner.hierarchy.resident_of(object.id);
            assert!(
                object.cached || resident == 0,
                "only cached objects have pages on flash"
            );
        }
    }
}

impl Inner {
    fn take_buffer(&mut self, page_size: usize) -> AlignedBuf {
        debug_assert!(page_size > 0, "a buffer holds a page");
        self.spare
            .pop()
            .unwrap_or_else(|| AlignedBuf::new(page_size))
    }

    fn stage(&mut self, slot: u32, bytes: &[u8]) {
        let mut buffer = self.take_buffer(bytes.len());
        debug_assert_eq!(buffer.len(), bytes.len(), "buffers are one page long");
        buffer.copy_from_slice(bytes);
        if let Some(old) = self.staged.insert(slot, Arc::new(buffer)) {
            self.recycle(old);
        }
    }

    fn unstage(&mut self, slot: u32) {
        let old = self.staged.remove(&slot);
        debug_assert!(old.is_some(), "what is unstaged was staged");
        if let Some(old) = old {
            self.recycle(old);
        }
    }

    pub(crate) fn recycle(&mut self, buffer: Arc<AlignedBuf>) {
        if let Ok(buffer) = Arc::try_unwrap(buffer) {
            self.spare.push(buffer);
        }
    }
}

/// A sentence about why the tier went off by itself.
fn describe_faults(hierarchy: &Hierarchy, forgiven: &[u64]) -> String {
    let counts = hierarchy.counters().faults.into_iter().zip(forgiven);
    let fresh = counts.map(|(all, before)| all - before);
    let parts: Vec<String> = (Fault::ALL.iter().zip(fresh))
        .filter(|(_, n)| *n > 0)
        .map(|(fault, n)| format!("{n} {}", fault.name()))
        .collect();
    format!("too many flash faults: {}", parts.join(", "))
}

pub(crate) fn hierarchy_options(config: &EngineConfig, blocks: u32) -> HierarchyOptions {
    let shares = config.shares(blocks);
    HierarchyOptions {
        policy: config.policy.clone(),
        policy_options: config.policy_options(shares.slots),
        frames: config.frames(),
        pool_policy: config.pool_policy.clone(),
        buffer_pages: config.write_buffer_pages,
        blocks,
        reserve: shares.reserve,
        write_back: config.write_back,
        watermarks: config.dirty.watermarks(),
        recovery_age: match config.inline {
            true => RECOVERY_STEPS,
            false => (config.dirty.recovery_s * 1000.0) as u64,
        },
    }
}

/// Age in background steps at which a dirty frame is cleaned where there are no threads.
const RECOVERY_STEPS: u64 = 40;

/// Gives a trace the names of an object and of its group.
pub(crate) fn name_in_trace(recorder: &Recorder, object: &Object) {
    let name = object.name.read().unwrap_or_else(PoisonError::into_inner);
    recorder.name_object(object.id, &name);
    recorder.name_hint_value(hint_type::OBJECT, object.hint, &object.group);
}

/// The page at `index` of `object`.
pub(crate) fn page_of(object: &Object, index: u64) -> PageId {
    PageId::new(object.id, index)
}

//! What is decided under one lock, and the only door to it.
//!
//! [`Engine::decide`] hands an event to the hierarchy and carries out what it answers, so that no
//! action is ever left behind. Whoever must wait does so here too.

use crate::claim::Clocks;
use crate::device::AlignedBuf;
use crate::durable::commit::Commits;
use crate::engine::Engine;
use crate::files::object::Object;
use crate::files::registry::Registry;
use crate::frames::Hit;
use crate::lock::{self, MutexGuard};
use crate::request::ahead::Ahead;
use crate::store::{Fate, Store};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thermocline_core::health::Way;
use thermocline_core::hierarchy::{Action, Hierarchy};
use thermocline_core::writers::WriterPace;
use thermocline_core::{Fault, ObjectId, PageId};

/// Everything that is decided or staged under one lock.
pub(crate) struct Inner {
    pub(crate) hierarchy: Hierarchy,
    /// The write buffer: bytes of staged slots.
    pub(crate) staged: HashMap<u32, Arc<AlignedBuf>>,
    spare: Vec<AlignedBuf>,
    actions: Vec<Action>,
    pub(crate) pace: WriterPace,
    pub(crate) writers_at_work: u32,
    /// The cleaner was woken since it last looked.
    pub(crate) clean_asked: bool,
    /// The same of the destager.
    pub(crate) destage_asked: bool,
    pub(crate) stopping: bool,
    pub(crate) commits: Commits,
    /// Pages read ahead.
    pub(crate) ahead: Ahead,
    /// Where the next copies in doubt are looked for.
    pub(crate) verify_from: PageId,
    /// What a crash interrupted, until [`Engine::adopt`].
    pub(crate) fates: BTreeMap<ObjectId, Fate>,
    /// The map was found as a crash left it.
    pub(crate) found_crashed: bool,
    /// The start was refused; a batch may have been made before it is asked for again.
    pub(crate) refused: bool,
    /// Files without a name whose pages wait for that to be durable.
    pub(crate) graves: Vec<Arc<Object>>,
    /// Those who wait for a flush.
    pub(crate) flushing: u32,
    /// Why the tier is off, when it is.
    pub(crate) off_reason: String,
    /// Faults by kind when the tier was last switched on: they are forgiven.
    pub(crate) forgiven: [u64; Fault::ALL.len()],
}

impl Engine {
    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    pub(crate) fn try_inner(&self) -> Option<MutexGuard<'_, Inner>> {
        self.inner.try_lock()
    }

    /// The cache. Whoever uses blocks of it asks for it after having taken what keeps them from
    /// going away: a pinned slot, a write job, a page held for destaging, or the engine's lock.
    pub(crate) fn store(&self) -> Option<Arc<Store>> {
        self.flash.read().clone()
    }

    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock()
    }

    pub(crate) fn page_size(&self) -> usize {
        self.config.page_size as usize
    }

    /// The open object `id`.
    pub(crate) fn object(&self, id: ObjectId) -> io::Result<Arc<Object>> {
        let objects = self.objects.read();
        let found = objects.get(id.0 as usize).and_then(Clone::clone);
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "object is not open"))
    }

    /// `object`, unless its last use has ended.
    pub(crate) fn still_open<'a>(&self, object: &'a Object) -> io::Result<&'a Object> {
        match object.opens.load(Ordering::Acquire) {
            0 => Err(io::Error::new(
                io::ErrorKind::NotFound,
                "object is not open",
            )),
            _ => Ok(object),
        }
    }

    /// Whether pages of `object` go through pool and tier.
    pub(crate) fn is_paged(&self, object: &Object) -> bool {
        object.cached && (self.has_flash || self.frame_count > 0)
    }

    /// Tells the hierarchy of an `event`, and carries out what it answers; `bytes` are those of the
    /// page of the request at hand.
    pub(crate) fn decide<R>(
        &self,
        inner: &mut Inner,
        bytes: &[u8],
        event: impl FnOnce(&mut Hierarchy, &mut Vec<Action>) -> R,
    ) -> R {
        let answer = event(&mut inner.hierarchy, &mut inner.actions);
        self.carry_out(inner, bytes);
        answer
    }

    /// All pages of a call of the device were told, since `begin_call`.
    pub(crate) fn end_call(&self, inner: &mut Inner, way: Way) {
        self.decide(inner, &[], |hierarchy, out| hierarchy.end_call(way, out));
    }

    fn carry_out(&self, inner: &mut Inner, bytes: &[u8]) {
        debug_assert!(bytes.is_empty() || bytes.len() <= self.page_size());
        let mut actions = std::mem::take(&mut inner.actions);
        for action in actions.drain(..) {
            match action {
                Action::Stage { slot, .. } => inner.stage(slot.0, bytes),
                Action::StageFrame { slot, page, .. } => {
                    let mut copy = inner.take_buffer(self.page_size());
                    if !self.frames.peek(page, |frame| copy.copy_from_slice(frame)) {
                        lock::die("a frame is staged before it is evicted");
                    }
                    if let Some(old) = inner.staged.insert(slot.0, Arc::new(copy)) {
                        inner.recycle(old);
                    }
                }
                Action::Unstage { slot } => inner.unstage(slot.0),
                Action::FillFrame { frame, page } => self.frames.fill(frame, page, bytes),
                Action::EvictFrame { frame, page } => self.frames.evict(frame, page),
                Action::Wake { .. } | Action::Room => self.page_free.notify_all(),
                Action::WakeWriter if self.writers_due(inner) => self.signals.writers.notify_one(),
                Action::WakeWriter => {}
                Action::WakeCleaner => {
                    if !std::mem::replace(&mut inner.clean_asked, true) {
                        self.signals.cleaner.notify_one();
                    }
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
            // No commit is made any more: those who wait for one go on without.
            self.signals.wake_committed();
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

    /// Lends the bytes of `page`, which is in the core's pool, for a hit. The policy hears of it
    /// in a batch, as of every other.
    pub(crate) fn hit_under_lock(
        &self,
        inner: &mut Inner,
        page: PageId,
        use_bytes: impl FnOnce(&[u8]),
    ) {
        debug_assert!(inner.hierarchy.pool().find(page).is_some(), "a frame");
        match self.frames.read(page, use_bytes) {
            Some(Hit::BatchDue(shard)) => self.drain_hits(inner, shard),
            Some(Hit::Served) => {}
            None => lock::die("frames agree with the core's pool under the lock"),
        }
    }

    pub(crate) fn drain_hits(&self, inner: &mut Inner, shard: usize) {
        let mut batch = Vec::with_capacity(64);
        self.frames.take_batch(shard, &mut batch);
        debug_assert!(batch.iter().all(|(frame, ..)| frame.0 < self.frame_count));
        inner.hierarchy.pool_hits(&batch);
    }

    /// What is known of the clock that base stamps its files by.
    pub fn base_clock(&self) -> Clocks {
        Clocks {
            granularity: self.config.stamp_granularity,
            offset_ns: self.config.clock_offset_ns,
        }
    }

    /// Nanoseconds since 1970 by the clock that base stamps its files by.
    pub(crate) fn base_wall_ns(&self) -> i64 {
        self.config.base_wall_ns()
    }

    /// Time since the start.
    pub(crate) fn age(&self) -> Duration {
        self.config.clock.now().saturating_sub(self.started)
    }

    /// Time in the unit of recovery ages: milliseconds.
    pub(crate) fn now_ms(&self) -> u64 {
        match self.config.inline {
            // Deterministic: one unit a background step.
            true => self.steps.load(Ordering::Relaxed),
            false => self.age().as_millis() as u64,
        }
    }

    pub(crate) fn is_off(&self) -> bool {
        self.inner().hierarchy.is_off()
    }

    /// Waits for room, or makes some when there are no threads to do it.
    pub(crate) fn wait_for_room<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
    ) -> MutexGuard<'a, Inner> {
        self.signals.wake_all();
        self.wait_a_moment(inner)
    }

    pub(crate) fn wait_a_moment<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
    ) -> MutexGuard<'a, Inner> {
        if self.config.inline {
            drop(inner);
            self.step();
            return self.inner();
        }
        // Most of what makes room says so; the rest is found by asking again.

        self.page_free
            .wait_timeout(inner, Duration::from_millis(20))
    }

    /// Waits until somebody is done with a page, or with a commit.
    pub(crate) fn wait_for_page<'a>(
        &'a self,
        inner: MutexGuard<'a, Inner>,
    ) -> MutexGuard<'a, Inner> {
        debug_assert!(!self.config.inline, "one thread waits for nobody");
        self.page_free.wait(inner)
    }
}

impl Inner {
    pub(crate) fn new(hierarchy: Hierarchy) -> Self {
        Self {
            hierarchy,
            staged: HashMap::new(),
            spare: Vec::new(),
            actions: Vec::new(),
            pace: WriterPace::default(),
            writers_at_work: 0,
            clean_asked: false,
            destage_asked: false,
            stopping: false,
            commits: Commits::default(),
            ahead: Ahead::default(),
            verify_from: PageId::default(),
            found_crashed: false,
            refused: false,
            fates: BTreeMap::new(),
            graves: Vec::new(),
            flushing: 0,
            off_reason: String::new(),
            forgiven: [0; Fault::ALL.len()],
        }
    }

    /// Pages newer than base, on flash and in DRAM.
    pub(crate) fn dirty_pages(&self) -> u64 {
        let (slots, pool) = (self.hierarchy.slots(), self.hierarchy.pool());
        u64::from(slots.dirty()) + u64::from(pool.dirty())
    }

    /// Whether the durable map may name pages of the object that nobody here knows: it is being
    /// read, and the table has the object.
    pub(crate) fn is_named_unread(&self, id: ObjectId) -> bool {
        self.hierarchy.is_loading() && self.commits.named.contains(&id)
    }

    pub(crate) fn take_buffer(&mut self, page_size: usize) -> AlignedBuf {
        debug_assert!(page_size > 0, "a buffer holds a page");
        self.spare
            .pop()
            .unwrap_or_else(|| AlignedBuf::new(page_size))
    }

    pub(crate) fn stage(&mut self, slot: u32, bytes: &[u8]) {
        let mut buffer = self.take_buffer(bytes.len());
        debug_assert_eq!(buffer.len(), bytes.len(), "buffers are one page long");
        buffer.copy_from_slice(bytes);
        if let Some(old) = self.staged.insert(slot, Arc::new(buffer)) {
            self.recycle(old);
        }
    }

    pub(crate) fn unstage(&mut self, slot: u32) {
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

/// The page at `index` of `object`.
pub(crate) fn page_of(object: &Object, index: u64) -> PageId {
    PageId::new(object.id, index)
}

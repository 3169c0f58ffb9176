//! The engine's public face, and what it is made of. It is the only code that does I/O: it reports
//! events to the core's hierarchy and
//! carries out its actions on devices.
//!
//! # Locks, in the order they may be taken
//! 0. `reshaping`: one change of the tier's size or device at a time; `loader`: one step of reading
//!    the map at a time
//! 1. `registry` (objects by identity)
//! 2. the layout lock of an object
//! 3. `inner` (hierarchy, write buffer, commits)
//! 4. a shard of `frames`
//!
//! `objects` (open objects by id) and `flash` are leaves, held only to clone an `Arc`; `recorder`
//! comes after `objects` where a file is named to it.
//!
//! No lock is held across device I/O, except `reshaping`, `loader`, `registry` while a file is
//! opened for the first time, and an object's layout lock while its base is written in the
//! background, cut or punched.
//!
//! # States
//! *Running* → *stopping* (writers drain the buffer) → *stopped* (map saved). Requests may arrive
//! only while running; [`Engine::stop`] is called once they have ended.

use crate::claim::Fence;
use crate::error::Error;
use crate::files::object::Object;
use crate::files::pins::Pins;
use crate::files::registry::Registry;
use crate::frames::Frames;
use crate::lifecycle::background::Signals;
use crate::lifecycle::load::Loader;
use crate::lock::thread::JoinHandle;
use crate::lock::{Condvar, Mutex, RwLock};
use crate::observe::histogram::Histogram;
use crate::settings::config::EngineConfig;
use crate::state::Inner;
use crate::store::{Lost, Store};
use crate::writeback::destage::BATCH;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use thermocline_core::{Calm, HintSet};
use thermocline_trace::{Recorder, Served};

/// A request of a frontend.
///
/// ```
/// use thermocline::{Engine, EngineConfig, FileKind, HintSet, ObjectSpec, Request};
/// use thermocline::{RequestType, hint_type};
///
/// # let base = tempfile::tempdir()?;
/// # std::fs::write(base.path().join("index"), [7; 10_000])?;
/// # let engine = Engine::start(EngineConfig::default(), None)?;
/// let spec = ObjectSpec::of_file(base.path(), "index", FileKind::Index)?;
/// let index = engine.open_object(spec)?;
/// let request = Request {
///     object: &index,
///     offset: 8192,
///     hints: HintSet::UNKNOWN.with(hint_type::REQUEST, RequestType::Read.value()),
///     client: 0,
/// };
/// let mut page = [0; 8192];
/// assert_eq!(engine.read(&request, &mut page)?, 10_000 - 8192, "short at the end of the file");
/// # engine.close_object(&index);
/// # engine.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The object, from [`Engine::open_object`].
    pub object: &'a Object,
    /// First byte.
    pub offset: u64,
    /// What the request says about itself; object, file kind and page type are filled in by the
    /// engine where they are unknown.
    pub hints: HintSet,
    /// Who asks: means something to traces only.
    pub client: u32,
}

/// A running tier over open base files. See the module text.
///
/// Ends by [`Engine::stop`]. One that is dropped without leaves its cache as a crash does.
///
/// ```
/// use std::sync::Arc;
/// use thermocline::{Engine, EngineConfig, Store, StoreOptions, device::MemoryDevice};
///
/// let options = StoreOptions { size: Some(4 << 20), ..StoreOptions::default() };
/// let flash = Store::with_device(Arc::new(MemoryDevice::new()), "in memory", &options)?;
/// let engine = Engine::start(EngineConfig::default(), Some(flash))?;
/// assert_eq!((engine.policy().as_str(), engine.tier_state()), ("auto", Ok(())));
/// engine.set_policy("lru")?; // pages on flash stay
/// engine.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine {
    pub(crate) config: EngineConfig,
    /// Changes when the device is replaced; never to or from none (see [`Engine::store`]).
    pub(crate) flash: RwLock<Option<Arc<Store>>>,
    pub(crate) has_flash: bool,
    pub(crate) pins: RwLock<Pins>,
    pub(crate) reshaping: Mutex<()>,
    pub(crate) frames: Frames,
    pub(crate) frame_count: u32,
    pub(crate) inner: Mutex<Inner>,
    /// Somebody waits for a page.
    pub(crate) page_free: Condvar,
    /// What threads of the engine wait for.
    pub(crate) signals: Signals,
    pub(crate) objects: RwLock<Vec<Option<Arc<Object>>>>,
    /// How many are in the table, and from how many on the last use of one ends with a wait.
    pub(crate) open_objects: AtomicUsize,
    pub(crate) objects_most: AtomicUsize,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) recorder: RwLock<Option<Recorder>>,
    /// [`thermocline_trace::Sample::bits`] of what is recorded; 0 when nothing is.
    pub(crate) recording: AtomicU32,
    /// When it was made, by its clock.
    pub(crate) started: Duration,
    /// The same, by the clock that base stamps its files by.
    pub(crate) started_ns: i64,
    pub(crate) latency: [Histogram; Served::ALL.len()],
    pub(crate) write_latency: Histogram,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) write_bytes: AtomicU64,
    pub(crate) bypassed: [AtomicU64; 2],
    pub(crate) stale_objects: AtomicU32,
    /// Files served from base because the table on flash had no room for them.
    pub(crate) unnamed_files: AtomicU32,
    pub(crate) restored_pages: AtomicU32,
    /// Pages held in doubt at the start.
    pub(crate) doubted_pages: AtomicU32,
    /// A map that is read while requests are served.
    pub(crate) loader: Mutex<Option<Loader>>,
    pub(crate) load_percent: AtomicU32,
    pub(crate) load_lost: Mutex<Vec<Lost>>,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) steps: AtomicU64,
    /// Whether the base is still ours to use.
    pub(crate) fence: OnceLock<Arc<dyn Fence>>,
}

impl Engine {
    /// File name of the cache, for messages; empty without one.
    #[must_use]
    pub fn cache_name(&self) -> String {
        self.store()
            .map_or_else(String::new, |store| store.name().into())
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

    /// Whether base has everything and the map on flash says so, so that neither a crash nor the
    /// loss of flash changes that. False in write-back, while the map is read, and while the tier
    /// is off: flash may say otherwise once it is read again.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let inner = self.inner();
        let hierarchy = &inner.hierarchy;
        let is_known = !hierarchy.is_off() && !hierarchy.is_loading();
        let is_settled = is_known && hierarchy.ledger().is_all_clean();
        is_settled && inner.dirty_pages() == 0 && !hierarchy.is_write_back()
    }

    /// The tier policy in force.
    #[must_use]
    pub fn policy(&self) -> String {
        self.inner().hierarchy.policy().name().into()
    }

    /// The name it was asked for by: its own, or `default`.
    #[must_use]
    pub fn policy_asked(&self) -> String {
        self.inner().hierarchy.policy_asked().into()
    }

    /// What [`crate::EngineConfig::policy_memory`] made of it, in one sentence; `None` where it has
    /// all that it would like.
    #[must_use]
    pub fn policy_remark(&self) -> Option<String> {
        self.inner().hierarchy.policy_remark()
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
    /// Those of [`Engine::flush`], and while the map is being read; the tier then stays on.
    pub fn tier_off(&self, reason: &str) -> io::Result<()> {
        let _one = self.reshaping();
        self.must_be_loaded().map_err(io::Error::other)?;
        // Twice as often as it needs: where others write all the time, some page is always dirty.
        // What is left on flash then goes to base while they wait.
        let mut rounds = 2 * (self.dirty_pages() / BATCH as u64 + 1);
        if self.dirty_pages() > 0 {
            self.flush(|_| {
                rounds = rounds.saturating_sub(1);
                rounds > 0
            })?;
        }
        if self.is_off() || !self.has_flash {
            return Ok(());
        }
        // Still and empty: the batch that says so names no page, dirty or being read.
        let calmed = self.calm_down(true, false, &mut |_| true);
        let switched = calmed.map(|mut inner| {
            inner.off_reason = reason.to_string();
            self.decide(&mut inner, &[], |hierarchy, out| hierarchy.switch_off(out));
        });
        self.set_calm(Calm::Open);
        match switched {
            Ok(()) => self.commit_nothing(),
            Err(_) if self.is_off() => {} // it failed meanwhile
            Err(error) => return Err(io::Error::other(error.to_string())),
        }
        Ok(())
    }

    /// Uses flash again, from empty, after writing to it once. Nothing is done where it is in use.
    ///
    /// # Errors
    /// [`Error::NoTier`], [`Error::Loading`], [`Error::Fenced`], [`Error::CacheIo`] when the device
    /// still does not work, [`Error::Late`] while it has not answered what it was asked before,
    /// [`Error::StillInUse`] while pages that base has not wait for it, be it in memory or on
    /// flash, or a batch of the map.
    pub fn tier_on(&self) -> Result<(), Error> {
        let _one = self.reshaping();
        let flash = self.store().ok_or(Error::NoTier)?;
        self.must_be_loaded()?;
        if !self.is_off() {
            return Ok(());
        }
        // A map that starts anew knows nothing of writes that base may still lose.
        for object in self.all_objects() {
            self.sync_base(&object).map_err(|source| Error::BaseIo {
                path: object.name(),
                source,
            })?;
        }
        // A write that is late would arrive over what is written from now on.
        if let requests @ 1.. = flash.late() {
            let path = flash.name().into();
            return Err(Error::Late { path, requests });
        }
        let failed = self.inner().hierarchy.ledger().is_committing();
        if flash.is_poisoned() || failed {
            self.still_ours()?;
            self.renew(&flash)?;
        }
        self.still_ours()?;
        flash.mark_open()?;
        let mut inner = self.inner();
        // A batch that was being written when the tier went off may have failed meanwhile.
        if flash.is_poisoned() || !inner.hierarchy.switch_on() {
            let path = flash.name().into();
            return Err(Error::StillInUse { path });
        }
        inner.off_reason.clear();
        inner.forgiven = inner.hierarchy.counters().faults;
        Ok(())
    }

    /// Makes an empty cache of one that failed. Until that is durable its old map may still count,
    /// so the lease does too. While the tier is off nothing comes to flash.
    fn renew(&self, flash: &Store) -> Result<(), Error> {
        let in_use = || Error::StillInUse {
            path: flash.name().into(),
        };
        let inner = self.inner();
        let at_work = inner.commits.is_in_use() || inner.writers_at_work > 0;
        if at_work || !inner.hierarchy.is_idle() {
            return Err(in_use());
        }
        drop(inner);
        flash.renew(&|| self.fence_holds())?;
        let mut inner = self.inner();
        if !inner.hierarchy.forget_map() {
            return Err(in_use());
        }
        inner.commits.begin_anew();
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

    /// Panics unless hierarchy, write buffer and objects agree. O(slots).
    #[doc(hidden)]
    pub fn assert_invariants(&self) {
        let inner = self.inner();
        inner.hierarchy.assert_invariants();
        let staged = inner.hierarchy.staged() as usize;
        // A page that left while it was being written keeps its bytes until that write ends.
        let written = inner.hierarchy.being_written();
        assert!(inner.staged.len() >= staged.saturating_sub(written));
        assert!(inner.staged.len() <= staged + written);
        let slots = inner.hierarchy.slots();
        for slot in inner.staged.keys() {
            assert!(
                *slot < slots.capacity() + slots.keeps() + slots.reserve(),
                "staged for a slot of this tier"
            );
        }
        for object in self.objects.read().iter().flatten() {
            let resident = inner.hierarchy.resident_of(object.id);
            assert!(
                object.cached || resident == 0,
                "only cached objects have pages on flash"
            );
        }
        drop(inner);
        self.assert_table();
    }
}

//! An engine is made, and its threads are started.

use crate::engine::Engine;
use crate::error::Error;
use crate::files::pins::Pins;
use crate::files::registry::Registry;
use crate::frames::Frames;
use crate::lifecycle::background;
use crate::lifecycle::background::Signals;
use crate::lifecycle::load;
use crate::lifecycle::verify;
use crate::lock::{Condvar, Mutex, RwLock};
use crate::observe::histogram::Histogram;
use crate::request::ahead::{self, READERS};
use crate::settings::config::EngineConfig;
use crate::state::Inner;
use crate::store::Store;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};
use thermocline_core::hierarchy::{Hierarchy, HierarchyOptions};
use thermocline_core::policy::{PolicyOptions, TierPolicy};

/// What a thread of the engine does until the engine stops or is gone.
type ThreadBody = Box<dyn FnOnce(&Weak<Engine>) + Send>;

impl Engine {
    /// Starts an engine over `flash`, or over base alone. A store that was closed cleanly is
    /// warm at once; the pages of a file are believed only after its stamp was compared when
    /// it is opened.
    ///
    /// Base is to be durable before: pages read from it go to flash, where a power cut does not
    /// take them back.
    ///
    /// # Errors
    /// [`Error::Setting`], [`Error::Policy`], [`Error::PageSize`], [`Error::Threads`], and those of
    /// the store.
    pub fn start(config: EngineConfig, flash: Option<Store>) -> Result<Arc<Self>, Error> {
        config.check()?;
        // While the map is unread there is no slot.
        let read = flash.as_ref().filter(|flash| !flash.is_unread());
        let blocks = read.map_or(0, Store::blocks);
        let hierarchy = Hierarchy::new(&hierarchy_options(&config, blocks, &config.pins))?;
        Self::start_over(config, flash, hierarchy)
    }

    /// As [`Engine::start`], under a policy of the caller's own that `policy` builds;
    /// `config.policy` is then only what its counters are filed under.
    ///
    /// # Errors
    /// Those of [`Engine::start`].
    #[doc(hidden)]
    pub fn start_with_policy(
        config: EngineConfig,
        mut flash: Option<Store>,
        policy: impl FnOnce(&PolicyOptions) -> Box<dyn TierPolicy>,
    ) -> Result<Arc<Self>, Error> {
        config.check()?;
        if let Some(store) = &mut flash {
            // Such a policy is built once.
            store.read_now()?;
        }
        let blocks = flash.as_ref().map_or(0, Store::blocks);
        let options = hierarchy_options(&config, blocks, &config.pins);
        let policy = policy(&options.policy_options);
        let hierarchy = Hierarchy::with_policy(policy, &options)?;
        Self::start_over(config, flash, hierarchy)
    }

    pub(crate) fn start_over(
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
        config.check_memory()?;
        let found = flash.as_mut().and_then(Store::take_recovered);
        let unread = flash.as_mut().and_then(Store::take_unread);
        if let Some(store) = &flash {
            store.mark_open()?;
        }
        let engine = Arc::new(Self::assemble(config, flash, hierarchy));
        match (found, unread) {
            (Some(found), Some(unread)) => engine.restore_later(found, unread),
            (Some(found), None) => engine.restore(found),
            (None, _) => {}
        }
        engine.start_threads()?;
        Ok(engine)
    }

    fn assemble(config: EngineConfig, flash: Option<Store>, hierarchy: Hierarchy) -> Self {
        let registry = Registry::new(config.planted, &config.clients);
        Self {
            frames: Frames::new(config.page_size as usize, config.frames()),
            frame_count: config.frames(),
            started: config.clock.now(),
            started_ns: config.base_wall_ns(),
            pins: RwLock::new(config.pins.clone()),
            config,
            has_flash: flash.is_some(),
            flash: RwLock::new(flash.map(Arc::new)),
            reshaping: Mutex::new(()),
            inner: Mutex::new(Inner::new(hierarchy)),
            page_free: Condvar::new(),
            signals: Signals::default(),
            objects: RwLock::default(),
            open_objects: AtomicUsize::new(0),
            objects_most: AtomicUsize::new(usize::MAX),
            registry: Mutex::new(registry),
            recorder: RwLock::default(),
            recording: AtomicU32::new(0),
            latency: std::array::from_fn(|_| Histogram::default()),
            write_latency: Histogram::default(),
            read_bytes: AtomicU64::new(0),
            write_bytes: AtomicU64::new(0),
            bypassed: [AtomicU64::new(0), AtomicU64::new(0)],
            stale_objects: AtomicU32::new(0),
            unnamed_files: AtomicU32::new(0),
            restored_pages: AtomicU32::new(0),
            doubted_pages: AtomicU32::new(0),
            loader: Mutex::new(None),
            load_percent: AtomicU32::new(0),
            load_lost: Mutex::default(),
            threads: Mutex::default(),
            steps: AtomicU64::new(0),
            fence: OnceLock::new(),
        }
    }

    /// All of them: without a writer, who waits for room in the write buffer would wait for ever.
    fn start_threads(self: &Arc<Self>) -> Result<(), Error> {
        debug_assert!(self.threads.lock().is_empty(), "they are started once");
        for (name, work) in self.threads_wanted() {
            // Weak: the threads must not keep a forgotten engine alive.
            let engine = Arc::downgrade(self);
            let thread = crate::lock::thread::Builder::new().name(name);
            match thread.spawn(move || work(&engine)) {
                Ok(thread) => self.threads.lock().push(thread),
                Err(source) => {
                    self.end_threads();
                    return Err(Error::Threads { source });
                }
            }
        }
        Ok(())
    }

    /// The names of the threads that the engine works with, and what they do.
    fn threads_wanted(&self) -> Vec<(String, ThreadBody)> {
        if self.config.inline {
            return Vec::new();
        }
        let paged = self.has_flash || self.frame_count > 0;
        let readers = if paged && self.config.read_ahead > 0 {
            READERS
        } else {
            0
        };
        let mut all: Vec<(String, ThreadBody)> = Vec::new();
        for number in 0..readers {
            all.push((format!("tc-ahead-{number}"), Box::new(ahead::run_reader)));
        }
        if !self.has_flash {
            return all;
        }
        for number in 0..self.config.writers_max {
            let work = move |engine: &Weak<Self>| background::run_writer(engine, number);
            all.push((format!("tc-writer-{number}"), Box::new(work)));
        }
        all.push(("tc-commit".into(), Box::new(background::run_committer)));
        all.push(("tc-clean".into(), Box::new(background::run_cleaner)));
        all.push(("tc-destage".into(), Box::new(background::run_destager)));
        let inner = self.inner();
        if inner.hierarchy.is_loading() {
            all.push(("tc-load".into(), Box::new(load::run_loader)));
        } else if inner.hierarchy.doubts() > 0 {
            all.push(("tc-verify".into(), Box::new(verify::run_verifier)));
        }
        all
    }
}

pub(crate) fn hierarchy_options(
    config: &EngineConfig,
    blocks: u32,
    pins: &Pins,
) -> HierarchyOptions {
    let shares = config.shares(blocks);
    let keeps = pins.slots_of(shares.slots);
    HierarchyOptions {
        policy: config.policy.clone(),
        policy_options: config.policy_options(shares.slots - keeps),
        frames: config.frames(),
        pool_policy: config.pool_policy.clone(),
        buffer_pages: config.write_buffer_pages,
        blocks,
        reserve: shares.reserve,
        reserve_as_flash: false,
        keeps,
        write_back: config.write_back,
        buffers: false,
        watermarks: config.dirty.watermarks(),
        recovery_age: match config.inline {
            true => RECOVERY_STEPS,
            false => (config.dirty.recovery_s * 1000.0) as u64,
        },
    }
}

/// Age in background steps at which a dirty frame is cleaned where there are no threads.
const RECOVERY_STEPS: u64 = 40;

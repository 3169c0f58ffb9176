//! The map of a large cache is read while requests are served.
//!
//! After a clean stop with no page dirty a start does not wait for the map (`store/later.rs`). The
//! engine runs with a tier without slots: everything is read from base and written to it, and
//! nothing comes to flash. Beside it the map is read, and tables are built of it; then the tier
//! takes them over in one short step (`core/src/hierarchy/load.rs`), without what was touched
//! meanwhile.
//!
//! Meanwhile the cache is open like any other, and takes batches: base is written under a lease and
//! under marks of its regions (rule R1), which all stay on until the map was read. So a crash is
//! like any other: what was written is in doubt then, and the next start reads the map before it
//! serves anybody. A stop leaves the marks in the table of a clean cache, and the next start
//! compares what they cover. A file whose pages all go leaves the table, so that nothing the map
//! says of it counts.
//!
//! # States
//! *Reading* → *read* (leftovers are gone from the map, durably) → *built* → *over*. From any
//! state: a device that fails, or a map that cannot be read, ends it with a tier that is off; a
//! stop leaves it where it is.
//!
//! # Invariants
//! 1. Until it is over no batch names a page, or an object that was not found at the start.

use crate::engine::Engine;
use crate::error::Error;
use crate::lifecycle::restart::{Fill, Found};
use crate::lifecycle::start::hierarchy_options;
use crate::lifecycle::verify;
use crate::mutant::Mutant;
use crate::store::{Loaded, Lost, Recovered, Store, Unread};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use thermocline_core::Fault;
use thermocline_core::hierarchy::{Hierarchy, HierarchyOptions};

/// Per cent of the time that reading takes; the rest is building.
const READING: u64 = 40;
/// Entries that are built in between two looks at whether the engine stops.
const PART: usize = 1 << 18;
/// Pages and ranges touched that are few enough to be carried out under the engine's lock.
const FEW: usize = 1000;
/// How often more than these are carried out beside it.
const ROUNDS: u32 = 100;

/// How far it is; see the module text.
enum Stage {
    Reading(Box<Unread>),
    Read(Loaded),
    Built(Box<Hierarchy>),
}

/// A map being read, and what was found before it.
pub(crate) struct Loader {
    stage: Stage,
    found: Arc<Found>,
}

impl Engine {
    /// Takes over what was found, but for the map, which [`Engine::load_some`] reads.
    pub(crate) fn restore_later(&self, found: Recovered, unread: Unread) {
        let (entries, found) = Found::of(found);
        assert!(entries.is_empty(), "the map is unread");
        self.register(&found);
        let mut inner = self.inner();
        let hierarchy = &mut inner.hierarchy;
        hierarchy.mark_pinned(&self.pinned_among(&found.objects));
        // A ledger without blocks keeps what it knows of base.
        hierarchy.restored(found.next_version, found.intents.iter().copied());
        hierarchy.begin_load(found.objects.iter().map(|object| object.id));
        if self.config.planted == Mutant::MarksForgotten {
            hierarchy.ledger_mut().keep_marks(false);
        }
        self.note_found(&mut inner, found.clone());
        drop(inner);
        let stage = Stage::Reading(Box::new(unread));
        *self.loader.lock() = Some(Loader {
            stage,
            found: Arc::new(found),
        });
    }

    /// How much of the map has been read, in per cent, while it is being read.
    #[must_use]
    pub fn loading(&self) -> Option<u32> {
        let loading = self.inner().hierarchy.is_loading();
        loading.then(|| self.load_percent.load(Ordering::Relaxed))
    }

    /// What of a map could not be read that was read after the start; nothing before that is over.
    #[doc(hidden)]
    #[must_use]
    pub fn lost_in_map(&self) -> Vec<Lost> {
        self.load_lost.lock().clone()
    }

    /// # Errors
    /// [`Error::Loading`] while the map is being read: the tier's size and place are then as they
    /// were found.
    pub(crate) fn must_be_loaded(&self) -> Result<(), Error> {
        match self.loading() {
            None => Ok(()),
            Some(percent) => Err(Error::Loading {
                path: self.cache_name(),
                percent,
            }),
        }
    }

    /// Does one step of reading the map; false when there is none to do.
    pub(crate) fn load_some(&self) -> bool {
        let mut loader = self.loader.lock();
        if self.inner().stopping {
            return false;
        }
        let Some(Loader { stage, found }) = loader.take() else {
            return false;
        };
        if self.is_off() {
            return self.give_up_load("the tier is off");
        }
        let next = match self.load_on(stage, &found) {
            Ok(Some(stage)) => Some(Loader { stage, found }),
            Ok(None) => None,
            // The engine stops.
            Err(why) if why.kind() == io::ErrorKind::Interrupted => return false,
            Err(why) => return self.give_up_load(&why.to_string()),
        };
        *loader = next;
        true
    }

    fn load_on(&self, stage: Stage, found: &Found) -> io::Result<Option<Stage>> {
        let store = self.store();
        let store = store.ok_or_else(|| io::Error::other("there is no flash device"))?;
        match stage {
            Stage::Reading(mut unread) => {
                let last = store.read_some(&mut unread)?;
                let (done, all) = unread.progress();
                let percent = done * READING / all.max(1);
                self.load_percent.store(percent as u32, Ordering::Relaxed);
                if !last {
                    return Ok(Some(Stage::Reading(unread)));
                }
                self.may_write_flash()?;
                let loaded = store.end_read(*unread, &|| !self.inner().stopping)?;
                Ok(Some(Stage::Read(loaded)))
            }
            Stage::Read(loaded) => {
                self.load_lost.lock().clone_from(&loaded.lost);
                let built = self.build(&store, loaded, found)?;
                Ok(Some(Stage::Built(Box::new(built))))
            }
            Stage::Built(built) => Ok(self.end_load(built).map(Stage::Built)),
        }
    }

    fn load_options(&self, store: &Store) -> HierarchyOptions {
        hierarchy_options(&self.config, store.blocks(), &self.pins())
    }

    /// The hierarchy that the map makes.
    fn build(&self, store: &Store, loaded: Loaded, found: &Found) -> io::Result<Hierarchy> {
        let options = HierarchyOptions {
            policy: self.policy_asked(),
            // It gets those that there are.
            frames: 0,
            ..self.load_options(store)
        };
        let mut built = Hierarchy::new(&options).map_err(io::Error::other)?;
        built.mark_pinned(&self.pinned_among(&found.objects));
        let mut fill = Fill::of(found);
        let all = loaded.entries.len().max(1) as u64;
        for (at, part) in loaded.entries.chunks(PART).enumerate() {
            if self.inner().stopping {
                return Err(io::ErrorKind::Interrupted.into());
            }
            fill.add(&mut built, part);
            let done = (at * PART) as u64 * (100 - READING) / all;
            let percent = (READING + done) as u32;
            self.load_percent.store(percent, Ordering::Relaxed);
        }
        fill.end(&mut built, loaded.next_version);
        Ok(built)
    }

    /// The tier takes over what was built; gives it back while a batch is under way.
    fn end_load(&self, mut built: Box<Hierarchy>) -> Option<Box<Hierarchy>> {
        for _ in 0..ROUNDS {
            let mut inner = self.inner();
            let policy = inner.hierarchy.policy_asked().to_string();
            if inner.hierarchy.touched() <= FEW && built.policy_asked() == policy {
                break;
            }
            let touched = inner.hierarchy.take_touched();
            drop(inner);
            built.forget_touched(&touched);
            // One that was chosen meanwhile has been built before.
            let _ = built.follow_policy(&policy);
        }
        let mut inner = self.inner();
        let followed = inner.hierarchy.policy_asked() == built.policy_asked();
        if inner.commits.is_under_way() || !followed {
            if !self.config.inline {
                drop(self.wait_a_moment(inner));
            }
            return Some(built);
        }
        let blocks = inner.hierarchy.ledger().blocks();
        assert_eq!(blocks, 0, "invariant 1: there was nothing to name");
        if self.config.planted == Mutant::TouchedKept {
            inner.hierarchy.take_touched();
        }
        let ended = self.decide(&mut inner, &[], |hierarchy, out| {
            hierarchy.end_load(*built, out)
        });
        if let Err(built) = ended {
            return Some(built);
        }
        let (restored, doubted) = (inner.hierarchy.on_flash(), inner.hierarchy.doubts());
        self.restored_pages.store(restored, Ordering::Relaxed);
        self.doubted_pages.store(doubted, Ordering::Relaxed);
        drop(inner);
        self.page_free.notify_all();
        None
    }

    /// The map cannot be read, or the device has failed: the tier is off, and what the cache says
    /// is not to be believed. True: that was a step.
    fn give_up_load(&self, why: &str) -> bool {
        let Some(store) = self.store() else {
            return false;
        };
        store.poison(why);
        let mut inner = self.inner();
        if !inner.hierarchy.is_off() {
            self.decide(&mut inner, &[], |hierarchy, out| {
                hierarchy.fail(Fault::ReadError, out);
            });
            inner.off_reason = format!("the map could not be read: {why}");
        }
        // Nothing new is made while the tier is off.
        while inner.commits.is_under_way() {
            inner = self.wait_a_moment(inner);
        }
        let options = self.load_options(&store);
        let given_up = self.decide(&mut inner, &[], |hierarchy, out| {
            hierarchy.give_up_load(&options, out)
        });
        debug_assert_eq!(given_up, Ok(()), "the policy in force can be built");
        drop(inner);
        self.page_free.notify_all();
        true
    }
}

/// The life of the thread that reads the map; then copies in doubt are compared by it.
pub(crate) fn run_loader(engine: &Weak<Engine>) {
    while let Some(engine) = engine.upgrade() {
        if !engine.load_some() {
            break;
        }
    }
    verify::run_verifier(engine);
}

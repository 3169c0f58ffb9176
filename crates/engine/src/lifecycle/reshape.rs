//! Making the cache of a running engine longer or shorter, or another one.
//!
//! The hierarchy is brought to rest step by step ([`Calm`]), gets its new shape under the lock, and
//! goes on. Requests wait for the last steps only:
//!
//! | step      | what happens                                   | who waits                     |
//! |-----------|------------------------------------------------|-------------------------------|
//! | *through* | dirty pages on flash go to base, most of them  | nobody                        |
//! | *closed*  | the last of them; the write buffer runs empty  | new writes                    |
//! | *still*   | reads of flash under way end; the new shape    | and reads of pages on flash   |
//!
//! *Longer*: the store grows, then *still*. *Shorter*: all steps; then, while requests go on, a
//! commit that empties the blocks past the new end, the store, and the ledger. *Another*: all
//! steps; then the old cache says durably that it holds nothing, or the lease under which base may
//! be written runs out (see `commit.rs`), and the new one takes its place.
//!
//! # Invariants
//! 1. No block past the new end of a store is written, and no durable entry names one, from before
//!    [`Store::resize`] on.
//! 2. From the moment base is written under the map of the new cache, no map of the old one is
//!    believed.

use crate::engine::Engine;
use crate::error::Error;
use crate::lifecycle::start::hierarchy_options;
use crate::lock::MutexGuard;
use crate::state::Inner;
use crate::store::Store;
use crate::writeback::destage::BATCH;
use crate::writeback::flush::FlushProgress;
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use thermocline_core::hierarchy::HierarchyOptions;
use thermocline_core::writers::WriterPace;
use thermocline_core::{Calm, ObjectId, PageId};

/// Batches that base may refuse one after another before that is taken for an answer.
const PATIENCE: u32 = 3;

/// Told now and then how many pages are still to be written back; false ends it.
type Progress<'a> = dyn FnMut(FlushProgress) -> bool + 'a;

impl Engine {
    pub(crate) fn reshaping(&self) -> MutexGuard<'_, ()> {
        self.reshaping.lock()
    }

    /// Makes the cache `length` bytes long while requests go on; the number of blocks after that.
    /// A shorter one has its dirty pages written back before, and loses the pages in the blocks
    /// that go. Either way the policy starts anew with the pages that stay, as in
    /// [`Engine::set_policy`]. Costs O(blocks), a copy of the map, and for less length a flush.
    ///
    /// # Errors
    /// [`Error::NoTier`], [`Error::Loading`], [`Error::TierOff`], those of [`Store::resize`],
    /// [`Error::Unsaved`] and [`Error::WriteBack`] when dirty pages are in the way,
    /// [`Error::Fenced`], [`Error::LateWrite`], [`Error::Stopped`] when `progress` said so. The
    /// tier then has the size it had.
    pub fn resize(
        &self,
        length: u64,
        mut progress: impl FnMut(FlushProgress) -> bool,
    ) -> Result<u32, Error> {
        let _one = self.reshaping();
        let store = self.store().ok_or(Error::NoTier)?;
        self.must_be_on()?;
        let blocks = store.resizable(length)?;
        self.still_ours()?;
        let options = hierarchy_options(&self.config, blocks, &self.pins());
        match length.cmp(&store.length()) {
            // Not after a change that failed: the tier may have another shape than the store.
            Ordering::Equal if self.inner().hierarchy.is_shaped(&options) => {}
            Ordering::Equal => self.reshape(blocks, false, &mut progress)?,
            Ordering::Greater => {
                store.resize_while(length, &|| self.fence_holds())?;
                self.reshape(blocks, false, &mut progress)?;
            }
            Ordering::Less => self.shrink(&store, length, blocks, &mut progress)?,
        }
        debug_assert_eq!(store.blocks(), blocks, "as was foreseen");
        Ok(blocks)
    }

    /// On, and its map read.
    pub(crate) fn must_be_on(&self) -> Result<(), Error> {
        self.must_be_loaded()?;
        self.tier_state()
            .map_err(|reason| Error::TierOff { reason })
    }

    pub(crate) fn shrink(
        &self,
        store: &Store,
        length: u64,
        blocks: u32,
        progress: &mut Progress<'_>,
    ) -> Result<(), Error> {
        let before = store.blocks();
        debug_assert!(blocks <= before, "a shorter cache has fewer blocks");
        self.reshape(blocks, true, progress)?;
        let emptied = self.empty_retired(store);
        let resized = emptied.and_then(|()| {
            let retired = self.inner().hierarchy.ledger().is_retired();
            assert!(retired, "invariant 1: nothing lies past the new end");
            store.resize_while(length, &|| self.fence_holds())
        });
        match resized {
            Ok(left) => {
                self.inner().hierarchy.ledger_mut().resize(left);
                Ok(())
            }
            Err(error) => {
                // Back to what the store still is; nothing there is worse than a smaller tier.
                let _ = self.reshape(before, false, progress);
                Err(error)
            }
        }
    }

    /// Makes durable that the blocks past the new end hold nothing.
    pub(crate) fn empty_retired(&self, store: &Store) -> Result<(), Error> {
        let failed = |source| Error::CacheIo {
            path: store.name().into(),
            source,
        };
        self.commit().map_err(failed)?;
        match self.inner().hierarchy.ledger().is_retired() {
            true => Ok(()),
            false => Err(Error::StillInUse {
                path: store.name().into(),
            }),
        }
    }

    /// Gives the hierarchy `blocks` blocks; with `empty`, after every dirty page left flash.
    pub(crate) fn reshape(
        &self,
        blocks: u32,
        empty: bool,
        progress: &mut Progress<'_>,
    ) -> Result<(), Error> {
        self.shape(blocks, empty, &[], progress)
    }

    /// The same, once every dirty page left flash, with these objects pinned, or not any more.
    pub(crate) fn reshape_pinned(
        &self,
        blocks: u32,
        pinned: &[(ObjectId, bool)],
        progress: &mut Progress<'_>,
    ) -> Result<(), Error> {
        self.shape(blocks, true, pinned, progress)
    }

    fn shape(
        &self,
        blocks: u32,
        empty: bool,
        pinned: &[(ObjectId, bool)],
        progress: &mut Progress<'_>,
    ) -> Result<(), Error> {
        let options = hierarchy_options(&self.config, blocks, &self.pins());
        let calmed = self.calm_down(empty, false, progress);
        let reshaped = calmed.and_then(|mut inner| {
            if inner.hierarchy.ledger().has_taken(blocks) {
                // No write is under way, so these have failed.
                let path = self.cache_name();
                return Err(Error::LateWrite { path });
            }
            inner.hierarchy.mark_pinned(pinned);
            let reshaped = self.decide(&mut inner, &[], |hierarchy, out| {
                hierarchy.reshape(&options, out)
            });
            reshaped.map_err(Error::from)
        });
        self.set_calm(Calm::Open);
        match reshaped? {
            true => Ok(()),
            false => Err(Error::StillInUse {
                path: self.cache_name(),
            }),
        }
    }

    /// Puts another cache, just made, in the place of the one there is, while requests go on. Every
    /// dirty page is written back before; the tier starts cold, and is on. The old cache is left
    /// empty where its device works; where it does not, this takes as long as a lease, and the old
    /// cache refuses files that were changed since, should it come back.
    ///
    /// # Errors
    /// [`Error::NoTier`]; [`Error::Loading`]; [`Error::PageSize`]; [`Error::StillInUse`] when
    /// `store` holds pages; [`Error::Fenced`]; those of its device; [`Error::Unsaved`],
    /// [`Error::WriteBack`], [`Error::Stopped`] as in [`Engine::resize`]. The old cache is then
    /// as it was, without dirty pages.
    pub fn replace(
        &self,
        store: Store,
        mut progress: impl FnMut(FlushProgress) -> bool,
    ) -> Result<(), Error> {
        let _one = self.reshaping();
        let old = self.store().ok_or(Error::NoTier)?;
        self.must_be_loaded()?;
        self.check_new(&store)?;
        self.still_ours()?;
        store.mark_open()?;
        let options = hierarchy_options(&self.config, store.blocks(), &self.pins());
        let seized = self.seize(&options, &mut progress);
        if let Err(error) = seized {
            self.set_calm(Calm::Open);
            return Err(error);
        }
        // The new map knows nothing of writes that base may still lose; what fails is doubted.
        for object in self.all_objects() {
            let _ = self.sync_base(&object);
        }
        // Nothing uses the old cache now, and base is written only with leave given before: the
        // map of the new one gives none until it can be committed.
        // Whoever took base over meanwhile may serve from the old one.
        if old.renew(&|| self.fence_holds()).is_err() {
            self.outlast();
        }
        let mut inner = self.inner();
        assert!(
            inner.commits.is_under_way(),
            "invariant 2: no batch of the old map is made any more"
        );
        let mut flash = self.flash.write();
        *flash = Some(Arc::new(store));
        drop(flash);
        inner.commits.moved();
        inner.pace = WriterPace::default();
        inner.off_reason.clear();
        inner.forgiven = inner.hierarchy.counters().faults;
        drop(inner);
        self.set_calm(Calm::Open);
        Ok(())
    }

    pub(crate) fn check_new(&self, store: &Store) -> Result<(), Error> {
        if store.page_size() != self.config.page_size {
            return Err(Error::PageSize {
                path: store.name().into(),
                found: store.page_size(),
                wanted: self.config.page_size,
            });
        }
        match store.recovered() {
            None => Ok(()),
            Some(_) => Err(Error::StillInUse {
                path: store.name().into(),
            }),
        }
    }

    /// Empties the hierarchy for a new device, and keeps commits from being made.
    pub(crate) fn seize(
        &self,
        options: &HierarchyOptions,
        progress: &mut Progress<'_>,
    ) -> Result<(), Error> {
        let mut inner = self.calm_down(true, true, progress)?;
        let started = self.decide(&mut inner, &[], |hierarchy, out| {
            hierarchy.start_over(options, out)
        })?;
        if !started {
            let path = self.cache_name();
            return Err(Error::StillInUse { path });
        }
        inner.commits.seize();
        Ok(())
    }

    /// Brings the hierarchy to *still*, with `empty` without dirty pages on flash and no commit
    /// under way. `off`: also when the tier is off.
    pub(crate) fn calm_down(
        &self,
        empty: bool,
        off: bool,
        progress: &mut Progress<'_>,
    ) -> Result<MutexGuard<'_, Inner>, Error> {
        if empty {
            self.set_calm(Calm::Through);
            self.empty_flash(BATCH as u32, progress)?;
            self.set_calm(Calm::Closed);
            self.empty_flash(0, progress)?;
        }
        self.set_calm(Calm::Still);
        let mut inner = self.inner();
        loop {
            if !off && inner.hierarchy.is_off() {
                let reason = inner.off_reason.clone();
                return Err(Error::TierOff { reason });
            }
            if inner.hierarchy.is_still() && !inner.commits.is_under_way() {
                debug_assert!(!empty || inner.hierarchy.slots().dirty() == 0);
                return Ok(inner);
            }
            inner = self.wait_for_room(inner);
        }
    }

    /// Destages until no more than `few` pages on flash are dirty, or twice as many were destaged
    /// as there were: a page that is written again and again is dirty again and again.
    pub(crate) fn empty_flash(&self, few: u32, progress: &mut Progress<'_>) -> Result<(), Error> {
        self.ask_again(|_| true);
        let total = u64::from(self.inner().hierarchy.slots().dirty());
        let (mut done, mut refused) = (0, 0);
        loop {
            let mut inner = self.inner();
            let dirty = inner.hierarchy.slots().dirty();
            let lost: BTreeSet<PageId> = inner.hierarchy.lost().into_iter().collect();
            if !lost.is_empty() {
                drop(inner);
                return Err(self.unsaved(&lost));
            }
            if dirty <= few || (few > 0 && done > total * 2) {
                return Ok(());
            }
            let left = u64::from(dirty);
            let total = total.max(left);
            if !progress(FlushProgress { total, left }) {
                return Err(Error::Stopped);
            }
            let jobs = inner.hierarchy.next_destage(BATCH, None);
            if jobs.is_empty() {
                drop(self.wait_for_room(inner));
                continue;
            }
            drop(inner);
            done += jobs.len() as u64;
            refused = match self.destage_or_wait(jobs) {
                Ok(()) => 0,
                Err(source) => self.bear(refused + 1, source)?,
            };
        }
    }

    fn unsaved(&self, lost: &BTreeSet<PageId>) -> Error {
        debug_assert!(!lost.is_empty(), "there is something to name");
        let (path, pages) = (self.cache_name(), lost.len() as u64);
        let files = self.in_words(lost);
        Error::Unsaved { path, pages, files }
    }

    /// Why base is not whole after [`Engine::flush`] failed with `source`: pages that flash does
    /// not give are named.
    pub fn not_whole(&self, source: io::Error) -> Error {
        let lost: BTreeSet<PageId> = self.inner().hierarchy.lost().into_iter().collect();
        let pages = self.dirty_pages();
        match lost.is_empty() {
            true => Error::WriteBack { pages, source },
            false => self.unsaved(&lost),
        }
    }

    /// The failures in a row so far, when they are few enough to try once more.
    pub(crate) fn bear(&self, refused: u32, source: io::Error) -> Result<u32, Error> {
        let pages = self.dirty_pages();
        match refused < PATIENCE {
            true => Ok(refused),
            false => Err(Error::WriteBack { pages, source }),
        }
    }

    pub(crate) fn set_calm(&self, calm: Calm) {
        let mut inner = self.inner();
        self.decide(&mut inner, &[], |hierarchy, out| {
            hierarchy.set_calm(calm, out)
        });
        drop(inner);
        // Readers and writers that were told to wait, and whoever has work again.
        self.page_free.notify_all();
        self.signals.wake_committed();
        self.signals.wake_all();
    }
}

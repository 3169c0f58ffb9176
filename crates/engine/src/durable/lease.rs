//! When base may be written: rules R1 and R2 of `docs/write-back.md`, and the lease.
//!
//! After a crash a file that was changed later than [`LEASE`] after the newest batch is taken to
//! have been changed behind the tier's back. So base is written only within that time of a commit
//! (less two seconds for slow I/O), and whoever is late commits first. When the device has failed,
//! base is written only after the lease has run out: should the device come back after a restart,
//! its copies are then seen to be older. The newer time of a file is durable on base before its
//! first bytes are written: a power failure may keep bytes and take the time back.

use crate::engine::Engine;
use crate::files::object::Object;
use crate::state::Inner;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use thermocline_core::hierarchy::DestageJob;
use thermocline_core::ledger::Ledger;
use thermocline_core::{Hierarchy, ObjectId, PageId};

/// See the module text.
pub const LEASE: Duration = Duration::from_secs(6);

/// How long before its end a lease is no longer used.
pub(crate) const MARGIN: Duration = Duration::from_secs(2);

/// Whoever waits for the lease to end waits this much longer: file systems give times by a clock
/// that is some hundredths of a second behind.
const TICKS: Duration = Duration::from_millis(100);

/// Where base is about to be changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change<'a> {
    /// At these pages.
    Pages(&'a [PageId]),
    /// Anywhere in this object.
    Whole(ObjectId),
    /// At these dirty pages, which get the bytes that the map names. Nothing ends with it.
    Destage(&'a [DestageJob]),
}

impl Change<'_> {
    fn marks(self) -> bool {
        !matches!(self, Self::Pages([]) | Self::Destage(_))
    }

    fn intend(self, ledger: &mut Ledger) {
        match self {
            Self::Pages(pages) => pages.iter().for_each(|page| ledger.intend(*page)),
            Self::Whole(object) => ledger.intend_all(object),
            Self::Destage(_) => {}
        }
    }

    fn is_allowed(self, hierarchy: &Hierarchy) -> bool {
        let ledger = hierarchy.ledger();
        match self {
            Self::Pages(pages) => pages.iter().all(|page| ledger.may_write_base(*page)),
            Self::Whole(object) => ledger.may_write_base_all(object),
            Self::Destage(jobs) => jobs.iter().all(|job| hierarchy.may_destage(job)),
        }
    }

    fn end(self, ledger: &mut Ledger) {
        match self {
            Self::Pages(pages) => pages.iter().for_each(|page| ledger.base_written(*page)),
            Self::Whole(object) => ledger.base_written_all(object),
            Self::Destage(_) => {}
        }
    }
}

impl Engine {
    /// Waits until base may be written at `pages` (rules R1 and R2, and the lease); matched by
    /// [`Engine::base_written`]. While the tier is off, waits for the lease to end, once.
    pub(crate) fn before_base_write(&self, object: &Object, pages: &[PageId]) {
        self.before(object, Change::Pages(pages));
    }

    /// As [`Engine::before_base_write`], for a change of what is known of a file that perhaps
    /// nobody has open.
    pub(crate) fn before_metadata(&self) {
        self.wait_for_lease(Change::Pages(&[]));
    }

    /// The base writes of `pages` ended, well or not.
    pub(crate) fn base_written(&self, pages: &[PageId]) {
        self.after(Change::Pages(pages));
    }

    /// As [`Engine::before_base_write`]; matched by [`Engine::after`].
    pub(crate) fn before(&self, object: &Object, change: Change<'_>) {
        if let Some(failed) = self.wait_for_lease(change) {
            self.show_newer(object, failed);
        }
    }

    /// When the device has failed: when its newest batch was made.
    fn wait_for_lease(&self, change: Change<'_>) -> Option<Duration> {
        if !self.has_flash {
            return None;
        }
        if change.marks() {
            self.spare_marks();
        }
        let mut inner = self.inner();
        change.intend(inner.hierarchy.ledger_mut());
        inner.commits.base_written = true;
        loop {
            let off = inner.hierarchy.is_off();
            let lease = inner.commits.has_lease(self.config.clock.now());
            if off {
                drop(inner);
                if let Some(outlasted) = self.outlast_off() {
                    return outlasted;
                }
                inner = self.inner();
                continue;
            }
            if lease && change.is_allowed(&inner.hierarchy) {
                return None;
            }
            drop(inner);
            // A failed commit switches the tier off.
            let _ = self.commit();
            inner = self.inner();
        }
    }

    /// Takes marks of regions back, before there are more than the map on flash can hold: syncs
    /// the files that have some. Marks that stay are looked at again when an eighth is added.
    fn spare_marks(&self) {
        let count = |inner: &Inner| inner.hierarchy.ledger().intents();
        {
            let inner = self.inner();
            if count(&inner) < inner.commits.spare_marks_at || inner.hierarchy.is_off() {
                return;
            }
        }
        self.wait_for_marks();
        let Some(most) = self.store().map(|store| store.intent_limit()) else {
            return;
        };
        if count(&self.inner()) >= most / 2 {
            let objects: Vec<Arc<Object>> = self.objects.read().iter().flatten().cloned().collect();
            for object in objects {
                let marked = self.inner().hierarchy.ledger().has_intents(object.id);
                // A sync that failed is told to the next who syncs, and its marks stay.
                let _ = marked.then(|| self.sync_base(&object));
            }
        }
        let mut inner = self.inner();
        inner.hierarchy.ledger_mut().forget_quiet();
        inner.commits.spare_marks_at = (most / 2).max(count(&inner) + most / 8);
    }

    /// Marks are not taken back while the map is being read: when they get many, waits for that.
    fn wait_for_marks(&self) {
        let Some(most) = self.store().map(|store| store.intent_limit()) else {
            return;
        };
        loop {
            let inner = self.inner();
            let loading = inner.hierarchy.is_loading() && !inner.hierarchy.is_off();
            if !loading || inner.stopping || inner.hierarchy.ledger().intents() < most / 2 {
                return;
            }
            if self.config.inline {
                drop(inner);
                self.load_some();
            } else {
                drop(self.wait_a_moment(inner));
            }
        }
    }

    /// Sleeps until the last lease has certainly run out; says when it began.
    pub(crate) fn outlast(&self) -> Option<Duration> {
        self.outlast_while(|_| true).flatten()
    }

    /// As [`Engine::outlast`] while the tier is off. `None`: it is on again; leases are renewed as
    /// long as there is work, and this would wait for the end of it.
    fn outlast_off(&self) -> Option<Option<Duration>> {
        self.outlast_while(|inner| inner.hierarchy.is_off())
    }

    fn outlast_while(&self, goes_on: impl Fn(&Inner) -> bool) -> Option<Option<Duration>> {
        let mut inner = self.inner();
        while let Some(newest) = inner.commits.newest_or_found() {
            if !goes_on(&inner) {
                return None;
            }
            let left = (LEASE + TICKS).saturating_sub(self.config.clock.now() - newest);
            if left.is_zero() {
                return Some(Some(newest));
            }
            if self.config.inline {
                drop(inner);
                self.config.clock.pass(left);
                return Some(Some(newest));
            }
            let waited = self.page_free.wait_timeout(inner, left);
            inner = waited;
        }
        Some(None)
    }

    /// Makes a time of the file durable that is later than the lease of the batch made at
    /// `newest`, once.
    fn show_newer(&self, object: &Object, newest: Duration) {
        let mut shown = object.shown_newer.lock();
        if *shown != Some(newest) {
            // A base that refuses it, too, has failed besides flash: a sync says so.
            let touch = || object.own_change(|| (object.touch)(None));
            let touched = self.check_fence().and_then(|()| touch());
            let synced = touched.and_then(|()| self.sync_base_now(object, false));
            *shown = synced.is_ok().then_some(newest);
        }
    }

    /// The change of base announced by [`Engine::before`] ended, well or not.
    pub(crate) fn after(&self, change: Change<'_>) {
        if self.has_flash {
            let mut inner = self.inner();
            change.end(inner.hierarchy.ledger_mut());
            // It may have taken longer than a batch is waited for.
            inner.commits.base_written = true;
        }
    }

    /// Writes base for the tier's own reasons, announced by [`Engine::before`]. However long base
    /// takes for it, the file's time of change is set within a lease: it is set once more when the
    /// write has ended.
    pub(crate) fn write_quietly(&self, object: &Object, bytes: &[u8], at: u64) -> io::Result<()> {
        object.change_quietly(|base| {
            let written = base.write_at(bytes, at);
            self.renew_lease();
            written
        })
    }

    /// Makes a commit where there is no lease any more, while the tier is on.
    fn renew_lease(&self) {
        let late = {
            let mut inner = self.inner();
            inner.commits.base_written = true;
            let off = !self.has_flash || inner.hierarchy.is_off();
            !off && !inner.commits.has_lease(self.config.clock.now())
        };
        if late {
            // A failed commit switches the tier off.
            let _ = self.commit();
        }
    }
}

//! When base may be written: rules R1 and R2 of `docs/write-back.md`, and the lease.
//!
//! After a crash a file that was changed later than [`LEASE`] after the newest batch is taken to
//! have been changed behind the tier's back. So base is written only within that time of a commit
//! (less two seconds for slow I/O), and whoever is late commits first. When the device has failed,
//! base is written only after the lease has run out: should the device come back after a restart,
//! its copies are then seen to be older.

use crate::engine::Engine;
use std::time::Duration;
use thermocline_core::PageId;

/// See the module text.
pub const LEASE: Duration = Duration::from_secs(6);

/// How long before its end a lease is no longer used.
pub(crate) const MARGIN: Duration = Duration::from_secs(2);

/// How much longer than the lease is waited for its end: file systems give times by a clock that
/// is some hundredths of a second behind.
const TICKS: Duration = Duration::from_millis(100);

impl Engine {
    /// Waits until base may be written at `pages` (rules R1 and R2, and the lease); matched by
    /// [`Engine::base_written`]. While the tier is off, waits for the lease to end, once.
    pub(crate) fn before_base_write(&self, pages: &[PageId]) {
        if !self.has_flash {
            return;
        }
        let mut inner = self.inner();
        for page in pages {
            inner.hierarchy.ledger_mut().intend(*page);
        }
        inner.commits.base_written = true;
        loop {
            let off = inner.hierarchy.is_off();
            let lease = inner.commits.has_lease(self.config.clock.now());
            let ledger = inner.hierarchy.ledger();
            if off {
                drop(inner);
                return self.outlast();
            }
            if lease && pages.iter().all(|page| ledger.may_write_base(*page)) {
                return;
            }
            drop(inner);
            // A failed commit switches the tier off.
            let _ = self.commit();
            inner = self.inner();
        }
    }

    /// Sleeps until the last lease has certainly run out.
    pub(crate) fn outlast(&self) {
        let mut inner = self.inner();
        while let Some(newest) = inner.commits.newest {
            let left = (LEASE + TICKS).saturating_sub(self.config.clock.now() - newest);
            if left.is_zero() {
                return;
            }
            if self.config.inline {
                return self.config.clock.pass(left);
            }
            let waited = self.page_free.wait_timeout(inner, left);
            inner = waited;
        }
    }

    /// The base writes of `pages` ended, well or not.
    pub(crate) fn base_written(&self, pages: &[PageId]) {
        if !self.has_flash {
            return;
        }
        let mut inner = self.inner();
        for page in pages {
            inner.hierarchy.ledger_mut().base_written(*page);
        }
    }
}

//! What `fsync` means: dirty frames to flash or base, staged pages to flash, base synced if it was
//! written, and one commit of the map (rule R5 of `docs/write-back.md`).

use crate::device::Witness;
use crate::engine::{Engine, Request};
use crate::files::object::Object;
use crate::lock::atomic::{AtomicU64, Ordering};
use std::io;
use std::time::Instant;
use thermocline_core::{HintSet, ObjectId};
use thermocline_trace::{Op, Served};

/// Of how many failed syncs of base, and losses of flash, one user of an object was told. All users
/// share base's descriptor, and the system tells it of a failure once; but each user may have
/// written what was lost. Whoever opens the object while nobody was told yet is told too.
#[doc(hidden)]
#[derive(Debug)]
pub struct Told(AtomicU64);

impl Told {
    /// Of a user that opens the object now.
    #[must_use]
    pub fn by(object: &Object) -> Self {
        let untold = object.sync_failed.load(Ordering::Acquire);
        Self(AtomicU64::new(
            Self::all(object).saturating_sub(untold.into()),
        ))
    }

    fn all(object: &Object) -> u64 {
        let failed = object.failed_syncs.load(Ordering::Acquire);
        failed + object.losses.load(Ordering::Acquire)
    }

    /// Whether syncs have failed of which this user was not told; it is told now.
    fn is_news(&self, object: &Object) -> bool {
        let failed = Self::all(object);
        let before = self.0.fetch_max(failed, Ordering::AcqRel);
        debug_assert!(self.0.load(Ordering::Acquire) >= failed, "told once");
        before < failed
    }
}

impl Engine {
    /// As [`Engine::sync`], for one of several users of the object. It fails too when a sync of
    /// base has failed, whoever's it was, since this user was told last.
    ///
    /// # Errors
    /// Those of the devices; `EIO` where another user's sync, or the tier's own, met one.
    #[doc(hidden)]
    pub fn sync_for(&self, object: &Object, user: &Told, data_only: bool) -> io::Result<()> {
        let synced = self.sync(object, data_only);
        let news = user.is_news(object);
        synced?;
        match news {
            true => Err(lost_error()),
            false => Ok(()),
        }
    }

    /// Makes earlier writes of the object durable: those that base has by base's own sync, those
    /// that only DRAM or flash have by writing them to flash and one commit of its map, which
    /// serves everybody who waits at that time.
    ///
    /// # Errors
    /// Those of the devices.
    pub fn sync(&self, object: &Object, data_only: bool) -> io::Result<()> {
        let object = self.still_open(object)?;
        let started = Instant::now();
        // What is acknowledged must not be cut away by a note that flash kept.
        let synced = self
            .end_cut(object)
            .and_then(|()| self.renew_length(object))
            .and_then(|()| self.sync_object(object, data_only));
        // A background sync of base that failed may have lost writes of before: said once.
        let failed = object.sync_failed.swap(false, Ordering::AcqRel);
        synced?;
        if failed {
            return Err(lost_error());
        }
        if self.is_recording() {
            let request = Request {
                object,
                offset: 0,
                hints: HintSet::UNKNOWN,
                client: 0,
            };
            self.record(&request, object, Op::Sync, 0, Served::Unknown, started);
        }
        Ok(())
    }

    pub(crate) fn sync_object(&self, object: &Object, data_only: bool) -> io::Result<()> {
        self.touch(object);
        // A sync that is for more than data may concern attributes that only base knows of.
        let unseen = object.passthrough.load(Ordering::Acquire);
        let mut base_due = object.base_sync_is_due() || !data_only || unseen;
        if !object.promised.load(Ordering::Acquire) {
            // Flash promises nothing of a file that a power failure may still take from base.
            if base_due {
                self.sync_base_now(object, data_only)?;
                base_due = false;
            }
            self.promise(object);
        }
        if object.uncommitted.is_due() {
            let covered = object.uncommitted.begin();
            self.sync_flash(object)?;
            object.uncommitted.end(covered);
        }
        if base_due || object.base_sync_is_due() {
            self.sync_base_now(object, data_only)?;
        }
        Ok(())
    }

    /// From now on the map says that the file must be there after a crash.
    fn promise(&self, object: &Object) {
        object.promised.store(true, Ordering::Release);
        if self.is_named(object.id) {
            self.put_record(object);
        }
    }

    /// Lets base's time of change show writes that only DRAM or flash have (`docs/semantics.md`).
    pub fn touch(&self, object: &Object) {
        if self.check_fence().is_ok() && object.touch_due.load(Ordering::Acquire) {
            self.before_base_write(object, &[]);
            object.own_change(|| object.touch_if_due());
            object.unstamped.store(true, Ordering::Release);
        }
    }

    /// Frames to flash or base, staged pages to flash, and a commit.
    fn sync_flash(&self, object: &Object) -> io::Result<()> {
        let id = object.id;
        self.clean_pages(id, 0, u64::MAX)?;
        let committed = match self.is_off() {
            true => Ok(()),
            false => self.commit_staged(),
        };
        if self.is_off() {
            // What was on flash goes to base, or is lost and said so.
            self.settle_but_lost(id, 0, u64::MAX)?;
            self.tell_of_lost(object)?;
        } else {
            committed?;
        }
        match self.is_kept_from_base(id) {
            true => Err(lost_error()),
            false => Ok(()),
        }
    }

    /// Fails for pages that are lost: for those that no batch made durable each time, for others
    /// once, and once for each other user. So a database that ends when a sync fails can start
    /// again, though it touches the file; whoever reads such a page is told each time.
    fn tell_of_lost(&self, object: &Object) -> io::Result<()> {
        let lost = self.inner().hierarchy.lost_of(object.id);
        let unsaved = lost.iter().any(|(_, version)| version.is_none());
        let mut told = object.lost.lock();
        let news = !told.is_superset(&lost);
        *told = lost;
        if news {
            object.losses.fetch_add(1, Ordering::AcqRel);
        }
        match news || unsaved {
            true => Err(lost_error()),
            false => Ok(()),
        }
    }

    /// Whether a frame could not be cleaned, as the page's older bytes are on a device that failed.
    /// It may be on again by now.
    fn is_kept_from_base(&self, id: ObjectId) -> bool {
        let inner = self.inner();
        let pool = inner.hierarchy.pool();
        let is_dirty = |page| {
            let frame = pool.find(page);
            frame.is_some_and(|frame| pool.is_dirty(frame))
        };
        let lost = inner.hierarchy.lost().into_iter();
        lost.filter(|page| page.object == id).any(is_dirty)
    }

    /// Syncs base if anything was written to the object since the last time.
    pub(crate) fn sync_base(&self, object: &Object) -> io::Result<()> {
        match object.base_sync_is_due() {
            true => self.sync_base_now(object, false),
            false => Ok(()),
        }
    }

    /// As [`Engine::sync_base`], for a file that is about to be closed: a power cut must not take
    /// bytes from base that stay on flash as clean copies, nor the times by which the file is
    /// known again.
    pub(crate) fn sync_to_close(&self, object: &Object) -> io::Result<()> {
        self.end_cut(object)?;
        self.renew_length(object)?;
        if object.unstamped.swap(false, Ordering::AcqRel) {
            object.unsynced.add();
        }
        self.sync_base(object)
    }

    /// Syncs base for what anybody wrote before.
    pub(crate) fn sync_base_now(&self, object: &Object, data_only: bool) -> io::Result<()> {
        let covered = (object.unsynced.begin(), object.destaged.begin());
        // What is on a flash device that failed is seen to be older by the times of base's files.
        let data_only = data_only && !(self.has_flash && self.is_off());
        let failed_before = object.failed_syncs.load(Ordering::Acquire);
        let mut turn = object.turns.begin(true);
        let mut witness = Witness::NONE;
        if !turn.is_shared() {
            drop(turn);
            witness = object.base.witness();
            // Whoever was told of a loss before the witness was made has an earlier number.
            turn = object.turns.begin(!witness.is_there());
        }
        if !witness.is_there() {
            turn.share();
        }
        let epoch = self.sync_base_through(object, data_only, &witness)?;
        assert!(
            witness.is_there() || turn.is_shared(),
            "invariant 1: it goes through one or the other"
        );
        if witness.is_told_once() {
            turn.wait_for_earlier();
        }
        if object.failed_syncs.load(Ordering::Acquire) == failed_before {
            self.base_is_synced(object, epoch);
        }
        object.unsynced.end(covered.0);
        object.destaged.end(covered.1);
        object.unstamped.fetch_or(data_only, Ordering::AcqRel);
        Ok(())
    }

    /// Syncs base for what the tier wrote there since `witness` was made. Fails where any of that
    /// was lost, as far as syncs that have ended have not counted it in `failed_syncs`.
    pub(crate) fn sync_base_before(&self, object: &Object, witness: &Witness) -> io::Result<()> {
        let covered = object.destaged.begin();
        let turn = object.turns.begin(false);
        if !witness.is_there() {
            turn.share();
        }
        let epoch = self.sync_base_through(object, false, witness)?;
        self.base_is_synced(object, epoch);
        // Of what others wrote before the witness was made it knows nothing.
        object.destaged.end(covered);
        Ok(())
    }

    fn sync_base_through(
        &self,
        object: &Object,
        data_only: bool,
        witness: &Witness,
    ) -> io::Result<u64> {
        let epoch = self.inner().hierarchy.ledger_mut().start_base_sync();
        let synced = match witness.is_there() {
            true => object.base.sync_before(witness, data_only),
            false => object.base.sync(data_only),
        };
        if synced.is_err() {
            self.sync_failed(object);
        }
        synced.map(|()| epoch)
    }

    fn base_is_synced(&self, object: &Object, epoch: u64) {
        let mut inner = self.inner();
        inner.hierarchy.ledger_mut().base_synced(object.id, epoch);
    }

    /// Gives base the object's length again after a sync that failed: the system may have given it
    /// up, though it still shows it. A sync that is acknowledged promises pages that only flash
    /// has, and those past base's durable length end with it (`drop_past_end`).
    fn renew_length(&self, object: &Object) -> io::Result<()> {
        if !object.length_due.load(Ordering::Acquire) {
            return Ok(());
        }
        let _layout = object.layout_alone();
        if object.length_due.swap(false, Ordering::AcqRel) {
            self.before_base_write(object, &[]);
            let renewed = object.own_change(|| object.base.set_len(object.length()));
            object.length_due.store(renewed.is_err(), Ordering::Release);
            object.unsynced.add();
            renewed?;
        }
        Ok(())
    }

    /// The system may have given up writes that it still shows. The next sync of a frontend says
    /// so, whoever's sync failed, and the next one of each user there is ([`Told`]); flash keeps no
    /// copies of what it shows.
    pub(crate) fn sync_failed(&self, object: &Object) {
        // Whoever takes the flag sees the count: it is not told of this a second time.
        object.failed_syncs.fetch_add(1, Ordering::AcqRel);
        object.sync_failed.store(true, Ordering::Release);
        if !self.is_paged(object) {
            return; // flash has nothing of it, and its number may mean another file later
        }
        object.length_due.store(true, Ordering::Release);
        let mut inner = self.inner();
        inner.ahead.forget_object(object.id);
        self.decide(&mut inner, &[], |hierarchy, out| {
            hierarchy.doubt(object.id, out)
        });
    }
}

/// Reads and writes of a page whose newest bytes were on a device that failed.
pub(crate) fn lost_error() -> io::Error {
    io::Error::from_raw_os_error(libc::EIO)
}

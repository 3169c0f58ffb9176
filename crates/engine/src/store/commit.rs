//! Appending batches to the journal, and making them durable.
//!
//! The two are apart: [`Store::log_pages`] writes a batch, [`Store::make_durable`] syncs the device
//! for all that were written before. A batch may be written while others are being made durable;
//! recovery finds the batches in order, and none of them without all those before it.

use super::bounds::{intent_fits, object_fits, page_fits};
use super::journal::{self, BLOCK_BYTES, Batch, Block, ObjectChange, PAYLOAD_BYTES};
use super::map::VERSION_END;
use super::objects::{INTENT_BYTES, Objects, SavedObject};
use super::{State, Store};
use crate::device::{AlignedBuf, Transfer};
use crate::error::Error;
use crate::lock::MutexGuard;
use crate::mutant::Mutant;
use std::io;
use std::ops::Range;
use std::sync::atomic::Ordering;
use thermocline_core::ledger::MapChange;
use thermocline_core::{BlockId, Fault, ObjectId};

/// [`Store::append`] syncs when more changes than this are not durable: recovery reads the page
/// of each.
const UNSYNCED_MAX: usize = 32 << 10;
/// An empty batch this much later than the newest one is written for its time.
const TIME_STEP_NS: i64 = 1_000_000_000;

/// A run of records of a batch that fits into the journal.
struct Piece {
    bytes: Vec<u8>,
    objects: Range<usize>,
    changes: Range<usize>,
}

impl Piece {
    /// Journal blocks it takes: one at least.
    fn blocks(&self) -> usize {
        self.bytes.len().div_ceil(PAYLOAD_BYTES).max(1)
    }
}

/// Cuts a batch into pieces of at most `limit` bytes of records: one, nearly always.
fn pieces(batch: &Batch, limit: usize) -> Vec<Piece> {
    let objects = batch.objects.len();
    let mut bytes = Vec::new();
    let mut pieces = vec![Piece {
        bytes: Vec::new(),
        objects: 0..0,
        changes: 0..0,
    }];
    for at in 0..objects + batch.changes.len() {
        bytes.clear();
        match at.checked_sub(objects) {
            None => journal::encode_object(&batch.objects[at], &mut bytes),
            Some(change) => journal::encode_change(&batch.changes[change], &mut bytes),
        }
        debug_assert!(bytes.len() <= limit, "a record fits into half a journal");
        if pieces
            .last()
            .is_none_or(|p| p.bytes.len() + bytes.len() > limit)
        {
            let change = at.saturating_sub(objects);
            pieces.push(Piece {
                bytes: Vec::new(),
                objects: at.min(objects)..at.min(objects),
                changes: change..change,
            });
        }
        if let Some(piece) = pieces.last_mut() {
            piece.bytes.extend(&bytes);
            piece.objects.end = (at + 1).min(objects);
            piece.changes.end = (at + 1).saturating_sub(objects);
        }
    }
    let last = pieces
        .last()
        .map_or((0, 0), |p| (p.objects.end, p.changes.end));
    debug_assert_eq!(
        last,
        (objects, batch.changes.len()),
        "no record is left out"
    );
    debug_assert!(pieces.iter().all(|p| p.bytes.len() <= limit));
    pieces
}

/// Refuses what would be read back as damage.
fn check_bounds(batch: &Batch) -> io::Result<()> {
    let object = |change: &ObjectChange| match change {
        ObjectChange::Put(object) => object.is_possible(),
        ObjectChange::Gone(id) => object_fits(*id),
    };
    let change = |change: &MapChange| match change {
        MapChange::Set { entry, .. } => entry.is_none_or(|entry| page_fits(entry.page)),
        MapChange::Intend { intent, .. } => intent_fits(intent),
    };
    match batch.objects.iter().all(object) && batch.changes.iter().all(change) {
        true => Ok(()),
        false => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "an object, a page or a length is past what a cache can name",
        )),
    }
}

/// A page whose bytes are written together with the batch that names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewPage<'a> {
    /// Where they go.
    pub(crate) block: BlockId,
    /// A page.
    pub(crate) bytes: &'a [u8],
    /// Whether the batch says that they are there. If not they are only written.
    pub(crate) named: bool,
    /// The block of an older version, which the batch empties.
    pub(crate) old: Option<BlockId>,
}

/// What `batch` says but for the pages that were not written.
fn without_failed(batch: &Batch, pages: &[NewPage<'_>], written: &[Result<(), Fault>]) -> Batch {
    assert_eq!(pages.len(), written.len(), "an answer for each page");
    let mut batch = batch.clone();
    for (page, _) in (pages.iter().zip(written)).filter(|(p, result)| p.named && result.is_err()) {
        let of_page = |of: BlockId| of == page.block || Some(of) == page.old;
        batch.changes.retain(|change| match change {
            MapChange::Set { block, .. } => !of_page(*block),
            MapChange::Intend { .. } => true,
        });
    }
    batch
}

/// The journal's blocks of a piece, and where they go.
struct Place {
    blocks: AlignedBuf,
    /// Where the first ones go, and how many bytes there are before the journal's end.
    first: (u64, usize),
    /// Where the journal begins.
    start: u64,
}

impl Place {
    /// For the piece that is written next. Nobody else may write into the journal meanwhile.
    fn of(state: &State, piece: &Piece, time_ns: i64) -> Self {
        let layout = &state.superblock.layout;
        let units = u64::from(layout.journal_units);
        let before_end = (units - state.next % units).min(piece.blocks() as u64) as usize;
        Self {
            blocks: encode_piece(state, piece, time_ns),
            first: (layout.journal_block(state.next), before_end * BLOCK_BYTES),
            start: layout.journal_block(0),
        }
    }

    /// Bytes, and where each run of them goes.
    fn runs(&self) -> impl Iterator<Item = (&[u8], u64)> {
        let (first, rest) = self.blocks.split_at(self.first.1);
        let runs = [(first, self.first.0), (rest, self.start)];
        runs.into_iter().filter(|(bytes, _)| !bytes.is_empty())
    }
}

fn encode_piece(state: &State, piece: &Piece, time_ns: i64) -> AlignedBuf {
    let parts = piece.blocks();
    let mut out = AlignedBuf::new(parts * BLOCK_BYTES);
    for (part, out) in out.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        let from = part * PAYLOAD_BYTES;
        let to = (from + PAYLOAD_BYTES).min(piece.bytes.len());
        let block = Block {
            format_id: state.superblock.format_id,
            epoch: state.superblock.epoch,
            sequence: state.next + part as u64,
            durable: state.durable,
            time_ns,
            part: part as u32,
            parts: parts as u32,
            payload: piece.bytes[from..to].to_vec(),
        };
        block.encode(out);
    }
    out
}

impl State {
    /// `piece` is in the journal.
    fn wrote(&mut self, batch: &Batch, piece: &Piece) {
        self.as_closed = false;
        self.next += piece.blocks() as u64;
        self.take_in(batch, piece);
        debug_assert!(self.used() <= u64::from(self.superblock.layout.journal_units));
    }

    /// Most bytes of records that are written as one batch.
    fn batch_bytes(&self) -> usize {
        self.superblock.layout.journal_units as usize / 2 * PAYLOAD_BYTES
    }

    /// Bytes the object table may take, and number of intents there may be: three quarters and
    /// one quarter of an object area.
    fn object_limits(&self) -> (u64, usize) {
        let area = self.superblock.layout.object_bytes();
        let intents = (area / 4) as usize / INTENT_BYTES;
        debug_assert!(intents > 0 && intents * INTENT_BYTES <= area as usize / 4);
        (area - area / 4 - 16, intents)
    }

    /// Refuses what would not fit into an object area. Nothing has been written then.
    fn check_room(&self, batch: &Batch) -> io::Result<()> {
        check_bounds(batch)?;
        let (bytes, intents) = self.object_limits();
        let full = |what: String| Err(io::Error::new(io::ErrorKind::QuotaExceeded, what));
        let of = |id: &ObjectId| self.objects.table.get(id).map_or(0, SavedObject::bytes);
        // It is taken in piece by piece, and after each the table may be written.
        let (mut now, mut most) = (self.objects.table_bytes(), 0);
        for change in &batch.objects {
            match change {
                ObjectChange::Put(object) => now = now + object.bytes() - of(&object.id),
                ObjectChange::Gone(id) => now -= of(id),
            }
            most = most.max(now);
        }
        if most > bytes {
            return full(format!(
                "the table of files in this cache has {bytes} bytes, all in use"
            ));
        }
        let on = batch.changes.iter().filter(|change| match change {
            MapChange::Intend { intent, on } => *on && !self.objects.intents.contains(intent),
            MapChange::Set { .. } => false,
        });
        match self.objects.intents.len() + on.count() > intents {
            true => full(format!(
                "more than {intents} regions of base are being written"
            )),
            false => Ok(()),
        }
    }

    /// Takes in what a piece says, once it is in the journal.
    fn take_in(&mut self, batch: &Batch, piece: &Piece) {
        for change in &batch.objects[piece.objects.clone()] {
            self.objects_changed = true;
            match change {
                ObjectChange::Put(object) => self.objects.put(object.clone()),
                ObjectChange::Gone(id) => self.objects.remove(*id),
            }
        }
        for change in &batch.changes[piece.changes.clone()] {
            match *change {
                MapChange::Set { block, entry } => {
                    debug_assert!(block.0 < self.superblock.layout.blocks);
                    let version = entry.map_or(0, |e| e.version + 1);
                    self.next_version = self.next_version.max(version);
                    self.pending.insert(block.0, entry);
                }
                MapChange::Intend { intent, on } => {
                    self.objects_changed = true;
                    match on {
                        true => self.objects.intents.insert(intent),
                        false => self.objects.intents.remove(&intent),
                    };
                }
            }
        }
        debug_assert!(self.next_version <= VERSION_END, "48 bits of versions last");
        self.time_ns = batch.time_ns;
        self.unsynced += piece.changes.len();
    }
}

impl Store {
    /// Appends `batch` to the journal and syncs the device once: when this returns, the batch and
    /// every [`Store::write_block`] that had returned before are durable. An empty batch is only
    /// a sync, and none when nothing was written since the last; but when its time is more than
    /// a second past that of the newest batch, or it is the first one since the cache was closed,
    /// it is written, so that [`super::Recovered::last_commit_ns`] is never more than that behind
    /// the last commit, and [`super::Recovered::as_closed`] is what it says.
    ///
    /// A batch counts wholly or not at all after a crash, up to [`Store::batch_bytes`] of records;
    /// a larger one is written as several, of which a crash can keep the first ones; the last one
    /// alone has the batch's time. Writes the map back itself when three quarters of the journal
    /// are in use; whoever calls [`Store::checkpoint`] when [`Store::wants_checkpoint`] says so
    /// spares a commit that.
    ///
    /// # Errors
    /// `QuotaExceeded` when an object area would be too small for it: nothing was written and
    /// the store stays usable. Any other: those of the device. The store is then *poisoned*,
    /// and all later commits fail: after a failed write or sync the system may have dropped what
    /// was to be written and say nothing at the next sync, so no later success would mean that
    /// anything is durable. What was durable before still is.
    #[doc(hidden)]
    pub fn commit(&self, batch: &Batch) -> io::Result<()> {
        self.log_pages(batch, &[])?;
        self.make_durable()
    }

    /// The first half of [`Store::commit`], before [`Store::make_durable`]: writes `batch` into the
    /// journal, and `pages` together with it, of which it names those that are
    /// [`NewPage::named`]. Says how each write went. Of a page that could not be written the batch
    /// says nothing in the end; what its
    /// block holds is then unknown, and its older version counts.
    ///
    /// # Errors
    /// As [`Store::commit`]; it is then not known what became of any page.
    pub(crate) fn log_pages(
        &self,
        batch: &Batch,
        pages: &[NewPage<'_>],
    ) -> io::Result<Vec<Result<(), Fault>>> {
        let (newest, first) = {
            let state = self.state();
            (state.time_ns, state.as_closed)
        };
        // The first one after a close also says that base may be written from now on.
        let late = first || batch.time_ns > newest.saturating_add(TIME_STEP_NS);
        match !batch.is_empty() || late {
            true => self.log(batch, pages),
            false => Ok(self.write_pages(pages)),
        }
    }

    /// Syncs the device unless nothing was written since that was done: when this returns, all
    /// batches whose [`Store::log_pages`] had returned before are durable, and all pages whose
    /// write had.
    ///
    /// # Errors
    /// As [`Store::commit`].
    pub(crate) fn make_durable(&self) -> io::Result<()> {
        self.state().usable()?;
        if self.planted != Mutant::EarlyAcknowledge {
            self.sync()?;
        }
        if self.state().past(3) {
            self.checkpoint_if_full()?;
        }
        Ok(())
    }

    /// Both halves of [`Store::commit`].
    #[cfg(test)]
    pub(super) fn commit_pages(
        &self,
        batch: &Batch,
        pages: &[NewPage<'_>],
    ) -> io::Result<Vec<Result<(), Fault>>> {
        let written = self.log_pages(batch, pages)?;
        self.make_durable().map(|()| written)
    }

    /// Appends `batch` without a sync: a later commit makes it durable, a crash may take it.
    /// Syncs all the same after 32,768 changes, and where the journal is full.
    ///
    /// # Errors
    /// As [`Store::commit`].
    #[doc(hidden)]
    pub fn append(&self, batch: &Batch) -> io::Result<()> {
        if !batch.is_empty() {
            self.log(batch, &[])?;
        }
        let unsynced = self.state().unsynced;
        match unsynced > UNSYNCED_MAX {
            true => self.sync(),
            false => Ok(()),
        }
    }

    /// Whether more than half of the journal is in use.
    #[doc(hidden)]
    #[must_use]
    pub fn wants_checkpoint(&self) -> bool {
        self.state().past(2)
    }

    /// Most bytes of records in one batch that is kept or lost as a whole: 33 a new entry, 5 an
    /// emptied block, 13 an intent, 64 and the name an object.
    #[doc(hidden)]
    #[must_use]
    pub fn batch_bytes(&self) -> usize {
        self.state().batch_bytes()
    }

    /// Most intents that may be on at once.
    #[doc(hidden)]
    #[must_use]
    pub fn intent_limit(&self) -> usize {
        self.state().object_limits().1
    }

    /// Whether `object` fits into the object area beside those there are: to be asked before it is
    /// given a place on flash.
    ///
    /// # Errors
    /// Names the limit.
    #[doc(hidden)]
    pub fn room_for_object(&self, object: &SavedObject) -> Result<(), Error> {
        let batch = Batch {
            objects: vec![ObjectChange::Put(object.clone())],
            ..Batch::default()
        };
        let room = self.state().check_room(&batch);
        room.map_err(|source| self.io_error(source))
    }

    /// Bytes of the table of files, and how many it may have. O(1).
    pub(crate) fn table_room(&self) -> (u64, u64) {
        let state = self.state();
        (state.objects.table_bytes(), state.object_limits().0)
    }

    /// Whether exactly `objects` fit into an object area.
    ///
    /// # Errors
    /// Names the limit.
    #[doc(hidden)]
    pub fn room_for_objects(&self, objects: &[SavedObject]) -> Result<(), Error> {
        let (limit, _) = self.state().object_limits();
        let mut all = Objects::default();
        for object in objects {
            all.put(object.clone());
        }
        let need = all.table_bytes();
        if need <= limit {
            return Ok(());
        }
        let text = format!("the table of files has room for {limit} bytes, {need} are needed");
        Err(self.io_error(io::Error::new(io::ErrorKind::QuotaExceeded, text)))
    }

    /// Writes `pages`, and a batch into the journal, with checkpoints where it is full.
    fn log(&self, batch: &Batch, pages: &[NewPage<'_>]) -> io::Result<Vec<Result<(), Fault>>> {
        let limit = {
            let state = self.state();
            state.usable()?;
            state.check_room(batch)?;
            state.batch_bytes()
        };
        let all = pieces(batch, limit);
        if let [piece] = &all[..] {
            return self.log_piece(batch, piece, pages);
        }
        // A checkpoint between the pieces makes what the first ones name durable.
        let written = self.write_pages(pages);
        let mut batch = without_failed(batch, pages, &written);
        let made = batch.time_ns;
        let all = pieces(&batch, limit);
        for (at, piece) in all.iter().enumerate() {
            // A crash may keep the first pieces alone. They must not vouch for files that were
            // changed since the batch before: the last one may say which pages are no good.
            let is_last = at + 1 == all.len();
            batch.time_ns = if is_last { made } else { self.state().time_ns };
            self.log_piece(&batch, piece, &[])?;
        }
        Ok(written)
    }

    fn log_piece(
        &self,
        batch: &Batch,
        piece: &Piece,
        pages: &[NewPage<'_>],
    ) -> io::Result<Vec<Result<(), Fault>>> {
        loop {
            if let Some(written) = self.try_log(batch, piece, pages)? {
                return Ok(written);
            }
            self.checkpoint()?;
        }
    }

    /// Writes a piece, and the pages it names, if there is room for it now. No checkpoint comes
    /// between that and the piece without the pages that failed, which takes its place: a batch
    /// that names bytes which are not there never becomes durable on purpose.
    fn try_log(
        &self,
        batch: &Batch,
        piece: &Piece,
        pages: &[NewPage<'_>],
    ) -> io::Result<Option<Vec<Result<(), Fault>>>> {
        let _alone = self.logging.lock();
        let time_ns = batch.time_ns;
        let place = {
            let state = self.state();
            state.usable()?;
            let units = u64::from(state.superblock.layout.journal_units);
            if state.used() + piece.blocks() as u64 > units {
                return Ok(None);
            }
            Place::of(&state, piece, time_ns)
        };
        let written = self.write_piece(&place, pages);
        let mut state = self.state();
        let written = written.inspect_err(|e| state.poison(e))?;
        // A sync may have failed meanwhile.
        state.usable()?;
        let named = |(page, result): (&NewPage<'_>, &Result<_, _>)| page.named && result.is_err();
        if !pages.iter().zip(&written).any(named) {
            state.wrote(batch, piece);
            return Ok(Some(written));
        }
        let mut less = without_failed(batch, pages, &written);
        // By its time it is told from the batch that it replaces: a power failure may leave blocks
        // of both.
        less.time_ns = time_ns.saturating_add(1);
        let all = pieces(&less, state.batch_bytes());
        let [piece] = &all[..] else {
            unreachable!("less than one piece is one piece");
        };
        let place = Place::of(&state, piece, less.time_ns);
        drop(state);
        let again = self.write_piece(&place, &[]);
        let mut state = self.state();
        again.inspect_err(|e| state.poison(e))?;
        state.usable()?;
        state.wrote(&less, piece);
        Ok(Some(written))
    }

    /// Writes the journal's blocks of a piece, and `pages` at the same time.
    fn write_piece(
        &self,
        place: &Place,
        pages: &[NewPage<'_>],
    ) -> io::Result<Vec<Result<(), Fault>>> {
        let written = self.write_runs(place, pages);
        // After the writes: a sync that runs meanwhile need not have covered them.
        self.touched.store(true, Ordering::Release);
        written
    }

    fn write_runs(
        &self,
        place: &Place,
        pages: &[NewPage<'_>],
    ) -> io::Result<Vec<Result<(), Fault>>> {
        let runs: Vec<_> = place.runs().collect();
        if pages.is_empty() {
            for (bytes, offset) in runs {
                self.write_at(bytes, offset)?;
            }
            return Ok(Vec::new());
        }
        let mut writes = self.page_writes(pages.iter().map(|page| (page.block, page.bytes)));
        writes.extend((runs.iter()).map(|(bytes, offset)| Transfer::write(*offset, bytes)));
        self.device.transfer(&mut writes);
        let of_journal = writes.split_off(pages.len());
        for ((bytes, offset), write) in runs.into_iter().zip(of_journal) {
            match write.result {
                Ok(moved) if moved == bytes.len() => {}
                Err(e) if e.kind() == io::ErrorKind::TimedOut => return Err(e),
                _ => self.write_at(bytes, offset)?,
            }
        }
        let outcome = |write| self.fault_of_write(write);
        Ok(writes.into_iter().map(outcome).collect())
    }

    fn write_pages(&self, pages: &[NewPage<'_>]) -> Vec<Result<(), Fault>> {
        let pages: Vec<_> = pages.iter().map(|page| (page.block, page.bytes)).collect();
        self.write_blocks(&pages)
    }

    /// Makes everything written so far durable, if anything is not.
    pub(super) fn sync(&self) -> io::Result<()> {
        let alone = self.one_sync();
        let due = {
            let state = self.state();
            state.usable()?;
            self.touched.load(Ordering::Acquire) || state.durable < state.next
        };
        match due {
            true => self.sync_device(&alone, true),
            false => Ok(()),
        }
    }

    /// Nobody else syncs the device while this is held (invariant 6).
    pub(super) fn one_sync(&self) -> MutexGuard<'_, ()> {
        self.syncing.lock()
    }

    /// Syncs the device: what was written before is durable then.
    pub(super) fn sync_device(
        &self,
        _alone: &MutexGuard<'_, ()>,
        data_only: bool,
    ) -> io::Result<()> {
        let (next, changes) = {
            let state = self.state();
            state.usable()?;
            (state.next, state.unsynced)
        };
        self.touched.store(false, Ordering::Release);
        let synced = self.device.sync(data_only);
        let mut state = self.state();
        synced.inspect_err(|e| state.poison(e))?;
        state.usable()?;
        assert!(
            state.durable <= next && next <= state.next,
            "invariant 6: what is durable was written before the sync"
        );
        state.durable = next;
        state.unsynced -= changes;
        Ok(())
    }
}

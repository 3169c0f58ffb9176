//! The store: blocks on one file or block device, and the durable map of what they hold.
//!
//! ```text
//! 0          8 KiB                                                      map_offset        length
//! | superblock A, B | journal | objects A | objects B | blocks ... | (gap) | map            |
//! ```
//!
//! # States
//! *Formatted* or *found* ([`Store::open`], nothing written) → *open* ([`Store::mark_open`]) →
//! *clean* ([`Store::close`]); from *open* after an I/O error → *poisoned*: nothing more becomes
//! durable, reads go on.
//!
//! # What the caller keeps to
//! 1. A block is written only while no durable entry that could win names it (rule R3), and not
//!    again while an entry appended for it stands.
//! 2. A page's bytes are written ([`Store::write_block`]) before the entry that names them is
//!    appended, or together with it (`Store::log_pages`).
//! 3. The batch that gives a page a newer block also empties the older one (or a batch before the
//!    one that empties the newer): an entry left behind would come back when the newer goes.
//! 4. Versions are below 2^48, higher for newer bytes of a page, and start at
//!    [`Recovered::next_version`].
//! 5. The batch that says an object is gone empties its dirty blocks; clean ones count no more.
//!
//! # Invariants
//! 1. The map in place plus the journal from `journal_first` on give every durable entry.
//! 2. The map in place is written only with changes whose journal blocks are durable.
//! 3. `pending` holds the last word of the journal from `journal_first` on for every block in it.
//! 4. Blocks of the journal from `journal_first` on are not overwritten:
//!    `next - journal_first <= units`.
//! 5. Journal blocks of another format or another opening (*epoch*) are never believed.
//! 6. One sync of the device is under way at a time. It covers what was written before it began
//!    and nothing else, and when it fails the store is poisoned before the next one can begin: of
//!    two at once the system may tell the error to one alone.
//!
//! # Locks
//! `checkpointing`, then `logging` (whoever writes into the journal), then `syncing` (whoever syncs
//! the device), then `state`, which nobody holds across a request to the device but for changes of
//! the store's shape. So the next batch is written while one is being synced.
//!
//! # Memory
//! `pending` is the only state per block: about 64 bytes for each block changed since the last
//! checkpoint. The journal bounds it: a change takes 33 bytes there (5 when it empties a block),
//! so it is at most 2 bytes of DRAM a byte of journal for new entries, 13 for emptied blocks
//! alone.
//! Objects and intents are kept too: at most the object area, twice while a checkpoint runs.

mod access;
mod anew;
mod bounds;
mod check;
mod checkpoint;
mod commit;
mod identity;
mod journal;
mod later;
mod layout;
mod map;
mod objects;
mod open;
mod recover;
mod resize;
mod superblock;

use crate::clock::SharedClock;
use crate::device::{Device, DirectFile, Transfer, is_aligned};
use crate::error::Error;
use crate::lock::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use crate::lock::{Mutex, MutexGuard};
use crate::mutant::Mutant;
use layout::UNIT;
use recover::Reading;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use superblock::Superblock;
use thermocline_core::ledger::MapEntry;
use thermocline_core::{BlockId, Fault, PageId, hash};
use twox_hash::XxHash3_64;

pub use access::resolve;
pub(crate) use bounds::LENGTH_MAX;
pub use bounds::OBJECT_END;
pub use check::{CheckProgress, CheckStep, ObjectPages, Problem, Report, check, check_path};
pub(crate) use commit::NewPage;
pub use identity::{CacheStamp, assign_base, stamp_of, stamp_on};
pub use journal::{Batch, ObjectChange};
pub use later::MapLoad;
pub(crate) use later::{Loaded, Unread};
pub(crate) use objects::record_bytes;
pub use objects::{Fate, SavedObject};
pub use recover::{Lost, Recovered};
pub use superblock::BaseIdentity;

/// Checksum of a page: xxh3-64 of its bytes, seeded by its address, so that the right bytes of the
/// wrong page are wrong bytes.
#[must_use]
pub fn checksum(page: PageId, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(hash::of_page(page), bytes)
}

/// How to open a cache.
///
/// `size` is needed for a cache that is made; one that is there keeps its own:
///
/// ```
/// use thermocline::{Store, StoreOptions};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("cache");
/// drop(Store::open(&path, &StoreOptions { size: Some(4 << 20), ..StoreOptions::default() })?);
/// let found = Store::open(&path, &StoreOptions::default())?;
/// assert_eq!(found.length(), 4 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Bytes per page: a power of two, 512 at least.
    pub page_size: u32,
    /// Length of the cache in bytes; `None` takes what is there.
    pub size: Option<u64>,
    /// Base it belongs to.
    pub base: BaseIdentity,
    /// Make it anew whatever it holds.
    pub format: bool,
    /// The longest a flash I/O may take.
    pub deadline: Option<Duration>,
    /// What time it is.
    #[doc(hidden)]
    pub clock: SharedClock,
    /// When the map is read.
    #[doc(hidden)]
    pub load: MapLoad,
    /// A bug on purpose, for the testers' own tests.
    #[doc(hidden)]
    pub planted: Mutant,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            page_size: 8192,
            size: None,
            base: BaseIdentity::default(),
            format: false,
            deadline: None,
            clock: SharedClock::default(),
            load: MapLoad::default(),
            planted: Mutant::None,
        }
    }
}

/// An open cache. See the module text.
///
/// ```
/// use thermocline::{Engine, EngineConfig, Store, StoreOptions};
///
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("cache");
/// let options = StoreOptions { size: Some(4 << 20), ..StoreOptions::default() };
/// let store = Store::open(&path, &options)?; // made, mode 0600, and locked
/// assert_eq!(store.length(), 4 << 20);
/// assert!(Store::open(&path, &options).is_err(), "in use");
/// let engine = Engine::start(EngineConfig::default(), Some(store))?;
/// # engine.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Store {
    device: Arc<dyn Device>,
    name: String,
    page_size: u32,
    /// Where block 0 lies; the same for the life of the cache.
    data_offset: u64,
    blocks: AtomicU32,
    length: AtomicU64,
    /// Something was written that no sync has covered.
    touched: AtomicBool,
    /// Held by whoever writes map, object areas or superblock. Taken before `state`.
    checkpointing: Mutex<()>,
    /// Held by whoever writes into the journal.
    logging: Mutex<()>,
    /// Held by whoever syncs the device.
    syncing: Mutex<()>,
    state: Mutex<State>,
    /// What was found, until it is taken.
    recovered: Option<Recovered>,
    /// What is still to be read of it, until it is taken.
    unread: Option<Unread>,
    clock: SharedClock,
    planted: Mutant,
    /// Holds the lock on the file.
    _lock: Option<File>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("name", &self.name).finish()
    }
}

/// See the invariants in the module text.
struct State {
    phase: Phase,
    /// See [`Superblock::as_closed`].
    as_closed: bool,
    /// As it is on the device.
    superblock: Superblock,
    /// Sequence number of the next journal block.
    next: u64,
    /// The same when the present opening began.
    began: u64,
    /// Journal blocks before this are durable.
    durable: u64,
    /// Changes appended since the last sync.
    unsynced: usize,
    pending: BTreeMap<u32, Option<MapEntry>>,
    /// Damaged sectors of the map that may be written anew.
    forgiven: BTreeSet<u32>,
    objects: objects::Objects,
    /// Whether `objects` differs from the area that counts.
    objects_changed: bool,
    next_version: u64,
    time_ns: i64,
}

/// See the states in the module text.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Found,
    Open,
    Clean,
    Poisoned(String),
}

impl State {
    fn of(superblock: Superblock, reading: &mut Reading) -> Self {
        if reading.planted == Mutant::DoubleRecovery {
            reading.pending.clear();
        }
        let state = Self {
            phase: Phase::Found,
            as_closed: reading.recovered.as_closed,
            next: reading.next_sequence.max(superblock.journal_first),
            began: 0,
            durable: 0,
            unsynced: 0,
            pending: std::mem::take(&mut reading.pending),
            forgiven: std::mem::take(&mut reading.forgiven),
            objects: std::mem::take(&mut reading.objects),
            // Journal and object area may disagree: the first checkpoint settles it.
            objects_changed: true,
            next_version: reading.recovered.next_version.max(superblock.next_version),
            time_ns: reading.recovered.last_commit_ns,
            superblock,
        };
        state.assert_invariants();
        state
    }

    fn assert_invariants(&self) {
        let units = u64::from(self.superblock.layout.journal_units);
        assert!(
            self.next >= self.superblock.journal_first,
            "invariant 1: the journal goes on from what the map in place has"
        );
        assert!(
            self.next - self.superblock.journal_first <= units,
            "invariant 4: the ring is not lapped"
        );
        assert!(self.durable <= self.next, "what is durable was written");
        let last = self.pending.last_key_value();
        assert!(
            last.is_none_or(|(&block, _)| block < self.superblock.layout.blocks),
            "invariant 3: of a block that there is"
        );
    }

    /// Journal blocks in use.
    fn used(&self) -> u64 {
        debug_assert!(self.next >= self.superblock.journal_first);
        self.next - self.superblock.journal_first
    }

    /// Whether more than `share` quarters of the journal are in use.
    fn past(&self, share: u64) -> bool {
        self.used() * 4 > u64::from(self.superblock.layout.journal_units) * share
    }

    /// Whether anything may become durable.
    fn usable(&self) -> io::Result<()> {
        match &self.phase {
            Phase::Open => Ok(()),
            Phase::Found => Err(io::Error::other("the cache is not marked open")),
            Phase::Clean => Err(io::Error::other("the cache is closed")),
            Phase::Poisoned(why) => Err(io::Error::other(format!(
                "the cache takes no more changes since: {why}"
            ))),
        }
    }

    /// Notes that what the device holds is no longer known.
    fn poison(&mut self, why: &io::Error) {
        if !matches!(self.phase, Phase::Poisoned(_)) {
            self.phase = Phase::Poisoned(why.to_string());
        }
    }
}

impl Store {
    fn of(
        device: Arc<dyn Device>,
        name: &str,
        superblock: Superblock,
        reading: Option<Reading>,
        options: &StoreOptions,
    ) -> Self {
        let layout = superblock.layout;
        debug_assert_eq!(layout.check(), Ok(()));
        debug_assert!(layout.data_offset().is_multiple_of(UNIT));
        let found = reading.is_some();
        let mut reading = reading.unwrap_or_default();
        let state = State::of(superblock, &mut reading);
        Self {
            device,
            name: name.into(),
            page_size: layout.page_size,
            data_offset: layout.data_offset(),
            blocks: AtomicU32::new(layout.blocks),
            length: AtomicU64::new(layout.length),
            touched: AtomicBool::new(true),
            checkpointing: Mutex::new(()),
            logging: Mutex::new(()),
            syncing: Mutex::new(()),
            state: Mutex::new(state),
            recovered: found.then_some(reading.recovered),
            unread: None,
            clock: options.clock.clone(),
            planted: options.planted,
            _lock: None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// The same store with its device behind a wrapper (a meter, scripted faults).
    #[must_use]
    pub fn wrapped(mut self, wrap: impl FnOnce(Arc<dyn Device>) -> Arc<dyn Device>) -> Self {
        self.device = wrap(self.device);
        self
    }

    /// Length of the shortest cache with `blocks` blocks of `page_size` bytes.
    #[must_use]
    pub fn length_for(blocks: u32, page_size: u32) -> u64 {
        let least = layout::Layout::least(page_size);
        let mut length = least.max(u64::from(blocks) * u64::from(page_size) / UNIT * UNIT);
        let has = |length: u64| layout::Layout::of_length(length, page_size);
        while has(length).is_none_or(|layout| layout.blocks < blocks) {
            length += UNIT;
        }
        length
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.blocks.load(Ordering::Acquire)
    }

    /// Bytes per page.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        self.page_size
    }

    /// Requests to the device that were given up and have not ended.
    pub(crate) fn late(&self) -> u32 {
        self.device.late()
    }

    /// Length of the cache in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }

    /// File name, for messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the device calls itself.
    #[must_use]
    pub fn label(&self) -> String {
        self.device.label()
    }

    /// What was found at the start, until it is taken. Without entries while the map is unread.
    #[doc(hidden)]
    #[must_use]
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// What was found at the start, once; `None` for a cache just made.
    #[doc(hidden)]
    pub fn take_recovered(&mut self) -> Option<Recovered> {
        self.recovered.take()
    }

    /// The file for reads of a caller's own making, where the device lends it.
    pub(crate) fn direct(&self) -> Option<DirectFile<'_>> {
        self.device.direct()
    }

    /// Whether its blocks can be read directly, each by itself.
    pub(crate) fn is_aligned(&self) -> bool {
        is_aligned(self.data_offset) && is_aligned(self.page_size.into())
    }

    /// Where `block` lies on the device.
    pub(crate) fn offset(&self, block: BlockId) -> u64 {
        debug_assert!(block.0 < self.blocks());
        self.data_offset + u64::from(block.0) * u64::from(self.page_size)
    }

    /// Reads `block` into `buf` (one page) and checks that it holds `page` with `expected`.
    ///
    /// # Errors
    /// The fault; `buf` is then unspecified.
    #[doc(hidden)]
    pub fn read_block(
        &self,
        block: BlockId,
        page: PageId,
        expected: u64,
        buf: &mut [u8],
    ) -> Result<(), Fault> {
        debug_assert_eq!(buf.len(), self.page_size as usize);
        let read = self.device.read_at(buf, self.offset(block));
        fault_of(&read, buf.len())?;
        match checksum(page, buf) == expected {
            true => Ok(()),
            false => Err(Fault::Corrupt),
        }
    }

    /// As [`Store::read_block`], and once more where that did not come right: base may be older.
    pub(crate) fn read_surely(&self, stored: &Stored, buf: &mut [u8]) -> Result<(), Fault> {
        let mut read = || self.read_block(stored.block, stored.page, stored.checksum, buf);
        match read() {
            // A device that was late would be waited for a second time.
            Err(fault) if fault != Fault::TimedOut => read(),
            done => done,
        }
    }

    /// As [`Store::read_surely`], for the blocks of `run`, all at once at first.
    pub(crate) fn read_all_surely(
        &self,
        run: &[Stored],
        bytes: &mut [u8],
    ) -> Vec<Result<(), Fault>> {
        let mut results = self.read_blocks(run, bytes);
        self.read_again(run, bytes, &mut results, |_| true);
        results
    }

    /// Asks once more for those `which` of `run` that did not come right, unless they were late.
    pub(crate) fn read_again(
        &self,
        run: &[Stored],
        bytes: &mut [u8],
        results: &mut [Result<(), Fault>],
        which: impl Fn(usize) -> bool,
    ) {
        assert_eq!(run.len(), results.len(), "a result for each block");
        let pages = bytes.chunks_exact_mut(self.page_size as usize);
        for (index, (result, (stored, page))) in
            results.iter_mut().zip(run.iter().zip(pages)).enumerate()
        {
            if which(index) && result.is_err_and(|fault| fault != Fault::TimedOut) {
                *result = self.read_block(stored.block, stored.page, stored.checksum, page);
            }
        }
    }

    /// Reads the blocks of `run` into `bytes`, a page each, all at once; says of each what was
    /// wrong, as [`Store::read_block`] does.
    pub(crate) fn read_blocks(&self, run: &[Stored], bytes: &mut [u8]) -> Vec<Result<(), Fault>> {
        let size = self.page_size as usize;
        assert_eq!(run.len() * size, bytes.len(), "a page for each block");
        let pages = run.iter().zip(bytes.chunks_exact_mut(size));
        let read = |(stored, page): (&Stored, _)| Transfer::read(self.offset(stored.block), page);
        let mut reads: Vec<Transfer<'_>> = pages.map(read).collect();
        self.device.transfer(&mut reads);
        let check = |(stored, read): (&Stored, &Transfer<'_>)| {
            fault_of(&read.result, size)?;
            stored.check(read.bytes())
        };
        run.iter().zip(&reads).map(check).collect()
    }

    /// Writes one page into `block`, which no durable entry may name. Durable with the next
    /// commit that starts after it returned.
    ///
    /// # Errors
    /// The fault; the block's content is then unknown.
    #[doc(hidden)]
    pub fn write_block(&self, block: BlockId, bytes: &[u8]) -> Result<(), Fault> {
        let written = self.write_blocks(&[(block, bytes)]);
        written.into_iter().next().unwrap_or(Err(Fault::WriteError))
    }

    /// As [`Store::write_block`], of several pages at once.
    pub(crate) fn write_blocks(&self, pages: &[(BlockId, &[u8])]) -> Vec<Result<(), Fault>> {
        let mut writes = self.page_writes(pages.iter().copied());
        self.device.transfer(&mut writes);
        // After the writes: a sync that runs meanwhile need not have covered them.
        self.touched.store(true, Ordering::Release);
        let outcome = |write| self.fault_of_write(write);
        writes.into_iter().map(outcome).collect()
    }

    /// What a write of a whole page came to.
    fn fault_of_write(&self, write: Transfer<'_>) -> Result<(), Fault> {
        match write.result {
            Ok(_) => Ok(()),
            Err(_) if self.planted == Mutant::LateForgotten => Err(Fault::WriteError),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => Err(Fault::TimedOut),
            Err(_) => Err(Fault::WriteError),
        }
    }

    fn page_writes<'a>(
        &self,
        pages: impl Iterator<Item = (BlockId, &'a [u8])>,
    ) -> Vec<Transfer<'a>> {
        let write = |(block, bytes): (BlockId, &'a [u8])| {
            assert_eq!(bytes.len(), self.page_size as usize, "whole pages");
            Transfer::write(self.offset(block), bytes)
        };
        pages.map(write).collect()
    }

    /// Writes something of the store's own.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        again(|| self.device.write_at(bytes, offset))
    }

    fn io_error(&self, source: io::Error) -> Error {
        Error::CacheIo {
            path: self.name.clone(),
            source,
        }
    }
}

/// A page as flash has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored {
    pub(crate) block: BlockId,
    pub(crate) page: PageId,
    pub(crate) checksum: u64,
}

impl Stored {
    /// Whether `bytes` are those of the page.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), Fault> {
        match checksum(self.page, bytes) == self.checksum {
            true => Ok(()),
            false => Err(Fault::Corrupt),
        }
    }
}

/// What a read that should have filled `wanted` bytes came to.
fn fault_of(read: &io::Result<usize>, wanted: usize) -> Result<(), Fault> {
    match read {
        Ok(moved) if *moved >= wanted => Ok(()),
        Ok(_) => Err(Fault::Corrupt),
        Err(e) if e.kind() == io::ErrorKind::TimedOut => Err(Fault::TimedOut),
        Err(_) => Err(Fault::ReadError),
    }
}

/// Tries a few times: an I/O that fails now and then is no reason to give up a device. One that
/// was too late is not tried again, and a sync never is (see [`Store::commit`]).
fn again(mut io: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let mut result = io();
    for _ in 0..3 {
        match &result {
            Err(e) if e.kind() != io::ErrorKind::TimedOut => result = io(),
            _ => break,
        }
    }
    result
}

#[cfg(test)]
mod tests;

//! The flash store: slots on one file or block device.
//!
//! ```text
//! 0          8 KiB                                    8 KiB + slots * page size        length
//! | superblock A, B | slot 0 | slot 1 | ...  | slot n-1 | saved map (24 B a slot + objects) |
//! ```
//!
//! # States
//! *Clean* (on disk: the map describes every slot) → *open* (on disk: the map means nothing) →
//! *clean*. The store is marked open, durably, before the first slot is written; so a crash at any
//! time is seen as one, and the next start is cold but never wrong.
//!
//! # Invariants
//! 1. While a slot can be written, the superblock on the device says *open*.
//! 2. The superblock says *clean* only when map and slots were synced before it was written.
//! 3. A slot's bytes are returned only when their checksum, which covers page address and
//!    content, equals the one kept in DRAM.
//!
//! Usable share: (length − 8 KiB − map) / length; the map takes 32 bytes a slot and at least
//! 64 KiB, so 99.6 % of a large cache with 8 KiB pages.

mod map;
mod superblock;

use crate::device::{Device, FileDevice, FileOptions};
use crate::error::Error;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use superblock::{FORMAT_VERSION, Invalid, SUPERBLOCK_BYTES, Superblock};
use thermocline_core::{Fault, PageId, SlotId, hash};
use twox_hash::XxHash3_64;

pub use map::{SavedEntry, SavedMap, SavedObject};
pub use superblock::BaseIdentity;

/// Bytes before the first slot.
const DATA_OFFSET: u64 = 2 * SUPERBLOCK_BYTES as u64;
/// Bytes of map reserved per slot: an entry and a share of the object table.
const MAP_BYTES_PER_SLOT: u64 = 32;
/// Bytes of map reserved at least.
const MAP_BYTES_MIN: u64 = 64 << 10;

/// Checksum of a page: xxh3-64 of its bytes, seeded by its address, so that the right bytes of the
/// wrong page are wrong bytes.
#[must_use]
pub fn checksum(page: PageId, bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(hash::of_page(page), bytes)
}

/// How to open a cache file.
#[derive(Clone, Debug)]
pub struct FlashOptions {
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
}

/// An open cache. See the module text.
pub struct FlashStore {
    device: Arc<dyn Device>,
    name: String,
    page_size: u32,
    slots: u32,
    length: u64,
    superblock: Mutex<Superblock>,
    /// The map of a clean stop, until it is taken.
    saved: Option<SavedMap>,
    /// Holds the lock on the file.
    _lock: Option<File>,
}

impl FlashStore {
    /// Opens or makes the cache at `path`, a file or block device, and locks it.
    ///
    /// # Errors
    /// See [`Error`]; the file is not changed by a failed open, except that a file made for a
    /// cache that found no room is removed.
    pub fn open(path: &Path, options: &FlashOptions) -> Result<Self, Error> {
        let name = path.display().to_string();
        let failed = |source| Error::CacheIo {
            path: name.clone(),
            source,
        };
        let existed = path.exists();
        if !existed && options.size.is_none() {
            return Err(Error::NoSize { path: name });
        }
        let file_options = FileOptions {
            create: true,
            deadline: options.deadline,
            ..FileOptions::default()
        };
        let device = FileDevice::open(path, file_options).map_err(failed)?;
        let lock = File::open(path).map_err(failed)?;
        lock_exclusively(&lock, &name)?;
        let store = Self::with_device(Arc::new(device), &name, options);
        let store = store.inspect_err(|_| {
            if !existed {
                let _ = std::fs::remove_file(path);
            }
        })?;
        reserve(&lock, store.length, &name).inspect_err(|_| {
            if !existed {
                let _ = std::fs::remove_file(path);
            }
        })?;
        Ok(Self {
            _lock: Some(lock),
            ..store
        })
    }

    /// Opens or makes a cache on `device`, called `name` in messages.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn with_device(
        device: Arc<dyn Device>,
        name: &str,
        options: &FlashOptions,
    ) -> Result<Self, Error> {
        let found = device.len().map_err(|source| Error::CacheIo {
            path: name.into(),
            source,
        })?;
        match options.format || found == 0 {
            true => Self::format(device, name, options, found),
            false => Self::existing(device, name, options, found),
        }
    }

    /// The same store with its device behind a wrapper (a meter, scripted faults).
    #[must_use]
    pub fn wrapped(mut self, wrap: impl FnOnce(Arc<dyn Device>) -> Arc<dyn Device>) -> Self {
        self.device = wrap(self.device);
        self
    }

    fn format(
        device: Arc<dyn Device>,
        name: &str,
        options: &FlashOptions,
        found: u64,
    ) -> Result<Self, Error> {
        let length = options.size.unwrap_or(found);
        let slots = slots_for(length, options.page_size)?;
        let superblock = Superblock {
            page_size: options.page_size,
            slots,
            clean: false,
            generation: 1,
            length,
            base: options.base.clone(),
            map_length: 0,
            map_checksum: 0,
        };
        let store = Self::of(device, name, superblock);
        store
            .write_new(found)
            .map_err(|source| match source.kind() {
                io::ErrorKind::StorageFull => Error::NoRoom {
                    path: name.into(),
                    size: length,
                },
                _ => Error::CacheIo {
                    path: name.into(),
                    source,
                },
            })?;
        Ok(store)
    }

    fn of(device: Arc<dyn Device>, name: &str, superblock: Superblock) -> Self {
        debug_assert!(superblock.slots > 0 && superblock.page_size.is_power_of_two());
        debug_assert!(superblock.generation > 0, "generations count from 1");
        Self {
            device,
            name: name.into(),
            page_size: superblock.page_size,
            slots: superblock.slots,
            length: superblock.length,
            superblock: Mutex::new(superblock),
            saved: None,
            _lock: None,
        }
    }

    fn superblock(&self) -> MutexGuard<'_, Superblock> {
        self.superblock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn write_new(&self, found: u64) -> io::Result<()> {
        if found < self.length {
            self.device.set_len(self.length)?;
        }
        // Both copies: nothing of an older cache may be left to be believed.
        let block = self.superblock().encode();
        self.device.write_at(&block, 0)?;
        self.device.write_at(&block, SUPERBLOCK_BYTES as u64)?;
        self.device.sync(false)
    }

    fn existing(
        device: Arc<dyn Device>,
        name: &str,
        options: &FlashOptions,
        found: u64,
    ) -> Result<Self, Error> {
        let superblock = read_superblock(&device, name, found)?;
        check_fit(&superblock, name, options, found)?;
        let mut store = Self::of(device, name, superblock);
        store.saved = store.read_map();
        Ok(store)
    }

    /// The saved map, when it is whole. A damaged map is a cold start, not an error.
    fn read_map(&self) -> Option<SavedMap> {
        let superblock = self.superblock();
        if !superblock.clean {
            return None;
        }
        let mut bytes = vec![0u8; usize::try_from(superblock.map_length).ok()?];
        let read = self.device.read_at(&mut bytes, self.map_offset()).ok()?;
        let whole = read == bytes.len() && XxHash3_64::oneshot(&bytes) == superblock.map_checksum;
        whole.then(|| SavedMap::decode(&bytes)).flatten()
    }

    /// Number of slots.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots
    }

    /// Bytes per page.
    #[must_use]
    pub fn page_size(&self) -> u32 {
        self.page_size
    }

    /// Length of the cache in bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
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

    /// The map of the last clean stop, once; `None` after a crash.
    pub fn take_saved(&mut self) -> Option<SavedMap> {
        self.saved.take()
    }

    /// Marks the store open, durably. Must come before the first [`FlashStore::write_slot`].
    ///
    /// # Errors
    /// Those of the device.
    pub fn mark_open(&self) -> Result<(), Error> {
        debug_assert!(
            self.saved.is_none(),
            "the map is taken before it is declared void"
        );
        let mut superblock = self.superblock();
        superblock.clean = false;
        superblock.map_length = 0;
        self.write_superblock(&mut superblock)
    }

    /// Saves the map and marks the store clean, durably. Objects that do not fit into the space
    /// reserved are left out with their pages, those with the fewest pages first.
    ///
    /// # Errors
    /// Those of the device; the store then stays open and the next start is cold.
    pub fn save(&self, map: SavedMap) -> Result<(), Error> {
        let mut superblock = self.superblock();
        debug_assert!(
            !superblock.clean,
            "a store is saved once after it was opened"
        );
        debug_assert!(self.map_offset() < self.length, "there is room for a map");
        debug_assert!(map.entries.iter().all(|e| e.slot.0 < self.slots));
        let room = self.length - self.map_offset();
        let bytes = fit(map, room).encode();
        let written = self.device.sync(true);
        let written = written.and_then(|()| self.device.write_at(&bytes, self.map_offset()));
        let written = written.and_then(|()| self.device.sync(false));
        written.map_err(|source| Error::Save {
            path: self.name.clone(),
            source,
        })?;
        debug_assert!(bytes.len() as u64 <= room, "the map fits into its area");
        superblock.clean = true;
        superblock.map_length = bytes.len() as u64;
        superblock.map_checksum = XxHash3_64::oneshot(&bytes);
        self.write_superblock(&mut superblock)
    }

    fn write_superblock(&self, superblock: &mut Superblock) -> Result<(), Error> {
        superblock.generation += 1;
        let at = (superblock.generation % 2) * SUPERBLOCK_BYTES as u64;
        let written = self.device.write_at(&superblock.encode(), at);
        let written = written.and_then(|()| self.device.sync(false));
        written.map_err(|source| Error::CacheIo {
            path: self.name.clone(),
            source,
        })
    }

    fn map_offset(&self) -> u64 {
        self.slot_offset(SlotId(self.slots))
    }

    fn slot_offset(&self, slot: SlotId) -> u64 {
        debug_assert!(slot.0 <= self.slots);
        DATA_OFFSET + u64::from(slot.0) * u64::from(self.page_size)
    }

    /// Reads `slot` into `buf` (one page) and checks that it holds `page` with `expected`.
    ///
    /// # Errors
    /// The fault; `buf` is then unspecified.
    pub fn read_slot(
        &self,
        slot: SlotId,
        page: PageId,
        expected: u64,
        buf: &mut [u8],
    ) -> Result<(), Fault> {
        debug_assert_eq!(buf.len(), self.page_size as usize);
        match self.device.read_at(buf, self.slot_offset(slot)) {
            Ok(read) if read == buf.len() && checksum(page, buf) == expected => Ok(()),
            Ok(_) => Err(Fault::Corrupt),
            Err(e) if e.kind() == io::ErrorKind::TimedOut => Err(Fault::TimedOut),
            Err(_) => Err(Fault::ReadError),
        }
    }

    /// Writes one page into `slot`. Not durable: a lost page is fetched from base again.
    ///
    /// # Errors
    /// The fault; the slot's content is then unknown.
    pub fn write_slot(&self, slot: SlotId, bytes: &[u8]) -> Result<(), Fault> {
        debug_assert_eq!(bytes.len(), self.page_size as usize);
        self.device
            .write_at(bytes, self.slot_offset(slot))
            .map_err(|e| match e.kind() {
                io::ErrorKind::TimedOut => Fault::TimedOut,
                _ => Fault::WriteError,
            })
    }
}

/// Slots that fit beside superblocks and map.
fn slots_for(length: u64, page_size: u32) -> Result<u32, Error> {
    let page = u64::from(page_size);
    let room = length.saturating_sub(DATA_OFFSET);
    let by_share = room / (page + MAP_BYTES_PER_SLOT);
    let by_minimum = room.saturating_sub(MAP_BYTES_MIN) / page;
    match by_share.min(by_minimum) {
        0 => Err(Error::TooSmall {
            size: length,
            least: DATA_OFFSET + MAP_BYTES_MIN + page,
        }),
        slots => Ok(slots.min(u64::from(u32::MAX - 1)) as u32),
    }
}

fn read_superblock(device: &Arc<dyn Device>, name: &str, found: u64) -> Result<Superblock, Error> {
    let mut best: Option<Superblock> = None;
    let mut reasons = Vec::new();
    for copy in 0..2u64 {
        let mut block = [0u8; SUPERBLOCK_BYTES];
        let at = copy * SUPERBLOCK_BYTES as u64;
        let read = device.read_at(&mut block, at);
        let read = read.map_err(|source| Error::CacheIo {
            path: name.into(),
            source,
        })?;
        if read < SUPERBLOCK_BYTES {
            reasons.push(format!("the file ends after {found} bytes"));
            continue;
        }
        match Superblock::decode(&block) {
            Ok(s) if best.as_ref().is_none_or(|b| b.generation < s.generation) => best = Some(s),
            Ok(_) => {}
            Err(Invalid::Version(v)) => {
                return Err(Error::Version {
                    path: name.into(),
                    found: v,
                    expected: FORMAT_VERSION,
                });
            }
            Err(why) => reasons.push(why.to_string()),
        }
    }
    best.ok_or_else(|| Error::NotACache {
        path: name.into(),
        reason: reasons.join("; "),
    })
}

fn check_fit(
    found: &Superblock,
    name: &str,
    options: &FlashOptions,
    length: u64,
) -> Result<(), Error> {
    let path = name.to_string();
    if length < found.length {
        return Err(Error::Truncated {
            path,
            found: length,
            expected: found.length,
        });
    }
    if !found.base.same(&options.base) {
        let (found, wanted) = (found.base.path.clone(), options.base.path.clone());
        return Err(Error::OtherBase {
            path,
            found,
            wanted,
        });
    }
    if found.page_size != options.page_size {
        let (found, wanted) = (found.page_size, options.page_size);
        return Err(Error::PageSize {
            path,
            found,
            wanted,
        });
    }
    match options.size {
        Some(wanted) if wanted != found.length => Err(Error::Size {
            path,
            found: found.length,
            wanted,
        }),
        _ => Ok(()),
    }
}

/// The map without the objects that do not fit into `room` bytes.
fn fit(mut map: SavedMap, room: u64) -> SavedMap {
    let mut pages = std::collections::BTreeMap::new();
    for entry in &map.entries {
        *pages.entry(entry.page.object).or_insert(0u64) += 1;
    }
    map.objects
        .sort_by_key(|o| std::cmp::Reverse(pages.get(&o.id).copied().unwrap_or(0)));
    let whole = map.entries.len();
    let mut left = room.saturating_sub(8);
    let mut kept = std::collections::BTreeSet::new();
    map.objects.retain(|o| {
        let need =
            54 + o.name.len() as u64 + map::ENTRY_BYTES * pages.get(&o.id).copied().unwrap_or(0);
        let fits = need <= left;
        if fits {
            left -= need;
            kept.insert(o.id);
        }
        fits
    });
    map.entries.retain(|e| kept.contains(&e.page.object));
    debug_assert!(map.entries.len() <= whole && left <= room);
    debug_assert_eq!(map.objects.len(), kept.len(), "ids are distinct");
    map
}

/// Takes the lock that says a cache is in use; it goes with the process.
fn lock_exclusively(file: &File, name: &str) -> Result<(), Error> {
    // SAFETY: flock on a descriptor that lives for the whole call; no memory is involved.
    let result = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    if result == 0 {
        return Ok(());
    }
    let source = io::Error::last_os_error();
    match source.kind() {
        io::ErrorKind::WouldBlock => Err(Error::CacheInUse { path: name.into() }),
        _ => Err(Error::CacheIo {
            path: name.into(),
            source,
        }),
    }
}

/// Makes the file system set the room aside, so that a full device is an error now and not later.
fn reserve(file: &File, length: u64, name: &str) -> Result<(), Error> {
    if !file.metadata().is_ok_and(|m| m.is_file()) {
        return Ok(());
    }
    let writable = std::fs::OpenOptions::new().write(true).open(name);
    let file = writable.map_err(|source| Error::CacheIo {
        path: name.into(),
        source,
    })?;
    // SAFETY: fallocate on a descriptor that lives for the whole call; no memory is involved.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length as libc::off_t) };
    match result {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::StorageFull => Err(Error::NoRoom {
                path: name.into(),
                size: length,
            }),
            // A file system without fallocate finds out when slots are written.
            _ => Ok(()),
        },
    }
}

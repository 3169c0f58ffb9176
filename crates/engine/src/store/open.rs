//! Opening and making a cache.

use super::identity;
use super::layout::Layout;
use super::recover;
use super::superblock::Superblock;
use super::superblock::{BaseIdentity, FORMAT_VERSION, Invalid, OLDEST_VERSION, SUPERBLOCK_BYTES};
use super::{Store, StoreOptions, Unread, access, anew, later};
use crate::clock::Clock;
use crate::device::{AlignedBuf, Device, FileDevice, FileOptions};
use crate::error::Error;
use crate::flock;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use thermocline_core::hash;

/// Zeros written at once where a device cannot deallocate.
const ZEROS: usize = 1 << 20;

impl Store {
    /// Opens or makes the cache at `path`, a file or block device, locks it and reserves its room.
    /// Whose file it may be is told by `store/access.rs`.
    ///
    /// # Errors
    /// See [`Error`]; the file is not changed by a failed open, except that a file made for a
    /// cache that found no room is removed. With [`StoreOptions::format`], [`Error::HoldsDirty`].
    pub fn open(path: &Path, options: &StoreOptions) -> Result<Self, Error> {
        Self::open_or_make(path, options, None)
    }

    /// Makes the cache at `path` anew. `discard` gives up that many dirty pages, which must be all
    /// there are.
    ///
    /// # Errors
    /// As [`Store::open`]; [`Error::HoldsDirty`] when there are dirty pages and `discard` is not
    /// their number.
    pub fn make_anew(
        path: &Path,
        options: &StoreOptions,
        discard: Option<u64>,
    ) -> Result<Self, Error> {
        let options = StoreOptions {
            format: true,
            ..options.clone()
        };
        Self::open_or_make(path, &options, discard)
    }

    fn open_or_make(
        path: &Path,
        options: &StoreOptions,
        discard: Option<u64>,
    ) -> Result<Self, Error> {
        let name = path.display().to_string();
        let failed = |source| Error::CacheIo {
            path: name.clone(),
            source,
        };
        let (file, made) = access::open(path, options)?;
        let lock = file.try_clone().map_err(failed)?;
        lock_exclusively(&lock, &name)?;
        let file_options = FileOptions {
            deadline: options.deadline,
            ..FileOptions::default()
        };
        let device = FileDevice::from_file(file, name.clone(), file_options).map_err(failed)?;
        let store = Self::on_device(Arc::new(device), &name, options, discard);
        let store = store.and_then(|store| {
            reserve(&lock, store.length(), &name)?;
            Ok(store)
        });
        let store = store.map_err(|error| {
            let error = with_room(error, &lock);
            if let Some(made) = &made {
                let _ = std::fs::remove_file(made);
            }
            error
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
        options: &StoreOptions,
    ) -> Result<Self, Error> {
        Self::on_device(device, name, options, None)
    }

    pub(super) fn on_device(
        device: Arc<dyn Device>,
        name: &str,
        options: &StoreOptions,
        discard: Option<u64>,
    ) -> Result<Self, Error> {
        let failed = |source| Error::CacheIo {
            path: name.into(),
            source,
        };
        let found = device.len().map_err(failed)?;
        if options.format || found == 0 {
            anew::check(&*device, name, found, discard)?;
            return Self::format(device, name, options, found);
        }
        let mut superblock = read_superblock(&*device, name, found)?;
        check_fit(&superblock, name, options, found)?;
        debug_assert!(superblock.layout.length <= found);
        debug_assert_eq!(superblock.layout.page_size, options.page_size);
        let planted = options.planted;
        if options.load.may_wait(&superblock) {
            let reading = recover::read_head(&*device, &superblock, planted);
            let mut reading = reading.map_err(failed)?;
            if later::may_wait(&reading) {
                let unread = Unread::new(&superblock, &reading, options.load);
                identity::rebase(&mut superblock, &mut reading, &options.base);
                let store = Self::of(device, name, superblock, Some(reading), options);
                return Ok(Self {
                    unread: Some(unread),
                    ..store
                });
            }
        }
        let reading = recover::read(&*device, &superblock, planted, &mut |_| {});
        let mut reading = reading.map_err(failed)?;
        identity::rebase(&mut superblock, &mut reading, &options.base);
        Ok(Self::of(device, name, superblock, Some(reading), options))
    }

    fn format(
        device: Arc<dyn Device>,
        name: &str,
        options: &StoreOptions,
        found: u64,
    ) -> Result<Self, Error> {
        let length = options.size.unwrap_or(found);
        let layout = Layout::of_length(length, options.page_size).ok_or_else(|| {
            let least = Layout::least(options.page_size);
            Error::TooSmall {
                size: length,
                least,
            }
        })?;
        let superblock = Superblock::empty(layout, &options.base, &*options.clock);
        let written = write_new(&*device, &superblock, found);
        written.map_err(|source| match source.kind() {
            io::ErrorKind::StorageFull => Error::NoRoom {
                path: name.into(),
                size: length,
                room: None,
            },
            _ => Error::CacheIo {
                path: name.into(),
                source,
            },
        })?;
        Ok(Self::of(device, name, superblock, None, options))
    }
}

impl Superblock {
    /// That of a cache nothing was written to.
    pub(super) fn empty(layout: Layout, base: &BaseIdentity, clock: &dyn Clock) -> Self {
        Self {
            layout,
            clean: false,
            as_closed: false,
            all_clean: false,
            generation: 1,
            base: base.clone(),
            format_id: new_format_id(clock),
            epoch: 1,
            journal_first: 0,
            objects_area: 0,
            objects_length: 0,
            objects_checksum: 0,
            next_version: 1,
            time_ns: 0,
            marked: 0,
        }
    }
}

/// A number no earlier cache on the device had.
fn new_format_id(clock: &dyn Clock) -> u64 {
    hash::mix(clock.wall_ns() as u64, u64::from(std::process::id()))
}

/// Writes an empty cache. What was there is not believed from the first write on.
pub(super) fn write_new(
    device: &dyn Device,
    superblock: &Superblock,
    found: u64,
) -> io::Result<()> {
    let layout = &superblock.layout;
    debug_assert_eq!(layout.check(), Ok(()));
    debug_assert!(!superblock.clean && superblock.journal_first == 0);
    if found > 0 {
        device.write_at(&AlignedBuf::new(2 * SUPERBLOCK_BYTES), 0)?;
        device.sync(false)?;
    }
    if found < layout.length {
        device.set_len(layout.length)?;
    }
    if found > layout.map_offset {
        clear(device, layout.map_offset, layout.map_bytes(), &|| Ok(()))?;
    }
    device.sync(false)?;
    debug_assert!(device.len().is_ok_and(|length| length >= layout.length));
    // Both copies: nothing of an older cache may be left to be believed.
    let block = superblock.encode();
    device.write_at(&block, 0)?;
    device.write_at(&block, SUPERBLOCK_BYTES as u64)?;
    device.sync(false)
}

/// Whether the cache may still be written by this process. It may take as long as base does to
/// answer, so requests wait for no lock under which it is asked, but for commits that need a
/// checkpoint.
pub(crate) type Ours<'a> = dyn Fn() -> io::Result<()> + 'a;

/// Makes a range read zeros, as long as it is `ours`.
pub(crate) fn clear(
    device: &dyn Device,
    offset: u64,
    length: u64,
    ours: &Ours<'_>,
) -> io::Result<()> {
    ours()?;
    if device.punch(offset, length).is_ok() {
        return Ok(());
    }
    let zeros = AlignedBuf::new(ZEROS.min(length as usize));
    let mut done = 0;
    while done < length {
        let some = zeros.len().min((length - done) as usize);
        ours()?;
        device.write_at(&zeros[..some], offset + done)?;
        done += some as u64;
    }
    debug_assert_eq!(done, length);
    Ok(())
}

/// The newer valid superblock.
pub(crate) fn read_superblock(
    device: &dyn Device,
    name: &str,
    found: u64,
) -> Result<Superblock, Error> {
    let mut best: Option<Superblock> = None;
    if found < 2 * SUPERBLOCK_BYTES as u64 {
        return Err(Error::NotACache {
            path: name.into(),
            reason: format!("it has {found} bytes, and no cache is that short"),
        });
    }
    let mut reasons = Vec::new();
    for copy in 0..2u64 {
        let mut block = [0u8; SUPERBLOCK_BYTES];
        let read = device.read_at(&mut block, copy * SUPERBLOCK_BYTES as u64);
        let read = read.map_err(|source| Error::CacheIo {
            path: name.into(),
            source,
        })?;
        if read < SUPERBLOCK_BYTES {
            reasons.push("it ends there".to_string());
            continue;
        }
        match Superblock::decode(&block) {
            Ok(s) if best.as_ref().is_none_or(|b| b.generation < s.generation) => best = Some(s),
            Ok(_) => {}
            Err(Invalid::Version(v)) => {
                return Err(Error::Version {
                    path: name.into(),
                    found: v,
                    oldest: OLDEST_VERSION,
                    newest: FORMAT_VERSION,
                });
            }
            Err(why) => reasons.push(why.to_string()),
        }
    }
    reasons.dedup();
    best.ok_or_else(|| Error::NotACache {
        path: name.into(),
        reason: reasons.join(", "),
    })
}

fn check_fit(
    found: &Superblock,
    name: &str,
    options: &StoreOptions,
    length: u64,
) -> Result<(), Error> {
    let path = name.to_string();
    let layout = &found.layout;
    if length < layout.length {
        return Err(Error::Truncated {
            path,
            found: length,
            expected: layout.length,
        });
    }
    let same = |base: &BaseIdentity| found.base.same(base);
    if !same(&options.base) {
        let wanted = options.base.path.clone();
        let found = found.base.beside(&wanted);
        return Err(Error::OtherBase {
            path,
            found,
            wanted,
        });
    }
    if layout.page_size != options.page_size {
        let (found, wanted) = (layout.page_size, options.page_size);
        return Err(Error::PageSize {
            path,
            found,
            wanted,
        });
    }
    match options.size {
        Some(wanted) if wanted != layout.length => Err(Error::Size {
            path,
            found: layout.length,
            wanted,
        }),
        _ => Ok(()),
    }
}

/// Takes the lock that says a cache is in use; it goes with the process.
pub(crate) fn lock_exclusively(file: &File, name: &str) -> Result<(), Error> {
    let path = name.to_string();
    match flock::exclusively(file) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::CacheInUse { path }),
        Err(source) => Err(Error::CacheIo { path, source }),
    }
}

/// Makes the file system set the room aside, so that a full device is an error now and not later.
pub(crate) fn reserve(file: &File, length: u64, name: &str) -> Result<(), Error> {
    if !file.metadata().is_ok_and(|m| m.is_file()) {
        return Ok(());
    }
    // SAFETY: fallocate on a descriptor that lives for the whole call; no memory is involved.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length as libc::off_t) };
    match result {
        0 => Ok(()),
        _ => match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::StorageFull => Err(Error::NoRoom {
                path: name.into(),
                size: length,
                room: room(file),
            }),
            // A file system without fallocate finds out when blocks are written.
            _ => Ok(()),
        },
    }
}

/// The error with the room that there is, where that is what is missing.
fn with_room(error: Error, file: &File) -> Error {
    match error {
        Error::NoRoom { path, size, .. } => Error::NoRoom {
            path,
            size,
            room: room(file),
        },
        other => other,
    }
}

/// Bytes that the file can have: what is free for this user, and what it has. `None` for what is
/// not on a file system.
fn room(file: &File) -> Option<u64> {
    let found = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
    let mut stat = MaybeUninit::<libc::statvfs64>::uninit();
    // SAFETY: the descriptor lives for the whole call, and `stat` has room for the answer.
    let result = unsafe { libc::fstatvfs64(file.as_raw_fd(), stat.as_mut_ptr()) };
    if result != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so it has filled `stat` in.
    let stat = unsafe { stat.assume_init() };
    Some(stat.f_bavail * stat.f_frsize + found.blocks() * 512)
}

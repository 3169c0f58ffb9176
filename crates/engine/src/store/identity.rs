//! Which base a cache belongs to, and which opening of it this is, without opening it.

use super::checkpoint::Purpose;
use super::open::{lock_exclusively, read_superblock};
use super::recover::Reading;
use super::superblock::{BaseIdentity, SUPERBLOCK_BYTES, Superblock};
use super::{Phase, Store, access};
use crate::device::{Device, FileDevice, FileOptions};
use crate::error::Error;
use std::io;
use std::path::Path;

/// What tells a cache, and one copy of it from a later one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheStamp {
    /// Its file.
    pub name: String,
    /// Another number each time a cache is made.
    pub format_id: u64,
    /// Counts openings.
    pub epoch: u64,
    /// The newest opening that base's mark is known to have named; 0 unknown.
    pub marked: u64,
    /// The base it belongs to.
    pub base: BaseIdentity,
}

impl CacheStamp {
    fn of(name: &str, superblock: &Superblock) -> Self {
        Self {
            name: name.into(),
            format_id: superblock.format_id,
            epoch: superblock.epoch,
            marked: superblock.marked,
            base: superblock.base.clone(),
        }
    }
}

impl Store {
    /// Which cache and opening this is; another opening from [`Store::mark_open`] on.
    #[must_use]
    pub fn stamp(&self) -> CacheStamp {
        CacheStamp::of(self.name(), &self.state().superblock)
    }
}

impl Store {
    /// Base's mark names this opening, durably: so does the cache from now on. Should the mark be
    /// an older one at a later start, base went back. Nothing is done for another opening than the
    /// present one.
    ///
    /// # Errors
    /// As [`Store::commit`]; the cache may then not know of the mark.
    #[doc(hidden)]
    pub fn note_marked(&self, marked: &CacheStamp) -> io::Result<()> {
        let _one = self.one_checkpoint();
        {
            let state = self.state();
            let now = &state.superblock;
            let present = (now.format_id, now.epoch) == (marked.format_id, marked.epoch);
            if !present || now.marked == now.epoch {
                return Ok(());
            }
        }
        self.write_back(Purpose::Marked)
    }

    /// What it knows of files is believed of none, from the next [`Store::mark_open`] on also after
    /// further starts: base was served without this cache since, or went back. That stands as after
    /// a crash. Before [`Store::take_recovered`].
    #[doc(hidden)]
    pub fn distrust(&mut self) {
        let mut state = self.state.lock();
        assert_eq!(state.phase, Phase::Found, "nothing was written yet");
        state.time_ns = LONG_AGO_NS;
        state.as_closed = false;
        drop(state);
        if let Some(found) = &mut self.recovered {
            found.last_commit_ns = LONG_AGO_NS;
            (found.as_closed, found.clean_stop) = (false, false);
        }
    }
}

/// Before the time of any change of any file, and of any clock.
const LONG_AGO_NS: i64 = i64::MIN;

/// That of the cache at `path`, which nobody may have open; `None` when there is none.
///
/// # Errors
/// When it is in use, or its superblock cannot be read or understood.
pub fn stamp_of(path: &Path) -> Result<Option<CacheStamp>, Error> {
    let name = path.display().to_string();
    let failed = |source| Error::CacheIo {
        path: name.clone(),
        source,
    };
    let Some(file) = access::open_existing(path, false)? else {
        return Ok(None);
    };
    lock_exclusively(&file, &name)?;
    let options = FileOptions {
        read_only: true,
        ..FileOptions::default()
    };
    let device = FileDevice::from_file(file, name.clone(), options).map_err(failed)?;
    stamp_on(&device, &name)
}

/// That of the cache on `device`; `None` when there is none.
///
/// # Errors
/// As [`stamp_of`].
#[doc(hidden)]
pub fn stamp_on(device: &dyn Device, name: &str) -> Result<Option<CacheStamp>, Error> {
    let length = device.len().map_err(|source| Error::CacheIo {
        path: name.into(),
        source,
    })?;
    if length == 0 {
        return Ok(None);
    }
    let superblock = read_superblock(device, name, length)?;
    Ok(Some(CacheStamp::of(name, &superblock)))
}

/// Says in the cache at `path` that it belongs to the base with the id of `base`. What it knows of
/// device numbers stays: the next opening translates them.
///
/// # Errors
/// As [`stamp_of`], and those of writing.
pub fn assign_base(path: &Path, base: &BaseIdentity) -> Result<(), Error> {
    let name = path.display().to_string();
    let failed = |source| Error::CacheIo {
        path: name.clone(),
        source,
    };
    let file = access::open_existing(path, true)?;
    let file = file.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
    lock_exclusively(&file, &name)?;
    let options = FileOptions::default();
    let device = FileDevice::from_file(file, name.clone(), options).map_err(failed)?;
    let length = device.len().map_err(failed)?;
    let mut superblock = read_superblock(&device, &name, length)?;
    superblock.base.id = base.id;
    superblock.generation += 1;
    let at = superblock.generation % 2 * SUPERBLOCK_BYTES as u64;
    let written = device.write_at(&superblock.encode(), at);
    written.and_then(|()| device.sync(false)).map_err(failed)
}

/// The device of files that are on no file system there is.
const NOWHERE: u64 = u64::MAX;

/// The base as it is now instead of as it was recorded. A file system that was mounted again has
/// another device number, and so have the files of the base on it. Files that had that number then
/// were on another file system, and are not taken for these.
pub(super) fn rebase(superblock: &mut Superblock, reading: &mut Reading, now: &BaseIdentity) {
    debug_assert!(superblock.base.same(now), "it was compared");
    let (old, new) = (superblock.base.file_system, now.file_system);
    if old != new {
        let found = reading.recovered.objects.iter_mut();
        let table = reading.objects.table.values_mut();
        for object in found.chain(table) {
            let device = &mut object.identity.device;
            *device = match *device {
                device if device == old => new,
                device if device == new => NOWHERE,
                device => device,
            };
        }
    }
    let id = match now.id {
        0 => superblock.base.id,
        id => id,
    };
    superblock.base = BaseIdentity { id, ..now.clone() };
}

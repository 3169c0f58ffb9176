//! Opening files: what SQLite's flags mean, and the state behind one file or one handle.

use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use libsqlite3_sys as sys;
use thermocline::{Stamp, Told};
use thermocline_core::hint::{FileKind, HintSet};

use crate::backing::{Backing, Spec};
use crate::lock::{Busy, Level, Locks};
use crate::oslock::{self, BaseClock};
use crate::registry::{Backend, Leaving, Registry, refuse_write_back, temporary_path};

/// A file whose base device is wanted.
#[derive(Clone, Copy, Debug)]
pub struct BaseFile<'a> {
    /// Absolute path; the file exists. A temporary one loses its name once its device is there.
    pub path: &'a Path,
    /// Database (*relation*), journal or WAL (*log*), or *temporary*.
    pub kind: FileKind,
    /// Whether it may be written.
    pub writable: bool,
}

/// Device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    pub(crate) dev: u64,
    pub(crate) ino: u64,
}

impl FileKey {
    fn of(meta: &Metadata) -> Self {
        Self {
            dev: meta.dev(),
            ino: meta.ino(),
        }
    }
}

/// What `xOpen`'s flags ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) kind: FileKind,
    pub(crate) write: bool,
    pub(crate) create: bool,
    pub(crate) exclusive: bool,
    pub(crate) delete_on_close: bool,
    pub(crate) main: bool,
    /// Its connection takes no locks (`nolock` or `immutable` in the URI): the user vouches that
    /// nobody changes the file.
    pub(crate) vouched: bool,
}

impl Wanted {
    pub(crate) fn from_flags(flags: i32, vouched: bool) -> Self {
        let any = |mask: i32| flags & mask != 0;
        Self {
            kind: kind_from_flags(flags),
            write: any(sys::SQLITE_OPEN_READWRITE),
            create: any(sys::SQLITE_OPEN_CREATE),
            exclusive: any(sys::SQLITE_OPEN_EXCLUSIVE),
            delete_on_close: any(sys::SQLITE_OPEN_DELETEONCLOSE),
            main: any(sys::SQLITE_OPEN_MAIN_DB),
            vouched,
        }
    }
}

fn kind_from_flags(flags: i32) -> FileKind {
    const TEMPORARY: i32 = sys::SQLITE_OPEN_TEMP_DB
        | sys::SQLITE_OPEN_TRANSIENT_DB
        | sys::SQLITE_OPEN_TEMP_JOURNAL
        | sys::SQLITE_OPEN_SUBJOURNAL;
    const LOG: i32 =
        sys::SQLITE_OPEN_MAIN_JOURNAL | sys::SQLITE_OPEN_SUPER_JOURNAL | sys::SQLITE_OPEN_WAL;
    match flags {
        f if f & sys::SQLITE_OPEN_MAIN_DB != 0 => FileKind::Relation,
        f if f & LOG != 0 => FileKind::Log,
        f if f & TEMPORARY != 0 => FileKind::Temporary,
        _ => FileKind::Unknown,
    }
}

/// One open file: for a main database shared by all its handles, else owned by one.
pub(crate) struct SharedFile {
    pub(crate) backing: Backing,
    pub(crate) writable: bool,
    file: Arc<File>,
    cached: bool,
    /// Whether others are kept out; until then what is read is not to be kept.
    alone: AtomicBool,
    /// Pages may have been cached while others were not kept out.
    doubtful: AtomicBool,
    clock: BaseClock,
    /// By base's clock, no later than the last write; [`NEVER`] before the first.
    written: AtomicI64,
    /// After `backing`: that notes how it leaves the file, while others are still out.
    guard: Mutex<Guard>,
    /// What its connections open journals with, also without a registration.
    _backend: Arc<Backend>,
    /// Last: whoever opens the file next waits for this. Set by the registry, for what is shared.
    pub(crate) leaving: Option<Leaving>,
}

/// No time of a write.
const NEVER: i64 = i64::MIN;

/// Locks of this process on one file.
struct Guard {
    locks: Locks,
    /// The lock against other processes; once taken it stays.
    hold: Option<oslock::Hold>,
    /// How the file looked when opened, before the lock kept others out.
    opened: Stamp,
}

impl SharedFile {
    fn new(backend: &Arc<Backend>, opened: Opened, wanted: &Wanted) -> io::Result<Self> {
        let Opened {
            file,
            path,
            writable,
            key,
        } = opened;
        let base = (backend.open_base)(&BaseFile {
            path: &path,
            kind: wanted.kind,
            writable,
        })?;
        if std::fs::metadata(&path).is_ok_and(|found| FileKey::of(&found) != key) {
            let text = format!("{} was replaced while it was opened", path.display());
            return Err(io::Error::other(text));
        }
        let opened = Stamp::of(&file.metadata()?);
        let file = Arc::new(file);
        let (kind, cached) = (wanted.kind, wanted.main);
        let spec = Spec {
            path: &path,
            file: Arc::clone(&file),
            base,
            kind,
            cached,
        };
        let backing = Backing::open(&backend.engine, spec)?;
        let guard = Guard {
            locks: Locks::default(),
            hold: None,
            opened,
        };
        Ok(Self {
            backing,
            writable,
            file,
            cached,
            alone: AtomicBool::new(false),
            doubtful: AtomicBool::new(false),
            clock: BaseClock::new(backend.engine.base_clock()),
            written: AtomicI64::new(NEVER),
            guard: Mutex::new(guard),
            _backend: Arc::clone(backend),
            leaving: None,
        })
    }

    /// Whether somebody else may change the file at this moment.
    fn is_open_to_others(&self) -> bool {
        self.cached && !self.alone.load(Ordering::SeqCst)
    }

    /// Reads for `handle`. SQLite reads a database's header before it takes any lock: while others
    /// may change the file, base answers, and nothing is kept of it.
    pub(crate) fn read(
        &self,
        buf: &mut [u8],
        offset: u64,
        hints: HintSet,
        handle: &OpenFile,
    ) -> io::Result<usize> {
        if self.is_open_to_others() {
            if !handle.vouched {
                return self.backing.read_base(buf, offset);
            }
            self.doubtful.store(true, Ordering::SeqCst);
        }
        self.backing.read(buf, offset, hints, handle.client())
    }

    pub(crate) fn write(
        &self,
        data: &[u8],
        offset: u64,
        hints: HintSet,
        client: u32,
    ) -> io::Result<()> {
        if self.is_open_to_others() {
            self.doubtful.store(true, Ordering::SeqCst);
        }
        if self.cached {
            self.written.store(self.clock.tick_ns(), Ordering::SeqCst);
        }
        self.backing.write(data, offset, hints, client)
    }

    /// Whether the file's times will show what others change after this.
    fn shows_later_changes(&self) -> bool {
        let written = Some(self.written.load(Ordering::SeqCst)).filter(|at| *at != NEVER);
        let meta = self.file.metadata();
        meta.is_ok_and(|meta| self.clock.shows_changes_after(&meta, written))
    }

    /// Raises `handle`'s lock; the first lock of the process also keeps other processes out.
    pub(crate) fn lock(
        &self,
        handle: u64,
        held: Level,
        wanted: Level,
    ) -> io::Result<Result<Level, Busy>> {
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.hold.is_none() && !self.keep_others_out(&mut guard, self.writable)? {
            return Ok(Err(Busy(held)));
        }
        Ok(guard.locks.lock(handle, held, wanted))
    }

    /// Takes the lock against other processes and drops pages cached before they were out.
    fn keep_others_out(&self, guard: &mut Guard, to_write: bool) -> io::Result<bool> {
        let Some(hold) = oslock::try_hold(&self.file, to_write, self.clock)? else {
            return Ok(false);
        };
        let changed = Stamp::of(&self.file.metadata()?) != guard.opened;
        if changed || self.doubtful.load(Ordering::SeqCst) {
            self.backing.refresh()?;
        }
        guard.hold = Some(hold);
        self.alone.store(true, Ordering::SeqCst);
        Ok(true)
    }

    pub(crate) fn unlock(&self, handle: u64, held: Level, wanted: Level) -> Level {
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        guard.locks.unlock(handle, held, wanted)
    }

    /// Whether a connection, here or in another process, is writing or about to.
    pub(crate) fn reserved(&self) -> io::Result<bool> {
        let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.hold.is_none() && !self.keep_others_out(&mut guard, self.writable)? {
            return Ok(true);
        }
        Ok(guard.locks.reserved())
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // The engine notes how the file looks when it is left, and takes what it has of it for
        // that. So nobody may change it between the comparison and the note, and whoever changes it
        // afterwards must leave it looking otherwise.
        if self.is_open_to_others() {
            // No connection took a lock. Others may read meanwhile.
            let mut guard = self.guard.lock().unwrap_or_else(PoisonError::into_inner);
            if !matches!(self.keep_others_out(&mut guard, false), Ok(true)) {
                self.backing.forget_pages();
            }
        }
        if self.cached && !self.shows_later_changes() {
            self.backing.forget_pages();
        }
    }
}

/// One handle: what a connection got from `xOpen`.
pub(crate) struct OpenFile {
    pub(crate) shared: Arc<SharedFile>,
    pub(crate) id: u64,
    pub(crate) level: Level,
    pub(crate) writable: bool,
    pub(crate) kind: FileKind,
    pub(crate) checkpointing: bool,
    /// The directory to sync with the file's first sync, when the file may be new.
    pub(crate) new_in: Option<PathBuf>,
    vouched: bool,
    /// Where the file was when it was opened.
    path: PathBuf,
    key: FileKey,
    /// Failed syncs of the file that its syncs have told of.
    pub(crate) told: Told,
}

impl OpenFile {
    /// Who asks, in traces: the number of the handle.
    pub(crate) fn client(&self) -> u32 {
        self.id as u32
    }

    /// Whether another file, or none, has the name now. Its journal is found by the name.
    pub(crate) fn has_moved(&self) -> bool {
        let found = std::fs::metadata(&self.path);
        found.map_or(true, |found| FileKey::of(&found) != self.key)
    }
}

/// A file just opened, before it has an object.
struct Opened {
    file: File,
    path: PathBuf,
    writable: bool,
    key: FileKey,
}

/// Opens `path` (a temporary file of our own naming when `None`).
pub(crate) fn open(
    registry: &'static Registry,
    backend: &Arc<Backend>,
    path: Option<&Path>,
    wanted: Wanted,
) -> io::Result<OpenFile> {
    if wanted.main {
        refuse_write_back(&backend.engine)?;
    }
    let id = registry.new_handle();
    let opened = match path {
        Some(path) => open_named(path, &wanted)?,
        None => open_unnamed(id)?,
    };
    let unnamed = path.is_none();
    let (path, key) = (opened.path.clone(), opened.key);
    let fresh = wanted.create && wanted.kind == FileKind::Log;
    let new_in = if fresh {
        path.parent().map(Path::to_owned)
    } else {
        None
    };
    let shared = if wanted.main {
        registry.share(opened.key, || SharedFile::new(backend, opened, &wanted))
    } else {
        SharedFile::new(backend, opened, &wanted).map(Arc::new)
    };
    if wanted.delete_on_close || unnamed {
        // At once, as in SQLite: a process that is killed leaves nothing behind it. A name that
        // cannot be removed stays, as there.
        let _gone = std::fs::remove_file(&path);
    }
    let shared = shared?;
    Ok(OpenFile {
        told: shared.backing.told(),
        writable: wanted.write && shared.writable,
        shared,
        id,
        level: Level::None,
        kind: wanted.kind,
        checkpointing: false,
        new_in,
        vouched: wanted.vouched,
        path,
        key,
    })
}

/// Opens for writing if the file allows it, whatever the handle asked: other handles share it.
fn open_named(path: &Path, wanted: &Wanted) -> io::Result<Opened> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(wanted.create)
        .create_new(wanted.exclusive);
    let database = database_of(path, wanted);
    options.mode(mode_for(database.as_ref()));
    if let Some(database) = &database
        && let Ok(made) = options.clone().create_new(true).open(path)
    {
        give_mode(&made, database);
        give_to_owner(&made, database);
        return describe(made, path.to_owned(), true);
    }
    let (file, writable) = match options.open(path) {
        Ok(file) => (file, true),
        Err(error) if read_only_will_do(&error, wanted) => (File::open(path)?, false),
        Err(error) => return Err(error),
    };
    describe(file, path.to_owned(), writable)
}

fn describe(file: File, path: PathBuf, writable: bool) -> io::Result<Opened> {
    let meta = file.metadata()?;
    if meta.is_dir() {
        return Err(io::Error::from_raw_os_error(libc::EISDIR));
    }
    let key = FileKey::of(&meta);
    Ok(Opened {
        file,
        path,
        writable,
        key,
    })
}

/// The stock VFS falls back to reading too, and says so through `pOutFlags`.
fn read_only_will_do(error: &io::Error, wanted: &Wanted) -> bool {
    let refused = matches!(
        error.raw_os_error(),
        Some(libc::EACCES | libc::EPERM | libc::EROFS)
    );
    refused && !wanted.exclusive
}

/// The database that a journal to be made is of.
fn database_of(path: &Path, wanted: &Wanted) -> Option<Metadata> {
    if wanted.kind != FileKind::Log || !wanted.create {
        return None;
    }
    // Names need not be UTF-8.
    let name = path.as_os_str().as_bytes();
    let mut suffixes = ["-journal", "-wal"].iter();
    let database = suffixes.find_map(|suffix| name.strip_suffix(suffix.as_bytes()))?;
    std::fs::metadata(OsStr::from_bytes(database)).ok()
}

/// A journal gets its database's permissions (as in SQLite's `findCreateFileMode`).
fn mode_for(database: Option<&Metadata>) -> u32 {
    const DEFAULT: u32 = 0o644;
    database.map_or(DEFAULT, |meta| meta.permissions().mode() & 0o777)
}

/// The umask took away what the others who may write the database need (as in SQLite's
/// `robust_open`).
fn give_mode(made: &File, database: &Metadata) {
    // Where permissions cannot be changed they stay, as in SQLite.
    let _kept = made.set_permissions(Permissions::from_mode(mode_for(Some(database))));
}

/// A journal that root makes is its database's owner's, who could not use the database without (as
/// in SQLite's `robustFchown`). Only what was just made: another file may have the name.
fn give_to_owner(made: &File, database: &Metadata) {
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        // Where files cannot be given away it stays root's, as in SQLite.
        let _kept = fchown(made, Some(database.uid()), Some(database.gid()));
    }
}

fn open_unnamed(id: u64) -> io::Result<Opened> {
    for salt in 0..100_u64 {
        let path = temporary_path(id, salt);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        match options.open(&path) {
            Ok(file) => return describe(file, path, true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_tell_the_kind_of_file() {
        let kind = |flags| Wanted::from_flags(flags, false).kind;
        assert_eq!(kind(sys::SQLITE_OPEN_MAIN_DB), FileKind::Relation);
        assert_eq!(kind(sys::SQLITE_OPEN_WAL), FileKind::Log);
        assert_eq!(kind(sys::SQLITE_OPEN_MAIN_JOURNAL), FileKind::Log);
        assert_eq!(kind(sys::SQLITE_OPEN_SUBJOURNAL), FileKind::Temporary);
        assert_eq!(kind(0), FileKind::Unknown);
        assert!(Wanted::from_flags(sys::SQLITE_OPEN_MAIN_DB, false).main);
    }
}

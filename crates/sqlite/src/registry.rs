//! Registered VFSs and the database files open through each.
//!
//! A [`Registry`] lives as long as the process once registered: SQLite connections keep a plain
//! pointer to their VFS and may outlive the [`Registration`]. Dropping the registration takes the
//! VFS off SQLite's list and lets go of the engine; files still open keep their own hold on it, and
//! with it their connections open journals. Other databases are refused with `SQLITE_CANTOPEN`.
//! What stays behind is a few hundred bytes.

use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};

use thermocline::Engine;
use thermocline::device::Device;

use crate::open::{BaseFile, FileKey, SharedFile};
use crate::vfs;

/// Opens the base device of one file. Called with the file already created.
pub type OpenBase = Box<dyn Fn(&BaseFile<'_>) -> io::Result<Arc<dyn Device>> + Send + Sync>;

/// What a registration holds while it is alive.
pub(crate) struct Backend {
    pub(crate) engine: Arc<Engine>,
    pub(crate) open_base: OpenBase,
}

/// One registered VFS.
pub(crate) struct Registry {
    backend: Mutex<Option<Arc<Backend>>>,
    /// The same, for as long as an open file holds it.
    lasting: Weak<Backend>,
    /// Files that are open, and those whose last connection is closing them.
    files: Mutex<HashMap<FileKey, Weak<SharedFile>>>,
    /// One of them was closed.
    closed: Condvar,
    next_handle: AtomicU64,
}

impl Registry {
    /// The engine and base factory; `None` once the registration is gone, for a file that is not a
    /// `main` database once the last open file is gone as well.
    pub(crate) fn backend(&self, main: bool) -> Option<Arc<Backend>> {
        if !main {
            return self.lasting.upgrade();
        }
        self.backend
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// A number no other handle of this VFS has.
    pub(crate) fn new_handle(&self) -> u64 {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// The file `key` if a connection has it open, else the one `open` makes. Waits for a last
    /// connection that is closing it: that one still has the lock against other processes, and the
    /// engine has not noted yet how it left the file.
    pub(crate) fn share(
        &'static self,
        key: FileKey,
        open: impl FnOnce() -> io::Result<SharedFile>,
    ) -> io::Result<Arc<SharedFile>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(file) = files.get(&key) {
            if let Some(live) = file.upgrade() {
                return Ok(live);
            }
            let woken = self.closed.wait(files);
            files = woken.unwrap_or_else(PoisonError::into_inner);
        }
        let mut file = open()?;
        file.leaving = Some(Leaving {
            registry: self,
            key,
        });
        let shared = Arc::new(file);
        files.insert(key, Arc::downgrade(&shared));
        Ok(shared)
    }
}

/// Part of a shared file; dropped when nothing else of it is left.
pub(crate) struct Leaving {
    registry: &'static Registry,
    key: FileKey,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let files = self.registry.files.lock();
        let gone = files
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.key);
        debug_assert!(gone.is_some_and(|file| file.strong_count() == 0));
        self.registry.closed.notify_all();
    }
}

/// A VFS known to SQLite under a name. Dropping it takes the VFS off SQLite's list.
pub struct Registration {
    name: String,
    registry: &'static Registry,
    vfs: vfs::Handle,
}

impl Registration {
    /// The name to open databases with.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        vfs::unregister(&self.vfs);
        *self
            .registry
            .backend
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Registers a VFS called `name` over `engine`. `open_base` opens the base device of every file
/// (database, journal, temporary), so a caller can put emulated devices below some of them.
///
/// # Errors
/// `InvalidInput` when the name has a NUL byte or the engine is in write-back, `AlreadyExists` when
/// SQLite knows a VFS of this name, `Other` when SQLite refuses the registration.
pub fn register(name: &str, engine: Arc<Engine>, open_base: OpenBase) -> io::Result<Registration> {
    let c_name = CString::new(name)?;
    refuse_write_back(&engine)?;
    if vfs::exists(&c_name) {
        let text = format!("SQLite already has a VFS called {name:?}");
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
    }
    let backend = Arc::new(Backend { engine, open_base });
    let registry: &'static Registry = Box::leak(Box::new(Registry {
        lasting: Arc::downgrade(&backend),
        backend: Mutex::new(Some(backend)),
        files: Mutex::default(),
        closed: Condvar::new(),
        next_handle: AtomicU64::new(1),
    }));
    let vfs = vfs::install(c_name, registry)?;
    Ok(Registration {
        name: name.to_owned(),
        registry,
        vfs,
    })
}

/// SQLite holds what base has to be its file. In write-back that is not so, and pages dropped
/// because others changed the file would be lost commits.
pub(crate) fn refuse_write_back(engine: &Engine) -> io::Result<()> {
    if engine.is_write_back() {
        let text = "SQLite needs an engine in write-through; this one is in write-back";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(())
}

/// As SQLite asks: else the next place is tried.
fn may_make_files_in(directory: &Path) -> bool {
    let Ok(path) = CString::new(directory.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: the path is terminated and lives through the call.
    unsafe { libc::access(path.as_ptr(), libc::W_OK | libc::X_OK) == 0 }
}

/// The path a temporary file without a name gets; unique in this process and not in use.
pub(crate) fn temporary_path(handle: u64, salt: u64) -> PathBuf {
    let name = format!(
        "thermocline-sqlite-{}-{handle:x}-{salt:016x}",
        std::process::id()
    );
    // SQLite's own variable counts first, as with the stock VFS.
    let of_sqlite = std::env::var_os("SQLITE_TMPDIR").map(PathBuf::from);
    let directory =
        of_sqlite.filter(|directory| directory.is_dir() && may_make_files_in(directory));
    directory.unwrap_or_else(std::env::temp_dir).join(name)
}

//! `sqlite3_vfs`: opening and deleting files; the rest is the stock VFS's.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;

use libsqlite3_sys as sys;

use crate::ffi::{Code, fenced, io_code};
use crate::file::{self, RAW_FILE_BYTES};
use crate::open::{self, Wanted};
use crate::registry::Registry;

/// Behind `pAppData`.
struct AppData {
    registry: &'static Registry,
    /// The VFS that was the default at registration.
    stock: *mut sys::sqlite3_vfs,
}

/// A registered structure; lives as long as the process.
pub(crate) struct Handle(*mut sys::sqlite3_vfs);

// SAFETY: the pointer is only handed to sqlite3_vfs_unregister, which takes SQLite's own mutex.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// Whether SQLite knows a VFS of this name.
pub(crate) fn exists(name: &CStr) -> bool {
    // SAFETY: `name` is NUL-terminated for the length of the call.
    !unsafe { sys::sqlite3_vfs_find(name.as_ptr()) }.is_null()
}

/// Puts a VFS on SQLite's list, not as the default.
pub(crate) fn install(name: CString, registry: &'static Registry) -> io::Result<Handle> {
    // SAFETY: a null name asks for the default VFS.
    let stock = unsafe { sys::sqlite3_vfs_find(ptr::null()) };
    if stock.is_null() {
        return Err(io::Error::other("SQLite has no default VFS"));
    }
    // SAFETY: SQLite keeps registered structures valid. A structure of version 1 ends before the
    // last field, which is looked at in others alone.
    let (path_bytes, has_time) = unsafe {
        let has_time = (*stock).iVersion >= 2 && (*stock).xCurrentTimeInt64.is_some();
        ((*stock).mxPathname, has_time)
    };
    let vfs = Box::into_raw(Box::new(sys::sqlite3_vfs {
        iVersion: 2,
        szOsFile: RAW_FILE_BYTES,
        mxPathname: path_bytes,
        pNext: ptr::null_mut(),
        zName: name.into_raw(),
        pAppData: Box::into_raw(Box::new(AppData { registry, stock })).cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: Some(dl_open),
        xDlError: Some(dl_error),
        xDlSym: Some(dl_sym),
        xDlClose: Some(dl_close),
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: None,
        xCurrentTimeInt64: has_time.then_some(current_time_int64),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    }));
    // SAFETY: the structure is complete and stays valid for ever (never freed).
    match unsafe { sys::sqlite3_vfs_register(vfs, 0) } {
        sys::SQLITE_OK => Ok(Handle(vfs)),
        code => Err(io::Error::other(format!(
            "SQLite refused the VFS with code {code}"
        ))),
    }
}

/// Takes a VFS off SQLite's list. The structure stays for connections that still point to it.
pub(crate) fn unregister(handle: &Handle) {
    // SAFETY: the structure was registered by `install` and is still valid.
    let code = unsafe { sys::sqlite3_vfs_unregister(handle.0) };
    debug_assert_eq!(code, sys::SQLITE_OK);
}

/// # Safety
/// `vfs` is a structure made by [`install`].
unsafe fn app_data<'a>(vfs: *mut sys::sqlite3_vfs) -> &'a AppData {
    // SAFETY: `install` stored a pointer from Box::into_raw which is never freed.
    unsafe { &*(*vfs).pAppData.cast::<AppData>() }
}

/// # Safety
/// `name` is null or NUL-terminated and valid for `'a`.
unsafe fn path<'a>(name: *const c_char) -> Option<&'a Path> {
    if name.is_null() {
        return None;
    }
    // SAFETY: by the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())))
}

/// Whether the URI that `name` came from says that nobody changes the file, so that SQLite takes no
/// locks.
fn is_vouched(name: sys::sqlite3_filename, flags: c_int) -> bool {
    // Others have no parameters behind their names.
    if name.is_null() || flags & sys::SQLITE_OPEN_MAIN_DB == 0 {
        return false;
    }
    let mut asked = [c"nolock", c"immutable"].into_iter();
    // SAFETY: SQLite passed the name of a main database to xOpen, behind which its parameters are.
    asked.any(|what| unsafe { sys::sqlite3_uri_boolean(name, what.as_ptr(), 0) } != 0)
}

unsafe extern "C" fn open(
    vfs: *mut sys::sqlite3_vfs,
    name: sys::sqlite3_filename,
    raw: *mut sys::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: SQLite allocated szOsFile bytes at `raw`.
    unsafe { file::detach(raw) };
    // SAFETY: SQLite passes the structure `install` registered.
    let registry = unsafe { app_data(vfs) }.registry;
    // SAFETY: SQLite passes null or a path that outlives the open file.
    let path = unsafe { path(name) };
    fenced(|| {
        let wanted = Wanted::from_flags(flags, is_vouched(name, flags));
        let backend = registry.backend(wanted.main);
        let backend = backend.ok_or(Code(sys::SQLITE_CANTOPEN))?;
        let opened = open::open(registry, &backend, path, wanted);
        let opened = opened.map_err(|error| io_code(&error, sys::SQLITE_CANTOPEN))?;
        if !out_flags.is_null() {
            const ACCESS: c_int = sys::SQLITE_OPEN_READONLY | sys::SQLITE_OPEN_READWRITE;
            let access = match opened.writable {
                true => sys::SQLITE_OPEN_READWRITE,
                false => sys::SQLITE_OPEN_READONLY,
            };
            // SAFETY: not null, so it points to one int of SQLite's own.
            unsafe { out_flags.write((flags & !ACCESS) | access) };
        }
        // SAFETY: SQLite allocated szOsFile bytes at `raw`.
        unsafe { file::attach(raw, opened) };
        Ok(())
    })
}

unsafe extern "C" fn delete(
    _vfs: *mut sys::sqlite3_vfs,
    name: *const c_char,
    sync_directory: c_int,
) -> c_int {
    // SAFETY: SQLite passes a path for the length of the call.
    let path = unsafe { path(name) };
    fenced(|| {
        let path = path.ok_or(Code(sys::SQLITE_MISUSE))?;
        std::fs::remove_file(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => Code(sys::SQLITE_IOERR_DELETE_NOENT),
            _ => io_code(&error, sys::SQLITE_IOERR_DELETE),
        })?;
        match path.parent() {
            Some(directory) if sync_directory != 0 => file::sync_directory(directory),
            _ => Ok(()),
        }
    })
}

/// Calls the stock VFS's function of the same name with the stock structure: it may look for its
/// own data there. Where there is none the answer is the last argument.
macro_rules! stock {
    ($vfs:expr, $method:ident ($($argument:expr),*), $none:expr) => {{
        // SAFETY: SQLite passes the structure `install` registered.
        let stock = unsafe { app_data($vfs) }.stock;
        // SAFETY: the stock VFS stays registered; its arguments are passed on untouched.
        match unsafe { (*stock).$method } {
            // SAFETY: as above.
            Some(method) => unsafe { method(stock $(, $argument)*) },
            None => $none,
        }
    }};
}

unsafe extern "C" fn dl_open(vfs: *mut sys::sqlite3_vfs, name: *const c_char) -> *mut c_void {
    stock!(vfs, xDlOpen(name), ptr::null_mut())
}

unsafe extern "C" fn dl_error(vfs: *mut sys::sqlite3_vfs, bytes: c_int, out: *mut c_char) {
    stock!(vfs, xDlError(bytes, out), ());
}

/// A function of a library, of whatever type.
type Symbol = unsafe extern "C" fn(*mut sys::sqlite3_vfs, *mut c_void, *const c_char);

unsafe extern "C" fn dl_sym(
    vfs: *mut sys::sqlite3_vfs,
    library: *mut c_void,
    symbol: *const c_char,
) -> Option<Symbol> {
    stock!(vfs, xDlSym(library, symbol), None)
}

unsafe extern "C" fn dl_close(vfs: *mut sys::sqlite3_vfs, library: *mut c_void) {
    stock!(vfs, xDlClose(library), ());
}

unsafe extern "C" fn access(
    vfs: *mut sys::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    result: *mut c_int,
) -> c_int {
    stock!(vfs, xAccess(name, flags, result), sys::SQLITE_ERROR)
}

unsafe extern "C" fn full_pathname(
    vfs: *mut sys::sqlite3_vfs,
    name: *const c_char,
    bytes: c_int,
    out: *mut c_char,
) -> c_int {
    stock!(vfs, xFullPathname(name, bytes, out), sys::SQLITE_ERROR)
}

unsafe extern "C" fn randomness(
    vfs: *mut sys::sqlite3_vfs,
    bytes: c_int,
    out: *mut c_char,
) -> c_int {
    stock!(vfs, xRandomness(bytes, out), sys::SQLITE_ERROR)
}

unsafe extern "C" fn sleep(vfs: *mut sys::sqlite3_vfs, microseconds: c_int) -> c_int {
    stock!(vfs, xSleep(microseconds), sys::SQLITE_ERROR)
}

unsafe extern "C" fn current_time(vfs: *mut sys::sqlite3_vfs, days: *mut f64) -> c_int {
    stock!(vfs, xCurrentTime(days), sys::SQLITE_ERROR)
}

unsafe extern "C" fn current_time_int64(
    vfs: *mut sys::sqlite3_vfs,
    milliseconds: *mut sys::sqlite3_int64,
) -> c_int {
    stock!(vfs, xCurrentTimeInt64(milliseconds), sys::SQLITE_ERROR)
}

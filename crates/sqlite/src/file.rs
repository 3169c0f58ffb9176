//! `sqlite3_io_methods`: one function per callback, thin over [`OpenFile`].

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::path::Path;

use libsqlite3_sys as sys;
use thermocline_core::hint::{FileKind, HintSet, RequestType, Role, hint_type};

use crate::ffi::{Code, fenced, io_code};
use crate::lock::{Busy, Level};
use crate::open::OpenFile;

/// SQLite's file structure with our handle behind it; SQLite allocates it, `xOpen` fills it.
#[repr(C)]
pub(crate) struct RawFile {
    base: sys::sqlite3_file,
    handle: *mut OpenFile,
}

/// Bytes SQLite has to allocate per file.
pub(crate) const RAW_FILE_BYTES: c_int = size_of::<RawFile>() as c_int;

/// Units SQLite may write without touching its neighbours; the pages of most devices and file
/// systems.
const SECTOR_BYTES: c_int = 4096;

static METHODS: sys::sqlite3_io_methods = sys::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// Fills the structure SQLite allocated so that its callbacks reach `handle`.
///
/// # Safety
/// `raw` points to at least [`RAW_FILE_BYTES`] writable bytes aligned for a pointer.
pub(crate) unsafe fn attach(raw: *mut sys::sqlite3_file, handle: OpenFile) {
    let file = RawFile {
        base: sys::sqlite3_file {
            pMethods: &raw const METHODS,
        },
        handle: Box::into_raw(Box::new(handle)),
    };
    // SAFETY: by the caller's promise there is room for a RawFile at `raw`.
    unsafe { raw.cast::<RawFile>().write(file) };
}

/// Marks the structure as not open, so that SQLite will not call `xClose`.
///
/// # Safety
/// As for [`attach`].
pub(crate) unsafe fn detach(raw: *mut sys::sqlite3_file) {
    let file = RawFile {
        base: sys::sqlite3_file {
            pMethods: std::ptr::null(),
        },
        handle: std::ptr::null_mut(),
    };
    // SAFETY: by the caller's promise there is room for a RawFile at `raw`.
    unsafe { raw.cast::<RawFile>().write(file) };
}

/// Runs `body` on the handle behind `raw`, fenced.
///
/// # Safety
/// `raw` was filled by [`attach`] and not closed since; SQLite uses a file from one thread at a
/// time.
unsafe fn with(
    raw: *mut sys::sqlite3_file,
    body: impl FnOnce(&mut OpenFile) -> Result<(), Code>,
) -> c_int {
    // SAFETY: `attach` stored a pointer from Box::into_raw which lives until `close`, and by the
    // caller's promise nobody else uses the handle during this call.
    let handle = unsafe { &mut *(*raw.cast::<RawFile>()).handle };
    fenced(|| body(handle))
}

unsafe extern "C" fn close(raw: *mut sys::sqlite3_file) -> c_int {
    // SAFETY: SQLite calls xClose once, on a file that `attach` filled.
    let handle = unsafe { Box::from_raw((*raw.cast::<RawFile>()).handle) };
    // SAFETY: the structure is SQLite's own allocation of RAW_FILE_BYTES.
    unsafe { detach(raw) };
    fenced(|| {
        let OpenFile {
            shared, id, level, ..
        } = *handle;
        shared.unlock(id, level, Level::None);
        drop(shared);
        Ok(())
    })
}

unsafe extern "C" fn read(
    raw: *mut sys::sqlite3_file,
    buf: *mut c_void,
    amount: c_int,
    offset: sys::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite passes a buffer of `amount` bytes that is its own for this call.
    let buf = unsafe { std::slice::from_raw_parts_mut(buf.cast::<u8>(), length(amount)) };
    let body = |file: &mut OpenFile| {
        let hints = hints(file, RequestType::Unknown);
        let count = file
            .shared
            .read(buf, position(offset)?, hints, file)
            .map_err(|error| io_code(&error, sys::SQLITE_IOERR_READ))?;
        if count < buf.len() {
            buf[count..].fill(0);
            return Err(Code(sys::SQLITE_IOERR_SHORT_READ));
        }
        Ok(())
    };
    // SAFETY: SQLite calls this on a file that `attach` filled.
    unsafe { with(raw, body) }
}

unsafe extern "C" fn write(
    raw: *mut sys::sqlite3_file,
    data: *const c_void,
    amount: c_int,
    offset: sys::sqlite3_int64,
) -> c_int {
    // SAFETY: SQLite passes `amount` readable bytes that do not change during this call.
    let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length(amount)) };
    let body = |file: &mut OpenFile| {
        writable(file)?;
        let checkpoint = file.checkpointing && file.kind == FileKind::Relation;
        let request = if checkpoint {
            RequestType::RecoveryWrite
        } else {
            RequestType::Write
        };
        let hints = hints(file, request);
        let written = file
            .shared
            .write(data, position(offset)?, hints, file.client());
        written.map_err(|error| io_code(&error, sys::SQLITE_IOERR_WRITE))
    };
    // SAFETY: SQLite calls this on a file that `attach` filled.
    unsafe { with(raw, body) }
}

unsafe extern "C" fn truncate(raw: *mut sys::sqlite3_file, size: sys::sqlite3_int64) -> c_int {
    let body = |file: &mut OpenFile| {
        writable(file)?;
        let cut = file.shared.backing.truncate(position(size)?);
        cut.map_err(|error| io_code(&error, sys::SQLITE_IOERR_TRUNCATE))
    };
    // SAFETY: SQLite calls this on a file that `attach` filled.
    unsafe { with(raw, body) }
}

unsafe extern "C" fn sync(raw: *mut sys::sqlite3_file, flags: c_int) -> c_int {
    let body = |file: &mut OpenFile| {
        let data_only = flags & sys::SQLITE_SYNC_DATAONLY != 0;
        let synced = file.shared.backing.sync(&file.told, data_only);
        synced.map_err(|error| io_code(&error, sys::SQLITE_IOERR_FSYNC))?;
        if let Some(directory) = &file.new_in {
            sync_directory(directory)?;
            // Not before: the next sync tries again.
            file.new_in = None;
        }
        Ok(())
    };
    // SAFETY: SQLite calls this on a file that `attach` filled.
    unsafe { with(raw, body) }
}

unsafe extern "C" fn file_size(
    raw: *mut sys::sqlite3_file,
    size: *mut sys::sqlite3_int64,
) -> c_int {
    let body = |file: &mut OpenFile| {
        let len = file.shared.backing.len();
        let len = len.map_err(|error| io_code(&error, sys::SQLITE_IOERR_FSTAT))?;
        let len = i64::try_from(len).map_err(|_| Code(sys::SQLITE_IOERR_FSTAT))?;
        // SAFETY: SQLite passes a pointer to one integer of its own.
        unsafe { size.write(len) };
        Ok(())
    };
    // SAFETY: SQLite calls this on a file that `attach` filled.
    unsafe { with(raw, body) }
}

unsafe extern "C" fn lock(raw: *mut sys::sqlite3_file, wanted: c_int) -> c_int {
    let body = |file: &mut OpenFile| {
        let wanted = Level::from_number(wanted).ok_or(Code(sys::SQLITE_MISUSE))?;
        let outcome = file.shared.lock(file.id, file.level, wanted);
        match outcome.map_err(|error| io_code(&error, sys::SQLITE_IOERR_LOCK))? {
            Ok(level) => {
                file.level = level;
                Ok(())
            }
            Err(Busy(level)) => {
                file.level = level;
                Err(Code(sys::SQLITE_BUSY))
            }
        }
    };
    // SAFETY: SQLite calls this on a file that `attach` filled.
    unsafe { with(raw, body) }
}

unsafe extern "C" fn unlock(raw: *mut sys::sqlite3_file, wanted: c_int) -> c_int {
    let body = |file: &mut OpenFile| {
        let wanted = Level::from_number(wanted).ok_or(Code(sys::SQLITE_MISUSE))?;
        file.level = file.shared.unlock(file.id, file.level, wanted);
        Ok(())
    };
    // SAFETY: SQLite calls this on a file that `attach` filled.
    unsafe { with(raw, body) }
}

unsafe extern "C" fn check_reserved_lock(raw: *mut sys::sqlite3_file, result: *mut c_int) -> c_int {
    let body = |file: &mut OpenFile| {
        let reserved = file.shared.reserved();
        let reserved =
            reserved.map_err(|error| io_code(&error, sys::SQLITE_IOERR_CHECKRESERVEDLOCK))?;
        // SAFETY: SQLite passes a pointer to one integer of its own.
        unsafe { result.write(c_int::from(reserved)) };
        Ok(())
    };
    // SAFETY: SQLite calls this on a file that `attach` filled.
    unsafe { with(raw, body) }
}

unsafe extern "C" fn file_control(
    raw: *mut sys::sqlite3_file,
    op: c_int,
    argument: *mut c_void,
) -> c_int {
    let body = |file: &mut OpenFile| {
        match op {
            sys::SQLITE_FCNTL_CKPT_START => file.checkpointing = true,
            sys::SQLITE_FCNTL_CKPT_DONE => file.checkpointing = false,
            // SAFETY: for this operation the argument points to one int.
            sys::SQLITE_FCNTL_LOCKSTATE => unsafe {
                argument.cast::<c_int>().write(file.level as c_int);
            },
            // SAFETY: for this operation the argument points to one int.
            sys::SQLITE_FCNTL_HAS_MOVED => unsafe {
                argument.cast::<c_int>().write(file.has_moved().into());
            },
            _ => return Err(Code(sys::SQLITE_NOTFOUND)),
        }
        Ok(())
    };
    // SAFETY: SQLite calls this on a file that `attach` filled.
    unsafe { with(raw, body) }
}

unsafe extern "C" fn sector_size(_raw: *mut sys::sqlite3_file) -> c_int {
    SECTOR_BYTES
}

unsafe extern "C" fn device_characteristics(_raw: *mut sys::sqlite3_file) -> c_int {
    // Not UNDELETABLE_WHEN_OPEN: with it SQLite keeps a journal open that another connection may
    // delete, and then journals into a file that nobody finds after a crash.
    sys::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}

/// What is known about a request without looking at its bytes. Reads get their request type
/// from the stream they belong to.
fn hints(file: &OpenFile, request: RequestType) -> HintSet {
    HintSet::UNKNOWN
        .with(hint_type::FILE_KIND, file.kind.value())
        .with(hint_type::REQUEST, request.value())
        .with(hint_type::ROLE, Role::Application.value())
}

/// Makes a new file's directory entry durable. As in SQLite, who may make files in a directory but
/// not read it cannot sync it, and goes on without.
pub(crate) fn sync_directory(directory: &Path) -> Result<(), Code> {
    let opened = match File::open(directory) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(()),
        opened => opened,
    };
    let synced = opened.and_then(|directory| directory.sync_all());
    synced.map_err(|error| io_code(&error, sys::SQLITE_IOERR_DIR_FSYNC))
}

fn writable(file: &OpenFile) -> Result<(), Code> {
    if file.writable {
        Ok(())
    } else {
        Err(Code(sys::SQLITE_READONLY))
    }
}

fn position(offset: sys::sqlite3_int64) -> Result<u64, Code> {
    u64::try_from(offset).map_err(|_| Code(sys::SQLITE_MISUSE))
}

/// SQLite never passes a negative length; one would be an empty request.
fn length(amount: c_int) -> usize {
    usize::try_from(amount).unwrap_or(0)
}

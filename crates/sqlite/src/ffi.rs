//! What every callback needs at the C boundary: result codes and a fence against panics.

use std::ffi::c_int;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use libsqlite3_sys as sys;

/// An SQLite result code other than `SQLITE_OK`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) c_int);

/// Runs a callback's body; a panic becomes `SQLITE_IOERR` instead of unwinding into C.
pub(crate) fn fenced(body: impl FnOnce() -> Result<(), Code>) -> c_int {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => sys::SQLITE_OK,
        Ok(Err(Code(code))) => code,
        Err(_panic) => sys::SQLITE_IOERR,
    }
}

/// The code for an I/O error: a full disk is told apart, the rest is `otherwise`.
pub(crate) fn io_code(error: &io::Error, otherwise: c_int) -> Code {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => Code(sys::SQLITE_FULL),
        _ => Code(otherwise),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_code() {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let code = fenced(|| panic!("inside a callback"));
        std::panic::set_hook(hook);
        assert_eq!(code, sys::SQLITE_IOERR);
    }

    #[test]
    fn a_full_disk_is_told_apart() {
        let full = io::Error::from_raw_os_error(libc::ENOSPC);
        assert_eq!(
            io_code(&full, sys::SQLITE_IOERR_WRITE),
            Code(sys::SQLITE_FULL)
        );
        let other = io::Error::from_raw_os_error(libc::EIO);
        assert_eq!(
            io_code(&other, sys::SQLITE_IOERR_WRITE),
            Code(sys::SQLITE_IOERR_WRITE)
        );
    }
}

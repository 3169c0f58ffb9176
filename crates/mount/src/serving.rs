//! Requests of the kernel being served.
//!
//! A panic ends the thread it happens in and no other: the request would never be answered, one
//! thread would be missing, and the others would go on with what the panic left. [`Served`] is the
//! only way to the file system for whoever serves requests, and a panic under it ends the process
//! after its message: recovery after a crash is the path that is tested.

use std::ops::Deref;
use std::sync::Arc;

use crate::fs::Fs;
use crate::lock::end_process;

/// A file system that is reached through [`Served::fs`] alone.
pub(crate) struct Served(Arc<Fs>);

impl Served {
    pub(crate) fn new(fs: Arc<Fs>) -> Self {
        Self(fs)
    }

    /// The file system outside of any request.
    pub(crate) fn unserved(&self) -> &Fs {
        &self.0
    }

    /// The file system for one request; to be held until the request is answered.
    pub(crate) fn fs(&self) -> Serving<'_> {
        assert!(!std::thread::panicking(), "a request begins in peace");
        Serving(&self.0)
    }
}

/// The file system while a request is served.
pub(crate) struct Serving<'a>(&'a Fs);

impl Deref for Serving<'_> {
    type Target = Fs;

    fn deref(&self) -> &Fs {
        self.0
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            end_process("a request was left half served");
        }
    }
}

//! Requests by reads of `/dev/fuse`: one read a request, one write an answer.
//!
//! Every thread takes a request, serves it to its end and answers it before it takes the next. So
//! that threads which wait for a slow base keep nobody else waiting there is one more when all are
//! busy.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::unix::ffi::OsStrExt;

use thermocline::device::AlignedBuf;
use zerocopy::IntoBytes;

use super::crew::Waiting;
use crate::fuse::{Frontend, REQUEST_MAX};
use crate::protocol::{
    Answer, InHeader, Incoming, NOTIFY_INVAL_ENTRY, NOTIFY_PRUNE, NotifyInvalEntryOut,
    NotifyPruneOut, OutHeader, WriteIn,
};

const PAGE: usize = 4096;
/// Where requests are read to: so that the data of a write, behind its header and struct, begins
/// with a page and can go to base as it is.
const START: usize = PAGE - size_of::<InHeader>() - size_of::<WriteIn>();
/// Room for the largest request (a write), and some more for what the kernel wants besides.
const REQUEST_ROOM: usize = PAGE + REQUEST_MAX + PAGE;

/// Serves requests until the mount is no more.
///
/// # Errors
/// Those of the device that are no unmount, and `InvalidData` for what is no request.
pub(super) fn serve(frontend: &Frontend, device: &File, waiting: &Waiting) -> io::Result<()> {
    let mut request = AlignedBuf::new(REQUEST_ROOM);
    let mut out = AlignedBuf::new(REQUEST_MAX);
    loop {
        let len = match next(device, &mut request[START..]) {
            Ok(len) => len,
            Err(error) if is_unmount(&error) => return Ok(()),
            Err(error) => {
                waiting.end();
                return Err(error);
            }
        };
        waiting.end();
        let Some(incoming) = Incoming::parse(&request[START..START + len]) else {
            let text = format!("{len} bytes that are no request");
            return Err(io::Error::new(ErrorKind::InvalidData, text));
        };
        let answer = frontend.dispatch(&incoming, &mut out);
        // Before the answer is out: whoever has it may ask at once, and is to find somebody.
        waiting.begin();
        if let Err(error) = send(device, incoming.header.unique, answer, &out) {
            waiting.end();
            return Err(error);
        }
    }
}

/// Waits for a request; its length.
fn next(mut device: &File, request: &mut [u8]) -> io::Result<usize> {
    loop {
        match device.read(request) {
            Err(error) if is_passing(&error) => {}
            result => return result,
        }
    }
}

/// Whether a read is to be tried again: a signal came, or the request was taken back (`ENOENT`).
fn is_passing(error: &io::Error) -> bool {
    let codes = [libc::ENOENT, libc::EINTR, libc::EAGAIN];
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

/// Whether an error is that of an unmount. The kernel says `ECONNABORTED`, not `ENODEV`, to a
/// thread that was just taking a request, such as the last close of a file (`fuse_dev_do_read` in
/// the kernel's `fs/fuse/dev.c`), and to all of them when the connection is aborted.
pub(crate) fn is_unmount(error: &io::Error) -> bool {
    let codes = [libc::ENODEV, libc::ECONNABORTED];
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

/// Answers a request. An answer that the kernel does not take becomes an error: whoever asked
/// must not wait for ever.
fn send(device: &File, unique: u64, answer: Answer, out: &[u8]) -> io::Result<()> {
    let result = match answer {
        Answer::Nothing => Ok(()),
        Answer::Data(len) => write(device, unique, 0, &out[..len]),
        Answer::Error(code) => write(device, unique, -code, &[]),
    };
    let result = result.or_else(|_| write(device, unique, -libc::EIO, &[]));
    match result {
        Err(error) if !is_unmount(&error) => Err(error),
        _ => Ok(()),
    }
}

/// Tells the kernel that a name is not valid any more. It drops what it knows under it unless that
/// is in use; `fuse_reverse_inval_entry` in the kernel's `fs/fuse/dir.c`. Waits until no request
/// changes the directory.
///
/// # Errors
/// `ENOENT` when the kernel knows no such name; those of the device.
pub(crate) fn forget_name(device: &File, parent: u64, name: &OsStr) -> io::Result<()> {
    let notice = NotifyInvalEntryOut {
        parent,
        namelen: name.len() as u32,
        flags: 0,
    };
    let name = [name.as_bytes(), &[0]].concat();
    notify(device, NOTIFY_INVAL_ENTRY, notice.as_bytes(), &name)
}

/// Tells the kernel to forget those of the inodes that nobody uses. Waits for nobody.
///
/// # Errors
/// `EINVAL` before Linux 6.18; those of the device.
pub(crate) fn forget_nodes(device: &File, ids: &[u64]) -> io::Result<()> {
    assert!(!ids.is_empty(), "a notice of nothing");
    let notice = NotifyPruneOut {
        count: ids.len() as u32,
        ..NotifyPruneOut::default()
    };
    notify(device, NOTIFY_PRUNE, notice.as_bytes(), ids.as_bytes())
}

fn notify(mut device: &File, code: i32, notice: &[u8], rest: &[u8]) -> io::Result<()> {
    let len = size_of::<OutHeader>() + notice.len() + rest.len();
    let header = OutHeader {
        len: len as u32,
        error: code,
        unique: 0,
    };
    let parts = [header.as_bytes(), notice, rest].map(IoSlice::new);
    let written = device.write_vectored(&parts)?;
    assert_eq!(written, len, "the kernel takes a notice as a whole");
    Ok(())
}

fn write(mut device: &File, unique: u64, error: i32, data: &[u8]) -> io::Result<()> {
    let len = size_of::<OutHeader>() + data.len();
    let header = OutHeader {
        len: len as u32,
        error,
        unique,
    };
    assert!(error == 0 || data.is_empty(), "an error has no data");
    loop {
        let parts = [IoSlice::new(header.as_bytes()), IoSlice::new(data)];
        match device.write_vectored(&parts) {
            Ok(written) => {
                assert_eq!(written, len, "the kernel takes an answer as a whole");
                return Ok(());
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) => {}
                // Nobody waits any more: the request was interrupted.
                Some(libc::ENOENT) => return Ok(()),
                _ => return Err(error),
            },
        }
    }
}

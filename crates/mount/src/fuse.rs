//! The FUSE side: translates the kernel's requests into operations of [`Fs`] and back.
//!
//! [`Frontend::dispatch`] serves one request to its end, in the thread that brings it. Operations
//! are grouped as in [`Fs`]: [`names`], [`attributes`], [`files`] (contents, and what is open),
//! [`directories`].

mod attributes;
mod directories;
mod files;
mod handshake;
mod names;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::sync::Arc;

use zerocopy::FromBytes;

use crate::fs::{Caller, Fs};
use crate::passthrough::Passthrough;
use crate::protocol::{Answer, ForgetIn, Incoming, Opcode, ReadIn, malformed};
use crate::serving::{Served, Serving};
use crate::sys;
use thermocline::{FailedRead, FlashRead, ReadEnded, ReadStarted};

pub(crate) use handshake::{Agreed, Handshake};

/// The data of the largest request, in bytes: the kernel's own limit (`fs.fuse.max_pages_limit`).
pub(crate) const REQUEST_MAX: usize = 1 << 20;

/// An [`Fs`] as the kernel sees it.
pub(crate) struct Frontend {
    served: Served,
    passthrough: Passthrough,
    /// Whether files opened for direct I/O can be mapped shared.
    direct_mmap: bool,
    /// Whether privileges of changed files are the mount's to take away.
    killpriv: bool,
    /// `/dev/fuse`, where the kernel is told of files that it serves itself.
    device: Arc<File>,
    /// The only user who may use the mount; `None`: everybody.
    owner: Option<u32>,
}

impl Frontend {
    pub(crate) fn new(
        fs: Arc<Fs>,
        passthrough: Passthrough,
        agreed: Agreed,
        device: Arc<File>,
        owner: Option<u32>,
    ) -> Self {
        if !agreed.passthrough {
            passthrough.refuse();
        }
        Self {
            served: Served::new(fs),
            passthrough,
            direct_mmap: agreed.direct_mmap,
            killpriv: agreed.killpriv,
            device,
            owner,
        }
    }

    /// The file system, for what is no request.
    pub(crate) fn file_system(&self) -> &Fs {
        self.served.unserved()
    }

    /// Serves a request. The data of its answer is at the start of `out`, which has at least
    /// [`REQUEST_MAX`] bytes and begins with a page, so that a read can be direct. What is behind
    /// the answer means nothing.
    pub(crate) fn dispatch(&self, request: &Incoming<'_>, out: &mut [u8]) -> Answer {
        let fs = self.served.fs();
        assert!(out.len() >= REQUEST_MAX, "room for any answer");
        let Some(opcode) = request.opcode() else {
            return Answer::Error(libc::ENOSYS);
        };
        if !self.may(request.header.uid, opcode) {
            return Answer::Error(libc::EACCES);
        }
        if is_done_without(opcode) {
            return Answer::Error(libc::ENOSYS);
        }
        let call = Call {
            frontend: self,
            fs: &fs,
            request,
        };
        if matches!(opcode, Opcode::Forget | Opcode::BatchForget) {
            call.forget(opcode);
            return Answer::Nothing;
        }
        match call.serve(opcode, out) {
            Ok(len) => {
                assert!(len <= out.len(), "{len} of {} bytes", out.len());
                Answer::Data(len)
            }
            Err(error) => Answer::Error(errno(&error)),
        }
    }

    /// Ends the process should the thread that holds this panic: to be held by threads whose
    /// requests nobody else would take over.
    pub(crate) fn watch(&self) -> Serving<'_> {
        self.served.fs()
    }

    /// Begins a request without waiting for a device: for a thread that others wait for too. At
    /// most `most` bytes are left to be fetched from flash. `out` is as for
    /// [`Frontend::dispatch`].
    pub(crate) fn start(&self, request: &Incoming<'_>, out: &mut [u8], most: usize) -> Start {
        let args = request.args::<ReadIn>();
        let (Some(Opcode::Read), Ok(args)) = (request.opcode(), args) else {
            return Start::Waits;
        };
        let fs = self.served.fs();
        let caller = caller(request);
        let out = &mut out[..(args.size as usize).min(REQUEST_MAX)];
        match fs.start_read(caller, args.fh, args.offset, out, most) {
            ReadStarted::Done(len) => {
                assert!(len <= out.len(), "{len} of {} bytes", out.len());
                Start::Done(Answer::Data(len))
            }
            ReadStarted::Flash(read) => Start::Flash(read),
            ReadStarted::Waits => Start::Waits,
        }
    }

    /// Ends what [`Start::Flash`] began: see [`FlashRead::end`].
    pub(crate) fn end_read(
        &self,
        read: FlashRead,
        results: &[io::Result<usize>],
        fetched: &[u8],
        out: &mut [u8],
    ) -> Result<Answer, Box<FailedRead>> {
        let fs = self.served.fs();
        match read.end(fs.engine(), results, fetched, out) {
            ReadEnded::Done(len) => Ok(Answer::Data(len)),
            ReadEnded::Failed(failed) => Err(failed),
        }
    }

    /// Gets from base what flash did not give: see [`FailedRead::from_base`].
    pub(crate) fn fetch(&self, failed: FailedRead, out: &mut [u8]) -> Answer {
        let fs = self.served.fs();
        match failed.from_base(fs.engine(), out) {
            Ok(len) => Answer::Data(len),
            Err(error) => Answer::Error(errno(&error)),
        }
    }

    /// Whether a user may do this. Some requests say nothing of their user: the kernel sends them
    /// for itself.
    fn may(&self, user: u32, opcode: Opcode) -> bool {
        self.owner.is_none_or(|owner| owner == user)
            || matches!(
                opcode,
                Opcode::Init
                    | Opcode::Destroy
                    | Opcode::Interrupt
                    | Opcode::Read
                    | Opcode::Readdir
                    | Opcode::BatchForget
                    | Opcode::Forget
                    | Opcode::Write
                    | Opcode::Fsync
                    | Opcode::Fsyncdir
                    | Opcode::Release
                    | Opcode::Releasedir
            )
    }
}

/// How a request can go on: see [`Frontend::start`].
pub(crate) enum Start {
    /// It is done.
    Done(Answer),
    /// Its pages are to be fetched from flash.
    Flash(FlashRead),
    /// [`Frontend::dispatch`] is to be called, and may wait.
    Waits,
}

/// One request being served.
struct Call<'a> {
    frontend: &'a Frontend,
    fs: &'a Fs,
    request: &'a Incoming<'a>,
}

impl Call<'_> {
    /// Does what the request asks for; how many bytes of `out` are the answer.
    fn serve(&self, opcode: Opcode, out: &mut [u8]) -> io::Result<usize> {
        if self.request.args.len() < opcode.args_len() {
            return Err(malformed());
        }
        match opcode {
            Opcode::Lookup => self.lookup(out),
            Opcode::Mknod => self.mknod(out),
            Opcode::Mkdir => self.mkdir(out),
            Opcode::Symlink => self.symlink(out),
            Opcode::Link => self.link(out),
            Opcode::Unlink => self.unlink(),
            Opcode::Rmdir => self.rmdir(),
            Opcode::Rename => self.rename(),
            Opcode::Rename2 => self.rename2(),
            Opcode::Readlink => self.readlink(out),
            Opcode::Getattr => self.getattr(out),
            Opcode::Setattr => self.setattr(out),
            Opcode::Statfs => self.statfs(out),
            Opcode::Setxattr => self.setxattr(),
            Opcode::Getxattr => self.getxattr(out),
            Opcode::Listxattr => self.listxattr(out),
            Opcode::Removexattr => self.removexattr(),
            Opcode::Open => self.open(out),
            Opcode::Create => self.create(out),
            Opcode::Read => self.read(out),
            Opcode::Write => self.write(out),
            Opcode::Fsync => self.fsync(),
            Opcode::Fallocate => self.fallocate(),
            Opcode::Lseek => self.lseek(out),
            Opcode::Release | Opcode::Releasedir => self.release(),
            Opcode::Opendir => self.opendir(out),
            Opcode::Readdir => self.readdir(out),
            Opcode::Fsyncdir => self.fsyncdir(),
            Opcode::Destroy => Ok(0),
            // It was done when the mount began.
            Opcode::Init => Err(malformed()),
            Opcode::Flush | Opcode::Access | Opcode::CopyFileRange | Opcode::Interrupt => {
                panic!("the kernel does without")
            }
            Opcode::Forget | Opcode::BatchForget => panic!("nobody waits for an answer"),
        }
    }

    fn forget(&self, opcode: Opcode) {
        if opcode == Opcode::BatchForget {
            for one in self.request.forgotten() {
                self.fs.forget(one.nodeid, one.nlookup);
            }
        } else if let Ok(args) = self.args::<ForgetIn>() {
            self.fs.forget(self.node(), args.nlookup);
        }
    }

    fn args<T: FromBytes>(&self) -> io::Result<T> {
        self.request.args()
    }

    /// The node the request is about.
    fn node(&self) -> u64 {
        self.request.header.nodeid
    }

    fn caller(&self) -> Caller {
        caller(self.request)
    }
}

fn caller(request: &Incoming<'_>) -> Caller {
    Caller {
        uid: request.header.uid,
        gid: request.header.gid,
        tid: request.header.pid,
    }
}

/// An offset or a length that a file can have.
///
/// # Errors
/// `EINVAL`.
fn off_t(value: u64) -> io::Result<u64> {
    match i64::try_from(value) {
        Ok(_) => Ok(value),
        Err(_) => Err(sys::errno(libc::EINVAL)),
    }
}

/// Whether the kernel is to do without an operation; told so once, it does not ask again. Writes
/// are with the base when they return (`Flush`). The kernel checks permissions itself (`Access`;
/// `default_permissions`), and copies with reads and writes, which the tier sees
/// (`CopyFileRange`). Requests are served to their end, whatever signals come (`Interrupt`).
fn is_done_without(opcode: Opcode) -> bool {
    matches!(
        opcode,
        Opcode::Flush | Opcode::Access | Opcode::CopyFileRange | Opcode::Interrupt
    )
}

/// What a program sees of an error, also of one without a number of its own.
fn errno(error: &io::Error) -> i32 {
    let code = match error.raw_os_error() {
        // Of base's: the kernel would take syncs, among others, for done from then on, and not ask
        // again. What a mount does without, it says itself.
        Some(libc::ENOSYS) => libc::EOPNOTSUPP,
        // The kernel takes no others.
        Some(code @ 1..512) => code,
        Some(_) => libc::EIO,
        None => match error.kind() {
            io::ErrorKind::InvalidInput => libc::EINVAL,
            io::ErrorKind::StorageFull => libc::ENOSPC,
            io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
            io::ErrorKind::PermissionDenied => libc::EACCES,
            io::ErrorKind::NotFound => libc::ENOENT,
            _ => libc::EIO,
        },
    };
    assert!((1..512).contains(&code), "{code} is no error");
    assert_ne!(code, libc::ENOSYS, "said by what is done without alone");
    code
}

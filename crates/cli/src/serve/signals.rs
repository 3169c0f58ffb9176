//! Ending a mount on SIGINT, SIGTERM and SIGHUP.
//!
//! The signals are blocked before any thread starts, so that one thread can wait for them:
//! unmounting takes locks and allocates, which no handler may do.
//!
//! SIGXFSZ is no end: see [`outlive_file_limit`].

use crate::failure::Outcome;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

/// Has a limit on the size of files, which is that of whoever mounts, end no mount. It is raised as
/// far as may be. What is written past it makes the kernel end a process that does not say
/// otherwise; of one that ignores the signal the write fails with `EFBIG`, and its caller is told.
pub(crate) fn outlive_file_limit() -> io::Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is a valid `rlimit` in both calls; no handler is installed.
    let failed = unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN) == libc::SIG_ERR
            || libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) != 0
            || {
                limit.rlim_cur = limit.rlim_max;
                libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) != 0
            }
    };
    match failed {
        false => Ok(()),
        true => Err(io::Error::last_os_error()),
    }
}

/// Whether whoever started this process has it ignore a signal.
fn is_ignored(signal: libc::c_int) -> bool {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: nothing is changed; a zeroed `sigaction` is a valid one, and the call fills it in.
    unsafe {
        let got = libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr()) == 0;
        got && now.assume_init().sa_sigaction == libc::SIG_IGN
    }
}

/// The signals that end a mount, blocked in this thread and all it starts.
#[derive(Clone, Copy)]
pub(crate) struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals, but SIGHUP where it is ignored, as by `nohup`. Call it before the first
    /// thread.
    pub(crate) fn block() -> Result<Self, io::Error> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` fills the set in; the others then read and change it.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                // A shell has what it starts in the background ignore SIGINT, which still ends it.
                if signal != libc::SIGHUP || !is_ignored(signal) {
                    libc::sigaddset(set.as_mut_ptr(), signal);
                }
            }
            set.assume_init()
        };
        // SAFETY: `set` is initialised; no old set is asked for.
        match unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut())
        } {
            0 => Ok(Self { set }),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// A descriptor that is readable when one has come.
    pub(crate) fn readable(self) -> io::Result<OwnedFd> {
        // SAFETY: the set is initialised; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &raw const self.set, libc::SFD_CLOEXEC) };
        match fd {
            -1 => Err(io::Error::last_os_error()),
            // SAFETY: it was just opened and belongs to nobody else.
            fd => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        }
    }

    /// Calls `act` for every signal that arrives, with how many came before, on its own thread.
    pub(crate) fn watch(self, act: impl Fn(u32) + Send + 'static) -> Outcome {
        let watch = move || {
            for earlier in 0.. {
                let mut signal = 0;
                // SAFETY: both point to live values of the right type.
                let failed = unsafe { libc::sigwait(&raw const self.set, &raw mut signal) };
                if failed != 0 {
                    return;
                }
                act(earlier);
            }
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(watch)?;
        Ok(())
    }
}

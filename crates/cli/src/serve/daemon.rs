//! Leaving the terminal: the caller returns when the mount serves, or with the reason it does not.
//!
//! The process forks before it has any threads. The parent waits at a pipe; the child starts up
//! and then reports through it, once:
//!
//! | bytes in the pipe           | meaning                                      |
//! |-----------------------------|----------------------------------------------|
//! | `+`                         | serving; parent exits 0                      |
//! | `-`, code, message, 0, advice | refused; parent prints it, exits with code |
//! | end without either          | the child died; parent points to the log     |
//!
//! The child leads its own session, reads from `/dev/null` and writes to the log. It keeps nothing
//! else of its caller: no descriptor, which may hold a lock, and no directory, whose file system
//! could not be unmounted. So all paths are absolute by then.

use crate::failure::{Code, Failure, Outcome};
use crate::serve::log::News;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Which side of the fork this is.
pub(crate) enum Side {
    /// The caller's process: the child answered.
    Parent(Outcome),
    /// The process that will serve.
    Child(Report),
}

/// The child's end of the pipe.
pub(crate) struct Report {
    pipe: File,
}

impl Report {
    /// Tells the parent how the start went.
    pub(crate) fn send(mut self, outcome: &Outcome) {
        let message = match outcome {
            Ok(()) => b"+".to_vec(),
            Err(failure) => encode(failure),
        };
        // The parent may have been interrupted; the mount serves nevertheless.
        let _gone = self.pipe.write_all(&message);
    }
}

/// Forks, with the child's output going to `log`, which the user `named` or not.
///
/// Must be called while the process has one thread: the child has only the calling one.
pub(crate) fn leave(log: &Path, named: bool) -> Result<Side, Failure> {
    let output = crate::serve::log::open(log, named)?;
    let input = File::open("/dev/null")?;
    let (read, write) = std::io::pipe()?;
    let (read, write) = (OwnedFd::from(read), OwnedFd::from(write));
    let news = News::of(log);
    // SAFETY: there is one thread, so no lock another thread holds is copied into the child.
    match unsafe { libc::fork() } {
        -1 => Err(std::io::Error::last_os_error().into()),
        0 => {
            drop(read);
            settle(input, output, &write)?;
            Ok(Side::Child(Report {
                pipe: File::from(write),
            }))
        }
        child => {
            drop(write);
            Ok(Side::Parent(wait(File::from(read), child, &news)))
        }
    }
}

/// Makes this process a session leader without a terminal, that has `report` open besides.
#[expect(
    clippy::disallowed_methods,
    reason = "there is one thread, and a directory that is to be left"
)]
fn settle(input: File, output: File, report: &OwnedFd) -> Outcome {
    // SAFETY: no pointers; the descriptors are open for the whole call.
    unsafe {
        if libc::setsid() == -1 {
            return Err(std::io::Error::last_os_error().into());
        }
        for (from, to) in [(&input, 0), (&output, 1), (&output, 2)] {
            if libc::dup2(from.as_raw_fd(), to) == -1 {
                return Err(std::io::Error::last_os_error().into());
            }
        }
    }
    drop((input, output));
    close_all_but(report);
    std::env::set_current_dir("/")?;
    Ok(())
}

/// Closes what else there is beside standard input, output and error. Before Linux 5.9 it stays.
fn close_all_but(report: &OwnedFd) {
    let kept = report.as_raw_fd().cast_unsigned();
    assert!(kept > 2, "the pipe is none of the three");
    for (first, last) in [(3, kept - 1), (kept + 1, u32::MAX)] {
        if first <= last {
            // SAFETY: no pointers. This process has nothing else open: what is closed came with
            // it, and nobody here knows of it.
            unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        }
    }
}

/// Waits for the child's answer.
fn wait(mut pipe: File, child: libc::pid_t, news: &News) -> Outcome {
    let mut answer = Vec::new();
    pipe.read_to_end(&mut answer)?;
    match answer.split_first() {
        Some((b'+', _)) => Ok(()),
        Some((b'-', rest)) => Err(decode(rest)),
        _ => {
            let ended = ended(child);
            let text = news.text();
            let last = text.lines().last().unwrap_or("it left no message");
            let message = format!("the mount's process {ended}: {last}");
            let log = news.path().display();
            Err(Failure::new(Code::Failure, message)
                .advise(format!("read {log}; where memory is short, dmesg says so")))
        }
    }
}

/// How the child ended, in words.
fn ended(child: libc::pid_t) -> String {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    let found = unsafe { libc::waitpid(child, &raw mut status, 0) };
    match found == child && libc::WIFSIGNALED(status) {
        true => format!("was ended by signal {}", libc::WTERMSIG(status)),
        false => "died".into(),
    }
}

fn encode(failure: &Failure) -> Vec<u8> {
    let mut bytes = vec![b'-', failure.code as u8];
    bytes.extend_from_slice(failure.message.as_bytes());
    if let Some(advice) = &failure.advice {
        bytes.push(0);
        bytes.extend_from_slice(advice.as_bytes());
    }
    bytes
}

fn decode(bytes: &[u8]) -> Failure {
    let (code, text) = bytes.split_first().unwrap_or((&1, b"it left no message"));
    let text = String::from_utf8_lossy(text);
    let (message, advice) = match text.split_once('\0') {
        Some((message, advice)) => (message, Some(advice.to_string())),
        None => (text.as_ref(), None),
    };
    Failure {
        message: message.to_string(),
        advice,
        code: Code::from_number(*code),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn failures_travel_whole() {
        for advice in [None, Some("wait".to_string())] {
            let sent = Failure {
                message: "in use".into(),
                advice,
                code: Code::Cache,
            };
            let received = decode(&encode(&sent)[1..]);
            assert_eq!(received.message, sent.message);
            assert_eq!(received.advice, sent.advice);
            assert_eq!(received.code, sent.code);
        }
    }

    #[test]
    fn a_silent_child_is_reported_with_its_last_words() {
        let log = tempfile::NamedTempFile::new().expect("log");
        fs::write(log.path(), "map saved, by one before\n").expect("write");
        let news = News::of(log.path());
        let (read, write) = std::io::pipe().expect("pipe");
        drop(write);
        // No child of this process.
        let failed = |pipe| wait(File::from(OwnedFd::from(pipe)), 1, &news).unwrap_err();
        let failure = failed(read.try_clone().expect("pipe"));
        assert!(failure.message.ends_with("died: it left no message"));
        fs::write(log.path(), "map saved, by one before\nout of memory\n").expect("write");
        let failure = failed(read);
        assert!(failure.message.ends_with("out of memory"), "{failure}");
    }

    #[test]
    fn a_child_that_was_killed_is_said_to_be() {
        let mut child = std::process::Command::new("sleep");
        let mut child = child.arg("60").spawn().expect("starts");
        child.kill().expect("kills");
        let said = ended(child.id() as libc::pid_t);
        assert_eq!(said, "was ended by signal 9");
        // Its end was seen, so there is nothing left to wait for.
        child.wait().expect_err("it is no child any more");
    }
}

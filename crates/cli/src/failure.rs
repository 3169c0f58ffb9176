//! What a failed command says: the fact, what to try, and the exit code.

use std::fmt;
use std::io;
use std::path::Path;

/// Exit codes, as `--help` and the man page document them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Code {
    /// Something went wrong while running.
    Failure = 1,
    /// The command line or the configuration is wrong; nothing was started.
    Usage = 2,
    /// The cache cannot be used (another base's, in use, damaged, another version), or base is not
    /// free: somebody else serves it, or another cache has its newest bytes.
    Cache = 3,
    /// The system refuses: no FUSE device, no permission.
    System = 4,
    /// No Thermocline mount is there.
    NotMounted = 5,
    /// A mount is there, and does not answer.
    Hung = 6,
}

/// The exit codes in words; appended to `--help` and the man page.
pub(crate) const CODES_HELP: &str = "\
Exit codes:
  0  success
  1  something went wrong while running; `check` found damage
  2  the command line or the configuration is wrong; nothing was started
  3  the cache cannot be used (another base's, in use, damaged, another size or version), or base
     is not free (another mount or host serves it, another cache has its newest bytes)
  4  the system refuses (no FUSE device, no permission)
  5  no Thermocline mount is there
  6  a mount is there and does not answer: its process is stopped, or waits for base
  141  nobody reads the output any more, as after `| head`";

impl Code {
    /// The code with this number; anything unknown is a plain failure.
    pub(crate) fn from_number(number: u8) -> Self {
        let all = [
            Self::Usage,
            Self::Cache,
            Self::System,
            Self::NotMounted,
            Self::Hung,
        ];
        all.into_iter()
            .find(|code| *code as u8 == number)
            .unwrap_or(Self::Failure)
    }
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// The fact, in one line, with the names and numbers involved.
    pub(crate) message: String,
    /// What the reader can do about it.
    pub(crate) advice: Option<String>,
    /// The process's exit code.
    pub(crate) code: Code,
}

/// What every command returns.
pub(crate) type Outcome = Result<(), Failure>;

impl Failure {
    /// A failure with its exit code and no advice yet.
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            advice: None,
            code,
        }
    }

    /// A wrong command line or configuration.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, message)
    }

    /// The same failure with something to try.
    #[must_use]
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// An I/O error on `path` while doing `what` ("read", "create", ...).
    pub(crate) fn io(what: &str, path: &Path, error: &io::Error) -> Self {
        let failure = Self::new(
            match error.kind() {
                io::ErrorKind::PermissionDenied => Code::System,
                _ => Code::Failure,
            },
            format!("cannot {what} {}: {}", path.display(), reason(error)),
        );
        match error.kind() {
            io::ErrorKind::PermissionDenied => {
                failure.advise("run as a user who may, or as root (sudo thermocline ...)")
            }
            io::ErrorKind::StorageFull => failure.advise("free space there, or ask for less"),
            _ => failure,
        }
    }
}

/// The system's words for `error`, without Rust's "(os error N)".
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "error: {}", self.message)?;
        match &self.advice {
            Some(advice) => write!(out, "\n  try: {advice}"),
            None => Ok(()),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(Code::Failure, reason(&error))
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::new(Code::Failure, format!("{error:#}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_the_fact_then_the_advice() {
        let failure = Failure::usage("no size").advise("add --size");
        assert_eq!(failure.to_string(), "error: no size\n  try: add --size");
        assert_eq!(failure.code as u8, 2);
    }

    #[test]
    fn system_reasons_lose_their_number() {
        let error = io::Error::from_raw_os_error(libc::ENOSPC);
        assert_eq!(reason(&error), "no space left on device");
        let failure = Failure::io("create", Path::new("/x"), &error);
        assert!(failure.advice.is_some());
    }

    #[test]
    fn codes_survive_numbers() {
        for code in [
            Code::Failure,
            Code::Usage,
            Code::Cache,
            Code::System,
            Code::NotMounted,
            Code::Hung,
        ] {
            assert_eq!(Code::from_number(code as u8), code);
            assert!(CODES_HELP.contains(&format!("\n  {}  ", code as u8)));
        }
    }
}

//! From the errors of the engine and the mount to what the command says.
//!
//! Those errors read "fact; what to do": the part after the semicolon becomes the advice. Here
//! each gets its exit code.

use crate::failure::{Code, Failure};
use std::io::ErrorKind;
use thermocline::Error as EngineError;
use thermocline::claim::Refusal;
use thermocline_mount::Error as MountError;
use thermocline_trace::RecordError;

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        match error {
            MountError::Tier(error) => (*error).into(),
            MountError::Claim(refusal) => (*refusal).into(),
            error => split(mount_code(&error), &error.to_string()),
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let code = match &refusal {
            Refusal::OnMount { .. } | Refusal::Overlaps { .. } => Code::Usage,
            Refusal::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
                Code::System
            }
            Refusal::Io { .. } => Code::Failure,
            _ => Code::Cache,
        };
        match refusal {
            Refusal::Cache(error) => error.into(),
            refusal => split(code, &refusal.to_string()),
        }
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let failure = split(engine_code(&error), &error.to_string());
        match (&failure.advice, engine_advice(&error)) {
            (None, Some(advice)) => failure.advise(advice),
            _ => failure,
        }
    }
}

/// What to try where the error itself does not say it.
fn engine_advice(error: &EngineError) -> Option<&'static str> {
    match error {
        EngineError::TooSmall { .. } => Some("a larger --size"),
        EngineError::Unsaved { .. } => {
            Some("thermocline status MOUNTPOINT lists them; their files need a backup")
        }
        EngineError::WriteBack { .. } => {
            Some("mend base (dmesg says what it reported), then again")
        }
        EngineError::CacheIo { source, .. } => match source.kind() {
            ErrorKind::PermissionDenied => Some("run as its owner or as root, or another --cache"),
            ErrorKind::InvalidInput => Some("another --size"),
            ErrorKind::NotFound => Some("a file in a directory that exists"),
            _ => Some("another --cache, or check the device (dmesg says what it reported)"),
        },
        EngineError::Setting { .. } | EngineError::PriorityRule { .. } => {
            Some("thermocline config --defaults lists every setting")
        }
        _ => None,
    }
}

impl From<RecordError> for Failure {
    fn from(error: RecordError) -> Self {
        let code = match error {
            RecordError::Exists { .. } | RecordError::Option { .. } => Code::Usage,
            _ => Code::Failure,
        };
        split(code, &error.to_string())
    }
}

/// The fact and the advice of a message.
fn split(code: Code, text: &str) -> Failure {
    let text = without_numbers(text);
    match text.split_once("; ") {
        Some((fact, advice)) => Failure::new(code, fact).advise(advice),
        None => Failure::new(code, text),
    }
}

/// `text` without the "(os error N)" of the standard library.
fn without_numbers(text: &str) -> String {
    let mut parts = text.split(" (os error ");
    let mut clean = parts.next().unwrap_or_default().to_string();
    for part in parts {
        clean.push_str(part.split_once(')').map_or(part, |(_, rest)| rest));
    }
    clean
}

fn engine_code(error: &EngineError) -> Code {
    match error {
        EngineError::Setting { .. }
        | EngineError::PriorityRule { .. }
        | EngineError::Policy(_)
        | EngineError::TooSmall { .. }
        | EngineError::NoSize { .. }
        | EngineError::NoTier => Code::Usage,
        EngineError::CacheInUse { .. }
        | EngineError::NotACache { .. }
        | EngineError::Version { .. }
        | EngineError::PageSize { .. }
        | EngineError::OtherBase { .. }
        | EngineError::Size { .. }
        | EngineError::Truncated { .. }
        | EngineError::ChangedBehind { .. }
        | EngineError::NoRoom { .. } => Code::Cache,
        EngineError::CacheIo { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            Code::System
        }
        _ => Code::Failure,
    }
}

fn mount_code(error: &MountError) -> Code {
    match error {
        MountError::BaseMissing(_)
        | MountError::BaseNotDirectory(_)
        | MountError::MountpointMissing(_)
        | MountError::MountpointNotDirectory(_)
        | MountError::MountpointNotEmpty(_)
        | MountError::MountpointInsideBase { .. }
        | MountError::BaseInsideMountpoint { .. }
        | MountError::AlreadyMounted(_)
        | MountError::StaleMount(_) => Code::Usage,
        MountError::BaseReadOnly(_)
        | MountError::Base(..)
        | MountError::Mountpoint(..)
        | MountError::NoFuseDevice
        | MountError::FusePermission(_)
        | MountError::Mount(..) => Code::System,
        _ => Code::Failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn facts_and_advice_are_told_apart() {
        let failure = Failure::from(MountError::BaseMissing("/b".into()));
        assert_eq!(failure.code, Code::Usage);
        assert_eq!(failure.message, "base /b does not exist");
        assert!(failure.advice.is_some());
    }

    #[test]
    fn system_errors_lose_their_numbers_wherever_they_are() {
        let refused = io::Error::from_raw_os_error(libc::EACCES);
        let failure = Failure::from(MountError::FusePermission(refused));
        assert_eq!(failure.code, Code::System);
        assert_eq!(
            failure.message,
            "no permission to open /dev/fuse: Permission denied"
        );
        assert_eq!(without_numbers("a (os error 5), b"), "a, b");
    }
}

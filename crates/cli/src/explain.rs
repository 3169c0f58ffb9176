//! From the errors of the engine and the mount to what the command says.
//!
//! Those errors read "fact; what to do": the part after the semicolon becomes the advice. Here
//! each gets its exit code.

use crate::failure::{Code, Failure};
use crate::serve::beacon;
use crate::serve::log;
use crate::serve::{client, umount};
use crate::units::show_count;
use std::io::{self, ErrorKind};
use std::path::Path;
use thermocline::Error as EngineError;
use thermocline::claim::Refusal;
use thermocline::{Behind, Refused};
use thermocline_mount::Error as MountError;
use thermocline_trace::RecordError;

impl From<MountError> for Failure {
    fn from(error: MountError) -> Self {
        match error {
            MountError::Tier(error) => (*error).into(),
            MountError::Claim(refusal) => (*refusal).into(),
            // The same words as those of every command that meets one.
            MountError::AlreadyMounted(mountpoint) if umount::is_abandoned(&mountpoint) => {
                Failure::from(MountError::StaleMount(mountpoint))
            }
            MountError::StaleMount(mountpoint) => Failure {
                code: Code::Usage,
                ..client::gone(&mountpoint)
            },
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
        match &error {
            EngineError::ChangedBehind { path, files } => return changed_behind(path, files),
            EngineError::CacheInUse { path } => {
                if let Some(standing) = beacon::of_cache(Path::new(path)) {
                    let said = standing.describe();
                    let message = format!("cache {path} is in use: {said}");
                    return Failure::new(Code::Cache, message).advise(standing.advice());
                }
            }
            _ => {}
        }
        let (code, text) = (engine_code(&error), error.to_string());
        let failure = match &error {
            // Files are listed in it: what stands behind the first is no advice.
            EngineError::Unsaved { .. } => Failure::new(code, text),
            _ => split(code, &text),
        };
        match (&failure.advice, engine_advice(&error)) {
            (None, Some(advice)) => failure.advise(advice),
            _ => failure,
        }
    }
}

/// The failure of a command that reads a cache and makes none.
pub(crate) fn unread(error: EngineError) -> Failure {
    let nothing = [ErrorKind::NotFound, ErrorKind::InvalidInput];
    let is_nothing = |source: &io::Error| nothing.contains(&source.kind());
    match &error {
        EngineError::NotACache { .. } => Failure::from(error).advise(
            "name the cache of a mount; if this is what is left of one, restore the file: base may \
             wait for its pages (getfattr -n user.thermocline BASE)",
        ),
        EngineError::CacheIo { source, .. } if is_nothing(source) => Failure {
            code: Code::Usage,
            ..Failure::from(error).advise("the file or block device that `mount --cache` names")
        },
        _ => error.into(),
    }
}

/// Files named by a refusal at most.
const FILES: usize = 20;

/// What would be lost, file by file and page by page, and the ways out: the one that loses least
/// first.
fn changed_behind(cache: &str, files: &[Refused]) -> Failure {
    let count = show_count(files.len() as u64);
    let total = show_count(files.iter().map(|file| file.total).sum());
    let mut message = format!(
        "cache {cache} holds {total} pages, newer than base, of {count} files that were changed \
         without it"
    );
    for file in files.iter().take(FILES) {
        message.push_str(&format!("\n  {}", in_words(file)));
    }
    if files.len() > FILES {
        let more = show_count((files.len() - FILES) as u64);
        message.push_str(&format!("\n  and {more} more files"));
    }
    Failure::new(Code::Cache, message).advise(format!(
        "put base back as it was (a snapshot of its file system; `mv` and `cp` change the files), \
         and mount again: nothing is lost; or `thermocline recover BASE {cache} --save-to DIR \
         --discard=FILE` writes the pages of FILE to DIR before it gives them up, and writes \
         back all others; --discard without a name gives up those of all these files"
    ))
}

/// "base/5/16384: changed at 2026-11-22T12:00:00Z; 30 dirty pages: 0, 1, 2, and 27 more".
fn in_words(file: &Refused) -> String {
    let why = match file.why {
        Behind::Gone => "gone".to_string(),
        Behind::Changed(None) => "changed".to_string(),
        Behind::Changed(Some(at)) => {
            let seconds = u64::try_from(at / 1_000_000_000).unwrap_or(0);
            format!("changed at {}", log::timestamp(seconds))
        }
    };
    let pages: Vec<String> = file.pages.iter().map(u64::to_string).collect();
    let more = match file.total.saturating_sub(file.pages.len() as u64) {
        0 => String::new(),
        more => format!(", and {} more", show_count(more)),
    };
    let total = show_count(file.total);
    format!(
        "{}: {why}; {total} dirty pages: {}{more}",
        file.name,
        pages.join(", ")
    )
}

/// What to try where the error itself does not say it.
fn engine_advice(error: &EngineError) -> Option<&'static str> {
    match error {
        EngineError::TooSmall { .. } => Some("a larger --size"),
        EngineError::Unsaved { .. } => Some(
            "thermocline tier MOUNTPOINT on reads them once the device works again; \
                 thermocline status MOUNTPOINT lists them: else their files need a backup",
        ),
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
        | EngineError::Late { .. }
        | EngineError::HoldsDirty { .. }
        | EngineError::Untrusted { .. }
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
        | MountError::StaleMount(_)
        | MountError::Login(_) => Code::Usage,
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

    #[test]
    fn of_pages_that_are_lost_each_file_is_named_and_none_is_advice() {
        let failure = Failure::from(EngineError::Unsaved {
            path: "/ssd/tier".into(),
            pages: 50,
            files: "a pages 0, 1; b page 7; and 30 more".into(),
        });
        assert!(
            failure
                .message
                .ends_with("a pages 0, 1; b page 7; and 30 more")
        );
        let advice = failure.advice.expect("a way out");
        assert!(advice.contains("thermocline status"), "{advice}");
    }

    #[test]
    fn a_refusal_names_every_page_and_the_way_that_loses_least_first() {
        let file = |name: &str, why, total| Refused {
            name: name.into(),
            why,
            pages: (0..20.min(total)).collect(),
            total,
        };
        let files = vec![
            file(
                "base/5/1",
                Behind::Changed(Some(951_782_400 * 1_000_000_000)),
                2,
            ),
            file("base/5/2", Behind::Gone, 1_021),
        ];
        let path = "/ssd/tier".to_string();
        let failure = Failure::from(EngineError::ChangedBehind { path, files });
        let text = failure.to_string();
        for part in [
            "1,023 pages, newer than base, of 2 files",
            "\n  base/5/1: changed at 2000-02-29T00:00:00Z; 2 dirty pages: 0, 1\n",
            "base/5/2: gone; 1,021 dirty pages: 0, 1, 2,",
            "19, and 1,001 more",
        ] {
            assert!(text.contains(part), "no {part:?} in {text}");
        }
        let at = |word: &str| {
            text.find(word)
                .unwrap_or_else(|| panic!("no {word} in {text}"))
        };
        assert!(at("put base back") < at("--save-to"));
        assert!(at("--save-to") < at("gives up those of all"));
    }

    #[test]
    fn who_reads_a_cache_is_not_told_to_make_one() {
        let path = "/ssd/tier".to_string();
        let reason = "no magic".to_string();
        let failure = unread(EngineError::NotACache { path, reason });
        assert_eq!(failure.code, Code::Cache);
        let advice = failure.advice.unwrap_or_default();
        assert!(!advice.contains("--format"), "{advice}");
        assert!(advice.contains("getfattr"), "{advice}");
        let path = "/ssd/tier".to_string();
        let source = io::ErrorKind::NotFound.into();
        let failure = unread(EngineError::CacheIo { path, source });
        assert_eq!(failure.code, Code::Usage);
    }

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

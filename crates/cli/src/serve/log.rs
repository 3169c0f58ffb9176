//! Lines of the mount's log: on standard error, with the time in UTC. A mount in the foreground
//! that has a log writes them there too.

use crate::failure::{Code, Failure};
use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// The log of a mount in the foreground.
static COPY: OnceLock<File> = OnceLock::new();

/// Opens a log: what is there stays. One that was `named` may be whatever takes lines: a link, a
/// pipe that is read, a terminal. The one beside the cache is as trusted as that: a regular file of
/// this user or of root, that others need not read, or a link of theirs to one.
pub(crate) fn open(path: &Path, named: bool) -> Result<File, Failure> {
    let resolved = match named {
        true => path.to_path_buf(),
        false => thermocline::store::resolve(path).map_err(|error| match error {
            thermocline::Error::CacheIo { source, .. } => {
                Failure::io("open the log", path, &source)
            }
            _ => untrusted(path, "it is a symbolic link of somebody else"),
        })?,
    };
    // Of a pipe that nobody reads the opening is not waited for.
    let (flags, mode) = match named {
        true => (libc::O_NONBLOCK | libc::O_NOCTTY, 0o666),
        false => (libc::O_NONBLOCK | libc::O_NOFOLLOW, 0o640),
    };
    let mut options = File::options();
    options.create(true).append(true).mode(mode);
    let file = options.custom_flags(flags).open(&resolved);
    let file = file.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) if !named => untrusted(path, "it is a symbolic link"),
        Some(libc::ENXIO) if !named => untrusted(path, "it is no regular file"),
        Some(libc::ENXIO) => Failure::io("open the log", path, &error)
            .advise("start what reads the pipe first; a socket cannot be one: --log FILE"),
        _ => Failure::io("open the log", path, &error),
    })?;
    let fail = |error: io::Error| Failure::io("open the log", path, &error);
    let found = file.metadata().map_err(fail)?;
    // SAFETY: no arguments, cannot fail.
    let own = [0, unsafe { libc::geteuid() }];
    if !named && !found.is_file() {
        return Err(untrusted(path, "it is no regular file"));
    }
    if !named && !own.contains(&found.uid()) {
        let why = format!("it belongs to user {}", found.uid());
        return Err(untrusted(path, &why));
    }
    // From now on a pipe that is full is waited for: lines are not lost.
    // SAFETY: no pointers; the descriptor lives for the whole call.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) } {
        0 => Ok(file),
        _ => Err(fail(io::Error::last_os_error())),
    }
}

fn untrusted(path: &Path, why: &str) -> Failure {
    let path = path.display();
    let message = format!("log {path} is not to be trusted: {why}");
    Failure::new(Code::System, message).advise("remove it, or name another log: --log FILE")
}

/// From now on lines go to the file at `path` too, which was named.
pub(crate) fn copy_to(path: &Path) -> Result<(), Failure> {
    let file = open(path, true)?;
    // There is one log a process: the first counts.
    let _second = COPY.set(file);
    Ok(())
}

/// What another process logs from some moment on.
pub(crate) struct News {
    path: PathBuf,
    /// Bytes that were there.
    before: u64,
}

impl News {
    /// In the log at `path`, from now on.
    pub(crate) fn of(path: &Path) -> Self {
        Self {
            path: path.into(),
            before: length(path),
        }
    }

    /// Where the log is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the log by now.
    pub(crate) fn length(&self) -> u64 {
        length(&self.path)
    }

    /// What was logged.
    pub(crate) fn text(&self) -> String {
        // Of a pipe or a terminal nothing can be read that is meant for others.
        let is_file = fs::metadata(&self.path).is_ok_and(|found| found.is_file());
        let text = is_file.then(|| fs::read(&self.path).unwrap_or_default());
        let text = text.unwrap_or_default();
        let from = usize::try_from(self.before).unwrap_or(usize::MAX);
        String::from_utf8_lossy(text.get(from..).unwrap_or_default()).into_owned()
    }

    /// Why a command was refused, if that was logged.
    pub(crate) fn refusal(&self) -> Option<String> {
        let text = self.text();
        let why = text.lines().rev().find_map(|line| line.split_once(REFUSED));
        why.map(|(_, why)| why.to_string())
    }
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}

/// What a line on a refused command has before the reason.
const REFUSED: &str = " refused: ";

/// Logs why a command was refused; it reads that in the log ([`News::refusal`]).
pub(crate) fn refused(why: &str) {
    line(&format!("{}{why}", REFUSED.trim_start()));
}

/// Writes one line, also of a text that has names with line ends in them.
pub(crate) fn line(text: &str) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let line = format!("{} {}\n", timestamp(now.as_secs()), escaped(text));
    // A log that cannot be written must not end the mount.
    let _unread = std::io::stderr().write_all(line.as_bytes());
    copy(&line);
}

/// A text whose control characters are seen, and do nothing.
fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let shown = |one: char| match one.is_control() {
        true => one.escape_default().to_string(),
        false => one.to_string(),
    };
    text.chars().map(shown).collect()
}

/// Writes what standard error gets by another way into the copy.
pub(crate) fn copy(text: &str) {
    if let Some(mut file) = COPY.get() {
        let _full = file.write_all(text.as_bytes());
    }
}

/// Seconds since 1970 as `2026-11-21T20:47:05Z`.
pub(crate) fn timestamp(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Days since 1970 as year, month and day of the Gregorian calendar.
///
/// Years are counted from March, so that the leap day is a year's last; 400 years are 146,097 days
/// and the 719,468th day before 1970 began year 0.
fn civil(days: u64) -> (u64, u64, u64) {
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + carry, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_makes_no_second_line() {
        let text = "pin \"a\nerror: b\u{1b}[2J\u{e9}\"";
        let shown = "pin \"a\\nerror: b\\u{1b}[2J\u{e9}\"";
        assert_eq!(escaped(text), shown);
    }

    #[test]
    fn known_days() {
        assert_eq!(timestamp(0), "1970-01-01T00:00:00Z");
        assert_eq!(timestamp(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(timestamp(1_709_251_199), "2024-02-29T23:59:59Z");
        assert_eq!(timestamp(1_709_251_200), "2024-03-01T00:00:00Z");
        assert_eq!(timestamp(4_102_444_800), "2100-01-01T00:00:00Z");
    }
}

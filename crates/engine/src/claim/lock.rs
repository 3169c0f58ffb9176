//! The lock on a base directory, and the directories above it.

use super::host::Host;
use super::mark::State;
use super::mounts;
use super::place::Place;
use super::refusal::Refusal;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Locks `base` for as long as the file lives.
pub(super) fn exclusively(base: &Path) -> Result<File, Refusal> {
    let failed = Refusal::io(base);
    let directory = File::open(base).map_err(&failed)?;
    match try_lock(&directory, libc::LOCK_EX).map_err(&failed)? {
        true => Ok(directory),
        false => Err(Refusal::Locked {
            base: base.into(),
            by: holder(base, &directory),
        }),
    }
}

/// Whether somebody on this host serves `base`.
pub(super) fn is_held(base: &Path) -> bool {
    let directory = File::open(base);
    // Given back at once, with the file.
    directory.is_ok_and(|directory| matches!(try_lock(&directory, libc::LOCK_SH), Ok(false)))
}

fn try_lock(file: &File, kind: libc::c_int) -> io::Result<bool> {
    // SAFETY: flock on a descriptor that lives for the whole call; no memory is involved.
    let result = unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) };
    if result == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        error => Err(error),
    }
}

/// Who holds the lock, as far as the system's tables tell.
fn holder(base: &Path, directory: &File) -> String {
    let inode = directory.metadata().map_or(0, |found| found.ino());
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let pid = locks.lines().find_map(|line| holder_in(line, inode));
    let pid = match pid {
        Some(pid) => format!("process {pid}"),
        None => "another process".into(),
    };
    match mounts::all().into_iter().find(|mount| mount.base == base) {
        Some(mount) => format!("{pid}, mounted on {}", mount.mountpoint.display()),
        None => pid,
    }
}

/// The process in a line of `/proc/locks` that holds a lock of the whole file `inode`.
fn holder_in(line: &str, inode: u64) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    let (kind, _, access) = (words.next()?, words.next()?, words.next()?);
    let (pid, file) = (words.next()?, words.next()?);
    let same = file.rsplit(':').next()?.parse() == Ok(inode);
    let held = kind == "FLOCK" && access == "WRITE" && same;
    held.then(|| pid.parse().ok()).flatten()
}

/// Refuses a base inside another one that is served, or that is owed newest bytes.
pub(super) fn check_above(base: &Path, host: &Host) -> Result<(), Refusal> {
    for above in base.ancestors().skip(1) {
        // A directory that cannot be opened is not served by anybody here.
        let Ok(place) = Place::of(above) else {
            continue;
        };
        let mark = match place.read() {
            Ok(Some(mark)) => mark,
            Ok(None) | Err(Refusal::Io { .. }) => continue,
            Err(refusal) => return Err(refusal),
        };
        let refused = match mark.state {
            State::Whole => false,
            State::Dirty => true,
            State::Serving => !host.is_of(&mark.claimant) || is_held(above),
        };
        if refused {
            return Err(Refusal::Above {
                base: base.into(),
                above: above.into(),
                mark: Box::new(mark),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::holder_in;

    #[test]
    fn the_holder_is_found_in_the_systems_table() {
        let line = "3: FLOCK  ADVISORY  WRITE 4711 fe:00:131075 0 EOF";
        assert_eq!(holder_in(line, 131_075), Some(4711));
        assert_eq!(holder_in(line, 131_076), None);
        let waiting = "3: -> FLOCK  ADVISORY  WRITE 4712 fe:00:131075 0 EOF";
        assert_eq!(holder_in(waiting, 131_075), None);
        assert_eq!(holder_in("", 1), None);
    }
}

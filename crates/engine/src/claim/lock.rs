//! The lock on a base directory, and the directories above it.

use super::host::Host;
use super::mark::State;
use super::mounts;
use super::place::Place;
use super::refusal::Refusal;
use crate::flock;
use std::fs::File;
use std::path::Path;

/// Locks `base` for as long as the file lives.
pub(super) fn exclusively(base: &Path) -> Result<File, Refusal> {
    let failed = Refusal::io(base);
    let directory = File::open(base).map_err(&failed)?;
    match flock::exclusively(&directory).map_err(&failed)? {
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
    directory.is_ok_and(|directory| matches!(flock::is_free(&directory), Ok(false)))
}

/// Who holds the lock, as far as the system's tables tell.
fn holder(base: &Path, directory: &File) -> String {
    let pid = match flock::holder(directory) {
        Some(pid) => format!("process {pid}"),
        None => "another process".into(),
    };
    match mounts::all().into_iter().find(|mount| mount.base == base) {
        Some(mount) => format!("{pid}, mounted on {}", mount.mountpoint.display()),
        None => pid,
    }
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
            // Of a half-taken one somebody else may still be the one who serves.
            State::Serving => mark.taking || !host.is_of(&mark.claimant) || is_held(above),
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

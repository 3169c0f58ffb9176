//! Thermocline mounts of this host, as the kernel lists them.

use super::lock;
use super::refusal::Refusal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// One of our mounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Device number of what it shows, `major:minor`.
    device: String,
    /// Where it is.
    pub mountpoint: PathBuf,
    /// The directory behind it.
    pub base: PathBuf,
}

/// All of them, those whose process is gone included.
#[must_use]
pub fn all() -> Vec<Listed> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table.lines().filter_map(listed).collect()
}

fn listed(line: &str) -> Option<Listed> {
    let (mount, rest) = line.split_once(" - ")?;
    let mut rest = rest.split(' ');
    if rest.next()? != "fuse.thermocline" {
        return None;
    }
    let base = unescape(rest.next()?).into();
    let mut mount = mount.split(' ');
    let device = mount.nth(2)?.into();
    let mountpoint = unescape(mount.nth(1)?).into();
    Some(Listed {
        device,
        mountpoint,
        base,
    })
}

/// Undoes the octal escapes of the kernel's table.
fn unescape(text: &str) -> String {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    escapes
        .iter()
        .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// Refuses a base that one of our mounts shows, contains or lies in. One that is served itself is
/// refused by its lock.
///
/// # Errors
/// [`Refusal::OnMount`] and [`Refusal::Overlaps`].
pub fn check(base: &Path) -> Result<(), Refusal> {
    let found = fs::metadata(base).map_err(Refusal::io(base))?;
    let (major, minor) = (libc::major(found.dev()), libc::minor(found.dev()));
    let device = format!("{major}:{minor}");
    for mount in all() {
        if mount.device == device {
            return Err(Refusal::OnMount {
                base: base.into(),
                mountpoint: mount.mountpoint,
                behind: mount.base,
            });
        }
        let apart = !base.starts_with(&mount.base) && !mount.base.starts_with(base);
        if apart || mount.base == base || !lock::is_held(&mount.base) {
            continue;
        }
        return Err(Refusal::Overlaps {
            base: base.into(),
            other: mount.base,
            mountpoint: mount.mountpoint,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_mounts_are_read_from_the_kernels_table() {
        let line = "612 29 0:52 / /srv/a\\040b rw,nosuid - fuse.thermocline /bulk/pg rw,user_id=0";
        let expected = Listed {
            device: "0:52".into(),
            mountpoint: "/srv/a b".into(),
            base: "/bulk/pg".into(),
        };
        assert_eq!(listed(line), Some(expected));
        let shared = "612 29 0:52 / /srv/x rw shared:7 - fuse.thermocline /bulk/pg rw";
        assert!(listed(shared).is_some(), "optional fields");
        let other = "29 1 254:0 / / rw,relatime - ext4 /dev/vda rw";
        assert_eq!(listed(other), None);
    }
}

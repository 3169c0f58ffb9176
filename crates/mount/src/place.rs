//! Which file system is seen at a path, as the kernel's table of mounts says it: the file system
//! itself is not asked, so one that nobody serves is told, too.
//!
//! A mount is known by its device number. Its mountpoint alone says nothing: a file system may
//! have been there before, and another may be there as soon as ours has gone.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sys;

/// A mount of this process.
#[derive(Clone, Debug)]
pub struct Place {
    mountpoint: PathBuf,
    /// `major:minor`; `None` where the kernel's table does not tell it.
    device: Option<String>,
}

impl Place {
    /// That of the mount which is seen at `mountpoint` now.
    #[must_use]
    pub fn of(mountpoint: &Path) -> Self {
        Self {
            mountpoint: mountpoint.to_path_buf(),
            device: device_at(mountpoint),
        }
    }

    /// Where it was mounted.
    #[must_use]
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// Whether the mount is still what is seen there: what is unmounted by path is it.
    #[must_use]
    pub fn is_on_top(&self) -> bool {
        self.device.is_none() || device_at(&self.mountpoint) == self.device
    }

    /// Ends the connection of the mount: whoever waits for it gets an error. By its number, which
    /// whoever mounted may do; where that is not possible by its path, which needs root.
    pub fn abort(&self) {
        let number = self
            .device
            .as_ref()
            .and_then(|device| device.split_once(':'));
        let aborted = number.is_some_and(|(_, minor)| {
            fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1").is_ok()
        });
        if !aborted && self.is_on_top() {
            // Somebody may have unmounted it by now.
            let _ = sys::abort(&self.mountpoint);
        }
    }
}

/// `major:minor` of the file system that is seen at this very path.
fn device_at(path: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    find(&table, path)
}

fn find(table: &str, path: &Path) -> Option<String> {
    let on = escaped(path.to_str()?);
    // The last one covers those before it.
    table.lines().rev().find_map(|line| {
        let mut fields = line.split(' ').skip(2);
        let (device, path) = (fields.next()?, fields.nth(1)?);
        (path == on).then(|| device.to_string())
    })
}

/// A path as the kernel's table writes it.
fn escaped(path: &str) -> String {
    path.replace('\\', "\\134")
        .replace(' ', "\\040")
        .replace('\t', "\\011")
        .replace('\n', "\\012")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_on_top_is_found() {
        let table = "\
22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
90 22 0:50 / /srv/pg rw,relatime shared:5 - fuse.thermocline /bulk rw,user_id=0\n\
91 90 0:51 / /srv/pg rw,relatime - fuse.thermocline /bulk rw\n\
92 22 0:52 / /srv/a\\040b rw - fuse.thermocline /bulk rw\n\
93 92 0:53 / /srv/a\\040b rw - tmpfs none rw\n";
        let at = |path: &str| find(table, Path::new(path));
        assert_eq!(at("/srv/pg").as_deref(), Some("0:51"));
        assert_eq!(at("/srv/a b").as_deref(), Some("0:53"));
        assert_eq!(at("/srv"), None);
    }
}

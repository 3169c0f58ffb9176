//! Which file system is seen at a path, as the kernel's table of mounts says it: the file system
//! itself is not asked, so one that nobody serves is told, too.
//!
//! A mount is known by its device number. Its mountpoint alone says nothing: a file system may
//! have been there before, and another may be there as soon as ours has gone.

use std::fs;
use std::path::{Path, PathBuf};

use crate::sys;

/// What the kernel calls file systems of this program.
const KIND: &str = "fuse.thermocline";

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

    /// How the mount is seen now. Where the kernel's table does not tell, it is taken to be there.
    #[must_use]
    pub fn seen(&self) -> Seen {
        match (&self.device, fs::read_to_string("/proc/self/mountinfo")) {
            (Some(device), Ok(table)) => seen(&table, device, &self.mountpoint),
            _ => Seen::OnTop,
        }
    }

    /// Whether the mount is still what is seen there: what is unmounted by path is it.
    #[must_use]
    pub fn is_on_top(&self) -> bool {
        self.seen() == Seen::OnTop
    }

    /// Ends the connection of the mount: whoever waits for it gets an error. By its number, which
    /// whoever mounted may do; and by its path, which needs root and takes it away.
    pub fn abort(&self) {
        let number = self
            .device
            .as_ref()
            .and_then(|device| device.split_once(':'));
        if let Some((_, minor)) = number {
            // Where the kernel's table of connections is not mounted the path has to do.
            let _ = fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1");
        }
        if self.is_on_top() {
            // Somebody may have unmounted it by now.
            let _ = sys::abort(&self.mountpoint);
        }
    }
}

/// How a mount is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// At its mountpoint.
    OnTop,
    /// It is there, but not at its mountpoint: something is mounted over it, or a directory above
    /// was renamed.
    Hidden,
    /// No more.
    Gone,
}

/// A line of the kernel's table.
struct Line<'a> {
    device: &'a str,
    path: &'a str,
    kind: &'a str,
}

impl<'a> Line<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let mut fields = line.split(' ').skip(2);
        let (device, path) = (fields.next()?, fields.nth(1)?);
        let (_, rest) = line.split_once(" - ")?;
        let kind = rest.split(' ').next()?;
        Some(Self { device, path, kind })
    }

    /// Numbers are used again as soon as a mount has gone, by whatever is mounted next.
    fn is(&self, device: &str) -> bool {
        self.device == device && self.kind == KIND
    }
}

/// `major:minor` of the file system that is seen at this very path.
fn device_at(path: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let on_top = on_top(&table, path)?;
    Some(on_top.device.to_string())
}

fn on_top<'a>(table: &'a str, path: &Path) -> Option<Line<'a>> {
    let on = escaped(path.to_str()?);
    // The last one covers those before it.
    table
        .lines()
        .rev()
        .filter_map(Line::of)
        .find(|line| line.path == on)
}

fn seen(table: &str, device: &str, path: &Path) -> Seen {
    if on_top(table, path).is_some_and(|line| line.is(device)) {
        return Seen::OnTop;
    }
    match table
        .lines()
        .filter_map(Line::of)
        .any(|line| line.is(device))
    {
        true => Seen::Hidden,
        false => Seen::Gone,
    }
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
        let at = |path: &str| on_top(table, Path::new(path)).map(|line| line.device);
        assert_eq!(at("/srv/pg"), Some("0:51"));
        assert_eq!(at("/srv/a b"), Some("0:53"));
        assert_eq!(at("/srv"), None);
        let seen = |device: &str, path: &str| seen(table, device, Path::new(path));
        assert_eq!(seen("0:51", "/srv/pg"), Seen::OnTop);
        assert_eq!(seen("0:50", "/srv/pg"), Seen::Hidden);
        assert_eq!(seen("0:52", "/srv/a b"), Seen::Hidden);
        // The number of a mount that has gone, used by another kind of file system.
        assert_eq!(seen("0:53", "/srv/a b"), Seen::Gone);
        assert_eq!(seen("0:54", "/srv/pg"), Seen::Gone);
    }
}

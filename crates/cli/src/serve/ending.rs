//! The end of a mount on a signal.
//!
//! States: *serving* → *asked* (a signal came, and files are open: the end is tried again until
//! the last one is closed) → *over* (unmounted, by us or by anybody else). A second signal
//! detaches: the mountpoint is free at once, and the process ends when the last file is closed.
//!
//! Invariant: only the mount of this process is ever unmounted. Another one may stand on the same
//! directory as soon as ours has gone, so its device number is compared first.

use crate::serve::log;
use crate::serve::umount;
use crate::units::show_count;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thermocline::Engine;

/// Time between two tries, when no file is open.
const TRY_EVERY: Duration = Duration::from_millis(200);
/// The same, when something else than open files stands in the way for long.
const TRY_AT_LEAST_EVERY: Duration = Duration::from_secs(2);

/// How the end of one mount stands.
pub(crate) struct Ending {
    mountpoint: PathBuf,
    /// `major:minor` of the mount; `None` where the kernel's table does not tell it.
    device: Option<String>,
    engine: Arc<Engine>,
    asked: AtomicBool,
    over: AtomicBool,
}

impl Ending {
    /// That of the mount at `mountpoint`, which is there.
    pub(crate) fn new(mountpoint: &Path, engine: Arc<Engine>) -> Self {
        Self {
            mountpoint: mountpoint.to_path_buf(),
            device: mounted(mountpoint),
            engine,
            asked: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    /// Whether a signal asked for the end, and open files stand in its way.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Acquire)
    }

    /// Whether requests have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Says that requests have ended.
    pub(crate) fn set_over(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// Whether the mount is still seen at its mountpoint.
    pub(crate) fn is_mounted(&self) -> bool {
        let same = || self.device.is_none() || mounted(&self.mountpoint) == self.device;
        !self.is_over() && same()
    }

    /// What a signal does, with `earlier` ones before it. `open` tells how many files are open.
    pub(crate) fn signal(
        self: &Arc<Self>,
        earlier: u32,
        open: impl Fn() -> usize + Send + 'static,
    ) {
        if earlier > 0 {
            log::line("asked again: detaching; the end comes when the last file is closed");
            self.detach(true);
            return;
        }
        log::line("asked to end");
        if self.detach(false) {
            return;
        }
        self.asked.store(true, Ordering::Release);
        let dirty = show_count(self.engine.dirty_pages());
        log::line(&format!(
            "waits for open files; then {dirty} pages are to be written back; a second signal \
             detaches at once"
        ));
        let ending = Arc::clone(self);
        let waiting = std::thread::Builder::new().name("ending".into());
        let waiting = waiting.spawn(move || ending.keep_trying(open));
        if let Err(error) = waiting {
            log::line(&format!(
                "cannot wait for open files: {error}; signal again"
            ));
        }
    }

    fn keep_trying(&self, open: impl Fn() -> usize) {
        let mut wait = TRY_EVERY;
        while self.is_mounted() {
            std::thread::sleep(wait);
            // A handle that is open is sure to stand in the way: nothing to try.
            if open() > 0 {
                wait = TRY_EVERY;
            } else if self.is_mounted() {
                match umount::detach(&self.mountpoint, false) {
                    Ok(()) => return log::line("the last file was closed"),
                    // A directory that somebody stands in: tried less and less often.
                    Err(_) => wait = (wait * 2).min(TRY_AT_LEAST_EVERY),
                }
            }
        }
    }

    /// Whether the mount is gone now.
    fn detach(&self, lazy: bool) -> bool {
        if !self.is_mounted() {
            return true;
        }
        let detached = umount::detach(&self.mountpoint, lazy);
        if let Err(failure) = &detached {
            log::line(&format!("still serving: {}", failure.message));
        }
        detached.is_ok()
    }
}

/// `major:minor` of the Thermocline mount on this very directory, as the kernel's table says it.
fn mounted(mountpoint: &Path) -> Option<String> {
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    find(&table, mountpoint)
}

fn find(table: &str, mountpoint: &Path) -> Option<String> {
    let on = escaped(mountpoint.to_str()?);
    // The last one covers those before it.
    table.lines().rev().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut fields = place.split(' ').skip(2);
        let (device, path) = (fields.next()?, fields.nth(1)?);
        (path == on && kind.starts_with("fuse.thermocline ")).then(|| device.to_string())
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
93 22 0:53 / /srv/other rw - fuse.sshfs x rw\n";
        let at = |path: &str| find(table, Path::new(path));
        assert_eq!(at("/srv/pg").as_deref(), Some("0:51"));
        assert_eq!(at("/srv/a b").as_deref(), Some("0:52"));
        assert_eq!(at("/srv/other"), None);
        assert_eq!(at("/"), None);
    }
}

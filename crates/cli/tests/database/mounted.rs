//! A mount served by the built command, unmounted at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::ground::Ground;
use crate::process::{Background, succeed, wait_for};

/// The built command.
pub(crate) fn thermocline() -> Command {
    Command::new(env!("CARGO_BIN_EXE_thermocline"))
}

/// A running mount of `base` on `mnt`, with the cache file `cache`.
#[derive(Debug)]
pub(crate) struct Mounted {
    pub(crate) mountpoint: PathBuf,
    server: Background,
}

impl Mounted {
    /// Mounts with `options` (after base, mountpoint and cache file) and waits until it serves.
    ///
    /// Directories are made when missing. `configuration` is TOML.
    pub(crate) fn start(ground: &Ground, options: &[&str], configuration: &str) -> Self {
        let (base, mountpoint) = (ground.path("base"), ground.path("mnt"));
        for path in [&base, &mountpoint] {
            if fs::create_dir(path).is_ok() {
                ground.give(path);
            }
        }
        let settings = ground.path("thermocline.toml");
        // Without root, fuse.conf need not allow a mount for other users, nor is one needed.
        let own = match ground.user.uid == current_user() {
            true => "mount.allow_other = false\n",
            false => "",
        };
        fs::write(&settings, format!("{own}{configuration}")).expect("configuration");
        let mut command = thermocline();
        command.arg("mount").arg(base).arg(&mountpoint);
        command.arg("--cache").arg(ground.path("cache"));
        command.arg("--config").arg(settings);
        command.arg("--foreground").args(options);
        let mut server = Background::start(&mut command, &ground.path("mount.log"));
        let stats = mountpoint.join(".thermocline/stats.json");
        wait_for("the mount", || {
            server.check_running();
            fs::read(&stats).ok()
        });
        Self { mountpoint, server }
    }

    /// The path of `name` on the mount.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.mountpoint.join(name)
    }

    /// What `thermocline status --json` says.
    pub(crate) fn status(&self) -> Value {
        let mut command = thermocline();
        command.arg("status").arg("--json").arg(&self.mountpoint);
        serde_json::from_str(&succeed(&mut command)).expect("JSON")
    }

    /// A count of the status, by JSON pointer.
    pub(crate) fn count(&self, pointer: &str) -> u64 {
        let status = self.status();
        let value = status.pointer(pointer).and_then(Value::as_u64);
        value.unwrap_or_else(|| panic!("no {pointer} in {status:#}"))
    }

    /// Page reads served from flash or its write buffer.
    pub(crate) fn hits(&self) -> u64 {
        self.count("/stats/page_reads/flash") + self.count("/stats/page_reads/buffer")
    }

    /// Why the tier is off; `None` while it is on.
    pub(crate) fn off(&self) -> Option<String> {
        let status = self.status();
        let off = status.pointer("/stats/tier/off").expect("a tier");
        off.as_str().map(String::from)
    }

    /// What people see.
    pub(crate) fn status_text(&self) -> String {
        let mut command = thermocline();
        command.arg("status").arg("--once").arg(&self.mountpoint);
        succeed(&mut command)
    }

    /// Switches the tier `on` or `off`.
    pub(crate) fn tier(&self, state: &str) {
        let mut command = thermocline();
        succeed(command.arg("tier").arg(&self.mountpoint).arg(state));
    }

    /// Gives the flash device the faults of a script; `clear` makes it sound.
    pub(crate) fn faults(&self, script: &str) {
        fs::write(self.path(".thermocline/faults"), script).expect("script accepted");
    }

    /// `kill -9` of the serving process. What is left is a dead mount.
    pub(crate) fn kill(&mut self) {
        self.server.check_running();
        self.server.signal(libc::SIGKILL);
        self.server.join();
    }

    /// Unmounts as a person does. Of a dead mount, removes what is left.
    pub(crate) fn unmount(mut self) {
        let mut command = thermocline();
        succeed(command.arg("umount").arg(&self.mountpoint));
        let status = self.server.join();
        let killed = status.code().is_none();
        assert!(killed || status.success(), "{}", self.server.said());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if is_mounted(&self.mountpoint) {
            // Whoever still has files there keeps them; the name is free for removal.
            let mut command = thermocline();
            command.args(["umount", "--lazy", "--timeout", "5"]);
            let _tried = command.arg(&self.mountpoint).output();
        }
        self.server.end(libc::SIGTERM, Duration::from_secs(5));
    }
}

fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    table
        .lines()
        .any(|line| line.split(' ').nth(1).map(Path::new) == Some(path))
}

fn current_user() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

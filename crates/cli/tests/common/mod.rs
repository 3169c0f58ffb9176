//! A base, a mountpoint and a cache, for tests of mounts by their commands.
//!
//! Needs root and a FUSE device: prints "skipped" without them, and fails under
//! `THERMOCLINE_REQUIRE_ALL=1`.

#![allow(dead_code, reason = "each test program uses a part")]

use serde_json::Value;
use std::env;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Pages of the file every test reads.
pub(crate) const PAGES: usize = 64;
pub(crate) const PAGE: usize = 8192;

/// One test at a time: a process being started holds, until it runs its program, what the others
/// have open, and a mount with open files stays.
pub(crate) static TURN: Mutex<()> = Mutex::new(());

/// A base with one PostgreSQL relation, a mountpoint and a place for a cache.
pub(crate) struct Ground {
    pub(crate) directory: TempDir,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Ground {
    /// `None`, with a word on it, where no mount is possible.
    pub(crate) fn prepare(case: &str) -> Option<Self> {
        // SAFETY: no arguments, cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        let device = File::options().read(true).write(true).open("/dev/fuse");
        let required = env::var_os("THERMOCLINE_REQUIRE_ALL").is_some_and(|value| value == "1");
        if !root || device.is_err() {
            assert!(!required, "{case} needs root and a FUSE device");
            println!("skipped: {case} needs root and a FUSE device");
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        Some(Self::new(Some(turn)))
    }

    /// A second one in the same test.
    pub(crate) fn another(&self) -> Self {
        Self::new(None)
    }

    fn new(turn: Option<MutexGuard<'static, ()>>) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let ground = Self {
            directory,
            _turn: turn,
        };
        fs::create_dir_all(ground.path("base/base/5")).expect("base");
        fs::create_dir(ground.mountpoint()).expect("mountpoint");
        fs::write(ground.path("base/base/5/16384"), content()).expect("relation");
        ground
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.path("mnt")
    }

    pub(crate) fn mount(&self, options: &str) -> Command {
        let mut command = thermocline("mount");
        command.arg(self.path("base")).arg(self.mountpoint());
        command.arg("--cache").arg(self.path("tier"));
        command.args(options.split_whitespace());
        command
    }

    /// A mount in the background.
    pub(crate) fn mounted(&self, options: &str) {
        success(&mut self.mount(options));
    }

    /// A mount in the foreground, once it serves.
    pub(crate) fn served(&self, options: &str) -> Child {
        let mut command = self.mount(options);
        let mut child = command
            .arg("--foreground")
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let policy = self.control("policy");
        eventually("the mount to serve", || {
            assert_eq!(child.try_wait().expect("child"), None, "it ended");
            policy.exists()
        });
        child
    }

    pub(crate) fn control(&self, name: &str) -> PathBuf {
        self.mountpoint().join(".thermocline").join(name)
    }

    pub(crate) fn said(&self, name: &str) -> String {
        fs::read_to_string(self.control(name)).expect("control file")
    }

    /// Reads the relation through the mount and checks it.
    pub(crate) fn read(&self) {
        let read = fs::read(self.mountpoint().join("base/5/16384")).expect("read");
        assert!(read == content(), "other bytes than those of base");
    }

    /// What `status --json` says at `pointer`.
    pub(crate) fn status(&self, pointer: &str) -> Value {
        let text = success(thermocline("status").arg("--json").arg(self.mountpoint()));
        let report: Value = serde_json::from_str(&text).expect("JSON");
        report
            .pointer(pointer)
            .unwrap_or_else(|| panic!("no {pointer} in {text}"))
            .clone()
    }

    pub(crate) fn umount(&self) {
        success(thermocline("umount").arg(self.mountpoint()));
        assert!(!self.control("policy").exists());
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // A test that failed must not leave a mount in a directory about to be removed.
        let _output = Command::new("umount")
            .arg("-lq")
            .arg(self.mountpoint())
            .output();
    }
}

pub(crate) fn content() -> Vec<u8> {
    (0..PAGES * PAGE)
        .map(|at| (at / PAGE * 7 + at % 251) as u8)
        .collect()
}

pub(crate) fn thermocline(command: &str) -> Command {
    let mut thermocline = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    thermocline.arg(command);
    thermocline
}

pub(crate) fn success(command: &mut Command) -> String {
    let output = command.output().expect("runs");
    assert!(output.status.success(), "{command:?}: {}", message(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

pub(crate) fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Waits until `holds`; the limit only ends a test that would hang.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "waited in vain for {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs: it is there, and not merely waiting for its parent to notice its end.
pub(crate) fn runs(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Options of a mount that keeps writes on flash.
pub(crate) const WRITE_BACK: &str = "--write-back --policy lc --pool 256K";

/// Writes `fill` over the first half of the relation, and syncs it.
pub(crate) fn overwrite(path: &Path, fill: u8) {
    let file = File::options().write(true).open(path).expect("open");
    file.write_all_at(&vec![fill; PAGES / 2 * PAGE], 0)
        .expect("write");
    file.sync_data().expect("sync");
}

/// Whether the file's first half is `fill`, and the rest what it always was.
pub(crate) fn holds(path: &Path, fill: u8) -> bool {
    let read = fs::read(path).expect("read");
    let half = PAGES / 2 * PAGE;
    read.len() == PAGES * PAGE
        && read[..half].iter().all(|byte| *byte == fill)
        && read[half..] == content()[half..]
}

/// What `check --json` says; it must not fail.
pub(crate) fn check(ground: &Ground) -> Value {
    let text = success(
        thermocline("check")
            .args(["--data", "--json"])
            .arg(ground.path("tier")),
    );
    serde_json::from_str(&text).expect("JSON")
}

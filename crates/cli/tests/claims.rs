//! Who may serve a base: a second mount, a mount below, a mount of a mount, another cache, an old
//! copy of the cache, another host; and bases that come back with another device number.
//!
//! Needs root and a FUSE device: prints "skipped" without them, and fails under
//! `THERMOCLINE_REQUIRE_ALL=1`.

use std::env;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Exit code for a cache or a base that cannot be used as it is.
const CACHE: i32 = 3;
const USAGE: i32 = 2;
const PAGE: usize = 8192;
const WRITE_BACK: &str = "--size 4M --write-back --policy lc";
const RELATION: &str = "base/5/16384";

/// One test at a time: a process being started holds, until it runs its program, what the others
/// have open, locks included.
static TURN: Mutex<()> = Mutex::new(());

struct Ground {
    directory: TempDir,
    base: PathBuf,
    _turn: MutexGuard<'static, ()>,
}

fn required() -> bool {
    env::var_os("THERMOCLINE_REQUIRE_ALL").is_some_and(|value| value == "1")
}

impl Ground {
    fn prepare(case: &str) -> Option<Self> {
        // SAFETY: no arguments, cannot fail.
        let root = unsafe { libc::geteuid() } == 0;
        let device = File::options().read(true).write(true).open("/dev/fuse");
        if !root || device.is_err() {
            assert!(!required(), "{case} needs root and a FUSE device");
            println!("skipped: {case} needs root and a FUSE device");
            return None;
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::tempdir().expect("directory");
        let ground = Self {
            base: directory.path().join("pg"),
            directory,
            _turn: turn,
        };
        ground.fill();
        for name in ["mnt", "other"] {
            fs::create_dir(ground.path(name)).expect("mountpoint");
        }
        Some(ground)
    }

    /// Base with one relation.
    fn fill(&self) {
        fs::create_dir_all(self.base.join("base/5")).expect("base");
        fs::write(self.base.join(RELATION), vec![0; 8 * PAGE]).expect("relation");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// `mount BASE MOUNTPOINT --cache CACHE OPTIONS`.
    fn mount(&self, base: &Path, mountpoint: &str, cache: &str, options: &str) -> Command {
        let mut command = thermocline("mount");
        command.arg(base).arg(self.path(mountpoint));
        command.arg("--cache").arg(self.path(cache));
        command.args(options.split_whitespace());
        command
    }

    /// The mount every test has.
    fn mounted(&self, options: &str) {
        success(&mut self.mount(&self.base, "mnt", "tier", options));
    }

    fn recover(&self, cache: &str) -> Command {
        let mut command = thermocline("recover");
        command.arg(&self.base).arg(self.path(cache));
        command
    }

    fn above(&self) -> PathBuf {
        self.path("mnt").join(RELATION)
    }

    /// Writes the relation through the mount and syncs it: in write-back base does not have it.
    fn write(&self, fill: u8) {
        let file = File::options()
            .write(true)
            .open(self.above())
            .expect("opens");
        file.write_all_at(&[fill; 8 * PAGE], 0).expect("writes");
        file.sync_all().expect("syncs");
    }

    fn holds(&self, path: &Path, fill: u8) -> bool {
        fs::read(path)
            .expect("reads")
            .iter()
            .all(|byte| *byte == fill)
    }

    /// Ends the mount as a crash does.
    fn kill(&self) {
        let text = fs::read_to_string(self.path("mnt/.thermocline/stats.json")).expect("stats");
        let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let pid = report
            .pointer("/mount/pid")
            .and_then(serde_json::Value::as_i64);
        let pid = i32::try_from(pid.expect("pid")).expect("pid");
        // SAFETY: no memory is passed; the process is the mount this test started.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
        let start = Instant::now();
        while runs(pid) {
            assert!(start.elapsed() < Duration::from_secs(60), "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        detach(&self.path("mnt"));
    }

    fn umount(&self, options: &[&str]) {
        success(thermocline("umount").arg(self.path("mnt")).args(options));
    }

    fn mark(&self) -> String {
        attribute(&self.base).expect("a mark")
    }

    /// Which opening of the cache the mark names.
    fn epoch(&self) -> u64 {
        let mark = self.mark();
        let mut fields = mark.split("; ");
        let epoch = fields.find_map(|field| field.strip_prefix("epoch="));
        epoch.and_then(|n| n.parse().ok()).expect("an opening")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("tier.log")).expect("log")
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // A test that failed must not leave a mount in a directory about to be removed.
        for name in ["mnt", "other"] {
            detach(&self.path(name));
        }
    }
}

fn detach(mountpoint: &Path) {
    let _output = Command::new("umount").arg("-lq").arg(mountpoint).output();
}

/// Whether a process runs: it is there, and not merely waiting for its parent to notice its end.
fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

fn thermocline(command: &str) -> Command {
    let mut thermocline = Command::new(env!("CARGO_BIN_EXE_thermocline"));
    thermocline.arg(command);
    thermocline
}

fn success(command: &mut Command) -> String {
    let output = command.output().expect("runs");
    assert!(output.status.success(), "{command:?}: {}", message(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn refused(command: &mut Command, code: i32, parts: &[&str]) {
    let output = command.output().expect("runs");
    let text = message(&output);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {text}");
    assert!(text.contains("\n  try: "), "no way out: {text}");
    for part in parts {
        assert!(text.contains(part), "no \"{part}\" in {text}");
    }
}

fn c(text: &Path) -> CString {
    CString::new(text.as_os_str().as_bytes()).expect("a path")
}

fn attribute(path: &Path) -> Option<String> {
    let mut value = vec![0u8; 4096];
    // SAFETY: both strings are terminated, the buffer is as long as said.
    let length = unsafe {
        libc::getxattr(
            c(path).as_ptr(),
            c"user.thermocline".as_ptr(),
            value.as_mut_ptr().cast(),
            value.len(),
        )
    };
    value.truncate(usize::try_from(length).ok()?);
    String::from_utf8(value).ok()
}

fn set_attribute(path: &Path, text: &str) -> bool {
    let name = c"user.thermocline".as_ptr();
    // SAFETY: both strings are terminated, the value is as long as said.
    unsafe { libc::setxattr(c(path).as_ptr(), name, text.as_ptr().cast(), text.len(), 0) == 0 }
}

#[test]
fn a_second_mount_a_mount_below_and_a_mount_of_a_mount_are_refused() {
    let Some(ground) = Ground::prepare("second mount") else {
        return;
    };
    ground.mounted("--size 4M");
    let mountpoint = ground.path("mnt").display().to_string();
    let second = &mut ground.mount(&ground.base, "other", "tier2", "--size 4M");
    refused(second, CACHE, &["is in use by process", &mountpoint]);
    assert!(!ground.path("tier2").exists(), "nothing was made");
    refused(&mut ground.recover("tier"), CACHE, &["in use"]);
    let below = ground.base.join("base");
    let below = &mut ground.mount(&below, "other", "tier2", "--size 4M");
    refused(below, USAGE, &["contain each other", &mountpoint]);
    let shown = ground.path("mnt");
    let shown = &mut ground.mount(&shown, "other", "tier2", "--size 4M");
    refused(
        shown,
        USAGE,
        &["mount of a mount", &ground.base.display().to_string()],
    );
    ground.umount(&[]);
    // With nobody there each of them may be served.
    let below = ground.base.join("base");
    success(&mut ground.mount(&below, "other", "tier2", "--size 4M"));
    let above = &mut ground.mount(&ground.base, "mnt", "tier", "");
    refused(above, USAGE, &["contain each other"]);
    success(thermocline("umount").arg(ground.path("other")));
}

#[test]
fn after_a_crash_only_the_cache_with_the_newest_bytes_is_accepted() {
    let Some(ground) = Ground::prepare("new cache") else {
        return;
    };
    ground.mounted(WRITE_BACK);
    ground.write(7);
    ground.kill();
    assert!(
        ground.holds(&ground.base.join(RELATION), 0),
        "base has old bytes"
    );
    assert!(ground.mark().contains("state=dirty"), "{}", ground.mark());
    assert!(ground.mark().contains("start no server on it"));
    let cache = ground.path("tier").display().to_string();
    let newest = ["newer bytes", &cache, "recover", "--abandon-dirty"];
    let other = &mut ground.mount(&ground.base, "mnt", "tier2", "--size 4M");
    refused(other, CACHE, &newest);
    let none = &mut ground.mount(&ground.base, "mnt", "tier", "--policy none --foreground");
    refused(none, CACHE, &newest);
    let below = &mut ground.mount(&ground.base.join("base"), "mnt", "tier2", "--size 4M");
    refused(below, CACHE, &["lies inside", &cache]);
    let check = success(thermocline("check").arg(ground.path("tier")));
    assert!(check.contains("start no server on it"), "{check}");
    ground.mounted("--write-back --policy lc");
    assert!(ground.holds(&ground.above(), 7));
    ground.umount(&[]);
    assert!(ground.mark().contains("state=whole"), "{}", ground.mark());
    success(&mut ground.mount(&ground.base, "mnt", "tier2", "--size 4M"));
    assert!(ground.holds(&ground.above(), 7));
    ground.umount(&[]);
}

#[test]
fn what_a_cache_holds_can_be_given_up_by_its_id_and_is_not_written_later() {
    let Some(ground) = Ground::prepare("abandon") else {
        return;
    };
    ground.mounted(WRITE_BACK);
    ground.write(7);
    ground.kill();
    let mark = ground.mark();
    let id = mark
        .split("; ")
        .find_map(|field| field.strip_prefix("cache="));
    let id = id.expect("a cache").to_string();
    let options = format!("--size 4M --abandon-dirty {id}");
    success(&mut ground.mount(&ground.base, "mnt", "tier2", &options));
    assert!(
        ground.holds(&ground.above(), 0),
        "the old bytes, as was said"
    );
    ground.umount(&[]);
    // The cache turns up again.
    let back = &mut ground.mount(&ground.base, "mnt", "tier", "--write-back");
    refused(
        back,
        CACHE,
        &["8 pages", "given up", "--same-base", "--discard-dirty 8"],
    );
    let shown = success(thermocline("check").arg(ground.path("tier")));
    assert!(shown.contains("BASE DOES NOT WAIT for 8"), "{shown}");
    let anew = "--size 4M --format --discard-dirty 8";
    success(&mut ground.mount(&ground.base, "mnt", "tier", anew));
    ground.umount(&[]);
}

/// Copies that were made while the mount served: they are of an opening that was over by the crash.
#[test]
fn a_copy_of_a_running_mounts_cache_is_refused_once_another_opening_began() {
    let Some(ground) = Ground::prepare("copy of a running cache") else {
        return;
    };
    let config = ground.path("config.toml");
    fs::write(&config, "[mount]\nopening_s = 1.0\n").expect("config");
    let options = format!("{WRITE_BACK} --config {}", config.display());
    ground.mounted(&options);
    ground.write(1);
    fs::copy(ground.path("tier"), ground.path("copy")).expect("copy");
    ground.write(2);
    let epoch = ground.epoch();
    let deadline = Instant::now() + Duration::from_secs(30);
    while ground.epoch() == epoch {
        assert!(Instant::now() < deadline, "no other opening began");
        std::thread::sleep(Duration::from_millis(50));
    }
    ground.write(3);
    ground.kill();
    fs::rename(ground.path("tier"), ground.path("newest")).expect("rename");
    fs::rename(ground.path("copy"), ground.path("tier")).expect("rename");
    let old = &mut ground.mount(&ground.base, "mnt", "tier", "--write-back");
    refused(old, CACHE, &["is an old copy"]);
    fs::rename(ground.path("newest"), ground.path("tier")).expect("rename");
    ground.mounted("--write-back --policy lc");
    assert!(ground.holds(&ground.above(), 3));
    ground.umount(&[]);
}

#[test]
fn an_old_copy_of_the_cache_is_refused() {
    let Some(ground) = Ground::prepare("old copy") else {
        return;
    };
    ground.mounted(WRITE_BACK);
    ground.write(1);
    ground.umount(&["--keep-dirty"]);
    fs::copy(ground.path("tier"), ground.path("copy")).expect("copy");
    ground.mounted("--write-back --policy lc");
    ground.write(2);
    ground.kill();
    fs::rename(ground.path("tier"), ground.path("newest")).expect("rename");
    fs::rename(ground.path("copy"), ground.path("tier")).expect("rename");
    let old = &mut ground.mount(&ground.base, "mnt", "tier", "--write-back");
    refused(old, CACHE, &["is an old copy"]);
    refused(&mut ground.recover("tier"), CACHE, &["is an old copy"]);
    assert!(
        ground.holds(&ground.base.join(RELATION), 0),
        "nothing was written"
    );
    fs::rename(ground.path("newest"), ground.path("tier")).expect("rename");
    ground.mounted("--write-back --policy lc");
    assert!(ground.holds(&ground.above(), 2));
    ground.umount(&[]);
}

/// Flips a bit of the first sector of the map that is in use (`docs/flash-format.md`).
fn damage_map(cache: &Path) {
    let mut bytes = fs::read(cache).expect("cache");
    let number = |at: usize| {
        let bytes = bytes[at..at + 8].try_into().expect("8 bytes");
        u64::from_le_bytes(bytes)
    };
    let newer = [0, 4096].into_iter().max_by_key(|at| number(at + 24));
    let map = number(newer.expect("two superblocks") + 72) as usize;
    let used = |at: &usize| bytes[*at..at + 512].iter().any(|byte| *byte != 0);
    let sector = (map..bytes.len()).step_by(512).find(used);
    bytes[sector.expect("a page on flash") + 40] ^= 1;
    fs::write(cache, bytes).expect("write");
}

#[test]
fn a_damaged_cache_that_base_waits_for_is_refused_in_either_mode() {
    let Some(ground) = Ground::prepare("damaged") else {
        return;
    };
    ground.mounted(WRITE_BACK);
    ground.write(1);
    ground.umount(&["--keep-dirty"]);
    damage_map(&ground.path("tier"));
    for mode in ["--write-back", ""] {
        let mount = &mut ground.mount(&ground.base, "mnt", "tier", mode);
        refused(mount, CACHE, &["is damaged", "thermocline check"]);
    }
    assert!(ground.mark().contains("state=dirty"), "{}", ground.mark());
}

/// A flash device that is not mounted is no reason to make another cache in its place.
#[test]
fn a_cache_that_is_gone_is_missed() {
    let Some(ground) = Ground::prepare("gone") else {
        return;
    };
    ground.mounted("--size 4M");
    ground.umount(&[]);
    fs::rename(ground.path("tier"), ground.path("aside")).expect("moves");
    let mut again = ground.mount(&ground.base, "mnt", "tier", "");
    refused(&mut again, CACHE, &["is not there", "--size"]);
    assert!(!ground.path("tier").exists());
    fs::rename(ground.path("aside"), ground.path("tier")).expect("moves");
    ground.mounted("");
    ground.umount(&[]);
}

#[test]
fn kept_dirty_pages_keep_other_caches_out_until_recover() {
    let Some(ground) = Ground::prepare("keep dirty") else {
        return;
    };
    ground.mounted(WRITE_BACK);
    ground.write(3);
    ground.umount(&["--keep-dirty"]);
    assert!(ground.mark().contains("state=dirty"), "{}", ground.mark());
    let other = &mut ground.mount(&ground.base, "mnt", "tier2", "--size 4M");
    refused(other, CACHE, &["newer bytes", "recover"]);
    success(&mut ground.recover("tier"));
    assert!(ground.mark().contains("state=whole"), "{}", ground.mark());
    assert!(ground.holds(&ground.base.join(RELATION), 3));
    success(&mut ground.mount(&ground.base, "mnt", "tier2", "--size 4M"));
    ground.umount(&[]);
}

#[test]
fn a_command_that_a_mount_refuses_says_why() {
    let Some(ground) = Ground::prepare("why") else {
        return;
    };
    ground.mounted("--size 4M");
    let command = |name: &str, word: &str| {
        let mut command = thermocline(name);
        command.arg(ground.path("mnt")).arg(word);
        command
    };
    success(&mut command("tier", "off"));
    let why = "write-back needs the tier, which is off: switched off by command";
    refused(&mut command("mode", "write-back"), 1, &[why]);
    success(&mut command("tier", "on"));
    success(&mut command("mode", "write-back"));
    ground.umount(&[]);
}

#[test]
fn the_mark_follows_mode_and_cache_and_is_not_seen_through_the_mount() {
    let Some(ground) = Ground::prepare("mode") else {
        return;
    };
    ground.mounted("--size 4M");
    assert!(ground.mark().contains("state=serving"), "{}", ground.mark());
    let mode = |word| success(thermocline("mode").arg(ground.path("mnt")).arg(word));
    mode("write-back");
    assert!(ground.mark().contains("state=dirty"), "{}", ground.mark());
    let shown = ground.path("mnt");
    // Nothing is dirty yet, and then something was: each time base has everything again.
    for fill in [0, 3] {
        if fill > 0 {
            ground.write(fill);
            assert!(!ground.holds(&ground.base.join(RELATION), fill));
        }
        mode("write-through");
        success(thermocline("flush").arg(ground.path("mnt")));
        assert!(ground.mark().contains("state=serving"), "{}", ground.mark());
        mode("write-back");
        assert!(ground.mark().contains("state=dirty"), "{}", ground.mark());
    }
    assert!(ground.holds(&ground.base.join(RELATION), 3));
    assert_eq!(attribute(&shown), None);
    assert!(!set_attribute(&shown, "thermocline mark 1; state=whole"));
    let mut names = vec![0u8; 4096];
    // SAFETY: the path is terminated, the buffer is as long as said.
    let length =
        unsafe { libc::listxattr(c(&shown).as_ptr(), names.as_mut_ptr().cast(), names.len()) };
    names.truncate(usize::try_from(length).expect("a list"));
    assert!(!String::from_utf8_lossy(&names).contains("thermocline"));
    ground.write(4);
    let mut replace = thermocline("replace");
    replace.arg(&shown).arg("--cache").arg(ground.path("tier2"));
    success(&mut replace);
    let mark = ground.mark();
    assert!(
        mark.contains("state=dirty") && mark.contains("/tier2;"),
        "{mark}"
    );
    ground.write(5);
    ground.kill();
    refused(
        &mut ground.mount(&ground.base, "mnt", "tier", "--write-back"),
        CACHE,
        &["newer bytes", "tier2"],
    );
    success(&mut ground.mount(&ground.base, "mnt", "tier2", "--write-back"));
    assert!(ground.holds(&ground.above(), 5));
    ground.umount(&[]);
}

#[test]
fn another_host_is_refused_until_it_is_taken_over_and_then_answers_nothing() {
    let Some(ground) = Ground::prepare("take over") else {
        return;
    };
    ground.mounted("--size 4M");
    ground.write(6);
    let ours = ground.mark();
    let theirs: Vec<String> = (ours.split("; "))
        .map(|field| match field.split_once('=') {
            Some((key @ ("host" | "machine" | "boot" | "token"), _)) => format!("{key}=elsewhere"),
            _ => field.to_string(),
        })
        .collect();
    // What another host does that takes over.
    assert!(set_attribute(&ground.base, &theirs.join("; ")));
    let start = Instant::now();
    let file = File::open(ground.above());
    while file
        .as_ref()
        .is_ok_and(|file| file.read_at(&mut [0], 0).is_ok())
    {
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "it still answers"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(file);
    fs::write(ground.path("mnt/new"), "x").expect_err("nothing is made any more");
    assert!(!ground.base.join("new").exists());
    assert!(ground.log().contains("fenced: base"), "{}", ground.log());
    let ended = thermocline("umount").arg(ground.path("mnt")).output();
    assert!(
        !ended.expect("runs").status.success(),
        "it says that it was fenced"
    );
    assert!(
        ground.mark().contains("host=elsewhere"),
        "the other's mark stays"
    );
    let mount = &mut ground.mount(&ground.base, "mnt", "tier", "");
    refused(mount, CACHE, &["another host", "elsewhere", "--take-over"]);
    ground.mounted("--take-over");
    assert!(ground.holds(&ground.above(), 6));
    ground.umount(&[]);
}

/// An ext4 in a file, or a directory shown by `bindfs`: it has another device number each time.
struct Remountable<'a> {
    at: PathBuf,
    mount: Box<dyn Fn(&Path) -> Command + 'a>,
}

impl Remountable<'_> {
    fn mount(&self) -> bool {
        (self.mount)(&self.at).status().is_ok_and(|s| s.success())
    }

    fn umount(&self) {
        success(Command::new("umount").arg(&self.at));
    }
}

impl Drop for Remountable<'_> {
    fn drop(&mut self) {
        detach(&self.at);
    }
}

/// A base that is mounted again keeps its clean pages and its dirty ones.
fn comes_back(ground: &mut Ground, base: &Remountable<'_>, between: impl Fn()) {
    ground.base = base.at.join("pg");
    ground.fill();
    ground.mounted(WRITE_BACK);
    ground.write(8);
    ground.umount(&["--keep-dirty"]);
    let before = fs::metadata(&ground.base).expect("base").dev();
    base.umount();
    between();
    assert!(base.mount(), "mounted again");
    let after = fs::metadata(&ground.base).expect("base").dev();
    assert_ne!(before, after, "the case needs another device number");
    ground.mounted("--write-back --policy lc");
    let log = ground.log();
    assert!(log.contains("8 pages are warm, 8 of them newer"), "{log}");
    assert!(ground.holds(&ground.above(), 8));
    ground.umount(&[]);
    assert!(ground.holds(&ground.base.join(RELATION), 8), "written back");
}

/// A mounted ext4 in the file `image` of the ground.
fn disk(ground: &Ground) -> Option<Remountable<'static>> {
    let image = ground.path("image");
    let file = File::create(&image).expect("image");
    file.set_len(64 << 20).expect("length");
    let made = Command::new("mkfs.ext4").arg("-q").arg(&image).status();
    let at = ground.path("disk");
    fs::create_dir(&at).expect("directory");
    let base = Remountable {
        at,
        mount: Box::new(move |at: &Path| {
            let mut command = Command::new("mount");
            command.args(["-o", "loop"]).arg(&image).arg(at);
            command
        }),
    };
    if !made.is_ok_and(|status| status.success()) || !base.mount() {
        assert!(!required(), "needs mkfs.ext4 and a loop device");
        println!("skipped: no mkfs.ext4 or no loop device");
        return None;
    }
    Some(base)
}

/// A cache with clean pages of the relation in no marked region, which crashes after a batch.
fn crash_with_clean_pages(ground: &Ground, fill: u8) {
    ground.mounted("--size 4M --policy lru");
    ground.write(fill);
    ground.umount(&[]);
    ground.mounted("--policy lru");
    assert!(
        ground.log().contains("8 pages are warm"),
        "{}",
        ground.log()
    );
    fs::write(ground.path("mnt/base/5/2"), vec![9; PAGE]).expect("a batch");
    ground.kill();
}

#[test]
fn what_was_written_without_the_cache_just_after_a_crash_is_not_hidden_by_it() {
    for other in ["--size 4M", "--policy none"] {
        let Some(ground) = Ground::prepare("fallback") else {
            return;
        };
        crash_with_clean_pages(&ground, 1);
        let between = &mut ground.mount(&ground.base, "mnt", "tier2", other);
        success(between.arg("--log").arg(ground.path("between.log")));
        ground.write(2);
        ground.umount(&[]);
        ground.mounted("--policy lru");
        assert!(ground.holds(&ground.above(), 2), "after {other}");
        assert!(
            ground.log().contains("served without this cache"),
            "{other}"
        );
        ground.umount(&[]);
        ground.mounted("--policy lru");
        assert!(ground.holds(&ground.above(), 2), "after {other}");
        ground.umount(&[]);
    }
}

#[test]
fn a_crash_of_the_same_cache_keeps_its_clean_pages() {
    let Some(ground) = Ground::prepare("same cache") else {
        return;
    };
    crash_with_clean_pages(&ground, 1);
    ground.mounted("--policy lru");
    let log = ground.log();
    let warm = log.lines().rfind(|line| line.contains("pages are warm"));
    let warm = warm.expect("what was found");
    let kept = [" 8 pages", " 9 pages"];
    assert!(kept.iter().any(|text| warm.contains(text)), "{warm}");
    assert!(!log.contains("served without this cache"), "{log}");
    ground.umount(&[]);
}

/// What a snapshot of base's file system is for: it is put back after a crash.
#[test]
fn a_base_that_was_rolled_back_is_not_mixed_with_newer_pages_of_the_cache() {
    let Some(mut ground) = Ground::prepare("rolled back") else {
        return;
    };
    let Some(base) = disk(&ground) else { return };
    ground.base = base.at.join("pg");
    ground.fill();
    let (image, snapshot) = (ground.path("image"), ground.path("snapshot"));
    for options in [
        "--size 4M --policy lru",
        "--size 4M --write-back --policy lru",
    ] {
        ground.mounted(options);
        ground.write(1);
        success(thermocline("flush").arg(ground.path("mnt")));
        success(&mut Command::new("sync"));
        fs::copy(&image, &snapshot).expect("snapshot");
        ground.umount(&[]);
        if options.contains("back") {
            ground.mounted("--write-back --policy lru");
            ground.write(2);
            ground.kill();
        } else {
            crash_with_clean_pages(&ground, 2);
        }
        base.umount();
        fs::copy(&snapshot, &image).expect("rolled back");
        assert!(base.mount(), "mounted again");
        assert!(ground.holds(&ground.base.join(RELATION), 1), "the snapshot");
        if options.contains("back") {
            let again = &mut ground.mount(&ground.base, "mnt", "tier", "--write-back");
            refused(again, CACHE, &["does not wait for them", "older copy"]);
            assert!(ground.holds(&ground.base.join(RELATION), 1), "as it was");
        } else {
            ground.mounted("--policy lru");
            assert!(
                ground.holds(&ground.above(), 1),
                "the snapshot, and nothing newer"
            );
            ground.umount(&[]);
        }
    }
}

#[test]
fn the_mark_names_the_opening_of_a_tier_that_was_switched_on_again() {
    let Some(ground) = Ground::prepare("tier on") else {
        return;
    };
    ground.mounted("--size 4M");
    let epoch = || {
        let mark = ground.mark();
        let field = mark
            .split("; ")
            .find_map(|field| field.strip_prefix("epoch="));
        field.expect("an opening").parse::<u64>().expect("a number")
    };
    let before = epoch();
    for word in ["off", "on"] {
        success(thermocline("tier").arg(ground.path("mnt")).arg(word));
    }
    assert_eq!(epoch(), before + 1);
    let mut replace = thermocline("replace");
    let replace = replace.arg(ground.path("mnt")).arg("--cache");
    success(replace.arg(ground.path("tier2")));
    assert!(ground.mark().contains("/tier2;"), "{}", ground.mark());
    ground.umount(&[]);
}

#[test]
fn a_base_on_another_loop_device_is_the_same_base() {
    let Some(mut ground) = Ground::prepare("loop") else {
        return;
    };
    let Some(base) = disk(&ground) else { return };
    // Takes the device that was free.
    let other = ground.path("other-image");
    File::create(&other)
        .expect("image")
        .set_len(1 << 20)
        .expect("length");
    let taken = Mutex::new(None);
    comes_back(&mut ground, &base, || {
        let output = Command::new("losetup")
            .args(["-f", "--show"])
            .arg(&other)
            .output();
        let output = output.expect("losetup");
        *taken.lock().expect("lock") = Some(String::from_utf8(output.stdout).expect("UTF-8"));
    });
    if let Some(device) = taken.into_inner().expect("lock") {
        success(Command::new("losetup").arg("-d").arg(device.trim()));
    }
}

#[test]
fn a_base_on_a_user_space_file_system_that_is_mounted_again_is_the_same_base() {
    let Some(mut ground) = Ground::prepare("bindfs") else {
        return;
    };
    let (below, at, spare) = (
        ground.path("below"),
        ground.path("shown"),
        ground.path("spare"),
    );
    for directory in [&below, &at, &spare] {
        fs::create_dir(directory).expect("directory");
    }
    let source = below.clone();
    let base = Remountable {
        at,
        mount: Box::new(move |at: &Path| {
            let mut command = Command::new("bindfs");
            command.arg(&source).arg(at);
            command
        }),
    };
    if !base.mount() {
        assert!(!required(), "needs bindfs");
        println!("skipped: no bindfs");
        return;
    }
    // Takes the device number that was free.
    let holder = Remountable {
        at: spare,
        mount: Box::new(|at: &Path| {
            let mut command = Command::new("mount");
            command.args(["-t", "tmpfs", "none"]).arg(at);
            command
        }),
    };
    comes_back(&mut ground, &base, || assert!(holder.mount(), "tmpfs"));
}

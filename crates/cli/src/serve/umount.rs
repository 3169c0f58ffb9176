//! `umount`: detach, then wait until the serving process has saved its map and ended.
//!
//! That it ended well is not told by its end: it is no child of ours, and it may have no log, or
//! have been killed. Base's mark tells: a process that ends in good order leaves itself out of it,
//! and says there whether base has everything.

use crate::failure::{Code, Failure, Outcome, reason};
use crate::serve::ask::{self, PATIENCE};
use crate::serve::beacon::{self, Stage};
use crate::serve::client;
use crate::serve::log::News;
use crate::show::report::MountFacts;
use clap::{Args, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Deserialize;
use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use thermocline::claim::{State, standing_of};
use thermocline_mount::is_gone;

/// Shown at the end of `umount --help`.
pub(crate) const HELP: &str = "\
Stop the database first. What the log says meanwhile is shown. When there was no news for so many
seconds as --timeout says, the command ends with exit code 1 and the process goes on: `umount` again
waits for it. A mount whose process is gone is removed; the next mount recovers. One that does not
answer for that time is left alone (exit code 6) but with --lazy, which needs no answer.
  thermocline umount /srv/pgdata
  thermocline umount /srv/pgdata --lazy";

/// `thermocline umount`.
#[derive(Args, Debug)]
pub(crate) struct UmountArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// Detach now and finish when the last file is closed. Also a mount that does not answer
    #[arg(long)]
    pub(crate) lazy: bool,
    /// Leave pages that are newer than base on flash: unmounts at once, and base is whole only
    /// together with the cache. Without it they are written back
    #[arg(long)]
    pub(crate) keep_dirty: bool,
    /// Seconds to wait for the map to be saved, after the last news in the log
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub(crate) timeout: u64,
}

/// Unmounts and waits.
pub(crate) fn run(args: &UmountArgs) -> Outcome {
    let found = beacon::resolved(&args.mountpoint);
    let mountpoint = found.map_err(|error| Failure::io("find", &args.mountpoint, &error))?;
    let limit = Duration::from_secs(args.timeout.max(1));
    let patience = match args.lazy {
        true => PATIENCE.min(limit),
        false => limit,
    };
    let (serving, serves) = match facts(&mountpoint, patience) {
        Ok(facts) => (Some(Serving::find(&facts)), true),
        Err(failure) if failure.code == Code::Hung && args.lazy => {
            return leave_behind(&mountpoint, args);
        }
        Err(failure) if failure.code == Code::Hung => return Err(failure),
        // One that gave up serving may still write back.
        Err(_) if is_abandoned(&mountpoint) => {
            let standing = beacon::of_mountpoint(&mountpoint);
            // Another one may have been there before.
            let standing = standing.filter(|standing| standing.stage != Stage::Detached);
            (
                standing.map(|standing| Serving::find(&standing.mount)),
                false,
            )
        }
        Err(failure) => return wait_for_the_end(&mountpoint, args).unwrap_or(Err(failure)),
    };
    match (serves, args.keep_dirty) {
        (true, true) => client::write(&mountpoint, "flush", "at-end keep")?,
        // One that was interrupted may have said the other. What cannot be told shows in the mark.
        (true, false) => drop(client::write(&mountpoint, "flush", "at-end flush")),
        (false, _) => {}
    }
    detach(&mountpoint, args.lazy || !serves).inspect_err(|_| {
        if args.keep_dirty && serves {
            // It goes on; the first failure is what counts.
            let _goes_on = client::write(&mountpoint, "flush", "at-end flush");
        }
    })?;
    if let (true, true, Some(serving)) = (serves, args.lazy, &serving) {
        eprintln!(
            "detached {}; process {} goes on until its files are closed, and is waited for",
            mountpoint.display(),
            serving.pid
        );
    }
    match serving {
        None => println!(
            "detached {}; its process was gone. Mount again to recover what flash holds",
            mountpoint.display()
        ),
        Some(serving) => {
            serving.wait(Duration::from_secs(args.timeout), args.keep_dirty)?;
            println!("unmounted {}", mountpoint.display());
        }
    }
    Ok(())
}

/// A mount that was unmounted before, and has not ended: says what it is at and waits for it.
/// `None` when there is no such mount.
fn wait_for_the_end(mountpoint: &Path, args: &UmountArgs) -> Option<Outcome> {
    let standing = beacon::of_mountpoint(mountpoint)?;
    if standing.stage == Stage::Serving {
        return None;
    }
    eprintln!("{}", standing.not_mounted(mountpoint).message);
    let limit = Duration::from_secs(args.timeout);
    let ended = Serving::find(&standing.mount).wait(limit, args.keep_dirty);
    Some(ended.map(|()| println!("unmounted {}", mountpoint.display())))
}

/// What is needed of a mount's report: a mount of any version can be ended.
#[derive(Deserialize)]
struct Ending {
    mount: MountFacts,
}

/// Detaches a mount that does not answer. Its process may still come to its end.
fn leave_behind(mountpoint: &Path, args: &UmountArgs) -> Outcome {
    let listener = || {
        let pid = beacon::listener_of(mountpoint)?;
        let mounts = thermocline::claim::mounts::all().into_iter();
        let mut served = mounts.filter(|mount| mount.mountpoint == mountpoint);
        Some(MountFacts {
            pid,
            mountpoint: mountpoint.into(),
            base: served
                .next_back()
                .map(|mount| mount.base)
                .unwrap_or_default(),
            ..MountFacts::default()
        })
    };
    // Where files hang, it may still tell of itself.
    let facts = beacon::of_mountpoint(mountpoint).map(|standing| standing.mount);
    let serving = facts.or_else(listener).map(|facts| Serving::find(&facts));
    detach(mountpoint, true)?;
    let shown = mountpoint.display();
    let Some(serving) = serving else {
        println!("detached {shown}; of its process nothing is known");
        return Ok(());
    };
    let pid = serving.pid;
    eprintln!("detached {shown}, which does not answer; waiting for process {pid}");
    if args.keep_dirty {
        eprintln!("it cannot be told of --keep-dirty: it writes back if it goes on");
    }
    match serving.wait(Duration::from_secs(args.timeout), args.keep_dirty) {
        Err(failure) if !serving.has_ended()? => {
            return Err(failure.advise(format!(
                "kill -9 {pid} ends it; what was synced is not lost: mount again with its cache"
            )));
        }
        waited => waited?,
    }
    println!("unmounted {shown}");
    Ok(())
}

fn facts(mountpoint: &Path, patience: Duration) -> Result<MountFacts, Failure> {
    let text = client::read_within(patience, mountpoint, "stats.json")?;
    let ending: Ending = serde_json::from_str(&text).map_err(|error| {
        let shown = mountpoint.display();
        Failure::new(
            Code::Failure,
            format!("cannot tell which process serves {shown}: {error}"),
        )
        .advise(format!(
            "umount {shown}: the process saves its map all the same"
        ))
    })?;
    Ok(ending.mount)
}

/// How the end of a process is seen.
enum Watch {
    /// By a pidfd: it stays right even when the pid is reused.
    Process(OwnedFd),
    /// Where there are none (an older kernel, a container that forbids it), or the process has no
    /// number here: it answers at its beacon until it has ended.
    Beacon,
    /// There is no beacon either. Base's mark names it until it ends in good order.
    Mark,
    /// It had ended before.
    Ended,
}

/// The process behind a mount.
struct Serving {
    watch: Watch,
    pid: u32,
    mountpoint: PathBuf,
    base: PathBuf,
    news: News,
}

impl Serving {
    /// Watches the process that `facts` name. They have its number in its own namespace, which may
    /// be another process's here. The kernel tells what number here whoever listens at its beacon
    /// has.
    fn find(facts: &MountFacts) -> Self {
        let pid = facts.pid;
        let lit = beacon::process_of(&facts.mountpoint, pid);
        let watch = match (lit, pidfd(lit.unwrap_or(pid))) {
            (Some(_), found) => found.map_or(Watch::Beacon, Watch::Process),
            (None, Ok(process)) if is_like_this(pid) => Watch::Process(process),
            (None, Err(error)) if error.raw_os_error() == Some(libc::ESRCH) => Watch::Ended,
            (None, _) => Watch::Mark,
        };
        Self {
            watch,
            pid,
            mountpoint: facts.mountpoint.clone(),
            base: facts.base.clone(),
            news: News::of(&facts.log),
        }
    }

    /// Whether the process has ended; waits up to 100 ms for it.
    fn has_ended(&self) -> Result<bool, Failure> {
        let is_there = || match self.watch {
            Watch::Beacon => beacon::is_lit(&self.mountpoint, self.pid),
            _ => standing_of(&self.base)
                .map_or(true, |mark| mark.is_some_and(|mark| mark.pid == self.pid)),
        };
        match &self.watch {
            Watch::Process(process) => ended(process),
            Watch::Ended => Ok(true),
            Watch::Beacon | Watch::Mark if !is_there() => Ok(true),
            Watch::Beacon | Watch::Mark => {
                std::thread::sleep(LOOK);
                Ok(false)
            }
        }
    }

    /// Returns when the process has ended; an error it logged meanwhile is this command's, and so
    /// is a base that it left without everything, unless that was wanted (`keep_dirty`).
    fn wait(&self, limit: Duration, keep_dirty: bool) -> Outcome {
        let bar = ProgressBar::new_spinner().with_style(
            ProgressStyle::with_template("{spinner} saving the map ({elapsed}) {msg}")
                .unwrap_or_else(|_| ProgressStyle::default_spinner()),
        );
        let (mut news, mut log_length) = (Instant::now(), 0);
        while !self.has_ended()? {
            let length = self.news.length();
            if length != log_length {
                (news, log_length) = (Instant::now(), length);
                let text = self.news.text();
                bar.set_message(text.lines().last().unwrap_or_default().to_string());
            }
            if news.elapsed() >= limit {
                return Err(Failure::new(
                    Code::Failure,
                    format!(
                        "process {} still runs, without news for {} s",
                        self.pid,
                        limit.as_secs()
                    ),
                )
                .advise(format!(
                    "wait longer with --timeout, or read {}",
                    self.news.path().display()
                )));
            }
            bar.tick();
        }
        bar.finish_and_clear();
        match self.last_error() {
            Some(failure) => Err(failure),
            None => self.has_ended_well(keep_dirty),
        }
    }

    /// By base's mark. Of one that names another process, a mount of after this one, or that cannot
    /// be read, nothing is known; where there is none, nothing was promised.
    fn has_ended_well(&self, keep_dirty: bool) -> Outcome {
        let Ok(Some(standing)) = standing_of(&self.base) else {
            return Ok(());
        };
        let base = self.base.display();
        let said = if standing.pid == self.pid {
            format!("process {} ended before it was done with {base}", self.pid)
        } else if standing.pid == 0 && standing.state == State::Dirty && !keep_dirty {
            format!("the newest bytes of {base} are still in the cache alone")
        } else {
            return Ok(());
        };
        Err(Failure::new(Code::Failure, said).advise(
            "mount it again with its cache: that recovers what was synced; start no server on base",
        ))
    }

    /// The first `error:` line logged since the unmount began, with the advice that follows.
    fn last_error(&self) -> Option<Failure> {
        let fresh = self.news.text();
        let mut lines = fresh.lines();
        let (_, message) = lines.find_map(|line| line.split_once("error: "))?;
        let advice = lines.next().and_then(|line| line.strip_prefix("  try: "));
        let usual = "mount again: it recovers what was synced";
        Some(Failure::new(Code::Failure, message).advise(advice.unwrap_or(usual)))
    }
}

/// The time between two looks.
const LOOK: Duration = Duration::from_millis(100);

fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers. A negative return is an error and not wrapped.
    let opened = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    match i32::try_from(opened) {
        // SAFETY: the descriptor was just opened and belongs to nobody else.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether a process runs the program that this one runs, by its name.
fn is_like_this(pid: u32) -> bool {
    let name = |process: &str| fs::read(format!("/proc/{process}/comm")).ok();
    name(&pid.to_string()).is_some_and(|other| Some(other) == name("self"))
}

/// Whether the process has ended; waits for it for one [`LOOK`].
fn ended(process: &OwnedFd) -> Result<bool, Failure> {
    let mut poll = libc::pollfd {
        fd: process.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one element, as said; it outlives the call.
    match unsafe { libc::poll(&raw mut poll, 1, LOOK.as_millis() as libc::c_int) } {
        -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => Ok(false),
        -1 => Err(io::Error::last_os_error().into()),
        ready => Ok(ready > 0),
    }
}

/// Whether `mountpoint` is a mount whose process is gone.
pub(crate) fn is_abandoned(mountpoint: &Path) -> bool {
    // Attributes may still be in the kernel's cache; to open a file, the process is asked.
    let file = mountpoint.join(client::DIRECTORY).join("stats.json");
    ask::read(&file, PATIENCE).is_err_and(|error| is_gone(&error))
}

/// Detaches the mount: by system call as root, through `fusermount3` as anyone else.
pub(crate) fn detach(mountpoint: &Path, lazy: bool) -> Outcome {
    let path = CString::new(mountpoint.as_os_str().as_bytes())
        .map_err(|_| Failure::usage("a path cannot hold a zero byte"))?;
    let flags = if lazy { libc::MNT_DETACH } else { 0 };
    // SAFETY: `path` is a terminated string that outlives the call.
    if unsafe { libc::umount2(path.as_ptr(), flags) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EPERM) => fusermount(mountpoint, lazy),
        Some(libc::EBUSY) => Err(busy(mountpoint)),
        Some(libc::EINVAL) => Err(client::not_mounted(mountpoint)),
        _ => Err(Failure::io("unmount", mountpoint, &error)),
    }
}

fn fusermount(mountpoint: &Path, lazy: bool) -> Outcome {
    let mut command = Command::new("fusermount3");
    command
        .arg(if lazy { "-uz" } else { "-u" })
        .arg("--")
        .arg(mountpoint);
    let output = command.output().map_err(|e| {
        Failure::new(
            Code::System,
            format!("cannot run fusermount3: {}", reason(&e)),
        )
        .advise("install fuse3, or unmount as root")
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
    if said.contains("busy") {
        return Err(busy(mountpoint));
    }
    Err(Failure::new(Code::System, said).advise("unmount as the user who mounted, or as root"))
}

fn busy(mountpoint: &Path) -> Failure {
    let shown = mountpoint.display();
    Failure::new(Code::Failure, format!("{shown} is in use")).advise(format!(
        "stop the database first; `fuser -vm {shown}` names who uses it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn the_log_before_the_unmount_does_not_count() {
        let log = tempfile::NamedTempFile::new().expect("log");
        fs::write(log.path(), "error: old\n").expect("write");
        let base = tempfile::tempdir().expect("base");
        let serving = Serving {
            watch: Watch::Ended,
            pid: 1,
            mountpoint: base.path().into(),
            base: base.path().into(),
            news: News::of(log.path()),
        };
        assert!(serving.wait(Duration::ZERO, false).is_ok());
        fs::write(
            log.path(),
            "error: old\nthermocline: error: map not saved\n",
        )
        .expect("write");
        let failure = serving.wait(Duration::ZERO, false).unwrap_err();
        assert_eq!(failure.message, "map not saved");
        fs::write(log.path(), "error: old\nerror: full\n  try: more room\n").expect("write");
        let failure = serving.wait(Duration::ZERO, false).unwrap_err();
        assert_eq!(failure.advice.as_deref(), Some("more room"));
    }

    /// As for a mount in a container: its pid is nobody's here. Base cannot be looked at.
    #[test]
    fn a_process_that_only_its_beacon_tells_of_is_waited_for() {
        let directory = tempfile::tempdir().expect("directory");
        let facts = MountFacts {
            pid: i32::MAX as u32,
            mountpoint: directory.path().canonicalize().expect("path"),
            base: directory.path().join("none"),
            ..MountFacts::default()
        };
        assert!(pidfd(facts.pid).is_err());
        let lit = beacon::of(&facts).expect("listens");
        // The listener is this very process, whose end is not waited for.
        let serving = Serving {
            watch: Watch::Beacon,
            ..Serving::find(&facts)
        };
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(LOOK * 3);
                ended.store(true, Ordering::Release);
                lit.end();
            });
            let waited = serving.wait(Duration::from_secs(60), false);
            assert!(ended.load(Ordering::Acquire), "it was there");
            assert!(waited.is_ok(), "nothing is known against it: {waited:?}");
        });
    }

    /// As for a mount in a container: its pid is somebody else's here.
    #[test]
    fn a_process_of_the_same_number_is_not_taken_for_the_mount() {
        let directory = tempfile::tempdir().expect("directory");
        let facts = MountFacts {
            pid: 1,
            mountpoint: directory.path().canonicalize().expect("path"),
            base: directory.path().join("none"),
            ..MountFacts::default()
        };
        let dark = Serving::find(&facts);
        assert!(matches!(dark.watch, Watch::Mark), "process 1 is no mount");
        let lit = beacon::of(&facts).expect("listens");
        let serving = Serving::find(&facts);
        lit.end();
        let Watch::Process(process) = &serving.watch else {
            panic!("the beacon tells whose it is");
        };
        let told = fs::read_to_string(format!("/proc/self/fdinfo/{}", process.as_raw_fd()));
        let own = format!("Pid:\t{}\n", std::process::id());
        assert!(told.expect("descriptor").contains(&own));
    }

    #[test]
    fn relative_paths_resolve_without_touching_the_last_name() {
        let missing = beacon::resolved(Path::new("no-such-mount")).expect("resolves");
        assert!(missing.is_absolute() && missing.ends_with("no-such-mount"));
    }
}

//! Locks on whole files and directories (`flock`) that say that somebody uses them.
//!
//! Such a lock goes with the process that took it, but not at the same moment: the kernel ends
//! what a killed process has under way on a ring after the process is gone, and keeps the file
//! until then. A lock that no living process holds is therefore waited for; a process that was
//! killed and has not ended yet counts as dead.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// How long a lock of the dead is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Among the flags of a process (`PF_EXITING` of the kernel's `include/linux/sched.h`).
const EXITING: u32 = 4;

/// How often the system's table of locks is read for a lock that is not in it.
const READS: u32 = 5;

const TRY_AGAIN: Duration = Duration::from_millis(20);

/// Locks `file` for itself alone, for as long as the file lives; false: a living process has it.
///
/// Where the table of locks names nobody, as for one in another container, this takes 5 seconds to
/// say so.
pub(crate) fn exclusively(file: &File) -> io::Result<bool> {
    let begun = Instant::now();
    while !try_lock(file, libc::LOCK_EX)? {
        let lives = holder(file).is_some_and(is_alive);
        if lives || begun.elapsed() >= PATIENCE {
            return Ok(false);
        }
        std::thread::sleep(TRY_AGAIN);
    }
    Ok(true)
}

/// Whether nobody has locked `file` for itself alone.
pub(crate) fn is_free(file: &File) -> io::Result<bool> {
    // Given back at once when the caller drops the file.
    try_lock(file, libc::LOCK_SH)
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

/// The process that took the lock on `file`, as far as the system's table tells.
pub(crate) fn holder(file: &File) -> Option<u32> {
    let found = file.metadata().ok()?;
    let device = (libc::major(found.dev()), libc::minor(found.dev()));
    // The table is read in pieces: a lock that others take or give meanwhile may hide this one.
    (0..READS).find_map(|_| {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        holder_in(&locks, device, found.ino())
    })
}

/// The process that by these lines of `/proc/locks` holds a lock of the whole file `inode` on
/// `device`. File systems without a device of their own (btrfs, overlay) may show another number
/// there than in the file's attributes: then the inode alone has to do.
fn holder_in(locks: &str, device: (u32, u32), inode: u64) -> Option<u32> {
    let held = locks.lines().filter_map(held_by);
    let of_inode = held.filter(|(_, _, found)| *found == inode);
    let of_inode: Vec<_> = of_inode.map(|(pid, on, _)| (pid, on)).collect();
    let exact = of_inode.iter().find(|(_, on)| *on == device);
    let unsure = |(_, on): &&(u32, (u32, u32))| device.0 == 0 || on.0 == 0;
    let found = exact.or_else(|| of_inode.iter().find(unsure));
    found.map(|(pid, _)| *pid)
}

/// Process, device and inode of a lock of a whole file for one process alone.
fn held_by(line: &str) -> Option<(u32, (u32, u32), u64)> {
    let mut words = line.split_whitespace().skip(1);
    let (kind, _, access) = (words.next()?, words.next()?, words.next()?);
    let (pid, file) = (words.next()?, words.next()?);
    let mut numbers = file.split(':');
    let mut hex = || u32::from_str_radix(numbers.next()?, 16).ok();
    let device = (hex()?, hex()?);
    let inode = numbers.next()?.parse().ok()?;
    let held = kind == "FLOCK" && access == "WRITE";
    held.then_some((pid.parse().ok()?, device, inode))
}

/// Whether the process runs, and will: one that was killed, or has ended and was not waited for,
/// does not.
fn is_alive(pid: u32) -> bool {
    let about = |what: &str| fs::read_to_string(format!("/proc/{pid}/{what}")).unwrap_or_default();
    let (stat, status) = (about("stat"), about("status"));
    // The name, in parentheses, may have any letters.
    let mut words = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let ended = words.next().is_none_or(|state| matches!(state, "Z" | "X"));
    let flags = words.nth(5).and_then(|flags| flags.parse::<u32>().ok());
    let ends = flags.is_some_and(|flags| flags & EXITING != 0);
    let killed = status.lines().any(|line| {
        let signals = line
            .strip_prefix("SigPnd:")
            .or(line.strip_prefix("ShdPnd:"));
        let signals = signals.and_then(|signals| u64::from_str_radix(signals.trim(), 16).ok());
        signals.is_some_and(|signals| signals & 1 << (libc::SIGKILL - 1) != 0)
    });
    !ended && !ends && !killed
}

#[cfg(test)]
mod tests {
    use super::{exclusively, holder, holder_in, is_alive};
    use std::fs::File;
    use std::process::{Command, Stdio};
    use std::thread;
    use std::time::Duration;

    #[test]
    fn the_holder_is_found_in_the_systems_table() {
        let line = "3: FLOCK  ADVISORY  WRITE 4711 fe:00:131075 0 EOF";
        assert_eq!(holder_in(line, (0xfe, 0), 131_075), Some(4711));
        assert_eq!(holder_in(line, (0xfe, 0), 131_076), None);
        let waiting = "3: -> FLOCK  ADVISORY  WRITE 4712 fe:00:131075 0 EOF";
        assert_eq!(holder_in(waiting, (0xfe, 0), 131_075), None);
        assert_eq!(holder_in("", (0, 1), 1), None);
    }

    #[test]
    fn of_two_files_with_one_number_the_holder_is_told_by_the_device() {
        let locks = "1: FLOCK  ADVISORY  WRITE 11 fe:00:2 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 12 fd:0a:2 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 13 00:2a:256 0 EOF";
        assert_eq!(holder_in(locks, (0xfe, 0), 2), Some(11));
        assert_eq!(holder_in(locks, (0xfd, 10), 2), Some(12));
        assert_eq!(holder_in(locks, (0xfd, 11), 2), None);
        // A subvolume shows another number than its file system, and neither is a device's.
        assert_eq!(holder_in(locks, (0, 0x30), 256), Some(13));
    }

    #[test]
    fn the_lock_of_a_dead_process_is_waited_for() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let theirs = File::open(file.path()).expect("open");
        // The process that takes the lock is gone, and what it locked is kept open for a while.
        let shared = theirs.try_clone().expect("clone");
        let mut taker = Command::new("flock");
        taker.args(["--exclusive", "0"]).stdin(Stdio::from(shared));
        assert!(taker.status().expect("flock runs").success());
        drop(taker);
        let kept = thread::spawn(move || {
            thread::sleep(Duration::from_millis(200));
            drop(theirs);
        });
        let ours = File::open(file.path()).expect("open");
        assert!(exclusively(&ours).expect("lock"));
        kept.join().expect("ends");
    }

    #[test]
    fn the_lock_of_a_living_process_is_not() {
        let file = tempfile::NamedTempFile::new().expect("file");
        let theirs = File::open(file.path()).expect("open");
        assert!(exclusively(&theirs).expect("lock"));
        let ours = File::open(file.path()).expect("open");
        assert_eq!(holder(&ours), Some(std::process::id()));
        assert!(is_alive(std::process::id()));
        assert!(!exclusively(&ours).expect("no error"));
        let mut child = Command::new("sleep")
            .arg("1000")
            .spawn()
            .expect("sleep runs");
        let id = child.id();
        assert!(is_alive(id));
        child.kill().expect("is killed");
        while is_alive(id) {
            thread::yield_now();
        }
        child.wait().expect("ends");
        assert!(!is_alive(id));
    }
}

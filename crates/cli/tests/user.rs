//! A mount of an ordinary user: `fusermount3` mounts it, and base's modes hold for it too.

mod refusals;

use refusals::*;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Has `command` run as nobody where nobody may use FUSE: in a mount namespace of its own, or in
/// that of process `pid`.
fn nobodys(command: &mut Command, pid: Option<u32>) -> &mut Command {
    let Some(pid) = pid else {
        in_own_namespace(command, || {
            let fuse = (c"/dev/fuse", 10, 229);
            let others = [(c"/dev/urandom", 1, 9), (c"/dev/null", 1, 3)];
            for (name, major, minor) in others.into_iter().chain([fuse]) {
                let (mode, device) = (libc::S_IFCHR | 0o666, libc::makedev(major, minor));
                // SAFETY: `name` is a terminated string.
                check(unsafe { libc::mknod(name.as_ptr(), mode, device) })?;
                // SAFETY: as above.
                check(unsafe { libc::chmod(name.as_ptr(), 0o666) })?;
            }
            become_nobody()
        });
        return command;
    };
    let namespace = namespace_of(pid);
    // SAFETY: between fork and exec only system calls are made.
    unsafe {
        command.pre_exec(move || {
            check(libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNS))?;
            become_nobody()
        })
    }
}

fn namespace_of(pid: u32) -> File {
    File::open(format!("/proc/{pid}/ns/mnt")).expect("namespace")
}

/// The process that shows `base` on the ground's mountpoint, once it serves.
fn served(ground: &Ground, base: &Path, options: &str) -> Child {
    drop(ground.for_nobody());
    let mut command = Command::new(ground.path("thermocline"));
    command.arg("mount").arg(base).arg(ground.mountpoint());
    command.args(["--foreground", "--size", "4M", "--cache"]);
    command.arg(ground.cache()).args(options.split_whitespace());
    let settings = ground.path("own.toml");
    fs::write(&settings, "[mount]\nallow_other = false\n").expect("settings");
    command.arg("--config").arg(settings);
    let own = Some(NOBODY);
    chown(ground.directory.path(), own, own).expect("owner");
    let command = nobodys(&mut command, None).stderr(Stdio::piped());
    let mut child = command.spawn().expect("starts");
    let start = Instant::now();
    while source(ground, &child).is_none() {
        let ended = child.try_wait().expect("child");
        if ended.is_some() || start.elapsed() > Duration::from_secs(60) {
            let output = child.wait_with_output().expect("output");
            panic!("not mounted: {}", message(&output));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

/// What the kernel's table says is shown at the ground's mountpoint.
fn source(ground: &Ground, child: &Child) -> Option<String> {
    let table = fs::read_to_string(format!("/proc/{}/mountinfo", child.id())).ok()?;
    table.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - fuse.thermocline ")?;
        let here = place.split(' ').nth(4) == ground.mountpoint().to_str();
        here.then(|| kind.split(' ').next().unwrap_or_default().to_string())
    })
}

fn ended(ground: &Ground, mut child: Child) {
    let mut command = Command::new(ground.path("thermocline"));
    command.arg("umount").arg(ground.mountpoint());
    let output = nobodys(&mut command, Some(child.id())).output();
    let output = output.expect("runs");
    assert!(output.status.success(), "{}", message(&output));
    assert!(child.wait().expect("ends").success());
}

/// Runs `work` in a thread that acts as nobody, and sees what `child` has mounted.
fn as_nobody<T: Send>(child: &Child, work: impl FnOnce() -> T + Send) -> T {
    let namespace = namespace_of(child.id());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: raw system calls change this thread alone; no memory is passed.
            unsafe {
                check(libc::unshare(libc::CLONE_FS)).expect("a directory of its own");
                check(libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNS)).expect("namespace");
                let none = std::ptr::null::<libc::gid_t>();
                assert_eq!(libc::syscall(libc::SYS_setgroups, 0, none), 0);
                let id = NOBODY;
                assert_eq!(libc::syscall(libc::SYS_setresgid, id, id, id), 0);
                assert_eq!(libc::syscall(libc::SYS_setresuid, id, id, id), 0);
            }
            work()
        });
        thread.join().expect("thread of the user")
    })
}

#[test]
fn a_base_with_a_comma_in_its_path() {
    let case = "a_base_with_a_comma_in_its_path";
    if !root(case) || !fuse(case) {
        return;
    }
    let ground = Ground::new();
    let base = ground.path(r"a,b\c");
    fs::create_dir(&base).expect("base");
    chown(&base, Some(NOBODY), Some(NOBODY)).expect("owner");
    let child = served(&ground, &base, "");
    let expected = text(&base).replace('\\', r"\134");
    assert_eq!(source(&ground, &child), Some(expected));
    ended(&ground, child);
}

/// Whoever opened it before could only read it. Nobody has it open now.
#[test]
fn a_file_that_became_writable_is_written() {
    let case = "a_file_that_became_writable_is_written";
    if !root(case) || !fuse(case) {
        return;
    }
    for options in ["--policy lru", "--policy lc --pool 256K --write-back"] {
        let ground = Ground::new();
        let below = ground.base().join("base/5/16384");
        fs::create_dir_all(ground.base().join("base/5")).expect("directory");
        fs::write(&below, vec![1; 16 * 8192]).expect("file");
        fs::set_permissions(&below, PermissionsExt::from_mode(0o444)).expect("mode");
        for path in ["base", "base/5", "base/5/16384"] {
            chown(ground.base().join(path), Some(NOBODY), Some(NOBODY)).expect("owner");
        }
        let child = served(&ground, &ground.base(), options);
        let above = ground.mountpoint().join("base/5/16384");
        as_nobody(&child, || {
            assert_eq!(fs::read(&above).expect("read").len(), 16 * 8192);
            fs::set_permissions(&above, PermissionsExt::from_mode(0o644)).expect("mode");
            let file = File::options().read(true).write(true).open(&above);
            let file = file.expect("open");
            file.write_all_at(&[2; 8192], 8192).expect("write");
            file.sync_all().expect("sync");
        });
        ended(&ground, child);
        let bytes = fs::read(&below).expect("file");
        assert!(
            bytes[8192..16384].iter().all(|byte| *byte == 2),
            "{options}"
        );
    }
}

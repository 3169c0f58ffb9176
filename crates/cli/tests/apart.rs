//! What a mount has of whoever started it: its limits, its descriptors, its directory.

mod common;

use common::*;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;

/// A mount without a tier, in the foreground, whose files may be 1 MiB long.
fn limited(ground: &Ground, hard: u64) -> std::process::Child {
    let mut command = ground.mount("--policy none --no-passthrough --foreground");
    let limit = libc::rlimit {
        rlim_cur: MIB,
        rlim_max: hard,
    };
    // SAFETY: between fork and exec one system call is made, on a value that was copied.
    unsafe {
        command.pre_exec(
            move || match libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            },
        );
    }
    let child = command.stderr(Stdio::null()).spawn().expect("starts");
    eventually("the mount to serve", || ground.control("policy").exists());
    child
}

#[test]
fn a_limit_on_the_size_of_files_ends_no_mount() {
    let Some(ground) = Ground::prepare("limit") else {
        return;
    };
    let above = ground.mountpoint().join("base/5/16384");
    for hard in [MIB, libc::RLIM_INFINITY] {
        let mut child = limited(&ground, hard);
        let file = File::options().write(true).open(&above).expect("open");
        let written = file.write_all_at(&[1; PAGE], 2 * MIB);
        let code = written.err().and_then(|error| error.raw_os_error());
        assert_eq!(code, (hard == MIB).then_some(libc::EFBIG));
        drop(file);
        assert!(
            fs::read(&above)
                .expect("it serves on")
                .starts_with(&content())
        );
        ground.umount();
        assert!(child.wait().expect("ends").success());
    }
}

#[test]
fn a_mount_in_the_background_holds_nothing_of_its_caller() {
    let Some(ground) = Ground::prepare("holds nothing") else {
        return;
    };
    let lock = ground.path("lock");
    fs::write(ground.path("own.toml"), "[mount]\nhints = \"plans\"\n").expect("settings");
    let mut command = Command::new("flock");
    command
        .arg("-n")
        .arg(&lock)
        .arg(env!("CARGO_BIN_EXE_thermocline"));
    command.args(["mount", "base", "mnt", "--cache", "tier", "--size", "4M"]);
    command.args(["--config", "own.toml", "--log", "log", "--record", "trace"]);
    success(command.current_dir(ground.directory.path()));
    success(Command::new("flock").arg("-n").arg(&lock).arg("true"));
    let pid = ground.status("/mount/pid").as_u64().expect("number");
    let directory = fs::read_link(format!("/proc/{pid}/cwd")).expect("link");
    assert_eq!(directory, Path::new("/"));
    let hints = ground.said("hints");
    assert_eq!(Path::new(hints.trim()), ground.path("plans"));
    ground.umount();
    for made in ["tier", "log", "trace"] {
        assert!(ground.path(made).exists(), "{made}");
    }
}

//! What a mount has of whoever started it: its limits, its descriptors, its directory.

mod common;

use common::*;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Stdio;

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

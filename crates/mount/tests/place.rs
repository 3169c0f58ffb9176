//! Mounts among others at the same path: an end hits this one alone.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::TestMount;
use thermocline_mount::Place;

fn tmpfs(path: &Path) {
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "none"])
        .arg(path)
        .status();
    assert!(mounted.expect("runs").success());
}

/// Gives this thread a view of its own, in which connections can be controlled; false where the
/// kernel does not offer that.
fn control_connections() -> bool {
    let (none, at) = (c"none".as_ptr(), c"/sys/fs/fuse/connections".as_ptr());
    let private = libc::MS_REC | libc::MS_PRIVATE;
    let nothing = std::ptr::null();
    // SAFETY: all strings are terminated and static; what changes is this thread's view alone.
    unsafe {
        libc::unshare(libc::CLONE_FS | libc::CLONE_NEWNS) == 0
            && libc::mount(none, c"/".as_ptr(), nothing, private, nothing.cast()) == 0
            && libc::mount(none, at, c"fusectl".as_ptr(), 0, nothing.cast()) == 0
    }
}

#[test]
fn an_end_by_force_hits_no_mount_above() {
    if !common::is_root() {
        return;
    }
    let Some(mount) = TestMount::all_cached() else {
        return;
    };
    fs::write(mount.mnt().join("f"), [1; 8192]).expect("write");
    let open = File::open(mount.mnt().join("f")).expect("open");
    let place = Place::of(&mount.mnt());
    assert!(place.is_on_top());
    tmpfs(&mount.mnt());
    fs::write(mount.mnt().join("other"), "other").expect("write");
    assert!(!place.is_on_top());
    let aborted = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let controlled = control_connections();
            if controlled {
                place.abort();
            }
            controlled
        });
        thread.join().expect("no panic")
    });
    let start = Instant::now();
    while aborted && open.read_at(&mut [0; 4096], 0).is_ok() {
        assert!(start.elapsed() < Duration::from_secs(10), "it serves on");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(open);
    let other = fs::read(mount.mnt().join("other"));
    assert_eq!(other.expect("it is still there"), b"other");
    let unmounted = Command::new("umount").arg(mount.mnt()).status();
    assert!(unmounted.expect("runs").success());
    mount.end();
}

//! A panic while a request is served ends the process: recovery after a crash is tested, serving
//! on with state that a panic left half changed is not.

mod common;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::TestMount;
use thermocline_mount::{ControlFile, ControlFiles, Mount, MountConfig};

const CHILD: &str = "THERMOCLINE_TEST_FAIL_STOP";

struct Bomb;

impl ControlFiles for Bomb {
    fn files(&self) -> Vec<ControlFile> {
        vec![ControlFile {
            name: "bomb",
            writable: false,
        }]
    }

    fn read(&self, _name: &str) -> io::Result<Vec<u8>> {
        panic!("the bomb went off");
    }

    fn write(&self, _name: &str, _command: &str) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_panic_in_a_handler_ends_the_process() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return serve(Path::new(&dir));
    }
    let Some(mount) = TestMount::all_cached() else {
        return;
    };
    mount.end();
    let dir = tempfile::tempdir().expect("temporary directory");
    for name in ["base", "mnt"] {
        std::fs::create_dir(dir.path().join(name)).expect("directory");
    }
    // The mount is another process's: a process whose own request is not answered cannot end.
    let name = "a_panic_in_a_handler_ends_the_process";
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        // Its output is kept, as that of any test: what ends the process says so all the same.
        .args(["--exact", name])
        .env(CHILD, dir.path())
        .stderr(Stdio::piped())
        .spawn()
        .expect("child");
    let bomb = dir.path().join("mnt/.thermocline/bomb");
    while !bomb.exists() {
        let ended = child.try_wait().expect("child");
        assert!(ended.is_none(), "the child ended: {ended:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let unread = std::fs::read(&bomb).map_err(|error| error.raw_os_error());
    let child = child.wait_with_output().expect("child");
    common::detach(&dir.path().join("mnt"));
    let said = String::from_utf8_lossy(&child.stderr);
    assert_eq!(child.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(said.contains("the bomb went off"), "{said}");
    assert!(said.contains("fail_stop.rs:"), "where: {said}");
    assert!(said.contains("the process ends"), "{said}");
    let code = unread.expect_err("nobody was left to answer");
    assert!(
        [libc::ECONNABORTED, libc::ENOTCONN]
            .map(Some)
            .contains(&code),
        "{code:?}"
    );
}

fn serve(dir: &Path) {
    // A dump of the test would be found beside the sources.
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the limit is valid through the call.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    assert_eq!(set, 0);
    let mut config = MountConfig::new(dir.join("base"), dir.join("mnt"));
    config.control = Some(Arc::new(Bomb));
    let engine = common::engine(1 << 20, 0);
    let handle = Mount::start(config, engine).expect("mount");
    let ended = handle.wait();
    println!("not ended by the panic: {ended:?}");
}

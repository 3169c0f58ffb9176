//! While the fence refuses, nothing is answered from base. What is closed then is closed.

mod common;

use std::fs::{self, File};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::TestMount;
use thermocline::claim::Fence;

/// A fence that says what it is told to.
#[derive(Default)]
struct Switch(AtomicBool);

impl Switch {
    fn refuse(&self, refuses: bool) {
        self.0.store(refuses, Ordering::Release);
    }
}

impl Fence for Switch {
    fn holds(&self) -> io::Result<()> {
        self.passes()
    }
    fn passes(&self) -> io::Result<()> {
        match self.0.load(Ordering::Acquire) {
            true => Err(io::Error::from_raw_os_error(libc::EIO)),
            false => Ok(()),
        }
    }
    fn passes_now(&self) -> bool {
        self.passes().is_ok()
    }
    fn reason(&self) -> Option<String> {
        None
    }
}

/// Waits until the mount has heard of the last closes.
fn all_closed(mount: &TestMount) {
    let begun = Instant::now();
    while mount.handle().fs().held().1 > 0 {
        let open = mount.handle().fs().held().1;
        assert!(begun.elapsed() < Duration::from_secs(20), "{open} are open");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn what_is_closed_while_the_fence_refuses_is_closed() {
    for back in [false, true] {
        let engine = match back {
            true => common::engine_back(1 << 20, 64 << 10),
            false => common::engine(1 << 20, 64 << 10),
        };
        let switch = Arc::new(Switch::default());
        engine.set_fence(Arc::clone(&switch) as Arc<dyn Fence>);
        let adjust = |config: &mut thermocline_mount::MountConfig| {
            config.rules = common::cache_everything();
        };
        let Some(mount) = TestMount::start_with(engine, adjust) else {
            return;
        };
        let path = mount.mnt().join("f");
        let mut file = File::create(&path).expect("create");
        file.write_all(b"before").expect("write");
        fs::create_dir(mount.mnt().join("d")).expect("directory");
        let listing = fs::read_dir(mount.mnt().join("d")).expect("open");
        switch.refuse(true);
        file.write_all(b"refused").expect_err("the fence refuses");
        drop((file, listing));
        all_closed(&mount);
        switch.refuse(false);
        // The kernel forgets the inode, and the mount serves on.
        fs::remove_file(&path).expect("unlink");
        fs::remove_dir(mount.mnt().join("d")).expect("rmdir");
        fs::write(&path, b"after").expect("write");
        assert_eq!(fs::read(&path).expect("read"), b"after", "back: {back}");
        all_closed(&mount);
        mount.end();
    }
}

//! Bases that put a file aside while it is open, instead of removing it: NFS, and file systems in
//! user space (here `bindfs`). The tier has files open that nobody else has.

mod common;

use common::TestMount;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory shown by `bindfs`.
struct Shown(PathBuf);

impl Shown {
    /// `None` where it cannot be had, which is a failure where everything is required.
    fn new(directory: &Path) -> Option<Self> {
        let (below, at) = (directory.join("below"), directory.join("shown"));
        fs::create_dir(&below).expect("directory");
        fs::create_dir(&at).expect("directory");
        let shown = Command::new("bindfs").arg(&below).arg(&at).status();
        let shown = shown.is_ok_and(|status| status.success());
        let required = std::env::var_os("THERMOCLINE_REQUIRE_ALL").is_some();
        assert!(shown || !required, "required, but no bindfs");
        if !shown {
            eprintln!("skipped: no bindfs");
        }
        shown.then_some(Self(at))
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        common::detach(&self.0);
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("directory");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("entry").file_name();
    entries
        .map(|e| name(e).into_string().expect("UTF-8"))
        .collect()
}

#[test]
fn a_directory_whose_files_were_just_removed_can_be_removed() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let Some(shown) = Shown::new(directory.path()) else {
        return;
    };
    for back in [false, true] {
        let engine = match back {
            true => common::engine_back(4 << 20, 64 << 10),
            false => common::engine(4 << 20, 64 << 10),
        };
        let base = shown.0.clone();
        let mount = TestMount::start_with(engine, |config| {
            config.base = base;
            config.rules = common::cache_everything();
        });
        let Some(mount) = mount else { return };
        let database = mount.mnt().join("database");
        for round in 0..20 {
            fs::create_dir(&database).expect("made");
            let path = |file: i32| database.join(file.to_string());
            let mut open = Vec::new();
            for file in 0..30 {
                fs::write(path(file), [round; 20_000]).expect("written");
                open.push(fs::File::open(path(file)).expect("opened"));
            }
            for file in 0..30 {
                fs::remove_file(path(file)).expect("removed");
            }
            drop(open);
            println!(
                "left {back} {round}: {}",
                names(&shown.0.join("database")).len()
            );
            if let Err(error) = fs::remove_dir(&database) {
                panic!(
                    "round {round}, write-back {back}: {error}: {:?}",
                    names(&database)
                );
            }
        }
        mount.end();
    }
}

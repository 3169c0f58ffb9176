//! Bases that put a file aside while it is open, instead of removing it: NFS, and file systems in
//! user space (here `bindfs`). The tier has files open that nobody else has.

mod common;

use common::TestMount;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
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

fn over(shown: &Shown, back: bool) -> Option<TestMount> {
    let engine = match back {
        true => common::engine_back(4 << 20, 64 << 10),
        false => common::engine(4 << 20, 64 << 10),
    };
    let base = shown.0.clone();
    TestMount::start_with(engine, |config| {
        config.base = base;
        config.rules = common::cache_everything();
    })
}

/// A descriptor of what has this name, which opens nothing.
fn path_of(path: &Path) -> fs::File {
    let mut options = fs::OpenOptions::new();
    let opened = options.read(true).custom_flags(libc::O_PATH).open(path);
    opened.expect("there is one")
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("directory");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("entry").file_name();
    entries
        .map(|e| name(e).into_string().expect("UTF-8"))
        .collect()
}

/// Such a base does not hear of what only the mount holds: it gives the number of a file, or of a
/// directory, to the next one while the kernel, or the tier, still knows the former.
#[test]
fn a_number_that_comes_back_is_another_file() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let Some(shown) = Shown::new(directory.path()) else {
        return;
    };
    for back in [false, true] {
        let Some(mount) = over(&shown, back) else {
            return;
        };
        let [file, other, inner] = ["file", "other", "inner"].map(|name| mount.mnt().join(name));
        let mut reused = 0;
        let mut numbers = std::collections::HashSet::new();
        for round in 0..60u8 {
            fs::create_dir(&inner).expect("made");
            fs::write(inner.join("a"), [round; 20_000]).expect("written");
            fs::write(&file, [round; 30_000]).expect("written");
            let open = fs::File::open(&file).expect("opened");
            // The kernel goes on knowing these when their names are gone, and nobody has them open.
            fs::write(&other, [round; 20_000]).expect("written");
            let known = [&inner, &other].map(|path| path_of(path));
            reused += usize::from(!numbers.insert(known[0].metadata().expect("is there").ino()));
            if round % 3 == 0 {
                open.sync_all().expect("synced");
            }
            fs::remove_file(inner.join("a")).expect("removed");
            fs::remove_file(&file).expect("removed");
            fs::remove_file(&other).expect("removed");
            fs::remove_dir(&inner).expect("removed");
            fs::create_dir(&inner).expect("made anew");
            for name in ["a", "b", "c"] {
                fs::write(inner.join(name), [round ^ 0x80; 25_000]).expect("written anew");
            }
            for name in ["a", "b", "c"] {
                let found = fs::read(inner.join(name)).expect("read");
                assert_eq!(found, [round ^ 0x80; 25_000], "{name} in round {round}");
                fs::remove_file(inner.join(name)).expect("removed");
            }
            let mut old = Vec::new();
            (&open).read_to_end(&mut old).expect("what lost its name");
            assert_eq!(old, [round; 30_000], "round {round}, write-back {back}");
            drop(known);
            fs::remove_dir(&inner).expect("removed");
        }
        assert!(reused > 0, "the case needs numbers that come back");
        mount.end();
    }
}

/// Files that are open when they lose their names, and closed after that.
fn make_and_remove(directory: &Path, byte: u8) {
    let path = |file: i32| directory.join(file.to_string());
    let mut open = Vec::new();
    for file in 0..30 {
        fs::write(path(file), [byte; 20_000]).expect("written");
        open.push(fs::File::open(path(file)).expect("opened"));
    }
    for file in 0..30 {
        fs::remove_file(path(file)).expect("removed");
    }
}

#[test]
fn a_directory_whose_files_were_just_removed_can_be_removed() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let Some(shown) = Shown::new(directory.path()) else {
        return;
    };
    for back in [false, true] {
        let Some(mount) = over(&shown, back) else {
            return;
        };
        let database = mount.mnt().join("database");
        for round in 0..20 {
            fs::create_dir(&database).expect("made");
            make_and_remove(&database, round);
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

/// Whoever removed the files asks whether the directory is empty, as `DROP TABLESPACE` does. Files
/// that somebody has open stay listed, as without the mount, and nobody waits for them for long.
#[test]
fn a_directory_whose_files_were_just_removed_lists_nothing() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let Some(shown) = Shown::new(directory.path()) else {
        return;
    };
    for back in [false, true] {
        let Some(mount) = over(&shown, back) else {
            return;
        };
        let database = mount.mnt().join("database");
        fs::create_dir(&database).expect("made");
        for round in 0..20 {
            make_and_remove(&database, round);
            let left = names(&database);
            assert!(
                left.is_empty(),
                "round {round}, write-back {back}: {left:?}"
            );
        }
        let path = database.join("a");
        fs::write(&path, [1; 20_000]).expect("written");
        let open = fs::File::open(&path).expect("opened");
        fs::remove_file(&path).expect("removed");
        assert_eq!(names(&database).len(), 1, "it is open");
        drop(open);
        fs::remove_dir(&database).expect("nobody has it open now");
        mount.end();
    }
}

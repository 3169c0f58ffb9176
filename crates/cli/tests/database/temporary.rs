//! Temporary files on a mount under the priority groups (hStorage-DB §4.2.3): they come in, also
//! when the policy is switched to on a running mount, leave when they are deleted, and leave by
//! reads of the last priority where nobody can say that they were deleted.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::ground::Ground;
use crate::mounted::Mounted;
use crate::process::wait_for;

const PAGE: usize = 8192;
const PAGES: usize = 64;

/// A file of [`PAGES`] pages, written in order as a sort writes its runs; still open.
fn spill(path: &Path) -> File {
    let mut file = OpenOptions::new();
    let file = file.read(true).write(true).create(true).truncate(true);
    let mut file = file.open(path).expect("opens");
    for number in 0..PAGES {
        file.write_all(&[number as u8 + 1; PAGE]).expect("written");
    }
    file
}

/// Reads every page once, in an order that is not taken for a scan, and checks the bytes.
fn probe(file: &File) {
    for number in 0..PAGES {
        let at = number * 29 % PAGES;
        let mut page = [0; PAGE];
        file.read_exact_at(&mut page, (at * PAGE) as u64)
            .expect("read");
        assert!(page.iter().all(|byte| *byte == at as u8 + 1), "page {at}");
    }
}

/// Page reads that flash answered while `file` was read once.
fn hits_of(mount: &Mounted, file: &File) -> u64 {
    let before = mount.hits();
    probe(file);
    mount.hits() - before
}

fn resident(mount: &Mounted) -> u64 {
    mount.count("/stats/tier/resident")
}

fn temporary(mount: &Mounted, name: &str) -> PathBuf {
    let directory = mount.path("base/pgsql_tmp");
    fs::create_dir_all(&directory).expect("directory");
    directory.join(name)
}

/// LRU leaves them out. Files opened after the switch are in, and out once they are deleted.
#[test]
fn temporary_files_enter_with_the_policy_and_leave_with_their_names() {
    let Some(ground) = Ground::prepare("temporary", "root", &[]) else {
        return;
    };
    let options = ["--size", "4M", "--policy", "lru"];
    for back in [false, true] {
        let configuration = format!("[tier]\nwrite_back = {back}\n");
        let mount = Mounted::start(&ground, &options, &configuration);
        let first = temporary(&mount, "pgsql_tmp1.0");
        let file = spill(&first);
        probe(&file);
        assert_eq!((hits_of(&mount, &file), resident(&mount)), (0, 0));
        drop(file);
        fs::remove_file(&first).expect("removed");

        fs::write(mount.path(".thermocline/policy"), "priority").expect("switched");
        let path = temporary(&mount, "pgsql_tmp1.1");
        let file = spill(&path);
        assert_eq!(hits_of(&mount, &file), PAGES as u64, "all by their writes");
        assert_eq!(resident(&mount), PAGES as u64);
        drop(file);
        fs::remove_file(&path).expect("removed");
        wait_for("the pages to leave", || {
            (resident(&mount) == 0).then_some(())
        });
        assert_eq!(mount.count("/stats/tier/removals/trimmed"), PAGES as u64);

        // A file that was cut is the same as one that is gone.
        let file = spill(&path);
        file.set_len(16 * PAGE as u64).expect("cut");
        wait_for("the rest to leave", || {
            (resident(&mount) == 16).then_some(())
        });
        drop(file);
        fs::remove_file(&path).expect("removed");

        fs::write(mount.path(".thermocline/policy"), "lru").expect("switched");
        let file = spill(&temporary(&mount, "pgsql_tmp1.2"));
        assert_eq!(hits_of(&mount, &file), 0, "out again");
        drop(file);
        mount.unmount();
        fs::remove_file(ground.path("cache")).expect("removed");
    }
}

/// Reads with priority N say that a file's pages may leave; requests of no class have the default.
#[test]
fn what_nobody_trims_leaves_by_reads_of_the_last_priority() {
    let Some(ground) = Ground::prepare("legacy", "root", &[]) else {
        return;
    };
    // The tier holds three files, not four. The word for "about to be deleted" is the caller's
    // sequential read.
    let configuration = "
        [priority]
        table = \"general\"
        [[priority.rule]]
        match = { file_kind = \"undo\", request = \"sequential-read\" }
        priority = 8
        [[rules]]
        path = \"old/*\"
        kind = \"undo\"
        cache = true
        [[rules]]
        path = \"plain/*\"
        cache = true
    ";
    let size = format!("{}", 240 * PAGE);
    let options = ["--size", &size, "--policy", "priority"];
    let mount = Mounted::start(&ground, &options, configuration);
    for directory in ["old", "plain"] {
        fs::create_dir(mount.path(directory)).expect("directory");
    }
    let plain = ["a", "b"].map(|name| spill(&mount.path("plain").join(name)));
    let old = spill(&mount.path("old/x"));
    for file in plain.iter().chain([&old]) {
        probe(file);
        assert_eq!(
            hits_of(&mount, file),
            PAGES as u64,
            "no class is no refusal"
        );
    }
    // From its beginning to its end: what a caller without TRIM does before it deletes a file.
    for _ in 0..2 {
        let mut page = [0; PAGE];
        for at in 0..PAGES {
            old.read_exact_at(&mut page, (at * PAGE) as u64)
                .expect("read");
        }
    }
    let newcomer = spill(&mount.path("plain/c"));
    probe(&newcomer);
    assert_eq!(hits_of(&mount, &newcomer), PAGES as u64);
    for file in &plain {
        assert_eq!(
            hits_of(&mount, file),
            PAGES as u64,
            "older, but not given up"
        );
    }
    drop((plain, old, newcomer));
    mount.unmount();
}

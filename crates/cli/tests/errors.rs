//! Every way a mount can be refused: what is wrong and what to try, on standard error, and the
//! documented exit code.

mod refusals;

use refusals::*;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, Instant};
use twox_hash::XxHash3_64;

#[test]
fn base_missing_or_not_a_directory() {
    let ground = Ground::new();
    fs::remove_dir(ground.base()).expect("remove");
    let base = text(&ground.base());
    refused(
        &mut ground.mount_cache("--size 4M"),
        USAGE,
        &[&base, "does not exist"],
    );
    fs::write(ground.base(), "x").expect("file");
    refused(
        &mut ground.mount_cache("--size 4M"),
        USAGE,
        &[&base, "not a directory"],
    );
    assert!(
        !ground.cache().exists(),
        "nothing is made before the checks"
    );
}

#[test]
fn what_check_and_recover_cannot_find_and_what_is_no_cache() {
    let ground = Ground::new();
    let (base, cache) = (text(&ground.base()), text(&ground.cache()));
    let run = |arguments: &[&str]| {
        let mut command = thermocline();
        command.args(arguments);
        command
    };
    let commands = [&["check", &cache][..], &["recover", &base, &cache]];
    for arguments in commands {
        let wanted = [&*cache, "mount --cache"];
        refused(&mut run(arguments), USAGE, &wanted);
    }
    refused(
        &mut run(&["check", &base]),
        USAGE,
        &["regular file", "mount --cache"],
    );
    fs::write(ground.cache(), "x".repeat(100_000)).expect("no cache");
    for arguments in commands {
        refused(&mut run(arguments), CACHE, &[&cache, "getfattr"]);
    }
    fs::remove_dir(ground.base()).expect("remove");
    refused(&mut run(commands[1]), USAGE, &[&base, "does not exist"]);
}

#[test]
fn base_read_only() {
    if !root("base_read_only") {
        return;
    }
    let ground = Ground::new();
    let _base = Tmpfs::mount(&ground.base(), "size=1m", libc::MS_RDONLY);
    let base = text(&ground.base());
    refused(
        &mut ground.mount_cache("--size 4M"),
        SYSTEM,
        &[&base, "read-only"],
    );
}

#[test]
fn mountpoint_missing_used_or_inside_base() {
    let ground = Ground::new();
    let with = |mountpoint: &Path| {
        let mut command = thermocline();
        command
            .arg("mount")
            .arg(ground.base())
            .arg(mountpoint)
            .arg("--cache");
        command
            .arg(ground.cache())
            .args(["--size", "4M", "--foreground"]);
        command
    };
    refused(
        &mut with(&ground.path("no")),
        USAGE,
        &["no does not exist", "mkdir -p"],
    );
    let inside = ground.base().join("inside");
    fs::create_dir(&inside).expect("directory");
    refused(
        &mut with(&inside),
        USAGE,
        &["is inside base", &text(&ground.base())],
    );
    refused(&mut with(&ground.base()), USAGE, &["is inside base"]);
    refused(
        &mut with(ground.directory.path()),
        USAGE,
        &["is inside mountpoint"],
    );
    let link = ground.path("link");
    symlink(&inside, &link).expect("link");
    refused(&mut with(&link), USAGE, &["is inside base"]);
    let used = ground.path("used");
    fs::create_dir(&used).expect("directory");
    fs::write(used.join("file"), "x").expect("file");
    refused(&mut with(&used), USAGE, &["not empty"]);
    refused(&mut with(&used.join("file")), USAGE, &["not a directory"]);
}

#[test]
fn cache_not_named_or_in_an_impossible_place() {
    if !fuse("cache_not_named_or_in_an_impossible_place") {
        return;
    }
    let ground = Ground::new();
    refused(
        &mut ground.mount("--size 4M"),
        USAGE,
        &["no cache file", "--cache"],
    );
    let inside = format!("--size 4M --cache {}", text(&ground.base().join("tier")));
    refused(
        &mut ground.mount(&inside),
        USAGE,
        &["inside the base directory"],
    );
    refused(
        &mut ground.mount_cache(""),
        USAGE,
        &["does not exist yet", "--size"],
    );
    refused(&mut ground.mount_cache("--size 4k"), USAGE, &["too small"]);
    refused(
        &mut ground.mount_cache("--size 4M --page-size 5000"),
        USAGE,
        &["5000", "8KiB"],
    );
    let block = "--size 4M --foreground --cache /dev/null";
    let output = ground.mount(block).output().expect("runs");
    assert!(!output.status.success(), "/dev/null is no cache");
}

#[test]
fn cache_file_of_something_else_or_of_another_base() {
    if !fuse("cache_file_of_something_else_or_of_another_base") {
        return;
    }
    let ground = Ground::new();
    fs::write(ground.cache(), "my thesis, the only copy\n".repeat(1000)).expect("file");
    let cache = text(&ground.cache());
    refused(
        &mut ground.mount_cache("--size 4M"),
        CACHE,
        &[&cache, "does not hold a cache"],
    );
    let kept = fs::read_to_string(ground.cache()).expect("file");
    assert!(
        kept.starts_with("my thesis"),
        "what is refused is not touched"
    );

    let other = ground.another();
    drop(other.make_cache());
    fs::copy(other.cache(), ground.cache()).expect("copy");
    let parts = [
        &*cache,
        "belongs to base",
        &text(&other.base()),
        &text(&ground.base()),
    ];
    refused(&mut ground.mount_cache(""), CACHE, &parts);
}

#[test]
fn cache_of_another_shape() {
    if !fuse("cache_of_another_shape") {
        return;
    }
    let ground = Ground::new();
    drop(ground.make_cache());
    let page_size = ["pages of 8192 bytes", "16384", "--page-size 8192"];
    refused(
        &mut ground.mount_cache("--page-size 16k"),
        CACHE,
        &page_size,
    );
    let size = ["4194304 bytes", "8388608", "--size"];
    refused(&mut ground.mount_cache("--size 8M"), CACHE, &size);
}

#[test]
fn cache_of_another_version() {
    if !fuse("cache_of_another_version") {
        return;
    }
    let ground = Ground::new();
    ground.damage(|file| {
        for copy in [0, 4096] {
            let mut block = [0; 4096];
            file.read_exact_at(&mut block, copy).expect("read");
            block[8..12].copy_from_slice(&77_u32.to_le_bytes());
            let checksum = XxHash3_64::oneshot(&block[..4088]);
            block[4088..].copy_from_slice(&checksum.to_le_bytes());
            file.write_all_at(&block, copy).expect("write");
        }
    });
    refused(
        &mut ground.mount_cache(""),
        CACHE,
        &["format version 77", "versions 2 to 4", "another cache file"],
    );
    refused(
        &mut ground.mount_cache("--format --size 4M"),
        CACHE,
        &["may be more", "format version 77", "--discard-dirty 0"],
    );
}

#[test]
fn superblock_corrupt_or_truncated() {
    if !fuse("superblock_corrupt_or_truncated") {
        return;
    }
    let ground = Ground::new();
    ground.damage(|file| {
        for copy in [0, 4096] {
            file.write_all_at(b"?", copy + 50).expect("write");
        }
    });
    refused(
        &mut ground.mount_cache(""),
        CACHE,
        &["superblock", "another cache"],
    );
    let again = "--format --size 4M";
    let hidden = ["may be more", "--discard-dirty 0"];
    refused(&mut ground.mount_cache(again), CACHE, &hidden);
    for (length, word) in [(100, "it has 100 bytes"), (2 << 20, "truncated")] {
        fs::remove_file(ground.cache()).expect("remove");
        ground.damage(|file| file.set_len(length).expect("cut"));
        refused(&mut ground.mount_cache(""), CACHE, &[word, "another cache"]);
    }
    refused(&mut ground.mount_cache(again), CACHE, &hidden);
}

#[test]
fn cache_in_use() {
    if !fuse("cache_in_use") {
        return;
    }
    let ground = Ground::new();
    let _held = ground.make_cache();
    let cache = text(&ground.cache());
    refused(
        &mut ground.mount_cache(""),
        CACHE,
        &[&cache, "in use by another mount"],
    );
    refused(
        &mut ground.mount_cache("--format --size 4M"),
        CACHE,
        &["in use"],
    );
}

#[test]
fn the_error_of_a_background_mount_reaches_the_caller() {
    if !fuse("the_error_of_a_background_mount_reaches_the_caller") {
        return;
    }
    let ground = Ground::new();
    let _held = ground.make_cache();
    let mut command = ground.mount("");
    refused(
        command.arg("--cache").arg(ground.cache()),
        CACHE,
        &["in use by another mount"],
    );
}

#[test]
fn no_fuse_device() {
    if !root("no_fuse_device") {
        return;
    }
    let ground = Ground::new();
    let mut command = ground.mount_cache("--size 4M");
    in_own_namespace(&mut command, || Ok(()));
    refused(&mut command, SYSTEM, &["no FUSE device", "modprobe fuse"]);
    assert!(
        !ground.cache().exists(),
        "nothing is made before the checks"
    );
}

#[test]
fn no_permission_for_the_fuse_device() {
    if !root("no_permission_for_the_fuse_device") {
        return;
    }
    let ground = Ground::new();
    let mut command = ground.for_nobody();
    in_own_namespace(&mut command, || {
        let (name, mode) = (c"/dev/fuse", libc::S_IFCHR | 0o600);
        // SAFETY: `name` is a terminated string.
        check(unsafe { libc::mknod(name.as_ptr(), mode, libc::makedev(10, 229)) })?;
        become_nobody()
    });
    refused(&mut command, SYSTEM, &["no permission", "/dev/fuse"]);
}

#[test]
fn no_permission_for_base_or_cache() {
    if !root("no_permission_for_base_or_cache") {
        return;
    }
    let ground = Ground::new();
    let run = || {
        let mut command = ground.for_nobody();
        in_own_namespace(&mut command, || {
            let (name, mode) = (c"/dev/fuse", libc::S_IFCHR | 0o666);
            // SAFETY: `name` is a terminated string; clearing the mask needs nothing.
            check(unsafe { libc::mknod(name.as_ptr(), mode, libc::makedev(10, 229)) })?;
            // SAFETY: as above.
            check(unsafe { libc::chmod(name.as_ptr(), 0o666) })?;
            become_nobody()
        });
        command
    };
    drop(ground.make_cache());
    let cache = text(&ground.cache());
    refused(&mut run(), SYSTEM, &[&cache, "Permission denied"]);
    let mut command = run();
    fs::set_permissions(ground.base(), PermissionsExt::from_mode(0o500)).expect("mode");
    std::os::unix::fs::chown(ground.base(), Some(0), Some(0)).expect("owner");
    refused(&mut command, SYSTEM, &[&text(&ground.base())]);
}

#[test]
fn flash_full() {
    if !root("flash_full") || !fuse("flash_full") {
        return;
    }
    let ground = Ground::new();
    let flash = ground.path("flash");
    fs::create_dir(&flash).expect("directory");
    let _flash = Tmpfs::mount(&flash, "size=1m", 0);
    let cache = flash.join("tier");
    let options = format!("--foreground --size 4M --cache {}", text(&cache));
    refused(
        &mut ground.mount(&options),
        CACHE,
        &[&text(&cache), "no room", "--size"],
    );
    assert!(!cache.exists(), "a cache that found no room is removed");
    let flash = ground.path("roomy");
    fs::create_dir(&flash).expect("directory");
    let _roomy = Tmpfs::mount(&flash, "size=24m", 0);
    let cache = text(&flash.join("tier"));
    let mut large = ground.mount(&format!("--foreground --size 280MiB --cache {cache}"));
    refused(&mut large, CACHE, &["bytes are free", "would fit"]);
    let said = message(&large.output().expect("runs"));
    let advice = said.split("--size ").nth(1).expect("a size");
    let fits = advice.split(' ').next().expect("a size").to_string();
    let mut smaller = ground.mount(&format!("--size {fits} --cache {cache}"));
    let output = smaller.output().expect("runs");
    assert!(output.status.success(), "{fits}: {}", message(&output));
    unmount(&ground.mountpoint());
}

#[test]
fn base_full() {
    if !root("base_full") || !fuse("base_full") {
        return;
    }
    let ground = Ground::new();
    let _base = Tmpfs::mount(&ground.base(), "size=1m", 0);
    let mut command = ground.mount("--size 4M");
    let output = command
        .arg("--cache")
        .arg(ground.cache())
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", message(&output));
    let path = ground.mountpoint().join("base/5");
    fs::create_dir_all(&path).expect("directories");
    let mut file = File::create(path.join("16384")).expect("file");
    let page = [7; 8192];
    let filled = (0..256)
        .find_map(|_| file.write_all(&page).err())
        .expect("full before 2 MiB");
    assert_eq!(filled.kind(), ErrorKind::StorageFull);
    drop(file);
    let written = fs::read(path.join("16384")).expect("read");
    assert!(written.len() > 8192 && written.iter().all(|byte| *byte == 7));
    fs::remove_file(path.join("16384")).expect("remove");
    // The kernel tells the mount of the last close when it pleases; until then base keeps the file.
    let start = Instant::now();
    while let Err(error) = fs::write(path.join("16385"), page) {
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "no room after removing the file"
        );
    }
    unmount(&ground.mountpoint());
    assert_eq!(
        fs::read(ground.base().join("base/5/16385")).expect("base"),
        page
    );
}

#[test]
fn mounted_twice_and_unmounted_while_used() {
    if !fuse("mounted_twice_and_unmounted_while_used") || !root("unmounting") {
        return;
    }
    let ground = Ground::new();
    let mut command = ground.mount("--size 4M");
    let output = command
        .arg("--cache")
        .arg(ground.cache())
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", message(&output));
    let twice = ["already", "thermocline umount"];
    refused(&mut ground.mount_cache(""), USAGE, &twice);
    let open = File::create(ground.mountpoint().join("open")).expect("file");
    let mut umount = thermocline();
    refused(
        umount.arg("umount").arg(ground.mountpoint()),
        1,
        &["is in use", "fuser"],
    );
    drop(open);
    unmount(&ground.mountpoint());
}

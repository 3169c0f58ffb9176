//! The `fsx` program on a mount: 100,000 operations from fixed seeds in two modes, every read
//! checked.
//!
//! Ten files of 10,000 operations each rather than one of 100,000: fsx leaves part of its maps
//! of the file mapped, so that each of its truncations becomes slower than the last. Two files
//! at a time, four times larger than the flash tier together, so that pages come and go.

mod common;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use common::TestMount;
use thermocline::Engine;
use thermocline_mount::MountConfig;

const OPERATIONS: u64 = 10_000;

/// All kinds of operations; the syncs seldom, because the base's own disk has to do them.
const CONFIG: &str = "
flen = 262144
[opsize]
max = 65536
[weights]
close_open = 1
invalidate = 1
mapread = 1
mapwrite = 1
read = 5
write = 5
truncate = 1
fsync = 0.05
fdatasync = 0.05
posix_fallocate = 1
punch_hole = 1
sendfile = 1
posix_fadvise = 1
copy_file_range = 1
";

/// The program, installed by the project's own script; `None` (with the reason printed) when
/// that is not possible here and nobody insists.
fn fsx() -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/fsx.sh");
    let output = Command::new("bash").arg(script).output().expect("bash");
    if output.status.success() {
        return Some(PathBuf::from(
            String::from_utf8_lossy(&output.stdout).trim(),
        ));
    }
    let reason = String::from_utf8_lossy(&output.stderr).into_owned();
    let required = std::env::var_os("THERMOCLINE_REQUIRE_ALL").is_some();
    assert!(
        !required,
        "required, but fsx could not be installed: {reason}"
    );
    eprintln!("skipped: fsx could not be installed: {reason}");
    None
}

fn exercise(fsx: &Path, mount: &TestMount, seed: u64) {
    let artifacts = mount.dir.path().join(format!("artifacts-{seed}"));
    std::fs::create_dir(&artifacts).expect("mkdir");
    let output = Command::new(fsx)
        .args(["-N", &OPERATIONS.to_string(), "-S", &seed.to_string()])
        .arg("-f")
        .arg(mount.dir.path().join("fsx.toml"))
        .arg("-P")
        .arg(&artifacts)
        .arg(mount.mnt().join(format!("file-{seed}")))
        .output()
        .expect("fsx");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "seed {seed}:\n{said}\n{complained}"
    );
    assert!(said.contains("A-OK"), "seed {seed}:\n{said}\n{complained}");
}

#[test]
fn sixty_thousand_operations_are_clean() {
    through_the_tier(common::engine(128 << 10, 32 << 10), 1..=6);
}

#[test]
fn forty_thousand_operations_in_write_back_are_clean() {
    through_the_tier(common::engine_back(128 << 10, 32 << 10), 21..=24);
}

fn through_the_tier(engine: Arc<Engine>, seeds: RangeInclusive<u64>) {
    let Some(fsx) = fsx() else { return };
    let Some(mount) = TestMount::start_with(engine, |c| c.rules = common::cache_everything())
    else {
        return;
    };
    std::fs::write(mount.dir.path().join("fsx.toml"), CONFIG).expect("write");
    let seeds: Vec<u64> = seeds.collect();
    for pair in seeds.chunks(2) {
        std::thread::scope(|scope| {
            for seed in pair {
                scope.spawn(|| exercise(&fsx, &mount, *seed));
            }
        });
    }
    let stats = mount.engine.stats();
    for place in ["pool", "flash", "base"] {
        let served = stats.page_reads.get(place).copied().unwrap_or(0);
        assert!(served > 100, "{served} pages came from {place}");
    }
    mount.end();
}

/// Files that bypass the tier, which the kernel serves from base where it can.
#[test]
fn operations_past_the_tier_are_clean() {
    let Some(fsx) = fsx() else { return };
    let engine = common::engine(128 << 10, 32 << 10);
    let rules = |config: &mut MountConfig| config.rules = common::cache_all(false);
    let Some(mount) = TestMount::start_with(engine, rules) else {
        return;
    };
    std::fs::write(mount.dir.path().join("fsx.toml"), CONFIG).expect("write");
    std::thread::scope(|scope| {
        for seed in [11, 12] {
            let (fsx, mount) = (&fsx, &mount);
            scope.spawn(move || exercise(fsx, mount, seed));
        }
    });
    mount.end();
}

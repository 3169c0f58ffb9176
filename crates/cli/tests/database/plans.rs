//! PostgreSQL with the extension on a mount: its plans are hints of its reads.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::ground::{Ground, program};
use crate::mounted::{Mounted, thermocline};
use crate::process::{succeed, wait_for};
use crate::server::{PROGRAMS, Postgres, initdb};

/// Bytes of a slot and of the header before the first (docs/postgresql.md).
const SLOT: usize = 512;
const ROWS: u32 = 400_000;

#[test]
fn plans_reach_the_mount() {
    let needed = [&PROGRAMS[..], &["pg_config", "make", "cc"]].concat();
    let Some(ground) = Ground::prepare("plans", "postgres", &needed) else {
        return;
    };
    let Some(library) = build(&ground) else {
        return;
    };
    let trace = ground.path("trace.parquet");
    let record = trace.to_str().expect("UTF-8");
    let options = ["--size", "32M", "--policy", "priority", "--record", record];
    let mount = Mounted::start(&ground, &options, "");
    let data = mount.path("data");
    initdb(ground.user, &data);
    let path = format!("dynamic_library_path={library}");
    let settings = [
        "shared_preload_libraries=thermocline",
        &path,
        "autovacuum=off",
    ];
    let server = Postgres::start(&ground, &data, &settings);
    let file = fs::read_to_string(mount.path(".thermocline/hints")).expect("a path");
    let file = Path::new(file.trim_end());
    server.query(
        "postgres",
        "CREATE TABLE big (k int PRIMARY KEY, fill text)",
    );
    let rows =
        format!("INSERT INTO big SELECT n, repeat('x', 100) FROM generate_series(1, {ROWS}) n");
    server.query("postgres", &rows);
    server.query("postgres", "VACUUM ANALYZE big");
    server.query("postgres", "CHECKPOINT");
    server.query("postgres", &probes());
    for _ in 0..3 {
        server.query("postgres", SCAN);
    }

    killed_in_mid_query(&server, file);
    hostile_writer(&server, file);
    server.stop();
    assert!(publishers(file).is_empty(), "a server that ended");
    mount.unmount();
    let _ = fs::remove_file(file);
    check_trace(&trace);
}

/// Reads a column that no index has, in one process.
const SCAN: &str = "SET max_parallel_workers_per_gather = 0; SELECT sum(length(fill)) FROM big";

/// Index scans of `big` in no order, for longer than the mount needs to find the slot.
fn probes() -> String {
    format!(
        "SET enable_hashjoin = off; SET enable_mergejoin = off; SET enable_seqscan = off; \
         SELECT count(fill) FROM generate_series(1, 60000) g JOIN big ON big.k = g * 7919 % {ROWS}"
    )
}

/// A session killed in mid-query leaves no level: the mount counts live processes alone, and the
/// server frees the slot when it notices.
fn killed_in_mid_query(server: &Postgres, file: &Path) {
    let mut session = server.psql("postgres");
    let sql = "SET enable_seqscan = off; SELECT pg_sleep(1000), fill FROM big WHERE k = 7";
    let mut session = session.args(["-c", sql]).spawn().expect("starts");
    let pid = wait_for("a level in the file", || levels(file).first().copied());
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
    let since = Instant::now();
    assert!(killed.expect("kill").success());
    wait_for("the level to be gone", || {
        levels(file).is_empty().then_some(())
    });
    let gone = since.elapsed();
    wait_for("the slot to be free", || {
        publishers(file).is_empty().then_some(())
    });
    println!(
        "killed: no level after {gone:?}, the slot free after {:?}",
        since.elapsed()
    );
    session.wait().expect("ends");
    wait_for("the server", || {
        let said = server.psql("postgres").args(["-c", "SELECT 1"]).output();
        said.ok().filter(|output| output.status.success())
    });
}

/// Somebody writes random bytes anywhere into the file: answers stay right.
fn hostile_writer(server: &Postgres, file: &Path) {
    let before = fs::read(file).expect("the file");
    let right = [
        server.query("postgres", SCAN),
        server.query("postgres", &probes()),
    ];
    let over = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| scribble(file, before.len(), &over));
        for _ in 0..2 {
            let now = [
                server.query("postgres", SCAN),
                server.query("postgres", &probes()),
            ];
            assert_eq!(now, right);
        }
        over.store(true, Ordering::Release);
        writer.join().expect("writes")
    });
    println!("{written} writes into the file changed no answer");
    assert!(written > 1000, "they were in time");
    // Nobody publishes between two queries: the file as it was is right again.
    fs::write(file, before).expect("restored");
}

/// Writes until it is `over`; how often.
fn scribble(file: &Path, length: usize, over: &AtomicBool) -> u64 {
    let file = File::options().write(true).open(file).expect("opens");
    let (mut state, mut written) = (0x9e37_79b9_7f4a_7c15_u64, 0);
    while !over.load(Ordering::Acquire) {
        for _ in 0..64 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let bytes = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
            let at = state % (length as u64 - 8);
            let some = &bytes[..1 + (state >> 61) as usize];
            file.write_all_at(some, at).expect("written");
            written += 1;
        }
        // The queries are to have the CPU.
        thread::sleep(Duration::from_millis(1));
    }
    written
}

/// The live processes that publish a level, as the mount counts them: those that read a relation
/// at random.
fn levels(file: &Path) -> Vec<u32> {
    let mut found = publishers(file);
    let bytes = fs::read(file).unwrap_or_default();
    let slots = bytes.chunks_exact(SLOT).skip(1);
    let random: Vec<&[u8]> = slots.filter(|slot| slot[20] <= slot[21]).collect();
    found.retain(|pid| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state = stat.rsplit_once(") ").map_or("X", |(_, rest)| rest);
        let runs = !state.starts_with(['Z', 'X']);
        let has = |slot: &&[u8]| slot[4..8] == pid.to_le_bytes();
        runs && random.iter().any(has)
    });
    found
}

/// The processes that publish relations.
fn publishers(file: &Path) -> Vec<u32> {
    let bytes = fs::read(file).unwrap_or_default();
    let slots = bytes.chunks_exact(SLOT).skip(1);
    let publishing = slots.filter(|slot| slot[22] > 0);
    let number = |slot: &[u8]| u32::from_le_bytes([slot[4], slot[5], slot[6], slot[7]]);
    publishing.map(number).filter(|pid| *pid != 0).collect()
}

/// Builds the extension for the installed server; the directory it is in.
fn build(ground: &Ground) -> Option<String> {
    let config = program("pg_config")?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../pg");
    let to = ground.make("extension");
    let mut script = Command::new(source.join("private.sh"));
    let built = script.arg(&config).arg(&to).output().expect("starts");
    if !built.status.success() {
        let said = String::from_utf8_lossy(&built.stderr);
        let required = std::env::var_os("THERMOCLINE_REQUIRE_ALL").is_some_and(|v| v == "1");
        assert!(!required, "{said}");
        eprintln!("skipped: the extension is not built: {said}");
        return None;
    }
    Some(to.join("build").to_str()?.to_string())
}

/// The recording has what the plans said.
fn check_trace(trace: &Path) {
    let mut info = thermocline();
    let text = succeed(
        info.args(["trace", "info", "--json", "--top", "100"])
            .arg(trace),
    );
    for word in [
        "index-scan",
        "seq-scan",
        "plan_level",
        "random",
        "sequential",
    ] {
        assert!(text.contains(&format!("\"{word}\"")), "no {word}: {text}");
    }
}

//! PostgreSQL lives on a mount: made, filled, worked and verified there; then again on its base
//! directory without the mount, and back.
//!
//! `THERMOCLINE_TEST_SCALE=50 THERMOCLINE_TEST_SECONDS=60` is the size of the acceptance run; the
//! everyday size is smaller because filling alone takes minutes at that scale.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use thermocline_core::policy::NAMES;

use crate::ground::{Ground, number};
use crate::mounted::{Mounted, thermocline};
use crate::process::succeed;
use crate::server::{PROGRAMS, Postgres, initdb, verify_checksums};

/// Scale of pgbench: 100,000 rows, about 15 MB, each.
const SCALE: u32 = 6;
/// Seconds of each pgbench run.
const SECONDS: u32 = 4;

#[test]
fn postgres_keeps_its_data_on_a_mount() {
    let Some(ground) = Ground::prepare("postgres", "postgres", &PROGRAMS) else {
        return;
    };
    let scale = number("THERMOCLINE_TEST_SCALE", SCALE);
    // A tier of about a quarter of the database.
    let size = format!("{}M", scale * 4);
    let trace = ground.path("trace.parquet");
    let record = trace.to_str().expect("UTF-8");
    let mount = Mounted::start(&ground, &["--size", &size, "--record", record], "");
    let data = mount.path("data");
    initdb(ground.user, &data);
    let server = Postgres::start(&ground, &data, &[]);
    server.fill(scale);
    work(&server);
    every_policy(&mount, &server);
    server.amcheck();
    check_status(&mount);
    let sum = server.dump_sum("bench");
    server.stop();
    verify_checksums(ground.user, &data);
    mount.unmount();
    check_trace(&trace);

    let plain = ground.path("base/data");
    verify_checksums(ground.user, &plain);
    let server = Postgres::start(&ground, &plain, &[]);
    assert_eq!(server.dump_sum("bench"), sum, "on the base directory");
    // Behind the tier's back: what it holds of these files is out of date now.
    server.query("bench", "UPDATE pgbench_accounts SET abalance = 7");
    let changed = server.dump_sum("bench");
    assert_ne!(changed, sum);
    server.stop();

    let mount = Mounted::start(&ground, &["--size", &size], "");
    let stale = mount.count("/stats/tier/stale_objects");
    let server = Postgres::start(&ground, &data, &[]);
    assert_eq!(server.dump_sum("bench"), changed, "back on the mount");
    server.amcheck();
    let found = mount.count("/stats/tier/stale_objects");
    assert!(
        found > 0,
        "changed files were not noticed: {stale}, {found}"
    );
    server.stop();
    verify_checksums(ground.user, &data);
    mount.unmount();
}

/// Mixed and read-only transactions by 8 clients, and a vacuum.
fn work(server: &Postgres) {
    let seconds = number("THERMOCLINE_TEST_SECONDS", SECONDS).to_string();
    let common = ["--client=8", "--jobs=2", "--time", &seconds];
    server.pgbench(&[&common[..], &["--progress=60"]].concat());
    server.pgbench(&[&common[..], &["--select-only"]].concat());
    server.query("bench", "VACUUM");
    server.query("bench", "CHECKPOINT");
    server.pgbench(&[&common[..], &["--select-only"]].concat());
}

/// The policy can be switched under load; what is in the tier stays there.
fn every_policy(mount: &Mounted, server: &Postgres) {
    for policy in NAMES.iter().copied().chain(["tac"]) {
        let mut command = thermocline();
        let switch = command.arg("policy").arg(&mount.mountpoint).arg(policy);
        let before = mount.hits();
        std::thread::scope(|scope| {
            scope.spawn(|| server.pgbench(&["--client=8", "--jobs=2", "--time=1"]));
            std::thread::sleep(Duration::from_millis(500));
            succeed(switch);
        });
        let tier = &mount.status()["stats"]["tier"];
        assert_eq!(tier["policy"], policy);
        assert_eq!(
            tier["learned"].is_object(),
            policy.contains("clic") || policy.contains("value") || policy == "auto",
            "{tier:#}"
        );
        assert!(mount.hits() > before, "{policy}: no hits");
    }
}

/// The mount's own account of the work.
fn check_status(mount: &Mounted) {
    let status = mount.status();
    let count = |pointer: &str| {
        let value = status.pointer(pointer).and_then(Value::as_u64);
        value.unwrap_or_else(|| panic!("no {pointer} in {status:#}"))
    };
    println!("{}", mount.status_text());
    assert!(mount.hits() > 0, "{status:#}");
    assert!(count("/stats/page_reads/base") > 0, "{status:#}");
    assert!(count("/stats/page_writes") > 0, "{status:#}");
    // The log passes the tier by.
    assert!(count("/stats/bypassed_writes") > 0, "{status:#}");
    let tier = status.pointer("/stats/tier").expect("a tier");
    assert_eq!(tier["off"], Value::Null);
    let faults = tier["faults"].as_object().expect("faults");
    assert!(faults.values().all(|n| n == 0), "{faults:?}");
    assert!(count("/stats/tier/admissions") > 0);
    assert!(count("/stats/tier/resident") <= count("/stats/tier/slots"));
    let objects = status.pointer("/stats/objects").and_then(Value::as_array);
    for object in objects.expect("objects") {
        let name = object["name"].as_str().expect("a name");
        let logged = name.contains("pg_wal/") && object["resident"] != 0;
        assert!(!logged, "log file in the tier: {object}");
    }
}

/// The trace knows who asked, and for what kind of page.
fn check_trace(trace: &Path) {
    let mut info = thermocline();
    let text = succeed(
        info.args(["trace", "info", "--json", "--top", "100"])
            .arg(trace),
    );
    let roles = ["backend", "checkpointer", "background-writer", "wal-writer"];
    let pages = ["heap", "btree-leaf", "btree-inner"];
    let kinds = ["relation", "catalog", "log"];
    for word in [&roles[..], &pages[..], &kinds[..]].concat() {
        let quoted = format!("\"{word}\"");
        assert!(text.contains(&quoted), "no {word} in the trace: {text}");
    }
}
